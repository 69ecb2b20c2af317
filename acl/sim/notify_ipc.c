/* Notifies between processes: the value moves into a shared memory object that the key names.
 *
 * The exporter owns the name and takes it away with the notify; importers keep their mapping.
 * Unless it was exported without the check, a process must have been named by SetImportPid before
 * it can import.  Waiters of other processes are woken by a futex on the value.
 *
 * Thread rule: any thread; a notify is shared once and stays so. */
#include "notify.h"
#include "exports.h"
#include "stream.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { KEY_BYTES = 65, PIDS_MAX = 64, LOOK_MS = 20 };

/* What processes share. */
typedef struct SharedPart {
    _Atomic uint32_t value;
    uint32_t open_to_all;
    _Atomic uint32_t pid_count;
    int32_t pids[PIDS_MAX];
} SharedPart;

typedef struct SharedNotify {
    SharedPart *part;
    char name[KEY_BYTES];
    bool is_owner;
} SharedNotify;

static _Atomic uint32_t next_key;

static SharedPart *part_open(const char *name, int flags)
{
    int file = shm_open(name, flags, 0600);
    if (file < 0) {
        return NULL;
    }
    bool sized = (flags & O_CREAT) == 0 || ftruncate(file, sizeof(SharedPart)) == 0;
    void *part = sized ? mmap(NULL, sizeof(SharedPart), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                       : MAP_FAILED;
    close(file);
    return part != MAP_FAILED ? part : NULL;
}

static bool notify_share(Notify *notify, SharedPart *part, const char *name, bool is_owner)
{
    SharedNotify *shared = malloc(sizeof *shared);
    if (shared == NULL) {
        munmap(part, sizeof *part);
        return false;
    }
    shared->part = part;
    shared->is_owner = is_owner;
    snprintf(shared->name, sizeof shared->name, "%s", name);
    atomic_store(&notify->shared, shared);
    notify->value = &part->value;
    return true;
}

void notify_unshare(Notify *notify)
{
    SharedNotify *shared = atomic_load(&notify->shared);
    if (shared == NULL) {
        return;
    }
    if (shared->is_owner) {
        shm_unlink(shared->name);
    }
    munmap(shared->part, sizeof *shared->part);
    free(shared);
    atomic_store(&notify->shared, NULL);
}

void notify_wake(Notify *notify)
{
    if (atomic_load(&notify->shared) != NULL) {
        syscall(SYS_futex, (void *)notify->value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
    park_wake(notify);
}

/* Looks again at least every LOOK_MS, so that an abort of the stream is seen. */
bool notify_park(Stream *stream, Notify *notify, ParkReady ready, const void *argument,
                 int64_t deadline_ns)
{
    if (atomic_load(&notify->shared) == NULL) {
        return stream_park(stream, notify, ready, argument, deadline_ns);
    }
    const struct timespec look = {0, LOOK_MS * 1000000};
    for (;;) {
        uint32_t seen = atomic_load(notify->value);
        if (ready(argument)) {
            return true;
        }
        if (stream_is_dropping(stream) || (deadline_ns >= 0 && now_ns() >= deadline_ns)) {
            return false;
        }
        syscall(SYS_futex, (void *)notify->value, FUTEX_WAIT, seen, &look, NULL, 0);
    }
}

aclError sim_aclrtNotifyGetExportKey(aclrtNotify notify, char *key, size_t len, uint64_t flags)
{
    Notify *resolved;
    char name[KEY_BYTES];
    REQUIRE(notify != NULL);
    REQUIRE(key != NULL);
    REQUIRE_RT(len != 0);
    REQUIRE_RT(flags == ACL_RT_NOTIFY_EXPORT_FLAG_DEFAULT
               || flags == ACL_RT_NOTIFY_EXPORT_FLAG_DISABLE_PID_VALIDATION);
    TRY(notify_resolve(notify, &resolved));
    REQUIRE_RT(len >= KEY_BYTES);
    const SharedNotify *shared = atomic_load(&resolved->shared);
    if (shared != NULL) {
        memcpy(key, shared->name, KEY_BYTES);
        return ACL_SUCCESS;
    }
    memset(name, 0, sizeof name);
    snprintf(name, sizeof name, "/acl_sim_notify_%d_%u", (int)getpid(),
             atomic_fetch_add(&next_key, 1));
    SharedPart *part = part_open(name, O_CREAT | O_EXCL | O_RDWR);
    if (part == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no shared memory for the notify");
    }
    part->open_to_all = flags != ACL_RT_NOTIFY_EXPORT_FLAG_DEFAULT;
    atomic_store(&part->value, atomic_load(resolved->value));
    if (!notify_share(resolved, part, name, true)) {
        shm_unlink(name);
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many shared notifies");
    }
    memcpy(key, name, KEY_BYTES);
    return ACL_SUCCESS;
}

static bool import_is_allowed(const SharedPart *part)
{
    uint32_t count = atomic_load(&part->pid_count);
    if (part->open_to_all != 0) {
        return true;
    }
    for (uint32_t i = 0; i < count && i < PIDS_MAX; i++) {
        if (part->pids[i] == (int32_t)getpid()) {
            return true;
        }
    }
    return false;
}

aclError sim_aclrtNotifyImportByKey(aclrtNotify *notify, const char *key, uint64_t flags)
{
    Notify *made;
    REQUIRE(notify != NULL);
    REQUIRE(key != NULL);
    REQUIRE_RT(flags == ACL_RT_NOTIFY_IMPORT_FLAG_DEFAULT
               || flags == ACL_RT_NOTIFY_IMPORT_FLAG_ENABLE_PEER_ACCESS);
    SharedPart *part = strncmp(key, "/acl_sim_notify_", 16) == 0 ? part_open(key, O_RDWR) : NULL;
    if (part == NULL) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "no notify was exported under that key");
    }
    if (!import_is_allowed(part)) {
        munmap(part, sizeof *part);
        return fail(ACL_ERROR_RT_NO_PERMISSION, "process %d is not named by SetImportPid",
                    (int)getpid());
    }
    aclError status = notify_create(notify, HANDLE_NOTIFY);
    if (status != ACL_SUCCESS) {
        munmap(part, sizeof *part);
        return status;
    }
    made = *notify;
    return notify_share(made, part, key, false)
               ? ACL_SUCCESS
               : fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many shared notifies");
}

static aclError pids_allow(aclrtNotify notify, const int32_t *pids, size_t count)
{
    Notify *resolved;
    TRY(notify_resolve(notify, &resolved));
    SharedNotify *shared = atomic_load(&resolved->shared);
    if (shared == NULL) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "the notify was not exported");
    }
    uint32_t have = atomic_load(&shared->part->pid_count);
    REQUIRE_RT(count <= PIDS_MAX - have);
    for (size_t i = 0; i < count; i++) {
        shared->part->pids[have + i] = pids[i];
    }
    atomic_store(&shared->part->pid_count, have + (uint32_t)count);
    return ACL_SUCCESS;
}

aclError sim_aclrtNotifySetImportPid(aclrtNotify notify, int32_t *pid, size_t num)
{
    REQUIRE(notify != NULL);
    REQUIRE(pid != NULL);
    REQUIRE_RT(num != 0);
    return pids_allow(notify, pid, num);
}

aclError sim_aclrtNotifySetImportPidInterServer(aclrtNotify notify, aclrtServerPid *serverPids,
                                                size_t num)
{
    REQUIRE_RT(notify != NULL);
    REQUIRE_RT(serverPids != NULL);
    REQUIRE_RT(num != 0);
    for (size_t i = 0; i < num; i++) {
        REQUIRE_RT(serverPids[i].pid != NULL);
        TRY(pids_allow(notify, serverPids[i].pid, serverPids[i].num));
    }
    return ACL_SUCCESS;
}
