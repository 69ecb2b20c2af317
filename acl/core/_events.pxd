"""The structs of recorded events. `_record.pyx` writes the events; this file has no functions."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum EventKind:
    EVENT_ALLOC
    EVENT_FREE
    EVENT_LIVE                  # only in a snapshot: a live block
    EVENT_PAGES                 # only in a snapshot: mapped memory, in use or free
    EVENT_MAP                   # detail: the Rung from which the memory came
    EVENT_UNMAP  # detail: 1 if the page's memory is used elsewhere, 0 if the driver gets it
    EVENT_OOM                   # detail: number of the OomReport
    EVENT_TRIM
    EVENT_SYNC                  # size: duration in clock ticks; detail: 1 if the wait failed
    EVENT_REGISTER
    EVENT_UNREGISTER
    EVENT_SLEEP                 # a block was put to sleep; detail: 1 if its contents were kept
    EVENT_WAKE                  # a block was woken; detail: 1 if its contents were kept

cdef enum EventPath:            # how an allocation was served
    PATH_HIT
    PATH_FIT
    PATH_SLOW

# One event of a recording. It is a slot of a Ring and is overwritten when the ring is full. Written
# under the arena's lock.
cdef struct Event:              # 64 bytes, one cache line
    uint64_t time               # when it happened, in clock ticks
    char *addr                  # address of the block or of the pages
    uint64_t size               # bytes of the block or of the pages; SYNC: see EVENT_SYNC
    uint64_t requested          # bytes that the caller asked for
    # ALLOC: clock ticks that a slow allocation took, else 0. LIVE: `Birth.time`, or 0. Other kinds:
    # see EventKind.
    uint64_t detail
    uint32_t stack              # number of the Python stack; 0: none
    uint32_t native             # number of the C stack; 0: none
    uint32_t thread             # the system's number of the thread
    uint32_t step               # model executions before the event; LIVE: `Birth.extra`
    uint16_t tag                # tag of the block; 0: none
    uint8_t kind                # what happened: an EventKind
    uint8_t path                # ALLOC: EventPath; LIVE: BlockFlag bits
    uint32_t number             # number of the arena; set when the ring is read

# The last events of one arena. `ring_new` reserves its addresses when a recording needs them;
# `ring_drop` frees it after the last recording, or with the arena. Under the arena's lock.
cdef struct Ring:
    uint64_t head               # number of events written so far
    uint64_t mask               # capacity - 1
    uint64_t capacity           # number of events in the ring, a power of two
    Event *events

cdef enum:
    # If the upper 16 bits of `Birth.time` have this value, the field is not a time: see below.
    OWNED = 0xACE1

# When, and with which stacks, a live block was handed out. It lies in the links of a LIVE block,
# which no list uses, until the block is freed. Under the arena's lock, except `extra`: see
# `block_own`.
cdef struct Birth:
    # In clock ticks. If the block has neither BLOCK_BORN nor BLOCK_SEEN, this is not a time: it may
    # have OWNED in the upper 16 bits and `extra` in the others.
    uint64_t time
    uint16_t stack              # number of the Python stack; there are fewer than 2**16
    uint16_t native             # number of the C stack; there are fewer than 2**16
    uint32_t extra              # bytes of `requested` that the pool has added to the caller's bytes
