/* Small programs, each correct and with one wait missing: `races CASE right` and `races CASE wrong`.  Without a
 * case it prints the names of all.  test_races.py runs them with ACL_SIM_RACES=1. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

enum { BYTES = 4096, PAGE = 2 << 20 };

void acl_sim_races_tags(size_t (*tag)(uintptr_t address, char *text, size_t size));

static aclrtStream one, two, three;
static void *memory, *other;
static bool right;

static void write_on(aclrtStream stream)
{
    OK(aclrtMemsetAsync(memory, BYTES, 1, BYTES, stream));
}

static void read_on(aclrtStream stream)
{
    OK(aclrtMemcpyAsync(other, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
}

/* ---- events -------------------------------------------------------------------------------------- */

static void order_by(aclrtEvent event, aclrtStream from, aclrtStream to)
{
    OK(aclrtRecordEvent(event, from));
    OK(aclrtStreamWaitEvent(to, event));
}

static void event_plain(void)
{
    aclrtEvent event;
    OK(aclrtCreateEvent(&event));
    write_on(one);
    if (right) {
        order_by(event, one, two);
    }
    read_on(two);
}

static void event_ex(void)
{
    aclrtEvent event;
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    write_on(one);
    if (right) {
        order_by(event, one, two);
    }
    write_on(two);
}

/* In the wrong program the record is queued before the work that it should cover. */
static void event_too_early(void)
{
    aclrtEvent event;
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    if (right) {
        write_on(one);
    }
    OK(aclrtRecordEvent(event, one));
    if (!right) {
        write_on(one);
    }
    OK(aclrtStreamWaitEvent(two, event));
    read_on(two);
}

/* The wait is for the last record before it; a later record does not count. */
static void event_recorded_again(void)
{
    aclrtEvent event;
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    OK(aclrtRecordEvent(event, one));
    if (!right) {
        OK(aclrtStreamWaitEvent(two, event));
    }
    write_on(one);
    OK(aclrtRecordEvent(event, one));
    if (right) {
        OK(aclrtStreamWaitEvent(two, event));
    }
    read_on(two);
}

static void event_flagged(void)
{
    aclrtEvent event;
    OK(aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC));
    write_on(one);
    OK(aclrtRecordEvent(event, one));
    if (right) {
        OK(aclrtStreamWaitEvent(two, event));
    }
    read_on(two);
}

/* The wait is queued before any record, so the first record sets the flag that it waits for. */
static void event_flag_later(void)
{
    aclrtEvent event;
    OK(aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC));
    OK(aclrtStreamWaitEvent(two, event));
    read_on(two);
    if (right) {
        write_on(one);
    }
    OK(aclrtRecordEvent(event, one));
    if (!right) {
        write_on(one);
    }
    OK(aclrtSynchronizeDevice());
}

static void event_transitive(void)
{
    aclrtEvent first, second;
    OK(aclrtCreateEvent(&first));
    OK(aclrtCreateEvent(&second));
    write_on(one);
    order_by(first, one, two);
    if (right) {
        order_by(second, two, three);
    }
    read_on(three);
}

/* A write must also be ordered after earlier reads. */
static void event_after_read(void)
{
    aclrtEvent event;
    OK(aclrtCreateEvent(&event));
    read_on(one);
    if (right) {
        order_by(event, one, two);
    }
    write_on(two);
}

static void event_synchronize(void)
{
    aclrtEvent event;
    OK(aclrtCreateEvent(&event));
    write_on(one);
    OK(aclrtRecordEvent(event, one));
    if (right) {
        OK(aclrtSynchronizeEvent(event));
    }
    read_on(two);
}

static void event_query(void)
{
    aclrtEvent event;
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    OK(aclrtCreateEvent(&event));
    write_on(one);
    OK(aclrtRecordEvent(event, one));
    while (right && status != ACL_EVENT_RECORDED_STATUS_COMPLETE) {
        OK(aclrtQueryEventStatus(event, &status));
    }
    read_on(two);
}

/* ---- waits of the host --------------------------------------------------------------------------- */

static void stream_synchronize(void)
{
    write_on(one);
    OK(aclrtSynchronizeStream(right ? one : three));
    read_on(two);
}

