/* conv.h: what plain and quantised convolutions share: their plan, and the unfolded input. */
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

/* The plan for input 0 and a weight [filters, channels of a group, kernel...]; types aside. */
bool conv_measure(const OpCall *call, const Tensor *weight, Conv *conv);

/* The three steps of Conv, for what goes on from its result. */
bool conv_infer(OpCall *call);
int64_t conv_workspace(const OpCall *call);
bool conv_run(const OpCall *call);

/* The unfolded matrix, `depth` rows of `count` places from place `first` (whole output rows), of
   one group of one image. What lies in the padding is zero. */
void conv_unfold(const Conv *conv, const void *image, aclDataType type, int64_t first,
    int64_t count, float *columns);

#endif
