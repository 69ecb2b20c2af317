"""Addresses of Python objects, and views of memory at addresses: see `_views.pyx`."""

from cpython.object cimport PyObject


cdef object util_numpy_to_ptr(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object util_numpy_contiguous_to_ptr(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object util_ptr_to_numpy(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object util_bytes_to_ptr(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object util_ptr_to_bytes(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
