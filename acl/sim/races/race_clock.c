/* race_clock.c: see race_clock.h. */
#include "races/race_clock.h"

#include <stdlib.h>
#include <string.h>

static bool clock_grow(Clock *clock, uint32_t count)
{
    if (count > clock->room) {
        uint32_t room = count + count / 2 + 8;
        uint64_t *more = realloc(clock->at, room * sizeof *more);
        if (more == NULL) {
            return false;
        }
        clock->at = more;
        clock->room = room;
    }
    if (count > clock->count) {
        memset(clock->at + clock->count, 0, (count - clock->count) * sizeof *clock->at);
        clock->count = count;
    }
    return true;
}

bool clock_raise(Clock *clock, uint32_t slot, uint64_t to)
{
    if (clock_get(clock, slot) >= to) {
        return true;
    }
    if (!clock_grow(clock, slot + 1)) {
        return false;
    }
    clock->at[slot] = to;
    return true;
}

bool clock_join(Clock *clock, const Clock *other)
{
    if (!clock_grow(clock, other->count)) {
        return false;
    }
    for (uint32_t i = 0; i < other->count; i++) {
        clock->at[i] = clock->at[i] < other->at[i] ? other->at[i] : clock->at[i];
    }
    return true;
}

bool clock_covers(const Clock *clock, const Clock *other)
{
    for (uint32_t i = 0; i < other->count; i++) {
        if (clock_get(clock, i) < other->at[i]) {
            return false;
        }
    }
    return true;
}

void clock_free(Clock *clock)
{
    free(clock->at);
    *clock = (Clock){0};
}
