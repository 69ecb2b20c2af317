/* modelshape.c: the shapes of a model's outputs, without running it.

   If a model's input shapes are known (declared, or set by a gear), so are its outputs' sizes, as
   for a compiled model on a device. Programs allocate output buffers of these sizes. This file
   infers only the outputs' shapes of each node; it computes shape arithmetic on the host. The
   inference ends without result at control flow, and at a node that needs the value of a tensor
   that only a kernel computes.

   The shapes under each gear are inferred once, at load.

   Thread rule: any thread; after the load the model is only read. */
#include <stdlib.h>
#include <string.h>

#include "models/model.h"

typedef struct Walk {
    const Model *model;
    Tensor *values;         /* `data` is the value if the host can compute it, else NULL */
    void **made;            /* host values that this inference computed, to be freed */
    int made_count;
    Tensor *outputs, *views;
    const Tensor **inputs;
    char message[OP_MESSAGE_ROOM];
} Walk;

/* True if the node reads the values of input `i`, and not only its shape. A host node such as Shape
   reads only the shape of a tensor that a kernel computes. */
static bool read_by_value(const Net *net, const NetNode *node, int i)
{
    if (node->host) {
        return net->values[node->inputs[i]].host;
    }
    return op_infer_reads(node->kind, i);
}

static bool inputs_collect(Walk *walk, const NetNode *node)
{
    for (int i = 0; i < node->input_count; i++) {
        walk->inputs[i] = NULL;
        if (node->inputs[i] >= 0) {
            const Tensor *value = &walk->values[node->inputs[i]];
            if (value->rank < 0
                || (read_by_value(&walk->model->net, node, i) && value->data == NULL
                    && tensor_bytes(value) > 0)) {
                return false;
            }
            walk->views[i] = *value;
            walk->inputs[i] = &walk->views[i];
        }
    }
    return true;
}

static bool node_shapes(Walk *walk, const NetNode *node)
{
    OpCall call = {
        .kind = node->kind,
        .attrs = &node->attrs,
        .opset = node->opset,
        .threads = 1,
        .input_count = node->input_count,
        .output_count = node->output_count,
        .inputs = walk->inputs,
        .outputs = walk->outputs,
        .message = walk->message,
    };
    memset(walk->outputs, 0, (size_t)node->output_count * sizeof *walk->outputs);
    return op_infer(&call);
}

static bool node_walk(Walk *walk, const NetNode *node)
{
    if (node->control != CONTROL_NONE || !inputs_collect(walk, node)) {
        return false;
    }
    bool known = node->host
        ? node_run_host(node, walk->inputs, walk->outputs, HOST_VALUE_MAX, walk->message)
        : node_shapes(walk, node);
    for (int i = 0; known && i < node->output_count; i++) {
        if (node->host) {
            walk->made[walk->made_count++] = walk->outputs[i].data;
        } else {
            walk->outputs[i].data = NULL;
        }
        if (node->outputs[i] >= 0) {
            walk->values[node->outputs[i]] = walk->outputs[i];
        }
    }
    return known;
}

static bool walk_start(Walk *walk, const int64_t *gear, int gear_values)
{
    const Net *net = &walk->model->net;
    for (int v = 0; v < net->value_count; v++) {
        const Tensor *constant = net->values[v].constant;
        walk->values[v] = constant != NULL ? *constant : (Tensor){.rank = -1};
    }
    for (int i = 0; i < net->input_count; i++) {
        Tensor *input = &walk->values[net->inputs[i]];
        if (net->values[net->inputs[i]].rank < 0) {
            return false;
        }
        model_input_dims(walk->model, i, gear, gear_values, input);
        if (!tensor_fits(input)) {
            return false;
        }
    }
    return true;
}

static bool walk_all(Walk *walk, const int64_t *gear, int gear_values, Tensor *outputs)
{
    const Net *net = &walk->model->net;
    bool known = walk_start(walk, gear, gear_values);
    for (int n = 0; known && n < net->main.node_count; n++) {
        known = node_walk(walk, &net->main.nodes[n]);
    }
    for (int i = 0; known && i < net->output_count; i++) {
        outputs[i] = walk->values[net->outputs[i]];
        outputs[i].data = NULL;
        known = outputs[i].rank >= 0 && tensor_fits(&outputs[i]);
    }
    return known;
}

static void walk_free(Walk *walk)
{
    for (int i = 0; i < walk->made_count; i++) {
        free(walk->made[i]);
    }
    free(walk->values);
    free(walk->made);
    free(walk->outputs);
    free(walk->views);
    free((void *)walk->inputs);
}

bool model_output_shapes(
    const Model *model, const int64_t *gear, int gear_values, Tensor *outputs)
{
    size_t widest = 1, made = 1;
    for (int n = 0; n < model->net.main.node_count; n++) {
        const NetNode *node = &model->net.main.nodes[n];
        widest = (size_t)node->input_count > widest ? (size_t)node->input_count : widest;
        widest = (size_t)node->output_count > widest ? (size_t)node->output_count : widest;
        made += (size_t)node->output_count;
    }
    Walk walk = {
        .model = model,
        .values = calloc((size_t)model->net.value_count + 1, sizeof(Tensor)),
        .made = calloc(made, sizeof(void *)),
        .outputs = calloc(widest, sizeof(Tensor)),
        .views = calloc(widest, sizeof(Tensor)),
        .inputs = calloc(widest, sizeof(Tensor *)),
    };
    bool room = walk.values != NULL && walk.made != NULL && walk.outputs != NULL
        && walk.views != NULL && walk.inputs != NULL;
    bool known = room && walk_all(&walk, gear, gear_values, outputs);
    walk_free(&walk);
    return known;
}

aclError model_gears_infer(Model *model)
{
    size_t count = (size_t)model->net.output_count;
    model->gear = -1;
    model->geared = calloc((size_t)model->gears.count * count + 1, sizeof *model->geared);
    if (model->geared == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for the shapes of %d gears",
            model->gears.count);
    }
    for (int g = 0; g < model->gears.count; g++) {
        Tensor *shapes = &model->geared[(size_t)g * count];
        bool known = model_output_shapes(
            model, model->gears.value[g], model->gears.values, shapes);
        for (size_t i = 0; !known && i < count; i++) {
            shapes[i].rank = -1;
        }
    }
    return ACL_SUCCESS;
}

const Tensor *model_geared_output(const Model *model, int gear, int output)
{
    const Tensor *found = NULL;
    for (int g = 0; g < model->gears.count; g++) {
        const Tensor *shape = &model->geared[g * model->net.output_count + output];
        bool wanted = shape->rank >= 0 && (gear < 0 || g == gear);
        if (wanted && (found == NULL || tensor_bytes(shape) > tensor_bytes(found))) {
            found = shape;
        }
    }
    return found;
}
