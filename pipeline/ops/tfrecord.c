/* SPDX-License-Identifier: Apache-2.0 */
/* tfrecord: the records of TFRecord files, as views into the chunks they were read in.
 *
 * With num_parallel_reads it runs as what it is defined to be: the names, interleaved with one
 * record of each of k files in turn. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/formats/tfrecord/tfrecord_walk.h"
#include "pipeline/engine/op_inner_datasets.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/file_source.h"
#include "pipeline/streams/sources/record_lookup.h"
#include "pipeline/streams/sources/zstd_record_rows.h"
#include "pipeline/streams/sources/quarantine.h"

#define MOST_PARTS ((int64_t)1 << 31)

struct params {
    mr_strs files;
    mr_tfrecord_opts o;
};

struct state {
    mr__file_source source;
    mr_iter
        *inner; /* num_parallel_reads: the interleaved dataset; of source only the list is used */
    mr__quarantine quarantine;   /* on_corrupt="skip" */
    mr__zstd_record_rows frames; /* record_compression */
    mr__record_lookup lookup;
};

static const mr__file_kind kind = {.format = &mr_format_tfrecord,
                                   .compression_at = offsetof(struct params, o.compression),
                                   .indexed = true,
                                   .range_at = offsetof(struct params, o.record_range)};

static bool is_parallel(const mr_iter *it)
{
    return ((const struct params *)it->params)->o.num_parallel_reads != 0;
}

enum { ON_CORRUPT_ERROR, ON_CORRUPT_SKIP };
static const char *const on_corrupt_names[] = {"error", "skip", NULL};

static bool skips(const struct params *p)
{
    return p->o.on_corrupt && strcmp(p->o.on_corrupt, on_corrupt_names[ON_CORRUPT_SKIP]) == 0;
}

static bool skips_corrupt(const mr_iter *it)
{
    return skips(it->params);
}

static bool unpacks(const struct params *p)
{
    return p->o.record_compression && *p->o.record_compression;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    s->frames.dictionary = p->o.dictionary;
    if (unpacks(p))
        s->source.frames = &s->frames;
    if (skips_corrupt(it)) {
        mr__quarantine_init(&s->quarantine, it, p->o.has_max_skipped ? p->o.max_skipped : -1,
                            p->o.quarantine);
        s->source.own = &s->quarantine.opts;
        s->frames.damage = &s->quarantine.opts;
        s->frames.skipped = &s->quarantine.skipped;
    }
    return mr__file_source_open(it, st);
}

static mr_dataset *names_of(const mr__file_source *f)
{
    if (f->list)
        return mr_from_strings((const char *const *)f->list->paths, f->list->n);
    mr_status st;
    const char **paths = mr_malloc(f->names->n * sizeof *paths);
    if (!paths) {
        mr_fail_memory(&st, f->names->n * sizeof *paths, "file names");
        return mr_dataset_fail(&st);
    }
    for (size_t i = 0; i < f->names->n; i++)
        paths[i] = f->names->v[i].data;
    mr_dataset *ds = mr_from_strings(paths, f->names->n);
    mr_free((void *)paths);
    return ds;
}

