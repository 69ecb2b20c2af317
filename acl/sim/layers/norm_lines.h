/* norm_lines.h: the arithmetic of op_norm.c on lines of elements of type REAL. op_norm.c includes this file twice,
   for float and for double, so it has no include guard. Before each inclusion it defines REAL, REAL_TYPE (the
   aclDataType of REAL), NAME(x), EXP, LOG and SQRT. */

static const REAL *NAME(line_load)(
    const Tensor *in, const Lines *lines, int64_t line, REAL *buffer)
{
    int64_t at = line / lines->inner * lines->length * lines->inner + line % lines->inner;
    const char *place = (const char *)in->data + at * type_size(in->type);
    if (in->type == REAL_TYPE && lines->inner == 1) {
        return (const REAL *)(const void *)place;
    }
    convert(buffer, REAL_TYPE, place, in->type, lines->inner, lines->length);
    return buffer;
}

static void NAME(line_store)(
    const Tensor *out, const Lines *lines, int64_t line, const REAL *buffer)
{
    int64_t size = type_size(out->type);
    int64_t at = line / lines->inner * lines->length * lines->inner + line % lines->inner;
    char *place = (char *)out->data + at * size;
    if (lines->inner == 1) {
        convert(place, out->type, buffer, REAL_TYPE, 1, lines->length);
        return;
    }
    uint64_t made[STORE_BLOCK];
    for (int64_t j = 0; j < lines->length; j += STORE_BLOCK) {
        int64_t n = lines->length - j < STORE_BLOCK ? lines->length - j : STORE_BLOCK;
        convert(made, out->type, buffer + j, REAL_TYPE, 1, n);
        elements_spread(place + j * lines->inner * size, lines->inner, made, size, n);
    }
}

WIDE static REAL NAME(line_max)(const REAL *in, int64_t n)
{
    REAL lanes[16], best = -(REAL)INFINITY;
    int64_t i = 0;
    for (int l = 0; l < 16; l++) {
        lanes[l] = best;
    }
    for (; i + 16 <= n; i += 16) {
        for (int l = 0; l < 16; l++) {
            lanes[l] = in[i + l] > lanes[l] ? in[i + l] : lanes[l];
        }
    }
    for (int l = 0; l < 16; l++) {
        best = lanes[l] > best ? lanes[l] : best;
    }
    for (; i < n; i++) {
        best = in[i] > best ? in[i] : best;
    }
    return best;
}

/* Returns the sum of (x - mean)^2; if `square` is false, the sum of x. */
WIDE static REAL NAME(line_fold)(const REAL *in, REAL mean, bool square, int64_t n)
{
    REAL lanes[16] = {0};
    int64_t i = 0;
    for (; square && i + 16 <= n; i += 16) {
        for (int l = 0; l < 16; l++) {
            REAL d = in[i + l] - mean;
            lanes[l] += d * d;
        }
    }
    for (; !square && i + 16 <= n; i += 16) {
        for (int l = 0; l < 16; l++) {
            lanes[l] += in[i + l];
        }
    }
    double total = 0.0;
    for (int l = 0; l < 16; l++) {
        total += (double)lanes[l];
    }
    for (; i < n; i++) {
        double d = (double)(in[i] - mean);
        total += square ? d * d : (double)in[i];
    }
    return (REAL)total;
}

WIDE static void NAME(line_softmax)(const REAL *in, REAL *out, int64_t n, bool logarithm)
{
    REAL top = NAME(line_max)(in, n);
    for (int64_t i = 0; i < n; i++) {
        out[i] = EXP(in[i] - top);
    }
    REAL sum = NAME(line_fold)(out, 0, false, n);
    if (logarithm) {
        REAL shift = LOG(sum);
        for (int64_t i = 0; i < n; i++) {
            out[i] = in[i] - top - shift;
        }
        return;
    }
    REAL scale = 1 / sum;
    for (int64_t i = 0; i < n; i++) {
        out[i] *= scale;
    }
}

static void NAME(line_lp)(const REAL *in, REAL *out, int64_t n, int64_t p)
{
    double total = 0.0;
    for (int64_t i = 0; i < n; i++) {
        total += p == 1 ? fabs((double)in[i]) : (double)in[i] * (double)in[i];
    }
    double norm = p == 1 ? total : sqrt(total);
    for (int64_t i = 0; i < n; i++) {
        out[i] = norm < 0.0 || norm > 0.0 || isnan(norm) ? (REAL)((double)in[i] / norm) : 0;
    }
}

/* Computes the softmax of `n` neighbouring lines, at most STORE_BLOCK. The elements of a line are `inner` elements
   apart in memory. */
