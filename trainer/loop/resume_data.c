/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/resume_data.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "trainer/loop/fit_loop.h"

static const char of_function[] = "function", elastic[] = "elastic";

/* ---- saving ---- */

enum { POLICY_NAME = 32 };

/* "DATA", "elastic 64", ... */
static const char *policy_now(const mr__feed *f, char name[POLICY_NAME])
{
    int64_t streams = mr_dist_dataset_elastic_streams(f->dd);
    if (streams)
        snprintf(name, POLICY_NAME, "%s %" PRId64, elastic, streams);
    else
        snprintf(name, POLICY_NAME, "%s",
                 f->ds ? mr_shard_policy_name(mr_dist_dataset_policy(f->dd)) : of_function);
    return name;
}

mr_code mr__data_json(const mr_train_event *e, json_t **out, mr_status *st)
{
    const mr__feed *f = &e->loop->run.feed;
    const mr__dist_data *d = &f->data;
    char policy[POLICY_NAME];
    *out = json_pack("{s:s*, s:I, s:s, s:o, s:b, s:I, s:I, s:I}", "graph", d->graph, "files",
                     (json_int_t)d->files, "policy", policy_now(f, policy), "seed",
                     d->has_seed ? json_integer((json_int_t)d->seed) : json_null(), "seed_given",
                     (int)f->seed_given, "pass", (json_int_t)f->at.pass, "step",
                     (json_int_t)f->at.step, "rows", (json_int_t)f->at.rows);
    return *out ? MR_OK : mr_fail_memory(st, 0, "the state of the data");
}

/* ---- reading ---- */

typedef struct saved {
    bool known; /* else an earlier version wrote it */
    const char *graph, *policy;
    uint64_t files, seed;
    bool has_seed, seed_given;
    mr__feed_place at;
} saved;

static mr_code read_data(const mr_train_event *e, const json_t *root, const mr__train_state *s,
                         saved *out, mr_status *st)
{
    const json_t *d = json_object_get(root, "data"), *seed = json_object_get(d, "seed");
    const json_t *pass = json_object_get(d, "pass"), *step = json_object_get(d, "step");
    const json_t *rows = json_object_get(d, "rows"), *files = json_object_get(d, "files");
    *out = (saved){.known = d != NULL, .graph = json_string_value(json_object_get(d, "graph"))};
    if (!d) {
        bool passes = !e->opts->steps_per_epoch && s->epoch > 0;
        out->at = (mr__feed_place){passes ? s->epoch - 1 : 0, s->epoch_step, -1};
        return MR_OK;
    }
    out->policy = json_string_value(json_object_get(d, "policy"));
    out->has_seed = json_is_integer(seed);
    out->seed_given = json_is_true(json_object_get(d, "seed_given"));
    out->seed = (uint64_t)json_integer_value(seed);
    out->files = (uint64_t)json_integer_value(files);
    out->at = (mr__feed_place){json_integer_value(pass), json_integer_value(step),
                               json_integer_value(rows)};
    bool good = out->policy && json_is_integer(files) && json_is_integer(pass) &&
                json_is_integer(step) && json_is_integer(rows) && out->at.pass >= 0 &&
                out->at.step >= 0 && out->at.rows >= -1;
    return good ? MR_OK : mr_fail(st, MR_DATA_LOSS, "state.json: data is missing or invalid");
}

/* ---- whether the order is the same ---- */

static const char or_again[] =
    "or begin the interrupted epoch again with --restart-epoch (mr_fit_opts.restart_epoch)";

/* Names the part in which the graphs differ. */
static mr_code another_graph(const char *before, const char *now, mr_status *st)
{
    size_t at = 0;
    while (before[at] && before[at] == now[at])
        at++;
    while (at > 0 && !strchr(".( ", before[at - 1]))
        at--;
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "it was saved with other data: they had '%.60s' where these have '%.60s'. Train "
                   "on the same data, %s",
                   before + at, now + at, or_again);
}

static bool is_off(const char *policy)
{
    return strcmp(policy, mr_shard_policy_name(MR_SHARD_OFF)) == 0;
}

