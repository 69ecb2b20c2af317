/* The C functions that a framework calls, and the table of live blocks that they use.

   A framework's pluggable allocator needs two exported symbols of a shared library.  That library is the
   extension module `acl.adapters.pluggable._door`: entry.c has the symbols, `_door.pyx` the functions that
   they call, and addresses.c finds a block by its address.

   Any thread may call any function.  They need no GIL and use no Python object.  Sizes are as the framework gives
   them: exact bytes, perhaps 0. */
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
    /* Returns false if the reason was not a lack of memory. */
    bool (*why)(uint32_t seat, int device, size_t size, char *text, size_t room);
} DoorCalls;
extern DoorCalls door_calls;

/* Writes why this thread's last allocation at a seat above 0 returned NULL (DOOR_TEXT bytes), and forgets it.
   Returns the seat, or 0 if the allocation succeeded. */
uint32_t door_failure(char *text);

/* Throws a C++ exception with a message, for frameworks that do not check for NULL. */
typedef void (*DoorThrow)(const char *message);
extern DoorThrow door_throw_memory;  /* no memory, at seat 0 */
extern DoorThrow door_throw_refusal; /* the call is not supported */

/* An entry of the table of live blocks. */
typedef struct Address {
    void *address; /* NULL: an empty place */
    void *front;   /* the Front that allocated it */
    void *arena;
    void *block;
    size_t size;  /* requested bytes */
    size_t bytes; /* bytes of the block */
} Address;

bool address_put(const Address *entry);           /* adds it; false if there is no host memory */
bool address_take(void *address, Address *entry); /* removes it; false if it is not in the table */
bool address_find(void *address, Address *entry);

/* Counts one block more, or one less. The caller holds the front's lock. */
void stats_add(DoorStats *stats, size_t size, size_t bytes);
void stats_drop(DoorStats *stats, size_t size, size_t bytes);
void stats_reset(DoorStats *stats, bool peaks);
/* Converts the number of pages, given as `pages[0]`, to bytes for each kind of block.  A page may have blocks of both
   kinds. The pages that the small blocks would fill count as theirs, the rest as those of the large blocks. */
void stats_pages(DoorStats *stats, int64_t granule);

#endif
