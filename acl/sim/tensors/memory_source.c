/* memory_source.c: see memory_source.h. */
#include "tensors/memory_source.h"

#include <stdlib.h>

#include "base/soc.h"
#include "generated/exports.h"
#include "streams/stream.h"

/* Messages name the call that the user made, not the internal function that failed. */
#undef fail
#define fail(code, ...) error_set("memory for a run", (code), __VA_ARGS__)

static const size_t PAGE = (size_t)64 << 10;

/* --- sizes --- */

static size_t align_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

size_t tensor_padded(size_t bytes)
{
    size_t padded = align_up(bytes, 32) + soc_current()->padding;
    return padded < 32 ? 32 : padded;
}

size_t workspace_padded(size_t bytes)
{
    return align_up(bytes, 512);
}

size_t copy_padded(size_t bytes)
{
    return align_up(bytes, 64) + 64;
}

/* --- the default pool --- */

typedef struct Span {
    struct Span *next;
    void *address;
    size_t size;
} Span;

struct Pool {
    pthread_mutex_t lock; /* protects the list; no other lock is taken under it */
    Span *idle;
};

Pool *pool_new(void)
{
    Pool *pool = calloc(1, sizeof *pool);
    if (pool != NULL) {
        pthread_mutex_init(&pool->lock, NULL);
    }
    return pool;
}

static void spans_free(Span *span)
{
    while (span != NULL) {
        Span *next = span->next;
        (void)sim_aclrtFree(span->address);
        free(span);
        span = next;
    }
}

void pool_free(Pool *pool)
{
    if (pool != NULL) {
        spans_free(pool->idle);
        pthread_mutex_destroy(&pool->lock);
        free(pool);
    }
}

/* Returns the smallest idle span of `size` to 2 * `size` bytes, or NULL. */
static Span *pool_search(Pool *pool, size_t size)
{
    Span **best = NULL;
    pthread_mutex_lock(&pool->lock);
    for (Span **link = &pool->idle; *link != NULL; link = &(*link)->next) {
        bool fits = (*link)->size >= size && (*link)->size / 2 <= size;
        if (fits && (best == NULL || (*link)->size < (*best)->size)) {
            best = link;
        }
    }
    Span *found = best == NULL ? NULL : *best;
    if (found != NULL) {
        *best = found->next;
    }
    pthread_mutex_unlock(&pool->lock);
    return found;
}

static Span *span_new(size_t size)
{
    Span *span = malloc(sizeof *span);
    if (span != NULL
        && sim_aclrtMalloc(&span->address, size, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS) {
        span->size = size;
        return span;
    }
    free(span);
    return NULL;
}

static Span *pool_take(Pool *pool, size_t size)
{
    size_t rounded = align_up(size, PAGE);
    Span *span = pool_search(pool, rounded);
    if (span != NULL || (span = span_new(rounded)) != NULL) {
        return span;
    }
    /* Out of memory: idle spans may still be in use by queued work, so wait, give them back, and
       try once more, as GE's own allocator does. */
    streams_drain(context_current()); /* a failure of a stream is not an error of this call */
    pthread_mutex_lock(&pool->lock);
    Span *idle = pool->idle;
    pool->idle = NULL;
    pthread_mutex_unlock(&pool->lock);
    spans_free(idle);
    return span_new(rounded);
}

static void pool_give(Pool *pool, Span *span)
{
    pthread_mutex_lock(&pool->lock);
    span->next = pool->idle;
    pool->idle = span;
    pthread_mutex_unlock(&pool->lock);
}

/* --- blocks --- */

aclError source_take(const Source *source, size_t size, Block *block)
{
    *block = (Block){.from = *source, .size = size};
    if (source->pool != NULL) {
        Span *span = pool_take(source->pool, size);
        block->handle = span;
        block->address = span == NULL ? NULL : span->address;
    } else {
        block->handle = source->user.alloc(source->user.object, size);
        block->address = block->handle == NULL ? NULL : source->user.address(block->handle);
    }
    if (block->handle == NULL) {
        return fail((aclError)ACL_ERROR_GE_MEMORY_ALLOCATION, "%s gave no block of %zu bytes",
            source->pool != NULL ? "the default allocator"
                                 : "the allocator registered for the stream",
            size);
    }
    if (block->address == NULL) {
        source_give(block);
        return fail((aclError)ACL_ERROR_GE_MEMORY_ALLOCATION,
            "the allocator's block of %zu bytes has no address", size);
    }
    return ACL_SUCCESS;
}

void source_give(Block *block)
{
    if (block->handle == NULL) {
        return;
    }
    if (block->from.pool != NULL) {
        pool_give(block->from.pool, block->handle);
    } else {
        block->from.user.free(block->from.user.object, block->handle);
    }
    block->handle = NULL;
}

/* --- the end of a stream --- */

typedef struct Finally {
    void (*give)(void *object);
    void *object;
} Finally;

static aclError finally_run(Stream *stream, const void *payload)
{
    (void)stream;
    (void)payload;
    return ACL_SUCCESS;
}

static void finally_drop(void *payload)
{
    const Finally *last = payload;
    last->give(last->object);
}

static const TaskClass finally_task = {
    .name = "memory given back",
    .run = finally_run,
    .drop = finally_drop,
};

void stream_finally(Stream *stream, void (*give)(void *object), void *object)
{
    Finally last = {give, object};
    if (stream_submit(stream, &finally_task, &last, sizeof last) != ACL_SUCCESS) {
        give(object);
    }
}
