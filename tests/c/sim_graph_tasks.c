/* Inside graphs: their tasks and parameters, task groups that are replaced, conditional tasks. */
#include <stdint.h>
#include <string.h>

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

static uint64_t *condition;
static int rounds;

static void count_down(void *argument)
{
    uint64_t left;
    (void)argument;
    rounds++;
    memcpy(&left, condition, 8); /* the simulator's device memory is the host's, unless strict */
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
    OK(aclmdlRIDestroy(body)); /* the loop holds it */
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
    a_loop();
    a_switch();
    OK(aclrtFree(memory));
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
