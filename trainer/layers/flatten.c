/* SPDX-License-Identifier: Apache-2.0 */
/* One axis of all the values of an example; a scalar becomes [1]. */
#include "trainer/layer.h"

static mr_code build(mr__layer *l, mr_status *st)
{
    (void)st;
    l->out = (mr__dims){.rank = 1, .shape = {(int64_t)mr__dims_values(&l->in)}};
    return MR_OK;
}

static const mr__arg args[] = {{0}};

const mr__layer_desc mr__layer_flatten = {
    .name = "flatten",
    .doc = "Makes one axis of all axes of an example.",
    .example = "input(28, 28).flatten().dense(10)",
    .args = args,
    .view = true,
    .build = build,
};
