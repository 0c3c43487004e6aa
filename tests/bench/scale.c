/* SPDX-License-Identifier: Apache-2.0 */
/* One dispatcher of a very large service: the dispatcher's own code, which does the work and whose
 * time is taken event by event, among workers and clients that are numbers. The clock is virtual:
 * an event costs what it took here, a message half a millisecond of way, a transaction of the
 * account COMMIT_NS and RECORD_NS for each record in it.
 *
 *     scale [WORKERS CLIENTS JOBS SPLITS]       10000 10000 100 10000000 by default
 *
 * docs/scale.md says what the figures mean. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "transport/service/dispatcher/dispatcher.h"
#include "pipeline/memory/id_map.h"

#define MS        ((int64_t)1000000)
#define SECOND    (1000 * MS)
#define WAY_NS    (MS / 2)
#define COMMIT_NS (5 * MS)
#define RECORD_NS ((int64_t)5000)

typedef struct event {
    int64_t at;
    uint64_t order;
    uint32_t kind, who;   /* what happens to whom */
    uint64_t job, number; /* of a stream: index << 32 | generation; of a split: its index */
} event;
enum { OPEN_WORKER, OPEN_CLIENT, PULSE_WORKER, PULSE_CLIENT, WANT, CLOSE_WORKER };

typedef struct stream_of {
    uint64_t job;
    uint32_t stream, n_splits;
    uint64_t generation;
} stream_of;

typedef struct peer {
    uint64_t connection;
    stream_of *streams; /* a worker's: hosted; a client's: read */
    size_t n, capacity;
    bool lost;
} peer;

static struct {
    mr__dispatcher *d;
    peer *workers, *clients;
    size_t n_workers, n_clients, n_jobs;
    uint64_t n_splits;
    event *heap;
    size_t n_events, events_capacity;
    uint64_t order, connections;
    int64_t now;       /* of the event that is handled: when its handling is over */
    int64_t free_at;   /* the dispatcher is busy until then */
    int64_t last_host; /* when the last Host was heard */
    double cpu;
    uint64_t in, out, records, hosted, splits;
    /* the account */
    int64_t commit_at; /* the transaction that runs is durable then */
    uint64_t commit_n; /* records that wait for the next one */
    bool wants_splits, keeps;
    size_t wanted; /* splits that are under way */
    /* what a dispatcher that starts again reads */
    struct written_stream {
        uint64_t job;
        Mr__Wire__Place place;
        char worker[40];
    } * streams;
    struct written_split {
        uint32_t job, stream;
        uint64_t split;
    } * splits_written;
    size_t n_streams, streams_capacity, n_splits_written, splits_capacity;
    uint32_t *last_written; /* of a stream of a job: its place in streams, + 1 */
    Mr__Wire__Job job;
    char (*names)[40];
    uint64_t *job_ids; /* that the dispatcher drew; 0: none yet */
    mr__id_map jobs;   /* of an id the job's index + 1, as a pointer */
} S;

static void *grow(void *p, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return p;
    *capacity = need < 64 ? 64 : need + need / 2;
    p = realloc(p, *capacity * size);
    if (!p) {
        fprintf(stderr, "scale: out of memory\n");
        exit(1);
    }
    return p;
}

static bool before(const event *a, const event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(event e)
{
    e.order = ++S.order;
    S.wanted += e.kind == WANT;
    S.heap = grow(S.heap, &S.events_capacity, S.n_events + 1, sizeof *S.heap);
    size_t i = S.n_events++;
    for (; i && before(&e, &S.heap[(i - 1) / 2]); i = (i - 1) / 2)
        S.heap[i] = S.heap[(i - 1) / 2];
    S.heap[i] = e;
}

static event pop(void)
{
    event top = S.heap[0], last = S.heap[--S.n_events];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < S.n_events; i = k) {
        if (k + 1 < S.n_events && before(&S.heap[k + 1], &S.heap[k]))
            k++;
        if (!before(&S.heap[k], &last))
            break;
        S.heap[i] = S.heap[k];
    }
    S.heap[i] = last;
    return top;
}

/* ---- what the dispatcher wants done ---- */

static int64_t durable_at(uint64_t after)
{
    return after ? S.commit_at : 0;
}

static stream_of *find(peer *p, uint64_t job, uint32_t stream)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->streams[i].job == job && p->streams[i].stream == stream)
            return &p->streams[i];
    return NULL;
}

