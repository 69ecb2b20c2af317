/* Devices: the use count of each device, its default context, and synchronisation of a device.
 *
 * The count is the process's, not the thread's: every aclrtSetDevice adds one, every
 * aclrtResetDevice takes one away, in any thread. When the count reaches 0, the default context
 * ends with its streams. Contexts made by aclrtCreateContext remain.
 *
 * Thread rule: any thread; `lock` guards the counts and the default contexts.  It is not held while
 * a stream is waited for or a user's callback runs. */
#include "streams/device.h"

#include "base/checks.h"
#include "generated/exports.h"
#include "streams/state_callbacks.h"
#include "streams/stream.h"

typedef struct Device {
    uint32_t references;
    Context *context;
    _Atomic aclError lost;
    atomic_ullong refusals; /* number of calls that failed because the device is lost */
} Device;

FILE_LOCK(lock);
static Device devices[DEVICE_MAX];
static _Atomic int32_t default_device = -1;

void (*device_memory_settle)(int32_t device);

aclError device_check(int32_t device)
{
    if (config.devices == 0) {
        return fail(ACL_ERROR_RT_INVALID_DEVICEID,
                    "device %d: there are no devices (ACL_SIM_DEVICES is 0)", device);
    }
    if (device < 0 || (uint32_t)device >= config.devices) {
        return fail(ACL_ERROR_RT_INVALID_DEVICEID, "device %d, expected 0 to %d", device,
                    (int)config.devices - 1);
    }
    return ACL_SUCCESS;
}

uint32_t device_references(int32_t device)
{
    pthread_mutex_lock(&lock);
    uint32_t references = devices[device].references;
    pthread_mutex_unlock(&lock);
    return references;
}

void device_set_lost(int32_t device, aclError code)
{
    atomic_store(&devices[device].lost, code);
}

aclError device_lost(int32_t device)
{
    return atomic_load_explicit(&devices[device].lost, memory_order_relaxed);
}

aclError device_alive(const char *function, int32_t device)
{
    bool one = device >= 0 && device < DEVICE_MAX; /* else the host, which is never lost */
    aclError lost = one ? device_lost(device) : ACL_SUCCESS;
    if (SIM_LIKELY(lost == ACL_SUCCESS)) {
        return ACL_SUCCESS;
    }
    atomic_fetch_add(&devices[device].refusals, 1);
    return error_set(function, lost, "device %d is lost", device);
}

uint64_t device_refusals(int32_t device)
{
    return atomic_load(&devices[device].refusals);
}

bool devices_in_use(void)
{
    return handle_live(HANDLE_CONTEXT) != 0;
}

void device_set_default(int32_t device)
{
    atomic_store(&default_device, device);
}

int32_t device_get_default(void)
{
    return atomic_load(&default_device);
}

/* Returns the default context with one more reference, or NULL if there is none. */
static Context *device_join(Device *self)
{
    pthread_mutex_lock(&lock);
    Context *context = self->context;
    self->references += context != NULL;
    pthread_mutex_unlock(&lock);
    return context;
}

/* Sets the device's default context to `made`, unless another thread has set one already. Returns
 * the default context. */
static Context *device_settle(Device *self, Context *made)
{
    pthread_mutex_lock(&lock);
    if (self->context == NULL) {
        self->context = made;
    }
    Context *context = self->context;
    self->references++;
    pthread_mutex_unlock(&lock);
    if (context != made) {
        context_end(made);
    }
    return context;
}

aclError device_retain(int32_t device, Context **context)
{
    TRY(device_check(device));
    *context = device_join(&devices[device]);
    if (*context == NULL) {
        Context *made;
        TRY(context_new(device, true, &made));
        *context = device_settle(&devices[device], made);
    }
    return ACL_SUCCESS;
}

/* Removes one reference, or all. If none is left, *last is the context that the caller must end. */
static aclError device_release(int32_t device, bool all, Context **last)
{
    TRY(device_check(device));
    Device *self = &devices[device];
    *last = NULL;
    pthread_mutex_lock(&lock);
    uint32_t references = self->references;
    if (references != 0) {
        self->references = all ? 0 : references - 1;
        if (self->references == 0) {
            *last = self->context;
            self->context = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    if (references == 0) {
        return fail(ACL_ERROR_RT_CONTEXT_RELEASE_ERROR, "device %d is not set", device);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtSetDevice(int32_t deviceId)
{
    Context *context;
    TRY(device_retain(deviceId, &context));
    context_make_current(context);
    device_state_tell(deviceId, ACL_RT_DEVICE_STATE_SET_POST);
    return ACL_SUCCESS;
}

static aclError device_reset(int32_t device, bool all)
{
    Context *last;
    TRY(device_release(device, all, &last));
    if (last != NULL) {
        device_state_tell(device, ACL_RT_DEVICE_STATE_RESET_PRE);
        if (check_on(CHECK_LEAK)) {
            checks.device_gone(device);
        }
        context_end(last);
        context_make_current(NULL);
        device_memory_settle(device);
        device_state_tell(device, ACL_RT_DEVICE_STATE_RESET_POST);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtResetDevice(int32_t deviceId)
{
    return device_reset(deviceId, false);
}

aclError sim_aclrtResetDeviceForce(int32_t deviceId)
{
    return device_reset(deviceId, true);
}

aclError sim_aclrtGetDevice(int32_t *deviceId)
{
    Context *context;
    REQUIRE(deviceId != NULL);
    TRY(context_ask(&context));
    *deviceId = context->device;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetDeviceCount(uint32_t *count)
{
    REQUIRE(count != NULL);
    *count = config.devices;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetRunMode(aclrtRunMode *runMode)
{
    REQUIRE(runMode != NULL);
    *runMode = ACL_HOST;
    return ACL_SUCCESS;
}

aclError sim_aclrtSynchronizeDevice(void)
{
    Context *context;
    TRY(context_require(&context));
    return streams_synchronize(context, FOREVER);
}

aclError sim_aclrtSynchronizeDeviceWithTimeout(int32_t timeout)
{
    Context *context;
    TRY(timeout_check_sign(timeout, __func__));
    REQUIRE_RT(timeout != 0);
    TRY(context_require(&context));
    return streams_synchronize(context, deadline_after_ms(timeout));
}

aclError sim_aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t *flags, int32_t *active)
{
    REQUIRE(flags == NULL);
    REQUIRE(active != NULL);
    TRY(device_check(deviceId));
    *active = device_references(deviceId) != 0;
    return ACL_SUCCESS;
}
