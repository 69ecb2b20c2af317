"""The slow path: where a block comes from when no mapped free space fits.

An allocation picks the window of addresses with the fewest missing pages, claims it (MOVING), and
fills its holes with frames, climbing one ladder (`frames_gather`): frames that are spare, the driver
while that costs next to nothing, whole free pages of its own arena, of idle arenas, the driver up to
the limit, arenas that are at work.  It holds no lock over a driver call: what it claimed is in a
state that nobody else touches.

Before a page that held data moves, the stream that may still use it is synchronised (I10).  The wait
has a timeout, for the caller may hold Python's GIL while a Python callback is queued on that stream;
when it expires the pages stay where they are and the next rung is tried.  A stream under capture is
never synchronised.

Refuses: to move pages of arenas that serve a framework with early frees, or when stealing is off.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from acl._bins cimport (
    bin_insert, bin_of, bin_remove, block_cut, block_drop, block_join, block_make, block_release,
    cache_flush, hole_insert, hole_release, links_block, links_remove,
)
from acl._core cimport (
    Arena, BINS, BLOCK_FREE, BLOCK_HOLE, BLOCK_MOVING, Bins, Block, CALL_FREE_PHYSICAL, CALL_MAP,
    CALL_MEM_INFO, CALL_PHYSICAL, CALL_QUERY, CALL_RELEASE, CALL_RESERVE, CALL_SYNC, CALL_UNMAP,
    Frame, MAX_RANGES, Pool, RANGE_KINDS, RANGE_LARGE, RANGE_TINY, Range, Source, UNIT,
    UNIT_SHIFT,
)
from acl._libacl cimport (
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_SUCCESS, aclError, aclrtDrvMemHandle, aclrtStreamStatus,
    ACL_STREAM_STATUS_COMPLETE,
)
from acl._lock cimport lock_drop, lock_take, spin_enter, spin_leave

cdef struct Window:             # where a slow allocation goes
    Block *first                # the lowest block that it touches
    char *start
    uint32_t missing            # pages
    bint tail                   # in the last hole of its range

cdef struct Climb:              # a slow allocation under way
    Arena *arena
    size_t size
    uint32_t kind
    Block *first                # the claimed window: MOVING blocks, first to last
    Block *last
    uint32_t missing            # pages
    Frame *frames               # what the ladder has brought
    uint32_t found              # pages in `frames`
    uint32_t highest            # highest rung that brought something

cdef enum:
    RUN_LENGTH = 64             # blocks of a run that are looked at from one start
    GROW_PERMILLE = 1012        # reserved over live peak up to which growing beats stealing


cdef inline Range *range_of(Arena *arena, Block *block) noexcept nogil:
    return arena.ranges[block.range]


cdef inline uint32_t page_floor(Range *span, char *addr, size_t granule) noexcept nogil:
    return <uint32_t> (<size_t> (addr - span.base) // granule)          # a range has 2^32 pages


cdef inline uint32_t page_ceil(Range *span, char *addr, size_t granule) noexcept nogil:
    return <uint32_t> ((<size_t> (addr - span.base) + granule - 1) // granule)


cdef inline char *block_end(Block *block) noexcept nogil:
    return block.addr + block.size


# --- the source --------------------------------------------------------------------------------

cdef void source_count(Source *source, uint32_t call, aclError status) noexcept nogil:
    spin_enter(&source.lock)
    source.calls[call] += 1
    if status != ACL_SUCCESS:
        source.failures += 1
    spin_leave(&source.lock)


cdef void source_put(Source *source, Frame *frames, size_t granule) noexcept nogil:
    """Keep frames that back nothing (I11)."""
    cdef Frame *after
    spin_enter(&source.lock)
    while frames != NULL:
        after = frames.next
        frames.next = source.spare
        source.spare = frames
        source.spare_bytes += frames.pages * granule
        frames = after
    spin_leave(&source.lock)


cdef bint source_claim(Pool *pool, size_t bytes) noexcept nogil:
    """Count bytes as reserved before asking the driver for them; false over the limit."""
    cdef Source *source = &pool.source
    cdef size_t limit = pool.options.limit
    cdef bint fits
    spin_enter(&source.lock)
    fits = limit == 0 or (source.reserved <= limit and bytes <= limit - source.reserved)
    if fits:
        source.reserved += bytes
    spin_leave(&source.lock)
    return fits


cdef void source_unclaim(Source *source, size_t bytes) noexcept nogil:
    spin_enter(&source.lock)
    source.reserved -= bytes
    spin_leave(&source.lock)


cdef bint headroom_left(Pool *pool, size_t bytes) noexcept nogil:
    cdef size_t room = 0, total = 0
    cdef aclError status
    if pool.options.headroom == 0:
        return True
    status = pool.source.driver.mem_info(pool.options.info_attr, &room, &total)
    source_count(&pool.source, CALL_MEM_INFO, status)
    return status != ACL_SUCCESS or room >= bytes + pool.options.headroom


cdef Frame *frame_make(Pool *pool, uint32_t pages) noexcept nogil:
    """A new frame from the driver, or NULL: over the limit, no headroom, or no memory."""
    cdef Source *source = &pool.source
    cdef size_t bytes = pages * pool.options.granule
    cdef aclError status
    cdef Frame *frame = <Frame *> calloc(1, sizeof(Frame))
    if frame == NULL:
        return NULL
    if not source_claim(pool, bytes):
        free(frame)
        return NULL
    if headroom_left(pool, bytes):
        status = source.driver.physical(&frame.handle, bytes, &source.prop, 0)
        source_count(source, CALL_PHYSICAL, status)
        if status == ACL_SUCCESS:
            frame.pages = pages
            return frame
    source_unclaim(source, bytes)
    free(frame)
    return NULL


cdef bint frame_return(Pool *pool, Frame *frame) noexcept nogil:
    """Give a frame that backs nothing back to the driver; kept as spare if that is refused."""
    cdef aclError status = pool.source.driver.free_physical(frame.handle)
    source_count(&pool.source, CALL_FREE_PHYSICAL, status)
    if status != ACL_SUCCESS:
        frame.next = NULL
        source_put(&pool.source, frame, pool.options.granule)
        return False
    source_unclaim(&pool.source, frame.pages * pool.options.granule)
    free(frame)
    return True


cdef size_t source_shrink(Pool *pool, size_t to) noexcept nogil:
    cdef Source *source = &pool.source
    cdef Frame *frame
    cdef size_t freed = 0, bytes
    while True:
        spin_enter(&source.lock)
        frame = source.spare if source.reserved > to else NULL
        if frame != NULL:
            source.spare = frame.next
            source.spare_bytes -= frame.pages * pool.options.granule
        spin_leave(&source.lock)
        if frame == NULL:
            return freed
        bytes = frame.pages * pool.options.granule
        if not frame_return(pool, frame):
            return freed
        freed += bytes


# --- ranges ------------------------------------------------------------------------------------

cdef bint range_open(Arena *arena, uint32_t kind, size_t size) noexcept nogil:
    """Reserve addresses for at least `size` bytes; unlocks over the driver call."""
    cdef Pool *pool = arena.pool
    cdef size_t granule = pool.options.granule
    cdef size_t bytes = pool.options.virtual_bytes
    cdef void *base = NULL
    cdef aclError status
    if kind == RANGE_TINY:
        bytes //= 16
    size = (size // granule + 2) * granule
    if bytes < size:
        bytes = size
    lock_drop(&arena.lock)
    while True:
        status = pool.source.driver.reserve(&base, bytes, 0, NULL, 0)
        source_count(&pool.source, CALL_RESERVE, status)
        if (status == ACL_SUCCESS or status == ACL_ERROR_RT_FEATURE_NOT_SUPPORT
                or bytes // 2 < size):
            break
        bytes = bytes // 2 // granule * granule
    lock_take(&arena.lock)
    if status != ACL_SUCCESS:
        if status == ACL_ERROR_RT_FEATURE_NOT_SUPPORT:
            pool.has_virtual = False
        return False
    if range_add(arena, kind, <char *> base, bytes):
        return True
    lock_drop(&arena.lock)
    status = pool.source.driver.release(base)
    source_count(&pool.source, CALL_RELEASE, status)
    lock_take(&arena.lock)
    return False


cdef bint range_add(Arena *arena, uint32_t kind, char *base, size_t bytes) noexcept nogil:
    cdef size_t granule = arena.pool.options.granule
    cdef uint32_t index
    cdef Range *span
    cdef Block *block
    for index in range(MAX_RANGES):
        if arena.ranges[index] == NULL:
            break
    else:
        return False
    span = <Range *> calloc(1, sizeof(Range))
    block = block_make(arena)
    if span == NULL or block == NULL:
        free(span)
        return False
    span.pages = <uint32_t> (bytes // granule)
    span.frames = <Frame **> calloc(span.pages, sizeof(Frame *))
    if span.frames == NULL:
        free(span)
        block_drop(arena, block)
        return False
    span.base = base
    span.bytes = span.pages * granule
    span.kind = kind
    span.index = index
    block.addr = base
    block.size = span.bytes
    block.prev = block.next = NULL
    block.range = index
    block.kind = kind
    block.flags = 0
    span.first = block
    arena.ranges[index] = span
    if index >= arena.range_count:
        arena.range_count = index + 1
    hole_insert(&arena.bins[kind], block)
    return True


# --- placement ---------------------------------------------------------------------------------

cdef inline bint is_space(Block *block) noexcept nogil:
    return block != NULL and (block.state == BLOCK_FREE or block.state == BLOCK_HOLE)


cdef inline uint32_t missing_in(Range *span, Block *block, char *start, char *end,
                                size_t granule) noexcept nogil:
    """Pages of a hole that the window [start, end) touches."""
    if block.state != BLOCK_HOLE:
        return 0
    if start < block.addr:
        start = block.addr
    if end > block_end(block):
        end = block_end(block)
    return page_ceil(span, end, granule) - page_floor(span, start, granule)


cdef void window_offer(Window *best, Block *first, char *start, uint32_t missing,
                       bint tail) noexcept nogil:
    if (best.first != NULL and (missing > best.missing or (missing == best.missing and (
            tail > best.tail or (tail == best.tail and start >= best.start))))):
        return
    best.first = first
    best.start = start
    best.missing = missing
    best.tail = tail


cdef void windows_up(Arena *arena, Block *block, size_t size, Window *best) noexcept nogil:
    """Offer the window that starts where `block` starts, if its run is long enough."""
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef char *start = block.addr
    cdef char *end = start + size
    cdef Block *first = block
    cdef uint32_t missing = 0, length = 0
    while is_space(block) and length < RUN_LENGTH:
        missing += missing_in(span, block, start, end, granule)
        if block_end(block) >= end:
            window_offer(best, first, start, missing,
                         block.next == NULL and block.state == BLOCK_HOLE)
            return
        block = block.next
        length += 1


cdef void windows_down(Arena *arena, Block *block, size_t size, Window *best) noexcept nogil:
    """Offer the window that ends where `block` ends, if its run is long enough."""
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef char *end = block_end(block)
    cdef char *start = end - size
    cdef uint32_t missing = 0, length = 0
    if block.next == NULL and block.state == BLOCK_HOLE:
        return                                  # never at the far end of the range
    while is_space(block) and length < RUN_LENGTH:
        missing += missing_in(span, block, start, end, granule)
        if block.addr <= start:
            window_offer(best, block, start, missing, False)
            return
        block = block.prev
        length += 1


cdef Window window_find(Arena *arena, size_t size, uint32_t kind) noexcept nogil:
    """The place with the fewest missing pages; among equals one before the tail, then the lowest.

    Every run of free addresses that is long enough holds a hole, for the bins had no block.
    """
    cdef Window best
    cdef Block *hole = arena.bins[kind].holes.next
    cdef Block *block
    best.first = NULL
    while hole != links_block(&arena.bins[kind].holes):
        block = hole.prev
        while is_space(block) and block.state == BLOCK_FREE:
            block = block.prev
        if not is_space(block):                 # the lowest hole of its run
            block = hole.prev if is_space(hole.prev) else hole
            while is_space(block):
                windows_up(arena, block, size, &best)
                windows_down(arena, block, size, &best)
                block = block.next
        hole = hole.links.next
    return best


cdef bint piece_detach(Arena *arena, Block *block, char *start, char *end,
                       Block **piece) noexcept nogil:
    """Take [start, end) out of a FREE or HOLE block as a MOVING one; false without descriptors.

    [ block ............... ]  =>  [ block ][ piece: MOVING ][ rest ]
    """
    cdef Bins *bins = &arena.bins[block.kind]
    cdef uint32_t state = block.state
    cdef Block *low = block_make(arena) if start > block.addr else NULL
    cdef Block *high = block_make(arena) if end < block_end(block) else NULL
    if (start > block.addr and low == NULL) or (end < block_end(block) and high == NULL):
        if low != NULL:
            block_drop(arena, low)
        return False
    if state == BLOCK_FREE:
        bin_remove(bins, block)
    else:
        links_remove(block)
    if high != NULL:
        block_cut(block, high, <size_t> (end - block.addr))
        piece_insert(bins, high, state)
    if low != NULL:
        block_cut(block, low, <size_t> (start - block.addr))
        piece_insert(bins, block, state)
        block = low
    block.state = BLOCK_MOVING
    piece[0] = block
    return True


cdef inline void piece_insert(Bins *bins, Block *block, uint32_t state) noexcept nogil:
    if state == BLOCK_FREE:
        bin_insert(bins, block)
    else:
        hole_insert(bins, block)


cdef inline bint piece_missing(Arena *arena, Block *block) noexcept nogil:
    """Whether a MOVING block's pages are missing: it was cut from a hole."""
    cdef Range *span = range_of(arena, block)
    return span.frames[page_floor(span, block.addr, arena.pool.options.granule)] == NULL


