/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and restores the state of training. */
#include "trainer/loop/checkpoint.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/version.h"
#include "trainer/device/timeline_impl.h"
#include "trainer/exchange/checkpoint_state.h"
#include "trainer/exchange/saved_model_impl.h"
#include "trainer/files/json_file.h"
#include "trainer/loop/fit_loop.h"
#include "trainer/loop/resume_data.h"
#include "trainer/loop/run_settings.h"
#include "trainer/loop/worker_bytes.h"
#include "trainer/model/model_impl.h"
#include "trainer/objectives/metric_impl.h"
#include "trainer/objectives/optimizer_impl.h"
#include "trainer/strategy/strategy_impl.h"

static const char slots_name[] = "optimizer.safetensors", state_name[] = "state.json",
                  latest_name[] = "checkpoint";

enum { SLOT_NAME = 128 };

/* A worker's state other than the weights: [local replicas][metrics][totals] doubles, then the
 * position. */
typedef mr__worker_bytes part;

/* ---- collecting ---- */

/* Of one replica: number of totals of all metrics. */
static size_t count_totals(const mr_train_event *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->n_metrics; i++)
        n += mr__metric_totals(e->metrics[i]);
    return n;
}

static size_t totals_bytes(const mr_train_event *e)
{
    return mr_strategy_num_local_replicas(e->strategy) * count_totals(e) * sizeof(double);
}

static mr_code read_totals(const mr_train_event *e, double *out, mr_status *st)
{
    for (size_t r = 0; r < mr_strategy_num_local_replicas(e->strategy); r++)
        for (size_t i = 0; i < e->n_metrics; out += mr__metric_totals(e->metrics[i++]))
            MR_TRY(mr__metric_read(e->metrics[i], mr_strategy_replica(e->strategy, r), out, st));
    return MR_OK;
}

static mr_code collect_own(const mr_train_event *e, part *own, mr_status *st)
{
    mr__feed *feed = &e->loop->run.feed;
    void *position = NULL;
    size_t n = 0, first = totals_bytes(e);
    /* A callback that ended the epoch did so after the next batch had been fetched: then the end of
     * training has no position. */
    if (!(feed->ahead && e->loop->between))
        MR_TRY(mr__run_save(&e->loop->run, &position, &n, st));
    own->bytes = mr_malloc(first + n);
    own->size = first + n;
    mr_code rc = own->bytes ? MR_OK : mr_fail_memory(st, first + n, "a position");
    double *totals = mr_malloc(first);
    if (!totals)
        rc = mr_fail_memory(st, first, "metrics");
    if (rc == MR_OK)
        rc = read_totals(e, totals, st);
    if (rc == MR_OK && first)
        memcpy(own->bytes, totals, first);
    if (rc == MR_OK && n)
        memcpy(own->bytes + first, position, n);
    mr_free(totals);
    mr_free(position);
    return rc;
}

/* ---- writing ---- */

static void slot_name(char name[SLOT_NAME], const mr_variable *v, size_t k)
{
    snprintf(name, SLOT_NAME, "%.100s/slot_%zu", mr_variable_name(v), k);
}

static mr_code read_slots(const mr_train_event *e, mr_named_tensor *t, char (*names)[SLOT_NAME],
                          mr_status *st)
{
    size_t at = 0;
    for (size_t i = 0; i < mr_model_n_variables(e->model); i++) {
        mr_variable *v = mr_model_variable(e->model, i);
        size_t bytes = mr_variable_size(v) * sizeof(float);
        if (mr_variable_role_of(v) != MR_LEARNED)
            continue;
        for (size_t k = 0; k < mr__optimizer_n_slots(e->optimizer); k++, at++) {
            float *values = mr_malloc(bytes);
            if (!values)
                return mr_fail_memory(st, bytes, "the state of the optimizer");
            slot_name(names[at], v, k);
            t[at] = (mr_named_tensor){.name = names[at],
                                      .dtype = MR_FLOAT32,
                                      .rank = mr_variable_rank(v),
                                      .data = values};
            memcpy(t[at].shape, mr_variable_shape(v), (size_t)t[at].rank * sizeof *t[at].shape);
            MR_TRY(mr__optimizer_read_slot(e->optimizer, v, e->strategy, k, values, st));
        }
    }
    return MR_OK;
}

