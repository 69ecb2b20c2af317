/* gemm.c: blocked matrix product. See gemm.h.

   There are the usual three levels. Panels of B (KC x NR) and of A (MR x KC) are packed, and
   converted to float32 in the same step, so that the kernel reads memory in one direction only. The
   kernel keeps an MR x NR tile of C in vector registers. Packing costs O(mk + kn), the arithmetic
   O(mnk). The kernel is compiled once per instruction set from one text with gcc's vector types,
   and chosen at run time.

   A product with few rows (single-token decoding) gains nothing from packing; it is computed by the
   functions under "few rows". */
#include "numbers/gemm.h"
#include "numbers/parallel.h"
#include "numbers/vmath.h"

#include <string.h>

enum {
    KC = 256,       /* depth of a panel: an A panel and a B panel fit the first-level cache */
    NC = 1024,      /* columns packed at once: KC x NC floats stay in the second-level cache */
    MR_MAX = 12,
    NR_MAX = 32,
    ROWS_FEW = 4,   /* products of at most this many rows, or columns, do not use the kernel */
    PARTS_MAX = 16, /* threads that share the strips of rows */
};

typedef float Vec __attribute__((vector_size(64), aligned(4)));

typedef void (*Kernel)(int64_t k, const float *a, const float *b, float *c, int64_t c_row);

typedef struct Tile {
    int rows;
    int columns;
    Kernel kernel;
} Tile;

/* c[MR][16 * NV] += a[k][MR] * b[k][16 * NV]. The loops over r and v are unrolled, so that `acc`
   stays in registers. */
#define KERNEL_BODY(MR, NV) \
    Vec acc[MR][NV]; \
    memset(acc, 0, sizeof acc); \
    for (int64_t p = 0; p < k; p++) { \
        const Vec *row = (const Vec *)(const void *)b; \
        _Pragma("GCC unroll 12") for (int r = 0; r < (MR); r++) { \
            _Pragma("GCC unroll 2") for (int v = 0; v < (NV); v++) { \
                acc[r][v] += a[r] * row[v]; \
            } \
        } \
        a += (MR); \
        b += 16 * (NV); \
    } \
    for (int r = 0; r < (MR); r++) { \
        Vec *row = (Vec *)(void *)(c + r * c_row); \
        for (int v = 0; v < (NV); v++) { \
            row[v] += acc[r][v]; \
        } \
    }

static void kernel_plain(int64_t k, const float *a, const float *b, float *c, int64_t c_row)
{
    KERNEL_BODY(6, 1)
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void kernel_avx2(int64_t k, const float *a,
    const float *b, float *c, int64_t c_row)
{
    KERNEL_BODY(6, 1)
}

__attribute__((target("avx512f,fma"))) static void kernel_avx512(int64_t k, const float *a,
    const float *b, float *c, int64_t c_row)
{
    KERNEL_BODY(12, 2)
}
#endif

static Tile tile_choose(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        return (Tile){12, 32, kernel_avx512};
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return (Tile){6, 16, kernel_avx2};
    }
#endif
    return (Tile){6, 16, kernel_plain};
}

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- packing --- */

/* Copies one line of `count` elements, `stride` apart, as float32 to out[0], out[gap], ... */
static void line_pack(const void *from, aclDataType type, int64_t stride, int64_t count,
    float *out, int64_t gap)
{
    if (type == ACL_FLOAT) {
        const float *in = from;
        for (int64_t i = 0; i < count; i++) {
            out[i * gap] = in[i * stride];
        }
        return;
    }
    if (type != ACL_BF16 && type != ACL_FLOAT16) {
        Tensor other = {.type = type, .data = (void *)(uintptr_t)from};
        for (int64_t i = 0; i < count; i++) {
            out[i * gap] = (float)tensor_get_real(&other, i * stride);
        }
        return;
    }
    const uint16_t *in = from;
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits = in[i * stride];
        out[i * gap] = type == ACL_BF16 ? float_from_bfloat(bits) : float_from_half(bits);
    }
}

/* Packs lines [0, lines) of length `depth` into panels of `width` lines, padded with zeros.
   Element d of line l goes to panel l / width, place d * width + l % width. */
