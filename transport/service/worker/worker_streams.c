/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/worker/worker_streams.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/memory/hash_index.h"
#include "pipeline/memory/id_map.h"

#define SECOND ((int64_t)1000000000)
enum { SILENT_S = 5 };
/* The most Opens that wait for their Host, and bytes of each; others are refused, first those of
 * the clients with most of them. */
enum { MOST_EARLY = 1024, MOST_EARLY_BYTES = 1024 };

typedef enum waiting { NOTHING, BLOCK, ERROR, END } waiting;

/* A stream that is hosted. */
typedef struct hosted {
    struct hosted *next, *prev;
    size_t place;         /* in all_streams.v */
    Mr__Wire__Host *what; /* job, place; a copy */
    uint64_t client;      /* 0: no client reads it */
    uint64_t producer;    /* 0: none */
    int64_t credit;
    uint32_t compression;
    /* the producer's last result, if the client may not receive it yet */
    waiting waiting;
    int64_t blocked_at; /* since when it may not be sent; 0: it was sent, or no client reads */
    uint64_t busy_ns, wait_ns; /* since the last Pulse */
    mr__made made;             /* BLOCK; ERROR: first; END: first is the number of elements */
    void *position;            /* of made */
    mr_status status;
    bool fatal;
    /* the split that its producer requests */
    bool wants;
    uint64_t want_index, want_repetition;
    int64_t want_at; /* when to request it again */
    size_t known;    /* splits that the client knows of */
} hosted;

/* An Open that came before its Host: the client may hear of a stream's new place first. */
typedef struct early {
    struct early *next;
    uint64_t client;
    Mr__Wire__Open *open; /* a copy */
    uint64_t until;       /* the Pulse whose answer comes after the Host, if there is one */
} early;

/* The hosted streams, to find them by job and number. */
typedef struct all_streams {
    hosted **v; /* in no order */
    size_t n, capacity;
    mr__hash_index index;
} all_streams;

struct mr__worker_streams {
    mr__worker_streams_out out;
    void *ctx;
    char *address;
    uint64_t instance;
    uint32_t weight;
    char **tags;
    size_t n_tags;
    hosted *streams; /* the newest first */
    all_streams all;
    early *early; /* the oldest first */
    size_t n_early;
    mr__id_map n_early_of;    /* a client's number of them */
    uint64_t pulses, answers; /* said to, and heard from, the dispatcher on this connection */
    mr__id_map producers;     /* to hosted */
    uint64_t last_producer;
    bool connected, draining;
    int64_t now, heard, pulse_at, pulsed_at, cpu_ns;
    double busy_ratio;
};

/* ---- finding streams ---- */

typedef struct stream_key {
    uint64_t job;
    uint32_t stream;
} stream_key;

static bool is_same(const void *streams, size_t place, const void *key)
{
    const Mr__Wire__Host *x = ((hosted *const *)streams)[place]->what;
    const stream_key *k = key;
    return x->job_id == k->job && x->place->stream == k->stream;
}

static uint64_t hash_of(uint64_t job, uint32_t stream)
{
    return mr__splitmix(job + stream);
}

static uint64_t hash_of_hosted(const hosted *s)
{
    return hash_of(s->what->job_id, s->what->place->stream);
}

static hosted *find(const mr__worker_streams *ws, uint64_t job, uint32_t stream)
{
    const stream_key key = {job, stream};
    size_t at = mr__hash_find(&ws->all.index, hash_of(job, stream), is_same, ws->all.v, &key);
    return at == MR__NO_PLACE ? NULL : ws->all.v[at];
}

static mr_code add(all_streams *all, hosted *s, mr_status *st)
{
    MR_TRY(MR_GROW(all->v, all->capacity, all->n + 1, UINT32_MAX / 4, "streams", st));
    MR_TRY(mr__hash_add(&all->index, hash_of_hosted(s), all->n, "streams", st));
    s->place = all->n;
    all->v[all->n++] = s;
    return MR_OK;
}

static void take_away(all_streams *all, const hosted *s)
{
    hosted *last = all->v[--all->n];
    mr__hash_remove(&all->index, hash_of_hosted(s), s->place);
    if (last == s)
        return;
    mr__hash_slot_of(&all->index, hash_of_hosted(last), last->place)->place =
        (uint32_t)s->place + 1;
    last->place = s->place;
    all->v[last->place] = last;
}

