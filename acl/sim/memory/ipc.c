/* Device memory of the malloc family for other processes: see ipc.h.
 *
 * A key contains the token of a share entry (export_table.h). The importer maps whole pages, so it
 * also gets the bytes of other blocks in these pages. If the program frees a block while importers
 * have it, the block is kept until the importers are done, and freed at the next call to this file. */
#include "memory/ipc.h"

#include "generated/exports.h"
#include "base/fork.h"
#include "memory/export_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KEY_BYTES = 65 }; /* length of a key, as documented */
static const char KEY_FORMAT[] = "acl-sim-ipc-%016llx";

/* An allocation that this process exported. */
typedef struct Export {
    uintptr_t block; /* address at which the allocation begins */
    ShareEntry *entry;
    struct Export *next;
} Export;

/* A block that the program freed while importers still have it. */
typedef struct Lingering {
    Arena *arena;
    uintptr_t block;
    ZoneView view;
    Export *used; /* the exports that still have importers */
    struct Lingering *next;
} Lingering;

/* An allocation that this process imported. */
typedef struct Import {
    uint64_t token;
    ShareEntry *entry;
    int fd;
    uintptr_t base;  /* address of the mapped pages */
    size_t bytes;
    ptrdiff_t alias;
    unsigned times;  /* imports that are not closed yet */
    struct Import *next;
} Import;

FILE_LOCK(lock);
static Export *exports;
static Export *closed; /* exports whose key was closed, but which still have importers */
static Lingering *lingering;
static Import *imports;

void exports_forked(void)
{
    exports = NULL;
    closed = NULL;
    lingering = NULL;
    imports = NULL;
}

static bool key_parse(const char *key, uint64_t *token)
{
    unsigned long long number;
    char again[KEY_BYTES];
    if (sscanf(key, "acl-sim-ipc-%16llx", &number) != 1) {
        return false;
    }
    snprintf(again, sizeof again, KEY_FORMAT, number);
    *token = number;
    return strcmp(key, again) == 0;
}

static aclError key_unknown(const char *function)
{
    return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "key: no shared memory is exported under it");
}

/* ---- exporting ------------------------------------------------------------------ */
/* Removes the exports without importers from the list and frees them. */
static void exports_collect(Export **list)
{
    while (*list != NULL) {
        Export *one = *list;
        if (!share_is_over(one->entry)) {
            list = &one->next;
        } else {
            *list = one->next;
            free(one);
        }
    }
}

/* Frees the lingering blocks whose importers are done; the lock is held. */
static void lingering_collect_locked(void)
{
    exports_collect(&closed);
    for (Lingering **at = &lingering; *at != NULL;) {
        Lingering *one = *at;
        exports_collect(&one->used);
        if (one->used != NULL) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        arena_give_held(one->arena, one->block, &one->view, BOOK_MALLOC);
        free(one);
    }
}

/* Moves the block's exports from one list to another. */
static void exports_move(Export **from, uintptr_t block, Export **to)
{
    while (*from != NULL) {
        Export *one = *from;
        if (one->block != block) {
            from = &one->next;
            continue;
        }
        *from = one->next;
        one->next = *to;
        *to = one;
    }
}

/* Ends all exports of the block. Returns the list of the exports that still have importers; the lock is held. */
static Export *exports_end_locked(uintptr_t block)
{
    Export *ended = NULL, *used = NULL;
    exports_move(&exports, block, &ended);
    while (ended != NULL) {
        Export *one = ended;
        ended = one->next;
        if (share_owner_gone(one->entry)) {
            free(one);
        } else {
            one->next = used;
            used = one;
        }
    }
    exports_move(&closed, block, &used);
    exports_collect(&used);
    return used;
}

void ipc_collect(void)
{
    pthread_mutex_lock(&lock);
    lingering_collect_locked();
    pthread_mutex_unlock(&lock);
}

bool ipc_block_freed(Arena *arena, uintptr_t address, const ZoneView *view)
{
    pthread_mutex_lock(&lock);
    lingering_collect_locked();
    Export *used = exports_end_locked(address);
    Lingering *one = used == NULL ? NULL : malloc(sizeof *one);
    if (one != NULL) {
        *one = (Lingering){arena, address, *view, used, lingering};
        lingering = one;
    }
    pthread_mutex_unlock(&lock);
    return used == NULL;
}

