"""Views, which are the mappings of a frame: at most one of them is active.  See `_frames.pyx`.

All functions run under the arena's lock and make no driver call.
"""

from libc.stdint cimport uint32_t

from acl.core.types cimport Arena, Block, Frame, Range, View

cdef View *view_make(Range *span, uint32_t page) noexcept nogil     # without locks; NULL: no memory
cdef void view_drop(Arena *arena, View *view) noexcept nogil    # after its page was unmapped

# Makes a view the active one of its frame (the holder); the former one becomes inactive (a shadow).
cdef void view_hold(Arena *arena, View *view, Frame *frame) noexcept nogil
# Retires an inactive view: it must be unmapped before its page is used again, and before its frame
# leaves the arena.
cdef void view_doom(Arena *arena, View *view) noexcept nogil
# Retires all views of a frame.  Returns them as a list, the active one first.
cdef View *views_doom(Arena *arena, Frame *frame) noexcept nogil
# Undoes `views_doom`, for the list in frame.views.
cdef void views_restore(Arena *arena, Frame *frame) noexcept nogil

# Counts the wholly free pages, without those of segments.
cdef uint32_t pages_free(Arena *arena) noexcept nogil
# Begins a search: stamps the frames of wholly free pages, and notes the FREE block around each.
# With `away`, also lists the frames of these that are not at their first mapping.
cdef void frames_stamp(Arena *arena, Frame **away) noexcept nogil
cdef void homes_stamp(Arena *arena) noexcept nogil      # notes the HOLE block around each `home`

# Debug builds: `free_stamp` notes a free on each page of a block.  The other two end the process if
# memory is unmapped too early (I14): a page with a free, or a shadow that held its frame, since the
# arena's stream was last seen complete.
cdef void free_stamp(Arena *arena, Block *block) noexcept nogil
cdef void page_enforce(Arena *arena, Range *span, uint32_t page) noexcept nogil
cdef void shadow_enforce(Arena *arena, View *view) noexcept nogil
