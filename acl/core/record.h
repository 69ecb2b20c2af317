/* The clock, the thread numbers and the C stacks of a recording.

   `ticks_now` reads the processor's counter if that is the same on all cores and never stops, otherwise
   CLOCK_MONOTONIC.  `ticks_to_ns` converts the result to nanoseconds of CLOCK_MONOTONIC.  Each different C stack is
   kept once, in a table of fixed size.  If the table is full, a new stack gets the number 0, which means "none".

   Any thread may call all functions here, without the GIL.  A thread that holds the table's lock takes no other lock,
   and no thread takes it under an arena's lock. */
#ifndef ACL_CORE_RECORD_H
#define ACL_CORE_RECORD_H

#include <execinfo.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "core/lock.h"

enum {
    STACK_DEPTH = 32,        /* most frames that are kept of a C stack: the innermost ones */
    STACK_SLOTS = 1 << 15,   /* most different C stacks */
    STACK_FRAMES = 1 << 19,  /* most frames of all C stacks together */
};

typedef struct ThreadNotes {
    uint32_t number; /* the system's number of the thread; 0: not read yet */
    uint32_t stack;  /* number of the Python stack that called into C; 0: none */
    uint32_t native; /* number of its C stack; valid from `record_enter` to the event */
    uint32_t trims;  /* 1: the thread gives memory to the driver, so its EVENT_UNMAP events have the detail 0 */
} ThreadNotes;

typedef struct NativeStack {
    uint64_t hash;
    uint32_t first; /* index of the stack's first frame in `native_frames` */
    uint32_t count; /* number of frames; 0: the slot is free */
} NativeStack;

static __thread ThreadNotes thread_notes;
static bool ticks_counted; /* true: `ticks_now` reads the processor's counter */
static uint64_t base_ticks, base_ns;
static SpinLock native_lock;
static NativeStack *native_stacks;
static void **native_frames;
static uint32_t native_used;
static uint64_t native_lost;

static inline uint64_t clock_monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t ticks_now(void) {
#if defined(__x86_64__)
    if (__builtin_expect(ticks_counted, 1)) {
        return __rdtsc();
    }
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
    return clock_monotonic_ns();
}

/* Reads both clocks at nearly the same time: makes a few pairs of reads and keeps the pair that was read fastest. */
static inline void clocks_read(uint64_t *ns, uint64_t *ticks) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 8 && least > 1000; i++) {
        uint64_t before = clock_monotonic_ns();
        uint64_t between = ticks_now();
        uint64_t apart = clock_monotonic_ns() - before;
        if (apart < least) {
            least = apart;
            *ns = before + apart / 2;
            *ticks = between;
        }
    }
}

/* Chooses the clock and notes its start time. Called once, before the first event. */
static inline void ticks_start(void) {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    ticks_counted = __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
#endif
    clocks_read(&base_ns, &base_ticks);
}

/* Returns nanoseconds of CLOCK_MONOTONIC. The counter's rate is measured over the whole time since `ticks_start`. */
static inline uint64_t ticks_to_ns(uint64_t ticks) {
    double rate;
    uint64_t now_ns = 0, now = 0;
    clocks_read(&now_ns, &now);
#if !defined(__aarch64__)
    if (!ticks_counted) {
        return ticks;
    }
#endif
    if (now <= base_ticks || now_ns <= base_ns) {
        return base_ns;
    }
    rate = (double)(now_ns - base_ns) / (double)(now - base_ticks);
    return base_ns + (uint64_t)((double)(ticks > base_ticks ? ticks - base_ticks : 0) * rate);
}

static inline uint32_t thread_number(ThreadNotes *notes) {
    if (__builtin_expect(notes->number == 0, 0)) {
        notes->number = (uint32_t)syscall(SYS_gettid);
    }
    return notes->number;
}

static inline ThreadNotes *thread_here(void) {
    return &thread_notes;
}

static inline void *pages_take(size_t bytes) {
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* Makes the system back the addresses with memory before they are first used, by large pages if possible. */
static inline void pages_ready(void *base, size_t bytes) {
    char *at = base;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
#ifdef MADV_HUGEPAGE
    (void)madvise(base, bytes / page * page, MADV_HUGEPAGE);
#endif
    for (size_t offset = 0; offset < bytes; offset += page) {
        *(volatile char *)(at + offset) = 0;
    }
}

static inline void pages_drop(void *base, size_t bytes) {
    munmap(base, bytes);
}

/* Makes the table. Calls `backtrace` once, as its first call loads a library. Returns false if there is no memory. */
static inline bool native_start(void) {
    void *first[2];
    if (native_frames == NULL) {
        native_frames = pages_take(STACK_FRAMES * sizeof(void *));
    }
    if (native_frames != NULL && native_stacks == NULL) { /* after the frames, as `native_here` tests only the stacks */
        native_stacks = pages_take(STACK_SLOTS * sizeof(NativeStack));
    }
    return native_stacks != NULL && backtrace(first, 2) >= 0;
}

/* Returns the number of a stack, 1 or more; adds the stack if it is new. Returns 0 if the table is full. */
static inline uint32_t native_intern(void **frames, uint32_t count) {
    uint64_t hash = 0xcbf29ce484222325u;
    uint32_t slot;
    for (uint32_t i = 0; i < count; i++) {
        hash = (hash ^ (uint64_t)(uintptr_t)frames[i]) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    slot = (uint32_t)(hash >> 7) % STACK_SLOTS;
    spin_enter(&native_lock);
    for (uint32_t tries = 0; tries < 64; tries++, slot = (slot + 1) % STACK_SLOTS) {
        NativeStack *stack = &native_stacks[slot];
        if (stack->count == 0) {
            if (native_used + count > STACK_FRAMES) {
                break;
            }
            *stack = (NativeStack){.hash = hash, .first = native_used, .count = count};
            memcpy(&native_frames[native_used], frames, count * sizeof(void *));
            native_used += count;
            spin_leave(&native_lock);
            return slot + 1;
        }
        if (stack->hash == hash && stack->count == count &&
            memcmp(&native_frames[stack->first], frames, count * sizeof(void *)) == 0) {
            spin_leave(&native_lock);
            return slot + 1;
        }
    }
    native_lost++;
    spin_leave(&native_lock);
    return 0;
}

static inline uint32_t native_here(void) {
    void *frames[STACK_DEPTH];
    int count = native_stacks == NULL ? 0 : backtrace(frames, STACK_DEPTH);
    return count > 0 ? native_intern(frames, (uint32_t)count) : 0;
}

/* Copies the frames of the stack with this number to `frames`. Returns the number of frames. */
static inline uint32_t native_read(uint32_t number, void **frames) {
    uint32_t count = 0;
    if (native_stacks == NULL || number == 0 || number > STACK_SLOTS) {
        return 0;
    }
    spin_enter(&native_lock);
    count = native_stacks[number - 1].count;
    memcpy(frames, &native_frames[native_stacks[number - 1].first], count * sizeof(void *));
    spin_leave(&native_lock);
    return count;
}

#endif
