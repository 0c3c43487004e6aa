/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/fit_run.h"
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include "pipeline/engine/op_iterator.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/params/spec.h"
#include "trainer/objectives/class_weights.h"
#include "trainer/objectives/loss_impl.h"
#include "trainer/objectives/metric_impl.h"
#include "trainer/objectives/optimizer_impl.h"
#include "trainer/model/model_impl.h"
#include "trainer/device/random_bits.h"
#include "trainer/strategy/strategy_impl.h"
#include "trainer/device/tensor.h"
#include "trainer/device/timeline_impl.h"

/* ---- terms: the loss, metrics, labels and sample weights of each output ---- */

/* The text says that predictions are logits, but the model makes probabilities of them. */
static void warn_of_logits(const mr_loss *l, const mr_activation *last)
{
    const char *of = mr__loss_probabilities(l);
    if (of && last && strcmp(last->name, of) == 0 && l->from_logits)
        mr_log(MR_LOG_WARNING,
               "%s has from_logits=true, but the model ends with %s: the loss is computed from the "
               "values before it",
               mr_loss_name(l), of);
}

/* Parses a loss for all outputs once for each: its use of logits depends on the output. */
static mr_code open_losses(mr__run *x, mr_status *st)
{
    const char *names[MR_MAX_OUTPUTS];
    for (size_t k = 0; k < x->n_outputs; k++)
        names[k] = mr_model_output_name(x->m, k);
    MR_TRY(mr__loss_check_outputs(x->loss, names, x->n_outputs, st));
    for (size_t k = 0; k < x->n_outputs; k++) {
        mr__term *t = &x->terms[k];
        const mr_loss *l = mr_loss_of_output(x->loss, names[k], k, &t->weight);
        if (l == x->loss && x->n_outputs > 1) {
            MR_TRY(mr_loss_parse(&t->owned, mr_loss_text(l), st));
            l = t->owned;
        }
        t->loss = (mr_loss *)(uintptr_t)l;
        if (l)
            mr__loss_fit_model(t->loss, mr__model_last_activation(x->m, k));
        if (l && x->o)
            warn_of_logits(t->loss, mr__model_last_activation(x->m, k));
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
                       "metric %s: the model has several outputs (%s); name one, as in %s.%s", text,
                       names, mr_model_output_name(x->m, 0), text);
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

/* Labels or sample weights of several outputs: assigns the columns from *at on. */
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
                       "the labels are one tensor, but the model has %zu outputs (%s): expected a "
                       "record with these names, or a tuple in this order",
                       x->n_outputs, names);
    for (size_t k = 0; k < x->n_outputs; k++)
        if (x->terms[k].labels < 0 && is_measured(x, k))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "the labels have no component \"%s\", which is an output of the model "
                           "that has a loss or a metric",
                           mr_model_output_name(x->m, k));
    return MR_OK;
}

/* The component of a record whose name suggests labels; else the last one. */
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

/* The components of a record are in the order of their names, so labels cannot be identified. A
 * record is valid only if all its components are inputs of the model, by name. */
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
                       "the data yield a record; expected %s: .map(r => r[\"%.100s\"])",
                       x->loss ? "(features, labels)" : "features", features);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "the data yield a record, which does not say what the labels are; expected "
                   "(features, labels): .map(r => (r[\"%.100s\"], r[\"%.100s\"]))",
                   features, mr_spec_child_name(spec, labels));
}

/* mr_model_prepare for the data of the run.
 * errors   MR_INVALID_ARGUMENT: a record instead of (features, labels), or of the features of a
 *          model with one input; those of mr_model_prepare */
static mr_code prepare(const mr__run *x, mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    if (ds)
        MR_TRY(check_no_record(x, ds, st));
    return mr_model_prepare(x->m, ds, out, st);
}

/* Finds the columns after the features in prepared data. */
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

static mr_code open_terms(mr__run *x, mr_dataset *ds, mr_status *st)
{
    if (x->loss)
        MR_TRY(open_losses(x, st));
    MR_TRY(open_metrics(x, st));
    return x->n_outputs > 1 && x->loss ? open_columns(x, ds, st) : MR_OK;
}

/* Checks the structure of a batch of n columns, and with one output finds its labels and
 * weights. */
static mr_code check_columns(mr__run *x, size_t n, mr_status *st)
{
    size_t n_in = mr_model_n_inputs(x->m);
    if (n_in > 1 && (n < n_in + (x->loss != NULL) || n > n_in + 2 * x->n_outputs))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the model has %zu inputs, so the data must yield features with this number "
                       "of components%s; found %zu components in all",
                       n_in,
                       x->loss ? ", with labels and perhaps sample weights: ((a, b), y), "
                                 "((a, b), y, w)"
                               : "",
                       n);
    if (n_in == 1 && (x->loss ? n < 2 || n > 1 + 2 * x->n_outputs : n > 1 + 2 * x->n_outputs))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the data must yield %s, found %zu component%s; map them to a tuple",
                       x->loss ? "(features, labels) or (features, labels, sample weights)"
                               : "features or (features, labels)",
                       n, n == 1 ? "" : "s");
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

/* A batch of one example of this form; unknown sizes are -1. */
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

