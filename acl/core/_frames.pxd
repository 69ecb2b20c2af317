"""The mappings of a frame (`View`), of which at most one is active.  See `_frames.pyx`.

All functions run under the arena's lock and make no driver call.
"""

from libc.stdint cimport uint32_t

from acl.core.types cimport Arena, Block, Frame, Range, View

cdef View *view_make(Range *span, uint32_t page) noexcept nogil  # no lock needed; NULL: no memory
cdef void view_drop(Arena *arena, View *view) noexcept nogil    # called after its page was unmapped

# Makes a mapping the active one of its frame (`Frame.holder`).  The mapping that was active before
# becomes inactive.
cdef void view_hold(Arena *arena, View *view, Frame *frame) noexcept nogil
# Retires an inactive mapping: it must be unmapped before its page is used again, and before its
# frame leaves the arena.
cdef void view_doom(Arena *arena, View *view) noexcept nogil
# Retires all mappings of a frame.  Returns them as a list that begins with the active one.
cdef View *views_doom(Arena *arena, Frame *frame) noexcept nogil
# Undoes `views_doom` for the list in `frame.views`.
cdef void views_restore(Arena *arena, Frame *frame) noexcept nogil

# Returns the number of wholly free pages, without those of segments.
cdef uint32_t pages_free(Arena *arena) noexcept nogil
# Begins a search: sets `stamp` and `block` in the frames of wholly free pages.  If `away` is not
# NULL, it is set to a list of those frames that are not at their first mapping.
cdef void frames_stamp(Arena *arena, Frame **away) noexcept nogil
# Sets `Frame.hole` of each frame whose first mapping (`home`) is in a HOLE.
cdef void homes_stamp(Arena *arena) noexcept nogil

# Debug builds: `free_stamp` notes a free on each page of a block.  `page_enforce` and
# `shadow_enforce` end the process if a page or an inactive mapping is about to be unmapped too
# early (I14): the page had a free, or the mapping was active, since the arena's stream was last
# seen complete.
cdef void free_stamp(Arena *arena, Block *block) noexcept nogil
cdef void page_enforce(Arena *arena, Range *span, uint32_t page) noexcept nogil
cdef void shadow_enforce(Arena *arena, View *view) noexcept nogil
