"""The slow path: where a block comes from when no mapped free space fits.

An allocation picks a window of addresses (`_place`), claims it (MOVING) and fills its holes with
frames, climbing one ladder (`frames_gather`): spare frames, the driver while that costs next to
nothing, whole free pages of its own arena, those of idle arenas, the driver up to the limit, arenas
at work.  No lock is held over a driver call: what is claimed is in a state nobody else touches.

Before a page that held data moves, its stream is synchronised (I10), once, with a timeout: the
caller may hold Python's GIL while a Python callback is queued on that stream.  If it expires, the
pages stay and the next rung is tried.  While the stream is captured nothing is synchronised.

Growing beats stealing while it costs little (`growth_allowed`): pages that move back and forth cost
a synchronisation each time.

Refuses: to move pages of arenas that do not donate, or while moving is switched off.
"""

from acl._bins cimport (
    bin_insert, bin_of, bin_remove, block_cut, block_drop, block_join, block_make, block_release,
    cache_flush, hole_insert, hole_release, links_block, links_remove,
)
from acl._core cimport (
    BINS, BLOCK_FREE, BLOCK_HOLE, BLOCK_MOVING, Bins, Echo, Frame, Pool, RANGE_KINDS, RANGE_SMALL,
    RUNG_DRIVER, RUNG_GROW, RUNG_IDLE, RUNG_NONE, RUNG_OTHERS, RUNG_OWN, RUNG_SPARE, Range, Source,
    UNIT_SHIFT,
)
from acl._driver cimport (
    frame_make, frame_map, frame_unmap, segment_free, segment_malloc, source_put, source_shrink,
    source_take, stream_captured, stream_idle, stream_wait,
)
from acl._events cimport EVENT_MAP, EVENT_UNMAP
from acl._lock cimport (
    count_read, lock_drop, lock_take, spin_enter, spin_leave, stale_read,
)
from acl._place cimport (
    Window, block_end, page_ceil, page_floor, range_add, range_drop, range_of, range_open,
    window_find,
)
from acl._record cimport record_note
from acl._tally cimport arena_hits

cdef struct Climb:              # a slow allocation under way
    Arena *arena
    size_t size
    Block *first                # the claimed window: MOVING blocks, first to last
    Block *last
    uint64_t missing            # pages
    Frame *frames               # what the ladder has brought
    uint64_t found              # their number
    uint32_t rung               # the highest that brought something
    bint moves                  # whether pages may move for it

cdef enum:                      # of reserved over the live peak, in thousandths
    GROW_ALWAYS = 1008          # up to here growing beats stealing
    GROW_AFTER_WAITS = 1020     # up to here it does after a few steals
    GROW_JOINT = 1090           # and over the joint peak of several streams, up to here
    GROW_THRASHING = 1250       # up to here while stealing goes on and on, a hundredth each time
    GROW_THRASHING_JOINT = 1100

cdef enum:
    WAITS_FEW = 8
    WAITS_MANY = 32
    WAITS_RATE = 500            # one steal in so many allocations is too many
    SEGMENT_PAGES = 8           # smallest segment of large blocks
    ECHOES = 64
    ECHO_SOON = 150             # allocations: sooner means another layer
    ECHO_LATE = 20000           # so late it cannot be chance
    ECHO_SURE = 8
    FEW_PAGES = 8               # so many a pool has before anything moves


# --- windows ------------------------------------------------------------------------------------

cdef inline void piece_insert(Bins *bins, Block *block, uint32_t state) noexcept nogil:
    if state == BLOCK_FREE:
        bin_insert(bins, block)
    else:
        hole_insert(bins, block)


cdef Block *piece_detach(Arena *arena, Block *block, char *start, char *end) noexcept nogil:
    """Take [start, end) out of a FREE or HOLE block as a MOVING one; NULL without descriptors.

    [ block ............... ]  =>  [ block ][ piece: MOVING ][ high ]
    """
    cdef Bins *bins = &arena.bins
    cdef uint32_t state = block.state
    cdef Block *piece = block_make(arena) if start > block.addr else block
    cdef Block *high = block_make(arena) if end < block_end(block) else NULL
    if piece == NULL or (high == NULL and end < block_end(block)):
        if piece != NULL and piece != block:
            block_drop(arena, piece)
        return NULL
    if state == BLOCK_FREE:
        bin_remove(bins, block)
    else:
        links_remove(block)
    if high != NULL:
        block_cut(block, high, <size_t> (end - block.addr))
        piece_insert(bins, high, state)
    if piece != block:
        block_cut(block, piece, <size_t> (start - block.addr))
        piece_insert(bins, block, state)
    piece.state = BLOCK_MOVING
    return piece


