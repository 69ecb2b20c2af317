/* Forks: a child that shares devices with its parent by accident would write into its memory.
 *
 * A child of a process that uses a device, or holds device memory, is refused every call.  Any other
 * begins as a new process does.
 *
 * Thread rule: the child of a fork has one thread.  A fork waits until no thread is inside a file's lock;
 * what is guarded by other locks is made anew in the child, or the child is refused. */
#include "base/fork.h"
#include "memory/accounting.h"
#include "streams/device.h"

#include <pthread.h>
#include <time.h>

enum { PATIENCE_NS = 50 * 1000000, SECOND_NS = 1000000000 };

extern pthread_mutex_t *const __start_sim_locks[] __attribute__((visibility("hidden")));
extern pthread_mutex_t *const __stop_sim_locks[] __attribute__((visibility("hidden")));
static _Thread_local bool locks_are_taken; /* by the fork of this thread */

static size_t locks_count(void)
{
    return (size_t)(__stop_sim_locks - __start_sim_locks);
}

/* Those before `end`, and the one at `waited`. */
static void locks_give(size_t end, size_t waited)
{
    for (size_t i = 0; i < locks_count(); i++) {
        if (i < end || i == waited) {
            pthread_mutex_unlock(__start_sim_locks[i]);
        }
    }
}

/* Takes the others if none is taken; else gives the one at `waited` back, too, and says which it was. */
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

/* Waits for one lock at a time and takes the others with it, or none, as other threads take them in
 * orders of their own.  A thread that keeps one for long does not hold up the fork: then the locks are
 * made anew, and what they guard is as it was. */
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

/* Memory outlives its context: physical handles, pools. */
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
