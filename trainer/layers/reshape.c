/* SPDX-License-Identifier: Apache-2.0 */
/* The same values in another shape; one dimension may be -1 and is worked out. */
#include <inttypes.h>
#include "trainer/layer.h"

struct params {
    mr__dims target_shape;
};

static mr_code build(mr__layer *l, mr_status *st)
{
    const struct params *o = l->params;
    int64_t values = (int64_t)mr__dims_values(&l->in), known = 1;
    int unknown = -1;
    l->out = o->target_shape;
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

static const mr__arg args[] = {MR__ARG(struct params, target_shape, MR__DIMS, .required = true,
                                       .min = -1, .max = 1 << 30,
                                       .doc = "Shape of one example; one dimension may be -1."),
                               {0}};

const mr__layer_desc mr__layer_reshape = {
    .name = "reshape",
    .doc = "Gives an example another shape.",
    .example = "input(784).reshape(28, 28).flatten().dense(10)",
    .args = args,
    .params_size = sizeof(struct params),
    .view = true,
    .build = build,
};
