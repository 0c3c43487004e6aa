/* SPDX-License-Identifier: Apache-2.0 */
/* Which loss, metrics, labels and sample weights each output of a model has. */
#include <string.h>
#include "pipeline/params/spec.h"
#include "trainer/loop/fit_run.h"
#include "trainer/objectives/loss_impl.h"
#include "trainer/objectives/metric_impl.h"
#include "trainer/model/model_impl.h"

/* A loss for all outputs is read once for each: what it makes of logits depends on the output. */
static mr_code open_losses(mr__run *x, mr_status *st)
{
    MR_TRY(mr__loss_check_model(x->loss, x->m, st));
    for (size_t k = 0; k < x->n_outputs; k++) {
        mr__term *t = &x->terms[k];
        const mr_loss *l = mr_loss_of_output(x->loss, mr_model_output_name(x->m, k), k, &t->weight);
        if (l == x->loss && x->n_outputs > 1) {
            MR_TRY(mr_loss_parse(&t->owned, mr_loss_text(l), st));
            l = t->owned;
        }
        t->loss = (mr_loss *)(uintptr_t)l;
        if (l)
            mr__loss_fit_model(t->loss, mr__model_last_activation(x->m, k));
    }
    return MR_OK;
}

static mr_code find_metric_output(mr__run *x, size_t i, mr_status *st)
{
    const char *name = mr__metric_output(x->metrics[i]), *text = x->opts->metrics[i];
    char names[256];
    mr__model_output_names(x->m, names, sizeof names);
    x->metric_outputs[i] = name ? mr__model_find_output(x->m, name) : 0;
    if (!name && x->n_outputs > 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "metric %s: the model has several outputs (%s); say of which, as in %s.%s",
                       text, names, mr_model_output_name(x->m, 0), text);
    if (x->metric_outputs[i] == x->n_outputs)
        return mr_fail(st, MR_INVALID_ARGUMENT, "metric %s: the model's outputs are called %s",
                       text, names);
    return MR_OK;
}

static mr_code open_metrics(mr__run *x, mr_status *st)
{
    if (x->opts->n_metrics > MR_MAX_METRICS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "at most %d metrics, found %zu", MR_MAX_METRICS,
                       x->opts->n_metrics);
    for (size_t i = 0; i < x->opts->n_metrics; i++) {
        MR_TRY(mr_metric_parse(&x->metrics[i], x->opts->metrics[i], st));
        mr__metric_show(x->metrics[i], NULL);
        x->n_totals += mr__metric_totals(x->metrics[i]);
        MR_TRY(find_metric_output(x, i, st));
        size_t k = x->metric_outputs[i];
        mr__metric_fit_model(x->metrics[i], x->terms[k].loss, mr__model_last_activation(x->m, k));
    }
    return MR_OK;
}

/* Labels or sample weights of several outputs: which of the columns from *at on each has. */
static mr_code find_columns(const mr__run *x, const mr_spec *of, const char *what, int *at,
                            int columns[MR_MAX_OUTPUTS], mr_status *st)
{
    bool has[MR_MAX_OUTPUTS], plain;
    MR_TRY(mr__model_find_labels(x->m, of, what, has, &plain, st));
    for (size_t k = 0; k < x->n_outputs; k++)
        columns[k] = plain ? *at : has[k] ? (*at)++ : -1;
    *at += plain;
    return MR_OK;
}

static bool is_measured(const mr__run *x, size_t output)
{
    bool measured = x->terms[output].loss != NULL;
    for (size_t i = 0; i < x->opts->n_metrics; i++)
        measured = measured || x->metric_outputs[i] == output;
    return measured;
}

static mr_code check_labels(const mr__run *x, const mr_spec *labels, mr_status *st)
{
    char names[256];
    mr__model_output_names(x->m, names, sizeof names);
    if (mr_spec_kind_of(labels) == MR_SPEC_LEAF)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the labels are one tensor, but the model has %zu outputs (%s): a record "
                       "with these names, or a tuple in this order, is wanted",
                       x->n_outputs, names);
    for (size_t k = 0; k < x->n_outputs; k++)
        if (x->terms[k].labels < 0 && is_measured(x, k))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "the labels have no component \"%s\", which is an output of the model "
                           "that has a loss or a metric",
                           mr_model_output_name(x->m, k));
    return MR_OK;
}

