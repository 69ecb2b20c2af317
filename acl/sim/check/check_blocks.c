/* check_blocks.c: blocks of the malloc families: which calls made and freed them, the guard bytes behind them, and
 * the quarantine, which keeps freed blocks unused, so that a stale pointer does not point into a new block.
 *
 * The zone's entry of a block points to its record.  A block is the bytes that the call asked for.  The bytes
 * behind it, to the end of its last unit and one unit more, but at most GUARD_MOST, are filled with GUARD.
 *
 * Thread rule: blocks_lock guards the records and the quarantine; a zone's lock is taken after it. */
#include "check/checker.h"
#include "memory/memory.h"
#include "races/race_inside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GUARD_MOST = 4096, KEPT_MOST = 4096, GUARD = 0xfa, FRESH = 0xa5 };
static const size_t FILL_MOST = (size_t)16 << 20; /* longer blocks are not filled with FRESH */
static const size_t KEPT_BYTES = (size_t)16 << 30; /* most bytes of addresses in quarantine; they hold no memory */

FILE_LOCK(blocks_lock);
static CheckBlock *live;            /* list of all live blocks */
static CheckBlock *oldest, *newest; /* the quarantine: a queue, linked by `next` */
static size_t kept_count, kept_bytes;

/* ---- records (the lock is held) ------------------------------------------------------------------ */

static CheckBlock *record_at(uintptr_t address)
{
    Arena *arena = arena_at(address);
    return arena == NULL ? NULL : arena_record(arena, address);
}

static void live_add(CheckBlock *block)
{
    block->previous = NULL;
    block->next = live;
    if (live != NULL) {
        live->previous = block;
    }
    live = block;
}

static void live_remove(CheckBlock *block)
{
    *(block->previous != NULL ? &block->previous->next : &live) = block->next;
    if (block->next != NULL) {
        block->next->previous = block->previous;
    }
    block->next = block->previous = NULL;
}

bool check_block_find(uintptr_t address, CheckBlock *block)
{
    pthread_mutex_lock(&blocks_lock);
    const CheckBlock *found = record_at(address);
    if (found != NULL) {
        *block = *found;
    }
    pthread_mutex_unlock(&blocks_lock);
    return found != NULL;
}

/* ---- words --------------------------------------------------------------------------------------- */

static const char *sort_name(const CheckBlock *block)
{
    return block->device == BOOK_HOST ? "pinned memory" : "device memory";
}

static void place_made(CheckReport *report, const CheckBlock *block)
{
    if (block->device == BOOK_HOST) {
        check_place(report, block->made, "allocated by %s: %zu bytes of pinned memory at %p",
                    block->made_by, block->size, (void *)block->base);
    } else {
        check_place(report, block->made, "allocated by %s: %zu bytes of device %d at %p",
                    block->made_by, block->size, block->device, (void *)block->base);
    }
}

static void place_freed(CheckReport *report, const CheckBlock *block)
{
    if (block->freed_by != NULL) {
        check_place(report, block->freed, "freed by %s", block->freed_by);
    }
}

/* Adds the places of the access, of the block's free and of its allocation to the report, and writes the report. */
static void block_tell(CheckReport *report, const char *who, uintptr_t address, size_t bytes,
                       const CheckBlock *block)
{
    report->address = address;
    report->bytes = bytes;
    check_place(report, site_here(), "%s", who);
    if (block != NULL) {
        place_freed(report, block);
        place_made(report, block);
    }
    check_tell(report);
}

/* ---- made ---------------------------------------------------------------------------------------- */

static unsigned char *inner_of(uintptr_t address, size_t bytes)
{
    return memory_at((const void *)address, bytes, false); /* the checker's own bytes do not count as written */
}

/* Functions of AddressSanitizer; NULL if the program is not built with it. The first returns the first poisoned byte of a
 * region, or NULL. */
extern void *__asan_region_is_poisoned(void *begin, size_t size) __attribute__((weak));
extern void __asan_poison_memory_region(const volatile void *begin, size_t size) __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *begin, size_t size) __attribute__((weak));

/* Tells AddressSanitizer, if it is loaded, whether the program may use bytes of pinned memory: it then reports the
 * program's own access behind a block at once. Device memory is inaccessible anyway. */
static void guard_show(const Arena *arena, uintptr_t begin, size_t bytes, bool usable)
{
    if (arena->device == BOOK_HOST && __asan_poison_memory_region != NULL && __asan_unpoison_memory_region != NULL) {
        (usable ? __asan_unpoison_memory_region : __asan_poison_memory_region)((void *)begin, bytes);
    }
}

