/* Captures and graphs: which calls are recorded, when they run, and which calls a capture refuses. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

enum { BYTES = 256 };

static aclrtStream stream, branch;
static unsigned char *memory;

static int filled_with(unsigned value)
{
    unsigned char host[BYTES];
    OK(aclrtMemcpy(host, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int i = 0; i < BYTES; i++) {
        if (host[i] != value) {
            return 0;
        }
    }
    return 1;
}

static void fill(unsigned value)
{
    OK(aclrtMemset(memory, BYTES, (int)value, BYTES));
}

static void recorded_not_run(void)
{
    aclmdlRI graph = NULL, during = NULL;
    aclmdlRICaptureStatus status;
    fill(1);
    OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    GIVES(ACL_ERROR_RT_STREAM_CAPTURED,
          aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    OK(aclmdlRICaptureGetInfo(stream, &status, &during));
    CHECK(status == ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE && during != NULL);
    OK(aclrtMemsetAsync(memory, BYTES, 7, BYTES, stream));
    OK(aclmdlRICaptureEnd(stream, &graph));
    CHECK(graph == during);
    OK(aclmdlRICaptureGetInfo(stream, &status, &during));
    CHECK(status == ACL_MODEL_RI_CAPTURE_STATUS_NONE && during == NULL);
    OK(aclrtSynchronizeStream(stream));
    CHECK(filled_with(1));
    for (unsigned i = 0; i < 3; i++) {
        fill(2);
        OK(aclmdlRIExecuteAsync(graph, stream));
        OK(aclrtSynchronizeStream(stream));
        CHECK(filled_with(7));
    }
    fill(2);
    OK(aclmdlRIExecute(graph, 5000));
    CHECK(filled_with(7));
    OK(aclmdlRIDestroy(graph));
    GIVES(ACL_ERROR_RT_INVALID_HANDLE, aclmdlRIDestroy(graph));
    GIVES(ACL_ERROR_RT_STREAM_NOT_CAPTURED, aclmdlRICaptureEnd(stream, &graph));
}

static void blocking_calls_are_refused(void)
{
    aclmdlRI graph;
    aclrtStreamStatus status;
    unsigned char host[BYTES];
    aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
    OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    GIVES(ACL_ERROR_RT_STREAM_CAPTURED, aclrtSynchronizeStream(stream));
    GIVES(ACL_ERROR_RT_STREAM_CAPTURED, aclrtStreamQuery(stream, &status));
    GIVES(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, aclrtSynchronizeStream(branch));
    GIVES(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, aclrtSynchronizeDevice());
    GIVES(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
          aclrtMemcpy(host, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST));
    OK(aclmdlRICaptureThreadExchangeMode(&mode));
    CHECK(mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    OK(aclrtSynchronizeStream(branch));
    OK(aclmdlRICaptureThreadExchangeMode(&mode));
    CHECK(mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
    OK(aclmdlRICaptureEnd(stream, &graph));
    OK(aclmdlRIDestroy(graph));
    OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    OK(aclrtSynchronizeStream(branch));
    OK(aclrtMemcpy(host, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST));
    OK(aclmdlRICaptureEnd(stream, &graph));
    OK(aclmdlRIDestroy(graph));
}

static aclrtContext context;

static void *end_elsewhere(void *code)
{
    aclmdlRI graph;
    unsigned char host[BYTES];
    OK(aclrtSetCurrentContext(context));
    GIVES((aclError)(intptr_t)code, aclmdlRICaptureEnd(stream, &graph));
    OK(aclrtMemcpy(host, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST));
    return NULL;
}

static void a_capture_belongs_to_its_thread(void)
{
    pthread_t thread;
    aclmdlRI graph;
    OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(pthread_create(&thread, NULL, end_elsewhere,
                         (void *)(intptr_t)ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD) == 0);
    pthread_join(thread, NULL);
    OK(aclmdlRICaptureEnd(stream, &graph));
    OK(aclmdlRIDestroy(graph));
}

static void a_branch_joins_by_events(void)
{
    aclrtEvent fork, join;
    aclmdlRI graph;
    aclrtEventRecordedStatus status;
    OK(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
    OK(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
    OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    OK(aclrtRecordEvent(fork, stream));
    GIVES(ACL_ERROR_RT_EVENT_CAPTURED, aclrtQueryEventStatus(fork, &status));
    GIVES(ACL_ERROR_RT_EVENT_CAPTURED, aclrtSynchronizeEvent(fork));
    OK(aclrtStreamWaitEvent(branch, fork));
    OK(aclrtMemsetAsync(memory, BYTES, 3, BYTES, branch));
    OK(aclrtRecordEvent(join, branch));
    OK(aclrtStreamWaitEvent(stream, join));
    OK(aclrtMemsetAsync(memory, BYTES / 2, 4, BYTES / 2, stream));
    GIVES(ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, aclmdlRICaptureEnd(branch, &graph));
    OK(aclmdlRICaptureEnd(stream, &graph));
    OK(aclmdlRIExecuteAsync(graph, stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK(!filled_with(3) && !filled_with(4));
    OK(aclrtMemset(memory, BYTES / 2, 3, BYTES / 2));
    CHECK(filled_with(3));
    OK(aclmdlRIDestroy(graph));
    OK(aclrtRecordEvent(fork, stream));
    OK(aclrtSynchronizeEvent(fork));
    OK(aclrtDestroyEvent(fork));
    OK(aclrtDestroyEvent(join));
}

static void a_branch_must_join(void)
{
    aclrtEvent fork;
    aclmdlRI graph = memory;
    OK(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
    OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    OK(aclrtRecordEvent(fork, stream));
    OK(aclrtStreamWaitEvent(branch, fork));
    OK(aclrtMemsetAsync(memory, BYTES, 9, BYTES, branch));
    GIVES(ACL_ERROR_RT_STREAM_UNJOINED, aclmdlRICaptureEnd(stream, &graph));
    CHECK(graph == NULL);
    OK(aclrtSynchronizeStream(branch));
    OK(aclrtDestroyEvent(fork));
}

static void add_one(void *argument)
{
    ++*(int *)argument;
}

/* A graph built by a bound stream: a loop with labels that runs three times. */
static void built_with_labels(void)
{
    aclrtStream bound;
    aclmdlRI graph;
    aclrtLabel labels[2];
    aclrtLabelList list;
    uint32_t *index;
    int count = 0;
    OK(aclrtMalloc((void **)&index, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemset(index, 64, 0, 64));
    OK(aclrtCreateStreamWithConfig(&bound, 0, ACL_STREAM_PERSISTENT));
    OK(aclrtCreateLabel(&labels[0]));
    OK(aclrtCreateLabel(&labels[1]));
    GIVES(ACL_ERROR_RT_STREAM_MODEL, aclrtSetLabel(labels[0], bound));
    OK(aclrtCreateLabelList(labels, 2, &list));
    OK(aclmdlRIBuildBegin(&graph, 0));
    GIVES(ACL_ERROR_RT_PARAM_INVALID,
          aclmdlRIBindStream(graph, stream, ACL_MODEL_STREAM_FLAG_HEAD));
    OK(aclmdlRIBindStream(graph, bound, ACL_MODEL_STREAM_FLAG_HEAD));
    OK(aclrtSetLabel(labels[0], bound));
    OK(aclrtLaunchHostFunc(bound, add_one, &count));
    OK(aclrtMemsetAsync(index, 64, 1, 4, bound)); /* the index 0x01010101 is too large, so the last label is used */
    OK(aclrtSwitchLabelByIndex(index, 2, list, bound));
    OK(aclrtLaunchHostFunc(bound, add_one, &count)); /* skipped by the jump */
    OK(aclrtSetLabel(labels[1], bound));
    OK(aclrtLaunchHostFunc(bound, add_one, &count));
    OK(aclmdlRIEndTask(graph, bound));
    OK(aclmdlRIBuildEnd(graph, NULL));
    OK(aclmdlRIExecute(graph, 5000));
    CHECK(count == 2);
    OK(aclmdlRIUnbindStream(graph, bound));
    OK(aclmdlRIDestroy(graph));
    OK(aclrtDestroyLabelList(list));
    OK(aclrtDestroyLabel(labels[0]));
    OK(aclrtDestroyLabel(labels[1]));
    OK(aclrtDestroyStream(bound));
    OK(aclrtFree(index));
}

static int destroyed;

static void on_destroy(void *argument)
{
    destroyed += *(int *)argument;
}

static void names_and_callbacks(void)
{
    aclmdlRI graph;
    char name[16];
    int two = 2;
    OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    OK(aclmdlRICaptureEnd(stream, &graph));
    OK(aclmdlRISetName(graph, "decoder"));
    GIVES(ACL_ERROR_RT_PARAM_INVALID, aclmdlRIGetName(graph, 7, name));
    OK(aclmdlRIGetName(graph, sizeof name, name));
    CHECK(strcmp(name, "decoder") == 0);
    OK(aclmdlRIDestroyRegisterCallback(graph, on_destroy, &two));
    OK(aclmdlRIDestroy(graph));
    CHECK(destroyed == 2);
}

int main(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&context));
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&branch));
    OK(aclrtMalloc((void **)&memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    recorded_not_run();
    blocking_calls_are_refused();
    a_capture_belongs_to_its_thread();
    a_branch_joins_by_events();
    a_branch_must_join();
    built_with_labels();
    names_and_callbacks();
    OK(aclrtFree(memory));
    OK(aclrtDestroyStream(stream));
    OK(aclrtDestroyStream(branch));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
