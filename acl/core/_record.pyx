"""Events of a pool: a ring for each arena, and the time and stacks of each live block.

A recorded arena has a mode bit that disables its fast path; other arenas are not slowed.  The ring
of an arena is written under the arena's lock, which an allocation takes in any case.  So streams
share no data, the events of one block are in order, and no event is half written.  If the ring is
full, a new event overwrites the oldest one.  Readers copy the ring in short sections under the
arena's lock.

A block that is handed out during a recording is tracked (BLOCK_BORN): its links, which no list uses
while it is live, hold the time and the stacks.  `pool_see` sets BLOCK_SEEN, with a time, in the
other live blocks.  A block that is freed and handed out again loses both flags.  So it is known
exactly whether a block is younger than a call of `pool_see`, even if allocations were not tracked.
`block_own` stores in the links how many bytes a block has in addition to those that its caller
asked for.

Thread rule: any thread, no GIL, no Python object.  Nothing here calls the driver or waits.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from acl.core.types cimport (
    ARENA_RECORDED, BLOCK_BORN, BLOCK_HELD, BLOCK_HOLE, BLOCK_LIVE, BLOCK_SEEN, Range,
)
from acl.core._events cimport (
    Birth, EVENT_ALLOC, EVENT_FREE, EVENT_LIVE, EVENT_OOM, EVENT_PAGES, EVENT_UNMAP, OWNED, Ring,
)
from acl.core._space cimport page_backed
from acl.core._lock cimport (
    SpinLock, count_read, lock_drop, lock_take, spin_enter, spin_leave, stale_read,
)

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil)

cdef extern from "core/record.h" nogil:
    ctypedef struct ThreadNotes:
        uint32_t number
        uint32_t stack
        uint32_t native
        uint32_t trims
    SpinLock native_lock
    uint64_t native_lost
    uint64_t ticks_now()
    uint64_t ticks_to_ns(uint64_t ticks)
    void ticks_start()
    ThreadNotes *thread_here()
    uint32_t thread_number(ThreadNotes *notes)
    void *pages_take(size_t bytes)
    void pages_drop(void *base, size_t bytes)
    void pages_ready(void *base, size_t bytes)
    bint native_start()
    uint32_t native_here()
    uint32_t native_read(uint32_t number, void **frames)

if sizeof(Event) != 64 or sizeof(Birth) != 16:
    raise ImportError(
        f"an event has {sizeof(Event)} bytes, not 64; a birth {sizeof(Birth)}, not 16")

cdef enum:
    SLICE = 256                 # most events that are copied in one section under the lock
    READY_BYTES = 64 << 20      # bytes of memory that all rings of a pool together get in advance

ticks_start()


cdef void on_fork() noexcept nogil:
    spin_enter(&native_lock)    # no thread may change the table of C stacks during the fork


cdef void on_forked() noexcept nogil:
    spin_leave(&native_lock)


cdef bint fork_watched = pthread_atfork(on_fork, on_forked, on_forked) == 0


cdef inline Birth *block_birth(Block *block) noexcept nogil:
    return <Birth *> &block.links


cdef inline bint owned(Block *block) noexcept nogil:
    return block_birth(block).time >> 48 == OWNED


cdef void block_own(Block *block, size_t extra) noexcept nogil:
    # Without a lock, as each write is one word.  A thread that is in `block_see` for this block at
    # the same time may overwrite `extra` with 0.  Then reports show 0 extra bytes for the block.
    if block.flags & (BLOCK_BORN | BLOCK_SEEN):
        block_birth(block).extra = <uint32_t> extra             # safe cast: a few bytes
    else:
        block_birth(block).time = <uint64_t> OWNED << 48 | extra


cdef inline uint16_t tag_of(Arena *arena, Block *block) noexcept nogil:
    return block.tag if block.tag != 0 else arena.default_tag


# --- rings --------------------------------------------------------------------------------------

cdef Ring *ring_new(uint64_t capacity) noexcept nogil:
    """Return a new ring; NULL if there is no host memory, or if `capacity` is 0.

    The system gives memory to the ring's addresses when they are first written.
    """
    cdef Ring *ring = <Ring *> malloc(sizeof(Ring)) if capacity > 0 else NULL
    if ring == NULL:
        return NULL
    ring.events = <Event *> pages_take(capacity * sizeof(Event))
    if ring.events == NULL:
        free(ring)
        return NULL
    ring.head = 0
    ring.capacity = capacity
    ring.mask = capacity - 1
    return ring


cdef void ring_free(Ring *ring) noexcept nogil:
    if ring != NULL:
        pages_drop(ring.events, ring.capacity * sizeof(Event))
        free(ring)


cdef void ring_ready(Arena *arena, uint64_t capacity, uint32_t rings) noexcept nogil:
    cdef size_t bytes = READY_BYTES // rings
    cdef Ring *ring
    if capacity == 0 or arena.recording.ring != NULL:
        return
    ring = ring_new(capacity)
    if ring == NULL:
        return                                  # `ring_next` will try again at the first event
    pages_ready(ring.events, min(bytes, capacity * sizeof(Event)))
    lock_take(&arena.lock)
    if arena.recording.ring == NULL:
        arena.recording.ring = ring
        ring = NULL
    lock_drop(&arena.lock)
    ring_free(ring)


cdef uint64_t ring_head(Arena *arena) noexcept nogil:
    cdef uint64_t head
    lock_take(&arena.lock)
    head = arena.recording.ring.head if arena.recording.ring != NULL else 0
    lock_drop(&arena.lock)
    return head


cdef inline Event *ring_next(Arena *arena) noexcept nogil:
    """Under the lock: return the slot of the next event; make the ring if there is none yet.

    NULL: no events are kept, or there is no host memory.
    """
    cdef Ring *ring = arena.recording.ring
    cdef Event *event
    if ring == NULL:
        ring = arena.recording.ring = ring_new(stale_read(&arena.pool.notes.capacity))
        if ring == NULL:
            return NULL
    event = &ring.events[ring.head & ring.mask]
    ring.head += 1
    return event


cdef void ring_drop(Arena *arena) noexcept nogil:
    cdef Ring *ring
    lock_take(&arena.lock)
    ring = arena.recording.ring
    arena.recording.ring = NULL
    lock_drop(&arena.lock)
    ring_free(ring)


cdef uint64_t ring_copy(Arena *arena, Event *out, uint64_t first, uint64_t end) noexcept nogil:
    cdef uint64_t start = first
    cdef uint64_t at = first
    cdef uint64_t stop
    cdef Ring *ring
    while at < end:
        lock_take(&arena.lock)
        ring = arena.recording.ring
        if ring == NULL or end > ring.head:
            lock_drop(&arena.lock)
            return end
        if ring.head - at > ring.capacity:  # event `at` was overwritten: restart at the oldest one
            start = at = ring.head - ring.capacity
        stop = min(at + SLICE, end)
        while at < stop:
            out[at - start] = ring.events[at & ring.mask]
            at += 1
        lock_drop(&arena.lock)
    return min(start, end)


# --- events -------------------------------------------------------------------------------------

cdef void record_enter(Arena *arena) noexcept nogil:
    thread_here().native = native_here() if count_read(&arena.pool.notes.native) > 0 else 0


cdef inline void event_sign(Arena *arena, Event *event, uint32_t kind,
                            ThreadNotes *here) noexcept nogil:
    event.thread = thread_number(here)
    event.step = count_read(&arena.pool.notes.steps)
    event.kind = <uint8_t> kind                         # safe cast: an EventKind


cdef void record_alloc(Arena *arena, Block *block, uint32_t path, uint64_t ticks) noexcept nogil:
    cdef ThreadNotes *here = thread_here()
    cdef Birth *birth = block_birth(block)
    cdef Event *event = ring_next(arena)
    birth.time = ticks_now()
    birth.stack = <uint16_t> here.stack                 # safe casts: both are below 2**16
    birth.native = <uint16_t> here.native
    birth.extra = 0
    block.flags |= BLOCK_BORN
    if event == NULL:
        return
    event.time = birth.time
    event.addr = block.addr
    event.size = block.size
    event.requested = block.requested
    event.detail = ticks
    event.stack = birth.stack
    event.native = birth.native
    event.tag = tag_of(arena, block)
    event.path = <uint8_t> path                         # safe cast: an EventPath
    event_sign(arena, event, EVENT_ALLOC, here)


cdef void record_free(Arena *arena, Block *block) noexcept nogil:
    cdef ThreadNotes *here = thread_here()
    cdef Event *event = ring_next(arena)
    if event == NULL:
        return
    event.time = ticks_now()
    event.addr = block.addr
    event.size = block.size
    event.requested = block.requested
    event.detail = 0
    event.stack = event.native = 0
    event.tag = tag_of(arena, block)
    event.path = 0
    event_sign(arena, event, EVENT_FREE, here)


cdef void note_locked(Arena *arena, uint32_t kind, char *addr, uint64_t size, uint64_t detail,
                      uint16_t tag) noexcept nogil:
    cdef ThreadNotes *here = thread_here()
    cdef Event *event = NULL
    if arena.mode & ARENA_RECORDED:
        event = ring_next(arena)
    if event == NULL:
        return
    event.time = ticks_now()
    event.addr = addr
    event.size = size
    event.requested = 0
    event.detail = detail
    event.stack = here.stack
    event.native = here.native
    event.tag = tag if tag != 0 or kind != EVENT_OOM else arena.default_tag
    event.path = 0
    event_sign(arena, event, kind, here)


cdef void record_pages(Arena *arena, uint32_t kind, char *addr, uint64_t size,
                       uint64_t detail) noexcept nogil:
    if arena.mode & ARENA_RECORDED:
        note_locked(arena, kind, addr, size, detail, 0)


cdef void record_block(Arena *arena, uint32_t kind, Block *block, uint64_t detail) noexcept nogil:
    if arena.mode & ARENA_RECORDED:
        note_locked(arena, kind, block.addr, block.size, detail, tag_of(arena, block))


cdef void note_in(Arena *arena, uint32_t kind, char *addr, uint64_t size, uint64_t detail,
                  uint16_t tag) noexcept nogil:
    lock_take(&arena.lock)
    note_locked(arena, kind, addr, size, detail, tag)
    lock_drop(&arena.lock)


cdef void record_note(Arena *arena, uint32_t kind, char *addr, uint64_t size,
                      uint64_t detail) noexcept nogil:
    if count_read(&arena.mode) & ARENA_RECORDED:
        if thread_here().trims and kind == EVENT_UNMAP:
            detail = 0
        note_in(arena, kind, addr, size, detail, 0)


cdef void record_oom(Arena *arena, size_t size, uint16_t tag, uint64_t number) noexcept nogil:
    if count_read(&arena.mode) & ARENA_RECORDED:
        note_in(arena, EVENT_OOM, NULL, size, number, tag)


cdef void record_pool(Pool *pool, uint32_t kind, uint64_t size, uint64_t detail) noexcept nogil:
    """Write an event that belongs to no stream into the ring of the first arena, if `size` > 0."""
    if size > 0 and count_read(&pool.arena_count) > 0:
        record_note(pool.arenas[0], kind, NULL, size, detail)


# --- snapshots of live blocks -------------------------------------------------------------------

cdef inline void survey_block(Arena *arena, Block *block, Event *event) noexcept nogil:
    cdef Birth *birth = block_birth(block)
    event.addr = block.addr
    event.size = block.size
    event.requested = block.requested
    event.tag = tag_of(arena, block)
    event.kind = EVENT_LIVE
    event.path = block.flags
    event.time = event.detail = 0
    event.stack = event.native = event.thread = event.step = 0
    if owned(block):
        event.path &= <uint8_t> ~<uint32_t> BLOCK_SEEN
        # `block_own` stored the number of extra bytes in the lower 32 bits of `time`.
        event.step = <uint32_t> birth.time
    elif block.flags & (BLOCK_BORN | BLOCK_SEEN):
        event.detail = birth.time
        event.step = birth.extra
    if block.flags & BLOCK_BORN:
        event.stack = birth.stack
        event.native = birth.native


cdef inline void survey_pages(char *start, char *end, Event *event) noexcept nogil:
    event.addr = start
    event.size = <size_t> (end - start)
    event.requested = event.time = event.detail = 0
    event.stack = event.native = event.thread = event.step = 0
    event.tag = 0
    event.path = 0
    event.kind = EVENT_PAGES


cdef uint64_t blocks_survey(Arena *arena, Block *block, Event *out, uint64_t room,
                            uint64_t count) noexcept nogil:
    while block != NULL:
        if block.state == BLOCK_LIVE and not block.flags & BLOCK_HELD:  # HELD: the caller freed it
            if count < room:
                survey_block(arena, block, &out[count])
            count += 1
        block = block.next
    return count


cdef uint64_t holes_survey(Block *block, Event *out, uint64_t room, uint64_t count) noexcept nogil:
    """Write an event for each run of memory between holes; return `count` plus their number.

    Not for ranges with sleeping blocks, whose pages lack memory without being holes.
    """
    cdef char *start = NULL
    while block != NULL:
        if block.state != BLOCK_HOLE and start == NULL:
            start = block.addr
        if start != NULL and (block.next == NULL or block.next.state == BLOCK_HOLE):
            if count < room:
                survey_pages(start, block.addr + block.size, &out[count])
            count += 1
            start = NULL
        block = block.next
    return count


cdef uint64_t backed_survey(Arena *arena, Range *span, Event *out, uint64_t room,
                            uint64_t count) noexcept nogil:
    """Write an event for each run of mapped pages; return `count` plus their number.

    Unlike `holes_survey`, it may be called for ranges with sleeping blocks.
    """
    cdef size_t granule = arena.pool.options.granule
    cdef char *start = NULL
    cdef char *end
    cdef uint32_t page
    for page in range(span.top + 1):
        end = span.base + page * granule
        if page < span.top and page_backed(span, page):
            if start == NULL:
                start = end
        elif start != NULL:
            if count < room:
                survey_pages(start, end, &out[count])
            count += 1
            start = NULL
    return count


cdef uint64_t range_survey(Arena *arena, Range *span, Event *out, uint64_t room, bint pages,
                           uint64_t count) noexcept nogil:
    count = blocks_survey(arena, span.first, out, room, count)
    if not pages:
        return count
    if arena.sleep.naps == NULL or span.segment:
        return holes_survey(span.first, out, room, count)
    return backed_survey(arena, span, out, room, count)


cdef uint64_t arena_survey(Arena *arena, Event *out, uint64_t room, bint pages,
                           uint64_t *head) noexcept nogil:
    cdef uint64_t count = 0
    cdef uint32_t index
    lock_take(&arena.lock)
    head[0] = arena.recording.ring.head if arena.recording.ring != NULL else 0
    for index in range(arena.space.range_count):
        if arena.space.ranges[index] != NULL:
            count = range_survey(arena, arena.space.ranges[index], out, room, pages, count)
    lock_drop(&arena.lock)
    return count


cdef inline void block_see(Block *block, uint64_t ticks) noexcept nogil:
    cdef Birth *birth = block_birth(block)
    if owned(block):
        # `block_own` stored the extra bytes in the lower half of `time`, which is overwritten
        # below.
        birth.extra = <uint32_t> birth.time
    elif block.flags & (BLOCK_BORN | BLOCK_SEEN):
        return
    else:
        birth.extra = 0
    block.flags |= BLOCK_SEEN
    birth.time = ticks


cdef uint64_t arena_see(Arena *arena, uint64_t ticks) noexcept nogil:
    cdef uint64_t count = 0
    cdef uint32_t index
    cdef Block *block
    lock_take(&arena.lock)
    for index in range(arena.space.range_count):
        block = arena.space.ranges[index].first if arena.space.ranges[index] != NULL else NULL
        while block != NULL:
            if block.state == BLOCK_LIVE:
                count += 1
                block_see(block, ticks)
            block = block.next
    lock_drop(&arena.lock)
    return count


cdef uint64_t pool_see(Pool *pool, uint64_t ticks) noexcept nogil:
    cdef uint32_t index
    cdef uint64_t count = 0
    for index in range(count_read(&pool.arena_count)):
        count += arena_see(pool.arenas[index], ticks)
    return count


# --- the clock and the stacks, for other modules ------------------------------------------------

cdef uint64_t record_ticks() noexcept nogil:
    return ticks_now()


cdef uint64_t record_ns(uint64_t ticks) noexcept nogil:
    return ticks_to_ns(ticks)


cdef void record_trims(bint trims) noexcept nogil:
    thread_here().trims = trims


cdef void record_call(uint32_t stack) noexcept nogil:
    thread_here().stack = stack


cdef bint record_native_open() noexcept nogil:
    return native_start()


cdef uint32_t record_native(uint32_t number, void **frames) noexcept nogil:
    return native_read(number, frames)


cdef uint64_t record_native_lost() noexcept nogil:
    return native_lost


cdef void record_stacks_here(uint32_t *python, uint32_t *native) noexcept nogil:
    python[0] = thread_here().stack
    native[0] = native_here()                   # 0 if `record_native_open` was not called
