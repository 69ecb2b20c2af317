"""Device and pinned host memory, with an owner who takes it back through a C function."""

cimport cython
from libc.stdint cimport int64_t

from acl.runtime._stream cimport Stream
from acl.runtime._work cimport Work

# How memory goes back.  Called with the GIL, so it must neither block nor call the driver for long;
# one that does sets `blocking`, and the GIL is dropped around it.
ctypedef void (*BufferRelease)(void *owner, void *block) noexcept nogil
# What a pool of host memory does with works under way instead of waiting for them; false: it can't.
ctypedef bint (*BufferSettle)(void *owner, void *block, object works) noexcept


@cython.final
cdef class Buffer:
    cdef void *address              # of the first byte on the device; NULL once closed
    cdef size_t size                # bytes asked for
    cdef BufferRelease release      # NULL: the memory is borrowed
    cdef void *owner                # first argument of `release`
    cdef void *block                # its second
    cdef object keeper              # keeps what `owner` points to alive
    cdef Stream stream              # orders the memory's use; None: nothing does
    cdef object pending             # works on the memory (see `_work`); a view's are its buffer's
    cdef object writers             # those of them that wrote it, and may have failed
    cdef int device                 # ordinal; -1 if unknown
    cdef int made                   # fork_count at its making
    cdef int uses                   # calls that use the memory now; for a view, its buffer's
    cdef bint blocking              # whether `release` wants the GIL dropped

    cdef int open_check(self) except -1


@cython.final
cdef class Uses:
    cdef list roots                 # of (buffer, whether it is written, whether all of it is)

    cdef int add(self, Buffer buffer, bint written) except -1
    cdef int end(self, Work work) except -1

# The buffer that has the memory of a view.
cdef Buffer buffer_root(Buffer buffer)
# A work that uses a root's memory, and perhaps writes some of it or all.
cdef int buffer_note(Buffer root, Work work, bint written, bint whole) except -1
# Raises if work that wrote the memory has failed; `wait`: waits until that is known.
cdef int buffer_readable(Buffer buffer, bint wait, int64_t until=*) except -1
# A call uses the memory from here on (1), or no longer (-1): if it was closed meanwhile, it is
# given back then.
cdef int buffer_use(Buffer root, int change) except -1
# A number of bytes that a caller named: TypeError or ValueError if it is none.
cdef size_t bytes_given(object value, str name) except? <size_t> -1
cdef int host_use(HostBuffer buffer, int change) except -1

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
    cdef object pending             # works on the memory (see `_work`); a view's are its buffer's
    cdef int made
    cdef int uses                   # calls that use the memory at this moment
    cdef bint blocking              # whether `release` wants the GIL dropped
    cdef object __weakref__

    cdef int open_check(self) except -1


cdef HostBuffer host_buffer_wrap(
    void *address, size_t size, BufferRelease release, BufferSettle settle, void *owner,
    void *block, object keeper,
)
