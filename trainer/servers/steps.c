/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/servers/steps.h"
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/system/name_scope.h"
#include "trainer/device/random_bits.h"
#include "trainer/files/json_file.h"
#include "trainer/model/model_impl.h"
#include "trainer/objectives/metric_impl.h"

/* Time limit for finding the parameter servers. The coordinator has found them, and retries. */
enum { FIND_SECONDS = 10 };

static const mr_component *const none[] = {NULL};
/* Named steps of this process; the library defines none. */
static mr__registry worker_steps = {"step", none, .lock = PTHREAD_MUTEX_INITIALIZER};

mr_code mr_worker_step_register(const mr_worker_step_desc *d, mr_status *st)
{
    bool complete = d && d->run && !d->is.params;
    return mr__registry_add(&worker_steps, (const mr_component *)d, complete, st);
}

static void drop(mr__steps *x)
{
    if (x->is_running)
        mr__run_close(&x->run);
    mr__hosted_streams_close(&x->streams);
    if (x->has_servers)
        mr__server_connections_close(&x->servers, false);
    mr_model_free(x->m);
    mr_loss_free(x->loss);
    mr_optimizer_free(x->o);
    mr_dataset_unref(x->ds);
    mr_free(x->metrics);
    mr__layout_reset(&x->layout);
    mr_free(x->values);
    mr_free(x->packed);
    mr_free(x->expected);
    mr__wanted_reset(&x->wanted);
    json_decref(x->setup);
    *x = (mr__steps){.s = x->s, .cancel = x->cancel, .token = x->token};
}

void mr__steps_close(mr__steps *x)
{
    drop(x);
    mr_strategy_free(x->s);
    x->s = NULL;
}

/* ---- SETUP ---- */

static mr_code find_servers(mr__steps *x, const mr__call *call, mr_status *st)
{
    json_t *list;
    MR_TRY(mr__call_list(call, "servers", &list, st));
    size_t n = json_array_size(list);
    x->servers = (mr__server_connections){
        .cancel = x->cancel, .role = MR__WIRE__ROLE__TRAINER, .token = x->token, .job = call->job};
    x->has_servers = true;
    MR_TRY(mr__server_connections_open(&x->servers, n, st));
    for (size_t i = 0; i < n; i++) {
        const char *address = json_string_value(json_array_get(list, i));
        MR_TRY(mr__server_connection_name(&x->servers.v[i], "parameter server", i,
                                          address ? address : "", st));
    }
    return mr__server_connections_gather(&x->servers, 0, n, false, FIND_SECONDS, st);
}

static mr_code parse_parts(mr__steps *x, const mr__call *call, mr_status *st)
{
    const char *data, *model, *loss, *optimizer;
    MR_TRY(mr__call_text(call, "data", &data, st));
    MR_TRY(mr__call_text(call, "model", &model, st));
    MR_TRY(mr__call_text(call, "loss", &loss, st));
    MR_TRY(mr__call_text(call, "optimizer", &optimizer, st));
    MR_TRY(mr_dataset_from_text(data, strlen(data), NULL, &x->ds, st));
    MR_TRY(mr_model_parse(&x->m, model, st));
    MR_TRY(mr_loss_parse(&x->loss, loss, st));
    return mr_optimizer_parse(&x->o, optimizer, st);
}

/* Builds the same model for the same examples. */
static mr_code build(mr__steps *x, const mr__call *call, mr_status *st)
{
    int64_t shape[MR_MAX_RANK], seed;
    int rank;
    MR_TRY(mr__call_lengths(json_object_get(call->text, "shape"), &rank, shape, st));
    MR_TRY(mr__call_integer(call, "seed", &seed, st));
    const mr_model_opts opts = {.seed = (uint64_t)seed,
                                .mixed_precision =
                                    json_is_true(json_object_get(call->text, "mixed_precision"))};
    return mr_model_build(x->m, x->s, rank, shape, &opts, st);
}

static mr_code lay_out(mr__steps *x, const mr__call *call, mr_status *st)
{
    const char *partitioner = json_string_value(json_object_get(call->text, "partitioner"));
    MR_TRY(mr__layout_make(&x->layout, x->m, partitioner, x->servers.n, st));
    size_t n = x->layout.n_values;
    x->values = mr_calloc(n + 1, sizeof *x->values);
    x->packed = mr_calloc(n + 1, sizeof *x->packed);
    x->expected = mr_calloc(x->servers.n, sizeof *x->expected);
    return x->values && x->packed && x->expected
               ? MR_OK
               : mr_fail_memory(st, n * sizeof(float), "variables");
}

