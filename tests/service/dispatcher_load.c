/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a running dispatcher work: workers that host streams and clients that read them, as far as
 * the dispatcher can tell. No data moves.
 *
 *   dispatcher_load HOST:PORT [--jobs N] [--streams N] [--workers N] [--seconds N] [--step N]
 *                   [--every MS] [--splits N] [--name TEXT] [--worker TEXT]
 *
 * Each client acknowledges `step` elements more of each of its streams every `every` ms, once its
 * last request was acknowledged. --splits N: jobs are dynamic, with N splits each, which the
 * workers ask for one after the other; a line on standard error says how many came.
 *
 * Ends after `seconds` (default: with the dispatcher) and prints as JSON what was acknowledged:
 * {"load-0": [n, n, ...], ...}, an element for each stream. --name TEXT: what jobs are called, a
 * number follows; --worker TEXT: a worker's address, alike. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/ops/sources.h"
#include "transport/wire/connection.h"

#define MS ((int64_t)1000000)
enum { MOST = 4096 };

typedef struct client {
    mr__connection c; /* first */
    char name[256];
    uint64_t id, job_id, request;
    uint32_t n;
    uint64_t generation[MOST], said[MOST], done[MOST];
    bool is_open, is_joined, is_waiting;
    int64_t next;
} client;

typedef struct worker {
    mr__connection c; /* first */
    char address[256];
    bool is_open, is_ready;
} worker;

static struct {
    mr__loop *l;
    int64_t jobs, streams, workers, seconds, step, every, splits;
    uint64_t n_splits; /* that came */
    const char *name, *worker;
    client *clients;
    worker *hosts;
    mr_dataset *graph;
    void *bytes;
    size_t n_bytes;
} o = {.jobs = 1,
       .streams = 8,
       .workers = 1,
       .step = 10,
       .every = 10,
       .name = "load",
       .worker = "127.0.0.1"};

static void must(mr_code rc, const mr_status *st)
{
    if (rc == MR_OK)
        return;
    fprintf(stderr, "dispatcher_load: %s\n", st->message);
    exit(1);
}

static void say(mr__connection *c, int kind, void *body)
{
    mr_status st;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = (Mr__Wire__Message__BodyCase)kind;
    m.join = body;
    must(mr__connection_send(c, &m, &st), &st);
}

/* ---- clients ---- */

static void take_places(client *c, Mr__Wire__Place *const *v, size_t n, bool joined)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t s = v[i]->stream;
        if (s >= c->n)
            continue;
        c->generation[s] = v[i]->generation;
        if (joined)
            c->said[s] = c->done[s] = v[i]->elements;
    }
}

static void acknowledge(client *c)
{
    Mr__Wire__Place *places = calloc(c->n, sizeof *places);
    Mr__Wire__Place **list = calloc(c->n, sizeof *list);
    if (!places || !list)
        exit(1);
    for (uint32_t i = 0; i < c->n; i++) {
        mr__wire__place__init(&places[i]);
        places[i].stream = i;
        places[i].generation = c->generation[i];
        places[i].elements = c->said[i] = c->done[i] + (uint64_t)o.step;
        places[i].skip = places[i].elements;
        list[i] = &places[i];
    }
    Mr__Wire__Acknowledge a = MR__WIRE__ACKNOWLEDGE__INIT;
    a.job_id = c->job_id;
    a.client_id = c->id;
    a.request = ++c->request;
    a.n_places = c->n;
    a.places = list;
    c->is_waiting = true;
    say(&c->c, MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE, &a);
    free(list);
    free(places);
}

static void client_ready(mr__connection *x)
{
    client *c = (client *)x;
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Join join = MR__WIRE__JOIN__INIT;
    job.graph = (ProtobufCBinaryData){o.n_bytes, o.bytes};
    job.block_length = 1;
    job.streams = (uint32_t)o.streams;
    job.has_lists = true;
    if (o.splits) {
        job.mode = MR__WIRE__MODE__DYNAMIC;
        job.splits = (uint64_t)o.splits;
    }
    job.match = (char *)(uintptr_t) "client";
    join.request = c->request = 1;
    join.client_id = c->id;
    join.name = c->name;
    join.resume = true;
    join.job = &job;
    say(x, MR__WIRE__MESSAGE__BODY_JOIN, &join);
}

