"""The pool as the pluggable allocator of a framework: torch_npu or MindSpore.

The file of this extension module is the shared library that frameworks open. `entry.c` exports
`aclpool_malloc`, `aclpool_free` and others, which call the functions here.  A *seat* is one such
pair of functions: seat 0 serves the whole process, each other seat serves one pool.  A *front* is
the part of a seat for one device: a pool, with the counters and the arenas that the framework uses.

A framework with a task queue frees a block before it submits the work that uses the block.  So its
arenas (`ROLE_FRAMEWORK`) use a freed block again only for the block's own stream, because that
stream's later work is also later in the queue.  A free records no event, does not wait, and returns
no memory to the driver.  Pages are taken from these arenas only after `drain` emptied the queue.

Any thread may call the C functions.  They take the GIL only in threads that have a Python thread
state, to register a pool that they made, and to record a stack.  Fronts and their pools are kept
until the process ends, because a framework may free memory at any time.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from acl.core._arena cimport pool_arena, pool_create
from acl.core._trim cimport pool_trim
from acl._core cimport arena_alloc, arena_free, arena_try
from acl.core._bins cimport size_possible
from acl.core.types cimport (
    ARENA_CLOSED, Arena, BLOCK_HOLE, BLOCK_LIVE, BLOCK_WAITING, Block, CALL_FREE,
    CALL_FREE_PHYSICAL, CALL_MALLOC, CALL_PHYSICAL, Pool as CorePool, PoolOptions,
    RANGE_SMALL, ROLE_FRAMEWORK, ROLE_STREAM, ROLE_USER, Range,
)
from acl.core._driver cimport arena_is_of, device_wait
from acl.bind.generated._libacl cimport (
    ACL_HBM_MEM_HUGE, aclrtContext, aclrtGetCurrentContext, aclrtGetDevice,
    aclrtGetMemInfo, aclrtSetCurrentContext, aclrtSetDevice, aclrtStream, libacl_open,
)
from acl.core._lock cimport (
    SpinLock, count_read, lock_drop, lock_take, spin_enter, spin_leave, stale_read,
)
from acl.core._order cimport block_share, waiting_sync
from acl.core._pages cimport pages_donate
from acl.core._record cimport record_call
from acl.runtime._device cimport fork_count, leaving
from acl.pool._stacks cimport stack_enter
from acl.pool._options cimport memory_kind, soc_padding, virtual_default
from acl.pool._pool cimport Pool, pool_adopt

cdef extern from "<stdbool.h>" nogil:
    ctypedef bint c_bool "bool"

cdef extern from "Python.h" nogil:
    int Py_IsInitialized()
    int Py_AddPendingCall(int (*call)(void *) noexcept, void *argument)
    void *PyGILState_GetThisThreadState()

cdef extern from "adapters/pluggable/door.h" nogil:
    enum:
        DOOR_SEATS
        DOOR_DEVICES
        DOOR_KINDS
        DOOR_TEXT

    ctypedef struct DoorStat:
        int64_t current
        int64_t peak
        int64_t increased
        int64_t decreased

    ctypedef struct DoorStats:
        DoorStat *blocks
        DoorStat *bytes
        DoorStat *requested
        DoorStat *reserved
        DoorStat *pages
        int64_t ooms
        int64_t retries
        int64_t driver_allocs
        int64_t driver_frees

    ctypedef struct DoorCalls:
        void *(*alloc)(uint32_t seat, size_t size, int device, void *stream) noexcept nogil
        void (*free)(void *address) noexcept nogil
        c_bool (*share)(void *address, void *stream) noexcept nogil
        c_bool (*stats)(uint32_t seat, int device, DoorStats *stats) noexcept nogil
        void (*reset)(uint32_t seat, int device, c_bool peaks) noexcept nogil
        void (*empty)(uint32_t seat) noexcept nogil
        void (*fraction)(uint32_t seat, int device, double fraction) noexcept nogil
        void *(*base)(void *address, size_t *size) noexcept nogil
        c_bool (*why)(uint32_t seat, int device, size_t size, char *text,
                      size_t room) noexcept nogil

    ctypedef void (*DoorThrow)(const char *message) noexcept nogil

    ctypedef struct Address:
        void *address
        void *front
        void *arena
        void *block
        size_t size
        size_t bytes

    DoorCalls door_calls
    DoorThrow door_throw_memory
    DoorThrow door_throw_refusal
    bint address_put(const Address *entry)
    bint address_take(void *address, Address *entry)
    bint address_find(void *address, Address *entry)
    void stats_add(DoorStats *stats, size_t size, size_t bytes)
    void stats_drop(DoorStats *stats, size_t size, size_t bytes)
    void stats_reset(DoorStats *stats, bint peaks)
    void stats_pages(DoorStats *stats, int64_t granule)
    uint32_t door_failure(char *text)
    void *pointer_read(void **where)
    void pointer_publish(void **where, void *value)

__all__ = [
    "SEATS", "attach", "empty", "failure", "hook", "path", "pools", "refused", "reset", "segments",
    "share", "stats",
]

cdef enum:
    RECENT = 64                 # size of a front's hash table of arenas by stream
    GRANULE = 2097152
    SYNC_TIMEOUT_MS = 5000

cdef struct Front:
    CorePool *pool
    SpinLock lock               # protects the counters
    DoorStats stats
    uint32_t role               # the role of its arenas: ROLE_FRAMEWORK or another
    size_t padding              # bytes added to each block
    bint adopted                # True if a Python Pool exists for its pool
    int made                    # fork_count when it was made
    int64_t pages_begun[2]      # pages taken and returned until the last reset of the counters
    size_t limit                # the owner's limit in bytes, while the framework sets a fraction
    size_t limit_set            # the limit in bytes that the framework's fraction has set
    void *recent[64]            # Arena pointers, by a hash of the stream

cdef struct Seat:
    SpinLock lock               # held while a front is added
    bint open
    bint framework              # the framework frees blocks before it launches their work
    bint blind                  # ignore the device argument and use the current device
    bint makes                  # at the first use of a device without a pool, make a pool
    void *fronts[64]            # Front pointers, by device

cdef Seat seats[16]
cdef uint64_t refused_count = 0             # frees of addresses that are not live blocks
# The framework's function that submits its queue and waits for the device.
cdef c_bool (*queue_drain)(c_bool check_error) noexcept nogil
# The framework's functions for queue markers: make one, ask whether it is reached, delete it.
cdef void *(*queue_mark)(int device, void *stream) noexcept nogil
cdef c_bool (*queue_mark_done)(void *mark) noexcept nogil
cdef void (*queue_mark_drop)(void *mark) noexcept nogil
# The Pools of all seats; the dict keeps them alive.
held = {}
SEATS = DOOR_SEATS


# ---- fronts -------------------------------------------------------------------------------------

cdef CorePool *pool_make(int32_t device) noexcept nogil:
    """Make a pool with default options.  The caller must have made the device current."""
    cdef PoolOptions options
    memset(&options, 0, sizeof(PoolOptions))
    options.device = device
    options.granule = GRANULE
    options.virtual_bytes = virtual_default(options.limit)
    options.mem_attr = ACL_HBM_MEM_HUGE
    options.info_attr = memory_kind()
    options.sync_timeout_ms = SYNC_TIMEOUT_MS
    options.steals = True
    options.early_frees = True
    options.views = True
    return pool_create(&options, NULL)


cdef Front *front_open(Seat *seat, int32_t device, CorePool *pool) noexcept nogil:
    """Return a device's front, made with `pool` or a new pool if none exists; NULL on failure."""
    cdef Front *front
    cdef Front *made
    front = <Front *> pointer_read(&seat.fronts[device])
    if front is not NULL:
        return front
    made = <Front *> calloc(1, sizeof(Front))
    if made is NULL:
        return NULL
    made.adopted = pool is not NULL
    made.pool = pool if made.adopted else pool_make(device)
    made.padding = soc_padding()
    made.made = fork_count
    if made.pool is NULL:
        free(made)
        return NULL
    if seat.framework:
        made.role = ROLE_FRAMEWORK
        made.pool.queue.drain = on_drain
        made.pool.queue.mark_done = on_mark_done
        made.pool.queue.mark_drop = on_mark_drop
        made.pool.queue.mark = on_mark
    else:
        made.role = <uint32_t> (ROLE_USER if made.pool.options.early_frees else ROLE_STREAM)
    # If two threads make a front at the same time, the second one is unused, and its memory leaks.
    spin_enter(&seat.lock)
    front = <Front *> seat.fronts[device]
    if front is NULL:
        front = made
        pointer_publish(&seat.fronts[device], made)
    spin_leave(&seat.lock)
    return front


