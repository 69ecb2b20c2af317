"""Callbacks that several Python callables share, or that get no user data from C.

C identifies a callback by the address of its C function, but all Python callables share one C
function.  So C gets one registration for each *place*: a type of initialisation, a stage of a
snapshot, or a model.  Its user data is a `Hook`, the list of the Python callables of that place.  A
compile function gets no argument that identifies the operator, so each operator type has its own C
function, from a table.  A kernel's deallocator is found by the address of the kernel's binary.

Hooks are never freed, because C may still have their addresses.  The GIL is released around each
call of ACL here.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from acl.pyacl._call cimport Value, take
from acl.pyacl._listeners cimport call_status, need_callable
from acl.pyacl._layout cimport unpack
from acl.bind.generated._libacl cimport (
    ACL_ERROR_INTERNAL_ERROR, ACL_ERROR_INVALID_PARAM, ACL_ERROR_STORAGE_OVER_LIMIT,
    ACL_REG_TYPE_OTHER, aclDataDeallocator, aclError, aclFinalizeCallbackRegister,
    aclFinalizeCallbackUnRegister, aclInitCallbackRegister, aclInitCallbackUnRegister,
    aclmdlRIDestroyRegisterCallback, aclmdlRIDestroyUnregisterCallback, aclopAttr,
    aclopCompileFunc, aclopCreateKernel, aclopEngineType, aclopKernelDesc,
    aclopRegisterCompileFunc, aclopUnregisterCompileFunc, aclRegisterCallbackType,
    aclrtSnapShotCallbackRegister, aclrtSnapShotCallbackUnregister, aclrtSnapShotStage,
    aclTensorDesc,
)
from acl.pyacl._threads cimport Entry, guarded

cdef extern from *:
    """
    #include "acl/acl_op.h"

    #define ACLPOOL_SLOTS 64
    #define ACLPOOL_PARAMETERS int ins, const aclTensorDesc *const in[], int outs, \\
        const aclTensorDesc *const out[], const aclopAttr *attr, aclopKernelDesc *kernel

    /* C passes a compile function nothing that tells operators apart, so each has a C function. */
    static aclError (*aclpool_compile)(int slot, int ins, const aclTensorDesc **in, int outs,
                                       const aclTensorDesc **out, const aclopAttr *attr,
                                       aclopKernelDesc *kernel);

    #define ACLPOOL_SLOT(n) \\
        static aclError aclpool_compile_##n(ACLPOOL_PARAMETERS) \\
        { \\
            return aclpool_compile(n, ins, (const aclTensorDesc **)in, outs, \\
                                   (const aclTensorDesc **)out, attr, kernel); \\
        }
    #define ACLPOOL_EIGHT(m, t) m(t##0) m(t##1) m(t##2) m(t##3) m(t##4) m(t##5) m(t##6) m(t##7)
    #define ACLPOOL_ALL(m) ACLPOOL_EIGHT(m, ) ACLPOOL_EIGHT(m, 1) ACLPOOL_EIGHT(m, 2) \\
        ACLPOOL_EIGHT(m, 3) ACLPOOL_EIGHT(m, 4) ACLPOOL_EIGHT(m, 5) ACLPOOL_EIGHT(m, 6) \\
        ACLPOOL_EIGHT(m, 7)
    #define ACLPOOL_ENTRY(n) aclpool_compile_##n,

    ACLPOOL_ALL(ACLPOOL_SLOT)
    static const aclopCompileFunc aclpool_slots[ACLPOOL_SLOTS] = {ACLPOOL_ALL(ACLPOOL_ENTRY)};
    """
    enum:
        SLOTS "ACLPOOL_SLOTS"
    aclError (*aclpool_compile)(
        int slot, int ins, const aclTensorDesc **inputs, int outs, const aclTensorDesc **outputs,
        const aclopAttr *attr, aclopKernelDesc *kernel) noexcept nogil
    aclopCompileFunc[1] aclpool_slots


cdef class Hook:
    """The callables of one place, each with its user data.  The GIL protects the list."""

    cdef list calls

    def __cinit__(self):
        self.calls = []


# The GIL protects these four dicts.
cdef dict hooks = {}            # (kind of callback, place) -> Hook
cdef dict slots = {}            # operator type -> slot
cdef dict compilers = {}        # slot -> callable
cdef dict deallocators = {}     # address of a kernel's binary -> callable


cdef Hook hook_of(str which, uint64_t place):
    """Return the hook of a place; make it if there is none."""
    cdef Hook hook = hooks.get((which, place))
    if hook is None:
        hook = hooks[which, place] = Hook()
    return hook


cdef bint hook_remove(Hook hook, object function):
    """Remove the newest entry of a callable; return False if it has no entry."""
    for i in range(len(hook.calls) - 1, -1, -1):
        if hook.calls[i][0] == function:
            del hook.calls[i]
            return True
    return False


cdef int hook_run(Hook hook, tuple first) noexcept:
    """Call each callable of a hook with the arguments `first` and its own user data.

    Return the first status that is not 0, else 0.
    """
    cdef int status, failed = 0
    for function, own in list(hook.calls):
        status = call_status(function, (*first, own), ACL_ERROR_INTERNAL_ERROR)
        failed = failed or status
    return failed


# ---- initialisation and finalisation ----


cdef aclError on_init(const char *config, size_t size, void *given) noexcept nogil:
    cdef Entry entry
    entry.p[0] = given
    entry.p[1] = <void *> config
    entry.n[0] = <int64_t> size
    entry.status = 0
    guarded(init_run, &entry)
    return <aclError> entry.status      # the number is a status


cdef void init_run(void *place) noexcept with gil:
    cdef Entry *entry = <Entry *> place
    cdef const char *config = <const char *> entry.p[1]
    text = None if config == NULL else config[:entry.n[0]].decode("utf-8", "replace")
    entry.status = hook_run(<Hook> entry.p[0], (text,))


cdef aclError on_finalize(void *given) noexcept nogil:
    cdef Entry entry
    entry.p[0] = given
    entry.status = 0
    guarded(finalize_run, &entry)
    return <aclError> entry.status      # the number is a status


cdef void finalize_run(void *place) noexcept with gil:
    cdef Entry *entry = <Entry *> place
    entry.status = hook_run(<Hook> entry.p[0], ())


cdef object life_register(
    str which, const char *what, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """Register a callable.  C allows several of the type OTHER, and one of each other type."""
    cdef Value[3] a
    cdef aclError ret = 0
    cdef void *given
    cdef aclRegisterCallbackType kind
    take(what, args, n, names, a)
    need_callable(<object> a[1].o, what, 2)
    kind = <aclRegisterCallbackType> a[0].i
    hook = hook_of(which, a[0].i)
    given = <void *> hook
    if not hook.calls or kind != ACL_REG_TYPE_OTHER:
        if which == "init":
            with nogil:
                ret = aclInitCallbackRegister(kind, on_init, given)
        else:
            with nogil:
                ret = aclFinalizeCallbackRegister(kind, on_finalize, given)
    if ret == 0:
        hook.calls.append((<object> a[1].o, <object> a[2].o))
    return ret


cdef object life_unregister(
    str which, const char *what, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[2] a
    cdef aclError ret = 0
    cdef aclRegisterCallbackType kind
    take(what, args, n, names, a)
    kind = <aclRegisterCallbackType> a[0].i
    hook = hook_of(which, a[0].i)
    if hook.calls and not hook_remove(hook, <object> a[1].o):
        return ACL_ERROR_INVALID_PARAM
    if not hook.calls:
        if which == "init":
            with nogil:
                ret = aclInitCallbackUnRegister(kind, on_init)
        else:
            with nogil:
                ret = aclFinalizeCallbackUnRegister(kind, on_finalize)
    return ret


cdef object root_init_callback_register(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    return life_register(
        "init", b"iOO acl.init_callback_register type func user_data", args, n, names)


cdef object root_init_callback_unregister(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    return life_unregister("init", b"iO acl.init_callback_unregister type func", args, n, names)


cdef object root_finalize_callback_register(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    return life_register(
        "finalize", b"iOO acl.finalize_callback_register type func user_data", args, n, names)


cdef object root_finalize_callback_unregister(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    return life_unregister(
        "finalize", b"iO acl.finalize_callback_unregister type func", args, n, names)


# ---- snapshots ----


cdef uint32_t on_snapshot(int32_t device, void *given) noexcept nogil:
    cdef Entry entry
    entry.p[0] = given
    entry.n[0] = device
    entry.status = 0
    guarded(snapshot_run, &entry)
    return <uint32_t> entry.status      # the number is a status


cdef void snapshot_run(void *place) noexcept with gil:
    cdef Entry *entry = <Entry *> place
    entry.status = hook_run(<Hook> entry.p[0], (entry.n[0],))


cdef object rt_snap_shot_callback_register(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[3] a
    cdef const char *what = b"iOO acl.rt.snap_shot_callback_register stage callback args"
    cdef aclError ret = 0
    cdef void *given
    take(what, args, n, names, a)
    need_callable(<object> a[1].o, what, 2)
    hook = hook_of("snapshot", a[0].i)
    given = <void *> hook
    if not hook.calls:
        with nogil:
            ret = aclrtSnapShotCallbackRegister(<aclrtSnapShotStage> a[0].i, on_snapshot, given)
    if ret == 0:
        hook.calls.append((<object> a[1].o, <object> a[2].o))
    return ret


cdef object rt_snap_shot_callback_unregister(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[2] a
    cdef aclError ret = 0
    take(b"iO acl.rt.snap_shot_callback_unregister stage callback", args, n, names, a)
    hook = hook_of("snapshot", a[0].i)
    if hook.calls and not hook_remove(hook, <object> a[1].o):
        return ACL_ERROR_INVALID_PARAM
    if not hook.calls:
        with nogil:
            ret = aclrtSnapShotCallbackUnregister(<aclrtSnapShotStage> a[0].i, on_snapshot)
    return ret


# ---- the end of a captured graph ----


cdef void on_graph_end(void *given) noexcept nogil:
    guarded(graph_end_run, given)


cdef void graph_end_run(void *given) noexcept with gil:
    cdef Hook hook = <Hook> given
    hook_run(hook, ())
    hook.calls.clear()      # the graph is destroyed; a new graph may get its handle


cdef object mdl_ri_destroy_register_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[3] a
    cdef const char *what = b"kOO acl.mdl.ri_destroy_register_callback model_ri func user_data"
    cdef aclError ret = 0
    cdef void *given
    take(what, args, n, names, a)
    need_callable(<object> a[1].o, what, 2)
    hook = hook_of("graph", a[0].k)
    given = <void *> hook
    if not hook.calls:
        with nogil:
            ret = aclmdlRIDestroyRegisterCallback(a[0].p, on_graph_end, given)
    if ret == 0:
        hook.calls.append((<object> a[1].o, <object> a[2].o))
    return ret


cdef object mdl_ri_destroy_unregister_callback(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[2] a
    cdef aclError ret = 0
    take(b"kO acl.mdl.ri_destroy_unregister_callback model_ri func", args, n, names, a)
    hook = hook_of("graph", a[0].k)
    if hook.calls and not hook_remove(hook, <object> a[1].o):
        return ACL_ERROR_INVALID_PARAM
    if not hook.calls:
        with nogil:
            ret = aclmdlRIDestroyUnregisterCallback(a[0].p, on_graph_end)
    return ret


# ---- operators ----


cdef aclError on_compile(
    int slot, int ins, const aclTensorDesc **inputs, int outs, const aclTensorDesc **outputs,
    const aclopAttr *attr, aclopKernelDesc *kernel
) noexcept nogil:
    cdef Entry entry
    entry.p = [<void *> inputs, <void *> outputs, <void *> attr, <void *> kernel]
    entry.n = [slot, max(ins, 0), max(outs, 0)]
    entry.status = ACL_ERROR_INTERNAL_ERROR
    guarded(compile_run, &entry)
    return <aclError> entry.status      # the number is a status


cdef void compile_run(void *place) noexcept with gil:
    cdef Entry *entry = <Entry *> place
    function = compilers.get(entry.n[0])
    if function is None:
        return
    inputs = unpack(entry.p[0], <size_t> entry.n[1], c"k")      # the count is not negative
    outputs = unpack(entry.p[1], <size_t> entry.n[2], c"k")
    given = (len(inputs), inputs, len(outputs), outputs, <uint64_t> entry.p[2],
             <uint64_t> entry.p[3])
    entry.status = call_status(function, given, ACL_ERROR_INTERNAL_ERROR)


aclpool_compile = on_compile


def compiler_register(str kind not None, function):
    """Register a callable that chooses the kernels of an operator type; return ACL's status."""
    cdef bytes name = kind.encode()
    cdef const char *c_name = name
    cdef aclError ret
    cdef aclopCompileFunc c_function
    free = [slot for slot in range(SLOTS) if slot not in compilers]
    if not free:
        return ACL_ERROR_STORAGE_OVER_LIMIT
    c_function = aclpool_slots[<size_t> free[0]]
    compilers[free[0]] = function
    with nogil:
        ret = aclopRegisterCompileFunc(c_name, c_function)
    if ret == 0:
        slots[kind] = free[0]
    else:
        del compilers[free[0]]
    return ret