/* Steps of the saved run and of this one are the same rows, or under OFF the same batches. */
static bool has_same_steps(const mr_train_event *e, const mr__train_state *s, const char *policy)
{
    int64_t workers = (int64_t)mr_strategy_num_workers(e->strategy);
    bool same = s->workers == workers &&
                s->replicas == (int64_t)mr_strategy_num_replicas_in_sync(e->strategy);
    return same || strncmp(policy, elastic, strlen(elastic)) == 0 ||
           strcmp(policy, mr_shard_policy_name(MR_SHARD_DATA)) == 0 ||
           (strcmp(policy, of_function) != 0 && s->workers == 1 && workers == 1) || is_off(policy);
}

static mr_code check_numbers(const mr_train_event *e, const mr__train_state *s, const saved *d,
                             mr_status *st)
{
    const char *why = NULL;
    char text[120];
    const mr__feed *f = &e->loop->run.feed;
    if (!d->known)
        why = "does not say how its data were shared, as an earlier version wrote it";
    else if (!has_same_steps(e, s, d->policy)) {
        why = text;
        if (f->ds)
            snprintf(text, sizeof text, "shared its data by %s, where other numbers read others",
                     d->policy);
        else
            snprintf(text, sizeof text, "read an input function, which shards by itself");
    } else if (!f->data.repeats)
        why = "read data that cannot be read a second time";
    if (!why)
        return MR_OK;
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "it is from %" PRId64 " process%s and %" PRId64
                   " replica%s, this run has %zu and %zu, and it %s: the rest of the epoch would "
                   "have other records. Use the numbers that it has, %s",
                   s->workers, s->workers == 1 ? "" : "es", s->replicas,
                   s->replicas == 1 ? "" : "s", mr_strategy_num_workers(e->strategy),
                   mr_strategy_num_replicas_in_sync(e->strategy), why, or_again);
}

static mr_code check_data(const mr_train_event *e, const saved *d, mr_status *st)
{
    const mr__feed *f = &e->loop->run.feed;
    if (d->graph && f->data.graph && strcmp(d->graph, f->data.graph) != 0)
        return another_graph(d->graph, f->data.graph, st);
    if (d->files != f->data.files)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the files that the data match are not those with which it was saved. Train "
                       "on the same files, %s",
                       or_again);
    if (f->data.draws && (d->has_seed != f->data.has_seed || d->seed != f->data.seed))
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "it was saved with the seed %" PRIu64
                       ", and another one gives the data another order. Use that seed, %s",
                       d->seed, or_again);
    return MR_OK;
}

static mr_code check_order(const mr_train_event *e, const mr__train_state *s, const saved *d,
                           mr_status *st)
{
    const mr__feed *f = &e->loop->run.feed;
    char now[POLICY_NAME];
    MR_TRY(check_numbers(e, s, d, st));
    if (strcmp(d->policy, policy_now(f, now)) != 0)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "it was saved with the policy %s of sharding, and this run has %s. Use that "
                       "one, %s",
                       d->policy, now, or_again);
    return check_data(e, d, st);
}

/* Between epochs the policy may change, but not whether the job is elastic. */
static mr_code check_next_epoch(const mr_train_event *e, const saved *d, mr_status *st)
{
    const mr__feed *f = &e->loop->run.feed;
    bool was = strncmp(d->policy, elastic, strlen(elastic)) == 0;
    if (was != (mr_dist_dataset_elastic_streams(f->dd) > 0))
        return mr_fail(st, MR_FAILED_PRECONDITION, "it is of a job that was %s; give this run %s",
                       was ? elastic : "not elastic",
                       was ? "its number of streams (--elastic)" : "no elastic streams");
    return check_data(e, d, st);
}

/* ---- moving ---- */

/* The run continues with the seed that was drawn for the saved one. */
static mr_code take_seed(const mr_train_event *e, const saved *d, mr_status *st)
{
    mr__feed *f = &e->loop->run.feed;
    if (f->seed_given)
        return MR_OK;
    if (d->known && (d->has_seed != f->data.has_seed || d->seed != f->data.seed))
        return mr__feed_reseed(f, d->has_seed ? &d->seed : NULL, d->seed_given, st);
    /* Earlier versions did not draw one for a single process. */
    if (!d->known && mr_strategy_num_workers(e->strategy) == 1)
        return mr__feed_reseed(f, NULL, false, st);
    return MR_OK;
}

