/* device_ids.c: queries about one device: numbers, bus address, UUID, load and health.

   The user number of a device is its position in ASCEND_RT_VISIBLE_DEVICES.  Its logical and its physical number
   are equal: both are its number on the machine, because the simulator runs outside containers.  The state is
   read-only, so there is no lock. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/core.h"
#include "generated/exports.h"
#include "base/soc.h"
#include "streams/stream.h"

enum { NOT_MEASURED = -1, BUS_FIRST = 0x80, BUS_TEXT = 13 };

static aclError number_check(int32_t from, const int32_t *to, const char *function)
{
    if (to == NULL) {
        return error_argument(function, ACL_ERROR_INVALID_PARAM, "the output");
    }
    if (from < 0) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "the device is %d, expected at least 0", from);
    }
    return ACL_SUCCESS;
}

/* Converts the user number of a device to its number on the machine. */
static aclError card_of(int32_t user, int32_t *card, const char *function)
{
    TRY(number_check(user, card, function));
    TRY(device_check(user));
    *card = config.card[user];
    return ACL_SUCCESS;
}

/* Converts the number of a device on the machine to its user number; 107001 if this process cannot use the device. */
static aclError user_of(int32_t card, int32_t *user, const char *function)
{
    TRY(number_check(card, user, function));
    for (uint32_t i = 0; i < config.devices; i++) {
        if (config.card[i] == card) {
            *user = (int32_t)i;
            return ACL_SUCCESS;
        }
    }
    return error_set(function, ACL_ERROR_RT_INVALID_DEVICEID,
                     "physical device %d is not among the %u devices that are visible to this process", card,
                     config.devices);
}

/* Converts between the logical and the physical number of a device on the machine. */
static aclError same_card(int32_t from, int32_t *to, const char *function)
{
    TRY(number_check(from, to, function));
    if ((uint32_t)from >= config.cards) {
        return error_set(function, ACL_ERROR_RT_INVALID_DEVICEID, "device %d, expected 0 to %d", from,
                         (int)config.cards - 1);
    }
    *to = from;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetLogicDevIdByUserDevId(const int32_t userDevid, int32_t *const logicDevId)
{
    return card_of(userDevid, logicDevId, __func__);
}

aclError sim_aclrtGetUserDevIdByLogicDevId(const int32_t logicDevId, int32_t *const userDevid)
{
    return user_of(logicDevId, userDevid, __func__);
}

aclError sim_aclrtGetLogicDevIdByPhyDevId(const int32_t phyDevId, int32_t *const logicDevId)
{
    return same_card(phyDevId, logicDevId, __func__);
}

aclError sim_aclrtGetPhyDevIdByLogicDevId(const int32_t logicDevId, int32_t *const phyDevId)
{
    return same_card(logicDevId, phyDevId, __func__);
}

aclError sim_aclrtGetUserDevIdByPhyDevId(const int32_t phyDevId, int32_t *const userDevId)
{
    return user_of(phyDevId, userDevId, __func__);
}

aclError sim_aclrtGetPhyDevIdByUserDevId(const int32_t userDevId, int32_t *const phyDevId)
{
    return card_of(userDevId, phyDevId, __func__);
}

aclError sim_aclrtDeviceGetPCIBusId(int32_t deviceId, char *pciBusId, int32_t len)
{
    REQUIRE(pciBusId);
    TRY(device_check(deviceId));
    REQUIRE_RT(len >= BUS_TEXT);
    snprintf(pciBusId, (size_t)len, "0000:%02x:00.0", (unsigned)(BUS_FIRST + config.card[deviceId]) & 0xffu);
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
        bus - BUS_FIRST >= config.cards) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "no device has the bus address %.32s", pciBusId);
    }
    return user_of((int32_t)(bus - BUS_FIRST), deviceId, __func__);
}

/* Gives a UUID that depends only on the device's number on the machine and on the chip's name, so all processes get the
   same UUID. */
aclError sim_aclrtDeviceGetUuid(int32_t deviceId, aclrtUuid *uuid)
{
    REQUIRE(uuid);
    TRY(device_check(deviceId));
    uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)config.card[deviceId];
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
