"""The report of a failed allocation: what it tried, what stopped it, and which arenas hold memory.

The thread whose allocation failed makes the report after it has released all locks.  To read an
arena, the thread takes that arena's lock, one arena at a time.
"""

from libc.string cimport memset
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl.core._bins cimport cache_flush, size_possible, size_units
from acl.core._driver cimport attempt_read, device_room, stream_captured
from acl.core._lock cimport count_read, lock_drop, lock_take, spin_enter, spin_leave
from acl.core._pages cimport pages_may_leave
from acl.core._place cimport DEMAND_ANY, Window, window_find
from acl.core._space cimport page_ceil, page_floor
from acl.core.types cimport (
    Block, BLOCK_FREE, BLOCK_WAITING, CACHE_UNITS, HOLDS, OomHold, OomReport, OOMS, Pool, Range,
    RANGE_LARGE, RANGE_SMALL, TAGS, UNIT_SHIFT,
)


cdef size_t block_whole(Arena *arena, Range *span, Block *block) noexcept nogil:
    """Return the bytes of a block that could leave its arena: those of its wholly free pages.

    In a segment, return the bytes of the block if it is the whole segment, else 0.  Return 0 for a
    block that is not FREE.
    """
    cdef size_t granule = arena.pool.options.granule
    cdef uint32_t low, high
    if block.state != BLOCK_FREE:
        return 0
    if span.segment:
        return block.size if block.size == span.bytes else 0
    low = page_ceil(span, block.addr, granule)
    high = page_floor(span, block.addr + block.size, granule)
    return (high - low) * granule if high > low else 0


cdef void arena_hold(Arena *arena, OomHold *hold, OomReport *report) noexcept nogil:
    """Flush the cache of an arena, and fill `hold` with the arena's numbers.

    Add the arena's live bytes by tag to `report`.
    """
    cdef uint32_t index
    cdef size_t untagged
    cdef Block *block
    memset(hold, 0, sizeof(OomHold))
    lock_take(&arena.lock)
    cache_flush(arena)                          # so that neighbouring free blocks are joined
    hold.stream = arena.stream
    hold.role = arena.role
    hold.donates = pages_may_leave(arena, False)
    hold.reserved = arena.pages * arena.pool.options.granule
    untagged = arena.live
    hold.live = arena.live - arena.sleep.asleep
    for index in range(1, <uint32_t> TAGS):
        report.tags[index] += arena.tag_live[index]
        untagged -= arena.tag_live[index]
    report.tags[arena.default_tag] += untagged
    for index in range(arena.space.range_count):
        block = arena.space.ranges[index].first if arena.space.ranges[index] != NULL else NULL
        while block != NULL:
            hold.whole += block_whole(arena, arena.space.ranges[index], block)
            if block.state == BLOCK_FREE:
                hold.free += block.size
                hold.largest_free = max(hold.largest_free, block.size)
            elif block.state == BLOCK_WAITING:
                hold.waiting += block.size
            block = block.next
    lock_drop(&arena.lock)


cdef void hold_keep(OomReport *report, const OomHold *hold) noexcept nogil:
    """Insert an arena into `report.holds`, in the order of `reserved`, the highest first.

    If `holds` is full, the arena with the lowest `reserved` is left out.  The arena whose
    allocation failed stays first.
    """
    cdef uint32_t place = report.hold_count
    if place == HOLDS:
        place -= 1
        if report.holds[place].reserved >= hold.reserved:
            return
    else:
        report.hold_count += 1
    while place > 1 and report.holds[place - 1].reserved < hold.reserved:
        report.holds[place] = report.holds[place - 1]
        place -= 1
    report.holds[place] = hold[0]


cdef size_t bytes_missing(Arena *arena, size_t size) noexcept nogil:
    """Return how many bytes of memory the best placement for a block lacks.

    Without a placement, return the block's size, rounded up to whole pages.
    """
    cdef size_t granule = arena.pool.options.granule
    cdef size_t bytes = size_units(size) << UNIT_SHIFT
    cdef uint32_t kind = RANGE_SMALL if bytes >> UNIT_SHIFT <= CACHE_UNITS else RANGE_LARGE
    cdef Window window
    if not arena.pool.no_virtual:
        lock_take(&arena.lock)
        window = window_find(arena, bytes, kind, DEMAND_ANY)
        lock_drop(&arena.lock)
        if window.first != NULL:
            return window.holes * granule
    return (bytes + granule - 1) // granule * granule


cdef void oom_fill(Arena *arena, OomReport *report) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef OomHold hold
    cdef uint32_t index
    arena_hold(arena, &report.holds[0], report)
    report.hold_count = 1
    report.live = report.holds[0].live
    report.free = report.holds[0].free
    report.largest_free = report.holds[0].largest_free
    report.waiting = report.holds[0].waiting
    for index in range(count_read(&pool.arena_count)):
        if pool.arenas[index] != arena:
            arena_hold(pool.arenas[index], &hold, report)
            report.live += hold.live
            report.others += hold.reserved
            hold_keep(report, &hold)


cdef uint64_t oom_note(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef OomReport report
    cdef void *graph = NULL
    memset(&report, 0, sizeof(report))
    attempt_read(&report.attempt)               # first, as the calls below could change it
    report.size = size
    report.tag = tag if tag != 0 else arena.default_tag
    report.budget = pool.budget[tag].limit
    report.budget_live = pool.budget[tag].live
    report.stream = arena.stream
    report.limit = pool.options.limit
    report.headroom = pool.options.headroom
    report.device_free = device_room(pool)
    report.capturing = stream_captured(pool, arena.stream, &graph)
    report.moved = pages_may_leave(arena, False) and pool.options.steals and not report.capturing
    report.missing = bytes_missing(arena, size) if size_possible(size) else size
    oom_fill(arena, &report)
    spin_enter(&pool.source.lock)
    report.reserved = pool.source.reserved
    report.spare = pool.source.spare_bytes
    spin_leave(&pool.source.lock)
    spin_enter(&pool.lock)
    report.number = pool.reports.oom.number + 1
    pool.reports.oom = report
    pool.reports.ooms[report.number % OOMS] = report
    spin_leave(&pool.lock)
    return report.number