static void stream_query(void)
{
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    write_on(one);
    while (right && status != ACL_STREAM_STATUS_COMPLETE) {
        OK(aclrtStreamQuery(one, &status));
    }
    read_on(two);
}

static void device_synchronize(void)
{
    write_on(one);
    if (right) {
        OK(aclrtSynchronizeDevice());
    }
    read_on(two);
}

static void stream_destroy(void)
{
    write_on(one);
    if (right) {
        OK(aclrtDestroyStream(one));
    }
    read_on(two);
}

/* ---- notifies, values, host functions ------------------------------------------------------------- */

static void notify(void)
{
    aclrtNotify made;
    OK(aclrtCreateNotify(&made, 0));
    OK(aclrtWaitAndResetNotify(made, two, 0)); /* queued before the record */
    if (right) {
        write_on(one);
    }
    OK(aclrtRecordNotify(made, one));
    if (!right) {
        write_on(one);
    }
    read_on(two);
    OK(aclrtSynchronizeDevice());
}

static void notify_count(void)
{
    aclrtCntNotify made;
    aclrtCntNotifyRecordInfo record = {.mode = ACL_RT_CNT_NOTIFY_RECORD_SET_VALUE_MODE, .value = 1};
    aclrtCntNotifyWaitInfo wait = {.mode = ACL_RT_CNT_NOTIFY_WAIT_EQUAL_MODE, .value = 1};
    OK(aclrtCntNotifyCreate(&made, 0));
    write_on(one);
    OK(aclrtCntNotifyRecord(made, one, &record));
    if (right) {
        OK(aclrtCntNotifyWaitWithTimeout(made, two, &wait));
    }
    read_on(two);
    OK(aclrtSynchronizeDevice());
}

