"""The checker of the invariants, and the report on memory that could not be had."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl._core cimport Arena, Block, Pool, Range, View

cdef extern from *:
    """
    #ifndef ACL_POOL_DEBUG
    #define ACL_POOL_DEBUG 0
    #endif
    """
    enum:
        # 0: nothing is compiled in; 2: `arena_check` after each mutation; 3: all pages of it
        DEBUG_LEVEL "ACL_POOL_DEBUG"

# The number of the first invariant that is broken, 0 if none is.  The first is called with the
# lock held, the second without locks while nothing else uses the pool.
cdef uint32_t arena_check(Arena *arena) noexcept nogil
cdef uint32_t pool_check(Pool *pool) noexcept nogil

# Debug builds: notes a free on each page of a block; ends the process if a page leaves that was
# freed, or a shadow that held its frame, since the arena's stream was last seen complete (I14).
cdef void free_stamp(Arena *arena, Block *block) noexcept nogil
cdef void page_enforce(Arena *arena, Range *span, uint32_t page) noexcept nogil
cdef void shadow_enforce(Arena *arena, View *view) noexcept nogil

# Ends the process, with the number, if `arena_check` finds one.
cdef void arena_enforce(Arena *arena) noexcept nogil

# Keeps a report for `pool.last_oom()`, with what `attempt_read` says.  Without locks.
cdef uint64_t oom_note(Arena *arena, size_t size, uint16_t tag) noexcept nogil
