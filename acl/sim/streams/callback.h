/* Callbacks of the user: the interface for other folders of the simulator. */
#ifndef SIM_CALLBACK_H
#define SIM_CALLBACK_H

#include "base/core.h"

/* Tells whether the running task of the stream is in a user's function: a forced end of the
 * stream does not wait for such a task. A function that has not begun is withdrawn. */
void callback_waits(Stream *stream, bool waits);
/* Starts a detached thread that takes no signals. Returns an errno, or 0. */
int thread_start(void *(*work)(void *), void *argument);

/* For an interpreter that shuts down: from now on no user's function is called; tasks that would
 * call one are done without it. Returns 0 when no function is running, 507046 if one is still
 * running after the timeout (-1: wait for ever). */
SIM_SHARED aclError acl_sim_callbacks_detach(int32_t timeout_ms);

/* report_thread.c */
/* The two kinds of calls that a thread can subscribe for; a stream may have one thread of each
 * kind. */
typedef enum Subscription {
    SUBSCRIBED_REPORTS,        /* aclrtSubscribeReport */
    SUBSCRIBED_HOST_FUNCTIONS, /* aclrtSubscribeHostFunc */
    SUBSCRIPTIONS
} Subscription;

bool report_subscribed(Stream *stream, Subscription sort);
/* Queues a call for the thread that subscribed the stream. If `blocks`, the stream waits until
 * the thread has run it. */
aclError report_launch(Stream *stream, Subscription sort, aclrtCallback function, void *argument,
                       bool blocks);

#endif