cdef inline bint page_missing(Arena *arena, char *addr, Block *block) noexcept nogil:
    cdef Range *span = range_of(arena, block)
    return (not span.segment
            and span.frames[page_floor(span, addr, arena.pool.options.granule)] == NULL)


cdef void piece_release(Arena *arena, Block *block) noexcept nogil:
    if page_missing(arena, block.addr, block):
        hole_release(arena, block)
    else:
        block_release(arena, block)


cdef void piece_settle(Arena *arena, Block *block) noexcept nogil:
    """Put a MOVING block back, as its pages say; where mapping or unmapping stopped it is cut."""
    cdef size_t granule = arena.pool.options.granule
    cdef bint missing = page_missing(arena, block.addr, block)
    cdef char *addr = block.addr + granule
    cdef Block *rest
    while addr < block_end(block) and page_missing(arena, addr, block) == missing:
        addr += granule
    if addr < block_end(block):
        rest = block_make(arena)
        if rest != NULL:
            block_cut(block, rest, <size_t> (addr - block.addr))
            piece_release(arena, rest)
    piece_release(arena, block)


cdef bint window_claim(Climb *climb, Window *window) noexcept nogil:
    """Turn the window into MOVING blocks; holes are claimed by whole pages."""
    cdef Arena *arena = climb.arena
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, window.first)
    cdef char *end = window.start + climb.size
    cdef char *low
    cdef char *high
    cdef Block *block = window.first
    climb.first = NULL
    while True:
        low = block.addr if block.addr > window.start else window.start
        high = block_end(block) if block_end(block) < end else end
        if block.state == BLOCK_HOLE:
            low = span.base + page_floor(span, low, granule) * granule
            high = span.base + page_ceil(span, high, granule) * granule
        block = piece_detach(arena, block, low, high)
        if block == NULL:
            if climb.first != NULL:
                window_unclaim(climb)
            return False
        if climb.first == NULL:
            climb.first = block
        climb.last = block
        if block_end(block) >= end:
            return True
        block = block.next


cdef void window_unclaim(Climb *climb) noexcept nogil:
    cdef Block *block = climb.first
    cdef Block *after
    cdef bint done = False
    while not done:
        after = block.next
        done = block == climb.last
        piece_settle(climb.arena, block)
        block = after


cdef uint64_t window_map(Climb *climb) noexcept nogil:
    """Fill the window's holes with the climb's frames; says how many pages it mapped."""
    cdef Pool *pool = climb.arena.pool
    cdef size_t granule = pool.options.granule
    cdef Range *span = range_of(climb.arena, climb.first)
    cdef uint32_t page = page_floor(span, climb.first.addr, granule)
    cdef uint32_t end = page_ceil(span, block_end(climb.last), granule)
    cdef uint64_t mapped = 0
    cdef Frame *frame
    while page < end:
        if span.frames[page] == NULL:
            frame = climb.frames
            climb.frames = frame.next
            if not frame_map(pool, span, page, frame):
                frame.next = climb.frames
                climb.frames = frame
                return mapped
            record_note(climb.arena, EVENT_MAP, span.base + page * granule, granule, climb.rung)
            mapped += 1
        page += 1
    return mapped


cdef Block *window_join(Climb *climb) noexcept nogil:
    """Make one MOVING block of the window."""
    cdef Block *block = climb.first
    cdef Block *last = climb.last
    cdef bint done = block == last
    while not done:
        done = block.next == last
        block_join(climb.arena, block, block.next)
    return block


# --- pages out ----------------------------------------------------------------------------------

cdef Block *piece_of_pages(Arena *arena, Block *block, uint64_t want,
                           uint64_t *taken) noexcept nogil:
    """Detach up to `want` whole pages from the upper end of a FREE block, or a whole segment."""
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef uint32_t low, high
    cdef Block *piece
    if span.segment:
        if block.size != span.bytes:
            return NULL
        taken[0] += span.pages
        return piece_detach(arena, block, block.addr, block_end(block))
    low = page_ceil(span, block.addr, granule)
    high = page_floor(span, block_end(block), granule)
    if low >= high:
        return NULL
    if high - low > want:
        low = high - <uint32_t> want            # fits: below high
    piece = piece_detach(arena, block, span.base + low * granule, span.base + high * granule)
    if piece != NULL:
        taken[0] += high - low
    return piece


