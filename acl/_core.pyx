"""The block allocator, and the C callbacks that are registered with ACL.

`alloc_fast` and `free_fast` are the fast path: they take the arena's biased lock and use an
exact-size block of the cache, or the best fit of the bins.  `alloc_slow` and `free_slow` are called
if this thread does not own the lock, as while the arena has a mode, or if there is no free block.
A slow allocation gets pages from `core/_climb`.  `core/types.pxd` has the structs and invariants.

Thread rule: any thread may call any function here; ACL's threads do.  No function uses the GIL, a
Python object or an exception.  A free of a foreign pointer or of a block that is already free is
refused and counted.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl.core cimport _arena, _bins
from acl.core._asleep cimport asleep_free
from acl.core._bins cimport (
    bin_best, bin_of, bin_of_wide, bin_remove_in, bin_swap_in, bins_above, bins_find, bins_sort,
    block_cut, block_drop, block_make, block_release, block_release_in, block_word, cache_flush,
    cache_flush_some, core_likely, size_possible, size_units, slab_take,
)
from acl.core._check cimport arena_enforce
from acl.core.types cimport (
    Arena, ARENA_CLOSED, ARENA_FORKED, ARENA_RECORDED, ARENA_SHIFT, ARENA_TAGGED, ARENA_UNLOADING,
    ARENA_WATCHED, Bins, Block, BLOCK_ASLEEP, BLOCK_CACHED, BLOCK_COLD, BLOCK_LIVE, BLOCK_SHARED,
    BLOCK_WIRED, CACHE_UNITS, DEBUG_LEVEL, MAP_SHIFT, RANGE_LARGE, RANGE_SMALL, RUNG_WAITING,
    STOP_BUDGET, STOP_CAPTURE, UNIT_SHIFT, Zone,
)
from acl.core._frames cimport free_stamp
from acl.core._oom cimport oom_note
from acl.core._climb cimport pages_obtain, pages_recall, stop_of
from acl.core._driver cimport attempt_begin, attempt_stop, context_lend, waits_begin, waits_end
from acl.core._events cimport PATH_FIT, PATH_HIT, PATH_SLOW
from acl.core._lock cimport count_read, lock_drop, lock_enter_biased, lock_leave_biased, lock_take
from acl.core._order cimport block_park, capture_owner, waiting_glance, waiting_wait
from acl.core._captures cimport capture_look, capture_of
from acl.core._pages cimport pages_home
from acl.core._place cimport Window
from acl.core._record cimport record_alloc, record_enter, record_free, record_oom, record_ticks
from acl.core._tally cimport (
    arena_allocs, budget_add, budget_claim, budget_settle, budget_take, budgeted, no_scopes,
    peak_next, peak_note, slow_begin, slow_end, stall_end, tag_of_thread,
)
from acl.core.policy cimport (
    COLD_AGE, FLUSHED_MOST, FLUSHES_APART, LIVE_LOOKED, MEDIUM_UNITS, ORDERED_MOST, STAYERS, STAYS,
)

cdef extern from *:
    """
    static uint64_t strays;
    static void *stray_add(void) { __atomic_fetch_add(&strays, 1, __ATOMIC_RELAXED); return NULL; }
    static uint64_t stray_sum(void) { return __atomic_load_n(&strays, __ATOMIC_RELAXED); }
    """
    void *stray_add() nogil
    uint64_t stray_sum() nogil

if sizeof(Block) != 64:
    raise ImportError(f"a block descriptor has {sizeof(Block)} bytes, not 64")
if sizeof(Arena) > 1 << ARENA_SHIFT:
    raise ImportError(f"an arena has {sizeof(Arena)} bytes, more than {1 << ARENA_SHIFT}")

cdef Zone zone
_bins.core_zone = &zone
_arena.on_own = no_scopes

cdef enum:
    CACHE_BYTES = 524288        # CACHE_UNITS << UNIT_SHIFT: bytes of the largest cached block


cdef inline void leave_biased(Arena *arena) noexcept nogil:
    if DEBUG_LEVEL >= 2:
        arena_enforce(arena)
    lock_leave_biased(&arena.lock)


cdef inline void leave(Arena *arena) noexcept nogil:
    if DEBUG_LEVEL >= 2:
        arena_enforce(arena)
    lock_drop(&arena.lock)


# --- allocation ---------------------------------------------------------------------------------

cdef inline void block_hand_out_below(Arena *arena, Block *block, size_t size, uint16_t tag,
                                      size_t live, uint32_t flags) noexcept nogil:
    """Make a block live; the caller updates `live_peak`.  `live`: the new value of `arena.live`."""
    cdef size_t requested = arena.requested + size
    block_word(block)[0] = <uint32_t> BLOCK_LIVE | flags << 8 | <uint32_t> tag << 16
    block.requested = size
    arena.live = live
    arena.requested = requested
    if requested > arena.requested_peak:
        arena.requested_peak = requested
    if tag != 0:
        arena.tag_live[tag] += block.size
        arena.tag_blocks[tag] += 1
        arena.tags |= <uint64_t> 1 << tag
        if budgeted(arena, tag):
            budget_add(arena, tag, block.size)


cdef inline void block_hand_out(Arena *arena, Block *block, size_t size, uint16_t tag,
                                uint32_t flags) noexcept nogil:
    cdef size_t live = arena.live + block.size
    block_hand_out_below(arena, block, size, tag, live, flags)
    if live > arena.live_peak:
        arena.live_peak = live


cdef inline bint peak_due(Arena *arena) noexcept nogil:
    """Under the lock: return True if the caller must call `peak_note` after it has unlocked."""
    if core_likely(arena.live <= arena.recording.alarm):
        return False
    arena.recording.alarm = peak_next(arena.live)
    return True


cdef inline void count_served(Arena *arena, size_t units) noexcept nogil:
    """Count an allocation that the cache did not serve, in the bin of its size."""
    arena.tally.bin_counts[bin_of(units)] += 1


cdef inline uint32_t count_fit(Arena *arena, size_t units, uint32_t kind) noexcept nogil:
    """Count a fit.  Return BLOCK_COLD for a small size without a recent fit (COLD_AGE), else 0."""
    cdef uint32_t now, seen
    arena.counters.fits += 1
    count_served(arena, units)
    if kind != RANGE_SMALL:
        return 0
    now = <uint32_t> arena.counters.fits        # the lower 32 bits suffice to compute differences
    seen = arena.tally.class_seen[units]
    arena.tally.class_seen[units] = now
    return BLOCK_COLD if seen != 0 and now - seen > COLD_AGE else 0


cdef Block *hand_out_peak(Arena *arena, Block *block, size_t size, uint16_t tag,
                          uint32_t flags) noexcept nogil:
    """Hand out a block that raises `live_peak`, and unlock.  The caller counted the hit or fit."""
    cdef bint due
    block_hand_out(arena, block, size, tag, flags)
    due = peak_due(arena)
    leave_biased(arena)
    if due:
        peak_note(arena, False)
    return block


cdef inline uint32_t kind_of(size_t units) noexcept nogil:
    return <uint32_t> (RANGE_SMALL if units <= CACHE_UNITS else RANGE_LARGE)


cdef inline Block *cache_pop(Arena *arena, size_t units) noexcept nogil:
    cdef Block *block = arena.cache[units]
    if core_likely(block != NULL):
        arena.cache[units] = block.links.next
    return block


cdef inline void cache_push(Arena *arena, Block *block, size_t size) noexcept nogil:
    cdef size_t units = size >> UNIT_SHIFT
    block_word(block)[0] = BLOCK_CACHED
    block.links.next = arena.cache[units]
    arena.cache[units] = block
    arena.cached[units] = 1


cdef inline Block *block_fit(Arena *arena, Block *block, size_t size) noexcept nogil:
    """Cut a block that is on no list to `size`, and return it.

    If there is no descriptor for the remainder, release the block and return NULL.
    """
    cdef Block *rest
    if block.size == size:
        return block
    rest = block_make(arena)
    if rest == NULL:
        block_release(arena, block)
        return NULL
    block.state = BLOCK_LIVE  # so that `block_release` does not join `rest` to `block`
    block_cut(block, rest, size)
    block_release(arena, rest)
    return block


cdef inline void free_cut_in(Bins *bins, Block *block, Block *rest, size_t size,
                             uint32_t kind) noexcept nogil:
    """Cut a FREE block: take its lower `size` bytes off all lists; put the remainder in a bin."""
    cdef size_t more = block.size - size
    block_cut(block, rest, size)
    bin_swap_in(bins, block, rest, more, kind)  # no join: the block above `rest` is not FREE (I2)


cdef inline Block *bins_take_in(Arena *arena, size_t units, uint32_t kind) noexcept nogil:
    """Remove the best fit from the bins, cut and return it; NULL: no fit or no descriptor."""
    cdef Bins *bins = &arena.bins
    cdef Block *block = bins_find(bins, units, kind)
    cdef Block *rest
    if block == NULL:
        return NULL
    if block.size == units << UNIT_SHIFT:
        bin_remove_in(bins, block, kind)
        return block
    rest = block_make(arena)
    if rest == NULL:
        return NULL
    free_cut_in(bins, block, rest, units << UNIT_SHIFT, kind)
    return block


cdef Block *bins_take(Arena *arena, size_t units) noexcept nogil:
    return bins_take_in(arena, units, kind_of(units))


cdef Block *alloc_fit_small(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    """As the lock's owner, allocate a small block from the bins or by `alloc_slow`; unlock."""
    cdef size_t units = size_units(size)
    cdef Block *block = bins_take_in(arena, units, RANGE_SMALL)
    cdef uint32_t flags
    cdef size_t live
    if not core_likely(block != NULL):
        return alloc_miss(arena, size, tag)
    flags = count_fit(arena, units, RANGE_SMALL)
    live = arena.live + block.size
    if not core_likely(live <= arena.live_peak):
        return hand_out_peak(arena, block, size, tag, flags)
    block_hand_out_below(arena, block, size, tag, live, flags)
    leave_biased(arena)
    return block


