"""The bins of free memory, and the functions that cut and join blocks.

All functions run under the arena's lock and make no driver call.  A name with `units` is a size in
units of 512 bytes.  As in TLSF, the bins have two levels: each size below 32 units has its own bin;
above, there are 32 bins for each power of two.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl.bind.generated._libacl cimport aclrtStream
from acl.core.types cimport (
    Arena, BIN_SHIFT, BINS, Bins, Block, BLOCK_FREE, BLOCK_HOLE, BLOCK_UNUSED, Links, MAP_SHIFT,
    MAX_SIZE_BITS, UNIT_SHIFT, Use, USE_BEDS, Zone,
)
from acl.core.policy cimport BIN_DEPTH

cdef extern from *:
    """
    #include <stdint.h>
    static inline uint32_t bit_lowest(uint64_t word) {
        return (uint32_t)__builtin_ctzll(word);
    }
    static inline uint32_t bit_highest(uint64_t word) {
        return (uint32_t)__builtin_clzll(word) ^ 63u;
    }
    #define core_likely(condition) __builtin_expect(!!(condition), 1)
    #define core_prefetch(address) __builtin_prefetch(address, 1)
    """
    uint32_t bit_lowest(uint64_t word) nogil        # number of the bit; `word` must not be 0
    uint32_t bit_highest(uint64_t word) nogil  # number of the bit; `word` must not be 0
    bint core_likely(bint condition) nogil
    void core_prefetch(const void *address) nogil

cdef enum:
    KIND_WORDS = 18             # words of the bit map of one RangeKind: BINS >> MAP_SHIFT

# The address of the Zone, which is a variable of `_core`.  `_core` sets this when it is imported.
cdef Zone *core_zone

cdef void bins_start(Bins *bins) noexcept nogil          # makes all lists empty
# Returns memory for an arena, or NULL.  Only the lock and the mode, ARENA_CLOSED, are set in it;
# all other bytes are 0.
cdef Arena *arena_open() noexcept nogil
cdef void arena_return(Arena *arena) noexcept nogil      # a later arena may get its address
cdef bint slab_open(Arena *arena) noexcept nogil        # gives the arena a slab of descriptors
cdef void slab_close(Arena *arena) noexcept nogil       # the slab stays readable, for late calls
cdef Block *slab_take(Arena *arena) noexcept nogil       # a new descriptor; NULL: no host memory
# Move all cached blocks into the bins, or at most `most` of them.  Return the number moved.
cdef uint32_t cache_flush(Arena *arena) noexcept nogil
cdef uint32_t cache_flush_some(Arena *arena, uint32_t most) noexcept nogil
cdef void bins_sort(Arena *arena) noexcept nogil         # sorts each list by address, lowest first


cdef inline size_t size_units(size_t size) noexcept nogil:
    """Return the number of units that `size` bytes need, at least 1.  No size overflows."""
    return ((size - (size != 0)) >> UNIT_SHIFT) + 1


cdef inline bint size_possible(size_t size) noexcept nogil:
    """True if a device could have this many bytes.  Each path of an allocation tests this first."""
    return size >> MAX_SIZE_BITS == 0


cdef inline uint32_t bin_of(size_t units) noexcept nogil:
    return <uint32_t> units if units < 32 else bin_of_wide(units)       # safe cast: below 32


cdef inline uint32_t bin_of_wide(size_t units) noexcept nogil:
    """Return the bin for 32 units or more.

    The bin's number consists of the position of the highest bit of `units` and the next 5 bits.
    """
    cdef uint32_t shift = bit_highest(units) - BIN_SHIFT
    return (shift << BIN_SHIFT) + <uint32_t> (units >> shift)           # safe cast: six bits


cdef inline uint32_t bin_of_bytes(size_t size) noexcept nogil:
    """Return the bin for `size` bytes, which must be a multiple of the unit.

    The computation has few dependent instructions, as an allocation that directly follows a free
    waits for the result.
    """
    cdef uint32_t shift
    if size < 32 << UNIT_SHIFT:
        return <uint32_t> (size >> UNIT_SHIFT)                          # safe cast: below 32
    shift = bit_highest(size) - BIN_SHIFT
    return ((shift - UNIT_SHIFT) << BIN_SHIFT) + <uint32_t> (size >> shift)  # safe cast: six bits


cdef inline Block *links_block(Links *links) noexcept nogil:
    """Return the block that contains the links.  For a list's head only its `links` are valid."""
    cdef Block *there = <Block *> links         # only used to compute the offset of `links`
    return <Block *> (<char *> links - (<char *> &there.links - <char *> there))


