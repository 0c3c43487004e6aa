/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/worker/worker_run.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/log_internal.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/cgroup.h"
#include "pipeline/system/system.h"
#include "transport/net/lookup.h"
#include "transport/service/worker/worker_streams.h"
#include "transport/service/worker/match.h"
#include "transport/service/worker/producer.h"
#include "transport/service/jitter.h"
#include "transport/service/status/daemon.h"
#include "transport/service/worker/worker_status.h"

#define SECOND          ((int64_t)1000000000)
#define BACKOFF_FIRST   ((int64_t)50000000)
#define BACKOFF_MOST    (5 * SECOND)
#define SILENT_NS       SECOND /* without being accepted, before the log says that it waits */
#define MEASURE_SECONDS 0.1    /* interval for measuring how fast a client reads */
#define MEASURE_BYTES   65536.0
/* 1 / LENT_PART of a memory limit is shared with clients on this host, in multiples of LEAST_LENT
 * per client. */
enum { MOST_QUEUED = 16 << 20, LENT_PART = 8, LEAST_LENT = 1 << 20 };

/* A client's connection. */
typedef struct guest {
    mr__guest g;        /* first */
    mr__lender *lender; /* memory shared with it; NULL: none */
    size_t lent;        /* bytes of it */
    /* the rate at which it receives, measured while something is queued */
    int64_t busy_since;
    size_t queued_then, put; /* bytes queued at the time, and since */
    double link;             /* bytes per second; 0: unknown, or fast */
} guest;

/* A stream that is produced. */
typedef struct producing {
    struct producing *next, *prev;
    uint64_t id;
    mr__producer *p;
    uint64_t client; /* that its last block was sent to */
    Mr__Wire__Hosted stream;
    uint64_t next_element;
    bool is_held; /* it continues when that client has read */
    bool is_stopped;
} producing;

struct mr__worker_run {
    mr__daemon base; /* first */
    mr__worker_run_opts o;
    mr__worker_streams *streams;
    char address[128];
    mr__id_map producers_by_id;
    producing *producers;
    /* the dispatcher */
    mr__connection dispatcher;
    enum { AWAY, LOOKING_UP, CONNECTING, READY } link;
    bool streams_know; /* that it is connected */
    bool said_away;
    bool was_accepted, said_waits;
    mr__lookup *lookup;
    int64_t backoff;
    uint64_t random;
    mr__timer retry, tick, waits;
    size_t n_matching;
    size_t lent; /* bytes of memory shared with clients */
    mr__worker_status status;
};

#define OF(type, member, p) ((type *)((char *)(p)-offsetof(type, member)))

static int64_t now_of(const mr__worker_run *r)
{
    return mr__loop_now(r->base.loop);
}

static guest *guest_of(const mr__worker_run *r, uint64_t client)
{
    return (guest *)mr__daemon_guest(&r->base, client);
}

/* ---- time ---- */

static void set_timer(mr__worker_run *r, mr__timer *t, int64_t at)
{
    mr_status st;
    if (at != INT64_MAX && mr__timer_set(r->base.loop, t, at, &st) != MR_OK)
        mr__daemon_fail(&r->base, &st);
}

static void ticked(mr__timer *t)
{
    mr__worker_run *r = OF(mr__worker_run, tick, t);
    if (!r->base.is_draining)
        set_timer(r, &r->tick, mr__worker_streams_tick(r->streams, now_of(r)));
}

/* The dispatcher may have asked this worker to drain. */
static void look(mr__worker_run *r)
{
    if (mr__worker_streams_draining(r->streams))
        r->base.is_draining = true;
}

/* ---- producers ---- */

static void forget_producing(mr__worker_run *r, producing *x)
{
    mr__id_map_remove(&r->producers_by_id, x->id);
    if (x->prev)
        x->prev->next = x->next;
    else
        r->producers = x->next;
    if (x->next)
        x->next->prev = x->prev;
    mr_free(x);
}

