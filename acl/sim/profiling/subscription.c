/* subscription.c: aclprofModelSubscribe: writes a record of each operator that runs to the
   program's pipe.

   A kernel's own thread only queues the record; a thread of the subscription writes to the pipe, so
   that a slow reader delays no stream. The queue grows up to 131,072 records, the last power of two
   below QUEUE_MAX; if the program does not read, further records are lost. Unsubscribing writes the
   queued records as long as the pipe is read. Then it closes the write end, as the runtime does, by
   which the reader learns that there are no more records.  A model that is already unloaded can be
   unsubscribed, too.

   Thread rule: the list and the queues are under one leaf mutex; no thread writes to a pipe under
   it. */
#include "profiling/subscription.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generated/exports.h"
#include "profiling/oprecord.h"

enum { QUEUE_MAX = 200000, POLL_MS = 50, PATIENCE_MS = 2000 };

struct aclprofSubscribeConfig {
    bool times;
    aclprofAicoreMetrics metrics;
    const int *fd; /* the user's variable with the file descriptor of the write end */
};

typedef struct Subscription {
    struct Subscription *next;
    uint32_t model;
    int fd;
    pthread_t writer;
    pthread_cond_t stirred;
    OpRecord *queue; /* ring buffer of `room` records */
    size_t first, count, room;
    bool ending;
} Subscription;

FILE_LOCK(lock);
static Subscription *subscriptions;
atomic_uint subscription_count;
bool (*subscription_model_exists)(uint32_t id);

/* ---- configurations -------------------------------------------------------------------------- */

aclprofSubscribeConfig *sim_aclprofCreateSubscribeConfig(
    int8_t timeInfoSwitch, aclprofAicoreMetrics aicoreMetrics, void *fd)
{
    if (fd == NULL || (timeInfoSwitch != 0 && timeInfoSwitch != 1)) {
        (void)fail(ACL_ERROR_INVALID_PARAM,
            "timeInfoSwitch is %d, fd is %p: expected 0 or 1, and a pointer to the file descriptor of "
            "a pipe's write end", (int)timeInfoSwitch, fd);
        return NULL;
    }
    aclprofSubscribeConfig *made = handle_new(HANDLE_SUBSCRIPTION, sizeof *made);
    if (made != NULL) {
        *made = (aclprofSubscribeConfig){timeInfoSwitch == 1, aicoreMetrics, fd};
    }
    return made;
}

