/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/transport/service/simulation_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "tests/harness.h"
#include "transport/service/dispatcher/dispatcher_state.h"

/* ---- the dispatcher ---- */

void sim_d_deliver(uint64_t to, void *bytes, size_t size)
{
    link *l = sim_find_link(to);
    if (!l || !l->open) {
        mr_free(bytes);
        return;
    }
    sim_deliver_bytes(l, 1, (event){.kind = MESSAGE, .bytes = bytes, .size = size});
}

/* A worker that is given a stream; not one that a tool drains, and may have heard of it. */
static void check_serves(const link *l)
{
    int i = l ? l->node[0] : 0;
    if (l && S->drained[i] == (uint64_t)l->epoch[0] + 1 && S->drained_by[i] <= S->durable)
        sim_broken("worker %d is to end, and is given a stream", i);
}

static void d_send(void *ctx, uint64_t to, const mr__message *m, uint64_t after)
{
    (void)ctx;
    mr_status st;
    void *bytes;
    size_t size;
    bool waits = after > S->durable;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_HOST)
        check_serves(sim_find_link(to));
    mr_ok(mr__message_pack(m, &bytes, &size, &st), &st);
    for (held *h = S->held_first; h && !waits; h = h->next)
        waits = h->connection == to; /* messages to one connection keep their order */
    if (!waits) {
        sim_d_deliver(to, bytes, size);
        return;
    }
    held *h = malloc(sizeof *h);
    *h = (held){.connection = to, .after = after, .bytes = bytes, .size = size};
    if (S->held_last)
        S->held_last->next = h;
    else
        S->held_first = h;
    S->held_last = h;
}

static void d_close(void *ctx, uint64_t connection, const mr_status *why)
{
    (void)ctx;
    (void)why;
    link *l = sim_find_link(connection);
    if (l)
        sim_end_link(l, 1);
}

static int worker_number(const char *address)
{
    return atoi(address + 1);
}

static void note_drain(const mr__record *r, uint64_t number)
{
    if (r->kind != MR__RECORD_DRAIN)
        return;
    S->drained[worker_number(r->name)] = r->instance;
    S->drained_by[worker_number(r->name)] = number;
}

static uint64_t d_record(void *ctx, const mr__record *r)
{
    (void)ctx;
    if (S->o.memory)
        return 0;
    if (S->n_records == S->records_capacity) {
        S->records_capacity = S->records_capacity ? 2 * S->records_capacity : 64;
        S->records = realloc(S->records, S->records_capacity * sizeof *S->records);
    }
    size_t i = S->n_records++;
    memset(&S->records[i], 0, sizeof S->records[i]);
    S->records[i].kind = r->kind;
    S->records[i].job_id = r->job_id;
    S->records[i].name = strdup(r->name ? r->name : "");
    S->records[i].stream = r->stream;
    S->records[i].split = r->split;
    S->records[i].instance = r->instance;
    note_drain(r, i + 1);
    const ProtobufCMessage *m = r->kind == MR__RECORD_JOB      ? &r->job->base
                                : r->kind == MR__RECORD_STREAM ? &r->place->base
                                                               : NULL;
    if (m) {
        S->records[i].size = protobuf_c_message_get_packed_size(m);
        S->records[i].bytes = malloc(S->records[i].size + 1);
        protobuf_c_message_pack(m, S->records[i].bytes);
    }
    if (!S->committing) {
        S->committing = S->n_records;
        bool slow = sim_draw(10) == 0;
        if (slow)
            sim_happened(MR__SIM_SLOW_DISK);
        sim_push((event){.at = S->now + 1 * MS + (int64_t)sim_draw(slow ? 200 : 5) * MS,
                         .kind = COMMIT,
                         .epoch = S->d_epoch});
    }
    return S->n_records;
}

/* parallel_epochs: every worker that is there had a part of what was read to its end. */
static void check_all_began(void)
{
    for (const mr__d_worker *w = S->d->workers; w && S->d->jobs; w = w->next) {
        bool began = !w->connection || w->draining;
        for (const mr__d_stream *s = w->own; s; s = s->own_next)
            began = true;
        if (!began)
            sim_broken("the job ends, and worker %s had no part of it", w->address);
    }
}

