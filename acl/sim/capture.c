/* Capturing a stream: tasks go into a graph instead of the queue.
 *
 * Other streams join the capture by waiting for an event that was recorded in it, and have to be
 * joined back, the same way, before it ends.  While a capture in a mode that is not relaxed is
 * active, calls that block the host are refused (107030): in its own thread, and, if the mode is
 * global, in every thread that did not exchange its own mode.
 *
 * Thread rule: which graph a stream feeds changes under the stream's lock. */
#include "capture.h"
#include "exports.h"

static _Atomic uint32_t active; /* captures going on */
static _Thread_local aclmdlRICaptureMode thread_mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

bool captures_are_active(void)
{
    return atomic_load_explicit(&active, memory_order_relaxed) != 0;
}

/* The capture that the stream takes part in, or NULL. */
static Graph *capture_of(const Stream *stream)
{
    Graph *graph = atomic_load_explicit(&stream->graph, memory_order_acquire);
    return graph != NULL && !graph->is_built ? graph : NULL;
}

bool stream_is_capturing(const Stream *stream)
{
    return capture_of(stream) != NULL;
}

aclError capture_check_stream(const Stream *stream)
{
    if (stream_is_capturing(stream)) {
        return fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %u is being captured", stream->id);
    }
    return ACL_SUCCESS;
}