static mr_code check_spec(mr__run *x, const mr_spec *spec, mr_status *st)
{
    MR_TRY(check_columns(x, mr_spec_n_leaves(spec), st));
    MR_TRY(check_features(x, spec, st));
    for (size_t k = 0; k < x->n_outputs; k++) {
        mr_code rc = x->terms[k].loss ? check_term(x, k, spec, st) : MR_OK;
        if (rc != MR_OK && x->n_outputs > 1)
            mr_status_prefix(st, "output %s", mr_model_output_name(x->m, k));
        MR_TRY(rc);
    }
    return MR_OK;
}

static void close_terms(mr__run *x)
{
    for (size_t i = 0; i < MR_MAX_METRICS; i++)
        mr_metric_free(x->metrics[i]);
    for (size_t k = 0; k < MR_MAX_OUTPUTS; k++)
        mr_loss_free(x->terms[k].owned);
}

mr_code mr__run_check_form(const mr__run *x, mr_dataset *ds, mr_status *st)
{
    const mr_fit_opts opts = {.metrics = x->opts->metrics, .n_metrics = x->opts->n_metrics};
    mr__run y = {.s = x->s, .m = x->m, .loss = x->loss, .opts = &opts, .n_outputs = x->n_outputs};
    mr_dataset *prepared = NULL;
    mr_code rc = prepare(x, ds, &prepared, st);
    if (rc == MR_OK)
        rc = open_terms(&y, ds, st);
    if (rc == MR_OK)
        rc = check_spec(&y, mr_dataset_spec(prepared), st);
    close_terms(&y);
    mr_dataset_unref(prepared);
    return rc;
}

/* ---- the run ---- */

static mr_device *device_of(const mr__run *x, size_t r)
{
    return mr_replica_device(mr_strategy_replica(x->s, r));
}

static mr_code make_slot(const mr__run *x, mr__step_result *s, mr_status *st)
{
    size_t n = x->n_replicas, of_all = n * x->n_outputs;
    s->replicas = mr_calloc(n, sizeof *s->replicas);
    s->predictions = mr_calloc(of_all, sizeof(void *));
    s->capacity = mr_calloc(of_all, sizeof *s->capacity);
    s->shapes = mr_calloc(of_all, sizeof *s->shapes);
    if (!s->replicas || !s->predictions || !s->capacity || !s->shapes)
        return mr_fail_memory(st, of_all * sizeof *s->shapes, "the results of a step");
    for (size_t r = 0; r < n; r++) {
        size_t bytes = sizeof **s->replicas + (x->n_outputs + 1 + x->n_totals) * sizeof(double);
        void *p;
        MR_TRY(mr_device_alloc(device_of(x, r), MR_MEMORY_PINNED, bytes, &p, st));
        s->replicas[r] = p;
        memset(p, 0, bytes);
    }
    return MR_OK;
}

/* Per step: the losses of all outputs and the penalty. */
static size_t losses_bytes(const mr__run *x)
{
    return (x->n_outputs + 1) * sizeof(double);
}

static mr_code make_replicas(mr__run *x, mr_status *st)
{
    size_t n = x->n_replicas;
    x->results = mr_calloc(n, sizeof(mr_stream *));
    x->ended = mr_calloc(n, sizeof(mr_event *));
    x->sums = mr_calloc(n, sizeof(double *));
    if (!x->results || !x->ended || !x->sums)
        return mr_fail_memory(st, n * sizeof(mr_stream *), "a training run");
    for (size_t r = 0; r < n; r++) {
        void *p;
        mr_device_properties is;
        mr_device_describe(device_of(x, r), &is);
        /* If kernels are host functions, an extra one costs nothing; elsewhere it would delay the
         * stream. */
        if (is.host_kernels)
            x->results[r] = mr_replica_stream(mr_strategy_replica(x->s, r));
        else
            MR_TRY(mr_stream_new(&x->results[r], device_of(x, r), MR_STREAM_COPY, st));
        MR_TRY(mr_event_new(&x->ended[r], device_of(x, r), st));
        MR_TRY(mr_device_alloc(device_of(x, r), MR_MEMORY_DEVICE, losses_bytes(x), &p, st));
        x->sums[r] = p;
    }
    return MR_OK;
}

mr_code mr__run_input(const mr__run *x, const mr_input_context *c, mr_dataset **out, mr_status *st)
{
    mr_dataset *made = NULL;
    MR_TRY(x->opts->input(x->opts->input_ctx, c, &made, st));
    mr_code rc =
        made ? mr__weigh_classes(made, x->opts->class_weights, x->opts->n_class_weights, out, st)
             : mr_fail(st, MR_FAILED_PRECONDITION, "the input function returned no dataset");
    mr_dataset_unref(made);
    return rc;
}

/* An mr_input_fn. */
static mr_code prepare_input(void *ctx, const mr_input_context *c, mr_dataset **out, mr_status *st)
{
    const mr__run *x = ctx;
    mr_dataset *made;
    MR_TRY(mr__run_input(x, c, &made, st));
    mr_code rc = prepare(x, made, out, st);
    mr_dataset_unref(made);
    return rc;
}

