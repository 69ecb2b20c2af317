/* ipc_event.c: events that several processes record and wait for.

   The counts of an IPC event lie in a page of memory with a file descriptor of its own (memfd). The
   exported handle names the process and the descriptor; importing opens it through /proc, which
   works as long as the exporting process lives, for processes of the same user. The page is freed
   when no process has it any more, also if a process dies.

   The page lists the records that are queued and not reached, each with its process. A wait is for
   one of them. A record does not wake waiters in other processes, so a waiting thread looks again
   after 50 us, then after twice that time, and so on, up to 1.6 ms. The records of a process that
   died are ended by the first process that notices its death.

   Thread rule: as for all events; the page's lock guards the list and can be taken over if its
   holder died. Only the number of an entry is read without it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "streams/event.h"
#include "generated/exports.h"
#include "base/process.h"
#include "base/soc.h"

#define PAGE_MAGIC UINT64_C(0x61636c73696d6576) /* "aclsimev" */

static const int64_t FIRST_LOOK_NS = 50000;
static const int64_t LAST_LOOK_NS = 1000000;

enum { OPEN_RECORDS = 1024 };

/* A record that is queued and not reached. */
typedef struct OpenRecord {
    _Atomic uint64_t number; /* 0: the entry is free */
    Process by;
} OpenRecord;

typedef struct SharedPage {
    uint64_t magic;
    uint64_t token; /* random; tells this event from a later one that has the same descriptor */
    EventCounts counts;
    pthread_mutex_t lock;
    OpenRecord open[OPEN_RECORDS];
} SharedPage;

struct IpcEvent {
    SharedPage *page;
    int file;      /* descriptor of the page's file; -1 if the event was imported */
    int32_t owner; /* id of the exporting process */
    int descriptor;
    _Atomic int64_t reaped_ns; /* now_ns() when this process last looked for records of dead processes */
};

/* The content of a handle (64 bytes). */
typedef struct ExportedEvent {
    uint64_t magic;
    uint64_t token;
    int32_t owner;
    int32_t descriptor;
} ExportedEvent;

_Static_assert(sizeof(ExportedEvent) <= ACL_IPC_EVENT_HANDLE_SIZE, "fits in a handle");

/* Maps the file and attaches the page to the event. */
static aclError page_attach(Event *event, int file, struct IpcEvent kept)
{
    struct stat status;
    if (fstat(file, &status) != 0 || status.st_size != (off_t)sizeof(SharedPage)) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "the handle is of an event that was destroyed");
    }
    void *page = mmap(NULL, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) {
        return fail(ACL_ERROR_RT_DRV_INTERNAL_ERROR, "cannot map an IPC event: %s",
                    strerror(errno));
    }
    event->ipc = malloc(sizeof *event->ipc);
    if (event->ipc == NULL) {
        munmap(page, sizeof(SharedPage));
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for an IPC event");
    }
    kept.page = page;
    *event->ipc = kept;
    event->counts = &kept.page->counts;
    return ACL_SUCCESS;
}

aclError ipc_event_make(Event *event)
{
    if (!soc_current()->has_ipc_event) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s has no events between processes",
                    config.soc);
    }
    int file = memfd_create("acl-sim-event", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, sizeof(SharedPage)) != 0) {
        aclError status = fail(ACL_ERROR_RT_NO_EVENT_RESOURCE, "no memory for an IPC event: %s",
                               strerror(errno));
        if (file >= 0) {
            close(file);
        }
        return status;
    }
    struct IpcEvent kept = {.file = file, .owner = (int32_t)getpid(), .descriptor = file};
    aclError status = page_attach(event, file, kept);
    if (status != ACL_SUCCESS) {
        close(file);
        return status;
    }
    SharedPage *page = event->ipc->page;
    if (getrandom(&page->token, sizeof page->token, 0) != (ssize_t)sizeof page->token) {
        page->token = (uint64_t)now_ns();
    }
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&page->lock, &shared);
    pthread_mutexattr_destroy(&shared);
    page->magic = PAGE_MAGIC;
    return ACL_SUCCESS;
}

