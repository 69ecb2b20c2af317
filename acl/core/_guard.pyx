"""Callbacks that look for memory errors of the pool's users, registered instead of the fast ones.

Every n-th block is guarded: it is followed by guard bytes, and when it is freed it is filled and
held back for a while.  All of that is work on the block's own stream, and so is the look at it: the
bytes are copied to pinned memory, in the stream's order, and read once an event has passed.  So
are found: an overflow past a block's end, a write to a freed block, a double free, and the free of
a pointer that is no block of the stream.  What is found goes to `_findings`; the program goes on.

Where every block is guarded each free waits for its stream, and errors are told at once.  Samples
wait for nothing: an error is told some sampled frees later, or at the end.  A block that is not
sampled costs one decrement and one look at its flags.

Any thread may call; there is no GIL and no Python object here.  The statistics count guard bytes as
requested.  Not guarded: streams under capture, whose work may not be waited for; streams that are
gone; what two threads free at one moment on one stream, of which one is not looked at.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc

from acl._core cimport (
    BLOCK_GUARDED, BLOCK_HELD, BLOCK_LIVE, arena_alloc, arena_alloc_at, arena_free,
)
from acl.core._driver cimport event_done, event_mark, event_put, stream_captured, stream_wait
from acl.inside._findings cimport (
    FOUND_DOUBLE_FREE, FOUND_FOREIGN, FOUND_OVERFLOW, FOUND_USE_AFTER_FREE, found, happened,
)
from acl._libacl cimport (
    ACL_MEMCPY_DEVICE_TO_HOST, ACL_SUCCESS, aclrtEvent, aclrtFreeHost, aclrtMallocHost,
    aclrtMemcpyAsync, aclrtMemsetAsync,
)
from acl.core._lock cimport SpinLock, lock_drop, lock_take, spin_leave, stale_read
from acl.core._record cimport block_own

cdef extern from "core/lock.h" nogil:
    bint spin_try(SpinLock *lock)

cdef enum:
    GUARD_VALUE = 0xA7
    FREED_VALUE = 0xDD
    LOOK_BYTES = 4096           # of a freed block, from its start
    SLOTS = 64                  # freed blocks that are looked at, one after another
    HELD = 32                   # of them, those that are held back

cdef struct Slot:               # a guarded block that was freed
    Block *block                # until it leaves; afterwards a name for it
    uint64_t freed              # number of its note
    aclrtEvent event            # after the last copy; NULL: only a wait tells
    size_t look                 # bytes of `after`, once they are copied
    bint checked                # the guard bytes have been looked at
    uint8_t *before             # pinned: the guard bytes at the free
    uint8_t *after              # and what the block held when it left

cdef struct Guard:              # of one arena; under `busy`, which is only ever tried
    SpinLock busy
    bint waits                  # each free waits for its stream, and looks at once
    uint64_t pushed             # slots by their number: settled <= left <= pushed
    uint64_t left
    uint64_t settled
    uint8_t *pinned
    Slot[64] slots


# --- looking ------------------------------------------------------------------------------------

cdef inline Guard *guard_of(Arena *arena) noexcept nogil:
    return <Guard *> arena.guard


cdef inline Slot *slot_at(Guard *guard, uint64_t number) noexcept nogil:
    return &guard.slots[number % SLOTS]


cdef inline size_t user_size(Block *block) noexcept nogil:
    return block.requested - GUARD_BYTES


cdef inline size_t look_size(Block *block) noexcept nogil:
    return block.size if block.size < LOOK_BYTES else LOOK_BYTES


cdef bint filled(const uint8_t *bytes, size_t size, uint8_t value) noexcept nogil:
    cdef size_t index
    for index in range(size):
        if bytes[index] != value:
            return False
    return True


cdef void event_drop(Arena *arena, Slot *slot) noexcept nogil:
    if slot.event != NULL:
        event_put(arena.pool, slot.event)
        slot.event = NULL


cdef bint copy_out(Arena *arena, Slot *slot, void *to, char *addr, size_t size) noexcept nogil:
    """Queue a copy and an event behind it; false if the stream takes none: nothing can be said."""
    event_drop(arena, slot)
    if arena.by_device:
        return False
    if aclrtMemcpyAsync(to, size, addr, size, ACL_MEMCPY_DEVICE_TO_HOST,
                        arena.stream) != ACL_SUCCESS:
        return False
    if not guard_of(arena).waits:
        slot.event = event_mark(arena.pool, arena.stream, arena.context)
    return True


cdef void slot_check(Arena *arena, Slot *slot) noexcept nogil:
    """The guard bytes: their copy is complete."""
    if not slot.checked and not filled(slot.before, GUARD_BYTES, GUARD_VALUE):
        found(FOUND_OVERFLOW, arena, slot.block, slot.freed)
    slot.checked = True


cdef void slot_settle(Arena *arena, Slot *slot) noexcept nogil:
    """The last look at a block that has left: all its copies are complete."""
    slot_check(arena, slot)
    if not filled(slot.after, slot.look, FREED_VALUE):
        found(FOUND_USE_AFTER_FREE, arena, slot.block, slot.freed)


cdef bint slot_ready(Arena *arena, Slot *slot, bint wait) noexcept nogil:
    if slot.event != NULL and event_done(arena.pool, slot.event):
        return True
    return wait and stream_wait(arena)


# --- holding back -------------------------------------------------------------------------------

cdef void block_mark(Arena *arena, Block *block, uint8_t flag) noexcept nogil:
    """Set one of the guard's flags, or none."""
    lock_take(&arena.lock)
    block.flags = (block.flags & ~<uint8_t> (BLOCK_GUARDED | BLOCK_HELD)) | flag      # an enum
    lock_drop(&arena.lock)


