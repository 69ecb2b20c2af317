"""The tuned constants of the allocator: what each decides, what was measured, which bar it serves.

Bars (bench/decisions.md, "What was aimed at, and reached"):
    waste     reserved at most 1.02 of the live peak of one stream
    turns     reserved at most 1.10 of the joint peak of streams that work in turn
    slow      at most 0.5 % slow allocations at first, 0.1 % once warm
    rest      no driver call once shapes repeat
    flat      the work of one operation does not grow with the number of blocks, streams or waits
    time      nanoseconds of W1 to W5, and of an event of a trace

Names in quotes are sections of bench/decisions.md.  "A bound" is a value that no load of the tests
depends on; it was chosen, not measured.  Sizes of arrays are in `types.pxd`.  The limit of small
blocks is there too (CACHE_UNITS): of the limits tried, 256 and 512 KiB wasted least ("Two kinds of
address range").
"""

# Sizes, the cache and the bins: `_core`, `_bins`.
cdef enum:
    # 64 KiB: smaller blocks never lie among the large ones, where each could keep a page.
    # Measured: strictly apart, small live peaks wasted 2 to 5 pages more.  Bar: waste.
    MEDIUM_UNITS = 128
    # A small size without a fit among the last 128 is seldom asked for: its blocks are not cached.
    # Measured: "Flushes of the cache"; hits counted too, `tenants` had 0.04 points more slow ones.
    # Bar: slow.
    COLD_AGE = 128
    # Cached blocks moved to the bins before the bins are tried again.  A bound.  Bar: flat.
    FLUSHED_MOST = 1024
    # Between flushes that found no place: fits for 1/16 of the arena's descriptors.  Bar: time.
    FLUSHES_APART = 16
    # Most blocks of a bin that a search examines.  Measured: 465 instructions for a random
    # replacement, without a bound up to 676 ("Many streams and blocks").  Bar: flat.
    BIN_DEPTH = 8

# Iterations: `_core`.  Measured as a whole: "Iterations".
cdef enum:
    # Allocations after which a block that is still live is long-lived.  Bar: rest.
    STAYS = 16384
    # Further live blocks marked long-lived in the same step.  Measured: with 100 blocks that stay,
    # loads converge in two to five iterations.  Bar: rest.
    STAYERS = 64
    # Descriptors that one search for a live block examines.  A bound.  Bar: flat.
    LIVE_LOOKED = 4096
    # An arena with more descriptors is not put in order.  A bound.  Bar: flat.
    ORDERED_MOST = 4096

# Places and ranges: `_place`.
cdef enum:
    # Most blocks that a window covers.  A bound.  Bar: flat.
    RUN_LENGTH = 64
    # Ranges of small blocks have 1/16 of the addresses.  A bound.
    SMALL_SHARE = 16
    # In a pool with more arenas new ranges are smaller, so that addresses suffice.  A bound.
    FULL_ARENAS = 16
    # Least bytes of a range then; less if `virtual_bytes` is less.
    RANGE_LEAST = 1 << 30

# To grow, or to move a page: `_climb`.  Thousandths are of a peak.  Measured: "When to grow".
cdef enum:
    # Up to this part of the live peak, growing is better than moving pages.  Bar: waste, with 2
    # thousandths left for the last page.
    GROW_ALWAYS = 1018
    # Up to this part of the joint peak, growing is better than moving.  Bar: turns.
    GROW_JOINT = 1090
    # Above this part of the joint peak, a wait for a stream is better than growing.  Measured:
    # "Sharing that waits".  Bar: turns.
    GROW_WAITING = 1095
    # Longest wait for other streams before the pool grows that far, in ms.  Bar: turns.
    SHARING_MS = 20
    # A pool with fewer pages grows before anything moves.  Bar: rest.
    FEW_PAGES = 8
    # Page moves after which the pool grows by 1 %, close to its live peak.  The price doubles for
    # each 1 % beyond, PRICE_DOUBLINGS times at most.  Bars: waste, rest.
    PRICE_BORROWS = 8
    PRICE_DOUBLINGS = 32
    # From this price on (4 % beyond the live peak) growth has not ended the moves of pages, and
    # second mappings are tried anew.  Measured: "Aliases".  Bar: rest.
    PRICE_DEAR = 128
    # The price counts a smaller live peak as one of 256 pages.  Bar: rest.
    PRICE_PAGES = 256
    # The smallest segment of large blocks, in pages, where there is no virtual memory.
    SEGMENT_PAGES = 8
    # For a request of 1/16 of the device's memory or more, the driver is asked if it could fit.
    MUCH_OF_DEVICE = 16

# Second mappings: `_climb`.  Measured: "Aliases".
cdef enum:
    # If more than 1 allocation in 100 moves pages, shapes do not repeat, and a second mapping would
    # not be used again.  Bar: slow.
    BORROWS_OFTEN = 100
    # The same for all allocations of an arena whose live peak has PRICE_PAGES or more: 1 in 40.
    # With 1 in 25 W5 reserved 1.022, with 1 in 100 small loads had more slow ones.  Bar: waste.
    BORROWS_EVER = 40
    # From fewer page moves no such rate is computed.
    BORROWS_FEW = 32
    # Most inactive mappings of an arena for each of its pages; VIEWS_FEW in any case.  A bound: 8
    # bytes of page table each.
    VIEWS_MOST = 16
    VIEWS_FEW = 8192
    # After this many refusals to map a page twice, the arena stops trying.
    REFUSALS_MANY = 3

# Streams in turn, and at once: `_turns`.  Measured: "Streams in turn", "Concurrent streams".
cdef enum:
    # The expected peak of a burst falls by a quarter of the difference in each burst.  Measured:
    # to take the highest peak ever makes up to 12 times the calls.  Bars: turns, slow.
    FORGET_SHARE = 4
    # 1/32 more pages than the peak's bytes: some are used in part.  Bar: slow.
    PARTLY_SHARE = 32
    # Added to the score `at_once` if other arenas allocated meanwhile; otherwise 1 is subtracted.
    # From SEEN_OFTEN on streams are concurrent; SEEN_MOST is the highest score.  Bar: time (W4).
    SEEN_ONCE = 16
    SEEN_OFTEN = 32
    SEEN_MOST = 256
    # Arenas that one search for free pages finds.  A bound.  Bar: flat.
    GIVERS = 16
    # After this many arenas in a row that gave nothing, the pool grows.  Measured: "Many streams
    # and blocks".  Bar: flat.
    VAIN_MOST = 4

# Waits and ends of streams: `_order`, `_arena`, `_driver`.
cdef enum:
    # `waiting_glance` stops after this many queues with work left.  Measured: "Many streams and
    # blocks".  Bar: flat.
    GLANCED_MOST = 16
    # With this many arenas of streams that ended busy, the pool waits for them.  Bar: flat.
    UNSETTLED_MOST = 64
    # Longest wait with the GIL held, in ms: the wait may be for a callback in Python.  A bound.
    GIL_WAIT_MS = 200

# What is counted: `_tally`.
cdef enum:
    # A peak is noted again when it is 1/2**6 and PEAK_LEAST bytes higher.  Bar: time.
    PEAK_SHARE = 6
    PEAK_LEAST = 1048576
    # The pool's own time from which an allocation without a driver call is slow, in ns.
    STALL_NS = 1000
    # Misses after which `arena_allocs` sums the hits anew.  Bar: time.
    HITS_STALE = 64
