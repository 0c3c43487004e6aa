/* SPDX-License-Identifier: Apache-2.0 */
/* A client's reader alone: when it gives up. The simulation tests the rest. */
#include "transport/service/client/job_reader.h"

#include <stdio.h>
#include <string.h>

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
static void note(void *ctx, mr_log_level level, const char *line)
{
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

/* Refuses each connection to the dispatcher until `until`, or the reader gives up. */
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
