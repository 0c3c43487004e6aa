/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/store_internal.h"
#include "trainer/files/remote_saved.h"
#include "trainer/exchange/saved_model.h"
#include <string.h>
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/version.h"
#include "trainer/device/tensor.h"
#include "trainer/exchange/saved_model_impl.h"
#include "trainer/files/json_file.h"
#include "trainer/model/layer_state.h"

static const char model_name[] = "model.txt", training_name[] = "training.json",
                  weights_name[] = "weights.safetensors", latest_name[] = "checkpoint",
                  position_prefix[] = "position-";

struct mr_saved {
    char *path, *model;
    json_t *training;
    int rank;
    int64_t shape[MR_MAX_RANK];
    mr_safetensors *weights;
};

bool mr__is_saved_name(const char *name)
{
    static const char *const names[] = {
        model_name,      training_name,           weights_name,           "state.json",
        "preprocessing", "optimizer.safetensors", "callbacks.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, position_prefix, sizeof position_prefix - 1) == 0;
}

/* ---- writing ---- */

/* Adds the checksums of the text, and of each file that it names, to sums. */
static mr_code save_model_text(const mr_model *m, const char *directory, json_t *sums,
                               mr_status *st)
{
    char *line;
    MR_TRY(mr__save_preprocessing(m, directory, sums, &line, st));
    size_t n = strlen(line);
    line[n] = '\n'; /* replaces the NUL byte */
    mr_code rc = mr__save_bytes(directory, model_name, line, n + 1, st);
    if (rc == MR_OK && !mr__add_checksum(sums, model_name, line, n + 1))
        rc = mr_fail_memory(st, 0, "a checksum");
    mr_free(line);
    return rc;
}

static mr_code save_training(const mr_model *m, const char *directory, const mr_save_opts *o,
                             json_t *sums, mr_status *st)
{
    int rank;
    const int64_t *shape;
    json_t *root = json_pack("{s:i, s:s}", "format", (int)MR__SAVED_FORMAT, "millrace", MR_VERSION);
    json_t *input = json_array(), *metrics = json_array();
    mr_model_input_shape(m, &rank, &shape);
    for (int i = 0; i < rank; i++)
        json_array_append_new(input, json_integer(shape[i]));
    for (size_t i = 0; i < o->n_metrics; i++)
        json_array_append_new(metrics, json_string(o->metrics[i]));
    json_object_set_new(root, "input", input);
    if (o->loss)
        json_object_set_new(root, "loss", json_string(mr_loss_text(o->loss)));
    if (o->optimizer)
        json_object_set_new(root, "optimizer", json_string(mr_optimizer_text(o->optimizer)));
    json_object_set_new(root, "metrics", metrics);
    if (mr_model_is_mixed(m))
        json_object_set_new(root, "mixed_precision", json_true());
    size_t expected =
        5 + (o->loss ? 1U : 0U) + (o->optimizer ? 1U : 0U) + (mr_model_is_mixed(m) ? 1U : 0U);
    mr_code rc = mr__add_checksums(root, sums) && json_object_size(root) == expected &&
                         json_array_size(input) == (size_t)rank &&
                         json_array_size(metrics) == o->n_metrics
                     ? mr__save_json(directory, training_name, root, st)
                     : mr_fail_memory(st, 0, training_name);
    json_decref(root);
    return rc;
}

/* Reads all variables to the host. */
static mr_code read_variables(const mr_model *m, mr_named_tensor *t, mr_status *st)
{
    for (size_t i = 0; i < mr_model_n_variables(m); i++) {
        const mr_variable *v = mr_model_variable(m, i);
        size_t bytes = mr_variable_size(v) * sizeof(float);
        float *values = mr_malloc(bytes);
        if (!values)
            return mr_fail_memory(st, bytes, "a copy of the weights");
        t[i] = (mr_named_tensor){.name = mr_variable_name(v),
                                 .dtype = MR_FLOAT32,
                                 .rank = mr_variable_rank(v),
                                 .data = values};
        memcpy(t[i].shape, mr_variable_shape(v), (size_t)t[i].rank * sizeof *t[i].shape);
        MR_TRY(mr_variable_read(v, values, st));
    }
    return MR_OK;
}

static mr_code save_weights(const mr_model *m, const char *directory, mr_status *st)
{
    size_t n = mr_model_n_variables(m);
    mr_named_tensor *t = mr_calloc(n, sizeof *t);
    if (!t)
        return mr_fail_memory(st, n * sizeof *t, "the weights' names");
    mr_code rc = read_variables(m, t, st);
    if (rc == MR_OK)
        rc = mr__save_tensors(directory, weights_name, t, n, st);
    for (size_t i = 0; i < n; i++)
        mr_free((void *)(uintptr_t)t[i].data);
    mr_free(t);
    return rc;
}

mr_code mr__save_into(const mr_model *m, const char *directory, const mr_save_opts *opts,
                      mr_status *st)
{
    static const mr_save_opts none;
    json_t *sums = json_object();
    mr_code rc = sums ? save_model_text(m, directory, sums, st)
                      : mr_fail_memory(st, 0, "checksums of a saved model");
    if (rc == MR_OK)
        rc = save_training(m, directory, opts ? opts : &none, sums, st);
    json_decref(sums);
    return rc == MR_OK ? save_weights(m, directory, st) : rc;
}

mr_code mr_model_save(const mr_model *m, const char *path, const mr_save_opts *opts, mr_status *st)
{
    mr__new_directory d;
    if (!mr_model_is_built(m))
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the model is not built, so it has no weights to save");
    MR_TRY(mr__new_directory_open(&d, path, mr__is_saved_name, st));
    return mr__new_directory_close(&d, mr__save_into(m, d.partial, opts, st), st);
}

mr_code mr_check_save_path(const char *path, mr_status *st)
{
    mr__new_directory d;
    MR_TRY(mr__new_directory_open(&d, path, mr__is_saved_name, st));
    return mr__new_directory_drop(&d, st);
}

/* ---- reading ---- */

static mr_code load_model_text(mr_saved *s, mr_status *st)
{
    void *bytes;
    size_t n;
    MR_TRY(mr__load_bytes(s->path, model_name, &bytes, &n, st));
    s->model = bytes;
    MR_TRY(mr__check_bytes(s->training, s->path, model_name, bytes, n, st));
    while (n > 0 && (s->model[n - 1] == '\n' || s->model[n - 1] == '\r'))
        s->model[--n] = '\0';
    if (strlen(s->model) != n || n == 0)
        return mr_fail(st, MR_DATA_LOSS, "%s/%s is empty or not text", s->path, model_name);
    return mr__find_preprocessing(s->path, &s->model, st);
}

static mr_code bad_training(const char *what, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "%s: %s", training_name, what);
}

