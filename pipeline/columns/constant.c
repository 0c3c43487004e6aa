/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/columns/constant.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/params/infer.h"
#include "pipeline/columns/batch_builder.h"
#include "pipeline/engine/op_source.h"

/* ---- specs ---- */

static mr_code note_count(int64_t *count, int64_t n, mr_status *st)
{
    if (*count >= 0 && n >= 0 && *count != n)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "all components must have the same number of slices, found %" PRId64
                       " and %" PRId64,
                       *count, n);
    if (n >= 0)
        *count = n;
    return MR_OK;
}

static mr_code spec_of_tensor(const mr_value *v, mr__cut cut, mr_spec **out, int64_t *count,
                              mr_status *st)
{
    mr_array a;
    MR_TRY(mr_value_to_array(v, &a, st));
    mr_leaf leaf = {.dtype = a.dtype, .rank = a.rank};
    const int64_t *shape = mr_array_row_shape(&a, 0);
    for (int d = 0; d < a.rank; d++)
        leaf.shape[d] = shape[d];
    leaf.ragged = a.storage == MR_RAGGED && ((const mr_row *)a.data)->splits;
    mr_array_reset(&a);
    if (cut != MR_WHOLE) {
        if (leaf.rank == 0)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "a scalar has no axis 0 to slice; make it a list");
        MR_TRY(note_count(count, leaf.shape[0], st));
        leaf.rank--;
        memmove(leaf.shape, leaf.shape + 1, (size_t)leaf.rank * sizeof *leaf.shape);
        leaf.ragged = false;
    }
    return mr__inferred(mr_spec_of_leaf(&leaf), out, st);
}

static mr_code spec_of_dataset(const mr_dataset *ds, mr_spec **out, mr_status *st)
{
    MR_TRY(mr_dataset_check(ds, st));
    return mr__inferred(mr_spec_dataset(mr_spec_ref(mr_dataset_spec(ds))), out, st);
}

/* Fails for a list that cannot form a tensor. */
static mr_code fail_list(const mr_value *v, mr_status *st)
{
    int axes = 0;
    for (; v->kind == MR_V_LIST && v->n; v = v->items)
        axes++;
    if (v->kind == MR_V_TENSOR)
        axes += v->tensor.rank;
    if (axes > MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "a tensor has at most %d axes, this list has %d",
                       MR_MAX_RANK, axes);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "a list must hold numbers, bools or strings, in one shape");
}

/* A list that does not form a tensor: its slices are datasets of the same types, or ragged tensors.
 */
static mr_code spec_of_list(const mr_value *v, mr__cut cut, mr_spec **out, int64_t *count,
                            mr_status *st)
{
    mr_spec *all = NULL;
    mr_code rc = note_count(count, (int64_t)v->n, st);
    if (rc == MR_OK && v->n == 0)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "an empty list has no type");
    for (size_t i = 0; i < v->n && rc == MR_OK; i++) {
        const mr_value *item = &v->items[i];
        mr_spec *one = NULL, *merged = NULL;
        int64_t none = -1;
        if (item->kind == MR_V_DATASET)
            rc = spec_of_dataset(item->dataset, &one, st);
        else
            rc = cut == MR_ROWS ? spec_of_tensor(item, MR_WHOLE, &one, &none, st)
                                : fail_list(item, st);
        if (rc == MR_OK && all && !mr_spec_same_types(all, one))
            rc = mr_fail(st, MR_INVALID_ARGUMENT, "the items of a list are of different types");
        if (rc == MR_OK)
            rc = mr__inferred(all ? mr_spec_merge(all, one) : mr_spec_ref(one), &merged, st);
        mr_spec_unref(one);
        if (rc == MR_OK) {
            mr_spec_unref(all);
            all = merged;
        }
    }
    if (rc == MR_OK)
        *out = all;
    else
        mr_spec_unref(all);
    return rc;
}

static mr_code check_names(const mr_value *v, mr_status *st)
{
    const char *twice;
    MR_TRY(mr__name_twice(v->names, v->n, &twice, st));
    if (!twice)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT, "two components are called \"%.60s\"", twice);
}

static mr_code spec_of_tree(const mr_value *v, mr__cut cut, mr_spec **out, int64_t *count,
                            mr_status *st)
{
    if (v->n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "at least one component must be given");
    if (v->kind == MR_V_RECORD)
        MR_TRY(check_names(v, st));
    mr_spec **children = mr_calloc(v->n, sizeof(mr_spec *));
    if (!children)
        return mr_fail_memory(st, v->n * sizeof(mr_spec *), "a spec");
    mr_code rc = MR_OK;
    size_t n = 0;
    for (; n < v->n && rc == MR_OK; n++)
        rc = mr__constant_spec(&v->items[n], cut, &children[n], count, st);
    if (rc == MR_OK) /* takes the children over */
        rc = mr__inferred(v->kind == MR_V_RECORD
                              ? mr_spec_record((const char *const *)v->names, children, n)
                              : mr_spec_tuple(children, n),
                          out, st);
    else
        for (size_t i = 0; i < n; i++)
            mr_spec_unref(children[i]);
    mr_free(children);
    return rc;
}

