/* Stream-ordered memory pools: the interface for other files. */
#ifndef SIM_MEMPOOL_H
#define SIM_MEMPOOL_H

#include "memory/memory.h"

struct PoolBlock;

/* Called by aclrtFree for a block of a pool, which is held: returns it to the device immediately. `view`
 * describes the held block. */
aclError pool_free_now(const char *function, struct PoolBlock *block, Arena *arena,
                       const ZoneView *view);

#endif
