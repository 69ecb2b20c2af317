/* Errors: their codes, the thread's last error, and its messages. */
#include <pthread.h>
#include <string.h>

#include "check.h"

static void *fresh_thread(void *argument)
{
    void *memory;
    (void)argument;
    EXPECT(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL) == ACL_SUCCESS);
    EXPECT(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT(aclrtGetLastError(ACL_RT_THREAD_LEVEL) == ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT(aclrtGetLastError(ACL_RT_THREAD_LEVEL) == ACL_SUCCESS);
    return NULL;
}

static void before_init(void)
{
    void *memory;
    EXPECT(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_CONTEXT_NULL);
    (void)aclrtGetLastError(ACL_RT_THREAD_LEVEL);
}

static void arguments(void)
{
    void *memory;
    char bytes[64];
    EXPECT(aclInit(NULL) == ACL_ERROR_REPEAT_INITIALIZE);
    EXPECT(aclrtSetDevice(1000) == ACL_ERROR_RT_INVALID_DEVICEID);
    EXPECT(aclrtMalloc(NULL, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtMalloc(&memory, 0, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtFree(NULL) == ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtMemcpy(bytes, 8, bytes + 32, 16, ACL_MEMCPY_HOST_TO_HOST) ==
           ACL_ERROR_RT_PARAM_INVALID);
    EXPECT(aclrtSynchronizeStreamWithTimeout(NULL, 0) == ACL_ERROR_RT_PARAM_INVALID);
    EXPECT(aclGetRecentErrMsg() != NULL);
}

/* Calls with handles of destroyed objects return an error. */
static void dead_handles(void)
{
    aclrtStream stream;
    aclrtEvent event;
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtCreateEvent(&event));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtDestroyEvent(event));
    EXPECT(aclrtDestroyStream(stream) == ACL_ERROR_RT_INVALID_HANDLE);
    EXPECT(aclrtSynchronizeStream(stream) == ACL_ERROR_RT_INVALID_HANDLE);
    EXPECT(aclrtRecordEvent(event, NULL) == ACL_ERROR_RT_INVALID_HANDLE);
    EXPECT(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL) == ACL_ERROR_RT_INVALID_HANDLE);
}

static void out_of_memory(void)
{
    size_t left;
    size_t total;
    void *memory;
    CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &left, &total));
    EXPECT(aclrtMalloc(&memory, total + 1, ACL_MEM_MALLOC_HUGE_FIRST) ==
           ACL_ERROR_RT_MEMORY_ALLOCATION);
    CHECK(aclrtMalloc(&memory, 1024, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtFree(memory));
}

int main(void)
{
    pthread_t thread;
    before_init();
    open_device(0);
    arguments();
    dead_handles();
    out_of_memory();
    EXPECT(pthread_create(&thread, NULL, fresh_thread, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    EXPECT(aclFinalize() == ACL_ERROR_REPEAT_FINALIZE);
    puts("ok");
    return 0;
}
