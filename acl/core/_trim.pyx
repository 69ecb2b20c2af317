"""Give free pages to the driver: all (`pool_trim`), or those not needed lately (`pool_decay`).

All functions are called without locks, and take the lock of one arena at a time.
"""

from libc.stdint cimport uint32_t, uint64_t

from acl.core._asleep cimport naps_reclaim
from acl.core._driver cimport source_shrink
from acl.core._events cimport EVENT_TRIM
from acl.core._lock cimport count_read, lock_drop, lock_take, spin_enter, spin_leave, stale_read
from acl.core._pages cimport pages_donate, pages_may_leave
from acl.core._record cimport record_pool, record_trims
from acl.core._tally cimport peak_reset, tally_look_all
from acl.core.types cimport Arena


cdef size_t pool_trim(Pool *pool, size_t to, bint wait, bint drained) noexcept nogil:
    cdef size_t before = stale_read(&pool.source.reserved)
    cdef size_t after = before
    cdef size_t granule = pool.options.granule
    cdef uint32_t index
    cdef Arena *arena
    record_trims(True)
    naps_reclaim(pool)
    source_shrink(pool, to)
    for index in range(count_read(&pool.arena_count)):
        after = stale_read(&pool.source.reserved)
        if after <= to:
            break
        arena = pool.arenas[index]
        if pages_may_leave(arena, drained):
            pages_donate(arena, (after - to + granule - 1) // granule, wait)
            source_shrink(pool, to)
    after = stale_read(&pool.source.reserved)
    before = before - after if before > after else 0
    record_trims(False)
    record_pool(pool, EVENT_TRIM, before, 0)
    return before


cdef uint64_t arena_idle_pages(Arena *arena) noexcept nogil:
    """Return the number of pages that the arena has beyond its live peak since the last decay step.

    The peak is increased by 1/50, for pages that are only partly used.  Then the peaks begin again
    at the current values.
    """
    cdef size_t granule = arena.pool.options.granule
    cdef uint64_t needed
    lock_take(&arena.lock)
    needed = (arena.live_peak + arena.live_peak // 50 + granule - 1) // granule
    if arena.live_peak > arena.past_peak:
        arena.past_peak = arena.live_peak
    if arena.requested_peak > arena.past_requested_peak:
        arena.past_requested_peak = arena.requested_peak
    arena.live_peak = arena.live
    arena.requested_peak = arena.requested
    needed = arena.pages - needed if arena.pages > needed else 0
    lock_drop(&arena.lock)
    return needed


cdef size_t pool_decay(Pool *pool) noexcept nogil:
    cdef uint32_t index
    cdef uint64_t pages
    cdef size_t freed
    record_trims(True)
    freed = source_shrink(pool, 0)
    for index in range(count_read(&pool.arena_count)):
        pages = arena_idle_pages(pool.arenas[index])
        if pages > 0 and pages_may_leave(pool.arenas[index], False) and pool.options.steals:
            pages_donate(pool.arenas[index], pages, False)
    freed += source_shrink(pool, 0)
    record_trims(False)
    record_pool(pool, EVENT_TRIM, freed, 0)
    return freed


cdef void pool_reset_peaks(Pool *pool) noexcept nogil:
    cdef uint32_t index
    cdef Arena *arena
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        lock_take(&arena.lock)
        arena.live_peak = arena.live
        arena.requested_peak = arena.requested
        arena.past_peak = arena.past_requested_peak = arena.recording.alarm = 0
        lock_drop(&arena.lock)
    tally_look_all(pool)
    spin_enter(&pool.source.lock)
    pool.source.reserved_peak = pool.source.reserved
    pool.source.joint_peak = 0
    spin_leave(&pool.source.lock)
    peak_reset(pool)
