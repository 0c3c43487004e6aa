/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher alone: streams that move to another worker. The simulation tests the rest. */
#include "tests/transport/service/dispatcher/dispatcher_alone.h"

#include "tests/harness.h"

MR_ONE_THREAD;

enum { CLIENT = 1, OTHER = 2, FIRST = 100 }; /* connections */

/* The client could continue the stream that was to move last, or could not. */
static void answer(bool failed)
{
    Mr__Wire__Prepared p = MR__WIRE__PREPARED__INIT;
    p.job_id = alone.job;
    p.stream = alone.mover;
    p.generation = alone.prepared;
    p.failed = failed;
    alone_say(CLIENT, MR__WIRE__MESSAGE__BODY_PREPARED, &p);
}

/* A job of two streams on the first worker, when another one comes. */
static void begin(bool no_balance)
{
    alone.no_balance = no_balance;
    alone_begin(NULL, 0);
    alone.no_balance = false;
    alone_serve(FIRST, "a:1");
    alone_join(CLIENT, "x", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    alone_wait(1, 1);
    alone_serve(OTHER, "b:1");
}

MR_TEST(a_stream_that_took_long_or_failed_moves_once_a_minute)
{
    begin(false);
    mr_eq_i64(alone.n_prepares, 0);
    alone_wait(3, 3);
    mr_eq_i64(alone.n_prepares, 1);
    mr_eq_u64(alone.host, OTHER);
    uint64_t generation = alone.prepared;
    alone_wait(7, 2);
    answer(false); /* it took more than a second */
    mr_eq_i64(alone.kind, MR__WIRE__MESSAGE__BODY_PLACED);
    mr_eq_u64(alone.placed, generation);
    mr_eq_u64(alone.after, alone.records);
    alone_wait(10, 5);
    mr_eq_i64(alone.n_prepares, 1);
    mr__dispatcher_closed(alone.d, OTHER, alone.now); /* all streams are with the first worker */
    alone_serve(OTHER, "b:1");
    alone_wait(16, 4);
    mr_eq_i64(alone.n_prepares, 2); /* the other stream */
    answer(true);
    alone_wait(21, 40);
    mr_eq_i64(alone.n_prepares, 2);
    alone_wait(62, 20);
    mr_eq_i64(alone.n_prepares, 3);
    mr__dispatcher_free(alone.d);
}

MR_TEST(a_move_ends_with_its_time_its_client_or_its_worker)
{
    begin(false);
    alone_wait(3, 3);
    mr_eq_i64(alone.n_prepares, 1);
    uint64_t unhosted = alone.n_unhosts;
    alone_wait(7, 70);
    mr_eq_u64(alone.n_unhosts, unhosted + 1); /* nothing was answered in time */
    mr_eq_i64(alone.n_prepares, 2);           /* the other stream */
    answer(false);
    mr_eq_i64(alone.kind, MR__WIRE__MESSAGE__BODY_PLACED);
    uint64_t placed = alone.placed;
    answer(false); /* said twice */
    mr_eq_u64(alone.placed, placed);
    mr__dispatcher_closed(alone.d, OTHER, alone.now);
    alone_ask(3, "rebalance", "x"); /* there is no worker to move to */
    mr_eq_str(alone.answer, "{\"moves\": 0}");
    alone_serve(OTHER, "b:1");
    alone_ask(4, "rebalance", "x");
    mr_eq_str(alone.answer, "{\"moves\": 1}");
    mr__dispatcher_closed(alone.d, OTHER, alone.now);
    placed = alone.placed;
    answer(false); /* its worker is lost */
    mr_eq_u64(alone.placed, placed);
    alone_serve(OTHER, "b:1");
    alone_ask(5, "rebalance", "");
    mr__dispatcher_closed(alone.d, CLIENT, alone.now);
    mr_eq_u64(alone.n_unhosts, unhosted + 3); /* one where the stream was before */
    mr__dispatcher_free(alone.d);
}

MR_TEST(streams_stay_without_balance)
{
    begin(true);
    alone_wait(3, 20);
    mr_eq_i64(alone.n_prepares, 0);
    alone_ask(3, "rebalance", "y");
    mr_has_str(alone.report, "there is no job \"y\"");
    alone_ask(4, "rebalance", "");
    mr_eq_str(alone.answer, "{\"moves\": 1}");
    mr_eq_i64(alone.n_prepares, 1);
    mr__dispatcher_free(alone.d);
}

MR_TEST(the_worker_that_restores_a_stream_takes_over_when_the_old_one_is_lost)
{
    begin(false);
    alone_wait(3, 3);
    mr_eq_i64(alone.n_prepares, 1);
    alone.host = 0;
    mr__dispatcher_closed(alone.d, FIRST, alone.now);
    mr_eq_u64(alone.host, OTHER); /* the other stream, in the next generation */
    mr_check(alone.placed == alone.prepared || alone.placed_first == alone.prepared);
    mr__dispatcher_free(alone.d);
}
