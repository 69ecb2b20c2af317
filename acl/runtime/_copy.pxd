"""The hook by which another module tells that the host memory of an object is pinned."""

from cpython.object cimport PyObject

# Return the address at which pinned memory keeps the works of its asynchronous copies: there is
# NULL for none, else an owned reference to a Work or a list.  Return NULL for other memory.
ctypedef PyObject **(*ArrayPending)(object array) except? NULL

# NULL until NumPy arrays are allocated in pinned memory (`_nep49`).
cdef ArrayPending array_pending
