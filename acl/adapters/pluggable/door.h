/* The C functions that a framework calls, and the table of live blocks that they use.

   A framework's pluggable allocator needs two exported symbols of a shared library.  That library is the
   extension module `acl.adapters.pluggable._door`: entry.c has the symbols, `_door.pyx` the functions that
   they call, and addresses.c finds a block by its address.

   Any thread may call any function, without the GIL; the functions use no Python object.  Sizes are the exact bytes
   that the framework requests, and may be 0. */
#ifndef ACL_DOOR_DOOR_H
#define ACL_DOOR_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/lock.h"
#include "adapters/pluggable/stats.h"

enum { DOOR_SEATS = 16, DOOR_DEVICES = 64, DOOR_STRIPES = 16, DOOR_TEXT = 512 };

/* The functions that the exported symbols call. NULL until Python has loaded `_door.pyx`, which sets them. */
typedef struct DoorCalls {
    void *(*alloc)(uint32_t seat, size_t size, int device, void *stream);
    void (*free)(void *address);
    bool (*share)(void *address, void *stream);
    bool (*stats)(uint32_t seat, int device, DoorStats *stats);
    void (*reset)(uint32_t seat, int device, bool peaks);
    void (*empty)(uint32_t seat);
    void (*fraction)(uint32_t seat, int device, double fraction);
    void *(*base)(void *address, size_t *size);
    /* Writes why an allocation failed; returns false if the process is a forked child or the pool is closed. */
    bool (*why)(uint32_t seat, int device, size_t size, char *text, size_t room);
} DoorCalls;
extern DoorCalls door_calls;

/* If an allocation of this thread at a seat above 0 failed, and none of its later allocations succeeded: returns the
   number of that seat, and writes the reason to `text`, which has room for DOOR_TEXT bytes.  Else returns 0.  Each
   failure is returned only once. */
uint32_t door_failure(char *text);

/* Throws a C++ exception with a message, for frameworks that do not check for NULL. */
typedef void (*DoorThrow)(const char *message);
extern DoorThrow door_throw_memory;  /* called if seat 0 has no memory; NULL: return NULL instead */
extern DoorThrow door_throw_refusal; /* called if seat 0 fails for another reason, or a call is not supported */

/* An entry of the table of live blocks. */
typedef struct Address {
    void *address; /* NULL: an empty place */
    void *front;   /* the Front that allocated it */
    void *arena;
    void *block;
    size_t size;  /* requested bytes */
    size_t bytes; /* bytes of the block */
} Address;

bool address_put(const Address *entry);           /* adds an entry; false if there is no host memory */
bool address_take(void *address, Address *entry); /* removes and copies an entry; false if there is none */
bool address_find(void *address, Address *entry);

/* Count an allocated block and a freed block.  The caller holds the front's lock. */
void stats_add(DoorStats *stats, size_t size, size_t bytes);
void stats_drop(DoorStats *stats, size_t size, size_t bytes);
void stats_reset(DoorStats *stats, bool peaks);
/* Sets `pages[1]`, `pages[2]` and `reserved` from `pages[0]`, the pages of the pool; `granule` is the bytes of a page.
   One page may have small and large blocks.  So as many pages as the small blocks would fill count for small blocks,
   and the other pages count for large blocks. */
void stats_pages(DoorStats *stats, int64_t granule);

#endif
