/* Stream-ordered memory pools (aclrtMemPool*).
 *
 * A pool allocates blocks of whole 2 MiB pages from its device. aclrtMemPoolFreeAsync makes a block
 * CACHED immediately. The stream on which it was freed may then get it again; other streams may get
 * it only after that stream has reached the free, that is, has run the free's task. A block that is
 * longer than a request is split. When a stream has reached a free, cached blocks beyond the release
 * threshold are returned to the device.
 *
 * S1  used      used == the sum of BUSY blocks; reserved == the sum of all blocks; used <= reserved
 * S2  limit     reserved <= limit
 * S3  order     a CACHED block whose free was not reached is allocated only to the stream of its free
 * S4  binned    a block is in one bin <=> it is CACHED
 *
 * Thread rule: each pool has a mutex. The slot of a pool's handle is in use until the pool is
 * destroyed and its last block is freed. */
#include "memory/mempool.h"

#include "generated/exports.h"
#include "races/race.h"

#include <stdlib.h>

typedef enum PoolBlockState { POOL_BUSY, POOL_CACHED } PoolBlockState;

/* The position of a free in its stream. If the freed block is split, its parts share this object. */
typedef struct FreePlace {
    uint32_t users;          /* number of references: the task of the free, and each block */
    bool reached;            /* the stream has reached the free */
    uint32_t stream;         /* id of the stream */
    struct RaceBox *order;   /* the free's clock of the order checker, or NULL */
    struct PoolBlock *first; /* list of the blocks with this position; empty once the free is reached */
} FreePlace;

typedef struct PoolBlock {
    struct MemPool *pool;
    uintptr_t address;
    size_t bytes;
    PoolBlockState state;
    FreePlace *place;               /* the position of its free; valid while CACHED */
    struct PoolBlock *next, **link; /* next block in the bin, and the pointer to this one; valid while CACHED (S4) */
    struct PoolBlock *other;        /* the next block with the same `place`; valid while CACHED */
} PoolBlock;

enum { BINS = 44, LOOKS_MOST = 64 }; /* bin b has the blocks of 2^b to 2^(b + 1) - 1 pages */

typedef struct MemPool {
    pthread_mutex_t lock;
    int32_t device;
    size_t limit;
    size_t threshold;
    uint32_t reuse[ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES + 1];
    size_t reserved, reserved_high, used, used_high;
    size_t blocks, tasks;        /* number of blocks; number of frees that are queued and not done */
    PoolBlock *bins[2][BINS];    /* first index: 1 if the block's free was reached, else 0 */
    bool destroyed;
} MemPool;

static const size_t UNIT = (size_t)1 << 21;

static aclError pool_unknown(const char *function, aclError code, const void *pool)
{
    return error_set(function, code, "memPool = %p is not a live pool", pool);
}

/* ---- places and bins (the pool's lock is held) ---------------------------------- */
static void place_release(FreePlace *place)
{
    if (--place->users == 0) {
        if (place->order != NULL) {
            race_drop(&place->order);
        }
        free(place);
    }
}

static void place_leave(PoolBlock *block)
{
    PoolBlock **at = &block->place->first;
    while (*at != NULL && *at != block) {
        at = &(*at)->other;
    }
    if (*at != NULL) {
        *at = block->other;
    }
    place_release(block->place);
    block->place = NULL;
}

static void place_enter(PoolBlock *block, FreePlace *place)
{
    place->users++;
    block->place = place;
    if (!place->reached) {
        block->other = place->first;
        place->first = block;
    }
}

static int bin_of(size_t bytes)
{
    return 63 - __builtin_clzll(bytes / UNIT);
}

static void bin_put(MemPool *pool, PoolBlock *block)
{
    PoolBlock **head = &pool->bins[block->place->reached][bin_of(block->bytes)];
    block->next = *head;
    block->link = head;
    if (*head != NULL) {
        (*head)->link = &block->next;
    }
    *head = block;
}

static void bin_take(PoolBlock *block)
{
    *block->link = block->next;
    if (block->next != NULL) {
        block->next->link = block->link;
    }
}

/* ---- blocks (the pool's lock is held) ------------------------------------------- */
static void block_cache(PoolBlock *block, FreePlace *place)
{
    block->state = POOL_CACHED;
    place_enter(block, place);
    bin_put(block->pool, block);
}

