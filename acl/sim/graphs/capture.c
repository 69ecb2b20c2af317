/* Capturing a stream: tasks that are submitted to it are added to a graph instead of the stream's queue.
 *
 * Another stream joins the capture by waiting for an event that was recorded in it. Before the
 * capture ends, the first stream must wait for an event of each stream that joined. While a
 * capture whose mode is not relaxed is active, calls that block the host are refused (107030) in
 * the thread of the capture. If the mode is global, they are refused in all threads except those
 * that exchanged their mode.
 *
 * Thread rule: a stream's lock guards the pointer to the graph that gets its tasks. An event's
 * lock guards the data about where it was recorded, and is taken before a stream's lock. */
#include "graphs/capture.h"
#include "generated/exports.h"

static _Thread_local aclmdlRICaptureMode thread_mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

Graph *capture_of(Stream *stream)
{
    if (SIM_LIKELY(atomic_load_explicit(&stream->graph, memory_order_relaxed) == NULL)) {
        return NULL;
    }
    pthread_mutex_lock(&stream->lock);
    Graph *graph = atomic_load(&stream->graph);
    bool found = graph != NULL && !graph->is_built && graph_try_hold(graph);
    pthread_mutex_unlock(&stream->lock);
    return found ? graph : NULL;
}

static bool stream_captured(const Stream *stream)
{
    GRAPH_REF(graph);
    graph = capture_of((Stream *)(uintptr_t)stream);
    return graph != NULL;
}