static mr_code check_training(mr_saved *s, mr_status *st)
{
    const json_t *input = json_object_get(s->training, "input");
    const json_t *loss = json_object_get(s->training, "loss");
    const json_t *optimizer = json_object_get(s->training, "optimizer");
    const json_t *metrics = json_object_get(s->training, "metrics");
    if (!json_is_array(input) || json_array_size(input) > MR_MAX_RANK)
        return bad_training("input must be the shape of an example", st);
    s->rank = (int)json_array_size(input);
    for (int i = 0; i < s->rank; i++) {
        const json_t *d = json_array_get(input, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return bad_training("input must be the shape of an example", st);
        s->shape[i] = json_integer_value(d);
    }
    if ((loss && !json_is_string(loss)) || (optimizer && !json_is_string(optimizer)))
        return bad_training("loss and optimizer must be text", st);
    if (metrics && !json_is_array(metrics))
        return bad_training("metrics must be a list of names", st);
    for (size_t i = 0; i < json_array_size(metrics); i++)
        if (!json_is_string(json_array_get(metrics, i)))
            return bad_training("metrics must be a list of names", st);
    return MR_OK;
}

static mr_code read_saved(mr_saved *s, const char *path, mr_status *st)
{
    char *place = NULL;
    MR_TRY(mr__find_saved(path, &place, st));
    if (!place) {
        mr_fail(st, MR_NOT_FOUND, "no such saved model");
        mr_status_at(st, path, -1, -1);
        return MR_NOT_FOUND;
    }
    mr_code found = mr__latest_checkpoint(place, &s->path, st);
    if (found == MR_OK && !s->path)
        s->path = place;
    else
        mr_free(place);
    MR_TRY(found);
    mr_code rc = mr__load_json(s->path, training_name, &s->training, st);
    if (rc == MR_NOT_FOUND) {
        mr_fail(st, rc, "this is not a saved model: it has no %s", training_name);
        mr_status_at(st, s->path, -1, -1);
    }
    MR_TRY(rc);
    rc = check_training(s, st);
    if (rc != MR_OK) {
        mr_status_at(st, s->path, -1, -1);
        return rc;
    }
    MR_TRY(load_model_text(s, st));
    MR_TRY(mr__check_files(s->training, s->path, st));
    return mr__load_tensors(s->path, weights_name, &s->weights, st);
}

mr_code mr_saved_open(mr_saved **out, const char *path, mr_status *st)
{
    mr_saved *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a saved model");
    mr_code rc = read_saved(s, path, st);
    if (rc == MR_OK)
        *out = s;
    else
        mr_saved_close(s);
    return rc;
}

void mr_saved_close(mr_saved *s)
{
    if (!s)
        return;
    mr_safetensors_close(s->weights);
    json_decref(s->training);
    mr_free(s->model);
    mr_free(s->path);
    mr_free(s);
}

const char *mr_saved_path(const mr_saved *s)
{
    return s->path;
}

const char *mr_saved_model_text(const mr_saved *s)
{
    return s->model;
}

const char *mr_saved_loss(const mr_saved *s)
{
    return json_string_value(json_object_get(s->training, "loss"));
}

const char *mr_saved_optimizer(const mr_saved *s)
{
    return json_string_value(json_object_get(s->training, "optimizer"));
}

size_t mr_saved_n_metrics(const mr_saved *s)
{
    return json_array_size(json_object_get(s->training, "metrics"));
}

const char *mr_saved_metric(const mr_saved *s, size_t i)
{
    return json_string_value(json_array_get(json_object_get(s->training, "metrics"), i));
}

void mr_saved_input_shape(const mr_saved *s, int *rank, const int64_t **shape)
{
    *rank = s->rank;
    *shape = s->shape;
}

const mr_safetensors *mr__saved_weights(const mr_saved *s)
{
    return s->weights;
}

mr_code mr__latest_checkpoint(const char *path, char **out, mr_status *st)
{
    void *bytes;
    size_t n;
    *out = NULL;
    if (mr__store_is_url(path))
        return mr__remote_saved_find(path, out, st);
    char *file = mr__path_in(path, latest_name);
    if (!file)
        return mr_fail_memory(st, strlen(path), "a file name");
    bool there = mr__is_there(file);
    mr_free(file);
    if (!there)
        return MR_OK;
    MR_TRY(mr__load_bytes(path, latest_name, &bytes, &n, st));
    char *name = bytes;
    name[strcspn(name, "\n")] = '\0';
    mr_code rc =
        *name && strlen(name) < n && !strchr(name, '/')
            ? MR_OK
            : mr_fail(st, MR_DATA_LOSS, "%s/%s does not name a checkpoint", path, latest_name);
    if (rc == MR_OK && !(*out = mr__path_in(path, name)))
        rc = mr_fail_memory(st, strlen(path), "a file name");
    mr_free(bytes);
    return rc;
}

/* ---- into a model ---- */

mr_code mr__check_tensor(const mr_named_tensor *t, const char *name, int rank, const int64_t *shape,
                         mr_status *st)
{
    char want[128], have[128];
    if (!t)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the file has no %s, which the model has", name);
    if (t->dtype != MR_FLOAT32)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s is %s in the file, but float32 in the model",
                       name, mr_dtype_name(t->dtype));
    if (t->rank == rank && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) == 0)
        return MR_OK;
    mr__shape_text(rank, shape, want, sizeof want);
    mr__shape_text(t->rank, t->shape, have, sizeof have);
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s has shape %s in the file, but %s in the model",
                   name, have, want);
}

