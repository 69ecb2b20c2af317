"""The structs, constants and invariants of the block allocator.  There are no functions here.

Glossary (all words: docs/glossary.md).  A name in brackets is the word's name in the code.
    pool      the memory of one device: a limit, a page source, and an arena for each stream
    arena     the allocator state of one stream, behind one lock; its address is the
              `aclrtAllocator` that ACL gets
    range     reserved addresses of an arena, divided into pages; small blocks have their own ranges
    page      `granule` bytes of a range; if a frame backs the page, it has memory
    frame     the physical memory of one page
    mapping   [View] one address at which a frame is mapped
    active mapping    [holder] the mapping of a frame that blocks use; a frame has at most one
    inactive mapping  [shadow] the driver still has the mapping, but its page counts as missing
    reactivate        [recall] to make an inactive mapping active again, while its frame is free;
                      this needs no driver call
    segment   a range that one aclrtMalloc backs as a whole, if the driver has no virtual memory
    block     a contiguous part of a range with one state: see BlockState
    hole      a block of missing pages, which are pages without memory
    sleep record      [Nap] the record of a live block that is asleep: some of its pages are missing
    free asleep       [VOID] free addresses in a missing page whose other blocks are asleep
    bin       a list of the free blocks of one class of sizes
    cache     lists of free small blocks, one for each exact size; these blocks are not coalesced

Invariants (`arena_check` and `pool_check` return the number of the first one that is broken)
    I1   contiguity   b.next.addr == b.addr + b.size and b.next.prev == b; the blocks of a range
                      start at its base and their sizes sum to its bytes
    I2   coalesced    no two neighbours are both FREE, nor both HOLE
    I3   binned       b is in exactly one bin, that of its size  <=>  b.state == FREE;
                      the bit of a bin in `Bins.maps` is set  <=>  the bin is not empty
    I4   cached       b is in cache[b.size / 512]  <=>  b.state == CACHED; if a block is in this
                      list, arena.cached[b.size / 512] is 1
    I5   alignment    addr and size are multiples of 512; if b is a HOLE, of the page size
    I6   backing      a page has an active mapping  <=>  no HOLE covers it; this does not apply to
                      pages with MOVING blocks, nor to missing pages of sleeping blocks (I15)
    I7   accounting   live == sum of the sizes of LIVE blocks; requested == sum of the bytes that
                      callers asked for; tag_live and tag_blocks are such sums for each tag; if tag
                      t has a budget, pool.budget[t].live == sum of tag_live[t] of all arenas
    I8   pages        arena.pages == pages with memory in all its ranges, while no block is MOVING
    I9   holes        each HOLE is once in the list of holes of its RangeKind
    I10  order        new work may use a block only after all work that the arena's stream had
                      queued when the block was freed; while other streams may still use a freed
                      block, it is WAITING, and its `requested` is the number of its Uses
    I11  source       source.reserved == bytes of frames and segments, mapped or spare
    I12  peaks        live <= live_peak, requested <= requested_peak
    I13  mappings     a frame's active mapping is in its list `views`; a mapping is once in its
                      frame's list, and in `Range.views` at its page; all mappings of a frame lie in
                      one arena, and `Frame.stamp` is the number of a search in that arena; shadows
                      == number of inactive mappings, if no block is MOVING; if a retired mapping
                      has a frame `mapped`, that frame has an active mapping in this arena
    I14  unmapping    a mapping is unmapped only if its arena's stream was seen complete after the
                      mapping was last active (v.vacated < maps.rested), as queued work may use its
                      address until then; neither number exceeds `maps.moment`, the number of the
                      last synchronisation that began.  `arena_check` checks this last condition;
                      debug builds check v.vacated < maps.rested at each unmap
    I15  sleep        if a page is missing and is not in a HOLE, each block in it is asleep (LIVE
                      and BLOCK_ASLEEP), VOID or MOVING; VOID blocks lie in such pages only, except
                      during a sleep batch; asleep == sum of the sizes of blocks that are asleep,
                      each of which has one Nap

Lock order: a thread that holds the lock of an arena, of a source, of a pool or of the list of pools
calls no driver function, never waits for a stream and takes no other lock.  One exception: a thread
that holds the lock of the list of pools may take the lock of an arena.
"""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

from acl.bind.generated._libacl cimport (
    aclError, aclmdlRI, aclmdlRICaptureStatus, aclrtContext, aclrtDrvMemHandle, aclrtEvent,
    aclrtEventRecordedStatus, aclrtMemAttr, aclrtMemMallocPolicy, aclrtPhysicalMemProp, aclrtStream,
    aclrtStreamStatus,
)
from acl.core._events cimport Ring
from acl.core._lock cimport BiasedLock, SpinLock

cdef extern from *:
    """
    #ifndef ACL_POOL_DEBUG
    #define ACL_POOL_DEBUG 0
    #endif
    """
    enum:
        # 0: no invariant is checked; 1: I14 is checked; 2: also `arena_check` after each operation
        DEBUG_LEVEL "ACL_POOL_DEBUG"

