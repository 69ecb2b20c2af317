/* The lists that connect graphs and streams, and the list of open captures.
 *
 * A graph has a lane for each of its streams. A stream has a list of its lanes in graphs (entries of
 * type GraphPart), the newest graph first. The graph and the stream can end in either order.
 *
 * Thread rule: a graph's lock guards its lanes; `lock` guards the lists of parts and of captures,
 * and no other lock is taken while it is held. A call that finds a graph in a list takes a reference
 * before it releases `lock`. */
#include "graphs/capture.h"
#include "base/fork.h"

#include <stdlib.h>

struct GraphPart {
    Graph *graph;
    uint32_t lane;
    Stream *stream; /* NULL: the stream was destroyed */
    GraphPart *older, *younger;
};

FILE_LOCK(lock);
static Graph *newest_capture; /* list of the open captures */

void graphs_forked(void)
{
    newest_capture = NULL;
    atomic_store(&captures_active, 0);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Adds the part to the stream's list, unless the stream is being destroyed; the lock is held. */
static void part_link(GraphPart *part, Stream *stream)
{
    GraphPart *younger = NULL, *older = stream->parts;
    if (atomic_load(&stream->closing)) {
        return;
    }
    while (older != NULL && older->graph->number > part->graph->number) {
        younger = older;
        older = older->older;
    }
    part->stream = stream;
    part->older = older;
    part->younger = younger;
    if (older != NULL) {
        older->younger = part;
    }
    if (younger != NULL) {
        younger->older = part;
    } else {
        stream->parts = part;
    }
}

static void part_unlink(GraphPart *part)
{
    if (part->stream == NULL) {
        return;
    }
    if (part->older != NULL) {
        part->older->younger = part->younger;
    }
    if (part->younger != NULL) {
        part->younger->older = part->older;
    } else {
        part->stream->parts = part->older;
    }
    part->stream = NULL;
}

void stream_leave_graphs(Stream *stream)
{
    pthread_mutex_lock(&lock);
    while (stream->parts != NULL) {
        part_unlink(stream->parts);
    }
    pthread_mutex_unlock(&lock);
}

Graph *graph_of_stream(Stream *stream, uint32_t *lane)
{
    Graph *found = NULL;
    pthread_mutex_lock(&lock);
    for (GraphPart *part = stream->parts; part != NULL && found == NULL; part = part->older) {
        if (graph_try_hold(part->graph)) {
            found = part->graph;
            *lane = part->lane;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

uint32_t graph_lane(Graph *graph, Stream *stream)
{
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        if (graph->lanes[i].stream == stream && graph->lanes[i].stream_id == stream->id) {
            return i;
        }
    }
    GraphLane *more = realloc(graph->lanes, (graph->lane_count + 1) * sizeof *more);
    graph->lanes = more != NULL ? more : graph->lanes;
    GraphPart *part = more != NULL ? calloc(1, sizeof *part) : NULL;
    if (part == NULL) {
        return UINT32_MAX;
    }
    part->graph = graph;
    part->lane = graph->lane_count;
    pthread_mutex_lock(&lock);
    part_link(part, stream);
    pthread_mutex_unlock(&lock);
    graph->lanes[graph->lane_count] = (GraphLane){.stream = stream, .stream_id = stream->id,
                                                  .part = part};
    return graph->lane_count++;
}

bool graph_edge(Graph *graph, GraphEdge edge)
{
    if (graph->edge_count == graph->edge_room) {
        size_t room = graph->edge_room == 0 ? 8 : graph->edge_room * 2;
        GraphEdge *more = realloc(graph->edges, room * sizeof *more);
        if (more == NULL) {
            return false;
        }
        graph->edges = more;
        graph->edge_room = room;
    }
    graph->edges[graph->edge_count++] = edge;
    return true;
}

void graph_lanes_free(Graph *graph)
{
    free(graph->edges);
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        part_unlink(graph->lanes[i].part);
        free(graph->lanes[i].part);
    }
    pthread_mutex_unlock(&lock);
    free(graph->lanes);
}

static Stream *lane_stream(Graph *graph, uint32_t lane)
{
    pthread_mutex_lock(&graph->lock);
    Stream *stream = lane < graph->lane_count ? graph->lanes[lane].stream : NULL;
    pthread_mutex_unlock(&graph->lock);
    return stream;
}

/* Ends the capture or the binding of all streams of the graph. Their next tasks are executed, not added to it. */
void graph_unbind(Graph *graph)
{
    Stream *stream;
    for (uint32_t i = 0; (stream = lane_stream(graph, i)) != NULL; i++) {
        if (!handle_hold(stream)) {
            continue; /* the stream is destroyed and takes no more tasks */
        }
        pthread_mutex_lock(&stream->lock);
        if (atomic_load(&stream->graph) == graph) {
            atomic_store(&stream->graph, NULL);
            stream->group = NULL;
        }
        pthread_mutex_unlock(&stream->lock);
        handle_drop(stream);
    }
}

/* ---- captures that go on --------------------------------------------------------------------- */

void capture_enter(Graph *graph)
{
    pthread_mutex_lock(&lock);
    graph->next_capture = newest_capture;
    newest_capture = graph;
    atomic_fetch_add(&captures_active, 1);
    pthread_mutex_unlock(&lock);
}

bool capture_leave(Graph *graph)
{
    pthread_mutex_lock(&lock);
    Graph **link = &newest_capture;
    while (*link != NULL && *link != graph) {
        link = &(*link)->next_capture;
    }
    bool found = *link != NULL;
    if (found) {
        *link = graph->next_capture;
        atomic_fetch_sub(&captures_active, 1);
    }
    pthread_mutex_unlock(&lock);
    if (found) {
        graph_unbind(graph);
    }
    return found;
}

Graph *capture_find(bool (*fits)(const Graph *graph, const void *argument), const void *argument)
{
    pthread_mutex_lock(&lock);
    Graph *found = newest_capture;
    while (found != NULL
           && (atomic_load(&found->state) != GRAPH_CAPTURING || !fits(found, argument))) {
        found = found->next_capture;
    }
    if (found != NULL && !graph_try_hold(found)) {
        found = NULL;
    }
    pthread_mutex_unlock(&lock);
    return found;
}
