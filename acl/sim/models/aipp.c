/* aipp.c: aclmdlCreateAIPP and the setters: the parameters of dynamic preprocessing.

   Each setter checks the ranges of its parameters. If the switch of its feature is 0, it stores
   only the switch, as the runtime does. Conditions on several parameters are checked when the set
   is given to a model (aippmodel.c).

   Thread rule: the user makes sure that only one thread at a time uses a set. */
#include "models/aipp.h"

#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"
#include "numbers/tensor.h"

enum {
    SIZE_MAX_PIXELS = 4096,
    SCALE_MIN = 16,
    SCALE_WIDTH_MAX = 1920,
    PADDING_MAX = 32,
    OUTPUT_WIDTH_MAX = 1080, /* pixels; only for an image with padding */
    MEAN_MAX = 255,
    MATRIX_MIN = -32677, /* the runtime's own limits, which are not those of int16_t */
    MATRIX_MAX = 32676,
};

static const float LEAST_MAX = 255.0F;
static const float RECIPROCAL_MAX = 65504.0F;

/* ---- life ------------------------------------------------------------------------------------ */

aclmdlAIPP *sim_aclmdlCreateAIPP(uint64_t batchSize)
{
    size_t bytes;
    bool fits = batchSize > 0 && aipp_bytes(batchSize, &bytes);
    AippBatch *batches = fits ? calloc(batchSize, sizeof *batches) : NULL;
    aclmdlAIPP *made = batches == NULL ? NULL : handle_new(HANDLE_AIPP, sizeof *made);
    if (made == NULL) {
        free(batches);
        (void)fail(batchSize == 0 ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_BAD_ALLOC,
            batchSize == 0 ? "batchSize is %llu, expected at least 1" : "no host memory for %llu AIPP parameter sets",
            (unsigned long long)batchSize);
        return NULL;
    }
    made->count = batchSize;
    made->head.batches = (int8_t)batchSize;
    made->batches = batches;
    for (uint64_t i = 0; i < batchSize; i++) {
        for (int c = 0; c < 4; c++) {
            batches[i].reciprocal[c] = half_from_float(1.0F);
        }
    }
    return made;
}

aclError sim_aclmdlDestroyAIPP(const aclmdlAIPP *aippParmsSet)
{
    aclmdlAIPP *own = (aclmdlAIPP *)(uintptr_t)aippParmsSet;
    REQUIRE(handle_is(aippParmsSet, HANDLE_AIPP) && handle_kill(own));
    free(own->batches);
    own->batches = NULL;
    handle_retire(own);
    return ACL_SUCCESS;
}

bool aipp_bytes(uint64_t count, size_t *bytes)
{
    return !__builtin_mul_overflow(count, sizeof(AippBatch), bytes) &&
           !__builtin_add_overflow(*bytes, sizeof(AippHead), bytes);
}

aclError sim_aclmdlGetAippDataSize(uint64_t batchSize, size_t *size)
{
    size_t bytes;
    REQUIRE(size);
    REQUIRE(batchSize > 0);
    REQUIRE(aipp_bytes(batchSize, &bytes));
    *size = bytes;
    return ACL_SUCCESS;
}

/* ---- of the whole batch ---------------------------------------------------------------------- */

#define REQUIRE_SWITCH(value) REQUIRE((value) == 0 || (value) == 1)
#define REQUIRE_WITHIN(value, least, most) REQUIRE((value) >= (least) && (value) <= (most))