cdef Arena *front_arena(Front *front, aclrtStream stream) noexcept nogil:
    """Return a stream's arena.  A cached arena is checked, because ACL uses handles again."""
    cdef size_t hash = <size_t> stream
    cdef Arena *arena
    hash = (hash >> 6 ^ hash >> 12 ^ hash >> 20) % RECENT
    arena = <Arena *> pointer_read(&front.recent[hash])
    if arena is not NULL and stream is not NULL and arena_is_of(arena, stream, NULL):
        return arena
    arena = pool_arena(front.pool, stream, front.role)
    pointer_publish(&front.recent[hash], arena)
    return arena


# ---- the device ---------------------------------------------------------------------------------

cdef bint device_enter(int32_t device, aclrtContext *previous) noexcept nogil:
    """Make a device current, set `previous` to the context to restore or NULL; False on failure."""
    cdef int32_t ordinal = -1
    previous[0] = NULL
    libacl_open()
    if aclrtGetDevice(&ordinal) == 0:
        if ordinal == device:
            return True
        aclrtGetCurrentContext(previous)
    return aclrtSetDevice(device) == 0


cdef void device_leave(aclrtContext previous) noexcept nogil:
    if previous is not NULL:
        aclrtSetCurrentContext(previous)


cdef bint on_drain(CorePool *pool) noexcept nogil:
    """Submit the framework's queued work and wait for the device.

    The pool detaches pages before this call and unmaps them after it: blocks freed in it are safe.
    """
    cdef aclrtContext previous = NULL
    cdef bint done
    if not device_enter(pool.options.device, &previous):
        return False
    done = (queue_drain is NULL or queue_drain(False)) and device_wait(pool)
    device_leave(previous)
    return done


