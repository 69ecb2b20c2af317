"""Addresses of blocks and pages in a range.

All functions here are called under the arena's lock, and make no driver call.
"""

from libc.stdint cimport uint32_t

from acl.core._bins cimport bit_lowest
from acl.core.types cimport Arena, BLOCK_FREE, BLOCK_HOLE, Block, Range, View


cdef inline Range *range_of(Arena *arena, Block *block) noexcept nogil:
    return arena.space.ranges[block.range]


cdef inline char *block_end(Block *block) noexcept nogil:
    return block.addr + block.size


cdef inline uint32_t page_floor(Range *span, char *addr, size_t granule) noexcept nogil:
    # The page size is a power of two, so shift: divisions would take most of a search's time.  The
    # cast is safe: the result is at most `span.pages`.
    return <uint32_t> (<size_t> (addr - span.base) >> bit_lowest(granule))


cdef inline uint32_t page_ceil(Range *span, char *addr, size_t granule) noexcept nogil:
    return <uint32_t> ((<size_t> (addr - span.base) + granule - 1) >> bit_lowest(granule))


cdef inline bint is_space(Block *block) noexcept nogil:
    return block != NULL and (block.state == BLOCK_FREE or block.state == BLOCK_HOLE)


cdef inline bint page_backed(Range *span, uint32_t page) noexcept nogil:
    cdef View *view = span.views[page]
    return view != NULL and view.frame != NULL and view.frame.holder == view
