"""The events of a pool that `_record.pyx` records: definitions only, without a module."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum EventKind:
    EVENT_ALLOC
    EVENT_FREE
    EVENT_LIVE                  # in a snapshot: a live block
    EVENT_PAGES                 # in a snapshot: mapped memory, live or not
    EVENT_MAP                   # detail: the Rung that got the memory
    EVENT_UNMAP                 # detail: 1 if the memory is to be used elsewhere
    EVENT_OOM                   # detail: number of the OomReport
    EVENT_TRIM
    EVENT_SYNC                  # size: its duration in clock ticks; detail: 1 if it failed
    EVENT_REGISTER
    EVENT_UNREGISTER
    EVENT_SLEEP                 # a block was put to sleep; detail: 1 if its contents are kept
    EVENT_WAKE                  # a block was woken; detail: 1 if its contents were kept

cdef enum EventPath:            # how an allocation was served
    PATH_HIT
    PATH_FIT
    PATH_SLOW

# One event of a recording. A slot in a Ring, overwritten when the ring is full. Written under the
# arena's lock.
cdef struct Event:              # 64 bytes, one cache line
    uint64_t time               # clock ticks
    char *addr
    uint64_t size               # bytes of the block
    uint64_t requested
    uint64_t detail             # ALLOC: clock ticks that it took, if slow; LIVE: `Birth.time`, or 0
    uint32_t stack              # number of the Python stack; 0: none
    uint32_t native             # number of the C stack; 0: none
    uint32_t thread
    uint32_t step               # LIVE: `Birth.extra`
    uint16_t tag
    uint8_t kind
    uint8_t path                # LIVE: BlockFlag bits
    uint32_t number             # number of the arena; set when the ring is read

# The last events of one arena. `ring_new` reserves its addresses when a recording needs them;
# `ring_drop` frees it after the last recording, or with the arena. Under the arena's lock.
cdef struct Ring:
    uint64_t head               # number of events written so far
    uint64_t mask
    uint64_t capacity
    Event *events

cdef enum:
    OWNED = 0xACE1              # upper 16 bits of a `Birth.time` that is not a time; see `Birth`

# When and under which stacks a live block was handed out. It lies in the links of a LIVE block,
# which no list uses; it ends with the block's free. Under the arena's lock, but for `extra`: see
# `block_own`.
cdef struct Birth:
    uint64_t time               # clock ticks; if not BORN or SEEN: OWNED << 48 | `extra`
    uint16_t stack              # number of the Python stack; their table has fewer than 2**16
    uint16_t native             # number of the C stack; likewise
    uint32_t extra              # bytes of `requested` that the pool added behind the user's
