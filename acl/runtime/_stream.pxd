"""Streams and events."""

cimport cython

from acl.bind.generated._libacl cimport aclrtContext, aclrtEvent, aclrtStream
from acl.runtime._work cimport Progress

cdef enum:
    LEAST_HANDLE = 4096         # lowest address that a handle may have


@cython.final
cdef class Stream:
    cdef aclrtStream raw            # NULL for the default stream
    cdef bint owned                 # close() destroys it
    cdef bint is_closed
    cdef int made                   # fork_count when it was made
    cdef readonly int device        # the device it is on; -1 if unknown
    cdef aclrtContext context       # where it is
    cdef readonly Progress progress  # of its work; None for an object that was never made
    cdef list closers               # called with the handle once it is destroyed
    cdef readonly bint refused      # ACL refused to destroy it at `close`: it still exists
    cdef object __weakref__


# Get the handle of an open stream, NULL for None, and make its context current if there is none.
cdef int stream_raw(Stream stream, aclrtStream *raw) except -1
# Raise an error if `device` is not the stream's; `what` names the object there in the message.
cdef int stream_device_check(Stream stream, int device, str what) except -1
# Return a user's number as the address of a runtime object, or 0; `what` names the object.
cdef size_t handle_checked(object value, str name, str what) except? 0
# Return the default stream of the thread's context.
cdef Stream stream_default()


@cython.final
cdef class Event:
    cdef aclrtEvent raw             # NULL once closed
    cdef bint owned
    cdef int made
    cdef readonly bint timing       # elapsed_ms may be called
