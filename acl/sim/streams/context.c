/* Contexts: one is current in each thread, and a NULL stream means the default stream of that
 * context.
 *
 * Thread rule: any thread; each thread has its own current context. A context that another thread
 * destroyed counts as no context. */
#include "streams/device.h"
#include "generated/exports.h"
#include "base/refusal.h"
#include "streams/state_callbacks.h"
#include "streams/stream.h"

static _Thread_local Context *current;
static _Atomic uint64_t next_number = 1;

void context_make_current(Context *context)
{
    current = context;
}

Context *context_current(void)
{
    Context *context = current;
    if (SIM_LIKELY(context != NULL && handle_is(context, HANDLE_CONTEXT))) {
        return context;
    }
    current = NULL;
    return NULL;
}

/* Gives the thread's current context; if it has none, the context of the default device. If there
 * is neither, the failure becomes the thread's last error only if `remembered`. */
static aclError context_find(Context **out, bool remembered)
{
    static const char text[] = "no context is current in this thread, "
                               "call aclrtSetDevice or aclrtSetCurrentContext first";
    Context *context = context_current();
    int32_t device = device_get_default();
    if (context == NULL && device >= 0) {
        TRY(device_retain(device, &context));
        current = context;
    }
    if (context == NULL && !remembered) {
        return fail_quiet(ACL_ERROR_RT_CONTEXT_NULL, "%s", text);
    }
    if (context == NULL) {
        return fail(ACL_ERROR_RT_CONTEXT_NULL, "%s", text);
    }
    *out = context;
    return device_alive(__func__, context->device);
}

aclError context_require(Context **context)
{
    return context_find(context, true);
}

aclError context_ask(Context **context)
{
    return context_find(context, false);
}

aclError context_new(int32_t device, bool is_default, Context **out)
{
    if (context_count(device) == 0) {
        device_state_tell(device, ACL_RT_DEVICE_STATE_SET_PRE);
    }
    Context *context = handle_prepare(HANDLE_CONTEXT, sizeof *context);
    if (context == NULL) {
        return handles_possible() ? fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many contexts")
                                  : refusal_tell(__func__, "handles");
    }
    context->device = device;
    context->is_default = is_default;
    context->number = atomic_fetch_add(&next_number, 1);
    Stream *stream = NULL;
    aclError status = stream_new(context, 0, 0, &stream);
    atomic_store(&context->default_stream, stream);
    if (status != ACL_SUCCESS) {
        handle_retire(context);
        return status;
    }
    *out = context;
    handle_show(context);
    return ACL_SUCCESS;
}

bool context_end(Context *context)
{
    if (!handle_kill(context)) {
        return false;
    }
    for (Stream *s = handle_next_held(HANDLE_STREAM, NULL); s != NULL;
         s = handle_next_held(HANDLE_STREAM, s)) {
        if (stream_context(s) == context) {
            stream_end(s, STREAM_END_NOW);
        }
    }
    handle_retire(context);
    return true;
}

size_t context_count(int32_t device)
{
    size_t count = 0;
    for (Context *c = handle_next(HANDLE_CONTEXT, NULL); c != NULL;
         c = handle_next(HANDLE_CONTEXT, c)) {
        count += c->device == device;
    }
    return count;
}

aclError sim_aclrtCreateContext(aclrtContext *context, int32_t deviceId)
{
    Context *made;
    REQUIRE(context != NULL);
    TRY(device_check(deviceId));
    TRY(context_new(deviceId, false, &made));
    current = made;
    *context = made;
    return ACL_SUCCESS;
}

/* Ends the context; the caller holds a reference on it. */
static aclError context_destroy(Context *context)
{
    if (context->is_default) {
        return fail(ACL_ERROR_RT_CONTEXT_NULL, "cannot destroy a device's default context: call aclrtResetDevice");
    }
    if (stream_running() == NULL) { /* else the caller is a host function, which must not wait for itself */
        streams_drain(context);
    }
    if (!context_end(context)) {
        return fail(ACL_ERROR_RT_CONTEXT_NULL, "%p was destroyed by another thread",
                    (void *)context);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtDestroyContext(aclrtContext context)
{
    REQUIRE(context != NULL);
    if (!handle_follow(context, HANDLE_CONTEXT)) {
        return fail(ACL_ERROR_RT_CONTEXT_NULL, "%p is not a live context", context);
    }
    aclError status = context_destroy(context);
    handle_drop(context);
    return status;
}

aclError sim_aclrtSetCurrentContext(aclrtContext context)
{
    REQUIRE(context != NULL);
    if (!handle_is(context, HANDLE_CONTEXT)) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "%p is not a live context", context);
    }
    current = context;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetCurrentContext(aclrtContext *context)
{
    Context *found;
    REQUIRE(context != NULL);
    TRY(context_ask(&found));
    *context = found;
    return ACL_SUCCESS;
}

aclError sim_aclrtCtxGetCurrentDefaultStream(aclrtStream *stream)
{
    Context *context;
    REQUIRE(stream != NULL);
    TRY(context_require(&context));
    *stream = context->default_stream;
    return ACL_SUCCESS;
}

/* Returns the thread's messages. If there is neither a message nor a current context, the call itself
 * makes a message about the missing context, as the runtime does. */
const char *sim_aclGetRecentErrMsg(void)
{
    if (error_peek() == NULL && context_current() == NULL) {
        error_set_quiet(__func__, ACL_ERROR_RT_CONTEXT_NULL, "no context is current in this thread");
    }
    return error_read();
}
