/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/transport/service/simulation_state.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "tests/harness.h"
#include "transport/service/dispatcher/dispatcher_state.h"
#include "transport/service/client/job_reader_state.h"

simulation *S;
uint64_t mr__simulation_happened[MR__SIM_KINDS];
const char *const mr__simulation_kinds[MR__SIM_KINDS] = {
    "dispatcher crashes", "worker crashes",       "client crashes",      "workers that drain",
    "drains by a tool",   "connections broken",   "connections silent",  "half-open links",
    "messages lost",      "messages late",        "messages said twice", "messages overtaken",
    "slow workers",       "commits on slow disk", "full disks",          "last transactions lost",
    "last ones whole",    "jumps of the clock",   "files unseen",        "streams moved"};

void sim_happened(int kind)
{
    mr__simulation_happened[kind]++;
}

uint64_t sim_draw(uint64_t n)
{
    return mr_test_random(&S->random) % n;
}

void sim_say(const char *fmt, ...)
{
    if (!S->o.history)
        return;
    va_list ap;
    va_start(ap, fmt);
    printf("%10.4f  ", (double)S->now * 1e-9);
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
}

void sim_broken(const char *fmt, ...)
{
    va_list ap;
    if (S->broken)
        return;
    va_start(ap, fmt);
    vsnprintf(S->text, sizeof S->text, fmt, ap);
    va_end(ap);
    S->broken = S->text;
    sim_say("BROKEN: %s", S->text);
}

/* ---- events ---- */

