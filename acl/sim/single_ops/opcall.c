/* opcall.c: the API functions for single operators, and operator handles. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "generated/exports.h"
#include "memory/memory.h"
#include "single_ops/opapi.h"

/* --- running --- */

static aclError ends_execute(const char *type, int input_count, aclTensorDesc *const *input_descs,
    aclDataBuffer *const *inputs, int output_count, aclTensorDesc *const *output_descs,
    aclDataBuffer *const *outputs, const aclopAttr *attr, bool describe, aclrtStream stream)
{
    OpEnds ends = {input_count, output_count, input_descs, inputs, output_descs, outputs, describe};
    return op_execute(type, &ends, attr, stream);
}

#define UNCONST_DESCS(descs) ((aclTensorDesc *const *)(uintptr_t)(descs))
#define UNCONST_BUFFERS(buffers) ((aclDataBuffer *const *)(uintptr_t)(buffers))

aclError sim_aclopExecute(const char *opType, int numInputs, const aclTensorDesc *const inputDesc[],
    const aclDataBuffer *const inputs[], int numOutputs, const aclTensorDesc *const outputDesc[],
    aclDataBuffer *const outputs[], const aclopAttr *attr, aclrtStream stream)
{
    return ends_execute(opType, numInputs, UNCONST_DESCS(inputDesc), UNCONST_BUFFERS(inputs),
        numOutputs, UNCONST_DESCS(outputDesc), outputs, attr, false, stream);
}

aclError sim_aclopExecuteV2(const char *opType, int numInputs, aclTensorDesc *inputDesc[],
    aclDataBuffer *inputs[], int numOutputs, aclTensorDesc *outputDesc[], aclDataBuffer *outputs[],
    aclopAttr *attr, aclrtStream stream)
{
    return ends_execute(
        opType, numInputs, inputDesc, inputs, numOutputs, outputDesc, outputs, attr, true, stream);
}

static aclError engine_check(aclopEngineType engine, aclopCompileType compile)
{
    REQUIRE(engine >= ACL_ENGINE_SYS && engine <= ACL_ENGINE_VECTOR);
    REQUIRE(compile == ACL_COMPILE_SYS || compile == ACL_COMPILE_UNREGISTERED);
    return ACL_SUCCESS;
}

SIM_SHARED aclError sim_aclopCompileAndExecute(const char *opType, int numInputs,
    const aclTensorDesc *const inputDesc[], const aclDataBuffer *const inputs[], int numOutputs,
    const aclTensorDesc *const outputDesc[], aclDataBuffer *const outputs[], const aclopAttr *attr,
    aclopEngineType engineType, aclopCompileType compileFlag, const char *opPath,
    aclrtStream stream)
{
    (void)opPath;
    TRY(engine_check(engineType, compileFlag));
    return ends_execute(opType, numInputs, UNCONST_DESCS(inputDesc), UNCONST_BUFFERS(inputs),
        numOutputs, UNCONST_DESCS(outputDesc), outputs, attr, false, stream);
}

SIM_SHARED aclError sim_aclopCompileAndExecuteV2(const char *opType, int numInputs,
    aclTensorDesc *inputDesc[], aclDataBuffer *inputs[], int numOutputs,
    aclTensorDesc *outputDesc[], aclDataBuffer *outputs[], aclopAttr *attr,
    aclopEngineType engineType, aclopCompileType compileFlag, const char *opPath,
    aclrtStream stream)
{
    (void)opPath;
    TRY(engine_check(engineType, compileFlag));
    return ends_execute(
        opType, numInputs, inputDesc, inputs, numOutputs, outputDesc, outputs, attr, true, stream);
}

static aclError type_check(const char *type)
{
    REQUIRE(type);
    return op_find(type, OP_ACL) != NULL || opkernel_registered(type) ? ACL_SUCCESS
        : fail(ACL_ERROR_OP_NOT_FOUND, "the simulator has no operator %s", type);
}

SIM_SHARED aclError sim_aclopCompile(const char *opType, int numInputs,
    const aclTensorDesc *const inputDesc[], int numOutputs, const aclTensorDesc *const outputDesc[],
    const aclopAttr *attr, aclopEngineType engineType, aclopCompileType compileFlag,
    const char *opPath)
{
    (void)opPath;
    REQUIRE(opType);
    REQUIRE(numInputs >= 0 && (numInputs == 0 || inputDesc != NULL));
    REQUIRE(numOutputs >= 0 && (numOutputs == 0 || outputDesc != NULL));
    REQUIRE(attr == NULL || handle_is(attr, HANDLE_OP_ATTR));
    TRY(engine_check(engineType, compileFlag));
    return type_check(opType);
}

