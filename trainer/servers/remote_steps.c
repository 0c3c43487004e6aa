/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/servers/remote_steps.h"
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/name_scope.h"
#include "shard/distribute/lone_streams_internal.h"
#include "trainer/device/timeline_impl.h"
#include "trainer/files/json_file.h"
#include "trainer/model/model_impl.h"
#include "trainer/objectives/loss.h"
#include "trainer/objectives/metric_impl.h"
#include "trainer/objectives/optimizer_impl.h"
#include "trainer/servers/layout.h"
#include "trainer/servers/stream_hosts.h"
#include "trainer/strategy/strategy_impl.h"

enum {
    STEPS_A_WORKER = 2, /* scheduled at once, so that no worker waits for the coordinator */
    MOST_CUT_OFFS = 3   /* per worker, while none can run a step */
};

typedef enum task_state { WAITING, RUNNING, DONE } task_state;

typedef struct task {
    task_state state;
    int64_t step, epoch;
    json_t *name, *ctx; /* of a named step; NULL: the training step */
    size_t stream;      /* of an elastic job: from which it takes its batch */
    mr__call answer;    /* DONE */
} task;

typedef struct hand {
    bool is_set_up, is_setting_up;
    task *task; /* in progress; NULL: none */
    bool looks; /* at `stream` */
    size_t stream;
} hand;

typedef struct mr__remote {
    mr__servers *s;
    char **data; /* per worker, or one for all */
    size_t n_data;
    mr__stream_hosts streams; /* of an elastic job */
    json_t *files;            /* the files of each pattern in its data */
    bool has_stream;          /* taken for the next step */
    size_t next_stream;
    int64_t made_again; /* steps of lost workers, in this pass */
    task *tasks;        /* step i of the run: tasks[i % capacity] */
    size_t capacity;
    hand *hands;     /* one per worker */
    size_t cut_offs; /* since a worker last completed a call */
    bool is_out;     /* the servers have the current state */
    double rate;     /* of the servers; valid with has_rate */
    bool has_rate;
    double *totals; /* of all metrics, over the epoch so far */
    mr__layout layout;
    float *state;  /* all variables' values in the model's order, then those of each slot
                      likewise */
    float *packed; /* one server's part of it */
    int64_t last_step;
    mr__step_result result;
} mr__remote;

static size_t most(const mr__run *x)
{
    const mr__remote *r = x->remote;
    return r->capacity - 1;
}

static mr_code describe_data(mr__remote *r, const mr__run *x, const mr_dataset *ds,
                             size_t n_workers, mr_status *st)
{
    r->n_data = ds ? 1 : n_workers;
    r->data = mr_calloc(r->n_data, sizeof *r->data);
    if (!r->data)
        return mr_fail_memory(st, r->n_data * sizeof *r->data, "the data of workers");
    if (ds)
        return mr_dataset_to_text(ds, &r->data[0], st);
    for (size_t i = 0; i < n_workers; i++) {
        const mr_input_context c = {(int64_t)n_workers, (int64_t)i, 1};
        mr_dataset *made;
        MR_TRY(mr__run_input(x, &c, &made, st));
        mr_code rc = mr_dataset_to_text(made, &r->data[i], st);
        mr_dataset_unref(made);
        MR_TRY(rc);
    }
    return MR_OK;
}

/* The seed of an elastic job. */
static uint64_t elastic_seed(const mr__run *x)
{
    return x->feed.how.has_seed ? x->feed.how.seed : 0;
}

/* All workers must read the same files. */
static mr_code match_files(mr__remote *r, const mr__run *x, mr_dataset *ds, int64_t streams,
                           mr_status *st)
{
    mr__lone_streams *all;
    mr_dataset *first = NULL;
    uint64_t seed;
    char *const *files;
    const char *pattern;
    size_t n;
    const mr_iterator_opts *read = x->opts->iterator;
    MR_TRY(mr__lone_streams_open(&all, ds, streams, elastic_seed(x), read ? read->directory : NULL,
                                 st));
    mr_code rc = mr__lone_streams_make(all, 0, &first, &seed, st);
    mr_dataset_unref(first);
    r->files = json_object();
    for (size_t i = 0; rc == MR_OK && (pattern = mr__lone_streams_files(all, i, &files, &n)); i++) {
        json_t *list = json_array();
        for (size_t k = 0; k < n; k++)
            json_array_append_new(list, json_string(files[k]));
        if (json_object_set_new(r->files, pattern, list) != 0 || json_array_size(list) != n)
            rc = mr_fail(st, MR_INVALID_ARGUMENT,
                         "the names of files that '%.200s' matches cannot be sent to workers; they "
                         "must be UTF-8",
                         pattern);
    }
    mr__lone_streams_close(all);
    return rc;
}