cdef uint64_t pages_detach(Arena *arena, uint64_t want, Block **pieces) noexcept nogil:
    """Under the lock: whole free pages, smallest blocks first, added to a list as MOVING."""
    cdef uint32_t kind, index
    cdef uint64_t taken = 0
    cdef Block *block
    cdef Block *after
    cdef Block *stop
    cdef Block *piece
    for kind in range(<uint32_t> RANGE_KINDS):                  # an enum
        index = kind * BINS + bin_of(arena.pool.options.granule >> UNIT_SHIFT)
        while index < (kind + 1) * BINS and taken < want:
            stop = links_block(&arena.bins.heads[index])
            block = stop.links.next
            while block != stop and taken < want:
                after = block.links.next
                piece = piece_of_pages(arena, block, want - taken, &taken)
                if piece != NULL:
                    piece.requested = 0
                    piece.links.next = pieces[0]
                    pieces[0] = piece
                block = after
            index += 1
    return taken


cdef uint64_t pieces_unmap(Arena *arena, Block *pieces, Frame **frames) noexcept nogil:
    """Without locks: take the frames out of detached pages; how many, until one was refused."""
    cdef Pool *pool = arena.pool
    cdef size_t granule = pool.options.granule
    cdef Range *span
    cdef Frame *frame
    cdef uint32_t page, end
    cdef uint64_t pages = 0
    while pieces != NULL:
        span = range_of(arena, pieces)
        if not span.segment:
            page = page_floor(span, pieces.addr, granule)
            end = page_floor(span, block_end(pieces), granule)
            while page < end:
                frame = frame_unmap(pool, span, page)
                if frame == NULL:
                    return pages
                record_note(arena, EVENT_UNMAP, span.base + page * granule, granule, 1)
                frame.next = frames[0]
                frames[0] = frame
                pages += 1
                page += 1
        elif segment_free(pool, span.base, span.bytes):
            record_note(arena, EVENT_UNMAP, span.base, span.bytes, 0)
            pieces.requested = 1                # marks it for `pieces_settle`
        pieces = pieces.links.next
    return pages


cdef uint64_t pieces_settle(Arena *arena, Block *pieces) noexcept nogil:
    """Under the lock: put detached pieces back; says how many pages went with freed segments."""
    cdef Block *after
    cdef uint64_t pages = 0
    while pieces != NULL:
        after = pieces.links.next
        if pieces.requested != 0:
            pages += range_of(arena, pieces).pages
            range_drop(arena, pieces)
        else:
            piece_settle(arena, pieces)
        pieces = after
    return pages


cdef uint64_t pages_move_out(Arena *arena, uint64_t want, bint wait, bint own,
                             Frame **frames) noexcept nogil:
    """Detach, let the stream finish, unmap.  Without locks; says how many pages came out."""
    cdef Block *pieces = NULL
    cdef uint64_t pages
    cdef bint ready
    lock_take(&arena.lock)
    pages = pages_detach(arena, want, &pieces)
    if pages < want and cache_flush(arena) != 0:
        pages_detach(arena, want - pages, &pieces)
    lock_drop(&arena.lock)
    pages = 0
    if pieces == NULL:
        return 0
    ready = stream_wait(arena) if wait else stream_idle(arena)
    if ready:
        pages = pieces_unmap(arena, pieces, frames)
    lock_take(&arena.lock)
    arena.counters.syncs += wait
    arena.counters.sync_failures += wait and not ready
    arena.pages -= pages
    pages += pieces_settle(arena, pieces)
    if own:
        arena.counters.steals += pages
    else:
        arena.counters.donated += pages
    lock_drop(&arena.lock)
    return pages


cdef uint64_t pages_donate(Arena *arena, uint64_t want, bint wait) noexcept nogil:
    cdef Frame *frames = NULL
    cdef uint64_t pages = pages_move_out(arena, want, wait, False, &frames)
    source_put(arena.pool, frames)
    return pages


# --- the ladder ---------------------------------------------------------------------------------

cdef void climb_add(Climb *climb, Frame *frames, uint64_t pages, uint32_t rung) noexcept nogil:
    cdef Frame *last = frames
    if frames == NULL:
        return
    while last.next != NULL:
        last = last.next
    last.next = climb.frames
    climb.frames = frames
    climb.found += pages
    climb.rung = rung


cdef void take_spare(Climb *climb) noexcept nogil:
    cdef Frame *frame
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


