/* capability.c: queries of what the chip has: counts, sizes and features, from the table in soc.c.

   Read-only: any thread, no lock.  No context is needed. */
#include "base/core.h"
#include "generated/exports.h"
#include "base/soc.h"

aclError sim_aclGetCannAttributeList(const aclCannAttr **cannAttrList, size_t *num)
{
    static const struct {
        aclCannAttr attributes[3];
        size_t count;
    } lists[8] = {
        [0] = {{0}, 0},
        [1] = {{ACL_CANN_ATTR_INF_NAN}, 1},
        [2] = {{ACL_CANN_ATTR_BF16}, 1},
        [3] = {{ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16}, 2},
        [4] = {{ACL_CANN_ATTR_JIT_COMPILE}, 1},
        [5] = {{ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_JIT_COMPILE}, 2},
        [6] = {{ACL_CANN_ATTR_BF16, ACL_CANN_ATTR_JIT_COMPILE}, 2},
        [7] = {{ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16, ACL_CANN_ATTR_JIT_COMPILE}, 3},
    };
    REQUIRE(cannAttrList);
    REQUIRE(num);
    const Soc *soc = soc_current();
    unsigned which = (soc->has_inf_nan ? 1u : 0u) | (soc->has_bf16 ? 2u : 0u) |
                     (soc->compiles_at_run ? 4u : 0u);
    *cannAttrList = lists[which].attributes;
    *num = lists[which].count;
    return ACL_SUCCESS;
}

aclError sim_aclGetCannAttribute(aclCannAttr cannAttr, int32_t *value)
{
    REQUIRE(value);
    const Soc *soc = soc_current();
    switch (cannAttr) {
    case ACL_CANN_ATTR_INF_NAN:
        *value = soc->has_inf_nan;
        return ACL_SUCCESS;
    case ACL_CANN_ATTR_BF16:
        *value = soc->has_bf16;
        return ACL_SUCCESS;
    case ACL_CANN_ATTR_JIT_COMPILE:
        *value = soc->compiles_at_run;
        return ACL_SUCCESS;
    default:
        return fail(ACL_ERROR_INVALID_PARAM, "cannAttr is %d, expected 0, 1 or 2", (int)cannAttr);
    }
}

aclError sim_aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t *value)
{
    REQUIRE(value);
    REQUIRE(deviceId < config.devices);
    const Soc *soc = soc_current();
    switch (deviceInfo) {
    case ACL_DEVICE_INFO_AI_CORE_NUM:
        *value = soc->ai_cores;
        return ACL_SUCCESS;
    case ACL_DEVICE_INFO_VECTOR_CORE_NUM:
        *value = soc->vector_cores;
        return ACL_SUCCESS;
    case ACL_DEVICE_INFO_L2_SIZE:
        *value = (int64_t)soc->l2_size;
        return ACL_SUCCESS;
    default:
        return fail(ACL_ERROR_INVALID_PARAM, "deviceInfo is %d, expected 0, 1 or 2",
                    (int)deviceInfo);
    }
}

/* Gives the value of an attribute that is a number on every chip; false if `attr` is not one of these. */
static bool attribute_plain(const Soc *soc, uint32_t device, aclrtDevAttr attr, int64_t *value)
{
    switch (attr) {
    case ACL_DEV_ATTR_AICPU_CORE_NUM:
        *value = soc->ai_cpus;
        return true;
    case ACL_DEV_ATTR_AICORE_CORE_NUM:
        *value = soc->ai_cores;
        return true;
    case ACL_DEV_ATTR_VECTOR_CORE_NUM:
        *value = soc->vector_cores;
        return true;
    case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE:
        *value = (int64_t)config.capacity[device];
        return true;
    case ACL_DEV_ATTR_L2_CACHE_SIZE:
        *value = (int64_t)soc->l2_size;
        return true;
    case ACL_DEV_ATTR_PHY_CHIP_ID:
    case ACL_DEV_ATTR_SUPER_POD_DEVICE_ID:
        *value = config.card[device];
        return true;
    case ACL_DEV_ATTR_NPU_ARCH:
        *value = soc->architecture;
        return true;
    default:
        return false;
    }
}

/* True for an attribute of a feature that the chips of the table, or this host, do not have. Its value is 0, as with
   the runtime. */
static bool attribute_absent(aclrtDevAttr attr)
{
    return (attr >= ACL_DEV_ATTR_WARP_SIZE && attr <= ACL_DEV_ATTR_MAX_BLOCK_DIM_Z) ||
           attr == ACL_DEV_ATTR_SMP_ID ||
           (attr >= ACL_DEV_ATTR_SUPER_POD_SERVER_ID &&
            attr <= ACL_DEV_ATTR_DEVICE_FORM_FACTOR) ||
           attr == ACL_DEV_ATTR_IS_VIRTUAL;
}

