/* Events, as capture and IPC see them. */
#ifndef SIM_EVENT_H
#define SIM_EVENT_H

#include "base/core.h"
#include "races/race.h"

typedef enum EventSort {
    EVENT_PLAIN,   /* aclrtCreateEvent: a wait wants a record before it */
    EVENT_FLAGGED, /* WithFlag: a flag that records set, waits wait for, and resets clear */
    EVENT_EX       /* ExWithFlag: a wait is for the record that was the last at the call */
} EventSort;

/* How far an event is.  An IPC event's lies in memory that processes share.  Records of several
 * streams are reached in any order: `done` answers for the last one only, never for those before. */
typedef struct EventCounts {
    _Atomic uint64_t recorded; /* number of the last record queued, 0: never recorded */
    _Atomic uint64_t done;     /* the highest number of a record that was reached */
    _Atomic uint64_t stamped;  /* number of the record that `time_ns` is of */
    _Atomic int64_t time_ns;
} EventCounts;

/* One record that is queued; held by its event while it is the last one, its task, and each wait. */
typedef struct EventRecord {
    _Atomic uint32_t users;
    _Atomic bool reached; /* or thrown away */
} EventRecord;

/* The record that a wait is for. */
typedef struct EventMark {
    EventRecord *record; /* NULL: nothing to wait for */
    uint64_t number;     /* of an IPC event's record; 0: nothing to wait for */
    uint32_t place;      /* where that is in its page */
} EventMark;

typedef struct Event {
    EventSort sort;
    uint32_t flags;
    uint32_t id;
    pthread_mutex_t lock;           /* makes numbering and queueing of a record one step; guards: */
    EventRecord *last;              /* the last record, unless it was reached or is an IPC event's */
    EventCounts *counts;            /* `own`, or an IPC event's shared page */
    EventCounts own;
    _Atomic uint32_t flag;          /* EVENT_FLAGGED: set by a record, cleared by a reset */
    _Atomic uint32_t waits;         /* wait tasks queued and not done */
    _Atomic uint64_t capture;       /* number of the capture that recorded it, 0: none */
    uint32_t captured_lane;         /* where in that capture: stream, and how many steps of it; */
    uint32_t captured_steps;
    size_t captured_tasks, captured_edges; /* how many the graph had.  The lock guards these, too */
    _Atomic uint32_t record_way;    /* flag + 1 of the first record and wait: */
    _Atomic uint32_t wait_way;      /* all others must be alike; 0: none yet */
    struct IpcEvent *ipc;           /* not NULL: its counts are shared (ipc_event.c) */
    struct RaceBox *order;          /* the order checker's (race.h): place of the last record, */
    struct RaceBox *flag_order;     /* EVENT_FLAGGED: the same, until a reset, */
    struct RaceBox *flag_seen;      /* and of all that set the flag */
    size_t captured_link;           /* its record in the capture */
} Event;

enum { EVENT_IDS = 65536 };

/* Another process may have recorded an IPC event, and may have died since. */
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

/* An event is held by each call that resolved it and by each task that refers to it. The last of
 * them frees what a destroyed event owns. */
void event_release(Event *event);
void event_unref(Event *const *event);
#define EVENT_REF(name) Event *name __attribute__((cleanup(event_unref))) = NULL
/* The live event of that handle, held; 107017 if it is none. */
aclError event_resolve(aclrtEvent handle, Event **event);
/* For a task; the caller holds the event. */
void event_use(Event *event);
/* Nobody sees it before handle_show; event_discard gives back what was not shown. */
aclError event_new(EventSort sort, uint32_t flags, Event **event);
void event_discard(Event *event);
/* The last record, to be waited for and let go of. */
EventMark event_mark(Event *event);
void event_unmark(EventMark *mark);
/* Waits until that record is reached: inside a task of `stream`, or on the host (NULL).  False if
 * the deadline came first, or the stream is aborted. */
bool event_wait(Event *event, const EventMark *mark, Stream *stream, int64_t deadline_ns);

/* ipc_event.c: gives the event a page that other processes can open. */
aclError ipc_event_make(Event *event);
/* The event is going: lets go of the page. */
void ipc_event_drop(Event *event);
/* A new record's mark, and its end: reached at that time, or (0) thrown away. */
aclError ipc_event_open(Event *event, EventMark *mark);
void ipc_event_close(Event *event, const EventMark *mark, int64_t time_ns);
EventMark ipc_event_mark(Event *event);
bool ipc_event_wait(Event *event, const EventMark *mark, Stream *stream, int64_t deadline_ns);
/* Ends the records of processes that have died. */
void ipc_event_reap(Event *event);

#endif
