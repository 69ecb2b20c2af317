/* tensorformat.c: descriptions of a tensor in another layout, and value ranges.

   Only descriptions change: all tensors of the simulator are row-major.  A description is used by one thread at
   a time. */
#include "generated/exports.h"
#include "tensors/tensordesc.h"

enum { BLOCK = 16, BLOCK_BYTE = 32, RANK = 4, MOST_DIMS = 16 };

static int64_t blocks(int64_t count, int64_t width)
{
    return (count + width - 1) / width;
}

/* Reads the four dimensions in the order N, C, H, W. Returns false if the layout is not NCHW or NHWC. */
static bool image_read(const aclTensorDesc *desc, int64_t image[RANK])
{
    const int64_t *dims = dims_list(&desc->dims);
    bool last = desc->format == ACL_FORMAT_NHWC;
    if (desc->dims.count != RANK || (!last && desc->format != ACL_FORMAT_NCHW)) {
        return false;
    }
    const int order[RANK] = {0, last ? 3 : 1, last ? 1 : 2, last ? 2 : 3};
    for (int i = 0; i < RANK; i++) {
        image[i] = dims[order[i]];
    }
    return true;
}

/* Divides the last two dimensions into blocks. Returns the new number of dimensions; 0 if there is only one. */
static int matrix_blocks(const aclTensorDesc *desc, int64_t *to)
{
    const int64_t *from = dims_list(&desc->dims);
    int64_t width = desc->type == ACL_INT8 || desc->type == ACL_UINT8 ? BLOCK_BYTE : BLOCK;
    int count = desc->dims.count;
    if (count < 2 || count + 2 > MOST_DIMS) {
        return 0;
    }
    for (int i = 0; i < count - 2; i++) {
        to[i] = from[i];
    }
    to[count - 2] = blocks(from[count - 1], width);
    to[count - 1] = blocks(from[count - 2], BLOCK);
    to[count] = BLOCK;
    to[count + 1] = width;
    return count + 2;
}

/* Computes the shape in another layout. Returns its rank; 0 if the conversion is not supported. */
static int format_shape(const aclTensorDesc *desc, aclFormat format, int64_t *to)
{
    int64_t image[RANK];
    bool is_image = image_read(desc, image);
    if (is_image && format == ACL_FORMAT_NC1HWC0) {
        int64_t width = desc->type == ACL_INT8 || desc->type == ACL_UINT8 ? BLOCK_BYTE : BLOCK;
        to[0] = image[0];
        to[1] = blocks(image[1], width);
        to[2] = image[2];
        to[3] = image[3];
        to[4] = width;
        return RANK + 1;
    }
    if (is_image && (format == ACL_FORMAT_NCHW || format == ACL_FORMAT_NHWC)) {
        bool last = format == ACL_FORMAT_NHWC;
        const int order[RANK] = {0, last ? 2 : 1, last ? 3 : 2, last ? 1 : 3};
        for (int i = 0; i < RANK; i++) {
            to[i] = image[order[i]];
        }
        return RANK;
    }
    bool flat = desc->format == ACL_FORMAT_ND || is_image;
    return flat && format == ACL_FORMAT_FRACTAL_NZ ? matrix_blocks(desc, to) : 0;
}

aclError sim_aclTransTensorDescFormat(
    const aclTensorDesc *srcDesc, aclFormat dstFormat, aclTensorDesc **dstDesc)
{
    int64_t dims[MOST_DIMS];
    REQUIRE(handle_is(srcDesc, HANDLE_TENSOR_DESC));
    REQUIRE(dstDesc);
    int count = format_shape(srcDesc, dstFormat, dims);
    if (count == 0) {
        return fail((aclError)ACL_ERROR_GE_FORMAT_INVALID,
            "cannot convert format %d with %d dimensions to format %d", (int)srcDesc->format,
            srcDesc->dims.count, (int)dstFormat);
    }
    aclTensorDesc *made = tensordesc_new(srcDesc->type, count, dims, dstFormat);
    if (made == NULL) {
        return ACL_ERROR_BAD_ALLOC;
    }
    *dstDesc = made;
    return ACL_SUCCESS;
}

/* The ranges are hints for compilers of operators. The simulator has none, so it only checks the arguments. */
aclError sim_aclSetTensorValueRange(
    aclTensorDesc *desc, size_t valueCount, int64_t valueRange[][ACL_TENSOR_VALUE_RANGE_NUM])
{
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    REQUIRE(valueCount == 0 || valueRange != NULL);
    return ACL_SUCCESS;
}

/* Returns a description of a list that aclmdlCreateAndGetOpDesc made. A description of
   aclCreateTensorDesc is a list of one. */
aclTensorDesc *sim_aclGetTensorDescByIndex(aclTensorDesc *desc, size_t index)
{
    aclTensorDesc *found = handle_is(desc, HANDLE_TENSOR_DESC) ? desc : NULL;
    for (size_t i = 0; i < index && found != NULL; i++) {
        found = found->next;
    }
    if (found == NULL) {
        (void)fail(ACL_ERROR_INVALID_PARAM, "expected desc to be the first of more than %zu live "
            "tensor descriptions", index);
    }
    return found;
}
