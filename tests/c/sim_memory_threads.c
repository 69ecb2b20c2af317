/* Threads that allocate, look up, copy, map and use pools at the same time; each checks its own bytes.
 */
#include <pthread.h>
#include <stdint.h>

#include "acl/acl_rt_memory_soma.h"
#include "check.h"

enum { THREADS = 4, LIVE = 64, GRANULES = 16 };
static const size_t GRANULE = (size_t)2 << 20;
static const int rounds = 150;

static uint32_t random_next(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* ---- malloc, lookup, copies --------------------------------------------------------------------- */
typedef struct Block {
    void *address;
    size_t size;
    unsigned char byte;
} Block;

static size_t random_size(uint32_t *state)
{
    uint32_t r = random_next(state);
    return r % 4 == 0 ? (r >> 8) % (3 << 20) + 1 : r % 4 == 1 ? (r >> 8) % 65536 + 1 : (r >> 8) % 900 + 1;
}

static void block_make(Block *block, uint32_t *state)
{
    block->size = random_size(state);
    block->byte = (unsigned char)random_next(state);
    OK(aclrtMalloc(&block->address, block->size, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK((uintptr_t)block->address % 512 == 0);
    OK(aclrtMemset(block->address, block->size, block->byte, block->size));
}

static void block_end(const Block *block)
{
    unsigned char first, last;
    void *base;
    size_t bytes;
    aclrtPtrAttributes attributes;
    char *end = (char *)block->address + block->size - 1;
    OK(aclrtMemcpy(&first, 1, block->address, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    OK(aclrtMemcpy(&last, 1, end, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK(first == block->byte && last == block->byte);
    OK(aclrtMemGetAddressRange(end, &base, &bytes));
    CHECK(base == block->address && bytes >= block->size);
    OK(aclrtPointerGetAttributes(end, &attributes));
    CHECK(attributes.location.type == ACL_MEM_LOCATION_TYPE_DEVICE);
    OK(aclrtFree(block->address));
}

static void *mallocs_run(void *argument)
{
    uint32_t state = (uint32_t)(uintptr_t)argument * 2654435761u + 1;
    const uint32_t first = state;
    Block blocks[LIVE] = {{NULL, 0, 0}};
    OK(aclrtSetDevice((int32_t)(first % 2)));
    for (int i = 0; i < rounds * 4; i++) {
        Block *block = &blocks[random_next(&state) % LIVE];
        if (block->address != NULL) {
            block_end(block);
            block->address = NULL;
        } else {
            block_make(block, &state);
        }
    }
    for (int i = 0; i < LIVE; i++) {
        if (blocks[i].address != NULL) {
            block_end(&blocks[i]);
        }
    }
    OK(aclrtResetDevice((int32_t)(first % 2)));
    return NULL;
}

/* ---- virtual memory ----------------------------------------------------------------------------- */
static aclrtDrvMemHandle granule_make(void)
{
    aclrtPhysicalMemProp prop = {.handleType = ACL_MEM_HANDLE_TYPE_NONE,
                                 .allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED,
                                 .memAttr = ACL_HBM_MEM_HUGE,
                                 .location = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE}};
    aclrtDrvMemHandle handle;
    OK(aclrtMallocPhysical(&handle, GRANULE, &prop, 0));
    return handle;
}

/* Maps handles at changing slots of one reservation; each handle must keep its bytes. */
static void *mappings_run(void *argument)
{
    uint32_t state = (uint32_t)(uintptr_t)argument * 40503u + 7;
    aclrtDrvMemHandle handles[GRANULES];
    int where[GRANULES];
    void *base;
    OK(aclrtSetDevice(0));
    OK(aclrtReserveMemAddress(&base, 2 * GRANULES * GRANULE, 0, NULL, 1));
    for (int i = 0; i < GRANULES; i++) {
        handles[i] = granule_make();
        where[i] = i;
        OK(aclrtMapMem((char *)base + (size_t)i * GRANULE, GRANULE, 0, handles[i], 0));
        OK(aclrtMemset((char *)base + (size_t)i * GRANULE, 64, i + 1, 64));
    }
    int free_slot = GRANULES;
    for (int i = 0; i < rounds; i++) {
        int moved = (int)(random_next(&state) % GRANULES);
        char *from = (char *)base + (size_t)where[moved] * GRANULE;
        char *to = (char *)base + (size_t)free_slot * GRANULE;
        unsigned char bytes[64];
        OK(aclrtUnmapMem(from));
        GIVES(107000, aclrtMemcpy(bytes, 64, from, 64, ACL_MEMCPY_DEVICE_TO_HOST));
        OK(aclrtMapMem(to, GRANULE, 0, handles[moved], 0));
        OK(aclrtMemcpy(bytes, 64, to, 64, ACL_MEMCPY_DEVICE_TO_HOST));
        CHECK(bytes[0] == moved + 1 && bytes[63] == moved + 1);
        int vacated = where[moved];
        where[moved] = free_slot;
        free_slot = vacated;
    }
    for (int i = 0; i < GRANULES; i++) {
        OK(aclrtFreePhysical(handles[i]));
        OK(aclrtUnmapMem((char *)base + (size_t)where[i] * GRANULE));
    }
    OK(aclrtReleaseMemAddress(base));
    OK(aclrtResetDevice(0));
    return NULL;
}

/* ---- asynchronous copies and pools -------------------------------------------------------------- */
static void *streams_run(void *argument)
{
    aclrtMemPool pool = argument;
    aclrtStream stream;
    unsigned char *host;
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtMallocHost((void **)&host, 4096));
    for (int i = 0; i < rounds; i++) {
        void *device;
        OK(aclrtMemPoolMallocAsync(&device, 4096, pool, stream));
        OK(aclrtMemsetAsync(device, 4096, i & 0xff, 4096, stream));
        OK(aclrtMemcpyAsync(host, 4096, device, 4096, ACL_MEMCPY_DEVICE_TO_HOST, stream));
        OK(aclrtMemPoolFreeAsync(device, stream));
        if (i % 8 == 7) {
            OK(aclrtSynchronizeStream(stream));
            CHECK(host[0] == (i & 0xff) && host[4095] == (i & 0xff));
        }
    }
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyStream(stream));
    OK(aclrtFreeHost(host));
    OK(aclrtResetDevice(0));
    return NULL;
}

static aclrtMemPool pool_make(void)
{
    aclrtMemPoolProps props = {.allocType = ACL_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE},
                               .maxSize = (size_t)256 << 20};
    aclrtMemPool pool;
    OK(aclrtMemPoolCreate(&pool, &props));
    return pool;
}

int main(void)
{
    pthread_t threads[3 * THREADS];
    size_t before, after, total;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total));
    aclrtMemPool pool = pool_make();
    for (int i = 0; i < THREADS; i++) {
        void *number = (void *)(uintptr_t)(i + 1);
        CHECK(pthread_create(&threads[3 * i], NULL, mallocs_run, number) == 0);
        CHECK(pthread_create(&threads[3 * i + 1], NULL, mappings_run, number) == 0);
        CHECK(pthread_create(&threads[3 * i + 2], NULL, streams_run, pool) == 0);
    }
    for (int i = 0; i < 3 * THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    OK(aclrtMemPoolDestroy(pool));
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total));
    CHECK(after == before);
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
