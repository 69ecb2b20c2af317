/* ort.c: see ort.h.
 *
 * All models use one OrtEnv, with one allocator. A thread that is running a model gets memory from the memory source
 * of that run. Any other thread gets host memory, for example for weights while a session is made. Sessions use one
 * thread per operator, no memory patterns and no arena of ONNX Runtime, so each tensor of a run is one call of the
 * allocator. */
#include "models/ort.h"

#include <dlfcn.h>
#include <glob.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensors/databuffer.h"
#include "memory/memory.h"
#include "models/ortapi.h"
#include "profiling/subscription.h"

/* Messages name the function that the user called, not the function here that found the error. */
#undef fail
#define fail(code, ...) error_set("aclmdlExecute", (code), __VA_ARGS__)

struct OrtModel {
    OrtSession *session;
};

FILE_LOCK(open_lock); /* guards the fields of the library below until it is open */
static bool is_open;
static OrtApi api;
static OrtEnv *environment;
static OrtMemoryInfo *host_memory;
static char problem[256] = "";

/* --- the allocator --- */

/* The block of a live tensor, found by the address that ONNX Runtime got. */
typedef struct Lent {
    struct Lent *next;
    void *address;
    Block block;
} Lent;

typedef struct Ledger {
    const Source *source;
    Lent *lent;
    bool failed;
} Ledger;

static _Thread_local Ledger *current; /* the ledger of the run that this thread is in */

static void *host_alloc(size_t size)
{
    void *memory = NULL;
    return posix_memalign(&memory, 64, size == 0 ? 64 : size) == 0 ? memory : NULL;
}

/* Takes a block from the source. False if it returns no block, or a block whose address is not valid memory. */
static bool lent_take(Lent *lent, size_t size)
{
    if (source_take(current->source, tensor_padded(size), &lent->block) != ACL_SUCCESS) {
        return false;
    }
    lent->address = memory_at(lent->block.address, size, true);
    if (lent->address == NULL) {
        source_give(&lent->block);
    }
    return lent->address != NULL;
}

/* Allocates for ONNX Runtime, which crashes if it gets NULL. So if the source has no memory, the rest of the
 * run gets host memory, without another call of the source, and then the run fails. */
static void *on_alloc(OrtAllocator *self, size_t size)
{
    (void)self;
    if (current == NULL || current->failed) {
        return host_alloc(size);
    }
    Lent *lent = calloc(1, sizeof *lent);
    if (lent == NULL || !lent_take(lent, size)) {
        free(lent);
        current->failed = true;
        return host_alloc(size);
    }
    lent->next = current->lent;
    current->lent = lent;
    return lent->address;
}

static void on_free(OrtAllocator *self, void *address)
{
    (void)self;
    for (Lent **link = current == NULL ? NULL : &current->lent; link != NULL && *link != NULL;
        link = &(*link)->next) {
        Lent *lent = *link;
        if (lent->address == address) {
            *link = lent->next;
            source_give(&lent->block);
            free(lent);
            return;
        }
    }
    free(address);
}

static const OrtMemoryInfo *on_info(const OrtAllocator *self)
{
    (void)self;
    return host_memory;
}

static OrtAllocator allocator = {
    .version = ORT_VERSION,
    .alloc = on_alloc,
    .free = on_free,
    .info = on_info,
    .reserve = on_alloc,
};

/* --- opening --- */

static bool status_good(OrtStatus *status, char *reason, size_t room)
{
    if (status == NULL) {
        return true;
    }
    (void)snprintf(reason, room, "%s", api.error_message(status));
    for (char *at = reason; *at != '\0'; at++) { /* the text quotes the file, which may contain any bytes */
        *at = *at < ' ' || *at > '~' ? '?' : *at;
    }
    api.release_status(status);
    return false;
}

/* Opens the library of an onnxruntime wheel that is installed beside this package:
 * <site-packages>/onnxruntime/capi, found from <site-packages>/acl/sim/lib. */
