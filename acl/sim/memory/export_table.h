/* What lets another process use memory of this one.
 *
 * Each process that shares has a table in a file in memory, which others open through
 * /proc/PID/fd; so a token that names process, file and entry is all that has to be passed on, and
 * no thread serves it.  An entry says which of the owner's files holds the memory and where, who
 * may use it, and lists the importers; one that died does not count.
 *
 * Thread rule: any thread, any process.  The kernel refuses other users' processes. */
#ifndef SIM_EXPORT_TABLE_H
#define SIM_EXPORT_TABLE_H

#include "base/process.h"

typedef enum ShareKind { SHARE_PHYSICAL = 1, SHARE_IPC } ShareKind;

enum { SHARE_PIDS = 96, SHARE_USERS = 32 };

/* A process that imported, and how often. */
typedef struct ShareUser {
    Process process;
    uint32_t times; /* 0: a free place */
} ShareUser;

/* In memory that processes share. */
typedef struct ShareEntry {
    _Atomic uint32_t state;      /* ShareState */
    uint32_t index;              /* in its table */
    bool kept;                   /* the owner remembers it; guarded, as the users, by the table's lock */
    ShareUser users[SHARE_USERS];
    _Atomic uint32_t generation; /* tells a token's entry from a later one at its place */
    uint32_t kind;               /* ShareKind */
    int32_t fd;                  /* the owner's, of the file that has the memory */
    int32_t device;              /* the owner's; BOOK_HOST: the host's */
    uint32_t page;               /* PageKind */
    _Atomic uint32_t anyone;     /* no check of process ids */
    uint64_t offset, bytes;      /* in the file; whole pages */
    uint64_t skip, size;         /* the exported memory's place in the file */
    aclrtPhysicalMemProp prop;   /* SHARE_PHYSICAL */
    _Atomic uint32_t attribute;  /* aclrtIpcMemSetAttr's */
    _Atomic uint32_t pid_count;
    _Atomic int32_t pids[SHARE_PIDS];
} ShareEntry;

/* A fresh entry of this process and its token, or NULL; the caller fills it and publishes it. */
ShareEntry *share_new(uint64_t *token);
void share_publish(ShareEntry *entry);
uint64_t share_token(const ShareEntry *entry);
/* This process's live entry of that token, or NULL. */
ShareEntry *share_own(uint64_t token, ShareKind kind);
/* Lets processes in; false if they are too many. */
bool share_allow(ShareEntry *entry, const int32_t *pids, size_t count);
/* The owner gives it up: it is not found any more.  True if no importer is left, and then the owner
 * must not look at it again. */
bool share_owner_gone(ShareEntry *entry);
/* The same, for one that was given up before. */
bool share_is_over(ShareEntry *entry);

/* Another process's (or this one's) memory: counts the caller as an importer and opens the file.
 * 107000 for a token of nothing, 207006 for a process that was not let in. */
aclError share_import(const char *function, uint64_t token, ShareKind kind, ShareEntry **entry,
                      int *fd);
/* The importer is done with the memory. After the owner gave the entry up, the last importer frees
 * the pages. */
void share_import_gone(ShareEntry *entry, int fd);

#endif
