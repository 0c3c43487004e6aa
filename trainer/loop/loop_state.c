/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/loop_state.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/fnv.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/version.h"
#include "trainer/exchange/saved_model_impl.h"
#include "trainer/files/json_file.h"
#include "trainer/loop/worker_bytes.h"
#include "trainer/model/model_impl.h"
#include "trainer/objectives/metric_impl.h"
#include "trainer/objectives/optimizer_impl.h"
#include "trainer/strategy/strategy_impl.h"

static const char state_name[] = "state.json", weights_name[] = "weights.safetensors",
                  slots_name[] = "optimizers.safetensors", position_prefix[] = "position-";

enum { NAME = 192 };

static bool is_ours(const char *name)
{
    return strcmp(name, state_name) == 0 || strcmp(name, weights_name) == 0 ||
           strcmp(name, slots_name) == 0 ||
           strncmp(name, position_prefix, sizeof position_prefix - 1) == 0;
}

/* A variable of the loop: "0/dense/kernel" of the first model, "variables/0/v". */
typedef struct held {
    mr_variable *v;
    char name[NAME];
} held;

typedef struct variables {
    held *v;
    size_t n;
} variables;

static mr_code list_variables(const mr_loop_state *s, variables *all, mr_status *st)
{
    size_t n = s->n_variables, at = 0;
    for (size_t k = 0; k < s->n_models; k++)
        n += mr_model_n_variables(s->models[k]);
    held *v = mr_calloc(n + 1, sizeof *v);
    if (!v)
        return mr_fail_memory(st, n * sizeof *v, "the variables of a loop");
    for (size_t k = 0; k < s->n_models; k++)
        for (size_t i = 0; i < mr_model_n_variables(s->models[k]); i++, at++) {
            v[at].v = mr_model_variable(s->models[k], i);
            snprintf(v[at].name, NAME, "%zu/%.100s", k, mr_variable_name(v[at].v));
        }
    for (size_t k = 0; k < s->n_variables; k++, at++) {
        v[at].v = s->variables[k];
        snprintf(v[at].name, NAME, "variables/%zu/%.100s", k, mr_variable_name(v[at].v));
    }
    *all = (variables){v, n};
    return MR_OK;
}

static void slot_name(char name[NAME], size_t optimizer, const held *h, size_t slot)
{
    snprintf(name, NAME, "%zu/%.120s/slot_%zu", optimizer, h->name, slot);
}

static mr_code check_loop(const mr_loop_state *s, mr_status *st)
{
    if (mr_replica_current())
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the state of a loop is saved and restored between steps");
    if (!s->strategy)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the loop's strategy is NULL");
    for (size_t k = 0; k < s->n_models; k++)
        if (!mr_model_is_built(s->models[k]))
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "model %zu of the loop is not built; call mr_model_build first", k);
        else if (mr_model_strategy(s->models[k]) != s->strategy)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "model %zu is of another strategy than the loop", k);
    return MR_OK;
}

/* ---- collecting ---- */

/* Of one replica: number of totals of all metrics. */
static size_t count_totals(const mr_loop_state *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_metrics; i++)
        n += mr__metric_totals(s->metrics[i]);
    return n;
}

static mr_code append(mr__worker_bytes *b, const void *bytes, size_t n, mr_status *st)
{
    unsigned char *all = mr_malloc(b->size + n + 1);
    if (!all)
        return mr_fail_memory(st, b->size + n, "the state of a loop");
    if (b->size > 0)
        memcpy(all, b->bytes, b->size);
    if (n > 0)
        memcpy(all + b->size, bytes, n);
    mr_free(b->bytes);
    *b = (mr__worker_bytes){all, b->size + n};
    return MR_OK;
}

static mr_code append_position(mr__worker_bytes *b, mr_dist_iterator *it, mr_status *st)
{
    void *position;
    size_t n;
    MR_TRY(mr_dist_iterator_save(it, &position, &n, st));
    uint64_t size = n;
    mr_code rc = append(b, &size, sizeof size, st);
    if (rc == MR_OK)
        rc = append(b, position, n, st);
    mr_free(position);
    return rc;
}

/* [local replicas][metrics][totals] doubles, then for each iterator the size of its position and
 * the position. */
