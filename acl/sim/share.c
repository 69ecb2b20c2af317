/* Sharing between processes: see share.h. */
#include "share.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"

enum ShareState { SHARE_FREE, SHARE_FILLING, SHARE_LIVE, SHARE_GONE };
enum { ENTRIES = 1 << 16, PID_BITS = 22, FD_BITS = 14, INDEX_BITS = 16, GENERATION_BITS = 12 };

static const uint64_t MAGIC = UINT64_C(0x61636c73696d3031);

typedef struct ShareTable {
    uint64_t magic;
    ShareEntry entries[ENTRIES];
} ShareTable;

/* A table that this process has mapped: its own or another's. */
typedef struct ShareView {
    pid_t pid;
    ino_t inode;
    ShareTable *table;
    struct ShareView *next;
} ShareView;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ShareTable *own; /* this process's */
static int own_fd = -1;
static uint32_t next_entry;
static ShareView *views; /* others', never unmapped */

static uint64_t token_make(uint32_t index, uint32_t generation)
{
    uint64_t token = (uint64_t)getpid();
    token = token << FD_BITS | (uint64_t)own_fd;
    token = token << INDEX_BITS | index;
    return token << GENERATION_BITS | generation;
}

static uint64_t token_part(uint64_t token, int shift, int bits)
{
    return token >> shift & ((UINT64_C(1) << bits) - 1);
}