static void *neighbour_open(void)
{
    Dl_info own;
    char pattern[4096];
    glob_t found;
    void *library = NULL;
    if (dladdr(&open_lock, &own) == 0 || own.dli_fname == NULL || strlen(own.dli_fname) > 3000) {
        return NULL;
    }
    char path[4096];
    (void)snprintf(path, sizeof path, "%s", own.dli_fname);
    (void)snprintf(
        pattern, sizeof pattern, "%s/../../../onnxruntime/capi/libonnxruntime.so.*", dirname(path));
    if (glob(pattern, 0, NULL, &found) == 0) {
        library = dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_LOCAL);
        globfree(&found);
    }
    return library;
}

static void *library_open(void)
{
    const char *asked = setting("ACL_SIM_ONNXRUNTIME");
    if (asked != NULL && asked[0] != '\0') {
        return dlopen(asked, RTLD_NOW | RTLD_LOCAL);
    }
    void *library = neighbour_open();
    library = library != NULL ? library : dlopen("libonnxruntime.so.1", RTLD_NOW | RTLD_LOCAL);
    return library != NULL ? library : dlopen("libonnxruntime.so", RTLD_NOW | RTLD_LOCAL);
}

static bool table_read(void *library)
{
    const OrtApiBase *(*get_base)(void);
    void *symbol = dlsym(library, "OrtGetApiBase");
    memcpy(&get_base, &symbol, sizeof get_base);
    const char *table = symbol == NULL ? NULL : get_base()->get_api(ORT_VERSION);
    if (table == NULL) {
        (void)snprintf(
            problem, sizeof problem, "ONNX Runtime's library is too old (1.16 is wanted)");
        return false;
    }
#define ORT_READ(member, place, result, parameters) \
    memcpy(&api.member, table + (place) * sizeof(void *), sizeof(void *));
    ORT_FUNCTIONS(ORT_READ)
#undef ORT_READ
    return true;
}

static bool engine_make(void)
{
    problem[0] = '\0';
    void *library = library_open();
    if (library == NULL) {
        (void)snprintf(problem, sizeof problem,
            "ONNX Runtime is not there (pip install aclpool[onnx], or "
            "ACL_SIM_ONNXRUNTIME=/path/libonnxruntime.so)");
        return false;
    }
    return table_read(library)
        && status_good(
            api.create_env(ORT_LOG_ERROR, "acl.sim", &environment), problem, sizeof problem)
        && status_good(api.create_memory_info(
                           "Cpu", ORT_CPU_DEVICE, 0, ORT_DEFAULT_MEMORY, &host_memory),
            problem, sizeof problem)
        && status_good(
            api.register_allocator(environment, &allocator), problem, sizeof problem);
}

/* Opens the library. After a failure, each model that needs it tries again, because the library
 * may be configured between two loads. */
static bool engine_open(char *reason, size_t room)
{
    pthread_mutex_lock(&open_lock);
    is_open = is_open || engine_make();
    bool done = is_open;
    if (!done) {
        (void)snprintf(reason, room, "%s", problem);
    }
    pthread_mutex_unlock(&open_lock);
    return done;
}

/* --- loading --- */

static bool options_make(OrtSessionOptions **options, char *reason, size_t room)
{
    return status_good(api.create_options(options), reason, room)
        && status_good(api.disable_pattern(*options), reason, room)
        && status_good(api.disable_arena(*options), reason, room)
        && status_good(api.set_threads(*options, 1), reason, room)
        && status_good(api.add_entry(*options, "session.use_env_allocators", "1"), reason, room);
}

static bool shape_read(const OrtTensorInfo *info, aclDataType *type, int *rank, int64_t *dims,
    char *reason, size_t room)
{
    int number;
    size_t count;
    if (!status_good(api.element_type(info, &number), reason, room)
        || !status_good(api.dims_count(info, &count), reason, room)) {
        return false;
    }
    *type = type_from_onnx(number);
    if (type_size(*type) == 0 || count > TENSOR_RANK_MAX) {
        (void)snprintf(
            reason, room, "ONNX data type %d with %zu dimensions is not supported", number, count);
        return false;
    }
    *rank = (int)count;
    return status_good(api.dims(info, dims, count), reason, room);
}