/* Offset of variable i in values. */
static size_t place_of(const mr__steps *x, size_t i)
{
    size_t at = 0;
    for (size_t k = 0; k < i; k++)
        at += mr_variable_size(mr_model_variable(x->m, k));
    return at;
}

/* The last part of a training pass of x->run: copies the values to push to `values`. */
static mr_code give(void *ctx, mr_replica *r, mr_status *st)
{
    mr__steps *x = ctx;
    size_t id = mr_replica_id(r);
    const mr__model_replica *p = &x->m->replicas[id];
    x->has_given = true;
    MR_TRY(mr__model_finish_sums(x->m, r, st));
    for (size_t i = 0; i < x->m->n_variables; i++) {
        mr_variable *v = x->m->variables[i];
        const float *from = p->grads[i];
        if (mr_variable_role_of(v) == MR_FIXED)
            continue;
        if (mr_variable_role_of(v) == MR_AVERAGE) {
            const mr_math_average mean = {mr_variable_size(v),
                                          x->m->momenta[i],
                                          p->grads[i],
                                          p->gradients + MR__WORD_HAS_ROWS,
                                          mr_variable_copy(v, id),
                                          p->gradients + MR__WORD_FAULT};
            MR_TRY(mr_replica_math(r)->average(mr_replica_stream(r), &mean, st));
            continue; /* read after the step has ended */
        }
        MR_TRY(mr_stream_copy(mr_replica_stream(r), x->values + place_of(x, i), from,
                              mr_variable_size(v) * sizeof *from, st));
    }
    return MR_OK;
}

/* Runs a named step, instead of a pass of x->run. */
static mr_code run_named(void *ctx, mr_replica *r, mr_status *st)
{
    mr__steps *x = ctx;
    mr_array columns[MR_MAX_INPUTS + 2 * MR_MAX_OUTPUTS];
    size_t id = mr_replica_id(r), n = mr__staging_n_columns(x->run.feed.ring);
    for (size_t i = 0; i < n; i++)
        mr__staging_tensor(x->run.feed.ring, x->run.slot, id, i, &columns[i]);
    const mr_worker_step w = {.model = x->m,
                              .loss = x->loss,
                              .columns = columns,
                              .n_columns = n,
                              .rows = (int64_t)mr__staging_rows(x->run.feed.ring, x->run.slot),
                              .step = x->number,
                              .ctx = x->ctx,
                              .value = x->run.sums[id]};
    MR_TRY(x->named->run(r, &w, st));
    return x->m->replicas[id].summing ? give(ctx, r, st) : MR_OK;
}

static mr_code open_run(mr__steps *x, const mr__call *call, mr_status *st)
{
    json_t *metrics;
    int64_t worker;
    const json_t *seed = json_object_get(call->text, "data_seed");
    MR_TRY(mr__call_list(call, "metrics", &metrics, st));
    MR_TRY(mr__call_integer(call, "worker", &worker, st));
    size_t n = json_array_size(metrics);
    x->metrics = mr_calloc(n + 1, sizeof *x->metrics);
    if (!x->metrics)
        return mr_fail_memory(st, n, "metrics");
    for (size_t i = 0; i < n; i++) {
        x->metrics[i] = json_string_value(json_array_get(metrics, i));
        if (!x->metrics[i])
            return mr_fail(st, MR_DATA_LOSS, "metric %zu has no name", i);
    }
    /* Each worker shuffles in a different order. */
    x->iterator = (mr_iterator_opts){.cancel = x->cancel, .has_seed = json_is_integer(seed)};
    if (x->iterator.has_seed)
        x->iterator.seed = mr__mix_in((uint64_t)json_integer_value(seed), (uint64_t)worker);
    x->opts = (mr_fit_opts){.metrics = x->metrics, .n_metrics = n, .iterator = &x->iterator};
    x->run = (mr__run){.s = x->s,
                       .m = x->m,
                       .loss = x->loss,
                       .o = x->o,
                       .opts = &x->opts,
                       .give = give,
                       .give_ctx = x};
    x->is_running = true; /* to be closed even after a failure */
    return mr__run_open(&x->run, x->ds, st);
}

