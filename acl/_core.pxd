"""The block allocator: its structs, its invariants and its C interface.

Glossary
    pool      one device's memory: a limit, a page source and an arena for each stream
    arena     what ACL is given as `aclrtAllocator`: the blocks of one stream, behind one lock
    range     reserved addresses of an arena, cut into pages; tiny blocks have ranges of their own
    page      `granule` bytes of a range; a frame backs it or it is missing
    frame     physical memory of one page or of several neighbours, mapped and unmapped whole
    block     a piece of a range: live, free, cached, a hole, or waiting
    hole      a block of missing pages
    bin       the free blocks of one class of sizes
    cache     the free blocks of one exact size, not coalesced, not binned

Invariants (`arena_check` returns the number of the first one that is broken)
    I1   contiguity   b.next.addr == b.addr + b.size and b.next.prev == b; the blocks of a range
                      start at its base and their sizes sum to its bytes
    I2   coalesced    no two neighbours are both FREE, nor both HOLE
    I3   binned       b is in exactly one bin, that of its size  <=>  b.state == FREE;
                      a bit of a bin's maps is set  <=>  the bin is not empty
    I4   cached       b is in cache[b.size / 512]  <=>  b.state == CACHED
    I5   alignment    addr and size are multiples of 512; those of a HOLE, of the granule
    I6   backing      a page has a frame  <=>  no HOLE covers it; frames lie within one range
    I7   accounting   live == sum of LIVE sizes; requested == sum of what was asked for them;
                      live blocks and bytes of each tag likewise
    I8   pages        arena.pages == pages with a frame, summed over its ranges
    I9   holes        the list of holes of a range kind holds each HOLE of it once
    I10  order        a block is handed out only to work queued on its arena's stream after the work
                      that was queued before it was freed; all others wait (WAITING) or synchronise
    I11  source       source.reserved == bytes of frames mapped in arenas + of spare frames
    I12  peaks        live <= live_peak, requested <= requested_peak

Lock order: an arena's lock, the source's lock and the pool's lock are leaves.  A thread that holds
one of them takes no other, calls no driver function, and never waits for a stream.
"""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

from acl._libacl cimport (
    aclError, aclrtAllocator, aclrtAllocatorAddr, aclrtAllocatorBlock, aclrtDrvMemHandle,
    aclrtEvent, aclrtEventRecordedStatus, aclrtMemAttr, aclrtMemMallocPolicy,
    aclrtPhysicalMemProp, aclrtStream, aclrtStreamStatus, aclmdlRI, aclmdlRICaptureStatus,
)
from acl._lock cimport BiasedLock, SpinLock

cdef enum:
    UNIT_SHIFT = 9              # sizes are counted in units of 512 bytes
    UNIT = 512
    CACHE_UNITS = 512           # the cache holds blocks of up to 256 KiB
    TINY_UNITS = 128            # blocks of up to 64 KiB live in ranges of their own
    BIN_SHIFT = 5               # 32 bins for each power of two
    BIN_GROUPS = 36
    BINS = 1152                 # BIN_GROUPS << BIN_SHIFT
    MAX_RANGES = 4096
    MAX_ARENAS = 1024
    TAGS = 64
    MAX_SIZE_BITS = 46          # no device has as many bytes, and no sum of two overflows
    MAX_FRAME_PAGES = 64        # a frame backs at most so many pages

cdef enum BlockState:
    BLOCK_UNUSED                # a descriptor in the slab that describes nothing
    BLOCK_LIVE                  # handed out
    BLOCK_CACHED                # free, in the exact-size cache
    BLOCK_FREE                  # free, coalesced, in a bin
    BLOCK_HOLE                  # addresses whose pages are missing
    BLOCK_WAITING               # freed, but another stream, or a device sync, must finish first
    BLOCK_MOVING                # claimed by a slow allocation, a steal or a trim

cdef enum BlockFlag:
    BLOCK_SHARED = 1            # used on other streams (`block_record_stream`)

cdef enum RangeKind:
    RANGE_LARGE
    RANGE_TINY
    RANGE_KINDS

cdef enum ArenaMode:            # bits; any of them keeps the arena off its fast path
    ARENA_NORMAL = 0
    ARENA_CAPTURING = 1         # allocations belong to the capture's own arena
    ARENA_UNLOADING = 2         # frees wait for a device sync
    ARENA_WATCHED = 4           # each allocation asks the stream whether it is being captured
    ARENA_FORKED = 8            # the child of a fork: refuses everything
    ARENA_CLOSED = 16           # takes frees, gives nothing
    ARENA_CHECKED = 32          # debug level 2 at run time: `arena_check` after each operation