def compiler_unregister(str kind not None):
    """Remove the callable of an operator type; return ACL's status."""
    cdef bytes name = kind.encode()
    cdef const char *c_name = name
    cdef aclError ret
    with nogil:
        ret = aclopUnregisterCompileFunc(c_name)
    if ret == 0:
        compilers.pop(slots.pop(kind, None), None)
    return ret


cdef object op_register_compile_func(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[2] a
    cdef const char *what = b"sO acl.op.register_compile_func op_type func"
    take(what, args, n, names, a)
    need_callable(<object> a[1].o, what, 2)
    return compiler_register(a[0].s.decode(), <object> a[1].o)


cdef object op_unregister_compile_func(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[1] a
    take(b"s acl.op.unregister_compile_func op_type", args, n, names, a)
    return compiler_unregister(a[0].s.decode())


cdef void on_deallocate(void *data, size_t length) noexcept nogil:
    cdef Entry entry
    entry.p[0] = data
    entry.n[0] = <int64_t> length
    guarded(deallocate_run, &entry)


cdef void deallocate_run(void *place) noexcept with gil:
    cdef Entry *entry = <Entry *> place
    function = deallocators.pop(<uint64_t> entry.p[0], None)
    if function is not None:
        call_status(function, (<uint64_t> entry.p[0], entry.n[0]), 0)


cdef object op_create_kernel(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    """Create a kernel.  The deallocator is 0 (none), a callable, or the address of a C function."""
    cdef Value[7] a
    cdef Value[1] address
    cdef const char *what = (
        b"ssskiiO acl.op.create_kernel op_type kernel_id kernel_name bin_data bin_size engine_type "
        b"deallocator")
    cdef aclError ret
    cdef aclDataDeallocator deallocator = on_deallocate
    take(what, args, n, names, a)
    function = <object> a[6].o
    if callable(function):
        deallocators[a[3].k] = function
    else:
        take(b"k acl.op.create_kernel deallocator", &a[6].o, 1, NULL, address)
        (<void **> &deallocator)[0] = address[0].p
    with nogil:
        ret = aclopCreateKernel(a[0].s, a[1].s, a[2].s, a[3].p, a[4].i, <aclopEngineType> a[5].i,
                                deallocator)
    if ret != 0:
        deallocators.pop(a[3].k, None)
    return ret
