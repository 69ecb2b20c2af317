"""Copies of ordinary host memory to the device, through pinned memory.

An asynchronous copy needs memory that is pinned and does not change.  So the bytes are first copied
to a buffer of the process's pinned pool.  An event is recorded behind each batch of copies.  When
the stream has reached the event, the batch's buffers are freed, even if later work is still queued.

One thread at a time may use a `Staging`; the GIL is released while the bytes are written.
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
    """Queue copies of ordinary host memory to the device."""

    cdef object busy                # deque of (event, buffers of a batch), oldest first
    cdef list batch                 # buffers whose copies are queued without an event behind them

    def __cinit__(self):
        self.busy = deque()
        self.batch = []

    def queue(self, Buffer target, source, Stream stream):
        """Queue a copy of `source`, a contiguous object, to the start of `target`."""
        cdef HostBuffer pinned
        self.settle()
        pinned = pinned_copy(source)
        self.batch.append(pinned)
        copy_async(target, pinned, stream, nbytes=pinned.size)

    def close_batch(self, Stream stream):
        """Record an event behind the copies that were queued on a stream since the last call."""
        cdef list batch = self.batch
        if not batch:
            return
        self.batch = []                         # the next batch may be of another stream
        try:
            self.busy.append((stream.record(), batch))
        except Exception:
            pass                              # without an event, each buffer waits for its own copy

    def settle(self):
        """Free the buffers of all batches that are done."""
        while self.busy:
            try:
                if not (<tuple> self.busy[0])[0].query():
                    return
            except Exception:
                self.busy.popleft()             # as in `close_batch`; a later query may fail too
            else:
                batch_end(<tuple> self.busy.popleft())

    def close(self):
        """Wait for the queued copies and free all buffers."""
        cdef HostBuffer pinned
        while self.busy:
            (<tuple> self.busy[0])[0].synchronize()
            batch_end(<tuple> self.busy.popleft())
        for pinned in self.batch:
            pinned.close()                      # no event: the pool waits for the copy
        self.batch.clear()


cdef HostBuffer pinned_copy(object source):
    cdef HostBuffer pinned
    cdef Py_buffer view
    cdef size_t size
    PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
    try:
        size = <size_t> view.len                                # the length is not negative
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
        pinned.pending = None                   # the event is behind the copy, so the copy is done
        pinned.close()
    return 0
