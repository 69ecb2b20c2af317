/* profiler.c: aclprof*: records what the program marks, as a Chrome trace.

   aclprofInit names a folder. Between aclprofStart and aclprofStop, the program's marks, ranges and
   steps are recorded, also those on streams. aclprofFinalize writes them to
   FOLDER/PROF_sim_PID.json, which chrome://tracing and Perfetto show.  There is no hardware to
   measure, so metrics are accepted and ignored.  A model's operators are reported by other
   functions (subscription.c), which cannot be used at the same time.

   Thread rule: the state and the records are under one mutex; pushed ranges belong to a thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "generated/exports.h"
#include "profiling/subscription.h"

enum {
    PATH_MAX_LENGTH = 4096,
    TEXT_MAX = 128, /* including the terminating zero */
    PUSHED_MAX = 64,
    RECORDS_MAX = 1 << 20,
    FAILED = -1, /* what marking functions return on failure */
    OBJECT_SIZE = 448,
};

#define KNOWN_SWITCHES                                                                            \
    (ACL_PROF_ACL_API | ACL_PROF_TASK_TIME | ACL_PROF_AICORE_METRICS | ACL_PROF_AICPU |           \
     ACL_PROF_L2CACHE | ACL_PROF_HCCL_TRACE | ACL_PROF_TRAINING_TRACE | ACL_PROF_MSPROFTX |       \
     ACL_PROF_RUNTIME_API | ACL_PROF_GE_API_L0 | ACL_PROF_TASK_TIME_L0 | ACL_PROF_TASK_MEMORY |   \
     ACL_PROF_GE_API_L1 | ACL_PROF_TASK_TIME_L2 | ACL_PROF_OP_ATTR | ACL_PROF_TASK_TIME_L3 |      \
     ACL_PROF_API_STATS | ACL_PROF_AICORE_SHAPE)

typedef enum Sort { SORT_CONFIG = 1, SORT_STAMP, SORT_STEP } Sort;

/* The first member of each object of this file. No number is used twice. */
typedef struct Head {
    Sort sort;
    uint32_t number;
} Head;

struct aclprofConfig {
    Head head;
    uint32_t started; /* number of the profile in which it was started; 0: none */
    uint32_t count;
    uint32_t devices[DEVICE_MAX];
    uint64_t switches;
};

struct aclprofStepInfo {
    Head head;
    bool begun, ended;
};

typedef struct Stamp {
    Head head;
    bool started; /* aclprofRangeStart was called; protected by the mutex */
    int64_t begin_ns;
    char text[TEXT_MAX];
} Stamp;

_Static_assert(sizeof(struct aclprofConfig) <= OBJECT_SIZE, "one size for all");
_Static_assert(sizeof(struct aclprofStepInfo) <= OBJECT_SIZE, "one size for all");
_Static_assert(sizeof(Stamp) <= OBJECT_SIZE, "one size for all");

/* One line of the trace: a period of time on a host thread or on a stream. */
typedef struct Record {
    char text[TEXT_MAX];
    const char *sort;
    int64_t begin_ns, end_ns;
    long thread;
    bool on_stream;
} Record;

FILE_LOCK(lock);
static char *folder;     /* the folder of aclprofInit; NULL: aclprofInit was not called */
static uint32_t profile; /* number of the profile that runs from aclprofInit to aclprofFinalize, from 1 */
static uint32_t marking; /* number of started configurations with ACL_PROF_MSPROFTX */
static Record *records;
static size_t record_count, record_room;
static uint32_t last_number;

static void *object_new(Sort sort)
{
    pthread_mutex_lock(&lock);
    Head *object = handle_new(HANDLE_PROFILER, OBJECT_SIZE);
    if (object != NULL) {
        *object = (Head){sort, ++last_number};
    }
    pthread_mutex_unlock(&lock);
    return object;
}

static bool object_is(const void *object, Sort sort)
{
    return handle_is(object, HANDLE_PROFILER) && ((const Head *)object)->sort == sort;
}

static bool object_end(const void *object)
{
    void *own = (void *)(uintptr_t)object;
    bool ours = handle_kill(own);
    if (ours) {
        handle_retire(own);
    }
    return ours;
}

