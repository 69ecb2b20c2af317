"""Address ranges, and the search for a place for a block in them.  See `_place.pyx`."""

from libc.stdint cimport uint32_t

from acl.core._bins cimport bit_lowest
from acl.core.types cimport Arena, BLOCK_FREE, BLOCK_HOLE, Block, Range

# A candidate placement for a block. A value on the stack of the thread that searches. It is valid
# until the arena's lock is opened.
cdef struct Window:             # for an allocation that no free block fits
    Block *first                # the lowest block that it touches; NULL: no place was found
    char *start
    uint32_t fresh              # pages without memory, or wholly free
    uint32_t holes              # pages without memory
    uint32_t growth             # `fresh` pages beyond the arena's wholly free pages
    uint32_t missing            # pages in holes that must be mapped: no recall is possible
    uint32_t stale              # part of `missing`: another frame's view must be unmapped first
    bint waits                  # the stream must be waited for before that unmapping (I14)
    bint tail                   # reaches into the last hole of its range

cdef enum Demand:               # which windows a search may return
    DEMAND_ANY                  # any, even if the stream must be waited for
    DEMAND_RESTED               # old views may have to be unmapped, but without a wait
    DEMAND_PLAIN                # no old view may have to be unmapped

# Under the arena's lock.
cdef Window window_find(Arena *arena, size_t size, uint32_t kind, uint32_t demand) noexcept nogil

# Both are called with the arena's lock held; `range_open` opens it over its driver call.
cdef bint range_open(Arena *arena, uint32_t kind, size_t size) noexcept nogil
cdef Block *range_add(Arena *arena, uint32_t kind, char *base, size_t bytes,
                      bint segment) noexcept nogil
cdef void range_free(Range *span) noexcept nogil        # frees only host memory
# Removes a range that consists of one block, with the block's descriptor.
cdef void range_drop(Arena *arena, Block *block) noexcept nogil


cdef inline Range *range_of(Arena *arena, Block *block) noexcept nogil:
    return arena.ranges[block.range]


cdef inline char *block_end(Block *block) noexcept nogil:
    return block.addr + block.size


cdef inline uint32_t page_floor(Range *span, char *addr, size_t granule) noexcept nogil:
    # Shift, as the page size is a power of two: divisions would take most of a search's time.
    return <uint32_t> (<size_t> (addr - span.base) >> bit_lowest(granule))      # fits: span.pages


cdef inline uint32_t page_ceil(Range *span, char *addr, size_t granule) noexcept nogil:
    return <uint32_t> ((<size_t> (addr - span.base) + granule - 1) >> bit_lowest(granule))


cdef inline bint is_space(Block *block) noexcept nogil:
    return block != NULL and (block.state == BLOCK_FREE or block.state == BLOCK_HOLE)