# The C compiler makes enum constants signed. Code that needs an unsigned one writes <uint32_t>
# TAGS.
cdef enum:
    UNIT_SHIFT = 9              # sizes are counted in units of 512 bytes, which is 1 << UNIT_SHIFT
    UNIT = 512
    CACHE_UNITS = 1024          # blocks of up to 1024 units (512 KiB) are small: see RANGE_SMALL
    CACHE_SIZES = 1025          # CACHE_UNITS + 1: entries of an array that is indexed by size / 512
    BIN_SHIFT = 5               # there are 1 << BIN_SHIFT = 32 bins for each power of two
    MAP_SHIFT = 6               # a word of a bit map covers 1 << MAP_SHIFT = 64 bins
    BINS = 1152                 # bins of each RangeKind: 36 groups of 32
    BIN_LISTS = 2304            # 2 * BINS: the bins of both RangeKinds
    BIN_WORDS = 36              # words of the bit map of all bins: BIN_LISTS >> MAP_SHIFT
    MAX_RANGES = 65535          # limit of the ranges of an arena, as Block.range has 16 bits
    FIRST_RANGES = 8  # slots of an arena's first table of ranges; the next one has twice as many
    RANGE_TABLES = 14  # enough tables of ranges to double FIRST_RANGES slots up to MAX_RANGES
    MAX_ARENAS = 1 << 20        # limit of the arenas of a pool
    FIRST_ARENAS = 64  # slots of a pool's first table of arenas; the next one has twice as many
    ARENA_TABLES = 15  # enough tables of arenas to double FIRST_ARENAS slots up to MAX_ARENAS
    FOUND_ARENAS = 4096  # entries of the hash table `Pool.found`, which finds an arena by stream
    MAX_SIZE_BITS = 46  # sizes are below 2^46 bytes: no device has more, and sums fit 64 bits
    ARENA_SHIFT = 17            # an arena's slot in the zone has 1 << ARENA_SHIFT bytes (128 KiB)
    TAGS = 64                   # tags of a pool; 0: no tag; 63: shared by all names after the 62nd
    EVENT_ROOM = 256            # a pool keeps up to 256 driver events that are not in use
    PLACES = 64                 # a pool notes the last completed wait for up to 64 contexts
    NAP_BEDS = 4096  # buckets of the hash table of Naps; the key is the block's descriptor
    USE_BEDS = 1024  # buckets of the hash table of Uses; the key is the block's descriptor
    WAIT_BEDS = 256  # buckets of the hash table of queues of Uses; key: stream, context, `blind`
    SLOW_BUCKETS = 248  # histogram of durations: 8 buckets for each power of two nanoseconds
    PEAK_STREAMS = 64           # a Peak lists up to 64 streams
    CLIMBERS = 8                # a pool notes the arenas of its latest slow allocations: up to 8
    NEAR_MOST = 12              # entries of `Climb.near`: CLIMBERS, and 4 arenas in rotation
    HOLDS = 8                   # an OomReport lists up to 8 arenas
    OOMS = 16                   # number of OomReports that a pool keeps

cdef enum BlockState:
    BLOCK_UNUSED                # the descriptor describes no block
    BLOCK_LIVE                  # handed out to a caller and not freed yet
    BLOCK_CACHED                # free, in the cache
    BLOCK_FREE                  # free, in a bin, and joined with its free neighbours
    BLOCK_HOLE                  # addresses of missing pages
    BLOCK_MOVING  # one thread has claimed it: in a slow allocation, a trim or a sleep batch
    BLOCK_WAITING               # pending free: work of other streams or of a model must end first
    BLOCK_VOID                  # free asleep: free addresses in a missing page (I15)

cdef enum BlockFlag:            # each value is a bit of `Block.flags`
    BLOCK_SHARED = 1            # other streams were given the block too: see `block_share`
    BLOCK_COLD = 2  # small, but of a size that is rarely requested: its free skips the cache
    BLOCK_BORN = 4  # tracked: its links hold a `Birth` (time and stacks of the allocation)
    BLOCK_SEEN = 8              # its links hold the time at which `pool_see` first found it live
    BLOCK_GUARDED = 16          # guard bytes follow the caller's bytes (`_guard`)
    BLOCK_HELD = 32  # in quarantine: the caller has freed it, its bytes are to be checked
    BLOCK_WIRED = 64            # long-lived, or the sentinel: its free updates `Arena.iteration`
    # live and asleep: its pages have no memory, except pages that an awake block uses too
    BLOCK_ASLEEP = 128

cdef enum RangeKind:
    RANGE_LARGE                 # for large blocks, and some of 64 to 512 KiB (MEDIUM_UNITS)
    RANGE_SMALL                 # for blocks of up to CACHE_UNITS units; their frees fill the cache
    RANGE_KINDS                 # the number of kinds

cdef enum ArenaMode:            # bits; each of them except ARENA_TAGGED turns the fast path off
    ARENA_CAPTURING = 1         # the stream is captured: allocations use the capture's own arena
    ARENA_WATCHED = 2           # each allocation asks the driver if the stream is being captured
    ARENA_UNLOADING = 4         # a model is unloaded: frees wait until the context is synchronised
    ARENA_FORKED = 8  # in a fork's child: allocations are refused, and frees never complete
    ARENA_CLOSED = 16           # allocations are refused, but frees are served
    # If a thread has an open scope, its allocations without a tag get the scope's tag. So while
    # this bit is set, only a thread without an open scope may own the arena's lock. While any other
    # bit is set, no thread may own it.
    ARENA_TAGGED = 32
    ARENA_RECORDED = 64         # each allocation and each free writes an event (`_record`)

# The host addresses of all arenas and of all block descriptors of the process. `_core` has the only
# Zone. `_bins` reserves the addresses when the first arena is made; they are never freed. The two
# counts only grow, and each is stored as one word. So any thread may test without a lock if an
# address is that of an arena or descriptor.
cdef struct Zone:
    char *arenas                # slots of 2^ARENA_SHIFT bytes, one for each arena
    size_t arenas_made  # number of slots that are or were arenas; these stay readable for ever
    char *blocks                # slabs of descriptors, one slab after another
    size_t blocks_open  # number of descriptors in readable slabs; an unused one reads as zeros

