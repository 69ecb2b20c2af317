"""Stacks of Python, by number: `_stacks.pyx`."""

from libc.stdint cimport uint32_t

from acl._core cimport Pool

# Before and after a call into C that allocates: while a pool's notes want Python stacks, what the
# thread allocates there is noted with this one.  `extra` is what the caller asks for beyond its
# user's bytes.
cdef bint stack_enter(Pool *pool, size_t extra) except -1
cdef void stack_leave() noexcept
