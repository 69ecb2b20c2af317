/* acl_sim_kernel.h: macros for kernels that run on the simulator.

   A kernel is an exported function of a host shared object:

       ACL_SIM_KERNEL(vector_add)
       {
           struct { const float *a, *b; float *out; uint32_t count; } *p = args;
           for (uint32_t i = block; i < p->count; i += blocks) {
               p->out[i] = p->a[i] + p->b[i];
           }
       }

   `args` is what the launch passed. For aclrtLaunchKernel and aclrtLaunchKernelV2 it is a device address. For the
   other calls it is a copy of the host's bytes, in which the pointers of placeholders lead to the copied data.
   Arguments that were appended one by one (aclrtKernelArgsAppend, aclrtLaunchKernelWithArgsArray) are laid out as in
   a C struct: each is aligned to its size, but at most to 8 bytes.

   The function is called once for each block, with `block` from 0 to `blocks` - 1, in any order. With ACL_SIM_THREADS
   greater than 1 it is called on several threads at the same time, so blocks must not depend on each other. Device
   pointers may be dereferenced. A kernel must not call ACL. If a kernel crashes or exceeds its launch's timeout, it
   is ended: the stream gets an error, and what the kernel holds (a lock, an allocation) is lost.

   Build it with: gcc -shared -fPIC -O2 -o kernels.so kernels.c */
#ifndef ACL_SIM_KERNEL_H
#define ACL_SIM_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define ACL_SIM_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define ACL_SIM_EXPORT __attribute__((visibility("default")))
#endif

#define ACL_SIM_MAYBE __attribute__((unused))

/* Begins the definition of a kernel. */
#define ACL_SIM_KERNEL(name) \
    ACL_SIM_EXPORT void name( \
        ACL_SIM_MAYBE void *args, ACL_SIM_MAYBE uint32_t block, ACL_SIM_MAYBE uint32_t blocks)

/* Defines the sizes of a kernel's parameters in bytes, for aclrtLaunchKernelWithArgsArray and
   aclrtFunctionGetParamInfo: ACL_SIM_KERNEL_PARAMS(vector_add, 8, 8, 8, 4); */
#define ACL_SIM_KERNEL_PARAMS(name, ...) \
    ACL_SIM_EXPORT const uint32_t name##_params[] = {__VA_ARGS__, 0}

#endif
