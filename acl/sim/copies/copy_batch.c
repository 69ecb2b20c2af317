/* Batches of copies between the host and devices.
 *
 * Each copy must fit the attributes that apply to it; *failIndex gets the index of the first copy that does not.
 * If all sizes are 0, the call succeeds without checks of the copies and their attributes. */
#include "copies/copy.h"
#include "generated/exports.h"

typedef struct Batch {
    void **dsts;
    size_t *dest_maxs;
    void **srcs;
    size_t *sizes;
    size_t count;
    aclrtMemcpyBatchAttr *attrs;
    size_t *attr_indexes;
    size_t attr_count;
    size_t *fail_index; /* NULL in V2, which does not return it */
} Batch;

static bool batch_is_empty(const Batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->sizes[i] != 0) {
            return false;
        }
    }
    return true;
}

static void batch_failed_at(const Batch *batch, size_t index)
{
    if (batch->fail_index != NULL) {
        *batch->fail_index = index;
    }
}

/* Makes the checks of the ACL layer: no array is NULL, each size fits its destination, reserved bytes are 0. */
static aclError batch_check(const char *function, const Batch *batch)
{
    const char *missing = batch->dsts == NULL           ? "dsts"
                          : batch->dest_maxs == NULL    ? "destMaxs"
                          : batch->srcs == NULL         ? "srcs"
                          : batch->attrs == NULL        ? "attrs"
                          : batch->attr_indexes == NULL ? "attrsIndexes"
                                                        : NULL;
    if (missing != NULL) {
        return error_argument(function, ACL_ERROR_INVALID_PARAM, missing);
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->dest_maxs[i] < batch->sizes[i]) {
            return error_set(function, ACL_ERROR_INVALID_PARAM,
                             "destMaxs[%zu] = %zu: expected at least sizes[%zu] = %zu", i,
                             batch->dest_maxs[i], i, batch->sizes[i]);
        }
    }
    for (size_t i = 0; i < batch->attr_count; i++) {
        for (size_t j = 0; j < sizeof batch->attrs[i].rsv; j++) {
            if (batch->attrs[i].rsv[j] != 0) {
                return error_set(function, ACL_ERROR_INVALID_PARAM,
                                 "attrs[%zu].rsv: expected only zeros", i);
            }
        }
    }
    return ACL_SUCCESS;
}

/* Checks the attributes: attrs[k] applies to the copies from index attrsIndexes[k] up to attrsIndexes[k + 1] - 1. */
static aclError attributes_check(const char *function, const Batch *batch)
{
    bool valid = batch->attr_count > 0 && batch->attr_count <= batch->count &&
                 batch->attr_indexes[0] == 0;
    for (size_t i = 1; valid && i < batch->attr_count; i++) {
        valid = batch->attr_indexes[i] > batch->attr_indexes[i - 1] &&
                batch->attr_indexes[i] < batch->count;
    }
    if (!valid) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "numAttrs = %zu: expected 1 to numBatches, and attrsIndexes that begin "
                         "with 0 and rise", batch->attr_count);
    }
    return ACL_SUCCESS;
}

/* True if the address is at the stated location. Sets `on_device` to true if the address is device memory. */
static bool location_fits(const aclrtMemLocation *stated, const void *address, bool *on_device)
{
    Memory memory;
    memory_find(address, &memory);
    *on_device = memory_on_device(memory.kind) || memory.kind == MEMORY_HOLE;
    if (*on_device) {
        return stated->type == ACL_MEM_LOCATION_TYPE_DEVICE &&
               stated->id == (uint32_t)memory.device;
    }
    return stated->type == ACL_MEM_LOCATION_TYPE_HOST ||
           stated->type == ACL_MEM_LOCATION_TYPE_HOST_NUMA;
}

static aclError item_check(const char *function, const Batch *batch, size_t index,
                           const aclrtMemcpyBatchAttr *attr, CopyEnds *ends)
{
    bool to_device, from_device;
    Copy copy = {.dst = batch->dsts[index], .src = batch->srcs[index],
                 .width = batch->sizes[index], .height = 1};
    if (copy.dst == NULL || copy.src == NULL || copy.width == 0) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "copy %zu: expected two addresses and a size greater than 0", index);
    }
    if (!location_fits(&attr->dstLoc, copy.dst, &to_device) ||
        !location_fits(&attr->srcLoc, copy.src, &from_device)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "copy %zu: dst = %p or src = %p is not at the location in attrs", index, copy.dst,
                         copy.src);
    }
    if (to_device == from_device) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "copy %zu: expected one side on the host and one on a device", index);
    }
    return copy_check(function, &copy, ends);
}

