/* modeldesc.c: aclmdlDesc: names, types and shapes of a model's inputs and outputs.

   A description is a copy: it does not keep its model loaded. A dynamic dimension is given as -1,
   and the size of an input or output with a dynamic dimension as 0. For a model with gears, the
   sizes and the outputs' dimensions are those of the largest gear. A name longer than ACL allows
   is replaced by a name made from the index of the input or output; aclmdlGetTensorRealName gives
   the real name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"
#include "models/ort.h"

typedef struct End {
    char *name;
    aclDataType type;
    int rank;
    int64_t dims[TENSOR_RANK_MAX];
    size_t bytes;        /* size of the buffer; 0 if a dimension is dynamic */
} End;

struct aclmdlDesc {
    uint32_t model;      /* number of the model; 0 if the description was made from a file */
    size_t input_count, output_count;
    End *inputs, *outputs;
    Gears *gears;
};

static const size_t NAME_ROOM = ACL_MAX_TENSOR_NAME_LEN;

/* --- filling --- */

static void ends_free(End *ends, size_t count)
{
    for (size_t i = 0; ends != NULL && i < count; i++) {
        free(ends[i].name);
    }
    free(ends);
}

static void desc_clear(aclmdlDesc *desc)
{
    ends_free(desc->inputs, desc->input_count);
    ends_free(desc->outputs, desc->output_count);
    free(desc->gears);
    *desc = (aclmdlDesc){0};
}

static End *ends_copy(const Net *net, const int *values, size_t count)
{
    End *ends = calloc(count + 1, sizeof *ends);
    for (size_t i = 0; ends != NULL && i < count; i++) {
        const NetValue *value = &net->values[values[i]];
        const Tensor *constant = value->constant;
        Tensor shape = {.type = constant != NULL ? constant->type : value->type,
            .rank = constant != NULL ? constant->rank : value->rank < 0 ? 0 : value->rank};
        memcpy(shape.dims, constant != NULL ? constant->dims : value->dims, sizeof shape.dims);
        ends[i] = (End){.name = strdup(value->name), .type = shape.type, .rank = shape.rank};
        memcpy(ends[i].dims, shape.dims, sizeof shape.dims);
        bool fixed = (constant != NULL || value->rank >= 0) && tensor_fits(&shape);
        ends[i].bytes = fixed ? (size_t)tensor_bytes(&shape) : 0;
    }
    return ends;
}

static void end_grow(End *end, const Tensor *shape)
{
    size_t bytes = tensor_fits(shape) ? (size_t)tensor_bytes(shape) : 0;
    end->bytes = bytes > end->bytes ? bytes : end->bytes;
}

static void end_shape(End *end, const Tensor *shape)
{
    end->type = shape->type;
    end->rank = shape->rank;
    memcpy(end->dims, shape->dims, sizeof end->dims);
    end_grow(end, shape);
}

/* For a model with gears: sets the sizes of inputs and outputs, and the outputs' dimensions, to
   those of the largest gear. */
static void gears_measure(const Model *model, End *inputs, End *outputs)
{
    for (int g = 0; g < model->gears.count; g++) {
        for (int i = 0; i < model->net.input_count; i++) {
            Tensor shape;
            model_input_dims(model, i, model->gears.value[g], model->gears.values, &shape);
            end_grow(&inputs[i], &shape);
        }
    }
    for (int i = 0; i < model->net.output_count; i++) {
        const Tensor *largest = model_geared_output(model, -1, i);
        if (largest != NULL) {
            end_shape(&outputs[i], largest);
        }
    }
}

/* For a model whose inputs have fixed shapes: sets the outputs' shapes to the inferred ones,
   because the file may not state them. */
static void outputs_complete(const Model *model, End *outputs)
{
    Tensor *shapes = calloc((size_t)model->net.output_count + 1, sizeof *shapes);
    bool known = shapes != NULL && model_output_shapes(model, NULL, 0, shapes);
    for (int i = 0; known && i < model->net.output_count; i++) {
        end_shape(&outputs[i], &shapes[i]);
    }
    free(shapes);
}

