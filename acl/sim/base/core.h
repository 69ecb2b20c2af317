/* The interface that all parts of the simulator use: errors, handles, call hooks, the current
 * context, streams.
 *
 * Each part has a .c file of its own and defines its entry points as `sim_NAME`. The generator
 * writes the exported function `NAME` (exports.c), called the gate: it counts the call, asks
 * whether a fault is due, and calls `sim_NAME`.
 *
 * Thread rule: everything here may be called from any thread. No lock of the simulator is held
 * while a user's callback runs, or while waiting for a stream. */
#ifndef SIM_CORE_H
#define SIM_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acl/acl.h"

/* Marks a symbol that other libraries can use: the control API, and what libacl_op_compiler.so calls. */
#define SIM_SHARED __attribute__((visibility("default")))
#define SIM_LIKELY(x) __builtin_expect(!!(x), 1)

/* FILE_LOCK defines a mutex for the data of one source file. A fork takes all these mutexes before it
 * makes the child, so that the data is consistent in the child, and no mutex stays locked (fork.c). */
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
 * Codes of the runtime (107xxx, 207xxx, 507xxx) become the thread's last error.  All other codes from 100000 to
 * 500999 are codes of the ACL layer: a call returns them, but they do not change the last error. */
aclError error_set(const char *function, aclError code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* As error_set, but the thread's last error does not change. Used where the runtime does so, for
 * example for the 107000 of a negative timeout. */
aclError error_set_quiet(const char *function, aclError code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
aclError error_argument(const char *function, aclError code, const char *condition)
    __attribute__((cold));

/* Called by a gate whose call failed, or while calls are traced. If the newest message has this status and no gate has
 * signed it yet, it becomes a message of `function` and gets the arguments (see arguments_words).
 * The status ERROR_ANY fits every message: for calls that return a pointer, NULL after a failure. */
enum { ERROR_ANY = -0x7fffffff };
void error_sign(const char *function, aclError status, const char *names, ...)
    __attribute__((cold));
/* Copies the arguments that error_sign kept for the trace into `text` ("" if it kept none), and deletes them. */
void arguments_take(char *text, size_t room);

/* Copies the thread's newest message to `text`, without the "[PID: N] EXXXX: " at its beginning ("" if
 * there is no message), and deletes all messages of the thread. For threads of the simulator, whose
 * messages no program reads. */
void error_take(char *text, size_t size);

/* Returns the thread's unread messages, which remain unread; NULL if there are none. */
const char *error_peek(void);
/* Returns the thread's unread messages, which then count as read; valid until the thread reads
 * again. */
const char *error_read(void);

/* Sets the thread's message and last error. The expression has the value `code`, which is
 * evaluated twice, so that the compiler sees that the value is not success. */
#define fail(code, ...) (error_set(__func__, (code), __VA_ARGS__), (code))
#define fail_quiet(code, ...) (error_set_quiet(__func__, (code), __VA_ARGS__), (code))

/* The text of a condition for error_argument. If the condition is not a pointer, " != 0" is added to the text,
 * even after a comparison; condition_words (error_text.c) removes it. CLASS_POINTER is the value of
 * __builtin_classify_type for pointers. */
enum { CLASS_POINTER = 5 };
#define CONDITION(condition, text)                                                      \
    (__builtin_classify_type(condition) == CLASS_POINTER ? (text) : text " != 0")

/* The ACL layer's argument check: returns 100000 if the condition is false or the pointer is NULL. */
#define REQUIRE(condition)                                                              \
    do {                                                                                \
        if (!SIM_LIKELY(condition)) {                                                   \
            error_argument(__func__, ACL_ERROR_INVALID_PARAM,                           \
                           CONDITION(condition, #condition));                           \
            return ACL_ERROR_INVALID_PARAM;                                             \
        }                                                                               \
    } while (0)

/* The runtime layer's argument check: returns 107000 if the condition is false or the pointer is NULL. */
#define REQUIRE_RT(condition)                                                           \
    do {                                                                                \
        if (!SIM_LIKELY(condition)) {                                                   \
            error_argument(__func__, ACL_ERROR_RT_PARAM_INVALID,                        \
                           CONDITION(condition, #condition));                           \
            return ACL_ERROR_RT_PARAM_INVALID;                                          \
        }                                                                               \
    } while (0)

/* Calls `call`. If its status is not success, the enclosing function returns this status. */
#define TRY(call)                                                                       \
    do {                                                                                \
        aclError try_status = (call);                                                   \
        if (!SIM_LIKELY(try_status == ACL_SUCCESS)) {                                   \
            return try_status;                                                          \
        }                                                                               \
    } while (0)

/* ---- handles (handle.c) ---------------------------------------------------------------------
 * Objects that users know by address.  They lie in one reserved range of addresses. Each kind of
 * object has a part of the range, with slots of one size, so that any bit pattern can be checked
 * and the memory of a dead object stays readable.  The slot of a dead object is used again only
 * after many other objects of its kind died; with ACL_SIM_REUSE_HANDLES=1 at once, as drivers do. */
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

/* Returns zeroed memory for an object of that kind, or NULL. All objects of a kind have one size;
 * they are aligned to 64 bytes. */
void *handle_new(HandleKind kind, size_t size);
/* handle_new in two steps, for objects that handle_next must not find while they are incomplete. handle_prepare
 * returns the memory, or NULL. handle_show makes the object live. Without handle_show, handle_retire frees it. */
void *handle_prepare(HandleKind kind, size_t size);
void handle_show(void *handle);
/* As handle_show, but the caller also holds the object's slot, until handle_drop. */
void handle_show_held(void *handle);
/* True if `handle` is a live object of that kind; safe for any bit pattern. */
bool handle_is(const void *handle, HandleKind kind);
/* Makes the object dead for handle_is; its slot is not used again before handle_retire.
 * False if the object was dead already: if two threads destroy one object, one of them gets false. */
bool handle_kill(void *handle);
/* Makes the object dead, and allows a new object of its kind to use the slot once no hold on it is left. As described
 * above, that happens after many other objects died; with ACL_SIM_REUSE_HANDLES=1, at once. */
void handle_retire(void *handle);
/* As handle_is, and holds the slot: it is not used again until handle_drop, even if another
 * thread destroys the object. Without a hold, the data read after handle_is may belong to another
 * object. */
bool handle_follow(const void *handle, HandleKind kind);
/* Holds the slot of an object that may be dead already; false if the slot may be used again. Only
 * for addresses that were a handle once. */
bool handle_hold(const void *handle);
/* Ends a hold. True if it was the last hold of an object that was killed and not retired. For
 * kinds of objects that all their users hold (events, notifies), the caller then frees what the
 * object owns and retires it. */
bool handle_drop(const void *handle);
/* True if the host has provided address space for handles. */
bool handles_possible(void);
/* Returns the live object of that kind after `after` (NULL: the first), or NULL at the end.  Another thread may
 * destroy the object at any time; the memory of its slot can still be read. */
void *handle_next(HandleKind kind, const void *after);
/* As handle_next, but the returned object is held, and the hold on `after` ends. A caller that
 * stops before the end of the list calls handle_drop for the last object. */
void *handle_next_held(HandleKind kind, const void *after);
size_t handle_live(HandleKind kind);
const char *handle_kind_name(HandleKind kind);

/* ---- configuration (config.c) --------------------------------------------------------------- */
enum { DEVICE_MAX = 64 };

typedef enum DeviceCode { DEVICE_CODE_REFUSE, DEVICE_CODE_SKIP } DeviceCode;

typedef struct Config {
    uint32_t devices;            /* number of devices that this process can use */
    uint32_t cards;              /* number of devices of the machine */
    size_t capacity[DEVICE_MAX]; /* bytes of memory of each device */
    int32_t card[DEVICE_MAX];    /* number on the machine of each device that this process can use */
    size_t pinned;               /* the most bytes of pinned host memory; SIZE_MAX: no limit */
    char soc[64];                /* the name that aclrtGetSocName returns */
    char version[32];            /* the version of CANN, such as "8.3.RC1" */
    bool strict;                 /* the host must not touch device memory outside copies */
    bool allocators;             /* aclrtAllocatorRegister works, if the SoC has it */
    bool strict_allocators;      /* refuse registrations that the runtime accepts but that cannot work */
    bool reuse_handles;          /* the next object of a kind gets the handle of the last dead one of this kind */
    DeviceCode device_code;      /* what happens when a program launches code that the host cannot run */
    char problem[256];           /* the error in an ACL_SIM_* variable; "" if there is none */
} Config;

extern Config config;
/* Returns the text of an ACL_SIM_* setting: the value set by the control API, else the
 * environment's; or NULL. */
const char *setting(const char *name);
/* Returns how many threads a kernel may use: ACL_SIM_THREADS, at most 64; 1 if it is not set. */
unsigned kernel_threads(void);
/* Changes a setting for this process and reads the configuration anew. If the value is invalid,
 * returns 100000 and restores the old value. Must be called only while no device is in use. */
aclError setting_change(const char *name, const char *value);
/* Reads a size such as "32G", "512MiB" or "4096", in bytes; false if the text is not a size, or if the size does not
 * fit into a size_t. */
bool size_parse(const char *text, size_t *bytes);

/* ---- the gate (call_hooks.c) ----------------------------------------------------------------------
 * The code that every exported function runs before and after its own work.  If no bit of gate_watch is
 * set, this code costs one relaxed add and a few relaxed loads. */
enum { GATE_FAULTS = 1, GATE_TRACE = 2, GATE_LATENCY = 4, GATE_FORKED = 8,
       GATE_CHECK = 16, GATE_COVERAGE = 32 };

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

/* True if the gate has to call error_sign: the call failed, or calls are traced. */
static inline bool gate_tells(aclError status)
{
    return !SIM_LIKELY(status == ACL_SUCCESS
                       && (atomic_load_explicit(&gate_watch, memory_order_relaxed) & GATE_TRACE) == 0);
}

/* gate_enter, gate_leave, gate_tells and error_sign for libacl_op_compiler.so, which cannot access the counters. */
SIM_SHARED aclError acl_sim_gate_enter(unsigned function);
SIM_SHARED aclError acl_sim_gate_leave(unsigned function, aclError status);
SIM_SHARED bool acl_sim_gate_tells(aclError status);
SIM_SHARED void acl_sim_error_sign(const char *function, aclError status, const char *names, ...)
    __attribute__((cold));
/* The body of functions that are exported only so that programs can be linked with them: always returns an error. */
SIM_SHARED aclError acl_sim_unsupported(const char *function);

/* ---- time and waiting (futex_wait.c) --------------------------------------------------------- */
int64_t now_ns(void); /* returns the time of CLOCK_MONOTONIC in ns */
enum { FOREVER = -1 };

typedef bool (*ParkReady)(const void *argument);
/* Waits until ready(argument) is true; returns false if `deadline_ns` (a time of now_ns, or
 * FOREVER) passes before. The thread that makes the condition true does so by an atomic store and
 * then calls park_wake with the same key. */
bool park_wait(const void *key, ParkReady ready, const void *argument, int64_t deadline_ns);
void park_wake(const void *key);

/* For programs built with ThreadSanitizer that use a simulator built without it. These functions
 * inform ThreadSanitizer: what a thread did before order_release(key) happens before what another
 * thread does after park_wait(key) or order_acquire(key). order_release is called before the store
 * that makes the condition of the wait true. */
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
/* Converts a timeout of the API in ms (-1: no limit) to a deadline: a time of now_ns, or FOREVER. */
int64_t deadline_after_ms(int32_t timeout_ms);

/* ---- devices and contexts (device.c, context.c) ---------------------------------------------- */
typedef struct Stream Stream;

typedef struct Context {
    int32_t device;
    bool is_default;          /* made by aclrtSetDevice, destroyed by the last reset */
    Stream *_Atomic default_stream; /* the stream that NULL means while this context is current; NULL: destroyed */
    uint64_t number;          /* unique: no other context of the process ever has this number */
    _Atomic int64_t sys_params[8]; /* the parameters of aclrtCtxSetSysParamOpt (sysparam.c) */
} Context;

/* Gives the thread's current context; 107002 if the thread has none. */
aclError context_require(Context **context);
/* As context_require, but the status 107002 does not become the thread's last error. For calls that,
 * in the runtime, first query the current device. */
aclError context_ask(Context **context);
/* Returns the thread's current context, NULL if there is none; sets no error. */
Context *context_current(void);
/* Returns 107001 unless `device` is a configured device. */
aclError device_check(int32_t device);
/* Returns the device's use count: calls of aclrtSetDevice in all threads, minus resets. */
uint32_t device_references(int32_t device);
/* Makes the device lost: later calls for it return `code`. Only `code` 0 makes it usable again; a
 * reset of the device does not. */
void device_set_lost(int32_t device, aclError code);
/* Returns how many calls were refused because the device was lost. */
uint64_t device_refusals(int32_t device);

/* Returns the error of a lost device, else success. For functions that have a device as argument
 * and do not use the current one; a number below 0 means the host. */
aclError device_alive(const char *function, int32_t device);

/* ---- streams and tasks (stream.c, worker.c) -------------------------------------------------- */
struct Touch;

/* The functions of one kind of task; one static object for each kind. `run` is called on the
 * stream's thread, without any lock; a status other than ACL_SUCCESS is an error of the stream.
 * `run` must not change the payload, because a captured task runs once for each execution of its
 * graph. `drop` (may be NULL) frees what the payload owns; it is called exactly once, at the end,
 * whether the task ran or not. Initialise the fields by name. */
typedef struct TaskClass {
    const char *name;
    aclError (*run)(Stream *stream, const void *payload);
    void (*drop)(void *payload);
    aclmdlRITaskType type; /* the type that aclmdlRITaskGetType returns; 0 = DEFAULT */
    /* For a captured task; both may be NULL. `describe` writes the task's parameters (the caller
     * has set `params->type`, and all other bytes to 0); `adopt` changes the payload to new
     * parameters. */
    void (*describe)(const void *payload, aclmdlRITaskParams *params);
    aclError (*adopt)(void *payload, const aclmdlRITaskParams *params);
    /* For the order checker (race.h): states which bytes the task touches, and which events it
     * records or waits for; NULL: the task touches nothing. Called when the task, or a graph that
     * contains it, is queued. */
    void (*touch)(const void *payload, struct Touch *touch);
    /* For a captured task, may be NULL: true if `run` would have to wait now for another stream. */
    bool (*waits)(const void *payload);
} TaskClass;

/* Ends a hold on a stream. STREAM_REF declares a pointer to a stream; the end of its scope ends the
 * hold on this stream. */
void stream_unref(Stream *const *stream);
#define STREAM_REF(name) Stream *name __attribute__((cleanup(stream_unref))) = NULL
/* Gives the stream of a handle, with a hold; the stream may belong to any context. 107017 if the
 * handle is not a live stream. */
aclError stream_follow(aclrtStream handle, Stream **stream);
/* Gives the stream to which a call submits a task, with a hold. The handle NULL means the default
 * stream of the current context. 107017 if the handle is not a live stream, 107002 if the thread has
 * no current context, 107003 if the stream belongs to another context. */
aclError stream_resolve(aclrtStream handle, Stream **stream);
/* Returns 107017 if the handle is neither NULL nor a live stream. Calls make this check before they
 * check sizes and flags, and call stream_resolve after. */
aclError stream_check(aclrtStream handle);
/* As stream_resolve, but also accepts a stream of another context. For calls that synchronise or
 * query a stream, or change its settings. */
aclError stream_resolve_any(aclrtStream handle, Stream **stream);
/* Adds a task at the end of the stream's queue, or of its graph during a capture. The payload is
 * copied. On failure nothing is queued and `drop` is not called. */
aclError stream_submit(Stream *stream, const TaskClass *sort, const void *payload, size_t size);
/* Waits until all tasks that are queued now have run or were dropped. Returns 507046 if the timeout passes before,
 * 107027 if the stream is being captured, the status of the first task that failed if one has failed, else success.
 * Does not wait, and returns success, for a stream that a graph or another stream runs, and for a stream that was
 * destroyed. */
aclError stream_synchronize(Stream *stream, int32_t timeout_ms);
/* True if every queued task has run or was dropped. Reads two atomic counters and takes no lock. */
bool stream_idle(const Stream *stream);
/* Waits in a task until ready(argument) is true, as park_wait does. Also returns false when the
 * stream is aborted or destroyed. */
bool stream_park(Stream *stream, const void *key, ParkReady ready, const void *argument,
                 int64_t deadline_ns);
/* True if the stream's running task should end, because the stream was aborted or is being
 * destroyed. */
bool stream_is_dropping(const Stream *stream);
int32_t stream_device(const Stream *stream);
Context *stream_context(const Stream *stream);
uint32_t stream_id(const Stream *stream);
/* Returns the stream whose task the calling thread is running, or NULL. */
Stream *stream_running(void);
/* Returns 107030 if a capture forbids the calling thread to make a call that blocks. A capture in
 * relaxed mode does not forbid it. */
aclError capture_forbids_sync(void);

/* ---- user's callbacks (callback.c) ------------------------------------------------------------
 * Called before and after every call of a user's function from a thread of the simulator.  If callback_begin
 * returns false, callbacks are detached (the interpreter is ending): the function must not be called. */
bool callback_begin(void);
void callback_end(void);

/* ---- memory (memory.c) ---------------------------------------------------------------------- */
/* Returns the address at which the simulator itself reaches the bytes (in strict mode it differs
 * from the user's); NULL if memory_reachable says that an access to them would fault. Only this
 * function, memory_check and memory_for_task give such addresses; all three check. */
void *memory_at(const void *address, size_t bytes, bool write);

#endif
