/* Sets memory to a byte or to a 32-bit word, immediately or as a task. */
#include "check/checker.h"
#include "copies/copy.h"
#include "generated/exports.h"
#include "races/race.h"

#include <string.h>

typedef struct FillTask {
    void *address;
    size_t bytes;
    uint32_t value;
    bool words; /* the value is a 32-bit word; otherwise a byte */
} FillTask;

static void fill(const FillTask *task, void *inner)
{
    if (!task->words) {
        memset(inner, (int)(task->value & 0xff), task->bytes);
        return;
    }
    uint32_t *word = inner;
    for (size_t i = 0; i < task->bytes / sizeof *word; i++) {
        word[i] = task->value;
    }
}

static aclError fill_run(Stream *stream, const void *payload)
{
    const FillTask *task = payload;
    void *inner = memory_at(task->address, task->bytes, true);
    if (inner == NULL) {
        return copy_fault(stream, "memory to set", task->address, task->bytes);
    }
    fill(task, inner);
    return ACL_SUCCESS;
}

static void fill_touch(const void *payload, Touch *touch)
{
    const FillTask *task = payload;
    touch_bytes(touch, task->address, task->bytes, TOUCH_WRITE);
}

static const TaskClass fill_class = {.name = "memset", .run = fill_run, .touch = fill_touch};

static void fill_now(const char *function, const FillTask *task, void *inner)
{
    if (races_on()) {
        race_host(function, task->address, task->bytes, TOUCH_WRITE);
        if (check_on(CHECK_INIT)) {
            shadow_host(task->address, NULL, task->bytes);
        }
    }
    fill(task, inner);
}

aclError sim_aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count)
{
    if (count == 0) {
        return ACL_SUCCESS;
    }
    REQUIRE(devPtr);
    Context *context;
    TRY(context_require(&context));
    TRY(capture_forbids_sync());
    REQUIRE_RT(count <= maxCount);
    Seen seen;
    TRY(memory_check(__func__, "devPtr", devPtr, count, true, &seen));
    fill_now(__func__, &(FillTask){devPtr, count, (uint32_t)value, false}, seen.inner);
    return ACL_SUCCESS;
}

aclError sim_aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count,
                              aclrtStream stream)
{
    if (count == 0) {
        return ACL_SUCCESS;
    }
    REQUIRE(devPtr);
    STREAM_REF(queue);
    TRY(stream_check(stream));
    REQUIRE_RT(count <= maxCount);
    TRY(stream_resolve(stream, &queue));
    TRY(memory_check(__func__, "devPtr", devPtr, count, true, NULL));
    FillTask task = {devPtr, count, (uint32_t)value, false};
    return stream_submit(queue, &fill_class, &task, sizeof task);
}

/* Checks the arguments of the ACL layer. words * 4 may wrap around to a value of at most memSize; then this check
 * passes, and the runtime layer refuses the call. */
static aclError words_check(const char *function, void *ptr, size_t memSize, size_t words)
{
    if (ptr == NULL) {
        return error_argument(function, ACL_ERROR_INVALID_PARAM, "ptr");
    }
    if ((uintptr_t)ptr % sizeof(uint32_t) != 0) {
        return error_set(function, ACL_ERROR_INVALID_PARAM, "ptr = %p: expected 4-byte alignment",
                         ptr);
    }
    if (memSize < words * sizeof(uint32_t)) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
                         "N = %zu: expected at most memSize / 4 = %zu", words, memSize / 4);
    }
    return ACL_SUCCESS;
}

static aclError words_reach(const char *function, void *ptr, size_t words, Seen *seen)
{
    if (words > SIZE_MAX / sizeof(uint32_t)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "N = %zu: four times that overflows",
                         words);
    }
    TRY(memory_check(function, "ptr", ptr, words * sizeof(uint32_t), true, seen));
    if (seen->kind == MEMORY_UNKNOWN) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
                         "ptr = %p is neither device memory nor pinned or registered", ptr);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtMemsetD32(void *ptr, size_t memSize, uint32_t value, size_t N)
{
    if (N == 0) {
        return ACL_SUCCESS;
    }
    Context *context;
    TRY(words_check(__func__, ptr, memSize, N));
    TRY(context_require(&context));
    TRY(capture_forbids_sync());
    Seen seen;
    TRY(words_reach(__func__, ptr, N, &seen));
    fill_now(__func__, &(FillTask){ptr, N * sizeof value, value, true}, seen.inner);
    return ACL_SUCCESS;
}

aclError sim_aclrtMemsetD32Async(void *ptr, size_t memSize, uint32_t value, size_t N,
                                 aclrtStream stream)
{
    if (N == 0) {
        return ACL_SUCCESS;
    }
    STREAM_REF(queue);
    TRY(words_check(__func__, ptr, memSize, N));
    TRY(stream_resolve(stream, &queue));
    Seen seen;
    TRY(words_reach(__func__, ptr, N, &seen));
    FillTask task = {ptr, N * sizeof value, value, true};
    return stream_submit(queue, &fill_class, &task, sizeof task);
}
