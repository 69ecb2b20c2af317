"""Sleep of one block, for those who keep blocks by themselves: see `_sleep.pyx`."""

from acl.core.types cimport Arena, Block
from acl.pool._pool cimport Pool

# Whatever its tag, without keeping its contents; the caller sees to it that nobody uses the block.
# Each waits for the device, raises as `pool_sleep` and `pool_wake` do, and gives their report: of
# no block if it slept, or was awake, already, or is one that cannot sleep.
cdef object block_sleep(Pool pool, Arena *arena, Block *block)
cdef object block_wake(Pool pool, Arena *arena, Block *block)
