"""Callbacks for guarded streams, which detect memory errors of the program.

One block in N of a guarded stream is guarded.  Guard bytes follow the block.  When the block is
freed, its first LOOK_BYTES bytes are filled with a known value, and it is kept in quarantine for a
while.  The fills are work on the block's own stream.  For the check, the bytes are copied to pinned
memory in the stream's order, and the host reads them when an event behind the copy is complete.
This detects an overflow past a block's end, a write to a freed block, a double free, and the free
of a pointer that is not a block of the stream.  Findings are reported to `_findings`; the program
continues.

If all blocks are guarded, each free waits for its stream, and errors are reported at once.  If only
some are guarded, no free waits: an error is reported a few guarded frees later, or when the guard
is closed.  A block that is not guarded costs one decrement and one test of its flags.

Any thread may call; this module uses no GIL and no Python object.  The statistics count guard bytes
as requested.  Streams under capture are not guarded, as they cannot be waited for, nor are streams
that were destroyed.  If two threads free guarded blocks of one stream at the same time, one of the
blocks is freed unchecked.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc

from acl._core cimport arena_alloc, arena_free, is_arena, stray_count
from acl.core.types cimport BLOCK_GUARDED, BLOCK_HELD, BLOCK_LIVE
from acl.core._driver cimport (
    arena_context, event_done, event_mark, event_put, stream_captured, stream_hold, stream_let,
    stream_wait,
)
from acl.bind.generated._libacl cimport (
    ACL_MEMCPY_DEVICE_TO_HOST, ACL_SUCCESS, aclrtContext, aclrtEvent, aclrtFreeHost,
    aclrtMallocHost, aclrtMemcpyAsync, aclrtMemsetAsync,
)
from acl.core._lock cimport SpinLock, lock_drop, lock_take, spin_leave, stale_read
from acl.core._record cimport block_own

cdef extern from "core/lock.h" nogil:
    bint spin_try(SpinLock *lock)

cdef enum:
    GUARD_VALUE = 0xA7
    FREED_VALUE = 0xDD
    LOOK_BYTES = 4096           # only the first LOOK_BYTES of a freed block are filled and checked
    SLOTS = 64                  # limit of the freed blocks whose check is not complete
    HELD = 32                   # limit of the blocks in quarantine; other slots wait for a check

# A guarded block that its caller has freed.  It is in quarantine until `oldest_leaves` frees it;
# its slot is in use until `oldest_settles` has checked the copies.  Only the thread that holds
# `Guard.busy` uses it.
cdef struct Slot:
    Block *block  # valid in quarantine; afterwards it only identifies the block in reports
    uint64_t freed              # number of the note of the block's free: see `on_happened`
    aclrtEvent event            # recorded behind the last copy; NULL: wait for the stream instead
    size_t look                 # number of bytes that are copied to `after`; 0: not checked
    bint checked  # the guard bytes were checked, or cannot be, as no copy of them was queued
    bint filled                 # the fill of the freed block was queued
    uint8_t *before  # pinned memory: a copy of the guard bytes from the caller's free
    uint8_t *after  # pinned memory: the block's first `look` bytes at the end of its quarantine

# The guard of one arena.
cdef struct Guard:
    # held while a thread uses the slots; a block that another thread frees then is not checked
    SpinLock busy
    bint waits                  # each free waits for its stream, and is checked at once
    uint64_t pushed             # number of slots used so far; a slot's number is counted from 0
    uint64_t left               # slots below this number have left quarantine; left <= pushed
    uint64_t settled            # slots below this number are unused again; settled <= left
    uint8_t *pinned             # the pinned memory of all slots; NULL: the guard is closed
    Slot[SLOTS] slots


# --- checking -----------------------------------------------------------------------------------

cdef inline Guard *guard_of(Arena *arena) noexcept nogil:
    return <Guard *> arena.guards.guard


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
    """Queue a copy to pinned memory.  False if the stream accepts no copy.

    If frees do not wait (`Guard.waits`), also record an event behind the copy.  Nothing is queued
    on a stream that was destroyed or is under capture; the copy would become part of the graph.
    """
    cdef aclrtContext context = arena_context(arena)
    cdef bint queued
    event_drop(arena, slot)
    if captured(arena) or not stream_hold(arena):
        return False
    queued = aclrtMemcpyAsync(to, size, addr, size, ACL_MEMCPY_DEVICE_TO_HOST,
                              arena.stream) == ACL_SUCCESS
    if queued and not guard_of(arena).waits:
        slot.event = event_mark(arena.pool, arena.stream, &context)
    stream_let(arena)
    return queued


cdef void slot_check(Arena *arena, Slot *slot) noexcept nogil:
    """Report an overflow if the guard bytes of a slot have changed; the copy must be complete."""
    if not slot.checked and not filled(slot.before, GUARD_BYTES, GUARD_VALUE):
        on_found(FOUND_OVERFLOW, arena, slot.block, slot.freed)
    slot.checked = True


cdef void slot_settle(Arena *arena, Slot *slot) noexcept nogil:
    """Check the guard bytes and the filled bytes of a block that leaves quarantine.

    All copies of the slot must be complete.
    """
    slot_check(arena, slot)
    if not filled(slot.after, slot.look, FREED_VALUE):
        on_found(FOUND_USE_AFTER_FREE, arena, slot.block, slot.freed)


cdef bint slot_ready(Arena *arena, Slot *slot, bint wait) noexcept nogil:
    if slot.event != NULL and event_done(arena.pool, slot.event):
        return True
    return wait and stream_wait(arena)


# --- quarantine ---------------------------------------------------------------------------------

cdef bint block_hold(Arena *arena, Block *block) noexcept nogil:
    """Mark a guarded block as in quarantine.

    False if it is not a live guarded block, for example because another thread has just freed it.
    """
    cdef bint first
    lock_take(&arena.lock)
    first = (block.state == BLOCK_LIVE
             and block.flags & (BLOCK_GUARDED | BLOCK_HELD) == BLOCK_GUARDED)
    if first:
        block.flags = (block.flags & ~<uint8_t> BLOCK_GUARDED) | BLOCK_HELD
    lock_drop(&arena.lock)
    return first


cdef void oldest_leaves(Arena *arena, Guard *guard) noexcept nogil:
    """Let the oldest block leave quarantine: queue a copy of its bytes, then free it.

    In the stream's order, the copy is before any work that uses the memory next.
    """
    cdef Slot *slot = slot_at(guard, guard.left)
    slot.look = look_size(slot.block)
    if not slot.filled or not copy_out(arena, slot, slot.after, slot.block.addr, slot.look):
        slot.look = 0                           # the block's bytes cannot be checked
    elif guard.waits and stream_wait(arena):
        slot_settle(arena, slot)
        slot.look = 0
    guard.left += 1
    arena_free(arena, slot.block)  # last: while the block has BLOCK_HELD, a second free is detected


cdef bint oldest_settles(Arena *arena, Guard *guard, bint wait) noexcept nogil:
    """Check the oldest slot whose block has left quarantine, and free the slot.

    If the slot's event is not complete and `wait` is false, keep the slot and return False.  With
    `wait`, wait for the stream if the event is not complete.  A slot without an event is freed
    unchecked unless `wait` is true, and so is any slot if the wait fails.
    """
    cdef Slot *slot = slot_at(guard, guard.settled)
    cdef bint ready
    if not guard.waits:                         # else `oldest_leaves` has checked the slot already
        ready = slot_ready(arena, slot, wait)
        if slot.event != NULL and not ready and not wait:
            return False
        if ready:
            slot_settle(arena, slot)
        event_drop(arena, slot)
    guard.settled += 1
    return True


cdef void guard_poll(Arena *arena, Guard *guard) noexcept nogil:
    """Check two slots if their copies are complete; this queries at most two events.

    They are the oldest slot whose block has left quarantine, which is then freed, and the oldest
    slot in quarantine whose guard bytes are unchecked.
    """
    cdef uint64_t number = guard.left
    if guard.settled < guard.left:
        oldest_settles(arena, guard, False)
    while number < guard.pushed and slot_at(guard, number).checked:
        number += 1
    if number < guard.pushed and slot_ready(arena, slot_at(guard, number), False):
        slot_check(arena, slot_at(guard, number))


cdef bint hold(Arena *arena, Guard *guard, Block *block) noexcept nogil:
    """Put a freed block into quarantine.

    Queue a copy of its guard bytes, then the fill of its first LOOK_BYTES bytes.  Return False,
    with neither queued, if all slots are in use and the oldest one cannot be checked yet.
    """
    cdef Slot *slot
    cdef size_t size = user_size(block)
    if guard.pushed - guard.left == HELD:
        oldest_leaves(arena, guard)
    if guard.pushed - guard.settled == SLOTS and not oldest_settles(arena, guard, False):
        return False
    slot = slot_at(guard, guard.pushed)
    guard.pushed += 1
    slot.block = block
    slot.look = 0
    slot.freed = on_happened(arena, block, size, True)
    slot.checked = not copy_out(arena, slot, slot.before, block.addr + size, GUARD_BYTES)
    slot.filled = aclrtMemsetAsync(block.addr, block.size, FREED_VALUE, look_size(block),
                                   arena.stream) == ACL_SUCCESS
    if guard.waits and stream_wait(arena):
        slot_check(arena, slot)
    return True


cdef uint64_t guard_flush(Arena *arena, bint wait) noexcept nogil:
    cdef Guard *guard = guard_of(arena)
    cdef uint64_t count = 0
    if guard == NULL or not spin_try(&guard.busy):
        return 0
    while guard.left < guard.pushed:
        oldest_leaves(arena, guard)
        count += 1
    while guard.settled < guard.left and oldest_settles(arena, guard, wait):
        pass
    spin_leave(&guard.busy)
    return count


cdef bint guard_open(Arena *arena, uint32_t every) noexcept nogil:
    cdef Guard *guard = guard_of(arena)
    cdef void *pinned = NULL
    cdef uint32_t index
    arena.guards.guard_every = every
    arena.guards.guard_left = every
    if guard == NULL:
        guard = <Guard *> calloc(1, sizeof(Guard))
    if guard == NULL:
        return False
    arena.guards.guard = guard                  # it is freed with the arena
    guard.waits = every == 1
    if guard.pinned != NULL:
        return True
    if aclrtMallocHost(&pinned, SLOTS * (GUARD_BYTES + LOOK_BYTES)) != ACL_SUCCESS:
        return False
    for index in range(<uint32_t> SLOTS):
        guard.slots[index].before = <uint8_t *> pinned + index * (GUARD_BYTES + LOOK_BYTES)
        guard.slots[index].after = guard.slots[index].before + GUARD_BYTES
    guard.pinned = <uint8_t *> pinned
    return True


cdef void guard_close(Arena *arena) noexcept nogil:
    cdef Guard *guard = guard_of(arena)
    guard_flush(arena, True)
    if guard == NULL or not spin_try(&guard.busy):
        return
    # Keep the pinned memory if a wait expired, as the stream may still copy to it.
    if guard.pinned != NULL and guard.settled == guard.pushed and stream_wait(arena):
        aclrtFreeHost(guard.pinned)  # status ignored: nothing else can be done
        guard.pinned = NULL
    spin_leave(&guard.busy)


# --- callbacks ----------------------------------------------------------------------------------

cdef bint captured(Arena *arena) noexcept nogil:
    """True if the arena's stream is under capture or was destroyed: no work may be queued on it."""
    cdef void *graph = NULL
    if arena.ending.by_device:
        return True
    return stream_captured(arena.pool, arena.stream, &graph)


