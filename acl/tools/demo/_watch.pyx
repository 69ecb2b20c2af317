"""A wrapper around an allocator: it counts and times ACL's callbacks, and tracks the live bytes.

A `Watch` registers itself for a stream and forwards every call to an allocator, which is given by
the addresses of its functions.  So allocators in C and in Python are timed with the same clock.
Only one thread at a time may use it; the callbacks do not need the GIL.  A Watch is registered
until `unregister`, and must exist until the models that ran on the stream are unloaded.
"""

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc

from acl.bind._error cimport check
from acl.bind.generated._libacl cimport (
    ACL_SUCCESS, aclError, aclrtAllocatorCreateDesc,
    aclrtAllocatorDesc, aclrtAllocatorDestroyDesc, aclrtAllocatorRegister,
    aclrtAllocatorSetAllocAdviseFuncToDesc, aclrtAllocatorSetAllocFuncToDesc,
    aclrtAllocatorSetFreeFuncToDesc, aclrtAllocatorSetGetAddrFromBlockFuncToDesc,
    aclrtAllocatorSetObjToDesc, aclrtAllocatorUnregister, aclrtStream,
)

__all__ = ["Tally", "Watch"]


cdef extern from "tools/bench/clock.h" nogil:
    uint64_t ticks_now()

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long value)

ctypedef void *(*AllocFunc)(void *allocator, size_t size) noexcept nogil
ctypedef void (*FreeFunc)(void *allocator, void *block) noexcept nogil
ctypedef void *(*AddressFunc)(void *block) noexcept nogil


cdef struct Sums:
    uint64_t calls
    uint64_t ticks
    uint64_t live               # bytes that were requested and are not freed
    uint64_t peak
    uint64_t[256] took          # histogram of calls by ticks, four buckets for each power of two


cdef struct Watched:
    void *allocator
    AllocFunc alloc
    FreeFunc free
    AddressFunc address
    Sums *sums


cdef struct Held:
    void *block                 # the block of the watched allocator
    Watched *owner
    size_t size


cdef void called(Sums *sums, uint64_t start) noexcept nogil:
    cdef uint64_t ticks = ticks_now() - start
    cdef int power = 63 - __builtin_clzll(ticks | 4)
    sums.calls += 1
    sums.ticks += ticks
    sums.took[4 * power + ((ticks >> (power - 2)) & 3)] += 1


cdef void live_add(Sums *sums, uint64_t size) noexcept nogil:
    sums.live += size
    if sums.live > sums.peak:
        sums.peak = sums.live


cdef void *on_alloc(void *allocator, size_t size) noexcept nogil:
    cdef Watched *watched = <Watched *> allocator
    cdef Held *held = <Held *> malloc(sizeof(Held))
    if held is NULL:
        return NULL
    cdef uint64_t start = ticks_now()
    held.block = watched.alloc(watched.allocator, size)
    called(watched.sums, start)
    if held.block is NULL:
        free(held)
        return NULL
    held.owner = watched
    held.size = size
    live_add(watched.sums, size)
    return held


cdef void *on_advise(void *allocator, size_t size, void *advised) noexcept nogil:
    return on_alloc(allocator, size)


cdef void on_free(void *allocator, void *block) noexcept nogil:
    cdef Held *held = <Held *> block
    cdef Watched *watched = held.owner
    cdef uint64_t start = ticks_now()
    watched.free(watched.allocator, held.block)
    called(watched.sums, start)
    watched.sums.live -= held.size
    free(held)


cdef void *on_address(void *block) noexcept nogil:
    cdef Held *held = <Held *> block
    cdef uint64_t start = ticks_now()
    cdef void *address = held.owner.address(held.block)
    called(held.owner.sums, start)
    return address


@cython.final
cdef class Tally:
    """Sums over watched streams, and over buffers that the caller reports by `add` and `take`."""

    cdef Sums sums

    @property
    def calls(self):
        """The number of callbacks."""
        return self.sums.calls

    @property
    def ticks(self):
        """The time in callbacks, in the unit of `_loops.ticks_per_ns`."""
        return self.sums.ticks

    @property
    def took(self):
        """Histogram: pairs (upper limit in ticks, calls).

        A limit is up to a quarter above the real times.
        """
        return [((5 + i % 4) << (i // 4 - 2), self.sums.took[i])
                for i in range(8, 256) if self.sums.took[i]]

    @property
    def live(self):
        """Bytes that were requested and are not freed."""
        return self.sums.live

    @property
    def peak(self):
        """The highest value of `live` since `reset_peak`."""
        return self.sums.peak

    def reset_peak(self):
        """Return the peak, and set it to the bytes that are live now."""
        peak = self.sums.peak
        self.sums.peak = self.sums.live
        return peak

    def add(self, nbytes):
        """Count `nbytes` more live bytes."""
        live_add(&self.sums, nbytes)

    def take(self, nbytes):
        """Count `nbytes` fewer live bytes."""
        self.sums.live -= nbytes


@cython.final
cdef class Watch:
    """Watches the allocator of one stream.

    Parameters
    ----------
    stream : int
        The stream's handle.
    allocator, alloc, release, address : int
        The allocator's object and functions.
    tally : Tally
        The sums to which it adds.
    """

    cdef Watched watched
    cdef aclrtStream stream
    cdef Tally tally

    def __init__(self, size_t stream, size_t allocator, size_t alloc, size_t release,
                 size_t address, Tally tally not None):
        # Stored through `void **`, because Python gives the functions as numbers.
        (<void **> &self.watched.alloc)[0] = <void *> alloc
        (<void **> &self.watched.free)[0] = <void *> release
        (<void **> &self.watched.address)[0] = <void *> address
        self.watched.allocator = <void *> allocator
        self.watched.sums = &tally.sums
        self.tally = tally
        self.stream = <aclrtStream> stream
        self.register()

    cdef int register(self) except -1:
        cdef aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc()
        cdef aclError status
        if desc is NULL:
            raise MemoryError("host memory for an allocator's description")
        status = aclrtAllocatorSetObjToDesc(desc, &self.watched)
        if status == ACL_SUCCESS:
            status = aclrtAllocatorSetAllocFuncToDesc(desc, on_alloc)
        if status == ACL_SUCCESS:
            status = aclrtAllocatorSetFreeFuncToDesc(desc, on_free)
        if status == ACL_SUCCESS:
            status = aclrtAllocatorSetAllocAdviseFuncToDesc(desc, on_advise)
        if status == ACL_SUCCESS:
            status = aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, on_address)
        if status == ACL_SUCCESS:
            status = aclrtAllocatorRegister(self.stream, desc)
        aclrtAllocatorDestroyDesc(desc)
        check(status, "aclrtAllocatorRegister")
        return 0

    def unregister(self):
        """Unregister the Watch; the stream then has no allocator."""
        check(aclrtAllocatorUnregister(self.stream), "aclrtAllocatorUnregister")
