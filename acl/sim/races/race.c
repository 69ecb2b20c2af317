/* race.c: the order checker's clocks: for each operation it decides which earlier work comes before
 * it.
 *
 * An operation is a task, or an execution of a graph. To settle an operation means two things.
 * First, its stream's clock is joined with the clocks of the work that the host has seen complete
 * and of the work that the operation waits for. Then the bytes that the operation uses are checked.
 * An operation is settled when it is queued, if possible. If the work that it waits for is known
 * only at run time (a host function, a notify, a value), the operation and all behind it in the
 * stream are settled when it has run (R1).
 *
 * Thread rule: race_lock. */
#include "base/checks.h"
#include "races/race_inside.h"
#include "streams/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS_MOST = 1 << 16, RETIRED_LOOK = 16 };

atomic_bool race_active;
pthread_mutex_t race_lock = PTHREAD_MUTEX_INITIALIZER;
FORK_TAKES(race_lock);
Clock race_seen_clock;

static uint64_t seen_version = 1;
static uint64_t slot_tasks[SLOTS_MOST]; /* number of the last task of each slot (entry of the clocks) */
static uint32_t slot_count;
static uint32_t retired[SLOTS_MOST];    /* slots that may be used again when the host has seen all of their tasks */
static uint32_t retired_count;
static RaceThread *threads;
static RaceBox *elsewhere;

void race_give_up(const char *why)
{
    if (atomic_exchange(&race_active, false)) {
        fprintf(stderr, "acl.sim: races: %s; nothing is checked from now on\n", why);
    }
}

static void must(bool done)
{
    if (!done) {
        race_give_up("out of host memory");
    }
}

/* ---- boxes --------------------------------------------------------------------------------------- */

RaceBox *box_new(void)
{
    RaceBox *box = calloc(1, sizeof *box);
    must(box != NULL);
    if (box != NULL) {
        box->refs = 1;
    }
    return box;
}

RaceBox *box_use(RaceBox *box)
{
    box->refs++;
    return box;
}

void box_unuse(RaceBox *box)
{
    if (box != NULL && --box->refs == 0) {
        clock_free(&box->clock);
        free(box);
    }
}

static void box_reach(RaceBox *box, const Clock *clock)
{
    must(clock_join(&box->clock, clock));
    box->reached = true;
}

void race_drop(RaceBox **box)
{
    pthread_mutex_lock(&race_lock);
    box_unuse(*box);
    *box = NULL;
    pthread_mutex_unlock(&race_lock);
}

RaceBox **race_elsewhere(void)
{
    return &elsewhere;
}

/* ---- threads ------------------------------------------------------------------------------------- */

/* Returns one of the first RETIRED_LOOK retired slots if the host has seen all of its tasks
 * complete, else a new slot; SLOTS_MOST if there is none. */
static uint32_t slot_take(void)
{
    for (uint32_t i = 0; i < retired_count && i < RETIRED_LOOK; i++) {
        uint32_t slot = retired[i];
        if (clock_get(&race_seen_clock, slot) >= slot_tasks[slot]) {
            retired[i] = retired[--retired_count];
            return slot;
        }
    }
    return slot_count < SLOTS_MOST ? slot_count++ : SLOTS_MOST;
}

RaceThread *thread_new(void)
{
    RaceThread *thread = calloc(1, sizeof *thread);
    uint32_t slot = thread == NULL ? SLOTS_MOST : slot_take();
    if (slot == SLOTS_MOST) {
        free(thread);
        race_give_up("too many streams");
        return NULL;
    }
    thread->slot = slot;
    thread->next = threads;
    if (threads != NULL) {
        threads->previous = thread;
    }
    threads = thread;
    return thread;
}

RaceThread *threads_first(void)
{
    return threads;
}

void thread_free(RaceThread *thread)
{
    if (thread->next != NULL) {
        thread->next->previous = thread->previous;
    }
    if (thread->previous != NULL) {
        thread->previous->next = thread->next;
    } else {
        threads = thread->next;
    }
    retired[retired_count++] = thread->slot;
    clock_free(&thread->clock);
    free(thread);
}

/* ---- settling ------------------------------------------------------------------------------------ */

static void host_join(const Clock *clock)
{
    if (!clock_covers(&race_seen_clock, clock)) {
        must(clock_join(&race_seen_clock, clock));
        seen_version++;
    }
}

