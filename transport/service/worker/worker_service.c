/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/worker/worker_service.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/write_roots.h"
#include "transport/service/service_options.h"
#include "transport/service/status/daemon_thread.h"
#include "transport/service/worker/file_roots.h"
#include "transport/service/worker/worker_run.h"
#include "transport/wire/token_file.h"

#define LEAST_MEMORY ((int64_t)16 << 20)

struct mr_service_worker {
    mr__worker_run *run;
    mr__daemon_thread thread;
    mr__token token, status_token;
    char *dispatcher;
    mr_executor *executor; /* its own; NULL: the caller's is used */
    char status[128];      /* address of the page, which closes before the worker; "": none */
};

static mr_code serve(void *ctx, mr_status *st)
{
    return mr__worker_run_serve(((mr_service_worker *)ctx)->run, st);
}

static mr_code check(const mr_service_worker_opts *o, mr_status *st)
{
    if (!o->dispatcher)
        return mr_fail(st, MR_INVALID_ARGUMENT, "dispatcher: a worker needs its HOST:PORT");
    MR_TRY(mr__option_address("dispatcher", o->dispatcher, false, st));
    MR_TRY(mr__option_address("listen", o->listen, true, st));
    MR_TRY(mr__option_address("status", o->status, true, st));
    if (o->memory_limit && o->memory_limit < LEAST_MEMORY)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "memory_limit: %lld bytes are too few; at least %lld",
                       (long long)o->memory_limit, (long long)LEAST_MEMORY);
    if (o->weight != 0 && !(o->weight >= 1e-3 && o->weight <= 1e6))
        return mr_fail(st, MR_INVALID_ARGUMENT, "weight: %g is not between 0.001 and 1000000",
                       o->weight);
    return MR_OK;
}

/* Clients choose the files that a worker reads. */
static mr_code check_exposure(const mr_service_worker *w, bool insecure, mr_status *st)
{
    const char *address = mr__worker_run_address(w->run);
    if (mr__worker_run_is_loopback(w->run))
        return MR_OK;
    if (!mr__file_roots_are_set())
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s is open to other hosts, and clients could read any file; restrict files "
                       "to directories (mr_service_restrict_files, --root)",
                       address);
    return mr__check_secure(address, &w->token, insecure, st);
}

static mr_code open_all(mr_service_worker *w, const mr_service_worker_opts *o, mr_status *st)
{
    MR_TRY(
        mr__option_token(o->token_file, o->tls, MR__TLS_ACCEPTS | MR__TLS_CONNECTS, &w->token, st));
    w->token.any_user = o->any_user;
    if (o->status_token_file)
        MR_TRY(mr__option_page_token(o->status_token_file, &w->status_token, st));
    if (!(w->dispatcher = mr_strdup(o->dispatcher)))
        return mr_fail_memory(st, strlen(o->dispatcher), "a worker");
    if (!o->executor)
        MR_TRY(mr_executor_new(mr_usable_cpus(), &w->executor, st));
    MR_TRY(mr__daemon_thread_init(&w->thread, o->cancel, st));
    const mr__worker_run_opts run = {
        .dispatcher = w->dispatcher,
        .listen = o->listen ? o->listen : "127.0.0.1:0",
        .status = o->status,
        .token = w->token,
        .status_token = w->status_token,
        .weight = (uint32_t)((o->weight != 0 ? o->weight : mr_usable_cpus()) * 1000),
        .tags = o->tags,
        .n_tags = o->n_tags,
        .executor = o->executor ? o->executor : w->executor,
        .memory_limit = o->memory_limit,
        .watch = o->watch,
        .loop = o->no_uring ? MR__LOOP_EPOLL : MR__LOOP_AUTO,
        .cancel = w->thread.stop,
        .draining = o->draining,
        .ready = o->ready,
        .ctx = o->ctx};
    MR_TRY(mr__worker_run_open(&w->run, &run, st));
    if (o->status)
        snprintf(w->status, sizeof w->status, "%s", mr__worker_run_status_address(w->run));
    return check_exposure(w, o->insecure, st);
}

mr_code mr_service_worker_open(mr_service_worker **out, const mr_service_worker_opts *opts,
                               mr_status *st)
{
    static const mr_service_worker_opts none;
    opts = opts ? opts : &none;
    MR_TRY(check(opts, st));
    mr_service_worker *w = mr_calloc(1, sizeof *w);
    if (!w)
        return mr_fail_memory(st, sizeof *w, "a worker");
    w->thread =
        (mr__daemon_thread){.serve = serve, .ctx = w, .what = "worker", .forks = mr__forks()};
    mr_code rc = open_all(w, opts, st);
    if (rc != MR_OK) {
        mr_service_worker_close(w);
        return rc;
    }
    *out = w;
    return MR_OK;
}

const char *mr_service_worker_address(const mr_service_worker *w)
{
    return mr__worker_run_address(w->run);
}

const char *mr_service_worker_status_address(const mr_service_worker *w)
{
    return w->status[0] ? w->status : NULL;
}

mr_code mr_service_worker_run(mr_service_worker *w, mr_status *st)
{
    return mr__daemon_thread_run(&w->thread, st);
}

mr_code mr_service_worker_start(mr_service_worker *w, mr_status *st)
{
    return mr__daemon_thread_start(&w->thread, st);
}

mr_code mr_service_worker_wait(mr_service_worker *w, mr_status *st)
{
    return mr__daemon_thread_wait(&w->thread, st);
}

void mr_service_worker_stop(mr_service_worker *w)
{
    if (w)
        mr__daemon_thread_stop(&w->thread);
}

void mr_service_worker_close(mr_service_worker *w)
{
    if (!w || !mr__daemon_thread_is_here(&w->thread)) /* the parent's threads and sockets */
        return;
    mr__daemon_thread_end(&w->thread);
    mr__worker_run_close(w->run);
    mr_executor_free(w->executor);
    mr__daemon_thread_reset(&w->thread);
    mr__token_free(&w->token);
    mr__token_free(&w->status_token);
    mr_free(w->dispatcher);
    mr_free(w);
}

/* The error of an option that lists directories: any but a lack of memory means a wrong one. */
static mr_code fail_option(const mr_status *why, mr_status *st)
{
    mr_code rc = why->code == MR_RESOURCE_EXHAUSTED ? why->code : MR_INVALID_ARGUMENT;
    if (st) {
        *st = *why;
        st->code = rc;
    }
    return rc;
}

mr_code mr_service_allow_writes(const char *const *directories, size_t n, mr_status *st)
{
    mr_status why;
    for (size_t i = 0; directories && i < n && directories[i]; i++)
        if (strstr(directories[i], "://"))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "%.200s is a URL; graphs of clients write local files only",
                           directories[i]);
    return mr__write_roots_set(directories, n, &why) == MR_OK ? MR_OK : fail_option(&why, st);
}

mr_code mr_service_restrict_files(const char *const *directories, size_t n, mr_status *st)
{
    const mr__system *table;
    mr_status why;
    mr_code rc = mr__file_roots_set(directories, n, &table, &why);
    if (rc != MR_OK)
        return fail_option(&why, st);
    mr__system_set(table);
    return MR_OK;
}