mr_code mr__constant_spec(const mr_value *v, mr__cut cut, mr_spec **out, int64_t *count,
                          mr_status *st)
{
    switch (v->kind) {
    case MR_V_TUPLE:
    case MR_V_RECORD:
        return spec_of_tree(v, cut, out, count, st);
    case MR_V_UNKNOWN: {
        if (cut == MR_WHOLE)
            return mr__inferred(mr_spec_ref(v->spec), out, st);
        int64_t n = -1;
        MR_TRY(mr__unbatched_spec(v->spec, &n, out, st));
        return note_count(count, n, st);
    }
    case MR_V_LIST:
        if (cut != MR_WHOLE)
            return spec_of_list(v, cut, out, count, st);
        return fail_list(v, st);
    case MR_V_DATASET:
        if (cut == MR_WHOLE)
            return spec_of_dataset(v->dataset, out, st);
        return mr_fail(st, MR_INVALID_ARGUMENT, "a dataset has no axis 0 to slice");
    default:
        return spec_of_tensor(v, cut, out, count, st);
    }
}

/* ---- columns ---- */

static mr_code column_of_datasets(const mr_value *items, size_t n, mr_array *out, mr_status *st)
{
    MR_TRY(mr_array_alloc_datasets(out, n, st));
    for (size_t i = 0; i < n; i++)
        ((mr_dataset **)out->data)[i] = mr_dataset_ref(items[i].dataset);
    return MR_OK;
}

static mr_code column_of_list(const mr_value *v, mr_array *out, mr_status *st)
{
    if (v->items[0].kind == MR_V_DATASET)
        return column_of_datasets(v->items, v->n, out, st);
    mr_array first;
    MR_TRY(mr_value_to_array(&v->items[0], &first, st));
    mr_array like = first;
    like.storage = MR_RAGGED;
    mr_code rc = mr_array_start(out, &like, v->n, st);
    mr_array_reset(&first);
    for (size_t i = 0; i < v->n && rc == MR_OK; i++) {
        mr_array a;
        rc = mr_value_to_array(&v->items[i], &a, st);
        if (rc == MR_OK && !mr_array_fits(out, &a))
            rc = mr_fail(st, MR_INVALID_ARGUMENT, "the items of a list have different shapes");
        if (rc == MR_OK)
            rc = mr_array_append(out, &a, 0, 1, st);
        mr_array_reset(&a);
    }
    return rc;
}

static mr_code column_of(const mr_value *v, mr__cut cut, mr_array *out, mr_status *st)
{
    if (v->kind == MR_V_LIST)
        return column_of_list(v, out, st);
    if (v->kind == MR_V_DATASET)
        return column_of_datasets(v, 1, out, st);
    if (cut == MR_WHOLE)
        return mr_value_to_array(v, out, st);
    mr_array a;
    MR_TRY(mr_value_to_array(v, &a, st));
    mr_code rc = mr_array_ungroup(out, &a, 0, st);
    mr_array_reset(&a);
    return rc;
}

static mr_code columns_of(const mr_value *v, mr__cut cut, const mr_spec *spec, mr_array *columns,
                          mr_status *st)
{
    if (v->kind == MR_V_TUPLE && v->n == 1) /* is the component itself */
        return columns_of(&v->items[0], cut, spec, columns, st);
    if (v->kind != MR_V_TUPLE && v->kind != MR_V_RECORD) {
        mr_code rc = column_of(v, cut, columns, st);
        columns->resident = true;
        return rc;
    }
    for (size_t i = 0; i < v->n; i++) {
        /* A record's components are sorted by their names. */
        size_t child = v->kind == MR_V_RECORD ? (size_t)mr_spec_find(spec, v->names[i]) : i;
        MR_TRY(columns_of(&v->items[i], cut, mr_spec_child(spec, child),
                          columns + mr_spec_first_leaf(spec, child), st));
    }
    return MR_OK;
}

mr_code mr__constant_block(const mr_value *v, mr__cut cut, const mr_spec *spec, mr_block *out,
                           mr_status *st)
{
    MR_TRY(mr_block_prepare(out, mr_spec_n_leaves(spec), st));
    MR_TRY(columns_of(v, cut, spec, out->columns, st));
    out->rows = out->columns[0].rows;
    for (size_t c = 1; c < out->n_columns; c++)
        if (out->columns[c].rows != out->rows)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "all components must have the same number of slices, found %zu and %zu",
                           out->rows, out->columns[c].rows);
    return MR_OK;
}

