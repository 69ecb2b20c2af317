/* fuzz.h: functions for all harnesses: they set up a device once, and allocate device memory with a border.

   The border is poisoned for AddressSanitizer, so that it reports an operator that reads or writes past
   its tensor.  In device memory, nothing else would notice that. */
#ifndef FUZZ_H
#define FUZZ_H

#include "acl/acl.h"
#include "acl/acl_op_compiler.h"

#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BORDER = 64, RUN_MS = 2000 };

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static inline void must(aclError status)
{
    if (status != ACL_SUCCESS) {
        fprintf(stderr, "%d: %s\n", status, aclGetRecentErrMsg());
        abort();
    }
}

/* Sets up a device with little memory, so that work with tensors that fit is short. */
static inline void device_start(void)
{
    must(aclInit(NULL));
    must(aclrtSetDevice(0));
}

/* Sets up the device and returns a stream on it. */
static inline aclrtStream stream_start(void)
{
    aclrtStream stream;
    device_start();
    must(aclrtCreateStream(&stream));
    return stream;
}

/* Allocates device memory with a poisoned border behind it; NULL if it does not fit. */
static inline uint8_t *device_memory(size_t size)
{
    void *made = NULL;
    if (size > SIZE_MAX - BORDER
        || aclrtMalloc(&made, size + BORDER, ACL_MEM_MALLOC_NORMAL_ONLY) != ACL_SUCCESS) {
        return NULL;
    }
    ASAN_POISON_MEMORY_REGION((uint8_t *)made + size, BORDER);
    return made;
}

static inline void device_free(uint8_t *memory, size_t size)
{
    if (memory != NULL) {
        ASAN_UNPOISON_MEMORY_REGION(memory, size + BORDER);
        must(aclrtFree(memory));
    }
}

/* Waits for the queued work; work that takes longer than RUN_MS is aborted, and must then end. */
static inline void stream_finish(aclrtStream stream)
{
    if (aclrtSynchronizeStreamWithTimeout(stream, RUN_MS) == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT) {
        must(aclrtStreamAbort(stream));
        (void)aclrtSynchronizeStream(stream);
    }
}

/* Fills memory with contents that `seed` chooses: zeros, ones, small numbers, or any bytes. */
static inline void contents_fill(uint8_t *to, size_t size, uint32_t seed)
{
    uint32_t kind = seed & 3U;
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525U + 1013904223U;
        to[i] = kind == 0 ? 0 : kind == 1 ? (i % 8 == 0) : kind == 2 ? (i % 8 == 0 ? seed >> 29 : 0)
                                                                      : (uint8_t)(seed >> 24);
    }
}

static inline uint32_t hash_of(const uint8_t *bytes, size_t length)
{
    uint32_t hash = 2166136261U;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ bytes[i]) * 16777619U;
    }
    return hash ^ hash >> 15;
}

#endif