cdef void piece_release(Arena *arena, Block *block) noexcept nogil:
    """Put a MOVING block back where its pages say."""
    if piece_missing(arena, block):
        hole_release(arena, block)
    else:
        block_release(arena, block)


cdef bint window_claim(Climb *climb, Window *window) noexcept nogil:
    """Turn the window into MOVING blocks; holes are claimed by whole pages."""
    cdef Arena *arena = climb.arena
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, window.first)
    cdef char *end = window.start + climb.size
    cdef char *low
    cdef char *high
    cdef Block *block = window.first
    cdef Block *piece = NULL
    climb.first = NULL
    while True:
        low = block.addr if block.addr > window.start else window.start
        high = block_end(block) if block_end(block) < end else end
        if block.state == BLOCK_HOLE:
            low = span.base + page_floor(span, low, granule) * granule
            high = span.base + page_ceil(span, high, granule) * granule
        if not piece_detach(arena, block, low, high, &piece):
            if climb.first != NULL:
                window_unclaim(climb)
            return False
        if climb.first == NULL:
            climb.first = piece
        climb.last = piece
        if block_end(piece) >= end:
            return True
        block = piece.next


cdef void window_unclaim(Climb *climb) noexcept nogil:
    """Give the claimed window back, mapped pieces as free space, the others as holes."""
    cdef Block *block = climb.first
    cdef Block *last = climb.last
    cdef Block *after
    cdef bint done = False
    while not done:
        after = block.next
        done = block == last
        piece_settle(climb.arena, block)
        block = after


