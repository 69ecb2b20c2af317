/* Physical memory of the virtual-memory calls: handles, the memory behind them, and their
 * lifetime.
 *
 * Each device (and the host) has one file in memory. The place of physical memory in the file is
 * chosen when the memory is first mapped. If possible, its offset in the file corresponds to its
 * offset in the reservation: then memory that is mapped side by side also lies side by side in the
 * file, and the kernel needs only one mapping for both (vm.max_map_count). If that offset is used
 * already, the place is anywhere in the file. Memory that was never mapped has no place.
 *
 * P1  life     a Physical is freed when no handle and no mapping has a reference to it; its place in
 *              the file, when no importer uses the memory either
 * P2  place    the places of different Physicals do not overlap in their file
 * P3  home     a granule's bit in its Home is set  <=>  physical memory is placed there
 *
 * Thread rule: any thread. The struct of a freed Physical is used only for another Physical, so a
 * late handle finds a dead Physical and never other data. */
#ifndef SIM_PHYSICAL_H
#define SIM_PHYSICAL_H

#include "memory/memory.h"

/* The unit of mapping in bytes: 2 MiB, as on the chips. */
static const size_t GRANULE = (size_t)1 << 21;

struct ShareEntry;

/* The part of a backing file that corresponds to one reservation. */
typedef struct Home {
    pthread_mutex_t lock;
    int32_t device;    /* the device of the file; BOOK_HOST: the host */
    uint64_t offset;   /* where the home begins in the file, in bytes */
    size_t granules;   /* length of the home in granules */
    uint64_t *used;    /* one bit for each granule (P3) */
    atomic_uint refs;  /* number of references: the reservation, and each Physical placed in the home */
    struct Home *next; /* next in the list of unused homes */
} Home;

typedef struct Physical {
    pthread_mutex_t lock; /* guards the place in the file */
    atomic_uint refs;     /* number of references; at 0 the memory is freed (P1) */
    bool placed;          /* it has a place in the file (P2) */
    bool imported;        /* the file belongs to another process; this process closes `fd` */
    PageKind page;
    int32_t device;       /* the device whose memory it is; BOOK_HOST: host memory */
    int fd;               /* descriptor of the file; -1 until the memory is placed or imported */
    uint64_t offset;      /* where the memory begins in the file, in bytes; valid if `placed` */
    size_t bytes;
    Home *home;           /* the home in which the memory is placed; NULL: not placed, or in no home */
    aclrtPhysicalMemProp prop;
    struct ShareEntry *share; /* the memory's entry in the export table; NULL: not exported */
    uint32_t link;        /* value set by aclrtMemMapSetLink; only stored */
    _Atomic(struct PhysicalHandle *) handle; /* the newest handle that is live, or NULL */
    struct Physical *next;
} Physical;

typedef struct PhysicalHandle {
    Physical *memory;
    atomic_uint users; /* calls that returned this handle minus calls that freed it */
} PhysicalHandle;

/* Gives the memory of a user's handle, with a reference; 107017 if the handle is not live. */
aclError physical_of(const char *function, aclrtDrvMemHandle handle, Physical **memory);
void physical_ref(Physical *memory);
void physical_unref(Physical *memory);
/* Returns a Physical with one reference, which has no place in a file yet; the caller sets page, device, bytes and
 * prop. NULL without host memory. */
Physical *physical_blank(void);
/* Returns a new handle, which takes over the caller's reference; NULL without host memory. */
PhysicalHandle *physical_handle(Physical *memory);
/* Returns a handle of the memory: the newest one, whose `users` grows by one, or a new handle if all earlier handles
 * were freed. NULL without host memory. The caller keeps its reference to the memory. */
PhysicalHandle *physical_retain(Physical *memory);
/* Chooses the memory's place in the file, if it has none: at that granule of `home` (may be NULL) if the
 * granules there are free, else anywhere. False if there is no room. */
bool physical_place(Physical *memory, Home *home, size_t granule);

Home *home_new(int32_t device, size_t bytes);
void home_unref(Home *home);

#endif