static void d_note(void *ctx, mr_log_level level, const char *format, const char *line)
{
    (void)format;
    (void)ctx;
    (void)level;
    if (strstr(line, "is silent; its streams")) {
        S->losses++;
        S->unsaved++;
    }
    /* A connection of a former life that still seemed open: docs/service.md. */
    if (S->o.mode == MR__WIRE__MODE__PARALLEL_EPOCHS && strstr(line, "was read to its end"))
        check_all_began();
    S->not_alone |= strstr(line, "one that restores a position resumes after") != NULL;
    /* What clients that left had read is forgotten if no other client was connected. */
    bool anew = strstr(line, "begins, in") != NULL;
    S->warns |= strstr(line, "from them are repeated") != NULL;
    for (int i = 0; anew && i < S->o.consumers; i++)
        S->begun += S->c[i].done;
    sim_say("dispatcher: %s", line);
}

static const mr__dispatcher_out d_out = {d_send, d_close, d_record, d_note};

static mr_code count_streams(void *ctx, const Mr__Wire__Job *job, uint32_t *n, mr_status *st)
{
    (void)ctx;
    (void)st;
    *n = (uint32_t)(job->mode == MR__WIRE__MODE__DYNAMIC ? S->o.splits : S->o.streams);
    return MR_OK;
}

void sim_start_dispatcher(void)
{
    mr_status st;
    mr__dispatcher_opts opts = {.seed = mr_test_random(&S->random),
                                .streams = count_streams,
                                .state = S->o.memory ? "memory" : "/state"};
    static const char *const list[] = {"w0", "w1", "w2", "w3", "w4", "w5"};
    if (S->o.mode >= MR__WIRE__MODE__FILE) {
        opts.workers = S->o.first_come ? NULL : list;
        opts.n_workers = (size_t)S->o.workers;
    }
    mr_ok(mr__dispatcher_new(&S->d, &opts, &d_out, NULL, &st), &st);
    memset(S->drained, 0, sizeof S->drained);
    for (size_t i = 0; i < S->durable; i++) {
        mr__record r = {.kind = S->records[i].kind,
                        .job_id = S->records[i].job_id,
                        .name = S->records[i].name,
                        .stream = S->records[i].stream,
                        .split = S->records[i].split,
                        .instance = S->records[i].instance};
        Mr__Wire__Job *job = NULL;
        Mr__Wire__Place *place = NULL;
        if (r.kind == MR__RECORD_JOB)
            mr_ok(mr__wire_unpack(&mr__wire__job__descriptor, S->records[i].bytes,
                                  S->records[i].size, &job, &st),
                  &st);
        if (r.kind == MR__RECORD_STREAM)
            mr_ok(mr__wire_unpack(&mr__wire__place__descriptor, S->records[i].bytes,
                                  S->records[i].size, &place, &st),
                  &st);
        r.job = job;
        r.place = place;
        note_drain(&r, i + 1);
        mr_ok(mr__dispatcher_load(S->d, &r, &st), &st);
        mr__wire_free(job);
        mr__wire_free(place);
    }
    sim_say("dispatcher starts with %zu records", S->durable);
    if (S->disk_full)
        mr__dispatcher_disk(S->d, true, S->now);
    sim_tick(DISPATCHER, 0);
}

void sim_drop_held(void)
{
    while (S->held_first) {
        held *h = S->held_first;
        S->held_first = h->next;
        mr_free(h->bytes);
        free(h);
    }
    S->held_last = NULL;
}

/* ---- the clients ---- */

static void c_connect_dispatcher(void *ctx)
{
    sim_connect_to(CLIENT, (int)(intptr_t)ctx, DISPATCHER, 0);
}

static void c_close_dispatcher(void *ctx)
{
    link *l = sim_link_between(CLIENT, (int)(intptr_t)ctx, DISPATCHER, 0);
    if (l)
        sim_end_link(l, 0);
    for (l = S->links; l; l = l->next) /* nothing more is heard of it, nor of its end */
        if (l->kind[0] == CLIENT && l->node[0] == (int)(intptr_t)ctx && l->kind[1] == DISPATCHER)
            l->epoch[0] = -1;
}