# An element of a doubly linked, circular list. It lies in a Block, or it is the head of a list in
# Bins. Under the arena's lock.
cdef struct Links:
    Block *next
    Block *prev

# A part of an address range that has one state. `block_make` takes a descriptor from the arena's
# list of unused ones or from its slab; `block_drop` puts it back into that list. Descriptors are
# freed with the pool. Under the arena's lock, with two exceptions: a MOVING block belongs to the
# thread that claimed it, and the caller that has a LIVE block may read its address and size.
cdef struct Block:              # 64 bytes, one cache line
    char *addr                  # device address (I1, I5)
    size_t size                 # bytes (I1, I5)
    # FREE, HOLE: in a list of Bins. CACHED, MOVING, UNUSED: only `next` is valid, and links a list
    # of such blocks. LIVE: other data, see BLOCK_BORN and BLOCK_SEEN.
    Links links
    Block *prev                 # lower neighbour in its range; NULL: it is the lowest block
    Block *next                 # upper neighbour in its range; NULL: it is the highest block
    # LIVE: bytes that the caller asked for (I7). WAITING: number of its Uses (I10). MOVING: nonzero
    # if it was a hole, or if its segment has been freed.
    size_t requested
    uint8_t state               # BlockState; `block_word` reads this, `flags` and `tag` as one word
    uint8_t flags               # BlockFlag bits
    uint16_t tag                # LIVE: its tag; 0: none
    uint16_t range              # index in `arena.space.ranges`
    uint16_t bin  # FREE: index of its bin (I3); any state: >= BINS in a range of small blocks

# A mapping: one address at which a frame is mapped. `view_make` makes the record before the driver
# maps the page; `view_drop` frees it after the driver has unmapped it. Under the arena's lock.
cdef struct View:
    Frame *frame  # NULL: the mapping is retired; unmap it before its page is used again
    # valid if retired: the frame that was mapped; NULL: that frame leaves the arena
    Frame *mapped
    # the next mapping in the frame's list; if retired, in a list of retired mappings
    View *next
    uint64_t vacated            # arena.maps.moment when the mapping was last active (I14)
    uint32_t page               # index of the page in the range
    uint16_t range              # index in `arena.space.ranges`

# The physical memory of one page. `frame_make` asks the driver for it; `frame_return` gives it
# back. Under the lock of the arena that has it mapped, or under the source's lock while it is
# spare. No lock is needed while it is in a list that only one thread knows.
cdef struct Frame:
    aclrtDrvMemHandle handle    # the driver's handle
    Frame *next                 # in the list of spare frames, or in a list of one thread
    View *holder                # the active mapping; NULL: the frame backs no page (I6)
    View *views                 # list of all mappings of the frame that are not retired (I13)
    View *home                  # the first mapping: `pages_home` makes it active again
    # valid while `stamp` is the number of the last search: the FREE block that the frame backs
    Block *block
    # valid as `block` is: the HOLE that contains the page of `home`; NULL: no HOLE contains it
    Block *hole
    uint64_t stamp              # number of the last search that found the frame free
    uint64_t mark  # number of the last placement that counted a mapping of this frame as usable
    uint32_t stale              # number of retired mappings of this frame that the driver still has

# Pinned host memory, shared by several Chunks, for the bytes of sleeping blocks. `pinned_make`
# allocates it with one user; the last `pinned_leave` frees it. A lock of `_asleep` guards `users`;
# only the thread that fills the memory writes the other fields.
cdef struct Pinned:
    void *host                  # the address of the memory
    size_t size                 # bytes
    size_t used                 # bytes that chunks have taken
    uint32_t users              # the number of its Chunks, plus 1 while a thread fills it

# A host copy of some bytes of a sleeping block. It is made when the block is put to sleep with its
# contents. `naps_reclaim`, which may call the driver, frees it with its Nap. No lock: only the
# thread that puts the block to sleep, wakes it or frees the Nap uses the Chunk.
cdef struct Chunk:
    Chunk *next                 # the copy of the bytes that follow in the block
    Pinned *pinned
    char *host                  # the address of the copy, in the memory of `pinned`
    size_t size                 # bytes of the copy

# The sleep record of one live block. `nap_begin` makes it; `nap_end` moves it to `naps_over`, and
# `naps_reclaim` frees it with its chunks. Under the arena's lock.
cdef struct Nap:
    Nap *next                   # in its hash bucket, or in `arena.sleep.naps_over`
    Nap *hand                   # valid while `busy`: the next Nap of the sleep batch
    Block *block                # NULL in `naps_over`
    Chunk *chunks               # the copies of the block's bytes; NULL: its contents were not kept
    bint busy                   # in a sleep batch: its block is being put to sleep or woken
    bint freed  # freed while busy, or while a graph keeps it: the free is not complete

# The free blocks and the holes of an arena, by size. Part of the Arena, made and freed with it.
# Under the arena's lock.
cdef struct Bins:               # in each array, the entries for RANGE_LARGE come first
    uint64_t groups[RANGE_KINDS]  # by kind: bit g is set if word g of the kind's `maps` is not 0
    uint64_t maps[BIN_WORDS]    # bit s of word w is set if bin 64 * w + s is not empty
    Links heads[BIN_LISTS]  # heads of circular lists; the head of an empty list points to itself
    Links holes[RANGE_KINDS]    # by RangeKind: head of the list of HOLE blocks, in no order (I9)

