/* What the parts of the simulator share: errors, handles, the gate, the current context, streams.
 *
 * Each part has a .c file of its own and defines its entry points as `sim_NAME`; the generator puts
 * the exported `NAME` around it (exports.c), which counts the call and asks whether a fault is due.
 *
 * Thread rule: everything here may be called from any thread.  No lock of the simulator is held
 * over a user's callback, nor while waiting for a stream. */
#ifndef SIM_CORE_H
#define SIM_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acl/acl.h"

/* Visible outside its library: the control door, and what libacl_op_compiler.so needs. */
#define SIM_SHARED __attribute__((visibility("default")))
#define SIM_LIKELY(x) __builtin_expect(!!(x), 1)

/* A lock of a file.  A fork takes all of them, so that its child finds what they guard whole, and them
 * free (fork.c). */
#define FORK_TAKES(lock) \
    static pthread_mutex_t *const lock##_of_forks __attribute__((used, section("sim_locks"))) = &(lock)
#define FILE_LOCK(lock)                                       \
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; \
    FORK_TAKES(lock)

#ifdef SIM_DEBUG
#define SIM_ASSERT(x) ((x) ? (void)0 : sim_panic(#x, __FILE__, __LINE__))
#else
#define SIM_ASSERT(x) ((void)0)
#endif
_Noreturn void sim_panic(const char *what, const char *file, int line);

/* ---- errors (error.c) ------------------------------------------------------------------------
 * Codes 100000 and up to 500999 but those of the runtime are the ACL layer's: they are returned but
 * not remembered; the runtime's codes (107xxx, 207xxx, 507xxx) become the thread's last error. */
