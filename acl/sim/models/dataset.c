/* dataset.c: aclmdlDataset: the buffers, and shapes, of a model's inputs or outputs.

   A dataset does not free the buffers that the user adds. It frees its descriptions: copies of the
   user's descriptions, as in GE, and those that a run makes for outputs without one.

   Thread rule: only one thread at a time uses a dataset. */
#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"
#include "models/model.h"

aclmdlDataset *sim_aclmdlCreateDataset(void)
{
    aclmdlDataset *dataset = handle_new(HANDLE_DATASET, sizeof *dataset);
    if (dataset == NULL) {
        (void)fail(ACL_ERROR_BAD_ALLOC, "no memory for a dataset");
    }
    return dataset;
}

/* Frees the description, unless the user has destroyed it already: aclmdlGetDatasetTensorDesc
   gives it out. */
static void desc_drop(DatasetEntry *entry)
{
    if (handle_is(entry->desc, HANDLE_TENSOR_DESC)) {
        sim_aclDestroyTensorDesc(entry->desc);
    }
    entry->desc = NULL;
}

aclError sim_aclmdlDestroyDataset(const aclmdlDataset *dataset)
{
    aclmdlDataset *own = (aclmdlDataset *)(uintptr_t)dataset;
    REQUIRE(handle_is(dataset, HANDLE_DATASET) && handle_kill(own));
    for (size_t i = 0; i < own->count; i++) {
        desc_drop(&own->entries[i]);
    }
    free(own->entries);
    own->entries = NULL;
    own->count = own->room = 0;
    handle_retire(own);
    return ACL_SUCCESS;
}

aclError sim_aclmdlAddDatasetBuffer(aclmdlDataset *dataset, aclDataBuffer *dataBuffer)
{
    REQUIRE(handle_is(dataset, HANDLE_DATASET));
    REQUIRE(handle_is(dataBuffer, HANDLE_DATA_BUFFER));
    if (dataset->count == dataset->room) {
        size_t room = dataset->room == 0 ? 8 : 2 * dataset->room;
        DatasetEntry *entries = realloc(dataset->entries, room * sizeof *entries);
        if (entries == NULL) {
            return fail(ACL_ERROR_BAD_ALLOC, "no memory for %zu buffers", room);
        }
        dataset->entries = entries;
        dataset->room = room;
    }
    dataset->entries[dataset->count++] = (DatasetEntry){.buffer = dataBuffer};
    return ACL_SUCCESS;
}

size_t sim_aclmdlGetDatasetNumBuffers(const aclmdlDataset *dataset)
{
    return handle_is(dataset, HANDLE_DATASET) ? dataset->count : 0;
}

aclDataBuffer *sim_aclmdlGetDatasetBuffer(const aclmdlDataset *dataset, size_t index)
{
    return handle_is(dataset, HANDLE_DATASET) && index < dataset->count
        ? dataset->entries[index].buffer
        : NULL;
}

/* Copies the description into the dataset; NULL removes the present one. */
aclError sim_aclmdlSetDatasetTensorDesc(
    aclmdlDataset *dataset, aclTensorDesc *tensorDesc, size_t index)
{
    REQUIRE(handle_is(dataset, HANDLE_DATASET));
    REQUIRE(tensorDesc == NULL || handle_is(tensorDesc, HANDLE_TENSOR_DESC));
    REQUIRE(index < dataset->count);
    DatasetEntry *entry = &dataset->entries[index];
    if (tensorDesc == NULL) {
        desc_drop(entry);
        return ACL_SUCCESS;
    }
    if (!handle_is(entry->desc, HANDLE_TENSOR_DESC)) {
        entry->desc = tensordesc_new(tensorDesc->type, tensorDesc->dims.count,
            dims_list(&tensorDesc->dims), tensorDesc->format);
        return entry->desc != NULL ? ACL_SUCCESS : fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    entry->desc->type = tensorDesc->type;
    entry->desc->format = tensorDesc->format;
    if (!dims_set(&entry->desc->dims, tensorDesc->dims.count, dims_list(&tensorDesc->dims))) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    return ACL_SUCCESS;
}

aclTensorDesc *sim_aclmdlGetDatasetTensorDesc(const aclmdlDataset *dataset, size_t index)
{
    if (!handle_is(dataset, HANDLE_DATASET) || index >= dataset->count) {
        (void)fail(ACL_ERROR_INVALID_PARAM, "the dataset has no buffer %zu", index);
        return NULL;
    }
    return dataset->entries[index].desc;
}
