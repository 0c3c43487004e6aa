/* SPDX-License-Identifier: Apache-2.0 */
/* Maps strings to bins by hash; needs no vocabulary. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/model/layer.h"

struct params {
    int64_t num_bins;
};

static mr_code prepare(const mr_layer *l, const char *x, char **out, mr_status *st)
{
    const struct params *o = l->params;
    *out = mr_strf("hash(%s, buckets=%" PRId64 ")", x, o->num_bins);
    return *out ? MR_OK : mr_fail_memory(st, strlen(x), "a model's preprocessing");
}

static const mr_param table[] = {MR_ARG(struct params, num_bins, .min.i = 1,
                                        .max.i = INT64_C(1) << 40, .doc = "Number of bins."),
                                 {0}};

const mr_layer_desc mr__layer_hashing = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "hashing",
           .doc = "Maps each string to a bin by its hash.",
           .example = "input(2).hashing(num_bins=10).category_encoding(10).dense(1)",
           .params = table,
           .params_size = sizeof(struct params)},
    .view = true,
    .prepare = prepare,
};
