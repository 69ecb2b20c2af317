/* Streams: what happens after a failure; attributes; stopping and aborting.
 *
 * Thread rule: any thread; the attributes are atomics of the stream. */
#include "streams/capturing.h"
#include "generated/exports.h"
#include "streams/state_callbacks.h"

/* Sets whether the stream stops at a failure. Only bit 0 of the mode is used, and it cannot be
 * cleared again. */
static bool failure_mode_set(Stream *stream, uint64_t mode)
{
    uint64_t stop = mode & ACL_STOP_ON_FAILURE;
    if (stop == 0 && (atomic_load(&stream->failure_mode) & ACL_STOP_ON_FAILURE) != 0) {
        return false;
    }
    atomic_store(&stream->failure_mode, stop);
    return true;
}

aclError sim_aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode)
{
    STREAM_REF(resolved);
    REQUIRE_RT(stream != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    return failure_mode_set(resolved, mode)
               ? ACL_SUCCESS
               : fail_quiet(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                            "stream %u is in stop-on-failure mode, which cannot be changed", resolved->id);
}

static aclError priority_set(Stream *stream, uint32_t priority)
{
    REQUIRE_RT(priority < STREAM_PRIORITIES);
    atomic_store(&stream->priority, priority);
    return ACL_SUCCESS;
}

static aclError cache_op_info_set(Stream *stream, uint32_t value)
{
    REQUIRE_RT(value <= 1);
    atomic_store(&stream->cache_op_info, value);
    return ACL_SUCCESS;
}

aclError sim_aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType,
                                     aclrtStreamAttrValue *value)
{
    STREAM_REF(resolved);
    REQUIRE(value != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    switch (stmAttrType) {
    case ACL_STREAM_ATTR_FAILURE_MODE:
        return failure_mode_set(resolved, value->failureMode)
                   ? ACL_SUCCESS
                   : fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                          "stream %u is in stop-on-failure mode, which cannot be changed", resolved->id);
    case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK:
        atomic_store(&resolved->overflow_switch, value->overflowSwitch);
        return ACL_SUCCESS;
    case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
        atomic_store(&resolved->user_tag, value->userCustomTag);
        return ACL_SUCCESS;
    case ACL_STREAM_ATTR_CACHE_OP_INFO:
        return cache_op_info_set(resolved, value->cacheOpInfoSwitch);
    case ACL_STREAM_ATTR_PRIORITY:
        return priority_set(resolved, value->streamPriority);
    default:
        return fail(ACL_ERROR_RT_PARAM_INVALID, "stmAttrType %d, expected 1 to 5",
                    (int)stmAttrType);
    }
}

aclError sim_aclrtGetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType,
                                     aclrtStreamAttrValue *value)
{
    STREAM_REF(resolved);
    REQUIRE(value != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    switch (stmAttrType) {
    case ACL_STREAM_ATTR_FAILURE_MODE:
        value->failureMode = atomic_load(&resolved->failure_mode);
        return ACL_SUCCESS;
    case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK:
        value->overflowSwitch = atomic_load(&resolved->overflow_switch);
        return ACL_SUCCESS;
    case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
        value->userCustomTag = atomic_load(&resolved->user_tag);
        return ACL_SUCCESS;
    case ACL_STREAM_ATTR_CACHE_OP_INFO:
        value->cacheOpInfoSwitch = atomic_load(&resolved->cache_op_info);
        return ACL_SUCCESS;
    case ACL_STREAM_ATTR_PRIORITY:
        value->streamPriority = atomic_load(&resolved->priority);
        return ACL_SUCCESS;
    default:
        return fail(ACL_ERROR_RT_PARAM_INVALID, "stmAttrType %d, expected 1 to 5",
                    (int)stmAttrType);
    }
}

/* Drops the queued tasks, ends a running wait, and forgets a failure; the stream can be used again. */
aclError sim_aclrtStreamAbort(aclrtStream stream)
{
    STREAM_REF(resolved);
    REQUIRE_RT(stream != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    TRY(capture_check_stream(resolved));
    stream_abort(resolved);
    atomic_store(&resolved->status, ACL_SUCCESS);
    return ACL_SUCCESS;
}

static void streams_abort(int32_t device)
{
    for (Stream *s = handle_next_held(HANDLE_STREAM, NULL); s != NULL;
         s = handle_next_held(HANDLE_STREAM, s)) {
        if (s->device == device) {
            stream_abort(s);
            atomic_store(&s->status, ACL_SUCCESS);
        }
    }
}

static int64_t abort_deadline(uint32_t timeout_ms)
{
    return timeout_ms == 0 ? FOREVER : now_ns() + (int64_t)timeout_ms * 1000000;
}

/* Drops the queued tasks of all streams of the device, and waits (timeout 0: for ever) until the
 * streams are idle. */
aclError sim_aclrtDeviceTaskAbort(int32_t deviceId, uint32_t timeout)
{
    enum { TIMEOUT_MAX_MS = 36 * 60 * 1000 };
    REQUIRE_RT(timeout <= TIMEOUT_MAX_MS);
    TRY(device_check(deviceId));
    int64_t deadline = abort_deadline(timeout);
    if (device_abort_tell(deviceId, ACL_RT_DEVICE_TASK_ABORT_PRE, timeout) != 0) {
        return fail(ACL_ERROR_RT_DEVICE_TASK_ABORT, "a device task abort callback returned an error before the abort");
    }
    streams_abort(deviceId);
    for (Stream *s = handle_next_held(HANDLE_STREAM, NULL); s != NULL;
         s = handle_next_held(HANDLE_STREAM, s)) {
        if (s->device == deviceId && s != stream_running() && !stream_wait(s, deadline)) {
            handle_drop(s);
            return fail(ACL_ERROR_RT_TIMEOUT, "stream %u still has running work after %u ms", s->id, timeout);
        }
    }
    if (device_abort_tell(deviceId, ACL_RT_DEVICE_TASK_ABORT_POST, timeout) != 0) {
        return fail(ACL_ERROR_RT_DEVICE_TASK_ABORT, "a device task abort callback returned an error after the abort");
    }
    return ACL_SUCCESS;
}

/* Removes the tasks of a persistent stream, so that new tasks can be submitted. */
aclError sim_aclrtPersistentTaskClean(aclrtStream stream)
{
    STREAM_REF(resolved);
    REQUIRE_RT(stream != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    if ((resolved->flags & ACL_STREAM_PERSISTENT) == 0) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "stream %u is not persistent", resolved->id);
    }
    stream_abort(resolved);
    return ACL_SUCCESS;
}

/* Ends the wait of the running task, if it waits; the tasks behind it run. */
aclError sim_aclrtStreamStop(aclrtStream stream)
{
    STREAM_REF(resolved);
    REQUIRE_RT(stream != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    TRY(capture_check_stream(resolved));
    stream_stop(resolved);
    return ACL_SUCCESS;
}
