/* Forks. A child has inherited the mappings of device memory, so its writes would change its parent's memory.
 *
 * If the parent uses a device, or holds device memory, every call in the child fails.  Otherwise the child
 * begins as a new process does.
 *
 * Thread rule: the child of a fork has one thread.  A fork waits until no thread holds a lock made by FILE_LOCK, for
 * PATIENCE_NS at most.  In a child whose calls do not fail, the data that other locks guard is reset. */
#include "base/fork.h"
#include "memory/accounting.h"
#include "streams/device.h"

#include <pthread.h>
#include <time.h>

enum { PATIENCE_NS = 50 * 1000000, SECOND_NS = 1000000000 };

extern pthread_mutex_t *const __start_sim_locks[] __attribute__((visibility("hidden")));
extern pthread_mutex_t *const __stop_sim_locks[] __attribute__((visibility("hidden")));
static _Thread_local bool locks_are_taken; /* the fork in this thread holds all locks */

static size_t locks_count(void)
{
    return (size_t)(__stop_sim_locks - __start_sim_locks);
}

/* Unlocks the locks before index `end`, and the lock at index `waited`. */
static void locks_give(size_t end, size_t waited)
{
    for (size_t i = 0; i < locks_count(); i++) {
        if (i < end || i == waited) {
            pthread_mutex_unlock(__start_sim_locks[i]);
        }
    }
}

/* Tries to take all locks except the one at index `waited`, which the caller holds. Returns SIZE_MAX if it could; else
 * unlocks all locks and returns the index of a lock that another thread holds. */
static size_t locks_try(size_t waited)
{
    for (size_t i = 0; i < locks_count(); i++) {
        if (i != waited && pthread_mutex_trylock(__start_sim_locks[i]) != 0) {
            locks_give(i, waited);
            return i;
        }
    }
    return SIZE_MAX;
}

/* Takes all locks. Waits for a lock only while it holds no other, because threads take these locks in any order.
 * If this takes longer than PATIENCE_NS, the fork proceeds without the locks: the child then initialises them anew, and
 * the data that they guard may be inconsistent. */
static void fork_prepare(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PATIENCE_NS;
    until.tv_sec += until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    locks_are_taken = false;
    for (size_t next = 0;
         next != SIZE_MAX && pthread_mutex_timedlock(__start_sim_locks[next], &until) == 0;) {
        next = locks_try(next);
        locks_are_taken = next == SIZE_MAX;
    }
    handles_fork_begins();
}

static void fork_in_parent(void)
{
    handles_fork_ends();
    if (locks_are_taken) {
        locks_give(locks_count(), SIZE_MAX);
    }
    locks_are_taken = false;
}

static void locks_forked(void)
{
    for (size_t i = 0; i < locks_count(); i++) {
        pthread_mutex_init(__start_sim_locks[i], NULL);
    }
    locks_are_taken = false;
}

/* True if this process has memory of a device. Memory may exist while devices_in_use is false, because physical handles
 * and memory pools outlive their context. */
static bool devices_hold_memory(void)
{
    BookView view;
    for (int32_t device = 0; device < DEVICE_MAX; device++) {
        books_view(device, &view);
        if (view.total != 0) {
            return true;
        }
    }
    return handle_live(HANDLE_PHYSICAL) != 0;
}

static void fork_in_child(void)
{
    handles_fork_ends();
    locks_forked();
    park_forked();
    neighbours_forked();
    if (devices_in_use() || devices_hold_memory()) {
        atomic_fetch_or(&gate_watch, GATE_FORKED);
        return;
    }
    host_threads_forked();
    reports_forked();
    arenas_forked();
    backings_forked();
    shares_forked();
    exports_forked();
    graphs_forked();
}

__attribute__((constructor(104))) static void fork_watch(void)
{
    pthread_atfork(fork_prepare, fork_in_parent, fork_in_child);
}