void check_block_made(Arena *arena, uintptr_t address, size_t size)
{
    ZoneView view;
    size_t room = arena_find(arena, address, &view) ? view.bytes + arena_guard(arena, address) : size;
    bool users = check_call_allocates();
    size = users ? size : room;
    CheckBlock *block = calloc(1, sizeof *block);
    unsigned char *inner = inner_of(address, room);
    guard_show(arena, address, room, true);
    if (inner != NULL) {
        size_t guard = room - size < GUARD_MOST ? room - size : GUARD_MOST;
        memset(inner, FRESH, size < FILL_MOST ? size : 0);
        memset(inner + size, GUARD, guard);
    }
    if (check_on(CHECK_INIT) && arena->device != BOOK_HOST) {
        shadow_mark(address, address + size, !users);
    }
    if (block == NULL) {
        return;
    }
    guard_show(arena, address + size, room - size, false);
    *block = (CheckBlock){.base = address, .size = size, .device = arena->device,
                          .made_by = check_call(), .made = site_here(), .users = users};
    pthread_mutex_lock(&blocks_lock);
    arena_set_record(arena, address, block);
    live_add(block);
    pthread_mutex_unlock(&blocks_lock);
}

/* ---- freed --------------------------------------------------------------------------------------- */

/* Returns the number of bytes from the block's end to the last changed guard byte; 0 if none has changed. */
static size_t guard_damage(const CheckBlock *block, size_t room)
{
    size_t guard = room - block->size < GUARD_MOST ? room - block->size : GUARD_MOST, damage = 0;
    const unsigned char *inner = inner_of(block->base, room);
    if (inner == NULL || guard == 0) {
        return 0;
    }
    inner += block->size;
    if (inner[0] == GUARD && memcmp(inner, inner + 1, guard - 1) == 0) { /* all are equal */
        return 0;
    }
    for (size_t i = 0; i < guard; i++) {
        damage = inner[i] != GUARD ? i + 1 : damage;
    }
    return damage;
}

void check_block_freed(Arena *arena, uintptr_t address, const ZoneView *view)
{
    CheckBlock block;
    if (!check_block_find(address, &block) || block.base != address) {
        return;
    }
    size_t room = view->bytes + arena_guard(arena, address);
    guard_show(arena, address, room, true);
    size_t damage = guard_damage(&block, room);
    if (check_on(CHECK_INIT) && arena->device != BOOK_HOST) {
        shadow_mark(address, address + block.size, true); /* so that the shadow needs no memory for it */
    }
    if (damage != 0) {
        CheckReport report = check_begin(
            CHECK_MEM, "overflow", "the %zu bytes behind a block of %zu bytes of %s were written "
            "before it was freed", damage, block.size, sort_name(&block));
        block_tell(&report, check_call(), address + block.size, damage, &block);
    }
    const RaceSite *site = site_here();
    pthread_mutex_lock(&blocks_lock);
    CheckBlock *record = record_at(address);
    if (record != NULL && record->freed_by == NULL) {
        record->freed_by = check_call();
        record->freed = site;
        live_remove(record);
    }
    pthread_mutex_unlock(&blocks_lock);
}

/* ---- quarantine ---------------------------------------------------------------------------------- */

/* Removes the oldest block from the quarantine and returns it; blocks_lock is held. */
static CheckBlock *kept_pop(void)
{
    CheckBlock *block = oldest;
    oldest = block->next;
    newest = oldest == NULL ? NULL : newest;
    kept_count--;
    kept_bytes -= block->held;
    arena_set_record(arena_at(block->base), block->base, NULL);
    return block;
}

static void kept_give(CheckBlock *block)
{
    Arena *arena = arena_at(block->base);
    if (arena->device == BOOK_HOST) {
        mprotect((void *)block->base, block->held, PROT_READ | PROT_WRITE);
    }
    arena_release(arena, block->base);
    free(block);
}

