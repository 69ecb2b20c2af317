"""Blocks that sleep: live, at their addresses, without memory.

A sleeping block is LIVE with BLOCK_ASLEEP, and has a `Nap`, which knows where its bytes are kept.
A page sleeps (is unmapped, its frame the driver's again) when nobody awake uses any of it: what is
free in it becomes VOID, addresses that are no hole, nor to be had until the page is awake (I15).

A thread takes blocks in hand for a turn (`turn_begin` .. `turn_end`); one turn at a time in a pool.
A block that is freed meanwhile is MOVING until the turn ends.  A block that is freed in its sleep
is let go at once: whole sleeping pages are holes, pages that are there are free, the rest is VOID.

No lock is held over a driver call.  Refuses: segments, which cannot be unmapped piece by piece;
guarded blocks, whose edges are looked at when they are freed.
Copies are made by `_sleep.pyx`; here they are only given back (`naps_reclaim`).
"""

from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free

from acl cimport _libacl
from acl.core._bins cimport (
    block_cut, block_join, block_make, block_release, cache_flush, hole_release,
)
from acl._core cimport (
    BLOCK_ASLEEP, BLOCK_FREE, BLOCK_GUARDED, BLOCK_HELD, BLOCK_LIVE, BLOCK_MOVING, BLOCK_SHARED,
    BLOCK_VOID, Chunk, Frame, NAP_BEDS, RUNG_DRIVER, Range, Use, View,
)
from acl.core._driver cimport frame_make, frame_map, frame_return, source_take
from acl.core._events cimport EVENT_MAP, EVENT_SLEEP, EVENT_WAKE
from acl.core._frames cimport page_backed, view_hold, view_make, views_doom, views_restore
from acl.core._lock cimport count_read, lock_drop, lock_take
from acl.core._pages cimport (
    pages_donate, piece_detach, pieces_unmap, views_retry, views_settle,
)
from acl.core._place cimport block_end, page_ceil, page_floor, range_of
from acl.core._record cimport record_block, record_note, record_trims


# --- naps ---------------------------------------------------------------------------------------

cdef inline Nap **bed_of(Arena *arena, Block *block) noexcept nogil:
    return &arena.naps[(<uintptr_t> block >> 6) % NAP_BEDS]


cdef Nap *nap_find(Arena *arena, Block *block) noexcept nogil:
    cdef Nap *nap = bed_of(arena, block)[0] if arena.naps != NULL else NULL
    while nap != NULL and nap.block != block:
        nap = nap.next
    return nap


cdef Nap *nap_begin(Arena *arena, Block *block) noexcept nogil:
    cdef Nap *nap = <Nap *> calloc(1, sizeof(Nap))
    cdef Nap **bed
    if arena.naps == NULL:
        arena.naps = <Nap **> calloc(NAP_BEDS, sizeof(Nap *))
    if nap == NULL or arena.naps == NULL:
        free(nap)
        return NULL
    bed = bed_of(arena, block)
    nap.block = block
    nap.next = bed[0]
    bed[0] = nap
    block.flags |= BLOCK_ASLEEP
    arena.asleep += block.size
    return nap


cdef void nap_end(Arena *arena, Nap *nap) noexcept nogil:
    """Take a nap out of the books; its copies wait for somebody who may call the driver."""
    cdef Nap **link = bed_of(arena, nap.block)
    while link[0] != nap:
        link = &link[0].next
    link[0] = nap.next
    nap.block = NULL
    nap.next = arena.naps_over
    arena.naps_over = nap


cdef void chunks_free(Nap *nap) noexcept nogil:
    cdef Chunk *chunk
    while nap.chunks != NULL:
        chunk = nap.chunks
        nap.chunks = chunk.next
        if chunk.host != NULL:
            _libacl.aclrtFreeHost(chunk.host)
        free(chunk)


cdef void naps_reclaim(Pool *pool) noexcept nogil:
    cdef uint32_t index
    cdef Arena *arena
    cdef Nap *naps
    cdef Nap *nap
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        lock_take(&arena.lock)
        naps = arena.naps_over
        arena.naps_over = NULL
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
    """Take a block in hand if it is one to turn; false without memory of the host."""
    cdef Nap *nap
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
        cache_flush(arena)                      # so that what is free in a page can go with it
    if turn.only != NULL:
        good = range_of(arena, turn.only).segment or turn_take(turn, turn.only, waking)
    for index in range(0 if turn.only != NULL else arena.range_count):
        if good and arena.ranges[index] != NULL and not arena.ranges[index].segment:
            good = turn_pick(turn, arena.ranges[index], tags, waking)
    lock_drop(&arena.lock)
    if not good:
        turn_end(turn, False, False)
    return good