static bool before(const event *a, const event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void sim_push(event e)
{
    e.order = ++S->order;
    if (S->n_events == S->capacity) {
        S->capacity = S->capacity ? 2 * S->capacity : 256;
        S->heap = realloc(S->heap, S->capacity * sizeof *S->heap);
    }
    size_t i = S->n_events++;
    while (i && before(&e, &S->heap[(i - 1) / 2])) {
        S->heap[i] = S->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    S->heap[i] = e;
}

static event pop(void)
{
    event top = S->heap[0], last = S->heap[--S->n_events];
    size_t i = 0;
    for (;;) {
        size_t k = 2 * i + 1;
        if (k >= S->n_events)
            break;
        if (k + 1 < S->n_events && before(&S->heap[k + 1], &S->heap[k]))
            k++;
        if (!before(&S->heap[k], &last))
            break;
        S->heap[i] = S->heap[k];
        i = k;
    }
    if (S->n_events)
        S->heap[i] = last;
    return top;
}

static int64_t delay(void)
{
    if (sim_draw(20))
        return (int64_t)(1 + sim_draw(5)) * MS / 2;
    sim_happened(MR__SIM_MESSAGE_LATE);
    return (int64_t)(1 + sim_draw(300)) * MS / 2;
}

int sim_epoch_of(node_kind kind, int node)
{
    return kind == DISPATCHER ? S->d_epoch : kind == WORKER ? S->w_epoch[node] : S->c[node].epoch;
}

static bool lives(node_kind kind, int node)
{
    return kind == DISPATCHER ? S->d != NULL
           : kind == WORKER   ? S->w[node] != NULL
                              : S->c[node].reader != NULL;
}

static void tick_at(node_kind kind, int node, int64_t at)
{
    if (at == INT64_MAX)
        return;
    at = at > S->now ? at : S->now + 1;
    if (S->tick_at[kind][node] > S->now && S->tick_at[kind][node] <= at)
        return;
    S->tick_at[kind][node] = at;
    sim_push((event){.at = at,
                     .kind = TICK,
                     .node_kind = kind,
                     .node = node,
                     .epoch = sim_epoch_of(kind, node)});
}

void sim_tick(node_kind kind, int node)
{
    int64_t next = INT64_MAX;
    if (kind == DISPATCHER && S->d) {
        /* One that is made again of what clients say warns of what comes again. */
        for (const mr__d_job *j = S->d->jobs; j && S->begun; j = j->next)
            S->begun = j->rebuilding ? 0 : S->begun;
        S->repeats += S->begun;
        S->begun = 0;
        next = mr__dispatcher_tick(S->d, S->now);
        sim_watch_balance();
        sim_scale();
    } else if (kind == WORKER && S->w[node])
        next = mr__worker_streams_tick(S->w[node], S->now);
    else if (kind == CLIENT && S->c[node].reader)
        next = mr__job_reader_tick(S->c[node].reader, S->now);
    tick_at(kind, node, next);
}

bool sim_has_moved(uint64_t job_id, uint32_t stream, uint64_t generation)
{
    for (const mr__d_job *j = S->d ? S->d->jobs : NULL; j; j = j->next)
        if (j->id == job_id && stream < j->n_streams)
            return j->streams[stream]->generation >= generation;
    return true;
}

/* ---- connections ---- */

link *sim_find_link(uint64_t id)
{
    link *l = S->links;
    while (l && l->id != id)
        l = l->next;
    return l;
}

/* The open connection from one part to another; its end 0 is who connected. */
link *sim_link_between(node_kind a, int i, node_kind b, int j)
{
    for (link *l = S->links; l; l = l->next)
        if (l->open && l->kind[0] == a && l->node[0] == i && l->kind[1] == b && l->node[1] == j &&
            l->epoch[0] == sim_epoch_of(a, i) && l->epoch[1] == sim_epoch_of(b, j))
            return l;
    return NULL;
}

/* A worker has, or is opening, its connection to the dispatcher. */
static bool has_dispatcher(int worker)
{
    for (link *l = S->links; l; l = l->next)
        if (l->pending && l->kind[0] == WORKER && l->node[0] == worker &&
            l->epoch[0] == sim_epoch_of(WORKER, worker))
            return true;
    return sim_link_between(WORKER, worker, DISPATCHER, 0);
}

void sim_connect_to(node_kind a, int i, node_kind b, int j)
{
    link *l = calloc(1, sizeof *l);
    l->id = ++S->last_link;
    l->kind[0] = a;
    l->node[0] = i;
    l->kind[1] = b;
    l->node[1] = j;
    l->epoch[0] = sim_epoch_of(a, i);
    l->pending = true;
    l->next = S->links;
    S->links = l;
    sim_push((event){.at = S->now + delay(), .kind = CONNECTED, .link = l});
}

/* One end learns that the connection is over. */
void sim_hear_end(link *l, int end, mr_code code)
{
    event e = {.at = S->now + delay(), .kind = CLOSED, .link = l, .to = end};
    mr_fail(&e.why, code, "the connection broke");
    if (e.at < l->last[end])
        e.at = l->last[end];
    sim_push(e);
}

void sim_end_link(link *l, int by)
{
    if (!l->open)
        return;
    l->open = false;
    if (!l->silent[by])
        sim_hear_end(l, 1 - by, MR_END);
}

static int kind_of(const event *e)
{
    mr__message *m = NULL;
    mr_status st;
    mr_ok(mr__message_unpack((uint8_t *)e->bytes + MR__FRAME_BYTES, e->size - MR__FRAME_BYTES, &m,
                             &st),
          &st);
    int kind = (int)m->body_case;
    mr__message_free(m);
    return kind;
}

/* What may be said twice: a part that is not sure says it again. Not on one connection, but on the
 * next; here at once. */
static bool may_come_twice(const event *e)
{
    if (e->kind != MESSAGE || !S->o.faults || sim_draw(60))
        return false;
    int kind = kind_of(e);
    return kind == MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE || kind == MR__WIRE__MESSAGE__BODY_LOST ||
           kind == MR__WIRE__MESSAGE__BODY_HOST || kind == MR__WIRE__MESSAGE__BODY_UNHOST ||
           kind == MR__WIRE__MESSAGE__BODY_PLACED || kind == MR__WIRE__MESSAGE__BODY_PREPARE ||
           kind == MR__WIRE__MESSAGE__BODY_PREPARED || kind == MR__WIRE__MESSAGE__BODY_RETURNED ||
           kind == MR__WIRE__MESSAGE__BODY_WANT_SPLIT || kind == MR__WIRE__MESSAGE__BODY_SPLIT ||
           kind == MR__WIRE__MESSAGE__BODY_FINISHED || kind == MR__WIRE__MESSAGE__BODY_STREAM_END;
}

void sim_deliver_bytes(link *l, int from, event e)
{
    e.link = l;
    e.to = 1 - from;
    e.at = S->now + delay();
    if (S->o.host_ms && e.kind == MESSAGE && kind_of(&e) == MR__WIRE__MESSAGE__BODY_HOST)
        e.at += S->o.host_ms * MS;
    if (e.at < l->last[e.to])
        e.at = l->last[e.to];
    l->last[e.to] = e.at;
    if (may_come_twice(&e)) {
        event again = e;
        again.bytes = mr_memdup(e.bytes, e.size);
        sim_push(again);
        sim_happened(MR__SIM_MESSAGE_TWICE);
    }
    sim_push(e);
}

void sim_send_message(link *l, int from, const mr__message *m)
{
    event e = {.kind = MESSAGE};
    mr_status st;
    if (!l || !l->open)
        return;
    mr_ok(mr__message_pack(m, &e.bytes, &e.size, &st), &st);
    sim_deliver_bytes(l, from, e);
}

/* ---- what happens to connections ---- */

static void connected(link *l)
{
    mr_status why;
    l->pending = false;
    bool there = lives(l->kind[1], l->node[1]) && lives(l->kind[0], l->node[0]) &&
                 l->epoch[0] == sim_epoch_of(l->kind[0], l->node[0]);
    if (lives(l->kind[0], l->node[0]) && l->epoch[0] == sim_epoch_of(l->kind[0], l->node[0]) &&
        !there) {
        mr_fail(&why, MR_UNAVAILABLE, "nobody is there");
        if (l->kind[0] == WORKER)
            sim_w_close_dispatcher((void *)(intptr_t)l->node[0]);
        else if (l->kind[1] == DISPATCHER)
            mr__job_reader_dispatcher_closed(S->c[l->node[0]].reader, &why, S->now);
        else {
            char address[16];
            snprintf(address, sizeof address, "w%d", l->node[1]);
            mr__job_reader_worker_closed(S->c[l->node[0]].reader, address, &why, S->now);
        }
        sim_tick(l->kind[0], l->node[0]);
        return;
    }
    if (!there)
        return;
    if (S->o.elsewhere && l->kind[0] == CLIENT && l->kind[1] == WORKER && l->node[1] == 0) {
        mr_fail(&why, MR_INVALID_ARGUMENT, "it is on another host");
        mr__job_reader_worker_closed(S->c[l->node[0]].reader, "w0", &why, S->now);
        sim_tick(l->kind[0], l->node[0]);
        return;
    }
    l->open = true;
    l->epoch[1] = sim_epoch_of(l->kind[1], l->node[1]);
    if (l->kind[1] == DISPATCHER) {
        mr__dispatcher_opened(
            S->d, l->id, l->kind[0] == WORKER ? MR__WIRE__ROLE__WORKER : MR__WIRE__ROLE__CLIENT,
            "host", (uint32_t)l->node[0], S->now);
        if (l->kind[0] == WORKER)
            mr__worker_streams_dispatcher_opened(S->w[l->node[0]], S->now);
        else
            mr__job_reader_dispatcher_opened(S->c[l->node[0]].reader, S->now);
    } else {
        char address[16];
        snprintf(address, sizeof address, "w%d", l->node[1]);
        mr__job_reader_worker_opened(S->c[l->node[0]].reader, address, S->now);
    }
    sim_tick(l->kind[0], l->node[0]);
    sim_tick(l->kind[1], l->node[1]);
}

/* Whether the end of the link that an event is for still exists. */
static bool hears(const link *l, int end)
{
    return lives(l->kind[end], l->node[end]) &&
           l->epoch[end] == sim_epoch_of(l->kind[end], l->node[end]);
}

static void closed(const event *e)
{
    link *l = e->link;
    int end = e->to, node = l->node[end];
    l->open = false;
    if (!hears(l, end))
        return;
    if (l->kind[end] == DISPATCHER) {
        mr__dispatcher_closed(S->d, l->id, S->now);
    } else if (l->kind[end] == WORKER && l->kind[1 - end] == CLIENT) {
        mr__worker_streams_client_closed(S->w[node], l->id, S->now);
    } else if (l->kind[end] == WORKER) {
        mr__worker_streams_dispatcher_closed(S->w[node], S->now);
        sim_push((event){.at = S->now + 100 * MS,
                         .kind = START,
                         .node_kind = WORKER,
                         .node = node,
                         .epoch = S->w_epoch[node]});
    } else if (l->kind[1 - end] == DISPATCHER) {
        mr__job_reader_dispatcher_closed(S->c[node].reader, &e->why, S->now);
    } else {
        char address[16];
        snprintf(address, sizeof address, "w%d", l->node[1 - end]);
        mr__job_reader_worker_closed(S->c[node].reader, address, &e->why, S->now);
    }
    sim_tick(l->kind[end], node);
}

static void message(event *e)
{
    link *l = e->link;
    int end = e->to, node = l->node[end];
    mr_status st;
    mr__message *m = NULL;
    if (!l->open || l->silent[1 - end] || !hears(l, end)) {
        sim_happened(MR__SIM_MESSAGE_LOST);
        return;
    }
    uint64_t *heard = &S->heard[l->kind[end]][node];
    if (e->order < *heard)
        sim_happened(MR__SIM_OVERTAKEN);
    else
        *heard = e->order;
    mr_ok(mr__message_unpack((uint8_t *)e->bytes + MR__FRAME_BYTES, e->size - MR__FRAME_BYTES, &m,
                             &st),
          &st);
    if (l->kind[end] == DISPATCHER)
        mr__dispatcher_message(S->d, l->id, m, S->now);
    else if (l->kind[end] == WORKER && l->kind[1 - end] == CLIENT)
        mr__worker_streams_client_message(S->w[node], l->id, m, S->now);
    else if (l->kind[end] == WORKER) {
        bool drains = mr__worker_streams_draining(S->w[node]);
        mr__worker_streams_dispatcher_message(S->w[node], m, S->now);
        if (!drains && mr__worker_streams_draining(S->w[node]))
            sim_drain_worker(node);
    } else if (l->kind[1 - end] == DISPATCHER)
        mr__job_reader_dispatcher_message(S->c[node].reader, m, S->now);
    else {
        char address[16];
        snprintf(address, sizeof address, "w%d", l->node[1 - end]);
        mr__job_reader_worker_message(S->c[node].reader, address, m, S->now);
    }
    mr__message_free(m);
    sim_tick(l->kind[end], node);
}

static void block(event *e)
{
    link *l = e->link;
    char address[16];
    if (!l->open || l->silent[1 - e->to] || !hears(l, e->to)) {
        free(e->bytes);
        return;
    }
    snprintf(address, sizeof address, "w%d", l->node[1]);
    mr__job_reader_worker_block(S->c[l->node[0]].reader, address, &e->head, e->size, e->bytes,
                                S->now);
    sim_tick(CLIENT, l->node[0]);
}

static void commit(const event *e)
{
    if (e->epoch != S->d_epoch)
        return;
    if (S->disk_full) { /* tried again until it can be written */
        sim_push((event){.at = S->now + 200 * MS, .kind = COMMIT, .epoch = e->epoch});
        return;
    }
    S->durable = S->committing;
    S->committing = 0;
    if (S->n_records > S->durable) {
        S->committing = S->n_records;
        sim_push((event){
            .at = S->now + (int64_t)(1 + sim_draw(5)) * MS, .kind = COMMIT, .epoch = e->epoch});
    }
    while (S->held_first && S->held_first->after <= S->durable) {
        held *h = S->held_first;
        S->held_first = h->next;
        if (!S->held_first)
            S->held_last = NULL;
        sim_d_deliver(h->connection, h->bytes, h->size);
        free(h);
    }
}

/* ---- a run ---- */

static void next_repetition(int i)
{
    client *c = &S->c[i];
    sim_cut_links(CLIENT, i, false);
    mr__job_reader_free(c->reader);
    sim_drop_all(c);
    int epoch = c->epoch + 1, repetition = c->repetition + 1;
    memset(c, 0, sizeof *c);
    c->epoch = epoch;
    c->repetition = repetition;
    c->begins = true;
    sim_say("client %d begins repetition %d", i, repetition);
    sim_start_client(i);
}

static void start(const event *e)
{
    if (e->epoch != sim_epoch_of(e->node_kind, e->node))
        return;
    if (e->node_kind == DISPATCHER && !S->d)
        sim_start_dispatcher();
    else if (e->node_kind == WORKER && S->w[e->node] && mr__worker_streams_draining(S->w[e->node]))
        sim_end_worker(e->node);
    else if (e->node_kind == WORKER && !has_dispatcher(e->node))
        sim_start_worker(e->node);
    else if (e->node_kind == CLIENT && S->c[e->node].next_repetition)
        next_repetition(e->node);
    else if (e->node_kind == CLIENT && S->c[e->node].refused)
        sim_crash_client(e->node);
    else if (e->node_kind == CLIENT && !S->c[e->node].reader && !S->c[e->node].done)
        sim_start_client(e->node);
}

static void happen(event *e)
{
    switch (e->kind) {
    case TICK:
        if (e->at == S->tick_at[e->node_kind][e->node])
            sim_tick(e->node_kind, e->node);
        break;
    case CONNECTED:
        connected(e->link);
        break;
    case MESSAGE:
        message(e);
        break;
    case BLOCK:
        block(e);
        e->bytes = NULL;
        break;
    case CLOSED:
        closed(e);
        break;
    case COMMIT:
        commit(e);
        break;
    case PRODUCE:
        sim_produce(e);
        break;
    case CONSUME:
        sim_consume(e);
        break;
    case DISK_FREE:
        S->disk_full = false;
        if (S->d)
            mr__dispatcher_disk(S->d, false, S->now);
        break;
    case FAULT:
        sim_fault();
        break;
    case START:
        start(e);
        break;
    }
}

static void let_go(event *e)
{
    if (e->kind == BLOCK)
        free(e->bytes);
    else
        mr_free(e->bytes);
    free(e->position);
}

void mr__simulation_draw(uint64_t seed, mr__simulation_opts *o)
{
    uint64_t r = seed * 0x9e3779b97f4a7c15u + 1;
    *o = (mr__simulation_opts){.seed = seed,
                               .workers = 1 + (int)(mr_test_random(&r) % 5),
                               .streams = 1 + (int)(mr_test_random(&r) % MOST_STREAMS),
                               .block_length = 1 + (int)(mr_test_random(&r) % 3),
                               .consumers = 1,
                               .faults = (int)(mr_test_random(&r) % 25),
                               .memory = mr_test_random(&r) % 5 == 0,
                               .restores = mr_test_random(&r) % 2};
    if (o->streams >= 3 && mr_test_random(&r) % 4 == 0)
        o->consumers = 1 + (int)(mr_test_random(&r) % MOST_CLIENTS);
    uint64_t kind = mr_test_random(&r) % 12;
    if (kind >= 4) { /* 0 to 3: exactly_once, as above */
        static const Mr__Wire__Mode modes[] = {MR__WIRE__MODE__DYNAMIC,
                                               MR__WIRE__MODE__DYNAMIC,
                                               MR__WIRE__MODE__DYNAMIC,
                                               MR__WIRE__MODE__PARALLEL_EPOCHS,
                                               MR__WIRE__MODE__PARALLEL_EPOCHS,
                                               MR__WIRE__MODE__FILE,
                                               MR__WIRE__MODE__DATA,
                                               MR__WIRE__MODE__HINT};
        o->mode = modes[kind - 4];
        bool is_static = o->mode >= MR__WIRE__MODE__FILE;
        if (is_static)
            o->streams = o->workers;
        o->consumers = 1 + (int)(mr_test_random(&r) % MOST_CLIENTS);
        if (is_static && o->consumers > o->streams)
            o->consumers = o->streams;
        o->splits = (int)(mr_test_random(&r) % (MOST_SPLITS + 1));
        o->passes = 1 + (int)(mr_test_random(&r) % MOST_REPETITIONS);
        o->first_come = mr_test_random(&r) % 2;
        o->restores = o->restores && (is_static || o->consumers == 1);
        o->memory = o->memory && (is_static ? !o->first_come : o->consumers == 1);
    } else if (kind == 1) {
        o->repetitions = 1 + (int)(mr_test_random(&r) % MOST_REPETITIONS);
    } else if (kind == 2) {
        o->unordered = true;
    } else if (kind == 3) {
        o->blind = o->workers >= 2;
    }
    if (!o->repetitions)
        o->repetitions = 1;
    o->has_lists = mr_test_random(&r) % 4 == 0;
    bool moves = o->mode == MR__WIRE__MODE__EXACTLY_ONCE || o->mode == MR__WIRE__MODE__DYNAMIC;
    o->elsewhere = moves && o->workers >= 2 && !o->blind && mr_test_random(&r) % 8 == 0;
    if (o->memory) /* only a consumer's own position survives a dispatcher without an account */
        o->restores = true;
    o->tool = mr_test_random(&r) % 2;
}

void mr__simulation_draw_newcomers(uint64_t seed, mr__simulation_opts *o)
{
    uint64_t r = seed * 0x9e3779b97f4a7c15u + 2;
    *o = (mr__simulation_opts){.seed = seed,
                               .mode = MR__WIRE__MODE__DYNAMIC,
                               .workers = 1 + (int)(mr_test_random(&r) % 5),
                               .streams = 1 + (int)(mr_test_random(&r) % MOST_STREAMS),
                               .block_length = 1,
                               .consumers = 2 + (int)(mr_test_random(&r) % (MOST_CLIENTS - 1)),
                               .repetitions = 1,
                               .splits = 1 + (int)(mr_test_random(&r) % MOST_SPLITS),
                               .passes = 1 + (int)(mr_test_random(&r) % MOST_REPETITIONS),
                               .faults = (int)(mr_test_random(&r) % 12),
                               .newcomers = true,
                               .has_lists = mr_test_random(&r) % 4 == 0,
                               .loses = mr_test_random(&r) % 2,
                               .tool = mr_test_random(&r) % 2};
    o->memory = !o->loses;
}

/* For the history of a run that hangs. */
static void say_how_it_stands(void)
{
    for (const mr__d_job *j = S->d ? S->d->jobs : NULL; j; j = j->next)
        for (uint32_t i = 0; i < j->n_streams; i++) {
            const mr__d_stream *s = j->streams[i];
            sim_say("stream %u: generation %" PRIu64 ", worker %s, home %s, reader %d, %" PRIu64
                    " acknowledged%s",
                    i, s->generation, s->worker ? s->worker->address : "none",
                    s->home ? s->home->address : "any", s->reader ? (int)s->reader->process : -1,
                    s->elements, s->end ? ", ended" : "");
        }
    for (int i = 0; i < S->o.consumers; i++) {
        const mr__job_reader *r = S->c[i].reader;
        if (r)
            sim_say("client %d: dispatcher %s%s%s%s%s", i,
                    r->dispatcher == MR__UP     ? "up"
                    : r->dispatcher == MR__DOWN ? "down"
                                                : "awaited",
                    r->is_joined ? ", joined" : "", r->admitted ? ", admitted" : "",
                    r->flushing ? ", flushing" : "", r->leaving ? ", leaving" : "");
        for (size_t k = 0; r && k < r->n_streams; k++) {
            const mr__r_stream *s = &r->streams[k];
            sim_say("client %d, stream %u: generation %" PRIu64 ", worker %s, %" PRIu64
                    " received, %" PRIu64 " consumed%s%s%s%s",
                    i, s->index, s->generation, s->worker ? s->worker->address : "none",
                    s->received, s->consumed, s->ended ? ", ended" : "", s->gone ? ", gone" : "",
                    s->opened ? ", opened" : "", s->lost ? ", lost" : "");
        }
    }
}

static bool all_done(void)
{
    for (int i = 0; i < S->o.consumers; i++)
        if (!S->c[i].done)
            return false;
    return true;
}

static void tear_down(void)
{
    for (int i = 0; i < S->o.consumers; i++) {
        mr__job_reader_free(S->c[i].reader);
        sim_drop_all(&S->c[i]);
    }
    for (int i = 0; i < S->o.workers; i++)
        mr__worker_streams_free(S->w[i]);
    mr__dispatcher_free(S->d);
    sim_drop_held();
    while (S->n_events) {
        event e = pop();
        let_go(&e);
    }
    while (S->links) {
        link *l = S->links;
        S->links = l->next;
        free(l);
    }
    while (S->producers) {
        producer *p = S->producers;
        S->producers = p->next;
        free(p);
    }
    for (size_t i = 0; i < S->n_records; i++) {
        free(S->records[i].name);
        free(S->records[i].bytes);
    }
    free(S->records);
    free(S->heap);
}

const char *mr__simulation_run(const mr__simulation_opts *o)
{
    static simulation s;
    static char text[256];
    S = &s;
    memset(S, 0, sizeof *S);
    S->o = *o;
    S->random = o->seed;
    for (int i = 0; i < MOST_STREAMS; i++)
        S->length[i] = o->own_ms     ? UINT64_MAX / 4
                       : o->balance  ? 100 + sim_draw(300)
                       : sim_draw(4) ? sim_draw(MOST_ELEMENTS)
                                     : sim_draw(3);
    if (sim_shared())
        sim_draw_shared();
    sim_push((event){.kind = START, .node_kind = DISPATCHER, .at = (int64_t)sim_draw(500) * MS});
    for (int i = 0; i < (o->own_ms ? 1 : o->workers); i++)
        sim_push((event){.kind = START,
                         .node_kind = WORKER,
                         .node = i,
                         .at = (int64_t)sim_draw(o->balance && i ? 15000 : 500) * MS});
    for (int i = 0; i < o->consumers; i++)
        sim_push((event){.kind = START,
                         .node_kind = CLIENT,
                         .node = i,
                         .at = (int64_t)sim_draw(o->newcomers && i ? 6000 : 500) * MS});
    for (int i = 0; i < o->faults; i++)
        sim_push((event){.kind = FAULT, .at = (int64_t)sim_draw(o->balance ? 30000 : 8000) * MS});
    int64_t most = 1800 * SECOND;
    while (S->n_events && !S->broken && !S->settled && !all_done()) {
        event e = pop();
        S->now = e.at > S->now ? e.at : S->now; /* it is late where the clock has jumped */
        if (S->now > most) {
            sim_broken("the run does not end");
            say_how_it_stands();
        } else {
            happen(&e);
        }
        let_go(&e);
    }
    if (!S->broken && !S->settled && !all_done())
        sim_broken("nothing happens any more");
    if (!S->broken && sim_shared())
        sim_check_shared();
    snprintf(text, sizeof text, "%s", S->broken ? S->broken : "");
    bool bad = S->broken;
    tear_down();
    return bad ? text : NULL;
}
