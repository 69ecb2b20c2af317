"""The checker of the invariants, and the report of a failed allocation."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl.core.types cimport Arena, Block, Pool, Range, View

cdef extern from *:
    """
    #ifndef ACL_POOL_DEBUG
    #define ACL_POOL_DEBUG 0
    #endif
    """
    enum:
        # 0: no check is compiled in; 1: I14 is checked; 2: also `arena_check` after each operation
        DEBUG_LEVEL "ACL_POOL_DEBUG"

# Return the number of the first invariant that is broken, or 0.  `arena_check` is called with the
# lock held; `pool_check` without locks, while no other thread uses the pool.
cdef uint32_t arena_check(Arena *arena) noexcept nogil
cdef uint32_t pool_check(Pool *pool) noexcept nogil

# Debug builds: `free_stamp` notes a free on each page of a block.  The other two end the process if
# memory is unmapped too early (I14): a page with a free, or a shadow that held its frame, since the
# arena's stream was last seen complete.
cdef void free_stamp(Arena *arena, Block *block) noexcept nogil
cdef void page_enforce(Arena *arena, Range *span, uint32_t page) noexcept nogil
cdef void shadow_enforce(Arena *arena, View *view) noexcept nogil

# Ends the process if `arena_check` finds a broken invariant; prints its number.
cdef void arena_enforce(Arena *arena) noexcept nogil

# Without locks: keeps a report for `pool.last_oom()`, with the thread's `Attempt`.  Returns its
# number.
cdef uint64_t oom_note(Arena *arena, size_t size, uint16_t tag) noexcept nogil
