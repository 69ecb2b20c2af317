/* Notifies between processes: the value moves into a file in memory that the key names.
 *
 * A key names a process, its descriptor and a random number. Importers open the file through /proc,
 * which works as long as the exporter lives and has the notify; after that they keep their mapping.
 * When the last process with the notify has died, nothing of it remains. A process can import only
 * after SetImportPid has named it, unless the key was exported without this check. Waiters of other
 * processes are woken by a futex on the value.
 *
 * Thread rule: any thread; a notify becomes shared once, under its lock, and stays shared. */
#include "streams/notify.h"
#include "generated/exports.h"
#include "base/process.h"
#include "base/refusal.h"
#include "streams/stream.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { KEY_BYTES = 65, PIDS_MAX = 64, LOOK_MS = 20 };
static const char KEY_FORMAT[] = "acl-sim-notify-%d-%d-%016llx";

/* The memory that processes share. */
typedef struct SharedPart {
    _Atomic uint32_t value;
    uint32_t open_to_all;
    _Atomic uint64_t token; /* 0 until the other fields are set */
    _Atomic uint32_t pid_count;
    int32_t pids[PIDS_MAX];
} SharedPart;

typedef struct SharedNotify {
    SharedPart *part;
    char key[KEY_BYTES];
    int file; /* descriptor of the file; -1 if the notify was imported */
} SharedNotify;