static mr_code collect_own(const mr_loop_state *s, mr__worker_bytes *own, mr_status *st)
{
    for (size_t r = 0; r < mr_strategy_num_local_replicas(s->strategy); r++)
        for (size_t i = 0; i < s->n_metrics; i++) {
            size_t bytes = mr__metric_totals(s->metrics[i]) * sizeof(double);
            double *totals = mr_malloc(bytes + 1);
            mr_code rc = totals ? mr__metric_read(s->metrics[i],
                                                  mr_strategy_replica(s->strategy, r), totals, st)
                                : mr_fail_memory(st, bytes, "metrics");
            if (rc == MR_OK)
                rc = append(own, totals, bytes, st);
            mr_free(totals);
            MR_TRY(rc);
        }
    for (size_t i = 0; i < s->n_data; i++)
        MR_TRY(append_position(own, s->data[i], st));
    return MR_OK;
}

/* ---- writing ---- */

static void describe(mr_named_tensor *t, const char *name, const mr_variable *v,
                     const float *values)
{
    *t = (mr_named_tensor){
        .name = name, .dtype = MR_FLOAT32, .rank = mr_variable_rank(v), .data = values};
    memcpy(t->shape, mr_variable_shape(v), (size_t)t->rank * sizeof *t->shape);
}

static void free_tensors(mr_named_tensor *t, size_t n)
{
    for (size_t i = 0; t && i < n; i++)
        mr_free((void *)(uintptr_t)t[i].data);
    mr_free(t);
}

static mr_code save_weights(const variables *all, const char *directory, mr_status *st)
{
    mr_named_tensor *t = mr_calloc(all->n + 1, sizeof *t);
    mr_code rc = t ? MR_OK : mr_fail_memory(st, all->n * sizeof *t, "weights");
    for (size_t i = 0; i < all->n && rc == MR_OK; i++) {
        size_t bytes = mr_variable_size(all->v[i].v) * sizeof(float);
        float *values = mr_malloc(bytes + 1);
        describe(&t[i], all->v[i].name, all->v[i].v, values);
        rc = values ? mr_variable_read(all->v[i].v, values, st)
                    : mr_fail_memory(st, bytes, "a copy of the weights");
    }
    if (rc == MR_OK)
        rc = mr__save_tensors(directory, weights_name, t, all->n, st);
    free_tensors(t, all->n);
    return rc;
}

static size_t count_slots(const mr_loop_state *s, const variables *all)
{
    size_t n = 0;
    for (size_t k = 0; k < s->n_optimizers; k++)
        for (size_t i = 0; i < all->n; i++)
            if (mr__optimizer_knows(s->optimizers[k], all->v[i].v))
                n += mr__optimizer_n_slots(s->optimizers[k]);
    return n;
}

static mr_code read_slots(const mr_loop_state *s, const variables *all, mr_named_tensor *t,
                          char (*names)[NAME], mr_status *st)
{
    size_t at = 0;
    for (size_t k = 0; k < s->n_optimizers; k++)
        for (size_t i = 0; i < all->n; i++) {
            mr_variable *v = all->v[i].v;
            size_t bytes = mr_variable_size(v) * sizeof(float);
            bool known = mr__optimizer_knows(s->optimizers[k], v);
            for (size_t j = 0; known && j < mr__optimizer_n_slots(s->optimizers[k]); j++, at++) {
                float *values = mr_malloc(bytes + 1);
                slot_name(names[at], k, &all->v[i], j);
                describe(&t[at], names[at], v, values);
                if (!values)
                    return mr_fail_memory(st, bytes, "the state of an optimizer");
                MR_TRY(mr__optimizer_read_slot(s->optimizers[k], v, s->strategy, j, values, st));
            }
        }
    return MR_OK;
}

static mr_code save_slots(const mr_loop_state *s, const variables *all, const char *directory,
                          mr_status *st)
{
    size_t n = count_slots(s, all);
    mr_named_tensor *t = mr_calloc(n + 1, sizeof *t);
    char(*names)[NAME] = mr_calloc(n + 1, sizeof *names);
    mr_code rc = t && names ? read_slots(s, all, t, names, st)
                            : mr_fail_memory(st, n * sizeof *t, "the state of an optimizer");
    if (rc == MR_OK)
        rc = mr__save_tensors(directory, slots_name, t, n, st);
    free_tensors(t, n);
    mr_free(names);
    return rc;
}

/* NULL: out of memory, as in the following. */
static json_t *models_json(const mr_loop_state *s)
{
    json_t *list = json_array();
    for (size_t k = 0; k < s->n_models; k++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "text", mr_model_text(s->models[k]),
                                              "steps", (json_int_t)mr__model_steps(s->models[k])));
    return json_array_size(list) == s->n_models ? list : NULL;
}

