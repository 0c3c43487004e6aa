/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the learning rate at the beginning of each epoch. Epochs are counted from 0. */
#include <inttypes.h>
#include <math.h>
#include "pipeline/memory/alloc.h"
#include "trainer/loop/callback_impl.h"

struct params {
    mr__pairs schedule;
};

struct state {
    const struct params *params;
};

/* Applies the latest pair that has begun; before the first, the rate is unchanged. */
static mr_code epoch_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    const mr__pairs *s = &((const struct state *)ctx)->params->schedule;
    (void)st;
    for (size_t i = s->n; i-- > 0;)
        if (s->v[2 * i] <= (double)(e->epoch - 1)) {
            mr_optimizer_set_learning_rate(e->optimizer, s->v[2 * i + 1]);
            break;
        }
    return MR_OK;
}

static const mr_param table[] = {
    {.name = "schedule",
     .doc = "Pairs of an epoch, counted from 0, and the learning rate from that epoch on.",
     .type = MR_PT_OWN,
     .kind = &mr__param_pairs,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct params, schedule)},
    {0}};

const mr_callback_desc mr__callback_learning_rate_schedule = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "learning_rate_schedule",
           .doc = "Sets the learning rate at the beginning of epochs.",
           .example = "learning_rate_schedule([[0, 0.001], [3, 0.0001], [7, 0.00001]])",
           .params = table,
           .params_size = sizeof(struct params)},
    .calls = {.epoch_begin = epoch_begin, .sets_learning_rate = true},
    .state_size = sizeof(struct state),
};

/* ---- by a function ---- */

typedef struct by_function {
    double (*fn)(void *ctx, int64_t epoch, double rate);
    void *ctx;
} by_function;

static mr_code call(void *ctx, const mr_train_event *e, mr_status *st)
{
    const by_function *f = ctx;
    if (e->epoch_step > 0) /* it was called when the resumed epoch began */
        return MR_OK;
    double rate = f->fn(f->ctx, e->epoch - 1, mr_optimizer_learning_rate(e->optimizer));
    if (!isfinite(rate) || rate < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the learning rate of epoch %" PRId64 " is %g, expected a number from 0",
                       e->epoch, rate);
    mr_optimizer_set_learning_rate(e->optimizer, rate);
    return MR_OK;
}

mr_code mr_callback_learning_rate(mr_callback *out,
                                  double (*fn)(void *ctx, int64_t epoch, double rate), void *ctx,
                                  mr_status *st)
{
    by_function *f = mr_calloc(1, sizeof *f);
    if (!f)
        return mr_fail_memory(st, sizeof *f, "a callback");
    *f = (by_function){fn, ctx};
    *out =
        (mr_callback){.ctx = f, .epoch_begin = call, .free = mr_free, .sets_learning_rate = true};
    return MR_OK;
}