static mr_code open_feed(mr__run *x, mr_dataset *ds, bool positions, mr_status *st)
{
    mr_fit_opts opts = *x->opts;
    mr_iterator_opts read = opts.iterator ? *opts.iterator : (mr_iterator_opts){0};
    mr_dataset *prepared = NULL;
    if (x->records) {
        read.ledger = mr__step_records_names(x->records);
        opts.iterator = &read;
    }
    opts.input = prepare_input;
    opts.input_ctx = x;
    if (ds || !x->opts->input)
        MR_TRY(prepare(x, ds, &prepared, st));
    mr_code rc = mr__feed_open(&x->feed, x->s, prepared, &opts, positions, st);
    x->feed.records = x->records;
    mr_dataset_unref(prepared);
    return rc;
}

static const mr__stepper own_replicas;

/* If the first worker writes a ledger, all give it their records. */
static mr_code open_records(mr__run *x, mr_status *st)
{
    double own = x->o && x->opts->ledger, all[MR_MAX_REPLICAS] = {own};
    size_t workers = mr_strategy_num_workers(x->s);
    if (x->o && mr__strategy_world(x->s) && workers > 1) {
        if (workers > MR_MAX_REPLICAS)
            return mr_fail(st, MR_RESOURCE_EXHAUSTED, "too many workers for a ledger");
        MR_TRY(mr__world_exchange(mr__strategy_world(x->s), MR__CHANNEL_RESULTS, &own, 1, all, st));
    }
    return all[0] > 0 ? mr__step_records_new(&x->records, x->s, st) : MR_OK;
}

static mr_cancel *cancel_of(const mr__run *x)
{
    return x->opts->iterator ? x->opts->iterator->cancel : NULL;
}

static void drop_steps(mr_cancel_waiter *w)
{
    mr__drop_cancel(&((mr__run *)((char *)w - offsetof(mr__run, waiter)))->drop);
}

/* From now on a cancellation drops steps. Other processes add the sums of this one to theirs, so
 * a job of several runs all steps that it has begun. */
static void begin_drops(mr__run *x)
{
    x->drops = cancel_of(x) && !mr__strategy_world(x->s) && !x->give;
    for (size_t r = 0; r < x->n_replicas; r++)
        x->drops = x->drops && mr__stream_can_drop(mr_replica_stream(mr_strategy_replica(x->s, r)));
    if (!x->drops)
        return;
    mr__drop_reset(&x->drop);
    x->waiter.wake = drop_steps;
    mr_cancel_register(cancel_of(x), &x->waiter);
}

static void end_drops(mr__run *x)
{
    if (x->drops)
        mr_cancel_unregister(cancel_of(x), &x->waiter);
    x->drops = false;
}

mr_code mr__run_open(mr__run *x, mr_dataset *ds, mr_status *st)
{
    x->stepper = &own_replicas;
    x->n_replicas = mr_strategy_num_local_replicas(x->s);
    for (size_t i = 0; i < MR__RUN_SLOTS; i++)
        mr__completion_init(&x->slots[i].done);
    MR_TRY(mr__strategy_ready(x->s, st));
    if (mr_model_strategy(x->m) && mr_model_strategy(x->m) != x->s)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the model was built on another strategy");
    x->n_outputs = mr_model_n_outputs(x->m);
    MR_TRY(open_terms(x, ds, st));
    MR_TRY(make_replicas(x, st));
    for (size_t i = 0; i < MR__RUN_SLOTS; i++)
        MR_TRY(make_slot(x, &x->slots[i], st));
    bool positions = false;
    for (size_t i = 0; i < x->opts->n_callbacks && x->o; i++)
        positions = positions || x->opts->callbacks[i].saves;
    MR_TRY(open_records(x, st));
    MR_TRY(open_feed(x, ds, positions, st));
    x->steps_in_pass = mr_dist_dataset_cardinality(x->feed.dd);
    if (x->o) {
        x->feed.asks_stop = x->opts->stopping;
        x->feed.asks_stop_ctx = x->opts->stopping_ctx;
    }
    const mr__remote_job *job = mr__strategy_remote(x->s);
    if (!x->o || !job->self) {
        begin_drops(x);
        return MR_OK;
    }
    x->stepper = job->stepper;
    x->feed.records = NULL; /* its batches are for the shapes only */
    if (x->records && !mr__run_has_remote_streams(x))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the workers of parameter servers read the data by themselves, so there is "
                       "no ledger of their steps, unless the job is elastic (elastic_streams, "
                       "--elastic)");
    return x->stepper->open(x, job->self, ds, st);
}

static void free_slot(const mr__run *x, mr__step_result *s)
{
    for (size_t r = 0; s->replicas && r < x->n_replicas; r++)
        mr_device_free(device_of(x, r), MR_MEMORY_PINNED, s->replicas[r]);
    for (size_t i = 0; s->predictions && i < x->n_replicas * x->n_outputs; i++)
        mr_device_free(device_of(x, i / x->n_outputs), MR_MEMORY_PINNED, s->predictions[i]);
    mr__completion_destroy(&s->done);
    mr_free(s->replicas);
    mr_free(s->predictions);
    mr_free(s->capacity);
    mr_free(s->shapes);
}

/* Waits for the steps that an error left in flight, and undoes or settles them as if they were
 * collected. */
