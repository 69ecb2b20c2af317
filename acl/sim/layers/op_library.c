/* op_library.c: the list of all operators, the search for an operator, and the steps of a call. See op.h.

   This file uses the operator tables of the folders `ops` and `layers`, so it is in the upper one of the two. */
#include "ops/op.h"

#include <stdio.h>
#include <string.h>

static const OpKind *const tables[] = {
    ops_unary, ops_binary, ops_reduce, ops_along, ops_norm, ops_matmul, ops_conv, ops_pool,
    ops_reshape, ops_move, ops_gather, ops_make, ops_select, ops_rnn, ops_resize, ops_cast,
    ops_einsum, ops_quant, ops_qmatmul, ops_qconv, ops_grid, ops_local, ops_attention,
    ops_rotary, ops_fused, ops_heads, ops_group, ops_fourier, ops_fusedconv, ops_loss, ops_acl,
    ops_blas,
};

enum { TABLES = sizeof tables / sizeof tables[0] };

const OpKind *op_find(const char *name, OpDomain domain)
{
    for (int t = 0; t < TABLES; t++) {
        for (const OpKind *kind = tables[t]; kind->name != NULL; kind++) {
            if ((kind->domain & domain) != 0 && strcmp(kind->name, name) == 0) {
                return kind;
            }
        }
    }
    return NULL;
}

const OpKind *op_at(size_t index)
{
    for (int t = 0; t < TABLES; t++) {
        for (const OpKind *kind = tables[t]; kind->name != NULL; kind++) {
            if (index-- == 0) {
                return kind;
            }
        }
    }
    return NULL;
}

/* --- the three steps --- */

static bool counts_check(const OpCall *call)
{
    const OpKind *kind = call->kind;
    if (call->input_count < kind->inputs_min || call->input_count > kind->inputs_max) {
        return kind->inputs_min == kind->inputs_max
            ? op_fail(call, "expected %d inputs, got %d", kind->inputs_min, call->input_count)
            : op_fail(call, "expected %d to %d inputs, got %d", kind->inputs_min,
                kind->inputs_max, call->input_count);
    }
    if (call->output_count < 1 || call->output_count > kind->outputs_max) {
        return op_fail(call, "expected 1 to %d outputs, got %d", kind->outputs_max,
            call->output_count);
    }
    return true;
}

static const struct {
    const char *name;
    bool (*accept)(const OpCall *call);
} incomplete[] = {
    {"BatchNormalization", batch_accept}, {"GridSample", grid_accept},
    {"Resize", resize_accept}, {"Upsample", resize_accept},
    {"LSTM", rnn_accept}, {"GRU", rnn_accept}, {"RNN", rnn_accept},
    {"FusedMatMul", fused_accept}, {"FusedConv", fusedconv_accept},
    {"MultiHeadAttention", heads_accept},
    {"GroupQueryAttention", heads_accept},
};

bool op_accept(const OpCall *call)
{
    call->message[0] = '\0';
    if (!counts_check(call) || !form_accept(call)) {
        return false;
    }
    if (call->kind->domain == OP_ORT && strcmp(call->kind->name, "Attention") == 0) {
        return heads_accept(call);
    }
    for (size_t i = 0; i < sizeof incomplete / sizeof incomplete[0]; i++) {
        if (strcmp(call->kind->name, incomplete[i].name) == 0) {
            return incomplete[i].accept(call);
        }
    }
    return true;
}

static bool inputs_check(const OpCall *call)
{
    const OpKind *kind = call->kind;
    for (int i = 0; i < call->input_count; i++) {
        const Tensor *input = call->inputs[i];
        if (input == NULL && i < kind->inputs_min) {
            return op_fail(call, "input %d is required", i);
        }
        if (input != NULL && type_size(input->type) == 0) {
            return op_fail(call, "input %d: data type %d is not supported", i, (int)input->type);
        }
    }
    return form_check_inputs(call);
}

bool op_infer_reads(const OpKind *kind, int input)
{
    return (kind->flags & OP_DATA_SIZED) != 0
        || (input < 32 && (kind->value_inputs >> input & 1U) != 0);
}

bool op_infer(OpCall *call)
{
    if (!op_accept(call) || !inputs_check(call) || !call->kind->infer(call)) {
        return false;
    }
    for (int i = 0; i < call->output_count; i++) {
        char text[128];
        if (type_size(call->outputs[i].type) == 0) {
            return op_fail(call, "output %d would have the data type %d, which is not supported", i,
                (int)call->outputs[i].type);
        }
        if (!tensor_fits(&call->outputs[i])) {
            return op_fail(call, "output %d would have the shape %s", i,
                shape_text(&call->outputs[i], text, sizeof text));
        }
    }
    return true;
}

int64_t op_workspace(const OpCall *call)
{
    return call->kind->workspace == NULL ? 0 : call->kind->workspace(call);
}

bool op_run(const OpCall *call)
{
    return call->kind->run(call);
}
