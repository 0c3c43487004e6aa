/* SPDX-License-Identifier: Apache-2.0 */
/* Strictly sequential: each element needs the state that its predecessor left. */
#include "pipeline/ops/apply.h"

#include "pipeline/columns/fold.h"
#include "pipeline/params/infer.h"
#include "pipeline/streams/cursor.h"

struct params {
    mr_value init;
    mr_fn *fn;
};

struct state {
    mr__fold fold;
    mr__cursor input;
    size_t row_bytes; /* of the last output; 0: not known */
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    s->row_bytes = mr__row_bytes(it->spec);
    MR_TRY(mr__fold_open(&s->fold, "scan", p->fn, &p->init, mr_iter_input_spec(it, 0), true, st));
    mr_iter_bind_program(it, s->fold.program);
    return MR_OK;
}

/* Starts `out` for rows like that of `made`; columns whose shape may change take any. */
static mr_code start(const mr_iter *it, mr_block *made, size_t capacity, mr_block *out,
                     mr_status *st)
{
    mr_block like = *made;
    mr_array *columns = mr_calloc(made->n_columns ? made->n_columns : 1, sizeof *columns);
    if (!columns)
        return mr_fail_memory(st, made->n_columns * sizeof *columns, "columns");
    for (size_t c = 0; c < made->n_columns; c++) {
        const mr_leaf *leaf = mr_spec_leaf(it->spec, c);
        bool fixed = leaf->rank >= 0;
        columns[c] = made->columns[c];
        for (int d = 0; d < leaf->rank; d++)
            fixed = fixed && leaf->shape[d] >= 0;
        if (!fixed && columns[c].storage != MR_DATASETS)
            columns[c].storage = MR_RAGGED;
    }
    like.columns = columns;
    mr_code rc = mr_block_start(out, &like, capacity, st);
    mr_free(columns);
    return rc;
}

/* Puts row `at` of `rows` into out; *full: it no longer fits. Does nothing unless it returns
 * MR_OK and *full is not set. */
static mr_code step(mr_iter *it, const mr_block *rows, size_t at, size_t capacity, mr_block *out,
                    bool *full, bool *failed, mr_status *st)
{
    struct state *s = it->state;
    mr_block made = MR_BLOCK_EMPTY;
    mr_code rc = mr__fold_row(&s->fold, rows, at, &made, failed, st);
    if (rc == MR_OK) {
        mr_block emitted = {.rows = 1,
                            .n_columns = made.n_columns - s->fold.n,
                            .columns = made.columns + s->fold.n,
                            .ids = made.ids};
        if (out->rows == 0 && out->n_columns == 0)
            rc = start(it, &emitted, capacity, out, st);
        *full = rc == MR_OK && !mr_block_fits(out, &emitted);
        if (rc == MR_OK && !*full)
            rc = mr_block_append(out, &emitted, 0, 1, st);
        if (rc == MR_OK && !*full)
            mr__fold_go_on(&s->fold, &made);
    }
    mr_block_reset(&made);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (mr__cursor_left(&s->input) == 0)
        MR_TRY(mr__cursor_pull(it, 0, mr_iter_block_rows(it, want, s->row_bytes), &s->input, NULL,
                               st));
    size_t left = mr__cursor_left(&s->input), n = left < want ? left : want;
    mr_status error;
    mr_code rc = MR_OK;
    bool full = false, failed = false;
    while (rc == MR_OK && !full && out->rows < n) {
        rc = step(it, mr__cursor_rows(&s->input), mr__cursor_at(&s->input), n, out, &full, &failed,
                  &error);
        if (failed || (rc == MR_OK && !full))
            mr__cursor_use(&s->input, 1);
    }
    if (out->rows == 0) {
        if (st)
            *st = error;
        return rc;
    }
    s->row_bytes = mr_block_payload_bytes(out) / out->rows;
    if (failed)
        mr_iter_defer(it, &error);
    return MR_OK;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__fold_reset(&s->fold);
    mr__cursor_reset(&s->input);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_put_block(w, &s->fold.state, st));
    return mr__cursor_save(it, 0, &s->input, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_get_block(r, s->fold.spec, &s->fold.state, st));
    if (s->fold.state.rows != 1)
        return mr_state_damaged(st, "a state of scan is not one row");
    return mr__cursor_restore(it, 0, &s->input, r, st);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    return mr__fold_type("scan", p->fn, &p->init, mr_dataset_spec(mr_dataset_input(self, 0)), true,
                         NULL, out, NULL, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, init, .doc = "The first state: a value, or a tuple or record of them."),
    MR_ARG(struct params, fn,
           .doc = "Computes the next state and the output from the state and an element."),
    {0}};

const mr_op mr_op_scan = {
    .abi = MR_ABI_VERSION,
    .name = "scan",
    .doc = "Emits the outputs of a function of a running state and each element.",
    .example = "range(5).scan(0, (s, x) => (s + x, s))",
    .order_doc = "kept, one element after the other",
    .memory_doc = "the state of the function",
    .state_doc = "the state of the function",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_KEEPS_COUNT,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_scan(mr_dataset *input, const mr_value *init, mr_fn *fn)
{
    struct params p = {.init = *init, .fn = fn};
    mr_dataset *ds = mr_dataset_new(&mr_op_scan, &p, &input, 1);
    mr_fn_unref(fn);
    return ds;
}