static void drain(mr__run *x)
{
    const mr__step_result *result;
    while (x->head < x->tail)
        if (mr__run_collect(x, &result, NULL) != MR_OK)
            x->head = x->tail;
}

void mr__run_close(mr__run *x)
{
    if (x->stepper) /* otherwise it was never opened */
        x->stepper->close(x);
    mr_code rc = mr__strategy_synchronize(x->s, NULL);
    (void)rc; /* the next use of the devices reports it */
    end_drops(x);
    for (size_t r = 0; x->results && r < x->n_replicas; r++)
        if (x->results[r] != mr_replica_stream(mr_strategy_replica(x->s, r)))
            mr_stream_free(x->results[r]);
    mr__feed_close(&x->feed);
    close_terms(x);
    for (size_t i = 0; i < MR__RUN_SLOTS; i++)
        free_slot(x, &x->slots[i]);
    for (size_t r = 0; r < x->n_replicas; r++) {
        mr_event_free(x->ended ? x->ended[r] : NULL);
        if (x->sums)
            mr_device_free(device_of(x, r), MR_MEMORY_DEVICE, x->sums[r]);
    }
    mr_free(x->results);
    mr_free(x->ended);
    mr_free(x->sums);
}

/* Fetches the next batch; returns when it began, *now: when it ended. */
static double fetch(mr__run *x, double *now)
{
    mr__span *span = mr__span_begin(MR_SPAN_WORK, "input");
    if (span)
        span->step++; /* it belongs to the next step */
    double began = mr_iter_now();
    mr__feed_fetch(&x->feed);
    *now = mr_iter_now();
    mr__span_end(span);
    return began;
}

/* The part of a fetch after the last step had ended counts as waiting. */
static void count_wait(mr__run *x, size_t last, double began, double now)
{
    double ended = mr__completion_time(&x->slots[last % MR__RUN_SLOTS].done);
    double idle = ended > began ? ended : began;
    if (now <= idle)
        return;
    x->waited += now - idle;
    mr__span *span = mr__span_begin(MR_SPAN_WAIT, "devices idle");
    if (span) {
        span->step++;
        span->began = idle;
        span->ended = now;
    }
}

bool mr__run_has_remote_streams(const mr__run *x)
{
    return x->stepper->reads_apart && mr_dist_dataset_elastic_streams(x->feed.dd) > 0;
}

mr_code mr__run_rewind(mr__run *x, mr_status *st)
{
    return mr__run_has_remote_streams(x) ? x->stepper->rewind(x, st)
                                         : mr__feed_rewind(&x->feed, st);
}

mr_code mr__run_save(mr__run *x, void **bytes, size_t *size, mr_status *st)
{
    return mr__run_has_remote_streams(x) ? x->stepper->save(x, bytes, size, st)
                                         : mr__feed_save(&x->feed, bytes, size, st);
}

mr_code mr__run_take(mr__run *x, mr_status *st)
{
    double began, now;
    if (x->stepper->reads_apart && mr_model_is_built(x->m)) {
        mr__feed *f = &x->feed;
        f->stopping = f->asks_stop && f->asks_stop(f->asks_stop_ctx);
        return mr__run_has_remote_streams(x) ? x->stepper->take(x, st) : MR_OK;
    }
    if (!x->feed.ahead) {
        began = fetch(x, &now);
        count_wait(x, x->tail + MR__RUN_SLOTS - 1, began, now);
    }
    return mr__feed_take(&x->feed, &x->slot, st);
}

mr_code mr__run_build(mr__run *x, mr_status *st)
{
    mr_array t;
    if (x->stepper->reads_apart && mr_model_is_built(x->m))
        return MR_OK;
    MR_TRY(check_columns(x, mr__staging_n_columns(x->feed.ring), st));
    mr__staging_tensor(x->feed.ring, x->slot, 0, 0, &t);
    if (mr_model_is_built(x->m))
        return MR_OK;
    MR_TRY(mr__model_check_dtype(x->m, 0, t.dtype, st));
    mr_code rc = mr_model_build(
        x->m, x->s, t.rank - 1, t.shape + 1,
        &(mr_model_opts){.seed = x->opts->seed, .mixed_precision = x->opts->mixed_precision}, st);
    if (rc != MR_INVALID_ARGUMENT || !st)
        return rc;
    char shape[128];
    mr__shape_text(t.rank, t.shape, shape, sizeof shape);
    return mr_fail(st, rc,
                   "%s (batches of features have shape %s; if that is one example, end the data "
                   "with .batch(N), N being the global batch size)",
                   st->message, shape);
}

/* y: one of the model's outputs. */
static mr_code fetch_prediction(mr__run *x, mr__step_result *s, mr_replica *r, size_t output,
                                const mr_array *y, mr_status *st)
{
    size_t at = mr_replica_id(r) * x->n_outputs + output, bytes = mr_array_row_bytes(y);
    mr_device *d = device_of(x, mr_replica_id(r));
    if (bytes > s->capacity[at]) {
        void *p;
        MR_TRY(mr_device_alloc(d, MR_MEMORY_PINNED, bytes, &p, st));
        mr_device_free(d, MR_MEMORY_PINNED, s->predictions[at]);
        s->predictions[at] = p;
        s->capacity[at] = bytes;
    }
    s->shapes[at] = *y;
    return mr_stream_copy(mr_replica_stream(r), s->predictions[at], y->data, bytes, st);
}

