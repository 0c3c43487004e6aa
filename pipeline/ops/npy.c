/* SPDX-License-Identifier: Apache-2.0 */
/* npy: the entries of numpy's arrays along axis 0. */
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/npy_source.h"

static mr_code count(const void *params, const char *path, int64_t *n, uint64_t *mark,
                     mr_status *st)
{
    (void)params;
    return mr__npy_file_count(&mr__format_npy, path, NULL, n, mark, st);
}

static const mr__file_kind kind = {.format = &mr__format_npy,
                                   .compression_at = offsetof(mr__npy_params, compression),
                                   .skips = true,
                                   .count = count};

static const mr_param table[] = {
    MR__NPY_FILES_PARAM(mr__npy_params),
    MR_PARAM_WITH(mr__npy_params, schema, MR_P_EXPRESSION | MR_P_OF_SPEC,
                  .doc = "The type of the elements, float32[28, 28] or {\"name\": dtype[..], ...}, "
                         "instead of that of the first file."),
    {0}};

const mr_op mr_op_npy = {
    .abi = MR_ABI_VERSION,
    .name = "npy",
    .doc = "The entries of numpy's NPY files along axis 0; a structured type makes records.",
    .example = "npy(\"points-*.npy\", schema=int64[2])",
    .memory_doc = "the current chunk, and the file's read-ahead; a file in Fortran's order "
                  "as a whole",
    .params = table,
    .params_size = sizeof(mr__npy_params),
    .kind = &kind,
    .count = mr__file_source_count,
    .at = mr__file_source_at,
    MR__NPY_SLOTS,
};

mr_dataset *mr_npy(const char *const *files, size_t n, const mr_npy_opts *opts)
{
    static const mr_npy_opts unset = {0};
    const mr_npy_opts *o = opts ? opts : &unset;
    mr__npy_params p = {.schema = o->schema};
    return mr__file_names_dataset(&mr_op_npy, &p, files, n, o->paths);
}
