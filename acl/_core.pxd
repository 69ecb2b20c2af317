"""The block allocator: its structs, its invariants and its C interface.

Glossary
    pool      one device's memory: a limit, a source of frames and an arena for each stream
    arena     what ACL is given as `aclrtAllocator`: the blocks of one stream, behind one lock
    range     reserved addresses of an arena, cut into pages; small blocks have ranges of their own
    page      `granule` bytes of a range; a frame backs it or it is missing
    frame     physical memory of one page
    view      a page where a frame is mapped; one of a frame's views holds it
    shadow    a view whose page counts as missing; its frame backs another page of the same arena
    recall    to let a shadow hold its frame again, which is free at its other place: no driver call
    segment   a range that one aclrtMalloc backs whole, where the driver has no virtual memory
    block     a piece of a range: live, free, cached, a hole, moving, waiting or void
    nap       the record of a live block that is asleep: some of its pages have no memory
    void      free addresses in a page that has no memory, as the blocks around them are asleep
    hole      a block of missing pages
    bin       the free blocks of one class of sizes
    cache     the free blocks of one exact size, not coalesced, not binned

Invariants (`arena_check` returns the number of the first one that is broken)
    I1   contiguity   b.next.addr == b.addr + b.size and b.next.prev == b; the blocks of a range
                      start at its base and their sizes sum to its bytes
    I2   coalesced    no two neighbours are both FREE, nor both HOLE
    I3   binned       b is in exactly one bin, that of its size  <=>  b.state == FREE;
                      a bit of a bin's maps is set  <=>  the bin is not empty
    I4   cached       b is in cache[b.size / 512]  <=>  b.state == CACHED; then the byte of its size
                      is set in `arena.cached`
    I5   alignment    addr and size are multiples of 512; those of a HOLE, of the granule
    I6   backing      a page is backed (its view holds its frame)  <=>  no HOLE covers it, for
                      pages without MOVING blocks; but for pages that sleep (I15)
    I7   accounting   live == sum of LIVE sizes; requested == sum of what was asked for them;
                      bytes and blocks of each tag likewise
    I8   pages        arena.pages == pages that are backed, over its ranges, while nothing is MOVING
    I9   holes        the list of holes of a kind holds each HOLE of that kind once
    I10  order        a block is handed out only to work that its arena's stream runs after all
                      work queued before the block was freed; one that must wait for other streams
                      too is WAITING, and its `requested` is the number of its waiting Uses
    I11  source       source.reserved == bytes of frames and segments, mapped or spare
    I12  peaks        live <= live_peak, requested <= requested_peak
    I13  views        f.holder is in the list f.views; v is in v.frame's list once, and its page's
                      entry is v; all views of a frame lie in one arena, and so did the search
                      that f.stamp is of; shadows == views that hold nothing, if nothing is MOVING;
                      v.mapped of a view that is still to be unmapped has a holder in this arena
    I14  old views    a view is unmapped only if its arena's stream was seen complete after the view
                      last held its frame (v.vacated < arena.rested): until then work may use it
    I15  sleep        a page that is not backed, and no hole, lies in blocks that are asleep (LIVE
                      and BLOCK_ASLEEP) or VOID; VOID lies in such pages only, but while a turn is
                      under way; asleep == sum of the sizes of blocks that are asleep, each of which
                      has one Nap

Lock order: an arena's lock, the source's, the pool's, and that of the list of pools are leaves.  A
thread that holds one of them takes no other, calls no driver function, never waits for a stream.
"""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

from acl.bind.generated._libacl cimport (
    aclError, aclmdlRI, aclmdlRICaptureStatus, aclrtAllocator, aclrtAllocatorAddr,
    aclrtAllocatorBlock, aclrtContext, aclrtDrvMemHandle, aclrtEvent, aclrtEventRecordedStatus,
    aclrtMemAttr, aclrtMemMallocPolicy, aclrtPhysicalMemProp, aclrtStream, aclrtStreamStatus,
)
from acl.core._events cimport Ring
from acl.core._lock cimport BiasedLock, SpinLock

