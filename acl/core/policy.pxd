"""The tuned constants of the allocator, each with its effect, its measurement and its target.

Targets, called bars (bench/decisions.md, "What was aimed at, and reached"):
    waste     one stream: reserved bytes are at most 1.02 of its live peak
    turns     streams that work in turn: reserved bytes are at most 1.10 of their joint peak
    slow      at most 0.5 % slow allocations at first, 0.1 % after warm-up
    rest      no driver call once shapes repeat
    flat      the work of one operation does not grow with the number of blocks, streams or waits
    time      nanoseconds of the workloads W1 to W5 (bench/README.md), and of an event of a trace

Names in quotes are sections of bench/decisions.md.  "A bound" is a value that was chosen, not
measured: no load of the tests depends on it.  Sizes of arrays are in `types.pxd`, and so is the
largest size of small blocks (CACHE_UNITS): of the sizes tried, 256 and 512 KiB wasted least ("Two
kinds of address range").
"""

# Sizes, the cache and the bins: `_core`, `_bins`.
cdef enum:
    # 64 KiB.  Smaller blocks are never put into ranges of large blocks, where each could keep a
    # page from becoming free; small blocks from this size on may be.  Measured: if none may, small
    # live peaks waste 2 to 5 pages more.  Bar: waste.
    MEDIUM_UNITS = 128
    # If the last 128 fits of an arena had none of a small size, that size is seldom asked for, and
    # its blocks are not cached.  Measured: "Flushes of the cache"; with hits counted as well as
    # fits, the load `tenants` had 0.04 percentage points more slow allocations.  Bar: slow.
    COLD_AGE = 128
    # Most cached blocks that a flush moves to the bins before the bins are tried again.  A bound.
    # Bar: flat.
    FLUSHED_MOST = 1024
    # After a flush that found no place, the next one waits for as many fits as 1/16 of the arena's
    # descriptors.  Bar: time.
    FLUSHES_APART = 16
    # Most blocks of a bin that a search examines.  Measured: a random free and allocation takes 465
    # instructions; without a bound, up to 676 ("Many streams and blocks").  Bar: flat.
    BIN_DEPTH = 8

# Iterations: `_core`.  Measured as a whole: "Iterations".
cdef enum:
    # A sentinel that is still live after this many allocations is long-lived.  Bar: rest.
    STAYS = 16384
    # Most further live blocks marked long-lived in the same step.  Measured: with 100 long-lived
    # blocks, loads converge in two to five iterations.  Bar: rest.
    STAYERS = 64
    # Most descriptors that one search for a live block examines.  A bound.  Bar: flat.
    LIVE_LOOKED = 4096
    # In an arena with more descriptors, free memory is not sorted at the end of an iteration.  A
    # bound.  Bar: flat.
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
    # Least bytes of such a smaller range, unless the option `virtual_bytes` is less.
    RANGE_LEAST = 1 << 30

# When to grow, and when to move a page: `_climb`.  GROW_*: thousandths of a peak.  Measured: "When
# to grow".
cdef enum:
    # While reserved bytes stay within this part of the live peak, the pool grows rather than moves
    # pages.  Bar: waste; 2 thousandths are left for the last page.
    GROW_ALWAYS = 1018
    # While they stay within this part of the joint peak, it grows rather than moves.  Bar: turns.
    GROW_JOINT = 1090
    # Above this part of the joint peak, it waits for a stream rather than grows.  Measured:
    # "Sharing that waits".  Bar: turns.
    GROW_WAITING = 1095
    # Longest such wait before the pool grows after all, in ms.  Bar: turns.
    SHARING_MS = 20
    # A pool with fewer pages grows rather than moves a page.  Bar: rest.
    FEW_PAGES = 8
    # The price of growing by 1 %: after this many page moves the pool may grow, if it is close to
    # its live peak.  It doubles for each 1 % above the peak, PRICE_DOUBLINGS times at most.
    # Bars: waste, rest.
    PRICE_BORROWS = 8
    PRICE_DOUBLINGS = 32
    # From this price on (4 % above the live peak) growth has not stopped the page moves, so aliases
    # are allowed again.  Measured: "Aliases".  Bar: rest.
    PRICE_DEAR = 128
    # For the price, a smaller live peak counts as 256 pages.  Bar: rest.
    PRICE_PAGES = 256
    # Without virtual memory: pages of the smallest segment for large blocks; with `exact_segments`,
    # for small ones.
    SEGMENT_PAGES = 8
    # For a request of at least 1/16 of the device's memory, the driver is asked first whether it
    # has that much.
    MUCH_OF_DEVICE = 16

# Aliases, which are second mappings of a page: `_climb`.  Measured: "Aliases".
cdef enum:
    # If more than 1 allocation in 100 moves pages, shapes do not repeat, and an alias would not be
    # used again.  Bar: slow.
    BORROWS_OFTEN = 100
    # The limit for the rate over all allocations of an arena, if its live peak has PRICE_PAGES or
    # more: 1 in 40.  With 1 in 25, W5 reserved 1.022 of its peak; with 1 in 100, small loads had
    # more slow allocations.  Bar: waste.
    BORROWS_EVER = 40
    # These rates are not computed for fewer page moves.
    BORROWS_FEW = 32
    # Most inactive mappings of an arena for each of its pages; VIEWS_FEW are allowed in any
    # case.  A bound: each costs 8 bytes of page table.
    VIEWS_MOST = 16
    VIEWS_FEW = 8192
    # After this many refusals to map a page twice, the arena stops trying.
    REFUSALS_MANY = 3

# Streams in turn, and concurrent streams: `_turns`.  Measured: "Streams in turn", "Concurrent
# streams".
cdef enum:
    # If a burst's peak is lower than the expected one, the expected one falls by a quarter of the
    # difference.  Measured: expecting the highest peak ever makes up to 12 times the driver calls.
    # Bars: turns, slow.
    FORGET_SHARE = 4
    # Pages expected for a burst: 1/32 more than its bytes, as some pages are used in part.
    # Bar: slow.
    PARTLY_SHARE = 32
    # Added to the score `at_once` if other arenas allocated during a slow allocation; otherwise 1
    # is subtracted.  From SEEN_OFTEN on, streams count as concurrent.  SEEN_MOST is the highest
    # score.  Bar: time (W4).
    SEEN_ONCE = 16
    SEEN_OFTEN = 32
    SEEN_MOST = 256
    # Most arenas that one search for free pages returns.  A bound.  Bar: flat.
    GIVERS = 16
    # After this many arenas in a row that gave no page, the pool grows.  Measured: "Many streams
    # and blocks".  Bar: flat.
    VAIN_MOST = 4

# Waits and ends of streams: `_order`, `_arena`, `_driver`.
cdef enum:
    # `waiting_glance` stops after this many queues with work left.  Measured: "Many streams and
    # blocks".  Bar: flat.
    GLANCED_MOST = 16
    # If this many arenas have streams that were destroyed with work left, the pool waits for them.
    # Bar: flat.
    UNSETTLED_MOST = 64
    # Longest wait with the GIL held, in ms: the work may need a Python callback.  A bound.
    GIL_WAIT_MS = 200

# What is counted: `_tally`.
cdef enum:
    # The composition of a peak is noted again if the peak is higher by at least 1/2**6 of it, and
    # by at least PEAK_LEAST bytes.  Bar: time.
    PEAK_SHARE = 6
    PEAK_LEAST = 1048576
    # An allocation without a driver call counts as slow from this duration on, in ns.
    STALL_NS = 1000
    # After this many misses `arena_allocs` sums the hits again.  Bar: time.
    HITS_STALE = 64
