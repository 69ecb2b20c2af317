"""The table of `aclpool.h`, for Cython modules. The capsule points to `table`."""

from libc.stdint cimport int32_t, uint32_t, uint64_t

from acl.bind.generated._libacl cimport aclError, aclrtStream

cdef extern from "aclpool.h" nogil:
    """
    #define ACLPOOL_NO_PYTHON
    """
    enum:
        ACLPOOL_ABI_VERSION
        ACLPOOL_TRIM_WAIT
        ACLPOOL_TRIM_DRAINED
    const char *ACLPOOL_CAPSULE

    ctypedef struct AclPool:
        pass

    ctypedef struct AclPoolArena:
        pass

    ctypedef struct AclPoolBlock:
        void *address
        size_t bytes

    ctypedef struct AclPoolStats:
        uint32_t size
        uint32_t streams
        uint64_t allocated
        uint64_t allocated_peak
        uint64_t requested
        uint64_t requested_peak
        uint64_t reserved
        uint64_t reserved_peak
        uint64_t spare
        uint64_t limit
        uint64_t live_blocks
        uint64_t allocations
        uint64_t frees
        uint64_t slow
        uint64_t failures

    ctypedef struct AclPoolApi:
        uint32_t size
        uint32_t version
        AclPool *(*pool_of)(void *object) except NULL
        void *(*buffer_of)(void *pool, AclPoolArena *arena, AclPoolBlock *block,
                           size_t size) except NULL
        int32_t (*device)(const AclPool *pool) noexcept nogil
        size_t (*padded)(const AclPool *pool, size_t size) noexcept nogil
        AclPoolArena *(*arena)(AclPool *pool, aclrtStream stream) noexcept nogil
        aclError (*stream_register)(AclPool *pool, aclrtStream stream) noexcept nogil
        aclError (*stream_unregister)(AclPool *pool, aclrtStream stream) noexcept nogil
        AclPoolBlock *(*alloc)(AclPoolArena *arena, size_t size) noexcept nogil
        AclPoolBlock *(*try_alloc)(AclPoolArena *arena, size_t size) noexcept nogil
        int (*free)(AclPoolArena *arena, AclPoolBlock *block) noexcept nogil
        int (*record_stream)(AclPoolArena *arena, AclPoolBlock *block,
                             aclrtStream stream) noexcept nogil
        size_t (*trim)(AclPool *pool, size_t to, uint32_t flags) noexcept nogil
        void (*stats)(AclPool *pool, AclPoolStats *stats) noexcept nogil
        uint32_t (*check)(AclPool *pool) noexcept nogil

cdef AclPoolApi table
