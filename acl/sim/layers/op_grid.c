/* op_grid.c: operators that sample an image at positions from another tensor: GridSample and RoiAlign.

   The pixels of a position and their weights are computed once and used for all channels.
   GridSample is supported for two spatial dimensions; three are refused. */
#include "ops/op.h"

#include <math.h>
#include <string.h>

enum { NEAREST, LINEAR, CUBIC, PIXELS_MAX = 16 };

/* The pixels whose weighted sum is one sample: their offsets in a plane and their weights. */
typedef struct Sample {
    int count;
    int64_t at[PIXELS_MAX];
    double weight[PIXELS_MAX];
} Sample;

static double sample_value(const Tensor *in, int64_t plane, const Sample *sample)
{
    double value = 0.0;
    const float *floats = in->type == ACL_FLOAT ? (const float *)in->data + plane : NULL;
    for (int i = 0; floats != NULL && i < sample->count; i++) {
        value += sample->weight[i] * (double)floats[sample->at[i]];
    }
    for (int i = 0; floats == NULL && i < sample->count; i++) {
        value += sample->weight[i] * tensor_get_real(in, plane + sample->at[i]);
    }
    return value;
}

static void value_store(const Tensor *out, int64_t at, double value)
{
    if (out->type == ACL_FLOAT) {
        ((float *)out->data)[at] = (float)value;
        return;
    }
    convert((char *)out->data + at * type_size(out->type), out->type, &value, ACL_DOUBLE, 1, 1);
}

/* --- GridSample --- */

typedef enum Padding { ZEROS, BORDER, REFLECTION } Padding;

typedef struct Grid {
    int mode;
    Padding padding;
    bool corners;
    int64_t size[2];    /* height and width of the image, in pixels */
} Grid;

static int name_find(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    return -1;
}

bool grid_accept(const OpCall *call)
{
    static const char *const modes[] = {"nearest", "linear", "cubic", "bilinear", "bicubic"};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    const char *mode = attr_string(call, "mode", "linear");
    const char *padding = attr_string(call, "padding_mode", "zeros");
    return (name_find(mode, modes, 5) >= 0 && name_find(padding, paddings, 3) >= 0)
        || op_fail(call, "mode %s with padding_mode %s is not supported", mode, padding);
}

static Grid grid_read(const OpCall *call)
{
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    const char *mode = attr_string(call, "mode", "linear");
    const int64_t *dims = call->inputs[0]->dims;
    return (Grid){
        .mode = strstr(mode, "linear") != NULL ? LINEAR : strstr(mode, "cubic") != NULL ? CUBIC
                                                                                         : NEAREST,
        .padding = (Padding)name_find(attr_string(call, "padding_mode", "zeros"), paddings, 3),
        .corners = attr_int(call, "align_corners", 0) != 0,
        .size = {dims[2], dims[3]},
    };
}

static bool grid_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0], *grid = call->inputs[1];
    char a[128], b[128];
    if (!type_is_float(in->type) || !type_is_float(grid->type)) {
        return op_fail(call, "expected two float tensors, got %s and %s", type_name(in->type),
            type_name(grid->type));
    }
    if (in->rank != 4 || grid->rank != 4 || grid->dims[0] != in->dims[0] || grid->dims[3] != 2) {
        return op_fail(call, "expected [n, c, h, w] and a grid [n, h, w, 2], got %s and %s",
            shape_text(in, a, sizeof a), shape_text(grid, b, sizeof b));
    }
    (void)op_same(call, 0);
    call->outputs[0].dims[2] = grid->dims[1];
    call->outputs[0].dims[3] = grid->dims[2];
    return true;
}

static double reflected(double x, double low, double high)
{
    double range = high - low, over = x < low ? low - x : x - high;
    if (!(over > 0.0) || !(range > 0.0)) {
        return range > 0.0 ? x : low;
    }
    double turns = floor(over / range), rest = over - turns * range;
    bool even = fmod(turns, 2.0) < 1.0;
    return (x < low) == even ? low + rest : high - rest;
}

/* Converts a coordinate in [-1, 1] to a position in pixels. If the position is outside the image, maps it inside by the
   padding mode; not in the cubic mode, where pixel_of maps each pixel, as PyTorch does. */