static mr_code fetch_predictions(mr__run *x, mr__step_result *s, mr_replica *r, const mr_array *y,
                                 mr_status *st)
{
    for (size_t i = 0; i < x->n_outputs; i++)
        MR_TRY(fetch_prediction(x, s, r, i, &y[i], st));
    return MR_OK;
}

/* Computes the loss of one output, and in training its derivative. */
static mr_code add_term(mr__run *x, const mr__step_result *s, mr_replica *r, size_t k,
                        const mr_array *y, mr_status *st)
{
    const mr__term *t = &x->terms[k];
    size_t id = mr_replica_id(r);
    mr_array labels, weights;
    mr_loss_opts how = {.first_row = mr__staging_first_row(x->feed.ring, x->slot, id),
                        .scale = s->scales[k] * t->weight,
                        .sum = x->sums[id] + k};
    if (!t->loss)
        return x->o ? mr_stream_set(mr_replica_stream(r), mr_model_output_gradient_of(x->m, r, k),
                                    0, mr_array_row_bytes(y), st)
                    : MR_OK;
    mr__staging_tensor(x->feed.ring, x->slot, id, (size_t)t->labels, &labels);
    if (t->sample_weight >= 0) {
        mr__staging_tensor(x->feed.ring, x->slot, id, (size_t)t->sample_weight, &weights);
        how.sample_weight = &weights;
    }
    mr_code rc = mr_model_loss(x->m, r, k, t->loss, &labels, &how, NULL, st);
    if (rc != MR_OK && x->n_outputs > 1)
        mr_status_prefix(st, "output %s", mr_model_output_name(x->m, k));
    return rc;
}

static mr_code add_metric(mr__run *x, size_t i, mr_replica *r, const mr_array *y, mr_status *st)
{
    size_t k = x->metric_outputs[i], id = mr_replica_id(r);
    const mr__term *t = &x->terms[k];
    mr_metric *m = x->metrics[i];
    mr_array labels, weights, logits;
    bool weighted = mr__metric_is_weighted(m) && t->sample_weight >= 0;
    mr__staging_tensor(x->feed.ring, x->slot, id, (size_t)t->labels, &labels);
    if (weighted)
        mr__staging_tensor(x->feed.ring, x->slot, id, (size_t)t->sample_weight, &weights);
    bool by_logits = mr__model_logits(x->m, r, k, mr__metric_probabilities(m), &logits);
    return mr__metric_add(m, r, &labels, &y[k], by_logits ? &logits : NULL,
                          weighted ? &weights : NULL, st);
}

/* Computes losses, penalty and metrics; in training also the backward pass and the update. */
static mr_code learn(mr__run *x, mr__step_result *s, mr_replica *r, const mr_array *y,
                     mr_status *st)
{
    size_t id = mr_replica_id(r);
    MR_TRY(mr_stream_set(mr_replica_stream(r), x->sums[id], 0, losses_bytes(x), st));
    for (size_t k = 0; k < x->n_outputs; k++)
        MR_TRY(add_term(x, s, r, k, &y[k], st));
    MR_TRY(mr_model_regularization_loss(x->m, r, x->sums[id] + x->n_outputs, st));
    for (size_t i = 0; i < x->opts->n_metrics; i++)
        MR_TRY(add_metric(x, i, r, y, st));
    if (!x->o)
        return MR_OK;
    MR_TRY(mr_model_backward(x->m, r, st));
    return x->give ? x->give(x->give_ctx, r, st) : mr_model_apply_gradients(x->m, r, x->o, st);
}

/* Copies the results of the step to the host, and requests a completion. */
static mr_code send_results(mr__run *x, mr__step_result *s, mr_replica *r, mr_status *st)
{
    size_t id = mr_replica_id(r);
    mr_stream *compute = mr_replica_stream(r);
    mr__replica_result *to = s->replicas[id];
    mr__span *span;
    MR_TRY(mr__span_submit(&span, compute, MR_ROW_STREAM, id, "results", st));
    if (x->loss)
        MR_TRY(mr_stream_copy(compute, to->sums, x->sums[id], losses_bytes(x), st));
    MR_TRY(mr_stream_copy(compute, &to->fault, mr__replica_fault(r), sizeof to->fault, st));
    for (size_t i = 0, at = x->n_outputs + 1; i < x->opts->n_metrics && x->loss; i++) {
        MR_TRY(mr__metric_fetch(x->metrics[i], r, to->sums + at, st));
        at += mr__metric_totals(x->metrics[i]);
    }
    if (x->results[id] != compute) {
        MR_TRY(mr_stream_record(compute, x->ended[id], st));
        MR_TRY(mr_stream_wait(x->results[id], x->ended[id], st));
    }
    MR_TRY(mr__span_submit_end(span, x->results[id], st));
    return mr__completion_expect(&s->done, x->results[id], st);
}

