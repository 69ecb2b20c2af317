"""The arena's biased lock and the spin lock of `core/lock.h`, for `cimport`.  No GIL, no Python."""

from libc.stdint cimport uint32_t

cdef extern from "core/lock.h" nogil:
    ctypedef struct SpinLock:
        uint32_t word

    ctypedef struct BiasedLock:
        uint32_t pinned
        uint32_t revocations
        int (*may_own)() noexcept nogil

    bint spin_enter(SpinLock *lock)
    void spin_leave(SpinLock *lock)
    bint lock_enter_biased(BiasedLock *lock)
    void lock_leave_biased(BiasedLock *lock)
    void lock_enter(BiasedLock *lock)
    void lock_leave(BiasedLock *lock)
    void lock_take(BiasedLock *lock)
    void lock_drop(BiasedLock *lock)
    void lock_step_down(BiasedLock *lock)
    void lock_start(BiasedLock *lock)
    size_t stale_read(const size_t *where)
    uint32_t count_read(const uint32_t *where)
    void count_publish(uint32_t *where, uint32_t count)
    void *pointer_read(void **where)
    void pointer_publish(void **where, void *value)
