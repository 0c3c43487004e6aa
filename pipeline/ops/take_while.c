/* SPDX-License-Identifier: Apache-2.0 */
/* The function runs over a block at a time. Elements and errors after the first element for
 * which it returns false are never emitted. */
#include "pipeline/ops/sequence.h"

#include "pipeline/engine/block_size_tuner.h"
#include "pipeline/functions/compiler/program_impl.h"
#include "pipeline/graph/node.h"
#include "pipeline/streams/cursor.h"
#include "pipeline/streams/row_filter.h"

struct params {
    mr_fn *fn;
};

struct state {
    mr__cursor input; /* holds rows only if lack of memory prevented processing them */
    const mr_program *program;
    mr__block_size_tuner tuner;
    bool one_by_one; /* the input records what is pulled (MR_OP_REMEMBERS) */
    uint64_t stopped;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    mr__block_size_tuner_start(&s->tuner, it, 0);
    s->tuner.by_clock = false; /* calls do not run concurrently: bytes alone decide */
    s->one_by_one = mr__dataset_all_props(mr_dataset_input(it->node, 0)) & MR_OP_REMEMBERS;
    return mr_iter_program(it, p->fn, mr_iter_input_spec(it, 0), &s->program, st);
}

/* The number of rows before the first refused one, including failed ones; drops the errors after
 * it. verdict has an entry for each row that did not fail. */
static size_t rows_before_stop(const mr_block *verdict, size_t rows, mr_row_errors *errors)
{
    const bool *goes_on = verdict->rows ? verdict->columns[0].data : NULL;
    size_t failed = 0;
    for (size_t row = 0; row < rows; row++) {
        if (failed < errors->n && errors->v[failed].row == row)
            failed++;
        else if (!goes_on[row - failed]) {
            errors->n = failed;
            return row;
        }
    }
    return rows;
}

/* out = the first n rows of `in` without those that failed. */
static mr_code drop_failed(const mr_block *in, size_t n, const mr_row_errors *errors, mr_block *out,
                           mr_status *st)
{
    if (errors->n == 0)
        return mr_block_slice(out, in, 0, n, st);
    if (errors->n == n)
        return MR_OK;
    MR_TRY(mr_block_start(out, in, n, st));
    size_t from = 0;
    for (size_t e = 0; e <= errors->n; e++) {
        size_t to = e < errors->n ? errors->v[e].row : n;
        if (to > from)
            MR_TRY(mr_block_append(out, in, from, to - from, st));
        from = to + 1;
    }
    return MR_OK;
}

/* Evaluates the rows of `in`: those to emit, and the errors among them. */
static mr_code look(struct state *s, const mr_block *in, mr_block *out, mr_row_errors *errors,
                    bool *stopped, mr_status *st)
{
    mr_block verdict = MR_BLOCK_EMPTY;
    size_t on_the_way = 0, bytes = mr_block_payload_bytes(in);
    mr_code rc = mr__program_run_measured(s->program, in, &verdict, errors, &on_the_way, st);
    if (rc == MR_OK)
        rc = mr__predicate_check_verdict("take_while", &verdict, st);
    if (rc == MR_OK) {
        size_t n = rows_before_stop(&verdict, in->rows, errors);
        *stopped = n < in->rows;
        mr__block_size_tuner_note(&s->tuner, in->rows, 0, in->rows,
                                  bytes > on_the_way ? bytes : on_the_way);
        rc = drop_failed(in, n, errors, out, st);
    }
    mr_block_reset(&verdict);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (s->stopped)
        return MR_END;
    if (mr__cursor_left(&s->input) == 0) {
        size_t ask = s->one_by_one ? 1 : mr__block_size_tuner_ask(&s->tuner, it, want);
        MR_TRY(mr__cursor_pull(it, 0, ask, &s->input, NULL, st));
    }
    mr_block in = MR_BLOCK_EMPTY, rows = MR_BLOCK_EMPTY;
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    bool stopped = false;
    size_t left = mr__cursor_left(&s->input);
    mr_code rc =
        mr_block_slice(&in, mr__cursor_rows(&s->input), mr__cursor_at(&s->input), left, st);
    if (rc == MR_OK)
        rc = look(s, &in, &rows, &errors, &stopped, st);
    mr_block_reset(&in);
    if (rc == MR_OK) {
        s->stopped = stopped;
        mr__cursor_use(&s->input, left);
        rc = rows.rows || errors.n ? mr_iter_emit(it, want, &rows, &errors, out, st) : MR_END;
    }
    mr_block_reset(&rows);
    mr_row_errors_reset(&errors);
    return rc;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__cursor_reset(&s->input);
    mr_program_unref(s->program);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->stopped, st));
    return mr__cursor_save(it, 0, &s->input, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->stopped, st));
    if (s->stopped > 1)
        return mr_state_damaged(st, "a flag is neither set nor clear");
    return mr__cursor_restore(it, 0, &s->input, r, st);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    MR_TRY(mr__predicate_check(self, p->fn, st));
    *out = mr_spec_ref(mr_dataset_spec(mr_dataset_input(self, 0)));
    return MR_OK;
}

static const mr_param table[] = {
    MR_ARG(struct params, fn,
           .doc = "True for the elements to take; the first false ends the dataset."),
    {0}};

const mr_op mr_op_take_while = {
    .abi = MR_ABI_VERSION,
    .name = "take_while",
    .doc = "Ends before the first element for which a function returns false.",
    .example = "range(10).take_while(x => x < 4)",
    .state_doc = "whether it has ended",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_take_while(mr_dataset *input, mr_fn *fn)
{
    struct params p = {.fn = fn};
    mr_dataset *ds = mr_dataset_new(&mr_op_take_while, &p, &input, 1);
    mr_fn_unref(fn);
    return ds;
}
