/* event_bounds.c: tells a task of a graph for which record the execution that runs it was bound.
 *
 * Thread rule: each thread has its own execution; a stream's worker sets it. */
#include "streams/event.h"

static _Thread_local const EventBounds *bounds_here;

const EventBounds *event_bounds_use(const EventBounds *bounds)
{
    const EventBounds *before = bounds_here;
    bounds_here = bounds;
    return before;
}

const EventMark *event_bound_mark(const void *payload)
{
    for (size_t i = 0; bounds_here != NULL && i < bounds_here->count; i++) {
        if (bounds_here->at[i].payload == payload) {
            return &bounds_here->at[i].mark;
        }
    }
    return NULL;
}
