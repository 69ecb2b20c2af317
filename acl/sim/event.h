/* Events, as capture and IPC see them. */
#ifndef SIM_EVENT_H
#define SIM_EVENT_H

#include "core.h"

typedef enum EventSort {
    EVENT_PLAIN,   /* aclrtCreateEvent: a wait wants a record before it */
    EVENT_FLAGGED, /* WithFlag: a flag that records set, waits wait for, and resets clear */
    EVENT_EX       /* ExWithFlag: a wait is for the record that was the last at the call */
} EventSort;

/* How far an event is.  An IPC event's lies in memory that processes share. */
typedef struct EventCounts {
    _Atomic uint64_t recorded; /* number of the last record queued, 0: never recorded */
    _Atomic uint64_t done;     /* number of the last record that was reached */
    _Atomic uint64_t stamped;  /* number of the record that `time_ns` is of */
    _Atomic int64_t time_ns;
    _Atomic int32_t recorder;  /* process that queued the last record of an IPC event */
} EventCounts;

typedef struct Event {
    EventSort sort;
    uint32_t flags;
    uint32_t id;
    pthread_mutex_t lock;           /* makes numbering and queueing of a record one step */
    EventCounts *counts;            /* `own`, or an IPC event's shared page */
    EventCounts own;
    _Atomic uint32_t flag;          /* EVENT_FLAGGED: set by a record, cleared by a reset */
    _Atomic uint32_t waits;         /* wait tasks queued and not done */
    _Atomic uint32_t users;         /* the handle, and each task that refers to it */
    _Atomic uint64_t capture;       /* number of the capture that recorded it, 0: none */
    uint32_t captured_lane;         /* where in that capture: stream, and how many steps of it */
    uint32_t captured_steps;
    _Atomic uint32_t record_way;    /* flag + 1 of the first record and wait: */
    _Atomic uint32_t wait_way;      /* all others must be alike; 0: none yet */
    struct IpcEvent *ipc;           /* not NULL: its counts are shared (ipc_event.c) */
} Event;

enum { EVENT_IDS = 65536 };

static inline bool event_is_recorded(const Event *event)
{
    return atomic_load_explicit(&event->counts->recorded, memory_order_acquire) != 0;
}

static inline bool event_is_done(const Event *event)
{
    uint64_t recorded = atomic_load_explicit(&event->counts->recorded, memory_order_acquire);
    return atomic_load_explicit(&event->counts->done, memory_order_acquire) >= recorded;
}

/* The live event of that handle; 107017 if it is none. */
aclError event_resolve(aclrtEvent handle, Event **event);
void event_use(Event *event);
void event_release(Event *event);
/* Reached: wakes whoever waits for it. */
void event_complete(Event *event, uint64_t number, int64_t time_ns);
aclError event_new(EventSort sort, uint32_t flags, Event **event);
/* Waits until the record of that number is reached: inside a task of `stream`, or on the host
 * (NULL).  False if the deadline came first, or the stream is aborted. */
bool event_wait(Event *event, uint64_t number, Stream *stream, int64_t deadline_ns);

/* ipc_event.c: gives the event a page that other processes can open. */
aclError ipc_event_make(Event *event);
/* The event is going: lets go of the page. */
void ipc_event_drop(Event *event);
/* event_wait for an IPC event. */
bool ipc_event_wait(Event *event, uint64_t number, Stream *stream, int64_t deadline_ns);

#endif
