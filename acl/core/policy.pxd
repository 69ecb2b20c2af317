"""The tuned constants of the allocator, each with its effect, its measurement and its target.

Targets, called bars (bench/decisions.md, "What was aimed at, and reached"):
    waste     one stream: reserved bytes are at most 1.02 of its live peak
    turns     streams that work in turn: reserved bytes are at most 1.10 of their joint peak
    slow      at most 0.5 % slow allocations in the first pass, 0.1 % in later ones
    rest      no driver call once allocations recur
    flat      the work of one operation does not grow with the number of blocks, streams or waits
    time      nanoseconds of the workloads W1 to W5 (bench/README.md), and of an event of a trace

Names in quotes are sections of bench/decisions.md.  "A bound" is a value that was chosen, not
measured: no load of the tests depends on it.  Sizes of arrays are in `types.pxd`, and so is the
largest size of small blocks (CACHE_UNITS): of the sizes tried, 256 and 512 KiB wasted least ("Two
kinds of address range").
"""

# Sizes, the cache and the bins: `_core`, `_bins`.
cdef enum:
    # 64 KiB.  Small blocks of at least this size may be put into ranges of large blocks.  Smaller
    # ones may not, as each could keep a page there from becoming free.  Measured: if no small block
    # may, pools with small live peaks waste 2 to 5 pages more.  Bar: waste.
    MEDIUM_UNITS = 128
    # A small size that an arena's last 128 fits did not have is seldom asked for: its blocks are
    # not cached.  Measured: "Flushes of the cache"; if hits counted too, the load `tenants` had
    # 0.04 percentage points more slow allocations.  Bar: slow.
    COLD_AGE = 128
    # Most cached blocks that a flush moves to the bins before the bins are tried again.  A bound.
    # Bar: flat.
    FLUSHED_MOST = 1024
    # If a flush of the cache found no place for a block, the cache is not flushed again until the
    # arena has had one fit for each 16 of its descriptors.  Bar: time.
    FLUSHES_APART = 16
    # Most blocks of a bin that a search examines.  Measured: a random free and allocation takes 465
    # instructions; without a bound, up to 676 ("Many streams and blocks").  Bar: flat.
    BIN_DEPTH = 8

# Iterations: `_core`.  Measured as a whole: "Iterations".
cdef enum:
    # A sentinel that is still live after this many allocations is long-lived.  Bar: rest.
    STAYS = 16384
    # When a sentinel proves to be long-lived, up to this many other live blocks are marked as
    # long-lived too.  Measured: with 100 long-lived blocks, loads converge in two to five
    # iterations.  Bar: rest.
    STAYERS = 64
    # Most descriptors that one search for a live block examines.  A bound.  Bar: flat.
    LIVE_LOOKED = 4096
    # In an arena with more descriptors than this, free memory is not sorted at the end of an
    # iteration.  A bound.  Bar: flat.
    ORDERED_MOST = 4096

# Placements and ranges: `_place`.
cdef enum:
    # Most blocks that a placement covers.  A bound.  Bar: flat.
    RUN_LENGTH = 64
    # A range of small blocks has 1/16 of the addresses of a range of large ones.  A bound.
    SMALL_SHARE = 16
    # If a pool has more arenas than this, new ranges are smaller, so that the addresses suffice for
    # all.  A bound.
    FULL_ARENAS = 16
    # Least bytes of a range in a pool with more than FULL_ARENAS arenas, unless the option
    # `virtual_bytes` is less.
    RANGE_LEAST = 1 << 30

