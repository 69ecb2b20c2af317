"""Streams and events."""

cimport cython

from acl.bind.generated._libacl cimport aclrtContext, aclrtEvent, aclrtStream
from acl.runtime._work cimport Progress

cdef enum:
    LEAST_HANDLE = 4096         # smallest valid handle, an address: the first page is never mapped


@cython.final
cdef class Stream:
    cdef aclrtStream raw            # NULL for the default stream
    cdef bint owned                 # True if `close` destroys the stream
    cdef bint is_closed
    cdef int made                   # fork_count when the object was made
    cdef readonly int device        # number of the stream's device; -1 if unknown
    cdef aclrtContext context       # the stream's context
    cdef readonly Progress progress  # the state of its work; None if __init__ has not run
    cdef list closers              # functions to call with the handle after the stream is destroyed
    cdef readonly bint refused      # ACL refused to destroy the stream at `close`; it still exists
    cdef object __weakref__


# Set `raw` to the handle of an open stream (NULL for None).  If the thread has no current context,
# make the stream's context current.
cdef int stream_raw(Stream stream, aclrtStream *raw) except -1
# Raise an error if an object's device is not the stream's; `what` names the object in the message.
cdef int stream_device_check(Stream stream, int device, str what) except -1
# Return a user's handle, or 0; raise an error if it is no possible address.  `name` is the
# argument's name and `what` describes what it should be, both for the message.
cdef size_t handle_checked(object value, str name, str what) except? 0
# Return the default stream of the thread's context.
cdef Stream stream_default()


@cython.final
cdef class Event:
    cdef aclrtEvent raw             # NULL once closed
    cdef bint owned                 # True if `close` destroys the event
    cdef int made                   # fork_count when the object was made
    cdef readonly bint timing       # the event records the time, so `elapsed_ms` may be called