static void block_uncache(PoolBlock *block)
{
    bin_take(block);
    place_leave(block);
    block->state = POOL_BUSY;
}

static void block_unlink(MemPool *pool, PoolBlock *block)
{
    pool->blocks--;
    pool->reserved -= block->bytes;
}

/* Gives cached blocks back to the device, until at most `keep` bytes are reserved. Only blocks whose
 * free was reached can be given back. */
static void pool_trim(MemPool *pool, size_t keep)
{
    for (int bin = BINS - 1; bin >= 0; bin--) {
        while (pool->bins[true][bin] != NULL && pool->reserved > keep) {
            PoolBlock *block = pool->bins[true][bin];
            block_uncache(block);
            block_unlink(pool, block);
            arena_give(arena_existing(pool->device), block->address, BOOK_POOL);
            free(block);
        }
    }
}

static bool block_usable(const PoolBlock *block, size_t bytes, uint32_t stream)
{
    return block->bytes >= bytes && (block->place->reached || block->place->stream == stream);
}

/* Searches the bins from that of `bytes` on, and at most `looks` blocks of each. Returns the shortest usable block of
   the first bin in which it found one; NULL if there is none. */
static PoolBlock *bins_search(MemPool *pool, bool reached, size_t bytes, uint32_t stream, int looks)
{
    for (int bin = bin_of(bytes); bin < BINS; bin++) {
        PoolBlock *best = NULL;
        int look = 0;
        for (PoolBlock *block = pool->bins[reached][bin]; block != NULL && look < looks;
             block = block->next, look++) {
            bool better = best == NULL || block->bytes < best->bytes;
            best = better && block_usable(block, bytes, stream) ? block : best;
            if (best != NULL && best->bytes == bytes) {
                break;
            }
        }
        if (best != NULL) {
            return best;
        }
    }
    return NULL;
}

/* Returns a cached block of at least `bytes` that the stream may use, or NULL. */
static PoolBlock *block_find(MemPool *pool, size_t bytes, uint32_t stream, int looks)
{
    PoolBlock *ready = bins_search(pool, true, bytes, stream, looks);
    PoolBlock *own = bins_search(pool, false, bytes, stream, looks);
    return own == NULL || (ready != NULL && ready->bytes < own->bytes) ? ready : own;
}

/* Splits a block: [ cached .......... ]  =>  [ block, bytes ][ cached ]. Without host memory the block
   is not split. */
static void block_split(MemPool *pool, PoolBlock *block, size_t bytes)
{
    PoolBlock *rest = block->bytes > bytes ? calloc(1, sizeof *rest) : NULL;
    if (rest == NULL) {
        return;
    }
    *rest = (PoolBlock){.pool = pool, .address = block->address + bytes,
                        .bytes = block->bytes - bytes};
    BlockInfo front = {.size = bytes, .owner = block, .kind = MEMORY_POOL, .page = PAGE_HUGE};
    BlockInfo back = front;
    back.size = rest->bytes;
    back.owner = rest;
    arena_split(arena_existing(pool->device), block->address, bytes, &front, &back);
    bin_take(block);
    block->bytes = bytes;
    bin_put(pool, block);
    block_cache(rest, block->place);
    pool->blocks++;
}

static PoolBlock *block_reuse(MemPool *pool, size_t bytes, uint32_t stream, int looks, Stream *on)
{
    PoolBlock *block = block_find(pool, bytes, stream, looks);
    if (block != NULL) {
        block_split(pool, block, bytes);
        if (races_on()) {
            race_follow(on, &block->place->order);
        }
        block_uncache(block);
    }
    return block;
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
    *block = (PoolBlock){.pool = pool, .bytes = bytes, .state = POOL_BUSY};
    block->address = arena_take(arena, bytes, PAGE_HUGE, BOOK_POOL, &info);
    if (block->address == 0) {
        free(block);
        return NULL;
    }
    pool->blocks++;
    pool->reserved += bytes;
    return block;
}

static void pool_note_highs(MemPool *pool)
{
    pool->reserved_high = pool->reserved > pool->reserved_high ? pool->reserved
                                                               : pool->reserved_high;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
}

