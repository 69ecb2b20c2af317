"""A module outside the package that uses the pool from Cython: by `cimport`, without the GIL."""

from acl._capi cimport AclPool, AclPoolArena, AclPoolBlock, AclPoolStats, table
from acl._pool cimport Pool
from acl._stream cimport Stream, stream_raw


def through_the_table(Pool pool not None, Stream stream not None, size_t size, int rounds):
    """Allocate and free `rounds` times; return the live blocks meanwhile, and the failures."""
    cdef AclPool *core = table.pool_of(<void *> pool)
    cdef AclPoolArena *arena
    cdef AclPoolBlock *block
    cdef AclPoolStats stats
    cdef void *raw
    cdef int failures = 0
    stats.size = sizeof(stats)
    stream_raw(stream, &raw)
    with nogil:
        arena = table.arena(core, raw)
        for _ in range(rounds):
            block = table.alloc(arena, size)
            if block == NULL:
                failures += 1
                continue
            table.stats(core, &stats)
            if table.free(arena, block) == 0:
                failures += 1
    return stats.live_blocks, failures


def through_the_class(Pool pool not None, Stream stream, size_t size):
    """Return a Buffer of the pool, made without a Python call."""
    return pool.take(size, stream, None)
