/* race.h: the order checker, as the rest of the simulator sees it (ACL_SIM_RACES=1).
 *
 * Every task says which bytes it touches and what it records or waits for (TaskClass.touch).  The
 * checker keeps a vector clock for each stream and reports two accesses to the same bytes, one of
 * them a write, of which neither is ordered before the other; and memory that the host frees or
 * unmaps while a task that the host has not seen complete still uses it.
 *
 * Cost when off: one relaxed load at each hook (races_on).
 *
 * Thread rule: any thread.  Hooks may be called under a stream's or an event's lock; the checker's
 * own lock is a leaf. */
#ifndef SIM_RACE_H
#define SIM_RACE_H

#include "base/core.h"

extern atomic_bool race_active;

static inline bool races_on(void)
{
    return __builtin_expect(atomic_load_explicit(&race_active, memory_order_relaxed), 0);
}

typedef enum TouchKind {
    TOUCH_READ,
    TOUCH_WRITE,
    TOUCH_USE,   /* reads or writes, not known which: a conflict with a write only */
    TOUCH_ATOMIC /* a value that streams write and wait for: no conflict, but the bytes are in use */
} TouchKind;

/* A point in the order of the device's work, as an event keeps it. */
typedef struct RaceBox RaceBox;

struct Graph;
struct Event;
struct Tensor;

/* ---- what a task says of itself: in TaskClass.touch --------------------------------------------- */
typedef struct Touch Touch;
/* Ordinary host memory, which the simulator does not know, is left out. */
void touch_bytes(Touch *touch, const void *address, size_t bytes, TouchKind kind);
void touch_rows(Touch *touch, const void *address, size_t pitch, size_t bytes, size_t rows,
                TouchKind kind);
/* A dense tensor; none without data, or with a negative rank. */
void touch_tensor(Touch *touch, const struct Tensor *tensor, TouchKind kind);
/* The 8-byte words that name device memory: kernel arguments. */
void touch_pointers(Touch *touch, const void *words, size_t bytes);
/* A record: *box becomes the task's place.  A wait: the task comes after *box. */
void touch_record(Touch *touch, RaceBox **box);
/* *box, which is NULL, becomes what *other is. */
void touch_share(RaceBox **box, RaceBox *const *other);
/* False if there is none. */
bool touch_wait(Touch *touch, RaceBox *const *box);
/* What the task is ordered after shows only when it runs: race_take and race_take_host. */
void touch_late(Touch *touch);
/* The task's own place is wanted when it runs: race_seen and race_put. */
void touch_marked(Touch *touch);
/* A task that chooses at run time which others run. */
void touch_choice(Touch *touch);
void touch_graph(Touch *touch, const struct Graph *graph);

/* ---- hooks of stream.c and worker.c; races_on() is asked by the caller --------------------------- */
/* A task is about to be queued; the stream's lock is held. */
void race_submitted(Stream *stream, const TaskClass *sort, const void *payload);
void race_begins(Stream *stream, uint64_t number);
void race_ends(Stream *stream, uint64_t number);
/* The place that the stream's queue has now, for race_saw; NULL is fine for it. */
RaceBox *race_place(const Stream *stream);
/* Gives the box back; `complete`: the host saw that what was there is done. */
void race_saw(RaceBox *box, bool complete);
void race_saw_stream(const Stream *stream);
void race_saw_event(RaceBox *const *box);
/* What was queued is done or thrown away, but for a user's function that may still run. */
void race_stream_ended(Stream *stream);
void race_stream_gone(Stream *stream);

/* ---- inside a running task ----------------------------------------------------------------------- */
void race_seen(Stream *stream);                    /* the host sees what is before the task */
void race_put(Stream *stream, RaceBox **box);      /* adds the task's place to what is there */
void race_take(Stream *stream, RaceBox *const *box); /* the task comes after that */
void race_take_host(Stream *stream);               /* the task comes after what the host has seen */
/* Values that streams write and wait for, by address. */
void race_put_value(Stream *stream, const void *address);
void race_take_value(Stream *stream, const void *address);

/* ---- objects ------------------------------------------------------------------------------------- */
void race_drop(RaceBox **box);
/* Work queued on the stream from now on comes after *box: a pool's block is used again. */
void race_follow(Stream *stream, RaceBox *const *box);
/* Another process may order streams by an IPC event or notify: all records into such come before
 * all waits for such. */
RaceBox **race_elsewhere(void);

/* ---- captures: capture.c and graph.c, under the graph's lock -------------------------------------- */
void race_captured_task(struct Graph *graph, uint32_t lane);
void race_captured_record(struct Graph *graph, uint32_t lane, struct Event *event);
void race_captured_wait(struct Graph *graph, uint32_t lane, struct Event *event);
void race_graph_gone(struct Graph *graph);

/* ---- the host and memory ------------------------------------------------------------------------- */
/* The host itself touches the bytes, in the calling thread. */
void race_host(const char *what, const void *address, size_t bytes, TouchKind kind);
/* The host frees the bytes. */
void race_freed(const char *what, uintptr_t address, size_t bytes);
/* The bytes went back to their arena, in whatever order. */
void race_forget(uintptr_t address, size_t bytes);
/* A mapping of physical memory ends. */
void race_unmapped(const void *physical, uintptr_t base, size_t bytes);
/* Physical memory was freed: its address may be used again. */
void race_physical_gone(const void *physical, size_t bytes);

/* ---- the control door ---------------------------------------------------------------------------- */
/* How many findings there were. */
SIM_SHARED uint64_t acl_sim_races(void);
/* The finding of that number, from 0, as JSON; NULL if there is none. */
SIM_SHARED const char *acl_sim_race(uint64_t index);
/* Writes the calling thread's Python stack, a frame a line, innermost first: "file:line in name";
 * its length, 0 without Python.  Called in each thread that queues a task, with or without the
 * interpreter's lock, which it must not take. */
typedef size_t (*acl_sim_python_stack)(char *text, size_t size);
SIM_SHARED void acl_sim_races_python(acl_sim_python_stack stack);
/* Writes what the program calls the memory at the address; its length, 0 for none.  Called in any
 * thread, for each finding; it must not call the API. */
typedef size_t (*acl_sim_tag)(uintptr_t address, char *text, size_t size);
SIM_SHARED void acl_sim_races_tags(acl_sim_tag tag);
/* True if findings are told and counted: tests that race on purpose switch that off for a while. */
SIM_SHARED void acl_sim_races_mute(int muted);

#endif