static void put(peer *p, uint64_t job, uint32_t stream, uint64_t generation, uint32_t n_splits)
{
    stream_of *s = find(p, job, stream);
    if (!s) {
        p->streams = grow(p->streams, &p->capacity, p->n + 1, sizeof *p->streams);
        s = &p->streams[p->n++];
    }
    *s = (stream_of){job, stream, n_splits, generation};
}

/* Connections of workers are even, those of clients odd; both hold the peer's number. */
static peer *peer_of(uint64_t connection)
{
    uint64_t i = (connection & 0xffffffff) >> 1;
    return connection & 1 ? &S.clients[i] : &S.workers[i];
}

static void out_send(void *ctx, uint64_t to, const mr__message *m, uint64_t after)
{
    (void)ctx;
    peer *p = peer_of(to);
    uint32_t who = (uint32_t)((to & 0xffffffff) >> 1);
    S.out++;
    if (p->connection != to)
        return;
    int64_t at = durable_at(after);
    at = (at > S.now ? at : S.now) + WAY_NS;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_HOST) {
        const Mr__Wire__Place *place = m->host->place;
        put(p, m->host->job_id, place->stream, place->generation, (uint32_t)place->n_splits);
        S.hosted++;
        S.last_host = at > S.last_host ? at : S.last_host;
        if (S.wants_splits)
            push((event){at, 0, WANT, who, m->host->job_id,
                         (uint64_t)place->stream << 32 | place->n_splits});
    } else if (m->body_case == MR__WIRE__MESSAGE__BODY_SPLIT && !m->split->end) {
        S.splits++;
        if (S.wants_splits)
            push((event){at, 0, WANT, who, m->split->job_id,
                         (uint64_t)m->split->stream << 32 | (m->split->index + 1)});
    } else if (m->body_case == MR__WIRE__MESSAGE__BODY_PLACED) {
        for (size_t i = 0; i < m->placed->n_places; i++)
            put(p, m->placed->job_id, m->placed->places[i]->stream,
                m->placed->places[i]->generation, 0);
    } else if (m->body_case == MR__WIRE__MESSAGE__BODY_FAILED) {
        fprintf(stderr, "scale: %s\n", m->failed->status->message);
        exit(1);
    }
}

static void out_close(void *ctx, uint64_t connection, const mr_status *why)
{
    (void)ctx;
    (void)connection;
    (void)why;
}

/* A job "job N" is on record: from then on it goes by the number that the dispatcher drew. */
static void name_job(const mr__record *r)
{
    uintptr_t i = strtoul(r->name + strlen("job "), NULL, 10);
    mr_status st;
    if (!S.job_ids[i] && mr__id_map_set(&S.jobs, r->job_id, (void *)(i + 1), &st) != MR_OK)
        exit(1);
    S.job_ids[i] = r->job_id;
}

static uint32_t job_index(uint64_t id)
{
    return (uint32_t)((uintptr_t)mr__id_map_get(&S.jobs, id) - 1);
}

static void write_down(const mr__record *r)
{
    if (r->kind == MR__RECORD_STREAM) {
        uint32_t *last = &S.last_written[(size_t)job_index(r->job_id) * 65536 + r->place->stream];
        if (!*last) {
            S.streams = grow(S.streams, &S.streams_capacity, S.n_streams + 1, sizeof *S.streams);
            *last = (uint32_t)++S.n_streams;
        }
        struct written_stream *w = &S.streams[*last - 1];
        w->job = r->job_id;
        w->place = *r->place;
        snprintf(w->worker, sizeof w->worker, "%s", r->place->worker);
    } else if (r->kind == MR__RECORD_SPLIT) {
        S.splits_written = grow(S.splits_written, &S.splits_capacity, S.n_splits_written + 1,
                                sizeof *S.splits_written);
        S.splits_written[S.n_splits_written++] =
            (struct written_split){job_index(r->job_id), r->stream, r->split};
    }
}

static uint64_t out_record(void *ctx, const mr__record *r)
{
    (void)ctx;
    if (S.commit_at <= S.now) /* a transaction begins, with all that waited */
        S.commit_at = S.now + COMMIT_NS + (int64_t)S.commit_n * RECORD_NS, S.commit_n = 0;
    S.commit_n++;
    if (r->kind == MR__RECORD_JOB)
        name_job(r);
    if (S.keeps)
        write_down(r);
    return ++S.records;
}

static void out_note(void *ctx, mr_log_level level, const char *format, const char *line)
{
    (void)format;
    (void)ctx;
    (void)level;
    (void)line;
}

static mr_code count(void *ctx, const Mr__Wire__Job *job, uint32_t *n, mr_status *st)
{
    (void)ctx;
    (void)job;
    (void)st;
    *n = (uint32_t)(S.n_splits / S.n_jobs);
    return MR_OK;
}

