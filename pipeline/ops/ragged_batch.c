/* SPDX-License-Identifier: Apache-2.0 */
/* Elements are kept as views until the batch is full. Then each component whose shape the graph
 * does not determine becomes one ragged row: the values of all elements, and the start of each. */
#include "pipeline/ops/batch.h"

#include <string.h>

#include "pipeline/params/infer.h"
#include "pipeline/streams/collect.h"

struct params {
    int64_t batch_size;
    mr_ragged_batch_opts o;
};

/* true: elements of the leaf may differ in shape. */
static bool is_open(const mr_leaf *leaf)
{
    for (int d = 0; d < leaf->rank; d++)
        if (leaf->shape[d] < 0)
            return true;
    return false;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    (void)st;
    mr__collected *s = it->state;
    const mr_spec *in = mr_iter_input_spec(it, 0);
    for (size_t c = 0; c < mr_spec_n_leaves(in); c++)
        s->stack.ragged = s->stack.ragged || is_open(mr_spec_leaf(in, c));
    return MR_OK;
}

/* ---- one ragged row ---- */

static mr_code check_row(const mr_array *a, size_t row, const int64_t *like, size_t column,
                         mr_status *st)
{
    const mr_row *r = (const mr_row *)a->data + row;
    size_t inner = (size_t)(a->rank - 1) * sizeof *like;
    if (r->splits)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "element %zu of component %zu is ragged itself and cannot be batched", row,
                       column);
    if (r->shape[0] == 0 || memcmp(r->shape + 1, like + 1, inner) == 0)
        return MR_OK;
    char x[96], y[96];
    mr_shape_format(a->rank, like, x, sizeof x);
    mr_shape_format(a->rank, r->shape, y, sizeof y);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "the elements of a ragged batch may differ only in axis 0, but component %zu "
                   "has shapes %s and %s; pad them (padded_batch)",
                   column, x, y);
}

/* *values = of all rows; inner = values of one entry of axis 0, whose shape is *like. */
static mr_code measure(const mr_array *a, size_t column, const int64_t **like, size_t *values,
                       size_t *inner, mr_status *st)
{
    size_t entries = 0;
    *like = mr_array_row_shape(a, 0);
    for (size_t r = 0; r < a->rows && (*like)[0] == 0; r++)
        *like = mr_array_row_shape(a, r);
    for (size_t r = 0; r < a->rows; r++) {
        MR_TRY(check_row(a, r, *like, column, st));
        entries += (size_t)mr_array_row_shape(a, r)[0];
    }
    *inner = 1;
    for (int d = 1; d < a->rank; d++)
        *inner *= (size_t)(*like)[d];
    *values = entries * *inner;
    return MR_OK;
}

static mr_code hold(mr_buffer *owner, mr_buffer *held, mr_status *st)
{
    mr_code rc = mr_buffer_hold(owner, held, st);
    mr_buffer_unref(held);
    return rc;
}

static mr_code join_rows(const mr_array *a, size_t column, mr_array *out, mr_status *st)
{
    const int64_t *like;
    size_t values, inner, size = mr_dtype_size(a->dtype);
    mr_buffer *data, *ends;
    MR_TRY(measure(a, column, &like, &values, &inner, st));
    MR_TRY(mr_array_alloc_ragged(out, a->dtype, a->rank + 1, 1, st));
    MR_TRY(mr_buffer_alloc(&data, values * size, st));
    char *to = mr_buffer_data(data);
    MR_TRY(hold(out->owner, data, st));
    MR_TRY(mr_buffer_alloc(&ends, (a->rows + 1) * sizeof(int64_t), st));
    int64_t *splits = mr_buffer_data(ends);
    MR_TRY(hold(out->owner, ends, st));
    if (a->dtype == MR_STRING)
        MR_TRY(mr_buffer_hold_all(out->owner, a->owner, st));
    int64_t *shape = mr_array_shape_slot(out, 0);
    shape[0] = (int64_t)a->rows;
    shape[1] = -1;
    for (int d = 1; d < a->rank; d++)
        shape[d + 1] = like[d];
    *(mr_row *)out->data = (mr_row){.data = to, .shape = shape, .splits = splits};
    splits[0] = 0;
    for (size_t r = 0; r < a->rows; r++) {
        const mr_row *row = (const mr_row *)a->data + r;
        size_t bytes = (size_t)row->shape[0] * inner * size;
        if (bytes)
            memcpy(to, row->data, bytes);
        to += bytes;
        splits[r + 1] = splits[r] + row->shape[0];
    }
    return MR_OK;
}