aclError error_set(const char *function, aclError code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* As error_set, but the last error stays as it is (a negative timeout's 107000). */
aclError error_set_quiet(const char *function, aclError code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
aclError error_argument(const char *function, aclError code, const char *condition)
    __attribute__((cold));

/* What a gate does with a failed call: the newest message, if it is of this code and no gate had it
 * yet, becomes one of `function` and tells the arguments, for which see arguments_words.
 * ERROR_ANY: the call gives no code, but a NULL. */
enum { ERROR_ANY = -0x7fffffff };
void error_sign(const char *function, aclError status, const char *names, ...)
    __attribute__((cold));

/* The thread's newest message without its head, "" if there is none; afterwards the thread has no
 * message. For the simulator's own threads, whose messages no program reads. */
void error_take(char *text, size_t size);

/* The thread's unread messages, which stay unread; NULL if there are none. */
const char *error_peek(void);
/* The same messages, which count as read; valid until the thread reads again. */
const char *error_read(void);

/* Leaves a message for aclGetRecentErrMsg, remembers the last error, and is `code` (which is
 * evaluated twice: the compiler then sees that it is not success). */
#define fail(code, ...) (error_set(__func__, (code), __VA_ARGS__), (code))
#define fail_quiet(code, ...) (error_set_quiet(__func__, (code), __VA_ARGS__), (code))

/* A condition as text; one that is not a pointer is a number or a comparison. */
enum { CLASS_POINTER = 5 };
#define CONDITION(condition, text)                                                      \
    (__builtin_classify_type(condition) == CLASS_POINTER ? (text) : text " != 0")

/* The ACL layer's argument check: 100000 unless the condition (or pointer) holds. */
#define REQUIRE(condition)                                                              \
    do {                                                                                \
        if (!SIM_LIKELY(condition)) {                                                   \
            error_argument(__func__, ACL_ERROR_INVALID_PARAM,                           \
                           CONDITION(condition, #condition));                           \
            return ACL_ERROR_INVALID_PARAM;                                             \
        }                                                                               \
    } while (0)

/* The runtime layer's argument check: 107000 unless the condition holds. */
#define REQUIRE_RT(condition)                                                           \
    do {                                                                                \
        if (!SIM_LIKELY(condition)) {                                                   \
            error_argument(__func__, ACL_ERROR_RT_PARAM_INVALID,                        \
                           CONDITION(condition, #condition));                           \
            return ACL_ERROR_RT_PARAM_INVALID;                                          \
        }                                                                               \
    } while (0)

/* Returns the status of `call` if it is not success. */
#define TRY(call)                                                                       \
    do {                                                                                \
        aclError try_status = (call);                                                   \
        if (!SIM_LIKELY(try_status == ACL_SUCCESS)) {                                   \
            return try_status;                                                          \
        }                                                                               \
    } while (0)

/* ---- handles (handle.c) ---------------------------------------------------------------------
 * Objects that users hold by address.  They live in one reserved range, each kind in a part of its
 * own with slots of one size, so that any bit pattern can be checked and a dead object's memory
 * stays readable.  A dead slot is given out again only after many others died; or at once, as
 * drivers do, with ACL_SIM_REUSE_HANDLES=1. */
typedef enum HandleKind {
    HANDLE_CONTEXT,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_NOTIFY,
    HANDLE_CNT_NOTIFY,
    HANDLE_LABEL,
    HANDLE_LABEL_LIST,
    HANDLE_MODEL_RI,
    HANDLE_MODEL_RI_TASK,
    HANDLE_TASK_GROUP,
    HANDLE_COND,
    HANDLE_STREAM_CONFIG,
    HANDLE_PHYSICAL,
    HANDLE_MEM_POOL,
    HANDLE_ALLOCATOR_DESC,
    HANDLE_DATA_BUFFER,
    HANDLE_UTILIZATION,
    HANDLE_GROUP_INFO,
    HANDLE_BINARY_DATA,
    HANDLE_BINARY,
    HANDLE_FUNCTION,
    HANDLE_ARGS,
    HANDLE_PARAM,
    HANDLE_TENSOR_DESC,
    HANDLE_DATASET,
    HANDLE_MODEL_DESC,
    HANDLE_MODEL,
    HANDLE_MODEL_CONFIG,
    HANDLE_EXEC_CONFIG,
    HANDLE_AIPP,
    HANDLE_OP_ATTR,
    HANDLE_OP,
    HANDLE_KERNEL_DESC,
    HANDLE_BUNDLE,
    HANDLE_PROFILER,
    HANDLE_SUBSCRIPTION,
    HANDLE_TDT,
    HANDLE_MBUF,
    HANDLE_OTHER,
    HANDLE_KINDS
} HandleKind;

/* Zeroed memory for an object of that kind, or NULL.  One size for each kind; 64-byte aligned. */
void *handle_new(HandleKind kind, size_t size);
/* handle_new in two steps, for objects that handle_next must not find half made: they are not found
 * before handle_show.  handle_retire gives back what was not shown. */
void *handle_prepare(HandleKind kind, size_t size);
void handle_show(void *handle);
/* As handle_show, and the caller holds the object. */
void handle_show_held(void *handle);
/* True if `handle` is a live object of that kind; safe for any bit pattern. */
bool handle_is(const void *handle, HandleKind kind);
/* Dead for handle_is from now on; the slot is not given out before handle_retire.  False if it was
 * dead already, so of two threads that destroy one object one wins. */
bool handle_kill(void *handle);
/* Dead, and the slot may be given out again (much later). */
void handle_retire(void *handle);
/* As handle_is, and holds the slot: it is not given out again until handle_drop, even if another
 * thread destroys the object.  Whatever is read after handle_is alone may be another object's. */
bool handle_follow(const void *handle, HandleKind kind);
/* Holds the slot of an object that may be destroyed already; false if it is too late.  Only for what
 * was a handle once. */
bool handle_hold(const void *handle);
/* True if that was the last hold of an object that was killed and not retired. The caller then
 * frees what the object owns and retires it, if each user of such an object holds it (events,
 * notifies). */
bool handle_drop(const void *handle);
/* True if the host gave addresses for handles at all. */
bool handles_possible(void);
/* The live object of that kind after `after` (NULL: the first), or NULL at the end.  Another thread
 * may destroy it at any moment: only what its slot holds may be read. */
void *handle_next(HandleKind kind, const void *after);
/* As handle_next, but the object is held and `after`, which was held, is dropped. A caller that
 * leaves the walk early drops the last object. */
void *handle_next_held(HandleKind kind, const void *after);
size_t handle_live(HandleKind kind);
const char *handle_kind_name(HandleKind kind);

/* ---- configuration (config.c) --------------------------------------------------------------- */
enum { DEVICE_MAX = 64 };

typedef enum DeviceCode { DEVICE_CODE_REFUSE, DEVICE_CODE_SKIP } DeviceCode;

typedef struct Config {
    uint32_t devices;
    size_t capacity[DEVICE_MAX]; /* bytes of device memory */
    int32_t card[DEVICE_MAX];    /* the device's number among those of the machine, of which this process may see some only */
    char soc[64];                /* as aclrtGetSocName says it */
    char version[32];            /* of CANN, "8.3.RC1" */
    bool strict;                 /* the host must not touch device memory outside copies */
    bool allocators;             /* whether aclrtAllocatorRegister works, if the SoC has it */
    bool strict_allocators;      /* refuse what the runtime's allocator registry only survives */
    bool reuse_handles;          /* a dead handle's value is given to the next object of its kind */
    DeviceCode device_code;      /* what launching code that the host cannot run does */
    char problem[256];           /* what was wrong with an ACL_SIM_* variable; "" if nothing */
} Config;

extern Config config;
/* The text of an ACL_SIM_* setting: what the control door said, else the environment's; or NULL. */
const char *setting(const char *name);
/* How many cores a kernel may use: ACL_SIM_THREADS, 1 if it says nothing. */
unsigned kernel_threads(void);
/* Sets it for this process and reads the configuration anew; 100000, with the old value back, if it
 * makes no sense.  Only while no device is in use. */
aclError setting_change(const char *name, const char *value);
/* "32G", "512M", "4096" in bytes; false if it is not a size. */
bool size_parse(const char *text, size_t *bytes);

/* ---- the gate (call_hooks.c) ----------------------------------------------------------------------
 * What every exported function passes.  The quiet path is one relaxed add and one load. */
enum { GATE_FAULTS = 1, GATE_TRACE = 2, GATE_LATENCY = 4, GATE_FORKED = 8,
       GATE_CHECK = 16 };

extern atomic_ullong gate_calls[];
extern atomic_uint gate_watch;
aclError gate_enter_watched(unsigned function);
aclError gate_leave_watched(unsigned function, aclError status);

static inline void gate_count(unsigned function)
{
    atomic_fetch_add_explicit(&gate_calls[function], 1, memory_order_relaxed);
}

static inline aclError gate_enter(unsigned function)
{
    atomic_fetch_add_explicit(&gate_calls[function], 1, memory_order_relaxed);
    if (SIM_LIKELY(atomic_load_explicit(&gate_watch, memory_order_relaxed) == 0)) {
        return ACL_SUCCESS;
    }
    return gate_enter_watched(function);
}

static inline aclError gate_leave(unsigned function, aclError status)
{
    if (SIM_LIKELY(atomic_load_explicit(&gate_watch, memory_order_relaxed) == 0)) {
        return status;
    }
    return gate_leave_watched(function, status);
}

/* gate_enter and gate_leave for libacl_op_compiler.so, which cannot reach the counters. */
SIM_SHARED aclError acl_sim_gate_enter(unsigned function);
SIM_SHARED aclError acl_sim_gate_leave(unsigned function, aclError status);
SIM_SHARED void acl_sim_error_sign(const char *function, aclError status, const char *names, ...)
    __attribute__((cold));
/* What a function does that is exported only because programs link against its name. */
SIM_SHARED aclError acl_sim_unsupported(const char *function);

/* ---- time and waiting (futex_wait.c) --------------------------------------------------------- */
int64_t now_ns(void); /* CLOCK_MONOTONIC */
enum { FOREVER = -1 };

typedef bool (*ParkReady)(const void *argument);
/* Waits until ready(argument); false if `deadline_ns` (as now_ns counts; FOREVER: none) came first.
 * The thread that makes it ready stores atomically and then calls park_wake with that key. */
bool park_wait(const void *key, ParkReady ready, const void *argument, int64_t deadline_ns);
void park_wake(const void *key);

/* For a program under ThreadSanitizer with a simulator that is not built for it: what a thread did
 * before order_release(key) comes before what another does after park_wait(key), or order_acquire,
 * says that it is ready.  Called before the store that makes it ready. */
#ifndef __SANITIZE_THREAD__
extern void __tsan_acquire(void *address) __attribute__((weak));
extern void __tsan_release(void *address) __attribute__((weak));
static inline void order_acquire(const void *key)
{
    if (__builtin_expect(__tsan_acquire != NULL, 0)) {
        __tsan_acquire((void *)(uintptr_t)key);
    }
}
static inline void order_release(const void *key)
{
    if (__builtin_expect(__tsan_release != NULL, 0)) {
        __tsan_release((void *)(uintptr_t)key);
    }
}
#else
#define order_acquire(key) ((void)(key))
#define order_release(key) ((void)(key))
#endif
/* A timeout as the API gives it (-1: none) as a deadline. */
int64_t deadline_after_ms(int32_t timeout_ms);

/* ---- devices and contexts (device.c, context.c) ---------------------------------------------- */
typedef struct Stream Stream;

typedef struct Context {
    int32_t device;
    bool is_default;          /* made by aclrtSetDevice, destroyed by the last reset */
    Stream *_Atomic default_stream; /* what NULL means while this context is current; NULL: destroyed */
    uint64_t number;          /* never used twice */
    _Atomic int64_t sys_params[8]; /* aclrtCtxSetSysParamOpt; misc */
} Context;

/* The thread's current context, or 107002. */
aclError context_require(Context **context);
/* As context_require, for calls that begin by asking which device is current: 107002 is an answer
 * then, not the thread's last error. */
aclError context_ask(Context **context);
/* The thread's current context without an error: NULL if there is none. */
Context *context_current(void);
/* 107001 unless `device` is one of the configured ones. */
aclError device_check(int32_t device);
/* How many times aclrtSetDevice was called and not reset, over all threads. */
uint32_t device_references(int32_t device);
/* Makes the device usable by later calls or lost (each gives `code`); 0 repairs it, which no reset
 * does. */
void device_set_lost(int32_t device, aclError code);
/* How many calls were refused because it was lost. */
uint64_t device_refusals(int32_t device);

/* For calls that name a device instead of using the current one; numbers below 0 are the host. */
aclError device_alive(const char *function, int32_t device);

/* ---- streams and tasks (stream.c, worker.c) -------------------------------------------------- */
struct Touch;

/* What a task does.  One static object for each sort of task.
 * `run` works on the stream's thread, outside all locks; not ACL_SUCCESS is an error of the stream.
 * It must not change the payload: a captured task runs as often as its graph is executed.
 * `drop` (may be NULL) gives back what the payload owns; it is called exactly once, in the end,
 * whether the task ran or not.  Initialise the fields by name. */
typedef struct TaskClass {
    const char *name;
    aclError (*run)(Stream *stream, const void *payload);
    void (*drop)(void *payload);
    aclmdlRITaskType type; /* as aclmdlRITaskGetType says it; 0 = DEFAULT */
    /* For a captured task, both may be NULL: tells its parameters (the rest of `params` is 0), and
     * takes others, which changes the payload. */
    void (*describe)(const void *payload, aclmdlRITaskParams *params);
    aclError (*adopt)(void *payload, const aclmdlRITaskParams *params);
    /* For the order checker (race.h): which bytes it touches, what it records or waits for; NULL:
     * nothing.  Called when the task is queued, or a graph that has it. */
    void (*touch)(const void *payload, struct Touch *touch);
    /* For a captured task, may be NULL: whether `run` would wait now for what another stream does. */
    bool (*waits)(const void *payload);
} TaskClass;

/* A variable for a stream that a call follows: its slot is held until the end of the block. */
void stream_unref(Stream *const *stream);
#define STREAM_REF(name) Stream *name __attribute__((cleanup(stream_unref))) = NULL
/* The live stream of that handle, held, in any context; 107017 if it is not a live stream. */
aclError stream_follow(aclrtStream handle, Stream **stream);
/* For submission; held.  NULL is the current context's default stream (107002 without a context);
 * 107017 if it is not a live stream; 107003 for a stream of another context. */
aclError stream_resolve(aclrtStream handle, Stream **stream);
/* The part of it that calls make before they look at sizes and flags, the rest comes after them:
 * 107017 for what is neither NULL nor a live stream. */
aclError stream_check(aclrtStream handle);
/* For synchronise, query and settings: a stream of another context will do. */
aclError stream_resolve_any(aclrtStream handle, Stream **stream);
/* Puts a task at the end of the stream's queue (into its graph while it is captured).  The payload
 * is copied.  On failure nothing is queued and `drop` is not called. */
aclError stream_submit(Stream *stream, const TaskClass *sort, const void *payload, size_t size);
/* Waits for all that is queued now; 507046 at the timeout, else the stream's own error. */
aclError stream_synchronize(Stream *stream, int32_t timeout_ms);
/* True if all that was queued is done: one relaxed look, no lock. */
bool stream_idle(const Stream *stream);
/* Waits inside a task until ready(argument), as park_wait, but also ends, with false, when the
 * stream is aborted or destroyed. */
bool stream_park(Stream *stream, const void *key, ParkReady ready, const void *argument,
                 int64_t deadline_ns);
/* True if the stream's running task is to end: the stream was aborted or is being destroyed. */
bool stream_is_dropping(const Stream *stream);
int32_t stream_device(const Stream *stream);
Context *stream_context(const Stream *stream);
uint32_t stream_id(const Stream *stream);
/* The stream whose task the calling thread is running, or NULL. */
Stream *stream_running(void);
/* 107030 if a capture in a mode that is not relaxed forbids a call that blocks. */
aclError capture_forbids_sync(void);

/* ---- user's callbacks (callback.c) ------------------------------------------------------------
 * Brackets around every call of a user's function from a thread of the simulator.  False: callbacks
 * are detached (the interpreter is going), don't call. */
bool callback_begin(void);
void callback_end(void);

/* ---- memory (memory.c) ---------------------------------------------------------------------- */
/* The simulator's own pointer to the bytes (in strict mode device memory is elsewhere for it); NULL if
 * touching them would fault.  Asks what memory_reachable asks; nothing else leads to such a pointer but
 * memory_check and memory_for_task, which look as well. */
void *memory_at(const void *address, size_t bytes, bool write);

#endif