static json_t *optimizers_json(const mr_loop_state *s, const variables *all)
{
    json_t *list = json_array();
    for (size_t k = 0; k < s->n_optimizers; k++) {
        const mr_optimizer *o = s->optimizers[k];
        json_t *from = json_object();
        for (size_t i = 0; i < all->n; i++)
            if (mr__optimizer_slots_from(o, all->v[i].v) > 0)
                json_object_set_new(from, all->v[i].name,
                                    json_integer(mr__optimizer_slots_from(o, all->v[i].v)));
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:b, s:o, s:o}", "name", mr_optimizer_name(o), "slots",
                            (json_int_t)mr__optimizer_n_slots(o), "iterations",
                            (json_int_t)mr_optimizer_iterations(o), "scheduled",
                            (int)mr__optimizer_is_scheduled(o), "learning_rate",
                            mr__json_number(mr_optimizer_learning_rate(o)), "slots_from", from));
    }
    return json_array_size(list) == s->n_optimizers ? list : NULL;
}

/* [metric] = {name, totals: [replica][totals]} */
static json_t *metrics_json(const mr_loop_state *s, const mr__worker_bytes *all, size_t workers)
{
    json_t *list = json_array();
    size_t replicas = mr_strategy_num_local_replicas(s->strategy), a_replica = count_totals(s);
    for (size_t i = 0, before = 0; i < s->n_metrics; before += mr__metric_totals(s->metrics[i++])) {
        json_t *of_all = json_array();
        for (size_t w = 0; w < workers; w++)
            for (size_t r = 0; r < replicas; r++) {
                json_t *totals = json_array();
                for (size_t k = 0; k < mr__metric_totals(s->metrics[i]); k++) {
                    double v;
                    memcpy(&v, all[w].bytes + (r * a_replica + before + k) * sizeof v, sizeof v);
                    json_array_append_new(totals, mr__json_number(v));
                }
                json_array_append_new(of_all, totals);
            }
        json_array_append_new(
            list, json_pack("{s:s, s:o}", "name", mr_metric_name(s->metrics[i]), "totals", of_all));
    }
    return json_array_size(list) == s->n_metrics ? list : NULL;
}

static json_t *numbers_json(const mr_loop_state *s)
{
    json_t *root = json_object();
    for (size_t i = 0; i < s->n_numbers; i++) {
        const mr_loop_number *n = &s->numbers[i];
        json_object_set_new(root, n->name, n->i ? json_integer(*n->i) : mr__json_number(*n->f));
    }
    return json_object_size(root) == s->n_numbers ? root : NULL;
}

static void position_name(char name[NAME], size_t worker)
{
    snprintf(name, NAME, "%s%zu", position_prefix, worker);
}

static mr_code save_positions(const mr_loop_state *s, const char *directory,
                              const mr__worker_bytes *all, size_t workers, json_t *sums,
                              mr_status *st)
{
    size_t first = mr_strategy_num_local_replicas(s->strategy) * count_totals(s) * sizeof(double);
    for (size_t w = 0; w < workers && s->n_data > 0; w++) {
        char name[NAME];
        position_name(name, w);
        const unsigned char *from = all[w].bytes + first;
        size_t n = all[w].size - first;
        MR_TRY(mr__save_bytes(directory, name, from, n, st));
        if (!mr__add_checksum(sums, name, from, n))
            return mr_fail_memory(st, sizeof name, "a checksum");
    }
    return MR_OK;
}

static mr_code save_state(const mr_loop_state *s, const variables *of, const char *directory,
                          const mr__worker_bytes *all, size_t workers, json_t *sums, mr_status *st)
{
    json_t *root = json_pack(
        "{s:i, s:s, s:b, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "format", (int)MR__SAVED_FORMAT,
        "millrace", MR_VERSION, "loop", 1, "workers", (json_int_t)workers, "replicas",
        (json_int_t)mr_strategy_num_replicas_in_sync(s->strategy), "data", (json_int_t)s->n_data,
        "models", models_json(s), "optimizers", optimizers_json(s, of), "metrics",
        metrics_json(s, all, workers), "numbers", numbers_json(s));
    mr_code rc = root && mr__add_checksums(root, sums)
                     ? mr__save_json(directory, state_name, root, st)
                     : mr_fail_memory(st, 0, state_name);
    json_decref(root);
    return rc;
}

