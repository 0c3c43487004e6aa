/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/transport/service/simulation_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "tests/harness.h"

/* ---- what hosts want done ---- */

static void w_to_dispatcher(void *ctx, const mr__message *m)
{
    sim_send_message(sim_link_between(WORKER, (int)(intptr_t)ctx, DISPATCHER, 0), 0, m);
}

static void w_to_client(void *ctx, uint64_t to, const mr__message *m)
{
    (void)ctx;
    sim_send_message(sim_find_link(to), 1, m);
}

static void w_block(void *ctx, uint64_t to, const Mr__Wire__Hosted *s, const mr__made *made,
                    uint32_t compression)
{
    (void)ctx;
    (void)compression;
    link *l = sim_find_link(to);
    if (!l || !l->open) {
        free(made->block);
        return;
    }
    event e = {.kind = BLOCK, .bytes = made->block, .size = made->bytes};
    mr__wire__block_head__init(&e.head);
    e.head.job_id = s->job_id;
    e.head.stream = s->stream;
    e.head.generation = s->generation;
    e.head.first = made->first;
    e.head.rows = made->rows;
    e.position = malloc(made->position_bytes + 1);
    memcpy(e.position, made->position, made->position_bytes);
    e.head.position = (ProtobufCBinaryData){made->position_bytes, (uint8_t *)e.position};
    sim_deliver_bytes(l, 1, e);
}

static void w_drop(void *ctx, void *block)
{
    (void)ctx;
    free(block);
}

static void produce_later(producer *p, int after_ms)
{
    p->busy = true;
    p->asked_at = S->now;
    if (S->o.own_ms) {
        sim_push((event){.at = sim_made_at(p->worker, 1),
                         .kind = PRODUCE,
                         .number = p->id,
                         .node = p->worker,
                         .epoch = S->w_epoch[p->worker]});
        return;
    }
    sim_push((event){.at = S->now +
                           (after_ms + 1 + (int64_t)sim_draw(S->w_slow[p->worker] ? 400 : 6)) * MS,
                     .kind = PRODUCE,
                     .number = p->id,
                     .node = p->worker,
                     .epoch = S->w_epoch[p->worker]});
}

static void w_start(void *ctx, uint64_t id, uint64_t by, const Mr__Wire__Host *what,
                    const Mr__Wire__Open *open)
{
    (void)by;
    const Mr__Wire__Place *place = what->place;
    producer *p = calloc(1, sizeof *p);
    char text[24] = "0", address[8];
    if (place->position.len)
        memcpy(text, place->position.data, place->position.len);
    uint64_t at = strtoull(text, NULL, 10);
    if (at + place->skip != place->elements)
        sim_broken("a place says %" PRIu64 " elements, its position is of %" PRIu64 " and %" PRIu64,
                   place->elements, at, place->skip);
    if (open->first < at)
        sim_broken("a producer is to start before its position");
    p->id = id;
    p->worker = (int)(intptr_t)ctx;
    p->stream = place->stream;
    p->job_id = what->job_id;
    p->generation = place->generation;
    p->repetition = what->job->repetition;
    p->at = open->first;
    p->blind = S->o.blind && p->worker == 0 && p->stream % 2 && open->missing_moves;
    for (size_t i = 0; i < place->n_splits; i++) {
        sim_told_split(p->job_id, p->stream, p->generation, i, place->splits[i]);
        p->splits[p->n_splits++] = place->splits[i];
        p->pass = place->splits[i] / (uint64_t)S->o.splits;
    }
    snprintf(address, sizeof address, "w%d", p->worker);
    if (place->home[0] && strcmp(place->home, address) != 0)
        sim_broken("stream %u of %s is hosted by %s", place->stream, place->home, address);
    sim_told_home(p->stream, place->home);
    p->next = S->producers;
    S->producers = p;
    produce_later(p, S->o.restore_ms);
}

static producer *find_producer(int worker, uint64_t id)
{
    producer *p = S->producers;
    while (p && (p->id != id || p->worker != worker))
        p = p->next;
    return p;
}

static void w_go(void *ctx, uint64_t id)
{
    producer *p = find_producer((int)(intptr_t)ctx, id);
    if (p && p->busy)
        sim_broken("a producer is asked for two blocks at once");
    else if (p)
        produce_later(p, 0);
}

static void w_stop(void *ctx, uint64_t id)
{
    for (producer **at = &S->producers; *at; at = &(*at)->next)
        if ((*at)->id == id && (*at)->worker == (int)(intptr_t)ctx) {
            producer *p = *at;
            *at = p->next;
            free(p);
            return;
        }
}

static void w_split(void *ctx, uint64_t id, uint64_t index, uint64_t split, bool end)
{
    producer *p = find_producer((int)(intptr_t)ctx, id);
    if (!p)
        return;
    if (index != p->n_splits)
        sim_broken("a producer is given split %" PRIu64 " where %zu is due", index, p->n_splits);
    if (end) {
        p->ended = ++p->pass >= (uint64_t)S->o.passes;
    } else {
        sim_told_split(p->job_id, p->stream, p->generation, p->n_splits, split);
        p->splits[p->n_splits++] = split;
    }
    produce_later(p, 0);
}

