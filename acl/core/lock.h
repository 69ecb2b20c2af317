/* The arena's lock, biased towards one thread, and a small spin lock.

   A biased lock costs its owner two plain stores: no atomic read-modify-write, no fence.  Another
   thread revokes the bias: it clears `owner`, has the kernel run a memory barrier on every CPU of
   the process (membarrier), and waits until `busy` is 0.  Either the owner's store to `busy` came
   before that barrier, and the revoker sees it; or its second look at `owner` comes after it, and
   it backs off.  Where the kernel refuses membarrier no lock is ever biased.

   After a revocation the lock is a spin lock.  A thread that takes it many times in a row without
   meeting anybody becomes its owner; each revocation doubles how many times that is, until the spin
   lock has cost as much as a revocation does (1 to 12 us, 3 ns each time).  Who meets somebody waits
   longer before it looks again, up to 6 us where meetings go on: each look takes the cache line, and
   what the section touches follows it from core to core, 50 to 200 ns a line.  A thread may
   be stopped between its first look at `owner` and its store to `busy`, for as long as the scheduler
   likes, so a `busy` word belongs to one thread for ever (a LockSeat): a late store never falls
   into another owner's word.  When all seats are taken, other threads stay with the spin lock.

   A thread that must look at something of its own in each section, for a while, steps down first,
   which costs no barrier, and `may_own` says no until the end of that.

   Not recursive.  Sections are a few hundred instructions; nobody sleeps in one.  ThreadSanitizer
   cannot model the process-wide barrier: under it (LOCK_NO_BIAS) only the spin lock is left, and
   tests/c/core_lock.c covers the rest: a litmus test, and a thread that is stopped at LOCK_LOOKED. */
#ifndef ACL_CORE_LOCK_H
#define ACL_CORE_LOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <sched.h>

#if defined(__SANITIZE_THREAD__) && !defined(LOCK_NO_BIAS)
#define LOCK_NO_BIAS 1
#endif

/* Tests stop a thread here: it has seen that it is the owner, and not yet said that it is inside. */
#ifndef LOCK_LOOKED
#define LOCK_LOOKED() ((void)0)
#endif

enum { LOCK_FIRST_STREAK = 8, LOCK_LAST_STREAK = 1 << 12, LOCK_SPINS = 64, LOCK_FIRST_PAUSES = 4,
       LOCK_LAST_PAUSES = 1 << 8, LOCK_SEATS = 16 };

typedef struct SpinLock {
    uint32_t word; /* 0 open, 1 taken */
} SpinLock;

typedef struct LockSeat {
    void *owner;   /* the thread, while it may enter by `busy` alone; else NULL */
    void *thread;  /* the only one that ever writes `busy`; set once, under `spin` */
    uint32_t busy;
} LockSeat;

typedef struct BiasedLock {
    LockSeat *seat;  /* of the last owner; never NULL */
    LockSeat seats[LOCK_SEATS];
    SpinLock spin;   /* what everybody else takes */
    void *last;      /* who took `spin` last; this and all below are under `spin` */
    uint32_t streak; /* times in a row that `last` took it unmet */
    uint32_t wanted; /* streak that makes an owner */
    uint32_t pinned; /* no owner while it is not 0 */
    uint32_t revocations;
    uint32_t pauses; /* before a second look at `spin`: more each time that somebody was met */
    uint32_t biased; /* how `lock_take` got in; under the lock */
    int (*may_own)(void); /* whether the calling thread may be the owner; NULL: any may */
} BiasedLock;

bool lock_bias_available(void); /* asks the kernel once */
void lock_barrier(void);        /* a full memory barrier in every running thread of the process */

/* The thread, by the word in which the ABI keeps its pointer.  Every module of the process must find the same
   one, so no variable of a file will do. */
static inline void *lock_self(void) {
#if defined(__x86_64__)
    void *self;
    __asm__("mov %%fs:0, %0" : "=r"(self));
    return self;
#elif defined(__aarch64__)
    void *self;
    __asm__("mrs %0, tpidr_el0" : "=r"(self));
    return self;
#else
    return (void *)pthread_self();
#endif
}

static inline void lock_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline bool spin_try(SpinLock *lock) {
    return __atomic_load_n(&lock->word, __ATOMIC_RELAXED) == 0 &&
           __atomic_exchange_n(&lock->word, 1, __ATOMIC_ACQUIRE) == 0;
}

/* Takes the lock; true if somebody else held it.  Who waits looks less and less often, first after so
   many pauses. */
static inline bool spin_enter_after(SpinLock *lock, unsigned pauses) {
    if (spin_try(lock)) {
        return false;
    }
    for (;;) {
        for (unsigned pause = 0; pause < pauses; pause++) {
            lock_pause();
        }
        if (spin_try(lock)) {
            return true;
        }
        if (pauses < LOCK_SPINS) {
            pauses *= 2;
        } else {
            sched_yield();
        }
    }
}

static inline bool spin_enter(SpinLock *lock) {
    return spin_enter_after(lock, LOCK_FIRST_PAUSES);
}

static inline void spin_leave(SpinLock *lock) {
    __atomic_store_n(&lock->word, 0, __ATOMIC_RELEASE);
}

/* The owner's way in.  False: not the owner, or not any more; then lock_enter. */
static inline bool lock_enter_biased(BiasedLock *lock) {
#ifdef LOCK_NO_BIAS
    (void)lock;
    return false;
#else
    void *self = lock_self();
    LockSeat *seat = __atomic_load_n(&lock->seat, __ATOMIC_RELAXED);
    if (__builtin_expect(__atomic_load_n(&seat->owner, __ATOMIC_RELAXED) != self, 0)) {
        return false;
    }
    LOCK_LOOKED();
    __atomic_store_n(&seat->busy, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__builtin_expect(__atomic_load_n(&seat->owner, __ATOMIC_RELAXED) != self, 0)) {
        __atomic_store_n(&seat->busy, 0, __ATOMIC_RELEASE);
        return false;
    }
    return true;
#endif
}

