/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher alone: workers that a tool drains. */
#include "tests/transport/service/dispatcher_alone.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/harness.h"

MR_ONE_THREAD;

MR_TEST(a_drain_is_answered_when_the_worker_has_ended)
{
    Mr__Wire__Ask ask = MR__WIRE__ASK__INIT;
    alone_begin(NULL, 0);
    alone_serve(100, "a:1");
    alone_serve(101, "b:1");
    ask.what = (char *)"drain";
    ask.name = (char *)"b:1";
    for (uint64_t tool = 3; tool < 6; tool++) {
        mr__dispatcher_opened(alone.d, tool, MR__WIRE__ROLE__TOOL, "here", 2, 0);
        ask.request = 70 + tool;
        alone_say(tool, MR__WIRE__MESSAGE__BODY_ASK, &ask);
    }
    mr_eq_u64(alone.n_reports, 0);
    alone_say(3, MR__WIRE__MESSAGE__BODY_ASK, &ask); /* a second one of the same tool */
    mr_eq_u64(alone.n_reports, 1);
    mr_has_str(alone.report, "b:1");
    mr__dispatcher_closed(alone.d, 4, alone.now); /* it hears nothing any more */
    mr__dispatcher_closed(alone.d, 100, alone.now);
    mr_eq_u64(alone.n_reports, 1);
    mr__dispatcher_closed(alone.d, 101, alone.now);
    mr_eq_u64(alone.n_reports, 3);
    mr_eq_str(alone.report, "");
    ask.name = (char *)"a:1";
    alone_say(5, MR__WIRE__MESSAGE__BODY_ASK, &ask); /* that one has ended */
    mr_eq_u64(alone.n_reports, 4);
    mr_eq_str(alone.report, "there is no worker a:1");
    mr__dispatcher_free(alone.d);
}

