/* A zone: address space allocated in blocks of whole units. The bookkeeping is outside the memory of
 * the blocks, so that a program that writes past its block cannot damage the bookkeeping.
 *
 * A zone has an array with one entry for each unit, of which only the first and the last entry of
 * a block are used (boundary tags); bins of free blocks by size; and a bitmap of the units where
 * a block begins, with which the block that contains an address is found. The time of each operation
 * does not depend on the number of blocks.
 *
 * Z1  contiguity  the blocks tile the zone: first + units of a block == first of the next block
 * Z2  coalesced   two adjacent blocks are never both FREE
 * Z3  binned      a block is in exactly one bin  <=>  it is FREE
 * Z4  starts      a unit's bit is set  <=>  a block begins there
 *
 * Thread rule: each zone has a mutex, not held during system calls. */
#ifndef SIM_TLSF_H
#define SIM_TLSF_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ZONE_LEVELS = 6,      /* most levels of the bitmap: enough for 64^6 units, more than a zone can have */
    ZONE_CLASSES = 32,    /* number of classes of bins: one for each power of two of a block's units */
    ZONE_SUBCLASSES = 16, /* number of bins in each class */
    ZONE_STALE_MAX = 32,  /* most freed ranges that are listed until they are returned to the system */
};
#define ZONE_NONE UINT32_MAX

typedef enum BlockState { BLOCK_NONE, BLOCK_FREE, BLOCK_LIVE, BLOCK_HELD } BlockState;

/* Data about a block that the caller gives to zone_take; the zone stores it but does not use it. */
typedef struct BlockInfo {
    size_t size;     /* bytes of the allocation, with the padding that the call adds */
    void *owner;     /* the PoolBlock of a pool's block, the Managed of managed memory, or NULL */
    void *record;    /* the checker's record, or NULL */
    uint8_t kind;    /* the MemoryKind of the block */
    uint8_t page;    /* the PageKind under which the accounting counts the block */
    uint16_t module; /* the module of the program that allocated it (ACL_RT_MEM_ATTR_MODULE_ID) */
    bool exported;   /* exported by IPC: a free of the block must end its keys */
    bool guarded;    /* for the checker: the last unit of the block is for guard bytes */
} BlockInfo;

typedef struct ZoneBlock {
    BlockInfo info;
    uint32_t units;    /* length in units; valid in the block's first entry */
    uint32_t back;     /* length in units; valid in the block's last entry */
    uint32_t bin_next; /* next and previous block in the bin; valid in the first entry of a FREE block (Z3) */
    uint32_t bin_prev;
    uint32_t state;    /* BlockState; valid in the first entry */
    uint32_t unused;
} ZoneBlock;

typedef struct ZoneRange {
    uint32_t first, units;
} ZoneRange;

/* A function that gives the memory of `bytes` bytes at `offset` in the zone back to the system. */
typedef void (*ZonePurge)(void *argument, size_t offset, size_t bytes);

typedef struct Zone {
    pthread_mutex_t lock;
    size_t unit;     /* bytes of a unit */
    uint32_t units;  /* number of units in the zone */
    uint32_t levels; /* number of levels of the bitmap `starts` that are used */
    ZoneBlock *blocks; /* one entry for each unit */
    uint64_t *starts[ZONE_LEVELS];
    uint32_t class_map;
    uint32_t subclass_map[ZONE_CLASSES];
    uint32_t bins[ZONE_CLASSES][ZONE_SUBCLASSES];
    ZonePurge purge;
    void *purge_argument;
    ZoneRange stale[ZONE_STALE_MAX]; /* freed ranges whose memory was not returned to the system yet */
    uint32_t stale_count;
    size_t stale_bytes;
} Zone;

/* A copy of a block's data: its offset in the zone and its length, in bytes, and its BlockInfo. */
typedef struct ZoneView {
    size_t offset, bytes;
    BlockInfo info;
} ZoneView;

/* Initialises a zone of `bytes` bytes in units of `unit` bytes; false without memory for the bookkeeping. */
bool zone_open(Zone *zone, size_t bytes, size_t unit, ZonePurge purge, void *argument);
/* Frees the bookkeeping; allowed also if zone_open was not called or failed. */
void zone_close(Zone *zone);
/* Allocates a block and returns its offset; SIZE_MAX if no free block is long enough. */
size_t zone_take(Zone *zone, size_t bytes, const BlockInfo *info);
/* Describes the live block that covers `offset`; false if there is none. */
bool zone_find(Zone *zone, size_t offset, ZoneView *view);
/* If a live block begins at `offset`, makes it a held block: no other thread can free it, and its
 * addresses are not used again before zone_give. False if no live block begins there. */
bool zone_hold(Zone *zone, size_t offset, ZoneView *view);
/* Marks the live block that begins at `offset` as exported; false if there is none. */
bool zone_mark_exported(Zone *zone, size_t offset);
/* Splits the live block that begins at `offset` in two: the first has `bytes` bytes and the data *front, the second the
 * remaining bytes and the data *rest. */
void zone_split(Zone *zone, size_t offset, size_t bytes, const BlockInfo *front,
                const BlockInfo *rest);
/* zone_record returns the checker's record of the live or held block that covers `offset`, or
 * NULL; zone_set_record sets it. */
void *zone_record(Zone *zone, size_t offset);
void zone_set_record(Zone *zone, size_t offset, void *record);
/* Makes a held block live again. */
void zone_unhold(Zone *zone, size_t offset);
/* Frees a held block. */
void zone_give(Zone *zone, size_t offset);
/* Gives the memory of all stale ranges back to the system. */
void zone_purge(Zone *zone);
/* For tests: returns the number n of the first invariant Zn that does not hold; 0 if all hold. */
int zone_check(Zone *zone);

#endif
