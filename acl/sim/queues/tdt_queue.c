/* tdt_queue.c: acltdtQueue: queues of shared buffers, their attributes and routes.

   A queue belongs to the process that made it; no other process can be granted access. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generated/exports.h"
#include "memory/memory.h"
#include "queues/tdt.h"

enum { DEPTH_DEFAULT = 8, USER_DATA_MAX = 96, PERMISSIONS = 7 };

struct tagMemQueueAttr {
    TdtSort sort;
    uint32_t depth;
    char name[TDT_NAME_MAX];
};

struct acltdtQueueRoute {
    TdtSort sort;
    uint32_t source, target;
    int32_t status;
};

struct acltdtQueueRouteList {
    TdtSort sort;
    struct acltdtQueueRoute *routes;
    size_t count, room;
};

struct acltdtQueueRouteQueryInfo {
    TdtSort sort;
    acltdtQueueRouteQueryMode mode;
    uint32_t source, target;
    bool has_mode, has_source, has_target;
};

_Static_assert(sizeof(struct tagMemQueueAttr) <= TDT_OBJECT_SIZE, "one size for all");
_Static_assert(sizeof(struct acltdtQueueRoute) <= TDT_OBJECT_SIZE, "one size for all");
_Static_assert(sizeof(struct acltdtQueueRouteList) <= TDT_OBJECT_SIZE, "one size for all");
_Static_assert(sizeof(struct acltdtQueueRouteQueryInfo) <= TDT_OBJECT_SIZE, "one size for all");

/* Returns a status of tdt.h, after writing its message. */
static aclError queue_status(const char *function, uint32_t id, aclError status)
{
    if (status == ACL_SUCCESS) {
        return status;
    }
    if (status == ACL_ERROR_RT_QUEUE_FULL) {
        return error_set(function, status, "queue %u is full", id);
    }
    if (status == ACL_ERROR_RT_QUEUE_EMPTY) {
        return error_set(function, status, "queue %u is empty", id);
    }
    if (status == ACL_ERROR_FAILURE) {
        return error_set(function, status, "queue %u has routes: unbind them first", id);
    }
    return error_set(function, status,
                     "queue %u: unknown id, or an argument that it does not accept", id);
}

/* ---- attributes ------------------------------------------------------------------------------ */

acltdtQueueAttr *sim_acltdtCreateQueueAttr(void)
{
    acltdtQueueAttr *attr = tdt_object(TDT_QUEUE_ATTR);
    if (attr != NULL) {
        attr->depth = DEPTH_DEFAULT;
    }
    return attr;
}

aclError sim_acltdtDestroyQueueAttr(const acltdtQueueAttr *attr)
{
    REQUIRE(tdt_is(attr, TDT_QUEUE_ATTR) && tdt_destroy(attr));
    return ACL_SUCCESS;
}

/* The parameter is a pointer to the name.  CANN's examples also pass the name itself, with its size. That is
   accepted if the size is greater than that of a pointer. */
static const char *name_parameter(size_t len, const void *param)
{
    const char *name = NULL;
    if (len == sizeof name) {
        memcpy(&name, param, sizeof name);
    } else if (len > sizeof name && memchr(param, '\0', len) == (const char *)param + len - 1) {
        name = param;
    }
    return name;
}

aclError sim_acltdtSetQueueAttr(acltdtQueueAttr *attr, acltdtQueueAttrType type, size_t len,
    const void *param)
{
    REQUIRE(tdt_is(attr, TDT_QUEUE_ATTR));
    REQUIRE(param);
    if (type == ACL_TDT_QUEUE_NAME_PTR) {
        const char *name = name_parameter(len, param);
        REQUIRE(name);
        size_t length = strnlen(name, TDT_NAME_MAX);
        REQUIRE(length < TDT_NAME_MAX);
        memcpy(attr->name, name, length + 1);
        return ACL_SUCCESS;
    }
    REQUIRE(type == ACL_TDT_QUEUE_DEPTH_UINT32);
    REQUIRE(len <= sizeof attr->depth);
    memcpy(&attr->depth, param, len);
    return ACL_SUCCESS;
}

/* Copies a parameter to the caller's buffer. Returns 100000 if the buffer is too small. */
static aclError parameter_out(const char *function, const void *value, size_t size, size_t len,
                              size_t *written, void *param)
{
    if (len < size) {
        return error_set(function, ACL_ERROR_INVALID_PARAM, "len is %zu, expected at least %zu",
                         len, size);
    }
    memcpy(param, value, size);
    *written = size;
    return ACL_SUCCESS;
}

