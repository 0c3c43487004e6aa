/* SPDX-License-Identifier: Apache-2.0 */
/* Lowers the learning rate when a value has stopped improving. */
#include <inttypes.h>
#include <stdio.h>
#include "trainer/loop/callback_impl.h"

struct params {
    char *monitor;
    double factor;
    int64_t patience;
    char *mode;
    double min_delta;
    int64_t cooldown;
    double min_lr;
};

struct state {
    const struct params *params;
    double best;
    bool has_best;
    int64_t wait, cooling; /* epochs */
};

static mr_code train_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    (void)st;
    mr__check_watched(e, "reduce_lr_on_plateau", s->params->monitor);
    *s = (struct state){.params = s->params};
    return MR_OK;
}

static bool is_better(const struct state *s, double v)
{
    const struct params *o = s->params;
    if (!s->has_best)
        return true;
    return mr__prefers_more(o->monitor, o->mode) ? v > s->best + o->min_delta
                                                 : v < s->best - o->min_delta;
}

static void lower(struct state *s, const mr_train_event *e)
{
    char text[128], json[128], rate[40];
    double old = mr_optimizer_learning_rate(e->optimizer), new = old * s->params->factor;
    s->cooling = s->params->cooldown;
    s->wait = 0;
    if (old <= s->params->min_lr)
        return;
    new = new > s->params->min_lr ? new : s->params->min_lr;
    mr_optimizer_set_learning_rate(e->optimizer, new);
    mr__number_text(new, rate, sizeof rate);
    snprintf(text, sizeof text, "epoch %" PRId64 ": the learning rate is lowered to %s", e->epoch,
             rate);
    snprintf(json, sizeof json, "{\"epoch\": %" PRId64 ", \"learning_rate\": %s}", e->epoch, rate);
    mr__print_line(e, text, json);
}

static mr_code epoch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    double v;
    (void)st;
    if (!mr__watched(e, "reduce_lr_on_plateau", s->params->monitor, &v))
        return MR_OK;
    if (s->cooling > 0) {
        s->cooling--;
        s->wait = 0;
    }
    if (is_better(s, v)) {
        s->best = v;
        s->has_best = true;
        s->wait = 0;
    } else if (s->cooling == 0 && ++s->wait >= s->params->patience)
        lower(s, e);
    return MR_OK;
}

static void remember(const void *ctx, mr_callback_memory *out)
{
    const struct state *s = ctx;
    *out = (mr_callback_memory){
        .of = s->params->monitor,
        .n = 4,
        .numbers = {s->has_best, s->best, (double)s->wait, (double)s->cooling}};
}

static mr_code recall(void *ctx, const mr_callback_memory *m, mr_status *st)
{
    struct state *s = ctx;
    (void)st;
    s->has_best = m->numbers[0] > 0;
    s->best = m->numbers[1];
    s->wait = mr__remembered_count(m->numbers[2]);
    s->cooling = mr__remembered_count(m->numbers[3]);
    return MR_OK;
}

static const mr_param table[] = {
    MR_PARAM(struct params, monitor, .def.s = "val_loss", .doc = "Name of the value to watch."),
    MR_PARAM(struct params, factor, .def.f = 0.1, .max.f = 0.9999999,
             .doc = "Factor by which the learning rate is multiplied."),
    MR_PARAM(
        struct params, patience, .def.i = 10, .max.i = INT32_MAX,
        .doc = "Number of epochs without an improvement after which the learning rate is lowered."),
    MR_PARAM(struct params, mode, .def.s = "auto", .names = mr__modes,
             .doc = "Whether smaller or larger values are better; auto: decided by the name."),
    MR_PARAM(struct params, min_delta, .def.f = 1e-4, .max.f = 1e30,
             .doc = "Minimum change that counts as an improvement."),
    MR_PARAM(struct params, cooldown, .max.i = INT32_MAX,
             .doc = "Number of epochs after a change that do not count."),
    MR_PARAM(struct params, min_lr, .max.f = 1e30, .doc = "Minimum learning rate."),
    {0}};

const mr_callback_desc mr__callback_reduce_lr_on_plateau = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "reduce_lr_on_plateau",
           .doc = "Lowers the learning rate when a value has stopped improving.",
           .example = "reduce_lr_on_plateau(monitor=\"val_loss\", factor=0.2, patience=5)",
           .params = table,
           .params_size = sizeof(struct params)},
    .calls = {.train_begin = train_begin,
              .epoch_end = epoch_end,
              .remember = remember,
              .recall = recall,
              .sets_learning_rate = true},
    .state_size = sizeof(struct state),
};