/* ---- one stream ---- */

/* Its result waits for credit no longer. */
static void unblock(const mr__worker_streams *ws, hosted *s)
{
    if (s->blocked_at && ws->now > s->blocked_at)
        s->wait_ns += (uint64_t)(ws->now - s->blocked_at);
    s->blocked_at = 0;
}

static void drop_waiting(mr__worker_streams *ws, hosted *s)
{
    unblock(ws, s);
    if (s->waiting == BLOCK)
        ws->out.drop(ws->ctx, s->made.block);
    mr_free(s->position);
    s->position = NULL;
    s->waiting = NOTHING;
}

static void stop_producer(mr__worker_streams *ws, hosted *s)
{
    if (s->producer) {
        mr__id_map_remove(&ws->producers, s->producer);
        ws->out.stop(ws->ctx, s->producer);
        s->producer = 0;
        s->wants = false;
    }
    drop_waiting(ws, s);
}

static void remove_stream(mr__worker_streams *ws, hosted *s)
{
    stop_producer(ws, s);
    take_away(&ws->all, s);
    if (s->prev)
        s->prev->next = s->next;
    else
        ws->streams = s->next;
    if (s->next)
        s->next->prev = s->prev;
    mr__wire_free(s->what);
    mr_free(s);
}

static Mr__Wire__Hosted name_of(const hosted *s)
{
    Mr__Wire__Hosted x = MR__WIRE__HOSTED__INIT;
    x.job_id = s->what->job_id;
    x.stream = s->what->place->stream;
    x.generation = s->what->place->generation;
    return x;
}

static void say_error(mr__worker_streams *ws, uint64_t client, const Mr__Wire__Hosted *s,
                      uint64_t first, const mr_status *why, const void *position, size_t n,
                      bool fatal)
{
    Mr__Wire__Status status;
    mr__status_to_wire(why, &status);
    Mr__Wire__StreamError e = MR__WIRE__STREAM_ERROR__INIT;
    e.job_id = s->job_id;
    e.stream = s->stream;
    e.generation = s->generation;
    e.first = first;
    e.status = &status;
    e.position = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)position};
    e.fatal = fatal;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_STREAM_ERROR;
    m.stream_error = &e;
    ws->out.to_client(ws->ctx, client, &m);
}

static void say_end(mr__worker_streams *ws, uint64_t client, const Mr__Wire__Hosted *s,
                    uint64_t elements, const void *position, size_t n)
{
    Mr__Wire__StreamEnd e = MR__WIRE__STREAM_END__INIT;
    e.job_id = s->job_id;
    e.stream = s->stream;
    e.generation = s->generation;
    e.elements = elements;
    e.position = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)position};
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_STREAM_END;
    m.stream_end = &e;
    ws->out.to_client(ws->ctx, client, &m);
}

/* Sends splits to the client before the elements made from them, because its position contains
 * them. */
static void say_splits(mr__worker_streams *ws, hosted *s)
{
    const Mr__Wire__Place *place = s->what->place;
    if (s->known == place->n_splits)
        return;
    Mr__Wire__StreamSplits x = MR__WIRE__STREAM_SPLITS__INIT;
    x.job_id = s->what->job_id;
    x.stream = place->stream;
    x.generation = place->generation;
    x.first = s->known;
    x.n_splits = place->n_splits - s->known;
    x.splits = place->splits + s->known;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_STREAM_SPLITS;
    m.stream_splits = &x;
    s->known = place->n_splits;
    ws->out.to_client(ws->ctx, s->client, &m);
}