static mr_code open_parallel(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    mr__file_source *f = &s->source;
    mr_iter_close(s->inner);
    s->inner = NULL;
    if (f->patterns && !f->list)
        MR_TRY(mr__file_list_match(it, f->names, false, &f->list, st));
    mr_fn *fn = NULL;
    MR_TRY(mr_dataset_read_function(it->node, &fn, st));
    int64_t reads =
        p->o.num_parallel_reads == MR_AUTO ? MR_PARALLEL_READS_AUTO : p->o.num_parallel_reads;
    int64_t n = (int64_t)(f->list ? f->list->n : f->names->n);
    if (reads > n) /* the same order, and each file may use more of the cache */
        reads = n ? n : 1;
    mr_dataset *ds = mr_interleave(
        names_of(f), fn, &(mr_interleave_opts){.cycle_length = reads, .num_parallel_calls = reads});
    mr_code rc = mr_iter_open_replacement(it, ds, &s->inner, st);
    mr_dataset_unref(ds);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (!is_parallel(it))
        return s->source.frames ? mr__zstd_record_rows_next(it, &s->frames, want, out, st)
                                : mr__file_source_next(it, want, out, st);
    if (s->source.failed)
        return MR_END;
    if (!s->inner) {
        mr_code rc = open_parallel(it, st);
        if (rc != MR_OK)
            mr_iter_fail_given(it, rc, st);
        s->source.failed = rc != MR_OK && !mr_status_is_of_no_element(st);
        if (rc != MR_OK)
            return rc;
    }
    return mr_iter_next(s->inner, want, out, st);
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    const struct state *s = it->state;
    /* Records waiting to be decompressed are skipped by pulling them. */
    bool pulled = is_parallel(it) || mr__zstd_record_rows_pending(&s->frames);
    return pulled ? MR_OK : mr__file_source_skip(it, n, skipped, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr_iter_close(s->inner);
    mr__record_lookup_close(&s->lookup);
    mr__zstd_record_rows_close(&s->frames);
    mr__file_source_close(it);
    mr__quarantine_close(&s->quarantine);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(s->source.frames ? mr__zstd_record_rows_save(it, &s->frames, w, st)
                            : mr__file_source_save(it, w, st));
    if (skips_corrupt(it))
        MR_TRY(mr_state_put_u64(
            w, s->source.frames ? mr__zstd_record_rows_skipped(&s->frames) : s->quarantine.skipped,
            st));
    if (!is_parallel(it))
        return MR_OK;
    MR_TRY(mr_state_put_u64(w, s->inner != NULL, st));
    return s->inner ? mr_iter_save(s->inner, w, st) : MR_OK;
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t is_open;
    mr__record_lookup_close(&s->lookup); /* its paths are those of the list of files */
    MR_TRY(s->source.frames ? mr__zstd_record_rows_restore(it, &s->frames, r, st)
                            : mr__file_source_restore(it, r, st));
    if (skips_corrupt(it))
        MR_TRY(mr_state_get_u64(r, &s->quarantine.skipped, st));
    if (!is_parallel(it))
        return MR_OK;
    mr_iter_close(s->inner);
    s->inner = NULL;
    MR_TRY(mr_state_get_u64(r, &is_open, st));
    if (!is_open)
        return MR_OK;
    MR_TRY(open_parallel(it, st));
    return mr_iter_restore(s->inner, r, st);
}

/* ---- by number ---- */

static mr_code indexed(const mr_dataset *self, const void *p, mr_status *st)
{
    MR_TRY(mr__file_source_is_indexed(self, p, st));
    if (!skips(p))
        return MR_OK;
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "on_corrupt=\"skip\" searches for the next record from the one before; omit it: "
                   "damaged records are errors in their places, which ignore_errors() drops");
}

static void find(const mr_iter *it, uint64_t number, mr__record_place *out)
{
    const struct state *s = it->state;
    int64_t size;
    out->file = mr__file_source_place(&s->source, number, &out->record);
    mr_record_index_at(s->source.records->indexes[out->file], out->record, &out->offset, &size);
    out->size = (size_t)size;
}

static mr_code check_framing(const mr__record_place *place, const uint8_t *data, mr_bytes *view,
                             mr_status *st)
{
    mr__walk w = {
        .at = data, .end = data + place->size, .views = view, .max_rows = 1, .max_bytes = 1};
    mr__walk_end why = mr__tfrecord_walk(&w);
    if (w.rows == 1 && w.at == w.end)
        return MR_OK;
    if (w.rows == 0 && why == MR__WALK_BAD_DATA)
        return mr_fail(st, MR_DATA_LOSS,
                       "corrupted record at %" PRId64 ": the checksum of its data does not match",
                       place->offset + 12);
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "there is no record of %zu bytes where the index says: the index is "
                   "stale, or the file damaged; make it again with 'millrace index'",
                   place->size - 16);
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (!s->lookup.files)
        s->lookup = (mr__record_lookup){.records = s->source.records,
                                        .find = find,
                                        .check = check_framing,
                                        .frames = s->source.frames};
    return mr__record_lookup_at(it, &s->lookup, index, n, out, st);
}