cdef void *on_mark(CorePool *pool, aclrtStream stream) noexcept nogil:
    return NULL if queue_mark is NULL else queue_mark(pool.options.device, stream)


cdef bint on_mark_done(void *mark) noexcept nogil:
    return queue_mark_done(mark)


cdef void on_mark_drop(void *mark) noexcept nogil:
    queue_mark_drop(mark)


cdef bint pages_reclaim(CorePool *pool, size_t bytes) noexcept nogil:
    """Empty the framework's queue (False if that fails), then take free pages for `bytes`."""
    cdef uint64_t want = bytes // pool.options.granule + 2
    cdef uint64_t found = 0
    cdef uint32_t index
    if queue_drain is NULL or not waiting_sync(pool, True):
        return False
    for index in range(count_read(&pool.arena_count)):
        if pool.arenas[index].role == ROLE_FRAMEWORK and found < want:
            found += pages_donate(pool.arenas[index], want - found, True)
    return True


# ---- the functions that the exported symbols call -----------------------------------------------

cdef Block *alloc_slow(Front *front, Arena *arena, size_t bytes) noexcept nogil:
    """Allocate on the pool's device; if that fails, empty the framework's queue and try again."""
    cdef aclrtContext previous = NULL
    cdef Block *block
    if not device_enter(front.pool.options.device, &previous):
        return NULL
    block = arena_alloc(arena, bytes, 0)
    if block is NULL and front.role == ROLE_FRAMEWORK and pages_reclaim(front.pool, bytes):
        spin_enter(&front.lock)
        front.stats.retries += 1
        spin_leave(&front.lock)
        block = arena_alloc(arena, bytes, 0)
    device_leave(previous)
    return block


