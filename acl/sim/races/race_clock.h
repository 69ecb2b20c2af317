/* race_clock.h: vector clocks. A clock describes a point in the order of work: for each slot (a
   stream, or a lane of a graph), how many of the slot's tasks come before that point.

   Thread rule: the checker's lock. */
#ifndef SIM_RACE_CLOCK_H
#define SIM_RACE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Clock {
    uint64_t *at;
    uint32_t count, room;
} Clock;

static inline uint64_t clock_get(const Clock *clock, uint32_t slot)
{
    return slot < clock->count ? clock->at[slot] : 0;
}

/* clock_raise raises one entry to `to`; clock_join raises each entry to that of `other`. False if
   there is no memory. */
bool clock_raise(Clock *clock, uint32_t slot, uint64_t to);
bool clock_join(Clock *clock, const Clock *other);
/* True if the clock covers all tasks that `other` covers. */
bool clock_covers(const Clock *clock, const Clock *other);
void clock_free(Clock *clock);

#endif