static mr_code save_files(const mr_loop_state *s, const char *directory,
                          const mr__worker_bytes *all, size_t workers, mr_status *st)
{
    variables v;
    MR_TRY(list_variables(s, &v, st));
    json_t *sums = json_object();
    mr_code rc =
        sums ? save_weights(&v, directory, st) : mr_fail_memory(st, 0, "checksums of positions");
    if (rc == MR_OK)
        rc = save_slots(s, &v, directory, st);
    if (rc == MR_OK)
        rc = save_positions(s, directory, all, workers, sums, st);
    if (rc == MR_OK)
        rc = save_state(s, &v, directory, all, workers, sums, st);
    json_decref(sums);
    mr_free(v.v);
    return rc;
}

static mr_code check_numbers(const mr_loop_state *s, mr_status *st)
{
    for (size_t i = 0; i < s->n_numbers; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(s->numbers[i].name, s->numbers[k].name) == 0)
                return mr_fail(st, MR_INVALID_ARGUMENT, "two numbers of the loop are called %s",
                               s->numbers[i].name);
    return MR_OK;
}

mr_code mr_loop_save(const mr_loop_state *s, const char *path, mr_status *st)
{
    mr__worker_bytes own = {0}, *all = NULL;
    MR_TRY(check_loop(s, st));
    MR_TRY(check_numbers(s, st));
    size_t workers = mr_strategy_num_workers(s->strategy);
    mr_code rc = collect_own(s, &own, st);
    if (rc == MR_OK && workers > 1) {
        if (!(all = mr_calloc(workers, sizeof *all)))
            rc = mr_fail_memory(st, workers * sizeof *all, "positions");
        if (rc == MR_OK)
            rc = mr__worker_bytes_exchange(mr__strategy_world(s->strategy), MR__CHANNEL_RESULTS,
                                           workers, &own, all, st);
    }
    if (rc == MR_OK && mr_strategy_worker(s->strategy) == 0) {
        mr__new_directory d;
        rc = mr__new_directory_open(&d, path, is_ours, st);
        if (rc == MR_OK)
            rc = mr__new_directory_close(
                &d, save_files(s, d.partial, all ? all : &own, workers, st), st);
    }
    for (size_t i = 0; all && i < workers; i++)
        mr_free(all[i].bytes);
    mr_free(all);
    mr_free(own.bytes);
    return rc;
}

/* ---- restoring ---- */

typedef struct restoring {
    const mr_loop_state *s;
    const char *path;
    variables all;
    json_t *root;
    mr_safetensors *weights, *slots;
    int64_t workers, replicas;
    unsigned char *position; /* of this worker */
    size_t position_size;
} restoring;

static mr_code check_count(const restoring *x, const char *what, size_t now, mr_status *st)
{
    const json_t *v = json_object_get(x->root, what);
    size_t n = json_is_integer(v)  ? (size_t)json_integer_value(v)
               : json_is_object(v) ? json_object_size(v)
                                   : json_array_size(v);
    if (!v)
        return mr_fail(st, MR_DATA_LOSS, "%s: %s is missing", state_name, what);
    return n == now ? MR_OK
                    : mr_fail(st, MR_INVALID_ARGUMENT,
                              "the saved loop has %zu %s, this one has %zu", n, what, now);
}

static mr_code check_optimizer(const restoring *x, size_t k, mr_status *st)
{
    const mr_optimizer *o = x->s->optimizers[k];
    const json_t *of = json_array_get(json_object_get(x->root, "optimizers"), k);
    const char *name = json_string_value(json_object_get(of, "name"));
    int64_t slots = json_integer_value(json_object_get(of, "slots"));
    double rate;
    if (!name || !json_is_integer(json_object_get(of, "iterations")) ||
        !json_is_boolean(json_object_get(of, "scheduled")) ||
        !mr__read_json_number(json_object_get(of, "learning_rate"), &rate))
        return mr_fail(st, MR_DATA_LOSS, "%s: optimizer %zu is malformed", state_name, k);
    if (strcmp(name, mr_optimizer_name(o)) != 0 || slots != (int64_t)mr__optimizer_n_slots(o))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "optimizer %zu of the saved loop is %s, which keeps %" PRId64
                       " values of each weight; this one is %s, which keeps %zu",
                       k, name, slots, mr_optimizer_name(o), mr__optimizer_n_slots(o));
    for (size_t i = 0; i < x->all.n; i++)
        for (int64_t j = 0; j < slots; j++) {
            char of_slot[NAME];
            slot_name(of_slot, k, &x->all.v[i], (size_t)j);
            const mr_named_tensor *t = mr_safetensors_find(x->slots, of_slot);
            if (t)
                MR_TRY(mr__check_tensor(t, of_slot, mr_variable_rank(x->all.v[i].v),
                                        mr_variable_shape(x->all.v[i].v), st));
        }
    return MR_OK;
}

