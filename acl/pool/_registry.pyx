"""Registration of pools with ACL, and the lists of pools and of registered streams.

For each stream ACL gets five values: an arena and four C functions.  ACL copies them, so the
descriptor is destroyed at once.  The arena must outlive every block that it handed out, even after
the registration has ended.
"""

import weakref
from collections import namedtuple

from libc.stdint cimport uint32_t

from acl.core._arena cimport arena_serves, pool_with, stream_end, stream_fault_take
from acl._core cimport on_alloc, on_alloc_advise, on_free, on_get_addr, strays_read
from acl.runtime._device cimport current_ensure
from acl.bind._error cimport check
from acl.core._events cimport EVENT_REGISTER, EVENT_UNREGISTER
from acl.core._guard cimport (
    guard_alloc, guard_alloc_advise, guard_close, guard_free, guard_open,
)
from acl.bind.generated._libacl cimport (
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_INVALID_HANDLE, ACL_ERROR_RT_MEMORY_ALLOCATION,
    ACL_STREAM_STATUS_COMPLETE, ACL_SUCCESS, aclrtAllocator,
    aclrtAllocatorAllocAdviseFunc, aclrtAllocatorAllocFunc, aclrtAllocatorCreateDesc,
    aclrtAllocatorDesc, aclrtAllocatorDestroyDesc, aclrtAllocatorFreeFunc,
    aclrtAllocatorGetAddrFromBlockFunc, aclrtAllocatorGetByStream, aclrtAllocatorRegister,
    aclrtAllocatorSetAllocAdviseFuncToDesc, aclrtAllocatorSetAllocFuncToDesc,
    aclrtAllocatorSetFreeFuncToDesc, aclrtAllocatorSetGetAddrFromBlockFuncToDesc,
    aclrtAllocatorSetObjToDesc, aclrtAllocatorUnregister, aclrtStreamQuery, aclrtStreamStatus,
)
from acl.pool._options cimport stream_on
from acl.core._record cimport record_note
from acl.runtime._ended cimport stream_watch
from acl.runtime._stream cimport Stream, handle_checked, stream_raw

from acl.pool._findings import findings_listen
from acl.runtime._ended import watch_table
from acl.runtime._stream import ended_hooks, fault_hooks

__all__ = ["Allocator", "allocator_of", "every", "open_pools", "pool_of", "registered"]

findings_listen()

every = weakref.WeakValueDictionary()   # address of the core's Pool -> Python Pool, also if closed
# Stream handle -> the Pool that Python registered for it.  The entry keeps the Pool alive.
registered: dict = {}
watch_table(registered)


cdef list pools_alive():
    """Return the pools as a list: iterating `every` fails if another thread makes a pool."""
    return [pool for reference in every.valuerefs() if (pool := reference()) is not None]


def open_pools(device=None):
    """Return the pools of this process that may hold memory, of one device or all, oldest first."""
    found = [pool for pool in pools_alive() if device is None or pool.device == device]
    return sorted(found, key=lambda pool: pool.number)


def pool_of(size_t stream):
    """Return the pool that Python or C code registered for a stream's handle, or None."""
    pool = registered.get(stream)
    if pool is not None and pool.serves(stream):
        return pool
    for one in pools_alive():
        if one.serves(stream):
            return one
    return None


def stream_ended(handle):
    """Forget a stream in all pools, because it is about to be destroyed."""
    cdef aclrtStream raw = <aclrtStream> <size_t> handle
    pool = registered.get(handle)
    try:
        if pool is not None:
            pool.unregister(handle)
    finally:                                    # the stream ends also if ACL refuses `unregister`
        with nogil:
            stream_end(raw)                     # called twice if the runtime reports the end too


ended_hooks.append(stream_ended)


cdef aclError descriptor_fill(aclrtAllocatorDesc desc, Arena *arena, bint guard) noexcept nogil:
    """Set all five values of a new descriptor, because ACL does not initialise them."""
    cdef aclError status = aclrtAllocatorSetObjToDesc(desc, arena)
    if status == ACL_SUCCESS:
        status = aclrtAllocatorSetAllocFuncToDesc(desc, guard_alloc if guard else on_alloc)
    if status == ACL_SUCCESS:
        status = aclrtAllocatorSetFreeFuncToDesc(desc, guard_free if guard else on_free)
    if status == ACL_SUCCESS:
        status = aclrtAllocatorSetAllocAdviseFuncToDesc(
            desc, guard_alloc_advise if guard else on_alloc_advise)
    if status == ACL_SUCCESS:
        status = aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, on_get_addr)
    return status


