/* Contiguous copies, and the task that all kinds of copies use.
 *
 * A call whose copy would exceed an allocation, or touch unmapped pages, returns 107000. If pages are
 * unmapped while the copy is queued in its stream, the stream fails with 507013.  Synchronous copies run on the
 * caller's thread and wait for no stream. */
#include "copies/copy.h"

#include "check/checker.h"
#include "generated/exports.h"
#include "races/race.h"
#include "streams/capturing.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct CopyTask {
    Copy copy;
    void *staged; /* the source's bytes, saved when the call was made, which the task reads and frees; or NULL */
    CheckWatch *watch; /* the checker's watch on the source, or NULL */
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

static _Atomic uint64_t rate; /* rate of copies between host and device, bytes per microsecond; 0: not limited */

void copy_rate_choose(uint64_t bytes_per_us)
{
    atomic_store(&rate, bytes_per_us);
}

static bool is_on_device(const void *address)
{
    Memory memory;
    memory_find(address, &memory);
    return memory.kind != MEMORY_UNKNOWN && !memory_is_pinned(memory.kind);
}

/* If the copy is one between host and device, waits until the time that it needs at this rate has passed since
 * `begin_ns`. */
static void rate_wait(const Copy *copy, uint64_t bytes_per_us, int64_t begin_ns)
{
    if (is_on_device(copy->dst) == is_on_device(copy->src)) {
        return;
    }
    double bytes = (double)copy->width * (double)copy->height;
    int64_t until_ns = begin_ns + (int64_t)(bytes / (double)bytes_per_us * 1000);
    int64_t left_ns;
    while ((left_ns = until_ns - now_ns()) > 0) {
        if (left_ns > 200000) { /* a sleep may end some 50 us late, so the last 100 us are spent in this loop */
            nanosleep(&(struct timespec){(time_t)((left_ns - 100000) / 1000000000),
                                         (left_ns - 100000) % 1000000000}, NULL);
        }
    }
}

static void rows_copy(const Copy *copy, char *dst, const char *src)
{
    if (copy->height == 1) {
        memmove(dst, src, copy->width);
        return;
    }
    for (size_t row = 0; row < copy->height; row++) {
        memmove(dst + row * copy->dst_pitch, src + row * copy->src_pitch, copy->width);
    }
}

static void rows_move(const Copy *copy, char *dst, const char *src)
{
    uint64_t bytes_per_us = atomic_load_explicit(&rate, memory_order_relaxed);
    int64_t begin_ns = bytes_per_us != 0 ? now_ns() : 0;
    rows_copy(copy, dst, src);
    if (bytes_per_us != 0) {
        rate_wait(copy, bytes_per_us, begin_ns);
    }
}

aclError copy_move(Stream *stream, const Copy *copy)
{
    size_t dst_bytes, src_bytes;
    copy_span(copy->dst_pitch, copy->width, copy->height, &dst_bytes);
    copy_span(copy->src_pitch, copy->width, copy->height, &src_bytes);
    void *dst = memory_at(copy->dst, dst_bytes, true);
    const void *src = memory_at(copy->src, src_bytes, false);
    if (dst == NULL) {
        return copy_fault(stream, "the destination", copy->dst, dst_bytes);
    }
    if (src == NULL) {
        return copy_fault(stream, "the source", copy->src, src_bytes);
    }
    rows_move(copy, dst, src);
    return ACL_SUCCESS;
}

static aclError copy_run(Stream *stream, const void *payload)
{
    return copy_move(stream, &((const CopyTask *)payload)->copy);
}

static void copy_drop(void *payload)
{
    CopyTask *task = payload;
    if (task->watch != NULL) {
        check_unwatch(task->watch);
    }
    free(task->staged);
}

static void copy_touch(const void *payload, Touch *touch)
{
    const Copy *copy = &((const CopyTask *)payload)->copy;
    touch_rows(touch, copy->src, copy->src_pitch, copy->width, copy->height, TOUCH_READ);
    touch_rows(touch, copy->dst, copy->dst_pitch, copy->width, copy->height, TOUCH_WRITE);
}

