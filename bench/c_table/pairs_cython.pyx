# cython: language_level=3
"""The pool's table, and its classes, from Cython: pairs of calls, timed as in pairs.c.

    cython -3 pairs_cython.pyx, and gcc as for pairs.c with -I of the folder that holds `acl`
"""

from posix.time cimport CLOCK_THREAD_CPUTIME_ID, clock_gettime, timespec

from acl._capi cimport AclPool, AclPoolArena, AclPoolBlock, table
from acl._pool cimport Pool
from acl._stream cimport Stream


cdef double now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)
    return now.tv_sec * 1e9 + now.tv_nsec


def measure(Pool pool not None, Stream stream not None, size_t size, long count):
    """Return the nanoseconds of a pair, for each way to call."""
    cdef AclPoolArena *arena = table.arena(table.pool_of(<void *>pool), <void *><size_t>stream.handle)
    cdef AclPoolBlock *block
    cdef double start, alloc, take
    cdef long i
    with nogil:
        start = now_ns()
        for i in range(count):
            block = table.alloc(arena, size)
            table.free(arena, block)
        alloc = (now_ns() - start) / count
    start = now_ns()
    for i in range(count):
        pool.take(size, stream, None)               # an acl.Buffer, dropped at once
    take = (now_ns() - start) / count
    return {"alloc, free": alloc, "pool.take, drop": take}
