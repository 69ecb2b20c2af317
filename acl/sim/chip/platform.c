/* platform.c: aclplatformGetDeviceInfo: gives properties of the configured chip as text.

   The counts and sizes are those of the table in soc.c; sizes inside a core are known for one family only.
   For an unknown number the call returns what CANN's library returns for a key that is missing in its file
   for the chip.  Instructions are not listed, because the simulator executes none.

   Read-only: any thread, no context. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "generated/exports.h"
#include "base/soc.h"

enum { TEXT_ROOM = 64, KEYS = ACL_PLATFORM_MEMORY_TYPE + 1 };

/* Properties of one core: sizes in bytes, frequencies in MHz. */
static const struct Core {
    const char *family;
    const char *version;
    uint64_t of[KEYS];
} cores[] = {
    {"Ascend910B", "AIC-C-220",
        {
            [ACL_PLATFORM_AICORE_UB_SIZE] = 196608,
            [ACL_PLATFORM_CUBE_FREQ] = 1850,
            [ACL_PLATFORM_BT_SIZE] = 1024,
            [ACL_PLATFORM_L0_A_SIZE] = 65536,
            [ACL_PLATFORM_L0_B_SIZE] = 65536,
            [ACL_PLATFORM_L0_C_SIZE] = 131072,
            [ACL_PLATFORM_L1_SIZE] = 524288,
        }},
};

static const struct Core *core_find(const char *family)
{
    for (size_t i = 0; i < sizeof cores / sizeof cores[0]; i++) {
        if (strcmp(cores[i].family, family) == 0) {
            return &cores[i];
        }
    }
    return NULL;
}

/* Returns a property of the chip; 0 if it is not known. */
static uint64_t number_of(const Soc *soc, aclplatformDevInfo key)
{
    const struct Core *core = core_find(soc->family);
    switch (key) {
    case ACL_PLATFORM_AICORE_CNT:
        return soc->ai_cores;
    case ACL_PLATFORM_CUBE_CORE_CNT:
        return soc->cube_cores;
    case ACL_PLATFORM_VECTOR_CORE_CNT:
        return soc->vector_cores;
    case ACL_PLATFORM_L2_SIZE:
        return soc->l2_size;
    case ACL_PLATFORM_MEMORY_SIZE:
        return soc->memory_size;
    case ACL_PLATFORM_NPU_ARCH:
        return (uint64_t)soc->architecture;
    default:
        return core == NULL ? 0 : core->of[key];
    }
}

aclError sim_aclplatformGetDeviceInfo(aclplatformDevInfo infoType, char *value, uint32_t maxLen)
{
    char text[TEXT_ROOM] = "";
    REQUIRE(value);
    REQUIRE(maxLen > 0);
    REQUIRE((unsigned)infoType < KEYS);
    const Soc *soc = soc_current();
    const struct Core *core = core_find(soc->family);
    uint64_t number = number_of(soc, infoType);
    if (infoType == ACL_PLATFORM_SOC_VERSION) {
        snprintf(text, sizeof text, "%s", config.soc);
    } else if (infoType == ACL_PLATFORM_AIC_VERSION && core != NULL) {
        snprintf(text, sizeof text, "%s", core->version);
    } else if (number != 0) {
        snprintf(text, sizeof text, "%" PRIu64, number);
    }
    if (text[0] == '\0') {
        return fail(ACL_ERROR_INVALID_PARAM, "infoType %d is not available for %s", (int)infoType,
            soc->name);
    }
    if (strlen(text) >= maxLen) {
        return fail(ACL_ERROR_INVALID_PARAM, "maxLen is %u, the value has %zu bytes", maxLen,
            strlen(text) + 1);
    }
    strcpy(value, text);
    return ACL_SUCCESS;
}