static mr_code open_streams(mr__remote *r, const mr__run *x, const mr_dataset *ds, size_t n_workers,
                            mr_status *st)
{
    int64_t streams = mr_dist_dataset_elastic_streams(x->feed.dd);
    if (streams == 0 || !ds)
        return MR_OK;
    if ((int64_t)n_workers > streams)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%zu workers cannot share %" PRId64
                       " elastic streams; use at least as many streams as workers",
                       n_workers, streams);
    mr_dataset *own = mr_dataset_ref((mr_dataset *)(uintptr_t)ds);
    mr_code rc = match_files(r, x, own, streams, st);
    mr_dataset_unref(own);
    MR_TRY(rc);
    return mr__stream_hosts_open(&r->streams, (size_t)streams, n_workers, st);
}

/* errors   MR_FAILED_PRECONDITION: the data have no text · MR_UNIMPLEMENTED: an optimizer that must
 *          see all gradients at once, with several servers */
static mr_code open(mr__run *x, void *job, const mr_dataset *ds, mr_status *st)
{
    mr__servers *s = job;
    size_t n_workers = s->all.n - s->n_ps;
    if (s->n_ps > 1 && mr__optimizer_needs_all(x->o))
        return mr_fail(st, MR_UNIMPLEMENTED,
                       "global_clipnorm needs all gradients in one place: use one parameter "
                       "server, or clip each gradient with clipnorm");
    if (s->partitioner && mr__optimizer_clips_each(x->o))
        return mr_fail(st, MR_UNIMPLEMENTED,
                       "clipnorm needs the whole gradient of a variable, which a partitioner cuts: "
                       "clip with clipvalue");
    mr__remote *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "a job's steps");
    x->remote = r;
    r->s = s;
    r->capacity = n_workers * STEPS_A_WORKER + 1;
    r->tasks = mr_calloc(r->capacity, sizeof *r->tasks);
    r->hands = mr_calloc(n_workers, sizeof *r->hands);
    r->totals = mr_calloc(x->n_totals + 1, sizeof *r->totals);
    if (!r->tasks || !r->hands || !r->totals)
        return mr_fail_memory(st, r->capacity * sizeof *r->tasks, "a job's steps");
    MR_TRY(open_streams(r, x, ds, n_workers, st));
    return describe_data(r, x, ds, n_workers, st);
}

static void reset_task(task *t)
{
    mr__call_reset(&t->answer);
    json_decref(t->name);
    json_decref(t->ctx);
    *t = (task){.state = WAITING};
}

static void close(mr__run *x)
{
    mr__remote *r = x->remote;
    x->remote = NULL;
    if (!r)
        return;
    for (size_t i = 0; r->tasks && i < r->capacity; i++)
        reset_task(&r->tasks[i]);
    for (size_t i = 0; r->data && i < r->n_data; i++)
        mr_free(r->data[i]);
    mr__stream_hosts_close(&r->streams);
    json_decref(r->files);
    mr_free(r->data);
    mr_free(r->tasks);
    mr_free(r->hands);
    mr_free(r->totals);
    mr__layout_reset(&r->layout);
    mr_free(r->state);
    mr_free(r->packed);
    mr_free(r);
}

/* ---- the state of the servers ---- */

static json_t *shape_of(int rank, const int64_t *shape)
{
    json_t *list = json_array();
    for (int d = 0; d < rank; d++)
        json_array_append_new(list, json_integer(shape[d]));
    return list;
}

