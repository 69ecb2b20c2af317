"""Captures of a stream: the arenas that serve them.  See `_captures.pyx`."""

from libc.stdint cimport uint64_t

from acl.core._lock cimport pointer_read
from acl.core.types cimport Arena

# From `capture_begin` to `capture_end`, allocations on the arena's stream are made in an arena that
# belongs to the capture.  `capture_begin` returns that arena, or NULL if none could be made.
cdef Arena *capture_begin(Arena *arena) noexcept nogil
cdef void capture_end(Arena *arena) noexcept nogil


cdef inline Arena *capture_of(Arena *arena) noexcept nogil:
    """Return the arena of the capture in progress on the stream, or NULL.  Called without locks."""
    return <Arena *> pointer_read(<void **> &arena.captures.capture)


# Asks the driver if the stream is being captured.  Calls `capture_end` and `capture_begin` if this
# has changed.  Returns False if the driver does not answer, or if the stream is captured and no
# arena could be made for the capture.
cdef bint capture_look(Arena *arena) noexcept nogil
# Called after the graph was destroyed: its blocks are ordinary memory again.  Returns the number of
# pages that were given to the page source.
cdef uint64_t capture_release(Arena *capture) noexcept nogil
