/* tdt.c: bounded queues with timeouts, and routes between them. See tdt.h.

   A queue belongs to one process.  Its speed does not matter, so one lock and one condition variable serve all
   queues.  No queue number is used twice. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "queues/tdt.h"

enum { ROUTES_MAX = 4096, EVERY_PERMISSION = 7 };

typedef struct Queue {
    struct Queue *next;
    const TdtMessages *sort;
    uint32_t id, depth, first, count, permission;
    char name[TDT_NAME_MAX];
    void *slots[];
} Queue;

typedef struct Bound {
    uint32_t source, target;
} Bound;

FILE_LOCK(lock);
static pthread_cond_t changed;
static Queue *queues;
static uint32_t last_id;
static Bound routes[ROUTES_MAX];
static size_t route_count;

__attribute__((constructor(105))) static void condition_start(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Waits for a change of any queue. Returns false at the deadline. */
static bool change_wait(int64_t deadline_ns)
{
    if (deadline_ns == FOREVER) {
        pthread_cond_wait(&changed, &lock);
        return true;
    }
    struct timespec until = {.tv_sec = deadline_ns / 1000000000,
                             .tv_nsec = deadline_ns % 1000000000};
    return pthread_cond_timedwait(&changed, &lock, &until) == 0;
}

static Queue *queue_find(uint32_t id)
{
    Queue *queue = queues;
    while (queue != NULL && queue->id != id) {
        queue = queue->next;
    }
    return queue;
}

static void queue_push(Queue *queue, void *message)
{
    queue->slots[(queue->first + queue->count++) % queue->depth] = message;
}

static void *queue_pop(Queue *queue)
{
    void *message = queue->slots[queue->first];
    queue->first = (queue->first + 1) % queue->depth;
    queue->count--;
    return message;
}

/* ---- routes ---------------------------------------------------------------------------------- */

static bool route_is(size_t at, uint32_t source, uint32_t target)
{
    return routes[at].source == source && routes[at].target == target;
}

static size_t route_at(uint32_t source, uint32_t target)
{
    size_t at = 0;
    while (at < route_count && !route_is(at, source, target)) {
        at++;
    }
    return at;
}

/* True if routes lead from `from` to `to`.  Routes form no cycle, so the recursion ends. */
static bool route_leads(uint32_t from, uint32_t to)
{
    if (from == to) {
        return true;
    }
    for (size_t i = 0; i < route_count; i++) {
        if (routes[i].source == from && route_leads(routes[i].target, to)) {
            return true;
        }
    }
    return false;
}

/* Returns the number of queues to which the source is routed; 0 if one of them is full. */
static size_t route_room(const Queue *source)
{
    size_t targets = 0;
    for (size_t i = 0; i < route_count; i++) {
        if (routes[i].source != source->id) {
            continue;
        }
        Queue *target = queue_find(routes[i].target);
        if (target->count == target->depth) {
            return 0;
        }
        targets++;
    }
    return targets;
}

static void route_move(Queue *source, size_t targets)
{
    void *message = queue_pop(source);
    for (size_t i = 0; i < route_count && targets > 0; i++) {
        if (routes[i].source != source->id) {
            continue;
        }
        void *sent = --targets == 0 ? message : source->sort->copy(message);
        if (sent != NULL) {
            queue_push(queue_find(routes[i].target), sent);
        }
    }
}

/* Moves messages along all routes until none can be moved. */
static void routes_run(void)
{
    bool moved = route_count > 0;
    while (moved) {
        moved = false;
        for (Queue *source = queues; source != NULL; source = source->next) {
            size_t targets = source->count > 0 ? route_room(source) : 0;
            if (targets > 0) {
                route_move(source, targets);
                moved = true;
            }
        }
    }
}

