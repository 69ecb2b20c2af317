"""Devices and contexts, and checks for all handles: ACL is started, the process did not fork."""

cimport cython

from acl.bind.generated._libacl cimport aclrtContext


# Number of forks between the process that imported acl and this one.
cdef int fork_count
# Set at interpreter exit: from then on nothing is freed, as the end of the process frees it.
cdef bint leaving
# Number of this package's open handles of all kinds; guarded by the GIL.
cdef int alive
cdef void alive_add(int change) noexcept

# Start ACL, once in a process.
cdef int runtime_start() except -1
# Start ACL; if the thread has no context, make `preferred` current, or device 0 if it is NULL.
cdef int current_ensure(aclrtContext preferred) except -1
# Raise an error in a callback on a stream, which must not call the device.
cdef int callback_check() except -1
# Called around each Python callback on a stream.
cdef void callback_enter() noexcept nogil
cdef void callback_leave() noexcept nogil
# Make a device current; unless `counts`, a device used before does not need another `reset`.
cdef int device_set(int ordinal, bint counts) except -1
# Return the thread's context; NULL if it has none, or only a lent one (see `_device.pyx`).
cdef aclrtContext context_own() noexcept
# Make such a context current again; after NULL, the thread's context counts as lent.
cdef int context_back(aclrtContext before) except -1
# Return the thread's context, lent or not, or NULL.
cdef aclrtContext current_context() noexcept
# Raise the error for a handle that a parent process made.
cdef int forked_raise(object handle) except -1
# Return the number of the thread's current device, or -1.
cdef int current_device() except? -2


@cython.final
cdef class Device:
    cdef readonly int ordinal       # as aclrtSetDevice counts


@cython.final
cdef class Context:
    cdef aclrtContext raw           # NULL once closed
    cdef bint owned                 # close() destroys it
    cdef int made                   # fork_count when it was made
    cdef readonly int device        # ordinal of its device; -1 if unknown
