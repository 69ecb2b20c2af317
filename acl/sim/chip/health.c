/* health.c: the calls for hardware faults and their repair, for snapshots, and for hints about tasks.

   The simulated hardware has no faults: a fault that a test sets is only the status of a call.  So the
   reports are empty, and repairs do nothing.

   Thread rule: one mutex guards the snapshot's state and its callbacks; it is not held while a
   callback is called. */
#include <string.h>
#include <unistd.h>

#include "base/core.h"
#include "generated/exports.h"

aclError sim_aclrtGetErrorVerbose(int32_t deviceId, aclrtErrorInfo *errorInfo)
{
    REQUIRE(errorInfo);
    TRY(device_check(deviceId));
    memset(errorInfo, 0, sizeof *errorInfo);
    errorInfo->errorType = ACL_RT_NO_ERROR;
    return ACL_SUCCESS;
}

aclError sim_aclrtRepairError(int32_t deviceId, const aclrtErrorInfo *errorInfo)
{
    REQUIRE(errorInfo);
    TRY(device_check(deviceId));
    if (errorInfo->errorType == ACL_RT_NO_ERROR) {
        return ACL_SUCCESS;
    }
    return fail(ACL_ERROR_RT_PARAM_INVALID, "device %d has no error of type %d", deviceId,
                (int)errorInfo->errorType);
}

aclError sim_aclrtGetMemUceInfo(int32_t deviceId, aclrtMemUceInfo *memUceInfoArray,
    size_t arraySize, size_t *retSize)
{
    (void)arraySize; /* no faults are reported, so any size is enough */
    REQUIRE(memUceInfoArray);
    REQUIRE(retSize);
    TRY(device_check(deviceId));
    *retSize = 0;
    return ACL_SUCCESS;
}

aclError sim_aclrtMemUceRepair(int32_t deviceId, aclrtMemUceInfo *memUceInfoArray,
    size_t arraySize)
{
    REQUIRE(memUceInfoArray);
    REQUIRE(arraySize <= ACL_RT_MEM_UCE_INFO_MAX_NUM);
    TRY(device_check(deviceId));
    return ACL_SUCCESS;
}

/* Receives a framework's description of the task that it launched last, for the profiler. The simulator's
   profiler does not use it, so only the arguments are checked. */
aclError sim_aclrtCacheLastTaskOpInfo(const void *const infoPtr, const size_t infoSize)
{
    REQUIRE(infoPtr);
    REQUIRE(infoSize != 0);
    return ACL_SUCCESS;
}

aclError sim_aclrtCacheLastTaskExtendInfo(const char *const extendInfoPtr, const size_t infoSize)
{
    REQUIRE_RT(extendInfoPtr);
    REQUIRE_RT(infoSize != 0);
    return ACL_SUCCESS;
}

static aclError trace_run(Stream *stream, const void *payload)
{
    (void)stream;
    (void)payload;
    return ACL_SUCCESS;
}

static const TaskClass trace_task = {.name = "profiling trace", .run = trace_run};

aclError sim_aclrtProfTrace(void *userdata, int32_t length, aclrtStream stream)
{
    STREAM_REF(resolved);
    REQUIRE(userdata);
    REQUIRE(length > 0);
    TRY(stream_resolve(stream, &resolved));
    return stream_submit(resolved, &trace_task, NULL, 0);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

enum { STAGES = 6, CALLBACKS_MAX = 32 };

typedef struct SnapshotCallback {
    aclrtSnapShotStage stage;
    aclrtSnapShotCallBack call;
    void *argument;
} SnapshotCallback;

FILE_LOCK(snapshot_lock);
static SnapshotCallback callbacks[CALLBACKS_MAX];
static size_t callback_count;
static bool process_locked;
static bool process_saved;

static aclError process_check(int pid, const void *reserve, const char *function)
{
    if (pid != (int)getpid()) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
                         "pid is %d, expected this process's own, %d", pid, (int)getpid());
    }
    if (reserve != NULL) {
        return error_argument(function, ACL_ERROR_INVALID_PARAM, "the reserved argument is NULL");
    }
    return ACL_SUCCESS;
}