/* --- shapes --- */

typedef struct Shapes {
    Tensor *tensors;          /* inputs, then outputs */
    const Tensor **inputs;
} Shapes;

static aclError shapes_infer(
    const OpKind *kind, const AttrSet *attrs, int inputs, int outputs, const Shapes *shapes)
{
    char message[OP_MESSAGE_ROOM] = "";
    OpCall call = {
        .kind = kind,
        .attrs = attrs == NULL ? NULL : &attrs->list,
        .threads = 1,
        .input_count = inputs,
        .output_count = outputs,
        .inputs = shapes->inputs,
        .outputs = shapes->tensors + inputs,
        .message = message,
    };
    return op_infer(&call)
        ? ACL_SUCCESS
        : fail(ACL_ERROR_OP_INPUT_NOT_MATCH, "operator %s: %s", kind->name, message);
}

static aclError shape_read(const OpKind *kind, const aclTensorDesc *desc,
    const aclDataBuffer *buffer, int i, Tensor *tensor)
{
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    TRY(tensordesc_read(desc, "an input", tensor));
    size_t bytes = (size_t)tensor_bytes(tensor);
    void *data = desc->constant != NULL ? desc->constant : sim_aclGetDataBufferAddr(buffer);
    size_t room = desc->constant != NULL ? desc->constant_bytes : sim_aclGetDataBufferSizeV2(buffer);
    if (room < bytes) {
        return fail(ACL_ERROR_OP_INPUT_NOT_MATCH,
            "input %d needs %zu bytes, its data buffer has %zu", i, bytes, room);
    }
    bool own = desc->constant != NULL || bytes == 0;
    tensor->data = own || data == NULL ? data : memory_at(data, bytes, false);
    if (op_infer_reads(kind, i) && bytes > 0 && tensor->data == NULL) {
        return fail(ACL_ERROR_OP_INPUT_NOT_MATCH,
            "input %d: there is no memory at %p, and its values are needed", i, data);
    }
    return ACL_SUCCESS;
}

