/* SPDX-License-Identifier: Apache-2.0 */
/* A client's reader alone: the time-outs after which it fails. The simulation tests the rest. */
#include "transport/service/client/job_reader.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static const int64_t second = 1000000000;
static int failed;
static bool connects;
static char said[1024], reason[512];

static void nothing(void *ctx)
{
    (void)ctx;
}
static void connect_dispatcher(void *ctx)
{
    (void)ctx;
    connects = true;
}
static void no_message(void *ctx, const mr__message *m)
{
    (void)ctx;
    (void)m;
}
static void no_arrival(void *ctx, const mr__arrival *a)
{
    (void)ctx;
    (void)a;
}
static void is_joined(void *ctx, const Mr__Wire__Joined *j)
{
    (void)ctx;
    (void)j;
}
static void has_failed(void *ctx, const mr_status *why)
{
    (void)ctx;
    failed = (int)why->code;
    snprintf(reason, sizeof reason, "%.511s", why->message);
}
static void note(void *ctx, mr_log_level level, const char *format, const char *line)
{
    (void)format;
    (void)ctx;
    (void)level;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", line);
}

static const mr__job_reader_out out = {.connect_dispatcher = connect_dispatcher,
                                       .close_dispatcher = nothing,
                                       .to_dispatcher = no_message,
                                       .deliver = no_arrival,
                                       .joined = is_joined,
                                       .flushed = nothing,
                                       .failed = has_failed,
                                       .note = note};

/* The dispatcher, which is there, waits for workers itself before the job ends. */
MR_TEST(a_client_without_streams_does_not_give_up_before_the_dispatcher_does)
{
    for (int joined = 0; joined < 2; joined++) {
        Mr__Wire__Join join = MR__WIRE__JOIN__INIT;
        Mr__Wire__Job job = MR__WIRE__JOB__INIT;
        Mr__Wire__Joined answer = MR__WIRE__JOINED__INIT;
        Mr__Wire__Pulse pulse = MR__WIRE__PULSE__INIT;
        mr__message m = MR__WIRE__MESSAGE__INIT;
        mr__job_reader *r;
        mr_status st;
        job.mode = MR__WIRE__MODE__PARALLEL_EPOCHS;
        join.job = &job;
        const mr__job_reader_opts o = {.dispatcher = "d",
                                       .join = &join,
                                       .connect_timeout_ns = 60 * second,
                                       .stall_timeout_ns = 2 * second,
                                       .seed = 1};
        failed = 0;
        mr_ok(mr__job_reader_new(&r, &o, &out, NULL, 0, &st), &st);
        (void)mr__job_reader_tick(r, 0);
        mr__job_reader_dispatcher_opened(r, 0);
        answer.request = 1;
        answer.job_id = 5;
        answer.client_id = 1;
        answer.job = &job;
        m.body_case = MR__WIRE__MESSAGE__BODY_JOINED;
        m.joined = &answer;
        if (joined)
            mr__job_reader_dispatcher_message(r, &m, 0);
        mr__job_reader_waits(r, true, 0);
        m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
        m.pulse = &pulse;
        int64_t gave_up = 0;
        for (int64_t t = 1; t < 30 && !failed; t++) {
            gave_up = t;
            mr__job_reader_dispatcher_message(r, &m, t * second);
            int64_t next = mr__job_reader_tick(r, t * second);
            mr_check(failed || next > t * second);
        }
        mr_eq_i64(failed, MR_UNAVAILABLE);
        mr_eq_i64(gave_up, joined ? 15 : 2);
        mr_eq_str(reason,
                  joined ? "nothing came from the service at d for 15.0 s; other clients read "
                           "all streams, or their workers are disconnected"
                         : "nothing came from the service at d for 2.0 s; no worker serves the "
                           "job");
        mr__job_reader_free(r);
    }
}

