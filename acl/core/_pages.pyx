"""Claim and fill placements, and take free pages from their addresses.

A slow allocation claims its placement (`_place`) as MOVING blocks, which no other thread touches.
Then `window_recall` reactivates the placement's inactive mappings whose frames are free, `_climb`
gets frames for the other pages, and `window_map` maps them.  A free page can be used elsewhere in
two ways: its frame gets another mapping in the same arena, without a wait (`pages_view`), or it is
unmapped after its stream was seen complete (`pages_move_out`, I14).  No lock is held during a
driver call.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free

from acl.core._bins cimport (
    bin_insert, bin_of, bin_remove, bins_after, block_cut, block_drop, block_join, block_make,
    block_release, cache_flush, hole_insert, hole_release, links_block, links_remove,
)
from acl.core.types cimport (
    BINS, BLOCK_FREE, BLOCK_HOLE, Bins, Block, Frame, BLOCK_MOVING, Pool, RANGE_KINDS, RUNG_OWN,
    Range, UNIT_SHIFT, View, DEBUG_LEVEL,
)
from acl.core._driver cimport (
    frame_map, page_unmap, segment_free, source_put, stream_captured, stream_idle, stream_wait,
)
from acl.core._events cimport EVENT_MAP, EVENT_UNMAP
from acl.core._frames cimport (
    frames_stamp, homes_stamp, page_enforce, view_doom, view_drop, view_hold, view_make, views_doom,
    views_restore,
)
from acl.core._space cimport page_backed, block_end, page_ceil, page_floor, range_of
from acl.core._lock cimport lock_drop, lock_take
from acl.core._place cimport Window, range_drop
from acl.core._record cimport record_note, record_pages


# --- placements ---------------------------------------------------------------------------------

cdef bint climb_moves(Climb *climb) noexcept nogil:
    cdef Pool *pool = climb.arena.pool
    cdef void *graph = NULL
    if not climb.asked:
        climb.asked = True
        climb.moves = (pool.options.steals
                       and not stream_captured(pool, climb.arena.stream, &graph))
    return climb.moves


cdef void climb_add(Climb *climb, Frame *frames, uint64_t pages, uint32_t rung) noexcept nogil:
    cdef Frame *last = frames
    if frames == NULL:
        return
    while last.next != NULL:
        last = last.next
    last.next = climb.frames
    climb.frames = frames
    climb.found += pages
    climb.rung = rung


cdef inline void piece_insert(Bins *bins, Block *block, uint32_t state) noexcept nogil:
    if state == BLOCK_FREE:
        bin_insert(bins, block)
    else:
        hole_insert(bins, block)


cdef Block *piece_detach(Arena *arena, Block *block, char *start, char *end) noexcept nogil:
    """Cut [start, end) out of a FREE or HOLE block, and return it as a MOVING block.

    NULL if there is no descriptor.

    [ block ............... ]  =>  [ block ][ piece: MOVING ][ high ]
    """
    cdef Bins *bins = &arena.bins
    cdef uint32_t state = block.state
    cdef Block *piece = block_make(arena) if start > block.addr else block
    cdef Block *high = block_make(arena) if end < block_end(block) else NULL
    if piece == NULL or (high == NULL and end < block_end(block)):
        if piece != NULL and piece != block:
            block_drop(arena, piece)
        return NULL
    if state == BLOCK_FREE:
        bin_remove(bins, block)
    else:
        links_remove(block)
    if high != NULL:
        block_cut(block, high, <size_t> (end - block.addr))
        piece_insert(bins, high, state)
    if piece != block:
        block_cut(block, piece, <size_t> (start - block.addr))
        piece_insert(bins, block, state)
    piece.state = BLOCK_MOVING
    piece.requested = 0
    return piece


cdef inline bint page_missing(Arena *arena, char *addr, Block *block) noexcept nogil:
    cdef Range *span = range_of(arena, block)
    return not span.segment and not page_backed(
        span, page_floor(span, addr, arena.pool.options.granule))


cdef void piece_release(Arena *arena, Block *block) noexcept nogil:
    if page_missing(arena, block.addr, block):
        hole_release(arena, block)
    else:
        block_release(arena, block)


cdef void piece_settle(Arena *arena, Block *block) noexcept nogil:
    """Release a MOVING block: FREE where its pages have memory, HOLE where they are missing.

    If there is no host memory for a descriptor, the part not released yet stays MOVING for ever.
    """
    cdef size_t granule = arena.pool.options.granule
    cdef char *addr = page_next(arena, block, block.addr)
    cdef bint missing = page_missing(arena, block.addr, block)
    cdef Block *rest
    while addr < block_end(block):
        if page_missing(arena, addr, block) != missing:
            rest = block_make(arena)
            if rest == NULL:
                return
            block_cut(block, rest, <size_t> (addr - block.addr))
            piece_release(arena, block)
            block = rest
            missing = not missing
        addr += granule
    piece_release(arena, block)


cdef inline char *page_next(Arena *arena, Block *block, char *addr) noexcept nogil:
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    return span.base + (page_floor(span, addr, granule) + 1) * granule


cdef bint window_claim(Climb *climb, Window *window) noexcept nogil:
    """Turn the placement into MOVING blocks; its holes are cut at page boundaries.

    False, with nothing claimed, if there is no descriptor.
    """
    cdef Arena *arena = climb.arena
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, window.first)
    cdef char *end = window.start + climb.size
    cdef char *low
    cdef char *high
    cdef Block *block = window.first
    cdef bint hole
    climb.first = NULL
    while True:
        low = block.addr if block.addr > window.start else window.start
        high = block_end(block) if block_end(block) < end else end
        hole = block.state == BLOCK_HOLE
        if hole:
            low = span.base + page_floor(span, low, granule) * granule
            high = span.base + page_ceil(span, high, granule) * granule
        block = piece_detach(arena, block, low, high)
        if block != NULL:
            block.requested = hole
        if block == NULL:
            if climb.first != NULL:
                window_unclaim(climb)
            return False
        if climb.first == NULL:
            climb.first = block
        climb.last = block
        if block_end(block) >= end:
            return True
        block = block.next


cdef void window_unclaim(Climb *climb) noexcept nogil:
    cdef Block *block = climb.first
    cdef Block *after
    cdef bint done = False
    while not done:
        after = block.next
        done = block == climb.last
        piece_settle(climb.arena, block)
        block = after


cdef uint32_t run_of(Climb *climb, Range *span, uint32_t page, uint32_t end,
                     Block *block) noexcept nogil:
    """Return the length of the run of inactive mappings that starts at `page`.

    Their frames back consecutive pages inside the FREE block `block`, so that one cut detaches all
    of these pages.
    """
    cdef Arena *arena = climb.arena
    cdef View *holder = span.views[page].frame.holder
    cdef Range *home = arena.space.ranges[holder.range]
    cdef uint32_t last = page_floor(home, block_end(block), arena.pool.options.granule)
    cdef uint32_t length = 1
    cdef View *view
    while page + length < end and holder.page + length < last:
        view = span.views[page + length]
        if (view == NULL or view.frame.stamp != arena.maps.search
                or view.frame.holder.range != holder.range
                or view.frame.holder.page != holder.page + length):
            break
        length += 1
    return length


cdef uint32_t run_recall(Climb *climb, Range *span, uint32_t page, uint32_t end) noexcept nogil:
    """Reactivate the mappings of a run of pages that starts at `page`: see `run_of`.

    Return the number of these pages; 0 if there is no descriptor.
    """
    cdef Arena *arena = climb.arena
    cdef size_t granule = arena.pool.options.granule
    cdef Frame *frame = span.views[page].frame
    cdef char *addr = arena.space.ranges[frame.holder.range].base + frame.holder.page * granule
    cdef Block *block = frame.block
    cdef uint32_t length, index
    while block_end(block) <= addr:             # the block was cut since the search noted it
        block = block.next
    length = run_of(climb, span, page, end, block)
    block = piece_detach(arena, block, addr, addr + length * granule)
    if block == NULL:
        return 0
    block.links.next = climb.pieces
    climb.pieces = block
    record_pages(arena, EVENT_UNMAP, addr, length * granule, 1)
    record_pages(arena, EVENT_MAP, span.base + page * granule, length * granule, RUNG_OWN)
    for index in range(page, page + length):
        frame = span.views[index].frame
        frame.stamp = 0
        view_hold(arena, span.views[index], frame)
    return length


cdef bint window_recall(Climb *climb) noexcept nogil:
    """Reactivate the placement's inactive mappings whose frames are free; retire the others.

    Set `climb.missing` to the number of pages that are still missing.  False if there is no
    descriptor.
    """
    cdef Arena *arena = climb.arena
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, climb.first)
    cdef uint32_t page = page_floor(span, climb.first.addr, granule)
    cdef uint32_t end = page_ceil(span, block_end(climb.last), granule)
    cdef uint32_t length
    cdef View *view
    climb.missing = 0
    if arena.maps.shadows > 0:
        frames_stamp(arena, NULL)  # search again: the placement's own pages are MOVING now
    while page < end:
        view = span.views[page]
        length = 1
        if view == NULL:
            climb.missing += 1
        elif view.frame.holder == view:
            pass                                # the page has memory: it was in a FREE block
        elif view.frame.stamp == arena.maps.search:
            length = run_recall(climb, span, page, end)
            if length == 0:
                return False
        else:
            view_doom(arena, view)
            view.next = climb.stale
            climb.stale = view
            climb.missing += 1
        page += length
    return True


cdef inline char *view_addr(Arena *arena, View *view) noexcept nogil:
    return arena.space.ranges[view.range].base + view.page * arena.pool.options.granule


cdef bint view_unmap(Arena *arena, View *view) noexcept nogil:
    return page_unmap(arena.pool, view_addr(arena, view))


cdef bint window_clear(Climb *climb) noexcept nogil:
    """Without locks: unmap the placement's retired mappings; False if the driver refuses one."""
    cdef Arena *arena = climb.arena
    cdef View *view
    while climb.stale != NULL:
        view = climb.stale
        if not view_unmap(arena, view):
            return False
        climb.stale = view.next
        view.next = climb.cleared
        climb.cleared = view
    return True


