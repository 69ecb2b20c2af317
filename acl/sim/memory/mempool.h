/* Stream-ordered memory pools: the interface for other files. */
#ifndef SIM_MEMPOOL_H
#define SIM_MEMPOOL_H

#include "memory/memory.h"

struct PoolBlock;

/* aclrtFree of a pool's block: returns it to the device at once. The view is of the held block. */
aclError pool_free_now(const char *function, struct PoolBlock *block, Arena *arena,
                       const ZoneView *view);

#endif
