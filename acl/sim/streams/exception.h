/* Exception callbacks, as streams and kernels see them. */
#ifndef SIM_EXCEPTION_H
#define SIM_EXCEPTION_H

#include "streams/stream.h"

/* The kernel that failed; all 0 if the task is none. */
typedef struct ExceptionKernel {
    aclrtFuncHandle function;
    void *args;
    uint32_t args_size;
} ExceptionKernel;

/* What an aclrtExceptionInfo points at. */
typedef struct ExceptionInfo {
    uint32_t task_id;
    uint32_t stream_id;
    uint32_t thread; /* that submitted the task */
    int32_t device;
    aclError code;
    ExceptionKernel kernel;
} ExceptionInfo;

/* Told of each task that failed, on its stream's worker and before the callbacks; tensors/opfailure.c
 * sets it as the library is loaded. */
extern void (*exception_noticed)(int32_t device, uint32_t stream, uint32_t task);
/* A kernel's task says so before it returns its error; for the next exception_report. */
void exception_note_kernel(const ExceptionKernel *failed);
/* Calls the registered callbacks, on the stream's worker. */
void exception_report(Stream *stream, const Task *task, aclError code);

#endif
