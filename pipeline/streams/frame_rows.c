/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/frame_rows.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/files/whole_file.h"
#include "pipeline/formats/generation.h"

enum { BLOCK_BYTES = 256 << 10 };

/* ---- dictionaries ---- */

/* The path of the dictionary for frames of a file; owned. NULL: it has none that is known. */
static mr_code dictionary_path(mr_iter *it, const mr__frame_rows *f, const char *path, char **out,
                               mr_status *st)
{
    static const char ending[] = ".dict";
    size_t n = mr__shard_prefix(path);
    *out = NULL;
    if (f->dictionary)
        return mr_iter_file_path(it, f->dictionary, out, st);
    if (n == 0)
        return MR_OK;
    char *beside = mr_malloc(n + sizeof ending);
    if (!beside)
        return mr_fail_memory(st, n, "a file name");
    memcpy(beside, path, n);
    memcpy(beside + n, ending, sizeof ending);
    mr_code rc = mr_iter_file_path(it, beside, out, st);
    mr_free(beside);
    return rc;
}

/* A reader with the dictionary at path (taken over; NULL: with none) in the place of f's. */
static mr_code load(mr_iter *it, mr__frame_rows *f, char *path, mr_status *st)
{
    mr_buffer *bytes = NULL;
    size_t n = 0;
    mr__frame_reader *r = NULL;
    mr_code rc =
        path ? mr__whole_file(path, MR__LIST_MOST, mr_iter_cancel(it), &bytes, &n, st) : MR_OK;
    if (rc == MR_OK && path && n == 0)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "the dictionary %s is empty", path);
    if (rc == MR_OK) {
        rc = mr__frame_reader_open(&r, bytes ? mr_buffer_data(bytes) : NULL, n, st);
        if (rc != MR_OK && path)
            mr_status_prefix(st, "%s", path);
    }
    mr_buffer_unref(bytes);
    if (rc != MR_OK) {
        mr_free(path);
        return rc;
    }
    mr__frame_reader_close(f->reader);
    mr_free(f->loaded);
    f->reader = r;
    f->loaded = path;
    return MR_OK;
}

/* f->reader can read frames that name dictionary `id`, of the file `path`. */
static mr_code prepare(mr_iter *it, mr__frame_rows *f, const char *path, uint32_t id, mr_status *st)
{
    char *where = NULL;
    if (!f->reader && (f->dictionary || !id)) {
        if (f->dictionary)
            MR_TRY(dictionary_path(it, f, path, &where, st));
        MR_TRY(load(it, f, where, st));
    }
    if (!id || (f->reader && mr__frame_reader_dictionary(f->reader) == id))
        return MR_OK;
    if (!f->dictionary) {
        MR_TRY(dictionary_path(it, f, path, &where, st));
        if (!where)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "the record was compressed with dictionary %" PRIu32
                           "; say where that is: dictionary=\"PREFIX.dict\"",
                           id);
        mr_code rc = load(it, f, where, st);
        if (rc != MR_OK) {
            mr_status_prefix(st, "the record was compressed with dictionary %" PRIu32, id);
            return rc;
        }
    }
    uint32_t has = mr__frame_reader_dictionary(f->reader);
    return has == id ? MR_OK
                     : mr_fail(st, MR_FAILED_PRECONDITION,
                               "the record was compressed with dictionary %" PRIu32
                               ", and %s is dictionary %" PRIu32,
                               id, f->loaded, has);
}

/* ---- unpacking ---- */

