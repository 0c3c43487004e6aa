/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/shards/shard_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/formats/arrow_ipc/arrow_ipc_writer.h"
#include "pipeline/formats/shard_names.h"
#include "pipeline/formats/shards/shard_set_swap.h"
#include "pipeline/formats/shards/shard_upload.h"
#include "pipeline/formats/parquet/parquet_writer.h"
#include "pipeline/formats/tfrecord/zstd_records_impl.h"
#include "pipeline/formats/tfrecord/tfrecord_writer.h"
#include "pipeline/system/system.h"

/* Records to train a dictionary on, contiguous, before they are written. */
struct samples {
    void *bytes;
    size_t *sizes;
    size_t used, n, capacity, sizes_capacity;
};

struct mr_shard_writer {
    mr__shard_set_swap generation;
    mr__shard_upload *upload; /* NULL: local files */
    bool overwrite;
    mr_shard_format format;
    char *npy_type; /* NPY: the header without the number of entries, as two strings */
    int64_t n, next, records;
    bool zstd_records;
    int64_t group_bytes;
    mr_compression compression; /* for the parts of tables */
    mr__table_writer **tables;  /* formats of rows: one for each file; NULL: no spec yet */
    size_t n_columns;
    mr_code failed; /* error of starting the frames, or of writing a row; MR_OK: none */
    mr__zstd_record_writer *frames; /* NULL: the first records are still being collected */
    struct samples samples;
    mr_atomic_file *dictionary; /* NULL: no dictionary */
    mr_tfrecord_writer *files[];
};

enum { SAMPLE_BYTES = 4 << 20, MOST_SAMPLES = 1 << 20 };
enum { MOST_SHARDS = 99999 };
/* Bytes of row values in memory: of all files, the minimum of each, the default of a row group. */
enum { TABLE_BYTES = 256 << 20, LEAST_TABLE_BYTES = 64 << 10, GROUP_BYTES = 64 << 20 };

/* The formats whose records are rows. */
static const struct {
    const char *name;
    mr_code (*open)(mr__table_writer **out, const mr__table_opts *o, mr_status *st);
} of_rows[MR__SHARD_ENDINGS] = {[MR_SHARDS_ARROW] = {"Arrow", mr__arrow_writer_open},
                                [MR_SHARDS_PARQUET] = {"Parquet", mr__parquet_writer_open}};

/* A file that the dictionary at path would replace must be one of the old files. */
static mr_code check_dictionary(const mr_shard_writer *w, const char *path, mr_status *st)
{
    const mr__shard_set_swap *g = &w->generation;
    for (size_t i = 0; i < g->n_old; i++)
        if (strcmp(g->from[i], path) == 0)
            return MR_OK;
    if (!mr__shard_set_swap_has(path))
        return MR_OK;
    mr_code rc = mr_fail(st, MR_ALREADY_EXISTS,
                         "this file has the name of the dictionary; remove it, or, if it is the "
                         "dictionary of a removed set, overwrite it (--overwrite)");
    mr_status_at(st, path, -1, -1);
    return rc;
}