cdef Block *window_join(Climb *climb) noexcept nogil:
    """Make one MOVING block of the window, all of whose pages are mapped."""
    cdef Block *block = climb.first
    while block != climb.last:
        if block.next == climb.last:
            climb.last = block
        block_join(climb.arena, block, block.next)
    return block


# --- pages in and out --------------------------------------------------------------------------

cdef bint frame_map(Pool *pool, Range *span, uint32_t page, Frame *frame) noexcept nogil:
    cdef size_t granule = pool.options.granule
    cdef uint32_t index
    cdef aclError status = pool.source.driver.map(
        span.base + page * granule, frame.pages * granule, 0, frame.handle, 0)
    source_count(&pool.source, CALL_MAP, status)
    if status != ACL_SUCCESS:
        return False
    frame.page = page
    frame.next = NULL
    for index in range(frame.pages):
        span.frames[page + index] = frame
    return True


cdef bint frame_unmap(Pool *pool, Range *span, Frame *frame) noexcept nogil:
    cdef uint32_t index
    cdef aclError status = pool.source.driver.unmap(
        span.base + frame.page * pool.options.granule)
    source_count(&pool.source, CALL_UNMAP, status)
    if status != ACL_SUCCESS:
        return False
    for index in range(frame.pages):
        span.frames[frame.page + index] = NULL
    return True


