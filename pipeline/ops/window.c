/* SPDX-License-Identifier: Apache-2.0 */
/* The buffer is the answers of the input (rows and errors) that windows to come may need:
 *
 *     runs   [rows 4 5 | tag] [error | tag] [rows 7 8 9 | tag]
 *              ^at
 *
 * A window picks answers 0, stride, 2 * stride, ... of it; then `shift` are dropped, from the
 * buffer and, where shift is larger, from the input. Dropping from the input waits for the next
 * call. A window that picks an error is that error; other errors vanish.
 *
 * Each run keeps the input's position before it, so that a position is a tag and two counts; where
 * the input cannot be read again, the buffer is saved. */
#include "pipeline/ops/order.h"

#include <inttypes.h>

#include "pipeline/ops/cursor.h"
#include "pipeline/ops/pass.h"
#include "pipeline/ops/rows.h"

struct params {
    int64_t size;
    mr_window_opts o;
};

struct run {
    mr_block rows; /* none: the run is one error */
    mr_status *error;
    mr_buffer *tag;
};

struct state {
    struct run *runs;
    size_t n_runs, capacity;
    size_t at;     /* answers of the first run used up */
    size_t length; /* answers in the buffer */
    uint64_t gap;  /* answers of the input to drop before it is read on */
    bool ended;    /* the input */
};

enum { MAX_RUNS = 1 << 24, WINDOWS_AT_ONCE = 64 };

static size_t run_length(const struct run *r)
{
    return r->error ? 1 : r->rows.rows;
}

static void reset_run(struct run *r)
{
    mr_block_reset(&r->rows);
    mr_free(r->error);
    mr_buffer_unref(r->tag);
    *r = (struct run){0};
}

static size_t shift_of(const struct params *p)
{
    return (size_t)(p->o.shift ? p->o.shift : p->size);
}
static size_t stride_of(const struct params *p)
{
    return (size_t)(p->o.stride ? p->o.stride : 1);
}

/* Answers that a whole window spans; saturates. */
static size_t target_of(const struct params *p)
{
    size_t span;
    if (__builtin_mul_overflow((size_t)p->size - 1, stride_of(p), &span) || span == SIZE_MAX)
        return SIZE_MAX;
    return span + 1;
}

/* ---- the buffer ---- */

/* One answer of the input into the buffer. MR_END: it has ended. */
static mr_code pull(mr_iter *it, size_t want, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_grow((void **)&s->runs, &s->capacity, s->n_runs + 1, sizeof *s->runs, MAX_RUNS,
                   "the buffer of window", st));
    struct run *r = &s->runs[s->n_runs];
    *r = (struct run){0};
    if (mr_iter_positions(it) && mr_iter_replays(it->inputs[0]))
        MR_TRY(mr_iter_tag(it->inputs[0], &r->tag, st));
    mr_status error;
    mr_code rc = mr_iter_pull(it, 0, want, &r->rows, &error);
    if (rc < 0) {
        r->error = mr_iter_cancelled(it) ? NULL : mr_memdup(&error, sizeof error);
        if (!r->error) {
            if (st)
                *st = error;
            reset_run(r);
            return rc;
        }
    } else if (rc == MR_END) {
        reset_run(r);
        s->ended = true;
        return MR_END;
    }
    s->length += run_length(r);
    s->n_runs++;
    return MR_OK;
}

static mr_code drop_gap(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    while (s->gap && !s->ended) {
        rc = mr_iter_pull(it, 0, s->gap < SIZE_MAX ? (size_t)s->gap : SIZE_MAX, &b, st);
        if (rc < 0 && mr_iter_cancelled(it))
            break;
        s->ended = rc == MR_END;
        s->gap -= rc == MR_OK ? b.rows : (size_t)(rc < 0);
        rc = MR_OK;
    }
    mr_block_reset(&b);
    return rc;
}

static void drop(struct state *s, size_t n)
{
    if (n > s->length) {
        s->gap = n - s->length;
        n = s->length;
    }
    s->length -= n;
    n += s->at;
    size_t gone = 0;
    while (gone < s->n_runs && n >= run_length(&s->runs[gone])) {
        n -= run_length(&s->runs[gone]);
        reset_run(&s->runs[gone++]);
    }
    s->at = n;
    s->n_runs -= gone;
    for (size_t i = 0; gone && i < s->n_runs; i++)
        s->runs[i] = s->runs[i + gone];
}

