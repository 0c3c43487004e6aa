/* SPDX-License-Identifier: Apache-2.0 */
/* Emits all records of files in one random order, reading each by random access through the files'
 * indexes. The input is the reader of the files: it is opened, but never pulled.
 *
 * The order is a permutation that is computed, not stored (engine/permutation.h): a position
 * consists of its pair of words and the number of records passed. A few hundred records are read at
 * a time; records that were read and not delivered are read again after a restore.
 *
 * The input may also be a range, whose numbers are computed: they are the indexes of anything.
 *
 * Each iterator draws its pair as shuffle does. */
#include "pipeline/ops/sequence.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/engine/op_source.h"
#include "pipeline/engine/permutation.h"
#include "pipeline/files/read_scattered.h"
#include "pipeline/formats/tfrecord/tfrecord_walk.h"
#include "pipeline/streams/sources/zstd_record_rows.h"
#include "pipeline/streams/seeds.h"

enum { MOST_ROWS = 256, MOST_BYTES = 1 << 20, FIRST_ROWS = 8 };

struct params {
    mr_global_shuffle_opts o;
};

struct state {
    uint64_t pair[2];
    mr__permutation order;
    bool ordered, failed;
    const mr__record_set *records; /* the input's; NULL: it is a range */
    uint64_t first, step;          /* of a range */
    uint64_t begin, n;             /* the records to emit: n from `begin` on */
    uint64_t n_saved;              /* with has_saved: n of the restored position */
    bool has_saved;
    uint64_t at;  /* records delivered, failed ones counted */
    size_t batch; /* how many to read next */
    mr__scattered *files;
    mr_block rows; /* read, and not delivered from row `row` on */
    size_t row;
    mr_status error; /* with has_error: of the record after them */
    bool has_error;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    s->batch = FIRST_ROWS;
    return mr__seeds_draw(it, p->o.has_seed ? &p->o.seed : NULL,
                          p->o.reshuffle_each_iteration != MR_NO, s->pair, st);
}

static void drop_rows(struct state *s)
{
    mr_block_reset(&s->rows);
    s->row = 0;
    s->has_error = false;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    drop_rows(s);
    mr__scattered_close(s->files);
}

static bool is_range(const mr_dataset *ds)
{
    return mr_dataset_op(ds)->props & MR_OP_IS_RANGE;
}

static mr_code number_of(const mr_dataset *range, const char *param, mr_value *v, mr_status *st)
{
    *v = (mr_value){0};
    return mr_dataset_param_named(range, param, v, st); /* a number holds no memory */
}

static mr_code find_numbers(struct state *s, const mr_dataset *range, uint64_t *end, mr_status *st)
{
    mr_value start, stop, step;
    MR_TRY(number_of(range, "start", &start, st));
    MR_TRY(number_of(range, "stop", &stop, st));
    MR_TRY(number_of(range, "step", &step, st));
    s->first = stop.kind == MR_V_INT ? (uint64_t)start.i : 0;
    s->step = step.kind == MR_V_INT ? (uint64_t)step.i : 1;
    *end = (uint64_t)mr_dataset_cardinality(range);
    return MR_OK;
}

/* Opens the records at the first pull, because a restore may precede it. */
static mr_code prepare(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    const mr_iterator_opts *o = mr_iter_opts(it);
    uint64_t end;
    if (is_range(it->inputs[0]->node))
        MR_TRY(find_numbers(s, it->inputs[0]->node, &end, st));
    else
        MR_TRY(mr__file_source_records(it->inputs[0], &s->records, &s->begin, &end, st));
    s->n = end - s->begin;
    if (s->has_saved && s->n != s->n_saved)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the position was saved with %" PRIu64
                       " records in the files, but now there are %" PRIu64
                       "; restore those files, or start over",
                       s->n_saved, s->n);
    const mr__read_opts r = {.no_uring = mr_iter_no_uring(it),
                             .cancel = mr_iter_cancel(it),
                             .on_read = o->on_read,
                             .on_read_ctx = o->on_read_ctx};
    if (s->records && !s->files)
        MR_TRY(mr__scattered_open(&s->files, s->records->paths, s->records->n_files, &r, st));
    mr__permutation_init(&s->order, s->pair, s->n);
    s->ordered = true;
    return MR_OK;
}

/* ---- reading ---- */

/* Determines the next records. */
typedef struct batch {
    mr__scattered_read reads[MOST_ROWS];
    int64_t records[MOST_ROWS]; /* numbers in their files */
    size_t n, bytes;
} batch;

