/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's streams, fed by hand: clients that open a stream before its Host arrives. */
#include "transport/service/worker/worker_streams.h"

#include <string.h>

#include "tests/harness.h"

MR_ONE_THREAD;

enum { CLIENT = 7, OTHER = 8, JOB = 5 };
static const int64_t second = 1000000000;

/* What the worker said and did. */
static struct {
    mr__worker_streams *ws;
    int pulses, errors, starts;
    uint64_t client, generation; /* of the last error or start */
    uint64_t first, credit;      /* of the last start */
} did;

static void to_dispatcher(void *ctx, const mr__message *m)
{
    (void)ctx;
    did.pulses += m->body_case == MR__WIRE__MESSAGE__BODY_PULSE;
}

static void to_client(void *ctx, uint64_t client, const mr__message *m)
{
    (void)ctx;
    mr_eq_i64(m->body_case, MR__WIRE__MESSAGE__BODY_STREAM_ERROR);
    mr_eq_i64(m->stream_error->status->code, MR_UNAVAILABLE);
    mr_eq_i64(m->stream_error->fatal, true);
    did.errors++;
    did.client = client;
    did.generation = m->stream_error->generation;
}

static void start(void *ctx, uint64_t producer, uint64_t client, const Mr__Wire__Host *what,
                  const Mr__Wire__Open *open)
{
    (void)ctx;
    (void)producer;
    mr_eq_u64(what->place->generation, open->generation);
    did.starts++;
    did.client = client;
    did.generation = open->generation;
    did.first = open->first;
    did.credit = open->credit;
}

static void stop(void *ctx, uint64_t producer)
{
    (void)ctx;
    (void)producer;
}

static void cpu(void *ctx, int64_t *ns, uint32_t *cpus)
{
    (void)ctx;
    *ns = 0;
    *cpus = 1;
}

static void note(void *ctx, mr_log_level level, const char *format, const char *line)
{
    (void)format;
    (void)ctx;
    (void)level;
    (void)line;
}

static const mr__worker_streams_out out = {.to_dispatcher = to_dispatcher,
                                           .to_client = to_client,
                                           .start = start,
                                           .stop = stop,
                                           .cpu = cpu,
                                           .note = note};

static void begin(void)
{
    mr_status st;
    memset(&did, 0, sizeof did);
    mr_ok(mr__worker_streams_new(&did.ws, "a:1", 1, 1000, NULL, 0, &out, NULL, &st), &st);
    mr__worker_streams_dispatcher_opened(did.ws, second);
}

static void host(uint64_t generation)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Place place = MR__WIRE__PLACE__INIT;
    Mr__Wire__Host h = MR__WIRE__HOST__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    place.generation = generation;
    h.job_id = JOB;
    h.job = &job;
    h.place = &place;
    m.body_case = MR__WIRE__MESSAGE__BODY_HOST;
    m.host = &h;
    mr__worker_streams_dispatcher_message(did.ws, &m, second);
}

static void answer(bool drains)
{
    Mr__Wire__Pulse pulse = MR__WIRE__PULSE__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    pulse.draining = drains;
    m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
    m.pulse = &pulse;
    mr__worker_streams_dispatcher_message(did.ws, &m, second);
}

static void open_of(uint64_t client, uint64_t job, uint64_t generation, uint64_t first)
{
    Mr__Wire__Open o = MR__WIRE__OPEN__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    o.job_id = job;
    o.generation = generation;
    o.first = first;
    o.credit = 100;
    m.body_case = MR__WIRE__MESSAGE__BODY_OPEN;
    m.open = &o;
    mr__worker_streams_client_message(did.ws, client, &m, second);
}

static void open_by(uint64_t client, uint64_t generation, uint64_t first)
{
    open_of(client, JOB, generation, first);
}

static void give_credit(uint64_t client, uint64_t bytes)
{
    Mr__Wire__Credit c = MR__WIRE__CREDIT__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    c.job_id = JOB;
    c.bytes = bytes;
    m.body_case = MR__WIRE__MESSAGE__BODY_CREDIT;
    m.credit = &c;
    mr__worker_streams_client_message(did.ws, client, &m, second);
}

static void shut(uint64_t client)
{
    Mr__Wire__Shut s = MR__WIRE__SHUT__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    s.job_id = JOB;
    m.body_case = MR__WIRE__MESSAGE__BODY_SHUT;
    m.shut = &s;
    mr__worker_streams_client_message(did.ws, client, &m, second);
}

MR_TEST(an_open_waits_for_its_host)
{
    begin();
    open_by(CLIENT, 1, 3);
    give_credit(CLIENT, 11);
    mr_eq_i64(did.errors + did.starts, 0);
    host(1);
    mr_eq_i64(did.starts, 1);
    mr_eq_u64(did.client, CLIENT);
    mr_eq_u64(did.first, 3);
    mr_eq_u64(did.credit, 111);
    answer(false);
    mr_eq_i64(did.errors, 0);
    open_by(CLIENT, 4, 3); /* of a generation that is on its way */
    host(2);               /* which it is not */
    mr_eq_i64(did.errors + did.starts, 1);
    host(4);
    mr_eq_i64(did.starts, 2);
    mr_eq_u64(did.generation, 4);
    mr__worker_streams_free(did.ws);
}

MR_TEST(more_credit_than_can_be_counted_is_all_there_is)
{
    begin();
    open_by(CLIENT, 1, 0);
    give_credit(CLIENT, UINT64_MAX - 10);
    host(1);
    mr_eq_i64(did.starts, 1);
    mr_eq_u64(did.credit, UINT64_MAX);
    mr__worker_streams_free(did.ws);
}

