/* Callbacks: threads that process reports for several streams, and host functions. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "check.h"

enum { STREAMS = 3, CALLS = 20 };

typedef struct Worker {
    pthread_t thread;
    aclrtContext context;
    atomic_bool stop;
} Worker;

static void *process_reports(void *argument)
{
    Worker *worker = argument;
    CHECK(aclrtSetCurrentContext(worker->context));
    while (!atomic_load(&worker->stop)) {
        (void)aclrtProcessReport(20);
    }
    return NULL;
}

typedef struct Log {
    pthread_t expected; /* the thread that processes the reports */
    int order[CALLS];
    int count;
} Log;

typedef struct Call {
    Log *log;
    int number;
} Call;

static void note(void *argument)
{
    Call *call = argument;
    EXPECT(pthread_equal(call->log->expected, pthread_self()));
    call->log->order[call->log->count++] = call->number;
}

/* The callbacks of each stream run in order, on the thread that subscribed to its reports. */
static void reports(void)
{
    static Call calls[STREAMS][CALLS];
    static Log logs[STREAMS];
    Worker workers[STREAMS];
    aclrtStream streams[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        CHECK(aclrtGetCurrentContext(&workers[s].context));
        atomic_init(&workers[s].stop, false);
        EXPECT(pthread_create(&workers[s].thread, NULL, process_reports, &workers[s]) == 0);
        logs[s].expected = workers[s].thread;
        CHECK(aclrtCreateStream(&streams[s]));
        CHECK(aclrtSubscribeReport((uint64_t)workers[s].thread, streams[s]));
    }
    for (int i = 0; i < CALLS; i++) {
        for (int s = 0; s < STREAMS; s++) {
            calls[s][i] = (Call){&logs[s], i};
            CHECK(aclrtLaunchCallback(note, &calls[s][i], ACL_CALLBACK_BLOCK, streams[s]));
        }
    }
    for (int s = 0; s < STREAMS; s++) {
        CHECK(aclrtSynchronizeStream(streams[s]));
        EXPECT(logs[s].count == CALLS);
        for (int i = 0; i < CALLS; i++) {
            EXPECT(logs[s].order[i] == i);
        }
        CHECK(aclrtUnSubscribeReport((uint64_t)workers[s].thread, streams[s]));
        atomic_store(&workers[s].stop, true);
        EXPECT(pthread_join(workers[s].thread, NULL) == 0);
        CHECK(aclrtDestroyStream(streams[s]));
    }
}

static void append(void *argument)
{
    Call *call = argument;
    call->log->order[call->log->count++] = call->number;
}

/* Host functions need no subscription; copies queued before them are complete when they run. */
static void host_functions(void)
{
    static Call calls[CALLS];
    static Log log;
    aclrtStream stream;
    CHECK(aclrtCreateStream(&stream));
    for (int i = 0; i < CALLS; i++) {
        calls[i] = (Call){&log, i};
        CHECK(aclrtLaunchHostFunc(stream, append, &calls[i]));
    }
    CHECK(aclrtSynchronizeStream(stream));
    EXPECT(log.count == CALLS);
    for (int i = 0; i < CALLS; i++) {
        EXPECT(log.order[i] == i);
    }
    CHECK(aclrtDestroyStream(stream));
}

int main(void)
{
    open_device(0);
    reports();
    host_functions();
    close_device(0);
    return 0;
}