static void choose(const struct state *s, size_t most, batch *b)
{
    b->n = b->bytes = 0;
    while (b->n < most && s->at + b->n < s->n) {
        uint64_t number = s->begin + mr__permutation_at(&s->order, s->at + b->n);
        size_t file = mr__record_set_find(s->records, number);
        int64_t record = (int64_t)(number - s->records->first[file]), offset, size;
        mr_record_index_at(s->records->indexes[file], record, &offset, &size);
        if (b->n && b->bytes + (size_t)size > MOST_BYTES)
            break;
        b->reads[b->n] = (mr__scattered_read){.file = file, .offset = offset, .size = (size_t)size};
        b->records[b->n++] = record;
        b->bytes += (size_t)size;
    }
}

/* The record that was read, with its framing; or the error in its place. */
static mr_code check_record(mr_iter *it, const batch *b, size_t i, mr_bytes *view, mr_status *st)
{
    const struct state *s = it->state;
    const mr__scattered_read *v = &b->reads[i];
    mr_code rc;
    if (v->err) {
        rc = mr_fail_errno(st, v->err, "cannot read the record");
        if (v->why) {
            rc = v->why->code;
            if (st)
                *st = *v->why;
        }
        mr_iter_fail_open(it->inputs[0], rc, st);
    } else if (v->got < v->size) {
        rc = mr_fail(st, MR_DATA_LOSS, "truncated record at %" PRId64 ": the file ends within it",
                     v->offset);
    } else {
        mr__walk w = {
            .at = v->data, .end = v->data + v->size, .views = view, .max_rows = 1, .max_bytes = 1};
        mr__walk_end why = mr__tfrecord_walk(&w);
        if (w.rows == 1 && w.at == w.end)
            return MR_OK;
        if (w.rows == 0 && why == MR__WALK_BAD_DATA)
            rc = mr_fail(st, MR_DATA_LOSS,
                         "corrupted record at %" PRId64 ": the checksum of its data does not match",
                         v->offset + 12);
        else
            rc = mr_fail(st, MR_FAILED_PRECONDITION,
                         "there is no record of %zu bytes where the index says: the index is "
                         "stale, or the file damaged; make it again with 'millrace index'",
                         v->size - 16);
    }
    mr_status_at(st, s->records->paths[v->file], v->offset, b->records[i]);
    return rc;
}

/* Decompresses the first n frames, up to the first that fails, whose error is kept. *n: the good
 * ones. */
static mr_code unpack(mr_iter *it, const batch *b, size_t *n, mr_status *st)
{
    struct state *s = it->state;
    mr_array *column = &s->rows.columns[0], rows = {0};
    const mr__file_source *source = it->inputs[0]->state;
    size_t done = 0;
    MR_TRY(mr_array_alloc(&rows, MR_STRING, 0, NULL, *n, st));
    mr_code rc = MR_OK;
    for (; done < *n && rc == MR_OK; done++) {
        mr_array one = {0};
        size_t file = b->reads[done].file;
        mr_code good = mr__zstd_record_rows_unpack(it, source->frames, s->records->paths[file],
                                                   (const mr_bytes *)column->data + done, 1, 1,
                                                   &one, &s->error);
        if (good == MR_CANCELLED || (good != MR_OK && mr_status_is_of_no_element(&s->error))) {
            if (st)
                *st = s->error;
            rc = good;
        } else if (good != MR_OK) {
            mr_status_at(&s->error, s->records->paths[file], b->reads[done].offset,
                         b->records[done]);
            s->has_error = true;
            break;
        } else {
            ((mr_bytes *)rows.data)[done] = *(const mr_bytes *)one.data;
            rc = mr_buffer_hold(rows.owner, one.owner, st);
        }
        mr_array_reset(&one);
    }
    if (rc != MR_OK) {
        mr_array_reset(&rows);
        return rc;
    }
    mr_array_reset(column);
    mr_array_move(column, &rows);
    *n = done;
    return MR_OK;
}

static mr_code set_identities(mr_iter *it, const batch *b, mr_block *rows, mr_status *st)
{
    const mr_iter *source = it->inputs[0];
    mr_identity *ids;
    if (!mr_iter_identities(it))
        return MR_OK;
    MR_TRY(mr_identities_alloc(&rows->ids, rows->rows, &ids, st));
    const struct state *s = it->state;
    for (size_t i = 0; i < rows->rows; i++) {
        ids[i] = (mr_identity){.source = source->source,
                               .file = b->reads[i].file,
                               .ordinal = (uint64_t)b->records[i],
                               .epoch = mr_iter_epoch(source)};
        MR_TRY(mr_iter_name_file(it, &ids[i], s->records->paths[b->reads[i].file], st));
    }
    return MR_OK;
}