static size_t count_slots(const mr_train_event *e)
{
    size_t n = 0;
    for (size_t i = 0; i < mr_model_n_variables(e->model); i++)
        n += mr_variable_role_of(mr_model_variable(e->model, i)) == MR_LEARNED;
    return n * mr__optimizer_n_slots(e->optimizer);
}

static mr_code save_slots(const mr_train_event *e, const char *directory, mr_status *st)
{
    size_t n = count_slots(e);
    mr_named_tensor *t = mr_calloc(n, sizeof *t);
    char(*names)[SLOT_NAME] = mr_calloc(n, sizeof *names);
    mr_code rc = t && names ? read_slots(e, t, names, st)
                            : mr_fail_memory(st, n * sizeof *t, "the state of the optimizer");
    if (rc == MR_OK)
        rc = mr__save_tensors(directory, slots_name, t, n, st);
    for (size_t i = 0; t && i < n; i++)
        mr_free((void *)(uintptr_t)t[i].data);
    mr_free(names);
    mr_free(t);
    return rc;
}

/* [replica][metric][totals] */
static json_t *totals_json(const mr_train_event *e, const part *all, size_t workers)
{
    json_t *root = json_array();
    size_t n = mr_strategy_num_local_replicas(e->strategy);
    for (size_t w = 0; w < workers; w++) {
        const unsigned char *from = all[w].bytes;
        for (size_t r = 0; r < n; r++) {
            json_t *of = json_array();
            for (size_t i = 0; i < e->n_metrics; i++) {
                json_t *totals = json_array();
                for (size_t k = 0; k < mr__metric_totals(e->metrics[i]);
                     k++, from += sizeof(double)) {
                    double v;
                    memcpy(&v, from, sizeof v);
                    json_array_append_new(totals, mr__json_number(v));
                }
                json_array_append_new(of, totals);
            }
            json_array_append_new(root, of);
        }
    }
    return root;
}

/* Every value of the event, for readers of the file. */
static json_t *values_json(const mr_train_event *e)
{
    json_t *root = json_object();
    char name[128];
    double v;
    for (size_t i = 0; mr_train_value_name(e, i, name, sizeof name); i++)
        if (mr_train_value(e, name, &v))
            json_object_set_new(root, name, mr__json_number(v));
    return root;
}

/* For several outputs; false: out of memory. */
static bool add_output_sums(const mr__fit_loop *x, json_t *root)
{
    json_t *sums = json_array();
    bool well = sums != NULL;
    for (size_t k = 0; k < x->run.n_outputs && well; k++)
        well = json_array_append_new(sums, mr__json_number(x->output_sums[k])) == 0;
    if (x->run.n_outputs < 2) {
        json_decref(sums);
        return true;
    }
    return json_object_set_new(root, "output_loss_sums", sums) == 0 && well;
}

/* If the optimizer served another model before; false: out of memory. */
static bool add_slots_from(const mr_train_event *e, json_t *root)
{
    int64_t from = 0;
    for (size_t i = 0; i < mr_model_n_variables(e->model) && from == 0; i++)
        from = mr__optimizer_slots_from(e->optimizer, mr_model_variable(e->model, i));
    return from == 0 || json_object_set_new(root, "slots_from", json_integer(from)) == 0;
}

/* The name of the job whose ledger has the steps; false: out of memory. */
static bool add_ledger(const mr__fit_loop *x, json_t *root)
{
    return !x->job[0] || json_object_set_new(root, "ledger", json_string(x->job)) == 0;
}

