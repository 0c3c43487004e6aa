/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/dispatcher/dispatcher_run.h"

#include <stddef.h>

#include "pipeline/log_internal.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "transport/service/dispatcher/account.h"
#include "transport/service/status/daemon.h"
#include "transport/wire/token_file.h"

#define SECOND ((int64_t)1000000000)
enum { MOST_WAITING = 64 << 20, MOST_UNREAD = 64 << 10 };

/* A message that must not be sent before a record is durable. */
typedef struct held {
    struct held *next;
    uint64_t after;
    void *frame;
    size_t bytes;
} held;

typedef struct guest {
    mr__guest g;    /* first */
    bool is_asking; /* paused until its report is sent */
    held *first, *last;
    size_t held_bytes;
} guest;

struct mr__dispatcher_run {
    mr__daemon base; /* first */
    mr__dispatcher_run_opts o;
    mr__dispatcher *d;
    mr__account *account; /* NULL: in memory */
    uint64_t durable;
    mr__timer tick, listen_on;
};

static int64_t now_of(const mr__dispatcher_run *r)
{
    return mr__loop_now(r->base.loop);
}

static mr__dispatcher_run *run_of(const guest *g)
{
    return (mr__dispatcher_run *)g->g.daemon;
}

static guest *next_of(const guest *g)
{
    return (guest *)g->g.next;
}

static guest *first_of(const mr__dispatcher_run *r)
{
    return (guest *)r->base.newest;
}

/* ---- time ---- */

static void set_tick(mr__dispatcher_run *r, int64_t at)
{
    mr_status st;
    if (at != INT64_MAX && mr__timer_set(r->base.loop, &r->tick, at, &st) != MR_OK)
        mr__daemon_fail(&r->base, &st);
}

static void ticked(mr__timer *t)
{
    mr__dispatcher_run *r = (mr__dispatcher_run *)((char *)t - offsetof(mr__dispatcher_run, tick));
    if (!r->base.is_draining)
        set_tick(r, mr__dispatcher_tick(r->d, now_of(r)));
}

/* Something happened: sets the timer again. */
static void wind_up(mr__dispatcher_run *r)
{
    if (!r->tick.place)
        set_tick(r, now_of(r) + SECOND);
}

/* ---- messages waiting for their record ---- */

static void drop_held(guest *g)
{
    while (g->first) {
        held *h = g->first;
        g->first = h->next;
        mr_free(h->frame);
        mr_free(h);
    }
    g->last = NULL;
    g->held_bytes = 0;
}

static void give_up(guest *g, const mr_status *why)
{
    drop_held(g);
    mr__connection_close(&g->g.c, why);
}

static mr_code send_now(guest *g, void *frame, size_t bytes, mr_status *st)
{
    size_t waiting = mr__connection_queued(&g->g.c) + g->held_bytes + bytes;
    if (waiting > MOST_WAITING) {
        mr_free(frame);
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "%zu bytes wait for this peer: it does not read",
                       waiting);
    }
    return mr__connection_send_frame(&g->g.c, frame, bytes, st);
}

static mr_code hold(guest *g, void *frame, size_t bytes, uint64_t after, mr_status *st)
{
    held *h = mr_malloc(sizeof *h);
    if (!h || g->held_bytes + bytes > MOST_WAITING) {
        mr_free(h);
        mr_free(frame);
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "too much data waits to be recorded");
    }
    *h = (held){.after = after, .frame = frame, .bytes = bytes};
    if (g->last)
        g->last->next = h;
    else
        g->first = h;
    g->last = h;
    g->held_bytes += bytes;
    return MR_OK;
}

static void send_held(guest *g)
{
    mr_status st;
    while (g->first && g->first->after <= run_of(g)->durable) {
        held *h = g->first;
        g->first = h->next;
        if (!g->first)
            g->last = NULL;
        g->held_bytes -= h->bytes;
        mr_code rc = send_now(g, h->frame, h->bytes, &st);
        mr_free(h);
        if (rc != MR_OK)
            give_up(g, &st);
    }
}

/* ---- output of the state machine ---- */

static void out_send(void *ctx, uint64_t to, const mr__message *m, uint64_t after)
{
    mr__dispatcher_run *r = ctx;
    guest *g = (guest *)mr__daemon_guest(&r->base, to);
    mr_status st;
    void *frame;
    size_t bytes;
    if (!g || g->g.c.closing)
        return;
    mr_code rc = mr__message_pack(m, &frame, &bytes, &st);
    if (rc == MR_OK)
        rc = g->first || after > r->durable ? hold(g, frame, bytes, after, &st)
                                            : send_now(g, frame, bytes, &st);
    if (rc != MR_OK)
        give_up(g, &st);
}

