"""Ranges, and where in them a block goes that fits nowhere in mapped space.  See `_place.pyx`."""

from libc.stdint cimport uint32_t

from acl._core cimport Arena, BLOCK_FREE, BLOCK_HOLE, Block, Range

cdef struct Window:             # where a slow allocation goes
    Block *first                # the lowest block that it touches; NULL: nowhere
    char *start
    uint32_t missing            # pages without a frame
    uint32_t fresh              # those, and wholly free pages
    bint tail                   # reaches into the last hole of its range

cdef Window window_find(Arena *arena, size_t size, uint32_t kind) noexcept nogil

# Both under the arena's lock; the first unlocks over its driver call.
cdef bint range_open(Arena *arena, uint32_t kind, size_t size) noexcept nogil
cdef Block *range_add(Arena *arena, uint32_t kind, char *base, size_t bytes,
                      bint segment) noexcept nogil
# The range of a block that covers all of it; the block's descriptor goes too.
cdef void range_drop(Arena *arena, Block *block) noexcept nogil


cdef inline Range *range_of(Arena *arena, Block *block) noexcept nogil:
    return arena.ranges[block.range]


cdef inline char *block_end(Block *block) noexcept nogil:
    return block.addr + block.size


cdef inline uint32_t page_floor(Range *span, char *addr, size_t granule) noexcept nogil:
    return <uint32_t> (<size_t> (addr - span.base) // granule)          # fits: span.pages does


cdef inline uint32_t page_ceil(Range *span, char *addr, size_t granule) noexcept nogil:
    return <uint32_t> ((<size_t> (addr - span.base) + granule - 1) // granule)


cdef inline bint is_space(Block *block) noexcept nogil:
    return block != NULL and (block.state == BLOCK_FREE or block.state == BLOCK_HOLE)
