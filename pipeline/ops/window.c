/* SPDX-License-Identifier: Apache-2.0 */
/* The buffer contains the rows and errors of the input that later windows may need:
 *
 *     entries   [rows 4 5] [error] [rows 7 8 9]
 *                    ^at
 *
 * A window takes events 0, stride, 2 * stride, ... of it; then `shift` events are dropped, from the
 * buffer and, if shift is larger, from the input, in the same call. A window that takes an error is
 * replaced by that error; other errors are dropped. */
#include "pipeline/ops/sequence.h"

#include "pipeline/engine/op_source.h"
#include "pipeline/params/infer.h"
#include "pipeline/ops/rows.h"
#include "pipeline/streams/read_ahead_queue.h"

struct params {
    int64_t size;
    mr_window_opts o;
};

struct state {
    mr__queue buffer;
    size_t length;    /* events in it */
    size_t row_bytes; /* of the input's last block */
    bool ended;       /* the input */
};

enum { WINDOWS_AT_ONCE = 64, WINDOW_BYTES = 4096 };

static size_t shift_of(const struct params *p)
{
    return (size_t)(p->o.shift ? p->o.shift : p->size);
}
static size_t stride_of(const struct params *p)
{
    return (size_t)(p->o.stride ? p->o.stride : 1);
}

/* Events that a whole window spans; saturates. */
static size_t target_of(const struct params *p)
{
    size_t span;
    if (__builtin_mul_overflow((size_t)p->size - 1, stride_of(p), &span) || span == SIZE_MAX)
        return SIZE_MAX;
    return span + 1;
}

/* ---- the buffer ---- */

/* One pull of the input into the buffer. MR_END: it has ended. */
static mr_code pull(mr_iter *it, size_t want, mr_status *st)
{
    struct state *s = it->state;
    mr__entry *e;
    mr_code rc = s->length == 0 ? mr__queue_front(&s->buffer, want, NULL, &e, st)
                                : mr__queue_pull(&s->buffer, want, NULL, &e, st);
    s->ended = rc == MR_END;
    if (rc != MR_OK)
        return rc;
    s->length += mr__entry_left(e);
    if (e->rows.rows)
        s->row_bytes = mr_block_payload_bytes(&e->rows) / e->rows.rows;
    return MR_OK;
}

static void drop(struct state *s, size_t n)
{
    mr__queue_drop(&s->buffer, n);
    s->length -= n < s->length ? n : s->length;
}

/* Drops the input events that are still to be dropped. If memory is lacking, the next call
 * retries. */
static void drop_of_input(struct state *s)
{
    mr_code rc = MR_OK;
    while (s->buffer.gap && !s->buffer.head && rc == MR_OK) {
        rc = mr__queue_pull(&s->buffer, s->buffer.gap, NULL, NULL, NULL);
        (void)mr__queue_head(&s->buffer);
    }
    s->ended |= rc == MR_END;
}

/* ---- one window ---- */

/* Copies the rows of e that the window takes. Event `from` of e is number `first` of the
 * window's span; phase: distance to the first event taken. */
static mr_code pick_entry(mr_block *picked, const mr__entry *e, size_t from, size_t n, size_t phase,
                          size_t stride, size_t capacity, mr_status *st)
{
    if (phase >= n)
        return MR_OK;
    if (e->rc != MR_OK) {
        if (!e->error)
            return mr_fail_memory(st, sizeof *e->error, "an error");
        if (st)
            *st = *e->error;
        return e->rc;
    }
    if (picked->n_columns == 0)
        MR_TRY(mr_block_start(picked, &e->rows, capacity, st));
    if (!mr_block_fits(picked, &e->rows))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the elements of a window must have the same number of axes and, if dense, "
                       "the same shape");
    if (stride == 1)
        return mr_block_append(picked, &e->rows, from, n, st);
    for (size_t i = phase; i < n; i += stride)
        MR_TRY(mr_block_append(picked, &e->rows, from + i, 1, st));
    return MR_OK;
}

/* Makes all blocks that a window spans ragged if their shapes differ. */
static mr_code make_fit(struct state *s, mr_status *st)
{
    for (mr__entry *e = s->buffer.head; e; e = e->next) {
        mr_block *b = &e->rows;
        for (size_t c = 0; c < b->n_columns; c++) {
            if (b->columns[c].storage == MR_DATASETS)
                continue;
            mr_array ragged;
            MR_TRY(mr_array_to_ragged(&ragged, &b->columns[c], st));
            mr_array_reset(&b->columns[c]);
            b->columns[c] = ragged;
        }
    }
    return MR_OK;
}