aclError sim_acltdtGetQueueAttr(const acltdtQueueAttr *attr, acltdtQueueAttrType type, size_t len,
    size_t *paramRetSize, void *param)
{
    REQUIRE(tdt_is(attr, TDT_QUEUE_ATTR));
    REQUIRE(param);
    REQUIRE(paramRetSize);
    if (type == ACL_TDT_QUEUE_NAME_PTR) {
        const char *name = attr->name;
        return parameter_out(__func__, &name, sizeof name, len, paramRetSize, param);
    }
    REQUIRE(type == ACL_TDT_QUEUE_DEPTH_UINT32);
    return parameter_out(__func__, &attr->depth, sizeof attr->depth, len, paramRetSize, param);
}

/* ---- queues ---------------------------------------------------------------------------------- */

static void buffer_drop(void *message)
{
    (void)sim_aclrtFreeBuf(message);
}

static void *buffer_copy(void *message)
{
    aclrtMbuf copy = NULL;
    return sim_aclrtCopyBufRef(message, &copy) == ACL_SUCCESS ? copy : NULL;
}

static const TdtMessages buffers = {buffer_drop, buffer_copy};

aclError sim_acltdtCreateQueue(const acltdtQueueAttr *attr, uint32_t *qid)
{
    Context *context;
    REQUIRE(qid);
    REQUIRE(attr == NULL || tdt_is(attr, TDT_QUEUE_ATTR));
    TRY(context_require(&context));
    const char *name = attr != NULL ? attr->name : "";
    uint32_t depth = attr != NULL ? attr->depth : DEPTH_DEFAULT;
    aclError status = tdt_queue_new(name, depth, &buffers, qid);
    if (status != ACL_SUCCESS) {
        return fail(status, "cannot create queue \"%s\" of depth %u: expected an unused name "
                    "and a depth of 1 to %d", name, depth, TDT_DEPTH_MAX);
    }
    return ACL_SUCCESS;
}

aclError sim_acltdtDestroyQueue(uint32_t qid)
{
    Context *context;
    TRY(context_require(&context));
    return queue_status(__func__, qid, tdt_queue_delete(qid));
}

/* The queue takes over the buffer.  In this call a full queue gives 500001, not 207014. */
aclError sim_acltdtEnqueue(uint32_t qid, acltdtBuf buf, int32_t timeout)
{
    REQUIRE(buf != NULL && handle_is(buf, HANDLE_MBUF));
    aclError status = tdt_queue_put(qid, buf, timeout);
    if (status == ACL_ERROR_RT_QUEUE_FULL) {
        return fail(ACL_ERROR_FAILURE, "queue %u is full", qid);
    }
    return queue_status(__func__, qid, status);
}

aclError sim_acltdtDequeue(uint32_t qid, acltdtBuf *buf, int32_t timeout)
{
    REQUIRE(buf);
    aclError status = tdt_queue_get(qid, NULL, NULL, timeout, buf);
    if (status == ACL_ERROR_RT_QUEUE_EMPTY) {
        return fail(ACL_ERROR_FAILURE, "queue %u is empty", qid);
    }
    return queue_status(__func__, qid, status);
}

static aclError buffer_fill(aclrtMbuf buffer, const void *data, size_t size, const void *user,
                            size_t user_size)
{
    void *bytes = NULL;
    size_t room = 0;
    TRY(sim_aclrtGetBufData(buffer, &bytes, &room));
    memcpy(bytes, data, size);
    return user_size == 0 ? ACL_SUCCESS : sim_aclrtSetBufUserData(buffer, user, user_size, 0);
}

aclError sim_acltdtEnqueueData(uint32_t qid, const void *data, size_t dataSize,
    const void *userData, size_t userDataSize, int32_t timeout, uint32_t rsv)
{
    (void)rsv;
    Context *context;
    aclrtMbuf buffer = NULL;
    REQUIRE(data);
    REQUIRE(dataSize > 0);
    TRY(context_require(&context));
    REQUIRE_RT(userDataSize <= USER_DATA_MAX);
    REQUIRE_RT(userData != NULL || userDataSize == 0);
    Seen seen;
    TRY(memory_check(__func__, "data", data, dataSize, false, &seen));
    TRY(sim_aclrtAllocBuf(&buffer, dataSize));
    aclError status = buffer_fill(buffer, seen.inner, dataSize, userData, userDataSize);
    if (status == ACL_SUCCESS) {
        status = queue_status(__func__, qid, tdt_queue_put(qid, buffer, timeout));
    }
    if (status != ACL_SUCCESS) {
        buffer_drop(buffer);
    }
    return status;
}