/* Queues the copies on the stream, or runs them now if `stream` is NULL. Stops at the first copy that is refused. */
static aclError batch_copy(const char *function, const Batch *batch, Stream *stream)
{
    size_t attr = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (attr + 1 < batch->attr_count && i >= batch->attr_indexes[attr + 1]) {
            attr++;
        }
        CopyEnds ends;
        aclError status = item_check(function, batch, i, &batch->attrs[attr], &ends);
        Copy copy = {.dst = batch->dsts[i], .src = batch->srcs[i], .width = batch->sizes[i],
                     .height = 1};
        if (status == ACL_SUCCESS && stream != NULL) {
            status = copy_submit(function, stream, &copy, &ends);
        } else if (status == ACL_SUCCESS) {
            copy_now(function, &copy, &ends);
        }
        if (status != ACL_SUCCESS) {
            batch_failed_at(batch, i);
            return status;
        }
    }
    return ACL_SUCCESS;
}

static aclError batch_sync(const char *function, const Batch *batch)
{
    Context *context;
    TRY(batch_check(function, batch));
    batch_failed_at(batch, SIZE_MAX);
    TRY(context_require(&context));
    TRY(capture_forbids_sync());
    TRY(attributes_check(function, batch));
    return batch_copy(function, batch, NULL);
}

static aclError batch_async(const char *function, const Batch *batch, aclrtStream handle)
{
    STREAM_REF(stream);
    TRY(batch_check(function, batch));
    batch_failed_at(batch, SIZE_MAX);
    TRY(stream_resolve(handle, &stream));
    TRY(attributes_check(function, batch));
    return batch_copy(function, batch, stream);
}

aclError sim_aclrtMemcpyBatch(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
                              size_t numBatches, aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes,
                              size_t numAttrs, size_t *failIndex)
{
    REQUIRE(sizes);
    REQUIRE(failIndex);
    REQUIRE(numBatches > 0);
    Batch batch = {dsts,  destMaxs,     srcs,     sizes,    numBatches,
                   attrs, attrsIndexes, numAttrs, failIndex};
    if (batch_is_empty(&batch)) {
        batch_failed_at(&batch, SIZE_MAX);
        return ACL_SUCCESS;
    }
    return batch_sync(__func__, &batch);
}

aclError sim_aclrtMemcpyBatchV2(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
                                size_t numBatches, aclrtMemcpyBatchAttr *attrs,
                                size_t *attrsIndexes, size_t numAttrs)
{
    REQUIRE(sizes);
    REQUIRE(numBatches > 0);
    Batch batch = {dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs, NULL};
    return batch_is_empty(&batch) ? ACL_SUCCESS : batch_sync(__func__, &batch);
}

aclError sim_aclrtMemcpyBatchAsync(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
                                   size_t numBatches, aclrtMemcpyBatchAttr *attrs,
                                   size_t *attrsIndexes, size_t numAttrs, size_t *failIndex,
                                   aclrtStream stream)
{
    REQUIRE(sizes);
    REQUIRE(failIndex);
    REQUIRE(numBatches > 0);
    Batch batch = {dsts,  destMaxs,     srcs,     sizes,    numBatches,
                   attrs, attrsIndexes, numAttrs, failIndex};
    if (batch_is_empty(&batch)) {
        batch_failed_at(&batch, SIZE_MAX);
        return ACL_SUCCESS;
    }
    return batch_async(__func__, &batch, stream);
}

aclError sim_aclrtMemcpyBatchAsyncV2(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
                                     size_t numBatches, aclrtMemcpyBatchAttr *attrs,
                                     size_t *attrsIndexes, size_t numAttrs, aclrtStream stream)
{
    REQUIRE(sizes);
    REQUIRE(numBatches > 0);
    Batch batch = {dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs, NULL};
    return batch_is_empty(&batch) ? ACL_SUCCESS : batch_async(__func__, &batch, stream);
}
