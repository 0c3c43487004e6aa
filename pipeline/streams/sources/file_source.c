/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/sources/file_source.h"

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/memory_limit.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/formats/tfrecord/record_index_internal.h"
#include "pipeline/files/read_ahead.h"
#include "pipeline/log.h"
#include "pipeline/remote/remote_object.h"

/* If records are read straight to their final place, a block has all records of a file's chunk:
 * they are hardly processed afterwards, so the L2 cache matters little, and sending a block has
 * a cost. */
enum { BLOCK_BYTES = 256 << 10, LANDED_BYTES = 1 << 20, MOST_LOOKUPS = 1024 };

/* The chunks of interleaved files should fit in the caches together, unless larger reads are
 * worth more. */
#define MOST_CHUNK   ((size_t)512 << 10)
#define ALL_CHUNKS   ((size_t)2 << 20)
#define LEAST_CHUNK  ((size_t)128 << 10)
#define LOOKUP_CHUNK ((size_t)16 << 10) /* around a record that is looked up */

const char *const mr__compression_names[] = {"", "GZIP", "ZLIB", "ZSTD", NULL};

mr_code mr__file_source_open(mr_iter *it, mr_status *st)
{
    (void)st;
    mr__file_source *s = it->state;
    s->names = it->params;
    for (size_t i = 0; i < s->names->n && !s->patterns; i++)
        s->patterns = mr__file_is_pattern(s->names, i);
    /* The first next reports a failure, because a restore may precede it. */
    if (s->patterns && mr__file_list_match(it, s->names, false, &s->list, NULL) != MR_OK)
        s->list = NULL;
    return MR_OK;
}

static void close_file(mr__file_source *s)
{
    mr_reader_close(s->reader);
    s->reader = NULL;
}

void mr__file_source_close(mr_iter *it)
{
    mr__file_source *s = it->state;
    close_file(s);
    mr__file_list_unref(s->list);
    s->list = NULL;
    mr__record_set_unref(s->records);
    s->records = NULL;
    mr_record_index_close(s->index);
    s->index = NULL;
    mr_free(s->marks);
    s->marks = NULL;
}

static size_t n_files(const mr__file_source *s)
{
    return s->list ? s->list->n : s->names->n;
}

const char *mr__file_source_path(const mr__file_source *s, size_t i)
{
    return s->list ? s->list->paths[i] : s->names->v[i].data;
}

/* [i, n] if the op reads part i of n of its records; NULL: it reads all. */
static const int64_t *range_of(const mr__file_kind *kind, const void *params)
{
    const mr_ints *range = (const mr_ints *)((const char *)params + kind->range_at);
    return kind->indexed && range->n ? range->v : NULL;
}

static mr_compression compression_of(const mr__file_kind *kind, const void *params)
{
    mr_compression c;
    mr_compression_find(*(char *const *)((const char *)params + kind->compression_at), &c);
    return c;
}

/* i * total / n, for n of at most 2^31. */
static uint64_t part(uint64_t total, int64_t i, int64_t n)
{
    uint64_t k = (uint64_t)i, m = (uint64_t)n;
    return total / m * k + total % m * k / m;
}

static bool differ(uint64_t a, uint64_t b)
{
    return a && b && a != b;
}

static mr_code fail_replaced(const mr__file_source *s, size_t file, const char *why, mr_status *st)
{
    mr_fail(st, MR_FAILED_PRECONDITION, "%s", why);
    mr_status_at(st, mr__file_source_path(s, file), -1, -1);
    mr_status_of_no_element(st);
    return MR_FAILED_PRECONDITION;
}

static const char since_saved[] = "the object has been replaced since the position was saved; "
                                  "start over to read the new one";

/* Compares the files with those of the position. */
static mr_code check_marks(mr__file_source *s, const mr__record_set *records, mr_status *st)
{
    for (size_t i = 0; s->marks && i < records->n_files; i++)
        if (differ(s->marks[i], records->marks[i]))
            return fail_replaced(s, i, since_saved, st);
    return MR_OK;
}

