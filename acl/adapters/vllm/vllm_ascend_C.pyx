"""A replacement for vLLM-Ascend's extension module, with its ABI: an allocator with a sleep mode.

torch_npu allocates segments with `my_malloc` and frees them with `my_free`.  Each call also calls a
Python function of vLLM-Ascend's `camem.py`.  `camem.py` releases a segment's physical memory with
`python_unmap_and_release` and restores it with `python_create_and_map`.  Between these calls the
addresses stay reserved.

By default, a segment is one physical handle of the driver.  After `serve`, new segments are blocks
of a pool.  Then other blocks of the pool can use the memory of sleeping segments, the pool's limit
applies, and the blocks have `camem.py`'s tags.

This file must keep its name, because `camem.py` looks for the name in the process's memory map.  A
segment is reported to the Python functions that were set when it was made; they are kept until the
last of their segments is freed.  If a segment is freed while it sleeps, it has no memory to return.

A handle of another module is refused, and so is mapping a mapped or unmapping an unmapped segment.
Any thread may call these functions, with or without the GIL.  The GIL protects the tables; it is
released around driver calls.  When the interpreter exits, nothing is returned to the driver,
because the system frees everything.
"""

import atexit

from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free

from acl.core._driver cimport prop_fill
from acl.pyacl._blocks cimport Blocks
from acl.runtime._device cimport current_context, fork_count, runtime_start
from acl.bind._error cimport check
from acl.bind.generated._libacl cimport (
    ACL_HBM_MEM_HUGE, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, ACL_SUCCESS, aclError, aclrtContext,
    aclrtDrvMemHandle, aclrtFreePhysical, aclrtGetDevice, aclrtMallocPhysical,
    aclrtMapMem, aclrtMemGetAllocationGranularity, aclrtPhysicalMemProp, aclrtReleaseMemAddress,
    aclrtReserveMemAddress, aclrtSetCurrentContext, aclrtSetDevice,
    aclrtSynchronizeDeviceWithTimeout, aclrtUnmapMem,
)
from acl.pool._pool cimport Pool

cdef extern from "<sys/types.h>" nogil:
    ctypedef Py_ssize_t ssize_t

cdef extern from "adapters/vllm/camem.h" nogil:
    ctypedef void *(*CamemMalloc)(ssize_t size, int device, void *stream) noexcept nogil
    ctypedef void (*CamemFree)(void *address, ssize_t size, int device, void *stream) noexcept nogil
    void camem_set(CamemMalloc allocate, CamemFree release)

cdef extern from "runtime/guard.h" nogil:
    void guard_run(void (*run)(void *) noexcept nogil, void *argument)
    void guard_close(int limit_ms)

__all__ = [
    "driver_parts", "init_module", "python_create_and_map", "python_unmap_and_release", "segments",
    "serve",
]

cdef enum:
    EXIT_LIMIT_MS = 500         # longest wait, at exit, for calls that have begun
    GRANULE = 2 << 20           # bytes of a page, if the driver does not report the page size

cdef struct Segment:
    aclrtDrvMemHandle handle    # first member: `camem.py` reads it; NULL for a block of a pool
    void *base
    size_t size
    int device
    int made                    # fork_count when it was made
    bint mapped

cdef struct Request:            # the arguments and the result of a C call
    void *address               # argument of `my_free`, result of `my_malloc`
    ssize_t size
    int device

# By a segment's address: (address of its Segment, function to call when it is freed, owner of its
# block, tag).  The GIL protects the dict.
cdef dict living = {}
cdef Blocks shelf = None        # allocates from the pool given to `serve`; None: from the driver
cdef object tell_malloc = None
cdef object tell_free = None


# --- one segment and the driver -----------------------------------------------------------------

cdef size_t granule_of(int device) noexcept nogil:
    cdef aclrtPhysicalMemProp prop
    cdef size_t granule = 0
    prop_fill(&prop, device, ACL_HBM_MEM_HUGE)
    if aclrtMemGetAllocationGranularity(
            &prop, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &granule) != ACL_SUCCESS or granule == 0:
        return GRANULE
    return granule


cdef int segment_map(Segment *segment, Blocks blocks) except -1:
    """Map physical memory at the segment's addresses.

    If that fails, the segment is not mapped.  New physical memory is freed again, unless the driver
    refuses that; then the segment keeps it.
    """
    cdef aclrtPhysicalMemProp prop
    cdef aclError status = ACL_SUCCESS
    if blocks is not None:
        blocks.wake(<size_t> segment.base)
        segment.mapped = True
        return 0
    prop_fill(&prop, segment.device, ACL_HBM_MEM_HUGE)
    if segment.handle == NULL:
        with nogil:
            status = aclrtMallocPhysical(&segment.handle, segment.size, &prop, 0)
        if status != ACL_SUCCESS:
            segment.handle = NULL
        check(status, "aclrtMallocPhysical")
    with nogil:
        status = aclrtMapMem(segment.base, segment.size, 0, segment.handle, 0)
        if status != ACL_SUCCESS and aclrtFreePhysical(segment.handle) == ACL_SUCCESS:
            segment.handle = NULL
    check(status, "aclrtMapMem")
    segment.mapped = True
    return 0


