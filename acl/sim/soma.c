/* Stream-ordered memory pools (aclrtMemPool*).
 *
 * A pool takes blocks of whole 2 MiB pages from its device.  aclrtMemPoolFreeAsync makes a block
 * CACHED at once: the same stream may get it again right away, other streams only after the free's
 * place in its stream was reached.  What is cached beyond the release threshold goes back to the
 * device when that place is reached.
 *
 * S1  used      used == the sum of BUSY blocks; reserved == the sum of all blocks; used <= reserved
 * S2  limit     reserved <= limit
 * S3  order     a CACHED block whose free was not reached goes only to the stream it was freed on
 *
 * Thread rule: each pool has a mutex.  A pool's slot lives until its last block is gone. */
#include "soma.h"

#include "exports.h"

#include <stdlib.h>

typedef enum PoolBlockState { POOL_BUSY, POOL_CACHED } PoolBlockState;

typedef struct PoolBlock {
    struct MemPool *pool;
    uintptr_t address;
    size_t bytes;
    PoolBlockState state;
    bool reached;        /* CACHED: its place in the stream was */
    uint32_t stream;     /* CACHED: the id of the stream that freed it */
    uint64_t number;     /* of its latest free; tells tasks of older ones apart */
    struct PoolBlock *next, *previous; /* in the pool's list */
} PoolBlock;

typedef struct MemPool {
    pthread_mutex_t lock;
    int32_t device;
    size_t limit;
    size_t threshold;
    uint32_t reuse[ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES + 1];
    size_t reserved, reserved_high, used, used_high;
    PoolBlock *blocks;
    bool destroyed;
} MemPool;

static const size_t UNIT = (size_t)1 << 21;

static aclError pool_unknown(const char *function, aclError code, const void *pool)
{
    return error_set(function, code, "memPool = %p is no pool (or it was destroyed)", pool);
}

/* ---- blocks (the pool's lock is held) ------------------------------------------- */
static void block_link(MemPool *pool, PoolBlock *block)
{
    block->next = pool->blocks;
    if (pool->blocks != NULL) {
        pool->blocks->previous = block;
    }
    pool->blocks = block;
}

static void block_unlink(MemPool *pool, PoolBlock *block)
{
    if (block->next != NULL) {
        block->next->previous = block->previous;
    }
    if (block->previous != NULL) {
        block->previous->next = block->next;
    } else {
        pool->blocks = block->next;
    }
    pool->reserved -= block->bytes;
}

static void block_release(MemPool *pool, PoolBlock *block)
{
    block_unlink(pool, block);
    arena_give(arena_existing(pool->device), block->address, BOOK_POOL);
    free(block);
}

/* Gives cached blocks whose place was reached back until no more than `keep` is reserved. */
static void pool_trim(MemPool *pool, size_t keep)
{
    for (PoolBlock *block = pool->blocks; block != NULL && pool->reserved > keep;) {
        PoolBlock *next = block->next;
        if (block->state == POOL_CACHED && block->reached) {
            block_release(pool, block);
        }
        block = next;
    }
}

/* The shortest cached block that the stream may have. */
static PoolBlock *block_reuse(MemPool *pool, size_t bytes, uint32_t stream)
{
    PoolBlock *best = NULL;
    for (PoolBlock *block = pool->blocks; block != NULL; block = block->next) {
        bool usable = block->state == POOL_CACHED && block->bytes >= bytes &&
                      (block->stream == stream || block->reached);
        if (usable && (best == NULL || block->bytes < best->bytes)) {
            best = block;
        }
    }
    return best;
}

static PoolBlock *block_new(MemPool *pool, size_t bytes)
{
    Arena *arena = arena_of(pool->device);
    PoolBlock *block = calloc(1, sizeof *block);
    BlockInfo info = {.size = bytes, .owner = block, .kind = MEMORY_POOL, .page = PAGE_HUGE};
    if (block == NULL || arena == NULL) {
        free(block);
        return NULL;
    }
    *block = (PoolBlock){.pool = pool, .bytes = bytes};
    block->address = arena_take(arena, bytes, PAGE_HUGE, BOOK_POOL, &info);
    if (block->address == 0) {
        free(block);
        return NULL;
    }
    block_link(pool, block);
    pool->reserved += bytes;
    return block;
}