aclError sim_aclmdlSetAIPPInputFormat(aclmdlAIPP *aippParmsSet, aclAippInputFormat inputFormat)
{
    static const AippFormat formats[] = {
        [ACL_YUV420SP_U8] = AIPP_YUV420SP,
        [ACL_XRGB8888_U8] = AIPP_XRGB8888,
        [ACL_RGB888_U8] = AIPP_RGB888,
        [ACL_YUV400_U8] = AIPP_YUV400,
        [ACL_NC1HWC0DI_FP16] = AIPP_NC1HWC0DI_FP16,
        [ACL_NC1HWC0DI_S8] = AIPP_NC1HWC0DI_S8,
        [ACL_ARGB8888_U8] = AIPP_ARGB8888,
        [ACL_YUYV_U8] = AIPP_YUYV,
        [ACL_YUV422SP_U8] = AIPP_YUV422SP,
        [ACL_AYUV444_U8] = AIPP_AYUV444,
        [ACL_RAW10] = AIPP_RAW10,
        [ACL_RAW12] = AIPP_RAW12,
        [ACL_RAW16] = AIPP_RAW16,
        [ACL_RAW24] = AIPP_RAW24,
    };
    REQUIRE(handle_is(aippParmsSet, HANDLE_AIPP));
    REQUIRE((int)inputFormat >= ACL_YUV420SP_U8 && (int)inputFormat <= ACL_RAW24);
    aippParmsSet->head.format = (uint8_t)formats[inputFormat];
    return ACL_SUCCESS;
}

aclError sim_aclmdlSetAIPPCscParams(aclmdlAIPP *aippParmsSet, int8_t cscSwitch,
    int16_t cscMatrixR0C0, int16_t cscMatrixR0C1, int16_t cscMatrixR0C2, int16_t cscMatrixR1C0,
    int16_t cscMatrixR1C1, int16_t cscMatrixR1C2, int16_t cscMatrixR2C0, int16_t cscMatrixR2C1,
    int16_t cscMatrixR2C2, uint8_t cscOutputBiasR0, uint8_t cscOutputBiasR1,
    uint8_t cscOutputBiasR2, uint8_t cscInputBiasR0, uint8_t cscInputBiasR1, uint8_t cscInputBiasR2)
{
    const int16_t matrix[9] = {cscMatrixR0C0, cscMatrixR0C1, cscMatrixR0C2, cscMatrixR1C0,
        cscMatrixR1C1, cscMatrixR1C2, cscMatrixR2C0, cscMatrixR2C1, cscMatrixR2C2};
    REQUIRE(handle_is(aippParmsSet, HANDLE_AIPP));
    REQUIRE_SWITCH(cscSwitch);
    AippHead *head = &aippParmsSet->head;
    head->csc_switch = cscSwitch;
    if (cscSwitch == 0) {
        return ACL_SUCCESS;
    }
    for (int i = 0; i < 9; i++) {
        if (matrix[i] < MATRIX_MIN || matrix[i] > MATRIX_MAX) {
            return fail(ACL_ERROR_INVALID_PARAM, "cscMatrixR%dC%d is %d, expected %d to %d", i / 3,
                i % 3, matrix[i], (int)MATRIX_MIN, (int)MATRIX_MAX);
        }
    }
    memcpy(head->matrix, matrix, sizeof matrix);
    memcpy(head->output_bias, (uint8_t[]){cscOutputBiasR0, cscOutputBiasR1, cscOutputBiasR2}, 3);
    memcpy(head->input_bias, (uint8_t[]){cscInputBiasR0, cscInputBiasR1, cscInputBiasR2}, 3);
    return ACL_SUCCESS;
}

aclError sim_aclmdlSetAIPPRbuvSwapSwitch(aclmdlAIPP *aippParmsSet, int8_t rbuvSwapSwitch)
{
    REQUIRE(handle_is(aippParmsSet, HANDLE_AIPP));
    REQUIRE_SWITCH(rbuvSwapSwitch);
    aippParmsSet->head.rbuv_swap = rbuvSwapSwitch;
    return ACL_SUCCESS;
}

aclError sim_aclmdlSetAIPPAxSwapSwitch(aclmdlAIPP *aippParmsSet, int8_t axSwapSwitch)
{
    REQUIRE(handle_is(aippParmsSet, HANDLE_AIPP));
    REQUIRE_SWITCH(axSwapSwitch);
    aippParmsSet->head.ax_swap = axSwapSwitch;
    return ACL_SUCCESS;
}

