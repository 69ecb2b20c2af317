/* Sharing between processes: see export_table.h. */
#include "memory/export_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fork.h"
#include "memory/memory.h"

enum ShareState { SHARE_FREE, SHARE_FILLING, SHARE_LIVE, SHARE_GONE };
enum { ENTRIES = 1 << 16, PID_BITS = 22, FD_BITS = 14, INDEX_BITS = 16, GENERATION_BITS = 12 };

static const uint64_t MAGIC = UINT64_C(0x61636c73696d3031);

typedef struct ShareTable {
    uint64_t magic;
    pthread_mutex_t lock; /* guards `kept` and `users` of all entries; robust: it can be locked after its holder died */
    ShareEntry entries[ENTRIES];
} ShareTable;

/* A table of another process that this process has mapped. */
typedef struct ShareView {
    pid_t pid;
    ino_t inode;
    ShareTable *table;
    struct ShareView *next;
} ShareView;

FILE_LOCK(lock);
static ShareTable *own; /* the table of this process; NULL before the first export */
static int own_fd = -1;
static uint32_t next_entry;
static ShareView *views; /* tables of other processes, never unmapped */

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

/* ---- importers ------------------------------------------------------------------ */
static ShareTable *table_lock(ShareEntry *entry)
{
    char *entries = (char *)(entry - entry->index);
    ShareTable *table = (ShareTable *)(entries - offsetof(ShareTable, entries));
    if (pthread_mutex_lock(&table->lock) == EOWNERDEAD) {
        pthread_mutex_consistent(&table->lock);
    }
    return table;
}

/* Removes the importers that died from the entry. True if importers are left. The table's lock is held. */
static bool users_left(ShareEntry *entry)
{
    bool left = false;
    for (int i = 0; i < SHARE_USERS; i++) {
        ShareUser *user = &entry->users[i];
        if (user->times != 0 && !process_lives(user->process)) {
            user->times = 0;
        }
        left = left || user->times != 0;
    }
    return left;
}

static bool same_process(Process a, Process b)
{
    return a.pid == b.pid && a.start == b.start;
}

/* Returns the place of this process in the entry's list of importers, or else a free place; NULL if there are too many
   importers. The table's lock is held. */
static ShareUser *user_place(ShareEntry *entry)
{
    Process self = process_self();
    ShareUser *place = NULL;
    users_left(entry);
    for (int i = SHARE_USERS - 1; i >= 0; i--) {
        ShareUser *user = &entry->users[i];
        if (user->times != 0 && same_process(user->process, self)) {
            return user;
        }
        place = user->times == 0 ? user : place;
    }
    if (place != NULL) {
        place->process = self;
    }
    return place;
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
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&own->lock, &shared);
    pthread_mutexattr_destroy(&shared);
    own->magic = MAGIC;
    own_fd = fd;
    return true;
}

void shares_forked(void)
{
    if (own != NULL) {
        munmap(own, sizeof *own);
        close(own_fd);
        own = NULL;
        own_fd = -1;
    }
}

/* Takes the entry at `index` for a new export. False if this process or an importer still uses it. */
static bool entry_claim(uint32_t index)
{
    ShareEntry *entry = &own->entries[index];
    uint32_t state = atomic_load(&entry->state);
    if (state != SHARE_FREE && state != SHARE_GONE) {
        return false;
    }
    entry->index = index;
    ShareTable *table = table_lock(entry);
    bool unused = state == SHARE_FREE || (!entry->kept && !users_left(entry));
    if (unused) {
        atomic_store(&entry->state, SHARE_FILLING);
        entry->kept = true;
    }
    pthread_mutex_unlock(&table->lock);
    return unused;
}

ShareEntry *share_new(uint64_t *token)
{
    ShareEntry *entry = NULL;
    pthread_mutex_lock(&lock);
    for (uint32_t tries = 0; table_open_locked() && tries < ENTRIES && entry == NULL; tries++) {
        uint32_t index = next_entry++ % ENTRIES;
        entry = entry_claim(index) ? &own->entries[index] : NULL;
    }
    pthread_mutex_unlock(&lock);
    if (entry == NULL) {
        return NULL;
    }
    atomic_fetch_add(&entry->generation, 1);
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

/* Returns the entry of the table to which the token belongs if the entry is live and of that kind, else NULL. */
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

bool share_is_over(ShareEntry *entry)
{
    ShareTable *table = table_lock(entry);
    bool left = users_left(entry);
    entry->kept = left;
    pthread_mutex_unlock(&table->lock);
    return !left;
}

bool share_owner_gone(ShareEntry *entry)
{
    uint32_t live = SHARE_LIVE;
    atomic_compare_exchange_strong(&entry->state, &live, SHARE_GONE);
    return share_is_over(entry);
}

/* ---- the importer's side -------------------------------------------------------- */
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

/* Returns the table of another process, mapped if needed; NULL if the process has no table or has ended. `number` is
   the descriptor of the table's file in that process. */
static ShareTable *table_of(pid_t pid, int number)
{
    struct stat status;
    int fd = process_file(pid, number);
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

/* Counts one more import of this process; false if the owner has given the entry up, or if there are too many
   importers. */
static bool entry_enter(ShareTable *table_of_entry, ShareEntry *entry, uint64_t token,
                        ShareKind kind)
{
    ShareTable *table = table_lock(entry);
    bool live = entry_of(table_of_entry, token, kind) == entry;
    ShareUser *user = live ? user_place(entry) : NULL;
    if (user != NULL) {
        user->times++;
    }
    pthread_mutex_unlock(&table->lock);
    return user != NULL;
}

/* Returns the live entry of that token, and in *table its table, which may be of any process; NULL if there is none. */
static ShareEntry *entry_find(uint64_t token, ShareKind kind, ShareTable **table)
{
    pid_t pid = token_pid(token);
    if (pid == getpid()) {
        *table = own;
        return share_own(token, kind);
    }
    *table = pid > 0 ? table_of(pid, token_fd(token)) : NULL;
    return *table == NULL ? NULL : entry_of(*table, token, kind);
}

aclError share_import(const char *function, uint64_t token, ShareKind kind, ShareEntry **entry,
                      int *fd)
{
    ShareTable *table;
    pid_t pid = token_pid(token);
    *entry = entry_find(token, kind, &table);
    if (*entry != NULL && !entry_admits(*entry, pid)) {
        return error_set(function, ACL_ERROR_RT_NO_PERMISSION,
                         "process %d is not allowed to import the memory by its exporter, process %d", (int)getpid(),
                         (int)pid);
    }
    if (*entry != NULL && entry_enter(table, *entry, token, kind)) {
        *fd = process_file(pid, (*entry)->fd);
        if (*fd >= 0) {
            return ACL_SUCCESS;
        }
        share_import_gone(*entry, -1);
    }
    return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                     "the name stands for no memory that is shared: process %d never exported it, "
                     "took it back, or is gone, or %d processes have it already", (int)pid,
                     SHARE_USERS);
}

void share_import_gone(ShareEntry *entry, int fd)
{
    uint64_t offset = entry->offset, bytes = entry->bytes;
    ShareTable *table = table_lock(entry);
    ShareUser *user = user_place(entry);
    if (user != NULL && user->times != 0) {
        user->times--;
    }
    bool last = atomic_load(&entry->state) == SHARE_GONE && !users_left(entry);
    if (last && fd >= 0) { /* with the lock held: else the owner could reuse the memory before it is freed here */
        (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                        (off_t)bytes);
    }
    pthread_mutex_unlock(&table->lock);
}
