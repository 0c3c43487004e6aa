/* SPDX-License-Identifier: Apache-2.0 */
/* Drops errors of elements. Passes on errors of no element and cancellation: pulling again might
 * never make progress, and would take what follows for the end. The engine counts what was dropped,
 * also in positions. */
#include "pipeline/ops/sequence.h"

#include <inttypes.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/log.h"

struct params {
    mr_ignore_errors_opts o;
};

struct state {
    mr_status error;
    uint64_t logged; /* the number of dropped elements that was logged */
};

/* Once at the end, unless each was logged. */
static void log_dropped(mr_iter *it)
{
    struct state *s = it->state;
    uint64_t n = mr_iter_n_dropped(it);
    if (n == s->logged)
        return;
    mr_log(MR_LOG_WARNING, "ignore_errors: %" PRIu64 " element%s failed and %s skipped", n,
           n == 1 ? "" : "s", n == 1 ? "was" : "were");
    s->logged = n;
}

static bool is_too_much(const mr_iter *it)
{
    const struct params *p = it->params;
    return p->o.has_max && mr_iter_n_dropped(it) >= (uint64_t)p->o.max;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    for (;;) {
        mr_code rc = mr_iter_pull(it, 0, want, out, &s->error);
        if (rc == MR_END)
            log_dropped(it);
        if (rc >= 0)
            return rc;
        bool of_element =
            !mr_status_is_of_no_element(&s->error) && rc != MR_CANCELLED && !mr_iter_cancelled(it);
        if (of_element && is_too_much(it))
            mr_status_prefix(
                &s->error, "one failed element more than ignore_errors may skip (max=%" PRId64 ")",
                p->o.max);
        if (!of_element || is_too_much(it)) {
            if (st)
                *st = s->error;
            return rc;
        }
        mr_iter_dropped(it);
        if (p->o.log_warning) {
            char line[1024];
            mr_status_format(&s->error, line, sizeof line);
            mr_log(MR_LOG_WARNING, "ignored an error: %s", line);
        }
    }
}

static void close(mr_iter *it)
{
    log_dropped(it);
}

static const mr_param table[] = {
    MR_OPT(struct params, log_warning, .flags = MR_P_OPTIONAL,
           .doc = "Logs each error that is dropped."),
    MR_OPT(struct params, max, .flags = MR_P_NONE, .has_at = offsetof(struct params, o.has_max),
           .max.i = INT64_MAX,
           .doc = "Errors to drop in a pass; one more is returned. None: any number."),
    {0}};

const mr_op mr_op_ignore_errors = {
    .abi = MR_ABI_VERSION,
    .name = "ignore_errors",
    .doc = "Drops elements that failed; errors that belong to no element pass.",
    .example = "from_tensor_slices([2, 0, 1]).map(x => 2 // x).ignore_errors(max=10)",
    .state_doc = "the number of dropped elements",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_KEEPS_SHARDS,
    .next = next,
    .close = close,
};

mr_dataset *mr_ignore_errors(mr_dataset *input, const mr_ignore_errors_opts *opts)
{
    struct params p = {0};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_ignore_errors, &p, &input, 1);
}
