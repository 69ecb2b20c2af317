"""A pool of host memory, from which ONNX Runtime allocates its CPU memory.

A `HostPool` uses the core of a device's `Pool`, but with a driver for host memory (`pages.h`).  It
needs neither a device nor CANN.  Any thread may run a session, so the pool has a few arenas that
the threads share, and one arena for weights, which live long.

A header of 64 bytes before each block stores the block's arena.  ONNX Runtime does not survive a
failed allocation.  So when the pool has reached its limit, memory is allocated by `malloc` and
counted (`overflow`).  If the Python object of a pool is deleted, the pool's memory is kept until
its last tensor is freed.

Any thread may allocate and free, with or without the GIL.  In a forked child, all memory is
allocated by `malloc`.
"""

cimport cython
from libc.stdint cimport int32_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

import os

from acl.core._arena cimport pool_arena, pool_create, pool_destroy
from acl.core._trim cimport pool_reset_peaks, pool_trim
from acl.core._tally cimport arena_stats
from acl.core._check cimport pool_check
from acl._core cimport arena_alloc, arena_free, arena_try
from acl.core.types cimport (
    Arena, ArenaStats, Block, Driver, Pool as CorePool, PoolOptions, ROLE_STREAM,
)
from acl.runtime._device cimport fork_count, forked_raise
from acl.bind.generated._libacl cimport (
    aclError, aclmdlRI, aclmdlRICaptureStatus, aclrtDrvMemHandle, aclrtEvent,
    aclrtEventRecordedStatus, aclrtMemAttr, aclrtMemMallocPolicy, aclrtPhysicalMemProp,
    aclrtStream, aclrtStreamStatus,
)
from acl.core._lock cimport count_read

from acl.pool._options import bytes_of

cdef extern from "adapters/onnxruntime/pages.h" nogil:
    aclError host_reserve(void **addr, size_t size, size_t alignment, void *expect,
                          uint64_t flags) noexcept
    aclError host_release(void *addr) noexcept
    aclError host_physical(aclrtDrvMemHandle *handle, size_t size,
                           const aclrtPhysicalMemProp *prop, uint64_t flags) noexcept
    aclError host_free_physical(aclrtDrvMemHandle handle) noexcept
    aclError host_map(void *addr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                      uint64_t flags) noexcept
    aclError host_unmap(void *addr) noexcept
    aclError host_malloc(void **addr, size_t size, aclrtMemMallocPolicy policy) noexcept
    aclError host_free(void *addr) noexcept
    aclError host_sync(aclrtStream stream, int32_t timeout_ms) noexcept
    aclError host_sync_device(int32_t timeout_ms) noexcept
    aclError host_query(aclrtStream stream, aclrtStreamStatus *status) noexcept
    aclError host_mem_info(aclrtMemAttr attr, size_t *free, size_t *total) noexcept
    aclError host_capture_info(aclrtStream stream, aclmdlRICaptureStatus *status,
                               aclmdlRI *graph) noexcept
    aclError host_event_create(aclrtEvent *event, uint32_t flag) noexcept
    aclError host_event_destroy(aclrtEvent event) noexcept
    aclError host_event_record(aclrtEvent event, aclrtStream stream) noexcept
    aclError host_event_query(aclrtEvent event, aclrtEventRecordedStatus *status) noexcept
    size_t host_physical_bytes()

cdef extern from "adapters/onnxruntime/door.h" nogil:
    ctypedef struct OrtApiBase:
        const char *(*version_text)() noexcept nogil

    ctypedef struct DoorSeat:
        void *(*alloc)(void *pool, size_t size, int weight) noexcept nogil
        void (*free)(void *pool, void *address) noexcept nogil
        void *pool

    const OrtApiBase *door_base_take()
    bint door_attach(DoorSeat *seat, const OrtApiBase *base, char *reason, size_t room)
    bint door_detach(DoorSeat *seat, char *reason, size_t room)

