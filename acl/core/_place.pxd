"""Address ranges, and the search for the placement of a block in them.  See `_place.pyx`."""

from libc.stdint cimport uint32_t

from acl.core.types cimport Arena, Block, Range

# A candidate placement for a block. A value on the stack of the thread that searches. It is valid
# until the arena's lock is opened.
cdef struct Window:
    Block *first                # the lowest block that it touches; NULL: no placement was found
    char *start
    uint32_t fresh              # pages without memory, or wholly free
    uint32_t holes              # pages without memory
    uint32_t growth             # `fresh` pages beyond the arena's wholly free pages
    uint32_t missing            # pages in holes that must be mapped: no recall is possible
    uint32_t stale              # part of `missing`: another frame's mapping must be unmapped first
    bint waits                  # that unmapping needs a wait for the stream first (I14)
    bint tail                   # it reaches into the last hole of its range

cdef enum Demand:               # which windows a search may return
    DEMAND_ANY                  # any, even if the stream must be waited for
    DEMAND_RESTED               # one where old views need unmapping, but without a wait
    DEMAND_PLAIN                # one where no old view needs unmapping

# Under the arena's lock.
cdef Window window_find(Arena *arena, size_t size, uint32_t kind, uint32_t demand) noexcept nogil

# Both are called with the arena's lock held; `range_open` unlocks it during its driver call.
cdef bint range_open(Arena *arena, uint32_t kind, size_t size) noexcept nogil
cdef Block *range_add(Arena *arena, uint32_t kind, char *base, size_t bytes,
                      bint segment) noexcept nogil
cdef void range_free(Range *span) noexcept nogil        # frees only host memory
# Removes a range that consists of one block, with the block's descriptor.
cdef void range_drop(Arena *arena, Block *block) noexcept nogil
