"""Streams that share a pool's memory in turn: see `_turns.pyx`.  All of it without locks."""

from acl.core._pages cimport Climb

cdef void turn_begin(Climb *climb) noexcept nogil
cdef void turn_end(Climb *climb) noexcept nogil
cdef bint turn_lacks(Climb *climb) noexcept nogil   # it has fewer pages than in its last turns

# Takes free pages of other arenas: in bulk from idle streams, or the missing ones after a wait.
cdef void turn_take(Climb *climb, bint wait) noexcept nogil
# Maps what was taken beyond the window.
cdef void turn_refill(Climb *climb) noexcept nogil
