/* race_memory.c: checks what the host does to memory: its own copies, frees and unmaps.
 *
 * Thread rule: any thread; see race.h. */
#include "races/race_inside.h"

typedef struct HostLook {
    HostAct act;
    RaceTask task;
} HostLook;

/* Checks the tasks of an operation that is queued and not settled: the clocks do not contain them yet. */
static void queued_check(HostLook *look, const RaceOp *op, const RaceBytes *bytes)
{
    for (size_t s = 0; s < op->step_count; s++) {
        const RaceStep *step = &op->steps[s];
        for (size_t i = step->first; step->task != NULL && i < step->first + step->count; i++) {
            const RaceBytes *used = &op->bytes[i];
            bool hits = look->act == HOST_FREES
                        || (look->act == HOST_UNMAPS && used->base == bytes->base)
                        || (look->act == HOST_TOUCHES && kinds_conflict(used->kind, bytes->kind));
            uint64_t begin = used->begin > bytes->begin ? used->begin : bytes->begin;
            uint64_t end = used->end < bytes->end ? used->end : bytes->end;
            if (hits && used->space == bytes->space && begin < end) {
                race_report(&(RaceFinding){look->act, true, step->task, &look->task, used->kind,
                                           bytes->kind, bytes->base + begin, bytes->base + end,
                                           true});
            }
        }
    }
}

static void host_check(void *context, const RaceBytes *bytes)
{
    HostLook *look = context;
    bytes_host(look->act, &look->task, &race_seen_clock, bytes);
    for (const RaceThread *thread = threads_first(); thread != NULL; thread = thread->next) {
        for (const RaceOp *op = thread->first; op != NULL; op = op->next) {
            if (!op->silent && !op->choice) {
                queued_check(look, op, bytes);
            }
        }
    }
}

static HostLook host_look(HostAct act, const char *what)
{
    return (HostLook){act, {.refs = 1, .name = what, .stream = UINT32_MAX, .device = -1}};
}

static void host_check_locked(void *context, const RaceBytes *bytes)
{
    pthread_mutex_lock(&race_lock);
    host_check(context, bytes);
    pthread_mutex_unlock(&race_lock);
}

void race_host(const char *what, const void *address, size_t bytes, TouchKind kind)
{
    HostLook look = host_look(HOST_TOUCHES, what);
    race_memory.resolve(address, bytes, kind, host_check_locked, &look);
}

void race_freed(const char *what, uintptr_t address, size_t bytes)
{
    HostLook look = host_look(HOST_FREES, what);
    host_check_locked(&look, &(RaceBytes){NULL, address, address + bytes, 0, TOUCH_WRITE});
}

void race_forget(uintptr_t address, size_t bytes)
{
    pthread_mutex_lock(&race_lock);
    bytes_forget(&(RaceBytes){NULL, address, address + bytes, 0, TOUCH_WRITE}, 0);
    pthread_mutex_unlock(&race_lock);
}

void race_unmapped(const void *physical, uintptr_t base, size_t bytes)
{
    HostLook look = host_look(HOST_UNMAPS, "aclrtUnmapMem");
    RaceBytes all = {physical, 0, bytes, base, TOUCH_WRITE};
    pthread_mutex_lock(&race_lock);
    host_check(&look, &all);
    bytes_forget(&all, base);
    pthread_mutex_unlock(&race_lock);
}

void race_physical_gone(const void *physical, size_t bytes)
{
    pthread_mutex_lock(&race_lock);
    bytes_space_gone(physical, bytes);
    pthread_mutex_unlock(&race_lock);
}
