"""Streams and events."""

cimport cython

from acl._callback cimport Callbacks
from acl._libacl cimport aclrtContext, aclrtEvent, aclrtStream


@cython.final
cdef class Stream:
    cdef aclrtStream raw            # NULL for the default stream
    cdef bint owned                 # whether close() destroys it
    cdef bint is_closed
    cdef int made                   # fork_count at its making
    cdef readonly int device        # the device it was made on; -1 if it is not ours
    cdef aclrtContext context       # where it was made; NULL if it is not ours
    cdef Callbacks callbacks        # None until the first launch
    cdef list closers               # called with the handle once it is destroyed
    cdef object __weakref__

    cdef int wait_done(self) except -1


# The handle of an open stream, in a thread that then has a context; None: the default stream.
cdef int stream_raw(Stream stream, aclrtStream *raw) except -1


@cython.final
cdef class Event:
    cdef aclrtEvent raw             # NULL once closed
    cdef bint owned
    cdef int made
    cdef readonly bint timing       # whether elapsed_ms may be asked
