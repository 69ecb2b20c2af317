/* fuzz_bundle.c: reads a file of unknown origin as a bundle of models: queries it, loads all models and single ones.
 *
 * The checksum of each header is corrected first; otherwise every changed header would be refused at once. */
#include "fuzz.h"

enum { BLOCK = 512, SIZE = 124, SUM = 148, DIGITS = 8, MODELS_MAX = 4 };

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    device_start();
    return 0;
}

static void sums_mend(uint8_t *bytes, size_t length)
{
    size_t at = 0;
    while (at + BLOCK <= length) {
        unsigned sum = 0;
        char text[DIGITS];
        memset(bytes + at + SUM, ' ', DIGITS);
        for (size_t i = 0; i < BLOCK; i++) {
            sum += bytes[at + i];
        }
        if (sum == DIGITS * ' ') {
            memset(bytes + at + SUM, 0, DIGITS); /* a block of zeros is the end mark */
            return;
        }
        snprintf(text, sizeof text, "%06o", sum);
        memcpy(bytes + at + SUM, text, DIGITS);
        memcpy(text, bytes + at + SIZE + 4, DIGITS - 1);
        text[DIGITS - 1] = '\0';
        at += BLOCK + (strtoul(text, NULL, 8) + BLOCK - 1) / BLOCK * BLOCK;
    }
}

static void bundle_ask(const uint8_t *bytes, size_t length)
{
    size_t count = 0, work, weights;
    aclmdlBundleQueryInfo *info = aclmdlBundleCreateQueryInfo();
    if (aclmdlBundleQueryInfoFromMem(bytes, length, info) == ACL_SUCCESS) {
        must(aclmdlBundleGetQueryModelNum(info, &count));
        for (size_t i = 0; i < count && i < MODELS_MAX; i++) {
            (void)aclmdlBundleGetSize(info, i, &work, &weights);
        }
    }
    must(aclmdlBundleDestroyQueryInfo(info));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    uint32_t bundle, model;
    size_t count = 0;
    uint8_t *mended = malloc(length + 1);
    if (mended == NULL) {
        return 0;
    }
    memcpy(mended, bytes, length);
    sums_mend(mended, length);
    bundle_ask(mended, length);
    if (aclmdlBundleLoadFromMem(mended, length, &bundle) == ACL_SUCCESS) {
        must(aclmdlBundleGetModelNum(bundle, &count));
        (void)aclmdlBundleGetModelId(bundle, count - 1, &model);
        must(aclmdlBundleUnload(bundle));
    }
    if (aclmdlBundleInitFromMem(mended, length, NULL, 0, &bundle) == ACL_SUCCESS) {
        for (size_t i = 0; i < MODELS_MAX; i++) {
            if (aclmdlBundleLoadModel(bundle, i, &model) == ACL_SUCCESS && i % 2 == 0) {
                must(aclmdlBundleUnloadModel(bundle, model));
            }
        }
        must(aclmdlBundleUnload(bundle));
    }
    free(mended);
    return 0;
}
