/* Finds what an address belongs to, whether it can be accessed, and the address at which the
 * simulator itself reaches the same byte.
 *
 * Addresses that the simulator never gave out are treated as ordinary host memory; hostprobe.c asks
 * the kernel whether an access to them would fault. */
#include "base/checks.h"
#include "memory/memory.h"

#include <string.h>
#include <sys/mman.h>

FILE_LOCK(window_lock);
static unsigned windows[DEVICE_MAX];

static void arena_describe(Arena *arena, uintptr_t address, Memory *memory)
{
    ZoneView view;
    *memory = (Memory){.kind = MEMORY_HOLE, .device = arena->device, .base = address};
    if (arena_find(arena, address, &view)) {
        memory->kind = (MemoryKind)view.info.kind;
        memory->base = arena->base + view.offset;
        memory->bytes = view.bytes;
        memory->size = view.info.size;
        memory->page = (PageKind)view.info.page;
        memory->owner = view.info.owner;
        memory->readable = memory->writable = true;
    }
    if (memory->device == BOOK_HOST) {
        memory->device = -1;
    }
}

bool memory_find(const void *address, Memory *memory)
{
    uintptr_t at = (uintptr_t)address;
    Range range;
    Arena *arena = arena_at(at);
    if (arena != NULL) {
        arena_describe(arena, at, memory);
        return true;
    }
    if (!range_find(at, &range)) {
        *memory = (Memory){.kind = MEMORY_UNKNOWN, .device = -1};
        return false;
    }
    if (range.kind == RANGE_RESERVATION) {
        return reservation_find(&range, at, memory);
    }
    *memory = (Memory){
        .kind = range.kind == RANGE_IMPORTED ? MEMORY_IMPORTED : MEMORY_REGISTERED,
        .device = range.device,
        .base = range.begin,
        .bytes = range.end - range.begin,
        .size = range.end - range.begin,
        .page = PAGE_NORMAL,
        .owner = range.object,
        .readable = true,
        .writable = true,
    };
    return true;
}

/* True if all the bytes can be accessed: they lie in the allocation or the mappings that `memory` describes, or in
 * host memory that does not fault. */
static bool memory_holds(const Memory *memory, uintptr_t begin, size_t bytes, bool write)
{
    if (begin + bytes < begin) {
        return false;
    }
    bool inside = begin + bytes <= memory->base + memory->bytes;
    if (memory->kind == MEMORY_UNKNOWN || (memory->kind == MEMORY_REGISTERED && !inside)) {
        return host_reach((const void *)begin, bytes, write) == bytes;
    }
    if (memory->kind == MEMORY_MAPPED || memory->kind == MEMORY_MAPPED_HOST) {
        Range range;
        return range_find(begin, &range) && range.kind == RANGE_RESERVATION &&
               reservation_covers(&range, begin, begin + bytes, write);
    }
    return memory->kind != MEMORY_HOLE && inside;
}

/* For the check of unwritten memory (ACL_SIM_CHECK=init): reports bytes that a call writes without a task, such as a
 * model's weights. A task reports the bytes that it writes through its `touch` function. */
static void wrote(const void *address, size_t bytes, bool write)
{
    if (write && check_on(CHECK_INIT) && stream_running() == NULL) {
        checks.host_step(address, NULL, bytes);
    }
}

void memory_put(const void *address, void *inner, const void *from, size_t bytes)
{
    wrote(address, bytes, true);
    memcpy(inner, from, bytes);
}

bool memory_reachable(const void *address, size_t bytes, bool write)
{
    uintptr_t begin = (uintptr_t)address;
    wrote(address, bytes, write);
    const Arena *arena = arena_at(begin);
    if (arena != NULL) {
        return bytes <= arena->base + arena->bytes - begin;
    }
    Memory memory;
    memory_find(address, &memory);
    return memory_holds(&memory, begin, bytes, write);
}

/* Returns the address at which the simulator itself reaches the byte. Private to this file, because it does not check
 * that an access to the address does not fault. */
static void *memory_inner(const void *address)
{
    uintptr_t at = (uintptr_t)address;
    Range range;
    if (memory_strict() && range_find(at, &range)) {
        at += (uintptr_t)range.alias;
    }
    return (void *)at;
}

aclError memory_check(const char *function, const char *argument, const void *address,
                      size_t bytes, bool write, Seen *seen)
{
    Memory memory;
    if (check_on(CHECK_MEM)) {
        checks.access(argument, address, bytes, write);
    }
    memory_find(address, &memory);
    if (seen != NULL) {
        *seen = (Seen){memory.kind, memory_inner(address)};
    }
    if (memory_holds(&memory, (uintptr_t)address, bytes, write)) {
        return ACL_SUCCESS;
    }
    if (memory.kind == MEMORY_HOLE) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "%s = %p: no memory is allocated or mapped there", argument, address);
    }
    if (memory.kind == MEMORY_UNKNOWN || memory.kind == MEMORY_REGISTERED) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "%s = %p: %zu bytes of host memory expected there, but only %zu are %s",
                         argument, address, bytes, host_reach(address, bytes, write),
                         write ? "writable" : "readable");
    }
    return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                     "%s = %p: %zu bytes expected there, but the allocation at %p has %zu",
                     argument, address, bytes, (void *)memory.base, memory.bytes);
}

void *memory_at(const void *address, size_t bytes, bool write)
{
    return memory_reachable(address, bytes, write) ? memory_inner(address) : NULL;
}

aclError memory_for_task(const Stream *stream, const char *what, const void *address, size_t bytes,
                         bool write, void **inner)
{
    if (bytes != 0 && !memory_reachable(address, bytes, write)) {
        return fail(ACL_ERROR_RT_SYS_DMA, "%s: %zu bytes at %p are not there (any more); stream %u",
                    what, bytes, address, stream_id(stream));
    }
    *inner = memory_inner(address);
    return ACL_SUCCESS;
}

/* ---- windows: access to users' addresses in strict mode, while a kernel runs ---- */
static void device_protect(int32_t device, bool open)
{
    Arena *arena = arena_existing(device);
    if (arena != NULL) {
        mprotect((void *)arena->base, arena->bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
    reservations_protect(device, open);
}

void memory_window_open(int32_t device)
{
    if (!memory_strict()) {
        return;
    }
    pthread_mutex_lock(&window_lock);
    if (windows[device]++ == 0) {
        device_protect(device, true);
    }
    pthread_mutex_unlock(&window_lock);
}

void memory_window_close(int32_t device)
{
    if (!memory_strict()) {
        return;
    }
    pthread_mutex_lock(&window_lock);
    if (--windows[device] == 0) {
        device_protect(device, false);
    }
    pthread_mutex_unlock(&window_lock);
}
