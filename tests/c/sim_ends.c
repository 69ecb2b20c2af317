/* Forced ends: what has not begun is withdrawn, host functions included, and never runs later. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

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

/* The thread of host functions is in one of `busy`; behind it waits one of `stream`. */
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
    for (int i = 0; i < 100; i++) { /* one thread runs them all, in order */
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
    begin(); /* the thread works them off in order: what was left over would have run */
    atomic_store(&go, 1);
    OK(aclrtSynchronizeStream(busy));
    OK(aclrtSynchronizeStream(stream));
    CHECK(atomic_load(&late) == 2);
    OK(aclrtResetDevice(0));
}

/* A stop ends a wait; it brings nothing back that an abort has dropped. */
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

/* The same for functions that a thread of the user's would have to run. */
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

int main(void)
{
    OK(aclInit(NULL));
    destroyed();
    reset();
    aborted_then_stopped();
    aborted_reports();
    OK(aclFinalize());
    return 0;
}