cdef extern from *:
    """
    #define shared_add(where, by) __atomic_add_fetch(where, by, __ATOMIC_RELAXED)
    static _Thread_local unsigned thread_seat;   /* 0: none yet */
    static unsigned thread_seats;
    static unsigned thread_number(void)
    {
        if (thread_seat == 0) {
            thread_seat = __atomic_add_fetch(&thread_seats, 1, __ATOMIC_RELAXED);
        }
        return thread_seat - 1;
    }
    """
    uint64_t shared_add(uint64_t *where, uint64_t by) nogil
    uint32_t thread_number() nogil

cdef extern from "<dlfcn.h>" nogil:
    int RTLD_NOW
    int RTLD_LOCAL
    void *dlopen(const char *path, int flags)
    void *dlsym(void *library, const char *name)
    const char *dlerror()

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **address, size_t alignment, size_t size)

__all__ = ["HostPool", "attach", "attach_library", "base_take", "detach"]

cdef enum:
    HEADER = 64                 # bytes before each block: ONNX Runtime needs 64-byte alignment
    MOST_ARENAS = 64
    REASON = 512

cdef struct Header:
    Arena *arena                # NULL if `malloc` allocated the block
    Block *block
    size_t size                 # requested bytes

cdef struct Host:               # the part of a HostPool that C functions use without the GIL
    CorePool *pool
    Arena *arenas[64]
    uint32_t arena_count
    Arena *weights
    uint64_t overflows          # allocations that `malloc` served; changed atomically
    uint64_t overflow           # live bytes from `malloc`; changed atomically


# ---- blocks -------------------------------------------------------------------------------------

cdef inline Header *header_of(void *address) noexcept nogil:
    return <Header *> (<char *> address - HEADER)


cdef void *overflow_alloc(Host *host, size_t size) noexcept nogil:
    cdef void *base = NULL
    cdef Header *header
    if posix_memalign(&base, HEADER, size + HEADER) != 0:
        return NULL
    shared_add(&host.overflows, 1)
    shared_add(&host.overflow, size)
    header = <Header *> base
    header.arena = NULL
    header.block = NULL
    header.size = size
    return <char *> base + HEADER


cdef void *on_alloc(void *pool, size_t size, int weight) noexcept nogil:
    cdef Host *host = <Host *> pool
    cdef Arena *arena = host.weights
    cdef Block *block
    cdef Header *header
    if size > ~<size_t> 0 - HEADER:
        return NULL
    if not weight:
        arena = host.arenas[thread_number() % host.arena_count]
    block = arena_try(arena, size + HEADER, 0)
    if block == NULL:
        block = arena_alloc(arena, size + HEADER, 0)
    if block == NULL:
        return overflow_alloc(host, size)
    header = <Header *> block.addr
    header.arena = arena
    header.block = block
    header.size = size
    return block.addr + HEADER


cdef void on_free(void *pool, void *address) noexcept nogil:
    cdef Host *host = <Host *> pool
    cdef Header *header = header_of(address)
    if header.arena != NULL:
        arena_free(header.arena, header.block)
        return
    shared_add(&host.overflow, <uint64_t> 0 - header.size)
    free(header)


# ---- the pool -----------------------------------------------------------------------------------

cdef void driver_host(Driver *driver) noexcept:
    memset(driver, 0, sizeof(Driver))
    driver.reserve = host_reserve
    driver.release = host_release
    driver.physical = host_physical
    driver.free_physical = host_free_physical
    driver.map = host_map
    driver.unmap = host_unmap
    driver.malloc = host_malloc
    driver.free = host_free
    driver.sync = host_sync
    driver.sync_device = host_sync_device
    driver.query = host_query
    driver.mem_info = host_mem_info
    driver.capture_info = host_capture_info
    driver.event_create = host_event_create
    driver.event_destroy = host_event_destroy
    driver.event_record = host_event_record
    driver.event_query = host_event_query


