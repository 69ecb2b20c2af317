/* kernelrun.c: runs a kernel's blocks on the stream's thread, so that the process survives a fault in a kernel.
 *
 * One handler gets the signals of faults and of the kernels' timers. If the thread is inside a
 * kernel, the handler jumps out of the kernel, and the stream gets an error. Otherwise it calls the
 * handler that was installed before, so that handlers of the program keep working. The handler is
 * installed for faults only while a kernel runs. A program that installs its own handler at another
 * time therefore does not find ours as "the previous handler", and so the two handlers do not call
 * each other for ever. A kernel that is left in this way does not release what it holds (a lock, an
 * allocation); without the jump, the process would end. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check/checker.h"
#include "kernels/kernel.h"
#include "memory/memory.h"
#include "numbers/parallel.h"
#include "races/race.h"
#include "streams/exception.h"

/* Messages of this file name "kernel launch" as the function that failed, instead of a function of this file. */
#undef fail
#define fail(code, ...) error_set("kernel launch", (code), __VA_ARGS__)

enum { SIGNALS = 5 };

static const int fault_signals[SIGNALS - 1] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static struct sigaction previous[SIGNALS];
static struct sigaction oldest[SIGNALS]; /* the handlers when the first of the running kernels began; see signal_pass */
FILE_LOCK(install_lock);
static unsigned launches; /* number of kernels that are running; guarded by install_lock */

static _Thread_local sigjmp_buf way_out;
static _Thread_local volatile sig_atomic_t inside;
static _Thread_local const void *volatile passing; /* context of the signal that signal_pass is passing on; else NULL */
static _Thread_local unsigned char *signal_stack; /* the handler's stack: a kernel may have overrun the normal stack */

/* --- signals --- */

static int timer_signal(void)
{
    return SIGRTMAX - 2;
}

static int signal_at(int index)
{
    return index < SIGNALS - 1 ? fault_signals[index] : timer_signal();
}

static void action_call(const struct sigaction *action, int number, siginfo_t *info, void *context)
{
    if ((action->sa_flags & SA_SIGINFO) != 0) {
        action->sa_sigaction(number, info, context);
    } else if (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN) {
        action->sa_handler(number);
    } else if (number != timer_signal()) {
        (void)signal(number, SIG_DFL); /* the fault happens again and ends the process */
    }
}

/* Passes a signal to the handler that was installed before ours. If that handler was itself installed
 * while a kernel ran, its own previous handler is ours, and it may pass the signal back; then the
 * signal is passed to the handler that was installed before both. */
static void signal_pass(int number, siginfo_t *info, void *context)
{
    bool again = passing == context;
    for (int i = 0; i < SIGNALS; i++) {
        if (signal_at(i) == number) {
            passing = context;
            action_call(again ? &oldest[i] : &previous[i], number, info, context);
            passing = NULL;
        }
    }
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    int kept = errno;
    if (check_on(CHECK_ANY) && number == SIGSEGV && check_fault_opens((uintptr_t)info->si_addr)) {
        errno = kept;
        return;
    }
    if (inside != 0) {
        inside = 0;
        siglongjmp(way_out, number);
    }
    signal_pass(number, info, context);
    errno = kept;
}

static bool is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) != 0 && action->sa_sigaction == on_signal;
}

/* Installs our handler for each signal that has another handler now: other code may have installed one
 * since the last launch, or during a launch that is still running. */
static void handlers_install(void)
{
    pthread_mutex_lock(&install_lock);
    launches++;
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction now,
            ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        (void)sigemptyset(&ours.sa_mask);
        (void)sigaction(signal_at(i), NULL, &now);
        if (!is_ours(&now)) {
            oldest[i] = launches == 1 ? now : oldest[i];
            previous[i] = now;
            (void)sigaction(signal_at(i), &ours, NULL);
        }
    }
    pthread_mutex_unlock(&install_lock);
}

/* Removes our handlers after the last running kernel, except that of the timer: its signal may arrive after the
 * kernel has ended. */
static void handlers_remove(void)
{
    pthread_mutex_lock(&install_lock);
    launches--;
    for (int i = 0; launches == 0 && i < SIGNALS - 1; i++) {
        struct sigaction now;
        (void)sigaction(signal_at(i), NULL, &now);
        if (is_ours(&now)) {
            (void)sigaction(signal_at(i), &previous[i], NULL);
        }
    }
    pthread_mutex_unlock(&install_lock);
}

static void stack_prepare(stack_t *before)
{
    enum { STACK = 64 << 10 };
    stack_t stack = {.ss_size = STACK};
    signal_stack = malloc(STACK);
    stack.ss_sp = signal_stack;
    if (signal_stack == NULL || sigaltstack(&stack, before) != 0) {
        before->ss_flags = SS_DISABLE;
    }
}

static void stack_restore(const stack_t *before)
{
    (void)sigaltstack(before, NULL);
    free(signal_stack);
    signal_stack = NULL;
}