cdef void oldest_leaves(Arena *arena, Guard *guard) noexcept nogil:
    """Copy what the block holds, then give it back: what comes later on the stream may use it."""
    cdef Slot *slot = slot_at(guard, guard.left)
    slot.look = look_size(slot.block)
    if not copy_out(arena, slot, slot.after, slot.block.addr, slot.look):
        slot.look = 0
    elif guard.waits and stream_wait(arena):
        slot_settle(arena, slot)
        slot.look = 0
    guard.left += 1
    block_mark(arena, slot.block, 0)
    arena_free(arena, slot.block)


cdef void oldest_settles(Arena *arena, Guard *guard) noexcept nogil:
    cdef Slot *slot = slot_at(guard, guard.settled)
    if guard.waits:
        guard.settled += 1                      # looked at when it left
        return
    if slot_ready(arena, slot, True):
        slot_settle(arena, slot)
    event_drop(arena, slot)
    guard.settled += 1


cdef void guard_poll(Arena *arena, Guard *guard) noexcept nogil:
    """What is complete by now; asks for two events at most."""
    cdef uint64_t number = guard.left
    if guard.settled < guard.left:
        if slot_ready(arena, slot_at(guard, guard.settled), False):
            oldest_settles(arena, guard)
    while number < guard.pushed and slot_at(guard, number).checked:
        number += 1
    if number < guard.pushed and slot_ready(arena, slot_at(guard, number), False):
        slot_check(arena, slot_at(guard, number))


cdef void hold(Arena *arena, Guard *guard, Block *block) noexcept nogil:
    """A guarded block is freed: look behind its end, fill it, and keep it for a while."""
    cdef Slot *slot
    cdef size_t size = user_size(block)
    if guard.pushed - guard.left == HELD:
        oldest_leaves(arena, guard)
    if guard.pushed - guard.settled == SLOTS:
        oldest_settles(arena, guard)
    slot = slot_at(guard, guard.pushed)
    guard.pushed += 1
    slot.block = block
    slot.look = 0
    slot.freed = happened(arena, block, size, True)
    slot.checked = not copy_out(arena, slot, slot.before, block.addr + size, GUARD_BYTES)
    aclrtMemsetAsync(block.addr, block.size, FREED_VALUE, look_size(block), arena.stream)
    block_mark(arena, block, BLOCK_HELD)
    if guard.waits and stream_wait(arena):
        slot_check(arena, slot)


cdef uint64_t guard_flush(Arena *arena) noexcept nogil:
    cdef Guard *guard = guard_of(arena)
    cdef uint64_t count = 0
    if guard == NULL or not spin_try(&guard.busy):
        return 0
    while guard.left < guard.pushed:
        oldest_leaves(arena, guard)
        count += 1
    while guard.settled < guard.left:
        oldest_settles(arena, guard)
    spin_leave(&guard.busy)
    return count


cdef bint guard_open(Arena *arena, uint32_t every) noexcept nogil:
    cdef Guard *guard = guard_of(arena)
    cdef void *pinned = NULL
    cdef uint32_t index
    arena.guard_every = every
    arena.guard_left = every
    if guard == NULL:
        guard = <Guard *> calloc(1, sizeof(Guard))
    if guard == NULL:
        return False
    arena.guard = guard                         # until the arena goes
    guard.waits = every == 1
    if guard.pinned != NULL:
        return True
    if aclrtMallocHost(&pinned, SLOTS * (GUARD_BYTES + LOOK_BYTES)) != ACL_SUCCESS:
        return False
    for index in range(<uint32_t> SLOTS):               # an enum
        guard.slots[index].before = <uint8_t *> pinned + index * (GUARD_BYTES + LOOK_BYTES)
        guard.slots[index].after = guard.slots[index].before + GUARD_BYTES
    guard.pinned = <uint8_t *> pinned
    return True


