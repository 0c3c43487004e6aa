/* SPDX-License-Identifier: Apache-2.0 */
/* npy: the entries of numpy's arrays along axis 0. npz: those of the arrays of NPZ files, side by
 * side, as records. */
#include "pipeline/formats/npy.h"
#include "pipeline/ops/sources.h"
#include "pipeline/params/spec_text.h"
#include "pipeline/streams/sources/file_source.h"
#include "pipeline/streams/sources/table_source.h"

struct state {
    mr__file_source source;
    mr__npy_opts opts;
};

static const mr__file_kind npy_kind = {.format = &mr__format_npy,
                                       .compression_at = offsetof(mr__table_params, compression),
                                       .skips = true};
static const mr__file_kind npz_kind = {.format = &mr__format_npz,
                                       .compression_at = offsetof(mr__table_params, compression),
                                       .skips = true};

static mr_code open(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    const mr__table_params *p = it->params;
    s->opts = (mr__npy_opts){.spec = it->spec, .arrays = &p->columns};
    s->source.own = &s->opts;
    return mr__file_source_open(it, st);
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
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

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const mr__table_params *p = params;
    const mr_op *op = mr_dataset_op(self);
    if (p->schema && *p->schema)
        return mr__type_of_text(op->name, p->schema, out, st);
    return mr__table_infer(self, p, op->kind == &npy_kind ? look_npy : look_npz, out, st);
}

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    const mr__table_params *p = params;
    const mr__file_kind *kind = mr_dataset_op(self)->kind;
    mr__file_list *l = NULL;
    int64_t total = 0, rows;
    (void)in;
    if (mr__file_list_look(&p->files, &l, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    for (size_t i = 0; i < l->n && total >= 0; i++)
        if (mr__npy_file_count(kind->format, l->paths[i], &p->columns, &rows, NULL) != MR_OK ||
            __builtin_add_overflow(total, rows, &total))
            total = MR_UNKNOWN_COUNT;
    mr__file_list_unref(l);
    return total;
}

#define FILES_PARAM                                                                                \
    MR_PARAM_WITH(mr__table_params, files, MR_P_POSITIONAL | MR_P_VARIADIC | MR_P_PATTERN,         \
                  .doc = "Paths, or patterns; several are read in the order given.")

static const mr_param npy_table[] = {
    FILES_PARAM,
    MR_PARAM_WITH(mr__table_params, schema, MR_P_EXPRESSION | MR_P_OF_SPEC,
                  .doc = "The type of the elements, float32[28, 28] or {\"name\": dtype[..], ...}, "
                         "instead of that of the first file."),
    {0}};

static const mr_param npz_table[] = {
    FILES_PARAM,
    {.name = "arrays",
     .doc = "The names of the arrays that are read; if absent all.",
     .type = MR_PT_STRS,
     .flags = MR_P_NONE | MR_P_OF_SPEC,
     .at = offsetof(mr__table_params, columns)},
    MR_PARAM_WITH(mr__table_params, schema, MR_P_EXPRESSION | MR_P_OF_SPEC,
                  .doc = "{\"name\": dtype[..], ...}: the arrays and the types of their entries, "
                         "instead of those of the first file."),
    {0}};

#define SLOTS                                                                                      \
    .order_doc = "by file, then along axis 0", .state_doc = "file and entry",                      \
    .count_doc = "the entries that the files say", .params_size = sizeof(mr__table_params),        \
    .iter_size = sizeof(struct state), .role = MR_ROLE_FILES, .props = MR_OP_LATE_COUNT,           \
    .check = mr__file_source_check, .infer = infer, .cardinality = cardinality, .open = open,      \
    .next = next, .close = mr__file_source_close, .save = mr__file_source_save,                    \
    .restore = mr__file_source_restore, .save_shared = mr__file_list_save_shared,                  \
    .restore_shared = mr__file_list_restore_shared, .skip = mr__file_source_skip

const mr_op mr_op_npy = {
    .abi = MR_ABI_VERSION,
    .name = "npy",
    .doc = "The entries of numpy's NPY files along axis 0; a structured type makes records.",
    .example = "npy(\"images-*.npy\", schema=uint8[28, 28])",
    .memory_doc =
        "the chunk at hand, and what is read of the file ahead; a file in Fortran's order "
        "as a whole",
    .params = npy_table,
    .kind = &npy_kind,
    SLOTS,
};

const mr_op mr_op_npz = {
    .abi = MR_ABI_VERSION,
    .name = "npz",
    .doc = "The entries of the arrays of numpy's NPZ files along axis 0, as records.",
    .example = "npz(\"train-*.npz\", schema={\"x\": float32[4], \"y\": int64})",
    .memory_doc = "the arrays of a file that are read",
    .params = npz_table,
    .kind = &npz_kind,
    SLOTS,
};

mr_dataset *mr_npy(const char *const *files, size_t n, const mr_npy_opts *opts)
{
    static const mr_npy_opts unset = {0};
    const mr_npy_opts *o = opts ? opts : &unset;
    mr__table_params p = {.schema = o->schema};
    return mr__file_names_dataset(&mr_op_npy, &p, files, n, o->paths);
}

mr_dataset *mr_npz(const char *const *files, size_t n, const mr_npz_opts *opts)
{
    static const mr_npz_opts unset = {0};
    const mr_npz_opts *o = opts ? opts : &unset;
    mr__table_params p = {.columns = o->arrays, .schema = o->schema};
    return mr__file_names_dataset(&mr_op_npz, &p, files, n, o->paths);
}