# An address range: reserved addresses of one arena, with a record of each page. `range_add` makes
# it. `range_drop` frees the range of a segment; all other ranges are freed with the pool. Under the
# arena's lock.
cdef struct Range:
    char *base                  # the lowest device address
    size_t bytes
    Block *first                # the lowest block
    View **views  # by page: the mapping there; NULL: none; the array is NULL in segments
    # by page: 0; or, if a hole that began at this page was filled, the length of that hole in pages
    # (at most 65535)
    uint16_t *starts
    uint64_t *marks             # bit p: an earlier placement filled a hole that began at page p
    uint64_t *freed  # debug builds: by page, 1 + `maps.moment` at the last free in the page
    uint32_t pages              # number of pages
    uint32_t top                # the high water mark: the first page above all pages ever mapped
    uint16_t index              # index of the range in `arena.space.ranges`
    uint8_t kind                # which blocks may lie in the range: a RangeKind
    bint segment                # one aclrtMalloc backs the whole range

# A stream use: the record that a stream other than the arena's uses a block. `block_share` makes it
# while the block is LIVE. A free that is deferred until the context is synchronised also makes one,
# with `whole` set. A Use is freed when its work is seen complete: after the block's free, or when
# the stream is destroyed. Under the arena's lock; while `asked` is set, one thread uses the events
# of the queue without the lock.
cdef struct Use:
    # block LIVE: the next Use in the hash bucket; block WAITING: the next younger Use in its queue
    Use *next
    Block *block                # the used block
    aclrtStream stream          # the stream that uses the block
    aclrtContext context        # the stream's context; NULL: unknown, or the driver has no contexts
    aclrtEvent event  # while WAITING: an event behind the work, or a queue marker; NULL: none
    uint64_t moment             # while WAITING: `Source.moment` when the block was freed
    bint whole                  # the Use waits for all work of the context, not only of the stream
    bint ended                  # the stream was destroyed: no event can be recorded on it
    bint silent                 # the last query of the event failed
    bint blind  # while WAITING: no event can complete this Use, only a wait for its context
    # The Uses of one stream whose blocks are WAITING form a queue. The fields below are valid only
    # in the oldest Use of a queue:
    Use *last                   # the youngest Use of the queue
    Use *unmarked  # ROLE_FRAMEWORK: the oldest Use of the queue without a queue marker; NULL: none
    Use *after                  # the oldest Use of the next queue in the circular list of queues
    Use *before                 # the oldest Use of the previous queue in the circular list
    Use *beside                 # the oldest Use of the next queue in the same hash bucket
    bint asked                  # a thread polls this queue; other threads skip it

cdef enum Rung:                 # what served a slow allocation; WAITING and NONE bring no frames
    RUNG_WAITING                # WAITING blocks whose work is complete: see `alloc_waiting`
    RUNG_SPARE                  # spare frames of the page source
    RUNG_GROW                   # new frames, before pages are moved: `step_paid` and `step_grow`
    RUNG_OWN                    # wholly free pages of the same arena: aliased or moved
    RUNG_IDLE                   # wholly free pages of other arenas whose streams are idle
    RUNG_DRIVER                 # new frames, up to the limit
    RUNG_OTHERS                 # wholly free pages of other arenas, after a wait for their streams
    RUNG_NONE                   # no frames were needed, or none have been found yet
    RUNGS                       # the number of Rungs

# Counts of what an arena has done since it was made. Part of the Arena. Written under the arena's
# lock; statistics read single counts without it.
cdef struct Counters:
    # Allocations served by the cache. Valid only in the copy that `arena_stats` makes: an arena
    # counts them in `Tally.class_hits`.
    uint64_t hits
    uint64_t fits               # allocations served by the bins
    uint64_t recalls            # allocations served by reactivated mappings, without a driver call
    uint64_t slow               # slow allocations, and allocations that were refused at once
    uint64_t failures           # allocations that returned NULL
    uint64_t flushes            # flushes of the cache into the bins, also of an empty cache
    # by Rung: slow allocations that got their last frame, or their block, from this source
    uint64_t rungs[RUNGS]
    uint64_t steals             # pages that were moved within the arena or aliased in it
    uint64_t donated            # pages that were given to other arenas or to the page source
    uint64_t syncs              # waits for the arena's stream
    uint64_t sync_failures      # waits that expired, or that the driver refused
    uint64_t refused            # frees that were refused: of foreign pointers, and double frees

# The bytes of one arena as they were last read (`tally_look`), or the sums of these over all arenas
# (`Source.shares`). Part of the Arena or the Source. Under the source's lock.
cdef struct Share:
    size_t live                 # live bytes
    size_t requested            # bytes that callers asked for
    size_t asleep               # bytes of blocks that are asleep
    size_t peak                 # the arena's highest `requested`

# The address ranges of an arena. Part of the Arena. Under the arena's lock.
# Written by `_place`, `_frames`.
cdef struct Ranges:
    Range **ranges              # the newest table of `range_tables`
    uint32_t range_count        # number of slots of `ranges` in use; some of them are NULL
    uint32_t range_room         # number of slots of `ranges`
    Range **range_tables[RANGE_TABLES]  # all tables; old ones are kept for readers without the lock

# State by which an arena notices the end of an iteration. Part of the Arena. Under the arena's
# lock. Written by `_core`, `_pages`.
cdef struct Iteration:
    Block *wired  # the sentinel: a LIVE block whose free may end the iteration; NULL: none
    uint64_t wired_at           # arena_allocs() when the sentinel was chosen
    size_t staying              # bytes of the long-lived blocks: BLOCK_WIRED, without the sentinel
    size_t looked               # offset in bytes in the slab at which the next `live_find` begins
    # arena_allocs() at the end of the last iteration. 0: none has ended since the arena gave away
    # pages.
    uint64_t emptied
    uint64_t vain_flush  # `counters.fits` when a flush of the cache last made no room for a block

