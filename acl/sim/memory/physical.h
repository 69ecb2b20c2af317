/* Physical memory of the virtual-memory calls: handles, the memory behind them, and their
 * lifetime.
 *
 * Each device (and the host) has one file in memory. The place of a piece of physical memory in
 * the file is chosen when it is first mapped. If possible it lies at the offset in the file that
 * corresponds to its offset in the reservation: then memory mapped side by side also lies side by
 * side in the file, and the kernel needs only one mapping for both (vm.max_map_count). If that
 * offset is taken, it lies anywhere. Memory that was never mapped has no place.
 *
 * P1  life     a Physical is freed when no handle, no mapping and no importer has a reference to it
 * P2  place    placed pieces do not overlap in their file
 * P3  home     a granule's bit in its Home is set  <=>  a live piece is placed there
 *
 * Thread rule: any thread. The memory of a Physical is only ever used for another Physical, so a
 * late handle finds a dead Physical and never other data. */
#ifndef SIM_PHYSICAL_H
#define SIM_PHYSICAL_H

#include "memory/memory.h"

/* The unit of mapping: two MiB, as on the chips. */
static const size_t GRANULE = (size_t)1 << 21;

struct ShareEntry;

/* The part of a backing file that corresponds to one reservation. */
typedef struct Home {
    pthread_mutex_t lock;
    int32_t device;    /* the device of the file; BOOK_HOST: the host */
    uint64_t offset;   /* where it begins in the file, in bytes */
    size_t granules;   /* its length in granules */
    uint64_t *used;    /* one bit for each granule (P3) */
    atomic_uint refs;  /* references: the reservation, and each memory placed in it */
    struct Home *next; /* next in the list of unused homes */
} Home;

typedef struct Physical {
    pthread_mutex_t lock; /* guards its place in the file */
    atomic_uint refs;     /* number of references; at 0 the memory is freed (P1) */
    bool placed;          /* it has a place in the file (P2) */
    bool imported;        /* the file belongs to another process; this process closes `fd` */
    PageKind page;
    int32_t device;       /* the device whose memory it is; BOOK_HOST: host memory */
    int fd;               /* the file; -1 until it is placed or imported */
    uint64_t offset;      /* its place in the file, in bytes */
    size_t bytes;
    Home *home;           /* the home that has its granules, or NULL */
    aclrtPhysicalMemProp prop;
    struct ShareEntry *share; /* its entry in the table for other processes, or NULL */
    uint32_t link;        /* value set by aclrtMemMapSetLink; only stored */
    _Atomic(struct PhysicalHandle *) handle; /* the newest handle that is live, or NULL */
    struct Physical *next;
} Physical;

typedef struct PhysicalHandle {
    Physical *memory;
    atomic_uint users; /* calls of aclrtMallocPhysical and aclrtMemRetainAllocationHandle that are not undone */
} PhysicalHandle;

/* Gives the memory of a user's handle with a reference, or 107017. */
aclError physical_of(const char *function, aclrtDrvMemHandle handle, Physical **memory);
void physical_ref(Physical *memory);
void physical_unref(Physical *memory);
/* Returns an empty Physical with one reference, or NULL. */
Physical *physical_blank(void);
/* Returns a new handle, which takes over the caller's reference; NULL without host memory. */
PhysicalHandle *physical_handle(Physical *memory);
/* Returns a handle of the memory and adds one user to it; NULL without host memory. The caller
 * has a reference on the memory. */
PhysicalHandle *physical_retain(Physical *memory);
/* Chooses the memory's place in the file: at that granule of the home if it is free. False if
 * there is no room. */
bool physical_place(Physical *memory, Home *home, size_t granule);

Home *home_new(int32_t device, size_t bytes);
void home_unref(Home *home);

#endif
