"""Counts and times an allocator's driver calls from outside the allocator.

`start()` replaces each late-bound function that `meter.h` lists by a wrapper that counts and times
it.  So a benchmark does not depend on the allocator's own counters, and can subtract the time spent
in the driver.  The wrappers are for the whole process and safe on any thread.  Calls that only read
thread-local state (the current context or device) are not counted.
"""

from libc.stdint cimport uint64_t

cimport acl.bind.generated._libacl as libacl

from acl.bind.generated._libacl import open as open_library

__all__ = ["METERED", "counter", "readings", "start", "stop", "total"]


cdef extern from "tools/bench/meter.h" nogil:
    ctypedef struct MeterReading:
        uint64_t calls
        uint64_t ticks
        uint64_t bytes
    enum:
        METER_aclrtMalloc
        METER_aclrtMallocAlign32
        METER_aclrtFree
        METER_aclrtReserveMemAddress
        METER_aclrtReleaseMemAddress
        METER_aclrtMallocPhysical
        METER_aclrtFreePhysical
        METER_aclrtMapMem
        METER_aclrtUnmapMem
        METER_aclrtMemSetAccess
        METER_aclrtGetMemInfo
        METER_aclrtSynchronizeStream
        METER_aclrtSynchronizeStreamWithTimeout
        METER_aclrtStreamQuery
        METER_aclrtSynchronizeDevice
        METER_aclrtSynchronizeDeviceWithTimeout
        METER_aclrtSynchronizeEvent
        METER_aclrtCreateEventExWithFlag
        METER_aclrtRecordEvent
        METER_aclrtQueryEventStatus
        METER_aclrtStreamWaitEvent
        METER_aclrtDestroyEvent
        METER_aclmdlRICaptureGetInfo
        METER_COUNT
    MeterReading meter_readings[1]
    MeterReading meter_sum
    const char *const meter_names[1]
    void meter_swap(int call, void **slot)
    void meter_back(int call, void **slot)


cdef void **slots[METER_COUNT]
cdef bint running = False


cdef void slots_fill() noexcept nogil:
    slots[METER_aclrtMalloc] = <void **>&libacl.aclrtMalloc
    slots[METER_aclrtMallocAlign32] = <void **>&libacl.aclrtMallocAlign32
    slots[METER_aclrtFree] = <void **>&libacl.aclrtFree
    slots[METER_aclrtReserveMemAddress] = <void **>&libacl.aclrtReserveMemAddress
    slots[METER_aclrtReleaseMemAddress] = <void **>&libacl.aclrtReleaseMemAddress
    slots[METER_aclrtMallocPhysical] = <void **>&libacl.aclrtMallocPhysical
    slots[METER_aclrtFreePhysical] = <void **>&libacl.aclrtFreePhysical
    slots[METER_aclrtMapMem] = <void **>&libacl.aclrtMapMem
    slots[METER_aclrtUnmapMem] = <void **>&libacl.aclrtUnmapMem
    slots[METER_aclrtMemSetAccess] = <void **>&libacl.aclrtMemSetAccess
    slots[METER_aclrtGetMemInfo] = <void **>&libacl.aclrtGetMemInfo
    slots[METER_aclrtSynchronizeStream] = <void **>&libacl.aclrtSynchronizeStream
    slots[METER_aclrtSynchronizeStreamWithTimeout] = (
        <void **>&libacl.aclrtSynchronizeStreamWithTimeout)
    slots[METER_aclrtStreamQuery] = <void **>&libacl.aclrtStreamQuery
    slots[METER_aclrtSynchronizeDevice] = <void **>&libacl.aclrtSynchronizeDevice
    slots[METER_aclrtSynchronizeDeviceWithTimeout] = (
        <void **>&libacl.aclrtSynchronizeDeviceWithTimeout)
    slots[METER_aclrtSynchronizeEvent] = <void **>&libacl.aclrtSynchronizeEvent
    slots[METER_aclrtCreateEventExWithFlag] = <void **>&libacl.aclrtCreateEventExWithFlag
    slots[METER_aclrtRecordEvent] = <void **>&libacl.aclrtRecordEvent
    slots[METER_aclrtQueryEventStatus] = <void **>&libacl.aclrtQueryEventStatus
    slots[METER_aclrtStreamWaitEvent] = <void **>&libacl.aclrtStreamWaitEvent
    slots[METER_aclrtDestroyEvent] = <void **>&libacl.aclrtDestroyEvent
    slots[METER_aclmdlRICaptureGetInfo] = <void **>&libacl.aclmdlRICaptureGetInfo


slots_fill()
METERED = tuple(meter_names[i].decode() for i in range(METER_COUNT))


def start():
    """Open the library and install the wrappers; a second call does nothing."""
    global running
    open_library()
    if not running:
        for i in range(METER_COUNT):
            meter_swap(i, slots[i])
        running = True


def stop():
    """Remove the wrappers."""
    global running
    if running:
        for i in range(METER_COUNT):
            meter_back(i, slots[i])
        running = False


def readings():
    """Return a dict from function to (calls, ticks, bytes), for functions that were called."""
    return {name: (meter_readings[i].calls, meter_readings[i].ticks, meter_readings[i].bytes)
            for i, name in enumerate(METERED) if meter_readings[i].calls}


def total():
    """Return the sums over all functions: (calls, ticks)."""
    return meter_sum.calls, meter_sum.ticks


def counter():
    """Return the address of a uint64 that counts all calls; `Load.watch` takes it."""
    return <size_t>&meter_sum.calls
