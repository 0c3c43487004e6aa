/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters: `count` rows; `columns`, the element's tree with, for each component, a tensor whose
 * axis 0 enumerates the rows, or a list of one value per row.
 *
 * `identities`, if known, is a tensor with five numbers per identity: the row, and the source,
 * file, ordinal and epoch of a record that it was made from; in the order of rows.
 *
 * A column without rows needs a type too: a tensor of 0 rows has one; for datasets the list
 * contains one that is not counted. */
#include "pipeline/ops/rows.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/graph/node.h"
#include "pipeline/columns/constant.h"

struct params {
    int64_t count;
    mr_value columns;
    mr_value identities;
};

enum { ID_NUMBERS = 5 };

struct state {
    mr_block all;
    size_t at; /* rows delivered */
};

extern const mr_op mr_op_rows;

/* ---- identities ---- */

/* Puts the records' identities, if known, into s->all. */
static mr_code take_identities(const struct params *p, struct state *s, mr_status *st)
{
    const mr_array *a = &p->identities.tensor;
    if (p->identities.kind != MR_V_TENSOR)
        return MR_OK;
    if (a->dtype != MR_INT64 || a->rank != 2 || a->shape[1] != ID_NUMBERS)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "rows: identities must be integers, %d for each, and not of another type or shape",
            ID_NUMBERS);
    size_t n = (size_t)a->shape[0], rows = s->all.rows, row = 0,
           offsets_bytes = (rows + 1) * sizeof(uint64_t);
    mr_buffer *owner;
    MR_TRY(mr_buffer_alloc(&owner, offsets_bytes + n * sizeof(mr_identity), st));
    uint64_t *offsets = mr_buffer_data(owner);
    mr_identity *ids = (mr_identity *)(offsets + rows + 1);
    s->all.ids = (mr_identities){ids, offsets, owner};
    offsets[0] = 0;
    const int64_t *v = a->data;
    for (size_t i = 0; i < n; i++, v += ID_NUMBERS) {
        if (v[0] < 0 || (uint64_t)v[0] < row || (uint64_t)v[0] >= rows)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "rows: an identity refers to row %" PRId64
                           ", which is out of order or does not exist",
                           v[0]);
        while (row < (uint64_t)v[0])
            offsets[++row] = i;
        ids[i] = (mr_identity){(uint64_t)v[1], (uint64_t)v[2], (uint64_t)v[3], (uint64_t)v[4]};
    }
    while (row < rows)
        offsets[++row] = n;
    return MR_OK;
}

static mr_code keep_identities(const mr_block *b, mr_value *out, mr_status *st)
{
    const mr_identities *x = &b->ids;
    uint64_t first = x->offsets ? x->offsets[0] : 0,
             end = x->offsets ? x->offsets[b->rows] : b->rows;
    int64_t shape[2] = {(int64_t)(end - first), ID_NUMBERS};
    MR_TRY(mr_array_alloc(&out->tensor, MR_INT64, 2, shape, 1, st));
    out->kind = MR_V_TENSOR;
    int64_t *v = out->tensor.data;
    size_t row = 0;
    for (uint64_t i = first; i < end; i++, v += ID_NUMBERS) {
        while (x->offsets && x->offsets[row + 1] <= i)
            row++;
        const mr_identity *id = &x->ids[i];
        v[0] = (int64_t)(x->offsets ? row : i);
        v[1] = (int64_t)id->source;
        v[2] = (int64_t)id->file;
        v[3] = (int64_t)id->ordinal;
        v[4] = (int64_t)id->epoch;
    }
    return MR_OK;
}

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
    if (rc == MR_OK && mr_iter_identities(it))
        rc = take_identities(p, s, st);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    size_t left = s->all.rows - s->at, n = left < want ? left : want;
    if (n == 0)
        return MR_END;
    MR_TRY(mr_block_slice(out, &s->all, s->at, n, st));
    if (!out->ids.ids)
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
        return mr_state_damaged(st, "an index is after the end");
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
    MR_PARAM(struct params, identities, .doc = "The origin of the rows, if known."),
    {0}};

const mr_op mr_op_rows = {
    .abi = MR_ABI_VERSION,
    .name = "rows",
    .doc = "Emits rows that another op held, such as those of a window.",
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
    if (rc == MR_OK && b && b->ids.ids)
        rc = keep_identities(b, &p.identities, &st);
    mr_dataset *ds = rc == MR_OK ? mr_dataset_new(&mr_op_rows, &p, NULL, 0) : mr_dataset_fail(&st);
    mr__dataset_widen(ds, spec);
    mr_value_reset(&p.columns);
    mr_value_reset(&p.identities);
    return ds;
}
