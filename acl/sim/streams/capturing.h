/* capturing.h: functions of the folder `graphs` that streams and events call during a capture. A
 * capture puts tasks into a graph instead of the stream's queue.
 *
 * `graphs` includes this folder, so this folder must not include `graphs`. Instead, `graphs` fills
 * in a table of function pointers when the library is loaded. */
#ifndef SIM_CAPTURING_H
#define SIM_CAPTURING_H

#include "streams/stream.h"

struct Event;

typedef struct Captures {
    /* Adds a task to the stream's graph. Called with the stream's lock held. */
    aclError (*push)(Stream *stream, struct Graph *graph, const TaskClass *sort, const void *payload,
                     size_t size);
    /* Replaces the next task of a task group that is being updated. Called with the stream's lock held. */
    aclError (*replace)(struct TaskGroup *group, const TaskClass *sort, const void *payload,
                        size_t size);
    bool (*has_stream)(const Stream *stream);
    aclError (*forbids_sync)(void);
    /* Both add an edge to the graph: inside a capture, a record or a wait is not a task. */
    aclError (*record_event)(Stream *stream, struct Event *event);
    aclError (*wait_event)(Stream *stream, struct Event *event);
    /* Called when a stream ends. A capture of it can then never be completed, and takes no more tasks. */
    void (*stream_gone)(Stream *stream);
} Captures;

extern Captures captures;
/* Number of open captures. */
extern _Atomic uint32_t captures_active;

bool stream_is_capturing(const Stream *stream);
/* Returns 107027 if the stream is being captured. */
aclError capture_check_stream(const Stream *stream);

#endif
