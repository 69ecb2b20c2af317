/* race_clock.h: vector clocks: for each slot (a stream, or a lane of a graph) the number of its
   tasks that come before a point.

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

/* False without memory. */
bool clock_raise(Clock *clock, uint32_t slot, uint64_t to);
bool clock_join(Clock *clock, const Clock *other);
/* True if the clock covers all tasks that `other` covers. */
bool clock_covers(const Clock *clock, const Clock *other);
void clock_free(Clock *clock);

#endif
