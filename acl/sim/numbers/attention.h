/* attention.h: scaled dot-product attention, one head after another, for every operator that is
   made of it.

   An operator describes where heads lie in its tensors (Heads) and which keys a query may see
   (Attend). The arithmetic is float32, or float64 if Attend.wide is set, for every type of the
   tensors. Nothing here allocates memory. */
#ifndef SIM_ATTENTION_H
#define SIM_ATTENTION_H

#include "numbers/tensor.h"

/* Rows of numbers by batch and head: element c of a row is at batch * b + head * h + row * r + c.
   Strides count elements; `data` is NULL if there are no rows. */
typedef struct Heads {
    char *data;
    aclDataType type;
    int64_t batch, head, row;
} Heads;

/* The stage of the computation at which the scores are written to the output `scores`. */
enum { SCORES_RAW, SCORES_CAPPED, SCORES_BIASED, SCORES_SOFTMAX };

typedef struct Attend {
    int64_t batches, heads, kv_heads;
    int64_t queries, size, value_size;
    int64_t past, fresh;        /* keys kept from earlier calls, and keys that this call adds */
    Heads q, k, v, past_k, past_v, out;
    bool wide;                  /* float64 arithmetic */
    double scale, softcap;      /* a softcap of 0 means that scores are not capped */
    bool causal;                /* query i sees keys up to offset + i */
    int64_t left, right;        /* query i sees this many keys before and after offset + i; -1: all */
    Heads mask;                 /* true for keys that are seen, or numbers that are added to scores; NULL data: no mask.
                                   A stride is 0 along an axis for which the mask has only one element */
    int64_t mask_column;        /* stride of the mask along the keys: 0 or 1 */
    int64_t mask_keys;          /* keys after these are not seen, if there is a mask */
    const Tensor *lengths;      /* number of valid keys of each batch; NULL = all keys are valid */
    int64_t lengths_extra;      /* added to each number of `lengths` */
    int64_t offset;
    bool offset_by_length;      /* the offset is length - queries, and `offset` is not used */
    Heads scores;               /* NULL data = not wanted */
    int scores_are;
} Attend;

/* Describes the heads of a tensor of shape [batch, head, row, c] or [batch, row, head * c]. */
Heads heads_of(const Tensor *tensor, int64_t heads);

int64_t attend_workspace(const Attend *attend);
void attend_run(const Attend *attend, void *workspace, unsigned threads);

/* Writes the keys or values of this call behind those of earlier calls, as [batch, head, row, size]. */
void heads_join(const Attend *attend, const Heads *past, const Heads *fresh, int64_t size,
    const Heads *to);

#endif
