/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the same numbers as tf.data (streams/weighted_draws.h). Inputs of weight 0 are never
 * opened. */
#include "pipeline/ops/sequence.h"

#include <math.h>

#include "pipeline/streams/seeds.h"
#include "pipeline/streams/weighted_draws.h"

struct params {
    mr_floats weights;
    mr_sample_from_datasets_opts o;
};

static bool has_weight(const struct params *p, size_t i)
{
    return p->weights.n == 0 || p->weights.v[i] > 0;
}

static mr_code open_inputs(mr_iter *it, bool *used, mr_status *st)
{
    const struct params *p = it->params;
    mr__weighted_selection *s = it->state;
    for (size_t i = 0; i < it->n_inputs; i++) {
        used[i] = has_weight(p, i);
        if (used[i])
            MR_TRY(mr_iter_open_input(it, i, st));
    }
    MR_TRY(mr__weighted_open(&s->draws, p->weights.n ? p->weights.v : NULL, it->n_inputs, st));
    return mr__selection_open(&s->selection, it, it->n_inputs, used,
                              p->o.stop_on_empty_dataset == MR_YES ? MR__STOP_FIRST : MR__STOP_ALL,
                              st);
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    mr__weighted_selection *s = it->state;
    bool *used = mr_calloc(it->n_inputs, sizeof *used);
    mr_code rc = used ? open_inputs(it, used, st) : mr_fail_memory(st, it->n_inputs, "weights");
    mr_free(used);
    MR_TRY(rc);
    MR_TRY(mr__seeds_draw(it, p->o.has_seed ? &p->o.seed : NULL,
                          p->o.rerandomize_each_iteration == MR_YES, s->draws.pair, st));
    mr__weighted_start(&s->draws, 0);
    return MR_OK;
}

static void close(mr_iter *it)
{
    mr__weighted_selection *s = it->state;
    mr__selection_reset(&s->selection);
    mr__weighted_reset(&s->draws);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    mr__weighted_selection *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->draws.pair[0], st));
    MR_TRY(mr_state_put_u64(w, s->draws.pair[1], st));
    MR_TRY(mr_state_put_u64(w, s->draws.drawn, st));
    return mr__selection_save(&s->selection, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    mr__weighted_selection *s = it->state;
    uint64_t drawn;
    MR_TRY(mr_state_get_u64(r, &s->draws.pair[0], st));
    MR_TRY(mr_state_get_u64(r, &s->draws.pair[1], st));
    MR_TRY(mr_state_get_u64(r, &drawn, st));
    mr__weighted_start(&s->draws, drawn);
    return mr__selection_restore(&s->selection, r, st);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    size_t n = mr_dataset_n_inputs(self);
    if (p->weights.n && p->weights.n != n)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "sample_from_datasets: weights has %zu numbers for %zu datasets; give one "
                       "for each",
                       p->weights.n, n);
    for (size_t i = 0; i < p->weights.n; i++)
        if (!(p->weights.v[i] >= 0) || isinf(p->weights.v[i]))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "sample_from_datasets: weights must be finite and at least 0, found %g",
                           p->weights.v[i]);
    return mr__selection_infer(self, n, out, st);
}

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    const struct params *p = params;
    size_t n = 0, last = 0;
    bool infinite = false;
    if (mr_param_unknown(self, offsetof(struct params, weights)))
        return MR_UNKNOWN_COUNT;
    for (size_t i = 0; i < mr_dataset_n_inputs(self); i++)
        if (has_weight(p, i)) {
            n++;
            last = i;
            infinite = infinite || in[i] == MR_INFINITE;
        }
    return n == 0 ? 0 : n == 1 ? in[last] : infinite ? MR_INFINITE : MR_UNKNOWN_COUNT;
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, weights, MR_P_OPTIONAL | MR_P_NONE,
                  .doc =
                      "How often each dataset is drawn, in proportion; equally often if absent."),
    MR_OPT(struct params, seed, .flags = MR_P_OPTIONAL | MR_P_NONE,
           .has_at = offsetof(struct params, o.has_seed),
           .doc = "Fixes the order; drawn at random if absent."),
    MR_OPT(struct params, stop_on_empty_dataset, .flags = MR_P_OPTIONAL,
           .doc = "Ends with the first dataset that ends; false: continues with the others."),
    MR_OPT(struct params, rerandomize_each_iteration, .flags = MR_P_OPTIONAL | MR_P_NONE,
           .doc = "Draws a new order in each epoch."),
    {0}};

const mr_op mr_op_sample_from_datasets = {
    .abi = MR_ABI_VERSION,
    .name = "sample_from_datasets",
    .doc = "Takes each element from a dataset drawn at random.",
    .example = "sample_from_datasets([range(5), range(10, 15)], weights=[0.5, 0.5], seed=42)",
    .order_doc = "of each input kept; between them random",
    .memory_doc = "a block of each input",
    .state_doc = "the draws",
    .count_doc = "unknown; without end where an input with a weight is",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__weighted_selection),
    .min_inputs = 1,
    .max_inputs = -1,
    .role = MR_ROLE_BARRIER,
    .props =
        MR_OP_SOURCE_CALL | MR_OP_LISTS_INPUTS | MR_OP_OPENS_INPUTS | MR_OP_RANDOM | MR_OP_MIXES,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = mr__weighted_next,
    .close = close,
    .save = save,
    .restore = restore,
    .save_shared = mr__seeds_save_shared,
    .restore_shared = mr__seeds_restore_shared,
};

mr_dataset *mr_sample_from_datasets(mr_dataset *const *inputs, size_t n, const double *weights,
                                    const mr_sample_from_datasets_opts *opts)
{
    struct params p = {.weights = {(double *)(uintptr_t)weights, weights ? n : 0}};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_sample_from_datasets, &p, inputs, n);
}
