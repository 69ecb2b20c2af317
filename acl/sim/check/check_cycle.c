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

/* A task that records an event; it is queued and has not run. */
typedef struct Queued {
    struct Queued *next;
    const struct Event *event;
    const Stream *stream;
} Queued;

typedef struct Wait {
    struct Wait *next;
    Stream *stream; /* the waiting stream */
    const struct Event *event;
    bool stuck;
} Wait;

FILE_LOCK(cycle_lock);
static Queued *queued, **queued_end = &queued; /* list, the oldest record first, because it usually runs first */
static Wait *waits;
static size_t wait_count;

void check_record_queued(const struct Event *event, const Stream *stream)
{
    Queued *made = malloc(sizeof *made);
    if (made == NULL) {
        return;
    }
    pthread_mutex_lock(&cycle_lock);
    *made = (Queued){NULL, event, stream};
    *queued_end = made;
    queued_end = &made->next;
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
        queued_end = found->next == NULL ? link : queued_end;
    }
    pthread_mutex_unlock(&cycle_lock);
    free(found);
}

void check_wait_begins(const struct Event *event, Stream *stream)
{
    Wait *made = malloc(sizeof *made);
    if (made == NULL) {
        return;
    }
    pthread_mutex_lock(&cycle_lock);
    *made = (Wait){waits, stream, event, false};
    waits = made;
    wait_count++;
    pthread_mutex_unlock(&cycle_lock);
}

void check_wait_ends(Stream *stream)
{
    pthread_mutex_lock(&cycle_lock);
    for (Wait **link = &waits; *link != NULL;) {
        Wait *wait = *link;
        if (wait->stream == stream) {
            *link = wait->next;
            wait_count--;
            free(wait);
        } else {
            link = &wait->next;
        }
    }
    pthread_mutex_unlock(&cycle_lock);
}

/* ---- stuck streams (the lock is held) ------------------------------------------------------------ */

/* Returns the wait of a stuck stream; NULL if the stream is not stuck. */
static const Wait *wait_of(const Stream *stream)
{
    const Wait *wait = waits;
    while (wait != NULL && (wait->stream != stream || !wait->stuck)) {
        wait = wait->next;
    }
    return wait;
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
    for (Wait *wait = waits; wait != NULL; wait = wait->next) {
        wait->stuck = true;
    }
    for (bool more = true; more;) {
        more = false;
        for (Wait *wait = waits; wait != NULL; wait = wait->next) {
            if (wait->stuck && blocker_of(wait) == NULL) {
                wait->stuck = false;
                more = true;
            }
        }
    }
}

/* ---- telling ------------------------------------------------------------------------------------- */

typedef struct Cycle {
    size_t count;
    struct {
        Stream *stream;
        uint32_t id;
    } at[];
} Cycle;

/* Follows the waits from one stream to the next. If they end in a cycle, returns the streams of the cycle, with a
 * hold on each; else NULL, and without memory too. */
static Cycle *cycle_take(const Stream *from)
{
    stuck_find();
    const Wait *wait = wait_of(from);
    Cycle *cycle = wait == NULL ? NULL : malloc(sizeof *cycle + wait_count * sizeof cycle->at[0]);
    if (cycle == NULL) {
        return NULL;
    }
    cycle->count = 0;
    for (size_t i = 0; wait != NULL && i < wait_count; i++) { /* a path of wait_count steps has reached the cycle */
        wait = wait_of(blocker_of(wait));
    }
    for (const Stream *first = wait != NULL ? wait->stream : NULL;
         wait != NULL && (cycle->count == 0 || wait->stream != first) && cycle->count < wait_count;
         wait = wait_of(blocker_of(wait))) {
        if (!handle_hold(wait->stream)) {
            break;
        }
        cycle->at[cycle->count].stream = wait->stream;
        cycle->at[cycle->count++].id = wait->stream->id;
    }
    return cycle;
}

static void cycle_tell(const Cycle *cycle)
{
    char list[128] = "";
    size_t used = 0;
    for (size_t i = 0; i <= cycle->count && used + 16 < sizeof list; i++) {
        int more = snprintf(list + used, sizeof list - used, "%s%u", i == 0 ? "" : " for ",
                            cycle->at[i % cycle->count].id);
        used += more > 0 ? (size_t)more : 0;
    }
    CheckReport report = check_begin(CHECK_ORDER, "deadlock", "streams wait for each other's events, each "
                                     "recorded behind the other's wait: %s; their waits are let go", list);
    check_place(&report, site_here(), "%s waits for them", check_call());
    check_tell(&report);
}

void check_cycle(const Stream *stream)
{
    pthread_mutex_lock(&cycle_lock);
    Cycle *cycle = cycle_take(stream);
    pthread_mutex_unlock(&cycle_lock);
    if (cycle != NULL && cycle->count != 0) {
        cycle_tell(cycle);
    }
    for (size_t i = 0; cycle != NULL && i < cycle->count; i++) {
        stream_stop(cycle->at[i].stream);
        handle_drop(cycle->at[i].stream);
    }
    free(cycle);
}
