/* Graphs built by hand: the interface for graph.c. */
#ifndef SIM_BUILD_GRAPH_H
#define SIM_BUILD_GRAPH_H

#include "graphs/capture.h"

typedef struct Label {
    bool is_set; /* true after the label was set on a stream; it can be set only once */
} Label;

/* Executes, on the stream `on`, a graph that was built by hand. Runs one after another the lanes of the streams
 * that were bound with ACL_MODEL_STREAM_FLAG_HEAD; a task in them can run the lane of another stream. */
aclError built_run(const Graph *graph, Stream *on);

#endif
