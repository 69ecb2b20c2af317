"""Pool: the Python face of the allocator.

A pool belongs to one device and gives each stream an arena; `register` hands the arena and the four
C functions to ACL, so that whatever runs on the stream takes its memory here.  Nothing in this file
runs inside a callback of ACL's.
"""

from libc.stdint cimport uint16_t, uint64_t
from libc.string cimport memset

import re

from acl._core cimport (
    Arena, Pool as CorePool, PoolOptions,
    on_alloc, on_alloc_advise, on_free, on_get_addr,
)
from acl._arena cimport pool_arena, pool_create
from acl._libacl cimport (
    ACL_HBM_MEM, ACL_HBM_MEM_HUGE, ACL_SUCCESS, aclError, aclrtAllocatorCreateDesc, aclrtAllocatorDesc,
    aclrtAllocatorDestroyDesc, aclrtAllocatorRegister, aclrtAllocatorSetAllocAdviseFuncToDesc,
    aclrtAllocatorSetAllocFuncToDesc, aclrtAllocatorSetFreeFuncToDesc,
    aclrtAllocatorSetGetAddrFromBlockFuncToDesc, aclrtAllocatorSetObjToDesc,
    aclrtAllocatorUnregister, aclrtStream,
)

__all__ = ["Pool"]


cdef int check(aclError status, str call) except -1:
    if status != ACL_SUCCESS:
        raise RuntimeError(f"{call}: {status}")
    return 0


SIZES = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
         "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def size_of(value, name):
    """Bytes from an int or from a text such as "8GiB" or "1.5 MB"."""
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")
        return value
    if not isinstance(value, str):
        raise TypeError(f"{name} must be an int or a text such as '8GiB', got {type(value).__name__}")
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2].upper() not in SIZES:
        raise ValueError(f"{name} must look like '8GiB' or '512 MiB', got {value!r}")
    return int(float(match[1]) * SIZES[match[2].upper()])


cdef aclError descriptor_fill(aclrtAllocatorDesc desc, Arena *arena) noexcept nogil:
    """All five values: a fresh descriptor's functions are not initialised by ACL."""
    cdef aclError status = aclrtAllocatorSetObjToDesc(desc, arena)
    if status == ACL_SUCCESS:
        status = aclrtAllocatorSetAllocFuncToDesc(desc, on_alloc)
    if status == ACL_SUCCESS:
        status = aclrtAllocatorSetFreeFuncToDesc(desc, on_free)
    if status == ACL_SUCCESS:
        status = aclrtAllocatorSetAllocAdviseFuncToDesc(desc, on_alloc_advise)
    if status == ACL_SUCCESS:
        status = aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, on_get_addr)
    return status


cdef class Pool:
    """Device memory for the streams of one device.

    Parameters
    ----------
    device : int
        Ordinal of the device.
    limit : int or str, optional
        Most bytes of physical memory that the pool may reserve; no limit if not given.
    headroom : int or str
        Bytes that are always left free on the device for others.
    granule : int or str
        Bytes of a page: smaller wastes less, larger makes fewer driver calls.
    """

    cdef CorePool *pool

    def __cinit__(self, device=0, limit=None, *, headroom=0, granule="2MiB", virtual="128GiB",
                  steal=True):
        cdef PoolOptions options
        memset(&options, 0, sizeof(options))
        options.device = device
        options.limit = 0 if limit is None else size_of(limit, "limit")
        options.headroom = size_of(headroom, "headroom")
        options.granule = size_of(granule, "granule")
        options.virtual_bytes = size_of(virtual, "virtual")
        options.info_attr = ACL_HBM_MEM
        options.mem_attr = ACL_HBM_MEM_HUGE
        options.sync_timeout_ms = 10_000
        options.steals = steal
        self.pool = pool_create(&options, NULL)
        if self.pool == NULL:
            raise MemoryError("host memory for a pool")

    def register(self, size_t stream):
        """Serve the stream (its handle as a number) from here on."""
        cdef aclError status
        cdef Arena *arena = pool_arena(self.pool, <aclrtStream> stream, 0)
        cdef aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc()
        if arena == NULL or desc == NULL:
            raise MemoryError("host memory for an arena")
        status = descriptor_fill(desc, arena)
        if status == ACL_SUCCESS:
            status = aclrtAllocatorRegister(<aclrtStream> stream, desc)
        aclrtAllocatorDestroyDesc(desc)
        check(status, "aclrtAllocatorRegister")

    def unregister(self, size_t stream):
        """Take the registration back; blocks that are out may still be freed."""
        check(aclrtAllocatorUnregister(<aclrtStream> stream), "aclrtAllocatorUnregister")

    def reserved(self):
        """Bytes of physical memory that the pool holds."""
        return self.pool.source.reserved