static void step_settle(const RaceOp *op, const RaceStep *step)
{
    RaceThread *thread = step->thread;
    if (step->after != NULL) {
        must(clock_join(&thread->clock, &step->after->clock));
    }
    if (step->task != NULL) {
        uint64_t n = ++slot_tasks[thread->slot];
        step->task->slot = thread->slot;
        step->task->n = n;
        must(clock_raise(&thread->clock, thread->slot, n));
        bool looks = !op->silent && !op->choice;
        if (looks && check_on(CHECK_INIT)) {
            checks.step(step->task->name, step->task->site, &op->bytes[step->first], step->count);
        }
        for (size_t i = step->first; looks && races_on() && i < step->first + step->count; i++) {
            bytes_access(step->task, &thread->clock, &op->bytes[i]);
        }
    }
    if (step->place != NULL) {
        box_reach(step->place, &thread->clock);
    }
}

/* Settles an operation. If it is settled later than it was queued, `op->host` is the host's clock
 * from the time when it was queued, and is joined here. Otherwise the caller has joined the host's
 * present clock. */
static void op_settle(RaceOp *op)
{
    RaceThread *thread = op->thread;
    if (op->host.at != NULL) {
        must(clock_join(&thread->clock, &op->host));
    }
    for (size_t i = 0; op->is_graph && i < op->step_count; i++) {
        must(clock_join(&op->steps[i].thread->clock, &thread->clock));
    }
    for (size_t i = 0; i < op->step_count; i++) {
        step_settle(op, &op->steps[i]);
    }
    for (size_t i = 0; op->is_graph && i < op->step_count; i++) {
        must(clock_join(&thread->clock, &op->steps[i].thread->clock));
    }
}

/* True if all work that the operation waits for is settled. */
static bool op_is_ready(const RaceOp *op)
{
    bool ready = !op->late;
    for (size_t i = 0; ready && i < op->step_count; i++) {
        ready = op->steps[i].after == NULL || op->steps[i].after->reached || op->steps[i].inner;
    }
    return ready;
}

static void op_pop(RaceThread *thread)
{
    RaceOp *op = thread->first;
    thread->first = op->next;
    atomic_fetch_sub(&thread->busy, 1);
    if (thread->first == NULL) {
        thread->last = NULL;
    }
    op_settle(op);
    op_free(op);
}

/* Settles operations of all threads until no further one can be settled. */
static void all_settle(void)
{
    for (bool more = true; more;) {
        more = false;
        for (RaceThread *thread = threads; thread != NULL; thread = thread->next) {
            while (thread->first != NULL && op_is_ready(thread->first)) {
                op_pop(thread);
                more = true;
            }
        }
    }
}

/* Called before an operation is settled as soon as it is queued: joins the clock of all work that the
 * host has seen complete by now (race_seen_clock) into the thread's clock. */
static void thread_catch_up(RaceThread *thread)
{
    if (thread->host_version != seen_version) {
        must(clock_join(&thread->clock, &race_seen_clock));
        thread->host_version = seen_version;
    }
}

static void mark_add(RaceThread *thread, RaceOp *op)
{
    RaceMark *mark = calloc(1, sizeof *mark);
    RaceBox *place = mark == NULL ? NULL : box_new();
    if (place == NULL) {
        free(mark);
        race_give_up("out of host memory");
        return;
    }
    *mark = (RaceMark){.number = op->number, .op = op->late ? op : NULL, .place = place};
    if (thread->mark == NULL) {
        thread->mark = mark;
    } else {
        thread->last_mark->next = mark;
    }
    thread->last_mark = mark;
    atomic_fetch_add(&thread->busy, 1);
    if (!op->late) {
        Touch touch = {.op = op, .thread = thread};
        RaceStep *step = touch_step(&touch);
        if (step != NULL) {
            step->place = box_use(place);
        }
    }
}

/* Takes the operation over: settles it now, or queues it until it can be settled. */
static void op_submit(RaceThread *thread, RaceOp *op)
{
    if (op->marked) {
        mark_add(thread, op);
    }
    if (thread->first == NULL && op_is_ready(op)) {
        thread_catch_up(thread);
        op_settle(op);
        op_free(op);
        return;
    }
    must(clock_join(&op->host, &race_seen_clock));
    atomic_fetch_add(&thread->busy, 1);
    if (thread->first == NULL) {
        thread->first = op;
    } else {
        thread->last->next = op;
    }
    thread->last = op;
}

/* Returns the stream's RaceThread, which it makes if needed; race_lock is held. */
static RaceThread *thread_of(Stream *stream)
{
    if (stream->race == NULL) {
        stream->race = thread_new();
    }
    return stream->race;
}