static void pool_note_highs(MemPool *pool)
{
    pool->reserved_high = pool->reserved > pool->reserved_high ? pool->reserved
                                                               : pool->reserved_high;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
}

static PoolBlock *pool_take(MemPool *pool, size_t bytes, uint32_t stream, aclError *status)
{
    *status = ACL_ERROR_RT_INTERNAL_ERROR; /* what the runtime says of an exhausted pool */
    PoolBlock *block = block_reuse(pool, bytes, stream);
    if (block == NULL && bytes <= pool->limit) {
        if (bytes > pool->limit - pool->reserved) {
            pool_trim(pool, pool->limit - bytes);
        }
        if (bytes <= pool->limit - pool->reserved) {
            *status = ACL_ERROR_RT_MEMORY_ALLOCATION;
            block = block_new(pool, bytes);
            if (block == NULL) {
                pool_trim(pool, 0);
                block = block_new(pool, bytes);
            }
        }
    }
    if (block != NULL) {
        block->state = POOL_BUSY;
        pool->used += block->bytes;
        pool_note_highs(pool);
    }
    return block;
}

/* After the pool's end its slot may be used again once no block is left; drops the lock. */
static void pool_unlock(MemPool *pool)
{
    bool over = pool->destroyed && pool->blocks == NULL;
    pthread_mutex_unlock(&pool->lock);
    if (over) {
        handle_retire(pool);
    }
}

/* ---- creation and end ----------------------------------------------------------- */
aclError sim_aclrtMemPoolCreate(aclrtMemPool *memPool, const aclrtMemPoolProps *poolProps)
{
    REQUIRE(memPool);
    REQUIRE(poolProps);
    REQUIRE(poolProps->allocType == ACL_MEM_ALLOCATION_TYPE_PINNED);
    REQUIRE(poolProps->location.type == ACL_MEM_LOCATION_TYPE_DEVICE);
    for (size_t i = 0; i < sizeof poolProps->reserved; i++) {
        REQUIRE(poolProps->reserved[i] == 0);
    }
    Context *context;
    int32_t device = (int32_t)poolProps->location.id;
    TRY(context_require(&context));
    TRY(device_check(device));
    size_t capacity = config.capacity[device];
    size_t limit = capacity / UNIT * UNIT;
    if (poolProps->maxSize > limit) {
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
                    "poolProps->maxSize = %zu: device %d has %zu bytes", poolProps->maxSize, device,
                    capacity);
    }
    if (poolProps->maxSize != 0) {
        limit = (poolProps->maxSize + UNIT - 1) / UNIT * UNIT;
    }
    MemPool *pool = handle_new(HANDLE_MEM_POOL, sizeof *pool);
    if (pool == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no handle left");
    }
    pthread_mutex_init(&pool->lock, NULL);
    pool->device = device;
    pool->limit = limit;
    for (int i = 1; i <= (int)ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES; i++) {
        pool->reuse[i] = 1;
    }
    *memPool = pool;
    return ACL_SUCCESS;
}

/* Blocks in use stay valid until they are freed; they go back to the device then. */
aclError sim_aclrtMemPoolDestroy(const aclrtMemPool memPool)
{
    REQUIRE(memPool);
    MemPool *pool = (MemPool *)memPool;
    if (!handle_is(pool, HANDLE_MEM_POOL) || !handle_kill(pool)) {
        return pool_unknown(__func__, ACL_ERROR_RT_INTERNAL_ERROR, pool);
    }
    pthread_mutex_lock(&pool->lock);
    pool->destroyed = true;
    pool->threshold = 0;
    pool_trim(pool, 0);
    pool_unlock(pool);
    return ACL_SUCCESS;
}

