"""Free space: size classes, bins, and the surgery that cuts and joins blocks.

All of it is bounded in time, runs under the arena's lock and knows nothing of drivers.  Sizes are in
units of 512 bytes where a name says so.  Classes are two-level, as in TLSF: below 32 units each
size has its own bin, above there are 32 bins for each power of two.
"""

from libc.stdint cimport uint32_t, uint64_t

from acl._core cimport (
    Arena, Bins, Block, BIN_SHIFT, BLOCK_FREE, BLOCK_HOLE, BLOCK_UNUSED, UNIT_SHIFT,
)

cdef extern from *:
    """
    #include <stdint.h>
    static inline uint32_t bit_lowest(uint64_t word) {
        return (uint32_t)__builtin_ctzll(word);
    }
    static inline uint32_t bit_highest(uint64_t word) {
        return 63u - (uint32_t)__builtin_clzll(word);
    }
    #define core_likely(condition) __builtin_expect(!!(condition), 1)
    #define core_prefetch(address) __builtin_prefetch(address, 1)
    """
    uint32_t bit_lowest(uint64_t word) nogil        # neither accepts 0
    uint32_t bit_highest(uint64_t word) nogil
    bint core_likely(bint condition) nogil
    void core_prefetch(const void *address) nogil

cdef enum:
    BIN_DEPTH = 8               # blocks looked at in a bin before the next bin is asked

cdef bint slab_open(Arena *arena) noexcept nogil        # reserves host addresses for descriptors
cdef void slab_close(Arena *arena) noexcept nogil
cdef Block *slab_take(Arena *arena) noexcept nogil       # NULL: the host has no memory left
cdef size_t cache_flush(Arena *arena) noexcept nogil     # all of it into the bins; says how much


cdef inline size_t size_units(size_t size) noexcept nogil:
    """Units for so many bytes; 0 bytes are 1, and no size overflows."""
    return ((size - (size != 0)) >> UNIT_SHIFT) + 1


cdef inline uint32_t bin_of(size_t units) noexcept nogil:
    cdef uint32_t top
    if units < 32:
        return <uint32_t> units                 # fits: below 32
    top = bit_highest(units)
    return (((top - 4) << BIN_SHIFT)            # fits: masked to five bits
            + (<uint32_t> (units >> (top - 5)) & 31))


cdef inline void bin_insert(Bins *bins, Block *block) noexcept nogil:
    cdef uint32_t index = bin_of(block.size >> UNIT_SHIFT)
    cdef Block *head = bins.heads[index]
    block.state = BLOCK_FREE
    block.bin_prev = NULL
    block.bin_next = head
    if head != NULL:
        head.bin_prev = block
    bins.heads[index] = block
    bins.maps[index >> BIN_SHIFT] |= <uint32_t> 1 << (index & 31)
    bins.groups |= <uint64_t> 1 << (index >> BIN_SHIFT)


cdef inline void bin_remove(Bins *bins, Block *block) noexcept nogil:
    cdef uint32_t index, group
    cdef Block *after = block.bin_next
    cdef Block *before = block.bin_prev
    if after != NULL:
        after.bin_prev = before
    if before != NULL:
        before.bin_next = after
        return
    index = bin_of(block.size >> UNIT_SHIFT)
    bins.heads[index] = after
    if after == NULL:
        group = index >> BIN_SHIFT
        bins.maps[group] &= ~(<uint32_t> 1 << (index & 31))
        if bins.maps[group] == 0:
            bins.groups &= ~(<uint64_t> 1 << group)


cdef inline Block *bin_best(Block *block, size_t size) noexcept nogil:
    """The smallest of the first few blocks that are large enough, or NULL."""
    cdef Block *best = NULL
    cdef uint32_t depth = 0
    while block != NULL and depth < BIN_DEPTH:
        if block.size >= size:
            if block.size == size:
                return block
            if best == NULL or block.size < best.size:
                best = block
        block = block.bin_next
        depth += 1
    return best


