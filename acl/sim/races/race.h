/* race.h: the order checker (ACL_SIM_RACES=1): the interface for other folders.
 *
 * Every task states which bytes it touches, and what it records or waits for (TaskClass.touch).
 * The checker has a vector clock for each stream. It reports two accesses to the same bytes if
 * one of them is a write and neither is ordered before the other. It also reports memory that the
 * host frees or unmaps while a task may still use it, that is, a task that the host has not seen
 * complete.
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
    TOUCH_USE,   /* reads or writes, it is not known which: conflicts with writes only */
    TOUCH_ATOMIC /* a value that streams write and wait for: no conflict, but it must not be freed */
} TouchKind;

/* A point in the order of the device's work, given by a vector clock. A record sets it, a wait
 * reads it; events, notifies and values each have one. */
typedef struct RaceBox RaceBox;

struct Graph;
struct Event;
struct Tensor;

/* ---- called by TaskClass.touch, in which a task states what it does ----------------------------- */
typedef struct Touch Touch;
/* Notes bytes that the task touches. Ordinary host memory, which the simulator does not know, is
 * ignored. */
void touch_bytes(Touch *touch, const void *address, size_t bytes, TouchKind kind);
void touch_rows(Touch *touch, const void *address, size_t pitch, size_t bytes, size_t rows,
                TouchKind kind);
/* Notes a dense tensor; nothing if it has no data, or a negative rank. */
void touch_tensor(Touch *touch, const struct Tensor *tensor, TouchKind kind);
/* Notes those 8-byte words (a kernel's arguments) that are addresses of device memory. */
void touch_pointers(Touch *touch, const void *words, size_t bytes);
/* States that the task is a record: *box becomes the point of this task in the order of work. */
void touch_record(Touch *touch, RaceBox **box);
/* Makes *box, which is NULL, the same box as *other. */
void touch_share(RaceBox **box, RaceBox *const *other);
/* States that the task is a wait: it is ordered after *box. False if *box is NULL. */
bool touch_wait(Touch *touch, RaceBox *const *box);
/* States that the work before the task is known only when the task runs. The task then calls
 * race_take or race_take_host. */
void touch_late(Touch *touch);
/* States that the task calls race_seen or race_put when it runs, which need its point in the order of work. */
void touch_marked(Touch *touch);
/* States that the task chooses at run time which other tasks run, so its bytes are not checked. */
void touch_choice(Touch *touch);
void touch_graph(Touch *touch, const struct Graph *graph);

/* ---- hooks for stream.c and worker.c, which first check races_on() ------------------------------- */
/* Called before a task is queued; the stream's lock is held. */
void race_submitted(Stream *stream, const TaskClass *sort, const void *payload);
void race_begins(Stream *stream, uint64_t number);
void race_ends(Stream *stream, uint64_t number);
/* Returns a box with the point at the end of the stream's queue, for race_saw; NULL if the stream
 * has no checked work or there is no memory. */
RaceBox *race_place(const Stream *stream);
/* Frees the box of race_place. `complete`: the host has seen all work before that point complete. */
void race_saw(RaceBox *box, bool complete);
void race_saw_stream(const Stream *stream);
void race_saw_event(RaceBox *const *box);
/* Called when the stream's work is done or dropped, except for a user's function that may still be running. */
void race_stream_ended(Stream *stream);
void race_stream_gone(Stream *stream);

/* ---- inside a running task ----------------------------------------------------------------------- */
void race_seen(Stream *stream);                    /* the host is ordered after all work before the task */
void race_put(Stream *stream, RaceBox **box);        /* joins the task's point into *box */
void race_take(Stream *stream, RaceBox *const *box); /* the task is ordered after *box */
void race_take_host(Stream *stream);               /* the task is ordered after all that the host has seen complete */
/* Do the same as race_put and race_take for a value in memory, which streams write and wait for.
 * The box is found by the value's address. */
void race_put_value(Stream *stream, const void *address);
void race_take_value(Stream *stream, const void *address);

/* ---- objects ------------------------------------------------------------------------------------- */
void race_drop(RaceBox **box);
/* Orders all work that is queued on the stream from now on after *box. Called when a memory pool
 * hands out a block again. */
void race_follow(Stream *stream, RaceBox *const *box);
/* Returns the one box of all IPC events and shared notifies. Other processes may order streams
 * through them in ways that the checker cannot see, so every record on one counts as ordered before
 * every wait for one. */
RaceBox **race_elsewhere(void);

/* ---- captures: capture.c and graph.c, under the graph's lock -------------------------------------- */
void race_captured_task(struct Graph *graph, uint32_t lane);
void race_captured_record(struct Graph *graph, uint32_t lane, struct Event *event);
void race_captured_wait(struct Graph *graph, uint32_t lane, struct Event *event);
void race_graph_gone(struct Graph *graph);

/* ---- the host and memory ------------------------------------------------------------------------- */
/* Checks bytes that the host itself touches, in the calling thread. */
void race_host(const char *what, const void *address, size_t bytes, TouchKind kind);
/* Checks bytes that the host frees. */
void race_freed(const char *what, uintptr_t address, size_t bytes);
/* Forgets the uses of bytes that the simulator's allocator has taken back; checks nothing. */
void race_forget(uintptr_t address, size_t bytes);
/* Checks the bytes of physical memory whose mapping is removed. */
void race_unmapped(const void *physical, uintptr_t base, size_t bytes);
/* Forgets physical memory that was freed; its address may be used again. */
void race_physical_gone(const void *physical, size_t bytes);

/* ---- control API --------------------------------------------------------------------------------- */
/* Returns the number of findings. */
SIM_SHARED uint64_t acl_sim_races(void);
/* Returns the finding of that index, from 0, as JSON; NULL if there is none. */
SIM_SHARED const char *acl_sim_race(uint64_t index);
/* Writes the calling thread's Python stack, one frame a line, innermost first: "file:line in
 * name". Returns its length, 0 without Python. Called in each thread that queues a task, with or
 * without the interpreter's lock; it must not take that lock. */
typedef size_t (*acl_sim_python_stack)(char *text, size_t size);
SIM_SHARED void acl_sim_races_python(acl_sim_python_stack stack);
/* Writes the program's name for the memory at the address. Returns its length, 0 if there is
 * none. Called in any thread, for each finding; it must not call the API. */
typedef size_t (*acl_sim_tag)(uintptr_t address, char *text, size_t size);
SIM_SHARED void acl_sim_races_tags(acl_sim_tag tag);
/* Mutes the checker (1) or ends the muting (0). While muted, it neither reports nor counts findings; for tests. */
SIM_SHARED void acl_sim_races_mute(int muted);

#endif
