"""Bursts: streams that share a pool's memory in turn.

Call all without locks.  See `_turns.pyx`.
"""

from acl.core._pages cimport Climb

cdef void turn_begin(Climb *climb) noexcept nogil
cdef void turn_end(Climb *climb) noexcept nogil
cdef bint turn_lacks(Climb *climb) noexcept nogil   # true if its last bursts needed more pages

# Takes free pages of other arenas.  Without `wait`, it takes them from idle streams, enough for a
# whole burst.  With `wait`, it also takes the missing pages from busy streams.
cdef void turn_take(Climb *climb, bint wait) noexcept nogil
# Maps the pages that were taken in excess of the placement's missing pages, in the arena's holes.
cdef void turn_refill(Climb *climb) noexcept nogil
