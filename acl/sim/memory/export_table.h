/* The table by which other processes can use memory of this process.
 *
 * Each process that exports memory has a table in a file in memory, which other processes open
 * through /proc/PID/fd. So a token that names process, file and entry is enough to import the
 * memory, and no thread has to serve imports. An entry contains the owner's file and the offset
 * in it at which the memory lies, and which processes may import it. It also lists the importers;
 * importers that died do not count.
 *
 * Thread rule: any thread of any process.  The kernel lets only processes of the same user open
 * the file. */
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
    _Atomic uint32_t state;      /* a ShareState (export_table.c) */
    uint32_t index;              /* index of the entry in its table */
    bool kept;                   /* the owner still reads the entry, until share_owner_gone or share_is_over finds no
                                    importer; guarded by the table's lock, as `users` is */
    ShareUser users[SHARE_USERS];
    _Atomic uint32_t generation; /* number of exports that have used this entry; part of the token */
    uint32_t kind;               /* the ShareKind: which calls exported the memory */
    int32_t fd;                  /* the owner's descriptor of the file with the memory */
    int32_t device;              /* the owner's device; BOOK_HOST: host memory */
    uint32_t page;               /* the PageKind of the memory's pages */
    _Atomic uint32_t anyone;     /* not 0: any process may import; `pids` is not checked */
    uint64_t offset, bytes;      /* the whole pages with the memory: offset in the file and length, in bytes */
    uint64_t skip, size;         /* the exported memory: offset in these pages and length, in bytes */
    aclrtPhysicalMemProp prop;   /* the properties of the memory; valid only if `kind` is SHARE_PHYSICAL */
    _Atomic uint32_t attribute;  /* value set by aclrtIpcMemSetAttr */
    _Atomic uint32_t pid_count;  /* number of entries of `pids` that are used */
    _Atomic int32_t pids[SHARE_PIDS]; /* the processes that may import the memory */
} ShareEntry;

/* Makes an entry in the table of this process, and its token; NULL if no entry is free. The caller
 * fills in the entry and then calls share_publish. */
ShareEntry *share_new(uint64_t *token);
void share_publish(ShareEntry *entry);
uint64_t share_token(const ShareEntry *entry);
/* Returns the live entry of that token if it is in the table of this process, else NULL. */
ShareEntry *share_own(uint64_t token, ShareKind kind);
/* Allows further processes to import the memory; false, and nothing changes, if they would be more than SHARE_PIDS. */
bool share_allow(ShareEntry *entry, const int32_t *pids, size_t count);
/* Called when the owner does not need the entry any more: ends further imports. Returns true if no
 * importer is left; then the owner must not read the entry again. */
bool share_owner_gone(ShareEntry *entry);
/* For an entry after share_owner_gone: true if no importer is left; then the owner must not read the entry again. */
bool share_is_over(ShareEntry *entry);

/* Imports memory of another process (or of this one): counts the caller as an importer and opens the file. 207006 if
 * this process may not import. 107000 if the token is unknown, if the exporter has ended or has given the entry up, or
 * if SHARE_USERS other processes have imported the memory. */
aclError share_import(const char *function, uint64_t token, ShareKind kind, ShareEntry **entry,
                      int *fd);
/* Called when an import ends. If the owner has given the entry up and this was the last import, frees
 * the pages in the file `fd`, unless `fd` is -1. */
void share_import_gone(ShareEntry *entry, int fd);

#endif
