/* Small programs, each in a correct form and in one with one mistake: `misuse CASE right` and `misuse CASE wrong`.
 * Without a case it prints the names of all.  test_check.py runs them under `aclpool sim check`. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { BYTES = 16384, SMALL = 100, PAGE = 2 << 20 };

static aclrtStream one, two;
static char *memory, *other;
static char *host, *back;
static bool right;
static aclError status; /* status of the calls that may be refused */

static void fill(void *at, size_t bytes)
{
    OK(aclrtMemset(at, bytes, 1, bytes));
}

static void copy_back(const void *from, size_t bytes)
{
    status = aclrtMemcpy(back, BYTES, from, bytes, ACL_MEMCPY_DEVICE_TO_HOST);
}

/* A task that holds the stream until the gate opens. */
static atomic_bool gate;

static void hold(void *nothing)
{
    (void)nothing;
    while (!atomic_load(&gate)) {
        usleep(1000);
    }
}

static void stream_hold(void)
{
    OK(aclrtLaunchHostFunc(one, hold, NULL));
}

static void stream_let_go(void)
{
    atomic_store(&gate, true);
    OK(aclrtSynchronizeStream(one));
}

/* ---- lengths ------------------------------------------------------------------------------------- */

static void overflow_copy(void)
{
    fill(memory, BYTES);
    OK(aclrtMemcpy(memory + (right ? 0 : 4), BYTES, host, BYTES, ACL_MEMCPY_HOST_TO_DEVICE));
}

static void overflow_read(void)
{
    fill(memory, BYTES);
    copy_back(memory + (right ? 0 : 4), BYTES);
}

static void overflow_async(void)
{
    OK(aclrtMemcpyAsync(memory + (right ? 0 : 4), BYTES, host, BYTES, ACL_MEMCPY_HOST_TO_DEVICE, one));
    OK(aclrtSynchronizeStream(one));
}

static void overflow_set(void)
{
    OK(aclrtMemsetAsync(memory, BYTES + 4, 1, BYTES + (right ? 0 : 4), one));
    OK(aclrtSynchronizeStream(one));
}

/* An overflow within the bytes by which the driver rounds a block up. */
static void overflow_small(void)
{
    void *small;
    OK(aclrtMalloc(&small, SMALL, ACL_MEM_MALLOC_NORMAL_ONLY));
    OK(aclrtMemset(small, SMALL + 4, 1, SMALL + (right ? 0 : 4)));
    OK(aclrtFree(small));
}

static void overflow_exact(void)
{
    void *small;
    OK(aclrtMallocAlign32(&small, 4096, ACL_MEM_MALLOC_NORMAL_ONLY));
    status = aclrtMemset(small, 8192, 1, right ? 4096 : 4097);
    OK(aclrtFree(small));
}

static void overflow_pinned(void)
{
    fill(memory, BYTES);
    status = aclrtMemcpy(back + (right ? 0 : 4), BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST);
}

/* The program itself writes past the end of pinned memory. */
static void overflow_by_host(void)
{
    char *small;
    OK(aclrtMallocHost((void **)&small, SMALL));
    memset(small, 1, SMALL + (right ? 0 : 1));
    OK(aclrtFreeHost(small));
}

static void overflow_managed(void)
{
    char *small;
    OK(aclrtMemAllocManaged((void **)&small, SMALL, ACL_RT_MEM_ATTACH_GLOBAL));
    OK(aclrtMemset(small, SMALL + 1, 1, SMALL + (right ? 0 : 1)));
    OK(aclrtFree(small));
}

static void overflow_rows(void)
{
    OK(aclrtMemcpy2d(memory + (right ? 0 : 1024), 1024, host, 1024, 1024, 16, ACL_MEMCPY_HOST_TO_DEVICE));
}

/* ---- lifetimes ----------------------------------------------------------------------------------- */

