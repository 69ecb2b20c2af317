/* Exception callbacks, which are called when a task of a stream failed.
 *
 * Thread rule: `lock` guards the list; callbacks run on the worker of the stream that failed,
 * outside the lock.  The information is valid during the call only. */
#include "streams/exception.h"
#include "generated/exports.h"

enum { CALLBACKS_MAX = 64 };

FILE_LOCK(lock);
static aclrtExceptionInfoCallback only; /* the callback of aclrtSetExceptionInfoCallback, or NULL */
static aclrtExceptionInfoCallback list[CALLBACKS_MAX];
static size_t count;
static _Thread_local ExceptionKernel kernel;
void (*exception_noticed)(int32_t device, uint32_t stream, uint32_t task);

void exception_note_kernel(const ExceptionKernel *failed)
{
    kernel = *failed;
}

void exception_report(Stream *stream, const Task *task, aclError code)
{
    aclrtExceptionInfoCallback calls[CALLBACKS_MAX + 1];
    size_t number = 0;
    ExceptionInfo info = {task->id, stream->id, task->thread, stream->device, code, kernel};
    kernel = (ExceptionKernel){0};
    if (exception_noticed != NULL) {
        exception_noticed(stream->device, stream->id, task->id);
    }
    pthread_mutex_lock(&lock);
    if (only != NULL) {
        calls[number++] = only;
    }
    for (size_t i = 0; i < count; i++) {
        calls[number++] = list[i];
    }
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < number && callback_begin(); i++) {
        calls[i]((aclrtExceptionInfo *)&info);
        callback_end();
    }
}

aclError sim_aclrtSetExceptionInfoCallback(aclrtExceptionInfoCallback callback)
{
    pthread_mutex_lock(&lock);
    only = callback;
    pthread_mutex_unlock(&lock);
    return ACL_SUCCESS;
}

/* Returns the callback's index in the list, or the list's length; the lock is held. */
static size_t list_find(aclrtExceptionInfoCallback callback)
{
    size_t at = 0;
    while (at < count && list[at] != callback) {
        at++;
    }
    return at;
}

aclError sim_aclrtExceptionInfoCallbackRegister(aclrtExceptionInfoCallback callback)
{
    REQUIRE_RT(callback != NULL);
    pthread_mutex_lock(&lock);
    bool known = list_find(callback) < count;
    bool full = !known && count == CALLBACKS_MAX;
    if (!known && !full) {
        list[count++] = callback;
    }
    pthread_mutex_unlock(&lock);
    return full ? fail(ACL_ERROR_RT_OVER_LIMIT, "%d callbacks are registered", CALLBACKS_MAX)
                : ACL_SUCCESS;
}

aclError sim_aclrtExceptionInfoCallbackUnregister(aclrtExceptionInfoCallback callback)
{
    REQUIRE_RT(callback != NULL);
    pthread_mutex_lock(&lock);
    size_t at = list_find(callback);
    if (at < count) {
        count--;
        for (size_t i = at; i < count; i++) {
            list[i] = list[i + 1];
        }
    }
    pthread_mutex_unlock(&lock);
    return ACL_SUCCESS;
}

static const ExceptionInfo *info_of(const aclrtExceptionInfo *info)
{
    return (const ExceptionInfo *)info;
}

uint32_t sim_aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo *info)
{
    return info != NULL ? info_of(info)->task_id : UINT32_MAX;
}

uint32_t sim_aclrtGetStreamIdFromExceptionInfo(const aclrtExceptionInfo *info)
{
    return info != NULL ? info_of(info)->stream_id : UINT32_MAX;
}

uint32_t sim_aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo *info)
{
    return info != NULL ? info_of(info)->thread : UINT32_MAX;
}

uint32_t sim_aclrtGetDeviceIdFromExceptionInfo(const aclrtExceptionInfo *info)
{
    return info != NULL ? (uint32_t)info_of(info)->device : UINT32_MAX;
}

uint32_t sim_aclrtGetErrorCodeFromExceptionInfo(const aclrtExceptionInfo *info)
{
    return info != NULL ? (uint32_t)info_of(info)->code : UINT32_MAX;
}

/* Refuses a NULL info with a status of all bits set; the functions that return one number give the
 * same value then. */
static aclError info_check(const aclrtExceptionInfo *info, const char *function)
{
    return info != NULL ? ACL_SUCCESS : error_set(function, (aclError)UINT32_MAX, "info is NULL");
}

aclError sim_aclrtGetArgsFromExceptionInfo(const aclrtExceptionInfo *info, void **devArgsPtr,
                                           uint32_t *devArgsLen)
{
    TRY(info_check(info, __func__));
    REQUIRE(devArgsPtr != NULL);
    REQUIRE(devArgsLen != NULL);
    *devArgsPtr = info_of(info)->kernel.args;
    *devArgsLen = info_of(info)->kernel.args_size;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetFuncHandleFromExceptionInfo(const aclrtExceptionInfo *info,
                                                 aclrtFuncHandle *func)
{
    TRY(info_check(info, __func__));
    REQUIRE(func != NULL);
    *func = info_of(info)->kernel.function;
    return ACL_SUCCESS;
}