cdef enum:
    UNIT_SHIFT = 9              # sizes are counted in units of 512 bytes
    UNIT = 512
    CACHE_UNITS = 1024           # up to 512 KiB a block is small: cached, in a range of its kind
    CACHE_SIZES = 1025          # CACHE_UNITS + 1: places by size / 512
    BIN_SHIFT = 5               # 32 bins for each power of two
    MAP_SHIFT = 6               # 64 bins in a word of a map
    BINS = 1152                 # of each kind: 36 groups of them
    BIN_LISTS = 2304            # 2 BINS: of both kinds
    BIN_WORDS = 36              # BIN_LISTS >> MAP_SHIFT
    MAX_RANGES = 65535          # of an arena: Block.range has 16 bits
    FIRST_RANGES = 8            # places in its first table; each further table has twice as many
    RANGE_TABLES = 14
    MAX_ARENAS = 1 << 20        # of a pool
    FIRST_ARENAS = 64
    ARENA_TABLES = 15
    FOUND_ARENAS = 4096         # places where a stream's arena is looked up first
    MAX_SIZE_BITS = 46          # no device has as many bytes, and no sum of two overflows
    ARENA_SHIFT = 17            # each arena has 2^17 bytes of addresses in the zone
    TAGS = 64
    EVENT_ROOM = 256            # free events that a pool keeps
    PLACES = 64                 # contexts that a pool remembers to have waited for
    NAP_BEDS = 4096             # hash lists of naps, by their blocks' descriptors
    USE_BEDS = 1024             # hash lists of Uses, by their blocks' descriptors
    WAIT_BEDS = 256             # hash lists of queues of waiting Uses, by what they wait for
    SLOW_BUCKETS = 248          # times of slow allocations: 8 buckets for each power of two
    PEAK_STREAMS = 64           # most streams in the composition of a peak
    CLIMBERS = 8                # arenas that climbed last, at which each climb looks
    NEAR_MOST = 12              # these, and some of the other arenas in turn
    HOLDS = 8                   # most arenas in an OomReport
    OOMS = 16                   # OomReports that a pool keeps

cdef enum BlockState:
    BLOCK_UNUSED                # a descriptor in the slab that describes nothing
    BLOCK_LIVE                  # handed out
    BLOCK_CACHED                # free, in the exact-size cache
    BLOCK_FREE                  # free, coalesced, in a bin
    BLOCK_HOLE                  # addresses whose pages are missing
    BLOCK_MOVING                # claimed by a slow allocation, a steal or a trim
    BLOCK_WAITING               # freed, but work that its stream does not order must finish first
    BLOCK_VOID                  # free addresses in a page that sleeps (I15)

cdef enum BlockFlag:
    BLOCK_SHARED = 1            # used on other streams too: it has a Use for each
    BLOCK_COLD = 2              # small, of a size seldom asked for: goes to the bins when freed
    BLOCK_BORN = 4              # its links hold when and where it was handed out (`Birth`)
    BLOCK_SEEN = 8              # its links hold when it was first seen live
    BLOCK_GUARDED = 16          # guard bytes follow it (`_guard`)
    BLOCK_HELD = 32             # freed, and kept by the guard until its bytes are checked
    BLOCK_WIRED = 64            # long-lived, or `arena.wired`, whose free may end an iteration
    BLOCK_ASLEEP = 128          # live, without memory where its pages sleep

cdef enum RangeKind:
    RANGE_LARGE
    RANGE_SMALL
    RANGE_KINDS

cdef enum ArenaMode:            # bits; any but one keeps the arena off its fast path
    ARENA_CAPTURING = 1         # allocations belong to the capture's own arena
    ARENA_WATCHED = 2           # each allocation asks whether the stream is being captured
    ARENA_UNLOADING = 4         # frees wait for a device sync
    ARENA_FORKED = 8            # the child of a fork: refuses everything
    ARENA_CLOSED = 16           # refuses allocations; frees are served
    # Each allocation without a tag gets that of its thread's scope.  The only mode in which the
    # arena may have an owner: a thread without open scopes.
    ARENA_TAGGED = 32
    ARENA_RECORDED = 64         # each allocation and each free is noted (`_record`)

# The addresses of all arenas and of all descriptors of the process. One variable of `_core`;
# `_bins` reserves both stretches at the first arena. Never freed. Slots are counted up with atomic
# stores, so any thread may compare a pointer with them without a lock.
cdef struct Zone:               # reserved addresses, for the whole process: never given back
    char *arenas                # 2^ARENA_SHIFT bytes for each arena
    size_t arenas_made          # slots that have been arenas: each of them answers calls for ever
    char *blocks                # slabs of descriptors, one after another
    size_t blocks_open          # descriptors in the slabs that can be read: zeros if never used

# A link in a doubly linked, circular list. It lies in a Block or is the head of a list in Bins; it
# is freed with that. Under the arena's lock.
cdef struct Links:
    Block *next
    Block *prev