static mr_code make_room(mr__remote *r, mr__run *x, mr_status *st)
{
    size_t kinds = 1 + mr__optimizer_n_slots(x->o);
    if (r->state)
        return MR_OK;
    MR_TRY(mr__layout_make(&r->layout, x->m, r->s->partitioner, r->s->n_ps, st));
    for (size_t k = 0; k < r->s->n_ps; k++) { /* check before training that it can be read back */
        size_t learned = mr__layout_pack(&r->layout, x->m, k, MR__LEARNED_VALUES, NULL, NULL);
        MR_TRY(
            mr__call_check_values(mr__layout_pack(&r->layout, x->m, k, MR__ALL_VALUES, NULL, NULL) +
                                      (kinds - 1) * learned,
                                  st));
    }
    size_t n = r->layout.n_values * kinds + 1;
    r->state = mr_calloc(n, sizeof *r->state);
    r->packed = mr_calloc(n, sizeof *r->packed);
    return r->state && r->packed ? MR_OK : mr_fail_memory(st, n * sizeof *r->state, "variables");
}

/* Copies between the model and r->state: the values of all variables, then those of each slot. */
static mr_code load(mr__remote *r, mr__run *x, bool slots, mr_status *st)
{
    float *to = r->state;
    for (size_t k = 0; k <= (slots ? mr__optimizer_n_slots(x->o) : 0); k++)
        for (size_t i = 0; i < mr_model_n_variables(x->m); i++) {
            mr_variable *v = mr_model_variable(x->m, i);
            if (k == 0)
                MR_TRY(mr_variable_read(v, to, st));
            else if (mr_variable_role_of(v) == MR_LEARNED)
                MR_TRY(mr__optimizer_read_slot(x->o, v, x->s, k - 1, to, st));
            to += mr_variable_size(v);
        }
    return MR_OK;
}

static mr_code store(mr__remote *r, mr__run *x, bool slots, mr_status *st)
{
    const float *from = r->state;
    for (size_t k = 0; k <= (slots ? mr__optimizer_n_slots(x->o) : 0); k++)
        for (size_t i = 0; i < mr_model_n_variables(x->m); i++) {
            mr_variable *v = mr_model_variable(x->m, i);
            if (k == 0)
                MR_TRY(mr_variable_assign(v, from, st));
            else if (mr_variable_role_of(v) == MR_LEARNED)
                MR_TRY(mr__optimizer_write_slot(x->o, v, x->s, k - 1, from, st));
            from += mr_variable_size(v);
        }
    return MR_OK;
}

/* Packs one server's part of r->state into r->packed; returns the number of its values. */
static size_t pack(const mr__remote *r, const mr__run *x, size_t server, bool slots)
{
    const mr__layout *l = &r->layout;
    size_t at = mr__layout_pack(l, x->m, server, MR__ALL_VALUES, r->state, r->packed);
    for (size_t k = 1; k <= (slots ? mr__optimizer_n_slots(x->o) : 0); k++)
        at += mr__layout_pack(l, x->m, server, MR__LEARNED_VALUES, r->state + k * l->n_values,
                              r->packed + at);
    return at;
}

static mr_code unpack(mr__remote *r, const mr__run *x, size_t server, bool slots,
                      const mr__call *from, mr_status *st)
{
    const mr__layout *l = &r->layout;
    size_t kinds = slots ? mr__optimizer_n_slots(x->o) : 0;
    size_t at = mr__layout_pack(l, x->m, server, MR__ALL_VALUES, NULL, NULL);
    size_t learned = mr__layout_pack(l, x->m, server, MR__LEARNED_VALUES, NULL, NULL);
    if (from->n != at + kinds * learned)
        return mr_fail(st, MR_DATA_LOSS, "parameter server %zu sent %zu values of %zu", server,
                       from->n, at + kinds * learned);
    mr__layout_unpack(l, x->m, server, MR__ALL_VALUES, r->state, from->values);
    for (size_t k = 1; k <= kinds; k++, at += learned)
        mr__layout_unpack(l, x->m, server, MR__LEARNED_VALUES, r->state + k * l->n_values,
                          from->values + at);
    return MR_OK;
}

/* "dense/kernel", or for a piece "dense/kernel/part_3", with the piece's number among all
 * pieces. */
