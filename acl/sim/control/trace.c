/* trace.c: the trace of calls, and the latency model, which makes calls take as long as on a device.

   The trace has a line for each exported call, written in one piece when the call returns:

       SECONDS THREAD FUNCTION STATUS PROCESS MICROSECONDS STREAM TASK ARGUMENTS

   SECONDS is the time at which the call began, of the machine's monotonic clock, so that traces of several
   processes can be merged; MICROSECONDS is how long the call took.  TASK is the number of the last task
   that the call queued, and STREAM the number of its stream.  If the call queued no task, TASK is "-" and
   STREAM is the stream among its arguments, or "-".  Lines are appended to the file that ACL_SIM_TRACE names,
   because child processes inherit the name.  "%p" in the name is replaced by the process's number, so that a
   forked child writes to a file of its own.

   The latency model makes each call take at least the time that the chosen preset says, by waiting before the
   call is executed; it is off by default.  With the preset pcie, copies between host and device also take the
   time that the link needs.

   Thread rule: one mutex guards the trace's file: no line is written to a descriptor that was closed and
   may belong to another file, and the lines are in order.  The mutex is held during a fork, and while the
   preset is changed; calls read the preset without the mutex. */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "control/control_api.h"
#include "copies/copy.h"
#include "streams/stream.h"
#include "generated/exports.h"

FILE_LOCK(trace_lock);
static int trace_file = -1;
static char trace_name[PATH_MAX]; /* the file's name as the user gave it, with "%p" not replaced */

/* The calls of a thread that have begun and not ended, at most CALLS_DEEP. There may be several, because a callback can
   make calls before the call that invoked the callback ends. */
enum { CALLS_DEEP = 8 };
typedef struct OpenCall {
    unsigned function;
    int64_t begin_ns;
    uint64_t tasks; /* number of tasks that the thread had submitted when the call began */
} OpenCall;
static _Thread_local OpenCall open_calls[CALLS_DEEP];
static _Thread_local unsigned open_count;

static void trace_freeze(void)
{
    pthread_mutex_lock(&trace_lock);
}

static void trace_thaw(void)
{
    pthread_mutex_unlock(&trace_lock);
}

int output_open(const char *name, bool fresh)
{
    char path[PATH_MAX];
    const char *mark = strstr(name, "%p");
    int length = mark == NULL ? snprintf(path, sizeof path, "%s", name)
                              : snprintf(path, sizeof path, "%.*s%d%s", (int)(mark - name), name,
                                         (int)getpid(), mark + 2);
    if (length < 0 || (size_t)length >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (fresh ? O_TRUNC : 0), 0666);
}

/* Closes the present file of the trace and uses the descriptor `file` instead; -1 ends the trace. */
static void trace_replace(int file)
{
    if (trace_file >= 0) {
        close(trace_file);
    }
    trace_file = file;
    if (file >= 0) {
        atomic_fetch_or(&gate_watch, GATE_TRACE);
    } else {
        atomic_fetch_and(&gate_watch, ~(unsigned)GATE_TRACE);
    }
}

static void trace_in_child(void)
{
    if (trace_file >= 0 && strstr(trace_name, "%p") != NULL) {
        trace_replace(output_open(trace_name, false));
    }
    trace_thaw();
}

__attribute__((constructor(104))) static void trace_start(void)
{
    pthread_atfork(trace_freeze, trace_thaw, trace_in_child);
}

aclError trace_open(const char *name, bool fresh)
{
    int file = *name == '\0' ? -1 : output_open(name, fresh);
    if (*name != '\0' && file < 0) {
        return fail(ACL_ERROR_WRITE_FILE, "cannot write %.200s: %s", name, strerror(errno));
    }
    pthread_mutex_lock(&trace_lock);
    snprintf(trace_name, sizeof trace_name, "%s", name);
    trace_replace(file);
    pthread_mutex_unlock(&trace_lock);
    return ACL_SUCCESS;
}

void trace_begin(unsigned function)
{
    if (open_count < CALLS_DEEP) {
        open_calls[open_count++] = (OpenCall){function, now_ns(), stream_last_submission().tasks};
    }
}

/* Removes the newest open call of that function and returns it.  Open calls that began after it have ended while the
   trace was off; they are removed, too.  If the function has no open call, its call began before the trace; then
   returns a call that begins now. */