# A part of an address range that has one state. `block_make` takes it from the arena's slab or from
# its spare descriptors; `block_drop` makes it spare. It is never given back to the system while the
# pool lives. Under the arena's lock, but a MOVING block belongs to the thread that claimed it, and
# the holder of a LIVE one may read its address and size.
cdef struct Block:              # 64 bytes, one cache line
    char *addr                  # device address (I1, I5)
    size_t size                 # bytes (I1, I5)
    Links links                 # bins, holes; cache, pieces, spares (next); a Birth while LIVE
    Block *prev                 # lower neighbour in its range, NULL at its start
    Block *next                 # upper neighbour, NULL at its end
    size_t requested            # bytes asked for while LIVE (I7); Uses while WAITING (I10)
    uint8_t state               # BlockState; with the next two it makes one word, `block_word`
    uint8_t flags               # BlockFlag bits
    uint16_t tag                # whose it is, while LIVE; 0 for nobody's
    uint16_t range              # index in arena.ranges
    uint16_t bin                # while FREE (I3); which half it is in tells the kind, always

# One address at which a frame is mapped. `view_make` allocates it before the driver maps the page;
# `view_drop` frees it after the driver has unmapped it. Under the arena's lock.
cdef struct View:
    Frame *frame                # NULL: to be unmapped before its page is used again
    Frame *mapped               # what it still maps then, if that stays in the arena (I13)
    View *next                  # of the same frame; of a list in hand while `frame` is NULL
    uint64_t vacated            # arena.moment when it held for the last time (I14)
    uint32_t page
    uint16_t range              # index in arena.ranges

# The physical memory of one page. `frame_make` asks the driver for it; `frame_return` gives it
# back. Under the lock of the arena that has it mapped; under the source's lock while it is spare;
# without a lock while one thread carries it from one to the other.
cdef struct Frame:
    aclrtDrvMemHandle handle
    Frame *next                 # while it backs nothing, or is in hand
    View *holder                # NULL while it backs nothing (I6)
    View *views                 # all of them (I13)
    View *home                  # the one to go back to
    Block *block                # FREE, and all around it, when the search `stamp` began
    Block *hole                 # around its home, if it is free and away
    uint64_t stamp              # of the last search that found it free
    uint64_t mark               # of the last window that it was counted in
    uint32_t stale              # views still to be unmapped; until then it may not leave its arena

# A piece of pinned host memory that several Chunks share. `pinned_make` allocates it with one user;
# the last `pinned_leave` frees it. `users` is under a lock of its own; the rest is set by the
# thread that fills it.
cdef struct Pinned:             # pinned memory of the host, for bytes of sleeping blocks
    void *host
    size_t size
    size_t used                 # bytes of it that chunks have taken
    uint32_t users              # chunks in it, and the thread that fills it; the last frees it

# A part of the bytes of a sleeping block. Made when a block is put to sleep with its contents;
# freed with its Nap by `naps_reclaim`, where driver calls are allowed. It belongs to its Nap.
cdef struct Chunk:              # bytes of a sleeping block
    Chunk *next
    Pinned *pinned
    char *host                  # where in it
    size_t size

# The sleep record of one live block. `nap_begin` makes it; `nap_end` moves it to `naps_over`, and
# `naps_reclaim` frees it with its chunks. Under the arena's lock.
cdef struct Nap:
    Nap *next                   # of those with the same bed, or of those that are over
    Nap *hand                   # of those that go to sleep or wake together
    Block *block                # NULL when it is over
    Chunk *chunks               # NULL: its bytes are dropped
    bint busy                   # its block is going to sleep, or waking
    bint freed                  # freed while busy; the free is completed when busy ends

# The free blocks and the holes of an arena, by size. Part of the Arena, made and freed with it.
# Under the arena's lock.
cdef struct Bins:               # of large blocks, then of small ones
    uint64_t groups[RANGE_KINDS]  # by RangeKind; bit g: word g of its `maps` is not 0
    uint64_t maps[BIN_WORDS]    # bit s of word w: bin 64 w + s is not empty
    Links heads[BIN_LISTS]      # 2 BINS circular lists; an empty one points to its head (I3)
    Links holes[RANGE_KINDS]    # HOLE blocks of a kind, in no order (I9)

