/* capturing.h: what streams and events ask of graphs, in which a capture puts tasks instead of the queue.
 *
 * The room `graphs`, which stands above this one, fills the table in as the library is loaded. */
#ifndef SIM_CAPTURING_H
#define SIM_CAPTURING_H

#include "streams/stream.h"

struct Event;

typedef struct Captures {
    /* Puts a task into the stream's graph; the stream's lock is held. */
    aclError (*push)(Stream *stream, struct Graph *graph, const TaskClass *sort, const void *payload,
                     size_t size);
    /* Takes the place of the group's next task; the stream's lock is held. */
    aclError (*replace)(struct TaskGroup *group, const TaskClass *sort, const void *payload,
                        size_t size);
    bool (*has_stream)(const Stream *stream);
    aclError (*forbids_sync)(void);
    /* A record or wait inside a capture becomes an edge of the graph, not a task. */
    aclError (*record_event)(Stream *stream, struct Event *event);
    aclError (*wait_event)(Stream *stream, struct Event *event);
    /* A capture of that stream can never be completed; it takes no tasks any more. */
    void (*stream_gone)(Stream *stream);
} Captures;

extern Captures captures;
/* How many captures are going on. */
extern _Atomic uint32_t captures_active;

bool stream_is_capturing(const Stream *stream);
/* 107027 if the stream is being captured. */
aclError capture_check_stream(const Stream *stream);

#endif