static void c_to_dispatcher(void *ctx, const mr__message *m)
{
    sim_send_message(sim_link_between(CLIENT, (int)(intptr_t)ctx, DISPATCHER, 0), 0, m);
}

static void c_connect_worker(void *ctx, const char *address)
{
    sim_say("client %d connects to %s", (int)(intptr_t)ctx, address);
    sim_connect_to(CLIENT, (int)(intptr_t)ctx, WORKER, worker_number(address));
}

static void c_to_worker(void *ctx, const char *address, const mr__message *m)
{
    if (m->body_case == MR__WIRE__MESSAGE__BODY_OPEN)
        sim_say("client %d opens stream %u generation %" PRIu64 " at %s from %" PRIu64,
                (int)(intptr_t)ctx, m->open->stream, m->open->generation, address, m->open->first);
    sim_send_message(sim_link_between(CLIENT, (int)(intptr_t)ctx, WORKER, worker_number(address)),
                     0, m);
}

static void c_close_worker(void *ctx, const char *address)
{
    link *l = sim_link_between(CLIENT, (int)(intptr_t)ctx, WORKER, worker_number(address));
    if (l)
        sim_end_link(l, 0);
    for (l = S->links; l; l = l->next) /* the same; and one that is being opened never is */
        if (l->kind[0] == CLIENT && l->node[0] == (int)(intptr_t)ctx && l->kind[1] == WORKER &&
            l->node[1] == worker_number(address))
            l->epoch[0] = -1;
}

static void c_drop(void *ctx, void *block)
{
    (void)ctx;
    free(block);
}

void sim_drop_intake(intake *in)
{
    while (in->first) {
        arrival *a = in->first;
        in->first = a->next;
        free(a);
    }
    in->last = NULL;
}

static void c_deliver(void *ctx, const mr__arrival *a)
{
    client *c = &S->c[(intptr_t)ctx];
    if (a->kind == MR__ARRIVED_OVER) {
        c->over = true;
        return;
    }
    if (a->stream >= MOST_INTAKES) {
        sim_broken("stream %u is one too many", a->stream);
        return;
    }
    intake *in = &c->in[a->stream];
    if (a->kind == MR__ARRIVED_STREAM) {
        Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
        p.stream = a->stream;
        p.elements = a->first;
        p.skip = a->skip;
        p.position = (ProtobufCBinaryData){a->position_bytes, (uint8_t *)(uintptr_t)a->position};
        p.home = (char *)(uintptr_t)a->home;
        p.n_splits = a->n_splits;
        p.splits = (uint64_t *)(uintptr_t)a->splits;
        sim_add_stream(c, &p);
        return;
    }
    if (a->kind == MR__ARRIVED_SPLITS) {
        sim_add_splits(c, a->stream, a->splits, a->n_splits);
        return;
    }
    if (a->kind == MR__ARRIVED_GONE) {
        sim_remove_stream(c, a->stream);
        return;
    }
    uint64_t expect = in->last ? in->last->first + in->last->rows : in->handed;
    if (a->kind == MR__ARRIVED_END) {
        if (in->ended)
            sim_broken("the end of stream %u comes twice", a->stream);
        if (!sim_shared() && !in->last && in->handed != S->length[a->stream] && !in->ended)
            sim_broken("stream %u ends after %" PRIu64 " of %" PRIu64, a->stream, in->handed,
                       S->length[a->stream]);
        in->ended = true;
        return;
    }
    if (a->first != expect)
        sim_broken("stream %u: element %" PRIu64 " comes where %" PRIu64 " is due", a->stream,
                   a->first, expect);
    if ((a->kind == MR__ARRIVED_ERROR) != sim_is_error(a->stream, a->first))
        sim_broken("stream %u: element %" PRIu64 " is of the wrong kind", a->stream, a->first);
    if (a->kind == MR__ARRIVED_BLOCK) {
        element_block *b = a->block;
        if (b->stream != a->stream || b->repetition != (uint64_t)c->repetition ||
            b->first + a->skip != a->first || b->rows - a->skip != a->rows)
            sim_broken("stream %u: a block does not hold what it says", a->stream);
        free(b);
    }
    arrival *x = calloc(1, sizeof *x);
    x->kind = (int)a->kind;
    x->first = a->first;
    x->rows = a->rows;
    x->bytes = a->bytes;
    memcpy(x->position, a->position, a->position_bytes);
    if (in->last)
        in->last->next = x;
    else
        in->first = x;
    in->last = x;
}

