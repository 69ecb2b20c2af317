/* kernelargs.c: argument handles (aclrtKernelArgs*): a kernel's arguments put together one by one.

   A handle belongs to the simulator, or lies in the user's memory (InitByUserMem); the latter is
   known by its address. A placeholder is a pointer to a buffer that is filled before the launch and
   travels with the arguments. One thread at a time uses a handle; it may be launched many times. */
#include <stdlib.h>
#include <string.h>

#include "exports.h"
#include "kernel.h"

static const size_t HANDLE_BYTES = 96 + PARAMS_MAX * 48; /* what a user's handle memory must have */
static const size_t ARGS_OVERHEAD = 64 + PARAMS_MAX * sizeof(uint64_t);

typedef struct Param {
    struct Args *args;
    size_t offset, size;
    bool holds_place;
    void *buffer;          /* of a placeholder, once asked for */
    size_t buffer_size;
} Param;

typedef struct Args {
    struct Args *next;     /* of the same binary */
    struct Args *next_user;
    const void *user;      /* the user's memory that stands for it, or NULL */
    Binary *binary;
    Param *params;         /* PARAMS_MAX of them */
    int count;
    unsigned char *bytes;  /* ARGS_BYTES_MAX of them */
    size_t used, buffers;  /* bytes of arguments and of placeholders' buffers */
    bool finalized, closed; /* closed: a buffer was given out, so the layout is fixed */
} Args;

static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;
static Args *users;

size_t param_place(size_t used, size_t size)
{
    size_t unit = 1;
    while (unit < size && unit < 8) {
        unit *= 2;
    }
    return (used + unit - 1) / unit * unit;
}

static Args *args_find(const void *handle)
{
    if (handle_is(handle, HANDLE_ARGS)) {
        return (Args *)(uintptr_t)handle;
    }
    pthread_mutex_lock(&users_lock);
    Args *args = users;
    while (args != NULL && args->user != handle) {
        args = args->next_user;
    }
    pthread_mutex_unlock(&users_lock);
    return args;
}

static aclError args_require(const void *handle, Args **args)
{
    *args = args_find(handle);
    return *args != NULL
        ? ACL_SUCCESS
        : fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no argument handle that lives", handle);
}

aclError args_check(aclrtArgsHandle handle)
{
    Args *args;
    return args_require(handle, &args);
}

static aclError function_require(const void *handle)
{
    return handle_is(handle, HANDLE_FUNCTION) ? ACL_SUCCESS
        : fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no function that lives", handle);
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
    Args *args = handle_new(HANDLE_ARGS, sizeof *args);
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

void args_binary_gone(Binary *binary)
{
    while (binary->args != NULL) {
        Args *args = binary->args;
        binary->args = args->next;
        user_forget(args);
        (void)handle_kill(args);
        buffers_free(args);
        free(args->params);
        free(args->bytes);
        args->params = NULL;
        args->bytes = NULL;
        handle_retire(args);
    }
}

/* Empty, and from here on a function's of that binary. */
static void args_reset(Args *args, Binary *binary)
{
    binary_unlink(args);
    binary_link(args, binary);
    buffers_free(args);
    args->count = 0;
    args->used = args->buffers = 0;
    args->finalized = args->closed = false;
}

aclError sim_aclrtKernelArgsInit(aclrtFuncHandle funcHandle, aclrtArgsHandle *argsHandle)
{
    REQUIRE(funcHandle);
    REQUIRE(argsHandle);
    TRY(function_require(funcHandle));
    Args *args = args_new(funcHandle);
    if (args == NULL) {
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for arguments");
    }
    *argsHandle = args;
    return ACL_SUCCESS;
}

aclError sim_aclrtKernelArgsInitByUserMem(aclrtFuncHandle funcHandle, aclrtArgsHandle argsHandle,
    void *userHostMem, size_t actualArgsSize)
{
    REQUIRE(funcHandle);
    REQUIRE(argsHandle);
    REQUIRE(userHostMem);
    REQUIRE(actualArgsSize > 0);
    TRY(function_require(funcHandle));
    Args *args = args_find(argsHandle);
    if (args != NULL) {
        args_reset(args, ((const Function *)funcHandle)->binary);
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
    TRY(function_require(funcHandle));
    *memSize = HANDLE_BYTES;
    return ACL_SUCCESS;
}

aclError sim_aclrtKernelArgsGetMemSize(
    aclrtFuncHandle funcHandle, size_t userArgsSize, size_t *actualArgsSize)
{
    REQUIRE(funcHandle);
    REQUIRE(actualArgsSize);
    TRY(function_require(funcHandle));
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
        return fail(ACL_ERROR_RT_PARAM_INVALID, "at most %d parameters of together %d bytes",
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
    Param *made;
    REQUIRE(argsHandle);
    REQUIRE(param);
    REQUIRE(paramSize > 0);
    REQUIRE(paramHandle);
    TRY(args_require(argsHandle, &args));
    TRY(param_add(args, paramSize, false, &made));
    memcpy(args->bytes + made->offset, param, paramSize);
    *paramHandle = made;
    return ACL_SUCCESS;
}

aclError sim_aclrtKernelArgsAppendPlaceHolder(
    aclrtArgsHandle argsHandle, aclrtParamHandle *paramHandle)
{
    Args *args;
    Param *made;
    REQUIRE(argsHandle);
    REQUIRE(paramHandle);
    TRY(args_require(argsHandle, &args));
    TRY(param_add(args, sizeof(uint64_t), true, &made));
    *paramHandle = made;
    return ACL_SUCCESS;
}

/* The parameter, if the handle is one of these arguments'. */
static aclError param_require(const Args *args, const void *handle, Param **param)
{
    for (int i = 0; i < args->count; i++) {
        if (&args->params[i] == handle) {
            *param = &args->params[i];
            return ACL_SUCCESS;
        }
    }
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%p is no parameter of these arguments", handle);
}

aclError sim_aclrtKernelArgsGetPlaceHolderBuffer(
    aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, size_t dataSize, void **bufferAddr)
{
    Args *args;
    Param *param;
    REQUIRE(argsHandle);
    REQUIRE(paramHandle);
    REQUIRE(dataSize > 0);
    REQUIRE(bufferAddr);
    TRY(args_require(argsHandle, &args));
    TRY(param_require(args, paramHandle, &param));
    REQUIRE_RT(param->holds_place);
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
    Param *known;
    REQUIRE(argsHandle);
    REQUIRE(paramHandle);
    REQUIRE(param);
    REQUIRE(paramSize > 0);
    TRY(args_require(argsHandle, &args));
    TRY(param_require(args, paramHandle, &known));
    REQUIRE_RT(!known->holds_place);
    REQUIRE_RT(paramSize == known->size);
    memcpy(args->bytes + known->offset, param, paramSize);
    args->finalized = false;
    return ACL_SUCCESS;
}

aclError sim_aclrtKernelArgsFinalize(aclrtArgsHandle argsHandle)
{
    Args *args;
    REQUIRE(argsHandle);
    TRY(args_require(argsHandle, &args));
    args->finalized = true;
    return ACL_SUCCESS;
}

/* --- for launches --- */

aclError args_copy(aclrtArgsHandle handle, ArgsCopy *copy)
{
    Args *args;
    TRY(args_require(handle, &args));
    if (!args->finalized) {
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
            "kernel %s does not tell its parameters' sizes (ACL_SIM_KERNEL_PARAMS)",
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
