"""Sleep and wake: give the memory of tagged blocks back to the device, and allocate it again.

Contents that are to be kept are copied to pinned host memory, piece by piece.  The copies run on
two streams of this module, so that one piece is copied while the next piece is pinned.  Then
`_asleep` unmaps the pages; the addresses stay reserved.  A wake maps memory at these addresses
again and copies the contents back.

One sleep or wake runs at a time in a process.  Other threads may allocate and free at the same
time.  A step that fails is undone; if that fails too, the error says so.  The GIL is released
around all code that may call the driver.
"""

import threading
from collections.abc import Iterable

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from acl.core._asleep cimport (
    NO_HOST_MEMORY, Turn, naps_reclaim, pinned_join, pinned_leave, pinned_make, turn_begin,
    turn_end, turn_map, turn_unmap,
)
from acl.core.types cimport (
    Arena, Block, Chunk, Nap, Pinned, Pool as CorePool, ROLE_CAPTURE, Range, TAGS,
)
from acl.bind.generated._libacl cimport (
    ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_MEMCPY_DEVICE_TO_HOST, ACL_MEMCPY_HOST_TO_DEVICE,
    ACL_SUCCESS, aclError, aclrtCreateStream, aclrtDestroyStream, aclrtDestroyStreamForce,
    aclrtMemcpyAsync, aclrtStream, aclrtSynchronizeStream,
)
from acl.core._driver cimport device_sync
from acl.core._lock cimport count_read
from acl.core._pages cimport arena_rest, pages_may_leave
from acl.pool._pool cimport Pool

from acl.runtime._device import Device
from acl.bind._error import OutOfMemoryError, error_for
from acl.inside._snapshot import SleepReport, readable

__all__ = ["pool_sleep", "pool_wake"]

cdef enum:
    PIECE = 32 << 20            # most bytes of one copy
    COPIERS = 2                 # number of streams for copies

cdef struct Copier:             # the copies of one sleep or wake
    aclrtStream streams[2]
    uint32_t turn               # number of the next copy, which runs on streams[turn % COPIERS]
    const char *call            # name of the ACL call that failed
    Pinned *pieces[TAGS]  # pinned memory being filled, one for each tag, as tags wake separately
    size_t left[TAGS]           # bytes of each tag that are still to be saved
    # Several copies are gathered into one.  The fields below describe the gathered copy.
    Range *span                 # the address range on the device
    Pinned *pinned              # the pinned host memory
    char *target                # the address to copy to
    char *source                # the address to copy from
    size_t size                 # bytes to copy; 0: no copy is gathered

cdef object one_at_a_time = threading.Lock()


# ---- copies -------------------------------------------------------------------------------------

cdef aclError copier_open(Copier *copier) noexcept nogil:
    cdef aclError status
    cdef uint32_t index
    copier.turn = 0
    copier.call = b"aclrtCreateStream"
    copier.streams[0] = copier.streams[1] = NULL
    for index in range(<uint32_t> COPIERS):
        status = aclrtCreateStream(&copier.streams[index])
        if status != ACL_SUCCESS:
            copier_close(copier, False)
            return status
    return ACL_SUCCESS


cdef aclError copier_close(Copier *copier, bint wait) noexcept nogil:
    """Wait for all copies and destroy the streams.

    With `wait`, return the status of the first wait that failed, else ACL_SUCCESS.
    """
    cdef aclError status
    cdef aclError first = ACL_SUCCESS
    cdef uint32_t index
    for index in range(<uint32_t> COPIERS):
        if copier.streams[index] == NULL:
            continue
        status = aclrtSynchronizeStream(copier.streams[index])
        if status != ACL_SUCCESS and first == ACL_SUCCESS and wait:
            copier.call = b"aclrtSynchronizeStream"
            first = status
        if aclrtDestroyStream(copier.streams[index]) != ACL_SUCCESS:
            aclrtDestroyStreamForce(copier.streams[index])  # status ignored: no other way is left
    return first


