/* SPDX-License-Identifier: Apache-2.0 */
/* flat_map: an interleaver with one slot. Small inner datasets are collected into one block; blocks
 * of large ones are passed on unchanged. */
#include "pipeline/streams/interleaver.h"
#include "pipeline/ops/apply.h"

struct params {
    mr_fn *fn; /* first, for mr__interleaver_infer */
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    const mr_program *program;
    MR_TRY(mr_iter_program(it, p->fn, mr_iter_input_spec(it, 0), &program, st));
    return mr__interleaver_open(it->state, it, program, 1, 1, 0, MR_DEFAULT, st);
}

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    return mr__interleaver_cardinality(self, ((const struct params *)params)->fn, in[0]);
}

static const mr_param table[] = {
    MR_ARG(struct params, fn, .doc = "Makes a dataset from each element."), {0}};

const mr_op mr_op_flat_map = {
    .abi = MR_ABI_VERSION,
    .name = "flat_map",
    .doc = "Concatenates the datasets that a function returns for the elements.",
    .example = "range(4).flat_map(n => range(n))",
    .order_doc = "of each dataset kept, one after the other",
    .memory_doc = "a block of the current dataset",
    .state_doc = "the current dataset: the element that it was made from, and its position",
    .count_doc = "n times that of the datasets, if it is the same for all",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__interleaver),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_FUNCTION,
    .props = MR_OP_KEEPS_SHARDS,
    .infer = mr__interleaver_infer,
    .cardinality = cardinality,
    .open = open,
    .next = mr__interleaver_next,
    .close = mr__interleaver_close,
    .save = mr__interleaver_save,
    .restore = mr__interleaver_restore,
};

mr_dataset *mr_flat_map(mr_dataset *input, mr_fn *fn)
{
    struct params p = {.fn = fn};
    mr_dataset *ds = mr_dataset_new(&mr_op_flat_map, &p, &input, 1);
    mr_fn_unref(fn);
    return ds;
}
