/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/objectives/schedule.h"
#include <math.h>
#include <string.h>
#include "pipeline/memory/alloc.h"

static const mr_param exponential[] = {
    MR_ARG(mr__schedule, initial_learning_rate, .max.f = 1e30, .doc = "Initial learning rate."),
    MR_ARG(mr__schedule, decay_steps, .min.f = 1e-9, .max.f = 1e18,
           .doc = "Number of updates in which the rate is multiplied by decay_rate."),
    MR_ARG(mr__schedule, decay_rate, .max.f = 1e30, .doc = "The factor."),
    MR_PARAM(mr__schedule, staircase, .doc = "Multiplies only once every decay_steps updates."),
    {0}};
static const mr_param cosine[] = {
    MR_ARG(mr__schedule, initial_learning_rate, .max.f = 1e30,
           .doc = "Initial learning rate; with a warm-up, the rate at its start."),
    MR_ARG(mr__schedule, decay_steps, .min.f = 1e-9, .max.f = 1e18,
           .doc = "Number of updates of the decay."),
    MR_PARAM(mr__schedule, alpha, .max.f = 1e30,
             .doc = "Fraction of the rate that is left after the decay."),
    MR_PARAM_WITH(mr__schedule, warmup_target, MR_P_OPTIONAL | MR_P_NONE,
                  .has_at = offsetof(mr__schedule, has_warmup_target), .max.f = 1e30,
                  .doc = "Rate at the end of the warm-up; none: no warm-up."),
    MR_PARAM(mr__schedule, warmup_steps, .max.f = 1e18, .doc = "Number of updates of the warm-up."),
    {0}};
static const mr_param piecewise[] = {
    MR_ARG(mr__schedule, boundaries,
           .doc = "Numbers of updates after which the next rate applies."),
    MR_ARG(mr__schedule, values, .max.f = 1e30, .doc = "Rates, one more than boundaries."),
    {0}};

const mr_component mr__exponential_decay = {
    .abi = MR_ABI_VERSION,
    .name = "exponential_decay",
    .doc = "The initial rate times decay_rate to the power of updates / decay_steps.",
    .example = "sgd(learning_rate=exponential_decay(0.1, decay_steps=1000, decay_rate=0.96))",
    .params = exponential,
    .params_size = sizeof(mr__schedule)};
const mr_component mr__cosine_decay = {
    .abi = MR_ABI_VERSION,
    .name = "cosine_decay",
    .doc = "Falls along half a cosine wave, optionally after a warm-up.",
    .example = "adam(cosine_decay(0.0, 10000, warmup_target=0.001, warmup_steps=500))",
    .params = cosine,
    .params_size = sizeof(mr__schedule)};
const mr_component mr__piecewise_constant_decay = {
    .abi = MR_ABI_VERSION,
    .name = "piecewise_constant_decay",
    .doc = "A sequence of constant rates.",
    .example = "sgd(piecewise_constant_decay([1000, 2000], [0.1, 0.01, 0.001]))",
    .params = piecewise,
    .params_size = sizeof(mr__schedule)};

static const struct form {
    const mr_component *is;
    mr__schedule_kind kind;
} forms[] = {{&mr__exponential_decay, MR__RATE_EXPONENTIAL},
             {&mr__cosine_decay, MR__RATE_COSINE},
             {&mr__piecewise_constant_decay, MR__RATE_PIECEWISE}};
enum { N_FORMS = sizeof forms / sizeof *forms };

static double cosine_at(const mr__schedule *s, double step)
{
    double first = s->initial_learning_rate, from = 0;
    if (s->has_warmup_target) {
        if (step < s->warmup_steps)
            return first + (s->warmup_target - first) * step / s->warmup_steps;
        first = s->warmup_target;
        from = s->warmup_steps;
    }
    double done = fmin(step - from, s->decay_steps) / s->decay_steps;
    double wave = 0.5 * (1 + cos(3.14159265358979323846 * done));
    return first * ((1 - s->alpha) * wave + s->alpha);
}

