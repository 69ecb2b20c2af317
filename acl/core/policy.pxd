"""The tuned constants of the allocator, each with its effect, its measurement and its target.

The targets (bench/decisions.md, "What was aimed at, and reached", calls them bars):
    low waste      one stream: reserved bytes are at most 1.02 of its live peak
    page sharing   streams that work in turn: reserved bytes are at most 1.10 of their joint peak
    few slow allocations    at most 0.5 % of the allocations of the first pass of a load are slow,
                            and 0.1 % of those of later passes
    convergence    no driver call once allocations recur
    bounded work   the work of one operation does not grow with the number of blocks, streams or
                   waits
    short calls    no call takes over 50 us while 100,000 blocks are live
    speed          the time in ns of the workloads W1 to W5 (bench/README.md), and of one event of a
                   recorded trace

"Measured" names a section of bench/decisions.md.  "Not tuned" marks a value that was chosen without
measurements: no load of the tests depends on it.  The sizes of arrays are in `types.pxd`.  So is
CACHE_UNITS, the largest size of small blocks: of the sizes tried, 256 and 512 KiB wasted the least
memory ("Two kinds of address range").
"""

# Sizes, the cache and the bins: used by `_core` and `_bins`.
cdef enum:
    # 64 KiB, in units of 512 bytes.  Small blocks of at least this size may lie in ranges of large
    # blocks.  Smaller ones may not, as each could keep a page there from becoming free.  Measured:
    # if no small block may, pools with small live peaks waste 2 to 5 pages more.  Target: low
    # waste.
    MEDIUM_UNITS = 128
    # If the bins of an arena serve at least 128 other allocations between two of one small size,
    # the second block of that size is not cached when it is freed.  Measured: "Flushes of the
    # cache"; if allocations that the cache serves were counted too, the load `tenants` had 0.04
    # percentage points more slow allocations.  Target: few slow allocations.
    COLD_AGE = 128
    # A flush of the cache moves up to 256 blocks to the bins; then the bins are tried again.
    # Measured: with 1,024 blocks, this flush was the longest call while 100,000 blocks were live
    # ("Pauses").  Target: short calls.
    FLUSHED_MOST = 256
    # If a flush of the cache made no room for a block, the cache is not flushed again until the
    # bins have served one allocation for each 16 descriptors of the arena.  Target: speed.
    FLUSHES_APART = 16
    # A search for a best fit examines at most this many blocks of a bin.  Measured, with frees and
    # allocations of random sizes: one free and one allocation take 465 instructions, and up to 676
    # without this limit ("Many streams and blocks").  Target: bounded work.
    BIN_DEPTH = 8

# The end of iterations: used by `_core`.  Measured together: "Iterations".
cdef enum:
    # A sentinel that is still live after this many allocations counts as long-lived.  Target:
    # convergence.
    STAYS = 16384
    # When a sentinel turns out to be long-lived, up to this many other live blocks are marked as
    # long-lived too.  Measured: with 100 long-lived blocks, loads converge in two to five
    # iterations.  Target: convergence.
    STAYERS = 64
    # One search for a live block examines at most this many descriptors.  Not tuned.  Target:
    # bounded work.
    LIVE_LOOKED = 4096
    # In an arena with more descriptors than this, free memory is not sorted at the end of an
    # iteration.  Not tuned.  Target: bounded work.
    ORDERED_MOST = 4096

# Placements and address ranges: used by `_place`.
cdef enum:
    # A placement covers at most this many blocks.  Not tuned.  Target: bounded work.
    RUN_LENGTH = 64
    # A range for small blocks has 1/16 of the addresses of a range for large ones.  Not tuned.
    SMALL_SHARE = 16
    # If a pool has more arenas than this, new ranges are smaller, so that the addresses suffice for
    # all arenas.  Not tuned.
    FULL_ARENAS = 16
    # In a pool with more than FULL_ARENAS arenas, a new range has at least 1 GiB of addresses, or
    # `virtual_bytes` if that option is smaller.
    RANGE_LEAST = 1 << 30

