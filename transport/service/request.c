/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/request.h"

#include <string.h>
#include <time.h>

#include "pipeline/memory/alloc.h"
#include "transport/wire/connection.h"

#define MS ((int64_t)1000000)
enum { AGAIN_MS = 100, LOOK_MS = 100 };

typedef struct requesting {
    mr__connection c; /* first */
    const Mr__Wire__Ask *ask;
    mr__message *report;
    bool is_ready, is_closed;
    mr_status why;
} requesting;

static void ready(mr__connection *c)
{
    requesting *a = (requesting *)c;
    mr_status st;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_ASK;
    m.ask = (Mr__Wire__Ask *)(uintptr_t)a->ask;
    a->is_ready = true;
    if (mr__connection_send(c, &m, &st) != MR_OK)
        mr__connection_close(c, &st);
}

/* m is borrowed: copies it by packing and unpacking. */
static mr_code keep(requesting *a, const mr__message *m, mr_status *st)
{
    size_t n = mr__wire__message__get_packed_size(m);
    void *bytes = mr_malloc(n ? n : 1);
    if (!bytes)
        return mr_fail_memory(st, n, "a report");
    mr__wire__message__pack(m, bytes);
    mr_code rc = mr__message_unpack(bytes, n, &a->report, st);
    mr_free(bytes);
    return rc;
}

static void message(mr__connection *c, const mr__message *m)
{
    requesting *a = (requesting *)c;
    mr_status st;
    mr_code rc = MR_OK;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_PULSE || a->report)
        return;
    if (m->body_case != MR__WIRE__MESSAGE__BODY_REPORT || m->report->request != a->ask->request)
        rc = mr_fail(&st, MR_DATA_LOSS, "message %d is not a report", (int)m->body_case);
    else
        rc = keep(a, m, &st);
    mr__connection_close(c, rc == MR_OK ? NULL : &st);
}

static void closed(mr__connection *c, const mr_status *why)
{
    requesting *a = (requesting *)c;
    a->is_closed = true;
    a->why = *why;
}

static const mr__connection_class tools = {.ready = ready, .message = message, .closed = closed};

/* Makes one connection, at most until `until`. Sets a->report, or a->why if it fails. */
static mr_code try_once(requesting *a, mr__loop *l, const mr__address *to,
                        const mr__request_opts *opts, int64_t until, mr_status *st)
{
    a->c.class_ = &tools;
    a->is_ready = a->is_closed = false;
    MR_TRY(mr__connection_open(&a->c, l, to, MR__WIRE__ROLE__TOOL, opts->token, st));
    while (!a->is_closed) {
        mr_status why;
        if (mr_cancel_is_cancelled(opts->cancel)) {
            mr_fail(&why, MR_CANCELLED, "interrupted");
            mr__connection_close(&a->c, &why);
        } else if (mr__loop_now(l) >= until) {
            mr_fail(&why, MR_DEADLINE_EXCEEDED, "the dispatcher at %s did not report in time",
                    opts->dispatcher);
            mr__connection_close(&a->c, &why);
        }
        int64_t look = mr__loop_now(l) + LOOK_MS * MS;
        MR_TRY(mr__loop_turn(l, look, st));
    }
    return MR_OK;
}

static mr_code request_until(requesting *a, mr__loop *l, const mr__address *to,
                             const mr__request_opts *opts, mr_status *st)
{
    int64_t until = mr__loop_now(l) + opts->timeout_ns;
    mr_status refused = {.code = MR_OK};
    for (;;) {
        MR_TRY(try_once(a, l, to, opts, until, st));
        if (a->report)
            break;
        /* The last attempt may have begun too late. */
        if (a->why.code == MR_DEADLINE_EXCEEDED && !a->is_ready && refused.code != MR_OK)
            mr_fail(&a->why, MR_UNAVAILABLE, "%s; the last attempt was not answered in time",
                    refused.message);
        bool again = a->why.code == MR_UNAVAILABLE && !a->is_ready;
        if (!again || mr__loop_now(l) + AGAIN_MS * MS >= until) {
            if (a->why.code == MR_UNAVAILABLE || a->why.code == MR_END)
                return mr_fail(st, MR_UNAVAILABLE, "no dispatcher at %s: %s", opts->dispatcher,
                               a->why.code == MR_END ? "it closed the connection" : a->why.message);
            if (st)
                *st = a->why;
            return a->why.code;
        }
        refused = a->why;
        struct timespec pause = {.tv_nsec = AGAIN_MS * MS};
        nanosleep(&pause, NULL); /* a signal ends it sooner */
        MR_TRY(mr__loop_turn(l, mr__loop_now(l), st));
    }
    mr_status theirs;
    if (!a->report->report->status)
        return MR_OK;
    mr__status_from_wire(a->report->report->status, &theirs);
    if (st)
        *st = theirs;
    mr__message_free(a->report);
    return theirs.code;
}

mr_code mr__request(const mr__request_opts *opts, const Mr__Wire__Ask *ask, mr__message **report,
                    mr_status *st)
{
    mr__address to;
    mr__loop *l;
    if (strlen(ask->name) > MR__MOST_TEXT)
        return mr_fail(st, MR_INVALID_ARGUMENT, "a name of %zu bytes; names have at most %d",
                       strlen(ask->name), MR__MOST_TEXT);
    MR_TRY(mr__address_check(opts->dispatcher, st));
    MR_TRY(mr__address_resolve(opts->dispatcher, &to, st));
    MR_TRY(mr__loop_open(MR__LOOP_EPOLL, &l, st));
    requesting *a = mr_calloc(1, sizeof *a);
    mr_code rc = MR_OK;
    if (a) {
        a->ask = ask;
        rc = request_until(a, l, &to, opts, st);
        if (rc == MR_OK)
            *report = a->report;
    } else {
        rc = mr_fail_memory(st, sizeof *a, "a request");
    }
    mr_free(a);
    mr__loop_close(l);
    return rc;
}