static json_t *describe_piece(const mr__remote *r, const mr__run *x, size_t i)
{
    const mr__piece *p = &r->layout.v[i];
    const mr_variable *v = mr_model_variable(x->m, p->variable);
    char name[256];
    if (p->is_part)
        snprintf(name, sizeof name, "%.200s/part_%zu", mr_variable_name(v), i);
    else
        snprintf(name, sizeof name, "%.200s", mr_variable_name(v));
    json_t *shape = shape_of(mr_variable_rank(v), mr_variable_shape(v));
    if (p->is_part)
        json_array_set_new(shape, 0, json_integer((json_int_t)p->rows));
    return json_pack("{s:s, s:i, s:o}", "name", name, "role", (int)mr_variable_role_of(v), "shape",
                     shape);
}

static json_t *describe(const mr__remote *r, const mr__run *x, size_t k)
{
    json_t *variables = json_array();
    for (size_t i = 0; i < r->layout.n; i++)
        if (r->layout.v[i].server == k)
            json_array_append_new(variables, describe_piece(r, x, i));
    json_t *text = json_pack("{s:s, s:I, s:I, s:o}", "optimizer", mr_optimizer_text(x->o),
                             "iterations", (json_int_t)mr_optimizer_iterations(x->o), "after",
                             (json_int_t)r->last_step, "variables", variables);
    if (text && !mr__optimizer_is_scheduled(x->o))
        json_object_set_new(text, "learning_rate",
                            mr__json_number(mr_optimizer_learning_rate(x->o)));
    return text;
}

/* Sends the state to the servers. */
static mr_code send_state(mr__remote *r, mr__run *x, mr_status *st)
{
    mr__server_connections *all = &r->s->all;
    bool slots = mr_optimizer_iterations(x->o) > 0; /* before that, slots have their initial
                                                       values */
    size_t at = 0;
    MR_TRY(make_room(r, x, st));
    MR_TRY(load(r, x, slots, st));
    MR_TRY(mr__server_connections_check(all, r->s->n_ps, st));
    for (size_t k = 0; k < r->s->n_ps; k++) {
        size_t n = pack(r, x, k, slots);
        json_t *text = describe(r, x, k);
        mr_code rc = text ? mr__server_connection_call(all, &all->v[k], MR__CALL_PREPARE, text,
                                                       r->packed, n, st)
                          : mr_fail_memory(st, 0, "a call");
        json_decref(text);
        MR_TRY(rc);
    }
    MR_TRY(mr__server_connections_await(all, r->s->n_ps, st));
    for (size_t i = 0; i < x->opts->n_metrics; at += mr__metric_totals(x->metrics[i++]))
        MR_TRY(mr__metric_read(x->metrics[i], mr_strategy_replica(x->s, 0), r->totals + at, st));
    r->is_out = true;
    r->rate = mr_optimizer_learning_rate(x->o);
    r->has_rate = !mr__optimizer_is_scheduled(x->o);
    return MR_OK;
}

/* Sends a learning rate that was changed within an epoch. */
static mr_code send_rate(mr__remote *r, const mr__run *x, mr_status *st)
{
    mr__server_connections *all = &r->s->all;
    double rate = mr_optimizer_learning_rate(x->o);
    if (mr__optimizer_is_scheduled(x->o) || (r->has_rate && r->rate == rate))
        return MR_OK;
    MR_TRY(mr__server_connections_check(all, r->s->n_ps, st));
    json_t *text = json_pack("{s:o}", "learning_rate", mr__json_number(rate));
    mr_code rc = text ? MR_OK : mr_fail_memory(st, 0, "a call");
    for (size_t k = 0; k < r->s->n_ps && rc == MR_OK; k++)
        rc = mr__server_connection_call(all, &all->v[k], MR__CALL_RATE, text, NULL, 0, st);
    json_decref(text);
    MR_TRY(rc);
    r->rate = rate;
    r->has_rate = true;
    return mr__server_connections_await(all, r->s->n_ps, st);
}

