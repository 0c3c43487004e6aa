/* SPDX-License-Identifier: Apache-2.0 */
/* jsonl: files with one JSON object per line, as records of typed fields. Blank lines and other
 * keys are ignored. */
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/text_rows.h"

struct params {
    mr_strs files;
    char *features;
    mr_jsonl_opts o;
};

static mr_code parse(mr_iter *it, const mr_bytes *line, mr_status *st)
{
    mr__text_rows *s = it->state;
    size_t blank = 0;
    while (blank < line->size && (line->data[blank] == ' ' || line->data[blank] == '\t'))
        blank++;
    if (blank == line->size)
        return MR_END;
    const char *bad;
    mr_status why;
    mr_code rc = mr__sheet_put_json(&s->sheet, line, &bad, &why);
    if (rc == MR_OK || rc == MR_RESOURCE_EXHAUSTED || !bad) {
        if (st)
            *st = why;
        return rc;
    }
    return mr_fail(st, MR_INVALID_ARGUMENT, "field %.80s: %s", bad, why.message);
}

static const mr__text_kind kind = {
    .files = {.format = &mr_format_text_line,
              .compression_at = offsetof(struct params, o.compression),
              .detects = true},
    .features_at = offsetof(struct params, features),
    .json = true,
    .parse = parse};

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, files, MR_P_POSITIONAL | MR_P_PATTERN,
                  .doc = "Paths, or patterns; several are read in the order given."),
    MR_PARAM_WITH(
        struct params, features, MR_P_POSITIONAL | MR_P_EXPRESSION,
        .doc = "{\"name\": feature, ...}: the values to read from each object. A feature is a "
               "dtype, with a shape after it ([3, 4]; [] for any length), or "
               "feature(dtype, shape=[..], default=v) where it may be missing; the type json "
               "is the text of a value. {\"name\": feature, ...} is a record, and "
               "[{\"name\": feature, ...}] a list of records, each feature of which is a "
               "list."),
    MR_OPT(struct params, compression, .names = mr__compression_names,
           .doc = "Compression of the files as a whole; empty: detected by their first bytes."),
    {0}};

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    MR_TRY(mr__text_rows_infer(self, params, out, st));
    if (mr_spec_kind_of(*out) == MR_SPEC_RECORD)
        return MR_OK;
    mr_spec_unref(*out);
    *out = NULL;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "jsonl: features must be a record, {\"name\": dtype, ...}");
}

const mr_op mr_op_jsonl = {
    .abi = MR_ABI_VERSION,
    .name = "jsonl",
    .doc = "The objects of JSON-lines files, as records of typed fields.",
    .example = "jsonl(\"people-*.jsonl\", {\"name\": bytes, \"age\": feature(int64, default=-1)})",
    .order_doc = "by file, then by line",
    .memory_doc = "the current chunk, and the file's read-ahead",
    .state_doc = "file, offset and line",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__text_rows),
    .kind = &kind,
    MR__TEXT_ROWS_SLOTS,
    .check = mr__file_source_check,
    .infer = infer,
    .open = mr__text_rows_open,
    .close = mr__text_rows_close,
};

mr_dataset *mr_jsonl(const char *const *files, size_t n, const char *features,
                     const mr_jsonl_opts *opts)
{
    struct params p = {.features = (char *)(uintptr_t)features};
    if (opts)
        p.o = *opts;
    return mr__file_names_dataset(&mr_op_jsonl, &p, files, n, p.o.paths);
}
