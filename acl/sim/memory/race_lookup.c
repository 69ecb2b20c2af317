/* race_lookup.c: finds the physical memory behind an address, for the order checker (RaceMemory).
 *
 * Thread rule: any thread. */
#include "memory/memory.h"
#include "memory/vmm.h"
#include "races/race_inside.h"

/* Gives the first part of the range as bytes of one mapping's physical memory; false if nothing is mapped at the
 * address. */
static bool mapped_bytes(uintptr_t address, size_t bytes, RaceBytes *found)
{
    Reservation *reservation = reservation_lock(address);
    bool mapped = false;
    if (reservation != NULL) {
        const Mapping *mapping = *slot_of(reservation, address);
        mapped = mapping != NULL && mapping->state == MAPPING_DONE;
        if (mapped) {
            size_t offset = address - mapping->base;
            size_t left = mapping->bytes - offset;
            *found = (RaceBytes){.space = mapping->memory, .begin = offset,
                                 .end = offset + (bytes < left ? bytes : left),
                                 .base = mapping->base};
        }
        pthread_mutex_unlock(&reservation->lock);
    }
    return mapped;
}

static void pieces_tell(const void *address, size_t bytes, TouchKind kind, RaceEmit emit,
                        void *context)
{
    uintptr_t at = (uintptr_t)address;
    Range range;
    if (bytes == 0 || at + bytes < at) {
        return;
    }
    bool in_arena = arena_at(at) != NULL;
    if (!in_arena && !range_find(at, &range)) {
        return;
    }
    if (in_arena || range.kind != RANGE_RESERVATION) {
        emit(context, &(RaceBytes){NULL, at, at + bytes, 0, kind});
        return;
    }
    RaceBytes found;
    while (bytes != 0 && mapped_bytes(at, bytes, &found)) {
        found.kind = kind;
        emit(context, &found);
        at += found.end - found.begin;
        bytes -= found.end - found.begin;
    }
}

/* Returns how many bytes a kernel may access through a pointer: in an allocation all bytes from the
 * pointer to the end; in mapped pages only one byte, because the program divides them itself; 0 for
 * other memory. */
static size_t pointer_reach(uintptr_t pointer)
{
    Memory memory;
    if (!memory_find((const void *)pointer, &memory)) {
        return 0;
    }
    switch (memory.kind) {
    case MEMORY_DEVICE:
    case MEMORY_POOL:
    case MEMORY_HOST:
    case MEMORY_MANAGED:
        return memory.base + memory.size - pointer;
    case MEMORY_MAPPED:
    case MEMORY_MAPPED_HOST:
        return 1;
    default:
        return 0;
    }
}

__attribute__((constructor(104))) static void memory_announce(void)
{
    race_memory = (RaceMemory){.resolve = pieces_tell, .reach = pointer_reach};
}