static void panel_pack(const void *from, aclDataType type, int64_t line_stride,
    int64_t depth_stride, int64_t lines, int64_t depth, int64_t width, float *out)
{
    const char *base = from;
    int64_t size = type_size(type);
    for (int64_t first = 0; first < lines; first += width) {
        int64_t here = smaller(width, lines - first);
        if (here < width) {
            memset(out, 0, (size_t)(depth * width) * sizeof *out);
        }
        const char *corner = base + first * line_stride * size;
        if (line_stride == 1) {
            for (int64_t d = 0; d < depth; d++) {
                line_pack(corner + d * depth_stride * size, type, 1, here, out + d * width, 1);
            }
        } else {
            for (int64_t l = 0; l < here; l++) {
                const char *line = corner + l * line_stride * size;
                line_pack(line, type, depth_stride, depth, out + l, width);
            }
        }
        out += depth * width;
    }
}

/* --- one block of C --- */

typedef struct Block {
    const Gemm *gemm;
    Tile tile;
    int64_t depth_first, depth;
    int64_t column_first, columns;
    const float *b_packed;
    float *a_packed;       /* one panel for each part */
    int64_t parts;         /* threads; thread i computes the strips i, i + parts, i + 2 * parts, ... */
} Block;

/* The kernel works on whole tiles. A tile at the edge of C is computed in a small buffer and copied. */
static void tile_edge(const Block *block, const float *a, const float *b, float *c, int64_t rows,
    int64_t columns)
{
    float edge[MR_MAX * NR_MAX];
    memset(edge, 0, sizeof edge);
    block->tile.kernel(block->depth, a, b, edge, block->tile.columns);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < columns; j++) {
            c[r * block->gemm->c_row + j] += edge[r * block->tile.columns + j];
        }
    }
}

static void strip_run(const Block *block, int64_t first, float *a)
{
    const Gemm *gemm = block->gemm;
    int64_t mr = block->tile.rows, nr = block->tile.columns;
    int64_t rows = smaller(mr, gemm->m - first);
    const char *corner = (const char *)gemm->a
        + (first * gemm->a_row + block->depth_first * gemm->a_column) * type_size(gemm->a_type);
    panel_pack(corner, gemm->a_type, gemm->a_row, gemm->a_column, rows, block->depth, mr, a);
    if (gemm->alpha != 1.0F) {
        for (int64_t i = 0; i < mr * block->depth; i++) {
            a[i] *= gemm->alpha;
        }
    }
    for (int64_t j = 0; j < block->columns; j += nr) {
        const float *b = block->b_packed + j * block->depth;
        float *c = gemm->c + first * gemm->c_row + block->column_first + j;
        int64_t columns = smaller(nr, block->columns - j);
        if (rows == mr && columns == nr) {
            block->tile.kernel(block->depth, a, b, c, gemm->c_row);
        } else {
            tile_edge(block, a, b, c, rows, columns);
        }
    }
}

static void part_run(void *context, int64_t part)
{
    const Block *block = context;
    int64_t mr = block->tile.rows;
    for (int64_t first = part * mr; first < block->gemm->m; first += block->parts * mr) {
        strip_run(block, first, block->a_packed + part * mr * block->depth);
    }
}

/* --- few rows --- */

static void rows_axpy(const Gemm *gemm, int64_t row, float *scratch)
{
    float *c = gemm->c + row * gemm->c_row;
    int64_t a_size = type_size(gemm->a_type), b_size = type_size(gemm->b_type);
    const char *a = (const char *)gemm->a + row * gemm->a_row * a_size;
    for (int64_t p = 0; p < gemm->k; p++) {
        float scale;
        line_pack(a + p * gemm->a_column * a_size, gemm->a_type, 1, 1, &scale, 1);
        scale *= gemm->alpha;
        const float *b = (const float *)gemm->b + p * gemm->b_row;
        if (gemm->b_type != ACL_FLOAT) {
            const char *line = (const char *)gemm->b + p * gemm->b_row * b_size;
            line_pack(line, gemm->b_type, 1, gemm->n, scratch, 1);
            b = scratch;
        }
        for (int64_t j = 0; j < gemm->n; j++) {
            c[j] += scale * b[j];
        }
    }
}

