/* SPDX-License-Identifier: Apache-2.0 */
/* One element for each index of axis 0, which all components share. A list of datasets has datasets
 * as its slices. */
#include "pipeline/ops/source.h"

#include "pipeline/ops/constant.h"

struct params {
    mr_value components; /* a TUPLE of them, or a RECORD */
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    mr_constant *s = it->state;
    return mr__constant_block(&p->components, MR_SLICES, it->spec, &s->all, st);
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    const struct params *q = p;
    int64_t count = -1;
    return mr__constant_spec(&q->components, MR_SLICES, out, &count, st);
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)in;
    const struct params *q = p;
    mr_spec *spec = NULL;
    int64_t count = -1;
    if (mr__constant_spec(&q->components, MR_SLICES, &spec, &count, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    mr_spec_unref(spec);
    return count >= 0 ? count : MR_UNKNOWN_COUNT;
}

static const mr_param table[] = {
    {.name = "components",
     .doc = "Tensors of rank 1 or more, each a component of the elements.",
     .type = MR_PT_VALUE,
     .flags = MR_P_POSITIONAL | MR_P_VARIADIC,
     .at = offsetof(struct params, components)},
    {0}};

const mr_op mr_op_from_tensor_slices = {
    .abi = MR_ABI_VERSION,
    .name = "from_tensor_slices",
    .doc = "Gives the slices of its components along axis 0.",
    .example = "from_tensor_slices([[1, 2], [3, 4]])",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr_constant),
    .role = MR_ROLE_SOURCE,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = mr__constant_next,
    .close = mr__constant_close,
    .save = mr__constant_save,
    .restore = mr__constant_restore,
};

mr_dataset *mr_from_tensor_slices(const mr_array *components, const char *const *names, size_t n)
{
    mr_status st;
    mr_status_init(&st);
    struct params p = {0};
    if (mr__constant_value(components, names, n, &p.components, &st) != MR_OK)
        return mr_dataset_fail(&st);
    mr_dataset *ds = mr_dataset_new(&mr_op_from_tensor_slices, &p, NULL, 0);
    mr_value_reset(&p.components);
    return ds;
}
