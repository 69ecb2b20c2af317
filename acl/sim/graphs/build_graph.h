/* Graphs built by hand: the interface for graph.c. */
#ifndef SIM_BUILD_GRAPH_H
#define SIM_BUILD_GRAPH_H

#include "graphs/capture.h"

typedef struct Label {
    bool is_set; /* the label was set on a stream; this can be done once */
} Label;

/* Runs the streams that were bound with ACL_MODEL_STREAM_FLAG_HEAD; the graph is complete. */
aclError built_run(const Graph *graph, Stream *on);

#endif
