/* SPDX-License-Identifier: Apache-2.0 */
/* fixed_length_record: files of records of one length, between a header and a footer. */
#include "pipeline/formats/format.h"
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/file_source.h"
#include "pipeline/streams/sources/record_lookup.h"

struct params {
    mr_strs files;
    mr_fixed_length_opts own;
    char *compression;
};

struct state {
    mr__file_source source;
    mr__record_lookup lookup;
};

/* Opening checks the size. */
static mr_code count(const void *params, const char *path, int64_t *n, uint64_t *mark,
                     mr_status *st)
{
    const mr_fixed_length_opts *own = &((const struct params *)params)->own;
    const mr_file_opts o = {.own = own, .no_ahead = true, .mark = mark};
    mr_reader *r = NULL;
    MR_TRY(mr_reader_open(&r, &mr_format_fixed_length, path, &o, st));
    int64_t size = r->in.size;
    mr_reader_close(r);
    if (size < 0)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the number of records of a pipe is not known before its end");
    *n = (size - own->header_bytes - own->footer_bytes) / own->record_bytes;
    return MR_OK;
}

static const mr__file_kind kind = {.format = &mr_format_fixed_length,
                                   .compression_at = offsetof(struct params, compression),
                                   .own_at = offsetof(struct params, own),
                                   .skips = true,
                                   .count = count};

/* ---- by number ---- */

static void find(const mr_iter *it, uint64_t number, mr__record_place *out)
{
    const mr_fixed_length_opts *own = &((const struct params *)it->params)->own;
    out->file = mr__file_source_place(it->state, number, &out->record);
    out->offset = own->header_bytes + out->record * own->record_bytes;
    out->size = (size_t)own->record_bytes;
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (!s->lookup.files)
        s->lookup = (mr__record_lookup){.records = s->source.records, .find = find};
    return mr__record_lookup_at(it, &s->lookup, index, n, out, st);
}

static void close(mr_iter *it)
{
    mr__record_lookup_close(&((struct state *)it->state)->lookup);
    mr__file_source_close(it);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    mr__record_lookup_close(&((struct state *)it->state)->lookup); /* its paths may change */
    return mr__file_source_restore(it, r, st);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, files, MR_P_POSITIONAL | MR_P_PATTERN,
                  .doc = "Paths, or patterns; several are read in the order given."),
    {.name = "record_bytes",
     .doc = "Bytes of a record; at least 1.",
     .type = MR_PT_I64,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct params, own.record_bytes),
     .min.i = 1,
     .max.i = INT64_MAX},
    {.name = "header_bytes",
     .doc = "Bytes skipped at the beginning of each file.",
     .type = MR_PT_I64,
     .flags = MR_P_OPTIONAL,
     .at = offsetof(struct params, own.header_bytes),
     .min.i = 0,
     .max.i = INT64_MAX},
    {.name = "footer_bytes",
     .doc = "Bytes skipped at the end of each file.",
     .type = MR_PT_I64,
     .flags = MR_P_OPTIONAL,
     .at = offsetof(struct params, own.footer_bytes),
     .min.i = 0,
     .max.i = INT64_MAX},
    {.name = "compression",
     .doc = "Compression of the files as a whole; empty: none.",
     .type = MR_PT_STR,
     .at = offsetof(struct params, compression),
     .names = mr__compression_names},
    {0}};

const mr_op mr_op_fixed_length_record = {
    .abi = MR_ABI_VERSION,
    .name = "fixed_length_record",
    .doc = "The records of files in which all records have the same length.",
    .example = "fixed_length_record(\"labels.bin\", 1, header_bytes=8)",
    .order_doc = "by file, then by record",
    .memory_doc = "the current chunk, and the file's read-ahead",
    .state_doc = "file and offset",
    .count_doc = "by the sizes of the files; unknown if they are compressed",
    .params = table,
    .params_size = sizeof(struct params),
    .kind = &kind,
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_FILES,
    .props = MR_OP_LATE_COUNT,
    .check = mr__file_source_check,
    .infer = mr__file_infer,
    .cardinality = mr__file_source_counted,
    .open = mr__file_source_open,
    .next = mr__file_source_next,
    .skip = mr__file_source_skip,
    .close = close,
    .save = mr__file_source_save,
    .restore = restore,
    .save_shared = mr__file_list_save_shared,
    .restore_shared = mr__file_list_restore_shared,
    .indexed = mr__file_source_is_indexed,
    .count = mr__file_source_count,
    .at = at,
};

mr_dataset *mr_fixed_length_record(const char *const *files, size_t n, int64_t record_bytes,
                                   const mr_fixed_length_record_opts *opts)
{
    static const mr_fixed_length_record_opts none;
    opts = opts ? opts : &none;
    struct params p = {.own = {record_bytes, opts->header_bytes, opts->footer_bytes},
                       .compression = opts->compression};
    return mr__file_names_dataset(&mr_op_fixed_length_record, &p, files, n, opts->paths);
}
