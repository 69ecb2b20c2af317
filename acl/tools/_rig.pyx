"""The core test harness: the allocator on a driver without memory, for tests and experiments.

`Rig` makes a pool that calls the driver functions of this file.  They return addresses and handles,
count the calls, and fail when a test asks for it.  There is no memory behind the addresses, so a
Rig tests and measures the allocator without a device and without the simulator.  The driver's state
is global, because C function pointers have no state.  So only one Rig may exist at a time; any
thread may use it.  There are no Python callbacks.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from acl._core cimport arena_alloc, arena_free, arena_try, on_alloc, on_free, on_get_addr
from acl.core.types cimport (
    aclError, aclmdlRI, aclmdlRICaptureStatus, aclrtDrvMemHandle, aclrtEvent,
    aclrtEventRecordedStatus, aclrtMemAttr, aclrtMemMallocPolicy, aclrtPhysicalMemProp, aclrtStream,
    aclrtStreamStatus, Arena, ARENA_RECORDED, ArenaStats, Block, BLOCK_ASLEEP, BLOCK_HOLE,
    BLOCK_LIVE, CALL_CAPTURE_INFO, CALL_EVENT, CALL_FREE, CALL_FREE_PHYSICAL, CALL_MALLOC, CALL_MAP,
    CALL_MEM_INFO, CALL_PHYSICAL, CALL_QUERY, CALL_RELEASE, CALL_RESERVE, CALL_SYNC, CALL_UNMAP,
    CALLS, Driver, OomReport, Pool, PoolOptions, Range, View,
)
from acl.core._arena cimport arena_set_mode, pool_arena, pool_create, pool_destroy
from acl.core._trim cimport pool_decay, pool_trim
from acl.core._tally cimport arena_stats
from acl.core._check cimport arena_check, pool_check
from acl.core._lock cimport SpinLock, count_read, lock_drop, lock_take, spin_enter, spin_leave
from acl.core._order cimport block_share, waiting_poll, waiting_sync
from acl.core._events cimport Event
from acl.core._record cimport ring_copy, ring_head
from acl.core._captures cimport capture_begin, capture_end, capture_release
from acl.core._pages cimport pages_home

cdef extern from *:
    """
    #define count_up(where, by) __atomic_add_fetch(where, by, __ATOMIC_RELAXED)
    #define count_down(where, by) __atomic_sub_fetch(where, by, __ATOMIC_RELAXED)
    #define count_get(where) __atomic_load_n(where, __ATOMIC_RELAXED)
    static inline void count_raise(uint64_t *where, uint64_t to) {
        uint64_t seen = count_get(where);
        while (seen < to && !__atomic_compare_exchange_n(where, &seen, to, 1, __ATOMIC_RELAXED,
                                                          __ATOMIC_RELAXED)) {
        }
    }
    """
    uint64_t count_up(uint64_t *where, uint64_t by) noexcept nogil
    uint64_t count_down(uint64_t *where, uint64_t by) noexcept nogil
    uint64_t count_get(uint64_t *where) noexcept nogil
    void count_raise(uint64_t *where, uint64_t to) noexcept nogil

__all__ = ["CALL_NAMES", "Rig", "function_addresses"]

CALL_NAMES = ("reserve", "release", "physical", "free_physical", "map", "unmap", "malloc", "free",
              "sync", "query", "mem_info", "capture_info", "event")

cdef struct Books:
    uint64_t calls[CALLS]
    uint64_t fail_at[CALLS]       # the first call that fails, by its number in `calls`; 0: none
    uint64_t fail_times[CALLS]    # how many calls fail, from `fail_at` on
    int32_t fail_code[CALLS]
    uint64_t next_address
    uint64_t next_handle
    uint64_t physical           # bytes of physical memory in use
    uint64_t physical_peak
    uint64_t capacity
    uint64_t mapped             # number of mappings
    uint64_t single             # 1: a handle may be mapped at one address only
    bint audit                  # check mappings by `table`, which has room for small loads only
    # 0: streams are idle.  1: they are busy, and a synchronisation times out.  2: they are busy,
    # and a synchronisation succeeds.
    uint64_t busy
    uint64_t capturing
    uint64_t events
    uint64_t segments[4096]     # bytes of each segment, by its number (see `fake_malloc`)
    uint64_t next_segment
    bint logging                # `log_maps` is on
    size_t noted                # number of entries in `map_notes` since the last `take_maps`
    size_t room                 # number of entries for which `map_notes` has memory

cdef struct MapNote:
    uint64_t address
    uint64_t size               # bytes that were mapped; 0: unmapped

cdef struct Mapped:             # an address of a page, or a handle, that is or was mapped
    uint64_t addr
    uint64_t handle             # the mapped handle; 0: nothing is mapped now
    uint64_t stream             # stream of the last block on the page
    uint64_t moment             # page: `moment` of its last block; handle: number of its mappings

cdef enum:
    MAPPED_ROOM = 1 << 17
    STREAMS_ROOM = 64

cdef uint64_t HANDLE = <uint64_t> 1 << 63        # in `Mapped.addr`: the entry is of a handle

cdef Books books
cdef MapNote *map_notes = NULL


cdef void note_map(void *addr, size_t size) noexcept nogil:
    """Note a change of a mapping if `log_maps` is on; without host memory it is not noted.

    While `log_maps` is on, only one thread may use the driver, because no lock is taken here.
    """
    global map_notes
    cdef void *more
    if not books.logging:
        return
    if books.noted == books.room:
        more = realloc(map_notes, (books.room * 2 + 64) * sizeof(MapNote))
        if more == NULL:
            return
        map_notes = <MapNote *> more
        books.room = books.room * 2 + 64
    map_notes[books.noted].address = <uint64_t> addr
    map_notes[books.noted].size = size
    books.noted += 1
cdef SpinLock table_lock
cdef Mapped table[131072]       # hash table of mappings by address, with open addressing
cdef uint64_t moment            # number of blocks that `Rig.alloc` has returned while `audit` is on
cdef uint64_t complete[64]      # by stream number: `moment` when the stream was last seen complete
cdef uint64_t faults            # number of wrong mappings and wrong frames, see `Rig.faults`
cdef Pool *looked_at = NULL     # the pool whose arenas each driver call checks, or NULL
cdef uint32_t broken_call, broken_code


cdef Mapped *mapped_at(uint64_t addr) noexcept nogil:
    cdef uint64_t index = addr * <uint64_t> 0x9E3779B97F4A7C15 >> 47
    while table[index].addr != 0 and table[index].addr != addr:
        index = (index + 1) % MAPPED_ROOM
    table[index].addr = addr
    return &table[index]


cdef void stream_seen(aclrtStream stream) noexcept nogil:
    """Note that a stream is complete: no work uses the blocks that were allocated so far."""
    spin_enter(&table_lock)
    complete[<uint64_t> stream % STREAMS_ROOM] = moment
    spin_leave(&table_lock)


cdef void arenas_look(uint32_t call) noexcept nogil:
    """Called in a driver call: check every arena, and store the first broken invariant."""
    global broken_call, broken_code
    cdef uint32_t index, code
    for index in range(count_read(&looked_at.arena_count)):
        lock_take(&looked_at.arenas[index].lock)
        code = arena_check(looked_at.arenas[index])
        lock_drop(&looked_at.arenas[index].lock)
        if code != 0 and broken_code == 0:
            broken_call = call
            broken_code = code


cdef inline aclError note(uint32_t call) noexcept nogil:
    cdef uint64_t number = count_up(&books.calls[call], 1)
    if looked_at != NULL:
        arenas_look(call)
    if books.fail_at[call] != 0 and number - books.fail_at[call] < books.fail_times[call]:
        return books.fail_code[call]      # for a call before `fail_at`, the difference wraps around
    return 0


cdef aclError fake_reserve(void **addr, size_t size, size_t alignment, void *expect,
                           uint64_t flags) noexcept nogil:
    cdef aclError status = note(CALL_RESERVE)
    if status == 0:
        addr[0] = <void *> count_up(&books.next_address, size + (1 << 30))
        addr[0] = <char *> addr[0] - size
    return status


cdef aclError fake_release(void *addr) noexcept nogil:
    return note(CALL_RELEASE)


cdef aclError physical_take(size_t size) noexcept nogil:
    """Count bytes of the device as used; return an error if that exceeds the capacity."""
    cdef uint64_t total = count_up(&books.physical, size)
    if total > books.capacity:
        count_down(&books.physical, size)
        return 207001
    count_raise(&books.physical_peak, total)
    return 0


cdef aclError fake_physical(aclrtDrvMemHandle *handle, size_t size,
                            const aclrtPhysicalMemProp *prop, uint64_t flags) noexcept nogil:
    cdef aclError status = note(CALL_PHYSICAL)
    if status == 0:
        status = physical_take(size)
    if status != 0:
        return status
    # The lower 24 bits of a handle are its size in units of 64 KiB; its number is above them.
    handle[0] = <void *> (count_up(&books.next_handle, 1) << 24 | size >> 16)
    return 0


cdef aclError fake_free_physical(aclrtDrvMemHandle handle) noexcept nogil:
    global faults
    cdef aclError status = note(CALL_FREE_PHYSICAL)
    if status == 0:
        count_down(&books.physical, (<uint64_t> handle & 0xFFFFFF) << 16)
    if status == 0 and books.audit:             # a fault: a mapped frame must not be freed
        spin_enter(&table_lock)
        faults += mapped_at(<uint64_t> handle | HANDLE).moment > 0
        spin_leave(&table_lock)
    return status


cdef aclError fake_map(void *addr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                       uint64_t flags) noexcept nogil:
    global faults
    cdef aclError status = note(CALL_MAP)
    cdef Mapped *entry
    if books.audit:
        spin_enter(&table_lock)
        entry = mapped_at(<uint64_t> handle | HANDLE)
        if status == 0 and books.single and entry.moment > 0:
            status = 207001
        entry.moment += status == 0
        spin_leave(&table_lock)
    if status == 0:
        count_up(&books.mapped, 1)
        note_map(addr, size)
    if status == 0 and books.audit:
        spin_enter(&table_lock)
        entry = mapped_at(<uint64_t> addr)
        faults += entry.handle != 0
        entry.handle = <uint64_t> handle
        entry.moment = 0
        spin_leave(&table_lock)
    return status


cdef aclError fake_unmap(void *addr) noexcept nogil:
    global faults
    cdef aclError status = note(CALL_UNMAP)
    cdef Mapped *entry
    if status == 0:
        count_down(&books.mapped, 1)
        note_map(addr, 0)
    if status == 0 and books.audit:
        spin_enter(&table_lock)
        entry = mapped_at(<uint64_t> addr)
        faults += entry.handle == 0 or entry.moment > complete[entry.stream % STREAMS_ROOM]
        mapped_at(entry.handle | HANDLE).moment -= 1
        entry.handle = 0
        spin_leave(&table_lock)
    return status


cdef aclError fake_malloc(void **addr, size_t size, aclrtMemMallocPolicy policy) noexcept nogil:
    cdef aclError status = note(CALL_MALLOC)
    cdef uint64_t segment
    if status == 0:
        status = physical_take(size)
    if status != 0:
        return status
    # Segments are 64 GiB apart: the address contains the segment's number.
    segment = count_up(&books.next_segment, 1)
    books.segments[segment % 4096] = size
    addr[0] = <void *> ((segment + 1024) << 36)
    note_map(addr[0], size)
    return 0


cdef aclError fake_free(void *addr) noexcept nogil:
    cdef aclError status = note(CALL_FREE)
    if status == 0:
        count_down(&books.physical, books.segments[((<uint64_t> addr >> 36) - 1024) % 4096])
        note_map(addr, 0)
    return status


cdef aclError fake_sync(aclrtStream stream, int32_t timeout_ms) noexcept nogil:
    cdef aclError status = note(CALL_SYNC)
    if status == 0 and books.busy == 1:
        return 507046
    if status == 0 and books.capturing:
        return 107027
    if status == 0:
        stream_seen(stream)
    return status


cdef aclError fake_sync_device(int32_t timeout_ms) noexcept nogil:
    cdef aclError status = note(CALL_SYNC)
    cdef uint64_t stream
    if status == 0 and books.busy == 1:
        return 507046
    if status == 0:
        for stream in range(STREAMS_ROOM):
            stream_seen(<aclrtStream> stream)
    return status


cdef aclError fake_query(aclrtStream stream, aclrtStreamStatus *state) noexcept nogil:
    cdef aclError status = note(CALL_QUERY)
    state[0] = <aclrtStreamStatus> (1 if books.busy else 0)
    if status == 0 and not books.busy:
        stream_seen(stream)
    return status


cdef aclError fake_mem_info(aclrtMemAttr attr, size_t *room, size_t *total) noexcept nogil:
    room[0] = books.capacity - count_get(&books.physical)
    total[0] = books.capacity
    return note(CALL_MEM_INFO)


cdef aclError fake_capture_info(aclrtStream stream, aclmdlRICaptureStatus *state,
                                aclmdlRI *graph) noexcept nogil:
    state[0] = <aclmdlRICaptureStatus> (1 if books.capturing else 0)
    graph[0] = <aclmdlRI> books.capturing
    return note(CALL_CAPTURE_INFO)


cdef aclError fake_event_create(aclrtEvent *event, uint32_t flag) noexcept nogil:
    event[0] = <aclrtEvent> count_up(&books.events, 1)
    return note(CALL_EVENT)


cdef aclError fake_event_destroy(aclrtEvent event) noexcept nogil:
    return note(CALL_EVENT)


cdef aclError fake_event_record(aclrtEvent event, aclrtStream stream) noexcept nogil:
    return note(CALL_EVENT)


cdef aclError fake_event_query(aclrtEvent event, aclrtEventRecordedStatus *state) noexcept nogil:
    state[0] = <aclrtEventRecordedStatus> (0 if books.busy else 1)
    return note(CALL_EVENT)


cdef void driver_fake(Driver *driver) noexcept nogil:
    memset(driver, 0, sizeof(Driver))
    driver.reserve = fake_reserve
    driver.release = fake_release
    driver.physical = fake_physical
    driver.free_physical = fake_free_physical
    driver.map = fake_map
    driver.unmap = fake_unmap
    driver.malloc = fake_malloc
    driver.free = fake_free
    driver.sync = fake_sync
    driver.sync_device = fake_sync_device
    driver.query = fake_query
    driver.mem_info = fake_mem_info
    driver.capture_info = fake_capture_info
    driver.event_create = fake_event_create
    driver.event_destroy = fake_event_destroy
    driver.event_record = fake_event_record
    driver.event_query = fake_event_query


def function_addresses():
    """Return the addresses of the callbacks alloc, free and getAddr that ACL gets from a pool."""
    cdef uintptr_t[3] numbers
    cdef void *(*alloc)(void *, size_t) noexcept nogil
    cdef void (*release)(void *, void *) noexcept nogil
    cdef void *(*address)(void *) noexcept nogil
    alloc = on_alloc
    release = on_free
    address = on_get_addr
    memcpy(&numbers[0], &alloc, sizeof(uintptr_t))
    memcpy(&numbers[1], &release, sizeof(uintptr_t))
    memcpy(&numbers[2], &address, sizeof(uintptr_t))
    return list(numbers)


cdef View *rig_view(Pool *pool, Arena *arena, Block *block) noexcept nogil:
    """Return the mapping of the first page of a block."""
    cdef Range *span = arena.space.ranges[block.range]
    return span.views[(block.addr - span.base) // pool.options.granule]


cdef class Rig:
    """A pool on the driver without memory.  Streams are numbers from 1, each with its arena."""

    cdef Pool *pool

    def __cinit__(self, *, size_t limit=0, size_t headroom=0, size_t granule=2 << 20,
                  size_t virtual_bytes=1 << 38, uint64_t capacity=1 << 40, bint steals=True,
                  bint segments=False, bint early_frees=False, uint8_t views=1,
                  bint audit=True):
        cdef PoolOptions options
        cdef Driver driver
        global moment, faults, looked_at, broken_code
        looked_at = NULL
        broken_code = 0
        Rig.log_maps(False)
        memset(&books, 0, sizeof(books))
        memset(table, 0, sizeof(table))
        memset(complete, 0, sizeof(complete))
        moment = faults = 0
        memset(&options, 0, sizeof(options))
        books.next_address = 1 << 40
        books.capacity = capacity
        books.audit = audit
        driver_fake(&driver)
        options.limit = limit
        options.headroom = headroom
        options.granule = granule
        options.virtual_bytes = virtual_bytes
        options.sync_timeout_ms = 1000
        options.steals = steals
        options.segments = segments
        options.early_frees = early_frees
        options.views = views
        self.pool = pool_create(&options, &driver)
        if self.pool == NULL:
            raise MemoryError("a pool")

    def arena(self, size_t stream=1):
        """Return the address of a stream's arena, as a number."""
        return <size_t> self.find(stream)

    cdef Arena *find(self, size_t stream) except NULL:
        cdef Arena *arena = pool_arena(self.pool, <aclrtStream> stream, 0)
        if arena == NULL:
            raise MemoryError("an arena")
        return arena

    def alloc(self, size_t size, size_t stream=1, tag=0):
        cdef Block *block = arena_alloc(self.find(stream), size, tag)
        if block != NULL and books.audit:
            self.use(block, stream)
        return <size_t> block

    cdef void use(self, Block *block, size_t stream) noexcept:
        """Note in `table` that work on a stream uses all pages of a block."""
        global moment
        cdef uint64_t granule = self.pool.options.granule
        cdef uint64_t addr = <uint64_t> block.addr // granule * granule
        cdef Mapped *entry
        spin_enter(&table_lock)
        moment += 1
        while addr < <uint64_t> block.addr + block.size:
            entry = mapped_at(addr)
            entry.stream = stream
            entry.moment = moment
            addr += granule
        spin_leave(&table_lock)

    def faults(self):
        """Return the number of wrong mappings and wrong frames seen so far.

        The Rig needs `audit`.  Counted are: a mapping at an address that is mapped already; a call
        of unmap for an address that is not mapped, or that work may still use; a frame that was
        freed while mapped; and a page of a live block that shares its frame with another such
        page, or whose frame is not the one that the driver mapped.
        """
        cdef uint32_t index
        cdef uint64_t broken = faults
        seen = set()
        for index in range(self.pool.arena_count):
            broken += self.faults_in(self.pool.arenas[index], seen)
        return broken

    cdef uint64_t faults_in(self, Arena *arena, set seen):
        cdef uint32_t index
        cdef Range *span
        cdef Block *block
        cdef uint64_t granule = self.pool.options.granule
        cdef uint64_t page, broken = 0
        pages = set()
        for index in range(arena.space.range_count):
            span = arena.space.ranges[index]
            if span == NULL or span.segment:
                continue
            block = span.first
            while block != NULL:
                if block.state == BLOCK_LIVE:
                    pages.update((index, page) for page in range(
                        (block.addr - span.base) // granule,
                        (block.addr - span.base + block.size + granule - 1) // granule))
                block = block.next
        for index, page in pages:
            span = arena.space.ranges[index]
            frame = <uint64_t> span.views[page].frame
            broken += frame in seen
            broken += (mapped_at(<uint64_t> (span.base + page * granule)).handle
                       != <uint64_t> span.views[page].frame.handle)
            seen.add(frame)
        return broken

    def free(self, size_t block, size_t stream=1):
        return arena_free(self.find(stream), <Block *> block)

    def stats(self, size_t stream=1):
        cdef ArenaStats stats
        arena_stats(self.find(stream), &stats)
        return stats

    def check(self):
        """Return the number of the first broken invariant of the pool, or 0."""
        return pool_check(self.pool)

    def check_arena(self, size_t stream=1):
        """Return the number of the first broken invariant of one arena, or 0."""
        cdef Arena *arena = self.find(stream)
        lock_take(&arena.lock)
        broken = arena_check(arena)
        lock_drop(&arena.lock)
        return broken

    def layout(self, kind="large", size_t stream=1):
        """Return the blocks in address order as a text such as "L3 F1 | L2".

        A letter is the state: L live, C cached, F free, H hole, M moving, W pending free.  The
        number is the size in units of 512 bytes.  A bar separates address ranges.  The last hole is
        left out.
        """
        cdef Arena *arena = self.find(stream)
        cdef uint32_t i
        cdef Block *block
        ranges = []
        for i in range(arena.space.range_count):
            if (arena.space.ranges[i] == NULL
                    or arena.space.ranges[i].kind != ("large", "small").index(kind)):
                continue
            words = []
            block = arena.space.ranges[i].first
            while block != NULL:
                if block.next != NULL or "ULCFHMW"[block.state] != "H":
                    words.append(f"{'ULCFHMW'[block.state]}{block.size // 512}")
                block = block.next
            ranges.append(" ".join(words))
        return " | ".join(ranges)

    def address(self, size_t block):
        """Return the device address of a block."""
        cdef void *found = on_get_addr(<void *> block)
        return <size_t> found

    def backed(self, size_t stream=1):
        """Return the runs of addresses that have memory, sorted: (address, bytes) of each."""
        cdef Arena *arena = self.find(stream)
        cdef uint32_t i
        cdef Block *block
        cdef uint64_t start
        runs = []
        for i in range(arena.space.range_count):
            block = arena.space.ranges[i].first if arena.space.ranges[i] != NULL else NULL
            while block != NULL:
                start = <uint64_t> block.addr
                while block != NULL and block.state != BLOCK_HOLE:
                    block = block.next
                if block == NULL:
                    runs.append((start, <uint64_t> arena.space.ranges[i].base
                                 + arena.space.ranges[i].bytes - start))
                    break
                if <uint64_t> block.addr > start:
                    runs.append((start, <uint64_t> block.addr - start))
                block = block.next
        return sorted(runs)

    def changes(self, size_t stream=1):
        """Return two counts; if both are unchanged, so is the memory behind a stream's addresses.

        The first counts the driver calls map, unmap, malloc and free, for all streams together.
        The second counts the reactivations and the steals of this stream.
        """
        cdef Arena *arena = self.find(stream)
        cdef uint64_t calls = 0
        cdef uint32_t call
        for call in (CALL_MAP, CALL_UNMAP, CALL_MALLOC, CALL_FREE):
            calls += books.calls[call]
        return calls, arena.counters.recalls + arena.counters.steals

    def try_alloc(self, size_t size, size_t stream=1):
        """Allocate without a driver call; return 0 if that is not possible."""
        return <size_t> arena_try(self.find(stream), size, 0)

    def share(self, size_t block, size_t other, size_t stream=1):
        """Note that another stream uses a block too; return False if that fails."""
        return block_share(self.find(stream), <Block *> block, <aclrtStream> other)

    def poll(self, size_t stream=1):
        """Finish the pending frees that no stream uses any more, and return their number."""
        return waiting_poll(self.find(stream))

    def sync_waiting(self):
        """Synchronise the device and release pending frees; return the result of `waiting_sync`."""
        return waiting_sync(self.pool, False)

    def set_mode(self, size_t stream=1, set=0, clear=0):
        """Set and clear bits of ArenaMode."""
        arena_set_mode(self.find(stream), set, clear)

    def record(self, uint64_t capacity, size_t stream=1):
        """Record the stream's events in a ring of `capacity` events, a power of 2."""
        self.pool.notes.capacity = capacity
        arena_set_mode(self.find(stream), ARENA_RECORDED, 0)

    def recorded(self, uint64_t first, size_t stream=1):
        """Copy the events from number `first` on; return the first copied number and the sizes."""
        cdef Arena *arena = self.find(stream)
        cdef uint64_t head = ring_head(arena)
        cdef bytearray events = bytearray((head - first) * sizeof(Event))
        cdef Event *out = <Event *> <char *> events
        cdef uint64_t start = ring_copy(arena, out, first, head)
        return start, [out[i].size for i in range(head - start)]

    def capture_begin(self, size_t stream=1):
        """Begin a capture, and return the address of its arena as a number."""
        return <size_t> capture_begin(self.find(stream))

    def capture_end(self, size_t stream=1):
        capture_end(self.find(stream))

    def capture_release(self, size_t capture):
        return capture_release(<Arena *> capture)

    def look(self):
        """From now on, check all arenas in each driver call."""
        global looked_at
        looked_at = self.pool

    def broken(self):
        """Return what `look` found first: (driver function, number of the invariant), or None.

        The driver function is the one in whose call the broken invariant was found.
        """
        return (CALL_NAMES[broken_call], broken_code) if broken_code else None

    def views(self, size_t stream=1):
        """Return counts: backed pages, inactive mappings, frames not at their first mapping."""
        cdef Arena *arena = self.find(stream)
        return arena.pages, arena.maps.shadows, arena.maps.away

    def home(self, size_t stream=1):
        """Reactivate the first mappings of free frames if their pages are in holes."""
        cdef Arena *arena = self.find(stream)
        lock_take(&arena.lock)
        pages_home(arena)
        lock_drop(&arena.lock)

    def trim(self, to=0, wait=True, drained=False):
        """Trim the pool, and return the bytes given back to the driver."""
        return pool_trim(self.pool, to, wait, drained)

    def decay(self):
        return pool_decay(self.pool)

    def last_oom(self):
        """Return the report of the last failure, as a dict."""
        cdef OomReport *oom = &self.pool.reports.oom
        return {"number": oom.number, "size": oom.size, "limit": oom.limit,
                "reserved": oom.reserved, "live": oom.live, "free": oom.free,
                "largest_free": oom.largest_free,
                "waiting": oom.waiting, "others": oom.others, "device_free": oom.device_free,
                "capturing": bool(oom.capturing), "moved": bool(oom.moved),
                "status": oom.attempt.status,
                "missing": oom.missing, "whole": oom.holds[0].whole}

    def waiting(self, size_t stream=1):
        """Return True if the arena of a stream has pending frees."""
        return self.find(stream).order.waiting != NULL

    def destroy(self):
        """Destroy the pool and return True; False if it cannot be destroyed."""
        global looked_at
        looked_at = NULL
        if not pool_destroy(self.pool):
            return False
        self.pool = NULL
        return True

    def spoil(self, field, size_t block=0, long change=1, size_t stream=1):
        """Damage one field of a block, of the stream's arena or of the pool, to test the checker.

        Numbers grow by `change`.  Links, flags and bit maps get a fixed wrong value.
        """
        cdef Arena *arena = self.find(stream)
        cdef Block *at = <Block *> block
        if field == "addr":
            at.addr += change
        elif field == "size":
            at.size += change
        elif field == "requested":
            at.requested += change
        elif field == "state":
            at.state = <uint8_t> (at.state + change)
        elif field == "prev":
            at.prev = at
        elif field == "back":
            at.links.prev = at
        elif field == "live":
            arena.live += change
        elif field == "asked":
            arena.requested += change
        elif field == "live_peak":
            arena.live_peak += change
        elif field == "tag":
            arena.tag_live[1] += change
        elif field == "pages":
            arena.pages += change
        elif field == "reserved":
            self.pool.source.reserved += change
        elif field == "frame":
            arena.space.ranges[at.range].views[(at.addr - arena.space.ranges[at.range].base)
                                         // self.pool.options.granule] = NULL
        elif field == "view":
            rig_view(self.pool, arena, at).frame.holder = NULL
        elif field == "maps":
            arena.bins.maps[change] ^= 1
        elif field == "cache":
            arena.cache[change] = NULL
        elif field == "holes":
            arena.bins.holes[0].next = arena.bins.holes[0].next.links.next
        elif field == "waiting":
            arena.order.waiting = NULL
        elif field == "shadows":
            arena.maps.shadows += change
        elif field == "rested":
            arena.maps.rested = arena.maps.moment + change
        elif field == "vacated":
            rig_view(self.pool, arena, at).vacated = arena.maps.moment + change
        elif field == "stamp":
            rig_view(self.pool, arena, at).frame.stamp = arena.maps.search + change
        elif field == "asleep":
            arena.sleep.asleep += change
        elif field == "sleeping":
            at.flags |= BLOCK_ASLEEP
        else:
            raise ValueError(f"no field {field!r}")

    def neighbour(self, size_t block, above=True):
        """Return the next block, or the previous one; 0 if there is none."""
        return <size_t> ((<Block *> block).next if above else (<Block *> block).prev)

    def reserved(self):
        """Return the bytes that the pool counts as reserved."""
        return self.pool.source.reserved

    @staticmethod
    def log_maps(on):
        """Start (`on`) or stop noting changes of mappings; forget the changes noted so far."""
        global map_notes
        free(map_notes)
        map_notes = NULL
        books.noted = books.room = 0
        books.logging = on

    @staticmethod
    def take_maps():
        """Return the changes of mappings since the last call: (address, bytes).

        0 bytes mean that the address was unmapped.
        """
        cdef size_t i
        if books.noted == 0:
            return ()
        changes = [(map_notes[i].address, map_notes[i].size) for i in range(books.noted)]
        books.noted = 0
        return changes

    @staticmethod
    def calls():
        """Return how often each driver function was called."""
        return {name: books.calls[i] for i, name in enumerate(CALL_NAMES)}

    @staticmethod
    def mapped():
        """Return the number of mappings."""
        return books.mapped

    @staticmethod
    def physical():
        """Return the bytes of physical memory in use, and their peak."""
        return books.physical, books.physical_peak

    @staticmethod
    def set(*, fail=None, at=1, times=1, code=207001, busy=None, capturing=None, capacity=None,
            single=None):
        """Change the driver's answers.

        The function named `fail` returns `code` in `times` consecutive calls, of which the first is
        its `at`-th call from now on; `at` 0: no call fails.  The other parameters are the fields of
        `Books` with these names.
        """
        if fail is not None:
            index = CALL_NAMES.index(fail)
            books.fail_at[index] = books.calls[index] + at if at else 0
            books.fail_times[index] = times
            books.fail_code[index] = code
        if busy is not None:
            books.busy = busy
        if capturing is not None:
            books.capturing = capturing
        if single is not None:
            books.single = single
        if capacity is not None:
            books.capacity = capacity