/* ---- the dispatcher's time ---- */

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The event that began `cpu` ago is over: the dispatcher was busy for that long. */
static void took(int64_t at, double began)
{
    double cpu = cpu_now() - began;
    S.cpu += cpu;
    S.free_at = (at > S.free_at ? at : S.free_at) + (int64_t)(cpu * 1e9);
}

static void say(uint64_t from, Mr__Wire__Message__BodyCase kind, void *body)
{
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = kind;
    m.hello = body; /* a union of pointers */
    S.in++;
    mr__dispatcher_message(S.d, from, &m, S.now);
}

static void start_dispatcher(void)
{
    static const mr__dispatcher_out out = {out_send, out_close, out_record, out_note};
    mr_status st;
    mr__dispatcher_opts o = {.seed = 1, .streams = count, .state = "memory"};
    if (mr__dispatcher_new(&S.d, &o, &out, NULL, &st) != MR_OK)
        exit(1);
}

static void open_worker(uint32_t i)
{
    peer *p = &S.workers[i];
    Mr__Wire__Hosted *v = calloc(p->n + 1, sizeof *v), **list = calloc(p->n + 1, sizeof *list);
    Mr__Wire__Register r = MR__WIRE__REGISTER__INIT;
    for (size_t k = 0; k < p->n; k++) {
        mr__wire__hosted__init(&v[k]);
        v[k].job_id = p->streams[k].job;
        v[k].stream = p->streams[k].stream;
        v[k].generation = p->streams[k].generation;
        list[k] = &v[k];
    }
    r.address = S.names[i];
    r.n_hosted = p->n;
    r.hosted = list;
    p->connection = ++S.connections << 32 | i << 1;
    p->lost = false;
    double began = cpu_now();
    mr__dispatcher_opened(S.d, p->connection, MR__WIRE__ROLE__WORKER, "host", i, S.now);
    say(p->connection, MR__WIRE__MESSAGE__BODY_REGISTER_WORKER, &r);
    took(S.now, began);
    free(v);
    free(list);
}

static void open_client(uint32_t i)
{
    peer *p = &S.clients[i];
    char name[32];
    Mr__Wire__Join j = MR__WIRE__JOIN__INIT;
    Mr__Wire__Place *v = calloc(p->n + 1, sizeof *v), **list = calloc(p->n + 1, sizeof *list);
    snprintf(name, sizeof name, "job %zu", i % S.n_jobs);
    for (size_t k = 0; k < p->n; k++) {
        mr__wire__place__init(&v[k]);
        v[k].stream = p->streams[k].stream;
        v[k].generation = p->streams[k].generation;
        list[k] = &v[k];
    }
    j.name = name;
    j.job = &S.job;
    j.job_id = p->connection ? S.job_ids[i % S.n_jobs] : 0; /* it comes back, or is new */
    j.client_id = (uint64_t)i + 1;
    j.n_places = p->n;
    j.places = list;
    p->connection = ++S.connections << 32 | (uint64_t)i << 1 | 1;
    double began = cpu_now();
    mr__dispatcher_opened(S.d, p->connection, MR__WIRE__ROLE__CLIENT, "host", i, S.now);
    say(p->connection, MR__WIRE__MESSAGE__BODY_JOIN, &j);
    took(S.now, began);
    free(v);
    free(list);
}

static void pulse(const peer *p)
{
    Mr__Wire__Pulse x = MR__WIRE__PULSE__INIT;
    double began = cpu_now();
    say(p->connection, MR__WIRE__MESSAGE__BODY_PULSE, &x);
    took(S.now, began);
}

/* Once a second: how far each of its streams was read, with a position of 200 bytes. */
static void acknowledge(uint32_t i, peer *p)
{
    static uint8_t position[200];
    static uint64_t elements;
    Mr__Wire__Acknowledge a = MR__WIRE__ACKNOWLEDGE__INIT;
    Mr__Wire__Place *v = calloc(p->n + 1, sizeof *v), **list = calloc(p->n + 1, sizeof *list);
    elements++;
    for (size_t k = 0; k < p->n; k++) {
        mr__wire__place__init(&v[k]);
        v[k].stream = p->streams[k].stream;
        v[k].generation = p->streams[k].generation;
        v[k].elements = elements;
        v[k].position = (ProtobufCBinaryData){sizeof position, position};
        list[k] = &v[k];
    }
    a.job_id = S.job_ids[i % S.n_jobs];
    a.client_id = (uint64_t)i + 1;
    a.request = elements;
    a.n_places = p->n;
    a.places = list;
    double began = cpu_now();
    say(p->connection, MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE, &a);
    took(S.now, began);
    free(v);
    free(list);
}