static double place_of(const Grid *grid, int axis, double normal)
{
    double size = (double)grid->size[axis], x = normal;
    double low = grid->corners ? 0.0 : -0.5, high = grid->corners ? size - 1.0 : size - 0.5;
    x = grid->corners ? (x + 1.0) / 2.0 * (size - 1.0) : ((x + 1.0) * size - 1.0) / 2.0;
    x = isnan(x) ? -100.0 : fmin(fmax(x, -0x1p40), 0x1p40);
    x = grid->mode == NEAREST ? rint(x) : x;
    if (grid->mode != CUBIC && (x < low || x > high)) {
        x = grid->padding == BORDER  ? fmin(fmax(x, 0.0), size - 1.0)
            : grid->padding == ZEROS ? x
                                     : reflected(x, low, high);
    }
    return x;
}

/* Maps a pixel index into [0, size) by the padding mode; -1 if the pixel is outside and counts as zero. */
static int64_t pixel_of(const Grid *grid, int axis, int64_t at)
{
    int64_t size = grid->size[axis];
    if (at >= 0 && at < size) {
        return at;
    }
    if (grid->padding == ZEROS) {
        return -1;
    }
    if (grid->padding == REFLECTION) {
        double low = grid->corners ? 0.0 : -0.5;
        at = (int64_t)reflected((double)at, low, (double)size - 1.0 - low);
    }
    return at < 0 ? 0 : at >= size ? size - 1 : at;
}

static int weights_of(int mode, double part, double *weight)
{
    if (mode == NEAREST) {
        weight[0] = 1.0;
        return 1;
    }
    if (mode == LINEAR) {
        weight[0] = 1.0 - part;
        weight[1] = part;
        return 2;
    }
    const double a = -0.75;
    double away[4] = {part + 1.0, part, 1.0 - part, 2.0 - part};
    for (int i = 0; i < 4; i++) {
        double x = away[i];
        weight[i] = i == 1 || i == 2 ? ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                                     : ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    }
    return 4;
}

static void grid_sample(const Grid *grid, double normal_x, double normal_y, Sample *sample)
{
    double place[2] = {place_of(grid, 0, normal_y), place_of(grid, 1, normal_x)};
    double weight[2][4];
    int64_t first[2];
    int taps = 0;
    for (int axis = 0; axis < 2; axis++) {
        double low = floor(place[axis]);
        taps = weights_of(grid->mode, place[axis] - low, weight[axis]);
        first[axis] = (int64_t)low - (grid->mode == CUBIC);
    }
    sample->count = 0;
    for (int i = 0; i < taps * taps; i++) {
        int64_t y = pixel_of(grid, 0, first[0] + i / taps);
        int64_t x = pixel_of(grid, 1, first[1] + i % taps);
        if (y >= 0 && x >= 0) {
            sample->at[sample->count] = y * grid->size[1] + x;
            sample->weight[sample->count++] = weight[0][i / taps] * weight[1][i % taps];
        }
    }
}

static bool grid_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *places = call->inputs[1], *out = &call->outputs[0];
    Grid grid = grid_read(call);
    int64_t plane = grid.size[0] * grid.size[1], wanted = out->dims[2] * out->dims[3];
    for (int64_t i = 0; plane > 0 && i < in->dims[0] * wanted; i++) {
        Sample sample;
        int64_t image = i / wanted * in->dims[1];
        grid_sample(&grid, tensor_get_real(places, 2 * i), tensor_get_real(places, 2 * i + 1),
            &sample);
        for (int64_t c = 0; c < in->dims[1]; c++) {
            value_store(out, (image + c) * wanted + i % wanted,
                sample_value(in, (image + c) * plane, &sample));
        }
    }
    return true;
}

/* --- RoiAlign --- */