void race_submitted(Stream *stream, const TaskClass *sort, const void *payload)
{
    RaceOp *op = sort->touch == NULL ? NULL : calloc(1, sizeof *op);
    if (op == NULL) {
        must(sort->touch == NULL);
        return;
    }
    pthread_mutex_lock(&race_lock);
    op->thread = thread_of(stream);
    pthread_mutex_unlock(&race_lock);
    op->number = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    Touch touch = {.op = op, .thread = op->thread, .name = sort->name, .site = site_here(),
                   .stream = stream->id, .device = stream->device, .number = op->number};
    if (op->thread == NULL) {
        op_free(op);
        return;
    }
    sort->touch(payload, &touch);
    pthread_mutex_lock(&race_lock);
    op_submit(op->thread, op);
    pthread_mutex_unlock(&race_lock);
}

/* ---- the worker ---------------------------------------------------------------------------------- */

/* Returns the mark of the task that the stream is running, or NULL; race_lock is held. */
static RaceMark *mark_here(const Stream *stream)
{
    RaceMark *mark = stream->race == NULL ? NULL : stream->race->mark;
    uint64_t running = atomic_load_explicit(&stream->completed, memory_order_relaxed);
    return mark != NULL && mark->number == running ? mark : NULL;
}

/* True if the worker has to call the checker. `busy` is up to date here, because the submitter raised it
 * before the worker could see the task. */
static bool worker_is_asked(const Stream *stream)
{
    return stream->race != NULL && atomic_load(&stream->race->busy) != 0;
}

void race_begins(Stream *stream, uint64_t number)
{
    if (!worker_is_asked(stream)) {
        return;
    }
    pthread_mutex_lock(&race_lock);
    RaceThread *thread = stream->race;
    RaceMark *mark = thread == NULL ? NULL : thread->mark;
    if (mark != NULL && mark->number == number && mark->op != NULL && thread->first == mark->op) {
        must(clock_join(&thread->clock, &mark->op->host));
        box_reach(mark->place, &thread->clock);
    }
    pthread_mutex_unlock(&race_lock);
}

void race_ends(Stream *stream, uint64_t number)
{
    if (!worker_is_asked(stream)) {
        return;
    }
    pthread_mutex_lock(&race_lock);
    RaceThread *thread = stream->race;
    RaceMark *mark = thread == NULL ? NULL : thread->mark;
    if (mark != NULL && mark->number == number) {
        if (mark->op != NULL) {
            mark->op->late = false;
        }
        thread->mark = mark->next;
        atomic_fetch_sub(&thread->busy, 1);
        box_unuse(mark->place);
        free(mark);
    }
    if (thread != NULL && thread->first != NULL) {
        all_settle();
        /* An operation that has run but is not settled has waited for other work than the checker
         * assumed. It is settled without reports. */
        while (thread->first != NULL && thread->first->number <= number) {
            thread->first->silent = true;
            op_pop(thread);
        }
        all_settle();
    }
    pthread_mutex_unlock(&race_lock);
}

void race_seen(Stream *stream)
{
    pthread_mutex_lock(&race_lock);
    const RaceMark *mark = mark_here(stream);
    if (mark != NULL) {
        host_join(&mark->place->clock);
    }
    pthread_mutex_unlock(&race_lock);
}

static void put(const Stream *stream, RaceBox **box)
{
    const RaceMark *mark = mark_here(stream);
    if (*box == NULL) {
        *box = box_new();
    }
    if (mark != NULL && *box != NULL) {
        box_reach(*box, &mark->place->clock);
    }
}

void race_put(Stream *stream, RaceBox **box)
{
    pthread_mutex_lock(&race_lock);
    put(stream, box);
    pthread_mutex_unlock(&race_lock);
}

void race_take(Stream *stream, RaceBox *const *box)
{
    pthread_mutex_lock(&race_lock);
    if (stream->race != NULL && *box != NULL) {
        must(clock_join(&stream->race->clock, &(*box)->clock));
    }
    pthread_mutex_unlock(&race_lock);
}

void race_take_host(Stream *stream)
{
    pthread_mutex_lock(&race_lock);
    if (stream->race != NULL) {
        must(clock_join(&stream->race->clock, &race_seen_clock));
    }
    pthread_mutex_unlock(&race_lock);
}

/* ---- values: all values of a hash bucket share a box, which can only hide findings --------------- */

enum { VALUES = 4096 };

static RaceBox *values[VALUES];

