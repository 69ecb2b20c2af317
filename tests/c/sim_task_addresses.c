/* A task with an address without memory is an error of its stream, not of other streams or the process. */
#include <string.h>

#include "check.h"

static const size_t GRANULE = (size_t)2 << 20;
static aclrtStream stream;
static void *hole; /* reserved, not mapped */
static uint64_t *memory;

/* Checks that the task failed, at the call or when it ran, and that the stream works again afterwards. */
static void fails(aclError called)
{
    aclError done = aclrtSynchronizeStream(stream);
    CHECK(called != 0 || done != 0);
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtMemsetAsync(memory, 64, 0, 64, stream));
    OK(aclrtSynchronizeStream(stream));
}

static aclrtRandomNumTaskInfo random_info(void)
{
    aclrtRandomNumTaskInfo info;
    uint64_t count = 4;
    memset(&info, 0, sizeof info);
    info.dataType = ACL_FLOAT;
    info.randomNumFuncParaInfo.funcType = ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS;
    info.randomResultAddr = memory;
    info.randomCounterAddr = memory + 8;
    memcpy(info.randomNum.valueOrAddr, &count, sizeof count);
    info.randomNum.size = info.randomSeed.size = sizeof count;
    return info;
}

static void random_numbers(void)
{
    aclrtRandomNumTaskInfo info = random_info();
    OK(aclrtRandomNumAsync(&info, stream, NULL));
    OK(aclrtSynchronizeStream(stream));
    info.randomResultAddr = hole;
    fails(aclrtRandomNumAsync(&info, stream, NULL));
    info = random_info();
    info.randomCounterAddr = hole;
    fails(aclrtRandomNumAsync(&info, stream, NULL));
    info = random_info();
    info.randomSeed.isAddr = 1;
    memcpy(info.randomSeed.valueOrAddr, &hole, sizeof hole);
    fails(aclrtRandomNumAsync(&info, stream, NULL));
}

int main(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtMalloc((void **)&memory, 4096, ACL_MEM_MALLOC_NORMAL_ONLY));
    OK(aclrtReserveMemAddress(&hole, GRANULE, 0, NULL, 1));
    fails(aclrtValueWrite(hole, 1, 0, stream));
    fails(aclrtValueWait(hole, 1, 0, stream));
    fails(aclrtGetOverflowStatus(hole, 64, stream));
    fails(aclrtMemsetAsync(hole, 64, 0, 64, stream));
    random_numbers();
    OK(aclrtReleaseMemAddress(hole));
    OK(aclrtFree(memory));
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
