"""Functions that the generator's table cannot describe: see `_special.pyx`."""

from cpython.object cimport PyObject


cdef object root_app_log(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object root_get_cann_attribute_list(object self, PyObject *const *args, Py_ssize_t n)
cdef object rt_get_stream_attribute(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_wait_and_reset_notify(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_get_group_info_detail(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object rt_set_stream_config_opt(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object mdl_set_config_opt(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object mdl_set_exec_config_opt(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object mdl_create_and_get_op_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object prof_get_op_type_v2(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
cdef object prof_get_op_name_v2(object self, PyObject *const *args, Py_ssize_t n, PyObject *names)
