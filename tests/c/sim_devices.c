/* Two devices: the current device of each thread, streams and events across devices, counts of sets and resets. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

enum { BYTES = 1 << 16, ROUNDS = 30 };

static void *use_device(void *argument)
{
    int32_t device = (int32_t)(intptr_t)argument, found = -1;
    unsigned char *host, *memory;
    aclrtStream stream;
    GIVES(ACL_ERROR_RT_CONTEXT_NULL, aclrtGetDevice(&found));
    OK(aclrtSetDevice(device));
    OK(aclrtGetDevice(&found));
    CHECK(found == device);
    OK(aclrtCreateStream(&stream));
    OK(aclrtMalloc((void **)&memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMallocHost((void **)&host, BYTES));
    for (int i = 0; i < ROUNDS; i++) {
        OK(aclrtMemsetAsync(memory, BYTES, i + device, BYTES, stream));
        OK(aclrtMemcpyAsync(host, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, stream));
        OK(aclrtSynchronizeStream(stream));
        CHECK(host[0] == (unsigned char)(i + device) && host[BYTES - 1] == host[0]);
    }
    OK(aclrtDestroyStream(stream));
    OK(aclrtFree(memory));
    OK(aclrtFreeHost(host));
    OK(aclrtResetDevice(device));
    return NULL;
}

static void both_at_once(void)
{
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, use_device, (void *)(i % 2)) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void streams_belong_to_contexts(void)
{
    aclrtStream first, second;
    aclrtEvent event;
    aclrtContext context0, context1, explicit1;
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&context0));
    OK(aclrtCreateStream(&first));
    OK(aclrtSetDevice(1));
    OK(aclrtGetCurrentContext(&context1));
    CHECK(context0 != context1);
    OK(aclrtCreateStream(&second));
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    GIVES(ACL_ERROR_RT_STREAM_CONTEXT, aclrtRecordEvent(event, first));
    OK(aclrtSynchronizeStream(first));
    GIVES(ACL_ERROR_RT_STREAM_CONTEXT, aclrtDestroyStream(first));
    OK(aclrtSetCurrentContext(context0));
    OK(aclrtRecordEvent(event, first));
    OK(aclrtSetCurrentContext(context1));
    OK(aclrtStreamWaitEvent(second, event));
    OK(aclrtSynchronizeStreamWithTimeout(second, 5000));
    OK(aclrtCreateContext(&explicit1, 1));
    GIVES(ACL_ERROR_RT_CONTEXT_NULL, aclrtDestroyContext(context1));
    OK(aclrtResetDevice(1));
    GIVES(ACL_ERROR_RT_INVALID_HANDLE, aclrtSynchronizeStream(second));
    OK(aclrtSetCurrentContext(explicit1));
    OK(aclrtDestroyContext(explicit1));
    GIVES(ACL_ERROR_RT_CONTEXT_NULL, aclrtDestroyContext(explicit1));
    GIVES(ACL_ERROR_RT_CONTEXT_RELEASE_ERROR, aclrtResetDevice(1));
    OK(aclrtDestroyEvent(event));
    OK(aclrtResetDevice(0));
}

/* Threads set, use and reset one device repeatedly; a thread may use a context that another one created. */
static void *set_and_reset(void *argument)
{
    (void)argument;
    for (int i = 0; i < 200; i++) {
        aclrtStream stream;
        OK(aclrtSetDevice(0));
        OK(aclrtCreateStream(&stream));
        OK(aclrtSynchronizeStream(stream));
        OK(aclrtDestroyStream(stream));
        OK(aclrtResetDevice(0));
    }
    return NULL;
}

static void churn(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, set_and_reset, NULL) == 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(void)
{
    uint32_t count = 0;
    OK(aclrtGetDeviceCount(&count));
    CHECK(count >= 2);
    OK(aclInit(NULL));
    both_at_once();
    streams_belong_to_contexts();
    churn();
    OK(aclFinalize());
    return 0;
}
