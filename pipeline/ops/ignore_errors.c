/* SPDX-License-Identifier: Apache-2.0 */
/* Drops errors of elements. Passes on the others: errors marked MR_OF_NO_ELEMENT, cancellation, and
 * a lack of memory, after which pulling again might never make progress. */
#include "pipeline/ops/sequence.h"

#include <errno.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/log.h"

struct params {
    mr_ignore_errors_opts o;
};

struct state {
    mr_status error;
};

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    for (;;) {
        mr_code rc = mr_iter_pull(it, 0, want, out, &s->error);
        if (rc >= 0)
            return rc;
        if (mr_iter_cancelled(it) || s->error.element == MR_OF_NO_ELEMENT ||
            (rc == MR_RESOURCE_EXHAUSTED && s->error.sys_errno == ENOMEM)) {
            if (st)
                *st = s->error;
            return rc;
        }
        if (p->o.log_warning) {
            char line[1024];
            mr_status_format(&s->error, line, sizeof line);
            mr_log(MR_LOG_WARNING, "ignored an error: %s", line);
        }
    }
}

static const mr_param table[] = {MR_OPT(struct params, log_warning, .flags = MR_P_OPTIONAL,
                                        .doc = "Logs each error that is dropped."),
                                 {0}};

const mr_op mr_op_ignore_errors = {
    .abi = MR_ABI_VERSION,
    .name = "ignore_errors",
    .doc = "Drops elements that failed.",
    .example = "from_tensor_slices([2, 0, 1]).map(x => 2 // x).ignore_errors()",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_KEEPS_SHARDS,
    .next = next,
};

mr_dataset *mr_ignore_errors(mr_dataset *input, const mr_ignore_errors_opts *opts)
{
    struct params p = {0};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_ignore_errors, &p, &input, 1);
}