/* The batches come from the streams that the coordinator assigns. */
static mr_code open_streams(mr__steps *x, const mr__call *call, mr_status *st)
{
    mr_dataset *prepared;
    if (!json_object_get(call->text, "streams"))
        return MR_OK;
    MR_TRY(mr_model_prepare(x->m, x->ds, &prepared, st));
    mr_code rc = mr__hosted_streams_open(&x->streams, prepared, call, x->cancel, x->s, st);
    mr_dataset_unref(prepared);
    x->run.feed.next = mr__hosted_streams_next;
    x->run.feed.next_ctx = &x->streams;
    return rc;
}

static mr_code set_up(mr__steps *x, const mr__call *call, mr_status *st)
{
    drop(x);
    if (!x->s)
        MR_TRY(mr_strategy_one_device(&x->s, NULL, st));
    x->setup = json_incref(call->text);
    MR_TRY(parse_parts(x, call, st));
    MR_TRY(build(x, call, st));
    MR_TRY(find_servers(x, call, st));
    MR_TRY(lay_out(x, call, st));
    MR_TRY(open_run(x, call, st));
    MR_TRY(open_streams(x, call, st));
    x->job = call->job;
    return MR_OK;
}

/* ---- STEP ---- */

/* Requests the values of a server; *n: number of values in the answer. */
static mr_code pull_from(mr__steps *x, size_t server, size_t *n, mr_status *st)
{
    size_t n_rows;
    json_t *counts = json_array();
    json_t *text = json_pack("{s:o}", "rows", counts);
    if (!text)
        return mr_fail_memory(st, 0, "a call");
    mr_code rc = mr__wanted_ask(&x->wanted, &x->layout, server, counts, x->packed, &n_rows, n, st);
    if (rc == MR_OK)
        rc = mr__server_connection_call(&x->servers, &x->servers.v[server], MR__CALL_PULL, text,
                                        x->packed, n_rows, st);
    json_decref(text);
    return rc;
}

/* Asks every server once. Rows that the step does not read keep their values. */
static mr_code pull(mr__steps *x, mr_status *st)
{
    mr__server_connections *all = &x->servers;
    MR_TRY(mr__wanted_find(&x->wanted, &x->run, st));
    MR_TRY(mr__server_connections_check(all, all->n, st));
    for (size_t k = 0; k < all->n; k++)
        MR_TRY(pull_from(x, k, &x->expected[k], st));
    MR_TRY(mr__server_connections_await(all, all->n, st));
    for (size_t k = 0; k < all->n; k++) {
        const mr__call *a = &all->v[k].answer;
        if (a->n != x->expected[k])
            return mr_fail(st, MR_DATA_LOSS, "%s %zu sent %zu values of %zu", all->v[k].what, k,
                           a->n, x->expected[k]);
        mr__wanted_place(&x->wanted, &x->layout, k, x->values, a->values);
    }
    for (size_t i = 0; i < mr_model_n_variables(x->m); i++)
        MR_TRY(mr_variable_assign(mr_model_variable(x->m, i), x->values + place_of(x, i), st));
    return MR_OK;
}

/* Computes the changes of the running means. */
static mr_code find_changes(mr__steps *x, mr_status *st)
{
    for (size_t i = 0; i < mr_model_n_variables(x->m); i++) {
        const mr_variable *v = mr_model_variable(x->m, i);
        if (mr_variable_role_of(v) != MR_AVERAGE)
            continue;
        float *to = x->values + place_of(x, i);
        MR_TRY(mr_variable_read(v, x->packed, st));
        for (size_t k = 0; k < mr_variable_size(v); k++)
            to[k] = x->packed[k] - to[k];
    }
    return MR_OK;
}

static bool is_zero(const float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (v[i] != 0) /* true for NaN too */
            return false;
    return true;
}

/* Writes a piece of the pushed values to `to`: if that is smaller, the numbers of the rows that are
 * not 0 (a batch's gradient of an embedding has few), then these rows. *rows: their number; -1: the
 * whole piece. */
