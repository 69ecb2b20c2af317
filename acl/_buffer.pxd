"""Device and pinned host memory, with an owner who takes it back through a C function."""

cimport cython

from acl._stream cimport Stream

# How memory goes back.  Called with the GIL, so it must neither block nor call the driver for long;
# one that does sets `blocking`, and the GIL is dropped around it.
ctypedef void (*BufferRelease)(void *owner, void *block) noexcept nogil
# What a pool of host memory does with the streams of `pending` instead of waiting for them.
ctypedef void (*BufferSettle)(void *owner, void *block, object pending) noexcept

# Notes that an asynchronous copy uses the memory: closing it waits for that stream.
cdef object pending_add(object pending, Stream stream)
# Waits for the streams of `pending`; what they answer is theirs to tell.
cdef int pending_settle(object pending) noexcept


@cython.final
cdef class Buffer:
    cdef void *address              # of the first byte on the device; NULL once closed
    cdef size_t size                # bytes asked for
    cdef BufferRelease release      # NULL: the memory is borrowed
    cdef void *owner                # first argument of `release`
    cdef void *block                # its second
    cdef object keeper              # keeps what `owner` points to alive
    cdef Stream stream              # orders the memory's use; None: nothing does
    cdef object pending             # None, or the stream (or list) of copies that nobody waited for
    cdef int device                 # ordinal; -1 if unknown
    cdef int made                   # fork_count at its making
    cdef bint blocking              # whether `release` wants the GIL dropped

    cdef int open_check(self) except -1


# A buffer around memory of the caller's: the way of pools, in a few nanoseconds.
cdef Buffer buffer_wrap(
    void *address, size_t size, BufferRelease release, void *owner, void *block, object keeper,
    Stream stream, int device,
)


@cython.final
cdef class HostBuffer:
    cdef void *address              # NULL once closed
    cdef size_t size                # bytes asked for
    cdef Py_ssize_t shape           # the same, as the buffer protocol wants it
    cdef Py_ssize_t exports         # memory views alive: it can't be closed under them
    cdef BufferRelease release      # NULL: the memory is borrowed
    cdef BufferSettle settle        # NULL: closing waits
    cdef void *owner                # first argument of both
    cdef void *block                # their second
    cdef object keeper
    cdef object pending             # None, or the stream (or list) of copies that nobody waited for
    cdef int made
    cdef bint blocking              # whether `release` wants the GIL dropped
    cdef object __weakref__

    cdef int open_check(self) except -1


cdef HostBuffer host_buffer_wrap(
    void *address, size_t size, BufferRelease release, BufferSettle settle, void *owner,
    void *block, object keeper,
)
