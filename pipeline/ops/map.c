/* SPDX-License-Identifier: Apache-2.0 */
/* map: a function of each element. Sequential or parallel, the work is parallel_calls.c's. */
#include "pipeline/ops/function_ops.h"
#include "pipeline/ops/parallel_calls.h"

struct params {
    mr_fn *fn;
    mr_map_opts o;
};

static mr_code apply(const mr_program *program, mr_block *in, mr_block *out, mr_row_errors *errors,
                     mr_status *st)
{
    return mr_program_run(program, in, out, errors, st);
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
    const mr_program *program;
    MR_TRY(mr_program_get(p->fn, mr_dataset_spec(mr_dataset_input(self, 0)), &program, st));
    *out = mr_spec_ref(mr_program_output(program));
    mr_program_unref(program);
    return MR_OK;
}

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    (void)self;
    (void)params;
    return in[0];
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__calls_check(((const struct params *)params)->o.num_parallel_calls, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, fn, .doc = "What is made of each element."),
    MR_OPT(struct params, num_parallel_calls, .flags = MR_P_AUTO | MR_P_NONE | MR_P_OPTIONAL,
           .min.i = 1, .max.i = INT64_MAX,
           .doc = "Blocks evaluated at once; auto: as the pool has threads; none: one by one."),
    MR_OPT(struct params, deterministic, .def.b = true,
           .doc = "Keeps the order; false: what is finished first comes first."),
    {0}};

const mr_op mr_op_map = {
    .abi = MR_ABI_VERSION,
    .name = "map",
    .doc = "Replaces each element by what a function makes of it.",
    .example = "range(5).map(x => x * x, num_parallel_calls=2)",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__calls),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_COUNT,
    .check = check,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
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
