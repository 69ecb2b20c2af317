/* Ranges of addresses that the simulator knows of: arenas, reservations, registered host memory,
 * imported memory.  One sorted array: finding is a binary search, adding moves what lies above.
 *
 * Thread rule: a reader-writer lock; an entry is copied out.  What its `object` points to is never
 * unmapped; its owner checks under a lock of its own whether it is alive. */
#ifndef SIM_ADDRESS_TABLE_H
#define SIM_ADDRESS_TABLE_H

#include "base/core.h"

typedef enum RangeKind {
    RANGE_ARENA,       /* object: Arena */
    RANGE_RESERVATION, /* object: Reservation */
    RANGE_REGISTERED,  /* of the host's; object: NULL */
    RANGE_IMPORTED,    /* another process's device memory; object: Import */
} RangeKind;

typedef struct Range {
    uintptr_t begin, end;
    void *object;
    ptrdiff_t alias; /* what leads from a user's address to the simulator's own */
    RangeKind kind;
    int32_t device; /* -1: none */
    uint32_t flags; /* RANGE_REGISTERED: as registered */
} Range;

/* False if it overlaps another (which is copied to *other if that is not NULL), or no memory. */
bool range_add(const Range *range, Range *other);
/* Removes the range of that kind which begins there; false if there is none. */
bool range_remove(uintptr_t begin, RangeKind kind, Range *removed);
bool range_find(uintptr_t address, Range *range);

#endif