/* The next slot of an interleave whose streams have these counts: the one in the middle of its
 * turn, otherwise the first that is a turn late. */
static void find_slot(client *c)
{
    uint64_t least = UINT64_MAX, length = (uint64_t)S->o.block_length;
    c->slot = c->turn = 0;
    for (int i = 0; i < c->n_mine; i++) {
        uint64_t n = c->in[c->mine[i]].handed;
        if (n == S->length[c->mine[i]])
            continue;
        if (n % length) {
            c->slot = i;
            c->turn = (int)(n % length);
            return;
        }
        if (n / length < least) {
            least = n / length;
            c->slot = i;
        }
    }
}

static void c_joined(void *ctx, const Mr__Wire__Joined *j)
{
    client *c = &S->c[(intptr_t)ctx];
    c->n_mine = 0;
    c->total = 0;
    for (size_t i = 0; sim_shared() && i < j->n_places; i++) {
        sim_add_stream(c, j->places[i]);
    }
    if (sim_shared()) {
        c->joined = true;
        sim_say("client %d joined with %d streams", (int)(intptr_t)ctx, c->n_mine);
        return;
    }
    for (size_t i = 0; i < j->n_places; i++) {
        const Mr__Wire__Place *p = j->places[i];
        intake *in = &c->in[p->stream];
        uint64_t acknowledged = S->acknowledged[c->repetition][p->stream];
        if (p->elements < acknowledged && !c->saved)
            sim_broken("stream %u resumes at %" PRIu64 ", %" PRIu64 " were acknowledged", p->stream,
                       p->elements, acknowledged);
        if (c->begins && p->elements)
            sim_broken("repetition %d begins at element %" PRIu64 " of stream %u", c->repetition,
                       p->elements, p->stream);
        *in = (intake){.handed = p->elements, .base = p->elements - p->skip};
        if (p->position.len)
            memcpy(in->position, p->position.data, p->position.len);
        c->asked[p->stream] = p->elements;
        c->mine[c->n_mine++] = p->stream;
        c->total += p->elements;
    }
    if (c->saved) {
        for (int i = 0; i < c->n_mine; i++)
            if (c->in[c->mine[i]].handed != c->saved_in[c->mine[i]].handed)
                sim_broken("a restored position is not taken: stream %u at %" PRIu64, c->mine[i],
                           c->in[c->mine[i]].handed);
        c->slot = c->saved_slot;
        c->turn = c->saved_turn;
    } else {
        find_slot(c);
    }
    c->begins = false;
    c->joined = true;
    sim_say("client %d joined at %" PRIu64 " elements", (int)(intptr_t)ctx, c->total);
}

static void c_flushed(void *ctx)
{
    client *c = &S->c[(intptr_t)ctx];
    for (int i = 0; i < c->n_mine && !S->o.memory && !S->o.loses; i++)
        if (c->flushed[c->mine[i]] > S->acknowledged[c->repetition][c->mine[i]])
            S->acknowledged[c->repetition][c->mine[i]] = c->flushed[c->mine[i]];
    if (c->leaving && c->repetition + 1 == S->o.repetitions) {
        c->done = true;
    } else if (c->leaving) { /* the next repetition of the job, as a new life */
        c->next_repetition = true;
        sim_push((event){.at = S->now + 1,
                         .kind = START,
                         .node_kind = CLIENT,
                         .node = (int)(intptr_t)ctx,
                         .epoch = c->epoch});
    }
}

