/* race_graph.c: the order inside captured graphs.
 *
 * For the order checker, a graph has a list of links: its tasks, and the records and waits of its
 * capture, in the order of the capture. An execution is one operation of its stream. Each lane begins
 * after the stream's tasks before the execution. Tasks of different lanes are ordered only by the
 * events of the capture. The execution ends when all lanes have ended. Executions of one graph follow
 * one another. A built graph counts as one lane, in the order of building. If a task decides at run
 * time which tasks run, the tasks in the graph are not checked.
 *
 * Thread rule: the graph's lock guards its list of links; race_lock guards the clocks. */
#include "graphs/capture.h"
#include "races/race_inside.h"

#include <stdlib.h>

typedef enum LinkKind { LINK_TASK, LINK_RECORD, LINK_WAIT } LinkKind;

typedef struct RaceLink {
    LinkKind kind;
    uint32_t lane;
    size_t task;          /* index of the task in the graph; valid for LINK_TASK */
    const RaceSite *site; /* place in the program where the task was captured; valid for LINK_TASK */
    size_t record;        /* LINK_WAIT: index of the record for which it waits; LINK_RECORD: index of this link */
} RaceLink;

typedef struct RaceGraph {
    RaceLink *links;
    size_t count, room;
    RaceThread **lanes;
    size_t lane_count;
} RaceGraph;

static RaceLink *link_add(Graph *graph, LinkKind kind, uint32_t lane)
{
    if (graph->race == NULL) {
        graph->race = calloc(1, sizeof *graph->race);
    }
    RaceGraph *race = graph->race;
    if (race != NULL && race->count == race->room) {
        size_t room = race->room * 2 + 16;
        RaceLink *more = realloc(race->links, room * sizeof *more);
        if (more != NULL) {
            race->links = more;
            race->room = room;
        }
    }
    if (race == NULL || race->count == race->room) {
        race_give_up("out of host memory");
        return NULL;
    }
    RaceLink *link = &race->links[race->count];
    *link = (RaceLink){.kind = kind, .lane = graph->is_built ? 0 : lane, .record = race->count++};
    return link;
}

void race_captured_task(Graph *graph, uint32_t lane)
{
    RaceLink *link = link_add(graph, LINK_TASK, lane);
    if (link != NULL) {
        link->task = graph->count - 1;
        link->site = site_here();
    }
}

void race_captured_record(Graph *graph, uint32_t lane, Event *event)
{
    const RaceLink *link = link_add(graph, LINK_RECORD, lane);
    event->captured_link = link != NULL ? link->record : 0;
}

void race_captured_wait(Graph *graph, uint32_t lane, Event *event)
{
    RaceLink *link = link_add(graph, LINK_WAIT, lane);
    if (link != NULL) {
        link->record = event->captured_link;
    }
}

void race_graph_gone(Graph *graph)
{
    RaceGraph *race = graph->race;
    if (race == NULL) {
        return;
    }
    pthread_mutex_lock(&race_lock);
    for (size_t i = 0; i < race->lane_count; i++) {
        if (race->lanes[i] != NULL) {
            thread_free(race->lanes[i]);
        }
    }
    pthread_mutex_unlock(&race_lock);
    free(race->lanes);
    free(race->links);
    free(race);
    graph->race = NULL;
}

/* ---- an execution -------------------------------------------------------------------------------- */

static RaceThread *lane_thread(RaceGraph *race, uint32_t lane)
{
    if (lane >= race->lane_count) {
        RaceThread **more = realloc(race->lanes, (lane + 1) * sizeof(RaceThread *));
        if (more == NULL) {
            race_give_up("out of host memory");
            return NULL;
        }
        race->lanes = more;
        while (race->lane_count <= lane) {
            race->lanes[race->lane_count++] = NULL;
        }
    }
    if (race->lanes[lane] == NULL) {
        pthread_mutex_lock(&race_lock);
        race->lanes[lane] = thread_new();
        pthread_mutex_unlock(&race_lock);
    }
    return race->lanes[lane];
}

static void link_task(Touch *touch, const Graph *graph, const RaceLink *link)
{
    const GraphTask *entry = link->task < graph->count ? graph->tasks[link->task] : NULL;
    if (entry != NULL && !entry->disabled && entry->task.sort->touch != NULL) {
        touch->name = entry->task.sort->name;
        touch->site = link->site;
        touch->step = 0;
        entry->task.sort->touch(task_payload(&entry->task), touch);
    }
}

/* Applies one link of an execution to the clocks. boxes[i] stores the clock of this execution's record i. */
static void link_touch(Touch *touch, const Graph *graph, const RaceLink *link, RaceBox **boxes)
{
    switch (link->kind) {
    case LINK_TASK:
        link_task(touch, graph, link);
        break;
    case LINK_RECORD:
        touch_record(touch, &boxes[link->record]);
        break;
    case LINK_WAIT:
        (void)touch_wait(touch, &boxes[link->record]);
        if (touch->op->step_count != 0) {
            touch->op->steps[touch->op->step_count - 1].inner = true;
        }
        break;
    }
}

void touch_graph(Touch *touch, const Graph *graph)
{
    RaceGraph *race = graph->race;
    RaceBox **boxes = race == NULL || race->count == 0 ? NULL
                                                       : calloc(race->count, sizeof(RaceBox *));
    if (boxes == NULL) {
        return;
    }
    RaceThread *own = touch->thread;
    touch->op->is_graph = true;
    for (size_t i = 0; i < race->count; i++) {
        touch->thread = lane_thread(race, race->links[i].lane);
        if (touch->thread == NULL) {
            break;
        }
        link_touch(touch, graph, &race->links[i], boxes);
    }
    touch->thread = own;
    touch->step = 0;
    pthread_mutex_lock(&race_lock);
    for (size_t i = 0; i < race->count; i++) {
        box_unuse(boxes[i]);
    }
    pthread_mutex_unlock(&race_lock);
    free(boxes);
}