/* Gives the arena and the block that begins at the address; 107000 if the block cannot be exported with this size. */
static aclError block_check(const char *function, void *devPtr, size_t size, Arena **arena,
                            ZoneView *view)
{
    uintptr_t at = (uintptr_t)devPtr;
    *arena = arena_at(at);
    bool found = *arena != NULL && (*arena)->fd >= 0 && arena_find(*arena, at, view) &&
                 (*arena)->base + view->offset == at && view->info.kind == MEMORY_DEVICE;
    if (!found || size > view->bytes) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "devPtr = %p, size = %zu: expected the beginning of an allocation of "
                         "device memory, and at most its size", devPtr, size);
    }
    return ACL_SUCCESS;
}

static bool export_block(Arena *arena, const ZoneView *view, size_t size, uint64_t flags,
                         uint64_t *token)
{
    Export *one = malloc(sizeof *one);
    ShareEntry *entry = one == NULL ? NULL : share_new(token);
    if (entry == NULL) {
        free(one);
        return false;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t first = view->offset / page * page;
    entry->kind = SHARE_IPC;
    entry->fd = arena->fd;
    entry->device = arena->device;
    entry->page = view->info.page;
    entry->offset = first;
    entry->skip = view->offset - first;
    entry->size = size;
    entry->bytes = (entry->skip + size + page - 1) / page * page;
    atomic_store(&entry->anyone, flags == ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION);
    pthread_mutex_lock(&lock);
    lingering_collect_locked();
    *one = (Export){arena->base + view->offset, entry, exports};
    exports = one;
    share_publish(entry);
    pthread_mutex_unlock(&lock);
    return arena_mark_exported(arena, arena->base + view->offset);
}

aclError sim_aclrtIpcMemGetExportKey(void *devPtr, size_t size, char *key, size_t len,
                                     uint64_t flags)
{
    REQUIRE(devPtr);
    REQUIRE(key);
    REQUIRE_RT(size > 0);
    REQUIRE_RT(len >= KEY_BYTES);
    REQUIRE_RT(flags == ACL_RT_IPC_MEM_EXPORT_FLAG_DEFAULT ||
               flags == ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION);
    Context *context;
    Arena *arena;
    ZoneView view;
    uint64_t token;
    TRY(context_require(&context));
    TRY(block_check(__func__, devPtr, size, &arena, &view));
    if (!export_block(arena, &view, size, flags, &token)) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no room to share memory");
    }
    snprintf(key, len, KEY_FORMAT, (unsigned long long)token);
    return ACL_SUCCESS;
}

aclError sim_aclrtIpcMemSetImportPid(const char *key, int32_t *pid, size_t num)
{
    REQUIRE(key);
    REQUIRE(pid);
    REQUIRE_RT(num > 0);
    uint64_t token;
    ShareEntry *entry = key_parse(key, &token) ? share_own(token, SHARE_IPC) : NULL;
    if (entry == NULL) {
        return key_unknown(__func__);
    }
    REQUIRE_RT(share_allow(entry, pid, num));
    return ACL_SUCCESS;
}

aclError sim_aclrtIpcMemImportPidInterServer(const char *key, aclrtServerPid *serverPids,
                                             size_t num)
{
    REQUIRE_RT(key);
    REQUIRE_RT(serverPids);
    REQUIRE_RT(num > 0);
    return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                "the simulator's devices are all of one host: there is no other server");
}

/* ---- importing ------------------------------------------------------------------ */
static Import *import_find_locked(uint64_t token)
{
    Import *one = imports;
    while (one != NULL && one->token != token) {
        one = one->next;
    }
    return one;
}

static uintptr_t pages_map(const Import *one, int protection)
{
    void *memory = mmap(NULL, one->bytes, protection, MAP_SHARED | MAP_NORESERVE, one->fd,
                        (off_t)one->entry->offset);
    return memory == MAP_FAILED ? 0 : (uintptr_t)memory;
}

/* Maps the memory for the user and, in strict mode, a second time for the simulator. */
static bool import_map(Import *one, int32_t device)
{
    bool strict = memory_strict();
    one->bytes = (size_t)one->entry->bytes;
    one->base = pages_map(one, strict ? PROT_NONE : PROT_READ | PROT_WRITE);
    uintptr_t inner = one->base != 0 && strict ? pages_map(one, PROT_READ | PROT_WRITE) : one->base;
    one->alias = (ptrdiff_t)(inner - one->base);
    Range range = {.begin = one->base + one->entry->skip, .object = one, .alias = one->alias,
                   .kind = RANGE_IMPORTED, .device = device};
    range.end = range.begin + one->entry->size;
    return one->base != 0 && inner != 0 && range_add(&range, NULL);
}

