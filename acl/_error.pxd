"""Status to exception, once: `check` at the edge, around every call of the C API."""

from acl._libacl cimport aclError


# Raises for a code that is not success.  `function` is a C name with static lifetime.
cdef int raise_acl(aclError code, const char *function) except -1 with gil


cdef inline int check(aclError code, const char *function) except -1 nogil:
    """Turn a status into 0 or a Python exception; success is one compare."""
    if code == 0:
        return 0
    return raise_acl(code, function)