mr_code mr__check_weights(const mr_safetensors *f, const mr_model *m, mr_status *st)
{
    size_t n = mr_model_n_variables(m), v = 0;
    for (size_t i = 0; i < n; i++) {
        const mr_variable *want = mr_model_variable(m, i);
        const char *name = mr_variable_name(want);
        MR_TRY(mr__check_tensor(mr_safetensors_find(f, name), name, mr_variable_rank(want),
                                mr_variable_shape(want), st));
    }
    for (size_t i = 0; i < mr_safetensors_count(f) && n < mr_safetensors_count(f); i++) {
        const char *name = mr_safetensors_at(f, i)->name;
        for (v = 0; v < n && strcmp(mr_variable_name(mr_model_variable(m, v)), name) != 0;)
            v++;
        if (v == n)
            return mr_fail(st, MR_INVALID_ARGUMENT, "the file has %s, which the model lacks", name);
    }
    return MR_OK;
}

mr_code mr__tensor_floats(const mr_named_tensor *t, const float **values, float **owned,
                          mr_status *st)
{
    size_t bytes = mr_named_tensor_bytes(t);
    *owned = NULL;
    *values = t->data;
    if ((uintptr_t)t->data % sizeof(float) == 0)
        return MR_OK;
    *owned = mr_memdup(t->data, bytes);
    *values = *owned;
    return *owned ? MR_OK : mr_fail_memory(st, bytes, "the weights of a variable");
}

