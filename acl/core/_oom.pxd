"""The report of a failed allocation: see `_oom.pyx`."""

from libc.stdint cimport uint16_t, uint64_t

from acl.core.types cimport Arena

# Called without locks: keeps a report of the failed allocation, with the thread's `Attempt`, for
# `pool.last_oom()`.  Returns the report's number.
cdef uint64_t oom_note(Arena *arena, size_t size, uint16_t tag) noexcept nogil