static bool shapes_differ(const struct state *s)
{
    const mr_block *first = NULL;
    for (const mr__entry *e = s->buffer.head; e; e = e->next) {
        const mr_block *b = &e->rows;
        if (b->rows && first && !mr_block_fits(first, b))
            return true;
        if (b->rows && !first)
            first = b;
    }
    return false;
}

static mr_code pick(mr_iter *it, mr_block *picked, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    size_t span = target_of(p) < s->length ? target_of(p) : s->length;
    size_t stride = stride_of(p), capacity = (span - 1) / stride + 1;
    const mr__entry *first = s->buffer.head;
    if (stride == 1 && first->rc == MR_OK && first->at + span <= first->rows.rows)
        return mr_block_slice(picked, &first->rows, first->at, span, st);
    if (shapes_differ(s))
        MR_TRY(make_fit(s, st));
    size_t seen = 0;
    for (const mr__entry *e = first; e && seen < span; e = e->next) {
        size_t n = mr__entry_left(e);
        if (n > span - seen)
            n = span - seen;
        size_t phase = (stride - seen % stride) % stride;
        MR_TRY(pick_entry(picked, e, e->at, n, phase, stride, capacity, st));
        seen += n;
    }
    return MR_OK;
}

/* Puts the window's datasets, one per component, into row `row` of out. */
static mr_code put_window(mr_iter *it, mr_block *out, size_t row, mr_identities *ids, mr_status *st)
{
    mr_block rows = MR_BLOCK_EMPTY;
    const mr_spec *in = mr_iter_input_spec(it, 0);
    mr_code rc = pick(it, &rows, st);
    for (size_t c = 0; c < out->n_columns && rc == MR_OK; c++) {
        mr_block one = {
            .rows = rows.rows, .n_columns = 1, .columns = &rows.columns[c], .ids = rows.ids};
        mr_spec *leaf = mr_spec_of_leaf(mr_spec_leaf(in, c));
        if (!leaf) {
            rc = mr_fail_memory(st, sizeof(mr_leaf), "a spec");
            break;
        }
        mr_dataset *ds = mr__rows_dataset(&one, leaf);
        mr_spec_unref(leaf);
        ((mr_dataset **)out->columns[c].data)[row] = ds;
        rc = mr_dataset_check(ds, st);
    }
    if (rc == MR_OK && rows.ids.ids)
        rc = mr_identities_group(ids, &rows.ids, rows.rows, rows.rows, st);
    mr_block_reset(&rows);
    return rc;
}

/* ---- slots ---- */

/* Fills the buffer for a window; MR_END: no more windows. */
static mr_code fill(mr_iter *it, size_t windows, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    size_t target = target_of(p);
    while (!s->ended && s->length < target) {
        size_t more, want = target - s->length;
        if (!__builtin_mul_overflow(windows - 1, shift_of(p), &more) && shift_of(p) <= target &&
            !__builtin_add_overflow(want, more, &more))
            want = more;
        mr_code rc = pull(it, want, st);
        if (rc < 0)
            return rc;
    }
    if (s->length == 0 || (p->o.drop_remainder && s->length < target))
        return MR_END;
    return MR_OK;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    (void)st;
    struct state *s = it->state;
    mr__queue_open(&s->buffer, it, it->inputs[0]);
    s->row_bytes = mr__row_bytes(mr_iter_input_spec(it, 0));
    return MR_OK;
}

