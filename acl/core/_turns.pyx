"""Bursts: streams that share a pool's memory in turn.

A burst (`turn` in the code) of an arena begins with the arena's first slow allocation after one of
another arena.  If the pool may not grow, the arena takes free pages of arenas whose streams are
idle.  If each request took only the pages that it lacks, a burst would have many slow allocations.
So the first slow allocation takes as many pages as the arena's last bursts needed at their peaks,
and maps the extra pages in advance in the arena's holes.  After bursts that need fewer pages, the
expected number falls slowly.  If too few pages are taken, another slow allocation follows.  If too
many are taken, their driver calls are wasted, and other arenas lack these pages.

Pages are taken first from the arena with the most free pages: usually its burst has just ended.

Threads that allocate at the same time would take the same pages from each other for ever.  The pool
assumes such threads if other arenas often allocate during a slow allocation.  While that lasts, no
pages are taken for a whole burst, and the pool may grow as if each arena were alone.

This module takes only pages that may leave their arena.  It waits only while the request itself
lacks pages, and never grows the pool.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from acl.core._bins cimport links_block
from acl.core.types cimport (
    Arena, BLOCK_HOLE, Block, CLIMBERS, Frame, MAX_ARENAS, NEAR_MOST, Pool, RANGE_LARGE, RUNG_IDLE,
    RUNG_OTHERS, Range, Source,
)
from acl.core._driver cimport attempt_try
from acl.core._lock cimport (
    count_read, lock_drop, lock_take, spin_enter, spin_leave, stale_read,
)
from acl.core._pages cimport (
    climb_add, climb_moves, pages_may_leave, pages_move_out, piece_detach, window_map,
    window_settle, window_unclaim,
)
from acl.core._space cimport block_end, page_floor, range_of
from acl.core._tally cimport tally_near
from acl.core.policy cimport (
    FORGET_SHARE, GIVERS, PARTLY_SHARE, SEEN_MOST, SEEN_OFTEN, SEEN_ONCE, VAIN_MOST,
)


cdef struct Giver:
    Arena *arena                # an arena that may have free pages
    uint64_t rank               # free pages * MAX_ARENAS + index, so no two ranks are equal


cdef uint64_t others_fits(Climb *climb) noexcept nogil:
    cdef uint64_t fits = 0
    cdef uint32_t index
    for index in range(climb.near_count):
        fits += stale_read(<size_t *> &climb.near[index].counters.fits)
    return fits


cdef void climbers_note(Climb *climb) noexcept nogil:
    """Under the source's lock: put `climb.arena` first in `climbers`.

    Copy the other entries of `climbers` into `climb.near`.
    """
    cdef Source *source = &climb.arena.pool.source
    cdef uint32_t index = 0
    while index < source.climber_count and source.climbers[index] != climb.arena:
        index += 1
    if index == CLIMBERS:                       # drop the arena whose slow allocation is the oldest
        index -= 1
        source.climbers[index].burst.recent = False
    elif index == source.climber_count:
        source.climber_count += 1
    while index > 0:
        source.climbers[index] = source.climbers[index - 1]
        index -= 1
    source.climbers[0] = climb.arena
    climb.arena.burst.recent = True
    for index in range(1, source.climber_count):
        climb.near[index - 1] = source.climbers[index]
    climb.near_count = source.climber_count - 1


cdef void near_fill(Climb *climb) noexcept nogil:
    """Under the source's lock: add up to 4 (NEAR_MOST - CLIMBERS) other arenas to `climb.near`.

    Successive calls go round all arenas of the pool.
    """
    cdef Pool *pool = climb.arena.pool
    cdef Source *source = &pool.source
    cdef uint32_t count = count_read(&pool.arena_count)
    cdef uint32_t left = min(count - source.climber_count, <uint32_t> (NEAR_MOST - CLIMBERS))
    cdef Arena *other
    while left > 0:
        left -= 1
        source.looked = source.looked + 1 if source.looked + 1 < count else 0
        other = pool.arenas[source.looked]
        if not other.burst.recent:
            climb.near[climb.near_count] = other
            climb.near_count += 1


cdef void turn_begin(Climb *climb) noexcept nogil:
    """At the beginning of a slow allocation: update the pool's sums, and set the burst's fields.

    If the slow allocation begins a new burst, first adapt `arena.burst.turn_peak`, the expected
    peak of a burst, to the peak of the arena's last burst.
    """
    cdef Arena *arena = climb.arena
    cdef Source *source = &arena.pool.source
    cdef bint new
    cdef size_t peak
    spin_enter(&source.lock)
    new = source.climber_count == 0 or source.climbers[0] != arena
    climbers_note(climb)
    near_fill(climb)
    tally_near(source, &arena, 1)
    tally_near(source, climb.near, climb.near_count)
    climb.others = others_fits(climb)
    climb.at_once = source.at_once >= SEEN_OFTEN
    spin_leave(&source.lock)
    lock_take(&arena.lock)
    if new:
        peak = arena.requested_peak
        arena.past_requested_peak = max(arena.past_requested_peak, peak)
        arena.requested_peak = arena.requested
        if peak > arena.burst.turn_peak:
            arena.burst.turn_peak = peak
        else:
            arena.burst.turn_peak -= (arena.burst.turn_peak - peak) // FORGET_SHARE
    peak = arena.burst.turn_peak // arena.pool.options.granule
    climb.share = peak + peak // PARTLY_SHARE
    climb.held = arena.pages
    lock_drop(&arena.lock)


cdef void turn_end(Climb *climb) noexcept nogil:
    """At the end of a slow allocation: raise or lower the score `source.at_once`.

    The score rises if the bins of an arena in `climb.near` served an allocation meanwhile.
    """
    cdef Source *source = &climb.arena.pool.source
    cdef bint seen = others_fits(climb) != climb.others
    spin_enter(&source.lock)
    if seen:
        source.at_once = min(source.at_once + SEEN_ONCE, <uint32_t> SEEN_MOST)
    elif source.at_once > 0:
        source.at_once -= 1
    spin_leave(&source.lock)


cdef bint turn_lacks(Climb *climb) noexcept nogil:
    return not climb.at_once and climb.held + climb.found < climb.share


cdef uint64_t arena_spares(Arena *arena) noexcept nogil:
    """Without the lock: return how many more pages an arena has than its live bytes fill."""
    cdef uint64_t live = stale_read(&arena.live) // arena.pool.options.granule
    cdef uint64_t pages = stale_read(<size_t *> &arena.pages)
    return pages - live if pages > live else 0


cdef inline bint arena_may_give(Arena *arena, uint64_t spares) noexcept nogil:
    """True if it is worth trying to take pages from an arena that has `spares` pages to spare.

    False if `spares` is 0, if the arena's pages may not leave, or if the last `pages_move_out`
    found no wholly free page and probably none is free now.  That is assumed while the live bytes
    are not below their value at that time, and the bins have served no allocation since.
    """
    if spares == 0 or (stale_read(&arena.burst.vain_live) != 0
                       and stale_read(&arena.live) >= stale_read(&arena.burst.vain_live)
                       and stale_read(<size_t *> &arena.burst.vain_fits)
                       == stale_read(<size_t *> &arena.counters.fits)):
        return False
    return pages_may_leave(arena, False)


cdef uint32_t givers_find(Climb *climb, bint all, Giver *givers, uint64_t below) noexcept nogil:
    """Fill `givers` with the arenas that have the most free pages; return their number.

    With `all`, search all arenas of the pool, otherwise `climb.near`; `climb.arena` is left out.
    Only arenas whose rank is below `below` are taken, and at most GIVERS of them.  They are ordered
    by rank, the highest first.
    """
    cdef Pool *pool = climb.arena.pool
    cdef uint32_t count = 0
    cdef uint32_t index, place
    cdef uint64_t spares, rank
    cdef Arena *other
    for index in range(count_read(&pool.arena_count) if all else climb.near_count):
        other = pool.arenas[index] if all else climb.near[index]
        spares = arena_spares(other)
        rank = spares * MAX_ARENAS + index
        if (other == climb.arena or rank >= below
                or (count == GIVERS and rank < givers[count - 1].rank)
                or not arena_may_give(other, spares)):
            continue
        place = count if count < GIVERS else count - 1
        count = place + 1
        while place > 0 and givers[place - 1].rank < rank:
            givers[place] = givers[place - 1]
            place -= 1
        givers[place].arena = other
        givers[place].rank = rank
    return count


cdef void turn_take(Climb *climb, bint wait) noexcept nogil:
    """Take free pages of the arenas in `climb.near`; with `wait`, of all arenas of the pool.

    With `wait`, a search of all arenas costs less than one wait for a stream.
    """
    cdef uint32_t rung = <uint32_t> (RUNG_OTHERS if wait else RUNG_IDLE)
    cdef uint64_t want = climb.missing
    cdef uint64_t below = ~<uint64_t> 0
    cdef uint64_t pages
    cdef uint32_t vain = 0
    cdef uint32_t count, index
    cdef Giver[GIVERS] givers
    cdef Frame *frames
    if not climb_moves(climb):
        return
    if not climb.at_once and climb.share > climb.held:
        want = max(want, climb.share - climb.held)
    while climb.found < want:
        count = givers_find(climb, wait, givers, below)
        for index in range(count):
            if climb.found < want and (wait or vain < VAIN_MOST):
                attempt_try(rung)
                frames = NULL
                # Do not wait for pages beyond those that the request itself lacks.
                pages = pages_move_out(givers[index].arena, want - climb.found,
                                       wait and climb.found < climb.missing, False, &frames)
                climb_add(climb, frames, pages, rung)
                vain = vain + 1 if pages == 0 else 0
        if count < GIVERS or not wait:
            return
        below = givers[count - 1].rank


cdef Block *hole_take(Arena *arena, Block *hole, uint64_t want, bint new) noexcept nogil:
    """Detach up to `want` pages of a hole: the hole's lowest run of pages without any mapping.

    Return the detached block, or NULL.  Without `new`, take only pages below the range's high water
    mark.
    """
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
    """Under the lock: detach up to `want` pages of a hole for large blocks, to map them in advance.

    Try first the hole behind the placement, then all holes for pages below the high water mark, and
    at last all holes for any pages.  Return the detached block, or NULL.
    """
    cdef Arena *arena = climb.arena
    cdef Block *stop = links_block(&arena.bins.holes[<uint32_t> RANGE_LARGE])
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