/* sums: checksums of the positions. */
static mr_code save_state(const mr_train_event *e, const char *directory, const part *all,
                          size_t workers, json_t *sums, mr_status *st)
{
    const mr__fit_loop *x = e->loop;
    json_t *callbacks = NULL, *settings, *data = NULL;
    MR_TRY(mr__run_settings_json(e->opts, &settings, st));
    mr_code rc = mr__data_json(e, &data, st);
    if (rc == MR_OK)
        rc = mr__remember(e->opts, e->model, directory, &callbacks, st);
    if (rc != MR_OK) {
        json_decref(settings);
        json_decref(data);
        return rc;
    }
    double loss = x->rows > 0 ? x->loss_sum / (double)x->rows : 0;
    json_t *root = json_pack(
        "{s:i, s:s, s:I, s:I, s:I, s:b, s:b, s:b, s:o, s:I, s:I, s:I, s:s, s:I, s:o, s:o, s:I, "
        "s:I, s:I, s:o, s:o, s:o, s:o, s:o}",
        "format", (int)MR__SAVED_FORMAT, "millrace", MR_VERSION, "epoch", (json_int_t)e->epoch,
        "epoch_step", (json_int_t)e->epoch_step, "step", (json_int_t)e->step, "epoch_over",
        (int)x->between, "pass_over", (int)x->pass_over, "scheduled",
        (int)mr__optimizer_is_scheduled(e->optimizer), "learning_rate",
        mr__json_number(mr_optimizer_learning_rate(e->optimizer)), "seed",
        (json_int_t)mr__model_seed(e->model), "model_steps", (json_int_t)mr__model_steps(e->model),
        "iterations", (json_int_t)mr_optimizer_iterations(e->optimizer), "optimizer",
        mr_optimizer_name(e->optimizer), "slots", (json_int_t)mr__optimizer_n_slots(e->optimizer),
        "loss_sum", mr__json_number(x->loss_sum), "loss", mr__json_number(loss), "rows",
        (json_int_t)x->rows, "workers", (json_int_t)workers, "replicas",
        (json_int_t)mr_strategy_num_replicas_in_sync(e->strategy), "metrics", values_json(e),
        "metric_totals", totals_json(e, all, workers), "callbacks", callbacks, "settings", settings,
        "data", data);
    rc = add_output_sums(x, root) && add_slots_from(e, root) && add_ledger(x, root) &&
                 mr__add_checksums(root, sums)
             ? mr__save_json(directory, state_name, root, st)
             : mr_fail_memory(st, 0, state_name);
    json_decref(root);
    return rc;
}

static mr_code save_position(const char *directory, size_t worker, const void *bytes, size_t size,
                             json_t *sums, mr_status *st)
{
    char name[MR__POSITION_NAME];
    mr__position_name(name, worker);
    char *path = mr__path_in(directory, name);
    if (!path)
        return mr_fail_memory(st, strlen(directory), "a file name");
    mr_code rc = mr__write_in_place(path, bytes, size, st);
    if (rc == MR_OK && !mr__add_checksum(sums, name, bytes, size))
        rc = mr_fail_memory(st, sizeof name, "a checksum");
    mr_free(path);
    return rc;
}

/* An elastic job has one position, which any number of workers continue from. */
static mr_code save_whole_position(const char *directory, const part *all, size_t workers,
                                   size_t first, json_t *sums, mr_status *st)
{
    void *whole = NULL;
    size_t size = 0;
    mr_position_part *parts = mr_calloc(workers, sizeof *parts);
    if (!parts)
        return mr_fail_memory(st, workers * sizeof *parts, "a position");
    for (size_t w = 0; w < workers; w++)
        parts[w] = (mr_position_part){all[w].bytes + first, all[w].size - first};
    mr_code rc = mr_dist_position_join(parts, workers, &whole, &size, st);
    if (rc == MR_OK)
        rc = save_position(directory, 0, whole, size, sums, st);
    mr_free(whole);
    mr_free(parts);
    return rc;
}

