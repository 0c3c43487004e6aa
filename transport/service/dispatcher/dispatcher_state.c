/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for all files of the dispatcher: log, random numbers, refusals. */
#include "transport/service/dispatcher/dispatcher_state.h"

#include <stdarg.h>
#include <stdio.h>

#include "pipeline/splitmix.h"

const char *const mr__d_modes[] = {"exactly_once", "dynamic", "parallel_epochs", "file", "data",
                                   "file_or_data", "hint"};

/* 0 means "no number". */
uint64_t mr__d_random(mr__dispatcher *d)
{
    uint64_t x;
    do
        x = mr__splitmix(d->random += MR__GOLDEN);
    while (x == 0);
    return x;
}

void mr__d_note_line(mr__dispatcher *d, mr_log_level level, const char *format, const char *line)
{
    mr__recent_add(&d->recent, level, line, d->now);
    d->out.note(d->ctx, level, format, line);
}

void mr__d_note(mr__dispatcher *d, mr_log_level level, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    mr__d_note_line(d, level, fmt, line);
}

void mr__d_fail(mr__dispatcher *d, uint64_t connection, uint64_t request, uint64_t job_id,
                const mr_status *why)
{
    Mr__Wire__Status status;
    mr__status_to_wire(why, &status);
    Mr__Wire__Failed failed = MR__WIRE__FAILED__INIT;
    failed.request = request;
    failed.job_id = job_id;
    failed.status = &status;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_FAILED;
    m.failed = &failed;
    d->out.send(d->ctx, connection, &m, 0);
}

mr_code mr__d_disk_full(mr_status *st)
{
    return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                   "the dispatcher cannot write its account; free space in its state directory");
}

/* ---- rights ---- */

bool mr__d_is_of(const mr__d_job *j, const char *owner)
{
    return !j->d->opts.names_only || strcmp(j->spec->owner, owner) == 0;
}

bool mr__d_is_operator(const mr__dispatcher *d, const mr__d_connection *x)
{
    bool is = !d->opts.names_only;
    for (size_t i = 0; i < d->opts.n_operators && !is && x->name[0]; i++)
        is = strcmp(d->operators[i], x->name) == 0;
    return is;
}

/* Jobs of an account from before names_only belong to no name, and not to a peer without one. */
bool mr__d_owns(const mr__d_connection *x, const mr__d_job *j)
{
    return !j->d->opts.names_only || (x->name[0] && mr__d_is_of(j, x->name));
}

bool mr__d_sees(const mr__d_connection *x, const mr__d_job *j)
{
    return !x || mr__d_owns(x, j) || mr__d_is_operator(j->d, x);
}
