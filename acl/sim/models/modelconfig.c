/* modelconfig.c: loading with a list of options (aclmdlLoadWithConfig). The calls that load a model
   with queues are refused.

   The value of an option is copied. If the value is a pointer, its target must be valid until the
   load. */
#include <string.h>

#include "generated/exports.h"
#include "models/model.h"

struct aclmdlConfigHandle {
    size_t load_type;              /* ACL_MDL_LOAD_FROM_... ; 0 = not set */
    const char *path;
    const void *model;
    size_t model_size;
    void *weight, *work;
    size_t weight_size, work_size;
    int32_t priority;
};

aclmdlConfigHandle *sim_aclmdlCreateConfigHandle(void)
{
    return handle_new(HANDLE_MODEL_CONFIG, sizeof(aclmdlConfigHandle));
}

aclError sim_aclmdlDestroyConfigHandle(aclmdlConfigHandle *handle)
{
    REQUIRE(handle_is(handle, HANDLE_MODEL_CONFIG));
    handle_retire(handle);
    return ACL_SUCCESS;
}

/* Returns the field of an option, and its size; NULL for an unknown option. */
static void *option_place(aclmdlConfigHandle *handle, aclmdlConfigAttr attr, size_t *size)
{
    *size = sizeof(void *);
    switch ((int)attr) {
    case ACL_MDL_PRIORITY_INT32:
        *size = sizeof handle->priority;
        return &handle->priority;
    case ACL_MDL_LOAD_TYPE_SIZET:
        return &handle->load_type;
    case ACL_MDL_PATH_PTR:
        return &handle->path;
    case ACL_MDL_MEM_ADDR_PTR:
        return &handle->model;
    case ACL_MDL_MEM_SIZET:
        return &handle->model_size;
    case ACL_MDL_WEIGHT_ADDR_PTR:
        return &handle->weight;
    case ACL_MDL_WEIGHT_SIZET:
        return &handle->weight_size;
    case ACL_MDL_WORKSPACE_ADDR_PTR:
        return &handle->work;
    case ACL_MDL_WORKSPACE_SIZET:
        return &handle->work_size;
    default:
        return NULL;
    }
}

aclError sim_aclmdlSetConfigOpt(
    aclmdlConfigHandle *handle, aclmdlConfigAttr attr, const void *attrValue, size_t valueSize)
{
    size_t size, ignored = 0;
    REQUIRE(handle_is(handle, HANDLE_MODEL_CONFIG));
    REQUIRE(attrValue);
    void *place = option_place(handle, attr, &size);
    if (place == NULL && attr == ACL_MDL_WORKSPACE_MEM_OPTIMIZE) {
        place = &ignored; /* options on the layout of a compiled model's work memory are ignored */
    }
    if (place == NULL) {
        return fail(ACL_ERROR_INVALID_PARAM, "load option %d is not supported", (int)attr);
    }
    if (valueSize != size) {
        return fail(ACL_ERROR_INVALID_PARAM, "load option %d has %zu bytes, expected %zu",
            (int)attr, valueSize, size);
    }
    memcpy(place, attrValue, size);
    return ACL_SUCCESS;
}

aclError sim_aclmdlLoadWithConfig(const aclmdlConfigHandle *handle, uint32_t *modelId)
{
    REQUIRE(handle_is(handle, HANDLE_MODEL_CONFIG));
    REQUIRE(modelId);
    const aclmdlConfigHandle *h = handle;
    switch (h->load_type) {
    case ACL_MDL_LOAD_FROM_FILE:
        return sim_aclmdlLoadFromFile(h->path, modelId);
    case ACL_MDL_LOAD_FROM_FILE_WITH_MEM:
        return sim_aclmdlLoadFromFileWithMem(
            h->path, modelId, h->work, h->work_size, h->weight, h->weight_size);
    case ACL_MDL_LOAD_FROM_MEM:
        return sim_aclmdlLoadFromMem(h->model, h->model_size, modelId);
    case ACL_MDL_LOAD_FROM_MEM_WITH_MEM:
        return sim_aclmdlLoadFromMemWithMem(
            h->model, h->model_size, modelId, h->work, h->work_size, h->weight, h->weight_size);
    default:
        return fail(
            ACL_ERROR_INVALID_PARAM, "load type %zu is not supported (1 to 4 are)", h->load_type);
    }
}

/* Only the option for the weights' memory is used, because the bundle already has the model's file. */
aclError sim_aclmdlBundleLoadModelWithConfig(
    uint32_t bundleId, size_t index, aclmdlConfigHandle *handle, uint32_t *modelId)
{
    REQUIRE(handle_is(handle, HANDLE_MODEL_CONFIG));
    REQUIRE(modelId);
    return bundle_load(bundleId, index, &(Memories){handle->weight, handle->weight_size}, modelId);
}

/* --- refused, by name --- */

static aclError refuse(const char *what)
{
    return fail(ACL_ERROR_FEATURE_UNSUPPORTED, "%s are not supported by the simulator", what);
}

aclError sim_aclmdlLoadFromFileWithQ(const char *modelPath, uint32_t *modelId,
    const uint32_t *inputQ, size_t inputQNum, const uint32_t *outputQ, size_t outputQNum)
{
    REQUIRE(modelPath);
    REQUIRE(modelId);
    REQUIRE(inputQ != NULL && inputQNum > 0);
    REQUIRE(outputQ != NULL && outputQNum > 0);
    return refuse("models with queues");
}

aclError sim_aclmdlLoadFromMemWithQ(const void *model, size_t modelSize, uint32_t *modelId,
    const uint32_t *inputQ, size_t inputQNum, const uint32_t *outputQ, size_t outputQNum)
{
    REQUIRE(model);
    REQUIRE(modelSize > 0);
    REQUIRE(modelId);
    REQUIRE(inputQ != NULL && inputQNum > 0);
    REQUIRE(outputQ != NULL && outputQNum > 0);
    return refuse("models with queues");
}