static mr_code save_positions(const mr_train_event *e, const char *directory, const part *all,
                              size_t workers, json_t *sums, mr_status *st)
{
    size_t first = totals_bytes(e);
    if (all[0].size > first && mr_is_job_position(all[0].bytes + first, all[0].size - first))
        return save_whole_position(directory, all, workers, first, sums, st);
    for (size_t w = 0; w < workers; w++)
        if (all[w].size > first)
            MR_TRY(
                save_position(directory, w, all[w].bytes + first, all[w].size - first, sums, st));
    return MR_OK;
}

static mr_code save_files(const mr_train_event *e, const char *directory, const part *all,
                          size_t workers, mr_status *st)
{
    const mr_save_opts how = {.loss = e->loss_function,
                              .optimizer = e->optimizer,
                              .metrics = e->opts->metrics,
                              .n_metrics = e->opts->n_metrics};
    MR_TRY(mr__save_into(e->model, directory, &how, st));
    MR_TRY(save_slots(e, directory, st));
    json_t *sums = json_object();
    mr_code rc = sums ? save_positions(e, directory, all, workers, sums, st)
                      : mr_fail_memory(st, 0, "checksums of positions");
    if (rc == MR_OK)
        rc = save_state(e, directory, all, workers, sums, st);
    json_decref(sums);
    return rc;
}

/* The file in the same directory that names the latest. */
static mr_code name_latest(const char *path, mr_status *st)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t at = n;
    while (at > 0 && path[at - 1] != '/')
        at--;
    char *file = mr_strf("%.*s%s", (int)at, path, latest_name);
    char *line = mr_strf("%.*s\n", (int)(n - at), path + at);
    mr_code rc = file && line ? mr_file_replace(file, line, strlen(line), st)
                              : mr_fail_memory(st, n, "a file name");
    mr_free(file);
    mr_free(line);
    return rc;
}

static mr_code save(const mr_train_event *e, const char *path, const part *all, size_t workers,
                    mr_status *st)
{
    mr__new_directory d;
    MR_TRY(mr__new_directory_open(&d, path, mr__is_saved_name, st));
    MR_TRY(mr__new_directory_close(&d, save_files(e, d.partial, all, workers, st), st));
    return name_latest(path, st);
}

static mr_code save_of_all(const mr_train_event *e, const char *path, mr_status *st)
{
    part own = {0}, *all = NULL;
    if (!e || !e->loop || !mr_model_is_built(e->model) || (!e->loop->between && !e->loop->saving))
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a checkpoint can be saved only in batch_end of a step that the callback's "
                       "`saves` requested, in epoch_end and in train_end");
    if (!path)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the path of a checkpoint is NULL");
    size_t workers = mr_strategy_num_workers(e->strategy);
    mr_code rc = collect_own(e, &own, st);
    if (rc == MR_OK && workers > 1) {
        if (!(all = mr_calloc(workers, sizeof *all)))
            rc = mr_fail_memory(st, workers * sizeof *all, "positions");
        if (rc == MR_OK)
            rc = mr__worker_bytes_exchange(mr__strategy_world(e->strategy), MR__CHANNEL_RESULTS,
                                           workers, &own, all, st);
    }
    if (rc == MR_OK && e->loop->run.records)
        rc = mr__step_records_sync(e->loop->run.records, st);
    if (rc == MR_OK && mr_strategy_worker(e->strategy) == 0)
        rc = save(e, path, all ? all : &own, workers, st);
    for (size_t i = 0; all && i < workers; i++)
        mr_free(all[i].bytes);
    mr_free(all);
    mr_free(own.bytes);
    return rc;
}

mr_code mr_checkpoint_save(const mr_train_event *e, const char *path, mr_status *st)
{
    mr__span *span = mr__span_begin(MR_SPAN_WORK, "checkpoint");
    mr_code rc = save_of_all(e, path, st);
    mr__span_end(span);
    return rc;
}

/* ---- restoring ---- */

