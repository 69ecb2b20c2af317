/* Copies of one piece, and the task that all copies share.
 *
 * A copy that would leave an allocation, or touch unmapped pages, is refused with the driver's
 * 107000 when it is asked for; if the memory goes while the copy waits in its stream, the stream
 * fails with 507013.  Synchronous copies run on the caller's thread and wait for no stream. */
#include "copy.h"

#include "capture.h"
#include "exports.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>

typedef struct CopyWait {
    _Atomic bool done;
} CopyWait;

typedef struct CopyTask {
    Copy copy;
    CopyWait *wait; /* of a caller who waits, or NULL */
    void *staged;   /* the source, if it is ours */
} CopyTask;

bool copy_span(size_t pitch, size_t width, size_t height, size_t *span)
{
    size_t rows;
    *span = 0;
    return !__builtin_mul_overflow(pitch, height - 1, &rows) &&
           !__builtin_add_overflow(rows, width, span);
}

aclError copy_check(const char *function, const Copy *copy, CopyEnds *ends)
{
    size_t dst_bytes, src_bytes;
    if (!copy_span(copy->dst_pitch, copy->width, copy->height, &dst_bytes) ||
        !copy_span(copy->src_pitch, copy->width, copy->height, &src_bytes)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "pitch times height overflows (dpitch %zu, spitch %zu, height %zu)",
                         copy->dst_pitch, copy->src_pitch, copy->height);
    }
    TRY(memory_check(function, "dst", copy->dst, dst_bytes, true, &ends->dst));
    return memory_check(function, "src", copy->src, src_bytes, false, &ends->src);
}

void copy_move(const Copy *copy)
{
    if (copy->height == 1) {
        memmove(memory_inner(copy->dst, copy->width), memory_inner(copy->src, copy->width),
                copy->width);
        return;
    }
    char *dst = memory_inner(copy->dst, copy->width);
    const char *src = memory_inner(copy->src, copy->width);
    for (size_t row = 0; row < copy->height; row++) {
        memmove(dst + row * copy->dst_pitch, src + row * copy->src_pitch, copy->width);
    }
}

aclError copy_fault(Stream *stream, const char *what, const void *address, size_t bytes)
{
    return error_set("task", ACL_ERROR_RT_SYS_DMA,
                     "stream %u: %s at %p (%zu bytes) was freed or unmapped before its task ran",
                     stream_id(stream), what, address, bytes);
}

static aclError copy_run(Stream *stream, const void *payload)
{
    const CopyTask *task = payload;
    const Copy *copy = &task->copy;
    size_t dst_bytes, src_bytes;
    copy_span(copy->dst_pitch, copy->width, copy->height, &dst_bytes);
    copy_span(copy->src_pitch, copy->width, copy->height, &src_bytes);
    if (!memory_reachable(copy->dst, dst_bytes, true)) {
        return copy_fault(stream, "the destination", copy->dst, dst_bytes);
    }
    if (!memory_reachable(copy->src, src_bytes, false)) {
        return copy_fault(stream, "the source", copy->src, src_bytes);
    }
    copy_move(copy);
    return ACL_SUCCESS;
}

static void copy_drop(void *payload)
{
    CopyTask *task = payload;
    free(task->staged);
    if (task->wait != NULL) {
        atomic_store(&task->wait->done, true);
        park_wake(task->wait);
    }
}

static const TaskClass copy_class = {.name = "memcpy", .run = copy_run, .drop = copy_drop};

static bool copy_done(const void *argument)
{
    return atomic_load(&((const CopyWait *)argument)->done);
}

/* Nobody can wait for a task of a graph, nor inside a task of the same stream. */
static bool copy_may_wait(const Stream *stream)
{
    return !stream_is_capturing(stream) && stream_running() != stream;
}

aclError copy_submit(Stream *stream, const Copy *copy, CopyEnds ends)
{
    bool pageable = ends.dst == MEMORY_UNKNOWN || ends.src == MEMORY_UNKNOWN;
    CopyWait wait = {false};
    CopyTask task = {.copy = *copy};
    if (pageable && copy_may_wait(stream)) {
        task.wait = &wait;
    }
    TRY(stream_submit(stream, &copy_class, &task, sizeof task));
    if (task.wait != NULL) {
        park_wait(&wait, copy_done, &wait, FOREVER);
    }
    return ACL_SUCCESS;
}

aclError copy_submit_staged(Stream *stream, const Copy *copy)
{
    CopyTask task = {.copy = *copy, .staged = malloc(copy->width)};
    if (task.staged == NULL) {
        return error_set("copy", ACL_ERROR_RT_RESOURCE_ALLOC_FAIL,
                         "no host memory to stage %zu bytes", copy->width);
    }
    memcpy(task.staged, memory_inner(copy->src, copy->width), copy->width);
    task.copy.src = task.staged;
    aclError status = stream_submit(stream, &copy_class, &task, sizeof task);
    if (status != ACL_SUCCESS) {
        free(task.staged);
    }
    return status;
}

