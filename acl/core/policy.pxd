"""The tuned constants of the allocator, each with its effect, its measurement and its target.

The targets (bench/decisions.md, "What was aimed at, and reached", calls them bars):
    waste       one stream: reserved bytes are at most 1.02 of its live peak
    sharing     streams that work in turn: reserved bytes are at most 1.10 of their joint peak
    few slow    at most 0.5 % of the allocations are slow in the first pass, 0.1 % in later ones
    converge    no driver call once allocations recur
    bounded     the work of one operation does not grow with the number of blocks, streams or waits
    short       no call takes over 50 us beside 100,000 live blocks
    time        nanoseconds of the workloads W1 to W5 (bench/README.md), and of a trace's events

"Measured" names a section of bench/decisions.md.  "Not tuned" marks a value that was chosen without
measurements: no load of the tests depends on it.  The sizes of arrays are in `types.pxd`, and so is
the largest size of small blocks (CACHE_UNITS): of the sizes tried, 256 and 512 KiB wasted least
("Two kinds of address range").
"""

# Sizes, the cache and the bins: used by `_core` and `_bins`.
cdef enum:
    # 64 KiB, in units of 512 bytes.  Small blocks of at least this size may lie in ranges of large
    # blocks.  Smaller ones may not, as each could keep a page there from becoming free.  Measured:
    # if no small block may, pools with small live peaks waste 2 to 5 pages more.  Target: waste.
    MEDIUM_UNITS = 128
    # If an arena fits a small size again after more than 128 fits of other sizes, the block is not
    # cached when it is freed.  Measured: "Flushes of the cache"; if hits were counted too, the load
    # `tenants` had 0.04 percentage points more slow allocations.  Target: few slow.
    COLD_AGE = 128
    # Most cached blocks that a flush moves to the bins before the bins are tried again.  Measured:
    # 1,024 made the longest call beside 100,000 live blocks ("Pauses").  Target: short.
    FLUSHED_MOST = 256
    # If a flush of the cache found no place for a block, the cache is not flushed again until the
    # arena has had one fit for each 16 of its descriptors.  Target: time.
    FLUSHES_APART = 16
    # Most blocks of a bin that a search examines.  Measured: a random free and allocation takes 465
    # instructions, and up to 676 without this limit ("Many streams and blocks").  Target: bounded.
    BIN_DEPTH = 8

# The end of iterations: used by `_core`.  Measured together: "Iterations".
cdef enum:
    # A sentinel that is still live after this many allocations counts as long-lived.  Target:
    # converge.
    STAYS = 16384
    # When a sentinel turns out to be long-lived, up to this many other live blocks are marked as
    # long-lived too.  Measured: with 100 long-lived blocks, loads converge in two to five
    # iterations.  Target: converge.
    STAYERS = 64
    # Most descriptors that one search for a live block examines.  Not tuned.  Target: bounded.
    LIVE_LOOKED = 4096
    # In an arena with more descriptors than this, free memory is not sorted at the end of an
    # iteration.  Not tuned.  Target: bounded.
    ORDERED_MOST = 4096

# Placements and address ranges: used by `_place`.
cdef enum:
    # Most blocks that a placement covers.  Not tuned.  Target: bounded.
    RUN_LENGTH = 64
    # A range for small blocks has 1/16 of the addresses of a range for large ones.  Not tuned.
    SMALL_SHARE = 16
    # If a pool has more arenas than this, new ranges are smaller, so that the addresses suffice for
    # all arenas.  Not tuned.
    FULL_ARENAS = 16
    # Least bytes of a range in a pool with more than FULL_ARENAS arenas, unless the option
    # `virtual_bytes` is less.
    RANGE_LEAST = 1 << 30

