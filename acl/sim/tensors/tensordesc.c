/* tensordesc.c: aclTensorDesc: the type, shape and layout of a tensor, without its memory.

   Storage and origin shapes are stored and returned, but computation uses the shape alone: every tensor of the
   simulator is row-major, whatever its format. A description is used by one thread at a time. */
#include "tensors/tensordesc.h"

#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"
#include "memory/memory.h"

enum { DIMS_MAX = 128, DIM_UNKNOWN_RANK = -2 };

const int64_t *dims_list(const Dims *dims)
{
    return dims->far != NULL ? dims->far : dims->near;
}

static void dims_drop(Dims *dims)
{
    free(dims->far);
    *dims = (Dims){0};
}

bool dims_set(Dims *dims, int count, const int64_t *values)
{
    int64_t *far = NULL;
    if (count > TENSOR_RANK_MAX) {
        far = malloc((size_t)count * sizeof *far);
        if (far == NULL) {
            return false;
        }
    }
    if (count > 0) {
        memmove(far != NULL ? far : dims->near, values, (size_t)count * sizeof *values);
    }
    free(dims->far);
    dims->far = far;
    dims->count = count;
    return true;
}

aclTensorDesc *tensordesc_new(aclDataType type, int count, const int64_t *dims, aclFormat format)
{
    aclTensorDesc *desc = handle_new(HANDLE_TENSOR_DESC, sizeof *desc);
    if (desc == NULL || !dims_set(&desc->dims, count, dims)) {
        (void)fail(ACL_ERROR_BAD_ALLOC, "no memory for a tensor description");
        if (desc != NULL) {
            handle_retire(desc);
        }
        return NULL;
    }
    desc->type = type;
    desc->format = desc->storage_format = desc->origin_format = format;
    return desc;
}

aclTensorDesc *sim_aclCreateTensorDesc(
    aclDataType dataType, int numDims, const int64_t *dims, aclFormat format)
{
    if (numDims < 0 || numDims > DIMS_MAX || (numDims > 0 && dims == NULL)) {
        (void)fail(ACL_ERROR_INVALID_PARAM, "numDims %d with dims %p", numDims, (const void *)dims);
        return NULL;
    }
    return tensordesc_new(dataType, numDims, dims, format);
}

void sim_aclDestroyTensorDesc(const aclTensorDesc *desc)
{
    aclTensorDesc *own = (aclTensorDesc *)(uintptr_t)desc;
    if (!handle_is(desc, HANDLE_TENSOR_DESC) || !handle_kill(own)) {
        return;
    }
    dims_drop(&own->dims);
    dims_drop(&own->storage);
    dims_drop(&own->origin);
    dims_drop(&own->ranges);
    free(own->name);
    free(own->dynamic_input);
    free(own->constant);
    own->name = own->dynamic_input = NULL;
    own->constant = NULL;
    aclTensorDesc *next = own->next;
    handle_retire(own);
    sim_aclDestroyTensorDesc(next);
}

/* --- what is in it --- */

aclDataType sim_aclGetTensorDescType(const aclTensorDesc *desc)
{
    return handle_is(desc, HANDLE_TENSOR_DESC) ? desc->type : ACL_DT_UNDEFINED;
}

aclFormat sim_aclGetTensorDescFormat(const aclTensorDesc *desc)
{
    return handle_is(desc, HANDLE_TENSOR_DESC) ? desc->format : ACL_FORMAT_UNDEFINED;
}

static bool rank_unknown(const aclTensorDesc *desc)
{
    return desc->dims.count > 0 && dims_list(&desc->dims)[0] == DIM_UNKNOWN_RANK;
}

/* Returns 0 if a dimension is unknown, or if the product does not fit a size_t. */
size_t sim_aclGetTensorDescElementCount(const aclTensorDesc *desc)
{
    size_t count = 1;
    if (!handle_is(desc, HANDLE_TENSOR_DESC)) {
        return 0;
    }
    for (int d = 0; d < desc->dims.count; d++) {
        int64_t dim = dims_list(&desc->dims)[d];
        if (dim < 0 || __builtin_mul_overflow(count, (size_t)dim, &count)) {
            return 0;
        }
    }
    return count;
}

size_t sim_aclGetTensorDescSize(const aclTensorDesc *desc)
{
    size_t bytes;
    if (!handle_is(desc, HANDLE_TENSOR_DESC)) {
        return 0;
    }
    size_t count = sim_aclGetTensorDescElementCount(desc);
    return __builtin_mul_overflow(count, (size_t)type_size(desc->type), &bytes) ? 0 : bytes;
}

size_t sim_aclGetTensorDescNumDims(const aclTensorDesc *desc)
{
    if (!handle_is(desc, HANDLE_TENSOR_DESC)) {
        return 0;
    }
    return rank_unknown(desc) ? (size_t)ACL_UNKNOWN_RANK : (size_t)desc->dims.count;
}

int64_t sim_aclGetTensorDescDim(const aclTensorDesc *desc, size_t index)
{
    if (!handle_is(desc, HANDLE_TENSOR_DESC) || index >= (size_t)desc->dims.count) {
        return -1;
    }
    return dims_list(&desc->dims)[index];
}

aclError sim_aclGetTensorDescDimV2(const aclTensorDesc *desc, size_t index, int64_t *dimSize)
{
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    REQUIRE(dimSize);
    REQUIRE(index < (size_t)desc->dims.count);
    *dimSize = dims_list(&desc->dims)[index];
    return ACL_SUCCESS;
}

