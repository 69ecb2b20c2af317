/* kernel.c: launching kernels, and attributes of functions.

   The checks are made in the runtime's order: first the ACL layer's checks for NULL (WithConfig and
   WithArgsArray also check the number of blocks), then the handles, then sizes and configuration. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/elf64.h"
#include "generated/exports.h"
#include "kernels/kernel.h"

/* --- the configuration of a launch --- */

static bool attribute_valid(const aclrtLaunchKernelAttr *attr)
{
    uint8_t low;
    memcpy(&low, &attr->value, sizeof low); /* values of attributes with two settings are read as one byte */
    switch ((int)attr->id) {
    case ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE:
    case ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH:
    case ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP:
    case ACL_RT_LAUNCH_KERNEL_ATTR_ENABLE_PROFILING:
        return low <= 1;
    case ACL_RT_LAUNCH_KERNEL_ATTR_LOCAL_MEMORY_SIZE:
    case ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE:
    case ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET:
    case ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT:
    case ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US:
        return true;
    default:
        return false;
    }
}

static int64_t timeout_us(const aclrtLaunchKernelAttr *attr)
{
    enum { US_PER_SECOND = 1000000, TIMEOUT_MAX_S = 1 << 20 };
    if (attr->id == ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT) {
        return (int64_t)attr->value.timeout * US_PER_SECOND;
    }
    uint64_t us =
        (uint64_t)attr->value.timeoutUs.timeoutHigh << 32 | attr->value.timeoutUs.timeoutLow;
    uint64_t most = (uint64_t)TIMEOUT_MAX_S * US_PER_SECOND;
    return (int64_t)(us > most ? most : us);
}

static aclError config_read(const aclrtLaunchKernelCfg *cfg, int64_t *timeout)
{
    bool seconds = false, micros = false;
    *timeout = 0;
    if (cfg == NULL) {
        return ACL_SUCCESS;
    }
    REQUIRE_RT(cfg->attrs);
    for (size_t i = 0; i < cfg->numAttrs; i++) {
        const aclrtLaunchKernelAttr *attr = &cfg->attrs[i];
        if (!attribute_valid(attr)) {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "launch attribute %zu: id %d with value %u is not supported", i,
                (int)attr->id, attr->value.localMemorySize);
        }
        seconds = seconds || attr->id == ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT;
        micros = micros || attr->id == ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US;
        if (attr->id == ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT
            || attr->id == ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US) {
            *timeout = timeout_us(attr);
        }
    }
    return seconds && micros
        ? fail(ACL_ERROR_RT_PARAM_INVALID, "TIMEOUT and TIMEOUT_US exclude each other")
        : ACL_SUCCESS;
}

/* --- launching --- */

/* Refuses a function whose code the host cannot run. With ACL_SIM_DEVICE_CODE=skip it is accepted, and the launch
   does nothing. */
static aclError code_check(const Function *function)
{
    if (function->run != NULL || config.device_code == DEVICE_CODE_SKIP) {
        return ACL_SUCCESS;
    }
    return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
        "kernel %s is not code of this machine; the simulator runs host shared "
        "objects, or, with ACL_SIM_DEVICE_CODE=skip, takes the launch as done",
        function->name);
}

/* Queues a launch; the caller has checked handles and configuration. `copy` (malloc'ed, or NULL) is freed after the
   launch, or here on failure. */
static aclError function_launch(const Function *function, Stream *stream, uint32_t blocks,
    void *args, void *copy, size_t size, int64_t timeout)
{
    aclError status = code_check(function);
    if (status != ACL_SUCCESS) {
        free(copy);
        return status;
    }
    code_hold(function->code);
    Launch launch = {
        .code = function->code,
        .handle = (aclrtFuncHandle)(uintptr_t)function,
        .run = function->run,
        .blocks = blocks,
        .args = args,
        .copy = copy,
        .args_size = size,
        .timeout_us = timeout,
    };
    return launch_submit(stream, &launch);
}

