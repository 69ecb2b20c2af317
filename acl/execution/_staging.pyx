"""Pinned host memory on its way to the device, given back to its pool once its copies are done.

An asynchronous copy needs memory that is pinned and stays as it is, so bytes of ordinary memory go
through a buffer of the process's pinned pool.  An event stands behind each batch of copies: what it
has passed is free at once, whatever is queued behind it.

One thread at a time; writing the bytes drops the GIL.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memcpy

from collections import deque

from acl.runtime._buffer cimport Buffer, HostBuffer
from acl.pool._pinned cimport PinnedPool
from acl.runtime._stream cimport Event, Stream

from acl.runtime._copy import copy_async
from acl.pool._pinned import default_pool

__all__ = ["Staging"]


@cython.final
cdef class Staging:
    """Queues copies of ordinary host memory."""

    cdef object busy                # deque of (event, its batch), oldest first
    cdef list batch                 # buffers whose copies no event follows yet

    def __cinit__(self):
        self.busy = deque()
        self.batch = []

    def queue(self, Buffer target, source, Stream stream):
        """Queue a copy of `source`, contiguous bytes of any object, to the start of `target`."""
        cdef HostBuffer pinned
        self.settle()
        pinned = pinned_copy(source)
        self.batch.append(pinned)
        copy_async(target, pinned, stream, nbytes=pinned.size)

    def close_batch(self, Stream stream):
        """Mark the end of what was queued on one stream since the last time."""
        cdef list batch = self.batch
        if not batch:
            return
        self.batch = []                         # an event of another stream tells nothing of these
        try:
            self.busy.append((stream.record(), batch))
        except Exception:
            pass                                # dropped: given back when their copies are done

    def settle(self):
        """Give back what the streams have passed."""
        while self.busy and (<tuple> self.busy[0])[0].query():
            batch_end(<tuple> self.busy.popleft())

    def close(self):
        """Wait for what is under way and give everything back."""
        cdef HostBuffer pinned
        while self.busy:
            (<tuple> self.busy[0])[0].synchronize()
            batch_end(<tuple> self.busy.popleft())
        for pinned in self.batch:
            pinned.close()                      # no event: the pool sees to it
        self.batch.clear()


cdef HostBuffer pinned_copy(object source):
    cdef HostBuffer pinned
    cdef Py_buffer view
    cdef size_t size
    PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
    try:
        size = <size_t> view.len                                # a length
        pinned = (<PinnedPool> default_pool()).take(size)
        with nogil:
            memcpy(pinned.address, view.buf, size)
    finally:
        PyBuffer_Release(&view)
    return pinned


cdef int batch_end(tuple entry) except -1:
    cdef HostBuffer pinned
    (<Event> entry[0]).close()
    for pinned in entry[1]:
        pinned.pending = None                   # the event was behind its copy, and told so
        pinned.close()
    return 0
