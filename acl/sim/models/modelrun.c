/* modelrun.c: the node loop: one run of a model, as GE does it.

   For each node the calling thread infers the outputs' shapes, allocates outputs and workspace,
   queues the kernel, and frees the workspace and every input that no later node uses. An input is
   freed when its last reader is queued, which may not have run yet. Nodes of shape arithmetic run
   at once on the host; before a node whose shapes depend on data on the device, the thread waits
   for the stream.

   A run that fails keeps its blocks until the next run of the model, or its unload, as GE does. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensors/databuffer.h"
#include "memory/memory.h"
#include "models/ort.h"

/* Messages name the function that the user called, not the function here that found the error. */
#undef fail
#define fail(code, ...) error_set("aclmdlExecute", (code), __VA_ARGS__)

/* --- memory shared by values (a view and the value that it views) --- */

aclError hold_take(Run *run, size_t bytes, Hold **out)
{
    Hold *hold = calloc(1, sizeof *hold);
    if (hold == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    aclError status = source_take(&run->source, bytes, &hold->block);
    if (status != ACL_SUCCESS) {
        free(hold);
        return status;
    }
    hold->users = 1;
    *out = hold;
    return ACL_SUCCESS;
}

void hold_drop(Hold **hold)
{
    if (*hold != NULL && --(*hold)->users == 0) {
        source_give(&(*hold)->block);
        free(*hold);
    }
    *hold = NULL;
}

/* --- the run --- */

void run_release(Run *run)
{
    if (atomic_fetch_sub(&run->references, 1) != 1) {
        return;
    }
    while (run->owned != NULL) {
        Owned *next = run->owned->next;
        free(run->owned->data);
        free(run->owned);
        run->owned = next;
    }
    model_release(run->model);
    free(run->slots);
    free(run);
}

aclError run_own(Run *run, void *data)
{
    Owned *owned = malloc(sizeof *owned);
    if (owned == NULL) {
        free(data);
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    *owned = (Owned){run->owned, data};
    run->owned = owned;
    return ACL_SUCCESS;
}

void slot_drop(Run *run, Slot *slot, bool good)
{
    sequence_drop(run, &slot->sequence, good);
    if (good) {
        hold_drop(&slot->hold);
    } else {
        hold_leave(run, &slot->hold);
    }
}

void slot_share(Run *run, Slot *to, const Slot *from)
{
    sequence_share(from->sequence);
    if (from->hold != NULL) {
        from->hold->users++;
    }
    slot_drop(run, to, true);
    to->tensor = from->tensor;
    to->host = from->host;
    to->hold = from->hold;
    to->sequence = from->sequence;
}

void slot_reset(Run *run, int value)
{
    Slot *slot = &run->slots[value];
    const Tensor *constant = run->net->values[value].constant;
    slot_drop(run, slot, true);
    slot->tensor = (Tensor){0};
    slot->host = NULL;
    if (constant != NULL) {
        slot->tensor = *constant;
        slot->tensor.data = run->model->addresses[value];
        slot->host = constant->data;
    }
}

static aclError run_new(Model *model, Stream *stream, const Source *source, RunMode mode, Run **out)
{
    Run *run = calloc(1, sizeof *run);
    Slot *slots = calloc((size_t)model->net.value_count + 1, sizeof *slots);
    if (run == NULL || slots == NULL) {
        free(run);
        free(slots);
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a run");
    }
    atomic_init(&run->references, 1);
    atomic_fetch_add(&model->references, 1);
    run->model = model;
    run->net = &model->net;
    run->stream = stream;
    run->source = *source;
    run->mode = mode;
    run->slots = slots;
    for (int v = 0; v < model->net.value_count; v++) {
        slots[v].output = -1;
        slot_reset(run, v);
    }
    *out = run;
    return ACL_SUCCESS;
}

void model_leftovers_give(Model *model, const Pool *only)
{
    Leftover *taken = NULL, **end = &taken;
    pthread_mutex_lock(&model->lock);
    for (Leftover **link = &model->leftovers; *link != NULL;) {
        Leftover *leftover = *link;
        if (only == NULL || leftover->block.from.pool == only) {
            *link = leftover->next;
            leftover->next = NULL;
            *end = leftover;
            end = &leftover->next;
        } else {
            link = &leftover->next;
        }
    }
    pthread_mutex_unlock(&model->lock);
    while (taken != NULL) {
        Leftover *next = taken->next;
        source_give(&taken->block);
        free(taken);
        taken = next;
    }
}

void hold_leave(Run *run, Hold **hold)
{
    Leftover *leftover =
        *hold == NULL || (*hold)->users > 1 ? NULL : malloc(sizeof *leftover);
    if (leftover == NULL) {
        hold_drop(hold);
        return;
    }
    pthread_mutex_lock(&run->model->lock);
    *leftover = (Leftover){run->model->leftovers, (*hold)->block};
    run->model->leftovers = leftover;
    pthread_mutex_unlock(&run->model->lock);
    free(*hold);
    *hold = NULL;
}

/* Ends the run's use of its blocks: frees them after a good run; after a failed run the model keeps them. */
static void run_finish(Run *run, bool good)
{
    for (int v = 0; v < run->net->value_count; v++) {
        slot_drop(run, &run->slots[v], good);
    }
}

/* --- one node --- */

aclError node_fail(const Run *run, const NetNode *node, aclError code, const char *message)
{
    return fail(code, "node %s (%s): %s", node_name(run->net, node), node->type, message);
}

/* Copies a host value to the device, for a kernel that reads it there. */
static aclError slot_upload(Run *run, Slot *slot)
{
    size_t bytes = (size_t)tensor_bytes(&slot->tensor);
    TRY(hold_take(run, copy_padded(bytes), &slot->hold));
    slot->tensor.data = slot->hold->block.address;
    return run_copy(run, slot->tensor.data, slot->host, bytes);
}

static bool input_by_value(const NetNode *node, int i)
{
    return i < 32 && (node->kind->value_inputs >> i & 1U) != 0;
}

static aclError value_missing(const Run *run, const NetNode *node, int input)
{
    char message[OP_MESSAGE_ROOM];
    (void)snprintf(message, sizeof message,
        "the memory of input %d was freed or unmapped, and its values are needed", input);
    return node_fail(run, node, (aclError)ACL_ERROR_GE_DYNAMIC_INPUT_ADDR_INVALID, message);
}

/* Waits for the stream if infer must read a value that a kernel computes. */
static aclError values_wait(Run *run, const NetNode *node)
{
    bool waited = false;
    for (int i = 0; i < node->input_count; i++) {
        const Slot *slot = node->inputs[i] < 0 ? NULL : &run->slots[node->inputs[i]];
        if (slot == NULL || slot->host != NULL || !op_infer_reads(node->kind, i)) {
            continue;
        }
        if (!waited) {
            TRY(stream_synchronize(run->stream, FOREVER));
            waited = true;
        }
        size_t bytes = (size_t)tensor_bytes(&slot->tensor);
        if (bytes > 0 && !memory_reachable(slot->tensor.data, bytes, false)) {
            return value_missing(run, node, i);
        }
    }
    return ACL_SUCCESS;
}

/* Makes views of the inputs for infer: `data` is the value on the host, or on the device if the
   host can read it there. */
static void inputs_view(const Run *run, const NetNode *node, Tensor *views, const Tensor **inputs)
{
    for (int i = 0; i < node->input_count; i++) {
        inputs[i] = NULL;
        if (node->inputs[i] >= 0) {
            const Slot *slot = &run->slots[node->inputs[i]];
            views[i] = slot->tensor;
            views[i].data = slot->host != NULL ? (void *)(uintptr_t)slot->host
                : memory_at(slot->tensor.data, (size_t)tensor_bytes(&slot->tensor), false);
            inputs[i] = &views[i];
        }
    }
}

static aclError node_host(Run *run, const NetNode *node, NodeScratch *scratch)
{
    inputs_view(run, node, scratch->views, scratch->inputs);
    if (!node_run_host(
            node, scratch->inputs, scratch->outputs, HOST_VALUE_MAX, scratch->message)) {
        return node_fail(run, node, (aclError)ACL_ERROR_GE_SHAPE_INVALID, scratch->message);
    }
    for (int i = 0; i < node->output_count; i++) {
        TRY(run_own(run, scratch->outputs[i].data));
        if (node->outputs[i] >= 0) {
            Slot *slot = &run->slots[node->outputs[i]];
            slot->tensor = scratch->outputs[i];
            slot->host = slot->tensor.data;
            slot->tensor.data = NULL;
        }
    }
    return ACL_SUCCESS;
}

/* Takes memory for output `i` of the node: the user's buffer if it is an output of the model, else a block. */
aclError output_place(Run *run, const NetNode *node, int i, Tensor *tensor)
{
    if (node->outputs[i] < 0) {
        tensor->data = NULL;
        return ACL_SUCCESS;
    }
    Slot *slot = &run->slots[node->outputs[i]];
    size_t bytes = (size_t)tensor_bytes(tensor);
    if (slot->output >= 0 && run->outputs[slot->output].buffer->address != NULL) {
        const aclDataBuffer *buffer = run->outputs[slot->output].buffer;
        TRY(output_check(run, slot->output, bytes));
        tensor->data = buffer->address;
    } else {
        TRY(hold_take(run, tensor_padded(bytes), &slot->hold));
        tensor->data = slot->hold->block.address;
    }
    slot->tensor = *tensor;
    return ACL_SUCCESS;
}

/* If the node is a view and its input is on the device, makes the output share the input's memory,
   without a call of the allocator. Returns false otherwise. */
static bool output_share(Run *run, const NetNode *node, const Tensor *tensor)
{
    if ((node->kind->flags & OP_VIEW) == 0 || node->output_count != 1) {
        return false;
    }
    Slot *from = &run->slots[node->inputs[0]], *to = &run->slots[node->outputs[0]];
    if (from->tensor.data == NULL) {
        return false;
    }
    to->tensor = *tensor;
    to->tensor.data = from->tensor.data;
    to->hold = from->hold;
    to->host = from->host;
    if (to->hold != NULL) {
        to->hold->users++;
    }
    return true;
}

static void value_release(Run *run, const Body *body, int value, int index)
{
    if (value >= 0 && run->net->values[value].owner == body->id
        && run->net->values[value].last_use <= index) {
        slot_drop(run, &run->slots[value], true);
    }
}

/* Releases the values that are used last by node `index`, but only those that the body owns, not captured ones. */
static void values_release(Run *run, const Body *body, int index)
{
    const NetNode *node = &body->nodes[index];
    for (int i = 0; i < node->input_count; i++) {
        value_release(run, body, node->inputs[i], index);
    }
    for (int i = 0; i < node->output_count; i++) {
        value_release(run, body, node->outputs[i], index);
    }
}

static aclError node_launch(Run *run, const NetNode *node, NodeScratch *scratch, OpCall *call)
{
    Hold *workspace = NULL;
    for (int i = 0; i < node->output_count; i++) {
        TRY(output_place(run, node, i, &scratch->outputs[i]));
    }
    int64_t room = op_workspace(call);
    if (room > 0) {
        TRY(hold_take(run, workspace_padded((size_t)room), &workspace));
    }
    aclError status = node_submit(run, node, scratch->outputs,
        workspace == NULL ? NULL : workspace->block.address, (size_t)room);
    hold_drop(&workspace);
    return status;
}

static aclError node_device(Run *run, const NetNode *node, NodeScratch *scratch)
{
    TRY(values_wait(run, node));
    inputs_view(run, node, scratch->views, scratch->inputs);
    OpCall call = {
        .kind = node->kind,
        .attrs = &node->attrs,
        .opset = node->opset,
        .threads = kernel_threads(),
        .input_count = node->input_count,
        .output_count = node->output_count,
        .inputs = scratch->inputs,
        .outputs = scratch->outputs,
        .message = scratch->message,
    };
    if (!op_infer(&call)) {
        return node_fail(run, node, (aclError)ACL_ERROR_GE_SHAPE_INVALID, scratch->message);
    }
    for (int i = 0; i < node->input_count; i++) {
        Slot *slot = node->inputs[i] < 0 ? NULL : &run->slots[node->inputs[i]];
        if (slot != NULL && slot->tensor.data == NULL && !input_by_value(node, i)) {
            TRY(slot_upload(run, slot));
        }
    }
    if (output_share(run, node, &scratch->outputs[0])) {
        return ACL_SUCCESS;
    }
    return node_launch(run, node, scratch, &call);
}

/* Passes a sequence on to the output. Only Identity accepts a sequence, of all operators on tensors. */
static aclError sequence_pass(Run *run, const NetNode *node, const Slot *slot)
{
    if (strcmp(node->type, "Identity") != 0) {
        return node_fail(run, node, (aclError)ACL_ERROR_GE_SHAPE_INVALID,
            "an input is a sequence, where a tensor was expected");
    }
    slot_share(run, &run->slots[node->outputs[0]], slot);
    return ACL_SUCCESS;
}

static aclError node_run(Run *run, const NetNode *node, NodeScratch *scratch)
{
    if (node->control >= CONTROL_CONSTRUCT) {
        return sequence_run(run, node);
    }
    if (node->control != CONTROL_NONE) {
        return control_run(run, node);
    }
    for (int i = 0; i < node->input_count; i++) {
        const Slot *slot = node->inputs[i] < 0 ? NULL : &run->slots[node->inputs[i]];
        if (slot != NULL && slot->sequence != NULL) {
            return sequence_pass(run, node, slot);
        }
    }
    return node->host ? node_host(run, node, scratch) : node_device(run, node, scratch);
}

aclError body_run(Run *run, const Body *body)
{
    int widest = 1;
    for (int n = 0; n < body->node_count; n++) {
        const NetNode *node = &body->nodes[n];
        widest = node->input_count > widest ? node->input_count : widest;
        widest = node->output_count > widest ? node->output_count : widest;
    }
    NodeScratch scratch = {0};
    size_t tensors = (size_t)widest * sizeof(Tensor);
    char *memory = malloc(2 * tensors + (size_t)widest * sizeof(Tensor *));
    if (memory == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    scratch.views = (Tensor *)(void *)memory;
    scratch.outputs = (Tensor *)(void *)(memory + tensors);
    scratch.inputs = (const Tensor **)(void *)(memory + 2 * tensors);
    aclError status = ACL_SUCCESS;
    for (int n = 0; n < body->node_count && status == ACL_SUCCESS; n++) {
        memset(scratch.outputs, 0, tensors);
        status = node_run(run, &body->nodes[n], &scratch);
        if (status == ACL_SUCCESS) {
            values_release(run, body, n);
        }
    }
    free(memory);
    return status;
}

aclError model_run(Model *model, Stream *stream, const Source *source, RunMode mode,
    const aclmdlDataset *input, aclmdlDataset *output)
{
    Run *run = NULL;
    model_leftovers_give(model, NULL);
    TRY(run_new(model, stream, source, mode, &run));
    aclError status = inputs_bind(run, input);
    if (status == ACL_SUCCESS) {
        status = outputs_bind(run, output);
    }
    if (status == ACL_SUCCESS) {
        status = model->ort != NULL ? ort_run(model->ort, run) : body_run(run, &model->net.main);
    }
    if (status == ACL_SUCCESS) {
        status = outputs_finish(run);
    }
    run_finish(run, status == ACL_SUCCESS);
    run_release(run);
    return status;
}
