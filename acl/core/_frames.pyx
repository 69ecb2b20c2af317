"""The mappings of a frame (`View`), of which at most one is active.

A driver is assumed to let one physical handle be mapped at several addresses at the same time.  So
if the memory of a free page is needed elsewhere in its arena, the page may be aliased instead of
moved: its frame is mapped at the new address too, and the new mapping becomes the active one
(`Frame.holder`).  The old page then
counts as missing; its mapping stays and is inactive (a shadow in the code).  When the frame is free
again, a later allocation can reactivate the old mapping without a driver call (`recall` in the
code).

Reuse through another address is as safe as through the same one: the arena's stream orders both
(I10).  An inactive mapping must not be unmapped while work may still run that was queued when the
mapping was active (I14).  All mappings of a frame lie in one arena (I13).

Thread rule: all functions run under the arena's lock and make no driver calls.
"""

from libc.stdio cimport fprintf, stderr
from libc.stdint cimport uint32_t
from libc.stdlib cimport abort, calloc, free

from acl.core._bins cimport bin_of, bins_after, links_block
from acl.core.types cimport BINS, Bins, Block, DEBUG_LEVEL, RANGE_KINDS, UNIT_SHIFT
from acl.core._space cimport block_end, page_ceil, page_floor, range_of


cdef View *view_make(Range *span, uint32_t page) noexcept nogil:
    cdef View *view = <View *> calloc(1, sizeof(View))
    if view != NULL:
        view.range = span.index
        view.page = page
    return view


cdef void view_drop(Arena *arena, View *view) noexcept nogil:
    if view.mapped != NULL:
        view.mapped.stale -= 1
    arena.space.ranges[view.range].views[view.page] = NULL
    free(view)


cdef void view_hold(Arena *arena, View *view, Frame *frame) noexcept nogil:
    cdef Range *span = arena.space.ranges[view.range]
    if frame.holder != NULL:
        frame.holder.vacated = arena.maps.moment
        arena.maps.away -= frame.holder != frame.home
        arena.maps.shadows += 1
    if view.frame == NULL:
        view.frame = frame
        view.next = frame.views
        frame.views = view
        span.views[view.page] = view
        if span.top <= view.page:
            span.top = view.page + 1
    else:
        arena.maps.shadows -= 1
    if frame.home == NULL:
        frame.home = view
    frame.holder = view
    arena.maps.away += view != frame.home


cdef void view_doom(Arena *arena, View *view) noexcept nogil:
    cdef Frame *frame = view.frame
    cdef View **link = &frame.views
    if DEBUG_LEVEL >= 1:
        shadow_enforce(arena, view)
    while link[0] != view:
        link = &link[0].next
    link[0] = view.next
    if frame.home == view:
        arena.maps.away -= frame.holder != view
        frame.home = frame.holder
    view.frame = NULL
    view.next = NULL
    view.mapped = frame
    frame.stale += 1
    arena.maps.shadows -= 1


cdef View *views_doom(Arena *arena, Frame *frame) noexcept nogil:
    cdef View *holder = frame.holder
    cdef View *view = frame.views
    cdef View *after
    cdef View *shadows = NULL
    arena.maps.away -= holder != frame.home
    while view != NULL:
        after = view.next
        view.frame = NULL
        if view != holder:
            if DEBUG_LEVEL >= 1:
                shadow_enforce(arena, view)
            arena.maps.shadows -= 1
            view.next = shadows
            shadows = view
        view = after
    holder.next = shadows
    frame.holder = frame.home = NULL
    frame.stamp = frame.mark = 0  # an arena that gets the frame later numbers its own searches
    return holder


cdef void views_restore(Arena *arena, Frame *frame) noexcept nogil:
    cdef View *view = frame.views
    frame.holder = frame.home = view
    while view != NULL:
        view.frame = frame
        arena.maps.shadows += view != frame.holder
        view = view.next