static bool roi_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0], *rois = call->inputs[1], *images = call->inputs[2];
    int64_t height = attr_int(call, "output_height", 1), width = attr_int(call, "output_width", 1);
    double ratio = (double)attr_int(call, "sampling_ratio", 0);
    const char *mode = attr_string(call, "mode", "avg");
    char a[128], b[128];
    if (strcmp(mode, "avg") != 0 && strcmp(mode, "max") != 0) {
        return op_fail(call, "attribute mode: %s is not supported", mode);
    }
    if (!type_is_float(in->type) || rois->type != in->type || type_is_float(images->type)) {
        return op_fail(call, "expected two float tensors and integers, got %s, %s and %s",
            type_name(in->type), type_name(rois->type), type_name(images->type));
    }
    if (in->rank != 4 || rois->rank != 2 || rois->dims[1] != 4
        || tensor_count(images) != rois->dims[0] || height < 1 || width < 1) {
        return op_fail(call, "expected [n, c, h, w] and [r, 4] with r images, got %s and %s",
            shape_text(in, a, sizeof a), shape_text(rois, b, sizeof b));
    }
    call->outputs[0] = (Tensor){.type = in->type, .rank = 4,
        .dims = {rois->dims[0], in->dims[1], height, width}};
    return op_affords(call, ratio * ratio * (double)height * (double)width);
}

typedef struct Roi {
    double start[2], bin[2];    /* where the region begins and the size of a bin, in pixels along y and x */
    int64_t grid[2];            /* number of samples in a bin, along y and x */
    int64_t image;              /* index of the image in the batch */
} Roi;

static Roi roi_read(const OpCall *call, int64_t index)
{
    const Tensor *rois = call->inputs[1], *out = &call->outputs[0];
    const char *mode = attr_string(call, "coordinate_transformation_mode",
        call->opset >= 16 ? "half_pixel" : "output_half_pixel");
    bool half = strcmp(mode, "half_pixel") == 0;
    double scale = attr_float(call, "spatial_scale", 1.0);
    int64_t ratio = attr_int(call, "sampling_ratio", 0);
    Roi roi = {.image = tensor_get_int(call->inputs[2], index)};
    for (int axis = 0; axis < 2; axis++) {
        int column = 1 - axis;
        double from = tensor_get_real(rois, 4 * index + column) * scale - (half ? 0.5 : 0.0);
        double to = tensor_get_real(rois, 4 * index + column + 2) * scale - (half ? 0.5 : 0.0);
        double size = half || to - from > 1.0 ? to - from : 1.0;
        roi.start[axis] = from;
        roi.bin[axis] = size / (double)out->dims[2 + axis];
        double grid = ceil(roi.bin[axis]);
        roi.grid[axis] = ratio > 0 ? ratio : grid >= 1.0 && grid < 0x1p16 ? (int64_t)grid : 0;
    }
    return roi;
}

/* Finds the four pixels around a position; no pixels if the position is more than one pixel outside the image. */
static void roi_sample(const Tensor *in, double y, double x, Sample *sample)
{
    int64_t height = in->dims[2], width = in->dims[3];
    sample->count = 0;
    if (!(y >= -1.0 && y <= (double)height && x >= -1.0 && x <= (double)width)) {
        return;
    }
    y = y < 0.0 ? 0.0 : y > (double)(height - 1) ? (double)(height - 1) : y;
    x = x < 0.0 ? 0.0 : x > (double)(width - 1) ? (double)(width - 1) : x;
    int64_t top = (int64_t)y, left = (int64_t)x;
    int64_t bottom = top + 1 < height ? top + 1 : top, right = left + 1 < width ? left + 1 : left;
    double down = y - (double)top, over = x - (double)left;
    *sample = (Sample){
        .count = 4,
        .at = {top * width + left, top * width + right, bottom * width + left,
            bottom * width + right},
        .weight = {(1.0 - down) * (1.0 - over), (1.0 - down) * over, down * (1.0 - over),
            down * over},
    };
}

/* Returns the maximum of `largest` and of the sample's weighted pixels. ONNX Runtime, too, takes the maximum over the
   weighted pixels and not over the samples. */
static double sample_largest(
    const Tensor *in, int64_t plane, const Sample *sample, double largest)
{
    for (int i = 0; i < sample->count; i++) {
        double value = sample->weight[i] * tensor_get_real(in, plane + sample->at[i]);
        largest = value > largest ? value : largest;
    }
    return largest;
}

