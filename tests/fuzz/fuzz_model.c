/* fuzz_model.c: loads a file of unknown origin as an ONNX model, reads its description, and runs it once. */
#include "fuzz.h"

enum { TENSORS_MAX = 16, TENSOR_BYTES_MAX = 1 << 20, FREE_DIMENSION = 3 };

typedef struct Side {
    aclmdlDataset *dataset;
    aclDataBuffer *buffers[TENSORS_MAX];
    aclTensorDesc *descs[TENSORS_MAX];
    uint8_t *memory[TENSORS_MAX];
    size_t sizes[TENSORS_MAX];
    size_t count;
} Side;

static aclrtStream stream;

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    stream = stream_start();
    return 0;
}

static void side_add(Side *side, size_t size, uint32_t seed)
{
    size_t at = side->count++;
    side->memory[at] = size != 0 ? device_memory(size) : NULL;
    side->sizes[at] = side->memory[at] != NULL ? size : 0;
    contents_fill(side->memory[at], side->sizes[at], seed);
    side->buffers[at] = aclCreateDataBuffer(side->memory[at], side->sizes[at]);
    must(aclmdlAddDatasetBuffer(side->dataset, side->buffers[at]));
}

/* Frees the buffers of all inputs or outputs.  Memory that a run allocated for outputs of unknown size belongs to the
   caller, so it is freed too. */
static void side_drop(Side *side)
{
    for (size_t i = 0; i < side->count; i++) {
        void *address = aclGetDataBufferAddr(side->buffers[i]);
        if (address != NULL && address != side->memory[i]) {
            (void)aclrtFree(address);
        }
        device_free(side->memory[i], side->sizes[i]);
        must(aclDestroyDataBuffer(side->buffers[i]));
        if (side->descs[i] != NULL) {
            aclDestroyTensorDesc(side->descs[i]);
        }
    }
    must(aclmdlDestroyDataset(side->dataset));
}

/* Returns the bytes of an input with fixed values for its free dimensions; 0 if these are too many bytes. */
static size_t input_size(const aclmdlIODims *dims, aclDataType type)
{
    size_t size = aclDataTypeSize(type);
    for (size_t i = 0; i < dims->dimCount; i++) {
        if (dims->dims[i] <= 0 || (uint64_t)dims->dims[i] > TENSOR_BYTES_MAX / (size + 1)) {
            return 0;
        }
        size *= (size_t)dims->dims[i];
    }
    return size;
}

static void input_add(Side *side, aclmdlDesc *desc, size_t index, uint32_t seed)
{
    aclmdlIODims dims = {0};
    bool is_free = false;
    aclDataType type = aclmdlGetInputDataType(desc, index);
    (void)aclmdlGetInputDims(desc, index, &dims);
    for (size_t i = 0; i < dims.dimCount; i++) {
        is_free |= dims.dims[i] < 0;
        dims.dims[i] = dims.dims[i] < 0 ? FREE_DIMENSION : dims.dims[i];
    }
    side_add(side, input_size(&dims, type), seed + (uint32_t)index);
    if (is_free) {
        aclTensorDesc *made = aclCreateTensorDesc(type, (int)dims.dimCount, dims.dims, ACL_FORMAT_ND);
        side->descs[index] = made;
        (void)aclmdlSetDatasetTensorDesc(side->dataset, made, index);
    }
}

static void model_describe(aclmdlDesc *desc)
{
    aclmdlIODims dims;
    aclmdlIODimsRange range;
    aclmdlBatch batch;
    aclmdlHW sizes;
    aclmdlIODims gears[8];
    size_t count = 0, index = 0;
    for (size_t i = 0; i < aclmdlGetNumInputs(desc); i++) {
        (void)aclmdlGetInputDimsV2(desc, i, &dims);
        (void)aclmdlGetInputDimsRange(desc, i, &range);
        (void)aclmdlGetDynamicHW(desc, i, &sizes);
        (void)aclmdlGetInputIndexByName(desc, aclmdlGetInputNameByIndex(desc, i), &index);
        (void)aclmdlGetInputFormat(desc, i);
    }
    for (size_t i = 0; i < aclmdlGetNumOutputs(desc); i++) {
        (void)aclmdlGetOutputDims(desc, i, &dims);
        (void)aclmdlGetCurOutputDims(desc, i, &dims);
        (void)aclmdlGetOutputIndexByName(desc, aclmdlGetOutputNameByIndex(desc, i), &index);
    }
    (void)aclmdlGetDynamicBatch(desc, &batch);
    (void)aclmdlGetInputDynamicGearCount(desc, (size_t)-1, &count);
    (void)aclmdlGetInputDynamicDims(desc, (size_t)-1, gears, count < 8 ? count : 8);
}

static void model_run(uint32_t model, aclmdlDesc *desc, uint32_t seed)
{
    Side input = {.dataset = aclmdlCreateDataset()}, output = {.dataset = aclmdlCreateDataset()};
    size_t inputs = aclmdlGetNumInputs(desc), outputs = aclmdlGetNumOutputs(desc);
    for (size_t i = 0; i < inputs && i < TENSORS_MAX; i++) {
        input_add(&input, desc, i, seed);
    }
    for (size_t i = 0; i < outputs && i < TENSORS_MAX; i++) {
        size_t size = aclmdlGetOutputSizeByIndex(desc, i);
        side_add(&output, size <= TENSOR_BYTES_MAX ? size : 0, 0);
    }
    (void)aclmdlExecuteAsync(model, input.dataset, output.dataset, stream);
    stream_finish(stream); /* also after an error, as the tasks of the first nodes may have been queued */
    side_drop(&input);
    side_drop(&output);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    uint32_t model;
    size_t work, weights;
    aclmdlDesc *desc = aclmdlCreateDesc();
    (void)aclmdlQuerySizeFromMem(bytes, length, &work, &weights);
    if (aclmdlGetDescFromMem(desc, bytes, length) == ACL_SUCCESS) {
        model_describe(desc);
    }
    if (aclmdlLoadFromMem(bytes, length, &model) == ACL_SUCCESS) {
        must(aclmdlGetDesc(desc, model));
        model_run(model, desc, hash_of(bytes, length));
        model_describe(desc);
        must(aclmdlUnload(model));
    }
    must(aclmdlDestroyDesc(desc));
    return 0;
}