# Reserved addresses of one arena and what is known of each of their pages. `range_add` makes it;
# `range_drop` frees the range of a segment; all others are freed with the pool. Under the arena's
# lock.
cdef struct Range:
    char *base
    size_t bytes
    Block *first                # lowest block
    View **views                # one for each page, NULL where nothing is mapped; not in segments
    uint16_t *starts            # for each page: pages of a window whose hole was filled from here
    uint64_t *marks             # bit p: there is such a window at page p
    uint64_t *freed             # debug: for each page, 1 + `arena.moment` at the last free there
    uint32_t pages
    uint32_t top                # no page from here on was ever mapped
    uint16_t index
    uint8_t kind                # RangeKind
    bint segment

# A stream, other than the arena's own, that uses a block. `block_share` makes it while the block is
# LIVE, a free that must wait makes one too; it is freed with the block's free, or when the other
# stream is done. Under the arena's lock; while `asked` is set, one thread holds its event without
# the lock.
cdef struct Use:                # a SHARED block is used on another stream; a WAITING one was
    Use *next                   # in its bed while LIVE; while WAITING, the next younger one
    Block *block
    aclrtStream stream
    aclrtContext context        # where the stream lives; NULL: not known, or no contexts at all
    aclrtEvent event            # while WAITING: behind the work; NULL: none could be recorded
    uint64_t moment             # while WAITING: `pool.moment` when the block was freed
    bint whole                  # it waits for all work of the context, not for that of a stream
    bint ended                  # the stream is gone: no event can be recorded on it
    bint silent                 # the last query of the event failed
    bint blind                  # while WAITING: no event tells its end, only a wait for the context
    # Waiting Uses of one stream form a queue.  Valid in its oldest Use only:
    Use *last                   # the youngest Use of the queue
    Use *unmarked               # in a framework's arena: the oldest Use that still needs a mark
    Use *after                  # the oldest Use of the next queue; the queues form a ring
    Use *before                 # the oldest Use of the previous queue
    Use *beside                 # the oldest Use of the next queue with the same bed
    bint asked                  # a thread queries its event; no other takes it out meanwhile

cdef enum Rung:                 # of the ladder, in the order in which they are tried
    RUNG_WAITING                # blocks whose events are complete
    RUNG_SPARE                  # frames that the source holds and no arena has
    RUNG_GROW                   # the driver, while reserved stays close to the live peak
    RUNG_OWN                    # whole free pages of this arena: another view of them, or a move
    RUNG_IDLE                   # those of arenas whose streams have nothing in flight
    RUNG_DRIVER                 # the driver, up to the limit
    RUNG_OTHERS                 # whole free pages of other arenas, after a sync of their streams
    RUNG_NONE                   # no frames were needed
    RUNGS

# What an arena has done so far. Part of the Arena. Written under the arena's lock; statistics read
# it without, each count by itself.
cdef struct Counters:           # under the arena's lock
    uint64_t hits               # allocations served by the exact-size cache; see `class_hits`
    uint64_t fits               # by the bins
    uint64_t recalls            # by shadows and bins, without a driver call
    uint64_t slow               # with a driver call
    uint64_t failures           # NULL returned
    uint64_t flushes            # of the cache into the bins
    uint64_t rungs[16]          # slow allocations by the highest Rung that they needed
    uint64_t steals             # pages moved within the arena, or viewed elsewhere in it
    uint64_t donated            # pages given away
    uint64_t syncs
    uint64_t sync_failures      # expired or refused
    uint64_t refused            # foreign pointers and double frees

# What a slow allocation last saw of one arena, or the sums of that over all arenas
# (`Source.shares`). Part of the Arena or the Source. Under the source's lock.
cdef struct Share:              # what an arena had when a climb last looked at it
    size_t live
    size_t requested
    size_t asleep
    size_t peak                 # of `requested`