static size_t fold(const mr__piece *p, const float *from, float *to, int64_t *rows)
{
    size_t width = p->rows ? p->n / p->rows : 0, some = 0, k = 0;
    for (size_t i = 0; i < p->rows; i++)
        some += !is_zero(from + i * width, width);
    if (some * (width + 1) >= p->n || p->rows > UINT32_MAX) {
        *rows = -1;
        memcpy(to, from, p->n * sizeof *to);
        return p->n;
    }
    for (size_t i = 0; i < p->rows; i++) {
        uint32_t row = (uint32_t)i;
        if (is_zero(from + i * width, width))
            continue;
        memcpy(to + k, &row, sizeof row);
        memcpy(to + some + k++ * width, from + i * width, width * sizeof *to);
    }
    *rows = (int64_t)some;
    return some * (width + 1);
}

static mr_code push_to(mr__steps *x, size_t server, mr_status *st)
{
    size_t at = 0;
    json_t *list = json_array();
    json_t *text = json_pack("{s:o, s:I}", "rows", list, "step", (json_int_t)x->number);
    if (!text)
        return mr_fail_memory(st, 0, "a call");
    mr_code rc = MR_OK;
    for (size_t i = 0; i < x->layout.n && rc == MR_OK; i++) {
        const mr__piece *p = &x->layout.v[i];
        int64_t rows;
        if (p->server != server ||
            !mr__is_meant(mr_model_variable(x->m, p->variable), MR__PUSHED_VALUES))
            continue;
        at += fold(p, x->values + p->at, x->packed + at, &rows);
        if (json_array_append_new(list, json_integer(rows)) != 0)
            rc = mr_fail_memory(st, 0, "a call");
    }
    if (rc == MR_OK)
        rc = mr__server_connection_call(&x->servers, &x->servers.v[server], MR__CALL_PUSH, text,
                                        x->packed, at, st);
    json_decref(text);
    return rc;
}

static mr_code push(mr__steps *x, mr_status *st)
{
    mr__server_connections *all = &x->servers;
    MR_TRY(find_changes(x, st));
    MR_TRY(mr__server_connections_check(all, all->n, st));
    for (size_t k = 0; k < all->n; k++)
        MR_TRY(push_to(x, k, st));
    return mr__server_connections_await(all, all->n, st);
}

static mr_code take_of_stream(mr__steps *x, const mr__call *call, mr_status *st)
{
    MR_TRY(mr__hosted_streams_enter(&x->streams, call, st));
    mr_code rc = mr__run_take(&x->run, st);
    return rc == MR_END ? mr_fail(st, MR_FAILED_PRECONDITION,
                                  "the stream of a step has fewer batches than when it was read "
                                  "before; the data must be deterministic")
                        : rc;
}

/* Starts the next pass over the data when one ends. */
static mr_code take_batch(mr__steps *x, const mr__call *call, mr_status *st)
{
    if (x->streams.graphs)
        return take_of_stream(x, call, st);
    mr_code rc = mr__run_take(&x->run, st);
    if (rc != MR_END)
        return rc;
    MR_TRY(mr__feed_rewind(&x->run.feed, st));
    rc = mr__run_take(&x->run, st);
    return rc == MR_END ? mr_fail(st, MR_FAILED_PRECONDITION,
                                  "the data of this worker have no batch; nothing to train on")
                        : rc;
}

