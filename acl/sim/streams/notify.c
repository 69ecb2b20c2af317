/* Notifies and counting notifies. A notify is a bit: one stream sets it, another waits for it and
 * clears it. A counting notify is a number that streams set, change and wait for.
 *
 * Thread rule: any thread; the values are atomics.  Tasks hold the notify, so that destroying it
 * while they are queued is safe. */
#include "streams/notify.h"
#include "generated/exports.h"
#include "streams/stream.h"

static _Atomic uint32_t next_id;

static Notify *notify_new(HandleKind kind)
{
    Notify *notify = handle_prepare(kind, sizeof *notify);
    if (notify != NULL) {
        notify->id = atomic_fetch_add(&next_id, 1);
        notify->value = &notify->own_value;
        pthread_mutex_init(&notify->lock, NULL);
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
    handle_show(notify);
    return ACL_SUCCESS;
}

aclError notify_resolve(const void *handle, Notify **notify)
{
    if (!handle_follow(handle, HANDLE_NOTIFY)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live notify", handle);
    }
    *notify = (Notify *)(uintptr_t)handle;
    return ACL_SUCCESS;
}

static void notify_use(Notify *notify)
{
    (void)handle_hold(notify);
}

static void notify_release(Notify *notify)
{
    if (handle_drop(notify)) {
        notify_unshare(notify);
        if (notify->order != NULL) {
            race_drop(&notify->order);
        }
        handle_retire(notify);
    }
}

void notify_unref(Notify *const *notify)
{
    if (*notify != NULL) {
        notify_release(*notify);
    }
}

static aclError notify_destroy(Notify *notify)
{
    if (!handle_kill(notify)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "the notify was destroyed by another thread");
    }
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
    NOTIFY_REF(resolved);
    Context *context;
    REQUIRE(notify != NULL);
    TRY(notify_resolve(notify, &resolved));
    TRY(context_require(&context));
    return notify_destroy(resolved);
}