@cython.final
cdef class HostPool:
    """A pool of host memory.

    Parameters
    ----------
    limit : int or str, optional
        Most bytes that the pool may hold, such as ``"2GiB"``.  Further memory is allocated by
        `malloc`, and `stats` has the number of these bytes.
    granule : int or str
        Bytes of a page: a power of two of at least 64 KiB.
    arenas : int, optional
        Number of arenas: this many threads can allocate without waiting for each other.  Default:
        the number of processors.
    """

    cdef Host *host
    cdef int made                   # fork_count when it was made
    cdef readonly size_t limit
    cdef readonly size_t granule

    def __init__(self, limit=None, granule="2MiB", arenas=None):
        cdef PoolOptions options
        cdef Driver driver
        cdef uint32_t index
        if self.host is not NULL:
            raise ValueError("the HostPool exists already")
        granule = bytes_of(granule, "granule")
        limit = None if limit is None else bytes_of(limit, "limit")
        if granule < 65536 or granule & (granule - 1):
            raise ValueError(f"granule must be a power of two of at least 64 KiB, not {granule}")
        if limit is not None and limit < granule:
            raise ValueError(f"limit must be at least one granule ({granule} bytes), not {limit}")
        count = min(os.cpu_count() or 1, MOST_ARENAS) if arenas is None else arenas
        if not isinstance(count, int):
            raise TypeError(f"arenas must be an int, not {type(arenas).__name__}")
        if not 1 <= count <= MOST_ARENAS:
            raise ValueError(f"arenas must be 1 to {MOST_ARENAS}, not {arenas}")
        memset(&options, 0, sizeof(PoolOptions))
        options.limit = 0 if limit is None else limit
        options.granule = granule
        options.virtual_bytes = 4 * <size_t> os.sysconf("SC_PAGE_SIZE") * <size_t> os.sysconf(
            "SC_PHYS_PAGES")
        options.sync_timeout_ms = 1000
        options.steals = True
        driver_host(&driver)
        self.made = fork_count
        self.limit = options.limit
        self.granule = granule
        self.host = <Host *> calloc(1, sizeof(Host))
        if self.host is NULL:
            raise MemoryError("host memory for a pool")
        self.host.pool = pool_create(&options, &driver)
        self.host.arena_count = count
        if self.host.pool is not NULL:
            for index in range(self.host.arena_count + 1):
                self.arena_open(index)
        if self.host.weights is NULL:
            raise MemoryError("host memory for a pool")

    cdef int arena_open(self, uint32_t index) except -1:
        """Make the arena with a number.  The last arena is for weights.

        The number is used in place of a stream handle.
        """
        cdef Arena *arena = pool_arena(
            self.host.pool, <aclrtStream> <uintptr_t> (index + 1), ROLE_STREAM)
        if arena is NULL:
            raise MemoryError("host memory for an arena")
        if index < self.host.arena_count:
            self.host.arenas[index] = arena
        else:
            self.host.weights = arena
        return 0

    def __dealloc__(self):
        # A pool with live blocks is not destroyed, because they may still be freed later.
        if self.host is not NULL and self.host.pool is not NULL and self.made == fork_count:
            with nogil:
                if self.host.overflow == 0 and pool_destroy(self.host.pool):
                    free(self.host)

    cdef int here_check(self) except -1:
        if self.made != fork_count:
            forked_raise(self)
        return 0

    def alloc(self, size, weight=False):
        """Allocate `size` bytes and return the address, a multiple of 64; `free` must be called."""
        cdef void *address
        cdef int long_lived = bool(weight)
        cdef size_t wanted = bytes_of(size, "size")
        with nogil:
            address = on_alloc(self.host, wanted, long_lived)
        if address is NULL:
            raise MemoryError(f"{size} bytes")
        return <size_t> address

    def free(self, size_t address):
        """Free an address that `alloc` returned."""
        if self.host is NULL:
            raise ValueError("the HostPool was not made by HostPool(...)")
        if address == 0:
            raise ValueError("address must be one of `alloc`, not 0")
        with nogil:
            on_free(self.host, <void *> address)

    def trim(self, to=0):
        """Return free memory to the system until the pool holds at most `to` bytes.

        Return the number of bytes that were returned.
        """
        cdef size_t target = bytes_of(to, "to")
        cdef size_t freed
        self.here_check()
        with nogil:
            freed = pool_trim(self.host.pool, target, True, False)
        return freed

    def reset_peak(self):
        """Set the peaks in `stats` to the current values."""
        with nogil:
            pool_reset_peaks(self.host.pool)

    def check(self):
        """Check every block: return 0, or the number of the first broken invariant."""
        cdef uint32_t broken
        self.here_check()
        with nogil:
            broken = pool_check(self.host.pool)
        return broken

    def stats(self):
        """Return the pool's sizes and counters as a dict."""
        cdef ArenaStats stats
        cdef uint32_t index
        cdef CorePool *pool = self.host.pool
        names = ("allocated", "requested", "requested_peak", "cached", "free", "hits", "fits",
                 "slow", "failures", "steals", "donated", "live_blocks")
        total = dict.fromkeys(names, 0)
        for index in range(count_read(&pool.arena_count)):
            with nogil:
                arena_stats(pool.arenas[index], &stats)
            for name, value in zip(names, (
                    stats.allocated, stats.requested, stats.requested_peak, stats.cached,
                    stats.free,
                    stats.counters.hits, stats.counters.fits, stats.counters.slow,
                    stats.counters.failures, stats.counters.steals, stats.counters.donated,
                    stats.live_blocks)):
                total[name] += value
        return {
            **total, "reserved": pool.source.reserved, "reserved_peak": pool.source.reserved_peak,
            "limit": pool.options.limit, "overflow": self.host.overflow,
            "overflows": self.host.overflows}

    @staticmethod
    def physical_bytes():
        """Return the bytes of pages that all HostPools of the process hold together."""
        return host_physical_bytes()