cdef Front *front_find(uint32_t seat, int device) noexcept nogil:
    if device < 0 or device >= DOOR_DEVICES:
        return NULL
    return <Front *> pointer_read(&seats[seat].fronts[device])


cdef int device_of(uint32_t seat, int named) noexcept nogil:
    """Return `named`; but if the seat is blind and a device is current, return the current one."""
    cdef int32_t ordinal = named
    if seats[seat].blind and aclrtGetDevice(&ordinal) != 0:
        return named
    return ordinal


cdef Front *front_first(uint32_t seat, int device) noexcept nogil:
    """Make the front at a device's first allocation; NULL on failure, or if the seat makes none."""
    cdef aclrtContext previous = NULL
    cdef Front *front
    if not seats[seat].makes or device < 0 or device >= DOOR_DEVICES:
        return NULL
    if not device_enter(device, &previous):
        return NULL
    front = front_open(&seats[seat], device, NULL)
    if front is not NULL and not leaving and Py_IsInitialized():
        # A thread with a Python thread state may take the GIL.  The framework's own threads must
        # not take it, because a thread that holds the GIL may wait for them.
        if PyGILState_GetThisThreadState() is not NULL:
            on_made(NULL)
        else:
            Py_AddPendingCall(on_made, NULL)
    device_leave(previous)
    return front


cdef int on_made(void *argument) noexcept with gil:
    fronts_adopt()
    return 0


cdef bint stack_note(CorePool *pool) noexcept nogil:
    """Store the thread's Python stack if a recording needs it; return True if it was stored."""
    if pool.notes.python == 0 or leaving or PyGILState_GetThisThreadState() is NULL:
        return False
    with gil:
        return stack_enter(pool)


cdef void *on_alloc(uint32_t seat, size_t size, int device, void *stream) noexcept nogil:
    cdef int ordinal = device_of(seat, device)
    cdef Front *front = front_find(seat, ordinal)
    cdef Arena *arena
    cdef Block *block = NULL
    cdef Address entry
    cdef size_t bytes
    cdef bint noted
    if front is NULL:
        front = front_first(seat, ordinal)
    if front is NULL or front.made != fork_count:
        return NULL
    arena = front_arena(front, stream)
    if arena is not NULL and size_possible(size):
        bytes = (size + 31) // 32 * 32 + front.padding
        noted = stack_note(front.pool)
        block = arena_try(arena, bytes, 0)
        if block is NULL:
            block = alloc_slow(front, arena, bytes)
        if noted:
            record_call(0)
    if block is not NULL:
        entry.address, entry.front, entry.arena, entry.block = block.addr, front, arena, block
        entry.size, entry.bytes = size, block.size
        if address_put(&entry):
            spin_enter(&front.lock)
            stats_add(&front.stats, size, entry.bytes)
            spin_leave(&front.lock)
            return entry.address
        arena_free(arena, block)
    spin_enter(&front.lock)
    front.stats.ooms += 1
    spin_leave(&front.lock)
    return NULL


cdef void on_free(void *address) noexcept nogil:
    global refused_count
    cdef Address entry
    cdef Front *front
    if not address_take(address, &entry):
        refused_count += 1
        return
    front = <Front *> entry.front
    spin_enter(&front.lock)
    stats_drop(&front.stats, entry.size, entry.bytes)
    spin_leave(&front.lock)
    arena_free(<Arena *> entry.arena, <Block *> entry.block)