static aclError device_launch(aclrtFuncHandle handle, uint32_t blocks, const void *args,
    size_t size, const aclrtLaunchKernelCfg *cfg, aclrtStream stream_handle)
{
    BINARY_REF(binary);
    STREAM_REF(stream);
    int64_t timeout;
    TRY(function_require(handle, &binary));
    TRY(stream_check(stream_handle));
    REQUIRE_RT(blocks > 0);
    REQUIRE_RT((uint32_t)size > 0); /* only the low 32 bits of the size are used, as in the runtime */
    TRY(config_read(cfg, &timeout));
    TRY(stream_resolve(stream_handle, &stream));
    return function_launch(
        handle, stream, blocks, (void *)(uintptr_t)args, NULL, (uint32_t)size, timeout);
}

aclError sim_aclrtLaunchKernel(aclrtFuncHandle funcHandle, uint32_t numBlocks, const void *argsData,
    size_t argsSize, aclrtStream stream)
{
    REQUIRE(funcHandle);
    REQUIRE(argsData);
    return device_launch(funcHandle, numBlocks, argsData, argsSize, NULL, stream);
}

aclError sim_aclrtLaunchKernelV2(aclrtFuncHandle funcHandle, uint32_t numBlocks,
    const void *argsData, size_t argsSize, aclrtLaunchKernelCfg *cfg, aclrtStream stream)
{
    REQUIRE(funcHandle);
    REQUIRE(argsData);
    return device_launch(funcHandle, numBlocks, argsData, argsSize, cfg, stream);
}

aclError sim_aclrtLaunchKernelWithConfig(aclrtFuncHandle funcHandle, uint32_t numBlocks,
    aclrtStream stream, aclrtLaunchKernelCfg *cfg, aclrtArgsHandle argsHandle, void *reserve)
{
    BINARY_REF(binary);
    STREAM_REF(found);
    ArgsCopy copy;
    int64_t timeout;
    REQUIRE(funcHandle);
    REQUIRE(argsHandle);
    REQUIRE(numBlocks > 0);
    REQUIRE(reserve == NULL);
    TRY(function_require(funcHandle, &binary));
    TRY(stream_check(stream));
    TRY(args_check(argsHandle));
    TRY(config_read(cfg, &timeout));
    TRY(stream_resolve(stream, &found));
    TRY(args_copy(argsHandle, &copy));
    return function_launch(funcHandle, found, numBlocks, copy.copy, copy.copy, copy.size, timeout);
}

static aclError placeholders_check(const aclrtPlaceHolderInfo *array, size_t count, uint32_t size)
{
    REQUIRE_RT(count == 0 || array != NULL);
    for (size_t i = 0; i < count; i++) {
        if (array[i].addrOffset >= size || array[i].dataOffset >= size) {
            return fail(ACL_ERROR_RT_PARAM_INVALID,
                "placeholder %zu: addrOffset %u and dataOffset %u, expected less than %u", i, array[i].addrOffset,
                array[i].dataOffset, size);
        }
    }
    return ACL_SUCCESS;
}