static void w_match(void *ctx, uint64_t job_id, const Mr__Wire__Job *job)
{
    (void)job;
    Mr__Wire__Lists lists = MR__WIRE__LISTS__INIT;
    lists.job_id = job_id;
    mr__worker_streams_matched(S->w[(intptr_t)ctx], job_id, &lists, S->now);
}

static void w_close_client(void *ctx, uint64_t to, const mr_status *why)
{
    (void)ctx;
    sim_broken("a worker refuses a client: %s", why->message);
    link *l = sim_find_link(to);
    if (l)
        sim_end_link(l, 1);
}

void sim_w_close_dispatcher(void *ctx)
{
    link *l = sim_link_between(WORKER, (int)(intptr_t)ctx, DISPATCHER, 0);
    if (l)
        sim_end_link(l, 0);
    sim_push((event){.at = S->now + 100 * MS,
                     .kind = START,
                     .node_kind = WORKER,
                     .node = (int)(intptr_t)ctx,
                     .epoch = S->w_epoch[(intptr_t)ctx]});
}

/* No machine: producers say how long they are busy. */
static void w_cpu(void *ctx, int64_t *cpu_ns, uint32_t *cpus)
{
    (void)ctx;
    (void)cpu_ns;
    (void)cpus;
}

static void w_note(void *ctx, mr_log_level level, const char *format, const char *line)
{
    (void)format;
    (void)level;
    sim_say("worker %d: %s", (int)(intptr_t)ctx, line);
}

static const mr__worker_streams_out w_out = {w_to_dispatcher,
                                             w_to_client,
                                             w_block,
                                             w_drop,
                                             w_start,
                                             w_go,
                                             w_stop,
                                             w_split,
                                             w_match,
                                             w_close_client,
                                             sim_w_close_dispatcher,
                                             w_cpu,
                                             w_note};

void sim_start_worker(int i)
{
    mr_status st;
    char address[16];
    if (!S->w[i]) {
        snprintf(address, sizeof address, "w%d", i);
        mr_ok(mr__worker_streams_new(&S->w[i], address, (uint64_t)S->w_epoch[i] + 1, 1000, NULL, 0,
                                     &w_out, (void *)(intptr_t)i, &st),
              &st);
        S->w_slow[i] = !S->o.calm && sim_draw(5) == 0;
        sim_count_join();
        if (S->w_slow[i])
            sim_happened(MR__SIM_SLOW_WORKER);
        sim_say("worker %d starts", i);
    }
    sim_connect_to(WORKER, i, DISPATCHER, 0);
}

bool sim_is_error(uint32_t stream, uint64_t i)
{
    return (stream * 7 + i * 13) % 17 == 5;
}

void sim_produce(const event *e)
{
    producer *p = find_producer(e->node, e->number);
    if (!p || e->epoch != S->w_epoch[e->node] || !S->w[e->node])
        return;
    p->busy = false;
    mr__worker_streams_busy(S->w[e->node], p->id, S->now - p->asked_at);
    char position[24];
    mr_status why;
    uint64_t end = S->o.mode == MR__WIRE__MODE__DYNAMIC ? sim_elements_of(p->splits, p->n_splits)
                   : S->o.mode == MR__WIRE__MODE__PARALLEL_EPOCHS ? S->length[0]
                                                                  : S->length[p->stream];
    if (p->blind) {
        sim_happened(MR__SIM_FILE_UNSEEN);
        mr_fail(&why, MR_NOT_FOUND, "there is no such file");
        mr__worker_streams_failed(S->w[e->node], p->id, p->at, &why, "", 0, true, S->now);
        return;
    }
    if (p->at >= end && S->o.mode == MR__WIRE__MODE__DYNAMIC && !p->ended) {
        p->busy = true;
        mr__worker_streams_wants_split(S->w[e->node], p->id, p->n_splits, p->pass, S->now);
        return;
    }
    if (p->at >= end) {
        mr__worker_streams_ended(S->w[e->node], p->id, end, NULL, 0, S->now);
        return;
    }
    if (sim_is_error(p->stream, p->at)) {
        uint64_t at = p->at++;
        mr_fail(&why, MR_DATA_LOSS, "element %" PRIu64, at);
        snprintf(position, sizeof position, "%" PRIu64, p->at);
        mr__worker_streams_failed(S->w[e->node], p->id, at, &why, position, strlen(position), false,
                                  S->now);
        return;
    }
    element_block *b = malloc(sizeof *b);
    *b = (element_block){p->stream, p->repetition, p->at, 0};
    for (uint64_t n = S->o.own_ms ? 1 : 1 + sim_draw(5);
         n && p->at < end && !sim_is_error(p->stream, p->at); n--, p->at++)
        b->rows++;
    snprintf(position, sizeof position, "%" PRIu64, p->at);
    mr__made made = {.first = b->first,
                     .rows = b->rows,
                     .bytes = 100 * b->rows,
                     .position = position,
                     .position_bytes = strlen(position),
                     .block = b};
    mr__worker_streams_made(S->w[e->node], p->id, &made, S->now);
}
