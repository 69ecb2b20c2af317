/* The contents of graphs: tasks and their parameters, task groups that are replaced, conditional tasks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static aclrtStream stream;
static uint64_t *memory; /* 8 numbers */

static uint64_t number(int index)
{
    uint64_t value;
    OK(aclrtMemcpy(&value, 8, memory + index, 8, ACL_MEMCPY_DEVICE_TO_HOST));
    return value;
}

static void run(aclmdlRI graph)
{
    OK(aclmdlRIExecuteAsync(graph, stream));
    OK(aclrtSynchronizeStream(stream));
}

static void begin(void)
{
    OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
}

static aclmdlRI end(void)
{
    aclmdlRI graph;
    OK(aclmdlRICaptureEnd(stream, &graph));
    return graph;
}

static void tasks_can_be_changed(void)
{
    aclrtStream streams[2];
    aclmdlRITask tasks[4];
    aclmdlRITaskType type;
    aclmdlRITaskParams params;
    uint32_t count = 0, id;
    begin();
    OK(aclrtValueWrite(memory, 5, 0, stream));
    OK(aclrtMemsetAsync(memory + 1, 8, 1, 8, stream));
    OK(aclrtValueWrite(memory + 2, 6, 0, stream));
    aclmdlRI graph = end();
    OK(aclmdlRIGetStreams(graph, NULL, &count));
    CHECK(count == 1);
    OK(aclmdlRIGetStreams(graph, streams, &count));
    CHECK(streams[0] == stream);
    OK(aclmdlRIGetTasksByStream(stream, NULL, &count));
    CHECK(count == 3);
    count = 2;
    GIVES(ACL_ERROR_RT_INSUFFICIENT_INPUT_ARRAY, aclmdlRIGetTasksByStream(stream, tasks, &count));
    CHECK(count == 3);
    OK(aclmdlRIGetTasksByStream(stream, tasks, &count));
    OK(aclmdlRITaskGetType(tasks[0], &type));
    CHECK(type == ACL_MODEL_RI_TASK_VALUE_WRITE);
    OK(aclmdlRITaskGetType(tasks[1], &type));
    CHECK(type == ACL_MODEL_RI_TASK_DEFAULT);
    OK(aclmdlRITaskGetSeqId(tasks[2], &id));
    CHECK(id == 2);
    OK(aclmdlRITaskGetParams(tasks[0], &params));
    CHECK(params.valueWriteTaskParams.devAddr == memory && params.valueWriteTaskParams.value == 5);
    params.valueWriteTaskParams.value = 55;
    OK(aclmdlRITaskSetParams(tasks[0], &params));
    params.type = ACL_MODEL_RI_TASK_KERNEL;
    GIVES(ACL_ERROR_RT_PARAM_INVALID, aclmdlRITaskSetParams(tasks[0], &params));
    OK(aclmdlRITaskDisable(tasks[2]));
    OK(aclmdlRIUpdate(graph));
    OK(aclrtMemset(memory, 64, 0, 64));
    run(graph);
    CHECK(number(0) == 55 && number(1) == 0x0101010101010101u && number(2) == 0);
    OK(aclmdlRIDestroy(graph));
    GIVES(ACL_ERROR_RT_INVALID_HANDLE, aclmdlRITaskGetSeqId(tasks[2], &id));
}

