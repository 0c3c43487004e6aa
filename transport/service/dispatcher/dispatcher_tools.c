/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of tools: reports, cancelling, draining, registered datasets. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/dispatcher/dispatcher_state.h"

/* All repetitions of it; by its number, this one. */
static mr_code cancel_job(mr__dispatcher *d, const mr__d_connection *x, const char *name,
                          uint64_t *after, mr_status *st)
{
    mr__d_job *j = mr__d_job_called(d, x, name);
    if (!j)
        return mr_fail(st, MR_NOT_FOUND, "there is no job \"%.100s\"", name);
    mr_status why;
    mr_fail(&why, MR_CANCELLED, "job \"%.100s\" was cancelled", name);
    for (mr__d_job *next; j; j = next) {
        mr__d_refuse_waiting(d, j, &why);
        for (mr__d_client *c = j->clients; c; c = c->next)
            if (c->connection)
                mr__d_fail(d, c->connection, 0, j->id, &why);
        for (uint32_t i = 0; i < j->n_streams; i++) {
            mr__d_set_reader(j->streams[i], NULL);
            mr__d_take_off(d, j->streams[i]);
        }
        next = mr__d_job_like(d, j->spec->owner, name, j);
        *after = mr__d_forget_job(d, j);
    }
    mr__d_note(d, MR_LOG_INFO, "job \"%s\" was cancelled", name);
    return MR_OK;
}

/* The tool is answered when the worker has ended: *waits, unless it has already. If this dispatcher
 * ends before that, the drain continues after its restart, and may be requested again. */
static mr_code drain_worker(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Ask *ask,
                            bool *waits, uint64_t *after, mr_status *st)
{
    mr__d_worker *w = mr__d_worker_at(d, ask->name);
    if (x->drains)
        return mr_fail(st, MR_FAILED_PRECONDITION, "this tool is already draining worker %.100s",
                       x->drains->address);
    if (!w || (!w->connection && !w->taken_out))
        return mr_fail(st, MR_NOT_FOUND, "there is no worker %.100s%s", ask->name,
                       mr__d_has_just_started(d)
                           ? "; the dispatcher has just started, and workers may "
                             "not have found it yet: try again"
                           : "");
    if (!w->taken_out && d->disk_full)
        return mr__d_disk_full(st);
    if (!w->taken_out)
        mr__d_take_out(d, w, true);
    *after = w->recorded;
    *waits = w->connection || mr__d_may_come(d, w);
    if (!*waits)
        return MR_OK;
    w->draining = true;
    mr__d_rank(d, w);
    x->drains = w;
    x->drain_request = ask->request;
    d->n_draining++;
    if (w->connection)
        mr__d_ask_to_end(d, w);
    return MR_OK;
}

mr_code mr__d_add_dataset(mr__dispatcher *d, const char *id, const void *graph, size_t bytes,
                          mr__d_dataset **out, mr_status *st)
{
    mr__d_dataset *x = mr_calloc(1, sizeof *x);
    if (!x || !(x->id = mr_strdup(id)) || !(x->graph = mr_memdup(graph, bytes))) {
        mr_free(x ? x->id : NULL);
        mr_free(x);
        return mr_fail_memory(st, bytes, "a dataset");
    }
    x->graph_bytes = bytes;
    x->next = d->datasets;
    d->datasets = x;
    *out = x;
    return MR_OK;
}

/* *id = the number of an equal graph, or a new one. */
static mr_code register_dataset(mr__dispatcher *d, const ProtobufCBinaryData *graph,
                                const char **id, uint64_t *after, mr_status *st)
{
    for (mr__d_dataset *x = d->datasets; x; x = x->next)
        if (x->graph_bytes == graph->len && memcmp(x->graph, graph->data, graph->len) == 0) {
            *id = x->id;
            return MR_OK;
        }
    mr__d_dataset *x;
    char text[32];
    if (d->disk_full)
        return mr__d_disk_full(st);
    snprintf(text, sizeof text, "%016" PRIx64, mr__d_random(d));
    MR_TRY(mr__d_add_dataset(d, text, graph->data, graph->len, &x, st));
    mr__record r = {.kind = MR__RECORD_DATASET,
                    .name = x->id,
                    .graph = x->graph,
                    .graph_bytes = x->graph_bytes};
    *after = d->out.record(d->ctx, &r);
    *id = x->id;
    return MR_OK;
}

