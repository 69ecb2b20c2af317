/* A front's counters, for C and for C++ that is compiled against torch. */
#ifndef ACL_DOOR_STATS_H
#define ACL_DOOR_STATS_H

#include <stdint.h>

enum { DOOR_KINDS = 3 };

typedef struct DoorStat {
    int64_t current;
    int64_t peak;
    int64_t increased; /* sum of the increases since the start or the last reset of the accumulated counters */
    int64_t decreased; /* sum of the decreases since then */
} DoorStat;

/* The counters of one device.  The elements of an array count: all blocks, blocks of at most 1 MiB, larger blocks. */
typedef struct DoorStats {
    DoorStat blocks[DOOR_KINDS];
    DoorStat bytes[DOOR_KINDS];     /* bytes of blocks, rounded and padded */
    DoorStat requested[DOOR_KINDS]; /* bytes that the framework requested */
    DoorStat reserved[DOOR_KINDS];  /* bytes of the pool's pages; see stats_pages */
    DoorStat pages[DOOR_KINDS];     /* pages of the pool */
    int64_t ooms;                   /* allocations that failed */
    int64_t retries;                /* allocations that were tried again after the framework's queue was emptied */
    int64_t driver_allocs;          /* driver calls that allocated memory since the pool was made */
    int64_t driver_frees;           /* driver calls that freed memory since the pool was made */
} DoorStats;

#endif