# The allocator of one stream. `arena_add` makes it in a slot of the zone, on the first use of a
# stream; when its stream has ended, a later stream may inherit it. It goes with its pool; if ACL or
# C code has its address, its first host page stays for ever and refuses calls. All fields are under
# its lock unless they say otherwise.
cdef struct Arena:
    BiasedLock lock
    char *slab                  # block descriptors: reserved addresses of the host
    size_t slab_used            # bytes of it that have ever been descriptors
    size_t slab_blocks          # how many descriptors that is
    size_t live                 # bytes (I7)
    size_t live_peak            # since the last decay tick or reset
    size_t requested            # bytes (I7)
    size_t requested_peak
    Block *spare                # descriptors to use again
    Counters counters
    uint32_t mode               # ArenaMode bits
    bint told                   # ACL or C code has its address, and may call with it for ever
    Pool *pool                  # NULL: the pool is gone, and with it all that stands below
    Block *cache[CACHE_SIZES]   # by size / 512 (I4)
    size_t tag_live[TAGS]       # bytes of each tag but 0
    uint32_t tag_blocks[TAGS]
    uint64_t tags               # bit t: tag t has ever had some
    Bins bins
    char cached[CACHE_SIZES]    # by size / 512: 1 if a block was cached since the last flush (I4)
    Range **ranges              # the newest of `range_tables`
    uint32_t range_count        # slots of `ranges` in use, some of them NULL
    uint32_t range_room         # slots of `ranges`
    Range **range_tables[RANGE_TABLES]  # old ones stay: who reads without the lock may use one
    uint64_t pages              # pages that have a frame, and those of segments (I8)
    size_t slab_ready           # bytes of the slab that may be touched
    size_t past_peak            # live peak before the last decay tick
    size_t past_requested_peak
    uint32_t by_device          # published: the stream is gone; only a device sync orders its work
    bint settled                # the stream is gone, and all its work is complete
    bint offered                # its pages were preallocated: the next stream of any kind gets it
    aclError fault              # a failed task that only a wait of the pool was told of; 0: none
    bint registered             # ACL has its callbacks for `stream`
    Use **uses                  # of LIVE blocks: USE_BEDS lists; NULL until one is shared
    uint64_t guests             # bits of the streams of these Uses (`guest_bit`), and of some past
    Use *waiting                # of WAITING ones: the oldest of the queue that is asked next (I10)
    uint32_t queues             # of Uses that wait for the same stream
    Use *wait_beds[WAIT_BEDS]   # the oldest of each queue, by what it waits for
    uint32_t asking             # threads in a driver call with `stream`: its end waits for them
    uint32_t marking            # threads that record events on streams of Uses: likewise
    bint early                  # frees come before launches: an event at a free tells nothing
    uint32_t climbing           # slow allocations under way: counted, not live yet (I7)
    uint32_t polling            # threads that hold waiting Uses or blocks off all lists (I10)
    uint64_t moment             # number of the last synchronisation that has begun (I14)
    uint64_t rested             # number of the last one that succeeded
    uint64_t search             # searches for a window; frames are stamped with their number
    uint64_t window             # windows priced; frames are marked with their number
    uint64_t shadows            # views that do not hold their frame
    uint64_t away               # frames whose holder is not their home
    View *barred                # views that the driver refused to unmap, to be tried again
    uint64_t borrows            # slow allocations that borrowed pages since it last paid for growth
    uint64_t grown_at           # arena_allocs() when it last paid for growth
    uint64_t vain_flush         # `counters.fits` when a flush last found no place for a block
    uint32_t refusals           # refusals of the driver to map a page twice
    size_t turn_peak            # bytes asked for and live at the peaks of its last turns
    bint recent                 # in `source.climbers`; under the source's lock
    Share share                 # under the source's lock
    uint64_t vain_fits          # `counters.fits` when last asked for pages with none free
    size_t vain_live            # `live` at that time; 0: it had some free
    Block *wired                # LIVE; its free asks whether the iteration is over; NULL: none
    uint64_t wired_at           # arena_allocs() when `wired` was chosen
    size_t staying              # bytes of the other WIRED blocks, which are LIVE and long-lived
    size_t looked               # offset in the slab where the next look for a live block begins
    uint64_t hits_seen          # arena_hits() as last summed, for arena_allocs()
    uint64_t hits_at            # misses when the hits were last summed
    uint64_t emptied            # arena_allocs() at the last iteration's end; 0: none, or pages left
    aclrtStream stream          # NULL: the default stream of `context`
    aclrtContext context        # where the stream lives; NULL: not known, or no contexts at all
    uint32_t role               # ArenaRole
    Arena *owner                # of a capture's arena: that of its stream
    bint owns                   # there is such an arena in use; only while `arena_inherit` looks
    Arena *capture              # the arena of the capture under way
    aclmdlRI graph              # of a capture's arena
    bint released               # of a capture's arena: the graph is gone
    size_t asleep               # bytes of live blocks that are asleep (I15)
    bint turning                # some go to sleep or wake: VOID may lie in pages with memory (I15)
    Nap **naps                  # NAP_BEDS lists; NULL until something sleeps
    Nap *naps_over              # woken, or freed asleep: their copies are to be given back
    uint16_t default_tag        # by which reports name its blocks without a tag; 0: none
    bint named                  # the user chose `default_tag`, so that no model changes it
    uint32_t guard_every        # the guard checks one block in `guard_every`
    uint32_t guard_left         # allocations until the next one that it checks
    void *guard                 # the blocks that the guard holds back
    Ring *ring                  # the last events, while it is recorded
    size_t alarm                # live bytes above which a peak's composition is taken
    uint64_t class_hits[CACHE_SIZES]  # allocations from the cache by size / 512: the hits
    uint32_t class_seen[CACHE_SIZES]  # by size / 512: `counters.fits` when bins last served it
    uint64_t bin_counts[BINS]   # allocations from elsewhere, by the bin of their size
    uint64_t slow_counts[SLOW_BUCKETS]  # slow allocations, by their time
    uint64_t slow_ns            # sum of their times
    uint64_t slow_longest_ns

