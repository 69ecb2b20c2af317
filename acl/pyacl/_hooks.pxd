"""Callbacks that several Python callables share, or that get no user data from C: see `_hooks.pyx`.
"""

from cpython.object cimport PyObject


cdef object root_init_callback_register(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object root_init_callback_unregister(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object root_finalize_callback_register(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object root_finalize_callback_unregister(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_snap_shot_callback_register(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_snap_shot_callback_unregister(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object mdl_ri_destroy_register_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object mdl_ri_destroy_unregister_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object op_register_compile_func(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object op_unregister_compile_func(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object op_create_kernel(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