static OpenCall call_close(unsigned function)
{
    for (unsigned i = open_count; i > 0; i--) {
        if (open_calls[i - 1].function == function) {
            open_count = i - 1;
            return open_calls[open_count];
        }
    }
    return (OpenCall){function, now_ns(), stream_last_submission().tasks};
}

/* Writes the words STREAM and TASK of a call's line. */
static void work_words(const OpenCall *call, const char *arguments, char *text, size_t room)
{
    StreamSubmission last = stream_last_submission();
    const char *given = strncmp(arguments, "stream=", 7) == 0 ? arguments : strstr(arguments, " stream=");
    void *handle = NULL;
    Stream *stream;
    if (last.tasks != call->tasks) {
        snprintf(text, room, "%u %u", last.stream_id, last.task_id);
        return;
    }
    given = given == NULL ? NULL : strchr(given, '=') + 1;
    bool read = given != NULL && sscanf(given + (strncmp(given, "->", 2) == 0 ? 2 : 0), "%p", &handle) == 1;
    if (read && handle_follow(handle, HANDLE_STREAM)) {
        stream = handle;
        snprintf(text, room, "%u -", stream->id);
        handle_drop(stream);
    } else {
        snprintf(text, room, "- -");
    }
}

void trace_write(unsigned function, aclError status)
{
    char line[1024], arguments[512], work[32];
    OpenCall call = call_close(function);
    int64_t took_ns = now_ns() - call.begin_ns;
    arguments_take(arguments, sizeof arguments);
    work_words(&call, arguments, work, sizeof work);
    int length = snprintf(line, sizeof line, "%lld.%06lld %ld %s %d %d %lld.%03lld %s%s%s\n",
                          (long long)(call.begin_ns / 1000000000), (long long)(call.begin_ns / 1000 % 1000000),
                          syscall(SYS_gettid), function_names[function], status, (int)getpid(),
                          (long long)(took_ns / 1000), (long long)(took_ns % 1000), work,
                          arguments[0] == '\0' ? "" : " ", arguments);
    pthread_mutex_lock(&trace_lock);
    if (trace_file >= 0 && write(trace_file, line, (size_t)length) != length) {
        trace_replace(-1); /* the write failed (disk full): end the trace instead of writing incomplete lines */
    }
    pthread_mutex_unlock(&trace_lock);
}

/* ---- latency --------------------------------------------------------------------------------- */

typedef struct Cost {
    const char *function; /* a name, or a shell pattern of names; the first entry that matches is used */
    uint32_t us;
} Cost;

/* Orders of magnitude for one card on PCIe: a call into the kernel driver costs tens of microseconds,
   allocating or freeing pages about a hundred, queueing a task on a stream a few. */
static const Cost pcie[] = {
    {"aclrtMallocHost*", 150}, {"aclrtMallocPhysical", 60}, {"aclrtMalloc*", 120},
    {"aclrtMemAllocManaged", 120}, {"aclrtFreeHost*", 80}, {"aclrtFreePhysical", 40},
    {"aclrtFreeBuf", 0},       {"aclrtFree*", 100},
    {"aclrtReserveMemAddress*", 20}, {"aclrtReleaseMemAddress", 20},
    {"aclrtMapMem", 30},       {"aclrtUnmapMem", 30},       {"aclrtMemSetAccess", 10},
    {"aclrtMemPoolCreate", 60}, {"aclrtMemPoolDestroy", 60}, {"aclrtMemPoolTrimTo", 40},
    {"aclrtMemPool*Async", 5}, {"aclrtMemManagedPrefetch*", 5},
    {"aclrtSynchronize*", 10}, {"aclrtMemcpy*Async*", 5},   {"aclrtMemcpy*", 20},
    {"aclrtMemset*Async", 5},  {"aclrtMemset*", 10},        {"aclrtReduceAsync", 5},
    {"aclrtLaunch*", 4},       {"aclrtRecordEvent*", 3},    {"aclrtStreamWaitEvent*", 3},
    {"aclrt*StreamConfigHandle", 0}, {"aclrtCreateStream*", 200}, {"aclrtDestroyStream*", 100},
    {NULL, 0},
};

