/* SPDX-License-Identifier: Apache-2.0 */
/* A block is a run of lines that are rows. It ends before a line that is not a row or fails,
 * which is handled by the next pull. So identities are consecutive, and an error is returned in
 * its place. A position consists of the position of the lines read last and the number of them
 * consumed. */
#include "pipeline/streams/sources/text_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/byte_stream.h"
#include "pipeline/formats/text/line_ends.h"

static const mr__text_kind *kind_of(const mr_iter *it)
{
    return it->op->kind;
}

static const char *features_of(const mr__text_kind *kind, const void *params)
{
    return *(char *const *)((const char *)params + kind->features_at);
}

mr_code mr__text_rows_open(mr_iter *it, mr_status *st)
{
    mr__text_rows *s = it->state;
    MR_TRY(mr__features_parse(it->op->name, features_of(kind_of(it), it->params), kind_of(it)->json,
                              &s->features, st));
    return mr__file_source_open(it, st);
}

static void drop_lines(mr__text_rows *s)
{
    mr_array_reset(&s->lines);
    s->at = 0;
}

static void drop_head(mr__text_rows *s)
{
    mr_buffer_unref(s->head);
    s->head = NULL;
}

void mr__text_rows_close(mr_iter *it)
{
    mr__text_rows *s = it->state;
    drop_lines(s);
    drop_head(s);
    mr__sheet_reset(&s->sheet);
    mr__features_free(s->features);
    mr__file_source_close(it);
}

static const mr_bytes *line_at(const mr__text_rows *s)
{
    return (const mr_bytes *)s->lines.data + s->at;
}

/* Marks the current line as consumed. */
static void take_line(mr__text_rows *s)
{
    const mr_bytes *v = line_at(s);
    const char *p = v->data, *end = p + v->size, *feed = NULL;
    while (p < end && (p = mr__line_end(p, end, &feed)) < end) {
        s->breaks++;
        p = mr__line_next(p, end);
    }
    s->at++;
}

static mr_code read_lines(mr_iter *it, size_t want, mr_status *st)
{
    mr__text_rows *s = it->state;
    drop_lines(s);
    s->breaks_before = s->breaks;
    MR_TRY(mr__file_source_lines(it, want, &s->lines, &s->file, &s->before, st));
    if (s->before.record == 0)
        s->breaks = s->breaks_before = 0;
    return MR_OK;
}

/* Completes the error of the current line with its place. */
static mr_code at_line(mr_iter *it, mr_code rc, mr_status *st)
{
    mr__text_rows *s = it->state;
    uint64_t record = (uint64_t)s->before.record + s->at;
    if (rc != MR_RESOURCE_EXHAUSTED)
        mr_status_prefix(st, "line %" PRIu64, record + 1 + s->breaks);
    mr_status_at(st, mr__file_source_path(&s->source, s->file), -1, (int64_t)record);
    return rc;
}

/* Handles the first line of a file if that is not data. MR_END: it was not data, and is
 * consumed. */
static mr_code begin_file(mr_iter *it, mr_status *st)
{
    mr__text_rows *s = it->state;
    const mr__text_kind *kind = kind_of(it);
    const mr_bytes *line = line_at(s);
    if (!kind->begin || s->before.record + (int64_t)s->at != 0)
        return MR_OK;
    mr_code rc = kind->begin(it, line, st);
    if (rc == MR_END) {
        mr_buffer *head = NULL;
        rc = mr_buffer_alloc(&head, line->size + 1, st);
        if (rc != MR_OK)
            return rc;
        memcpy(mr_buffer_data(head), line->data, line->size);
        drop_head(s);
        s->head = head;
        take_line(s);
        return MR_END;
    }
    if (rc != MR_OK && rc != MR_RESOURCE_EXHAUSTED) {
        at_line(it, rc, st);
        mr__file_source_leave(it);
        drop_lines(s);
    }
    return rc;
}

/* Skips lines after a restore. */
static mr_code skip_lines(mr_iter *it, mr_status *st)
{
    mr__text_rows *s = it->state;
    while (s->skip) {
        if (s->at == s->lines.rows)
            MR_TRY(read_lines(it, (size_t)s->skip, st));
        while (s->skip && s->at < s->lines.rows) {
            take_line(s);
            s->skip--;
        }
    }
    return MR_OK;
}