mr_code mr_shard_writer_open(mr_shard_writer **out, const char *prefix, int64_t n_shards,
                             const mr_shard_writer_opts *opts, mr_status *st)
{
    if (n_shards < 1 || n_shards > MOST_SHARDS)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the number of shards must be 1 to %d, not %" PRId64, MOST_SHARDS, n_shards);
    /* With an empty name every file of the directory would be an old shard. */
    const char *slash = strrchr(prefix, '/');
    if (!(slash ? slash[1] : *prefix))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the prefix '%s' has no name after its directory; give one: '%strain'",
                       prefix, prefix);
    mr_shard_format format = opts ? opts->format : MR_SHARDS_TFRECORD;
    if (format == MR_SHARDS_NPY && opts->compression != MR_COMPRESSION_NONE)
        return mr_fail(st, MR_INVALID_ARGUMENT, "npy files cannot be compressed");
    bool rows = of_rows[format].open != NULL;
    if (format != MR_SHARDS_TFRECORD && opts->zstd_records)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "only tfrecord files can have individually compressed records");
    if (opts && opts->group_bytes && (format != MR_SHARDS_PARQUET || opts->group_bytes < 0))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "only parquet files have row groups, and their size must be positive");
    size_t path_size = strlen(prefix) + 64;
    char *path = mr_malloc(path_size);
    mr_shard_writer *w = mr_calloc(1, sizeof *w + (size_t)n_shards * sizeof *w->files);
    const mr_tfrecord_writer_opts each = {
        .compression = opts && !rows ? opts->compression : MR_COMPRESSION_NONE, .sync = true};
    mr_code rc = path && w ? MR_OK : mr_fail_memory(st, path_size, "a shard writer");
    if (rc == MR_OK)
        rc = mr__shard_set_swap_init(&w->generation, prefix, st);
    bool remote = mr__is_url(prefix);
    if (rc == MR_OK && !remote)
        rc = mr__shard_set_swap_lock(&w->generation, st);
    if (rc == MR_OK) {
        w->format = format;
        w->overwrite = opts && opts->overwrite;
        w->zstd_records = opts && opts->zstd_records;
        w->group_bytes = opts ? opts->group_bytes : 0;
        w->compression = opts ? opts->compression : MR_COMPRESSION_NONE;
        rc = remote ? mr__shard_upload_open(&w->upload, prefix, n_shards, opts, st)
                    : mr__shard_set_swap_recover(&w->generation, st);
    }
    if (rc == MR_OK && !remote)
        rc = mr__shard_set_swap_find_old(&w->generation, n_shards, mr_shard_ending(format),
                                         w->overwrite, st);
    if (rc == MR_OK && w->zstd_records && !remote) {
        snprintf(path, path_size, "%s.dict", prefix);
        rc = check_dictionary(w, path, st);
    }
    for (int64_t i = 0; i < n_shards && rc == MR_OK; i++) {
        snprintf(path, path_size, "%s-%05" PRId64 "-of-%05" PRId64 ".%s", prefix, i, n_shards,
                 mr_shard_ending(format));
        mr__upload_opts how;
        if (remote)
            how = mr__shard_upload_file(w->upload, i);
        rc = mr__tfrecord_writer_open(&w->files[i], path, &each, remote ? &how : NULL, st);
        if (rc == MR_OK)
            w->n = i + 1;
    }
    mr_free(path);
    if (rc != MR_OK) {
        mr_shard_writer_abort(w);
        return rc;
    }
    *out = w;
    return MR_OK;
}

static int64_t table_share(mr_shard_format format, int64_t n_shards, int64_t group_bytes)
{
    int64_t share = TABLE_BYTES / n_shards, group = group_bytes ? group_bytes : GROUP_BYTES;
    if (format == MR_SHARDS_PARQUET && group < share)
        share = group;
    return share > LEAST_TABLE_BYTES ? share : LEAST_TABLE_BYTES;
}

int64_t mr_shard_writer_memory(int64_t n_shards, const mr_shard_writer_opts *opts,
                               const mr_spec *spec)
{
    static const int64_t codecs[] = {[MR_COMPRESSION_GZIP] = 512 << 10,
                                     [MR_COMPRESSION_ZLIB] = 512 << 10,
                                     [MR_COMPRESSION_ZSTD] = 4 << 20};
    const int64_t file = 5 << 18, frames = 28 << 20; /* including the training of a dictionary */
    static const mr_shard_writer_opts none;
    const mr_shard_writer_opts *o = opts ? opts : &none;
    size_t c = (size_t)o->compression;
    int64_t each = file + (c < sizeof codecs / sizeof *codecs ? codecs[c] : 0);
    if (n_shards < 1 || n_shards > MOST_SHARDS) /* open fails */
        return 0;
    int64_t lists = 0, share = table_share(o->format, n_shards, o->group_bytes);
    for (size_t i = 0; spec && i < mr_spec_n_leaves(spec); i++)
        lists += mr_spec_leaf(spec, i)->rank != 0;
    if (o->format == MR_SHARDS_ARROW)
        each += mr__arrow_writer_memory(share, o->compression);
    if (o->format == MR_SHARDS_PARQUET)
        each += mr__parquet_writer_memory(share, lists);
    return n_shards * each + (o->zstd_records ? frames : 0) + mr__shard_upload_memory(n_shards, o);
}

