// Copies to the device and back on a stream; creates and destroys a queue.
#include <cstdio>
#include <cstring>
#include <vector>

#include "acl/acl.h"
#include "acl/acl_prof.h"
#include "acl/acl_tdt_queue.h"

#define CHECK(call)                                                          \
    do {                                                                     \
        aclError status = (call);                                            \
        if (status != ACL_SUCCESS) {                                         \
            std::printf("%s: %d: %s\n", #call, status, aclGetRecentErrMsg()); \
            return 1;                                                        \
        }                                                                    \
    } while (0)

int main()
{
    CHECK(aclInit(nullptr));
    CHECK(aclrtSetDevice(0));
    aclrtStream stream = nullptr;
    CHECK(aclrtCreateStream(&stream));
    std::vector<int> in(1024, 7), out(1024, 0);
    const size_t bytes = in.size() * sizeof(int);
    void *device = nullptr;
    CHECK(aclrtMalloc(&device, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpyAsync(device, bytes, in.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE, stream));
    CHECK(aclrtMemcpyAsync(out.data(), bytes, device, bytes, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    CHECK(aclrtSynchronizeStream(stream));
    acltdtQueueAttr *attr = acltdtCreateQueueAttr();
    uint32_t queue = 0;
    CHECK(acltdtCreateQueue(attr, &queue));
    CHECK(acltdtDestroyQueue(queue));
    CHECK(acltdtDestroyQueueAttr(attr));
    CHECK(aclrtFree(device));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    std::puts(std::memcmp(in.data(), out.data(), bytes) == 0 ? "equal" : "different");
    return 0;
}