/* Sends the pending result if the client's credit permits, and lets the producer continue. */
static void send_waiting(mr__worker_streams *ws, hosted *s)
{
    Mr__Wire__Hosted name = name_of(s);
    if (s->waiting == NOTHING || !s->client || s->credit <= 0) {
        if (s->waiting != NOTHING && s->client && !s->blocked_at)
            s->blocked_at = ws->now;
        return;
    }
    unblock(ws, s);
    waiting what = s->waiting;
    s->waiting = NOTHING;
    say_splits(ws, s);
    if (what == BLOCK) {
        s->credit -= (int64_t)s->made.bytes;
        ws->out.block(ws->ctx, s->client, &name, &s->made, s->compression);
    } else if (what == ERROR) {
        s->credit -= MR__ERROR_CREDIT;
        say_error(ws, s->client, &name, s->made.first, &s->status, s->position,
                  s->made.position_bytes, s->fatal);
    } else {
        say_end(ws, s->client, &name, s->made.first, s->position, s->made.position_bytes);
    }
    mr_free(s->position);
    s->position = NULL;
    if (what == END || (what == ERROR && s->fatal))
        stop_producer(ws, s);
    else
        ws->out.go(ws->ctx, s->producer);
}

/* ---- producers ---- */

static hosted *of_producer(const mr__worker_streams *ws, uint64_t producer)
{
    return mr__id_map_get(&ws->producers, producer);
}

/* Keeps the producer's result, with a copy of its position; fails the stream if memory has run
 * out. */
static void keep(mr__worker_streams *ws, hosted *s, waiting what, const mr__made *made)
{
    s->made = *made;
    s->made.position = s->position = NULL;
    if (made->position_bytes) {
        s->position = mr_memdup(made->position, made->position_bytes);
        if (!s->position) {
            if (what == BLOCK)
                ws->out.drop(ws->ctx, made->block);
            what = ERROR;
            s->fatal = true;
            s->made.position_bytes = 0;
            mr_fail_memory(&s->status, made->position_bytes, "a position");
        }
        s->made.position = s->position;
    }
    s->waiting = what;
    send_waiting(ws, s);
}

void mr__worker_streams_made(mr__worker_streams *ws, uint64_t producer, const mr__made *made,
                             int64_t now)
{
    ws->now = now;
    hosted *s = of_producer(ws, producer);
    if (s)
        keep(ws, s, BLOCK, made);
    else
        ws->out.drop(ws->ctx, made->block);
}

void mr__worker_streams_failed(mr__worker_streams *ws, uint64_t producer, uint64_t first,
                               const mr_status *why, const void *position, size_t position_bytes,
                               bool fatal, int64_t now)
{
    ws->now = now;
    hosted *s = of_producer(ws, producer);
    if (!s)
        return;
    mr__made made = {.first = first, .position = position, .position_bytes = position_bytes};
    s->status = *why;
    s->fatal = fatal;
    keep(ws, s, ERROR, &made);
}

void mr__worker_streams_busy(mr__worker_streams *ws, uint64_t producer, int64_t ns)
{
    hosted *s = of_producer(ws, producer);
    if (s && ns > 0)
        s->busy_ns += (uint64_t)ns;
}

static void say_want(mr__worker_streams *ws, hosted *s, int64_t now)
{
    Mr__Wire__WantSplit w = MR__WIRE__WANT_SPLIT__INIT;
    w.job_id = s->what->job_id;
    w.stream = s->what->place->stream;
    w.generation = s->what->place->generation;
    w.index = s->want_index;
    w.repetition = s->want_repetition;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_WANT_SPLIT;
    m.want_split = &w;
    s->want_at = now + SECOND;
    if (ws->connected)
        ws->out.to_dispatcher(ws->ctx, &m);
}

void mr__worker_streams_wants_split(mr__worker_streams *ws, uint64_t producer, uint64_t index,
                                    uint64_t repetition, int64_t now)
{
    hosted *s = of_producer(ws, producer);
    if (!s)
        return;
    const Mr__Wire__Place *place = s->what->place;
    if (index < place->n_splits) {
        ws->out.split(ws->ctx, producer, index, place->splits[index], false);
        return;
    }
    s->wants = true;
    s->want_index = index;
    s->want_repetition = repetition;
    say_want(ws, s, now);
}

/* Repeats unanswered requests: they may have been lost with the connection. */
static void ask_again(mr__worker_streams *ws, bool all, int64_t now)
{
    for (hosted *s = ws->streams; s; s = s->next)
        if (s->wants && (all || now >= s->want_at))
            say_want(ws, s, now);
}

