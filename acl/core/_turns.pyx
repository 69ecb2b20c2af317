"""Streams that share a pool's memory in turn.

A turn of an arena begins with its first climb after one of another arena.  Where the pool may not
grow, the arena takes free pages of those whose streams are idle.  If each request took what it
lacks, a turn would be a long row of slow allocations; so the first one takes as many pages as the
arena's last turns needed at their peaks, and maps them in advance, where the arena has holes.  A
turn that needed less is forgotten slowly: to take too little costs another slow allocation, to take
too much costs calls, and the others their pages.

The arena with the most free pages gives first: whose turn has just ended has them.

Threads that allocate at the same time would take the same pages from each other for ever.  They
are seen when others' allocations go on during a climb; while that lasts there are no turns, and the
pool may grow as if each arena were alone.

Refuses: to take pages of arenas that do not donate, to take in bulk after a wait, to grow the pool.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from acl.core._bins cimport links_block
from acl._core cimport (
    Arena, BLOCK_HOLE, Block, Frame, MAX_ARENAS, Pool, RANGE_LARGE, RUNG_IDLE,
    RUNG_OTHERS, Range, Source,
)
from acl.core._driver cimport attempt_try
from acl.core._lock cimport (
    count_read, lock_drop, lock_take, spin_enter, spin_leave, stale_read,
)
from acl.core._pages cimport (
    climb_add, pages_move_out, piece_detach, window_map, window_settle, window_unclaim,
)
from acl.core._place cimport block_end, page_floor, range_of

cdef enum:
    FORGET_SHARE = 4            # of what the last turn needed less than those before it
    PARTLY_SHARE = 32           # of a peak's pages more: some are used in part only
    SEEN_ONCE = 16              # climbs without another sight until one is forgotten
    SEEN_OFTEN = 32             # from here on, streams work at once
    SEEN_MOST = 256


cdef uint64_t others_fits(Arena *arena) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef uint64_t fits = 0
    cdef uint32_t index
    for index in range(count_read(&pool.arena_count)):
        if pool.arenas[index] != arena:
            fits += stale_read(<size_t *> &pool.arenas[index].counters.fits)
    return fits


cdef void turn_begin(Climb *climb) noexcept nogil:
    """Note whose climb it is; in a new turn, what the last one needed."""
    cdef Arena *arena = climb.arena
    cdef Source *source = &arena.pool.source
    cdef bint new
    cdef size_t peak
    climb.others = others_fits(arena)
    spin_enter(&source.lock)
    new = source.climber != arena
    source.climber = arena
    climb.at_once = source.at_once >= SEEN_OFTEN
    spin_leave(&source.lock)
    lock_take(&arena.lock)
    if new:
        peak = arena.requested_peak
        arena.past_requested_peak = max(arena.past_requested_peak, peak)
        arena.requested_peak = arena.requested
        if peak > arena.turn_peak:
            arena.turn_peak = peak
        else:
            arena.turn_peak -= (arena.turn_peak - peak) // FORGET_SHARE
    peak = arena.turn_peak // arena.pool.options.granule
    climb.share = peak + peak // PARTLY_SHARE
    climb.held = arena.pages
    lock_drop(&arena.lock)


cdef void turn_end(Climb *climb) noexcept nogil:
    """Note whether other arenas have allocated meanwhile."""
    cdef Source *source = &climb.arena.pool.source
    cdef bint seen = others_fits(climb.arena) != climb.others
    spin_enter(&source.lock)
    if seen:
        source.at_once = min(source.at_once + SEEN_ONCE, <uint32_t> SEEN_MOST)      # an enum
    elif source.at_once > 0:
        source.at_once -= 1
    spin_leave(&source.lock)


cdef bint turn_lacks(Climb *climb) noexcept nogil:
    return not climb.at_once and climb.held + climb.found < climb.share


cdef uint64_t arena_spares(Arena *arena) noexcept nogil:
    """About how many free pages an arena has."""
    cdef uint64_t live = stale_read(&arena.live) // arena.pool.options.granule
    cdef uint64_t pages = stale_read(<size_t *> &arena.pages)
    return pages - live if pages > live else 0


cdef Arena *arena_next(Arena *arena, uint64_t *below) noexcept nogil:
    """Of the arenas that give, the one with the most free pages, after the one that was `below`."""
    cdef Pool *pool = arena.pool
    cdef Arena *found = NULL
    cdef Arena *other
    cdef uint64_t most = 0
    cdef uint64_t rank
    cdef uint32_t index
    for index in range(count_read(&pool.arena_count)):
        other = pool.arenas[index]
        rank = arena_spares(other) * MAX_ARENAS + index         # no two are the same
        if other != arena and other.donates and most <= rank < below[0]:
            found = other
            most = rank
    below[0] = most
    return found


cdef void turn_take(Climb *climb, bint wait) noexcept nogil:
    cdef uint32_t rung = <uint32_t> (RUNG_OTHERS if wait else RUNG_IDLE)         # enums
    cdef uint64_t want = climb.missing
    cdef uint64_t below = ~<uint64_t> 0
    cdef uint64_t pages
    cdef Arena *other
    cdef Frame *frames
    if not climb.moves:
        return
    if not wait and not climb.at_once and climb.share > climb.held:
        want = max(want, climb.share - climb.held)
    while climb.found < want:
        other = arena_next(climb.arena, &below)
        if other == NULL:
            return
        attempt_try(rung)
        frames = NULL
        pages = pages_move_out(other, want - climb.found, wait, False, &frames)
        climb_add(climb, frames, pages, rung)


cdef Block *hole_take(Arena *arena, Block *hole, uint64_t want, bint new) noexcept nogil:
    """Detach the lowest pages of a hole where nothing is mapped; some that never were, if `new`."""
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, hole)
    cdef uint32_t page = page_floor(span, hole.addr, granule)
    cdef uint32_t end = page_floor(span, block_end(hole), granule)
    cdef uint32_t first
    if not new:
        end = min(end, span.top)
    while page < end and span.views[page] != NULL:
        page += 1
    first = page
    while page < end and page - first < want and span.views[page] == NULL:
        page += 1
    if page == first:
        return NULL
    return piece_detach(arena, hole, span.base + first * granule, span.base + page * granule)


cdef Block *holes_take(Climb *climb, uint64_t want) noexcept nogil:
    """Under the lock: pages to map in advance; behind the window, in old holes, or in new ones."""
    cdef Arena *arena = climb.arena
    cdef Block *stop = links_block(&arena.bins.holes[<uint32_t> RANGE_LARGE])      # an enum
    cdef Block *hole = climb.last.next
    cdef Block *piece = NULL
    cdef uint32_t new
    if hole != NULL and hole.state == BLOCK_HOLE and range_of(arena, hole).kind == RANGE_LARGE:
        piece = hole_take(arena, hole, want, True)
    for new in range(2):
        hole = stop.links.next
        while hole != stop and piece == NULL:
            piece = hole_take(arena, hole, want, new)
            hole = hole.links.next
    return piece


cdef void turn_refill(Climb *climb) noexcept nogil:
    cdef Arena *arena = climb.arena
    cdef Climb more
    cdef uint64_t left = climb.found - climb.missing
    cdef bint done = True
    while done and left > 0:
        memset(&more, 0, sizeof(Climb))
        more.arena = arena
        more.rung = climb.rung
        more.frames = climb.frames
        lock_take(&arena.lock)
        more.first = more.last = holes_take(climb, left)
        lock_drop(&arena.lock)
        if more.first == NULL:
            return
        left -= more.first.size // arena.pool.options.granule
        done = window_map(&more)
        climb.frames = more.frames
        lock_take(&arena.lock)
        window_settle(&more)
        window_unclaim(&more)
        lock_drop(&arena.lock)