aclError sim_aclmdlSetAIPPSrcImageSize(
    aclmdlAIPP *aippParmsSet, int32_t srcImageSizeW, int32_t srcImageSizeH)
{
    REQUIRE(handle_is(aippParmsSet, HANDLE_AIPP));
    REQUIRE_WITHIN(srcImageSizeW, 2, SIZE_MAX_PIXELS);
    REQUIRE_WITHIN(srcImageSizeH, 1, SIZE_MAX_PIXELS);
    aippParmsSet->head.width = srcImageSizeW;
    aippParmsSet->head.height = srcImageSizeH;
    return ACL_SUCCESS;
}

/* ---- of one image of the batch --------------------------------------------------------------- */

#define REQUIRE_IMAGE(set, index)                                                                  \
    do {                                                                                           \
        REQUIRE(handle_is((set), HANDLE_AIPP));                                                    \
        if ((index) >= (set)->count) {                                                             \
            return fail(ACL_ERROR_INVALID_PARAM, "batchIndex is %llu, expected less than %llu",    \
                (unsigned long long)(index), (unsigned long long)(set)->count);                    \
        }                                                                                          \
    } while (0)

aclError sim_aclmdlSetAIPPScfParams(aclmdlAIPP *aippParmsSet, int8_t scfSwitch,
    int32_t scfInputSizeW, int32_t scfInputSizeH, int32_t scfOutputSizeW, int32_t scfOutputSizeH,
    uint64_t batchIndex)
{
    REQUIRE_IMAGE(aippParmsSet, batchIndex);
    REQUIRE_SWITCH(scfSwitch);
    AippBatch *image = &aippParmsSet->batches[batchIndex];
    image->scale_switch = scfSwitch;
    if (scfSwitch == 0) {
        return ACL_SUCCESS;
    }
    REQUIRE_WITHIN(scfInputSizeW, SCALE_MIN, SIZE_MAX_PIXELS);
    REQUIRE_WITHIN(scfInputSizeH, SCALE_MIN, SIZE_MAX_PIXELS);
    REQUIRE_WITHIN(scfOutputSizeW, SCALE_MIN, SCALE_WIDTH_MAX);
    REQUIRE_WITHIN(scfOutputSizeH, SCALE_MIN, SIZE_MAX_PIXELS);
    image->scale_in_width = scfInputSizeW;
    image->scale_in_height = scfInputSizeH;
    image->scale_out_width = scfOutputSizeW;
    image->scale_out_height = scfOutputSizeH;
    return ACL_SUCCESS;
}

aclError sim_aclmdlSetAIPPCropParams(aclmdlAIPP *aippParmsSet, int8_t cropSwitch,
    int32_t cropStartPosW, int32_t cropStartPosH, int32_t cropSizeW, int32_t cropSizeH,
    uint64_t batchIndex)
{
    REQUIRE_IMAGE(aippParmsSet, batchIndex);
    REQUIRE_SWITCH(cropSwitch);
    AippBatch *image = &aippParmsSet->batches[batchIndex];
    image->crop_switch = cropSwitch;
    if (cropSwitch == 0) {
        return ACL_SUCCESS;
    }
    REQUIRE_WITHIN(cropStartPosW, 0, SIZE_MAX_PIXELS - 1);
    REQUIRE_WITHIN(cropStartPosH, 0, SIZE_MAX_PIXELS - 1);
    REQUIRE_WITHIN(cropSizeW, 1, SIZE_MAX_PIXELS);
    REQUIRE_WITHIN(cropSizeH, 1, SIZE_MAX_PIXELS);
    image->crop_x = cropStartPosW;
    image->crop_y = cropStartPosH;
    image->crop_width = cropSizeW;
    image->crop_height = cropSizeH;
    return ACL_SUCCESS;
}