static mr_code settle(mr__run *x, mr_status *st)
{
    mr__remote *r = x->remote;
    mr__server_connections *all = &r->s->all;
    int64_t iterations = 0, theirs;
    size_t at = 0;
    if (!r->is_out)
        return MR_OK;
    MR_TRY(mr__server_connections_check(all, r->s->n_ps, st));
    for (size_t k = 0; k < r->s->n_ps; k++)
        MR_TRY(mr__server_connection_call(all, &all->v[k], MR__CALL_READ, NULL, NULL, 0, st));
    MR_TRY(mr__server_connections_await(all, r->s->n_ps, st));
    for (size_t k = 0; k < r->s->n_ps; k++) {
        const mr__call *a = &all->v[k].answer;
        MR_TRY(mr__call_integer(a, "iterations", &theirs, st));
        MR_TRY(unpack(r, x, k, theirs > 0, a, st));
        iterations = theirs > iterations ? theirs : iterations;
    }
    MR_TRY(store(r, x, iterations > 0, st));
    mr__optimizer_set_iterations(x->o, iterations);
    mr__model_set_steps(x->m, (uint64_t)r->last_step);
    for (size_t i = 0; i < x->opts->n_metrics; at += mr__metric_totals(x->metrics[i++]))
        MR_TRY(mr__metric_write(x->metrics[i], mr_strategy_replica(x->s, 0), r->totals + at, st));
    r->is_out = false;
    if (r->made_again)
        mr_log(MR_LOG_WARNING, "%" PRId64 " step%s of lost workers %s made again", r->made_again,
               r->made_again == 1 ? "" : "s", r->made_again == 1 ? "was" : "were");
    r->made_again = 0;
    return MR_OK;
}

/* ---- the workers ---- */

static void describe_streams(const mr__remote *r, const mr__run *x, json_t *text)
{
    json_object_set_new(text, "streams", json_integer((json_int_t)r->streams.n));
    json_object_set_new(text, "data_seed", json_integer((json_int_t)elastic_seed(x)));
    json_object_set_new(text, "seed_made_up", json_boolean(!x->feed.seed_given));
    json_object_set_new(text, "ledger", json_boolean(x->records != NULL));
    json_object_set(text, "files", r->files);
}

static json_t *describe_job(const mr__remote *r, const mr__run *x, size_t worker)
{
    int rank;
    const int64_t *shape;
    const mr_iterator_opts *read = x->opts->iterator;
    json_t *servers = json_array(), *metrics = json_array();
    for (size_t k = 0; k < r->s->n_ps; k++)
        json_array_append_new(servers, json_string(r->s->all.v[k].address));
    for (size_t i = 0; i < x->opts->n_metrics; i++)
        json_array_append_new(metrics, json_string(x->opts->metrics[i]));
    mr_model_input_shape(x->m, &rank, &shape);
    json_t *text = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:I, s:I}", "data",
                             r->data[worker % r->n_data], "model", mr_model_text(x->m), "loss",
                             mr_loss_text(x->loss), "optimizer", mr_optimizer_text(x->o), "shape",
                             shape_of(rank, shape), "servers", servers, "metrics", metrics, "seed",
                             (json_int_t)mr__model_seed(x->m), "worker", (json_int_t)worker);
    char here[PATH_MAX]; /* in which a worker looks up relative names of files */
    if (text && mr__name_scope_here(here, sizeof here))
        json_object_set_new(text, "directory", json_string(here));
    if (text && mr_model_is_mixed(x->m))
        json_object_set_new(text, "mixed_precision", json_true());
    if (text && r->s->partitioner)
        json_object_set_new(text, "partitioner", json_string(r->s->partitioner));
    if (text && r->streams.n)
        describe_streams(r, x, text);
    else if (text && read && read->has_seed && !mr__iterator_internal_of(read)->seed_made_up)
        json_object_set_new(text, "data_seed", json_integer((json_int_t)read->seed));
    return text;
}

/* A worker became unavailable: its step, if any, is assigned to another, and so are its streams. */
static void take_back(mr__remote *r, hand *h, const mr__server_connection *p, const char *why)
{
    char moves[64] = "";
    size_t had = mr__stream_hosts_set(&r->streams, p->index, false);
    if (had)
        snprintf(moves, sizeof moves, "; others take over its %zu stream%s", had,
                 had == 1 ? "" : "s");
    if (h->looks)
        r->streams.v[h->stream].used = false;
    if (h->task) {
        mr_log(MR_LOG_WARNING,
               "worker %zu (%s) %.500s; its step %" PRId64 " goes to another worker%s", p->index,
               p->address, why, h->task->step, moves);
        h->task->state = WAITING;
        r->made_again++;
    } else if (h->is_set_up || h->is_setting_up)
        mr_log(MR_LOG_WARNING, "worker %zu (%s) %.500s%s", p->index, p->address, why, moves);
    *h = (hand){0};
}

