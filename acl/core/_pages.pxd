"""Claim and fill windows, and take free pages from their addresses.  See `_pages.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl.core.types cimport Arena, Block, Frame, NEAR_MOST, ROLE_CAPTURE, ROLE_FRAMEWORK, View
from acl.core._place cimport Window

# One slow allocation. It lies on the stack of `pages_obtain` or `pages_recall`, from the claim of a
# placement to its end. Only its thread uses it; the blocks and views that it lists are MOVING or
# off all lists.
cdef struct Climb:
    Arena *arena
    size_t size
    Block *first                # the claimed window: MOVING blocks from `first` to `last`
    Block *last
    Block *pieces               # MOVING blocks of this arena whose frames get an alias
    View *stale                 # retired views in the window, still to be unmapped
    View *cleared               # views in the window that have been unmapped
    View *made                  # new views in the window
    Frame *mapped               # the frames of `made`, in the same order
    Frame *frames               # frames that the fallback steps got, not mapped yet
    uint64_t missing            # pages of the window that have no memory
    uint64_t found              # frames that the fallback steps got so far
    uint64_t held               # pages of the arena when the allocation began
    uint64_t share              # pages that the arena is expected to need in this burst
    Arena *near[NEAR_MOST]      # other arenas to look at: those of `climbers` and a few more
    uint32_t near_count
    uint64_t others             # `counters.fits` of all `near` when the allocation began
    bint at_once                # streams are concurrent: no pages are taken for a whole burst
    size_t live                 # bytes requested in all arenas, with this request; 0: unknown
    size_t own                  # bytes: the sum of the arenas' own peaks
    size_t joint                # bytes: the peak of the arenas' sum, as far as seen
    uint32_t rung               # the last Rung that brought a frame
    bint views                  # free pages of the arena may be mapped a second time
    bint asked                  # `moves` is set
    bint moves                  # pages may be unmapped for this allocation; see `climb_moves`
    bint repeats                # shapes may repeat: iterations end, and few allocations move pages
    bint refused                # the driver refused to map a page a second time

cdef inline bint pages_may_leave(Arena *arena, bint drained) noexcept nogil:
    """True if pages of the arena may be unmapped once its stream was seen complete (I14).

    False while a graph uses their addresses.  With early frees, true only if `drained`, which says
    that all queued work has been launched.
    """
    if arena.role == ROLE_CAPTURE and not arena.captures.released:
        return False
    return drained or not (arena.pool.options.early_frees or arena.role == ROLE_FRAMEWORK
                           or (arena.owner != NULL and arena.owner.role == ROLE_FRAMEWORK))


# Without locks.  True if pages may be unmapped for this allocation.  The first call asks the driver
# if the stream is being captured.
cdef bint climb_moves(Climb *climb) noexcept nogil
# Adds frames that a fallback step has brought.
cdef void climb_add(Climb *climb, Frame *frames, uint64_t pages, uint32_t rung) noexcept nogil

# Under the arena's lock.
cdef void views_settle(Arena *arena, View *cleared, View *barred) noexcept nogil
cdef Block *piece_detach(Arena *arena, Block *block, char *start, char *end) noexcept nogil
cdef bint window_claim(Climb *climb, Window *window) noexcept nogil
cdef void window_unclaim(Climb *climb) noexcept nogil
cdef bint window_recall(Climb *climb) noexcept nogil    # false: the host has no memory
cdef void window_settle(Climb *climb) noexcept nogil
cdef void pages_home(Arena *arena) noexcept nogil
cdef Block *window_join(Climb *climb) noexcept nogil    # returns the window as one MOVING block

# Without locks.
cdef void views_retry(Arena *arena) noexcept nogil
cdef uint64_t pieces_unmap(Arena *arena, Frame **leaving, Frame **frames,
                           View **cleared) noexcept nogil
cdef bint window_map(Climb *climb) noexcept nogil
cdef bint arena_rest(Arena *arena, bint wait) noexcept nogil
cdef uint64_t pages_view(Climb *climb, uint64_t want, bint flush) noexcept nogil
cdef uint64_t pages_move_out(Arena *arena, uint64_t want, bint wait, bint own,
                             Frame **frames) noexcept nogil

# Without locks: gives up to `want` whole free pages of an arena to the source, and free segments to
# the driver.  Returns the number of pages.  With `wait` it waits for the arena's stream first;
# without, it gives nothing if the stream is busy.
cdef uint64_t pages_donate(Arena *arena, uint64_t want, bint wait) noexcept nogil