static aclError host_args_copy(
    const void *args, uint32_t size, const aclrtPlaceHolderInfo *array, size_t count, void **out)
{
    char *copy =
        calloc(1, (size_t)size + sizeof(uint64_t)); /* 8 more bytes: an address may be stored at the last byte */
    if (copy == NULL) {
        return fail(
            ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for %u bytes of arguments", size);
    }
    memcpy(copy, args, size);
    for (size_t i = 0; i < count; i++) {
        const void *data = copy + array[i].dataOffset;
        memcpy(copy + array[i].addrOffset, &data, sizeof data);
    }
    *out = copy;
    return ACL_SUCCESS;
}

static aclError host_launch(const Function *function, uint32_t blocks, aclrtStream handle,
    const aclrtLaunchKernelCfg *cfg, const void *args, size_t args_size,
    const aclrtPlaceHolderInfo *array, size_t count)
{
    void *copy;
    int64_t timeout;
    STREAM_REF(stream);
    uint32_t size = (uint32_t)args_size;
    TRY(stream_check(handle));
    REQUIRE_RT(blocks > 0);
    REQUIRE_RT(size > 0);
    TRY(placeholders_check(array, count, size));
    TRY(config_read(cfg, &timeout));
    TRY(stream_resolve(handle, &stream));
    TRY(host_args_copy(args, size, array, count, &copy));
    return function_launch(function, stream, blocks, copy, copy, size, timeout);
}

aclError sim_aclrtLaunchKernelWithHostArgs(aclrtFuncHandle funcHandle, uint32_t numBlocks,
    aclrtStream stream, aclrtLaunchKernelCfg *cfg, void *hostArgs, size_t argsSize,
    aclrtPlaceHolderInfo *placeHolderArray, size_t placeHolderNum)
{
    BINARY_REF(binary);
    REQUIRE(funcHandle);
    REQUIRE(hostArgs);
    TRY(function_require(funcHandle, &binary));
    return host_launch(
        funcHandle, numBlocks, stream, cfg, hostArgs, argsSize, placeHolderArray, placeHolderNum);
}

aclError sim_aclrtLaunchKernelWithArgsArray(
    void *func, uint32_t numBlocks, aclrtStream stream, aclrtLaunchKernelCfg *cfg, void **args)
{
    BINARY_REF(binary);
    STREAM_REF(found);
    ArgsCopy copy = {NULL, 0};
    int64_t timeout;
    const Function *function = func;
    REQUIRE(func);
    REQUIRE(numBlocks > 0);
    TRY(function_require(func, &binary));
    TRY(stream_check(stream));
    if (function->cpu) {
        return fail(
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "an AICPU kernel takes no array of arguments");
    }
    REQUIRE_RT(args);
    TRY(config_read(cfg, &timeout));
    TRY(stream_resolve(stream, &found));
    if (function->run != NULL) { /* not for device code, whose parameters are not known */
        TRY(args_gather(function, args, &copy));
    }
    return function_launch(function, found, numBlocks, copy.copy, copy.copy, copy.size, timeout);
}

/* --- SIMT kernels, which run as threads: no simulated chip supports them --- */

static aclError simt_refuse(const char *function, void *func, aclrtStream stream)
{
    BINARY_REF(binary);
    TRY(function_require(func, &binary));
    TRY(stream_check(stream));
    return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "%s does not support SIMT kernels",
        config.soc);
}

aclError sim_aclrtLaunchSIMTKernelWithArgsArray(void *func, dim3 gridDim, dim3 blockDim,
    size_t dynUbufSize, aclrtStream stream, aclrtLaunchKernelCfg *cfg, void **args)
{
    (void)gridDim, (void)blockDim, (void)dynUbufSize, (void)cfg;
    REQUIRE(func);
    REQUIRE(args);
    return simt_refuse(__func__, func, stream);
}

aclError sim_aclrtLaunchSIMTKernelWithHostArgs(void *func, dim3 gridDim, dim3 blockDim,
    size_t dynUbufSize, aclrtStream stream, aclrtLaunchKernelCfg *cfg, void *hostArgs,
    size_t argsSize, aclrtPlaceHolderInfo *placeHolderArray, size_t placeHolderNum)
{
    (void)gridDim, (void)blockDim, (void)dynUbufSize, (void)cfg;
    REQUIRE(func);
    REQUIRE(hostArgs);
    REQUIRE(argsSize > 0);
    REQUIRE(placeHolderNum == 0 || placeHolderArray != NULL);
    return simt_refuse(__func__, func, stream);
}

/* --- queries about functions --- */

aclError sim_aclrtGetFunctionAttribute(
    aclrtFuncHandle funcHandle, aclrtFuncAttribute attrType, int64_t *attrValue)
{
    BINARY_REF(binary);
    REQUIRE(funcHandle);
    REQUIRE(attrValue);
    TRY(function_require(funcHandle, &binary));
    switch ((int)attrType) {
    case 1: /* ACL_FUNC_ATTR_KERNEL_TYPE: host code has no kernel type */
    case 3: /* ACL_FUNC_ATTR_KERNEL_SCHED_MODE: host code has no scheduling mode */
        *attrValue = 0;
        return ACL_SUCCESS;
    case 2:
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
            "the simulator does not know the kernel's ratio of cube to vector cores");
    default:
        return fail(ACL_ERROR_RT_PARAM_INVALID, "there is no function attribute %d", (int)attrType);
    }
}

aclError sim_aclrtGetFunctionAddr(aclrtFuncHandle funcHandle, void **aicAddr, void **aivAddr)
{
    BINARY_REF(binary);
    const Function *function = funcHandle;
    REQUIRE(funcHandle);
    REQUIRE(aicAddr);
    REQUIRE(aivAddr);
    TRY(function_require(funcHandle, &binary));
    *aicAddr = function->address;
    *aivAddr = NULL;
    return ACL_SUCCESS;
}