double mr__schedule_at(const mr__schedule *s, int64_t at)
{
    double step = (double)at, share;
    size_t i = 0;
    switch (s->kind) {
    case MR__RATE_EXPONENTIAL:
        share = step / s->decay_steps;
        return s->initial_learning_rate * pow(s->decay_rate, s->staircase ? floor(share) : share);
    case MR__RATE_COSINE:
        return cosine_at(s, step);
    case MR__RATE_PIECEWISE:
        while (i < s->boundaries.n && step > s->boundaries.v[i])
            i++;
        return s->values.v[i];
    case MR__RATE_UNSET:
    case MR__RATE_CONSTANT:
        break;
    }
    return s->initial_learning_rate;
}

static mr_code check_pieces(const mr__schedule *s, const mr_expr *e, mr_status *st)
{
    if (s->kind != MR__RATE_PIECEWISE)
        return MR_OK;
    if (s->values.n != s->boundaries.n + 1)
        return mr_expr_fail_at(st, e, "%zu boundaries need %zu values, found %zu", s->boundaries.n,
                               s->boundaries.n + 1, s->values.n);
    for (size_t i = 1; i < s->boundaries.n; i++)
        if (!(s->boundaries.v[i] > s->boundaries.v[i - 1]))
            return mr_expr_fail_at(st, e, "boundaries must increase");
    return MR_OK;
}

static void clear(void *field)
{
    mr__schedule *s = field;
    mr_free(s->boundaries.v);
    mr_free(s->values.v);
}

/* Moves the lists that the params struct owns to the field. */
static mr_code parse_form(const struct form *f, const mr_expr *e, mr__schedule *s, mr_status *st)
{
    const mr_param_table t = {f->is->name, f->is->params, f->is->params_size};
    void *made = NULL;
    MR_TRY(mr_params_parse(&t, e, &made, st));
    *s = *(mr__schedule *)made;
    s->kind = f->kind;
    memset(made, 0, sizeof(mr__schedule));
    mr_params_free(&t, made);
    mr_code rc = check_pieces(s, e, st);
    if (rc != MR_OK) {
        clear(s);
        memset(s, 0, sizeof *s);
    }
    return rc;
}

static mr_code parse(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    mr__schedule *s = field;
    bool is_number = e->kind == MR_EX_INT || e->kind == MR_EX_FLOAT;
    double rate = e->kind == MR_EX_INT ? (double)e->i : e->f;
    if (is_number && rate >= p->min.f && rate <= p->max.f) {
        *s = (mr__schedule){.kind = MR__RATE_CONSTANT, .initial_learning_rate = rate};
        return MR_OK;
    }
    for (size_t i = 0; i < N_FORMS; i++)
        if (e->kind == MR_EX_CALL && strcmp(e->text, forms[i].is->name) == 0)
            return parse_form(&forms[i], e, s, st);
    return mr_expr_fail_at(st, e,
                           "%s must be a number from %g to %g, or one of exponential_decay(...), "
                           "cosine_decay(...), piecewise_constant_decay(...)",
                           p->name, p->min.f, p->max.f);
}

static char *print(const void *field)
{
    const mr__schedule *s = field;
    const mr_param rate = {
        .name = "rate", .type = MR_PT_F64, .at = offsetof(mr__schedule, initial_learning_rate)};
    const struct form *f = forms;
    char *text = NULL, *value, *longer;
    if (s->kind == MR__RATE_UNSET)
        return mr_strdup("none");
    if (s->kind == MR__RATE_CONSTANT)
        return mr_param_text(&rate, s, &text, NULL) == MR_OK ? text : NULL;
    while (f->kind != s->kind)
        f++;
    for (const mr_param *p = f->is->params; p->name; p++) {
        if (mr_param_text(p, s, &value, NULL) != MR_OK)
            value = NULL;
        longer =
            value ? mr_strf("%s%s%s=%s", text ? text : "", text ? ", " : "", p->name, value) : NULL;
        mr_free(value);
        mr_free(text);
        if (!(text = longer))
            return NULL;
    }
    longer = mr_strf("%s(%s)", f->is->name, text);
    mr_free(text);
    return longer;
}

const mr_param_kind mr__param_schedule = {
    .size = sizeof(mr__schedule), .parse = parse, .clear = clear, .print = print};
