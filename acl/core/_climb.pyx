"""The ladder that a slow allocation climbs for the pages of its window.

One function (`frames_gather`) has the rungs in order, each of them counted:

1. spare frames of the source;
2. the driver, a hundredth more, where taking pages does not come to rest by itself;
3. a second place for the arena's own free pages, where shapes repeat or frees come early;
4. the driver, while that keeps reserved close to the live peak;
5. free pages of arenas whose streams are idle, in bulk, if this one had more in its last turns;
6. its own free pages, moved, if its stream is idle; else a second place; else moved after a wait;
7. free pages of arenas whose streams are idle;
8. the driver, up to the limit;
9. free pages of arenas at work, after a wait; last, a second place for pages in the cache.

Before a page that held data is unmapped its stream is synchronised (I14), once, with a timeout: the
caller may hold Python's GIL while a Python callback is queued on that stream.  If it expires, the
pages stay and the next rung is tried.  While the stream is captured nothing is synchronised.

Refuses: to unmap pages of arenas that do not donate, or while moving is switched off.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from acl._core cimport (
    Arena, Block, Echo, Frame, Pool, RANGE_SMALL, RUNG_DRIVER, RUNG_GROW, RUNG_NONE,
    RUNG_OTHERS, RUNG_OWN, RUNG_SPARE, Source, UNIT_SHIFT, VIEWS_ALWAYS,
)
from acl.core._driver cimport (
    attempt_try, device_room, frame_make, segment_free, segment_malloc, source_put, source_shrink,
    source_take, stream_captured,
)
from acl.core._events cimport EVENT_MAP
from acl.core._lock cimport (
    count_read, lock_drop, lock_take, spin_enter, spin_leave, stale_read,
)
from acl.core._pages cimport (
    Climb, arena_rest, climb_add, pages_donate, pages_move_out, pages_view, window_claim,
    window_join, window_map, window_recall, window_settle, window_unclaim,
)
from acl.core._place cimport (
    DEMAND_ANY, DEMAND_PLAIN, DEMAND_RESTED, Window, range_add, range_open, window_find,
)
from acl.core._record cimport record_note
from acl.core._tally cimport arena_allocs
from acl.core._turns cimport turn_begin, turn_end, turn_lacks, turn_refill, turn_take

cdef enum:                      # of reserved over the live peak, in thousandths
    GROW_ALWAYS = 1018          # up to here growing beats moving pages
    GROW_JOINT = 1090           # and over the joint peak of several streams, up to here
    GROW_ROUNDS = 1020          # and where the same few allocations are slow in each round
    GROW_RESTLESS = 1100        # and borrowing pages too often, a hundredth each time

cdef enum:
    SEGMENT_PAGES = 8           # smallest segment of large blocks
    FEW_PAGES = 8               # so many a pool has before anything moves
    DOOMS_MANY = 4              # so often old views are unmapped before the arena grows instead
    BORROWS_MANY = 32
    BORROWS_NEW = 250           # one borrowing allocation in so many is too often
    BORROWS_ECHOED = 1000       # and where the same shapes repeat
    BORROWS_MOVED = 100         # so often a second place is not used again, and in the way
    ECHOES = 512
    ROUNDS_MANY = 4             # slow so often at the same place: the arena grows a little
    ROUNDS_ENDLESS = 48         # and so often: as far as one that borrows too often
    ECHO_LATE = 200             # allocations: so late is another round, not another layer
    VIEWS_MOST = 16             # shadows of an arena for each of its pages
    VIEWS_FEW = 8192            # or so many, if that is more
    REFUSALS_MANY = 3           # so often the driver may refuse to map a page twice
    MUCH_OF_DEVICE = 16         # a sixteenth of it


# --- the ladder ---------------------------------------------------------------------------------

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


cdef void views_allow(Climb *climb) noexcept nogil:
    """Under the lock: may free pages of this arena be mapped at a second place?"""
    cdef Arena *arena = climb.arena
    climb.views = (
        arena.pool.options.views and arena.pool.options.steals and not climb.refused
        and arena.refusals < REFUSALS_MANY
        and arena.shadows + climb.missing <= max(VIEWS_MOST * arena.pages, VIEWS_FEW))


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
    if climb.moves and arena.donates:
        attempt_try(RUNG_OWN)
        pages = pages_move_out(arena, climb.missing - climb.found, wait, True, &frames)
        climb_add(climb, frames, pages, RUNG_OWN)


cdef inline size_t permille(size_t bytes, size_t part) noexcept nogil:
    return bytes // 1000 * part


cdef void peaks_read(Climb *climb) noexcept nogil:
    """The sum of the arenas' own peaks, and the peak of their sum as far as seen."""
    cdef Pool *pool = climb.arena.pool
    cdef Source *source = &pool.source
    cdef Arena *arena
    cdef size_t live = climb.size
    cdef size_t asleep = 0                      # no memory is wanted for it
    cdef size_t own = 0
    cdef size_t joint
    cdef uint32_t index
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        live += stale_read(&arena.requested)
        asleep += stale_read(&arena.asleep)
        own += max(stale_read(&arena.requested_peak), stale_read(&arena.past_requested_peak))
    spin_enter(&source.lock)
    if live > source.joint_peak:
        source.joint_peak = live
    joint = source.joint_peak
    spin_leave(&source.lock)
    if own < joint:
        own = joint
    elif count_read(&pool.arena_count) == 1:
        joint = own
    climb.own = own - min(asleep, own)
    climb.joint = climb.own if climb.at_once else joint - min(asleep, joint)


