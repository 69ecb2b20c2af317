"""A hook for modules that allocate pinned memory: it finds pinned memory for the copy functions."""

from cpython.object cimport PyObject

# A function that returns NULL if the array's memory is not pinned.  Otherwise it returns the
# address of the variable for the works of asynchronous copies that use the memory.  The variable is
# NULL, or an owned reference to a Work or a tuple of works.
ctypedef PyObject **(*ArrayPending)(object array) except? NULL

# The hook; NULL until `_nep49` allocates NumPy arrays in pinned memory.
cdef ArrayPending array_pending
