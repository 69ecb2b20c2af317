"""Capture: memory that a stream allocates while it is captured belongs to the graph.

Thread rule: as for `Pool`.  The caller begins and ends the capture of the stream itself.
"""

from libc.stdint cimport uint64_t

from acl.core._arena cimport pool_arena
from acl.core._captures cimport capture_begin, capture_end, capture_release
from acl.core._driver cimport arena_context, arena_is_of
from acl.core._ends cimport ends_alive
from acl.core.types cimport Arena, ROLE_STREAM
from acl.bind.generated._libacl cimport aclrtStream
from acl.pool._pool cimport Pool
from acl.pool._registry cimport handle_of
from acl.runtime._ended cimport stream_watch

__all__ = ["Capture"]


cdef class Capture:
    """The memory of one captured graph.

    Use it as a context manager around the capture.  Memory that the stream allocates inside
    belongs to the graph until `release`: it is never moved or given away, and only allocations of
    the same capture may use it again.  Before you capture another graph, call `release`, or make
    another `Capture`.
    """

    cdef Arena *main[2]             # the stream's arenas: [0] for buffers; [1] for ACL, or NULL
    # the graph's arena for each of `main`; NULL before the capture and after `release`
    cdef Arena *private[2]
    cdef aclrtStream stream         # the stream, which may have ended since
    cdef uint64_t watch             # tells the stream from a later one with the same handle
    cdef readonly Pool pool

    def __init__(self, Pool pool not None, stream):
        cdef aclrtStream raw = handle_of(stream)
        if self.pool is not None:
            raise ValueError("the Capture exists already")
        self.pool = pool
        self.stream = raw
        self.watch = stream_watch(raw)
        self.main[0] = pool.arena_of(raw)
        if pool.core.options.early_frees and raw is not NULL:
            self.main[1] = pool_arena(pool.core, raw, ROLE_STREAM)
            if self.main[1] is NULL:
                raise MemoryError("host memory for an arena")

    def __enter__(self):
        cdef int i
        if self.main[0] is NULL:
            raise ValueError("the Capture was not made by Pool.capture")
        self.pool.open_check()
        if self.private[0] is not NULL or self.private[1] is not NULL:
            raise ValueError("the Capture has the memory of a graph: release it, or make another")
        if not ends_alive(self.stream, self.watch) or not (
                arena_is_of(self.main[0], self.stream, arena_context(self.main[0]))):
            raise ValueError("the stream of the Capture was destroyed")
        for i in range(2):
            if self.main[i] is NULL:
                continue
            with nogil:
                self.private[i] = capture_begin(self.main[i])
            if self.private[i] is NULL:
                self.__exit__()
                raise MemoryError("host memory for a capture")
        return self

    def __exit__(self, *error):
        cdef int i
        with nogil:
            for i in range(2):
                if self.private[i] is not NULL and (
                        self.main[i].captures.capture is self.private[i]):
                    capture_end(self.main[i])

    @property
    def reserved(self):
        """Bytes of device memory that the graph's blocks keep."""
        pages = 0
        if self.pool is None:
            raise ValueError("the Capture was not made by Pool.capture")
        for i in range(2):
            pages += self.private[i].pages if self.private[i] is not NULL else 0
        return pages * self.pool.core.options.granule

    def release(self):
        """Make the graph's blocks ordinary memory again, after the graph was destroyed.

        A second call does nothing.
        """
        cdef int i
        cdef Arena *private
        for i in range(2):
            if self.private[i] is NULL:
                continue
            self.pool.open_check()
            private = self.private[i]
            self.private[i] = NULL              # before the GIL is released: it is released once
            with nogil:
                if self.main[i].captures.capture is private:
                    capture_end(self.main[i])
                capture_release(private)


def release_of(Pool pool not None, capture):
    """Check and release a capture for `Pool.release_capture`."""
    if not isinstance(capture, Capture):
        raise TypeError(f"capture must be a Capture, not {type(capture).__name__}")
    if (<Capture> capture).pool is not pool:
        raise ValueError("the Capture is not of this pool")
    capture.release()
