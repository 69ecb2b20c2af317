/* modelexec.c: aclmdlExecute, aclmdlExecuteAsync and the settings of one execution.

   The allocator registered for the stream is looked up anew for each asynchronous run of a model
   of dynamic shapes. Synchronous runs, models with gears, and the NULL stream do not use a
   registered allocator but a default one. */
#include "generated/exports.h"
#include "models/model.h"
#include "streams/stream.h"

struct aclmdlExecConfigHandle {
    int32_t stream_timeout_ms; /* -1: no timeout */
    void *work;
    size_t work_bytes;
};

static const char *const REFUSED = "is not supported by the simulator";

/* --- running --- */

static aclError datasets_check(const aclmdlDataset *input, const aclmdlDataset *output)
{
    REQUIRE(handle_is(input, HANDLE_DATASET));
    REQUIRE(handle_is(output, HANDLE_DATASET));
    return ACL_SUCCESS;
}

static aclError source_choose(
    Model *model, aclrtStream handle, const Stream *stream, Source *source)
{
    Registration registration;
    *source = (Source){0};
    if (model->gears.kind == GEARS_NONE && handle != NULL
        && allocator_find(handle, &registration)) {
        source->user = registration.allocator;
        return ACL_SUCCESS;
    }
    source->pool = model_pool(model, stream);
    return source->pool != NULL ? ACL_SUCCESS : fail(ACL_ERROR_BAD_ALLOC, "no host memory");
}

static aclError run_async(
    uint32_t id, const aclmdlDataset *input, aclmdlDataset *output, aclrtStream handle)
{
    Model *model;
    STREAM_REF(stream);
    Source source;
    TRY(stream_resolve(handle, &stream));
    TRY(model_find(id, &model));
    aclError status = source_choose(model, handle, stream, &source);
    if (status == ACL_SUCCESS) {
        status = model_run(model, stream, &source, RUN_ASYNC, input, output);
    }
    model_release(model);
    return status;
}

/* Returns a pool that no other synchronous run uses until pool_return. */
static Pool *pool_borrow(Model *model)
{
    pthread_mutex_lock(&model->lock);
    Pool *pool = model->idle_pool;
    model->idle_pool = NULL;
    pthread_mutex_unlock(&model->lock);
    return pool != NULL ? pool : pool_new();
}

static void pool_return(Model *model, Pool *pool)
{
    pthread_mutex_lock(&model->lock);
    if (model->idle_pool == NULL) {
        model->idle_pool = pool;
        pool = NULL;
    }
    pthread_mutex_unlock(&model->lock);
    pool_free(pool);
}

/* Runs the model on a stream made for this call; the call waits until the stream is done. */
static aclError run_alone(
    Model *model, const aclmdlDataset *input, aclmdlDataset *output, int32_t timeout_ms)
{
    Context *context;
    STREAM_REF(stream);
    TRY(context_require(&context));
    TRY(capture_forbids_sync());
    TRY(stream_open(context, 0, 0, &stream));
    Source source = {.pool = pool_borrow(model)};
    aclError status = source.pool == NULL ? fail(ACL_ERROR_BAD_ALLOC, "no host memory")
        : model_run(model, stream, &source, RUN_SYNC, input, output);
    aclError drained = stream_synchronize(stream, timeout_ms);
    (void)stream_end(stream, drained == ACL_SUCCESS ? STREAM_END_DRAINED : STREAM_END_NOW);
    if (source.pool != NULL && status == ACL_SUCCESS && drained == ACL_SUCCESS) {
        pool_return(model, source.pool);
    } else if (source.pool != NULL) {
        model_leftovers_give(model, source.pool);
        pool_free(source.pool);
    }
    return status != ACL_SUCCESS ? status : drained;
}

static aclError run_sync(
    uint32_t id, const aclmdlDataset *input, aclmdlDataset *output, int32_t timeout_ms)
{
    Model *model;
    TRY(model_find(id, &model));
    aclError status = run_alone(model, input, output, timeout_ms);
    model_release(model);
    return status;
}

aclError sim_aclmdlExecute(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output)
{
    TRY(datasets_check(input, output));
    return run_sync(modelId, input, output, FOREVER);
}

/* Checks the stream but does not use it: a synchronous run has a stream of its own, as in GE. */
aclError sim_aclmdlExecuteV2(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output,
    aclrtStream stream, const aclmdlExecConfigHandle *handle)
{
    STREAM_REF(found);
    TRY(datasets_check(input, output));
    REQUIRE(handle_is(handle, HANDLE_EXEC_CONFIG));
    TRY(stream_resolve_any(stream, &found));
    return run_sync(modelId, input, output, handle->stream_timeout_ms);
}

aclError sim_aclmdlExecuteAsync(
    uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output, aclrtStream stream)
{
    TRY(datasets_check(input, output));
    return run_async(modelId, input, output, stream);
}

aclError sim_aclmdlExecuteAsyncV2(uint32_t modelId, const aclmdlDataset *input,
    aclmdlDataset *output, aclrtStream stream, const aclmdlExecConfigHandle *handle)
{
    TRY(datasets_check(input, output));
    REQUIRE(handle_is(handle, HANDLE_EXEC_CONFIG));
    return run_async(modelId, input, output, stream);
}

