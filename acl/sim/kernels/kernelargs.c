/* kernelargs.c: argument handles (aclrtKernelArgs*): a kernel's arguments put together one by one.

   There are two kinds of handle. aclrtKernelArgsInit returns the handle of the calling thread, which has
   only one, and empties it. aclrtKernelArgsInitByUserMem makes a handle whose value is the address of
   memory of the user. A placeholder is a parameter that points to a buffer; the program fills the buffer
   before the launch, and it is copied with the arguments. Only one thread at a time may use a handle. The
   arguments of a handle can be used for many launches. */
#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"
#include "kernels/kernel.h"

static const size_t HANDLE_BYTES = 96 + PARAMS_MAX * 48; /* size of the memory that a user must provide for a handle */
static const size_t ARGS_OVERHEAD = 64 + PARAMS_MAX * sizeof(uint64_t);

typedef struct Param {
    struct Args *args;
    size_t offset, size;
    bool holds_place;      /* the parameter is a placeholder */
    void *buffer;          /* the placeholder's buffer; NULL until the program asks for it */
    size_t buffer_size;    /* size of `buffer` in bytes */
} Param;

typedef struct Args {
    struct Args *next;     /* next arguments of the same binary */
    struct Args *next_user; /* next in the list of arguments that lie in users' memory; guarded by users_lock */
    const void *user;      /* the user's memory, whose address is the handle; NULL: made by aclrtKernelArgsInit */
    const void *thread;    /* address of the variable `own` of the thread that has this handle, or NULL */
    Binary *binary;
    Param *params;         /* array of PARAMS_MAX parameters */
    int count;             /* number of parameters that are used */
    unsigned char *bytes;  /* the arguments; ARGS_BYTES_MAX bytes are allocated */
    size_t used, buffers;  /* bytes of arguments and of placeholders' buffers */
    bool finalized, closed; /* closed: no parameter can be added, because the program got a placeholder's buffer */
    bool updating;          /* a parameter was changed, so it must be finalized again */
} Args;

static _Thread_local Args *own; /* check it before use: the arguments end with their binary, and another thread may then
                                   get their memory */
FILE_LOCK(users_lock);
static Args *users;

size_t param_place(size_t used, size_t size)
{
    size_t unit = 1;
    while (unit < size && unit < 8) {
        unit *= 2;
    }
    return (used + unit - 1) / unit * unit;
}

/* Returns the arguments of a handle, and in *binary their binary with a reference, which keeps the arguments valid;
   NULL if the handle is not live. */
static Args *args_find(const void *handle, Binary **binary)
{
    Args *args = (Args *)(uintptr_t)handle;
    if (binary_of_part(args, HANDLE_ARGS, offsetof(Args, binary), binary)) {
        return args;
    }
    pthread_mutex_lock(&users_lock);
    for (args = users; args != NULL && args->user != handle; args = args->next_user) {
    }
    bool followed = args != NULL && handle_follow(args, HANDLE_ARGS);
    pthread_mutex_unlock(&users_lock);
    bool held = followed && binary_of_part(args, HANDLE_ARGS, offsetof(Args, binary), binary);
    if (followed) {
        handle_drop(args);
    }
    return held ? args : NULL;
}

static aclError args_require(const void *handle, Args **args, Binary **binary)
{
    *args = args_find(handle, binary);
    return *args != NULL
        ? ACL_SUCCESS
        : fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live argument handle", handle);
}

aclError args_check(aclrtArgsHandle handle)
{
    Args *args;
    BINARY_REF(binary);
    return args_require(handle, &args, &binary);
}

/* --- life --- */

static void buffers_free(Args *args)
{
    for (int i = 0; i < args->count; i++) {
        free(args->params[i].buffer);
        args->params[i].buffer = NULL;
    }
}

static void binary_link(Args *args, Binary *binary)
{
    pthread_mutex_lock(&binary->lock);
    args->binary = binary;
    args->next = binary->args;
    binary->args = args;
    pthread_mutex_unlock(&binary->lock);
}

static void binary_unlink(Args *args)
{
    pthread_mutex_lock(&args->binary->lock);
    Args **link = &args->binary->args;
    while (*link != args) {
        link = &(*link)->next;
    }
    *link = args->next;
    pthread_mutex_unlock(&args->binary->lock);
}

static Args *args_new(const Function *function)
{
    Args *args = handle_prepare(HANDLE_ARGS, sizeof *args);
    Param *params = calloc(PARAMS_MAX, sizeof *params);
    unsigned char *bytes = calloc(1, PARAMS_MAX * 8 + ARGS_BYTES_MAX);
    if (args == NULL || params == NULL || bytes == NULL) {
        free(params);
        free(bytes);
        if (args != NULL) {
            handle_retire(args);
        }
        return NULL;
    }
    args->params = params;
    args->bytes = bytes;
    binary_link(args, function->binary);
    handle_show(args);
    return args;
}

static void user_forget(const Args *args)
{
    pthread_mutex_lock(&users_lock);
    for (Args **link = &users; *link != NULL; link = &(*link)->next_user) {
        if (*link == args) {
            *link = args->next_user;
            break;
        }
    }
    pthread_mutex_unlock(&users_lock);
}