/* The component of a record that its name says is labels; else the last one. */
static size_t guess_labels(const mr_spec *record)
{
    static const char *const names[] = {"label", "labels", "y", "target", "targets", "class"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t at = mr_spec_find(record, names[i]);
        if (at >= 0)
            return (size_t)at;
    }
    return mr_spec_n_children(record) - 1;
}

/* The components of a record lie in the order of their names: which of them are labels is to be
 * said. Only where all of them are inputs is a record right, by the names of those. */
static mr_code check_no_record(const mr__run *x, mr_dataset *ds, mr_status *st)
{
    MR_TRY(mr_dataset_check(ds, st));
    const mr_spec *spec = mr_dataset_spec(ds);
    size_t n = mr_spec_n_children(spec);
    if (mr_spec_kind_of(spec) != MR_SPEC_RECORD ||
        (!x->loss && (n < 2 || mr_model_n_inputs(x->m) > 1)))
        return MR_OK;
    size_t labels = n > 1 ? guess_labels(spec) : 1;
    const char *features = mr_spec_child_name(spec, labels == 0);
    if (!x->loss || n < 2)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the data yield a record; %s wanted: .map(r => r[\"%.100s\"])",
                       x->loss ? "(features, labels) are" : "features are", features);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "the data yield a record, which does not say what the labels are; (features, "
                   "labels) are wanted: .map(r => (r[\"%.100s\"], r[\"%.100s\"]))",
                   features, mr_spec_child_name(spec, labels));
}

mr_code mr__run_prepare(const mr__run *x, mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    if (ds)
        MR_TRY(check_no_record(x, ds, st));
    return mr_model_prepare(x->m, ds, out, st);
}

/* What prepared data have after the features. */
static mr_code open_columns(mr__run *x, mr_dataset *ds, mr_status *st)
{
    int at = (int)mr_model_n_inputs(x->m), labels[MR_MAX_OUTPUTS], weights[MR_MAX_OUTPUTS];
    MR_TRY(mr_dataset_check(ds, st));
    const mr_spec *spec = mr_dataset_spec(ds);
    size_t n = mr_spec_kind_of(spec) == MR_SPEC_TUPLE ? mr_spec_n_children(spec) : 1;
    if (n < 2 || n > 3)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the data must yield (features, labels) or (features, labels, sample "
                       "weights), found %zu component%s; map them to a tuple",
                       n, n == 1 ? "" : "s");
    MR_TRY(find_columns(x, mr_spec_child(spec, 1), "labels", &at, labels, st));
    for (size_t k = 0; k < x->n_outputs; k++)
        weights[k] = -1;
    if (n == 3)
        MR_TRY(find_columns(x, mr_spec_child(spec, 2), "sample weights", &at, weights, st));
    for (size_t k = 0; k < x->n_outputs; k++) {
        x->terms[k].labels = labels[k];
        x->terms[k].sample_weight = weights[k];
    }
    x->n_columns = (size_t)at;
    return check_labels(x, mr_spec_child(spec, 1), st);
}

mr_code mr__run_open_terms(mr__run *x, mr_dataset *ds, mr_status *st)
{
    if (x->loss)
        MR_TRY(open_losses(x, st));
    MR_TRY(open_metrics(x, st));
    return x->n_outputs > 1 && x->loss ? open_columns(x, ds, st) : MR_OK;
}

mr_code mr__run_check_columns(mr__run *x, size_t n, mr_status *st)
{
    size_t n_in = mr_model_n_inputs(x->m);
    if (n_in > 1 && (n < n_in + (x->loss != NULL) || n > n_in + 2 * x->n_outputs))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the model has %zu inputs, hence the data must yield features of as many "
                       "components%s; found %zu components in all",
                       n_in,
                       x->loss ? ", with labels and perhaps sample weights: ((a, b), y), "
                                 "((a, b), y, w)"
                               : "",
                       n);
    if (n_in == 1 && (x->loss ? n < 2 || n > 1 + 2 * x->n_outputs : n > 1 + 2 * x->n_outputs))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the data must yield %s, found %zu components; map them to a tuple",
                       x->loss ? "(features, labels) or (features, labels, sample weights)"
                               : "features or (features, labels)",
                       n);
    if (x->n_columns > 0 && n != x->n_columns)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the data must yield %zu components in all for this model's inputs, labels "
                       "and sample weights, found %zu",
                       x->n_columns, n);
    if (x->n_outputs == 1) {
        x->terms[0].labels = (int)n_in;
        x->terms[0].sample_weight = n == n_in + 2 ? (int)n_in + 1 : -1;
    }
    return MR_OK;
}