cdef inline Block *bins_find(Bins *bins, size_t units) noexcept nogil:
    """A free block of at least so many units: near the smallest there is; NULL if there is none."""
    cdef uint32_t index = bin_of(units)
    cdef uint32_t group = index >> BIN_SHIFT
    cdef uint64_t above
    cdef uint32_t map = bins.maps[group] & (<uint32_t> 0xFFFFFFFF << (index & 31))
    cdef Block *found
    if map & (<uint32_t> 1 << (index & 31)):
        found = bin_best(bins.heads[index], units << UNIT_SHIFT)
        if found != NULL:
            return found
        map &= map - 1
    if map == 0:
        # `group + 1` is below 64: there are 36 groups
        above = bins.groups & (~<uint64_t> 0 << (group + 1))
        if above == 0:
            return NULL
        group = bit_lowest(above)
        map = bins.maps[group]
    return bins.heads[(group << BIN_SHIFT) + bit_lowest(map)]


cdef inline Block *block_make(Arena *arena) noexcept nogil:
    cdef Block *block = arena.spare
    if core_likely(block != NULL):
        arena.spare = block.bin_next
        return block
    return slab_take(arena)


cdef inline void block_drop(Arena *arena, Block *block) noexcept nogil:
    block.state = BLOCK_UNUSED
    block.bin_next = arena.spare
    arena.spare = block


cdef inline void block_cut(Block *block, Block *rest, size_t size) noexcept nogil:
    # [ block ........ ][ next ]  =>  [ block ][ rest ][ next ]
    rest.addr = block.addr + size
    rest.size = block.size - size
    rest.range = block.range
    rest.kind = block.kind
    rest.flags = 0
    rest.state = block.state
    rest.prev = block
    rest.next = block.next
    if block.next != NULL:
        block.next.prev = rest
    block.next = rest
    block.size = size


cdef inline void block_join(Arena *arena, Block *block, Block *upper) noexcept nogil:
    # [ block ][ upper ][ next ]  =>  [ block ........ ][ next ]
    block.size += upper.size
    block.next = upper.next
    if upper.next != NULL:
        upper.next.prev = block
    block_drop(arena, upper)


cdef inline void block_release(Arena *arena, Block *block) noexcept nogil:
    """Make a mapped block FREE: join it with its free neighbours and put it in a bin (I2, I3)."""
    cdef Bins *bins = &arena.bins[block.kind]
    cdef Block *other = block.next
    if other != NULL and other.state == BLOCK_FREE:
        bin_remove(bins, other)
        block_join(arena, block, other)
    other = block.prev
    if other != NULL and other.state == BLOCK_FREE:
        bin_remove(bins, other)
        block_join(arena, other, block)
        block = other
    bin_insert(bins, block)


cdef inline bint block_trim(Arena *arena, Block *block, size_t size) noexcept nogil:
    """Cut a block that is in no bin down to `size` and free the rest; false without a descriptor."""
    cdef Block *rest
    if block.size == size:
        return True
    rest = block_make(arena)
    if rest == NULL:
        return False
    block_cut(block, rest, size)
    # The rest's upper neighbour may be free only if `block` was not: then they must be joined.
    block_release(arena, rest)
    return True


cdef inline void hole_insert(Bins *bins, Block *block) noexcept nogil:
    block.state = BLOCK_HOLE
    block.bin_prev = NULL
    block.bin_next = bins.holes
    if bins.holes != NULL:
        bins.holes.bin_prev = block
    bins.holes = block


cdef inline void hole_remove(Bins *bins, Block *block) noexcept nogil:
    if block.bin_next != NULL:
        block.bin_next.bin_prev = block.bin_prev
    if block.bin_prev != NULL:
        block.bin_prev.bin_next = block.bin_next
    else:
        bins.holes = block.bin_next


cdef inline void hole_release(Arena *arena, Block *block) noexcept nogil:
    """Make a block without pages a HOLE: join it with neighbouring holes (I2, I9)."""
    cdef Bins *bins = &arena.bins[block.kind]
    cdef Block *other = block.next
    if other != NULL and other.state == BLOCK_HOLE:
        hole_remove(bins, other)
        block_join(arena, block, other)
    other = block.prev
    if other != NULL and other.state == BLOCK_HOLE:
        block_join(arena, other, block)
        return
    hole_insert(bins, block)