static bool bin_value(const OpCall *call, const Roi *roi, int64_t channel, const int64_t *bin,
    bool largest, double *result)
{
    const Tensor *in = call->inputs[0];
    int64_t count = roi->grid[0] * roi->grid[1];
    int64_t plane = (roi->image * in->dims[1] + channel) * in->dims[2] * in->dims[3];
    double value = largest && count > 0 ? -INFINITY : 0.0;
    for (int64_t i = 0; i < count; i++) {
        Sample sample;
        double y = (double)(i / roi->grid[1]) + 0.5, x = (double)(i % roi->grid[1]) + 0.5;
        if (i % 65536 == 65535 && !op_goes_on(call)) {
            return false;
        }
        roi_sample(in,
            roi->start[0] + ((double)bin[0] + y / (double)roi->grid[0]) * roi->bin[0],
            roi->start[1] + ((double)bin[1] + x / (double)roi->grid[1]) * roi->bin[1], &sample);
        value = !largest ? value + sample_value(in, plane, &sample)
            : sample.count == 0 ? fmax(value, 0.0)
                                : sample_largest(in, plane, &sample, value);
    }
    *result = largest || count == 0 ? value : value / (double)count;
    return true;
}

enum { SAMPLES_MAX = 64 };

/* Computes the average of each channel in one bin with at most SAMPLES_MAX samples. The pixels of the samples are found
   once for all channels. */
static void bin_average(const OpCall *call, const Roi *roi, int64_t r, const int64_t *bin)
{
    Sample samples[SAMPLES_MAX];
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    int64_t count = roi->grid[0] * roi->grid[1], plane = in->dims[2] * in->dims[3];
    int64_t wanted = out->dims[2] * out->dims[3], place = bin[0] * out->dims[3] + bin[1];
    for (int64_t i = 0; i < count; i++) {
        double y = (double)(i / roi->grid[1]) + 0.5, x = (double)(i % roi->grid[1]) + 0.5;
        roi_sample(in,
            roi->start[0] + ((double)bin[0] + y / (double)roi->grid[0]) * roi->bin[0],
            roi->start[1] + ((double)bin[1] + x / (double)roi->grid[1]) * roi->bin[1], &samples[i]);
    }
    for (int64_t c = 0; c < in->dims[1]; c++) {
        int64_t base = (roi->image * in->dims[1] + c) * plane;
        double value = 0.0;
        for (int64_t i = 0; i < count; i++) {
            value += sample_value(in, base, &samples[i]);
        }
        value_store(out, (r * in->dims[1] + c) * wanted + place,
            count == 0 ? 0.0 : value / (double)count);
    }
}

static bool roi_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    bool largest = strcmp(attr_string(call, "mode", "avg"), "max") == 0;
    int64_t plane = out->dims[2] * out->dims[3], values = in->dims[1] * plane;
    double steps = 0.0;
    for (int64_t r = 0; r < out->dims[0]; r++) {
        Roi roi = roi_read(call, r);
        if (roi.image < 0 || roi.image >= in->dims[0] || in->dims[2] == 0 || in->dims[3] == 0) {
            return op_fail(call, "input 2: there is no image %lld", (long long)roi.image);
        }
        steps += (double)values * (double)roi.grid[0] * (double)roi.grid[1];
        if (!op_affords(call, steps)) {
            return false;
        }
        bool few = !largest && roi.grid[0] <= SAMPLES_MAX && roi.grid[1] <= SAMPLES_MAX
            && roi.grid[0] * roi.grid[1] <= SAMPLES_MAX;
        for (int64_t i = 0; few && i < plane; i++) {
            int64_t bin[2] = {i / out->dims[3], i % out->dims[3]};
            bin_average(call, &roi, r, bin);
        }
        for (int64_t i = 0; !few && i < values; i++) {
            int64_t bin[2] = {i % plane / out->dims[3], i % out->dims[3]};
            double value;
            if (!bin_value(call, &roi, i / plane, bin, largest, &value)) {
                return false;
            }
            value_store(out, r * values + i, value);
        }
    }
    return true;
}

const OpKind ops_grid[] = {
    {"GridSample", OP_ONNX, 2, 2, 1, 0, grid_infer, NULL, grid_run, 0, 0},
    {"RoiAlign", OP_ONNX, 3, 3, 1, 0, roi_infer, NULL, roi_run, 0, 0},
    {0},
};