/* Returns the dot product of two lines of float32, summed in vector lanes. */
INLINED float line_dot(const float *a, const float *b, int64_t n)
{
    float lanes[16] = {0}, sum = 0.0F;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int l = 0; l < 16; l++) {
            lanes[l] += a[i + l] * b[i + l];
        }
    }
    for (int l = 0; l < 16; l++) {
        sum += lanes[l];
    }
    for (; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Adds the products of `m` lines of A with one of B to a column of C. */
WIDE static void column_add(const Gemm *gemm, const float *a, const float *b, int64_t n, float *c)
{
    for (int64_t i = 0; i < gemm->m; i++) {
        c[i * gemm->c_row] += gemm->alpha * line_dot(a + i * gemm->a_row, b, n);
    }
}

/* For a C with few columns, which would not fill a tile: each column of B is packed, part by part, and
   multiplied with the unpacked rows of A. */
static bool columns_dot(const Gemm *gemm, float *scratch)
{
    if (gemm->n > ROWS_FEW || gemm->a_column != 1 || gemm->a_type != ACL_FLOAT) {
        return false;
    }
    int64_t size = type_size(gemm->b_type);
    for (int64_t j = 0; j < gemm->n; j++) {
        const char *column = (const char *)gemm->b + j * gemm->b_column * size;
        for (int64_t p = 0; p < gemm->k; p += KC) {
            int64_t depth = smaller(KC, gemm->k - p);
            line_pack(column + p * gemm->b_row * size, gemm->b_type, gemm->b_row, depth, scratch, 1);
            column_add(gemm, (const float *)gemm->a + p, scratch, depth, gemm->c + j);
        }
    }
    return true;
}

/* For a transposed B, whose columns are contiguous: each number of C is one dot product. */
static bool rows_dot(const Gemm *gemm)
{
    if (gemm->b_row != 1 || gemm->a_column != 1 || gemm->a_type != ACL_FLOAT
        || gemm->b_type != ACL_FLOAT) {
        return false;
    }
    for (int64_t j = 0; j < gemm->n; j++) {
        const float *b = (const float *)gemm->b + j * gemm->b_column;
        for (int64_t i = 0; i < gemm->m; i++) {
            const float *a = (const float *)gemm->a + i * gemm->a_row;
            gemm->c[i * gemm->c_row + j] += gemm->alpha * line_dot(a, b, gemm->k);
        }
    }
    return true;
}

/* --- the whole product --- */

int64_t gemm_scratch(int64_t m, int64_t n, int64_t k)
{
    int64_t columns = round_up(smaller(n, NC), NR_MAX);
    int64_t rows = smaller(m + MR_MAX, PARTS_MAX * MR_MAX);
    int64_t packed = (columns + rows) * smaller(k, KC);
    return (m <= ROWS_FEW && n > packed ? n : packed) * (int64_t)sizeof(float);
}

static void c_prepare(const Gemm *gemm)
{
    for (int64_t i = 0; i < gemm->m; i++) {
        float *row = gemm->c + i * gemm->c_row;
        if (gemm->beta == 0.0F) {
            memset(row, 0, (size_t)gemm->n * sizeof *row);
        } else if (gemm->beta != 1.0F) {
            for (int64_t j = 0; j < gemm->n; j++) {
                row[j] *= gemm->beta;
            }
        }
    }
}

static void block_run(Block *block, float *scratch, unsigned threads)
{
    const Gemm *gemm = block->gemm;
    const char *corner = (const char *)gemm->b + (block->depth_first * gemm->b_row
        + block->column_first * gemm->b_column) * type_size(gemm->b_type);
    panel_pack(corner, gemm->b_type, gemm->b_column, gemm->b_row, block->columns, block->depth,
        block->tile.columns, scratch);
    block->b_packed = scratch;
    block->a_packed = scratch + round_up(block->columns, NR_MAX) * block->depth;
    int64_t strips = (gemm->m + block->tile.rows - 1) / block->tile.rows;
    bool small = gemm->m * block->columns * block->depth < 1 << 20;
    block->parts = small ? 1 : smaller(smaller(threads, PARTS_MAX), strips);
    parallel_for(threads, block->parts, part_run, block);
}

void gemm_run(const Gemm *gemm, void *scratch, unsigned threads)
{
    c_prepare(gemm);
    if (gemm->m <= ROWS_FEW && gemm->b_column == 1) {
        for (int64_t row = 0; row < gemm->m; row++) {
            rows_axpy(gemm, row, scratch);
        }
        return;
    }
    if ((gemm->m <= ROWS_FEW && rows_dot(gemm)) || columns_dot(gemm, scratch)) {
        return;
    }
    Block block = {.gemm = gemm, .tile = tile_choose()};
    for (int64_t j = 0; j < gemm->n; j += NC) {
        for (int64_t p = 0; p < gemm->k; p += KC) {
            block.column_first = j;
            block.columns = smaller(NC, gemm->n - j);
            block.depth_first = p;
            block.depth = smaller(KC, gemm->k - p);
            block_run(&block, scratch, threads);
        }
    }
}