static void groups_can_be_replaced(void)
{
    aclrtTaskGrp group, none;
    begin();
    OK(aclrtValueWrite(memory, 1, 0, stream));
    GIVES(ACL_ERROR_STREAM_TASK_GROUP_STATUS, aclmdlRICaptureTaskGrpEnd(stream, &none));
    OK(aclmdlRICaptureTaskGrpBegin(stream));
    GIVES(ACL_ERROR_STREAM_TASK_GROUP_STATUS, aclmdlRICaptureTaskGrpBegin(stream));
    OK(aclrtValueWrite(memory + 1, 2, 0, stream));
    OK(aclrtValueWrite(memory + 2, 3, 0, stream));
    OK(aclmdlRICaptureTaskGrpEnd(stream, &group));
    aclmdlRI graph = end();
    OK(aclmdlRICaptureTaskUpdateBegin(stream, group));
    OK(aclrtValueWrite(memory + 1, 20, 0, stream));
    GIVES(ACL_ERROR_RT_FEATURE_NOT_SUPPORT_UPDATE_OP,
          aclrtMemsetAsync(memory, 8, 0, 8, stream));
    OK(aclmdlRICaptureTaskUpdateEnd(stream));
    OK(aclmdlRICaptureTaskUpdateBegin(stream, group));
    OK(aclrtValueWrite(memory + 1, 20, 0, stream));
    GIVES(ACL_ERROR_STREAM_TASK_GROUP_INTR, aclmdlRICaptureTaskUpdateEnd(stream));
    OK(aclmdlRICaptureTaskUpdateBegin(stream, group));
    OK(aclrtValueWrite(memory + 1, 20, 0, stream));
    OK(aclrtValueWrite(memory + 2, 30, 0, stream));
    GIVES(ACL_ERROR_STREAM_TASK_GROUP_STATUS, aclrtValueWrite(memory + 3, 4, 0, stream));
    OK(aclmdlRICaptureTaskUpdateEnd(stream));
    GIVES(ACL_ERROR_STREAM_TASK_GROUP_STATUS, aclmdlRICaptureTaskUpdateEnd(stream));
    run(graph);
    CHECK(number(0) == 1 && number(1) == 20 && number(2) == 30);
    OK(aclmdlRIDestroy(graph));
    GIVES(ACL_ERROR_RT_INVALID_HANDLE, aclmdlRICaptureTaskUpdateBegin(stream, group));
}

static atomic_int go, inside;

static void hold(void *argument)
{
    (void)argument;
    atomic_store(&inside, 1);
    while (!atomic_load(&go)) {
        usleep(100);
    }
}

static aclmdlRI held_graph(aclrtTaskGrp *group)
{
    begin();
    OK(aclrtLaunchHostFunc(stream, hold, NULL));
    OK(aclmdlRICaptureTaskGrpBegin(stream));
    OK(aclrtValueWrite(memory, 1, 0, stream));
    OK(aclmdlRICaptureTaskGrpEnd(stream, group));
    return end();
}

static aclmdlRI graph_with_branch(aclmdlRI branch)
{
    aclmdlRI now;
    aclmdlRICaptureStatus status;
    aclmdlRICondHandle handle;
    begin();
    OK(aclmdlRICaptureGetInfo(stream, &status, &now));
    OK(aclmdlRICondHandleCreate(now, 1, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &handle));
    aclmdlRICondTaskParams params = {.handle = handle, .type = ACL_MODEL_RI_COND_TYPE_IF,
                                     .modelRIArray = &branch, .size = 1};
    OK(aclmdlRIAddCondTask(params, stream, 0));
    params.modelRIArray = &now;
    GIVES(ACL_ERROR_RT_MODEL_CAPTURED, aclmdlRIAddCondTask(params, stream, 0));
    return end();
}

/* A graph that runs, alone or as a branch of another graph, cannot be changed. */
static void what_runs_is_not_changed(void)
{
    aclrtTaskGrp group;
    aclrtStream other;
    OK(aclrtCreateStream(&other));
    aclmdlRI branch = held_graph(&group);
    aclmdlRI graphs[] = {branch, graph_with_branch(branch)};
    for (int i = 0; i < 2; i++) {
        atomic_store(&go, 0);
        atomic_store(&inside, 0);
        OK(aclmdlRIExecuteAsync(graphs[i], stream));
        while (!atomic_load(&inside)) {
            usleep(100);
        }
        OK(aclmdlRICaptureTaskUpdateBegin(other, group));
        GIVES(ACL_ERROR_RT_MODEL_RUNNING, aclrtValueWrite(memory, 2, 0, other));
        GIVES(ACL_ERROR_STREAM_TASK_GROUP_INTR, aclmdlRICaptureTaskUpdateEnd(other));
        atomic_store(&go, 1);
        OK(aclrtSynchronizeStream(stream));
    }
    OK(aclmdlRIDestroy(graphs[1]));
    OK(aclmdlRIDestroy(branch));
    OK(aclrtDestroyStream(other));
}