/* --- configuration of one execution --- */

aclmdlExecConfigHandle *sim_aclmdlCreateExecConfigHandle(void)
{
    aclmdlExecConfigHandle *handle = handle_new(HANDLE_EXEC_CONFIG, sizeof *handle);
    if (handle != NULL) {
        handle->stream_timeout_ms = FOREVER;
    }
    return handle;
}

aclError sim_aclmdlDestroyExecConfigHandle(const aclmdlExecConfigHandle *handle)
{
    REQUIRE(handle_is(handle, HANDLE_EXEC_CONFIG));
    handle_retire((void *)(uintptr_t)handle);
    return ACL_SUCCESS;
}

aclError sim_aclmdlSetExecConfigOpt(aclmdlExecConfigHandle *handle, aclmdlExecConfigAttr attr,
    const void *attrValue, size_t valueSize)
{
    REQUIRE(handle_is(handle, HANDLE_EXEC_CONFIG));
    REQUIRE(attrValue);
    switch (attr) {
    case ACL_MDL_STREAM_SYNC_TIMEOUT:
        REQUIRE(valueSize == sizeof handle->stream_timeout_ms);
        REQUIRE(*(const int32_t *)attrValue >= FOREVER);
        handle->stream_timeout_ms = *(const int32_t *)attrValue;
        return ACL_SUCCESS;
    case ACL_MDL_EVENT_SYNC_TIMEOUT:
        REQUIRE(valueSize == sizeof(int32_t));
        return ACL_SUCCESS;
    case ACL_MDL_WORK_ADDR_PTR:
        REQUIRE(valueSize == sizeof handle->work);
        handle->work = *(void *const *)attrValue;
        return ACL_SUCCESS;
    case ACL_MDL_WORK_SIZET:
        REQUIRE(valueSize == sizeof handle->work_bytes);
        handle->work_bytes = *(const size_t *)attrValue;
        return ACL_SUCCESS;
    default:
        return fail(ACL_ERROR_INVALID_PARAM, "execution option %d %s", (int)attr, REFUSED);
    }
}

/* --- gears --- */

/* Returns the gear's index, or -1. */
static int gear_find(const Gears *gears, const int64_t *gear)
{
    for (int g = 0; g < gears->count; g++) {
        bool same = true;
        for (int i = 0; i < gears->values && same; i++) {
            same = gears->value[g][i] == gear[i];
        }
        if (same) {
            return g;
        }
    }
    return -1;
}

/* Sets the gear and forgets the output shapes of the newest run, which may differ under the new
   gear. */
static void gear_choose(Model *model, int gear)
{
    pthread_mutex_lock(&model->lock);
    for (int i = 0; gear != model->gear && i < model->net.output_count; i++) {
        model->last[i].rank = -1;
    }
    model->gear = gear;
    pthread_mutex_unlock(&model->lock);
}

static aclError gear_set(uint32_t id, aclmdlDataset *dataset, size_t index, GearKind kind,
    const int64_t *gear, int values)
{
    Model *model;
    REQUIRE(handle_is(dataset, HANDLE_DATASET));
    TRY(model_find(id, &model));
    aclError status = ACL_SUCCESS;
    int number = values == model->gears.values ? gear_find(&model->gears, gear) : -1;
    if (model->gears.kind != kind) {
        status = fail(ACL_ERROR_MODEL_NOT_DYNAMIC, "the model has no gears of the kind that this function sets");
    } else if (index != (size_t)model->net.input_count || index >= dataset->count) {
        status = fail(
            ACL_ERROR_INVALID_PARAM, "index is %zu, expected the index of input " ACL_DYNAMIC_TENSOR_NAME, index);
    } else if (number < 0) {
        status = fail(ACL_ERROR_INVALID_PARAM, "the model has no gear with these values (the first is %lld)",
            (long long)gear[0]);
    } else {
        gear_choose(model, number);
        dataset->gear_values = values;
        for (int i = 0; i < values; i++) {
            dataset->gear[i] = gear[i];
        }
    }
    model_release(model);
    return status;
}

aclError sim_aclmdlSetDynamicBatchSize(
    uint32_t modelId, aclmdlDataset *dataset, size_t index, uint64_t batchSize)
{
    REQUIRE(batchSize > 0);
    return gear_set(modelId, dataset, index, GEARS_BATCH, &(int64_t){(int64_t)batchSize}, 1);
}

aclError sim_aclmdlSetDynamicHWSize(
    uint32_t modelId, aclmdlDataset *dataset, size_t index, uint64_t height, uint64_t width)
{
    REQUIRE(height > 0 && width > 0);
    return gear_set(
        modelId, dataset, index, GEARS_SIZE, (int64_t[]){(int64_t)height, (int64_t)width}, 2);
}

/* Sets the gear whose dimensions are `dims`: all dimensions of all inputs, one input after another. */
aclError sim_aclmdlSetInputDynamicDims(
    uint32_t modelId, aclmdlDataset *dataset, size_t index, const aclmdlIODims *dims)
{
    REQUIRE(dims);
    REQUIRE(dims->dimCount > 0 && dims->dimCount <= GEAR_VALUES_MAX);
    return gear_set(modelId, dataset, index, GEARS_DIMS, dims->dims, (int)dims->dimCount);
}