static bool capture_forbids_here(const Graph *graph, const void *argument)
{
    (void)argument;
    if (graph->mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return false;
    }
    return pthread_equal(graph->owner, pthread_self())
           || (graph->mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL
               && thread_mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
}

static aclError sync_forbidden(void)
{
    if (thread_mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return ACL_SUCCESS;
    }
    GRAPH_REF(graph);
    graph = capture_find(capture_forbids_here, NULL);
    return graph == NULL ? ACL_SUCCESS
                         : fail(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
                                "a capture that is not relaxed is going on: the call would block");
}

static aclError capture_push(Stream *stream, Graph *graph, const TaskClass *sort,
                             const void *payload, size_t size)
{
    aclError status = ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
    if (graph->is_built && atomic_load(&graph->state) != GRAPH_BUILDING) {
        return fail(ACL_ERROR_RT_STREAM_MODEL, "modelRI %u is complete", graph->id);
    }
    pthread_mutex_lock(&graph->lock);
    uint32_t lane = graph_lane(graph, stream);
    if (lane != UINT32_MAX) {
        status = graph_push(graph, lane, sort, payload, size);
    }
    pthread_mutex_unlock(&graph->lock);
    return status;
}

/* Stores in the event the position in the graph at which it was recorded; the locks of the event and
 * of the graph are held. */
static aclError event_note(Event *event, Graph *graph, Stream *stream)
{
    uint32_t lane = graph_lane(graph, stream);
    if (lane == UINT32_MAX) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    event->captured_lane = lane;
    event->captured_steps = graph->lanes[lane].steps;
    event->captured_tasks = graph->count;
    event->captured_edges = graph->edge_count;
    atomic_store(&event->capture, graph->number);
    if (races_on()) {
        race_captured_record(graph, lane, event);
    }
    return ACL_SUCCESS;
}

static aclError capture_record_event(Stream *stream, Event *event)
{
    aclError status;
    pthread_mutex_lock(&event->lock);
    pthread_mutex_lock(&stream->lock);
    Graph *graph = atomic_load(&stream->graph);
    if (graph != NULL && !graph->is_built) {
        pthread_mutex_lock(&graph->lock);
        status = event_note(event, graph, stream);
        pthread_mutex_unlock(&graph->lock);
    } else {
        status = fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the capture has ended");
    }
    pthread_mutex_unlock(&stream->lock);
    pthread_mutex_unlock(&event->lock);
    return status;
}

static bool graph_has_number(const Graph *graph, const void *number)
{
    return graph->number == *(const uint64_t *)number;
}

/* Adds an edge: lane `to` waits for the event, which was recorded in this capture. False without
 * memory. The locks of the event and of the graph are held. */
static bool lane_join(Graph *graph, const Event *event, uint32_t to)
{
    GraphLane *from = &graph->lanes[event->captured_lane];
    if (event->captured_lane == to) {
        return true;
    }
    if (!graph_edge(graph, (GraphEdge){to, event->captured_lane, graph->count,
                                       event->captured_tasks, event->captured_edges})) {
        return false;
    }
    if (from->joined < event->captured_steps) {
        from->joined = event->captured_steps;
    }
    graph->lanes[to].steps++;
    return true;
}

/* Adds a wait of the stream to the capture in which the event was recorded. The event's lock is held,
 * so that the event is not recorded again at the same time. */
static aclError wait_note(Stream *stream, Event *event)
{
    GRAPH_REF(graph);
    aclError status = ACL_SUCCESS;
    uint64_t number = atomic_load(&event->capture);
    graph = number != 0 ? capture_find(graph_has_number, &number) : NULL;
    if (graph == NULL) {
        return number != 0
                   ? fail(ACL_ERROR_RT_EVENT_CAPTURED, "event %u belongs to a capture that ended",
                          event->id)
                   : fail(ACL_ERROR_RT_CAPTURE_DEPENDENCY,
                          "event %u was recorded outside the capture of stream %u", event->id,
                          stream->id);
    }
    pthread_mutex_lock(&stream->lock);
    Graph *own = atomic_load(&stream->graph);
    if (own != NULL && own != graph) {
        status = fail(ACL_ERROR_STREAM_CAPTURE_CONFLICT, "stream %u is in another capture",
                      stream->id);
    } else {
        pthread_mutex_lock(&graph->lock);
        uint32_t lane = graph_lane(graph, stream);
        if (lane == UINT32_MAX || !lane_join(graph, event, lane)) {
            status = fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
        } else {
            if (races_on()) {
                race_captured_wait(graph, lane, event);
            }
            atomic_store(&stream->graph, graph);
        }
        pthread_mutex_unlock(&graph->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    return status;
}

static aclError capture_wait_event(Stream *stream, Event *event)
{
    pthread_mutex_lock(&event->lock);
    aclError status = wait_note(stream, event);
    pthread_mutex_unlock(&event->lock);
    return status;
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* Opens a graph for a capture of the stream. The graph must be in the state `from`. If it has tasks
 * already, new tasks of the stream's lane run after all of them. */
static aclError graph_open(Graph *graph, Stream *stream, GraphState from, aclmdlRICaptureMode mode)
{
    if (atomic_load(&graph->state) != from || graph->is_built
        || atomic_load(&graph->running) != 0) {
        return fail(ACL_ERROR_RT_MODEL_RUNNING,
            "modelRI %u cannot be captured into: it is in use, or it was built", graph->id);
    }
    uint32_t lane = graph_lane(graph, stream);
    if (lane == UINT32_MAX) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        graph->lanes[i].joined = graph->lanes[i].steps;
        if (i != lane && !graph_edge(graph, (GraphEdge){lane, i, graph->count, graph->count,
                                                        graph->edge_count})) {
            return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
        }
    }
    graph->origin = lane;
    graph->mode = mode;
    graph->owner = pthread_self();
    atomic_store(&graph->state, GRAPH_CAPTURING);
    return ACL_SUCCESS;
}

static aclError capture_start(Stream *stream, Graph *graph, GraphState from,
                              aclmdlRICaptureMode mode)
{
    aclError status = ACL_SUCCESS;
    pthread_mutex_lock(&stream->lock);
    if (atomic_load(&stream->graph) != NULL || atomic_load(&stream->closing)) {
        status = fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %u is being captured", stream->id);
    } else {
        pthread_mutex_lock(&graph->lock);
        status = graph_open(graph, stream, from, mode);
        pthread_mutex_unlock(&graph->lock);
    }
    if (status == ACL_SUCCESS) {
        atomic_store(&stream->graph, graph);
        capture_enter(graph);
    }
    pthread_mutex_unlock(&stream->lock);
    return status;
}

static aclError capture_check_begin(aclrtStream handle, aclmdlRICaptureMode mode, Stream **stream)
{
    TRY(stream_resolve(handle, stream));
    if ((unsigned)mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "mode %d, expected 0 to 2", (int)mode);
    }
    if (*stream == (*stream)->context->default_stream) {
        return fail(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "a default stream cannot be captured");
    }
    return ACL_SUCCESS;
}

aclError sim_aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode)
{
    STREAM_REF(resolved);
    Graph *graph;
    REQUIRE(stream != NULL);
    TRY(capture_check_begin(stream, mode, &resolved));
    TRY(graph_new(resolved->context, GRAPH_INVALID, &graph));
    aclError status = capture_start(resolved, graph, GRAPH_INVALID, mode);
    if (status != ACL_SUCCESS) {
        handle_kill(graph);
        graph_release(graph);
    }
    return status;
}

aclError sim_aclmdlRICaptureToModelRIBegin(aclrtStream stream, aclmdlRI modelRI,
                                           aclmdlRICaptureMode mode)
{
    STREAM_REF(resolved);
    GRAPH_REF(graph);
    REQUIRE(stream != NULL);
    REQUIRE(modelRI != NULL);
    TRY(graph_resolve(modelRI, &graph));
    TRY(capture_check_begin(stream, mode, &resolved));
    return capture_start(resolved, graph, GRAPH_READY, mode);
}

/* True if, for every lane except the origin, another lane has waited for its last step. The graph's
 * lock is held. */
static bool lanes_are_joined(const Graph *graph)
{
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        if (i != graph->origin && graph->lanes[i].joined < graph->lanes[i].steps) {
            return false;
        }
    }
    return true;
}

