/* attention.h: scaled dot-product attention, one head after another, for every operator that is
   made of it.

   An operator describes where heads lie in its tensors (Heads) and which keys a query may see;
   the arithmetic is float32, or float64 if asked for, whatever the tensors hold. Nothing here
   allocates. */
#ifndef SIM_ATTENTION_H
#define SIM_ATTENTION_H

#include "numbers/tensor.h"

/* Rows of numbers by batch and head: element c of a row is at batch * b + head * h + row * r + c.
   Strides count elements; `data` NULL says that there are none. */
typedef struct Heads {
    char *data;
    aclDataType type;
    int64_t batch, head, row;
} Heads;

/* What the scores are written out as, if they are. */
enum { SCORES_RAW, SCORES_CAPPED, SCORES_BIASED, SCORES_SOFTMAX };

typedef struct Attend {
    int64_t batches, heads, kv_heads;
    int64_t queries, size, value_size;
    int64_t past, fresh;        /* keys before those of this call, and of this call */
    Heads q, k, v, past_k, past_v, out;
    bool wide;                  /* float64 arithmetic */
    double scale, softcap;      /* a cap of 0 is none */
    bool causal;                /* query i sees keys up to offset + i */
    int64_t left, right;        /* a window about offset + i; -1 = open */
    Heads mask;                 /* as broadcast; bool: which keys are seen; numbers are added */
    int64_t mask_column;        /* 0 or 1 */
    int64_t mask_keys;          /* keys after these are not seen, if there is a mask */
    const Tensor *lengths;      /* keys that count, one for each batch; NULL = all */
    int64_t lengths_extra;      /* what to add to each of them */
    int64_t offset;
    bool offset_by_length;      /* offset = length - queries instead */
    Heads scores;               /* NULL data = not wanted */
    int scores_are;
} Attend;

/* Heads of a tensor [batch, head, row, c], or of one [batch, row, head * c]. */
Heads heads_of(const Tensor *tensor, int64_t heads);

int64_t attend_workspace(const Attend *attend);
void attend_run(const Attend *attend, void *workspace, unsigned threads);

/* Writes the keys or values of a call after those before it, as [batch, head, row, size]. */
void heads_join(const Attend *attend, const Heads *past, const Heads *fresh, int64_t size,
    const Heads *to);

#endif
