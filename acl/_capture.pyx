"""Capture: what a stream takes while it is captured belongs to the graph.

Thread rule: as for `Pool`; the capture itself is the caller's to begin and to end.
"""

from acl._core cimport Arena
from acl.core._order cimport capture_begin, capture_end, capture_release
from acl._pool cimport Pool
from acl._registry cimport handle_of

__all__ = ["Capture"]


cdef class Capture:
    """The memory of one captured graph.

    A context manager around the capture.  What the stream takes meanwhile stays the graph's own
    until `release`: it is used again only inside the same capture, never moved or given away.
    """

    cdef Arena *main
    cdef Arena *private
    cdef readonly Pool pool

    def __init__(self, Pool pool not None, stream):
        self.pool = pool
        self.main = pool.arena_of(handle_of(stream))

    def __enter__(self):
        with nogil:
            self.private = capture_begin(self.main)
        if self.private is NULL:
            raise MemoryError("host memory for a capture")
        return self

    def __exit__(self, *error):
        with nogil:
            capture_end(self.main)

    @property
    def reserved(self):
        """Bytes of device memory that the graph's blocks keep."""
        return 0 if self.private is NULL else self.private.pages * self.pool.core.options.granule

    def release(self):
        """The graph is gone; a second call does nothing."""
        if self.private is NULL:
            return
        self.pool.open_check()
        with nogil:
            if self.main.capture is self.private:
                capture_end(self.main)
            capture_release(self.private)
        self.private = NULL
