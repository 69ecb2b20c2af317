/* memory_source.h: where models and operators take device memory from: the allocator registered for a
   stream, or a pool of their own.

   A block remembers where it came from, so it goes back there whatever has been registered since.
   Callbacks run on the calling thread, with no lock of the simulator held. */
#ifndef SIM_MEMORY_SOURCE_H
#define SIM_MEMORY_SOURCE_H

#include "tensors/allocator.h"
#include "base/core.h"

/* The default allocator: caches what it got from aclrtMalloc in pages of 64 KiB. It serves one
   stream's order: a block that was given back may be handed out again at once. */
typedef struct Pool Pool;

typedef struct Source {
    Allocator user;  /* if pool is NULL */
    Pool *pool;
} Source;

typedef struct Block {
    Source from;
    void *handle;    /* what the user's alloc returned */
    void *address;
    size_t size;     /* that was asked for */
} Block;

/* 245000 if there is no memory. */
aclError source_take(const Source *source, size_t size, Block *block);
void source_give(Block *block);

Pool *pool_new(void);
/* Gives everything back to the device; no block may be out. */
void pool_free(Pool *pool);

/* Calls give(object) when the stream has done what is queued on it; at once if the stream accepts
   no tasks. */
void stream_finally(Stream *stream, void (*give)(void *object), void *object);

/* As GE sizes a tensor: up to a multiple of 32, and the chip's padding on top; at least 32. */
size_t tensor_padded(size_t bytes);
/* A workspace: a multiple of 512. */
size_t workspace_padded(size_t bytes);
/* A copy of host data: up to a multiple of 64, and 64 more. */
size_t copy_padded(size_t bytes);

#endif
