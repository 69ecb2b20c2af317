"""Devices and contexts, and what every handle asks first: is ACL up, is this still our process."""

cimport cython

from acl.bind.generated._libacl cimport aclrtContext


# How many forks lie between the process that imported acl and this one.
cdef int fork_count
# Set at interpreter exit: from then on nothing is released, the system takes it all back.
cdef bint leaving
# How many handles of ours are open, whatever their kind; changed under the GIL.
cdef int alive
cdef void alive_add(int change) noexcept

# Starts ACL once in a process.
cdef int runtime_start() except -1
# The same, and gives a thread without a current context this one, or device 0's if it is NULL.
cdef int current_ensure(aclrtContext preferred) except -1
# Raises in a callback on a stream: there the device may not be called.
cdef int callback_check() except -1
# Around each Python callback on a stream.
cdef void callback_enter() noexcept nogil
cdef void callback_leave() noexcept nogil
# Make a device current; one that was used before is not counted as used again if `counts` is false.
cdef int device_set(int ordinal, bint counts) except -1
# The thread's context, or NULL; and NULL too for one that a block or a question only lent it.
cdef aclrtContext context_own() noexcept
# Go back to such a context.
cdef int context_back(aclrtContext before) except -1
# The thread's context, or NULL.
cdef aclrtContext current_context() noexcept
# Raises for a handle that a parent process made.
cdef int forked_raise(object handle) except -1
# The number of the thread's current device, or -1.
cdef int current_device() except? -2


@cython.final
cdef class Device:
    cdef readonly int ordinal       # as aclrtSetDevice counts


@cython.final
cdef class Context:
    cdef aclrtContext raw           # NULL once closed
    cdef bint owned                 # whether close() destroys it
    cdef int made                   # fork_count at its making
    cdef readonly int device        # the ordinal it was made for; -1 if it is not ours
