/* opapi.h: what the files behind ACL's single-operator calls share. */
#ifndef SIM_OPAPI_H
#define SIM_OPAPI_H

#include "kernels/kernel.h"
#include "ops/op.h"
#include "tensors/memory_source.h"
#include "tensors/tensordesc.h"

/* Attributes as they were when a call was made: shared, never changed. */
typedef struct AttrSet {
    _Atomic int references;
    AttrList list;
    Attr *items;
} AttrSet;

/* The set behind a user's handle (NULL = none), with a reference; 100000 for what is no handle. */
aclError attrs_take(const aclopAttr *attr, AttrSet **set);
void attrs_release(AttrSet *set);
/* A handle of its own with the same attributes; NULL for NULL or without memory. */
aclopAttr *opattr_copy(const aclopAttr *attr);
bool attrs_equal(const AttrSet *a, const AttrSet *b);

/* The inputs and outputs of one call. */
typedef struct OpEnds {
    int input_count, output_count;
    aclTensorDesc *const *input_descs;
    aclDataBuffer *const *inputs;
    aclTensorDesc *const *output_descs;
    aclDataBuffer *const *outputs;
    bool describe;      /* write the outputs' shapes into their descriptions */
} OpEnds;

/* Runs a library operator or the user's registered kernel on the stream. */
aclError op_execute(
    const char *type, const OpEnds *ends, const aclopAttr *attr, aclrtStream stream);

/* --- op_memory_source.c --- */

/* Where an operator's memory comes from: the stream's allocator, or, once it had to make one, its
   default allocator for the rest of the stream's life. */
aclError opsource_choose(Stream *stream, aclrtStream handle, Source *source);

/* The one block that serves the workspaces of the user's kernels on a stream; it only grows.  It is
   the calling thread's until opsource_workspace_leave, so that no other thread lets it grow before
   the kernel is queued. */
typedef struct StreamMemory StreamMemory;
aclError opsource_workspace_take(
    Stream *stream, size_t bytes, StreamMemory **memory, void **address);
void opsource_workspace_leave(StreamMemory *memory);

/* --- opkernel.c --- */

/* True if a compile function is registered for the type. */
bool opkernel_registered(const char *type);

/* Launches the kernel that aclopUpdateParams chose for these descriptions; 100024 if none was. */
aclError opkernel_execute(
    const char *type, const OpEnds *ends, const AttrSet *attrs, Stream *stream);

#endif
