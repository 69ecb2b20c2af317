/* The plain C part of the consumer: no Python header, no link to the package. */
#ifndef WORKER_H
#define WORKER_H

#define ACLPOOL_NO_PYTHON
#include "aclpool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one thread does with its stream's part: `rounds` times `count` blocks, each checked for
 * overlap with its neighbours.  The number of what went wrong. */
long worker_run(const AclPoolApi *api, AclPoolArena *arena, size_t size, int count, int rounds);

/* 0 if a second free of a block is refused.  Only while no other thread uses the arena: the block
 * may be that thread's by then. */
long worker_free_twice(const AclPoolApi *api, AclPoolArena *arena);

#ifdef __cplusplus
}
#endif

#endif
