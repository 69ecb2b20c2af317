"""Python and C stacks, each of which is kept once and has a number.  See `_stacks.pyx`."""

from libc.stdint cimport uint32_t

from acl.core.types cimport Pool

# Call `stack_enter` before a C call that allocates and, if it returned True, `stack_leave` after
# it.  If a recording of the pool wants Python stacks, allocations in between are recorded with the
# caller's stack.
cdef bint stack_enter(Pool *pool) except -1
cdef void stack_leave() noexcept
