"""Views: at which addresses a frame is mapped, and which view is active.  See `_frames.pyx`.

All of it runs under the arena's lock and makes no driver call.
"""

from libc.stdint cimport uint32_t

from acl.core.types cimport Arena, Block, Frame, Range, View

cdef View *view_make(Range *span, uint32_t page) noexcept nogil     # without locks; NULL: no memory
cdef void view_drop(Arena *arena, View *view) noexcept nogil    # after its page was unmapped

# Makes a view the holder of its frame; the former holder becomes a shadow.
cdef void view_hold(Arena *arena, View *view, Frame *frame) noexcept nogil
# Retires a shadow: its page must be unmapped before the page is used again, and before the frame
# leaves the arena.
cdef void view_doom(Arena *arena, View *view) noexcept nogil
# Retires all views of a frame.  Returns them as a list, the holder first.
cdef View *views_doom(Arena *arena, Frame *frame) noexcept nogil
# Undoes `views_doom`, for the list in frame.views.
cdef void views_restore(Arena *arena, Frame *frame) noexcept nogil

# Counts the wholly free pages, without those of segments.
cdef uint32_t pages_free(Arena *arena) noexcept nogil
# Begins a search: stamps the frames of wholly free pages, and notes the FREE block around each.
# With `away`, also lists those of them whose holder is not their `home`.
cdef void frames_stamp(Arena *arena, Frame **away) noexcept nogil
cdef void homes_stamp(Arena *arena) noexcept nogil      # notes the HOLE block around each `home`

# Debug builds: `free_stamp` notes a free on each page of a block.  The other two end the process if
# memory is unmapped too early (I14): a page with a free, or a shadow that held its frame, since the
# arena's stream was last seen complete.
cdef void free_stamp(Arena *arena, Block *block) noexcept nogil
cdef void page_enforce(Arena *arena, Range *span, uint32_t page) noexcept nogil
cdef void shadow_enforce(Arena *arena, View *view) noexcept nogil
