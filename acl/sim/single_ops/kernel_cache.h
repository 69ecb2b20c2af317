/* kernel_cache.h: the kernel that was chosen for each form of a call: an operator, the types and shapes of its
   tensors, and its attributes. */
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

/* The key of the cache. */
typedef struct Form {
    const char *type;
    int input_count, output_count;
    const Tensor *tensors; /* types and shapes: inputs, then outputs */
    const AttrSet *attrs;
} Form;

typedef struct Choice {
    struct Choice *next;          /* next in the same bucket of the table */
    struct Choice *newer, *older; /* neighbours in the order of use */
    uint64_t hash;
    char *type;
    int input_count, output_count;
    Tensor *tensors;
    AttrSet *attrs;
    struct aclopKernelDesc launch;
} Choice;

void launch_clear(struct aclopKernelDesc *launch);
void choice_free(Choice *choice);

/* Stores the kernel, and removes an older one of the same form and the least recently used ones beyond the limit.
   Returns false if there is no host memory; the kernel then still belongs to the caller. */
bool choice_keep(Choice *choice);

/* Copies type and launch of the kernel for a form, so that no lock is held while they are used. Returns 100024
   if there is none. */
aclError choice_find(const Form *form, Choice *out);

#endif
