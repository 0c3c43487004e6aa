/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps one checkpoint, resumes from it when training restarts, and removes it when training has
 * succeeded. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "trainer/loop/callback_impl.h"
#include "trainer/loop/checkpoint.h"
#include "trainer/exchange/saved_model_impl.h"
#include "trainer/strategy/strategy_impl.h"

static const char backup_name[] = "backup", latest_name[] = "checkpoint";

struct params {
    char *directory;
    int64_t save_freq;
    char *on_error;
};

struct state {
    const struct params *params;
};

static mr_code path_of(const struct state *s, const char *name, char **out, mr_status *st)
{
    *out = mr__path_in(s->params->directory, name);
    return *out ? MR_OK : mr_fail_memory(st, strlen(s->params->directory), "a file name");
}

/* Checks that either all workers found it, or none. */
static mr_code agree(const mr_train_event *e, bool mine, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(e->strategy);
    double found = mine ? 1 : 0;
    if (workers == 1)
        return MR_OK;
    double *all = mr_calloc(workers, sizeof *all);
    if (!all)
        return mr_fail_memory(st, workers * sizeof *all, "numbers of workers");
    mr_code rc = mr__world_exchange(mr__strategy_world(e->strategy), MR__CHANNEL_RESULTS, &found, 1,
                                    all, st);
    for (size_t i = 0; i < workers && rc == MR_OK; i++)
        if ((all[i] > 0) != mine)
            rc = mr_fail(st, MR_FAILED_PRECONDITION,
                         "worker %zu finds a backup, but worker %zu does not; use a directory that "
                         "all workers can read",
                         mine ? mr_strategy_worker(e->strategy) : i,
                         mine ? i : mr_strategy_worker(e->strategy));
    mr_free(all);
    return rc;
}

static mr_code train_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    const struct state *s = ctx;
    char *path;
    MR_TRY(path_of(s, backup_name, &path, st));
    bool found = mr__is_there(path);
    mr_code rc = agree(e, found, st);
    if (rc == MR_OK)
        rc = mr__check_place(e, path, s->params->on_error, st);
    if (rc == MR_OK && found)
        rc = mr_checkpoint_restore(e, path, st);
    if (rc == MR_OK && found)
        mr_log(MR_LOG_INFO, "resumes after step %" PRId64 " of epoch %" PRId64 ", from %s", e->step,
               e->epoch, path);
    mr_free(path);
    return rc;
}

static mr_code save(const struct state *s, const mr_train_event *e, mr_status *st)
{
    char *path;
    mr_status own;
    MR_TRY(path_of(s, backup_name, &path, st));
    mr_code rc =
        mr__save_ended(e, s->params->on_error, mr_checkpoint_save(e, path, &own), &own, st);
    mr_free(path);
    return rc;
}

static bool saves(void *ctx, const mr_train_event *e)
{
    int64_t every = ((const struct state *)ctx)->params->save_freq;
    return e->stopping || (every > 0 && e->step % every == 0);
}

static mr_code batch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    return saves(ctx, e) ? save(ctx, e, st) : MR_OK;
}

/* If training was stopped within the epoch, it has been saved already. */
static mr_code epoch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    const struct state *s = ctx;
    (void)st;
    return s->params->save_freq == 0 && !e->stopping ? save(s, e, st) : MR_OK;
}

/* Removes the checkpoint and the file that names it. */
static mr_code drop(const struct state *s, mr_status *st)
{
    char *backup, *latest = NULL;
    MR_TRY(path_of(s, backup_name, &backup, st));
    mr_code rc = path_of(s, latest_name, &latest, st);
    if (rc == MR_OK)
        rc = mr__remove_saved(latest, st);
    if (rc == MR_OK && mr__is_there(backup))
        rc = mr__drop_saved(backup, st);
    if (rc == MR_OK)
        mr__remove_empty(s->params->directory);
    mr_free(backup);
    mr_free(latest);
    return rc;
}

static mr_code train_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    const struct state *s = ctx;
    mr_status own;
    if (e->error != MR_OK || e->stopping || !mr__writes_files(e))
        return MR_OK;
    return mr__save_ended(e, s->params->on_error, drop(s, &own), &own, st);
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__check_directory("backup_and_restore", ((const struct params *)params)->directory,
                               st);
}

static const mr_param table[] = {
    MR_ARG(struct params, directory, .doc = "Directory of the backup."),
    MR_PARAM_OWN(struct params, save_freq, mr__param_freq, .def.s = "epoch",
                 .doc = "\"epoch\", or a number of steps."),
    MR_PARAM(struct params, on_error, .def.s = "fail", .names = mr__reactions,
             .doc = "Whether a failed save ends training."),
    {0}};

const mr_callback_desc mr__callback_backup_and_restore = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "backup_and_restore",
           .doc = "Resumes an interrupted run from its last backup.",
           .example = "backup_and_restore(\"backup\", save_freq=100)",
           .params = table,
           .params_size = sizeof(struct params)},
    .calls = {.train_begin = train_begin,
              .batch_end = batch_end,
              .epoch_end = epoch_end,
              .train_end = train_end,
              .saves = saves,
              .backs_up = true},
    .state_size = sizeof(struct state),
    .check = check,
};
