/* aippmodel.c: AIPP of models: the kind of an input, and passing a set of parameters to a run.

   The simulator's models are ONNX files, which have no preprocessing: no input is linked with AIPP, and
   the calls answer as the runtime does for such a model.  A model may take the parameters themselves, as
   an input called ascend_dynamic_aipp_data: aclmdlSetInputAIPP then checks the set and fills that input's
   buffer, in the layout that a device reads.

   Thread rule: any thread; only one thread at a time uses a data set. */
#include <string.h>

#include "models/aipp.h"
#include "tensors/databuffer.h"
#include "generated/exports.h"
#include "memory/memory.h"
#include "models/model.h"

/* Gives the model, with a reference, if it has an input of that number. Returns 145003 if there is
   no such model, 100000 if it has no such input. */
static aclError model_with_input(uint32_t id, size_t index, Model **model)
{
    TRY(model_find(id, model));
    size_t inputs = (size_t)(*model)->net.input_count + ((*model)->gears.kind != GEARS_NONE);
    if (index >= inputs) {
        model_release(*model);
        return fail(ACL_ERROR_INVALID_PARAM, "index is %zu, the model has %zu inputs", index,
            inputs);
    }
    return ACL_SUCCESS;
}

aclError sim_aclmdlGetAippType(
    uint32_t modelId, size_t index, aclmdlInputAippType *type, size_t *dynamicAttachedDataIndex)
{
    Model *model;
    REQUIRE(dynamicAttachedDataIndex);
    REQUIRE(type);
    TRY(model_with_input(modelId, index, &model));
    model_release(model);
    *type = ACL_DATA_WITHOUT_AIPP;
    *dynamicAttachedDataIndex = ACL_INVALID_NODE_INDEX;
    return ACL_SUCCESS;
}

aclError sim_aclmdlGetFirstAippInfo(uint32_t modelId, size_t index, aclAippInfo *aippInfo)
{
    Model *model;
    REQUIRE(aippInfo);
    TRY(model_with_input(modelId, index, &model));
    model_release(model);
    return fail((aclError)ACL_ERROR_GE_AIPP_NOT_EXIST, "the model has no AIPP for input %zu", index);
}

/* Returns 100000 unless input `index` is the one for the parameters. */
static aclError input_check(const Model *model, size_t index)
{
    const Net *net = &model->net;
    for (int i = 0; i < net->input_count; i++) {
        if (strcmp(net->values[net->inputs[i]].name, ACL_DYNAMIC_AIPP_NAME) != 0) {
            continue;
        }
        return (size_t)i == index ? ACL_SUCCESS
            : fail(ACL_ERROR_INVALID_PARAM,
                  "index is %zu, expected %d, the index of input " ACL_DYNAMIC_AIPP_NAME, index, i);
    }
    return fail(ACL_ERROR_INVALID_PARAM, "the model does not use dynamic AIPP: it has no input "
        ACL_DYNAMIC_AIPP_NAME);
}

/* Writes the set into the buffer at once, as a synchronous copy does. */
static aclError buffer_fill(const aclmdlDataset *dataset, size_t index, const aclmdlAIPP *set)
{
    size_t bytes = 0;
    const aclDataBuffer *buffer = index < dataset->count ? dataset->entries[index].buffer : NULL;
    if (buffer == NULL || buffer->address == NULL) {
        return fail(ACL_ERROR_INVALID_PARAM, "the data set has no memory for input %zu", index);
    }
    if (!aipp_bytes(set->count, &bytes) || bytes > buffer->size) {
        return fail((aclError)ACL_ERROR_GE_DYNAMIC_INPUT_LENGTH_INVALID,
            "input %zu has %zu bytes, a batch of %llu needs %zu", index, buffer->size,
            (unsigned long long)set->count, bytes);
    }
    Seen seen;
    TRY(memory_check("aclmdlSetInputAIPP", "the input's memory", buffer->address, bytes, true,
        &seen));
    memory_put(buffer->address, seen.inner, &set->head, sizeof set->head);
    memory_put((char *)buffer->address + sizeof set->head, (char *)seen.inner + sizeof set->head, set->batches,
        bytes - sizeof set->head);
    return ACL_SUCCESS;
}

aclError sim_aclmdlSetInputAIPP(
    uint32_t modelId, aclmdlDataset *dataset, size_t index, const aclmdlAIPP *aippParmsSet)
{
    Model *model;
    REQUIRE(handle_is(dataset, HANDLE_DATASET));
    REQUIRE(handle_is(aippParmsSet, HANDLE_AIPP));
    TRY(model_with_input(modelId, index, &model));
    aclError status = input_check(model, index);
    status = status == ACL_SUCCESS ? aipp_check(aippParmsSet) : status;
    status = status == ACL_SUCCESS ? buffer_fill(dataset, index, aippParmsSet) : status;
    model_release(model);
    return status;
}

/* Checks the arguments, then fails: the call needs an input that a device preprocesses, and ONNX models have none. */
aclError sim_aclmdlSetAIPPByInputIndex(
    uint32_t modelId, aclmdlDataset *dataset, size_t index, const aclmdlAIPP *aippParmsSet)
{
    Model *model;
    REQUIRE(handle_is(aippParmsSet, HANDLE_AIPP));
    REQUIRE(handle_is(dataset, HANDLE_DATASET));
    REQUIRE(index < dataset->count);
    TRY(model_with_input(modelId, index, &model));
    model_release(model);
    return fail(ACL_ERROR_FAILURE, "the model has no dynamic AIPP for input %zu", index);
}