/* ---- allocation ----------------------------------------------------------------- */
aclError sim_aclrtMemPoolMallocAsync(void **ptr, size_t size, aclrtMemPool memPool,
                                     aclrtStream stream)
{
    REQUIRE(ptr);
    REQUIRE(memPool);
    REQUIRE(stream);
    if (size == 0) {
        return ACL_SUCCESS;
    }
    Stream *queue;
    TRY(stream_resolve(stream, &queue));
    REQUIRE_RT(size <= SIZE_MAX - UNIT);
    MemPool *pool = memPool;
    if (!handle_is(pool, HANDLE_MEM_POOL)) {
        return pool_unknown(__func__, ACL_ERROR_RT_INTERNAL_ERROR, pool);
    }
    aclError status;
    size_t bytes = (size + UNIT - 1) / UNIT * UNIT;
    pthread_mutex_lock(&pool->lock);
    PoolBlock *block = pool_take(pool, bytes, stream_id(queue), &status);
    size_t reserved = pool->reserved, limit = pool->limit;
    int32_t device = pool->device;
    pthread_mutex_unlock(&pool->lock);
    if (block == NULL) {
        return fail(status, "size = %zu: the pool has %zu of at most %zu bytes, device %d has %zu "
                    "left", size, reserved, limit, device, books_free(device));
    }
    *ptr = (void *)block->address;
    return ACL_SUCCESS;
}

/* ---- freeing in stream order ---------------------------------------------------- */
typedef struct FreeTask {
    MemPool *pool;
    PoolBlock *block;
    uintptr_t address;
    uint64_t number;
} FreeTask;

/* The block may be gone, or have been given out and freed again, since the task was made. */
static void free_reached(const FreeTask *task)
{
    MemPool *pool = task->pool;
    pthread_mutex_lock(&pool->lock);
    PoolBlock *block = pool->blocks;
    while (block != NULL && block != task->block) {
        block = block->next;
    }
    if (block != NULL && block->state == POOL_CACHED && block->number == task->number) {
        block->reached = true;
        pool_trim(pool, pool->threshold);
    }
    pool_unlock(pool);
}

static aclError free_run(Stream *stream, const void *payload)
{
    (void)stream;
    free_reached(payload);
    return ACL_SUCCESS;
}

/* A task that was dropped is never reached: then nothing can be in flight either. */
static void free_drop(void *payload)
{
    free_reached(payload);
}

static const TaskClass free_class = {.name = "pool free", .run = free_run, .drop = free_drop};

static aclError plain_run(Stream *stream, const void *payload)
{
    (void)stream;
    (void)memory_free("aclrtMemPoolFreeAsync", *(void *const *)payload);
    return ACL_SUCCESS;
}

static const TaskClass plain_class = {.name = "free", .run = plain_run};

static aclError block_free_async(const char *function, PoolBlock *block, Stream *stream)
{
    static atomic_ullong numbers;
    MemPool *pool = block->pool;
    FreeTask task = {pool, block, block->address, atomic_fetch_add(&numbers, 1)};
    pthread_mutex_lock(&pool->lock);
    bool busy = block->state == POOL_BUSY;
    if (busy) {
        block->state = POOL_CACHED;
        block->reached = false;
        block->stream = stream_id(stream);
        block->number = task.number;
        pool->used -= block->bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!busy) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "ptr = %p was freed already",
                         (void *)block->address);
    }
    aclError status = stream_submit(stream, &free_class, &task, sizeof task);
    if (status != ACL_SUCCESS) {
        pthread_mutex_lock(&pool->lock);
        block->state = POOL_BUSY;
        pool->used += block->bytes;
        pthread_mutex_unlock(&pool->lock);
    }
    return status;
}

aclError sim_aclrtMemPoolFreeAsync(void *ptr, aclrtStream stream)
{
    REQUIRE(ptr);
    Stream *queue;
    TRY(stream_resolve(stream, &queue));
    Memory memory;
    memory_find(ptr, &memory);
    if (memory.kind != MEMORY_POOL) {
        return stream_submit(queue, &plain_class, &ptr, sizeof ptr);
    }
    if (memory.base != (uintptr_t)ptr) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "ptr = %p: the allocation begins at %p", ptr,
                    (void *)memory.base);
    }
    return block_free_async(__func__, memory.owner, queue);
}

aclError pool_free_now(const char *function, PoolBlock *block, Arena *arena, const ZoneView *view)
{
    MemPool *pool = block->pool;
    uintptr_t address = block->address;
    pthread_mutex_lock(&pool->lock);
    bool busy = block->state == POOL_BUSY;
    if (busy) {
        pool->used -= block->bytes;
        block_unlink(pool, block);
        arena_give_held(arena, address, view, BOOK_POOL);
        free(block);
    } else {
        arena_unhold(arena, address);
    }
    pool_unlock(pool);
    if (!busy) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "%p was freed already",
                         (void *)address);
    }
    return ACL_SUCCESS;
}

