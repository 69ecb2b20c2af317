/* A program that uses CANN's official names: it compiles as C and as C++, links against a
 * libascendcl.so, and prints its result to stdout. */
#include "acl/acl.h"

#include <stdio.h>
#include <string.h>

#define TRY(call)                                              \
    do {                                                       \
        aclError status = (call);                              \
        if (status != ACL_SUCCESS) {                           \
            printf("%s: %d\n", #call, status);                 \
            return 1;                                          \
        }                                                      \
    } while (0)

static void on_host(void *argument)
{
    *(int *)argument += 1;
}

int main(void)
{
    char there[64] = "bytes that travel", back[64] = "";
    void *device = NULL;
    aclrtStream stream = NULL;
    int calls = 0;
    TRY(aclInit(NULL));
    TRY(aclrtSetDevice(0));
    TRY(aclrtCreateStream(&stream));
    TRY(aclrtMalloc(&device, sizeof there, ACL_MEM_MALLOC_HUGE_FIRST));
    TRY(aclrtMemcpy(device, sizeof there, there, sizeof there, ACL_MEMCPY_HOST_TO_DEVICE));
    TRY(aclrtLaunchHostFunc(stream, on_host, &calls));
    TRY(aclrtSynchronizeStream(stream));
    TRY(aclrtMemcpy(back, sizeof back, device, sizeof back, ACL_MEMCPY_DEVICE_TO_HOST));
    TRY(aclrtFree(device));
    TRY(aclrtDestroyStream(stream));
    TRY(aclrtResetDevice(0));
    TRY(aclFinalize());
    printf("%s, %d call\n", back, calls);
    return strcmp(there, back) != 0;
}