aclError sim_aclprofDestroySubscribeConfig(const aclprofSubscribeConfig *profSubscribeConfig)
{
    aclprofSubscribeConfig *own = (aclprofSubscribeConfig *)(uintptr_t)profSubscribeConfig;
    REQUIRE(handle_is(profSubscribeConfig, HANDLE_SUBSCRIPTION) && handle_kill(own));
    handle_retire(own);
    return ACL_SUCCESS;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Waits for records and takes at most `most`. Returns their number; 0 if the subscription has ended
   and none is left. */
static size_t records_take(Subscription *self, OpRecord *records, size_t most)
{
    pthread_mutex_lock(&lock);
    while (self->count == 0 && !self->ending) {
        pthread_cond_wait(&self->stirred, &lock);
    }
    size_t taken = 0;
    for (; taken < most && self->count > 0; taken++) {
        records[taken] = self->queue[self->first];
        self->first = (self->first + 1) % self->room;
        self->count--;
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

static bool subscription_ending(Subscription *self)
{
    pthread_mutex_lock(&lock);
    bool ending = self->ending;
    pthread_mutex_unlock(&lock);
    return ending;
}

/* Waits for room in the pipe. Returns false if the pipe has no reader, or if the reader does not
   read while the subscription ends. */
static bool pipe_wait(Subscription *self)
{
    int patience_ms = PATIENCE_MS;
    while (patience_ms > 0) {
        struct pollfd end = {.fd = self->fd, .events = POLLOUT};
        int ready = poll(&end, 1, POLL_MS);
        if (ready > 0) {
            return (end.revents & (POLLERR | POLLNVAL)) == 0;
        }
        if (ready < 0 && errno != EINTR) {
            return false;
        }
        patience_ms -= subscription_ending(self) ? POLL_MS : 0;
    }
    return false;
}

/* Writes records to the pipe. If poll reports a pipe as writable, it has room for these few bytes,
   so the write is complete and does not wait. */
static bool records_write(Subscription *self, const OpRecord *records, size_t count)
{
    const char *bytes = (const char *)records;
    size_t left = count * sizeof *records;
    while (left > 0) {
        if (!pipe_wait(self)) {
            return false;
        }
        ssize_t written = write(self->fd, bytes, left);
        if (written < 0 && errno != EINTR && errno != EAGAIN) {
            return false;
        }
        bytes += written > 0 ? written : 0;
        left -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

static void *writer_main(void *argument)
{
    enum { AT_ONCE = 32 };
    OpRecord records[AT_ONCE];
    Subscription *self = argument;
    bool read = true;
    for (size_t taken; (taken = records_take(self, records, AT_ONCE)) > 0;) {
        read = read && records_write(self, records, taken);
    }
    return NULL;
}

/* Starts the thread that writes. It blocks all signals: the program handles them, and the SIGPIPE
   of a pipe without a reader would end the program. */
static bool writer_start(Subscription *self)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = pthread_create(&self->writer, NULL, writer_main, self) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}

/* ---- queueing -------------------------------------------------------------------------------- */

/* Makes room for one more record. Returns false at the limit or without host memory. The caller holds the mutex. */
static bool queue_grow(Subscription *self)
{
    if (self->count < self->room) {
        return true;
    }
    size_t room = self->room == 0 ? 256 : 2 * self->room;
    OpRecord *wider = room > QUEUE_MAX ? NULL : malloc(room * sizeof *wider);
    if (wider == NULL) {
        return false;
    }
    for (size_t i = 0; i < self->count; i++) {
        wider[i] = self->queue[(self->first + i) % self->room];
    }
    free(self->queue);
    self->queue = wider;
    self->first = 0;
    self->room = room;
    return true;
}

static Subscription **subscription_find(uint32_t model)
{
    Subscription **link = &subscriptions;
    while (*link != NULL && (*link)->model != model) {
        link = &(*link)->next;
    }
    return link;
}

void subscription_tell(const OpRun *run)
{
    OpRecord record;
    pthread_mutex_lock(&lock);
    bool watched = *subscription_find(run->model) != NULL;
    pthread_mutex_unlock(&lock);
    if (!watched) {
        return;
    }
    oprecord_make(run, &record);
    pthread_mutex_lock(&lock);
    Subscription *self = *subscription_find(run->model);
    if (self != NULL && queue_grow(self)) {
        self->queue[(self->first + self->count++) % self->room] = record;
        pthread_cond_signal(&self->stirred);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- subscribing ----------------------------------------------------------------------------- */

static aclError model_check(uint32_t id)
{
    if (!subscription_model_exists(id)) {
        return error_set("aclprofModelSubscribe", ACL_ERROR_INVALID_MODEL_ID,
            "no model has the number %u", id);
    }
    return ACL_SUCCESS;
}

static void subscription_free(Subscription *self)
{
    pthread_cond_destroy(&self->stirred);
    free(self->queue);
    free(self);
}

/* Adds the subscription to the list. Returns 148046 if the model has one already. */
static aclError subscription_enter(Subscription *self)
{
    pthread_mutex_lock(&lock);
    Subscription **place = subscription_find(self->model);
    bool taken = *place != NULL;
    if (!taken) {
        *place = self;
        atomic_fetch_add(&subscription_count, 1);
    }
    pthread_mutex_unlock(&lock);
    return taken ? (aclError)ACL_ERROR_PROF_REPEAT_SUBSCRIBE : ACL_SUCCESS;
}

aclError sim_aclprofModelSubscribe(
    uint32_t modelId, const aclprofSubscribeConfig *profSubscribeConfig)
{
    TRY(model_check(modelId));
    REQUIRE(handle_is(profSubscribeConfig, HANDLE_SUBSCRIPTION));
    REQUIRE(profSubscribeConfig->times || profSubscribeConfig->metrics != ACL_AICORE_NONE);
    if (profiler_initialised()) {
        return fail(ACL_ERROR_PROF_API_CONFLICT,
            "profiling is initialised: call aclprofFinalize before aclprofModelSubscribe");
    }
    int fd = *profSubscribeConfig->fd;
    if (fcntl(fd, F_GETFD) < 0) {
        return fail(ACL_ERROR_INVALID_PARAM, "fd points at %d, which is not an open file", fd);
    }
    Subscription *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a subscription");
    }
    self->model = modelId;
    self->fd = fd;
    pthread_cond_init(&self->stirred, NULL);
    if (!writer_start(self)) {
        subscription_free(self);
        return fail(ACL_ERROR_PROFILING_FAILURE, "no thread for a subscription");
    }
    aclError status = subscription_enter(self);
    if (status != ACL_SUCCESS) {
        pthread_mutex_lock(&lock);
        self->ending = true;
        pthread_cond_signal(&self->stirred);
        pthread_mutex_unlock(&lock);
        (void)pthread_join(self->writer, NULL);
        subscription_free(self);
        return fail(status, "model %u is already subscribed", modelId);
    }
    return ACL_SUCCESS;
}

aclError sim_aclprofModelUnSubscribe(uint32_t modelId)
{
    pthread_mutex_lock(&lock);
    Subscription **place = subscription_find(modelId);
    Subscription *self = *place;
    if (self != NULL) {
        *place = self->next;
        self->ending = true;
        pthread_cond_signal(&self->stirred);
        atomic_fetch_sub(&subscription_count, 1);
    }
    pthread_mutex_unlock(&lock);
    if (self == NULL) {
        return fail(ACL_ERROR_INVALID_MODEL_ID, "model %u is not subscribed", modelId);
    }
    (void)pthread_join(self->writer, NULL);
    (void)close(self->fd);
    subscription_free(self);
    return ACL_SUCCESS;
}
