/* race_inside.h: what the checker's own files share.
 *
 * R1  extension  operations are settled in an order that extends the order they define: one that
 *                waits is settled after what it waits for
 * R2  subsumed   a use is dropped from a cell only for one that is ordered after it and conflicts
 *                with whatever the dropped one would, or if the host has seen it complete
 * R3  seen       what the host has seen complete is ordered before all that is queued later
 *
 * Thread rule: everything under race_lock, a leaf, unless it says otherwise. */
#ifndef SIM_RACE_INSIDE_H
#define SIM_RACE_INSIDE_H

#include "races/race.h"
#include "races/race_clock.h"

enum { SITE_FRAMES = 12 };

/* Where something was called from; interned, never freed. */
typedef struct RaceSite {
    struct RaceSite *next;
    uint64_t hash;
    char *python; /* "file:line in name", lines joined by '\n', innermost first; or NULL */
    int depth;
    void *at[SITE_FRAMES];
} RaceSite;

typedef struct RaceTask {
    uint32_t refs;
    uint32_t slot;     /* place in the clocks: its number `n` among the slot's tasks */
    uint64_t n;
    const char *name;
    const RaceSite *site;
    uint32_t stream;   /* id; UINT32_MAX: the host */
    int32_t device;
    uint64_t number;   /* in its stream's queue */
} RaceTask;

/* Bytes by what backs them: physical memory and an offset in it, or NULL and an address. */
typedef struct RaceBytes {
    const void *space;
    uint64_t begin, end;
    uintptr_t base; /* address of offset 0, as the task knows it */
    TouchKind kind;
} RaceBytes;

struct RaceBox {
    uint32_t refs;
    bool reached; /* the clock is known */
    Clock clock;
};

struct RaceOp;

/* A task that the worker will ask about when it runs. */
typedef struct RaceMark {
    struct RaceMark *next;
    uint64_t number;
    struct RaceOp *op; /* not settled before it ran; else NULL */
    RaceBox *place;
} RaceMark;

/* A stream, or a lane of a graph. */
typedef struct RaceThread {
    uint32_t slot;
    uint64_t host_version; /* of the host's clock when it was last joined */
    Clock clock;           /* of what is settled */
    struct RaceOp *first, *last; /* queued, not settled */
    RaceMark *mark, *last_mark;
    _Atomic uint32_t busy; /* how many of both there are: 0, and its worker has nothing to tell */
    struct RaceThread *next, *previous; /* of all */
} RaceThread;

/* One task, record or wait, in its thread. */
typedef struct RaceStep {
    RaceThread *thread;
    RaceTask *task;
    RaceBox *after; /* comes after that, or NULL */
    RaceBox *place; /* becomes its place, or NULL */
    bool inner;     /* `after` is a place of the same graph */
    size_t first, count; /* its bytes */
} RaceStep;

/* What was put into a stream's queue at once: a task, or a graph. */
typedef struct RaceOp {
    struct RaceOp *next;
    RaceThread *thread;
    uint64_t number;
    bool late, marked, choice, silent, is_graph;
    Clock host; /* what the host had seen when it was queued, for work settled later */
    RaceStep *steps;
    size_t step_count, step_room;
    RaceBytes *bytes;
    size_t byte_count, byte_room;
} RaceOp;

struct Touch {
    RaceOp *op;
    RaceThread *thread; /* of the next step */
    const char *name;
    const RaceSite *site;
    uint32_t stream;
    int32_t device;
    uint64_t number;
    size_t step; /* open one + 1; 0: none */
};

extern pthread_mutex_t race_lock;
extern Clock race_seen_clock;

/* Out of memory, or too many streams: checking ends, with a message. */
void race_give_up(const char *why);

/* race.c */
RaceBox *box_new(void);
RaceBox *box_use(RaceBox *box);
void box_unuse(RaceBox *box);
RaceThread *thread_new(void);
void thread_free(RaceThread *thread);
RaceThread *threads_first(void);

/* race_touch.c; without the lock */
RaceStep *touch_step(Touch *touch);
typedef void (*RaceEmit)(void *context, const RaceBytes *bytes);
/* What the checker asks of the room `memory`, which stands above this one and fills the table in as the
 * library is loaded. */
typedef struct RaceMemory {
    /* Tells the pieces of memory behind the addresses. */
    void (*resolve)(const void *address, size_t bytes, TouchKind kind, RaceEmit emit, void *context);
    /* How many bytes a kernel that is given the pointer may use; 0: it is not of the simulator's. */
    size_t (*reach)(uintptr_t pointer);
} RaceMemory;
extern RaceMemory race_memory;
void task_unuse(RaceTask *task);
void op_free(RaceOp *op);

/* race_bytes.c */
bool kinds_conflict(TouchKind one, TouchKind other);
void bytes_access(RaceTask *task, const Clock *clock, const RaceBytes *bytes);
/* Tells of uses that the clock does not cover; `base` 0: of any mapping. */
typedef enum HostAct { HOST_TOUCHES, HOST_FREES, HOST_UNMAPS } HostAct;
void bytes_host(HostAct act, RaceTask *task, const Clock *clock, const RaceBytes *bytes);
/* The slots of those that may have written the bytes. */
void bytes_writers(const RaceBytes *bytes, void (*tell)(void *context, uint32_t slot),
                   void *context);
void bytes_forget(const RaceBytes *bytes, uintptr_t base);
void bytes_space_gone(const void *space, uint64_t bytes);

/* race_site.c */
const RaceSite *site_here(void);
/* The text of a site, one line for each frame; malloc'ed. */
char *site_text(const RaceSite *site);

/* race_report.c */
/* What is known of the memory at the address: a tag of its owner; false if nothing. */
bool race_tag(uintptr_t address, char *text, size_t size);

typedef struct RaceFinding {
    HostAct act;
    bool is_host; /* `second` is the host's act, else a task */
    const RaceTask *first, *second;
    TouchKind first_kind, second_kind;
    uintptr_t begin, end;
    bool queued; /* the first is still queued behind something */
} RaceFinding;
void race_report(const RaceFinding *finding);
/* Whether findings are left out just now. */
bool races_muted(void);
/* In words: what was found, what an access does, and what the second one did. */
const char *race_act_words(const RaceFinding *finding);
const char *race_kind_word(TouchKind kind);
const char *race_does_word(const RaceFinding *finding);

#endif