# When the pool grows, and when it moves a page: used by `_climb`.  The unit of GROW_* is a
# thousandth of a peak.  A peak is here one of requested bytes, without sleeping blocks.  Measured:
# "When to grow".
cdef enum:
    # While reserved bytes are at most 1018 thousandths of the sum of the arenas' peaks, the pool
    # grows rather than moves pages.  The target (low waste) allows 1020; the other 2 thousandths
    # are for a last page that is only partly used.
    GROW_ALWAYS = 1018
    # GROW_ALWAYS applies only while reserved bytes are at most 1090 thousandths of the joint peak.
    # Target: page sharing.
    GROW_JOINT = 1090
    # If reserved bytes would exceed 1095 thousandths of the joint peak, the pool waits for a stream
    # before it grows.  Measured: "Sharing that waits".  Target: page sharing.
    GROW_WAITING = 1095
    # The longest time that an allocation waits for other streams before the pool grows beyond
    # GROW_WAITING, in ms.  Target: page sharing.
    SHARING_MS = 20
    # Up to this many reserved pages (or one for each arena, if that is more) the pool grows rather
    # than moves a page.  Target: convergence.
    FEW_PAGES = 8
    # The price of growing by up to 1 % and one page, in slow allocations that moved pages: after
    # this many of them, a pool whose reserved bytes are close to its joint peak may grow.  For each
    # 1 % above that peak the price doubles, PRICE_DOUBLINGS times at most.  Targets: low waste,
    # convergence.
    PRICE_BORROWS = 8
    PRICE_DOUBLINGS = 32
    # A price of 128 or more (the pool is 4 % above its joint peak) means that growth did not end
    # the moves of pages.  From then on BORROWS_OFTEN decides in large arenas too whether aliases
    # are useful, and not BORROWS_EVER.  Measured: "Aliases".  Target: convergence.
    PRICE_DEAR = 128
    # A joint peak of fewer pages than this is priced as if it had this many.  In a pool with
    # several arenas, a joint peak of n pages, n < 256, is priced as one of 512 - n.  Target:
    # convergence.
    PRICE_PAGES = 256
    # Without virtual memory: a new segment for large blocks has at least this many pages, if the
    # driver has so much memory.  With the option `exact_segments`, the minimum applies to segments
    # for small blocks instead.
    SEGMENT_PAGES = 8
    # For a request of at least 1/16 of the device's memory, the driver is asked first whether it
    # has that much.
    MUCH_OF_DEVICE = 16

# Constants of aliases, which are second mappings of a frame: used by `_climb`.  Measured:
# "Aliases".
cdef enum:
    # If more than 1 in 100 allocations of an arena has moved pages since moved pages last paid for
    # growth, the allocations do not recur, and an alias would not be used again.  Target: few slow
    # allocations.
    BORROWS_OFTEN = 100
    # In an arena whose requested bytes ever reached PRICE_PAGES pages, allocations do not recur if
    # more than 1 in 40 of all its allocations have moved pages.  Target: low waste.
    BORROWS_EVER = 40
    # Until this many allocations have moved pages, BORROWS_OFTEN and BORROWS_EVER do not apply.
    BORROWS_FEW = 32
    # An arena may have 16 inactive mappings for each of its pages, or VIEWS_FEW if that is more.
    # Not tuned: each mapping costs 8 bytes of page table.
    VIEWS_MOST = 16
    VIEWS_FEW = 8192
    # After the driver has refused to map an alias in this many slow allocations of an arena, the
    # arena makes no more aliases.
    REFUSALS_MANY = 3

# Pages that streams share: constants of `_turns`.  Measured: see "Streams in turn" and "Concurrent
# streams" in bench/decisions.md.
cdef enum:
    # If the peak of a burst is lower than expected, the expected peak falls by 1/4 of the
    # difference.  If the peak is higher than expected, it becomes the expected peak.  Measured: if
    # an arena always expects the highest peak that it ever had, up to 12 times as many driver calls
    # are made.  Targets: page sharing, few slow allocations.
    FORGET_SHARE = 4
    # A burst is expected to need 1/32 more pages than its expected bytes fill, because its blocks
    # use some pages only partly.  Target: few slow allocations.
    PARTLY_SHARE = 32
    # After each slow allocation SEEN_ONCE is added to the score `at_once` if the bins of another
    # arena served an allocation in the meantime; otherwise 1 is subtracted.  Only the arenas in
    # `Climb.near` are looked at.  While the score is at least SEEN_OFTEN, streams count as
    # concurrent.  SEEN_MOST is the highest score.  Target: speed (workload W4).
    SEEN_ONCE = 16
    SEEN_OFTEN = 32
    SEEN_MOST = 256
    # One search for arenas with free pages returns at most this many.  Not tuned.  Target: bounded
    # work.
    GIVERS = 16
    # A fallback step that may not wait for a stream ends if this many arenas in a row gave no page.
    # Measured: "Many streams and blocks".  Target: bounded work.
    VAIN_MOST = 4

# Waits, and streams that end: used by `_order`, `_arena`, `_driver`.
cdef enum:
    # `waiting_glance` stops after this many queues whose streams are still busy.  Measured: "Many
    # streams and blocks".  Target: bounded work.
    GLANCED_MOST = 16
    # If a new stream needs an arena, and this many arenas have streams that were destroyed before
    # their work was complete, the pool waits for that work.  Target: bounded work.
    UNSETTLED_MOST = 64
    # Longest wait while the thread holds the GIL, in ms: the stream's work may include a Python
    # callback, which needs the GIL.  Not tuned.
    GIL_WAIT_MS = 200

# Statistics: used by `_tally`.
cdef enum:
    # An allocation without a driver call notes the composition of a peak only if the live bytes of
    # its arena have grown by 1/2**PEAK_SHARE, and by at least PEAK_LEAST bytes, since an allocation
    # last did so.  (Each slow allocation may note it.)  Target: speed.
    PEAK_SHARE = 6
    PEAK_LEAST = 1048576
    # An allocation that flushed the cache or reactivated mappings, without a driver call, is
    # counted among the slow ones if it takes at least this long, in ns.
    STALL_NS = 1000
    # After this many allocations that missed the cache, `arena_allocs` sums the hits again; until
    # then it uses the old sum.  Target: speed.
    HITS_STALE = 64