cdef uint32_t window_map(Climb *climb) noexcept nogil:
    """Fill the window's holes from the climb's frames; says how many pages it mapped."""
    cdef Pool *pool = climb.arena.pool
    cdef size_t granule = pool.options.granule
    cdef Range *span = range_of(climb.arena, climb.first)
    cdef uint32_t page = page_floor(span, climb.first.addr, granule)
    cdef uint32_t end = page_ceil(span, block_end(climb.last), granule)
    cdef uint32_t mapped = 0
    cdef Frame *frame
    while page < end:
        if span.frames[page] == NULL:
            frame = climb.frames
            climb.frames = frame.next
            if not frame_map(pool, span, page, frame):
                frame.next = climb.frames
                climb.frames = frame
                break
            mapped += frame.pages
        page += 1
    return mapped


cdef uint32_t pages_inside(Arena *arena, Block *block, uint32_t want, uint32_t *first,
                           uint32_t *last) noexcept nogil:
    """Up to `want` neighbouring pages whose frames lie wholly in a block: [first, last)."""
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef uint32_t low = page_ceil(span, block.addr, granule)
    cdef uint32_t high = page_floor(span, block_end(block), granule)
    cdef uint32_t page
    if span.segment or low >= high:
        return 0
    # From the upper end, so that what is left stays joined to lower addresses.
    page = high
    while page > low and high - page < want:
        page -= 1
    first[0] = page
    last[0] = high
    return high - page


