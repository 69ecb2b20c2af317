/* race_inside.h: the interface between the order checker's own files.
 *
 * R1  order      an operation is settled only after all operations that it waits for
 * R2  subsumed   a use is removed from a cell only in two cases: the host has seen the use complete; or the cell
 *                has a later use that conflicts with every access with which the removed use conflicts, and the
 *                later use is a write, or is ordered after the removed one
 * R3  seen       what the host has seen complete is ordered before all work that is queued later
 *
 * Thread rule: everything is guarded by race_lock, a leaf lock, unless a comment says otherwise. */
#ifndef SIM_RACE_INSIDE_H
#define SIM_RACE_INSIDE_H

#include "races/race.h"
#include "races/race_clock.h"

#include <stdio.h>

enum { SITE_FRAMES = 12 };

/* A place in the program from which a function was called; one object for each place, never
 * freed. */
typedef struct RaceSite {
    struct RaceSite *next; /* next place in the same bucket of race_site.c's table */
    uint64_t hash;
    char *python; /* "file:line in name", lines joined by '\n', innermost first; or NULL */
    int depth;    /* number of C frames */
    void *at[SITE_FRAMES]; /* return addresses of the C frames, innermost first */
} RaceSite;

typedef struct RaceTask {
    uint32_t refs;
    uint32_t slot;     /* index of the task's stream or lane in vector clocks */
    uint64_t n;        /* the task's number among the tasks of this slot */
    const char *name;
    const RaceSite *site;
    uint32_t stream;   /* the stream's id; UINT32_MAX: the host */
    int32_t device;
    uint64_t number;   /* number in its stream's queue */
} RaceTask;

/* A range of bytes: offsets in physical memory (`space`), or addresses if `space` is NULL. */
typedef struct RaceBytes {
    const void *space;
    uint64_t begin, end;
    uintptr_t base; /* address of offset 0 in the mapping that the task used */
    TouchKind kind;
} RaceBytes;

struct RaceBox {
    uint32_t refs;
    bool reached; /* the operation that records was settled (R1), so `clock` is valid */
    Clock clock;
};

struct RaceOp;

/* A task for which the worker calls the checker when it runs. */
typedef struct RaceMark {
    struct RaceMark *next;
    uint64_t number;
    struct RaceOp *op; /* the operation, if it is settled only when it has run; else NULL */
    RaceBox *place;    /* the task's point in the order of work */
} RaceMark;

/* A stream, or a lane of a graph. */
typedef struct RaceThread {
    uint32_t slot;         /* index of its tasks' entry in vector clocks */
    uint64_t host_version; /* version of the host's clock that was joined last */
    Clock clock;           /* clock after the operations that are settled */
    struct RaceOp *first, *last; /* operations that are queued and not settled */
    RaceMark *mark, *last_mark; /* queue of the marks of its tasks, oldest first */
    _Atomic uint32_t busy; /* number of marks and of queued operations; if 0, the worker need not call the checker */
    struct RaceThread *next, *previous; /* in the list of all threads */
} RaceThread;

/* One task, record or wait of an operation. */
typedef struct RaceStep {
    RaceThread *thread;
    RaceTask *task;
    RaceBox *after; /* the step is ordered after this point; or NULL */
    RaceBox *place; /* the step sets this point; or NULL */
    bool inner;     /* `after` is a point in the same graph */
    size_t first, count; /* its bytes: index of the first range in RaceOp.bytes, and number of ranges */
} RaceStep;

/* An operation: a task or a graph that was put into a stream's queue. */
typedef struct RaceOp {
    struct RaceOp *next;
    RaceThread *thread;
    uint64_t number;
    /* late: it is settled only when it has run (touch_late). marked: it has a RaceMark (touch_marked).
     * choice: it chooses the tasks that run, so its bytes are not checked (touch_choice). silent: it is
     * settled without reports. is_graph: it is an execution of a graph. */
    bool late, marked, choice, silent, is_graph;
    Clock host; /* what the host had seen complete when the operation was queued; empty if it was settled at once */
    RaceStep *steps;
    size_t step_count, step_room;
    RaceBytes *bytes;
    size_t byte_count, byte_room;
} RaceOp;