/* The size of the buffer of acltdtDequeueData's caller, and the size of the message. */
typedef struct Room {
    size_t bytes;
    size_t needed;
} Room;

static aclError room_accept(const void *message, void *argument)
{
    Room *room = argument;
    aclrtMbuf buffer = (void *)(uintptr_t)message;
    TRY(sim_aclrtGetBufDataLen(buffer, &room->needed));
    return room->needed <= room->bytes ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID;
}

/* If the message is too long, it remains in the queue, and *retDataSize is its length. */
aclError sim_acltdtDequeueData(uint32_t qid, void *data, size_t dataSize, size_t *retDataSize,
    void *userData, size_t userDataSize, int32_t timeout)
{
    Context *context;
    void *message = NULL;
    void *bytes = NULL;
    size_t size = 0;
    Room room = {.bytes = dataSize};
    REQUIRE(data);
    REQUIRE(retDataSize);
    REQUIRE(dataSize > 0);
    TRY(context_require(&context));
    REQUIRE_RT(userDataSize <= USER_DATA_MAX);
    REQUIRE_RT(userData != NULL || userDataSize == 0);
    Seen seen;
    TRY(memory_check(__func__, "data", data, dataSize, true, &seen));
    aclError status = tdt_queue_get(qid, room_accept, &room, timeout, &message);
    *retDataSize = room.needed;
    TRY(queue_status(__func__, qid, status));
    TRY(sim_aclrtGetBufData(message, &bytes, &size));
    memory_put(data, seen.inner, bytes, room.needed);
    if (userDataSize > 0) {
        TRY(sim_aclrtGetBufUserData(message, userData, userDataSize, 0));
    }
    buffer_drop(message);
    return ACL_SUCCESS;
}

aclError sim_acltdtGrantQueue(uint32_t qid, int32_t pid, uint32_t permission, int32_t timeout)
{
    (void)timeout;
    Context *context;
    TRY(context_require(&context));
    REQUIRE_RT(permission != 0 && permission <= PERMISSIONS);
    if (pid != (int32_t)getpid()) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "queues cannot be shared with process %d: "
                    "the simulator's live in one process", pid);
    }
    return queue_status(__func__, qid, tdt_queue_grant(qid, permission));
}

aclError sim_acltdtAttachQueue(uint32_t qid, int32_t timeout, uint32_t *permission)
{
    (void)timeout;
    Context *context;
    REQUIRE(permission);
    TRY(context_require(&context));
    return queue_status(__func__, qid, tdt_queue_permission(qid, permission));
}

/* ---- routes ---------------------------------------------------------------------------------- */

acltdtQueueRoute *sim_acltdtCreateQueueRoute(uint32_t srcId, uint32_t dstId)
{
    acltdtQueueRoute *route = tdt_object(TDT_ROUTE);
    if (route != NULL) {
        route->source = srcId;
        route->target = dstId;
    }
    return route;
}

aclError sim_acltdtDestroyQueueRoute(const acltdtQueueRoute *route)
{
    REQUIRE(tdt_is(route, TDT_ROUTE) && tdt_destroy(route));
    return ACL_SUCCESS;
}

aclError sim_acltdtGetQueueRouteParam(const acltdtQueueRoute *route,
    acltdtQueueRouteParamType type, size_t len, size_t *paramRetSize, void *param)
{
    REQUIRE(tdt_is(route, TDT_ROUTE));
    REQUIRE(param);
    REQUIRE(paramRetSize);
    REQUIRE((unsigned)type <= ACL_TDT_QUEUE_ROUTE_STATUS_INT32);
    const void *value = type == ACL_TDT_QUEUE_ROUTE_SRC_UINT32   ? (const void *)&route->source
                        : type == ACL_TDT_QUEUE_ROUTE_DST_UINT32 ? (const void *)&route->target
                                                                 : (const void *)&route->status;
    return parameter_out(__func__, value, sizeof(uint32_t), len, paramRetSize, param);
}

acltdtQueueRouteList *sim_acltdtCreateQueueRouteList(void)
{
    return tdt_object(TDT_ROUTE_LIST);
}

aclError sim_acltdtDestroyQueueRouteList(const acltdtQueueRouteList *routeList)
{
    REQUIRE(tdt_is(routeList, TDT_ROUTE_LIST));
    struct acltdtQueueRoute *routes = routeList->routes;
    REQUIRE(tdt_destroy(routeList));
    free(routes);
    return ACL_SUCCESS;
}

