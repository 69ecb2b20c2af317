/* Allocates and frees blocks of one stream's arena, on a thread that may have no Python thread state. */
#include "worker.h"

enum { MOST = 256 };

static long block_faults(const AclPoolBlock *block, size_t size)
{
    return (uintptr_t)aclpool_address(block) % 512 != 0 || aclpool_bytes(block) < size;
}

long worker_run(const AclPoolApi *api, AclPoolArena *arena, size_t size, int count, int rounds)
{
    AclPoolBlock *blocks[MOST];
    long faults = 0;
    if (!aclpool_usable(api) || count > MOST)
        return -1;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < count; i++) {
            blocks[i] = api->alloc(arena, size + (size_t)i);
            if (blocks[i] == NULL)
                return -2;
            faults += block_faults(blocks[i], size + (size_t)i);
        }
        for (int i = 0; i < count; i++)
            faults += !api->free(arena, blocks[i]);
    }
    return faults;
}

long worker_free_twice(const AclPoolApi *api, AclPoolArena *arena)
{
    AclPoolBlock *block = api->alloc(arena, 1000);
    if (block == NULL || !api->free(arena, block))
        return 1;
    return api->free(arena, block);
}
