"""Claim and fill placements, and take free pages from their addresses.  See `_pages.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl.core.types cimport Arena, Block, Frame, NEAR_MOST, ROLE_CAPTURE, ROLE_FRAMEWORK, View
from acl.core._place cimport Window

# The state of one slow allocation.  It lies on the stack of `pages_obtain` or `pages_recall`, and
# only that thread uses it.  Its blocks are MOVING.  Its mappings and frames are on no other list.
cdef struct Climb:
    Arena *arena
    size_t size                 # bytes of the block
    Block *first                # the claimed placement: the MOVING blocks from `first` to `last`
    Block *last
    Block *pieces               # list of MOVING blocks whose frames will back the placement
    View *stale                 # list of retired mappings in the placement, still to be unmapped
    View *cleared               # list of retired mappings in the placement that have been unmapped
    View *made                  # list of new mappings in the placement
    Frame *mapped               # the frames of `made`, in the same order
    Frame *frames  # frames that the fallback steps have found, not mapped in the placement yet
    uint64_t missing            # pages of the placement that need a frame
    uint64_t found              # number of frames that the fallback steps have found so far
    uint64_t held               # pages of the arena with memory when the allocation began
    uint64_t share              # pages that the arena is expected to need in this burst
    Arena *near[NEAR_MOST]      # other arenas to look at: those in `climbers` and a few more
    uint32_t near_count         # number of entries in `near`
    uint64_t others             # sum of `counters.fits` over `near` when the allocation began
    bint at_once                # streams are concurrent: do not take pages for a whole burst
    size_t live                 # requested bytes of all arenas, with this request; 0: not read yet
    size_t own                  # the sum of the arenas' own peaks, in bytes
    size_t joint                # the pool's joint peak, with this request, in bytes: `peaks_read`
    uint32_t rung               # the last Rung that brought a frame
    bint views                  # free pages of the arena may be aliased
    bint asked                  # `climb_moves` was called, so `moves` is valid
    bint moves                  # pages may be unmapped for this allocation; see `climb_moves`
    bint repeats                # allocations recur: iterations end, and few of them move pages
    bint refused                # the driver refused to map an alias

cdef inline bint pages_may_leave(Arena *arena, bint drained) noexcept nogil:
    """True if pages of the arena may be unmapped after its stream was seen complete (I14).

    False while a graph uses their addresses.  With early frees, the result is `drained`, by which
    the caller says that all work that uses freed blocks has been launched.
    """
    if arena.role == ROLE_CAPTURE and not arena.captures.released:
        return False
    return drained or not (arena.pool.options.early_frees or arena.role == ROLE_FRAMEWORK
                           or (arena.owner != NULL and arena.owner.role == ROLE_FRAMEWORK))


# Called without locks.  True if pages may be unmapped for this allocation: the option `steal` is
# on, and the stream is not being captured.  The first call asks the driver about the capture.
cdef bint climb_moves(Climb *climb) noexcept nogil
# Adds the frames that a fallback step has found to `climb.frames`.
cdef void climb_add(Climb *climb, Frame *frames, uint64_t pages, uint32_t rung) noexcept nogil

# `views_settle` and the functions up to `window_join` are called under the arena's lock.
cdef void views_settle(Arena *arena, View *cleared, View *barred) noexcept nogil
cdef Block *piece_detach(Arena *arena, Block *block, char *start, char *end) noexcept nogil
cdef bint window_claim(Climb *climb, Window *window) noexcept nogil
cdef void window_unclaim(Climb *climb) noexcept nogil
cdef bint window_recall(Climb *climb) noexcept nogil    # false: there is no host memory
cdef void window_settle(Climb *climb) noexcept nogil
cdef void pages_home(Arena *arena) noexcept nogil
cdef Block *window_join(Climb *climb) noexcept nogil    # returns the placement as one MOVING block

# `views_retry` and the functions up to `pages_move_out` are called without locks.
cdef void views_retry(Arena *arena) noexcept nogil
cdef uint64_t pieces_unmap(Arena *arena, Frame **leaving, Frame **frames,
                           View **cleared) noexcept nogil
cdef bint window_map(Climb *climb) noexcept nogil
cdef bint arena_rest(Arena *arena, bint wait) noexcept nogil
cdef uint64_t pages_view(Climb *climb, uint64_t want, bint flush) noexcept nogil
cdef uint64_t pages_move_out(Arena *arena, uint64_t want, bint wait, bint own,
                             Frame **frames) noexcept nogil

# Called without locks: gives up to `want` wholly free pages of an arena to the page source, and
# free segments to the driver.  Returns the number of pages.  With `wait`, it waits for the arena's
# stream first; without, it gives nothing if the stream is busy.
cdef uint64_t pages_donate(Arena *arena, uint64_t want, bint wait) noexcept nogil