cdef aclError copy_queue(Copier *copier, bint out) noexcept nogil:
    """Queue the gathered copy, if there is one.  Return ACL's status."""
    cdef aclError status
    if copier.size == 0:
        return ACL_SUCCESS
    status = aclrtMemcpyAsync(
        copier.target, copier.size, copier.source, copier.size,
        ACL_MEMCPY_DEVICE_TO_HOST if out else ACL_MEMCPY_HOST_TO_DEVICE,
        copier.streams[copier.turn % COPIERS])
    copier.size = 0
    copier.turn += 1
    if status != ACL_SUCCESS:
        copier.call = b"aclrtMemcpyAsync"
    return status


cdef aclError copy_add(Copier *copier, Range *span, Pinned *pinned, char *target, char *source,
                       size_t size, bint out) noexcept nogil:
    """Append a copy to the gathered copy, if both its source and its target follow directly.

    Otherwise queue the gathered copy first, and begin a new one.  A gathered copy stays within one
    address range and one allocation of pinned memory.
    """
    cdef aclError status
    if (copier.size > 0 and span == copier.span and pinned == copier.pinned
            and copier.size + size <= PIECE
            and target == copier.target + copier.size and source == copier.source + copier.size):
        copier.size += size
        return ACL_SUCCESS
    status = copy_queue(copier, out)
    copier.span = span
    copier.pinned = pinned
    copier.target = target
    copier.source = source
    copier.size = size
    return status


cdef aclError piece_ready(Copier *copier, uint32_t tag, size_t least) noexcept nogil:
    """If a tag has no piece or its piece is full, pin a new piece for the tag's remaining bytes."""
    cdef Pinned *piece = copier.pieces[tag]
    cdef aclError status = ACL_SUCCESS
    if piece != NULL and piece.used < piece.size:
        return ACL_SUCCESS
    if piece != NULL:
        pinned_leave(piece)
    copier.pieces[tag] = pinned_make(
        min(max(copier.left[tag], least), <size_t> PIECE), &status)
    if copier.pieces[tag] == NULL:
        copier.call = b"aclrtMallocHost"
    return status


cdef aclError nap_save(Copier *copier, Range *span, Nap *nap, uint32_t tag) noexcept nogil:
    """Queue the copies of a block's bytes to the host.  Pin further pieces if needed."""
    cdef char *source = nap.block.addr
    cdef size_t left = nap.block.size
    cdef Chunk **last = &nap.chunks
    cdef Pinned *piece
    cdef Chunk *chunk
    cdef aclError status
    while left > 0:
        status = piece_ready(copier, tag, left)
        if status != ACL_SUCCESS:
            return status
        piece = copier.pieces[tag]
        chunk = <Chunk *> calloc(1, sizeof(Chunk))
        if chunk == NULL:
            copier.call = b"calloc"
            return NO_HOST_MEMORY
        chunk.size = min(left, piece.size - piece.used)
        chunk.host = <char *> piece.host + piece.used
        chunk.pinned = piece
        pinned_join(piece)
        last[0] = chunk
        last = &chunk.next
        piece.used += chunk.size
        copier.left[tag] -= min(chunk.size, copier.left[tag])
        status = copy_add(copier, span, piece, chunk.host, source, chunk.size, True)
        if status != ACL_SUCCESS:
            return status
        source += chunk.size
        left -= chunk.size
    return ACL_SUCCESS


cdef aclError nap_load(Copier *copier, Range *span, Nap *nap) noexcept nogil:
    cdef char *target = nap.block.addr
    cdef Chunk *chunk = nap.chunks
    cdef aclError status
    while chunk != NULL:
        status = copy_add(
            copier, span, chunk.pinned, target, chunk.host, chunk.size, False)
        if status != ACL_SUCCESS:
            return status
        target += chunk.size
        chunk = chunk.next
    return ACL_SUCCESS


cdef inline uint32_t nap_tag(Nap *nap, Arena *arena) noexcept nogil:
    return nap.block.tag if nap.block.tag != 0 else arena.default_tag


# ---- sleep batches ------------------------------------------------------------------------------

