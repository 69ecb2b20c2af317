/* checks.h: the functions by which other folders report to the checker of programs (folder
 * `check`, ACL_SIM_CHECK=mem,order,...). The checker fills the table in when the library is
 * loaded. Callers test check_on first.
 *
 * Cost while the checker is off: one relaxed load at each hook.
 *
 * Thread rule: any thread; no lock except those of zones is taken while a lock of the checker is
 * held. */
#ifndef SIM_CHECKS_H
#define SIM_CHECKS_H

#include <stdarg.h>

#include "base/core.h"

enum { CHECK_MEM = 1, CHECK_ORDER = 2, CHECK_LEAK = 4, CHECK_INIT = 8, CHECK_ANY = 15 };

extern atomic_uint check_tools;

static inline bool check_on(unsigned tools)
{
    return __builtin_expect(
        (atomic_load_explicit(&check_tools, memory_order_relaxed) & tools) != 0, 0);
}

struct Arena;
struct Event;
struct RaceBytes;
struct RaceFinding;
struct RaceSite;
struct ZoneView;

typedef struct Checks {
    void (*handle_made)(const void *handle, HandleKind kind);
    void (*handle_gone)(const void *handle);
    /* Called for a call that failed: checks whether one of its arguments was destroyed before. */
    void (*arguments)(const char *function, const char *names, va_list values);
    /* Reports a finding of the order checker. */
    void (*finding)(const struct RaceFinding *finding);
    /* Reports which bytes a task touches, and the place in the program that queued it; called in
     * the order of the tasks. */
    void (*step)(const char *name, const struct RaceSite *site, const struct RaceBytes *bytes,
                 size_t count);
    /* Reports that the thread's call, or a task that it queues, touches bytes. */
    void (*access)(const char *argument, const void *address, size_t bytes, bool write);
    /* Checks a pointer among the arguments of a kernel: reports it if it points into freed memory. */
    void (*pointer)(const char *who, uintptr_t address);
    void (*record_queued)(const struct Event *event, const Stream *stream);
    void (*record_over)(const struct Event *event, const Stream *stream);
    void (*wait_begins)(const struct Event *event, Stream *stream);
    void (*wait_ends)(Stream *stream);
    /* Called when the host waits for `stream`: reports streams that wait for each other, and ends
     * their waits. */
    void (*cycle)(const Stream *stream);
    /* Reports that an object is destroyed while queued tasks hold it. */
    void (*destroyed_in_use)(const void *handle, HandleKind kind);
    /* Called at the last reset of a device, before the reset ends its streams: reports streams that
     * the program did not destroy. */
    void (*device_gone)(int32_t device);
    void (*finalized)(void);
    /* Called after a block was allocated; `size` is the number of bytes that the call asked for. All
     * bytes of a block that a model or an operator allocates for its own use count as written. */
    void (*block_made)(struct Arena *arena, uintptr_t address, size_t size);
    /* Called before a block is freed: notes which call frees it, and checks the bytes behind it. */
    void (*block_freed)(struct Arena *arena, uintptr_t address, const struct ZoneView *view);
    /* Puts a freed block into quarantine: its bytes are subtracted from the accounting now, its
     * addresses are given back (zone_give) when it leaves the quarantine. False, and nothing is
     * done, if the checker has no record of the block. */
    bool (*block_keep)(struct Arena *arena, uintptr_t address, const struct ZoneView *view);
    /* Frees all blocks in quarantine; true if there were any. */
    bool (*quarantine_empty)(void);
    /* Reports a call that tried to free an address that is not a block, or a block of another kind. */
    void (*free_refused)(const void *address);
    /* Reports bytes that a call copies without a task. If `src` is NULL, the call sets the bytes. */
    void (*host_step)(const void *dst, const void *src, size_t bytes);
} Checks;

extern Checks checks;

#endif