cdef enum ArenaRole:
    ROLE_STREAM                 # what ACL is given for a stream, and what `pool.alloc` uses
    ROLE_USER                   # where frees come early, `pool.alloc` has an arena of its own
    ROLE_CAPTURE                # private blocks of a captured graph
    ROLE_FRAMEWORK              # a framework with a task queue: its frees come before launches

# The functions of the ACL library that the pool calls, or those of a test. `driver_bind` fills it
# when the pool is made. Part of the Source; read only afterwards, so no lock.
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
    # Has the pools told when a graph is destroyed; NULL: they are never told.
    aclError (*graph_watch)(aclmdlRI graph) noexcept nogil
    aclError (*event_create)(aclrtEvent *event, uint32_t flag) noexcept nogil
    aclError (*event_destroy)(aclrtEvent event) noexcept nogil
    aclError (*event_record)(aclrtEvent event, aclrtStream stream) noexcept nogil
    aclError (*event_query)(aclrtEvent event, aclrtEventRecordedStatus *status) noexcept nogil
    aclError (*context_get)(aclrtContext *context) noexcept nogil   # NULL: it has no contexts
    aclError (*context_set)(aclrtContext context) noexcept nogil

cdef enum Views:
    VIEWS_NEVER
    VIEWS_PAY                   # where shapes repeat, or where moving a page would have to wait
    VIEWS_ALWAYS                # rather than moving any

# What the user chose. Filled by `options_fill`, copied into the Pool when it is made. `limit` and
# `headroom` may be set at any time, with one store; the rest is read only afterwards.
cdef struct PoolOptions:
    int32_t device
    size_t limit                # most bytes of frames and segments; 0: no limit of ours
    size_t headroom             # bytes to leave free on the device
    size_t device_bytes         # all memory that it has; 0: not known
    size_t granule              # bytes of a page
    size_t virtual_bytes        # bytes of a range
    aclrtMemAttr mem_attr       # of frames
    aclrtMemAttr info_attr      # what `headroom` is read from
    int32_t sync_timeout_ms     # longest wait for a stream inside an allocation; never 0
    bint steals                 # pages may move; false: nor are they mapped at two addresses
    uint8_t views               # Views: whether a page may be mapped at several addresses
    bint early_frees            # MAX_RUNTIME_CORE_NUMBER > 1, task queues: free before launch
    bint watches                # each allocation asks whether its stream is being captured
    bint segments               # never use virtual memory
    bint exact_segments         # a large one is as large as its first block
    size_t padding              # bytes that the chip wants behind a user's input or output
    uint32_t guard_every        # one block in so many of a registered stream is guarded; 0: none

# A context, and how far its work is known to be complete. An entry of `Source.places`; the oldest
# makes room for a new one. Under the source's lock.
cdef struct Place:              # a context, and how far its work is known to be complete
    aclrtContext context
    uint64_t rested             # `pool.moment` of the last wait for it that succeeded

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

