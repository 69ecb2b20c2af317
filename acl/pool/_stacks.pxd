"""Stacks of Python, by number: `_stacks.pyx`."""

from libc.stdint cimport uint32_t

from acl.core.types cimport Pool

# Before and after a call into C that allocates: while a pool's notes want Python stacks, what the
# thread allocates there is noted with this one.
cdef bint stack_enter(Pool *pool) except -1
cdef void stack_leave() noexcept