# ---- registration with ONNX Runtime -------------------------------------------------------------

# Pools that were registered with an environment.  They are kept for ever, because sessions may use
# them at any time.
cdef list held = []


cdef object text_of(char *reason):
    return (<bytes> reason).decode(errors="replace")


def base_take():
    """Return the address of the API table that ONNX Runtime last passed to `RegisterCustomOps`.

    Only calls on this thread count.  Return 0 if there was none since the last call of this
    function.
    """
    return <size_t> door_base_take()


def attach(size_t base, HostPool pool not None):
    """Register a pool with the environment of an API table.

    Return the address of the registration's `DoorSeat`, and the version of the library.  The
    DoorSeat and the pool are kept until the process ends.
    """
    cdef char reason[512]
    cdef DoorSeat *seat
    cdef const OrtApiBase *table = <const OrtApiBase *> base
    pool.here_check()
    if table is NULL:
        raise ValueError("base must be the address of an OrtApiBase, not 0")
    seat = <DoorSeat *> calloc(1, sizeof(DoorSeat))
    if seat is NULL:
        raise MemoryError("host memory for a seat")
    seat.alloc = on_alloc
    seat.free = on_free
    seat.pool = pool.host
    if not door_attach(seat, table, reason, REASON):
        free(seat)
        raise RuntimeError(f"ONNX Runtime refused the allocator: {text_of(reason)}")
    if pool not in held:
        held.append(pool)
    return <size_t> seat, table.version_text().decode()


def attach_library(path, HostPool pool not None):
    """Register a pool as `attach` does, with a `libonnxruntime.so`; load it if necessary."""
    cdef const OrtApiBase *(*get_base)() noexcept nogil
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"library must be a path, not {type(path).__name__}")
    cdef bytes name = os.fsencode(path)
    cdef void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL)
    cdef const char *problem
    cdef void *symbol
    if library is NULL:
        problem = dlerror()
        raise OSError(problem.decode(errors="replace") if problem is not NULL else str(path))
    symbol = dlsym(library, "OrtGetApiBase")
    if symbol is NULL:
        raise OSError(f"{path} is no library of ONNX Runtime: it has no OrtGetApiBase")
    (<void **> &get_base)[0] = symbol
    return attach(<size_t> get_base(), pool)


def detach(size_t seat):
    """Remove a registration; existing sessions continue to use the pool."""
    cdef char reason[512]
    if not door_detach(<DoorSeat *> seat, reason, REASON):
        raise RuntimeError(f"ONNX Runtime refused: {text_of(reason)}")
