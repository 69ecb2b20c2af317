"""Turns a status of the C API into an exception: `check`, around every call. See `_error.pyx`."""

from acl.bind.generated._libacl cimport aclError


# Raises if `made` is NULL: because the library lacks the function that makes the object, or host
# memory is out.
cdef int made_check(const void *made, const char *function) except -1
# Returns a MemoryError. Its text ends with the process's limit of address space, if it has one.
cdef object host_memory_error(str what)
cdef str addresses_text()
# Raises for a code that is not success.  `function` is a C name with static lifetime.
cdef int raise_acl(aclError code, const char *function) except -1 with gil


cdef inline int check(aclError code, const char *function) except -1 nogil:
    """Return 0 for success, which costs one comparison; otherwise raise the exception for the
    status.
    """
    if code == 0:
        return 0
    return raise_acl(code, function)
