/* Events: the interface for captures and events between processes. */
#ifndef SIM_EVENT_H
#define SIM_EVENT_H

#include "base/core.h"
#include "races/race.h"

typedef enum EventSort {
    EVENT_PLAIN,   /* aclrtCreateEvent: a wait is refused if nothing was recorded before it */
    EVENT_FLAGGED, /* aclrtCreateEventWithFlag: records set a flag, waits wait for it, resets clear it */
    EVENT_EX       /* aclrtCreateEventExWithFlag: a wait is for the last record queued before the wait was called */
} EventSort;

/* The progress of an event. For an IPC event this lies in memory that processes share. Records on
 * several streams are reached in any order: `done` tells only whether the last record was
 * reached, not whether those before it were. */
typedef struct EventCounts {
    _Atomic uint64_t recorded; /* number of the last record queued, 0: never recorded */
    _Atomic uint64_t done;     /* the highest number of a record that was reached */
    _Atomic uint64_t stamped;  /* number of the record whose time is `time_ns` */
    _Atomic int64_t time_ns;
} EventCounts;

/* One queued record. References are held by its task, by each wait for it, and by its event while
 * it is the last record. */
typedef struct EventRecord {
    _Atomic uint32_t users;
    _Atomic bool reached; /* the record was reached or dropped */
} EventRecord;

/* Names one record: the record that a record task makes, or the record that a wait waits for.
 * Ordinary event: the mark of a record task has `record` and `number`. In a graph it has neither (NULL and 0), because
 * the record gets its number when the task runs. The mark of a wait has only `record`; NULL: nothing to wait for.
 * IPC event: `record` is always NULL; the mark has `number` and `place`. `number` 0: nothing to wait for. */
typedef struct EventMark {
    EventRecord *record;
    uint64_t number;     /* the records of an event are numbered from 1 */
    uint32_t place;      /* IPC event: index of the record in the event's shared page; else 0 */
} EventMark;

typedef struct Event {
    EventSort sort;
    uint32_t flags;
    uint32_t id;
    int32_t device;                 /* the device to which its id belongs; -1 for EVENT_EX, which has no id */
    pthread_mutex_t lock;           /* held while a record is numbered and queued; guards `last`, captured_* */
    EventRecord *last;              /* the last record, unless it was reached or is an IPC event's */
    EventCounts *counts;            /* `own`, or an IPC event's shared page */
    EventCounts own;
    _Atomic uint32_t flag;          /* EVENT_FLAGGED: set by a record, cleared by a reset */
    _Atomic uint32_t waits;         /* wait tasks queued and not done */
    _Atomic uint64_t capture;       /* number of the capture that has its last record; 0: none has it */
    uint32_t captured_lane;         /* index of the recording stream's lane (its part of the graph) */
    uint32_t captured_steps;        /* number of steps in that lane when the event was recorded */
    size_t captured_tasks, captured_edges; /* numbers of tasks and edges in the graph at that time */
    _Atomic uint32_t record_way;    /* flag + 1 of the first record; later records must have the same flag; 0: none */
    _Atomic uint32_t wait_way;      /* flag + 1 of the first wait; later waits must have the same flag; 0: none */
    struct IpcEvent *ipc;           /* for an IPC event: its shared memory; else NULL (ipc_event.c) */
    struct RaceBox *order;          /* order checker (race.h): point of the last record in the order of work */
    struct RaceBox *flag_order;     /* order checker, EVENT_FLAGGED: point of the last record since the last reset */
    struct RaceBox *flag_seen;      /* order checker, EVENT_FLAGGED: points of all records that set the flag, merged */
    size_t captured_link;           /* order checker: index of its record in the capture */
} Event;

enum { EVENT_IDS = 65536 }; /* the most events with an id on one device */
/* Returns how many more events with an id the device can have. */
uint32_t events_available(int32_t device);

/* Reads the event's counts. For an IPC event this first ends the records of processes that died. */
EventCounts event_counts(Event *event);

static inline bool event_is_recorded(Event *event)
{
    EventCounts counts = event_counts(event);
    return counts.recorded != 0;
}

static inline bool event_is_done(Event *event)
{
    EventCounts counts = event_counts(event);
    return counts.done >= counts.recorded;
}

/* Drops one reference. Each call that resolved an event and each task that uses it hold one. The
 * last drop frees what a destroyed event owns. */
void event_release(Event *event);
void event_unref(Event *const *event);
#define EVENT_REF(name) Event *name __attribute__((cleanup(event_unref))) = NULL
/* Gives the live event that the handle names, with a reference; returns 107017 if there is none. */
aclError event_resolve(aclrtEvent handle, Event **event);
/* Takes a reference for a task; the caller must hold one already. */
void event_use(Event *event);
/* Makes an event that no other thread can find before handle_show; event_discard frees one that
 * was not shown. */
aclError event_new(EventSort sort, uint32_t flags, int32_t device, Event **event);
void event_discard(Event *event);
/* Returns a mark of the event's last record, for a wait. The mark holds a reference; event_unmark drops it. */
EventMark event_mark(Event *event);
void event_unmark(EventMark *mark);
/* Waits until the marked record is reached or dropped. `stream` is the stream whose task waits; NULL: the host waits.
 * If a stream waits for an event of the sort EVENT_FLAGGED, the event's flag must be set, too. False if the deadline
 * passed first or the stream was aborted. */
bool event_wait(Event *event, const EventMark *mark, Stream *stream, int64_t deadline_ns);

/* An execution of a graph has one EventBound for each external record and wait in the graph. Both are bound when the
 * execution is queued: from then on the event is recorded for other streams, and the wait is for the event's last record
 * at that time. */
typedef struct EventBound {
    const void *payload; /* the task's */
    EventMark mark;      /* of the record that the task reaches, or for which it waits */
} EventBound;

typedef struct EventBounds {
    size_t count;
    EventBound at[];
} EventBounds;

/* True for a task of a graph that is an external record or wait of an EVENT_EX event. */
bool event_task_binds(const TaskClass *sort, const void *payload);
/* Binds one such task; its mark holds a reference until event_unbind, which also ends a record that was not reached. */
aclError event_bind(const TaskClass *sort, const void *payload, EventBound *bound);
void event_unbind(EventBound *bound);
/* Sets the bounds of the execution that the calling thread runs (NULL: none), and returns those before. */
const EventBounds *event_bounds_use(const EventBounds *bounds);
/* Returns the mark of a task in the execution that the calling thread runs; NULL if the task is not bound there. */
const EventMark *event_bound_mark(const void *payload);

/* ipc_event.c: gives the event a page that other processes can open. */
aclError ipc_event_make(Event *event);
/* Unmaps the shared page of an event that ends. */
void ipc_event_drop(Event *event);
/* ipc_event_open lists a new record in the shared page and gives its mark; it fails if the list is full.
 * ipc_event_close removes the record from the list; `time_ns` is the time at which the record was reached, or 0 if it
 * was dropped. */
aclError ipc_event_open(Event *event, EventMark *mark);
void ipc_event_close(Event *event, const EventMark *mark, int64_t time_ns);
EventMark ipc_event_mark(Event *event);
bool ipc_event_wait(Event *event, const EventMark *mark, Stream *stream, int64_t deadline_ns);
/* Ends the records of processes that have died; does nothing if that was done less than a millisecond ago. */
void ipc_event_reap(Event *event);

#endif
