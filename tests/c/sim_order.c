/* Work of one stream runs in order, even if several threads submit it; a stream does not wait for another
 * stream, except by an event. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 4, EACH = 500 };

static aclrtContext context;
static aclrtStream stream;
static int last[THREADS];
static int total; /* host functions of one device never overlap: no lock */

static void count(void *argument)
{
    uintptr_t number = (uintptr_t)argument;
    int thread = (int)(number / EACH), index = (int)(number % EACH);
    CHECK(last[thread] == index);
    last[thread] = index + 1;
    total++;
}

static void *submit(void *argument)
{
    uintptr_t thread = (uintptr_t)argument;
    OK(aclrtSetCurrentContext(context));
    for (uintptr_t i = 0; i < EACH; i++) {
        OK(aclrtLaunchHostFunc(stream, count, (void *)(thread * EACH + i)));
    }
    return NULL;
}

static void many_submitters(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, submit, (void *)i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(aclrtSynchronizeStream(stream));
    CHECK(total == THREADS * EACH);
}

static void chain_of_waits(void)
{
    enum { LENGTH = 8, ROUNDS = 50 };
    aclrtStream streams[LENGTH];
    aclrtEvent events[LENGTH];
    uint32_t *memory;
    OK(aclrtMalloc((void **)&memory, (LENGTH + 1) * 64, ACL_MEM_MALLOC_HUGE_FIRST));
    for (int i = 0; i < LENGTH; i++) {
        OK(aclrtCreateStream(&streams[i]));
        OK(aclrtCreateEventExWithFlag(&events[i], ACL_EVENT_SYNC));
    }
    for (int round = 1; round <= ROUNDS; round++) {
        uint32_t seen = 0;
        OK(aclrtMemsetAsync(memory, 64, round, 64, streams[0]));
        OK(aclrtRecordEvent(events[0], streams[0]));
        for (int i = 1; i < LENGTH; i++) {
            OK(aclrtStreamWaitEvent(streams[i], events[i - 1]));
            OK(aclrtMemcpyAsync(memory + 16 * i, 64, memory + 16 * (i - 1), 64,
                                ACL_MEMCPY_DEVICE_TO_DEVICE, streams[i]));
            OK(aclrtRecordEvent(events[i], streams[i]));
        }
        OK(aclrtSynchronizeEvent(events[LENGTH - 1]));
        OK(aclrtMemcpy(&seen, 4, memory + 16 * (LENGTH - 1), 4, ACL_MEMCPY_DEVICE_TO_HOST));
        CHECK(seen == (uint32_t)round * 0x01010101u);
    }
    for (int i = 0; i < LENGTH; i++) {
        OK(aclrtDestroyStream(streams[i]));
        OK(aclrtDestroyEvent(events[i]));
    }
    OK(aclrtFree(memory));
}

static void hold(void *argument)
{
    while (!atomic_load((atomic_int *)argument)) {
        usleep(100);
    }
}

static void one_blocked_stream_leaves_others_alone(void)
{
    atomic_int go = 0;
    aclrtStream blocked;
    aclrtStreamStatus status;
    OK(aclrtCreateStream(&blocked));
    OK(aclrtLaunchHostFunc(blocked, hold, &go));
    OK(aclrtStreamQuery(blocked, &status));
    CHECK(status == ACL_STREAM_STATUS_NOT_READY);
    OK(aclrtSynchronizeStream(stream));
    GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeStreamWithTimeout(blocked, 20));
    GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeDeviceWithTimeout(20));
    atomic_store(&go, 1);
    OK(aclrtSynchronizeDevice());
    OK(aclrtDestroyStream(blocked));
}

int main(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&context));
    OK(aclrtCreateStream(&stream));
    many_submitters();
    chain_of_waits();
    one_blocked_stream_leaves_others_alone();
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