cdef struct Trip:               # one call that puts blocks of a pool to sleep, or wakes them
    CorePool *pool
    Arena *arena                # the arena of `block`; NULL: all arenas
    Block *block                # the only block to put to sleep or wake; NULL: all of `tags`
    Turn *turns                 # sleep batches, one for each arena
    uint32_t count              # number of entries in `turns`
    uint32_t begun              # the first `begun` entries of `turns` have begun
    uint64_t tags               # bit t: blocks with tag t are put to sleep or woken
    uint64_t keep               # bit t: the contents of blocks with tag t are copied to the host
    size_t copied               # bytes that were copied to the host, or back
    const char *call            # name of the ACL call that failed
    Copier copier


cdef bint arena_may(Arena *arena, bint drained) noexcept nogil:
    """True if blocks of an arena may be put to sleep.

    They may if the arena serves a capture, if frees do not come early, or with `drained`.
    """
    return arena.role == ROLE_CAPTURE or pages_may_leave(arena, drained)


cdef aclError trip_begin(Trip *trip, bint waking, bint drained) noexcept nogil:
    cdef Arena *arena
    cdef Turn *turn
    while trip.begun < trip.count:
        arena = trip.pool.arenas[trip.begun]
        turn = &trip.turns[trip.begun]
        turn.arena = arena
        turn.first = NULL
        turn.only = trip.block
        if (trip.block == NULL or trip.arena == arena) and (waking or arena_may(arena, drained)):
            if not turn_begin(turn, trip.tags, waking):
                trip.call = b"calloc"
                return NO_HOST_MEMORY
        trip.begun += 1
    return ACL_SUCCESS


cdef void trip_end(Trip *trip, bint asleep, bint partly) noexcept nogil:
    cdef uint32_t index
    for index in range(trip.begun):
        turn_end(&trip.turns[index], asleep, partly)


cdef aclError trip_rest(Trip *trip) noexcept nogil:
    """Wait for all work of the device, then for each stream whose pages will be unmapped.

    Return the first error, or 0.
    """
    cdef aclError status
    cdef uint32_t index
    trip.call = b"aclrtSynchronizeDeviceWithTimeout"
    status = device_sync(trip.pool)
    if status != ACL_SUCCESS:
        return status
    for index in range(trip.begun):
        if trip.turns[index].first != NULL and not arena_rest(trip.turns[index].arena, True):
            trip.call = b"aclrtSynchronizeStreamWithTimeout"
            return 507046
    return ACL_SUCCESS


cdef inline bint nap_is_kept(Trip *trip, Nap *nap, Arena *arena) noexcept nogil:
    return trip.keep >> nap_tag(nap, arena) & 1


cdef void trip_measure(Trip *trip) noexcept nogil:
    """Count, by tag, the bytes that are to be copied to the host."""
    cdef Copier *copier = &trip.copier
    cdef uint32_t index
    cdef Arena *arena
    cdef Nap *nap
    for index in range(trip.begun):
        arena = trip.turns[index].arena
        nap = trip.turns[index].first
        while nap != NULL:
            if nap_is_kept(trip, nap, arena):
                copier.left[nap_tag(nap, arena)] += nap.block.size
            nap = nap.hand


cdef aclError turn_copy(Trip *trip, Turn *turn, bint out) noexcept nogil:
    """Queue the copies of one arena's blocks, in the order of their addresses."""
    cdef Copier *copier = &trip.copier
    cdef Arena *arena = turn.arena
    cdef aclError status = ACL_SUCCESS
    cdef Range *span
    cdef Nap *nap = turn.first
    while nap != NULL and status == ACL_SUCCESS:
        span = arena.space.ranges[nap.block.range]
        if out and nap_is_kept(trip, nap, arena):
            status = nap_save(copier, span, nap, nap_tag(nap, arena))
            trip.copied += nap.block.size
        elif not out and nap.chunks != NULL:
            status = nap_load(copier, span, nap)
            trip.copied += nap.block.size
        nap = nap.hand
    return status