cdef uint64_t growth_allowed(Climb *climb) noexcept nogil:
    """How many pages the driver may add before any is taken from elsewhere."""
    cdef size_t granule = climb.arena.pool.options.granule
    cdef uint64_t pages = climb.missing - climb.found
    cdef size_t need = stale_read(&climb.arena.pool.source.reserved) + pages * granule
    # Streams that are idle in turn share.
    cdef size_t cap = min(permille(climb.own, GROW_ALWAYS), permille(climb.joint, GROW_JOINT))
    # With a live peak below a page the ranges would take the same page from each other for ever.
    return pages if need <= cap or need <= FEW_PAGES * granule else 0


cdef void echo_hear(Climb *climb) noexcept nogil:
    """Whether this very allocation, with just as much live, was slow before: shapes repeat.

    If all was free in between, rounds begin alike, and what is slow here will be asked for again.
    """
    cdef Arena *arena = climb.arena
    cdef size_t live = arena.requested
    cdef uint64_t now = arena_allocs(arena)
    cdef Echo *echo = &arena.echoes[((live >> 5) * 31 + (climb.size >> UNIT_SHIFT)) % ECHOES]
    climb.heard = echo.size == climb.size and echo.live == live
    if not climb.heard:
        echo.size = climb.size
        echo.live = live
        echo.rounds = 0
    elif now - echo.allocs >= ECHO_LATE:
        echo.rounds += 1
    if climb.heard and echo.allocs < arena.emptied:
        arena.repeats = True
    climb.repeats = climb.heard or (arena.repeats and not borrows_often(arena, BORROWS_MOVED))
    echo.allocs = now
    climb.rounds = echo.rounds


cdef inline bint borrows_often(Arena *arena, uint64_t rate) noexcept nogil:
    """Whether more than one allocation in `rate` has borrowed pages since the arena last grew."""
    return (arena.borrows >= BORROWS_MANY
            and arena.borrows * rate > arena_allocs(arena) - arena.grown_at)


cdef size_t restless_cap(Climb *climb) noexcept nogil:
    """How far the arena may grow because of what it has borrowed since it last grew.  Locked.

    Second places alone do not always bring rounds of the same shapes to rest; then growth does.  A
    few slow allocations a round are not worth much memory, as the shapes may be others soon.
    """
    cdef Arena *arena = climb.arena
    cdef uint64_t rate = BORROWS_ECHOED if climb.rounds > 0 else BORROWS_NEW
    if climb.rounds >= ROUNDS_ENDLESS or borrows_often(arena, rate):
        return GROW_RESTLESS
    return GROW_ROUNDS if climb.rounds >= ROUNDS_MANY else 0