static void producer_made(void *ctx, uint64_t number, const mr__made *made)
{
    mr__worker_run *r = ctx;
    mr__worker_streams_made(r->streams, number, made, now_of(r));
}

static void producer_failed(void *ctx, uint64_t number, uint64_t first, const mr_status *why,
                            const void *position, size_t position_bytes, bool fatal)
{
    mr__worker_run *r = ctx;
    mr__worker_streams_failed(r->streams, number, first, why, position, position_bytes, fatal,
                              now_of(r));
}

static void producer_ended(void *ctx, uint64_t number, uint64_t elements, const void *position,
                           size_t position_bytes)
{
    mr__worker_run *r = ctx;
    mr__worker_streams_ended(r->streams, number, elements, position, position_bytes, now_of(r));
}

static void producer_gone(void *ctx, uint64_t number)
{
    mr__worker_run *r = ctx;
    producing *x = mr__id_map_get(&r->producers_by_id, number);
    if (x)
        forget_producing(r, x);
}

static void producer_wants_split(void *ctx, uint64_t number, uint64_t index, uint64_t repetition)
{
    mr__worker_run *r = ctx;
    mr__worker_streams_wants_split(r->streams, number, index, repetition, now_of(r));
}

static void producer_busy(void *ctx, uint64_t number, int64_t ns)
{
    mr__worker_run *r = ctx;
    mr__worker_streams_busy(r->streams, number, ns);
}

static const mr__producer_out producer_out = {producer_made, producer_failed,      producer_ended,
                                              producer_busy, producer_wants_split, producer_gone};

/* A stream that cannot be started fails, once mr__worker_streams can be called. */
typedef struct apology {
    mr__posted posted; /* first */
    mr__worker_run *run;
    uint64_t producer, first;
    mr_status why;
} apology;

static void apologize(mr__posted *p)
{
    apology *a = (apology *)p;
    mr__worker_run *r = a->run;
    mr__worker_streams_failed(r->streams, a->producer, a->first, &a->why, NULL, 0, true, now_of(r));
    mr_free(a);
}

static void out_start(void *ctx, uint64_t number, uint64_t client, const Mr__Wire__Host *what,
                      const Mr__Wire__Open *open)
{
    mr__worker_run *r = ctx;
    const guest *g = guest_of(r, client);
    mr_status st;
    const mr__producer_opts opts = {.loop = r->base.loop,
                                    .executor = r->o.executor,
                                    .watch = r->o.watch,
                                    .memory_limit = r->o.memory_limit,
                                    .worker = r->address,
                                    .lender = g ? g->lender : NULL,
                                    .out = &producer_out,
                                    .ctx = r};
    producing *x = mr_calloc(1, sizeof *x);
    mr_code rc = x ? mr__id_map_set(&r->producers_by_id, number, x, &st)
                   : mr_fail_memory(&st, sizeof *x, "a stream");
    if (rc == MR_OK) {
        rc = mr__producer_start(&x->p, number, what, open, &opts, &st);
        if (rc != MR_OK)
            mr__id_map_remove(&r->producers_by_id, number);
    }
    if (rc == MR_OK) {
        x->id = number;
        x->next = r->producers;
        if (r->producers)
            r->producers->prev = x;
        r->producers = x;
        return;
    }
    mr_free(x);
    mr_log(MR_LOG_ERROR, "cannot start a stream: %s", st.message);
    apology *a = mr_calloc(1, sizeof *a);
    if (!a)
        return; /* the stream stays silent; the client loses it with the connection */
    a->posted.run = apologize;
    a->run = r;
    a->producer = number;
    a->first = open->first;
    st.code = MR_UNAVAILABLE; /* another worker may have room */
    a->why = st;
    mr__loop_post(r->base.loop, &a->posted);
}

/* Bytes that may be queued for a client when x continues. */
static size_t most_queued(const mr__worker_run *r, const producing *x)
{
    return mr__producer_is_tight(x->p) ? 0
                                       : mr__producer_most_bytes(r->o.memory_limit, MOST_QUEUED);
}

