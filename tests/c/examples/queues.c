/* Queues and channels: buffers and data through a queue between two threads, a route from one
   queue to another, and tensors through a channel of limited capacity. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "acl/acl_tdt.h"
#include "acl/acl_tdt_queue.h"
#include "check.h"

enum { MESSAGES = 200, DEPTH = 4, TENSOR = 6 };

static uint32_t make_queue(const char *name, uint32_t depth)
{
    uint32_t queue = 0, read_depth = 0;
    const char *read_name = NULL;
    size_t size = 0;
    acltdtQueueAttr *attr = acltdtCreateQueueAttr();
    EXPECT(attr != NULL);
    CHECK(acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_NAME_PTR, sizeof name, &name));
    CHECK(acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_DEPTH_UINT32, sizeof depth, &depth));
    CHECK(acltdtGetQueueAttr(attr, ACL_TDT_QUEUE_NAME_PTR, sizeof read_name, &size, &read_name));
    EXPECT(size == sizeof read_name && strcmp(read_name, name) == 0);
    CHECK(acltdtGetQueueAttr(attr, ACL_TDT_QUEUE_DEPTH_UINT32, sizeof depth, &size, &read_depth));
    EXPECT(size == sizeof depth && read_depth == depth);
    CHECK(acltdtCreateQueue(attr, &queue));
    EXPECT(acltdtCreateQueue(attr, &queue) == ACL_ERROR_INVALID_PARAM); /* the name is taken */
    CHECK(acltdtDestroyQueueAttr(attr));
    return queue;
}

static void *produce(void *argument)
{
    uint32_t queue = *(uint32_t *)argument;
    CHECK(aclrtSetDevice(0));
    for (uint32_t i = 0; i < MESSAGES; i++) {
        uint64_t value = 3 * (uint64_t)i;
        CHECK(acltdtEnqueueData(queue, &value, sizeof value, &i, sizeof i, -1, 0));
    }
    CHECK(aclrtResetDevice(0));
    return NULL;
}

static void two_threads(void)
{
    pthread_t thread;
    uint32_t queue = make_queue("two_threads", DEPTH);
    EXPECT(pthread_create(&thread, NULL, produce, &queue) == 0);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        uint64_t value = 0;
        uint32_t number = 0;
        size_t size = 0;
        CHECK(acltdtDequeueData(queue, &value, sizeof value, &size, &number, sizeof number, -1));
        EXPECT(size == sizeof value && number == i && value == 3 * (uint64_t)i);
    }
    EXPECT(pthread_join(thread, NULL) == 0);
    CHECK(acltdtDestroyQueue(queue));
}

static void buffers(void)
{
    uint32_t queue = make_queue("buffers", DEPTH), permission = 0;
    acltdtBuf buffer = NULL, got = NULL;
    void *data = NULL;
    size_t size = 0, length = 0;
    CHECK(acltdtGrantQueue(queue, getpid(), ACL_TDT_QUEUE_PERMISSION_ENQUEUE, 0));
    CHECK(acltdtAttachQueue(queue, 0, &permission));
    EXPECT(permission == ACL_TDT_QUEUE_PERMISSION_ENQUEUE);
    CHECK(acltdtAllocBuf(64, ACL_TDT_NORMAL_MEM, &buffer));
    CHECK(acltdtGetBufData(buffer, &data, &size));
    strcpy(data, "through a queue");
    CHECK(acltdtSetBufDataLen(buffer, strlen(data) + 1));
    CHECK(acltdtEnqueue(queue, buffer, 1000));
    CHECK(acltdtDequeue(queue, &got, 1000));
    CHECK(acltdtGetBufData(got, &data, &size));
    CHECK(acltdtGetBufDataLen(got, &length));
    EXPECT(size == 64 && length == 16 && strcmp(data, "through a queue") == 0);
    EXPECT(acltdtDequeue(queue, &buffer, 1) == ACL_ERROR_FAILURE);
    CHECK(acltdtFreeBuf(got));
    CHECK(acltdtDestroyQueue(queue));
}

