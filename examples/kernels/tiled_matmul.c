/* tiled_matmul.c: c[m x n] = a[m x k] * b[k x n]; with n blocks, each block computes every n-th
   tile of c. As on a device, a tile of a and one of b are first copied to fast memory (here: a
   local array), then multiplied. */
#include <string.h>

#include "acl_sim_kernel.h"

enum { TILE = 32 };

struct TiledMatmul {
    const float *a, *b;
    float *c;
    uint32_t m, n, k;
};

ACL_SIM_KERNEL_PARAMS(tiled_matmul, 8, 8, 8, 4, 4, 4);

/* Copies a tile of a matrix; outside of the matrix the tile is zero. */
static void tile_load(float (*tile)[TILE], const float *from, uint32_t rows, uint32_t columns,
    uint32_t row, uint32_t column)
{
    memset(tile, 0, sizeof(float) * TILE * TILE);
    for (uint32_t i = 0; i < TILE && row + i < rows; i++) {
        for (uint32_t j = 0; j < TILE && column + j < columns; j++) {
            tile[i][j] = from[(row + i) * columns + column + j];
        }
    }
}

static void tile_multiply(float (*sum)[TILE], float (*a)[TILE], float (*b)[TILE])
{
    for (uint32_t i = 0; i < TILE; i++) {
        for (uint32_t q = 0; q < TILE; q++) {
            for (uint32_t j = 0; j < TILE; j++) {
                sum[i][j] += a[i][q] * b[q][j];
            }
        }
    }
}

ACL_SIM_KERNEL(tiled_matmul)
{
    const struct TiledMatmul *p = args;
    uint32_t across = (p->n + TILE - 1) / TILE, tiles = (p->m + TILE - 1) / TILE * across;
    for (uint32_t tile = block; tile < tiles; tile += blocks) {
        float sum[TILE][TILE] = {{0}}, a[TILE][TILE], b[TILE][TILE];
        uint32_t row = tile / across * TILE, column = tile % across * TILE;
        for (uint32_t q = 0; q < p->k; q += TILE) {
            tile_load(a, p->a, p->m, p->k, row, q);
            tile_load(b, p->b, p->k, p->n, q, column);
            tile_multiply(sum, a, b);
        }
        for (uint32_t i = 0; i < TILE && row + i < p->m; i++) {
            for (uint32_t j = 0; j < TILE && column + j < p->n; j++) {
                p->c[(row + i) * p->n + column + j] = sum[i][j];
            }
        }
    }
}
