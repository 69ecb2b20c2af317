/* opexec.c: runs single operators of the library on a stream.

   On the calling thread: read the descriptions, infer the shapes of the outputs, allocate the workspace from the
   stream's memory, queue the kernel, free the workspace. If inference needs the values of an input, they are
   read from the description's constant, from host memory if the description says so, or, after a wait for the
   stream, from the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensors/databuffer.h"
#include "memory/memory.h"
#include "models/modelrun.h"
#include "single_ops/opapi.h"
#include "races/race.h"

/* Messages name the call that the user made, not the internal function that failed. */
#undef fail
#define fail(code, ...) error_set("aclopExecute", (code), __VA_ARGS__)

typedef struct OpTask {
    const OpKind *kind;
    AttrSet *attrs;
    void *values;           /* copies of inputs that are constants or in host memory; freed with the task */
    void *workspace;
    size_t workspace_bytes;
    unsigned threads;
    int input_count, output_count;
    Tensor tensors[];       /* inputs, then outputs; rank -1 = left out */
} OpTask;

/* --- the task --- */

static aclError task_fail(Stream *stream, const OpTask *task, const char *message)
{
    return fail(ACL_ERROR_RT_AICORE_EXCEPTION, "stream %u, operator %s: %s", stream_id(stream),
        task->kind->name, message);
}

static aclError tensors_map(
    Stream *stream, const OpTask *task, Tensor *tensors, const Tensor **inputs)
{
    for (int i = 0; i < task->input_count + task->output_count; i++) {
        tensors[i] = task->tensors[i];
        bool missing = tensors[i].rank < 0;
        size_t bytes = missing || tensors[i].data == NULL ? 0 : (size_t)tensor_bytes(&tensors[i]);
        if (bytes > 0) {
            tensors[i].data = memory_at(tensors[i].data, bytes, i >= task->input_count);
        }
        if (bytes > 0 && tensors[i].data == NULL) {
            return task_fail(
                stream, task, "memory of an input or output was freed before the kernel ran");
        }
        if (i < task->input_count) {
            inputs[i] = missing ? NULL : &tensors[i];
        }
    }
    return ACL_SUCCESS;
}

/* Removes inputs that were left out at the end from the count, unless the operator takes any number of inputs. */
static void inputs_trim(OpCall *call)
{
    while (call->kind->inputs_max != OP_INPUTS_ALL && call->input_count > 0
        && call->inputs[call->input_count - 1] == NULL) {
        call->input_count--;
    }
}

static aclError kernel_run(
    Stream *stream, const OpTask *task, Tensor *tensors, const Tensor **inputs)
{
    char message[OP_MESSAGE_ROOM] = "";
    TRY(tensors_map(stream, task, tensors, inputs));
    OpCall call = {
        .kind = task->kind,
        .attrs = task->attrs == NULL ? NULL : &task->attrs->list,
        .threads = task->threads,
        .input_count = task->input_count,
        .output_count = task->output_count,
        .inputs = inputs,
        .outputs = tensors + task->input_count,
        .message = message,
        .interrupted = stream_interrupted,
    };
    inputs_trim(&call);
    if (task->workspace != NULL) {
        call.workspace = memory_at(task->workspace, task->workspace_bytes, true);
        if (call.workspace == NULL) {
            return task_fail(stream, task, "its workspace was freed before the kernel ran");
        }
    }
    return op_run(&call) ? ACL_SUCCESS : task_fail(stream, task, message);
}

static aclError op_task_run(Stream *stream, const void *payload)
{
    const OpTask *task = *(OpTask *const *)payload;
    size_t count = (size_t)task->input_count + (size_t)task->output_count;
    char *memory = malloc(count * (sizeof(Tensor) + sizeof(Tensor *)) + 1);
    if (memory == NULL) {
        return task_fail(stream, task, "no host memory");
    }
    Tensor *tensors = (Tensor *)(void *)memory;
    aclError status = kernel_run(stream, task, tensors, (const Tensor **)(void *)(tensors + count));
    free(memory);
    return status;
}

static void task_free(OpTask *task)
{
    if (task != NULL) {
        attrs_release(task->attrs);
        free(task->values);
        free(task);
    }
}

static void op_task_drop(void *payload)
{
    task_free(*(OpTask **)payload);
}

