/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/sources/npy_source.h"

#include "pipeline/params/spec_text.h"

/* The params of either op, borrowed. */
static mr__table_params params_of(const mr_op *op, const void *params)
{
    const mr__npy_params *p = params;
    return op->params_size == sizeof(mr__table_params)
               ? *(const mr__table_params *)params
               : (mr__table_params){.files = p->files, .schema = p->schema};
}

mr_code mr__npy_open(mr_iter *it, mr_status *st)
{
    mr__npy_state *s = it->state;
    s->arrays = params_of(it->op, it->params).columns;
    s->opts = (mr__npy_opts){.spec = it->spec, .arrays = &s->arrays};
    s->source.own = &s->opts;
    return mr__file_source_open(it, st);
}

mr_code mr__npy_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr__npy_state *s = it->state;
    mr_array records = {0};
    mr_file_position at;
    size_t file;
    MR_TRY(mr__file_source_lines(it, want, &records, &file, &at, st));
    mr_code rc = mr_block_prepare(out, mr_spec_n_leaves(it->spec), st);
    if (rc == MR_OK)
        rc = mr__npy_columns(s->source.reader, &records, out->columns, st);
    out->rows = records.rows;
    if (rc == MR_OK)
        rc = mr__file_source_identify(it, out, file, (uint64_t)at.record, st);
    mr_array_reset(&records);
    if (rc != MR_OK) { /* what was read is lost */
        mr_block_clear(out);
        mr__file_source_leave(it);
    }
    return rc;
}

/* ---- known when the graph is built ---- */

static mr_code look_npy(const char *path, const mr_strs *arrays, mr_spec **out, mr_status *st)
{
    return mr__npy_file_spec(&mr__format_npy, path, arrays, out, st);
}

static mr_code look_npz(const char *path, const mr_strs *arrays, mr_spec **out, mr_status *st)
{
    return mr__npy_file_spec(&mr__format_npz, path, arrays, out, st);
}

mr_code mr__npy_infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const mr_op *op = mr_dataset_op(self);
    const mr__table_params p = params_of(op, params);
    if (p.schema && *p.schema)
        return mr__type_of_text(op->name, p.schema, out, st);
    const mr__file_kind *kind = op->kind;
    return mr__table_infer(self, &p, kind->format == &mr__format_npy ? look_npy : look_npz, out,
                           st);
}

int64_t mr__npy_cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    const mr__table_params p = params_of(mr_dataset_op(self), params);
    const mr__file_kind *kind = mr_dataset_op(self)->kind;
    mr__file_list *l = NULL;
    int64_t total = 0, rows;
    (void)in;
    if (mr__file_list_look(&p.files, &l, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    for (size_t i = 0; i < l->n && total >= 0; i++)
        if (mr__npy_file_count(kind->format, l->paths[i], &p.columns, &rows, NULL, NULL) != MR_OK ||
            __builtin_add_overflow(total, rows, &total))
            total = MR_UNKNOWN_COUNT;
    mr__file_list_unref(l);
    return total;
}