static void out_go(void *ctx, uint64_t number)
{
    mr__worker_run *r = ctx;
    producing *x = mr__id_map_get(&r->producers_by_id, number);
    if (!x || x->is_stopped)
        return;
    const guest *g = x->client ? guest_of(r, x->client) : NULL;
    x->is_held = g && mr__connection_queued(&g->g.c) > most_queued(r, x);
    if (!x->is_held)
        mr__producer_go(x->p, g ? g->link : 0);
}

static void out_split(void *ctx, uint64_t number, uint64_t index, uint64_t split, bool end)
{
    mr__worker_run *r = ctx;
    producing *x = mr__id_map_get(&r->producers_by_id, number);
    if (x && !x->is_stopped)
        mr__producer_split(x->p, index, split, end);
}

static void out_stop(void *ctx, uint64_t number)
{
    mr__worker_run *r = ctx;
    producing *x = mr__id_map_get(&r->producers_by_id, number);
    if (!x || x->is_stopped)
        return;
    x->is_stopped = true;
    mr__producer_stop(x->p);
}

/* ---- output of the state machine ---- */

static void out_to_dispatcher(void *ctx, const mr__message *m)
{
    mr__worker_run *r = ctx;
    mr_status st;
    if (r->link == READY && mr__connection_send(&r->dispatcher, m, &st) != MR_OK)
        mr__connection_close(&r->dispatcher, &st);
}

static void out_to_client(void *ctx, uint64_t client, const mr__message *m)
{
    mr__worker_run *r = ctx;
    guest *g = guest_of(r, client);
    mr_status st;
    if (g && !g->g.c.closing && mr__connection_send(&g->g.c, m, &st) != MR_OK)
        mr__connection_close(&g->g.c, &st);
}

/* `more` bytes will be queued, or (0) some were sent. */
static void measure(guest *g, size_t more)
{
    int64_t now = mr__loop_now(g->g.daemon->loop);
    size_t queued = mr__connection_queued(&g->g.c);
    double took = (double)(now - g->busy_since) * 1e-9;
    if (g->queued_then + g->put && (queued == 0 || took > MEASURE_SECONDS)) {
        double sent = (double)(g->queued_then + g->put - queued);
        if (sent > MEASURE_BYTES)
            g->link = took > 0 ? sent / took : 0;
        g->put = g->queued_then = 0;
    }
    if (g->queued_then + g->put == 0) {
        g->busy_since = now;
        g->queued_then = queued;
    }
    g->put += more;
}

static void out_block(void *ctx, uint64_t client, const Mr__Wire__Hosted *stream,
                      const mr__made *made, uint32_t compression)
{
    mr__worker_run *r = ctx;
    guest *g = guest_of(r, client);
    mr__produced *block = made->block;
    producing *x = mr__id_map_get(&r->producers_by_id, block->producer);
    mr_status st;
    if (x) {
        x->client = client;
        x->stream = *stream;
        x->next_element = made->first + made->rows;
    }
    r->status.elements += made->rows;
    r->status.bytes += made->bytes;
    (void)compression; /* the producer has it from Open */
    if (g && !g->g.c.closing)
        measure(g, (size_t)block->frame.bytes);
    if (g && !g->g.c.closing && mr__connection_send_block(&g->g.c, &block->frame, &st) != MR_OK)
        mr__connection_close(&g->g.c, &st);
    mr__producer_drop(block);
}

static void out_drop(void *ctx, void *block)
{
    (void)ctx;
    mr__producer_drop(block);
}

static void out_close_client(void *ctx, uint64_t client, const mr_status *why)
{
    mr__worker_run *r = ctx;
    guest *g = guest_of(r, client);
    if (!g)
        return;
    g->g.is_known = false;
    mr__connection_close(&g->g.c, why);
}