cdef c_bool on_share(void *address, void *stream) noexcept nogil:
    cdef Address entry
    return address_find(address, &entry) and block_share(
        <Arena *> entry.arena, <Block *> entry.block, stream)


cdef c_bool on_stats(uint32_t seat, int device, DoorStats *stats) noexcept nogil:
    cdef Front *front = front_find(seat, device)
    cdef CorePool *pool
    cdef int64_t pages[2]
    if front is NULL:
        memset(stats, 0, sizeof(DoorStats))
        return False
    pool = front.pool
    spin_enter(&front.lock)
    stats[0] = front.stats
    spin_leave(&front.lock)
    pages_count(front, &pages[0], &pages[1])
    stats.pages[0].increased = pages[0] - front.pages_begun[0]
    stats.pages[0].decreased = pages[1] - front.pages_begun[1]
    stats.pages[0].current = pages[0] - pages[1]
    stats.pages[0].peak = <int64_t> (
        stale_read(&pool.source.reserved_peak) // pool.options.granule)
    stats_pages(stats, <int64_t> pool.options.granule)
    stats.driver_allocs = <int64_t> (
        pool.source.calls[<uint32_t> CALL_PHYSICAL] + pool.source.calls[<uint32_t> CALL_MALLOC])
    stats.driver_frees = <int64_t> (
        pool.source.calls[<uint32_t> CALL_FREE_PHYSICAL] + pool.source.calls[<uint32_t> CALL_FREE])
    return True


cdef void pages_count(Front *front, int64_t *taken, int64_t *given) noexcept nogil:
    """Set `taken` and `given` to the number of pages that the pool took and returned so far."""
    cdef CorePool *pool = front.pool
    cdef size_t held = stale_read(&pool.source.reserved)
    given[0] = <int64_t> (
        pool.source.calls[<uint32_t> CALL_FREE_PHYSICAL] + pool.source.calls[<uint32_t> CALL_FREE])
    taken[0] = given[0] + <int64_t> (held // pool.options.granule)


cdef void on_reset(uint32_t seat, int device, c_bool peaks) noexcept nogil:
    cdef Front *front = front_find(seat, device)
    if front is NULL:
        return
    spin_enter(&front.lock)
    stats_reset(&front.stats, peaks)
    if not peaks:
        pages_count(front, &front.pages_begun[0], &front.pages_begun[1])
    spin_leave(&front.lock)
    if peaks:
        spin_enter(&front.pool.source.lock)
        front.pool.source.reserved_peak = front.pool.source.reserved
        spin_leave(&front.pool.source.lock)


cdef void on_empty(uint32_t seat) noexcept nogil:
    """Empty the framework's queue and return a seat's free memory on all devices to the driver."""
    cdef aclrtContext previous
    cdef Front *front
    cdef int32_t device
    for device in range(DOOR_DEVICES):
        front = front_find(seat, device)
        if front is not NULL and device_enter(device, &previous):
            waiting_sync(front.pool, True)
            pool_trim(front.pool, 0, True, True)
            device_leave(previous)


cdef void *on_base(void *address, size_t *size) noexcept nogil:
    """Return the address; set `size` to a live block's bytes, not to the driver allocation's."""
    cdef Address entry
    cdef Block *block
    if not address_find(address, &entry):
        return address
    block = <Block *> entry.block
    if size is not NULL:
        size[0] = block.size
    return address


cdef void on_fraction(uint32_t seat, int device, double fraction) noexcept nogil:
    """Set a pool's limit to a fraction of the device's memory, but not above the owner's limit."""
    cdef aclrtContext previous = NULL
    cdef size_t room = 0, total = 0
    cdef Front *front = front_find(seat, device)
    if front is NULL:
        front = front_first(seat, device)
    if front is not NULL and device_enter(device, &previous):
        if aclrtGetMemInfo(memory_kind(), &room, &total) == 0:
            limit_share(front, <size_t> (fraction * <double> total))       # `fraction` is at most 1
        device_leave(previous)


cdef void limit_share(Front *front, size_t share) noexcept nogil:
    """Set a pool's limit to `share` bytes, but not above the owner's limit."""
    cdef size_t here = front.pool.options.limit
    if here != front.limit_set:                 # the owner has changed the limit
        front.limit = here
    front.limit_set = share if front.limit == 0 or share < front.limit else front.limit
    front.pool.options.limit = front.limit_set


cdef void size_text(char *text, size_t room, size_t size) noexcept nogil:
    """Write a size with a unit, such as 3.00 MiB."""
    cdef const char *names = b"KMGTPE"
    cdef double value = <double> size
    cdef int unit = -1
    while value >= 1024 and unit < 5:
        value /= 1024
        unit += 1
    if unit < 0:
        snprintf(text, room, b"%zu B", size)
    else:
        snprintf(text, room, b"%.2f %ciB", value, <int> names[unit])


cdef bint is_closed(CorePool *pool) noexcept nogil:
    return count_read(&pool.modes) & ARENA_CLOSED != 0


cdef c_bool on_why(uint32_t seat, int device, size_t size, char *text, size_t room) noexcept nogil:
    """Write to `text` why an allocation failed; False after a fork, or if the pool is closed."""
    cdef int ordinal = device_of(seat, device)
    cdef Front *front = front_find(seat, ordinal)
    cdef CorePool *pool
    cdef char[5][24] words
    if front is NULL:
        snprintf(text, room, b"aclpool: no pool for device %d", ordinal)
        return True
    if front.made != fork_count:
        snprintf(
            text, room, b"aclpool: device %d was used before this process was forked, and "
            b"cannot be used in the child; start processes with 'spawn': "
            b"torch.multiprocessing.set_start_method('spawn')", ordinal)
        return False
    pool = front.pool
    if is_closed(pool):
        snprintf(text, room, b"aclpool: the pool of device %d is closed, and serves the framework "
                 b"no more: close it at the program's end", ordinal)
        return False
    size_text(words[0], sizeof(words[0]), size)
    size_text(words[1], sizeof(words[1]), stale_read(&pool.source.reserved))
    size_text(words[2], sizeof(words[2]), <size_t> front.stats.bytes[0].current)  # not negative
    if pool.options.limit == 0:
        snprintf(words[3], sizeof(words[3]), b"none")
    else:
        size_text(words[3], sizeof(words[3]), pool.options.limit)
    size_text(words[4], sizeof(words[4]), pool.reports.oom.device_free)
    snprintf(
        text, room,
        b"NPU out of memory. Tried to allocate %s on device %d; the pool holds %s, of which %s are "
        b"in use; its limit is %s; the device has %s left. Pool.last_oom() says more",
        words[0], ordinal, words[1], words[2],
        words[3], words[4])
    return True


cdef void calls_fill() noexcept:
    door_calls.free = on_free
    door_calls.share = on_share
    door_calls.stats = on_stats
    door_calls.reset = on_reset
    door_calls.empty = on_empty
    door_calls.base = on_base
    door_calls.fraction = on_fraction
    door_calls.why = on_why
    door_calls.alloc = on_alloc


seats[0].open = True
seats[0].framework = True
seats[0].makes = True
calls_fill()


# ---- for acl.torch and acl.mindspore ------------------------------------------------------------

cdef Front *front_of(int seat, int device) except? NULL:
    if not 0 <= seat < DOOR_SEATS:
        raise ValueError(f"seat must be 0 to {DOOR_SEATS - 1}, not {seat}")
    return front_find(<uint32_t> seat, device)      # `seat` is not negative


def path():
    """Return the path of the shared library with the exported symbols: the file of this module."""
    return __file__


def attach(Pool pool, *, bint early, bint own=False, bint blind=False):
    """Serve a framework from a pool; return the number of the seat.

    Parameters
    ----------
    pool : Pool or None
        The pool, which is kept until the process ends.  None, with `own`: each device gets a pool
        when it is first used.
    early : bool
        True if the framework frees blocks before it launches the work that uses them.  False if it
        frees only blocks whose work is complete.
    own : bool
        True to use a seat for this pool alone.  False to use seat 0, which serves the process and
        is `early`.
    blind : bool
        True if the framework passes wrong device numbers; then the thread's current device is used.

    Returns
    -------
    int
        The number N of the seat.  The names of its symbols end in ``_N``; those of seat 0 do not.
    """
    cdef int seat = 0
    cdef Front *front
    if pool is not None:
        pool.open_check()
    if own:
        seat = seat_find(pool, early)
        seats[seat].blind = blind
        seats[seat].makes = pool is None
    elif not early or pool is None:
        raise ValueError("seat 0 is for a pool, and for frees that come early")
    if pool is None:
        return seat
    front = front_open(&seats[seat], pool.device, pool.core)
    if front is NULL:
        raise MemoryError("host memory for a framework's allocator")
    if front.pool is not pool.core:
        raise ValueError(f"device {pool.device} is served by another pool already")
    held[seat, pool.device] = pool
    return seat


cdef int seat_find(Pool pool, bint early) except -1:
    """Return the number of the pool's seat; if it has none, open the first free seat for it."""
    cdef int seat
    for seat in range(1 if pool is not None else DOOR_SEATS, DOOR_SEATS):
        if held.get((seat, pool.device)) is pool and seats[seat].framework == early:
            return seat
    for seat in range(1, DOOR_SEATS):
        if not seats[seat].open:
            seats[seat].open = True
            seats[seat].framework = early
            return seat
    raise ValueError(f"at most {DOOR_SEATS - 1} pools of a process can have a seat of their own")


cdef int fronts_adopt() except -1:
    """Make Python objects for the pools that fronts have made, so that reports include them."""
    cdef Front *front
    cdef int device, seat
    for seat in range(DOOR_SEATS):
        for device in range(DOOR_DEVICES):
            front = front_find(<uint32_t> seat, device)         # `seat` is not negative
            if front is not NULL and not front.adopted:
                front.adopted = True         # set before `pool_adopt`, which lets other threads run
                held[seat, device] = pool_adopt(front.pool)
    return 0


def pools(int seat=0):
    """Return the pools of a seat as a dict from the device."""
    front_of(seat, 0)
    fronts_adopt()
    return {device: pool for (number, device), pool in list(held.items()) if number == seat}


def hook(*, drain=None, marks=None, throw_memory=None, throw_refusal=None):
    """Set the addresses of the framework's C functions; None changes nothing, 0 removes a function.

    Parameters
    ----------
    drain : int
        ``bool f(bool)``: submits all queued work, and waits for the device.
    marks : tuple of three int
        ``void *f(int device, aclrtStream)``: puts a queue marker for a stream at the end of the
        queue and returns it, or NULL; ``bool f(void *)``: returns true if the stream has reached
        the marker; ``void f(void *)``: deletes the marker.
    throw_memory, throw_refusal : int
        ``void f(const char *)``: throws a C++ exception with that message.
    """
    cdef size_t address
    if drain is not None:
        address = drain
        (<size_t *> &queue_drain)[0] = address
    if marks is not None:
        address = marks[1]
        (<size_t *> &queue_mark_done)[0] = address
        address = marks[2]
        (<size_t *> &queue_mark_drop)[0] = address
        address = marks[0]
        (<size_t *> &queue_mark)[0] = address
    if throw_memory is not None:
        address = throw_memory
        (<size_t *> &door_throw_memory)[0] = address
    if throw_refusal is not None:
        address = throw_refusal
        (<size_t *> &door_throw_refusal)[0] = address


def failure():
    """Return (seat, text) if the thread's last allocation at a seat above 0 failed, else None.

    The text says why.  A second call returns None.
    """
    cdef char[DOOR_TEXT] text
    cdef uint32_t seat = door_failure(text)
    return (seat, text.decode(errors="replace")) if seat else None


def share(size_t address, size_t stream):
    """Note that another stream uses a block; False if no live block is there or the note fails."""
    return on_share(<void *> address, <void *> stream)


def empty(int seat=0):
    """Empty the framework's queue, and return a seat's free memory to the devices."""
    front_of(seat, 0)
    with nogil:
        on_empty(<uint32_t> seat)                   # `seat` is not negative


def reset(int device, *, bint peaks, int seat=0):
    """If `peaks`, set the peaks to the current values; else set the accumulated counters to 0."""
    front_of(seat, device)
    on_reset(<uint32_t> seat, device, peaks)        # `seat` is not negative


def refused():
    """Return how often the framework freed an address that was not a live block."""
    return refused_count


cdef dict stat_dict(DoorStat *stat):
    return {
        "current": stat.current, "peak": stat.peak, "allocated": stat.increased,
        "freed": stat.decreased}


def stats(int device, *, int seat=0):
    """Return a seat's counters for a device as a dict; None if the device was not used."""
    cdef DoorStats found
    cdef int kind
    front_of(seat, device)
    if not on_stats(<uint32_t> seat, device, &found):       # `seat` is not negative
        return None
    return {
        "blocks": [stat_dict(&found.blocks[kind]) for kind in range(DOOR_KINDS)],
        "bytes": [stat_dict(&found.bytes[kind]) for kind in range(DOOR_KINDS)],
        "requested": [stat_dict(&found.requested[kind]) for kind in range(DOOR_KINDS)],
        "reserved": [stat_dict(&found.reserved[kind]) for kind in range(DOOR_KINDS)],
        "pages": [stat_dict(&found.pages[kind]) for kind in range(DOOR_KINDS)],
        "ooms": found.ooms, "retries": found.retries, "driver_allocs": found.driver_allocs,
        "driver_frees": found.driver_frees,
    }


cdef list range_runs(Arena *arena, Range *span):
    """Return the mapped parts of a range; each is a list of (address, bytes, state, requested)."""
    cdef Block *block = span.first
    runs = []
    fresh = True
    while block is not NULL:
        if block.state == BLOCK_HOLE:
            fresh = True
        else:
            if fresh:
                runs.append([])
            fresh = False
            live = block.state == BLOCK_LIVE
            state = "live" if live else "waiting" if block.state == BLOCK_WAITING else "free"
            asked = block.requested if live else 0
            runs[-1].append((<size_t> block.addr, block.size, state, asked))
        block = block.next
    return runs


def segments(int device, *, int seat=0):
    """Return the mapped memory of a seat's pool on a device; [] if the device was not used.

    Returns
    -------
    list of (int, bool, list of (int, int, str, int))
        For each contiguous part: the stream, True for memory of small blocks, and for each block
        its address, bytes, state (``"live"``, ``"waiting"`` or ``"free"``) and requested bytes.
    """
    cdef Front *front = front_of(seat, device)
    cdef Arena *arena
    cdef uint32_t i, j
    found = []
    if front is NULL:
        return found
    for i in range(count_read(&front.pool.arena_count)):
        arena = front.pool.arenas[i]
        lock_take(&arena.lock)
        try:
            for j in range(arena.space.range_count):
                if arena.space.ranges[j] is not NULL:
                    small = arena.space.ranges[j].kind == RANGE_SMALL
                    found += [(<size_t> arena.stream, small, run)
                              for run in range_runs(arena, arena.space.ranges[j])]
        finally:
            lock_drop(&arena.lock)
    return found
