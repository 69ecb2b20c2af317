/* Virtual memory: reserved ranges of addresses, and physical memory mapped into them.
 *
 * A reservation is inaccessible address space.  aclrtMapMem puts file pages there, aclrtUnmapMem
 * takes them away, so touching what is not mapped faults, as it does on a device.  In strict mode
 * the users' view stays inaccessible and a second range, `alias` bytes away, has the same pages.
 *
 * V1  slots    slot i is not NULL  <=>  its granule belongs to a mapping, also a BUSY one
 * V2  uniform  all mappings of a reservation are of one device, and all its own or all imported
 *
 * Thread rule: each reservation has a mutex for its slots, held over no system call but a change of
 * access: a mapping that the kernel works on is marked BUSY.  Reservations are type-stable. */
#ifndef SIM_VMM_H
#define SIM_VMM_H

#include "memory/memory.h"
#include "memory/physical.h"

typedef enum MappingState { MAPPING_BUSY, MAPPING_DONE } MappingState;

typedef struct Mapping {
    Physical *memory;
    uintptr_t base;
    size_t bytes;
    MappingState state;
    aclrtMemAccessFlags access;                /* of its own side */
    aclrtMemAccessFlags host_access;           /* of the host, if it is a device's */
    aclrtMemAccessFlags peer_access[DEVICE_MAX]; /* of other devices */
} Mapping;

typedef struct Reservation {
    pthread_mutex_t lock;
    uintptr_t base, end; /* equal: dead */
    ptrdiff_t alias;
    Mapping **slots;     /* V1; one for each granule */
    size_t mappings;
    int32_t device;      /* V2; of the mappings there are */
    bool imported;
    Home *home;          /* mirrors the range in the device's file */
    struct Reservation *unused; /* next dead one */
    struct Reservation *all;    /* next one ever made */
} Reservation;

/* The reservation that the address is in, with its lock held; NULL if in none. */
Reservation *reservation_lock(uintptr_t address);
/* The one made last; the others follow by `all`. */
Reservation *reservations_first(void);
Mapping **slot_of(const Reservation *reservation, uintptr_t address);
/* The mapping that begins there, if no other call is changing it; the reservation's lock is
 * held. */
Mapping *mapping_at(const Reservation *reservation, uintptr_t base);
/* Puts a mapping's access into effect. */
bool mapping_protect(const Mapping *mapping, ptrdiff_t alias);
int protection_of(aclrtMemAccessFlags access);
/* Maps it where it says, or gives it and its reference back. */
aclError map_into(const char *function, Mapping *mapping);
/* The message and code for a system call on mappings that failed just now. */
aclError kernel_refused(const char *function, const char *what, uintptr_t base);

#endif
