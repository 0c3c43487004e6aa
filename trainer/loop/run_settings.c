/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/run_settings.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "trainer/exchange/saved_model_impl.h"
#include "trainer/loop/callback_impl.h"
#include "trainer/model/model_impl.h"
#include "trainer/objectives/loss_impl.h"
#include "trainer/objectives/metric_impl.h"
#include "trainer/objectives/optimizer_impl.h"

static const char settings_key[] = "settings", rate_name[] = "optimizer/learning_rate";

/* ---- of this run alone ---- */

/* Those that a saved model does not have. */
static mr_code add_others(const mr_fit_opts *o, mr__settings *out, mr_status *st)
{
    mr_floats weights = {(double *)(uintptr_t)o->class_weights, o->n_class_weights};
    const mr_param p = {.name = "class_weights", .type = MR_PT_FLOATS};
    char *text = NULL;
    if (weights.n > 0)
        MR_TRY(mr_param_text(&p, &weights, &text, st));
    mr_code rc = mr__settings_add(out, p.name, text ? text : "none", st);
    mr_free(text);
    for (size_t i = 0; i < o->n_callbacks && rc == MR_OK; i++)
        if (o->callbacks[i].sets_learning_rate && !o->callbacks[i].remember)
            rc = mr__callback_settings(&o->callbacks[i], out, st);
    return rc;
}

mr_code mr__run_settings_json(const mr_fit_opts *o, json_t **out, mr_status *st)
{
    mr__settings all = {0};
    json_t *root = json_object();
    mr_code rc = root ? add_others(o, &all, st) : mr_fail_memory(st, 0, settings_key);
    for (size_t i = 0; i < all.n && rc == MR_OK; i++)
        if (json_object_set_new(root, all.v[i].name, json_string(all.v[i].value)) != 0)
            rc = mr_fail_memory(st, strlen(all.v[i].value), settings_key);
    mr__settings_drop(&all);
    if (rc == MR_OK)
        *out = root;
    else
        json_decref(root);
    return rc;
}

/* ---- both lists ---- */

static mr_code add_loss(const char *text, mr__settings *out, mr_status *st)
{
    mr_loss *l;
    if (!text)
        return MR_OK;
    MR_TRY(mr_loss_parse(&l, text, st));
    mr_code rc = mr__loss_settings(l, out, st);
    mr_loss_free(l);
    return rc;
}

/* From the text: the optimizer itself has the learning rate of now. */
static mr_code add_optimizer(const char *text, mr__settings *out, mr_status *st)
{
    mr_optimizer *o;
    if (!text)
        return MR_OK;
    MR_TRY(mr_optimizer_parse(&o, text, st));
    mr_code rc = mr__optimizer_settings(o, out, st);
    mr_optimizer_free(o);
    return rc;
}

static mr_code add_model(const char *text, mr__settings *out, mr_status *st)
{
    mr_model *m;
    MR_TRY(mr_model_parse(&m, text, st));
    mr_code rc = mr__model_settings(m, out, st);
    mr_model_free(m);
    return rc;
}

static mr_code add_seed(uint64_t seed, bool mixed, mr__settings *out, mr_status *st)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, seed);
    MR_TRY(mr__settings_add(out, "seed", text, st));
    return mr__settings_add(out, "mixed_precision", mixed ? "true" : "false", st);
}

static mr_code list_now(const mr_train_event *e, bool others, mr__settings *out, mr_status *st)
{
    bool built = mr_model_is_built(e->model);
    MR_TRY(mr__model_settings(e->model, out, st));
    MR_TRY(add_loss(mr_loss_text(e->loss_function), out, st));
    MR_TRY(add_optimizer(mr_optimizer_text(e->optimizer), out, st));
    MR_TRY(add_seed(built ? mr__model_seed(e->model) : e->opts->seed,
                    built ? mr_model_is_mixed(e->model) : e->opts->mixed_precision, out, st));
    return others ? add_others(e->opts, out, st) : MR_OK;
}