static void out_close_dispatcher(void *ctx)
{
    mr__worker_run *r = ctx;
    mr_status why;
    r->streams_know = false;
    mr_fail(&why, MR_UNAVAILABLE, "it is silent");
    if (r->link == READY)
        mr__connection_close(&r->dispatcher, &why);
}

static void out_note(void *ctx, mr_log_level level, const char *format, const char *line)
{
    mr__worker_run *r = ctx;
    mr__recent_add(&r->status.lines, level, line, now_of(r));
    mr__log_line(level, format, line);
}

static void out_cpu(void *ctx, int64_t *cpu_ns, uint32_t *cpus)
{
    (void)ctx;
    *cpu_ns = mr__clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    *cpus = (uint32_t)mr_usable_cpus();
}

/* ---- lists of files ---- */

static void matched(void *ctx, uint64_t job_id, const Mr__Wire__Lists *lists)
{
    mr__worker_run *r = ctx;
    r->n_matching--;
    mr__worker_streams_matched(r->streams, job_id, lists, now_of(r));
}

static void out_match(void *ctx, uint64_t job_id, const Mr__Wire__Job *job)
{
    mr__worker_run *r = ctx;
    mr_status st;
    if (mr__match_start(r->base.loop, job_id, job, r->address, matched, r, &st) == MR_OK) {
        r->n_matching++;
        return;
    }
    mr_log(MR_LOG_ERROR, "cannot look up a job's files: %s", st.message);
    if (r->link == READY) /* otherwise the dispatcher asks again after reconnecting */
        mr__connection_close(&r->dispatcher, &st);
}

static const mr__worker_streams_out out = {.to_dispatcher = out_to_dispatcher,
                                           .to_client = out_to_client,
                                           .block = out_block,
                                           .drop = out_drop,
                                           .start = out_start,
                                           .go = out_go,
                                           .stop = out_stop,
                                           .split = out_split,
                                           .match = out_match,
                                           .close_client = out_close_client,
                                           .close_dispatcher = out_close_dispatcher,
                                           .cpu = out_cpu,
                                           .note = out_note};

/* ---- the dispatcher ---- */

static void say_waits(mr__worker_run *r)
{
    if (!r->was_accepted && !r->said_waits && !r->base.is_draining)
        mr_log(MR_LOG_INFO, "waiting for the dispatcher at %s", r->o.dispatcher);
    r->said_waits = true;
}

static void waited(mr__timer *t)
{
    say_waits(OF(mr__worker_run, waits, t));
}

static void accepted(mr__worker_run *r)
{
    if (r->was_accepted)
        return;
    r->was_accepted = true;
    mr__timer_clear(r->base.loop, &r->waits);
    if (r->o.ready)
        r->o.ready(r->o.ctx);
}

static void away(mr__worker_run *r, const mr_status *why)
{
    bool was_there = r->link == READY;
    r->link = AWAY;
    if (r->base.is_draining)
        return;
    if (why->code == MR_PERMISSION_DENIED || (why->code == MR_FAILED_PRECONDITION && !was_there)) {
        mr__daemon_fail(&r->base, why);
        return;
    }
    if (was_there || !r->said_away)
        mr_log(MR_LOG_WARNING, "%s the dispatcher at %s (%s); trying again",
               was_there ? "lost the connection to" : "cannot reach", r->o.dispatcher,
               why->code == MR_END ? "it closed the connection" : why->message);
    r->said_away = true;
    say_waits(r);
    r->backoff = r->backoff ? 2 * r->backoff : BACKOFF_FIRST;
    if (r->backoff > BACKOFF_MOST)
        r->backoff = BACKOFF_MOST;
    set_timer(r, &r->retry, now_of(r) + mr__jittered(&r->random, r->backoff));
}

