/* tensordesc.h: what models and operators read in a user's aclTensorDesc. */
#ifndef SIM_TENSORDESC_H
#define SIM_TENSORDESC_H

#include "base/core.h"
#include "numbers/tensor.h"

/* Dimensions, few of them in place and more on the heap. */
typedef struct Dims {
    int count;
    int64_t near[TENSOR_RANK_MAX];
    int64_t *far;
} Dims;

struct aclTensorDesc {
    aclDataType type;
    aclFormat format, storage_format, origin_format;
    Dims dims, storage, origin, ranges; /* ranges: pairs of lowest and highest */
    char *name, *dynamic_input;
    void *constant;                     /* a copy of what aclSetTensorConst gave */
    size_t constant_bytes;
    aclMemType place;
    void *address;       /* of the tensor, where a call that made the description knows it */
    aclTensorDesc *next; /* in a list of them, which is freed with its first */
};

const int64_t *dims_list(const Dims *dims);

/* Makes room for and copies `count` dimensions; false without memory. */
bool dims_set(Dims *dims, int count, const int64_t *values);

/* Type and shape as the operator library wants them; 100000 with `what` in the message if there are
   too many dimensions, one is not known (-1), or the data type is not supported. */
aclError tensordesc_read(const aclTensorDesc *desc, const char *what, Tensor *tensor);

/* Gives a description the type and shape of a tensor. */
bool tensordesc_write(aclTensorDesc *desc, const Tensor *tensor);

aclTensorDesc *tensordesc_new(aclDataType type, int count, const int64_t *dims, aclFormat format);

#endif
