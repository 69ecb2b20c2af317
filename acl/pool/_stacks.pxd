"""Python and C stacks, each kept once under a number.  See `_stacks.pyx`."""

from libc.stdint cimport uint32_t

from acl.core.types cimport Pool

# Call `stack_enter` before, and, if it returned True, `stack_leave` after a C call that allocates.
# If a pool's notes want Python stacks, allocations in between are noted with the caller's stack.
cdef bint stack_enter(Pool *pool) except -1
cdef void stack_leave() noexcept
