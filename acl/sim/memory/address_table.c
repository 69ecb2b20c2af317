/* Ranges of addresses: see address_table.h. */
#include "memory/address_table.h"

#include <stdlib.h>
#include <string.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static Range *ranges; /* sorted by `begin`; no two overlap */
static size_t count, room;

/* Returns how many ranges begin at or before the address. */
static size_t ranges_upto(uintptr_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].begin <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool ranges_grow(void)
{
    size_t wanted = room == 0 ? 64 : 2 * room;
    Range *grown = realloc(ranges, wanted * sizeof *grown);
    if (grown != NULL) {
        ranges = grown;
        room = wanted;
    }
    return grown != NULL;
}

bool range_add(const Range *range, Range *other)
{
    pthread_rwlock_wrlock(&lock);
    size_t at = ranges_upto(range->begin);
    const Range *overlapped = NULL;
    if (at > 0 && ranges[at - 1].end > range->begin) {
        overlapped = &ranges[at - 1];
    } else if (at < count && ranges[at].begin < range->end) {
        overlapped = &ranges[at];
    }
    if (overlapped != NULL && other != NULL) {
        *other = *overlapped;
    }
    bool added = overlapped == NULL && (count < room || ranges_grow());
    if (added) {
        memmove(&ranges[at + 1], &ranges[at], (count - at) * sizeof *ranges);
        ranges[at] = *range;
        count++;
    }
    pthread_rwlock_unlock(&lock);
    return added;
}

bool range_remove(uintptr_t begin, RangeKind kind, Range *removed)
{
    pthread_rwlock_wrlock(&lock);
    size_t at = ranges_upto(begin);
    bool found = at > 0 && ranges[at - 1].begin == begin && ranges[at - 1].kind == kind;
    if (found) {
        if (removed != NULL) {
            *removed = ranges[at - 1];
        }
        memmove(&ranges[at - 1], &ranges[at], (count - at) * sizeof *ranges);
        count--;
    }
    pthread_rwlock_unlock(&lock);
    return found;
}

bool range_find(uintptr_t address, Range *range)
{
    pthread_rwlock_rdlock(&lock);
    size_t at = ranges_upto(address);
    bool found = at > 0 && address < ranges[at - 1].end;
    if (found) {
        *range = ranges[at - 1];
    }
    pthread_rwlock_unlock(&lock);
    return found;
}
