/* Shareable handles, which make physical memory available to other processes. */
#include "generated/exports.h"
#include "memory/physical.h"
#include "memory/export_table.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The content of a fabric handle: a mark and the token, which is also the value of a default handle. */
typedef struct FabricData {
    char mark[8];
    uint64_t token;
} FabricData;

static const char FABRIC_MARK[8] = "aclfabr";

static aclError export_flags_check(const char *function, uint64_t flags)
{
    if (flags != ACL_RT_VMM_EXPORT_FLAG_DEFAULT &&
        flags != ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "flags = %llu: expected 0 or 1",
                         (unsigned long long)flags);
    }
    return ACL_SUCCESS;
}

static void entry_describe(ShareEntry *entry, const Physical *memory)
{
    entry->kind = SHARE_PHYSICAL;
    entry->fd = memory->fd;
    entry->device = memory->device;
    entry->page = (uint32_t)memory->page;
    entry->offset = memory->offset;
    entry->bytes = entry->size = memory->bytes;
    entry->skip = 0;
    entry->prop = memory->prop;
}

/* Gives the token of the memory's entry in the export table. The first export makes the entry, further exports use it.
 * False without memory or a free entry. */
static bool export_once(Physical *memory, uint64_t flags, uint64_t *token)
{
    if (!physical_place(memory, NULL, 0)) {
        return false;
    }
    pthread_mutex_lock(&memory->lock);
    ShareEntry *entry = memory->share;
    if (entry == NULL) {
        entry = share_new(token);
        if (entry != NULL) {
            entry_describe(entry, memory);
            share_publish(entry);
            memory->share = entry;
        }
    }
    if (entry != NULL) {
        *token = share_token(entry);
        if (flags == ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION) {
            atomic_store(&entry->anyone, 1);
        }
    }
    pthread_mutex_unlock(&memory->lock);
    return entry != NULL;
}

static aclError export(const char *function, aclrtDrvMemHandle handle, uint64_t flags,
                       uint64_t *token)
{
    Physical *memory;
    TRY(physical_of(function, handle, &memory));
    bool imported = memory->imported;
    bool done = !imported && export_once(memory, flags, token);
    physical_unref(memory);
    if (imported) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "handle: memory of another process cannot be exported again");
    }
    if (!done) {
        return error_set(function, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no room to share memory");
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtMemExportToShareableHandle(aclrtDrvMemHandle handle,
                                             aclrtMemHandleType handleType, uint64_t flags,
                                             uint64_t *shareableHandle)
{
    REQUIRE(handle);
    REQUIRE(handleType == ACL_MEM_HANDLE_TYPE_NONE);
    REQUIRE(shareableHandle);
    TRY(export_flags_check(__func__, flags));
    return export(__func__, handle, flags, shareableHandle);
}

static aclError type_check(const char *function, aclrtMemSharedHandleType type)
{
    if (type != ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT && type != ACL_MEM_SHARE_HANDLE_TYPE_FABRIC) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "shareType = %d: expected 1 (DEFAULT) or 2 (FABRIC)", (int)type);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtMemExportToShareableHandleV2(aclrtDrvMemHandle handle, uint64_t flags,
                                               aclrtMemSharedHandleType shareType,
                                               void *shareableHandle)
{
    REQUIRE(handle);
    REQUIRE(shareableHandle);
    TRY(export_flags_check(__func__, flags));
    TRY(type_check(__func__, shareType));
    if (shareType == ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT) {
        return export(__func__, handle, flags, shareableHandle);
    }
    Context *context;
    FabricData data;
    TRY(context_require(&context));
    TRY(export(__func__, handle, flags, &data.token));
    memcpy(data.mark, FABRIC_MARK, sizeof data.mark);
    memset(shareableHandle, 0, sizeof(aclrtMemFabricHandle));
    memcpy(shareableHandle, &data, sizeof data);
    return ACL_SUCCESS;
}

/* ---- importing ------------------------------------------------------------------ */
static aclError import(const char *function, uint64_t token, int32_t device,
                       aclrtDrvMemHandle *handle)
{
    ShareEntry *entry;
    int fd;
    TRY(share_import(function, token, SHARE_PHYSICAL, &entry, &fd));
    Physical *memory = physical_blank();
    PhysicalHandle *made = NULL;
    if (memory == NULL) {
        share_import_gone(entry, fd);
        close(fd);
    } else {
        memory->imported = memory->placed = true;
        memory->share = entry;
        memory->fd = fd;
        memory->offset = entry->offset;
        memory->bytes = (size_t)entry->bytes;
        memory->page = (PageKind)entry->page;
        memory->prop = entry->prop;
        memory->device = entry->device == BOOK_HOST ? BOOK_HOST : device;
        made = physical_handle(memory); /* last: another thread may still use an old handle with this value */
        if (made == NULL) {
            physical_unref(memory);
        }
    }
    if (made == NULL) {
        return error_set(function, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no handle left");
    }
    *handle = (aclrtDrvMemHandle)made;
    return ACL_SUCCESS;
}

aclError sim_aclrtMemImportFromShareableHandle(uint64_t shareableHandle, int32_t deviceId,
                                               aclrtDrvMemHandle *handle)
{
    REQUIRE(handle);
    Context *context;
    TRY(context_require(&context));
    TRY(device_check(deviceId));
    return import(__func__, shareableHandle, deviceId, handle);
}

/* Reads the token from a shareable handle of either type. */
static aclError token_of(const char *function, const void *shareableHandle,
                         aclrtMemSharedHandleType type, uint64_t *token)
{
    TRY(type_check(function, type));
    if (type == ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT) {
        memcpy(token, shareableHandle, sizeof *token);
        return ACL_SUCCESS;
    }
    FabricData data;
    memcpy(&data, shareableHandle, sizeof data);
    if (memcmp(data.mark, FABRIC_MARK, sizeof data.mark) != 0) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "shareableHandle is not a fabric handle");
    }
    *token = data.token;
    return ACL_SUCCESS;
}

aclError sim_aclrtMemImportFromShareableHandleV2(void *shareableHandle,
                                                 aclrtMemSharedHandleType shareType,
                                                 uint64_t flags, aclrtDrvMemHandle *handle)
{
    REQUIRE(shareableHandle);
    REQUIRE(handle);
    REQUIRE(flags == 0);
    Context *context;
    uint64_t token;
    TRY(context_ask(&context));
    TRY(token_of(__func__, shareableHandle, shareType, &token));
    return import(__func__, token, context->device, handle);
}

static aclError allow(const char *function, uint64_t token, const int32_t *pids, size_t count)
{
    ShareEntry *entry = share_own(token, SHARE_PHYSICAL);
    if (entry == NULL) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "shareableHandle: not a handle of memory that this process exported");
    }
    if (!share_allow(entry, pids, count)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "pidNum = %zu: at most %d processes can be allowed to import", count,
                         (int)SHARE_PIDS);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtMemSetPidToShareableHandle(uint64_t shareableHandle, int32_t *pid, size_t pidNum)
{
    REQUIRE(pid);
    REQUIRE(pidNum > 0);
    return allow(__func__, shareableHandle, pid, pidNum);
}

aclError sim_aclrtMemSetPidToShareableHandleV2(void *shareableHandle,
                                               aclrtMemSharedHandleType shareType, int32_t *pid,
                                               size_t pidNum)
{
    REQUIRE(shareableHandle);
    REQUIRE(pid);
    REQUIRE(pidNum > 0);
    uint64_t token;
    TRY(token_of(__func__, shareableHandle, shareType, &token));
    return allow(__func__, token, pid, pidNum);
}
