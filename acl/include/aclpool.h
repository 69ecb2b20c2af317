/* The device-memory pool of the Python package `aclpool`, for C and C++.
 *
 * An extension module calls `aclpool_import()` once, with the GIL, and gets the table of functions.
 * Plain C, without Python's header, is handed the table by somebody who did, and defines
 * ACLPOOL_NO_PYTHON before including this.  Nothing is linked: the table is all there is.
 *
 * Threads: but for the functions marked GIL, any thread may call, with or without the GIL, and one
 * stream's part may serve several threads.  A call marked DRIVER may enter the runtime: the thread
 * needs a current context, must not be inside a callback of the runtime's, and should not hold the
 * GIL, as the call may wait for a stream.  Nothing here throws, or calls back into Python.
 *
 * Order: memory that was freed is handed out again at once, to work that is queued on the same
 * stream.  Whatever else uses it (another stream, the host) must have been waited for before the
 * free, or noted with `record_stream`.
 *
 * NULL for an arena is an allocation that found nothing, or a block that is not there: what `arena`
 * and `alloc` answer may be passed on as it is.
 *
 * What may change, and how a user sees it: docs/c-api.md. */
#ifndef ACLPOOL_H
#define ACLPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "acl/acl_rt_allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ACLPOOL_ABI_MAJOR 1     /* differs: the table cannot be used */
#define ACLPOOL_ABI_MINOR 0     /* grows with each function that is appended */
#define ACLPOOL_ABI_VERSION ((ACLPOOL_ABI_MAJOR << 16) | ACLPOOL_ABI_MINOR)
#define ACLPOOL_CAPSULE "acl.pool_capi"

typedef struct AclPool AclPool;             /* one device's memory: an `acl.Pool` */
typedef struct AclPoolArena AclPoolArena;   /* one stream's part; what ACL gets as aclrtAllocator */

/* A block that is handed out.  The rest of it is the pool's own; do not copy or compare it. */
typedef struct AclPoolBlock {
    void *address;      /* on the device, a multiple of 512 */
    size_t bytes;       /* usable, at least what was asked for */
} AclPoolBlock;

/* `size` is set by the caller to sizeof; the pool fills as much as both know and says how much.
 * Numbers are of one moment for each stream, not for all of them together. */
typedef struct AclPoolStats {
    uint32_t size;
    uint32_t streams;           /* that have a part */
    uint64_t allocated;         /* bytes of live blocks */
    uint64_t allocated_peak;    /* sum of the streams' own peaks */
    uint64_t requested;         /* bytes asked for by those who hold them */
    uint64_t requested_peak;
    uint64_t reserved;          /* bytes of device memory */
    uint64_t reserved_peak;
    uint64_t spare;             /* of these, in no stream's part */
    uint64_t limit;             /* 0: none */
    uint64_t live_blocks;
    uint64_t allocations;
    uint64_t frees;
    uint64_t slow;              /* allocations that called the driver or waited */
    uint64_t failures;          /* those that got nothing */
} AclPoolStats;

enum {
    ACLPOOL_TRIM_WAIT = 1,      /* wait for streams; without it only idle ones give */
    ACLPOOL_TRIM_DRAINED = 2    /* the framework's task queue is empty */
};