/* The model's pass over this replica's part of the batch, with losses and update. */
static mr_code pass(mr__run *x, mr__step_result *s, mr_replica *r, mr_status *st)
{
    size_t id = mr_replica_id(r);
    mr_array features[MR_MAX_INPUTS], y[MR_MAX_OUTPUTS];
    mr_forward_opts how = {.training = x->o != NULL,
                           .first_row = mr__staging_first_row(x->feed.ring, x->slot, id)};
    for (size_t i = 0; i < mr_model_n_inputs(x->m); i++)
        mr__staging_tensor(x->feed.ring, x->slot, id, i, &features[i]);
    MR_TRY(mr_model_forward(x->m, r, features, &how, y, st));
    return x->loss ? learn(x, s, r, y, st) : fetch_predictions(x, s, r, y, st);
}

/* A key for steps that are the same for the devices: same model and purpose, same batch size and
 * memory. */
static uint64_t kind_of_step(const mr__run *x, size_t id)
{
    mr_array features;
    mr__staging_tensor(x->feed.ring, x->slot, id, 0, &features);
    const uint64_t is[] = {x->m->serial, x->o ? mr__optimizer_serial(x->o) : 0, x->slot,
                           (uint64_t)features.shape[0], mr__staging_rows(x->feed.ring, x->slot)};
    uint64_t key = 0;
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        key = mr__mix_in(key, is[i]);
    return key;
}

/* pass(), which devices may run as a unit. */
static mr_code repeat_pass(mr__run *x, mr__step_result *s, mr_replica *r, mr_status *st)
{
    mr_stream *compute = mr_replica_stream(r);
    mr_status end;
    mr_status_init(&end);
    if (x->opts->no_cuda_graph)
        return pass(x, s, r, st);
    MR_TRY(mr_stream_repeat_begin(compute, kind_of_step(x, mr_replica_id(r)), st));
    mr_code rc = pass(x, s, r, st), ended = mr_stream_repeat_end(compute, &end);
    if (rc == MR_OK && ended != MR_OK && st)
        *st = end;
    return rc == MR_OK ? ended : rc;
}

/* What a cancellation may drop of a step. */
static mr_code enqueue_section(mr__run *x, mr__step_result *s, mr_replica *r, mr_status *st)
{
    size_t id = mr_replica_id(r);
    mr__span *span;
    MR_TRY(mr__span_submit(&span, mr_replica_stream(r), MR_ROW_STREAM, id, "step", st));
    if (x->instead) {
        MR_TRY(mr_stream_set(mr_replica_stream(r), x->sums[id], 0, losses_bytes(x), st));
        MR_TRY(x->instead(x->give_ctx, r, st));
    } else
        MR_TRY(repeat_pass(x, s, r, st));
    MR_TRY(mr__span_submit_end(span, mr_replica_stream(r), st));
    return send_results(x, s, r, st);
}

static mr_code enqueue(mr__run *x, mr__step_result *s, mr_replica *r, mr_status *st)
{
    size_t id = mr_replica_id(r);
    mr_stream *compute = mr_replica_stream(r);
    mr_status end;
    mr_status_init(&end);
    MR_TRY(mr__staging_acquire(x->feed.ring, x->slot, id, st));
    if (x->drops)
        MR_TRY(mr__stream_section_begin(compute, &x->drop, mr__strategy_step(x->s), st));
    mr_code rc = enqueue_section(x, s, r, st);
    mr_code ended = x->drops ? mr__stream_section_end(compute, &end) : MR_OK;
    if (rc == MR_OK && ended != MR_OK && st)
        *st = end;
    MR_TRY(rc == MR_OK ? ended : rc);
    return mr__staging_release(x->feed.ring, x->slot, id, st);
}

/* One step of one replica. */
static mr_code step(mr_replica *r, void *ctx, mr_status *st)
{
    mr__run *x = ctx;
    mr__step_result *s = &x->slots[x->tail % MR__RUN_SLOTS];
    mr__timeline_place was = mr__timeline_enter(
        (mr__timeline_place){x->opts->timeline, MR_ROW_HOST, mr_replica_id(r), s->step});
    mr__span *span = mr__span_begin(MR_SPAN_WORK, "enqueue");
    mr_code rc = enqueue(x, s, r, st);
    mr__span_end(span);
    mr__timeline_enter(was);
    return rc;
}

/* 1 over the number of losses of an output in a batch; 0: it has none. */
static double scale_of(const mr__run *x, size_t output, size_t rows)
{
    int rank;
    const int64_t *shape;
    mr_model_output_shape_of(x->m, output, &rank, &shape);
    for (int i = 0; i + 1 < rank; i++)
        rows *= (size_t)shape[i];
    return rows > 0 ? 1 / (double)rows : 0;
}

static mr_code submit(mr__run *x, int64_t number, int64_t epoch, bool fetch_next, mr_status *st)
{
    mr__step_result *s = &x->slots[x->tail % MR__RUN_SLOTS];
    size_t rows = mr__staging_rows(x->feed.ring, x->slot);
    s->step = number;
    s->epoch = epoch;
    s->rows = (int64_t)rows;
    for (size_t k = 0; k < x->n_outputs; k++)
        s->scales[k] = scale_of(x, k, rows);
    MR_TRY(mr__strategy_begin(x->s, step, x, st));
    s->strategy_step = mr__strategy_step(x->s);
    double began = 0, now = 0;
    if (fetch_next) /* while the replicas work */
        began = fetch(x, &now);
    mr__span *span = x->n_replicas > 1 ? mr__span_begin(MR_SPAN_WORK, "join") : NULL;
    mr_code rc = mr__strategy_submitted(x->s, st);
    mr__span_end(span);
    if (fetch_next && rc == MR_OK)
        count_wait(x, x->tail, began, now);
    x->tail += rc == MR_OK;
    return rc;
}