static PoolBlock *pool_take(MemPool *pool, size_t bytes, Stream *on, aclError *status)
{
    *status = ACL_ERROR_RT_INTERNAL_ERROR; /* the status that the runtime gives for an exhausted pool */
    uint32_t stream = stream_id(on);
    PoolBlock *block = block_reuse(pool, bytes, stream, LOOKS_MOST, on);
    if (block == NULL && bytes <= pool->limit) {
        if (bytes > pool->limit - pool->reserved) {
            block = block_reuse(pool, bytes, stream, INT32_MAX, on);
        }
        if (block == NULL && bytes > pool->limit - pool->reserved) {
            pool_trim(pool, pool->limit - bytes);
        }
        if (block == NULL && bytes <= pool->limit - pool->reserved) {
            *status = ACL_ERROR_RT_MEMORY_ALLOCATION;
            block = block_new(pool, bytes);
            if (block == NULL) {
                pool_trim(pool, 0);
                block = block_new(pool, bytes);
            }
        }
    }
    if (block != NULL) {
        pool->used += block->bytes;
        pool_note_highs(pool);
    }
    return block;
}

/* Unlocks the pool. If it is destroyed and has no blocks and no queued frees, retires its slot. */
static void pool_unlock(MemPool *pool)
{
    bool over = pool->destroyed && pool->blocks == 0 && pool->tasks == 0;
    pthread_mutex_unlock(&pool->lock);
    if (over) {
        handle_retire(pool);
    }
}

static void pool_unref(MemPool *const *pool)
{
    if (*pool != NULL) {
        handle_drop(*pool);
    }
}
#define POOL_REF(name) MemPool *name __attribute__((cleanup(pool_unref))) = NULL

/* Gives the live pool of that handle, locked and with a reference; false if there is none. The variable
 * is declared as POOL_REF, so that the end of its scope ends the reference. */
static bool pool_enter(aclrtMemPool handle, MemPool **pool)
{
    if (!handle_follow(handle, HANDLE_MEM_POOL)) {
        return false;
    }
    *pool = handle;
    pthread_mutex_lock(&(*pool)->lock);
    if (!(*pool)->destroyed) {
        return true;
    }
    pthread_mutex_unlock(&(*pool)->lock);
    return false;
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
    MemPool *pool = handle_prepare(HANDLE_MEM_POOL, sizeof *pool);
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
    handle_show(pool);
    return ACL_SUCCESS;
}

/* Destroys the pool. Blocks in use are valid until they are freed; then they are returned to the device. */
aclError sim_aclrtMemPoolDestroy(const aclrtMemPool memPool)
{
    REQUIRE(memPool);
    POOL_REF(pool);
    if (!pool_enter((void *)(uintptr_t)memPool, &pool)) {
        return pool_unknown(__func__, ACL_ERROR_RT_INTERNAL_ERROR, memPool);
    }
    (void)handle_kill(pool);
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
    STREAM_REF(queue);
    TRY(stream_resolve(stream, &queue));
    REQUIRE_RT(size <= SIZE_MAX - UNIT);
    POOL_REF(pool);
    if (!pool_enter(memPool, &pool)) {
        return pool_unknown(__func__, ACL_ERROR_RT_INTERNAL_ERROR, memPool);
    }
    aclError status;
    size_t bytes = (size + UNIT - 1) / UNIT * UNIT;
    PoolBlock *block = pool_take(pool, bytes, queue, &status);
    size_t reserved = pool->reserved, limit = pool->limit;
    int32_t device = pool->device;
    pthread_mutex_unlock(&pool->lock);
    if (block == NULL && arena_existing(device) == NULL) {
        return refusal_tell(__func__, "the pool's device");
    }
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
    FreePlace *place;
    uintptr_t address;
    size_t bytes;
} FreeTask;

static void place_reach(MemPool *pool, FreePlace *place)
{
    if (place->reached) {
        return;
    }
    PoolBlock *block = place->first;
    place->first = NULL;
    for (PoolBlock *each = block; each != NULL; each = each->other) {
        bin_take(each);
    }
    place->reached = true;
    for (; block != NULL; block = block->other) {
        bin_put(pool, block);
    }
    pool_trim(pool, pool->threshold);
}

/* Runs the task of a free: the stream has reached the free. The freed blocks may meanwhile have been
 * returned to the device, or allocated and freed again. */
static aclError free_run(Stream *stream, const void *payload)
{
    const FreeTask *task = payload;
    (void)stream;
    pthread_mutex_lock(&task->pool->lock);
    place_reach(task->pool, task->place);
    pthread_mutex_unlock(&task->pool->lock);
    return ACL_SUCCESS;
}