cdef void guard_close(Arena *arena) noexcept nogil:
    cdef Guard *guard = guard_of(arena)
    guard_flush(arena)
    if guard == NULL or not spin_try(&guard.busy):
        return
    # A look that timed out may have left copies on their way.
    if guard.pinned != NULL and guard.settled == guard.pushed and stream_wait(arena):
        aclrtFreeHost(guard.pinned)
        guard.pinned = NULL
    spin_leave(&guard.busy)


# --- callbacks ----------------------------------------------------------------------------------

cdef bint captured(Arena *arena) noexcept nogil:
    """Whether the stream takes no work of ours: it is captured, or gone."""
    cdef void *graph = NULL
    if arena.by_device:
        return True
    return stream_captured(arena.pool, arena.stream, &graph)


cdef bint guard_ready(Arena *arena) noexcept nogil:
    return guard_of(arena) != NULL and guard_of(arena).pinned != NULL


cdef bint guard_turn(Arena *arena, size_t size) noexcept nogil:
    if arena.guard_left > 1:
        arena.guard_left -= 1
        return False
    arena.guard_left = arena.guard_every
    return guard_ready(arena) and size + GUARD_BYTES > size and not captured(arena)


cdef void guard_set(Arena *arena, Block *block, size_t size) noexcept nogil:
    if block != NULL and aclrtMemsetAsync(
            block.addr + size, GUARD_BYTES, GUARD_VALUE, GUARD_BYTES,
            arena.stream) == ACL_SUCCESS:
        block_mark(arena, block, BLOCK_GUARDED)
        block_own(block, GUARD_BYTES)
        happened(arena, block, size, False)


cdef void *guard_alloc(aclrtAllocator allocator, size_t size) noexcept nogil:
    cdef Arena *arena = <Arena *> allocator
    cdef bint turn = guard_turn(arena, size)
    cdef size_t wanted = size + GUARD_BYTES if turn else size
    cdef Block *block = arena_alloc(arena, wanted, 0)
    if block == NULL and guard_flush(arena) > 0:
        block = arena_alloc(arena, wanted, 0)
    if turn:
        guard_set(arena, block, size)
    return block


cdef void *guard_alloc_advise(aclrtAllocator allocator, size_t size,
                              aclrtAllocatorAddr addr) noexcept nogil:
    cdef Arena *arena = <Arena *> allocator
    cdef bint turn = guard_turn(arena, size)
    cdef size_t wanted = size + GUARD_BYTES if turn else size
    cdef Block *block = arena_alloc_at(arena, wanted, <char *> addr)
    if turn:
        guard_set(arena, block, size)
    return block


cdef void free_plain(Arena *arena, Block *block, bint ours) noexcept nogil:
    """The free of a block that is not guarded, or is no block at all."""
    if not arena_free(arena, block):            # a capture's block is one of another slab
        found(FOUND_DOUBLE_FREE if ours else FOUND_FOREIGN, arena, block, 0)


cdef void free_guarded(Arena *arena, Block *block) noexcept nogil:
    cdef Guard *guard = guard_of(arena)
    if not captured(arena) and spin_try(&guard.busy):
        if guard.pinned != NULL:
            hold(arena, guard, block)
            guard_poll(arena, guard)
            spin_leave(&guard.busy)
            return
        spin_leave(&guard.busy)
    guard_drop(arena, block)


cdef void guard_drop(Arena *arena, Block *block) noexcept nogil:
    block_mark(arena, block, 0)
    arena_free(arena, block)


cdef void guard_free(aclrtAllocator allocator, aclrtAllocatorBlock pointer) noexcept nogil:
    cdef Arena *arena = <Arena *> allocator
    cdef Block *block = <Block *> pointer
    cdef size_t offset = <size_t> (<char *> block - arena.slab)
    if offset >= stale_read(&arena.slab_used) or offset % sizeof(Block) != 0:
        free_plain(arena, block, False)
    elif block.state != BLOCK_LIVE or block.flags & (BLOCK_GUARDED | BLOCK_HELD) == 0:
        free_plain(arena, block, True)
    elif block.flags & BLOCK_HELD:
        found(FOUND_DOUBLE_FREE, arena, block, 0)
    else:
        free_guarded(arena, block)
