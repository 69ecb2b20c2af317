/* Exception callbacks: the interface for streams and kernels. */
#ifndef SIM_EXCEPTION_H
#define SIM_EXCEPTION_H

#include "streams/stream.h"

/* The kernel that failed; all 0 if the failed task is not a kernel. */
typedef struct ExceptionKernel {
    aclrtFuncHandle function;
    void *args;
    uint32_t args_size;
} ExceptionKernel;

/* The content of an aclrtExceptionInfo. */
typedef struct ExceptionInfo {
    uint32_t task_id;
    uint32_t stream_id;
    uint32_t thread; /* kernel's id (gettid) of the thread that submitted the task */
    int32_t device;
    aclError code;
    ExceptionKernel kernel;
} ExceptionInfo;

/* Called for each task that failed, on its stream's worker and before the callbacks;
 * tensors/opfailure.c sets this pointer when the library is loaded. */
extern void (*exception_noticed)(int32_t device, uint32_t stream, uint32_t task);
/* Called by a kernel's task before it returns its error: keeps the kernel for the next exception_report in the calling
 * thread. */
void exception_note_kernel(const ExceptionKernel *failed);
/* Calls the registered callbacks, on the stream's worker. */
void exception_report(Stream *stream, const Task *task, aclError code);

#endif
