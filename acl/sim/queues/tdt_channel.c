/* tdt_channel.c: acltdtChannel: sends datasets of tensors through a named queue.

   A dataset that the user fills refers to the user's items.  A dataset that was received owns its items and
   their data until it is destroyed or receives again, or the user destroys an item.  In the simulator no device
   reads the channel, so what is sent can be received from the same channel.

   Thread rule: any thread may use a channel. A dataset and its items are used by one thread at a time. */
#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"
#include "memory/memory.h"
#include "queues/tdt.h"

enum { DIMS_MAX = 128, CHANNEL_DEPTH = 8 };

struct acltdtDataItem {
    TdtSort sort;
    acltdtTensorType type;
    aclDataType data_type;
    void *data;
    size_t size;
    int64_t *dims;
    size_t dim_count;
    acltdtDataset *owner; /* the received dataset that owns the item, or NULL */
};

struct acltdtDataset {
    TdtSort sort;
    bool received;
    acltdtDataItem **items;
    size_t count, room;
};

struct acltdtChannelHandle {
    TdtSort sort;
    uint32_t queue;
    uint32_t device;
};

_Static_assert(sizeof(struct acltdtDataItem) <= TDT_OBJECT_SIZE, "one size for all");
_Static_assert(sizeof(struct acltdtDataset) <= TDT_OBJECT_SIZE, "one size for all");
_Static_assert(sizeof(struct acltdtChannelHandle) <= TDT_OBJECT_SIZE, "one size for all");

/* ---- items ----------------------------------------------------------------------------------- */

static bool is_tensor(acltdtTensorType type)
{
    return type == ACL_TENSOR_DATA_TENSOR || type == ACL_TENSOR_DATA_SLICE_TENSOR ||
           type == ACL_TENSOR_DATA_END_TENSOR;
}

acltdtDataItem *sim_acltdtCreateDataItem(acltdtTensorType tdtType, const int64_t *dims,
    size_t dimNum, aclDataType dataType, void *data, size_t size)
{
    bool tensor = tdtType == ACL_TENSOR_DATA_TENSOR;
    if ((dims == NULL) != (dimNum == 0) || dimNum > DIMS_MAX || (!tensor && dims != NULL)) {
        (void)fail(ACL_ERROR_INVALID_PARAM, "dimNum is %zu, dims is %p, tdtType is %d: expected at most %d "
                   "dimensions, and dims and dimNum only together and only for tensors", dimNum, (const void *)dims,
                   (int)tdtType, (int)DIMS_MAX);
        return NULL;
    }
    int64_t *own = dimNum == 0 ? NULL : malloc(dimNum * sizeof *own);
    acltdtDataItem *item = own == NULL && dimNum > 0 ? NULL : tdt_object(TDT_ITEM);
    if (item == NULL) {
        free(own);
        return NULL;
    }
    item->type = tdtType;
    item->data_type = tensor ? dataType : ACL_DT_UNDEFINED;
    item->data = tensor ? data : NULL;
    item->size = tensor ? size : 0;
    item->dim_count = dimNum;
    item->dims = own;
    if (own != NULL) {
        memcpy(own, dims, dimNum * sizeof *own);
    }
    return item;
}

static void item_end(acltdtDataItem *item)
{
    int64_t *dims = item->dims;
    void *data = item->owner != NULL ? item->data : NULL;
    if (tdt_destroy(item)) {
        free(dims);
        free(data);
    }
}

aclError sim_acltdtDestroyDataItem(acltdtDataItem *dataItem)
{
    REQUIRE(tdt_is(dataItem, TDT_ITEM));
    acltdtDataset *owner = dataItem->owner;
    for (size_t i = 0; owner != NULL && i < owner->count; i++) {
        if (owner->items[i] == dataItem) {
            owner->items[i] = NULL;
        }
    }
    item_end(dataItem);
    return ACL_SUCCESS;
}

acltdtTensorType sim_acltdtGetTensorTypeFromItem(const acltdtDataItem *dataItem)
{
    return tdt_is(dataItem, TDT_ITEM) ? dataItem->type : ACL_TENSOR_DATA_UNDEFINED;
}

aclDataType sim_acltdtGetDataTypeFromItem(const acltdtDataItem *dataItem)
{
    return tdt_is(dataItem, TDT_ITEM) ? dataItem->data_type : ACL_DT_UNDEFINED;
}

void *sim_acltdtGetDataAddrFromItem(const acltdtDataItem *dataItem)
{
    return tdt_is(dataItem, TDT_ITEM) ? dataItem->data : NULL;
}

size_t sim_acltdtGetDataSizeFromItem(const acltdtDataItem *dataItem)
{
    return tdt_is(dataItem, TDT_ITEM) ? dataItem->size : 0;
}

size_t sim_acltdtGetDimNumFromItem(const acltdtDataItem *dataItem)
{
    return tdt_is(dataItem, TDT_ITEM) ? dataItem->dim_count : 0;
}

