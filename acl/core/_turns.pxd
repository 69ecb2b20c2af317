"""Bursts: streams that share a pool's memory in turn.

All functions are called without locks.  See `_turns.pyx`.
"""

from acl.core._pages cimport Climb

cdef void turn_begin(Climb *climb) noexcept nogil
cdef void turn_end(Climb *climb) noexcept nogil
cdef bint turn_lacks(Climb *climb) noexcept nogil   # true if the arena lacks pages for its burst

# Takes free pages of other arenas.  Without `wait`, it takes them from idle streams, enough for a
# whole burst.  With `wait`, it also takes the missing pages from busy streams.
cdef void turn_take(Climb *climb, bint wait) noexcept nogil
# Maps, in holes of the arena, the pages that were taken beyond those that the placement lacked.
cdef void turn_refill(Climb *climb) noexcept nogil
