/* profapi.c: functions outside of the API that frameworks link against: CANN's profiling hooks and four old
   runtime calls.

   In CANN these come from libraries that libascendcl.so depends on, so a program that binds all its
   symbols at load needs them here.  The hooks accept all arguments and record nothing, as if profiling were
   off.  The runtime calls are refused; the API has successors (aclrtBinaryLoadFromData, aclrtLaunchKernel).

   No header of the API declares these functions, so this file does.  It has no state. */
#include <string.h>
#include <time.h>

#include "generated/exports.h"

SIM_SHARED uint64_t MsprofGetHashId(const char *hashInfo, size_t length);
SIM_SHARED int32_t MsprofRegisterCallback(uint32_t moduleId, void *handle);
SIM_SHARED int32_t MsprofReportAdditionalInfo(uint32_t agingFlag, const void *data,
    uint32_t length);
SIM_SHARED int32_t MsprofReportApi(uint32_t agingFlag, const void *api);
SIM_SHARED int32_t MsprofReportCompactInfo(uint32_t agingFlag, const void *data, uint32_t length);
SIM_SHARED uint64_t MsprofSysCycleTime(void);
SIM_SHARED int32_t rtDevBinaryRegister(const void *binary, void **handle);
SIM_SHARED int32_t rtFunctionRegister(void *binary, const void *stub, const char *name,
    const void *kernel, uint32_t mode);
SIM_SHARED int32_t rtGetC2cCtrlAddr(uint64_t *address, uint32_t *length);
SIM_SHARED int32_t rtKernelLaunch(const void *stub, uint32_t blocks, void *arguments,
    uint32_t size, void *memory, void *stream);

/* Returns the same number for the same text, in each run of a program. */
uint64_t MsprofGetHashId(const char *hashInfo, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; hashInfo != NULL && i < length; i++) {
        hash = (hash ^ (unsigned char)hashInfo[i]) * 0x100000001b3u;
    }
    return hash;
}

uint64_t sim_aclprofStr2Id(const char *message)
{
    return message == NULL ? UINT64_MAX : MsprofGetHashId(message, strlen(message));
}

int32_t MsprofRegisterCallback(uint32_t moduleId, void *handle)
{
    (void)moduleId;
    (void)handle;
    return 0;
}

int32_t MsprofReportAdditionalInfo(uint32_t agingFlag, const void *data, uint32_t length)
{
    (void)agingFlag;
    (void)data;
    (void)length;
    return 0;
}

int32_t MsprofReportApi(uint32_t agingFlag, const void *api)
{
    (void)agingFlag;
    (void)api;
    return 0;
}

int32_t MsprofReportCompactInfo(uint32_t agingFlag, const void *data, uint32_t length)
{
    (void)agingFlag;
    (void)data;
    (void)length;
    return 0;
}

uint64_t MsprofSysCycleTime(void)
{
    return (uint64_t)now_ns();
}

static int32_t refuse(const char *function, const char *successor)
{
    return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                     "the simulator does not implement %s: call %s instead", function, successor);
}

int32_t rtDevBinaryRegister(const void *binary, void **handle)
{
    (void)binary;
    (void)handle;
    return refuse(__func__, "aclrtBinaryLoadFromData");
}

int32_t rtFunctionRegister(void *binary, const void *stub, const char *name, const void *kernel,
    uint32_t mode)
{
    (void)binary;
    (void)stub;
    (void)name;
    (void)kernel;
    (void)mode;
    return refuse(__func__, "aclrtBinaryGetFunction");
}

int32_t rtGetC2cCtrlAddr(uint64_t *address, uint32_t *length)
{
    (void)address;
    (void)length;
    return refuse(__func__, "aclrtGetHardwareSyncAddr");
}

int32_t rtKernelLaunch(const void *stub, uint32_t blocks, void *arguments, uint32_t size,
    void *memory, void *stream)
{
    (void)stub;
    (void)blocks;
    (void)arguments;
    (void)size;
    (void)memory;
    (void)stream;
    return refuse(__func__, "aclrtLaunchKernel");
}
