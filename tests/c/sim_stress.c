/* Threads that create, use and destroy shared streams, events, notifies, memory pools and physical
 * memory at random; then once more, with new objects that get the handles of destroyed ones.  Only
 * documented codes are returned, nothing hangs, and the accounting adds up.  The seed is the first argument,
 * or 1. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

enum { THREADS = 4, SHARED = 6, STEPS = 3000, BYTES = 64 };

aclError acl_sim_set(const char *variable, const char *value);
const char *acl_sim_kind(size_t index);
size_t acl_sim_live(size_t index);

static aclrtContext context;
static _Atomic(void *) streams[SHARED], events[SHARED], notifies[SHARED];
static _Atomic(void *) pools[SHARED], physicals[SHARED];
static uint64_t *memory;
static atomic_int called;

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Checks that a code is one that may result if another thread destroys the object or an event is never recorded. */
static void expect(aclError status, const char *call)
{
    static const aclError allowed[] = {ACL_SUCCESS, ACL_ERROR_RT_INVALID_HANDLE,
                                       ACL_ERROR_RT_PARAM_INVALID,
                                       ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
                                       ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, ACL_ERROR_INVALID_PARAM};
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        if (status == allowed[i]) {
            return;
        }
    }
    fprintf(stderr, "%s gave %d\n", call, status);
    exit(1);
}
#define TRY_CALL(call) expect((call), #call)

/* Checks a code as `expect` does; for a destroyed pool, some calls may also return an internal error. */
static void pool_expect(aclError status)
{
    if (status != ACL_ERROR_RT_INTERNAL_ERROR) {
        expect(status, "a pool's call");
    }
}

static void on_host(void *argument)
{
    (void)argument;
    atomic_fetch_add(&called, 1);
}

static void *pool_make(void)
{
    aclrtMemPoolProps props = {.allocType = ACL_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {0, ACL_MEM_LOCATION_TYPE_DEVICE}};
    aclrtMemPool made;
    OK(aclrtMemPoolCreate(&made, &props));
    return made;
}

static void *physical_make(void)
{
    aclrtPhysicalMemProp prop = {.handleType = ACL_MEM_HANDLE_TYPE_NONE,
                                 .allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED,
                                 .memAttr = ACL_HBM_MEM_HUGE,
                                 .location = {0, ACL_MEM_LOCATION_TYPE_DEVICE}};
    aclrtDrvMemHandle made;
    OK(aclrtMallocPhysical(&made, 2 << 20, &prop, 0));
    return made;
}

static void pool_use(void *pool, void *stream)
{
    void *address = NULL;
    uint64_t used;
    pool_expect(aclrtMemPoolGetAttr(pool, ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT, &used));
    aclError status = aclrtMemPoolMallocAsync(&address, 1 << 20, pool, stream);
    pool_expect(status);
    if (status == ACL_SUCCESS) {
        OK(aclrtFree(address));
    }
}

static void renew(uint32_t random)
{
    size_t i = random % SHARED;
    void *fresh = NULL;
    switch (random / SHARED % 5) {
    case 0:
        OK(aclrtCreateStream(&fresh));
        fresh = atomic_exchange(&streams[i], fresh);
        OK(aclrtDestroyStreamForce(fresh));
        break;
    case 1:
        OK(random & 1024 ? aclrtCreateEvent(&fresh)
                         : aclrtCreateEventExWithFlag(&fresh, ACL_EVENT_SYNC));
        OK(aclrtDestroyEvent(atomic_exchange(&events[i], fresh)));
        break;
    case 2:
        OK(aclrtCreateNotify(&fresh, 0));
        OK(aclrtDestroyNotify(atomic_exchange(&notifies[i], fresh)));
        break;
    case 3:
        OK(aclrtMemPoolDestroy(atomic_exchange(&pools[i], pool_make())));
        break;
    default:
        OK(aclrtFreePhysical(atomic_exchange(&physicals[i], physical_make())));
        break;
    }
}