cdef void take_own(Climb *climb) noexcept nogil:
    cdef Arena *arena = climb.arena
    cdef Frame *frames = NULL
    cdef uint64_t pages
    if climb.moves and arena.donates:
        pages = pages_move_out(arena, climb.missing - climb.found, True, True, &frames)
        climb_add(climb, frames, pages, RUNG_OWN)
        lock_take(&arena.lock)
        arena.waits += 1
        lock_drop(&arena.lock)


cdef void take_others(Climb *climb, bint wait, uint32_t rung) noexcept nogil:
    cdef Pool *pool = climb.arena.pool
    cdef uint32_t index
    cdef Arena *other
    cdef Frame *frames
    cdef uint64_t pages
    if not climb.moves:
        return
    for index in range(count_read(&pool.arena_count)):
        other = pool.arenas[index]
        if other != climb.arena and other.donates and climb.found < climb.missing:
            frames = NULL
            pages = pages_move_out(other, climb.missing - climb.found, wait, False, &frames)
            climb_add(climb, frames, pages, rung)


cdef inline uint64_t arena_allocs(Arena *arena) noexcept nogil:
    return arena_hits(arena) + arena.counters.fits + arena.counters.slow


cdef inline size_t permille(size_t bytes, size_t part) noexcept nogil:
    return bytes // 1000 * part


cdef void peaks_read(Climb *climb, size_t *own, size_t *joint, size_t *reserved) noexcept nogil:
    """The sum of the arenas' own peaks, the peak of their sum as far as seen, and `reserved`."""
    cdef Pool *pool = climb.arena.pool
    cdef Source *source = &pool.source
    cdef Arena *arena
    cdef size_t live = climb.size
    cdef size_t peak, past
    cdef uint32_t index
    own[0] = 0
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        live += stale_read(&arena.requested)
        peak = stale_read(&arena.requested_peak)
        past = stale_read(&arena.past_requested_peak)
        own[0] += peak if peak > past else past
    spin_enter(&source.lock)
    if live > source.joint_peak:
        source.joint_peak = live
    joint[0] = source.joint_peak
    reserved[0] = source.reserved
    spin_leave(&source.lock)
    if own[0] < joint[0]:
        own[0] = joint[0]
    elif count_read(&pool.arena_count) == 1:
        joint[0] = own[0]


cdef bint steals_thrash(Arena *arena) noexcept nogil:
    """Whether the arena has moved its own pages too often since it last grew."""
    return (arena.waits >= WAITS_MANY
            and arena.waits * WAITS_RATE > arena_allocs(arena) - arena.allocs_at)


cdef uint32_t echo_heard(Climb *climb) noexcept nogil:
    """How surely this very allocation, with just as much live, comes again: 0, 1 or 2.  Locked.

    Then shapes repeat, and without growth pages would move in each round for ever.  Layers of one
    pass of a net are not meant: what comes again soon counts little.
    """
    cdef Arena *arena = climb.arena
    cdef size_t live = arena.requested
    cdef uint64_t now = arena_allocs(arena)
    cdef Echo *echo = &arena.echoes[((live >> 5) * 31 + (climb.size >> UNIT_SHIFT)) % ECHOES]
    cdef uint64_t passed = now - echo.allocs
    if echo.size != climb.size or echo.live != live:
        echo.size = climb.size
        echo.live = live
        echo.allocs = now
        echo.weight = 0
        return 0
    if passed >= ECHO_LATE:
        echo.weight = ECHO_SURE
    elif passed >= ECHO_SOON:
        echo.weight += 1
    echo.allocs = now
    return 0 if echo.weight < ECHO_SURE else 2 if passed >= ECHO_LATE else 1