# The synchronisations, searches and inactive mappings of an arena. Part of the Arena. Under the
# arena's lock.
# Written by `_frames`, `_place`, `_pages`, `_climb`.
cdef struct Mappings:
    uint64_t moment             # number of the last synchronisation of the stream that began (I14)
    uint64_t rested             # number of the last synchronisation of the stream that succeeded
    uint64_t search             # number of the last search for free pages: see `Frame.stamp`
    # number of the last placement whose driver calls were counted: see `Frame.mark`
    uint64_t window
    uint64_t shadows            # number of inactive mappings
    uint64_t away               # number of frames whose active mapping is not their first mapping
    View *barred  # mappings that the driver refused to unmap; `views_retry` tries again
    uint32_t refusals           # slow allocations in which the driver refused to map an alias

# How often an arena moved pages. After enough moves the pool may grow instead (`growth_paid`). Part
# of the Arena. Under the arena's lock.
cdef struct Growth:
    # slow allocations, since `growth_paid` last allowed growth, whose last frame was not a new one
    uint64_t borrows
    uint64_t grown_at           # arena_allocs() when `growth_paid` last allowed growth

# What slow allocations of other arenas read of this arena, and the expected peak of its bursts.
# Part of the Arena. Under the arena's lock.
cdef struct Burst:
    size_t turn_peak  # the requested bytes that a burst is expected to reach: see FORGET_SHARE
    bint recent                 # the arena is in `source.climbers`; under the source's lock
    Share share  # this arena's bytes as a slow allocation last read them; under the source's lock
    uint64_t vain_fits  # `counters.fits` at the last `pages_move_out` from this arena
    # `live` at the last `pages_move_out` from this arena, if it found no wholly free page; else 0
    size_t vain_live

# The uses of an arena's blocks by other streams. Part of the Arena. Under the arena's lock.
# Written by `_order`, `_driver`, `_arena`, `_captures`.
cdef struct Ordering:
    Use **uses                  # Uses of LIVE blocks: USE_BEDS lists; NULL until a block is shared
    uint64_t guests  # `guest_bit` of each stream in `uses`; may also have bits of freed Uses
    Use *waiting  # the oldest Use of the queue to poll next (I10); NULL: there is no queue
    uint32_t queues             # number of queues in the circular list of `Use.after`
    Use *wait_beds[WAIT_BEDS]   # hash table of the queues: the oldest Use of each
    uint32_t asking             # number of threads in driver calls with `stream`: see `stream_end`
    uint32_t marking            # number of threads that record events for Uses: see `stream_end`
    # blocks are freed early: work on them may be queued after the free, so no event is recorded
    bint early
    uint32_t polling  # number of threads that now hold Uses or WAITING blocks off all lists (I10)

# The end of the arena's stream, and the reuse of the arena for another stream. Part of the Arena.
# No lock guards all of it: each field is one word, which any thread may read at any time.
cdef struct Ending:
    uint32_t by_device  # atomic; 1: the stream was destroyed (wait for its context), or `offered`
    bint settled                # the stream was destroyed, and all its work is complete
    bint offered                # its pages were preallocated: the next new stream gets the arena
    # error of a failed task, which the driver has reported only to a wait of the pool; 0: none
    aclError fault
    bint registered             # the arena is registered with ACL for `stream`

# The capture in progress on the stream, or the graph to which the blocks belong. Part of the Arena.
# No lock guards all of it: each field is one word, which any thread may read at any time.
cdef struct Captured:
    # set by `owners_mark`: a capture's arena that is still in use has this arena as its `owner`
    bint owns
    Arena *capture              # the arena of the capture in progress on the stream; NULL: none
    aclmdlRI graph              # in a capture's arena: its graph; NULL: unknown or destroyed
    bint released               # in a capture's arena: the graph was destroyed

# The blocks of an arena that are asleep. Part of the Arena. Under the arena's lock.
# Written by `_asleep`.
cdef struct Sleep:
    size_t asleep               # bytes of live blocks that are asleep (I15)
    bint turning  # a sleep batch is in progress: VOID blocks may lie in pages with memory (I15)
    Nap **naps                  # hash table of NAP_BEDS lists; NULL until a block first sleeps
    Nap *naps_over              # list of Naps of blocks that woke or were freed; see `naps_reclaim`

# Which blocks of an arena are guarded. Part of the Arena. No lock: if threads race, a few blocks
# more or less are guarded. Written by `_guard`, `pool/_guarded`.
cdef struct Guards:
    uint32_t guard_every        # N: one block in N is guarded
    uint32_t guard_left         # number of allocations until a block is guarded, including that one
    void *guard                 # a `Guard` of `_guard`, with the quarantine; NULL: never guarded

# The recording of an arena. Part of the Arena. Under the arena's lock.
# Written by `_record`, `_core`, `_trim`.
cdef struct Recording:
    Ring *ring                  # the last events; NULL: there is no ring yet
    size_t alarm  # peak threshold in bytes: if `live` exceeds it, `peak_note` is called

# Counts of an arena's allocations by size and by duration. Part of the Arena. Under the arena's
# lock.
cdef struct Tally:
    uint64_t class_hits[CACHE_SIZES]  # by size / 512: allocations served by the cache
    uint32_t class_seen[CACHE_SIZES]  # by size / 512: `counters.fits` at the last fit of this size
    uint64_t bin_counts[BINS]   # allocations that the cache did not serve, by the bin of their size
    uint64_t slow_counts[SLOW_BUCKETS]  # slow allocations by duration: see `slow_bucket_low`
    uint64_t slow_ns            # sum of the durations of slow allocations, in ns
    uint64_t slow_longest_ns    # duration of the longest slow allocation, in ns
    uint64_t hits_seen          # arena_hits() when the hits were last summed, for arena_allocs()
    uint64_t hits_at  # allocations that had missed the cache when the hits were last summed

