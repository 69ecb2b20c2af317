/* Two-dimensional copies: rows of bytes, with a pitch (bytes from row to row) for source and destination. */
#include "copies/copy.h"
#include "generated/exports.h"

enum { WIDTH_MAX = 5000000, HEIGHT_MAX = 5 << 20 };

/* Checks the limits of the runtime layer, after the checks of the ACL layer. */
static aclError extent_check(const char *function, const Copy *copy)
{
    if (copy->width > WIDTH_MAX || copy->height > HEIGHT_MAX) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "width = %zu, height = %zu: expected at most %d and %d", copy->width,
                         copy->height, WIDTH_MAX, HEIGHT_MAX);
    }
    return ACL_SUCCESS;
}

static aclError rows_check(const char *function, const Copy *copy, aclrtMemcpyKind kind)
{
    if (copy->dst == NULL || copy->src == NULL) {
        return error_argument(function, ACL_ERROR_INVALID_PARAM,
                              copy->dst == NULL ? "dst" : "src");
    }
    if (copy->width > copy->dst_pitch || copy->width > copy->src_pitch) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
                         "width = %zu: expected at most dpitch = %zu and spitch = %zu",
                         copy->width, copy->dst_pitch, copy->src_pitch);
    }
    if ((int)kind < (int)ACL_MEMCPY_HOST_TO_DEVICE || (int)kind > (int)ACL_MEMCPY_DEFAULT) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
                         "kind = %d: expected 1 to 4 (ACL_MEMCPY_HOST_TO_DEVICE to DEFAULT)",
                         (int)kind);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtMemcpy2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                           size_t height, aclrtMemcpyKind kind)
{
    if (width == 0 || height == 0) {
        return ACL_SUCCESS;
    }
    Copy copy = {dst, src, dpitch, spitch, width, height};
    Context *context;
    CopyEnds ends;
    TRY(rows_check(__func__, &copy, kind));
    TRY(extent_check(__func__, &copy));
    TRY(context_require(&context));
    TRY(capture_forbids_sync());
    TRY(copy_check(__func__, &copy, &ends));
    copy_now(__func__, &copy, &ends);
    return ACL_SUCCESS;
}

aclError sim_aclrtMemcpy2dAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                                size_t width, size_t height, aclrtMemcpyKind kind,
                                aclrtStream stream)
{
    if (width == 0 || height == 0) {
        return ACL_SUCCESS;
    }
    Copy copy = {dst, src, dpitch, spitch, width, height};
    STREAM_REF(queue);
    CopyEnds ends;
    TRY(rows_check(__func__, &copy, kind));
    TRY(stream_check(stream));
    TRY(extent_check(__func__, &copy));
    TRY(stream_resolve(stream, &queue));
    TRY(copy_check(__func__, &copy, &ends));
    return copy_submit(__func__, queue, &copy, &ends);
}
