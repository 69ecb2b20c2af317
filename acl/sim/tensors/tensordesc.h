/* tensordesc.h: what models and operators read in a user's aclTensorDesc. */
#ifndef SIM_TENSORDESC_H
#define SIM_TENSORDESC_H

#include "base/core.h"
#include "numbers/tensor.h"

/* A list of dimensions: a short one is stored inside, a long one on the heap. */
typedef struct Dims {
    int count;
    int64_t near[TENSOR_RANK_MAX];
    int64_t *far;
} Dims;

struct aclTensorDesc {
    aclDataType type;
    aclFormat format, storage_format, origin_format;
    Dims dims, storage, origin, ranges; /* `ranges` has a pair for each dimension: lowest and highest value */
    char *name, *dynamic_input;
    void *constant;                     /* a copy of what aclSetTensorConst gave */
    size_t constant_bytes;
    aclMemType place;
    void *address;       /* the tensor's memory if the call that made the description knows it, or NULL */
    aclTensorDesc *next; /* next in a list of descriptions, which is freed with its first */
};

const int64_t *dims_list(const Dims *dims);

/* Copies `count` dimensions. Returns false if there is no host memory. */
bool dims_set(Dims *dims, int count, const int64_t *values);

/* Converts type and shape to a Tensor. On failure the message begins with `what`. Returns 100000 if there are more than
   TENSOR_RANK_MAX dimensions, if a dimension is unknown (-1), or if the tensor would be larger than 2^47 bytes; 100026
   if the data type is not supported. */
aclError tensordesc_read(const aclTensorDesc *desc, const char *what, Tensor *tensor);

/* Sets the description's type and shape to those of a tensor. Returns false if there is no host memory. */
bool tensordesc_write(aclTensorDesc *desc, const Tensor *tensor);

aclTensorDesc *tensordesc_new(aclDataType type, int count, const int64_t *dims, aclFormat format);

#endif
