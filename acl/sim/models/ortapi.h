/* ortapi.h: the part of ONNX Runtime's C API that ort.c uses.

   The API is a table of functions to which later versions only add; a function is found by its
   index. Indices and signatures are those of API version 16, which every library since 1.16
   supports. */
#ifndef SIM_ORTAPI_H
#define SIM_ORTAPI_H

#include <stddef.h>
#include <stdint.h>

enum {
    ORT_VERSION = 16,
    ORT_CPU_DEVICE = 0,
    ORT_DEFAULT_MEMORY = 0,
    ORT_LOG_ERROR = 3,
    ORT_TENSOR = 1,
};

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtValue OrtValue;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtTensorInfo OrtTensorInfo;

/* An allocator as ONNX Runtime sees it. */
typedef struct OrtAllocator {
    uint32_t version;
    void *(*alloc)(struct OrtAllocator *self, size_t size);
    void (*free)(struct OrtAllocator *self, void *address);
    const OrtMemoryInfo *(*info)(const struct OrtAllocator *self);
    void *(*reserve)(struct OrtAllocator *self, size_t size);
    void *later[4]; /* members of later versions; ONNX Runtime does not read them in this allocator */
} OrtAllocator;

typedef struct OrtApiBase {
    const void *(*get_api)(uint32_t version);
    const char *(*version_text)(void);
} OrtApiBase;

/* X(member of OrtApi, index in ONNX Runtime's table, result, parameters) */
#define ORT_FUNCTIONS(X) \
    X(error_message, 2, const char *, (const OrtStatus *)) \
    X(create_env, 3, OrtStatus *, (int, const char *, OrtEnv **)) \
    X(create_session, 8, OrtStatus *, \
        (const OrtEnv *, const void *, size_t, const OrtSessionOptions *, OrtSession **)) \
    X(run, 9, OrtStatus *, \
        (OrtSession *, const OrtRunOptions *, const char *const *, const OrtValue *const *, \
            size_t, const char *const *, size_t, OrtValue **)) \
    X(create_options, 10, OrtStatus *, (OrtSessionOptions **)) \
    X(disable_pattern, 17, OrtStatus *, (OrtSessionOptions *)) \
    X(disable_arena, 19, OrtStatus *, (OrtSessionOptions *)) \
    X(set_threads, 24, OrtStatus *, (OrtSessionOptions *, int)) \
    X(input_count, 30, OrtStatus *, (const OrtSession *, size_t *)) \
    X(output_count, 31, OrtStatus *, (const OrtSession *, size_t *)) \
    X(input_type, 33, OrtStatus *, (const OrtSession *, size_t, OrtTypeInfo **)) \
    X(output_type, 34, OrtStatus *, (const OrtSession *, size_t, OrtTypeInfo **)) \
    X(input_name, 36, OrtStatus *, (const OrtSession *, size_t, OrtAllocator *, char **)) \
    X(output_name, 37, OrtStatus *, (const OrtSession *, size_t, OrtAllocator *, char **)) \
    X(create_tensor, 49, OrtStatus *, \
        (const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, int, OrtValue **)) \
    X(tensor_data, 51, OrtStatus *, (OrtValue *, void **)) \
    X(tensor_info, 55, OrtStatus *, (const OrtTypeInfo *, const OrtTensorInfo **)) \
    X(onnx_type, 56, OrtStatus *, (const OrtTypeInfo *, int *)) \
    X(element_type, 60, OrtStatus *, (const OrtTensorInfo *, int *)) \
    X(dims_count, 61, OrtStatus *, (const OrtTensorInfo *, size_t *)) \
    X(dims, 62, OrtStatus *, (const OrtTensorInfo *, int64_t *, size_t)) \
    X(value_info, 65, OrtStatus *, (const OrtValue *, OrtTensorInfo **)) \
    X(create_memory_info, 68, OrtStatus *, (const char *, int, int, int, OrtMemoryInfo **)) \
    X(allocator_free, 76, OrtStatus *, (OrtAllocator *, void *)) \
    X(default_allocator, 78, OrtStatus *, (OrtAllocator **)) \
    X(release_status, 93, void, (OrtStatus *)) \
    X(release_session, 95, void, (OrtSession *)) \
    X(release_value, 96, void, (OrtValue *)) \
    X(release_type, 98, void, (OrtTypeInfo *)) \
    X(release_info, 99, void, (OrtTensorInfo *)) \
    X(release_options, 100, void, (OrtSessionOptions *)) \
    X(add_entry, 130, OrtStatus *, (OrtSessionOptions *, const char *, const char *)) \
    X(register_allocator, 176, OrtStatus *, (OrtEnv *, OrtAllocator *))

typedef struct OrtApi {
#define ORT_MEMBER(member, place, result, parameters) result(*member) parameters;
    ORT_FUNCTIONS(ORT_MEMBER)
#undef ORT_MEMBER
} OrtApi;

#endif
