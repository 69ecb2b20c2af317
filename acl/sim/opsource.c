/* opsource.c: where the memory of single operators comes from, stream by stream.

   As in GE, an operator on a stream without a registered allocator makes a default one, which then
   serves the stream for good, even if an allocator is registered later. It goes with the stream:
   its last task gives the memory back, after the work that uses it. Lock: a leaf, over the list
   only. */
#include <stdlib.h>

#include "exports.h"
#include "opapi.h"

typedef struct StreamMemory {
    struct StreamMemory *next;
    const Stream *stream;
    Pool *pool;             /* NULL: none was needed yet */
    void *workspace;
    size_t workspace_bytes;
} StreamMemory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
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

static aclError nothing_run(Stream *stream, const void *payload)
{
    (void)stream;
    (void)payload;
    return ACL_SUCCESS;
}

static void entry_free(void *payload)
{
    StreamMemory *entry = *(StreamMemory **)payload;
    pool_free(entry->pool);
    if (entry->workspace != NULL) {
        (void)aclrtFree(entry->workspace);
    }
    free(entry);
}

static const TaskClass end_task = {
    .name = "operators' memory",
    .run = nothing_run,
    .drop = entry_free,
};

static void on_stream_state(aclrtStream handle, aclrtStreamState state, void *argument)
{
    (void)argument;
    StreamMemory *entry = state == ACL_RT_STREAM_STATE_DESTROY_PRE ? entry_unlink(handle) : NULL;
    if (entry != NULL
        && stream_submit(handle, &end_task, &entry, sizeof(StreamMemory *)) != ACL_SUCCESS) {
        entry_free(&entry);
    }
}

static void listen_start(void)
{
    (void)sim_aclrtRegStreamStateCallback("acl.sim operators", on_stream_state, NULL);
}

/* --- looking up --- */

/* The stream's entry, made if there is none; the lock is held. */
static StreamMemory *entry_get(const Stream *stream)
{
    StreamMemory *entry = list;
    while (entry != NULL && entry->stream != stream) {
        entry = entry->next;
    }
    if (entry == NULL && (entry = calloc(1, sizeof *entry)) != NULL) {
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

aclError opsource_workspace(Stream *stream, size_t bytes, void **address)
{
    (void)pthread_once(&listen_once, listen_start);
    pthread_mutex_lock(&lock);
    StreamMemory *entry = entry_get(stream);
    void *old = entry == NULL ? NULL : entry->workspace;
    size_t room = entry == NULL ? 0 : entry->workspace_bytes;
    pthread_mutex_unlock(&lock);
    if (entry == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    if (bytes > room) {
        void *grown;
        if (old != NULL) { /* queued kernels may use it */
            TRY(stream_synchronize(stream, FOREVER));
            (void)aclrtFree(old);
            entry->workspace = NULL;
            entry->workspace_bytes = 0;
        }
        TRY(aclrtMalloc(&grown, bytes, ACL_MEM_MALLOC_NORMAL_ONLY));
        entry->workspace = grown;
        entry->workspace_bytes = bytes;
    }
    *address = entry->workspace;
    return ACL_SUCCESS;
}