static void dispatcher_ready(mr__connection *c)
{
    mr__worker_run *r = OF(mr__worker_run, dispatcher, c);
    r->link = READY;
    if (r->base.is_draining)
        return;
    if (r->said_away)
        mr_log(MR_LOG_INFO, "connected to the dispatcher at %s", r->o.dispatcher);
    r->said_away = false;
    r->backoff = 0;
    r->streams_know = true;
    mr__worker_streams_dispatcher_opened(r->streams, now_of(r));
    set_timer(r, &r->tick, mr__worker_streams_tick(r->streams, now_of(r)));
}

static void dispatcher_message(mr__connection *c, const mr__message *m)
{
    mr__worker_run *r = OF(mr__worker_run, dispatcher, c);
    if (r->base.is_draining || !r->streams_know)
        return;
    mr__worker_streams_dispatcher_message(r->streams, m, now_of(r));
    if (m->body_case == MR__WIRE__MESSAGE__BODY_REGISTERED)
        accepted(r);
    look(r);
}

static void dispatcher_closed(mr__connection *c, const mr_status *why)
{
    mr__worker_run *r = OF(mr__worker_run, dispatcher, c);
    if (r->streams_know)
        mr__worker_streams_dispatcher_closed(r->streams, now_of(r));
    r->streams_know = false;
    away(r, why);
}

static const mr__connection_class dispatchers = {
    .ready = dispatcher_ready, .message = dispatcher_message, .closed = dispatcher_closed};

static void looked_up(void *ctx, const mr__address *to, const mr_status *why)
{
    mr__worker_run *r = ctx;
    mr_status st;
    r->lookup = NULL;
    r->link = AWAY;
    if (r->base.is_draining)
        return;
    mr_code rc = to ? MR_OK : why->code;
    if (to) {
        r->dispatcher.class_ = &dispatchers;
        rc = mr__connection_open(&r->dispatcher, r->base.loop, to, MR__WIRE__ROLE__WORKER,
                                 r->o.token, &st);
    }
    if (rc == MR_OK)
        r->link = CONNECTING;
    else
        away(r, to ? &st : why);
}

static void connect_dispatcher(mr__worker_run *r)
{
    mr_status st;
    r->link = LOOKING_UP;
    if (mr__lookup_start(&r->lookup, r->base.loop, r->o.dispatcher, looked_up, r, &st) == MR_OK)
        return;
    r->lookup = NULL;
    away(r, &st);
}

static void retried(mr__timer *t)
{
    mr__worker_run *r = OF(mr__worker_run, retry, t);
    if (!r->base.is_draining && r->link == AWAY)
        connect_dispatcher(r);
}

/* ---- clients ---- */

/* Bytes to share with one more client; 0: its blocks are sent over the socket. */
static size_t lendable(const mr__worker_run *r)
{
    int64_t limit = r->o.memory_limit, of_group = mr__cgroup_limits()->memory_max;
    if (!limit && of_group == INT64_MAX)
        return MR__LENT_BYTES;
    size_t most = (size_t)(limit ? limit : of_group) / LENT_PART;
    most = most > r->lent ? (most - r->lent) / 2 : 0; /* others may connect */
    most = most < MR__LENT_BYTES ? most / LEAST_LENT * LEAST_LENT : MR__LENT_BYTES;
    return most;
}

/* Shares memory with a client on this host; without it, blocks are sent over the local socket. */
static void ready(mr__guest *x)
{
    guest *g = (guest *)x;
    mr__worker_run *r = (mr__worker_run *)x->daemon;
    mr_status st;
    int fd;
    if (!x->c.socket.is_local || x->c.handshake.peer_role != MR__WIRE__ROLE__CLIENT ||
        x->c.handshake.no_memory)
        return;
    size_t bytes = lendable(r);
    if (!bytes) {
        mr_log(MR_LOG_INFO, "%s shares no memory with this worker: its memory limit leaves none",
               x->from);
        return;
    }
    if (mr__lender_new(&g->lender, bytes, &fd, &st) != MR_OK) {
        mr_log(MR_LOG_INFO, "%s shares no memory with this worker: %s", x->from, st.message);
        return;
    }
    Mr__Wire__Memory memory = MR__WIRE__MEMORY__INIT;
    memory.bytes = g->lent = bytes;
    r->lent += bytes;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_MEMORY;
    m.memory = &memory;
    if (mr__connection_pass(&x->c, &m, fd, &st) != MR_OK)
        mr__connection_close(&x->c, &st);
}