# The page source: what a pool holds from the driver, and what all its arenas share. Part of the
# Pool. Under its own lock, but for `driver` and `prop`, which are set when the pool is made.
cdef struct Source:             # where frames come from; all but `driver` and `prop` under its lock
    SpinLock lock
    Driver driver
    aclrtPhysicalMemProp prop
    Frame *spare
    size_t spare_bytes
    size_t reserved             # bytes (I11)
    size_t claimed              # of these, bytes that the driver is being asked for right now
    size_t reserved_peak        # most bytes of `reserved` that the driver had given
    size_t joint_peak           # most bytes asked for in all arenas that slow allocations have seen
    Arena *climbers[CLIMBERS]   # those that climbed last, the last one first
    uint32_t climber_count
    uint32_t looked             # where a climb goes on looking at a few of the others
    Share shares                # the sums of what the arenas had when they were last looked at
    uint32_t peak_rest          # new peaks to pass over before the next composition is taken
    uint32_t at_once            # score: from SEEN_OFTEN on streams allocate at once, not in turn
    aclrtEvent events[EVENT_ROOM]  # free events
    uint32_t event_count
    uint64_t moment             # number of the last wait for a context or a framework's queue
    uint64_t drained            # number of the last wait for the queue that succeeded
    Place places[PLACES]
    uint32_t place_count
    uint64_t calls[16]          # by DriverCall
    uint64_t failed[16]         # those that returned an error
    aclError last_error         # of the last failure to get memory
    uint64_t refused[3]         # how often growth was refused, by Refusal
    uint64_t refused_told[3]    # clock's nanoseconds when Python was last notified, by Refusal
    size_t refused_bytes[3]     # bytes asked for at that time

# An open scope of `Pool.tag` in one thread. It lies on the stack of a call or in the Python object
# of the scope, which also unlinks it. Only its thread reads and writes it, so no lock.
cdef struct TagScope:           # while it is open, of one thread
    Pool *pool
    TagScope *outer
    uint16_t tag

cdef enum Stop:                 # bits: what stood in the way of more memory
    STOP_LIMIT = 1
    STOP_HEADROOM = 2
    STOP_DRIVER = 4
    STOP_SYNC = 8               # a stream could not be waited for: busy for too long, or captured
    STOP_TABLE = 16             # the arena has as many ranges as it can have

cdef enum Refusal:              # what refused to let a pool grow
    REFUSAL_LIMIT
    REFUSAL_HEADROOM
    REFUSAL_DRIVER
    REFUSALS

# What one slow allocation tried, and what stopped it. Kept in thread-local variables from
# `attempt_begin` on, and copied into the OomReport of a failure. No lock.
cdef struct Attempt:            # a slow allocation under way in this thread: for the report
    uint32_t tried              # bits, by Rung
    uint32_t stopped            # Stop bits
    aclError status             # what the driver said; 0: nothing that is an error

# What one arena held when an allocation failed. Part of an OomReport.
cdef struct OomHold:            # what an arena holds at that time
    aclrtStream stream
    uint32_t role
    bint donates
    size_t reserved
    size_t live
    size_t free
    size_t largest_free
    size_t whole                # bytes of pages and segments that are free as a whole
    size_t waiting

# Why an allocation failed, and what held the memory then. `oom_note` fills it on the stack and
# copies it into the pool, which keeps the last OOMS. Under the pool's lock.
cdef struct OomReport:          # the last time that the ladder ended in NULL
    uint64_t number             # how many there have been
    size_t size                 # asked for
    aclrtStream stream
    size_t limit
    size_t reserved
    size_t spare                # reserved and backing nothing
    size_t live                 # in all arenas
    size_t free                 # in bins of this arena
    size_t largest_free
    size_t waiting              # bytes of waiting blocks of this arena
    size_t others               # reserved by other arenas
    size_t device_free          # 0 if unknown
    bint capturing
    bint moved                  # whether pages were allowed to move
    uint16_t tag                # of the block that was asked for
    Attempt attempt
    size_t missing              # bytes of memory that the best place lacks
    size_t headroom
    size_t tags[TAGS]           # live bytes of each tag, in all arenas
    OomHold holds[HOLDS]        # HOLDS: this arena first, then those that hold the most
    uint32_t hold_count

# Which events of a pool are recorded, and for how many users. Part of the Pool. Written under the
# pool's lock with the GIL held; arenas read single fields without a lock.
cdef struct Notes:              # which events of a pool are noted; written under the pool's lock
    uint32_t users              # recordings and trackings under way
    uint32_t python             # users that want Python stacks
    uint32_t native             # users that want C stacks
    uint32_t steps              # model executions so far; written with the GIL
    uint32_t recordings         # users that keep events
    size_t capacity             # events of a ring; 0: nothing is recorded

# What one stream held at the joint peak. Part of a Peak.
cdef struct PeakStream:
    aclrtStream stream
    uint32_t role
    size_t live

# The joint peak of live bytes, and what it was made of. Part of the Pool; `peak_note` fills it.
# Under the pool's lock.
cdef struct Peak:               # the joint peak of live bytes, and what it was made of
    uint64_t number             # how often a new one was noted
    uint64_t time               # ticks
    size_t live
    size_t requested
    size_t reserved
    size_t tags[TAGS]           # live bytes by tag; the rest has none
    PeakStream streams[PEAK_STREAMS]  # the largest are not sought: the first with live bytes
    uint32_t stream_count