cdef struct Links:
    Block *next
    Block *prev

cdef struct Block:              # 64 bytes, one cache line
    char *addr                  # device address (I1, I5)
    size_t size                 # bytes (I1, I5)
    Links links                 # bin, holes (both ways); cache, waiting, free descriptors (next)
    Block *prev                 # lower neighbour in its range, NULL at its start
    Block *next                 # upper neighbour, NULL at its end
    size_t requested            # bytes asked for, while LIVE (I7)
    uint8_t state               # BlockState
    uint8_t flags               # BlockFlag bits
    uint16_t range              # index in arena.ranges
    uint16_t tag                # whose it is, while LIVE; 0 for nobody's
    uint16_t kind               # RangeKind of its range

cdef struct Frame:
    aclrtDrvMemHandle handle
    Frame *next                 # in the source's spare list
    uint32_t pages              # pages that it backs
    uint32_t page               # index of the first of them, while mapped

cdef struct Bins:
    uint64_t groups             # bit g: word g of `maps` is not 0
    uint32_t maps[36]           # bit s of word g: bin 32 g + s is not empty
    Links heads[1152]           # of circular lists: an empty one points to its head (I3)
    Links holes                 # HOLE blocks of this kind, in no order (I9)

cdef struct Range:
    char *base
    size_t bytes
    Block *first                # lowest block
    Frame **frames              # one for each page; NULL where it is missing (I6)
    uint32_t pages
    uint32_t mapped             # pages that have a frame
    uint16_t index
    uint8_t kind                # RangeKind
    bint segment                # one aclrtMalloc instead of pages: no virtual memory here

cdef struct Waiter:             # a block that other work must finish with first
    Waiter *next
    Block *block
    aclrtEvent event            # NULL: waits for a device sync
    aclrtStream stream          # whose work the event marks

cdef struct Counters:           # all under the arena's lock
    uint64_t hits               # allocations served by the exact-size cache
    uint64_t fits               # by the bins
    uint64_t slow               # with a driver call or a wait
    uint64_t failures           # NULL returned
    uint64_t frees
    uint64_t flushes            # of the cache into the bins
    uint64_t rungs[16]          # times a rung of the ladder (Rung) served
    uint64_t steals             # pages moved within the arena
    uint64_t donated            # pages given to other arenas
    uint64_t syncs
    uint64_t sync_timeouts
    uint64_t refused            # foreign pointers and double frees

cdef struct Arena:
    BiasedLock lock
    char *slab                  # block descriptors: reserved address space of the host
    size_t slab_used            # bytes of it that have ever been descriptors
    size_t live                 # bytes (I7)
    size_t live_peak
    size_t requested            # bytes (I7)
    size_t requested_peak
    Block *spare                # descriptors to use again
    Counters counters
    Block *cache[513]           # CACHE_UNITS + 1
    size_t tag_live[64]         # bytes of each tag but 0
    uint32_t tag_blocks[64]
    Bins bins[2]                # RANGE_KINDS
    Range *ranges[4096]         # MAX_RANGES
    uint32_t range_count
    uint64_t pages              # pages that have a frame (I8)
    size_t slab_ready           # bytes of the slab that may be touched
    size_t slab_bytes
    uint32_t mode               # ArenaMode bits, under the lock
    bint donates                # false: a framework's task queue frees early; pages stay
    Waiter *waiting
    Pool *pool
    aclrtStream stream          # NULL: the context's default stream
    Arena *owner                # of a capture's arena: the arena of its stream
    Arena *captures             # arenas of captures on this stream
    Arena *capture_next
    aclmdlRI graph              # of a capture's arena
    bint registered
    bint streamless             # the stream is gone: only a device sync orders
    size_t window_peak          # live peak since the last decay tick

