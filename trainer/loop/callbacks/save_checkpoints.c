/* SPDX-License-Identifier: Apache-2.0 */
/* Saves checkpoints: each under a separate name, or all under one. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/system/retry.h"
#include "trainer/loop/callback_impl.h"
#include "trainer/loop/checkpoint.h"
#include "trainer/exchange/saved_model_impl.h"

struct params {
    char *path;
    int64_t save_freq;
    bool save_best_only;
    char *monitor, *mode;
    int64_t keep;
    char *on_error;
};

struct state {
    const struct params *params;
    bool writes; /* this process does */
    bool has_best;
    double best;
    int64_t saved_step; /* step of the latest; prevents saving it again at the end of the epoch */
};

/* The directory of the checkpoints, owned; NULL: out of memory. */
static char *directory_of(const char *path)
{
    const char *name = mr__name_in_path(path);
    return name == path ? mr_strdup(".") : mr_strndup(path, (size_t)(name - path));
}

/* Whether the name matches the pattern's last component for some numbers. */
static bool is_of_pattern(const char *pattern, const char *name)
{
    while (*pattern) {
        if (*pattern != '{') {
            if (*pattern++ != *name++)
                return false;
            continue;
        }
        if (*name < '0' || *name > '9')
            return false;
        while (*name >= '0' && *name <= '9')
            name++;
        pattern = strchr(pattern, '}') + 1;
    }
    return !*name;
}

typedef struct keeping {
    const struct params *params;
    const char *directory;
    int64_t n, drop; /* number of checkpoints; number of the oldest to remove */
} keeping;

static mr_code count_one(void *ctx, const mr_checkpoint_info *c, mr_status *st)
{
    keeping *k = ctx;
    (void)st;
    k->n += c->whole && is_of_pattern(mr__name_in_path(k->params->path), c->name);
    return MR_OK;
}

static mr_code drop_one(void *ctx, const mr_checkpoint_info *c, mr_status *st)
{
    keeping *k = ctx;
    if (k->drop == 0 || c->latest || !c->whole ||
        !is_of_pattern(mr__name_in_path(k->params->path), c->name))
        return MR_OK;
    char *path = mr__path_in(k->directory, c->name);
    if (!path)
        return mr_fail_memory(st, strlen(c->name), "a file name");
    k->drop--;
    mr_code rc = mr__drop_saved(path, st);
    mr_free(path);
    return rc;
}

/* Removes the oldest while there are more than keep. */
static mr_code remove_old(const struct params *o, mr_status *st)
{
    if (o->keep == 0)
        return MR_OK;
    char *directory = directory_of(o->path);
    if (!directory)
        return mr_fail_memory(st, strlen(o->path), "a file name");
    keeping k = {o, directory, 0, 0};
    mr_code rc = mr_checkpoint_list(directory, count_one, &k, st);
    k.drop = k.n > o->keep ? k.n - o->keep : 0;
    if (rc == MR_OK && k.drop > 0)
        rc = mr_checkpoint_list(directory, drop_one, &k, st);
    mr_free(directory);
    return rc;
}

static mr_code save_now(struct state *s, const mr_train_event *e, mr_status *st)
{
    char *path;
    MR_TRY(mr__fill_path(s->params->path, e->epoch, e->step, &path, st));
    mr_code rc = mr_checkpoint_save(e, path, st);
    mr_free(path);
    if (rc == MR_OK && mr__writes_files(e))
        rc = remove_old(s->params, st);
    return rc;
}

static mr_code save(struct state *s, const mr_train_event *e, mr_status *st)
{
    const struct params *o = s->params;
    mr_status own;
    double v;
    if (o->save_best_only) {
        if (!mr__watched(e, "checkpoint", o->monitor, &v))
            return MR_OK;
        bool more = mr__prefers_more(o->monitor, o->mode);
        if (isnan(v) || (s->has_best && !(more ? v > s->best : v < s->best)))
            return MR_OK;
        s->best = v;
        s->has_best = true;
    }
    s->saved_step = e->step;
    return mr__save_ended(e, o->on_error, save_now(s, e, &own), &own, st);
}

static bool saves(void *ctx, const mr_train_event *e)
{
    int64_t every = ((const struct state *)ctx)->params->save_freq;
    return every > 0 && e->step % every == 0;
}

static mr_code batch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    return saves(ctx, e) ? save(ctx, e, st) : MR_OK;
}

static mr_code epoch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    return s->params->save_freq == 0 ? save(s, e, st) : MR_OK;
}

/* Writes or removes the file that signals that no more checkpoints will follow. */
static mr_code mark(const struct state *s, const mr_train_event *e, bool finished, mr_status *st)
{
    char *directory = directory_of(s->params->path);
    char *file = directory ? mr__path_in(directory, "finished") : NULL;
    mr_code rc = MR_OK;
    if (!file)
        rc = mr_fail_memory(st, strlen(s->params->path), "a file name");
    else if (mr__writes_files(e) && finished)
        rc = mr_file_replace(file, "", 0, st);
    else if (mr__writes_files(e))
        rc = mr__remove_saved(file, st);
    mr_free(file);
    mr_free(directory);
    return rc;
}

static mr_code train_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    char *path;
    s->writes = mr__writes_files(e);
    s->has_best = false;
    s->saved_step = 0;
    if (s->params->save_best_only)
        mr__check_watched(e, "checkpoint", s->params->monitor);
    MR_TRY(mark(s, e, false, st));
    MR_TRY(mr__fill_path(s->params->path, 1, 1, &path, st));
    mr_code rc = mr__check_place(e, path, s->params->on_error, st);
    mr_free(path);
    return rc;
}

