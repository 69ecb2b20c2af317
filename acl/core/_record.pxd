"""The events of a pool, which are written while the pool is recorded.  See `_record.pyx`."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl.core.types cimport Arena, Block, Pool
from acl.core._events cimport Event

# Called before the arena's lock is taken: stores the C stack of this thread, if a recording wants C
# stacks.
cdef void record_enter(Arena *arena) noexcept nogil
# `record_alloc` and `record_free` are called under the lock of an arena that is recorded.
cdef void record_alloc(Arena *arena, Block *block, uint32_t path, uint64_t ticks) noexcept nogil
cdef void record_free(Arena *arena, Block *block) noexcept nogil
# Under the lock of any arena: if the arena is recorded, writes an event of pages: EVENT_MAP or
# EVENT_UNMAP.
cdef void record_pages(Arena *arena, uint32_t kind, char *addr, uint64_t size,
                       uint64_t detail) noexcept nogil
# Under the lock of any arena: if the arena is recorded, writes an event of a block, such as
# EVENT_SLEEP.
cdef void record_block(Arena *arena, uint32_t kind, Block *block, uint64_t detail) noexcept nogil
# Called without locks, for any arena: `record_note` and `record_oom` write an event if the arena is
# recorded.  `record_pool` writes an event that belongs to no stream, into the ring of the first
# arena.
cdef void record_note(Arena *arena, uint32_t kind, char *addr, uint64_t size,
                      uint64_t detail) noexcept nogil
cdef void record_oom(Arena *arena, size_t size, uint16_t tag, uint64_t number) noexcept nogil
cdef void record_pool(Pool *pool, uint32_t kind, uint64_t size, uint64_t detail) noexcept nogil

# Takes a snapshot: an event for each live block and, with `pages`, for each run of mapped pages.
# Writes the first `room` events to `out` and returns the number of all events.  Sets `head` to the
# number of events that were recorded before the snapshot.
cdef uint64_t arena_survey(Arena *arena, Event *out, uint64_t room, bint pages,
                           uint64_t *head) noexcept nogil
# Copies the events from number `first` up to `end` - 1, without those that were overwritten.
# Returns the number of the first copied event.
cdef uint64_t ring_copy(Arena *arena, Event *out, uint64_t first, uint64_t end) noexcept nogil
cdef void ring_drop(Arena *arena) noexcept nogil
# Called without locks: makes the arena's ring before its first event.  READY_BYTES / `rings` bytes
# of the ring get memory at once, the others when written.  Does nothing if `capacity` is 0.
cdef void ring_ready(Arena *arena, uint64_t capacity, uint32_t rings) noexcept nogil
# Returns the number of events that were written to the ring so far.
cdef uint64_t ring_head(Arena *arena) noexcept nogil
# Stores that `extra` bytes of a block, which was just handed out, are not for the caller's data.
cdef void block_own(Block *block, size_t extra) noexcept nogil
# Sets BLOCK_SEEN with the time `ticks` for each live block without BLOCK_BORN and BLOCK_SEEN.
# Returns the number of live blocks.
cdef uint64_t pool_see(Pool *pool, uint64_t ticks) noexcept nogil

# If `trims`, pages that this thread unmaps from now on are recorded as trimmed, otherwise as moved.
cdef void record_trims(bint trims) noexcept nogil
cdef uint64_t record_ticks() noexcept nogil
cdef uint64_t record_ns(uint64_t ticks) noexcept nogil           # in ns of CLOCK_MONOTONIC
# Sets the number of the Python stack from which this thread calls into C; 0: none.
cdef void record_call(uint32_t stack) noexcept nogil
cdef bint record_native_open() noexcept nogil
# Returns the number of the thread's Python stack, as set by `record_call`, and of its C stack; 0 if
# there is none.  Not to be called under an arena's lock.
cdef void record_stacks_here(uint32_t *python, uint32_t *native) noexcept nogil
cdef uint32_t record_native(uint32_t number, void **frames) noexcept nogil
cdef uint64_t record_native_lost() noexcept nogil
