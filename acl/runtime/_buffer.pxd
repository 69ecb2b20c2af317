"""Device memory and pinned host memory, which a C function of the owner frees."""

cimport cython
from libc.stdint cimport int64_t

from acl.runtime._stream cimport Stream
from acl.runtime._work cimport Work

# Frees memory.  It is called with the GIL, so it must not block or call the driver for long.  For a
# function that does, `blocking` is set, and the GIL is released around the call.
ctypedef void (*BufferRelease)(void *owner, void *block) noexcept nogil
# Hands unfinished works to a pool of host memory, which then waits for them before it reuses the
# memory; false if it cannot.
ctypedef bint (*BufferSettle)(void *owner, void *block, object works) noexcept


@cython.final
cdef class Buffer:
    cdef void *address              # of the first byte on the device; NULL once closed
    cdef size_t size                # requested bytes
    cdef BufferRelease release      # frees the memory; NULL if it is borrowed
    cdef void *owner                # first argument of `release`
    cdef void *block                # second argument of `release`
    cdef object keeper              # Python object that keeps `owner`; a view's is its buffer
    cdef Stream stream              # the stream that orders the memory's use, or None
    cdef object pending             # works on the memory (see `_work`); unused in a view
    cdef object writers             # works that wrote the memory and may have failed
    cdef int device                 # ordinal; -1 if unknown
    cdef int made                   # fork_count when it was made
    cdef int uses                   # number of calls that use the memory now; unused in a view
    cdef bint blocking              # `release` must be called without the GIL

    cdef int open_check(self) except -1


@cython.final
cdef class Uses:
    cdef list roots                 # tuples of a buffer, if it is written, if all of it is written

    cdef int add(self, Buffer buffer, bint written) except -1
    cdef int end(self, Work work) except -1

# Return the buffer that owns the memory of a view.
cdef Buffer buffer_root(Buffer buffer)
# Note a work that uses the memory of a buffer that is not a view, and may write part or all of it.
cdef int buffer_note(Buffer root, Work work, bint written, bint whole) except -1
# Raise an error if work that wrote the memory has failed; with `wait`, wait until that is known.
cdef int buffer_readable(Buffer buffer, bint wait, int64_t until=*) except -1
# Note that a call begins to use the memory (1), or has ended its use (-1); after the last use,
# memory that was closed meanwhile is freed.
cdef int buffer_use(Buffer root, int change) except -1
# Return a caller's number of bytes; raise TypeError or ValueError if it is not one.
cdef size_t bytes_given(object value, str name) except? <size_t> -1
cdef int host_use(HostBuffer buffer, int change) except -1

# Make a buffer of existing memory, as pools do, in a few nanoseconds.
cdef Buffer buffer_wrap(
    void *address, size_t size, BufferRelease release, void *owner, void *block, object keeper,
    Stream stream, int device,
)


@cython.final
cdef class HostBuffer:
    cdef void *address              # NULL once closed
    cdef size_t size                # requested bytes
    cdef Py_ssize_t shape           # `size` in the type of the buffer protocol
    cdef Py_ssize_t exports         # number of memory views; above 0 it cannot be closed
    cdef BufferRelease release      # frees the memory; NULL if it is borrowed
    cdef BufferSettle settle        # takes unfinished works; NULL if closing waits for them
    cdef void *owner                # first argument of `release` and `settle`
    cdef void *block                # second argument of `release` and `settle`
    cdef object keeper
    cdef object pending             # works on the memory (see `_work`)
    cdef int made
    cdef int uses                   # number of calls that use the memory now
    cdef bint blocking              # `release` must be called without the GIL
    cdef object __weakref__

    cdef int open_check(self) except -1


cdef HostBuffer host_buffer_wrap(
    void *address, size_t size, BufferRelease release, BufferSettle settle, void *owner,
    void *block, object keeper,
)
