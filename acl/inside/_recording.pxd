"""What takes notes of a pool, from Python: `_recording.pyx`."""

from libc.stdint cimport uint64_t

from acl.core.types cimport Pool as CorePool

# Starts and ends what notes a pool; `capacity` 0 notes only births.  With the GIL.
cdef void notes_start(CorePool *pool, uint64_t capacity, bint python, bint native) noexcept
cdef void notes_end(CorePool *pool, bint recorded, bint python, bint native) noexcept
