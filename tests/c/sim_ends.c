/* Streams and contexts ended by force: work that has not begun, host functions included, never runs. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { TURNS = 500 };
#else
enum { TURNS = 20000 };
#endif

static atomic_int go, inside, late;
static aclrtStream busy, stream;

static void hold(void *argument)
{
    (void)argument;
    atomic_store(&inside, 1);
    while (!atomic_load(&go)) {
        usleep(100);
    }
    atomic_store(&inside, 0);
}

static void run_late(void *argument)
{
    (void)argument;
    atomic_fetch_add(&late, 1);
}

/* Starts a host function of `busy` that occupies the thread of host functions, and queues two of `stream`. */
static void begin(void)
{
    atomic_store(&go, 0);
    atomic_store(&inside, 0);
    atomic_store(&late, 0);
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&busy));
    OK(aclrtCreateStream(&stream));
    OK(aclrtLaunchHostFunc(busy, hold, NULL));
    while (!atomic_load(&inside)) {
        usleep(100);
    }
    OK(aclrtLaunchHostFunc(stream, run_late, NULL));
    OK(aclrtLaunchHostFunc(stream, run_late, NULL));
}

static void destroyed(void)
{
    begin();
    OK(aclrtDestroyStreamForce(stream));
    atomic_store(&go, 1);
    OK(aclrtSynchronizeStream(busy));
    for (int i = 0; i < 100; i++) { /* one thread runs all of them in order */
        OK(aclrtLaunchHostFunc(busy, hold, NULL));
    }
    OK(aclrtSynchronizeStream(busy));
    CHECK(atomic_load(&late) == 0);
    OK(aclrtDestroyStream(busy));
    OK(aclrtResetDevice(0));
}

static void reset(void)
{
    begin();
    OK(aclrtResetDeviceForce(0));
    atomic_store(&go, 1);
    while (atomic_load(&inside)) {
        usleep(100);
    }
    begin(); /* the thread runs host functions in order, so functions from before would have run first */
    atomic_store(&go, 1);
    OK(aclrtSynchronizeStream(busy));
    OK(aclrtSynchronizeStream(stream));
    CHECK(atomic_load(&late) == 2);
    OK(aclrtResetDevice(0));
}

/* A stop ends a wait; it does not restore work that an abort has dropped. */
static void aborted_then_stopped(void)
{
    for (int i = 0; i < 50; i++) {
        begin();
        OK(aclrtStreamAbort(stream));
        OK(aclrtStreamStop(stream));
        atomic_store(&go, 1);
        OK(aclrtSynchronizeStream(stream));
        CHECK(atomic_load(&late) == 0);
        OK(aclrtDestroyStream(stream));
        OK(aclrtDestroyStream(busy));
        OK(aclrtResetDevice(0));
    }
}

/* Callbacks that a thread of the user would have to run are dropped by an abort too. */
static void aborted_reports(void)
{
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtSubscribeReport((uint64_t)pthread_self(), stream));
    OK(aclrtLaunchCallback(run_late, NULL, ACL_CALLBACK_BLOCK, stream));
    OK(aclrtLaunchCallback(run_late, NULL, ACL_CALLBACK_BLOCK, stream));
    OK(aclrtStreamAbort(stream));
    OK(aclrtSynchronizeStream(stream));
    GIVES(ACL_ERROR_RT_REPORT_TIMEOUT, aclrtProcessReport(10));
    CHECK(atomic_load(&late) == 0);
    OK(aclrtUnSubscribeReport((uint64_t)pthread_self(), stream));
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(0));
}

/* ---- a context that is destroyed ends its streams, including those created meanwhile ----------- */
static _Atomic(aclrtContext) victim;
static atomic_int over;

static void *maker(void *unused)
{
    aclrtStream made;
    (void)unused;
    while (!atomic_load(&over)) {
        aclrtContext context = atomic_exchange(&victim, NULL);
        if (context != NULL && aclrtSetCurrentContext(context) == ACL_SUCCESS) {
            (void)aclrtCreateStream(&made);
        }
    }
    return NULL;
}

static uint32_t streams_left(void)
{
    uint32_t left;
    OK(aclrtGetStreamAvailableNum(&left));
    return left;
}

static void contexts_and_makers(void)
{
    pthread_t thread;
    aclrtContext own, context;
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&own));
    uint32_t before = streams_left();
    CHECK(pthread_create(&thread, NULL, maker, NULL) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
        OK(aclrtCreateContext(&context, 0));
        OK(aclrtSetCurrentContext(own));
        atomic_store(&victim, context);
        OK(aclrtDestroyContext(context));
    }
    atomic_store(&over, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(streams_left() == before);
    OK(aclrtResetDevice(0));
}

static aclrtContext ending;

static void *destroyer(void *unused)
{
    (void)unused;
    OK(aclrtDestroyContext(ending));
    return NULL;
}

static void on_stream(aclrtStream made, aclrtStreamState state, void *unused)
{
    pthread_t thread;
    (void)made, (void)unused;
    if (state == ACL_RT_STREAM_STATE_CREATE_POST) {
        CHECK(pthread_create(&thread, NULL, destroyer, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

/* The context is destroyed during the call that creates a stream in it. */
static void context_of_a_new_stream(void)
{
    aclrtStream made = NULL;
    OK(aclrtSetDevice(0));
    OK(aclrtCreateContext(&ending, 0));
    OK(aclrtRegStreamStateCallback("ends", on_stream, NULL));
    GIVES(ACL_ERROR_RT_CONTEXT_NULL, aclrtCreateStream(&made));
    CHECK(made == NULL);
    OK(aclrtRegStreamStateCallback("ends", NULL, NULL));
    OK(aclrtResetDevice(0));
}

int main(void)
{
    OK(aclInit(NULL));
    destroyed();
    reset();
    aborted_then_stopped();
    aborted_reports();
    contexts_and_makers();
    context_of_a_new_stream();
    OK(aclFinalize());
    return 0;
}