aclError sim_acltdtGetSliceInfoFromItem(const acltdtDataItem *dataItem, size_t *sliceNum,
    size_t *sliceId)
{
    REQUIRE(tdt_is(dataItem, TDT_ITEM));
    REQUIRE(sliceNum);
    REQUIRE(sliceId);
    *sliceNum = *sliceId = 0;
    return ACL_SUCCESS;
}

aclError sim_acltdtGetDimsFromItem(const acltdtDataItem *dataItem, int64_t *dims, size_t dimNum)
{
    REQUIRE(tdt_is(dataItem, TDT_ITEM));
    REQUIRE((dims == NULL) == (dimNum == 0));
    REQUIRE(dimNum >= dataItem->dim_count);
    if (dataItem->dim_count > 0) {
        memcpy(dims, dataItem->dims, dataItem->dim_count * sizeof *dims);
    }
    return ACL_SUCCESS;
}

/* ---- datasets -------------------------------------------------------------------------------- */

acltdtDataset *sim_acltdtCreateDataset(void)
{
    return tdt_object(TDT_DATASET);
}

/* Destroys the items that the dataset owns. */
static void dataset_empty(acltdtDataset *dataset)
{
    for (size_t i = 0; i < dataset->count && dataset->received; i++) {
        if (dataset->items[i] != NULL) {
            item_end(dataset->items[i]);
        }
    }
    dataset->count = 0;
}

aclError sim_acltdtDestroyDataset(acltdtDataset *dataset)
{
    REQUIRE(tdt_is(dataset, TDT_DATASET));
    dataset_empty(dataset);
    acltdtDataItem **items = dataset->items;
    REQUIRE(tdt_destroy(dataset));
    free(items);
    return ACL_SUCCESS;
}

acltdtDataItem *sim_acltdtGetDataItem(const acltdtDataset *dataset, size_t index)
{
    return tdt_is(dataset, TDT_DATASET) && index < dataset->count ? dataset->items[index] : NULL;
}

static bool dataset_add(acltdtDataset *dataset, acltdtDataItem *item)
{
    if (dataset->count == dataset->room) {
        size_t room = dataset->room == 0 ? 8 : 2 * dataset->room;
        acltdtDataItem **items = realloc(dataset->items, room * sizeof(acltdtDataItem *));
        if (items == NULL) {
            return false;
        }
        dataset->items = items;
        dataset->room = room;
    }
    dataset->items[dataset->count++] = item;
    return true;
}

aclError sim_acltdtAddDataItem(acltdtDataset *dataset, acltdtDataItem *dataItem)
{
    REQUIRE(tdt_is(dataset, TDT_DATASET));
    REQUIRE(tdt_is(dataItem, TDT_ITEM));
    if (dataset->received) {
        return fail(ACL_ERROR_FEATURE_UNSUPPORTED,
            "the dataset was filled by acltdtReceiveTensor: no item can be added");
    }
    if (!dataset_add(dataset, dataItem)) {
        return fail(ACL_ERROR_BAD_ALLOC, "no memory for an item");
    }
    return ACL_SUCCESS;
}

size_t sim_acltdtGetDatasetSize(const acltdtDataset *dataset)
{
    return tdt_is(dataset, TDT_DATASET) ? dataset->count : 0;
}

/* Only datasets that a device prints have a name; the simulator has none of these. */
const char *sim_acltdtGetDatasetName(const acltdtDataset *dataset)
{
    return tdt_is(dataset, TDT_DATASET) ? "" : NULL;
}

/* ---- channels -------------------------------------------------------------------------------- */

/* Frees a message of the queue: a dataset that owns copies of the sent items. */
static void message_drop(void *message)
{
    acltdtDataset *dataset = message;
    dataset_empty(dataset);
    free(dataset->items);
    free(dataset);
}

static const TdtMessages messages = {message_drop, NULL};

static acltdtChannelHandle *channel_new(uint32_t device, const char *name, size_t capacity)
{
    if (name == NULL || device_check((int32_t)device) != ACL_SUCCESS) {
        (void)fail(ACL_ERROR_INVALID_PARAM, "name is NULL, or there is no device %u", device);
        return NULL;
    }
    acltdtChannelHandle *channel = tdt_object(TDT_CHANNEL);
    if (channel == NULL) {
        return NULL;
    }
    uint32_t depth = capacity > TDT_DEPTH_MAX ? TDT_DEPTH_MAX + 1 : (uint32_t)capacity;
    aclError status = tdt_queue_new(name, depth, &messages, &channel->queue);
    if (status != ACL_SUCCESS) {
        (void)tdt_destroy(channel);
        (void)fail(status, "capacity is %zu: cannot create a channel; expected an unused short "
                   "name and a capacity of 1 to %d", capacity, TDT_DEPTH_MAX);
        return NULL;
    }
    channel->device = device;
    return channel;
}

acltdtChannelHandle *sim_acltdtCreateChannel(uint32_t deviceId, const char *name)
{
    return channel_new(deviceId, name, CHANNEL_DEPTH);
}