static aclError desc_fill(aclmdlDesc *desc, const Model *model)
{
    bool geared = model->gears.kind != GEARS_NONE;
    desc_clear(desc);
    desc->inputs = ends_copy(&model->net, model->net.inputs, (size_t)model->net.input_count);
    desc->outputs = ends_copy(&model->net, model->net.outputs, (size_t)model->net.output_count);
    desc->gears = malloc(sizeof *desc->gears);
    if (desc->inputs == NULL || desc->outputs == NULL || desc->gears == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a description");
    }
    *desc->gears = model->gears;
    desc->model = model->id;
    desc->input_count = (size_t)model->net.input_count;
    desc->output_count = (size_t)model->net.output_count;
    if (geared) {
        gears_measure(model, desc->inputs, desc->outputs);
        End *extra = &desc->inputs[desc->input_count++];
        *extra = (End){.name = strdup(ACL_DYNAMIC_TENSOR_NAME), .type = ACL_INT64, .rank = 1,
            .dims = {model->gears.values}, .bytes = (size_t)model->gears.values * sizeof(int64_t)};
    } else {
        outputs_complete(model, desc->outputs);
    }
    return ACL_SUCCESS;
}

aclmdlDesc *sim_aclmdlCreateDesc(void)
{
    return handle_new(HANDLE_MODEL_DESC, sizeof(aclmdlDesc));
}

aclError sim_aclmdlDestroyDesc(aclmdlDesc *modelDesc)
{
    REQUIRE(handle_is(modelDesc, HANDLE_MODEL_DESC) && handle_kill(modelDesc));
    desc_clear(modelDesc);
    handle_retire(modelDesc);
    return ACL_SUCCESS;
}

aclError sim_aclmdlGetDesc(aclmdlDesc *modelDesc, uint32_t modelId)
{
    Model *model;
    REQUIRE(handle_is(modelDesc, HANDLE_MODEL_DESC));
    TRY(model_find(modelId, &model));
    aclError status = desc_fill(modelDesc, model);
    model_release(model);
    return status;
}

static aclError desc_from(aclmdlDesc *desc, const ModelFile *file)
{
    Model *model = calloc(1, sizeof *model);
    if (model == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    aclError status = modelfile_parse(file, &model->net, &model->gears, &model->ort);
    if (status == ACL_SUCCESS) {
        status = model_gears_infer(model);
        status = status == ACL_SUCCESS ? desc_fill(desc, model) : status;
        free(model->geared);
        ort_free(model->ort);
        net_free(&model->net);
    }
    free(model);
    return status;
}

aclError sim_aclmdlGetDescFromFile(aclmdlDesc *modelDesc, const char *modelPath)
{
    ModelFile file;
    REQUIRE(handle_is(modelDesc, HANDLE_MODEL_DESC));
    REQUIRE(modelPath);
    TRY(modelfile_open(modelPath, &file));
    aclError status = desc_from(modelDesc, &file);
    modelfile_close(&file);
    return status;
}

aclError sim_aclmdlGetDescFromMem(aclmdlDesc *modelDesc, const void *model, size_t modelSize)
{
    REQUIRE(handle_is(modelDesc, HANDLE_MODEL_DESC));
    REQUIRE(model);
    REQUIRE(modelSize > 0);
    return desc_from(
        modelDesc, &(ModelFile){.bytes = (void *)(uintptr_t)model, .length = modelSize});
}

/* --- asking --- */

typedef enum Side { INPUTS, OUTPUTS } Side;

static const End *end_at(const aclmdlDesc *desc, Side side, size_t index)
{
    if (!handle_is(desc, HANDLE_MODEL_DESC)
        || index >= (side == INPUTS ? desc->input_count : desc->output_count)) {
        (void)fail(ACL_ERROR_INVALID_PARAM, "the model has no %s %zu",
            side == INPUTS ? "input" : "output", index);
        return NULL;
    }
    return side == INPUTS ? &desc->inputs[index] : &desc->outputs[index];
}

size_t sim_aclmdlGetNumInputs(aclmdlDesc *modelDesc)
{
    return handle_is(modelDesc, HANDLE_MODEL_DESC) ? modelDesc->input_count : 0;
}

size_t sim_aclmdlGetNumOutputs(aclmdlDesc *modelDesc)
{
    return handle_is(modelDesc, HANDLE_MODEL_DESC) ? modelDesc->output_count : 0;
}

size_t sim_aclmdlGetInputSizeByIndex(aclmdlDesc *modelDesc, size_t index)
{
    const End *end = end_at(modelDesc, INPUTS, index);
    return end == NULL ? 0 : end->bytes;
}

size_t sim_aclmdlGetOutputSizeByIndex(aclmdlDesc *modelDesc, size_t index)
{
    const End *end = end_at(modelDesc, OUTPUTS, index);
    return end == NULL ? 0 : end->bytes;
}

/* Gives the name of an input or output. If it is too long for the API's structs, gives a name made from the index. */
static void name_short(const aclmdlDesc *desc, Side side, size_t index, char *name)
{
    const End *end = end_at(desc, side, index);
    if (strlen(end->name) < NAME_ROOM) {
        (void)snprintf(name, NAME_ROOM, "%s", end->name);
    } else {
        (void)snprintf(name, NAME_ROOM, "acl_modelId_%u_%s_%zu", desc->model,
            side == INPUTS ? "input" : "output", index);
    }
}

static aclError dims_tell(const aclmdlDesc *desc, Side side, size_t index, aclmdlIODims *dims)
{
    const End *end = end_at(desc, side, index);
    REQUIRE(end);
    REQUIRE(dims);
    memset(dims, 0, sizeof *dims);
    name_short(desc, side, index, dims->name);
    dims->dimCount = (size_t)end->rank;
    memcpy(dims->dims, end->dims, (size_t)end->rank * sizeof end->dims[0]);
    return ACL_SUCCESS;
}

aclError sim_aclmdlGetInputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims)
{
    return dims_tell(modelDesc, INPUTS, index, dims);
}

