/* rope.h: turning the pairs of a row by the angles of its place. */
#ifndef SIM_ROPE_H
#define SIM_ROPE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Rotary {
    int64_t size;       /* of a row */
    int64_t half;       /* pairs that are turned, from the row's start */
    bool interleaved;   /* pairs are neighbours, else `half` apart */
    const float *cosine, *sine; /* `half` numbers for each place */
} Rotary;

void rotary_row(const Rotary *rotary, int64_t place, const float *in, float *out);

#endif
