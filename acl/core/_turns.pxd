"""Streams that share a pool's memory in turn: see `_turns.pyx`.  Call all without locks."""

from acl.core._pages cimport Climb

cdef void turn_begin(Climb *climb) noexcept nogil
cdef void turn_end(Climb *climb) noexcept nogil
cdef bint turn_lacks(Climb *climb) noexcept nogil   # true: fewer pages than in its last bursts

# Takes free pages of other arenas: for a whole burst from idle streams, or, with `wait`, only the
# missing pages from busy ones.
cdef void turn_take(Climb *climb, bint wait) noexcept nogil
# Maps, in the arena's holes, the pages that were taken beyond those of the window.
cdef void turn_refill(Climb *climb) noexcept nogil
