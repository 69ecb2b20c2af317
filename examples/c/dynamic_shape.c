/* dynamic_shape.c: runs a model of dynamic shape, with an allocator of this program for its tensors.
 *
 *   dynamic_shape MODEL ROWS [ROWS ...]
 *
 * The model has one float32 input [rows, columns] and one float32 output. The order of calls
 * is that of the documentation: load; describe the input's real shape; register an allocator for the
 * stream; execute; synchronise; read the output's shape; unregister; unload. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"

#define OK(call) \
    do { \
        aclError status = (call); \
        if (status != ACL_SUCCESS) { \
            fprintf(stderr, "%s: %d: %s\n", #call, status, aclGetRecentErrMsg()); \
            exit(1); \
        } \
    } while (0)

/* ---- an allocator: blocks from aclrtMalloc, kept for reuse ------------------------------------- */

typedef struct Block {
    struct Block *next;
    void *address;
    size_t size;
} Block;

typedef struct Cache {
    Block *idle;
    int allocations, mallocs, live;
} Cache;

static void *on_alloc(aclrtAllocator allocator, size_t size)
{
    Cache *cache = allocator;
    Block **link = &cache->idle;
    while (*link != NULL && (*link)->size != size) {
        link = &(*link)->next;
    }
    Block *block = *link;
    if (block != NULL) {
        *link = block->next;
    } else {
        block = malloc(sizeof *block);
        if (block == NULL || aclrtMalloc(&block->address, size, ACL_MEM_MALLOC_HUGE_FIRST) != 0) {
            free(block);
            return NULL; /* then the execution fails and frees the blocks that it has */
        }
        block->size = size;
        cache->mallocs++;
    }
    cache->allocations++;
    cache->live++;
    return block;
}

/* Takes a block back. Its last reader is queued, but may not have run; so only work on the same
 * stream may use the block again. */
static void on_free(aclrtAllocator allocator, void *handle)
{
    Cache *cache = allocator;
    Block *block = handle;
    block->next = cache->idle;
    cache->idle = block;
    cache->live--;
}

static void *on_advise(aclrtAllocator allocator, size_t size, void *address)
{
    (void)address;
    return on_alloc(allocator, size);
}

static void *on_address(void *handle)
{
    return ((Block *)handle)->address;
}

static void cache_register(Cache *cache, aclrtStream stream)
{
    aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc();
    OK(aclrtAllocatorSetObjToDesc(desc, cache));
    OK(aclrtAllocatorSetAllocFuncToDesc(desc, on_alloc));
    OK(aclrtAllocatorSetFreeFuncToDesc(desc, on_free));
    OK(aclrtAllocatorSetAllocAdviseFuncToDesc(desc, on_advise));
    OK(aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, on_address));
    OK(aclrtAllocatorRegister(stream, desc));
    OK(aclrtAllocatorDestroyDesc(desc));
}

static void cache_free(Cache *cache)
{
    while (cache->idle != NULL) {
        Block *next = cache->idle->next;
        OK(aclrtFree(cache->idle->address));
        free(cache->idle);
        cache->idle = next;
    }
}

/* ---- one execution ------------------------------------------------------------------------------ */

static aclmdlDataset *dataset_make(void *memory, size_t size)
{
    aclmdlDataset *dataset = aclmdlCreateDataset();
    OK(aclmdlAddDatasetBuffer(dataset, aclCreateDataBuffer(memory, size)));
    return dataset;
}

static void dataset_free(aclmdlDataset *dataset)
{
    aclDataBuffer *buffer = aclmdlGetDatasetBuffer(dataset, 0);
    OK(aclrtFree(aclGetDataBufferAddr(buffer)));
    OK(aclDestroyDataBuffer(buffer));
    OK(aclmdlDestroyDataset(dataset));
}

static void shape_print(int64_t rows, int64_t columns, const aclmdlDataset *output)
{
    const aclTensorDesc *desc = aclmdlGetDatasetTensorDesc(output, 0);
    printf("[%lld, %lld] -> [", (long long)rows, (long long)columns);
    for (size_t d = 0; d < aclGetTensorDescNumDims(desc); d++) {
        int64_t dim;
        OK(aclGetTensorDescDimV2(desc, d, &dim));
        printf("%s%lld", d == 0 ? "" : ", ", (long long)dim);
    }
    printf("], %zu bytes\n", aclGetTensorDescSize(desc));
}

static void model_serve(uint32_t model, int64_t rows, int64_t columns, aclrtStream stream)
{
    enum { OUTPUT_BYTES = 1 << 20 };
    void *in, *out;
    int64_t dims[] = {rows, columns};
    size_t size = (size_t)(rows * columns) * sizeof(float);
    OK(aclrtMalloc(&in, size, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMalloc(&out, OUTPUT_BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemset(in, size, 0, size));
    aclmdlDataset *input = dataset_make(in, size), *output = dataset_make(out, OUTPUT_BYTES);
    aclTensorDesc *desc = aclCreateTensorDesc(ACL_FLOAT, 2, dims, ACL_FORMAT_ND);
    OK(aclmdlSetDatasetTensorDesc(input, desc, 0));
    OK(aclmdlExecuteAsync(model, input, output, stream));
    OK(aclrtSynchronizeStream(stream));
    shape_print(rows, columns, output);
    aclDestroyTensorDesc(desc);
    dataset_free(input);
    dataset_free(output);
}

static int64_t columns_of(uint32_t model)
{
    aclmdlIODims dims;
    aclmdlDesc *desc = aclmdlCreateDesc();
    OK(aclmdlGetDesc(desc, model));
    OK(aclmdlGetInputDims(desc, 0, &dims));
    OK(aclmdlDestroyDesc(desc));
    return dims.dims[dims.dimCount - 1];
}

int main(int argc, char **argv)
{
    Cache cache = {0};
    aclrtStream stream;
    uint32_t model;
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL ROWS [ROWS ...]\n", argv[0]);
        return 2;
    }
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclmdlLoadFromFile(argv[1], &model));
    OK(aclrtCreateStream(&stream));
    cache_register(&cache, stream);
    for (int i = 2; i < argc; i++) {
        model_serve(model, strtoll(argv[i], NULL, 10), columns_of(model), stream);
    }
    OK(aclmdlUnload(model)); /* before the allocator is destroyed: unloading may free blocks */
    OK(aclrtDestroyStream(stream));
    OK(aclrtAllocatorUnregister(stream));
    printf("%d blocks from %d mallocs, %d still out\n", cache.allocations, cache.mallocs, cache.live);
    cache_free(&cache);
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
