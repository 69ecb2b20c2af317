/* Callbacks: host functions, subscribed threads, what may be called from inside, state callbacks. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

static aclrtContext context;
static aclrtStream stream;

/* ---- a subscribed thread runs the launched callbacks ---- */

static atomic_int stop, ran;
static pthread_t reporter;

static void *report(void *argument)
{
    (void)argument;
    OK(aclrtSetCurrentContext(context));
    while (!atomic_load(&stop)) {
        aclError status = aclrtProcessReport(20);
        CHECK(status == ACL_SUCCESS || status == ACL_ERROR_RT_REPORT_TIMEOUT
              || status == ACL_ERROR_RT_THREAD_SUBSCRIBE);
    }
    return NULL;
}

static void on_report(void *argument)
{
    (void)argument;
    CHECK(pthread_equal(pthread_self(), reporter));
    atomic_fetch_add(&ran, 1);
}

static void subscribed_thread(void)
{
    CHECK(pthread_create(&reporter, NULL, report, NULL) == 0);
    GIVES(ACL_ERROR_RT_STREAM_NO_CB_REG,
          aclrtLaunchCallback(on_report, NULL, ACL_CALLBACK_BLOCK, stream));
    OK(aclrtSubscribeReport((uint64_t)reporter, stream));
    GIVES(ACL_ERROR_RT_STREAM_SUBSCRIBE, aclrtSubscribeReport((uint64_t)reporter, stream));
    GIVES(ACL_ERROR_RT_STREAM_SUBSCRIBE, aclrtLaunchHostFunc(stream, on_report, NULL));
    for (int i = 0; i < 100; i++) {
        OK(aclrtLaunchCallback(on_report, NULL, ACL_CALLBACK_BLOCK, stream));
        OK(aclrtLaunchCallback(on_report, NULL, ACL_CALLBACK_NO_BLOCK, stream));
    }
    OK(aclrtLaunchCallback(on_report, NULL, ACL_CALLBACK_BLOCK, stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK(atomic_load(&ran) == 201);
    OK(aclrtUnSubscribeReport((uint64_t)reporter, stream));
    GIVES(ACL_ERROR_RT_STREAM_SUBSCRIBE, aclrtUnSubscribeReport((uint64_t)reporter, stream));
    atomic_store(&stop, 1);
    pthread_join(reporter, NULL);
}

/* A stream whose subscribed thread never processes a report can still be destroyed. */
static void subscriber_that_sleeps(void)
{
    aclrtStream stuck;
    OK(aclrtCreateStream(&stuck));
    OK(aclrtSubscribeReport(12345, stuck));
    OK(aclrtLaunchCallback(on_report, NULL, ACL_CALLBACK_BLOCK, stuck));
    GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeStreamWithTimeout(stuck, 20));
    OK(aclrtDestroyStreamForce(stuck));
}

/* ---- inside a host function ---- */

static aclError seen[5];

static void inner(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

static void call_from_inside(void *argument)
{
    void *memory;
    seen[0] = aclrtLaunchHostFunc(stream, inner, argument);
    seen[1] = aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST);
    seen[2] = aclrtSetCurrentContext(context);
    seen[3] = aclrtLaunchHostFunc(stream, inner, argument);
    seen[4] = aclrtSynchronizeStreamWithTimeout(stream, 30);
}

static void inside_a_host_function(void)
{
    atomic_int inners = 0;
    OK(aclrtLaunchHostFunc(stream, call_from_inside, &inners));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK(seen[0] == ACL_ERROR_RT_CONTEXT_NULL);
    CHECK(seen[1] == ACL_ERROR_RT_CONTEXT_NULL);
    CHECK(seen[2] == ACL_SUCCESS && seen[3] == ACL_SUCCESS);
    CHECK(seen[4] == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    CHECK(atomic_load(&inners) == 1);
}

/* ---- state callbacks ---- */

static atomic_int made, ended, device_steps;

static void on_stream(aclrtStream which, aclrtStreamState state, void *argument)
{
    uint32_t flags;
    CHECK(argument == &made && which != NULL);
    if (state == ACL_RT_STREAM_STATE_CREATE_POST) {
        atomic_fetch_add(&made, 1);
    } else {
        CHECK(state == ACL_RT_STREAM_STATE_DESTROY_PRE);
        OK(aclrtStreamGetFlags(which, &flags));
        atomic_fetch_add(&ended, 1);
    }
}

static void on_device(int32_t device, aclrtDeviceState state, void *argument)
{
    (void)argument;
    CHECK(device == 1);
    device_steps = device_steps * 10 + (int)state + 1;
}

static void state_callbacks(void)
{
    aclrtStream one;
    OK(aclrtRegStreamStateCallback("test", on_stream, &made));
    GIVES(ACL_ERROR_RT_PARAM_INVALID, aclrtRegStreamStateCallback("test", on_stream, &made));
    OK(aclrtCreateStream(&one));
    OK(aclrtDestroyStream(one));
    OK(aclrtRegStreamStateCallback("test", NULL, NULL));
    CHECK(made == 1 && ended == 1);
    OK(aclrtRegDeviceStateCallback("test", on_device, NULL));
    OK(aclrtSetDevice(1));
    OK(aclrtSetDevice(1));
    OK(aclrtResetDevice(1));
    OK(aclrtResetDevice(1));
    CHECK(device_steps == 12234);
    OK(aclrtRegDeviceStateCallback("test", NULL, NULL));
    OK(aclrtSetCurrentContext(context));
}

int main(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&context));
    OK(aclrtCreateStream(&stream));
    subscribed_thread();
    subscriber_that_sleeps();
    inside_a_host_function();
    state_callbacks();
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