static mr_code take_records(mr_iter *it, mr_status *st)
{
    mr__file_source *s = it->state;
    size_t n = n_files(s);
    const int64_t *range = range_of(it->op->kind, it->params);
    const char **paths = mr_malloc((n ? n : 1) * sizeof *paths);
    if (!paths)
        return mr_fail_memory(st, n * sizeof *paths, "file names");
    for (size_t i = 0; i < n; i++)
        paths[i] = mr__file_source_path(s, i);
    const mr__file_kind *kind = it->op->kind;
    mr_code rc = kind->count ? mr__record_set_count(it, paths, n, kind->count, &s->records, st)
                             : mr__file_list_records(it, paths, n, &s->records, st);
    mr_free((void *)paths);
    if (rc == MR_OK)
        rc = check_marks(s, s->records, st);
    if (rc != MR_OK) {
        mr__record_set_unref(s->records);
        s->records = NULL;
        return rc;
    }
    uint64_t total = s->records->first[n];
    s->begin = range ? part(total, range[0], range[1]) : 0;
    s->end = range ? part(total, range[0] + 1, range[1]) : total;
    return MR_OK;
}

/* Opens the list of files and, with a range, their records. A failure is the only element, or of
 * no element. */
static mr_code prepare(mr_iter *it, mr_status *st)
{
    mr__file_source *s = it->state;
    mr_code rc = MR_OK;
    if (s->patterns && !s->list)
        rc = mr__file_list_match(it, s->names, false, &s->list, st);
    if (rc == MR_OK && !s->records && range_of(it->op->kind, it->params))
        rc = take_records(it, st);
    if (rc != MR_OK)
        mr_iter_fail_given(it, rc, st);
    s->failed = rc != MR_OK && !mr_status_is_of_no_element(st);
    return rc;
}

/* Bytes of the file in memory at once; 0: the reader's own choice. */
static size_t chunk_of(const mr_iter *it)
{
    size_t bytes = ALL_CHUNKS / mr_iter_in_turn(it);
    if (((const mr__file_source *)it->state)->by_number)
        return LOOKUP_CHUNK;
    if (mr__iterator_internal_of(mr_iter_opts(it))
            ->read_slots) /* large chunks of many files would leave no memory for blocks */
        return mr_iter_in_turn(it) == 1 ? LANDED_BYTES : 0;
    if (bytes > MOST_CHUNK)
        return 0;
    return bytes > LEAST_CHUNK ? bytes : LEAST_CHUNK;
}

mr_code mr__file_source_set_mark(mr__file_source *s, uint64_t mark, mr_status *st)
{
    if (differ(mark, s->mark))
        return fail_replaced(s, s->file, since_saved, st);
    if (s->records && differ(mark, s->records->marks[s->file]))
        return fail_replaced(s, s->file, MR__REPLACED_WHILE_OPEN, st);
    s->mark = mark ? mark : s->mark;
    return MR_OK;
}

static mr_code open_file(mr_iter *it, mr_status *st)
{
    mr__file_source *s = it->state;
    const mr__file_kind *kind = it->op->kind;
    const char *params = it->params;
    const char *path = mr__file_source_path(s, s->file);
    uint64_t mark = 0;
    mr_file_opts o = {.mark = &mark,
                      .own = s->own         ? s->own
                             : kind->own_at ? params + kind->own_at
                                            : NULL,
                      .no_uring = mr_iter_no_uring(it),
                      .cancel = mr_iter_cancel(it),
                      .on_read = mr_iter_opts(it)->on_read,
                      .on_read_ctx = mr_iter_opts(it)->on_read_ctx,
                      .chunk = chunk_of(it),
                      .read_slots = mr__iterator_internal_of(mr_iter_opts(it))->read_slots,
                      .no_ahead =
                          s->by_number || !mr__memory_room(it, MR__READ_DEPTH * MR__READ_SLOT),
                      .compression = compression_of(kind, params)};
    if (kind->detects && o.compression == MR_COMPRESSION_NONE)
        o.compression = MR_COMPRESSION_PROVEN;
    char *whole = NULL;
    mr_code rc = mr_iter_file_path(it, path, &whole, st);
    if (rc == MR_OK)
        rc = mr_reader_open(&s->reader, kind->format, whole, &o, st);
    if (rc == MR_OK)
        rc = mr__file_source_set_mark(s, mark, st);
    if (rc == MR_OK && s->has_resume)
        rc = mr_reader_seek(s->reader, &s->resume, st);
    if (rc != MR_OK)
        mr_iter_fail_open(it, rc, st);
    mr_status_at(st, path, -1, -1);
    mr_free(whole);
    if (rc == MR_OK)
        s->has_resume = false;
    else
        close_file(s);
    return rc;
}