static bool value_read(
    Net *net, OrtTypeInfo *type, const char *name, int *index, char *reason, size_t room)
{
    int kind;
    const OrtTensorInfo *info;
    char *copy = pile_take(&net->pile, strlen(name) + 1);
    *index = copy == NULL ? -1 : net_value(net, strcpy(copy, name));
    bool good = *index >= 0 && status_good(api.onnx_type(type, &kind), reason, room);
    if (good && kind != ORT_TENSOR) {
        (void)snprintf(reason, room, "%s is not a tensor", name);
        good = false;
    }
    if (good && status_good(api.tensor_info(type, &info), reason, room)) {
        NetValue *value = &net->values[*index];
        good = shape_read(info, &value->type, &value->rank, value->dims, reason, room);
    }
    return good;
}

static bool ends_read(const OrtModel *model, Net *net, bool inputs, char *reason, size_t room)
{
    size_t count;
    OrtAllocator *plain;
    if (!status_good(
            (inputs ? api.input_count : api.output_count)(model->session, &count), reason, room)
        || !status_good(api.default_allocator(&plain), reason, room)) {
        return false;
    }
    int *list = pile_take(&net->pile, (count + 1) * sizeof *list);
    bool good = list != NULL;
    for (size_t i = 0; good && i < count; i++) {
        char *name;
        OrtTypeInfo *type;
        good = status_good(
            (inputs ? api.input_name : api.output_name)(model->session, i, plain, &name), reason,
            room);
        if (good
            && status_good((inputs ? api.input_type : api.output_type)(model->session, i, &type),
                reason, room)) {
            good = value_read(net, type, name, &list[i], reason, room);
            api.release_type(type);
            (void)api.allocator_free(plain, name);
        }
    }
    *(inputs ? &net->inputs : &net->outputs) = list;
    *(inputs ? &net->input_count : &net->output_count) = (int)count;
    return good;
}

bool ort_load(const void *bytes, size_t length, Net *net, OrtModel **out, char *reason, size_t room)
{
    OrtSessionOptions *options = NULL;
    OrtModel *model = calloc(1, sizeof *model);
    memset(net, 0, sizeof *net);
    net->name = "";
    (void)snprintf(reason, room, "no host memory");
    if (model == NULL || !engine_open(reason, room)) {
        free(model);
        return false;
    }
    bool good = options_make(&options, reason, room)
        && status_good(
            api.create_session(environment, bytes, length, options, &model->session), reason, room)
        && ends_read(model, net, true, reason, room) && ends_read(model, net, false, reason, room);
    if (options != NULL) {
        api.release_options(options);
    }
    if (!good) {
        ort_free(model);
        net_free(net);
        return false;
    }
    *out = model;
    return true;
}

void ort_free(OrtModel *model)
{
    if (model != NULL && model->session != NULL) {
        api.release_session(model->session);
    }
    free(model);
}

/* --- running --- */

static int type_number(aclDataType type)
{
    int number = 1;
    while (number < 16 && type_from_onnx(number) != type) {
        number++;
    }
    return number;
}

typedef struct Values {
    const char **names;
    OrtValue **values;
    int count;
} Values;

static bool inputs_make(const Run *run, Values *in, char *reason, size_t room)
{
    for (int i = 0; i < in->count; i++) {
        const Slot *slot = &run->slots[run->net->inputs[i]];
        size_t bytes = (size_t)tensor_bytes(&slot->tensor);
        in->names[i] = run->net->values[run->net->inputs[i]].name;
        void *inner = memory_at(slot->tensor.data, bytes, false);
        if (bytes != 0 && inner == NULL) {
            snprintf(reason, room, "input %d at %p was freed or unmapped before the model ran", i,
                slot->tensor.data);
            return false;
        }
        if (!status_good(api.create_tensor(host_memory, inner, bytes, slot->tensor.dims,
                             (size_t)slot->tensor.rank, type_number(slot->tensor.type), &in->values[i]),
                reason, room)) {
            return false;
        }
    }
    return true;
}

static aclError output_write(int index, void *address, const void *data, size_t bytes)
{
    void *inner = memory_at(address, bytes, true);
    if (inner == NULL && bytes != 0) {
        return fail(ACL_ERROR_RT_SYS_DMA, "output %d at %p was freed or unmapped before the model ended",
            index, address);
    }
    if (bytes != 0) {
        memcpy(inner, data, bytes);
    }
    return ACL_SUCCESS;
}

