/* quant.c: exact products of small integers, by way of gemm.c. See quant.h.

   Each term is at most 255 * 255, so a sum of 256 terms is below 2^24, where a float sum is exact
   in every order. Longer sums are split into parts of 256 terms; the parts are added as integers,
   which wrap. */
#include "numbers/quant.h"

#include <string.h>

#include "numbers/gemm.h"

enum { EXACT_TERMS = 256 };

void whole_product(const WholeProduct *p)
{
    memset(p->c, 0, (size_t)(p->m * p->n) * sizeof *p->c);
    for (int64_t first = 0; first < p->k; first += EXACT_TERMS) {
        int64_t depth = p->k - first < EXACT_TERMS ? p->k - first : EXACT_TERMS;
        Gemm gemm = {
            .m = p->m, .n = p->n, .k = depth, .c = p->partial, .c_row = p->n, .alpha = 1.0F,
            .a = p->a + first, .a_type = ACL_FLOAT, .a_row = p->k, .a_column = 1,
            .b = p->b + first * p->n, .b_type = ACL_FLOAT, .b_row = p->n, .b_column = 1,
        };
        gemm_run(&gemm, p->scratch, p->threads);
        for (int64_t i = 0; i < p->m * p->n; i++) {
            p->c[i] = (int32_t)((uint32_t)p->c[i] + (uint32_t)(int32_t)p->partial[i]);
        }
    }
}
