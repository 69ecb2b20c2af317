"""Log messages of a pool that could not grow, trim or close as it was asked to.

If a pool may not grow, it moves pages that it has, which takes longer, or the allocation fails.
The log says so, because users tune limits by it.  A callback whose growth is refused holds no GIL
and may not log, so it counts the refusal.  At most once a minute for each pool and kind of refusal,
it asks the main thread to log it as soon as that runs Python code
(`acl.inside._books.refusals_tell`).

Thread rule: any thread, without locks.  `growth_refused` runs without the GIL, all other functions
with it.
"""

from libc.stdint cimport uint32_t, uint64_t

from acl.core.types cimport Pool, Source
from acl.core cimport _driver
from acl.core._arena cimport pool_live_bytes, pools_retry
from acl.core._driver cimport events_destroy
from acl.runtime._device cimport leaving
from acl.core._lock cimport count_read, spin_enter, spin_leave, stale_read
from acl.core._order cimport waiting_blindly, waiting_poll, waiting_sync
from acl.core._record cimport record_ns, record_ticks
from acl.core._trim cimport pool_trim
from acl.pool._guarded cimport buffers_close

from acl.bind._log import debug, warning

cdef extern from "Python.h" nogil:
    int Py_AddPendingCall(int (*function)(void *) noexcept, void *argument)
    int Py_IsInitialized()

cdef enum:
    PAUSE_S = 60                # seconds between two log messages of one pool and kind


cdef void growth_refused(Pool *pool, uint32_t kind, size_t bytes) noexcept nogil:
    """Count a refusal, and ask Python to log it.

    Python is asked at most once a minute for each pool and kind of refusal.
    """
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


cdef object loaded_books = None


def refusals_prepare():
    """Import now what logging needs, because a pending call may run in the middle of any import."""
    global loaded_books
    from acl.inside import _books
    from acl.pool import _findings

    loaded_books = _books
    _findings.findings_prepare()


cdef object books():
    return loaded_books


cdef int on_pending(void *argument) noexcept with gil:
    if loaded_books is not None:                # None: Python has made no Pool yet
        loaded_books.refusals_tell()
    return 0


cdef size_t trim_told(Pool *pool, str name, size_t target, bint wait,
                      bint empty) except? <size_t> -1:
    cdef size_t freed
    cdef uint32_t i
    cdef uint64_t failed
    with nogil:
        failed = waits_failed(pool)
        for i in range(count_read(&pool.arena_count)):
            if pool.arenas[i].order.waiting is not NULL:
                waiting_poll(pool.arenas[i])
        if wait and (empty or waiting_blindly(pool)):
            waiting_sync(pool, empty)
        freed = pool_trim(pool, target, wait, empty)
        pools_retry()
        failed = waits_failed(pool) - failed
    busy_tell(pool, name, "trim", failed)
    return freed


cdef int close_told(Pool *pool, str name) except -1:
    cdef uint64_t failed
    cdef size_t live
    with nogil:
        buffers_close(pool)
        failed = waits_failed(pool)
        waiting_sync(pool, True)
        pool_trim(pool, 0, True, True)
        failed = waits_failed(pool) - failed
        events_destroy(pool)
        live = pool_live_bytes(pool)
    busy_tell(pool, name, "close", failed)
    if live:
        warning("pool", "%s is closed while %d bytes are live: their memory stays until the last "
                "of these blocks is freed", name, live)
    else:
        debug("pool", "%s closed", name)
    return 0


cdef uint64_t waits_failed(Pool *pool) noexcept nogil:
    cdef uint64_t failed = 0
    cdef uint32_t i
    for i in range(count_read(&pool.arena_count)):
        failed += stale_read(<size_t *> &pool.arenas[i].counters.sync_failures)
    return failed


cdef int busy_tell(Pool *pool, str name, str what, uint64_t failed) except -1:
    if failed:
        warning("pool", "%s: %s gave up on %d waits, of at most %d ms, for streams that are busy; "
                "their memory stays", name, what, failed, pool.options.sync_timeout_ms)
    return 0


_driver.on_refused = growth_refused
