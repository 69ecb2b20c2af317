"""Loops that only call the C API.  Benchmarks compare the time of a Python wrapper with them.

Each function repeats one call through the late-bound pointer, without the GIL.  It returns the
seconds that the loop took, and the last status.  The loop makes no Python object.
"""

from libc.stdint cimport int32_t

from acl.bind.generated._libacl cimport (
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEMCPY_DEVICE_TO_DEVICE,
    aclError,
    aclmdlDesc,
    aclmdlGetNumInputs,
    aclrtEvent,
    aclrtEventRecordedStatus,
    aclrtFree,
    aclrtGetDevice,
    aclrtMalloc,
    aclrtMemcpy,
    aclrtQueryEventStatus,
    aclrtRecordEvent,
    aclrtStream,
    aclrtStreamQuery,
    aclrtStreamStatus,
)

__all__ = [
    "event_query", "get_device", "malloc_free", "memcpy", "num_inputs", "record_event",
    "stream_query",
]


cdef extern from "tools/bench/clock.h" nogil:
    unsigned long long wall_ns()


def get_device(size_t loops):
    """Call aclrtGetDevice."""
    cdef int32_t device
    cdef aclError status = 0
    cdef size_t _i
    cdef unsigned long long start
    with nogil:
        start = wall_ns()
        for _i in range(loops):
            status = aclrtGetDevice(&device)
        start = wall_ns() - start
    return start * 1e-9, status


def stream_query(size_t loops, size_t stream):
    """Call aclrtStreamQuery."""
    cdef aclrtStreamStatus state
    cdef aclError status = 0
    cdef size_t _i
    cdef unsigned long long start
    with nogil:
        start = wall_ns()
        for _i in range(loops):
            status = aclrtStreamQuery(<aclrtStream> stream, &state)
        start = wall_ns() - start
    return start * 1e-9, status


def event_query(size_t loops, size_t event):
    """Call aclrtQueryEventStatus."""
    cdef aclrtEventRecordedStatus state
    cdef aclError status = 0
    cdef size_t _i
    cdef unsigned long long start
    with nogil:
        start = wall_ns()
        for _i in range(loops):
            status = aclrtQueryEventStatus(<aclrtEvent> event, &state)
        start = wall_ns() - start
    return start * 1e-9, status


def record_event(size_t loops, size_t event, size_t stream):
    """Call aclrtRecordEvent."""
    cdef aclError status = 0
    cdef size_t _i
    cdef unsigned long long start
    with nogil:
        start = wall_ns()
        for _i in range(loops):
            status = aclrtRecordEvent(<aclrtEvent> event, <aclrtStream> stream)
        start = wall_ns() - start
    return start * 1e-9, status


def malloc_free(size_t loops, size_t size):
    """Call aclrtMalloc, then aclrtFree."""
    cdef void *address = NULL
    cdef aclError status = 0
    cdef size_t _i
    cdef unsigned long long start
    with nogil:
        start = wall_ns()
        for _i in range(loops):
            status = aclrtMalloc(&address, size, ACL_MEM_MALLOC_HUGE_FIRST)
            if status == 0:
                status = aclrtFree(address)
        start = wall_ns() - start
    return start * 1e-9, status


def memcpy(size_t loops, size_t target, size_t source, size_t size):
    """Call aclrtMemcpy from device memory to device memory."""
    cdef aclError status = 0
    cdef size_t _i
    cdef unsigned long long start
    with nogil:
        start = wall_ns()
        for _i in range(loops):
            status = aclrtMemcpy(<void *> target, size, <void *> source, size,
                                 ACL_MEMCPY_DEVICE_TO_DEVICE)
        start = wall_ns() - start
    return start * 1e-9, status


def num_inputs(size_t loops, size_t desc):
    """Call aclmdlGetNumInputs; returns the number of inputs instead of a status."""
    cdef size_t number = 0
    cdef size_t _i
    cdef unsigned long long start
    with nogil:
        start = wall_ns()
        for _i in range(loops):
            number = aclmdlGetNumInputs(<aclmdlDesc *> desc)
        start = wall_ns() - start
    return start * 1e-9, number
