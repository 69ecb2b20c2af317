/* latency.h: runs the loads of loops.h with a clock around each call, or with a write to every block.

   A histogram counts calls by clock ticks: one bucket for each tick below 128, then 64 buckets for each power of
   two.  The clock's own cost is included.  Only _loops.pyx includes this file. */
#ifndef ACLPOOL_TOOLS_LATENCY_H
#define ACLPOOL_TOOLS_LATENCY_H

#include "tools/bench/loops.h"

enum { BUCKETS = 64 * 48, PAGE_BYTES = 4096 };

typedef struct Histogram {
    uint64_t alloc[BUCKETS];
    uint64_t free[BUCKETS];
} Histogram;

static inline size_t bucket_of(uint64_t ticks)
{
    size_t octave = 0;
    while (ticks >= 128) {
        ticks >>= 1;
        octave++;
    }
    size_t bucket = octave * 64 + (size_t)ticks;
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* Returns the least number of ticks that a bucket counts. */
static inline uint64_t bucket_ticks(size_t bucket)
{
    return bucket < 128 ? bucket : (uint64_t)(64 + bucket % 64) << (bucket / 64 - 1);
}

/* Steps to the next event.  At the start of the list, new random replacements are drawn: at most `left`, the number
   that will still run, so that the load's data about its slots is right at the end. */
static inline void plan_next(Plan *plan, Event **event, size_t left)
{
    if (*event == plan->events + plan->event_count) {
        *event = plan->events;
    }
    if (*event == plan->events && plan->draw != NULL) {
        plan_draw(plan, left < plan->event_count ? left : plan->event_count);
    }
}

static inline void *alloc_timed(const Allocator *allocator, size_t size, Plan *plan, Histogram *out)
{
    uint64_t start = ticks_now();
    void *block = allocator->alloc(allocator->state, size);
    if (block != NULL) {
        plan->sink ^= (uintptr_t)allocator->address(block);
    } else {
        plan->failures++;
    }
    out->alloc[bucket_of(ticks_now() - start)]++;
    return block;
}

static inline void free_timed(const Allocator *allocator, void *block, Histogram *out)
{
    if (block == NULL) {
        return;
    }
    uint64_t start = ticks_now();
    allocator->free(allocator->state, block);
    out->free[bucket_of(ticks_now() - start)]++;
}

/* Runs a load once with a clock around each call, and adds the times to the histogram. */
static inline void plan_time(Plan *plan, Histogram *out)
{
    const Allocator *allocator = &plan->allocators[0];
    Event *event = plan->events;
    plan_begin(plan);
    for (size_t left = plan->count; left != 0; left--) {
        if (plan->kind == LOAD_PAIRS) {
            free_timed(allocator, alloc_timed(allocator, plan->pair_size, plan, out), out);
            continue;
        }
        plan_next(plan, &event, left);
        allocator = &plan->allocators[event->stream];
        if (plan->kind == LOAD_REPLACE || event->size == 0) {
            free_timed(allocator, plan->slots[event->slot], out);
            plan->slots[event->slot] = NULL;
        }
        if (event->size != 0) {
            plan->slots[event->slot] = alloc_timed(allocator, event->size, plan, out);
        }
        event++;
    }
}

/* Writes to each page of a block, so that the kernel backs it with memory. */
static inline void block_touch(const Allocator *allocator, void *block, uint64_t size)
{
    volatile char *byte = block == NULL ? NULL : allocator->address(block);
    for (uint64_t at = 0; byte != NULL && at < size; at += PAGE_BYTES) {
        byte[at] = 1;
    }
}

/* Runs `count` replacements or events, and writes to their blocks and to the blocks that were live before.  The
   peak of live bytes starts again here. */
static inline void plan_touch(Plan *plan, size_t count)
{
    uintptr_t sink = 0;
    Event *event = plan->events;
    plan_begin(plan);
    if (plan->draw != NULL) {
        plan->draw->live_peak = plan->draw->live;
    }
    for (size_t slot = 0; plan->draw != NULL && slot < plan->slot_count; slot++) {
        block_touch(&plan->allocators[0], plan->slots[slot], plan->draw->held[slot]);
    }
    for (; count != 0; count--) {
        plan_next(plan, &event, count);
        if (plan->kind == LOAD_REPLACE || event->size == 0) {
            event_free(plan, event);
        }
        if (event->size != 0) {
            event_alloc(plan, event, &sink);
            block_touch(&plan->allocators[event->stream], plan->slots[event->slot], event->size);
        }
        event++;
    }
    plan->sink ^= sink;
}

#endif