aclError sim_aclmdlSetAIPPPaddingParams(aclmdlAIPP *aippParmsSet, int8_t paddingSwitch,
    int32_t paddingSizeTop, int32_t paddingSizeBottom, int32_t paddingSizeLeft,
    int32_t paddingSizeRight, uint64_t batchIndex)
{
    REQUIRE_IMAGE(aippParmsSet, batchIndex);
    REQUIRE_SWITCH(paddingSwitch);
    AippBatch *image = &aippParmsSet->batches[batchIndex];
    image->padding_switch = paddingSwitch;
    if (paddingSwitch == 0) {
        return ACL_SUCCESS;
    }
    REQUIRE_WITHIN(paddingSizeTop, 0, PADDING_MAX);
    REQUIRE_WITHIN(paddingSizeBottom, 0, PADDING_MAX);
    REQUIRE_WITHIN(paddingSizeLeft, 0, PADDING_MAX);
    REQUIRE_WITHIN(paddingSizeRight, 0, PADDING_MAX);
    image->padding_top = paddingSizeTop;
    image->padding_bottom = paddingSizeBottom;
    image->padding_left = paddingSizeLeft;
    image->padding_right = paddingSizeRight;
    return ACL_SUCCESS;
}

aclError sim_aclmdlSetAIPPDtcPixelMean(aclmdlAIPP *aippParmsSet, int16_t dtcPixelMeanChn0,
    int16_t dtcPixelMeanChn1, int16_t dtcPixelMeanChn2, int16_t dtcPixelMeanChn3,
    uint64_t batchIndex)
{
    REQUIRE_IMAGE(aippParmsSet, batchIndex);
    REQUIRE_WITHIN(dtcPixelMeanChn0, 0, MEAN_MAX);
    REQUIRE_WITHIN(dtcPixelMeanChn1, 0, MEAN_MAX);
    REQUIRE_WITHIN(dtcPixelMeanChn2, 0, MEAN_MAX);
    REQUIRE_WITHIN(dtcPixelMeanChn3, 0, MEAN_MAX);
    const int16_t mean[4] = {
        dtcPixelMeanChn0, dtcPixelMeanChn1, dtcPixelMeanChn2, dtcPixelMeanChn3};
    memcpy(aippParmsSet->batches[batchIndex].mean, mean, sizeof mean);
    return ACL_SUCCESS;
}

static void halves_set(uint16_t *to, float a, float b, float c, float d)
{
    to[0] = half_from_float(a);
    to[1] = half_from_float(b);
    to[2] = half_from_float(c);
    to[3] = half_from_float(d);
}

aclError sim_aclmdlSetAIPPDtcPixelMin(aclmdlAIPP *aippParmsSet, float dtcPixelMinChn0,
    float dtcPixelMinChn1, float dtcPixelMinChn2, float dtcPixelMinChn3, uint64_t batchIndex)
{
    REQUIRE_IMAGE(aippParmsSet, batchIndex);
    REQUIRE_WITHIN(dtcPixelMinChn0, 0, LEAST_MAX);
    REQUIRE_WITHIN(dtcPixelMinChn1, 0, LEAST_MAX);
    REQUIRE_WITHIN(dtcPixelMinChn2, 0, LEAST_MAX);
    REQUIRE_WITHIN(dtcPixelMinChn3, 0, LEAST_MAX);
    halves_set(aippParmsSet->batches[batchIndex].least, dtcPixelMinChn0, dtcPixelMinChn1,
        dtcPixelMinChn2, dtcPixelMinChn3);
    return ACL_SUCCESS;
}

aclError sim_aclmdlSetAIPPPixelVarReci(aclmdlAIPP *aippParmsSet, float dtcPixelVarReciChn0,
    float dtcPixelVarReciChn1, float dtcPixelVarReciChn2, float dtcPixelVarReciChn3,
    uint64_t batchIndex)
{
    REQUIRE_IMAGE(aippParmsSet, batchIndex);
    REQUIRE_WITHIN(dtcPixelVarReciChn0, -RECIPROCAL_MAX, RECIPROCAL_MAX);
    REQUIRE_WITHIN(dtcPixelVarReciChn1, -RECIPROCAL_MAX, RECIPROCAL_MAX);
    REQUIRE_WITHIN(dtcPixelVarReciChn2, -RECIPROCAL_MAX, RECIPROCAL_MAX);
    REQUIRE_WITHIN(dtcPixelVarReciChn3, -RECIPROCAL_MAX, RECIPROCAL_MAX);
    halves_set(aippParmsSet->batches[batchIndex].reciprocal, dtcPixelVarReciChn0,
        dtcPixelVarReciChn1, dtcPixelVarReciChn2, dtcPixelVarReciChn3);
    return ACL_SUCCESS;
}

