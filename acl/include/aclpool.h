/* The device-memory pool of the Python package `aclpool`, for C and C++.
 *
 * An extension module calls `aclpool_import()` once, with the GIL, and gets the table of functions.
 * Plain C code, which does not include Python's header, defines ACLPOOL_NO_PYTHON before it includes
 * this file, and gets the table from an extension module.  The caller links no library: it calls
 * everything through the table.
 *
 * Threads: any thread may call any function, with or without the GIL, except the functions marked
 * GIL, which need it.  Several threads may use one stream's arena.  A function marked DRIVER may call
 * the runtime.  So its thread needs a current context, must not be inside a callback of the runtime,
 * and should not hold the GIL, as the call may wait for a stream.  No function throws an exception of
 * C++ or calls Python code.
 *
 * Order: freed memory may be handed out again at once, for work that is queued on the same stream
 * later.  Before a free, the caller must wait for all other users of the memory (other streams, the
 * host), or name other streams by `record_stream`.
 *
 * The functions accept a NULL arena or block: an allocation then returns NULL, a free does nothing.
 * So the results of `arena` and `alloc` need no check before they are passed on.
 *
 * docs/c-api.md says what later versions may change. */
#ifndef ACLPOOL_H
#define ACLPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "acl/acl_rt_allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ACLPOOL_ABI_MAJOR 1     /* a table with another major version cannot be used */
#define ACLPOOL_ABI_MINOR 0     /* incremented whenever a function is appended to the table */
#define ACLPOOL_ABI_VERSION ((ACLPOOL_ABI_MAJOR << 16) | ACLPOOL_ABI_MINOR)
#define ACLPOOL_CAPSULE "acl.pool_capi"

typedef struct AclPool AclPool;             /* the memory of one device: an `acl.Pool` */
typedef struct AclPoolArena AclPoolArena;   /* a pool's memory for one stream; ACL's aclrtAllocator */

/* A block that was handed out.  It has further fields, which are private: do not copy or compare blocks. */
typedef struct AclPoolBlock {
    void *address;      /* address on the device, a multiple of 512 */
    size_t bytes;       /* usable bytes: at least as many as were asked for */
} AclPoolBlock;

/* The statistics of a pool.  The caller sets `size` to sizeof(AclPoolStats).  The pool fills the fields that it
 * knows, up to this size, and sets `size` to the bytes that it filled.  The numbers of one stream are of one moment;
 * those of different streams may be of different moments. */
typedef struct AclPoolStats {
    uint32_t size;
    uint32_t streams;           /* number of streams that have an arena */
    uint64_t allocated;         /* bytes of live blocks */
    uint64_t allocated_peak;    /* sum of the streams' own peaks of `allocated` */
    uint64_t requested;         /* bytes that were asked for, of live blocks */
    uint64_t requested_peak;    /* sum of the streams' own peaks of `requested` */
    uint64_t reserved;          /* bytes of device memory that the pool holds */
    uint64_t reserved_peak;     /* highest `reserved` */
    uint64_t spare;             /* bytes of `reserved` that belong to no stream's arena */
    uint64_t limit;             /* most bytes that may be reserved; 0: no limit */
    uint64_t live_blocks;       /* number of live blocks */
    uint64_t allocations;       /* number of successful allocations */
    uint64_t frees;             /* number of frees */
    uint64_t slow;              /* allocations that called the driver or waited */
    uint64_t failures;          /* allocations that failed */
} AclPoolStats;

enum {
    ACLPOOL_TRIM_WAIT = 1,      /* wait for busy streams; without it only idle streams give memory back */
    ACLPOOL_TRIM_DRAINED = 2    /* the caller knows that the framework's task queue is empty */
};

typedef struct AclPoolApi {
    uint32_t size;              /* bytes of the table, this field included */
    uint32_t version;           /* ACLPOOL_ABI_VERSION of the package */

    /* GIL.  Returns the pool of an `acl.Pool`; NULL with an exception set if it fails.  The caller must keep the
     * object alive. */
    AclPool *(*pool_of)(void *object);
    /* GIL.  Returns a new `acl.Buffer` with a live block, which it frees at its end.  `pool` is the `acl.Pool`
     * object, `size` the bytes that the user asked for.  If it fails, it returns NULL with an exception set, and the
     * caller keeps the block. */
    void *(*buffer_of)(void *pool, AclPoolArena *arena, AclPoolBlock *block, size_t size);
    /* Returns the device's number. */
    int32_t (*device)(const AclPool *pool);
    /* Returns the bytes that an input or output of `size` bytes needs on this chip, padding included. */
    size_t (*padded)(const AclPool *pool, size_t size);

    /* Returns the arena of a stream, which the first call makes; a NULL stream is the default stream.  The arena is
     * valid until the stream is destroyed.  Its blocks may be freed later, but for a new stream call `arena` again,
     * even if the handle is the same.  Returns NULL if there is no host memory. */
    AclPoolArena *(*arena)(AclPool *pool, aclrtStream stream);
    /* DRIVER.  After `stream_register` ACL allocates from the pool for all that it runs on the stream;
     * `stream_unregister` ends that.  A pool with `debug` guards these blocks. */
    aclError (*stream_register)(AclPool *pool, aclrtStream stream);
    aclError (*stream_unregister)(AclPool *pool, aclrtStream stream);

    /* DRIVER.  Returns a block, or NULL if there is no memory.  Size 0 counts as 1. */
    AclPoolBlock *(*alloc)(AclPoolArena *arena, size_t size);
    /* Returns a block if that needs no driver call; otherwise NULL, which does not mean that there is no memory:
     * call `alloc`. */
    AclPoolBlock *(*try_alloc)(AclPoolArena *arena, size_t size);
    /* Frees a block of the arena.  Returns 0 if it is not a live block of the arena; the pool counts such calls. */
    int (*free)(AclPoolArena *arena, AclPoolBlock *block);
    /* Notes that work on another stream uses the block: after its free the block is not used again before the work
     * is complete that was queued on that stream before the free.  Returns 0 if there is no host memory, or if it is
     * not a live block. */
    int (*record_stream)(AclPoolArena *arena, AclPoolBlock *block, aclrtStream stream);

    /* DRIVER.  Gives free memory back until only `to` bytes are reserved.  Returns the bytes given back. */
    size_t (*trim)(AclPool *pool, size_t to, uint32_t flags);
    void (*stats)(AclPool *pool, AclPoolStats *stats);
    /* Returns 0, or the number of a broken invariant.  No other thread may use the pool during the call. */
    uint32_t (*check)(AclPool *pool);
} AclPoolApi;

/* True if a table has a function, `member`, that a later minor version appended. */
#define ACLPOOL_HAS(api, member) \
    ((api)->size >= offsetof(AclPoolApi, member) + sizeof((api)->member))

/* Returns 1 if all functions of this header can be called through a table, else 0. */
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

/* Allocates a block for an input or output of `size` bytes, padded as by the runtime's own allocator. */
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

/* GIL.  Returns the table, or NULL with an ImportError set.  Finds the package even if `import acl` would find CANN's
 * own module. */
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
