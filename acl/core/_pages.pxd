"""Windows that are claimed and filled, and pages that leave their places.  See `_pages.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl._core cimport Arena, Block, Frame, ROLE_CAPTURE, ROLE_FRAMEWORK, View
from acl.core._place cimport Window

# One slow allocation. It lies on the stack of `pages_obtain` or `pages_recall`, from the claim of a
# placement to its end. Only its thread uses it; the blocks and views that it lists are MOVING or
# off all lists.
cdef struct Climb:              # a slow allocation under way
    Arena *arena
    size_t size
    Block *first                # the claimed window: MOVING blocks, first to last
    Block *last
    Block *pieces               # MOVING blocks of this arena that its frames leave
    View *stale                 # views in the window that must be unmapped
    View *cleared               # views of it that have been unmapped
    View *made                  # new views
    Frame *mapped               # the frames of `made`, in the same order
    Frame *frames               # frames that the ladder has brought and that are not mapped yet
    uint64_t missing            # pages to map
    uint64_t found              # frames that the ladder has brought
    uint64_t held               # pages of the arena when it began
    uint64_t share              # pages of the arena at the peaks of its last turns
    Arena *near[12]             # other arenas that it looks at: those that climbed last, a few more
    uint32_t near_count
    uint64_t others             # allocations of `near` from their bins when it began
    bint at_once                # streams work at once, not in turn: each keeps what it has
    size_t live                 # bytes asked for in all arenas, with this request; 0: not known
    size_t own                  # bytes: the sum of the arenas' own peaks
    size_t joint                # bytes: the peak of the arenas' sum, as far as seen
    uint32_t rung               # the last rung that brought something
    bint views                  # free pages of the arena may be mapped at a second place
    bint moves                  # pages may be unmapped for it
    bint repeats                # iterations end, and few allocations borrow: shapes may repeat
    bint refused                # the driver refused to map a page for the second time

cdef inline bint pages_may_leave(Arena *arena, bint drained) noexcept nogil:
    """True if pages of the arena may be unmapped once its stream was seen complete (I14).

    False while a graph has their addresses.  If frees come before launches, only `drained` permits
    it: all queued work is launched then.
    """
    if arena.role == ROLE_CAPTURE and not arena.released:
        return False
    return drained or not (arena.pool.options.early_frees or arena.role == ROLE_FRAMEWORK
                           or (arena.owner != NULL and arena.owner.role == ROLE_FRAMEWORK))


# Adds frames that a rung has brought.
cdef void climb_add(Climb *climb, Frame *frames, uint64_t pages, uint32_t rung) noexcept nogil

# Under the arena's lock.
cdef void views_settle(Arena *arena, View *cleared, View *barred) noexcept nogil
cdef Block *piece_detach(Arena *arena, Block *block, char *start, char *end) noexcept nogil
cdef bint window_claim(Climb *climb, Window *window) noexcept nogil
cdef void window_unclaim(Climb *climb) noexcept nogil
cdef bint window_recall(Climb *climb) noexcept nogil    # false: the host has no memory
cdef void window_settle(Climb *climb) noexcept nogil
cdef void pages_home(Arena *arena) noexcept nogil
cdef Block *window_join(Climb *climb) noexcept nogil    # one MOVING block of the window

# Without locks.
cdef void views_retry(Arena *arena) noexcept nogil
cdef uint64_t pieces_unmap(Arena *arena, Frame **leaving, Frame **frames,
                           View **cleared) noexcept nogil
cdef bint window_map(Climb *climb) noexcept nogil
cdef bint arena_rest(Arena *arena, bint wait) noexcept nogil
cdef uint64_t pages_view(Climb *climb, uint64_t want, bint flush) noexcept nogil
cdef uint64_t pages_move_out(Arena *arena, uint64_t want, bint wait, bint own,
                             Frame **frames) noexcept nogil

# Whole free pages of an arena to the source, segments to the driver; at most `want` pages.  Without
# locks.  With `wait` the arena's stream is synchronised first; without, it gives only if idle.
cdef uint64_t pages_donate(Arena *arena, uint64_t want, bint wait) noexcept nogil
