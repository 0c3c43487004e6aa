/* SPDX-License-Identifier: Apache-2.0 */
/* State of a cursor:
 *   0, the input's state                       nothing is left
 *   1, tag (bytes), rows used up               rows are left, and can be read again
 *   2, the rows left, the input's state        rows are left, and cannot */
#include "pipeline/ops/cursor.h"

#include <inttypes.h>

enum { NOTHING_LEFT, TAGGED, ROWS_SAVED };

mr_code mr__cursor_pull(mr_iter *it, size_t i, size_t want, mr_cursor *c, mr_status *st)
{
    mr__cursor_reset(c);
    if (mr_iter_positions(it) && mr_iter_replays(it->inputs[i]))
        MR_TRY(mr_iter_tag(it->inputs[i], &c->tag, st));
    return mr_iter_pull(it, i, want, &c->rows, st);
}

void mr__cursor_use(mr_cursor *c, size_t n)
{
    c->at += n;
    if (c->at >= c->rows.rows)
        mr__cursor_reset(c);
}

void mr__cursor_reset(mr_cursor *c)
{
    mr_block_clear(&c->rows);
    mr_buffer_unref(c->tag);
    c->tag = NULL;
    c->at = 0;
}

mr_code mr__cursor_save(mr_iter *it, size_t i, const mr_cursor *c, mr_state_w *w, mr_status *st)
{
    if (mr__cursor_left(c) == 0) {
        MR_TRY(mr_state_put_u64(w, NOTHING_LEFT, st));
        return mr_iter_save_input(it, i, w, st);
    }
    if (c->tag && mr_iter_replays(it->inputs[i])) {
        MR_TRY(mr_state_put_u64(w, TAGGED, st));
        MR_TRY(mr_state_put_bytes(w, mr_buffer_data(c->tag), mr_buffer_size(c->tag), st));
        return mr_state_put_u64(w, c->at, st);
    }
    MR_TRY(mr_state_put_u64(w, ROWS_SAVED, st));
    mr_block left = MR_BLOCK_EMPTY;
    mr_code rc = mr_block_slice(&left, &c->rows, c->at, mr__cursor_left(c), st);
    if (rc == MR_OK)
        rc = mr_state_put_block(w, &left, st);
    mr_block_reset(&left);
    if (rc == MR_OK)
        rc = mr_iter_save_input(it, i, w, st);
    return rc;
}

mr_code mr__reread(mr_iter *it, size_t i, const void *tag, size_t tag_bytes, uint64_t rows,
                   mr_status *st)
{
    MR_TRY(mr_iter_open_input(it, i, st));
    MR_TRY(mr_iter_restore_tag(it->inputs[i], tag, tag_bytes, st));
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    while (rows && rc == MR_OK) {
        rc = mr_iter_pull(it, i, (size_t)rows, &b, st);
        rows -= rc == MR_OK ? b.rows : 0;
    }
    mr_block_reset(&b);
    if (rc == MR_END)
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "damaged position: %" PRIu64 " elements are missing before it", rows);
    return rc;
}

mr_code mr__cursor_restore(mr_iter *it, size_t i, mr_cursor *c, mr_state_r *r, mr_status *st)
{
    mr__cursor_reset(c);
    uint64_t kind, used;
    MR_TRY(mr_state_get_u64(r, &kind, st));
    if (kind == TAGGED) {
        const void *tag;
        size_t n;
        MR_TRY(mr_state_get_bytes(r, &tag, &n, st));
        MR_TRY(mr_state_get_u64(r, &used, st));
        return mr__reread(it, i, tag, n, used, st);
    }
    if (kind != NOTHING_LEFT && kind != ROWS_SAVED)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: cursor of kind %" PRIu64, kind);
    if (kind == ROWS_SAVED)
        MR_TRY(mr_state_get_block(r, mr_iter_input_spec(it, i), &c->rows, st));
    return mr_iter_restore_input(it, i, r, st);
}
