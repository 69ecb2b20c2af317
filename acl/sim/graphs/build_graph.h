/* Graphs built by hand: the interface for graph.c. */
#ifndef SIM_BUILD_GRAPH_H
#define SIM_BUILD_GRAPH_H

#include "graphs/capture.h"

typedef struct Label {
    bool is_set; /* true after the label was set on a stream; it can be set only once */
} Label;

/* Executes a complete built graph: runs the lanes of the streams bound with ACL_MODEL_STREAM_FLAG_HEAD. */
aclError built_run(const Graph *graph, Stream *on);

#endif