cdef bint window_map(Climb *climb) noexcept nogil:
    """Without locks: map `climb.frames` at the placement's missing pages; False if that fails.

    Set `climb.refused` if the driver refuses to map an alias.
    """
    cdef Pool *pool = climb.arena.pool
    cdef size_t granule = pool.options.granule
    cdef Range *span = range_of(climb.arena, climb.first)
    cdef uint32_t page = page_floor(span, climb.first.addr, granule)
    cdef uint32_t end = page_ceil(span, block_end(climb.last), granule)
    cdef Frame *frame
    cdef View *view
    if not window_clear(climb):
        return False
    while page < end:
        if not page_backed(span, page):
            frame = climb.frames
            view = view_make(span, page)
            if view == NULL or not frame_map(pool, span.base + page * granule, frame):
                climb.refused = view != NULL and frame.holder != NULL
                free(view)
                return False
            record_note(climb.arena, EVENT_MAP, span.base + page * granule, granule, climb.rung)
            if frame.holder != NULL:
                record_note(climb.arena, EVENT_UNMAP, view_addr(climb.arena, frame.holder),
                            granule, 1)
            climb.frames = frame.next
            view.next = climb.made
            climb.made = view
            frame.next = climb.mapped
            climb.mapped = frame
        page += 1
    return True