/* Calls the callbacks of the stage for each device in use. If a callback fails, calls no more and returns an error. */
static aclError stage_run(aclrtSnapShotStage stage, const char *function)
{
    SnapshotCallback due[CALLBACKS_MAX];
    size_t count = 0;
    pthread_mutex_lock(&snapshot_lock);
    for (size_t i = 0; i < callback_count; i++) {
        if (callbacks[i].stage == stage) {
            due[count++] = callbacks[i];
        }
    }
    pthread_mutex_unlock(&snapshot_lock);
    for (int32_t device = 0; device < (int32_t)config.devices; device++) {
        if (device_references(device) == 0) {
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            uint32_t status = due[i].call(device, due[i].argument);
            if (status != 0) {
                return error_set(function, ACL_ERROR_RT_INTERNAL_ERROR,
                                 "a snapshot callback for device %d returned %u", device, status);
            }
        }
    }
    return ACL_SUCCESS;
}

/* Sets a flag of the snapshot's state to `value`. Returns an error if the flag has this value already, or if
   `needs_lock` is true and the process is not locked. */
static aclError state_step(bool *flag, bool value, bool needs_lock, const char *function)
{
    pthread_mutex_lock(&snapshot_lock);
    bool allowed = *flag != value && (!needs_lock || process_locked);
    if (allowed) {
        *flag = value;
    }
    pthread_mutex_unlock(&snapshot_lock);
    if (!allowed) {
        return error_set(function, ACL_ERROR_RT_INTERNAL_ERROR,
                         "the call is not valid in this state: expected the order lock, backup, restore, unlock");
    }
    return ACL_SUCCESS;
}

/* Notes that the process was backed up; returns an error if the process is not locked. A second backup is allowed and
   replaces the first one. */
static aclError backup_mark(const char *function)
{
    pthread_mutex_lock(&snapshot_lock);
    bool allowed = process_locked;
    process_saved = process_saved || allowed;
    pthread_mutex_unlock(&snapshot_lock);
    if (!allowed) {
        return error_set(function, ACL_ERROR_RT_INTERNAL_ERROR, "the process is not locked");
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtSnapShotProcessLock(int pid, void *reserve)
{
    TRY(process_check(pid, reserve, __func__));
    TRY(stage_run(ACL_RT_SNAPSHOT_LOCK_PRE, __func__));
    return state_step(&process_locked, true, false, __func__);
}

aclError sim_aclrtSnapShotProcessBackup(int pid, aclrtSnapShotBackupArgs *args)
{
    TRY(process_check(pid, args, __func__));
    TRY(stage_run(ACL_RT_SNAPSHOT_BACKUP_PRE, __func__));
    TRY(backup_mark(__func__));
    return stage_run(ACL_RT_SNAPSHOT_BACKUP_POST, __func__);
}

aclError sim_aclrtSnapShotProcessRestore(int pid, aclrtSnapShotRestoreArgs *args)
{
    TRY(process_check(pid, args, __func__));
    TRY(stage_run(ACL_RT_SNAPSHOT_RESTORE_PRE, __func__));
    TRY(state_step(&process_saved, false, true, __func__));
    return stage_run(ACL_RT_SNAPSHOT_RESTORE_POST, __func__);
}

aclError sim_aclrtSnapShotProcessUnlock(int pid, void *reserve)
{
    TRY(process_check(pid, reserve, __func__));
    TRY(state_step(&process_locked, false, false, __func__));
    return stage_run(ACL_RT_SNAPSHOT_UNLOCK_POST, __func__);
}

aclError sim_aclrtSnapShotCallbackRegister(aclrtSnapShotStage stage, aclrtSnapShotCallBack callback,
    void *args)
{
    REQUIRE_RT((unsigned)stage < STAGES);
    REQUIRE_RT(callback);
    pthread_mutex_lock(&snapshot_lock);
    bool room = callback_count < CALLBACKS_MAX;
    if (room) {
        callbacks[callback_count++] = (SnapshotCallback){stage, callback, args};
    }
    pthread_mutex_unlock(&snapshot_lock);
    if (!room) {
        return fail(ACL_ERROR_RT_INTERNAL_ERROR, "more than %d snapshot callbacks", CALLBACKS_MAX);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtSnapShotCallbackUnregister(aclrtSnapShotStage stage,
    aclrtSnapShotCallBack callback)
{
    REQUIRE_RT((unsigned)stage < STAGES);
    REQUIRE_RT(callback);
    bool found = false;
    pthread_mutex_lock(&snapshot_lock);
    for (size_t i = 0; i < callback_count && !found; i++) {
        if (callbacks[i].stage == stage && callbacks[i].call == callback) {
            memmove(&callbacks[i], &callbacks[i + 1],
                    (callback_count - i - 1) * sizeof callbacks[0]);
            callback_count--;
            found = true;
        }
    }
    pthread_mutex_unlock(&snapshot_lock);
    if (!found) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "the callback is not registered for stage %d",
                    (int)stage);
    }
    return ACL_SUCCESS;
}
