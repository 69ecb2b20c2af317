/* pool_planes.h: the arithmetic of op_pool.c on planes of elements of type REAL. op_pool.c includes this file twice,
   for float and for double, so it has no include guard. Before each inclusion it defines REAL, REAL_TYPE (the
   aclDataType of REAL) and NAME(x). */

/* Returns the larger number; NaN if one of the two is NaN. */
static REAL NAME(larger)(REAL so_far, REAL x)
{
    return x > so_far || isnan(x) ? x : so_far;
}

WIDE static bool NAME(any_nan)(const REAL *x, int64_t n)
{
    int found = 0;
    for (int64_t i = 0; i < n; i++) {
        found |= x[i] != x[i];
    }
    return found != 0;
}

/* Returns the maximum of `value` and `n` elements of a row if `largest`, else their sum. */
WIDE static REAL NAME(run_fold)(const REAL *x, int64_t n, bool largest, REAL value)
{
    enum { LANES = 32 };
    REAL lanes[LANES];
    int64_t i = 0;
    for (int l = 0; l < LANES && n >= LANES; l++) {
        lanes[l] = largest ? -(REAL)INFINITY : 0;
    }
    for (; largest && i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
        }
    }
    for (; !largest && i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lanes[l] += x[i + l];
        }
    }
    if (largest && i > 0 && NAME(any_nan)(x, i)) {
        return (REAL)NAN;
    }
    for (int l = 0; l < LANES && i > 0; l++) {
        value = largest ? NAME(larger)(value, lanes[l]) : value + lanes[l];
    }
    for (; i < n; i++) {
        value = largest ? NAME(larger)(value, x[i]) : value + x[i];
    }
    return value;
}

/* Returns the maximum or the sum of the elements in one window. If `where` is not NULL, *where gets the index of the
   maximum in the plane. */
static REAL NAME(reach_fold)(
    const Window *w, const Reach *r, const REAL *plane, bool largest, int64_t *where)
{
    REAL value = largest ? -(REAL)INFINITY : 0;
    for (int64_t z = r->first[0]; z < r->last[0]; z++) {
        for (int64_t y = r->first[1]; y < r->last[1]; y++) {
            int64_t row =
                ((r->start[0] + z * w->dilation[0]) * w->in[1] + r->start[1] + y * w->dilation[1])
                * w->in[2] + r->start[2];
            if (where == NULL && w->dilation[2] == 1) {
                value = NAME(run_fold)(
                    plane + row + r->first[2], r->last[2] - r->first[2], largest, value);
                continue;
            }
            for (int64_t x = r->first[2]; x < r->last[2]; x++) {
                int64_t at = row + x * w->dilation[2];
                if (!largest) {
                    value += plane[at];
                } else if (plane[at] > value || isnan(plane[at])
                    || (where != NULL && *where < 0)) {
                    value = plane[at];
                    if (where != NULL) {
                        *where = at;
                    }
                }
            }
        }
    }
    return value;
}

/* Updates a row of output elements, `sum`, with the input elements under one kernel element. For a maximum, the input
   must not contain NaN. */
INLINED void NAME(row_take)(REAL *sum, const REAL *from, int64_t stride, int64_t n, bool largest)
{
    if (largest && stride == 1) {
        for (int64_t i = 0; i < n; i++) {
            sum[i] = from[i] > sum[i] ? from[i] : sum[i];
        }
    } else if (largest && stride == 2) {
        for (int64_t i = 0; i < n; i++) {
            sum[i] = from[2 * i] > sum[i] ? from[2 * i] : sum[i];
        }
    } else if (largest) {
        for (int64_t i = 0; i < n; i++) {
            sum[i] = from[i * stride] > sum[i] ? from[i * stride] : sum[i];
        }
    } else if (stride == 1) {
        for (int64_t i = 0; i < n; i++) {
            sum[i] += from[i];
        }
    } else if (stride == 2) {
        for (int64_t i = 0; i < n; i++) {
            sum[i] += from[2 * i];
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            sum[i] += from[i * stride];
        }
    }
}

/* Computes a row of output elements in `sum`. First combines the input rows of the window into one row, `seen`; then
   combines the elements of that row under each kernel element. */