static mr_code check_metric(const restoring *x, size_t i, mr_status *st)
{
    const json_t *of = json_array_get(json_object_get(x->root, "metrics"), i);
    const char *name = json_string_value(json_object_get(of, "name"));
    const json_t *totals = json_object_get(of, "totals");
    if (!name || json_array_size(totals) != (size_t)x->replicas)
        return mr_fail(st, MR_DATA_LOSS, "%s: metric %zu is malformed", state_name, i);
    if (strcmp(name, mr_metric_name(x->s->metrics[i])) != 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "metric %zu of the saved loop is %s, this one is %s", i, name,
                       mr_metric_name(x->s->metrics[i]));
    for (size_t r = 0; r < json_array_size(totals); r++) {
        const json_t *own = json_array_get(totals, r);
        double v;
        bool well = json_array_size(own) == mr__metric_totals(x->s->metrics[i]);
        for (size_t k = 0; k < json_array_size(own); k++)
            well = well && mr__read_json_number(json_array_get(own, k), &v);
        if (!well)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "metric %s of the saved loop has other totals than this one", name);
    }
    return MR_OK;
}

static mr_code check_values(const restoring *x, mr_status *st)
{
    const json_t *numbers = json_object_get(x->root, "numbers");
    for (size_t i = 0; i < x->s->n_numbers; i++) {
        const mr_loop_number *n = &x->s->numbers[i];
        const json_t *v = json_object_get(numbers, n->name);
        double f;
        if (!v)
            return mr_fail(st, MR_INVALID_ARGUMENT, "the saved loop has no number called %s",
                           n->name);
        if (n->i ? !json_is_integer(v) : !mr__read_json_number(v, &f))
            return mr_fail(st, MR_INVALID_ARGUMENT, "%s is not %s in the saved loop", n->name,
                           n->i ? "a whole number" : "a number");
    }
    for (size_t k = 0; k < x->s->n_models; k++)
        if (!json_is_integer(
                json_object_get(json_array_get(json_object_get(x->root, "models"), k), "steps")))
            return mr_fail(st, MR_DATA_LOSS, "%s: model %zu is malformed", state_name, k);
    return MR_OK;
}

static mr_code check_weights(const restoring *x, mr_status *st)
{
    for (size_t i = 0; i < x->all.n; i++)
        MR_TRY(mr__check_tensor(mr_safetensors_find(x->weights, x->all.v[i].name), x->all.v[i].name,
                                mr_variable_rank(x->all.v[i].v), mr_variable_shape(x->all.v[i].v),
                                st));
    return MR_OK;
}

static mr_code check_all(restoring *x, mr_status *st)
{
    const mr_loop_state *s = x->s;
    x->workers = json_integer_value(json_object_get(x->root, "workers"));
    x->replicas = json_integer_value(json_object_get(x->root, "replicas"));
    if (!json_is_true(json_object_get(x->root, "loop")))
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "this was not saved by mr_loop_save; mr_checkpoint_restore reads checkpoints");
    if (x->workers < 1 || x->replicas < 1)
        return mr_fail(st, MR_DATA_LOSS, "%s: replicas is missing or malformed", state_name);
    MR_TRY(check_count(x, "models", s->n_models, st));
    MR_TRY(check_count(x, "optimizers", s->n_optimizers, st));
    MR_TRY(check_count(x, "metrics", s->n_metrics, st));
    MR_TRY(check_count(x, "numbers", s->n_numbers, st));
    MR_TRY(check_count(x, "data", s->n_data, st));
    MR_TRY(check_values(x, st));
    MR_TRY(check_weights(x, st));
    for (size_t k = 0; k < s->n_optimizers; k++)
        MR_TRY(check_optimizer(x, k, st));
    for (size_t i = 0; i < s->n_metrics; i++)
        MR_TRY(check_metric(x, i, st));
    bool same = x->workers == (int64_t)mr_strategy_num_workers(s->strategy) &&
                x->replicas == (int64_t)mr_strategy_num_replicas_in_sync(s->strategy);
    if (!same && s->n_data > 0)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "the loop was saved by %" PRId64 " processes with %" PRId64
            " replicas in all, whose positions in the data do not fit %zu processes with "
            "%zu replicas; restore it without data, and start the data over",
            x->workers, x->replicas, mr_strategy_num_workers(s->strategy),
            mr_strategy_num_replicas_in_sync(s->strategy));
    return MR_OK;
}

