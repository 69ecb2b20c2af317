/* The C functions that a framework is given, and what they stand on.

   A framework's pluggable allocator wants two exported symbols in a shared library.  That library
   is the extension module `acl.adapters.pluggable._door` itself, so that the symbols and the pools are in one place:
   entry.c has the symbols, `_door.pyx` the functions behind them, addresses.c finds a block by its
   address.

   Any thread may call anything here.  No GIL, no Python object.  Sizes are the framework's own:
   exact bytes, 0 among them. */
#ifndef ACL_DOOR_DOOR_H
#define ACL_DOOR_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/lock.h"
#include "adapters/pluggable/stats.h"

enum { DOOR_SEATS = 16, DOOR_DEVICES = 64, DOOR_STRIPES = 16, DOOR_TEXT = 512 };

/* What `_door.pyx` puts behind the exported symbols; NULL until Python has loaded it. */
typedef struct DoorCalls {
    void *(*alloc)(uint32_t seat, size_t size, int device, void *stream);
    void (*free)(void *address);
    bool (*share)(void *address, void *stream);
    bool (*stats)(uint32_t seat, int device, DoorStats *stats);
    void (*reset)(uint32_t seat, int device, bool peaks);
    void (*empty)(uint32_t seat);
    void (*fraction)(uint32_t seat, int device, double fraction);
    void *(*base)(void *address, size_t *size);
    /* False: it is not for want of memory. */
    bool (*why)(uint32_t seat, int device, size_t size, char *text, size_t room);
} DoorCalls;
extern DoorCalls door_calls;

/* Why the last allocation of this thread at a seat above 0 gave NULL, in DOOR_TEXT bytes, and
   forgets it; the seat, or 0 if it gave memory. */
uint32_t door_failure(char *text);

/* Throws a C++ exception with a message, where a NULL would be taken for memory. */
typedef void (*DoorThrow)(const char *message);
extern DoorThrow door_throw_memory;  /* no memory, at seat 0 */
extern DoorThrow door_throw_refusal; /* what this door does not do */

/* A live block by its address. */
typedef struct Address {
    void *address; /* NULL: an empty place */
    void *front;   /* the seat's part for one device */
    void *arena;
    void *block;
    size_t size;  /* as asked for */
    size_t bytes; /* of the block */
} Address;

bool address_put(const Address *entry);           /* false without host memory */
bool address_take(void *address, Address *entry); /* and forgets it; false if it is not there */
bool address_find(void *address, Address *entry);

/* One block more or less in the counters; under the front's lock. */
void stats_add(DoorStats *stats, size_t size, size_t bytes);
void stats_drop(DoorStats *stats, size_t size, size_t bytes);
void stats_reset(DoorStats *stats, bool peaks);
/* The pages, given as `pages[0]`, by kinds and in bytes.  A page serves blocks of both kinds: small
   ones are counted with as many as they fill, the rest is the large ones'. */
void stats_pages(DoorStats *stats, int64_t granule);

#endif
