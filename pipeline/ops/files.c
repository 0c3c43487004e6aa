/* SPDX-License-Identifier: Apache-2.0 */
/* files: whole files, with their paths. */
#include "pipeline/formats/file_contents.h"
#include "pipeline/ops/sources.h"
#include "pipeline/params/infer.h"
#include "pipeline/streams/sources/file_source.h"

struct params {
    mr_strs files;
    mr_files_opts o;
};

static const mr__file_kind kind = {.format = &mr__format_contents,
                                   .compression_at = offsetof(struct params, o.compression)};

/* The source emits one file per block: its path becomes the second column. */
static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr__file_source *s = it->state;
    MR_TRY(mr__file_source_next(it, want, out, st));
    mr_array columns[2];
    mr_identities ids = out->ids;
    out->ids = (mr_identities){0};
    mr_array_move(&columns[0], &out->columns[0]);
    mr_code rc = mr__file_path_column(s->list ? s->list->paths[s->file] : s->names->v[s->file].data,
                                      &columns[1], st);
    if (rc == MR_OK)
        rc = mr_block_prepare(out, 2, st);
    if (rc != MR_OK) {
        mr_array_reset(&columns[0]);
        mr_array_reset(&columns[1]);
        mr_identities_reset(&ids);
        return rc;
    }
    out->rows = 1;
    out->ids = ids;
    for (int i = 0; i < 2; i++)
        mr_array_move(&out->columns[i], &columns[i]);
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    static const char *const names[] = {"contents", "path"};
    mr_spec *parts[] = {mr_spec_scalar(MR_STRING), mr_spec_scalar(MR_STRING)};
    (void)self;
    (void)params;
    return mr__inferred(mr_spec_record(names, parts, 2), out, st);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, files, MR_P_POSITIONAL | MR_P_VARIADIC | MR_P_PATTERN,
                  .doc = "Paths, or patterns; several are read in the order given."),
    MR_OPT(struct params, compression, .names = mr__compression_names,
           .doc = "Compression of the files as a whole; empty: none."),
    {0}};

const mr_op mr_op_files = {
    .abi = MR_ABI_VERSION,
    .name = "files",
    .doc = "Whole files: {\"contents\": bytes, \"path\": bytes}.",
    .example = "files(\"notes-*.txt\").map(f => f[\"contents\"])",
    .order_doc = "by file",
    .memory_doc = "a file",
    .state_doc = "which file",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__file_source),
    .role = MR_ROLE_FILES,
    .kind = &kind,
    .check = mr__file_source_check,
    .infer = infer,
    .open = mr__file_source_open,
    .next = next,
    .close = mr__file_source_close,
    .save = mr__file_source_save,
    .restore = mr__file_source_restore,
    .save_shared = mr__file_list_save_shared,
    .restore_shared = mr__file_list_restore_shared,
};

mr_dataset *mr_files(const char *const *files, size_t n, const mr_files_opts *opts)
{
    struct params p = {0};
    if (opts)
        p.o = *opts;
    return mr__file_names_dataset(&mr_op_files, &p, files, n, p.o.paths);
}
