/* meter.h: wrappers around the late-bound driver functions that count and time their calls.

   METER_CALLS has one line for each function.  METER_WRAPPER(call) is the function that replaces it,
   METER_REAL(call) the pointer through which the wrapper calls the original.  Counters are relaxed atomics:
   any thread may call, and a reading may miss concurrent calls.  Only _meter.pyx includes this file. */
#ifndef ACLPOOL_TOOLS_METER_H
#define ACLPOOL_TOOLS_METER_H

#include "acl/acl.h"
#include "acl/acl_rt_memory_soma.h"
#include "tools/bench/clock.h"

/* The measured functions: X(function, parameters, arguments, bytes that the call allocates or maps; 0: none). */
#define METER_CALLS(X)                                                                             \
    X(aclrtMalloc, (void **at, size_t size, aclrtMemMallocPolicy policy), (at, size, policy), size) \
    X(aclrtMallocAlign32, (void **at, size_t size, aclrtMemMallocPolicy policy),                   \
      (at, size, policy), size)                                                                    \
    X(aclrtFree, (void *at), (at), 0)                                                              \
    X(aclrtReserveMemAddress,                                                                      \
      (void **at, size_t size, size_t alignment, void *expected, uint64_t flags),                  \
      (at, size, alignment, expected, flags), size)                                                \
    X(aclrtReleaseMemAddress, (void *at), (at), 0)                                                 \
    X(aclrtMallocPhysical,                                                                         \
      (aclrtDrvMemHandle *at, size_t size, const aclrtPhysicalMemProp *kind, uint64_t flags),      \
      (at, size, kind, flags), size)                                                               \
    X(aclrtFreePhysical, (aclrtDrvMemHandle handle), (handle), 0)                                  \
    X(aclrtMapMem,                                                                                 \
      (void *at, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags),            \
      (at, size, offset, handle, flags), size)                                                     \
    X(aclrtUnmapMem, (void *at), (at), 0)                                                          \
    X(aclrtMemSetAccess, (void *at, size_t size, aclrtMemAccessDesc *access, size_t count),        \
      (at, size, access, count), size)                                                             \
    X(aclrtGetMemInfo, (aclrtMemAttr attribute, size_t *idle, size_t *total),                      \
      (attribute, idle, total), 0)                                                                 \
    X(aclrtSynchronizeStream, (aclrtStream stream), (stream), 0)                                   \
    X(aclrtSynchronizeStreamWithTimeout, (aclrtStream stream, int32_t timeout),                    \
      (stream, timeout), 0)                                                                        \
    X(aclrtStreamQuery, (aclrtStream stream, aclrtStreamStatus *status), (stream, status), 0)      \
    X(aclrtSynchronizeDevice, (void), (), 0)                                                       \
    X(aclrtSynchronizeDeviceWithTimeout, (int32_t timeout), (timeout), 0)                          \
    X(aclrtSynchronizeEvent, (aclrtEvent event), (event), 0)                                       \
    X(aclrtCreateEventExWithFlag, (aclrtEvent *event, uint32_t flag), (event, flag), 0)            \
    X(aclrtRecordEvent, (aclrtEvent event, aclrtStream stream), (event, stream), 0)                \
    X(aclrtQueryEventStatus, (aclrtEvent event, aclrtEventRecordedStatus *status),                 \
      (event, status), 0)                                                                          \
    X(aclrtStreamWaitEvent, (aclrtStream stream, aclrtEvent event), (stream, event), 0)            \
    X(aclrtDestroyEvent, (aclrtEvent event), (event), 0)                                           \
    X(aclmdlRICaptureGetInfo,                                                                      \
      (aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *graph),                        \
      (stream, status, graph), 0)

typedef struct MeterReading {
    uint64_t calls;
    uint64_t ticks;
    uint64_t bytes;
} MeterReading;

#define METER_ENUM(name, parameters, arguments, size) METER_##name,
enum { METER_CALLS(METER_ENUM) METER_COUNT };

static MeterReading meter_readings[METER_COUNT];
static MeterReading meter_sum;

/* Counts and times a call.  The allocator's time should not contain the cost of counting, so as much of the counting
   as possible is done before the clock is read for the second time. */
static inline aclError meter_note(int call, uint64_t start, uint64_t size, aclError status)
{
    MeterReading *reading = &meter_readings[call];
    uint64_t ticks;
    __atomic_fetch_add(&reading->calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&reading->bytes, size, __ATOMIC_RELAXED);
    __atomic_fetch_add(&meter_sum.calls, 1, __ATOMIC_RELAXED);
    ticks = ticks_now() - start;
    __atomic_fetch_add(&reading->ticks, ticks, __ATOMIC_RELAXED);
    __atomic_fetch_add(&meter_sum.ticks, ticks, __ATOMIC_RELAXED);
    return status;
}

#define METER_DEFINE(name, parameters, arguments, size)                                            \
    static aclError(*meter_real_##name) parameters;                                                \
    static aclError meter_on_##name parameters                                                     \
    {                                                                                              \
        uint64_t start = ticks_now();                                                              \
        return meter_note(METER_##name, start, size, meter_real_##name arguments);                 \
    }
METER_CALLS(METER_DEFINE)

#define METER_NAME(name, parameters, arguments, size) #name,
static const char *const meter_names[METER_COUNT] = {METER_CALLS(METER_NAME)};

#define METER_SWAP(name, parameters, arguments, size)                                              \
    case METER_##name:                                                                             \
        memcpy(&meter_real_##name, slot, sizeof meter_real_##name);                                \
        wrapper = (void *)meter_on_##name;                                                         \
        break;
#define METER_BACK(name, parameters, arguments, size)                                              \
    case METER_##name:                                                                             \
        memcpy(slot, &meter_real_##name, sizeof meter_real_##name);                                \
        break;

/* Replaces the pointer at `slot` by the wrapper of `call`. */
static void meter_swap(int call, void **slot)
{
    void *wrapper = NULL;
    switch (call) {
        METER_CALLS(METER_SWAP)
    }
    memcpy(slot, &wrapper, sizeof wrapper);
}

/* Puts the original function back. */
static void meter_back(int call, void **slot)
{
    switch (call) {
        METER_CALLS(METER_BACK)
    }
}

#endif