cdef inline void links_insert(Links *head, Block *block) noexcept nogil:
    cdef Block *stand_in = links_block(head)
    block.links.prev = stand_in
    block.links.next = head.next
    head.next.links.prev = block
    head.next = block


cdef inline void links_remove(Block *block) noexcept nogil:
    block.links.prev.links.next = block.links.next
    block.links.next.links.prev = block.links.prev


cdef inline uint32_t block_kind(Block *block) noexcept nogil:
    return block.bin >= BINS


# A function whose name ends in `_in` has the argument `kind`.  Call it where `kind` is a constant:
# the compiler then computes a part of the result.

cdef inline void bin_insert_sized(Bins *bins, Block *block, size_t size,
                                  uint32_t kind) noexcept nogil:
    """Insert a block in its bin.  `size` is `block.size`; as an argument, it needs no load."""
    cdef uint32_t index = kind * BINS + bin_of_bytes(size)
    block.state = BLOCK_FREE
    block.bin = <uint16_t> index                                        # safe cast: below 2 * BINS
    links_insert(&bins.heads[index], block)
    bins.maps[index >> MAP_SHIFT] |= <uint64_t> 1 << (index & 63)
    bins.groups[kind] |= <uint64_t> 1 << ((index >> MAP_SHIFT) - kind * KIND_WORDS)


cdef inline void bin_insert_in(Bins *bins, Block *block, uint32_t kind) noexcept nogil:
    bin_insert_sized(bins, block, block.size, kind)


cdef inline void bin_remove_in(Bins *bins, Block *block, uint32_t kind) noexcept nogil:
    # There are no branches here, as the processor cannot predict whether a bin becomes empty.
    cdef uint32_t index = block.bin
    # true if the block is the only one: then both of its links point to the head of the list
    cdef bint last = block.links.next == block.links.prev
    cdef uint64_t map = bins.maps[index >> MAP_SHIFT] & ~(<uint64_t> last << (index & 63))
    links_remove(block)
    bins.maps[index >> MAP_SHIFT] = map
    bins.groups[kind] &= ~(<uint64_t> (map == 0) << ((index >> MAP_SHIFT) - kind * KIND_WORDS))


cdef inline void bin_swap_in(Bins *bins, Block *out, Block *block, size_t size,
                             uint32_t kind) noexcept nogil:
    """Remove `out` from its bin; insert `block`, which may be `out`, by its new size."""
    bin_remove_in(bins, out, kind)
    block.size = size
    bin_insert_sized(bins, block, size, kind)


cdef inline void bin_insert(Bins *bins, Block *block) noexcept nogil:
    bin_insert_in(bins, block, block_kind(block))


cdef inline void bin_remove(Bins *bins, Block *block) noexcept nogil:
    bin_remove_in(bins, block, block_kind(block))


cdef inline Block *bin_best(Links *head, size_t size) noexcept nogil:
    """Return the smallest of the first BIN_DEPTH blocks of a bin that are large enough, or NULL."""
    cdef Block *best = NULL
    cdef Block *block = head.next
    cdef size_t best_size = ~<size_t> 0
    cdef uint32_t depth = 0
    while block != links_block(head) and depth < BIN_DEPTH:
        if block.size >= size and (block.size < best_size or (
                block.size == best_size and block.addr < best.addr)):
            best = block
            best_size = block.size
        block = block.links.next
        depth += 1
    return best


cdef inline Block *bins_above(Bins *bins, uint32_t index, uint32_t kind) noexcept nogil:
    """Return the first block of the first non-empty bin above `index`; NULL if all are empty."""
    cdef uint32_t word = index >> MAP_SHIFT
    cdef uint64_t *maps = &bins.maps[kind * KIND_WORDS]
    cdef uint64_t bits = maps[word] >> (index & 63) >> 1
    if bits != 0:
        return bins.heads[kind * BINS + index + 1 + bit_lowest(bits)].next
    bits = bins.groups[kind] & (~<uint64_t> 0 << (word + 1))    # word + 1 < 64: see KIND_WORDS
    if bits == 0:
        return NULL
    word = bit_lowest(bits)
    return bins.heads[kind * BINS + (word << MAP_SHIFT) + bit_lowest(maps[word])].next


cdef inline Block *bins_find(Bins *bins, size_t units, uint32_t kind) noexcept nogil:
    """Return a free block of at least `units` units, or NULL if none is found.

    The search examines the first BIN_DEPTH blocks of the bin of this size.  If none of them is
    large enough, it returns a block of the next larger bin that is not empty.  No size has more
    than MAX_SIZE_BITS bits, so `index` is below BINS.
    """
    cdef uint32_t index = bin_of(units)
    cdef Block *found = NULL
    if bins.maps[(index >> MAP_SHIFT) + kind * KIND_WORDS] >> (index & 63) & 1:
        found = bin_best(&bins.heads[kind * BINS + index], units << UNIT_SHIFT)
    return found if found != NULL else bins_above(bins, index, kind)