/* A preset for comparing allocators: only calls that manage memory take time. */
static const Cost memory[] = {
    {"aclrtMallocPhysical", 60}, {"aclrtMallocHost*", 150}, {"aclrtMalloc*", 120},
    {"aclrtMemAllocManaged", 120}, {"aclrtFreePhysical", 40}, {"aclrtFreeHost*", 80},
    {"aclrtFreeBuf", 0},         {"aclrtFree*", 100},
    {"aclrtReserveMemAddress*", 20}, {"aclrtReleaseMemAddress", 20},
    {"aclrtMapMem", 30},         {"aclrtUnmapMem", 30},     {"aclrtMemSetAccess", 10},
    {"aclrtMemPoolCreate", 60},  {"aclrtMemPoolDestroy", 60}, {"aclrtMemPoolTrimTo", 40},
    {"aclrtMemPool*Async", 5},
    {NULL, 0},
};

static const struct {
    const char *name;
    const Cost *costs;
} presets[] = {{"off", NULL}, {"pcie", pcie}, {"memory", memory}};

enum { PRESETS = sizeof presets / sizeof presets[0] };

/* The payload rate of a PCIe 4.0 link with 16 lanes, in bytes per microsecond. */
enum { PCIE_BYTES_PER_US = 24000 };

static _Atomic size_t preset;
static char chosen[64] = "off"; /* the text that the last latency_choose accepted; guarded by trace_lock */
static uint32_t cost_us[PRESETS][FN_COUNT + 1]; /* filled before the preset is chosen */

static uint32_t cost_find(const Cost *costs, const char *function)
{
    for (; costs->function != NULL; costs++) {
        if (fnmatch(costs->function, function, 0) == 0) {
            return costs->us;
        }
    }
    return 0;
}

/* Reads the name of a preset, or "pcie:RATE" with a rate in bytes per second. Gives the preset's index and the rate
 * of copies in bytes per microsecond; false if the text is neither of the two. */
static bool latency_read(const char *text, size_t *index, uint64_t *bytes_per_us)
{
    size_t length = strcspn(text, ":"), bytes = 0;
    for (*index = 0; *index < PRESETS; ++*index) {
        if (strlen(presets[*index].name) == length && strncmp(presets[*index].name, text, length) == 0) {
            break;
        }
    }
    bool is_pcie = *index < PRESETS && presets[*index].costs == pcie;
    *bytes_per_us = is_pcie ? PCIE_BYTES_PER_US : 0;
    if (text[length] == ':') {
        bool read = is_pcie && size_parse(text + length + 1, &bytes) && bytes >= 1000000;
        *bytes_per_us = bytes / 1000000;
        return read;
    }
    return *index < PRESETS;
}

aclError latency_choose(const char *name)
{
    size_t index;
    uint64_t bytes_per_us;
    if (strlen(name) >= sizeof chosen || !latency_read(name, &index, &bytes_per_us)) {
        return fail(ACL_ERROR_INVALID_PARAM, "no latency preset is called %.64s; there are off, pcie, memory, and "
                    "pcie:RATE with a rate of copies of at least 1MB a second, such as pcie:12GB", name);
    }
    pthread_mutex_lock(&trace_lock);
    for (size_t f = 0; presets[index].costs != NULL && f < FN_COUNT; f++) {
        cost_us[index][f] = cost_find(presets[index].costs, function_names[f]);
    }
    strcpy(chosen, name);
    atomic_store(&preset, index);
    copy_rate_choose(bytes_per_us);
    if (index != 0) {
        atomic_fetch_or(&gate_watch, GATE_LATENCY);
    } else {
        atomic_fetch_and(&gate_watch, ~(unsigned)GATE_LATENCY);
    }
    pthread_mutex_unlock(&trace_lock);
    return ACL_SUCCESS;
}

size_t latency_chosen(char *text, size_t room)
{
    pthread_mutex_lock(&trace_lock);
    int length = snprintf(text, room, "%s", chosen);
    pthread_mutex_unlock(&trace_lock);
    return (size_t)length;
}

/* Waits for the time that the preset has for the function, in a busy loop, because a sleep may end tens of
 * microseconds late. */
void latency_wait(unsigned function)
{
    uint32_t us = cost_us[atomic_load_explicit(&preset, memory_order_relaxed)][function];
    if (us == 0) {
        return;
    }
    int64_t until_ns = now_ns() + (int64_t)us * 1000;
    while (now_ns() < until_ns) {
    }
}
