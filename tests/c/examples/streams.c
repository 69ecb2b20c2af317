/* Streams and events: order inside a stream, waiting between streams, timing, querying. */
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { BYTES = 1 << 20, STREAMS = 4 };

static void slow(void *argument)
{
    usleep(50000);
    *(int *)argument += 1;
}

/* One stream fills memory; another waits for an event, and then copies that memory. */
static void between_streams(void)
{
    aclrtStream first;
    aclrtStream second;
    aclrtEvent filled;
    void *device;
    unsigned char *host;
    int calls = 0;
    CHECK(aclrtCreateStream(&first));
    CHECK(aclrtCreateStreamWithConfig(&second, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC));
    CHECK(aclrtCreateEventWithFlag(&filled, ACL_EVENT_SYNC));
    CHECK(aclrtMalloc(&device, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMallocHost((void **)&host, BYTES));
    memset(host, 0, BYTES);
    CHECK(aclrtLaunchHostFunc(first, slow, &calls));
    CHECK(aclrtMemsetAsync(device, BYTES, 7, BYTES, first));
    CHECK(aclrtRecordEvent(filled, first));
    CHECK(aclrtStreamWaitEvent(second, filled));
    CHECK(aclrtMemcpyAsync(host, BYTES, device, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, second));
    CHECK(aclrtSynchronizeStream(second));
    EXPECT(calls == 1);
    EXPECT(host[0] == 7 && host[BYTES - 1] == 7);
    CHECK(aclrtResetEvent(filled, second));
    CHECK(aclrtSynchronizeStream(second));
    CHECK(aclrtDestroyEvent(filled));
    CHECK(aclrtFree(device));
    CHECK(aclrtFreeHost(host));
    CHECK(aclrtDestroyStream(first));
    CHECK(aclrtDestroyStream(second));
}

/* The time between two records is at least the duration of the work between them. */
static void timing(void)
{
    aclrtStream stream;
    aclrtEvent start;
    aclrtEvent end;
    aclrtEventRecordedStatus status;
    aclrtStreamStatus busy;
    int calls = 0;
    float ms = 0;
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtCreateEventWithFlag(&start, ACL_EVENT_TIME_LINE));
    CHECK(aclrtCreateEventWithFlag(&end, ACL_EVENT_TIME_LINE));
    CHECK(aclrtRecordEvent(start, stream));
    CHECK(aclrtLaunchHostFunc(stream, slow, &calls));
    CHECK(aclrtRecordEvent(end, stream));
    CHECK(aclrtQueryEventStatus(end, &status));
    EXPECT(status == ACL_EVENT_RECORDED_STATUS_NOT_READY);
    CHECK(aclrtStreamQuery(stream, &busy));
    EXPECT(busy == ACL_STREAM_STATUS_NOT_READY);
    EXPECT(aclrtSynchronizeStreamWithTimeout(stream, 1) == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    CHECK(aclrtSynchronizeEvent(end));
    CHECK(aclrtQueryEventStatus(end, &status));
    EXPECT(status == ACL_EVENT_RECORDED_STATUS_COMPLETE);
    CHECK(aclrtEventElapsedTime(&ms, start, end));
    EXPECT(ms >= 49);
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtStreamQuery(stream, &busy));
    EXPECT(busy == ACL_STREAM_STATUS_COMPLETE);
    CHECK(aclrtDestroyEvent(start));
    CHECK(aclrtDestroyEvent(end));
    CHECK(aclrtDestroyStream(stream));
}

/* Streams run at the same time, and synchronising the device waits for all of them. */
static void side_by_side(void)
{
    aclrtStream streams[STREAMS];
    int calls[STREAMS] = {0};
    for (int i = 0; i < STREAMS; i++) {
        CHECK(aclrtCreateStream(&streams[i]));
        CHECK(aclrtLaunchHostFunc(streams[i], slow, &calls[i]));
    }
    CHECK(aclrtSynchronizeDevice());
    for (int i = 0; i < STREAMS; i++) {
        EXPECT(calls[i] == 1);
        CHECK(aclrtDestroyStream(streams[i]));
    }
}

int main(void)
{
    open_device(0);
    between_streams();
    timing();
    side_by_side();
    close_device(0);
    return 0;
}
