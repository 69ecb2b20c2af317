"""Streams and events."""

cimport cython

from acl.bind.generated._libacl cimport aclrtContext, aclrtEvent, aclrtStream
from acl.runtime._work cimport Progress

cdef enum:
    LEAST_HANDLE = 4096         # no object lies below; small numbers mean something else elsewhere


@cython.final
cdef class Stream:
    cdef aclrtStream raw            # NULL for the default stream
    cdef bint owned                 # whether close() destroys it
    cdef bint is_closed
    cdef int made                   # fork_count at its making
    cdef readonly int device        # the device it is on; -1 if unknown
    cdef aclrtContext context       # where it is
    cdef readonly Progress progress  # of its work; None for an object that was never made
    cdef list closers               # called with the handle once it is destroyed
    cdef object __weakref__


# The handle of an open stream, in a thread that then has a context; None: the default stream.
cdef int stream_raw(Stream stream, aclrtStream *raw) except -1
# Refuse what is on another device than the stream; `what` says in the message what it is.
cdef int stream_device_check(Stream stream, int device, str what) except -1
# A user's number as the address of an object of the runtime's, or 0; `what` says what it must be.
cdef size_t handle_checked(object value, str name, str what) except? 0
# The default stream of the thread's context.
cdef Stream stream_default()


@cython.final
cdef class Event:
    cdef aclrtEvent raw             # NULL once closed
    cdef bint owned
    cdef int made
    cdef readonly bint timing       # whether elapsed_ms may be asked