static void take_split(mr__worker_streams *ws, const Mr__Wire__Split *x)
{
    hosted *s = find(ws, x->job_id, x->stream);
    if (!s || !s->wants || s->what->place->generation != x->generation ||
        s->want_index != x->index || s->want_repetition != x->repetition)
        return;
    Mr__Wire__Place *place = s->what->place;
    if (!x->end && x->index == place->n_splits) {
        uint64_t *more = mr_realloc(place->splits, (place->n_splits + 1) * sizeof *more);
        if (!more)
            return; /* it is requested again */
        place->splits = more;
        place->splits[place->n_splits++] = x->split;
    }
    s->wants = false;
    ws->out.split(ws->ctx, s->producer, x->index, x->split, x->end);
}

void mr__worker_streams_ended(mr__worker_streams *ws, uint64_t producer, uint64_t elements,
                              const void *position, size_t position_bytes, int64_t now)
{
    ws->now = now;
    hosted *s = of_producer(ws, producer);
    if (s)
        keep(
            ws, s, END,
            &(mr__made){.first = elements, .position = position, .position_bytes = position_bytes});
}

void mr__worker_streams_matched(mr__worker_streams *ws, uint64_t job_id,
                                const Mr__Wire__Lists *lists, int64_t now)
{
    (void)now;
    (void)job_id;
    if (!ws->connected)
        return; /* the dispatcher asks again */
    Mr__Wire__Lists copy = *lists;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_LISTS;
    m.lists = &copy;
    ws->out.to_dispatcher(ws->ctx, &m);
}

/* ---- Pulses to the dispatcher ---- */

/* Adds what its streams did since the last Pulse: an entry for each series of streams of one job.
 * Returns their number. */
static size_t take_usage(mr__worker_streams *ws, Mr__Wire__Usage *v, Mr__Wire__Usage **list)
{
    size_t n = 0;
    for (hosted *s = ws->streams; s; s = s->next) {
        if (s->blocked_at) {
            unblock(ws, s);
            s->blocked_at = ws->now;
        }
        if (!n || v[n - 1].job_id != s->what->job_id) {
            mr__wire__usage__init(&v[n]);
            v[n].job_id = s->what->job_id;
            list[n] = &v[n];
            n++;
        }
        v[n - 1].busy_ns += s->busy_ns;
        v[n - 1].wait_ns += s->wait_ns;
        v[n - 1].streams += s->producer != 0;
        s->busy_ns = s->wait_ns = 0;
    }
    return n;
}

/* Averages the share of time over about five seconds: a block may be reported late. */
static void note_busy(mr__worker_streams *ws, const Mr__Wire__Usage *v, size_t n)
{
    double busy = 0, most = 0, passed = (double)(ws->now - ws->pulsed_at);
    for (size_t i = 0; i < n; i++) {
        busy += (double)v[i].busy_ns;
        most += passed * v[i].streams;
    }
    double share = most > 0 ? busy / most : 0;
    double weight = passed / (5.0 * (double)SECOND);
    ws->busy_ratio += ((share < 1 ? share : 1) - ws->busy_ratio) * (weight < 1 ? weight : 1);
    ws->pulsed_at = ws->now;
}

static void say_pulse(mr__worker_streams *ws)
{
    size_t n = 0;
    for (const hosted *s = ws->streams; s; s = s->next)
        n++;
    Mr__Wire__Usage *v = mr_calloc(n + 1, sizeof *v), **list = mr_calloc(n + 1, sizeof *list);
    Mr__Wire__Pulse pulse = MR__WIRE__PULSE__INIT;
    pulse.draining = ws->draining;
    if (v && list)
        pulse.n_usage = take_usage(ws, v, list);
    pulse.usage = list;
    note_busy(ws, v, pulse.n_usage);
    int64_t cpu_ns = ws->cpu_ns;
    ws->out.cpu(ws->ctx, &cpu_ns, &pulse.cpus);
    pulse.cpu_ns = cpu_ns > ws->cpu_ns ? (uint64_t)(cpu_ns - ws->cpu_ns) : 0;
    ws->cpu_ns = cpu_ns;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
    m.pulse = &pulse;
    ws->pulses++;
    ws->out.to_dispatcher(ws->ctx, &m);
    mr_free(v);
    mr_free(list);
}

/* ---- clients ---- */