/* Refuses each connection to the dispatcher until `until`, or until the reader fails. */
static void without_dispatcher(int64_t connect_timeout, int64_t stall_timeout, int64_t until)
{
    Mr__Wire__Join join = MR__WIRE__JOIN__INIT;
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    mr__job_reader *r;
    mr_status st, why;
    join.job = &job;
    const mr__job_reader_opts o = {.dispatcher = "d",
                                   .join = &join,
                                   .connect_timeout_ns = connect_timeout,
                                   .stall_timeout_ns = stall_timeout,
                                   .seed = 1};
    failed = 0;
    *said = '\0';
    mr_ok(mr__job_reader_new(&r, &o, &out, NULL, 0, &st), &st);
    mr__job_reader_waits(r, true, 0);
    mr_fail(&why, MR_UNAVAILABLE, "cannot connect: Connection refused");
    for (int64_t now = 0; now <= until && !failed; now += second / 100) {
        connects = false;
        (void)mr__job_reader_tick(r, now);
        if (connects)
            mr__job_reader_dispatcher_closed(r, &why, now);
    }
    mr__job_reader_free(r);
}

MR_TEST(a_dispatcher_that_is_not_there_is_said_within_a_second_with_the_cause)
{
    static const char *const absent =
        "no dispatcher answers at d: cannot connect: Connection refused; trying for 60 s "
        "(connect_timeout)\n";
    without_dispatcher(60 * second, 0, second / 4);
    mr_eq_str(said, "");
    without_dispatcher(60 * second, 0, second);
    mr_eq_str(said, absent);
    without_dispatcher(60 * second, 0, 12 * second);
    mr_check(memcmp(said, absent, strlen(absent)) == 0);
    mr_eq_str(said + strlen(absent),
              "waiting for the dispatcher at d: cannot connect: Connection refused\n");
    without_dispatcher(second / 2, 0, 2 * second);
    mr_eq_str(said, "");
    mr_eq_i64(failed, MR_UNAVAILABLE);
    without_dispatcher(60 * second, 3 * second, 4 * second);
    mr_eq_str(reason,
              "nothing came from the service at d for 3.0 s; its dispatcher cannot be reached: "
              "cannot connect: Connection refused");
}

/* ---- blocks that cannot be decoded ---- */

static char connects_to[64];
static int n_opened;

static void connect_worker(void *ctx, const char *address)
{
    (void)ctx;
    snprintf(connects_to, sizeof connects_to, "%s", address);
}
static void to_worker(void *ctx, const char *address, const mr__message *m)
{
    (void)ctx;
    (void)address;
    n_opened += m->body_case == MR__WIRE__MESSAGE__BODY_OPEN;
}
static void no_worker(void *ctx, const char *address)
{
    (void)ctx;
    (void)address;
}
static void no_block(void *ctx, void *block)
{
    (void)ctx;
    (void)block;
}

static const mr__job_reader_out out_with_workers = {.connect_dispatcher = connect_dispatcher,
                                                    .close_dispatcher = nothing,
                                                    .to_dispatcher = no_message,
                                                    .connect_worker = connect_worker,
                                                    .to_worker = to_worker,
                                                    .close_worker = no_worker,
                                                    .deliver = no_arrival,
                                                    .drop = no_block,
                                                    .joined = is_joined,
                                                    .flushed = nothing,
                                                    .failed = has_failed,
                                                    .note = note};

/* Reads a stream whose worker is lost for the reason `why` again and again; after `good` of these
 * times an element arrives first. Returns how often it was lost before the job failed, at most
 * 20. */