cdef uint64_t growth_allowed(Climb *climb) noexcept nogil:
    """How many pages the driver may add before any is moved."""
    cdef Arena *arena = climb.arena
    cdef size_t own, joint, reserved, cap, need
    cdef uint32_t heard
    cdef bint thrash
    cdef uint64_t waits
    cdef uint64_t pages = climb.missing - climb.found
    peaks_read(climb, &own, &joint, &reserved)
    need = reserved + pages * arena.pool.options.granule
    lock_take(&arena.lock)
    waits = arena.waits
    lock_drop(&arena.lock)
    cap = permille(own, GROW_AFTER_WAITS if waits >= WAITS_FEW else GROW_ALWAYS)
    if permille(joint, GROW_JOINT) < cap:       # streams that are idle in turn share
        cap = permille(joint, GROW_JOINT)
    # With a live peak below a page the ranges would take the same page from each other for ever.
    if need <= cap or need <= FEW_PAGES * arena.pool.options.granule:
        return pages
    cap = permille(own, GROW_THRASHING)
    if count_read(&arena.pool.arena_count) > 1 and permille(joint, GROW_THRASHING_JOINT) < cap:
        cap = permille(joint, GROW_THRASHING_JOINT)
    lock_take(&arena.lock)
    heard = echo_heard(climb)
    thrash = steals_thrash(arena)
    lock_drop(&arena.lock)
    if heard == 0 and not thrash:
        return 0
    if heard < 2 or reserved + pages * arena.pool.options.granule > cap:
        pages = min(pages, own // 100 // arena.pool.options.granule + 1)
    return pages if reserved + pages * arena.pool.options.granule <= cap else 0


cdef void frames_gather(Climb *climb) noexcept nogil:
    """The ladder: each rung brings frames until the window's missing pages are covered."""
    cdef uint64_t growth
    cdef void *graph = NULL
    take_spare(climb)
    if climb.found < climb.missing:
        growth = growth_allowed(climb)
        if growth > 0:
            lock_take(&climb.arena.lock)
            climb.arena.waits = 0
            climb.arena.allocs_at = arena_allocs(climb.arena)
            lock_drop(&climb.arena.lock)
            take_driver(climb, growth, RUNG_GROW)
    if climb.found < climb.missing:
        climb.moves = not (climb.arena.pool.moves_off or stream_captured(
            climb.arena.pool, climb.arena.stream, &graph))
        take_own(climb)
    if climb.found < climb.missing:
        take_others(climb, False, RUNG_IDLE)
    if climb.found < climb.missing:
        take_driver(climb, climb.missing - climb.found, RUNG_DRIVER)
    if climb.found < climb.missing:
        take_others(climb, True, RUNG_OTHERS)


cdef bint limit_allows(Climb *climb) noexcept nogil:
    """Whether the limit could hold the missing pages if everything else were free."""
    cdef Pool *pool = climb.arena.pool
    return pool.options.limit == 0 or climb.missing <= pool.options.limit // pool.options.granule


cdef Block *pages_obtain(Arena *arena, size_t size, uint32_t kind) noexcept nogil:
    cdef Climb climb
    cdef Window window
    cdef uint64_t mapped = 0
    cdef size_t reserved
    if arena.pool.no_virtual:
        return segment_obtain(arena, size, kind)
    window = window_find(arena, size, kind)
    if window.first == NULL and range_open(arena, kind, size):
        window = window_find(arena, size, kind)
    if window.first == NULL and arena.pool.no_virtual:
        return segment_obtain(arena, size, kind)
    climb.arena = arena
    climb.size = size
    climb.frames = NULL
    climb.found = 0
    climb.rung = RUNG_NONE
    climb.missing = window.missing
    if window.first == NULL or not window_claim(&climb, &window):
        return NULL
    lock_drop(&arena.lock)
    reserved = stale_read(&arena.pool.source.reserved)
    if limit_allows(&climb):
        frames_gather(&climb)
    if climb.found >= climb.missing:
        mapped = window_map(&climb)
    source_put(arena.pool, climb.frames)
    if mapped < climb.missing:
        source_shrink(arena.pool, reserved)     # what was taken in vain goes back
    lock_take(&arena.lock)
    arena.pages += mapped
    if mapped < climb.missing:
        window_unclaim(&climb)
        return NULL
    arena.counters.rungs[climb.rung] += 1
    return window_join(&climb)


# --- without virtual memory ---------------------------------------------------------------------

cdef void *segment_climb(Arena *arena, size_t bytes, uint32_t *rung) noexcept nogil:
    """The same ladder for segments: the driver, and again after free segments went back to it."""
    cdef Pool *pool = arena.pool
    cdef uint64_t pages = bytes // pool.options.granule
    cdef uint32_t index
    cdef void *base = segment_malloc(pool, bytes)
    cdef void *graph = NULL
    rung[0] = RUNG_DRIVER
    if base != NULL or pool.moves_off or stream_captured(pool, arena.stream, &graph):
        return base
    rung[0] = RUNG_OWN
    if arena.donates and pages_donate(arena, pages, True) > 0:
        base = segment_malloc(pool, bytes)
    if base == NULL and arena.donates and pages_donate(arena, ~<uint64_t> 0, True) > 0:
        base = segment_malloc(pool, bytes)
    if base != NULL:
        return base
    rung[0] = RUNG_OTHERS
    for index in range(count_read(&pool.arena_count)):
        if base == NULL and pool.arenas[index].donates and pool.arenas[index] != arena:
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
