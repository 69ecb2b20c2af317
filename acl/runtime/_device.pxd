"""Devices and contexts; and checks that all handles need: is ACL started, did the process fork?"""

cimport cython

from acl.bind.generated._libacl cimport aclrtContext


# Number of forks between the process that imported acl and this one.
cdef int fork_count
# True from the interpreter's exit on: then no handle is destroyed, because the end of the process
# frees everything.
cdef bint leaving
# Number of this package's open handles of all kinds; guarded by the GIL.
cdef int alive
cdef void alive_add(int change) noexcept

# Start ACL if this process has not started it yet.
cdef int runtime_start() except -1
# Start ACL; if the thread has no context, make `preferred` current, or device 0 if `preferred` is
# NULL.  Also finish ends that are ready (`_later`).  Raise in a callback.
cdef int current_ensure(aclrtContext preferred) except -1
# Raise an error if the thread is in a callback of a stream, because a callback must not call ACL.
cdef int callback_check() except -1
# Called before and after each Python callback on a stream.
cdef void callback_enter() noexcept nogil
cdef void callback_leave() noexcept nogil
# Make a device current.  With `counts`, this call counts as a use of the device, which one call of
# `reset` must end.  Without `counts`, it counts only if it is the first use of the device.
cdef int device_set(int ordinal, bint counts) except -1
# Return the thread's context; NULL if it has none, or only a lent one (see `_device.pyx`).
cdef aclrtContext context_own() noexcept
# Make a context that `context_own` returned current again; if it is NULL, the thread's current
# context counts as lent from now on.
cdef int context_back(aclrtContext before) except -1
# Return the thread's context, lent or not, or NULL.
cdef aclrtContext current_context() noexcept
# Raise the error for a handle that a parent process made.
cdef int forked_raise(object handle) except -1
# Return the number of the thread's current device, or -1.
cdef int current_device() except? -2


@cython.final
cdef class Device:
    cdef readonly int ordinal       # the number that aclrtSetDevice takes


@cython.final
cdef class Context:
    cdef aclrtContext raw           # NULL once closed
    cdef bint owned                 # True if `close` destroys the context
    cdef int made                   # fork_count when the object was made
    cdef readonly int device        # number of the context's device; -1 if unknown
