"""Functions of pyACL that the generator's table cannot describe.

The docstring of each function says how it differs from the generated functions.
"""

import sys

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memset

from acl.pyacl._call cimport Value, address, refuse, take, text
from acl.pyacl._layout cimport at, bounded, room, unpack, unpack_struct
from acl.bind.generated._libacl cimport (
    ACL_MDL_PATH_PTR, ACL_MDL_PRIORITY_INT32, ACL_MDL_WEIGHT_PATH_PTR,
    ACL_MDL_WITHOUT_GRAPH_INT32, ACL_NPU_PERF_MODE, ACL_RT_STREAM_PRIORITY, aclAppLog,
    aclCannAttr, aclError, aclGetCannAttributeList, aclLogLevel, aclTensorDesc, aclmdlConfigAttr,
    aclmdlConfigHandle, aclmdlCreateAndGetOpDesc, aclmdlExecConfigAttr, aclmdlExecConfigHandle,
    aclmdlSetConfigOpt, aclmdlSetExecConfigOpt, aclprofGetOpName, aclprofGetOpNameLen,
    aclprofGetOpType, aclprofGetOpTypeLen, aclrtGetGroupInfoDetail, aclrtGetStreamAttribute,
    aclrtGroupAttr, aclrtGroupInfo, aclrtSetStreamConfigOpt, aclrtStreamAttr,
    aclrtStreamAttrValue, aclrtStreamConfigAttr, aclrtStreamConfigHandle, aclrtWaitAndResetNotify,
)

cdef const char *STREAM_VALUE = (
    b"failureMode@0K overflowSwitch@0I userCustomTag@0I cacheOpInfoSwitch@0I streamPriority@0I "
    b"reserved@0[4]I"
)
# By the number of a stream's attribute: the member of the union aclrtStreamAttrValue that it uses.
cdef dict STREAM_MEMBER = {
    1: "failureMode", 2: "overflowSwitch", 3: "userCustomTag", 4: "cacheOpInfoSwitch",
    5: "streamPriority",
}
# The attributes of a model's execution whose value is an int32; other attributes are a size_t.
cdef tuple EXEC_INT32 = (0, 1, 8)