static void client_message(mr__connection *x, const mr__message *m)
{
    client *c = (client *)x;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_JOINED) {
        c->job_id = m->joined->job_id;
        c->n = (uint32_t)m->joined->n_places;
        take_places(c, m->joined->places, m->joined->n_places, true);
        c->is_joined = true;
        c->is_waiting = o.splits != 0; /* nothing of these is acknowledged */
    } else if (m->body_case == MR__WIRE__MESSAGE__BODY_PLACED && !o.splits) {
        take_places(c, m->placed->places, m->placed->n_places, false);
        c->is_waiting = false; /* a request of an older generation is not answered */
    } else if (m->body_case == MR__WIRE__MESSAGE__BODY_ACKNOWLEDGED &&
               m->acknowledged->request == c->request) {
        memcpy(c->done, c->said, sizeof c->done);
        c->is_waiting = false;
    } else if (m->body_case == MR__WIRE__MESSAGE__BODY_FAILED) {
        fprintf(stderr, "dispatcher_load: %s\n", m->failed->status->message);
        exit(1);
    }
}

static void client_closed(mr__connection *x, const mr_status *why)
{
    (void)why;
    ((client *)x)->is_open = ((client *)x)->is_joined = false;
}
static const mr__connection_class clients = {
    .ready = client_ready, .message = client_message, .closed = client_closed};

/* ---- workers ---- */

static void worker_ready(mr__connection *x)
{
    worker *w = (worker *)x;
    Mr__Wire__Register reg = MR__WIRE__REGISTER__INIT;
    reg.address = w->address;
    w->is_ready = true;
    say(x, MR__WIRE__MESSAGE__BODY_REGISTER_WORKER, &reg);
}
static void want(mr__connection *x, uint64_t job, uint32_t stream, uint64_t generation,
                 uint64_t index)
{
    Mr__Wire__WantSplit w = MR__WIRE__WANT_SPLIT__INIT;
    w.job_id = job;
    w.stream = stream;
    w.generation = generation;
    w.index = index;
    say(x, MR__WIRE__MESSAGE__BODY_WANT_SPLIT, &w);
}

static void worker_message(mr__connection *x, const mr__message *m)
{
    if (!o.splits)
        return;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_HOST) {
        const Mr__Wire__Place *p = m->host->place;
        want(x, m->host->job_id, p->stream, p->generation, p->n_splits);
    } else if (m->body_case == MR__WIRE__MESSAGE__BODY_SPLIT && !m->split->end) {
        o.n_splits++;
        want(x, m->split->job_id, m->split->stream, m->split->generation, m->split->index + 1);
    }
}
static void worker_closed(mr__connection *x, const mr_status *why)
{
    (void)why;
    ((worker *)x)->is_open = ((worker *)x)->is_ready = false;
}
static const mr__connection_class workers = {
    .ready = worker_ready, .message = worker_message, .closed = worker_closed};

/* ---- all of them ---- */

static void open_all(const char *at)
{
    mr_status st;
    mr__address to;
    must(mr__address_resolve(at, &to, &st), &st);
    for (int64_t i = 0; i < o.workers; i++) {
        worker *w = &o.hosts[i];
        snprintf(w->address, sizeof w->address, "%s:%d", o.worker, 20000 + (int)i);
        w->c.class_ = &workers;
        w->is_open = true;
        must(mr__connection_open(&w->c, o.l, &to, MR__WIRE__ROLE__WORKER,
                                 (mr__token){.any_user = true}, &st),
             &st);
    }
    for (int64_t i = 0; i < o.jobs; i++) {
        client *c = &o.clients[i];
        snprintf(c->name, sizeof c->name, "%s-%d", o.name, (int)i);
        c->id = (uint64_t)i + 1;
        c->c.class_ = &clients;
        c->is_open = true;
        must(mr__connection_open(&c->c, o.l, &to, MR__WIRE__ROLE__CLIENT, (mr__token){0}, &st),
             &st);
    }
}