mr_code mr__text_rows_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr__text_rows *s = it->state;
    size_t first = 0;
    MR_TRY(skip_lines(it, st));
    mr__sheet_reset(&s->sheet);
    while (s->sheet.record == 0) {
        if (s->at == s->lines.rows)
            MR_TRY(read_lines(it, want, st));
        mr_code rc = begin_file(it, st);
        if (rc == MR_END)
            continue;
        if (rc != MR_OK)
            return rc;
        first = s->at;
        size_t most = s->lines.rows - s->at;
        mr_status why;
        mr__sheet_reset(&s->sheet);
        MR_TRY(mr__sheet_start(&s->sheet, s->features, want < most ? want : most, st));
        for (; s->at < s->lines.rows && s->sheet.record < want; take_line(s)) {
            rc = kind_of(it)->parse(it, line_at(s), &why);
            if (rc == MR_OK)
                rc = mr__sheet_next(&s->sheet, true, &why);
            if (rc == MR_OK)
                continue;
            mr__sheet_drop(&s->sheet);
            if (rc != MR_END || s->sheet.record)
                break;
            first = s->at + 1;
        }
        if (rc < MR_OK && s->sheet.record == 0) {
            if (st)
                *st = why;
            if (rc == MR_RESOURCE_EXHAUSTED)
                return rc;
            at_line(it, rc, st);
            take_line(s);
            return rc;
        }
    }
    size_t rows = s->sheet.record;
    mr_code rc = mr_block_prepare(out, s->features->n, st);
    if (rc == MR_OK)
        rc = mr__sheet_finish(&s->sheet, rows, 1, out->columns, st);
    out->rows = rows;
    if (rc == MR_OK)
        rc = mr__file_source_identify(it, out, s->file, (uint64_t)s->before.record + first, st);
    if (rc != MR_OK) { /* for a retry: from the first of the lines on */
        mr_block_clear(out);
        s->skip = first;
        s->at = 0;
        s->breaks = s->breaks_before;
    }
    return rc;
}

/* ---- position: as that of the lines that were read last, then the number of them used, the breaks
 * before them, and the header ---- */

mr_code mr__text_rows_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    mr__text_rows *s = it->state;
    bool pending = s->at < s->lines.rows;
    MR_TRY(mr__file_source_save_at(it, pending ? &s->before : NULL, s->file, w, st));
    MR_TRY(mr_state_put_u64(w, (pending ? s->at : 0) + s->skip, st));
    MR_TRY(mr_state_put_u64(w, pending ? s->breaks_before : s->breaks, st));
    return mr_state_put_bytes(w, s->head ? mr_buffer_data(s->head) : "",
                              s->head ? mr_buffer_size(s->head) : 0, st);
}

mr_code mr__text_rows_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    mr__text_rows *s = it->state;
    const void *head;
    size_t n;
    drop_lines(s);
    drop_head(s);
    MR_TRY(mr__file_source_restore(it, r, st));
    MR_TRY(mr_state_get_u64(r, &s->skip, st));
    MR_TRY(mr_state_get_u64(r, &s->breaks, st));
    MR_TRY(mr_state_get_bytes(r, &head, &n, st));
    if (n == 0)
        return MR_OK;
    MR_TRY(mr_buffer_alloc(&s->head, n, st));
    memcpy(mr_buffer_data(s->head), head, n);
    const mr_bytes line = {mr_buffer_data(s->head), n - 1};
    mr_code rc = kind_of(it)->begin ? kind_of(it)->begin(it, &line, st) : MR_OK;
    return rc == MR_END ? MR_OK : rc == MR_OK ? mr_state_damaged(st, "an invalid header") : rc;
}

mr_code mr__text_rows_infer(const mr_dataset *self, const void *params, mr_spec **out,
                            mr_status *st)
{
    const mr_op *op = mr_dataset_op(self);
    const mr__text_kind *kind = op->kind;
    const mr_leaf line = {.dtype = MR_STRING};
    mr__features *features;
    if (mr_param_unknown(self, kind->features_at))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: features decide the type of the elements and must be written out",
                       op->name);
    MR_TRY(mr__features_parse(op->name, features_of(kind, params), kind->json, &features, st));
    mr_code rc = mr__features_spec(features, &line, out, st);
    mr__features_free(features);
    return rc;
}
