/* SPDX-License-Identifier: Apache-2.0 */
/* map: applies a function to each element. streams/parallel_calls.c calls it, in parallel or
 * not. */
#include "pipeline/ops/apply.h"
#include "pipeline/functions/compiler/program_impl.h"
#include "pipeline/streams/parallel_calls.h"

struct params {
    mr_fn *fn;
    mr_map_opts o;
};

static mr_code apply(const mr_program *program, mr_block *in, mr_block *out, mr_row_errors *errors,
                     size_t *bytes, mr_status *st)
{
    return mr__program_run_measured(program, in, out, errors, bytes, st);
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    const mr_program *program;
    MR_TRY(mr_iter_program(it, p->fn, mr_iter_input_spec(it, 0), &program, st));
    return mr__parallel_calls_open(it->state, it, program, apply, p->o.num_parallel_calls,
                                   p->o.deterministic, st);
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    const mr__parallel_calls *c = it->state;
    return mr__queue_idle(&c->queue) ? mr_iter_skip_input(it, 0, n, skipped, st) : MR_OK;
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    const mr__parallel_calls *c = it->state;
    mr_block in = MR_BLOCK_EMPTY, rows = MR_BLOCK_EMPTY;
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_code rc = mr_iter_at_input(it, 0, index, n, &in, st);
    if (rc == MR_OK)
        rc = mr_program_run(c->program, &in, &rows, &errors, st);
    if (rc == MR_OK && errors.n == 0)
        mr_block_move(out, &rows);
    else if (rc == MR_OK && errors.v[0].row > 0)
        rc = mr_block_slice(out, &rows, 0, errors.v[0].row, st);
    else if (rc == MR_OK) {
        *st = errors.v[0].status;
        rc = st->code;
    }
    mr_row_errors_reset(&errors);
    mr_block_reset(&rows);
    mr_block_reset(&in);
    return rc;
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    const mr_program *program;
    MR_TRY(mr_program_get(p->fn, mr_dataset_spec(mr_dataset_input(self, 0)), &program, st));
    *out = mr_spec_ref(mr_program_output(program));
    mr_program_unref(program);
    return MR_OK;
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__parallel_calls_check(((const struct params *)params)->o.num_parallel_calls, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, fn, .doc = "Computes the new element."),
    MR_OPT(struct params, num_parallel_calls, .flags = MR_P_AUTO | MR_P_NONE | MR_P_OPTIONAL,
           .min.i = 1, .max.i = INT64_MAX,
           .doc = "Blocks evaluated at once; auto: as needed; none: sequential."),
    MR_OPT(struct params, deterministic, .def.b = true,
           .doc = "Keeps the order; false: emits elements as they are finished."),
    {0}};

const mr_op mr_op_map = {
    .abi = MR_ABI_VERSION,
    .name = "map",
    .doc = "Replaces each element with the result of a function.",
    .example = "range(5).map(x => x * x, num_parallel_calls=2)",
    .order_doc = "kept; with deterministic=false as they come",
    .memory_doc = "a block for each parallel call",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__parallel_calls),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_COUNT | MR_OP_KEEPS_SHARDS | MR_OP_MAY_FAIL,
    .check = check,
    .infer = infer,
    .open = open,
    .next = mr__parallel_calls_next,
    .close = mr__parallel_calls_close,
    .save = mr__parallel_calls_save,
    .restore = mr__parallel_calls_restore,
    .skip = skip,
    .at = at,
};

mr_dataset *mr_map(mr_dataset *input, mr_fn *fn, const mr_map_opts *opts)
{
    struct params p = {.fn = fn};
    if (opts)
        p.o = *opts;
    mr_dataset *ds = mr_dataset_new(&mr_op_map, &p, &input, 1);
    mr_fn_unref(fn);
    return ds;
}