/* NULL: out of memory. */
static json_t *numbers(const double *v, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, mr__json_number(v[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

static mr_code answer(mr__steps *x, const mr__step_result *s, mr__connection *c,
                      const mr__call *call, mr_status *st)
{
    const double *sums = s->replicas[0]->sums, *after_losses = sums + x->run.n_outputs + 1;
    double loss = x->named ? sums[0] : s->loss;
    json_t *text = json_pack("{s:o, s:I, s:o, s:o}", "loss", mr__json_number(loss), "rows",
                             (json_int_t)s->rows, "totals", numbers(after_losses, x->run.n_totals),
                             "losses", numbers(s->losses, x->run.n_outputs));
    if (!text)
        return mr_fail_memory(st, 0, "an answer");
    mr_code rc = x->streams.graphs ? mr__hosted_streams_report(&x->streams, text, st) : MR_OK;
    if (rc == MR_OK)
        rc = mr__call_send(c, MR__CALL_ANSWER, call->job, call->number, text, NULL, 0, st);
    json_decref(text);
    return rc;
}

/* Looks up the step that the call names. */
static mr_code find_step(mr__steps *x, const mr__call *call, mr_status *st)
{
    const mr_component *k;
    const char *name = json_string_value(json_object_get(call->text, "name"));
    x->named = NULL;
    x->run.instead = NULL;
    if (!name)
        return MR_OK;
    MR_TRY(mr__call_text(call, "ctx", &x->ctx, st));
    for (size_t i = 0; (k = mr__registry_at(&worker_steps, i)); i++)
        if (strcmp(k->name, name) == 0)
            x->named = (const mr_worker_step_desc *)k;
    if (!x->named)
        return mr_fail(st, MR_NOT_FOUND,
                       "no step is registered as '%.100s' in the worker's process: load what "
                       "registers it (--load, mr_worker_step_register)",
                       name);
    x->run.instead = run_named;
    return MR_OK;
}

static mr_code check_job(const mr__steps *x, const mr__call *call, mr_status *st)
{
    return x->job == 0 || x->job != call->job
               ? mr_fail(st, MR_FAILED_PRECONDITION, "this worker was not set up for the job")
               : MR_OK;
}

/* Whether a stream has a batch. */
static mr_code look(mr__steps *x, mr__connection *c, const mr__call *call, mr_status *st)
{
    MR_TRY(check_job(x, call, st));
    if (!x->streams.graphs)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the job of this worker has no streams");
    MR_TRY(mr__hosted_streams_enter(&x->streams, call, st));
    json_t *text = json_object();
    if (!text)
        return mr_fail_memory(st, 0, "an answer");
    mr_code rc = mr__hosted_streams_report(&x->streams, text, st);
    if (rc == MR_OK)
        rc = mr__call_send(c, MR__CALL_ANSWER, call->job, call->number, text, NULL, 0, st);
    json_decref(text);
    return rc;
}

static mr_code step(mr__steps *x, mr__connection *c, const mr__call *call, mr_status *st)
{
    const mr__step_result *s;
    int64_t epoch;
    MR_TRY(check_job(x, call, st));
    MR_TRY(mr__call_integer(call, "step", &x->number, st));
    MR_TRY(mr__call_integer(call, "epoch", &epoch, st));
    MR_TRY(find_step(x, call, st));
    MR_TRY(take_batch(x, call, st));
    MR_TRY(pull(x, st));
    /* Dropout depends on the number of the step, not on the worker that runs it. */
    mr__model_set_steps(x->m, (uint64_t)x->number - 1);
    for (size_t i = 0; i < x->opts.n_metrics; i++)
        MR_TRY(mr_metric_reset(x->run.metrics[i], st));
    x->has_given = false;
    MR_TRY(mr__run_submit(&x->run, x->number, epoch, !x->streams.graphs, st));
    MR_TRY(mr__run_collect(&x->run, &s, st));
    if (x->has_given)
        MR_TRY(push(x, st));
    return answer(x, s, c, call, st);
}

static mr_code take(mr__steps *x, mr__connection *c, const mr__call *call, mr_status *st)
{
    if (call->kind == MR__CALL_STEP)
        return step(x, c, call, st);
    if (call->kind == MR__CALL_LOOK)
        return look(x, c, call, st);
    if (call->kind != MR__CALL_SETUP)
        return mr_fail(st, MR_INVALID_ARGUMENT, "a worker does not accept call %d",
                       (int)call->kind);
    mr_code rc = set_up(x, call, st);
    if (rc != MR_OK)
        return rc;
    return mr__call_send(c, MR__CALL_ANSWER, call->job, call->number, NULL, NULL, 0, st);
}

mr_code mr__steps_take(mr__steps *x, mr__connection *c, const mr__call *call, mr_status *st)
{
    /* The texts of the last set-up outlive the iterators that borrow this one. */
    const json_t *setup = call->kind == MR__CALL_SETUP ? call->text : x->setup;
    mr__name_scope names = {.directory = json_string_value(json_object_get(setup, "directory")),
                            .of_service = true,
                            .may_write = true};
    if (names.directory && mr__name_scope_is_here(names.directory))
        names.directory = NULL;
    mr__name_scope outer = mr__name_scope_set(names);
    mr_code rc = take(x, c, call, st);
    mr__name_scope_set(outer);
    return rc;
}

bool mr__steps_is_cut_off(mr__steps *x, mr_code rc)
{
    return (rc == MR_UNAVAILABLE || rc == MR_DEADLINE_EXCEEDED) && x->has_servers &&
           mr__server_connections_check(&x->servers, x->servers.n, NULL) != MR_OK;
}