static bool list_add(acltdtQueueRouteList *list, acltdtQueueRoute route)
{
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 8 : 2 * list->room;
        acltdtQueueRoute *routes = realloc(list->routes, room * sizeof *routes);
        if (routes == NULL) {
            return false;
        }
        list->routes = routes;
        list->room = room;
    }
    list->routes[list->count++] = route;
    return true;
}

aclError sim_acltdtAddQueueRoute(acltdtQueueRouteList *routeList, const acltdtQueueRoute *route)
{
    REQUIRE(tdt_is(routeList, TDT_ROUTE_LIST));
    REQUIRE(tdt_is(route, TDT_ROUTE));
    if (!list_add(routeList, *route)) {
        return fail(ACL_ERROR_BAD_ALLOC, "no memory for a route");
    }
    return ACL_SUCCESS;
}

aclError sim_acltdtGetQueueRoute(const acltdtQueueRouteList *routeList, size_t index,
    acltdtQueueRoute *route)
{
    REQUIRE(tdt_is(routeList, TDT_ROUTE_LIST));
    REQUIRE(tdt_is(route, TDT_ROUTE));
    REQUIRE(index < routeList->count);
    *route = routeList->routes[index];
    return ACL_SUCCESS;
}

size_t sim_acltdtGetQueueRouteNum(const acltdtQueueRouteList *routeList)
{
    return tdt_is(routeList, TDT_ROUTE_LIST) ? routeList->count : 0;
}

/* Tries all routes, and sets the status of each. */
aclError sim_acltdtBindQueueRoutes(acltdtQueueRouteList *qRouteList)
{
    Context *context;
    aclError status = ACL_SUCCESS;
    REQUIRE(tdt_is(qRouteList, TDT_ROUTE_LIST));
    TRY(context_require(&context));
    for (size_t i = 0; i < qRouteList->count; i++) {
        acltdtQueueRoute *route = &qRouteList->routes[i];
        aclError bound = tdt_route_bind(route->source, route->target);
        route->status = bound == ACL_SUCCESS ? ACL_TDT_QUEUE_ROUTE_BIND
                                             : ACL_TDT_QUEUE_ROUTE_BIND_ABNORMAL;
        if (bound != ACL_SUCCESS) {
            status = fail(bound, "cannot bind queue %u to queue %u: expected two existing queues, "
                          "not yet bound, whose route does not form a cycle", route->source, route->target);
        }
    }
    return status;
}

aclError sim_acltdtUnbindQueueRoutes(acltdtQueueRouteList *qRouteList)
{
    Context *context;
    aclError status = ACL_SUCCESS;
    REQUIRE(tdt_is(qRouteList, TDT_ROUTE_LIST));
    TRY(context_require(&context));
    for (size_t i = 0; i < qRouteList->count; i++) {
        acltdtQueueRoute *route = &qRouteList->routes[i];
        aclError unbound = tdt_route_unbind(route->source, route->target);
        route->status = ACL_TDT_QUEUE_ROUTE_UNBIND;
        if (unbound != ACL_SUCCESS) {
            status = fail(unbound, "queue %u is not bound to %u", route->source, route->target);
        }
    }
    return status;
}

/* ---- querying routes -------------------------------------------------------------------------- */

acltdtQueueRouteQueryInfo *sim_acltdtCreateQueueRouteQueryInfo(void)
{
    return tdt_object(TDT_QUERY);
}

aclError sim_acltdtDestroyQueueRouteQueryInfo(const acltdtQueueRouteQueryInfo *info)
{
    REQUIRE(tdt_is(info, TDT_QUERY) && tdt_destroy(info));
    return ACL_SUCCESS;
}

aclError sim_acltdtSetQueueRouteQueryInfo(acltdtQueueRouteQueryInfo *param,
    acltdtQueueRouteQueryInfoParamType type, size_t len, const void *value)
{
    REQUIRE(tdt_is(param, TDT_QUERY));
    REQUIRE(value);
    REQUIRE((unsigned)type <= ACL_TDT_QUEUE_ROUTE_QUERY_DST_ID_UINT32);
    REQUIRE(len <= sizeof(uint32_t));
    if (type == ACL_TDT_QUEUE_ROUTE_QUERY_MODE_ENUM) {
        memcpy(&param->mode, value, len);
        param->has_mode = true;
    } else if (type == ACL_TDT_QUEUE_ROUTE_QUERY_SRC_ID_UINT32) {
        memcpy(&param->source, value, len);
        param->has_source = true;
    } else {
        memcpy(&param->target, value, len);
        param->has_target = true;
    }
    return ACL_SUCCESS;
}