const char *mr_shard_ending(mr_shard_format format)
{
    _Static_assert(MR_SHARDS_TFRECORD == 0 && MR_SHARDS_PARQUET == MR__SHARD_ENDINGS - 1,
                   "mr__shard_endings is indexed by mr_shard_format");
    return mr__shard_endings[format];
}

/* ---- headers of NPY files ----
 *
 *   offset  size  meaning
 *   0       6     "\x93NUMPY"
 *   6       2     version: 1, 2 (long headers) or 3 (names beyond ASCII), and 0
 *   8       2, 4  bytes that follow, little-endian: 2 bytes in version 1
 *           n     a Python dictionary, spaces and a line end; the total is a multiple of 64 */

/* Writes the header of file i, sized for any number of entries. last: with their final number. */
static mr_code put_head(mr_shard_writer *w, int64_t i, bool last, mr_status *st)
{
    enum { COUNT_DIGITS = 20, ALIGN = 64 };
    int64_t n = last ? w->records / w->n + (i < w->records % w->n) : 0;
    const char *axes = w->npy_type + strlen(w->npy_type) + 1;
    bool ascii = true;
    for (const char *p = w->npy_type; *p; p++)
        ascii = ascii && (unsigned char)*p < 0x80;
    size_t text = strlen(w->npy_type) + strlen(axes) + COUNT_DIGITS + 1;
    bool wide = !ascii || text + 12 + ALIGN > UINT16_MAX;
    size_t before = wide ? 12 : 10, size = (before + text + ALIGN - 1) / ALIGN * ALIGN;
    char *head = mr_malloc(size + 1);
    if (!head)
        return mr_fail_memory(st, size, "the head of an npy file");
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[6] = (char)(!ascii ? 3 : wide ? 2 : 1);
    mr__store_le(head + 8, size - before, before - 8);
    int used = snprintf(head + before, size + 1 - before, "%s%" PRId64 "%s", w->npy_type, n, axes);
    memset(head + before + used, ' ', size - before - (size_t)used);
    head[size - 1] = '\n';
    mr_code rc = last ? mr__tfrecord_writer_replace_head(w->files[i], head, size, st)
                      : mr__tfrecord_writer_put(w->files[i], head, size, st);
    mr_free(head);
    return rc;
}

mr_code mr_shard_writer_set_entry(mr_shard_writer *w, const char *descr, int rank,
                                  const int64_t *shape, mr_status *st)
{
    if (w->format != MR_SHARDS_NPY || w->npy_type || w->records)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "the type of entries can be set once, before the first entry, and only for npy files");
    static const char first[] = "{'descr': ", second[] = ", 'fortran_order': False, 'shape': (";
    size_t size = sizeof first + strlen(descr) + sizeof second + (size_t)rank * 24 + 8;
    char *text = w->npy_type = mr_malloc(size);
    if (!text)
        return mr_fail_memory(st, size, "the head of an npy file");
    size_t used = (size_t)snprintf(text, size, "%s%s%s", first, descr, second) + 1;
    text[used] = ',';
    text[used + 1] = '\0';
    for (int d = 0; d < rank; d++)
        snprintf(text + used + strlen(text + used), size - used - strlen(text + used),
                 " %" PRId64 "%s", shape[d], d + 1 < rank ? "," : "");
    snprintf(text + used + strlen(text + used), size - used - strlen(text + used), "), }");
    mr_code rc = MR_OK;
    for (int64_t i = 0; i < w->n && rc == MR_OK; i++)
        rc = put_head(w, i, false, st);
    return rc;
}

