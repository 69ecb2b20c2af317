/* Copies bytes to a device and back.  Exits with 0 if they are equal; frees everything, even after a failure. */
#include <stdio.h>
#include <string.h>

#include "acl/acl.h"

enum { BYTES = 4096 };

/* Returns 1 if the call succeeded; else prints what failed and returns 0. */
static int worked(aclError status, const char *what)
{
    if (status != ACL_SUCCESS) {
        const char *message = aclGetRecentErrMsg();
        fprintf(stderr, "%s: %d: %s\n", what, status, message == NULL ? "" : message);
    }
    return status == ACL_SUCCESS;
}

static int there_and_back(void *device, aclrtStream stream)
{
    static char sent[BYTES] = "hello", got[BYTES];
    return worked(aclrtMemcpyAsync(device, BYTES, sent, BYTES, ACL_MEMCPY_HOST_TO_DEVICE, stream), "to the device") &&
           worked(aclrtMemcpyAsync(got, BYTES, device, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, stream), "from the device") &&
           worked(aclrtSynchronizeStream(stream), "the wait") && memcmp(sent, got, BYTES) == 0;
}

static int on_a_device(void)
{
    void *device = NULL;
    aclrtStream stream = NULL;
    int good = worked(aclrtMalloc(&device, BYTES, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc") &&
               worked(aclrtCreateStream(&stream), "aclrtCreateStream") && there_and_back(device, stream);
    if (stream != NULL) {
        good &= worked(aclrtDestroyStream(stream), "aclrtDestroyStream");
    }
    if (device != NULL) {
        good &= worked(aclrtFree(device), "aclrtFree");
    }
    return good;
}

int main(void)
{
    if (!worked(aclInit(NULL), "aclInit")) {
        return 1;
    }
    int good = worked(aclrtSetDevice(0), "aclrtSetDevice");
    if (good) {
        good = on_a_device();
        good &= worked(aclrtResetDevice(0), "aclrtResetDevice");
    }
    good &= worked(aclFinalize(), "aclFinalize");
    return good ? 0 : 1;
}
