/* sim_idle CASE IDLE COUNT [MODEL]: does COUNT operations of the simulator while it has IDLE idle objects of that kind.
 * sim_idle.py counts the instructions. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acl/acl.h"

#define OK(call) do { aclError got = (call); if (got != 0) { fail(#call, got); } } while (0)

static aclrtStream stream, other;
static aclrtEvent event;
static void *memory;

static void fail(const char *call, aclError code)
{
    const char *message = aclGetRecentErrMsg();
    fprintf(stderr, "%s gave %d %s\n", call, code, message != NULL ? message : "");
    exit(1);
}

static void task(aclrtStream on)
{
    OK(aclrtMemsetAsync(memory, 64, 0, 64, on));
    OK(aclrtSynchronizeStream(on));
}

static aclmdlRI graph_make(void)
{
    aclmdlRI graph;
    OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    OK(aclrtMemsetAsync(memory, 64, 0, 64, stream));
    OK(aclmdlRICaptureEnd(stream, &graph));
    return graph;
}

static void streams(long idle, long count)
{
    for (long i = 0; i < idle; i++) {
        aclrtStream made;
        OK(aclrtCreateStream(&made));
        task(made);
    }
    for (long i = 0; i < count; i++) {
        task(stream);
    }
}

static void graphs(long idle)
{
    for (long i = 0; i < idle; i++) {
        aclmdlRICondHandle condition;
        OK(aclmdlRICondHandleCreate(graph_make(), 0, 0, &condition));
    }
}

static void executions(long idle, long count)
{
    graphs(idle);
    aclmdlRI graph = graph_make();
    for (long i = 0; i < count; i++) {
        OK(aclmdlRIExecuteAsync(graph, stream));
        OK(aclrtSynchronizeStream(stream));
    }
}

static void waits(long idle, long count)
{
    aclmdlRI graph;
    graphs(idle);
    OK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    for (long i = 0; i < count; i++) {
        OK(aclrtRecordEvent(event, stream));
        OK(aclrtStreamWaitEvent(other, event));
        OK(aclrtRecordEvent(event, other));
        OK(aclrtStreamWaitEvent(stream, event));
    }
    OK(aclmdlRICaptureEnd(stream, &graph));
}

/* Allocates from a memory pool and frees; half of the pool's idle blocks are free. */
static void blocks(long idle, long count)
{
    void **taken = calloc((size_t)idle + 1, sizeof *taken);
    uint64_t keep = (uint64_t)idle * 2 << 20;
    aclrtMemPool pool;
    aclrtMemPoolProps props = {.allocType = ACL_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {0, ACL_MEM_LOCATION_TYPE_DEVICE}};
    OK(aclrtMemPoolCreate(&pool, &props));
    OK(aclrtMemPoolSetAttr(pool, ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, &keep));
    for (long i = 0; i < idle; i++) {
        OK(aclrtMemPoolMallocAsync(&taken[i], 2 << 20, pool, stream));
    }
    for (long i = 0; i < idle; i += 2) {
        OK(aclrtMemPoolFreeAsync(taken[i], stream));
    }
    OK(aclrtSynchronizeStream(stream));
    for (long i = 0; i < count; i++) {
        OK(aclrtMemPoolMallocAsync(&taken[0], 2 << 20, pool, stream));
        OK(aclrtMemPoolFreeAsync(taken[0], stream));
        OK(aclrtSynchronizeStream(stream));
    }
}

static aclmdlDataset *dataset(void)
{
    void *place;
    aclmdlDataset *made = aclmdlCreateDataset();
    OK(aclrtMalloc(&place, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclmdlAddDatasetBuffer(made, aclCreateDataBuffer(place, 16)));
    return made;
}

/* Executes a model; the idle models were loaded and unloaded before. */
static void models(long idle, long count, const char *file)
{
    uint32_t model;
    aclmdlDataset *input = dataset(), *output = dataset();
    for (long i = 0; i < idle; i++) {
        OK(aclmdlLoadFromFile(file, &model));
        OK(aclmdlUnload(model));
    }
    OK(aclmdlLoadFromFile(file, &model));
    for (long i = 0; i < count; i++) {
        OK(aclmdlExecute(model, input, output));
    }
}

int main(int words, char **word)
{
    if (words < 4) {
        return 2;
    }
    long idle = atol(word[2]), count = atol(word[3]);
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&other));
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    OK(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    if (strcmp(word[1], "streams") == 0) {
        streams(idle, count);
    } else if (strcmp(word[1], "graphs") == 0) {
        executions(idle, count);
    } else if (strcmp(word[1], "waits") == 0) {
        waits(idle, count);
    } else if (strcmp(word[1], "blocks") == 0) {
        blocks(idle, count);
    } else {
        models(idle, count, word[4]);
    }
    _exit(0); /* without releasing the idle objects */
}