static mr_code list_before(const mr_saved *saved, const json_t *others,
                           const mr__train_state *state, mr__settings *out, mr_status *st)
{
    const char *name;
    const json_t *value;
    mr_code rc = add_model(mr_saved_model_text(saved), out, st);
    if (rc == MR_OK)
        rc = add_loss(mr_saved_loss(saved), out, st);
    if (rc == MR_OK)
        rc = add_optimizer(mr_saved_optimizer(saved), out, st);
    if (rc != MR_OK) {
        mr_status_prefix(st, "the checkpoint");
        return rc;
    }
    MR_TRY(add_seed(state->seed, mr__saved_is_mixed(saved), out, st));
    json_object_foreach((json_t *)(uintptr_t)others, name, value)
    {
        if (!json_is_string(value))
            return mr_fail(st, MR_DATA_LOSS, "state.json: settings is malformed");
        MR_TRY(mr__settings_add(out, name, json_string_value(value), st));
    }
    return MR_OK;
}

/* ---- differences ---- */

typedef struct differences {
    const mr_train_event *e;
    mr__run_changes *changes;
    size_t n, left_out;
    bool logs;      /* each is logged */
    char text[520]; /* a part of a message */
} differences;

enum { SHOWN = 160 };

/* A value, or of a long one the part around the first byte that differs from the other. */
static const char *shown(const char *v, const char *other, char out[SHOWN])
{
    size_t same = 0, n = strlen(v);
    while (v[same] && v[same] == other[same])
        same++;
    size_t from = same > 40 && n > SHOWN / 2 ? same - 40 : 0, most = SHOWN - 8;
    snprintf(out, SHOWN, "%s%.*s%s", from ? "..." : "", (int)most, v + from,
             n - from > most ? "..." : "");
    return out;
}

static void note(void *ctx, const char *name, const char *now, const char *before)
{
    differences *d = ctx;
    char one[3 * SHOWN], a[SHOWN], b[SHOWN];
    if (!now)
        snprintf(one, sizeof one, "%.100s is gone, was %s", name, shown(before, "", b));
    else if (!before)
        snprintf(one, sizeof one, "%.100s is %s, was not there", name, shown(now, "", a));
    else
        snprintf(one, sizeof one, "%.100s is %s, was %s", name, shown(now, before, a),
                 shown(before, now, b));
    d->n++;
    d->changes->learning_rate =
        d->changes->learning_rate || strcmp(name, rate_name) == 0 || strcmp(name, "optimizer") == 0;
    if (d->logs) {
        mr_log(MR_LOG_WARNING,
               d->e->opts->resume_changed ? "training continues with another setting: %s"
                                          : "the backup is of a run with another setting: %s",
               one);
        return;
    }
    size_t at = strlen(d->text);
    if (d->left_out > 0 || at + strlen(one) + 3 > sizeof d->text)
        d->left_out++;
    else
        snprintf(d->text + at, sizeof d->text - at, "%s%s", at ? "; " : "", one);
}

static mr_code refuse(const differences *d, mr_status *st)
{
    char more[60] = "";
    if (d->left_out > 0)
        snprintf(more, sizeof more, "; and %zu more, all of which are logged", d->left_out);
    return mr_fail(
        st, MR_FAILED_PRECONDITION,
        "it is of a run with other settings: %s%s. Start that run again, or continue with "
        "the new settings by --resume-changed (mr_fit_opts.resume_changed)",
        d->text, more);
}

/* Logs them if the run accepts them, or if they do not fit in the message that refuses them. */
static mr_code tell(differences *d, const mr__settings *now, const mr__settings *before,
                    mr_status *st)
{
    d->logs = d->e->opts->resume_changed;
    MR_TRY(mr__settings_compare(now, before, note, d, st));
    if (d->n == 0 || d->logs)
        return MR_OK;
    mr_code rc = refuse(d, st);
    d->logs = d->left_out > 0;
    if (d->logs && mr__settings_compare(now, before, note, d, NULL) != MR_OK)
        return rc; /* without memory they are not logged */
    return rc;
}

