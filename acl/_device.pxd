"""Devices and contexts, and what every handle asks first: is ACL up, is this still our process."""

cimport cython

from acl._libacl cimport aclrtContext


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
# The thread's context, or NULL.
cdef aclrtContext current_context() noexcept
# Raises for a handle that a parent process made.
cdef int forked_raise(object handle) except -1
# The number of the thread's current device, or -1.
cdef int current_device() except? -2


@cython.final
cdef class Device:
    cdef readonly int ordinal       # as aclrtSetDevice counts
    cdef list previous              # contexts to go back to when `with` blocks end


@cython.final
cdef class Context:
    cdef aclrtContext raw           # NULL once closed
    cdef bint owned                 # whether close() destroys it
    cdef int made                   # fork_count at its making
    cdef list previous              # contexts to go back to when `with` blocks end
    cdef readonly int device        # the ordinal it was made for; -1 if it is not ours