cdef void window_mark(Climb *climb) noexcept nogil:
    """Note where the placement's holes began and how long they were, for `hole_offer`."""
    cdef size_t granule = climb.arena.pool.options.granule
    cdef Range *span = range_of(climb.arena, climb.first)
    cdef Block *block = climb.first
    cdef uint32_t page
    while True:
        if block.requested == 1:
            page = page_floor(span, block.addr, granule)
            span.starts[page] = <uint16_t> min(block.size // granule, 65535)
            span.marks[page >> 6] |= <uint64_t> 1 << (page & 63)
        if block == climb.last:
            return
        block = block.next


cdef void views_settle(Arena *arena, View *cleared, View *barred) noexcept nogil:
    """Under the lock: free the mappings in `cleared`; keep those in `barred` for a retry."""
    cdef View *view
    while cleared != NULL:
        view = cleared
        cleared = view.next
        view_drop(arena, view)
    while barred != NULL:
        view = barred
        barred = view.next
        view.next = arena.maps.barred
        arena.maps.barred = view


cdef void views_retry(Arena *arena) noexcept nogil:
    """Without locks: try again to unmap the mappings that the driver refused to unmap."""
    cdef View *views
    cdef View *view
    cdef View *cleared = NULL
    cdef View *barred = NULL
    lock_take(&arena.lock)
    views = arena.maps.barred
    arena.maps.barred = NULL
    lock_drop(&arena.lock)
    if views == NULL:
        return
    while views != NULL:
        view = views
        views = view.next
        if view_unmap(arena, view):
            view.next = cleared
            cleared = view
        else:
            view.next = barred
            barred = view
    lock_take(&arena.lock)
    views_settle(arena, cleared, barred)
    lock_drop(&arena.lock)


cdef void window_settle(Climb *climb) noexcept nogil:
    """Under the lock: make the new mappings active, and release the blocks in `climb.pieces`.

    Their pages, whose frames were moved or aliased, become holes.  Mappings that the driver refused
    to unmap are kept for `views_retry`.
    """
    cdef Arena *arena = climb.arena
    cdef View *view
    cdef Frame *frame
    views_settle(arena, climb.cleared, climb.stale)
    climb.cleared = climb.stale = NULL
    if climb.made != NULL:
        window_mark(climb)
    while climb.made != NULL:
        view = climb.made
        frame = climb.mapped
        climb.made = view.next
        climb.mapped = frame.next
        arena.pages += frame.holder == NULL
        view_hold(arena, view, frame)
    pieces_settle(arena, climb.pieces)
    climb.pieces = NULL


cdef Block *window_join(Climb *climb) noexcept nogil:
    """Join the MOVING blocks of the placement, and return the one block."""
    cdef Block *block = climb.first
    cdef Block *last = climb.last
    cdef bint done = block == last
    while not done:
        done = block.next == last
        block_join(climb.arena, block, block.next)
    return block


# --- taking pages out of an arena ---------------------------------------------------------------

cdef Block *piece_of_pages(Arena *arena, Block *block, uint64_t want,
                           uint64_t *taken) noexcept nogil:
    """Detach up to `want` whole pages at the upper end of a FREE block, or a whole segment.

    Return the detached block, or NULL.  Add the number of its pages to `taken`.
    """
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef uint32_t low, high
    cdef Block *piece
    if span.segment:
        if block.size != span.bytes:
            return NULL
        taken[0] += span.pages
        return piece_detach(arena, block, block.addr, block_end(block))
    low = page_ceil(span, block.addr, granule)
    high = page_floor(span, block_end(block), granule)
    if low >= high:
        return NULL
    if high - low > want:
        low = high - <uint32_t> want            # safe cast: below high
    piece = piece_detach(arena, block, span.base + low * granule, span.base + high * granule)
    if piece != NULL:
        taken[0] += high - low
    return piece


cdef uint64_t pages_detach(Arena *arena, uint64_t want, Block **pieces) noexcept nogil:
    """Under the lock: detach up to `want` wholly free pages, or more if a segment has more.

    Add the detached blocks to the list `pieces`, and return the number of pages.  Pages of the
    smallest blocks are taken first.
    """
    cdef Bins *bins = &arena.bins
    cdef uint32_t kind, index
    cdef uint64_t taken = 0
    cdef Block *block
    cdef Block *after
    cdef Block *stop
    cdef Block *piece
    for kind in range(<uint32_t> RANGE_KINDS):
        index = bins_after(bins, bin_of(arena.pool.options.granule >> UNIT_SHIFT), kind)
        while index < BINS and taken < want:
            stop = links_block(&bins.heads[kind * BINS + index])
            block = stop.links.next
            while block != stop and taken < want:
                after = block.links.next
                piece = piece_of_pages(arena, block, want - taken, &taken)
                if piece != NULL:
                    piece.links.next = pieces[0]
                    pieces[0] = piece
                block = after
            index = bins_after(bins, index + 1, kind)
    return taken


cdef void pieces_leave(Arena *arena, Block *pieces, Frame **leaving) noexcept nogil:
    """Under the lock, after the stream was seen complete: retire all mappings of detached pages.

    Add the frames of these pages to `leaving`.  A frame with a retired mapping that the driver
    still has is left out, as that mapping would keep the memory.
    """
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span
    cdef Frame *frame
    cdef uint32_t page, end
    while pieces != NULL:
        span = range_of(arena, pieces)
        if not span.segment:
            page = page_floor(span, pieces.addr, granule)
            end = page_floor(span, block_end(pieces), granule)
            while page < end:
                frame = span.views[page].frame
                if DEBUG_LEVEL >= 1:
                    page_enforce(arena, span, page)
                page += 1
                if frame.stale == 0:
                    frame.views = views_doom(arena, frame)
                    frame.next = leaving[0]
                    leaving[0] = frame
        pieces = pieces.links.next


cdef bint frame_leave(Arena *arena, Frame *frame, View **cleared) noexcept nogil:
    """Without locks: unmap all retired mappings of a frame, the formerly active one last.

    If the driver refuses to unmap an inactive mapping, it is asked once more.  False if it refuses
    again, or refuses the last mapping; the frame keeps the mappings that remain.
    """
    cdef View *holder = frame.views
    cdef View *view = holder.next
    while view != NULL:
        if not view_unmap(arena, view) and not view_unmap(arena, view):
            return False
        holder.next = view.next
        view.next = cleared[0]
        cleared[0] = view
        view = holder.next
    if not view_unmap(arena, holder):
        return False
    record_note(arena, EVENT_UNMAP, view_addr(arena, holder), arena.pool.options.granule, 1)
    holder.next = cleared[0]
    cleared[0] = holder
    frame.views = NULL
    return True


cdef uint64_t pieces_unmap(Arena *arena, Frame **leaving, Frame **frames,
                           View **cleared) noexcept nogil:
    """Without locks: unmap the frames of `leaving` until the driver refuses one.

    Move the unmapped frames to `frames`, and return their number.
    """
    cdef Frame *frame
    cdef uint64_t pages = 0
    while leaving[0] != NULL:
        frame = leaving[0]
        if not frame_leave(arena, frame, cleared):
            return pages
        leaving[0] = frame.next
        frame.next = frames[0]
        frames[0] = frame
        pages += 1
    return pages


cdef void segments_free(Arena *arena, Block *pieces) noexcept nogil:
    cdef Range *span
    while pieces != NULL:
        span = range_of(arena, pieces)
        if span.segment and segment_free(arena.pool, span.base, span.bytes):
            record_note(arena, EVENT_UNMAP, span.base, span.bytes, 0)
            pieces.requested = 1                # tells `pieces_settle` that the segment was freed
        pieces = pieces.links.next


cdef uint64_t pieces_settle(Arena *arena, Block *pieces) noexcept nogil:
    """Under the lock: release detached blocks; return the number of pages of freed segments."""
    cdef Block *after
    cdef uint64_t pages = 0
    while pieces != NULL:
        after = pieces.links.next
        if pieces.requested != 0:
            pages += range_of(arena, pieces).pages
            range_drop(arena, pieces)
        else:
            piece_settle(arena, pieces)
        pieces = after
    return pages


cdef bint arena_rest(Arena *arena, bint wait) noexcept nogil:
    """Without locks: return True if the stream is idle, and note this synchronisation (I14).

    With `wait`, wait for the stream first.
    """
    cdef uint64_t moment
    cdef bint ready
    lock_take(&arena.lock)
    arena.maps.moment += 1
    moment = arena.maps.moment
    lock_drop(&arena.lock)
    ready = stream_wait(arena) if wait else stream_idle(arena)
    lock_take(&arena.lock)
    if ready and arena.maps.rested < moment:
        arena.maps.rested = moment
    arena.counters.syncs += wait
    arena.counters.sync_failures += wait and not ready
    lock_drop(&arena.lock)
    return ready


cdef uint64_t pages_move_out(Arena *arena, uint64_t want, bint wait, bint own,
                             Frame **frames) noexcept nogil:
    """Without locks: unmap up to `want` wholly free pages, once the stream was seen complete.

    With `wait`, wait for the stream; without, unmap nothing if the stream is busy.  `own`: the
    frames will be used in the same arena.  Add the frames to `frames`.  Return the number of pages,
    those of freed segments included.
    """
    cdef Block *pieces = NULL
    cdef Frame *leaving = NULL
    cdef View *cleared = NULL
    cdef uint64_t pages
    cdef bint vain
    views_retry(arena)
    lock_take(&arena.lock)
    pages = pages_detach(arena, want, &pieces)
    if pages < want and cache_flush(arena) != 0:
        pages_detach(arena, want - pages, &pieces)
    # After a search in vain, `arena_may_give` skips the arena until a block is freed.  But WAITING
    # blocks, and blocks of slow allocations in progress, may become FREE without a free.
    vain = (pieces == NULL and arena.order.waiting == NULL
            and arena.order.polling + arena.climbing == 0)
    arena.burst.vain_live = arena.live if vain else 0
    arena.burst.vain_fits = arena.counters.fits
    lock_drop(&arena.lock)
    pages = 0
    if pieces == NULL:
        return 0
    if arena_rest(arena, wait):
        lock_take(&arena.lock)
        pieces_leave(arena, pieces, &leaving)
        lock_drop(&arena.lock)
        pages = pieces_unmap(arena, &leaving, frames, &cleared)
        segments_free(arena, pieces)
    lock_take(&arena.lock)
    views_settle(arena, cleared, NULL)
    while leaving != NULL:
        views_restore(arena, leaving)
        leaving = leaving.next
    arena.pages -= pages
    pages += pieces_settle(arena, pieces)
    if own:
        arena.counters.steals += pages
    else:
        arena.counters.donated += pages
        arena.iteration.emptied = 0
    lock_drop(&arena.lock)
    return pages


cdef uint64_t pages_donate(Arena *arena, uint64_t want, bint wait) noexcept nogil:
    cdef Frame *frames = NULL
    cdef uint64_t pages = pages_move_out(arena, want, wait, False, &frames)
    source_put(arena.pool, frames)
    return pages


cdef uint64_t pages_view(Climb *climb, uint64_t want, bint flush) noexcept nogil:
    """Without locks: add the frames of up to `want` wholly free pages to `climb.frames`.

    With `flush`, flush the cache if there are too few such pages.  The blocks of the pages stay
    MOVING, in `climb.pieces`, until the frames are mapped elsewhere.  Return the number of frames.
    """
    cdef Arena *arena = climb.arena
    cdef size_t granule = arena.pool.options.granule
    cdef Block *pieces = NULL
    cdef Block *piece
    cdef Range *span
    cdef Frame **last = &climb.frames
    cdef uint32_t page, end
    cdef uint64_t pages = 0
    while last[0] != NULL:
        last = &last[0].next
    lock_take(&arena.lock)
    pages = pages_detach(arena, want, &pieces)
    if flush and pages < want and cache_flush(arena) != 0:
        pages_detach(arena, want - pages, &pieces)
    pages = 0
    while pieces != NULL:
        piece = pieces
        pieces = pieces.links.next
        piece.links.next = climb.pieces
        climb.pieces = piece
        span = range_of(arena, piece)
        page = page_floor(span, piece.addr, granule)
        end = 0 if span.segment else page_floor(span, block_end(piece), granule)
        while page < end:
            last[0] = span.views[page].frame
            last = &last[0].next
            pages += 1
            page += 1
    last[0] = NULL
    arena.counters.steals += pages
    lock_drop(&arena.lock)
    return pages


cdef void run_home(Arena *arena, Frame *frame, uint32_t length, Block **pieces) noexcept nogil:
    cdef size_t granule = arena.pool.options.granule
    cdef char *addr = arena.space.ranges[frame.holder.range].base + frame.holder.page * granule
    cdef char *home = arena.space.ranges[frame.home.range].base + frame.home.page * granule
    cdef Block *block = frame.block
    cdef Block *hole = frame.hole
    while block_end(block) <= addr:
        block = block.next
    while block_end(hole) <= home:
        hole = hole.next
    block = piece_detach(arena, block, addr, addr + length * granule)
    if block == NULL:
        return
    block.links.next = pieces[0]
    pieces[0] = block
    hole = piece_detach(arena, hole, home, home + length * granule)
    if hole == NULL:
        return
    hole.links.next = pieces[0]
    pieces[0] = hole
    record_pages(arena, EVENT_UNMAP, addr, length * granule, 1)
    record_pages(arena, EVENT_MAP, home, length * granule, RUNG_OWN)
    while length > 0:
        view_hold(arena, frame.home, frame)
        frame = frame.next
        length -= 1


cdef void pages_home(Arena *arena) noexcept nogil:
    """Under the lock: make the first mapping of each wholly free page's frame active again.

    Only a first mapping that lies in a hole becomes active.  No driver call is made.
    """
    cdef Frame *away = NULL
    cdef Frame *last
    cdef Block *pieces = NULL
    cdef uint32_t length
    if arena.maps.away == 0:
        return
    frames_stamp(arena, &away)
    homes_stamp(arena)
    while away != NULL:
        last = away
        length = 1
        while (last.next != NULL and last.next.block == away.block and last.next.hole == away.hole
                and last.next.holder.page == last.holder.page + 1
                and last.next.home.page == last.home.page + 1):
            last = last.next
            length += 1
        last = last.next
        if away.hole != NULL:
            run_home(arena, away, length, &pieces)
        away = last
    pieces_settle(arena, pieces)
