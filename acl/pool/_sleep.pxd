"""Sleep and wake of single blocks, for code that manages blocks itself: see `_sleep.pyx`."""

from acl.core.types cimport Arena, Block
from acl.pool._pool cimport Pool

# Put one block to sleep without keeping its contents, or wake it; its tag does not matter.  The
# caller makes sure that no work uses the block.  Each function waits for the device, raises as
# `pool_sleep` and `pool_wake` do, and returns their report.  The report counts no block if the
# block was in the wanted state already, or if it cannot sleep.
cdef object block_sleep(Pool pool, Arena *arena, Block *block)
cdef object block_wake(Pool pool, Arena *arena, Block *block)