cdef inline uint32_t bins_after(Bins *bins, uint32_t index, uint32_t kind) noexcept nogil:
    """Return the first non-empty bin of a kind that is not below `index`; BINS if there is none."""
    cdef uint32_t word = index >> MAP_SHIFT
    cdef uint64_t map
    if index >= BINS:
        return BINS
    map = bins.maps[kind * KIND_WORDS + word] & (~<uint64_t> 0 << (index & 63))
    while map == 0:
        word += 1
        if word == KIND_WORDS:
            return BINS
        map = bins.maps[kind * KIND_WORDS + word]
    return (word << MAP_SHIFT) + bit_lowest(map)


cdef inline Block *block_make(Arena *arena) noexcept nogil:
    cdef Block *block = arena.spare
    if core_likely(block != NULL):
        arena.spare = block.links.next
        return block
    return slab_take(arena)


cdef inline void block_drop(Arena *arena, Block *block) noexcept nogil:
    block.state = BLOCK_UNUSED
    block.links.next = arena.spare
    arena.spare = block


cdef inline uint32_t use_bed(Block *block) noexcept nogil:
    """Return the index of the list in `arena.order.uses` that has the Uses of a block."""
    return <uint32_t> ((<size_t> block >> 6) % USE_BEDS)        # safe cast: below USE_BEDS


cdef inline uint64_t guest_bit(aclrtStream stream) noexcept nogil:
    """Return the bit of a stream in `arena.order.guests`.  Several streams may share a bit."""
    return <uint64_t> 1 << ((<size_t> stream >> 4) * <size_t> 0x9E3779B97F4A7C15 >> 58)


cdef inline Use *queue_after(Arena *arena, Use *oldest) noexcept nogil:
    """Return the oldest Use of the next queue; NULL after the last queue.

    A loop over all queues begins with `arena.order.waiting`.
    """
    return oldest.after if oldest.after != arena.order.waiting else NULL


cdef inline uint32_t *block_word(Block *block) noexcept nogil:
    """Return a pointer to state, flags and tag as one word.  The state is the low byte."""
    return <uint32_t *> &block.state


cdef inline void block_cut(Block *block, Block *rest, size_t size) noexcept nogil:
    # [ block ........ ][ next ]  =>  [ block ][ rest ][ next ]
    rest.addr = block.addr + size
    rest.size = block.size - size
    rest.range = block.range
    rest.bin = block.bin
    block_word(rest)[0] = block.state           # `rest` has no flags and no tag
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


cdef inline void block_link(Block *block, Block *upper) noexcept nogil:
    block.next = upper
    if upper != NULL:
        upper.prev = block


cdef inline void block_release_in(Arena *arena, Block *block, uint32_t kind) noexcept nogil:
    """Make a mapped block FREE: join it with its free neighbours and put it in a bin (I2, I3).

    The upper neighbour is joined before the lower one is read.  The processor cannot predict if
    neighbours are free.  If it guesses wrong about the lower one, the work for the upper one is not
    lost.
    """
    cdef Bins *bins = &arena.bins
    cdef Block *upper = block.next
    cdef Block *lower = block.prev
    cdef size_t size = block.size
    cdef Block *joined
    if upper != NULL and upper.state == BLOCK_FREE:
        joined = upper
        bin_remove_in(bins, joined, kind)
        size += joined.size
        upper = joined.next
        block_link(block, upper)
        block_drop(arena, joined)
    if lower != NULL and lower.state == BLOCK_FREE:
        bin_remove_in(bins, lower, kind)
        size += lower.size
        block_link(lower, upper)
        block_drop(arena, block)
        block = lower
    block.size = size
    bin_insert_sized(bins, block, size, kind)


cdef inline void block_release(Arena *arena, Block *block) noexcept nogil:
    block_release_in(arena, block, block_kind(block))


cdef inline void hole_insert(Bins *bins, Block *block) noexcept nogil:
    block.state = BLOCK_HOLE
    links_insert(&bins.holes[block.bin >= BINS], block)


cdef inline void hole_release(Arena *arena, Block *block) noexcept nogil:
    """Make a block of missing pages a HOLE, and join it with neighbouring holes (I2, I9)."""
    cdef Bins *bins = &arena.bins
    cdef Block *other = block.next
    if other != NULL and other.state == BLOCK_HOLE:
        links_remove(other)
        block_join(arena, block, other)
    other = block.prev
    if other != NULL and other.state == BLOCK_HOLE:
        block_join(arena, other, block)
        return
    hole_insert(bins, block)
