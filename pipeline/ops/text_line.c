/* SPDX-License-Identifier: Apache-2.0 */
/* text_line: the lines of text files. */
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/file_source.h"

struct params {
    mr_strs files;
    mr_text_line_opts o;
};

static const mr__file_kind kind = {.format = &mr_format_text_line,
                                   .compression_at = offsetof(struct params, o.compression),
                                   .detects = true};

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, files, MR_P_POSITIONAL | MR_P_PATTERN,
                  .doc = "Paths, or patterns; several are read in the order given."),
    MR_OPT(struct params, compression, .names = mr__compression_names,
           .doc = "Compression of the files as a whole; empty: detected by their first bytes."),
    {0}};

const mr_op mr_op_text_line = {
    .abi = MR_ABI_VERSION,
    .name = "text_line",
    .doc = "The lines of text files, without line ends.",
    .example = "text_line(\"notes-*.txt\")",
    .order_doc = "by file, then by line",
    .memory_doc = "the current chunk, and the file's read-ahead",
    .state_doc = "file and offset",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .kind = &kind,
    MR__FILE_SOURCE_SLOTS,
};

mr_dataset *mr_text_line(const char *const *files, size_t n, const mr_text_line_opts *opts)
{
    struct params p = {0};
    if (opts)
        p.o = *opts;
    return mr__file_names_dataset(&mr_op_text_line, &p, files, n, p.o.paths);
}
