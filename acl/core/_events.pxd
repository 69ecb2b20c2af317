"""What is noted of a pool's events (`_record.pyx`): definitions only, without a module."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum EventKind:
    EVENT_ALLOC
    EVENT_FREE
    EVENT_LIVE                  # of a survey: a live block
    EVENT_PAGES                 # of a survey: memory that is mapped, live or not
    EVENT_MAP                   # detail: the Rung that it came from
    EVENT_UNMAP                 # detail: 1 if it is to be used elsewhere
    EVENT_OOM                   # detail: the report's number
    EVENT_TRIM
    EVENT_SYNC                  # size: ticks; detail: 1 if it failed
    EVENT_REGISTER
    EVENT_UNREGISTER
    EVENT_SLEEP                 # of a block; detail: 1 if its bytes are kept
    EVENT_WAKE                  # detail: 1 if its bytes are there again

cdef enum EventPath:            # how an allocation was served
    PATH_HIT
    PATH_FIT
    PATH_SLOW

# One event of a recording. A slot in a Ring, overwritten when the ring is full. Written under the
# arena's lock.
cdef struct Event:              # 64 bytes, one cache line
    uint64_t time               # ticks
    char *addr
    uint64_t size               # bytes of the block
    uint64_t requested
    uint64_t detail             # ALLOC: ticks that it took if slow; LIVE: ticks of birth, or 0
    uint32_t stack              # Python's; 0: none
    uint32_t native
    uint32_t thread
    uint32_t step               # LIVE: `Birth.extra`
    uint16_t tag
    uint8_t kind
    uint8_t path                # LIVE: BlockFlag bits
    uint32_t number             # of the arena; written by the reader

# The last events of one arena. `ring_new` reserves its addresses when a recording needs them;
# `ring_drop` frees it after the last recording, or with the arena. Under the arena's lock.
cdef struct Ring:
    uint64_t head               # events that were ever written
    uint64_t mask
    uint64_t capacity
    Event *events

cdef enum:
    OWNED = 0xACE1              # upper bits of a `Birth.time` that no clock and no address has

# When and under which stacks a live block was handed out. It lies in the links of a LIVE block,
# which no list uses; it ends with the block's free. Under the arena's lock, but for `extra`: see
# `block_own`.
cdef struct Birth:              # lies in a live block's links
    uint64_t time               # ticks; or OWNED, and below it what else would be `extra`
    uint16_t stack              # both are below 2**16, by the sizes of their tables
    uint16_t native
    uint32_t extra              # of the bytes asked for, those that `Pool.alloc` put behind