mr_code mr__run_compare(const mr_train_event *e, const mr_saved *saved, const json_t *root,
                        const mr__train_state *state, mr__run_changes *out, mr_status *st)
{
    mr__settings now = {0}, before = {0};
    const json_t *others = json_object_get(root, settings_key); /* 0.1 did not write them */
    differences d = {.e = e, .changes = out};
    *out =
        (mr__run_changes){.slots = strcmp(state->optimizer, mr_optimizer_name(e->optimizer)) != 0 ||
                                   state->n_slots != (int64_t)mr__optimizer_n_slots(e->optimizer)};
    mr_code rc = list_now(e, others != NULL, &now, st);
    if (rc == MR_OK)
        rc = list_before(saved, others, state, &before, st);
    if (rc == MR_OK)
        rc = tell(&d, &now, &before, st);
    mr__settings_drop(&now);
    mr__settings_drop(&before);
    return rc;
}

/* ---- metrics ---- */

static void count_difference(void *ctx, const char *name, const char *now, const char *before)
{
    (void)name;
    (void)now;
    (void)before;
    ++*(size_t *)ctx;
}

/* *same: the text is of a metric with the same settings. */
static mr_code is_same_metric(const mr_metric *m, const char *text, bool *same, mr_status *st)
{
    mr__settings now = {0}, before = {0};
    mr_metric *saved;
    size_t n = 0;
    mr_status why;
    *same = false;
    mr_code rc = mr_metric_parse(&saved, text, &why);
    if (rc == MR_RESOURCE_EXHAUSTED && st)
        *st = why;
    if (rc != MR_OK) /* one that this program does not know */
        return rc == MR_RESOURCE_EXHAUSTED ? rc : MR_OK;
    rc = mr__metric_settings(m, &now, st);
    if (rc == MR_OK)
        rc = mr__metric_settings(saved, &before, st);
    if (rc == MR_OK)
        rc = mr__settings_compare(&now, &before, count_difference, &n, st);
    *same = rc == MR_OK && n == 0;
    mr__settings_drop(&now);
    mr__settings_drop(&before);
    mr_metric_free(saved);
    return rc;
}

static mr_code find_metric(const mr_saved *saved, const mr_metric *m, size_t *at, mr_status *st)
{
    bool same = false;
    for (*at = 0; *at < mr_saved_n_metrics(saved); ++*at) {
        MR_TRY(is_same_metric(m, mr_saved_metric(saved, *at), &same, st));
        if (same)
            return MR_OK;
    }
    *at = SIZE_MAX;
    return MR_OK;
}

mr_code mr__run_match_metrics(const mr_train_event *e, const mr_saved *saved,
                              const mr__train_state *state, bool within, size_t *from,
                              mr_status *st)
{
    char missing[300] = "";
    bool named = (int64_t)mr_saved_n_metrics(saved) == state->n_metrics;
    for (size_t i = 0; i < e->n_metrics; i++) {
        from[i] = SIZE_MAX;
        if (named)
            MR_TRY(find_metric(saved, e->metrics[i], &from[i], st));
        if (from[i] != SIZE_MAX || !within)
            continue;
        size_t at = strlen(missing);
        snprintf(missing + at, sizeof missing - at, "%s%s", at ? ", " : "", e->opts->metrics[i]);
        if (e->opts->resume_changed)
            mr_log(MR_LOG_WARNING, "the metric %s is new: it is that of the rest of the epoch",
                   e->opts->metrics[i]);
    }
    if (!missing[0] || e->opts->resume_changed)
        return MR_OK;
    return mr_fail(
        st, MR_FAILED_PRECONDITION,
        "it was saved within an epoch, without the metric %s. Train with the metrics that "
        "it has, accept that this one is measured over the rest of the epoch "
        "(--resume-changed, mr_fit_opts.resume_changed), or begin the epoch again "
        "(--restart-epoch, mr_fit_opts.restart_epoch)",
        missing);
}