static void want(const event *e)
{
    peer *p = &S.workers[e->who];
    uint32_t stream = (uint32_t)(e->number >> 32);
    const stream_of *s = find(p, e->job, stream);
    if (p->lost || !s)
        return;
    Mr__Wire__WantSplit w = MR__WIRE__WANT_SPLIT__INIT;
    w.job_id = e->job;
    w.stream = stream;
    w.generation = s->generation;
    w.index = (uint32_t)e->number;
    double began = cpu_now();
    say(p->connection, MR__WIRE__MESSAGE__BODY_WANT_SPLIT, &w);
    took(S.now, began);
}

static void happen(const event *e)
{
    peer *p;
    S.now = e->at > S.free_at ? e->at : S.free_at;
    switch (e->kind) {
    case OPEN_WORKER:
        open_worker(e->who);
        break;
    case OPEN_CLIENT:
        open_client(e->who);
        break;
    case PULSE_WORKER:
        p = &S.workers[e->who];
        if (!p->lost)
            pulse(p);
        break;
    case PULSE_CLIENT:
        acknowledge(e->who, &S.clients[e->who]);
        break;
    case WANT:
        want(e);
        break;
    case CLOSE_WORKER: {
        p = &S.workers[e->who];
        uint64_t connection = p->connection;
        p->lost = true;
        p->connection = 0;
        p->n = 0;
        double began = cpu_now();
        mr__dispatcher_closed(S.d, connection, S.now);
        took(S.now, began);
    }
    }
}

/* One event for each of n peers, over that time. */
static void all(uint32_t kind, size_t n, int64_t over)
{
    for (size_t i = 0; i < n; i++)
        push((event){
            .at = S.now + over * (int64_t)i / (int64_t)n, .kind = kind, .who = (uint32_t)i});
}

/* Everything that is due, with a tick of the dispatcher each second. */
static void run(void)
{
    int64_t tick = S.now;
    while (S.n_events) {
        event e = pop();
        if (e.at >= tick) {
            double began = cpu_now();
            mr__dispatcher_tick(S.d, S.now);
            took(S.now, began);
            tick = e.at + SECOND;
            if (S.wanted) { /* while it lasts, all are heard of */
                all(PULSE_WORKER, S.n_workers, SECOND);
                all(PULSE_CLIENT, S.n_clients, SECOND);
            }
        }
        S.wanted -= e.kind == WANT;
        happen(&e);
    }
}

/* ---- the parts of the run ---- */

