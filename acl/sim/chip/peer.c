/* peer.c: access from one device to the memory of another one.

   The memory of all devices belongs to one process, so a copy between two devices works even if access
   was not enabled. The switches, one for each direction, are stored only so that they can be queried.

   Thread rule: the switches are atomic. */
#include "base/core.h"
#include "generated/exports.h"
#include "base/soc.h"

static atomic_bool enabled[DEVICE_MAX][DEVICE_MAX]; /* [from][to]: device `from` may access memory of device `to` */

static bool device_exists(int32_t device)
{
    return device >= 0 && (uint32_t)device < config.devices;
}

aclError sim_aclrtDeviceCanAccessPeer(int32_t *canAccessPeer, int32_t deviceId,
    int32_t peerDeviceId)
{
    REQUIRE(deviceId != peerDeviceId);
    REQUIRE_RT(device_exists(deviceId));
    REQUIRE_RT(canAccessPeer);
    REQUIRE_RT(device_exists(peerDeviceId));
    *canAccessPeer = soc_current()->has_peer_access;
    return ACL_SUCCESS;
}

/* Checks the arguments and gives the switch for access from the current device to `peer`. */
static aclError direction_find(int32_t peer, atomic_bool **direction, const char *function)
{
    Context *context;
    TRY(context_ask(&context));
    if (context->device == peer) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
                         "peerDeviceId is %d, the current device itself", peer);
    }
    if (!device_exists(peer)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "peerDeviceId is %d, expected 0 to %d", peer, (int)config.devices - 1);
    }
    if (!soc_current()->has_peer_access) {
        return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                         "%s cannot reach another device's memory", config.soc);
    }
    *direction = &enabled[context->device][peer];
    return ACL_SUCCESS;
}

aclError sim_aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags)
{
    atomic_bool *direction;
    if (flags != 0) {
        return fail(ACL_ERROR_FEATURE_UNSUPPORTED, "flags is %u, expected 0", flags);
    }
    TRY(direction_find(peerDeviceId, &direction, __func__));
    atomic_store(direction, true);
    return ACL_SUCCESS;
}

aclError sim_aclrtDeviceDisablePeerAccess(int32_t peerDeviceId)
{
    atomic_bool *direction;
    TRY(direction_find(peerDeviceId, &direction, __func__));
    atomic_store(direction, false);
    return ACL_SUCCESS;
}

aclError sim_aclrtDevicePeerAccessStatus(int32_t deviceId, int32_t peerDeviceId, int32_t *status)
{
    REQUIRE(status);
    REQUIRE_RT(device_exists(deviceId));
    REQUIRE_RT(device_exists(peerDeviceId));
    *status = atomic_load(&enabled[deviceId][peerDeviceId]);
    return ACL_SUCCESS;
}

aclError sim_aclrtGetDevicesTopo(uint32_t deviceId, uint32_t otherDeviceId, uint64_t *value)
{
    REQUIRE(value);
    TRY(device_check((int32_t)deviceId));
    TRY(device_check((int32_t)otherDeviceId));
    const Soc *soc = soc_current();
    /* Devices 2n and 2n + 1 are two dies of one package, connected inside it (SIO). Different packages are
       connected by links of the board (HCCS). */
    bool one_package = deviceId / 2 == otherDeviceId / 2;
    *value = soc->link == SOC_LINK_SIO && !one_package ? (uint64_t)SOC_LINK_HCCS
                                                       : (uint64_t)soc->link;
    return ACL_SUCCESS;
}