typedef struct restoring {
    mr_saved *saved;
    mr_safetensors *slots;
    json_t *root;
    mr__train_state state;
    mr__recalled recalled;
    mr__run_changes changes;
    void *position; /* NULL: not available for these numbers of processes and replicas */
    size_t position_size;
    size_t metrics[MR_MAX_METRICS]; /* of the checkpoint, for those of this run; SIZE_MAX: none */
    bool again;                     /* the interrupted epoch begins again */
} restoring;

static mr_code load_position(const mr_train_event *e, restoring *x, mr_status *st)
{
    char name[MR__POSITION_NAME];
    bool same = x->state.workers == (int64_t)mr_strategy_num_workers(e->strategy) &&
                x->state.replicas == (int64_t)mr_strategy_num_replicas_in_sync(e->strategy);
    bool elastic = mr_dist_dataset_elastic_streams(e->loop->run.feed.dd) > 0;
    mr__position_name(name, elastic ? 0 : mr_strategy_worker(e->strategy));
    char *path = mr__path_in(mr_saved_path(x->saved), name);
    if (!path)
        return mr_fail_memory(st, sizeof name, "a file name");
    bool there = false;
    mr_code rc = same || elastic ? mr__look_there(path, &there, st) : MR_OK;
    if (rc == MR_OK && there)
        rc = mr_file_read(path, &mr__of_saved, &x->position, &x->position_size, st);
    if (rc == MR_OK && x->position)
        rc = mr__check_bytes(x->root, mr_saved_path(x->saved), name, x->position, x->position_size,
                             st);
    mr_free(path);
    return rc;
}

static mr_code load(const mr_train_event *e, const char *path, restoring *x, mr_status *st)
{
    MR_TRY(mr_saved_open(&x->saved, path, st));
    const char *directory = mr_saved_path(x->saved);
    MR_TRY(mr__load_json(directory, state_name, &x->root, st));
    mr_code rc = mr__read_state(x->root, &x->state, st);
    if (rc != MR_OK) {
        mr_status_at(st, directory, -1, -1);
        return rc;
    }
    MR_TRY(mr__load_tensors(directory, slots_name, &x->slots, st));
    return load_position(e, x, st);
}

static mr_code check_optimizer(const mr_train_event *e, const restoring *x, mr_status *st)
{
    size_t slots = mr__optimizer_n_slots(e->optimizer);
    if (x->changes.slots) {
        mr_log(MR_LOG_WARNING,
               "the optimizer's state starts over, since the new optimizer keeps other values");
        return MR_OK;
    }
    for (size_t i = 0; i < mr_model_n_variables(e->model); i++) {
        const mr_variable *v = mr_model_variable(e->model, i);
        for (size_t k = 0; k < slots && mr_variable_role_of(v) == MR_LEARNED; k++) {
            char slot[SLOT_NAME];
            slot_name(slot, v, k);
            MR_TRY(mr__check_tensor(mr_safetensors_find(x->slots, slot), slot, mr_variable_rank(v),
                                    mr_variable_shape(v), st));
        }
    }
    return MR_OK;
}

/* Every metric that the checkpoint has too must have as many totals there. */
static mr_code check_totals(const mr_train_event *e, const restoring *x, mr_status *st)
{
    for (size_t i = 0; i < e->n_metrics; i++)
        for (size_t k = 0; k < (size_t)x->state.replicas && x->metrics[i] != SIZE_MAX; k++) {
            const json_t *of = json_array_get(x->state.metric_totals, k);
            if (json_array_size(json_array_get(of, x->metrics[i])) !=
                mr__metric_totals(e->metrics[i]))
                return mr_fail(st, MR_DATA_LOSS, "state.json: the totals of %s are not complete",
                               mr_metric_name(e->metrics[i]));
        }
    return MR_OK;
}

static mr_code check_settings(const mr_train_event *e, restoring *x, mr_status *st)
{
    mr_code rc = mr__run_compare(e, x->saved, x->root, &x->state, &x->changes, st);
    if (rc != MR_OK)
        mr_status_at(st, mr_saved_path(x->saved), -1, -1);
    return rc;
}

