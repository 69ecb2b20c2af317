/* Notifies, counting notifies, values in memory, aborting and force-destroying streams that wait. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "check.h"

static aclrtStream first, second;

static void a_notify_lets_one_wait_through(void)
{
    aclrtNotify notify;
    OK(aclrtCreateNotify(&notify, ACL_NOTIFY_DEFAULT));
    OK(aclrtWaitAndResetNotify(notify, second, 0));
    GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeStreamWithTimeout(second, 20));
    OK(aclrtRecordNotify(notify, first));
    OK(aclrtSynchronizeStreamWithTimeout(second, 5000));
    OK(aclrtRecordNotify(notify, first));
    OK(aclrtRecordNotify(notify, first));
    OK(aclrtSynchronizeStream(first));
    OK(aclrtWaitAndResetNotify(notify, second, 0));
    OK(aclrtSynchronizeStreamWithTimeout(second, 5000));
    OK(aclrtRecordNotify(notify, first));
    OK(aclrtSynchronizeStream(first));
    OK(aclrtNotifyBatchReset(&notify, 1));
    OK(aclrtWaitAndResetNotify(notify, second, 1));
    GIVES(ACL_ERROR_RT_WAIT_TIMEOUT, aclrtSynchronizeStreamWithTimeout(second, 5000));
    OK(aclrtDestroyNotify(notify));
    GIVES(ACL_ERROR_RT_INVALID_HANDLE, aclrtRecordNotify(notify, first));
}

static void counting(void)
{
    aclrtCntNotify count;
    aclrtCntNotifyRecordInfo add = {ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE, 2};
    aclrtCntNotifyWaitInfo wait = {ACL_RT_CNT_NOTIFY_WAIT_BIGGER_OR_EQUAL_MODE, 5, 0, 1, {0}};
    OK(aclrtCntNotifyCreate(&count, 0));
    OK(aclrtCntNotifyWaitWithTimeout(count, second, &wait));
    OK(aclrtCntNotifyRecord(count, first, &add));
    OK(aclrtCntNotifyRecord(count, first, &add));
    GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeStreamWithTimeout(second, 20));
    OK(aclrtCntNotifyRecord(count, first, &add));
    OK(aclrtSynchronizeStreamWithTimeout(second, 5000));
    OK(aclrtCntNotifyDestroy(count));
}

static void values(void)
{
    uint64_t *memory;
    uint64_t host = 0;
    OK(aclrtMalloc((void **)&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemset(memory, 64, 0, 64));
    GIVES(ACL_ERROR_RT_PARAM_INVALID, aclrtValueWrite((char *)memory + 4, 1, 0, first));
    OK(aclrtValueWait(memory, 10, ACL_STREAM_WAIT_VALUE_GEQ, second));
    OK(aclrtValueWrite(memory + 1, 77, 0, second));
    OK(aclrtValueWrite(memory, 9, 0, first));
    GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeStreamWithTimeout(second, 20));
    OK(aclrtValueWrite(memory, 11, 0, first));
    OK(aclrtSynchronizeStreamWithTimeout(second, 5000));
    OK(aclrtMemcpy(&host, 8, memory + 1, 8, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK(host == 77);
    OK(aclrtValueWait(memory, 8, ACL_STREAM_WAIT_VALUE_EQ, second));
    host = 8;
    OK(aclrtMemcpy(memory, 8, &host, 8, ACL_MEMCPY_HOST_TO_DEVICE));
    OK(aclrtSynchronizeStreamWithTimeout(second, 5000));
    OK(aclrtFree(memory));
}

static void aborting_a_wait(void)
{
    aclrtNotify never;
    aclrtStream doomed;
    OK(aclrtCreateNotify(&never, ACL_NOTIFY_DEFAULT));
    for (int i = 0; i < 20; i++) {
        OK(aclrtWaitAndResetNotify(never, second, 0));
        OK(aclrtWaitAndResetNotify(never, second, 0));
        OK(aclrtStreamAbort(second));
        OK(aclrtSynchronizeStreamWithTimeout(second, 5000));
    }
    OK(aclrtWaitAndResetNotify(never, second, 0));
    OK(aclrtDeviceTaskAbort(0, 5000));
    OK(aclrtSynchronizeStreamWithTimeout(second, 5000));
    OK(aclrtCreateStream(&doomed));
    OK(aclrtWaitAndResetNotify(never, doomed, 0));
    OK(aclrtDestroyStreamForce(doomed));
    GIVES(ACL_ERROR_RT_INVALID_HANDLE, aclrtSynchronizeStream(doomed));
    OK(aclrtDestroyNotify(never));
}

/* If an abort drops a record, no stream or thread keeps waiting for it. */
static void aborted_record(void)
{
    aclrtEvent event;
    aclrtNotify never;
    OK(aclrtCreateNotify(&never, ACL_NOTIFY_DEFAULT));
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    OK(aclrtWaitAndResetNotify(never, first, 0));
    OK(aclrtRecordEvent(event, first));
    OK(aclrtStreamWaitEvent(second, event));
    OK(aclrtStreamAbort(first));
    OK(aclrtSynchronizeStreamWithTimeout(second, 5000));
    OK(aclrtSynchronizeEventWithTimeout(event, 5000));
    OK(aclrtDestroyEvent(event));
    OK(aclrtDestroyNotify(never));
}

/* ---- threads that use a stream which another one destroys get 107017, never a fault ---- */

static aclrtStream contested;
static aclrtContext context;

static void *use_contested(void *argument)
{
    aclError status = ACL_SUCCESS;
    (void)argument;
    OK(aclrtSetCurrentContext(context));
    while (status == ACL_SUCCESS) {
        aclrtEvent event;
        OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
        status = aclrtRecordEvent(event, contested);
        status = status == ACL_SUCCESS ? aclrtSynchronizeStream(contested) : status;
        OK(aclrtDestroyEvent(event));
    }
    CHECK(status == ACL_ERROR_RT_INVALID_HANDLE);
    return NULL;
}

static void destroying_under_use(void)
{
    for (int i = 0; i < 30; i++) {
        pthread_t threads[2];
        OK(aclrtCreateStream(&contested));
        for (int k = 0; k < 2; k++) {
            CHECK(pthread_create(&threads[k], NULL, use_contested, NULL) == 0);
        }
        usleep(1000);
        OK(i % 2 ? aclrtDestroyStream(contested) : aclrtDestroyStreamForce(contested));
        for (int k = 0; k < 2; k++) {
            pthread_join(threads[k], NULL);
        }
    }
}

int main(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&context));
    OK(aclrtCreateStream(&first));
    OK(aclrtCreateStream(&second));
    a_notify_lets_one_wait_through();
    counting();
    values();
    aborting_a_wait();
    aborted_record();
    destroying_under_use();
    OK(aclrtDestroyStream(first));
    OK(aclrtDestroyStream(second));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