# The allocator of one stream. `arena_add` makes it in a slot of the zone, when a stream is first
# used. When the stream has ended, a later stream may inherit the arena. It is closed with its pool.
# If ACL or C code has its address, its first host page is kept for ever, so that late calls can be
# refused. All fields are under `lock`, unless their comment says otherwise.
cdef struct Arena:
    BiasedLock lock
    char *slab                  # its block descriptors, in reserved host addresses
    size_t slab_used            # bytes of the slab that are or were descriptors
    size_t slab_blocks          # number of descriptors in the `slab_used` bytes
    size_t live                 # live bytes (I7)
    size_t live_peak            # peak of `live` since the last decay step or `reset_peak`
    size_t requested            # bytes that callers asked for (I7)
    size_t requested_peak  # peak of `requested` since a decay step, `reset_peak` or a new burst
    Block *spare                # list of unused descriptors, linked by `links.next`
    Counters counters
    uint32_t mode               # ArenaMode bits
    bint told  # ACL or C code has the arena's address, and may call with it at any time
    Pool *pool                  # NULL: the pool was destroyed, and no field below is valid
    Block *cache[CACHE_SIZES]   # by size / 512: list of the CACHED blocks of this size (I4)
    size_t tag_live[TAGS]       # by tag: live bytes (I7); entry 0 is not used
    uint32_t tag_blocks[TAGS]   # by tag: number of live blocks (I7)
    uint64_t tags               # bit t: some block has or had tag t
    Bins bins
    char cached[CACHE_SIZES]    # by size / 512: 1 if a block was cached since the last flush (I4)
    uint64_t pages              # number of pages with memory, those of segments included (I8)
    size_t slab_ready           # bytes of the slab that may be read and written
    size_t past_peak            # the highest `live_peak` before the last decay step
    size_t past_requested_peak  # the highest `requested_peak` before the current one
    uint32_t climbing           # slow allocations in progress, whose blocks are not live yet
    aclrtStream stream          # the stream that it serves; NULL: the default stream of `context`
    aclrtContext context        # the stream's context; NULL: unknown, or the driver has no contexts
    uint32_t role               # what the arena serves: an ArenaRole
    Arena *owner                # in a capture's arena: the arena of the captured stream; else NULL
    uint16_t default_tag        # the tag under which reports show blocks without a tag; 0: none
    bint named  # the user chose `default_tag`, so a model's name does not replace it
    Ranges space
    Iteration iteration
    Mappings maps
    Growth growth
    Burst burst
    Ordering order
    Ending ending
    Captured captures
    Sleep sleep
    Guards guards
    Recording recording
    Tally tally
    uint64_t budgets            # bit t: blocks of tag t are counted in `pool.budget[t]`

cdef enum ArenaRole:            # what an arena serves
    ROLE_STREAM                 # allocations by ACL for a stream, and by `pool.alloc`
    ROLE_USER  # allocations by `pool.alloc` for a stream, if the pool has the option early_frees
    ROLE_CAPTURE                # the private blocks of a captured graph
    ROLE_FRAMEWORK              # a framework with a task queue: its frees come early

# The functions of the ACL library that a pool calls; tests replace them. `driver_bind` sets them
# when the pool is made. Part of the Source. No lock: they do not change afterwards.
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
    # Asks ACL to report to the pools when the graph is destroyed. NULL: ACL cannot do that.
    aclError (*graph_watch)(aclmdlRI graph) noexcept nogil
    aclError (*event_create)(aclrtEvent *event, uint32_t flag) noexcept nogil
    aclError (*event_destroy)(aclrtEvent event) noexcept nogil
    aclError (*event_record)(aclrtEvent event, aclrtStream stream) noexcept nogil
    aclError (*event_query)(aclrtEvent event, aclrtEventRecordedStatus *status) noexcept nogil
    aclError (*context_get)(aclrtContext *context) noexcept nogil   # NULL: driver without contexts
    aclError (*context_set)(aclrtContext context) noexcept nogil

cdef enum Views:                # the option `views`: when a free page may be aliased
    VIEWS_NEVER
    VIEWS_PAY                   # if shapes repeat, or if moving the page would need a wait
    VIEWS_ALWAYS                # whenever the page would be moved otherwise

# The options of a pool. The maker of the pool fills them, `options_fill` for a Python Pool. `limit`
# and `headroom` may be set at any time, with one store; no other field once the pool is in use.
cdef struct PoolOptions:
    int32_t device              # the device's number
    size_t limit                # upper limit of bytes of frames and segments together; 0: none
    size_t headroom             # bytes that the pool leaves free on the device
    size_t device_bytes         # bytes of the device's memory; 0: unknown
    size_t granule              # page size, in bytes
    size_t virtual_bytes        # bytes of addresses in a new range of large blocks
    aclrtMemAttr mem_attr       # the kind of memory of which frames are made
    aclrtMemAttr info_attr      # the kind of memory whose free bytes are compared with `headroom`
    int32_t sync_timeout_ms  # longest wait for a stream in an allocation, in ms; -1: no limit
    bint steals                 # pages may be moved or aliased
    uint8_t views               # when a free page may be aliased: a value of Views
    bint early_frees            # memory may be freed before the work that uses it is launched
    bint watches                # each allocation asks the driver if its stream is being captured
    bint segments               # the pool never uses virtual memory
    bint exact_segments         # a segment for large blocks is only as large as its first block
    size_t padding              # bytes that the chip needs behind a user's input or output
    uint32_t guard_every        # N: one block in N of a registered stream is guarded; 0: none