cdef bint guard_ready(Arena *arena) noexcept nogil:
    return guard_of(arena) != NULL and guard_of(arena).pinned != NULL


cdef bint guard_turn(Arena *arena, size_t size) noexcept nogil:
    if arena.guards.guard_left > 1:
        arena.guards.guard_left -= 1
        return False
    arena.guards.guard_left = arena.guards.guard_every
    return guard_ready(arena) and size + GUARD_BYTES > size and not captured(arena)


cdef void guard_set(Arena *arena, Block *block, size_t size) noexcept nogil:
    if block != NULL and aclrtMemsetAsync(
            block.addr + size, GUARD_BYTES, GUARD_VALUE, GUARD_BYTES,
            arena.stream) == ACL_SUCCESS:
        lock_take(&arena.lock)
        block.flags |= BLOCK_GUARDED
        lock_drop(&arena.lock)
        block_own(block, GUARD_BYTES)
        on_happened(arena, block, size, False)


cdef void *guard_alloc(aclrtAllocator allocator, size_t size) noexcept nogil:
    cdef Arena *arena = <Arena *> allocator
    cdef bint turn
    cdef size_t wanted
    cdef Block *block
    if not is_arena(allocator):
        return stray_count()
    turn = guard_turn(arena, size)
    wanted = size + GUARD_BYTES if turn else size
    block = arena_alloc(arena, wanted, 0)
    if block == NULL and guard_flush(arena, False) > 0:
        block = arena_alloc(arena, wanted, 0)
    if turn:
        guard_set(arena, block, size)
    return block


