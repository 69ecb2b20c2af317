"""Memory by its address, for allocators that are written in Python.

A `Blocks` allocates from one stream's arena, without the padding that `Pool.alloc` adds for users'
buffers.  It has a dict from each address to its block.  By default it uses the arena from which ACL
allocates for the stream.  There, a block may be freed when the last work that uses it is queued.
With `apart` it uses another arena.  There, a block of a page or more shares no page with other
blocks, so that each block can sleep alone.

The GIL protects the dict.  It is released during a slow allocation.
"""

cimport cython
from libc.stdint cimport uint16_t, uint64_t

from acl.core._arena cimport pool_arena
from acl._core cimport arena_alloc, arena_free, arena_try
from acl.core.types cimport BLOCK_ASLEEP, Block, ROLE_STREAM, ROLE_USER
from acl.runtime._device cimport current_ensure, fork_count, forked_raise
from acl.bind.generated._libacl cimport ACL_ERROR_RT_MEMORY_ALLOCATION
from acl.pool._refusals cimport books
from acl.pool._pool cimport Pool
from acl.pool._registry cimport handle_of
from acl.pool._sleep cimport block_sleep, block_wake

__all__ = ["Blocks"]


@cython.final
cdef class Blocks:
    """Memory of a pool for one stream, by address.

    Parameters
    ----------
    pool : Pool
    stream : Stream or int, optional
        The stream whose work uses the memory; the default stream if not given.
    apart : bool
        True to use an own arena instead of the one from which ACL allocates for the stream.
    """

    def __init__(self, Pool pool not None, stream=None, *, bint apart=False):
        pool.open_check()
        self.made = fork_count
        self.pool = pool
        self.live = {}
        self.arena = pool_arena(
            pool.core, handle_of(stream), ROLE_USER if apart else ROLE_STREAM)
        if self.arena is NULL:
            raise MemoryError("host memory for an arena")

    def take(self, size, tag=None):
        """Allocate `size` bytes and return the address; raise `OutOfMemoryError`, which is also a
        MemoryError.
        """
        cdef size_t wanted
        cdef uint16_t index = 0 if tag is None else self.pool.tag_index(tag)
        cdef uint64_t before
        cdef Block *block
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"size must be an int, not {type(size).__name__}")
        if not 0 <= size < 1 << 46:
            raise ValueError(f"size must be 0 to 2**46 - 1, not {size}")
        if self.made != fork_count:
            forked_raise(self)
        wanted = size
        block = arena_try(self.arena, wanted, index)
        if block is NULL:
            current_ensure(NULL)
            before = self.pool.core.reports.oom.number
            with nogil:
                block = arena_alloc(self.arena, wanted, index)
        if block is NULL:
            report = books().oom_of(self.pool, before, <size_t> self.arena.stream, wanted)
            raise books().oom_told(report, ACL_ERROR_RT_MEMORY_ALLOCATION, "acl.Pool")
        self.live[<size_t> block.addr] = <size_t> block
        return <size_t> block.addr

    def give(self, address):
        """Free the memory at an address that `take` returned.

        Raise ValueError for other addresses.
        """
        block = self.live.pop(address, None)
        if block is None:
            raise ValueError(f"{address!r} is no address of this allocator")
        arena_free(self.arena, <Block *> <size_t> block)

    def sleep(self, address):
        """Wait for the device, then release the memory at an address that `take` returned.

        The content is lost; the address stays allocated.  Raises `AclError` if ACL fails, and
        ValueError if the block sleeps already or its memory cannot be unmapped.
        """
        cdef size_t block = self.live[address]
        if block_sleep(self.pool, self.arena, <Block *> block).blocks == 0:
            raise ValueError(f"the block at {address:#x} sleeps, or is no memory that can")

    def wake(self, address):
        """Give a sleeping address memory again.

        If there is no memory, raise `OutOfMemoryError`; the block stays asleep then.
        """
        cdef size_t block = self.live[address]
        if block_wake(self.pool, self.arena, <Block *> block).blocks == 0:
            raise ValueError(f"the block at {address:#x} is awake")

    def asleep(self, address):
        """Return True if the block at an address that `take` returned sleeps, fully or in part."""
        cdef size_t block = self.live[address]
        return (<Block *> block).flags & BLOCK_ASLEEP != 0

    @property
    def count(self):
        """Return the number of allocated addresses."""
        return len(self.live)
