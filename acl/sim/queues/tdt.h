/* tdt.h: queues between threads, which acltdtQueue and acltdtChannel use.

   A queue holds a limited number of messages of one sort.  A route moves messages that arrive in one queue to
   another as soon as that has room.

   Thread rule: all queues have one lock, which only tdt.c takes. `accept` is called while it is held. */
#ifndef SIM_TDT_H
#define SIM_TDT_H

#include "base/core.h"

enum { TDT_NAME_MAX = 128, TDT_DEPTH_MAX = 8192 };

/* The functions that a queue calls for its messages. Two queues hold the same sort of message if they use the same
   TdtMessages object. */
typedef struct TdtMessages {
    void (*drop)(void *message);
    void *(*copy)(void *message); /* NULL: the queue cannot have routes */
} TdtMessages;

/* The kinds of object that the acltdt functions give to users. All are handles of the kind HANDLE_TDT, whose slots
   all have TDT_OBJECT_SIZE bytes. */
typedef enum TdtSort {
    TDT_QUEUE_ATTR = 1,
    TDT_ROUTE,
    TDT_ROUTE_LIST,
    TDT_QUERY,
    TDT_ITEM,
    TDT_DATASET,
    TDT_CHANNEL,
} TdtSort;

enum { TDT_OBJECT_SIZE = 192 }; /* bytes; enough for the largest of these objects */

/* Makes an object that is all zero except for its first member, a TdtSort. Returns NULL if there is
   no host memory. */
void *tdt_object(TdtSort sort);
/* True if `object` is a live object of that kind. */
bool tdt_is(const void *object, TdtSort sort);
/* Destroys the object. Returns false if another thread is destroying it or has destroyed it. */
bool tdt_destroy(const void *object);

/* These functions return a status and write no message; the caller does (error_set). 107000: unknown id.
   207014 and 207013: the queue was full, or empty, until the timeout (-1: no limit). */
aclError tdt_queue_new(const char *name, uint32_t depth, const TdtMessages *sort, uint32_t *id);
aclError tdt_queue_delete(uint32_t id); /* 500001 while it has routes */
aclError tdt_queue_put(uint32_t id, void *message, int32_t timeout_ms);
typedef aclError (*TdtAccept)(const void *message, void *argument);
/* Takes the oldest message if accept(message) returns success or `accept` is NULL; otherwise returns the status
   of `accept`. */
aclError tdt_queue_get(uint32_t id, TdtAccept accept, void *argument, int32_t timeout_ms,
                       void **message);
aclError tdt_queue_count(uint32_t id, size_t *count);
aclError tdt_queue_clear(uint32_t id);
aclError tdt_queue_grant(uint32_t id, uint32_t permission);
aclError tdt_queue_permission(uint32_t id, uint32_t *permission);

/* Both functions return 500001 if one of the queues does not exist. tdt_route_bind also returns 500001 if the route
   exists already or would close a cycle, if the queues hold messages of different sorts, if such messages cannot be
   copied, or if no further route can be stored. tdt_route_unbind also returns 500001 if the route does not exist. */
aclError tdt_route_bind(uint32_t source, uint32_t target);
aclError tdt_route_unbind(uint32_t source, uint32_t target);
typedef void (*TdtVisit)(uint32_t source, uint32_t target, void *argument);
void tdt_route_visit(TdtVisit visit, void *argument);

#endif
