"""Functions of pyACL that take a Python callable as a callback.

C gets a `Call` as user data: a callable with the program's user data.  A launched callback owns a
reference to its Call until it has run.  The Calls of registered callbacks are kept in this module.
When such a Call is replaced or removed, it is emptied but not freed, because a thread of the
runtime may have its address and wait for the GIL.  If a function of C has no user data, only one
callable can be registered.

Each callback enters Python through `guarded` (`_threads`), then takes the GIL.  If a callable
raises an exception, it is passed to `sys.unraisablehook`, because C cannot handle it.  The GIL is
released around each call of ACL here.
"""

import sys

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, uint32_t, uint64_t

from acl.pyacl._call cimport Value, refuse, take
from acl.bind.generated._libacl cimport (
    ACL_ERROR_INVALID_PARAM, acldumpChunk, acldumpRegCallback, acldumpUnregCallback, aclError,
    aclrtBinarySetExceptionCallback, aclrtCallbackBlockType, aclrtDeviceState,
    aclrtDeviceStateCallback, aclrtDeviceTaskAbortCallback, aclrtDeviceTaskAbortStage,
    aclrtExceptionInfo, aclrtExceptionInfoCallbackRegister, aclrtExceptionInfoCallbackUnregister,
    aclrtLaunchCallback, aclrtLaunchHostFunc, aclrtRegDeviceStateCallback,
    aclrtRegStreamStateCallback, aclrtSetDeviceTaskAbortCallback, aclrtSetExceptionInfoCallback,
    aclrtStream, aclrtStreamState, aclrtStreamStateCallback,
)
from acl.pyacl._threads cimport Entry, guarded

cdef extern from "Python.h":
    void PyErr_Restore(PyObject *type, PyObject *value, PyObject *traceback)
    void PyErr_WriteUnraisable(object where)


cdef class Call:
    """A callable and its user data; both are None when the callable is no longer registered."""

    cdef object function
    cdef object given


# The GIL protects these variables.
cdef dict registered = {}       # (kind of callback, name) -> Call
cdef list emptied = []          # replaced or removed Calls, whose addresses C may still have
cdef list exception_calls = []  # Calls of exception_info_callback_register
cdef object exception_call = None       # the callable of set_exception_info_callback, or None
cdef object dump_call = None


cdef void report(object function) noexcept:
    """Pass the current exception to `sys.unraisablehook`."""
    kind, value, traceback = sys.exc_info()
    Py_INCREF(kind)
    Py_INCREF(value)
    Py_INCREF(traceback)
    PyErr_Restore(<PyObject *> kind, <PyObject *> value, <PyObject *> traceback)
    PyErr_WriteUnraisable(function)


cdef int call_status(object function, tuple given, int failed) noexcept:
    """Call `function`; return its int, 0 if it returned None, or `failed` if it raised."""
    try:
        result = function(*given)
        return 0 if result is None else int(result)
    except BaseException:
        report(function)
        return failed


cdef int need_callable(object given, const char *what, int argument) except -1:
    if not callable(given):
        raise refuse(what, argument, "callable", given)
    return 0


cdef Call call_of(PyObject *function, PyObject *given):
    cdef Call call = Call()
    call.function = <object> function
    call.given = <object> given
    return call


cdef void keep(tuple key, Call call) noexcept:
    """Replace the registered Call of a key by another Call, or by none."""
    cdef Call old = registered.pop(key, None)
    if old is not None:
        old.function = old.given = None
        emptied.append(old)
    if call is not None:
        registered[key] = call


# ---- callbacks that run once ----


cdef void on_once(void *given) noexcept nogil:
    guarded(run_once, given)


cdef void run_once(void *given) noexcept with gil:
    cdef Call call = <Call> given
    Py_DECREF(call)
    call_status(call.function, (call.given,), 0)


