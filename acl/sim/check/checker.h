/* checker.h: the checker of programs: the interface for its own files and for the rooms above. The rooms below use
 * base/checks.h.
 *
 * It stores which call made and freed each block and handle, keeps freed blocks unused for a while
 * (quarantine), and stores which bytes were written (shadow).  It uses the bytes that tasks state to the order
 * checker (race.h) when they are queued, so a finding does not depend on timing.
 *
 * Thread rule: any thread.  While a lock of the checker is held, only locks of zones are taken. */
#ifndef SIM_CHECKER_H
#define SIM_CHECKER_H

#include "base/checks.h"

/* ---- reports (check_report.c) ------------------------------------------------------------------- */
enum { CHECK_PLACES = 3, CHECK_WORDS = 256 };

typedef struct CheckReport {
    unsigned tool;
    const char *rule;
    char message[CHECK_WORDS];
    uintptr_t address; /* first byte concerned; 0: the finding is not about memory */
    size_t bytes;      /* number of bytes concerned, from `address` on */
    size_t places;     /* entries of `place` that are used */
    struct {
        char what[CHECK_WORDS];      /* what happened there, such as "freed by aclrtFree" */
        const struct RaceSite *site; /* the place in the program, or NULL */
    } place[CHECK_PLACES];
} CheckReport;

/* Returns a new report without places. */
CheckReport check_begin(unsigned tool, const char *rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a place to the report; ignored if it has CHECK_PLACES already. */
void check_place(CheckReport *report, const struct RaceSite *site, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes the report, unless one with the same rule and the same places was written before. */
void check_tell(const CheckReport *report);
/* Returns the exported function that the thread called last, such as "aclrtFree"; "the program" if there was none. */
const char *check_call(void);
void check_entered(unsigned function);
uint64_t check_call_number(void); /* the number of the thread's call; each call in the process has another one */
/* True if the thread is in a call that allocates memory for the program (aclrtMalloc*, aclrtMemAllocManaged). */
bool check_call_allocates(void);
void check_finding(const struct RaceFinding *finding);

/* ---- blocks (check_blocks.c) -------------------------------------------------------------------- */
typedef struct CheckBlock {
    uintptr_t base;
    size_t size;          /* bytes that the call asked for */
    int32_t device;       /* BOOK_HOST: pinned host memory */
    const char *made_by, *freed_by; /* the functions called; freed_by is NULL while the block is live */
    const struct RaceSite *made, *freed;
    size_t held;          /* while in quarantine: bytes of addresses that are kept unused; else 0 */
    bool users;           /* allocated by a call of the program, not by a model or an operator for itself */
    bool leak_told;       /* was reported as a leak */
    struct CheckBlock *next, *previous; /* in the list of live blocks; `next` also in quarantine */
} CheckBlock;

/* Makes the record of a new block.  `size` is the number of bytes that the call asked for.  A block that a model or
 * an operator allocates for itself counts as written, over its whole length. */
void check_block_made(struct Arena *arena, uintptr_t address, size_t size);
/* Called before a block is freed: notes which call frees it, and reports changed bytes behind it. */
void check_block_freed(struct Arena *arena, uintptr_t address, const struct ZoneView *view);
/* Puts a held block, which is no longer charged, into quarantine; zone_give is called later.  False if the checker
 * has no record of it. */
bool check_block_keep(struct Arena *arena, uintptr_t address, const struct ZoneView *view);
/* Frees all blocks in quarantine; true if there were any. */
bool check_quarantine_empty(void);
/* Reports that a call was to free an address at which it found no block that it can free. */
void check_free_refused(const void *address);
/* Reports an access of a call or a task to bytes that are freed, behind the end of a block, or not allocated. */
void check_access(const char *argument, const void *address, size_t bytes, bool write);
/* Reports a pointer given to a kernel that points into freed memory. */
void check_pointer(const char *who, uintptr_t address);
/* Reports a copy whose kind does not fit its destination or source; dst_kind and src_kind are MemoryKinds. */
void check_kind(const void *dst, int dst_kind, const void *src, int src_kind,
                aclrtMemcpyKind kind);
/* Gives a copy of the record of the block that contains the address, or contained it before it was freed; false if
 * there is none. */
bool check_block_find(uintptr_t address, CheckBlock *block);

/* ---- handles and leaks (check_leaks.c) ---------------------------------------------------------- */
void check_handle_made(const void *handle, HandleKind kind);
void check_handle_gone(const void *handle);
/* Called for a call that failed: reports arguments that are handles destroyed before the call. */
void check_arguments(const char *function, const char *names, va_list values);
/* Reports that an object is destroyed while queued tasks hold it. */
void check_destroyed_in_use(const void *handle, HandleKind kind);
/* Called at the device's last reset: reports its streams that were not destroyed. */
void check_leaks_of_device(int32_t device);
/* Reports leaks at the end of the process.  In a process with Python, the interpreter may still hold objects then;
 * so there only if the program has called aclFinalize. */
void check_leaks_of_process(void);
void check_finalized(void);
void check_leaks_of_blocks(const char *when); /* check_blocks.c */
/* In the child of a fork, without locks: what there is so far is its parent's, and no leak of the child's. */
void check_forget_parent(void);
void check_forget_blocks(void); /* check_blocks.c; the part of it about memory */

/* ---- what was written (check_shadow.c) ---------------------------------------------------------- */
/* Marks bytes as not written: they were just allocated. */
void shadow_forget(const void *space, uint64_t begin, uint64_t end);
/* Checks and notes the bytes that a task touches; `site` is where it was queued.  Called in the order of the tasks. */
void shadow_step(const char *name, const struct RaceSite *site, const struct RaceBytes *bytes,
                 size_t count);
/* Checks and notes the bytes that a call itself copies or, if `src` is NULL, sets. */
void shadow_host(const void *dst, const void *src, size_t bytes);

/* ---- faults of the host (check_fault.c) --------------------------------------------------------- */
typedef struct CheckWatch CheckWatch;
/* Watches pinned memory that a queued copy will read, until check_unwatch: a write of the program is reported. NULL if
 * the bytes contain no whole page, or without memory. */
CheckWatch *check_watch(const void *address, size_t bytes, const Stream *stream);
void check_unwatch(CheckWatch *watch);
/* For other signal handlers: makes the page accessible if it was protected by the checker; true if the access can be
 * repeated now. */
bool check_fault_opens(uintptr_t address);
void check_faults_catch(void);

/* ---- streams that wait for each other (check_cycle.c) ------------------------------------------- */
void check_record_queued(const struct Event *event, const Stream *stream);
void check_record_over(const struct Event *event, const Stream *stream);
void check_wait_begins(const struct Event *event, Stream *stream);
void check_wait_ends(Stream *stream);
/* Called while the host waits for the stream: if its wait leads into a cycle of waits, reports the cycle and ends the
 * waits in it. */
void check_cycle(const Stream *stream);

#endif
