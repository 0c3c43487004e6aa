/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/selection.h"

#include <inttypes.h>

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/graph/node.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/params/infer.h"

struct mr__selected {
    mr__cursor rows;
    bool gone; /* it has ended, or is never used */
    bool used;
    bool once;       /* it has ended once; with MR__STOP_REPEAT, it may be in a later epoch */
    bool any;        /* this epoch emitted an element */
    bool one_by_one; /* it records what is pulled (MR_OP_REMEMBERS), and others may end first */
};

enum { MOST_NUMBERS = 1 << 20 };

mr_code mr__selection_open(mr__selection *s, mr_iter *it, size_t n, const bool *used, mr__stop stop,
                           mr_status *st)
{
    s->it = it;
    s->stop = stop;
    s->leaves_out = mr__dataset_origin(it->node).in_stream;
    s->row_bytes = mr__row_bytes(it->spec);
    s->inputs = mr_calloc(n ? n : 1, sizeof *s->inputs);
    if (!s->inputs)
        return mr_fail_memory(st, n * sizeof *s->inputs, "the inputs to choose from");
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        s->inputs[i].used = !used || used[i];
        s->inputs[i].gone = !s->inputs[i].used;
        s->inputs[i].one_by_one =
            stop != MR__STOP_ALL &&
            (mr__dataset_all_props(mr_dataset_input(it->node, i)) & MR_OP_REMEMBERS);
        s->left += s->inputs[i].used;
    }
    return MR_OK;
}

mr_code mr__selection_room(mr__selection *s, size_t n, int64_t **to, mr_status *st)
{
    if (s->at == s->n_numbers)
        s->at = s->n_numbers = 0;
    MR_TRY(
        MR_GROW(s->numbers, s->capacity, s->n_numbers + n, SIZE_MAX / 16, "numbers of inputs", st));
    *to = s->numbers + s->n_numbers;
    return MR_OK;
}

/* How often input i occurs in the next `most` numbers. */
static size_t count_ahead(const mr__selection *s, int64_t i, size_t most)
{
    size_t n = 0;
    for (size_t k = s->at; k < s->n_numbers && k - s->at < most; k++)
        n += s->numbers[k] == i;
    return n;
}

/* How many of the next numbers are consecutively i. */
static size_t run_length(const mr__selection *s, int64_t i, size_t most)
{
    size_t n = 0;
    while (s->at + n < s->n_numbers && n < most && s->numbers[s->at + n] == i)
        n++;
    return n;
}

/* The input has ended, and the selection ends with it. */
static bool ends_all(const mr__selection *s, const struct mr__selected *in)
{
    return s->stop == MR__STOP_FIRST && (in->any || !s->leaves_out);
}

/* The input of the current number has ended: skips the number, or closes the input, so that its
 * next epoch begins. */
static mr_code end_input(mr__selection *s, struct mr__selected *in, size_t i, mr_status *st)
{
    s->left -= !in->once;
    in->once = true;
    in->gone = s->stop != MR__STOP_REPEAT || !in->any;
    s->ended = ends_all(s, in) || s->left == 0;
    if (in->gone || s->ended) {
        s->at++;
        return MR_OK;
    }
    in->any = false;
    mr__cursor_reset(&in->rows);
    in->rows = (mr__cursor){0};
    mr_iter_close_input(s->it, i);
    return mr_iter_cancelled(s->it) ? mr_iter_fail_cancelled(st) : MR_OK;
}

/* Makes sure that the input of the current number has a row, or skips the number. An error
 * replaces the number, unless it has no position. */
static mr_code fetch(mr__selection *s, size_t want, mr_status *st)
{
    int64_t i = s->numbers[s->at];
    if (i < 0 || (uint64_t)i >= s->n) {
        s->at++;
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the number of a dataset must be in the range 0 to %zu, found %" PRId64,
                       s->n - 1, i);
    }
    struct mr__selected *in = &s->inputs[i];
    if (in->gone) {
        s->at++;
        return MR_OK;
    }
    if (mr__cursor_left(&in->rows))
        return MR_OK;
    if (!s->it->inputs[i]) /* its next epoch */
        MR_TRY(mr_iter_open_input(s->it, (size_t)i, st));
    mr_status error;
    size_t ask = in->one_by_one ? 1 : count_ahead(s, i, want);
    mr_code rc = mr__cursor_pull(s->it, (size_t)i, ask, &in->rows, NULL, &error);
    if (rc < 0) {
        s->at += !mr_status_is_of_no_element(&error) && rc != MR_CANCELLED;
        if (st)
            *st = error;
        return rc;
    }
    if (rc == MR_OK)
        in->any = true;
    return rc == MR_END ? end_input(s, in, (size_t)i, st) : MR_OK;
}

