/* Streams: the exported calls that make, query, synchronise and destroy them.
 *
 * Thread rule: any thread. */
#include "streams/callback.h"
#include "races/race.h"
#include "streams/capturing.h"
#include "generated/exports.h"

enum {
    FLAGS_KNOWN = ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC | ACL_STREAM_HUGE
                  | STREAM_SELF_RUNNING
};

aclError timeout_check_sign(int32_t timeout, const char *function)
{
    if (timeout < -1) {
        return error_set_quiet(function, ACL_ERROR_RT_PARAM_INVALID,
                               "timeout %d, expected -1 or more than 0", timeout);
    }
    return ACL_SUCCESS;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Gives the known flags and ignores unknown ones. Refuses more than one of the three flags that say
 * what runs the stream (STREAM_SELF_RUNNING). */
static aclError flags_normalise(size_t flags, uint32_t *out)
{
    uint32_t special = (uint32_t)flags & STREAM_SELF_RUNNING;
    if ((special & (special - 1)) != 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "flags 0x%zx, expected one of PERSISTENT, CPU_SCHEDULE and DEVICE_USE_ONLY",
                    flags);
    }
    *out = (uint32_t)flags & FLAGS_KNOWN;
    return ACL_SUCCESS;
}

static uint32_t priority_normalise(uint32_t priority)
{
    int32_t asked = (int32_t)priority;
    return asked < 0 ? 0 : asked >= STREAM_PRIORITIES ? STREAM_PRIORITIES - 1 : priority;
}

static aclError stream_create(aclrtStream *out, uint32_t priority, size_t flags)
{
    Context *context;
    STREAM_REF(stream);
    uint32_t known;
    TRY(flags_normalise(flags, &known));
    TRY(context_require(&context));
    TRY(stream_open(context, priority_normalise(priority), known, &stream));
    *out = stream;
    return ACL_SUCCESS;
}

aclError sim_aclrtCreateStream(aclrtStream *stream)
{
    REQUIRE(stream != NULL);
    return stream_create(stream, 0, 0);
}

aclError sim_aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag)
{
    REQUIRE(stream != NULL);
    return stream_create(stream, priority, flag);
}

aclrtStreamConfigHandle *sim_aclrtCreateStreamConfigHandle(void)
{
    return handle_new(HANDLE_STREAM_CONFIG, sizeof(aclrtStreamConfigHandle));
}

aclError sim_aclrtDestroyStreamConfigHandle(aclrtStreamConfigHandle *handle)
{
    REQUIRE(handle != NULL);
    REQUIRE(handle_is(handle, HANDLE_STREAM_CONFIG));
    handle_retire(handle);
    return ACL_SUCCESS;
}

static aclError config_read(const void *value, size_t given, void *field, size_t size)
{
    if (given != size) {
        return error_set("aclrtSetStreamConfigOpt", ACL_ERROR_INVALID_PARAM,
                         "valueSize is %zu, expected %zu for this attribute", given, size);
    }
    __builtin_memcpy(field, value, size);
    return ACL_SUCCESS;
}

static aclError config_read_priority(const void *value, size_t given, uint32_t *field)
{
    uint32_t priority = 0;
    TRY(config_read(value, given, &priority, sizeof priority));
    if (priority >= STREAM_PRIORITIES) {
        return error_set("aclrtSetStreamConfigOpt", ACL_ERROR_INVALID_PARAM,
                         "the priority is %u, expected 0 to %d", priority, STREAM_PRIORITIES - 1);
    }
    *field = priority;
    return ACL_SUCCESS;
}

aclError sim_aclrtSetStreamConfigOpt(aclrtStreamConfigHandle *handle, aclrtStreamConfigAttr attr,
                                     const void *attrValue, size_t valueSize)
{
    REQUIRE(handle != NULL);
    REQUIRE(attrValue != NULL);
    REQUIRE(handle_is(handle, HANDLE_STREAM_CONFIG));
    switch (attr) {
    case ACL_RT_STREAM_WORK_ADDR_PTR:
        return config_read(attrValue, valueSize, &handle->workptr, sizeof handle->workptr);
    case ACL_RT_STREAM_WORK_SIZE:
        return config_read(attrValue, valueSize, &handle->workSize, sizeof handle->workSize);
    case ACL_RT_STREAM_FLAG:
        return config_read(attrValue, valueSize, &handle->flag, sizeof handle->flag);
    case ACL_RT_STREAM_PRIORITY:
        return config_read_priority(attrValue, valueSize, &handle->priority);
    default:
        return fail(ACL_ERROR_INVALID_PARAM, "attr %d, expected 0 to 3", (int)attr);
    }
}