void args_binary_ends(const Binary *binary)
{
    for (Args *args = binary->args; args != NULL; args = args->next) {
        (void)handle_kill(args);
    }
}

void args_binary_gone(Binary *binary)
{
    while (binary->args != NULL) {
        Args *args = binary->args;
        binary->args = args->next;
        user_forget(args);
        buffers_free(args);
        free(args->params);
        free(args->bytes);
        args->params = NULL;
        args->bytes = NULL;
        handle_retire(args);
    }
}

/* Removes all parameters and assigns the arguments to that binary. */
static void args_reset(Args *args, Binary *binary)
{
    binary_unlink(args);
    binary_link(args, binary);
    buffers_free(args);
    args->count = 0;
    args->used = args->buffers = 0;
    args->finalized = args->closed = args->updating = false;
}

aclError sim_aclrtKernelArgsInit(aclrtFuncHandle funcHandle, aclrtArgsHandle *argsHandle)
{
    REQUIRE(funcHandle);
    REQUIRE(argsHandle);
    BINARY_REF(binary);
    BINARY_REF(before);
    TRY(function_require(funcHandle, &binary));
    if (own != NULL && binary_of_part(own, HANDLE_ARGS, offsetof(Args, binary), &before)
        && own->thread == &own) {
        args_reset(own, binary);
    }
    if (own == NULL || !handle_is(own, HANDLE_ARGS) || own->thread != &own) {
        own = args_new(funcHandle);
    }
    if (own == NULL) {
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for arguments");
    }
    own->thread = &own;
    *argsHandle = own;
    return ACL_SUCCESS;
}

aclError sim_aclrtKernelArgsInitByUserMem(aclrtFuncHandle funcHandle, aclrtArgsHandle argsHandle,
    void *userHostMem, size_t actualArgsSize)
{
    REQUIRE(funcHandle);
    REQUIRE(argsHandle);
    REQUIRE(userHostMem);
    REQUIRE(actualArgsSize > 0);
    BINARY_REF(binary);
    BINARY_REF(before);
    TRY(function_require(funcHandle, &binary));
    Args *args = args_find(argsHandle, &before);
    if (args != NULL) {
        args_reset(args, binary);
        return ACL_SUCCESS;
    }
    args = args_new(funcHandle);
    if (args == NULL) {
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for arguments");
    }
    pthread_mutex_lock(&users_lock);
    args->user = argsHandle;
    args->next_user = users;
    users = args;
    pthread_mutex_unlock(&users_lock);
    return ACL_SUCCESS;
}

aclError sim_aclrtKernelArgsGetHandleMemSize(aclrtFuncHandle funcHandle, size_t *memSize)
{
    REQUIRE(funcHandle);
    REQUIRE(memSize);
    BINARY_REF(binary);
    TRY(function_require(funcHandle, &binary));
    *memSize = HANDLE_BYTES;
    return ACL_SUCCESS;
}

aclError sim_aclrtKernelArgsGetMemSize(
    aclrtFuncHandle funcHandle, size_t userArgsSize, size_t *actualArgsSize)
{
    REQUIRE(funcHandle);
    REQUIRE(actualArgsSize);
    BINARY_REF(binary);
    TRY(function_require(funcHandle, &binary));
    *actualArgsSize = userArgsSize + ARGS_OVERHEAD;
    return ACL_SUCCESS;
}

/* --- filling --- */

static aclError param_add(Args *args, size_t size, bool holds_place, Param **out)
{
    if (args->finalized || args->closed) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
            "the arguments' layout is fixed: nothing can be appended");
    }
    size_t place = param_place(args->used, size);
    if (args->count == PARAMS_MAX || size > ARGS_BYTES_MAX || place + size > ARGS_BYTES_MAX) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "too many parameters: at most %d, with a total of %d bytes",
            (int)PARAMS_MAX, (int)ARGS_BYTES_MAX);
    }
    Param *param = &args->params[args->count++];
    *param = (Param){.args = args, .offset = place, .size = size, .holds_place = holds_place};
    args->used = place + size;
    *out = param;
    return ACL_SUCCESS;
}

aclError sim_aclrtKernelArgsAppend(
    aclrtArgsHandle argsHandle, void *param, size_t paramSize, aclrtParamHandle *paramHandle)
{
    Args *args;
    BINARY_REF(binary);
    Param *made;
    REQUIRE(argsHandle);
    REQUIRE(param);
    REQUIRE(paramSize > 0);
    REQUIRE(paramHandle);
    TRY(args_require(argsHandle, &args, &binary));
    TRY(param_add(args, paramSize, false, &made));
    memcpy(args->bytes + made->offset, param, paramSize);
    *paramHandle = made;
    return ACL_SUCCESS;
}