cdef uint64_t growth_calming(Climb *climb) noexcept nogil:
    """How many pages the driver may add because borrowing does not come to an end by itself."""
    cdef Arena *arena = climb.arena
    cdef size_t granule = arena.pool.options.granule
    cdef size_t part
    cdef uint64_t pages
    lock_take(&arena.lock)
    part = restless_cap(climb)
    lock_drop(&arena.lock)
    if part == 0:
        return 0
    pages = min(climb.missing - climb.found, climb.own // 100 // granule + 1)
    # `joint` is at most `own`.
    if stale_read(&arena.pool.source.reserved) + pages * granule > permille(climb.joint, part):
        return 0
    lock_take(&arena.lock)      # other pages may still move for the rest of the window
    arena.borrows = 0
    arena.grown_at = arena_allocs(arena)
    lock_drop(&arena.lock)
    return pages


cdef void frames_gather(Climb *climb) noexcept nogil:
    """The ladder: each rung brings frames until the window's missing pages are covered."""
    cdef Pool *pool = climb.arena.pool
    cdef void *graph = NULL
    take_spare(climb)
    if climb.found < climb.missing:
        peaks_read(climb)
        take_driver(climb, growth_calming(climb), RUNG_GROW)
    # Where shapes repeat a second place saves the next round its calls, where the stream is at work
    # it saves a wait; else pages move, as the second place would only lie there.
    if climb.found < climb.missing and (
            climb.repeats or not climb.arena.donates
            or pool.options.views == VIEWS_ALWAYS):
        take_views(climb, False)
    if climb.found < climb.missing:
        take_driver(climb, growth_allowed(climb), RUNG_GROW)
    if climb.found < climb.missing:
        climb.moves = pool.options.steals and not stream_captured(pool, climb.arena.stream, &graph)
        if turn_lacks(climb):
            turn_take(climb, False)
    if climb.found < climb.missing and climb.views:
        take_own(climb, False)
    if climb.found < climb.missing:
        take_views(climb, False)
    if climb.found < climb.missing:
        take_own(climb, True)
    if climb.found < climb.missing:
        turn_take(climb, False)
    if climb.found < climb.missing:
        take_driver(climb, climb.missing - climb.found, RUNG_DRIVER)
    if climb.found < climb.missing:
        turn_take(climb, True)
    if climb.found < climb.missing:
        take_views(climb, True)


cdef bint could_fit(Pool *pool, size_t bytes) noexcept nogil:
    """Whether limit and device could hold so much more if all that is not live were free.

    The device is asked only where much is wanted: to find out page by page takes all that it has.
    """
    cdef size_t limit = pool.options.limit
    cdef size_t device = pool.options.device_bytes
    cdef size_t own = stale_read(&pool.source.reserved)
    cdef size_t room
    cdef uint32_t index
    cdef Arena *arena
    if limit != 0 and bytes > limit:
        return False
    if device == 0 or bytes < device // MUCH_OF_DEVICE:
        return True
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        own -= min(own, stale_read(&arena.live) - min(
            stale_read(&arena.asleep), stale_read(&arena.live)))
    room = device_room(pool)
    return bytes <= device and (room == 0 or bytes <= room + own)


cdef void climb_start(Climb *climb, Arena *arena, size_t size) noexcept nogil:
    memset(climb, 0, sizeof(Climb))
    climb.arena = arena
    climb.size = size
    climb.rung = RUNG_NONE


cdef bint dooms_thrash(Arena *arena) noexcept nogil:
    """Whether the arena has unmapped old views often enough since it grew to grow instead."""
    cdef size_t peak = max(arena.requested_peak, arena.past_requested_peak)
    cdef size_t granule = arena.pool.options.granule
    return (arena.dooms >= DOOMS_MANY and arena.pages * granule
            <= max(permille(peak, GROW_ALWAYS), FEW_PAGES * granule))


cdef Window window_choose(Arena *arena, size_t size, uint32_t kind, Window window) noexcept nogil:
    """The best window that is allowed; where old views must go first, after a wait for that."""
    cdef void *graph = NULL
    cdef bint ready
    if window.first == NULL:
        window = window_find(arena, size, kind, DEMAND_ANY)
    if window.first == NULL or window.stale == 0:
        return window
    if dooms_thrash(arena):
        return window_find(arena, size, kind, DEMAND_PLAIN)
    lock_drop(&arena.lock)
    ready = (arena.donates and not stream_captured(arena.pool, arena.stream, &graph)
             and (not window.waits or arena_rest(arena, True)))
    lock_take(&arena.lock)
    window = window_find(arena, size, kind, DEMAND_RESTED if ready else DEMAND_PLAIN)
    arena.dooms += window.first != NULL and window.stale > 0
    return window


cdef Window window_open(Arena *arena, size_t size, uint32_t kind, Window window) noexcept nogil:
    window = window_choose(arena, size, kind, window)
    if window.first == NULL and range_open(arena, kind, size):
        window = window_choose(arena, size, kind, window)
    return window


cdef bint window_fill(Climb *climb) noexcept nogil:
    """Bring frames and map them.  Unlocks; false if the window is not whole afterwards."""
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
    if done and climb.found > climb.missing:
        turn_refill(climb)
    turn_end(climb)
    while climb.frames != NULL:
        frame = climb.frames
        climb.frames = frame.next
        if frame.holder == NULL:                # others have not left their places
            frame.next = vain
            vain = frame
    source_put(pool, vain)
    if not done:
        source_shrink(pool, reserved)           # what was taken in vain goes back
    lock_take(&arena.lock)
    if climb.rung == RUNG_GROW or climb.rung == RUNG_DRIVER:
        arena.dooms = arena.borrows = 0
        arena.grown_at = arena_allocs(arena)
    else:
        arena.borrows += 1
    return done


cdef Block *window_take(Climb *climb, Window *window) noexcept nogil:
    """Under the lock: claim, recall, fill.  A MOVING block, or NULL and all is as it was."""
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
    if arena.shadows == 0:
        return NULL
    window[0] = window_find(arena, size, kind, DEMAND_ANY)
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
        if not refused:
            echo_hear(&climb)
        block = window_take(&climb, window)
        window.first = NULL
        if block != NULL:
            arena.counters.rungs[climb.rung] += 1
            return block
        if refused or not climb.refused:
            return NULL
        refused = True                          # again, and pages move instead
        arena.refusals += 1
    return NULL


# --- without virtual memory ---------------------------------------------------------------------

cdef void *segment_climb(Arena *arena, size_t bytes, uint32_t *rung) noexcept nogil:
    """The same ladder for segments: the driver, and again after free segments went back to it."""
    cdef Pool *pool = arena.pool
    cdef uint64_t pages = bytes // pool.options.granule
    cdef uint32_t index
    cdef void *base = segment_malloc(pool, bytes)
    cdef void *graph = NULL
    rung[0] = RUNG_DRIVER
    if base != NULL or not pool.options.steals or stream_captured(pool, arena.stream, &graph):
        return base
    rung[0] = RUNG_OWN
    if arena.donates:
        attempt_try(RUNG_OWN)
    if arena.donates and pages_donate(arena, pages, True) > 0:
        base = segment_malloc(pool, bytes)
    if base == NULL and arena.donates and pages_donate(arena, ~<uint64_t> 0, True) > 0:
        base = segment_malloc(pool, bytes)
    if base != NULL:
        return base
    rung[0] = RUNG_OTHERS
    for index in range(count_read(&pool.arena_count)):
        if base == NULL and pool.arenas[index].donates and pool.arenas[index] != arena:
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
