/* op_qconv.c: convolutions of quantised tensors: ConvInteger and QLinearConv.

   First the zero points are subtracted from input and weights. So the zeros of the padding stand for the input's
   zero point, as ONNX requires. Then the input is unfolded as for Conv, and an exact product (quant.h) is
   computed. The workspace contains all intermediate results for one group of one image. */
#include "layers/conv.h"
#include "numbers/gemm.h"
#include "numbers/quant.h"

enum { INTEGER, QLINEAR };

/* The indices of the inputs, by operator; -1: the operator has no such input. */
typedef struct Places {
    int weight, x_zero, w_zero, x_scale, w_scale, y_scale, y_zero, bias;
} Places;

static const Places places[] = {
    [INTEGER] = {.weight = 1, .x_zero = 2, .w_zero = 3, .x_scale = -1, .w_scale = -1,
        .y_scale = -1, .y_zero = -1, .bias = -1},
    [QLINEAR] = {.x_scale = 1, .x_zero = 2, .weight = 3, .w_scale = 4, .w_zero = 5, .y_scale = 6,
        .y_zero = 7, .bias = 8},
};

static bool plan(const OpCall *call, Conv *conv)
{
    const Tensor *in = call->inputs[0], *weight = call->inputs[places[call->kind->variant].weight];
    if (!quant_is_byte(in->type) || !quant_is_byte(weight->type)) {
        return op_fail(call, "expected an input and a weight of int8 or uint8, got %s and %s",
            type_name(in->type), type_name(weight->type));
    }
    return conv_measure(call, weight, conv);
}

/* Checks a parameter, which must be one number, or one number for each of `filters` filters. Returns false, with a
   message, if it is not. */
static bool parameter_check(const OpCall *call, int place, int64_t filters, aclDataType type)
{
    const Tensor *given = op_input(call, place);
    if (given == NULL) {
        return true;
    }
    if (given->type != type) {
        return op_fail(call, "input %d: expected %s, got %s", place, type_name(type),
            type_name(given->type));
    }
    return tensor_count(given) == 1 || tensor_count(given) == filters
        || op_fail(call, "input %d: expected one value or %lld, got %lld", place,
            (long long)filters, (long long)tensor_count(given));
}

static bool parameters_check(const OpCall *call, int64_t filters)
{
    const Places *at = &places[call->kind->variant];
    const Tensor *bias = op_input(call, at->bias);
    if (bias != NULL && (bias->type != ACL_INT32 || tensor_count(bias) != filters)) {
        return op_fail(call, "input 8: expected a bias of %lld int32, got %lld %s",
            (long long)filters, (long long)tensor_count(bias), type_name(bias->type));
    }
    return parameter_check(call, at->x_zero, 1, call->inputs[0]->type)
        && parameter_check(call, at->w_zero, filters, call->inputs[at->weight]->type)
        && parameter_check(call, at->x_scale, 1, ACL_FLOAT)
        && parameter_check(call, at->w_scale, filters, ACL_FLOAT)
        && parameter_check(call, at->y_scale, 1, ACL_FLOAT);
}

static bool infer(OpCall *call)
{
    Conv conv;
    const Places *at = &places[call->kind->variant];
    if (!plan(call, &conv) || !parameters_check(call, conv.filters)) {
        return false;
    }
    window_shape(call, &conv.w, conv.filters);
    const Tensor *zero = op_input(call, at->y_zero);
    call->outputs[0].type = at->y_zero < 0 ? ACL_INT32 : zero->type;
    return at->y_zero < 0 || (quant_is_byte(zero->type) && tensor_count(zero) == 1)
        || op_fail(call, "input %d: expected one int8 or uint8, got %lld %s", at->y_zero,
            (long long)tensor_count(zero), type_name(zero->type));
}

/* --- the workspace; its parts lie in the order of the struct's fields --- */

typedef struct Room {
    float *image;      /* the input channels of one group */
    float *weights;    /* the filters of one group */
    float *columns;
    float *partial;
    int32_t *sums;
    void *scratch;
    int64_t bytes;     /* size of the whole workspace */
} Room;

static void *room_take(char *base, int64_t *bytes, int64_t count)
{
    void *taken = base == NULL ? NULL : base + *bytes;
    *bytes += (count * (int64_t)sizeof(float) + 63) / 64 * 64;
    return taken;
}

