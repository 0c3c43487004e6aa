/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/worker/match.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/name_scope.h"
#include "transport/service/job.h"

typedef struct matching {
    mr__errand errand; /* first */
    mr__match_done done;
    void *ctx;
    const char *worker;
    uint64_t job_id;
    Mr__Wire__Job *job, *final;
    mr_status why;
} matching;

static void run(mr__errand *e)
{
    matching *m = (matching *)e;
    Mr__Wire__FileList **lists = NULL;
    size_t n = 0;
    mr__name_scope_set((mr__name_scope){.of_service = true}); /* this thread does nothing else */
    if (mr__job_check_writes(m->job, &m->why) != MR_OK)
        return;
    if (mr__job_match(m->job, &lists, &n, &m->why) != MR_OK)
        return;
    if (mr__job_finish(m->job, lists, n, &m->final, &m->why) == MR_OK)
        m->why.code = MR_OK;
    mr__job_lists_free(lists, n);
}

static void done(mr__errand *e)
{
    matching *m = (matching *)e;
    Mr__Wire__Lists lists = MR__WIRE__LISTS__INIT;
    Mr__Wire__Status status;
    lists.job_id = m->job_id;
    if (m->final) {
        lists.n_lists = m->final->n_lists;
        lists.lists = m->final->lists;
        lists.streams = m->final->streams;
        lists.splits = m->final->splits;
    } else {
        size_t n = strlen(m->why.message);
        snprintf(m->why.message + n, sizeof m->why.message - n, " (at worker %s)", m->worker);
        mr__status_to_wire(&m->why, &status);
        lists.status = &status;
    }
    m->done(m->ctx, m->job_id, &lists);
}

static void free_matching(mr__errand *e)
{
    matching *m = (matching *)e;
    mr__wire_free(m->job);
    mr__wire_free(m->final);
    mr_free(m);
}

mr_code mr__match_start(mr__loop *l, uint64_t job_id, const Mr__Wire__Job *job, const char *worker,
                        mr__match_done to, void *ctx, mr_status *st)
{
    matching *m = mr_calloc(1, sizeof *m);
    if (!m)
        return mr_fail_memory(st, sizeof *m, "a job");
    m->errand.run = run;
    m->errand.done = done;
    m->errand.free = free_matching;
    m->done = to;
    m->ctx = ctx;
    m->worker = worker;
    m->job_id = job_id;
    mr_status_init(&m->why);
    mr_code rc = mr__wire_copy(&job->base, &m->job, st);
    if (rc == MR_OK)
        rc = mr__errand_start(&m->errand, l, st);
    if (rc != MR_OK)
        free_matching(&m->errand);
    return rc;
}
