/* Waiting until another thread makes a condition true, or a deadline passes.
 *
 * Waiting threads are kept in buckets of a hash table, chosen by the address of a key. A waiting
 * thread adds itself to a bucket and then checks the condition. A waking thread makes the
 * condition true and then looks for waiting threads. Both threads have a sequentially consistent
 * fence between their two steps, so at least one of them sees the first step of the other, and no
 * wakeup is lost. Only the threads that wait for the key are woken.
 *
 * Thread rule: any thread. If no thread waits, waking costs one fence and one load. */
#include "base/core.h"
#include "base/fork.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BUCKET_BITS = 12, BUCKETS = 1 << BUCKET_BITS, SPINS_MIN = 16, SPINS_MAX = 1024 };

/* A waiting thread; the struct lies on the stack of this thread. */
typedef struct Waiter {
    const void *key;
    _Atomic uint32_t woken; /* the futex on which the thread sleeps; 1: another thread has woken it */
    struct Waiter *next, **link;
} Waiter;

typedef struct Bucket {
    _Alignas(64) pthread_mutex_t lock;
    Waiter *first;
    atomic_int waiters;
} Bucket;

static Bucket buckets[BUCKETS];
static _Thread_local int patience = 256; /* checks of the condition before the thread sleeps; adapted by spin_until */

__attribute__((constructor(102))) static void buckets_make(void)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        pthread_mutex_init(&buckets[i].lock, NULL);
    }
}

void park_forked(void)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        buckets[i].first = NULL;
        atomic_store(&buckets[i].waiters, 0);
    }
    buckets_make();
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
    return &buckets[mixed >> (64 - BUCKET_BITS)];
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Checks the condition at most `patience` times; true if it became true. The condition is often set by
 * a task of a microsecond on another core. Success increases `patience`. Failure, for example with more
 * threads than cores, halves it, so that the thread soon sleeps almost at once. */
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

/* Executes a sequentially consistent fence. ThreadSanitizer does not support fences; in its builds an atomic
 * read-modify-write operation replaces the fence. */
static void fence(Bucket *bucket)
{
#ifdef __SANITIZE_THREAD__
    atomic_fetch_add(&bucket->waiters, 0);
#else
    (void)bucket;
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

static void waiter_enter(Bucket *bucket, Waiter *waiter)
{
    pthread_mutex_lock(&bucket->lock);
    waiter->next = bucket->first;
    waiter->link = &bucket->first;
    if (waiter->next != NULL) {
        waiter->next->link = &waiter->next;
    }
    bucket->first = waiter;
    atomic_fetch_add(&bucket->waiters, 1);
    pthread_mutex_unlock(&bucket->lock);
    fence(bucket);
}

static void waiter_leave(Bucket *bucket, Waiter *waiter)
{
    pthread_mutex_lock(&bucket->lock);
    *waiter->link = waiter->next;
    if (waiter->next != NULL) {
        waiter->next->link = waiter->link;
    }
    atomic_fetch_sub(&bucket->waiters, 1);
    pthread_mutex_unlock(&bucket->lock);
}

/* Sleeps until another thread sets `woken`. False only if the deadline has passed; true also after a
 * spurious wakeup. */
static bool waiter_sleep(Waiter *waiter, int64_t deadline_ns)
{
    struct timespec until = {(time_t)(deadline_ns / 1000000000), (long)(deadline_ns % 1000000000)};
    long done = syscall(SYS_futex, &waiter->woken, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0,
                        deadline_ns < 0 ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
    return done == 0 || errno != ETIMEDOUT;
}

static bool wait_until(const void *key, ParkReady ready, const void *argument, int64_t deadline_ns)
{
    if (ready(argument) || spin_until(ready, argument)) {
        return true;
    }
    Bucket *bucket = bucket_of(key);
    Waiter waiter = {.key = key};
    bool done = false, in_time = true;
    waiter_enter(bucket, &waiter);
    for (;;) {
        atomic_store(&waiter.woken, 0); /* stored before the check, so that a change after the check wakes this
                                           thread */
        done = ready(argument);
        if (done || !in_time) {
            break;
        }
        in_time = waiter_sleep(&waiter, deadline_ns);
    }
    waiter_leave(bucket, &waiter);
    return done;
}

bool park_wait(const void *key, ParkReady ready, const void *argument, int64_t deadline_ns)
{
    bool done = wait_until(key, ready, argument, deadline_ns);
    if (done) {
        order_acquire(key);
    }
    return done;
}

void park_wake(const void *key)
{
    Bucket *bucket = bucket_of(key);
    fence(bucket);
    if (atomic_load_explicit(&bucket->waiters, memory_order_relaxed) == 0) {
        return;
    }
    pthread_mutex_lock(&bucket->lock); /* while it is held, no waiting thread can return and free its Waiter */
    for (Waiter *waiter = bucket->first; waiter != NULL; waiter = waiter->next) {
        if (waiter->key == key && atomic_exchange(&waiter->woken, 1) == 0) {
            syscall(SYS_futex, &waiter->woken, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
        }
    }
    pthread_mutex_unlock(&bucket->lock);
}