/* No worker can run a step: all have failed several times to reach the servers. */
static bool all_are_cut_off(const mr__remote *r)
{
    size_t n = r->s->all.n - r->s->n_ps;
    for (size_t i = 0; i < n; i++)
        if (r->hands[i].is_set_up)
            return false;
    return r->cut_offs >= MOST_CUT_OFFS * n;
}

static mr_code take_answer(mr__remote *r, hand *h, mr__server_connection *p, mr_status *st)
{
    mr_status why;
    mr_code rc = mr__call_error(&p->answer, &why);
    if (rc != MR_OK && mr__call_is_cut_off(&p->answer)) { /* it is set up again, and retries */
        mr_status_prefix(&why, "is cut off");
        take_back(r, h, p, why.message);
        p->has_answer = false;
        r->cut_offs++;
        if (!all_are_cut_off(r))
            return MR_OK;
        r->s->all.has_lost = true;
        return mr_fail(st, rc, "no worker can run a step; worker %zu (%s) %.600s", p->index,
                       p->address, why.message);
    }
    if (rc != MR_OK) /* kept for the next call too: this caller may not end the run */
        return mr_fail(st, rc, "worker %zu (%s): %.650s", p->index, p->address, why.message);
    p->has_answer = false;
    r->cut_offs = 0;
    if (h->is_setting_up) {
        h->is_set_up = true;
        h->is_setting_up = false;
        mr__stream_hosts_set(&r->streams, p->index, true);
    } else if (h->looks) {
        h->looks = false;
        MR_TRY(mr__stream_hosts_answered(&r->streams, h->stream, false, &p->answer, st));
    } else if (h->task) {
        if (r->streams.n)
            MR_TRY(mr__stream_hosts_answered(&r->streams, h->task->stream, true, &p->answer, st));
        mr__call_reset(&h->task->answer);
        h->task->answer = p->answer;
        h->task->state = DONE;
        h->task = NULL;
        p->answer = (mr__call){0};
    }
    return MR_OK;
}

/* In an elastic job, a task whose stream the worker hosts. */
static task *next_waiting(const mr__remote *r, const mr__run *x, size_t worker)
{
    for (size_t i = x->head; i < x->tail; i++) {
        task *t = &r->tasks[i % r->capacity];
        const mr__stream_place *p = r->streams.n ? &r->streams.v[t->stream] : NULL;
        if (t->state == WAITING && (!p || (p->hosted && p->host == worker)))
            return t;
    }
    return NULL;
}

/* Adds what the worker must know of the stream. */
static json_t *add_stream(const mr__remote *r, size_t stream, json_t *text)
{
    if (!text || !r->streams.n || mr__stream_hosts_describe(&r->streams, stream, text))
        return text;
    json_decref(text);
    return NULL;
}

static json_t *describe_task(const mr__remote *r, const task *t)
{
    const json_int_t step = t->step, epoch = t->epoch;
    return add_stream(r, t->stream,
                      t->name ? json_pack("{s:I, s:I, s:O, s:O}", "step", step, "epoch", epoch,
                                          "name", t->name, "ctx", t->ctx)
                              : json_pack("{s:I, s:I}", "step", step, "epoch", epoch));
}

/* Assigns the next task to a free worker: to be set up, a step, or a look at a stream. */
static mr_code give_work(mr__remote *r, const mr__run *x, hand *h, mr__server_connection *p,
                         mr_status *st)
{
    task *t = h->is_set_up ? next_waiting(r, x, p->index) : NULL;
    bool looks = h->is_set_up && !t && mr__stream_hosts_to_look(&r->streams, p->index, &h->stream);
    mr__call_kind kind = t ? MR__CALL_STEP : looks ? MR__CALL_LOOK : MR__CALL_SETUP;
    if (h->is_set_up && !t && !looks)
        return MR_OK;
    json_t *text = t       ? describe_task(r, t)
                   : looks ? add_stream(r, h->stream, json_object())
                           : describe_job(r, x, p->index);
    mr_code rc = text ? mr__server_connection_call(&r->s->all, p, kind, text, NULL, 0, st)
                      : mr_fail_memory(st, 0, "a call");
    json_decref(text);
    h->looks = looks;
    MR_TRY(rc);
    h->is_setting_up = kind == MR__CALL_SETUP;
    h->task = t;
    if (t)
        t->state = RUNNING;
    return MR_OK;
}

