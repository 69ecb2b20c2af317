"""The `acl.rt.allocator_*` functions: see `_supply.pyx`."""

from cpython.object cimport PyObject


cdef object rt_allocator_create_desc(object self, PyObject *const *args, Py_ssize_t n)
cdef object rt_allocator_destroy_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_allocator_set_obj_to_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_allocator_set_alloc_func_to_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_allocator_set_free_func_to_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_allocator_set_alloc_advise_func_to_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_allocator_set_get_addr_from_block_func_to_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_allocator_register(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_allocator_unregister(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_allocator_get_by_stream(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
