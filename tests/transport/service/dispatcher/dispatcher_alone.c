/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/transport/service/dispatcher/dispatcher_alone.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness.h"

dispatcher_alone alone = {.split = 5};

static void out_send(void *ctx, uint64_t to, const mr__message *m, uint64_t after)
{
    (void)ctx;
    alone.kind = (int)m->body_case;
    alone.after = after;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_HOST && m->host->place->stream == 0)
        alone.hosted = m->host->place->generation;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_HOST && m->host->place->stream == 1)
        alone.second = m->host->place->generation;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_HOST)
        alone.host = to;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_JOINED) {
        alone.job = m->joined->job_id;
        alone.elements = m->joined->n_places ? m->joined->places[0]->elements : 0;
        alone.joined = m->joined->n_places;
        snprintf(alone.owner, sizeof alone.owner, "%s", m->joined->job->owner);
        alone.key_bytes = m->joined->job->key.len;
        if (alone.key_bytes)
            memcpy(alone.key, m->joined->job->key.data, alone.key_bytes);
    }
    if (m->body_case == MR__WIRE__MESSAGE__BODY_PREPARE) {
        alone.n_prepares++;
        alone.mover = m->prepare->stream;
        alone.prepared = m->prepare->generation;
    }
    if (m->body_case == MR__WIRE__MESSAGE__BODY_PLACED) {
        alone.placed_first = alone.placed;
        alone.placed = m->placed->places[0]->generation;
    }
    alone.n_unhosts += m->body_case == MR__WIRE__MESSAGE__BODY_UNHOST;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_MATCH)
        alone.matcher = to;
    alone.finished += m->body_case == MR__WIRE__MESSAGE__BODY_FINISHED;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_REPORT) {
        const Mr__Wire__Status *why = m->report->status;
        alone.n_reports++;
        alone.report_after = after;
        snprintf(alone.report, sizeof alone.report, "%s", why ? why->message : "");
        snprintf(alone.answer, sizeof alone.answer, "%s", m->report->json);
    }
    if (m->body_case == MR__WIRE__MESSAGE__BODY_PULSE && m->pulse->draining) {
        alone.n_asked++;
        alone.asked = to;
    }
    if (m->body_case == MR__WIRE__MESSAGE__BODY_WARNING)
        snprintf(alone.warning, sizeof alone.warning, "%s", m->warning->text);
    const Mr__Wire__Status *why =
        m->body_case == MR__WIRE__MESSAGE__BODY_FAILED ? m->failed->status : NULL;
    alone.code = why ? why->code : 0;
    strncpy(alone.text, why ? why->message : "", sizeof alone.text - 1);
}
static void out_close(void *ctx, uint64_t connection, const mr_status *why)
{
    (void)ctx;
    (void)connection;
    (void)why;
}
static uint64_t out_record(void *ctx, const mr__record *r)
{
    (void)ctx;
    alone.last = r->kind;
    if (r->kind == MR__RECORD_JOB) {
        alone.rebuilding = r->job->rebuilding;
        alone.awaits = r->job->awaits;
        alone.former = r->job->former;
    }
    if (r->kind == MR__RECORD_FORGET)
        alone.forgotten = r->job_id;
    if (r->kind == MR__RECORD_DRAIN) {
        snprintf(alone.drained, sizeof alone.drained, "%s", r->name);
        alone.drained_instance = r->instance;
    }
    return ++alone.records;
}
static void out_note(void *ctx, mr_log_level level, const char *format, const char *line)
{
    (void)format;
    (void)ctx;
    (void)level;
    alone.n_silent += strncmp(line, "the client of", 13) == 0 && strstr(line, "is silent") != NULL;
}
static mr_code two(void *ctx, const Mr__Wire__Job *job, uint32_t *n, mr_status *st)
{
    (void)ctx;
    (void)job;
    (void)st;
    *n = 2;
    return MR_OK;
}