cdef Block *pages_detach(Arena *arena, uint32_t want, uint32_t *taken) noexcept nogil:
    """Under the lock: take whole free pages out of the bins, as a list of MOVING blocks."""
    cdef size_t granule = arena.pool.options.granule
    cdef uint32_t kind, index, first = 0, last = 0, pages
    cdef Block *block
    cdef Block *after
    cdef Block *piece = NULL
    cdef Block *pieces = NULL
    cdef Range *span
    taken[0] = 0
    for kind in range(RANGE_KINDS):
        for index in range(bin_of(granule >> UNIT_SHIFT), BINS):
            block = arena.bins[kind].heads[index].next
            while block != links_block(&arena.bins[kind].heads[index]) and taken[0] < want:
                after = block.links.next
                pages = pages_inside(arena, block, want - taken[0], &first, &last)
                span = range_of(arena, block)
                if pages > 0 and piece_detach(arena, block, span.base + first * granule,
                                              span.base + last * granule, &piece):
                    piece.links.next = pieces
                    pieces = piece
                    taken[0] += pages
                block = after
    return pieces


cdef uint32_t pieces_unmap(Arena *arena, Block *pieces, Frame **frames) noexcept nogil:
    """Without a lock: unmap detached pages, whose users are done; frames are added to the list."""
    cdef Pool *pool = arena.pool
    cdef size_t granule = pool.options.granule
    cdef Range *span
    cdef Frame *frame
    cdef uint32_t page, end, pages = 0
    while pieces != NULL:
        span = range_of(arena, pieces)
        page = page_floor(span, pieces.addr, granule)
        end = page_floor(span, block_end(pieces), granule)
        while page < end:
            frame = span.frames[page]
            if not frame_unmap(pool, span, frame):
                return pages
            frame.next = frames[0]
            frames[0] = frame
            page += frame.pages
            pages += frame.pages
        pieces = pieces.links.next
    return pages


