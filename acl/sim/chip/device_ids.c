/* device_ids.c: queries about one device: numbers, bus address, UUID, load and health.

   User, logical and physical numbers of a device are equal here, even if ASCEND_RT_VISIBLE_DEVICES selects
   devices (config.c applies that list).  The state is read-only, so there is no lock. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/core.h"
#include "generated/exports.h"
#include "base/soc.h"
#include "streams/stream.h"

enum { NOT_MEASURED = -1, BUS_FIRST = 0x80, BUS_TEXT = 13 };

static aclError map_identity(int32_t from, int32_t *to, const char *function)
{
    if (to == NULL) {
        return error_argument(function, ACL_ERROR_INVALID_PARAM, "the output");
    }
    if (from < 0) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "the device is %d, expected at least 0", from);
    }
    TRY(device_check(from));
    *to = from;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetLogicDevIdByUserDevId(const int32_t userDevid, int32_t *const logicDevId)
{
    return map_identity(userDevid, logicDevId, __func__);
}

aclError sim_aclrtGetUserDevIdByLogicDevId(const int32_t logicDevId, int32_t *const userDevid)
{
    return map_identity(logicDevId, userDevid, __func__);
}

aclError sim_aclrtGetLogicDevIdByPhyDevId(const int32_t phyDevId, int32_t *const logicDevId)
{
    return map_identity(phyDevId, logicDevId, __func__);
}

aclError sim_aclrtGetPhyDevIdByLogicDevId(const int32_t logicDevId, int32_t *const phyDevId)
{
    return map_identity(logicDevId, phyDevId, __func__);
}

aclError sim_aclrtGetUserDevIdByPhyDevId(const int32_t phyDevId, int32_t *const userDevId)
{
    return map_identity(phyDevId, userDevId, __func__);
}

aclError sim_aclrtGetPhyDevIdByUserDevId(const int32_t userDevId, int32_t *const phyDevId)
{
    return map_identity(userDevId, phyDevId, __func__);
}

aclError sim_aclrtDeviceGetPCIBusId(int32_t deviceId, char *pciBusId, int32_t len)
{
    REQUIRE(pciBusId);
    TRY(device_check(deviceId));
    REQUIRE_RT(len >= BUS_TEXT);
    snprintf(pciBusId, (size_t)len, "0000:%02x:00.0", (unsigned)(BUS_FIRST + deviceId) & 0xffu);
    return ACL_SUCCESS;
}

aclError sim_aclrtDeviceGetByPCIBusId(const char *pciBusId, int32_t *deviceId)
{
    unsigned domain;
    unsigned bus;
    unsigned slot;
    unsigned function;
    REQUIRE(pciBusId);
    REQUIRE(deviceId);
    bool parsed = sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4;
    if (!parsed || domain != 0 || slot != 0 || function != 0 || bus < BUS_FIRST ||
        bus - BUS_FIRST >= config.devices) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "no device has the bus address %.32s", pciBusId);
    }
    *deviceId = (int32_t)(bus - BUS_FIRST);
    return ACL_SUCCESS;
}

/* Gives a UUID that depends only on the device's number and the chip's name, so all processes get the same one. */
aclError sim_aclrtDeviceGetUuid(int32_t deviceId, aclrtUuid *uuid)
{
    REQUIRE(uuid);
    TRY(device_check(deviceId));
    uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)deviceId;
    for (const char *c = config.soc; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    }
    memcpy(uuid->bytes, "aclsim\0", 8);
    memcpy(uuid->bytes + 8, &hash, sizeof hash);
    return ACL_SUCCESS;
}

aclError sim_aclrtDeviceGetBareTgid(int32_t *pid)
{
    REQUIRE(pid);
    *pid = (int32_t)getpid();
    return ACL_SUCCESS;
}

aclError sim_aclrtSetTsDevice(aclrtTsId tsId)
{
    REQUIRE(tsId == ACL_TS_ID_AICORE || tsId == ACL_TS_ID_AIVECTOR);
    return ACL_SUCCESS;
}

/* Returns how many per cent of the device's streams have queued or running tasks; 0 if it has no streams. */
static int32_t streams_busy(int32_t device)
{
    uint32_t all = 0;
    uint32_t busy = 0;
    for (const Stream *s = NULL; (s = handle_next(HANDLE_STREAM, s)) != NULL;) {
        if (stream_device(s) == device) {
            all++;
            busy += !stream_idle(s);
        }
    }
    return all != 0 ? (int32_t)(busy * 100 / all) : 0;
}

/* If the device does not exist, all rates are NOT_MEASURED and the call succeeds, as with the runtime. */
aclError sim_aclrtGetDeviceUtilizationRate(int32_t deviceId, aclrtUtilizationInfo *utilizationInfo)
{
    REQUIRE(utilizationInfo);
    REQUIRE(utilizationInfo->utilizationExtend == NULL);
    bool exists = deviceId >= 0 && (uint32_t)deviceId < config.devices;
    int32_t rate = exists ? streams_busy(deviceId) : NOT_MEASURED;
    utilizationInfo->cubeUtilization = rate;
    utilizationInfo->vectorUtilization = soc_current()->vector_cores != 0 ? rate : NOT_MEASURED;
    utilizationInfo->aicpuUtilization = exists ? 0 : NOT_MEASURED;
    utilizationInfo->memoryUtilization = NOT_MEASURED;
    return ACL_SUCCESS;
}

aclError sim_aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus *deviceStatus)
{
    REQUIRE(deviceStatus);
    TRY(device_check(deviceId));
    *deviceStatus = device_lost(deviceId) == ACL_SUCCESS ? ACL_RT_DEVICE_STATUS_NORMAL
                                                         : ACL_RT_DEVICE_STATUS_ABNORMAL;
    return ACL_SUCCESS;
}
