"""The `acl.rt.allocator_*` functions, by which an allocator written in Python gives memory to ACL.

A descriptor has four functions and an object.  A function may be a Python callable, the address of
a C function, or a `Pool`.  The object may be any int, or a `Pool`.

- If all functions are addresses, C gets these addresses unchanged.
- If the object or a function is a Pool, registering the descriptor registers the pool's own C
  callbacks for the stream.
- If at least one function is a callable, C gets four functions of this module, and a `Supply` as
  the object.  C's block is then a `Record` of this module, because `getAddrFromBlock` gets only the
  block.  The user's functions, callables and addresses alike, get the user's object and the user's
  blocks.  If there is no advise function, the alloc function is called instead.

A Supply keeps its callables while its descriptor, a registration or one of its blocks exists.
After that it drops them, but the empty Supply is never freed, because the runtime may still have
its address.

The callbacks take the GIL, so the GIL is released around every call of ACL that may call one.  If
a callable raises an exception, it is passed to `sys.unraisablehook`, and the callback tells the
runtime that there is no memory.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from acl.pyacl._call cimport Value, address, refuse, take
from acl.pyacl._listeners cimport report
from acl.bind.generated._libacl cimport (
    ACL_ERROR_INTERNAL_ERROR, ACL_ERROR_INVALID_PARAM, aclError, aclrtAllocator,
    aclrtAllocatorAddr, aclrtAllocatorAllocAdviseFunc, aclrtAllocatorAllocFunc,
    aclrtAllocatorBlock, aclrtAllocatorCreateDesc, aclrtAllocatorDesc, aclrtAllocatorDestroyDesc,
    aclrtAllocatorFreeFunc, aclrtAllocatorGetAddrFromBlockFunc, aclrtAllocatorGetByStream,
    aclrtAllocatorRegister, aclrtAllocatorSetAllocAdviseFuncToDesc,
    aclrtAllocatorSetAllocFuncToDesc, aclrtAllocatorSetFreeFuncToDesc,
    aclrtAllocatorSetGetAddrFromBlockFuncToDesc, aclrtAllocatorSetObjToDesc,
    aclrtAllocatorUnregister, aclrtStream,
)
from acl.core._ends cimport ends_serve
from acl.pyacl._threads cimport Entry, guarded
from acl.runtime._ended cimport ended_drop, stream_watch

from acl.runtime._ended import watch_table

cdef enum:
    ALLOC
    FREE
    ADVISE
    ADDRESS
    FUNCTIONS

cdef extern from "Python.h":
    bint PyLong_Check(object value)


cdef struct Record:
    PyObject *supply        # the Supply of the block
    uint64_t block          # the number that the user's alloc returned


cdef class Supply:
    """The functions and the object of one descriptor.  The GIL protects it."""

    cdef uint64_t given             # the object of the descriptor, if it is an int
    cdef object pool                # the Pool that was set as the object or a function, or None
    cdef list functions             # indexed by ALLOC to ADDRESS: a callable, an address, or None
    cdef size_t holds               # number of descriptors, registrations and blocks that use it

    def __cinit__(self):
        self.functions = [None] * FUNCTIONS


cdef dict supplies = {}         # descriptor -> Supply
cdef dict registered = {}       # stream -> Supply or Pool
cdef list shells = []           # every Supply ever made, because C may still have its address


cdef void supply_drop(Supply supply) noexcept:
    """Decrease the number of users of a Supply; after the last one, drop its callables."""
    supply.holds -= 1
    if supply.holds == 0:
        supply.functions = [None] * FUNCTIONS
        supply.pool = None


cdef uint64_t number_of(object result) except? 0:
    """Return the block or address that a callable returned, as a number of 64 bits; None is 0."""
    return 0 if result is None else <object> (int(result) & 0xFFFFFFFFFFFFFFFF)


# ---- what C calls ----


cdef void supply_alloc(void *place) noexcept with gil:
    """Allocate by the user's function and set `found` to the new block's Record.

    If that fails, `found` stays NULL.
    """
    cdef Entry *entry = <Entry *> place
    cdef Supply supply = <Supply> entry.p[0]
    cdef void *near = entry.p[1]
    cdef size_t size = <size_t> entry.n[0]      # the callback stored a size_t here
    cdef bint advised = entry.n[1]
    cdef Record *record
    cdef uint64_t block = 0
    function = supply.functions[ADVISE] if advised else None
    with_place = function is not None
    if function is None:
        function = supply.functions[ALLOC]
    if function is None:
        return
    try:
        if PyLong_Check(function):
            block = native_alloc(function, supply.given, size, with_place, near)
        elif with_place:
            block = number_of(function(supply.given, size, <uint64_t> near))
        else:
            block = number_of(function(supply.given, size))
    except BaseException:
        report(function)
    if block == 0:
        return
    record = <Record *> calloc(1, sizeof(Record))
    if record == NULL:
        return
    record.supply = <PyObject *> supply
    record.block = block
    supply.holds += 1
    entry.found = record


cdef uint64_t native_alloc(
    uint64_t function, uint64_t given, size_t size, bint with_place, void *near
) noexcept:
    """Call the alloc or (if `with_place`) advise function at an address; return its block."""
    cdef aclrtAllocatorAllocFunc plain
    cdef aclrtAllocatorAllocAdviseFunc advising
    cdef void *block
    if with_place:
        (<uint64_t *> &advising)[0] = function
        with nogil:
            block = advising(<aclrtAllocator> given, size, near)
    else:
        (<uint64_t *> &plain)[0] = function
        with nogil:
            block = plain(<aclrtAllocator> given, size)
    return <uint64_t> block


cdef void supply_free(void *place) noexcept with gil:
    cdef Record *record = <Record *> place
    cdef Supply supply = <Supply> record.supply
    cdef aclrtAllocatorFreeFunc native
    cdef uint64_t block = record.block
    cdef uint64_t given = supply.given
    function = supply.functions[FREE]
    free(record)
    try:
        if PyLong_Check(function):
            (<uint64_t *> &native)[0] = function
            with nogil:
                native(<aclrtAllocator> given, <aclrtAllocatorBlock> block)
        else:
            function(given, block)
    except BaseException:
        report(function)
    supply_drop(supply)


cdef void supply_address(void *place) noexcept with gil:
    """Set `found` to the block's address, which the user's function returns; NULL on failure."""
    cdef Entry *entry = <Entry *> place
    cdef Record *record = <Record *> entry.p[0]
    cdef Supply supply = <Supply> record.supply
    cdef aclrtAllocatorGetAddrFromBlockFunc native
    cdef uint64_t block = record.block
    cdef void *found
    function = supply.functions[ADDRESS]
    try:
        if PyLong_Check(function):
            (<uint64_t *> &native)[0] = function
            with nogil:
                found = native(<aclrtAllocatorBlock> block)
            entry.found = found
        else:
            entry.found = <void *> number_of(function(block))
    except BaseException:
        report(function)


cdef void *entry_alloc(void *allocator, size_t size, bint advised, void *near) noexcept nogil:
    cdef Entry entry
    entry.p = [allocator, near, NULL, NULL]
    entry.n = [<int64_t> size, advised, 0]      # the cast keeps the bits of `size`
    entry.found = NULL
    guarded(supply_alloc, &entry)
    return entry.found


cdef void *on_supply_alloc(aclrtAllocator allocator, size_t size) noexcept nogil:
    return entry_alloc(allocator, size, False, NULL)


cdef void *on_supply_advise(
    aclrtAllocator allocator, size_t size, aclrtAllocatorAddr near
) noexcept nogil:
    return entry_alloc(allocator, size, True, near)


cdef void on_supply_free(aclrtAllocator allocator, aclrtAllocatorBlock block) noexcept nogil:
    if block != NULL:
        guarded(supply_free, block)


cdef void *on_supply_address(aclrtAllocatorBlock block) noexcept nogil:
    cdef Entry entry
    entry.p[0] = block
    entry.found = NULL
    if block != NULL:
        guarded(supply_address, &entry)
    return entry.found


# ---- what Python calls ----


cdef object rt_allocator_create_desc(object self, PyObject *const *args, Py_ssize_t n):
    cdef aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc()
    cdef Supply supply
    if desc != NULL:
        supply = supplies[<uint64_t> desc] = Supply()
        supply.holds = 1
        shells.append(supply)
    return <uint64_t> desc


cdef object rt_allocator_destroy_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[1] a
    cdef aclError ret
    take(b"k acl.rt.allocator_destroy_desc desc", args, n, names, a)
    with nogil:
        ret = aclrtAllocatorDestroyDesc(a[0].p)
    if ret == 0 and a[0].k in supplies:
        supply_drop(supplies.pop(a[0].k))
    return ret


cdef bint is_pool(object given) noexcept:
    """Return True for a Pool, which registers its own C callbacks."""
    return hasattr(given, "register") and hasattr(given, "unregister")


cdef object rt_allocator_set_obj_to_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """Set the object of a descriptor: an int, or a Pool."""
    cdef Value[2] a
    cdef Value[1] number
    cdef Supply supply
    cdef aclError ret
    take(b"kO acl.rt.allocator_set_obj_to_desc desc allocator", args, n, names, a)
    supply = supplies.get(a[0].k)
    if supply is not None and is_pool(<object> a[1].o):
        supply.pool = <object> a[1].o
        return 0
    take(b"k acl.rt.allocator_set_obj_to_desc allocator", &a[1].o, 1, NULL, number)
    with nogil:
        ret = aclrtAllocatorSetObjToDesc(a[0].p, number[0].p)
    if ret == 0 and supply is not None:
        supply.given = number[0].k
    return ret


cdef aclError native_set(int which, aclrtAllocatorDesc desc, uint64_t function) noexcept nogil:
    """Set a function of a descriptor in C, by its address; C refuses the address 0."""
    cdef aclrtAllocatorAllocFunc alloc
    cdef aclrtAllocatorFreeFunc drop
    cdef aclrtAllocatorAllocAdviseFunc advise
    cdef aclrtAllocatorGetAddrFromBlockFunc place
    if which == ALLOC:
        (<uint64_t *> &alloc)[0] = function
        return aclrtAllocatorSetAllocFuncToDesc(desc, alloc)
    if which == FREE:
        (<uint64_t *> &drop)[0] = function
        return aclrtAllocatorSetFreeFuncToDesc(desc, drop)
    if which == ADVISE:
        (<uint64_t *> &advise)[0] = function
        return aclrtAllocatorSetAllocAdviseFuncToDesc(desc, advise)
    (<uint64_t *> &place)[0] = function
    return aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, place)


cdef aclError supply_set(aclrtAllocatorDesc desc, void *supply) noexcept nogil:
    """Set this module's functions, and a Supply as the object, in a descriptor of C."""
    cdef aclError ret = aclrtAllocatorSetObjToDesc(desc, supply)
    if ret == 0:
        ret = aclrtAllocatorSetAllocFuncToDesc(desc, on_supply_alloc)
    if ret == 0:
        ret = aclrtAllocatorSetFreeFuncToDesc(desc, on_supply_free)
    if ret == 0:
        ret = aclrtAllocatorSetAllocAdviseFuncToDesc(desc, on_supply_advise)
    if ret == 0:
        ret = aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, on_supply_address)
    return ret