/* ---- the owner's side ----------------------------------------------------------- */
static bool table_open_locked(void)
{
    if (own != NULL) {
        return true;
    }
    int fd = file_in_memory("acl-sim-share", sizeof *own);
    void *memory = fd < 0 || fd >= 1 << FD_BITS || getpid() >= 1 << PID_BITS
                       ? MAP_FAILED
                       : mmap(NULL, sizeof *own, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    own = memory;
    own->magic = MAGIC;
    own_fd = fd;
    return true;
}

ShareEntry *share_new(uint64_t *token)
{
    ShareEntry *entry = NULL;
    pthread_mutex_lock(&lock);
    for (uint32_t tries = 0; table_open_locked() && tries < ENTRIES && entry == NULL; tries++) {
        ShareEntry *candidate = &own->entries[next_entry++ % ENTRIES];
        uint32_t state = atomic_load(&candidate->state);
        bool unused = state == SHARE_FREE ||
                      (state == SHARE_GONE && atomic_load(&candidate->refs) == 0);
        if (unused) {
            entry = candidate;
            atomic_store(&entry->state, SHARE_FILLING);
        }
    }
    pthread_mutex_unlock(&lock);
    if (entry == NULL) {
        return NULL;
    }
    atomic_fetch_add(&entry->generation, 1);
    atomic_store(&entry->refs, 1);
    atomic_store(&entry->pid_count, 0);
    atomic_store(&entry->anyone, 0);
    atomic_store(&entry->attribute, 0);
    *token = share_token(entry);
    return entry;
}

uint64_t share_token(const ShareEntry *entry)
{
    uint32_t generation = atomic_load(&entry->generation) & ((1u << GENERATION_BITS) - 1);
    return token_make((uint32_t)(entry - own->entries), generation);
}

void share_publish(ShareEntry *entry)
{
    atomic_store_explicit(&entry->state, SHARE_LIVE, memory_order_release);
}

/* The table's entry of that token if it is live and of that kind. */
static ShareEntry *entry_of(ShareTable *table, uint64_t token, ShareKind kind)
{
    ShareEntry *entry = &table->entries[token_part(token, GENERATION_BITS, INDEX_BITS)];
    uint32_t generation = atomic_load(&entry->generation) & ((1u << GENERATION_BITS) - 1);
    bool live = atomic_load_explicit(&entry->state, memory_order_acquire) == SHARE_LIVE &&
                generation == token_part(token, 0, GENERATION_BITS) && entry->kind == kind;
    return live ? entry : NULL;
}

static pid_t token_pid(uint64_t token)
{
    return (pid_t)token_part(token, FD_BITS + INDEX_BITS + GENERATION_BITS, PID_BITS);
}

static int token_fd(uint64_t token)
{
    return (int)token_part(token, INDEX_BITS + GENERATION_BITS, FD_BITS);
}

ShareEntry *share_own(uint64_t token, ShareKind kind)
{
    pthread_mutex_lock(&lock);
    bool mine = own != NULL && token_pid(token) == getpid() && token_fd(token) == own_fd;
    pthread_mutex_unlock(&lock);
    return mine ? entry_of(own, token, kind) : NULL;
}

bool share_allow(ShareEntry *entry, const int32_t *pids, size_t count)
{
    pthread_mutex_lock(&lock);
    uint32_t have = atomic_load(&entry->pid_count);
    bool room = count <= SHARE_PIDS - have;
    for (size_t i = 0; room && i < count; i++) {
        atomic_store(&entry->pids[have + i], pids[i]);
        atomic_store(&entry->pid_count, have + (uint32_t)i + 1);
    }
    pthread_mutex_unlock(&lock);
    return room;
}

bool share_owner_gone(ShareEntry *entry)
{
    uint32_t live = SHARE_LIVE;
    if (!atomic_compare_exchange_strong(&entry->state, &live, SHARE_GONE)) {
        return atomic_load(&entry->refs) == 0;
    }
    return atomic_fetch_sub(&entry->refs, 1) == 1;
}

bool share_in_use(const ShareEntry *entry)
{
    return atomic_load(&entry->refs) != 0;
}

/* ---- the importer's side -------------------------------------------------------- */
static int fd_of(pid_t pid, int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static ShareTable *table_map(int fd, const struct stat *status)
{
    if (!S_ISREG(status->st_mode) || status->st_size != (off_t)sizeof(ShareTable)) {
        return NULL;
    }
    ShareTable *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (table == MAP_FAILED) {
        return NULL;
    }
    if (table->magic != MAGIC) {
        munmap(table, sizeof *table);
        return NULL;
    }
    return table;
}

/* The table of another process; NULL if there is none (any more). */
static ShareTable *table_of(pid_t pid, int number)
{
    struct stat status;
    int fd = fd_of(pid, number);
    if (fd < 0 || fstat(fd, &status) != 0) {
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    pthread_mutex_lock(&lock);
    ShareView *view = views;
    while (view != NULL && (view->pid != pid || view->inode != status.st_ino)) {
        view = view->next;
    }
    if (view == NULL) {
        ShareTable *table = table_map(fd, &status);
        view = table == NULL ? NULL : malloc(sizeof *view);
        if (view != NULL) {
            *view = (ShareView){pid, status.st_ino, table, views};
            views = view;
        }
    }
    pthread_mutex_unlock(&lock);
    close(fd);
    return view == NULL ? NULL : view->table;
}

static bool entry_admits(ShareEntry *entry, pid_t owner)
{
    pid_t self = getpid();
    if (owner == self || atomic_load(&entry->anyone) != 0) {
        return true;
    }
    uint32_t count = atomic_load(&entry->pid_count);
    for (uint32_t i = 0; i < count && i < SHARE_PIDS; i++) {
        if (atomic_load(&entry->pids[i]) == self) {
            return true;
        }
    }
    return false;
}

static bool entry_ref(ShareEntry *entry)
{
    uint32_t refs = atomic_load(&entry->refs);
    while (refs != 0) {
        if (atomic_compare_exchange_weak(&entry->refs, &refs, refs + 1)) {
            return true;
        }
    }
    return false;
}

aclError share_import(const char *function, uint64_t token, ShareKind kind, ShareEntry **entry,
                      int *fd)
{
    pid_t pid = token_pid(token);
    *entry = pid == getpid() ? share_own(token, kind) : NULL;
    if (pid != getpid() && pid > 0) {
        ShareTable *table = table_of(pid, token_fd(token));
        *entry = table == NULL ? NULL : entry_of(table, token, kind);
    }
    if (*entry != NULL && !entry_admits(*entry, pid)) {
        return error_set(function, ACL_ERROR_RT_NO_PERMISSION,
                         "process %d was not let in by the exporter, process %d", (int)getpid(),
                         (int)pid);
    }
    if (*entry != NULL && entry_ref(*entry)) {
        *fd = fd_of(pid, (*entry)->fd);
        if (*fd >= 0) {
            return ACL_SUCCESS;
        }
        share_import_gone(*entry, -1);
    }
    return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                     "the name stands for no memory that is shared: process %d never exported it, "
                     "took it back, or is gone", (int)pid);
}

void share_import_gone(ShareEntry *entry, int fd)
{
    uint64_t offset = entry->offset, bytes = entry->bytes;
    if (atomic_fetch_sub(&entry->refs, 1) == 1 && fd >= 0) {
        (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                        (off_t)bytes);
    }
}
