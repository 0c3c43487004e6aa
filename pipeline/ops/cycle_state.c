/* SPDX-License-Identifier: Apache-2.0 */
/* The position of a cycle:
 *
 *   current slot, elements of its turn, input ended
 *   the input   0: its state before (bytes; empty: none), rows handed out behind it
 *               1: its state behind (bytes), the rows yet to be handed out
 *   number of slots; each 0 (free), or 1 and
 *     the element it was made from (block of a row), rows of it seen
 *     0: inner state (bytes), rows delivered behind it
 *     1: inner state (bytes), rows to pass over yet, number of blocks (up to 2), each with its
 *        rows, then a code and, if it is an error, its status
 *
 * Datasets that were only opened ahead are opened again: the input's position is before them. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/ops/cycle.h"

static mr_code put_tag(mr_state_w *w, const mr_buffer *tag, mr_status *st)
{
    return mr_state_put_bytes(w, mr_buffer_data(tag), mr_buffer_size(tag), st);
}

static mr_code put_live(mr_state_w *w, mr_iter *it, mr_status *st)
{
    mr_buffer *tag = NULL;
    MR_TRY(mr_iter_tag(it, &tag, st));
    mr_code rc = put_tag(w, tag, st);
    mr_buffer_unref(tag);
    return rc;
}

static mr_code put_rest(mr_state_w *w, const mr_block *b, size_t from, mr_status *st)
{
    mr_block rest = MR_BLOCK_EMPTY;
    mr_code rc = mr_block_slice(&rest, b, from, b->rows - from, st);
    if (rc == MR_OK)
        rc = mr_state_put_block(w, &rest, st);
    mr_block_reset(&rest);
    return rc;
}

static mr_code save_outer(mr__cycle *c, mr_state_w *w, mr_status *st)
{
    const mr__outer *o = &c->outer;
    bool left = o->at < o->in.rows;
    if (left && o->tag && mr_iter_replays(c->it->inputs[0])) {
        MR_TRY(mr_state_put_u64(w, 0, st));
        MR_TRY(put_tag(w, o->tag, st));
        return mr_state_put_u64(w, o->base + o->at, st);
    }
    MR_TRY(mr_state_put_u64(w, left, st));
    MR_TRY(put_live(w, c->it->inputs[0], st));
    return left ? put_rest(w, &o->in, o->at, st) : mr_state_put_u64(w, o->skip, st);
}

static mr_code save_rows(mr__stream *s, mr_state_w *w, mr_status *st)
{
    bool left = s->at < s->block.rows, ahead = s->fetched && s->ahead_rc == MR_OK;
    MR_TRY(put_live(w, s->inner, st));
    MR_TRY(mr_state_put_u64(w, s->skip, st));
    MR_TRY(mr_state_put_u64(w, (uint64_t)left + ahead, st));
    if (left)
        MR_TRY(put_rest(w, &s->block, s->at, st));
    if (ahead)
        MR_TRY(put_rest(w, &s->ahead, 0, st));
    bool error = s->fetched && s->ahead_rc < 0;
    MR_TRY(mr_state_put_u64(w, error, st));
    return error ? mr_state_put_status(w, &s->ahead_status, st) : MR_OK;
}

static mr_code save_stream(mr__cycle *c, mr__stream *s, mr_state_w *w, mr_status *st)
{
    mr__cycle_wait(c, s);
    MR_TRY(mr_state_put_block(w, &s->element, st));
    MR_TRY(mr_state_put_i64(w, s->rows, st));
    bool left = s->at < s->block.rows;
    const mr_buffer *tag = left ? s->tag : s->ahead_tag;
    if (mr_iter_replays(s->inner) && tag && (left || s->fetched)) {
        MR_TRY(mr_state_put_u64(w, 0, st));
        MR_TRY(put_tag(w, tag, st));
        return mr_state_put_u64(w, left ? s->base + s->at : s->skip, st);
    }
    if (!left && !s->fetched) {
        MR_TRY(mr_state_put_u64(w, 0, st));
        MR_TRY(put_live(w, s->inner, st));
        return mr_state_put_u64(w, s->skip, st);
    }
    MR_TRY(mr_state_put_u64(w, 1, st));
    return save_rows(s, w, st);
}

mr_code mr__cycle_save(mr__cycle *c, mr_state_w *w, mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, c->c, st));
    MR_TRY(mr_state_put_i64(w, c->b, st));
    MR_TRY(mr_state_put_u64(w, c->input_ended, st));
    MR_TRY(save_outer(c, w, st));
    MR_TRY(mr_state_put_u64(w, c->n_slots, st));
    for (size_t i = 0; i < c->n_slots; i++) {
        MR_TRY(mr_state_put_u64(w, c->slots[i] != NULL, st));
        if (c->slots[i])
            MR_TRY(save_stream(c, c->slots[i], w, st));
    }
    return MR_OK;
}

static mr_code damaged(mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: a cycle that cannot be");
}

static mr_code restore_outer(mr__cycle *c, mr_state_r *r, mr_status *st)
{
    mr__outer *o = &c->outer;
    uint64_t kind, skip;
    const void *tag;
    size_t size;
    MR_TRY(mr_state_get_u64(r, &kind, st));
    MR_TRY(mr_state_get_bytes(r, &tag, &size, st));
    if (kind > 1)
        return damaged(st);
    MR_TRY(mr_iter_restore_tag(c->it->inputs[0], tag, size, st));
    if (kind == 0) {
        MR_TRY(mr_state_get_u64(r, &skip, st));
        o->skip = (size_t)skip;
        return MR_OK;
    }
    MR_TRY(mr_state_get_block(r, mr_iter_input_spec(c->it, 0), &o->in, st));
    if (o->in.rows == 0)
        return damaged(st);
    return mr_program_run(c->program, &o->in, &o->made, &o->errors, st);
}

/* Calls the function again and opens what it makes. */
static mr_code reopen(mr__cycle *c, mr__stream *s, mr_status *st)
{
    mr_block made = MR_BLOCK_EMPTY;
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_code rc = mr_program_run(c->program, &s->element, &made, &errors, st);
    if (rc == MR_OK && made.rows != 1)
        rc =
            mr_fail(st, MR_INVALID_ARGUMENT, "the position's element makes no dataset any more: %s",
                    errors.n ? errors.v[0].status.message : "nothing came out");
    if (rc == MR_OK)
        rc = mr_iter_open_dataset(c->it, *(mr_dataset **)made.columns[0].data, &s->element.ids,
                                  &s->inner, st);
    mr_row_errors_reset(&errors);
    mr_block_reset(&made);
    return rc;
}