void ipc_event_drop(Event *event)
{
    struct IpcEvent *kept = event->ipc;
    event->counts = &event->own; /* another thread may still read the counts of this dead event */
    event->ipc = NULL;
    munmap(kept->page, sizeof(SharedPage));
    if (kept->file >= 0) {
        close(kept->file);
    }
    free(kept);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Takes the page's lock. A process that died with the lock has changed at most one entry, and
   each state of an entry is valid. */
static SharedPage *page_lock(const Event *event)
{
    SharedPage *page = event->ipc->page;
    if (pthread_mutex_lock(&page->lock) == EOWNERDEAD) {
        pthread_mutex_consistent(&page->lock);
    }
    return page;
}

/* Ends a record and frees its entry; `time_ns` 0: the record was dropped. The page's lock is held. */
static void record_close(SharedPage *page, OpenRecord *record, int64_t time_ns)
{
    uint64_t number = atomic_load(&record->number);
    if (time_ns != 0 && number > atomic_load(&page->counts.stamped)) {
        atomic_store(&page->counts.time_ns, time_ns);
        atomic_store(&page->counts.stamped, number);
    }
    if (number > atomic_load(&page->counts.done)) {
        atomic_store(&page->counts.done, number);
    }
    atomic_store(&record->number, 0);
}

static void page_reap(SharedPage *page)
{
    for (size_t i = 0; i < OPEN_RECORDS; i++) {
        OpenRecord *record = &page->open[i];
        if (atomic_load(&record->number) != 0 && !process_lives(record->by)) {
            record_close(page, record, 0);
        }
    }
}

void ipc_event_reap(Event *event)
{
    int64_t now = now_ns();
    if (now - atomic_exchange(&event->ipc->reaped_ns, now) < LAST_LOOK_NS) {
        return;
    }
    SharedPage *page = page_lock(event);
    page_reap(page);
    pthread_mutex_unlock(&page->lock);
}

static OpenRecord *place_find(SharedPage *page)
{
    for (size_t i = 0; i < OPEN_RECORDS; i++) {
        if (atomic_load(&page->open[i].number) == 0) {
            return &page->open[i];
        }
    }
    return NULL;
}

aclError ipc_event_open(Event *event, EventMark *mark)
{
    SharedPage *page = page_lock(event);
    OpenRecord *record = place_find(page);
    if (record == NULL) {
        page_reap(page);
        record = place_find(page);
    }
    if (record != NULL) {
        uint64_t number = atomic_load(&page->counts.recorded) + 1;
        record->by = process_self();
        atomic_store(&record->number, number);
        atomic_store(&page->counts.recorded, number);
        *mark = (EventMark){NULL, number, (uint32_t)(record - page->open)};
    }
    pthread_mutex_unlock(&page->lock);
    return record != NULL ? ACL_SUCCESS
                          : fail(ACL_ERROR_RT_NO_EVENT_RESOURCE,
                                 "event %u has %d records that have not run, the maximum for an "
                                 "IPC event", event->id, OPEN_RECORDS);
}

void ipc_event_close(Event *event, const EventMark *mark, int64_t time_ns)
{
    SharedPage *page = page_lock(event);
    OpenRecord *record = &page->open[mark->place];
    if (atomic_load(&record->number) == mark->number) {
        record_close(page, record, time_ns);
    }
    pthread_mutex_unlock(&page->lock);
    park_wake(event);
}

EventMark ipc_event_mark(Event *event)
{
    EventMark mark = {NULL, 0, 0};
    SharedPage *page = page_lock(event);
    uint64_t last = atomic_load(&page->counts.recorded);
    for (uint32_t i = 0; last != 0 && i < OPEN_RECORDS; i++) {
        if (atomic_load(&page->open[i].number) == last) {
            mark = (EventMark){NULL, last, i};
        }
    }
    pthread_mutex_unlock(&page->lock);
    return mark;
}

/* ---- waits ----------------------------------------------------------------------------------- */

typedef struct SharedWait {
    SharedPage *page;
    const EventMark *mark;
} SharedWait;

static bool record_is_over(const void *argument)
{
    const SharedWait *wait = argument;
    return wait->mark->number == 0
           || atomic_load(&wait->page->open[wait->mark->place].number) != wait->mark->number;
}

/* Waits until `until_ns` at most. Returns true if the record is over. Sets *aborted if the stream's
 * abort ended the wait. */
static bool wait_slice(const SharedWait *wait, Event *event, Stream *stream, int64_t until_ns,
                       bool *aborted)
{
    bool reached = stream != NULL
                       ? stream_park(stream, event, record_is_over, wait, until_ns)
                       : park_wait(event, record_is_over, wait, until_ns);
    *aborted = stream != NULL && !reached && now_ns() < until_ns;
    return reached;
}

bool ipc_event_wait(Event *event, const EventMark *mark, Stream *stream, int64_t deadline_ns)
{
    SharedWait wait = {event->ipc->page, mark};
    int64_t pause_ns = FIRST_LOOK_NS;
    bool aborted = false;
    for (;;) {
        int64_t until_ns = now_ns() + pause_ns;
        bool last = deadline_ns >= 0 && deadline_ns <= until_ns;
        if (wait_slice(&wait, event, stream, last ? deadline_ns : until_ns, &aborted)) {
            return true;
        }
        if (last || aborted) {
            return false;
        }
        if (pause_ns < LAST_LOOK_NS) {
            pause_ns *= 2;
        } else {
            ipc_event_reap(event);
        }
    }
}

/* ---- between processes ----------------------------------------------------------------------- */

aclError sim_aclrtIpcGetEventHandle(aclrtEvent event, aclrtIpcEventHandle *handle)
{
    EVENT_REF(resolved);
    REQUIRE(event);
    REQUIRE(handle);
    TRY(event_resolve(event, &resolved));
    if (resolved->flags != ACL_EVENT_IPC) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "event %u was not made by aclrtCreateEventExWithFlag(ACL_EVENT_IPC)",
                    resolved->id);
    }
    ExportedEvent exported = {.magic = PAGE_MAGIC, .token = resolved->ipc->page->token,
                              .owner = resolved->ipc->owner,
                              .descriptor = resolved->ipc->descriptor};
    memset(handle, 0, sizeof *handle);
    memcpy(handle->reserved, &exported, sizeof exported);
    return ACL_SUCCESS;
}