cdef void piece_settle(Arena *arena, Block *block) noexcept nogil:
    """Put a detached piece back; one whose unmapping stopped half-way is cut there."""
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef uint32_t page = page_floor(span, block.addr, granule)
    cdef uint32_t end = page_floor(span, block_end(block), granule)
    cdef bint missing = span.frames[page] == NULL
    cdef Block *rest
    while page < end and (span.frames[page] == NULL) == missing:
        page += 1
    if page < end:
        rest = block_make(arena)
        if rest != NULL:
            block_cut(block, rest, <size_t> (span.base + page * granule - block.addr))
            piece_release(arena, rest)
    piece_release(arena, block)


cdef void pieces_settle(Arena *arena, Block *pieces, uint32_t unmapped) noexcept nogil:
    """Under the lock: count what was unmapped and put all pieces back."""
    cdef Block *after
    arena.pages -= unmapped
    while pieces != NULL:
        after = pieces.links.next
        piece_settle(arena, pieces)
        pieces = after


cdef bint stream_idle(Arena *arena) noexcept nogil:
    cdef aclrtStreamStatus state = ACL_STREAM_STATUS_COMPLETE
    cdef aclError status
    if arena.streamless:
        return False
    status = arena.pool.source.driver.query(arena.stream, &state)
    source_count(&arena.pool.source, CALL_QUERY, status)
    return status == ACL_SUCCESS and state == ACL_STREAM_STATUS_COMPLETE


cdef bint stream_wait(Arena *arena) noexcept nogil:
    """Wait, for a bounded time, for all work of the arena's stream; without a stream, the device."""
    cdef Pool *pool = arena.pool
    cdef aclError status
    if arena.streamless:
        status = pool.source.driver.sync_device(pool.options.sync_timeout_ms)
    else:
        status = pool.source.driver.sync(arena.stream, pool.options.sync_timeout_ms)
    source_count(&pool.source, CALL_SYNC, status)
    return status == ACL_SUCCESS


cdef uint32_t pages_move_out(Arena *arena, uint32_t want, bint wait, uint64_t *counter,
                             Frame **frames) noexcept nogil:
    """Detach, let the stream finish, unmap.  Without locks; says how many pages came out."""
    cdef Block *pieces
    cdef uint32_t taken = 0, pages = 0
    cdef bint ready
    lock_take(&arena.lock)
    cache_flush(arena)
    pieces = pages_detach(arena, want, &taken)
    lock_drop(&arena.lock)
    if pieces == NULL:
        return 0
    ready = stream_wait(arena) if wait else stream_idle(arena)
    if ready:
        pages = pieces_unmap(arena, pieces, frames)
    lock_take(&arena.lock)
    if wait:
        arena.counters.syncs += 1
        arena.counters.sync_timeouts += not ready
    counter[0] += pages
    pieces_settle(arena, pieces, pages)
    lock_drop(&arena.lock)
    return pages


cdef uint32_t pages_donate(Arena *arena, uint32_t want, bint wait) noexcept nogil:
    cdef Frame *frames = NULL
    cdef uint32_t pages
    if not arena.donates or not arena.pool.options.steals:
        return 0
    pages = pages_move_out(arena, want, wait, &arena.counters.donated, &frames)
    source_put(&arena.pool.source, frames, arena.pool.options.granule)
    return pages


# --- the ladder --------------------------------------------------------------------------------

cdef void climb_add(Climb *climb, Frame *frames, uint32_t pages, uint32_t rung) noexcept nogil:
    cdef Frame *last = frames
    if frames == NULL:
        return
    while last.next != NULL:
        last = last.next
    last.next = climb.frames
    climb.frames = frames
    climb.found += pages
    climb.highest = rung


cdef void take_spare(Climb *climb) noexcept nogil:
    cdef Source *source = &climb.arena.pool.source
    cdef Frame *frame
    while climb.found < climb.missing:
        spin_enter(&source.lock)
        frame = source.spare
        if frame != NULL:
            source.spare = frame.next
            source.spare_bytes -= frame.pages * climb.arena.pool.options.granule
        spin_leave(&source.lock)
        if frame == NULL:
            return
        frame.next = NULL
        climb_add(climb, frame, frame.pages, RUNG_SPARE)


