/* Notifies: a bit that one stream sets and another waits for and clears.  And counting notifies: a
 * number that streams set, change and wait for.
 *
 * Thread rule: any thread; the values are atomics.  Tasks hold the notify, so that destroying it
 * while they are queued is safe. */
#include "notify.h"
#include "exports.h"
#include "stream.h"

static _Atomic uint32_t next_id;

static Notify *notify_new(HandleKind kind)
{
    Notify *notify = handle_new(kind, sizeof *notify);
    if (notify != NULL) {
        notify->id = atomic_fetch_add(&next_id, 1);
        notify->value = &notify->own_value;
        atomic_store(&notify->users, 1);
    }
    return notify;
}

aclError notify_create(void **out, HandleKind kind)
{
    Context *context;
    TRY(context_require(&context));
    Notify *notify = notify_new(kind);
    if (notify == NULL) {
        return fail(ACL_ERROR_RT_NO_NOTIFY_RESOURCE, "too many notifies");
    }
    notify->device = context->device;
    *out = notify;
    return ACL_SUCCESS;
}

aclError notify_resolve(const void *handle, Notify **notify)
{
    if (!handle_is(handle, HANDLE_NOTIFY)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no notify that lives", handle);
    }
    *notify = (Notify *)(uintptr_t)handle;
    return ACL_SUCCESS;
}

static void notify_use(Notify *notify)
{
    atomic_fetch_add_explicit(&notify->users, 1, memory_order_relaxed);
}

static void notify_release(Notify *notify)
{
    if (atomic_fetch_sub(&notify->users, 1) == 1) {
        notify_unshare(notify);
        handle_retire(notify);
    }
}

static aclError notify_destroy(Notify *notify)
{
    if (!handle_kill(notify)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "the notify was destroyed by another thread");
    }
    notify_release(notify);
    return ACL_SUCCESS;
}

aclError sim_aclrtCreateNotify(aclrtNotify *notify, uint64_t flag)
{
    Context *context;
    REQUIRE(notify != NULL);
    REQUIRE_RT(flag == ACL_NOTIFY_DEFAULT || flag == ACL_NOTIFY_DEVICE_USE_ONLY);
    TRY(context_ask(&context));
    return notify_create(notify, HANDLE_NOTIFY);
}

aclError sim_aclrtDestroyNotify(aclrtNotify notify)
{
    Notify *resolved;
    REQUIRE(notify != NULL);
    TRY(notify_resolve(notify, &resolved));
    return notify_destroy(resolved);
}