static void signals_unblock(sigset_t *before)
{
    sigset_t wanted;
    (void)sigemptyset(&wanted);
    for (int i = 0; i < SIGNALS; i++) {
        (void)sigaddset(&wanted, signal_at(i));
    }
    (void)pthread_sigmask(SIG_UNBLOCK, &wanted, before);
}

/* --- one block --- */

typedef struct Work {
    const Launch *launch;
    int64_t deadline_ns;       /* time of now_ns() at which the kernel is ended; 0: no limit */
    _Atomic int signal;        /* the first signal that ended a block; 0: none. After it, no further block begins */
} Work;

/* Starts a timer whose signal is sent to this thread only. */
static bool timer_start(int64_t left_ns, timer_t *timer)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = timer_signal()};
    struct itimerspec when = {.it_value = {left_ns / 1000000000, left_ns % 1000000000}};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, timer) != 0) {
        return false;
    }
    (void)timer_settime(*timer, 0, &when, NULL);
    return true;
}

static int block_run(const Launch *launch, uint32_t block)
{
    int number = sigsetjmp(way_out, 1);
    if (number == 0) {
        inside = 1;
        launch->run(launch->args, block, launch->blocks);
        inside = 0;
    }
    return number;
}

/* Calls a function of the program itself, without the protection against faults: the function may run
 * Python code, and a jump out of the interpreter would leave it in an undefined state. */
static void callback_run(const Launch *launch, uint32_t block)
{
    if (callback_begin()) {
        launch->run(launch->args, block, launch->blocks);
        callback_end();
    }
}

static void block_work(void *context, int64_t index)
{
    Work *work = context;
    if (work->launch->code->kind == CODE_CALLBACK) {
        callback_run(work->launch, (uint32_t)index);
        return;
    }
    stack_t stack_before;
    sigset_t mask_before;
    timer_t timer;
    bool timed = false;
    int none = 0, came = 0;
    if (atomic_load(&work->signal) != 0) {
        return;
    }
    stack_prepare(&stack_before);
    signals_unblock(&mask_before);
    if (work->deadline_ns != 0) {
        int64_t left = work->deadline_ns - now_ns();
        timed = left > 0 && timer_start(left, &timer);
        came = left > 0 ? 0 : timer_signal();
    }
    if (came == 0) {
        came = block_run(work->launch, (uint32_t)index);
    }
    if (timed) {
        (void)timer_delete(timer);
    }
    (void)pthread_sigmask(SIG_SETMASK, &mask_before, NULL);
    stack_restore(&stack_before);
    if (came != 0) {
        (void)atomic_compare_exchange_strong(&work->signal, &none, came);
    }
}

/* --- the task --- */

static aclError launch_fail(Stream *stream, const Launch *launch, int number)
{
    ExceptionKernel kernel = {launch->handle, launch->args, (uint32_t)launch->args_size};
    exception_note_kernel(&kernel);
    if (number == timer_signal()) {
        return fail(ACL_ERROR_RT_AICORE_TIMEOUT, "stream %u: a kernel did not end in %lld us",
            stream_id(stream), (long long)launch->timeout_us);
    }
    return fail(ACL_ERROR_RT_AICORE_EXCEPTION, "stream %u: a kernel was ended by signal %d (%s)",
        stream_id(stream), number, strsignal(number));
}

static void callback_tell(Stream *stream, const Launch *launch, aclError code)
{
    const Code *binary = launch->code;
    ExceptionInfo info = {
        .stream_id = stream_id(stream), .device = stream_device(stream), .code = code,
        .kernel = {launch->handle, launch->args, (uint32_t)launch->args_size},
    };
    if (binary->on_exception != NULL && callback_begin()) {
        binary->on_exception((aclrtExceptionInfo *)&info, binary->exception_data);
        callback_end();
    }
}

static aclError launch_run(Stream *stream, const void *payload)
{
    const Launch *launch = payload;
    Work work = {.launch = launch};
    if (launch->run == NULL) {
        return ACL_SUCCESS; /* device code, accepted by ACL_SIM_DEVICE_CODE=skip: it is not run */
    }
    if (launch->copy == NULL && !memory_reachable(launch->args, launch->args_size, false)) {
        return launch_fail(stream, launch, SIGSEGV);
    }
    if (races_on() && launch->code->kind == CODE_CALLBACK) {
        race_seen(stream);
    }
    work.deadline_ns = launch->timeout_us == 0 ? 0 : now_ns() + launch->timeout_us * 1000;
    handlers_install();
    memory_window_open(stream_device(stream));
    parallel_for(kernel_threads(), launch->blocks, block_work, &work);
    memory_window_close(stream_device(stream));
    handlers_remove();
    if (races_on() && launch->code->kind == CODE_CALLBACK) {
        race_take_host(stream);
    }
    int number = atomic_load(&work.signal);
    if (number == 0) {
        return ACL_SUCCESS;
    }
    aclError code = launch_fail(stream, launch, number);
    callback_tell(stream, launch, code);
    return code;
}