cdef Frame **block_stamp(Arena *arena, Block *block, Frame **last) noexcept nogil:
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, block)
    cdef uint32_t page, end
    cdef Frame *frame
    if span.segment:
        return last
    page = page_ceil(span, block.addr, granule)
    end = page_floor(span, block_end(block), granule)
    while page < end:
        frame = span.views[page].frame
        frame.stamp = arena.maps.search
        frame.block = block
        if last != NULL and frame.holder != frame.home:
            frame.hole = NULL
            last[0] = frame
            last = &frame.next
        page += 1
    return last


cdef uint32_t pages_free(Arena *arena) noexcept nogil:
    cdef size_t granule = arena.pool.options.granule
    cdef uint32_t count = 0
    cdef Bins *bins = &arena.bins
    cdef uint32_t kind, index, low, high
    cdef Range *span
    cdef Block *block
    cdef Block *stop
    for kind in range(<uint32_t> RANGE_KINDS):
        index = bins_after(bins, bin_of(granule >> UNIT_SHIFT), kind)
        while index < BINS:
            stop = links_block(&bins.heads[kind * BINS + index])
            block = stop.links.next
            while block != stop:
                span = range_of(arena, block)
                low = page_ceil(span, block.addr, granule)
                high = page_floor(span, block_end(block), granule)
                if low < high and not span.segment:
                    count += high - low
                block = block.links.next
            index = bins_after(bins, index + 1, kind)
    return count


cdef void frames_stamp(Arena *arena, Frame **away) noexcept nogil:
    cdef Frame **last = away
    cdef Bins *bins = &arena.bins
    cdef uint32_t kind, index
    cdef Block *block
    cdef Block *stop
    arena.maps.search += 1
    for kind in range(<uint32_t> RANGE_KINDS):
        index = bins_after(bins, bin_of(arena.pool.options.granule >> UNIT_SHIFT), kind)
        while index < BINS:
            stop = links_block(&bins.heads[kind * BINS + index])
            block = stop.links.next
            while block != stop:
                last = block_stamp(arena, block, last)
                block = block.links.next
            index = bins_after(bins, index + 1, kind)
    if last != NULL:
        last[0] = NULL


cdef void homes_stamp(Arena *arena) noexcept nogil:
    cdef uint32_t kind
    cdef Block *stop
    cdef Block *hole
    for kind in range(<uint32_t> RANGE_KINDS):
        stop = links_block(&arena.bins.holes[kind])
        hole = stop.links.next
        while hole != stop:
            hole_stamp(arena, hole)
            hole = hole.links.next


cdef void hole_stamp(Arena *arena, Block *hole) noexcept nogil:
    """Set `Frame.hole` to `hole` in all frames whose first mapping (`home`) lies in this block."""
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = range_of(arena, hole)
    cdef uint32_t page = page_floor(span, hole.addr, granule)
    cdef uint32_t end = min(page_floor(span, block_end(hole), granule), span.top)
    cdef View *view
    while page < end:
        view = span.views[page]
        if view != NULL and view.frame != NULL and view.frame.home == view:
            view.frame.hole = hole
        page += 1


# --- invariant I14 ------------------------------------------------------------------------------

cdef void free_stamp(Arena *arena, Block *block) noexcept nogil:
    cdef size_t granule = arena.pool.options.granule
    cdef Range *span = arena.space.ranges[block.range]
    cdef uint32_t page, end
    if span.segment or span.freed == NULL:
        return
    page = page_floor(span, block.addr, granule)
    end = page_ceil(span, block.addr + block.size, granule)
    while page < end:
        span.freed[page] = arena.maps.moment + 1
        page += 1


cdef void page_enforce(Arena *arena, Range *span, uint32_t page) noexcept nogil:
    if span.freed != NULL and span.freed[page] > arena.maps.rested:
        fprintf(stderr, b"acl: the pool's invariant I14 is broken: a page leaves its work\n")
        abort()


cdef void shadow_enforce(Arena *arena, View *view) noexcept nogil:
    if view.vacated >= arena.maps.rested:
        fprintf(stderr, b"acl: the pool's invariant I14 is broken: a view leaves its work\n")
        abort()