static const char *const record_compression_names[] = {"", "ZSTD", NULL};

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, files, MR_P_POSITIONAL | MR_P_VARIADIC | MR_P_PATTERN,
                  .doc = "Paths, or patterns; several are read in the order given."),
    MR_OPT(struct params, compression, .names = mr__compression_names,
           .doc = "Compression of the files as a whole; empty: none."),
    MR_OPT(struct params, num_parallel_reads, .flags = MR_P_AUTO | MR_P_NONE | MR_P_READS,
           .min.i = 1, .max.i = INT64_MAX,
           .doc = "Files read at once, a record of each in turn; auto: 16; none: one."),
    MR_OPT(struct params, record_range, .flags = MR_P_RANGE,
           .doc =
               "[i, n]: part i of n equal parts of all records together, by the files' indexes."),
    MR_OPT(struct params, on_corrupt, .names = on_corrupt_names,
           .doc = "Treats a damaged record as an error, or skips to the next valid one."),
    MR_OPT(struct params, max_skipped, .flags = MR_P_NONE,
           .has_at = offsetof(struct params, o.has_max_skipped), .max.i = INT64_MAX,
           .doc = "Maximum number of damaged places to skip in a pass; one more is an error."),
    MR_OPT(struct params, quarantine, .flags = MR_P_WRITES,
           .doc = "Folder for skipped bytes, a file for each damaged place."),
    MR_OPT(struct params, record_compression, .names = record_compression_names,
           .doc =
               "Compression of each record by itself (write --compress zstd-record); empty: none."),
    MR_OPT(struct params, dictionary, .flags = MR_P_NONE,
           .doc = "File of the zstd dictionary; none: PREFIX.dict, for records that name one."),
    {0}};

static mr_code check(const void *params, mr_status *st)
{
    const struct params *p = params;
    const mr_ints *r = &p->o.record_range;
    MR_TRY(mr__file_source_check(params, st));
    if ((p->o.has_max_skipped || p->o.quarantine) && !skips(p))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tfrecord: max_skipped and quarantine need on_corrupt=\"skip\"");
    if (p->o.quarantine && !*p->o.quarantine)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tfrecord: quarantine must be the path of a folder, but is empty");
    if (p->o.dictionary && !unpacks(p))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tfrecord: a dictionary needs record_compression=\"ZSTD\"");
    if (p->o.dictionary && !*p->o.dictionary)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tfrecord: dictionary must be the path of a file, but is empty");
    if (r->n == 0)
        return MR_OK;
    if (r->n != 2 || r->v[1] < 1 || r->v[0] < 0 || r->v[0] >= r->v[1] || r->v[1] > MOST_PARTS)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "tfrecord: record_range must be [i, n], part i of n, with 0 <= i < n <= %lld",
            (long long)MOST_PARTS);
    if (p->o.num_parallel_reads)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tfrecord: a record_range is read file after file; omit num_parallel_reads");
    if (p->o.compression && *p->o.compression)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tfrecord: a record_range needs the files' indexes, which compressed files "
                       "do not have");
    return MR_OK;
}

const mr_op mr_op_tfrecord = {
    .abi = MR_ABI_VERSION,
    .name = "tfrecord",
    .doc = "The records of TFRecord files, checksums verified.",
    .example = "tfrecord(\"train-*.tfrecord\", num_parallel_reads=4)",
    .order_doc = "by file, then by record; with num_parallel_reads a record of each file in turn",
    .memory_doc = "the current chunk of each open file, and its read-ahead",
    .state_doc = "file and offset",
    .count_doc = "the number of records if all files have an index, else unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_FILES,
    .props = MR_OP_LATE_COUNT,
    .kind = &kind,
    .check = check,
    .cardinality = mr__file_source_cardinality,
    .infer = mr__file_infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .skip = skip,
    .indexed = indexed,
    .count = mr__file_source_count,
    .at = at,
    .save_shared = mr__file_list_save_shared,
    .restore_shared = mr__file_list_restore_shared,
};

mr_dataset *mr_tfrecord(const char *const *files, size_t n, const mr_tfrecord_opts *opts)
{
    struct params p = {0};
    if (opts)
        p.o = *opts;
    return mr__file_names_dataset(&mr_op_tfrecord, &p, files, n, p.o.paths);
}