MR_TEST(a_large_open_does_not_wait)
{
    static uint8_t key[2000];
    Mr__Wire__Open o = MR__WIRE__OPEN__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    begin();
    o.job_id = JOB;
    o.generation = 1;
    m.body_case = MR__WIRE__MESSAGE__BODY_OPEN;
    m.open = &o;
    o.key = (ProtobufCBinaryData){sizeof key, key};
    mr__worker_streams_client_message(did.ws, CLIENT, &m, second);
    mr_eq_i64(did.errors, 1);
    o.key.len /= 4;
    mr__worker_streams_client_message(did.ws, CLIENT, &m, second);
    mr_eq_i64(did.errors, 1);
    mr__worker_streams_free(did.ws);
}

MR_TEST(an_open_of_a_generation_that_passed_is_refused_at_once)
{
    begin();
    host(3);
    open_by(CLIENT, 2, 0);
    mr_eq_i64(did.errors, 1);
    open_by(CLIENT, 4, 0);
    host(5);
    mr_eq_i64(did.errors, 2);
    mr_eq_u64(did.generation, 4);
    mr_eq_i64(did.starts, 0);
    mr__worker_streams_free(did.ws);
}

MR_TEST(without_a_host_it_is_refused_when_the_dispatcher_answers)
{
    begin();
    mr__worker_streams_tick(did.ws, 2 * second); /* a Pulse that says nothing of it is on its way */
    mr_eq_i64(did.pulses, 1);
    open_by(CLIENT, 1, 0);
    open_by(OTHER, 1, 0);
    mr_eq_i64(did.pulses, 1);
    answer(false);
    mr_eq_i64(did.errors, 0);
    mr_eq_i64(did.pulses, 2);
    answer(true); /* no answer */
    mr_eq_i64(did.errors, 0);
    answer(false);
    mr_eq_i64(did.errors, 2);
    mr_eq_u64(did.client, OTHER);
    mr_eq_i64(did.pulses, 2);
    host(1);
    mr_eq_i64(did.starts, 0);
    mr__worker_streams_free(did.ws);
}

MR_TEST(who_waits_for_a_host_and_leaves_or_shuts_is_forgotten)
{
    begin();
    open_by(CLIENT, 1, 0);
    open_by(OTHER, 1, 0);
    mr__worker_streams_client_closed(did.ws, CLIENT, second);
    shut(OTHER);
    answer(false);
    host(1);
    mr_eq_i64(did.errors + did.starts, 0);
    mr__worker_streams_free(did.ws);
}

MR_TEST(without_a_dispatcher_nobody_waits)
{
    begin();
    open_by(CLIENT, 1, 0);
    mr__worker_streams_dispatcher_closed(did.ws, second);
    mr_eq_i64(did.errors, 1);
    open_by(CLIENT, 1, 0);
    mr_eq_i64(did.errors, 2);
    mr__worker_streams_dispatcher_opened(did.ws, second);
    int pulses = did.pulses;
    open_by(CLIENT, 1, 0);
    mr_eq_i64(did.pulses, pulses + 1);
    answer(false);
    mr_eq_i64(did.errors, 3);
    mr__worker_streams_free(did.ws);
}

MR_TEST(only_so_many_wait_and_one_place_each)
{
    begin();
    for (uint64_t client = 1; client <= 2000; client++)
        open_by(client, 1, 0);
    mr_eq_i64(did.errors, 2000 - 1024);
    for (int i = 0; i < 2000; i++)
        open_by(1, 2, 0);
    mr_eq_i64(did.errors, 2000 - 1024);
    mr_eq_i64(did.pulses, 1);
    mr__worker_streams_free(did.ws);
}

MR_TEST(no_client_takes_the_places_of_others)
{
    begin();
    for (uint64_t job = 100; job < 2100; job++)
        open_of(OTHER, job, 1, 0);
    mr_eq_i64(did.errors, 2000 - 1024);
    open_by(CLIENT, 1, 0); /* one of the 1,024 leaves */
    mr_eq_i64(did.errors, 2000 - 1024 + 1);
    mr_eq_u64(did.client, OTHER);
    host(1);
    mr_eq_i64(did.starts, 1);
    mr_eq_u64(did.client, CLIENT);
    for (uint64_t client = 10; client < 1010; client++)
        open_by(client, 2, 0);
    mr_eq_i64(did.errors, 976 + 1 + 999);
    mr_eq_u64(did.client, OTHER);
    mr__worker_streams_client_closed(did.ws, OTHER, second);
    int errors = did.errors;
    for (uint64_t client = 2000; client < 2030; client++)
        open_by(client, 2, 0);
    mr_eq_i64(did.errors, errors + 6);
    mr__worker_streams_free(did.ws);
}

MR_TEST(an_open_that_is_repeated_waits_no_longer)
{
    begin();
    open_by(CLIENT, 1, 0); /* causes a Pulse */
    open_by(CLIENT, 1, 7);
    mr_eq_i64(did.pulses, 1);
    answer(false);
    mr_eq_i64(did.errors, 1);
    mr_eq_i64(did.pulses, 1);
    open_by(CLIENT, 1, 0);
    open_by(CLIENT, 2, 0); /* of a newer generation: its Host may come later */
    answer(false);
    mr_eq_i64(did.errors, 1);
    answer(false);
    mr_eq_i64(did.errors, 2);
    mr_eq_u64(did.generation, 2);
    mr__worker_streams_free(did.ws);
}
