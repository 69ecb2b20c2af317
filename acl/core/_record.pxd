"""Events of a pool, noted while somebody asks for them: `_record.pyx`."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl._core cimport Arena, Block, Pool
from acl.core._events cimport Event

# Before the arena's lock is taken: what must not be done under it.
cdef void record_enter(Arena *arena) noexcept nogil
# Under the lock of an arena that is recorded.
cdef void record_alloc(Arena *arena, Block *block, uint32_t path, uint64_t ticks) noexcept nogil
cdef void record_free(Arena *arena, Block *block) noexcept nogil
# The same for pages that are backed from now on, or not any more; asks if the arena is recorded.
cdef void record_pages(Arena *arena, uint32_t kind, char *addr, uint64_t size,
                       uint64_t detail) noexcept nogil
# A block that stays where it is.
cdef void record_block(Arena *arena, uint32_t kind, Block *block, uint64_t detail) noexcept nogil
# Without locks, for any arena: they ask whether it is recorded.
cdef void record_note(Arena *arena, uint32_t kind, char *addr, uint64_t size,
                      uint64_t detail) noexcept nogil
cdef void record_oom(Arena *arena, size_t size, uint16_t tag, uint64_t number) noexcept nogil
cdef void record_pool(Pool *pool, uint32_t kind, uint64_t size, uint64_t detail) noexcept nogil

# Live blocks and mapped pages, by address: their number, of which the first `room` are written;
# `head` is how many events lie before that moment.
cdef uint64_t arena_survey(Arena *arena, Event *out, uint64_t room, bint pages,
                           uint64_t *head) noexcept nogil
# The events from `first` to before `end`, fewer if they are gone: the number of the first.
cdef uint64_t ring_copy(Arena *arena, Event *out, uint64_t first, uint64_t end) noexcept nogil
cdef void ring_drop(Arena *arena) noexcept nogil
# Makes the arena's ring before its first event, with memory behind its share, as one of so many;
# without locks.  Nothing if `capacity` is 0.
cdef void ring_ready(Arena *arena, uint64_t capacity, uint32_t rings) noexcept nogil
# How many events the ring has seen.
cdef uint64_t ring_head(Arena *arena) noexcept nogil
# Of a block that was just handed out: so much of it is not what the user asked for.
cdef void block_own(Block *block, size_t extra) noexcept nogil
# Sees every live block: what is not seen or born later than a time is younger.  Says how many.
cdef uint64_t pool_see(Pool *pool, uint64_t ticks) noexcept nogil

cdef void record_trims(bint trims) noexcept nogil      # this thread, from here on, or no more
cdef uint64_t record_ticks() noexcept nogil
cdef uint64_t record_ns(uint64_t ticks) noexcept nogil           # CLOCK_MONOTONIC
# The Python stack of this thread's call into C; 0: none.
cdef void record_call(uint32_t stack) noexcept nogil
cdef bint record_native_open() noexcept nogil
# The numbers of the thread's stacks: of Python's last call into C, and of C; 0 without one.  Not
# under an arena's lock.
cdef void record_stacks_here(uint32_t *python, uint32_t *native) noexcept nogil
cdef uint32_t record_native(uint32_t number, void **frames) noexcept nogil
cdef uint64_t record_native_lost() noexcept nogil
