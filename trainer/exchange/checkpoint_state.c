/* SPDX-License-Identifier: Apache-2.0 */
/* state.json as a struct, and the list of the checkpoints in a directory. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "trainer/loop/checkpoint_impl.h"

enum { MAX_CHECKPOINTS = 1 << 20 };

json_t *mr__json_number(double v)
{
    if (isfinite(v))
        return json_real(v);
    return json_string(isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
}

void mr__position_name(char name[MR__POSITION_NAME], size_t worker)
{
    snprintf(name, MR__POSITION_NAME, "position-%zu", worker);
}

bool mr__read_json_number(const json_t *v, double *out)
{
    const char *text = json_string_value(v);
    if (json_is_number(v))
        *out = json_number_value(v);
    else if (text && strcmp(text, "nan") == 0)
        *out = (double)NAN;
    else if (text && (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0))
        *out = *text == '-' ? -(double)INFINITY : (double)INFINITY;
    else
        return false;
    return true;
}

/* Totals of every metric of every replica. */
static bool check_totals(const json_t *all, const mr__train_state *s)
{
    if (json_array_size(all) != (size_t)s->replicas)
        return false;
    for (size_t r = 0; r < json_array_size(all); r++) {
        const json_t *of = json_array_get(all, r);
        if (!json_is_array(of) || json_array_size(of) != (size_t)s->n_metrics)
            return false;
        for (size_t i = 0; i < json_array_size(of); i++) {
            const json_t *totals = json_array_get(of, i);
            double v;
            if (json_array_size(totals) == 0)
                return false;
            for (size_t k = 0; k < json_array_size(totals); k++)
                if (!mr__read_json_number(json_array_get(totals, k), &v))
                    return false;
        }
    }
    return true;
}

mr_code mr__read_state(const json_t *root, mr__train_state *s, mr_status *st)
{
    int64_t seed, steps;
    const struct {
        const char *name;
        int64_t *to;
    } integers[] = {{"epoch", &s->epoch},     {"epoch_step", &s->epoch_step},
                    {"step", &s->step},       {"seed", &seed},
                    {"model_steps", &steps},  {"iterations", &s->iterations},
                    {"slots", &s->n_slots},   {"rows", &s->rows},
                    {"workers", &s->workers}, {"replicas", &s->replicas}};
    const struct {
        const char *name;
        double *to;
    } numbers[] = {
        {"learning_rate", &s->learning_rate}, {"loss_sum", &s->loss_sum}, {"loss", &s->loss}};
    const struct {
        const char *name;
        bool *to;
    } flags[] = {
        {"epoch_over", &s->epoch_over}, {"pass_over", &s->pass_over}, {"scheduled", &s->scheduled}};
    const char *bad = NULL;
    for (size_t i = 0; i < sizeof integers / sizeof *integers && !bad; i++) {
        const json_t *v = json_object_get(root, integers[i].name);
        *integers[i].to = json_integer_value(v);
        bool is_seed = integers[i].to == &seed;
        if (!json_is_integer(v) || (*integers[i].to < 0 && !is_seed))
            bad = integers[i].name;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !bad; i++)
        if (!mr__read_json_number(json_object_get(root, numbers[i].name), numbers[i].to))
            bad = numbers[i].name;
    for (size_t i = 0; i < sizeof flags / sizeof *flags && !bad; i++) {
        const json_t *v = json_object_get(root, flags[i].name);
        *flags[i].to = json_is_true(v);
        if (!json_is_boolean(v))
            bad = flags[i].name;
    }
    s->optimizer = json_string_value(json_object_get(root, "optimizer"));
    s->metric_totals = json_object_get(root, "metric_totals");
    s->n_metrics = (int64_t)json_array_size(json_array_get(s->metric_totals, 0));
    s->output_sums = json_object_get(root, "output_loss_sums");
    for (size_t i = 0; i < json_array_size(s->output_sums) && !bad; i++) {
        double v;
        if (!mr__read_json_number(json_array_get(s->output_sums, i), &v))
            bad = "output_loss_sums";
    }
    if (!bad && !s->optimizer)
        bad = "optimizer";
    if (!bad && (s->workers < 1 || s->replicas < 1 || s->replicas > 1 << 20))
        bad = "replicas";
    if (!bad && !check_totals(s->metric_totals, s))
        bad = "metric_totals";
    if (bad)
        return mr_fail(st, MR_DATA_LOSS, "state.json: %s is missing or not what it must be", bad);
    s->seed = (uint64_t)seed;
    s->model_steps = (uint64_t)steps;
    return MR_OK;
}

/* ---- the list ---- */

typedef struct found {
    char *name;
    char why[256];
    mr_checkpoint_info info;
} found;

