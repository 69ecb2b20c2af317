/* op_memory_source.c: the device memory of single operators, for each stream.

   As in GE, the first operator on a stream without a registered allocator makes a default one, which serves the
   stream from then on, even if an allocator is registered later. It is freed with the stream: the stream's last
   task frees the memory, after the work that uses it. A leaf lock protects the list. Each stream's workspace has
   a lock of its own, which is not held during a wait for the stream. */
#include <stdlib.h>

#include "generated/exports.h"
#include "single_ops/opapi.h"
#include "races/race.h"

struct StreamMemory {
    struct StreamMemory *next;
    const Stream *stream;
    Pool *pool;             /* the default allocator; NULL until it is needed */
    pthread_mutex_t in_use; /* held from the choice of the workspace until the kernel that uses it is queued */
    void *workspace;
    size_t workspace_bytes;
};

FILE_LOCK(lock);
static StreamMemory *list;
static pthread_once_t listen_once = PTHREAD_ONCE_INIT;

static StreamMemory *entry_unlink(const Stream *stream)
{
    pthread_mutex_lock(&lock);
    StreamMemory **link = &list;
    while (*link != NULL && (*link)->stream != stream) {
        link = &(*link)->next;
    }
    StreamMemory *entry = *link;
    if (entry != NULL) {
        *link = entry->next;
    }
    pthread_mutex_unlock(&lock);
    return entry;
}

/* --- the end of a stream --- */

static void entry_free(void *given)
{
    StreamMemory *entry = given;
    pool_free(entry->pool);
    if (entry->workspace != NULL) {
        (void)sim_aclrtFree(entry->workspace);
    }
    pthread_mutex_destroy(&entry->in_use);
    free(entry);
}

static void on_stream_state(aclrtStream handle, aclrtStreamState state, void *argument)
{
    (void)argument;
    StreamMemory *entry = state == ACL_RT_STREAM_STATE_DESTROY_PRE ? entry_unlink(handle) : NULL;
    if (entry != NULL) {
        stream_finally(handle, entry_free, entry);
    }
}

static void listen_start(void)
{
    (void)sim_aclrtRegStreamStateCallback("acl.sim operators", on_stream_state, NULL);
}

/* --- looking up --- */

/* Returns the stream's entry, and makes it if there is none. The caller holds the lock. */
static StreamMemory *entry_get(const Stream *stream)
{
    StreamMemory *entry = list;
    while (entry != NULL && entry->stream != stream) {
        entry = entry->next;
    }
    if (entry == NULL && (entry = calloc(1, sizeof *entry)) != NULL) {
        pthread_mutex_init(&entry->in_use, NULL);
        entry->stream = stream;
        entry->next = list;
        list = entry;
    }
    return entry;
}

static const StreamMemory *entry_look(const Stream *stream)
{
    const StreamMemory *entry = list;
    while (entry != NULL && entry->stream != stream) {
        entry = entry->next;
    }
    return entry;
}

aclError opsource_choose(Stream *stream, aclrtStream handle, Source *source)
{
    Registration registration;
    *source = (Source){0};
    bool found = handle != NULL && allocator_find(handle, &registration);
    (void)pthread_once(&listen_once, listen_start);
    pthread_mutex_lock(&lock);
    const StreamMemory *known = entry_look(stream);
    if (known != NULL && known->pool != NULL) {
        source->pool = known->pool;
    } else if (!found) {
        StreamMemory *entry = entry_get(stream);
        if (entry != NULL) {
            entry->pool = pool_new();
            source->pool = entry->pool;
        }
    }
    pthread_mutex_unlock(&lock);
    if (source->pool != NULL) {
        return ACL_SUCCESS;
    }
    if (!found) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    source->user = registration.allocator;
    return ACL_SUCCESS;
}

/* Locks the entry when its workspace is large enough. To enlarge it, waits for the stream first, because queued
   kernels use the old one. */
static aclError workspace_settle(StreamMemory *entry, Stream *stream, size_t bytes)
{
    bool waited = false;
    pthread_mutex_lock(&entry->in_use);
    while (entry->workspace != NULL && entry->workspace_bytes < bytes
        && !(waited && stream_idle(stream))) {
        pthread_mutex_unlock(&entry->in_use);
        TRY(stream_synchronize(stream, FOREVER));
        waited = true;
        pthread_mutex_lock(&entry->in_use);
    }
    if (races_on() && waited) {
        race_saw_stream(stream); /* the stream is idle, even if other threads queued work in between */
    }
    return ACL_SUCCESS;
}

static aclError workspace_grow(StreamMemory *entry, size_t bytes)
{
    if (entry->workspace != NULL) {
        (void)sim_aclrtFree(entry->workspace);
        entry->workspace = NULL;
        entry->workspace_bytes = 0;
    }
    TRY(sim_aclrtMalloc(&entry->workspace, bytes, ACL_MEM_MALLOC_NORMAL_ONLY));
    entry->workspace_bytes = bytes;
    return ACL_SUCCESS;
}

aclError opsource_workspace_take(
    Stream *stream, size_t bytes, StreamMemory **memory, void **address)
{
    (void)pthread_once(&listen_once, listen_start);
    pthread_mutex_lock(&lock);
    StreamMemory *entry = entry_get(stream);
    pthread_mutex_unlock(&lock);
    if (entry == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    TRY(workspace_settle(entry, stream, bytes));
    aclError status =
        bytes > entry->workspace_bytes ? workspace_grow(entry, bytes) : ACL_SUCCESS;
    if (status != ACL_SUCCESS) {
        opsource_workspace_leave(entry);
        return status;
    }
    *memory = entry;
    *address = entry->workspace;
    return ACL_SUCCESS;
}

void opsource_workspace_leave(StreamMemory *memory)
{
    pthread_mutex_unlock(&memory->in_use);
}
