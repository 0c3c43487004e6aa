/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/servers/servers.h"
#include <string.h>
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "trainer/servers/layout.h"
#include "transport/wire/token_file.h"

enum { LATE_SECONDS = 10 }; /* grace period for workers that were not needed, to receive END */

static mr_code check(const mr_workers_opts *o, mr_status *st)
{
    const mr_cluster *c = o ? o->cluster : NULL;
    if (!c || c->tasks[MR_TASK_PS].n == 0 || c->tasks[MR_TASK_WORKER].n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "parameter_server needs TF_CONFIG with at least one task of type ps and one "
                       "of type worker, each of which runs `millrace server`");
    if (c->has_task && c->type != MR_TASK_CHIEF)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "this process is the task %s %d, which runs `millrace server`; the chief "
                       "trains, or a process whose TF_CONFIG has no task",
                       mr_task_type_name(c->type), (int)c->index);
    return MR_OK;
}

static mr_code connect_all(mr__servers *s, const mr_workers_opts *o, mr_status *st)
{
    const mr_tasks *ps = &o->cluster->tasks[MR_TASK_PS];
    const mr_tasks *workers = &o->cluster->tasks[MR_TASK_WORKER];
    double seconds = o->connect_timeout_s > 0 ? o->connect_timeout_s : 60;
    s->n_ps = ps->n;
    MR_TRY(mr__token_open(mr__cluster_token_file(o->cluster_token_file), o->tls, MR__TLS_CONNECTS,
                          &s->token, st));
    s->all.role = MR__WIRE__ROLE__COORDINATOR;
    s->all.token = s->token;
    s->all.cancel = o->cancel;
    while (s->all.job == 0)
        if (mr__sys->getrandom(&s->all.job, sizeof s->all.job, 0) != (ssize_t)sizeof s->all.job)
            return mr_fail(st, MR_INTERNAL, "cannot read random bytes for a job");
    MR_TRY(mr__server_connections_open(&s->all, ps->n + workers->n, st));
    for (size_t i = 0; i < ps->n; i++)
        MR_TRY(
            mr__server_connection_name(&s->all.v[i], "parameter server", i, ps->addresses[i], st));
    for (size_t i = 0; i < workers->n; i++)
        MR_TRY(mr__server_connection_name(&s->all.v[ps->n + i], "worker", i, workers->addresses[i],
                                          st));
    MR_TRY(mr__server_connections_gather(&s->all, 0, s->n_ps, false, seconds, st));
    return mr__server_connections_gather(&s->all, s->n_ps, s->all.n, true, seconds, st);
}

mr_code mr__servers_open(mr__servers **out, const mr_workers_opts *o, mr_status *st)
{
    MR_TRY(check(o, st));
    mr__servers *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a job's servers");
    s->keep = o->keep_servers;
    mr_code rc = MR_OK;
    if (o->variable_partitioner) {
        rc = mr__partitioner_check(o->variable_partitioner, st);
        if (rc == MR_OK && !(s->partitioner = mr_strdup(o->variable_partitioner)))
            rc = mr_fail_memory(st, strlen(o->variable_partitioner), "a partitioner");
    }
    if (rc == MR_OK)
        rc = connect_all(s, o, st);
    if (rc != MR_OK) {
        s->failed = true;
        mr__servers_close(s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

void mr__servers_failed(mr__servers *s)
{
    if (s)
        s->failed = true;
}

/* A worker that started late also gets END: it had no coordinator whose loss it would notice. */
static void end_all(mr__servers *s)
{
    mr_code rc =
        mr__server_connections_gather(&s->all, s->n_ps, s->all.n, false, LATE_SECONDS, NULL);
    for (size_t i = 0; i < s->all.n; i++) {
        mr__server_connection *p = &s->all.v[i];
        /* A worker lost after this exits when no coordinator connects. */
        if (p->state == MR__SERVER_READY)
            rc = mr__server_connection_call(&s->all, p, MR__CALL_END, NULL, NULL, 0, NULL);
        else
            mr_log(
                MR_LOG_WARNING,
                "%s %zu (%s) could not be informed that training has ended; stop it with a signal",
                p->what, p->index, p->address);
    }
    (void)rc;
}

void mr__servers_close(mr__servers *s)
{
    if (!s)
        return;
    if (!s->keep && !s->failed)
        end_all(s);
    mr__server_connections_close(&s->all, !s->failed);
    mr__token_free(&s->token);
    mr_free(s->partitioner);
    mr_free(s);
}
