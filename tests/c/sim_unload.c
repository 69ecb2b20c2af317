/* Threads launch a kernel, fill its arguments and query it while another one unloads it: they
 * get codes, and the library is not closed before the last such call has ended. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum {
    THREADS = 2,
    LOADS = 400,
    NAME_BYTES = 1 << 20 /* takes long to copy, and free() returns a block of this size to the system at once */
};

/* Control API (acl/sim/kernels/kernel.h): not part of ACL's API, so declared here. */
aclError acl_sim_kernel_make(const char *name, void (*code)(void *, uint32_t, uint32_t),
                             const uint32_t *sizes, aclrtBinHandle *binary,
                             aclrtFuncHandle *function);

static aclrtContext context;
static _Atomic(void *) function, binary;
static atomic_bool over;
static atomic_ulong uses;
static char long_name[NAME_BYTES];

/* A call that stays inside the library: it copies a name into memory that is write-protected at first. */
static char *barred;
static atomic_bool inside, go_on;

static void fault(int number, siginfo_t *info, void *context_of_fault)
{
    (void)number, (void)context_of_fault;
    char *at = info->si_addr;
    if (at < barred || at >= barred + NAME_BYTES || atomic_load(&inside)) {
        static const char text[] = "the name went while a call was copying it\n";
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
        _exit(1);
    }
    atomic_store(&inside, true);
    while (!atomic_load(&go_on)) {
        sched_yield();
    }
    (void)mprotect(barred, NAME_BYTES, PROT_READ | PROT_WRITE);
}

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
    for (int i = 0; i < 2; i++) {
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

static void *ask(void *kernel)
{
    OK(aclrtSetCurrentContext(context));
    OK(aclrtGetFunctionName(kernel, NAME_BYTES, barred));
    return NULL;
}

/* The library is unloaded while a call is inside it. */
static void unload_under_a_call(void)
{
    aclrtBinHandle made;
    aclrtFuncHandle kernel;
    pthread_t thread;
    struct sigaction ours = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO}, before;
    barred = mmap(NULL, NAME_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(barred != MAP_FAILED);
    CHECK(sigaction(SIGSEGV, &ours, &before) == 0);
    OK(acl_sim_kernel_make(long_name, nothing, NULL, &made, &kernel));
    CHECK(pthread_create(&thread, NULL, ask, kernel) == 0);
    while (!atomic_load(&inside)) {
        sched_yield();
    }
    OK(aclrtBinaryUnLoad(made));
    CHECK(aclrtGetFunctionName(kernel, NAME_BYTES, barred) == ACL_ERROR_RT_INVALID_HANDLE);
    atomic_store(&go_on, true);
    pthread_join(thread, NULL);
    CHECK(strcmp(barred, long_name) == 0);
    CHECK(sigaction(SIGSEGV, &before, NULL) == 0);
    CHECK(munmap(barred, NAME_BYTES) == 0);
}

int main(void)
{
    pthread_t threads[THREADS];
    memset(long_name, 'n', sizeof long_name - 1);
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&context));
    unload_under_a_call();
    load();
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    }
    for (int i = 0; i < LOADS; i++) {
        unsigned long before = atomic_load(&uses);
        while (atomic_load(&uses) == before) { /* so that each kernel is in use when it is unloaded */
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