typedef struct AclPoolApi {
    uint32_t size;              /* bytes of the table, with this field */
    uint32_t version;           /* ACLPOOL_ABI_VERSION of the package */

    /* GIL.  The pool of an `acl.Pool`; NULL with an exception set.  Keep the object alive. */
    AclPool *(*pool_of)(void *object);
    /* GIL.  A live block as a new `acl.Buffer` that frees it; `object` is the pool's or the
     * stream's, `size` what the user asked for.  NULL with an exception set: the block stays. */
    void *(*buffer_of)(void *pool, AclPoolArena *arena, AclPoolBlock *block, size_t size);
    /* The device's number. */
    int32_t (*device)(const AclPool *pool);
    /* What `size` bytes of input or output need on this chip, padding included. */
    size_t (*padded)(const AclPool *pool, size_t size);

    /* A stream's part, made at the first call; NULL is the default stream.  Valid until the stream
     * is destroyed (then ask again: handles repeat); frees may come later still.  NULL: no memory
     * of the host. */
    AclPoolArena *(*arena)(AclPool *pool, aclrtStream stream);
    /* DRIVER.  Let what ACL runs on the stream take its memory from the pool, and end that.  A pool
     * with `debug` looks at these blocks for errors. */
    aclError (*stream_register)(AclPool *pool, aclrtStream stream);
    aclError (*stream_unregister)(AclPool *pool, aclrtStream stream);

    /* DRIVER.  A block, or NULL: out of memory.  Size 0 is taken for 1. */
    AclPoolBlock *(*alloc)(AclPoolArena *arena, size_t size);
    /* The same if it takes no call of the driver's; NULL says nothing about memory. */
    AclPoolBlock *(*try_alloc)(AclPoolArena *arena, size_t size);
    /* Give a block back to the part that it is of.  0: no live block there; that is counted. */
    int (*free)(AclPoolArena *arena, AclPoolBlock *block);
    /* Work on another stream uses the block: once freed, it waits for what is queued there by then.
     * 0: no memory of the host, or no live block. */
    int (*record_stream)(AclPoolArena *arena, AclPoolBlock *block, aclrtStream stream);

    /* DRIVER.  Give free memory back until `to` bytes stay reserved; says how many bytes went. */
    size_t (*trim)(AclPool *pool, size_t to, uint32_t flags);
    void (*stats)(AclPool *pool, AclPoolStats *stats);
    /* 0, or the number of a broken invariant; nothing else may use the pool meanwhile. */
    uint32_t (*check)(AclPool *pool);
} AclPoolApi;

/* Whether a table has a function that a later minor version appended. */
#define ACLPOOL_HAS(api, member) \
    ((api)->size >= offsetof(AclPoolApi, member) + sizeof((api)->member))

/* Whether this header's functions can be called through a table. */
static inline int aclpool_usable(const AclPoolApi *api)
{
    return api != NULL && api->version >> 16 == ACLPOOL_ABI_MAJOR &&
           api->size >= sizeof(AclPoolApi);
}

static inline void *aclpool_address(const AclPoolBlock *block)
{
    return block->address;
}

static inline size_t aclpool_bytes(const AclPoolBlock *block)
{
    return block->bytes;
}

/* What the runtime's own allocator would hand out for an input or output of that size. */
static inline AclPoolBlock *aclpool_alloc_padded(const AclPoolApi *api, AclPool *pool,
                                                 aclrtStream stream, size_t size)
{
    AclPoolArena *arena = api->arena(pool, stream);
    return arena == NULL ? NULL : api->alloc(arena, api->padded(pool, size));
}

#ifdef __cplusplus
}
#endif

#ifndef ACLPOOL_NO_PYTHON

#include <Python.h>

/* The table, or NULL with an ImportError set.  GIL.  Finds the package also where CANN's own module
 * `acl` comes first. */
static inline const AclPoolApi *aclpool_import(void)
{
    PyObject *module = PyImport_ImportModule("aclpool");
    PyObject *capsule = module == NULL ? NULL : PyObject_GetAttrString(module, "pool_capi");
    const AclPoolApi *api = NULL;
    if (capsule != NULL)
        api = (const AclPoolApi *)PyCapsule_GetPointer(capsule, ACLPOOL_CAPSULE);
    if (api != NULL && !aclpool_usable(api)) {
        PyErr_Format(PyExc_ImportError,
                     "aclpool's table has version %u.%u and %u bytes; this module was built for "
                     "%u.%u and %u",
                     (unsigned)(api->version >> 16), (unsigned)(api->version & 0xFFFF),
                     (unsigned)api->size, (unsigned)ACLPOOL_ABI_MAJOR, (unsigned)ACLPOOL_ABI_MINOR,
                     (unsigned)sizeof(AclPoolApi));
        api = NULL;
    }
    Py_XDECREF(capsule);
    Py_XDECREF(module);
    return api;
}

#endif

#endif
