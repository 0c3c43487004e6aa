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
    char text[520]; /* a part of a message */
} differences;

static void note(void *ctx, const char *name, const char *now, const char *before)
{
    differences *d = ctx;
    char one[440];
    if (!now)
        snprintf(one, sizeof one, "%.100s is gone, was %.160s", name, before);
    else if (!before)
        snprintf(one, sizeof one, "%.100s is %.160s, was not there", name, now);
    else
        snprintf(one, sizeof one, "%.100s is %.160s, was %.160s", name, now, before);
    d->n++;
    d->changes->learning_rate =
        d->changes->learning_rate || strcmp(name, rate_name) == 0 || strcmp(name, "optimizer") == 0;
    if (d->e->opts->resume_changed) {
        mr_log(MR_LOG_WARNING, "training continues with another setting: %s", one);
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
    char more[40] = "";
    if (d->left_out > 0)
        snprintf(more, sizeof more, "; and %zu more", d->left_out);
    return mr_fail(
        st, MR_FAILED_PRECONDITION,
        "it is of a run with other settings: %s%s. Start that run again, or continue with "
        "the new settings by --resume-changed (mr_fit_opts.resume_changed)",
        d->text, more);
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
        rc = mr__settings_compare(&now, &before, note, &d, st);
    mr__settings_drop(&now);
    mr__settings_drop(&before);
    if (rc == MR_OK && d.n > 0 && !e->opts->resume_changed)
        rc = refuse(&d, st);
    return rc;
}