static size_t most(const mr__run *x)
{
    (void)x;
    return MR__RUN_SLOTS - 1;
}

static bool is_ready(mr__run *x)
{
    /* Workers collect results together, so the order must not depend on timing. */
    return !mr__strategy_world(x->s) &&
           mr__completion_is_done(&x->slots[x->head % MR__RUN_SLOTS].done);
}

/* The first bad label was in step s: undoes it and all later steps. */
static mr_code forget_from(mr__run *x, const mr__step_result *s, mr_status *st)
{
    for (; x->head < x->tail; x->head++)
        MR_TRY(mr__completion_await(&x->slots[x->head % MR__RUN_SLOTS].done, x->results,
                                    x->n_replicas, st));
    return mr__strategy_undo(x->s, s->strategy_step, st);
}

/* sums[0..n) = the sums over all workers; `all` has room for the values of one message. */
static mr_code add_workers(const mr__run *x, double *sums, size_t n, double *all, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(x->s);
    for (size_t from = 0; from < n; from += MR__MAX_VALUES) {
        size_t some = n - from < MR__MAX_VALUES ? n - from : MR__MAX_VALUES;
        MR_TRY(mr__world_exchange(mr__strategy_world(x->s), MR__CHANNEL_RESULTS, sums + from,
                                  (uint32_t)some, all, st));
        for (size_t i = 0; i < some; i++) {
            sums[from + i] = 0;
            for (size_t w = 0; w < workers; w++)
                sums[from + i] += all[w * some + i];
        }
    }
    return MR_OK;
}

/* Adds up losses, penalties and metrics of all replicas, including the other workers. */
static mr_code add_up(mr__run *x, mr__step_result *s, mr_status *st)
{
    size_t first = x->n_outputs + 1, n = first + x->n_totals,
           workers = mr_strategy_num_workers(x->s);
    size_t room = n + (workers > 1 ? workers * MR__MAX_VALUES : 0);
    double *sums = mr_calloc(room, sizeof *sums);
    mr_code rc = MR_OK;
    if (!sums)
        return mr_fail_memory(st, room * sizeof *sums, "the results of a step");
    for (size_t r = 0; r < x->n_replicas; r++)
        for (size_t i = 0; i < n; i++)
            sums[i] += s->replicas[r]->sums[i];
    if (workers > 1)
        rc = add_workers(x, sums, n, sums + n, st);
    /* Each replica holds the same weights: its share of the penalty is a part in n. */
    s->loss = sums[x->n_outputs] / (double)mr_strategy_num_replicas_in_sync(x->s);
    for (size_t k = x->n_outputs; k-- > 0;) {
        s->losses[k] = sums[k] * s->scales[k];
        s->loss += s->losses[k] * x->terms[k].weight;
    }
    for (size_t i = 0, at = first; i < x->opts->n_metrics && rc == MR_OK; i++) {
        mr__metric_show(x->metrics[i], sums + at);
        at += mr__metric_totals(x->metrics[i]);
    }
    mr_free(sums);
    return rc;
}

static mr_code await_results(mr__run *x, mr__step_result *s, mr_status *st)
{
    mr__span *span = mr__span_begin(MR_SPAN_WAIT, "results");
    if (span) {
        span->step = s->step;
        if (mr__completion_is_done(&s->done))
            span->kind = MR_SPAN_WORK;
    }
    mr_code rc = mr__completion_await(&s->done, x->results, x->n_replicas, st);
    mr__span_end(span);
    return rc;
}

static mr_code collect(mr__run *x, const mr__step_result **result, mr_status *st)
{
    mr__step_result *s = &x->slots[x->head % MR__RUN_SLOTS];
    mr_code rc = MR_OK;
    MR_TRY(await_results(x, s, st));
    x->head++;
    *result = s;
    if (x->drops && mr__drop_is_dropped(&x->drop, s->strategy_step)) {
        rc = forget_from(x, s, st);
        return rc == MR_OK ? mr_fail(st, MR_CANCELLED, "the run was cancelled") : rc;
    }
    for (size_t r = 0; r < x->n_replicas && rc == MR_OK; r++)
        rc = mr__fault_status(&s->replicas[r]->fault, st);
    if (rc != MR_OK) {
        mr_code undone = forget_from(x, s, NULL);
        return undone == MR_OK ? rc : undone;
    }
    mr__strategy_settle(x->s, s->strategy_step);
    if (x->records)
        MR_TRY(mr__step_records_trained(x->records, st));
    return x->loss ? add_up(x, s, st) : MR_OK;
}

/* ---- predictions ---- */

/* Index of replica r's predictions of an output in the lists of a step. */
static size_t place(const mr__run *x, size_t r, size_t output)
{
    return r * x->n_outputs + output;
}

