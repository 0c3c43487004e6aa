/* SPDX-License-Identifier: Apache-2.0 */
/* Each element becomes exactly n slices along axis 0: with B rows, slice k is rows [k*w, (k+1)*w)
 * with w = ceil(B / n), so the last slices may be shorter or empty. B is determined separately for
 * each component. Nothing is copied; the op below sees a consumer's n slots as one batch, which it
 * may write there. */
#include "pipeline/ops/batch.h"

#include <inttypes.h>

#include "pipeline/columns/cut_rows_internal.h"
#include "pipeline/streams/cursor.h"
#include "pipeline/params/infer.h"

struct params {
    int64_t n;
};

struct state {
    mr__cursor input;
    uint64_t slice; /* the next slice of the input's first element left */
};

struct cut {
    size_t from, rows;
};

static struct cut cut_of(int64_t rows, uint64_t n, uint64_t slice)
{
    uint64_t b = (uint64_t)rows, width = b / n + (b % n != 0), from;
    if (__builtin_mul_overflow(slice, width, &from) || from > b)
        from = b;
    return (struct cut){(size_t)from, (size_t)(b - from < width ? b - from : width)};
}

/* The number of slices from `slice` on with equal sizes in all columns, at most `most`. */
static size_t run_of(const mr_block *b, size_t row, uint64_t n, uint64_t slice, size_t most)
{
    size_t run = most;
    for (size_t c = 0; c < b->n_columns; c++) {
        const mr_array *a = &b->columns[c];
        if (a->storage == MR_RAGGED)
            return 1;
        int64_t rows = mr_array_row_shape(a, row)[0];
        struct cut first = cut_of(rows, n, slice);
        size_t same = 1; /* a short one is emitted alone */
        if (first.rows == 0)
            same = most;
        else if (first.rows == cut_of(rows, n, 0).rows) /* the first is the widest */
            same = ((size_t)rows - first.from) / first.rows;
        if (same < run)
            run = same;
    }
    return run;
}

/* Identities of `run` slices from `slice` on: those of their rows if a component of the element has
 * a row for each identity, else all. Slices without rows have none. */
static mr_code cut_identities(mr_block *out, const mr_block *b, size_t row, uint64_t n,
                              uint64_t slice, size_t run, mr_status *st)
{
    const mr_identities *ids = &b->ids;
    bool any = false;
    if (!ids->ids)
        return MR_OK;
    uint64_t from = ids->offsets ? ids->offsets[row] : row;
    uint64_t to = ids->offsets ? ids->offsets[row + 1] : row + 1;
    for (size_t c = 0; c < b->n_columns; c++) {
        int64_t rows = mr_array_row_shape(&b->columns[c], row)[0];
        struct cut k = cut_of(rows, n, slice);
        if (k.rows && (uint64_t)rows == to - from) {
            mr_identities flat = {.ids = ids->ids + from + k.from, .owner = ids->owner};
            return mr_identities_group(&out->ids, &flat, run * k.rows, k.rows, st);
        }
        any = any || (k.rows && (uint64_t)rows != to - from);
    }
    const mr_identities none = {.ids = ids->ids, .offsets = (const uint64_t[]){0, 0}};
    return any ? mr_identities_ungroup(&out->ids, ids, row, run, st)
               : mr_identities_ungroup(&out->ids, &none, 0, run, st);
}