/* The number of windows to make in one call: their rows are bounded like those of a block. */
static size_t windows_at_once(const mr_iter *it, size_t want)
{
    const struct state *s = it->state;
    size_t bytes;
    if (mr_iter_identities(it) || s->row_bytes == 0)
        return 1;
    if (__builtin_mul_overflow(s->row_bytes, shift_of(it->params), &bytes))
        return 1;
    size_t n = mr_iter_block_rows(it, want, bytes > WINDOW_BYTES ? bytes : WINDOW_BYTES);
    return n < WINDOWS_AT_ONCE ? n : WINDOWS_AT_ONCE;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    size_t windows = windows_at_once(it, want);
    MR_TRY(fill(it, windows, st));
    /* The windows available without another pull; at the end of the input, one at a time. */
    size_t target = target_of(p), shift = shift_of(p), have = 1;
    if (s->length > target)
        have += (s->length - target) / shift;
    if (have > windows)
        have = windows;
    size_t n = mr_spec_n_leaves(it->spec);
    MR_TRY(mr_block_prepare(out, n, st));
    for (size_t c = 0; c < n; c++)
        MR_TRY(mr_array_alloc_datasets(&out->columns[c], have, st));
    for (size_t i = 0; i < have; i++) {
        mr_identities ids = {0};
        mr_code rc = put_window(it, out, i, &ids, st);
        if (rc != MR_OK && i == 0) {
            drop(s, shift);
            drop_of_input(s);
            return rc;
        }
        if (rc != MR_OK) { /* it is the first of the next call */
            for (size_t c = 0; c < n; c++)
                out->columns[c].rows = i;
            have = i;
            break;
        }
        out->ids = ids;
        drop(s, shift);
    }
    drop_of_input(s);
    out->rows = have;
    return MR_OK;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__queue_reset(&s->buffer);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    return mr__queue_save(&s->buffer, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr__queue_restore(&s->buffer, mr_iter_input_spec(it, 0), r, st));
    s->ended = false;
    s->length = 0;
    for (const mr__entry *e = s->buffer.head; e; e = e->next) {
        if (e->errors.n || s->buffer.skip)
            return mr_state_damaged(st, "a window has errors among rows");
        s->length += mr__entry_left(e);
    }
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)p;
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    size_t n = mr_spec_n_leaves(in);
    mr_leaf *leaves = mr_calloc(n ? n : 1, sizeof *leaves);
    mr_spec **elements = mr_calloc(n ? n : 1, sizeof(mr_spec *));
    mr_code rc = leaves && elements ? MR_OK : mr_fail_memory(st, n * sizeof *leaves, "a spec");
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        elements[i] = mr_spec_of_leaf(mr_spec_leaf(in, i));
        if (!elements[i])
            rc = mr_fail_memory(st, sizeof *leaves, "a spec");
        leaves[i] = (mr_leaf){.dtype = MR_DATASET, .element = elements[i]};
    }
    if (rc == MR_OK)
        rc = mr__inferred(mr_spec_with_leaves(in, leaves), out, st);
    for (size_t i = 0; elements && i < n; i++)
        mr_spec_unref(elements[i]);
    mr_free(elements);
    mr_free(leaves);
    return rc;
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    const struct params *q = p;
    if (in[0] < 0)
        return in[0];
    uint64_t n = (uint64_t)in[0], shift = shift_of(q), target = target_of(q);
    if (!q->o.drop_remainder)
        return (int64_t)(n / shift + (n % shift != 0));
    return n < target ? 0 : (int64_t)((n - target) / shift + 1);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, size, MR_P_POSITIONAL | MR_P_HOLDS, .min.i = 1, .max.i = INT64_MAX,
                  .doc = "Elements in a window, at least 1."),
    MR_OPT(struct params, shift, .flags = MR_P_OPTIONAL | MR_P_NONE, .min.i = 1, .max.i = INT64_MAX,
           .doc = "Elements from the start of one window to the start of the next; default: size."),
    MR_OPT(struct params, stride, .flags = MR_P_OPTIONAL, .min.i = 1, .max.i = INT64_MAX,
           .def.i = 1, .doc = "Step between the elements of a window."),
    MR_OPT(struct params, drop_remainder, .flags = MR_P_OPTIONAL,
           .doc = "Drops windows that the end of the input cuts short."),
    {0}};

const mr_op mr_op_window = {
    .abi = MR_ABI_VERSION,
    .name = "window",
    .doc = "Makes datasets of consecutive elements, one for each component.",
    .example = "range(7).window(3, shift=2, drop_remainder=true).flat_map(w => w.batch(3))",
    .order_doc = "kept, within each window",
    .memory_doc = "the elements that later windows need",
    .state_doc = "the elements held",
    .count_doc = "the number of windows",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_window(mr_dataset *input, int64_t size, const mr_window_opts *opts)
{
    struct params p = {.size = size};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_window, &p, &input, 1);
}