WIDE static void NAME(row_fold)(
    const Window *w, const Reach *r, const REAL *plane, bool largest, REAL *seen, REAL *sum)
{
    const REAL nothing = largest ? -(REAL)INFINITY : 0;
    for (int64_t i = 0; i < w->in[2]; i++) {
        seen[i] = nothing;
    }
    for (int64_t i = 0; i < w->out[2]; i++) {
        sum[i] = nothing;
    }
    for (int64_t z = r->first[0]; z < r->last[0]; z++) {
        for (int64_t y = r->first[1]; y < r->last[1]; y++) {
            int64_t row = (r->start[0] + z * w->dilation[0]) * w->in[1] + r->start[1]
                + y * w->dilation[1];
            NAME(row_take)(seen, plane + row * w->in[2], 1, w->in[2], largest);
        }
    }
    for (int64_t k = 0; k < w->kernel[2]; k++) {
        int64_t offset = k * w->dilation[2] - w->pad_begin[2], first, last;
        window_steps(w->out[2], w->stride[2], offset, w->in[2], &first, &last);
        if (first < last) {
            NAME(row_take)(sum + first, seen + first * w->stride[2] + offset, w->stride[2],
                last - first, largest);
        }
    }
}

/* Divides each sum of a row by the number of elements in its window, size * sizes[i]; by 1 if the window is empty. */
WIDE static void NAME(row_divide)(REAL *row, const REAL *sizes, REAL size, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        REAL places = size * sizes[i];
        row[i] /= places > 0 ? places : 1;
    }
}

/* Returns the maximum of a whole plane if `largest`, else the average. */
static REAL NAME(plane_fold)(const Window *w, const REAL *plane, bool largest)
{
    REAL value = NAME(run_fold)(plane, w->in_plane, largest, largest ? -(REAL)INFINITY : 0);
    return largest ? value : value / (REAL)w->in_plane;
}

static void NAME(plane_run)(const OpCall *call, const Window *w, int64_t index)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    bool largest = call->kind->variant == MAX || call->kind->variant == GLOBAL_MAX;
    bool padded = attr_int(call, "count_include_pad", 0) != 0;
    bool places = call->output_count > 1 && call->outputs[1].data != NULL;
    bool each = places || w->out[2] < w->kernel[2];
    const char *place = (const char *)in->data + index * w->in_plane * type_size(in->type);
    const REAL *plane = (const REAL *)(const void *)place;
    REAL *row = call->workspace, *sizes = row + w->out[2], *seen = sizes + w->out[2];
    REAL *own = seen + w->in[2];
    if (in->type != REAL_TYPE) {
        convert(own, REAL_TYPE, place, in->type, 1, w->in_plane);
        plane = own;
    }
    if (call->kind->variant >= GLOBAL_MAX) {
        *row = NAME(plane_fold)(w, plane, largest);
        convert((char *)out->data + index * type_size(out->type), out->type, row, REAL_TYPE, 1, 1);
        return;
    }
    each = each || (largest && NAME(any_nan)(plane, w->in_plane));
    for (int64_t x = 0; x < w->out[2] && !largest; x++) {
        Reach reach;
        reach_dimension(w, 2, x, &reach);
        sizes[x] = (REAL)reach_size(w, &reach, 2, padded);
    }
    for (int64_t i = 0; i < w->out_plane; i += w->out[2]) {
        int64_t at = index * w->out_plane + i;
        Reach reach = reach_at(w, i);
        if (!each) {
            NAME(row_fold)(w, &reach, plane, largest, seen, row);
        }
        for (int64_t x = 0; x < w->out[2] && each; x++) {
            int64_t where = -1;
            reach_dimension(w, 2, x, &reach);
            row[x] = NAME(reach_fold)(w, &reach, plane, largest, places ? &where : NULL);
            if (places) {
                place_put(call, w, index, at + x, where);
            }
        }
        if (!largest) {
            int64_t size = reach_size(w, &reach, 0, padded) * reach_size(w, &reach, 1, padded);
            NAME(row_divide)(row, sizes, (REAL)size, w->out[2]);
        }
        convert((char *)out->data + at * type_size(out->type), out->type, row, REAL_TYPE, 1,
            w->out[2]);
    }
}

#undef REAL
#undef REAL_TYPE
#undef NAME
