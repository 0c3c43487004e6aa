/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters: `count` rows; `columns`, the element's tree with, for each component, a tensor whose
 * axis 0 are the rows, or a list of one value a row; `errors`, a list of tuples (place among rows
 * and errors, code, errno, message, op, file, offset, record).
 *
 * A column of no rows needs a type all the same: a tensor of 0 rows has one, for datasets the list
 * holds one that is not counted. */
#include "pipeline/ops/rows.h"

#include <string.h>

#include "pipeline/ops/constant.h"
#include "pipeline/ops/pass.h"

struct params {
    int64_t count;
    mr_value columns, errors;
};

struct state {
    mr_block all;
    size_t at, error_at; /* rows and errors delivered */
    mr_row_errors errors;
};

extern const mr_op mr_op_rows;

/* ---- errors as values ---- */

enum { E_PLACE, E_CODE, E_ERRNO, E_MESSAGE, E_OP, E_FILE, E_OFFSET, E_RECORD, E_FIELDS };

static mr_code text_value(mr_value *v, const char *s, mr_status *st)
{
    v->s = mr_strdup(s);
    if (!v->s)
        return mr_fail_memory(st, strlen(s) + 1, "an error's text");
    v->kind = MR_V_STRING;
    v->size = strlen(s);
    return MR_OK;
}

static mr_code error_value(const mr_row_error *e, mr_value *out, mr_status *st)
{
    mr_value *f = mr_calloc(E_FIELDS, sizeof *f);
    if (!f)
        return mr_fail_memory(st, E_FIELDS * sizeof *f, "an error");
    *out = (mr_value){.kind = MR_V_TUPLE, .n = E_FIELDS, .items = f};
    f[E_PLACE] = (mr_value){.kind = MR_V_INT, .i = (int64_t)e->row};
    f[E_CODE] = (mr_value){.kind = MR_V_INT, .i = e->status.code};
    f[E_ERRNO] = (mr_value){.kind = MR_V_INT, .i = e->status.sys_errno};
    f[E_OFFSET] = (mr_value){.kind = MR_V_INT, .i = e->status.offset};
    f[E_RECORD] = (mr_value){.kind = MR_V_INT, .i = e->status.record};
    MR_TRY(text_value(&f[E_MESSAGE], e->status.message, st));
    MR_TRY(text_value(&f[E_OP], e->status.op, st));
    return text_value(&f[E_FILE], e->status.file, st);
}

static bool get_text(const mr_value *v, char *buf, size_t size)
{
    if (v->kind != MR_V_STRING || v->size >= size)
        return false;
    if (v->size)
        memcpy(buf, v->s, v->size);
    buf[v->size] = '\0';
    return true;
}

static mr_code error_of_value(const mr_value *v, mr_row_errors *errors, mr_status *st)
{
    mr_status e;
    mr_status_init(&e);
    const mr_value *f = v->items;
    bool good = v->kind == MR_V_TUPLE && v->n == E_FIELDS;
    for (size_t i = 0; good && i < E_FIELDS; i++)
        good = i == E_MESSAGE || i == E_OP || i == E_FILE || f[i].kind == MR_V_INT;
    good = good && f[E_CODE].i < 0 && f[E_CODE].i >= MR_DATA_LOSS && f[E_PLACE].i >= 0 &&
           get_text(&f[E_MESSAGE], e.message, sizeof e.message) &&
           get_text(&f[E_OP], e.op, sizeof e.op) && get_text(&f[E_FILE], e.file, sizeof e.file);
    if (!good)
        return mr_fail(st, MR_INVALID_ARGUMENT, "rows: an error is not what this op writes");
    e.code = (mr_code)f[E_CODE].i;
    e.sys_errno = (int)f[E_ERRNO].i;
    e.offset = f[E_OFFSET].i;
    e.record = f[E_RECORD].i;
    return mr_row_errors_add(errors, (size_t)f[E_PLACE].i, &e, st);
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
    for (size_t i = 0; i < p->errors.n && rc == MR_OK; i++)
        rc = error_of_value(&p->errors.items[i], &s->errors, st);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    size_t limit = s->all.rows;
    if (s->error_at < s->errors.n) {
        const mr_row_error *e = &s->errors.v[s->error_at];
        if (e->row - s->error_at < limit)
            limit = e->row - s->error_at;
        if (s->at >= limit) {
            s->error_at++;
            if (st)
                *st = e->status;
            return e->status.code;
        }
    }
    if (s->at == limit)
        return MR_END;
    size_t n = limit - s->at < want ? limit - s->at : want;
    MR_TRY(mr_block_slice(out, &s->all, s->at, n, st));
    MR_TRY(mr_iter_set_identities(it, out, 0, s->at, st));
    s->at += n;
    return MR_OK;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr_block_reset(&s->all);
    mr_row_errors_reset(&s->errors);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->at, st));
    return mr_state_put_u64(w, s->error_at, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t at, error_at;
    MR_TRY(mr_state_get_u64(r, &at, st));
    MR_TRY(mr_state_get_u64(r, &error_at, st));
    if (at > s->all.rows || error_at > s->errors.n)
        return mr__damaged(st, "an index lies behind the end");
    s->at = (size_t)at;
    s->error_at = (size_t)error_at;
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
    return q->errors.n ? MR_UNKNOWN_COUNT : q->count;
}

static const mr_param table[] = {
    MR_ARG(struct params, count, .min.i = 0, .max.i = INT64_MAX, .doc = "Rows."),
    MR_ARG(struct params, columns, .doc = "The rows' components, as in from_tensor_slices."),
    {.name = "errors",
     .doc = "Errors that stand among the rows.",
     .type = MR_PT_VALUE,
     .flags = MR_P_OPTIONAL,
     .at = offsetof(struct params, errors)},
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
        item->dataset = mr__rows_dataset(NULL, leaf->element, NULL);
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

mr_dataset *mr__rows_dataset(const mr_block *b, const mr_spec *spec, const mr_row_errors *errors)
{
    mr_status st;
    mr_status_init(&st);
    size_t column = 0, n = errors ? errors->n : 0;
    struct params p = {.count = b ? (int64_t)b->rows : 0};
    mr_code rc = value_of_spec(spec, b, &column, &p.columns, &st);
    if (rc == MR_OK && n) {
        p.errors.items = mr_calloc(n, sizeof *p.errors.items);
        p.errors.kind = MR_V_LIST;
        p.errors.n = p.errors.items ? n : 0;
        if (!p.errors.items)
            rc = mr_fail_memory(&st, n * sizeof *p.errors.items, "errors of a window");
    }
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = error_value(&errors->v[i], &p.errors.items[i], &st);
    mr_dataset *ds = rc == MR_OK ? mr_dataset_new(&mr_op_rows, &p, NULL, 0) : mr_dataset_fail(&st);
    mr_value_reset(&p.columns);
    mr_value_reset(&p.errors);
    return ds;
}
