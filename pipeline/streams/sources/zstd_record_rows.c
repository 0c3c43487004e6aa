/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/sources/zstd_record_rows.h"

#include "pipeline/engine/op_source.h"
#include "pipeline/formats/tfrecord/zstd_records_impl.h"

enum { BLOCK_BYTES = 256 << 10 };

static mr_code open_frames(mr_iter *it, mr__zstd_record_rows *f, mr_status *st)
{
    char *dictionary = NULL;
    if (f->frames)
        return MR_OK;
    if (f->dictionary)
        MR_TRY(mr_iter_file_path(it, f->dictionary, &dictionary, st));
    mr_code rc = mr_zstd_records_open(&f->frames, dictionary, mr_iter_cancel(it), st);
    mr_free(dictionary);
    if (rc != MR_OK) /* no record can be read */
        mr_status_of_no_element(st);
    return rc;
}

mr_code mr__zstd_record_rows_unpack(mr_iter *it, mr__zstd_record_rows *f, const char *path,
                                    const mr_bytes *frames, size_t n, size_t most, mr_array *out,
                                    mr_status *st)
{
    char *whole = NULL;
    MR_TRY(open_frames(it, f, st));
    MR_TRY(mr_iter_file_path(it, path, &whole, st));
    mr_code rc = mr_zstd_records_read(f->frames, whole, frames, n, most, out, st);
    if (rc != MR_OK) /* perhaps of the file of a dictionary */
        mr_iter_fail_open(it, rc, st);
    mr_free(whole);
    return rc;
}

/* ---- slots ---- */

static void drop_records(mr__zstd_record_rows *f)
{
    mr_array_reset(&f->records);
    f->at = 0;
}

void mr__zstd_record_rows_close(mr__zstd_record_rows *f)
{
    drop_records(f);
    mr_zstd_records_close(f->frames);
    f->frames = NULL;
}

bool mr__zstd_record_rows_pending(const mr__zstd_record_rows *f)
{
    return f->at < f->records.rows || f->skip;
}

uint64_t mr__zstd_record_rows_skipped(const mr__zstd_record_rows *f)
{
    return f->at < f->records.rows ? f->skipped_before + f->passed : *f->skipped;
}

static mr_code read_records(mr_iter *it, mr__zstd_record_rows *f, size_t want, mr_status *st)
{
    drop_records(f);
    f->skipped_before = f->skipped ? *f->skipped : 0;
    f->passed = 0;
    MR_TRY(mr__file_source_lines(it, want, &f->records, &f->file, &f->before, st));
    f->first = ((const mr__file_source *)it->state)->first;
    return MR_OK;
}

/* The current record cannot be decompressed because of *why: returns its error, or MR_OK if it
 * is skipped. */
static mr_code fail_record(mr_iter *it, mr__zstd_record_rows *f, const mr_status *why,
                           mr_status *st)
{
    const mr_bytes *frame = (const mr_bytes *)f->records.data + f->at;
    const char *path = mr__file_source_path(it->state, f->file);
    mr_status e = *why;
    mr_buffer_locate(f->records.owner, frame->data, &e);
    mr_status_at(&e, path, -1, (int64_t)(f->first + f->at));
    f->at++;
    if (e.code == MR_DATA_LOSS && f->damage) {
        /* The record's framing surrounds its data. */
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

/* Skips the records consumed before the position. */
static mr_code go_on(mr_iter *it, mr__zstd_record_rows *f, mr_status *st)
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

mr_code mr__zstd_record_rows_next(mr_iter *it, mr__zstd_record_rows *f, size_t want, mr_block *out,
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
        rc = mr__zstd_record_rows_unpack(it, f, mr__file_source_path(it->state, f->file), frames,
                                         want < left ? want : left, BLOCK_BYTES, &rows, &why);
        if (rc == MR_CANCELLED || (rc != MR_OK && mr_status_is_of_no_element(&why))) {
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

mr_code mr__zstd_record_rows_save(mr_iter *it, mr__zstd_record_rows *f, mr_state_w *w,
                                  mr_status *st)
{
    bool pending = f->at < f->records.rows;
    MR_TRY(mr__file_source_save_at(it, pending ? &f->before : NULL, f->file, w, st));
    return mr_state_put_u64(w, (pending ? f->at : 0) + f->skip, st);
}

mr_code mr__zstd_record_rows_restore(mr_iter *it, mr__zstd_record_rows *f, mr_state_r *r,
                                     mr_status *st)
{
    drop_records(f);
    MR_TRY(mr__file_source_restore(it, r, st));
    return mr_state_get_u64(r, &f->skip, st);
}