static SharedPart *part_map(int file)
{
    struct stat status;
    if (fstat(file, &status) != 0 || status.st_size != (off_t)sizeof(SharedPart)) {
        return NULL;
    }
    void *part = mmap(NULL, sizeof(SharedPart), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return part != MAP_FAILED ? part : NULL;
}

static void part_drop(SharedNotify *shared)
{
    if (shared->part != NULL) {
        munmap(shared->part, sizeof *shared->part);
    }
    if (shared->file >= 0) {
        close(shared->file);
    }
    free(shared);
}

/* Moves the value to the shared memory; the notify's lock is held. */
static void notify_share(Notify *notify, SharedNotify *shared)
{
    notify->value = &shared->part->value;
    atomic_store(&notify->shared, shared);
}

void notify_unshare(Notify *notify)
{
    SharedNotify *shared = atomic_load(&notify->shared);
    if (shared != NULL) {
        notify->value = &notify->own_value;
        atomic_store(&notify->shared, NULL);
        part_drop(shared);
    }
}

void notify_wake(Notify *notify)
{
    if (atomic_load(&notify->shared) != NULL) {
        syscall(SYS_futex, (void *)notify->value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
    park_wake(notify);
}

/* A wait for the value in this process's own memory. It also ends when the notify becomes shared:
 * then shared_park continues it. */
typedef struct LocalWait {
    Notify *notify;
    ParkReady ready;
    const void *argument;
    bool reached;
} LocalWait;

static bool local_is_over(const void *argument)
{
    LocalWait *wait = (LocalWait *)(uintptr_t)argument;
    wait->reached = wait->ready(wait->argument);
    return wait->reached || atomic_load(&wait->notify->shared) != NULL;
}

/* Waits in slices of at most LOOK_MS, so that an abort of the stream is noticed. */
static bool shared_park(Stream *stream, Notify *notify, ParkReady ready, const void *argument,
                        int64_t deadline_ns)
{
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

bool notify_park(Stream *stream, Notify *notify, ParkReady ready, const void *argument,
                 int64_t deadline_ns)
{
    LocalWait wait = {notify, ready, argument, false};
    stream_park(stream, notify, local_is_over, &wait, deadline_ns);
    return wait.reached || (atomic_load(&notify->shared) != NULL
                            && shared_park(stream, notify, ready, argument, deadline_ns));
}

/* ---- exporting ------------------------------------------------------------------------------- */

static SharedNotify *part_make(bool open_to_all)
{
    SharedNotify *made = calloc(1, sizeof *made);
    uint64_t token;
    if (made == NULL) {
        return NULL;
    }
    made->file = file_in_memory("acl-sim-notify", sizeof(SharedPart));
    made->part = made->file >= 0 ? part_map(made->file) : NULL;
    if (made->part == NULL) {
        part_drop(made);
        return NULL;
    }
    if (getrandom(&token, sizeof token, 0) != (ssize_t)sizeof token || token == 0) {
        token = (uint64_t)now_ns();
    }
    snprintf(made->key, sizeof made->key, KEY_FORMAT, (int)getpid(), made->file,
             (unsigned long long)token);
    made->part->open_to_all = open_to_all;
    atomic_store(&made->part->token, token);
    return made;
}

aclError sim_aclrtNotifyGetExportKey(aclrtNotify notify, char *key, size_t len, uint64_t flags)
{
    NOTIFY_REF(resolved);
    REQUIRE(notify != NULL);
    REQUIRE(key != NULL);
    TRY(notify_resolve(notify, &resolved));
    REQUIRE_RT(flags == ACL_RT_NOTIFY_EXPORT_FLAG_DEFAULT
               || flags == ACL_RT_NOTIFY_EXPORT_FLAG_DISABLE_PID_VALIDATION);
    REQUIRE_RT(len >= KEY_BYTES);
    pthread_mutex_lock(&resolved->lock);
    SharedNotify *shared = atomic_load(&resolved->shared);
    if (shared == NULL) {
        shared = part_make(flags != ACL_RT_NOTIFY_EXPORT_FLAG_DEFAULT);
        if (shared != NULL) {
            atomic_store(&shared->part->value, atomic_load(resolved->value));
            notify_share(resolved, shared);
        }
    }
    if (shared != NULL) {
        memcpy(key, shared->key, KEY_BYTES);
    }
    pthread_mutex_unlock(&resolved->lock);
    park_wake(resolved); /* waiting threads continue in shared_park, where other processes can wake them */
    return shared != NULL ? ACL_SUCCESS
                          : fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL,
                                 "no shared memory for the notify: %s", strerror(errno));
}

/* ---- importing ------------------------------------------------------------------------------- */

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

/* Maps the shared memory that the key names; NULL if that notify does not exist (any more). */
static SharedNotify *part_import(const char *key)
{
    int pid, descriptor;
    unsigned long long token;
    char again[KEY_BYTES];
    if (sscanf(key, "acl-sim-notify-%d-%d-%16llx", &pid, &descriptor, &token) != 3) {
        return NULL;
    }
    snprintf(again, sizeof again, KEY_FORMAT, pid, descriptor, token);
    int file = strcmp(key, again) == 0 ? process_file(pid, descriptor) : -1;
    SharedNotify *made = file >= 0 ? calloc(1, sizeof *made) : NULL;
    if (made != NULL) {
        made->file = -1;
        made->part = part_map(file);
        memcpy(made->key, again, sizeof made->key);
    }
    if (file >= 0) {
        close(file);
    }
    if (made != NULL && (made->part == NULL || atomic_load(&made->part->token) != token)) {
        part_drop(made);
        made = NULL;
    }
    return made;
}

aclError sim_aclrtNotifyImportByKey(aclrtNotify *notify, const char *key, uint64_t flags)
{
    Notify *made;
    REQUIRE(notify != NULL);
    REQUIRE(key != NULL);
    REQUIRE_RT(flags == ACL_RT_NOTIFY_IMPORT_FLAG_DEFAULT
               || flags == ACL_RT_NOTIFY_IMPORT_FLAG_ENABLE_PEER_ACCESS);
    SharedNotify *shared = part_import(key);
    if (shared == NULL) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "no notify was exported under that key");
    }
    if (!import_is_allowed(shared->part)) {
        part_drop(shared);
        return fail(ACL_ERROR_RT_NO_PERMISSION, "process %d may not import the notify: the exporter must allow it by "
                    "aclrtNotifySetImportPid",
                    (int)getpid());
    }
    aclError status = notify_create(notify, HANDLE_NOTIFY);
    if (status != ACL_SUCCESS) {
        part_drop(shared);
        return status;
    }
    made = *notify;
    pthread_mutex_lock(&made->lock);
    notify_share(made, shared);
    pthread_mutex_unlock(&made->lock);
    return ACL_SUCCESS;
}

static aclError pids_allow(aclrtNotify notify, const int32_t *pids, size_t count)
{
    NOTIFY_REF(resolved);
    TRY(notify_resolve(notify, &resolved));
    SharedNotify *shared = atomic_load(&resolved->shared);
    if (shared == NULL) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "the notify was not exported");
    }
    pthread_mutex_lock(&resolved->lock);
    uint32_t have = atomic_load(&shared->part->pid_count);
    bool fit = have <= PIDS_MAX && count <= PIDS_MAX - have;
    for (size_t i = 0; fit && i < count; i++) {
        shared->part->pids[have + i] = pids[i];
    }
    if (fit) {
        atomic_store(&shared->part->pid_count, have + (uint32_t)count);
    }
    pthread_mutex_unlock(&resolved->lock);
    REQUIRE_RT(fit);
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
