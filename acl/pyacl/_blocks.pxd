"""Blocks by their addresses, for `cimport`: see `_blocks.pyx`."""

cimport cython

from acl.core.types cimport Arena
from acl.pool._pool cimport Pool


@cython.final
cdef class Blocks:
    cdef readonly Pool pool
    cdef Arena *arena
    cdef int made                   # fork_count when it was made
    cdef dict live                  # address -> Block