cdef inline Block *large_give(Arena *arena, Block *block, uint32_t index, size_t size,
                              size_t units) noexcept nogil:
    """Cut a large block out of a free one, hand it out, unlock.  `arena.spare` must not be NULL."""
    cdef size_t bytes = units << UNIT_SHIFT
    cdef size_t live = arena.live + bytes
    cdef Block *rest
    if block.size == bytes:
        bin_remove_in(&arena.bins, block, RANGE_LARGE)
    else:
        rest = arena.spare
        arena.spare = rest.links.next
        free_cut_in(&arena.bins, block, rest, bytes, RANGE_LARGE)
    arena.counters.fits += 1
    arena.tally.bin_counts[index] += 1
    if not core_likely(live <= arena.live_peak):
        return hand_out_peak(arena, block, size, 0, 0)
    block_hand_out_below(arena, block, size, 0, live, 0)
    leave_biased(arena)
    return block


cdef Block *alloc_fit_large(Arena *arena, size_t size, size_t units) noexcept nogil:
    """Allocate a large block without a tag, and unlock.  The caller holds the lock as its owner.

    The cache has no large blocks.  All calls are tail calls, so that a fit saves no registers; for
    this, rare paths and loops are in functions of their own.
    """
    cdef uint32_t index = bin_of_wide(units)
    cdef Block *block
    if not core_likely(size_possible(size) and arena.spare != NULL):
        return alloc_spare(arena, size, units)
    if arena.bins.maps[index >> MAP_SHIFT] >> (index & 63) & 1:
        return alloc_fit_own(arena, size, units, index)
    block = bins_above(&arena.bins, index, RANGE_LARGE)
    if not core_likely(block != NULL):
        return alloc_miss(arena, size, 0)
    return large_give(arena, block, index, size, units)


