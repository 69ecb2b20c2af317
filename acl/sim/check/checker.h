/* checker.h: the checker of programs, as its own files and the rooms above see it; for those below see
 * base/checks.h.
 *
 * It knows who made and freed each block and handle, keeps freed blocks out of reach for a while, and
 * keeps what was written in a shadow.  It uses what tasks say of themselves to the order checker
 * (race.h), so that a finding does not hang on timing.
 *
 * Thread rule: any thread.  The locks here are leaves, but for zones' own. */
#ifndef SIM_CHECKER_H
#define SIM_CHECKER_H

#include "base/checks.h"

/* ---- reports (check_report.c) ------------------------------------------------------------------- */
enum { CHECK_PLACES = 3, CHECK_WORDS = 256 };

typedef struct CheckReport {
    unsigned tool;
    const char *rule;
    char message[CHECK_WORDS];
    uintptr_t address; /* 0: none */
    size_t bytes;
    size_t places;
    struct {
        char what[CHECK_WORDS];
        const struct RaceSite *site;
    } place[CHECK_PLACES];
} CheckReport;

CheckReport check_begin(unsigned tool, const char *rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void check_place(CheckReport *report, const struct RaceSite *site, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Tells it, unless the same rule was told of the same places. */
void check_tell(const CheckReport *report);
/* The exported function that the thread is in: "aclrtFree"; else "the program". */
const char *check_call(void);
void check_entered(unsigned function);
uint64_t check_call_number(void); /* never used twice */
/* Whether the thread is in a call of that sort, which gives the program its memory. */
bool check_call_allocates(void);
void check_finding(const struct RaceFinding *finding);

/* ---- blocks (check_blocks.c) -------------------------------------------------------------------- */
typedef struct CheckBlock {
    uintptr_t base;
    size_t size;          /* bytes that were asked for */
    int32_t device;       /* BOOK_HOST: pinned */
    const char *made_by, *freed_by; /* freed_by NULL: live */
    const struct RaceSite *made, *freed;
    size_t held;          /* in quarantine: bytes of addresses */
    bool users;           /* the program asked for it, not a model for itself */
    bool leak_told;
    struct CheckBlock *next, *previous;
} CheckBlock;

/* `size` is what the call asked for.  What a model or an operator takes for itself counts as written, with
 * all that it has. */
void check_block_made(struct Arena *arena, uintptr_t address, size_t size);
/* Before it is given back: who frees it, and whether what lies behind it is whole. */
void check_block_freed(struct Arena *arena, uintptr_t address, const struct ZoneView *view);
/* A held block, which is charged no more: zone_give comes later.  False: it is none of ours. */
bool check_block_keep(struct Arena *arena, uintptr_t address, const struct ZoneView *view);
/* Gives all that is kept back; true if there was any. */
bool check_quarantine_empty(void);
/* A call that frees found no such block. */
void check_free_refused(const void *address);
/* A call or a task touches bytes: reports what is freed, too long or nowhere. */
void check_access(const char *argument, const void *address, size_t bytes, bool write);
/* Where a kernel was pointed to. */
void check_pointer(const char *who, uintptr_t address);
/* The kind of a copy against what its ends are (MemoryKind). */
void check_kind(const void *dst, int dst_kind, const void *src, int src_kind,
                aclrtMemcpyKind kind);
/* The block that the address is in, or was in; false if none is known. */
bool check_block_find(uintptr_t address, CheckBlock *block);

/* ---- handles and leaks (check_leaks.c) ---------------------------------------------------------- */
void check_handle_made(const void *handle, HandleKind kind);
void check_handle_gone(const void *handle);
/* A call failed: were any of its arguments destroyed before? */
void check_arguments(const char *function, const char *names, va_list values);
/* An object is destroyed while tasks that are queued hold it. */
void check_destroyed_in_use(const void *handle, HandleKind kind);
/* The device's last reset ends its streams. */
void check_leaks_of_device(int32_t device);
/* At the end; in a process with a Python interpreter, which holds what is left, only after a call of
 * aclFinalize by the program. */
void check_leaks_of_process(void);
void check_finalized(void);
void check_leaks_of_blocks(const char *when); /* check_blocks.c */

/* ---- what was written (check_shadow.c) ---------------------------------------------------------- */
/* Fresh memory: nothing was written. */
void shadow_forget(const void *space, uint64_t begin, uint64_t end);
/* What a task touches, queued at the site; in the order that tasks have. */
void shadow_step(const char *name, const struct RaceSite *site, const struct RaceBytes *bytes,
                 size_t count);
/* What a call copies or (src NULL) sets itself. */
void shadow_host(const void *dst, const void *src, size_t bytes);

/* ---- faults of the host (check_fault.c) --------------------------------------------------------- */
typedef struct CheckWatch CheckWatch;
/* Pinned memory that a queued copy reads: a write of the program in between is reported. */
CheckWatch *check_watch(const void *address, size_t bytes, const Stream *stream);
void check_unwatch(CheckWatch *watch);
/* For other handlers: true if the access may be repeated now. */
bool check_fault_opens(uintptr_t address);
void check_faults_catch(void);

/* ---- streams that wait for each other (check_cycle.c) ------------------------------------------- */
void check_record_queued(const struct Event *event, const Stream *stream);
void check_record_over(const struct Event *event, const Stream *stream);
void check_wait_begins(const struct Event *event, Stream *stream);
void check_wait_ends(Stream *stream);
/* The host waits: reports a cycle that was there before and still is, and lets its waits go. */
void check_cycle(const Stream *stream);

#endif