static size_t resident(void)
{
    size_t pages = 0, unused;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%zu %zu", &unused, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void begin(void)
{
    S.cpu = 0;
    S.in = S.out = S.records = S.hosted = S.splits = 0;
    S.now = S.free_at > S.now ? S.free_at : S.now;
    S.last_host = S.now;
}

static void report(const char *what, int64_t since, int64_t until)
{
    printf("%-34s %9.3f s, dispatcher busy %8.3f s; messages in %9" PRIu64 " out %9" PRIu64
           ", records %9" PRIu64 ", streams handed out %7" PRIu64 "\n",
           what, (double)(until - since) * 1e-9, S.cpu, S.in, S.out, S.records, S.hosted);
    fflush(stdout);
}

static void drop_dispatcher(void)
{
    mr__dispatcher_free(S.d);
    S.d = NULL;
    S.n_events = 0;
}

static void load(const mr__record *r)
{
    mr_status st;
    if (mr__dispatcher_load(S.d, r, &st) == MR_OK)
        return;
    fprintf(stderr, "scale: %s\n", st.message);
    exit(1);
}

static int64_t read_back(void)
{
    char name[32];
    double began = cpu_now();
    start_dispatcher();
    for (size_t j = 0; j < S.n_jobs; j++) {
        snprintf(name, sizeof name, "job %zu", j);
        Mr__Wire__Job job = S.job;
        job.has_lists = true;
        job.splits = S.n_splits / S.n_jobs;
        mr__record r = {.kind = MR__RECORD_JOB, .job_id = S.job_ids[j], .name = name, .job = &job};
        load(&r);
    }
    for (size_t i = 0; i < S.n_streams; i++) {
        struct written_stream *w = &S.streams[i];
        w->place.worker = w->worker;
        w->place.home = (char *)(uintptr_t) "";
        w->place.position = (ProtobufCBinaryData){0, NULL};
        load(&(mr__record){.kind = MR__RECORD_STREAM, .job_id = w->job, .place = &w->place});
    }
    for (size_t i = 0; i < S.n_splits_written; i++) {
        const struct written_split *w = &S.splits_written[i];
        load(&(mr__record){.kind = MR__RECORD_SPLIT,
                           .job_id = S.job_ids[w->job],
                           .stream = w->stream,
                           .split = w->split});
    }
    return (int64_t)((cpu_now() - began) * 1e9);
}

int main(int argc, char **argv)
{
    S.n_workers = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
    S.n_clients = argc > 2 ? strtoul(argv[2], NULL, 10) : 10000;
    S.n_jobs = argc > 3 ? strtoul(argv[3], NULL, 10) : 100;
    S.n_splits = argc > 4 ? strtoull(argv[4], NULL, 10) : 10000000;
    if (!S.n_workers || !S.n_clients || !S.n_jobs || S.n_jobs > S.n_clients) {
        fprintf(stderr,
                "usage: scale [WORKERS CLIENTS JOBS SPLITS], at least a client for each job\n");
        return 2;
    }
    S.workers = calloc(S.n_workers, sizeof *S.workers);
    S.clients = calloc(S.n_clients, sizeof *S.clients);
    S.names = calloc(S.n_workers, sizeof *S.names);
    S.job_ids = calloc(S.n_jobs, sizeof *S.job_ids);
    S.last_written = calloc(S.n_jobs * 65536, sizeof *S.last_written);
    for (size_t i = 0; i < S.n_workers; i++)
        snprintf(S.names[i], sizeof S.names[i], "10.%zu.%zu.%zu:5051", i >> 16 & 255, i >> 8 & 255,
                 i & 255);
    static uint8_t graph[500];
    mr__wire__job__init(&S.job);
    S.job.graph = (ProtobufCBinaryData){sizeof graph, graph};
    S.job.mode = MR__WIRE__MODE__DYNAMIC;
    S.job.block_length = 1;
    S.job.has_lists = true;
    printf("%zu workers, %zu clients, %zu jobs, %" PRIu64 " splits\n", S.n_workers, S.n_clients,
           S.n_jobs, S.n_splits);

    start_dispatcher();
    S.keeps = true;
    size_t empty = resident();
    begin();
    int64_t since = S.now;
    all(OPEN_WORKER, S.n_workers, SECOND);
    run();
    all(OPEN_CLIENT, S.n_clients, SECOND);
    run();
    report("all come within 2 s, until served:", since, S.last_host);

    begin();
    since = S.now;
    all(PULSE_WORKER, S.n_workers, SECOND);
    all(PULSE_CLIENT, S.n_clients, SECOND);
    run();
    report("a second of all at work:", since, S.now > since + SECOND ? S.now : since + SECOND);
    printf("%-34s %.0f messages a second at most\n", "", (double)(S.in + S.out) / S.cpu);

    begin();
    since = S.now;
    S.wants_splits = true;
    for (uint32_t i = 0; i < S.n_workers; i++)
        for (size_t k = 0; k < S.workers[i].n; k++)
            push((event){S.now, 0, WANT, i, S.workers[i].streams[k].job,
                         (uint64_t)S.workers[i].streams[k].stream << 32});
    run();
    S.wants_splits = false;
    report("all splits handed out:", since, S.now);
    printf("%-34s %.0f splits a second, as far as the dispatcher goes\n", "",
           (double)S.splits / S.cpu);
    size_t model = S.streams_capacity * sizeof *S.streams +
                   S.splits_capacity * sizeof *S.splits_written +
                   S.events_capacity * sizeof *S.heap;
    printf("%-34s about %zu MB\n", "memory of the dispatcher:", (resident() - empty - model) >> 20);

    begin();
    since = S.now;
    for (uint32_t i = 0; i < S.n_workers; i += 10)
        push((event){.at = S.now, .kind = CLOSE_WORKER, .who = i});
    run();
    report("a tenth of the workers is lost:", since, S.last_host);

    S.keeps = false;
    begin();
    drop_dispatcher();
    since = S.now;
    int64_t reading = read_back();
    S.now = S.free_at = since + reading;
    printf("%-34s %9.3f s\n", "the dispatcher starts again:", (double)reading * 1e-9);
    for (uint32_t i = 0; i < S.n_workers; i++)
        if (!S.workers[i].lost)
            push((event){.at = S.now, .kind = OPEN_WORKER, .who = i});
    all(OPEN_CLIENT, S.n_clients, 1);
    run();
    report("and all are with it again:", since, S.free_at);
    mr__dispatcher_free(S.d);
    return 0;
}
