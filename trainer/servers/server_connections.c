/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/servers/server_connections.h"
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"

#define MS ((int64_t)1000000)
enum { TURN_MS = 100, AGAIN_MS = 200 };

static void ready(mr__connection *c)
{
    mr__server_connection *p = (mr__server_connection *)c;
    p->state = MR__SERVER_READY;
    mr__call_watch(c);
}

static void message(mr__connection *c, const mr__message *m)
{
    mr_status why;
    (void)m;
    mr_fail(&why, MR_DATA_LOSS, "received another message instead of an answer to a call");
    mr__connection_close(c, &why);
}

static void block(mr__connection *c, const mr__incoming *head, mr_buffer *payload)
{
    mr__server_connection *p = (mr__server_connection *)c;
    mr__call call;
    mr_status why;
    mr_code rc = mr__call_read(head, payload, &call, &why);
    if (rc == MR_OK &&
        (call.kind != MR__CALL_ANSWER || !p->is_waiting || call.number != p->number)) {
        mr__call_reset(&call);
        rc = mr_fail(&why, MR_DATA_LOSS, "received an answer without a call");
    }
    if (rc != MR_OK) {
        mr__connection_close(c, &why);
        return;
    }
    p->answer = call;
    p->has_answer = true;
    p->is_waiting = false;
}

static void closed(mr__connection *c, const mr_status *why)
{
    mr__server_connection *p = (mr__server_connection *)c;
    p->state = MR__SERVER_AWAY;
    p->why = *why;
}

static const mr__connection_class calls = {
    .ready = ready, .message = message, .block = block, .closed = closed};

mr_code mr__server_connections_open(mr__server_connections *p, size_t n, mr_status *st)
{
    if (n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "there is no server to connect to");
    p->v = mr_calloc(n, sizeof *p->v);
    if (!p->v)
        return mr_fail_memory(st, n * sizeof *p->v, "connections");
    p->n = n;
    for (size_t i = 0; i < n; i++)
        p->v[i] = (mr__server_connection){.c.class_ = &calls, .all = p};
    return mr__loop_open(MR__LOOP_EPOLL, &p->loop, st);
}

mr_code mr__server_connection_name(mr__server_connection *p, const char *what, size_t index,
                                   const char *address, mr_status *st)
{
    p->what = what;
    p->index = index;
    if (strlen(address) >= sizeof p->address)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the address of %s %zu is too long", what, index);
    strcpy(p->address, address);
    return mr__address_check(address, st);
}

/* The loop runs one more time before it is closed. */
static void abandon(mr__server_connection *p)
{
    mr__lookup_abandon(p->lookup);
    p->lookup = NULL;
    p->state = MR__SERVER_AWAY;
}

void mr__server_connections_close(mr__server_connections *p, bool finish)
{
    bool open = true;
    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].lookup)
            abandon(&p->v[i]);
        else if (finish && p->v[i].state == MR__SERVER_READY)
            mr__connection_finish(&p->v[i].c);
        else if (p->v[i].state != MR__SERVER_AWAY)
            mr__connection_close(&p->v[i].c, NULL);
    if (p->loop && mr__loop_turn(p->loop, mr__loop_now(p->loop), NULL) != MR_OK)
        return; /* the kernel may still use it: leak it */
    while (open && p->loop) {
        open = false;
        for (size_t i = 0; i < p->n; i++)
            open = open || p->v[i].state != MR__SERVER_AWAY;
        if (open && mr__loop_turn(p->loop, INT64_MAX, NULL) != MR_OK)
            return; /* as above */
    }
    for (size_t i = 0; i < p->n; i++)
        mr__call_reset(&p->v[i].answer);
    mr_free(p->v);
    mr__loop_close(p->loop);
    p->v = NULL;
    p->loop = NULL;
    p->n = 0;
}

/* It is dialed again soon: the name may resolve later. */
static void not_yet(mr__server_connection *p)
{
    p->state = MR__SERVER_AWAY;
    p->again_ns = mr__loop_now(p->all->loop) + AGAIN_MS * MS;
}

static void looked_up(void *ctx, const mr__address *to, const mr_status *why)
{
    mr__server_connection *p = ctx;
    p->lookup = NULL;
    if (!to) {
        p->why = *why;
        not_yet(p);
        return;
    }
    if (mr__connection_open(&p->c, p->all->loop, to, p->all->role, p->all->token, &p->why) != MR_OK)
        not_yet(p);
}