void alone_begin(const char *const *workers, size_t n_workers)
{
    static const mr__dispatcher_out out = {out_send, out_close, out_record, out_note};
    const mr__dispatcher_opts o = {.seed = 1,
                                   .streams = two,
                                   .state = "memory",
                                   .workers = workers,
                                   .n_workers = n_workers,
                                   .no_balance = alone.no_balance,
                                   .names_only = alone.operator_ != NULL,
                                   .operators = &alone.operator_,
                                   .n_operators = alone.operator_ ? 1 : 0};
    const char *operator_ = alone.operator_, *name = alone.name;
    const uint8_t *has_key = alone.has_key;
    mr_status st;
    alone = (dispatcher_alone){.without_lists = alone.without_lists,
                               .splits = alone.splits,
                               .split = alone.split,
                               .repetition = alone.repetition,
                               .also = alone.also};
    alone.operator_ = operator_;
    alone.name = name;
    alone.has_key = has_key;
    mr_ok(mr__dispatcher_new(&alone.d, &o, &out, NULL, &st), &st);
}
void alone_say(uint64_t from, Mr__Wire__Message__BodyCase kind, void *body)
{
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = kind;
    m.hello = body; /* a union of pointers */
    mr__dispatcher_message(alone.d, from, &m, alone.now);
}
static void open_as(uint64_t connection, Mr__Wire__Role role, const char *host, uint32_t process)
{
    mr__dispatcher_opened(alone.d, connection, role, host, process, alone.now);
    mr__dispatcher_named(alone.d, connection, alone.name ? alone.name : "");
}
void alone_join(uint64_t connection, const char *name, Mr__Wire__Mode mode, uint32_t consumers,
                uint64_t job_id, bool place)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Join j = MR__WIRE__JOIN__INIT;
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    job.mode = mode;
    job.block_length = 1;
    job.has_lists = !alone.without_lists;
    job.consumers = consumers;
    job.repetition = alone.repetition;
    if (alone.has_key)
        job.key = (ProtobufCBinaryData){MR__JOB_KEY_BYTES, (uint8_t *)(uintptr_t)alone.has_key};
    j.name = (char *)(uintptr_t)name;
    j.job = &job;
    j.job_id = job_id;
    j.client_id = connection;
    j.n_places = place;
    p.elements = 3;
    p.n_splits = alone.splits;
    p.splits = &alone.split;
    p.stream = (uint32_t)connection;
    if (alone.also.is_set) {
        p.stream = alone.also.stream;
        p.generation = alone.also.generation;
        p.elements = alone.also.elements;
        p.end = alone.also.ended;
        job.seed = alone.also.seed;
        p.home = (char *)(uintptr_t)(alone.also.home ? alone.also.home : "");
    }
    j.places = list;
    open_as(connection, MR__WIRE__ROLE__CLIENT, "here", 1);
    alone_say(connection, MR__WIRE__MESSAGE__BODY_JOIN, &j);
}
void alone_serve_with(uint64_t connection, const char *address, Mr__Wire__Hosted *hosted)
{
    Mr__Wire__Register r = MR__WIRE__REGISTER__INIT;
    r.address = (char *)(uintptr_t)address;
    r.n_hosted = hosted ? 1 : 0;
    r.hosted = &hosted;
    open_as(connection, MR__WIRE__ROLE__WORKER, "there", 1);
    alone_say(connection, MR__WIRE__MESSAGE__BODY_REGISTER_WORKER, &r);
}
void alone_serve_as(uint64_t connection, const char *address, uint64_t instance)
{
    Mr__Wire__Register r = MR__WIRE__REGISTER__INIT;
    r.address = (char *)(uintptr_t)address;
    r.instance = instance;
    open_as(connection, MR__WIRE__ROLE__WORKER, "there", 1);
    alone_say(connection, MR__WIRE__MESSAGE__BODY_REGISTER_WORKER, &r);
}
void alone_ask(uint64_t connection, const char *what, const char *name)
{
    Mr__Wire__Ask ask = MR__WIRE__ASK__INIT;
    ask.what = (char *)(uintptr_t)what;
    ask.name = (char *)(uintptr_t)name;
    ask.request = 70 + connection;
    open_as(connection, MR__WIRE__ROLE__TOOL, "here", 2);
    alone_say(connection, MR__WIRE__MESSAGE__BODY_ASK, &ask);
}
void alone_serve(uint64_t connection, const char *address)
{
    alone_serve_with(connection, address, NULL);
}

void alone_serve_former(uint64_t connection, const char *address, uint64_t job_id)
{
    Mr__Wire__Hosted hosted = MR__WIRE__HOSTED__INIT;
    hosted.job_id = job_id;
    hosted.generation = 1;
    alone_serve_with(connection, address, &hosted);
}
void alone_wait(int64_t from, int64_t seconds)
{
    Mr__Wire__Pulse pulse = MR__WIRE__PULSE__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
    m.pulse = &pulse;
    for (int64_t t = from; t <= from + seconds; t++) {
        alone.now = t * 1000000000;
        static const uint64_t peers[] = {1, 2, 100};
        for (size_t i = 0; i < 3; i++)
            mr__dispatcher_message(alone.d, peers[i], &m, alone.now);
        (void)mr__dispatcher_tick(alone.d, alone.now);
    }
}
