/* Memory: the interface for the simulator's own files. It has arenas, the search for what an
 * address belongs to, and checks that memory can be accessed.
 *
 * Each device has one arena: a file in memory (memfd) mapped once, in three zones by page size.
 * In strict mode the addresses that users get are inaccessible, and the simulator accesses the
 * memory through a second mapping of the same file, `alias` bytes away.
 * Pinned host memory has an arena of its own, which is always accessible.
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
    MEMORY_UNKNOWN,    /* not allocated by the simulator: treated as ordinary host memory */
    MEMORY_DEVICE,     /* allocated by the malloc family */
    MEMORY_POOL,       /* allocated by aclrtMemPoolMallocAsync */
    MEMORY_HOST,       /* pinned host memory that the simulator allocated */
    MEMORY_MANAGED,    /* accessible to host and devices */
    MEMORY_REGISTERED, /* ordinary host memory that the user has registered */
    MEMORY_MAPPED,     /* physical device memory mapped into a reservation */
    MEMORY_MAPPED_HOST, /* physical host memory mapped into a reservation */
    MEMORY_IMPORTED,   /* device memory of another process */
    MEMORY_HOLE        /* an address of the simulator without memory (freed, or not mapped) */
} MemoryKind;

/* The memory to which an address belongs (memory_find). */
typedef struct Memory {
    MemoryKind kind;
    int32_t device;   /* the device whose memory it is; -1: none */
    uintptr_t base;
    size_t bytes;     /* bytes from `base` on that can be accessed */
    size_t size;      /* bytes of the allocation, with the padding that the call adds */
    PageKind page;
    void *owner;
    bool readable, writable;
} Memory;

/* True if copies and queries treat memory of that kind as device memory. */
static inline bool memory_on_device(MemoryKind kind)
{
    return kind == MEMORY_DEVICE || kind == MEMORY_POOL || kind == MEMORY_MAPPED ||
           kind == MEMORY_IMPORTED;
}
/* True if the simulator may use memory of that kind after an asynchronous call has returned. */
static inline bool memory_is_pinned(MemoryKind kind)
{
    return kind == MEMORY_HOST || kind == MEMORY_MANAGED || kind == MEMORY_REGISTERED ||
           kind == MEMORY_MAPPED_HOST;
}

typedef enum ZoneIndex { ZONE_SMALL, ZONE_PAGE, ZONE_HUGE, ZONE_COUNT } ZoneIndex;

typedef struct ArenaPart {
    struct Arena *arena;
    size_t begin; /* where the zone begins in the arena */
} ArenaPart;

typedef struct Arena {
    uintptr_t base;
    size_t bytes;
    ptrdiff_t alias; /* user's address + alias = the simulator's own address */
    int fd;          /* -1: anonymous memory (the host's arena) */
    int32_t device;  /* BOOK_HOST: the host's arena */
    ArenaPart parts[ZONE_COUNT];
    Zone zones[ZONE_COUNT];
} Arena;

/* Returns a device's arena, made at the first call; NULL if the host refuses the memory
 * (refusal_tell). */
Arena *arena_of(int32_t device);
/* Returns the device's arena; NULL if it was not made yet. */
Arena *arena_existing(int32_t device);
/* Allocates `bytes` in pages of that kind and adds them to the accounting. Returns the address; 0 if
 * the device has not enough memory, or the arena not enough addresses. */
uintptr_t arena_take(Arena *arena, size_t bytes, PageKind page, BookKind book,
                     const BlockInfo *info);
/* Frees the live block that begins at the address; false if there is none, for example because
 * another thread has freed it. */
bool arena_give(Arena *arena, uintptr_t address, BookKind book);
/* Holds the live block that begins at the address: no other call can free it, and its addresses are
 * not used again before arena_give_held. False if there is no such block. arena_unhold makes it live
 * again. */