mr_code mr__server_connections_dial(mr__server_connections *p, size_t from, size_t to,
                                    mr_status *st)
{
    for (size_t i = from; i < to; i++) {
        mr__server_connection *x = &p->v[i];
        if (x->state != MR__SERVER_AWAY || x->again_ns > mr__loop_now(p->loop))
            continue;
        x->is_waiting = x->has_answer = false;
        mr__call_reset(&x->answer);
        x->again_ns = mr__loop_now(p->loop) + AGAIN_MS * MS;
        MR_TRY(mr__lookup_start(&x->lookup, p->loop, x->address, looked_up, x, st));
        x->state = MR__SERVER_DIALING;
    }
    return MR_OK;
}

mr_code mr__server_connections_turn(mr__server_connections *p, mr_status *st)
{
    if (p->cancel && mr_cancel_is_cancelled(p->cancel))
        return mr_fail(st, MR_CANCELLED, "interrupted");
    return mr__loop_turn(p->loop, mr__loop_now(p->loop) + TURN_MS * MS, st);
}

mr_code mr__server_connection_call(mr__server_connections *all, mr__server_connection *p,
                                   mr__call_kind kind, const json_t *text, const float *values,
                                   size_t n, mr_status *st)
{
    mr__call_reset(&p->answer);
    p->has_answer = false;
    p->is_waiting = true;
    return mr__call_send(&p->c, kind, all->job, ++p->number, text, values, n, st);
}

static mr_code lost(const mr__server_connection *p, mr_status *st)
{
    if (p->why.code == MR_PERMISSION_DENIED || p->why.code == MR_FAILED_PRECONDITION)
        return mr_fail(st, p->why.code, "%s %zu (%s): %.600s", p->what, p->index, p->address,
                       p->why.message);
    return mr_fail(st, MR_UNAVAILABLE, "%s %zu (%s) is lost: %.600s", p->what, p->index, p->address,
                   p->why.code == MR_END || p->why.code == MR_OK ? "it closed its connection"
                                                                 : p->why.message);
}

mr_code mr__server_connections_check(mr__server_connections *all, size_t n, mr_status *st)
{
    for (size_t i = 0; i < n; i++)
        if (all->v[i].state != MR__SERVER_READY) {
            mr_code rc = lost(&all->v[i], st);
            all->has_lost = all->has_lost || rc == MR_UNAVAILABLE;
            return rc;
        }
    return MR_OK;
}

mr_code mr__server_connections_await(mr__server_connections *all, size_t n, mr_status *st)
{
    for (size_t i = 0; i < n;) {
        const mr__server_connection *p = &all->v[i];
        if (p->has_answer) {
            MR_TRY(mr__call_error(&p->answer, st));
            i++;
            continue;
        }
        MR_TRY(mr__server_connections_check(all, n, st));
        MR_TRY(mr__server_connections_turn(all, st));
    }
    return MR_OK;
}

mr_code mr__server_connections_gather(mr__server_connections *all, size_t from, size_t to, bool any,
                                      double seconds, mr_status *st)
{
    int64_t until = mr__loop_now(all->loop) + (int64_t)(seconds * 1e9);
    for (;;) {
        const mr__server_connection *missing = NULL;
        size_t there = 0;
        MR_TRY(mr__server_connections_dial(all, from, to, st));
        for (size_t i = from; i < to; i++) {
            const mr__server_connection *p = &all->v[i];
            there += p->state == MR__SERVER_READY;
            if (p->state != MR__SERVER_READY)
                missing = p;
            if (p->state == MR__SERVER_AWAY &&
                (p->why.code == MR_PERMISSION_DENIED || p->why.code == MR_FAILED_PRECONDITION))
                return lost(p, st);
        }
        if (!missing || (any && there > 0))
            return MR_OK;
        if (mr__loop_now(all->loop) > until)
            return mr_fail(st, MR_DEADLINE_EXCEEDED,
                           "after %g s, still waiting for %s %zu (%s)%s%.400s", seconds,
                           missing->what, missing->index, missing->address,
                           missing->why.code < 0 ? ": " : "",
                           missing->why.code < 0 ? missing->why.message : "");
        MR_TRY(mr__server_connections_turn(all, st));
    }
}
