"""Blocks that are asleep: live, at the same addresses, without memory.

A sleeping block is LIVE with BLOCK_ASLEEP, and has a sleep record (`Nap`) that says where its bytes
are kept.  If no awake block uses a page, the page sleeps: it is unmapped, and its frame is given to
the driver.  The free parts of a sleeping page are VOID: they are not holes, and they are not
allocated until the page has memory again (I15).

A sleep batch (`Turn`) puts blocks of one arena to sleep or wakes them, from `turn_begin` to
`turn_end`.  An arena has at most one batch at a time.  While blocks are put to sleep, the free
parts of the pages that no awake block uses are VOID.  So no work is queued there between the wait
for the streams and the unmapping.  A block that is freed during its batch is MOVING until the batch
ends.  If a block is freed while it is asleep, its sleeping pages become holes, its pages with
memory become free, and its parts of sleeping pages that it shares with other blocks become VOID.  A
freed block of a graph stays MOVING with its Nap instead.  Its pages get memory again in the next
wake, as the graph still uses their addresses.

No lock is held during a driver call.  Blocks in segments do not sleep, as a segment cannot be
unmapped page by page.  Guarded blocks do not sleep, as their guard bytes are checked when they are
freed.  `_sleep.pyx` makes the host copies; `naps_reclaim` here frees them.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

from acl.bind.generated cimport _libacl
from acl.core._bins cimport (
    block_cut, block_join, block_make, block_release, cache_flush, hole_release, use_bed,
)
from acl.core.types cimport (
    ARENA_FORKED, ARENA_UNLOADING, BLOCK_ASLEEP, BLOCK_FREE, BLOCK_GUARDED, BLOCK_HELD, BLOCK_LIVE,
    BLOCK_MOVING, BLOCK_SHARED, BLOCK_VOID, Chunk, Frame, NAP_BEDS, Pinned, ROLE_CAPTURE,
    RUNG_DRIVER, Range, Use, View, DEBUG_LEVEL,
)
from acl.core._driver cimport frame_make, frame_map, frame_return, source_take
from acl.core._events cimport EVENT_MAP, EVENT_SLEEP, EVENT_WAKE
from acl.core._frames cimport (
    free_stamp, page_enforce, view_hold, view_make, views_doom, views_restore,
)
from acl.core._space cimport page_backed, block_end, page_ceil, page_floor, range_of
from acl.bind.generated._libacl cimport ACL_SUCCESS
from acl.core._lock cimport SpinLock, count_read, lock_drop, lock_take, spin_enter, spin_leave
from acl.core._order cimport block_park
from acl.core._pages cimport (
    pages_donate, pages_may_leave, piece_detach, pieces_unmap, views_retry, views_settle,
)
from acl.core._record cimport record_block, record_note, record_trims


cdef SpinLock pinned_lock       # guards `Pinned.users` of all pinned memory


# --- naps ---------------------------------------------------------------------------------------

cdef inline Nap **bed_of(Arena *arena, Block *block) noexcept nogil:
    return &arena.sleep.naps[(<uintptr_t> block >> 6) % NAP_BEDS]


cdef Nap *nap_find(Arena *arena, Block *block) noexcept nogil:
    cdef Nap *nap = bed_of(arena, block)[0] if arena.sleep.naps != NULL else NULL
    while nap != NULL and nap.block != block:
        nap = nap.next
    return nap


cdef Nap *nap_begin(Arena *arena, Block *block) noexcept nogil:
    cdef Nap *nap = <Nap *> calloc(1, sizeof(Nap))
    cdef Nap **bed
    if arena.sleep.naps == NULL:
        arena.sleep.naps = <Nap **> calloc(NAP_BEDS, sizeof(Nap *))
    if nap == NULL or arena.sleep.naps == NULL:
        free(nap)
        return NULL
    bed = bed_of(arena, block)
    nap.block = block
    nap.next = bed[0]
    bed[0] = nap
    block.flags |= BLOCK_ASLEEP
    arena.sleep.asleep += block.size
    return nap


cdef void nap_end(Arena *arena, Nap *nap) noexcept nogil:
    """Move a Nap to `naps_over`.  `naps_reclaim`, which may call the driver, frees it later."""
    cdef Nap **link = bed_of(arena, nap.block)
    while link[0] != nap:
        link = &link[0].next
    link[0] = nap.next
    nap.block = NULL
    nap.next = arena.sleep.naps_over
    arena.sleep.naps_over = nap


cdef Pinned *pinned_make(size_t size, aclError *status) noexcept nogil:
    cdef Pinned *pinned = <Pinned *> calloc(1, sizeof(Pinned))
    status[0] = NO_HOST_MEMORY
    if pinned == NULL:
        return NULL
    status[0] = _libacl.aclrtMallocHost(&pinned.host, size)
    if status[0] != ACL_SUCCESS:
        free(pinned)
        return NULL
    pinned.size = size
    pinned.users = 1
    return pinned


cdef void pinned_join(Pinned *pinned) noexcept nogil:
    spin_enter(&pinned_lock)
    pinned.users += 1
    spin_leave(&pinned_lock)


cdef void pinned_leave(Pinned *pinned) noexcept nogil:
    cdef bint last
    spin_enter(&pinned_lock)
    pinned.users -= 1
    last = pinned.users == 0
    spin_leave(&pinned_lock)
    if last:
        _libacl.aclrtFreeHost(pinned.host)  # status ignored: nothing else can be done
        free(pinned)


cdef void chunks_free(Nap *nap) noexcept nogil:
    cdef Chunk *chunk
    while nap.chunks != NULL:
        chunk = nap.chunks
        nap.chunks = chunk.next
        pinned_leave(chunk.pinned)
        free(chunk)


cdef void naps_reclaim(Pool *pool) noexcept nogil:
    cdef uint32_t index
    cdef Arena *arena
    cdef Nap *naps
    cdef Nap *nap
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        lock_take(&arena.lock)
        naps = arena.sleep.naps_over
        arena.sleep.naps_over = NULL
        lock_drop(&arena.lock)
        while naps != NULL:
            nap = naps
            naps = nap.next
            chunks_free(nap)
            free(nap)


cdef void turn_add(Turn *turn, Nap *nap) noexcept nogil:
    nap.busy = True
    nap.hand = NULL
    if turn.last == NULL:
        turn.first = nap
    else:
        turn.last.hand = nap
    turn.last = nap
    turn.blocks += 1
    turn.bytes += nap.block.size


cdef inline bint may_turn(Block *block, bint waking) noexcept nogil:
    cdef bint asleep = block.flags & BLOCK_ASLEEP != 0
    return asleep == waking and block.flags & (BLOCK_GUARDED | BLOCK_HELD) == 0


cdef bint turn_take(Turn *turn, Block *block, bint waking) noexcept nogil:
    """Add a block to the batch if the block can be put to sleep, or with `waking` if it is asleep.

    With `waking`, also add a block that was freed while asleep and is kept for a graph.  Return
    False if there is no host memory.
    """
    cdef Nap *nap
    if waking and block.state == BLOCK_MOVING:
        nap = nap_find(turn.arena, block)
        if nap != NULL and not nap.busy:        # it was freed while asleep, and is kept for a graph
            turn_add(turn, nap)
        return True
    if block.state != BLOCK_LIVE or not may_turn(block, waking):
        return True
    nap = nap_find(turn.arena, block) if waking else nap_begin(turn.arena, block)
    if nap != NULL:
        turn_add(turn, nap)
    return nap != NULL


cdef bint turn_pick(Turn *turn, Range *span, uint64_t tags, bint waking) noexcept nogil:
    cdef Block *block = span.first
    cdef uint32_t tag
    while block != NULL:
        tag = block.tag if block.tag != 0 else turn.arena.default_tag
        if tags >> tag & 1 and not turn_take(turn, block, waking):
            return False
        block = block.next
    return True


cdef bint turn_begin(Turn *turn, uint64_t tags, bint waking) noexcept nogil:
    cdef Arena *arena = turn.arena
    cdef uint32_t index
    cdef bint good = True
    turn.first = turn.last = NULL
    turn.waking = waking
    turn.blocks = turn.pages = 0
    turn.bytes = 0
    lock_take(&arena.lock)
    if not waking:
        cache_flush(arena)                      # cached blocks would keep their pages awake
    if turn.only != NULL:
        good = range_of(arena, turn.only).segment or turn_take(turn, turn.only, waking)
    for index in range(0 if turn.only != NULL else arena.space.range_count):
        if good and arena.space.ranges[index] != NULL and not arena.space.ranges[index].segment:
            good = turn_pick(turn, arena.space.ranges[index], tags, waking)
    arena.sleep.turning = turn.first != NULL
    if good and not waking:
        turn_pages(turn, page_claim)
    lock_drop(&arena.lock)
    if not good:
        turn_end(turn, False, False)
    return good


# --- pages --------------------------------------------------------------------------------------

cdef inline bint sleeps(Arena *arena, Block *block) noexcept nogil:
    """True if a block needs no memory: it is asleep, or it was freed and still has its Nap."""
    if block.state == BLOCK_LIVE:
        return block.flags & BLOCK_ASLEEP != 0
    return block.state == BLOCK_MOVING and nap_find(arena, block) != NULL


cdef Block *page_first(Range *span, Block *block, char *low) noexcept nogil:
    """Return the lowest block in the page at the address `low`; `block` is some block in it."""
    while block.addr > low:
        block = block.prev
    return block


cdef void page_wake(Arena *arena, Range *span, Block *block, uint32_t page) noexcept nogil:
    """Under the lock, for a page that has memory again: put its VOID blocks into the bins."""
    cdef size_t granule = arena.pool.options.granule
    cdef char *low = span.base + page * granule
    cdef Block *after
    block = page_first(span, block, low)
    while block != NULL and block.addr < low + granule:
        after = block.next
        if block.state == BLOCK_VOID:
            if after != NULL and after.state == BLOCK_FREE:
                after = after.next  # `block_release` joins the next block to `block`: skip it
            block_release(arena, block)
        block = after


cdef bint page_asleep(Arena *arena, Range *span, Block *block, uint32_t page) noexcept nogil:
    """Under the lock: True if each block in a page is VOID, or `sleeps` is true for the block."""
    cdef char *low = span.base + page * arena.pool.options.granule
    block = page_first(span, block, low)
    while block != NULL and block.addr < low + arena.pool.options.granule:
        if block.state != BLOCK_VOID and not sleeps(arena, block):
            return False
        block = block.next
    return True


cdef void page_claim(Arena *arena, Range *span, Block *block, uint32_t page) noexcept nogil:
    """Under the lock: if no awake block uses a page, make its free parts VOID."""
    cdef size_t granule = arena.pool.options.granule
    cdef char *low = span.base + page * granule
    cdef char *high = low + granule
    cdef Block *first = page_first(span, block, low)
    block = first
    while block != NULL and block.addr < high:
        if block.state not in (BLOCK_FREE, BLOCK_VOID) and not sleeps(arena, block):
            return
        block = block.next
    block = first
    while block != NULL and block.addr < high:
        if block.state == BLOCK_FREE:
            block = piece_detach(arena, block, low if block.addr < low else block.addr,
                                 high if block_end(block) > high else block_end(block))
            if block == NULL:
                return  # no descriptor is left, so the page keeps its memory
            block.state = BLOCK_VOID
            block.flags = 0
        block = block.next


ctypedef void (*PageVisit)(Arena *, Range *, Block *, uint32_t) noexcept nogil


cdef void turn_pages(Turn *turn, PageVisit visit) noexcept nogil:
    """Under the lock: call `visit` for each page with memory of each block of the batch."""
    cdef Arena *arena = turn.arena
    cdef Nap *nap = turn.first
    cdef Range *span
    cdef uint32_t page, end
    while nap != NULL:
        span = range_of(arena, nap.block)
        page = page_floor(span, nap.block.addr, arena.pool.options.granule)
        end = page_ceil(span, block_end(nap.block), arena.pool.options.granule)
        while page < end:
            if page_backed(span, page):
                visit(arena, span, nap.block, page)
            page += 1
        nap = nap.hand


cdef inline bint frame_may_leave(Arena *arena, Frame *frame) noexcept nogil:
    """True if a frame may be given to the driver.

    False if the driver still has a retired mapping of the frame, which keeps the memory.  False
    also if the frame has several mappings in the arena of a graph: a wake maps a new frame only at
    the block's address, but the graph needs all addresses.
    """
    return frame.stale == 0 and (frame.views.next == NULL or not graph_keeps(arena))


cdef Frame **block_leave(Arena *arena, Block *block, Frame **last) noexcept nogil:
    """Under the lock: retire the mappings of a block's pages in which no block needs memory.

    Pages whose frames may not leave (`frame_may_leave`) are left out.  Append the other pages'
    frames to the list that ends at `last`.  Return the new end of the list.
    """
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef uint32_t page = page_floor(span, block.addr, granule)
    cdef uint32_t end = page_ceil(span, block_end(block), granule)
    cdef Frame *frame
    while page < end:
        if page_backed(span, page) and page_asleep(arena, span, block, page):
            frame = span.views[page].frame
            if DEBUG_LEVEL >= 1:
                page_enforce(arena, span, page)
            if frame_may_leave(arena, frame):
                frame.views = views_doom(arena, frame)
                frame.next = NULL
                last[0] = frame
                last = &frame.next
                arena.pages -= 1
        page += 1
    return last


cdef void turn_restore(Turn *turn, Frame *leaving) noexcept nogil:
    """Under the lock: restore the mappings that the driver did not unmap."""
    cdef Arena *arena = turn.arena
    while leaving != NULL:
        views_restore(arena, leaving)
        arena.pages += 1
        leaving = leaving.next


cdef bint turn_unmap(Turn *turn) noexcept nogil:
    cdef Arena *arena = turn.arena
    cdef Frame *leaving = NULL
    cdef Frame **last = &leaving
    cdef Frame *frames = NULL
    cdef View *cleared = NULL
    cdef Nap *nap = turn.first
    cdef uint64_t pages
    cdef bint good
    views_retry(arena)
    lock_take(&arena.lock)
    while nap != NULL:
        last = block_leave(arena, nap.block, last)
        nap = nap.hand
    lock_drop(&arena.lock)
    record_trims(True)
    pages = pieces_unmap(arena, &leaving, &frames, &cleared)
    record_trims(False)
    good = leaving == NULL
    lock_take(&arena.lock)
    views_settle(arena, cleared, NULL)
    turn_restore(turn, leaving)
    lock_drop(&arena.lock)
    while frames != NULL:
        frames = frame_give(arena.pool, frames)
    turn.pages += pages
    return good


cdef Frame *frame_give(Pool *pool, Frame *frame) noexcept nogil:
    """Give the first frame of a list to the driver; if that is refused, to the spare frames.

    Return the next frame of the list.
    """
    cdef Frame *after = frame.next
    frame_return(pool, frame)
    return after


cdef bint frames_find(Arena *arena, uint64_t want, Frame **frames) noexcept nogil:
    """Without locks: get `want` frames; False if there are not enough.

    Spare frames are taken first, then new frames, then, if the option `steal` is on, frames of free
    pages of the pool's arenas.  If false is returned, `frames` has those that were found.
    """
    cdef Pool *pool = arena.pool
    cdef Arena *other
    cdef Frame *frame
    cdef uint32_t index
    cdef uint64_t given
    while want > 0:
        frame = source_take(pool)
        if frame == NULL:
            frame = frame_make(pool)
        if frame != NULL:
            frame.next = frames[0]
            frames[0] = frame
            want -= 1
            continue
        given = 0
        for index in range(count_read(&pool.arena_count)):
            other = pool.arenas[index]
            if pages_may_leave(other, False) and pool.options.steals and given < want:
                given += pages_donate(other, want - given, True)
        if given == 0:
            return False
    return True


cdef bint views_make(Turn *turn, View **first, uint64_t *count) noexcept nogil:
    """Under the lock: make a View for each missing page of the batch, in the order of addresses.

    Set `first` to the list of them, and add their number to `count`.  False: no host memory.
    """
    cdef Arena *arena = turn.arena
    cdef size_t granule = arena.pool.options.granule
    cdef View **last = first
    cdef View *view = NULL
    cdef Range *span
    cdef Nap *nap = turn.first
    cdef uint32_t page, end
    while nap != NULL:
        span = range_of(arena, nap.block)
        page = page_floor(span, nap.block.addr, granule)
        end = page_ceil(span, block_end(nap.block), granule)
        while page < end:
            if not page_backed(span, page) and (
                    view == NULL or view.page != page or view.range != span.index):
                view = view_make(span, page)
                if view == NULL:
                    return False
                last[0] = view
                last = &view.next
                count[0] += 1
            page += 1
        nap = nap.hand
    return True


cdef bint turn_map(Turn *turn) noexcept nogil:
    cdef Arena *arena = turn.arena
    cdef Pool *pool = arena.pool
    cdef View *views = NULL
    cdef View *view
    cdef Frame *frames = NULL
    cdef char *addr
    cdef uint64_t count = 0
    cdef bint good
    lock_take(&arena.lock)
    good = views_make(turn, &views, &count)
    lock_drop(&arena.lock)
    good = good and frames_find(arena, count, &frames)
    view = views
    while good and view != NULL:
        addr = arena.space.ranges[view.range].base + view.page * pool.options.granule
        good = frame_map(pool, addr, frames)
        if good:
            record_note(arena, EVENT_MAP, addr, pool.options.granule, RUNG_DRIVER)
            view.frame = frames                 # only a note; `views_hold` makes the mapping active
            view = view.next
            frames = frames.next
    lock_take(&arena.lock)
    views_hold(turn, views)
    lock_drop(&arena.lock)
    while frames != NULL:
        frames = frame_give(pool, frames)
    return good


cdef void views_hold(Turn *turn, View *views) noexcept nogil:
    """Under the lock: make the mappings active that have a frame; free the others."""
    cdef Arena *arena = turn.arena
    cdef Frame *frame
    cdef View *view
    while views != NULL:
        view = views
        views = view.next
        frame = view.frame
        if frame == NULL:
            free(view)
            continue
        view.frame = NULL
        view_hold(arena, view, frame)
        arena.pages += 1
        turn.pages += 1


# --- the end of a batch -------------------------------------------------------------------------

cdef bint block_backed(Arena *arena, Block *block) noexcept nogil:
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef uint32_t page = page_floor(span, block.addr, granule)
    cdef uint32_t end = page_ceil(span, block_end(block), granule)
    while page < end:
        if not page_backed(span, page):
            return False
        page += 1
    return True


cdef inline bint graph_keeps(Arena *arena) noexcept nogil:
    return arena.role == ROLE_CAPTURE and not arena.captures.released


cdef void freed_end(Turn *turn, Nap *nap, bint asleep) noexcept nogil:
    """Complete the free of a block that was freed during its batch; opens the lock in driver calls.

    If the block is asleep and a graph still uses its address, only keep it MOVING.
    """
    cdef Arena *arena = turn.arena
    cdef Block *block = nap.block
    if asleep and graph_keeps(arena):
        return                                  # the graph keeps the block; it stays MOVING
    nap_end(arena, nap)
    if asleep or turn.waking:  # all work on the block is complete, and no new work was queued
        uses_drop(arena, block)
        block_let_go(arena, block)
        return
    if DEBUG_LEVEL >= 1:
        free_stamp(arena, block)
    if block.flags & BLOCK_SHARED or arena.mode & (ARENA_UNLOADING | ARENA_FORKED):
        block_park(arena, block)
    else:
        block_release(arena, block)


cdef void turn_end(Turn *turn, bint asleep, bint partly) noexcept nogil:
    cdef Arena *arena = turn.arena
    cdef Block *block
    cdef Nap *nap
    cdef Nap *after
    lock_take(&arena.lock)
    turn_pages(turn, page_wake)
    nap = turn.first
    while nap != NULL:
        after = nap.hand
        block = nap.block
        nap.busy = False
        if nap.freed:
            freed_end(turn, nap, asleep)
        elif not asleep or (partly and block_backed(arena, block)):
            if turn.waking:
                record_block(arena, EVENT_WAKE, block, nap.chunks != NULL)
            block.flags &= <unsigned char> ~BLOCK_ASLEEP        # safe cast: a bit of a byte
            arena.sleep.asleep -= block.size
            nap_end(arena, nap)
        elif not turn.waking:
            record_block(arena, EVENT_SLEEP, block, nap.chunks != NULL)
        nap = after
    arena.sleep.turning = False
    lock_drop(&arena.lock)


# --- frees --------------------------------------------------------------------------------------

cdef void uses_drop(Arena *arena, Block *block) noexcept nogil:
    """Free the Uses of a block that slept: the device was synchronised, and no use began since."""
    cdef Use **link = &arena.order.uses[use_bed(block)] if arena.order.uses != NULL else NULL
    cdef Use *use
    while link != NULL and link[0] != NULL:
        use = link[0]
        if use.block == block:
            link[0] = use.next
            free(use)
        else:
            link = &use.next


cdef void asleep_free(Arena *arena, Block *block) noexcept nogil:
    cdef Nap *nap = nap_find(arena, block)
    arena.sleep.asleep -= block.size
    block.flags &= BLOCK_SHARED
    block.state = BLOCK_MOVING
    if nap.busy:
        nap.freed = True                        # `turn_end` will complete the free
        return
    uses_drop(arena, block)
    block.flags = 0
    if graph_keeps(arena):
        nap.freed = True
        return
    nap_end(arena, nap)
    block_let_go(arena, block)


cdef void naps_let_go(Arena *arena) noexcept nogil:
    cdef uint32_t bed
    cdef Nap *nap
    cdef Nap *after
    cdef Block *block
    for bed in range(<uint32_t> NAP_BEDS if arena.sleep.naps != NULL else 0):
        nap = arena.sleep.naps[bed]
        while nap != NULL:
            after = nap.next
            block = nap.block
            if nap.freed and not nap.busy:
                nap_end(arena, nap)
                block_let_go(arena, block)
            nap = after


cdef void block_let_go(Arena *arena, Block *block) noexcept nogil:
    """Free a MOVING block whose pages may sleep, by cutting it where the kind of page changes.

    If there is no descriptor for a cut, the remainder stays MOVING for ever.
    """
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef uint32_t page = page_floor(span, block.addr, granule)
    cdef char *end
    cdef Block *rest
    cdef uint32_t kind = page_kind(arena, span, block, page)
    while True:
        page += 1
        end = span.base + page * granule
        if end < block_end(block) and page_kind(arena, span, block, page) == kind:
            if kind != PAGE_SHARED:
                continue
        rest = NULL
        if end < block_end(block):
            rest = block_make(arena)
            if rest == NULL:
                return
            block_cut(block, rest, <size_t> (end - block.addr))
            rest.state = BLOCK_MOVING
        piece_let_go(arena, span, block, kind)
        if rest == NULL:
            return
        block = rest
        kind = page_kind(arena, span, block, page)


cdef enum:                      # the kinds of page that `block_let_go` distinguishes
    PAGE_THERE                  # the page has memory
    PAGE_ASLEEP                 # the page sleeps, and the whole page lies in this block
    PAGE_SHARED                 # the page sleeps, and other blocks lie in it too


cdef uint32_t page_kind(Arena *arena, Range *span, Block *block, uint32_t page) noexcept nogil:
    cdef char *low = span.base + page * arena.pool.options.granule
    if page_backed(span, page):
        return PAGE_THERE
    if block.addr <= low and block_end(block) >= low + arena.pool.options.granule:
        return PAGE_ASLEEP
    return PAGE_SHARED


cdef void piece_let_go(Arena *arena, Range *span, Block *block, uint32_t kind) noexcept nogil:
    if kind == PAGE_THERE:
        block_release(arena, block)
    elif kind == PAGE_ASLEEP:
        hole_release(arena, block)
    else:
        block.state = BLOCK_VOID
        page_empty(arena, span, block)


cdef void page_empty(Arena *arena, Range *span, Block *block) noexcept nogil:
    """Make the page of a VOID block a HOLE if all blocks in the page are VOID.

    A VOID block lies in one page only.
    """
    cdef size_t granule = arena.pool.options.granule
    cdef uint32_t page = page_floor(span, block.addr, granule)
    cdef char *low = span.base + page * granule
    cdef Block *first = page_first(span, block, low)
    block = first
    while block != NULL and block.addr < low + granule:
        if block.state != BLOCK_VOID:
            return
        block = block.next
    while block_end(first) < low + granule:
        block_join(arena, first, first.next)
    hole_release(arena, first)


# --- checking -----------------------------------------------------------------------------------

cdef uint32_t naps_check(Arena *arena, size_t asleep) noexcept nogil:
    """Check I15 for the Naps; return 0 if it holds, else 15.

    Each Nap must have a sleeping block, or a freed block that its batch or a graph keeps MOVING.
    The sizes of the sleeping blocks must sum to `asleep`.
    """
    cdef uint32_t bed
    cdef size_t bytes = 0
    cdef Nap *nap
    if arena.sleep.asleep != asleep:
        return 15
    if arena.sleep.naps == NULL:
        return 0 if asleep == 0 else 15
    for bed in range(<uint32_t> NAP_BEDS):
        nap = arena.sleep.naps[bed]
        while nap != NULL:
            if nap.freed:
                if nap.block.state != BLOCK_MOVING or not (nap.busy or graph_keeps(arena)):
                    return 15
            elif nap.block.state != BLOCK_LIVE or not nap.block.flags & BLOCK_ASLEEP:
                return 15
            else:
                bytes += nap.block.size
            nap = nap.next
    return 0 if bytes == asleep else 15
