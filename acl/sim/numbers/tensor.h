/* tensor.h: the tensors that operators work on: a data type, a shape and a row-major block of
   memory.

   A Tensor never owns its data. Shapes have at most TENSOR_RANK_MAX dimensions; a scalar has rank
   0. Nothing here depends on streams, devices or models. Every function may be called from any
   thread. */
#ifndef SIM_TENSOR_H
#define SIM_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acl/acl_base.h"

enum { TENSOR_RANK_MAX = 8 };

typedef struct Tensor {
    aclDataType type;
    int rank;
    int64_t dims[TENSOR_RANK_MAX];
    void *data;
    bool narrow;    /* its 8-bit elements hold numbers of an ONNX type of four bits */
} Tensor;

/* --- data types --- */

int64_t type_size(aclDataType type); /* bytes of one element; 0 for a type the library lacks */
const char *type_name(aclDataType type);
bool type_is_float(aclDataType type);       /* float16, bfloat16, float32, float64 */
bool type_is_integer(aclDataType type);     /* signed and unsigned, not bool */

/* Returns the type for a number of ONNX's TensorProto.DataType; ACL_DT_UNDEFINED if there is none. */
aclDataType type_from_onnx(int64_t number);

/* The type that arithmetic on `type` is done in: float, double, int32_t, int64_t or
   uint64_t. */
aclDataType type_compute(aclDataType type);

float float_from_half(uint16_t bits);
uint16_t half_from_float(float value);
float float_from_bfloat(uint16_t bits);
uint16_t bfloat_from_float(float value);

/* --- shapes --- */

int64_t dims_count(const int64_t *dims, int rank);
int64_t tensor_count(const Tensor *tensor);
int64_t tensor_bytes(const Tensor *tensor);

/* Returns false if a dimension is negative or the size in bytes exceeds 2^47. */
bool tensor_fits(const Tensor *tensor);
bool tensor_same_shape(const Tensor *a, const Tensor *b);
void tensor_shape_copy(Tensor *to, const Tensor *from);

/* Computes the shape of two operands after NumPy's broadcasting. Returns false if they cannot be broadcast. */
bool dims_broadcast(const Tensor *a, const Tensor *b, Tensor *out);

/* Returns the axis counted from the front, also for a negative one; -1 if it is outside [-rank, rank). */
int axis_normal(int64_t axis, int rank);

/* Writes a shape as [2, 3, 4] and returns `text`. */
char *shape_text(const Tensor *tensor, char *text, size_t room);

/* --- elements --- */

int64_t tensor_get_int(const Tensor *tensor, int64_t index);
double tensor_get_real(const Tensor *tensor, int64_t index);

/* Converts `count` elements, which are `stride` elements apart in the source (0 repeats one
   element), into contiguous ones. Floats are truncated to integers; integers wrap; every number but
   zero becomes true. */
void convert(void *to, aclDataType to_type, const void *from, aclDataType from_type,
    int64_t stride, int64_t count);

#endif