typedef struct listing {
    const char *directory;
    char *latest; /* NULL: none is named */
    found *all;
    size_t n, capacity;
} listing;

static mr_code add_size(void *ctx, const char *name, mr_status *st)
{
    found *f = ctx;
    struct stat s;
    (void)st;
    char *path = mr__path_in(f->name, name); /* the whole path, while it is looked at */
    if (path && mr__sys->stat(path, &s) == 0 && S_ISREG(s.st_mode))
        f->info.bytes += (uint64_t)s.st_size;
    mr_free(path);
    return MR_OK;
}

static mr_code check_parts(const char *path, mr__train_state *state, mr_status *st)
{
    mr_saved *saved = NULL;
    mr_safetensors *slots = NULL;
    json_t *root = NULL;
    mr_code rc = mr_saved_open(&saved, path, st);
    if (rc == MR_OK)
        rc = mr__load_tensors(path, "optimizer.safetensors", &slots, st);
    if (rc == MR_OK)
        rc = mr__load_json(path, "state.json", &root, st);
    if (rc == MR_OK)
        rc = mr__read_state(root, state, st);
    if (rc == MR_OK)
        rc = mr__check_files(root, path, st);
    mr_saved_close(saved);
    mr_safetensors_close(slots);
    json_decref(root);
    return rc;
}

/* What is in a directory that may be a checkpoint. */
static void look_into(found *f, const char *path)
{
    mr_status st;
    mr__train_state state = {0};
    char *name = f->name;
    f->name = (char *)(uintptr_t)path;
    if (mr__each_name(path, add_size, f, NULL) != MR_OK)
        f->info.bytes = 0;
    f->name = name;
    f->info.whole = check_parts(path, &state, &st) == MR_OK;
    if (f->info.whole) {
        f->info.epoch = state.epoch;
        f->info.step = state.step;
        f->info.loss = state.loss;
    } else
        snprintf(f->why, sizeof f->why, "%.255s", st.message);
    if (f->info.whole && *name == '.') {
        f->info.whole = false;
        snprintf(f->why, sizeof f->why, "it was being written");
    }
}

/* Hidden names are those of checkpoints being written; other directories are looked into. */
static mr_code add(void *ctx, const char *name, mr_status *st)
{
    listing *l = ctx;
    size_t n = strlen(name);
    bool partial = n > 9 && *name == '.' && strcmp(name + n - 8, ".partial") == 0;
    if (*name == '.' && !partial)
        return MR_OK;
    char *path = mr__path_in(l->directory, name);
    char *state = path ? mr__path_in(path, "training.json") : NULL;
    char *weights = path ? mr__path_in(path, "state.json") : NULL;
    mr_code rc = MR_OK;
    if (!path || !state || !weights)
        rc = mr_fail_memory(st, n, "a file name");
    bool is_one = rc == MR_OK && mr__is_directory(path) &&
                  (partial || mr__is_there(state) || mr__is_there(weights));
    if (is_one) {
        void *all = l->all;
        rc = mr_grow(&all, &l->capacity, l->n + 1, sizeof *l->all, MAX_CHECKPOINTS, "checkpoints",
                     st);
        l->all = all;
        if (rc == MR_OK) {
            found *f = &l->all[l->n];
            *f = (found){.name = mr_strdup(name)};
            if (!f->name)
                rc = mr_fail_memory(st, n, "a file name");
            else {
                l->n++;
                look_into(f, path);
            }
        }
    }
    mr_free(path);
    mr_free(state);
    mr_free(weights);
    return rc;
}

static int by_step(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->info.step != y->info.step)
        return x->info.step < y->info.step ? -1 : 1;
    return strcmp(x->name, y->name);
}

mr_code mr_checkpoint_list(const char *directory,
                           mr_code (*fn)(void *ctx, const mr_checkpoint_info *c, mr_status *st),
                           void *ctx, mr_status *st)
{
    listing l = {.directory = directory};
    mr_code rc = mr__each_name(directory, add, &l, st);
    if (rc == MR_OK)
        rc = mr__latest_checkpoint(directory, &l.latest, st);
    if (l.n > 0)
        qsort(l.all, l.n, sizeof *l.all, by_step);
    for (size_t i = 0; i < l.n && rc == MR_OK; i++) {
        found *f = &l.all[i];
        f->info.name = f->name;
        f->info.why = f->why;
        f->info.latest = l.latest && strcmp(mr__name_in_path(l.latest), f->name) == 0;
        rc = fn(ctx, &f->info, st);
    }
    for (size_t i = 0; i < l.n; i++)
        mr_free(l.all[i].name);
    mr_free(l.all);
    mr_free(l.latest);
    return rc;
}
