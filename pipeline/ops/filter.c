/* SPDX-License-Identifier: Apache-2.0 */
/* filter: keeps what a function says. Sequential or parallel, the work is parallel_calls.c's; a
 * block that is kept whole is passed on as it is. */
#include "pipeline/ops/function_ops.h"
#include "pipeline/ops/parallel_calls.h"

struct params {
    mr_fn *fn;
    mr_filter_opts o;
};

/* Lists the rows of `in` that are kept; an error then stands before the kept rows that follow it.
 * keep has an entry for each row without an error. */
static size_t choose(const bool *keep, size_t rows, mr_row_errors *errors, uint32_t *index)
{
    size_t n = 0, e = 0;
    for (size_t row = 0; row < rows; row++) {
        if (e < errors->n && errors->v[e].row == row) {
            errors->v[e].row = n + e;
            e++;
            continue;
        }
        index[n] = (uint32_t)row;
        n += keep[row - e];
    }
    return n;
}

/* out = the n rows of `in` that index lists. */
static mr_code gather(mr_block *in, const uint32_t *index, size_t n, mr_block *out, mr_status *st)
{
    if (n == in->rows) {
        mr_block_move(out, in);
        return MR_OK;
    }
    if (n && index[n - 1] - index[0] == n - 1)
        return mr_block_slice(out, in, index[0], n, st);
    mr_block_clear(out);
    if (n == 0)
        return MR_OK;
    MR_TRY(mr_block_start(out, in, n, st));
    return mr_block_append_rows(out, in, index, n, st);
}

static mr_code apply(const mr_program *program, mr_block *in, mr_block *out, mr_row_errors *errors,
                     mr_status *st)
{
    mr_block verdict = MR_BLOCK_EMPTY;
    mr_buffer *index = NULL;
    mr_code rc = mr_program_run(program, in, &verdict, errors, st);
    if (rc == MR_OK && verdict.rows &&
        (verdict.columns[0].storage != MR_DENSE || verdict.columns[0].rank != 0))
        rc =
            mr_fail(st, MR_INVALID_ARGUMENT,
                    "filter expects a scalar bool of each element, found one of shape with rank %d",
                    verdict.columns[0].rank);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&index, in->rows * sizeof(uint32_t), st);
    if (rc == MR_OK) {
        const bool *keep = verdict.rows ? verdict.columns[0].data : NULL;
        size_t n = choose(keep, in->rows, errors, mr_buffer_data(index));
        rc = gather(in, mr_buffer_data(index), n, out, st);
    }
    mr_buffer_unref(index);
    mr_block_reset(&verdict);
    return rc;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    const mr_program *program;
    MR_TRY(mr_program_get(p->fn, mr_iter_input_spec(it, 0), &program, st));
    return mr__calls_open(it->state, it, program, apply, p->o.num_parallel_calls,
                          p->o.deterministic, st);
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    return mr__calls_next(it->state, want, out, st);
}

static void close(mr_iter *it)
{
    mr__calls_close(it->state);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    return mr__calls_save(it->state, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    return mr__calls_restore(it->state, r, st);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    const mr_program *program;
    MR_TRY(mr_program_get(p->fn, in, &program, st));
    const mr_spec *made = mr_program_output(program);
    mr_code rc = MR_OK;
    const mr_leaf *leaf = mr_spec_leaf(made, 0);
    if (mr_spec_kind_of(made) != MR_SPEC_LEAF || leaf->dtype != MR_BOOL || leaf->rank > 0) {
        char text[256];
        mr_spec_format(made, text, sizeof text);
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "filter expects a function that returns one scalar bool, not %s", text);
    }
    mr_program_unref(program);
    if (rc == MR_OK)
        *out = mr_spec_ref(in);
    return rc;
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__calls_check(((const struct params *)params)->o.num_parallel_calls, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, fn, .doc = "True for the elements that stay."),
    MR_OPT(struct params, num_parallel_calls, .flags = MR_P_AUTO | MR_P_NONE, .min.i = 1,
           .max.i = INT64_MAX,
           .doc = "Blocks evaluated at once; auto: as the pool has threads; none: one by one."),
    MR_OPT(struct params, deterministic, .def.b = true,
           .doc = "Keeps the order; false: what is finished first comes first."),
    {0}};

const mr_op mr_op_filter = {
    .abi = MR_ABI_VERSION,
    .name = "filter",
    .doc = "Keeps the elements for which a function returns true.",
    .example = "range(10).filter(x => x % 2 == 1)",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__calls),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .check = check,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_filter(mr_dataset *input, mr_fn *fn, const mr_filter_opts *opts)
{
    struct params p = {.fn = fn};
    if (opts)
        p.o = *opts;
    mr_dataset *ds = mr_dataset_new(&mr_op_filter, &p, &input, 1);
    mr_fn_unref(fn);
    return ds;
}