/* Makes s->rows of the good records up to the first bad one, whose error is kept. */
static mr_code take_in(mr_iter *it, batch *b, mr_buffer *memory, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_block_prepare(&s->rows, 1, st));
    mr_array *column = &s->rows.columns[0];
    MR_TRY(mr_array_alloc(column, MR_STRING, 0, NULL, b->n, st));
    MR_TRY(mr_buffer_hold(column->owner, memory, st));
    mr_bytes *views = column->data;
    size_t n = 0;
    while (n < b->n && check_record(it, b, n, &views[n], &s->error) == MR_OK)
        n++;
    s->has_error = n < b->n;
    if (((const mr__file_source *)it->inputs[0]->state)->frames)
        MR_TRY(unpack(it, b, &n, st));
    column->rows = s->rows.rows = n;
    return set_identities(it, b, &s->rows, st);
}

static mr_code fetch(mr_iter *it, size_t want, mr_status *st)
{
    struct state *s = it->state;
    mr_buffer *memory = NULL;
    batch *b = mr_malloc(sizeof *b);
    if (!b)
        return mr_fail_memory(st, sizeof *b, "reads of records");
    size_t most = want > s->batch ? want : s->batch;
    choose(s, most < MOST_ROWS ? most : MOST_ROWS, b);
    mr_code rc = mr_buffer_alloc(&memory, b->bytes, st);
    uint8_t *to = memory ? mr_buffer_data(memory) : NULL;
    for (size_t i = 0; rc == MR_OK && i < b->n; to += b->reads[i++].size)
        b->reads[i].data = to;
    if (rc == MR_OK)
        rc = mr__scattered_run(s->files, b->reads, b->n, memory, st);
    if (rc == MR_OK)
        rc = take_in(it, b, memory, st);
    if (rc != MR_OK)
        drop_rows(s);
    else if (s->batch < MOST_ROWS) /* the first few elements do not wait for hundreds */
        s->batch *= 2;
    for (size_t i = 0; i < b->n; i++)
        mr_free(b->reads[i].why);
    mr_buffer_unref(memory);
    mr_free(b);
    return rc;
}

static mr_code next_numbers(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    const mr_iter *source = it->inputs[0];
    mr_identity *ids = NULL;
    if (s->at == s->n)
        return MR_END;
    size_t n = s->n - s->at < want ? (size_t)(s->n - s->at) : want;
    n = mr_iter_block_rows(it, n, sizeof(int64_t));
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, n, st));
    if (mr_iter_identities(it))
        MR_TRY(mr_identities_alloc(&out->ids, n, &ids, st));
    int64_t *to = out->columns[0].data;
    for (size_t i = 0; i < n; i++) {
        uint64_t index = mr__permutation_at(&s->order, s->at + i);
        to[i] = (int64_t)(s->first + index * s->step);
        if (ids)
            ids[i] = (mr_identity){
                .source = source->source, .ordinal = index, .epoch = mr_iter_epoch(source)};
    }
    out->rows = n;
    s->at += n;
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (s->failed)
        return MR_END;
    if (!s->ordered) {
        mr_code rc = prepare(it, st);
        if (rc != MR_OK)
            mr_iter_fail_given(it->inputs[0], rc, st);
        s->failed = rc != MR_OK && !mr_status_is_of_no_element(st);
        if (rc != MR_OK)
            return rc;
    }
    if (!s->records)
        return next_numbers(it, want, out, st);
    if (s->row == s->rows.rows && !s->has_error) {
        if (s->at == s->n)
            return MR_END;
        drop_rows(s);
        MR_TRY(fetch(it, want, st));
    }
    size_t left = s->rows.rows - s->row;
    if (left == 0) {
        if (st)
            *st = s->error;
        if (mr_status_is_of_no_element(&s->error))
            drop_rows(s); /* the record is read again */
        else
            s->at++;
        s->has_error = false;
        return s->error.code;
    }
    size_t n = left < want ? left : want;
    n = mr_iter_block_rows(it, n, 1);
    MR_TRY(mr_block_slice(out, &s->rows, s->row, n, st));
    s->row += n;
    s->at += n;
    return MR_OK;
}

