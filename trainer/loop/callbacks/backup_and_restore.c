/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps one checkpoint, resumes from it when training restarts, and removes it when training has
 * succeeded. In the directory:
 *
 *   backup/     the checkpoint
 *   checkpoint  names it
 *   begun.json  the state of the callbacks when training began: a run that was killed before its
 *               first backup begins again, and its callbacks cut off what they had written
 *   lock        held while a run uses the directory */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/files/process_lock.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/remote/store_internal.h"
#include "pipeline/version.h"
#include "trainer/files/json_file.h"
#include "trainer/loop/callback_impl.h"
#include "trainer/loop/checkpoint.h"
#include "trainer/loop/fit_loop.h"
#include "trainer/loop/worker_bytes.h"
#include "trainer/exchange/saved_model_impl.h"

static const char backup_name[] = "backup", latest_name[] = "checkpoint",
                  begun_name[] = "begun.json", lock_name[] = "lock";

struct params {
    char *directory;
    int64_t save_freq;
    char *on_error;
};

struct state {
    const struct params *params;
    mr_process_lock *lock; /* owned; NULL: the directory is not locked */
};

static mr_code path_of(const struct state *s, const char *name, char **out, mr_status *st)
{
    *out = mr__path_in(s->params->directory, name);
    return *out ? MR_OK : mr_fail_memory(st, strlen(s->params->directory), "a file name");
}

/* ---- the lock ---- */

static void unlock(struct state *s)
{
    mr_process_lock_release(s->lock);
    s->lock = NULL;
}

static mr_code try_lock(struct state *s, mr_status *st)
{
    char *path;
    if (mr__store_is_url(s->params->directory))
        return MR_OK; /* a store has no locks */
    MR_TRY(path_of(s, lock_name, &path, st));
    mr_code rc = mr__make_directories(s->params->directory, st);
    if (rc == MR_OK)
        rc = mr_process_lock_take(&s->lock, path, st);
    mr_free(path);
    if (rc == MR_OK)
        rc = mr__remove_partial(mr__path_in(s->params->directory, latest_name), st);
    if (rc == MR_OK)
        rc = mr__remove_partial(mr__path_in(s->params->directory, begun_name), st);
    return rc;
}

static bool only_warns(const struct state *s)
{
    return strcmp(s->params->on_error, "warn") == 0;
}

/* A second run would overwrite the backups of the first. */
static mr_code lock(struct state *s, const mr_train_event *e, mr_status *st)
{
    char message[1024];
    mr_status own;
    unlock(s);
    mr_code rc = mr__writes_files(e) ? try_lock(s, &own) : MR_OK;
    if (rc == MR_OK)
        return MR_OK;
    if (rc == MR_UNAVAILABLE) {
        rc = mr_fail(st, MR_FAILED_PRECONDITION,
                     "another run keeps its backup in this directory, and has not ended: wait for "
                     "its end, or name another directory");
        mr_status_at(st, s->params->directory, -1, -1);
        return rc;
    }
    /* Not every file system has locks. */
    if (!only_warns(s) && rc != MR_UNIMPLEMENTED && own.sys_errno != ENOLCK) {
        if (st)
            *st = own;
        return rc;
    }
    mr_status_format(&own, message, sizeof message);
    mr_log(MR_LOG_WARNING, "backup_and_restore: %s", message);
    return MR_OK;
}

/* ---- the beginning ---- */

static mr_code note_begin(const struct state *s, const mr_train_event *e, mr_status *st)
{
    json_t *callbacks;
    MR_TRY(mr__remember(e->opts, e->model, s->params->directory, &callbacks, st));
    json_t *root = json_pack("{s:i, s:s, s:o}", "format", (int)MR__SAVED_FORMAT, "millrace",
                             MR_VERSION, "callbacks", callbacks);
    mr_code rc = root ? mr__replace_json(s->params->directory, begun_name, root, st)
                      : mr_fail_memory(st, 0, begun_name);
    json_decref(root);
    return rc;
}

static mr_code epoch_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    const struct state *s = ctx;
    mr_status own;
    if (e->step > 0 || e->epoch > 1 || !mr__writes_files(e))
        return MR_OK;
    return mr__save_ended(e, s->params->on_error, note_begin(s, e, &own), &own, st);
}

/* Of a run that was killed before its first backup. */
static mr_code recall_begin(const struct state *s, const mr_train_event *e, mr_status *st)
{
    char *path;
    json_t *root = NULL;
    mr_status why;
    bool found;
    if (!mr__writes_files(e))
        return MR_OK;
    MR_TRY(path_of(s, begun_name, &path, st));
    mr_code rc = mr__look_there(path, &found, st);
    mr_free(path);
    if (rc != MR_OK || !found)
        return rc;
    rc = mr__load_json(s->params->directory, begun_name, &root, &why);
    if (rc == MR_OK)
        rc = mr__recalled_load(&e->loop->recalled, s->params->directory, root, e->model, &why);
    json_decref(root);
    if (rc == MR_RESOURCE_EXHAUSTED && st)
        *st = why;
    if (rc == MR_OK || rc == MR_RESOURCE_EXHAUSTED)
        return rc;
    char message[1024];
    mr_status_format(&why, message, sizeof message);
    mr_log(MR_LOG_WARNING, "callbacks do not continue their files: %s", message);
    return MR_OK;
}

static mr_code train_begin(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    char *path;
    MR_TRY(lock(s, e, st));
    MR_TRY(path_of(s, backup_name, &path, st));
    char *place = NULL;
    mr_code rc = mr__find_saved(path, &place, st);
    bool found = place != NULL;
    mr_free(place);
    rc = mr__workers_agree(e->strategy, "backup", rc, found, 0, st);
    if (rc == MR_OK)
        rc = mr__check_place(e, path, s->params->on_error, st);
    if (rc == MR_OK)
        rc = found ? mr_checkpoint_restore(e, path, st) : recall_begin(s, e, st);
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

static mr_code epoch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    const struct state *s = ctx;
    return s->params->save_freq == 0 ? save(s, e, st) : MR_OK;
}

/* Removes the checkpoint, the file that names it, and the record of the beginning. */
static mr_code drop(const struct state *s, mr_status *st)
{
    char *backup, *latest = NULL, *begun = NULL;
    MR_TRY(path_of(s, backup_name, &backup, st));
    mr_code rc = path_of(s, latest_name, &latest, st);
    if (rc == MR_OK)
        rc = path_of(s, begun_name, &begun, st);
    if (rc == MR_OK)
        rc = mr__remove_saved(latest, st);
    bool there = false;
    if (rc == MR_OK)
        rc = mr__look_there(backup, &there, st);
    if (rc == MR_OK && there)
        rc = mr__drop_saved(backup, st);
    if (rc == MR_OK)
        rc = mr__remove_saved(begun, st);
    mr_free(backup);
    mr_free(latest);
    mr_free(begun);
    return rc;
}

static mr_code train_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    struct state *s = ctx;
    mr_status own;
    mr_code rc = MR_OK;
    bool done = e->error == MR_OK && !e->stopping && mr__writes_files(e);
    if (done)
        rc = mr__save_ended(e, s->params->on_error, drop(s, &own), &own, st);
    unlock(s);
    if (done)
        mr__remove_empty(s->params->directory);
    return rc;
}

static void clear(void *ctx)
{
    unlock(ctx);
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
              .epoch_begin = epoch_begin,
              .batch_end = batch_end,
              .epoch_end = epoch_end,
              .train_end = train_end,
              .saves = saves,
              .free = clear,
              .backs_up = true},
    .state_size = sizeof(struct state),
    .check = check,
};