cdef object rt_launch_callback(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    cdef Value[4] a
    cdef const char *what = b"OOik acl.rt.launch_callback fn user_data block_type stream"
    cdef aclError ret
    cdef void *given
    take(what, args, n, names, a)
    need_callable(<object> a[0].o, what, 1)
    call = call_of(a[0].o, a[1].o)
    Py_INCREF(call)         # a reference for the queued callback
    given = <void *> call
    with nogil:
        ret = aclrtLaunchCallback(on_once, given, <aclrtCallbackBlockType> a[2].i, a[3].p)
    if ret != 0:
        Py_DECREF(call)
    return ret


cdef object rt_launch_host_func(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    cdef Value[3] a
    cdef const char *what = b"kOO acl.rt.launch_host_func stream fn args"
    cdef aclError ret
    cdef void *given
    take(what, args, n, names, a)
    need_callable(<object> a[1].o, what, 2)
    call = call_of(a[1].o, a[2].o)
    Py_INCREF(call)         # a reference for the queued callback
    given = <void *> call
    with nogil:
        ret = aclrtLaunchHostFunc(a[0].p, on_once, given)
    if ret != 0:
        Py_DECREF(call)
    return ret


# ---- exceptions of tasks ----


cdef void on_exception_slot(aclrtExceptionInfo *info) noexcept nogil:
    guarded(exception_slot_run, info)


cdef void exception_slot_run(void *info) noexcept with gil:
    function = exception_call
    if function is not None:
        call_status(function, (<uint64_t> info,), 0)


cdef object rt_set_exception_info_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    global exception_call
    cdef Value[1] a
    cdef const char *what = b"|O acl.rt.set_exception_info_callback fn"
    cdef aclError ret
    take(what, args, n, names, a)
    function = None if a[0].o == NULL else <object> a[0].o
    if function is None:
        with nogil:
            ret = aclrtSetExceptionInfoCallback(NULL)
    else:
        need_callable(function, what, 1)
        with nogil:
            ret = aclrtSetExceptionInfoCallback(on_exception_slot)
    if ret == 0:
        exception_call = function
    return ret


cdef void on_exceptions(aclrtExceptionInfo *info) noexcept nogil:
    guarded(exceptions_run, info)


cdef void exceptions_run(void *info) noexcept with gil:
    for function in list(exception_calls):
        call_status(function, (<uint64_t> info,), 0)


cdef object rt_exception_info_callback_register(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[1] a
    cdef const char *what = b"O acl.rt.exception_info_callback_register callback"
    cdef aclError ret = 0
    take(what, args, n, names, a)
    need_callable(<object> a[0].o, what, 1)
    if not exception_calls:
        with nogil:
            ret = aclrtExceptionInfoCallbackRegister(on_exceptions)
    if ret == 0:
        exception_calls.append(<object> a[0].o)
    return ret


cdef object rt_exception_info_callback_unregister(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[1] a
    cdef aclError ret = 0
    take(b"O acl.rt.exception_info_callback_unregister callback", args, n, names, a)
    if <object> a[0].o not in exception_calls:
        return ACL_ERROR_INVALID_PARAM
    if len(exception_calls) == 1:
        with nogil:
            ret = aclrtExceptionInfoCallbackUnregister(on_exceptions)
    if ret == 0:
        exception_calls.remove(<object> a[0].o)
    return ret


cdef void on_binary_exception(aclrtExceptionInfo *info, void *given) noexcept nogil:
    cdef Entry entry
    entry.p[0] = given
    entry.p[1] = info
    guarded(binary_exception_run, &entry)


cdef void binary_exception_run(void *place) noexcept with gil:
    cdef Entry *entry = <Entry *> place
    cdef Call call = <Call> entry.p[0]
    if call.function is not None:
        call_status(call.function, (<uint64_t> entry.p[1], call.given), 0)


cdef object rt_binary_set_exception_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[3] a
    cdef const char *what = (
        b"kOO acl.rt.binary_set_exception_callback bin_handle callback user_data")
    cdef aclError ret
    cdef void *given
    take(what, args, n, names, a)
    need_callable(<object> a[1].o, what, 2)
    call = call_of(a[1].o, a[2].o)
    given = <void *> call
    with nogil:
        ret = aclrtBinarySetExceptionCallback(a[0].p, on_binary_exception, given)
    if ret == 0:
        keep(("binary", a[0].k), call)
    return ret


# ---- states: one callable for each name ----


cdef void on_stream_state(aclrtStream stream, aclrtStreamState state, void *given) noexcept nogil:
    cdef Entry entry
    entry.p[0] = given
    entry.p[1] = stream
    entry.n[0] = <int> state
    guarded(stream_state_run, &entry)


cdef void stream_state_run(void *place) noexcept with gil:
    cdef Entry *entry = <Entry *> place
    cdef Call call = <Call> entry.p[0]
    if call.function is not None:
        call_status(call.function, (<uint64_t> entry.p[1], entry.n[0], call.given), 0)


cdef void on_device_state(int32_t device, aclrtDeviceState state, void *given) noexcept nogil:
    cdef Entry entry
    entry.p[0] = given
    entry.n[0] = device
    entry.n[1] = <int> state
    guarded(device_state_run, &entry)


cdef void device_state_run(void *place) noexcept with gil:
    cdef Entry *entry = <Entry *> place
    cdef Call call = <Call> entry.p[0]
    if call.function is not None:
        call_status(call.function, (entry.n[0], entry.n[1], call.given), 0)


cdef int32_t on_task_abort(
    int32_t device, aclrtDeviceTaskAbortStage stage, uint32_t timeout, void *given
) noexcept nogil:
    cdef Entry entry
    entry.p[0] = given
    entry.n = [device, <int> stage, timeout]
    entry.status = 0
    guarded(task_abort_run, &entry)
    return <int32_t> entry.status       # `call_status` returned an int


cdef void task_abort_run(void *place) noexcept with gil:
    cdef Entry *entry = <Entry *> place
    cdef Call call = <Call> entry.p[0]
    if call.function is not None:
        given = (entry.n[0], entry.n[1], entry.n[2], call.given)
        entry.status = call_status(call.function, given, -1)


# The functions for C by "is a callable registered?": NULL removes the registration of a name.
cdef aclrtStreamStateCallback[2] STREAM_STATE = [NULL, on_stream_state]
cdef aclrtDeviceStateCallback[2] DEVICE_STATE = [NULL, on_device_state]
cdef aclrtDeviceTaskAbortCallback[2] TASK_ABORT = [NULL, on_task_abort]


cdef object state_register(
    str which, const char *what, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """Register a callable under a name; None removes the registered one."""
    cdef Value[3] a
    cdef const char *reg_name
    cdef aclError ret
    cdef void *given
    cdef bint on
    take(what, args, n, names, a)
    on = <object> a[1].o is not None
    if on:
        need_callable(<object> a[1].o, what, 2)
    call = call_of(a[1].o, a[2].o) if on else None
    given = <void *> call if on else NULL
    reg_name = a[0].s
    if which == "stream":
        with nogil:
            ret = aclrtRegStreamStateCallback(reg_name, STREAM_STATE[on], given)
    elif which == "device":
        with nogil:
            ret = aclrtRegDeviceStateCallback(reg_name, DEVICE_STATE[on], given)
    else:
        with nogil:
            ret = aclrtSetDeviceTaskAbortCallback(reg_name, TASK_ABORT[on], given)
    if ret == 0:
        keep((which, reg_name.decode()), call)
    return ret


cdef object rt_reg_stream_state_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    return state_register(
        "stream", b"sOO acl.rt.reg_stream_state_callback reg_name callback args", args, n, names)


cdef object rt_reg_device_state_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    return state_register(
        "device", b"sOO acl.rt.reg_device_state_callback reg_name callback args", args, n, names)


cdef object rt_set_device_task_abort_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    return state_register(
        "abort", b"sOO acl.rt.set_device_task_abort_callback reg_name callback args", args, n,
        names)


# ---- dumps ----


cdef int32_t on_dump(const acldumpChunk *chunk, int32_t size) noexcept nogil:
    cdef Entry entry
    entry.p[0] = <void *> chunk
    entry.status = 0
    guarded(dump_run, &entry)
    return <int32_t> entry.status       # `call_status` returned an int


cdef void dump_run(void *place) noexcept with gil:
    cdef Entry *entry = <Entry *> place
    cdef const acldumpChunk *chunk = <const acldumpChunk *> entry.p[0]
    function = dump_call
    if function is None:
        return
    given = {
        "fileName": (<const char *> chunk.fileName).decode("utf-8", "replace"),
        "bufLen": chunk.bufLen,
        "isLastChunk": chunk.isLastChunk,
        "offset": chunk.offset,
        "flag": chunk.flag,
        "dataBuf": (<const char *> chunk.dataBuf)[:chunk.bufLen],
    }
    entry.status = call_status(function, (given,), -1)


cdef object mdl_dump_reg_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    global dump_call
    cdef Value[2] a
    cdef const char *what = b"Oi acl.mdl.dump_reg_callback func flag"
    cdef aclError ret
    take(what, args, n, names, a)
    need_callable(<object> a[0].o, what, 1)
    with nogil:
        ret = acldumpRegCallback(on_dump, a[1].i)
    if ret == 0:
        dump_call = <object> a[0].o
    return ret


cdef object mdl_dump_unreg_callback(object self, PyObject *const *args, Py_ssize_t n):
    global dump_call
    with nogil:
        acldumpUnregCallback()
    dump_call = None
    return None
