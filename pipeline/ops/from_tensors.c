/* SPDX-License-Identifier: Apache-2.0 */
/* One element. A dataset may be a component. */
#include "pipeline/ops/sources.h"

#include "pipeline/columns/constant.h"

struct params {
    mr_value components; /* a TUPLE of them, or a RECORD */
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    mr__constant *s = it->state;
    return mr__constant_block(&p->components, MR_WHOLE, it->spec, &s->all, st);
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    const struct params *q = p;
    int64_t count = -1;
    return mr__constant_spec(&q->components, MR_WHOLE, out, &count, st);
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)in;
    (void)p;
    return 1;
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, components, MR_P_POSITIONAL | MR_P_VARIADIC,
                  .doc = "Tensors or datasets, each a component of the element."),
    {0}};

const mr_op mr_op_from_tensors = {
    .abi = MR_ABI_VERSION,
    .name = "from_tensors",
    .doc = "Emits the components as one element.",
    .example = "from_tensors(1, [2, 3])",
    .order_doc = "one element",
    .memory_doc = "the values, which belong to the graph",
    .state_doc = "a counter",
    .count_doc = "1",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__constant),
    .role = MR_ROLE_SOURCE,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = mr__constant_next,
    .close = mr__constant_close,
    .save = mr__constant_save,
    .restore = mr__constant_restore,
};

mr_dataset *mr_from_tensors(const mr_array *components, const char *const *names, size_t n)
{
    return mr__constant_dataset(&mr_op_from_tensors, components, names, n);
}
