/* checks.h: what the checker of programs (room `check`, ACL_SIM_CHECK=mem,order,...) is told by the rooms
 * below it.  It fills the table in as the library is loaded; whoever calls asks check_on first.
 *
 * Cost when off: one relaxed load at each hook.
 *
 * Thread rule: any thread; the checker's locks are leaves, but for zones' own. */
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
    /* A call failed: were any of its arguments destroyed before? */
    void (*arguments)(const char *function, const char *names, va_list values);
    /* What the order checker found. */
    void (*finding)(const struct RaceFinding *finding);
    /* What a task touches, queued at the site; in the order that tasks have. */
    void (*step)(const char *name, const struct RaceSite *site, const struct RaceBytes *bytes,
                 size_t count);
    /* The call that the thread is in, or a task that it queues, touches bytes. */
    void (*access)(const char *argument, const void *address, size_t bytes, bool write);
    /* Where a kernel was pointed to. */
    void (*pointer)(const char *who, uintptr_t address);
    void (*record_queued)(const struct Event *event, const Stream *stream);
    void (*record_over)(const struct Event *event, const Stream *stream);
    void (*wait_begins)(const struct Event *event, Stream *stream);
    void (*wait_ends)(Stream *stream);
    /* The host waits: reports streams that wait for each other, and lets their waits go. */
    void (*cycle)(const Stream *stream);
    /* An object is destroyed while tasks that are queued hold it. */
    void (*destroyed_in_use)(const void *handle, HandleKind kind);
    /* The device's last reset ends its streams. */
    void (*device_gone)(int32_t device);
    void (*finalized)(void);
    /* `size` is what the call asked for.  What a model or an operator takes for itself counts as
     * written, with all that it has. */
    void (*block_made)(struct Arena *arena, uintptr_t address, size_t size);
    /* Before it is given back: who frees it, and whether what lies behind it is whole. */
    void (*block_freed)(struct Arena *arena, uintptr_t address, const struct ZoneView *view);
    /* A held block, which is charged no more: zone_give comes later.  False: it has no record. */
    bool (*block_keep)(struct Arena *arena, uintptr_t address, const struct ZoneView *view);
    /* Gives all that is kept back; true if there was any. */
    bool (*quarantine_empty)(void);
    /* A call that frees found no such block, or one of another sort. */
    void (*free_refused)(const void *address);
    /* What a call copies or (src NULL) sets itself. */
    void (*host_step)(const void *dst, const void *src, size_t bytes);
} Checks;

extern Checks checks;

#endif
