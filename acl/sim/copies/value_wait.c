/* Tasks that write a value to device memory, or wait until a value in device memory fits a condition.
 *
 * A waiting task polls the value, because a task of another stream, a copy or the host may change it.  A write task
 * of this file wakes the waiting tasks immediately; all other changes are seen within a millisecond (LOOK_NS).
 *
 * Thread rule: the values are accessed as atomics. */
#include "memory/memory.h"

#include "generated/exports.h"
#include "races/race.h"

enum { LOOK_NS = 1000000 };

typedef struct ValueTask {
    uint64_t *address; /* the user's address; translated by memory_for_task when the task runs */
    uint64_t value;
    uint32_t flag;
} ValueTask;

static aclError value_check(const void *address)
{
    REQUIRE(address != NULL);
    if ((uintptr_t)address % sizeof(uint64_t) != 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "devAddr %p, expected a multiple of 8", address);
    }
    return ACL_SUCCESS;
}

static aclError write_run(Stream *stream, const void *payload)
{
    const ValueTask *task = payload;
    void *at;
    TRY(memory_for_task(stream, "a value to write", task->address, sizeof(uint64_t), true, &at));
    if (races_on()) {
        race_put_value(stream, task->address);
    }
    atomic_store((_Atomic uint64_t *)at, task->value);
    park_wake(task->address);
    return ACL_SUCCESS;
}

/* A waiting task. Its memory may be unmapped during the wait. */
typedef struct ValueWait {
    const Stream *stream;
    const ValueTask *task;
    aclError status;
} ValueWait;

/* Reads the value. Hidden from ThreadSanitizer: a copy may write the value by plain stores at the same time, and a
   program is allowed to do so, as on a device. */
__attribute__((noinline, no_sanitize("thread"))) static uint64_t value_look(const void *at)
{
    return atomic_load((const _Atomic uint64_t *)at);
}

static bool value_fits(uint64_t value, const ValueTask *task)
{
    switch (task->flag) {
    case ACL_STREAM_WAIT_VALUE_EQ:
        return value == task->value;
    case ACL_STREAM_WAIT_VALUE_AND:
        return (value & task->value) != 0;
    case ACL_STREAM_WAIT_VALUE_NOR:
        return ~(value | task->value) != 0;
    default: /* greater or equal; correct also after a counter that only grows has wrapped around */
        return (int64_t)(value - task->value) >= 0;
    }
}

static bool wait_is_over(const void *argument)
{
    ValueWait *wait = (ValueWait *)(uintptr_t)argument;
    void *at;
    wait->status = memory_for_task(wait->stream, "a value to wait for", wait->task->address,
                                   sizeof(uint64_t), false, &at);
    return wait->status != ACL_SUCCESS || value_fits(value_look(at), wait->task);
}

static bool wait_waits(const void *payload)
{
    const ValueTask *task = payload;
    const void *at = memory_at(task->address, sizeof(uint64_t), false);
    return at != NULL && !value_fits(value_look(at), task);
}

static aclError wait_run(Stream *stream, const void *payload)
{
    const ValueTask *task = payload;
    ValueWait wait = {stream, task, ACL_SUCCESS};
    while (!stream_park(stream, task->address, wait_is_over, &wait, now_ns() + LOOK_NS)) {
        if (stream_is_dropping(stream)) {
            return ACL_SUCCESS;
        }
    }
    if (races_on()) {
        race_take_value(stream, task->address);
    }
    return wait.status;
}

static void write_touch(const void *payload, Touch *touch)
{
    touch_bytes(touch, ((const ValueTask *)payload)->address, sizeof(uint64_t), TOUCH_ATOMIC);
    touch_marked(touch);
}

static void wait_touch(const void *payload, Touch *touch)
{
    touch_bytes(touch, ((const ValueTask *)payload)->address, sizeof(uint64_t), TOUCH_ATOMIC);
    touch_late(touch);
}

static void write_describe(const void *payload, aclmdlRITaskParams *params)
{
    const ValueTask *task = payload;
    params->valueWriteTaskParams.devAddr = task->address;
    params->valueWriteTaskParams.value = task->value;
}

static aclError write_adopt(void *payload, const aclmdlRITaskParams *params)
{
    ValueTask *task = payload;
    TRY(value_check(params->valueWriteTaskParams.devAddr));
    task->address = params->valueWriteTaskParams.devAddr;
    task->value = params->valueWriteTaskParams.value;
    return ACL_SUCCESS;
}

static void wait_describe(const void *payload, aclmdlRITaskParams *params)
{
    const ValueTask *task = payload;
    params->valueWaitTaskParams.devAddr = task->address;
    params->valueWaitTaskParams.value = task->value;
    params->valueWaitTaskParams.flag = task->flag;
}

static aclError wait_adopt(void *payload, const aclmdlRITaskParams *params)
{
    ValueTask *task = payload;
    TRY(value_check(params->valueWaitTaskParams.devAddr));
    REQUIRE_RT(params->valueWaitTaskParams.flag <= ACL_STREAM_WAIT_VALUE_NOR);
    task->address = params->valueWaitTaskParams.devAddr;
    task->value = params->valueWaitTaskParams.value;
    task->flag = params->valueWaitTaskParams.flag;
    return ACL_SUCCESS;
}

static const TaskClass write_task = {
    .name = "value write",
    .touch = write_touch,
    .run = write_run,
    .type = ACL_MODEL_RI_TASK_VALUE_WRITE,
    .describe = write_describe,
    .adopt = write_adopt,
};
static const TaskClass wait_task = {
    .name = "value wait",
    .touch = wait_touch,
    .run = wait_run,
    .waits = wait_waits,
    .type = ACL_MODEL_RI_TASK_VALUE_WAIT,
    .describe = wait_describe,
    .adopt = wait_adopt,
};

aclError sim_aclrtValueWrite(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream)
{
    STREAM_REF(on);
    TRY(value_check(devAddr));
    REQUIRE_RT(flag == 0);
    TRY(stream_resolve(stream, &on));
    ValueTask task = {devAddr, value, flag};
    return stream_submit(on, &write_task, &task, sizeof task);
}

aclError sim_aclrtValueWait(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream)
{
    STREAM_REF(on);
    TRY(value_check(devAddr));
    REQUIRE_RT(flag <= ACL_STREAM_WAIT_VALUE_NOR);
    TRY(stream_resolve(stream, &on));
    ValueTask task = {devAddr, value, flag};
    return stream_submit(on, &wait_task, &task, sizeof task);
}