typedef struct Query {
    const acltdtQueueRouteQueryInfo *info;
    acltdtQueueRouteList *found;
    bool full;
} Query;

static void query_visit(uint32_t source, uint32_t target, void *argument)
{
    Query *query = argument;
    const acltdtQueueRouteQueryInfo *info = query->info;
    bool by_source = info->mode != ACL_TDT_QUEUE_ROUTE_QUERY_DST;
    bool by_target = info->mode != ACL_TDT_QUEUE_ROUTE_QUERY_SRC;
    if ((by_source && source != info->source) || (by_target && target != info->target)) {
        return;
    }
    acltdtQueueRoute route = {TDT_ROUTE, source, target, ACL_TDT_QUEUE_ROUTE_BIND};
    query->full = query->full || !list_add(query->found, route);
}

/* Never reports an abnormal route, because a route that cannot work is refused when it is bound. */
aclError sim_acltdtQueryQueueRoutes(const acltdtQueueRouteQueryInfo *queryInfo,
    acltdtQueueRouteList *qRouteList)
{
    Context *context;
    REQUIRE(tdt_is(qRouteList, TDT_ROUTE_LIST));
    REQUIRE(tdt_is(queryInfo, TDT_QUERY));
    qRouteList->count = 0;
    REQUIRE(queryInfo->has_mode);
    REQUIRE((unsigned)queryInfo->mode <= ACL_TDT_QUEUE_ROUTE_QUERY_SRC_AND_DST ||
            queryInfo->mode == ACL_TDT_QUEUE_ROUTE_QUERY_ABNORMAL);
    if (queryInfo->mode == ACL_TDT_QUEUE_ROUTE_QUERY_ABNORMAL) {
        return context_require(&context);
    }
    REQUIRE(queryInfo->mode == ACL_TDT_QUEUE_ROUTE_QUERY_DST || queryInfo->has_source);
    REQUIRE(queryInfo->mode == ACL_TDT_QUEUE_ROUTE_QUERY_SRC || queryInfo->has_target);
    TRY(context_require(&context));
    Query query = {queryInfo, qRouteList, false};
    tdt_route_visit(query_visit, &query);
    if (query.full) {
        return fail(ACL_ERROR_BAD_ALLOC, "no memory for the routes");
    }
    return ACL_SUCCESS;
}

/* ---- buffers: the same as aclrtMbuf ---------------------------------------------------------- */

aclError sim_acltdtAllocBuf(size_t size, uint32_t type, acltdtBuf *buf)
{
    REQUIRE(type == ACL_TDT_NORMAL_MEM || type == ACL_TDT_DVPP_MEM);
    return sim_aclrtAllocBuf(buf, size);
}

aclError sim_acltdtFreeBuf(acltdtBuf buf)
{
    return sim_aclrtFreeBuf(buf);
}

aclError sim_acltdtGetBufData(const acltdtBuf buf, void **dataPtr, size_t *size)
{
    return sim_aclrtGetBufData(buf, dataPtr, size);
}

aclError sim_acltdtSetBufDataLen(acltdtBuf buf, size_t len)
{
    return sim_aclrtSetBufDataLen(buf, len);
}

aclError sim_acltdtGetBufDataLen(acltdtBuf buf, size_t *len)
{
    return sim_aclrtGetBufDataLen(buf, len);
}

aclError sim_acltdtAppendBufChain(acltdtBuf headBuf, acltdtBuf buf)
{
    return sim_aclrtAppendBufChain(headBuf, buf);
}

aclError sim_acltdtGetBufChainNum(acltdtBuf headBuf, uint32_t *num)
{
    return sim_aclrtGetBufChainNum(headBuf, num);
}

aclError sim_acltdtGetBufFromChain(acltdtBuf headBuf, uint32_t index, acltdtBuf *buf)
{
    return sim_aclrtGetBufFromChain(headBuf, index, buf);
}

aclError sim_acltdtGetBufUserData(const acltdtBuf buf, void *dataPtr, size_t size, size_t offset)
{
    return sim_aclrtGetBufUserData(buf, dataPtr, size, offset);
}

aclError sim_acltdtSetBufUserData(acltdtBuf buf, const void *dataPtr, size_t size, size_t offset)
{
    return sim_aclrtSetBufUserData(buf, dataPtr, size, offset);
}

aclError sim_acltdtCopyBufRef(const acltdtBuf buf, acltdtBuf *newBuf)
{
    return sim_aclrtCopyBufRef(buf, newBuf);
}