/* ---- what must go together ------------------------------------------------------------------- */

typedef struct Extent {
    int32_t width, height;
} Extent;

/* Returns the size of an image after cropping and padding. */
static Extent output_extent(const aclmdlAIPP *set, const AippBatch *image)
{
    Extent out = {set->head.width, set->head.height};
    if (image->crop_switch == 1) {
        out = (Extent){image->crop_width, image->crop_height};
    }
    if (image->padding_switch == 1) {
        out.width += image->padding_left + image->padding_right;
        out.height += image->padding_top + image->padding_bottom;
    }
    return out;
}

static aclError crop_check(const AippHead *head, const AippBatch *image)
{
    if (image->crop_x + image->crop_width > head->width ||
        image->crop_y + image->crop_height > head->height) {
        return fail(ACL_ERROR_INVALID_PARAM,
            "the part to crop, %d x %d at (%d, %d), is not inside the image of %d x %d",
            image->crop_width, image->crop_height, image->crop_x, image->crop_y, head->width,
            head->height);
    }
    bool pairs = head->format == AIPP_YUV420SP;
    if (pairs && (image->crop_x % 2 != 0 || image->crop_y % 2 != 0)) {
        return fail(ACL_ERROR_INVALID_PARAM, "cropping YUV420SP starts at (%d, %d), expected even",
            image->crop_x, image->crop_y);
    }
    return ACL_SUCCESS;
}

static aclError image_check(const aclmdlAIPP *set, uint64_t index)
{
    const AippBatch *image = &set->batches[index];
    if (image->scale_switch == 1) {
        return fail(ACL_ERROR_INVALID_PARAM, "scaling (scf) is not supported in dynamic AIPP");
    }
    if (image->crop_switch == 1) {
        TRY(crop_check(&set->head, image));
    }
    Extent out = output_extent(set, image), first = output_extent(set, set->batches);
    if (image->padding_switch == 1 && out.width > OUTPUT_WIDTH_MAX) {
        return fail(ACL_ERROR_INVALID_PARAM, "padded images are %d wide, expected at most %d",
            out.width, (int)OUTPUT_WIDTH_MAX);
    }
    if (out.width != first.width || out.height != first.height) {
        return fail(ACL_ERROR_INVALID_PARAM,
            "image %llu of the batch is %d x %d after AIPP, expected %d x %d as for the first image",
            (unsigned long long)index, out.width, out.height, first.width, first.height);
    }
    return ACL_SUCCESS;
}

aclError aipp_check(const aclmdlAIPP *set)
{
    const AippHead *head = &set->head;
    if (head->format != AIPP_YUV420SP && head->format != AIPP_XRGB8888 &&
        head->format != AIPP_RGB888 && head->format != AIPP_YUV400) {
        return fail(ACL_ERROR_INVALID_PARAM,
            "the input format is not set, or none of YUV420SP_U8, XRGB8888_U8, RGB888_U8 and "
            "YUV400_U8");
    }
    if (head->format == AIPP_YUV400 && head->csc_switch == 1) {
        return fail(ACL_ERROR_INVALID_PARAM, "YUV400 images have no colours to convert (csc)");
    }
    if (head->width == 0 || head->height == 0) {
        return fail(ACL_ERROR_INVALID_PARAM, "the source image's size is not set");
    }
    if (head->format == AIPP_YUV420SP && (head->width % 2 != 0 || head->height % 2 != 0)) {
        return fail(ACL_ERROR_INVALID_PARAM, "a YUV420SP image is %d x %d, expected even numbers",
            head->width, head->height);
    }
    for (uint64_t i = 0; i < set->count; i++) {
        TRY(image_check(set, i));
    }
    return ACL_SUCCESS;
}