static void out_close(void *ctx, uint64_t connection, const mr_status *why)
{
    mr__dispatcher_run *r = ctx;
    guest *g = (guest *)mr__daemon_guest(&r->base, connection);
    if (!g)
        return;
    g->g.is_known = false;
    give_up(g, why);
}

static uint64_t out_record(void *ctx, const mr__record *record)
{
    mr__dispatcher_run *r = ctx;
    return r->account ? mr__account_record(r->account, record) : 0;
}

static void out_note(void *ctx, mr_log_level level, const char *format, const char *line)
{
    (void)ctx;
    mr__log_line(level, format, line);
}

static const mr__dispatcher_out out = {out_send, out_close, out_record, out_note};

/* ---- the account ---- */

static void account_durable(void *ctx, uint64_t number)
{
    mr__dispatcher_run *r = ctx;
    r->durable = number;
    for (guest *g = first_of(r); g; g = next_of(g))
        send_held(g);
}

static void account_disk(void *ctx, const mr_status *why, bool lost)
{
    mr__dispatcher_run *r = ctx;
    char text[2048];
    if (why) {
        mr_status_format(why, text, sizeof text);
        mr_log(MR_LOG_ERROR, "the account: %s", text);
    }
    if (r->base.is_draining)
        return;
    mr__dispatcher_disk(r->d, why != NULL, now_of(r));
    if (lost)
        mr__daemon_fail(&r->base, why);
}

static mr_code load_record(void *ctx, const mr__record *record, mr_status *st)
{
    mr__dispatcher_run *r = ctx;
    return mr__dispatcher_load(r->d, record, st);
}

static mr_code open_account(mr__dispatcher_run *r, mr_status *st)
{
    mr__account_opts opts = {.directory = r->o.state,
                             .loop = r->base.loop,
                             .durable = account_durable,
                             .disk = account_disk,
                             .ctx = r};
    if (!r->o.state)
        return MR_OK;
    MR_TRY(mr__account_open(&r->account, &opts, st));
    MR_TRY(mr__account_load(r->account, load_record, r, st));
    return mr__account_start(r->account, st);
}

/* ---- connections ---- */

static void ready(mr__guest *g)
{
    mr__dispatcher_run *r = (mr__dispatcher_run *)g->daemon;
    mr__dispatcher_opened(r->d, g->id, g->c.handshake.peer_role, g->c.handshake.host,
                          g->c.handshake.process, now_of(r));
    mr__dispatcher_named(r->d, g->id, g->c.handshake.name);
}

/* A peer gets one report per turn, and the next only after it has read it: reports cost more than
 * requests. */
static void wait_for_reader(guest *g, int64_t at)
{
    mr_status st;
    mr__dispatcher_run *r = run_of(g);
    if (mr__timer_set(r->base.loop, &r->listen_on, at, &st) != MR_OK) {
        give_up(g, &st);
        return;
    }
    g->is_asking = true;
    mr__connection_pause(&g->g.c);
}

static void listen_on(mr__timer *t)
{
    mr__dispatcher_run *r =
        (mr__dispatcher_run *)((char *)t - offsetof(mr__dispatcher_run, listen_on));
    for (guest *g = first_of(r); g; g = next_of(g)) {
        if (!g->is_asking || g->g.c.closing)
            continue;
        if (mr__connection_queued(&g->g.c) + g->held_bytes > MOST_UNREAD) {
            wait_for_reader(g, now_of(r) + SECOND / 100);
            continue;
        }
        g->is_asking = false;
        mr__connection_resume(&g->g.c);
    }
}

static void message(mr__guest *g, const mr__message *m)
{
    mr__dispatcher_run *r = (mr__dispatcher_run *)g->daemon;
    mr__dispatcher_message(r->d, g->id, m, now_of(r));
    if (m->body_case == MR__WIRE__MESSAGE__BODY_ASK && !g->c.closing)
        wait_for_reader((guest *)g, now_of(r));
    wind_up(r);
}

static void closed(mr__guest *g, bool tell)
{
    mr__dispatcher_run *r = (mr__dispatcher_run *)g->daemon;
    if (tell) {
        mr__dispatcher_closed(r->d, g->id, now_of(r));
        wind_up(r);
    }
    drop_held((guest *)g);
}

