/* Callbacks, as the spine's own files see them. */
#ifndef SIM_CALLBACK_H
#define SIM_CALLBACK_H

#include "core.h"

/* Whether the stream's task is in, or waits for, a user's function: destroying the stream does not
 * wait for such a task. */
void callback_waits(Stream *stream, bool waits);
/* A detached thread that takes no signals; an errno, or 0. */
int thread_start(void *(*work)(void *), void *argument);

/* report.c */
typedef enum Subscription {
    SUBSCRIBED_NOT,
    SUBSCRIBED_REPORTS,       /* aclrtSubscribeReport */
    SUBSCRIBED_HOST_FUNCTIONS /* aclrtSubscribeHostFunc */
} Subscription;

Subscription report_subscription(Stream *stream);
/* Has the subscribed thread call it; `blocks`: the stream waits until it did. */
aclError report_launch(Stream *stream, aclrtCallback function, void *argument, bool blocks);

#endif
