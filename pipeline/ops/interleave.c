/* SPDX-License-Identifier: Apache-2.0 */
/* interleave: takes elements in turn from the datasets that a function returns. interleaver.c does
 * the work; this file checks the arguments. */
#include <inttypes.h>

#include "pipeline/streams/interleaver.h"
#include "pipeline/ops/apply.h"

enum { CYCLE_AUTO = 16 }; /* a constant, so that the order is equal on all machines */

struct params {
    mr_fn *fn; /* first, for mr__interleaver_infer */
    mr_interleave_opts o;
};

static int64_t cycle_length(const struct params *p)
{
    int64_t n = p->o.cycle_length;
    return n == 0 || n == MR_AUTO ? CYCLE_AUTO : n;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    const mr_program *program;
    MR_TRY(mr_iter_program(it, p->fn, mr_iter_input_spec(it, 0), &program, st));
    int64_t block = p->o.block_length ? p->o.block_length : 1;
    return mr__interleaver_open(it->state, it, program, cycle_length(p), block,
                                p->o.num_parallel_calls, p->o.deterministic, st);
}

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    const struct params *p = params;
    if (p->o.num_parallel_calls && in[0] == MR_INFINITE)
        return MR_INFINITE;
    return mr__interleaver_cardinality(self, p->fn, in[0]);
}

static mr_code check(const void *params, mr_status *st)
{
    const struct params *p = params;
    int64_t calls = p->o.num_parallel_calls, cycle = p->o.cycle_length;
    if (calls > 0 && cycle > 0 && calls > cycle)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "num_parallel_calls is %" PRId64 ", which is more than cycle_length %" PRId64
                       "; give at most the latter",
                       calls, cycle);
    return MR_OK;
}

static const mr_param table[] = {
    MR_ARG(struct params, fn, .doc = "Makes a dataset from each element."),
    MR_OPT(struct params, cycle_length, .flags = MR_P_AUTO | MR_P_NONE | MR_P_OPTIONAL, .min.i = 1,
           .max.i = INT64_MAX, .doc = "Datasets taken in turn; auto or absent: 16."),
    MR_OPT(struct params, block_length, .flags = MR_P_NONE | MR_P_OPTIONAL, .def.i = 1, .min.i = 1,
           .max.i = INT64_MAX, .doc = "Elements taken from one before the next. Default: 1."),
    MR_OPT(struct params, num_parallel_calls, .flags = MR_P_AUTO | MR_P_NONE | MR_P_OPTIONAL,
           .min.i = 1, .max.i = INT64_MAX,
           .doc = "Datasets read at once; auto: as the consumer needs; none: sequential."),
    MR_OPT(struct params, deterministic, .def.b = true,
           .doc = "Keeps the order; false: emits elements as they become available."),
    {0}};

const mr_op mr_op_interleave = {
    .abi = MR_ABI_VERSION,
    .name = "interleave",
    .doc = "Cycles through the datasets that a function returns, taking elements of each in turn.",
    .example = "range(4).interleave(n => range(n), cycle_length=2)",
    .order_doc = "block_length elements of each dataset in turn; with deterministic=false as they "
                 "come",
    .memory_doc = "a block of each of cycle_length datasets",
    .state_doc = "each open dataset: the element that it was made from, and its position",
    .count_doc = "n times that of the datasets, if it is the same for all",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__interleaver),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_FUNCTION,
    .props = MR_OP_KEEPS_SHARDS,
    .check = check,
    .infer = mr__interleaver_infer,
    .cardinality = cardinality,
    .open = open,
    .next = mr__interleaver_next,
    .close = mr__interleaver_close,
    .save = mr__interleaver_save,
    .restore = mr__interleaver_restore,
};

mr_dataset *mr_interleave(mr_dataset *input, mr_fn *fn, const mr_interleave_opts *opts)
{
    struct params p = {.fn = fn};
    if (opts)
        p.o = *opts;
    mr_dataset *ds = mr_dataset_new(&mr_op_interleave, &p, &input, 1);
    mr_fn_unref(fn);
    return ds;
}