aclError sim_aclrtGetNotifyId(aclrtNotify notify, uint32_t *notifyId)
{
    NOTIFY_REF(resolved);
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
    int64_t timeout_ns; /* of a wait: how long it may wait; FOREVER: no limit */
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

/* For the order checker: a wait is ordered after all records that have run and, if the notify is
 * shared, after those of other processes. */
static void record_order(Stream *stream, Notify *notify)
{
    if (races_on()) {
        race_put(stream, &notify->order);
        race_put(stream, atomic_load(&notify->shared) != NULL ? race_elsewhere() : &notify->order);
    }
}

static void wait_order(Stream *stream, Notify *notify)
{
    if (races_on()) {
        race_take(stream, &notify->order);
        race_take(stream, atomic_load(&notify->shared) != NULL ? race_elsewhere() : &notify->order);
    }
}

static void record_touch(const void *payload, Touch *touch)
{
    (void)payload;
    touch_marked(touch);
}

static void wait_touch(const void *payload, Touch *touch)
{
    (void)payload;
    touch_late(touch);
}

static void value_set(Notify *notify, uint32_t value)
{
    pthread_mutex_lock(&notify->lock);
    atomic_store(notify->value, value);
    pthread_mutex_unlock(&notify->lock);
    notify_wake(notify);
}

static aclError record_run(Stream *stream, const void *payload)
{
    const NotifyTask *task = payload;
    record_order(stream, task->notify);
    value_set(task->notify, 1);
    return ACL_SUCCESS;
}

/* Clears the bit if it is set, so that each record lets one wait continue. */
static bool bit_taken(const void *argument)
{
    Notify *notify = ((const NotifyTask *)argument)->notify;
    uint32_t set = 1;
    pthread_mutex_lock(&notify->lock);
    bool taken = atomic_compare_exchange_strong(notify->value, &set, 0);
    pthread_mutex_unlock(&notify->lock);
    return taken;
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
    bool reached = notify_park(stream, task->notify, bit_taken, task, deadline);
    wait_order(stream, task->notify);
    return wait_end(reached, deadline);
}

static bool wait_waits(const void *payload)
{
    Notify *notify = ((const NotifyTask *)payload)->notify;
    pthread_mutex_lock(&notify->lock);
    bool waits = atomic_load(notify->value) == 0;
    pthread_mutex_unlock(&notify->lock);
    return waits;
}

static const TaskClass record_task = {
    .name = "notify record",
    .touch = record_touch,
    .run = record_run,
    .drop = notify_task_drop,
};
static const TaskClass wait_task = {
    .name = "notify wait",
    .touch = wait_touch,
    .run = wait_run,
    .waits = wait_waits,
    .drop = notify_task_drop,
};

aclError sim_aclrtRecordNotify(aclrtNotify notify, aclrtStream stream)
{
    NOTIFY_REF(resolved);
    STREAM_REF(on);
    REQUIRE(notify != NULL);
    TRY(notify_resolve(notify, &resolved));
    TRY(stream_resolve(stream, &on));
    NotifyTask task = {.notify = resolved};
    return notify_submit(on, &record_task, &task);
}

aclError sim_aclrtWaitAndResetNotify(aclrtNotify notify, aclrtStream stream, uint32_t timeout)
{
    NOTIFY_REF(resolved);
    STREAM_REF(on);
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
    REQUIRE(notifies != NULL);
    REQUIRE_RT(num != 0);
    for (size_t i = 0; i < num; i++) { /* if one is invalid, those before it are reset nevertheless */
        NOTIFY_REF(resolved);
        REQUIRE_RT(notifies[i] != NULL);
        TRY(notify_resolve(notifies[i], &resolved));
        value_set(resolved, 0);
    }
    return ACL_SUCCESS;
}

/* ---- counting notifies ----------------------------------------------------------------------- */

static aclError count_resolve(const void *handle, Notify **notify)
{
    REQUIRE_RT(handle != NULL);
    if (!handle_follow(handle, HANDLE_CNT_NOTIFY)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live cntNotify", handle);
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
    NOTIFY_REF(resolved);
    Context *context;
    TRY(count_resolve(cntNotify, &resolved));
    TRY(context_require(&context));
    return notify_destroy(resolved);
}

aclError sim_aclrtCntNotifyGetId(aclrtCntNotify cntNotify, uint32_t *notifyId)
{
    NOTIFY_REF(resolved);
    TRY(count_resolve(cntNotify, &resolved));
    REQUIRE_RT(notifyId != NULL);
    *notifyId = resolved->id;
    return ACL_SUCCESS;
}

static aclError count_record_run(Stream *stream, const void *payload)
{
    const NotifyTask *task = payload;
    _Atomic uint32_t *value = task->notify->value; /* always `own_value`: a counting notify cannot be exported */
    record_order(stream, task->notify);
    switch (task->mode) {
    case ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE:
        atomic_fetch_add(value, task->operand);
        break;
    case ACL_RT_CNT_NOTIFY_RECORD_BIT_OR_MODE:
        atomic_fetch_or(value, task->operand);
        break;
    case ACL_RT_CNT_NOTIFY_RECORD_BIT_AND_MODE:
        atomic_fetch_and(value, task->operand);
        break;
    default:
        atomic_store(value, task->operand);
        break;
    }
    notify_wake(task->notify);
    return ACL_SUCCESS;
}

static bool value_fits(const NotifyTask *task, uint32_t value)
{
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

/* True if the value fits. If the wait asks for it, a value that fits is set to 0 in one atomic
 * step. */
static bool count_fits(const void *argument)
{
    const NotifyTask *task = argument;
    _Atomic uint32_t *place = task->notify->value;
    uint32_t value = atomic_load(place);
    while (value_fits(task, value)) {
        if (!task->clears || atomic_compare_exchange_weak(place, &value, 0)) {
            return true;
        }
    }
    return false;
}

static aclError count_wait_run(Stream *stream, const void *payload)
{
    const NotifyTask *task = payload;
    int64_t deadline = task_deadline(task);
    bool reached = notify_park(stream, task->notify, count_fits, task, deadline);
    wait_order(stream, task->notify);
    return wait_end(reached, deadline);
}

static aclError count_reset_run(Stream *stream, const void *payload)
{
    const NotifyTask *task = payload;
    record_order(stream, task->notify);
    value_set(task->notify, 0);
    return ACL_SUCCESS;
}

static bool count_waits(const void *payload)
{
    const NotifyTask *task = payload;
    return !value_fits(task, atomic_load(task->notify->value));
}

static const TaskClass count_record_task = {
    .name = "cnt record",
    .touch = record_touch,
    .run = count_record_run,
    .drop = notify_task_drop,
};
static const TaskClass count_wait_task = {
    .name = "cnt wait",
    .touch = wait_touch,
    .run = count_wait_run,
    .waits = count_waits,
    .drop = notify_task_drop,
};
static const TaskClass count_reset_task = {
    .name = "cnt reset",
    .touch = record_touch,
    .run = count_reset_run,
    .drop = notify_task_drop,
};

aclError sim_aclrtCntNotifyRecord(aclrtCntNotify cntNotify, aclrtStream stream,
                                  aclrtCntNotifyRecordInfo *info)
{
    NOTIFY_REF(resolved);
    STREAM_REF(on);
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
    NOTIFY_REF(resolved);
    STREAM_REF(on);
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
    NOTIFY_REF(resolved);
    STREAM_REF(on);
    TRY(count_resolve(cntNotify, &resolved));
    TRY(stream_resolve(stream, &on));
    NotifyTask task = {.notify = resolved};
    return notify_submit(on, &count_reset_task, &task);
}