static mr_code value_of(const mr_array *components, const char *const *names, size_t n,
                        mr_value *out, mr_status *st)
{
    mr_value v = {.kind = names ? MR_V_RECORD : MR_V_TUPLE, .n = n};
    v.items = mr_calloc(n ? n : 1, sizeof *v.items);
    v.names = names ? mr_calloc(n ? n : 1, sizeof *v.names) : NULL;
    mr_code rc = v.items && (!names || v.names)
                     ? MR_OK
                     : mr_fail_memory(st, n * sizeof *v.items, "the components of a dataset");
    if (!v.items)
        v.n = 0;
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        if (components[i].rows == 0)
            rc = mr_fail(st, MR_INVALID_ARGUMENT, "component %zu has no rows", i);
        else
            rc = mr_value_from_array(&v.items[i], &components[i], 0, st);
        if (rc == MR_OK && names && !(v.names[i] = mr_strdup(names[i])))
            rc = mr_fail_memory(st, strlen(names[i]) + 1, "a name");
    }
    if (rc == MR_OK)
        *out = v;
    else
        mr_value_reset(&v);
    return rc;
}

mr_dataset *mr__constant_dataset(const mr_op *op, const mr_array *components,
                                 const char *const *names, size_t n)
{
    mr_status st;
    mr_status_init(&st);
    mr_value v = {0};
    mr_code rc = value_of(components, names, n, &v, &st);
    mr_dataset *ds = rc == MR_OK ? mr_dataset_new(op, &v, NULL, 0) : mr_dataset_fail(&st);
    mr_value_reset(&v);
    return ds;
}

/* ---- slots ---- */

mr_code mr__slices_open(mr_iter *it, mr_status *st)
{
    mr__constant *s = it->state;
    return mr__constant_block(it->params, MR_SLICES, it->spec, &s->all, st);
}

mr_code mr__slices_infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    (void)self;
    int64_t count = -1;
    return mr__constant_spec(params, MR_SLICES, out, &count, st);
}

int64_t mr__slices_cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    (void)self;
    (void)in;
    mr_spec *spec = NULL;
    int64_t count = -1;
    if (mr__constant_spec(params, MR_SLICES, &spec, &count, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    mr_spec_unref(spec);
    return count >= 0 ? count : MR_UNKNOWN_COUNT;
}

mr_code mr__constant_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr__constant *s = it->state;
    size_t left = s->all.rows - s->at;
    if (left == 0)
        return MR_END;
    size_t bytes = 0;
    for (size_t c = 0; c < s->all.n_columns; c++)
        if (s->all.columns[c].storage != MR_RAGGED)
            bytes += mr_array_row_bytes(&s->all.columns[c]);
    size_t n = mr_iter_block_rows(it, left < want ? left : want, bytes);
    MR_TRY(mr_block_slice(out, &s->all, s->at, n, st));
    MR_TRY(mr_iter_set_identities(it, out, 0, s->at, st));
    s->at += n;
    return MR_OK;
}

mr_code mr__constant_skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    mr__constant *s = it->state;
    (void)st;
    *skipped = n < s->all.rows - s->at ? n : s->all.rows - s->at;
    s->at += (size_t)*skipped;
    return MR_OK;
}

mr_code mr__constant_at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    const mr__constant *s = it->state;
    size_t run = 1;
    while (run < n && index[run] == index[0] + run)
        run++;
    if (run == n) {
        MR_TRY(mr_block_slice(out, &s->all, (size_t)index[0], n, st));
        return mr_iter_identify_rows(it, out, index, st);
    }
    uint32_t few[256];
    n = n < sizeof few / sizeof *few ? n : sizeof few / sizeof *few;
    size_t k = 0;
    for (; k < n && index[k] <= UINT32_MAX; k++)
        few[k] = (uint32_t)index[k];
    if (k == 0) {
        MR_TRY(mr_block_slice(out, &s->all, (size_t)index[0], 1, st));
        return mr_iter_identify_rows(it, out, index, st);
    }
    MR_TRY(mr_block_start(out, &s->all, k, st));
    MR_TRY(mr_block_append_rows(out, &s->all, few, k, st));
    return mr_iter_identify_rows(it, out, index, st);
}

void mr__constant_close(mr_iter *it)
{
    mr__constant *s = it->state;
    mr_block_reset(&s->all);
}

mr_code mr__constant_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const mr__constant *s = it->state;
    return mr_state_put_u64(w, s->at, st);
}

mr_code mr__constant_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    mr__constant *s = it->state;
    uint64_t at;
    MR_TRY(mr_state_get_u64(r, &at, st));
    if (at > s->all.rows)
        return mr_state_damaged(st, "an index is after the end");
    s->at = (size_t)at;
    return MR_OK;
}
