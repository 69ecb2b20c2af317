/* Values in device memory that a stream writes, or waits for.
 *
 * A wait looks at the memory again and again, because anything may change it: another stream's
 * write or copy, or the host.  A write of a stream wakes the waiters at once; other changes are
 * seen within a millisecond.
 *
 * Thread rule: the values are accessed as atomics. */
#include "core.h"
#include "exports.h"

enum { LOOK_NS = 1000000 };

typedef struct ValueTask {
    uint64_t *address; /* the user's; looked up when the task runs */
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

static _Atomic uint64_t *value_at(const ValueTask *task)
{
    return memory_inner(task->address, sizeof(uint64_t));
}

static aclError write_run(Stream *stream, const void *payload)
{
    const ValueTask *task = payload;
    (void)stream;
    atomic_store(value_at(task), task->value);
    park_wake(task->address);
    return ACL_SUCCESS;
}

/* Copies into the value are plain writes, as a device's are: that race is the program's to have. */
__attribute__((noinline, no_sanitize("thread"))) static uint64_t value_look(const ValueTask *task)
{
    return atomic_load(value_at(task));
}

static bool value_fits(const void *argument)
{
    const ValueTask *task = argument;
    uint64_t value = value_look(task);
    switch (task->flag) {
    case ACL_STREAM_WAIT_VALUE_EQ:
        return value == task->value;
    case ACL_STREAM_WAIT_VALUE_AND:
        return (value & task->value) != 0;
    case ACL_STREAM_WAIT_VALUE_NOR:
        return ~(value | task->value) != 0;
    default: /* greater or equal, and the counter may wrap round */
        return (int64_t)(value - task->value) >= 0;
    }
}

static aclError wait_run(Stream *stream, const void *payload)
{
    const ValueTask *task = payload;
    while (!stream_park(stream, task->address, value_fits, task, now_ns() + LOOK_NS)) {
        if (stream_is_dropping(stream)) {
            break;
        }
    }
    return ACL_SUCCESS;
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
    .run = write_run,
    .type = ACL_MODEL_RI_TASK_VALUE_WRITE,
    .describe = write_describe,
    .adopt = write_adopt,
};
static const TaskClass wait_task = {
    .name = "value wait",
    .run = wait_run,
    .type = ACL_MODEL_RI_TASK_VALUE_WAIT,
    .describe = wait_describe,
    .adopt = wait_adopt,
};

aclError sim_aclrtValueWrite(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream)
{
    Stream *on;
    TRY(value_check(devAddr));
    REQUIRE_RT(flag == 0);
    TRY(stream_resolve(stream, &on));
    ValueTask task = {devAddr, value, flag};
    return stream_submit(on, &write_task, &task, sizeof task);
}

aclError sim_aclrtValueWait(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream)
{
    Stream *on;
    TRY(value_check(devAddr));
    REQUIRE_RT(flag <= ACL_STREAM_WAIT_VALUE_NOR);
    TRY(stream_resolve(stream, &on));
    ValueTask task = {devAddr, value, flag};
    return stream_submit(on, &wait_task, &task, sizeof task);
}