/* ---- rows ---- */

static mr_code put_bytes(void *ctx, const void *data, size_t n, mr_status *st)
{
    return mr__tfrecord_writer_put(ctx, data, n, st);
}

mr_code mr_shard_writer_set_spec(mr_shard_writer *w, const mr_spec *spec, const mr_block *first,
                                 mr_status *st)
{
    mr__table_opts o = {.spec = spec,
                        .first = first,
                        .most_bytes = (size_t)table_share(w->format, w->n, w->group_bytes),
                        .compression = w->compression,
                        .put = put_bytes};
    if (!of_rows[w->format].open || w->tables)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the types of rows can be set once, before the first row, and only for "
                       "Arrow and Parquet files");
    w->tables = mr_calloc((size_t)w->n, sizeof *w->tables);
    if (!w->tables)
        return mr_fail_memory(st, (size_t)w->n * sizeof *w->tables, "a shard writer");
    w->n_columns = mr_spec_n_leaves(spec);
    for (int64_t i = 0; i < w->n && w->failed == MR_OK; i++) {
        o.ctx = w->files[i];
        w->failed = of_rows[w->format].open(&w->tables[i], &o, st);
    }
    return w->failed;
}

mr_code mr_shard_format_check(mr_shard_format f, const mr_spec *spec, mr_status *st)
{
    mr__table_column *c = NULL;
    size_t n = 0;
    if (!of_rows[f].open)
        return MR_OK;
    MR_TRY(mr__table_columns(&(mr__table_opts){.spec = spec}, of_rows[f].name, &c, &n, st));
    mr__table_columns_free(c, n);
    return MR_OK;
}

static mr_code fail_no_spec(const mr_shard_writer *w, mr_status *st)
{
    return mr_fail(st, MR_FAILED_PRECONDITION, "set the types of rows before writing %s files",
                   of_rows[w->format].name);
}

static mr_code given_up(const mr_shard_writer *w, mr_status *st)
{
    return mr_fail(st, w->failed, "the set of files was abandoned after an earlier failure");
}

mr_code mr_shard_writer_append_row(mr_shard_writer *w, const mr_block *b, size_t row, mr_status *st)
{
    if (!of_rows[w->format].open)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the records of %s files are not rows",
                       mr_shard_ending(w->format));
    if (w->failed != MR_OK)
        return given_up(w, st);
    if (!w->tables)
        return fail_no_spec(w, st);
    mr__table_writer *t = w->tables[w->next];
    w->failed =
        b->n_columns == w->n_columns
            ? t->class_->append(t, b, row, st)
            : mr_fail(st, MR_INVALID_ARGUMENT, "a row has %zu columns, but the files have %zu",
                      b->n_columns, w->n_columns);
    if (w->failed == MR_OK) {
        w->next = (w->next + 1) % w->n;
        w->records++;
    }
    return w->failed;
}

/* ---- records as separate frames ---- */

static mr_code collect(struct samples *s, const void *data, size_t n, mr_status *st)
{
    mr_code rc = mr_grow(&s->bytes, &s->capacity, s->used + n, 1, SIZE_MAX / 2,
                         "records for a dictionary", st);
    if (rc == MR_OK)
        rc = MR_GROW(s->sizes, s->sizes_capacity, s->n + 1, MOST_SAMPLES,
                     "records for a dictionary", st);
    if (rc != MR_OK)
        return rc;
    if (n)
        memcpy((char *)s->bytes + s->used, data, n);
    s->used += n;
    s->sizes[s->n++] = n;
    return MR_OK;
}

static void drop_samples(struct samples *s)
{
    mr_free(s->bytes);
    mr_free(s->sizes);
    *s = (struct samples){0};
}

