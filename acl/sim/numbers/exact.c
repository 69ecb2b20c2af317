/* exact.c: see exact.h.

   Computes ROWS rows and COLUMNS columns of C at a time, so that they fit the first-level cache:
   each row of B is loaded once for all of these rows. Integers of all types are summed as uint64_t,
   whose low bits are those of the sum in their own type. */
#include "numbers/exact.h"

#include <string.h>

#include "numbers/vmath.h"

enum { ROWS = 4, COLUMNS = 256, DEPTH = 256 };

static const char *place_of(const void *data, aclDataType type, int64_t index)
{
    return (const char *)data + index * type_size(type);
}

#define EXACT(NAME, T, COMPUTE) \
    WIDE static void add_##NAME(T (*sums)[COLUMNS], const T (*a)[DEPTH], int64_t p, const T *b, \
        int64_t n) \
    { \
        T a0 = a[0][p], a1 = a[1][p], a2 = a[2][p], a3 = a[3][p]; \
        for (int64_t j = 0; j < n; j++) { \
            T x = b[j]; \
            sums[0][j] += a0 * x; \
            sums[1][j] += a1 * x; \
            sums[2][j] += a2 * x; \
            sums[3][j] += a3 * x; \
        } \
    } \
    static void block_##NAME( \
        const Exact *e, int64_t first, int64_t rows, int64_t column, int64_t n) \
    { \
        T sums[ROWS][COLUMNS], a[ROWS][DEPTH], line[COLUMNS]; \
        memset(sums, 0, sizeof sums); \
        memset(a, 0, sizeof a); \
        for (int64_t p = 0; p < e->k; p++) { \
            int64_t deep = e->k - p < DEPTH ? e->k - p : DEPTH; \
            for (int64_t r = 0; p % DEPTH == 0 && r < rows; r++) { \
                int64_t at = (first + r) * e->a_row + p * e->a_column; \
                convert(a[r], COMPUTE, place_of(e->a, e->type, at), e->type, e->a_column, deep); \
            } \
            const char *from = \
                place_of(e->b, e->type, p * e->b_row + column * e->b_column); \
            const T *b = (const T *)(const void *)from; \
            if (e->b_column != 1 || e->type != (COMPUTE)) { \
                convert(line, COMPUTE, from, e->type, e->b_column, n); \
                b = line; \
            } \
            add_##NAME(sums, (const T (*)[DEPTH])a, p % DEPTH, b, n); \
        } \
        for (int64_t r = 0; r < rows; r++) { \
            char *to = (char *)e->c + ((first + r) * e->n + column) * type_size(e->type); \
            convert(to, e->type, sums[r], COMPUTE, 1, n); \
        } \
    }

EXACT(real, double, ACL_DOUBLE)
EXACT(whole, uint64_t, ACL_INT64)

void exact_run(const Exact *exact)
{
    bool real = type_is_float(exact->type);
    for (int64_t i = 0; i < exact->m; i += ROWS) {
        int64_t rows = exact->m - i < ROWS ? exact->m - i : ROWS;
        for (int64_t j = 0; j < exact->n; j += COLUMNS) {
            int64_t columns = exact->n - j < COLUMNS ? exact->n - j : COLUMNS;
            (real ? block_real : block_whole)(exact, i, rows, j, columns);
        }
    }
}