/* The number of the file's records within the range, from the one at *at on. */
static uint64_t left_of_range(mr__file_source *s, const mr_file_position *at)
{
    uint64_t first = s->records->first[s->file], next = s->records->first[s->file + 1];
    uint64_t end = s->end < next ? s->end : next, from = first + (uint64_t)at->record;
    return from < end ? end - from : 0;
}

/* The whole file is outside the range. */
static bool outside(const mr__file_source *s)
{
    const mr__record_set *r = s->records;
    return r && (r->first[s->file + 1] <= s->begin || r->first[s->file] >= s->end);
}

/* A file that is not open yet begins where the range does. */
static void enter_range(mr__file_source *s)
{
    const mr__record_set *r = s->records;
    if (!r || s->reader || s->has_resume || s->begin <= r->first[s->file])
        return;
    int64_t size;
    s->resume = (mr_file_position){.record = (int64_t)(s->begin - r->first[s->file])};
    mr_record_index_at(r->indexes[s->file], s->resume.record, &s->resume.offset, &size);
    s->has_resume = true;
}

static void leave_file(mr__file_source *s)
{
    close_file(s);
    s->has_resume = false;
    s->mark = 0;
    s->file++;
}

void mr__file_source_leave(mr_iter *it)
{
    leave_file(it->state);
}

/* After an error: true if it is of no element, or a cancellation. The source then stays at *at in
 * the file. */
static bool stays(mr__file_source *s, mr_code rc, const mr_file_position *at, mr_status *st)
{
    if (rc == MR_CANCELLED) /* the reader may continue; a pipe would lose what was read ahead */
        return true;
    if (rc == MR_UNIMPLEMENTED) /* a codec or an encoding, which other files will have too */
        mr_status_of_no_element(st);
    if (rc >= 0 || !mr_status_is_of_no_element(st))
        return false;
    if (s->reader) {
        close_file(s);
        s->resume = *at;
        s->has_resume = true;
    }
    return true;
}

/* The next records of the file; *at: the position of the first. */
static mr_code read_file(mr_iter *it, size_t want, mr_array *records, mr_file_position *at,
                         mr_status *st)
{
    mr__file_source *s = it->state;
    enter_range(s);
    if (!s->reader)
        MR_TRY(open_file(it, st));
    mr_reader_position(s->reader, at);
    if (s->records) {
        uint64_t left = left_of_range(s, at);
        if (left == 0)
            return MR_END;
        want = want < left ? want : (size_t)left;
    }
    size_t most =
        mr__iterator_internal_of(mr_iter_opts(it))->read_slots ? LANDED_BYTES : BLOCK_BYTES;
    mr_file_position after;
    MR_TRY(mr_reader_read(s->reader, want, most, records, st));
    mr_reader_position(s->reader, &after);
    s->first = (uint64_t)after.record - records->rows;
    return MR_OK;
}

mr_code mr__file_source_lines(mr_iter *it, size_t want, mr_array *out, size_t *file,
                              mr_file_position *at, mr_status *st)
{
    mr__file_source *s = it->state;
    if (s->failed)
        return MR_END;
    MR_TRY(prepare(it, st));
    for (size_t n = n_files(s); s->file < n;) {
        mr_code rc = outside(s) ? MR_END : read_file(it, want, out, at, st);
        *file = s->file;
        if (rc == MR_OK || stays(s, rc, at, st))
            return rc;
        leave_file(s);
        if (rc != MR_END)
            return rc;
    }
    return MR_END;
}

mr_code mr__file_source_identify(mr_iter *it, mr_block *b, size_t file, uint64_t first,
                                 mr_status *st)
{
    const mr__file_source *s = it->state;
    MR_TRY(n_files(s) == 1 && !s->list ? mr_iter_set_identities_of_file(it, b, first, st)
                                       : mr_iter_set_identities(it, b, file, first, st));
    return mr_iter_name_file(it, b->ids.ids, mr__file_source_path(s, file), st);
}