/* ---- one piece --------------------------------------------------------------------------------- */
static bool kind_valid(aclrtMemcpyKind kind)
{
    return (int)kind >= (int)ACL_MEMCPY_HOST_TO_HOST &&
           (int)kind <= (int)ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE;
}

aclError sim_aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count,
                         aclrtMemcpyKind kind)
{
    if (count == 0) {
        return ACL_SUCCESS;
    }
    REQUIRE(dst);
    REQUIRE(src);
    REQUIRE(kind_valid(kind));
    REQUIRE_RT(count <= destMax);
    if (dst == src) {
        return ACL_SUCCESS;
    }
    Context *context;
    TRY(context_require(&context));
    TRY(capture_forbids_sync());
    Copy copy = {.dst = dst, .src = src, .width = count, .height = 1};
    CopyEnds ends;
    TRY(copy_check(__func__, &copy, &ends));
    copy_move(&copy);
    return ACL_SUCCESS;
}

static aclError copy_async(const char *function, const Copy *copy, size_t room,
                           aclrtMemcpyKind kind, aclrtStream handle)
{
    Stream *stream;
    TRY(stream_resolve(handle, &stream));
    if (copy->width > room) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "count = %zu: expected at most destMax = %zu", copy->width, room);
    }
    CopyEnds ends;
    TRY(copy_check(function, copy, &ends));
    bool host_only = kind == ACL_MEMCPY_HOST_TO_HOST ||
                     (kind == ACL_MEMCPY_DEFAULT && copy_is_host_only(ends));
    if (host_only) {
        return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                         "kind = %d: copies within the host are synchronous only", (int)kind);
    }
    if (kind == ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
        return copy_submit_staged(stream, copy);
    }
    return copy_submit(stream, copy, ends);
}

aclError sim_aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count,
                              aclrtMemcpyKind kind, aclrtStream stream)
{
    if (count == 0) {
        return ACL_SUCCESS;
    }
    REQUIRE(dst);
    REQUIRE(src);
    REQUIRE(kind_valid(kind));
    Copy copy = {.dst = dst, .src = src, .width = count, .height = 1};
    return copy_async(__func__, &copy, destMax, kind, stream);
}

aclError sim_aclrtMemcpyAsyncWithCondition(void *dst, size_t destMax, const void *src,
                                           size_t count, aclrtMemcpyKind kind, aclrtStream stream)
{
    if (count == 0) {
        return ACL_SUCCESS;
    }
    REQUIRE(dst);
    REQUIRE(src);
    REQUIRE(kind_valid(kind));
    Copy copy = {.dst = dst, .src = src, .width = count, .height = 1};
    return copy_async(__func__, &copy, destMax, kind, stream);
}

/* ---- rows -------------------------------------------------------------------------------------- */
static aclError rows_check(const char *function, const Copy *copy, aclrtMemcpyKind kind)
{
    if (copy->dst == NULL || copy->src == NULL) {
        return error_argument(function, ACL_ERROR_INVALID_PARAM,
                              copy->dst == NULL ? "dst" : "src");
    }
    if (copy->width > copy->dst_pitch || copy->width > copy->src_pitch) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
                         "width = %zu: expected at most dpitch = %zu and spitch = %zu",
                         copy->width, copy->dst_pitch, copy->src_pitch);
    }
    if ((int)kind < (int)ACL_MEMCPY_HOST_TO_DEVICE || (int)kind > (int)ACL_MEMCPY_DEFAULT) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
                         "kind = %d: expected 1 to 4 (ACL_MEMCPY_HOST_TO_DEVICE to DEFAULT)",
                         (int)kind);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtMemcpy2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                           size_t height, aclrtMemcpyKind kind)
{
    if (width == 0 || height == 0) {
        return ACL_SUCCESS;
    }
    Copy copy = {dst, src, dpitch, spitch, width, height};
    Context *context;
    CopyEnds ends;
    TRY(rows_check(__func__, &copy, kind));
    TRY(context_require(&context));
    TRY(capture_forbids_sync());
    TRY(copy_check(__func__, &copy, &ends));
    copy_move(&copy);
    return ACL_SUCCESS;
}

aclError sim_aclrtMemcpy2dAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                                size_t width, size_t height, aclrtMemcpyKind kind,
                                aclrtStream stream)
{
    if (width == 0 || height == 0) {
        return ACL_SUCCESS;
    }
    Copy copy = {dst, src, dpitch, spitch, width, height};
    Stream *queue;
    CopyEnds ends;
    TRY(rows_check(__func__, &copy, kind));
    TRY(stream_resolve(stream, &queue));
    TRY(copy_check(__func__, &copy, &ends));
    return copy_submit(queue, &copy, ends);
}

__attribute__((weak)) aclError capture_forbids_sync(void)
{
    return ACL_SUCCESS;
}