/* ---- position: the pair, failed, records delivered, and how many there are if that is known; the
 * input ---- */

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    bool known = s->ordered || s->has_saved;
    MR_TRY(mr_state_put_u64(w, s->pair[0], st));
    MR_TRY(mr_state_put_u64(w, s->pair[1], st));
    MR_TRY(mr_state_put_u64(w, s->failed, st));
    MR_TRY(mr_state_put_u64(w, s->at, st));
    MR_TRY(mr_state_put_u64(w, known, st));
    MR_TRY(mr_state_put_u64(w, s->ordered ? s->n : s->n_saved, st));
    return mr_iter_save_input(it, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t failed, known;
    drop_rows(s);
    mr__scattered_close(s->files); /* its paths are the input's, which may have changed */
    s->files = NULL;
    s->ordered = false;
    MR_TRY(mr_state_get_u64(r, &s->pair[0], st));
    MR_TRY(mr_state_get_u64(r, &s->pair[1], st));
    MR_TRY(mr_state_get_u64(r, &failed, st));
    MR_TRY(mr_state_get_u64(r, &s->at, st));
    MR_TRY(mr_state_get_u64(r, &known, st));
    MR_TRY(mr_state_get_u64(r, &s->n_saved, st));
    s->failed = failed;
    s->has_saved = known;
    if (failed > 1 || known > 1 || (known ? s->at > s->n_saved : s->at > 0))
        return mr_state_damaged(st, "more records were consumed than exist");
    MR_TRY(mr_iter_restore_input(it, 0, r, st));
    return it->inputs[0] ? MR_OK : mr_state_damaged(st, "an input is not open");
}

/* Advances in the order without reading. */
static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    struct state *s = it->state;
    if (s->failed)
        return MR_OK;
    if (!s->ordered) {
        mr_code rc = prepare(it, st);
        s->failed = rc != MR_OK;
        if (rc != MR_OK)
            return rc;
    }
    drop_rows(s);
    *skipped = n < s->n - s->at ? n : s->n - s->at;
    s->at += *skipped;
    return MR_OK;
}

/* The option would be ignored silently: nothing here searches for the next valid record. */
static mr_code refuse_skipping(const mr_dataset *input, mr_status *st)
{
    mr_value v = {0};
    MR_TRY(mr_dataset_param_named(input, "on_corrupt", &v, st));
    bool skips = v.kind == MR_V_STRING && strcmp(v.s, "error") != 0;
    mr_value_reset(&v);
    if (!skips)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "reads records by their indexes and cannot skip to the next one: omit "
                   "on_corrupt=\"skip\" before it; ignore_errors() after it drops damaged records");
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)p;
    mr_dataset *input = mr_dataset_input(self, 0);
    if (!is_range(input)) {
        MR_TRY(mr__file_source_is_indexed(input, st));
        MR_TRY(refuse_skipping(input, st));
    }
    *out = mr_spec_ref(mr_dataset_spec(input));
    return MR_OK;
}

static const mr_param table[] = {MR_OPT(struct params, seed, .flags = MR_P_OPTIONAL | MR_P_NONE,
                                        .has_at = offsetof(struct params, o.has_seed),
                                        .doc = "Fixes the order; drawn at random if absent."),
                                 MR_OPT(struct params, reshuffle_each_iteration,
                                        .flags = MR_P_OPTIONAL, .def.b = true,
                                        .doc = "Draws a new order in each epoch."),
                                 {0}};

const mr_op mr_op_global_shuffle = {
    .abi = MR_ABI_VERSION,
    .name = "global_shuffle",
    .doc = "Emits all records of indexed files, or all numbers of a range, in one random order, "
           "without a buffer.",
    .example = "tfrecord(\"train-*.tfrecord\").global_shuffle(seed=42)",
    .order_doc = "random: a permutation of all records",
    .memory_doc = "the index, and a few hundred records",
    .state_doc = "two numbers and a counter",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_KEEPS_COUNT | MR_OP_RANDOM | MR_OP_SEEKS_INPUT,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .skip = skip,
    .save_shared = mr__seeds_save_shared,
    .restore_shared = mr__seeds_restore_shared,
};

mr_dataset *mr_global_shuffle(mr_dataset *input, const mr_global_shuffle_opts *opts)
{
    struct params p = {0};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_global_shuffle, &p, &input, 1);
}