aclError sim_aclGetTensorDescDimRange(
    const aclTensorDesc *desc, size_t index, size_t dimRangeNum, int64_t *dimRange)
{
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    REQUIRE(dimRange);
    REQUIRE(dimRangeNum >= ACL_TENSOR_SHAPE_RANGE_NUM);
    REQUIRE(2 * index + 1 < (size_t)desc->ranges.count);
    dimRange[0] = dims_list(&desc->ranges)[2 * index];
    dimRange[1] = dims_list(&desc->ranges)[2 * index + 1];
    return ACL_SUCCESS;
}

void *sim_aclGetTensorDescAddress(const aclTensorDesc *desc)
{
    if (!handle_is(desc, HANDLE_TENSOR_DESC)) {
        return NULL;
    }
    return desc->constant != NULL ? desc->constant : desc->address;
}

const char *sim_aclGetTensorDescName(aclTensorDesc *desc)
{
    bool named = handle_is(desc, HANDLE_TENSOR_DESC) && desc->name != NULL;
    return named ? desc->name : "";
}

/* --- setting it --- */

static aclError list_put(Dims *dims, int count, const int64_t *values)
{
    return dims_set(dims, count, values)
        ? ACL_SUCCESS
        : fail(ACL_ERROR_BAD_ALLOC, "no memory for %d dimensions", count);
}

static aclError text_put(char **place, const char *text)
{
    char *copy = strdup(text);
    if (copy == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no memory for a name");
    }
    free(*place);
    *place = copy;
    return ACL_SUCCESS;
}

void sim_aclSetTensorDescName(aclTensorDesc *desc, const char *name)
{
    if (handle_is(desc, HANDLE_TENSOR_DESC)) {
        (void)text_put(&desc->name, name == NULL ? "" : name);
    }
}

aclError sim_aclSetTensorShapeRange(aclTensorDesc *desc, size_t dimsCount, int64_t dimsRange[][2])
{
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    REQUIRE(dimsRange);
    REQUIRE(dimsCount <= DIMS_MAX);
    return list_put(&desc->ranges, 2 * (int)dimsCount, &dimsRange[0][0]);
}

aclError sim_aclSetTensorStorageFormat(aclTensorDesc *desc, aclFormat format)
{
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    desc->storage_format = format;
    return ACL_SUCCESS;
}

aclError sim_aclSetTensorFormat(aclTensorDesc *desc, aclFormat format)
{
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    desc->storage_format = format;
    return ACL_SUCCESS;
}

aclError sim_aclSetTensorOriginFormat(aclTensorDesc *desc, aclFormat format)
{
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    desc->origin_format = format;
    return ACL_SUCCESS;
}

#define REQUIRE_SHAPE \
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC)); \
    REQUIRE(numDims >= 0 && numDims <= DIMS_MAX); \
    REQUIRE(numDims == 0 || dims != NULL)

aclError sim_aclSetTensorStorageShape(aclTensorDesc *desc, int numDims, const int64_t *dims)
{
    REQUIRE_SHAPE;
    return list_put(&desc->storage, numDims, dims);
}

/* As in CANN, this sets the storage shape; the description's shape is unchanged. */
aclError sim_aclSetTensorShape(aclTensorDesc *desc, int numDims, const int64_t *dims)
{
    REQUIRE_SHAPE;
    return list_put(&desc->storage, numDims, dims);
}

aclError sim_aclSetTensorOriginShape(aclTensorDesc *desc, int numDims, const int64_t *dims)
{
    REQUIRE_SHAPE;
    return list_put(&desc->origin, numDims, dims);
}

aclError sim_aclSetTensorDynamicInput(aclTensorDesc *desc, const char *dynamicInputName)
{
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    REQUIRE(dynamicInputName);
    return text_put(&desc->dynamic_input, dynamicInputName);
}

aclError sim_aclSetTensorConst(aclTensorDesc *desc, void *dataBuffer, size_t length)
{
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    REQUIRE(dataBuffer);
    REQUIRE(length > 0);
    Seen seen;
    TRY(memory_check(__func__, "dataBuffer", dataBuffer, length, false, &seen));
    void *copy = malloc(length);
    if (copy == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no memory for a constant of %zu bytes", length);
    }
    memcpy(copy, seen.inner, length);
    free(desc->constant);
    desc->constant = copy;
    desc->constant_bytes = length;
    return ACL_SUCCESS;
}

aclError sim_aclSetTensorPlaceMent(aclTensorDesc *desc, aclMemType memType)
{
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    desc->place = memType;
    return ACL_SUCCESS;
}

/* --- for models and operators --- */

aclError tensordesc_read(const aclTensorDesc *desc, const char *what, Tensor *tensor)
{
    *tensor = (Tensor){.type = desc->type, .rank = desc->dims.count};
    if (tensor->rank > TENSOR_RANK_MAX) {
        return fail(ACL_ERROR_INVALID_PARAM, "%s has %d dimensions; at most %d are supported", what,
            tensor->rank, (int)TENSOR_RANK_MAX);
    }
    memcpy(tensor->dims, dims_list(&desc->dims), (size_t)tensor->rank * sizeof tensor->dims[0]);
    if (type_size(tensor->type) == 0) {
        return fail(
            ACL_ERROR_UNSUPPORTED_DATA_TYPE, "%s has data type %d", what, (int)tensor->type);
    }
    if (!tensor_fits(tensor)) {
        char text[128];
        return fail(ACL_ERROR_INVALID_PARAM, "%s has the shape %s", what,
            shape_text(tensor, text, sizeof text));
    }
    return ACL_SUCCESS;
}

bool tensordesc_write(aclTensorDesc *desc, const Tensor *tensor)
{
    desc->type = tensor->type;
    return dims_set(&desc->dims, tensor->rank, tensor->dims);
}