/* Frees what the task owns. If the task was dropped without running, the free counts as reached, because its stream has
 * dropped all earlier tasks, too. */
static void free_drop(void *payload)
{
    const FreeTask *task = payload;
    pthread_mutex_lock(&task->pool->lock);
    place_reach(task->pool, task->place);
    place_release(task->place);
    task->pool->tasks--;
    pool_unlock(task->pool);
}

/* For the order checker, the free is a write to the whole block, so that all work on the block must be ordered before
   the free: the next user of the block is ordered only after the free. */
static void free_touch(const void *payload, Touch *touch)
{
    const FreeTask *task = payload;
    touch_bytes(touch, (const void *)task->address, task->bytes, TOUCH_WRITE);
    touch_record(touch, &task->place->order);
}

static const TaskClass free_class = {
    .name = "pool free",
    .run = free_run,
    .drop = free_drop,
    .touch = free_touch,
};

static aclError plain_run(Stream *stream, const void *payload)
{
    (void)stream;
    (void)memory_free("aclrtMemPoolFreeAsync", *(void *const *)payload);
    return ACL_SUCCESS;
}

static void plain_touch(const void *payload, Touch *touch)
{
    Memory memory;
    if (memory_find(*(void *const *)payload, &memory)) {
        touch_bytes(touch, (const void *)memory.base, memory.bytes, TOUCH_WRITE);
    }
}

static const TaskClass plain_class = {.name = "free", .run = plain_run, .touch = plain_touch};

/* Undoes a free whose task could not be queued: the block is busy again, unless another call has
 * allocated it in the meantime. */
static void free_undo(MemPool *pool, PoolBlock *block, FreePlace *place)
{
    pthread_mutex_lock(&pool->lock);
    if (block->state == POOL_CACHED && block->place == place) {
        block_uncache(block);
        pool->used += block->bytes;
    }
    place_release(place);
    pool->tasks--;
    pool_unlock(pool);
}

/* First step of a free: makes the block CACHED; 107000 if it was freed already. The lock is held. */
static aclError free_begin(const char *function, PoolBlock *block, FreePlace *place)
{
    if (block->state != POOL_BUSY) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "ptr = %p was freed already",
                         (void *)block->address);
    }
    block_cache(block, place);
    block->pool->used -= block->bytes;
    block->pool->tasks++;
    return ACL_SUCCESS;
}

static aclError block_free_async(const char *function, PoolBlock *block, Stream *stream)
{
    MemPool *pool = block->pool;
    FreePlace *place = calloc(1, sizeof *place);
    if (place == NULL) {
        return error_set(function, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no host memory");
    }
    *place = (FreePlace){.users = 1, .stream = stream_id(stream)};
    FreeTask task = {pool, place, block->address, block->bytes};
    pthread_mutex_lock(&pool->lock);
    aclError status = free_begin(function, block, place);
    pthread_mutex_unlock(&pool->lock);
    if (status != ACL_SUCCESS) {
        free(place);
        return status;
    }
    status = stream_submit(stream, &free_class, &task, sizeof task);
    if (status != ACL_SUCCESS) {
        free_undo(pool, block, place);
    }
    return status;
}

aclError sim_aclrtMemPoolFreeAsync(void *ptr, aclrtStream stream)
{
    REQUIRE(ptr);
    if (stream == NULL) {
        return fail(ACL_ERROR_RT_INTERNAL_ERROR, "stream is NULL: memory pools do not support the default stream");
    }
    STREAM_REF(queue);
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
        if (races_on()) {
            race_freed(function, address, block->bytes);
        }
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

/* Sets an attribute of the pool; false if the attribute or its value is refused. The lock is held. */
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

static aclError attribute_do(const char *function, aclrtMemPool handle, aclrtMemPoolAttr attr,
                             bool (*act)(MemPool *, aclrtMemPoolAttr, void *), void *value)
{
    POOL_REF(pool);
    if (!pool_enter(handle, &pool)) {
        return pool_unknown(function, ACL_ERROR_RT_PARAM_INVALID, handle);
    }
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
    POOL_REF(pool);
    if (!pool_enter(memPool, &pool)) {
        return pool_unknown(__func__, ACL_ERROR_RT_INTERNAL_ERROR, memPool);
    }
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