# The memory of one device. `pool_create` makes it, for a Python Pool or a framework; `pool_destroy`
# frees it once no block is live, no stream is registered and all pages are back. `lock` guards the
# list of arenas, the reports and the peak; `source` has a lock of its own.
cdef struct Pool:
    PoolOptions options
    Source source
    aclrtContext context        # current when the pool was made; NULL: the driver has none
    SpinLock lock               # guards the list of arenas and `oom`
    Arena **arenas              # appended to only; the newest of `arena_tables`
    uint32_t arena_count        # published after the arena and the table
    uint32_t arena_room         # slots of `arenas`
    Arena **arena_tables[ARENA_TABLES]  # old ones stay: who reads without the lock may use one
    uint32_t graphs             # arenas that were made for captures
    Arena *found[FOUND_ARENAS]  # arenas by a hash of their streams, to be compared; some are old
    Pool *next                  # all pools of the process, for the child of a fork
    OomReport oom               # the last one
    OomReport ooms[OOMS]        # it and those before, each at its number modulo OOMS
    bint no_virtual             # the driver said that it has no virtual memory
    bint (*drain)(Pool *pool) noexcept nogil        # empties a framework's queue, then the device
    # A mark in a framework's queue, behind all that is in it; NULL if it cannot be set.
    void *(*mark)(Pool *pool, aclrtStream stream) noexcept nogil
    bint (*mark_done)(void *mark) noexcept nogil    # the stream has come to it
    void (*mark_drop)(void *mark) noexcept nogil
    bint orphan                 # no Python Pool owns it; it is only destroyed if `dropped` is set
    bint dropped                # its Pool went while blocks were live: destroy it once none is
    bint tagging                # new arenas are ARENA_TAGGED
    uint32_t modes              # ArenaMode bits with which new arenas begin; under `lock`
    Notes notes
    Peak peak                   # under `lock`
    uint64_t sleeps             # calls that put blocks to sleep, and woke some; with the GIL
    uint64_t wakes

# A copy of an arena's numbers. `arena_stats` fills what its caller provides, under the arena's
# lock; afterwards it is the caller's.
cdef struct ArenaStats:
    size_t allocated            # bytes of live blocks
    size_t allocated_peak
    size_t requested            # bytes asked for by their users
    size_t requested_peak
    size_t reserved             # bytes of pages and segments
    size_t cached
    size_t free                 # bytes in bins
    size_t largest_free
    size_t waiting
    size_t asleep
    uint64_t live_blocks
    uint64_t frees
    uint64_t holes
    uint64_t ranges
    Counters counters

# Blocks.  `arena_try` makes no driver call and never waits, so it may be called with the GIL; if it
# returns NULL, call `arena_alloc`.  `arena_free` is false if `block` is no live block of the arena.
cdef Block *arena_alloc(Arena *arena, size_t size, uint16_t tag) noexcept nogil
cdef Block *arena_try(Arena *arena, size_t size, uint16_t tag) noexcept nogil
cdef bint arena_free(Arena *arena, Block *block) noexcept nogil

# The addresses in which arenas and descriptors lie; `_bins` opens them.
cdef Zone *core_zone() noexcept nogil
# True if a pointer, which may be any bits, is to an arena: of a pool, or of one that is gone.
cdef bint is_arena(const void *allocator) noexcept nogil
# Counts a call whose allocator or block is none of ours.  Returns NULL.
cdef void *stray_count() noexcept nogil
cdef uint64_t strays_read() noexcept nogil

# Where the thread keeps its innermost scope.  Allocations without a tag in ARENA_TAGGED arenas,
# those through the callbacks among them, get the tag of the innermost scope of their pool.
cdef TagScope **tag_scopes() noexcept nogil
cdef int no_scopes() noexcept nogil             # this thread has none open

# What ACL is given (`aclrtAllocatorSet*ToDesc`), always these four and the arena.
cdef void *on_alloc(aclrtAllocator allocator, size_t size) noexcept nogil
cdef void on_free(aclrtAllocator allocator, aclrtAllocatorBlock block) noexcept nogil
cdef void *on_alloc_advise(aclrtAllocator allocator, size_t size,
                           aclrtAllocatorAddr addr) noexcept nogil
cdef void *on_get_addr(aclrtAllocatorBlock block) noexcept nogil
