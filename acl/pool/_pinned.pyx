"""Pinned host memory from a pool, reused by exact size.

The core of the device pools manages the blocks, in segments from `aclrtMallocHost`, which are
called slabs here.  Sizes are rounded up to 512 bytes only; free blocks are coalesced, and found in
nanoseconds.  If a buffer is dropped while an asynchronous copy still uses it, no thread waits: an
event is recorded on the copy's stream, and the memory is not handed out before that event is
complete.

Any thread may allocate and free.  If a thread has no context, the pool's device is made current in
it before the driver is called.  Only `empty` imports NumPy.
"""

cimport cython
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memset

from acl.core._arena cimport driver_bind, pool_arena, pool_create, pool_destroy
from acl.core._trim cimport pool_trim
from acl.runtime._buffer cimport host_buffer_wrap
from acl.core._check cimport pool_check
from acl._core cimport arena_alloc, arena_free, arena_try
from acl.core._bins cimport size_possible
from acl.core.types cimport (
    ArenaStats, CALL_FREE, CALL_MALLOC, Driver, MAX_RANGES, PoolOptions, ROLE_STREAM, STOP_TABLE,
)
from acl.runtime._device cimport (
    current_context, current_device, current_ensure, fork_count, forked_raise, leaving,
)
from acl.core._driver cimport events_destroy
from acl.bind._error cimport addresses_text, host_memory_error
from acl.runtime._later cimport later_count, later_drain
from acl.bind.generated._libacl cimport (
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_STREAM_STATUS_COMPLETE,
    ACL_SUCCESS, aclError, aclmdlRI, aclmdlRICaptureGetInfo, aclmdlRICaptureStatus, aclrtContext,
    aclrtFreeHost, aclrtGetCurrentContext, aclrtMallocHost, aclrtMemMallocPolicy, aclrtSetDevice,
    aclrtStream, aclrtStreamStatus,
)
from acl.core._lock cimport stale_read
from acl.core._order cimport (
    block_share_in, waiting_blindly, waiting_end, waiting_poll, waiting_sync,
)
from acl.core._tally cimport arena_stats
from acl.runtime._work cimport Progress, Work

from math import prod

from acl.bind._error import OutOfMemoryError
from acl.pool._options import bytes_of

__all__ = ["PinnedPool", "default_pool", "pinned_empty"]

cdef enum:
    ROOM_SLABS = 16  # this many slab units may be unused in any case: see `slabs_balance`

# The address of this variable serves as the handle of the arena's stream.  No real stream has this
# handle.  So every real stream counts as another stream, whose work must finish before a block is
# used again.
cdef char nobodys


# --- the driver, for host memory ----------------------------------------------------------------

cdef aclError host_malloc(void **addr, size_t size, aclrtMemMallocPolicy policy) noexcept nogil:
    cdef aclError status = aclrtMallocHost(addr, size)
    if status == ACL_SUCCESS and <size_t> addr[0] % 512 != 0:
        aclrtFreeHost(addr[0])  # status ignored: the allocation fails anyway
        return ACL_ERROR_RT_MEMORY_ALLOCATION   # blocks have to be aligned (I5)
    return status


cdef aclError host_free(void *addr) noexcept nogil:
    return aclrtFreeHost(addr)


cdef aclError host_sync(aclrtStream stream, int32_t timeout_ms) noexcept nogil:
    return ACL_SUCCESS                          # no stream uses a free block of host memory


cdef aclError host_query(aclrtStream stream, aclrtStreamStatus *status) noexcept nogil:
    status[0] = ACL_STREAM_STATUS_COMPLETE
    return ACL_SUCCESS


cdef aclError host_capture(aclrtStream stream, aclmdlRICaptureStatus *status,
                           aclmdlRI *graph) noexcept nogil:
    if stream == <aclrtStream> &nobodys:
        return ACL_ERROR_RT_FEATURE_NOT_SUPPORT
    return aclmdlRICaptureGetInfo(stream, status, graph)


cdef CorePool *core_make(int device, size_t limit, size_t slab) noexcept nogil:
    cdef PoolOptions options
    cdef Driver driver
    memset(&options, 0, sizeof(options))
    memset(&driver, 0, sizeof(driver))
    driver_bind(&driver)
    driver.malloc = host_malloc
    driver.free = host_free
    driver.sync = host_sync
    driver.query = host_query
    driver.capture_info = host_capture
    options.device = device
    options.limit = limit
    options.granule = slab
    options.sync_timeout_ms = 5000
    options.steals = True                       # free slabs may be given back when memory is short
    options.segments = True
    options.exact_segments = True
    return pool_create(&options, &driver)


# --- blocks -------------------------------------------------------------------------------------

cdef Block *pinned_alloc(Arena *arena, int device, size_t size) noexcept nogil:
    cdef aclrtContext context = NULL
    cdef Block *block = arena_try(arena, size, 0)
    if block != NULL:
        return block
    if aclrtGetCurrentContext(&context) != ACL_SUCCESS or context == NULL:
        aclrtSetDevice(device)  # status ignored: if it fails, the driver calls below fail too
    slabs_balance(arena, size)
    return arena_alloc(arena, size, 0)


