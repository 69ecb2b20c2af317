/* loops.h: the loops around the measured calls, equal for all allocators.

   A processor predicts an indirect call better if the call always had one target: a loop that had called
   another allocator's functions before was slower by 1.8 ns for each pair.  So each allocator has its own
   copy of the loops, called a seat, as in a program that uses only one allocator.  All seats have equal
   alignment.  Any thread may run any seat. */
#ifndef ACLPOOL_TOOLS_LOOPS_H
#define ACLPOOL_TOOLS_LOOPS_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/bench/clock.h"

typedef struct Allocator {
    void *(*alloc)(void *allocator, size_t size); /* returns NULL if there is no memory */
    void (*free)(void *allocator, void *block);
    void *(*address)(void *block); /* read once for every block, as ACL does */
    void *state;                   /* first argument of alloc and free */
} Allocator;

typedef struct Event {
    uint64_t size; /* requested bytes; 0: free the block in the slot */
    uint32_t slot;
    uint32_t stream; /* index of the allocator that serves it */
} Event;

enum { LOADS_ALLOCATORS = 64, LOADS_SEATS = 16 };

typedef enum LoadKind {
    LOAD_PAIRS,
    LOAD_REPLACE,
    LOAD_EVENTS,
    LOAD_PRODUCE, /* allocates, and puts the blocks into a ring */
    LOAD_CONSUME  /* frees the blocks that another thread put into the ring */
} LoadKind;

/* Random replacements are drawn in parts.  Each part is drawn before it is timed, and is played only once. */
typedef struct Draw {
    uint64_t random;       /* state of the generator */
    uint64_t first, step;  /* if `sizes` is NULL: a size in bytes is first + step * k, 0 <= k < size_count */
    uint64_t *sizes;       /* the `size_count` sizes in bytes to draw from, or NULL */
    uint64_t size_count;
    uint64_t *held;        /* bytes of the block in each slot */
    uint32_t *last_run;    /* for each slot, the number of the last run that replaced its block */
    uint32_t run;          /* number of the run, from 1 */
    size_t touched;        /* slots replaced in this run */
    uint64_t live;         /* live bytes in all slots */
    uint64_t live_peak;    /* highest value of `live` since the load was made or touched (plan_touch) */
} Draw;

enum { RING_BLOCKS = 1024 };

typedef struct Ring { /* one producer, one consumer */
    _Alignas(64) size_t written;
    _Alignas(64) size_t read;
    _Alignas(64) void *blocks[RING_BLOCKS];
} Ring;

typedef struct Plan {
    LoadKind kind;
    size_t seat;
    size_t count; /* pairs, replacements or events in one run */
    size_t pair_size;
    Event *events;
    size_t event_count; /* length of `events`; a load of replacements that are drawn draws this many at a time */
    void **slots;
    size_t slot_count;
    Draw *draw; /* NULL if the events are given */
    Ring *ring; /* of a producer and its consumer; else NULL */
    uint64_t failures; /* allocations that returned NULL */
    uintptr_t sink;    /* consumes the addresses, so that reading them is not optimised away */
    Allocator allocators[LOADS_ALLOCATORS];
} Plan;

/* ---- drawing ---- */

static inline uint64_t draw_random(Draw *draw, uint64_t below)
{
    uint64_t mixed = draw->random += 0x9E3779B97F4A7C15u; /* splitmix64 */
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    mixed ^= mixed >> 31;
    return (uint64_t)(((unsigned __int128)mixed * below) >> 64);
}

static inline uint64_t draw_size(Draw *draw)
{
    uint64_t k = draw_random(draw, draw->size_count);
    return draw->sizes != NULL ? draw->sizes[k] : draw->first + draw->step * k;
}

static inline void draw_note(Draw *draw, uint32_t slot, uint64_t size)
{
    draw->live += size - draw->held[slot];
    draw->held[slot] = size;
    if (draw->live > draw->live_peak) {
        draw->live_peak = draw->live;
    }
    draw->touched += draw->last_run[slot] != draw->run;
    draw->last_run[slot] = draw->run;
}

/* Draws the next `count` replacements; the plan must have room for them. */
static inline void plan_draw(Plan *plan, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        Event *event = &plan->events[i];
        event->slot = (uint32_t)draw_random(plan->draw, plan->slot_count);
        event->size = draw_size(plan->draw);
        draw_note(plan->draw, event->slot, event->size);
    }
}

static inline void plan_begin(Plan *plan)
{
    if (plan->draw != NULL) {
        plan->draw->run++;
        plan->draw->touched = 0;
    }
}

#define LOOPS_INLINE static inline __attribute__((always_inline))

LOOPS_INLINE void run_pairs(Plan *plan, size_t count)
{
    Allocator allocator = plan->allocators[0];
    size_t size = plan->pair_size;
    uintptr_t sink = 0;
    for (size_t left = count; left != 0; left--) {
        void *block = allocator.alloc(allocator.state, size);
        if (block == NULL) {
            plan->failures++;
            continue;
        }
        sink ^= (uintptr_t)allocator.address(block);
        allocator.free(allocator.state, block);
    }
    plan->sink ^= sink;
}