static void value(void)
{
    void *word;
    OK(aclrtMalloc(&word, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemset(word, 64, 0, 64));
    if (right) {
        OK(aclrtValueWait(word, 1, ACL_STREAM_WAIT_VALUE_EQ, two));
    }
    read_on(two);
    write_on(three); /* the value orders only the streams one and two, not three */
    OK(aclrtSynchronizeStream(three));
    OK(aclrtValueWrite(word, 1, 0, one));
    OK(aclrtSynchronizeDevice());
}

static void value_write(void)
{
    void *word;
    OK(aclrtMalloc(&word, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemset(word, 64, 0, 64));
    write_on(one);
    OK(aclrtValueWrite(word, 1, 0, one));
    if (right) {
        OK(aclrtValueWait(word, 1, ACL_STREAM_WAIT_VALUE_GEQ, two));
    }
    read_on(two);
    OK(aclrtSynchronizeDevice());
}

static atomic_bool told, may_go;

static void tell(void *nothing)
{
    (void)nothing;
    atomic_store(&told, true);
}

static void wait_to_go(void *nothing)
{
    (void)nothing;
    while (!atomic_load(&may_go)) {
    }
}

static void tell_and_wait(void *nothing)
{
    tell(nothing);
    wait_to_go(nothing);
}

/* Work queued before a host function that has run is complete for the host. */
static void host_function(void)
{
    if (right) {
        write_on(one);
    }
    OK(aclrtLaunchHostFunc(one, tell, NULL));
    while (!atomic_load(&told)) {
    }
    if (!right) {
        write_on(one);
    }
    read_on(two);
    OK(aclrtSynchronizeDevice());
}

/* Work queued behind a host function runs after everything that the host had waited for when it returned. */
static void host_function_held(void)
{
    write_on(two);
    OK(aclrtLaunchHostFunc(one, wait_to_go, NULL));
    read_on(one);
    if (right) {
        OK(aclrtSynchronizeStream(two));
    }
    atomic_store(&may_go, true);
    OK(aclrtSynchronizeDevice());
}

/* A stream that is destroyed by force drops the work behind the running host function. */
static void stream_forced(void)
{
    OK(aclrtLaunchHostFunc(one, tell_and_wait, NULL));
    write_on(one);
    while (!atomic_load(&told)) {
    }
    if (right) {
        OK(aclrtDestroyStreamForce(one));
    }
    OK(aclrtFree(memory));
    atomic_store(&may_go, true);
    OK(aclrtSynchronizeDevice());
}

/* ---- memory that is freed or unmapped ------------------------------------------------------------ */

static void freed(void)
{
    write_on(one);
    if (right) {
        OK(aclrtSynchronizeStream(one));
    }
    OK(aclrtFree(memory));
}

static void freed_unrun(void)
{
    OK(aclrtLaunchHostFunc(one, wait_to_go, NULL));
    write_on(one);
    if (right) {
        atomic_store(&may_go, true);
        OK(aclrtSynchronizeStream(one));
    }
    OK(aclrtFree(memory));
    atomic_store(&may_go, true);
    OK(aclrtSynchronizeDevice());
}

static void freed_pinned(void)
{
    void *host;
    OK(aclrtMallocHost(&host, BYTES));
    OK(aclrtMemcpyAsync(host, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, one));
    if (right) {
        OK(aclrtSynchronizeStream(one));
    }
    OK(aclrtFreeHost(host));
}

static aclrtDrvMemHandle page_new(void)
{
    aclrtDrvMemHandle handle;
    aclrtPhysicalMemProp prop = {.handleType = ACL_MEM_HANDLE_TYPE_NONE,
                                 .allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED,
                                 .memAttr = ACL_HBM_MEM_HUGE,
                                 .location = {0, ACL_MEM_LOCATION_TYPE_DEVICE}};
    OK(aclrtMallocPhysical(&handle, PAGE, &prop, 0));
    return handle;
}

static void unmapped(void)
{
    OK(aclrtReserveMemAddress(&memory, PAGE, 0, NULL, 0));
    OK(aclrtMapMem(memory, PAGE, 0, page_new(), 0));
    write_on(one);
    if (right) {
        OK(aclrtSynchronizeStream(one));
    }
    OK(aclrtUnmapMem(memory));
}

/* One page is mapped at two addresses, so tasks at both use the same memory. */
static void mapped_twice(void)
{
    char *range;
    aclrtEvent event;
    OK(aclrtCreateEvent(&event));
    OK(aclrtReserveMemAddress((void **)&range, 2 * PAGE, 0, NULL, 0));
    aclrtDrvMemHandle page = page_new();
    OK(aclrtMapMem(range, PAGE, 0, page, 0));
    OK(aclrtMapMem(range + PAGE, PAGE, 0, page, 0));
    OK(aclrtMemsetAsync(range, BYTES, 1, BYTES, one));
    if (right) {
        order_by(event, one, two);
    }
    OK(aclrtMemsetAsync(range + PAGE, BYTES, 1, BYTES, two));
}

static void pool_block(void)
{
    aclrtMemPool pool;
    aclrtEvent event;
    aclrtMemPoolProps props = {.allocType = ACL_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {0, ACL_MEM_LOCATION_TYPE_DEVICE}};
    OK(aclrtCreateEvent(&event));
    OK(aclrtMemPoolCreate(&pool, &props));
    OK(aclrtMemPoolMallocAsync(&memory, BYTES, pool, one));
    OK(aclrtRecordEvent(event, one));
    OK(aclrtStreamWaitEvent(two, event));
    write_on(two);
    if (right) {
        order_by(event, two, one);
    }
    OK(aclrtMemPoolFreeAsync(memory, one));
    OK(aclrtSynchronizeDevice());
}

static void host_copy(void)
{
    char here[BYTES];
    write_on(one);
    if (right) {
        OK(aclrtSynchronizeStream(one));
    }
    OK(aclrtMemcpy(here, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST));
}

/* ---- bytes --------------------------------------------------------------------------------------- */

static void neighbours(void)
{
    size_t half = BYTES / 2;
    OK(aclrtMemsetAsync(memory, half, 1, half, one));
    OK(aclrtMemsetAsync((char *)memory + half - (right ? 0 : 1), half, 1, half, two));
}

static void columns(void)
{
    char *from = (char *)memory + 32 - (right ? 0 : 1);
    OK(aclrtMemcpy2dAsync(other, 32, memory, 64, 32, 16, ACL_MEMCPY_DEVICE_TO_DEVICE, one));
    OK(aclrtMemcpy2dAsync(from, 64, (char *)other + BYTES / 2, 32, 32, 16,
                          ACL_MEMCPY_DEVICE_TO_DEVICE, two));
}

static void readers(void)
{
    char *mine = other;
    OK(aclrtMemcpyAsync(mine, 64, memory, 64, ACL_MEMCPY_DEVICE_TO_DEVICE, one));
    OK(aclrtMemcpyAsync(mine + (right ? 64 : 0), 64, memory, 64, ACL_MEMCPY_DEVICE_TO_DEVICE, two));
}

/* ---- graphs -------------------------------------------------------------------------------------- */

/* Captures a graph in which the second stream joins after (`good`) or before the write of the data that it reads. */
static aclmdlRI graph_new(bool good)
{
    aclmdlRI graph;
    aclrtEvent fork, join;
    OK(aclrtCreateEvent(&fork));
    OK(aclrtCreateEvent(&join));
    OK(aclmdlRICaptureBegin(one, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    if (good) {
        write_on(one);
    }
    order_by(fork, one, two);
    if (!good) {
        write_on(one);
    }
    read_on(two);
    order_by(join, two, one);
    OK(aclmdlRICaptureEnd(one, &graph));
    return graph;
}

static void graph_inside(void)
{
    OK(aclmdlRIExecuteAsync(graph_new(right), one));
    OK(aclrtSynchronizeStream(one));
}

static void graph_outside(void)
{
    aclrtEvent event;
    aclmdlRI graph = graph_new(true);
    OK(aclrtCreateEvent(&event));
    OK(aclmdlRIExecuteAsync(graph, three));
    if (right) {
        order_by(event, three, one);
    }
    OK(aclrtMemsetAsync(other, BYTES, 1, BYTES, one));
    OK(aclrtSynchronizeDevice());
}

static void graph_freed(void)
{
    aclmdlRI graph = graph_new(true);
    OK(aclmdlRIExecuteAsync(graph, three));
    if (right) {
        OK(aclrtSynchronizeStream(three));
    }
    OK(aclrtFree(other));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"event_plain", event_plain},
    {"event_ex", event_ex},
    {"event_too_early", event_too_early},
    {"event_recorded_again", event_recorded_again},
    {"event_flagged", event_flagged},
    {"event_flag_later", event_flag_later},
    {"event_transitive", event_transitive},
    {"event_after_read", event_after_read},
    {"event_synchronize", event_synchronize},
    {"event_query", event_query},
    {"stream_synchronize", stream_synchronize},
    {"stream_query", stream_query},
    {"device_synchronize", device_synchronize},
    {"stream_destroy", stream_destroy},
    {"notify", notify},
    {"notify_count", notify_count},
    {"value", value},
    {"value_write", value_write},
    {"host_function", host_function},
    {"host_function_held", host_function_held},
    {"stream_forced", stream_forced},
    {"freed", freed},
    {"freed_unrun", freed_unrun},
    {"freed_pinned", freed_pinned},
    {"unmapped", unmapped},
    {"mapped_twice", mapped_twice},
    {"pool_block", pool_block},
    {"host_copy", host_copy},
    {"neighbours", neighbours},
    {"columns", columns},
    {"readers", readers},
    {"graph_inside", graph_inside},
    {"graph_outside", graph_outside},
    {"graph_freed", graph_freed},
};

/* Writes the name that reports give to the memory at an address. */
static size_t tag(uintptr_t address, char *text, size_t size)
{
    bool named = address - (uintptr_t)memory < BYTES;
    return named ? (size_t)snprintf(text, size, "the \"batch\"") : 0;
}

int main(int count, char **arguments)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (count < 3) {
            printf("%s\n", cases[i].name);
        } else if (strcmp(cases[i].name, arguments[1]) == 0) {
            right = strcmp(arguments[2], "right") == 0;
            OK(aclInit(NULL));
            OK(aclrtSetDevice(0));
            OK(aclrtCreateStream(&one));
            OK(aclrtCreateStream(&two));
            OK(aclrtCreateStream(&three));
            OK(aclrtMalloc(&memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
            OK(aclrtMalloc(&other, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
            acl_sim_races_tags(tag);
            cases[i].run();
            OK(aclrtSynchronizeDevice());
            return 0;
        }
    }
    return count < 3 ? 0 : 2;
}
