"""How another module tells that an object's host memory is pinned."""

from cpython.object cimport PyObject

# The place where such memory keeps the works of its asynchronous copies: NULL in it for none, a
# Work or a list otherwise, owned.  The function answers NULL for memory that is not its own.
ctypedef PyObject **(*ArrayPending)(object array) except? NULL

# NULL until NumPy arrays are made in pinned memory (`_nep49`).
cdef ArrayPending array_pending