/* The seat cannot have changed: who changes it waits for `busy` first. */
static inline void lock_leave_biased(BiasedLock *lock) {
    __atomic_store_n(&__atomic_load_n(&lock->seat, __ATOMIC_RELAXED)->busy, 0, __ATOMIC_RELEASE);
}

/* Ends the bias, if there is one.  The caller holds `spin`. */
static inline void lock_revoke(BiasedLock *lock) {
    LockSeat *seat = lock->seat;
    if (__atomic_load_n(&seat->owner, __ATOMIC_RELAXED) == NULL) {
        return;
    }
    __atomic_store_n(&seat->owner, NULL, __ATOMIC_RELAXED);
    lock_barrier();
    for (unsigned turn = 0; __atomic_load_n(&seat->busy, __ATOMIC_ACQUIRE) != 0; turn++) {
        lock_pause();
        if (turn > LOCK_SPINS) {
            sched_yield();
        }
    }
    lock->revocations++;
    lock->streak = 0;
    if (lock->wanted < LOCK_LAST_STREAK) {
        lock->wanted *= 2;
    }
}

/* Takes the lock from any thread; the section ends with lock_leave. */
static inline void lock_enter(BiasedLock *lock) {
    bool met = spin_enter_after(&lock->spin, __atomic_load_n(&lock->pauses, __ATOMIC_RELAXED));
    void *self = lock_self();
    lock_revoke(lock);
    if (met && lock->pauses < LOCK_LAST_PAUSES) {
        __atomic_store_n(&lock->pauses, lock->pauses * 2, __ATOMIC_RELAXED);
    }
    if (lock->last != self || met) {
        lock->last = self;
        lock->streak = 0;
    }
}

/* Makes a thread the owner, if it has a seat or one is left.  The caller holds `spin`. */
static inline void lock_bias(BiasedLock *lock, void *thread) {
    for (unsigned i = 0; i < LOCK_SEATS; i++) {
        LockSeat *seat = &lock->seats[i];
        if (seat->thread == NULL || seat->thread == thread) {
            seat->thread = thread;
            __atomic_store_n(&lock->seat, seat, __ATOMIC_RELAXED);
            __atomic_store_n(&seat->owner, thread, __ATOMIC_RELAXED);
            return;
        }
    }
}

static inline void lock_leave(BiasedLock *lock) {
    if (lock->streak++ >= lock->wanted) {
        __atomic_store_n(&lock->pauses, LOCK_FIRST_PAUSES, __ATOMIC_RELAXED);
#ifndef LOCK_NO_BIAS
        if (lock->pinned == 0 && lock_bias_available()) {
            if (lock->may_own == NULL || lock->may_own()) {
                lock_bias(lock, lock->last);
            }
            lock->streak = 0;
        }
#endif
    }
    spin_leave(&lock->spin);
}

/* The calling thread, which is in no section, is not the owner from here on.  Nobody but itself could
   be inside by its seat, so there is nothing to wait for.  Once it may it becomes the owner as
   any thread does, and at its next section if it was in none since. */
static inline void lock_step_down(BiasedLock *lock) {
    void *self = lock_self();
    LockSeat *seat = __atomic_load_n(&lock->seat, __ATOMIC_RELAXED);
    if (__atomic_load_n(&seat->owner, __ATOMIC_RELAXED) != self) {
        return;
    }
    spin_enter(&lock->spin);
    if (__atomic_load_n(&lock->seat->owner, __ATOMIC_RELAXED) == self) {
        __atomic_store_n(&lock->seat->owner, NULL, __ATOMIC_RELAXED);
        lock->last = self;
        lock->streak = lock->wanted;
    }
    spin_leave(&lock->spin);
}

/* For sections that unlock half-way: whichever way in is open, and out by the same. */
static inline void lock_take(BiasedLock *lock) {
    if (lock_enter_biased(lock)) {
        lock->biased = 1;
        return;
    }
    lock_enter(lock);
    lock->biased = 0;
}

static inline void lock_drop(BiasedLock *lock) {
    if (lock->biased) {
        lock_leave_biased(lock);
    } else {
        lock_leave(lock);
    }
}

/* A number that another thread may be changing, where a stale one does no harm. */
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread"), noinline, unused)) static size_t
#else
static inline size_t
#endif
stale_read(const size_t *where) {
    return __atomic_load_n(where, __ATOMIC_RELAXED);
}

/* The length of a list that is only appended to: what lies below it is seen complete. */
static inline uint32_t count_read(const uint32_t *where) {
    return __atomic_load_n(where, __ATOMIC_ACQUIRE);
}

static inline void count_publish(uint32_t *where, uint32_t count) {
    __atomic_store_n(where, count, __ATOMIC_RELEASE);
}

/* A pointer that is read without a lock: what it points to is seen as it was when it was published. */
static inline void *pointer_read(void *const *where) {
    return __atomic_load_n(where, __ATOMIC_ACQUIRE);
}

static inline void pointer_publish(void **where, void *value) {
    __atomic_store_n(where, value, __ATOMIC_RELEASE);
}

static inline void lock_start(BiasedLock *lock) {
    *lock = (BiasedLock){.wanted = LOCK_FIRST_STREAK, .pauses = LOCK_FIRST_PAUSES};
    lock->seat = &lock->seats[0];
}

#endif