/* Detects all errors before anything is changed. */
static mr_code check(const mr_train_event *e, restoring *x, mr_status *st)
{
    int rank;
    const int64_t *shape;
    bool within = !x->state.epoch_over && !e->opts->restart_epoch; /* it continues in an epoch */
    MR_TRY(check_settings(e, x, st));
    if (!mr_model_is_built(e->model)) {
        mr_saved_input_shape(x->saved, &rank, &shape);
        MR_TRY(mr_model_build(
            e->model, e->strategy, rank, shape,
            &(mr_model_opts){.seed = e->opts->seed, .mixed_precision = e->opts->mixed_precision},
            st));
    }
    mr_code rc = mr__check_weights(mr__saved_weights(x->saved), e->model, st);
    if (rc == MR_OK)
        rc = check_optimizer(e, x, st);
    if (rc == MR_OK)
        rc = mr__run_match_metrics(e, x->saved, &x->state, within, x->metrics, st);
    if (rc == MR_OK)
        rc = check_totals(e, x, st);
    size_t sums = json_array_size(x->state.output_sums);
    if (rc == MR_OK && within && sums != (e->loop->run.n_outputs > 1 ? e->loop->run.n_outputs : 0))
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "the checkpoint is inside an epoch and has losses of %zu outputs, but the "
                     "model has %zu",
                     sums > 0 ? sums : 1, e->loop->run.n_outputs);
    if (rc == MR_OK)
        rc = mr__recalled_load(&x->recalled, mr_saved_path(x->saved), x->root, e->model, st);
    if (rc == MR_OK)
        rc = mr__data_resume(e, x->root, &x->state, x->position, x->position_size, &x->again, st);
    if (rc != MR_OK)
        mr_status_at(st, mr_saved_path(x->saved), -1, -1);
    return rc;
}

static mr_code write_slots(const mr_train_event *e, const restoring *x, mr_status *st)
{
    for (size_t i = 0; i < mr_model_n_variables(e->model); i++) {
        mr_variable *v = mr_model_variable(e->model, i);
        bool learned = mr_variable_role_of(v) == MR_LEARNED;
        for (size_t k = 0; k < mr__optimizer_n_slots(e->optimizer) && learned; k++) {
            char slot[SLOT_NAME];
            const float *values;
            float *owned;
            slot_name(slot, v, k);
            MR_TRY(mr__tensor_floats(mr_safetensors_find(x->slots, slot), &values, &owned, st));
            mr_code rc = mr__optimizer_write_slot(e->optimizer, v, e->strategy, k, values, st);
            mr_free(owned);
            MR_TRY(rc);
        }
        mr__optimizer_set_slots_from(e->optimizer, v, x->state.slots_from);
    }
    return MR_OK;
}

static double number_at(const json_t *pair, size_t i)
{
    const json_t *v = json_array_get(pair, i);
    const char *text = json_string_value(v);
    return text ? strtod(text, NULL) : json_number_value(v);
}

static void add_totals(const restoring *x, size_t replica, size_t metric, double *sums, size_t n)
{
    const json_t *of =
        json_array_get(json_array_get(x->state.metric_totals, replica), x->metrics[metric]);
    for (size_t i = 0; i < n; i++)
        sums[i] += number_at(of, i);
}

/* Totals of all replicas, added in the same order as the results of a step. sums, all: room for the
 * metric's totals. */
static void show_total(const mr_train_event *e, const restoring *x, size_t metric, double *sums,
                       double *all)
{
    size_t workers = (size_t)x->state.workers, replicas = (size_t)x->state.replicas / workers;
    size_t n = mr__metric_totals(e->metrics[metric]);
    memset(all, 0, n * sizeof *all);
    for (size_t w = 0; w < workers; w++) {
        memset(sums, 0, n * sizeof *sums);
        for (size_t r = 0; r < replicas; r++)
            add_totals(x, w * replicas + r, metric, sums, n);
        for (size_t i = 0; i < n; i++)
            all[i] += sums[i];
    }
    mr__metric_show(e->metrics[metric], all);
}