static mr_code alloc_rows(const mr__step_result *s, size_t output, size_t rows, mr_array *out,
                          mr_status *st)
{
    mr_array like = s->shapes[output];
    like.shape[0] = (int64_t)rows;
    return mr_tensor_alloc(out, MR_FLOAT32, like.rank, like.shape, st);
}

/* Copies the predictions of this process's replicas, concatenated. */
static void copy_own(const mr__run *x, const mr__step_result *s, size_t output, char *to)
{
    for (size_t r = 0; r < x->n_replicas; r++) {
        size_t bytes = mr_array_row_bytes(&s->shapes[place(x, r, output)]);
        if (bytes > 0)
            memcpy(to, s->predictions[place(x, r, output)], bytes);
        to += bytes;
    }
}

/* from: the predictions of all replicas, worker by worker; to: by their numbers in the global batch
 * (first). */
static void copy_in_order(const int64_t *rows, const int64_t *first, size_t n, size_t row_bytes,
                          const char *from, char *to)
{
    for (size_t i = 0; i < n; i++) {
        size_t bytes = (size_t)rows[i] * row_bytes;
        if (bytes > 0)
            memcpy(to + (size_t)first[i] * row_bytes, from, bytes);
        from += bytes;
    }
}

/* of_all: a number of each replica in sync; rows: two of each. */
static mr_code exchange(const mr__run *x, const mr__step_result *s, size_t output, double *of_all,
                        int64_t *rows, size_t *sizes, mr_array *out, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(x->s), n = x->n_replicas, total = 0, before = 0;
    double own[MR_MAX_REPLICAS];
    for (size_t r = 0; r < n; r++)
        own[r] = (double)s->shapes[place(x, r, output)].shape[0];
    MR_TRY(mr__world_exchange(mr__strategy_world(x->s), MR__CHANNEL_RESULTS, own, (uint32_t)n,
                              of_all, st));
    for (size_t i = 0; i < workers * n; i++)
        rows[i] = (int64_t)of_all[i];
    mr_array one = s->shapes[output];
    one.shape[0] = 1;
    size_t row_bytes = mr_array_row_bytes(&one);
    for (size_t w = 0; w < workers; w++) {
        size_t of_worker = 0;
        for (size_t r = 0; r < n; r++)
            of_worker += (size_t)rows[w * n + r];
        sizes[w] = of_worker * row_bytes;
        before += w < mr_strategy_worker(x->s) ? sizes[w] : 0;
        total += of_worker;
    }
    char *all = mr_malloc(total * row_bytes + 1);
    if (!all)
        return mr_fail_memory(st, total * row_bytes, "predictions of all workers");
    copy_own(x, s, output, all + before);
    mr_code rc = mr__ring_all_gather(mr__strategy_ring(x->s), all, sizes, st);
    if (rc == MR_OK)
        rc = alloc_rows(s, output, total, out, st);
    if (rc == MR_OK) {
        int64_t *first = rows + workers * n;
        mr_dist_dataset_number_rows(x->feed.dd, rows, first);
        copy_in_order(rows, first, workers * n, row_bytes, all, out->data);
    }
    mr_free(all);
    return rc;
}

mr_code mr__run_predictions(const mr__run *x, const mr__step_result *s, size_t output,
                            mr_array *out, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(x->s);
    if (workers == 1) {
        MR_TRY(alloc_rows(s, output, (size_t)s->rows, out, st));
        copy_own(x, s, output, out->data);
        return MR_OK;
    }
    double *of_all = mr_calloc(workers * x->n_replicas, sizeof *of_all);
    int64_t *rows = mr_calloc(workers * x->n_replicas, 2 * sizeof *rows);
    size_t *sizes = mr_calloc(workers, sizeof *sizes);
    mr_code rc = of_all && rows && sizes
                     ? exchange(x, s, output, of_all, rows, sizes, out, st)
                     : mr_fail_memory(st, workers * sizeof *sizes, "predictions");
    mr_free(of_all);
    mr_free(rows);
    mr_free(sizes);
    return rc;
}

/* ---- the stepper ---- */

static const mr__stepper own_replicas = {
    .close = drain, .most = most, .submit = submit, .is_ready = is_ready, .collect = collect};

mr_code mr__run_submit(mr__run *x, int64_t step, int64_t epoch, bool fetch_next, mr_status *st)
{
    MR_TRY(mr__run_build(x, st));
    return x->stepper->submit(x, step, epoch, fetch_next, st);
}

size_t mr__run_under_way(const mr__run *x)
{
    return x->tail - x->head;
}

size_t mr__run_most(const mr__run *x)
{
    return x->stepper->most(x);
}

size_t mr__run_rows(const mr__run *x)
{
    return x->stepper->reads_apart ? 0 : mr__staging_rows(x->feed.ring, x->slot);
}

mr_code mr__run_settle(mr__run *x, mr_status *st)
{
    return x->stepper->settle ? x->stepper->settle(x, st) : MR_OK;
}

bool mr__run_is_ready(mr__run *x)
{
    return x->head < x->tail && x->stepper->is_ready(x);
}

mr_code mr__run_collect(mr__run *x, const mr__step_result **result, mr_status *st)
{
    return x->stepper->collect(x, result, st);
}