cdef int device_rest() except -1:
    cdef aclError status
    with nogil:
        status = aclrtSynchronizeDeviceWithTimeout(-1)
    return check(status, "aclrtSynchronizeDeviceWithTimeout")


cdef int segment_unmap(Segment *segment, Blocks blocks) except -1:
    """Wait for the device and release a segment's physical memory.

    If the driver refuses to release it, the segment keeps it.
    """
    cdef aclError status
    if segment.mapped:
        device_rest()
        if blocks is not None:
            try:
                blocks.sleep(<size_t> segment.base)
            finally:                            # also after an error: a block may sleep in part
                segment.mapped = not blocks.asleep(<size_t> segment.base)
            return 0
        with nogil:
            status = aclrtUnmapMem(segment.base)
        check(status, "aclrtUnmapMem")
        segment.mapped = False
    if segment.handle != NULL:
        with nogil:
            status = aclrtFreePhysical(segment.handle)
        check(status, "aclrtFreePhysical")
        segment.handle = NULL
    return 0


cdef int segment_end(Segment *segment, Blocks blocks) except -1:
    """Return the memory and the addresses of a segment to the driver or to the pool."""
    cdef aclError status
    if blocks is not None:
        device_rest()                        # wait now, so that the block's next user need not wait
        blocks.give(<size_t> segment.base)
        free(segment)
        return 0
    segment_unmap(segment, None)
    with nogil:
        status = aclrtReleaseMemAddress(segment.base)
    check(status, "aclrtReleaseMemAddress")
    free(segment)
    return 0


cdef object tag_of(object teller):
    """Return the tag that camem.py has set.

    Return None if `teller` is not a method of camem.py's allocator, or if no tag is set.
    """
    tag = getattr(getattr(teller, "__self__", None), "current_tag", None)
    return tag if isinstance(tag, str) and tag else None


cdef Segment *segment_make(ssize_t size, int device, Blocks blocks) except NULL:
    cdef Segment *segment = <Segment *> calloc(1, sizeof(Segment))
    cdef size_t granule
    cdef aclError status = -1
    if segment == NULL:
        raise MemoryError("host memory for a segment")
    granule = granule_of(device) if blocks is None else blocks.pool.core.options.granule
    segment.size = (<size_t> size + granule - 1) // granule * granule       # size is positive
    segment.device = device
    segment.made = fork_count
    try:
        if blocks is not None:
            segment.base = <void *> <size_t> blocks.take(segment.size, tag_of(tell_malloc))
            segment.mapped = True
            return segment
        with nogil:
            status = aclrtReserveMemAddress(&segment.base, segment.size, 0, NULL, 0)
        check(status, "aclrtReserveMemAddress")
        segment_map(segment, None)
    except BaseException:
        if status == ACL_SUCCESS:
            with nogil:
                aclrtReleaseMemAddress(segment.base)
        free(segment)
        raise
    return segment


# --- the thread's device ------------------------------------------------------------------------

cdef int device_enter(int device, aclrtContext *before) except -1:
    """Make a device current.  Set `before` to the context to restore, or to NULL."""
    cdef int32_t current = -1
    cdef aclError status
    before[0] = NULL
    runtime_start()
    if aclrtGetDevice(&current) == ACL_SUCCESS and current == device:
        return 0
    if current >= 0:
        before[0] = current_context()
    with nogil:
        status = aclrtSetDevice(device)
    return check(status, "aclrtSetDevice")


cdef void device_leave(aclrtContext before) noexcept:
    if before != NULL:
        aclrtSetCurrentContext(before)


# --- functions that torch_npu calls -------------------------------------------------------------

cdef tuple handle_of(Segment *segment):
    return (segment.device, segment.size, <size_t> segment.base, <size_t> segment)


cdef Blocks blocks_for(int device):
    return shelf if shelf is not None and shelf.pool.device == device else None


cdef object malloc_run(Request *request):
    cdef aclrtContext before
    cdef Segment *segment
    cdef Blocks blocks = blocks_for(request.device)
    if tell_malloc is None:
        raise RuntimeError("my_malloc was called before init_module")
    device_enter(request.device, &before)
    try:
        segment = segment_make(request.size, request.device, blocks)
        living[<size_t> segment.base] = (
            <size_t> segment, tell_free, blocks, tag_of(tell_malloc) or "")
        try:
            tell_malloc(handle_of(segment))
        except BaseException:
            del living[<size_t> segment.base]
            segment_end(segment, blocks)
            raise
        request.address = segment.base
    finally:
        device_leave(before)


cdef object free_run(Request *request):
    cdef aclrtContext before
    cdef Segment *segment
    cdef size_t address = <size_t> request.address
    entry = living.pop(address, None)
    if entry is None:
        raise ValueError(f"my_free of {address:#x}, which is no segment of this module")
    segment = <Segment *> <size_t> entry[0]
    if segment.made != fork_count:
        return                                  # a forked child cannot free memory of its parent
    device_enter(segment.device, &before)
    try:
        told = entry[1](address)
        if told != handle_of(segment):
            raise ValueError(f"the free function gave {told!r}, expected {handle_of(segment)}")
    finally:
        try:
            segment_end(segment, <Blocks> entry[2])
        finally:
            device_leave(before)


