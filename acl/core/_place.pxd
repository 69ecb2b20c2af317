"""Address ranges, and the search for the placement of a block in them.  See `_place.pyx`."""

from libc.stdint cimport uint32_t

from acl.core.types cimport Arena, Block, Range

# A placement: a run of pages that could take the block. It lies on the stack of the thread that
# searches, and is valid until the arena's lock is opened.
cdef struct Window:
    Block *first                # the lowest block that the placement touches; NULL: none was found
    char *start                 # the address that the block would get
    uint32_t fresh              # pages that are missing or wholly free
    uint32_t holes              # pages without memory
    uint32_t growth             # by how many pages `fresh` exceeds the arena's wholly free pages
    uint32_t missing            # pages in holes that need a map call, as they cannot be reactivated
    uint32_t stale              # pages of `missing` at which an old mapping must be unmapped first
    bint waits                  # unmapping an old mapping there needs a wait for the stream (I14)
    bint tail                   # the placement reaches into the last hole of its range

cdef enum Demand:               # which placements a search may return
    DEMAND_ANY                  # any placement, even one that needs a wait for the stream
    DEMAND_RESTED               # one where no old mapping must be unmapped, or this needs no wait
    DEMAND_PLAIN                # only one where no old mapping must be unmapped

# Returns the best placement; its `first` is NULL if there is none. Called under the arena's lock.
cdef Window window_find(Arena *arena, size_t size, uint32_t kind, uint32_t demand) noexcept nogil

# `range_open` and `range_add` are called with the arena's lock held.  `range_open` reserves
# addresses for a block of `size` bytes and adds them as a range; it opens the lock during the
# driver call, and returns False if that fails.
cdef bint range_open(Arena *arena, uint32_t kind, size_t size) noexcept nogil
cdef Block *range_add(Arena *arena, uint32_t kind, char *base, size_t bytes,
                      bint segment) noexcept nogil
cdef void range_free(Range *span) noexcept nogil        # frees only host memory
# Removes a range that consists of one block, and the block's descriptor.
cdef void range_drop(Arena *arena, Block *block) noexcept nogil