bool check_block_keep(Arena *arena, uintptr_t address, const ZoneView *view)
{
    pthread_mutex_lock(&blocks_lock);
    CheckBlock *block = arena_record(arena, address);
    if (block == NULL || block->freed_by == NULL) {
        pthread_mutex_unlock(&blocks_lock);
        return false;
    }
    block->held = view->bytes;
    *(newest != NULL ? &newest->next : &oldest) = block;
    newest = block;
    kept_count++;
    kept_bytes += block->held;
    pthread_mutex_unlock(&blocks_lock);
    arena_discard(arena, address, view->bytes);
    if (arena->device == BOOK_HOST) {
        mprotect((void *)address, view->bytes, PROT_NONE);
    }
    for (CheckBlock *gone = block; gone != NULL;) {
        pthread_mutex_lock(&blocks_lock);
        gone = kept_count > KEPT_MOST || kept_bytes > KEPT_BYTES ? kept_pop() : NULL;
        pthread_mutex_unlock(&blocks_lock);
        if (gone != NULL) {
            kept_give(gone);
        }
    }
    return true;
}

bool check_quarantine_empty(void)
{
    bool any = false;
    for (CheckBlock *gone = NULL;; kept_give(gone), any = true) {
        pthread_mutex_lock(&blocks_lock);
        gone = oldest != NULL ? kept_pop() : NULL;
        pthread_mutex_unlock(&blocks_lock);
        if (gone == NULL) {
            return any;
        }
    }
}

/* ---- frees that are wrong ------------------------------------------------------------------------ */

/* Finds out why a free was refused, from the record of the block at the address, and reports it. */
void check_free_refused(const void *address)
{
    const char *call = check_call();
    uintptr_t at = (uintptr_t)address;
    CheckBlock block;
    if (!check_block_find(at, &block)) {
        CheckReport report = check_begin(CHECK_MEM, "wrong-free", "%s(%p): no call allocated memory "
                                         "that begins there", call, address);
        block_tell(&report, call, at, 0, NULL);
        return;
    }
    CheckReport report =
        block.freed_by != NULL && at == block.base
            ? check_begin(CHECK_MEM, "double-free", "%s(%p): the block was freed before", call, address)
        : at == block.base
            ? check_begin(CHECK_MEM, "wrong-free", "%s(%p): that is %s, which %s frees", call, address,
                          sort_name(&block), block.device == BOOK_HOST ? "aclrtFreeHost" : "aclrtFree")
            : check_begin(CHECK_MEM, "wrong-free", "%s(%p): that is %zu bytes inside a block", call,
                          address, (size_t)(at - block.base));
    block_tell(&report, call, at, 0, &block);
}

/* ---- accesses ------------------------------------------------------------------------------------ */

static void block_check(const char *who, const char *argument, uintptr_t at, size_t bytes,
                        bool write, const CheckBlock *block)
{
    const char *does = write ? "writes" : "reads";
    uintptr_t end = block->base + block->size;
    CheckReport report;
    if (block->freed_by != NULL) {
        report = check_begin(CHECK_MEM, "use-after-free", "%s %s %zu bytes at %s = %p, in %s that was "
                             "freed", who, does, bytes, argument, (void *)at, sort_name(block));
    } else if (at >= end || bytes > end - at) {
        size_t beyond = at >= end ? bytes : bytes - (end - at);
        report = check_begin(CHECK_MEM, "overflow", "%s %s %zu bytes at %s = %p, %zu of them behind a "
                             "block of %zu bytes of %s", who, does, bytes, argument, (void *)at, beyond,
                             block->size, sort_name(block));
    } else {
        return;
    }
    block_tell(&report, who, at, bytes, block);
}

static void plain_check(const char *who, const char *argument, const void *address, size_t bytes,
                        bool write)
{
    const void *bad = __asan_region_is_poisoned == NULL
                          ? NULL
                          : __asan_region_is_poisoned((void *)(uintptr_t)address, bytes);
    if (bad != NULL) {
        CheckReport report = check_begin(
            CHECK_MEM, "overflow", "%s %s %zu bytes at %s = %p, but AddressSanitizer says that %p is "
            "not the program's", who, write ? "writes" : "reads", bytes, argument, address, bad);
        block_tell(&report, who, (uintptr_t)address, bytes, NULL);
    }
}

void check_access(const char *argument, const void *address, size_t bytes, bool write)
{
    const char *who = check_call();
    uintptr_t at = (uintptr_t)address;
    CheckBlock block;
    Memory memory;
    if (bytes == 0) {
        return;
    }
    if (check_block_find(at, &block)) {
        block_check(who, argument, at, bytes, write, &block);
        return;
    }
    memory_find(address, &memory);
    if (memory.kind == MEMORY_UNKNOWN) {
        plain_check(who, argument, address, bytes, write);
    } else if (memory.kind == MEMORY_HOLE) {
        CheckReport report = check_begin(
            CHECK_MEM, "invalid-address", "%s %s %zu bytes at %s = %p, where nothing is allocated or "
            "mapped", who, write ? "writes" : "reads", bytes, argument, address);
        block_tell(&report, who, at, bytes, NULL);
    }
}

