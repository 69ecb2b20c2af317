"""Status to exception, once: `check` at the edge, around every call of the C API."""

from acl.bind.generated._libacl cimport aclError


# Raises for a NULL of a function that makes an object: for want of it, or of host memory.
cdef int made_check(const void *made, const char *function) except -1
# A MemoryError to raise, and the end of its text: the limit of the process's addresses, if any.
cdef object host_memory_error(str what)
cdef str addresses_text()
# Raises for a code that is not success.  `function` is a C name with static lifetime.
cdef int raise_acl(aclError code, const char *function) except -1 with gil


cdef inline int check(aclError code, const char *function) except -1 nogil:
    """Turn a status into 0 or a Python exception; success is one compare."""
    if code == 0:
        return 0
    return raise_acl(code, function)