/* A consumer that comes back before its former life was missed is refused; it tries again. */
static void c_failed(void *ctx, const mr_status *why)
{
    client *c = &S->c[(intptr_t)ctx];
    bool again =
        (why->code == MR_FAILED_PRECONDITION && c->epoch > 0) || why->code == MR_RESOURCE_EXHAUSTED;
    if (again && !c->joined) {
        c->refused = true;
        sim_push((event){.at = S->now + SECOND,
                         .kind = START,
                         .node_kind = CLIENT,
                         .node = (int)(intptr_t)ctx,
                         .epoch = c->epoch});
        return;
    }
    if (S->o.newcomers && why->code == MR_DATA_LOSS) {
        sim_say("client %d is refused: %s", (int)(intptr_t)ctx, why->message);
        S->refused++;
        sim_drop_all(c);
        c->n_mine = 0;
        c->epoch++;
        c->done = true;
        c_close_dispatcher(ctx);
        return;
    }
    sim_broken("client %d failed: %s", (int)(intptr_t)ctx, why->message);
}

static void c_note(void *ctx, mr_log_level level, const char *format, const char *line)
{
    (void)format;
    (void)level;
    S->warned |= strstr(line, "from them are repeated") != NULL;
    if (!S->o.memory && !S->o.loses && strstr(line, "lost its account"))
        sim_broken("client %d hears that an account was lost, which was kept", (int)(intptr_t)ctx);
    sim_say("client %d: %s", (int)(intptr_t)ctx, line);
}

static const mr__job_reader_out c_out = {c_connect_dispatcher,
                                         c_close_dispatcher,
                                         c_to_dispatcher,
                                         c_connect_worker,
                                         c_to_worker,
                                         c_close_worker,
                                         c_deliver,
                                         c_drop,
                                         c_joined,
                                         c_flushed,
                                         c_failed,
                                         c_note};

static void consume_later(int i)
{
    int64_t own = S->pace_waits ? 1 : S->o.own_ms;
    if (S->o.own_ms) {
        sim_push(
            (event){.at = S->now + own * MS, .kind = CONSUME, .node = i, .epoch = S->c[i].epoch});
        return;
    }
    sim_push((event){.at = S->now + (int64_t)(1 + sim_draw(S->o.newcomers ? 200
                                                           : S->o.balance ? 40
                                                                          : 4)) *
                                        MS,
                     .kind = CONSUME,
                     .node = i,
                     .epoch = S->c[i].epoch});
}

void sim_start_client(int i)
{
    mr_status st;
    client *c = &S->c[i];
    static uint8_t graph[] = "the graph";
    mr__wire__job__init(&c->job);
    c->job.graph = (ProtobufCBinaryData){sizeof graph, graph};
    c->job.block_length = (uint32_t)S->o.block_length;
    c->job.mode = S->o.mode;
    c->job.repetition = (uint64_t)c->repetition;
    c->job.has_lists = S->o.has_lists;
    c->job.directory = c->job.match = (char *)"";
    mr__wire__join__init(&c->join);
    c->join.name = (char *)"job";
    c->join.job = &c->job;
    c->join.resume = c->epoch > 0;
    c->job.consumers = S->o.consumers > 1 && !sim_shared() ? (uint32_t)S->o.consumers : 0;
    c->join.consumer = c->job.consumers ? (uint32_t)i : 0;
    c->join.timeout_seconds = sim_shared() ? 8 : 3;
    c->join.restores = c->saved;
    if (c->saved) {
        for (int k = 0; k < c->n_saved; k++) {
            const intake *in = &c->saved_in[c->saved_mine[k]];
            mr__wire__place__init(&c->places[k]);
            c->places[k].worker = (char *)"";
            c->places[k].home = c->saved_in[c->saved_mine[k]].home;
            c->places[k].stream = c->saved_mine[k];
            c->places[k].elements = in->handed;
            c->places[k].n_splits = in->n_splits;
            c->places[k].splits = (uint64_t *)(uintptr_t)in->splits;
            c->places[k].skip = in->handed - in->base;
            c->places[k].position =
                (ProtobufCBinaryData){strlen(in->position), (uint8_t *)(uintptr_t)in->position};
            c->place_list[k] = &c->places[k];
        }
        c->join.n_places = (size_t)c->n_saved;
        c->join.places = c->place_list;
    }
    mr__job_reader_opts opts = {.dispatcher = "d",
                                .join = &c->join,
                                .connect_timeout_ns = 600 * SECOND,
                                .missing_moves = S->o.blind,
                                .local_workers = S->o.elsewhere,
                                .most_bytes = 200 + sim_draw(5000),
                                .seed = mr_test_random(&S->random)};
    c->joined = c->over = false;
    mr_ok(mr__job_reader_new(&c->reader, &opts, &c_out, (void *)(intptr_t)i, S->now, &st), &st);
    sim_say("client %d starts", i);
    sim_tick(CLIENT, i);
    consume_later(i);
}