/* Makes all records durable, and sends the messages that waited for them. */
static void drain(mr__daemon *s)
{
    mr__dispatcher_run *r = (mr__dispatcher_run *)s;
    mr_status st;
    uint64_t durable = 0;
    if (r->o.draining)
        r->o.draining(r->o.ctx);
    if (r->account && mr__account_finish(r->account, &durable, &st) != MR_OK)
        mr__daemon_fail(s, &st);
    if (durable > r->durable)
        account_durable(r, durable);
    for (guest *g = first_of(r); g; g = next_of(g))
        drop_held(g);
}

/* ---- beginning ---- */

static char *report(void *ctx)
{
    const mr__dispatcher_run *r = ctx;
    return mr__dispatcher_report(r->d, "page", "", now_of(r));
}

static mr_code open_all(mr__dispatcher_run *r, mr_status *st)
{
    mr__dispatcher_opts opts = {.streams = r->o.streams,
                                .streams_ctx = r->o.ctx,
                                .state = r->o.state ? r->o.state : "memory",
                                .workers = r->o.workers,
                                .n_workers = r->o.n_workers,
                                .min_workers = r->o.min_workers,
                                .max_workers = r->o.max_workers,
                                .no_balance = r->o.no_balance,
                                .names_only = r->o.names_only,
                                .operators = r->o.operators,
                                .n_operators = r->o.n_operators};
    MR_TRY(mr__daemon_open(&r->base, r->o.loop, st));
    if (mr__sys->getrandom(&opts.seed, sizeof opts.seed, 0) != (ssize_t)sizeof opts.seed)
        return mr_fail(st, MR_INTERNAL, "cannot read random bytes for the numbers of jobs");
    MR_TRY(mr__dispatcher_new(&r->d, &opts, &out, r, st));
    MR_TRY(open_account(r, st));
    MR_TRY(mr__daemon_listen(&r->base, r->o.listen, st));
    if (!mr__address_is_loopback(&r->base.listener.address))
        MR_TRY(mr__check_secure(r->base.listener.address.text, &r->o.token, r->o.insecure, st));
    MR_TRY(mr__daemon_listen_locally(&r->base, st));
    const char *address = r->base.listener.address.text;
    MR_TRY(mr__daemon_show(&r->base, r->o.status, "dispatcher", address, mr__dispatcher_view,
                           report, r, st));
    MR_TRY(mr__daemon_heed(&r->base, r->o.cancel, st));
    r->listen_on.fire = listen_on;
    r->tick.fire = ticked;
    set_tick(r, mr__dispatcher_tick(r->d, now_of(r)));
    return MR_OK;
}

mr_code mr__dispatcher_run_open(mr__dispatcher_run **result, const mr__dispatcher_run_opts *opts,
                                mr_status *st)
{
    mr__dispatcher_run *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "a dispatcher");
    r->o = *opts;
    r->base = (mr__daemon){.guest_bytes = sizeof(guest),
                           .role = MR__WIRE__ROLE__DISPATCHER,
                           .token = opts->token,
                           .status_token = opts->status_token,
                           .ready = ready,
                           .message = message,
                           .closed = closed,
                           .drain = drain};
    mr_code rc = open_all(r, st);
    if (rc != MR_OK) {
        mr__dispatcher_run_close(r);
        return rc;
    }
    *result = r;
    return MR_OK;
}

const char *mr__dispatcher_run_address(const mr__dispatcher_run *r)
{
    return r->base.listener.address.text;
}

const char *mr__dispatcher_run_status_address(const mr__dispatcher_run *r)
{
    return r->base.page ? mr__status_page_address(r->base.page) : NULL;
}

mr_code mr__dispatcher_run_serve(mr__dispatcher_run *r, mr_status *st)
{
    return mr__daemon_serve(&r->base, st);
}

void mr__dispatcher_run_close(mr__dispatcher_run *r)
{
    mr_status st;
    if (!r)
        return;
    bool is_closed = mr__daemon_stop(&r->base);
    if (r->account && mr__account_finish(r->account, NULL, &st) != MR_OK)
        mr_log(MR_LOG_ERROR, "the account: %s", st.message);
    mr__account_free(r->account);
    mr__dispatcher_free(r->d);
    if (r->base.loop) {
        mr__timer_clear(r->base.loop, &r->tick);
        mr__timer_clear(r->base.loop, &r->listen_on);
    }
    mr__daemon_end(&r->base, is_closed);
    mr_free(r);
}
