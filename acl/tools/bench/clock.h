/* clock.h: the clocks of the benchmarks, and a pause for spinning threads.

   ticks_now() reads the processor's cheapest monotonic counter, with fences, so that the processor does not move the
   reading into the measured code.  The unit of the counter is unknown; the caller calibrates it with CLOCK_MONOTONIC.
   cpu_ns() and wall_ns() are in nanoseconds.  Any thread may call these functions. */
#ifndef ACLPOOL_TOOLS_CLOCK_H
#define ACLPOOL_TOOLS_CLOCK_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static inline uint64_t wall_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t ticks_now(void)
{
#if defined(__x86_64__)
    _mm_lfence();
    uint64_t ticks = __rdtsc();
    _mm_lfence();
    return ticks;
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(ticks) : : "memory");
    return ticks;
#else
    return wall_ns();
#endif
}

static inline void spin_pause(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#if defined(__linux__)
#include <linux/perf_event.h>
#include <sys/syscall.h>

/* Returns a file descriptor that counts this thread's user-mode instructions, or -1 if the kernel or the
   virtual machine has no such counter. */
static inline int instructions_open(void)
{
    struct perf_event_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.size = sizeof attributes;
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
    attributes.exclude_kernel = 1;
    attributes.exclude_hv = 1;
    return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
}
#else
static inline int instructions_open(void)
{
    return -1;
}
#endif

static inline uint64_t instructions_read(int counter)
{
    uint64_t count = 0;
    if (counter < 0 || read(counter, &count, sizeof count) != (ssize_t)sizeof count)
        return 0;
    return count;
}

static inline void instructions_close(int counter)
{
    if (counter >= 0)
        close(counter);
}

#endif