mr_code mr__file_source_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    size_t file;
    mr_file_position at;
    mr_array records = {0};
    MR_TRY(mr__file_source_lines(it, want, &records, &file, &at, st));
    mr_code rc = mr_block_prepare(out, 1, st);
    if (rc != MR_OK) {
        mr_array_reset(&records);
        leave_file(it->state);
        return rc;
    }
    out->rows = records.rows;
    mr_array_move(&out->columns[0], &records);
    return mr__file_source_identify(it, out, file, ((mr__file_source *)it->state)->first, st);
}

/* ---- by index ---- */

/* The index of a file, for callers that do not require it: its errors are only logged. */
static mr_record_index *try_index(const char *path)
{
    mr_record_index *index = NULL;
    mr_status st;
    mr_code rc = mr_record_index_open(&index, path, &st);
    if (rc != MR_OK && rc != MR_NOT_FOUND) {
        char text[1024];
        mr_status_format(&st, text, sizeof text);
        mr_log(MR_LOG_WARNING, "%s (until then it is not used)", text);
    }
    return index;
}

/* The index of the current file; NULL: no usable index. */
static const mr_record_index *index_of(mr_iter *it)
{
    mr__file_source *s = it->state;
    char *whole = NULL;
    if (s->records)
        return s->records->indexes[s->file];
    if (s->has_indexed_file && s->indexed_file == s->file)
        return s->index;
    mr_record_index_close(s->index);
    s->index = NULL;
    if (mr_iter_file_path(it, mr__file_source_path(s, s->file), &whole, NULL) == MR_OK)
        s->index = try_index(whole);
    mr_free(whole);
    s->indexed_file = s->file;
    s->has_indexed_file = true;
    return s->index;
}

/* Seeks to record `to` of the file. */
static mr_code go_to(mr__file_source *s, const mr_record_index *index, int64_t to, mr_status *st)
{
    int64_t size;
    mr_file_position at = {.record = to};
    mr_record_index_at(index, to, &at.offset, &size);
    if (s->reader)
        return mr_reader_seek(s->reader, &at, st);
    s->resume = at;
    s->has_resume = true;
    return MR_OK;
}

/* Skips up to n records of the current file. */
static mr_code skip_in_file(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    mr__file_source *s = it->state;
    mr_file_position at = {0};
    enter_range(s);
    if (s->reader)
        mr_reader_position(s->reader, &at);
    else if (s->has_resume)
        at = s->resume;
    const mr_record_index *index = index_of(it);
    int64_t count = index ? mr_record_index_count(index) : 0;
    if (!index || at.ended || at.record > count)
        return MR_END;
    MR_TRY(mr__file_source_set_mark(s, mr__record_index_mark(index), st));
    uint64_t left = s->records ? left_of_range(s, &at) : (uint64_t)(count - at.record);
    if (n < left) {
        mr_code rc = go_to(s, index, at.record + (int64_t)n, st);
        *skipped = rc == MR_OK ? n : 0;
        if (rc != MR_OK && !stays(s, rc, &at, st))
            leave_file(s);
        return rc;
    }
    *skipped = left;
    leave_file(s);
    return MR_OK;
}

/* Uses readers that can skip records without reading them. */
static mr_code skip_by_reader(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    mr__file_source *s = it->state;
    mr_code rc = MR_OK;
    while (rc == MR_OK && *skipped < n && s->file < n_files(s)) {
        uint64_t left = n - *skipped;
        int64_t more = 0;
        mr_file_position at = {0};
        if (!s->reader)
            rc = open_file(it, st);
        if (rc == MR_OK) {
            mr_reader_position(s->reader, &at);
            rc = mr_reader_skip(s->reader, left < INT64_MAX ? (int64_t)left : INT64_MAX, &more, st);
        }
        if (stays(s, rc, &at, st))
            return rc;
        *skipped += (uint64_t)more;
        if (rc != MR_OK || *skipped < n)
            leave_file(s);
    }
    return rc;
}

