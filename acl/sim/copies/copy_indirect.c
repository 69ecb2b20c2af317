/* Copies whose addresses are stored in device memory and are read when the task runs: two pointers with offsets,
 * or a descriptor.  Source and destination are on the same device. */
#include "base/checks.h"
#include "copies/copy.h"
#include "generated/exports.h"
#include "races/race.h"

#include <string.h>

static const size_t OFFSET_MOST = ((size_t)1 << 48) - 1;
static const size_t DESC_COPY_MOST = UINT32_MAX; /* bytes that one descriptor can move */
enum { DESC_ALIGN = 64, DESC_BYTES = 64 };

/* ---- two pointers and offsets --------------------------------------------------- */
typedef struct OffsetTask {
    void **dst;
    const void **src;
    size_t dst_offset, src_offset, bytes;
} OffsetTask;

/* Copies the bytes, in the task. Reports them to the check of unwritten memory only here, because their addresses were
 * not known when the task was queued. */
static aclError indirect_move(Stream *stream, void *dst, const void *src, size_t bytes)
{
    if (check_on(CHECK_INIT)) {
        checks.host_step(dst, src, bytes);
    }
    return copy_move(stream, &(Copy){.dst = dst, .src = src, .width = bytes, .height = 1});
}

static aclError offset_run(Stream *stream, const void *payload)
{
    const OffsetTask *task = payload;
    const void *dst_at = memory_at(task->dst, sizeof(void *), false);
    const void *src_at = memory_at(task->src, sizeof(void *), false);
    if (dst_at == NULL) {
        return copy_fault(stream, "the destination's pointer", task->dst, sizeof(void *));
    }
    if (src_at == NULL) {
        return copy_fault(stream, "the source's pointer", task->src, sizeof(void *));
    }
    char *dst;
    const char *src;
    memcpy(&dst, dst_at, sizeof dst);
    memcpy(&src, src_at, sizeof src);
    return indirect_move(stream, dst + task->dst_offset, src + task->src_offset, task->bytes);
}

/* States to the order checker only the bytes of the two pointers: the bytes that are copied are known only when the
 * task runs. So tasks that are queued behind this task are checked only after it has run. */
static void offset_touch(const void *payload, Touch *touch)
{
    const OffsetTask *task = payload;
    touch_late(touch);
    touch_bytes(touch, task->dst, sizeof(void *), TOUCH_READ);
    touch_bytes(touch, task->src, sizeof(void *), TOUCH_READ);
}

static const TaskClass offset_class = {
    .name = "memcpy with offsets",
    .run = offset_run,
    .touch = offset_touch,
};

aclError sim_aclrtMemcpyAsyncWithOffset(void **dst, size_t destMax, size_t dstDataOffset,
                                        const void **src, size_t count, size_t srcDataOffset,
                                        aclrtMemcpyKind kind, aclrtStream stream)
{
    if (count == 0) {
        return ACL_SUCCESS;
    }
    STREAM_REF(queue);
    REQUIRE_RT(dst);
    REQUIRE_RT(src);
    TRY(stream_resolve(stream, &queue));
    REQUIRE_RT(count <= destMax);
    REQUIRE_RT(kind == ACL_MEMCPY_INNER_DEVICE_TO_DEVICE);
    REQUIRE_RT(srcDataOffset <= OFFSET_MOST);
    REQUIRE_RT(dstDataOffset <= OFFSET_MOST);
    REQUIRE_RT(dstDataOffset < destMax);
    REQUIRE_RT(count <= destMax - dstDataOffset);
    TRY(memory_check(__func__, "dst", dst, sizeof *dst, false, NULL));
    TRY(memory_check(__func__, "src", src, sizeof *src, false, NULL));
    OffsetTask task = {dst, src, dstDataOffset, srcDataOffset, count};
    return stream_submit(queue, &offset_class, &task, sizeof task);
}

/* ---- descriptors ---------------------------------------------------------------- */
typedef struct CopyDesc {
    uint64_t mark;
    void *dst;
    const void *src;
    size_t bytes;
    uint64_t unused[4];
} CopyDesc;

_Static_assert(sizeof(CopyDesc) == DESC_BYTES, "all bytes of a descriptor are written");

static const uint64_t DESC_MARK = UINT64_C(0x6d656d6370796473);

enum { KIND_COUNT = ACL_MEMCPY_INTER_DEVICE_TO_DEVICE + 1 };

