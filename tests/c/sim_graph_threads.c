/* Graphs that several threads use at once: aborted while they run on several streams, destroyed while they
 * are submitted, queried while they are updated; and one event that two captures record. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

/* Repetitions, so that two threads collide at least once; a sanitizer detects the race with fewer. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { TURNS = 2000, CAPTURES = 5000, LANES = 2 };
#else
enum { TURNS = 20000, CAPTURES = 300000, LANES = 2 };
#endif

static aclrtContext context;
static unsigned char *memory;

static aclrtStream stream_make(void)
{
    aclrtStream stream;
    OK(aclrtCreateStream(&stream));
    return stream;
}

static void begin(aclrtStream stream)
{
    OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
}

static aclmdlRI end(aclrtStream stream)
{
    aclmdlRI graph;
    OK(aclmdlRICaptureEnd(stream, &graph));
    return graph;
}

/* ---- an abort ends each execution that runs, and no work behind it ----------------------------- */
static atomic_int begun;

static void count_begun(void *unused)
{
    (void)unused;
    atomic_fetch_add(&begun, 1);
}

static void aborted_on_two_streams(void)
{
    unsigned char bytes[2];
    aclrtNotify notify;
    aclrtStream streams[2] = {stream_make(), stream_make()};
    OK(aclrtCreateNotify(&notify, 0));
    OK(aclrtMemset(memory, 2, 0, 2));
    begin(streams[0]);
    OK(aclrtWaitAndResetNotify(notify, streams[0], 0));
    OK(aclrtMemsetAsync(memory, 2, 9, 2, streams[0]));
    aclmdlRI graph = end(streams[0]);
    atomic_store(&begun, 0);
    for (int i = 0; i < 2; i++) {
        OK(aclrtLaunchHostFunc(streams[i], count_begun, NULL));
        OK(aclmdlRIExecuteAsync(graph, streams[i]));
        OK(aclrtMemsetAsync(memory + i, 1, i + 1, 1, streams[i]));
    }
    while (atomic_load(&begun) != 2) {
        usleep(1000);
    }
    for (int i = 0; i < 2; i++) {
        aclError status; /* an execution that has not begun yet is not aborted */
        do {
            OK(aclmdlRIAbort(graph));
            status = aclrtSynchronizeStreamWithTimeout(streams[i], 10);
        } while (status == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
        OK(status);
    }
    OK(aclrtMemcpy(bytes, 2, memory, 2, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK(bytes[0] == 1 && bytes[1] == 2);
    OK(aclmdlRIDestroy(graph));
    OK(aclrtDestroyNotify(notify));
    OK(aclrtDestroyStream(streams[0]));
    OK(aclrtDestroyStream(streams[1]));
}

/* ---- a destroyed graph does not run ----------------------------------------------------------- */
static _Atomic(aclmdlRI) shared;
static atomic_int gone, over;

static void must_live(void *unused)
{
    (void)unused;
    CHECK(!atomic_load(&gone));
}

static void on_gone(void *unused)
{
    (void)unused;
    atomic_store(&gone, 1);
}

static void *submitter(void *argument)
{
    aclrtStream stream = argument;
    OK(aclrtSetCurrentContext(context));
    while (!atomic_load(&over)) {
        aclmdlRI graph = atomic_load(&shared);
        aclError status = graph != NULL ? aclmdlRIExecuteAsync(graph, stream) : ACL_SUCCESS;
        CHECK(status == ACL_SUCCESS || status == ACL_ERROR_RT_INVALID_HANDLE);
        OK(aclrtSynchronizeStream(stream));
    }
    return NULL;
}

static void destroyed_while_submitted(void)
{
    pthread_t thread;
    aclrtStream stream = stream_make(), other = stream_make();
    CHECK(pthread_create(&thread, NULL, submitter, other) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
        begin(stream);
        OK(aclrtLaunchHostFunc(stream, must_live, NULL));
        aclmdlRI graph = end(stream);
        OK(aclmdlRIDestroyRegisterCallback(graph, on_gone, NULL));
        atomic_store(&gone, 0);
        atomic_store(&shared, graph);
        for (aclError status = 1; status != ACL_SUCCESS;) {
            status = aclmdlRIDestroy(graph);
            CHECK(status == ACL_SUCCESS || status == ACL_ERROR_RT_MODEL_RUNNING);
        }
        atomic_store(&shared, NULL);
        OK(aclrtSynchronizeStream(other));
    }
    atomic_store(&over, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(aclrtDestroyStream(stream));
    OK(aclrtDestroyStream(other));
}

/* ---- one event in two captures ---------------------------------------------------------------- */
static aclrtEvent event;

/* If the record's indices are from a graph with many streams, they would be out of range in one with few. */
static void *capturer(void *argument)
{
    int lanes = *(const int *)argument;
    aclrtStream streams[LANES + 1];
    aclrtEvent own;
    OK(aclrtSetCurrentContext(context));
    OK(aclrtCreateEvent(&own));
    for (int i = 0; i <= lanes; i++) {
        streams[i] = stream_make();
    }
    for (int turn = 0; turn < CAPTURES; turn++) {
        aclmdlRI graph = NULL;
        begin(streams[0]);
        OK(aclrtRecordEvent(own, streams[0]));
        for (int i = 1; i <= lanes; i++) {
            OK(aclrtStreamWaitEvent(streams[i], own));
            OK(aclrtMemsetAsync(memory, 1, 0, 1, streams[i]));
        }
        for (int i = 1; i < lanes; i++) {
            OK(aclrtRecordEvent(own, streams[i]));
            OK(aclrtStreamWaitEvent(streams[0], own));
        }
        OK(aclrtRecordEvent(event, streams[lanes]));
        /* If the other thread has recorded the event since then, the wait joins nothing. */
        aclError joined = aclrtStreamWaitEvent(streams[0], event);
        aclError ended = aclmdlRICaptureEnd(streams[0], &graph);
        CHECK(ended == (joined == ACL_SUCCESS ? ACL_SUCCESS : ACL_ERROR_RT_STREAM_UNJOINED));
        if (graph != NULL) {
            OK(aclmdlRIDestroy(graph));
        }
    }
    for (int i = 0; i <= lanes; i++) {
        OK(aclrtDestroyStream(streams[i]));
    }
    OK(aclrtDestroyEvent(own));
    return NULL;
}

static void one_event_in_two_captures(void)
{
    static int many = LANES, few = 1;
    pthread_t threads[2];
    OK(aclrtCreateEvent(&event));
    CHECK(pthread_create(&threads[0], NULL, capturer, &many) == 0);
    CHECK(pthread_create(&threads[1], NULL, capturer, &few) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    OK(aclrtDestroyEvent(event));
}

/* ---- a task is queried while it is replaced ---------------------------------------------------- */
static aclmdlRITask task;

static void *asker(void *unused)
{
    aclmdlRITaskType type;
    aclmdlRITaskParams params;
    uint32_t id;
    (void)unused;
    OK(aclrtSetCurrentContext(context));
    for (int turn = 0; turn < TURNS; turn++) {
        OK(aclmdlRITaskGetType(task, &type));
        OK(aclmdlRITaskGetSeqId(task, &id));
        OK(aclmdlRITaskGetParams(task, &params));
        CHECK(type == ACL_MODEL_RI_TASK_VALUE_WRITE && id == 0 && params.type == type);
    }
    return NULL;
}

static void asked_while_updated(void)
{
    pthread_t thread;
    aclrtTaskGrp group;
    uint32_t count = 1;
    aclrtStream stream = stream_make(), other = stream_make();
    begin(stream);
    OK(aclmdlRICaptureTaskGrpBegin(stream));
    OK(aclrtValueWrite(memory, 1, 0, stream));
    OK(aclmdlRICaptureTaskGrpEnd(stream, &group));
    aclmdlRI graph = end(stream);
    OK(aclmdlRIGetTasksByStream(stream, &task, &count));
    CHECK(pthread_create(&thread, NULL, asker, NULL) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
        OK(aclmdlRICaptureTaskUpdateBegin(other, group));
        OK(aclrtValueWrite(memory, (uint64_t)turn, 0, other));
        OK(aclmdlRICaptureTaskUpdateEnd(other));
    }
    CHECK(pthread_join(thread, NULL) == 0);
    OK(aclmdlRIDestroy(graph));
    OK(aclrtDestroyStream(stream));
    OK(aclrtDestroyStream(other));
}

int main(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&context));
    OK(aclrtMalloc((void **)&memory, 4096, ACL_MEM_MALLOC_NORMAL_ONLY));
    aborted_on_two_streams();
    destroyed_while_submitted();
    one_event_in_two_captures();
    asked_while_updated();
    OK(aclrtFree(memory));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
