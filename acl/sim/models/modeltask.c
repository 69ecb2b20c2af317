/* modeltask.c: a node's kernel as a task of the stream.

   The task holds shapes and addresses, and a reference to its run, which owns the host values
   that it reads. Before it runs, it checks that its memory can still be accessed: a block that
   was unmapped too early makes the stream fail, as a page fault on a device does, and not the
   process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"
#include "models/modelrun.h"
#include "tensors/opfailure.h"
#include "races/race.h"
#include "profiling/subscription.h"

/* Messages name the function that the user called, not the function here that found the error. */
#undef fail
#define fail(code, ...) error_set("aclmdlExecute", (code), __VA_ARGS__)

typedef struct NodeTask {
    Run *run;
    const NetNode *node;
    void *workspace;
    size_t workspace_bytes;
    unsigned threads;
    Tensor tensors[];   /* inputs, then outputs; rank -1 = an input that was left out */
} NodeTask;

typedef struct CopyTask {
    Run *run;
    Rows copy;
} CopyTask;

bool stream_interrupted(void)
{
    const Stream *stream = stream_running();
    return stream != NULL && stream_is_dropping(stream);
}

static aclError memory_missing(
    const Run *run, const NetNode *node, const char *what, const void *address)
{
    char message[OP_MESSAGE_ROOM];
    (void)snprintf(message, sizeof message, "%s at %p was freed or unmapped before the kernel ran",
        what, address);
    return node_fail(run, node, ACL_ERROR_RT_AICORE_EXCEPTION, message);
}

/* Replaces each tensor's address by the address at which the simulator itself reaches the data. */
static aclError tensors_map(const NodeTask *task, Tensor *tensors)
{
    int inputs = task->node->input_count, count = inputs + task->node->output_count;
    for (int i = 0; i < count; i++) {
        tensors[i] = task->tensors[i];
        size_t bytes =
            tensors[i].rank < 0 || tensors[i].data == NULL ? 0 : (size_t)tensor_bytes(&tensors[i]);
        if (bytes == 0) {
            continue;
        }
        tensors[i].data = memory_at(task->tensors[i].data, bytes, i >= inputs);
        if (tensors[i].data == NULL) {
            return memory_missing(task->run, task->node, i < inputs ? "an input" : "an output",
                                  task->tensors[i].data);
        }
    }
    return ACL_SUCCESS;
}

static aclError node_execute(const NodeTask *task, Tensor *tensors, const Tensor **inputs)
{
    char message[OP_MESSAGE_ROOM] = "";
    const NetNode *node = task->node;
    for (int i = 0; i < node->input_count; i++) {
        inputs[i] = tensors[i].rank < 0 ? NULL : &tensors[i];
    }
    OpCall call = {
        .kind = node->kind,
        .attrs = &node->attrs,
        .opset = node->opset,
        .threads = task->threads,
        .input_count = node->input_count,
        .output_count = node->output_count,
        .inputs = inputs,
        .outputs = tensors + node->input_count,
        .message = message,
        .interrupted = stream_interrupted,
    };
    if (task->workspace != NULL) {
        call.workspace = memory_at(task->workspace, task->workspace_bytes, true);
        if (call.workspace == NULL) {
            return memory_missing(task->run, node, "its workspace", task->workspace);
        }
    }
    return op_run(&call) ? ACL_SUCCESS
                         : node_fail(task->run, node, ACL_ERROR_RT_AICORE_EXCEPTION, message);
}

/* Reports to the model's subscription that the node ran. */
static void node_tell(const Stream *stream, const NodeTask *task, int64_t begin_ns)
{
    subscription_tell(&(OpRun){
        .model = task->run->model->id,
        .type = task->node->type,
        .name = node_name(task->run->net, task->node),
        .flag = ACL_SUBSCRIBE_OP,
        .device = (uint32_t)stream_device(stream),
        .begin_ns = begin_ns,
        .end_ns = now_ns(),
    });
}

static aclError node_task_run(Stream *stream, const void *payload)
{
    const NodeTask *task = *(NodeTask *const *)payload;
    size_t count = (size_t)task->node->input_count + (size_t)task->node->output_count;
    char *memory = malloc(count * (sizeof(Tensor) + sizeof(Tensor *)) + 1);
    int64_t begin_ns = subscription_any() ? now_ns() : 0;
    if (memory == NULL) {
        return node_fail(task->run, task->node, ACL_ERROR_RT_AICORE_EXCEPTION, "no host memory");
    }
    Tensor *tensors = (Tensor *)(void *)memory;
    aclError status = tensors_map(task, tensors);
    if (status == ACL_SUCCESS) {
        status = node_execute(task, tensors, (const Tensor **)(void *)(tensors + count));
    }
    free(memory);
    if (status != ACL_SUCCESS) {
        opfailure_note(node_name(task->run->net, task->node), task->tensors,
            task->node->input_count, task->node->output_count);
    } else if (begin_ns != 0) {
        node_tell(stream, task, begin_ns);
    }
    return status;
}