/* Copies a result to the user's buffer or, if there is none, to host memory of the run. */
static aclError output_take(Run *run, int index, OrtValue *value)
{
    char reason[OP_MESSAGE_ROOM] = "";
    OrtTensorInfo *info;
    void *data = NULL;
    Slot *slot = &run->slots[run->net->outputs[index]];
    if (!status_good(api.value_info(value, &info), reason, sizeof reason)) {
        return fail((aclError)ACL_ERROR_GE_INTERNAL_ERROR, "%s", reason);
    }
    bool good = shape_read(info, &slot->tensor.type, &slot->tensor.rank, slot->tensor.dims, reason,
                    sizeof reason)
        && status_good(api.tensor_data(value, &data), reason, sizeof reason);
    api.release_info(info);
    if (!good) {
        return fail((aclError)ACL_ERROR_GE_INTERNAL_ERROR, "output %d: %s", index, reason);
    }
    size_t bytes = (size_t)tensor_bytes(&slot->tensor);
    const aclDataBuffer *buffer = run->outputs[index].buffer;
    slot->tensor.data = buffer->address;
    if (buffer->address != NULL) {
        TRY(output_check(run, index, bytes));
        return output_write(index, buffer->address, data, bytes);
    }
    void *copy = malloc(bytes + 1);
    if (copy == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for output %d", index);
    }
    slot->host = memcpy(copy, data, bytes);
    return run_own(run, copy);
}

static aclError session_run(
    OrtModel *model, Run *run, Values *in, Values *out, const Ledger *ledger)
{
    char reason[OP_MESSAGE_ROOM] = "";
    for (int i = 0; i < out->count; i++) {
        out->names[i] = run->net->values[run->net->outputs[i]].name;
    }
    bool good = inputs_make(run, in, reason, sizeof reason)
        && status_good(api.run(model->session, NULL, in->names, (const OrtValue *const *)in->values,
                           (size_t)in->count, out->names, (size_t)out->count, out->values),
            reason, sizeof reason);
    if (!good) {
        return fail((aclError)ACL_ERROR_GE_INTERNAL_ERROR, "ONNX Runtime: %s", reason);
    }
    if (ledger->failed) {
        return (aclError)ACL_ERROR_GE_MEMORY_ALLOCATION; /* the message was set when the allocation failed */
    }
    for (int i = 0; i < out->count; i++) {
        TRY(output_take(run, i, out->values[i]));
    }
    return ACL_SUCCESS;
}

static void values_release(const Values *values)
{
    for (int i = 0; i < values->count; i++) {
        if (values->values[i] != NULL) {
            api.release_value(values->values[i]);
        }
    }
}

/* Reports the run to the model's subscription as one operator: ONNX Runtime does not report
 * single operators. */
static void session_tell(const Run *run, int64_t begin_ns)
{
    subscription_tell(&(OpRun){
        .model = run->model->id,
        .type = "ONNXRuntime",
        .name = run->net->name == NULL ? "model" : run->net->name,
        .flag = ACL_SUBSCRIBE_SUBGRAPH,
        .device = (uint32_t)stream_device(run->stream),
        .begin_ns = begin_ns,
        .end_ns = now_ns(),
    });
}

aclError ort_run(OrtModel *model, Run *run)
{
    size_t count = (size_t)(run->net->input_count + run->net->output_count);
    const char **names = calloc(count + 1, sizeof *names);
    OrtValue **values = calloc(count + 1, sizeof(OrtValue *));
    Values in = {names, values, run->net->input_count};
    Values out = {names + in.count, values + in.count, run->net->output_count};
    Ledger ledger = {.source = &run->source};
    aclError status = names == NULL || values == NULL ? fail(ACL_ERROR_BAD_ALLOC, "no host memory")
        : stream_synchronize(run->stream, FOREVER);
    if (status == ACL_SUCCESS) {
        current = &ledger;
        int64_t begin_ns = now_ns();
        status = session_run(model, run, &in, &out, &ledger);
        if (status == ACL_SUCCESS && subscription_any()) {
            session_tell(run, begin_ns);
        }
        values_release(&out);
        current = NULL;
        values_release(&in);
    }
    free(names);
    free(values);
    return status;
}
