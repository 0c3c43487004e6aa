/* SPDX-License-Identifier: Apache-2.0 */
/* A client's reader alone: when it gives up. The simulation tests the rest. */
#include "transport/service/job_reader.h"

#include <string.h>

#include "tests/harness.h"

static const int64_t second = 1000000000;
static int failed;

static void nothing(void *ctx)
{
    (void)ctx;
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
}
static void no_note(void *ctx, mr_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

/* The dispatcher, which is there, waits for workers itself before the job ends. */
MR_TEST(a_client_without_streams_does_not_give_up_before_the_dispatcher_does)
{
    static const mr__job_reader_out out = {.connect_dispatcher = nothing,
                                           .close_dispatcher = nothing,
                                           .to_dispatcher = no_message,
                                           .deliver = no_arrival,
                                           .joined = is_joined,
                                           .flushed = nothing,
                                           .failed = has_failed,
                                           .note = no_note};
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
        mr__job_reader_free(r);
    }
}
