/* SPDX-License-Identifier: Apache-2.0 */
/* flat_map: a cycle with one slot. Small inner datasets are collected into one block, blocks of
 * large ones are passed on as they are. */
#include "pipeline/ops/cycle.h"
#include "pipeline/ops/function_ops.h"

struct params {
    mr_fn *fn;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    const mr_program *program;
    MR_TRY(mr_program_get(p->fn, mr_iter_input_spec(it, 0), &program, st));
    return mr__cycle_open(it->state, it, program, 1, 1, 0, MR_DEFAULT, st);
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    return mr__cycle_next(it->state, want, out, st);
}

static void close(mr_iter *it)
{
    mr__cycle_close(it->state);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    return mr__cycle_save(it->state, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    return mr__cycle_restore(it->state, r, st);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    return mr__cycle_infer(p->fn, mr_dataset_spec(mr_dataset_input(self, 0)), "flat_map", out, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, fn, .doc = "Makes a dataset of each element."), {0}};

const mr_op mr_op_flat_map = {
    .abi = MR_ABI_VERSION,
    .name = "flat_map",
    .doc = "Puts the elements of the datasets that a function returns one behind the other.",
    .example = "range(4).flat_map(n => range(n))",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__cycle),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_FUNCTION,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_flat_map(mr_dataset *input, mr_fn *fn)
{
    struct params p = {.fn = fn};
    mr_dataset *ds = mr_dataset_new(&mr_op_flat_map, &p, &input, 1);
    mr_fn_unref(fn);
    return ds;
}