cdef aclError trip_copy(Trip *trip, bint out) noexcept nogil:
    """Copy the blocks' contents to the host (`out`) or back, and wait for the copies."""
    cdef Copier *copier = &trip.copier
    cdef aclError status = copier_open(copier)
    cdef aclError waited
    cdef uint32_t index
    if status != ACL_SUCCESS:
        trip.call = copier.call
        return status
    if out:
        trip_measure(trip)
    for index in range(trip.begun):
        if status == ACL_SUCCESS:
            status = turn_copy(trip, &trip.turns[index], out)
    if status == ACL_SUCCESS:
        status = copy_queue(copier, out)
    waited = copier_close(copier, status == ACL_SUCCESS)
    for index in range(<uint32_t> TAGS):
        if copier.pieces[index] != NULL:
            pinned_leave(copier.pieces[index])
    trip.call = copier.call
    return status if status != ACL_SUCCESS else waited


cdef bint trip_unmap(Trip *trip) noexcept nogil:
    cdef uint32_t index
    cdef bint good = True
    for index in range(trip.begun):
        if trip.turns[index].first != NULL:
            good = turn_unmap(&trip.turns[index]) and good
    return good


cdef bint trip_map(Trip *trip) noexcept nogil:
    cdef uint32_t index
    for index in range(trip.begun):
        if trip.turns[index].first != NULL and not turn_map(&trip.turns[index]):
            return False
    return True


cdef int trip_open(Trip *trip, Pool pool) except -1:
    pool.open_check()           # another thread may have closed it while this one took the lock
    trip.pool = pool.core
    trip.count = count_read(&pool.core.arena_count)
    trip.turns = <Turn *> calloc(trip.count + 1, sizeof(Turn))
    if trip.turns == NULL:
        raise MemoryError("host memory for a sleep")
    return 0


cdef object trip_report(Trip *trip):
    cdef uint32_t index
    blocks = size = pages = 0
    for index in range(trip.begun):
        blocks += trip.turns[index].blocks
        size += trip.turns[index].bytes
        pages += trip.turns[index].pages
    return SleepReport(blocks, size, trip.copied, pages * trip.pool.options.granule)


cdef object refused(Pool pool, aclError status, Trip *trip, str what):
    call = (<bytes> trip.call).decode()
    error = error_for(status, call)
    return type(error)(status, call, f"{what}; {asleep_text(pool)}")


cdef object trip_sleep(Trip *trip, Pool pool, bint drained):
    cdef aclError status
    cdef bint good = True
    pool.open_check()
    with one_at_a_time, Device(pool.device):
        trip_open(trip, pool)
        try:
            with nogil:
                status = trip_begin(trip, False, drained)
                if status == ACL_SUCCESS:
                    status = trip_rest(trip)
                if status == ACL_SUCCESS:
                    status = trip_copy(trip, True)
                if status == ACL_SUCCESS:
                    good = trip_unmap(trip)
                    trip_end(trip, True, not good)
                else:
                    trip_end(trip, False, False)
                naps_reclaim(trip.pool)
            if status != ACL_SUCCESS:
                raise refused(pool, status, trip, "the pool stays awake")
            trip.pool.sleeping.sleeps += 1
            report = trip_report(trip)
            if not good:
                trip.call = b"aclrtUnmapMem"
                raise refused(pool, 507899, trip, f"{readable(report.memory)} went back, no more")
            return report
        finally:
            free(trip.turns)


cdef object trip_wake(Trip *trip, Pool pool):
    cdef aclError status
    cdef bint mapped
    pool.open_check()
    with one_at_a_time, Device(pool.device):
        trip_open(trip, pool)
        try:
            with nogil:
                status = trip_begin(trip, True, True)
                trip.call = b"acl.Pool.wake"
                mapped = trip_map(trip)
                if mapped:
                    status = trip_copy(trip, False)
                if mapped and status == ACL_SUCCESS:
                    trip_end(trip, False, False)
                else:
                    trip_unmap(trip)
                    trip_end(trip, True, False)
                naps_reclaim(trip.pool)
            if not mapped:
                status = trip.pool.source.last_error or ACL_ERROR_RT_MEMORY_ALLOCATION
                raise OutOfMemoryError(
                    status, "acl.Pool.wake", f"no memory for all of it; {asleep_text(pool)}")
            if status != ACL_SUCCESS:
                raise refused(pool, status, trip, "the blocks sleep on")
            trip.pool.sleeping.wakes += 1
            return trip_report(trip)
        finally:
            free(trip.turns)