mr_code mr__frame_rows_unpack(mr_iter *it, mr__frame_rows *f, const char *path,
                              const mr_bytes *frames, size_t n, size_t most, mr_array *out,
                              mr_status *st)
{
    size_t rows = 0, total = 0, room = 0, done = 0;
    mr_buffer *text = NULL;
    for (; rows < n && total < most; rows++, total += room)
        if (mr__frame_room(&frames[rows], &room, rows ? NULL : st) != MR_OK)
            break;
    if (rows == 0) /* with the message */
        return mr__frame_room(&frames[0], &room, st);
    MR_TRY(mr_array_alloc(out, MR_STRING, 0, NULL, rows, st));
    mr_code rc = mr_buffer_alloc(&text, total, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(out->owner, text, st);
    char *to = text ? mr_buffer_data(text) : NULL;
    size_t left = total;
    for (; done < rows && rc == MR_OK; done++) {
        mr_status why;
        mr_bytes *v = &((mr_bytes *)out->data)[done];
        mr_code one = prepare(it, f, path, mr__frame_dictionary(&frames[done]), &why);
        if (one == MR_OK)
            one = mr__frame_read(f->reader, &frames[done], to, left, &v->size, &why);
        if (one != MR_OK && done > 0 && one != MR_CANCELLED)
            break; /* it comes again as the first */
        if (one != MR_OK && st)
            *st = why;
        rc = one;
        v->data = to;
        to += rc == MR_OK ? v->size : 0;
        left -= rc == MR_OK ? v->size : 0;
    }
    mr_buffer_unref(text);
    out->rows = done;
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

/* ---- slots ---- */

static void drop_records(mr__frame_rows *f)
{
    mr_array_reset(&f->records);
    f->at = 0;
}

void mr__frame_rows_close(mr__frame_rows *f)
{
    drop_records(f);
    mr__frame_reader_close(f->reader);
    f->reader = NULL;
    mr_free(f->loaded);
    f->loaded = NULL;
}

bool mr__frame_rows_pending(const mr__frame_rows *f)
{
    return f->at < f->records.rows || f->skip;
}

uint64_t mr__frame_rows_skipped(const mr__frame_rows *f)
{
    return f->at < f->records.rows ? f->skipped_before + f->passed : *f->skipped;
}

static mr_code read_records(mr_iter *it, mr__frame_rows *f, size_t want, mr_status *st)
{
    drop_records(f);
    f->skipped_before = f->skipped ? *f->skipped : 0;
    f->passed = 0;
    MR_TRY(mr__file_source_lines(it, want, &f->records, &f->file, &f->before, st));
    f->first = ((const mr__file_source *)it->state)->first;
    return MR_OK;
}

/* The record at hand cannot be unpacked, as *why says: its error, or MR_OK: it is passed. */
static mr_code fail_record(mr_iter *it, mr__frame_rows *f, const mr_status *why, mr_status *st)
{
    const mr_bytes *frame = (const mr_bytes *)f->records.data + f->at;
    const char *path = mr__file_source_path(it->state, f->file);
    mr_status e = *why;
    mr_buffer_locate(f->records.owner, frame->data, &e);
    mr_status_at(&e, path, -1, (int64_t)(f->first + f->at));
    f->at++;
    if (e.code == MR_DATA_LOSS && f->damage) {
        /* The record's framing lies around its data. */
        enum { HEAD = 12, FRAMING = 16 };
        const mr_tfrecord_damage d = {.path = path,
                                      .record = e.record,
                                      .offset = e.offset,
                                      .end = e.offset + (int64_t)frame->size + FRAMING,
                                      .what = why->message};
        const mr_tfrecord_read_opts *o = f->damage;
        mr_code rc = MR_OK;
        if (o->bytes)
            rc = o->bytes(o->ctx, &d, frame->data - HEAD, frame->size + FRAMING, st);
        if (rc == MR_OK)
            rc = o->skipped(o->ctx, &d, st);
        f->passed += rc == MR_OK;
        if (rc != MR_OK) {
            drop_records(f);
            mr__file_source_leave(it);
        }
        return rc;
    }
    if (st)
        *st = e;
    return e.code;
}

/* Reads over what was used before the position. */
static mr_code go_on(mr_iter *it, mr__frame_rows *f, mr_status *st)
{
    while (f->skip) {
        if (f->at == f->records.rows)
            MR_TRY(read_records(it, f, (size_t)f->skip, st));
        size_t left = f->records.rows - f->at, n = f->skip < left ? (size_t)f->skip : left;
        f->at += n;
        f->skip -= n;
    }
    return MR_OK;
}

mr_code mr__frame_rows_next(mr_iter *it, mr__frame_rows *f, size_t want, mr_block *out,
                            mr_status *st)
{
    mr_array rows = {0};
    mr_status why;
    MR_TRY(go_on(it, f, st));
    for (mr_code rc = MR_END; rc != MR_OK;) {
        if (f->at == f->records.rows)
            MR_TRY(read_records(it, f, want, st));
        size_t left = f->records.rows - f->at;
        const mr_bytes *frames = (const mr_bytes *)f->records.data + f->at;
        rc = mr__frame_rows_unpack(it, f, mr__file_source_path(it->state, f->file), frames,
                                   want < left ? want : left, BLOCK_BYTES, &rows, &why);
        /* For lack of memory, or cancelled: it may be tried again. */
        size_t room;
        if (rc == MR_CANCELLED ||
            (rc == MR_RESOURCE_EXHAUSTED && mr__frame_room(frames, &room, NULL) == MR_OK)) {
            if (st)
                *st = why;
            return rc;
        }
        if (rc != MR_OK)
            MR_TRY(fail_record(it, f, &why, st));
    }
    mr_code rc = mr_block_prepare(out, 1, st);
    if (rc != MR_OK) {
        mr_array_reset(&rows);
        return rc;
    }
    out->rows = rows.rows;
    mr_array_move(&out->columns[0], &rows);
    rc = mr__file_source_identify(it, out, f->file, f->first + f->at, st);
    if (rc == MR_OK)
        f->at += out->rows;
    return rc;
}

/* ---- position: as that of the records that were read last, then the number of them used ---- */

mr_code mr__frame_rows_save(mr_iter *it, mr__frame_rows *f, mr_state_w *w, mr_status *st)
{
    bool pending = f->at < f->records.rows;
    MR_TRY(mr__file_source_save_at(it, pending ? &f->before : NULL, f->file, w, st));
    return mr_state_put_u64(w, (pending ? f->at : 0) + f->skip, st);
}

mr_code mr__frame_rows_restore(mr_iter *it, mr__frame_rows *f, mr_state_r *r, mr_status *st)
{
    drop_records(f);
    MR_TRY(mr__file_source_restore(it, r, st));
    return mr_state_get_u64(r, &f->skip, st);
}
