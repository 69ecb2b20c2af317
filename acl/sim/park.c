/* Waiting: until a condition that some other thread makes true holds, or a deadline passes.
 *
 * Waiters are kept in buckets chosen by a key's address, as in a futex: the waiter counts itself
 * in, then looks; the waker makes the condition true, then looks for waiters.  One of the two sees
 * the other, because both sides put a sequentially consistent fence between their two steps.
 *
 * Thread rule: any thread.  A waker with nobody waiting pays one fence and one load. */
#include "core.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

enum { BUCKETS = 128, SPINS_MIN = 16, SPINS_MAX = 1024 };

typedef struct Bucket {
    _Alignas(64) pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_int waiters;
} Bucket;

static Bucket buckets[BUCKETS];
static _Thread_local int patience = 256; /* looks before sleeping: grows where looking helps */

__attribute__((constructor(102))) static void buckets_make(void)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    for (size_t i = 0; i < BUCKETS; i++) {
        pthread_mutex_init(&buckets[i].lock, NULL);
        pthread_cond_init(&buckets[i].changed, &clock);
    }
    pthread_condattr_destroy(&clock);
}

int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t deadline_after_ms(int32_t timeout_ms)
{
    return timeout_ms < 0 ? FOREVER : now_ns() + (int64_t)timeout_ms * 1000000;
}

static Bucket *bucket_of(const void *key)
{
    uint64_t mixed = (uint64_t)(uintptr_t)key * UINT64_C(0x9E3779B97F4A7C15);
    return &buckets[mixed >> 57];
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Looks for a while: what is waited for is often a task of a microsecond on another core.  Where
 * that does not pay (more threads than cores), the thread learns to sleep at once. */
static bool spin_until(ParkReady ready, const void *argument)
{
    for (int i = 0; i < patience; i++) {
        if (ready(argument)) {
            patience = patience < SPINS_MAX ? patience + patience / 4 : SPINS_MAX;
            return true;
        }
        pause_cpu();
    }
    patience = patience > SPINS_MIN ? patience / 2 : SPINS_MIN;
    return false;
}

bool park_wait(const void *key, ParkReady ready, const void *argument, int64_t deadline_ns)
{
    if (ready(argument) || spin_until(ready, argument)) {
        return true;
    }
    Bucket *bucket = bucket_of(key);
    struct timespec until = {(time_t)(deadline_ns / 1000000000), (long)(deadline_ns % 1000000000)};
    bool done = false;
    int waited = 0;
    pthread_mutex_lock(&bucket->lock);
    atomic_fetch_add(&bucket->waiters, 1);
    atomic_thread_fence(memory_order_seq_cst);
    while (!(done = ready(argument)) && waited != ETIMEDOUT) {
        if (deadline_ns < 0) {
            pthread_cond_wait(&bucket->changed, &bucket->lock);
        } else {
            waited = pthread_cond_timedwait(&bucket->changed, &bucket->lock, &until);
        }
    }
    atomic_fetch_sub(&bucket->waiters, 1);
    pthread_mutex_unlock(&bucket->lock);
    return done;
}

void park_wake(const void *key)
{
    Bucket *bucket = bucket_of(key);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&bucket->waiters, memory_order_relaxed) == 0) {
        return;
    }
    /* Once the lock was had, a waiter that counted itself in sleeps or will see the change. */
    pthread_mutex_lock(&bucket->lock);
    pthread_mutex_unlock(&bucket->lock);
    pthread_cond_broadcast(&bucket->changed);
}