static void destroying_during_an_update(void)
{
    aclrtTaskGrp group;
    aclrtStream other;
    atomic_store(&go, 1);
    OK(aclrtCreateStream(&other));
    aclmdlRI graph = held_graph(&group);
    OK(aclmdlRICaptureTaskUpdateBegin(other, group));
    OK(aclmdlRIDestroy(graph));
    GIVES(ACL_ERROR_RT_INVALID_HANDLE, aclrtValueWrite(memory, 2, 0, other));
    GIVES(ACL_ERROR_STREAM_TASK_GROUP_INTR, aclmdlRICaptureTaskUpdateEnd(other));
    OK(aclrtValueWrite(memory, 2, 0, other));
    OK(aclrtDestroyStream(other));
    CHECK(number(0) == 2);
}

/* The stream that begins the second capture must end it, whichever stream created the graph. */
static void capturing_into_the_graph_of_another_stream(void)
{
    aclrtStream other;
    aclmdlRI same;
    OK(aclrtCreateStream(&other));
    begin();
    OK(aclrtValueWrite(memory, 1, 0, stream));
    aclmdlRI graph = end();
    OK(aclmdlRICaptureToModelRIBegin(other, graph, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    OK(aclrtValueWrite(memory + 1, 7, 0, other));
    OK(aclmdlRICaptureEnd(other, &same));
    CHECK(same == graph);
    run(graph);
    CHECK(number(0) == 1 && number(1) == 7);
    OK(aclmdlRIDestroy(graph));
    OK(aclrtSynchronizeDevice());
    OK(aclrtDestroyStream(other));
}

/* Two streams of a graph wait for each other by notifies, in both directions, and for a value from the host. */
static void lanes_that_talk(void)
{
    aclrtStream other;
    aclrtEvent fork, join;
    aclrtNotify there, back;
    aclmdlRI graph;
    OK(aclrtCreateStream(&other));
    OK(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
    OK(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
    OK(aclrtCreateNotify(&there, 0));
    OK(aclrtCreateNotify(&back, 0));
    begin();
    OK(aclrtValueWrite(memory, 0, 0, stream));
    OK(aclrtRecordEvent(fork, stream));
    OK(aclrtStreamWaitEvent(other, fork));
    OK(aclrtWaitAndResetNotify(there, stream, 0));
    OK(aclrtValueWrite(memory + 1, 5, 0, stream));
    OK(aclrtRecordNotify(back, stream));
    OK(aclrtRecordNotify(there, other));
    OK(aclrtWaitAndResetNotify(back, other, 0));
    OK(aclrtValueWait(memory + 6, 1, ACL_STREAM_WAIT_VALUE_EQ, other));
    OK(aclrtMemcpyAsync(memory + 2, 8, memory + 1, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, other));
    OK(aclrtRecordEvent(join, other));
    OK(aclrtStreamWaitEvent(stream, join));
    OK(aclrtMemcpyAsync(memory + 3, 8, memory + 2, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
    graph = end();
    for (int i = 0; i < 3; i++) {
        OK(aclrtMemset(memory, 64, 0, 64));
        OK(aclmdlRIExecuteAsync(graph, stream));
        GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeStreamWithTimeout(stream, 20));
        OK(aclrtValueWrite(memory + 6, 1, 0, other));
        OK(aclrtSynchronizeStreamWithTimeout(stream, 60000));
        OK(aclrtSynchronizeStream(other));
        CHECK(number(3) == 5);
    }
    OK(aclmdlRIDestroy(graph));
    OK(aclrtDestroyNotify(there));
    OK(aclrtDestroyNotify(back));
    OK(aclrtDestroyEvent(fork));
    OK(aclrtDestroyEvent(join));
    OK(aclrtDestroyStream(other));
}

static aclrtContext context;
static atomic_bool over;

static void *others_come_and_go(void *argument)
{
    aclrtStream own;
    OK(aclrtSetCurrentContext(context));
    OK(aclrtCreateStream(&own));
    while (!atomic_load(&over)) {
        aclmdlRI graph;
        OK(aclmdlRICaptureBegin(own, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
        OK(aclrtValueWrite(memory + 7, 1, 0, own));
        OK(aclmdlRICaptureEnd(own, &graph));
        OK(aclmdlRIDestroy(graph));
    }
    OK(aclrtDestroyStream(own));
    return argument;
}

static void asking_while_others_come_and_go(void)
{
    pthread_t thread;
    OK(aclrtGetCurrentContext(&context));
    CHECK(pthread_create(&thread, NULL, others_come_and_go, NULL) == 0);
    begin();
    OK(aclrtValueWrite(memory, 1, 0, stream));
    aclmdlRI graph = end();
    for (int i = 0; i < 3000; i++) {
        aclmdlRITask task;
        uint32_t count = 1;
        aclmdlRITaskType type;
        OK(aclmdlRIGetTasksByStream(stream, &task, &count));
        CHECK(count == 1);
        OK(aclmdlRITaskGetType(task, &type));
        OK(aclrtSynchronizeStream(stream));
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    OK(aclmdlRIDestroy(graph));
}

static uint64_t *condition;
static int rounds;

static void count_down(void *argument)
{
    uint64_t left;
    (void)argument;
    rounds++;
    memcpy(&left, condition, 8); /* except in strict mode, the host can read the simulator's device memory */
    left--;
    memcpy(condition, &left, 8);
}

static void a_loop(void)
{
    aclmdlRICondHandle handle;
    aclmdlRICaptureStatus status;
    aclmdlRI during, outer;
    begin();
    OK(aclrtLaunchHostFunc(stream, count_down, NULL));
    aclmdlRI body = end();
    begin();
    OK(aclmdlRICaptureGetInfo(stream, &status, &during));
    OK(aclmdlRICondHandleCreate(during, 4, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &handle));
    OK(aclmdlRICondHandleGetCondPtr(handle, &condition));
    aclmdlRICondTaskParams params = {handle, ACL_MODEL_RI_COND_TYPE_WHILE, 1, &body};
    OK(aclmdlRIAddCondTask(params, stream, 0));
    OK(aclrtValueWrite(memory + 4, 44, 0, stream));
    params.size = 2;
    GIVES(ACL_ERROR_RT_PARAM_INVALID, aclmdlRIAddCondTask(params, stream, 0));
    outer = end();
    OK(aclmdlRIDestroy(body)); /* the loop keeps it alive */
    run(outer);
    CHECK(rounds == 4 && number(4) == 44);
    run(outer);
    CHECK(rounds == 8);
    OK(aclmdlRIDestroy(outer));
    GIVES(ACL_ERROR_RT_INVALID_HANDLE, aclmdlRICondHandleGetCondPtr(handle, &condition));
}

static void a_switch(void)
{
    aclmdlRICondHandle handle;
    aclmdlRICaptureStatus status;
    aclmdlRI branches[3], during, outer;
    for (uint64_t i = 0; i < 3; i++) {
        begin();
        OK(aclrtValueWrite(memory + 5, 100 + i, 0, stream));
        branches[i] = end();
    }
    begin();
    OK(aclmdlRICaptureGetInfo(stream, &status, &during));
    OK(aclmdlRICondHandleCreate(during, 0, 0, &handle));
    OK(aclmdlRICondHandleGetCondPtr(handle, &condition));
    aclmdlRICondTaskParams params = {handle, ACL_MODEL_RI_COND_TYPE_SWITCH, 3, branches};
    OK(aclmdlRIAddCondTask(params, stream, 0));
    outer = end();
    for (uint64_t i = 0; i < 4; i++) {
        OK(aclrtMemcpy(condition, 8, &i, 8, ACL_MEMCPY_HOST_TO_DEVICE));
        run(outer);
        CHECK(number(5) == 100 + (i < 3 ? i : 2));
    }
    OK(aclmdlRIDestroy(outer));
    for (int i = 0; i < 3; i++) {
        OK(aclmdlRIDestroy(branches[i]));
    }
}

int main(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtMalloc((void **)&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    tasks_can_be_changed();
    groups_can_be_replaced();
    what_runs_is_not_changed();
    destroying_during_an_update();
    capturing_into_the_graph_of_another_stream();
    lanes_that_talk();
    asking_while_others_come_and_go();
    a_loop();
    a_switch();
    OK(aclrtFree(memory));
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
