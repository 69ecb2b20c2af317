"""That a pool was not let grow, by its limit, its headroom or the driver: counted, and logged.

A pool that may not grow goes on with memory of its own that it moves, which takes longer, or finds
none.  Whoever tunes it wants to know; the callbacks that meet it hold no GIL and may not log.  So
they count, and at most once a minute for each pool and kind ask Python's main thread to tell, as
soon as it runs Python again (`acl.inside._books.refusals_tell`).

Thread rule: any thread, without GIL and locks.
"""

from libc.stdint cimport uint64_t

from acl._core cimport Source
from acl._device cimport leaving
from acl.core._lock cimport spin_enter, spin_leave
from acl.core._record cimport record_ns, record_ticks

cdef extern from "Python.h" nogil:
    int Py_AddPendingCall(int (*function)(void *) noexcept, void *argument)
    int Py_IsInitialized()

cdef enum:
    PAUSE_S = 60


cdef void growth_refused(Pool *pool, uint32_t kind, size_t bytes) noexcept nogil:
    cdef Source *source = &pool.source
    cdef uint64_t now = record_ns(record_ticks())
    cdef bint due
    spin_enter(&source.lock)
    source.refused[kind] += 1
    due = (source.refused_told[kind] == 0
           or now - source.refused_told[kind] >= <uint64_t> PAUSE_S * 1000000000)
    if due:
        source.refused_told[kind] = now
        source.refused_bytes[kind] = bytes
    spin_leave(&source.lock)
    if due and not leaving and Py_IsInitialized():
        Py_AddPendingCall(on_pending, NULL)


cdef int on_pending(void *argument) noexcept with gil:
    from acl.inside._books import refusals_tell

    refusals_tell()
    return 0