/* Pulses once a second, and acknowledges what is due; false: no connection is left. */
static bool turn(int64_t *pulse)
{
    mr_status st;
    int64_t now = mr__loop_now(o.l);
    bool any = false, beat = now >= *pulse;
    Mr__Wire__Pulse p = MR__WIRE__PULSE__INIT;
    if (beat)
        *pulse = now + 1000 * MS;
    for (int64_t i = 0; i < o.workers; i++) {
        any = any || o.hosts[i].is_open;
        if (beat && o.hosts[i].is_ready)
            say(&o.hosts[i].c, MR__WIRE__MESSAGE__BODY_PULSE, &p);
    }
    for (int64_t i = 0; i < o.jobs; i++) {
        client *c = &o.clients[i];
        any = any || c->is_open;
        if (beat && c->is_joined)
            say(&c->c, MR__WIRE__MESSAGE__BODY_PULSE, &p);
        if (c->is_joined && !c->is_waiting && now >= c->next) {
            acknowledge(c);
            c->next = now + o.every * MS;
        }
    }
    int64_t until = o.every ? now + o.every * MS : now + MS;
    must(mr__loop_turn(o.l, until < *pulse ? until : *pulse, &st), &st);
    return any;
}

static void print_all(void)
{
    fputs("{", stdout);
    for (int64_t i = 0; i < o.jobs; i++) {
        const client *c = &o.clients[i];
        printf("%s\"%s\": [", i ? ", " : "", c->name);
        for (uint32_t s = 0; s < c->n; s++)
            printf("%s%" PRIu64, s ? ", " : "", c->done[s]);
        fputs("]", stdout);
    }
    puts("}");
}

static void take_options(int argc, char **argv)
{
    struct {
        const char *name;
        int64_t *number;
        const char **text;
    } options[] = {{"--jobs", &o.jobs, NULL},       {"--streams", &o.streams, NULL},
                   {"--workers", &o.workers, NULL}, {"--seconds", &o.seconds, NULL},
                   {"--splits", &o.splits, NULL},   {"--step", &o.step, NULL},
                   {"--every", &o.every, NULL},     {"--name", NULL, &o.name},
                   {"--worker", NULL, &o.worker}};
    for (int i = 2; i + 1 < argc; i += 2)
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            if (strcmp(argv[i], options[k].name) == 0) {
                if (options[k].number)
                    *options[k].number = strtoll(argv[i + 1], NULL, 10);
                else
                    *options[k].text = argv[i + 1];
            }
}

int main(int argc, char **argv)
{
    mr_status st;
    int64_t pulse = 0;
    if (argc < 2 || argc % 2) {
        fputs("dispatcher_load: HOST:PORT [--OPTION VALUE]...\n", stderr);
        return 2;
    }
    take_options(argc, argv);
    if (o.streams > MOST)
        return 2;
    mr_dataset *graph = mr_range(0, 1000000000, 1);
    must(mr_dataset_to_proto(graph, &o.bytes, &o.n_bytes, &st), &st);
    mr_dataset_unref(graph);
    o.clients = calloc((size_t)o.jobs + 1, sizeof *o.clients);
    o.hosts = calloc((size_t)o.workers + 1, sizeof *o.hosts);
    must(mr__loop_open(MR__LOOP_EPOLL, &o.l, &st), &st);
    if (!o.clients || !o.hosts)
        return 1;
    open_all(argv[1]);
    int64_t end = o.seconds ? mr__loop_now(o.l) + o.seconds * 1000 * MS : INT64_MAX;
    while (turn(&pulse) && mr__loop_now(o.l) < end)
        ;
    print_all();
    if (o.splits)
        fprintf(stderr, "%" PRIu64 " splits\n", o.n_splits);
    return 0;
}
