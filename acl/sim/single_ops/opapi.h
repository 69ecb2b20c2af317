/* opapi.h: declarations that the files of the folder single_ops share. */
#ifndef SIM_OPAPI_H
#define SIM_OPAPI_H

#include "kernels/kernel.h"
#include "ops/op.h"
#include "tensors/memory_source.h"
#include "tensors/tensordesc.h"

/* The attributes of a call. Sets are shared by reference and never changed. */
typedef struct AttrSet {
    _Atomic int references;
    AttrList list;
    Attr *items;
} AttrSet;

/* Returns a reference to the set of a user's handle; NULL has no set. Returns 100000 if `attr` is not a handle. */
aclError attrs_take(const aclopAttr *attr, AttrSet **set);
void attrs_release(AttrSet *set);
/* Returns a new handle with the same attributes; NULL if `attr` is NULL or there is no host memory. */
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

/* Chooses the memory source of a stream's operators: the allocator that is registered for the stream, else the
   stream's default allocator. Once an operator has used the default allocator, all later operators of the stream use
   it, even if an allocator is registered then. */
aclError opsource_choose(Stream *stream, aclrtStream handle, Source *source);

/* Locks the block that holds the workspaces of the user's kernels on a stream; it only grows.  Other threads cannot
   enlarge it until opsource_workspace_leave, so that the kernel can be queued. */
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
