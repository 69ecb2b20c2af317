/* conv.h: the plan of a convolution and the unfolding of its input (im2col), for plain and quantised convolutions. */
#ifndef SIM_CONV_H
#define SIM_CONV_H

#include "layers/conv_window.h"

typedef struct Conv {
    Window w;
    int64_t groups;
    int64_t in_group, out_group;    /* input channels of one group; output channels of one group */
    int64_t filters;
    int64_t depth;                  /* rows of the unfolded matrix: kernel elements of all input channels of a group */
    int64_t tile;                   /* number of output positions that are unfolded at a time */
} Conv;

/* Plans a convolution of input 0 with a weight [filters, channels of a group, kernel...]. Returns false, with a
   message, if the shapes do not fit. Does not check types. */
bool conv_measure(const OpCall *call, const Tensor *weight, Conv *conv);

/* The three steps of the operator Conv (see op.h), for operators that use its result. */
bool conv_infer(OpCall *call);
int64_t conv_workspace(const OpCall *call);
bool conv_run(const OpCall *call);

/* Writes a part of the unfolded matrix of one group of one image: `depth` rows, with a column for each of `count`
   output positions from `first` on. These positions must be whole output rows. Elements in the padding are zero. */
void conv_unfold(const Conv *conv, const void *image, aclDataType type, int64_t first,
    int64_t count, float *columns);

#endif