static void route(void)
{
    uint32_t source = make_queue("source", DEPTH), target = make_queue("target", DEPTH);
    uint32_t value = 7, got = 0, asked = 0;
    int32_t status = 0;
    size_t size = 0;
    acltdtQueueRouteQueryMode mode = ACL_TDT_QUEUE_ROUTE_QUERY_SRC;
    acltdtQueueRoute *road = acltdtCreateQueueRoute(source, target);
    acltdtQueueRouteList *list = acltdtCreateQueueRouteList();
    acltdtQueueRouteList *found = acltdtCreateQueueRouteList();
    acltdtQueueRouteQueryInfo *query = acltdtCreateQueueRouteQueryInfo();
    CHECK(acltdtAddQueueRoute(list, road));
    CHECK(acltdtBindQueueRoutes(list));
    CHECK(acltdtEnqueueData(source, &value, sizeof value, NULL, 0, 0, 0));
    CHECK(acltdtDequeueData(target, &got, sizeof got, &size, NULL, 0, 1000));
    EXPECT(got == 7);
    CHECK(acltdtSetQueueRouteQueryInfo(query, ACL_TDT_QUEUE_ROUTE_QUERY_MODE_ENUM, sizeof mode,
                                       &mode));
    CHECK(acltdtSetQueueRouteQueryInfo(query, ACL_TDT_QUEUE_ROUTE_QUERY_SRC_ID_UINT32,
                                       sizeof source, &source));
    CHECK(acltdtQueryQueueRoutes(query, found));
    EXPECT(acltdtGetQueueRouteNum(found) == 1);
    CHECK(acltdtGetQueueRoute(found, 0, road));
    CHECK(acltdtGetQueueRouteParam(road, ACL_TDT_QUEUE_ROUTE_DST_UINT32, sizeof asked, &size,
                                   &asked));
    CHECK(acltdtGetQueueRouteParam(road, ACL_TDT_QUEUE_ROUTE_STATUS_INT32, sizeof status, &size,
                                   &status));
    EXPECT(asked == target && status == ACL_TDT_QUEUE_ROUTE_BIND);
    EXPECT(acltdtDestroyQueue(source) == ACL_ERROR_FAILURE); /* it has a route */
    CHECK(acltdtUnbindQueueRoutes(list));
    CHECK(acltdtDestroyQueue(source));
    CHECK(acltdtDestroyQueue(target));
    CHECK(acltdtDestroyQueueRouteQueryInfo(query));
    CHECK(acltdtDestroyQueueRouteList(found));
    CHECK(acltdtDestroyQueueRouteList(list));
    CHECK(acltdtDestroyQueueRoute(road));
}

static void channel(void)
{
    float values[TENSOR] = {1, 2, 3, 4, 5, 6};
    int64_t dims[] = {2, 3}, got_dims[2] = {0};
    size_t size = 0;
    acltdtChannelHandle *way = acltdtCreateChannelWithCapacity(0, "tensors", 2);
    acltdtDataItem *item = acltdtCreateDataItem(ACL_TENSOR_DATA_TENSOR, dims, 2, ACL_FLOAT, values,
                                                sizeof values);
    acltdtDataset *sent = acltdtCreateDataset(), *received = acltdtCreateDataset();
    EXPECT(way != NULL && item != NULL && sent != NULL && received != NULL);
    CHECK(acltdtAddDataItem(sent, item));
    CHECK(acltdtSendTensor(way, sent, -1));
    values[0] = 100; /* the queue has a copy */
    CHECK(acltdtSendTensor(way, sent, 0));
    EXPECT(acltdtSendTensor(way, sent, 1) == ACL_ERROR_RT_QUEUE_FULL);
    CHECK(acltdtQueryChannelSize(way, &size));
    EXPECT(size == 2);
    CHECK(acltdtReceiveTensor(way, received, -1));
    EXPECT(acltdtGetDatasetSize(received) == 1);
    acltdtDataItem *got = acltdtGetDataItem(received, 0);
    EXPECT(acltdtGetDataSizeFromItem(got) == sizeof values);
    EXPECT(acltdtGetDataTypeFromItem(got) == ACL_FLOAT && acltdtGetDimNumFromItem(got) == 2);
    CHECK(acltdtGetDimsFromItem(got, got_dims, 2));
    EXPECT(got_dims[0] == 2 && got_dims[1] == 3);
    EXPECT(((float *)acltdtGetDataAddrFromItem(got))[0] == 1);
    CHECK(acltdtReceiveTensor(way, received, -1));
    EXPECT(((float *)acltdtGetDataAddrFromItem(acltdtGetDataItem(received, 0)))[0] == 100);
    EXPECT(acltdtReceiveTensor(way, received, 0) == ACL_ERROR_RT_QUEUE_EMPTY);
    CHECK(acltdtSendTensor(way, sent, 0));
    CHECK(acltdtCleanChannel(way));
    CHECK(acltdtStopChannel(way));
    CHECK(acltdtDestroyChannel(way));
    CHECK(acltdtDestroyDataItem(item));
    CHECK(acltdtDestroyDataset(sent));
    CHECK(acltdtDestroyDataset(received));
}

int main(void)
{
    open_device(0);
    two_threads();
    buffers();
    route();
    channel();
    close_device(0);
    return 0;
}