/* True if the capture began on that stream. */
static bool capture_is_of(Graph *graph, const Stream *stream)
{
    pthread_mutex_lock(&graph->lock);
    const GraphLane *lane = &graph->lanes[graph->origin];
    bool is = lane->stream == stream && lane->stream_id == stream->id;
    pthread_mutex_unlock(&graph->lock);
    return is;
}

/* Ends the capture. True, and the graph can be executed, if the capture was valid and all lanes are
 * joined; else the graph becomes invalid. */
static bool capture_complete(Graph *graph)
{
    pthread_mutex_lock(&graph->lock);
    bool valid = atomic_load(&graph->state) == GRAPH_CAPTURING && lanes_are_joined(graph);
    atomic_store(&graph->state, valid ? GRAPH_READY : GRAPH_INVALID);
    pthread_mutex_unlock(&graph->lock);
    return valid;
}

static aclError capture_check_end(Graph *graph, const Stream *stream)
{
    if (graph == NULL) {
        return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "stream %u is not being captured",
                    stream->id);
    }
    if (!capture_is_of(graph, stream)) {
        return fail(ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, "the capture began with another stream");
    }
    if (graph->mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED
        && !pthread_equal(graph->owner, pthread_self())) {
        return fail(ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD,
                    "the capture began in another thread");
    }
    return ACL_SUCCESS;
}

aclError sim_aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *modelRI)
{
    STREAM_REF(resolved);
    GRAPH_REF(graph);
    REQUIRE(stream != NULL);
    REQUIRE_RT(modelRI != NULL);
    TRY(stream_resolve(stream, &resolved));
    graph = capture_of(resolved);
    TRY(capture_check_end(graph, resolved));
    if (!capture_leave(graph)) {
        return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "another thread ended the capture");
    }
    bool valid = capture_complete(graph);
    *modelRI = valid ? graph : NULL;
    if (valid) {
        return ACL_SUCCESS;
    }
    if (handle_kill(graph)) {
        graph_release(graph);
    }
    return fail(ACL_ERROR_RT_STREAM_UNJOINED,
                "a stream joined the capture and was not joined back to the first stream: record an event "
                "on it and let the first stream wait for the event");
}

static void capture_invalidate(Graph *graph)
{
    pthread_mutex_lock(&graph->lock);
    if (atomic_load(&graph->state) == GRAPH_CAPTURING) {
        atomic_store(&graph->state, GRAPH_INVALID);
    }
    pthread_mutex_unlock(&graph->lock);
}

static void capture_stream_gone(Stream *stream)
{
    GRAPH_REF(graph);
    graph = capture_of(stream);
    stream_leave_graphs(stream);
    group_leave(stream);
    if (graph == NULL) {
        return;
    }
    capture_invalidate(graph);
    if (capture_is_of(graph, stream) && capture_leave(graph) && handle_kill(graph)) {
        graph_release(graph);
    }
}

aclError sim_aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status,
                                    aclmdlRI *modelRI)
{
    STREAM_REF(resolved);
    aclmdlRICaptureStatus found = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    REQUIRE(stream != NULL);
    REQUIRE(status != NULL || modelRI != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    GRAPH_REF(graph);
    graph = capture_of(resolved);
    if (graph != NULL) {
        found = atomic_load(&graph->state) == GRAPH_CAPTURING
                    ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE
                    : ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
    }
    if (status != NULL) {
        *status = found;
    }
    if (modelRI != NULL) {
        *modelRI = graph;
    }
    return ACL_SUCCESS;
}

aclError sim_aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode *mode)
{
    REQUIRE(mode != NULL);
    if ((unsigned)*mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "mode %d, expected 0 to 2", (int)*mode);
    }
    aclmdlRICaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return ACL_SUCCESS;
}

__attribute__((constructor(104))) static void captures_announce(void)
{
    captures = (Captures){
        .push = capture_push,
        .replace = group_replace,
        .has_stream = stream_captured,
        .forbids_sync = sync_forbidden,
        .record_event = capture_record_event,
        .wait_event = capture_wait_event,
        .stream_gone = capture_stream_gone,
    };
}
