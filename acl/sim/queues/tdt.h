/* tdt.h: queues between threads, as acltdtQueue and acltdtChannel share them.

   A queue holds messages of one sort and a bounded number of them; a route moves what arrives in
   one queue to another as soon as there is room.

   Thread rule: one lock for all queues, which no call outside tdt.c holds; `accept` is called under
   it. */
#ifndef SIM_TDT_H
#define SIM_TDT_H

#include "base/core.h"

enum { TDT_NAME_MAX = 128, TDT_DEPTH_MAX = 8192 };

/* What a queue's messages are. */
typedef struct TdtMessages {
    void (*drop)(void *message);
    void *(*copy)(void *message); /* NULL: they cannot be routed to several queues */
} TdtMessages;

/* Objects that users hold: all in HANDLE_TDT, which has one size for all its sorts. */
typedef enum TdtSort {
    TDT_QUEUE_ATTR = 1,
    TDT_ROUTE,
    TDT_ROUTE_LIST,
    TDT_QUERY,
    TDT_ITEM,
    TDT_DATASET,
    TDT_CHANNEL,
} TdtSort;

enum { TDT_OBJECT_SIZE = 192 };

/* Zeroed but for its first member, which must be a TdtSort; NULL if there is no memory. */
void *tdt_object(TdtSort sort);
bool tdt_is(const void *object, TdtSort sort);
/* False if another thread has destroyed it, or is doing so. */
bool tdt_destroy(const void *object);

/* Returns the status alone; the caller makes the message (error_set).  107000 for an unknown id;
   207014 and 207013 when the timeout (-1: none) ends while it is full, or empty. */
aclError tdt_queue_new(const char *name, uint32_t depth, const TdtMessages *sort, uint32_t *id);
aclError tdt_queue_delete(uint32_t id); /* 500001 while it has routes */
aclError tdt_queue_put(uint32_t id, void *message, int32_t timeout_ms);
typedef aclError (*TdtAccept)(const void *message, void *argument);
/* Takes the oldest message if accept(message) is success (NULL: always), else its status. */
aclError tdt_queue_get(uint32_t id, TdtAccept accept, void *argument, int32_t timeout_ms,
                       void **message);
aclError tdt_queue_count(uint32_t id, size_t *count);
aclError tdt_queue_clear(uint32_t id);
aclError tdt_queue_grant(uint32_t id, uint32_t permission);
aclError tdt_queue_permission(uint32_t id, uint32_t *permission);

/* 500001 if a queue is missing, the route is there already (or not there), or makes a ring. */
aclError tdt_route_bind(uint32_t source, uint32_t target);
aclError tdt_route_unbind(uint32_t source, uint32_t target);
typedef void (*TdtVisit)(uint32_t source, uint32_t target, void *argument);
void tdt_route_visit(TdtVisit visit, void *argument);

#endif
