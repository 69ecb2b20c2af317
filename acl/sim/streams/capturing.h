/* capturing.h: what streams and events call in the folder `graphs` during a capture, which puts
 * tasks into a graph instead of the queue.
 *
 * `graphs` is built on this folder and not the other way round, so it fills the table in when the
 * library is loaded. */
#ifndef SIM_CAPTURING_H
#define SIM_CAPTURING_H

#include "streams/stream.h"

struct Event;

typedef struct Captures {
    /* Puts a task into the stream's graph; the stream's lock is held. */
    aclError (*push)(Stream *stream, struct Graph *graph, const TaskClass *sort, const void *payload,
                     size_t size);
    /* The task takes the place of the next task of the group; the stream's lock is held. */
    aclError (*replace)(struct TaskGroup *group, const TaskClass *sort, const void *payload,
                        size_t size);
    bool (*has_stream)(const Stream *stream);
    aclError (*forbids_sync)(void);
    /* A record or wait inside a capture becomes an edge of the graph, not a task. */
    aclError (*record_event)(Stream *stream, struct Event *event);
    aclError (*wait_event)(Stream *stream, struct Event *event);
    /* The stream is ending: a capture of it can never be completed and takes no more tasks. */
    void (*stream_gone)(Stream *stream);
} Captures;

extern Captures captures;
/* Number of open captures. */
extern _Atomic uint32_t captures_active;

bool stream_is_capturing(const Stream *stream);
/* Returns 107027 if the stream is being captured. */
aclError capture_check_stream(const Stream *stream);

#endif
