/* The arena's lock, biased towards one thread, and a small spin lock.

   A biased lock costs its owner two plain stores: no atomic read-modify-write, no fence.  Another thread must revoke
   the bias first: it clears `owner`, has the kernel run a memory barrier on every CPU of the process (membarrier), and
   waits until `busy` is 0.  The owner reads `owner`, sets `busy`, and reads `owner` again.  If its store to `busy` came
   before the barrier, the revoking thread sees the store.  If not, the second read of `owner` comes after the barrier,
   finds that `owner` was cleared, and the owner backs off.  If the kernel refuses membarrier, no lock is biased.

   After a revocation the lock is a spin lock.  A thread that takes it more than `wanted` times in a row without
   contention becomes its owner.  Each revocation doubles `wanted`, until taking the spin lock `wanted` times (3 ns
   each) costs as much as a revocation (1 to 12 us).  A thread that finds the lock taken backs off: while the contention
   lasts, it waits longer before each attempt, up to 6 us.  Each attempt moves the cache line of the lock, and then the
   data of the section, from core to core, which takes 50 to 200 ns a line.

   The scheduler may stop a thread for any time between its first read of `owner` and its store to `busy`.  So a `busy`
   word belongs to one thread for ever (an owner slot, LockSeat): a late store never changes another owner's word.  If
   all slots are taken, further threads use the spin lock.

   A thread may have state that each of its sections must look at, such as a tag for its allocations.  The owner's short
   path does not look at it.  So a thread with such state is no owner: it gives up the ownership before it sets the
   state (`lock_step_down`), which needs no barrier, and `may_own` returns 0 until the state is removed.

   The lock is not recursive.  A section has a few hundred instructions; no thread sleeps in a section.  ThreadSanitizer
   cannot model the process-wide barrier, so under it (LOCK_NO_BIAS) only the spin lock is used.  tests/c/core_lock.c
   tests the bias: a litmus test, and a thread stopped at LOCK_LOOKED. */
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

/* Tests stop a thread here: it has read that it is the owner and has not set `busy` yet. */
#ifndef LOCK_LOOKED
#define LOCK_LOOKED() ((void)0)
#endif

enum { LOCK_FIRST_STREAK = 8, LOCK_LAST_STREAK = 1 << 12, LOCK_SPINS = 64, LOCK_FIRST_PAUSES = 4,
       LOCK_LAST_PAUSES = 1 << 8, LOCK_SEATS = 16 };

typedef struct SpinLock {
    uint32_t word; /* 0: open, 1: taken */
} SpinLock;

typedef struct LockSeat {
    void *owner;   /* equal to `thread` while that thread owns the lock and enters by a store to `busy`; else NULL */
    void *thread;  /* the only thread that ever writes `busy`; NULL: the slot is unused; set once, under `spin` */
    uint32_t busy; /* 1: the owner is in a section */
} LockSeat;

typedef struct BiasedLock {
    LockSeat *seat;  /* the owner slot of the last owner; never NULL */
    LockSeat seats[LOCK_SEATS];
    SpinLock spin;   /* taken by all threads except the owner */
    void *last;      /* the thread that took `spin` last; `last` and all fields below are under `spin` */
    uint32_t streak; /* how often in a row `last` took `spin` without contention */
    uint32_t wanted; /* when `streak` exceeds it, `last` becomes the owner */
    uint32_t pinned; /* while it is not 0, no thread becomes the owner */
    uint32_t revocations;
    uint32_t pauses; /* pause instructions before the second attempt at `spin`; grows with contention */
    uint32_t biased; /* 1: the last `lock_take` entered as the owner; under the lock itself */
    int (*may_own)(void); /* returns true if the calling thread may become the owner; NULL: any thread may */
} BiasedLock;

/* Returns true if locks may be biased: the kernel has membarrier, and ACL_POOL_BIAS=0 is not set.  Only the first call
   asks the kernel and reads the variable. */
bool lock_bias_available(void);
void lock_barrier(void);        /* runs a full memory barrier in every running thread of the process */

/* Returns the pointer by which the ABI identifies the calling thread.  All modules of the process must get the
   same value, so a thread-local variable of this file cannot be used. */
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

/* Takes the lock.  Returns true if another thread held it.  A waiting thread backs off: `pauses` pause instructions
   between attempts, doubled up to LOCK_SPINS, then sched_yield. */
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

/* Enters a section as the owner.  Returns false if the calling thread is not, or no longer, the owner; it must call
   lock_enter then. */
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

/* Leaves a section as the owner.  `seat` is still the owner's slot: a thread that changes it waits for `busy` first. */
static inline void lock_leave_biased(BiasedLock *lock) {
    __atomic_store_n(&__atomic_load_n(&lock->seat, __ATOMIC_RELAXED)->busy, 0, __ATOMIC_RELEASE);
}

/* Revokes the bias, if a thread owns the lock.  The caller holds `spin`. */
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

/* Takes the lock in any thread, as a spin lock.  The section ends with lock_leave. */
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

/* Makes a thread the owner, if it has an owner slot or a slot is unused.  The caller holds `spin`. */
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

/* Ends the ownership of the calling thread, which is in no section.  The function does not wait, because only the owner
   enters sections by the owner slot.  When `may_own` allows it, the thread can become the owner again: at the end
   of its next section if no other thread entered one in between, else after `wanted` sections without contention. */
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

/* Takes the lock, as the owner if possible.  Used by sections that open and take the lock in the middle.  lock_drop
   ends the section: as the owner if it was entered so, else as a spin lock. */
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

/* Reads, without a lock, a number that another thread may be changing.  The caller must tolerate an old value. */
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread"), noinline, unused)) static size_t
#else
static inline size_t
#endif
stale_read(const size_t *where) {
    return __atomic_load_n(where, __ATOMIC_RELAXED);
}

/* Reads the length of a list that is only appended to.  All entries below the length are then visible. */
static inline uint32_t count_read(const uint32_t *where) {
    return __atomic_load_n(where, __ATOMIC_ACQUIRE);
}

static inline void count_publish(uint32_t *where, uint32_t count) {
    __atomic_store_n(where, count, __ATOMIC_RELEASE);
}

/* Reads a pointer without a lock.  All writes to its target before pointer_publish are then visible. */
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
