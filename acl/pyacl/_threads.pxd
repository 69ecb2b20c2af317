"""`acl.util.start_thread` and `stop_thread`, and how callbacks from C enter Python: see
`_threads.pyx`.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


cdef object util_start_thread(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object util_stop_thread(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)

# The arguments of a callback from C, for the function that takes the GIL, and that function's
# result.
cdef struct Entry:
    void *p[4]
    int64_t n[3]
    void *found
    int64_t status


# Call `run`, which may take the GIL; do nothing if the interpreter is exiting.  Threads of the
# runtime enter Python only through this function.
cdef void guarded(void (*run)(void *) noexcept nogil, void *given) noexcept nogil
