/* Smaller parts of the API in several threads: allocator registry, limits, faults and trace while calls run,
 * shared buffers, random numbers, IPC events.  The assertions hold for every interleaving;
 * other errors are left to the sanitizers. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 4, ROUNDS = 300 };

/* Control API (acl/sim/control/control_api.h): not part of ACL's API, so declared here. */
aclError acl_sim_set(const char *variable, const char *value);
aclError acl_sim_fault_add(const char *text, uint32_t *rule);
aclError acl_sim_fault_remove(uint32_t rule);
uint64_t acl_sim_fault_hits(uint32_t rule);

static aclrtContext context;

static void in_threads(void *(*work)(void *))
{
    pthread_t threads[THREADS];
    static int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* ---- allocator registry ---------------------------------------------------------------------- */

static void *never_alloc(aclrtAllocator allocator, size_t size)
{
    (void)allocator;
    (void)size;
    return NULL;
}

static void never_free(aclrtAllocator allocator, aclrtAllocatorBlock block)
{
    (void)allocator;
    (void)block;
}

static void *never_advise(aclrtAllocator allocator, size_t size, aclrtAllocatorAddr address)
{
    (void)allocator;
    (void)size;
    return address;
}

static void *same_address(aclrtAllocatorBlock block)
{
    return block;
}

static void *register_and_find(void *argument)
{
    int number = *(int *)argument;
    uintptr_t shared = 0x1000;
    aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc();
    OK(aclrtAllocatorSetObjToDesc(desc, (void *)(uintptr_t)(number + 1)));
    OK(aclrtAllocatorSetAllocFuncToDesc(desc, never_alloc));
    OK(aclrtAllocatorSetFreeFuncToDesc(desc, never_free));
    OK(aclrtAllocatorSetAllocAdviseFuncToDesc(desc, never_advise));
    OK(aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, same_address));
    for (int i = 0; i < ROUNDS; i++) {
        void *own = (void *)(uintptr_t)(0x100000 + number * ROUNDS + i);
        aclrtAllocatorDesc found;
        aclrtAllocator object;
        OK(aclrtAllocatorRegister((void *)shared, desc));
        if (aclrtAllocatorGetByStream((void *)shared, &found, &object, NULL, NULL, NULL,
                                      NULL) == ACL_SUCCESS) {
            CHECK((uintptr_t)object >= 1 && (uintptr_t)object <= THREADS); /* one thread's value, not a mix of two */
        }
        OK(aclrtAllocatorRegister(own, desc));
        OK(aclrtAllocatorGetByStream(own, &found, &object, NULL, NULL, NULL, NULL));
        CHECK(found == desc && (uintptr_t)object == (uintptr_t)number + 1);
        OK(aclrtAllocatorUnregister(own));
        OK(aclrtAllocatorUnregister((void *)shared));
    }
    OK(aclrtAllocatorDestroyDesc(desc));
    return NULL;
}

/* ---- limits of streams that are created and destroyed ---------------------------------------- */

static void *limit_streams(void *argument)
{
    uint32_t limit = (uint32_t) * (int *)argument + 1;
    OK(aclrtSetCurrentContext(context));
    for (int i = 0; i < ROUNDS / 10; i++) {
        aclrtStream stream;
        uint32_t value = 0;
        OK(aclrtCreateStream(&stream));
        OK(aclrtGetStreamResLimit(stream, ACL_RT_DEV_RES_CUBE_CORE, &value));
        CHECK(value == 24); /* no limit of an older stream with this handle */
        OK(aclrtSetStreamResLimit(stream, ACL_RT_DEV_RES_CUBE_CORE, limit));
        OK(aclrtUseStreamResInCurrentThread(stream));
        OK(aclrtGetResInCurrentThread(ACL_RT_DEV_RES_CUBE_CORE, &value));
        CHECK(value == limit);
        OK(aclrtDestroyStream(stream));
        OK(aclrtGetResInCurrentThread(ACL_RT_DEV_RES_CUBE_CORE, &value));
    }
    return NULL;
}

/* ---- faults and traces that change while calls run ------------------------------------------- */

static atomic_uint failures;

static void *call_and_disturb(void *argument)
{
    int number = *(int *)argument;
    OK(aclrtSetCurrentContext(context));
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t count = 0;
        uint32_t rule = 0;
        if (number == 0) {
            OK(acl_sim_fault_add("aclrtGetDeviceCount:every=3:code=507000", &rule));
            (void)aclrtGetDeviceCount(&count);
            (void)acl_sim_fault_hits(rule);
            OK(acl_sim_fault_remove(rule));
        } else if (number == 1) {
            OK(acl_sim_set("ACL_SIM_TRACE", i % 2 == 0 ? "/dev/null" : ""));
        } else {
            aclError status = aclrtGetDeviceCount(&count);
            CHECK(status == ACL_SUCCESS || status == ACL_ERROR_RT_INTERNAL_ERROR);
            atomic_fetch_add(&failures, status != ACL_SUCCESS);
        }
    }
    return NULL;
}