mr_code mr__file_source_skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    mr__file_source *s = it->state;
    const mr__file_kind *kind = it->op->kind;
    if (!s->failed && kind->skips) {
        MR_TRY(prepare(it, st));
        return skip_by_reader(it, n, skipped, st);
    }
    if (s->failed || !kind->indexed || compression_of(kind, it->params) != MR_COMPRESSION_NONE)
        return MR_OK;
    MR_TRY(prepare(it, st));
    mr_code rc = MR_OK;
    while (rc == MR_OK && *skipped < n && s->file < n_files(s)) {
        uint64_t more = 0;
        if (outside(s)) {
            leave_file(s);
            continue;
        }
        rc = skip_in_file(it, n - *skipped, &more, st);
        *skipped += more;
    }
    return rc == MR_END ? MR_OK : rc; /* MR_END: from here on by reading */
}

int64_t mr__file_source_cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    (void)in;
    const mr__file_kind *kind = mr_dataset_op(self)->kind;
    const int64_t *range = range_of(kind, params);
    mr__file_list *l = NULL;
    uint64_t total = 0;
    if (compression_of(kind, params) != MR_COMPRESSION_NONE ||
        mr__file_list_look(params, &l, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    size_t i = 0;
    for (; i < l->n; i++) {
        mr_record_index *index = try_index(l->paths[i]);
        if (!index)
            break;
        total += (uint64_t)mr_record_index_count(index);
        mr_record_index_close(index);
    }
    bool all = i == l->n;
    mr__file_list_unref(l);
    if (!all)
        return MR_UNKNOWN_COUNT;
    return (int64_t)(range ? part(total, range[0] + 1, range[1]) - part(total, range[0], range[1])
                           : total);
}

mr_code mr__file_source_is_indexed(const mr_dataset *ds, const void *params, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    const mr__file_kind *kind = op->kind;
    if (!mr_param_unknown(ds, kind->compression_at) &&
        compression_of(kind, params) != MR_COMPRESSION_NONE)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "compressed files are read from their beginning");
    for (const mr_param *p = op->params; p->name; p++)
        if ((p->flags & MR_P_READS) && *(const int64_t *)((const char *)params + p->at) != 0)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "its order is that of files that are read at once; omit %s", p->name);
    return MR_OK;
}

/* The records of the files, borrowed until the iterator is closed, and the range [*begin, *end) of
 * them that it emits. */
static mr_code records_of(mr_iter *it, const mr__record_set **out, uint64_t *begin, uint64_t *end,
                          mr_status *st)
{
    mr__file_source *s = it->state;
    if (s->patterns && !s->list)
        MR_TRY(mr__file_list_match(it, s->names, false, &s->list, st));
    if (!s->records)
        MR_TRY(take_records(it, st));
    *out = s->records;
    *begin = s->begin;
    *end = s->end;
    return MR_OK;
}

mr_code mr__file_source_count(mr_iter *it, uint64_t *n, mr_status *st)
{
    const mr__record_set *records;
    uint64_t begin = 0, end = 0;
    mr_code rc = records_of(it, &records, &begin, &end, st);
    *n = end - begin;
    if (rc != MR_OK)
        mr_iter_fail_given(it, rc, st);
    return rc;
}

size_t mr__file_source_place(const mr__file_source *s, uint64_t number, int64_t *record)
{
    number += s->begin;
    size_t file = mr__record_set_find(s->records, number);
    *record = (int64_t)(number - s->records->first[file]);
    return file;
}

static mr_code seek_record(mr_iter *it, uint64_t to, mr_status *st)
{
    mr__file_source *s = it->state;
    mr_file_position at = {0};
    size_t file = mr__file_source_place(s, to, &at.record);
    s->failed = false;
    s->by_number = true;
    if (s->reader && s->file == file && mr_reader_seek(s->reader, &at, st) == MR_OK)
        return MR_OK;
    close_file(s);
    s->file = file;
    s->resume = at;
    s->has_resume = true;
    s->mark = 0;
    return MR_OK;
}

mr_code mr__file_source_at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out,
                           mr_status *st)
{
    return mr_iter_at_by_seeking(it, seek_record, index, n < MOST_LOOKUPS ? n : MOST_LOOKUPS, out,
                                 st);
}

