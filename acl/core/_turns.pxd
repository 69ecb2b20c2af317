"""Bursts: streams that share a pool's memory in turn.

All functions are called without locks.  See `_turns.pyx`.
"""

from acl.core._pages cimport Climb

cdef void turn_begin(Climb *climb) noexcept nogil
cdef void turn_end(Climb *climb) noexcept nogil
# True if the arena has fewer pages than its burst is expected to need, and streams are not
# concurrent.
cdef bint turn_lacks(Climb *climb) noexcept nogil

# Takes free pages of other arenas, enough for a whole burst unless streams are concurrent.  Without
# `wait`, it takes them from idle streams only.  With `wait`, it waits for busy streams while the
# placement itself lacks pages.
cdef void turn_take(Climb *climb, bint wait) noexcept nogil
# Maps, in holes of the arena, the pages that were taken beyond those that the placement lacked.
cdef void turn_refill(Climb *climb) noexcept nogil