struct Touch {
    RaceOp *op;
    RaceThread *thread; /* thread of the next step */
    const char *name;
    const RaceSite *site;
    uint32_t stream;
    int32_t device;
    uint64_t number;
    size_t step; /* index + 1 of the step being built; 0: none */
};

extern pthread_mutex_t race_lock;
extern Clock race_seen_clock;

/* Ends checking with a message: out of memory, or too many streams. */
void race_give_up(const char *why);

/* ---- race.c ---------------------------------------------------------------------------------- */
RaceBox *box_new(void);
RaceBox *box_use(RaceBox *box);
void box_unuse(RaceBox *box);
RaceThread *thread_new(void);
void thread_free(RaceThread *thread);
RaceThread *threads_first(void);

/* ---- race_touch.c; called without race_lock -------------------------------------------------- */
RaceStep *touch_step(Touch *touch);
typedef void (*RaceEmit)(void *context, const RaceBytes *bytes);
/* Functions of the folder `memory` that the checker calls. `memory` includes this folder, so this
 * folder must not include `memory`. Instead, `memory` fills in the table when the library is
 * loaded. */
typedef struct RaceMemory {
    /* Calls `emit` for each piece of memory behind the addresses. */
    void (*resolve)(const void *address, size_t bytes, TouchKind kind, RaceEmit emit, void *context);
    /* Returns how many bytes a kernel that gets the pointer may use; 0 if the simulator does not
     * know the pointer. */
    size_t (*reach)(uintptr_t pointer);
} RaceMemory;
extern RaceMemory race_memory;
void task_unuse(RaceTask *task);
void op_free(RaceOp *op);

/* ---- race_bytes.c ---------------------------------------------------------------------------- */
bool kinds_conflict(TouchKind one, TouchKind other);
void bytes_access(RaceTask *task, const Clock *clock, const RaceBytes *bytes);
/* What the host does with memory. bytes_host reports uses that the clock does not cover; `base` 0
 * means uses through any mapping. */
typedef enum HostAct { HOST_TOUCHES, HOST_FREES, HOST_UNMAPS } HostAct;
void bytes_host(HostAct act, RaceTask *task, const Clock *clock, const RaceBytes *bytes);
/* Calls `tell` for the slot of each task that may have written the bytes. */
void bytes_writers(const RaceBytes *bytes, void (*tell)(void *context, uint32_t slot),
                   void *context);
void bytes_forget(const RaceBytes *bytes, uintptr_t base);
void bytes_space_gone(const void *space, uint64_t bytes);

/* ---- race_site.c ----------------------------------------------------------------------------- */
const RaceSite *site_here(void);
/* Returns the one object for a place: C frames, or a Python stack. NULL without memory. */
const RaceSite *site_intern(void *const *at, int depth, const char *python);
/* Writes the frames of a site, each in a line of its own. */
void site_print(FILE *file, const RaceSite *site);
/* Writes the frames of a site as an array of JSON. */
void site_print_json(FILE *file, const RaceSite *site);

/* ---- race_stack.c ---------------------------------------------------------------------------- */
/* Returns the place of the thread's C stack: the frames outside this library. */
const RaceSite *site_of_stack(void);

/* ---- race_report.c --------------------------------------------------------------------------- */
/* Writes the program's name for the memory at the address (acl_sim_races_tags); false if there is none. */
bool race_tag(uintptr_t address, char *text, size_t size);

typedef struct RaceFinding {
    HostAct act;
    bool is_host; /* `second` was done by the host; else it is a task */
    const RaceTask *first, *second;
    TouchKind first_kind, second_kind;
    uintptr_t begin, end;
    bool queued; /* the first task is still queued behind work that has not run */
} RaceFinding;
void race_report(const RaceFinding *finding);
/* True while findings are not reported. */
bool races_muted(void);
/* Return texts for a report: what the finding is, what an access does, and what the finding's second access does. */
const char *race_act_words(const RaceFinding *finding);
const char *race_kind_word(TouchKind kind);
const char *race_does_word(const RaceFinding *finding);

#endif
