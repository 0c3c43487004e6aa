/* SPDX-License-Identifier: Apache-2.0 */
/* The words of tf.data's generator in order; seeds work as for shuffle. */
#include "pipeline/ops/sources.h"

#include "pipeline/engine/op_source.h"
#include "pipeline/engine/philox.h"
#include "pipeline/params/infer.h"
#include "pipeline/streams/seeds.h"

struct params {
    mr_random_opts o;
};

struct state {
    uint64_t pair[2];
    mr__philox words;
    uint64_t drawn;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    MR_TRY(mr__seeds_draw(it, p->o.has_seed ? &p->o.seed : NULL,
                          p->o.rerandomize_each_iteration == MR_YES, s->pair, st));
    mr__philox_init(&s->words, s->pair[0], s->pair[1]);
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    size_t n = mr_iter_block_rows(it, want, sizeof(int64_t));
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, n, st));
    out->rows = n;
    MR_TRY(mr_iter_set_identities(it, out, 0, s->drawn, st));
    int64_t *to = out->columns[0].data;
    for (size_t i = 0; i < n; i++)
        to[i] = mr__philox_next(&s->words);
    s->drawn += n;
    return MR_OK;
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->pair[0], st));
    MR_TRY(mr_state_put_u64(w, s->pair[1], st));
    return mr_state_put_u64(w, s->drawn, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->pair[0], st));
    MR_TRY(mr_state_get_u64(r, &s->pair[1], st));
    MR_TRY(mr_state_get_u64(r, &s->drawn, st));
    mr__philox_init(&s->words, s->pair[0], s->pair[1]);
    mr__philox_skip(&s->words, s->drawn);
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    (void)p;
    return mr__inferred(mr_spec_scalar(MR_INT64), out, st);
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)p;
    (void)in;
    return MR_INFINITE;
}

static const mr_param table[] = {MR_OPT(struct params, seed, .flags = MR_P_OPTIONAL | MR_P_NONE,
                                        .has_at = offsetof(struct params, o.has_seed),
                                        .doc = "Fixes the numbers; drawn at random if absent."),
                                 MR_OPT(struct params, rerandomize_each_iteration,
                                        .flags = MR_P_OPTIONAL | MR_P_NONE,
                                        .doc = "Draws new numbers in each epoch."),
                                 {0}};

const mr_op mr_op_random = {
    .abi = MR_ABI_VERSION,
    .name = "random",
    .doc = "Random 32-bit numbers, without end; the same in each epoch.",
    .example = "random(seed=4).take(3)",
    .order_doc = "random",
    .state_doc = "two numbers and a counter",
    .count_doc = "without end",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_RANDOM,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .save = save,
    .restore = restore,
    .save_shared = mr__seeds_save_shared,
    .restore_shared = mr__seeds_restore_shared,
};

mr_dataset *mr_random(const mr_random_opts *opts)
{
    struct params p = {0};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_random, &p, NULL, 0);
}
