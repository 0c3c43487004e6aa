/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_DRAWS_H
#define MR_TESTS_DRAWS_H
/* What the random ops of a graph draw from: "shuffle:<place>:<seed>" for each that draws from a
 * job's seed, because it has none itself; those nearest the sink first. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/graph/op.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/memory/alloc.h"

static inline void mr_test_draws(const mr_dataset *ds, char *buf, size_t size)
{
    mr_value seed = {0};
    mr__origin o = mr__dataset_origin(ds);
    size_t n = strlen(buf);
    if ((mr_dataset_op(ds)->props & MR_OP_RANDOM) && o.has_seed &&
        mr_dataset_param_named(ds, "seed", &seed, NULL) == MR_OK && seed.kind != MR_V_INT)
        snprintf(buf + n, size - n, "%s:%" PRIx64 ":%" PRIu64 " ", mr_dataset_op(ds)->name, o.place,
                 o.seed);
    mr_value_reset(&seed);
    for (size_t i = 0; i < mr_dataset_n_inputs(ds); i++)
        mr_test_draws(mr_dataset_input(ds, i), buf, size);
}
#endif
