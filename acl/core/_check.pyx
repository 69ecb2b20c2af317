"""The checker of the invariants.

`arena_check` visits every block of every range, then every list, and compares the sums.  It runs
under the arena's lock and changes nothing.  Two checks are skipped while another thread may be
changing the data: the check of pages with MOVING blocks, and, while a thread polls or frees WAITING
blocks, the check of the queues of Uses.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdio cimport fprintf, stderr
from libc.stdlib cimport abort
from libc.string cimport memset

from acl.core._asleep cimport naps_check
from acl.core._bins cimport bin_of, KIND_WORDS, links_block, queue_after
from acl.core.types cimport (
    BINS, Bins, Block, BLOCK_ASLEEP, BLOCK_CACHED, BLOCK_FREE, BLOCK_HOLE, BLOCK_LIVE, BLOCK_MOVING,
    BLOCK_VOID, BLOCK_WAITING, CACHE_UNITS, MAP_SHIFT, Range, RANGE_KINDS, RANGE_SMALL, TAGS, UNIT,
    UNIT_SHIFT, Use, View,
)
from acl.core._space cimport page_backed
from acl.core._lock cimport count_read, lock_drop, lock_take

cdef struct Sums:               # sums over the blocks of an arena, to compare with its counts
    size_t live                 # bytes of LIVE blocks
    size_t requested            # bytes that callers asked for
    size_t asleep               # bytes of LIVE blocks that are asleep
    uint64_t blocks[8]          # number of blocks by BlockState
    uint64_t uses               # number of Uses of WAITING blocks: the sum of their `requested`
    uint64_t waiting_by_use     # number of WAITING blocks that have Uses
    uint64_t pages              # number of backed pages
    uint64_t shadows            # number of inactive mappings
    size_t tag_live[TAGS]       # bytes of LIVE blocks by tag
    uint64_t tag_blocks[TAGS]   # number of LIVE blocks by tag


cdef uint32_t block_check(Arena *arena, Range *span, Block *block) noexcept nogil:
    cdef size_t granule = arena.pool.options.granule
    cdef Block *after = block.next
    if after != NULL and (after.addr != block.addr + block.size or after.prev != block):
        return 1
    if block.size == 0 or block.size % UNIT != 0 or <size_t> (block.addr - span.base) % UNIT != 0:
        return 5
    if block.range != span.index or (block.bin >= BINS) != (span.kind == RANGE_SMALL):
        return 1
    if after != NULL and block.state == after.state and block.state in (BLOCK_FREE, BLOCK_HOLE):
        return 2
    if block.state == BLOCK_HOLE and (block.size % granule != 0
                                      or <size_t> (block.addr - span.base) % granule != 0):
        return 5
    return 0


cdef bint view_check(Arena *arena, View *view, Range *span, uint64_t page,
                     Sums *sums) noexcept nogil:
    """Check I13 for one mapping; True if it holds.

    `view.page` and `view.range` must say where the mapping was found.  The list of its frame must
    have it once, and must have the frame's active mapping.  If the mapping is inactive, add 1 to
    `sums.shadows`.
    """
    cdef View *other
    cdef uint32_t found = 0
    cdef bint held = False
    if view.range != span.index or view.page != page:
        return False
    if view.frame == NULL:  # retired: a thread is unmapping it, or the driver refused to unmap it
        return view.mapped == NULL or (view.mapped.holder != NULL and view.mapped.stale > 0)
    if view.frame.stamp > arena.maps.search:
        return False                            # `stamp` is the number of another arena's search
    other = view.frame.views
    while other != NULL:
        if other.frame != view.frame or arena.space.ranges[other.range].views[other.page] != other:
            return False
        found += other == view
        held = held or other == view.frame.holder
        other = other.next
    sums.shadows += view.frame.holder != view
    return held and found == 1


cdef uint32_t pages_check(Arena *arena, Range *span, Block *block, Sums *sums) noexcept nogil:
    """Check I6, I13 and I14 for the pages that begin in a block.

    Return the number of the broken invariant, or 0.  Add the pages to the sums for I8 and I13.
    Pages of MOVING blocks are skipped.
    """
    cdef size_t granule = arena.pool.options.granule
    cdef uint64_t page = (<size_t> (block.addr - span.base) + granule - 1) // granule
    cdef uint64_t end = (<size_t> (block.addr - span.base) + block.size + granule - 1) // granule
    cdef bint missing = block.state == BLOCK_HOLE
    cdef bint backed
    if span.segment:
        return 6 if missing else 0
    if block.state == BLOCK_MOVING:
        return 0                                # another thread maps its pages without the lock
    while page < end:
        backed = page_backed(span, <uint32_t> page)     # safe cast: below span.pages
        if backed == missing and block.state != BLOCK_VOID and not is_asleep(block):
            return 6
        if span.views[page] != NULL and not view_check(arena, span.views[page], span, page, sums):
            return 13
        if span.views[page] != NULL and span.views[page].vacated > arena.maps.moment:
            return 14
        sums.pages += backed
        page += 1
    return 0


cdef uint32_t sleep_check(Arena *arena, Range *span, Block *block) noexcept nogil:
    """Check I15 for a block's first page; return 0 if it holds, else 15.

    An awake block must have memory there.  A VOID block must have none, except during a sleep
    batch.
    """
    cdef uint32_t page = <uint32_t> (
        <size_t> (block.addr - span.base) // arena.pool.options.granule)  # safe cast: < span.pages
    if span.segment or block.state == BLOCK_MOVING or block.state == BLOCK_HOLE:
        return 0
    if block.state == BLOCK_VOID:
        return 15 if page_backed(span, page) and not arena.sleep.turning else 0
    return 0 if page_backed(span, page) or is_asleep(block) else 15


cdef inline bint is_asleep(Block *block) noexcept nogil:
    return block.state == BLOCK_LIVE and block.flags & BLOCK_ASLEEP != 0


cdef void block_sum(Block *block, Sums *sums) noexcept nogil:
    sums.blocks[block.state] += 1
    if block.state == BLOCK_LIVE:
        sums.live += block.size
        sums.asleep += block.size if block.flags & BLOCK_ASLEEP else 0
        sums.requested += block.requested
        sums.tag_live[block.tag % TAGS] += block.size
        sums.tag_blocks[block.tag % TAGS] += 1
    elif block.state == BLOCK_WAITING:
        sums.uses += block.requested
        sums.waiting_by_use += block.requested > 0


cdef uint32_t range_check(Arena *arena, Range *span, Sums *sums) noexcept nogil:
    cdef Block *block = span.first
    cdef size_t bytes = 0
    cdef uint32_t broken
    if block == NULL or block.addr != span.base or block.prev != NULL:
        return 1
    while block != NULL:
        broken = block_check(arena, span, block)
        if broken == 0:
            broken = pages_check(arena, span, block, sums)
        if broken == 0:
            broken = sleep_check(arena, span, block)
        if broken != 0:
            return broken
        block_sum(block, sums)
        bytes += block.size
        block = block.next
    return 0 if bytes == span.bytes else 1


cdef uint32_t bins_check(Bins *bins, uint32_t kind, uint64_t *free, uint64_t *holes) noexcept nogil:
    cdef uint32_t index, word
    cdef Block *stop
    cdef Block *block
    for index in range(kind * BINS, kind * BINS + BINS):
        word = index >> MAP_SHIFT
        stop = links_block(&bins.heads[index])
        block = stop.links.next
        if block.links.prev != stop:
            return 3
        if (block != stop) != (bins.maps[word] >> (index & 63) & 1):
            return 3
        if (bins.maps[word] != 0) != (bins.groups[kind] >> (word - kind * KIND_WORDS) & 1):
            return 3
        while block != stop:
            if (block.state != BLOCK_FREE or block.bin != index
                    or kind * BINS + bin_of(block.size >> UNIT_SHIFT) != index):
                return 3
            if block.links.next.links.prev != block:
                return 3
            free[0] += 1
            block = block.links.next
    stop = links_block(&bins.holes[kind])
    block = stop.links.next
    if block.links.prev != stop:
        return 9
    while block != stop:
        if block.state != BLOCK_HOLE or block.links.next.links.prev != block:
            return 9
        holes[0] += 1
        block = block.links.next
    return 0


cdef uint32_t lists_check(Arena *arena, Sums *sums) noexcept nogil:
    cdef uint64_t free = 0, holes = 0, cached = 0
    cdef uint32_t index, broken
    cdef Block *block
    for index in range(<uint32_t> RANGE_KINDS):
        broken = bins_check(&arena.bins, index, &free, &holes)
        if broken != 0:
            return broken
    for index in range(CACHE_UNITS + 1):
        block = arena.cache[index]
        if block != NULL and arena.cached[index] == 0:
            return 4
        while block != NULL:
            if block.state != BLOCK_CACHED or block.size >> UNIT_SHIFT != index:
                return 4
            cached += 1
            block = block.links.next
    if free != sums.blocks[<uint32_t> BLOCK_FREE]:
        return 3
    if cached != sums.blocks[<uint32_t> BLOCK_CACHED]:
        return 4
    return 0 if holes == sums.blocks[<uint32_t> BLOCK_HOLE] else 9


cdef uint32_t waiting_check(Arena *arena, Sums *sums) noexcept nogil:
    cdef Use *oldest = arena.order.waiting
    cdef Use *use
    cdef uint64_t uses = 0
    if arena.order.polling > 0:
        return 0
    while oldest != NULL:
        use = oldest
        while use != NULL:
            if use.block.state != BLOCK_WAITING and use.block.state != BLOCK_MOVING:
                return 10
            uses += use.block.state == BLOCK_WAITING
            use = use.next
        oldest = queue_after(arena, oldest)
    if uses != sums.uses or sums.waiting_by_use != sums.blocks[<uint32_t> BLOCK_WAITING]:
        return 10
    return 0


cdef uint32_t sums_check(Arena *arena, Sums *sums) noexcept nogil:
    cdef uint32_t tag
    if arena.live != sums.live or arena.requested != sums.requested:
        return 7
    for tag in range(1, <uint32_t> TAGS):
        if (arena.tag_live[tag] != sums.tag_live[tag]
                or arena.tag_blocks[tag] != sums.tag_blocks[tag]):
            return 7
    if sums.blocks[<uint32_t> BLOCK_MOVING] == 0:       # pages of MOVING blocks are not in the sums
        if arena.pages != sums.pages:
            return 8
        if arena.maps.shadows != sums.shadows:
            return 13
    if arena.maps.rested > arena.maps.moment:
        return 14
    if arena.live > arena.live_peak or arena.requested > arena.requested_peak:
        return 12
    return 0


cdef uint32_t arena_check(Arena *arena) noexcept nogil:
    cdef Sums sums
    cdef uint32_t index, broken
    memset(&sums, 0, sizeof(sums))
    for index in range(arena.space.range_count):
        if arena.space.ranges[index] == NULL:
            continue
        if arena.space.ranges[index].segment:
            sums.pages += arena.space.ranges[index].pages
        broken = range_check(arena, arena.space.ranges[index], &sums)
        if broken != 0:
            return broken
    broken = lists_check(arena, &sums)
    if broken == 0:
        broken = waiting_check(arena, &sums)
    if broken == 0:
        broken = sums_check(arena, &sums)
    return broken if broken != 0 else naps_check(arena, sums.asleep)


cdef bint budgets_hold(Pool *pool) noexcept nogil:
    """True if each budget's live bytes are those of its tag in all arenas (I7)."""
    cdef uint32_t index, tag
    cdef size_t live
    for tag in range(1, <uint32_t> TAGS):
        live = 0
        for index in range(count_read(&pool.arena_count)):
            live += pool.arenas[index].tag_live[tag]
        if pool.budgets >> tag & 1 and pool.budget[tag].live != live:
            return False
    return True


cdef uint32_t pool_check(Pool *pool) noexcept nogil:
    cdef uint32_t index, broken
    cdef size_t bytes = pool.source.spare_bytes
    for index in range(count_read(&pool.arena_count)):
        lock_take(&pool.arenas[index].lock)
        broken = arena_check(pool.arenas[index])
        bytes += pool.arenas[index].pages * pool.options.granule
        lock_drop(&pool.arenas[index].lock)
        if broken != 0:
            return broken
    if not budgets_hold(pool):
        return 7
    return 0 if bytes == pool.source.reserved else 11


cdef void arena_enforce(Arena *arena) noexcept nogil:
    cdef uint32_t broken = arena_check(arena) if arena.pool != NULL else 0
    if broken != 0:
        fprintf(stderr, b"acl: the pool's invariant I%u is broken\n", broken)
        abort()