/* True if the operator uses the values of an input; those of an input that it writes into count only as written. */
static bool input_counts(const OpTask *task, int i)
{
    bool written = (task->kind->flags & OP_IN_PLACE) != 0 && i == 0 && task->output_count > 0
        && task->tensors[0].data == task->tensors[task->input_count].data;
    return !written && (task->kind->flags & OP_SHAPED) == 0;
}

static void op_touch(const void *payload, Touch *touch)
{
    const OpTask *task = *(OpTask *const *)payload;
    for (int i = 0; i < task->input_count; i++) {
        if (input_counts(task, i)) {
            touch_tensor(touch, &task->tensors[i], TOUCH_READ);
        }
    }
    for (int i = 0; i < task->output_count; i++) {
        touch_tensor(touch, &task->tensors[task->input_count + i], TOUCH_WRITE);
    }
    touch_bytes(touch, task->workspace, task->workspace_bytes, TOUCH_WRITE);
}

static const TaskClass op_task = {
    .name = "operator",
    .touch = op_touch,
    .run = op_task_run,
    .drop = op_task_drop,
    .type = ACL_MODEL_RI_TASK_KERNEL,
};

/* --- reading the call --- */

static bool desc_on_host(const aclTensorDesc *desc)
{
    return desc->place == ACL_MEMTYPE_HOST || desc->place == ACL_MEMTYPE_HOST_COMPILE_INDEPENDENT;
}

static aclError input_read(const OpEnds *ends, int i, Tensor *tensor)
{
    char what[32];
    const aclTensorDesc *desc = ends->input_descs[i];
    const aclDataBuffer *buffer = ends->inputs[i];
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    REQUIRE(handle_is(buffer, HANDLE_DATA_BUFFER));
    (void)snprintf(what, sizeof what, "input %d", i);
    if (desc->type == ACL_DT_UNDEFINED) { /* callers leave out an optional input in this way */
        *tensor = (Tensor){.rank = -1};
        return ACL_SUCCESS;
    }
    TRY(tensordesc_read(desc, what, tensor));
    size_t bytes = (size_t)tensor_bytes(tensor);
    tensor->data = desc->constant != NULL ? desc->constant : buffer->address;
    size_t room = desc->constant != NULL ? desc->constant_bytes : buffer->size;
    if (bytes > room || (bytes > 0 && tensor->data == NULL)) {
        return fail(ACL_ERROR_OP_INPUT_NOT_MATCH,
            "input %d needs %zu bytes, its data buffer has %zu at %p", i, bytes, room,
            tensor->data);
    }
    return ACL_SUCCESS;
}

static bool value_is_hosts(const aclTensorDesc *desc)
{
    return desc->constant != NULL || desc_on_host(desc);
}

/* Copies an input's values: from the description's constant, or from the caller's memory. */
static aclError value_copy(const OpEnds *ends, int i, void *place, const Tensor *tensor)
{
    size_t bytes = (size_t)tensor_bytes(tensor);
    const void *from = ends->input_descs[i]->constant != NULL ? tensor->data
        : memory_at(tensor->data, bytes, false);
    if (bytes > 0 && from == NULL) {
        return fail(ACL_ERROR_OP_INPUT_NOT_MATCH, "input %d: there are no %zu bytes of memory at %p",
            i, bytes, tensor->data);
    }
    if (bytes > 0) {
        memcpy(place, from, bytes);
    }
    return ACL_SUCCESS;
}

/* Copies inputs that are constants or in host memory, because the caller may change them after the call. */
static aclError values_copy(const OpEnds *ends, OpTask *task)
{
    size_t total = 0, used = 0;
    for (int i = 0; i < ends->input_count; i++) {
        bool host = task->tensors[i].rank >= 0
            && value_is_hosts(ends->input_descs[i]);
        total += host ? (size_t)tensor_bytes(&task->tensors[i]) + 64 : 0;
    }
    task->values = total == 0 ? NULL : malloc(total);
    if (total != 0 && task->values == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for constant inputs");
    }
    for (int i = 0; i < ends->input_count; i++) {
        Tensor *tensor = &task->tensors[i];
        if (tensor->rank >= 0 && value_is_hosts(ends->input_descs[i])) {
            size_t bytes = (size_t)tensor_bytes(tensor);
            char *place = (char *)task->values + used;
            TRY(value_copy(ends, i, place, tensor));
            tensor->data = place;
            used += (bytes + 63) / 64 * 64;
        }
    }
    return ACL_SUCCESS;
}

