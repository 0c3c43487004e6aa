/* SPDX-License-Identifier: Apache-2.0 */
/* Ends training when a value has stopped improving. */
#include <math.h>
#include "pipeline/memory/alloc.h"
#include "trainer/loop/callback_impl.h"
#include "trainer/loop/callback_memory.h"

struct params {
    char *monitor;
    double min_delta;
    int64_t patience;
    char *mode;
    double baseline;
    bool has_baseline;
    bool restore_best_weights;
    int64_t start_from_epoch;
};

struct state {
    const struct params *params;
    double best;
    bool has_best, stopped;
    int64_t wait;
    float *weights; /* of the best epoch, all variables concatenated */
};

static mr_code keep_weights(struct state *s, const mr_model *m, mr_status *st)
{
    size_t n = mr__model_values(m);
    if (!s->params->restore_best_weights)
        return MR_OK;
    if (!s->weights && !(s->weights = mr_malloc(n * sizeof *s->weights)))
        return mr_fail_memory(st, n * sizeof *s->weights, "the weights of the best epoch");
    float *at = s->weights;
    for (size_t i = 0; i < mr_model_n_variables(m); i++) {
        const mr_variable *v = mr_model_variable(m, i);
        MR_TRY(mr_variable_read(v, at, st));
        at += mr_variable_size(v);
    }
    return MR_OK;
}

static void forget(struct state *s)
{
    mr_free(s->weights);
    *s = (struct state){.params = s->params};
}

static mr_code train_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    const struct state *s = ctx;
    (void)st;
    mr__check_watched(e, "early_stopping", s->params->monitor);
    forget(ctx);
    return MR_OK;
}

static bool is_better(const struct params *o, double v, double than)
{
    return mr__prefers_more(o->monitor, o->mode) ? v - o->min_delta > than
                                                 : v + o->min_delta < than;
}

static mr_code epoch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    const struct params *o = s->params;
    double v;
    if (!mr__watched(e, "early_stopping", o->monitor, &v) || e->epoch - 1 < o->start_from_epoch)
        return MR_OK;
    if (!s->weights)
        MR_TRY(keep_weights(s, e->model, st)); /* in case nothing ever improves */
    s->wait++;
    if (!s->has_best ? !isnan(v) : is_better(o, v, s->best)) {
        s->best = v;
        s->has_best = true;
        MR_TRY(keep_weights(s, e->model, st));
        if (!o->has_baseline || is_better(o, v, o->baseline))
            s->wait = 0;
        return MR_OK;
    }
    s->stopped = s->wait >= o->patience && e->epoch > 1;
    return s->stopped ? MR_END : MR_OK;
}

static mr_code train_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    const float *at = s->weights;
    for (size_t i = 0;
         at && e->error == MR_OK && !e->stopping && i < mr_model_n_variables(e->model); i++) {
        mr_variable *v = mr_model_variable(e->model, i);
        MR_TRY(mr_variable_assign(v, at, st));
        at += mr_variable_size(v);
    }
    forget(s);
    return MR_OK;
}

static void clear(void *ctx)
{
    forget(ctx);
}

static void remember(const void *ctx, mr_callback_memory *out)
{
    const struct state *s = ctx;
    *out = (mr_callback_memory){.of = s->params->monitor,
                                .n = 4,
                                .numbers = {s->has_best, s->best, (double)s->wait, s->stopped},
                                .weights = s->weights};
}

static mr_code recall(void *ctx, const mr_callback_memory *m, mr_status *st)
{
    struct state *s = ctx;
    forget(s);
    s->has_best = m->numbers[0] > 0;
    s->best = m->numbers[1];
    s->wait = mr__remembered_count(m->numbers[2]);
    s->stopped = m->numbers[3] > 0;
    if (s->params->restore_best_weights && m->weights &&
        !(s->weights = mr_memdup(m->weights, m->n_weights * sizeof *m->weights)))
        return mr_fail_memory(st, m->n_weights * sizeof *m->weights,
                              "the weights of the best epoch");
    return s->stopped ? MR_END : MR_OK;
}

static const mr_param table[] = {
    MR_PARAM(struct params, monitor, .def.s = "val_loss", .doc = "Name of the value to watch."),
    MR_PARAM(struct params, min_delta, .max.f = 1e30,
             .doc = "Minimum change that counts as an improvement."),
    MR_PARAM(struct params, patience, .max.i = INT32_MAX,
             .doc = "Number of epochs without an improvement after which training ends."),
    MR_PARAM(struct params, mode, .def.s = "auto", .names = mr__modes,
             .doc = "Whether smaller or larger values are better; auto: decided by the name."),
    MR_PARAM(struct params, baseline, .has_at = offsetof(struct params, has_baseline),
             .doc = "Value that must also be beaten to count as an improvement; left out: none."),
    MR_PARAM(struct params, restore_best_weights,
             .doc = "Restores the weights of the best epoch at the end."),
    MR_PARAM(struct params, start_from_epoch, .max.i = INT32_MAX,
             .doc = "Number of first epochs that do not count."),
    {0}};

const mr_callback_desc mr__callback_early_stopping = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "early_stopping",
           .doc = "Ends training when a value has stopped improving.",
           .example = "early_stopping(monitor=\"val_loss\", patience=3, restore_best_weights=true)",
           .params = table,
           .params_size = sizeof(struct params)},
    .calls = {.train_begin = train_begin,
              .epoch_end = epoch_end,
              .train_end = train_end,
              .remember = remember,
              .recall = recall,
              .free = clear},
    .state_size = sizeof(struct state),
};