cdef object root_app_log(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    """C gets the format "%s" with the message, and the caller's function, file and line."""
    cdef Value[2] a
    cdef const char *function
    cdef const char *file
    cdef uint32_t line
    take(b"is acl.app_log log_level message", args, n, names, a)
    frame = sys._getframe()
    function_name = frame.f_code.co_name.encode()
    file_name = frame.f_code.co_filename.encode("utf-8", "replace")
    function = function_name
    file = file_name
    line = frame.f_lineno
    with nogil:
        aclAppLog(<aclLogLevel> a[0].i, function, file, line, b"%s", a[1].s)
    return None


cdef object root_get_cann_attribute_list(object self, PyObject *const *args, Py_ssize_t n):
    """The array of C belongs to the library, so the function returns a copy of its elements."""
    cdef const aclCannAttr *attrs = NULL
    cdef size_t num = 0
    cdef aclError ret
    with nogil:
        ret = aclGetCannAttributeList(&attrs, &num)
    if ret != 0 or attrs == NULL:
        return [], 0, ret
    return unpack(attrs, num, c"i"), num, ret


cdef object rt_get_stream_attribute(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """The function converts only the member of the union that the attribute uses."""
    cdef Value[2] a
    cdef aclrtStreamAttrValue value
    cdef aclError ret
    take(b"ki acl.rt.get_stream_attribute stream attr", args, n, names, a)
    memset(&value, 0, sizeof(value))
    with nogil:
        ret = aclrtGetStreamAttribute(a[0].p, <aclrtStreamAttr> a[1].i, &value)
    if ret != 0:
        return {}, ret
    member = STREAM_MEMBER.get(a[1].i, "reserved")
    return {member: unpack_struct(&value, STREAM_VALUE)[member]}, ret


cdef object rt_wait_and_reset_notify(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """A timeout that does not fit a uint32_t is refused; generated functions would truncate it."""
    cdef Value[3] a
    cdef const char *what = b"kkL acl.rt.wait_and_reset_notify notify stream timeout"
    cdef aclError ret
    take(what, args, n, names, a)
    if not 0 <= a[2].L < 1 << 32:
        raise refuse(what, 3, "an int from 0 to 4294967295", a[2].L)
    with nogil:
        ret = aclrtWaitAndResetNotify(a[0].p, a[1].p, <uint32_t> a[2].L)
    return ret


cdef object rt_get_group_info_detail(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """Unlike most functions of pyACL, this one raises an exception if C fails."""
    cdef Value[3] a
    cdef uint32_t[64] values
    cdef size_t size = 0
    memset(values, 0, sizeof(values))
    cdef aclError ret
    take(b"kii acl.rt.get_group_info_detail group_info group_id attr", args, n, names, a)
    with nogil:
        ret = aclrtGetGroupInfoDetail(
            <const aclrtGroupInfo *> a[0].p, a[1].i, <aclrtGroupAttr> a[2].i, values,
            sizeof(values), &size)
    if ret != 0:
        raise RuntimeError(f"acl.rt.get_group_info_detail failed: {ret}")
    return unpack(values, min(size, sizeof(values)) // sizeof(uint32_t), c"i"), ret


cdef object rt_set_stream_config_opt(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """Python gives the value; C gets its address, and its size, which depends on the attribute."""
    cdef Value[3] a
    cdef size_t size
    cdef aclError ret
    take(b"kik acl.rt.set_stream_config_opt handle attr value", args, n, names, a)
    size = sizeof(uint32_t) if a[1].i == ACL_RT_STREAM_PRIORITY else sizeof(uint64_t)
    with nogil:
        ret = aclrtSetStreamConfigOpt(
            <aclrtStreamConfigHandle *> a[0].p, <aclrtStreamConfigAttr> a[1].i, &a[2].k, size)
    return ret


cdef object mdl_set_config_opt(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    """The type of the value depends on the attribute: a str, an int32, or an int of 64 bits."""
    cdef Value[3] a
    cdef Value[1] value
    cdef const char *what = b"kiO acl.mdl.set_config_opt handle attr value"
    cdef const char *kind = b"k acl.mdl.set_config_opt value"
    cdef const void *place = &value[0]
    cdef size_t size = sizeof(uint64_t)
    cdef aclError ret
    take(what, args, n, names, a)
    if a[1].i == ACL_MDL_PATH_PTR or a[1].i == ACL_MDL_WEIGHT_PATH_PTR:
        kind = b"s acl.mdl.set_config_opt value"
    elif a[1].i in (ACL_MDL_PRIORITY_INT32, ACL_MDL_WITHOUT_GRAPH_INT32, ACL_NPU_PERF_MODE):
        kind = b"i acl.mdl.set_config_opt value"
        size = sizeof(int32_t)
    take(kind, &a[2].o, 1, NULL, value)
    with nogil:
        ret = aclmdlSetConfigOpt(
            <aclmdlConfigHandle *> a[0].p, <aclmdlConfigAttr> a[1].i, place, size)
    return ret


cdef object mdl_set_exec_config_opt(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """Python gives the value; C gets its address, and its size, which depends on the attribute."""
    cdef Value[3] a
    cdef size_t size
    cdef aclError ret
    take(b"kkk acl.mdl.set_exec_config_opt handle attr value", args, n, names, a)
    size = sizeof(int32_t) if a[1].k in EXEC_INT32 else sizeof(uint64_t)
    with nogil:
        ret = aclmdlSetExecConfigOpt(
            <aclmdlExecConfigHandle *> a[0].p, <aclmdlExecConfigAttr> a[1].k, &a[2].k, size)
    return ret


cdef object mdl_create_and_get_op_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """Returns two lists of descriptions. The caller frees each description."""
    cdef Value[4] a
    cdef const char *what = (
        b"IIIk acl.mdl.create_and_get_op_desc device_id stream_id task_id op_name_len")
    cdef aclTensorDesc *inputs = NULL
    cdef aclTensorDesc *outputs = NULL
    cdef size_t num_inputs = 0
    cdef size_t num_outputs = 0
    cdef char *name_at
    cdef aclError ret
    take(what, args, n, names, a)
    name = bounded(a[3].k, what)
    name_at = <char *> at(name)
    with nogil:
        ret = aclmdlCreateAndGetOpDesc(
            a[0].u, a[1].u, a[2].u, name_at, a[3].k, &inputs, &num_inputs, &outputs, &num_outputs)
    return (text(name_at) if ret == 0 else "", address(inputs, ret), num_inputs,
            address(outputs, ret), num_outputs, ret)


ctypedef aclError (*LengthOf)(
    const void *info, size_t size, uint32_t index, size_t *length) noexcept nogil
ctypedef aclError (*TextOf)(
    const void *info, size_t size, uint32_t index, char *text, size_t length) noexcept nogil


cdef object op_text(Value *a, LengthOf length_of, TextOf text_of):
    """Get the length of a text of a profiled operator from C, then the text, and return it."""
    cdef size_t length = 0
    cdef char *text_at
    cdef aclError ret
    with nogil:
        ret = length_of(a[0].p, a[1].k, a[2].u, &length)
    if ret != 0:
        return None, ret
    made = room(length + 1)
    text_at = <char *> at(made)
    with nogil:
        ret = text_of(a[0].p, a[1].k, a[2].u, text_at, length + 1)
    return (text(text_at) if ret == 0 else None), ret


cdef object prof_get_op_type_v2(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    """The caller does not give the text's length; the function gets it from C."""
    cdef Value[3] a
    take(b"kkI acl.prof.get_op_type_v2 op_info len index", args, n, names, a)
    return op_text(a, aclprofGetOpTypeLen, aclprofGetOpType)


cdef object prof_get_op_name_v2(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    """The caller does not give the text's length; the function gets it from C."""
    cdef Value[3] a
    take(b"kkI acl.prof.get_op_name_v2 op_info len index", args, n, names, a)
    return op_text(a, aclprofGetOpNameLen, aclprofGetOpName)