static int lose_worker(mr_code why, int good)
{
    Mr__Wire__Join join = MR__WIRE__JOIN__INIT;
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Place place = MR__WIRE__PLACE__INIT, *places[] = {&place};
    Mr__Wire__Joined answer = MR__WIRE__JOINED__INIT;
    Mr__Wire__Placed placed = MR__WIRE__PLACED__INIT;
    Mr__Wire__BlockHead head = MR__WIRE__BLOCK_HEAD__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    mr__job_reader *r;
    mr_status st, cause;
    int64_t now = 0;
    job.streams = 1;
    join.job = &job;
    const mr__job_reader_opts o = {
        .dispatcher = "d", .join = &join, .connect_timeout_ns = 60 * second, .seed = 1};
    failed = n_opened = 0;
    *reason = '\0';
    mr_ok(mr__job_reader_new(&r, &o, &out_with_workers, NULL, now, &st), &st);
    (void)mr__job_reader_tick(r, now);
    mr__job_reader_dispatcher_opened(r, now);
    place.generation = 1;
    place.worker = (char *)"w:1";
    answer.request = 1;
    answer.job_id = 5;
    answer.job = &job;
    answer.n_places = placed.n_places = 1;
    answer.places = placed.places = places;
    placed.job_id = 5;
    m.body_case = MR__WIRE__MESSAGE__BODY_JOINED;
    m.joined = &answer;
    mr__job_reader_dispatcher_message(r, &m, now);
    int n = 0;
    while (n < 20 && !failed) {
        mr_eq_str(connects_to, "w:1");
        mr__job_reader_worker_opened(r, "w:1", now);
        mr_eq_i64(n_opened, n + 1);
        if (n < good) {
            head.job_id = 5;
            head.generation = place.generation;
            head.first = (uint64_t)n;
            head.rows = 1;
            mr__job_reader_worker_block(r, "w:1", &head, 1, NULL, now);
        }
        mr_fail(&cause, why, "received a damaged block: it is");
        mr__job_reader_worker_closed(r, "w:1", &cause, now);
        n++;
        now += second; /* the dispatcher places the stream again */
        place.generation++;
        m.body_case = MR__WIRE__MESSAGE__BODY_PLACED;
        m.placed = &placed;
        mr__job_reader_dispatcher_message(r, &m, now);
    }
    mr__job_reader_free(r);
    return n;
}

MR_TEST(a_block_that_cannot_be_decoded_fails_the_job_after_three_attempts)
{
    mr_eq_i64(lose_worker(MR_DATA_LOSS, 0), 3);
    mr_eq_i64(failed, MR_DATA_LOSS);
    mr_eq_str(reason, "the block of stream 0 from element 0 on cannot be decoded; 3 attempts "
                      "failed, the last one from worker w:1: received a damaged block: it is");
    mr_eq_i64(lose_worker(MR_RESOURCE_EXHAUSTED, 0), 3); /* larger than this client accepts */
    mr_eq_i64(failed, MR_RESOURCE_EXHAUSTED);
}

MR_TEST(an_element_that_arrives_begins_the_count_anew)
{
    mr_eq_i64(lose_worker(MR_DATA_LOSS, 1), 3);
    mr_eq_i64(lose_worker(MR_DATA_LOSS, 4), 6);
    mr_has_str(reason, "from element 4 on");
}

MR_TEST(a_worker_that_dies_again_and_again_fails_no_job)
{
    mr_eq_i64(lose_worker(MR_UNAVAILABLE, 0), 20);
    mr_eq_i64(lose_worker(MR_END, 0), 20);
    mr_eq_i64(failed, 0);
}

/* Otherwise Join would fail on every connection, and the client would connect without end. */
MR_TEST(a_graph_that_no_message_can_carry_is_an_error_at_once)
{
    enum { LARGE = 16 << 20 };
    Mr__Wire__Join join = MR__WIRE__JOIN__INIT;
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    mr__job_reader *r = NULL;
    mr_status st;
    join.job = &job;
    job.graph.data = mr_calloc(1, LARGE);
    job.graph.len = LARGE;
    const mr__job_reader_opts o = {.dispatcher = "d", .join = &join, .seed = 1};
    mr_code_is(mr__job_reader_new(&r, &o, &out, NULL, second, &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_has_str(st.message, "a service accepts at most 15728640");
    mr_free(job.graph.data);
}
