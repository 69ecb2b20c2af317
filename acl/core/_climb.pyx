"""The fallback steps, by which a slow allocation gets pages for its placement.

The table `steps` has the functions of the steps in their order; each has a docstring.

Before a page that held data is unmapped, the stream of its arena must be seen complete (I14).  A
wait for the stream has a timeout, as the caller may hold Python's GIL while a Python callback is
queued on the stream.  When the timeout expires, the pages are kept and the next step is tried.  A
stream under capture is never waited for.

The steps never unmap pages of an arena that does not donate.  If the option `steal` is off, they
unmap no page at all.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from acl.core.types cimport (
    Arena, Block, Frame, Pool, RANGE_SMALL, RUNG_DRIVER, RUNG_GROW, RUNG_IDLE,
    RUNG_NONE, RUNG_OTHERS, RUNG_OWN, RUNG_SPARE, Source, STOP_DEVICE, STOP_LIMIT, VIEWS_ALWAYS,
)
from acl.core._driver cimport (
    attempt_stop, attempt_try, device_room, frame_make, segment_free, segment_malloc, source_put,
    source_shrink, source_take, stream_captured, waits_restore, waits_shorten,
)
from acl.core._events cimport EVENT_MAP
from acl.core._lock cimport (
    count_read, lock_drop, lock_take, spin_enter, spin_leave, stale_read,
)
from acl.core._pages cimport (
    arena_rest, Climb, climb_add, climb_moves, pages_donate, pages_may_leave, pages_move_out,
    pages_view, window_claim, window_join, window_map, window_recall, window_settle, window_unclaim,
)
from acl.core._place cimport (
    DEMAND_ANY, DEMAND_PLAIN, DEMAND_RESTED, Window, range_add, range_open, window_find,
)
from acl.core._record cimport record_note
from acl.core._tally cimport arena_allocs, tally_look
from acl.core._turns cimport turn_begin, turn_end, turn_lacks, turn_refill, turn_take
from acl.core.policy cimport (
    BORROWS_EVER, BORROWS_FEW, BORROWS_OFTEN, FEW_PAGES, GROW_ALWAYS, GROW_JOINT, GROW_WAITING,
    MUCH_OF_DEVICE, PRICE_BORROWS, PRICE_DEAR, PRICE_DOUBLINGS, PRICE_PAGES, REFUSALS_MANY,
    SEGMENT_PAGES, SHARING_MS, VIEWS_FEW, VIEWS_MOST,
)


# --- the fallback steps -------------------------------------------------------------------------

cdef void take_spare(Climb *climb) noexcept nogil:
    cdef Frame *frame
    attempt_try(RUNG_SPARE)
    while climb.found < climb.missing:
        frame = source_take(climb.arena.pool)
        if frame == NULL:
            return
        climb_add(climb, frame, 1, RUNG_SPARE)


cdef void take_driver(Climb *climb, uint64_t pages, uint32_t rung) noexcept nogil:
    cdef Frame *frame
    cdef uint64_t end = climb.found + pages
    while climb.found < end:
        frame = frame_make(climb.arena.pool)
        if frame == NULL:
            return
        climb_add(climb, frame, 1, rung)


cdef enum:
    STEPS = 10

# The fallback steps in their order.  No step relies on an earlier step: `peaks_read` and
# `climb_moves` get their data at the first call.
cdef void (*steps[STEPS])(Climb *climb) noexcept nogil
steps[:] = [
    step_spare, step_paid, step_alias, step_grow, step_burst, step_own, step_idle, step_wait,
    step_driver, step_others,
]


cdef inline bint borrows_often(Arena *arena) noexcept nogil:
    """True if over 1 % of the allocations, and at least BORROWS_FEW of them, moved pages.

    Only allocations since `growth_paid` last allowed growth are counted.
    """
    cdef uint64_t moved = arena.growth.borrows
    return (moved >= BORROWS_FEW and moved * <uint64_t> BORROWS_OFTEN
            > arena_allocs(arena) - arena.growth.grown_at)


cdef bint shapes_differ(Arena *arena) noexcept nogil:
    """True if so many allocations of the arena move pages that their shapes cannot recur.

    In an arena whose requested bytes never reached PRICE_PAGES pages, only the moves since
    `growth_paid` last allowed growth are counted.  A larger arena grows after few moves, so that
    count would always be low; there all moves are counted.
    """
    cdef uint64_t *rungs = arena.counters.rungs
    cdef uint64_t moves
    if (max(arena.requested_peak, arena.past_requested_peak)
            < <size_t> PRICE_PAGES * arena.pool.options.granule):
        return borrows_often(arena)
    moves = (rungs[<uint32_t> RUNG_SPARE] + rungs[<uint32_t> RUNG_OWN]
             + rungs[<uint32_t> RUNG_IDLE] + rungs[<uint32_t> RUNG_OTHERS])
    return moves >= BORROWS_FEW and moves * <uint64_t> BORROWS_EVER > arena_allocs(arena)


cdef void views_allow(Climb *climb) noexcept nogil:
    """Under the lock: set `climb.views` if aliases are allowed, `climb.repeats` if they are useful.

    Aliases are allowed by the options `views` and `steal`, unless the driver refuses them or the
    arena has too many inactive mappings.  An alias is useful if an iteration of the arena has
    ended, as the next iteration uses the alias again.  It is not useful if many allocations move
    pages, as then their shapes do not repeat.
    """
    cdef Arena *arena = climb.arena
    climb.repeats = arena.iteration.emptied != 0 and not shapes_differ(arena)
    climb.views = (
        arena.pool.options.views and arena.pool.options.steals and not climb.refused
        and arena.maps.refusals < REFUSALS_MANY
        and arena.maps.shadows + climb.missing <= max(VIEWS_MOST * arena.pages, VIEWS_FEW))


cdef void take_views(Climb *climb, bint flush) noexcept nogil:
    cdef uint64_t pages
    if climb.views:
        attempt_try(RUNG_OWN)
        pages = pages_view(climb, climb.missing - climb.found, flush)
        if pages > 0:
            climb.found += pages
            climb.rung = RUNG_OWN


cdef void take_own(Climb *climb, bint wait) noexcept nogil:
    cdef Arena *arena = climb.arena
    cdef Frame *frames = NULL
    cdef uint64_t pages
    if climb_moves(climb) and pages_may_leave(arena, False):
        attempt_try(RUNG_OWN)
        pages = pages_move_out(arena, climb.missing - climb.found, wait, True, &frames)
        climb_add(climb, frames, pages, RUNG_OWN)


cdef inline size_t few_bytes(Pool *pool) noexcept nogil:
    """Return the reserved bytes up to which the pool grows rather than moves a page.

    They are one page for each stream, and at least FEW_PAGES.  With fewer, streams that need less
    than a page would take one page from each other for ever.
    """
    return max(count_read(&pool.arena_count), <uint32_t> FEW_PAGES) * pool.options.granule


cdef inline size_t permille(size_t bytes, size_t part) noexcept nogil:
    return bytes // 1000 * part


cdef void peaks_read(Climb *climb) noexcept nogil:
    """At the first call, set `climb.live`, `climb.own` and `climb.joint`; later, do nothing.

    So all steps of one allocation use equal numbers.  Sleeping blocks, which have no memory, are
    not counted in `own` and `joint`.  With one arena, or if streams are concurrent, `joint` is set
    to `own`.
    """
    cdef Pool *pool = climb.arena.pool
    cdef Source *source = &pool.source
    cdef size_t asleep                          # bytes of sleeping blocks, which have no memory
    cdef size_t own, joint
    if climb.live != 0:
        return
    spin_enter(&source.lock)
    climb.live = climb.size + source.shares.requested
    asleep = source.shares.asleep
    own = source.shares.peak
    joint = max(source.joint_peak, climb.live)
    spin_leave(&source.lock)
    if own < joint:
        own = joint
    elif count_read(&pool.arena_count) == 1:
        joint = own
    climb.own = own - min(asleep, own)
    climb.joint = climb.own if climb.at_once else joint - min(asleep, joint)


cdef void joint_note(Climb *climb) noexcept nogil:
    """After an allocation has succeeded: raise the pool's joint peak to `climb.live`, if higher."""
    cdef Source *source = &climb.arena.pool.source
    spin_enter(&source.lock)
    source.joint_peak = max(source.joint_peak, climb.live)
    spin_leave(&source.lock)