static aclError desc_kind_check(const char *function, aclrtMemcpyKind kind)
{
    if ((unsigned)kind >= (unsigned)KIND_COUNT) {
        return error_set(function, ACL_ERROR_INVALID_PARAM, "kind = %d: expected 0 to %d",
                         (int)kind, KIND_COUNT - 1);
    }
    return ACL_SUCCESS;
}

static aclError desc_kind_supported(const char *function, aclrtMemcpyKind kind)
{
    if (kind != ACL_MEMCPY_INNER_DEVICE_TO_DEVICE) {
        return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                         "kind = %d: expected ACL_MEMCPY_INNER_DEVICE_TO_DEVICE", (int)kind);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtGetMemcpyDescSize(aclrtMemcpyKind kind, size_t *descSize)
{
    REQUIRE(descSize);
    TRY(desc_kind_check(__func__, kind));
    TRY(desc_kind_supported(__func__, kind));
    *descSize = DESC_BYTES;
    return ACL_SUCCESS;
}

/* Returns 107000 unless `bytes` bytes from the address on are device memory; gives its device. */
static aclError on_device(const char *function, const char *argument, const void *address,
                          size_t bytes, int32_t *device, Seen *seen)
{
    Memory memory;
    memory_find(address, &memory);
    *device = memory.device;
    if (!memory_on_device(memory.kind)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "%s = %p is not device memory",
                         argument, address);
    }
    return memory_check(function, argument, address, bytes, true, seen);
}

aclError sim_aclrtSetMemcpyDesc(void *desc, aclrtMemcpyKind kind, void *srcAddr, void *dstAddr,
                                size_t count, void *config)
{
    REQUIRE(desc);
    TRY(desc_kind_check(__func__, kind));
    REQUIRE(srcAddr);
    REQUIRE(dstAddr);
    REQUIRE(count > 0);
    REQUIRE(config == NULL);
    TRY(desc_kind_supported(__func__, kind));
    REQUIRE_RT(count <= DESC_COPY_MOST);
    REQUIRE_RT((uintptr_t)desc % DESC_ALIGN == 0);
    int32_t desc_device, dst_device, src_device;
    Seen seen;
    TRY(on_device(__func__, "desc", desc, DESC_BYTES, &desc_device, &seen));
    TRY(on_device(__func__, "dstAddr", dstAddr, count, &dst_device, NULL));
    TRY(on_device(__func__, "srcAddr", srcAddr, count, &src_device, NULL));
    REQUIRE_RT(dst_device == src_device);
    CopyDesc content = {DESC_MARK, dstAddr, srcAddr, count, {0}};
    memory_put(desc, seen.inner, &content, sizeof content);
    return ACL_SUCCESS;
}

static aclError desc_run(Stream *stream, const void *payload)
{
    void *desc = *(void *const *)payload;
    CopyDesc content;
    const void *inner = memory_at(desc, DESC_BYTES, false);
    if (inner == NULL) {
        return copy_fault(stream, "the descriptor", desc, DESC_BYTES);
    }
    memcpy(&content, inner, sizeof content);
    if (content.mark != DESC_MARK) {
        return error_set("task", ACL_ERROR_RT_SYS_DMA,
                         "stream %u: what is at %p is not a copy descriptor", stream_id(stream),
                         desc);
    }
    return indirect_move(stream, content.dst, content.src, content.bytes);
}

static void desc_touch(const void *payload, Touch *touch)
{
    touch_late(touch);
    touch_bytes(touch, *(void *const *)payload, DESC_BYTES, TOUCH_READ);
}

static const TaskClass desc_class = {
    .name = "memcpy by descriptor",
    .run = desc_run,
    .touch = desc_touch,
};

aclError sim_aclrtMemcpyAsyncWithDesc(void *desc, aclrtMemcpyKind kind, aclrtStream stream)
{
    REQUIRE(desc);
    TRY(desc_kind_check(__func__, kind));
    REQUIRE(stream);
    STREAM_REF(queue);
    int32_t device;
    TRY(stream_resolve(stream, &queue));
    TRY(desc_kind_supported(__func__, kind));
    REQUIRE_RT((uintptr_t)desc % DESC_ALIGN == 0);
    TRY(on_device(__func__, "desc", desc, DESC_BYTES, &device, NULL));
    return stream_submit(queue, &desc_class, &desc, sizeof desc);
}
