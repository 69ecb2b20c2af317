/* Device and host memory: allocating, copying in each direction, filling, and the free memory. */
#include <string.h>

#include "check.h"

enum { COUNT = 1000, BYTES = COUNT * sizeof(int32_t), ROWS = 4, WIDTH = 40, PITCH = 64 };

static void copies(void)
{
    int32_t *host;
    int32_t *back;
    void *device;
    void *other;
    CHECK(aclrtMallocHost((void **)&host, BYTES));
    CHECK(aclrtMallocHost((void **)&back, BYTES));
    CHECK(aclrtMalloc(&device, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMalloc(&other, BYTES, ACL_MEM_MALLOC_NORMAL_ONLY));
    for (int32_t i = 0; i < COUNT; i++) {
        host[i] = i * 3 + 1;
    }
    CHECK(aclrtMemcpy(device, BYTES, host, BYTES, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(aclrtMemcpy(other, BYTES, device, BYTES, ACL_MEMCPY_DEVICE_TO_DEVICE));
    CHECK(aclrtMemcpy(back, BYTES, other, BYTES, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(memcmp(host, back, BYTES) == 0);
    CHECK(aclrtMemset(device, BYTES, 0x5a, BYTES));
    CHECK(aclrtMemcpy(back, BYTES, device, BYTES, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(back[0] == 0x5a5a5a5a && back[COUNT - 1] == 0x5a5a5a5a);
    CHECK(aclrtFree(device));
    CHECK(aclrtFree(other));
    CHECK(aclrtFreeHost(host));
    CHECK(aclrtFreeHost(back));
}

/* Copies rows with a pitch: the bytes between them are not changed. */
static void rows(void)
{
    unsigned char host[ROWS * PITCH];
    unsigned char back[ROWS * PITCH];
    void *device;
    for (size_t i = 0; i < sizeof host; i++) {
        host[i] = (unsigned char)i;
        back[i] = 0xee;
    }
    CHECK(aclrtMalloc(&device, sizeof host, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemset(device, sizeof host, 0, sizeof host));
    CHECK(aclrtMemcpy2d(device, PITCH, host, PITCH, WIDTH, ROWS, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(aclrtMemcpy2d(back, PITCH, device, PITCH, WIDTH, ROWS, ACL_MEMCPY_DEVICE_TO_HOST));
    for (size_t row = 0; row < ROWS; row++) {
        EXPECT(memcmp(back + row * PITCH, host + row * PITCH, WIDTH) == 0);
        EXPECT(back[row * PITCH + WIDTH] == 0xee);
    }
    CHECK(aclrtFree(device));
}

/* Allocated memory is missing from the free memory until it is freed. */
static void accounts(void)
{
    const size_t big = (size_t)64 << 20;
    size_t before;
    size_t during;
    size_t after;
    size_t total;
    void *device;
    CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total));
    CHECK(aclrtMalloc(&device, big, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &during, &total));
    CHECK(aclrtFree(device));
    CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total));
    EXPECT(before - during >= big);
    EXPECT(before == after && before <= total);
}

int main(void)
{
    open_device(0);
    copies();
    rows();
    accounts();
    close_device(0);
    return 0;
}