static void refuse(mr__worker_streams *ws, uint64_t client, const Mr__Wire__Open *o,
                   const char *why)
{
    mr_status st;
    Mr__Wire__Hosted name = MR__WIRE__HOSTED__INIT;
    name.job_id = o->job_id;
    name.stream = o->stream;
    name.generation = o->generation;
    mr_fail(&st, MR_UNAVAILABLE, "worker %s %s", ws->address, why);
    say_error(ws, client, &name, o->first, &st, NULL, 0, true);
}

/* Whether the client has the key of the job's blocks, if they need one. */
static bool has_key(const hosted *s, const Mr__Wire__Open *o)
{
    const ProtobufCBinaryData *key = &s->what->job->key;
    return key->len == 0 ||
           (o->key.len == key->len && CRYPTO_memcmp(o->key.data, key->data, key->len) == 0);
}

static void refuse_generation(mr__worker_streams *ws, uint64_t client, const Mr__Wire__Open *o)
{
    refuse(ws, client, o,
           find(ws, o->job_id, o->stream) ? "hosts another generation of this stream"
                                          : "does not host this stream");
}

/* ---- clients that came before the dispatcher's Host ---- */

static size_t n_early_of(const mr__worker_streams *ws, uint64_t client)
{
    const uintptr_t *n = mr__id_map_find(&ws->n_early_of, client);
    return n ? *n : 0;
}

/* The caller frees it. */
static early *take_out(mr__worker_streams *ws, early **at)
{
    early *e = *at;
    *at = e->next;
    ws->n_early--;
    uintptr_t *n = mr__id_map_find(&ws->n_early_of, e->client);
    if (--*n == 0)
        mr__id_map_remove(&ws->n_early_of, e->client);
    return e;
}

static void free_early(mr__worker_streams *ws, early **at)
{
    early *e = take_out(ws, at);
    mr__wire_free(e->open);
    mr_free(e);
}

static early **early_of(mr__worker_streams *ws, uint64_t client, uint64_t job, uint32_t stream)
{
    early **at = &ws->early;
    while (*at &&
           ((*at)->client != client || (*at)->open->job_id != job || (*at)->open->stream != stream))
        at = &(*at)->next;
    return at;
}

static void drop_early(mr__worker_streams *ws, uint64_t client, uint64_t job, uint32_t stream)
{
    early **at = early_of(ws, client, job, stream);
    if (*at)
        free_early(ws, at);
}

/* Room for an Open of this client: refuses the newest of the client that has most, so that none
 * keeps the others out; false: no other has more. */
static bool make_room(mr__worker_streams *ws, uint64_t client)
{
    early **worst = NULL;
    size_t most = n_early_of(ws, client) + 1;
    if (ws->n_early < MOST_EARLY)
        return true;
    for (early **at = &ws->early; *at; at = &(*at)->next) {
        size_t n = n_early_of(ws, (*at)->client);
        if (n > most || (n == most && worst)) {
            most = n;
            worst = at;
        }
    }
    if (!worst)
        return false;
    refuse_generation(ws, (*worst)->client, (*worst)->open);
    free_early(ws, worst);
    return true;
}

/* Keeps an Open until its Host, or the answer to a Pulse, arrives; false: it cannot wait.
 * until: of the same Open before; 0: a new one */
static bool wait_for_host(mr__worker_streams *ws, uint64_t client, const Mr__Wire__Open *o,
                          uint64_t until)
{
    mr_status st;
    if (!ws->connected || ws->draining || mr__wire__open__get_packed_size(o) > MOST_EARLY_BYTES ||
        !make_room(ws, client))
        return false;
    early *e = mr_calloc(1, sizeof *e);
    if (!e || mr__wire_copy(&o->base, &e->open, &st) != MR_OK) {
        mr_free(e);
        return false;
    }
    if (mr__id_map_put(&ws->n_early_of, client, n_early_of(ws, client) + 1, &st) != MR_OK) {
        mr__wire_free(e->open);
        mr_free(e);
        return false;
    }
    e->client = client;
    e->until = until ? until : ws->pulses + 1;
    early **last = &ws->early;
    while (*last)
        last = &(*last)->next;
    *last = e;
    ws->n_early++;
    if (ws->answers == ws->pulses)
        say_pulse(ws);
    return true;
}

/* An answer came: the clients that waited for it, and whose Host did not come before, are
 * refused. */
