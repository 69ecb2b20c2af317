/* rope.h: rotary position embedding: rotates pairs of numbers of a row by angles of the row's position. */
#ifndef SIM_ROPE_H
#define SIM_ROPE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Rotary {
    int64_t size;       /* elements of a row */
    int64_t half;       /* rotated pairs, from the row's start; the rest of the row is copied */
    bool interleaved;   /* the two numbers of a pair are neighbours; otherwise they are `half` apart */
    const float *cosine, *sine; /* `half` numbers for each position */
} Rotary;

void rotary_row(const Rotary *rotary, int64_t place, const float *in, float *out);

#endif