cdef void slabs_balance(Arena *arena, size_t size) noexcept nogil:
    """Give free slabs back if `size` more bytes would exceed what the pool may keep.

    That is the live peak and a quarter of it, and ROOM_SLABS slab units.  Without this, each size
    that never repeats would leave a slab behind.
    """
    cdef CorePool *pool = arena.pool
    cdef size_t needed = stale_read(&arena.live) + size
    cdef size_t peak = stale_read(&arena.live_peak)
    cdef size_t most = (peak if peak > needed else needed) // 4 * 5
    most += ROOM_SLABS * pool.options.granule
    if arena.order.waiting != NULL:
        waiting_poll(arena)
    if stale_read(&pool.source.reserved) + size > most:
        pool_trim(pool, most - size, True, True)


cdef bint work_note(Arena *arena, Block *block, Work work) noexcept:
    """True if the copy `work` is over, or if the block's free will wait for an event behind it.

    False if no event can be recorded: on a default stream, or on a stream of another context than
    the current one.
    """
    cdef Progress progress = work.progress
    return work.over() or (
        progress.raw is not NULL and progress.context is current_context()
        and block_share_in(arena, block, progress.raw, progress.context))


cdef bint pinned_settle(void *arena, void *block, object works) noexcept:
    if isinstance(works, Work):
        return work_note(<Arena *> arena, <Block *> block, <Work> works)
    for work in <tuple> works:
        if not work_note(<Arena *> arena, <Block *> block, <Work> work):
            return False
    return True


cdef void block_back(void *arena, void *block) noexcept nogil:
    arena_free(<Arena *> arena, <Block *> block)


cdef str table_text(CorePool *core):
    """Return the text that an error gets if the last allocation found the table full."""
    if core.reports.oom.attempt.stopped & STOP_TABLE:
        return f"; the pool has {MAX_RANGES} slabs, the most that it can: take fewer buffers"
    return ""


# --- the pool -----------------------------------------------------------------------------------

