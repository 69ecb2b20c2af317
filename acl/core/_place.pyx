"""Address ranges, and the search for a placement if no free block is large enough.

A placement (`Window`) is a run of FREE and HOLE blocks, cut to the length of the request.  The best
placement is the one for which the arena needs the least new memory.  If several placements need
equally little, these rules decide, in this order: the fewest fresh pages, the fewest pages without
memory, a position before the last hole of the range, the lowest address.  Fresh pages are pages
without memory and wholly free pages.  Partly used pages do not count, as other large blocks could
hardly use their free parts.  A page where a mapping of another frame must be unmapped first counts
twice.

The choice depends on which blocks are live and free, not on which mappings could be reactivated.
So the same requests in the same state get the same addresses, where their pages are still mapped.

When all ranges of an arena are full, it reserves another range.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from acl.core._bins cimport bit_lowest, block_drop, block_make, hole_insert, links_block
from acl.core.types cimport (
    BINS, BLOCK_FREE, BLOCK_HOLE, BLOCK_MOVING, DEBUG_LEVEL, FIRST_RANGES, Frame, MAX_RANGES, Pool,
    RANGE_SMALL, STOP_TABLE, View,
)
from acl.core._driver cimport attempt_stop, range_reserve, range_unreserve
from acl.core._frames cimport frames_stamp, pages_free
from acl.core._lock cimport count_read, lock_drop, lock_take, pointer_publish
from acl.core._space cimport block_end, is_space, page_ceil, page_floor, range_of
from acl.core.policy cimport FULL_ARENAS, RANGE_LEAST, RUN_LENGTH, SMALL_SHARE

cdef struct Search:
    Arena *arena
    size_t size                 # bytes of the block
    uint32_t demand             # Demand: which placements it may return
    uint32_t free               # number of wholly free pages of the arena
    bint stamped                # `frames_stamp` was called: `Frame.stamp` of free frames is valid
    Window best                 # the best placement so far


cdef size_t range_wish(Pool *pool) noexcept nogil:
    """Return the bytes of addresses for a new range for large blocks.

    With more than FULL_ARENAS arenas, they are fewer than the option `virtual_bytes` says.
    """
    cdef size_t bytes = pool.options.virtual_bytes
    cdef uint32_t arenas = count_read(&pool.arena_count)
    if arenas <= FULL_ARENAS:
        return bytes
    return max(bytes // arenas * FULL_ARENAS, min(bytes, <size_t> RANGE_LEAST))


cdef bint range_open(Arena *arena, uint32_t kind, size_t size) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef size_t granule = pool.options.granule
    cdef size_t least = (size // granule + 2) * granule
    cdef size_t bytes = range_wish(pool)
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
    span.pages = <uint32_t> (bytes // pool.options.granule)     # safe cast: bytes are below 2^46
    span.segment = segment
    if not segment:
        span.views = <View **> calloc(span.pages, sizeof(View *))
        span.starts = <uint16_t *> calloc(span.pages, sizeof(uint16_t))
        span.marks = <uint64_t *> calloc(span.pages // 64 + 1, sizeof(uint64_t))
        if DEBUG_LEVEL >= 1:
            span.freed = <uint64_t *> calloc(span.pages, sizeof(uint64_t))
        if span.views == NULL or span.starts == NULL or span.marks == NULL:
            range_free(span)
            return NULL
    return span


cdef void range_free(Range *span) noexcept nogil:
    free(span.views)
    free(span.starts)
    free(span.marks)
    free(span.freed)
    free(span)


cdef bint ranges_grow(Arena *arena) noexcept nogil:
    """Under the lock: double the slots for ranges.

    False if there are MAX_RANGES slots already, or if there is no host memory.
    """
    cdef uint32_t table = 0
    cdef uint32_t room = min(max(2 * arena.space.range_room, <uint32_t> FIRST_RANGES),
                             <uint32_t> MAX_RANGES)
    cdef Range **ranges
    if room == arena.space.range_room:
        attempt_stop(STOP_TABLE)
        return False
    ranges = <Range **> calloc(room, sizeof(Range *))
    if ranges == NULL:
        return False
    while arena.space.range_tables[table] != NULL:
        table += 1
    if arena.space.range_room != 0:
        memcpy(ranges, arena.space.ranges, arena.space.range_room * sizeof(Range *))
    arena.space.range_tables[table] = ranges
    arena.space.range_room = room
    pointer_publish(<void **> &arena.space.ranges, ranges)
    return True


cdef Block *range_add(Arena *arena, uint32_t kind, char *base, size_t bytes,
                      bint segment) noexcept nogil:
    """Add a range that consists of one block, and return the block: a HOLE; for a segment, MOVING.

    NULL: there is no host memory, or the arena has MAX_RANGES ranges.
    """
    cdef uint32_t index = 0
    cdef Range *span
    cdef Block *block
    while index < arena.space.range_count and arena.space.ranges[index] != NULL:
        index += 1
    if index == arena.space.range_room and not ranges_grow(arena):
        return NULL
    block = block_make(arena)
    span = range_make(arena.pool, base, bytes, segment) if block != NULL else NULL
    if span == NULL:
        if block != NULL:
            block_drop(arena, block)
        return NULL
    span.index = <uint16_t> index               # safe cast: below MAX_RANGES
    span.kind = <uint8_t> kind                  # safe cast: a RangeKind
    span.first = block
    arena.space.ranges[index] = span
    if index == arena.space.range_count:
        arena.space.range_count += 1
    block.addr = base
    block.size = bytes
    block.prev = block.next = NULL
    block.flags = 0
    block.range = span.index
    block.bin = <uint16_t> (kind * BINS)        # safe cast: below 2 * BINS
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
    arena.space.ranges[span.index] = NULL
    range_free(span)
    block_drop(arena, block)


cdef inline void window_add(Window *window, Range *span, Block *block, char *end,
                            size_t granule) noexcept nogil:
    """Add the pages of a block, from `window.start` up to `end`, to `window.fresh` and `.holes`."""
    cdef char *low = block.addr if block.addr > window.start else window.start
    cdef char *high = block_end(block) if block_end(block) < end else end
    cdef uint32_t first = page_floor(span, low, granule)
    cdef uint32_t last = page_ceil(span, high, granule)
    if block.state == BLOCK_HOLE:
        window.holes += last - first
    else:
        if first < page_ceil(span, block.addr, granule):
            first = page_ceil(span, block.addr, granule)
        if last > page_floor(span, block_end(block), granule):
            last = page_floor(span, block_end(block), granule)
    if last > first:
        window.fresh += last - first


cdef inline bint page_recalls(Search *search, Range *span, Frame *frame, uint32_t low,
                              uint32_t high) noexcept nogil:
    """True if an inactive mapping of `frame` can be reactivated for the placement [low, high).

    The frame must be free, its active mapping must be outside the placement, and no other mapping
    of the frame may have been counted for this placement.  If true, the frame is marked as counted.
    """
    cdef Arena *arena = search.arena
    cdef View *holder = frame.holder
    if not search.stamped:
        frames_stamp(arena, NULL)               # only when needed, as it visits all free frames
        search.stamped = True
    if (frame.stamp != arena.maps.search or frame.mark == arena.maps.window
            or (holder.range == span.index and low <= holder.page < high)):
        return False
    frame.mark = arena.maps.window
    return True


cdef bint hole_price(Search *search, Window *window, Range *span, uint32_t page, uint32_t end,
                     uint32_t low, uint32_t high) noexcept nogil:
    """Add the driver calls for a hole's pages [page, end) to the price of placement [low, high).

    The price is in `missing`, `stale` and `waits` of the placement.  False if one of the pages
    cannot be used now.
    """
    cdef Arena *arena = search.arena
    cdef View *view
    while page < end:
        view = span.views[page]
        page += 1
        if view == NULL:
            window.missing += 1
        elif view.frame == NULL:
            return False  # a retired mapping: being unmapped, or the driver refused to unmap it
        elif not page_recalls(search, span, view.frame, low, high):
            window.missing += 1
            window.stale += 1
            window.waits = window.waits or view.vacated >= arena.maps.rested
    return True


cdef bint window_price(Search *search, Window *window, char *end) noexcept nogil:
    """Set `missing`, `stale` and `waits` of a placement: the driver calls and the wait it needs.

    False if one of its pages cannot be used now, or if `search.demand` forbids the placement.
    """
    cdef size_t granule = search.arena.pool.options.granule
    cdef Range *span = range_of(search.arena, window.first)
    cdef uint32_t low = page_floor(span, window.start, granule)
    cdef uint32_t high = page_ceil(span, end, granule)
    cdef uint32_t page, last
    cdef Block *block = window.first
    search.arena.maps.window += 1
    window.missing = window.stale = 0
    window.waits = False
    while True:
        if block.state == BLOCK_HOLE:
            page = max(low, page_floor(span, block.addr, granule))
            last = min(high, page_floor(span, block_end(block), granule))
            if not hole_price(search, window, span, page, last, low, high):
                return False
        if block_end(block) >= end:
            break
        block = block.next
    if window.stale > 0 and search.demand != DEMAND_ANY:
        return search.demand == DEMAND_RESTED and not window.waits
    return True


cdef bint window_beats(Window *window, Window *best) noexcept nogil:
    """True if `window` is better than `best`, by the rules at the head of this file.

    Before `window_price` has set `window.stale`, which is 0 then, True means "perhaps better", and
    False means "certainly not better".
    """
    if window.growth != best.growth:
        return window.growth < best.growth
    if window.fresh + window.stale != best.fresh + best.stale:
        return window.fresh + window.stale < best.fresh + best.stale
    if window.holes != best.holes:
        return window.holes < best.holes
    if window.tail != best.tail:
        return best.tail
    return window.start < best.start


cdef void window_offer(Search *search, Window *window, char *end) noexcept nogil:
    cdef Window *best = &search.best
    window.stale = 0
    window.growth = window.fresh - search.free if window.fresh > search.free else 0
    if best.first != NULL and not window_beats(window, best):
        return
    if (window_price(search, window, end)
            and (best.first == NULL or window_beats(window, best))):
        best[0] = window[0]


cdef void window_up(Search *search, Block *block) noexcept nogil:
    """Consider the placement that starts where `block` does.

    There is none if the run of FREE and HOLE blocks ends too early, or if the placement would need
    more than RUN_LENGTH blocks.
    """
    cdef size_t granule = search.arena.pool.options.granule
    cdef Range *span = range_of(search.arena, block)
    cdef char *end = block.addr + search.size
    cdef uint32_t length = 0
    cdef Window window
    window.first = block
    window.start = block.addr
    window.fresh = window.holes = 0
    while is_space(block) and length < RUN_LENGTH:
        window_add(&window, span, block, end, granule)
        if block_end(block) >= end:
            window.tail = block.next == NULL and block.state == BLOCK_HOLE
            window_offer(search, &window, end)
            return
        block = block.next
        length += 1


cdef void window_down(Search *search, Block *block) noexcept nogil:
    """Consider the placement that ends where `block` does, except at the end of the last hole.

    There is none if the run of FREE and HOLE blocks begins too late, or if the placement would need
    more than RUN_LENGTH blocks.
    """
    cdef size_t granule = search.arena.pool.options.granule
    cdef Range *span = range_of(search.arena, block)
    cdef char *end = block_end(block)
    cdef uint32_t length = 0
    cdef Window window
    if block.next == NULL and block.state == BLOCK_HOLE:
        return                                  # the last hole is used from its lower end only
    if <size_t> (end - span.base) < search.size:
        return
    window.start = end - search.size
    window.fresh = window.holes = 0
    window.tail = False
    while is_space(block) and length < RUN_LENGTH:
        window_add(&window, span, block, end, granule)
        if block.addr <= window.start:
            window.first = block
            window_offer(search, &window, end)
            return
        block = block.prev
        length += 1


cdef void window_inside(Search *search, Block *hole, uint32_t page, uint32_t pages) noexcept nogil:
    """Consider the placement of `pages` pages that starts at `page`, if it ends inside the hole."""
    cdef Range *span = range_of(search.arena, hole)
    cdef Window window
    cdef char *end
    window.first = hole
    window.start = span.base + page * search.arena.pool.options.granule
    end = window.start + search.size
    if end > block_end(hole):
        return
    window.fresh = window.holes = pages
    window.tail = hole.next == NULL
    window_offer(search, &window, end)


cdef uint32_t start_after(Range *span, uint32_t page, uint32_t end) noexcept nogil:
    """Return the first page from `page` on whose bit in `marks` is set.

    A result of `end` or more means that no such page is below `end`.
    """
    cdef uint32_t word = page >> 6
    cdef uint64_t marks
    if page >= end:
        return page
    marks = span.marks[word] & (~<uint64_t> 0 << (page & 63))
    while marks == 0:
        word += 1
        if word << 6 >= end:
            return end
        marks = span.marks[word]
    return (word << 6) + bit_lowest(marks)


cdef void hole_offer(Search *search, Block *hole) noexcept nogil:
    """Consider placements that start inside a hole; `run_offer` considers those at its ends.

    Let n be the number of pages that the block needs.  A placement may start at each page at which
    an earlier placement filled a hole of n to 9/8 n pages.  In the last hole of a range, one more
    may start at the first page that was never mapped.
    """
    cdef size_t granule = search.arena.pool.options.granule
    cdef Range *span = range_of(search.arena, hole)
    cdef uint32_t pages = <uint32_t> ((search.size + granule - 1) // granule)
    cdef uint32_t page = page_floor(span, hole.addr, granule) + 1
    cdef uint32_t end = min(page_floor(span, block_end(hole), granule), span.top)
    while True:
        page = start_after(span, page, end)
        if page >= end:
            break
        if span.starts[page] >= pages and span.starts[page] <= pages + pages // 8:
            window_inside(search, hole, page, pages)
        page += 1
    if hole.next == NULL and span.top < span.pages:
        window_inside(search, hole, max(span.top, page), pages)


cdef bint leads_run(Block *hole) noexcept nogil:
    """True if `hole` is the lowest hole of its run of FREE and HOLE blocks."""
    cdef Block *block = hole.prev
    return not is_space(block) or block.state != BLOCK_FREE or not is_space(block.prev)


cdef void run_offer(Search *search, Block *block) noexcept nogil:
    """Consider the placements that start or end with a block of a run of FREE and HOLE blocks.

    `block` is the lowest block of the run.  Most runs are too short.  So the length is compared
    before the blocks of a placement are visited.
    """
    cdef char *low = block.addr
    cdef char *high = low
    cdef Block *last = block
    while is_space(last):
        high = block_end(last)
        last = last.next
    if <size_t> (high - low) < search.size:
        return
    while block != last:
        if <size_t> (high - block.addr) >= search.size:
            window_up(search, block)
        if <size_t> (block_end(block) - low) >= search.size:
            window_down(search, block)
        block = block.next


cdef Window window_find(Arena *arena, size_t size, uint32_t kind, uint32_t demand) noexcept nogil:
    """Return the best placement that `demand` allows; `first` is NULL if there is none.

    Visits only runs with holes, because the bins were searched for a FREE block before.
    """
    cdef Search search
    cdef Block *stop = links_block(&arena.bins.holes[kind])
    cdef Block *hole = stop.links.next
    search.arena = arena
    search.size = size
    search.demand = demand
    search.free = pages_free(arena)
    search.stamped = False
    search.best.first = NULL
    while hole != stop:
        if leads_run(hole):
            run_offer(&search, hole.prev if is_space(hole.prev) else hole)
        if hole.size >= size:
            hole_offer(&search, hole)
        hole = hole.links.next
    return search.best
