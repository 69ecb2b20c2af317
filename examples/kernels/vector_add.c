/* vector_add.c: out[i] = a[i] + b[i]; with n blocks, each block adds every n-th piece.

   gcc -shared -fPIC -O2 -I<include> -o kernels.so vector_add.c tiled_matmul.c, where <include> is
   what `python -c "import acl; print(acl.get_include())"` prints. */
#include "acl_sim_kernel.h"

struct VectorAdd {
    const float *a, *b;
    float *out;
    uint32_t count;
};

ACL_SIM_KERNEL_PARAMS(vector_add, 8, 8, 8, 4);

ACL_SIM_KERNEL(vector_add)
{
    enum { PIECE = 1024 };
    const struct VectorAdd *p = args;
    for (uint32_t first = block * PIECE; first < p->count; first += blocks * PIECE) {
        uint32_t last = p->count - first < PIECE ? p->count : first + PIECE;
        for (uint32_t i = first; i < last; i++) {
            p->out[i] = p->a[i] + p->b[i];
        }
    }
}
