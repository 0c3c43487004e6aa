/* SPDX-License-Identifier: Apache-2.0 */
/* tfrecord: the records of TFRecord files, as views into the chunks they were read in.
 *
 * With num_parallel_reads it runs as what it is defined to be: the names, interleaved with one
 * record of each of k files in turn. */
#include <stdio.h>

#include "pipeline/formats/tfrecord.h"
#include "pipeline/ops/file_source.h"
#include "pipeline/ops/function_ops.h"
#include "pipeline/ops/source.h"

enum { READS_AUTO = 16 }; /* the same on every machine, or the order would not be */

struct params {
    mr_strs files;
    mr_tfrecord_opts o;
};

struct state {
    mr__file_source source;
    mr_iter *inner; /* num_parallel_reads: the interleaved form, and nothing above */
};

static mr_code open_reader(const void *params, const char *path, void **reader, mr_status *st)
{
    const struct params *p = params;
    mr_file_opts o = {0};
    mr_compression_find(p->o.compression, &o.compression);
    mr_tfrecord_reader *r;
    MR_TRY(mr_tfrecord_reader_open(&r, path, &o, st));
    *reader = r;
    return MR_OK;
}

static void close_reader(void *reader)
{
    mr_tfrecord_reader_close(reader);
}

static mr_code read_reader(void *reader, size_t want, size_t max_bytes, mr_array *out,
                           mr_status *st)
{
    return mr_tfrecord_reader_read(reader, want, max_bytes, out, st);
}

static void position_of(const void *reader, mr_file_position *out)
{
    mr_tfrecord_reader_position(reader, out);
}

static mr_code seek_reader(void *reader, const mr_file_position *to, mr_status *st)
{
    return mr_tfrecord_reader_seek(reader, to, st);
}

static const mr__reader_class reader_class = {open_reader, close_reader, read_reader, position_of,
                                              seek_reader};

/* The records of the files that `names` (taken over) lists. */
static mr_dataset *records_of(const struct params *p, mr_dataset *names)
{
    char text[128];
    int64_t reads = p->o.num_parallel_reads == MR_AUTO ? READS_AUTO : p->o.num_parallel_reads;
    if (p->o.compression && p->o.compression[0])
        snprintf(text, sizeof text, "f => tfrecord(f, compression=\"%s\")", p->o.compression);
    else
        snprintf(text, sizeof text, "f => tfrecord(f)");
    if (reads == 0)
        return mr_flat_map(names, mr_fn_text(text));
    const mr_interleave_opts o = {.cycle_length = reads, .num_parallel_calls = reads};
    return mr_interleave(names, mr_fn_text(text), &o);
}

static mr_code open_parallel(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    mr__file_source *f = &s->source;
    mr_iter_close(s->inner);
    s->inner = NULL;
    mr_strs paths = p->files;
    mr_dataset *names;
    if (f->patterns && !f->list)
        MR_TRY(mr__file_list_match(it, f->names, false, &f->list, st));
    if (f->list)
        names = mr__file_list_dataset(f->list->paths, f->list->n);
    else
        names = mr__file_paths_dataset(&paths);
    mr_dataset *ds = records_of(p, names);
    mr_code rc = mr_iter_open_dataset(it, ds, NULL, &s->inner, st);
    mr_dataset_unref(ds);
    return rc;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    (void)st;
    mr__file_source_open(&s->source, it, &reader_class, &p->files);
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (p->o.num_parallel_reads == 0)
        return mr__file_source_next(&s->source, want, out, st);
    if (s->source.failed)
        return MR_END;
    if (!s->inner) {
        mr_code rc = open_parallel(it, st);
        s->source.failed = rc != MR_OK;
        if (rc != MR_OK)
            return rc;
    }
    return mr_iter_next(s->inner, want, out, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr_iter_close(s->inner);
    mr__file_source_close(&s->source);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    MR_TRY(mr__file_source_save(&s->source, w, st));
    if (p->o.num_parallel_reads == 0)
        return MR_OK;
    MR_TRY(mr_state_put_u64(w, s->inner != NULL, st));
    return s->inner ? mr_iter_save(s->inner, w, st) : MR_OK;
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    uint64_t is_open;
    MR_TRY(mr__file_source_restore(&s->source, r, st));
    if (p->o.num_parallel_reads == 0)
        return MR_OK;
    mr_iter_close(s->inner);
    s->inner = NULL;
    MR_TRY(mr_state_get_u64(r, &is_open, st));
    if (!is_open)
        return MR_OK;
    MR_TRY(open_parallel(it, st));
    return mr_iter_restore(s->inner, r, st);
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__file_names_check(&((const struct params *)params)->files, st);
}

static mr_dataset *split_files(const mr_dataset *self,
                               mr_dataset *(*shard)(void *ctx, mr_dataset *names), void *ctx)
{
    const struct params *p = mr_dataset_params(self);
    return records_of(p, shard(ctx, mr__file_names_dataset(&p->files)));
}

static const mr_param table[] = {
    {.name = "files",
     .doc = "Paths, or patterns; several are read in the order given.",
     .type = MR_PT_STRS,
     .flags = MR_P_POSITIONAL | MR_P_VARIADIC | MR_P_PATTERN,
     .at = offsetof(struct params, files)},
    MR_OPT(struct params, compression, .names = mr__compression_names,
           .doc = "How the files as a whole are compressed; empty: not."),
    MR_OPT(struct params, num_parallel_reads, .flags = MR_P_AUTO | MR_P_NONE, .min.i = 1,
           .max.i = INT64_MAX, .doc = "Files read at once, a record of each in turn; auto: 16."),
    {0}};

const mr_op mr_op_tfrecord = {
    .abi = MR_ABI_VERSION,
    .name = "tfrecord",
    .doc = "The records of TFRecord files, checksums verified.",
    .example = "tfrecord(\"train-*.tfrecord\", num_parallel_reads=4)",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
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

mr_dataset *mr_tfrecord(const char *const *files, size_t n, const mr_tfrecord_opts *opts)
{
    struct params p = {.files = mr__file_names_of(files, n, opts && opts->paths)};
    if (!p.files.v) {
        mr_status st;
        mr_fail_memory(&st, n * sizeof *p.files.v, "file names");
        return mr_dataset_fail(&st);
    }
    if (opts)
        p.o = *opts;
    mr_dataset *ds = mr_dataset_new(&mr_op_tfrecord, &p, NULL, 0);
    mr_free(p.files.v);
    return ds;
}