/* Frees blocks that the client has returned. */
static void take_back(guest *g, const Mr__Wire__GiveBack *m)
{
    mr_status why;
    for (size_t i = 0; i < m->n_at; i++)
        if (!g->lender || !mr__lender_give(g->lender, m->at[i])) {
            mr_fail(&why, MR_DATA_LOSS, "it returned memory that it does not hold: at %" PRIu64,
                    m->at[i]);
            mr__connection_close(&g->g.c, &why);
            return;
        }
}

static void message(mr__guest *g, const mr__message *m)
{
    mr__worker_run *r = (mr__worker_run *)g->daemon;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_GIVE_BACK)
        take_back((guest *)g, m->give_back);
    else
        mr__worker_streams_client_message(r->streams, g->id, m, now_of(r));
}

static void sent(mr__guest *g)
{
    mr__worker_run *r = (mr__worker_run *)g->daemon;
    measure((guest *)g, 0);
    size_t queued = mr__connection_queued(&g->c);
    if (queued > MOST_QUEUED)
        return;
    for (producing *x = r->producers; x; x = x->next)
        if (x->is_held && x->client == g->id && !x->is_stopped && queued <= most_queued(r, x)) {
            x->is_held = false;
            mr__producer_go(x->p, ((guest *)g)->link);
        }
}

static void closed(mr__guest *g, bool tell)
{
    mr__worker_run *r = (mr__worker_run *)g->daemon;
    if (tell)
        mr__worker_streams_client_closed(r->streams, g->id, now_of(r));
    mr__lender *l = ((guest *)g)->lender;
    r->lent -= ((guest *)g)->lent;
    if (l)
        mr__lender_end(l);
    mr__lender_unref(l);
}

/* ---- the end ---- */

static void stop_producing(mr__worker_run *r)
{
    for (producing *x = r->producers; x; x = x->next)
        out_stop(r, x->id);
}

/* Returns the streams to the dispatcher; everything sent to clients still reaches them. */
static void drain(mr__daemon *s)
{
    mr__worker_run *r = (mr__worker_run *)s;
    if (r->o.draining)
        r->o.draining(r->o.ctx);
    mr__worker_streams_drain(r->streams, now_of(r));
    if (r->link == READY)
        mr__connection_finish(&r->dispatcher);
    else if (r->link == CONNECTING)
        mr__connection_close(&r->dispatcher, NULL);
    stop_producing(r);
}

static bool is_linked(const mr__worker_run *r)
{
    return r->link == READY || r->link == CONNECTING;
}

static bool is_busy(mr__daemon *s)
{
    mr__worker_run *r = (mr__worker_run *)s;
    if (s->is_over && is_linked(r))
        mr__socket_close(&r->dispatcher.socket);
    return r->producers || r->n_matching || is_linked(r);
}

/* ---- beginning ---- */

static size_t queued_bytes(const mr__worker_run *r)
{
    size_t n = 0;
    for (const mr__guest *g = r->base.newest; g; g = g->next)
        n += mr__connection_queued(&g->c);
    return n;
}

static char *report(void *ctx)
{
    mr__worker_run *r = ctx;
    json_t *streams = json_array();
    for (const producing *x = r->producers; x; x = x->next) {
        const guest *g = guest_of(r, x->client);
        if (!x->is_stopped)
            mr__worker_status_stream(streams, &x->stream, x->next_element, g ? g->g.from : "");
    }
    return mr__worker_status_report(
        &r->status,
        &(mr__worker_now){.dispatcher = r->o.dispatcher,
                          .is_connected = r->link == READY,
                          .is_draining = r->base.is_draining,
                          .n_clients = r->base.n_guests,
                          .busy_ratio = mr__worker_streams_busy_ratio(r->streams),
                          .queue_bytes = queued_bytes(r),
                          .memory_limit = mr__memory_limit_in_force(r->o.memory_limit),
                          .now = now_of(r)},
        streams);
}

