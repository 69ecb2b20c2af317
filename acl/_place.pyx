"""Ranges, and where in them a block goes that fits nowhere in mapped space.

A window is a stretch of FREE and HOLE blocks of the right length.  The best one takes the fewest
fresh pages, that is pages that are missing or wholly free: what it covers of partly used pages
costs nothing, as nobody else could use their rest for long.  Among equals the fewest missing pages
win (each is a driver call), then a place before the tail of its range, then the lowest address: so
holes are used up before the range wears out.  A range that is full gets a second one.
"""

from libc.stdint cimport uint8_t, uint16_t
from libc.stdlib cimport calloc, free

from acl._bins cimport block_drop, block_make, hole_insert, links_block
from acl._core cimport BINS, BLOCK_MOVING, Frame, MAX_RANGES, Pool, RANGE_SMALL
from acl._driver cimport range_reserve, range_unreserve
from acl._lock cimport lock_drop, lock_take

cdef enum:
    RUN_LENGTH = 64             # blocks of a run that are looked at from one start
    SMALL_SHARE = 16            # ranges of small blocks are that much shorter


cdef bint range_open(Arena *arena, uint32_t kind, size_t size) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef size_t granule = pool.options.granule
    cdef size_t least = (size // granule + 2) * granule
    cdef size_t bytes = pool.options.virtual_bytes
    cdef void *base
    if kind == RANGE_SMALL:
        bytes //= SMALL_SHARE
    bytes = least if bytes < least else bytes // granule * granule
    lock_drop(&arena.lock)
    base = range_reserve(pool, &bytes, least)
    lock_take(&arena.lock)
    if base == NULL:
        return False
    if range_add(arena, kind, <char *> base, bytes, False) != NULL:
        return True
    lock_drop(&arena.lock)
    range_unreserve(pool, base)
    lock_take(&arena.lock)
    return False


cdef Range *range_make(Pool *pool, char *base, size_t bytes, bint segment) noexcept nogil:
    cdef Range *span = <Range *> calloc(1, sizeof(Range))
    if span == NULL:
        return NULL
    span.base = base
    span.bytes = bytes
    span.pages = <uint32_t> (bytes // pool.options.granule)     # fits: below 2^46 bytes
    span.segment = segment
    if not segment:
        span.frames = <Frame **> calloc(span.pages, sizeof(Frame *))
        if span.frames == NULL:
            free(span)
            return NULL
    return span


cdef Block *range_add(Arena *arena, uint32_t kind, char *base, size_t bytes,
                      bint segment) noexcept nogil:
    """Adopt addresses as one block: a hole, or the MOVING block of a segment; NULL: no room."""
    cdef uint32_t index = 0
    cdef Range *span
    cdef Block *block
    while index < arena.range_count and arena.ranges[index] != NULL:
        index += 1
    if index == MAX_RANGES:
        return NULL
    block = block_make(arena)
    span = range_make(arena.pool, base, bytes, segment) if block != NULL else NULL
    if span == NULL:
        if block != NULL:
            block_drop(arena, block)
        return NULL
    span.index = <uint16_t> index               # fits: MAX_RANGES
    span.kind = <uint8_t> kind                  # fits: RangeKind
    span.first = block
    arena.ranges[index] = span
    if index == arena.range_count:
        arena.range_count += 1
    block.addr = base
    block.size = bytes
    block.prev = block.next = NULL
    block.flags = 0
    block.range = span.index
    block.bin = <uint16_t> (kind * BINS)        # fits: RangeKind
    if segment:
        block.state = BLOCK_MOVING
        arena.pages += span.pages
    else:
        hole_insert(&arena.bins, block)
    return block


cdef void range_drop(Arena *arena, Block *block) noexcept nogil:
    cdef Range *span = range_of(arena, block)
    if span.segment:
        arena.pages -= span.pages
    arena.ranges[span.index] = NULL
    free(span.frames)
    free(span)
    block_drop(arena, block)


cdef inline void window_add(Window *window, Range *span, Block *block, char *end,
                            size_t granule) noexcept nogil:
    """Count the pages that the window [window.start, end) touches in one block."""
    cdef char *low = block.addr if block.addr > window.start else window.start
    cdef char *high = block_end(block) if block_end(block) < end else end
    cdef uint32_t first = page_floor(span, low, granule)
    cdef uint32_t last = page_ceil(span, high, granule)
    if block.state == BLOCK_HOLE:
        window.missing += last - first
    else:
        if first < page_ceil(span, block.addr, granule):
            first = page_ceil(span, block.addr, granule)
        if last > page_floor(span, block_end(block), granule):
            last = page_floor(span, block_end(block), granule)
    if last > first:
        window.fresh += last - first


cdef void window_offer(Window *best, Window *other) noexcept nogil:
    if best.first != NULL:
        if other.fresh != best.fresh:
            if other.fresh > best.fresh:
                return
        elif other.missing != best.missing:
            if other.missing > best.missing:
                return
        elif other.tail != best.tail:
            if other.tail:
                return
        elif other.start >= best.start:
            return
    best[0] = other[0]


cdef void window_up(Arena *arena, Block *block, size_t size, Window *best) noexcept nogil:
    """Offer the window that starts where `block` starts, if its run is long enough."""
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef char *end = block.addr + size
    cdef uint32_t length = 0
    cdef Window window
    window.first = block
    window.start = block.addr
    window.missing = window.fresh = 0
    while is_space(block) and length < RUN_LENGTH:
        window_add(&window, span, block, end, granule)
        if block_end(block) >= end:
            window.tail = block.next == NULL and block.state == BLOCK_HOLE
            window_offer(best, &window)
            return
        block = block.next
        length += 1


cdef void window_down(Arena *arena, Block *block, size_t size, Window *best) noexcept nogil:
    """Offer the window that ends where `block` ends, if its run is long enough."""
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef char *end = block_end(block)
    cdef uint32_t length = 0
    cdef Window window
    if block.next == NULL and block.state == BLOCK_HOLE:
        return                                  # never at the far end of the range
    if <size_t> (end - span.base) < size:
        return
    window.start = end - size
    window.missing = window.fresh = 0
    window.tail = False
    while is_space(block) and length < RUN_LENGTH:
        window_add(&window, span, block, end, granule)
        if block.addr <= window.start:
            window.first = block
            window_offer(best, &window)
            return
        block = block.prev
        length += 1


cdef bint leads_run(Block *hole) noexcept nogil:
    """Whether no hole lies below this one in the same run of free addresses."""
    cdef Block *block = hole.prev
    return not is_space(block) or block.state != BLOCK_FREE or not is_space(block.prev)


cdef Window window_find(Arena *arena, size_t size, uint32_t kind) noexcept nogil:
    """The best window; every run that is long enough holds a hole, for the bins had no block."""
    cdef Window best
    cdef Block *stop = links_block(&arena.bins.holes[kind])
    cdef Block *hole = stop.links.next
    cdef Block *block
    best.first = NULL
    while hole != stop:
        if leads_run(hole):
            block = hole.prev if is_space(hole.prev) else hole
            while is_space(block):
                window_up(arena, block, size, &best)
                window_down(arena, block, size, &best)
                block = block.next
        hole = hole.links.next
    return best