static mr_code load(restoring *x, mr_status *st)
{
    char name[NAME];
    void *bytes;
    MR_TRY(mr__load_json(x->path, state_name, &x->root, st));
    MR_TRY(mr__load_tensors(x->path, weights_name, &x->weights, st));
    MR_TRY(mr__load_tensors(x->path, slots_name, &x->slots, st));
    MR_TRY(list_variables(x->s, &x->all, st));
    MR_TRY(check_all(x, st));
    if (x->s->n_data == 0)
        return MR_OK;
    position_name(name, mr_strategy_worker(x->s->strategy));
    MR_TRY(mr__load_bytes(x->path, name, &bytes, &x->position_size, st));
    x->position = bytes;
    return mr__check_bytes(x->root, x->path, name, x->position, x->position_size, st);
}

/* The call that can refuse the data, so it is the first that changes something. */
static mr_code restore_positions(const restoring *x, mr_status *st)
{
    const unsigned char *at = x->position;
    size_t left = x->position_size;
    for (size_t i = 0; i < x->s->n_data; i++) {
        uint64_t n = 0;
        if (left >= sizeof n)
            memcpy(&n, at, sizeof n);
        if (left < sizeof n || left - sizeof n < n)
            return mr_fail(st, MR_DATA_LOSS, "the position of data %zu is cut off", i);
        MR_TRY(mr_dist_iterator_restore(x->s->data[i], at + sizeof n, (size_t)n, st));
        at += sizeof n + n;
        left -= sizeof n + n;
    }
    return MR_OK;
}

static mr_code restore_weights(const restoring *x, mr_status *st)
{
    for (size_t i = 0; i < x->all.n; i++) {
        const float *values;
        float *owned;
        MR_TRY(mr__tensor_floats(mr_safetensors_find(x->weights, x->all.v[i].name), &values, &owned,
                                 st));
        mr_code rc = mr_variable_assign(x->all.v[i].v, values, st);
        mr_free(owned);
        MR_TRY(rc);
    }
    return MR_OK;
}

static mr_code restore_slots(const restoring *x, size_t k, const held *h, mr_status *st)
{
    mr_optimizer *o = x->s->optimizers[k];
    char name[NAME];
    mr__optimizer_forget(o, h->v);
    for (size_t j = 0; j < mr__optimizer_n_slots(o); j++) {
        const float *values;
        float *owned;
        slot_name(name, k, h, j);
        const mr_named_tensor *t = mr_safetensors_find(x->slots, name);
        if (!t)
            continue;
        MR_TRY(mr__tensor_floats(t, &values, &owned, st));
        mr_code rc = mr__optimizer_write_slot(o, h->v, x->s->strategy, j, values, st);
        mr_free(owned);
        MR_TRY(rc);
    }
    const json_t *of = json_array_get(json_object_get(x->root, "optimizers"), k);
    mr__optimizer_set_slots_from(
        o, h->v, json_integer_value(json_object_get(json_object_get(of, "slots_from"), h->name)));
    return MR_OK;
}

static mr_code restore_optimizer(const restoring *x, size_t k, mr_status *st)
{
    mr_optimizer *o = x->s->optimizers[k];
    const json_t *of = json_array_get(json_object_get(x->root, "optimizers"), k);
    double rate = 0;
    for (size_t i = 0; i < x->all.n; i++)
        MR_TRY(restore_slots(x, k, &x->all.v[i], st));
    mr__optimizer_set_iterations(o, json_integer_value(json_object_get(of, "iterations")));
    if (!json_is_true(json_object_get(of, "scheduled")) &&
        mr__read_json_number(json_object_get(of, "learning_rate"), &rate))
        mr_optimizer_set_learning_rate(o, rate);
    return MR_OK;
}

