/* overflow.c: the overflow mode of devices, and the overflow status.

   The simulator's operators follow IEEE arithmetic and do not detect overflow.  A query is a task that writes
   the status "none" (64 zero bytes), and a reset is a task that does nothing.

   Thread rule: a device's mode and a stream's switch are atomic. */
#include <string.h>

#include "generated/exports.h"
#include "memory/memory.h"
#include "races/race.h"
#include "base/soc.h"
#include "streams/stream.h"

enum { STATUS_SIZE = 64 };

/* The mode of each device plus one; 0: not set, then process_mode applies. */
static _Atomic int32_t device_modes[DEVICE_MAX];
static _Atomic int32_t process_mode; /* the mode set without a context, plus one; 0: not set, then chip_mode() */

static aclrtFloatOverflowMode chip_mode(void)
{
    return soc_current()->has_inf_nan ? ACL_RT_OVERFLOW_MODE_INFNAN
                                      : ACL_RT_OVERFLOW_MODE_SATURATION;
}

aclError sim_aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode)
{
    /* Without a context the mode is set for the process: MindSpore makes this call before it uses a device, and does
       not start if the call fails. */
    Context *context = context_current();
    REQUIRE_RT((unsigned)mode < ACL_RT_OVERFLOW_MODE_UNDEF);
    if (mode == ACL_RT_OVERFLOW_MODE_INFNAN && !soc_current()->has_inf_nan) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
            "%s does not support ACL_RT_OVERFLOW_MODE_INFNAN: it always saturates", config.soc);
    }
    atomic_store(context != NULL ? &device_modes[context->device] : &process_mode,
                 (int32_t)mode + 1);
    return ACL_SUCCESS;
}

aclError sim_aclrtGetDeviceSatMode(aclrtFloatOverflowMode *mode)
{
    Context *context;
    REQUIRE(mode);
    TRY(context_require(&context));
    int32_t kept = atomic_load(&device_modes[context->device]);
    kept = kept != 0 ? kept : atomic_load(&process_mode);
    *mode = kept != 0 ? (aclrtFloatOverflowMode)(kept - 1) : chip_mode();
    return ACL_SUCCESS;
}

aclError sim_aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag)
{
    STREAM_REF(resolved);
    REQUIRE(flag <= 1);
    TRY(stream_resolve_any(stream, &resolved));
    atomic_store(&resolved->overflow_switch, flag);
    return ACL_SUCCESS;
}

aclError sim_aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t *flag)
{
    STREAM_REF(resolved);
    REQUIRE(flag);
    TRY(stream_resolve_any(stream, &resolved));
    *flag = atomic_load(&resolved->overflow_switch);
    return ACL_SUCCESS;
}

static aclError status_write(Stream *stream, const void *payload)
{
    void *const *output = payload;
    void *at;
    TRY(memory_for_task(stream, "the overflow status", *output, STATUS_SIZE, true, &at));
    memset(at, 0, STATUS_SIZE);
    return ACL_SUCCESS;
}

static aclError status_reset(Stream *stream, const void *payload)
{
    (void)stream;
    (void)payload;
    return ACL_SUCCESS;
}

static void status_touch(const void *payload, Touch *touch)
{
    touch_bytes(touch, *(void *const *)payload, STATUS_SIZE, TOUCH_WRITE);
}

static const TaskClass write_task = {
    .name = "overflow status",
    .run = status_write,
    .touch = status_touch,
};
static const TaskClass reset_task = {.name = "overflow reset", .run = status_reset};

/* Queues the task that writes the status. Checks in the runtime's order: the output, its size, then the stream. */
static aclError status_submit(void *output, uint64_t size, aclrtStream handle, const char *function)
{
    STREAM_REF(stream);
    if (output == NULL) {
        return error_argument(function, ACL_ERROR_INVALID_PARAM, "outputAddr");
    }
    if (size != STATUS_SIZE) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "outputSize is %llu, expected %d", (unsigned long long)size, STATUS_SIZE);
    }
    TRY(stream_resolve(handle, &stream));
    return stream_submit(stream, &write_task, &output, sizeof output);
}

static aclError reset_submit(aclrtStream handle)
{
    STREAM_REF(stream);
    TRY(stream_resolve(handle, &stream));
    return stream_submit(stream, &reset_task, NULL, 0);
}

aclError sim_aclrtGetOverflowStatus(void *outputAddr, size_t outputSize, aclrtStream stream)
{
    return status_submit(outputAddr, outputSize, stream, __func__);
}

aclError sim_aclrtResetOverflowStatus(aclrtStream stream)
{
    return reset_submit(stream);
}

aclError sim_aclrtGetFloatOverflowStatus(void *outputAddr, uint64_t outputSize, aclrtStream stream)
{
    REQUIRE_RT(outputAddr);
    return status_submit(outputAddr, outputSize, stream, __func__);
}

aclError sim_aclrtResetFloatOverflowStatus(aclrtStream stream)
{
    return reset_submit(stream);
}

/* checkMode is ignored: the simulator has one way to report overflows. */
aclError sim_aclrtNpuGetFloatOverFlowStatus(void *outputAddr, uint64_t outputSize,
    uint32_t checkMode, aclrtStream stream)
{
    (void)checkMode;
    REQUIRE_RT(outputAddr);
    return status_submit(outputAddr, outputSize, stream, __func__);
}

aclError sim_aclrtNpuClearFloatOverFlowStatus(uint32_t checkMode, aclrtStream stream)
{
    (void)checkMode;
    return reset_submit(stream);
}