/* Processes the answers that have arrived, and assigns tasks to free workers. */
static mr_code go_on(mr__remote *r, const mr__run *x, mr_status *st)
{
    mr__server_connections *all = &r->s->all;
    MR_TRY(mr__server_connections_check(all, r->s->n_ps, st));
    mr__stream_hosts_share(&r->streams);
    for (size_t i = r->s->n_ps; i < all->n; i++) {
        mr__server_connection *p = &all->v[i];
        hand *h = &r->hands[i - r->s->n_ps];
        if (p->state != MR__SERVER_READY)
            take_back(r, h, p, "is lost");
        else if (p->has_answer)
            MR_TRY(take_answer(r, h, p, st));
        if (p->state == MR__SERVER_READY && !p->is_waiting)
            MR_TRY(give_work(r, x, h, p, st));
    }
    return mr__server_connections_dial(all, r->s->n_ps, all->n, st);
}

/* ---- streams ---- */

/* Takes the stream of the next step. returns MR_OK, MR_END: all have ended · as mr__remote_look */
static mr_code take(mr__run *x, mr_status *st)
{
    mr__remote *r = x->remote;
    while (!r->has_stream) {
        MR_TRY(go_on(r, x, st));
        r->has_stream = mr__stream_hosts_take(&r->streams, &r->next_stream);
        if (r->has_stream)
            return MR_OK;
        if (mr__stream_hosts_over(&r->streams))
            return MR_END;
        MR_TRY(mr__server_connections_turn(&r->s->all, st));
    }
    return MR_OK;
}

static mr_code rewind_streams(mr__run *x, mr_status *st)
{
    mr__remote *r = x->remote;
    (void)st;
    mr__stream_hosts_rewind(&r->streams);
    x->feed.at = (mr__feed_place){.pass = r->streams.pass, .rows = -1};
    return MR_OK;
}

static mr_code save_streams(mr__run *x, void **bytes, size_t *size, mr_status *st)
{
    const mr__remote *r = x->remote;
    return mr__stream_hosts_save(&r->streams, bytes, size, st);
}

static mr_code restore_streams(mr__run *x, const void *bytes, size_t size, int64_t pass,
                               mr_status *st)
{
    mr__remote *r = x->remote;
    MR_TRY(mr__stream_hosts_restore(&r->streams, bytes, size, pass, st));
    x->feed.at = (mr__feed_place){.pass = r->streams.pass, .rows = -1};
    return MR_OK;
}

/* Notes the stream of a new task. */
static mr_code set_stream(mr__run *x, task *t, mr_status *st)
{
    mr__remote *r = x->remote;
    if (!r->streams.n)
        return MR_OK;
    mr_code rc = take(x, st); /* unless it was taken with the step */
    t->stream = r->next_stream;
    r->has_stream = false;
    return rc == MR_END ? mr_fail(st, MR_FAILED_PRECONDITION,
                                  "the streams of the data have no batch; nothing to train on")
                        : rc;
}

/* ---- steps ---- */

static mr_code name_task(task *t, const char *name, const char *ctx, mr_status *st)
{
    if (!name)
        return MR_OK;
    t->name = json_string(name);
    t->ctx = json_string(ctx ? ctx : "");
    return t->name && t->ctx ? MR_OK : mr_fail_memory(st, strlen(name), "a step");
}

mr_code mr__remote_submit(mr__run *x, int64_t step, int64_t epoch, const char *name,
                          const char *ctx, mr_status *st)
{
    mr__remote *r = x->remote;
    if (r->is_out)
        MR_TRY(send_rate(r, x, st));
    else
        MR_TRY(send_state(r, x, st));
    task *t = &r->tasks[x->tail % r->capacity];
    reset_task(t);
    t->step = step;
    t->epoch = epoch;
    MR_TRY(name_task(t, name, ctx, st));
    MR_TRY(set_stream(x, t, st));
    r->last_step = step;
    x->tail++;
    return go_on(r, x, st);
}

static mr_code submit(mr__run *x, int64_t step, int64_t epoch, bool fetch_next, mr_status *st)
{
    (void)fetch_next;
    mr__span *span = mr__span_begin(MR_SPAN_WORK, "enqueue");
    mr_code rc = mr__remote_submit(x, step, epoch, NULL, NULL, st);
    mr__span_end(span);
    return rc;
}