static mr_code open_all(mr__worker_run *r, mr_status *st)
{
    MR_TRY(mr__daemon_open(&r->base, r->o.loop, st));
    if (mr__sys->getrandom(&r->random, sizeof r->random, 0) != (ssize_t)sizeof r->random)
        return mr_fail(st, MR_INTERNAL, "cannot read random bytes");
    MR_TRY(mr__daemon_listen(&r->base, r->o.listen, st));
    MR_TRY(mr__daemon_listen_locally(&r->base, st));
    MR_TRY(mr__address_reached(&r->base.listener.address, r->o.dispatcher, r->address, st));
    r->status.started = now_of(r);
    MR_TRY(mr__daemon_show(&r->base, r->o.status, "worker", r->address, mr__worker_view, report, r,
                           st));
    MR_TRY(mr__worker_streams_new(&r->streams, r->address, r->random | 1, r->o.weight, r->o.tags,
                                  r->o.n_tags, &out, r, st));
    MR_TRY(mr__daemon_heed(&r->base, r->o.cancel, st));
    r->tick.fire = ticked;
    r->retry.fire = retried;
    r->waits.fire = waited;
    set_timer(r, &r->waits, now_of(r) + SILENT_NS);
    connect_dispatcher(r);
    return MR_OK;
}

mr_code mr__worker_run_open(mr__worker_run **result, const mr__worker_run_opts *opts, mr_status *st)
{
    mr__worker_run *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "a worker");
    r->o = *opts;
    r->base = (mr__daemon){.guest_bytes = sizeof(guest),
                           .role = MR__WIRE__ROLE__WORKER,
                           .token = opts->token,
                           .status_token = opts->status_token,
                           .may_leave = true, /* a client may end while blocks are in flight */
                           .ready = ready,
                           .message = message,
                           .sent = sent,
                           .closed = closed,
                           .drain = drain,
                           .is_busy = is_busy};
    mr_code rc = open_all(r, st);
    if (rc != MR_OK) {
        mr__worker_run_close(r);
        return rc;
    }
    *result = r;
    return MR_OK;
}

const char *mr__worker_run_address(const mr__worker_run *r)
{
    return r->address;
}

const char *mr__worker_run_status_address(const mr__worker_run *r)
{
    return r->base.page ? mr__status_page_address(r->base.page) : NULL;
}

bool mr__worker_run_is_loopback(const mr__worker_run *r)
{
    return mr__address_is_loopback(&r->base.listener.address);
}

mr_code mr__worker_run_serve(mr__worker_run *r, mr_status *st)
{
    return mr__daemon_serve(&r->base, st);
}

void mr__worker_run_close(mr__worker_run *r)
{
    mr_status st;
    if (!r)
        return;
    mr__loop *loop = r->base.loop;
    r->base.is_draining = true;
    if (r->streams)
        mr__worker_streams_drain(r->streams, 0);
    if (is_linked(r))
        mr__connection_close(&r->dispatcher, NULL);
    stop_producing(r);
    bool is_closed = mr__daemon_stop(&r->base);
    if (loop && is_closed) {
        mr__timer_clear(loop, &r->tick);
        mr__timer_clear(loop, &r->retry);
        mr__timer_clear(loop, &r->waits);
        if (r->lookup) {
            mr__lookup_abandon(r->lookup);
            is_closed = mr__loop_turn(loop, now_of(r), &st) == MR_OK;
        }
    }
    mr__worker_streams_free(r->streams);
    mr__id_map_reset(&r->producers_by_id);
    mr__daemon_end(&r->base, is_closed);
    mr_free(r);
}
