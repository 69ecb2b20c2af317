/* checker.h: the checker of programs: the interface for its own files and for folders that may include `check`. Folders
 * that `check` itself includes report to it through base/checks.h.
 *
 * The checker stores which call made and freed each block and handle, keeps freed blocks unused for a while
 * (quarantine), and stores which bytes were written (shadow).  Tasks state to the order checker (race.h) which bytes
 * they touch when they are queued; this checker uses the same statements, so its findings do not depend on timing.
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
    uintptr_t address; /* address of the first byte concerned; 0: the finding is not about memory */
    size_t bytes;      /* number of bytes concerned, from `address` on */
    size_t places;     /* entries of `place` that are used */
    struct {
        char what[CHECK_WORDS];      /* what happened at `site`, such as "freed by aclrtFree" */
        const struct RaceSite *site; /* the place in the program; NULL: not known */
    } place[CHECK_PLACES];
} CheckReport;

/* Returns a new report without places. */
CheckReport check_begin(unsigned tool, const char *rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a place to the report; does nothing if the report has CHECK_PLACES places. */
void check_place(CheckReport *report, const struct RaceSite *site, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes the report, unless a report with the same rule and the same places was written before. */
void check_tell(const CheckReport *report);
/* Returns the exported function that the thread called last, such as "aclrtFree"; "the program" if there was none. */
const char *check_call(void);
void check_entered(unsigned function);
uint64_t check_call_number(void); /* returns the number of the thread's last call, which no other call has */
/* True if the thread is in a call that allocates memory for the program (aclrtMalloc*, aclrtMemAllocManaged). */
bool check_call_allocates(void);
void check_finding(const struct RaceFinding *finding);

/* ---- blocks (check_blocks.c) -------------------------------------------------------------------- */
typedef struct CheckBlock {
    uintptr_t base;
    size_t size;          /* bytes that the call asked for */
    int32_t device;       /* BOOK_HOST: pinned host memory */
    const char *made_by, *freed_by; /* the functions that made and freed it; freed_by is NULL while the block is live */
    const struct RaceSite *made, *freed; /* the places of these calls in the program */
    size_t held;          /* while in quarantine: bytes of addresses that are kept unused; else 0 */
    bool users;           /* allocated by a call of the program, not by a model or an operator for its own use */
    bool leak_told;       /* not to be reported as a leak: it was reported, or was made before a fork */
    struct CheckBlock *next, *previous; /* in the list of live blocks; `next` also in quarantine */
} CheckBlock;

/* Makes the record of a new block.  `size` is the number of bytes that the call asked for.  All bytes of a block that a
 * model or an operator allocates for its own use count as written. */
void check_block_made(struct Arena *arena, uintptr_t address, size_t size);
/* Called before a block is freed: notes which call frees it, and reports changed bytes behind it. */
void check_block_freed(struct Arena *arena, uintptr_t address, const struct ZoneView *view);
/* Puts a freed block into quarantine: its bytes no longer count as used, but its addresses are given back (zone_give)
 * only when it leaves the quarantine.  False, and nothing is done, if the checker has no record of the block. */
bool check_block_keep(struct Arena *arena, uintptr_t address, const struct ZoneView *view);
/* Frees all blocks in quarantine; true if there were any. */
bool check_quarantine_empty(void);
/* Reports a call that tried to free an address at which there is no block that it can free. */
void check_free_refused(const void *address);
/* Reports an access of a call or a task if the bytes were freed, lie behind the end of a block, or are not
 * allocated. */
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
/* Reports leaks at the end of the process.  In a process with Python the interpreter may still own objects at this
 * time; such a process gets the report only if the program itself has called aclFinalize. */
void check_leaks_of_process(void);
void check_finalized(void);
void check_leaks_of_blocks(const char *when); /* check_blocks.c */
/* Called in the child of a fork; takes no locks.  Marks all objects and blocks so that they are not reported as leaks:
 * the parent made them. */
void check_forget_parent(void);
void check_forget_blocks(void); /* check_blocks.c; marks the blocks, for check_forget_parent */

/* ---- what was written (check_shadow.c) ---------------------------------------------------------- */
/* Marks the bytes of a block as written or not. */
void shadow_mark(uintptr_t begin, uintptr_t end, bool written);
/* Reports bytes that a task reads and that were not written, and notes the bytes that it writes.  `site` is where the
 * task was queued.  Called in the order of the tasks. */
void shadow_step(const char *name, const struct RaceSite *site, const struct RaceBytes *bytes,
                 size_t count);
/* As shadow_step, for bytes that a call copies without a task.  If `src` is NULL, the call sets the bytes. */
void shadow_host(const void *dst, const void *src, size_t bytes);

/* ---- faults of the host (check_fault.c) --------------------------------------------------------- */
typedef struct CheckWatch CheckWatch;
/* Watches pinned memory that a queued copy will read: until check_unwatch, a write by a thread of the program is
 * reported. Returns NULL if the bytes contain no whole page, or without memory. */
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
/* Called while the host waits for the stream. If the stream waits, directly or through other streams, for streams that
 * wait for each other, reports this cycle and ends its waits. */
void check_cycle(const Stream *stream);

#endif
