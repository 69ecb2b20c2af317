/* Callbacks of the user: the interface for other folders of the simulator. */
#ifndef SIM_CALLBACK_H
#define SIM_CALLBACK_H

#include "base/core.h"

/* Sets whether the stream's running task is inside a function of the user. A stream that is ended
 * by force does not wait for such a task. A function that has not begun is withdrawn instead. */
void callback_waits(Stream *stream, bool waits);
/* Starts a detached thread that takes no signals. Returns an errno, or 0. */
int thread_start(void *(*work)(void *), void *argument);

/* Stops all calls of users' functions for good; for an interpreter that shuts down. From now on a
 * task that would call such a function completes without the call. Returns 0 when no function is
 * running, 507046 if one is still running after `timeout_ms` (-1: wait for ever). */
SIM_SHARED aclError acl_sim_callbacks_detach(int32_t timeout_ms);

/* ---- report_thread.c ------------------------------------------------------------------------- */
/* The two kinds of callbacks that a thread of the user can subscribe to run. A stream has at most
 * one subscribed thread for each kind. */
typedef enum Subscription {
    SUBSCRIBED_REPORTS,        /* by aclrtSubscribeReport */
    SUBSCRIBED_HOST_FUNCTIONS, /* by aclrtSubscribeHostFunc */
    SUBSCRIPTIONS
} Subscription;

bool report_subscribed(Stream *stream, Subscription sort);
/* Queues a callback for the thread that subscribed the stream. If `blocks`, the stream waits until
 * that thread has run it. */
aclError report_launch(Stream *stream, Subscription sort, aclrtCallback function, void *argument,
                       bool blocks);

#endif