/* name "": all jobs. *n = the number of streams that begin to move. */
static mr_code rebalance(mr__dispatcher *d, const char *name, size_t *n, mr_status *st)
{
    const mr__d_job *j = name[0] ? mr__d_job_called(d, NULL, name) : NULL;
    if (name[0] && !j)
        return mr_fail(st, MR_NOT_FOUND, "there is no job \"%.100s\"", name);
    *n = mr__d_balance(d, j, true);
    return MR_OK;
}

/* Of other names' jobs a peer learns nothing, and about workers nothing, unless it is an operator;
 * registered graphs are for all. */
static mr_code check_right(const mr__dispatcher *d, const mr__d_connection *x, const char *what,
                           mr_status *st)
{
    static const char *const of_own[] = {"jobs", "streams", "cancel", "register", "dataset"};
    bool may = mr__d_is_operator(d, x);
    for (size_t i = 0; i < sizeof of_own / sizeof *of_own; i++)
        may |= strcmp(what, of_own[i]) == 0;
    return may ? MR_OK
               : mr_fail(st, MR_PERMISSION_DENIED,
                         "\"%.100s\" needs a name of the dispatcher's --operators, not \"%s\"",
                         what, x->name);
}

void mr__d_take_ask(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Ask *ask, int64_t now)
{
    mr_status st;
    mr_code rc = check_right(d, x, ask->what, &st);
    uint64_t after = 0;
    bool waits = false;
    char *json = NULL, answer[64];
    Mr__Wire__Report report = MR__WIRE__REPORT__INIT;
    report.request = ask->request;
    if (rc != MR_OK) {
        /* refused */
    } else if (strcmp(ask->what, "cancel") == 0) {
        rc = cancel_job(d, x, ask->name, &after, &st);
    } else if (strcmp(ask->what, "drain") == 0) {
        rc = drain_worker(d, x, ask, &waits, &after, &st);
        if (waits)
            return;
    } else if (strcmp(ask->what, "rebalance") == 0) {
        size_t n = 0;
        rc = rebalance(d, ask->name, &n, &st);
        snprintf(answer, sizeof answer, "{\"moves\": %zu}", n);
        report.json = answer;
    } else if (strcmp(ask->what, "register") == 0) {
        const char *id = "";
        rc = register_dataset(d, &ask->graph, &id, &after, &st);
        snprintf(answer, sizeof answer, "{\"id\": \"%s\"}", id);
        report.json = answer;
    } else if (strcmp(ask->what, "dataset") == 0) {
        mr__d_dataset *found = d->datasets;
        while (found && strcmp(found->id, ask->name) != 0)
            found = found->next;
        if (found)
            report.graph = (ProtobufCBinaryData){found->graph_bytes, found->graph};
        else
            rc = mr_fail(&st, MR_NOT_FOUND, "there is no dataset %.100s", ask->name);
    } else if ((json = mr__d_report(d, x, ask->what, ask->name, now))) {
        report.json = json;
    } else {
        rc = strcmp(ask->what, "streams") == 0
                 ? mr_fail(&st, MR_NOT_FOUND, "there is no job \"%.100s\"", ask->name)
                 : mr_fail(&st, MR_NOT_FOUND, "there is no report \"%.100s\"", ask->what);
    }
    Mr__Wire__Status status;
    if (rc != MR_OK) {
        mr__status_to_wire(&st, &status);
        report.status = &status;
    }
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_REPORT;
    m.report = &report;
    d->out.send(d->ctx, x->id, &m, after);
    mr_free(json);
}
