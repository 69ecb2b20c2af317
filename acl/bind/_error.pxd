"""`check` turns a status of the C API into an exception.  All code that may raise uses it.

See `_error.pyx`.
"""

from acl.bind.generated._libacl cimport aclError


# Raises if `made` is NULL, which means that the library lacks the function that makes the object,
# or that there is no host memory.
cdef int made_check(const void *made, const char *function) except -1
# Returns a MemoryError. Its text ends with the process's limit of address space, if it has a limit.
cdef object host_memory_error(str what)
cdef str addresses_text()
# Raises for a code that is not success.  `function` is a C name with static lifetime.
cdef int raise_acl(aclError code, const char *function) except -1 with gil


cdef inline int check(aclError code, const char *function) except -1 nogil:
    """Return 0 if `code` is success; otherwise raise the exception for it.

    Success costs one comparison.
    """
    if code == 0:
        return 0
    return raise_acl(code, function)
