/* conv_window.h: sliding windows over up to three spatial dimensions, for convolution and pooling.

   Tensors are [batch, channels, spatial...]. If there are one or two spatial dimensions, leading
   dimensions of size 1 are added, so that all loops are written for three. */
#ifndef SIM_CONV_WINDOW_H
#define SIM_CONV_WINDOW_H

#include "ops/op.h"

enum { SPATIAL = 3 };

typedef struct Window {
    int spatial;                    /* spatial dimensions of the tensor, 1 to 3 */
    int64_t batch, channels;
    int64_t in[SPATIAL], kernel[SPATIAL], out[SPATIAL];
    int64_t stride[SPATIAL], dilation[SPATIAL], pad_begin[SPATIAL], pad_end[SPATIAL];
    int64_t in_plane, kernel_plane, out_plane; /* products of the three elements of `in`, `kernel` and `out` */
} Window;

/* Plans the windows from the input's shape, the attributes strides, dilations, pads, auto_pad and ceil_mode, and the
   dimensions of the kernel. Returns false, with a message, if they do not fit. */
bool window_plan(const OpCall *call, const int64_t *kernel, Window *window);

/* As window_plan, for a transposed convolution: the windows slide over the output, which is usually larger than the
   input. */
bool window_plan_transposed(const OpCall *call, const int64_t *kernel, Window *window);

/* Sets the shape of output 0 to the batch, `channels` and the window's output dimensions, and its type to that
   of input 0. */
void window_shape(const OpCall *call, const Window *window, int64_t channels);

/* Computes the range [*first, *last) of steps, within [0, steps), for which step * stride + offset is in [0, size). */
void window_steps(
    int64_t steps, int64_t stride, int64_t offset, int64_t size, int64_t *first, int64_t *last);

#endif
