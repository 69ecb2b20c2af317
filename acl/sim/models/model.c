/* model.c: loading, finding and unloading models (aclmdlLoad..., aclmdlUnload, aclmdlQuerySize).
 *
 * Weights are copied to the device at load, into the user's memory or into memory from aclrtMalloc,
 * never from a registered allocator. Model numbers begin at 1 and are never used twice.
 *
 * Lock rule: table_lock is a leaf. */
#include "models/ort.h"

#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"
#include "profiling/subscription.h"

FILE_LOCK(table_lock);
static Model **table;     /* index: model number - 1; NULL = unloaded */
static uint32_t table_count, table_room;
static Model *newest;     /* the newest of the loaded models; `older` leads to the others */
static size_t loaded;     /* number of loaded models */
static pthread_once_t listen_once = PTHREAD_ONCE_INIT;

static const size_t WEIGHT_ALIGN = 512;
static const size_t WORK_BYTES = 512;

/* --- the table --- */

/* Returns the model of that number with a reference, or NULL. */
static Model *table_look(uint32_t id)
{
    pthread_mutex_lock(&table_lock);
    Model *model = id >= 1 && id <= table_count ? table[id - 1] : NULL;
    if (model != NULL) {
        atomic_fetch_add(&model->references, 1);
    }
    pthread_mutex_unlock(&table_lock);
    return model;
}

aclError model_find(uint32_t id, Model **model)
{
    *model = table_look(id);
    return *model != NULL ? ACL_SUCCESS
        : fail((aclError)ACL_ERROR_GE_EXEC_MODEL_ID_INVALID, "modelId is %u, which is not a loaded model", id);
}

/* Makes room for one more entry; table_lock is held. False if there is no memory. */
static bool table_widen(void)
{
    if (table_count < table_room) {
        return true;
    }
    uint32_t room = table_room == 0 ? 16 : 2 * table_room;
    Model **wider = realloc(table, room * sizeof(Model *));
    table = wider != NULL ? wider : table;
    table_room = wider != NULL ? room : table_room;
    return wider != NULL;
}

bool model_number(uint32_t *id)
{
    pthread_mutex_lock(&table_lock);
    bool done = table_widen();
    if (done) {
        table[table_count++] = NULL;
        *id = table_count;
    }
    pthread_mutex_unlock(&table_lock);
    return done;
}

static bool table_put(Model *model)
{
    pthread_mutex_lock(&table_lock);
    bool done = table_widen();
    if (done) {
        table[table_count++] = model;
        model->id = table_count;
        model->older = newest;
        if (newest != NULL) {
            newest->newer = model;
        }
        newest = model;
        loaded++;
    }
    pthread_mutex_unlock(&table_lock);
    return done;
}

/* Removes the model from the table and returns it; NULL if there is none, or if `bundled`
 * differs. */
static Model *table_take(uint32_t id, bool bundled)
{
    pthread_mutex_lock(&table_lock);
    Model *model = id >= 1 && id <= table_count ? table[id - 1] : NULL;
    model = model != NULL && model->bundled == bundled ? model : NULL;
    if (model != NULL) {
        table[id - 1] = NULL;
        if (model->older != NULL) {
            model->older->newer = model->newer;
        }
        *(model->newer != NULL ? &model->newer->older : &newest) = model->older;
        loaded--;
    }
    pthread_mutex_unlock(&table_lock);
    return model;
}

/* Returns all loaded models, each with a reference, in memory that the caller frees; NULL if
 * there are none (or there is no memory). */
static Model **table_all(size_t *count)
{
    *count = 0;
    pthread_mutex_lock(&table_lock);
    Model **all = loaded != 0 ? malloc(loaded * sizeof(Model *)) : NULL;
    for (Model *model = all != NULL ? newest : NULL; model != NULL; model = model->older) {
        atomic_fetch_add(&model->references, 1);
        all[(*count)++] = model;
    }
    pthread_mutex_unlock(&table_lock);
    return all;
}

/* --- life --- */