static aclError values_wait(
    const OpKind *kind, const OpEnds *ends, const OpTask *task, Stream *stream)
{
    bool waited = false;
    for (int i = 0; i < ends->input_count; i++) {
        const Tensor *tensor = &task->tensors[i];
        const aclTensorDesc *desc = ends->input_descs[i];
        if (tensor->rank < 0 || !op_infer_reads(kind, i) || desc->constant != NULL
            || desc_on_host(desc)) {
            continue;
        }
        if (!waited) {
            TRY(stream_synchronize(stream, FOREVER));
            waited = true;
        }
        size_t bytes = (size_t)tensor_bytes(tensor);
        if (bytes > 0 && !memory_reachable(tensor->data, bytes, false)) {
            return fail(ACL_ERROR_OP_INPUT_NOT_MATCH,
                "input %d: its memory at %p was freed or unmapped, and its values are needed", i,
                tensor->data);
        }
    }
    return ACL_SUCCESS;
}

/* --- outputs --- */

/* Compares the inferred type and number of elements with the described ones. If the described shape
   is open, and the caller wants it (`describe`), writes the inferred shape into the description. */
static aclError output_settle(
    const OpKind *kind, const OpEnds *ends, int i, bool in_place, Tensor *tensor)
{
    aclTensorDesc *desc = ends->output_descs[i];
    const aclDataBuffer *buffer = ends->outputs[i];
    char a[128], b[128];
    REQUIRE(handle_is(desc, HANDLE_TENSOR_DESC));
    REQUIRE(handle_is(buffer, HANDLE_DATA_BUFFER));
    Tensor asked = {
        .type = desc->type, .rank = desc->dims.count > TENSOR_RANK_MAX ? 0 : desc->dims.count};
    memcpy(asked.dims, dims_list(&desc->dims), (size_t)asked.rank * sizeof asked.dims[0]);
    bool open = in_place || (kind->flags & OP_DATA_SIZED) != 0; /* the described shape may be larger */
    for (int d = 0; d < asked.rank; d++) {
        open = open || asked.dims[d] < 0;
    }
    if (desc->type != tensor->type || (!open && tensor_count(&asked) != tensor_count(tensor))) {
        return fail(ACL_ERROR_OP_OUTPUT_NOT_MATCH, "output %d is %s %s, described as %s %s", i,
            type_name(tensor->type), shape_text(tensor, a, sizeof a), type_name(desc->type),
            shape_text(&asked, b, sizeof b));
    }
    size_t bytes = (size_t)tensor_bytes(tensor);
    if (bytes > buffer->size || (bytes > 0 && buffer->address == NULL)) {
        return fail(ACL_ERROR_OP_OUTPUT_NOT_MATCH,
            "output %d needs %zu bytes, its data buffer has %zu at %p", i, bytes, buffer->size,
            buffer->address);
    }
    tensor->data = buffer->address;
    if (ends->describe && open && !in_place && !tensordesc_write(desc, tensor)) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    return ACL_SUCCESS;
}

/* --- the call --- */

/* True if the operator writes output 0 into input 0, and the caller gave the same memory for both. */
static bool runs_in_place(const OpKind *kind, const OpEnds *ends)
{
    return (kind->flags & OP_IN_PLACE) != 0 && ends->output_count > 0
        && handle_is(ends->outputs[0], HANDLE_DATA_BUFFER)
        && handle_is(ends->inputs[0], HANDLE_DATA_BUFFER)
        && ends->outputs[0]->address == ends->inputs[0]->address;
}

/* Limits inputs to the elements that their views reach. Frameworks describe a view by the size of its whole
   storage, but by the address where the view begins; memory behind the view's end may not exist. */
static void reach_narrow(const OpCall *call, OpTask *task, bool in_place)
{
    const OpKind *kind = task->kind;
    for (int i = 0; i < task->input_count; i++) {
        bool whole = i == 0 && (kind->flags & OP_IN_PLACE) != 0 && !in_place;
        int64_t count = whole || task->tensors[i].rank < 0 ? -1 : op_reach(call, i);
        if (count >= 0) {
            task->tensors[i].rank = 1;
            task->tensors[i].dims[0] = count;
        }
    }
    if (in_place) {
        task->tensors[task->input_count] = task->tensors[0];
    }
}