bool arena_hold(Arena *arena, uintptr_t address, ZoneView *view);
void arena_unhold(Arena *arena, uintptr_t address);
void arena_give_held(Arena *arena, uintptr_t address, const ZoneView *view, BookKind book);
/* For the checker. arena_record returns the checker's record of a live or held block. arena_guard returns the
 * number of guard bytes behind a block. arena_discard returns the memory of a held block to the
 * system. arena_release frees a held block whose bytes were subtracted from the accounting before. */
void *arena_record(Arena *arena, uintptr_t address);
void arena_set_record(Arena *arena, uintptr_t address, void *record);
size_t arena_guard(Arena *arena, uintptr_t address);
void arena_discard(Arena *arena, uintptr_t address, size_t bytes);
void arena_release(Arena *arena, uintptr_t address);
/* Splits the live block that begins at the address in two. The first one has `bytes` bytes: whole units, and fewer than
 * the block has. */
void arena_split(Arena *arena, uintptr_t address, size_t bytes, const BlockInfo *front,
                 const BlockInfo *rest);
bool arena_mark_exported(Arena *arena, uintptr_t address);
bool arena_find(Arena *arena, uintptr_t address, ZoneView *view);
static inline bool arena_has(const Arena *arena, uintptr_t address)
{
    return address - arena->base < arena->bytes;
}
/* Returns the arena that contains the address, or NULL. */
Arena *arena_at(uintptr_t address);
/* True if users' addresses of device memory are inaccessible. */
bool memory_strict(void);
/* Switches strict mode to config.strict; called only while no device is in use. Reservations made
 * before strict mode was switched on remain accessible. */
void memory_config_changed(void);

/* Describes what the address belongs to; false if the simulator does not know it. */
bool memory_find(const void *address, Memory *memory);
/* The result of memory_check. */
typedef struct Seen {
    MemoryKind kind; /* kind of the memory to which the first byte belongs */
    void *inner;     /* the simulator's own pointer to the bytes */
} Seen;

/* Returns 107000, with a message that names the argument, unless `bytes` bytes from the address on
 * can be accessed: they must lie in one allocation, or in mapped pages, or in host memory that does
 * not fault. `seen` may be NULL. */
aclError memory_check(const char *function, const char *argument, const void *address,
                      size_t bytes, bool write, Seen *seen);
/* Writes bytes of the host to memory that memory_check has checked; `inner` is Seen.inner. */
void memory_put(const void *address, void *inner, const void *from, size_t bytes);
/* For tasks that run: true if an access to the bytes does not fault. Memory of an arena never faults,
 * even if it was freed after the task was queued: as on a device, the task then accesses whatever the
 * pages contain. An access to unmapped pages of a reservation faults. */
bool memory_reachable(const void *address, size_t bytes, bool write);

/* For tasks that run: gives the address at which the simulator reaches the bytes. If an access to
 * them would fault, returns an error, with which the task's stream fails instead of the process. */
aclError memory_for_task(const Stream *stream, const char *what, const void *address, size_t bytes,
                         bool write, void **inner);

/* Makes the message for a task whose memory was unmapped. Returns the status that the task's run function returns. */
aclError copy_fault(Stream *stream, const char *what, const void *address, size_t bytes);

/* Returns how many of the bytes the host can touch before the first page that would fault
 * (hostprobe.c). */
size_t host_reach(const void *address, size_t bytes, bool write);

/* Frees memory of the malloc families and of pools; 107000 for any other address. */
aclError memory_free(const char *function, void *address);

/* Called before a kernel runs: in strict mode, makes the users' addresses of the device's memory
 * accessible until memory_window_close. Each device counts its open windows; the last one to be closed
 * makes the memory inaccessible again. */
void memory_window_open(int32_t device);
void memory_window_close(int32_t device);

/* vmm_access.c: queries and protection of reservations, for address_lookup.c. */
bool reservation_find(const Range *range, uintptr_t address, Memory *memory);
bool reservation_covers(const Range *range, uintptr_t begin, uintptr_t end, bool write);
void reservations_protect(int32_t device, bool open);

#endif
