"""Start and end of what is recorded of a pool: see `_recording.pyx`."""

from libc.stdint cimport uint64_t

from acl.core.types cimport Pool as CorePool

# Start or end the recording of a pool, with the GIL. With a `capacity` of 0, new blocks are
# tracked, but no events are kept.
cdef void notes_start(CorePool *pool, uint64_t capacity, bint python, bint native) noexcept
cdef void notes_end(CorePool *pool, bint recorded, bint python, bint native) noexcept
