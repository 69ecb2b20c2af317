/* check_cycle.c: streams that wait for each other's events.
 *
 * A stream is stuck if it waits for an event that has at least one queued record, and all queued records of the
 * event are on stuck streams: then no record can run that would end the wait.
 *
 * Thread rule: one lock guards the tables; no other lock is taken while it is held. */
#include "check/checker.h"
#include "races/race_inside.h"
#include "streams/event.h"
#include "streams/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAITS = 256 };

/* A task that records an event; it is queued and has not run. */
typedef struct Queued {
    struct Queued *next;
    const struct Event *event;
    const Stream *stream;
} Queued;

typedef struct Wait {
    Stream *stream; /* the waiting stream; NULL: the entry is free */
    const struct Event *event;
    uint64_t task;
    bool stuck;
} Wait;

FILE_LOCK(cycle_lock);
static Queued *queued;
static Wait waits[WAITS];

void check_record_queued(const struct Event *event, const Stream *stream)
{
    Queued *made = malloc(sizeof *made);
    if (made == NULL) {
        return;
    }
    pthread_mutex_lock(&cycle_lock);
    *made = (Queued){queued, event, stream};
    queued = made;
    pthread_mutex_unlock(&cycle_lock);
}

void check_record_over(const struct Event *event, const Stream *stream)
{
    pthread_mutex_lock(&cycle_lock);
    Queued **link = &queued;
    while (*link != NULL && ((*link)->event != event || (*link)->stream != stream)) {
        link = &(*link)->next;
    }
    Queued *found = *link;
    if (found != NULL) {
        *link = found->next;
    }
    pthread_mutex_unlock(&cycle_lock);
    free(found);
}

void check_wait_begins(const struct Event *event, Stream *stream)
{
    pthread_mutex_lock(&cycle_lock);
    for (size_t i = 0; i < WAITS; i++) {
        if (waits[i].stream == NULL) {
            waits[i] = (Wait){stream, event, atomic_load(&stream->completed), false};
            break;
        }
    }
    pthread_mutex_unlock(&cycle_lock);
}

void check_wait_ends(Stream *stream)
{
    pthread_mutex_lock(&cycle_lock);
    for (size_t i = 0; i < WAITS; i++) {
        if (waits[i].stream == stream) {
            waits[i] = (Wait){0};
        }
    }
    pthread_mutex_unlock(&cycle_lock);
}

/* ---- stuck streams (the lock is held) ------------------------------------------------------------ */

/* Returns the wait of a stuck stream; NULL if the stream is not stuck. */
static Wait *wait_of(const Stream *stream)
{
    for (size_t i = 0; i < WAITS; i++) {
        if (waits[i].stream == stream && waits[i].stuck) {
            return &waits[i];
        }
    }
    return NULL;
}

/* Returns a stuck stream that has a queued record of the event for which `wait` waits. NULL if a stream that is not
 * stuck has one, too, or if no record is queued. */
static const Stream *blocker_of(const Wait *wait)
{
    const Stream *blocker = NULL;
    for (const Queued *one = queued; one != NULL; one = one->next) {
        if (one->event == wait->event) {
            if (wait_of(one->stream) == NULL) {
                return NULL;
            }
            blocker = one->stream;
        }
    }
    return blocker;
}

/* Sets `stuck` of each wait. Begins with all waiting streams as stuck; then clears the flag of each stream that can
 * still go on, until no flag changes any more. */
static void stuck_find(void)
{
    for (size_t i = 0; i < WAITS; i++) {
        waits[i].stuck = waits[i].stream != NULL;
    }
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < WAITS; i++) {
            if (waits[i].stuck && blocker_of(&waits[i]) == NULL) {
                waits[i].stuck = false;
                more = true;
            }
        }
    }
}

/* ---- telling ------------------------------------------------------------------------------------- */

typedef struct Cycle {
    Stream *streams[WAITS];
    uint32_t ids[WAITS];
    size_t count;
} Cycle;

/* Follows the waits from one stream to the next. If they end in a cycle, gives the streams of the cycle, with a hold on
 * each; else gives no streams. */
static void cycle_take(const Stream *from, Cycle *cycle)
{
    stuck_find();
    cycle->count = 0;
    const Wait *wait = wait_of(from);
    for (size_t i = 0; wait != NULL && i < WAITS; i++) { /* a path of WAITS steps has certainly reached the cycle */
        wait = wait_of(blocker_of(wait));
    }
    for (const Stream *first = wait != NULL ? wait->stream : NULL;
         wait != NULL && (cycle->count == 0 || wait->stream != first) && cycle->count < WAITS;
         wait = wait_of(blocker_of(wait))) {
        if (!handle_hold(wait->stream)) {
            break;
        }
        cycle->streams[cycle->count] = wait->stream;
        cycle->ids[cycle->count++] = wait->stream->id;
    }
}

static void cycle_tell(const Cycle *cycle)
{
    char list[128] = "";
    size_t used = 0;
    for (size_t i = 0; i <= cycle->count && used + 16 < sizeof list; i++) {
        int more = snprintf(list + used, sizeof list - used, "%s%u", i == 0 ? "" : " for ",
                            cycle->ids[i % cycle->count]);
        used += more > 0 ? (size_t)more : 0;
    }
    CheckReport report = check_begin(CHECK_ORDER, "deadlock", "streams wait for each other's events, each "
                                     "recorded behind the other's wait: %s; their waits are let go", list);
    check_place(&report, site_here(), "%s waits for them", check_call());
    check_tell(&report);
}

void check_cycle(const Stream *stream)
{
    Cycle cycle;
    pthread_mutex_lock(&cycle_lock);
    cycle_take(stream, &cycle);
    pthread_mutex_unlock(&cycle_lock);
    if (cycle.count == 0) {
        return;
    }
    cycle_tell(&cycle);
    for (size_t i = 0; i < cycle.count; i++) {
        stream_stop(cycle.streams[i]);
        handle_drop(cycle.streams[i]);
    }
}
