/* conv.h: the plan of a convolution and the unfolding of its input, for plain and quantised convolutions. */
#ifndef SIM_CONV_H
#define SIM_CONV_H

#include "layers/conv_window.h"

typedef struct Conv {
    Window w;
    int64_t groups;
    int64_t in_group, out_group;    /* channels of one group */
    int64_t filters;
    int64_t depth;                  /* rows of the unfolded matrix */
    int64_t tile;                   /* positions unfolded at a time */
} Conv;

/* Plans a convolution of input 0 with a weight [filters, channels of a group, kernel...]. Does not check types. */
bool conv_measure(const OpCall *call, const Tensor *weight, Conv *conv);

/* The three steps of Conv, for operators that compute something from its result. */
bool conv_infer(OpCall *call);
int64_t conv_workspace(const OpCall *call);
bool conv_run(const OpCall *call);

/* Writes the unfolded matrix of one group of one image: `depth` rows, and `count` output positions from `first`
   on, which must be whole output rows. Positions in the padding are zero. */
void conv_unfold(const Conv *conv, const void *image, aclDataType type, int64_t first,
    int64_t count, float *columns);

#endif