# When to grow, and when to move a page: `_climb`.  GROW_*: thousandths of a peak.  Measured: "When
# to grow".
cdef enum:
    # While reserved bytes are at most 1018 thousandths of the sum of the arenas' live peaks, the
    # pool grows rather than moves pages.  Bar: waste; the 2 thousandths below it allow for a last
    # page that is used in part.
    GROW_ALWAYS = 1018
    # The same for the joint peak; the pool grows only while both hold.  Bar: turns.
    GROW_JOINT = 1090
    # If reserved bytes would exceed this part of the joint peak, the pool waits for a stream rather
    # than grows.  Measured: "Sharing that waits".  Bar: turns.
    GROW_WAITING = 1095
    # Longest such wait before the pool grows after all, in ms.  Bar: turns.
    SHARING_MS = 20
    # Up to this many pages (up to one for each arena, if that is more) the pool grows rather than
    # moves a page.  Bar: rest.
    FEW_PAGES = 8
    # The price of growing by up to 1 %: after this many slow allocations that moved pages, the pool
    # may grow, if it is close to its live peak.  The price doubles for each 1 % above the peak,
    # PRICE_DOUBLINGS times at most.  Bars: waste, rest.
    PRICE_BORROWS = 8
    PRICE_DOUBLINGS = 32
    # A pool that pays this price (4 % above the live peak) has grown and still moves pages, so
    # aliases are allowed again.  Measured: "Aliases".  Bar: rest.
    PRICE_DEAR = 128
    # The price is computed as if the live peak were at least this many pages.  Bar: rest.
    PRICE_PAGES = 256
    # Without virtual memory: pages of the smallest segment that is made for large blocks; with the
    # option `exact_segments`, of the smallest one for small blocks instead.
    SEGMENT_PAGES = 8
    # For a request of at least 1/16 of the device's memory, the driver is asked first whether it
    # has that much.
    MUCH_OF_DEVICE = 16

# Aliases, which are second mappings of a page: `_climb`.  Measured: "Aliases".
cdef enum:
    # If more than 1 allocation in 100 has moved pages since the last growth that was paid for,
    # allocations do not recur, and an alias would not be used again.  Bar: slow.
    BORROWS_OFTEN = 100
    # In an arena whose requested bytes reached PRICE_PAGES pages, the limit is 1 allocation in 40
    # instead, and all its allocations count.  Measured: with 1 in 25, W5 reserved 1.022 of its
    # peak; with 1 in 100, small loads had more slow allocations.  Bar: waste.
    BORROWS_EVER = 40
    # With fewer allocations that moved pages, neither limit applies.
    BORROWS_FEW = 32
    # Most inactive mappings of an arena for each of its pages; VIEWS_FEW are allowed in any
    # case.  A bound: each costs 8 bytes of page table.
    VIEWS_MOST = 16
    VIEWS_FEW = 8192
    # After the driver has refused to map an alias this many times, the arena makes no more aliases.
    REFUSALS_MANY = 3

# Streams in turn, and concurrent streams: `_turns`.  Measured: "Streams in turn", "Concurrent
# streams".
cdef enum:
    # If a burst's peak is lower than expected, the expected peak falls by a quarter of the
    # difference; if it is higher, it is expected from then on.  Measured: if the highest peak ever
    # is expected, up to 12 times as many driver calls are made.  Bars: turns, slow.
    FORGET_SHARE = 4
    # Pages expected for a burst: 1/32 more than its bytes, as some pages are used in part.
    # Bar: slow.
    PARTLY_SHARE = 32
    # After each slow allocation SEEN_ONCE is added to the score `at_once` if other arenas allocated
    # meanwhile; otherwise 1 is subtracted.  While the score is at least SEEN_OFTEN, streams count
    # as concurrent.  SEEN_MOST is the highest score.  Bar: time (W4).
    SEEN_ONCE = 16
    SEEN_OFTEN = 32
    SEEN_MOST = 256
    # Most arenas that one search for free pages returns.  A bound.  Bar: flat.
    GIVERS = 16
    # After this many arenas in a row that gave no page, a fallback step that may not wait ends.
    # Measured: "Many streams and blocks".  Bar: flat.
    VAIN_MOST = 4

# Waits and ends of streams: `_order`, `_arena`, `_driver`.
cdef enum:
    # `waiting_glance` stops after this many queues with work left.  Measured: "Many streams and
    # blocks".  Bar: flat.
    GLANCED_MOST = 16
    # If this many arenas have streams that were destroyed with work left, the pool waits for them.
    # Bar: flat.
    UNSETTLED_MOST = 64
    # Longest wait with the GIL held, in ms: the work waited for may be a Python callback that needs
    # the GIL.  A bound.
    GIL_WAIT_MS = 200

# What is counted: `_tally`.
cdef enum:
    # The composition of a peak is noted again if the peak is higher by at least 1/2**6 of it, and
    # by at least PEAK_LEAST bytes.  Bar: time.
    PEAK_SHARE = 6
    PEAK_LEAST = 1048576
    # An allocation without a driver call counts as slow from this duration on, in ns.
    STALL_NS = 1000
    # After this many allocations that missed the cache, `arena_allocs` sums the hits again; until
    # then it uses the old sum.  Bar: time.
    HITS_STALE = 64
