/* Stream-ordered memory pools, as the rest of the simulator sees them. */
#ifndef SIM_MEMPOOL_H
#define SIM_MEMPOOL_H

#include "memory/memory.h"

struct PoolBlock;

/* aclrtFree of a pool's memory: back to the device at once.  The view is of the block, held. */
aclError pool_free_now(const char *function, struct PoolBlock *block, Arena *arena,
                       const ZoneView *view);

#endif