static mr_code train_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    const struct state *s = ctx;
    mr_status own;
    if (e->error != MR_OK || e->stopping || s->saved_step == 0)
        return MR_OK;
    return mr__save_ended(e, s->params->on_error, mark(s, e, true, &own), &own, st);
}

static void remember(const void *ctx, mr_callback_memory *out)
{
    const struct state *s = ctx;
    *out = (mr_callback_memory){
        .of = s->params->monitor, .n = 3, .numbers = {s->has_best, s->best, (double)s->saved_step}};
}

/* ---- what a killed run left ---- */

static bool ends_with(const char *name, size_t n, const char *ending)
{
    size_t end = strlen(ending);
    return n > end + 1 && strcmp(name + n - end, ending) == 0;
}

/* ".NAME.old" is the only whole checkpoint if NAME was not replaced yet: it gets its name back. */
static mr_code end_replacing(const char *hidden, const char *visible, mr_status *st)
{
    if (mr__is_there(visible))
        return mr__remove_saved(hidden, st);
    return mr__rename_again(hidden, visible) == 0
               ? MR_OK
               : mr_fail_errno(st, errno, "cannot rename %s to %s", hidden, visible);
}

/* ".NAME.partial" or ".NAME.old" of a checkpoint: it was writing, removing or replacing it. */
static mr_code remove_hidden(void *ctx, const char *name, mr_status *st)
{
    const keeping *k = ctx;
    size_t n = strlen(name);
    bool is_old = ends_with(name, n, ".old");
    if (*name != '.' || (!is_old && !ends_with(name, n, ".partial")))
        return MR_OK;
    char *own = mr_strndup(name + 1, n - 1 - strlen(is_old ? ".old" : ".partial"));
    char *hidden = mr__path_in(k->directory, name);
    char *visible = own ? mr__path_in(k->directory, own) : NULL;
    mr_code rc = hidden && visible ? MR_OK : mr_fail_memory(st, n, "a file name");
    if (rc == MR_OK && is_of_pattern(mr__name_in_path(k->params->path), own))
        rc = is_old ? end_replacing(hidden, visible, st) : mr__remove_saved(hidden, st);
    mr_free(visible);
    mr_free(hidden);
    mr_free(own);
    return rc;
}

static mr_code remove_left(const struct params *o, mr_status *st)
{
    static const char *const files[] = {"checkpoint", "finished"};
    char *directory = directory_of(o->path);
    if (!directory)
        return mr_fail_memory(st, strlen(o->path), "a file name");
    mr_code rc = MR_OK;
    for (size_t i = 0; i < sizeof files / sizeof *files && rc == MR_OK; i++)
        rc = mr__remove_partial(mr__path_in(directory, files[i]), st);
    if (rc == MR_OK && mr__is_directory(directory))
        rc = mr__each_name(directory, remove_hidden,
                           &(keeping){.params = o, .directory = directory}, st);
    mr_free(directory);
    return rc;
}

static mr_code recall(void *ctx, const mr_callback_memory *m, mr_status *st)
{
    struct state *s = ctx;
    if (s->writes && strcmp(s->params->on_error, "warn") != 0)
        MR_TRY(remove_left(s->params, st));
    s->has_best = m->numbers[0] > 0;
    s->best = m->numbers[1];
    s->saved_step = mr__remembered_count(m->numbers[2]);
    return MR_OK;
}

static mr_code check(const void *params, mr_status *st)
{
    const struct params *o = params;
    char *path;
    if (!*mr__name_in_path(o->path))
        return mr_fail(st, MR_INVALID_ARGUMENT, "checkpoint: '%s' does not name a file", o->path);
    if (strchr(o->path, '{') && strchr(o->path, '{') < mr__name_in_path(o->path))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "checkpoint: {epoch} and {step} belong in the last part of '%s'", o->path);
    MR_TRY(mr__fill_path(o->path, 1, 1, &path, st));
    mr_free(path);
    return MR_OK;
}

const char *mr_checkpoint_callback_path(const mr_callback *c)
{
    return c && c->saves == saves ? ((const struct state *)c->ctx)->params->path : NULL;
}

static const mr_param table[] = {
    MR_ARG(struct params, path, .doc = "Path of each checkpoint; {epoch} and {step} are replaced."),
    MR_PARAM_OWN(struct params, save_freq, mr__param_freq, .def.s = "epoch",
                 .doc = "\"epoch\", or a number of steps."),
    MR_PARAM(struct params, save_best_only,
             .doc = "Saves only when the watched value is the best so far."),
    MR_PARAM(struct params, monitor, .def.s = "val_loss", .doc = "Name of the value to watch."),
    MR_PARAM(struct params, mode, .def.s = "auto", .names = mr__modes,
             .doc = "Whether smaller or larger values are better; auto: decided by the name."),
    MR_PARAM_OWN(struct params, keep, mr__param_keep, .def.s = "all",
                 .doc = "\"all\", or the number of checkpoints to keep: earlier ones are removed."),
    MR_PARAM(struct params, on_error, .def.s = "fail", .names = mr__reactions,
             .doc = "Whether a failed save ends training."),
    {0}};

const mr_callback_desc mr__callback_checkpoint = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "checkpoint",
           .doc = "Saves the model and everything that training needs to resume.",
           .example = "checkpoint(\"dir/ckpt_{epoch}\", keep=3)",
           .params = table,
           .params_size = sizeof(struct params)},
    .calls = {.train_begin = train_begin,
              .batch_end = batch_end,
              .epoch_end = epoch_end,
              .train_end = train_end,
              .saves = saves,
              .remember = remember,
              .recall = recall},
    .state_size = sizeof(struct state),
    .check = check,
};