aclError sim_aclrtKernelArgsAppendPlaceHolder(
    aclrtArgsHandle argsHandle, aclrtParamHandle *paramHandle)
{
    Args *args;
    BINARY_REF(binary);
    Param *made;
    REQUIRE(argsHandle);
    REQUIRE(paramHandle);
    TRY(args_require(argsHandle, &args, &binary));
    TRY(param_add(args, sizeof(uint64_t), true, &made));
    *paramHandle = made;
    return ACL_SUCCESS;
}

/* Gives the parameter of a handle; 107017 if it is not a parameter of these arguments. */
static aclError param_require(const Args *args, const void *handle, Param **param)
{
    for (int i = 0; i < args->count; i++) {
        if (&args->params[i] == handle) {
            *param = &args->params[i];
            return ACL_SUCCESS;
        }
    }
    return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a parameter of these arguments", handle);
}

aclError sim_aclrtKernelArgsGetPlaceHolderBuffer(
    aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, size_t dataSize, void **bufferAddr)
{
    Args *args;
    BINARY_REF(binary);
    Param *param;
    REQUIRE(argsHandle);
    REQUIRE(paramHandle);
    REQUIRE(dataSize > 0);
    REQUIRE(bufferAddr);
    TRY(args_require(argsHandle, &args, &binary));
    TRY(param_require(args, paramHandle, &param));
    REQUIRE_RT(param->holds_place);
    if (args->finalized) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
            "the arguments are finalized: no buffer can be added");
    }
    REQUIRE_RT(dataSize <= ARGS_BYTES_MAX - args->buffers + param->buffer_size);
    void *buffer = calloc(1, dataSize);
    if (buffer == NULL) {
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for %zu bytes", dataSize);
    }
    args->buffers += dataSize - param->buffer_size;
    args->closed = true;
    free(param->buffer);
    param->buffer = buffer;
    param->buffer_size = dataSize;
    *bufferAddr = buffer;
    return ACL_SUCCESS;
}

aclError sim_aclrtKernelArgsParaUpdate(
    aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, void *param, size_t paramSize)
{
    Args *args;
    BINARY_REF(binary);
    Param *known;
    REQUIRE(argsHandle);
    REQUIRE(paramHandle);
    REQUIRE(param);
    REQUIRE(paramSize > 0);
    TRY(args_require(argsHandle, &args, &binary));
    TRY(param_require(args, paramHandle, &known));
    REQUIRE_RT(!known->holds_place);
    REQUIRE_RT(paramSize == known->size);
    memcpy(args->bytes + known->offset, param, paramSize);
    args->updating = true;
    return ACL_SUCCESS;
}

aclError sim_aclrtKernelArgsFinalize(aclrtArgsHandle argsHandle)
{
    Args *args;
    BINARY_REF(binary);
    Context *context;
    REQUIRE(argsHandle);
    TRY(args_require(argsHandle, &args, &binary));
    TRY(context_require(&context));
    args->finalized = true;
    args->updating = false;
    return ACL_SUCCESS;
}

/* --- for launches --- */

aclError args_copy(aclrtArgsHandle handle, ArgsCopy *copy)
{
    Args *args;
    BINARY_REF(binary);
    TRY(args_require(handle, &args, &binary));
    if (!args->finalized || args->updating) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "the arguments were not finalized");
    }
    size_t head = (args->used + 63) / 64 * 64;
    size_t total = head + args->buffers + (size_t)args->count * 64;
    unsigned char *bytes = malloc(total + 8);
    if (bytes == NULL) {
        return fail(
            ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for %zu bytes of arguments", total);
    }
    memcpy(bytes, args->bytes, args->used);
    unsigned char *place = bytes + head;
    for (int i = 0; i < args->count; i++) {
        const Param *param = &args->params[i];
        if (!param->holds_place) {
            continue;
        }
        const void *target = param->buffer == NULL ? NULL : place;
        memcpy(bytes + param->offset, &target, sizeof target);
        if (param->buffer != NULL) {
            memcpy(place, param->buffer, param->buffer_size);
            place += (param->buffer_size + 63) / 64 * 64;
        }
    }
    *copy = (ArgsCopy){bytes, args->used};
    return ACL_SUCCESS;
}

aclError args_gather(const Function *function, void *const *args, ArgsCopy *copy)
{
    size_t used = 0;
    if (function->sizes == NULL) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
            "kernel %s has no list of its parameters' sizes: declare it by ACL_SIM_KERNEL_PARAMS",
            function->name);
    }
    for (const uint32_t *size = function->sizes; *size != 0; size++) {
        used = param_place(used, *size) + *size;
    }
    unsigned char *bytes = calloc(1, used + 8);
    if (bytes == NULL) {
        return fail(
            ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for %zu bytes of arguments", used);
    }
    size_t at = 0;
    for (size_t i = 0; function->sizes[i] != 0; i++) {
        at = param_place(at, function->sizes[i]);
        if (args[i] == NULL) {
            free(bytes);
            return fail(
                ACL_ERROR_RT_PARAM_INVALID, "kernel %s: argument %zu is NULL", function->name, i);
        }
        memcpy(bytes + at, args[i], function->sizes[i]);
        at += function->sizes[i];
    }
    *copy = (ArgsCopy){bytes, used};
    return ACL_SUCCESS;
}
