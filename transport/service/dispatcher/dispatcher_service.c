/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/dispatcher/dispatcher_service.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"
#include "transport/service/dispatcher/dispatcher_run.h"
#include "transport/service/service_options.h"
#include "transport/service/status/daemon_thread.h"
#include "transport/wire/token_file.h"

enum { AUTO_STREAMS = 8, MOST_WORKERS = 65536 };

struct mr_service_dispatcher {
    mr__dispatcher_run *run;
    mr__daemon_thread thread;
    mr__token token, status_token;
    char *state;
    char status[128]; /* address of the page, which closes before the dispatcher; "": none */
};

/* The worker or client that expanded the job's file patterns has counted the files. */
static mr_code count_streams(void *ctx, const Mr__Wire__Job *job, uint32_t *n, mr_status *st)
{
    (void)ctx;
    (void)st;
    if (job->mode == MR__WIRE__MODE__DYNAMIC)
        *n = (uint32_t)job->splits;
    else
        *n = job->streams ? job->streams : AUTO_STREAMS;
    return MR_OK;
}

static mr_code serve(void *ctx, mr_status *st)
{
    return mr__dispatcher_run_serve(((mr_service_dispatcher *)ctx)->run, st);
}

static mr_code check(const mr_service_dispatcher_opts *o, mr_status *st)
{
    MR_TRY(mr__option_address("listen", o->listen, true, st));
    MR_TRY(mr__option_address("status", o->status, true, st));
    for (size_t i = 0; o->workers && i < o->n_workers; i++)
        MR_TRY(mr__option_address("workers", o->workers[i], false, st));
    if (o->min_workers < 0 || o->max_workers < 0 || o->max_workers > MOST_WORKERS ||
        o->min_workers > (o->max_workers ? o->max_workers : MOST_WORKERS))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "min_workers %" PRId64 " and max_workers %" PRId64
                       " must be 0 to %d, and the first not greater",
                       o->min_workers, o->max_workers, MOST_WORKERS);
    if (o->n_workers > MOST_WORKERS || (o->workers && !o->n_workers))
        return mr_fail(st, MR_INVALID_ARGUMENT, "n_workers must be 1 to %d, not %zu", MOST_WORKERS,
                       o->n_workers);
    if (!o->jobs_of_name_only)
        return o->n_operators ? mr_fail(st, MR_INVALID_ARGUMENT,
                                        "operators are for a dispatcher with jobs_of_name_only")
                              : MR_OK;
    for (size_t i = 0; i < o->n_operators; i++)
        if (!o->operators[i] || !o->operators[i][0])
            return mr_fail(st, MR_INVALID_ARGUMENT, "an operator's name is empty");
    if (!o->n_operators)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "jobs_of_name_only needs operators, the names of the workers and of tools: "
                       "no other may register as a worker");
    if (o->status && !o->status_token_file)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "with jobs_of_name_only the status page, which shows all jobs, needs a "
                       "status_token_file");
    return MR_OK;
}

static mr_code open_all(mr_service_dispatcher *d, const mr_service_dispatcher_opts *o,
                        mr_status *st)
{
    MR_TRY(mr__option_token(o->token_file, o->tls, MR__TLS_ACCEPTS, &d->token, st));
    d->token.any_user = o->any_user;
    if (o->jobs_of_name_only && !d->token.names && !mr__tls_is_mutual(d->token.tls))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "jobs_of_name_only needs names: those of a token_file with names, or of "
                       "certificates (tls_client_ca)");
    if (o->status_token_file)
        MR_TRY(mr__option_page_token(o->status_token_file, &d->status_token, st));
    if (o->state && !(d->state = mr_strdup(o->state)))
        return mr_fail_memory(st, strlen(o->state), "a dispatcher");
    MR_TRY(mr__daemon_thread_init(&d->thread, o->cancel, st));
    const mr__dispatcher_run_opts run = {.listen = o->listen ? o->listen : "127.0.0.1:5050",
                                         .state = d->state,
                                         .status = o->status,
                                         .token = d->token,
                                         .status_token = d->status_token,
                                         .insecure = o->insecure,
                                         .workers = o->workers,
                                         .n_workers = o->n_workers,
                                         .min_workers = (double)o->min_workers,
                                         .max_workers = (double)o->max_workers,
                                         .no_balance = o->no_balance,
                                         .names_only = o->jobs_of_name_only,
                                         .operators = o->operators,
                                         .n_operators = o->n_operators,
                                         .loop = o->no_uring ? MR__LOOP_EPOLL : MR__LOOP_AUTO,
                                         .cancel = d->thread.stop,
                                         .draining = o->draining,
                                         .ctx = o->ctx,
                                         .streams = count_streams};
    MR_TRY(mr__dispatcher_run_open(&d->run, &run, st));
    if (o->status)
        snprintf(d->status, sizeof d->status, "%s", mr__dispatcher_run_status_address(d->run));
    return MR_OK;
}

mr_code mr_service_dispatcher_open(mr_service_dispatcher **out,
                                   const mr_service_dispatcher_opts *opts, mr_status *st)
{
    static const mr_service_dispatcher_opts defaults;
    opts = opts ? opts : &defaults;
    MR_TRY(check(opts, st));
    mr_service_dispatcher *d = mr_calloc(1, sizeof *d);
    if (!d)
        return mr_fail_memory(st, sizeof *d, "a dispatcher");
    d->thread =
        (mr__daemon_thread){.serve = serve, .ctx = d, .what = "dispatcher", .forks = mr__forks()};
    mr_code rc = open_all(d, opts, st);
    if (rc != MR_OK) {
        mr_service_dispatcher_close(d);
        return rc;
    }
    *out = d;
    return MR_OK;
}

const char *mr_service_dispatcher_address(const mr_service_dispatcher *d)
{
    return mr__dispatcher_run_address(d->run);
}

const char *mr_service_dispatcher_status_address(const mr_service_dispatcher *d)
{
    return d->status[0] ? d->status : NULL;
}

mr_code mr_service_dispatcher_run(mr_service_dispatcher *d, mr_status *st)
{
    return mr__daemon_thread_run(&d->thread, st);
}

mr_code mr_service_dispatcher_start(mr_service_dispatcher *d, mr_status *st)
{
    return mr__daemon_thread_start(&d->thread, st);
}

mr_code mr_service_dispatcher_wait(mr_service_dispatcher *d, mr_status *st)
{
    return mr__daemon_thread_wait(&d->thread, st);
}

void mr_service_dispatcher_stop(mr_service_dispatcher *d)
{
    if (d)
        mr__daemon_thread_stop(&d->thread);
}

void mr_service_dispatcher_close(mr_service_dispatcher *d)
{
    if (!d || !mr__daemon_thread_is_here(&d->thread)) /* the parent's threads and sockets */
        return;
    mr__daemon_thread_end(&d->thread);
    mr__dispatcher_run_close(d->run);
    mr__daemon_thread_reset(&d->thread);
    mr__token_free(&d->token);
    mr__token_free(&d->status_token);
    mr_free(d->state);
    mr_free(d);
}