/* A batch of one example of this form; sizes that are not known are -1. */
static mr_array array_of(const mr_leaf *l)
{
    mr_array a = {.dtype = l->dtype, .rank = l->rank, .rows = 1};
    a.storage = l->ragged ? MR_RAGGED : l->dtype == MR_STRING ? MR_BYTES : MR_DENSE;
    for (int d = 0; d < l->rank; d++)
        a.shape[d] = d == 0 ? 1 : l->shape[d];
    return a;
}

static mr_code check_features(const mr__run *x, const mr_spec *spec, mr_status *st)
{
    for (size_t i = 0; i < mr_model_n_inputs(x->m); i++) {
        mr_array a = array_of(mr_spec_leaf(spec, i));
        int rank;
        const int64_t *shape;
        mr_model_input_shape_of(x->m, i, &rank, &shape);
        for (int d = 1; d < a.rank; d++)
            if (a.shape[d] < 0)
                a.shape[d] = d - 1 < rank ? shape[d - 1] : 1;
        if (a.rank >= 0)
            MR_TRY(mr__model_check_input(x->m, i, &a, st));
    }
    return MR_OK;
}

static mr_code check_term(const mr__run *x, size_t k, const mr_spec *spec, mr_status *st)
{
    const mr__term *t = &x->terms[k];
    mr_array y = {.dtype = MR_FLOAT32, .rows = 1, .shape[0] = 1};
    int rank;
    const int64_t *shape;
    mr_model_output_shape_of(x->m, k, &rank, &shape);
    memcpy(y.shape + 1, shape, (size_t)rank * sizeof *shape);
    y.rank = (int8_t)(rank + 1);
    mr_array labels = array_of(mr_spec_leaf(spec, (size_t)t->labels));
    if (labels.rank >= 0)
        MR_TRY(mr__loss_check_labels(t->loss, &labels, &y, st));
    if (t->sample_weight < 0)
        return MR_OK;
    mr_array weights = array_of(mr_spec_leaf(spec, (size_t)t->sample_weight));
    return weights.rank >= 0 ? mr__loss_check_weights(&weights, &y, st) : MR_OK;
}

static mr_code check_columns(mr__run *x, const mr_spec *spec, mr_status *st)
{
    MR_TRY(mr__run_check_columns(x, mr_spec_n_leaves(spec), st));
    MR_TRY(check_features(x, spec, st));
    for (size_t k = 0; k < x->n_outputs; k++) {
        mr_code rc = x->terms[k].loss ? check_term(x, k, spec, st) : MR_OK;
        if (rc != MR_OK && x->n_outputs > 1)
            mr_status_prefix(st, "output %s", mr_model_output_name(x->m, k));
        MR_TRY(rc);
    }
    return MR_OK;
}

mr_code mr__run_check_form(const mr__run *x, mr_dataset *ds, mr_status *st)
{
    const mr_fit_opts opts = {.metrics = x->opts->metrics, .n_metrics = x->opts->n_metrics};
    mr__run y = {.s = x->s, .m = x->m, .loss = x->loss, .opts = &opts, .n_outputs = x->n_outputs};
    mr_dataset *prepared = NULL;
    mr_code rc = mr__run_prepare(x, ds, &prepared, st);
    if (rc == MR_OK)
        rc = mr__run_open_terms(&y, ds, st);
    if (rc == MR_OK)
        rc = check_columns(&y, mr_dataset_spec(prepared), st);
    mr__run_close_terms(&y);
    mr_dataset_unref(prepared);
    return rc;
}

void mr__run_close_terms(mr__run *x)
{
    for (size_t i = 0; i < MR_MAX_METRICS; i++)
        mr_metric_free(x->metrics[i]);
    for (size_t k = 0; k < MR_MAX_OUTPUTS; k++)
        mr_loss_free(x->terms[k].owned);
}