/* ---- batches ---- */

static mr_code join_column(const mr_leaf *leaf, const mr_array *a, size_t column, mr_array *out,
                           mr_status *st)
{
    mr_array rows;
    mr_code rc = MR_OK;
    if (is_open(leaf)) {
        MR_TRY(mr_array_to_ragged(&rows, a, st));
        rc = join_rows(&rows, column, out, st);
    } else {
        MR_TRY(mr_array_to_dense(&rows, a, NULL, st));
        mr_array_group(out, &rows, a->rows);
    }
    mr_array_reset(&rows);
    return rc;
}

static mr_code finish(const mr_iter *it, mr__collected *s, mr_block *out, mr_status *st)
{
    mr__batch_builder *b = &s->stack;
    const mr_spec *in = mr_iter_input_spec(it, 0);
    if (!b->ragged)
        return mr__batch_builder_finish(b, out, st);
    mr_code rc = MR_OK;
    if (b->misfit)
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "all elements of a ragged batch must have the same number of axes; %s",
                     b->error.message);
    if (rc == MR_OK)
        rc = mr_block_prepare(out, b->rows.n_columns, st);
    for (size_t c = 0; c < b->rows.n_columns && rc == MR_OK; c++)
        rc = join_column(mr_spec_leaf(in, c), &b->rows.columns[c], c, &out->columns[c], st);
    if (rc == MR_OK)
        rc = mr_identities_group(&out->ids, &b->rows.ids, b->rows.rows, b->rows.rows, st);
    out->rows = 1;
    mr__batch_builder_drop(b);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    mr__collected *s = it->state;
    MR_TRY(mr__collect_batch(it, want, (size_t)p->batch_size, p->o.drop_remainder, st));
    return finish(it, s, out, st);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    size_t n = mr_spec_n_leaves(in);
    bool known = p->o.drop_remainder &&
                 !mr_param_unknown(self, offsetof(struct params, batch_size)) &&
                 !mr_param_unknown(self, offsetof(struct params, o.drop_remainder));
    for (size_t i = 0; i < n; i++) {
        const mr_leaf *leaf = mr_spec_leaf(in, i);
        if (leaf->ragged || leaf->rank < 0)
            return mr_fail(st, MR_INVALID_ARGUMENT, "ragged_batch: component %zu %s", i,
                           leaf->ragged ? "is ragged already, and can be ragged in one axis only"
                                        : "has an unknown number of axes");
    }
    mr_spec *batched = NULL;
    MR_TRY(mr__batched_spec(in, known ? p->batch_size : -1, &batched, st));
    mr_leaf *leaves = mr_calloc(n ? n : 1, sizeof *leaves);
    mr_code rc = leaves ? MR_OK : mr_fail_memory(st, n * sizeof *leaves, "a spec");
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        leaves[i] = *mr_spec_leaf(batched, i);
        leaves[i].ragged = is_open(mr_spec_leaf(in, i));
        if (leaves[i].ragged)
            leaves[i].shape[1] = -1;
    }
    if (rc == MR_OK)
        rc = mr__inferred(mr_spec_with_leaves(batched, leaves), out, st);
    mr_free(leaves);
    mr_spec_unref(batched);
    return rc;
}

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    (void)self;
    const struct params *p = params;
    return mr__count_batches(in[0], p->batch_size, p->o.drop_remainder);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, batch_size, MR_P_POSITIONAL | MR_P_DIMENSION | MR_P_HOLDS,
                  .min.i = 1, .max.i = INT64_MAX, .doc = "Elements in a batch, at least 1."),
    MR_OPT(struct params, drop_remainder, .flags = MR_P_OPTIONAL,
           .doc = "Drops a last batch of fewer than batch_size elements."),
    {0}};

const mr_op mr_op_ragged_batch = {
    .abi = MR_ABI_VERSION,
    .name = "ragged_batch",
    .doc = "Groups consecutive elements, whose lengths may differ, along a new axis 0.",
    .example = "range(4).map(x => ones([x])).ragged_batch(2)",
    .memory_doc = "a batch",
    .count_doc = "n / batch_size, rounded up; down with drop_remainder",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__collected),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_SHARDS | MR_OP_BATCHES,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = mr__collected_close,
    .save = mr__collected_save,
    .restore = mr__collected_restore,
};

mr_dataset *mr_ragged_batch(mr_dataset *input, int64_t batch_size, const mr_ragged_batch_opts *opts)
{
    struct params p = {.batch_size = batch_size};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_ragged_batch, &p, &input, 1);
}
