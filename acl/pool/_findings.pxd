"""What guarded blocks have found, for `cimport`: see `_findings.pyx`."""

from libc.stdint cimport uint64_t

from acl._core cimport Arena, Block

cdef enum Found:
    FOUND_OVERFLOW
    FOUND_USE_AFTER_FREE
    FOUND_DOUBLE_FREE
    FOUND_FOREIGN
    FOUNDS

# Without locks, from any thread.  The first notes that a block was handed out or freed, under the
# thread's stacks, and gives the note's number; the second tells of an error: `last` is the number
# of the block's last note that matters, or 0 for its newest.
cdef uint64_t happened(Arena *arena, Block *block, size_t size, bint freed) noexcept nogil
cdef void found(Found kind, Arena *arena, Block *block, uint64_t last) noexcept nogil
