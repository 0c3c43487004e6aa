/* SPDX-License-Identifier: Apache-2.0 */
/* Flattens the values of an example to one axis; a scalar becomes [1]. */
#include "trainer/model/layer.h"

static mr_code build(mr_layer *l, mr_status *st)
{
    (void)st;
    l->out = (mr_dims){.rank = 1, .shape = {(int64_t)mr_dims_values(&l->in)}};
    return MR_OK;
}

const mr_layer_desc mr__layer_flatten = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "flatten",
           .doc = "Flattens all axes of an example into one.",
           .example = "input(28, 28).flatten().dense(10)"},
    .view = true,
    .build = build,
};