static bool capture_forbids_here(const Graph *graph)
{
    if (atomic_load(&graph->state) != GRAPH_CAPTURING
        || graph->mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return false;
    }
    return pthread_equal(graph->owner, pthread_self())
           || (graph->mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL
               && thread_mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
}

aclError capture_forbids_sync(void)
{
    if (SIM_LIKELY(!captures_are_active()) || thread_mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return ACL_SUCCESS;
    }
    for (Graph *g = handle_next(HANDLE_MODEL_RI, NULL); g != NULL;
         g = handle_next(HANDLE_MODEL_RI, g)) {
        if (capture_forbids_here(g)) {
            return fail(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
                        "a capture that is not relaxed is going on: the call would block");
        }
    }
    return ACL_SUCCESS;
}

aclError capture_push(Stream *stream, Graph *graph, const TaskClass *sort, const void *payload,
                      size_t size)
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

aclError capture_record_event(Stream *stream, Event *event)
{
    pthread_mutex_lock(&stream->lock);
    Graph *graph = capture_of(stream);
    if (graph != NULL) {
        pthread_mutex_lock(&graph->lock);
        event->captured_lane = graph_lane(graph, stream);
        event->captured_steps = graph->lanes[event->captured_lane].steps;
        atomic_store(&event->capture, graph->number);
        pthread_mutex_unlock(&graph->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    return graph != NULL ? ACL_SUCCESS
                         : fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the capture has ended");
}

/* The capture of that number, if it is still going on. */
static Graph *capture_find(uint64_t number)
{
    for (Graph *g = handle_next(HANDLE_MODEL_RI, NULL); g != NULL;
         g = handle_next(HANDLE_MODEL_RI, g)) {
        if (g->number == number && atomic_load(&g->state) == GRAPH_CAPTURING) {
            return g;
        }
    }
    return NULL;
}

/* Notes that lane `to` waited for the event; the graph's lock is held. */
static void lane_join(Graph *graph, const Event *event, uint32_t to)
{
    GraphLane *from = &graph->lanes[event->captured_lane];
    if (event->captured_lane != to && from->joined < event->captured_steps) {
        from->joined = event->captured_steps;
    }
    if (event->captured_lane != to) {
        graph->lanes[to].steps++;
    }
}

aclError capture_wait_event(Stream *stream, Event *event)
{
    Graph *graph = capture_find(atomic_load(&event->capture));
    aclError status = ACL_SUCCESS;
    if (graph == NULL) {
        return atomic_load(&event->capture) != 0
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
        if (lane == UINT32_MAX) {
            status = fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
        } else {
            lane_join(graph, event, lane);
            atomic_store(&stream->graph, graph);
        }
        pthread_mutex_unlock(&graph->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static aclError capture_start(Stream *stream, Graph *graph, aclmdlRICaptureMode mode)
{
    graph->mode = mode;
    graph->owner = pthread_self();
    pthread_mutex_lock(&stream->lock);
    bool taken = atomic_load(&stream->graph) != NULL;
    if (!taken && graph_lane(graph, stream) != UINT32_MAX) {
        atomic_store(&graph->state, GRAPH_CAPTURING);
        atomic_store(&stream->graph, graph);
        atomic_fetch_add(&active, 1);
    }
    pthread_mutex_unlock(&stream->lock);
    return taken ? fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %u is being captured", stream->id)
                 : ACL_SUCCESS;
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
    Stream *resolved;
    Graph *graph;
    REQUIRE(stream != NULL);
    TRY(capture_check_begin(stream, mode, &resolved));
    TRY(graph_new(resolved->context, GRAPH_INVALID, &graph));
    aclError status = capture_start(resolved, graph, mode);
    if (status != ACL_SUCCESS) {
        handle_kill(graph);
        graph_release(graph);
    }
    return status;
}

aclError sim_aclmdlRICaptureToModelRIBegin(aclrtStream stream, aclmdlRI modelRI,
                                           aclmdlRICaptureMode mode)
{
    Stream *resolved;
    Graph *graph;
    REQUIRE(stream != NULL);
    REQUIRE(modelRI != NULL);
    TRY(graph_resolve(modelRI, &graph));
    TRY(capture_check_begin(stream, mode, &resolved));
    if (atomic_load(&graph->state) != GRAPH_READY || atomic_load(&graph->running) != 0) {
        return fail(ACL_ERROR_RT_MODEL_RUNNING, "modelRI %u is in use", graph->id);
    }
    return capture_start(resolved, graph, mode);
}

static void capture_leave(Graph *graph)
{
    graph_unbind(graph);
    atomic_fetch_sub(&active, 1);
}

static bool lanes_are_joined(const Graph *graph, const Stream *origin)
{
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        const GraphLane *lane = &graph->lanes[i];
        if (lane->stream != origin && lane->joined < lane->steps) {
            return false;
        }
    }
    return true;
}

static aclError capture_check_end(const Graph *graph, const Stream *stream)
{
    if (graph == NULL) {
        return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "stream %u is not being captured",
                    stream->id);
    }
    if (graph->lanes[0].stream != stream) {
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
    Stream *resolved;
    REQUIRE(stream != NULL);
    REQUIRE_RT(modelRI != NULL);
    TRY(stream_resolve(stream, &resolved));
    Graph *graph = capture_of(resolved);
    TRY(capture_check_end(graph, resolved));
    GraphState state = GRAPH_CAPTURING;
    bool valid = lanes_are_joined(graph, resolved);
    if (!atomic_compare_exchange_strong(&graph->state, &state,
                                        valid ? GRAPH_READY : GRAPH_INVALID)) {
        valid = false;
    }
    capture_leave(graph);
    *modelRI = valid ? graph : NULL;
    if (valid) {
        return ACL_SUCCESS;
    }
    if (handle_kill(graph)) {
        graph_release(graph);
    }
    return fail(ACL_ERROR_RT_STREAM_UNJOINED,
                "a stream that joined the capture was not joined back");
}

void capture_stream_gone(Stream *stream)
{
    Graph *graph = capture_of(stream);
    GraphState state = GRAPH_CAPTURING;
    if (graph == NULL || !atomic_compare_exchange_strong(&graph->state, &state, GRAPH_INVALID)) {
        return;
    }
    if (graph->lanes[0].stream == stream) {
        capture_leave(graph);
        if (handle_kill(graph)) {
            graph_release(graph);
        }
    }
}

aclError sim_aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status,
                                    aclmdlRI *modelRI)
{
    Stream *resolved;
    aclmdlRICaptureStatus found = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    REQUIRE(stream != NULL);
    REQUIRE(status != NULL || modelRI != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    Graph *graph = capture_of(resolved);
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