/* Returns the size of the function's code in bytes; 0 if it is not known, as for a function of the program itself. */
static size_t function_size(const Function *function)
{
    ElfSymbol symbol;
    const Code *code = function->code;
    if (code->kind != CODE_HOST && code->kind != CODE_DEVICE) {
        return 0;
    }
    ElfSymbols symbols = elf64_symbols(code->bytes, code->length);
    while (elf64_next(&symbols, &symbol)) {
        if (symbol.function && strcmp(symbol.name, function->name) == 0) {
            return (size_t)symbol.size;
        }
    }
    return 0;
}

aclError sim_aclrtGetFunctionSize(aclrtFuncHandle funcHandle, size_t *aicSize, size_t *aivSize)
{
    BINARY_REF(binary);
    REQUIRE_RT(funcHandle);
    REQUIRE_RT(aicSize);
    REQUIRE_RT(aivSize);
    TRY(function_require(funcHandle, &binary));
    *aicSize = function_size(funcHandle);
    *aivSize = 0;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetFunctionName(aclrtFuncHandle funcHandle, uint32_t maxLen, char *name)
{
    BINARY_REF(binary);
    const Function *function = funcHandle;
    REQUIRE_RT(funcHandle);
    REQUIRE(name);
    REQUIRE_RT(maxLen > 0);
    TRY(function_require(funcHandle, &binary));
    size_t length = strlen(function->name);
    REQUIRE_RT(length < maxLen);
    memcpy(name, function->name, length + 1);
    return ACL_SUCCESS;
}

aclError sim_aclrtFunctionGetBinary(const aclrtFuncHandle funcHandle, aclrtBinHandle *binHandle)
{
    BINARY_REF(binary);
    const Function *function = funcHandle;
    REQUIRE_RT(funcHandle);
    REQUIRE_RT(binHandle);
    TRY(function_require(funcHandle, &binary));
    *binHandle = function->binary;
    return ACL_SUCCESS;
}

static aclError sizes_require(const void *func, Binary **binary)
{
    const Function *function = func;
    REQUIRE(func);
    TRY(function_require(func, binary));
    return function->sizes != NULL ? ACL_SUCCESS
                                   : fail(ACL_ERROR_RT_PARAM_INVALID,
                                         "kernel %s has no list of parameters (ACL_SIM_KERNEL_PARAMS)", function->name);
}

aclError sim_aclrtFunctionGetParamCount(const void *func, size_t *paramCount)
{
    BINARY_REF(binary);
    const Function *function = func;
    REQUIRE(func);
    REQUIRE(paramCount);
    TRY(sizes_require(func, &binary));
    *paramCount = 0;
    while (function->sizes[*paramCount] != 0) {
        (*paramCount)++;
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtFunctionGetParamInfo(
    const void *func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    BINARY_REF(binary);
    const Function *function = func;
    size_t place = 0;
    TRY(sizes_require(func, &binary));
    REQUIRE(paramOffset);
    REQUIRE(paramSize);
    for (size_t i = 0; function->sizes[i] != 0; i++) {
        place = param_place(place, function->sizes[i]);
        if (i == paramIndex) {
            *paramOffset = place;
            *paramSize = function->sizes[i];
            return ACL_SUCCESS;
        }
        place += function->sizes[i];
    }
    return fail(
        ACL_ERROR_RT_PARAM_INVALID, "kernel %s has no parameter %zu", function->name, paramIndex);
}

/* --- symbols of the host program: the simulator has no call to register them --- */

aclError sim_aclrtGetFuncBySymbol(const void *symbol, aclrtFuncHandle *funcHandle)
{
    REQUIRE(symbol);
    REQUIRE(funcHandle);
    return fail(ACL_ERROR_RT_INVALID_DEVICE_FUNCTION, "no kernel is registered for %p", symbol);
}

aclError sim_aclrtGetSymbolAddress(const void *symbol, void **devPtr)
{
    REQUIRE(symbol);
    REQUIRE(devPtr);
    return fail(ACL_ERROR_RT_INVALID_SYMBOL, "no variable is registered for %p", symbol);
}

aclError sim_aclrtGetSymbolSize(const void *symbol, size_t *size)
{
    REQUIRE(symbol);
    REQUIRE(size);
    return fail(ACL_ERROR_RT_INVALID_SYMBOL, "no variable is registered for %p", symbol);
}