/* ---- attributes ----------------------------------------------------------------- */
static bool attribute_is_reuse(aclrtMemPoolAttr attr)
{
    return (int)attr >= (int)ACL_RT_MEM_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           (int)attr <= (int)ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

/* False if the attribute or its value is refused; the lock is held. */
static bool attribute_set_locked(MemPool *pool, aclrtMemPoolAttr attr, void *value)
{
    if (attribute_is_reuse(attr)) {
        pool->reuse[attr] = *(const uint32_t *)value != 0;
        return true;
    }
    uint64_t number = *(const uint64_t *)value;
    switch (attr) {
    case ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD:
        if (number <= pool->limit) {
            pool->threshold = number;
        }
        return number <= pool->limit;
    case ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH:
        pool->reserved_high = number == 0 ? pool->reserved : pool->reserved_high;
        return number == 0;
    case ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH:
        pool->used_high = number == 0 ? pool->used : pool->used_high;
        return number == 0;
    default:
        return false;
    }
}

static bool attribute_get_locked(MemPool *pool, aclrtMemPoolAttr attr, void *value)
{
    if (attribute_is_reuse(attr)) {
        *(uint32_t *)value = pool->reuse[attr];
        return true;
    }
    const size_t *numbers[] = {
        [ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD] = &pool->threshold,
        [ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT] = &pool->reserved,
        [ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH] = &pool->reserved_high,
        [ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT] = &pool->used,
        [ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH] = &pool->used_high,
    };
    bool known = (int)attr >= (int)ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD &&
                 (int)attr <= (int)ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH;
    if (known) {
        *(uint64_t *)value = *numbers[attr];
    }
    return known;
}

static aclError attribute_do(const char *function, MemPool *pool, aclrtMemPoolAttr attr,
                             bool (*act)(MemPool *, aclrtMemPoolAttr, void *), void *value)
{
    if (!handle_is(pool, HANDLE_MEM_POOL)) {
        return pool_unknown(function, ACL_ERROR_RT_PARAM_INVALID, pool);
    }
    pthread_mutex_lock(&pool->lock);
    bool done = act(pool, attr, value);
    pthread_mutex_unlock(&pool->lock);
    return done ? ACL_SUCCESS
                : error_set(function, ACL_ERROR_RT_INTERNAL_ERROR,
                            "attr = %d: unknown, not to be set, or its value is out of range",
                            (int)attr);
}

aclError sim_aclrtMemPoolSetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void *value)
{
    REQUIRE(memPool);
    REQUIRE_RT(value);
    return attribute_do(__func__, memPool, attr, attribute_set_locked, value);
}

aclError sim_aclrtMemPoolGetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void *value)
{
    REQUIRE(memPool);
    REQUIRE_RT(value);
    return attribute_do(__func__, memPool, attr, attribute_get_locked, value);
}

aclError sim_aclrtMemPoolTrimTo(aclrtMemPool memPool, size_t minBytesToKeep)
{
    REQUIRE(memPool);
    MemPool *pool = memPool;
    if (!handle_is(pool, HANDLE_MEM_POOL)) {
        return pool_unknown(__func__, ACL_ERROR_RT_INTERNAL_ERROR, pool);
    }
    pthread_mutex_lock(&pool->lock);
    size_t used = pool->used, limit = pool->limit;
    bool nothing = minBytesToKeep <= limit && minBytesToKeep >= pool->reserved;
    bool valid = nothing || (minBytesToKeep <= limit && minBytesToKeep >= used);
    if (valid && !nothing) {
        pool_trim(pool, minBytesToKeep);
    }
    pthread_mutex_unlock(&pool->lock);
    if (!valid) {
        return fail(ACL_ERROR_RT_INTERNAL_ERROR,
                    "minBytesToKeep = %zu: expected %zu (in use) to %zu (the pool's limit)",
                    minBytesToKeep, used, limit);
    }
    return ACL_SUCCESS;
}
