/* A call that reads or writes memory at once and gets an address without memory returns a code, and
 * the process continues. */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "acl/acl_op.h"
#include "acl/acl_tdt.h"
#include "acl/acl_tdt_queue.h"
#include "check.h"

static const size_t GRANULE = (size_t)2 << 20;
static void *bare; /* host addresses without access rights */
static void *hole; /* device addresses that are reserved but not mapped */

static void constants(void *address)
{
    int64_t dims[1] = {4};
    aclTensorDesc *desc = aclCreateTensorDesc(ACL_FLOAT, 1, dims, ACL_FORMAT_ND);
    GIVES(107000, aclSetTensorConst(desc, address, 16));
    aclDestroyTensorDesc(desc);
}

static void operators(void *address, aclMemType place)
{
    int64_t dims[1] = {4};
    float room[4] = {0};
    aclTensorDesc *in = aclCreateTensorDesc(ACL_FLOAT, 1, dims, ACL_FORMAT_ND);
    aclTensorDesc *out = aclCreateTensorDesc(ACL_FLOAT, 1, dims, ACL_FORMAT_ND);
    aclDataBuffer *from = aclCreateDataBuffer(address, 16), *to = aclCreateDataBuffer(room, 16);
    aclopAttr *attributes = aclopCreateAttr();
    OK(aclSetTensorPlaceMent(in, place));
    aclError called = aclopExecuteV2("Relu", 1, &in, &from, 1, &out, &to, attributes, NULL);
    aclError done = aclrtSynchronizeStream(NULL);
    CHECK(called != 0 || done != 0);
    aclopDestroyAttr(attributes);
    OK(aclDestroyDataBuffer(from));
    OK(aclDestroyDataBuffer(to));
    aclDestroyTensorDesc(in);
    aclDestroyTensorDesc(out);
}

static void queues(void *address)
{
    uint32_t queue;
    size_t got;
    char message[64] = "twelve bytes";
    acltdtQueueAttr *attributes = acltdtCreateQueueAttr();
    OK(acltdtCreateQueue(attributes, &queue));
    GIVES(107000, acltdtEnqueueData(queue, address, 64, NULL, 0, 0, 0));
    OK(acltdtEnqueueData(queue, message, 64, NULL, 0, 0, 0));
    GIVES(107000, acltdtDequeueData(queue, address, 64, &got, NULL, 0, 0));
    memset(message, 0, sizeof message);
    OK(acltdtDequeueData(queue, message, 64, &got, NULL, 0, 0));
    CHECK(got == 64 && strcmp(message, "twelve bytes") == 0);
    OK(acltdtDestroyQueue(queue));
    OK(acltdtDestroyQueueAttr(attributes));
}

static void channels(void *address)
{
    int64_t dims[1] = {64};
    acltdtChannelHandle *channel = acltdtCreateChannelWithCapacity(0, "call_addresses", 4);
    acltdtDataset *dataset = acltdtCreateDataset();
    acltdtDataItem *item = acltdtCreateDataItem(ACL_TENSOR_DATA_TENSOR, dims, 1, ACL_UINT8, address, 64);
    CHECK(channel != NULL && item != NULL);
    OK(acltdtAddDataItem(dataset, item));
    GIVES(107000, acltdtSendTensor(channel, dataset, 0));
    OK(acltdtDestroyDataset(dataset));
    OK(acltdtDestroyDataItem(item));
    OK(acltdtDestroyChannel(channel));
}

static void *mapped;
static pid_t copier;
static atomic_int copying;

static int copier_sleeps(void)
{
    char path[64], name[64], state = 0;
    int number;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)copier);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fscanf(file, "%d (%63[^)]) %c", &number, name, &state) == 3);
    CHECK(fclose(file) == 0);
    return state == 'S';
}

static void unmap_under_the_copy(void *unused)
{
    (void)unused;
    while (!atomic_load(&copying) || !copier_sleeps()) {
        usleep(1000);
    }
    OK(aclrtUnmapMem(mapped));
}

/* A copy of pageable memory checks its addresses, then waits for its stream; during the wait they may be unmapped. */
static void copies_that_wait(void)
{
    char bytes[64] = {0};
    aclrtPhysicalMemProp prop = {.memAttr = ACL_HBM_MEM_HUGE,
                                 .location = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE}};
    aclrtDrvMemHandle handle;
    aclrtStream stream;
    OK(aclrtCreateStream(&stream));
    OK(aclrtReserveMemAddress(&mapped, GRANULE, 0, NULL, 1));
    OK(aclrtMallocPhysical(&handle, GRANULE, &prop, 0));
    OK(aclrtMapMem(mapped, GRANULE, 0, handle, 0));
    copier = gettid();
    OK(aclrtLaunchHostFunc(stream, unmap_under_the_copy, NULL));
    atomic_store(&copying, 1);
    GIVES(507013, aclrtMemcpyAsync(mapped, GRANULE, bytes, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyStream(stream));
    OK(aclrtFreePhysical(handle));
    OK(aclrtReleaseMemAddress(mapped));
}

int main(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    bare = mmap(NULL, GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bare != MAP_FAILED);
    OK(aclrtReserveMemAddress(&hole, GRANULE, 0, NULL, 1));
    void *addresses[] = {bare, hole};
    for (int i = 0; i < 2; i++) {
        constants(addresses[i]);
        operators(addresses[i], ACL_MEMTYPE_HOST);
        operators(addresses[i], ACL_MEMTYPE_DEVICE);
        queues(addresses[i]);
        channels(addresses[i]);
    }
    copies_that_wait();
    OK(aclrtReleaseMemAddress(hole));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
