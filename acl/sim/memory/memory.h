/* Memory, as the simulator's own files see it: arenas, what an address belongs to, and the checks
 * of copies.
 *
 * Each device has one arena: a file in memory (memfd) mapped once, in three zones by page size.
 * In strict mode the addresses that users get are inaccessible and the simulator works through a
 * second mapping of the same file, `alias` bytes away.
 * Pinned host memory has an arena of its own, always accessible.
 *
 * Thread rule: everything here may be called from any thread. */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include "memory/accounting.h"
#include "base/core.h"
#include "base/refusal.h"
#include "memory/address_table.h"
#include "memory/tlsf.h"

typedef enum MemoryKind {
    MEMORY_UNKNOWN,    /* not the simulator's: ordinary host memory, as far as it knows */
    MEMORY_DEVICE,     /* from the malloc family */
    MEMORY_POOL,       /* from aclrtMemPoolMallocAsync */
    MEMORY_HOST,       /* pinned */
    MEMORY_MANAGED,    /* reachable from both sides */
    MEMORY_REGISTERED, /* the host's, registered */
    MEMORY_MAPPED,     /* physical device memory mapped into a reservation */
    MEMORY_MAPPED_HOST,
    MEMORY_IMPORTED,   /* another process's device memory */
    MEMORY_HOLE        /* the simulator's address, but nothing is there (freed, or not mapped) */
} MemoryKind;

/* What an address belongs to. */
typedef struct Memory {
    MemoryKind kind;
    int32_t device;   /* -1: none */
    uintptr_t base;
    size_t bytes;     /* that may be touched */
    size_t size;      /* that were asked for */
    PageKind page;
    void *owner;
    bool readable, writable;
} Memory;

/* True if the kind counts as a device's memory for copies and attributes. */
static inline bool memory_on_device(MemoryKind kind)
{
    return kind == MEMORY_DEVICE || kind == MEMORY_POOL || kind == MEMORY_MAPPED ||
           kind == MEMORY_IMPORTED;
}
/* True if the simulator may use it after an asynchronous call returned. */
static inline bool memory_is_pinned(MemoryKind kind)
{
    return kind == MEMORY_HOST || kind == MEMORY_MANAGED || kind == MEMORY_REGISTERED ||
           kind == MEMORY_MAPPED_HOST;
}

typedef enum ZoneIndex { ZONE_SMALL, ZONE_PAGE, ZONE_HUGE, ZONE_COUNT } ZoneIndex;

typedef struct ArenaPart {
    struct Arena *arena;
    size_t begin; /* of the zone in the arena */
} ArenaPart;

typedef struct Arena {
    uintptr_t base;
    size_t bytes;
    ptrdiff_t alias; /* what leads from a user's address to the simulator's own */
    int fd;          /* -1: anonymous (the host's) */
    int32_t device;  /* BOOK_HOST: the host's */
    ArenaPart parts[ZONE_COUNT];
    Zone zones[ZONE_COUNT];
} Arena;

/* A device's arena, made when first asked for; NULL if the host refuses it (refusal_tell). */
Arena *arena_of(int32_t device);
/* The device's arena; NULL if it was never made. */
Arena *arena_existing(int32_t device);
/* `bytes` in pages of that kind, charged to the books; 0 if the device is full. */
uintptr_t arena_take(Arena *arena, size_t bytes, PageKind page, BookKind book,
                     const BlockInfo *info);
/* Gives back the live block that begins there; false if none does (or another thread was first). */
bool arena_give(Arena *arena, uintptr_t address, BookKind book);
/* The block that begins there, no longer live but not given out again before arena_give_held. */
bool arena_hold(Arena *arena, uintptr_t address, ZoneView *view);
void arena_unhold(Arena *arena, uintptr_t address);
void arena_give_held(Arena *arena, uintptr_t address, const ZoneView *view, BookKind book);
/* For the checker: its record of a live or held block; what stands behind one; a held block's memory
 * back to the system, and the block itself, which is charged no more, to its zone. */
void *arena_record(Arena *arena, uintptr_t address);
void arena_set_record(Arena *arena, uintptr_t address, void *record);
size_t arena_guard(Arena *arena, uintptr_t address);
void arena_discard(Arena *arena, uintptr_t address, size_t bytes);
void arena_release(Arena *arena, uintptr_t address);
/* Two blocks of the live one that begins there; `bytes` are whole units and less than it has. */
void arena_split(Arena *arena, uintptr_t address, size_t bytes, const BlockInfo *front,
                 const BlockInfo *rest);
bool arena_mark_exported(Arena *arena, uintptr_t address);
bool arena_find(Arena *arena, uintptr_t address, ZoneView *view);
static inline bool arena_has(const Arena *arena, uintptr_t address)
{
    return address - arena->base < arena->bytes;
}
/* The arena that the address is in, or NULL. */
Arena *arena_at(uintptr_t address);
/* True if users' addresses of device memory are inaccessible. */
bool memory_strict(void);
/* Follows config.strict; for a moment when no device is in use.  Reservations made before strict
 * mode remain accessible. */
void memory_config_changed(void);

/* What the address belongs to; false if the simulator does not know it. */
bool memory_find(const void *address, Memory *memory);
/* What a check found. */
typedef struct Seen {
    MemoryKind kind; /* what the first byte belongs to */
    void *inner;     /* the simulator's own pointer to the bytes */
} Seen;

/* 107000, with a message that names the argument, unless `bytes` at the address may be touched:
 * inside one allocation, or in mapped pages throughout, or in host memory that does not fault.
 * `seen` may be NULL. */
aclError memory_check(const char *function, const char *argument, const void *address,
                      size_t bytes, bool write, Seen *seen);
/* What tasks ask when they run: whether touching the bytes would fault.  Memory of an arena never
 * does, even if it was freed since (a program that frees what is in flight is served as on a device
 * whose pages were not reused yet); unmapped pages do. */
bool memory_reachable(const void *address, size_t bytes, bool write);

/* What every task does with an address: the simulator's own pointer to the bytes, or the failure of its
 * stream, which is not the process's, if touching them would fault. */
aclError memory_for_task(const Stream *stream, const char *what, const void *address, size_t bytes,
                         bool write, void **inner);

/* A task's run function returns this if its memory was unmapped. */
aclError copy_fault(Stream *stream, const char *what, const void *address, size_t bytes);

/* How many of the bytes the host can touch before the first page that would fault; hostprobe.c. */
size_t host_reach(const void *address, size_t bytes, bool write);

/* Frees what the malloc families and the pools gave; 107000 for anything else. */
aclError memory_free(const char *function, void *address);

/* Around a kernel's run: in strict mode the device's memory is accessible in between. */
void memory_window_open(int32_t device); /* windows nest; each device has its own */
void memory_window_close(int32_t device);

/* vmm.c: the part of the above that is about reservations. */
bool reservation_find(const Range *range, uintptr_t address, Memory *memory);
bool reservation_covers(const Range *range, uintptr_t begin, uintptr_t end, bool write);
void reservations_protect(int32_t device, bool open);

#endif
