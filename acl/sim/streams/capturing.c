/* capturing.c: the checks that streams make during captures; see capturing.h. These functions call
 * into the folder `graphs` only while a capture is open.
 *
 * Thread rule: any thread. */
#include "streams/capturing.h"

Captures captures;
_Atomic uint32_t captures_active;

bool stream_is_capturing(const Stream *stream)
{
    return atomic_load_explicit(&stream->graph, memory_order_relaxed) != NULL
           && captures.has_stream(stream);
}

aclError capture_check_stream(const Stream *stream)
{
    if (stream_is_capturing(stream)) {
        return fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %u is being captured", stream->id);
    }
    return ACL_SUCCESS;
}

aclError capture_forbids_sync(void)
{
    if (SIM_LIKELY(atomic_load_explicit(&captures_active, memory_order_relaxed) == 0)) {
        return ACL_SUCCESS;
    }
    return captures.forbids_sync();
}