static const TaskClass copy_class = {
    .name = "memcpy",
    .run = copy_run,
    .drop = copy_drop,
    .touch = copy_touch,
};

static void row_tell(const char *function, const char *dst, const char *src, size_t bytes)
{
    race_host(function, src, bytes, TOUCH_READ);
    race_host(function, dst, bytes, TOUCH_WRITE);
    if (check_on(CHECK_INIT)) {
        shadow_host(dst, src, bytes);
    }
}

/* Reports a copy to the checkers. If there are bytes between its rows, which are not copied, reports each row. */
static void copy_tell(const char *function, const Copy *copy)
{
    bool gaps = copy->height > 1 && (copy->dst_pitch != copy->width || copy->src_pitch != copy->width);
    if (!races_on()) {
        return;
    }
    if (!gaps) {
        row_tell(function, copy->dst, copy->src, copy->width * copy->height);
        return;
    }
    for (size_t row = 0; row < copy->height; row++) {
        row_tell(function, (char *)copy->dst + row * copy->dst_pitch,
                 (const char *)copy->src + row * copy->src_pitch, copy->width);
    }
}

void copy_now(const char *function, const Copy *copy, const CopyEnds *ends)
{
    copy_tell(function, copy);
    rows_move(copy, ends->dst.inner, ends->src.inner);
}

/* Waits for the stream, then copies on the calling thread.  copy_move checks the memory again, because it may have
   been freed during the wait. */
static aclError copy_in_step(const char *function, Stream *stream, const Copy *copy)
{
    TRY(capture_check_stream(stream));
    if (capture_forbids_sync() != ACL_SUCCESS) {
        return error_set(function, ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC,
                         "host memory that is not pinned is copied synchronously, which a capture "
                         "that is not relaxed forbids");
    }
    TRY(stream_synchronize(stream, FOREVER));
    copy_tell(function, copy);
    return copy_move(stream, copy);
}

aclError copy_submit(const char *function, Stream *stream, const Copy *copy, const CopyEnds *ends)
{
    bool pageable = ends->dst.kind == MEMORY_UNKNOWN || ends->src.kind == MEMORY_UNKNOWN;
    if (pageable && stream_running() != stream) {
        return copy_in_step(function, stream, copy);
    }
    CopyTask task = {.copy = *copy};
    if (check_on(CHECK_ORDER) && ends->src.kind == MEMORY_HOST && !stream_is_capturing(stream)) {
        task.watch = check_watch(copy->src, copy->src_pitch * (copy->height - 1) + copy->width, stream);
    }
    aclError status = stream_submit(stream, &copy_class, &task, sizeof task);
    if (status != ACL_SUCCESS && task.watch != NULL) {
        check_unwatch(task.watch);
    }
    return status;
}

aclError copy_submit_staged(Stream *stream, const Copy *copy, const CopyEnds *ends)
{
    CopyTask task = {.copy = *copy, .staged = malloc(copy->width)};
    if (task.staged == NULL) {
        return error_set("copy", ACL_ERROR_RT_RESOURCE_ALLOC_FAIL,
                         "no host memory to stage %zu bytes", copy->width);
    }
    memcpy(task.staged, ends->src.inner, copy->width);
    task.copy.src = task.staged;
    aclError status = stream_submit(stream, &copy_class, &task, sizeof task);
    if (status != ACL_SUCCESS) {
        free(task.staged);
    }
    return status;
}

/* ---- one piece ------------------------------------------------------------------ */
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
    if (check_on(CHECK_MEM)) {
        check_kind(dst, ends.dst.kind, src, ends.src.kind, kind);
    }
    copy_now(__func__, &copy, &ends);
    return ACL_SUCCESS;
}

/* Where an address points to. The sides of source and destination decide the direction of a copy. */
typedef enum Side { SIDE_DEVICE, SIDE_HOST, SIDE_UNKNOWN, SIDES } Side;

