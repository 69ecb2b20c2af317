"""The slow path: pages, frames and the ladder of rungs that an allocation climbs.  See `_pages.pyx`."""

from libc.stdint cimport uint32_t

from acl._core cimport Arena, Block, Frame, Pool, Source

cdef enum Rung:                 # in the order in which they are tried
    RUNG_FLUSH                  # the cache, coalesced into the bins
    RUNG_WAITING                # blocks whose events are complete
    RUNG_SPARE                  # frames that the source holds in no arena
    RUNG_GROW                   # the driver, while reserved stays close to the live peak
    RUNG_OWN                    # whole free pages of this arena, after one sync of its stream
    RUNG_IDLE                   # whole free pages of arenas whose streams have nothing in flight
    RUNG_DRIVER                 # the driver, up to the limit
    RUNG_OTHERS                 # whole free pages of other arenas, after a sync of their streams
    RUNG_NONE                   # nothing served: NULL
    RUNGS

# Called with the arena's lock held; returns with it held; unlocks over driver calls.  A block that
# is off all lists (MOVING) and at least `size` long, or NULL.
cdef Block *pages_obtain(Arena *arena, size_t size, uint32_t kind) noexcept nogil

# Unmaps up to `want` whole free pages of an arena and hands their frames to the source.  Called
# without locks.  `wait` allows a stream sync; without it only an idle stream gives.
cdef uint32_t pages_donate(Arena *arena, uint32_t want, bint wait) noexcept nogil

# Gives spare frames back to the driver until so many bytes are reserved.
cdef size_t source_shrink(Pool *pool, size_t to) noexcept nogil