static void answered(mr__worker_streams *ws)
{
    ws->answers++;
    for (early **at = &ws->early; *at;) {
        if ((*at)->until > ws->answers) {
            at = &(*at)->next;
            continue;
        }
        refuse_generation(ws, (*at)->client, (*at)->open);
        free_early(ws, at);
    }
    if (ws->early && ws->answers == ws->pulses)
        say_pulse(ws);
}

static void refuse_early(mr__worker_streams *ws)
{
    while (ws->early) {
        refuse_generation(ws, ws->early->client, ws->early->open);
        free_early(ws, &ws->early);
    }
}

static void take_open(mr__worker_streams *ws, uint64_t client, const Mr__Wire__Open *o)
{
    hosted *s = find(ws, o->job_id, o->stream);
    const early *before = *early_of(ws, client, o->job_id, o->stream);
    uint64_t until = before && before->open->generation >= o->generation ? before->until : 0;
    drop_early(ws, client, o->job_id, o->stream);
    if (!s || s->what->place->generation < o->generation) {
        if (!wait_for_host(ws, client, o, until))
            refuse_generation(ws, client, o);
        return;
    }
    if (s->what->place->generation != o->generation) {
        refuse_generation(ws, client, o);
        return;
    }
    if (!has_key(s, o)) {
        refuse(ws, client, o, "shows this job's blocks only to clients with its key");
        return;
    }
    const Mr__Wire__Place *place = s->what->place;
    if (o->first + place->skip < place->elements) {
        refuse(ws, client, o, "has a later position of this stream than requested");
        return;
    }
    stop_producer(ws, s);
    s->client = client;
    s->known = 0;
    s->credit = o->credit > INT64_MAX ? INT64_MAX : (int64_t)o->credit;
    s->compression = o->compression;
    if (place->end) {
        Mr__Wire__Hosted name = name_of(s);
        say_end(ws, client, &name, place->elements, place->position.data, place->position.len);
        return;
    }
    uint64_t producer = ++ws->last_producer;
    mr_status st;
    if (mr__id_map_set(&ws->producers, producer, s, &st) != MR_OK) {
        refuse(ws, client, o, "is out of memory");
        return;
    }
    s->producer = producer;
    ws->out.start(ws->ctx, producer, client, s->what, o);
}

/* s is hosted: opens it for the clients that waited for this generation, refuses older ones. */
static void open_early(mr__worker_streams *ws, const hosted *s)
{
    const Mr__Wire__Place *place = s->what->place;
    for (early **at = &ws->early; *at;) {
        early *e = *at;
        if (e->open->job_id != s->what->job_id || e->open->stream != place->stream ||
            e->open->generation > place->generation) {
            at = &e->next;
            continue;
        }
        take_out(ws, at);
        take_open(ws, e->client, e->open);
        mr__wire_free(e->open);
        mr_free(e);
    }
}

static void take_credit(mr__worker_streams *ws, uint64_t client, const Mr__Wire__Credit *c)
{
    hosted *s = find(ws, c->job_id, c->stream);
    early *e = *early_of(ws, client, c->job_id, c->stream);
    if (e && __builtin_add_overflow(e->open->credit, c->bytes, &e->open->credit))
        e->open->credit = UINT64_MAX;
    if (!e && s && s->client == client &&
        !__builtin_add_overflow(s->credit, (int64_t)(c->bytes & INT64_MAX), &s->credit))
        send_waiting(ws, s);
}

void mr__worker_streams_client_message(mr__worker_streams *ws, uint64_t client,
                                       const mr__message *m, int64_t now)
{
    ws->now = now;
    hosted *s = NULL;
    mr_status why;
    switch (m->body_case) {
    case MR__WIRE__MESSAGE__BODY_OPEN:
        take_open(ws, client, m->open);
        break;
    case MR__WIRE__MESSAGE__BODY_CREDIT:
        take_credit(ws, client, m->credit);
        break;
    case MR__WIRE__MESSAGE__BODY_SHUT:
        drop_early(ws, client, m->shut->job_id, m->shut->stream);
        s = find(ws, m->shut->job_id, m->shut->stream);
        if (s && s->client == client) {
            stop_producer(ws, s);
            s->client = 0;
        }
        break;
    case MR__WIRE__MESSAGE__BODY_PULSE:
        ws->out.to_client(ws->ctx, client, m);
        break;
    default:
        mr_fail(&why, MR_DATA_LOSS, "message %d is not for a worker", (int)m->body_case);
        ws->out.close_client(ws->ctx, client, &why);
        mr__worker_streams_client_closed(ws, client, now);
    }
}

