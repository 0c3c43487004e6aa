/* SPDX-License-Identifier: Apache-2.0 */
/* text_line: the lines of text files. */
#include <stdio.h>

#include "pipeline/formats/text_line.h"
#include "pipeline/ops/file_source.h"
#include "pipeline/ops/function_ops.h"
#include "pipeline/ops/source.h"

struct params {
    mr_strs files;
    mr_text_line_opts o;
};

static mr_code open_reader(const void *params, const char *path, void **reader, mr_status *st)
{
    const struct params *p = params;
    mr_file_opts o = {0};
    mr_compression_find(p->o.compression, &o.compression);
    mr_text_line_reader *r;
    MR_TRY(mr_text_line_reader_open(&r, path, &o, st));
    *reader = r;
    return MR_OK;
}

static void close_reader(void *reader)
{
    mr_text_line_reader_close(reader);
}

static mr_code read_reader(void *reader, size_t want, size_t max_bytes, mr_array *out,
                           mr_status *st)
{
    return mr_text_line_reader_read(reader, want, max_bytes, out, st);
}

static void position_of(const void *reader, mr_file_position *out)
{
    mr_text_line_reader_position(reader, out);
}

static mr_code seek_reader(void *reader, const mr_file_position *to, mr_status *st)
{
    return mr_text_line_reader_seek(reader, to, st);
}

static const mr__reader_class reader_class = {open_reader, close_reader, read_reader, position_of,
                                              seek_reader};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    (void)st;
    mr__file_source_open(it->state, it, &reader_class, &p->files);
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    return mr__file_source_next(it->state, want, out, st);
}

static void close(mr_iter *it)
{
    mr__file_source_close(it->state);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    return mr__file_source_save(it->state, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    return mr__file_source_restore(it->state, r, st);
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__file_names_check(&((const struct params *)params)->files, st);
}

static mr_dataset *split_files(const mr_dataset *self,
                               mr_dataset *(*shard)(void *ctx, mr_dataset *names), void *ctx)
{
    const struct params *p = mr_dataset_params(self);
    char text[128];
    if (p->o.compression && p->o.compression[0])
        snprintf(text, sizeof text, "f => text_line(f, compression=\"%s\")", p->o.compression);
    else
        snprintf(text, sizeof text, "f => text_line(f)");
    return mr_flat_map(shard(ctx, mr__file_names_dataset(&p->files)), mr_fn_text(text));
}

static const mr_param table[] = {
    {.name = "files",
     .doc = "Paths, or patterns; several are read in the order given.",
     .type = MR_PT_STRS,
     .flags = MR_P_POSITIONAL | MR_P_PATTERN,
     .at = offsetof(struct params, files)},
    MR_OPT(struct params, compression, .names = mr__compression_names,
           .doc = "How the files as a whole are compressed; empty: not."),
    {0}};

const mr_op mr_op_text_line = {
    .abi = MR_ABI_VERSION,
    .name = "text_line",
    .doc = "The lines of text files, without their ends.",
    .example = "text_line(\"notes-*.txt\")",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__file_source),
    .role = MR_ROLE_FILES,
    .check = check,
    .infer = mr__file_infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .save_shared = mr__file_list_save_shared,
    .restore_shared = mr__file_list_restore_shared,
    .split_files = split_files,
};

mr_dataset *mr_text_line(const char *const *files, size_t n, const mr_text_line_opts *opts)
{
    struct params p = {.files = mr__file_names_of(files, n, opts && opts->paths)};
    if (!p.files.v) {
        mr_status st;
        mr_fail_memory(&st, n * sizeof *p.files.v, "file names");
        return mr_dataset_fail(&st);
    }
    if (opts)
        p.o = *opts;
    mr_dataset *ds = mr_dataset_new(&mr_op_text_line, &p, NULL, 0);
    mr_free(p.files.v);
    return ds;
}