/* Reads the pass, as the saved run did. */
static mr_code read_pass(const mr_train_event *e, mr__feed *f, mr_status *st)
{
    int64_t n = e->opts->steps_per_epoch, whole = e->loop->run.steps_in_pass;
    mr_code rc = mr__feed_skip(f, n > 0 && n == whole ? n : INT64_MAX, st);
    return rc == MR_END ? MR_OK : rc;
}

/* The beginning of a pass. Ops that open their inputs while they run count the openings, from which
 * shuffles draw: then earlier passes must be read too. */
static mr_code go_to_pass(const mr_train_event *e, int64_t pass, mr_status *st)
{
    mr__feed *f = &e->loop->run.feed;
    while (f->at.pass < pass) {
        if (f->data.passes)
            MR_TRY(read_pass(e, f, st));
        MR_TRY(mr__feed_rewind(f, st));
    }
    return MR_OK;
}

static mr_code ends_early(const mr__feed_place *at, mr_status *st)
{
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "it is at step %" PRId64 " of an epoch, which the data do not reach: they have "
                   "changed. Train on the same data, %s",
                   at->step, or_again);
}

/* Under OFF each of W workers takes all rows of a batch, in W steps. */
static mr_code skip_rows(const mr_train_event *e, const mr__train_state *s,
                         const mr__feed_place *at, mr_status *st)
{
    mr__feed *f = &e->loop->run.feed;
    int64_t workers = (int64_t)mr_strategy_num_workers(e->strategy);
    while (f->at.rows / workers < at->rows / s->workers) {
        mr_code rc = mr__feed_skip(f, 1, st);
        if (rc != MR_OK)
            return rc == MR_END ? ends_early(at, st) : rc;
    }
    if (f->at.rows / workers == at->rows / s->workers)
        return MR_OK;
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "it is in the middle of a batch, which %" PRId64 " processes with %" PRId64
                   " replicas divide in another way than this run. Use the numbers that it has, %s",
                   s->workers, s->replicas, or_again);
}

static mr_code go_to(const mr_train_event *e, const mr__train_state *s, const saved *d,
                     const mr__feed_place *at, mr_status *st)
{
    mr__feed *f = &e->loop->run.feed;
    MR_TRY(go_to_pass(e, at->pass, st));
    bool same = s->workers == (int64_t)mr_strategy_num_workers(e->strategy) &&
                s->replicas == (int64_t)mr_strategy_num_replicas_in_sync(e->strategy);
    if (!same && is_off(d->policy) && at->rows >= 0)
        return skip_rows(e, s, at, st);
    mr_code rc = mr__feed_skip(f, at->step, st);
    if (rc != MR_OK)
        return rc == MR_END ? ends_early(at, st) : rc;
    if (at->rows < 0 || f->at.rows < 0 || at->rows == f->at.rows)
        return MR_OK;
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "its steps have %" PRId64 " rows of this epoch, those of the data now %" PRId64
                   ": they have changed. Train on the same data, %s",
                   at->rows, f->at.rows, or_again);
}

static mr_code add_way_out(mr_code rc, mr_status *st)
{
    if (rc != MR_INVALID_ARGUMENT && rc != MR_FAILED_PRECONDITION)
        return rc;
    size_t n = st ? strlen(st->message) : 0;
    if (st)
        snprintf(st->message + n, sizeof st->message - n, ", %s", or_again);
    return rc;
}

static mr_code restore_position(mr__feed *f, const saved *d, const void *position, size_t size,
                                mr_status *st)
{
    MR_TRY(add_way_out(mr__feed_restore(f, position, size, st), st));
    f->at = d->at;
    if (!d->known)
        f->at.step = mr_dist_iterator_step(f->it);
    return MR_OK;
}

