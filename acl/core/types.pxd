"""The structs, constants and invariants of the block allocator.  There are no functions here.

Glossary (all words: docs/glossary.md)
    pool      the memory of one device: a limit, a page source, and an arena for each stream
    arena     the allocator state of one stream, behind one lock; ACL gets it as `aclrtAllocator`
    range     reserved addresses of an arena, divided into pages; small blocks have their own ranges
    page      `granule` bytes of a range; a frame backs it, or it is missing
    frame     the physical memory of one page
    view      a mapping: one address at which a frame is mapped; at most one view of a frame is
              active: it holds the frame, and the frame backs its page
    shadow    an inactive view: the driver still has the mapping, but the page counts as missing
    recall    to make a shadow active again while its frame is free; this needs no driver call
    segment   a range that one aclrtMalloc backs as a whole, if the driver has no virtual memory
    block     a contiguous part of a range with one state: see BlockState
    hole      a block of missing pages
    nap       the sleep record of a live block that is asleep: some of its pages have no memory
    void      free addresses in a page without memory; the other blocks in that page are asleep
    bin       a list of the free blocks of one class of sizes
    cache     lists of free small blocks, one for each exact size; these blocks are not coalesced

Invariants (`arena_check` returns the number of the first one that is broken)
    I1   contiguity   b.next.addr == b.addr + b.size and b.next.prev == b; the blocks of a range
                      start at its base and their sizes sum to its bytes
    I2   coalesced    no two neighbours are both FREE, nor both HOLE
    I3   binned       b is in exactly one bin, that of its size  <=>  b.state == FREE;
                      the bit of a bin in `Bins.maps` is set  <=>  the bin is not empty
    I4   cached       b is in cache[b.size / 512]  <=>  b.state == CACHED; if a block is in this
                      list, arena.cached[b.size / 512] is 1
    I5   alignment    addr and size are multiples of 512; if b is a HOLE, of the page size
    I6   backing      a page is backed (its view holds its frame)  <=>  no HOLE covers it; this does
                      not apply to pages with MOVING blocks, nor to pages that sleep (I15)
    I7   accounting   live == sum of the sizes of LIVE blocks; requested == sum of the bytes that
                      callers asked for; tag_live and tag_blocks are such sums for each tag; if tag
                      t has a budget, pool.budget[t].live == sum of tag_live[t] of all arenas
    I8   pages        arena.pages == backed pages of all its ranges, while no block is MOVING
    I9   holes        each HOLE is once in the list of holes of its RangeKind
    I10  order        new work may use a block only after all work that the arena's stream had
                      queued when the block was freed; while other streams may still use a freed
                      block, it is WAITING, and its `requested` is the number of its Uses
    I11  source       source.reserved == bytes of frames and segments, mapped or spare
    I12  peaks        live <= live_peak, requested <= requested_peak
    I13  views        a frame's holder is in its list `views`; a view is in its frame's list once,
                      and its page's entry in `Range.views` is this view; all views of a frame lie
                      in one arena, and `Frame.stamp` is the number of a search in that arena;
                      shadows == views that do not hold their frame, if no block is MOVING; if a
                      retired view has a frame `mapped`, that frame has a holder in this arena
    I14  old views    a view is unmapped only if its arena's stream was seen complete after the view
                      last held its frame (v.vacated < maps.rested), as until then queued work may
                      use its address; neither number exceeds that of the last synchronisation
                      that began (maps.moment).  `arena_check` checks the latter, and debug builds
                      check the former at each unmap
    I15  sleep        if a page is not backed and is not a hole, all blocks in it are asleep (LIVE
                      and BLOCK_ASLEEP) or VOID; VOID blocks lie in such pages only, except during
                      a sleep batch; asleep == sum of the sizes of blocks that are asleep, each of
                      which has one Nap

Lock order: a thread that holds the lock of an arena, of a source, of a pool or of the list of pools
takes no other lock, calls no driver function and never waits for a stream.
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
        # 0: no check is compiled in; 1: I14 is checked; 2: also `arena_check` after each operation
        DEBUG_LEVEL "ACL_POOL_DEBUG"

# Constants of an enum are signed in C.  Code that needs an unsigned one writes <uint32_t> TAGS.
cdef enum:
    UNIT_SHIFT = 9              # sizes are counted in units of 512 bytes
    UNIT = 512
    CACHE_UNITS = 1024          # 512 KiB: blocks up to this size are small, see RANGE_SMALL
    CACHE_SIZES = 1025          # CACHE_UNITS + 1: entries of an array that is indexed by size / 512
    BIN_SHIFT = 5               # 32 bins for each power of two
    MAP_SHIFT = 6               # a word of a bit map covers 64 bins
    BINS = 1152                 # bins of each RangeKind: 36 groups of 32
    BIN_LISTS = 2304            # 2 BINS: the bins of both kinds
    BIN_WORDS = 36              # BIN_LISTS >> MAP_SHIFT
    MAX_RANGES = 65535          # most ranges of an arena: Block.range has 16 bits
    FIRST_RANGES = 8            # slots of a first table of ranges; each later one has twice as many
    RANGE_TABLES = 14           # most tables of ranges: enough to double up to MAX_RANGES
    MAX_ARENAS = 1 << 20        # most arenas of a pool
    FIRST_ARENAS = 64           # slots of a first table of arenas; each later one has twice as many
    ARENA_TABLES = 15           # most tables of arenas: enough to double up to MAX_ARENAS
    FOUND_ARENAS = 4096         # entries of the hash table that is tried first to find an arena
    MAX_SIZE_BITS = 46          # no device has 2^46 bytes; the sum of two such sizes fits 64 bits
    ARENA_SHIFT = 17            # each arena has 2^17 bytes of addresses in the zone
    TAGS = 64                   # tags of a pool; tag 0: no tag; tag 63: all names after the 62nd
    EVENT_ROOM = 256            # most unused driver events that a pool keeps
    PLACES = 64                 # most contexts for which a pool notes the last completed wait
    NAP_BEDS = 4096             # buckets of the hash table of Naps, by their blocks' descriptors
    USE_BEDS = 1024             # buckets of the hash table of Uses, by their blocks' descriptors
    WAIT_BEDS = 256             # buckets of the hash table of queues of Uses, by stream and context
    SLOW_BUCKETS = 248          # times of slow allocations: 8 buckets for each power of two
    PEAK_STREAMS = 64           # most streams in the composition of a peak
    CLIMBERS = 8                # arenas of the latest slow allocations that a pool notes
    NEAR_MOST = 12              # most arenas that a slow allocation looks at: CLIMBERS and 4 more
    HOLDS = 8                   # most arenas in an OomReport
    OOMS = 16                   # OomReports that a pool keeps

cdef enum BlockState:
    BLOCK_UNUSED                # a descriptor in the slab that describes no block
    BLOCK_LIVE                  # handed out
    BLOCK_CACHED                # free, in the cache
    BLOCK_FREE                  # free, coalesced, in a bin
    BLOCK_HOLE                  # addresses whose pages have no memory
    BLOCK_MOVING                # claimed by one thread: a slow allocation, a steal or a trim
    BLOCK_WAITING               # pending free: work of other streams or of a model must end first
    BLOCK_VOID                  # free addresses in a page that has no memory (I15)

cdef enum BlockFlag:            # bits
    BLOCK_SHARED = 1            # other streams use it too: it has a Use for each
    BLOCK_COLD = 2              # small, of a size seldom asked for: a free puts it into a bin
    BLOCK_BORN = 4              # tracked: its links hold a `Birth`, time and stacks of allocation
    BLOCK_SEEN = 8              # its links hold the time at which `pool_see` first found it live
    BLOCK_GUARDED = 16          # guard bytes follow it (`_guard`)
    BLOCK_HELD = 32             # freed by its user, and in quarantine until its bytes are checked
    BLOCK_WIRED = 64            # long-lived, or the iteration's sentinel, whose free is noticed
    BLOCK_ASLEEP = 128          # live, but its sleeping pages have no memory

cdef enum RangeKind:
    RANGE_LARGE                 # large blocks, and some of 64 to 512 KiB (MEDIUM_UNITS)
    RANGE_SMALL                 # blocks of up to CACHE_UNITS units; freed ones go into the cache
    RANGE_KINDS                 # number of kinds

cdef enum ArenaMode:            # bits; each of them except ARENA_TAGGED turns the fast path off
    ARENA_CAPTURING = 1         # allocations are made in the capture's own arena
    ARENA_WATCHED = 2           # each allocation asks whether the stream is being captured
    ARENA_UNLOADING = 4         # frees are deferred until the device is synchronised
    ARENA_FORKED = 8            # in a fork's child: allocations are refused, frees stay pending
    ARENA_CLOSED = 16           # allocations are refused; frees are served
    # An allocation without a tag gets the tag of its thread's open scope.  While this bit is set,
    # only a thread without an open scope may own the arena's lock; while any other is, no thread.
    ARENA_TAGGED = 32
    ARENA_RECORDED = 64         # each allocation and each free is noted (`_record`)

# The host addresses of all arenas and of all descriptors of the process. One variable of `_core`;
# `_bins` reserves both for the first arena. Never freed. The two counts only grow, by atomic
# stores, so any thread may test without a lock if an address is that of an arena or descriptor.
cdef struct Zone:
    char *arenas                # slots of 2^ARENA_SHIFT bytes, one for each arena
    size_t arenas_made          # slots that are or were arenas; these can be read for ever
    char *blocks                # slabs of descriptors, one after another
    size_t blocks_open          # descriptors in readable slabs; an unused one reads as zeros

# A link in a doubly linked, circular list. It lies in a Block, or it is the head of a list in Bins.
# Under the arena's lock.
cdef struct Links:
    Block *next
    Block *prev

# A part of an address range that has one state. `block_make` takes a descriptor from the arena's
# spare ones or from its slab; `block_drop` makes it spare again. It is not freed before its pool.
# Under the arena's lock, but a MOVING block belongs to the thread that claimed it, and the caller
# that has a LIVE block may read its address and size.
cdef struct Block:              # 64 bytes, one cache line
    char *addr                  # device address (I1, I5)
    size_t size                 # bytes (I1, I5)
    # FREE, HOLE: in a list of Bins.  CACHED, MOVING, UNUSED: only `next`, in a list of such blocks.
    # LIVE: other data, see BLOCK_BORN and BLOCK_SEEN.
    Links links
    Block *prev                 # lower neighbour in its range, NULL at its start
    Block *next                 # upper neighbour, NULL at its end
    size_t requested            # LIVE: bytes asked for (I7); WAITING: Uses (I10); MOVING: a flag
    uint8_t state               # BlockState; `block_word` reads this, `flags` and `tag` as one word
    uint8_t flags               # BlockFlag bits
    uint16_t tag                # LIVE: its tag; 0: none
    uint16_t range              # index in `arena.space.ranges`
    uint16_t bin                # FREE: index of its bin (I3); always >= BINS in small ranges

# A mapping: one address at which a frame is mapped. `view_make` allocates it before the driver maps
# the page; `view_drop` frees it after the driver has unmapped it. Under the arena's lock.
cdef struct View:
    Frame *frame                # NULL: retired; it must be unmapped before its page is used again
    Frame *mapped               # if retired: its frame before; NULL: the frame leaves the arena
    View *next                  # next view of the frame; if retired: next in a list of such views
    uint64_t vacated            # arena.maps.moment when it last ceased to hold its frame (I14)
    uint32_t page
    uint16_t range              # index in `arena.space.ranges`

# The physical memory of one page. `frame_make` asks the driver for it; `frame_return` gives it
# back. Under the lock of the arena that has it mapped; under the source's lock while it is spare;
# without a lock while it is in a list of one thread only.
cdef struct Frame:
    aclrtDrvMemHandle handle
    Frame *next                 # in the list of spare frames, or in a list of one thread
    View *holder                # the active mapping; NULL while the frame backs no page (I6)
    View *views                 # all mappings of the frame that are not retired (I13)
    View *home                  # the first mapping: `pages_home` makes it active again
    Block *block                # valid during search `stamp`: the FREE block that uses the frame
    Block *hole                 # valid during search `stamp`: the HOLE at `home`; NULL: no HOLE
    uint64_t stamp              # number of the last search that found the frame free
    uint64_t mark               # number of the last placement that counted this frame as usable
    uint32_t stale              # retired mappings that the driver still has of this frame

# Pinned host memory that several Chunks share, for bytes of sleeping blocks. `pinned_make`
# allocates it with one user; the last `pinned_leave` frees it. `users` is under a lock of
# `_asleep`; only the thread that fills the memory writes the other fields.
cdef struct Pinned:
    void *host
    size_t size
    size_t used                 # bytes that chunks have taken
    uint32_t users              # its Chunks, plus 1 while a thread fills it

# A host copy of some bytes of a sleeping block. Made when the block is put to sleep with its
# contents; freed with its Nap by `naps_reclaim`, where driver calls are allowed. It belongs to its
# Nap.
cdef struct Chunk:
    Chunk *next                 # the copy of the bytes that follow in the block
    Pinned *pinned
    char *host                  # the address of its bytes in `pinned`
    size_t size

# The sleep record of one live block. `nap_begin` makes it; `nap_end` moves it to `naps_over`, and
# `naps_reclaim` frees it with its chunks. Under the arena's lock.
cdef struct Nap:
    Nap *next                   # in its hash bucket, or in `arena.sleep.naps_over`
    Nap *hand                   # the next Nap of the sleep batch; valid while `busy`
    Block *block                # NULL in `naps_over`
    Chunk *chunks               # the copies of its bytes; NULL: its contents were not kept
    bint busy                   # in a sleep batch: its block is being put to sleep or woken
    bint freed                  # freed while busy; the free is completed when busy ends

# The free blocks and the holes of an arena, by size. Part of the Arena, made and freed with it.
# Under the arena's lock.
cdef struct Bins:               # each array has the entries for RANGE_LARGE first
    uint64_t groups[RANGE_KINDS]  # by RangeKind; bit g: word g of its `maps` is not 0
    uint64_t maps[BIN_WORDS]    # bit s of word w: bin 64 w + s is not empty
    Links heads[BIN_LISTS]      # 2 BINS circular lists; an empty one points to its head (I3)
    Links holes[RANGE_KINDS]    # HOLE blocks of a kind, in no order (I9)

# An address range: reserved addresses of one arena, with a record of each page. `range_add` makes
# it; `range_drop` frees the range of a segment; all others are freed with the pool. Under the
# arena's lock.
cdef struct Range:
    char *base                  # device address
    size_t bytes
    Block *first                # lowest block
    View **views                # one for each page, NULL where nothing is mapped; not in segments
    uint16_t *starts            # by page: pages of the hole that an earlier window filled from here
    uint64_t *marks             # bit p: an earlier placement filled a hole that began at page p
    uint64_t *freed             # debug builds: by page, 1 + `maps.moment` at the last free in it
    uint32_t pages
    uint32_t top                # the first page above all pages that were ever mapped
    uint16_t index
    uint8_t kind                # RangeKind
    bint segment                # one aclrtMalloc backs all of it

# A stream use: the record that a stream other than the arena's uses a block. `block_share` makes it
# while the block is LIVE; a free that is deferred until the context is synchronised makes one with
# `whole`. It is freed when the work that it waits for is complete, at the block's free or later.
# Under the arena's lock; while `asked` is set, one thread uses its event without the lock.
cdef struct Use:
    Use *next                   # block LIVE: in a hash bucket; WAITING: next younger in the queue
    Block *block
    aclrtStream stream
    aclrtContext context        # the stream's context; NULL: unknown, or the driver has none
    aclrtEvent event            # while WAITING: recorded behind the work; NULL: none was recorded
    uint64_t moment             # while WAITING: `Source.moment` when the block was freed
    bint whole                  # it waits for all work of the context, not only of the stream
    bint ended                  # the stream was destroyed: no event can be recorded on it
    bint silent                 # the last query of the event failed
    bint blind                  # while WAITING: no event can end it, only a wait for the context
    # WAITING Uses of one stream form a queue.  These fields are valid in its oldest Use only:
    Use *last                   # the youngest Use of the queue
    Use *unmarked               # ROLE_FRAMEWORK: the oldest Use that still needs a queue marker
    Use *after                  # the oldest Use of the next queue; the queues form a ring
    Use *before                 # the oldest Use of the previous queue
    Use *beside                 # the oldest Use of the next queue in the same hash bucket
    bint asked                  # a thread works on this queue; other threads skip it

cdef enum Rung:                 # sources of memory; `_climb` has the order in which they are tried
    RUNG_WAITING                # WAITING blocks whose events are complete
    RUNG_SPARE                  # spare frames of the page source
    RUNG_GROW                   # new frames, while `reserved` stays close to the live peak
    RUNG_OWN                    # whole free pages of this arena: an alias of them, or a move
    RUNG_IDLE                   # whole free pages of arenas whose streams are idle
    RUNG_DRIVER                 # new frames, up to the limit
    RUNG_OTHERS                 # whole free pages of other arenas, after a wait for their streams
    RUNG_NONE                   # no frames were needed
    RUNGS                       # number of Rungs

# What an arena has done so far. Part of the Arena. Written under the arena's lock; statistics read
# single counts without it.
cdef struct Counters:
    uint64_t hits               # allocations served by the cache; see `Tally.class_hits`
    uint64_t fits               # allocations served by the bins
    uint64_t recalls            # allocations served by recalls, without a driver call
    uint64_t slow               # slow allocations, and those that were refused at once
    uint64_t failures           # allocations that returned NULL
    uint64_t flushes            # number of times that cached blocks were moved into the bins
    uint64_t rungs[RUNGS]       # by Rung: slow allocations for which it was the last to get memory
    uint64_t steals             # pages moved within the arena, or given an alias in it
    uint64_t donated            # pages given to other arenas or to the page source
    uint64_t syncs              # waits for the stream
    uint64_t sync_failures      # waits that expired or were refused
    uint64_t refused            # foreign pointers and double frees

# The bytes of one arena when a slow allocation last looked at it, or the sums of these over all
# arenas (`Source.shares`). Part of the Arena or the Source. Under the source's lock.
cdef struct Share:
    size_t live
    size_t requested
    size_t asleep
    size_t peak                 # highest requested bytes of the arena

# The address ranges of an arena. Part of the Arena. Under the arena's lock.
# Written by `_place`, `_frames`.
cdef struct Ranges:
    Range **ranges              # the newest of `range_tables`
    uint32_t range_count        # slots of `ranges` in use, some of them NULL
    uint32_t range_room         # slots of `ranges`
    Range **range_tables[RANGE_TABLES]  # old tables are kept for readers without the lock

# How the end of an iteration of an arena is noticed. Part of the Arena. Under the arena's lock.
# Written by `_core`, `_pages`.
cdef struct Iteration:
    Block *wired                # the sentinel: LIVE, its free may end the iteration; NULL: none
    uint64_t wired_at           # arena_allocs() when the sentinel was chosen
    size_t staying              # bytes of LIVE blocks with BLOCK_WIRED, without the sentinel
    size_t looked               # offset in the slab where the next search for a live block begins
    # arena_allocs() at the last iteration's end; 0: none has ended since the arena gave pages away.
    uint64_t emptied
    uint64_t vain_flush         # `counters.fits` when a flush last found no place for a block

# The synchronisations, searches and inactive mappings of an arena. Part of the Arena. Under the
# arena's lock.
# Written by `_frames`, `_place`, `_pages`, `_climb`.
cdef struct Mappings:
    uint64_t moment             # number of the last synchronisation that has begun (I14)
    uint64_t rested             # number of the last synchronisation that succeeded
    uint64_t search             # number of the last search for free pages: see `Frame.stamp`
    uint64_t window             # number of the last placement that was priced: see `Frame.mark`
    uint64_t shadows            # number of inactive mappings
    uint64_t away               # frames whose active mapping is not their first one
    View *barred                # mappings that the driver refused to unmap; tried again later
    uint32_t refusals           # slow allocations in which the driver refused to map an alias

# How often an arena moved pages: after enough moves it may grow (`growth_paid`). Part of the Arena.
# Under the arena's lock.
# Written by `_climb`.
cdef struct Growth:
    uint64_t borrows            # slow allocations that moved pages since growth was last allowed
    uint64_t grown_at           # arena_allocs() when `growth_paid` last allowed growth

# What the slow allocations of other arenas read of an arena, and the peak of its bursts. Part of
# the Arena. Under the arena's lock.
# Written by `_turns`, `_pages`, `_tally`.
cdef struct Burst:
    size_t turn_peak            # expected requested bytes at a burst's peak: see FORGET_SHARE
    bint recent                 # it is in `source.climbers`; under the source's lock
    Share share                 # under the source's lock
    uint64_t vain_fits          # `counters.fits` at the last `pages_move_out` from it
    size_t vain_live            # `live` at that time if it had no free page, else 0

# The uses of an arena's blocks by other streams. Part of the Arena. Under the arena's lock.
# Written by `_order`, `_driver`, `_arena`, `_captures`.
cdef struct Ordering:
    Use **uses                  # Uses of LIVE blocks: USE_BEDS lists; NULL until a block is shared
    uint64_t guests             # `guest_bit` of each stream in `uses`; bits of old Uses may remain
    Use *waiting                # the oldest Use of the queue that is polled next (I10); NULL: none
    uint32_t queues             # number of queues in the ring that `waiting` points into
    Use *wait_beds[WAIT_BEDS]   # hash table of queues, each by its oldest Use
    uint32_t asking             # threads in driver calls with `stream`; `stream_end` waits for them
    uint32_t marking            # threads that record events for Uses; `stream_end` waits for them
    bint early                  # early frees: work may follow the free, so no event is recorded
    uint32_t polling            # threads that have taken waiting Uses or blocks off all lists (I10)

# Whether the stream of an arena has ended, and whether the arena may serve another one. Part of the
# Arena. Under the arena's lock.
# Written by `_arena`, `_driver`, `_captures`, `pool/_registry`.
cdef struct Ending:
    uint32_t by_device          # atomic; the stream was destroyed, so only a device sync covers it
    bint settled                # the stream was destroyed, and all its work is complete
    bint offered                # its pages were preallocated: the next new stream takes the arena
    aclError fault              # error of a task that the driver told only the pool; 0: none
    bint registered             # it is registered with ACL for `stream`

# The capture under way on a stream, or the graph to which an arena's blocks belong. Part of the
# Arena. Under the arena's lock.
# Written by `_captures`, `_arena`.
cdef struct Captured:
    bint owns                   # set for `arena_inherit`: it owns a capture's arena that is in use
    Arena *capture              # the arena of the capture under way; NULL: none
    aclmdlRI graph              # in a capture's arena: its graph
    bint released               # in a capture's arena: the graph was destroyed

# The blocks of an arena that are asleep. Part of the Arena. Under the arena's lock.
# Written by `_asleep`.
cdef struct Sleep:
    size_t asleep               # bytes of live blocks that are asleep (I15)
    bint turning                # a sleep batch is open: VOID may lie in pages with memory (I15)
    Nap **naps                  # NAP_BEDS lists; NULL until a block sleeps
    Nap *naps_over              # Naps of blocks that woke or were freed: `naps_reclaim` frees them

# Which blocks of an arena are guarded. Part of the Arena. Under the arena's lock.
# Written by `_guard`, `pool/_guarded`.
cdef struct Guards:
    uint32_t guard_every        # N: one block in N is guarded
    uint32_t guard_left         # allocations until the next guarded one
    void *guard                 # the `Guard` of `_guard`, with the quarantine; NULL: never guarded

# The recording of an arena. Part of the Arena. Under the arena's lock.
# Written by `_record`, `_core`, `_trim`.
cdef struct Recording:
    Ring *ring                  # the last events; NULL: there is no ring yet
    size_t alarm                # peak threshold: above these live bytes `peak_note` is called

# Allocations of an arena by size and by time. Part of the Arena. Under the arena's lock.
# Written by `_core`, `_tally`.
cdef struct Tally:
    uint64_t class_hits[CACHE_SIZES]  # hits by size / 512: allocations from the cache
    uint32_t class_seen[CACHE_SIZES]  # by size / 512: `counters.fits` at the size's last fit
    uint64_t bin_counts[BINS]   # allocations that the cache did not serve, by the bin of their size
    uint64_t slow_counts[SLOW_BUCKETS]  # slow allocations, by their duration
    uint64_t slow_ns            # sum of the durations of slow allocations
    uint64_t slow_longest_ns    # the longest of these durations
    uint64_t hits_seen          # arena_hits() as last summed, for arena_allocs()
    uint64_t hits_at            # allocations that missed the cache when the hits were last summed

# The allocator of one stream. `arena_add` makes it in a slot of the zone, on the first use of a
# stream. When its stream has ended, a later stream may inherit it. It is closed with its pool; but
# if ACL or C code has its address, its first host page is kept for ever, so that late calls can be
# refused. All fields are under its lock unless they say otherwise.
cdef struct Arena:
    BiasedLock lock
    char *slab                  # its block descriptors, in reserved host addresses
    size_t slab_used            # bytes of the slab that are or were descriptors
    size_t slab_blocks          # number of descriptors in these bytes
    size_t live                 # bytes (I7)
    size_t live_peak            # since the last decay step or `reset_peak`
    size_t requested            # bytes (I7)
    size_t requested_peak       # since the last decay step, `reset_peak` or begin of a burst
    Block *spare                # unused descriptors, linked by `links.next`
    Counters counters
    uint32_t mode               # ArenaMode bits
    bint told                   # ACL or C code has its address, and may call with it at any time
    Pool *pool                  # NULL: the pool was destroyed; no field below is valid
    Block *cache[CACHE_SIZES]   # by size / 512: list of CACHED blocks (I4)
    size_t tag_live[TAGS]       # live bytes by tag (I7); [0] is not counted
    uint32_t tag_blocks[TAGS]   # live blocks by tag
    uint64_t tags               # bit t: a block has or had tag t
    Bins bins
    char cached[CACHE_SIZES]    # by size / 512: 1 if a block was cached since the last flush (I4)
    uint64_t pages              # backed pages, those of segments included (I8)
    size_t slab_ready           # bytes of the slab that may be read and written
    size_t past_peak            # highest live peak before the last decay step
    size_t past_requested_peak  # highest `requested_peak` before the current one
    uint32_t climbing           # slow allocations under way, whose blocks are not live yet
    aclrtStream stream          # NULL: the default stream of `context`
    aclrtContext context        # the stream's context; NULL: unknown, or the driver has none
    uint32_t role               # ArenaRole
    Arena *owner                # in a capture's arena: the arena of the captured stream
    uint16_t default_tag        # the tag that reports show for its blocks without a tag; 0: none
    bint named                  # the user chose `default_tag`: a model's name does not replace it
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
    ROLE_STREAM                 # ACL's allocations for a stream, and `pool.alloc`
    ROLE_USER                   # the arena of `pool.alloc`, if the pool has the option early_frees
    ROLE_CAPTURE                # private blocks of a captured graph
    ROLE_FRAMEWORK              # a framework with a task queue, which frees blocks early

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
    # Asks ACL to call the pools when the graph is destroyed.  NULL: ACL cannot do that.
    aclError (*graph_watch)(aclmdlRI graph) noexcept nogil
    aclError (*event_create)(aclrtEvent *event, uint32_t flag) noexcept nogil
    aclError (*event_destroy)(aclrtEvent event) noexcept nogil
    aclError (*event_record)(aclrtEvent event, aclrtStream stream) noexcept nogil
    aclError (*event_query)(aclrtEvent event, aclrtEventRecordedStatus *status) noexcept nogil
    aclError (*context_get)(aclrtContext *context) noexcept nogil   # NULL: there are no contexts
    aclError (*context_set)(aclrtContext context) noexcept nogil

cdef enum Views:                # the option `views`: when a page may get an alias
    VIEWS_NEVER
    VIEWS_PAY                   # if shapes repeat, or if moving the page would need a wait
    VIEWS_ALWAYS                # whenever a page would be moved otherwise

# The options of a pool. Filled by `options_fill`, copied into the Pool when it is made. `limit` and
# `headroom` may be set at any time, with one store; the rest does not change afterwards.
cdef struct PoolOptions:
    int32_t device
    size_t limit                # most bytes of frames and segments; 0: no limit
    size_t headroom             # bytes to leave free on the device
    size_t device_bytes         # bytes of the device's memory; 0: unknown
    size_t granule              # page size, in bytes
    size_t virtual_bytes        # bytes of a range
    aclrtMemAttr mem_attr       # kind of memory of frames
    aclrtMemAttr info_attr      # kind of memory whose free bytes are compared with `headroom`
    int32_t sync_timeout_ms     # longest wait for a stream inside an allocation; never 0
    bint steals                 # pages may be moved or get an alias
    uint8_t views               # Views
    bint early_frees            # memory may be freed before the work that uses it is launched
    bint watches                # each allocation asks whether its stream is being captured
    bint segments               # never use virtual memory
    bint exact_segments         # a segment for large blocks is only as large as its first block
    size_t padding              # bytes that the chip needs behind a user's input or output
    uint32_t guard_every        # N: one block in N of a registered stream is guarded; 0: none

# A context, and how far its work is known to be complete. An entry of `Source.places`; a new entry
# replaces the oldest. Under the source's lock.
cdef struct Place:
    aclrtContext context
    uint64_t rested             # `Source.moment` of the last wait for the context that succeeded

cdef enum DriverCall:           # what `Source.calls` counts
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
# Part of the Pool. Under its own lock, except `driver` and `prop`, which are set when the pool is
# made.
cdef struct Source:
    SpinLock lock
    Driver driver
    aclrtPhysicalMemProp prop
    Frame *spare                # list of spare frames
    size_t spare_bytes
    size_t reserved             # bytes (I11)
    size_t claimed              # bytes of `reserved` that the driver has not allocated yet
    size_t reserved_peak        # peak of `reserved`, without `claimed`
    size_t joint_peak           # most requested bytes of all arenas together, at a slow allocation
    Arena *climbers[CLIMBERS]   # arenas of the latest slow allocations, the newest first
    uint32_t climber_count
    uint32_t looked             # index of the arena at which the rotation over all arenas stopped
    Share shares                # the sums of `Arena.burst.share` over all arenas
    uint32_t peak_rest          # new peaks to skip before a peak's composition is noted again
    uint32_t at_once            # score: from SEEN_OFTEN on, streams count as concurrent
    aclrtEvent events[EVENT_ROOM]  # unused events
    uint32_t event_count
    uint64_t moment             # number of the last wait for a context or a framework's queue
    uint64_t drained            # number of the last successful wait for a framework's queue
    Place places[PLACES]        # the contexts that were waited for last
    uint32_t place_count
    uint64_t calls[CALLS]       # by DriverCall: calls of the driver
    uint64_t failed[CALLS]      # by DriverCall: calls that returned an error
    aclError last_error         # error of the last failure to get memory
    uint64_t refused[REFUSALS]  # by Refusal: number of times that the pool could not grow
    uint64_t refused_told[REFUSALS]  # by Refusal: time in ns at which Python was last asked to log
    size_t refused_bytes[REFUSALS]  # by Refusal: bytes asked for at that time

# An open scope of `Pool.tag` in one thread. It lies on the stack of a call or in the Python object
# of the scope, which also unlinks it. Only its thread reads and writes it, so no lock.
cdef struct TagScope:
    Pool *pool
    TagScope *outer             # the scope around it
    uint16_t tag                # tag of allocations in `pool` that have no tag of their own

cdef enum Stop:                 # bits: what kept a slow allocation from getting memory
    STOP_LIMIT = 1
    STOP_HEADROOM = 2
    STOP_DRIVER = 4
    STOP_SYNC = 8               # a stream could not be waited for: busy for too long, or captured
    STOP_TABLE = 16             # the arena has MAX_RANGES ranges
    STOP_BUDGET = 32            # the budget of the block's tag has no room for it
    STOP_DEVICE = 64            # more than any device has, or than live blocks leave of this one
    STOP_CAPTURE = 128          # the stream is or may be captured, and the capture has no arena

# What one slow allocation tried, and what stopped it. Kept in thread-local variables from
# `attempt_begin` on, and copied into the OomReport of a failure. No lock.
cdef struct Attempt:
    uint32_t tried              # bit r: Rung r was tried
    uint32_t stopped            # Stop bits
    aclError status             # the last error of the driver; 0: none

# What one arena held when an allocation failed. Part of an OomReport.
cdef struct OomHold:
    aclrtStream stream
    uint32_t role               # ArenaRole
    bint donates                # other arenas may take its free pages
    size_t reserved
    size_t live
    size_t free
    size_t largest_free
    size_t whole                # bytes of pages and segments that are free as a whole
    size_t waiting              # bytes of WAITING blocks

# Why an allocation failed, and what held the memory then. `oom_note` fills it on the stack and
# copies it into the pool, which keeps the last OOMS. Under the pool's lock.
cdef struct OomReport:
    uint64_t number             # reports of a pool are numbered from 1
    size_t size                 # bytes asked for
    aclrtStream stream          # the stream of the arena that failed: "this arena" below
    size_t limit
    size_t reserved
    size_t spare                # bytes of spare frames
    size_t live                 # live bytes in all arenas
    size_t free                 # bytes in the bins of this arena
    size_t largest_free
    size_t waiting              # bytes of WAITING blocks of this arena
    size_t others               # bytes reserved by other arenas
    size_t device_free          # free bytes of the device; 0: unknown
    bint capturing              # the stream was being captured
    bint moved                  # pages were allowed to be moved
    uint16_t tag                # tag of the allocation
    Attempt attempt
    size_t missing              # bytes of memory that the best placement lacked
    size_t headroom
    size_t budget               # the limit of the tag's budget; 0: none
    size_t budget_live          # bytes counted in that budget
    size_t tags[TAGS]           # live bytes of each tag, in all arenas
    OomHold holds[HOLDS]        # this arena first, then the arenas that hold the most
    uint32_t hold_count

# Which events of a pool are recorded, and the number of recordings that want them. Part of the
# Pool. Written under the pool's lock with the GIL held; arenas read single fields without a lock.
cdef struct Notes:
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
cdef struct Peak:
    uint64_t number             # peaks that were noted so far
    uint64_t time               # clock ticks
    size_t live
    size_t requested
    size_t reserved
    size_t tags[TAGS]           # live bytes by tag; those without: by `Arena.default_tag`, if not 0
    PeakStream streams[PEAK_STREAMS]  # the first streams with live bytes, not the largest
    uint32_t stream_count

# The task queue of a framework that a pool serves; read only once it is set. Part of the Pool.
# Written by `adapters/pluggable/_door`.
cdef struct TaskQueue:
    # Waits until the framework's task queue is empty, then for the device.
    bint (*drain)(Pool *pool) noexcept nogil
    # Puts a marker at the end of the task queue, and returns it; NULL if that fails.
    void *(*mark)(Pool *pool, aclrtStream stream) noexcept nogil
    bint (*mark_done)(void *mark) noexcept nogil    # true once the stream has reached the marker
    void (*mark_drop)(void *mark) noexcept nogil

# The reports of allocations that failed, under the pool's lock. Part of the Pool.
# Written by `_oom`.
cdef struct OomReports:
    OomReport oom               # the newest report
    OomReport ooms[OOMS]        # the newest OOMS reports, each at index `number` modulo OOMS

# Whether a pool may be destroyed, under the lock of the list of pools. Part of the Pool.
# Written by `_arena`, `pool/_pool`.
cdef struct Lifetime:
    bint orphan                 # no Python Pool owns it; it is destroyed only if `dropped` is set
    bint dropped                # its Pool was deleted before it could be destroyed: try again later

# Calls of `Pool.sleep` and `Pool.wake`. Part of the Pool. Under the GIL.
# Written by `pool/_sleep`.
cdef struct SleepCalls:
    uint64_t sleeps             # calls that put blocks to sleep
    uint64_t wakes              # calls that woke blocks

# The budget of a tag. Part of the Pool; `budget_set` starts counting. Any thread changes `live` and
# `refused`, atomically.
cdef struct Budget:
    size_t limit                # most bytes of `live`; 0: no limit
    size_t live                 # live bytes of the tag, and bytes claimed for requests under way
    uint64_t refused            # allocations refused, as `live` would have exceeded `limit`

# The memory of one device. `pool_create` makes it, for a Python Pool or a framework; `pool_destroy`
# frees it once no block is live, no stream is registered and all pages are back. `lock` guards the
# list of arenas, the reports and the peak; `source` has a lock of its own.
cdef struct Pool:
    PoolOptions options
    Source source
    aclrtContext context        # current when the pool was made; NULL: the driver has none
    SpinLock lock               # guards the list of arenas, the reports and the peak
    Arena **arenas              # appended to only; the newest of `arena_tables`
    uint32_t arena_count        # published after the arena and the table
    uint32_t arena_room         # slots of `arenas`
    Arena **arena_tables[ARENA_TABLES]  # old tables are kept for readers without the lock
    uint32_t graphs             # number of arenas that were made for captures
    Arena *found[FOUND_ARENAS]  # arenas by a hash of their streams; an entry may be out of date
    Pool *next                  # in the list of all pools of the process
    bint no_virtual             # the driver has no virtual memory, or the options forbid it
    bint tagging                # new arenas are ARENA_TAGGED
    uint32_t modes              # ArenaMode bits with which new arenas begin; under `lock`
    Notes notes
    Peak peak                   # under `lock`
    TaskQueue queue
    OomReports reports
    Lifetime life
    SleepCalls sleeping
    uint64_t budgets            # bit t: tag t has a Budget; under `lock`
    Budget budget[TAGS]         # by tag; valid where the bit is set

# A copy of an arena's statistics. `arena_stats` fills the caller's struct under the arena's lock.
cdef struct ArenaStats:
    size_t allocated            # bytes of live blocks
    size_t allocated_peak
    size_t requested            # bytes that callers asked for
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