# When the pool grows, and when it moves a page: used by `_climb`.  The unit of GROW_* is a
# thousandth of a peak.  Measured: "When to grow".
cdef enum:
    # While reserved bytes are at most 1018 thousandths of the sum of the arenas' live peaks, the
    # pool grows rather than moves pages.  The target is 1020 (waste); the other 2 thousandths are
    # for a last page that is used in part.
    GROW_ALWAYS = 1018
    # The pool grows rather than moves pages only while reserved bytes are also at most 1090
    # thousandths of the joint peak.  Target: sharing.
    GROW_JOINT = 1090
    # If reserved bytes would exceed this part of the joint peak, the pool waits for a stream rather
    # than grows.  Measured: "Sharing that waits".  Target: sharing.
    GROW_WAITING = 1095
    # The longest wait for a stream before the pool grows beyond GROW_WAITING, in ms.  Target:
    # sharing.
    SHARING_MS = 20
    # Up to this many reserved pages (or one for each arena, if that is more) the pool grows rather
    # than moves a page.  Target: converge.
    FEW_PAGES = 8
    # The price of growing by up to 1 %: after this many slow allocations that moved pages, a pool
    # that is close to its live peak may grow.  For each 1 % above the peak the price doubles,
    # PRICE_DOUBLINGS times at most.  Targets: waste, converge.
    PRICE_BORROWS = 8
    PRICE_DOUBLINGS = 32
    # If the price is at least this (4 % above the live peak), the pool has grown and still moves
    # pages.  Then aliases are allowed again.  Measured: "Aliases".  Target: converge.
    PRICE_DEAR = 128
    # The price is computed as if the live peak were at least this many pages.  Target: converge.
    PRICE_PAGES = 256
    # Without virtual memory: pages of the smallest segment that is made for large blocks.  With the
    # option `exact_segments`, it is the smallest segment for small blocks instead.
    SEGMENT_PAGES = 8
    # For a request of at least 1/16 of the device's memory, the driver is asked first whether it
    # has that much.
    MUCH_OF_DEVICE = 16

# Aliases, which are second mappings of a page: used by `_climb`.  Measured: "Aliases".
cdef enum:
    # If more than 1 in 100 allocations has moved pages since the pool last paid for growth, the
    # allocations do not recur, and an alias would not be used again.  Target: few slow.
    BORROWS_OFTEN = 100
    # For an arena whose requested bytes reached PRICE_PAGES pages, the limit is 1 in 40 of all its
    # allocations instead.  Measured: with 1 in 25, W5 reserved 1.022 of its peak; with 1 in 100,
    # small loads had more slow allocations.  Target: waste.
    BORROWS_EVER = 40
    # Until this many allocations have moved pages, BORROWS_OFTEN and BORROWS_EVER do not apply.
    BORROWS_FEW = 32
    # Most inactive mappings of an arena for each of its pages; VIEWS_FEW are allowed in any case.
    # Not tuned: each mapping costs 8 bytes of page table.
    VIEWS_MOST = 16
    VIEWS_FEW = 8192
    # After the driver has refused to map an alias this many times, the arena makes no more aliases.
    REFUSALS_MANY = 3

# Streams in turn, and concurrent streams: used by `_turns`.  Measured: "Streams in turn",
# "Concurrent streams".
cdef enum:
    # If the peak of a burst is lower than expected, the expected peak falls by 1/4 of the
    # difference; if it is higher, it becomes the expected peak.  Measured: if the highest peak ever
    # is expected, up to 12 times as many driver calls are made.  Targets: sharing, few slow.
    FORGET_SHARE = 4
    # The pages expected for a burst are 1/32 more than its bytes need, as some pages are used in
    # part.  Target: few slow.
    PARTLY_SHARE = 32
    # After each slow allocation SEEN_ONCE is added to the score `at_once` if other arenas allocated
    # in the meantime; otherwise 1 is subtracted.  While the score is at least SEEN_OFTEN, streams
    # count as concurrent.  SEEN_MOST is the highest score.  Target: time (W4).
    SEEN_ONCE = 16
    SEEN_OFTEN = 32
    SEEN_MOST = 256
    # Most arenas that one search for free pages returns.  Not tuned.  Target: bounded.
    GIVERS = 16
    # After this many arenas in a row that gave no page, a fallback step that may not wait ends.
    # Measured: "Many streams and blocks".  Target: bounded.
    VAIN_MOST = 4

# Waits, and streams that end: used by `_order`, `_arena`, `_driver`.
cdef enum:
    # `waiting_glance` stops after this many queues that still have work.  Measured: "Many streams
    # and blocks".  Target: bounded.
    GLANCED_MOST = 16
    # If this many arenas have streams that were destroyed before their work was complete, the pool
    # waits for that work.  Target: bounded.
    UNSETTLED_MOST = 64
    # Longest wait while the thread holds the GIL, in ms: the stream's work may include a Python
    # callback, which needs the GIL.  Not tuned.
    GIL_WAIT_MS = 200

# Statistics: used by `_tally`.
cdef enum:
    # The composition of a peak is noted again when the peak is higher by at least 1/2**6 of it, and
    # by at least PEAK_LEAST bytes.  Target: time.
    PEAK_SHARE = 6
    PEAK_LEAST = 1048576
    # An allocation without a driver call counts as slow if it takes at least this long, in ns.
    STALL_NS = 1000
    # After this many allocations that missed the cache, `arena_allocs` sums the hits again; until
    # then it uses the old sum.  Target: time.
    HITS_STALE = 64