/* Each replica gets its own totals; if their number differs, the first gets all. */
static mr_code restore_metric(const restoring *x, size_t i, double *sums, mr_status *st)
{
    mr_strategy *s = x->s->strategy;
    const json_t *totals =
        json_object_get(json_array_get(json_object_get(x->root, "metrics"), i), "totals");
    size_t first = mr_strategy_first_replica_id(s), n = mr__metric_totals(x->s->metrics[i]);
    bool same = x->replicas == (int64_t)mr_strategy_num_replicas_in_sync(s);
    for (size_t r = 0; r < mr_strategy_num_local_replicas(s); r++) {
        memset(sums, 0, n * sizeof *sums);
        for (size_t k = 0; k < (size_t)x->replicas; k++)
            for (size_t j = 0; j < n && (same ? k == first + r : first + r == 0); j++) {
                double v = 0;
                if (mr__read_json_number(json_array_get(json_array_get(totals, k), j), &v))
                    sums[j] += v;
            }
        MR_TRY(mr__metric_write(x->s->metrics[i], mr_strategy_replica(s, r), sums, st));
    }
    return MR_OK;
}

static mr_code restore_metrics(const restoring *x, mr_status *st)
{
    size_t room = count_totals(x->s) * sizeof(double);
    double *sums = mr_malloc(room + 1);
    mr_code rc = sums ? MR_OK : mr_fail_memory(st, room, "metrics");
    for (size_t i = 0; i < x->s->n_metrics && rc == MR_OK; i++)
        rc = restore_metric(x, i, sums, st);
    mr_free(sums);
    return rc;
}

static void restore_numbers(const restoring *x)
{
    const json_t *numbers = json_object_get(x->root, "numbers");
    for (size_t i = 0; i < x->s->n_numbers; i++) {
        const mr_loop_number *n = &x->s->numbers[i];
        const json_t *v = json_object_get(numbers, n->name);
        if (n->i)
            *n->i = json_integer_value(v);
        else
            mr__read_json_number(v, n->f);
    }
}

static mr_code restore(restoring *x, mr_status *st)
{
    const json_t *models;
    MR_TRY(restore_positions(x, st));
    MR_TRY(restore_weights(x, st));
    models = json_object_get(x->root, "models");
    for (size_t k = 0; k < x->s->n_models; k++)
        mr__model_set_steps(x->s->models[k], (uint64_t)json_integer_value(json_object_get(
                                                 json_array_get(models, k), "steps")));
    for (size_t k = 0; k < x->s->n_optimizers; k++)
        MR_TRY(restore_optimizer(x, k, st));
    MR_TRY(restore_metrics(x, st));
    restore_numbers(x);
    return MR_OK;
}

/* What tells two saved states apart: their numbers and the checksums of their files. */
static mr_code version_of(const json_t *root, uint32_t *out, mr_status *st)
{
    size_t n;
    char *text = mr__json_text(root, JSON_SORT_KEYS | JSON_COMPACT, &n);
    if (!text)
        return mr_fail_memory(st, n, state_name);
    uint64_t h = mr__fnv1a(MR__FNV_BASIS, text, n);
    *out = (uint32_t)(h ^ h >> 32);
    mr_free(text);
    return MR_OK;
}

mr_code mr_loop_restore(const mr_loop_state *s, const char *path, bool *found, mr_status *st)
{
    static const char what[] = "saved state";
    char *place = NULL;
    uint32_t version = 0;
    mr_code rc = check_loop(s, st);
    if (!s->strategy || mr_replica_current()) /* workers agree between steps */
        return rc;
    if (rc == MR_OK)
        rc = mr__find_saved(path, &place, st);
    restoring x = {.s = s, .path = place};
    bool there = place != NULL;
    if (rc == MR_OK && there)
        rc = load(&x, st);
    if (rc == MR_OK && there)
        rc = version_of(x.root, &version, st);
    rc = mr__workers_agree(s->strategy, what, rc, there, version, st);
    if (rc == MR_OK && there) /* no worker continues if another fails after it has begun */
        rc = mr__workers_agree(s->strategy, what, restore(&x, st), there, version, st);
    if (rc != MR_OK)
        mr_status_at(st, path, -1, -1);
    else if (found)
        *found = there;
    mr_free(place);
    mr_safetensors_close(x.weights);
    mr_safetensors_close(x.slots);
    json_decref(x.root);
    mr_free(x.all.v);
    mr_free(x.position);
    return rc;
}