mr_code mr_saved_load(const mr_saved *s, mr_model *m, mr_status *st)
{
    mr_code rc = mr__check_weights(s->weights, m, st);
    if (rc != MR_OK) {
        mr_status_at(st, s->path, -1, -1);
        return rc;
    }
    for (size_t i = 0; i < mr_model_n_variables(m) && rc == MR_OK; i++) {
        mr_variable *v = mr_model_variable(m, i);
        const float *values;
        float *owned;
        rc = mr__tensor_floats(mr_safetensors_find(s->weights, mr_variable_name(v)), &values,
                               &owned, st);
        if (rc == MR_OK)
            rc = mr_variable_assign(v, values, st);
        mr_free(owned);
    }
    return rc;
}

bool mr__saved_is_mixed(const mr_saved *s)
{
    return json_is_true(json_object_get(s->training, "mixed_precision"));
}

/* Warns if the built model m and the saved model differ in precision. */
static void compare_precision(const mr_saved *saved, const mr_model *m)
{
    bool mixed = mr__saved_is_mixed(saved);
    if (mixed != mr_model_is_mixed(m))
        mr_log(MR_LOG_WARNING, "the saved model was trained %s mixed precision, and continues %s",
               mixed ? "in" : "without", mixed ? "without it" : "with it");
}

mr_code mr_saved_build(const mr_saved *saved, mr_model *m, mr_strategy *s,
                       const mr_model_opts *opts, mr_status *st)
{
    const mr_model_opts as_saved = {
        .mixed_precision = json_is_true(json_object_get(saved->training, "mixed_precision"))};
    if (!mr_model_is_built(m))
        MR_TRY(mr_model_build(m, s, saved->rank, saved->shape, opts ? opts : &as_saved, st));
    compare_precision(saved, m);
    return mr_saved_load(saved, m, st);
}
