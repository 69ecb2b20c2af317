/* The table by which other processes can use memory of this process.
 *
 * Each process that shares has a table in a file in memory, which others open through
 * /proc/PID/fd; so a token that names process, file and entry is enough to import the memory, and
 * no thread has to serve imports. An entry says in which file of the owner, and at which offset,
 * the memory lies, and which processes may import it. It also lists the importers; importers that
 * died do not count.
 *
 * Thread rule: any thread, any process.  The kernel refuses other users' processes. */
#ifndef SIM_EXPORT_TABLE_H
#define SIM_EXPORT_TABLE_H

#include "base/process.h"

typedef enum ShareKind { SHARE_PHYSICAL = 1, SHARE_IPC } ShareKind;

enum { SHARE_PIDS = 96, SHARE_USERS = 32 };

/* A process that imported the memory, and how often it did. */
typedef struct ShareUser {
    Process process;
    uint32_t times; /* number of its imports; 0: this entry is free */
} ShareUser;

/* An entry of a table, in memory that processes share. */
typedef struct ShareEntry {
    _Atomic uint32_t state;      /* ShareState */
    uint32_t index;              /* index of the entry in its table */
    bool kept;                   /* the owner uses the entry; like `users`, guarded by the table's lock */
    ShareUser users[SHARE_USERS];
    _Atomic uint32_t generation; /* differs between the entries that have used this place one after another */
    uint32_t kind;               /* ShareKind */
    int32_t fd;                  /* the owner's descriptor of the file with the memory */
    int32_t device;              /* the owner's device; BOOK_HOST: host memory */
    uint32_t page;               /* PageKind */
    _Atomic uint32_t anyone;     /* not 0: any process may import, its id is not checked */
    uint64_t offset, bytes;      /* the pages in the file */
    uint64_t skip, size;         /* where the exported memory begins in these pages, and its bytes */
    aclrtPhysicalMemProp prop;   /* only if `kind` is SHARE_PHYSICAL: the properties of the memory */
    _Atomic uint32_t attribute;  /* value set by aclrtIpcMemSetAttr */
    _Atomic uint32_t pid_count;  /* number of processes in `pids`, which may import */
    _Atomic int32_t pids[SHARE_PIDS];
} ShareEntry;

/* Makes an entry of this process and its token; NULL without a free one. The caller fills the
 * entry and then publishes it. */
ShareEntry *share_new(uint64_t *token);
void share_publish(ShareEntry *entry);
uint64_t share_token(const ShareEntry *entry);
/* Returns this process's live entry of that token, or NULL. */
ShareEntry *share_own(uint64_t token, ShareKind kind);
/* Allows processes to import; false if they are too many. */
bool share_allow(ShareEntry *entry, const int32_t *pids, size_t count);
/* The owner gives the entry up: it cannot be imported any more. Returns true if no importer is
 * left; then the owner must not read the entry again. */
bool share_owner_gone(ShareEntry *entry);
/* As share_owner_gone, for an entry that was given up before: true if no importer is left. */
bool share_is_over(ShareEntry *entry);

/* Imports memory of another process (or of this one): counts the caller as an importer and opens
 * the file. 107000 if the token is unknown, 207006 if this process may not import. */
aclError share_import(const char *function, uint64_t token, ShareKind kind, ShareEntry **entry,
                      int *fd);
/* The importer does not need the memory any more. If the owner has given the entry up, the last
 * importer frees the pages. */
void share_import_gone(ShareEntry *entry, int fd);

#endif
