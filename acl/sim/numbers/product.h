/* product.h: the shapes of matrix products under ONNX's rules, for the operators that compute such products. */
#ifndef SIM_PRODUCT_H
#define SIM_PRODUCT_H

#include "numbers/tensor.h"

/* A matrix product whose shapes are known and fit. */
typedef struct Product {
    int64_t m, n, k;
    bool a_transposed, b_transposed;
    int64_t batches;
    Tensor batch_shape;             /* the leading dimensions of the result, after broadcasting */
    Tensor a_batch, b_batch;        /* the leading dimensions of each operand, before broadcasting */
} Product;

/* Fills in the other fields from the shapes and from `a_transposed` and `b_transposed`. Returns false if the
   shapes cannot be multiplied. */
bool product_plan(const Tensor *a, const Tensor *b, Product *product);

/* Gives `out` the result's shape. */
void product_shape(const Product *product, const Tensor *a, const Tensor *b, Tensor *out);

/* If B is a single matrix, combines the products of all matrices of A with it into one product. */
void product_flatten(Product *product, const Tensor *a);

#endif