# A context, and the last wait for it. An entry of `Source.places`; a new entry replaces the one
# with the oldest wait. Under the source's lock.
cdef struct Place:
    aclrtContext context
    uint64_t rested             # `Source.moment` of the last successful wait for the context

cdef enum DriverCall:           # the kinds of driver calls that `Source.calls` counts
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

cdef enum Refusal:              # what kept a pool from growing
    REFUSAL_LIMIT
    REFUSAL_HEADROOM
    REFUSAL_DRIVER
    REFUSALS

# The page source: frames that a pool holds from the driver, and state that all its arenas share.
# Part of the Pool. Under its own lock, except `driver` and `prop`, which do not change once the
# pool is made.
cdef struct Source:
    SpinLock lock
    Driver driver
    aclrtPhysicalMemProp prop
    Frame *spare                # list of spare frames
    size_t spare_bytes          # bytes of spare frames
    size_t reserved             # bytes that the pool holds, or is asking the driver for (I11)
    size_t claimed              # bytes of `reserved` that the driver has not allocated yet
    size_t reserved_peak        # peak of `reserved` - `claimed`
    # the largest sum of the requested bytes of all arenas that a slow allocation has read
    size_t joint_peak
    Arena *climbers[CLIMBERS]   # arenas of the latest slow allocations, the newest first
    uint32_t climber_count      # number of entries in `climbers`
    uint32_t looked  # index of the arena that was read last, in the rotation over all arenas
    Share shares                # the sums of `Arena.burst.share` over all arenas
    uint32_t peak_rest          # number of new peaks to skip before `peak_note` notes one again
    uint32_t at_once            # a score; while it is SEEN_OFTEN or more, streams are concurrent
    aclrtEvent events[EVENT_ROOM]  # unused driver events
    uint32_t event_count        # number of entries in `events`
    uint64_t moment             # number of the last wait for a context or a framework's queue
    uint64_t drained            # number of the last successful wait for a framework's queue
    Place places[PLACES]        # the contexts that were waited for last
    uint32_t place_count        # number of entries in `places`
    uint64_t calls[CALLS]       # by DriverCall: number of driver calls
    uint64_t failed[CALLS]      # by DriverCall: number of driver calls that returned an error
    aclError last_error         # the driver's error when a pool last failed to get memory
    uint64_t refused[REFUSALS]  # by Refusal: number of times that the pool could not grow
    # by Refusal: the time in ns at which the pool last asked to log such a refusal
    uint64_t refused_told[REFUSALS]
    size_t refused_bytes[REFUSALS]  # by Refusal: bytes that the refusal at `refused_told` was for

# An open scope of `Pool.tag` in one thread. It lies on the stack of a call, or in the Python object
# of the scope. Only its thread reads and writes it, so there is no lock.
cdef struct TagScope:
    Pool *pool
    TagScope *outer             # the scope that encloses it; NULL: none
    uint16_t tag                # tag of allocations in `pool` that have no tag of their own

cdef enum Stop:                 # bits: what kept a slow allocation from getting memory
    STOP_LIMIT = 1
    STOP_HEADROOM = 2
    STOP_DRIVER = 4
    STOP_SYNC = 8  # a wait failed: the stream was busy too long or captured, or ACL refused it
    STOP_TABLE = 16             # the arena already has MAX_RANGES ranges
    STOP_BUDGET = 32            # the budget of the block's tag has no room for the block
    STOP_DEVICE = 64  # the size exceeds what is free on the device and not live in the pool
    STOP_CAPTURE = 128          # the stream is or may be captured, and the capture has no arena

# What one slow allocation tried, and what stopped it. It is kept in thread-local variables from
# `attempt_begin` on, and copied into the OomReport if the allocation fails. No lock.
cdef struct Attempt:
    uint32_t tried              # bit r: Rung r was tried
    uint32_t stopped            # Stop bits: what stopped the allocation
    aclError status             # the driver's last error; 0: none

# What one arena held when an allocation failed. Part of an OomReport.
cdef struct OomHold:
    aclrtStream stream
    uint32_t role               # what the arena serves: an ArenaRole
    bint donates                # other arenas may take its free pages
    size_t reserved             # bytes of the arena's pages
    size_t live                 # bytes of its live blocks that are not asleep
    size_t free                 # bytes of its free blocks, those that were cached included
    size_t largest_free         # bytes of its largest free block
    size_t whole                # bytes of its wholly free pages and wholly free segments
    size_t waiting              # bytes of its WAITING blocks

# Why an allocation failed, and what held the memory at that time. `oom_note` fills it on the stack
# and copies it into the pool, which keeps the last OOMS reports. Under the pool's lock.
cdef struct OomReport:
    uint64_t number             # number of the report in its pool, from 1
    size_t size                 # bytes that were asked for
    aclrtStream stream          # the stream of the arena that failed: "this arena" below
    size_t limit
    size_t reserved
    size_t spare                # bytes of spare frames
    size_t live                 # bytes of awake live blocks in all arenas
    size_t free                 # bytes of free blocks of this arena
    size_t largest_free         # bytes of the largest free block of this arena
    size_t waiting              # bytes of WAITING blocks of this arena
    size_t others               # bytes that all other arenas hold
    size_t device_free          # free bytes of the device; 0: unknown
    bint capturing              # the stream was being captured
    bint moved                  # the allocation was allowed to move pages
    uint16_t tag                # tag of the allocation
    Attempt attempt
    size_t missing              # bytes of memory that the best placement for the block lacked
    size_t headroom
    size_t budget               # limit of the tag's budget, in bytes; 0: none
    size_t budget_live          # live bytes that count in the tag's budget
    size_t tags[TAGS]           # live bytes by tag in all arenas, sleeping blocks included
    OomHold holds[HOLDS]        # this arena first, then the other arenas that hold the most bytes
    uint32_t hold_count         # number of entries in `holds`

