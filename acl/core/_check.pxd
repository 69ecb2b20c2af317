"""The checker of the invariants.  See `_check.pyx`."""

from libc.stdint cimport uint32_t

from acl.core.types cimport Arena, Pool

# Both return the number of the first broken invariant, or 0.  `arena_check` is called with the lock
# held, `pool_check` without locks and while no other thread uses the pool.
cdef uint32_t arena_check(Arena *arena) noexcept nogil
cdef uint32_t pool_check(Pool *pool) noexcept nogil

# Prints the number of a broken invariant and ends the process, if `arena_check` finds one.
cdef void arena_enforce(Arena *arena) noexcept nogil