cdef struct Driver:
    aclError (*reserve)(void **addr, size_t size, size_t alignment, void *expect,
                        uint64_t flags) noexcept nogil
    aclError (*release)(void *addr) noexcept nogil
    aclError (*physical)(aclrtDrvMemHandle *handle, size_t size, const aclrtPhysicalMemProp *prop,
                         uint64_t flags) noexcept nogil
    aclError (*free_physical)(aclrtDrvMemHandle handle) noexcept nogil
    aclError (*map)(void *addr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                    uint64_t flags) noexcept nogil
    aclError (*unmap)(void *addr) noexcept nogil
    aclError (*malloc)(void **addr, size_t size, aclrtMemMallocPolicy policy) noexcept nogil
    aclError (*free)(void *addr) noexcept nogil
    aclError (*sync)(aclrtStream stream, int32_t timeout_ms) noexcept nogil
    aclError (*sync_device)(int32_t timeout_ms) noexcept nogil
    aclError (*query)(aclrtStream stream, aclrtStreamStatus *status) noexcept nogil
    aclError (*mem_info)(aclrtMemAttr attr, size_t *free, size_t *total) noexcept nogil
    aclError (*capture_info)(aclrtStream stream, aclmdlRICaptureStatus *status,
                             aclmdlRI *graph) noexcept nogil
    aclError (*event_create)(aclrtEvent *event, uint32_t flag) noexcept nogil
    aclError (*event_destroy)(aclrtEvent event) noexcept nogil
    aclError (*event_record)(aclrtEvent event, aclrtStream stream) noexcept nogil
    aclError (*event_query)(aclrtEvent event, aclrtEventRecordedStatus *status) noexcept nogil

cdef struct PoolOptions:
    int32_t device
    size_t limit                # bytes of frames and segments, 0: no limit of ours
    size_t headroom             # bytes to leave free on the device
    size_t granule              # bytes of a page
    size_t virtual_bytes        # bytes of a range
    aclrtMemAttr info_attr      # what `headroom` is read from
    int32_t sync_timeout_ms     # longest wait for a stream inside an allocation; never 0
    bint steals                 # pages may move
    bint early_frees            # MAX_RUNTIME_CORE_NUMBER > 1: frees come before launches
    bint segments               # never use virtual memory

cdef struct Source:             # where frames come from; its fields are under its lock
    SpinLock lock
    Driver driver
    aclrtPhysicalMemProp prop
    Frame *spare
    size_t spare_bytes
    size_t reserved             # bytes (I11)
    size_t reserved_peak
    size_t joint_peak           # live bytes of all arenas, as seen by slow allocations
    aclrtEvent *events          # free events
    uint32_t event_count
    uint32_t event_room
    uint64_t calls[16]          # driver calls by DriverCall
    uint64_t failures           # driver calls that failed

cdef enum DriverCall:
    CALL_RESERVE
    CALL_RELEASE
    CALL_PHYSICAL
    CALL_FREE_PHYSICAL
    CALL_MAP
    CALL_UNMAP
    CALL_MALLOC
    CALL_FREE
    CALL_SYNC
    CALL_QUERY
    CALL_MEM_INFO
    CALL_CAPTURE_INFO
    CALL_EVENT
    CALLS

cdef struct Pool:
    PoolOptions options
    Source source
    SpinLock lock               # guards changes of the list of arenas
    Arena *arenas[1024]         # MAX_ARENAS; only ever appended to
    uint32_t arena_count
    Pool *next                  # all pools of the process, for fork
    int32_t pid
    bint has_virtual            # false once the driver said that it has no virtual memory

cdef struct ArenaStats:
    size_t allocated            # bytes of live blocks
    size_t allocated_peak
    size_t requested            # bytes asked for by their users
    size_t requested_peak
    size_t reserved             # bytes of pages and segments
    size_t cached
    size_t free                 # bytes in bins
    size_t largest_free
    uint64_t live_blocks
    uint64_t waiting            # blocks
    uint64_t holes
    uint64_t ranges
    Counters counters

# Pools and arenas. Statuses are ACL's; nothing here takes the GIL or touches a Python object.
cdef Pool *pool_create(const PoolOptions *options, const Driver *driver) noexcept nogil
cdef aclError pool_destroy(Pool *pool) noexcept nogil
cdef Arena *pool_arena(Pool *pool, aclrtStream stream) noexcept nogil
cdef void driver_bind(Driver *driver) noexcept nogil

# Blocks.
cdef Block *arena_alloc(Arena *arena, size_t size, uint16_t tag) noexcept nogil
cdef bint arena_free(Arena *arena, Block *block) noexcept nogil
cdef void arena_stats(Arena *arena, ArenaStats *stats) noexcept nogil

# What ACL is given (`aclrtAllocatorSet*ToDesc`), always these four and the arena.
cdef void *on_alloc(aclrtAllocator allocator, size_t size) noexcept nogil
cdef void on_free(aclrtAllocator allocator, aclrtAllocatorBlock block) noexcept nogil
cdef void *on_alloc_advise(aclrtAllocator allocator, size_t size,
                           aclrtAllocatorAddr addr) noexcept nogil
cdef void *on_get_addr(aclrtAllocatorBlock block) noexcept nogil