cdef Block *alloc_fit_own(Arena *arena, size_t size, size_t units, uint32_t index) noexcept nogil:
    """Finish `alloc_fit_large` when the bin of the requested size is not empty."""
    cdef Block *block = bin_best(&arena.bins.heads[index], units << UNIT_SHIFT)
    if block == NULL:
        block = bins_above(&arena.bins, index, RANGE_LARGE)
    if block == NULL:
        return alloc_miss(arena, size, 0)
    return large_give(arena, block, index, size, units)


cdef Block *alloc_spare(Arena *arena, size_t size, size_t units) noexcept nogil:
    """Finish `alloc_fit_large` when no descriptor is spare or `size` is impossible."""
    cdef Block *spare
    if not size_possible(size):
        return alloc_miss(arena, size, 0)
    spare = slab_take(arena)
    if spare == NULL:
        return alloc_miss(arena, size, 0)
    block_drop(arena, spare)
    return alloc_fit_large(arena, size, units)


cdef Block *alloc_miss(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    lock_leave_biased(&arena.lock)
    return alloc_slow(arena, size, tag)


cdef inline Block *alloc_fast(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    """Allocate if this thread owns the lock, else tail-call `alloc_slow`, to save no register."""
    cdef size_t units = size_units(size)
    cdef size_t live
    cdef Block *block
    if not core_likely(lock_enter_biased(&arena.lock)):
        return alloc_slow(arena, size, tag)
    if not core_likely(units <= CACHE_UNITS):
        if tag != 0:
            return alloc_miss(arena, size, tag)
        return alloc_fit_large(arena, size, units)
    block = cache_pop(arena, units)
    if not core_likely(block != NULL):
        return alloc_fit_small(arena, size, tag)
    arena.tally.class_hits[units] += 1
    live = arena.live + block.size
    if not core_likely(live <= arena.live_peak):
        return hand_out_peak(arena, block, size, tag, 0)
    block_hand_out_below(arena, block, size, tag, live, 0)
    leave_biased(arena)
    return block


cdef Block *bins_take_medium(Arena *arena, size_t units) noexcept nogil:
    """Take a block of 64 to 512 KiB from the large ranges.  NULL for other sizes, or if none fits.

    Called if no small range has room: then no new page is mapped, which would be a large share of a
    small live peak.  Blocks below 64 KiB are left out: each of them could keep a page of a large
    range from becoming free.
    """
    if units < MEDIUM_UNITS or units > CACHE_UNITS:
        return NULL
    return bins_take_in(arena, units, RANGE_LARGE)


cdef bint flushed_in_vain(Arena *arena) noexcept nogil:
    """True if the last flush made no room and the bins served few blocks since (FLUSHES_APART)."""
    cdef uint64_t blocks = arena.slab_used // sizeof(Block)
    return (arena.iteration.vain_flush != 0
            and arena.counters.fits - arena.iteration.vain_flush < blocks // FLUSHES_APART)


cdef Block *alloc_warm(Arena *arena, size_t size, uint16_t tag, Window *window) noexcept nogil:
    """Allocate without a driver call, or return NULL.  The caller holds the lock.

    Try the cache, the bins, the bins after a flush of the cache, and inactive mappings.  If all
    fail, `window` has the placement that was found for `alloc_climb`; `first` is NULL if none was.
    """
    cdef size_t units = size_units(size)
    cdef Block *block
    cdef uint64_t began
    cdef uint32_t flushed = FLUSHED_MOST
    window.first = NULL
    if not size_possible(size):
        return NULL  # no device has this much memory, and no bin is for such sizes
    if units <= CACHE_UNITS:
        block = cache_pop(arena, units)
        if block != NULL:
            block_hand_out(arena, block, size, tag, 0)
            arena.tally.class_hits[units] += 1
            return block
    block = bins_take(arena, units)
    if block == NULL:
        began = slow_begin()
        if flushed_in_vain(arena):
            block = bins_take_medium(arena, units)
        while block == NULL and units <= CACHE_UNITS and flushed == FLUSHED_MOST:
            flushed = cache_flush_some(arena, FLUSHED_MOST)
            block = bins_take(arena, units)
        if block == NULL:
            arena.iteration.vain_flush = arena.counters.fits
            block = bins_take_medium(arena, units)
        if block != NULL:
            stall_end(arena, began)
    if block != NULL:
        block_hand_out(arena, block, size, tag, count_fit(arena, units, kind_of(units)))
        return block
    block = pages_recall(arena, units << UNIT_SHIFT, kind_of(units), window)
    if block == NULL and arena.maps.shadows > 0 and cache_flush_some(arena, FLUSHED_MOST) != 0:
        # `alloc_climb` would flush the cache too, but then map pages, not reactivate mappings.
        block = bins_take(arena, units)
        if block == NULL:
            block = pages_recall(arena, units << UNIT_SHIFT, kind_of(units), window)
    if block != NULL:
        block = block_fit(arena, block, units << UNIT_SHIFT)
    if block != NULL:
        block_hand_out(arena, block, size, tag, 0)
        block_wire(arena, block)
        stall_end(arena, began)
        arena.counters.recalls += 1
        count_served(arena, units)
    return block


cdef Block *alloc_climb(Arena *arena, size_t size, uint16_t tag, Window *window) noexcept nogil:
    """Allocate from pending frees or by the fallback steps, or return NULL.  Unlock in between."""
    cdef size_t bytes = size_units(size) << UNIT_SHIFT
    cdef Block *block = NULL
    cdef uint64_t began = slow_begin()
    cdef bint virtual = not arena.pool.no_virtual
    attempt_begin()
    waits_begin(arena.pool)
    context_lend(arena.pool)
    arena.counters.slow += 1
    arena.climbing += 1
    if not size_possible(size):
        attempt_stop(stop_of(arena.pool, size))
    else:
        if arena.order.waiting != NULL:
            window.first = NULL  # other threads may take its pages while the lock is open
            block = alloc_waiting(arena, bytes, False)
        if block == NULL:
            block = pages_obtain(arena, bytes, kind_of(bytes >> UNIT_SHIFT), window)
            # The attempt has shown that the driver has no virtual memory: try again, with segments.
            if block == NULL and virtual and arena.pool.no_virtual:
                block = pages_obtain(arena, bytes, kind_of(bytes >> UNIT_SHIFT), window)
            if block != NULL:
                block = block_fit(arena, block, bytes)
        if block == NULL and not arena.order.early and arena.order.waiting != NULL:
            block = alloc_waiting(arena, bytes, True)
    arena.climbing -= 1
    waits_end()
    slow_end(arena, began)
    if block == NULL:
        arena.counters.failures += 1
        return NULL
    count_served(arena, bytes >> UNIT_SHIFT)
    block_hand_out(arena, block, size, tag, 0)
    block_wire(arena, block)
    return block


cdef void block_wire(Arena *arena, Block *block) noexcept nogil:
    """Make `block` the sentinel if there is none, or if the old sentinel is long-lived by now."""
    cdef uint64_t now = arena_allocs(arena)
    cdef Block *before = arena.iteration.wired
    if before != NULL and now - arena.iteration.wired_at < STAYS:
        return
    arena.iteration.wired = block
    arena.iteration.wired_at = now
    block.flags |= BLOCK_WIRED
    if before != NULL:
        arena.iteration.staying += before.size
        stayers_mark(arena)


cdef Block *alloc_waiting(Arena *arena, size_t bytes, bint sync) noexcept nogil:
    """End complete pending frees, after a wait if `sync`.  Return a fitting block, or NULL."""
    cdef Block *block
    cdef bint released
    lock_drop(&arena.lock)
    released = (waiting_wait(arena) if sync else waiting_glance(arena)) > 0
    lock_take(&arena.lock)
    if not released:
        return NULL
    block = bins_take(arena, bytes >> UNIT_SHIFT)
    if block != NULL:
        arena.counters.rungs[<uint32_t> RUNG_WAITING] += 1
    return block


cdef Block *alloc_refused(Arena *arena) noexcept nogil:
    """Count an allocation that is refused before the first fallback step.  Return NULL."""
    lock_take(&arena.lock)
    arena.counters.slow += 1
    arena.counters.failures += 1
    lock_drop(&arena.lock)
    return NULL


cdef Block *alloc_captured(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    """Allocate if a mode or a budget applies; for a captured stream, use the capture's arena."""
    cdef Arena *capture
    cdef uint32_t mode = count_read(&arena.mode)
    if mode & (ARENA_FORKED | ARENA_CLOSED):
        return alloc_refused(arena)
    if mode & ARENA_TAGGED and tag == 0:
        tag = tag_of_thread(arena.pool)
    if mode & ARENA_WATCHED and not capture_look(arena):
        attempt_begin()
        attempt_stop(STOP_CAPTURE)      # a block of this arena would become part of the graph
        oom_note(arena, size, tag)
        return alloc_refused(arena)
    capture = capture_of(arena)
    if capture != NULL:
        arena = capture
    return alloc_budgeted(arena, size, tag) if budgeted(arena, tag) else alloc_in(arena, size, tag)


cdef Block *alloc_budgeted(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    """Do as `alloc_in`, for a tag with a budget."""
    cdef Block *block
    if not budget_claim(arena, size, tag):
        attempt_begin()
        attempt_stop(STOP_BUDGET)
        record_oom(arena, size, tag, oom_note(arena, size, tag))
        return alloc_refused(arena)
    block = alloc_in(arena, size, tag)
    budget_settle(arena, tag)
    return block


cdef Block *alloc_recorded(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    """Do as `alloc_in`, for an arena that is recorded."""
    cdef Block *block
    cdef uint64_t fits, began
    cdef Window window
    cdef uint32_t path = PATH_SLOW
    cdef bint due
    record_enter(arena)
    lock_take(&arena.lock)
    fits = arena.counters.fits + arena.counters.recalls
    block = alloc_warm(arena, size, tag, &window)
    if block != NULL:
        path = PATH_FIT if arena.counters.fits + arena.counters.recalls > fits else PATH_HIT
        record_alloc(arena, block, path, 0)
    else:
        began = record_ticks()
        block = alloc_climb(arena, size, tag, &window)
        if block != NULL:
            record_alloc(arena, block, PATH_SLOW, record_ticks() - began)
    due = peak_due(arena) or path == PATH_SLOW
    leave(arena)
    if due:
        peak_note(arena, path == PATH_SLOW)
    if block == NULL:
        record_oom(arena, size, tag, oom_note(arena, size, tag))
    return block


cdef Block *alloc_in(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    cdef Block *block
    cdef Window window
    cdef bint due
    cdef bint climbed
    if count_read(&arena.mode) & ARENA_RECORDED:
        return alloc_recorded(arena, size, tag)
    lock_take(&arena.lock)
    block = alloc_warm(arena, size, tag, &window)
    climbed = block == NULL
    if climbed:
        block = alloc_climb(arena, size, tag, &window)
    due = peak_due(arena) or climbed  # a slow allocation may make a new joint peak
    leave(arena)
    if due:
        peak_note(arena, climbed)
    if block == NULL:
        oom_note(arena, size, tag)
    return block


cdef Block *alloc_slow(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    if count_read(&arena.mode) != 0:
        return alloc_captured(arena, size, tag)
    return alloc_in(arena, size, tag)


cdef Block *arena_alloc(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    if budgeted(arena, tag):
        return alloc_captured(arena, size, tag)
    return alloc_fast(arena, size, tag)


cdef Block *try_shared(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    cdef Block *block = NULL
    cdef Window window
    cdef bint due
    if count_read(&arena.mode) & ~<uint32_t> ARENA_TAGGED == 0 and not budgeted(arena, tag):
        lock_take(&arena.lock)
        block = alloc_warm(arena, size, tag, &window)
        due = peak_due(arena)
        leave(arena)
        if due:
            peak_note(arena, False)
    return block


cdef Block *arena_try(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    cdef size_t units = size_units(size)
    cdef size_t live
    cdef Block *block
    if units > CACHE_UNITS or budgeted(arena, tag) or not core_likely(
            lock_enter_biased(&arena.lock)):
        return try_shared(arena, size, tag)
    block = cache_pop(arena, units)
    if not core_likely(block != NULL):
        lock_leave_biased(&arena.lock)
        return try_shared(arena, size, tag)
    arena.tally.class_hits[units] += 1
    live = arena.live + block.size
    if not core_likely(live <= arena.live_peak):
        return hand_out_peak(arena, block, size, tag, 0)
    block_hand_out_below(arena, block, size, tag, live, 0)
    leave_biased(arena)
    return block


# --- freeing ------------------------------------------------------------------------------------

cdef inline bint is_descriptor(Arena *arena, Block *block) noexcept nogil:
    """True if `block` points to a descriptor of this arena.  `block` may be any value."""
    cdef size_t offset = <size_t> (<char *> block - arena.slab)
    # If the offset is not a multiple of 64, the rotated value exceeds any descriptor number.
    return core_likely((offset >> 6 | offset << 58) < arena.slab_blocks)


cdef inline void block_count_back(Arena *arena, Block *block) noexcept nogil:
    """Subtract a block from the counts of live blocks (I7)."""
    arena.live -= block.size
    arena.requested -= block.requested
    if block.tag != 0:
        arena.tag_live[block.tag] -= block.size
        arena.tag_blocks[block.tag] -= 1
        if budgeted(arena, block.tag):
            budget_take(arena, block.tag, block.size)


cdef bint free_fit(Arena *arena, Block *block) noexcept nogil:
    """Free a large block without a tag, and unlock.  The caller holds the lock as its owner."""
    if DEBUG_LEVEL >= 1:
        free_stamp(arena, block)
    arena.live -= block.size
    arena.requested -= block.requested
    block_release_in(arena, block, RANGE_LARGE)
    leave_biased(arena)
    return True


cdef bint free_odd(Arena *arena, Block *block) noexcept nogil:
    """As the lock's owner, free a block with a tag or BLOCK_COLD; other pointers: `free_slow`."""
    if (is_descriptor(arena, block) and block.state == BLOCK_LIVE
            and block.flags & ~<uint32_t> BLOCK_COLD == 0):
        block_count_back(arena, block)
        if DEBUG_LEVEL >= 1:
            free_stamp(arena, block)
        if block.size > CACHE_BYTES or block.flags != 0:
            block_release(arena, block)
        else:
            cache_push(arena, block, block.size)
        leave_biased(arena)
        return True
    lock_leave_biased(&arena.lock)
    return free_slow(arena, block)


cdef inline bint free_fast(Arena *arena, Block *block) noexcept nogil:
    """Free if this thread owns the lock, else tail-call `free_slow`, to save no register."""
    cdef size_t size
    if not core_likely(lock_enter_biased(&arena.lock)):
        return free_slow(arena, block)
    # One comparison tests that the block is live and has no flags and no tag.
    if not core_likely(is_descriptor(arena, block) and block_word(block)[0] == BLOCK_LIVE):
        return free_odd(arena, block)
    size = block.size
    if size > CACHE_BYTES:
        return free_fit(arena, block)
    arena.live -= size
    arena.requested -= block.requested
    if DEBUG_LEVEL >= 1:
        free_stamp(arena, block)
    cache_push(arena, block, size)
    leave_biased(arena)
    return True


cdef bint free_slow(Arena *arena, Block *block) noexcept nogil:
    cdef Arena *capture
    cdef bint live
    lock_take(&arena.lock)
    live = is_descriptor(arena, block) and block.state == BLOCK_LIVE
    if live:
        block_count_back(arena, block)
        if block.flags & BLOCK_WIRED and block != arena.iteration.wired:
            arena.iteration.staying -= block.size
        if DEBUG_LEVEL >= 1 and not block.flags & BLOCK_ASLEEP:
            free_stamp(arena, block)
        if arena.mode & ARENA_RECORDED:
            record_free(arena, block)
        if block.flags & BLOCK_ASLEEP:
            asleep_free(arena, block)
        elif block.flags & BLOCK_SHARED or arena.mode & (ARENA_UNLOADING | ARENA_FORKED):
            block_park(arena, block)
        elif block.size <= CACHE_BYTES and not block.flags & BLOCK_COLD:
            cache_push(arena, block, block.size)
        else:
            block_release(arena, block)
        if block == arena.iteration.wired:
            round_look(arena)
    leave(arena)
    if live:
        return True
    capture = capture_owner(arena, block)
    if capture != NULL:
        return free_fast(capture, block)
    lock_take(&arena.lock)
    arena.counters.refused += 1
    lock_drop(&arena.lock)
    return False


cdef void round_look(Arena *arena) noexcept nogil:
    """The sentinel was freed: end the iteration if only long-lived blocks live, else replace it."""
    cdef Block *block
    arena.iteration.wired = NULL
    if arena.live == arena.iteration.staying:
        round_end(arena)
        return
    block = live_find(arena)
    if block != NULL:  # if NULL, the block of the next slow allocation becomes the sentinel
        block_wire(arena, block)


cdef void stayers_mark(Arena *arena) noexcept nogil:
    """Mark up to STAYERS further live blocks as long-lived."""
    cdef uint32_t _count
    cdef Block *block
    for _count in range(<uint32_t> STAYERS):
        block = live_find(arena)
        if block == NULL:
            return
        block.flags |= BLOCK_WIRED
        arena.iteration.staying += block.size


cdef void round_end(Arena *arena) noexcept nogil:
    """End an iteration: put free memory in order, so that the next one gets the same addresses."""
    if (arena.counters.steals != 0  # if no page ever moved, free memory is in order already
            and arena.slab_used <= ORDERED_MOST * sizeof(Block)):
        cache_flush(arena)
        pages_home(arena)
        bins_sort(arena)
    arena.iteration.emptied = arena_allocs(arena)


cdef Block *live_find(Arena *arena) noexcept nogil:
    """Return a live block without BLOCK_WIRED among the next LIVE_LOOKED descriptors, or NULL."""
    cdef size_t left = min(arena.slab_used, <size_t> LIVE_LOOKED * sizeof(Block))
    cdef Block *block
    while left > 0:
        if arena.iteration.looked >= arena.slab_used:
            arena.iteration.looked = 0
        block = <Block *> (arena.slab + arena.iteration.looked)
        arena.iteration.looked += sizeof(Block)
        left -= sizeof(Block)
        if block.state == BLOCK_LIVE and block.flags & BLOCK_WIRED == 0:
            return block
    return NULL


cdef bint arena_free(Arena *arena, Block *block) noexcept nogil:
    return free_fast(arena, block)


# The next two functions rotate the offset, as `is_descriptor` does: if the offset is not a multiple
# of the size of a slot or descriptor, the result is larger than the number of any of them.

cdef inline bint zone_has_arena(const void *allocator) noexcept nogil:
    cdef size_t offset = <size_t> (<const char *> allocator - zone.arenas)
    return core_likely(
        (offset >> ARENA_SHIFT | offset << 64 - ARENA_SHIFT) < zone.arenas_made)


cdef inline bint zone_has_block(const void *block) noexcept nogil:
    cdef size_t offset = <size_t> (<const char *> block - zone.blocks)
    return core_likely((offset >> 6 | offset << 58) < zone.blocks_open)


cdef bint is_arena(const void *allocator) noexcept nogil:
    return zone_has_arena(allocator)


cdef void *stray_count() noexcept nogil:
    return stray_add()


cdef uint64_t strays_read() noexcept nogil:
    return stray_sum()


cdef void *on_alloc(aclrtAllocator allocator, size_t size) noexcept nogil:
    if not zone_has_arena(allocator):
        return stray_add()
    return alloc_fast(<Arena *> allocator, size, 0)


cdef void on_free(aclrtAllocator allocator, aclrtAllocatorBlock block) noexcept nogil:
    if zone_has_arena(allocator):
        free_fast(<Arena *> allocator, <Block *> block)
    else:
        stray_add()


cdef void *on_alloc_advise(aclrtAllocator allocator, size_t size,
                           aclrtAllocatorAddr addr) noexcept nogil:
    # CANN's graph engine never calls this.  `addr` is only advice; the best fit wastes less memory.
    return on_alloc(allocator, size)


cdef void *on_get_addr(aclrtAllocatorBlock block) noexcept nogil:
    cdef void *addr
    if not zone_has_block(block):
        return stray_add()
    addr = (<Block *> block).addr               # NULL: unused descriptor, or its pool was destroyed
    return addr if core_likely(addr != NULL) else stray_add()
