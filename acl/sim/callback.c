/* User's functions called by the simulator's threads.
 *
 * When an interpreter goes down, its callbacks must not be called any more: callbacks are detached,
 * and those running are waited for.
 *
 * Thread rule: any thread; no lock is held while a user's function runs. */
#include "stream.h"
#include "exports.h"

static _Atomic bool detached;
static _Atomic uint32_t inside;

bool callback_begin(void)
{
    atomic_fetch_add(&inside, 1);
    if (atomic_load(&detached)) {
        callback_end();
        return false;
    }
    Stream *stream = stream_running();
    if (stream != NULL) {
        atomic_store(&stream->in_callback, true);
        park_wake(&stream->completed);
    }
    return true;
}

void callback_end(void)
{
    Stream *stream = stream_running();
    if (stream != NULL) {
        atomic_store(&stream->in_callback, false);
    }
    if (atomic_fetch_sub(&inside, 1) == 1) {
        park_wake(&inside);
    }
}

typedef struct HostFunction {
    aclrtHostFunc function;
    void *argument;
} HostFunction;

static aclError host_function_run(Stream *stream, const void *payload)
{
    const HostFunction *call = payload;
    (void)stream;
    if (callback_begin()) {
        call->function(call->argument);
        callback_end();
    }
    return ACL_SUCCESS;
}

static const TaskClass host_function_task = {"host function", host_function_run, NULL, 0};

aclError sim_aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void *args)
{
    Stream *resolved;
    HostFunction call = {fn, args};
    TRY(stream_resolve(stream, &resolved));
    REQUIRE_RT(fn != NULL);
    return stream_submit(resolved, &host_function_task, &call, sizeof call);
}
