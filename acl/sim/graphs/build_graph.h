/* Graphs built by hand, as graph.c sees them. */
#ifndef SIM_BUILD_GRAPH_H
#define SIM_BUILD_GRAPH_H

#include "graphs/capture.h"

typedef struct Label {
    bool is_set; /* on a stream, once */
} Label;

/* Runs the streams that begin; the graph is complete. */
aclError built_run(const Graph *graph, Stream *on);

#endif