static void freed_copy(void)
{
    char *gone;
    OK(aclrtMalloc((void **)&gone, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    fill(gone, BYTES);
    if (right) {
        copy_back(gone, BYTES);
    }
    OK(aclrtFree(gone));
    if (!right) {
        copy_back(gone, BYTES);
    }
}

static void freed_async(void)
{
    char *gone;
    OK(aclrtMalloc((void **)&gone, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    if (!right) {
        OK(aclrtFree(gone));
    }
    status = aclrtMemsetAsync(gone, BYTES, 1, BYTES, one);
    OK(aclrtSynchronizeStream(one));
    if (right) {
        OK(aclrtFree(gone));
    }
}

/* A new block of equal size was allocated at the address of the freed block. */
static void freed_reused(void)
{
    char *gone, *next;
    OK(aclrtMalloc((void **)&gone, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtFree(gone));
    OK(aclrtMalloc((void **)&next, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    status = aclrtMemset(right ? next : gone, BYTES, 1, BYTES);
    OK(aclrtFree(next));
}

static void freed_pinned(void)
{
    char *gone;
    OK(aclrtMallocHost((void **)&gone, BYTES));
    memset(gone, 1, BYTES);
    if (!right) {
        OK(aclrtFreeHost(gone));
    }
    status = aclrtMemcpy(memory, BYTES, gone, BYTES, ACL_MEMCPY_HOST_TO_DEVICE);
    if (right) {
        OK(aclrtFreeHost(gone));
    }
}

static void freed_in_use(void)
{
    char *gone;
    OK(aclrtMalloc((void **)&gone, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    stream_hold();
    OK(aclrtMemsetAsync(gone, BYTES, 1, BYTES, one));
    if (right) {
        stream_let_go();
    }
    OK(aclrtFree(gone));
    stream_let_go();
}

static void freed_twice(void)
{
    void *gone;
    OK(aclrtMalloc(&gone, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtFree(gone));
    status = right ? ACL_SUCCESS : aclrtFree(gone);
}

static void freed_twice_pinned(void)
{
    void *gone;
    OK(aclrtMallocHost(&gone, BYTES));
    OK(aclrtFreeHost(gone));
    status = right ? ACL_SUCCESS : aclrtFreeHost(gone);
}

static void freed_inside(void)
{
    status = right ? ACL_SUCCESS : aclrtFree(memory + 512);
}

static void freed_stranger(void)
{
    static char mine[64];
    status = right ? ACL_SUCCESS : aclrtFree(mine);
}

static void freed_as_device(void)
{
    void *pinned;
    OK(aclrtMallocHost(&pinned, BYTES));
    status = right ? aclrtFreeHost(pinned) : aclrtFree(pinned);
}

static void freed_as_pinned(void)
{
    status = right ? ACL_SUCCESS : aclrtFreeHost(memory);
}

static void nowhere(void)
{
    void *reserved;
    OK(aclrtReserveMemAddress(&reserved, PAGE, 0, NULL, 1));
    status = right ? ACL_SUCCESS : aclrtMemset(reserved, 64, 1, 64);
    OK(aclrtReleaseMemAddress(reserved));
}

/* ---- copies and the host ------------------------------------------------------------------------- */

static void kind_to_device(void)
{
    fill(memory, BYTES);
    OK(aclrtMemcpy(back, BYTES, memory, BYTES, right ? ACL_MEMCPY_DEVICE_TO_HOST : ACL_MEMCPY_HOST_TO_DEVICE));
}

static void kind_on_host(void)
{
    OK(aclrtMemcpy(memory, BYTES, host, BYTES, right ? ACL_MEMCPY_HOST_TO_DEVICE : ACL_MEMCPY_HOST_TO_HOST));
}

static void kind_async(void)
{
    fill(memory, BYTES);
    OK(aclrtMemcpyAsync(other, BYTES, memory, BYTES,
                        right ? ACL_MEMCPY_DEVICE_TO_DEVICE : ACL_MEMCPY_HOST_TO_DEVICE, one));
    OK(aclrtSynchronizeStream(one));
}

static void host_reads(void)
{
    fill(memory, BYTES);
    copy_back(memory, BYTES);
    status = *(volatile char *)(right ? back : memory);
}

static void host_writes(void)
{
    *(volatile char *)(right ? back : memory) = 1;
}

static void host_reads_freed(void)
{
    char *gone;
    OK(aclrtMallocHost((void **)&gone, BYTES));
    gone[0] = 1;
    status = right ? ((volatile char *)gone)[0] : 0;
    OK(aclrtFreeHost(gone));
    status = right ? 0 : ((volatile char *)gone)[0];
}

/* ---- order --------------------------------------------------------------------------------------- */

static void order(void)
{
    OK(aclrtMemsetAsync(memory, BYTES, 1, BYTES, one));
    if (right) {
        OK(aclrtSynchronizeStream(one));
    }
    OK(aclrtMemsetAsync(memory, BYTES, 2, BYTES, two));
    OK(aclrtSynchronizeDevice());
}

static void host_rewrites(void)
{
    stream_hold();
    OK(aclrtMemcpyAsync(memory, BYTES, host, BYTES, ACL_MEMCPY_HOST_TO_DEVICE, one));
    if (right) {
        stream_let_go();
    }
    memset(host, 9, BYTES);
    stream_let_go();
}

static void destroyed_event_in_use(void)
{
    aclrtEvent event;
    OK(aclrtCreateEvent(&event));
    stream_hold();
    OK(aclrtRecordEvent(event, one));
    if (right) {
        stream_let_go();
    }
    OK(aclrtDestroyEvent(event));
    stream_let_go();
}

static void deadlock(void)
{
    aclrtEvent first, second;
    OK(aclrtCreateEventWithFlag(&first, ACL_EVENT_SYNC));
    OK(aclrtCreateEventWithFlag(&second, ACL_EVENT_SYNC));
    if (right) {
        OK(aclrtRecordEvent(first, two));
    }
    OK(aclrtStreamWaitEvent(one, first));
    OK(aclrtRecordEvent(second, one));
    OK(aclrtStreamWaitEvent(two, second));
    OK(aclrtRecordEvent(first, two));
    OK(aclrtSynchronizeStream(two));
    OK(aclrtSynchronizeStream(one));
    OK(aclrtDestroyEvent(first));
    OK(aclrtDestroyEvent(second));
}

/* A ring of streams, each of which waits for the next one. */
static void deadlock_long(void)
{
    enum { LINKS = 300 };
    aclrtStream streams[LINKS];
    aclrtEvent events[LINKS];
    alarm(60);
    for (int i = 0; i < LINKS; i++) {
        OK(aclrtCreateStream(&streams[i]));
        OK(aclrtCreateEventWithFlag(&events[i], ACL_EVENT_SYNC));
    }
    if (right) {
        OK(aclrtRecordEvent(events[0], one));
    }
    OK(aclrtStreamWaitEvent(streams[0], events[0]));
    for (int i = 1; i < LINKS; i++) {
        OK(aclrtRecordEvent(events[i], streams[i - 1]));
        OK(aclrtStreamWaitEvent(streams[i], events[i]));
    }
    OK(aclrtRecordEvent(events[0], streams[LINKS - 1]));
    for (int i = 0; i < LINKS; i++) {
        OK(aclrtSynchronizeStream(streams[i]));
    }
    for (int i = 0; i < LINKS; i++) {
        OK(aclrtDestroyStream(streams[i]));
        OK(aclrtDestroyEvent(events[i]));
    }
}

/* ---- handles ------------------------------------------------------------------------------------- */

static void destroyed_stream(void)
{
    aclrtStream stream;
    OK(aclrtCreateStream(&stream));
    if (right) {
        OK(aclrtSynchronizeStream(stream));
    }
    OK(aclrtDestroyStream(stream));
    status = right ? ACL_SUCCESS : aclrtSynchronizeStream(stream);
}

static void destroyed_event(void)
{
    aclrtEvent event;
    OK(aclrtCreateEvent(&event));
    if (right) {
        OK(aclrtRecordEvent(event, one));
        OK(aclrtSynchronizeStream(one));
    }
    OK(aclrtDestroyEvent(event));
    status = right ? ACL_SUCCESS : aclrtRecordEvent(event, one);
}

static void destroyed_twice(void)
{
    aclrtContext context;
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtDestroyContext(context));
    OK(aclrtSetDevice(0));
    status = right ? ACL_SUCCESS : aclrtDestroyContext(context);
    OK(aclrtResetDevice(0));
}

static void destroyed_description(void)
{
    int64_t dims[] = {4};
    aclTensorDesc *description = aclCreateTensorDesc(ACL_FLOAT, 1, dims, ACL_FORMAT_ND);
    aclDestroyTensorDesc(description);
    status = right ? ACL_SUCCESS : (aclError)aclSetTensorFormat(description, ACL_FORMAT_ND);
}

/* ---- leaks --------------------------------------------------------------------------------------- */

static void leak_block(void)
{
    void *block;
    OK(aclrtMalloc(&block, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    if (right) {
        OK(aclrtFree(block));
    }
}

static void leak_pinned(void)
{
    void *block;
    OK(aclrtMallocHost(&block, BYTES));
    if (right) {
        OK(aclrtFreeHost(block));
    }
}

static void leak_stream(void)
{
    aclrtStream stream;
    OK(aclrtCreateStream(&stream));
    if (right) {
        OK(aclrtDestroyStream(stream));
    }
}

static void leak_event(void)
{
    aclrtEvent event;
    OK(aclrtCreateEvent(&event));
    if (right) {
        OK(aclrtDestroyEvent(event));
    }
}

static void release(void);

static void unfinished(void)
{
    OK(aclrtLaunchHostFunc(NULL, hold, NULL));
    if (right) {
        atomic_store(&gate, true);
        OK(aclrtSynchronizeStream(NULL));
    } else {
        release();
        exit(0);
    }
}

static void leak_context(void)
{
    aclrtContext context, before;
    OK(aclrtGetCurrentContext(&before));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtSetCurrentContext(before));
    if (right) {
        OK(aclrtDestroyContext(context));
    }
}

static void leak_description(void)
{
    int64_t dims[] = {4};
    aclTensorDesc *description = aclCreateTensorDesc(ACL_FLOAT, 1, dims, ACL_FORMAT_ND);
    if (right) {
        aclDestroyTensorDesc(description);
    }
}

static void leak_physical(void)
{
    aclrtPhysicalMemProp wanted = {.memAttr = ACL_HBM_MEM_HUGE, .location = {0, ACL_MEM_LOCATION_TYPE_DEVICE}};
    aclrtDrvMemHandle handle;
    OK(aclrtMallocPhysical(&handle, PAGE, &wanted, 0));
    if (right) {
        OK(aclrtFreePhysical(handle));
    }
}

/* ---- never written ------------------------------------------------------------------------------- */

static void unwritten(void)
{
    if (right) {
        fill(memory, BYTES);
    }
    copy_back(memory, BYTES);
}

static void unwritten_part(void)
{
    fill(memory, right ? BYTES : BYTES - 4);
    copy_back(memory, BYTES);
}

/* A copy on the device copies unwritten bytes as unwritten. */
static void unwritten_carried(void)
{
    fill(memory, right ? BYTES : 64);
    OK(aclrtMemcpyAsync(other, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_DEVICE, one));
    OK(aclrtSynchronizeStream(one));
    copy_back(other, BYTES);
}

static void unwritten_async(void)
{
    if (right) {
        OK(aclrtMemsetAsync(memory, BYTES, 1, BYTES, one));
    }
    OK(aclrtMemcpyAsync(back, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, one));
    OK(aclrtSynchronizeStream(one));
}

/* The state of pages that were written whole has no part in that of pages that are allocated from again. */
static void unwritten_again(void)
{
    char *large, *small;
    fill(memory, BYTES);
    fill(other, BYTES);
    OK(aclrtMalloc((void **)&large, 2 * PAGE, ACL_MEM_MALLOC_HUGE_FIRST));
    fill(large, 64);
    fill(large, 2 * PAGE);
    OK(aclrtMalloc((void **)&small, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    copy_back(right ? memory : small, BYTES);
    copy_back(other, BYTES);
    OK(aclrtFree(small));
    OK(aclrtFree(large));
}

/* The bytes between the rows of a copy are not copied. */
static void unwritten_between_rows(void)
{
    enum { WIDTH = 64, PITCH = 128, ROWS = 16, HALF = ROWS / 2 };
    OK(aclrtMemcpy2d(memory, PITCH, host, PITCH, WIDTH, HALF, ACL_MEMCPY_HOST_TO_DEVICE));
    OK(aclrtMemcpy2d(memory + HALF * PITCH, PITCH, host, WIDTH, WIDTH, HALF, ACL_MEMCPY_HOST_TO_DEVICE));
    if (right) {
        OK(aclrtMemcpy2d(back, PITCH, memory, PITCH, WIDTH, ROWS, ACL_MEMCPY_DEVICE_TO_HOST));
    } else {
        copy_back(memory, (HALF - 1) * PITCH + WIDTH);
    }
}

/* A queued copy writes all of its rows, however many. */
static void unwritten_after_rows(void)
{
    enum { WIDTH = 4, PITCH = 8, ROWS = 70000 };
    char *many, *rows;
    OK(aclrtMallocHost((void **)&rows, ROWS * WIDTH));
    OK(aclrtMalloc((void **)&many, (ROWS + 1) * PITCH, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemcpy2dAsync(many, PITCH, rows, WIDTH, WIDTH, ROWS, ACL_MEMCPY_HOST_TO_DEVICE, one));
    OK(aclrtSynchronizeStream(one));
    copy_back(many + 5000 * PITCH, WIDTH);
    copy_back(many + (right ? ROWS - 1 : ROWS) * PITCH, WIDTH);
    OK(aclrtFree(many));
    OK(aclrtFreeHost(rows));
}

/* A queued copy of rows within the device to another pitch copies an unwritten row as unwritten. */
static void unwritten_rows_carried(void)
{
    enum { WIDTH = 64, PITCH = 128, ROWS = 16 };
    OK(aclrtMemcpy2d(memory, PITCH, host, WIDTH, WIDTH, ROWS - 1, ACL_MEMCPY_HOST_TO_DEVICE));
    OK(aclrtMemcpy2dAsync(other, WIDTH, memory, PITCH, WIDTH, ROWS, ACL_MEMCPY_DEVICE_TO_DEVICE, one));
    OK(aclrtSynchronizeStream(one));
    copy_back(other, WIDTH * (right ? ROWS - 1 : ROWS));
}

/* Copies whose source and destination overlap, both ways. */
static void unwritten_overlap(void)
{
    enum { PART = 64, HALF = BYTES / 2, MOVED = BYTES - PART };
    fill(memory + HALF, PART);
    fill(other + HALF, PART);
    OK(aclrtMemcpyAsync(memory + PART, MOVED, memory, MOVED, ACL_MEMCPY_DEVICE_TO_DEVICE, one));
    OK(aclrtMemcpyAsync(other, MOVED, other + PART, MOVED, ACL_MEMCPY_DEVICE_TO_DEVICE, one));
    OK(aclrtSynchronizeStream(one));
    copy_back(memory + HALF + (right ? PART : 0), PART);
    copy_back(other + HALF - (right ? PART : 0), PART);
}

/* A copy whose addresses are in device memory. */
static void unwritten_indirect(void)
{
    char **places;
    char *pointers[] = {memory, other};
    OK(aclrtMalloc((void **)&places, sizeof pointers, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemcpy(places, sizeof pointers, pointers, sizeof pointers, ACL_MEMCPY_HOST_TO_DEVICE));
    fill(memory, right ? BYTES : BYTES - 1);
    OK(aclrtMemcpyAsyncWithOffset((void **)(places + 1), BYTES, 0, (const void **)places, BYTES, 0,
                                  ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, one));
    OK(aclrtMemcpyAsync(back, BYTES, other, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, one));
    OK(aclrtSynchronizeStream(one));
    OK(aclrtFree(places));
}

static void unwritten_described(void)
{
    void *description;
    size_t bytes;
    OK(aclrtGetMemcpyDescSize(ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, &bytes));
    OK(aclrtMalloc(&description, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtSetMemcpyDesc(description, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, memory, other, BYTES, NULL));
    fill(memory, right ? BYTES : BYTES - 1);
    OK(aclrtMemcpyAsyncWithDesc(description, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, one));
    OK(aclrtMemcpyAsync(back, BYTES, other, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, one));
    OK(aclrtSynchronizeStream(one));
    OK(aclrtFree(description));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"overflow_copy", overflow_copy},
    {"overflow_read", overflow_read},
    {"overflow_async", overflow_async},
    {"overflow_set", overflow_set},
    {"overflow_small", overflow_small},
    {"overflow_exact", overflow_exact},
    {"overflow_pinned", overflow_pinned},
    {"overflow_by_host", overflow_by_host},
    {"overflow_managed", overflow_managed},
    {"overflow_rows", overflow_rows},
    {"freed_copy", freed_copy},
    {"freed_async", freed_async},
    {"freed_reused", freed_reused},
    {"freed_pinned", freed_pinned},
    {"freed_in_use", freed_in_use},
    {"freed_twice", freed_twice},
    {"freed_twice_pinned", freed_twice_pinned},
    {"freed_inside", freed_inside},
    {"freed_stranger", freed_stranger},
    {"freed_as_device", freed_as_device},
    {"freed_as_pinned", freed_as_pinned},
    {"nowhere", nowhere},
    {"kind_to_device", kind_to_device},
    {"kind_on_host", kind_on_host},
    {"kind_async", kind_async},
    {"host_reads", host_reads},
    {"host_writes", host_writes},
    {"host_reads_freed", host_reads_freed},
    {"order", order},
    {"host_rewrites", host_rewrites},
    {"destroyed_event_in_use", destroyed_event_in_use},
    {"deadlock", deadlock},
    {"deadlock_long", deadlock_long},
    {"destroyed_stream", destroyed_stream},
    {"destroyed_event", destroyed_event},
    {"destroyed_twice", destroyed_twice},
    {"destroyed_description", destroyed_description},
    {"leak_block", leak_block},
    {"leak_pinned", leak_pinned},
    {"leak_stream", leak_stream},
    {"leak_event", leak_event},
    {"leak_context", leak_context},
    {"unfinished", unfinished},
    {"leak_description", leak_description},
    {"leak_physical", leak_physical},
    {"unwritten", unwritten},
    {"unwritten_part", unwritten_part},
    {"unwritten_carried", unwritten_carried},
    {"unwritten_async", unwritten_async},
    {"unwritten_again", unwritten_again},
    {"unwritten_between_rows", unwritten_between_rows},
    {"unwritten_after_rows", unwritten_after_rows},
    {"unwritten_rows_carried", unwritten_rows_carried},
    {"unwritten_overlap", unwritten_overlap},
    {"unwritten_indirect", unwritten_indirect},
    {"unwritten_described", unwritten_described},
};

static void begin(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&one));
    OK(aclrtCreateStream(&two));
    OK(aclrtMalloc((void **)&memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMalloc((void **)&other, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMallocHost((void **)&host, BYTES));
    OK(aclrtMallocHost((void **)&back, BYTES));
    memset(host, 7, BYTES);
}

static void release(void)
{
    OK(aclrtDestroyStream(one));
    OK(aclrtDestroyStream(two));
    OK(aclrtFree(memory));
    OK(aclrtFree(other));
    OK(aclrtFreeHost(host));
    OK(aclrtFreeHost(back));
}

static void finish(void)
{
    release();
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
}

int main(int count, char **arguments)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (count < 3) {
            printf("%s\n", cases[i].name);
        } else if (strcmp(cases[i].name, arguments[1]) == 0) {
            right = strcmp(arguments[2], "right") == 0;
            begin();
            cases[i].run();
            finish();
            return 0;
        }
    }
    return count < 3 ? 0 : 2;
}