cdef void *guard_alloc_advise(aclrtAllocator allocator, size_t size,
                              aclrtAllocatorAddr addr) noexcept nogil:
    return guard_alloc(allocator, size)


cdef void free_plain(Arena *arena, Block *block, bint ours) noexcept nogil:
    """Free a block that is not guarded.  Refuse and report a pointer that is not a live block.

    `ours`: the block's descriptor lies in the arena's slab, so a refused free is a double free.  If
    the arena's pool was destroyed, nothing is reported.
    """
    if not arena_free(arena, block) and arena.pool != NULL:
        on_found(FOUND_DOUBLE_FREE if ours else FOUND_FOREIGN, arena, block, 0)


cdef void free_guarded(Arena *arena, Block *block) noexcept nogil:
    cdef Guard *guard = guard_of(arena)
    cdef bint held
    if not block_hold(arena, block):
        on_found(FOUND_DOUBLE_FREE, arena, block, 0)
        return
    if not captured(arena) and spin_try(&guard.busy):
        if guard.pinned != NULL:
            held = hold(arena, guard, block)
            guard_poll(arena, guard)
            spin_leave(&guard.busy)
            if not held:
                arena_free(arena, block)
            return
        spin_leave(&guard.busy)
    arena_free(arena, block)


cdef void guard_drop(Arena *arena, Block *block) noexcept nogil:
    if block_hold(arena, block):
        arena_free(arena, block)


cdef void guard_free(aclrtAllocator allocator, aclrtAllocatorBlock pointer) noexcept nogil:
    cdef Arena *arena = <Arena *> allocator
    cdef Block *block = <Block *> pointer
    cdef size_t offset
    if not is_arena(allocator):
        stray_count()
        return
    offset = <size_t> (<char *> block - arena.slab)
    if offset >= stale_read(&arena.slab_used) or offset % sizeof(Block) != 0:
        free_plain(arena, block, False)
    elif block.state != BLOCK_LIVE or block.flags & (BLOCK_GUARDED | BLOCK_HELD) == 0:
        free_plain(arena, block, True)
    elif block.flags & BLOCK_HELD:
        on_found(FOUND_DOUBLE_FREE, arena, block, 0)
    else:
        free_guarded(arena, block)
