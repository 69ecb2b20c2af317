/* aipp.h: a set of dynamic AIPP parameters, in the layout that the preprocessor's hardware reads.

   The layout is that of the input ascend_dynamic_aipp_data of a model: one head, then a part for
   each image of the batch. */
#ifndef SIM_AIPP_H
#define SIM_AIPP_H

#include "base/core.h"

/* The numbers of the image formats in the hardware's layout; they differ from those of
   aclAippInputFormat. */
typedef enum AippFormat {
    AIPP_FORMAT_NONE = 0,
    AIPP_YUV420SP = 1,
    AIPP_XRGB8888 = 2,
    AIPP_NC1HWC0DI_FP16 = 3,
    AIPP_NC1HWC0DI_S8 = 4,
    AIPP_RGB888 = 5,
    AIPP_ARGB8888 = 6,
    AIPP_YUYV = 7,
    AIPP_YUV422SP = 8,
    AIPP_AYUV444 = 9,
    AIPP_YUV400 = 10,
    AIPP_RAW10 = 11,
    AIPP_RAW12 = 12,
    AIPP_RAW16 = 13,
    AIPP_RAW24 = 16,
} AippFormat;

typedef struct AippHead {
    uint8_t format; /* a value of AippFormat */
    int8_t csc_switch;
    int8_t rbuv_swap;
    int8_t ax_swap;
    int8_t batches;
    int8_t unused[3];
    int32_t width, height; /* of the source image */
    int16_t matrix[9];     /* row by row */
    int16_t unused_matrix[3];
    uint8_t output_bias[3];
    uint8_t input_bias[3];
    uint8_t unused_bias[2];
    int8_t unused_end[16];
} AippHead;

typedef struct AippBatch {
    int8_t crop_switch;
    int8_t scale_switch;
    int8_t padding_switch;
    int8_t rotate_switch;
    int8_t unused[4];
    int32_t crop_x, crop_y, crop_width, crop_height;
    int32_t scale_in_width, scale_in_height, scale_out_width, scale_out_height;
    int32_t padding_top, padding_bottom, padding_left, padding_right;
    int16_t mean[4];
    uint16_t least[4];      /* as float16: the minimum of each channel */
    uint16_t reciprocal[4]; /* as float16: the reciprocal of the variance of each channel */
    int8_t unused_end[16];
} AippBatch;

_Static_assert(sizeof(AippHead) == 64 && sizeof(AippBatch) == 96, "as the hardware reads them");

struct aclmdlAIPP {
    uint64_t count; /* images in a batch */
    AippHead head;
    AippBatch *batches;
};

/* Gives the bytes of a parameter set for a batch of that size; false on overflow. */
bool aipp_bytes(uint64_t count, size_t *bytes);

/* Returns 100000 if the input format or the size of the source image is not set, or if parameters of the set contradict
   each other. Called when the set is given to a model. */
aclError aipp_check(const aclmdlAIPP *set);

#endif