cdef aclError callable_set(int which, aclrtAllocatorDesc desc) noexcept nogil:
    """Set this module's function in a descriptor of C, so that C checks the descriptor now."""
    if which == ALLOC:
        return aclrtAllocatorSetAllocFuncToDesc(desc, on_supply_alloc)
    if which == FREE:
        return aclrtAllocatorSetFreeFuncToDesc(desc, on_supply_free)
    if which == ADVISE:
        return aclrtAllocatorSetAllocAdviseFuncToDesc(desc, on_supply_advise)
    return aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, on_supply_address)


cdef object function_set(
    int which, const char *what, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """Set one of the four functions: a callable, an address, or a Pool."""
    cdef Value[2] a
    cdef Supply supply
    cdef uint64_t function = 0
    cdef aclError ret
    take(what, args, n, names, a)
    given = <object> a[1].o
    supply = supplies.get(a[0].k)
    if supply is not None and is_pool(given):
        supply.pool = given
        return 0
    if PyLong_Check(given):
        function = <object> (given & 0xFFFFFFFFFFFFFFFF)
        with nogil:
            ret = native_set(which, a[0].p, function)
    elif callable(given):
        with nogil:
            ret = callable_set(which, a[0].p)
        if supply is None and ret == 0:
            return ACL_ERROR_INVALID_PARAM      # allocator_create_desc did not make this descriptor
    else:
        raise refuse(what, 2, "callable", given)
    if ret == 0 and supply is not None:
        supply.functions[which] = function if PyLong_Check(given) else given
    return ret


cdef object rt_allocator_set_alloc_func_to_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    return function_set(
        ALLOC, b"kO acl.rt.allocator_set_alloc_func_to_desc desc func", args, n, names)


cdef object rt_allocator_set_free_func_to_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    return function_set(
        FREE, b"kO acl.rt.allocator_set_free_func_to_desc desc func", args, n, names)


cdef object rt_allocator_set_alloc_advise_func_to_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    return function_set(
        ADVISE, b"kO acl.rt.allocator_set_alloc_advise_func_to_desc desc func", args, n, names)


cdef object rt_allocator_set_get_addr_from_block_func_to_desc(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    return function_set(
        ADDRESS, b"kO acl.rt.allocator_set_get_addr_from_block_func_to_desc desc func", args, n,
        names)


cdef void remember(uint64_t stream, object holder) noexcept:
    """Store the Supply or Pool that is registered for a stream, in place of the earlier one."""
    ended_drop()
    old = registered.pop(stream, None)
    if holder is not None:
        stream_watch(<aclrtStream> stream)
        registered[stream] = holder
    ends_serve(<aclrtStream> stream, isinstance(holder, Supply))
    holders_drop([old])


def holders_drop(holders):
    """Let go of the holders of registrations that have ended."""
    for holder in holders:
        if isinstance(holder, Supply):
            supply_drop(<Supply> holder)


watch_table(registered, holders_drop)


cdef object pool_register(object pool, uint64_t stream):
    """Register a pool for a stream; return 0, or the status of the exception."""
    try:
        pool.register(stream, replace=True)     # ACL's function replaces a registration too
    except Exception as error:
        return getattr(error, "code", ACL_ERROR_INTERNAL_ERROR)
    remember(stream, pool)
    return 0


cdef object pool_unregister(object pool, uint64_t stream):
    """Unregister a pool from a stream; return 0, or the status of the exception."""
    try:
        pool.unregister(stream)
    except Exception as error:
        return getattr(error, "code", ACL_ERROR_INTERNAL_ERROR)
    remember(stream, None)
    return 0


cdef object rt_allocator_register(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """Register a descriptor; refuse it if the user has not set all functions.

    C would not notice that, because it has this module's four functions.
    """
    cdef Value[2] a
    cdef Supply supply
    cdef aclError ret = 0
    cdef void *given
    take(b"kk acl.rt.allocator_register stream desc", args, n, names, a)
    supply = supplies.get(a[1].k)
    if supply is not None and supply.pool is not None:
        return pool_register(supply.pool, a[0].k)
    if supply is not None:
        needed = [supply.functions[which] for which in (ALLOC, FREE, ADDRESS)]
        if None in needed:
            return ACL_ERROR_INVALID_PARAM
        if not all(PyLong_Check(one) for one in [*needed, supply.functions[ADVISE] or 0]):
            given = <void *> supply
            with nogil:
                ret = supply_set(a[1].p, given)
    if ret == 0:
        with nogil:
            ret = aclrtAllocatorRegister(a[0].p, a[1].p)
    if ret == 0 and supply is not None:
        supply.holds += 1
        remember(a[0].k, supply)
    return ret


cdef object rt_allocator_unregister(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[1] a
    cdef aclError ret
    take(b"k acl.rt.allocator_unregister stream", args, n, names, a)
    ended_drop()
    holder = registered.get(a[0].k)
    if holder is not None and not isinstance(holder, Supply):
        return pool_unregister(holder, a[0].k)
    with nogil:
        ret = aclrtAllocatorUnregister(a[0].p)
    if ret == 0:
        remember(a[0].k, None)
    return ret


cdef object rt_allocator_get_by_stream(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    """Return the registration of a stream in C, with the functions as addresses."""
    cdef Value[1] a
    cdef aclrtAllocatorDesc desc = NULL
    cdef aclrtAllocator allocator = NULL
    cdef aclrtAllocatorAllocFunc alloc = NULL
    cdef aclrtAllocatorFreeFunc drop = NULL
    cdef aclrtAllocatorAllocAdviseFunc advise = NULL
    cdef aclrtAllocatorGetAddrFromBlockFunc place = NULL
    cdef aclError ret
    take(b"k acl.rt.allocator_get_by_stream stream", args, n, names, a)
    with nogil:
        ret = aclrtAllocatorGetByStream(
            a[0].p, &desc, &allocator, &alloc, &drop, &advise, &place)
    return (address(desc, ret), address(allocator, ret), address(<void *> alloc, ret),
            address(<void *> drop, ret), address(<void *> advise, ret),
            address(<void *> place, ret), ret)