static void value_key(void *context, const RaceBytes *bytes)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)bytes->space ^ bytes->begin)
                     * UINT64_C(0x9e3779b97f4a7c15);
    *(RaceBox ***)context = &values[mixed >> 52];
}

static RaceBox **value_box(const void *address)
{
    RaceBox **box = &values[0];
    race_memory.resolve(address, 1, TOUCH_ATOMIC, value_key, &box);
    return box;
}

void race_put_value(Stream *stream, const void *address)
{
    race_put(stream, value_box(address));
}

/* Joins the clock of the slot's thread into the clock `context`. A task of this thread may have
 * written the value, so all of the thread's work so far counts as done before the wait ends. */
static void writer_take(void *context, uint32_t slot)
{
    for (const RaceThread *thread = threads; thread != NULL; thread = thread->next) {
        if (thread->slot == slot) {
            must(clock_join(context, &thread->clock));
        }
    }
}

static void writers_take(void *context, const RaceBytes *bytes)
{
    const Stream *stream = context;
    pthread_mutex_lock(&race_lock);
    if (stream->race != NULL) {
        bytes_writers(bytes, writer_take, &stream->race->clock);
    }
    pthread_mutex_unlock(&race_lock);
}

void race_take_value(Stream *stream, const void *address)
{
    race_take(stream, value_box(address));
    race_take_host(stream);
    race_memory.resolve(address, sizeof(uint64_t), TOUCH_ATOMIC, writers_take, stream);
}

/* ---- what the host sees -------------------------------------------------------------------------- */

RaceBox *race_place(const Stream *stream)
{
    RaceBox *box = NULL;
    pthread_mutex_lock(&race_lock);
    RaceThread *thread = stream->race;
    RaceOp *op = thread == NULL ? NULL : calloc(1, sizeof *op);
    box = op == NULL ? NULL : box_new();
    if (box != NULL) {
        op->thread = thread;
        op->number = atomic_load_explicit(&stream->submitted, memory_order_relaxed) - 1;
        Touch touch = {.op = op, .thread = thread};
        RaceStep *step = touch_step(&touch);
        if (step != NULL) {
            step->place = box_use(box);
        }
        op_submit(thread, op);
    } else {
        free(op);
    }
    pthread_mutex_unlock(&race_lock);
    return box;
}

void race_saw(RaceBox *box, bool complete)
{
    pthread_mutex_lock(&race_lock);
    if (complete) {
        host_join(&box->clock);
    }
    box_unuse(box);
    pthread_mutex_unlock(&race_lock);
}

void race_saw_stream(const Stream *stream)
{
    RaceBox *place = race_place(stream);
    if (place != NULL) {
        race_saw(place, true);
    }
}

void race_saw_event(RaceBox *const *box)
{
    pthread_mutex_lock(&race_lock);
    if (*box != NULL) {
        host_join(&(*box)->clock);
    }
    pthread_mutex_unlock(&race_lock);
}

void race_follow(Stream *stream, RaceBox *const *box)
{
    pthread_mutex_lock(&race_lock);
    RaceThread *thread = thread_of(stream);
    if (thread != NULL && *box != NULL) {
        must(clock_join(&thread->clock, &(*box)->clock));
    }
    pthread_mutex_unlock(&race_lock);
}

/* Settles all queued operations of the thread without reports; race_lock is held. */
static void thread_flush(RaceThread *thread)
{
    for (RaceMark *mark = thread->mark; mark != NULL; mark = mark->next) {
        mark->op = NULL;
    }
    while (thread->first != NULL) {
        thread->first->silent = true;
        op_pop(thread);
    }
}

void race_stream_ended(Stream *stream)
{
    pthread_mutex_lock(&race_lock);
    if (stream->race != NULL) {
        thread_flush(stream->race);
        host_join(&stream->race->clock);
        all_settle();
    }
    pthread_mutex_unlock(&race_lock);
}

void race_stream_gone(Stream *stream)
{
    pthread_mutex_lock(&race_lock);
    RaceThread *thread = stream->race;
    stream->race = NULL;
    if (thread != NULL) {
        thread_flush(thread);
        host_join(&thread->clock); /* the thread that ends the stream waits for its worker, so it sees all work
                                      complete */
    }
    while (thread != NULL && thread->mark != NULL) {
        RaceMark *next = thread->mark->next;
        box_unuse(thread->mark->place);
        free(thread->mark);
        thread->mark = next;
    }
    if (thread != NULL) {
        thread_free(thread);
        all_settle();
    }
    pthread_mutex_unlock(&race_lock);
}