/* Is a stream given to a worker on this connection, to a client that joins? */
static bool is_given(uint64_t connection)
{
    static uint64_t client = 1000;
    char name[32];
    alone.host = 0;
    snprintf(name, sizeof name, "job %" PRIu64, ++client);
    alone_join(client, name, MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    return alone.host == connection;
}

MR_TEST(a_worker_that_is_drained_is_told_so_until_it_has_ended)
{
    alone_begin(NULL, 0);
    (void)mr__dispatcher_tick(alone.d, alone.now);
    alone_serve_as(100, "a:1", 7);
    mr_check(is_given(100));
    alone_wait(1, 1);
    alone_ask(3, "drain", "a:1");
    mr_eq_str(alone.drained, "a:1");
    mr_eq_u64(alone.drained_instance, 7);
    mr_eq_i64(alone.n_asked, 1);
    mr_eq_u64(alone.asked, 100);
    uint64_t drained_by = alone.records;
    mr__dispatcher_closed(alone.d, 100, alone.now); /* it may have ended, or was cut off */
    mr_eq_u64(alone.n_reports, 1);
    mr_eq_u64(alone.report_after, drained_by);
    alone_serve_as(101, "a:1", 7);
    mr_eq_i64(alone.n_asked, 2);
    mr_eq_u64(alone.asked, 101);
    mr_check(!is_given(101));
    mr__dispatcher_closed(alone.d, 101, alone.now);
    alone_ask(4, "drain", "a:1"); /* again: it has ended */
    mr_eq_u64(alone.n_reports, 2);
    mr_eq_str(alone.report, "");
    mr_eq_u64(alone.drained_instance, 7);
    alone_serve_as(102, "a:1", 8); /* another one, at its address */
    mr_eq_u64(alone.drained_instance, 0);
    mr_eq_i64(alone.n_asked, 2);
    mr_check(is_given(102));
    mr__dispatcher_free(alone.d);
}

MR_TEST(a_drain_needs_room_in_the_account)
{
    alone_begin(NULL, 0);
    alone_serve_as(100, "a:1", 7);
    mr__dispatcher_disk(alone.d, true, alone.now);
    alone_ask(3, "drain", "a:1");
    mr_has_str(alone.report, "cannot write its account");
    mr_eq_i64(alone.n_asked, 0);
    mr__dispatcher_disk(alone.d, false, alone.now);
    alone_ask(4, "drain", "a:1");
    mr__dispatcher_disk(alone.d, true, alone.now);
    mr_eq_i64(alone.n_asked, 1);
    alone_ask(5, "drain", "a:1"); /* that is on record */
    mr_eq_i64(alone.n_asked, 2);
    mr__dispatcher_free(alone.d);
}

/* A dispatcher whose account says that a:1 is to end. */
static void begin_with_drain(void)
{
    mr_status st;
    alone_begin(NULL, 0);
    const mr__record r = {.kind = MR__RECORD_DRAIN, .name = "a:1", .instance = 7};
    mr_ok(mr__dispatcher_load(alone.d, &r, &st), &st);
    (void)mr__dispatcher_tick(alone.d, alone.now);
}

MR_TEST(a_drain_goes_on_when_the_dispatcher_is_back)
{
    begin_with_drain();
    alone_ask(2, "drain", "b:1");
    mr_has_str(alone.report, "there is no worker b:1; the dispatcher has just started");
    alone.n_reports = 0;
    alone_ask(3, "drain", "a:1");
    mr_eq_i64(alone.n_reports, 0); /* it may come */
    alone_serve_as(100, "a:1", 7);
    mr_eq_i64(alone.n_asked, 1);
    mr_eq_u64(alone.asked, 100);
    mr_check(!is_given(100));
    mr_eq_i64(alone.n_reports, 0);
    mr__dispatcher_closed(alone.d, 100, alone.now);
    mr_eq_i64(alone.n_reports, 1);
    mr_eq_str(alone.report, "");
    mr__dispatcher_free(alone.d);

    begin_with_drain(); /* another one has come, while there was no dispatcher */
    alone_serve_as(100, "a:1", 8);
    mr_eq_i64(alone.n_asked, 0);
    mr_check(is_given(100));
    mr__dispatcher_free(alone.d);
}

MR_TEST(a_worker_that_ended_without_a_dispatcher_is_not_waited_for)
{
    begin_with_drain();
    alone_ask(3, "drain", "a:1");
    alone_wait(1, 8);
    mr_eq_i64(alone.n_reports, 0);
    alone_wait(10, 0);
    mr_eq_i64(alone.n_reports, 1);
    mr_eq_str(alone.report, "");
    alone_ask(4, "drain", "a:1");
    mr_eq_i64(alone.n_reports, 2);
    mr_eq_u64(alone.records, 0);
    alone_wait(11, 600); /* tools see it no more, and its drain is on record */
    mr_eq_u64(alone.records, 0);
    alone_ask(5, "workers", "");
    mr_eq_str(alone.answer, "[]");
    alone_wait(612, 86400 - 614);
    mr_eq_u64(alone.records, 0);
    alone_wait(86399, 10); /* a day after it was there last it is forgotten */
    mr_eq_u64(alone.records, 1);
    mr_eq_str(alone.drained, "a:1");
    mr_eq_u64(alone.drained_instance, 0);
    alone_ask(6, "drain", "a:1");
    mr_eq_str(alone.report, "there is no worker a:1");
    mr__dispatcher_free(alone.d);
}

/* Cut off before it heard of the drain, and its network is mended after hours. */
MR_TEST(a_drained_worker_that_is_back_within_a_day_is_to_end)
{
    for (int hours = 1; hours <= 25; hours += 12) {
        bool forgotten = hours > 24;
        alone_begin(NULL, 0);
        (void)mr__dispatcher_tick(alone.d, alone.now);
        alone_serve_as(100, "a:1", 7);
        alone_ask(3, "drain", "a:1");
        mr__dispatcher_closed(alone.d, 100, alone.now);
        alone_wait(1, hours * 3600);
        alone_serve_as(101, "a:1", 7);
        mr_eq_i64(alone.n_asked, forgotten ? 1 : 2);
        mr_check(is_given(101) == forgotten);
        mr__dispatcher_free(alone.d);
    }
}
