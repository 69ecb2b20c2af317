/* The table of address ranges that the simulator knows: arenas, reservations, registered host
 * memory, imported memory. They are in one sorted array: a search is binary, and adding an entry
 * moves the entries behind it.
 *
 * Thread rule: a reader-writer lock guards the table; callers get a copy of an entry. The object
 * to which `object` points is never unmapped; the file that defines it has a lock of its own, and
 * checks under this lock whether the object is still in use. */
#ifndef SIM_ADDRESS_TABLE_H
#define SIM_ADDRESS_TABLE_H

#include "base/core.h"

typedef enum RangeKind {
    RANGE_ARENA,       /* object: Arena */
    RANGE_RESERVATION, /* object: Reservation */
    RANGE_REGISTERED,  /* host memory of the user; object: NULL */
    RANGE_IMPORTED,    /* another process's device memory; object: Import */
} RangeKind;

typedef struct Range {
    uintptr_t begin, end;
    void *object;
    ptrdiff_t alias; /* user's address + alias = the simulator's own address */
    RangeKind kind;
    int32_t device; /* the device whose memory it is; -1: none */
    uint32_t flags; /* the flags of the registration; valid for RANGE_REGISTERED */
} Range;

/* Adds a range. False without host memory, or if it overlaps a range of the table (which is copied
 * to *other if `other` is not NULL). */
bool range_add(const Range *range, Range *other);
/* Removes the range of that kind which begins at `begin` and copies it to *removed; false if there is none. */
bool range_remove(uintptr_t begin, RangeKind kind, Range *removed);
bool range_find(uintptr_t address, Range *range);

#endif