# --- pages --------------------------------------------------------------------------------------

cdef inline bint sleeps(Arena *arena, Block *block) noexcept nogil:
    """Whether nobody needs the memory of a block: asleep, or in hand and freed since."""
    if block.state == BLOCK_LIVE:
        return block.flags & BLOCK_ASLEEP != 0
    return block.state == BLOCK_MOVING and nap_find(arena, block) != NULL


cdef Block *page_first(Range *span, Block *block, char *low) noexcept nogil:
    """The lowest block that touches the page at `low`, of which `block` is another."""
    while block.addr > low:
        block = block.prev
    return block


cdef void page_wake(Arena *arena, Range *span, Block *block, uint32_t page) noexcept nogil:
    """Under the lock: a page has memory, so its VOID pieces are free."""
    cdef size_t granule = arena.pool.options.granule
    cdef char *low = span.base + page * granule
    cdef Block *after
    block = page_first(span, block, low)
    while block != NULL and block.addr < low + granule:
        after = block.next
        if block.state == BLOCK_VOID:
            if after != NULL and after.state == BLOCK_FREE:
                after = after.next              # it is joined
            block_release(arena, block)
        block = after


cdef bint page_clear(Arena *arena, Range *span, Block *block, uint32_t page) noexcept nogil:
    """Under the lock: whether nobody awake uses a page; then what is free in it is VOID."""
    cdef size_t granule = arena.pool.options.granule
    cdef char *low = span.base + page * granule
    cdef char *high = low + granule
    cdef Block *first = page_first(span, block, low)
    block = first
    while block != NULL and block.addr < high:
        if block.state != BLOCK_FREE and not sleeps(arena, block):
            return False
        block = block.next
    block = first
    while block != NULL and block.addr < high:
        if block.state == BLOCK_FREE:
            block = piece_detach(arena, block, low if block.addr < low else block.addr,
                                 high if block_end(block) > high else block_end(block))
            if block == NULL:
                return False                    # without descriptors; `turn_unmap` wakes the rest
            block.state = BLOCK_VOID
            block.flags = 0
        block = block.next
    return True


cdef Frame **block_leave(Arena *arena, Block *block, Frame **last) noexcept nogil:
    """Under the lock: doom the frames of a sleeping block's pages, where nobody awake is."""
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef uint32_t page = page_floor(span, block.addr, granule)
    cdef uint32_t end = page_ceil(span, block_end(block), granule)
    cdef Frame *frame
    while page < end:
        if page_backed(span, page):
            frame = span.views[page].frame
            if frame.stale == 0 and page_clear(arena, span, block, page):
                frame.views = views_doom(arena, frame)
                frame.next = NULL
                last[0] = frame
                last = &frame.next
                arena.pages -= 1
            else:
                page_wake(arena, span, block, page)
        page += 1
    return last


cdef void turn_restore(Turn *turn, Frame *leaving) noexcept nogil:
    """Under the lock: pages that the driver did not unmap are as they were."""
    cdef Arena *arena = turn.arena
    cdef Range *span
    cdef Frame *after
    cdef View *view
    cdef Nap *nap = turn.first
    while leaving != NULL:
        after = leaving.next
        views_restore(arena, leaving)
        arena.pages += 1
        view = leaving.holder
        span = arena.ranges[view.range]
        while not touches(arena, nap.block, span, view.page):
            nap = nap.hand                      # both are in address order
        page_wake(arena, span, nap.block, view.page)
        leaving = after


cdef inline bint touches(Arena *arena, Block *block, Range *span, uint32_t page) noexcept nogil:
    cdef char *low = span.base + page * arena.pool.options.granule
    return (block.range == span.index and block.addr < low + arena.pool.options.granule
            and block_end(block) > low)


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
    """One of a list to the driver, or, if it refuses, to the spare ones; the next one."""
    cdef Frame *after = frame.next
    frame_return(pool, frame)
    return after


cdef bint frames_find(Arena *arena, uint64_t want, Frame **frames) noexcept nogil:
    """Without locks: spare frames, the driver's, and then free pages of whoever gives some."""
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
            if other.donates and pool.options.steals and given < want:
                given += pages_donate(other, want - given, True)
        if given == 0:
            return False
    return True


