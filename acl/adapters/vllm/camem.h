/* The two exported C functions by which torch_npu's NPUPluggableAllocator allocates and frees for vLLM-Ascend.

   Their signatures are those of vLLM-Ascend.  `vllm_ascend_C.pyx` sets, once, the functions that they call.  Any
   thread may call them, with or without the GIL. */
#ifndef VLLM_CAMEM_H
#define VLLM_CAMEM_H

#include <sys/types.h>

#define CAMEM_EXPORT __attribute__((visibility("default")))

typedef void *(*CamemMalloc)(ssize_t size, int device, void *stream);
typedef void (*CamemFree)(void *address, ssize_t size, int device, void *stream);

void camem_set(CamemMalloc allocate, CamemFree release);

CAMEM_EXPORT void *my_malloc(ssize_t size, int device, void *stream);
CAMEM_EXPORT void my_free(void *address, ssize_t size, int device, void *stream);

#endif