/* To the next file in turn. */
static mr_code put_record(mr_shard_writer *w, const void *data, size_t n, mr_status *st)
{
    mr_tfrecord_writer *f = w->files[w->next];
    mr_bytes frame = {data, n};
    if (w->frames)
        MR_TRY(mr__zstd_record_write(w->frames, data, n, &frame, st));
    mr_code rc = w->format == MR_SHARDS_TFRECORD
                     ? mr_tfrecord_writer_append(f, frame.data, frame.size, st)
                     : mr__tfrecord_writer_put(f, data, n, st);
    if (rc == MR_OK && w->format == MR_SHARDS_JSONL)
        rc = mr__tfrecord_writer_put(f, "\n", 1, st);
    if (rc == MR_OK)
        w->next = (w->next + 1) % w->n;
    return rc;
}

static mr_code write_dictionary(mr_shard_writer *w, const void *bytes, size_t n, mr_status *st)
{
    const mr__shard_set_swap *g = &w->generation;
    char *path = mr_strf("%s%s.dict", g->directory, g->base);
    if (!path)
        return mr_fail_memory(st, strlen(g->base), "a file name");
    mr_code rc = w->upload
                     ? mr__atomic_file_open_upload(&w->dictionary, path,
                                                   &(mr__upload_opts){.creates = !w->overwrite}, st)
                     : mr_atomic_file_open(&w->dictionary, path,
                                           &(mr_atomic_file_opts){.sync = MR_SYNC_CONTENTS}, st);
    if (rc == MR_OK)
        rc = mr_atomic_file_put(w->dictionary, bytes, n, st);
    if (rc == MR_OK)
        rc = mr__atomic_file_finish(w->dictionary, st);
    mr_free(path);
    return rc;
}

/* Trains the dictionary on the samples and writes it. */
static mr_code begin_frames(mr_shard_writer *w, mr_status *st)
{
    struct samples *s = &w->samples;
    void *dictionary = NULL;
    size_t size = 0, at = 0;
    mr_code rc = mr__zstd_dictionary_train(s->bytes, s->sizes, s->n, &dictionary, &size, st);
    if (rc == MR_OK && dictionary)
        rc = write_dictionary(w, dictionary, size, st);
    if (rc == MR_OK)
        rc = mr__zstd_record_writer_open(&w->frames, dictionary, size, st);
    mr_free(dictionary);
    for (size_t i = 0; i < s->n && rc == MR_OK; at += s->sizes[i++])
        rc = put_record(w, (const char *)s->bytes + at, s->sizes[i], st);
    drop_samples(s);
    w->failed = rc;
    return rc;
}

mr_code mr_shard_writer_append(mr_shard_writer *w, const void *data, size_t n, mr_status *st)
{
    struct samples *s = &w->samples;
    if (of_rows[w->format].open)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the records of %s files are rows",
                       of_rows[w->format].name);
    if (w->format == MR_SHARDS_NPY && !w->npy_type)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "set the type of entries before writing npy files");
    if (w->failed != MR_OK)
        return given_up(w, st);
    mr_code rc;
    if (w->zstd_records && !w->frames &&
        (s->used + n > SAMPLE_BYTES || s->n == MOST_SAMPLES)) /* enough samples */
        MR_TRY(begin_frames(w, st));
    if (w->zstd_records && !w->frames)
        rc = collect(s, data, n, st);
    else
        rc = put_record(w, data, n, st);
    w->records += rc == MR_OK;
    return rc;
}

/* Renames local files. */
static mr_code swap(mr_shard_writer *w, mr_status *st)
{
    bool kept = false;
    mr__shard_set_swap *g = &w->generation;
    /* Again: files may have appeared since it was opened. */
    mr_code rc = mr__shard_set_swap_find_old(g, w->n, mr_shard_ending(w->format), w->overwrite, st);
    if (rc == MR_OK && w->dictionary)
        rc = check_dictionary(w, w->dictionary->path, st);
    if (rc == MR_OK && w->dictionary)
        rc = mr__shard_set_swap_add(g, w->dictionary->partial, w->dictionary->path, st);
    for (int64_t i = 0; i < w->n && rc == MR_OK; i++)
        rc = mr__shard_set_swap_add(g, mr__tfrecord_writer_file(w->files[i])->partial,
                                    mr__tfrecord_writer_file(w->files[i])->path, st);
    if (rc == MR_OK)
        rc = mr__shard_set_swap_publish(g, &kept, st);
    for (int64_t i = 0; i < w->n && (rc == MR_OK || kept); i++)
        mr__tfrecord_writer_file(w->files[i])->created = false;
    if (w->dictionary && (rc == MR_OK || kept))
        w->dictionary->created = false;
    return rc;
}

