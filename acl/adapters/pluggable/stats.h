/* A front's counters, for C and for C++ that is compiled against torch. */
#ifndef ACL_DOOR_STATS_H
#define ACL_DOOR_STATS_H

#include <stdint.h>

enum { DOOR_KINDS = 3 };

typedef struct DoorStat {
    int64_t current;
    int64_t peak;
    int64_t increased; /* sum of the increases since the start or the last reset of the accumulated counters */
    int64_t decreased;
} DoorStat;

/* The counters of one device.  Each has three values: for all blocks, for blocks of at most 1 MiB, for larger blocks. */
typedef struct DoorStats {
    DoorStat blocks[DOOR_KINDS];
    DoorStat bytes[DOOR_KINDS];     /* bytes of blocks, rounded and padded */
    DoorStat requested[DOOR_KINDS]; /* bytes that the framework requested */
    DoorStat reserved[DOOR_KINDS];  /* bytes of the pool's pages; see stats_pages */
    DoorStat pages[DOOR_KINDS];
    int64_t ooms;
    int64_t retries;
    int64_t driver_allocs;
    int64_t driver_frees;
} DoorStats;

#endif
