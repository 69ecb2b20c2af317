"""Ranges, and where in them a block goes that fits nowhere in mapped space.  See `_place.pyx`."""

from libc.stdint cimport uint32_t

from acl.core._bins cimport bit_lowest
from acl._core cimport Arena, BLOCK_FREE, BLOCK_HOLE, Block, Range

# A candidate placement for a block. A value on the stack of the thread that searches. It is valid
# until the arena's lock is opened.
cdef struct Window:             # where an allocation goes that no free block fits
    Block *first                # the lowest block that it touches; NULL: nowhere
    char *start
    uint32_t fresh              # pages that are missing, or wholly free
    uint32_t holes              # pages that are missing
    uint32_t growth             # pages that the arena does not have
    uint32_t missing            # pages without a frame that a recall would bring: a call for each
    uint32_t stale              # of these, where the view of another frame must go first
    bint waits                  # and the stream must be waited for before that (I14)
    bint tail                   # reaches into the last hole of its range

cdef enum Demand:               # what a search may come up with
    DEMAND_ANY
    DEMAND_RESTED               # nothing that has to wait
    DEMAND_PLAIN                # nothing that has to be unmapped

# Under the arena's lock.
cdef Window window_find(Arena *arena, size_t size, uint32_t kind, uint32_t demand) noexcept nogil

# Both under the arena's lock; the first unlocks over its driver call.
cdef bint range_open(Arena *arena, uint32_t kind, size_t size) noexcept nogil
cdef Block *range_add(Arena *arena, uint32_t kind, char *base, size_t bytes,
                      bint segment) noexcept nogil
cdef void range_free(Range *span) noexcept nogil        # the host memory alone
# The range of a block that covers all of it; the block's descriptor goes too.
cdef void range_drop(Arena *arena, Block *block) noexcept nogil


cdef inline Range *range_of(Arena *arena, Block *block) noexcept nogil:
    return arena.ranges[block.range]


cdef inline char *block_end(Block *block) noexcept nogil:
    return block.addr + block.size


cdef inline uint32_t page_floor(Range *span, char *addr, size_t granule) noexcept nogil:
    # A granule is a power of two: a division would be most of a search's time.
    return <uint32_t> (<size_t> (addr - span.base) >> bit_lowest(granule))      # fits: span.pages


cdef inline uint32_t page_ceil(Range *span, char *addr, size_t granule) noexcept nogil:
    return <uint32_t> ((<size_t> (addr - span.base) + granule - 1) >> bit_lowest(granule))


cdef inline bint is_space(Block *block) noexcept nogil:
    return block != NULL and (block.state == BLOCK_FREE or block.state == BLOCK_HOLE)
