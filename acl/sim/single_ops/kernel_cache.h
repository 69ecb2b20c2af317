/* kernel_cache.h: which kernel was chosen for a form of call: an operator with its tensors' types and
   shapes and its attributes. */
#ifndef SIM_KERNEL_CACHE_H
#define SIM_KERNEL_CACHE_H

#include "single_ops/opapi.h"

struct aclopKernelDesc {
    const char *type;
    char *id;
    uint32_t blocks;
    void *args;
    size_t args_size;
    size_t *workspaces;
    int workspace_count;
};

/* What a call is recognised by. */
typedef struct Form {
    const char *type;
    int input_count, output_count;
    const Tensor *tensors; /* types and shapes: inputs, then outputs */
    const AttrSet *attrs;
} Form;

typedef struct Choice {
    struct Choice *next;          /* in its bucket */
    struct Choice *newer, *older; /* by use */
    uint64_t hash;
    char *type;
    int input_count, output_count;
    Tensor *tensors;
    AttrSet *attrs;
    struct aclopKernelDesc launch;
} Choice;

void launch_clear(struct aclopKernelDesc *launch);
void choice_free(Choice *choice);

/* Keeps it, in place of an older one of the same form; then the longest unused kernels are removed
   until the limit is kept. False without memory: the caller keeps the kernel. */
bool choice_keep(Choice *choice);

/* A copy of type and launch, so that no lock is held while they are used; 100024 if none. */
aclError choice_find(const Form *form, Choice *out);

#endif