cdef uint64_t growth_allowed(Climb *climb) noexcept nogil:
    """Return the number of missing pages if the pool may make frames for all of them, else 0.

    With these frames, the reserved bytes must exceed neither GROW_ALWAYS nor GROW_JOINT, unless
    they are within `few_bytes`.
    """
    cdef size_t granule = climb.arena.pool.options.granule
    cdef uint64_t pages = climb.missing - climb.found
    cdef size_t need = stale_read(&climb.arena.pool.source.reserved) + pages * granule
    cdef size_t cap
    peaks_read(climb)
    # The joint peak limits growth too, as streams that work in turn share pages.
    cap = min(permille(climb.own, GROW_ALWAYS), permille(climb.joint, GROW_JOINT))
    return pages if need <= max(cap, few_bytes(climb.arena.pool)) else 0


cdef uint64_t growth_price(Climb *climb, uint64_t pages) noexcept nogil:
    """Return how many allocations must move pages before the pool may grow by `pages`.

    The number doubles with each 1 % by which the pool would then exceed its joint peak.  So if
    pages move often, the pool grows until they rarely move; but each growth makes the next one more
    expensive.
    """
    cdef Pool *pool = climb.arena.pool
    cdef size_t granule = pool.options.granule
    cdef size_t need = stale_read(&pool.source.reserved) + pages * granule
    cdef size_t excess = need - min(need, climb.joint)
    cdef size_t least = PRICE_PAGES * granule
    cdef size_t part
    if count_read(&pool.arena_count) > 1:  # several streams take the same pages from each other
        least += least - min(climb.joint, least)
    part = max(climb.joint, least) // 100
    return <uint64_t> PRICE_BORROWS << min(excess // part, <size_t> PRICE_DOUBLINGS)


cdef uint64_t growth_paid(Climb *climb) noexcept nogil:
    """Return the number of new frames for which earlier moves of pages pay; 0 if they do not.

    The number is at most 1 % of `climb.own`, plus one page.  After a payment, the count of moves
    begins again at 0.  If the price is PRICE_DEAR or more, also set `climb.repeats` again.
    """
    cdef Arena *arena = climb.arena
    cdef size_t granule = arena.pool.options.granule
    cdef uint64_t pages, price
    peaks_read(climb)
    pages = min(climb.missing - climb.found, climb.own // 100 // granule + 1)
    price = growth_price(climb, pages)
    lock_take(&arena.lock)
    if arena.growth.borrows < price:
        pages = 0
    else:
        # The moves are paid for, even if later steps fill the placement with moved pages.
        arena.growth.borrows = 0
        arena.growth.grown_at = arena_allocs(arena)
    if price >= PRICE_DEAR:     # growth did not end the moves: see PRICE_DEAR
        climb.repeats = arena.iteration.emptied != 0 and not borrows_often(arena)
    lock_drop(&arena.lock)
    return pages


cdef bint growth_waits(Climb *climb) noexcept nogil:
    """True if new frames for all missing pages would bring the reserved bytes above a limit.

    The limit is GROW_WAITING thousandths of the joint peak, or `few_bytes` if that is more.
    """
    cdef size_t granule = climb.arena.pool.options.granule
    cdef uint64_t pages = climb.missing - climb.found
    cdef size_t need = stale_read(&climb.arena.pool.source.reserved) + pages * granule
    peaks_read(climb)
    return need > max(permille(climb.joint, GROW_WAITING), few_bytes(climb.arena.pool))


cdef void step_spare(Climb *climb) noexcept nogil:
    """Fallback step: spare frames of the page source."""
    take_spare(climb)


cdef void step_paid(Climb *climb) noexcept nogil:
    """Fallback step: new frames, if earlier moves of pages have paid for them.

    They pay if enough allocations have moved pages since they last paid: see `growth_price`.  The
    number of frames is at most 1 % of the sum of the arenas' peaks, plus one.
    """
    take_driver(climb, growth_paid(climb), RUNG_GROW)


cdef void step_alias(Climb *climb) noexcept nogil:
    """Fallback step: aliases of the arena's own free pages, in three cases.

    - Shapes repeat, and the burst lacks no pages: the alias saves driver calls in the next
      iteration.  (If the burst lacks pages, streams work in turn.  Then an alias would save no
      call, as its page soon leaves the arena and loses all its mappings.)
    - Pages may not leave the arena (early frees, or a graph).  So they cannot be moved either.
    - The option `views` is VIEWS_ALWAYS.

    In all other cases later steps move pages, as an alias would not be used again.
    """
    if ((climb.repeats and not turn_lacks(climb)) or not pages_may_leave(climb.arena, False)
            or climb.arena.pool.options.views == VIEWS_ALWAYS):
        take_views(climb, climb.repeats)


cdef void step_grow(Climb *climb) noexcept nogil:
    """Fallback step: new frames, while `reserved` stays close to the peak: see `growth_allowed`."""
    take_driver(climb, growth_allowed(climb), RUNG_GROW)


cdef void step_burst(Climb *climb) noexcept nogil:
    """Fallback step: free pages of arenas whose streams are idle, as many as the burst needs.

    It is tried if the arena has fewer pages than its last bursts needed, and streams are not
    concurrent.
    """
    if turn_lacks(climb):
        turn_take(climb, False)


cdef void step_own(Climb *climb) noexcept nogil:
    """Fallback step: the arena's own free pages.

    If aliases are allowed, the pages are moved if the stream is idle, else aliased.  If pages are
    still missing, or if aliases are not allowed, pages are moved after a wait for the stream.
    """
    if climb.views:
        take_own(climb, False)
    if climb.found < climb.missing:
        take_views(climb, False)
    if climb.found < climb.missing:
        take_own(climb, True)


cdef void step_idle(Climb *climb) noexcept nogil:
    """Fallback step: free pages of arenas whose streams are idle."""
    turn_take(climb, False)


cdef void step_wait(Climb *climb) noexcept nogil:
    """Fallback step: free pages of other arenas, after a wait of at most SHARING_MS.

    It is tried only if new frames would let the pool exceed the limit of `growth_waits`.
    """
    cdef uint64_t before
    if growth_waits(climb):
        before = waits_shorten(SHARING_MS)
        turn_take(climb, True)
        waits_restore(before)


cdef void step_driver(Climb *climb) noexcept nogil:
    """Fallback step: new frames, up to the limit."""
    peaks_read(climb)                           # `joint_note` needs the result
    take_driver(climb, climb.missing - climb.found, RUNG_DRIVER)


cdef void step_others(Climb *climb) noexcept nogil:
    """Fallback step: free pages of other arenas, after a wait for their streams.

    If that is not enough and aliases are allowed: aliases of this arena's own free pages, for which
    its cache is flushed.
    """
    turn_take(climb, True)
    if climb.found < climb.missing:
        take_views(climb, True)


cdef void frames_gather(Climb *climb) noexcept nogil:
    """Try the fallback steps in their order until there is a frame for each missing page."""
    cdef uint32_t index
    for index in range(<uint32_t> STEPS):
        if climb.found >= climb.missing:
            return
        steps[index](climb)


cdef uint32_t stop_of(Pool *pool, size_t bytes) noexcept nogil:
    """Return the Stop bit for a size that is refused before the first fallback step.

    It is STOP_LIMIT if the size exceeds the pool's limit, else STOP_DEVICE.
    """
    cdef size_t limit = pool.options.limit
    return STOP_LIMIT if limit != 0 and bytes > limit else STOP_DEVICE


cdef bint could_fit(Pool *pool, size_t bytes) noexcept nogil:
    """True if `bytes` do not exceed the limit and, for a large request, fit on the device.

    From 1/MUCH_OF_DEVICE of the device's memory on, the driver is asked how much memory is free.
    Without this, the pool would take all free memory, page by page, before the request fails.
    If the result is false, the reason is noted by `attempt_stop`.
    """
    cdef size_t limit = pool.options.limit
    cdef size_t device = pool.options.device_bytes
    cdef size_t own = stale_read(&pool.source.reserved)
    cdef size_t room
    cdef uint32_t index
    cdef bint fits = limit == 0 or bytes <= limit
    cdef Arena *arena
    if fits and (device == 0 or bytes < device // MUCH_OF_DEVICE):
        return True
    if fits:
        for index in range(count_read(&pool.arena_count)):
            arena = pool.arenas[index]
            own -= min(own, stale_read(&arena.live) - min(
                stale_read(&arena.sleep.asleep), stale_read(&arena.live)))
        room = device_room(pool)
        fits = bytes <= device and (room == 0 or bytes <= room + own)
    if not fits:
        attempt_stop(stop_of(pool, bytes))
    return fits


cdef void climb_start(Climb *climb, Arena *arena, size_t size) noexcept nogil:
    memset(climb, 0, sizeof(Climb))
    climb.arena = arena
    climb.size = size
    climb.rung = RUNG_NONE


cdef Window window_old(Arena *arena, size_t size, uint32_t kind) noexcept nogil:
    """Return the best placement, even if old mappings in it must be unmapped.

    If the unmapping needs a wait for the stream, wait here, with the lock open.  If the old
    mappings cannot be unmapped now, return the best placement without such mappings.  If there is
    no placement, `first` is NULL in the result.
    """
    cdef void *graph = NULL
    cdef bint ready
    cdef Window window = window_find(arena, size, kind, DEMAND_ANY)
    if window.first == NULL:
        return window
    lock_drop(&arena.lock)
    ready = (pages_may_leave(arena, False) and not stream_captured(arena.pool, arena.stream, &graph)
             and (not window.waits or arena_rest(arena, True)))
    lock_take(&arena.lock)
    return window_find(arena, size, kind, DEMAND_RESTED if ready else DEMAND_PLAIN)


cdef Window window_choose(Arena *arena, size_t size, uint32_t kind, Window window) noexcept nogil:
    """Return `window` if it holds a placement; if it is empty, search for one.

    A placement in which old mappings must be unmapped first is only the second choice.  It may need
    one page less, but would cost a wait in each iteration.
    """
    if window.first == NULL:
        window = window_find(arena, size, kind, DEMAND_PLAIN)
    if window.first == NULL:
        window = window_old(arena, size, kind)
    return window


cdef Window window_open(Arena *arena, size_t size, uint32_t kind, Window window) noexcept nogil:
    window = window_choose(arena, size, kind, window)
    if window.first == NULL and range_open(arena, kind, size):
        window = window_choose(arena, size, kind, window)
    return window


cdef bint window_fill(Climb *climb) noexcept nogil:
    """Open the lock, get frames for the placement's missing pages, map them, and take the lock.

    False if there were not enough frames, or if the driver refused a call.
    """
    cdef Arena *arena = climb.arena
    cdef Pool *pool = arena.pool
    cdef size_t reserved
    cdef Frame *frame
    cdef Frame *vain = NULL
    cdef bint done = False
    views_allow(climb)
    lock_drop(&arena.lock)
    reserved = stale_read(&pool.source.reserved)
    turn_begin(climb)
    if could_fit(pool, climb.missing * pool.options.granule):
        frames_gather(climb)
    if climb.found >= climb.missing:
        done = window_map(climb)
    if done:
        joint_note(climb)
        if climb.found > climb.missing:
            turn_refill(climb)
    turn_end(climb)
    while climb.frames != NULL:
        frame = climb.frames
        climb.frames = frame.next
        if frame.holder == NULL:  # else the frame backs a page of the arena, and is kept there
            frame.next = vain
            vain = frame
    source_put(pool, vain)
    if not done:
        source_shrink(pool, reserved)  # the new frames are not used: give them to the driver
    lock_take(&arena.lock)
    arena.growth.borrows += climb.rung != RUNG_GROW and climb.rung != RUNG_DRIVER
    return done


cdef Block *window_take(Climb *climb, Window *window) noexcept nogil:
    """Under the lock, which is opened if pages are missing: claim a placement and fill it.

    Return the placement as a MOVING block.  On failure, release the placement and return NULL.
    """
    cdef bint done
    if not window_claim(climb, window):
        return NULL
    done = window_recall(climb)
    if done and climb.missing > 0:
        done = window_fill(climb)
    window_settle(climb)
    if not done:
        window_unclaim(climb)
        return NULL
    return window_join(climb)


cdef Block *pages_recall(Arena *arena, size_t size, uint32_t kind, Window *window) noexcept nogil:
    cdef Climb climb
    cdef Block *block
    window.first = NULL
    if arena.maps.shadows == 0:
        return NULL
    window[0] = window_find(arena, size, kind, DEMAND_PLAIN)
    if window.first == NULL or window.missing > 0:
        return NULL
    climb_start(&climb, arena, size)
    block = window_take(&climb, window)
    window.first = NULL
    return block


cdef Block *pages_obtain(Arena *arena, size_t size, uint32_t kind, Window *window) noexcept nogil:
    cdef Climb climb
    cdef Block *block = NULL
    cdef uint32_t _attempt
    cdef bint refused = False
    for _attempt in range(2):
        if arena.pool.no_virtual:
            return segment_obtain(arena, size, kind)
        window[0] = window_open(arena, size, kind, window[0])
        if window.first == NULL and arena.pool.no_virtual:
            return segment_obtain(arena, size, kind)
        if window.first == NULL:
            return NULL
        climb_start(&climb, arena, size)
        climb.refused = refused
        block = window_take(&climb, window)
        window.first = NULL
        if block != NULL:
            arena.counters.rungs[climb.rung] += 1
            return block
        if refused or not climb.refused:
            return NULL
        refused = True                          # try again without aliases
        arena.maps.refusals += 1
    return NULL


# --- without virtual memory ---------------------------------------------------------------------

cdef void *segment_climb(Arena *arena, size_t bytes, uint32_t *rung) noexcept nogil:
    """Allocate a segment and return its address, or NULL; set `rung`.

    If the first try fails, give free segments of this arena to the driver and try again.  Then do
    so with each of the other arenas.  If the option `steal` is off, or the stream is captured,
    there is only the first try.
    """
    cdef Pool *pool = arena.pool
    cdef uint64_t pages = bytes // pool.options.granule
    cdef uint32_t index
    cdef void *base = segment_malloc(pool, bytes)
    cdef void *graph = NULL
    rung[0] = RUNG_DRIVER
    if base != NULL or not pool.options.steals or stream_captured(pool, arena.stream, &graph):
        return base
    rung[0] = RUNG_OWN
    if pages_may_leave(arena, False):
        attempt_try(RUNG_OWN)
        if pages_donate(arena, pages, True) > 0:
            base = segment_malloc(pool, bytes)
        if base == NULL and pages_donate(arena, ~<uint64_t> 0, True) > 0:
            base = segment_malloc(pool, bytes)
    if base != NULL:
        return base
    rung[0] = RUNG_OTHERS
    for index in range(count_read(&pool.arena_count)):
        if (base == NULL and pool.arenas[index] != arena
                and pages_may_leave(pool.arenas[index], False)):
            attempt_try(RUNG_OTHERS)
            if pages_donate(pool.arenas[index], ~<uint64_t> 0, True) > 0:
                base = segment_malloc(pool, bytes)
    return base


cdef Block *segment_obtain(Arena *arena, size_t size, uint32_t kind) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef size_t granule = pool.options.granule
    cdef size_t exact = (size + granule - 1) // granule * granule
    cdef size_t bytes = exact
    cdef uint32_t rung = RUNG_NONE
    cdef void *base
    cdef Block *block
    if not could_fit(pool, exact):
        return NULL
    if pool.options.exact_segments == (kind == RANGE_SMALL) and bytes < SEGMENT_PAGES * granule:
        bytes = SEGMENT_PAGES * granule
    lock_drop(&arena.lock)
    tally_look(arena)
    base = segment_climb(arena, bytes, &rung)
    if base == NULL and bytes > exact:
        bytes = exact
        base = segment_climb(arena, bytes, &rung)
    if base != NULL:
        record_note(arena, EVENT_MAP, <char *> base, bytes, rung)
    lock_take(&arena.lock)
    if base == NULL:
        return NULL
    block = range_add(arena, kind, <char *> base, bytes, True)
    if block != NULL:
        arena.counters.rungs[rung] += 1
        return block
    lock_drop(&arena.lock)
    segment_free(pool, base, bytes)
    lock_take(&arena.lock)
    return NULL