static aclError inference_run(const OpKind *kind, int inputs, aclTensorDesc **in,
    aclDataBuffer **buffers, int outputs, aclTensorDesc **out, const aclopAttr *attr,
    const Shapes *shapes)
{
    AttrSet *attrs;
    for (int i = 0; i < inputs; i++) {
        TRY(shape_read(kind, in[i], buffers[i], i, &shapes->tensors[i]));
        shapes->inputs[i] = &shapes->tensors[i];
    }
    TRY(attrs_take(attr, &attrs));
    aclError status = shapes_infer(kind, attrs, inputs, outputs, shapes);
    attrs_release(attrs);
    for (int i = 0; i < outputs && status == ACL_SUCCESS; i++) {
        REQUIRE(handle_is(out[i], HANDLE_TENSOR_DESC));
        status = tensordesc_write(out[i], &shapes->tensors[inputs + i])
            ? ACL_SUCCESS
            : fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    return status;
}

aclError sim_aclopInferShape(const char *opType, int numInputs, aclTensorDesc *inputDesc[],
    aclDataBuffer *inputs[], int numOutputs, aclTensorDesc *outputDesc[], aclopAttr *attr)
{
    REQUIRE(opType);
    REQUIRE(numInputs >= 0 && (numInputs == 0 || (inputDesc != NULL && inputs != NULL)));
    REQUIRE(numOutputs > 0 && outputDesc != NULL);
    const OpKind *kind = op_find(opType, OP_ACL);
    if (kind == NULL) {
        return fail(ACL_ERROR_OP_NOT_FOUND, "the simulator has no operator %s", opType);
    }
    size_t count = (size_t)numInputs + (size_t)numOutputs;
    Shapes shapes = {calloc(count, sizeof(Tensor)), calloc(count, sizeof(Tensor *))};
    aclError status = shapes.tensors == NULL || shapes.inputs == NULL
        ? fail(ACL_ERROR_BAD_ALLOC, "no host memory")
        : inference_run(kind, numInputs, inputDesc, inputs, numOutputs, outputDesc, attr, &shapes);
    free(shapes.tensors);
    free(shapes.inputs);
    return status;
}

/* --- casts --- */

static aclError cast_attr(aclDataType to, aclopAttr **attr)
{
    *attr = sim_aclopCreateAttr();
    return *attr == NULL ? fail(ACL_ERROR_BAD_ALLOC, "no memory for an attribute")
                         : sim_aclopSetAttrInt(*attr, "dst_type", to);
}

aclError sim_aclopCast(const aclTensorDesc *srcDesc, const aclDataBuffer *srcBuffer,
    const aclTensorDesc *dstDesc, aclDataBuffer *dstBuffer, uint8_t truncate, aclrtStream stream)
{
    aclopAttr *attr;
    REQUIRE(handle_is(srcDesc, HANDLE_TENSOR_DESC));
    REQUIRE(handle_is(dstDesc, HANDLE_TENSOR_DESC));
    (void)truncate;
    TRY(cast_attr(dstDesc->type, &attr));
    aclError status = ends_execute("Cast", 1, UNCONST_DESCS(&srcDesc), UNCONST_BUFFERS(&srcBuffer),
        1, UNCONST_DESCS(&dstDesc), &dstBuffer, attr, false, stream);
    sim_aclopDestroyAttr(attr);
    return status;
}

/* --- handles: an operator with its descriptions, to be run with changing buffers --- */

struct aclopHandle {
    char *type;
    int input_count, output_count;
    aclTensorDesc **descs; /* copies: inputs, then outputs */
    aclopAttr *attr;
};

static aclTensorDesc *desc_copy(const aclTensorDesc *desc)
{
    aclTensorDesc *copy =
        tensordesc_new(desc->type, desc->dims.count, dims_list(&desc->dims), desc->format);
    if (copy != NULL && desc->constant != NULL
        && sim_aclSetTensorConst(copy, desc->constant, desc->constant_bytes) != ACL_SUCCESS) {
        sim_aclDestroyTensorDesc(copy);
        return NULL;
    }
    if (copy != NULL) {
        copy->place = desc->place;
    }
    return copy;
}

void sim_aclopDestroyHandle(aclopHandle *handle)
{
    if (!handle_is(handle, HANDLE_OP) || !handle_kill(handle)) {
        return;
    }
    for (int i = 0; handle->descs != NULL && i < handle->input_count + handle->output_count; i++) {
        sim_aclDestroyTensorDesc(handle->descs[i]);
    }
    sim_aclopDestroyAttr(handle->attr);
    free(handle->descs);
    free(handle->type);
    handle->descs = NULL;
    handle->type = NULL;
    handle_retire(handle);
}

/* Checks the descriptions and copies them into the operator handle. Its attributes are filled in already: opattr_copy
   shares their set with the user's aclopAttr, which copies the set before it changes an attribute. */
static aclError handle_fill(
    aclopHandle *handle, const aclTensorDesc *const *in, const aclTensorDesc *const *out)
{
    for (int i = 0; i < handle->input_count + handle->output_count; i++) {
        const aclTensorDesc *desc = i < handle->input_count ? in[i] : out[i - handle->input_count];
        REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
        handle->descs[i] = desc_copy(desc);
        REQUIRE(handle->descs[i]);
    }
    return ACL_SUCCESS;
}

aclError sim_aclopCreateHandle(const char *opType, int numInputs,
    const aclTensorDesc *const inputDesc[], int numOutputs, const aclTensorDesc *const outputDesc[],
    const aclopAttr *opAttr, aclopHandle **handle)
{
    REQUIRE(opType);
    REQUIRE(handle);
    REQUIRE(numInputs >= 0 && (numInputs == 0 || inputDesc != NULL));
    REQUIRE(numOutputs >= 0 && (numOutputs == 0 || outputDesc != NULL));
    REQUIRE(opAttr == NULL || handle_is(opAttr, HANDLE_OP_ATTR));
    TRY(type_check(opType));
    aclopHandle *made = handle_new(HANDLE_OP, sizeof *made);
    if (made == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no memory for an operator's handle");
    }
    *made = (aclopHandle){strdup(opType), numInputs, numOutputs,
        calloc((size_t)numInputs + (size_t)numOutputs + 1, sizeof(aclTensorDesc *)),
        opattr_copy(opAttr)};
    aclError status =
        made->type == NULL || made->descs == NULL || (opAttr != NULL && made->attr == NULL)
        ? fail(ACL_ERROR_BAD_ALLOC, "no memory for an operator's handle")
        : handle_fill(made, inputDesc, outputDesc);
    if (status != ACL_SUCCESS) {
        sim_aclopDestroyHandle(made);
        return status;
    }
    *handle = made;
    return ACL_SUCCESS;
}

aclError sim_aclopCreateHandleForCast(
    aclTensorDesc *srcDesc, aclTensorDesc *dstDesc, uint8_t truncate, aclopHandle **handle)
{
    aclopAttr *attr;
    REQUIRE(handle_is(srcDesc, HANDLE_TENSOR_DESC));
    REQUIRE(handle_is(dstDesc, HANDLE_TENSOR_DESC));
    (void)truncate;
    TRY(cast_attr(dstDesc->type, &attr));
    aclError status = sim_aclopCreateHandle("Cast", 1, (const aclTensorDesc *const[]){srcDesc}, 1,
        (const aclTensorDesc *const[]){dstDesc}, attr, handle);
    sim_aclopDestroyAttr(attr);
    return status;
}

aclError sim_aclopExecWithHandle(aclopHandle *handle, int numInputs,
    const aclDataBuffer *const inputs[], int numOutputs, aclDataBuffer *const outputs[],
    aclrtStream stream)
{
    REQUIRE(handle_is(handle, HANDLE_OP));
    if (numInputs != handle->input_count || numOutputs != handle->output_count) {
        return fail(numInputs != handle->input_count ? ACL_ERROR_OP_INPUT_NOT_MATCH
                                                     : ACL_ERROR_OP_OUTPUT_NOT_MATCH,
            "%s was made for %d inputs and %d outputs, got %d and %d", handle->type,
            handle->input_count, handle->output_count, numInputs, numOutputs);
    }
    return ends_execute(handle->type, numInputs, handle->descs, UNCONST_BUFFERS(inputs), numOutputs,
        handle->descs + numInputs, outputs, handle->attr, false, stream);
}

/* --- settings --- */

/* On a device, compiled operators are looked for in this folder. The simulator has its own
   operators and only checks that the folder exists. */
aclError sim_aclopSetModelDir(const char *modelDir)
{
    struct stat about;
    REQUIRE(modelDir);
    if (stat(modelDir, &about) != 0 || !S_ISDIR(about.st_mode)) {
        return fail(ACL_ERROR_READ_MODEL_FAILURE, "there is no folder %s", modelDir);
    }
    return ACL_SUCCESS;
}

aclError sim_aclopLoad(const void *model, size_t modelSize)
{
    REQUIRE(model);
    REQUIRE(modelSize > 0);
    return fail(ACL_ERROR_FEATURE_UNSUPPORTED,
        "offline operators cannot run on the simulator; its library has its own");
}

/* --- compile options: stored and returned --- */

enum { OPTIONS = ACL_OP_DEBUG_OPTION + 1, OPTION_ROOM = 256 };

FILE_LOCK(options_lock);
static char options[OPTIONS][OPTION_ROOM];

static aclError option_check(aclCompileOpt opt)
{
    REQUIRE((int)opt >= 0 && (int)opt < OPTIONS);
    return ACL_SUCCESS;
}

SIM_SHARED aclError sim_aclSetCompileopt(aclCompileOpt opt, const char *value)
{
    REQUIRE(value);
    TRY(option_check(opt));
    REQUIRE(strlen(value) < OPTION_ROOM);
    pthread_mutex_lock(&options_lock);
    (void)strcpy(options[opt], value);
    pthread_mutex_unlock(&options_lock);
    return ACL_SUCCESS;
}

SIM_SHARED size_t sim_aclGetCompileoptSize(aclCompileOpt opt)
{
    if (option_check(opt) != ACL_SUCCESS) {
        return 0;
    }
    pthread_mutex_lock(&options_lock);
    size_t size = strlen(options[opt]) + 1;
    pthread_mutex_unlock(&options_lock);
    return size;
}

SIM_SHARED aclError sim_aclGetCompileopt(aclCompileOpt opt, char *value, size_t length)
{
    REQUIRE(value);
    TRY(option_check(opt));
    REQUIRE(length >= sim_aclGetCompileoptSize(opt));
    pthread_mutex_lock(&options_lock);
    (void)strcpy(value, options[opt]);
    pthread_mutex_unlock(&options_lock);
    return ACL_SUCCESS;
}

SIM_SHARED aclError sim_aclopSetCompileFlag(aclOpCompileFlag flag)
{
    REQUIRE(flag == ACL_OP_COMPILE_DEFAULT || flag == ACL_OP_COMPILE_FUZZ);
    return ACL_SUCCESS;
}