mr_code mr__remote_look(mr__run *x, mr_status *st)
{
    mr__remote *r = x->remote;
    mr__loop *loop = r->s->all.loop;
    MR_TRY(mr__loop_turn(loop, mr__loop_now(loop), st));
    return go_on(r, x, st);
}

static bool is_ready(mr__run *x)
{
    const mr__remote *r = x->remote;
    return r->tasks[x->head % r->capacity].state == DONE;
}

/* The step that a worker did, in the ledger. */
static mr_code write_records(mr__run *x, const task *t, mr_status *st)
{
    void *bytes;
    size_t n;
    if (!x->records)
        return MR_OK;
    MR_TRY(mr__call_get_bytes(t->answer.text, "records", &bytes, &n, st));
    mr_code rc = bytes ? mr__step_records_add(x->records, bytes, n, st)
                       : mr_fail(st, MR_DATA_LOSS, "a worker sent no records of a step");
    mr_free(bytes);
    return rc;
}

static mr_code collect(mr__run *x, const mr__step_result **result, mr_status *st)
{
    mr__remote *r = x->remote;
    task *t = &r->tasks[x->head % r->capacity];
    json_t *totals, *losses;
    for (;;) {
        MR_TRY(go_on(r, x, st));
        if (t->state == DONE)
            break;
        MR_TRY(mr__server_connections_turn(&r->s->all, st));
    }
    x->head++;
    r->result = (mr__step_result){.step = t->step, .epoch = t->epoch};
    MR_TRY(mr__call_number(&t->answer, "loss", &r->result.loss, st));
    MR_TRY(mr__call_integer(&t->answer, "rows", &r->result.rows, st));
    MR_TRY(mr__call_list(&t->answer, "totals", &totals, st));
    MR_TRY(mr__call_list(&t->answer, "losses", &losses, st));
    if (json_array_size(losses) != x->n_outputs)
        return mr_fail(st, MR_DATA_LOSS, "a worker sent the losses of %zu outputs, expected %zu",
                       json_array_size(losses), x->n_outputs);
    for (size_t k = 0; k < x->n_outputs; k++)
        if (!mr__read_json_number(json_array_get(losses, k), &r->result.losses[k]))
            return mr_fail(st, MR_DATA_LOSS, "a worker's losses are not numbers");
    if (json_array_size(totals) != x->n_totals)
        return mr_fail(st, MR_DATA_LOSS, "a worker sent %zu totals of metrics, expected %zu",
                       json_array_size(totals), x->n_totals);
    for (size_t i = 0; i < x->n_totals; i++) {
        double v;
        if (!mr__read_json_number(json_array_get(totals, i), &v))
            return mr_fail(st, MR_DATA_LOSS, "a worker's metrics are not numbers");
        r->totals[i] += v;
    }
    for (size_t i = 0, at = 0; i < x->opts->n_metrics; at += mr__metric_totals(x->metrics[i++]))
        mr__metric_show(x->metrics[i], r->totals + at);
    *result = &r->result;
    x->feed.at.step++;
    return write_records(x, t, st);
}

/* ---- the strategy's stepper ---- */

static const mr__stepper stepper = {.reads_apart = true,
                                    .take = take,
                                    .rewind = rewind_streams,
                                    .save = save_streams,
                                    .restore = restore_streams,
                                    .open = open,
                                    .close = close,
                                    .most = most,
                                    .submit = submit,
                                    .is_ready = is_ready,
                                    .collect = collect,
                                    .settle = settle};

static void close_servers(void *servers)
{
    mr__servers_close(servers);
}

static void keep_servers(void *servers)
{
    mr__servers_failed(servers);
}

static bool has_lost(const void *servers)
{
    return ((const mr__servers *)servers)->all.has_lost;
}

void mr__remote_attach(mr_strategy *s, mr__servers *servers)
{
    mr__strategy_set_remote(s, &(mr__remote_job){.self = servers,
                                                 .close = close_servers,
                                                 .failed = keep_servers,
                                                 .has_lost = has_lost,
                                                 .stepper = &stepper});
}

mr__servers *mr__strategy_servers(const mr_strategy *s)
{
    return mr__strategy_remote(s)->self;
}
