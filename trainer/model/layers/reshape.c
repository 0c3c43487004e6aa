/* SPDX-License-Identifier: Apache-2.0 */
/* Reshapes the values; one dimension may be -1 and is computed. */
#include <inttypes.h>
#include "trainer/model/layer.h"

struct params {
    mr_ints target_shape;
};

static mr_code build(mr_layer *l, mr_status *st)
{
    const struct params *o = l->params;
    int64_t values = (int64_t)mr_dims_values(&l->in), known = 1;
    int unknown = -1;
    if (o->target_shape.n > MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "reshape: at most %d dimensions, found %zu",
                       MR_MAX_RANK, o->target_shape.n);
    l->out = (mr_dims){.rank = (int)o->target_shape.n};
    for (int i = 0; i < l->out.rank; i++)
        l->out.shape[i] = o->target_shape.v[i];
    for (int i = 0; i < l->out.rank; i++) {
        if (l->out.shape[i] == -1 && unknown >= 0)
            return mr_fail(st, MR_INVALID_ARGUMENT, "reshape: at most one dimension can be -1");
        if (l->out.shape[i] == -1)
            unknown = i;
        else if (__builtin_mul_overflow(known, l->out.shape[i], &known))
            known = 0;
    }
    if (unknown >= 0 && known > 0)
        l->out.shape[unknown] = values / known;
    if (known == 0 ? values != 0 || unknown >= 0
                   : known * (unknown >= 0 ? l->out.shape[unknown] : 1) != values)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "reshape: an example has %" PRId64 " values, which do not fill the new shape", values);
    return MR_OK;
}

static const mr_param table[] = {{.name = "target_shape",
                                  .doc = "Shape of one example; one dimension may be -1.",
                                  .type = MR_PT_INTS,
                                  .flags = MR_P_POSITIONAL | MR_P_VARIADIC,
                                  .at = offsetof(struct params, target_shape),
                                  .min.i = -1,
                                  .max.i = 1 << 30},
                                 {0}};

const mr_layer_desc mr__layer_reshape = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "reshape",
           .doc = "Changes the shape of an example.",
           .example = "input(784).reshape(28, 28).flatten().dense(10)",
           .params = table,
           .params_size = sizeof(struct params)},
    .view = true,
    .build = build,
};