cdef bint views_make(Turn *turn, View **first, uint64_t *count) noexcept nogil:
    """Under the lock: a view for each page of the blocks in hand that has no memory, in order."""
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
    cdef uint64_t count = 0
    cdef bint good
    lock_take(&arena.lock)
    good = views_make(turn, &views, &count)
    lock_drop(&arena.lock)
    good = good and frames_find(arena, count, &frames)
    view = views
    while good and view != NULL:
        good = frame_map(pool, arena.ranges[view.range].base + view.page * pool.options.granule,
                         frames)
        if good:
            record_note(arena, EVENT_MAP, arena.ranges[view.range].base
                        + view.page * pool.options.granule, pool.options.granule, RUNG_DRIVER)
            view.frame = frames                 # in hand: `views_hold` makes it so
            view = view.next
            frames = frames.next
    lock_take(&arena.lock)
    views_hold(turn, views)
    lock_drop(&arena.lock)
    while frames != NULL:
        frames = frame_give(pool, frames)
    return good


cdef void views_hold(Turn *turn, View *views) noexcept nogil:
    """Under the lock: the pages that were mapped are awake; the other views go."""
    cdef Arena *arena = turn.arena
    cdef Nap *nap = turn.first
    cdef Range *span
    cdef Frame *frame
    cdef View *view
    while views != NULL:
        view = views
        views = view.next
        frame = view.frame
        if frame == NULL:
            free(view)
            continue
        span = arena.ranges[view.range]
        view.frame = NULL
        view_hold(arena, view, frame)
        arena.pages += 1
        turn.pages += 1
        while not touches(arena, nap.block, span, view.page):
            nap = nap.hand                      # both are in address order
        page_wake(arena, span, nap.block, view.page)


# --- the end of a turn --------------------------------------------------------------------------

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


cdef void turn_end(Turn *turn, bint asleep, bint partly) noexcept nogil:
    cdef Arena *arena = turn.arena
    cdef Block *block
    cdef Nap *nap
    cdef Nap *after
    lock_take(&arena.lock)
    nap = turn.first
    while nap != NULL:
        after = nap.hand
        block = nap.block
        nap.busy = False
        if nap.freed:
            nap_end(arena, nap)
            block_let_go(arena, block)
        elif not asleep or (partly and block_backed(arena, block)):
            if turn.waking:
                record_block(arena, EVENT_WAKE, block, nap.chunks != NULL)
            block.flags &= <unsigned char> ~BLOCK_ASLEEP        # a flag of a byte
            arena.asleep -= block.size
            nap_end(arena, nap)
        elif not turn.waking:
            record_block(arena, EVENT_SLEEP, block, nap.chunks != NULL)
        nap = after
    lock_drop(&arena.lock)


# --- frees --------------------------------------------------------------------------------------

cdef void uses_drop(Arena *arena, Block *block) noexcept nogil:
    """Other streams' uses of a block that slept: the device was at rest, and none came since."""
    cdef Use **link = &arena.uses
    cdef Use *use
    while link[0] != NULL:
        use = link[0]
        if use.block == block:
            link[0] = use.next
            free(use)
        else:
            link = &use.next


cdef void asleep_free(Arena *arena, Block *block) noexcept nogil:
    cdef Nap *nap = nap_find(arena, block)
    arena.asleep -= block.size
    if block.flags & BLOCK_SHARED:
        uses_drop(arena, block)
    block.flags = 0
    block.state = BLOCK_MOVING
    if nap.busy:
        nap.freed = True                        # whoever has it in hand lets it go
        return
    nap_end(arena, nap)
    block_let_go(arena, block)


cdef void block_let_go(Arena *arena, Block *block) noexcept nogil:
    """Free a MOVING block whose pages may sleep: cut where pages change between there and not.

    Without descriptors the rest stays MOVING for good.
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


cdef enum:                      # what a page is to a block that is let go
    PAGE_THERE
    PAGE_ASLEEP                 # all of it is the block's
    PAGE_SHARED                 # asleep, and others' too


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
    """Make a hole of a sleeping page that is VOID all over; VOID blocks never cross pages."""
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
    """I15 for the naps: each is that of a sleeping block, and their bytes sum to `asleep`."""
    cdef uint32_t bed
    cdef size_t bytes = 0
    cdef Nap *nap
    if arena.asleep != asleep:
        return 15
    if arena.naps == NULL:
        return 0 if asleep == 0 else 15
    for bed in range(<uint32_t> NAP_BEDS):                      # an enum
        nap = arena.naps[bed]
        while nap != NULL:
            if nap.freed:
                if nap.block.state != BLOCK_MOVING or not nap.busy:
                    return 15
            elif nap.block.state != BLOCK_LIVE or not nap.block.flags & BLOCK_ASLEEP:
                return 15
            else:
                bytes += nap.block.size
            nap = nap.next
    return 0 if bytes == asleep else 15