bool profiler_initialised(void)
{
    pthread_mutex_lock(&lock);
    bool is = folder != NULL;
    pthread_mutex_unlock(&lock);
    return is;
}

static bool is_marking(void)
{
    pthread_mutex_lock(&lock);
    bool is = marking > 0;
    pthread_mutex_unlock(&lock);
    return is;
}

/* Stores a record. Returns false if there is no host memory, or if RECORDS_MAX records are stored. */
static bool record_add(Record record)
{
    pthread_mutex_lock(&lock);
    if (record_count == record_room && record_room < RECORDS_MAX) {
        size_t room = record_room == 0 ? 256 : 2 * record_room;
        Record *grown = realloc(records, room * sizeof *grown);
        records = grown != NULL ? grown : records;
        record_room = grown != NULL ? room : record_room;
    }
    bool kept = record_count < record_room;
    if (kept) {
        records[record_count++] = record;
    }
    pthread_mutex_unlock(&lock);
    return kept;
}

static Record record_of(const char *text, const char *sort, int64_t begin_ns)
{
    Record record = {.sort = sort, .begin_ns = begin_ns, .end_ns = now_ns(),
                     .thread = syscall(SYS_gettid)};
    size_t length = strnlen(text, TEXT_MAX - 1);
    memcpy(record.text, text, length);
    return record;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Replaces quotes and control characters, which a JSON string cannot contain as they are. */
static void text_clean(char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ') {
            *text = '_';
        }
    }
}

static aclError records_write(void)
{
    char path[PATH_MAX_LENGTH + 64];
    snprintf(path, sizeof path, "%s/PROF_sim_%d.json", folder, (int)getpid());
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        return fail(ACL_ERROR_WRITE_FILE, "cannot write %.200s: %s", path, strerror(errno));
    }
    fputs("{\"traceEvents\": [", file);
    for (size_t i = 0; i < record_count; i++) {
        Record *r = &records[i];
        text_clean(r->text);
        fprintf(file, "%s\n{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"ts\": %.3f, "
                "\"dur\": %.3f, \"pid\": %d, \"tid\": \"%s %ld\"}", i == 0 ? "" : ",", r->text,
                r->sort, (double)r->begin_ns / 1000, (double)(r->end_ns - r->begin_ns) / 1000,
                (int)getpid(), r->on_stream ? "stream" : "thread", r->thread);
    }
    fputs("\n]}\n", file);
    if (fclose(file) != 0) {
        return fail(ACL_ERROR_WRITE_FILE, "cannot write %.200s: %s", path, strerror(errno));
    }
    return ACL_SUCCESS;
}

/* ---- from init to finalize ------------------------------------------------------------------- */

aclError sim_aclprofInit(const char *profilerResultPath, size_t length)
{
    REQUIRE(profilerResultPath);
    REQUIRE(strnlen(profilerResultPath, PATH_MAX_LENGTH + 1) == length);
    REQUIRE(length > 0 && length <= PATH_MAX_LENGTH);
    if (subscription_any()) {
        return fail(ACL_ERROR_PROF_API_CONFLICT,
                    "a model is subscribed: call aclprofModelUnSubscribe before aclprofInit");
    }
    (void)mkdir(profilerResultPath, 0777);
    if (access(profilerResultPath, W_OK | X_OK) != 0) {
        return fail(ACL_ERROR_INVALID_FILE, "%.200s is not a folder that can be written to: %s",
                    profilerResultPath, strerror(errno));
    }
    char *own = strdup(profilerResultPath);
    pthread_mutex_lock(&lock);
    bool repeated = folder != NULL;
    if (!repeated) {
        folder = own;
        profile++;
    }
    pthread_mutex_unlock(&lock);
    if (repeated) {
        free(own);
        return fail(ACL_ERROR_REPEAT_INITIALIZE, "profiling is initialised already");
    }
    return own != NULL ? ACL_SUCCESS : fail(ACL_ERROR_BAD_ALLOC, "no memory for a path");
}

/* Ends profiles that are still running, writes the file and frees the records. */
aclError sim_aclprofFinalize(void)
{
    pthread_mutex_lock(&lock);
    aclError status = folder == NULL ? ACL_ERROR_PROF_NOT_RUN : records_write();
    free(folder);
    free(records);
    folder = NULL;
    records = NULL;
    record_count = record_room = 0;
    marking = 0;
    pthread_mutex_unlock(&lock);
    if (status == ACL_ERROR_PROF_NOT_RUN) {
        return fail(status, "profiling is not initialised");
    }
    return status;
}