acltdtChannelHandle *sim_acltdtCreateChannelWithCapacity(uint32_t deviceId, const char *name,
    size_t capacity)
{
    return channel_new(deviceId, name, capacity);
}

aclError sim_acltdtStopChannel(acltdtChannelHandle *handle)
{
    REQUIRE(tdt_is(handle, TDT_CHANNEL));
    return ACL_SUCCESS;
}

aclError sim_acltdtDestroyChannel(acltdtChannelHandle *handle)
{
    REQUIRE(tdt_is(handle, TDT_CHANNEL));
    uint32_t queue = handle->queue;
    REQUIRE(tdt_destroy(handle));
    return tdt_queue_delete(queue);
}

aclError sim_acltdtCleanChannel(acltdtChannelHandle *handle)
{
    REQUIRE(tdt_is(handle, TDT_CHANNEL));
    return tdt_queue_clear(handle->queue);
}

aclError sim_acltdtQueryChannelSize(const acltdtChannelHandle *handle, size_t *size)
{
    REQUIRE(tdt_is(handle, TDT_CHANNEL));
    REQUIRE(size);
    return tdt_queue_count(handle->queue, size);
}

/* Copies an item with its data. Returns NULL if there is no host memory, or if the item's memory was freed. */
static acltdtDataItem *item_copy(const acltdtDataItem *item, acltdtDataset *owner)
{
    const void *from = memory_at(item->data, item->size, false);
    if (from == NULL && item->size > 0) {
        return NULL;
    }
    void *data = malloc(item->size + 1);
    acltdtDataItem *copy = data == NULL ? NULL : sim_acltdtCreateDataItem(
        is_tensor(item->type) ? ACL_TENSOR_DATA_TENSOR : item->type, item->dims, item->dim_count,
        item->data_type, data, item->size);
    if (copy == NULL) {
        free(data);
        return NULL;
    }
    if (item->size > 0) {
        memcpy(data, from, item->size);
    }
    copy->type = item->type;
    copy->data = data;
    copy->owner = owner;
    return copy;
}

static acltdtDataset *message_new(const acltdtDataset *dataset)
{
    acltdtDataset *message = calloc(1, sizeof *message);
    if (message == NULL) {
        return NULL;
    }
    message->received = true;
    for (size_t i = 0; i < dataset->count; i++) {
        acltdtDataItem *copy = item_copy(dataset->items[i], message);
        if (copy == NULL || !dataset_add(message, copy)) {
            if (copy != NULL) {
                item_end(copy);
            }
            message_drop(message);
            return NULL;
        }
    }
    return message;
}

static aclError channel_status(const char *function, aclError status)
{
    if (status == ACL_SUCCESS) {
        return status;
    }
    const char *what = status == ACL_ERROR_RT_QUEUE_FULL    ? "full"
                       : status == ACL_ERROR_RT_QUEUE_EMPTY ? "empty"
                                                            : "destroyed";
    return error_set(function, status, "the channel is %s", what);
}

aclError sim_acltdtSendTensor(const acltdtChannelHandle *handle, const acltdtDataset *dataset,
    int32_t timeout)
{
    REQUIRE(tdt_is(handle, TDT_CHANNEL));
    REQUIRE(tdt_is(dataset, TDT_DATASET));
    REQUIRE_RT(dataset->count > 0);
    for (size_t i = 0; i < dataset->count; i++) {
        const acltdtDataItem *item = dataset->items[i];
        REQUIRE(tdt_is(item, TDT_ITEM));
        REQUIRE((unsigned)item->type <= ACL_TENSOR_DATA_END_TENSOR);
        REQUIRE(item->data != NULL || item->size == 0);
        TRY(item->size == 0 ? ACL_SUCCESS : memory_check(__func__, "an item's data", item->data,
            item->size, false, NULL));
    }
    acltdtDataset *message = message_new(dataset);
    if (message == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no memory for a message");
    }
    aclError status = channel_status(__func__, tdt_queue_put(handle->queue, message, timeout));
    if (status != ACL_SUCCESS) {
        message_drop(message);
    }
    return status;
}

aclError sim_acltdtReceiveTensor(const acltdtChannelHandle *handle, acltdtDataset *dataset,
    int32_t timeout)
{
    void *got = NULL;
    REQUIRE(tdt_is(handle, TDT_CHANNEL));
    REQUIRE(tdt_is(dataset, TDT_DATASET));
    REQUIRE(dataset->received || dataset->count == 0);
    TRY(channel_status(__func__, tdt_queue_get(handle->queue, NULL, NULL, timeout, &got)));
    acltdtDataset *message = got;
    dataset_empty(dataset);
    free(dataset->items);
    dataset->received = true;
    dataset->items = message->items;
    dataset->count = message->count;
    dataset->room = message->room;
    for (size_t i = 0; i < dataset->count; i++) {
        dataset->items[i]->owner = dataset;
    }
    free(message);
    return ACL_SUCCESS;
}