/* The consumer asked for what comes after `handed`: those count. */
void sim_report_consumed(int i)
{
    client *c = &S->c[i];
    for (int k = 0; k < c->n_mine; k++) {
        uint32_t s = c->mine[k];
        intake *in = &c->in[s];
        if (c->asked[s] == in->handed)
            continue;
        size_t bytes = in->let_go;
        in->let_go = 0;
        c->asked[s] = in->handed;
        mr__job_reader_consumed(c->reader, s, in->handed, in->position, strlen(in->position),
                                in->handed - in->base, bytes, S->now);
    }
}

void sim_hand_out(client *c, intake *in)
{
    arrival *a = in->first;
    in->handed++;
    c->total++;
    if (++a->taken < a->rows)
        return;
    in->base = in->handed;
    in->let_go += a->bytes;
    memcpy(in->position, a->position, sizeof in->position);
    in->first = a->next;
    if (!in->first)
        in->last = NULL;
    free(a);
}

void sim_flush(client *c, bool leave)
{
    memcpy(c->flushed, c->asked, sizeof c->flushed);
    mr__job_reader_flush(c->reader, leave, S->now);
}

/* One step of the interleave. */
void sim_consume(const event *e)
{
    int i = e->node;
    client *c = &S->c[i];
    if (e->epoch != c->epoch || !c->reader || c->done)
        return;
    uint64_t before = c->total;
    if (!S->o.own_ms || !c->joined)
        consume_later(i);
    if (!c->joined || c->leaving)
        return;
    if (sim_shared()) {
        sim_consume_shared(e);
        return;
    }
    if (sim_draw(30) == 0)
        sim_flush(c, false);
    sim_report_consumed(i);
    if (S->o.restores && sim_draw(6) == 0) {
        c->saved = true;
        memcpy(c->saved_in, c->in, sizeof c->in);
        memcpy(c->saved_mine, c->mine, sizeof c->mine);
        c->n_saved = c->n_mine;
        c->saved_slot = c->slot;
        c->saved_turn = c->turn;
    }
    bool all = true;
    for (int k = 0; k < c->n_mine; k++)
        all &= c->in[c->mine[k]].ended && !c->in[c->mine[k]].first;
    if (all) {
        for (int k = 0; k < c->n_mine; k++)
            if (c->in[c->mine[k]].handed != S->length[c->mine[k]])
                sim_broken("stream %u gave %" PRIu64 " of %" PRIu64 " elements", c->mine[k],
                           c->in[c->mine[k]].handed, S->length[c->mine[k]]);
        c->leaving = true;
        sim_say("client %d has everything", i);
        sim_flush(c, true);
        return;
    }
    if (S->o.unordered) { /* whichever has one */
        c->slot = (int)sim_draw((uint64_t)c->n_mine);
        c->turn = 0;
    }
    for (int tries = 0; tries <= c->n_mine; tries++) {
        intake *in = &c->in[c->mine[c->slot]];
        if (in->first) {
            sim_hand_out(c, in);
            if (++c->turn == S->o.block_length) {
                c->turn = 0;
                c->slot = (c->slot + 1) % c->n_mine;
            }
            break;
        }
        if (!in->ended)
            break;
        c->turn = 0;
        c->slot = (c->slot + 1) % c->n_mine;
    }
    const intake *next = &c->in[c->mine[c->slot]];
    sim_watch_stall(next->handed > 0 && !S->o.own_ms, !next->first && !next->ended);
    if (S->o.own_ms) {
        sim_note_pace(i, c->total == before);
        consume_later(i);
    }
    mr__job_reader_waits(c->reader, !next->first, S->now);
    sim_tick(CLIENT, i);
}