static void use(uint32_t random)
{
    void *stream = streams[random % SHARED], *other = streams[random / 7 % SHARED];
    void *event = events[random / 49 % SHARED], *notify = notifies[random / 343 % SHARED];
    aclrtStreamStatus status;
    aclrtEventRecordedStatus recorded;
    aclrtPhysicalMemProp prop;
    switch (random >> 20 & 31) {
    case 0: TRY_CALL(aclrtRecordEvent(event, stream)); break;
    case 1: TRY_CALL(aclrtStreamWaitEvent(other, event)); break;
    case 2: TRY_CALL(aclrtSynchronizeEventWithTimeout(event, 2)); break;
    case 3: TRY_CALL(aclrtQueryEventStatus(event, &recorded)); break;
    case 4: TRY_CALL(aclrtStreamQuery(stream, &status)); break;
    case 5: TRY_CALL(aclrtSynchronizeStreamWithTimeout(stream, 2)); break;
    case 6: TRY_CALL(aclrtValueWrite(memory, random, 0, stream)); break;
    case 7: TRY_CALL(aclrtLaunchHostFunc(stream, on_host, NULL)); break;
    case 8: TRY_CALL(aclrtRecordNotify(notify, stream)); break;
    case 9: TRY_CALL(aclrtRecordNotify(notify, stream)); break;
    case 10: TRY_CALL(aclrtWaitAndResetNotify(notify, other, 0)); break;
    case 11: TRY_CALL(aclrtStreamAbort(other)); break;
    case 12: TRY_CALL(aclrtNotifyBatchReset(&notify, 1)); break;
    case 13: TRY_CALL(aclrtSynchronizeDeviceWithTimeout(1)); break;
    case 14: pool_use(pools[random / 49 % SHARED], stream); break;
    case 15: pool_use(pools[random / 49 % SHARED], stream); break;
    case 16:
        TRY_CALL(aclrtMemGetAllocationPropertiesFromHandle(physicals[random / 49 % SHARED], &prop));
        break;
    default: renew(random); break;
    }
}

static void *work(void *argument)
{
    uint32_t state = (uint32_t)(uintptr_t)argument;
    OK(aclrtSetCurrentContext(context));
    for (int i = 0; i < STEPS; i++) {
        use(next_random(&state));
    }
    return NULL;
}

static size_t live_handles(const char *kind)
{
    for (size_t i = 0; acl_sim_kind(i) != NULL; i++) {
        if (strcmp(acl_sim_kind(i), kind) == 0) {
            return acl_sim_live(i);
        }
    }
    return SIZE_MAX;
}

static void round_of_threads(uint32_t seed)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < SHARED; i++) {
        void *made;
        OK(aclrtCreateStream(&made));
        streams[i] = made;
        OK(aclrtCreateEvent(&made));
        events[i] = made;
        OK(aclrtCreateNotify(&made, 0));
        notifies[i] = made;
        pools[i] = pool_make();
        physicals[i] = physical_make();
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        uintptr_t state = (seed * 2654435761u + i * 40503u) | 1u;
        CHECK(pthread_create(&threads[i], NULL, work, (void *)state) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < SHARED; i++) {
        OK(aclrtDestroyStreamForce(streams[i]));
        OK(aclrtDestroyEvent(events[i]));
        OK(aclrtDestroyNotify(notifies[i]));
        OK(aclrtMemPoolDestroy(pools[i]));
        OK(aclrtFreePhysical(physicals[i]));
    }
}

static void run(uint32_t seed)
{
    size_t before, after, total;
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&context));
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total));
    OK(aclrtMalloc((void **)&memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    for (uint32_t i = 0; i < 3; i++) {
        round_of_threads(seed + i);
    }
    OK(aclrtDeviceTaskAbort(0, 5000));
    CHECK(live_handles("stream") == 1); /* only the default stream */
    CHECK(live_handles("event") == 0 && live_handles("notify") == 0);
    CHECK(live_handles("mem_pool") == 0 && live_handles("physical") == 0);
    OK(aclrtFree(memory));
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total));
    CHECK(after == before);
    OK(aclrtResetDevice(0));
    CHECK(live_handles("stream") == 0 && live_handles("context") == 0);
}

int main(int count, char **arguments)
{
    uint32_t seed = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 0) : 1;
    OK(aclInit(NULL));
    run(seed);
    OK(acl_sim_set("ACL_SIM_REUSE_HANDLES", "1"));
    run(seed);
    OK(aclFinalize());
    return 0;
}