static mr_code cut(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    const mr_block *b = mr__cursor_rows(&s->input);
    size_t row = mr__cursor_at(&s->input);
    uint64_t n = (uint64_t)p->n;
    for (size_t c = 0; c < b->n_columns; c++)
        if (b->columns[c].rank == 0)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "component %zu is a scalar, which cannot be cut for replicas; batch the "
                           "dataset first",
                           c);
    size_t most = n - s->slice < want ? (size_t)(n - s->slice) : want;
    size_t run = run_of(b, row, n, s->slice, most);
    MR_TRY(mr_block_prepare(out, b->n_columns, st));
    for (size_t c = 0; c < b->n_columns; c++) {
        const mr_array *a = &b->columns[c];
        int64_t rows = mr_array_row_shape(a, row)[0];
        struct cut k = cut_of(rows, n, s->slice);
        if (a->storage == MR_RAGGED)
            MR_TRY(mr__cut_ragged(&out->columns[c], a, row, k.from, k.rows, st));
        else
            mr__cut_dense(&out->columns[c], a, row, k.from, k.rows, run);
    }
    MR_TRY(cut_identities(out, b, row, n, s->slice, run, st));
    out->rows = run;
    s->slice += run;
    return MR_OK;
}

/* The consumer's slots as one batch, if they are n equal ones. */
static const mr_destination *slots(const mr_block *out, size_t want, uint64_t n)
{
    const mr_destination *destination = out->destination;
    if (!destination || want < n || destination->n_segments != n)
        return NULL;
    for (size_t i = 0; i < destination->n_columns * destination->n_segments; i++)
        if (destination->segments[i].bytes !=
            destination->segments[i - i % destination->n_segments].bytes)
            return NULL;
    return destination;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (mr__cursor_left(&s->input) == 0) {
        const mr_destination *destination = slots(out, want, (uint64_t)p->n);
        MR_TRY(mr__cursor_pull(it, 0, 1, &s->input, destination, st));
    }
    mr_code rc = cut(it, want, out, st);
    if (rc != MR_OK || s->slice == (uint64_t)p->n) {
        mr__cursor_use(&s->input, 1);
        s->slice = 0;
    }
    return rc;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__cursor_reset(&s->input);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->slice, st));
    return mr__cursor_save(it, 0, &s->input, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->slice, st));
    if (s->slice >= (uint64_t)p->n)
        return mr_state_damaged(st, "a slice is out of range");
    return mr__cursor_restore(it, 0, &s->input, r, st);
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    const struct params *q = p;
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    size_t n = mr_spec_n_leaves(in);
    bool known = !mr_param_unknown(self, offsetof(struct params, n));
    mr_leaf *leaves = mr_calloc(n ? n : 1, sizeof *leaves);
    if (!leaves)
        return mr_fail_memory(st, n * sizeof *leaves, "a spec");
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        leaves[i] = *mr_spec_leaf(in, i);
        int64_t *rows = &leaves[i].shape[0];
        if (leaves[i].rank == 0)
            rc = mr_fail(st, MR_INVALID_ARGUMENT,
                         "component %zu is a scalar, which cannot be cut for replicas; batch the "
                         "dataset first",
                         i);
        else if (leaves[i].rank > 0)
            *rows = known && *rows >= 0 && *rows % q->n == 0 ? *rows / q->n : -1;
    }
    if (rc == MR_OK)
        rc = mr__inferred(mr_spec_with_leaves(in, leaves), out, st);
    mr_free(leaves);
    return rc;
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    const struct params *q = p;
    int64_t all;
    if (in[0] < 0)
        return in[0];
    return __builtin_mul_overflow(in[0], q->n, &all) ? INT64_MAX : all;
}

static const mr_param table[] = {MR_PARAM_WITH(struct params, n, MR_P_POSITIONAL | MR_P_DIMENSION,
                                               .min.i = 1, .max.i = INT32_MAX,
                                               .doc = "Slices of each element, at least 1."),
                                 {0}};

const mr_op mr_op_replica_slices = {
    .abi = MR_ABI_VERSION,
    .name = "replica_slices",
    .doc =
        "Cuts each element into n equal slices along axis 0; the last ones may be short or empty.",
    .example = "range(8).batch(4).replica_slices(3)",
    .state_doc = "a counter",
    .count_doc = "n times the number of slices",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .infer = infer,
    .cardinality = cardinality,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_replica_slices(mr_dataset *input, int64_t n)
{
    struct params p = {n};
    return mr_dataset_new(&mr_op_replica_slices, &p, &input, 1);
}