static mr_code continue_within(const mr_train_event *e, const mr__train_state *s, const saved *d,
                               const void *position, size_t size, mr_status *st)
{
    mr__feed *f = &e->loop->run.feed;
    if (position)
        return restore_position(f, d, position, size, st);
    /* A pass that was read to its end, or not begun, has no order that could be lost. */
    if (s->pass_over || d->at.step == 0) {
        if (d->known)
            MR_TRY(check_next_epoch(e, d, st));
        MR_TRY(go_to_pass(e, d->at.pass, st));
        return s->pass_over && !s->epoch_over ? read_pass(e, f, st) : MR_OK;
    }
    MR_TRY(check_order(e, s, d, st));
    mr_log(MR_LOG_WARNING,
           "the checkpoint is from %" PRId64 " processes and %" PRId64 " replicas: the %" PRId64
           " batches of its epoch are read again and dropped",
           s->workers, s->replicas, d->at.step);
    return go_to(e, s, d, &d->at, st);
}

/* The place at which the interrupted epoch began: within a pass with steps_per_epoch. */
static mr_code begin_again(const mr_train_event *e, const mr__train_state *s, const saved *d,
                           mr_status *st)
{
    mr__feed_place first = {d->at.pass, d->at.step, d->at.rows};
    mr_status why;
    if (!s->epoch_over)
        first = (mr__feed_place){d->at.pass, d->at.step - s->epoch_step, -1};
    if (s->pass_over || first.step <= 0)
        return go_to_pass(e, d->at.pass, st);
    mr_code rc = check_order(e, s, d, &why);
    if (rc == MR_RESOURCE_EXHAUSTED && st)
        *st = why;
    if (rc == MR_OK)
        return go_to(e, s, d, &first, st);
    if (rc == MR_RESOURCE_EXHAUSTED)
        return rc;
    mr_log(MR_LOG_WARNING,
           "the data are read from their beginning, as this run reads others in %" PRId64
           " steps than the run that saved the checkpoint",
           first.step);
    return go_to_pass(e, d->at.pass, st);
}

/* The streams of an elastic job that parameter servers' workers read. */
static mr_code resume_remote(const mr_train_event *e, const mr__train_state *s, const saved *d,
                             const void *position, size_t size, bool again, mr_status *st)
{
    mr__run *x = &e->loop->run;
    MR_TRY(take_seed(e, d, st));
    if (again || !position) {
        if (!again && !s->epoch_over && d->at.step > 0)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "it has no positions of the streams. Continue from another checkpoint, "
                           "%s",
                           or_again);
        if (!again && d->known)
            MR_TRY(check_next_epoch(e, d, st));
        return x->stepper->restore(x, NULL, 0, d->at.pass, st);
    }
    char now[POLICY_NAME];
    if (d->known && s->pass_over && s->epoch_over &&
        strcmp(d->policy, policy_now(&x->feed, now)) != 0) {
        MR_TRY(check_next_epoch(e, d, st));
        return x->stepper->restore(x, NULL, 0, d->at.pass, st);
    }
    MR_TRY(check_order(e, s, d, st));
    MR_TRY(x->stepper->restore(x, position, size, d->at.pass, st));
    x->feed.at = d->at;
    return MR_OK;
}

mr_code mr__data_resume(const mr_train_event *e, const json_t *root, const mr__train_state *s,
                        const void *position, size_t size, bool *again, mr_status *st)
{
    saved d;
    mr__feed *f = &e->loop->run.feed;
    *again = e->opts->restart_epoch && !s->epoch_over;
    MR_TRY(read_data(e, root, s, &d, st));
    if (mr__run_has_remote_streams(&e->loop->run))
        return resume_remote(e, s, &d, position, size, *again, st);
    if (e->loop->run.stepper->reads_apart) {
        mr_log(MR_LOG_WARNING, "each worker of parameter servers begins its data again");
        return position ? add_way_out(mr__feed_restore(f, position, size, st), st) : MR_OK;
    }
    MR_TRY(take_seed(e, &d, st));
    if (!e->opts->restart_epoch)
        return continue_within(e, s, &d, position, size, st);
    if (*again)
        mr_log(MR_LOG_WARNING,
               "epoch %" PRId64 " begins again: its %" PRId64
               " steps that were done are made again",
               s->epoch, s->epoch_step);
    return begin_again(e, s, &d, st);
}