/* True if all devices exist and none is named twice. */
static bool devices_sound(const uint32_t *devices, uint32_t count)
{
    bool seen[DEVICE_MAX] = {false};
    if (count > config.devices || (count > 0 && devices == NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (devices[i] >= config.devices || seen[devices[i]]) {
            return false;
        }
        seen[devices[i]] = true;
    }
    return true;
}

aclprofConfig *sim_aclprofCreateConfig(uint32_t *deviceIdList, uint32_t deviceNums,
    aclprofAicoreMetrics aicoreMetrics, const aclprofAicoreEvents *aicoreEvents,
    uint64_t dataTypeConfig)
{
    (void)aicoreMetrics;
    bool host_only = deviceNums == 0 && (dataTypeConfig & ACL_PROF_MSPROFTX) != 0;
    if (aicoreEvents != NULL || !devices_sound(deviceIdList, deviceNums) ||
        (deviceNums == 0 && !host_only)) {
        (void)fail(ACL_ERROR_INVALID_PARAM, "deviceIdList with deviceNums = %u, aicoreEvents = %p: "
                   "expected existing devices without repetition (none only with ACL_PROF_MSPROFTX), "
                   "and aicoreEvents NULL", deviceNums, (const void *)aicoreEvents);
        return NULL;
    }
    aclprofConfig *made = object_new(SORT_CONFIG);
    if (made != NULL) {
        made->switches = dataTypeConfig;
        made->count = deviceNums;
        if (deviceNums > 0) {
            memcpy(made->devices, deviceIdList, deviceNums * sizeof *deviceIdList);
        }
    }
    return made;
}

aclError sim_aclprofDestroyConfig(const aclprofConfig *profilerConfig)
{
    REQUIRE(object_is(profilerConfig, SORT_CONFIG) && object_end(profilerConfig));
    return ACL_SUCCESS;
}

static aclError config_check(const aclprofConfig *given, const char *function)
{
    if (!object_is(given, SORT_CONFIG) || given->switches == 0) {
        return error_argument(function, ACL_ERROR_INVALID_PARAM,
                              "profilerConfig is a live configuration with at least one data type");
    }
    if ((given->switches & ~(uint64_t)KNOWN_SWITCHES) != 0) {
        return error_set(function, ACL_ERROR_PROF_MODULES_UNSUPPORTED, "unknown switches %#llx",
                         (unsigned long long)(given->switches & ~(uint64_t)KNOWN_SWITCHES));
    }
    return ACL_SUCCESS;
}

/* Starts or stops a configuration. Returns 100043 if aclprofInit was not called. */
static aclError config_switch(const aclprofConfig *given, bool start, const char *function)
{
    aclprofConfig *own = (aclprofConfig *)(uintptr_t)given;
    aclError status = ACL_SUCCESS;
    pthread_mutex_lock(&lock);
    if (folder == NULL) {
        status = ACL_ERROR_PROF_NOT_RUN;
    } else if ((own->started == profile) == start) {
        status = start ? ACL_ERROR_PROF_ALREADY_RUN : ACL_ERROR_PROF_NOT_RUN;
    } else {
        uint32_t marks = (own->switches & ACL_PROF_MSPROFTX) != 0;
        own->started = start ? profile : 0;
        marking = start ? marking + marks : marking - marks;
    }
    pthread_mutex_unlock(&lock);
    if (status != ACL_SUCCESS) {
        return error_set(function, status, "profiling is %s", status == ACL_ERROR_PROF_NOT_RUN
                         ? "not initialised, or not started with this configuration"
                         : "started with this configuration already");
    }
    return status;
}

aclError sim_aclprofStart(const aclprofConfig *profilerConfig)
{
    TRY(config_check(profilerConfig, __func__));
    return config_switch(profilerConfig, true, __func__);
}

aclError sim_aclprofStop(const aclprofConfig *profilerConfig)
{
    TRY(config_check(profilerConfig, __func__));
    return config_switch(profilerConfig, false, __func__);
}

aclError sim_aclprofSetConfig(aclprofConfigType configType, const char *config_text,
    size_t configLength)
{
    REQUIRE(config_text);
    REQUIRE(configType > ACL_PROF_ARGS_MIN && configType < ACL_PROF_ARGS_MAX);
    REQUIRE(configLength > 0 && strnlen(config_text, configLength + 1) == configLength);
    pthread_mutex_lock(&lock);
    bool initialised = folder != NULL;
    pthread_mutex_unlock(&lock);
    if (!initialised) {
        return fail(ACL_ERROR_PROF_NOT_RUN, "profiling is not initialised");
    }
    return ACL_SUCCESS;
}

/* ---- marks on streams ------------------------------------------------------------------------ */

typedef struct StreamMark {
    char text[TEXT_MAX];
    const char *sort;
} StreamMark;

static aclError mark_run(Stream *stream, const void *payload)
{
    const StreamMark *mark = payload;
    Record record = record_of(mark->text, mark->sort, now_ns());
    record.on_stream = true;
    record.thread = (long)stream_id(stream);
    record.end_ns = record.begin_ns;
    if (is_marking()) {
        (void)record_add(record);
    }
    return ACL_SUCCESS;
}

static const TaskClass mark_task = {.name = "profiler mark", .run = mark_run};

static aclError mark_submit(aclrtStream handle, const char *text, size_t length, const char *sort)
{
    STREAM_REF(stream);
    StreamMark mark = {.sort = sort};
    memcpy(mark.text, text, length);
    TRY(stream_resolve(handle, &stream));
    return stream_submit(stream, &mark_task, &mark, sizeof mark);
}

/* Records a mark with two times: the host's time of this call, and the time at which the stream reaches the mark. */
aclError sim_aclprofMarkEx(const char *msg, size_t msgLen, aclrtStream stream)
{
    if (!is_marking() || msg == NULL || stream == NULL || msgLen == 0 || msgLen >= TEXT_MAX ||
        strnlen(msg, TEXT_MAX) != msgLen) {
        return !is_marking() ? fail(FAILED, "first call aclprofStart with ACL_PROF_MSPROFTX")
                             : fail(FAILED, "stream is %p, msgLen is %zu: expected a stream, and a msg of msgLen "
                                    "= 1 to %d bytes", stream, msgLen, TEXT_MAX - 1);
    }
    if (mark_submit(stream, msg, msgLen, "mark") != ACL_SUCCESS) {
        return FAILED;
    }
    return record_add(record_of(msg, "mark", now_ns())) ? ACL_SUCCESS : FAILED;
}

aclprofStepInfo *sim_aclprofCreateStepInfo(void)
{
    return object_new(SORT_STEP);
}

void sim_aclprofDestroyStepInfo(aclprofStepInfo *stepinfo)
{
    if (!object_is(stepinfo, SORT_STEP) || !object_end(stepinfo)) {
        (void)fail(ACL_ERROR_INVALID_PARAM, "stepinfo is not a live step");
    }
}

aclError sim_aclprofGetStepTimestamp(aclprofStepInfo *stepInfo, aclprofStepTag tag,
    aclrtStream stream)
{
    char text[TEXT_MAX];
    REQUIRE(object_is(stepInfo, SORT_STEP));
    REQUIRE(tag == ACL_STEP_START || tag == ACL_STEP_END);
    bool *done = tag == ACL_STEP_START ? &stepInfo->begun : &stepInfo->ended;
    REQUIRE(!*done);
    *done = true;
    int length = snprintf(text, sizeof text, "step %u %s", stepInfo->head.number,
                          tag == ACL_STEP_START ? "start" : "end");
    return mark_submit(stream, text, (size_t)length, "step");
}

/* ---- stamps ---------------------------------------------------------------------------------- */

static _Thread_local Stamp *pushed[PUSHED_MAX];
static _Thread_local uint32_t pushed_count;
static _Thread_local int64_t tensors_begin_ns[PUSHED_MAX];
static _Thread_local uint32_t tensors_count;

/* Returns -1 from the function unless marks are recorded and the condition is true. */
#define NEED(condition)                                                                           \
    do {                                                                                          \
        if (!is_marking() || !(condition)) {                                                      \
            return is_marking() ? error_argument(__func__, FAILED, #condition)                    \
                                : fail(FAILED, "first call aclprofStart with ACL_PROF_MSPROFTX"); \
        }                                                                                         \
    } while (0)

void *sim_aclprofCreateStamp(void)
{
    Stamp *stamp = is_marking() ? object_new(SORT_STAMP) : NULL;
    if (stamp == NULL) {
        (void)fail(ACL_ERROR_PROF_NOT_RUN, "no stamp was made: first call aclprofStart with ACL_PROF_MSPROFTX");
    }
    return stamp;
}

void sim_aclprofDestroyStamp(void *stamp)
{
    if (object_is(stamp, SORT_STAMP)) {
        (void)object_end(stamp);
    }
}

aclError sim_aclprofSetStampTraceMessage(void *stamp, const char *msg, uint32_t msgLen)
{
    if (!object_is(stamp, SORT_STAMP) || msg == NULL || msgLen >= TEXT_MAX) {
        return fail(FAILED, "stamp is %p, msgLen is %u: expected a live stamp and a msg of at "
                    "most %d bytes", stamp, msgLen, TEXT_MAX - 1);
    }
    Stamp *own = stamp;
    memcpy(own->text, msg, msgLen);
    own->text[msgLen] = '\0';
    return ACL_SUCCESS;
}

static aclError stamp_record(const Stamp *stamp, const char *sort, int64_t begin_ns)
{
    if (!record_add(record_of(stamp->text, sort, begin_ns))) {
        return fail(FAILED, "no room for more records");
    }
    return ACL_SUCCESS;
}

aclError sim_aclprofMark(void *stamp)
{
    NEED(object_is(stamp, SORT_STAMP));
    return stamp_record(stamp, "mark", now_ns());
}

aclError sim_aclprofPush(void *stamp)
{
    NEED(object_is(stamp, SORT_STAMP) && pushed_count < PUSHED_MAX);
    Stamp *own = stamp;
    own->begin_ns = now_ns();
    pushed[pushed_count++] = own;
    return ACL_SUCCESS;
}

aclError sim_aclprofPop(void)
{
    NEED(pushed_count > 0);
    const Stamp *stamp = pushed[--pushed_count];
    NEED(object_is(stamp, SORT_STAMP));
    return stamp_record(stamp, "range", stamp->begin_ns);
}

aclError sim_aclprofRangeStart(void *stamp, uint32_t *rangeId)
{
    NEED(object_is(stamp, SORT_STAMP) && rangeId != NULL);
    Stamp *own = stamp;
    pthread_mutex_lock(&lock);
    own->begin_ns = now_ns();
    own->started = true;
    pthread_mutex_unlock(&lock);
    *rangeId = own->head.number;
    return ACL_SUCCESS;
}

/* Ends the range and records it. Any thread may end a range, not only the thread that started it. */
aclError sim_aclprofRangeStop(uint32_t rangeId)
{
    Stamp *found = NULL;
    void *object = NULL;
    pthread_mutex_lock(&lock);
    while (found == NULL && (object = handle_next(HANDLE_PROFILER, object)) != NULL) {
        Stamp *stamp = object;
        if (object_is(stamp, SORT_STAMP) && stamp->head.number == rangeId && stamp->started) {
            found = stamp;
            found->started = false;
        }
    }
    pthread_mutex_unlock(&lock);
    NEED(found != NULL);
    return stamp_record(found, "range", found->begin_ns);
}

/* Begins a range of this thread. `attr` describes an operator's tensors; it is checked, but only the range's times are
   recorded. */
aclError sim_aclprofRangePushEx(aclprofEventAttributes *attr)
{
    NEED(attr != NULL && attr->version == ACL_PROF_EVENT_ATTR_VERSION);
    NEED(attr->messageType == ACL_PROF_MESSAGE_TYPE_TENSOR_INFO);
    NEED(attr->message.tensorInfo != NULL);
    NEED(tensors_count < PUSHED_MAX);
    tensors_begin_ns[tensors_count++] = now_ns();
    return ACL_SUCCESS;
}

aclError sim_aclprofRangePop(void)
{
    NEED(tensors_count > 0);
    int64_t begin_ns = tensors_begin_ns[--tensors_count];
    return record_add(record_of("tensors", "range", begin_ns)) ? ACL_SUCCESS : FAILED;
}