/* Opens the exporter's descriptor and checks that it still belongs to the same event. */
static aclError page_open(const ExportedEvent *exported, Event *event)
{
    int file = process_file(exported->owner, exported->descriptor);
    if (file < 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "the event's process %d cannot be reached: %s (has it destroyed the event, or "
                    "ended?)", exported->owner, strerror(errno));
    }
    struct IpcEvent kept = {.file = -1, .owner = exported->owner,
                            .descriptor = exported->descriptor};
    aclError status = page_attach(event, file, kept);
    close(file);
    TRY(status);
    const SharedPage *page = event->ipc->page;
    if (page->magic != PAGE_MAGIC || page->token != exported->token) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "the handle is of an event that was destroyed");
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtIpcOpenEventHandle(aclrtIpcEventHandle handle, aclrtEvent *event)
{
    Context *context;
    Event *made;
    ExportedEvent exported;
    REQUIRE(event);
    TRY(context_require(&context));
    memcpy(&exported, handle.reserved, sizeof exported);
    if (exported.magic != PAGE_MAGIC || exported.owner <= 0 || exported.descriptor < 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "handle was not made by aclrtIpcGetEventHandle");
    }
    TRY(event_new(EVENT_EX, ACL_EVENT_IPC, -1, &made));
    aclError status = page_open(&exported, made);
    if (status != ACL_SUCCESS) {
        event_discard(made);
        return status;
    }
    *event = made;
    handle_show(made);
    return ACL_SUCCESS;
}