LOOPS_INLINE void run_replacements(Plan *plan, size_t count)
{
    Allocator allocator = plan->allocators[0];
    const Event *event = plan->events;
    const Event *end = plan->events + plan->event_count;
    void **slots = plan->slots;
    uintptr_t sink = 0;
    for (size_t left = count; left != 0; left--) {
        void *block = slots[event->slot];
        if (block != NULL) {
            allocator.free(allocator.state, block);
        }
        block = allocator.alloc(allocator.state, event->size);
        slots[event->slot] = block;
        if (block != NULL) {
            sink ^= (uintptr_t)allocator.address(block);
        } else {
            plan->failures++;
        }
        if (++event == end) {
            event = plan->events;
        }
    }
    plan->sink ^= sink;
}

LOOPS_INLINE void event_alloc(Plan *plan, const Event *event, uintptr_t *sink)
{
    const Allocator *allocator = &plan->allocators[event->stream];
    void *block = allocator->alloc(allocator->state, event->size);
    plan->slots[event->slot] = block;
    if (block == NULL) {
        plan->failures++;
        return;
    }
    *sink ^= (uintptr_t)allocator->address(block);
}

LOOPS_INLINE void event_free(Plan *plan, const Event *event)
{
    const Allocator *allocator = &plan->allocators[event->stream];
    void *block = plan->slots[event->slot];
    plan->slots[event->slot] = NULL;
    if (block != NULL) {
        allocator->free(allocator->state, block);
    }
}

LOOPS_INLINE void run_events(Plan *plan, size_t first, size_t count)
{
    uintptr_t sink = 0;
    const Event *end = plan->events + first + count;
    for (const Event *event = plan->events + first; event != end; event++) {
        if (event->size != 0) {
            event_alloc(plan, event, &sink);
        } else {
            event_free(plan, event);
        }
    }
    plan->sink ^= sink;
}

/* Waits for the other thread of a ring.  Sometimes yields the processor, which the other thread may need. */
LOOPS_INLINE void ring_wait(size_t *spins)
{
    if (++*spins % 256 == 0) {
        sched_yield();
    } else {
        spin_pause();
    }
}

LOOPS_INLINE void run_producer(Plan *plan, size_t count)
{
    Allocator allocator = plan->allocators[0];
    Ring *ring = plan->ring;
    const Event *event = plan->events;
    const Event *end = plan->events + plan->event_count;
    uintptr_t sink = 0;
    size_t spins = 0;
    for (size_t left = count; left != 0; left--) {
        size_t at = ring->written; /* only this thread writes it */
        void *block = allocator.alloc(allocator.state, event->size);
        if (block != NULL) {
            sink ^= (uintptr_t)allocator.address(block);
        } else {
            plan->failures++;
        }
        while (at - __atomic_load_n(&ring->read, __ATOMIC_ACQUIRE) == RING_BLOCKS) {
            ring_wait(&spins);
        }
        ring->blocks[at % RING_BLOCKS] = block;
        __atomic_store_n(&ring->written, at + 1, __ATOMIC_RELEASE);
        if (++event == end) {
            event = plan->events;
        }
    }
    plan->sink ^= sink;
}

LOOPS_INLINE void run_consumer(Plan *plan, size_t count)
{
    Allocator allocator = plan->allocators[0];
    Ring *ring = plan->ring;
    size_t spins = 0;
    for (size_t left = count; left != 0; left--) {
        size_t at = ring->read; /* only this thread writes it */
        while (__atomic_load_n(&ring->written, __ATOMIC_ACQUIRE) == at) {
            ring_wait(&spins);
        }
        void *block = ring->blocks[at % RING_BLOCKS];
        if (block != NULL) {
            allocator.free(allocator.state, block);
        }
        __atomic_store_n(&ring->read, at + 1, __ATOMIC_RELEASE);
    }
}

/* The copies differ only in the number in the assembly; without it, the compiler would merge them. */
#define LOOPS_SEAT(number)                                                                          \
    static __attribute__((noinline, aligned(64), unused)) void seat_##number(                       \
        Plan *plan, size_t first, size_t count)                                                     \
    {                                                                                               \
        __asm__ volatile("" : : "i"(number));                                                       \
        if (plan->kind == LOAD_PAIRS) {                                                             \
            run_pairs(plan, count);                                                                 \
        } else if (plan->kind == LOAD_REPLACE) {                                                    \
            run_replacements(plan, count);                                                          \
        } else if (plan->kind == LOAD_PRODUCE) {                                                    \
            run_producer(plan, count);                                                              \
        } else if (plan->kind == LOAD_CONSUME) {                                                    \
            run_consumer(plan, count);                                                              \
        } else {                                                                                    \
            run_events(plan, first, count);                                                         \
        }                                                                                           \
    }

LOOPS_SEAT(0) LOOPS_SEAT(1) LOOPS_SEAT(2) LOOPS_SEAT(3)
LOOPS_SEAT(4) LOOPS_SEAT(5) LOOPS_SEAT(6) LOOPS_SEAT(7)
LOOPS_SEAT(8) LOOPS_SEAT(9) LOOPS_SEAT(10) LOOPS_SEAT(11)
LOOPS_SEAT(12) LOOPS_SEAT(13) LOOPS_SEAT(14) LOOPS_SEAT(15)

/* Runs `count` pairs, replacements or events; `first` is the first event, and is ignored by other loads. */
static inline void plan_run(Plan *plan, size_t first, size_t count)
{
    static void (*const seats[LOADS_SEATS])(Plan *, size_t, size_t) = {
        seat_0, seat_1, seat_2,  seat_3,  seat_4,  seat_5,  seat_6,  seat_7,
        seat_8, seat_9, seat_10, seat_11, seat_12, seat_13, seat_14, seat_15,
    };
    seats[plan->seat](plan, first, count);
}

#endif