void mr__worker_streams_client_closed(mr__worker_streams *ws, uint64_t client, int64_t now)
{
    ws->now = now;
    for (early **at = &ws->early; *at;)
        if ((*at)->client == client)
            free_early(ws, at);
        else
            at = &(*at)->next;
    for (hosted *s = ws->streams; s; s = s->next)
        if (s->client == client) {
            stop_producer(ws, s);
            s->client = 0;
        }
}

/* ---- the dispatcher ---- */

void mr__worker_streams_dispatcher_opened(mr__worker_streams *ws, int64_t now)
{
    size_t n = 0, i = 0;
    for (const hosted *s = ws->streams; s; s = s->next)
        n++;
    Mr__Wire__Hosted *v = mr_calloc(n + 1, sizeof *v), **list = mr_calloc(n + 1, sizeof *list);
    if (!v || !list)
        n = 0; /* streams not listed are assigned again, in a new generation */
    for (const hosted *s = ws->streams; s && i < n; s = s->next, i++) {
        v[i] = name_of(s);
        list[i] = &v[i];
    }
    Mr__Wire__Register r = MR__WIRE__REGISTER__INIT;
    r.address = ws->address;
    r.instance = ws->instance;
    r.weight = ws->weight;
    r.n_tags = ws->n_tags;
    r.tags = ws->tags;
    r.n_hosted = n;
    r.hosted = list;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_REGISTER_WORKER;
    m.register_worker = &r;
    ws->connected = true;
    ws->pulses = ws->answers = 0;
    ws->heard = now;
    ws->pulse_at = now + SECOND;
    ws->out.to_dispatcher(ws->ctx, &m);
    mr_free(v);
    mr_free(list);
}

void mr__worker_streams_dispatcher_closed(mr__worker_streams *ws, int64_t now)
{
    ws->now = now;
    ws->connected = false;
    refuse_early(ws);
}

static void take_host(mr__worker_streams *ws, const Mr__Wire__Host *x)
{
    hosted *s = find(ws, x->job_id, x->place->stream);
    if (s && s->what->place->generation >= x->place->generation)
        return; /* outdated */
    if (s)
        remove_stream(ws, s);
    size_t n = mr__wire__host__get_packed_size(x);
    void *bytes = mr_malloc(n ? n : 1);
    mr_status st;
    mr_code rc = bytes ? MR_OK : mr_fail_memory(&st, n, "a stream");
    if (rc == MR_OK && !(s = mr_calloc(1, sizeof *s)))
        rc = mr_fail_memory(&st, sizeof *s, "a stream");
    if (rc == MR_OK) {
        mr__wire__host__pack(x, bytes);
        rc = mr__wire_unpack(&mr__wire__host__descriptor, bytes, n, &s->what, &st);
        if (rc == MR_OK)
            rc = add(&ws->all, s, &st);
        if (rc != MR_OK) {
            mr__wire_free(s->what);
            mr_free(s);
        }
    }
    mr_free(bytes);
    if (rc != MR_OK) { /* the client's Open is refused, and the stream moves */
        mr__note(ws->out.note, ws->ctx, MR_LOG_ERROR, "cannot host a stream: %s", st.message);
        return;
    }
    s->next = ws->streams;
    if (ws->streams)
        ws->streams->prev = s;
    ws->streams = s;
    open_early(ws, s);
}