static aclError call_infer(const OpEnds *ends, OpTask *task, Stream *stream, int64_t *workspace)
{
    char message[OP_MESSAGE_ROOM] = "";
    int count = ends->input_count;
    Tensor *views = malloc(((size_t)count + 1) * (sizeof *views + sizeof(Tensor *)));
    if (views == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    const Tensor **inputs = (const Tensor **)(void *)(views + count);
    for (int i = 0; i < count; i++) {
        views[i] = task->tensors[i];
        inputs[i] = views[i].rank < 0 ? NULL : &views[i];
        if (views[i].rank >= 0 && !value_is_hosts(ends->input_descs[i])) {
            views[i].data = memory_at(views[i].data, (size_t)tensor_bytes(&views[i]), false);
        }
    }
    OpCall call = {
        .kind = task->kind,
        .attrs = task->attrs == NULL ? NULL : &task->attrs->list,
        .threads = task->threads,
        .input_count = count,
        .output_count = ends->output_count,
        .inputs = inputs,
        .outputs = task->tensors + count,
        .message = message,
    };
    inputs_trim(&call);
    bool good = op_infer(&call);
    aclError status = good ? ACL_SUCCESS
        : fail(ACL_ERROR_OP_INPUT_NOT_MATCH, "operator %s: %s", task->kind->name, message);
    bool in_place = good && runs_in_place(task->kind, ends);
    if (good) {
        reach_narrow(&call, task, in_place);
    }
    for (int i = 0; i < ends->output_count && status == ACL_SUCCESS; i++) {
        status = output_settle(
            task->kind, ends, i, in_place && i == 0, &task->tensors[count + i]);
    }
    *workspace = status == ACL_SUCCESS ? op_workspace(&call) : 0;
    free(views);
    (void)stream;
    return status;
}

static aclError task_queue(OpTask *task, Stream *stream, aclrtStream handle, int64_t workspace)
{
    Source source;
    Block block = {0};
    if (workspace > 0) {
        TRY(opsource_choose(stream, handle, &source));
        TRY(source_take(&source, workspace_padded((size_t)workspace), &block));
        task->workspace = block.address;
        task->workspace_bytes = (size_t)workspace;
    }
    aclError status = stream_submit(stream, &op_task, &task, sizeof(OpTask *));
    source_give(&block);
    return status;
}

static aclError library_execute(
    const OpKind *kind, const OpEnds *ends, AttrSet *attrs, Stream *stream, aclrtStream handle)
{
    int64_t workspace = 0;
    size_t count = (size_t)ends->input_count + (size_t)ends->output_count;
    OpTask *task = calloc(1, sizeof *task + count * sizeof task->tensors[0]);
    if (task == NULL) {
        attrs_release(attrs);
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for an operator");
    }
    *task = (OpTask){.kind = kind,
        .attrs = attrs,
        .threads = kernel_threads(),
        .input_count = ends->input_count,
        .output_count = ends->output_count};
    aclError status = ACL_SUCCESS;
    for (int i = 0; i < ends->input_count && status == ACL_SUCCESS; i++) {
        status = input_read(ends, i, &task->tensors[i]);
    }
    status = status == ACL_SUCCESS ? values_copy(ends, task) : status;
    status = status == ACL_SUCCESS ? values_wait(kind, ends, task, stream) : status;
    status = status == ACL_SUCCESS ? call_infer(ends, task, stream, &workspace) : status;
    status = status == ACL_SUCCESS ? task_queue(task, stream, handle, workspace) : status;
    if (status != ACL_SUCCESS) {
        task_free(task);
    }
    return status;
}

aclError op_execute(const char *type, const OpEnds *ends, const aclopAttr *attr, aclrtStream handle)
{
    STREAM_REF(stream);
    AttrSet *attrs;
    REQUIRE(type);
    REQUIRE(ends->input_count >= 0 && ends->output_count >= 0);
    REQUIRE(ends->input_count == 0 || (ends->input_descs != NULL && ends->inputs != NULL));
    REQUIRE(ends->output_count == 0 || (ends->output_descs != NULL && ends->outputs != NULL));
    const OpKind *kind = op_find(type, OP_ACL);
    bool own = opkernel_registered(type);
    if (kind == NULL && !own) {
        return fail(ACL_ERROR_OP_NOT_FOUND, "the simulator has no operator %s", type);
    }
    TRY(stream_resolve(handle, &stream));
    TRY(attrs_take(attr, &attrs));
    if (!own) {
        return library_execute(kind, ends, attrs, stream, handle);
    }
    aclError status = opkernel_execute(type, ends, attrs, stream);
    attrs_release(attrs);
    return status;
}
