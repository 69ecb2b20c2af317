/* Callbacks of the user, as the rooms see them. */
#ifndef SIM_CALLBACK_H
#define SIM_CALLBACK_H

#include "base/core.h"

/* True if the stream's task is in a user's function: a forced end of the stream does not wait for such
 * a task.  A function that has not begun is withdrawn. */
void callback_waits(Stream *stream, bool waits);
/* A detached thread that takes no signals; an errno, or 0. */
int thread_start(void *(*work)(void *), void *argument);

/* For an interpreter that goes down: no user's function is called any more (tasks that would are
 * done without it).  Returns 0 once none is running, 507046 if one still is after the timeout
 * (-1: wait for ever). */
SIM_SHARED aclError acl_sim_callbacks_detach(int32_t timeout_ms);

/* report_thread.c */
/* A stream may have one thread of each. */
typedef enum Subscription {
    SUBSCRIBED_REPORTS,        /* aclrtSubscribeReport */
    SUBSCRIBED_HOST_FUNCTIONS, /* aclrtSubscribeHostFunc */
    SUBSCRIPTIONS
} Subscription;

bool report_subscribed(Stream *stream, Subscription sort);
/* Has the thread subscribed for that call it; `blocks`: the stream waits until it did. */
aclError report_launch(Stream *stream, Subscription sort, aclrtCallback function, void *argument,
                       bool blocks);

#endif
