"""`acl.util.start_thread` and `stop_thread`, and whether Python is up: see `_threads.pyx`."""

from cpython.object cimport PyObject


cdef object util_start_thread(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object util_stop_thread(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)

# False once the interpreter is going down: then a callback must not take the GIL.
cdef bint python_is_up() noexcept nogil
