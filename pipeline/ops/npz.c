/* SPDX-License-Identifier: Apache-2.0 */
/* npz: the entries of the arrays of NPZ files along axis 0, side by side, as records. */
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/npy_source.h"

static const mr__file_kind kind = {.format = &mr__format_npz,
                                   .compression_at = offsetof(mr__table_params, compression),
                                   .skips = true};

static const mr_param table[] = {
    MR__NPY_FILES_PARAM(mr__table_params),
    {.name = "arrays",
     .doc = "The names of the arrays that are read; if absent all.",
     .type = MR_PT_STRS,
     .flags = MR_P_NONE | MR_P_OF_SPEC,
     .at = offsetof(mr__table_params, columns)},
    MR_PARAM_WITH(mr__table_params, schema, MR_P_EXPRESSION | MR_P_OF_SPEC,
                  .doc = "{\"name\": dtype[..], ...}: the arrays and the types of their entries, "
                         "instead of those of the first file."),
    {0}};

const mr_op mr_op_npz = {
    .abi = MR_ABI_VERSION,
    .name = "npz",
    .doc = "The entries of the arrays of numpy's NPZ files along axis 0, as records.",
    .example = "npz(\"arrays-*.npz\", schema={\"x\": int64[2], \"y\": int64[2]})",
    .memory_doc = "the arrays of a file that are read",
    .params = table,
    .params_size = sizeof(mr__table_params),
    .kind = &kind,
    MR__NPY_SLOTS,
};

mr_dataset *mr_npz(const char *const *files, size_t n, const mr_npz_opts *opts)
{
    static const mr_npz_opts unset = {0};
    const mr_npz_opts *o = opts ? opts : &unset;
    mr__table_params p = {.columns = o->arrays, .schema = o->schema};
    return mr__file_names_dataset(&mr_op_npz, &p, files, n, o->paths);
}