# What is recorded of a pool. A user is a recording or a tracking in progress. Part of the Pool.
# Written with the GIL held; arenas read single fields without a lock.
cdef struct Notes:
    uint32_t users              # number of users
    uint32_t python             # number of users that want Python stacks, and 1 for guards
    uint32_t native             # number of users that want C stacks
    uint32_t steps              # number of model executions so far
    uint32_t recordings         # number of users that keep events
    size_t capacity             # number of events in a ring; 0: no events are kept

# What one stream held at the joint peak of live bytes. Part of a Peak.
cdef struct PeakStream:
    aclrtStream stream
    uint32_t role               # what the arena serves: an ArenaRole
    size_t live                 # live bytes

# The joint peak of live bytes, and what it consisted of. Part of the Pool; `peak_note` fills it.
# Under the pool's lock.
cdef struct Peak:
    uint64_t number             # number of peaks that were noted so far
    uint64_t time               # when the peak was noted, in clock ticks
    size_t live
    size_t requested
    size_t reserved
    # live bytes by tag; blocks without a tag count under their arena's `default_tag`
    size_t tags[TAGS]
    # the streams with live bytes, in the order of `Pool.arenas`, which is not by size
    PeakStream streams[PEAK_STREAMS]
    uint32_t stream_count       # number of entries in `streams`

# The task queue of the framework that a pool serves. Part of the Pool. Not written again once it is
# set. Written by `adapters/pluggable/_door`.
cdef struct TaskQueue:
    # Waits until the task queue is empty, then for the device. Returns false if that failed.
    bint (*drain)(Pool *pool) noexcept nogil
    # Puts a marker at the end of the task queue, and returns it; NULL if that fails.
    void *(*mark)(Pool *pool, aclrtStream stream) noexcept nogil
    bint (*mark_done)(void *mark) noexcept nogil    # true if the stream has reached the marker
    void (*mark_drop)(void *mark) noexcept nogil

# The reports of allocations that failed. Part of the Pool. Under the pool's lock. Written by
# `_oom`.
cdef struct OomReports:
    OomReport oom               # the newest report
    OomReport ooms[OOMS]        # the newest OOMS reports, each at index `number` modulo OOMS

# Who must destroy the pool, and when. Part of the Pool. Under the lock of the list of pools.
# Written by `_arena`, `pool/_pool`.
cdef struct Lifetime:
    bint orphan                 # no Python Pool owns it; it is destroyed only if `dropped` is set
    bint dropped  # its Python Pool was deleted; `pools_retry` still has to destroy the pool

# Counts of calls of `Pool.sleep` and `Pool.wake`. Part of the Pool. Under the GIL. Written by
# `pool/_sleep`.
cdef struct SleepCalls:
    uint64_t sleeps             # calls that put blocks to sleep
    uint64_t wakes              # calls that woke blocks

# The budget of a tag. Part of the Pool. `budget_set` begins the count. Any thread changes `live`
# and `refused`, atomically.
cdef struct Budget:
    size_t limit                # upper limit of `live`, in bytes; 0: none
    size_t live                 # live bytes of the tag, and bytes of its allocations in progress
    uint64_t refused            # number of allocations that were refused because of `limit`

# The memory of one device. `pool_create` makes it, for a Python Pool or a framework. `pool_destroy`
# frees it when no block is live, no stream is registered and the driver has all pages back.
cdef struct Pool:
    PoolOptions options
    Source source
    aclrtContext context        # current when the pool was made; NULL: the driver has no contexts
    SpinLock lock               # guards the list of arenas, the reports and the peak
    Arena **arenas              # only appended to; the newest table of `arena_tables`
    uint32_t arena_count        # stored after the arena and the table, for readers without a lock
    uint32_t arena_room         # number of slots of `arenas`
    Arena **arena_tables[ARENA_TABLES]  # all tables; old ones are kept for readers without the lock
    uint32_t graphs             # number of arenas that were made for captures
    Arena *found[FOUND_ARENAS]  # hash table of arenas by stream; an entry may be out of date
    Pool *next                  # in the list of all pools of the process
    bint no_virtual             # the driver has no virtual memory, or the options forbid it
    bint tagging                # new arenas get the mode ARENA_TAGGED
    uint32_t modes              # ArenaMode bits that new arenas get; under `lock`
    Notes notes
    Peak peak                   # the last peak that was noted; under `lock`
    TaskQueue queue
    OomReports reports
    Lifetime life
    SleepCalls sleeping
    uint64_t budgets            # bit t: tag t has a Budget; under `lock`
    Budget budget[TAGS]         # by tag; valid where `budgets` has the tag's bit

# A copy of an arena's statistics. `arena_stats` fills the caller's struct under the arena's lock.
cdef struct ArenaStats:
    size_t allocated            # bytes of live blocks
    size_t allocated_peak       # peak of `allocated`
    size_t requested            # bytes that callers asked for
    size_t requested_peak       # peak of `requested`
    size_t reserved             # bytes of pages and segments
    size_t cached               # bytes of CACHED blocks
    size_t free                 # bytes of FREE blocks
    size_t largest_free         # bytes of the largest FREE block
    size_t waiting              # bytes of WAITING blocks
    size_t asleep               # bytes of live blocks that are asleep
    uint64_t live_blocks        # number of live blocks
    uint64_t frees              # number of frees since the arena was made
    uint64_t holes              # number of HOLE blocks
    uint64_t ranges             # number of ranges
    Counters counters