static void launch_drop(void *payload)
{
    Launch *launch = payload;
    free(launch->copy);
    code_release(launch->code);
}

static void launch_describe(const void *payload, aclmdlRITaskParams *params)
{
    const Launch *launch = payload;
    params->kernelTaskParams.funcHandle = launch->handle;
    params->kernelTaskParams.args = launch->args;
    params->kernelTaskParams.isHostArgs = launch->copy != NULL;
    params->kernelTaskParams.argsSize = launch->args_size;
    params->kernelTaskParams.numBlocks = launch->blocks;
}

/* Changes the number of blocks and the arguments of a launch in a graph; the function cannot be changed. */
static aclError launch_adopt(void *payload, const aclmdlRITaskParams *params)
{
    Launch *launch = payload;
    const aclmdlRIKernelTaskParams *wanted = &params->kernelTaskParams;
    REQUIRE_RT(wanted->funcHandle == launch->handle);
    REQUIRE_RT(wanted->numBlocks != 0 && wanted->args != NULL && wanted->argsSize != 0);
    void *copy = NULL;
    if (wanted->isHostArgs != 0) {
        copy = malloc(wanted->argsSize);
        if (copy == NULL) {
            return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
        }
        memcpy(copy, wanted->args, wanted->argsSize);
    }
    free(launch->copy);
    launch->copy = copy;
    launch->args = copy != NULL ? copy : wanted->args;
    launch->args_size = wanted->argsSize;
    launch->blocks = wanted->numBlocks;
    return ACL_SUCCESS;
}

/* --- for the order checker --- */

typedef struct KernelTouch {
    char *kernel;
    uint32_t offset;
    bool writes;
    size_t bytes;
} KernelTouch;

enum { KERNEL_TOUCHES = 256 };

static KernelTouch declared[KERNEL_TOUCHES];
static _Atomic uint32_t declared_count; /* entries below this index do not change any more */
FILE_LOCK(declare_lock);

aclError acl_sim_kernel_touches(const char *kernel, uint32_t offset, size_t bytes, int writes)
{
    REQUIRE(kernel != NULL);
    pthread_mutex_lock(&declare_lock);
    uint32_t count = atomic_load(&declared_count);
    char *name = count < KERNEL_TOUCHES ? strdup(kernel) : NULL;
    if (name != NULL) {
        declared[count] = (KernelTouch){name, offset, writes != 0, bytes};
        atomic_store(&declared_count, count + 1);
    }
    pthread_mutex_unlock(&declare_lock);
    return name != NULL ? ACL_SUCCESS
                        : fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
                            "%d arguments of kernels are declared already", KERNEL_TOUCHES);
}

/* States the declared accesses of a launch to the order checker; false if nothing was declared for kernels of that
 * name. */
static bool declared_touch(const Launch *launch, const char *kernel, Touch *touch)
{
    bool found = false;
    for (uint32_t i = 0; i < atomic_load(&declared_count); i++) {
        const KernelTouch *one = &declared[i];
        void *pointer = NULL;
        if (strcmp(one->kernel, kernel) != 0) {
            continue;
        }
        found = true;
        if (one->offset + sizeof pointer <= launch->args_size) {
            memcpy(&pointer, (const char *)launch->copy + one->offset, sizeof pointer);
        }
        touch_bytes(touch, pointer, one->bytes, one->writes ? TOUCH_WRITE : TOUCH_READ);
    }
    return found;
}

/* States to the order checker which bytes a launch touches. A function of the program itself may wait for any event, as
 * a host function may, so its order relative to other tasks is known only when it has returned. */
static void launch_touch(const void *payload, Touch *touch)
{
    const Launch *launch = payload;
    BINARY_REF(binary);
    const Function *function = launch->handle;
    if (!binary_of_part(function, HANDLE_FUNCTION, offsetof(Function, binary), &binary)) {
        function = NULL;
    }
    if (launch->copy != NULL) {
        if (function == NULL || !declared_touch(launch, function->name, touch)) {
            touch_pointers(touch, launch->copy, launch->args_size);
        }
    } else {
        touch_bytes(touch, launch->args, launch->args_size, TOUCH_READ);
    }
    if (launch->code->kind == CODE_CALLBACK) {
        touch_late(touch);
    }
}

static const TaskClass launch_task = {
    .name = "kernel",
    .touch = launch_touch,
    .run = launch_run,
    .drop = launch_drop,
    .type = ACL_MODEL_RI_TASK_KERNEL,
    .describe = launch_describe,
    .adopt = launch_adopt,
};

aclError launch_submit(Stream *stream, const Launch *launch)
{
    aclError status = stream_submit(stream, &launch_task, launch, sizeof *launch);
    if (status != ACL_SUCCESS) {
        Launch gone = *launch;
        launch_drop(&gone);
    }
    return status;
}
