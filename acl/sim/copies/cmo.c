/* Cache operations on device memory.
 *
 * The simulator's devices have no caches, so the task of a cache operation does nothing; it fails if its memory was
 * unmapped. A stream runs its tasks in order, so a barrier never waits. */
#include "copies/copy.h"
#include "generated/exports.h"

#include <string.h>

typedef struct CmoTask {
    void *address;
    size_t bytes;
} CmoTask;

static aclError cmo_run(Stream *stream, const void *payload)
{
    const CmoTask *task = payload;
    return memory_reachable(task->address, task->bytes, false)
               ? ACL_SUCCESS
               : copy_fault(stream, "memory of a cache operation", task->address, task->bytes);
}

static const TaskClass cmo_class = {.name = "cache operation", .run = cmo_run};

static aclError cmo_type_check(const char *function, aclrtCmoType type)
{
    if ((int)type < (int)ACL_RT_CMO_TYPE_PREFETCH || (int)type > (int)ACL_RT_CMO_TYPE_FLUSH) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "cmoType = %d: expected 0 to 3 (PREFETCH to FLUSH)", (int)type);
    }
    return ACL_SUCCESS;
}

static aclError cmo_submit(const char *function, Stream *stream, void *address, size_t bytes)
{
    Seen seen;
    TRY(memory_check(function, "src", address, bytes, false, &seen));
    if (!memory_on_device(seen.kind)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "src = %p is not device memory",
                         address);
    }
    CmoTask task = {address, bytes};
    return stream_submit(stream, &cmo_class, &task, sizeof task);
}

aclError sim_aclrtCmoAsync(void *src, size_t size, aclrtCmoType cmoType, aclrtStream stream)
{
    REQUIRE(src);
    REQUIRE(size > 0);
    STREAM_REF(queue);
    TRY(stream_resolve(stream, &queue));
    TRY(cmo_type_check(__func__, cmoType));
    return cmo_submit(__func__, queue, src, size);
}

/* ---- barriers ------------------------------------------------------------------- */
aclError sim_aclrtCmoAsyncWithBarrier(void *src, size_t size, aclrtCmoType cmoType,
                                      uint32_t barrierId, aclrtStream stream)
{
    REQUIRE(src);
    (void)barrierId; /* not needed: tasks run in order, so the operation is complete when a later task runs */
    STREAM_REF(queue);
    TRY(stream_resolve(stream, &queue));
    REQUIRE_RT(size > 0);
    TRY(cmo_type_check(__func__, cmoType));
    return cmo_submit(__func__, queue, src, size);
}

aclError sim_aclrtCmoWaitBarrier(aclrtBarrierTaskInfo *taskInfo, aclrtStream stream, uint32_t flag)
{
    REQUIRE(taskInfo);
    STREAM_REF(queue);
    TRY(stream_resolve(stream, &queue));
    REQUIRE_RT(flag == 0);
    REQUIRE_RT(taskInfo->barrierNum > 0 && taskInfo->barrierNum <= ACL_RT_CMO_MAX_BARRIER_NUM);
    for (uint32_t i = 0; i < taskInfo->barrierNum; i++) {
        TRY(cmo_type_check(__func__, taskInfo->cmoInfo[i].cmoType));
    }
    return ACL_SUCCESS;
}

/* ---- descriptors ---------------------------------------------------------------- */
typedef struct CmoDesc {
    uint64_t mark;
    CmoTask task;
} CmoDesc;

enum { DESC_BYTES = 64 };
static const uint64_t DESC_MARK = UINT64_C(0x636d6f6465736372);

aclError sim_aclrtCmoGetDescSize(size_t *size)
{
    REQUIRE_RT(size);
    *size = DESC_BYTES;
    return ACL_SUCCESS;
}

aclError sim_aclrtCmoSetDesc(void *cmoDesc, void *src, size_t size)
{
    REQUIRE_RT(cmoDesc);
    REQUIRE_RT(src);
    REQUIRE_RT(size > 0);
    REQUIRE_RT((uintptr_t)cmoDesc % DESC_BYTES == 0);
    Seen desc, source;
    TRY(memory_check(__func__, "cmoDesc", cmoDesc, DESC_BYTES, true, &desc));
    REQUIRE_RT(memory_on_device(desc.kind));
    TRY(memory_check(__func__, "src", src, size, false, &source));
    REQUIRE_RT(memory_on_device(source.kind));
    CmoDesc content = {DESC_MARK, {src, size}};
    memory_put(cmoDesc, desc.inner, &content, sizeof content);
    return ACL_SUCCESS;
}

static aclError cmo_desc_run(Stream *stream, const void *payload)
{
    void *desc = *(void *const *)payload;
    CmoDesc content;
    const void *inner = memory_at(desc, DESC_BYTES, false);
    if (inner == NULL) {
        return copy_fault(stream, "the descriptor", desc, DESC_BYTES);
    }
    memcpy(&content, inner, sizeof content);
    if (content.mark != DESC_MARK) {
        return error_set("task", ACL_ERROR_RT_SYS_DMA,
                         "stream %u: what is at %p is not a cache descriptor", stream_id(stream),
                         desc);
    }
    return cmo_run(stream, &content.task);
}

static const TaskClass cmo_desc_class = {.name = "cache operation by descriptor",
                                         .run = cmo_desc_run};

aclError sim_aclrtCmoAsyncWithDesc(void *cmoDesc, aclrtCmoType cmoType, aclrtStream stream,
                                   const void *reserve)
{
    REQUIRE_RT(cmoDesc);
    STREAM_REF(queue);
    Seen seen;
    TRY(stream_resolve(stream, &queue));
    REQUIRE_RT(reserve == NULL);
    TRY(cmo_type_check(__func__, cmoType));
    TRY(memory_check(__func__, "cmoDesc", cmoDesc, DESC_BYTES, false, &seen));
    REQUIRE_RT(memory_on_device(seen.kind));
    return stream_submit(queue, &cmo_desc_class, &cmoDesc, sizeof cmoDesc);
}