/* Each replica continues with its own; if their number differs, the first gets all. */
static mr_code write_metric(const mr_train_event *e, const restoring *x, size_t i, double *sums,
                            mr_status *st)
{
    size_t first = mr_strategy_first_replica_id(e->strategy), n = mr__metric_totals(e->metrics[i]);
    bool same = x->state.replicas == (int64_t)mr_strategy_num_replicas_in_sync(e->strategy);
    if (x->metrics[i] == SIZE_MAX)
        return MR_OK;
    for (size_t r = 0; r < mr_strategy_num_local_replicas(e->strategy); r++) {
        memset(sums, 0, n * sizeof *sums);
        for (size_t k = 0; k < (size_t)x->state.replicas; k++)
            if (same ? k == first + r : first + r == 0)
                add_totals(x, k, i, sums, n);
        MR_TRY(mr__metric_write(e->metrics[i], mr_strategy_replica(e->strategy, r), sums, st));
    }
    show_total(e, x, i, sums, sums + n);
    return MR_OK;
}

static mr_code write_totals(const mr_train_event *e, const restoring *x, mr_status *st)
{
    size_t room = 2 * count_totals(e) * sizeof(double);
    double *sums = mr_malloc(room);
    mr_code rc = sums ? MR_OK : mr_fail_memory(st, room, "metrics");
    for (size_t i = 0; i < e->n_metrics && rc == MR_OK; i++)
        rc = write_metric(e, x, i, sums, st);
    mr_free(sums);
    return rc;
}

static mr_code apply(const mr_train_event *e, restoring *x, mr_status *st)
{
    mr__fit_loop *loop = e->loop;
    const mr__train_state *s = &x->state;
    MR_TRY(mr_saved_load(x->saved, e->model, st));
    if (!x->changes.slots)
        MR_TRY(write_slots(e, x, st));
    mr__model_set_steps(e->model, s->model_steps);
    mr__optimizer_set_iterations(e->optimizer, s->iterations);
    if (!s->scheduled && !x->changes.learning_rate)
        mr_optimizer_set_learning_rate(e->optimizer, s->learning_rate);
    loop->now->epoch = s->epoch - x->again;
    loop->now->step = s->step;
    loop->now->epoch_step = s->epoch_step;
    loop->pass_over = s->pass_over && !x->again;
    loop->resumed = !s->epoch_over && !x->again;
    const char *job = json_string_value(json_object_get(x->root, "ledger"));
    snprintf(loop->job, sizeof loop->job, "%s", job && e->opts->ledger ? job : "");
    mr__recalled_drop(&loop->recalled);
    loop->recalled = x->recalled;
    x->recalled = (mr__recalled){0};
    if (!loop->resumed)
        return MR_OK;
    loop->loss_sum = s->loss_sum;
    for (size_t k = 0; k < json_array_size(s->output_sums) && k < MR_MAX_OUTPUTS; k++)
        loop->output_sums[k] = number_at(s->output_sums, k);
    loop->rows = loop->resumed_rows = s->rows;
    return write_totals(e, x, st);
}

mr_code mr_checkpoint_restore(const mr_train_event *e, const char *path, mr_status *st)
{
    restoring x = {0};
    if (!e || e->step > 0 || !e->loop)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a checkpoint can be restored only in train_begin");
    if (!path)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the path of a checkpoint is NULL");
    mr_code rc = load(e, path, &x, st);
    if (rc == MR_OK)
        rc = check(e, &x, st);
    if (rc == MR_OK)
        rc = apply(e, &x, st);
    mr_saved_close(x.saved);
    mr_safetensors_close(x.slots);
    json_decref(x.root);
    mr__recalled_drop(&x.recalled);
    mr_free(x.position);
    return rc;
}
