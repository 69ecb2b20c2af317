/* loops.h: the loops around the calls under test, the same for every allocator.

   A processor predicts an indirect call sooner where it has always gone to one place: a loop that had
   called another allocator's functions before was 1.8 ns a pair slower from then on, with any.  So
   each allocator has a copy of the loops to itself, a seat, as a program has that knows one
   allocator.  Seats are aligned alike.  Any thread may run any seat. */
#ifndef ACLPOOL_TOOLS_LOOPS_H
#define ACLPOOL_TOOLS_LOOPS_H

#include <stddef.h>
#include <stdint.h>

typedef struct Allocator {
    void *(*alloc)(void *allocator, size_t size); /* NULL result: no memory */
    void (*free)(void *allocator, void *block);
    void *(*address)(void *block); /* read once for every block, as ACL does */
    void *state;                   /* first argument of alloc and free */
} Allocator;

typedef struct Event {
    uint64_t size; /* bytes asked for; 0: free the block in the slot */
    uint32_t slot;
    uint32_t stream; /* index of the allocator that serves it */
} Event;

enum { LOADS_ALLOCATORS = 64, LOADS_SEATS = 16 };

typedef enum LoadKind { LOAD_PAIRS, LOAD_REPLACE, LOAD_EVENTS } LoadKind;

typedef struct Plan {
    LoadKind kind;
    size_t seat;
    size_t count; /* pairs, replacements or events in one run */
    size_t pair_size;
    Event *events;
    size_t event_count; /* replacements go round in the events */
    void **slots;
    size_t slot_count;
    uint64_t failures; /* allocations that were answered with NULL */
    uintptr_t sink;    /* keeps the read addresses alive */
    Allocator allocators[LOADS_ALLOCATORS];
} Plan;

#define LOOPS_INLINE static inline __attribute__((always_inline))

LOOPS_INLINE void run_pairs(Plan *plan)
{
    Allocator allocator = plan->allocators[0];
    size_t size = plan->pair_size;
    uintptr_t sink = 0;
    for (size_t left = plan->count; left != 0; left--) {
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

LOOPS_INLINE void run_replacements(Plan *plan)
{
    Allocator allocator = plan->allocators[0];
    const Event *event = plan->events;
    const Event *end = plan->events + plan->event_count;
    void **slots = plan->slots;
    uintptr_t sink = 0;
    for (size_t left = plan->count; left != 0; left--) {
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

/* The number in the assembly is all that differs: else the compiler would make them one again. */
#define LOOPS_SEAT(number)                                                                          \
    static __attribute__((noinline, aligned(64), unused)) void seat_##number(                       \
        Plan *plan, size_t first, size_t count)                                                     \
    {                                                                                               \
        __asm__ volatile("" : : "i"(number));                                                       \
        if (plan->kind == LOAD_PAIRS) {                                                             \
            run_pairs(plan);                                                                        \
        } else if (plan->kind == LOAD_REPLACE) {                                                    \
            run_replacements(plan);                                                                 \
        } else {                                                                                    \
            run_events(plan, first, count);                                                         \
        }                                                                                           \
    }

LOOPS_SEAT(0) LOOPS_SEAT(1) LOOPS_SEAT(2) LOOPS_SEAT(3)
LOOPS_SEAT(4) LOOPS_SEAT(5) LOOPS_SEAT(6) LOOPS_SEAT(7)
LOOPS_SEAT(8) LOOPS_SEAT(9) LOOPS_SEAT(10) LOOPS_SEAT(11)
LOOPS_SEAT(12) LOOPS_SEAT(13) LOOPS_SEAT(14) LOOPS_SEAT(15)

/* Runs a load; `first` and `count` are of the events, and mean nothing to the other kinds. */
static inline void plan_run(Plan *plan, size_t first, size_t count)
{
    static void (*const seats[LOADS_SEATS])(Plan *, size_t, size_t) = {
        seat_0, seat_1, seat_2,  seat_3,  seat_4,  seat_5,  seat_6,  seat_7,
        seat_8, seat_9, seat_10, seat_11, seat_12, seat_13, seat_14, seat_15,
    };
    seats[plan->seat](plan, first, count);
}

#endif