/* ---- shared buffers -------------------------------------------------------------------------- */

static aclrtMbuf common;

static void *copy_references(void *argument)
{
    unsigned char mark = (unsigned char)*(int *)argument;
    for (int i = 0; i < ROUNDS; i++) {
        aclrtMbuf copy;
        aclrtMbuf own;
        uint32_t length = 0;
        void *data;
        size_t size;
        OK(aclrtCopyBufRef(common, &copy));
        OK(aclrtGetBufData(copy, &data, &size));
        CHECK(size == 64 && ((unsigned char *)data)[63] == 77);
        OK(aclrtAllocBuf(&own, 16));
        OK(aclrtSetBufUserData(own, &mark, 1, 95));
        OK(aclrtAppendBufChain(copy, own));
        OK(aclrtGetBufChainNum(copy, &length));
        CHECK(length == 2);
        GIVES(ACL_ERROR_INVALID_PARAM, aclrtFreeBuf(own)); /* it is freed with the head of its chain */
        OK(aclrtFreeBuf(copy));
    }
    return NULL;
}

static void shared_buffers(void)
{
    void *data;
    size_t size;
    OK(aclrtAllocBuf(&common, 64));
    OK(aclrtGetBufData(common, &data, &size));
    ((unsigned char *)data)[63] = 77;
    in_threads(copy_references);
    OK(aclrtFreeBuf(common));
}

/* ---- random numbers on several streams ------------------------------------------------------- */

static void *draw_numbers(void *argument)
{
    uint64_t seed = (uint64_t) * (int *)argument;
    uint64_t count = 1000;
    float range[2] = {0, 1};
    float host[1000];
    aclrtStream stream;
    void *result;
    void *counter;
    aclrtRandomNumTaskInfo task;
    memset(&task, 0, sizeof task);
    OK(aclrtSetCurrentContext(context));
    OK(aclrtCreateStream(&stream));
    OK(aclrtMalloc(&result, sizeof host, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMalloc(&counter, 16, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemset(counter, 16, 0, 16));
    task.dataType = ACL_FLOAT;
    task.randomNumFuncParaInfo.funcType = ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS;
    memcpy(task.randomNumFuncParaInfo.paramInfo.uniformDisInfo.min.valueOrAddr, &range[0], 4);
    memcpy(task.randomNumFuncParaInfo.paramInfo.uniformDisInfo.max.valueOrAddr, &range[1], 4);
    memcpy(task.randomSeed.valueOrAddr, &seed, 8);
    memcpy(task.randomNum.valueOrAddr, &count, 8);
    task.randomResultAddr = result;
    task.randomCounterAddr = counter;
    for (int i = 0; i < ROUNDS / 30; i++) {
        OK(aclrtRandomNumAsync(&task, stream, NULL));
    }
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtMemcpy(host, sizeof host, result, sizeof host, ACL_MEMCPY_DEVICE_TO_HOST));
    for (size_t i = 0; i < count; i++) {
        CHECK(host[i] >= 0 && host[i] < 1);
    }
    OK(aclrtFree(result));
    OK(aclrtFree(counter));
    OK(aclrtDestroyStream(stream));
    return NULL;
}

/* ---- one IPC event, opened by every thread --------------------------------------------------- */

static aclrtIpcEventHandle exported;

static void *record_and_wait(void *argument)
{
    aclrtStream stream;
    aclrtEvent event;
    (void)argument;
    OK(aclrtSetCurrentContext(context));
    OK(aclrtCreateStream(&stream));
    OK(aclrtIpcOpenEventHandle(exported, &event));
    for (int i = 0; i < ROUNDS / 10; i++) {
        OK(aclrtRecordEvent(event, stream));
        OK(aclrtStreamWaitEvent(stream, event));
    }
    OK(aclrtSynchronizeEvent(event));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyEvent(event));
    OK(aclrtDestroyStream(stream));
    return NULL;
}

static void ipc_events(void)
{
    aclrtEvent event;
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_IPC));
    OK(aclrtIpcGetEventHandle(event, &exported));
    in_threads(record_and_wait);
    OK(aclrtSynchronizeEvent(event));
    OK(aclrtDestroyEvent(event));
}

int main(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&context));
    in_threads(register_and_find);
    in_threads(limit_streams);
    in_threads(call_and_disturb);
    shared_buffers();
    in_threads(draw_numbers);
    ipc_events();
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
