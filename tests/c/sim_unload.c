/* Threads that launch a kernel, fill its arguments and ask about it while another one unloads it: they
 * get codes, and the library stays until the last such call has ended. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

enum { THREADS = 2, LOADS = 400, NAME_BYTES = 1 << 16 }; /* a name that takes long to copy */

/* The control door (acl/sim/kernel.h): not part of the API, so declared here. */
aclError acl_sim_kernel_make(const char *name, void (*code)(void *, uint32_t, uint32_t),
                             const uint32_t *sizes, aclrtBinHandle *binary,
                             aclrtFuncHandle *function);

static aclrtContext context;
static _Atomic(void *) function, binary;
static atomic_bool over;
static atomic_ulong uses;
static char long_name[NAME_BYTES];

static void nothing(void *args, uint32_t block, uint32_t blocks)
{
    (void)args, (void)block, (void)blocks;
}

static void expect(aclError status, const char *call)
{
    if (status != ACL_SUCCESS && status != ACL_ERROR_RT_INVALID_HANDLE) {
        fprintf(stderr, "%s gave %d\n", call, status);
        exit(1);
    }
}
#define TRY_CALL(call) expect((call), #call)

static void use(aclrtStream stream, void *kernel, void *of)
{
    uint64_t value = 0;
    static _Thread_local char name[NAME_BYTES];
    aclrtBinHandle found;
    aclrtArgsHandle args;
    aclrtParamHandle param;
    void *address;
    size_t size;
    TRY_CALL(aclrtLaunchKernelWithHostArgs(kernel, 1, stream, NULL, &value, sizeof value, NULL, 0));
    for (int i = 0; i < 20; i++) {
        TRY_CALL(aclrtGetFunctionName(kernel, sizeof name, name));
    }
    TRY_CALL(aclrtFunctionGetBinary(kernel, &found));
    TRY_CALL(aclrtBinaryGetDevAddress(of, &address, &size));
    if (aclrtKernelArgsInit(kernel, &args) == ACL_SUCCESS) {
        TRY_CALL(aclrtKernelArgsAppend(args, &value, sizeof value, &param));
        TRY_CALL(aclrtKernelArgsFinalize(args));
        TRY_CALL(aclrtLaunchKernelWithConfig(kernel, 1, stream, NULL, args, NULL));
    }
}

static void *work(void *argument)
{
    aclrtStream stream;
    OK(aclrtSetCurrentContext(context));
    OK(aclrtCreateStream(&stream));
    while (!atomic_load(&over)) {
        atomic_fetch_add(&uses, 1);
        use(stream, atomic_load(&function), atomic_load(&binary));
    }
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyStream(stream));
    return argument;
}

static void load(void)
{
    aclrtBinHandle made;
    aclrtFuncHandle kernel;
    OK(acl_sim_kernel_make(long_name, nothing, NULL, &made, &kernel));
    void *before = atomic_exchange(&binary, made);
    atomic_store(&function, kernel);
    if (before != NULL) {
        OK(aclrtBinaryUnLoad(before));
    }
}

int main(void)
{
    pthread_t threads[THREADS];
    memset(long_name, 'n', sizeof long_name - 1);
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&context));
    load();
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    }
    for (int i = 0; i < LOADS; i++) {
        unsigned long before = atomic_load(&uses);
        while (atomic_load(&uses) == before) { /* each kernel is in use when it goes */
            sched_yield();
        }
        load();
    }
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(aclrtBinaryUnLoad(binary));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