aclError sim_aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t *value)
{
    REQUIRE(value);
    REQUIRE_RT(deviceId < config.devices);
    const Soc *soc = soc_current();
    if (attribute_plain(soc, deviceId, attr, value)) {
        return ACL_SUCCESS;
    }
    if (attr == ACL_DEV_ATTR_CUBE_CORE_NUM && soc->cube_cores != 0) {
        *value = soc->cube_cores;
        return ACL_SUCCESS;
    }
    if (attribute_absent(attr)) {
        *value = 0;
        return ACL_SUCCESS;
    }
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s has no device attribute %d", soc->name, (int)attr);
}

aclError sim_aclrtGetDeviceCapability(int32_t deviceId, aclrtDevFeatureType devFeatureType,
    int32_t *value)
{
    REQUIRE(value);
    TRY(device_check(deviceId));
    REQUIRE_RT(devFeatureType == ACL_FEATURE_TSCPU_TASK_UPDATE_SUPPORT_AIC_AIV ||
               devFeatureType == ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV);
    *value = ACL_DEV_FEATURE_NOT_SUPPORT;
    return ACL_SUCCESS;
}

aclError sim_aclrtHostMemMapCapabilities(uint32_t deviceId, aclrtHacType hacType,
    aclrtHostMemMapCapability *capabilities)
{
    REQUIRE(capabilities);
    TRY(device_check((int32_t)deviceId));
    REQUIRE_RT((unsigned)hacType <= ACL_RT_HAC_TYPE_CCU);
    /* Registered host memory is memory of this process, so each unit of the simulated device can
       read it. UDMA and CCU are units that the chips of the table do not have. */
    bool reachable = hacType != ACL_RT_HAC_TYPE_UDMA && hacType != ACL_RT_HAC_TYPE_CCU;
    *capabilities = reachable ? ACL_RT_HOST_MEM_MAP_SUPPORTED : ACL_RT_HOST_MEM_MAP_NOT_SUPPORTED;
    return ACL_SUCCESS;
}

static bool atomic_known(aclrtAtomicOperation operation)
{
    return (operation >= ACL_RT_ATOMIC_OPERATION_INTEGER_ADD &&
            operation <= ACL_RT_ATOMIC_OPERATION_FLOAT_MAX) ||
           (operation >= ACL_RT_ATOMIC_OPERATION_DMA_ADD &&
            operation <= ACL_RT_ATOMIC_OPERATION_DMA_MAX) ||
           (operation >= ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_ADD &&
            operation <= ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_EXCH);
}

/* Gives the capabilities of each atomic operation between two memories. The chips have only the reductions of the
   copy engine; all other operations get no capability. */
static aclError atomics_fill(uint32_t *capabilities, const aclrtAtomicOperation *operations,
    uint32_t count, bool with_reduction, const char *function)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!atomic_known(operations[i])) {
            return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                             "operations[%u] is %d, which is not an atomic operation", i,
                             (int)operations[i]);
        }
    }
    const uint32_t reductions =
        ACL_RT_ATOMIC_CAPABILITY_SIGNED | ACL_RT_ATOMIC_CAPABILITY_REDUCTION |
        ACL_RT_ATOMIC_CAPABILITY_SCALAR16 | ACL_RT_ATOMIC_CAPABILITY_SCALAR32;
    for (uint32_t i = 0; i < count; i++) {
        bool by_copy = operations[i] >= ACL_RT_ATOMIC_OPERATION_DMA_ADD &&
                       operations[i] <= ACL_RT_ATOMIC_OPERATION_DMA_MAX;
        capabilities[i] = by_copy && with_reduction ? reductions : 0;
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtDeviceGetHostAtomicCapabilities(uint32_t *capabilities,
    const aclrtAtomicOperation *operations, const uint32_t count, int32_t deviceId)
{
    REQUIRE_RT(capabilities);
    REQUIRE_RT(operations);
    REQUIRE_RT(count != 0);
    TRY(device_check(deviceId));
    return atomics_fill(capabilities, operations, count, false, __func__);
}

aclError sim_aclrtDeviceGetP2PAtomicCapabilities(uint32_t *capabilities,
    const aclrtAtomicOperation *operations, const uint32_t count, int32_t srcDeviceId,
    int32_t dstDeviceId)
{
    REQUIRE_RT(capabilities);
    REQUIRE_RT(operations);
    REQUIRE_RT(count != 0);
    TRY(device_check(srcDeviceId));
    TRY(device_check(dstDeviceId));
    bool reaches = srcDeviceId != dstDeviceId && soc_current()->has_peer_access;
    return atomics_fill(capabilities, operations, count, reaches, __func__);
}