/* ---- one window ---- */

/* Copies picked rows of run r, whose first answer is number `first` of the window's span. */
static mr_code pick_run(mr_block *picked, const struct run *r, size_t from, size_t n, size_t phase,
                        size_t stride, size_t capacity, mr_status *st)
{
    if (phase >= n)
        return MR_OK;
    if (r->error) {
        if (st)
            *st = *r->error;
        return r->error->code;
    }
    if (picked->n_columns == 0)
        MR_TRY(mr_block_start(picked, &r->rows, capacity, st));
    if (!mr_block_fits(picked, &r->rows))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the elements of a window must have as many axes and, if dense, one shape");
    if (stride == 1)
        return mr_block_append(picked, &r->rows, from, n, st);
    for (size_t i = phase; i < n; i += stride)
        MR_TRY(mr_block_append(picked, &r->rows, from + i, 1, st));
    return MR_OK;
}

/* Ragged versions of all blocks that a window spans, where their shapes differ. */
static mr_code make_fit(struct state *s, mr_status *st)
{
    for (size_t i = 0; i < s->n_runs; i++) {
        mr_block *b = &s->runs[i].rows;
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
    for (size_t i = 0; i < s->n_runs; i++) {
        const mr_block *b = &s->runs[i].rows;
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
    struct run *first = &s->runs[0];
    if (stride == 1 && !first->error && s->at + span <= first->rows.rows)
        return mr_block_slice(picked, &first->rows, s->at, span, st);
    if (shapes_differ(s))
        MR_TRY(make_fit(s, st));
    size_t seen = 0, from = s->at;
    for (size_t i = 0; i < s->n_runs && seen < span; i++, from = 0) {
        size_t n = run_length(&s->runs[i]) - from;
        if (n > span - seen)
            n = span - seen;
        size_t phase = (stride - seen % stride) % stride;
        MR_TRY(pick_run(picked, &s->runs[i], from, n, phase, stride, capacity, st));
        seen += n;
    }
    return MR_OK;
}

/* The window's datasets, one a component, into row `row` of out. */
static mr_code put_window(mr_iter *it, mr_block *out, size_t row, mr_identities *ids, mr_status *st)
{
    mr_block rows = MR_BLOCK_EMPTY;
    const mr_spec *in = mr_iter_input_spec(it, 0);
    mr_code rc = pick(it, &rows, st);
    for (size_t c = 0; c < out->n_columns && rc == MR_OK; c++) {
        mr_block one = {.rows = rows.rows, .n_columns = 1, .columns = &rows.columns[c]};
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

/* Fills the buffer for a window; MR_END: there is none. */
static mr_code fill(mr_iter *it, size_t windows, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    size_t target = target_of(p);
    MR_TRY(drop_gap(it, st));
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

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    size_t windows = mr_iter_identities(it) ? 1 : mr_iter_block_rows(it, want, 4096);
    if (windows > WINDOWS_AT_ONCE)
        windows = WINDOWS_AT_ONCE;
    MR_TRY(fill(it, windows, st));
    /* What the buffer holds without another pull; at the end of the input, one at a time. */
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
    out->rows = have;
    return MR_OK;
}

static void clear(struct state *s)
{
    for (size_t i = 0; i < s->n_runs; i++)
        reset_run(&s->runs[i]);
    s->n_runs = s->at = s->length = 0;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    clear(s);
    mr_free(s->runs);
}

/* State: gap, whether the input has ended, answers in the buffer, then
 *   1, tag, answers to drop            where the input can be read again, or
 *   0, each run: 1, rows | 0, error    then the input's state */
static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->gap, st));
    MR_TRY(mr_state_put_u64(w, s->ended, st));
    MR_TRY(mr_state_put_u64(w, s->length, st));
    bool tagged = s->n_runs && s->runs[0].tag && mr_iter_replays(it->inputs[0]);
    MR_TRY(mr_state_put_u64(w, tagged, st));
    if (tagged) {
        const mr_buffer *tag = s->runs[0].tag;
        MR_TRY(mr_state_put_bytes(w, mr_buffer_data(tag), mr_buffer_size(tag), st));
        return mr_state_put_u64(w, s->at, st);
    }
    size_t from = s->at;
    for (size_t i = 0; i < s->n_runs; i++, from = 0) {
        const struct run *r = &s->runs[i];
        MR_TRY(mr_state_put_u64(w, !r->error, st));
        if (r->error) {
            MR_TRY(mr_state_put_status(w, r->error, st));
            continue;
        }
        mr_block left = MR_BLOCK_EMPTY;
        mr_code rc = mr_block_slice(&left, &r->rows, from, r->rows.rows - from, st);
        if (rc == MR_OK)
            rc = mr_state_put_block(w, &left, st);
        mr_block_reset(&left);
        MR_TRY(rc);
    }
    return mr_iter_save_input(it, 0, w, st);
}

/* Reads `used` answers and drops them, then `length` into the buffer. */
static mr_code reread(mr_iter *it, uint64_t used, uint64_t length, mr_status *st)
{
    struct state *s = it->state;
    mr_code rc = MR_OK;
    while (rc == MR_OK && s->length < used) {
        rc = pull(it, (size_t)(used - s->length), st);
    }
    clear(s);
    while (rc == MR_OK && s->length < length)
        rc = pull(it, (size_t)(length - s->length), st);
    /* Fewer than before: an error among them was of the moment. */
    return rc == MR_END ? MR_OK : rc;
}

static mr_code get_run(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t good;
    MR_TRY(mr_state_get_u64(r, &good, st));
    MR_TRY(mr_grow((void **)&s->runs, &s->capacity, s->n_runs + 1, sizeof *s->runs, MAX_RUNS,
                   "the buffer of window", st));
    struct run *to = &s->runs[s->n_runs++];
    *to = (struct run){0};
    if (good)
        MR_TRY(mr_state_get_block(r, mr_iter_input_spec(it, 0), &to->rows, st));
    else {
        mr_status e;
        MR_TRY(mr_state_get_status(r, &e, st));
        if (!(to->error = mr_memdup(&e, sizeof e)))
            return mr_fail_memory(st, sizeof e, "an error");
    }
    if (run_length(to) == 0)
        return mr__damaged(st, "a block has no rows");
    s->length += run_length(to);
    return MR_OK;
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t ended, length, tagged, used;
    clear(s);
    MR_TRY(mr_state_get_u64(r, &s->gap, st));
    MR_TRY(mr_state_get_u64(r, &ended, st));
    MR_TRY(mr_state_get_u64(r, &length, st));
    MR_TRY(mr_state_get_u64(r, &tagged, st));
    s->ended = false;
    mr_code rc = MR_OK;
    if (tagged) {
        const void *tag;
        size_t n;
        MR_TRY(mr_state_get_bytes(r, &tag, &n, st));
        MR_TRY(mr_state_get_u64(r, &used, st));
        MR_TRY(mr__reread(it, 0, tag, n, 0, st));
        rc = reread(it, used, length, st);
    } else {
        while (rc == MR_OK && s->length < length)
            rc = get_run(it, r, st);
        if (rc == MR_OK)
            rc = mr_iter_restore_input(it, 0, r, st);
    }
    s->ended = ended;
    return rc;
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
    MR_ARG(struct params, size, .min.i = 1, .max.i = INT64_MAX,
           .doc = "Elements in a window, at least 1."),
    MR_OPT(struct params, shift, .flags = MR_P_OPTIONAL | MR_P_NONE, .min.i = 1, .max.i = INT64_MAX,
           .doc = "Elements from the start of one window to that of the next; size if absent."),
    MR_OPT(struct params, stride, .flags = MR_P_OPTIONAL, .min.i = 1, .max.i = INT64_MAX,
           .def.i = 1, .doc = "Elements from one of a window to the next."),
    MR_OPT(struct params, drop_remainder, .flags = MR_P_OPTIONAL,
           .doc = "Drops windows that the end of the input cuts short."),
    {0}};

const mr_op mr_op_window = {
    .abi = MR_ABI_VERSION,
    .name = "window",
    .doc = "Makes datasets of consecutive elements, one for each component.",
    .example = "range(7).window(3, shift=2, drop_remainder=true).flat_map(w => w.batch(3))",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .infer = infer,
    .cardinality = cardinality,
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
