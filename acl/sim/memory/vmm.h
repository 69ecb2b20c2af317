/* Virtual memory: reserved ranges of addresses, and physical memory mapped into them.
 *
 * A reservation is inaccessible address space. aclrtMapMem maps pages of a file into it and
 * aclrtUnmapMem unmaps them, so an access to an address that is not mapped faults, as on a device.
 * In strict mode the user's addresses stay inaccessible, and the pages are mapped a second time,
 * `alias` bytes away, for the simulator.
 *
 * V1  slots    slot i is not NULL  <=>  its granule belongs to a mapping, which may be BUSY
 * V2  uniform  all mappings of a reservation are of one device; either all are of this process's memory,
 *              or all of imported memory
 *
 * Thread rule: each reservation has a mutex for its slots, which is not held during system calls,
 * except for a change of access. While the kernel maps or unmaps, the mapping is marked BUSY
 * instead. The struct of a closed Reservation is used only for another Reservation. */
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
    aclrtMemAccessFlags access;                /* access of the device (or host) to which the memory belongs */
    aclrtMemAccessFlags host_access;           /* access of the host; valid if the memory belongs to a device */
    aclrtMemAccessFlags peer_access[DEVICE_MAX]; /* access of other devices */
} Mapping;

typedef struct Reservation {
    pthread_mutex_t lock;
    uintptr_t base, end; /* addresses; equal if the reservation is closed */
    ptrdiff_t alias;
    Mapping **slots;     /* one pointer for each granule (V1) */
    size_t mappings;     /* number of mappings in the reservation */
    int32_t device;      /* the device of the mappings (V2); valid if `mappings` is not 0 */
    bool imported;       /* the mappings are of imported memory (V2); valid if `mappings` is not 0 */
    Home *home;          /* the part of the device's file that corresponds to the range */
    struct Reservation *unused; /* next reservation that is closed and may be used again */
    struct Reservation *all;    /* next in the list of all reservations ever made */
} Reservation;

/* Returns the reservation that contains the address, with its lock held; NULL if there is none. */
Reservation *reservation_lock(uintptr_t address);
/* Returns the first entry of the list of all reservations ever made, which is linked by `all`. */
Reservation *reservations_first(void);
Mapping **slot_of(const Reservation *reservation, uintptr_t address);
/* Returns the mapping that begins at `base`; NULL if there is none, or if it is BUSY. The
 * reservation's lock is held. */
Mapping *mapping_at(const Reservation *reservation, uintptr_t base);
/* Sets the protection of a mapping's pages from its access flags; false if the kernel refuses it. */
bool mapping_protect(const Mapping *mapping, ptrdiff_t alias);
int protection_of(aclrtMemAccessFlags access);
/* Maps the mapping's memory at its address. On failure frees the mapping, with its reference to the memory. */
aclError map_into(const char *function, Mapping *mapping);
/* Sets the message for a system call on mappings that has just failed (errno), and returns the code. */
aclError kernel_refused(const char *function, const char *what, uintptr_t base);

#endif