WIDE static void NAME(lines_softmax)(
    const REAL *in, REAL *out, int64_t length, int64_t inner, int64_t n, bool logarithm)
{
    REAL top[STORE_BLOCK], sum[STORE_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        top[i] = -(REAL)INFINITY;
        sum[i] = 0;
    }
    for (int64_t j = 0; j < length; j++) {
        for (int64_t i = 0; i < n; i++) {
            top[i] = in[j * inner + i] > top[i] ? in[j * inner + i] : top[i];
        }
    }
    for (int64_t j = 0; j < length; j++) {
        for (int64_t i = 0; i < n; i++) {
            REAL power = EXP(in[j * inner + i] - top[i]);
            out[j * inner + i] = power;
            sum[i] += power;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        sum[i] = logarithm ? LOG(sum[i]) : 1 / sum[i];
    }
    for (int64_t j = 0; j < length; j++) {
        for (int64_t i = 0; i < n; i++) {
            REAL *place = &out[j * inner + i];
            *place = logarithm ? in[j * inner + i] - top[i] - sum[i] : *place * sum[i];
        }
    }
}

/* Computes the softmax along an axis that is not the last one, of a tensor of REAL: the lines are interleaved in
   memory. */
static void NAME(softmax_across)(const OpCall *call, const Lines *lines)
{
    const REAL *in = call->inputs[0]->data;
    REAL *out = call->outputs[0].data;
    for (int64_t o = 0; o < lines->outer; o++) {
        for (int64_t i = 0; i < lines->inner; i += STORE_BLOCK) {
            int64_t n = lines->inner - i < STORE_BLOCK ? lines->inner - i : STORE_BLOCK;
            int64_t at = o * lines->length * lines->inner + i;
            NAME(lines_softmax)(in + at, out + at, lines->length, lines->inner, n,
                call->kind->variant == LOGSOFTMAX);
        }
    }
}

static void NAME(softmax_lines_run)(const OpCall *call, const Lines *lines)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    if (in->type == REAL_TYPE && lines->inner > 1 && call->kind->variant != LP
        && in->data != out->data) {
        NAME(softmax_across)(call, lines);
        return;
    }
    bool direct = call->workspace == NULL;
    for (int64_t line = 0; line < lines->outer * lines->inner && lines->length > 0; line++) {
        REAL *buffer = call->workspace;
        const REAL *from = NAME(line_load)(in, lines, line, buffer);
        REAL *to = direct ? (REAL *)out->data + line * lines->length : buffer + lines->length;
        if (call->kind->variant == LP) {
            NAME(line_lp)(from, to, lines->length, attr_int(call, "p", 2));
        } else {
            NAME(line_softmax)(from, to, lines->length, call->kind->variant == LOGSOFTMAX);
        }
        if (!direct) {
            NAME(line_store)(out, lines, line, to);
        }
    }
}

/* Loads scale and bias. If the input of the scale was left out, each scale is 1; if that of the bias was left out, each
   bias is 0. */
static void NAME(affine_load)(
    const OpCall *call, int scale, int bias, int64_t length, REAL *gamma, REAL *beta)
{
    const Tensor *s = op_input(call, scale), *b = op_input(call, bias);
    REAL one = 1, zero = 0;
    convert(gamma, REAL_TYPE, s == NULL ? &one : s->data, s == NULL ? REAL_TYPE : s->type,
        s != NULL, length);
    convert(beta, REAL_TYPE, b == NULL ? &zero : b->data, b == NULL ? REAL_TYPE : b->type,
        b != NULL, length);
}

static void NAME(output_put)(const OpCall *call, int output, int64_t index, REAL value)
{
    if (output < call->output_count && call->outputs[output].data != NULL) {
        const Tensor *out = &call->outputs[output];
        char *place = (char *)out->data + index * type_size(out->type);
        convert(place, out->type, &value, REAL_TYPE, 1, 1);
    }
}

WIDE static void NAME(line_scale)(const REAL *in, REAL mean, REAL scale, const REAL *gamma,
    const REAL *beta, int64_t n, REAL *out)
{
    for (int64_t j = 0; j < n; j++) {
        out[j] = (in[j] - mean) * scale * gamma[j] + beta[j];
    }
}