aclError sim_aclrtCreateStreamV2(aclrtStream *stream, const aclrtStreamConfigHandle *handle)
{
    REQUIRE(stream != NULL);
    REQUIRE(handle == NULL || handle_is(handle, HANDLE_STREAM_CONFIG));
    return handle != NULL ? stream_create(stream, handle->priority, handle->flag)
                          : stream_create(stream, 0, 0);
}

static aclError stream_destroy(aclrtStream handle, StreamEnd how)
{
    STREAM_REF(named);
    STREAM_REF(stream);
    REQUIRE(handle != NULL);
    TRY(stream_follow(handle, &named));
    TRY(capture_check_stream(named));
    TRY(stream_resolve(handle, &stream));
    if (!stream_end(stream, how)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p was destroyed by another thread", handle);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtDestroyStream(aclrtStream stream)
{
    return stream_destroy(stream, STREAM_END_DRAINED);
}

aclError sim_aclrtDestroyStreamForce(aclrtStream stream)
{
    return stream_destroy(stream, STREAM_END_NOW);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Resolves a stream for the calls that query or synchronise it. A stream that another stream runs
 * needs no context; then *stream is NULL, because there is nothing to wait for. */
static aclError waitable_resolve(aclrtStream handle, Stream **stream)
{
    STREAM_REF(named);
    if (handle != NULL) {
        TRY(stream_follow(handle, &named));
        TRY(capture_check_stream(named));
        if ((named->flags & STREAM_SELF_RUNNING) != 0) {
            *stream = NULL;
            return ACL_SUCCESS;
        }
    }
    TRY(stream_resolve_any(handle, stream));
    return capture_check_stream(*stream);
}

aclError sim_aclrtSynchronizeStream(aclrtStream stream)
{
    STREAM_REF(resolved);
    TRY(waitable_resolve(stream, &resolved));
    if (resolved == NULL) {
        return ACL_SUCCESS;
    }
    TRY(capture_forbids_sync());
    return stream_synchronize_until(resolved, FOREVER);
}

aclError sim_aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout)
{
    STREAM_REF(resolved);
    TRY(timeout_check_sign(timeout, __func__));
    TRY(stream_check(stream));
    REQUIRE_RT(timeout != 0);
    TRY(waitable_resolve(stream, &resolved));
    if (resolved == NULL) {
        return ACL_SUCCESS;
    }
    TRY(capture_forbids_sync());
    return stream_synchronize(resolved, timeout);
}

aclError sim_aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status)
{
    STREAM_REF(resolved);
    REQUIRE(status != NULL);
    TRY(waitable_resolve(stream, &resolved));
    bool done = resolved == NULL || stream_idle(resolved);
    if (races_on() && done && resolved != NULL) {
        race_saw_stream(resolved);
    }
    if (done && resolved != NULL) {
        order_acquire(&resolved->completed);
    }
    *status = done ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return ACL_SUCCESS;
}

/* ---- what a stream is ------------------------------------------------------------------------ */

aclError sim_aclrtStreamGetId(aclrtStream stream, int32_t *streamId)
{
    STREAM_REF(resolved);
    REQUIRE(streamId != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    *streamId = (int32_t)resolved->id;
    return ACL_SUCCESS;
}

aclError sim_aclrtStreamGetPriority(aclrtStream stream, uint32_t *priority)
{
    STREAM_REF(resolved);
    REQUIRE(priority != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    *priority = atomic_load(&resolved->priority);
    return ACL_SUCCESS;
}

aclError sim_aclrtStreamGetFlags(aclrtStream stream, uint32_t *flags)
{
    STREAM_REF(resolved);
    REQUIRE(flags != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    *flags = resolved->flags;
    return ACL_SUCCESS;
}

aclError sim_aclrtDeviceGetStreamPriorityRange(int32_t *leastPriority, int32_t *greatestPriority)
{
    if (leastPriority != NULL) {
        *leastPriority = STREAM_PRIORITIES - 1;
    }
    if (greatestPriority != NULL) {
        *greatestPriority = 0;
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtGetStreamAvailableNum(uint32_t *streamCount)
{
    Context *context;
    REQUIRE(streamCount != NULL);
    TRY(context_require(&context));
    *streamCount = streams_available(context->device);
    return ACL_SUCCESS;
}

aclError sim_aclrtGetThreadLastTaskId(uint32_t *taskId)
{
    REQUIRE(taskId != NULL);
    *taskId = stream_last_submission().task_id;
    return ACL_SUCCESS;
}
