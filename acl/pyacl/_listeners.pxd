"""Functions of pyACL that take a Python callable as a callback: see `_listeners.pyx`."""

from cpython.object cimport PyObject


cdef void report(object function) noexcept
cdef int call_status(object function, tuple given, int failed) noexcept
cdef int need_callable(object given, const char *what, int argument) except -1

cdef object rt_launch_callback(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_launch_host_func(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_set_exception_info_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_exception_info_callback_register(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_exception_info_callback_unregister(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_binary_set_exception_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_reg_stream_state_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_reg_device_state_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_set_device_task_abort_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object mdl_dump_reg_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object mdl_dump_unreg_callback(object self, PyObject *const *args, Py_ssize_t n)