static Side side_of(MemoryKind kind)
{
    return kind == MEMORY_UNKNOWN ? SIDE_UNKNOWN : memory_is_pinned(kind) ? SIDE_HOST : SIDE_DEVICE;
}

/* Returns the kind that an asynchronous copy really has.  If the runtime knows both addresses, they alone decide.  If
 * it does not know an address, `kind` decides, as far as it fits the other address.  The result
 * ACL_MEMCPY_INNER_DEVICE_TO_DEVICE means that `kind` does not fit. */
static aclrtMemcpyKind kind_revised(Side src, Side dst, aclrtMemcpyKind kind)
{
    enum { H2H = 1, H2D = 2, D2H = 4, D2D = 8 };
    static const struct {
        aclrtMemcpyKind usual;
        unsigned allowed; /* bits of the kinds that fit; 0: the kind is always `usual` */
    } rules[SIDES][SIDES] = {
        [SIDE_HOST][SIDE_DEVICE] = {ACL_MEMCPY_HOST_TO_DEVICE, 0},
        [SIDE_DEVICE][SIDE_HOST] = {ACL_MEMCPY_DEVICE_TO_HOST, 0},
        [SIDE_HOST][SIDE_HOST] = {ACL_MEMCPY_HOST_TO_HOST, 0},
        [SIDE_DEVICE][SIDE_DEVICE] = {ACL_MEMCPY_DEVICE_TO_DEVICE, 0},
        [SIDE_UNKNOWN][SIDE_DEVICE] = {ACL_MEMCPY_HOST_TO_DEVICE, H2D | D2D},
        [SIDE_DEVICE][SIDE_UNKNOWN] = {ACL_MEMCPY_DEVICE_TO_HOST, D2H | D2D},
        [SIDE_HOST][SIDE_UNKNOWN] = {ACL_MEMCPY_HOST_TO_HOST, H2H | H2D},
        [SIDE_UNKNOWN][SIDE_HOST] = {ACL_MEMCPY_HOST_TO_HOST, H2H | D2H},
        [SIDE_UNKNOWN][SIDE_UNKNOWN] = {ACL_MEMCPY_HOST_TO_HOST, H2H | H2D | D2H | D2D},
    };
    if (rules[src][dst].allowed == 0 || kind == ACL_MEMCPY_DEFAULT) {
        return rules[src][dst].usual;
    }
    bool fits = (rules[src][dst].allowed >> (unsigned)kind & 1) != 0;
    return fits ? kind : ACL_MEMCPY_INNER_DEVICE_TO_DEVICE;
}

static aclError copy_async(const char *function, const Copy *copy, size_t room,
                           aclrtMemcpyKind kind, aclrtStream handle)
{
    STREAM_REF(stream);
    TRY(stream_check(handle));
    if (copy->width > room) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "count = %zu: expected at most destMax = %zu", copy->width, room);
    }
    TRY(stream_resolve(handle, &stream));
    CopyEnds ends;
    TRY(copy_check(function, copy, &ends));
    if (check_on(CHECK_MEM)) {
        check_kind(copy->dst, ends.dst.kind, copy->src, ends.src.kind, kind);
    }
    if (kind == ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
        return copy_submit_staged(stream, copy, &ends);
    }
    aclrtMemcpyKind revised = kind_revised(side_of(ends.src.kind), side_of(ends.dst.kind), kind);
    if (revised == ACL_MEMCPY_INNER_DEVICE_TO_DEVICE) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "kind = %d does not fit src = %p and dst = %p", (int)kind, copy->src,
                         copy->dst);
    }
    if (revised == ACL_MEMCPY_HOST_TO_HOST) {
        return error_set_quiet(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                               "kind = %d: copies within the host are synchronous only", (int)kind);
    }
    if (copy->dst == copy->src) {
        return ACL_SUCCESS;
    }
    if (revised == ACL_MEMCPY_DEVICE_TO_DEVICE) {
        ends.dst.kind = ends.src.kind = MEMORY_DEVICE;
    }
    return copy_submit(function, stream, copy, &ends);
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