static void NAME(layer_lines_run)(const OpCall *call, const Lines *lines)
{
    int64_t n = lines->length;
    REAL *buffer = call->workspace, *to = buffer + n, *gamma = to + n, *beta = gamma + n;
    bool acl = call->kind->domain == OP_ACL, plain = call->kind->variant != 0;
    REAL epsilon = (REAL)attr_float(call, "epsilon", acl ? 1e-7 : 1e-5);
    NAME(affine_load)(call, 1, 2, n, gamma, beta);
    for (int64_t line = 0; line < lines->outer && n == 0; line++) { /* the mean of a line without elements is NaN */
        NAME(output_put)(call, 1, line, (REAL)NAN);
        NAME(output_put)(call, 2, line, (REAL)NAN);
    }
    for (int64_t line = 0; line < lines->outer && n > 0; line++) {
        const REAL *from = NAME(line_load)(call->inputs[0], lines, line, buffer);
        REAL mean = plain ? 0 : NAME(line_fold)(from, 0, false, n) / (REAL)n;
        REAL variance = NAME(line_fold)(from, mean, true, n) / (REAL)n;
        REAL scale = 1 / SQRT(variance + epsilon);
        NAME(line_scale)(from, mean, scale, gamma, beta, n, to);
        NAME(line_store)(&call->outputs[0], lines, line, to);
        NAME(output_put)(call, 1, line, plain ? scale : mean);
        NAME(output_put)(call, 2, line, acl ? variance : scale);
    }
}

static REAL NAME(channel_value)(const Tensor *tensor, int64_t channel, int64_t channels)
{
    int64_t count = tensor_count(tensor);
    return (REAL)tensor_get_real(tensor, count == channels ? channel : channel * count / channels);
}

WIDE static void NAME(plane_scale)(
    const REAL *in, REAL mean, REAL gamma, REAL beta, int64_t n, REAL *out)
{
    for (int64_t j = 0; j < n; j++) {
        out[j] = (in[j] - mean) * gamma + beta;
    }
}

WIDE static void NAME(line_batch)(const REAL *in, const REAL *means, const REAL *gammas,
    const REAL *betas, int64_t n, REAL *out)
{
    for (int64_t j = 0; j < n; j++) {
        out[j] = (in[j] - means[j]) * gammas[j] + betas[j];
    }
}

/* Runs instance and group normalisation, where each line is normalised with its own mean and variance. */
static void NAME(channel_lines_run)(const OpCall *call, const Lines *lines, int64_t plane)
{
    int64_t n = lines->length, channels = call->inputs[0]->dims[1];
    REAL *buffer = call->workspace, *to = buffer + n;
    REAL epsilon = (REAL)attr_float(call, "epsilon", 1e-5);
    for (int64_t line = 0; line < lines->outer && n > 0; line++) {
        const REAL *from = NAME(line_load)(call->inputs[0], lines, line, buffer);
        int64_t first = line * (n / plane) % channels;
        REAL mean = NAME(line_fold)(from, 0, false, n) / (REAL)n;
        REAL variance = NAME(line_fold)(from, mean, true, n) / (REAL)n;
        REAL scale = 1 / SQRT(variance + epsilon);
        for (int64_t c = 0; c < n / plane; c++) {
            REAL gamma = NAME(channel_value)(call->inputs[1], first + c, channels) * scale;
            REAL beta = NAME(channel_value)(call->inputs[2], first + c, channels);
            NAME(plane_scale)(from + c * plane, mean, gamma, beta, plane, to + c * plane);
        }
        NAME(line_store)(&call->outputs[0], lines, line, to);
    }
}

/* Runs batch normalisation. A line has all channels of an image, and each channel has its own scale and shift. */
static void NAME(batch_lines_run)(const OpCall *call, const Lines *lines, int64_t plane)
{
    int64_t n = lines->length, channels = call->inputs[0]->dims[1];
    REAL *buffer = call->workspace, *to = buffer + n, *gammas = to + n, *betas = gammas + n,
         *means = betas + n;
    REAL epsilon = (REAL)attr_float(call, "epsilon", 1e-5);
    for (int64_t c = 0; c < channels && n > 0; c++) {
        REAL mean = NAME(channel_value)(call->inputs[3], c, channels);
        REAL variance = NAME(channel_value)(call->inputs[4], c, channels);
        REAL gamma = NAME(channel_value)(call->inputs[1], c, channels) / SQRT(variance + epsilon);
        REAL beta = NAME(channel_value)(call->inputs[2], c, channels);
        for (int64_t j = 0; j < plane; j++) {
            gammas[c * plane + j] = gamma;
            betas[c * plane + j] = beta;
            means[c * plane + j] = mean;
        }
    }
    for (int64_t line = 0; line < lines->outer && n > 0; line++) {
        const REAL *from = NAME(line_load)(call->inputs[0], lines, line, buffer);
        NAME(line_batch)(from, means, gammas, betas, n, to);
        NAME(line_store)(&call->outputs[0], lines, line, to);
    }
}

#undef REAL
#undef REAL_TYPE
#undef NAME
#undef EXP
#undef LOG
#undef SQRT
