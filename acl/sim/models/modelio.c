/* modelio.c: a run's inputs and outputs; checks the user's datasets against the types and shapes
   that the model declares.

   A run is refused, with the input's name in the message, for another data type, a rank that the
   model does not have, a dimension outside what it declares, and a buffer too small for its shape;
   also for a wrong number of inputs. A description may leave its data type undefined. Its format is
   not used, because programs write any format into it. */
#include <string.h>

#include "tensors/databuffer.h"
#include "models/modelrun.h"
#include "generated/exports.h"

/* Messages name the function that the user called, not the function here that found the error. */
#undef fail
#define fail(code, ...) error_set("aclmdlExecute", (code), __VA_ARGS__)

/* --- inputs --- */

static int64_t gear_batch(const int64_t *gear, int64_t declared, int dimension)
{
    return dimension == 0 && declared < 0 ? gear[0] : declared;
}

/* Replaces unknown dimensions of input `input` by the gear's values. A gear has one value for each
   dimension of all inputs, one input after another. */
static void gear_dims_apply(
    const Model *model, int input, const int64_t *gear, int gear_values, Tensor *tensor)
{
    int used = 0;
    for (int i = 0; i <= input; i++) {
        const NetValue *value = &model->net.values[model->net.inputs[i]];
        for (int d = 0; d < value->rank && used < gear_values; d++, used++) {
            if (i == input && tensor->dims[d] < 0) {
                tensor->dims[d] = gear[used];
            }
        }
    }
}

void model_input_dims(
    const Model *model, int input, const int64_t *gear, int gear_values, Tensor *tensor)
{
    const NetValue *value = &model->net.values[model->net.inputs[input]];
    int unknown = 0;
    *tensor = (Tensor){.type = value->type, .rank = value->rank < 0 ? 0 : value->rank};
    for (int d = 0; d < tensor->rank; d++) {
        tensor->dims[d] = value->dims[d];
        if (gear_values > 0 && model->gears.kind == GEARS_BATCH) {
            tensor->dims[d] = gear_batch(gear, value->dims[d], d);
        } else if (gear_values > 0 && model->gears.kind == GEARS_SIZE && value->dims[d] < 0
            && unknown < 2) {
            tensor->dims[d] = gear[unknown++];
        }
    }
    if (gear_values > 0 && model->gears.kind == GEARS_DIMS) {
        gear_dims_apply(model, input, gear, gear_values, tensor);
    }
}

static aclError shape_check(const NetValue *value, const Tensor *declared, const Tensor *given)
{
    char a[128], b[128];
    bool fits = value->rank < 0 || given->rank == value->rank;
    for (int d = 0; fits && value->rank >= 0 && d < given->rank; d++) {
        fits = declared->dims[d] < 0 || declared->dims[d] == given->dims[d];
    }
    return fits ? ACL_SUCCESS
                : fail((aclError)ACL_ERROR_GE_SHAPE_INVALID,
                      "input %s: expected shape %s (-1 = any), got %s", value->name,
                      shape_text(declared, a, sizeof a), shape_text(given, b, sizeof b));
}

static aclError input_bind(Run *run, int index, const aclmdlDataset *input)
{
    const NetValue *value = &run->net->values[run->net->inputs[index]];
    const DatasetEntry *entry = &input->entries[index];
    Slot *slot = &run->slots[run->net->inputs[index]];
    Tensor declared;
    model_input_dims(run->model, index, input->gear, input->gear_values, &declared);
    if (!handle_is(entry->buffer, HANDLE_DATA_BUFFER)) {
        return fail(
            ACL_ERROR_INVALID_PARAM, "input %s: its data buffer was destroyed", value->name);
    }
    slot->tensor = declared;
    if (handle_is(entry->desc, HANDLE_TENSOR_DESC)) {
        aclTensorDesc described = *entry->desc;
        if (described.type != value->type && described.type != ACL_DT_UNDEFINED) {
            return fail((aclError)ACL_ERROR_GE_PARAM_INVALID,
                "input %s: expected data type %d, got %d", value->name, (int)value->type,
                (int)described.type);
        }
        described.type = value->type;
        TRY(tensordesc_read(&described, value->name, &slot->tensor));
        TRY(shape_check(value, &declared, &slot->tensor));
    } else if (value->rank < 0 || !tensor_fits(&declared)) {
        char text[128];
        return fail((aclError)ACL_ERROR_GE_SHAPE_INVALID,
            "input %s: the model declares shape %s, so the dataset needs a "
            "tensor description (aclmdlSetDatasetTensorDesc)",
            value->name, shape_text(&declared, text, sizeof text));
    }
    size_t bytes = (size_t)tensor_bytes(&slot->tensor);
    if (entry->buffer->address == NULL && bytes > 0) {
        return fail((aclError)ACL_ERROR_GE_DYNAMIC_INPUT_ADDR_INVALID,
            "input %s: its data buffer has no address", value->name);
    }
    if (entry->buffer->size < bytes) {
        char text[128];
        return fail((aclError)ACL_ERROR_GE_DYNAMIC_INPUT_LENGTH_INVALID,
            "input %s: shape %s needs %zu bytes, its data "
            "buffer has %zu",
            value->name, shape_text(&slot->tensor, text, sizeof text), bytes, entry->buffer->size);
    }
    slot->tensor.data = entry->buffer->address;
    return ACL_SUCCESS;
}

