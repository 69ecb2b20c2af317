/* All devices of the machine: a context and stream each, from threads, and copies between them. */
#include <pthread.h>
#include <string.h>

#include "check.h"

enum { BYTES = 1 << 16 };

/* Allocates memory on a device, fills it with the device's number, and reads it back. */
static void *use_device(void *argument)
{
    int32_t device = *(int32_t *)argument;
    int32_t current = -1;
    aclrtStream stream;
    void *memory;
    unsigned char *host;
    CHECK(aclrtSetDevice(device));
    CHECK(aclrtGetDevice(&current));
    EXPECT(current == device);
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtMalloc(&memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMallocHost((void **)&host, BYTES));
    CHECK(aclrtMemsetAsync(memory, BYTES, device + 1, BYTES, stream));
    CHECK(aclrtMemcpyAsync(host, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    CHECK(aclrtSynchronizeStream(stream));
    EXPECT(host[0] == device + 1 && host[BYTES - 1] == device + 1);
    CHECK(aclrtFreeHost(host));
    CHECK(aclrtFree(memory));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(device));
    return NULL;
}

static void in_threads(uint32_t count)
{
    pthread_t threads[64];
    int32_t numbers[64];
    for (uint32_t i = 0; i < count; i++) {
        numbers[i] = (int32_t)i;
        EXPECT(pthread_create(&threads[i], NULL, use_device, &numbers[i]) == 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
    }
}

/* Copies from one device to the next, if they can access each other. */
static void between(int32_t from, int32_t to)
{
    int32_t reaches = 0;
    void *source;
    void *target;
    unsigned char back[64] = {0};
    CHECK(aclrtDeviceCanAccessPeer(&reaches, from, to));
    EXPECT(reaches == 1);
    CHECK(aclrtSetDevice(from));
    CHECK(aclrtDeviceEnablePeerAccess(to, 0));
    CHECK(aclrtMalloc(&source, sizeof back, ACL_MEM_MALLOC_HUGE_FIRST_P2P));
    CHECK(aclrtMemset(source, sizeof back, from + 65, sizeof back));
    CHECK(aclrtSetDevice(to));
    CHECK(aclrtDeviceEnablePeerAccess(from, 0));
    CHECK(aclrtMalloc(&target, sizeof back, ACL_MEM_MALLOC_HUGE_FIRST_P2P));
    CHECK(aclrtMemcpy(target, sizeof back, source, sizeof back, ACL_MEMCPY_DEVICE_TO_DEVICE));
    CHECK(aclrtMemcpy(back, sizeof back, target, sizeof back, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(back[0] == from + 65 && back[63] == from + 65);
    CHECK(aclrtFree(target));
    CHECK(aclrtDeviceDisablePeerAccess(from));
    CHECK(aclrtResetDevice(to));
    CHECK(aclrtSetDevice(from));
    CHECK(aclrtDeviceDisablePeerAccess(to));
    CHECK(aclrtFree(source));
    CHECK(aclrtResetDevice(from));
    CHECK(aclrtResetDevice(from));
}

int main(void)
{
    uint32_t count = 0;
    CHECK(aclInit(NULL));
    CHECK(aclrtGetDeviceCount(&count));
    EXPECT(count >= 1);
    in_threads(count);
    for (uint32_t i = 0; i + 1 < count; i++) {
        between((int32_t)i, (int32_t)i + 1);
    }
    CHECK(aclFinalize());
    puts("ok");
    return 0;
}
