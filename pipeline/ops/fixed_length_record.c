/* SPDX-License-Identifier: Apache-2.0 */
/* fixed_length_record: files of records of one length, between a header and a footer. */
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/file_source.h"

struct params {
    mr_strs files;
    mr_fixed_length_opts own;
    char *compression;
};

static const mr__file_kind kind = {.format = &mr_format_fixed_length,
                                   .compression_at = offsetof(struct params, compression),
                                   .own_at = offsetof(struct params, own)};

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
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .kind = &kind,
    MR__FILE_SOURCE_SLOTS,
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