# If these functions raise, Cython passes the exception to `sys.unraisablehook`: C cannot handle it.

cdef void malloc_enter(void *argument) noexcept with gil:
    malloc_run(<Request *> argument)


cdef void free_enter(void *argument) noexcept with gil:
    free_run(<Request *> argument)


cdef void malloc_step(void *argument) noexcept nogil:
    malloc_enter(argument)


cdef void free_step(void *argument) noexcept nogil:
    free_enter(argument)


cdef void *on_malloc(ssize_t size, int device, void *stream) noexcept nogil:
    cdef Request request
    request.address = NULL
    request.size = size
    request.device = device
    if size > 0:
        guard_run(malloc_step, &request)
    return request.address


cdef void on_free(void *address, ssize_t size, int device, void *stream) noexcept nogil:
    cdef Request request
    request.address = address
    request.size = size
    request.device = device
    if address != NULL:
        guard_run(free_step, &request)


# --- functions that camem.py calls --------------------------------------------------------------

def serve(Pool pool):
    """From now on, allocate segments on a pool's device from the pool.

    Parameters
    ----------
    pool : Pool or None
        A pool with virtual memory; None to allocate from the driver again.  Segments on other
        devices are still allocated from the driver.
    """
    global shelf
    if pool is not None:
        pool.open_check()
        if pool.core.options.segments:
            raise ValueError("pool must have virtual memory, as segments=True cannot sleep")
    shelf = None if pool is None else Blocks(pool, apart=True)


def init_module(python_malloc, python_free):
    """Set the functions that are called for segments which are allocated from now on.

    Parameters
    ----------
    python_malloc : callable
        Called with one tuple ``(device, size, address, handle)`` for each new segment.
    python_free : callable
        Called with the address of a segment that is freed; returns the segment's tuple.
    """
    global tell_malloc, tell_free
    for name, function in (("python_malloc", python_malloc), ("python_free", python_free)):
        if not callable(function):
            raise TypeError(f"{name} must be callable, not {type(function).__name__}")
    tell_malloc = python_malloc
    tell_free = python_free


cdef Segment *segment_find(tuple handle) except NULL:
    for name, value in zip(("device", "size", "d_mem", "p_memHandle"), handle):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    entry = living.get(handle[2])
    if entry is None or entry[0] != handle[3] or handle_of(
            <Segment *> <size_t> entry[0]) != handle:
        raise ValueError(f"{handle} is no segment of this module")
    if (<Segment *> <size_t> entry[0]).made != fork_count:
        raise RuntimeError("the segment was made before a fork, in the parent process")
    return <Segment *> <size_t> entry[0]


def python_create_and_map(device, size, d_mem, p_memHandle):
    """Wake a segment: give it physical memory again.  Its old content is lost.

    Raises `OutOfMemoryError` if the device has no memory; the segment then stays asleep.
    """
    cdef Segment *segment = segment_find((device, size, d_mem, p_memHandle))
    cdef aclrtContext before
    if segment.mapped:
        raise ValueError(f"the segment at {d_mem:#x} is mapped already")
    device_enter(segment.device, &before)
    try:
        segment_map(segment, <Blocks> living[d_mem][2])
    finally:
        device_leave(before)


def python_unmap_and_release(device, size, d_mem, p_memHandle):
    """Wait for the device, then release a segment's physical memory.

    Its addresses stay reserved.
    """
    cdef Segment *segment = segment_find((device, size, d_mem, p_memHandle))
    cdef aclrtContext before
    if not segment.mapped and segment.handle == NULL:
        raise ValueError(f"the segment at {d_mem:#x} is not mapped")
    device_enter(segment.device, &before)
    try:
        segment_unmap(segment, <Blocks> living[d_mem][2])
    finally:
        device_leave(before)


def segments():
    """Return a list of the live segments as ``(device, size, address, mapped)``."""
    cdef Segment *segment
    found = []
    for entry in living.values():
        segment = <Segment *> <size_t> entry[0]
        found.append((segment.device, segment.size, <size_t> segment.base, bool(segment.mapped)))
    return found


def driver_parts(device):
    """Return a list (tag, bytes) of a device's segments that have memory directly from the driver.

    Blocks of a pool, and segments that were made before a fork, are left out.
    """
    cdef Segment *segment
    found = []
    for entry in list(living.values()):
        segment = <Segment *> <size_t> entry[0]
        held = segment.mapped or segment.handle != NULL
        if entry[2] is None and held and segment.device == device and segment.made == fork_count:
            found.append((entry[3], segment.size))
    return found


def leave():
    """Called at exit: refuse new calls, and wait for calls that have begun."""
    with nogil:
        guard_close(EXIT_LIMIT_MS)


atexit.register(leave)
camem_set(on_malloc, on_free)