static Room room_plan(const Conv *conv, void *base)
{
    Room room = {.bytes = 0};
    room.image = room_take(base, &room.bytes, conv->in_group * conv->w.in_plane);
    room.weights = room_take(base, &room.bytes, conv->out_group * conv->depth);
    room.columns = room_take(base, &room.bytes, conv->depth * conv->tile);
    room.partial = room_take(base, &room.bytes, conv->out_group * conv->tile);
    room.sums = room_take(base, &room.bytes, conv->out_group * conv->tile);
    room.scratch = base == NULL ? NULL : (char *)base + room.bytes;
    room.bytes += gemm_scratch(conv->out_group, conv->tile, conv->depth);
    return room;
}

static int64_t workspace(const OpCall *call)
{
    Conv conv;
    return plan(call, &conv) ? room_plan(&conv, NULL).bytes : 0;
}

/* --- one group of one image --- */

static void numbers_load(
    const void *from, aclDataType type, int64_t count, double zero, float *to)
{
    convert(to, ACL_FLOAT, from, type, 1, count);
    for (int64_t i = 0; zero != 0.0 && i < count; i++) {
        to[i] -= (float)zero;
    }
}

/* Writes the sums of one filter for `count` output positions, for QLinearConv with the bias and in the output's
 * scale. */
static void sums_store(
    const OpCall *call, int64_t filter, const int32_t *sums, int64_t count, char *out)
{
    const Places *at = &places[call->kind->variant];
    int32_t low, high;
    if (!quant_limits(call->outputs[0].type, &low, &high)) {
        convert(out, ACL_INT32, sums, ACL_INT32, 1, count);
        return;
    }
    const Tensor *bias = op_input(call, at->bias);
    uint32_t add = bias == NULL ? 0 : (uint32_t)tensor_get_int(bias, filter);
    int32_t zero = (int32_t)quant_parameter(op_input(call, at->y_zero), 0);
    float scale = (float)quant_parameter(op_input(call, at->x_scale), 0)
        * (float)quant_parameter(op_input(call, at->w_scale), filter)
        / (float)quant_parameter(op_input(call, at->y_scale), 0);
    for (int64_t i = 0; i < count; i++) {
        int32_t sum = (int32_t)((uint32_t)sums[i] + add);
        out[i] = (char)quant_round((float)sum * scale, zero, low, high);
    }
}

static void group_load(
    const OpCall *call, const Conv *conv, int64_t index, const Room *room)
{
    const Places *at = &places[call->kind->variant];
    const Tensor *in = call->inputs[0], *weight = call->inputs[at->weight];
    int64_t plane = conv->in_group * conv->w.in_plane;
    int64_t first = index % conv->groups * conv->out_group;
    numbers_load((const char *)in->data + index * plane, in->type, plane,
        quant_parameter(op_input(call, at->x_zero), 0), room->image);
    for (int64_t f = 0; f < conv->out_group; f++) {
        numbers_load((const char *)weight->data + (first + f) * conv->depth, weight->type,
            conv->depth, quant_parameter(op_input(call, at->w_zero), first + f),
            room->weights + f * conv->depth);
    }
}

static void group_run(const OpCall *call, const Conv *conv, int64_t index, const Room *room)
{
    int64_t plane = conv->w.out_plane, size = type_size(call->outputs[0].type);
    group_load(call, conv, index, room);
    for (int64_t first = 0; first < plane; first += conv->tile) {
        int64_t count = plane - first < conv->tile ? plane - first : conv->tile;
        conv_unfold(conv, room->image, ACL_FLOAT, first, count, room->columns);
        WholeProduct product = {
            .m = conv->out_group, .n = count, .k = conv->depth, .a = room->weights,
            .b = room->columns, .c = room->sums, .partial = room->partial,
            .scratch = room->scratch, .threads = call->threads,
        };
        whole_product(&product);
        for (int64_t f = 0; f < conv->out_group; f++) {
            int64_t at = (index * conv->out_group + f) * plane + first;
            sums_store(call, index % conv->groups * conv->out_group + f, room->sums + f * count,
                count, (char *)call->outputs[0].data + at * size);
        }
    }
}

static bool run(const OpCall *call)
{
    Conv conv;
    if (!plan(call, &conv)) {
        return false;
    }
    Room room = room_plan(&conv, call->workspace);
    for (int64_t i = 0; i < conv.w.batch * conv.groups; i++) {
        group_run(call, &conv, i, &room);
    }
    return true;
}

const OpKind ops_qconv[] = {
    {"ConvInteger", OP_ONNX, 2, 4, 1, 0, infer, workspace, run, INTEGER, 0},
    {"QLinearConv", OP_ONNX, 8, 9, 1, 0, infer, workspace, run, QLINEAR, 0},
    {0},
};
