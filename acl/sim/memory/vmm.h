/* Virtual memory: reserved ranges of addresses, and physical memory mapped into them.
 *
 * A reservation is inaccessible address space. aclrtMapMem maps pages of a file there and
 * aclrtUnmapMem unmaps them, so touching an address that is not mapped faults, as on a device. In
 * strict mode the user's addresses stay inaccessible, and a second range, `alias` bytes away, has
 * the same pages for the simulator.
 *
 * V1  slots    slot i is not NULL  <=>  its granule belongs to a mapping, also a BUSY one
 * V2  uniform  all mappings of a reservation are of one device; either all are of this process's memory,
 *              or all of imported memory
 *
 * Thread rule: each reservation has a mutex for its slots, which is not held during system calls,
 * except for a change of access. While the kernel maps or unmaps, the mapping is marked BUSY
 * instead. The memory of a Reservation is only ever used for another Reservation. */
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
    aclrtMemAccessFlags access;                /* access of the device (or host) that has the memory */
    aclrtMemAccessFlags host_access;           /* access of the host, if the memory is a device's */
    aclrtMemAccessFlags peer_access[DEVICE_MAX]; /* access of other devices */
} Mapping;

typedef struct Reservation {
    pthread_mutex_t lock;
    uintptr_t base, end; /* addresses; equal if the reservation is closed */
    ptrdiff_t alias;
    Mapping **slots;     /* one for each granule (V1) */
    size_t mappings;     /* number of its mappings */
    int32_t device;      /* the device of the mappings (V2) */
    bool imported;       /* its mappings are of imported memory (V2) */
    Home *home;          /* the part of the device's file that corresponds to the range */
    struct Reservation *unused; /* next reservation that is closed and may be used again */
    struct Reservation *all;    /* next in the list of all reservations ever made */
} Reservation;

/* Returns the reservation that contains the address, with its lock held; NULL if there is none. */
Reservation *reservation_lock(uintptr_t address);
/* Returns the reservation made last; `all` leads to the others. */
Reservation *reservations_first(void);
Mapping **slot_of(const Reservation *reservation, uintptr_t address);
/* Returns the mapping that begins there; NULL if there is none, or another call is changing it.
 * The reservation's lock is held. */
Mapping *mapping_at(const Reservation *reservation, uintptr_t base);
/* Sets the access of a mapping's pages. */
bool mapping_protect(const Mapping *mapping, ptrdiff_t alias);
int protection_of(aclrtMemAccessFlags access);
/* Maps a mapping at its address; if that fails, frees it and drops its reference. */
aclError map_into(const char *function, Mapping *mapping);
/* Sets the message and returns the code for a system call on mappings that has just failed. */
aclError kernel_refused(const char *function, const char *what, uintptr_t base);

#endif
