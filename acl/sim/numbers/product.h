/* product.h: the shapes of matrix products under ONNX's rules, for the operators that make them. */
#ifndef SIM_PRODUCT_H
#define SIM_PRODUCT_H

#include "numbers/tensor.h"

/* One product after the shapes are settled. */
typedef struct Product {
    int64_t m, n, k;
    bool a_transposed, b_transposed;
    int64_t batches;
    Tensor batch_shape;             /* broadcast leading dimensions */
    Tensor a_batch, b_batch;        /* the operands' own */
} Product;

/* Fills in the rest from the two transpositions; false if the shapes do not multiply. */
bool product_plan(const Tensor *a, const Tensor *b, Product *product);

/* Gives `out` the result's shape. */
void product_shape(const Product *product, const Tensor *a, const Tensor *b, Tensor *out);

/* A batch of one matrix B multiplies all rows of A at once: one product instead of many. */
void product_flatten(Product *product, const Tensor *a);

#endif