aclError tdt_route_bind(uint32_t source, uint32_t target)
{
    pthread_mutex_lock(&lock);
    Queue *from = queue_find(source);
    Queue *to = queue_find(target);
    bool sound = from != NULL && to != NULL && from->sort == to->sort && from->sort->copy != NULL &&
                 route_count < ROUTES_MAX && route_at(source, target) == route_count &&
                 !route_leads(target, source);
    if (sound) {
        routes[route_count++] = (Bound){source, target};
        routes_run();
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return sound ? ACL_SUCCESS : ACL_ERROR_FAILURE;
}

aclError tdt_route_unbind(uint32_t source, uint32_t target)
{
    pthread_mutex_lock(&lock);
    size_t at = route_at(source, target);
    bool bound = at < route_count;
    if (bound) {
        memmove(&routes[at], &routes[at + 1], (--route_count - at) * sizeof routes[0]);
    }
    pthread_mutex_unlock(&lock);
    return bound ? ACL_SUCCESS : ACL_ERROR_FAILURE;
}

void tdt_route_visit(TdtVisit visit, void *argument)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < route_count; i++) {
        visit(routes[i].source, routes[i].target, argument);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- queues ---------------------------------------------------------------------------------- */

static bool name_taken(const char *name)
{
    for (const Queue *queue = queues; queue != NULL && *name != '\0'; queue = queue->next) {
        if (strcmp(queue->name, name) == 0) {
            return true;
        }
    }
    return false;
}

aclError tdt_queue_new(const char *name, uint32_t depth, const TdtMessages *sort, uint32_t *id)
{
    if (depth == 0 || depth > TDT_DEPTH_MAX || strlen(name) >= TDT_NAME_MAX) {
        return ACL_ERROR_RT_PARAM_INVALID;
    }
    Queue *queue = calloc(1, sizeof *queue + depth * sizeof queue->slots[0]);
    if (queue == NULL) {
        return ACL_ERROR_RT_MEMORY_ALLOCATION;
    }
    queue->sort = sort;
    queue->depth = depth;
    strcpy(queue->name, name);
    pthread_mutex_lock(&lock);
    bool taken = name_taken(name);
    if (!taken) {
        queue->id = *id = ++last_id;
        queue->next = queues;
        queues = queue;
    }
    pthread_mutex_unlock(&lock);
    if (taken) {
        free(queue);
    }
    return taken ? ACL_ERROR_INVALID_PARAM : ACL_SUCCESS;
}

static void queue_drop_all(Queue *queue)
{
    while (queue->count > 0) {
        queue->sort->drop(queue_pop(queue));
    }
}

aclError tdt_queue_delete(uint32_t id)
{
    aclError status = ACL_ERROR_RT_PARAM_INVALID;
    Queue *found = NULL;
    pthread_mutex_lock(&lock);
    for (Queue **at = &queues; *at != NULL && found == NULL; at = &(*at)->next) {
        if ((*at)->id == id) {
            found = *at;
            status = ACL_SUCCESS;
            for (size_t i = 0; i < route_count; i++) {
                if (routes[i].source == id || routes[i].target == id) {
                    status = ACL_ERROR_FAILURE;
                }
            }
            if (status == ACL_SUCCESS) {
                *at = found->next;
                break;
            }
        }
    }
    if (status == ACL_SUCCESS) {
        queue_drop_all(found);
        free(found);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

aclError tdt_queue_put(uint32_t id, void *message, int32_t timeout_ms)
{
    int64_t deadline = deadline_after_ms(timeout_ms);
    bool in_time = timeout_ms != 0;
    aclError status = ACL_ERROR_RT_PARAM_INVALID;
    pthread_mutex_lock(&lock);
    Queue *queue = queue_find(id);
    while (queue != NULL && queue->count == queue->depth && in_time) {
        in_time = change_wait(deadline);
        queue = queue_find(id);
    }
    if (queue != NULL) {
        status = ACL_ERROR_RT_QUEUE_FULL;
        if (queue->count < queue->depth) {
            queue_push(queue, message);
            routes_run();
            pthread_cond_broadcast(&changed);
            status = ACL_SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

aclError tdt_queue_get(uint32_t id, TdtAccept accept, void *argument, int32_t timeout_ms,
                       void **message)
{
    int64_t deadline = deadline_after_ms(timeout_ms);
    bool in_time = timeout_ms != 0;
    aclError status = ACL_ERROR_RT_PARAM_INVALID;
    pthread_mutex_lock(&lock);
    Queue *queue = queue_find(id);
    while (queue != NULL && queue->count == 0 && in_time) {
        in_time = change_wait(deadline);
        queue = queue_find(id);
    }
    if (queue != NULL && queue->count == 0) {
        status = ACL_ERROR_RT_QUEUE_EMPTY;
    } else if (queue != NULL) {
        status = accept == NULL ? ACL_SUCCESS : accept(queue->slots[queue->first], argument);
        if (status == ACL_SUCCESS) {
            *message = queue_pop(queue);
            routes_run();
            pthread_cond_broadcast(&changed);
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

aclError tdt_queue_count(uint32_t id, size_t *count)
{
    pthread_mutex_lock(&lock);
    const Queue *queue = queue_find(id);
    if (queue != NULL) {
        *count = queue->count;
    }
    pthread_mutex_unlock(&lock);
    return queue != NULL ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID;
}

aclError tdt_queue_clear(uint32_t id)
{
    pthread_mutex_lock(&lock);
    Queue *queue = queue_find(id);
    if (queue != NULL) {
        queue_drop_all(queue);
        routes_run();
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return queue != NULL ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID;
}

aclError tdt_queue_grant(uint32_t id, uint32_t permission)
{
    pthread_mutex_lock(&lock);
    Queue *queue = queue_find(id);
    if (queue != NULL) {
        queue->permission = permission;
    }
    pthread_mutex_unlock(&lock);
    return queue != NULL ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID;
}

/* Gives the granted permissions. Before any grant, the process that made the queue has all of them. */
aclError tdt_queue_permission(uint32_t id, uint32_t *permission)
{
    pthread_mutex_lock(&lock);
    const Queue *queue = queue_find(id);
    if (queue != NULL) {
        *permission = queue->permission != 0 ? queue->permission : EVERY_PERMISSION;
    }
    pthread_mutex_unlock(&lock);
    return queue != NULL ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID;
}

/* ---- objects --------------------------------------------------------------------------------- */

void *tdt_object(TdtSort sort)
{
    TdtSort *object = handle_new(HANDLE_TDT, TDT_OBJECT_SIZE);
    if (object != NULL) {
        *object = sort;
    }
    return object;
}

bool tdt_is(const void *object, TdtSort sort)
{
    return handle_is(object, HANDLE_TDT) && *(const TdtSort *)object == sort;
}

bool tdt_destroy(const void *object)
{
    void *own = (void *)(uintptr_t)object;
    bool ours = handle_kill(own);
    if (ours) {
        handle_retire(own);
    }
    return ours;
}
