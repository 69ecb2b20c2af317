/* Tasks that fail: what streams report and to which calls, how a stream stops on failure; and lost devices. */
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

/* From the simulator's control API. */
aclError acl_sim_stream_fail(aclrtStream stream, aclError code);
aclError acl_sim_device_lost(int32_t device, aclError code);
uint64_t acl_sim_calls(size_t index);
const char *acl_sim_function(size_t index);

static aclrtStream stream;
static atomic_int ran, told;
static aclError told_code;
static uint32_t told_stream;

static void count(void *argument)
{
    (void)argument;
    atomic_fetch_add(&ran, 1);
}

static void on_exception(aclrtExceptionInfo *info)
{
    told_code = (aclError)aclrtGetErrorCodeFromExceptionInfo(info);
    told_stream = aclrtGetStreamIdFromExceptionInfo(info);
    CHECK(aclrtGetDeviceIdFromExceptionInfo(info) == 0);
    CHECK(aclrtGetThreadIdFromExceptionInfo(info) == (uint32_t)getpid());
    atomic_fetch_add(&told, 1);
}

/* By default the stream continues after a failed task, and the next wait reports the failure, once. */
static void going_on(void)
{
    int32_t id;
    OK(aclrtSetExceptionInfoCallback(on_exception));
    OK(acl_sim_stream_fail(stream, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(aclrtLaunchHostFunc(stream, count, NULL));
    GIVES(ACL_ERROR_RT_AICORE_EXCEPTION, aclrtSynchronizeStream(stream));
    CHECK(aclrtGetLastError(ACL_RT_THREAD_LEVEL) == ACL_ERROR_RT_AICORE_EXCEPTION);
    OK(aclrtSynchronizeStream(stream));
    CHECK(atomic_load(&ran) == 1);
    OK(aclrtStreamGetId(stream, &id));
    CHECK(atomic_load(&told) == 1 && told_code == ACL_ERROR_RT_AICORE_EXCEPTION);
    CHECK(told_stream == (uint32_t)id);
    OK(aclrtSetExceptionInfoCallback(NULL));
}

/* A stream that stops on failure drops the later work, and stays failed. */
static void stopping(void)
{
    aclrtStream careful;
    OK(aclrtCreateStream(&careful));
    OK(aclrtSetStreamFailureMode(careful, ACL_STOP_ON_FAILURE));
    atomic_store(&ran, 0);
    OK(aclrtLaunchHostFunc(careful, count, NULL));
    OK(acl_sim_stream_fail(careful, ACL_ERROR_RT_AICORE_TIMEOUT));
    OK(aclrtLaunchHostFunc(careful, count, NULL));
    GIVES(ACL_ERROR_RT_AICORE_TIMEOUT, aclrtSynchronizeStream(careful));
    GIVES(ACL_ERROR_RT_AICORE_TIMEOUT, aclrtSynchronizeStream(careful));
    CHECK(atomic_load(&ran) == 1);
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyStream(careful));
}

static void losing_a_device(void)
{
    aclrtEvent event;
    OK(aclrtCreateEvent(&event));
    OK(acl_sim_device_lost(0, ACL_ERROR_RT_LOST_HEARTBEAT));
    GIVES(ACL_ERROR_RT_LOST_HEARTBEAT, aclrtSynchronizeStream(stream));
    GIVES(ACL_ERROR_RT_LOST_HEARTBEAT, aclrtRecordEvent(event, stream));
    OK(aclrtSetDevice(1));
    OK(aclrtSynchronizeDevice());
    OK(aclrtResetDevice(1));
    OK(aclrtSetDevice(0));
    OK(acl_sim_device_lost(0, 0));
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyEvent(event));
    OK(aclrtResetDevice(0));
}

static void waits_that_time_out(void)
{
    aclrtEvent never;
    OK(aclrtCreateEventWithFlag(&never, ACL_EVENT_SYNC));
    OK(aclrtSetOpWaitTimeout(1));
    OK(aclrtStreamWaitEvent(stream, never));
    GIVES(ACL_ERROR_RT_WAIT_TIMEOUT, aclrtSynchronizeStreamWithTimeout(stream, 20000));
    OK(aclrtSetOpWaitTimeout(0));
    OK(aclrtDestroyEvent(never));
}

static void calls_are_counted(void)
{
    size_t index = 0;
    aclrtStreamStatus status;
    while (__builtin_strcmp(acl_sim_function(index), "aclrtStreamQuery") != 0) {
        index++;
    }
    uint64_t before = acl_sim_calls(index);
    for (int i = 0; i < 10; i++) {
        OK(aclrtStreamQuery(stream, &status));
    }
    CHECK(acl_sim_calls(index) == before + 10);
}

int main(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    going_on();
    stopping();
    losing_a_device();
    waits_that_time_out();
    calls_are_counted();
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
