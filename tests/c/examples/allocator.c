/* A user's allocator: described, registered for a stream, found again, called, unregistered. */
#include "check.h"

typedef struct Block {
    void *address;
    size_t size;
} Block;

typedef struct Pool {
    int allocated;
    int freed;
    int advised;
} Pool;

static void *pool_alloc(aclrtAllocator allocator, size_t size)
{
    Block *block = malloc(sizeof *block);
    if (block == NULL || aclrtMalloc(&block->address, size, ACL_MEM_MALLOC_HUGE_FIRST) != 0) {
        free(block);
        return NULL;
    }
    block->size = size;
    ((Pool *)allocator)->allocated++;
    return block;
}

static void pool_free(aclrtAllocator allocator, aclrtAllocatorBlock block)
{
    CHECK(aclrtFree(((Block *)block)->address));
    free(block);
    ((Pool *)allocator)->freed++;
}

static void *pool_advise(aclrtAllocator allocator, size_t size, aclrtAllocatorAddr address)
{
    (void)address;
    ((Pool *)allocator)->advised++;
    return pool_alloc(allocator, size);
}

static void *block_address(aclrtAllocatorBlock block)
{
    return ((Block *)block)->address;
}

static void register_pool(aclrtStream stream, Pool *pool)
{
    aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc();
    EXPECT(desc != NULL);
    CHECK(aclrtAllocatorSetObjToDesc(desc, pool));
    CHECK(aclrtAllocatorSetAllocFuncToDesc(desc, pool_alloc));
    CHECK(aclrtAllocatorSetFreeFuncToDesc(desc, pool_free));
    CHECK(aclrtAllocatorSetAllocAdviseFuncToDesc(desc, pool_advise));
    CHECK(aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, block_address));
    CHECK(aclrtAllocatorRegister(stream, desc));
    CHECK(aclrtAllocatorDestroyDesc(desc));
}

int main(void)
{
    Pool pool = {0, 0, 0};
    aclrtStream stream;
    aclrtAllocatorDesc desc;
    aclrtAllocator object;
    aclrtAllocatorAllocFunc alloc;
    aclrtAllocatorFreeFunc release;
    aclrtAllocatorAllocAdviseFunc advise;
    aclrtAllocatorGetAddrFromBlockFunc address;
    unsigned char back[4] = {0};
    open_device(0);
    CHECK(aclrtCreateStream(&stream));
    register_pool(stream, &pool);
    CHECK(aclrtAllocatorGetByStream(stream, &desc, &object, &alloc, &release, &advise, &address));
    EXPECT(object == &pool && alloc == pool_alloc && release == pool_free);
    EXPECT(advise == pool_advise && address == block_address);
    void *block = alloc(object, 4096);
    void *near_block = advise(object, 4096, address(block));
    EXPECT(block != NULL && near_block != NULL && address(block) != address(near_block));
    CHECK(aclrtMemsetAsync(address(block), 4096, 9, 4096, stream));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(back, sizeof back, address(block), sizeof back, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(back[0] == 9 && back[3] == 9);
    release(object, near_block);
    release(object, block);
    EXPECT(pool.allocated == 2 && pool.freed == 2 && pool.advised == 1);
    CHECK(aclrtAllocatorUnregister(stream));
    EXPECT(aclrtAllocatorGetByStream(stream, &desc, NULL, NULL, NULL, NULL, NULL) ==
           ACL_ERROR_INVALID_PARAM);
    CHECK(aclrtDestroyStream(stream));
    close_device(0);
    return 0;
}