static mr_code restore_rows(mr__cycle *c, mr__stream *s, mr_state_r *r, mr_status *st)
{
    uint64_t n, error;
    MR_TRY(mr_state_get_u64(r, &n, st));
    if (n > 2)
        return damaged(st);
    if (n > 0) {
        MR_TRY(mr_state_get_block(r, c->it->spec, &s->block, st));
        s->bytes = mr_block_payload_bytes(&s->block) / (s->block.rows ? s->block.rows : 1);
    }
    if (n > 1)
        MR_TRY(mr_state_get_block(r, c->it->spec, &s->ahead, st));
    MR_TRY(mr_state_get_u64(r, &error, st));
    s->ahead_rc = MR_OK;
    if (error) {
        MR_TRY(mr_state_get_status(r, &s->ahead_status, st));
        s->ahead_rc = s->ahead_status.code;
    }
    if (error > 1 || (error && (n > 1 || s->ahead_rc >= 0)) || (n > 0 && s->block.rows == 0) ||
        (n > 1 && s->ahead.rows == 0))
        return damaged(st);
    s->fetched = n > 1 || error;
    return MR_OK;
}

static mr_code restore_stream(mr__cycle *c, mr__stream *s, mr_state_r *r, mr_status *st)
{
    uint64_t kind, skip;
    const void *tag;
    size_t size;
    MR_TRY(mr_state_get_block(r, mr_iter_input_spec(c->it, 0), &s->element, st));
    MR_TRY(mr_state_get_i64(r, &s->rows, st));
    if (s->element.rows != 1 || s->rows < 0)
        return damaged(st);
    MR_TRY(reopen(c, s, st));
    MR_TRY(mr_state_get_u64(r, &kind, st));
    MR_TRY(mr_state_get_bytes(r, &tag, &size, st));
    MR_TRY(mr_state_get_u64(r, &skip, st));
    if (kind > 1)
        return damaged(st);
    MR_TRY(mr_iter_restore_tag(s->inner, tag, size, st));
    s->skip = (size_t)skip;
    return kind ? restore_rows(c, s, r, st) : MR_OK;
}

static mr_code restore_slot(mr__cycle *c, size_t i, mr_state_r *r, mr_status *st)
{
    uint64_t open;
    MR_TRY(mr__cycle_slot(c, i, st));
    MR_TRY(mr_state_get_u64(r, &open, st));
    if (open > 1)
        return damaged(st);
    if (!open)
        return MR_OK;
    MR_TRY(mr__cycle_stream(c, &c->slots[i], st));
    c->n_open++;
    return restore_stream(c, c->slots[i], r, st);
}

mr_code mr__cycle_restore(mr__cycle *c, mr_state_r *r, mr_status *st)
{
    uint64_t at, ended, n;
    int64_t b;
    mr__cycle_drop_all(c);
    MR_TRY(mr_state_get_u64(r, &at, st));
    MR_TRY(mr_state_get_i64(r, &b, st));
    MR_TRY(mr_state_get_u64(r, &ended, st));
    if (at >= (uint64_t)c->length || b < 0 || b >= c->block_length || ended > 1)
        return damaged(st);
    MR_TRY(restore_outer(c, r, st));
    MR_TRY(mr_state_get_u64(r, &n, st));
    if (n > (uint64_t)c->length)
        return damaged(st);
    for (uint64_t i = 0; i < n; i++)
        MR_TRY(restore_slot(c, (size_t)i, r, st));
    c->c = (size_t)at;
    c->b = b;
    c->input_ended = ended;
    return MR_OK;
}
