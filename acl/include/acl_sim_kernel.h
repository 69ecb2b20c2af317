/* acl_sim_kernel.h: writing kernels that run on the simulator.

   A kernel is an exported function of a host shared object:

       ACL_SIM_KERNEL(vector_add)
       {
           struct { const float *a, *b; float *out; uint32_t count; } *p = args;
           for (uint32_t i = block; i < p->count; i += blocks) {
               p->out[i] = p->a[i] + p->b[i];
           }
       }

   `args` is what the launch passed: a device address for aclrtLaunchKernel and V2, a copy of the
   host's bytes for the other calls, where the pointers of placeholders lead to the copied data.
   Arguments appended one by one (aclrtKernelArgsAppend, aclrtLaunchKernelWithArgsArray) lie as a C
   struct would have them: each aligned to its size, at most to 8 bytes.

   The function is called once for each block, `block` counting from 0 to `blocks` - 1, in any order
   and, with ACL_SIM_THREADS greater than 1, on several threads at once: blocks must not depend on
   each other. Device pointers may be used as they are. A kernel must not call ACL. One that crashes
   or outlives its launch's timeout ends there: the stream gets an error and what the kernel holds
   (a lock, an allocation) is lost.

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

/* Tells the sizes of a kernel's parameters in bytes, for aclrtLaunchKernelWithArgsArray and
   aclrtFunctionGetParamInfo: ACL_SIM_KERNEL_PARAMS(vector_add, 8, 8, 8, 4); */
#define ACL_SIM_KERNEL_PARAMS(name, ...) \
    ACL_SIM_EXPORT const uint32_t name##_params[] = {__VA_ARGS__, 0}

#endif
