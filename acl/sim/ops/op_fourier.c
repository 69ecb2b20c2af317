/* op_fourier.c: DFT and STFT, and the windows that belong to them.

   A transform is split by the prime factors of its length n. It is fast if all factors are small;
   if n is a large prime, it takes n * n steps. All computations are in double. The last dimension
   of a tensor has one number for a real element, and two (real part, imaginary part) for a complex
   one. */
#include "ops/op.h"

#include <math.h>
#include <string.h>

static const double TURN = 6.283185307179586;

typedef struct Complex {
    double re, im;
} Complex;

static Complex product(Complex a, Complex b)
{
    return (Complex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

enum { LONG_FACTOR = 4096 }; /* terms; before a longer sum, the transform checks whether the call was interrupted */

/* Tables and memory for transforms of one length. */
typedef struct Fourier {
    int64_t length;
    bool inverse;
    Complex *turns;         /* the `length` roots of unity */
    Complex *in, *out, *few;
    const OpCall *call;     /* to check whether the call was interrupted */
} Fourier;

static int64_t factor_of(int64_t n)
{
    for (int64_t p = 2; p * p <= n; p++) {
        if (n % p == 0) {
            return p;
        }
    }
    return n;
}

/* True if the transforms of `lines` lines of that length are within the limit of work. A prime
   length takes length * length steps. */
static bool fourier_affords(const OpCall *call, int64_t lines, int64_t length)
{
    double factors = 1.0;
    for (int64_t n = length; n > 1; n /= factor_of(n)) {
        factors += (double)factor_of(n);
    }
    return op_affords(call, (double)lines * (double)length * factors);
}

/* Combines the transform of the even-numbered elements and, behind it, that of the odd-numbered ones into the
   transform of all 2m elements. */
static void halves_join(const Complex *turns, int64_t gap, Complex *out, int64_t m)
{
    for (int64_t k = 0; k < m; k++) {
        Complex a = out[k], b = product(out[m + k], turns[k * gap]);
        out[k] = (Complex){a.re + b.re, a.im + b.im};
        out[m + k] = (Complex){a.re - b.re, a.im - b.im};
    }
}

/* Transforms n = length / gap numbers, which are `step` apart, by combining the transforms of their parts. */
static void transform(const Fourier *f, const Complex *in, int64_t step, Complex *out, int64_t n)
{
    if (n == 1) {
        out[0] = in[0];
        return;
    }
    int64_t p = factor_of(n), m = n / p, gap = f->length / n;
    for (int64_t r = 0; r < p; r++) {
        transform(f, in + r * step, step * p, out + r * m, m);
    }
    if (p == 2) {
        halves_join(f->turns, gap, out, m);
        return;
    }
    for (int64_t k = 0; k < m; k++) {
        for (int64_t r = 0; r < p; r++) {
            f->few[r] = product(out[r * m + k], f->turns[r * k * gap % f->length]);
        }
        for (int64_t q = 0; q < p; q++) {
            if (p > LONG_FACTOR && !op_goes_on(f->call)) {
                return;
            }
            Complex sum = {0.0, 0.0};
            for (int64_t r = 0; r < p; r++) {
                Complex x = product(f->few[r], f->turns[r * q % p * (f->length / p)]);
                sum.re += x.re;
                sum.im += x.im;
            }
            out[k + q * m] = sum;
        }
    }
}

static int64_t fourier_bytes(int64_t length)
{
    return 4 * (length + 1) * (int64_t)sizeof(Complex);
}

static Fourier fourier_open(const OpCall *call, int64_t length, bool inverse)
{
    Complex *base = call->workspace;
    Fourier f = {.call = call, .length = length, .inverse = inverse, .turns = base,
        .in = base + length,
        .out = base + 2 * length, .few = base + 3 * length};
    for (int64_t i = 0; i < length; i++) {
        double angle = TURN * (double)i / (double)length;
        f.turns[i] = (Complex){cos(angle), inverse ? sin(angle) : -sin(angle)};
    }
    return f;
}

/* Transforms `in` into `out`; false if the call was interrupted. */
static bool fourier_run(const Fourier *f)
{
    transform(f, f->in, 1, f->out, f->length);
    for (int64_t i = 0; f->inverse && i < f->length; i++) {
        f->out[i].re /= (double)f->length;
        f->out[i].im /= (double)f->length;
    }
    return op_goes_on(f->call);
}

static void real_put(const Tensor *out, int64_t at, double value)
{
    convert((char *)out->data + at * type_size(out->type), out->type, &value, ACL_DOUBLE, 1, 1);
}

/* --- DFT --- */

typedef struct Plan {
    int axis;
    int64_t parts;          /* numbers for each input element: 1 is real, 2 complex */
    int64_t given;          /* elements of the input along the axis */
    int64_t length;         /* elements that are transformed: the input, cut or filled with zeros */
    int64_t kept;           /* elements of the output along the axis */
    int64_t out_parts;
    bool inverse, onesided;
} Plan;

static bool dft_plan(const OpCall *call, Plan *plan)
{
    const Tensor *in = call->inputs[0], *length = op_input(call, 1), *axis = op_input(call, 2);
    int64_t asked = axis != NULL ? tensor_get_int(axis, 0)
        : call->opset >= 20      ? -2
                                 : attr_int(call, "axis", 1);
    char text[128];
    plan->axis = axis_normal(asked, in->rank);
    plan->parts = in->rank == 0 ? 0 : in->dims[in->rank - 1];
    if (!type_is_float(in->type) || in->rank < 2 || (plan->parts != 1 && plan->parts != 2)
        || plan->axis < 0 || plan->axis == in->rank - 1) {
        return op_fail(call, "expected floats with a last dimension of 1 or 2 and an axis before "
            "it, got shape %s and axis %lld", shape_text(in, text, sizeof text), (long long)asked);
    }
    plan->inverse = attr_int(call, "inverse", 0) != 0;
    plan->onesided = attr_int(call, "onesided", 0) != 0;
    plan->given = in->dims[plan->axis];
    bool half = plan->inverse && plan->onesided; /* half a spectrum: mirror it; the result is real */
    plan->length = length != NULL ? tensor_get_int(length, 0)
        : half                    ? 2 * (plan->given - 1)
                                  : plan->given;
    if (plan->length < 1 || plan->length > (int64_t)1 << 30
        || (plan->onesided && plan->parts != (half ? 2 : 1))) {
        return op_fail(call, "a %s transform of length %lld does not fit shape %s",
            plan->onesided ? "onesided" : "whole", (long long)plan->length,
            shape_text(in, text, sizeof text));
    }
    plan->kept = plan->onesided && !half ? plan->length / 2 + 1 : plan->length;
    plan->out_parts = half ? 1 : 2;
    return true;
}

static bool dft_infer(OpCall *call)
{
    Plan plan;
    if (!dft_plan(call, &plan)) {
        return false;
    }
    int64_t numbers = tensor_count(call->inputs[0]), line = plan.given * plan.parts;
    if (!fourier_affords(call, line == 0 ? 0 : numbers / line, plan.length)) {
        return false;
    }
    op_same(call, 0);
    call->outputs[0].dims[plan.axis] = plan.kept;
    call->outputs[0].dims[call->inputs[0]->rank - 1] = plan.out_parts;
    return true;
}

static int64_t dft_workspace(const OpCall *call)
{
    Plan plan;
    return dft_plan(call, &plan) ? fourier_bytes(plan.length) : 0;
}

/* Loads one line along the axis, cut or filled with zeros. Behind half a spectrum it appends the mirror image. */
static void line_load(const Plan *plan, const Fourier *f, const Tensor *in, int64_t base,
    int64_t inner)
{
    bool half = plan->inverse && plan->onesided;
    int64_t used = half ? plan->length / 2 + 1 : plan->length;
    for (int64_t i = 0; i < plan->length; i++) {
        int64_t from = half && i >= used ? plan->length - i : i;
        int64_t at = base + from * inner * plan->parts;
        bool there = from < plan->given;
        double re = there ? tensor_get_real(in, at) : 0.0;
        double im = there && plan->parts == 2 ? tensor_get_real(in, at + 1) : 0.0;
        f->in[i] = (Complex){re, from == i ? im : -im};
    }
}

static bool dft_run(const OpCall *call)
{
    Plan plan;
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    if (!dft_plan(call, &plan)) {
        return false;
    }
    int64_t outer = dims_count(in->dims, plan.axis);
    int64_t inner = dims_count(in->dims + plan.axis + 1, in->rank - plan.axis - 2);
    Fourier f = fourier_open(call, plan.length, plan.inverse);
    for (int64_t line = 0; line < outer * inner; line++) {
        int64_t o = line / inner, i = line % inner;
        line_load(&plan, &f, in, (o * plan.given * inner + i) * plan.parts, inner);
        if (!fourier_run(&f)) {
            return false;
        }
        for (int64_t k = 0; k < plan.kept; k++) {
            int64_t to = ((o * plan.kept + k) * inner + i) * plan.out_parts;
            real_put(out, to, f.out[k].re);
            if (plan.out_parts == 2) {
                real_put(out, to + 1, f.out[k].im);
            }
        }
    }
    return true;
}

/* --- STFT --- */

typedef struct Frames {
    int64_t parts, step, length, count, kept;
} Frames;

static bool frames_plan(const OpCall *call, Frames *frames)
{
    const Tensor *signal = call->inputs[0], *window = op_input(call, 2);
    const Tensor *length = op_input(call, 3);
    char text[128];
    bool shaped = signal->rank == 2 || (signal->rank == 3 && signal->dims[2] >= 1
        && signal->dims[2] <= 2);
    if (!type_is_float(signal->type) || !shaped || (window == NULL && length == NULL)) {
        return op_fail(call, "expected a signal [batch, length, 1 or 2], and a window or a length "
            "of frames, got shape %s", shape_text(signal, text, sizeof text));
    }
    frames->parts = signal->rank == 2 ? 1 : signal->dims[2];
    frames->step = tensor_get_int(call->inputs[1], 0);
    frames->length = length != NULL ? tensor_get_int(length, 0) : tensor_count(window);
    if (frames->step < 1 || frames->length < 1 || frames->length > signal->dims[1]
        || (window != NULL && tensor_count(window) != frames->length)) {
        return op_fail(call, "frames of %lld, each %lld after the other, do not fit shape %s or "
            "the window", (long long)frames->length, (long long)frames->step,
            shape_text(signal, text, sizeof text));
    }
    bool onesided = attr_int(call, "onesided", 1) != 0 && frames->parts == 1;
    frames->count = (signal->dims[1] - frames->length) / frames->step + 1;
    frames->kept = onesided ? frames->length / 2 + 1 : frames->length;
    return true;
}

static bool stft_infer(OpCall *call)
{
    Frames frames;
    if (!frames_plan(call, &frames)
        || !fourier_affords(call, call->inputs[0]->dims[0] * frames.count, frames.length)) {
        return false;
    }
    call->outputs[0] = (Tensor){.type = call->inputs[0]->type, .rank = 4,
        .data = call->outputs[0].data,
        .dims = {call->inputs[0]->dims[0], frames.count, frames.kept, 2}};
    return true;
}

static int64_t stft_workspace(const OpCall *call)
{
    Frames frames;
    return frames_plan(call, &frames) ? fourier_bytes(frames.length) : 0;
}

static bool stft_run(const OpCall *call)
{
    Frames frames;
    const Tensor *signal = call->inputs[0], *window = op_input(call, 2);
    if (!frames_plan(call, &frames)) {
        return false;
    }
    Fourier f = fourier_open(call, frames.length, false);
    for (int64_t at = 0; at < signal->dims[0] * frames.count; at++) {
        int64_t first = at / frames.count * signal->dims[1] + at % frames.count * frames.step;
        for (int64_t i = 0; i < frames.length; i++) {
            double weight = window == NULL ? 1.0 : tensor_get_real(window, i);
            int64_t from = (first + i) * frames.parts;
            f.in[i].re = weight * tensor_get_real(signal, from);
            f.in[i].im = frames.parts == 2 ? weight * tensor_get_real(signal, from + 1) : 0.0;
        }
        if (!fourier_run(&f)) {
            return false;
        }
        for (int64_t k = 0; k < frames.kept; k++) {
            real_put(&call->outputs[0], (at * frames.kept + k) * 2, f.out[k].re);
            real_put(&call->outputs[0], (at * frames.kept + k) * 2 + 1, f.out[k].im);
        }
    }
    return true;
}

/* --- windows: sums of cosines --- */

enum { HANN, HAMMING, BLACKMAN };

static const double cosines[][3] = {
    [HANN] = {0.5, -0.5, 0.0},
    [HAMMING] = {25.0 / 46.0, -21.0 / 46.0, 0.0},
    [BLACKMAN] = {0.42, -0.5, 0.08},
};

static bool window_infer(OpCall *call)
{
    int64_t size = tensor_count(call->inputs[0]) == 1 ? tensor_get_int(call->inputs[0], 0) : -1;
    aclDataType type = type_from_onnx(attr_int(call, "output_datatype", 1));
    if (size < 0 || type_size(type) == 0) {
        return op_fail(call, "expected a size and a type for the output");
    }
    call->outputs[0].type = type;
    call->outputs[0].rank = 1;
    call->outputs[0].dims[0] = size;
    return true;
}

static bool window_run(const OpCall *call)
{
    const Tensor *out = &call->outputs[0];
    const double *c = cosines[call->kind->variant];
    int64_t size = out->dims[0];
    double turn = TURN / (double)(attr_int(call, "periodic", 1) != 0 ? size : size - 1);
    for (int64_t i = 0; i < size; i++) {
        double angle = size == 1 ? 0.0 : turn * (double)i;
        real_put(out, i, c[0] + c[1] * cos(angle) + c[2] * cos(2.0 * angle));
    }
    return true;
}

#define WINDOW(NAME, VARIANT) \
    {NAME, OP_ONNX, 1, 1, 1, 1, window_infer, NULL, window_run, VARIANT, 0}

const OpKind ops_fourier[] = {
    {"DFT", OP_ONNX, 1, 3, 1, 6, dft_infer, dft_workspace, dft_run, 0, 0},
    {"STFT", OP_ONNX, 2, 4, 1, 10, stft_infer, stft_workspace, stft_run, 0, 0},
    WINDOW("HannWindow", HANN), WINDOW("HammingWindow", HAMMING),
    WINDOW("BlackmanWindow", BLACKMAN),
    {0},
};
