/* memory_source.h: supplies models and operators with device memory: from the allocator that is registered for
   a stream, or from a pool of the simulator's own.

   A block stores its allocator, so it is freed there even if another allocator has been registered since.
   Callbacks run on the calling thread, with no lock of the simulator held. */
#ifndef SIM_MEMORY_SOURCE_H
#define SIM_MEMORY_SOURCE_H

#include "tensors/allocator.h"
#include "base/core.h"

/* The default allocator: it caches memory from aclrtMalloc in units of 64 KiB. It serves one stream, whose order
   makes it safe to use a freed block again at once. */
typedef struct Pool Pool;

typedef struct Source {
    Allocator user;  /* the registered allocator; valid if `pool` is NULL */
    Pool *pool;
} Source;

typedef struct Block {
    Source from;
    void *handle;    /* what the user's alloc returned */
    void *address;
    size_t size;     /* requested bytes */
} Block;

/* Takes a block of `size` bytes. Returns 245000 if there is no memory. */
aclError source_take(const Source *source, size_t size, Block *block);
void source_give(Block *block);

Pool *pool_new(void);
/* Frees all memory of the pool; no block may be in use. */
void pool_free(Pool *pool);

/* Calls give(object) when the tasks that are queued on the stream are complete; immediately if the stream
   accepts no tasks. */
void stream_finally(Stream *stream, void (*give)(void *object), void *object);

/* Returns the size that GE allocates for a tensor: a multiple of 32, at least 32, and the chip's padding. */
size_t tensor_padded(size_t bytes);
/* Returns the size of a workspace: a multiple of 512. */
size_t workspace_padded(size_t bytes);
/* Returns the size for a copy of host data: a multiple of 64, and 64 more. */
size_t copy_padded(size_t bytes);

#endif
