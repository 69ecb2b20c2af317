/* op.c: finding operators, their attributes, and the checks common to all. See op.h. */
#include "ops/op.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const OpKind *const tables[] = {
    ops_unary, ops_binary, ops_reduce, ops_along, ops_norm, ops_matmul, ops_conv, ops_pool,
    ops_reshape, ops_move, ops_gather, ops_make, ops_select, ops_rnn, ops_resize, ops_cast,
    ops_einsum, ops_quant, ops_qmatmul, ops_qconv, ops_grid, ops_pick, ops_local, ops_attention,
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

void op_explain(const OpCall *call, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(call->message, OP_MESSAGE_ROOM, format, args);
    va_end(args);
}

/* --- attributes --- */

const Attr *attr_find(const OpCall *call, const char *name)
{
    if (call->attrs == NULL) {
        return NULL;
    }
    for (int i = 0; i < call->attrs->count; i++) {
        if (strcmp(call->attrs->items[i].name, name) == 0) {
            return &call->attrs->items[i];
        }
    }
    return NULL;
}

int64_t attr_int(const OpCall *call, const char *name, int64_t otherwise)
{
    const Attr *attr = attr_find(call, name);
    return attr != NULL && attr->kind == ATTR_INT ? attr->i : otherwise;
}

double attr_float(const OpCall *call, const char *name, double otherwise)
{
    const Attr *attr = attr_find(call, name);
    if (attr == NULL || (attr->kind != ATTR_INT && attr->kind != ATTR_FLOAT)) {
        return (double)(float)otherwise; /* as an attribute would have it */
    }
    return attr->kind == ATTR_INT ? (double)attr->i : attr->f;
}

const char *attr_string(const OpCall *call, const char *name, const char *otherwise)
{
    const Attr *attr = attr_find(call, name);
    return attr != NULL && attr->kind == ATTR_STRING ? attr->s : otherwise;
}

static bool ints_of_tensor(const OpCall *call, const Tensor *tensor, const char *what,
    IntList *list)
{
    enum { ROOM = sizeof list->values / sizeof list->values[0] };
    list->count = tensor_count(tensor);
    if (list->count > ROOM || tensor->rank > 1 || !type_is_integer(tensor->type)) {
        char text[128];
        return op_fail(call, "%s: expected a vector of at most %d integers, got %s of shape %s", what,
            (int)ROOM, type_name(tensor->type), shape_text(tensor, text, sizeof text));
    }
    for (int64_t i = 0; i < list->count; i++) {
        list->values[i] = tensor_get_int(tensor, i);
    }
    return true;
}

bool op_ints(const OpCall *call, const char *attribute, int input, IntList *list)
{
    enum { ROOM = sizeof list->values / sizeof list->values[0] };
    list->count = -1;
    const Tensor *tensor = input < 0 ? NULL : op_input(call, input);
    if (tensor != NULL) {
        return ints_of_tensor(call, tensor, attribute, list);
    }
    const Attr *attr = attr_find(call, attribute);
    if (attr == NULL) {
        return true;
    }
    if (attr->kind == ATTR_INT) {
        list->count = 1;
        list->values[0] = attr->i;
        return true;
    }
    if (attr->kind != ATTR_INTS || attr->count > ROOM) {
        return op_fail(call, "attribute %s: expected at most %d integers", attribute, (int)ROOM);
    }
    list->count = attr->count;
    for (int64_t i = 0; i < attr->count; i++) {
        list->values[i] = attr->ints[i];
    }
    return true;
}

bool op_affords(const OpCall *call, double steps)
{
    double most = call->steps_max > 0 ? call->steps_max : OP_STEPS_MAX;
    return steps <= most
        || op_fail(
            call, "the attributes ask for %.3g steps; the work limit is %.3g", steps, most);
}

bool op_goes_on(const OpCall *call)
{
    return call->interrupted == NULL || !call->interrupted()
        || op_fail(call, "interrupted: its stream was aborted or is being destroyed");
}

bool op_same(OpCall *call, int from)
{
    call->outputs[0].type = call->inputs[from]->type;
    tensor_shape_copy(&call->outputs[0], call->inputs[from]);
    return true;
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

/* --- threads --- */

typedef struct Crew {
    void (*body)(void *context, int64_t index);
    void *context;
    int64_t count;
    _Atomic int64_t next;
} Crew;

static void *crew_work(void *argument)
{
    Crew *crew = argument;
    for (;;) {
        int64_t index = atomic_fetch_add_explicit(&crew->next, 1, memory_order_relaxed);
        if (index >= crew->count) {
            return NULL;
        }
        crew->body(crew->context, index);
    }
}

/* Threads are made per call: tens of microseconds, against work of milliseconds, and nothing is
   left over that fork or exit would have to deal with. */
void parallel_for(unsigned threads, int64_t count, void (*body)(void *context, int64_t index),
    void *context)
{
    enum { THREADS_MAX = 64 };
    pthread_t ids[THREADS_MAX];
    unsigned started = 0;
    Crew crew = {.body = body, .context = context, .count = count};
    while (started + 1 < threads && started + 1 < count && started < THREADS_MAX) {
        if (pthread_create(&ids[started], NULL, crew_work, &crew) != 0) {
            break; /* fewer threads, same result */
        }
        started++;
    }
    (void)crew_work(&crew);
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(ids[i], NULL);
    }
}