# ---- the two calls ------------------------------------------------------------------------------

cdef uint64_t tags_mask(Pool pool, object tags, str name) except? 0xFFFFFFFFFFFFFFFF:
    """Return the set of tags as bits.  The name "" is bit 0, for blocks without a tag."""
    cdef uint64_t mask = 0
    if tags is None or tags is True:
        return ~<uint64_t> 0 >> 1 | <uint64_t> 1 << 63
    if tags is False:
        return 0
    if isinstance(tags, str):
        tags = (tags,)
    elif not isinstance(tags, Iterable):
        raise TypeError(f"{name} must be a text or texts, not {type(tags).__name__}")
    for tag in tags:
        if not isinstance(tag, str):
            raise TypeError(f"{name} must be texts, not {type(tag).__name__}")
        if tag and tag not in pool.tags:
            known = ", ".join(map(repr, filter(None, pool.tags))) or "none"
            raise ValueError(f"{name}: the pool has no tag {tag!r}; it has {known}")
        mask |= <uint64_t> 1 << (<uint32_t> (pool.tags[tag] if tag else 0))
    return mask


def asleep_text(pool):
    """Return the text about a pool's sleeping blocks that is at the end of an error message."""
    asleep = pool.stats().asleep
    return f"{readable(asleep)} of blocks are asleep" if asleep else "nothing is asleep"


def pool_sleep(Pool pool not None, tags, offload, drained):
    """Give the memory of live blocks back to the device; their addresses stay.

    The blocks may not be used until they are awake; they may be freed.  The call first waits for
    all work of the device.  A page that also has blocks that stay awake keeps its memory.

    Parameters
    ----------
    pool : Pool
    tags : str or iterable of str, optional
        The tags whose blocks go to sleep; "" stands for blocks without a tag.  All blocks if None.
    offload : bool, str or iterable of str
        Keep the contents, in pinned host memory: all, none, or those of some tags.
    drained : bool
        The framework's task queue is empty: blocks of arenas with early frees may sleep too.

    Returns
    -------
    SleepReport

    Raises
    ------
    AclError
        If a call of the driver failed; the error's text says what is asleep then.
    """
    cdef Trip trip
    memset(&trip, 0, sizeof(Trip))
    trip.tags = tags_mask(pool, tags, "tags")
    trip.keep = tags_mask(pool, offload, "offload")
    if pool.guarded:
        raise ValueError("a pool with debug=True or samples checks its blocks' edges, so they "
                         "cannot sleep")
    return trip_sleep(&trip, pool, drained)


def pool_wake(Pool pool not None, tags):
    """Give sleeping blocks memory and their contents again, at the same addresses.

    Blocks that were not offloaded have undefined contents.  `tags` is as for `pool_sleep`.  If
    there is not enough memory, `OutOfMemoryError` is raised and all of the blocks stay asleep.
    """
    cdef Trip trip
    memset(&trip, 0, sizeof(Trip))
    trip.tags = tags_mask(pool, tags, "tags")
    return trip_wake(&trip, pool)


cdef object block_sleep(Pool pool, Arena *arena, Block *block):
    cdef Trip trip
    memset(&trip, 0, sizeof(Trip))
    trip.arena = arena
    trip.block = block
    return trip_sleep(&trip, pool, True)


cdef object block_wake(Pool pool, Arena *arena, Block *block):
    cdef Trip trip
    memset(&trip, 0, sizeof(Trip))
    trip.arena = arena
    trip.block = block
    return trip_wake(&trip, pool)
