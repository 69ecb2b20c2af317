"""Device memory and pinned host memory.  A C function of the memory's owner frees it."""

cimport cython
from libc.stdint cimport int64_t

from acl.runtime._stream cimport Stream
from acl.runtime._work cimport Work

# A function that frees memory.  A function that never blocks is called with the GIL.  For a
# function that may block, the buffer sets `blocking`, and the function is called without the GIL.
ctypedef void (*BufferRelease)(void *owner, void *block) noexcept nogil
# A function that gives the unfinished works on a memory block to a pool of host memory.  The pool
# waits for these works before it uses the memory again.  Returns false if the pool refuses them.
ctypedef bint (*BufferSettle)(void *owner, void *block, object works) noexcept


@cython.final
cdef class Buffer:
    cdef void *address              # device address of the first byte; NULL once closed
    cdef size_t size                # requested bytes
    cdef BufferRelease release      # frees the memory; NULL if it is borrowed
    cdef void *owner                # first argument of `release`
    cdef void *block                # second argument of `release`
    cdef object keeper              # object that keeps `owner` alive; in a view: its buffer
    cdef Stream stream              # the stream that orders the memory's use, or None
    cdef object pending             # works on the memory (see `_work`); unused in a view
    cdef object writers        # works that wrote the memory and failed, or whose outcome is unknown
    cdef int device                 # number of the device; -1 if unknown
    cdef int made                   # fork_count when the object was made
    cdef int uses                   # number of calls that use the memory now; unused in a view
    cdef bint blocking              # `release` must be called without the GIL

    cdef int open_check(self) except -1


@cython.final
cdef class Uses:
    cdef Work work                  # the work that the call queues
    cdef list roots                 # tuples (buffer, is it written?, is all of it written?)

    # Note that the work will use a buffer.  Done before the work is queued, so that whatever fails
    # afterwards, the memory is not used again before the work is done.
    cdef int add(self, Buffer buffer, bint written) except -1
    # End the use of the buffers after the first `count`; the device is done with them.
    cdef int cut(self, Py_ssize_t count) except -1
    # End the call.  If `wrote`, the work was queued: note it as a writer of the buffers that were
    # added with `written`.
    cdef int end(self, bint wrote) except -1

# Return the buffer that owns the memory of a view.
cdef Buffer buffer_root(Buffer buffer)
# Store in the owner of memory that a work uses the memory.  A Buffer must not be a view.
cdef int buffer_note(Buffer root, Work work) except -1
cdef int host_note(HostBuffer buffer, Work work) except -1
# Store in `root`, which is not a view, that a queued work writes its memory, or the `whole` of it.
cdef int buffer_written(Buffer root, Work work, bint whole) except -1
# Raise an error if a work that wrote the memory has failed.  With `wait`, first wait for these
# works, until the time `until` (see `until_of` in `_work.pxd`).
cdef int buffer_readable(Buffer buffer, bint wait, int64_t until=*) except -1
# Add `change` to the number of calls that use the memory: 1 when a call begins, -1 when it ends.
# If the buffer was closed during these calls, the end of the last call frees the memory.
cdef int buffer_use(Buffer root, int change) except -1
# Return a caller's number of bytes; raise TypeError or ValueError if it is not one.
cdef size_t bytes_given(object value, str name) except? <size_t> -1
# Do what `buffer_use` does, for a HostBuffer.
cdef int host_use(HostBuffer buffer, int change) except -1

# Return a Buffer of memory that is allocated already.  Pools call this; it takes a few nanoseconds.
cdef Buffer buffer_wrap(
    void *address, size_t size, BufferRelease release, void *owner, void *block, object keeper,
    Stream stream, int device,
)


@cython.final
cdef class HostBuffer:
    cdef void *address              # NULL once closed
    cdef size_t size                # requested bytes
    cdef Py_ssize_t shape           # `size` as a Py_ssize_t, which the buffer protocol needs
    cdef Py_ssize_t exports         # number of memory views; while above 0, `close` fails
    cdef BufferRelease release      # frees the memory; NULL if it is borrowed
    cdef BufferSettle settle    # gets the unfinished works at `close`; NULL: `close` waits for them
    cdef void *owner                # first argument of `release` and `settle`
    cdef void *block                # second argument of `release` and `settle`
    cdef object keeper              # object that keeps `owner` alive
    cdef object pending             # works on the memory (see `_work`)
    cdef int made                   # fork_count when the object was made
    cdef int uses                   # number of calls that use the memory now
    cdef bint blocking              # `release` must be called without the GIL
    cdef object __weakref__

    cdef int open_check(self) except -1


cdef HostBuffer host_buffer_wrap(
    void *address, size_t size, BufferRelease release, BufferSettle settle, void *owner,
    void *block, object keeper,
)