static void model_destroy(Model *model)
{
    while (model->pools != NULL) {
        PoolEntry *next = model->pools->next;
        pool_free(model->pools->pool);
        free(model->pools);
        model->pools = next;
    }
    pool_free(model->idle_pool);
    if (model->weights_owned) {
        (void)sim_aclrtFree(model->weights);
    }
    free(model->last);
    free(model->geared);
    pthread_mutex_destroy(&model->lock);
    ort_free(model->ort);
    net_free(&model->net);
    free(model->addresses);
    free(model);
}

void model_release(Model *model)
{
    if (atomic_fetch_sub(&model->references, 1) == 1) {
        model_destroy(model);
    }
}

/* --- the pools of streams --- */

static Pool *pool_unlink(Model *model, const Stream *stream)
{
    pthread_mutex_lock(&model->lock);
    PoolEntry **link = &model->pools;
    while (*link != NULL && (*link)->stream != stream) {
        link = &(*link)->next;
    }
    PoolEntry *entry = *link;
    if (entry != NULL) {
        *link = entry->next;
    }
    pthread_mutex_unlock(&model->lock);
    Pool *pool = entry == NULL ? NULL : entry->pool;
    free(entry);
    return pool;
}

static void pool_drop(void *pool)
{
    pool_free(pool);
}

static void on_stream_state(aclrtStream handle, aclrtStreamState state, void *argument)
{
    (void)argument;
    size_t count;
    Model **all = state == ACL_RT_STREAM_STATE_DESTROY_PRE ? table_all(&count) : NULL;
    for (size_t i = 0; all != NULL && i < count; i++) {
        Pool *pool = pool_unlink(all[i], handle);
        if (pool != NULL) {
            model_leftovers_give(all[i], pool);
            stream_finally(handle, pool_drop, pool);
        }
        model_release(all[i]);
    }
    free(all);
}

static void listen_start(void)
{
    (void)sim_aclrtRegStreamStateCallback("acl.sim models", on_stream_state, NULL);
}

Pool *model_pool(Model *model, const Stream *stream)
{
    (void)pthread_once(&listen_once, listen_start);
    pthread_mutex_lock(&model->lock);
    PoolEntry *entry = model->pools;
    while (entry != NULL && entry->stream != stream) {
        entry = entry->next;
    }
    if (entry == NULL && (entry = malloc(sizeof *entry)) != NULL) {
        *entry = (PoolEntry){.next = model->pools, .stream = stream, .pool = pool_new()};
        model->pools = entry;
    }
    pthread_mutex_unlock(&model->lock);
    return entry == NULL ? NULL : entry->pool;
}

/* --- weights --- */

static bool value_weighs(const NetValue *value)
{
    return value->constant != NULL && value->on_device;
}

static size_t weight_padded(const NetValue *value)
{
    size_t bytes = (size_t)tensor_bytes(value->constant);
    return (bytes + WEIGHT_ALIGN) / WEIGHT_ALIGN * WEIGHT_ALIGN; /* at least WEIGHT_ALIGN, also for 0 bytes */
}

size_t model_weight_bytes(const Net *net)
{
    size_t total = 0;
    for (int v = 0; v < net->value_count; v++) {
        total += value_weighs(&net->values[v]) ? weight_padded(&net->values[v]) : 0;
    }
    return total;
}