static void node_task_drop(void *payload)
{
    NodeTask *task = *(NodeTask **)payload;
    run_release(task->run);
    free(task);
}

static void node_touch(const void *payload, Touch *touch)
{
    const NodeTask *task = *(NodeTask *const *)payload;
    int inputs = task->node->input_count, count = inputs + task->node->output_count;
    for (int i = 0; i < count; i++) {
        touch_tensor(touch, &task->tensors[i], i < inputs ? TOUCH_READ : TOUCH_WRITE);
    }
    touch_bytes(touch, task->workspace, task->workspace_bytes, TOUCH_WRITE);
}

static const TaskClass node_task = {
    .name = "model node",
    .touch = node_touch,
    .run = node_task_run,
    .drop = node_task_drop,
    .type = ACL_MODEL_RI_TASK_KERNEL,
};

aclError node_submit(
    Run *run, const NetNode *node, const Tensor *outputs, void *workspace, size_t workspace_bytes)
{
    size_t count = (size_t)node->input_count + (size_t)node->output_count;
    NodeTask *task = malloc(sizeof *task + count * sizeof task->tensors[0]);
    if (task == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a kernel");
    }
    *task = (NodeTask){run, node, workspace, workspace_bytes, kernel_threads()};
    for (int i = 0; i < node->input_count; i++) {
        const Slot *slot = node->inputs[i] < 0 ? NULL : &run->slots[node->inputs[i]];
        task->tensors[i] = slot == NULL ? (Tensor){.rank = -1} : slot->tensor;
        bool by_value = i < 32 && (node->kind->value_inputs >> i & 1U) != 0;
        if (slot != NULL && slot->host != NULL && (by_value || slot->tensor.data == NULL)) {
            task->tensors[i].data = (void *)(uintptr_t)slot->host;
        }
    }
    for (int i = 0; i < node->output_count; i++) {
        task->tensors[node->input_count + i] = outputs[i];
    }
    atomic_fetch_add(&run->references, 1);
    aclError status = stream_submit(run->stream, &node_task, &task, sizeof(NodeTask *));
    if (status != ACL_SUCCESS) {
        run_release(run);
        free(task);
    }
    return status;
}

/* --- copies --- */

static size_t rows_reach(const Rows *copy, size_t pitch)
{
    return (copy->rows - 1) * pitch + copy->bytes;
}

static aclError copy_task_run(Stream *stream, const void *payload)
{
    const CopyTask *task = payload;
    const Rows *copy = &task->copy;
    size_t to_bytes = rows_reach(copy, copy->to_pitch);
    size_t from_bytes = rows_reach(copy, copy->from_pitch);
    char *to = memory_at(copy->to, to_bytes, true);
    const char *from = memory_at(copy->from, from_bytes, false);
    if (to == NULL || from == NULL) {
        return fail(ACL_ERROR_RT_SYS_DMA, "stream %u: a copy's memory was freed before it ran",
            stream_id(stream));
    }
    for (size_t row = 0; row < copy->rows; row++) {
        memmove(to + row * copy->to_pitch, from + row * copy->from_pitch, copy->bytes);
    }
    return ACL_SUCCESS;
}

static void copy_task_drop(void *payload)
{
    CopyTask *task = payload;
    run_release(task->run);
}

static void copy_touch(const void *payload, Touch *touch)
{
    const Rows *copy = &((const CopyTask *)payload)->copy;
    touch_rows(touch, copy->from, copy->from_pitch, copy->bytes, copy->rows, TOUCH_READ);
    touch_rows(touch, copy->to, copy->to_pitch, copy->bytes, copy->rows, TOUCH_WRITE);
}

static const TaskClass copy_task = {
    .name = "model copy",
    .touch = copy_touch,
    .run = copy_task_run,
    .drop = copy_task_drop,
};

aclError run_copy_rows(Run *run, const Rows *copy)
{
    if (copy->rows == 0 || copy->bytes == 0) {
        return ACL_SUCCESS;
    }
    CopyTask task = {run, *copy};
    atomic_fetch_add(&run->references, 1);
    aclError status = stream_submit(run->stream, &copy_task, &task, sizeof task);
    if (status != ACL_SUCCESS) {
        run_release(run);
    }
    return status;
}

aclError run_copy(Run *run, void *to, const void *from, size_t bytes)
{
    return run_copy_rows(run, &(Rows){.rows = 1, .bytes = bytes, .to = to, .from = from});
}
