"""That a pool was not let grow, told to Python's log: see `_refusals.pyx`."""

from libc.stdint cimport uint32_t

from acl._core cimport Pool

# Counts a refusal (`Refusal`) and has Python told, at most once a minute for each pool and kind; in
# any thread, without locks, inside callbacks too.
cdef void growth_refused(Pool *pool, uint32_t kind, size_t bytes) noexcept nogil