static void import_unmap(Import *one)
{
    range_remove(one->base + one->entry->skip, RANGE_IMPORTED, NULL);
    munmap((void *)one->base, one->bytes);
    if (one->alias != 0) {
        munmap((void *)(one->base + (uintptr_t)one->alias), one->bytes);
    }
    share_import_gone(one->entry, -1); /* only the exporter frees the pages */
    close(one->fd);
    free(one);
}

static aclError import_new(const char *function, uint64_t token, int32_t device, Import **made)
{
    Import *one = calloc(1, sizeof *one);
    if (one == NULL) {
        return error_set(function, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no host memory");
    }
    aclError status = share_import(function, token, SHARE_IPC, &one->entry, &one->fd);
    if (status != ACL_SUCCESS) {
        free(one);
        return status;
    }
    one->token = token;
    one->times = 1;
    if (!import_map(one, device)) {
        share_import_gone(one->entry, -1);
        close(one->fd);
        free(one);
        return error_set(function, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL,
                         "no address space for the imported memory");
    }
    *made = one;
    return ACL_SUCCESS;
}

aclError sim_aclrtIpcMemImportByKey(void **devPtr, const char *key, uint64_t flags)
{
    REQUIRE(devPtr);
    REQUIRE(key);
    REQUIRE_RT(flags == ACL_RT_IPC_MEM_IMPORT_FLAG_DEFAULT ||
               flags == ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS);
    Context *context;
    uint64_t token;
    TRY(context_require(&context));
    if (!key_parse(key, &token)) {
        return key_unknown(__func__);
    }
    aclError status = ACL_SUCCESS;
    pthread_mutex_lock(&lock);
    Import *one = import_find_locked(token);
    if (one != NULL) {
        one->times++;
    } else {
        status = import_new(__func__, token, context->device, &one);
        if (status == ACL_SUCCESS) {
            one->next = imports;
            imports = one;
        }
    }
    if (status == ACL_SUCCESS) {
        *devPtr = (void *)(one->base + one->entry->skip);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Closes one import of that token, and unmaps the memory if it was the last; true if there was one. The lock is
 * held. */
static bool import_close_locked(uint64_t token)
{
    Import **at = &imports;
    while (*at != NULL && (*at)->token != token) {
        at = &(*at)->next;
    }
    Import *one = *at;
    if (one != NULL && --one->times == 0) {
        *at = one->next;
        import_unmap(one);
    }
    return one != NULL;
}

/* Closes a key for the exporter: it cannot be imported any more. False if this process has not exported
 * the key. While importers have the memory, the export and its share entry are kept, because the block
 * must not be used again. */
static bool export_close_locked(uint64_t token)
{
    ShareEntry *entry = share_own(token, SHARE_IPC);
    Export **at = &exports;
    while (*at != NULL && (*at)->entry != entry) {
        at = &(*at)->next;
    }
    Export *one = *at;
    if (entry == NULL || one == NULL) {
        return false;
    }
    *at = one->next;
    if (share_owner_gone(entry)) {
        free(one);
    } else {
        one->next = closed;
        closed = one;
    }
    return true;
}

aclError sim_aclrtIpcMemClose(const char *key)
{
    REQUIRE(key);
    uint64_t token;
    if (!key_parse(key, &token)) {
        return key_unknown(__func__);
    }
    pthread_mutex_lock(&lock);
    bool closed = import_close_locked(token) || export_close_locked(token);
    lingering_collect_locked();
    pthread_mutex_unlock(&lock);
    return closed ? ACL_SUCCESS : key_unknown(__func__);
}

aclError sim_aclrtIpcMemSetAttr(const char *key, aclrtIpcMemAttrType type, uint64_t attr)
{
    REQUIRE_RT(key);
    REQUIRE_RT(type == ACL_RT_IPC_MEM_ATTR_ACCESS_LINK);
    REQUIRE_RT(attr <= ACL_RT_IPC_MEM_ATTR_ACCESS_LINK_UB_MULTI_PORT_PATH);
    uint64_t token;
    ShareEntry *entry = key_parse(key, &token) ? share_own(token, SHARE_IPC) : NULL;
    if (entry == NULL) {
        return key_unknown(__func__);
    }
    atomic_store(&entry->attribute, (uint32_t)attr);
    return ACL_SUCCESS;
}