aclError sim_aclmdlGetInputDimsV2(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims)
{
    return dims_tell(modelDesc, INPUTS, index, dims);
}

aclError sim_aclmdlGetOutputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims)
{
    return dims_tell(modelDesc, OUTPUTS, index, dims);
}

/* Gives the shape that an output will have in the model's next run: if a gear was set, the shape
   under that gear; else the shape in the newest run; before the first run, the one of
   aclmdlGetOutputDims. */
aclError sim_aclmdlGetCurOutputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims)
{
    Model *model;
    TRY(dims_tell(modelDesc, OUTPUTS, index, dims));
    TRY(model_find(modelDesc->model, &model));
    int gear = atomic_load(&model->gear);
    const Tensor *geared = gear < 0 ? NULL : model_geared_output(model, gear, (int)index);
    pthread_mutex_lock(&model->lock);
    const Tensor *known = geared != NULL ? geared : &model->last[index];
    if (known->rank >= 0) {
        dims->dimCount = (size_t)known->rank;
        memcpy(dims->dims, known->dims, (size_t)known->rank * sizeof known->dims[0]);
    }
    pthread_mutex_unlock(&model->lock);
    model_release(model);
    return ACL_SUCCESS;
}

/* Gives the range of each dimension: [1, -1] (no upper end) if it is dynamic, else [dimension, dimension]. */
aclError sim_aclmdlGetInputDimsRange(
    const aclmdlDesc *modelDesc, size_t index, aclmdlIODimsRange *dimsRange)
{
    const End *end = end_at(modelDesc, INPUTS, index);
    REQUIRE(end);
    REQUIRE(dimsRange);
    dimsRange->rangeCount = (size_t)end->rank;
    for (int d = 0; d < end->rank; d++) {
        dimsRange->range[d][0] = end->dims[d] < 0 ? 1 : end->dims[d];
        dimsRange->range[d][1] = end->dims[d];
    }
    return ACL_SUCCESS;
}

const char *sim_aclmdlGetInputNameByIndex(const aclmdlDesc *modelDesc, size_t index)
{
    const End *end = end_at(modelDesc, INPUTS, index);
    return end == NULL ? "" : end->name;
}

const char *sim_aclmdlGetOutputNameByIndex(const aclmdlDesc *modelDesc, size_t index)
{
    const End *end = end_at(modelDesc, OUTPUTS, index);
    return end == NULL ? "" : end->name;
}

aclFormat sim_aclmdlGetInputFormat(const aclmdlDesc *modelDesc, size_t index)
{
    return end_at(modelDesc, INPUTS, index) == NULL ? ACL_FORMAT_UNDEFINED : ACL_FORMAT_ND;
}

aclFormat sim_aclmdlGetOutputFormat(const aclmdlDesc *modelDesc, size_t index)
{
    return end_at(modelDesc, OUTPUTS, index) == NULL ? ACL_FORMAT_UNDEFINED : ACL_FORMAT_ND;
}

aclDataType sim_aclmdlGetInputDataType(const aclmdlDesc *modelDesc, size_t index)
{
    const End *end = end_at(modelDesc, INPUTS, index);
    return end == NULL ? ACL_DT_UNDEFINED : end->type;
}