/* Makes uploads visible. */
static mr_code publish(mr_shard_writer *w, mr_status *st)
{
    mr_code rc = mr__shard_upload_begin(w->upload, w->dictionary != NULL, st);
    if (rc == MR_OK && w->dictionary)
        rc = mr__upload_commit(w->dictionary->upload, st);
    for (int64_t i = w->n - 1; i >= 0 && rc == MR_OK; i--)
        rc = mr__upload_commit(mr__tfrecord_writer_file(w->files[i])->upload, st);
    return rc == MR_OK ? mr__shard_upload_end(w->upload, st) : rc;
}

mr_code mr_shard_writer_close(mr_shard_writer *w, mr_status *st)
{
    mr_code rc = w->failed != MR_OK                      ? given_up(w, st)
                 : w->zstd_records && !w->frames         ? begin_frames(w, st)
                 : of_rows[w->format].open && !w->tables ? fail_no_spec(w, st)
                                                         : MR_OK;
    for (int64_t i = 0; i < w->n && rc == MR_OK; i++) {
        if (w->npy_type)
            rc = put_head(w, i, true, st);
        if (w->tables)
            rc = w->tables[i]->class_->finish(w->tables[i], st);
        if (rc == MR_OK)
            rc = mr__tfrecord_writer_finish(w->files[i], st);
    }
    if (rc == MR_OK)
        rc = w->upload ? publish(w, st) : swap(w, st);
    mr_shard_writer_abort(w);
    return rc;
}

void mr_shard_writer_abort(mr_shard_writer *w)
{
    if (!w)
        return;
    for (int64_t i = 0; w->tables && i < w->n; i++)
        mr__table_writer_close(w->tables[i]);
    mr_free(w->tables);
    for (int64_t i = 0; i < w->n; i++)
        mr_tfrecord_writer_abort(w->files[i]);
    mr_atomic_file_abort(w->dictionary);
    mr__shard_upload_close(w->upload);
    mr__zstd_record_writer_close(w->frames);
    drop_samples(&w->samples);
    mr__shard_set_swap_reset(&w->generation);
    mr_free(w->npy_type);
    mr_free(w);
}

static mr_code check_directory(const char *directory, mr_status *st)
{
    struct stat s;
    int err = mr__sys->stat(directory, &s) != 0 ? errno : S_ISDIR(s.st_mode) ? 0 : ENOTDIR;
    return err ? mr_fail_errno(st, err, "cannot write files to %s", directory) : MR_OK;
}

mr_code mr_shard_writer_recover(const char *prefix, mr_status *st)
{
    mr__shard_set_swap g;
    if (mr__is_url(prefix))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "nothing is left to finish in a store; write the set again (--overwrite)");
    MR_TRY(mr__shard_set_swap_init(&g, prefix, st));
    mr_code rc = *g.directory ? check_directory(g.directory, st) : MR_OK;
    if (rc == MR_OK)
        rc = mr__shard_set_swap_lock(&g, st);
    if (rc == MR_OK)
        rc = mr__shard_set_swap_recover(&g, st);
    mr__shard_set_swap_reset(&g);
    return rc;
}

mr_shard_format mr_shard_writer_format(const mr_shard_writer *w)
{
    return w->format;
}

int64_t mr_shard_writer_records(const mr_shard_writer *w)
{
    return w->records;
}
