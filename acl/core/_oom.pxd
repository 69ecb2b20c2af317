"""The report of a failed allocation: see `_oom.pyx`."""

from libc.stdint cimport uint16_t, uint64_t

from acl.core.types cimport Arena

# Without locks: keeps a report for `pool.last_oom()`, with the thread's `Attempt`.  Returns its
# number.
cdef uint64_t oom_note(Arena *arena, size_t size, uint16_t tag) noexcept nogil