static aclError weights_place(Model *model, void *given, size_t given_bytes)
{
    model->weight_bytes = model_weight_bytes(&model->net);
    model->addresses = calloc((size_t)model->net.value_count + 1, sizeof *model->addresses);
    model->last = calloc((size_t)model->net.output_count + 1, sizeof *model->last);
    if (model->addresses == NULL || model->last == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    for (int i = 0; i < model->net.output_count; i++) {
        model->last[i].rank = -1;
    }
    if (given != NULL && given_bytes < model->weight_bytes) {
        return fail(ACL_ERROR_INVALID_PARAM, "weightSize is %zu, the model needs %zu", given_bytes,
            model->weight_bytes);
    }
    model->weights = given;
    if (given == NULL && model->weight_bytes > 0) {
        TRY(sim_aclrtMalloc(&model->weights, model->weight_bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        model->weights_owned = true;
    }
    char *place = model->weights;
    char *inner = memory_at(place, model->weight_bytes, true);
    if (inner == NULL && model->weight_bytes > 0) {
        return fail(ACL_ERROR_INVALID_PARAM, "weightPtr is %p, expected the address of %zu bytes "
            "of device memory", given, model->weight_bytes);
    }
    for (int v = 0; v < model->net.value_count; v++) {
        const NetValue *value = &model->net.values[v];
        if (value_weighs(value)) {
            size_t bytes = (size_t)tensor_bytes(value->constant);
            memcpy(inner, value->constant->data, bytes);
            model->addresses[v] = place;
            place += weight_padded(value);
            inner += weight_padded(value);
        }
    }
    return ACL_SUCCESS;
}

/* --- loading --- */

aclError model_load(const ModelFile *file, const Memories *memories, bool bundled, uint32_t *id)
{
    Context *context;
    TRY(context_require(&context));
    Model *model = calloc(1, sizeof *model);
    if (model == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a model");
    }
    aclError status = modelfile_parse(file, &model->net, &model->gears, &model->ort);
    if (status != ACL_SUCCESS) {
        free(model);
        return status;
    }
    atomic_init(&model->references, 1);
    pthread_mutex_init(&model->lock, NULL);
    model->bundled = bundled;
    status = model_gears_infer(model);
    if (status == ACL_SUCCESS) {
        status = weights_place(model, memories->weight, memories->weight_bytes);
    }
    if (status == ACL_SUCCESS && !table_put(model)) {
        status = fail(ACL_ERROR_BAD_ALLOC, "no host memory for a model");
    }
    if (status != ACL_SUCCESS) {
        model_release(model);
        return status;
    }
    *id = model->id;
    return ACL_SUCCESS;
}

static aclError file_load(const char *path, const Memories *memories, uint32_t *id)
{
    ModelFile file;
    TRY(modelfile_open(path, &file));
    aclError status = model_load(&file, memories, false, id);
    modelfile_close(&file);
    return status;
}

static aclError memory_load(
    const void *bytes, size_t length, const Memories *memories, uint32_t *id)
{
    ModelFile file = {.bytes = (void *)(uintptr_t)bytes, .length = length};
    return model_load(&file, memories, false, id);
}

aclError sim_aclmdlLoadFromFile(const char *modelPath, uint32_t *modelId)
{
    REQUIRE(modelPath);
    REQUIRE(modelId);
    return file_load(modelPath, &(Memories){0}, modelId);
}

aclError sim_aclmdlLoadFromMem(const void *model, size_t modelSize, uint32_t *modelId)
{
    REQUIRE(model);
    REQUIRE(modelId);
    REQUIRE(modelSize > 0);
    return memory_load(model, modelSize, &(Memories){0}, modelId);
}

/* The work memory is accepted and not used: a run's memory is from its allocator. */
aclError sim_aclmdlLoadFromFileWithMem(const char *modelPath, uint32_t *modelId, void *workPtr,
    size_t workSize, void *weightPtr, size_t weightSize)
{
    REQUIRE(modelPath);
    REQUIRE(modelId);
    (void)workPtr;
    (void)workSize;
    return file_load(modelPath, &(Memories){weightPtr, weightSize}, modelId);
}

aclError sim_aclmdlLoadFromMemWithMem(const void *model, size_t modelSize, uint32_t *modelId,
    void *workPtr, size_t workSize, void *weightPtr, size_t weightSize)
{
    REQUIRE(model);
    REQUIRE(modelId);
    REQUIRE(modelSize > 0);
    (void)workPtr;
    (void)workSize;
    return memory_load(model, modelSize, &(Memories){weightPtr, weightSize}, modelId);
}

/* Ends a model at its unload. Blocks of a user's allocator are freed now, on this thread;
 * everything else when the last queued work is done. */
static void model_part(Model *model)
{
    model_leftovers_give(model, NULL);
    model_release(model);
}

void model_unload(uint32_t id)
{
    Model *model = table_take(id, true);
    if (model != NULL) {
        model_part(model);
    }
}

aclError sim_aclmdlUnload(uint32_t modelId)
{
    Context *context;
    TRY(context_require(&context));
    Model *model = table_take(modelId, false);
    if (model != NULL) {
        model_part(model);
        return ACL_SUCCESS;
    }
    TRY(model_find(modelId, &model));
    model_release(model);
    return fail(ACL_ERROR_INVALID_PARAM,
        "model %u belongs to a bundle: aclmdlBundleUnload unloads it", modelId);
}

/* --- sizes --- */

aclError model_sizes(const ModelFile *file, size_t *work, size_t *weight)
{
    Net net;
    struct OrtModel *ort;
    Gears *gears = malloc(sizeof *gears);
    if (gears == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    aclError status = modelfile_parse(file, &net, gears, &ort);
    free(gears);
    if (status == ACL_SUCCESS) {
        *work = WORK_BYTES; /* a run uses its allocator instead; not 0, because programs allocate this size */
        *weight = model_weight_bytes(&net);
        ort_free(ort);
        net_free(&net);
    }
    return status;
}

aclError sim_aclmdlQuerySize(const char *fileName, size_t *workSize, size_t *weightSize)
{
    ModelFile file;
    REQUIRE(fileName);
    REQUIRE(workSize);
    REQUIRE(weightSize);
    TRY(modelfile_open(fileName, &file));
    aclError status = model_sizes(&file, workSize, weightSize);
    modelfile_close(&file);
    return status;
}

/* Gives the sizes of a model's parts. An ONNX file has no code and no tasks, so these sizes are 0. */
aclError sim_aclmdlQueryExeOMDesc(const char *fileName, aclmdlExeOMDesc *mdlPartitionSize)
{
    ModelFile file;
    REQUIRE(fileName);
    REQUIRE(mdlPartitionSize);
    TRY(modelfile_open(fileName, &file));
    aclmdlExeOMDesc sizes = {0};
    aclError status = model_sizes(&file, &sizes.workSize, &sizes.weightSize);
    modelfile_close(&file);
    if (status == ACL_SUCCESS) {
        *mdlPartitionSize = sizes;
    }
    return status;
}

aclError sim_aclmdlQuerySizeFromMem(
    const void *model, size_t modelSize, size_t *workSize, size_t *weightSize)
{
    REQUIRE(model);
    REQUIRE(modelSize > 0);
    REQUIRE(workSize);
    REQUIRE(weightSize);
    ModelFile file = {.bytes = (void *)(uintptr_t)model, .length = modelSize};
    return model_sizes(&file, workSize, weightSize);
}

/* --- attributes --- */

aclError sim_aclmdlSetAttribute(uint32_t modelId, aclmdlAttr attr, aclmdlAttrValue_t *attrValue)
{
    Model *model;
    REQUIRE(attrValue);
    REQUIRE(attr == ACL_MDL_ATTR_PRIORITY_INT32);
    TRY(model_find(modelId, &model));
    model->priority = (int32_t)attrValue->mdlPriority;
    model_release(model);
    return ACL_SUCCESS;
}

aclError sim_aclmdlGetAttribute(uint32_t modelId, aclmdlAttr attr, aclmdlAttrValue_t *attrValue)
{
    Model *model;
    REQUIRE(attrValue);
    REQUIRE(attr == ACL_MDL_ATTR_PRIORITY_INT32);
    TRY(model_find(modelId, &model));
    attrValue->mdlPriority = (uint32_t)model->priority;
    model_release(model);
    return ACL_SUCCESS;
}

/* True if the model exists, for a new subscription. If not, sets the error message. */
static bool model_exists(uint32_t id)
{
    Model *model;
    if (model_find(id, &model) != ACL_SUCCESS) {
        return false;
    }
    model_release(model);
    return true;
}

__attribute__((constructor(104))) static void models_announce(void)
{
    subscription_model_exists = model_exists;
}
