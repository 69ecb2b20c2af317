/* check_fault.c: finds accesses of the host's own instructions to memory that the host must not touch.
 *
 * Device memory is inaccessible (strict mode), and so is pinned memory in quarantine: an access raises SIGSEGV.
 * The handler reports the access and calls the previous handler, because the program would fault on a card, too.
 * Pages of pinned memory that lie wholly in the source of a queued copy are read-only until the copy has run. A
 * write by a thread of the program is reported, then the page becomes writable and the program continues.
 *
 * Thread rule: one lock. The signal handler takes it, too, so code that holds the lock must not fault. */
#include "check/checker.h"
#include "memory/memory.h"
#include "races/race_inside.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

struct CheckWatch {
    struct CheckWatch *next;
    uintptr_t begin, end; /* addresses; whole pages */
    const RaceSite *site; /* place of the call that queued the copy */
    const char *call;     /* function that queued the copy */
    uint32_t stream;      /* id of the copy's stream */
    bool open;            /* the pages are writable again, because a write was reported */
};

FILE_LOCK(watch_lock);
static CheckWatch *watches;
static struct sigaction before;

/* ---- watches (the lock is held) ------------------------------------------------------------------ */

/* Sets the protection of a range of pages: a page is read-only if a watch that is not open covers it, else writable. */
static void pages_follow(uintptr_t begin, uintptr_t end)
{
    mprotect((void *)begin, end - begin, PROT_READ | PROT_WRITE);
    for (const CheckWatch *watch = watches; watch != NULL; watch = watch->next) {
        uintptr_t from = watch->begin > begin ? watch->begin : begin;
        uintptr_t to = watch->end < end ? watch->end : end;
        if (!watch->open && from < to) {
            mprotect((void *)from, to - from, PROT_READ);
        }
    }
}

static CheckWatch *watch_at(uintptr_t address)
{
    CheckWatch *watch = watches;
    while (watch != NULL && (watch->open || address < watch->begin || address >= watch->end)) {
        watch = watch->next;
    }
    return watch;
}

CheckWatch *check_watch(const void *address, size_t bytes, const Stream *stream)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)address;
    uintptr_t begin = (at + page - 1) / page * page, end = (at + bytes) / page * page;
    CheckWatch *watch = begin < end ? calloc(1, sizeof *watch) : NULL;
    if (watch == NULL) {
        return NULL;
    }
    *watch = (CheckWatch){.begin = begin, .end = end, .site = site_here(), .call = check_call(),
                          .stream = stream_id(stream)};
    pthread_mutex_lock(&watch_lock);
    watch->next = watches;
    watches = watch;
    mprotect((void *)begin, end - begin, PROT_READ);
    pthread_mutex_unlock(&watch_lock);
    return watch;
}

void check_unwatch(CheckWatch *watch)
{
    CheckWatch **link = &watches;
    pthread_mutex_lock(&watch_lock);
    while (*link != watch) {
        link = &(*link)->next;
    }
    *link = watch->next;
    if (!watch->open) {
        pages_follow(watch->begin, watch->end);
    }
    pthread_mutex_unlock(&watch_lock);
    free(watch);
}

/* Opens all watches that cover the address and gives a copy of one of them; false if there is none. */
static bool watch_open(uintptr_t address, CheckWatch *copy)
{
    bool found = false;
    pthread_mutex_lock(&watch_lock);
    for (CheckWatch *watch; (watch = watch_at(address)) != NULL; found = true) {
        *copy = *watch;
        watch->open = true;
        pages_follow(watch->begin, watch->end);
    }
    pthread_mutex_unlock(&watch_lock);
    return found;
}

bool check_fault_opens(uintptr_t address)
{
    CheckWatch watch;
    CheckBlock block;
    if (watch_open(address, &watch)) {
        return true;
    }
    bool freed = check_block_find(address, &block) && block.device == BOOK_HOST &&
                 block.freed_by != NULL && block.held != 0;
    return freed && mprotect((void *)block.base, block.held, PROT_READ | PROT_WRITE) == 0;
}

/* ---- the handler --------------------------------------------------------------------------------- */

static const char *access_word(const void *context)
{
#if defined(__x86_64__)
    const ucontext_t *state = context;
    return (state->uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "writes" : "reads";
#else
    (void)context;
    return "touches";
#endif
}

static void rewrite_tell(const CheckWatch *watch, uintptr_t address)
{
    CheckReport report = check_begin(CHECK_ORDER, "host-rewrite", "the program writes %p in pinned "
                                     "memory while a copy from it is queued on stream %u",
                                     (void *)address, watch->stream);
    report.address = address;
    report.bytes = 1;
    check_place(&report, site_here(), "the program writes");
    check_place(&report, watch->site, "queued by %s", watch->call);
    check_tell(&report);
}

/* Reports an access to device memory or to a block of pinned memory; false if the address is in neither. */
static bool access_tell(uintptr_t address, const char *does)
{
    CheckBlock block;
    Memory memory;
    bool known = check_block_find(address, &block);
    memory_find((const void *)address, &memory);
    if (!known && !memory_on_device(memory.kind)) {
        return false;
    }
    bool freed = known && block.freed_by != NULL;
    CheckReport report = check_begin(
        CHECK_MEM, freed ? "use-after-free" : "host-access", "the program %s %p, in %s%s", does,
        (void *)address, known && block.device == BOOK_HOST ? "pinned memory" : "device memory",
        freed ? " that was freed" : ", without a copy");
    report.address = address;
    report.bytes = 1;
    check_place(&report, site_here(), "the program %s", does);
    if (freed) {
        check_place(&report, block.freed, "freed by %s", block.freed_by);
    }
    if (known) {
        check_place(&report, block.made, "allocated by %s: %zu bytes at %p", block.made_by, block.size,
                    (void *)block.base);
    }
    check_tell(&report);
    return true;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        (void)signal(number, SIG_DFL); /* the fault happens again and ends the process */
        if (info->si_code <= 0) {      /* a signal sent by kill() is not repeated by returning: send it again */
            (void)raise(number);
        }
    }
}

/* Handles SIGSEGV. If the checker has protected the page, makes it accessible; the access is then repeated. A task may
 * access any such page. A thread of the program may access only watched pages, and its access is reported. Any other
 * fault is reported if it is in a block or in device memory, and passed to the previous handler. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    int kept = errno;
    uintptr_t address = (uintptr_t)info->si_addr;
    CheckWatch watch;
    if (stream_running() != NULL ? check_fault_opens(address) : watch_open(address, &watch)) {
        if (stream_running() == NULL) {
            rewrite_tell(&watch, address);
        }
        errno = kept;
        return;
    }
    (void)access_tell(address, access_word(context));
    errno = kept;
    pass_on(number, info, context);
}

void check_faults_catch(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    (void)sigemptyset(&ours.sa_mask);
    (void)sigaction(SIGSEGV, &ours, &before);
}