int64_t mr__file_source_counted(const mr_dataset *self, const void *params, const int64_t *in)
{
    const mr__file_kind *kind = mr_dataset_op(self)->kind;
    mr__file_list *l = NULL;
    int64_t total = 0, n;
    uint64_t mark;
    (void)in;
    if (compression_of(kind, params) != MR_COMPRESSION_NONE ||
        mr__file_list_look(params, &l, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    for (size_t i = 0; i < l->n && total >= 0; i++)
        if (kind->count(params, l->paths[i], &n, &mark, NULL) != MR_OK ||
            __builtin_add_overflow(total, n, &total))
            total = MR_UNKNOWN_COUNT;
    mr__file_list_unref(l);
    return total;
}

/* ---- position: file, 0; or file, 1, offset, record, ended ----
 * Added to the second number: 2, the file failed; 4, its mark follows; 8, before that the marks of
 * all files, whose records are known by their numbers. */

static const uint64_t *marks_of(const mr__file_source *s)
{
    const uint64_t *v = s->records ? s->records->marks : s->marks;
    for (size_t i = 0; v && i < n_files(s); i++)
        if (v[i])
            return v;
    return NULL;
}

mr_code mr__file_source_save_at(mr_iter *it, const mr_file_position *from, size_t file,
                                mr_state_w *w, mr_status *st)
{
    const mr__file_source *s = it->state;
    mr_file_position at = from ? *from : s->resume;
    if (s->reader && !from)
        mr_reader_position(s->reader, &at);
    bool inside = from || s->reader || s->has_resume;
    uint64_t mark = inside ? s->mark : 0;
    const uint64_t *marks = marks_of(s);
    MR_TRY(mr_state_put_u64(w, from ? file : s->file, st));
    MR_TRY(mr_state_put_u64(w, inside | (uint64_t)s->failed << 1 | (mark ? 4 : 0) | (marks ? 8 : 0),
                            st));
    for (size_t i = 0; marks && i < n_files(s); i++)
        MR_TRY(mr_state_put_u64(w, marks[i], st));
    if (!inside)
        return MR_OK;
    if (mark)
        MR_TRY(mr_state_put_u64(w, mark, st));
    MR_TRY(mr_state_put_i64(w, at.offset, st));
    MR_TRY(mr_state_put_i64(w, at.record, st));
    return mr_state_put_u64(w, at.ended, st);
}

mr_code mr__file_source_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    return mr__file_source_save_at(it, NULL, 0, w, st);
}

static mr_code get_marks(mr__file_source *s, size_t n, mr_state_r *r, mr_status *st)
{
    s->marks = mr_calloc(n + 1, sizeof *s->marks);
    if (!s->marks)
        return mr_fail_memory(st, n * sizeof *s->marks, "a position");
    for (size_t i = 0; i < n; i++)
        MR_TRY(mr_state_get_u64(r, &s->marks[i], st));
    return MR_OK;
}

static mr_code damaged(mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: invalid place in the files");
}

mr_code mr__file_source_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    mr__file_source *s = it->state;
    uint64_t file, flags, ended;
    close_file(s);
    mr__record_set_unref(s->records);
    s->records = NULL;
    mr_free(s->marks);
    s->marks = NULL;
    s->has_indexed_file = false;
    if (s->patterns) { /* as in the list of the position */
        mr__file_list_unref(s->list);
        MR_TRY(mr__file_list_rematch(it, s->names, false, &s->list, st));
    }
    size_t n = s->list ? s->list->n : s->patterns ? 0 : s->names->n;
    MR_TRY(mr_state_get_u64(r, &file, st));
    MR_TRY(mr_state_get_u64(r, &flags, st));
    if (file > n || flags > 15 || (flags & 5) == 4)
        return damaged(st);
    s->file = (size_t)file;
    s->failed = flags & 2;
    s->has_resume = flags & 1;
    s->mark = 0;
    if (flags & 8)
        MR_TRY(get_marks(s, n, r, st));
    if (!s->has_resume)
        return MR_OK;
    if (flags & 4)
        MR_TRY(mr_state_get_u64(r, &s->mark, st));
    MR_TRY(mr_state_get_i64(r, &s->resume.offset, st));
    MR_TRY(mr_state_get_i64(r, &s->resume.record, st));
    MR_TRY(mr_state_get_u64(r, &ended, st));
    s->resume.ended = ended;
    if (s->resume.offset < 0 || s->resume.record < 0 || ended > 1 || file == n)
        return damaged(st);
    return MR_OK;
}

mr_code mr__file_source_check(const void *params, mr_status *st)
{
    return mr__file_names_check(params, st);
}