aclError inputs_bind(Run *run, const aclmdlDataset *input)
{
    size_t expected = (size_t)run->net->input_count + (run->model->gears.kind != GEARS_NONE);
    if (input->count != expected) {
        return fail((aclError)ACL_ERROR_GE_PARAM_INVALID,
            "the model has %zu inputs, the dataset %zu", expected, input->count);
    }
    if (run->model->gears.kind != GEARS_NONE && input->gear_values == 0) {
        return fail((aclError)ACL_ERROR_GE_DYNAMIC_BATCH_SIZE_INVALID,
            "the model has gears, and no gear was chosen for the dataset (for example by aclmdlSetDynamicBatchSize)");
    }
    for (int i = 0; i < run->net->input_count; i++) {
        TRY(input_bind(run, i, input));
    }
    return ACL_SUCCESS;
}

/* --- outputs --- */

aclError outputs_bind(Run *run, aclmdlDataset *output)
{
    if (output->count != (size_t)run->net->output_count) {
        return fail((aclError)ACL_ERROR_GE_PARAM_INVALID,
            "the model has %d outputs, the dataset %zu", run->net->output_count, output->count);
    }
    run->outputs = output->entries;
    for (int i = 0; i < run->net->output_count; i++) {
        Slot *slot = &run->slots[run->net->outputs[i]];
        if (!handle_is(output->entries[i].buffer, HANDLE_DATA_BUFFER)) {
            return fail(ACL_ERROR_INVALID_PARAM, "output %s: its data buffer was destroyed",
                run->net->values[run->net->outputs[i]].name);
        }
        if (slot->output < 0) {
            slot->output = i;
        }
    }
    return ACL_SUCCESS;
}

aclError output_check(const Run *run, int output, size_t bytes)
{
    const aclDataBuffer *buffer = run->outputs[output].buffer;
    return bytes <= buffer->size
        ? ACL_SUCCESS
        : fail((aclError)ACL_ERROR_GE_PARAM_INVALID,
              "output %s needs %zu bytes, its data buffer has %zu",
              run->net->values[run->net->outputs[output]].name, bytes, buffer->size);
}

/* Writes the shape of an output into its description. */
static aclError output_describe(DatasetEntry *entry, const Tensor *tensor)
{
    if (!handle_is(entry->desc, HANDLE_TENSOR_DESC)) {
        entry->desc = tensordesc_new(tensor->type, tensor->rank, tensor->dims, ACL_FORMAT_ND);
        return entry->desc != NULL ? ACL_SUCCESS : ACL_ERROR_BAD_ALLOC;
    }
    return tensordesc_write(entry->desc, tensor) ? ACL_SUCCESS
                                                 : fail(ACL_ERROR_BAD_ALLOC, "no host memory");
}

/* In a synchronous run, allocates memory with aclrtMalloc for an output whose data buffer is empty.
   In an asynchronous run such a result is lost and its block is freed, as with GE. */
static aclError output_give(const DatasetEntry *entry, size_t bytes)
{
    void *memory = NULL;
    TRY(sim_aclrtMalloc(&memory, bytes == 0 ? 1 : bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    entry->buffer->address = memory;
    entry->buffer->size = bytes;
    return ACL_SUCCESS;
}

static aclError output_finish(Run *run, int index)
{
    DatasetEntry *entry = &run->outputs[index];
    const Slot *slot = &run->slots[run->net->outputs[index]];
    if (slot->sequence != NULL) {
        return fail((aclError)ACL_ERROR_GE_SHAPE_INVALID, "output %s is a sequence, not a tensor",
            run->net->values[run->net->outputs[index]].name);
    }
    size_t bytes = (size_t)tensor_bytes(&slot->tensor);
    TRY(output_describe(entry, &slot->tensor));
    pthread_mutex_lock(&run->model->lock);
    run->model->last[index] = slot->tensor;
    pthread_mutex_unlock(&run->model->lock);
    if (entry->buffer->address == NULL) {
        if (run->mode == RUN_ASYNC) {
            return ACL_SUCCESS;
        }
        TRY(output_give(entry, bytes));
    }
    TRY(output_check(run, index, bytes));
    const void *from = slot->tensor.data != NULL ? slot->tensor.data : slot->host;
    return from == entry->buffer->address ? ACL_SUCCESS
                                          : run_copy(run, entry->buffer->address, from, bytes);
}

aclError outputs_finish(Run *run)
{
    for (int i = 0; i < run->net->output_count; i++) {
        TRY(output_finish(run, i));
    }
    return ACL_SUCCESS;
}