/* Adds rows of the input of the current number; *full: they no longer fit. */
static mr_code add(mr__selection *s, size_t want, mr_block *out, bool *full, mr_status *st)
{
    mr__cursor *c = &s->inputs[s->numbers[s->at]].rows;
    const mr_block *rows = mr__cursor_rows(c);
    size_t left = mr__cursor_left(c), most = want - out->rows;
    size_t n = run_length(s, s->numbers[s->at], left < most ? left : most);
    if (out->rows == 0 && (n == most || s->at + n == s->n_numbers)) {
        MR_TRY(mr_block_slice(out, rows, mr__cursor_at(c), n, st));
        *full = true;
    } else {
        if (out->rows == 0)
            MR_TRY(mr_block_start(out, rows, want, st));
        else if (!mr_block_fits(out, rows)) {
            *full = true;
            return MR_OK;
        }
        MR_TRY(mr_block_append(out, rows, mr__cursor_at(c), n, st));
    }
    mr__cursor_use(c, n);
    s->at += n;
    return MR_OK;
}

/* true: the available rows are delivered before the input of the current number is looked at. It
 * must be opened again: a separate call does so, since an epoch whose rows are not requested would
 * change what later ones draw. Or it has no row yet and waits for an outside producer. */
static bool delivers_first(const mr__selection *s)
{
    int64_t i = s->numbers[s->at];
    if (i < 0 || (uint64_t)i >= s->n || s->inputs[i].gone)
        return false;
    const mr_iter *input = s->it->inputs[i];
    return !input || (mr__cursor_left(&s->inputs[i].rows) == 0 && mr__iter_may_block(input));
}

mr_code mr__selection_next(mr__selection *s, size_t want,
                           mr_code (*refill)(mr_iter *it, size_t want, mr_status *st),
                           mr_block *out, mr_status *st)
{
    mr_status error;
    mr_code rc = MR_OK;
    bool full = false;
    if (want > MOST_NUMBERS)
        want = MOST_NUMBERS;
    want = mr_iter_block_rows(s->it, want, s->row_bytes);
    while (rc == MR_OK && !full && out->rows < want) {
        if (s->ended || s->left == 0)
            rc = MR_END;
        else if (s->at == s->n_numbers) {
            if (out->rows)
                break;
            rc = refill(s->it, want, &error);
        } else if (out->rows && delivers_first(s))
            break;
        else {
            rc = fetch(s, want - out->rows, &error);
            if (rc == MR_OK && s->at < s->n_numbers && !s->ended) {
                int64_t i = s->numbers[s->at];
                if (i >= 0 && (uint64_t)i < s->n && mr__cursor_left(&s->inputs[i].rows))
                    rc = add(s, want, out, &full, &error);
            }
        }
    }
    if (out->rows == 0) {
        if (rc < 0 && st)
            *st = error;
        return rc;
    }
    s->row_bytes = mr_block_payload_bytes(out) / out->rows;
    if (rc < 0 && !mr_status_is_of_no_element(&error) && rc != MR_CANCELLED)
        mr_iter_defer(s->it, &error);
    return MR_OK;
}

void mr__selection_reset(mr__selection *s)
{
    for (size_t i = 0; s->inputs && i < s->n; i++)
        mr__cursor_reset(&s->inputs[i].rows);
    mr_free(s->inputs);
    mr_free(s->numbers);
}

/* ended; for each used input: 1 gone, with leaves_out 2 it emitted an element; its rows; the number
 * of unused numbers, and these numbers */
mr_code mr__selection_save(mr__selection *s, mr_state_w *w, mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, s->ended, st));
    for (size_t i = 0; i < s->n; i++) {
        if (!s->inputs[i].used)
            continue;
        MR_TRY(mr_state_put_u64(w, s->inputs[i].gone | (s->leaves_out && s->inputs[i].any ? 2 : 0),
                                st));
        MR_TRY(mr__cursor_save(s->it, i, &s->inputs[i].rows, 0, w, st));
    }
    MR_TRY(mr_state_put_u64(w, s->n_numbers - s->at, st));
    for (size_t k = s->at; k < s->n_numbers; k++)
        MR_TRY(mr_state_put_i64(w, s->numbers[k], st));
    return MR_OK;
}

