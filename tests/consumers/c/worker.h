/* The plain C part of the consumer: no Python header, no link to the package. */
#ifndef WORKER_H
#define WORKER_H

#define ACLPOOL_NO_PYTHON
#include "aclpool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates `count` blocks of `arena` and frees them, `rounds` times; each block is checked for
 * overlap with its neighbours.  Returns the number of faults. */
long worker_run(const AclPoolApi *api, AclPoolArena *arena, size_t size, int count, int rounds);

/* Returns 0 if a second free of a block is refused.  Call it only while no other thread uses the arena, which
 * could have allocated the block again. */
long worker_free_twice(const AclPoolApi *api, AclPoolArena *arena);

#ifdef __cplusplus
}
#endif

#endif