cdef aclError arena_register(Arena *arena, aclrtStream stream) noexcept nogil:
    """Register an arena for a stream, with `core/_guard`'s callbacks if the pool guards blocks.

    If there is no memory for guards, the usual callbacks are registered.
    """
    cdef uint32_t every = arena.pool.options.guard_every
    cdef bint guard = every != 0 and guard_open(arena, every)
    cdef aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc()
    cdef aclError status
    if desc == NULL:
        return ACL_ERROR_RT_MEMORY_ALLOCATION
    status = descriptor_fill(desc, arena, guard)
    if status == ACL_SUCCESS:
        status = aclrtAllocatorRegister(stream, desc)
    aclrtAllocatorDestroyDesc(desc)  # status ignored: ACL has its copy
    if status == ACL_SUCCESS:
        arena_serves(arena)
        record_note(arena, EVENT_REGISTER, NULL, 0, 0)
    return status


cdef aclError arena_unregister(Arena *arena, aclrtStream stream) noexcept nogil:
    """End an arena's registration.  Return success also if it is not registered."""
    cdef aclError status = ACL_SUCCESS
    if arena.ending.registered:
        arena.ending.registered = False
        status = aclrtAllocatorUnregister(stream)
    if arena.guards.guard != NULL:
        guard_close(arena)
    record_note(arena, EVENT_UNREGISTER, NULL, 0, 0)
    return status


cdef aclrtStream handle_of(object stream) except? NULL:
    cdef aclrtStream raw = NULL
    if stream is None or isinstance(stream, Stream):
        stream_raw(stream, &raw)
        return raw
    return <aclrtStream> handle_checked(stream, "stream", "a Stream or the handle of one")


cdef aclrtStream handle_on(object stream, int device) except? NULL:
    if isinstance(stream, Stream):
        stream_on(stream, device)
    return handle_of(stream)


cdef int register_check(object pool, aclrtStream raw, bint replace) except -1:
    if raw is NULL:
        raise ValueError("ACL never asks for the default stream's allocator: make a Stream")
    stream_exists(raw)
    stream_watch(raw)
    taken = pool_of(<size_t> raw)
    if taken is not None and taken is not pool and not replace:
        raise ValueError(f"stream {<size_t> raw:#x} is served by pool {taken.name!r}: "
                         f"replace=True lets pool {pool.name!r} take it over")
    return 0


cdef int stream_exists(aclrtStream raw) except -1:
    cdef aclrtStreamStatus state = ACL_STREAM_STATUS_COMPLETE
    cdef aclError status
    current_ensure(NULL)
    with nogil:
        status = aclrtStreamQuery(raw, &state)
    if status == ACL_ERROR_RT_INVALID_HANDLE:
        raise ValueError(f"stream must be a Stream or the handle of one, not {<size_t> raw:#x}")
    return 0


Allocator = namedtuple("Allocator", "object alloc free alloc_advise get_addr pool")
Allocator.__doc__ = (
    "What is registered for a stream: an object and four C functions, as addresses, and the Pool "
    "whose they are, or None.")


def allocator_of(stream):
    """Return what ACL has registered for a stream, also by other code; None if nothing.

    Raises
    ------
    NotSupportedError
        The library is older than `aclrtAllocatorGetByStream`.
    """
    cdef aclrtStream raw = handle_of(stream)
    cdef aclrtAllocatorDesc desc = NULL
    cdef aclrtAllocator allocator = NULL
    cdef aclrtAllocatorAllocFunc alloc = NULL
    cdef aclrtAllocatorFreeFunc free = NULL
    cdef aclrtAllocatorAllocAdviseFunc advise = NULL
    cdef aclrtAllocatorGetAddrFromBlockFunc address = NULL
    if raw is NULL:
        return None                             # ACL has no allocator for the default stream
    current_ensure(NULL)
    cdef aclError status = aclrtAllocatorGetByStream(
        raw, &desc, &allocator, &alloc, &free, &advise, &address)
    if status == ACL_ERROR_INVALID_PARAM:
        return None
    check(status, "aclrtAllocatorGetByStream")
    pool = every.get(<size_t> pool_with(allocator)) if alloc in (on_alloc, guard_alloc) else None
    return Allocator(<size_t> allocator, <size_t> alloc, <size_t> free, <size_t> advise,
                     <size_t> address, pool)


def strays():
    """Return the number of callback calls in this process with an unknown allocator or block."""
    return strays_read()


def stream_fault(size_t handle):
    """Return the status of a failed task of a stream that only a pool's wait has seen, or 0."""
    return stream_fault_take(<aclrtStream> handle)


fault_hooks.append(stream_fault)