mr_code mr__selection_restore(mr__selection *s, mr_state_r *r, mr_status *st)
{
    uint64_t ended, gone, n;
    MR_TRY(mr_state_get_u64(r, &ended, st));
    s->left = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!s->inputs[i].used)
            continue;
        MR_TRY(mr_state_get_u64(r, &gone, st));
        s->inputs[i].any = gone & 2;
        if (s->leaves_out)
            gone &= ~UINT64_C(2);
        if (gone > 1)
            return mr_state_damaged(st, "a flag is neither set nor clear");
        s->inputs[i].gone = s->inputs[i].once = gone;
        s->left += !gone;
        MR_TRY(mr__cursor_restore(s->it, i, &s->inputs[i].rows, r, st));
    }
    MR_TRY(mr_state_get_u64(r, &n, st));
    if (ended > 1 || n > MOST_NUMBERS)
        return mr_state_damaged(st, "more numbers of inputs than are ever drawn");
    s->ended = ended;
    s->at = s->n_numbers = 0;
    for (; n; n--) {
        int64_t *to;
        MR_TRY(mr__selection_room(s, 1, &to, st));
        MR_TRY(mr_state_get_i64(r, to, st));
        s->n_numbers++;
    }
    return MR_OK;
}

/* flags: 1 gone, 2 ended once, 4 this epoch emitted an element, 8 open; its rows, or the closed
 * input */
mr_code mr__selection_save_input(mr__selection *s, size_t i, mr_state_w *w, mr_status *st)
{
    struct mr__selected *in = &s->inputs[i];
    bool open = s->it->inputs[i];
    uint64_t flags =
        (uint64_t)in->gone | (uint64_t)in->once << 1 | (uint64_t)in->any << 2 | (uint64_t)open << 3;
    MR_TRY(mr_state_put_u64(w, flags, st));
    if (!open)
        return mr_iter_save_input(s->it, i, w, st);
    return mr__cursor_save(s->it, i, &in->rows, 0, w, st);
}

mr_code mr__selection_restore_input(mr__selection *s, size_t i, mr_state_r *r, mr_status *st)
{
    struct mr__selected *in = &s->inputs[i];
    uint64_t flags;
    MR_TRY(mr_state_get_u64(r, &flags, st));
    if (flags > 15 || ((flags & 1) && !(flags & 2)))
        return mr_state_damaged(st, "a source has ended and has not");
    in->gone = flags & 1;
    in->once = flags & 2;
    in->any = flags & 4;
    if (flags & 8)
        return mr__cursor_restore(s->it, i, &in->rows, r, st);
    MR_TRY(mr_iter_restore_input(s->it, i, r, st));
    return s->it->inputs[i] ? mr_state_damaged(st, "a closed source is open") : MR_OK;
}

void mr__selection_restored(mr__selection *s, const bool *ended)
{
    bool over = false;
    s->at = s->n_numbers = s->left = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct mr__selected *in = &s->inputs[i];
        s->left += !in->once;
        over = over || (in->once && ends_all(s, in));
    }
    s->ended = (ended ? *ended : over) || s->left == 0;
}

mr_code mr__selection_infer(const mr_dataset *self, size_t n, mr_spec **out, mr_status *st)
{
    mr_spec *all = mr_spec_ref(mr_dataset_spec(mr_dataset_input(self, 0)));
    for (size_t i = 1; i < n; i++) {
        const mr_spec *one = mr_dataset_spec(mr_dataset_input(self, i));
        if (!mr_spec_same_types(all, one)) {
            char x[160], y[160];
            mr_spec_format(all, x, sizeof x);
            mr_spec_format(one, y, sizeof y);
            mr_spec_unref(all);
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "%s: all datasets must have elements of the same types, found %s in the "
                           "first and %s in that of index %zu",
                           mr_dataset_op(self)->name, x, y, i);
        }
        mr_spec *both = mr_spec_merge(all, one);
        mr_spec_unref(all);
        all = both;
        if (!all)
            break;
    }
    return mr__inferred(all, out, st);
}
