"""That a pool was not let grow, told to Python's log: see `_refusals.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl.core.types cimport Pool

# How many waits for streams have failed or expired; a race with one is one more or less.
cdef uint64_t waits_failed(Pool *pool) noexcept nogil
# Says in the log that `what` gave up on so many; nothing if on none.
cdef int busy_tell(Pool *pool, str name, str what, uint64_t failed) except -1

# The module `acl.inside._books`, which Python's first Pool has loaded: error paths import nothing.
cdef object books()