aclDataType sim_aclmdlGetOutputDataType(const aclmdlDesc *modelDesc, size_t index)
{
    const End *end = end_at(modelDesc, OUTPUTS, index);
    return end == NULL ? ACL_DT_UNDEFINED : end->type;
}

static aclError index_find(const aclmdlDesc *desc, Side side, const char *name, size_t *index)
{
    REQUIRE(handle_is(desc, HANDLE_MODEL_DESC));
    REQUIRE(name);
    REQUIRE(index);
    size_t count = side == INPUTS ? desc->input_count : desc->output_count;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(end_at(desc, side, i)->name, name) == 0) {
            *index = i;
            return ACL_SUCCESS;
        }
    }
    return fail(ACL_ERROR_INVALID_PARAM, "the model has no %s '%s'",
        side == INPUTS ? "input" : "output", name);
}

aclError sim_aclmdlGetInputIndexByName(const aclmdlDesc *modelDesc, const char *name, size_t *index)
{
    return index_find(modelDesc, INPUTS, name, index);
}

aclError sim_aclmdlGetOutputIndexByName(
    const aclmdlDesc *modelDesc, const char *name, size_t *index)
{
    return index_find(modelDesc, OUTPUTS, name, index);
}

const char *sim_aclmdlGetTensorRealName(const aclmdlDesc *modelDesc, const char *name)
{
    char made[ACL_MAX_TENSOR_NAME_LEN];
    if (!handle_is(modelDesc, HANDLE_MODEL_DESC) || name == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < modelDesc->input_count + modelDesc->output_count; i++) {
        Side side = i < modelDesc->input_count ? INPUTS : OUTPUTS;
        size_t index = side == INPUTS ? i : i - modelDesc->input_count;
        const End *end = end_at(modelDesc, side, index);
        name_short(modelDesc, side, index, made);
        if (strcmp(end->name, name) == 0 || strcmp(made, name) == 0) {
            return end->name;
        }
    }
    return NULL;
}

/* --- gears --- */

aclError sim_aclmdlGetDynamicBatch(const aclmdlDesc *modelDesc, aclmdlBatch *batch)
{
    REQUIRE(handle_is(modelDesc, HANDLE_MODEL_DESC));
    REQUIRE(batch);
    const Gears *gears = modelDesc->gears;
    batch->batchCount = gears != NULL && gears->kind == GEARS_BATCH ? (size_t)gears->count : 0;
    for (size_t i = 0; i < batch->batchCount && i < ACL_MAX_BATCH_NUM; i++) {
        batch->batch[i] = (uint64_t)gears->value[i][0];
    }
    return ACL_SUCCESS;
}

aclError sim_aclmdlGetDynamicHW(const aclmdlDesc *modelDesc, size_t index, aclmdlHW *hw)
{
    REQUIRE(handle_is(modelDesc, HANDLE_MODEL_DESC));
    REQUIRE(hw);
    (void)index;
    const Gears *gears = modelDesc->gears;
    hw->hwCount = gears != NULL && gears->kind == GEARS_SIZE ? (size_t)gears->count : 0;
    for (size_t i = 0; i < hw->hwCount && i < ACL_MAX_HW_NUM; i++) {
        hw->hw[i][0] = (uint64_t)gears->value[i][0];
        hw->hw[i][1] = (uint64_t)gears->value[i][1];
    }
    return ACL_SUCCESS;
}

aclError sim_aclmdlGetInputDynamicGearCount(
    const aclmdlDesc *modelDesc, size_t index, size_t *gearCount)
{
    REQUIRE(handle_is(modelDesc, HANDLE_MODEL_DESC));
    REQUIRE(gearCount);
    (void)index; /* documented as always -1, because a gear is set for the whole model */
    const Gears *gears = modelDesc->gears;
    *gearCount = gears != NULL && gears->kind == GEARS_DIMS ? (size_t)gears->count : 0;
    return ACL_SUCCESS;
}

aclError sim_aclmdlGetInputDynamicDims(
    const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims, size_t gearCount)
{
    size_t count;
    TRY(sim_aclmdlGetInputDynamicGearCount(modelDesc, index, &count));
    REQUIRE(dims);
    REQUIRE(gearCount >= count);
    for (size_t g = 0; g < count; g++) {
        memset(&dims[g], 0, sizeof dims[g]);
        dims[g].dimCount = (size_t)modelDesc->gears->values;
        memcpy(dims[g].dims, modelDesc->gears->value[g], dims[g].dimCount * sizeof(int64_t));
    }
    return ACL_SUCCESS;
}
