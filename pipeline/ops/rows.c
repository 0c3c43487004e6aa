/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters: `count` rows; `columns`, the element's tree with, for each component, a tensor whose
 * axis 0 are the rows, or a list of one value a row.
 *
 * A column of no rows needs a type all the same: a tensor of 0 rows has one, for datasets the list
 * holds one that is not counted. */
#include "pipeline/ops/rows.h"

#include <string.h>

#include "pipeline/ops/constant.h"
#include "pipeline/ops/pass.h"

struct params {
    int64_t count;
    mr_value columns;
};

struct state {
    mr_block all;
    size_t at; /* rows delivered */
};

extern const mr_op mr_op_rows;

/* ---- slots ---- */

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    mr_block all = MR_BLOCK_EMPTY;
    mr_code rc = mr__constant_block(&p->columns, MR_ROWS, it->spec, &all, st);
    if (rc == MR_OK && (uint64_t)p->count > all.rows)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "rows: there are fewer rows than counted");
    if (rc == MR_OK)
        rc = mr_block_slice(&s->all, &all, 0, (size_t)p->count, st);
    mr_block_reset(&all);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    size_t left = s->all.rows - s->at, n = left < want ? left : want;
    if (n == 0)
        return MR_END;
    MR_TRY(mr_block_slice(out, &s->all, s->at, n, st));
    MR_TRY(mr_iter_set_identities(it, out, 0, s->at, st));
    s->at += n;
    return MR_OK;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr_block_reset(&s->all);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    return mr_state_put_u64(w, s->at, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t at;
    MR_TRY(mr_state_get_u64(r, &at, st));
    if (at > s->all.rows)
        return mr__damaged(st, "an index lies behind the end");
    s->at = (size_t)at;
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    const struct params *q = p;
    int64_t count = -1;
    return mr__constant_spec(&q->columns, MR_ROWS, out, &count, st);
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)in;
    const struct params *q = p;
    return q->count;
}

static const mr_param table[] = {
    MR_ARG(struct params, count, .min.i = 0, .max.i = INT64_MAX, .doc = "Rows."),
    MR_ARG(struct params, columns, .doc = "The rows' components, as in from_tensor_slices."),
    {0}};

const mr_op mr_op_rows = {
    .abi = MR_ABI_VERSION,
    .name = "rows",
    .doc = "Gives rows that another op held, such as those of a window.",
    .example = "rows(2, [1, 2])",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_SOURCE,
    .props = MR_OP_INTERNAL,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

/* ---- making one ---- */

static mr_code value_of_spec(const mr_spec *spec, const mr_block *b, size_t *column, mr_value *out,
                             mr_status *st);

static mr_code no_rows(const mr_leaf *leaf, mr_value *out, mr_status *st)
{
    if (leaf->dtype == MR_DATASET) {
        mr_value *item = mr_calloc(1, sizeof *item);
        if (!item)
            return mr_fail_memory(st, sizeof *item, "rows of a window");
        *item = (mr_value){.kind = MR_V_DATASET};
        item->dataset = mr__rows_dataset(NULL, leaf->element);
        *out = (mr_value){.kind = MR_V_LIST, .items = item, .n = 1};
        return MR_OK;
    }
    int64_t shape[MR_MAX_RANK] = {0};
    for (int d = 0; d < leaf->rank && d + 1 < MR_MAX_RANK; d++)
        shape[d + 1] = leaf->shape[d] < 0 ? 0 : leaf->shape[d];
    int rank = leaf->rank < 0 ? 1 : leaf->rank + 1;
    out->kind = MR_V_TENSOR;
    return mr_array_alloc(&out->tensor, leaf->dtype, rank > MR_MAX_RANK ? MR_MAX_RANK : rank, shape,
                          1, st);
}

static mr_code list_of_rows(const mr_array *a, mr_value *out, mr_status *st)
{
    out->items = mr_calloc(a->rows, sizeof *out->items);
    if (!out->items)
        return mr_fail_memory(st, a->rows * sizeof *out->items, "rows of a window");
    out->kind = MR_V_LIST;
    out->n = a->rows;
    for (size_t i = 0; i < a->rows; i++) {
        if (a->storage == MR_RAGGED) { /* as a tensor even if it is a scalar */
            out->items[i].kind = MR_V_TENSOR;
            mr_array_slice(&out->items[i].tensor, a, i, 1);
        } else
            MR_TRY(mr_value_from_array(&out->items[i], a, i, st));
    }
    return MR_OK;
}

static mr_code value_of_column(const mr_leaf *leaf, const mr_array *a, mr_value *out, mr_status *st)
{
    if (!a || a->rows == 0)
        return no_rows(leaf, out, st);
    if (a->storage == MR_RAGGED || a->storage == MR_DATASETS || a->rank == MR_MAX_RANK)
        return list_of_rows(a, out, st);
    out->kind = MR_V_TENSOR;
    mr_array_group(&out->tensor, a, a->rows);
    return MR_OK;
}

static mr_code value_of_spec(const mr_spec *spec, const mr_block *b, size_t *column, mr_value *out,
                             mr_status *st)
{
    if (mr_spec_kind_of(spec) == MR_SPEC_LEAF) {
        const mr_array *a = b && b->rows ? &b->columns[*column] : NULL;
        ++*column;
        return value_of_column(mr_spec_leaf(spec, 0), a, out, st);
    }
    size_t n = mr_spec_n_children(spec);
    bool record = mr_spec_kind_of(spec) == MR_SPEC_RECORD;
    out->items = mr_calloc(n ? n : 1, sizeof *out->items);
    out->names = record ? mr_calloc(n ? n : 1, sizeof *out->names) : NULL;
    if (!out->items || (record && !out->names))
        return mr_fail_memory(st, n * sizeof *out->items, "rows of a window");
    out->kind = record ? MR_V_RECORD : MR_V_TUPLE;
    out->n = n;
    for (size_t i = 0; i < n; i++) {
        MR_TRY(value_of_spec(mr_spec_child(spec, i), b, column, &out->items[i], st));
        if (record && !(out->names[i] = mr_strdup(mr_spec_child_name(spec, i))))
            return mr_fail_memory(st, 16, "a name");
    }
    return MR_OK;
}

mr_dataset *mr__rows_dataset(const mr_block *b, const mr_spec *spec)
{
    mr_status st;
    mr_status_init(&st);
    size_t column = 0;
    struct params p = {.count = b ? (int64_t)b->rows : 0};
    mr_code rc = value_of_spec(spec, b, &column, &p.columns, &st);
    mr_dataset *ds = rc == MR_OK ? mr_dataset_new(&mr_op_rows, &p, NULL, 0) : mr_dataset_fail(&st);
    mr_value_reset(&p.columns);
    return ds;
}