aclError sim_aclrtGetNotifyId(aclrtNotify notify, uint32_t *notifyId)
{
    Notify *resolved;
    REQUIRE(notify != NULL);
    REQUIRE(notifyId != NULL);
    TRY(notify_resolve(notify, &resolved));
    *notifyId = resolved->id;
    return ACL_SUCCESS;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

typedef struct NotifyTask {
    Notify *notify;
    uint32_t mode;
    uint32_t operand;
    int64_t timeout_ns; /* FOREVER */
    bool clears;
} NotifyTask;

static void notify_task_drop(void *payload)
{
    notify_release(((NotifyTask *)payload)->notify);
}

static aclError notify_submit(Stream *stream, const TaskClass *sort, const NotifyTask *task)
{
    notify_use(task->notify);
    aclError status = stream_submit(stream, sort, task, sizeof *task);
    if (status != ACL_SUCCESS) {
        notify_release(task->notify);
    }
    return status;
}

static aclError record_run(Stream *stream, const void *payload)
{
    const NotifyTask *task = payload;
    (void)stream;
    atomic_store(task->notify->value, 1);
    notify_wake(task->notify);
    return ACL_SUCCESS;
}

/* Takes the bit if it is set, so that each record lets one wait through. */
static bool bit_taken(const void *argument)
{
    const NotifyTask *task = argument;
    uint32_t set = 1;
    return atomic_compare_exchange_strong(task->notify->value, &set, 0);
}

static aclError wait_end(bool reached, int64_t deadline_ns)
{
    bool expired = !reached && deadline_ns >= 0 && now_ns() >= deadline_ns;
    return expired ? ACL_ERROR_RT_WAIT_TIMEOUT : ACL_SUCCESS;
}

static int64_t task_deadline(const NotifyTask *task)
{
    return task->timeout_ns < 0 ? FOREVER : now_ns() + task->timeout_ns;
}

static aclError wait_run(Stream *stream, const void *payload)
{
    const NotifyTask *task = payload;
    int64_t deadline = task_deadline(task);
    return wait_end(notify_park(stream, task->notify, bit_taken, task, deadline), deadline);
}

static const TaskClass record_task = {
    .name = "notify record",
    .run = record_run,
    .drop = notify_task_drop,
};
static const TaskClass wait_task = {
    .name = "notify wait",
    .run = wait_run,
    .drop = notify_task_drop,
};

aclError sim_aclrtRecordNotify(aclrtNotify notify, aclrtStream stream)
{
    Notify *resolved;
    Stream *on;
    REQUIRE(notify != NULL);
    TRY(notify_resolve(notify, &resolved));
    TRY(stream_resolve(stream, &on));
    NotifyTask task = {.notify = resolved};
    return notify_submit(on, &record_task, &task);
}

aclError sim_aclrtWaitAndResetNotify(aclrtNotify notify, aclrtStream stream, uint32_t timeout)
{
    Notify *resolved;
    Stream *on;
    REQUIRE(notify != NULL);
    TRY(notify_resolve(notify, &resolved));
    TRY(stream_resolve(stream, &on));
    bool forever = timeout == 0 || timeout == UINT32_MAX;
    NotifyTask task = {.notify = resolved,
                       .timeout_ns = forever ? FOREVER : (int64_t)timeout * 1000000000};
    return notify_submit(on, &wait_task, &task);
}

aclError sim_aclrtNotifyBatchReset(aclrtNotify *notifies, size_t num)
{
    Notify *resolved;
    REQUIRE(notifies != NULL);
    REQUIRE_RT(num != 0);
    for (size_t i = 0; i < num; i++) {
        REQUIRE_RT(notifies[i] != NULL);
        TRY(notify_resolve(notifies[i], &resolved));
    }
    for (size_t i = 0; i < num; i++) {
        TRY(notify_resolve(notifies[i], &resolved));
        atomic_store(resolved->value, 0);
    }
    return ACL_SUCCESS;
}

/* ---- counting notifies ----------------------------------------------------------------------- */

static aclError count_resolve(const void *handle, Notify **notify)
{
    REQUIRE_RT(handle != NULL);
    if (!handle_is(handle, HANDLE_CNT_NOTIFY)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no cntNotify that lives", handle);
    }
    *notify = (Notify *)(uintptr_t)handle;
    return ACL_SUCCESS;
}

aclError sim_aclrtCntNotifyCreate(aclrtCntNotify *cntNotify, uint64_t flag)
{
    REQUIRE_RT(cntNotify != NULL);
    REQUIRE_RT(flag == 0);
    return notify_create(cntNotify, HANDLE_CNT_NOTIFY);
}

aclError sim_aclrtCntNotifyDestroy(aclrtCntNotify cntNotify)
{
    Notify *resolved;
    TRY(count_resolve(cntNotify, &resolved));
    return notify_destroy(resolved);
}

aclError sim_aclrtCntNotifyGetId(aclrtCntNotify cntNotify, uint32_t *notifyId)
{
    Notify *resolved;
    TRY(count_resolve(cntNotify, &resolved));
    REQUIRE_RT(notifyId != NULL);
    *notifyId = resolved->id;
    return ACL_SUCCESS;
}

static aclError count_record_run(Stream *stream, const void *payload)
{
    const NotifyTask *task = payload;
    (void)stream;
    switch (task->mode) {
    case ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE:
        atomic_fetch_add(task->notify->value, task->operand);
        break;
    case ACL_RT_CNT_NOTIFY_RECORD_BIT_OR_MODE:
        atomic_fetch_or(task->notify->value, task->operand);
        break;
    case ACL_RT_CNT_NOTIFY_RECORD_BIT_AND_MODE:
        atomic_fetch_and(task->notify->value, task->operand);
        break;
    default:
        atomic_store(task->notify->value, task->operand);
        break;
    }
    notify_wake(task->notify);
    return ACL_SUCCESS;
}

static bool count_fits(const void *argument)
{
    const NotifyTask *task = argument;
    uint32_t value = atomic_load(task->notify->value);
    switch (task->mode) {
    case ACL_RT_CNT_NOTIFY_WAIT_LESS_MODE:
        return value < task->operand;
    case ACL_RT_CNT_NOTIFY_WAIT_EQUAL_MODE:
        return value == task->operand;
    case ACL_RT_CNT_NOTIFY_WAIT_BIGGER_MODE:
        return value > task->operand;
    case ACL_RT_CNT_NOTIFY_WAIT_BIGGER_OR_EQUAL_MODE:
        return value >= task->operand;
    default:
        return (value & task->operand) == task->operand;
    }
}

static aclError count_wait_run(Stream *stream, const void *payload)
{
    const NotifyTask *task = payload;
    int64_t deadline = task_deadline(task);
    bool reached = notify_park(stream, task->notify, count_fits, task, deadline);
    if (reached && task->clears) {
        atomic_store(task->notify->value, 0);
    }
    return wait_end(reached, deadline);
}

static aclError count_reset_run(Stream *stream, const void *payload)
{
    const NotifyTask *task = payload;
    (void)stream;
    atomic_store(task->notify->value, 0);
    notify_wake(task->notify);
    return ACL_SUCCESS;
}

static const TaskClass count_record_task = {
    .name = "cnt record",
    .run = count_record_run,
    .drop = notify_task_drop,
};
static const TaskClass count_wait_task = {
    .name = "cnt wait",
    .run = count_wait_run,
    .drop = notify_task_drop,
};
static const TaskClass count_reset_task = {
    .name = "cnt reset",
    .run = count_reset_run,
    .drop = notify_task_drop,
};

aclError sim_aclrtCntNotifyRecord(aclrtCntNotify cntNotify, aclrtStream stream,
                                  aclrtCntNotifyRecordInfo *info)
{
    Notify *resolved;
    Stream *on;
    REQUIRE_RT(cntNotify != NULL);
    REQUIRE(info != NULL);
    TRY(count_resolve(cntNotify, &resolved));
    TRY(stream_resolve(stream, &on));
    REQUIRE_RT((unsigned)info->mode <= ACL_RT_CNT_NOTIFY_RECORD_BIT_AND_MODE
               && (unsigned)info->mode != 3);
    NotifyTask task = {.notify = resolved, .mode = info->mode, .operand = info->value};
    return notify_submit(on, &count_record_task, &task);
}

aclError sim_aclrtCntNotifyWaitWithTimeout(aclrtCntNotify cntNotify, aclrtStream stream,
                                           aclrtCntNotifyWaitInfo *info)
{
    Notify *resolved;
    Stream *on;
    REQUIRE_RT(cntNotify != NULL);
    REQUIRE(info != NULL);
    TRY(count_resolve(cntNotify, &resolved));
    TRY(stream_resolve(stream, &on));
    REQUIRE_RT((unsigned)info->mode <= ACL_RT_CNT_NOTIFY_WAIT_EQUAL_WITH_BITMASK_MODE);
    bool forever = info->timeout == 0 || info->timeout == UINT32_MAX;
    NotifyTask task = {.notify = resolved, .mode = info->mode, .operand = info->value,
                       .timeout_ns = forever ? FOREVER : (int64_t)info->timeout * 1000000000,
                       .clears = info->isClear != 0};
    return notify_submit(on, &count_wait_task, &task);
}

aclError sim_aclrtCntNotifyReset(aclrtCntNotify cntNotify, aclrtStream stream)
{
    Notify *resolved;
    Stream *on;
    TRY(count_resolve(cntNotify, &resolved));
    TRY(stream_resolve(stream, &on));
    NotifyTask task = {.notify = resolved};
    return notify_submit(on, &count_reset_task, &task);
}