@cython.final
cdef class PinnedPool:
    """Pinned host memory, allocated in slabs and reused by exact size.

    Parameters
    ----------
    limit : int or str, optional
        Most bytes that the pool may hold, such as ``"2GiB"``; beyond it `MemoryError` is raised.
        No limit if not given.
    slab : int or str
        Unit in which host memory is pinned, a power of two of at least 64 KiB.  Blocks of up to
        512 KiB share slabs of eight units.  A larger block gets a slab of its own size; once it is
        freed, smaller blocks may use that slab.
    """

    def __cinit__(self):
        self.made = fork_count

    def __init__(self, limit=None, *, slab="256KiB"):
        cdef size_t most = 0 if limit is None else bytes_of(limit, "limit")
        cdef size_t unit = bytes_of(slab, "slab")
        if self.core is not NULL or self.is_closed:
            raise ValueError("the PinnedPool exists already")
        if unit < 65536 or unit & (unit - 1):
            raise ValueError(f"slab must be a power of two of at least 64 KiB, not {slab!r}")
        if limit is not None and most < unit:
            raise ValueError(f"limit must be at least one slab ({unit} bytes), not {limit!r}")
        current_ensure(NULL)
        self.device = current_device()
        self.core = core_make(self.device, most, unit)
        self.arena = NULL if self.core is NULL else pool_arena(self.core, &nobodys, ROLE_STREAM)
        if self.arena is NULL:
            raise host_memory_error("a pool")

    def __dealloc__(self):
        # A pool with live blocks is not destroyed; its memory is left to the system.  If a block is
        # WAITING for a copy, `waiting_end` synchronises the device first.
        if self.core is not NULL and not leaving and self.made == fork_count:
            with nogil:
                waiting_end(self.core)
                pool_destroy(self.core)

    cdef int open_check(self) except -1:
        if self.made != fork_count:
            forked_raise(self)
        if self.core is NULL or self.is_closed:
            raise ValueError("the PinnedPool is closed")
        return 0

    cdef HostBuffer take(self, size_t size):
        cdef Block *block
        self.open_check()
        if later_count:
            later_drain()  # free the dropped buffers whose copies are complete by now
        block = arena_try(self.arena, size, 0)
        if block is NULL:
            current_ensure(NULL)
            with nogil:
                block = pinned_alloc(self.arena, self.device, size)
        if block is NULL and later_count:
            later_drain(True)
            with nogil:
                block = pinned_alloc(self.arena, self.device, size)
        if block is NULL:
            raise OutOfMemoryError(
                ACL_ERROR_RT_MEMORY_ALLOCATION, "acl.PinnedPool.alloc",
                f"{size} bytes of pinned host memory; {self.core.source.reserved} are reserved, "
                f"the limit is {self.core.options.limit or 'none'}{table_text(self.core)}"
                f"{addresses_text()}")
        return host_buffer_wrap(
            block.addr, size, block_back, pinned_settle, self.arena, block, self)

    def alloc(self, nbytes):
        """Allocate pinned memory as a `HostBuffer`; closing or dropping it frees it without a wait.

        Parameters
        ----------
        nbytes : int or str
            Bytes, at least 1.

        Raises
        ------
        OutOfMemoryError
            The limit is reached, or the host has no more memory.
        """
        size = bytes_of(nbytes, "nbytes")
        if size < 1 or not size_possible(size):
            raise ValueError(f"nbytes must be at least 1 and below 2**46, not {size}")
        return self.take(size)

    def empty(self, shape, dtype="float64", *, order="C"):
        """Return a NumPy array in pinned memory, not initialised.

        Parameters
        ----------
        shape : int or tuple of int
            The array's shape.
        dtype
            Any type that NumPy understands, but not Python objects.
        order : {"C", "F"}
            Which index changes fastest.
        """
        import numpy
        from acl.runtime._array import extents_of

        kind = numpy.dtype(dtype)
        if kind.hasobject:
            raise TypeError(f"dtype must not hold Python objects: {kind}")
        extents = extents_of(shape)
        if any(extent < 0 for extent in extents):
            raise ValueError(f"shape must not have negative extents: {shape!r}")
        size = prod(extents) * kind.itemsize
        return numpy.ndarray(extents, kind, buffer=self.alloc(max(size, 1)), order=order)

    def numpy(self):
        """Return a context manager: arrays that NumPy makes inside are in this pool's memory."""
        from acl.pool._nep49 import NumpyPool

        self.open_check()
        return NumpyPool(self)

    def trim(self, to=0):
        """Give whole free slabs back until `to` bytes are left; return the bytes given back."""
        cdef size_t target = bytes_of(to, "to")
        cdef size_t freed
        self.open_check()
        current_ensure(NULL)
        with nogil:
            if self.arena.order.waiting is not NULL:
                waiting_poll(self.arena)
            if waiting_blindly(self.core):
                waiting_sync(self.core, True)
            freed = pool_trim(self.core, target, True, True)
        return freed

    def stats(self):
        """Return a `PinnedStats`: what the pool holds now, and what it has done so far."""
        cdef ArenaStats stats
        from acl.inside._snapshot import PinnedStats

        self.open_check()
        with nogil:
            arena_stats(self.arena, &stats)
        counters = stats.counters
        return PinnedStats(
            allocated=stats.allocated, allocated_peak=stats.allocated_peak,
            requested=stats.requested, requested_peak=stats.requested_peak,
            reserved=self.core.source.reserved, reserved_peak=self.core.source.reserved_peak,
            limit=self.core.options.limit, waiting=stats.waiting, live_blocks=stats.live_blocks,
            hits=counters.hits, fits=counters.fits, slow=counters.slow, failures=counters.failures,
            frees=stats.frees, pinned=self.core.source.calls[<uint32_t> CALL_MALLOC],
            unpinned=self.core.source.calls[<uint32_t> CALL_FREE])

    def check(self):
        """Check every block; return 0, or the number of the first broken invariant.

        No other thread may use the pool during the call.
        """
        self.open_check()
        return pool_check(self.core)

    def close(self):
        """Give all free memory back; a second call does nothing.

        Buffers and arrays that are alive stay valid; the pool keeps their memory until the last of
        them is dropped, and then gives it back to the host.
        """
        if self.is_closed or self.core is NULL:
            return
        if self.made != fork_count:
            forked_raise(self)
        current_ensure(NULL)
        self.is_closed = True
        with nogil:
            waiting_sync(self.core, True)
            pool_trim(self.core, 0, True, True)
            events_destroy(self.core)

    @property
    def closed(self):
        """True once `close` was called."""
        return bool(self.is_closed)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __repr__(self):
        if self.is_closed or self.core is NULL:
            return "<PinnedPool closed>"
        return f"<PinnedPool reserved={self.core.source.reserved}>"


cdef PinnedPool shared = None


def default_pool():
    """Return the `PinnedPool` of the process; the first call makes it."""
    global shared
    if shared is None or shared.made != fork_count or shared.is_closed:
        shared = PinnedPool()
    return shared


def pinned_empty(shape, dtype="float64", *, order="C", pool=None):
    """Return a NumPy array in pinned host memory, not initialised.

    Asynchronous copies between it and the device do not block the host.  If the array is dropped
    during such a copy, its memory is freed after the copy.

    Parameters
    ----------
    shape, dtype, order
        As `numpy.empty` takes them.
    pool : PinnedPool, optional
        Where the memory comes from; the process's own pool if not given.
    """
    if pool is not None and not isinstance(pool, PinnedPool):
        raise TypeError(f"pool must be a PinnedPool or None, not {type(pool).__name__}")
    return (default_pool() if pool is None else pool).empty(shape, dtype, order=order)
