"""`acl.util.start_thread` and `stop_thread`, and the way from C into Python: see `_threads.pyx`."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


cdef object util_start_thread(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object util_stop_thread(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)

# What a callback from C hands to the function that takes the GIL, and what that answers.
cdef struct Entry:
    void *p[4]
    int64_t n[3]
    void *found
    int64_t status


# Calls `run`, which may take the GIL, unless the interpreter is leaving: every way from a thread of
# the runtime into Python goes through here.
cdef void guarded(void (*run)(void *) noexcept nogil, void *given) noexcept nogil