void check_pointer(const char *who, uintptr_t address)
{
    CheckBlock block;
    if (check_block_find(address, &block) && block.freed_by != NULL) {
        CheckReport report = check_begin(CHECK_MEM, "use-after-free", "an argument of a %s is %p, in %s "
                                         "that was freed", who, (void *)address, sort_name(&block));
        block_tell(&report, who, address, 1, &block);
    }
}

/* ---- kinds of copies ----------------------------------------------------------------------------- */

/* True if memory of the kind `kind` (a MemoryKind) fits one side of a copy: the side must be device memory if
 * `on_device`, else host memory. */
static bool side_fits(int kind, bool on_device)
{
    bool either = kind == MEMORY_MANAGED || kind == MEMORY_REGISTERED || kind == MEMORY_MAPPED_HOST ||
                  kind == MEMORY_HOLE;
    return either || memory_on_device((MemoryKind)kind) == on_device;
}

static const char *side_name(int kind)
{
    return memory_on_device((MemoryKind)kind) ? "device memory"
         : kind == MEMORY_HOST    ? "pinned memory"
         : kind == MEMORY_UNKNOWN ? "host memory"
                                  : "memory of both";
}

void check_kind(const void *dst, int dst_kind, const void *src, int src_kind,
                aclrtMemcpyKind kind)
{
    static const struct {
        const char *name;
        bool dst, src; /* true: must be device memory; false: must be host memory */
    } kinds[] = {
        [ACL_MEMCPY_HOST_TO_HOST] = {"ACL_MEMCPY_HOST_TO_HOST", false, false},
        [ACL_MEMCPY_HOST_TO_DEVICE] = {"ACL_MEMCPY_HOST_TO_DEVICE", true, false},
        [ACL_MEMCPY_DEVICE_TO_HOST] = {"ACL_MEMCPY_DEVICE_TO_HOST", false, true},
        [ACL_MEMCPY_DEVICE_TO_DEVICE] = {"ACL_MEMCPY_DEVICE_TO_DEVICE", true, true},
    };
    if ((size_t)kind >= sizeof kinds / sizeof kinds[0] ||
        (side_fits(dst_kind, kinds[kind].dst) && side_fits(src_kind, kinds[kind].src))) {
        return;
    }
    CheckReport report = check_begin(
        CHECK_MEM, "wrong-kind", "%s with %s, but it copies from %s (src = %p) to %s (dst = %p)",
        check_call(), kinds[kind].name, side_name(src_kind), src, side_name(dst_kind), dst);
    block_tell(&report, check_call(), (uintptr_t)dst, 0, NULL);
}

/* ---- leaks --------------------------------------------------------------------------------------- */

/* True for a block that a call of the program allocated (not a model or an operator) and that was not reported yet. */
static bool is_leak(const CheckBlock *block)
{
    return !block->leak_told && block->users;
}

/* Finds all leaked blocks that were allocated at one place in the program: gives the first block, their number and
 * their bytes, and marks them as reported. False if there are no leaks that were not reported. */
static bool leak_take(CheckBlock *first, size_t *count, size_t *bytes)
{
    bool found = false;
    *count = *bytes = 0;
    pthread_mutex_lock(&blocks_lock);
    for (CheckBlock *block = live; block != NULL; block = block->next) {
        if (is_leak(block) && (!found || (block->made == first->made &&
                                          block->made_by == first->made_by))) {
            *first = found ? *first : *block;
            found = block->leak_told = true;
            *count += 1;
            *bytes += block->size;
        }
    }
    pthread_mutex_unlock(&blocks_lock);
    return found;
}

void check_forget_blocks(void)
{
    for (CheckBlock *block = live; block != NULL; block = block->next) {
        block->leak_told = true;
    }
}

void check_leaks_of_blocks(const char *when)
{
    CheckBlock block = {0};
    size_t count, bytes;
    while (leak_take(&block, &count, &bytes)) {
        CheckReport report = check_begin(
            CHECK_LEAK, "leak", "%zu block%s of %s, %zu bytes in all, not freed %s", count,
            count == 1 ? "" : "s", sort_name(&block), bytes, when);
        report.address = block.base;
        report.bytes = bytes;
        check_place(&report, block.made, "allocated by %s", block.made_by);
        check_tell(&report);
    }
}
