"""Start and end of a pool's notes: see `_recording.pyx`."""

from libc.stdint cimport uint64_t

from acl.core.types cimport Pool as CorePool

# Start or end notes of a pool, with the GIL; with a `capacity` of 0, only allocations are tracked.
cdef void notes_start(CorePool *pool, uint64_t capacity, bint python, bint native) noexcept
cdef void notes_end(CorePool *pool, bint recorded, bint python, bint native) noexcept