cdef void take_driver(Climb *climb, uint32_t rung) noexcept nogil:
    cdef Frame *frame
    while climb.found < climb.missing:
        frame = frame_make(climb.arena.pool, 1)
        if frame == NULL:
            return
        climb_add(climb, frame, frame.pages, rung)


cdef void take_own(Climb *climb) noexcept nogil:
    cdef Arena *arena = climb.arena
    cdef Frame *frames = NULL
    cdef uint32_t pages
    if not arena.donates or not arena.pool.options.steals:
        return
    pages = pages_move_out(arena, climb.missing - climb.found, True, &arena.counters.steals, &frames)
    climb_add(climb, frames, pages, RUNG_OWN)


cdef void take_others(Climb *climb, bint wait, uint32_t rung) noexcept nogil:
    cdef Pool *pool = climb.arena.pool
    cdef uint32_t index
    cdef Arena *other
    cdef Frame *frames
    cdef uint32_t pages
    for index in range(pool.arena_count):
        other = pool.arenas[index]
        if (other == climb.arena or not other.donates or not pool.options.steals
                or climb.found >= climb.missing):
            continue
        frames = NULL
        pages = pages_move_out(other, climb.missing - climb.found, wait,
                               &other.counters.donated, &frames)
        climb_add(climb, frames, pages, rung)


cdef bint growth_is_cheap(Climb *climb) noexcept nogil:
    """Whether reserved stays within a hair of the live peak if the driver serves the rest."""
    cdef Pool *pool = climb.arena.pool
    cdef Source *source = &pool.source
    cdef size_t live = climb.size
    cdef size_t need = (climb.missing - climb.found) * pool.options.granule
    cdef size_t peak, reserved
    cdef uint32_t index
    for index in range(pool.arena_count):
        live += pool.arenas[index].requested            # a stale number does no harm
    spin_enter(&source.lock)
    if live > source.joint_peak:
        source.joint_peak = live
    peak = source.joint_peak
    reserved = source.reserved
    spin_leave(&source.lock)
    if pool.arena_count == 1 and climb.arena.requested_peak > peak:
        peak = climb.arena.requested_peak
    return reserved + need <= peak // 1000 * GROW_PERMILLE


cdef void frames_gather(Climb *climb) noexcept nogil:
    """The ladder: each rung brings frames until the window's missing pages are covered."""
    take_spare(climb)
    if climb.found < climb.missing and growth_is_cheap(climb):
        take_driver(climb, RUNG_GROW)
    if climb.found < climb.missing:
        take_own(climb)
    if climb.found < climb.missing:
        take_others(climb, False, RUNG_IDLE)
    if climb.found < climb.missing:
        take_driver(climb, RUNG_DRIVER)
    if climb.found < climb.missing:
        take_others(climb, True, RUNG_OTHERS)


cdef Block *pages_obtain(Arena *arena, size_t size, uint32_t kind) noexcept nogil:
    cdef Climb climb
    cdef Window window = window_find(arena, size, kind)
    cdef uint32_t mapped = 0
    climb.arena = arena
    climb.size = size
    climb.kind = kind
    climb.frames = NULL
    climb.found = 0
    climb.highest = RUNG_NONE
    if window.first == NULL and range_open(arena, kind, size):
        window = window_find(arena, size, kind)
    if window.first == NULL or not window_claim(&climb, &window):
        return NULL
    climb.missing = window.missing
    lock_drop(&arena.lock)
    frames_gather(&climb)
    if climb.found >= climb.missing:
        mapped = window_map(&climb)
    source_put(&arena.pool.source, climb.frames, arena.pool.options.granule)
    lock_take(&arena.lock)
    arena.pages += mapped
    if mapped < climb.missing:
        window_unclaim(&climb)
        return NULL
    arena.counters.rungs[climb.highest] += 1
    return window_join(&climb)