void mr__worker_streams_dispatcher_message(mr__worker_streams *ws, const mr__message *m,
                                           int64_t now)
{
    hosted *s;
    ws->now = ws->heard = now;
    switch (m->body_case) {
    case MR__WIRE__MESSAGE__BODY_REGISTERED:
        ask_again(ws, true, now);
        break;
    case MR__WIRE__MESSAGE__BODY_HOST:
        if (!ws->draining)
            take_host(ws, m->host);
        break;
    case MR__WIRE__MESSAGE__BODY_UNHOST:
        s = find(ws, m->unhost->job_id, m->unhost->stream);
        if (s && s->what->place->generation == m->unhost->generation)
            remove_stream(ws, s);
        break;
    case MR__WIRE__MESSAGE__BODY_SPLIT:
        take_split(ws, m->split);
        break;
    case MR__WIRE__MESSAGE__BODY_MATCH:
        ws->out.match(ws->ctx, m->match->job_id, m->match->job);
        break;
    case MR__WIRE__MESSAGE__BODY_PULSE:
        if (m->pulse->draining) /* not an answer */
            ws->draining = true;
        else
            answered(ws);
        break;
    case MR__WIRE__MESSAGE__BODY_FAILED:
        mr__note(ws->out.note, ws->ctx, MR_LOG_ERROR, "the dispatcher refuses this worker: %s",
                 m->failed->status->message);
        break;
    default:
        mr__note(ws->out.note, ws->ctx, MR_LOG_WARNING,
                 "the dispatcher sent message %d, which is not for a worker", (int)m->body_case);
    }
}

/* ---- creation and timers ---- */

bool mr__worker_streams_drain(mr__worker_streams *ws, int64_t now)
{
    (void)now;
    ws->draining = true;
    while (ws->streams) {
        hosted *s = ws->streams;
        Mr__Wire__Returned r = MR__WIRE__RETURNED__INIT;
        r.job_id = s->what->job_id;
        r.place = s->what->place;
        mr__message m = MR__WIRE__MESSAGE__INIT;
        m.body_case = MR__WIRE__MESSAGE__BODY_RETURNED;
        m.returned = &r;
        if (ws->connected)
            ws->out.to_dispatcher(ws->ctx, &m);
        remove_stream(ws, s);
    }
    return true;
}

bool mr__worker_streams_draining(const mr__worker_streams *ws)
{
    return ws->draining;
}

double mr__worker_streams_busy_ratio(const mr__worker_streams *ws)
{
    return ws->busy_ratio;
}

int64_t mr__worker_streams_tick(mr__worker_streams *ws, int64_t now)
{
    ws->now = now;
    if (!ws->connected)
        return INT64_MAX;
    if (now - ws->heard >= SILENT_S * SECOND) {
        mr__worker_streams_dispatcher_closed(ws, now);
        ws->out.close_dispatcher(ws->ctx);
        return INT64_MAX;
    }
    if (now >= ws->pulse_at) {
        say_pulse(ws);
        ws->pulse_at = now + SECOND;
        ask_again(ws, false, now);
    }
    return ws->pulse_at;
}

mr_code mr__worker_streams_new(mr__worker_streams **out, const char *address, uint64_t instance,
                               uint32_t weight, const char *const *tags, size_t n_tags,
                               const mr__worker_streams_out *to, void *ctx, mr_status *st)
{
    mr__worker_streams *ws = mr_calloc(1, sizeof *ws);
    if (!ws)
        return mr_fail_memory(st, sizeof *ws, "a worker");
    ws->out = *to;
    ws->ctx = ctx;
    ws->instance = instance;
    ws->weight = weight;
    ws->address = mr_strdup(address);
    ws->tags = mr_calloc(n_tags + 1, sizeof *ws->tags);
    bool full = ws->address && ws->tags;
    for (; full && ws->n_tags < n_tags; ws->n_tags++)
        full = (ws->tags[ws->n_tags] = mr_strdup(tags[ws->n_tags])) != NULL;
    if (!full) {
        mr__worker_streams_free(ws);
        return mr_fail_memory(st, sizeof *ws, "a worker");
    }
    *out = ws;
    return MR_OK;
}

void mr__worker_streams_free(mr__worker_streams *ws)
{
    if (!ws)
        return;
    while (ws->streams)
        remove_stream(ws, ws->streams);
    while (ws->early)
        free_early(ws, &ws->early);
    mr__id_map_reset(&ws->n_early_of);
    for (size_t i = 0; ws->tags && i < ws->n_tags; i++)
        mr_free(ws->tags[i]);
    mr_free(ws->tags);
    mr_free(ws->address);
    mr__id_map_reset(&ws->producers);
    mr_free(ws->all.v);
    mr__hash_reset(&ws->all.index);
    mr_free(ws);
}
