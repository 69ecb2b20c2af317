/* Physical memory of the virtual-memory calls: handles, what backs them, and their life.
 *
 * Each device (and the host) has one file in memory.  Where in it a piece of physical memory lies
 * is decided when it is first mapped: at the place that mirrors its address in the reservation, if
 * that is free, so that neighbours in the address space are neighbours in the file and the kernel
 * keeps one mapping for both (vm.max_map_count); else anywhere.  Memory that was never mapped has
 * no place.
 *
 * P1  life     a Physical lives while a handle, a mapping or an importer counts on it
 * P2  place    placed pieces do not overlap in their file
 * P3  home     a granule's bit in its Home is set  <=>  a live piece is placed there
 *
 * Thread rule: any thread.  Physicals are type-stable, so a late handle finds a dead one, not
 * garbage. */
#ifndef SIM_PHYSICAL_H
#define SIM_PHYSICAL_H

#include "memory/memory.h"

/* The unit of mapping: two MiB, as on the chips. */
static const size_t GRANULE = (size_t)1 << 21;

struct ShareEntry;

/* The part of a backing file that mirrors one reservation. */
typedef struct Home {
    pthread_mutex_t lock;
    int32_t device; /* whose file; BOOK_HOST: the host's */
    uint64_t offset;
    size_t granules;
    uint64_t *used;  /* P3 */
    atomic_uint refs;
    struct Home *next;
} Home;

typedef struct Physical {
    pthread_mutex_t lock; /* of its place */
    atomic_uint refs;     /* P1 */
    bool placed;
    bool imported;        /* the file is another process's; fd is ours to close */
    PageKind page;
    int32_t device;       /* BOOK_HOST: the host's */
    int fd;
    uint64_t offset;
    size_t bytes;
    Home *home;           /* where its granules are marked, or NULL */
    aclrtPhysicalMemProp prop;
    struct ShareEntry *share; /* its entry for other processes, or NULL */
    uint32_t link;        /* aclrtMemMapSetLink's advice */
    _Atomic(struct PhysicalHandle *) handle; /* the latest that lives, or NULL */
    struct Physical *next;
} Physical;

typedef struct PhysicalHandle {
    Physical *memory;
    atomic_uint users; /* aclrtMallocPhysical and aclrtMemRetainAllocationHandle */
} PhysicalHandle;

/* The memory behind a user's handle with a reference taken, or 107017. */
aclError physical_of(const char *function, aclrtDrvMemHandle handle, Physical **memory);
void physical_ref(Physical *memory);
void physical_unref(Physical *memory);
/* A Physical with one reference and nothing else, or NULL. */
Physical *physical_blank(void);
/* A handle for it (takes over a reference), or NULL. */
PhysicalHandle *physical_handle(Physical *memory);
/* A handle of memory on which the caller has a reference, with one more user; NULL without. */
PhysicalHandle *physical_retain(Physical *memory);
/* Decides where it lies, at that granule of the home if that is free; false without room. */
bool physical_place(Physical *memory, Home *home, size_t granule);

Home *home_new(int32_t device, size_t bytes);
void home_unref(Home *home);

#endif
