/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher alone: what it says to one peer, and after which record. */
#include "tests/transport/service/dispatcher/dispatcher_alone.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness.h"

MR_ONE_THREAD;

MR_TEST(a_cancel_is_answered_when_it_is_on_record)
{
    alone_begin(NULL, 0);
    alone_join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    mr_eq_i64(alone.kind, MR__WIRE__MESSAGE__BODY_JOINED);
    Mr__Wire__Ask ask = MR__WIRE__ASK__INIT;
    ask.what = (char *)"cancel";
    ask.name = (char *)"job";
    mr__dispatcher_opened(alone.d, 2, MR__WIRE__ROLE__TOOL, "here", 2, 0);
    alone_say(2, MR__WIRE__MESSAGE__BODY_ASK, &ask);
    mr_eq_i64(alone.kind, MR__WIRE__MESSAGE__BODY_REPORT);
    mr_eq_i64(alone.last, MR__RECORD_FORGET);
    mr_eq_u64(alone.after, alone.records);
    mr__dispatcher_free(alone.d);
}

MR_TEST(another_worker_looks_files_up_where_one_was_lost)
{
    alone.without_lists = true;
    alone_begin(NULL, 0);
    alone_join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    mr_eq_u64(alone.matcher, 0);
    alone_serve(100, "a:1");
    mr_eq_u64(alone.matcher, 100);
    alone_serve(101, "b:1"); /* is not asked as well */
    mr_eq_u64(alone.matcher, 100);
    mr__dispatcher_closed(alone.d, 100, 0);
    mr_eq_u64(alone.matcher, 101);
    mr__dispatcher_closed(alone.d, 101, 0); /* the last one */
    alone_serve(102, "b:1");
    mr_eq_u64(alone.matcher, 102);
    mr__dispatcher_free(alone.d);
}

static void nobody_speaks_for(int seconds)
{
    for (; seconds; seconds--) {
        alone.now += 1000000000;
        (void)mr__dispatcher_tick(alone.d, alone.now);
    }
}

MR_TEST(a_client_is_silent_30_s_after_what_it_did_last)
{
    Mr__Wire__Pulse pulse = MR__WIRE__PULSE__INIT;
    alone_begin(NULL, 0);
    nobody_speaks_for(100);
    alone_join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    nobody_speaks_for(29);
    alone_say(1, MR__WIRE__MESSAGE__BODY_PULSE, &pulse);
    nobody_speaks_for(29);
    mr__dispatcher_closed(alone.d, 1, alone.now);
    nobody_speaks_for(29);
    alone_join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, alone.job, false);
    mr_eq_i64(alone.kind, MR__WIRE__MESSAGE__BODY_JOINED);
    nobody_speaks_for(29);
    mr_eq_i64(alone.n_silent, 0);
    nobody_speaks_for(1);
    mr_eq_i64(alone.n_silent, 1);
    mr__dispatcher_free(alone.d);
}

MR_TEST(a_job_without_a_name_goes_by_its_number)
{
    char number[32], other[32];
    alone_begin(NULL, 0);
    alone_join(1, "", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    snprintf(number, sizeof number, "%016" PRIx64, alone.job);
    alone_join(2, "", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    snprintf(other, sizeof other, "%016" PRIx64, alone.job);
    alone_join(4, other, MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false); /* a name has precedence */
    uint64_t named = alone.job;
    alone_ask(10, "streams", "");
    mr_has_str(alone.report, "there is no job \"\"");
    alone_ask(11, "streams", number);
    mr_eq_str(alone.report, "");
    alone_ask(12, "cancel", number);
    mr_eq_str(alone.report, "");
    mr_eq_i64(alone.last, MR__RECORD_FORGET);
    alone_ask(13, "cancel", number);
    mr_has_str(alone.report, "there is no job");
    alone_ask(14, "cancel", other);
    mr_eq_u64(alone.forgotten, named);
    alone_ask(15, "cancel", other);
    mr_check(alone.forgotten != named);
    mr__dispatcher_free(alone.d);
}

/* The client that joined on this connection has read this number of elements of its stream 0. */
static void acknowledge(uint64_t connection, uint64_t job, uint64_t elements)
{
    Mr__Wire__Acknowledge a = MR__WIRE__ACKNOWLEDGE__INIT;
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    a.job_id = job;
    a.client_id = connection;
    a.n_places = 1;
    a.places = list;
    p.elements = elements;
    alone_say(connection, MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE, &a);
}

/* Otherwise it would keep each stream that it ever served. */
MR_TEST(a_worker_drops_a_stream_that_was_read_to_its_end)
{
    Mr__Wire__Acknowledge a = MR__WIRE__ACKNOWLEDGE__INIT;
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    alone_begin(NULL, 0);
    alone_serve(100, "a:1");
    alone_join(1, "x", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    mr_check(alone.hosted && alone.second);
    a.job_id = alone.job;
    a.client_id = 1;
    a.n_places = 1;
    a.places = list;
    p.generation = alone.hosted;
    p.elements = 10;
    alone_say(1, MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE, &a);
    mr_eq_u64(alone.n_unhosts, 0);
    p.end = true;
    alone_say(1, MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE, &a);
    mr_eq_u64(alone.n_unhosts, 1);
    alone_say(1, MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE, &a);
    mr_eq_u64(alone.n_unhosts, 1);
    mr__dispatcher_free(alone.d);
}

MR_TEST(a_name_of_several_repetitions_is_that_of_the_last)
{
    static const uint64_t joined[] = {1, 3, 0, 2};
    char number[32] = "";
    alone_begin(NULL, 0);
    for (size_t i = 0; i < 4; i++) {
        alone.repetition = joined[i];
        alone_join(i + 1, "again", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
        acknowledge(i + 1, alone.job, 10 + joined[i]);
        if (joined[i] == 0)
            snprintf(number, sizeof number, "%016" PRIx64, alone.job);
    }
    alone.repetition = 0;
    alone_ask(10, "streams", "again");
    mr_has_str(alone.answer, "\"acknowledged\": 13");
    alone_ask(11, "streams", number); /* by its number, any */
    mr_has_str(alone.answer, "\"acknowledged\": 10");
    strcat(number, "x"); /* which has 16 digits, and nothing else */
    alone_ask(12, "streams", number);
    mr_has_str(alone.report, "there is no job");
    mr__dispatcher_free(alone.d);
}

MR_TEST(static_modes_need_a_list_which_is_kept)
{
    static const char *const list[] = {"a:1", "b:1"};
    alone_begin(NULL, 0);
    alone_join(1, "job", MR__WIRE__MODE__FILE, 0, 0, false);
    mr_eq_i64(alone.code, MR_FAILED_PRECONDITION);
    mr_has_str(alone.text, "--workers");
    mr__dispatcher_free(alone.d);
    alone_begin(list, 2);
    alone_serve(1, "b:1");
    mr_eq_i64(alone.kind, MR__WIRE__MESSAGE__BODY_REGISTERED);
    alone_serve(2, "c:1");
    mr_eq_i64(alone.code, MR_FAILED_PRECONDITION);
    mr_has_str(alone.text, "a:1, b:1");
    mr__dispatcher_free(alone.d);
    alone_begin(NULL, 1);
    alone_serve(1, "x:1");
    alone_serve(2, "y:1");
    mr_eq_i64(alone.code, MR_FAILED_PRECONDITION);
    mr_has_str(alone.text, "x:1");
    mr__dispatcher_free(alone.d);
}

MR_TEST(what_shared_jobs_cannot_have_is_refused)
{
    alone_begin(NULL, 0);
    alone_join(1, "job", MR__WIRE__MODE__DYNAMIC, 2, 0, false);
    mr_eq_i64(alone.code, MR_INVALID_ARGUMENT);
    mr_has_str(alone.text, "num_consumers");
    /* It lost its account, and the client does not say which splits it had. */
    alone_join(2, "other", MR__WIRE__MODE__DYNAMIC, 0, 77, true);
    mr_eq_i64(alone.code, MR_DATA_LOSS);
    mr_has_str(alone.text, "which splits");
    alone.splits = true;
    alone_join(4, "third", MR__WIRE__MODE__DYNAMIC, 0, 78, true);
    mr_eq_i64(alone.kind, MR__WIRE__MESSAGE__BODY_JOINED);
    alone_join(5, "third", MR__WIRE__MODE__DYNAMIC, 0, 78, true);
    mr_eq_i64(alone.code, MR_DATA_LOSS);
    mr_has_str(alone.text, "the same splits");
    alone.split = UINT64_MAX;
    alone_join(6, "fourth", MR__WIRE__MODE__DYNAMIC, 0, 79, true);
    mr_eq_i64(alone.code, MR_DATA_LOSS);
    mr_has_str(alone.text, "too many");
    alone.splits = false;
    /* Another mode under the same name. */
    alone_join(3, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    mr_eq_i64(alone.code, MR_INVALID_ARGUMENT);
    mr_has_str(alone.text, "processing_mode dynamic");
    mr__dispatcher_free(alone.d);
}

/* What it read would come again unnoticed. */
MR_TEST(a_client_of_a_lost_account_is_refused_once_its_job_was_made_anew)
{
    static const Mr__Wire__Mode modes[] = {MR__WIRE__MODE__DYNAMIC,
                                           MR__WIRE__MODE__PARALLEL_EPOCHS};
    alone.splits = true;
    alone.split = 0;
    for (size_t i = 0; i < 2; i++) {
        alone_begin(NULL, 0);
        alone_serve(100, "a:1");
        /* It begins at once: no worker knows of another. */
        alone_join(1, "job", modes[i], 0, 0, false);
        mr_check(alone.hosted != 0);
        alone_join(2, "job", modes[i], 0, 80, true);
        mr_eq_i64(alone.code, MR_DATA_LOSS);
        mr_has_str(alone.text, "lost its account");
        mr_has_str(alone.text, "\"job\"");
        alone_join(3, "job", modes[i], 0, 80, false); /* it read nothing */
        mr_eq_i64(alone.code, 0);
        mr__dispatcher_free(alone.d);
    }
    alone.splits = false;
}

MR_TEST(one_that_comes_when_the_others_do_not_wait_any_more_is_refused_too)
{
    alone.splits = true;
    alone.split = 1;
    alone_begin(NULL, 0);
    alone_wait(0, 0);
    alone_join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_i64(alone.kind, MR__WIRE__MESSAGE__BODY_JOINED);
    alone.split = 3;
    alone_join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_i64(alone.kind, MR__WIRE__MESSAGE__BODY_JOINED);
    alone_wait(1, 15);
    alone.split = 7;
    alone_join(3, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_i64(alone.code, MR_DATA_LOSS);
    mr_has_str(alone.text, "without this client");
    mr__dispatcher_closed(alone.d, 2, alone.now);
    alone_join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true); /* as its answer was lost */
    mr_eq_i64(alone.code, 0);
    mr__dispatcher_free(alone.d);
    alone.splits = false;
}

MR_TEST(a_new_client_waits_for_those_of_a_lost_account)
{
    alone.splits = true;
    for (int late = 0; late < 2; late++) {
        alone_begin(NULL, 0);
        alone_wait(0, 0);
        if (!late)
            alone_serve_former(100, "a:1", 80);
        alone_join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
        if (late)
            alone_serve_former(100, "a:1", 80);
        mr_eq_u64(alone.hosted, 0);
        alone.split = 0;
        uint64_t job = alone.job;
        alone.job = 0;
        alone_join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
        mr_eq_u64(alone.job, job);
        mr_eq_u64(alone.hosted, 0);
        alone_wait(1, 15);
        mr_check(alone.hosted != 0);
        mr__dispatcher_free(alone.d);
    }
    alone_begin(NULL, 0); /* what is hosted is old, and no account was lost */
    for (int64_t t = 0; t < 70; t++)
        alone_wait(t, 0);
    alone_serve_former(100, "a:1", 80);
    alone_join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
    mr_check(alone.hosted != 0);
    mr__dispatcher_free(alone.d);
    alone_begin(NULL, 0); /* no client comes */
    alone_wait(0, 0);
    alone_serve_former(100, "a:1", 80);
    alone_join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
    mr_eq_u64(alone.hosted, 0);
    alone_wait(1, 15);
    mr_check(alone.hosted != 0);
    mr__dispatcher_free(alone.d);
    alone.splits = false;
}

/* Numbers of its streams and splits are those of another job. */
MR_TEST(clients_of_two_former_jobs_do_not_make_one_again)
{
    alone.splits = true;
    alone.split = 0;
    alone_begin(NULL, 0);
    alone_wait(0, 0);
    alone_join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_i64(alone.kind, MR__WIRE__MESSAGE__BODY_JOINED);
    alone.split = 1;
    alone_join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 81, true);
    mr_eq_i64(alone.code, MR_DATA_LOSS);
    mr_has_str(alone.text, "lost its account");
    mr__dispatcher_free(alone.d);
    alone.splits = false;
}

MR_TEST(a_client_of_a_job_of_another_seed_does_not_go_on)
{
    alone_begin(NULL, 0);
    alone_serve(100, "a:1");
    alone_join(2, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    alone.also.is_set = true;
    alone.also.elements = 3;
    alone_join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 80, true);
    mr_eq_i64(alone.code, MR_FAILED_PRECONDITION); /* it may, once the other has left */
    mr__dispatcher_closed(alone.d, 1, alone.now);
    alone.also.seed = 9;
    alone_join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 80, true);
    mr_eq_i64(alone.code, MR_DATA_LOSS);
    mr_has_str(alone.text, "lost its account");
    mr__dispatcher_free(alone.d);
    memset(&alone.also, 0, sizeof alone.also);
}

MR_TEST(nobody_is_waited_for_where_the_account_was_read)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    mr_status st;
    job.mode = MR__WIRE__MODE__EXACTLY_ONCE;
    job.streams = 2;
    job.has_lists = true;
    const mr__record old = {.kind = MR__RECORD_JOB, .job_id = 5, .name = "old", .job = &job};
    alone_begin(NULL, 0);
    mr_ok(mr__dispatcher_load(alone.d, &old, &st), &st);
    alone_wait(0, 0);
    alone_serve_former(100, "a:1", 80); /* of a job that was forgotten */
    alone_join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
    mr_check(alone.hosted != 0);
    mr__dispatcher_free(alone.d);
}

/* A worker may have had the generation after the one that the client knows. */
MR_TEST(streams_that_are_made_again_are_of_a_generation_that_nobody_had)
{
    alone.splits = true;
    alone.split = 0;
    alone_begin(NULL, 0);
    alone_wait(0, 0);
    alone_serve(100, "a:1");
    alone.also.is_set = true;
    alone.also.generation = 4;
    alone.also.elements = 3;
    alone_join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_u64(alone.hosted, 6);
    mr__dispatcher_free(alone.d);
    alone.splits = false;
    memset(&alone.also, 0, sizeof alone.also);
}

MR_TEST(what_a_client_read_since_counts_while_others_are_waited_for)
{
    alone.splits = true;
    alone.split = 0;
    alone_begin(NULL, 0);
    alone_wait(0, 0);
    alone.also.is_set = true;
    alone.also.elements = 3;
    alone_join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_u64(alone.elements, 3);
    mr__dispatcher_closed(alone.d, 2, alone.now);
    alone.also.elements = 7;
    alone_join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_u64(alone.elements, 7);
    mr__dispatcher_free(alone.d);
    alone.splits = false;
    memset(&alone.also, 0, sizeof alone.also);
}

/* All that is known of has ended, but not all splits were given out. */
MR_TEST(a_job_that_is_made_again_gives_out_the_splits_that_were_left)
{
    alone.splits = true;
    alone.split = 0;
    alone_begin(NULL, 0);
    alone_wait(0, 0);
    alone_serve(100, "a:1");
    alone.also.is_set = alone.also.ended = true;
    alone.also.elements = 3;
    alone_join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    alone_wait(1, 15);
    mr_eq_i64(alone.finished, 0);
    mr_check(alone.second != 0);
    mr__dispatcher_free(alone.d);
    alone.splits = false;
    memset(&alone.also, 0, sizeof alone.also);
}

/* Stream 0 had no worker: no elements of it are to come. */
MR_TEST(a_job_that_is_made_again_ends_where_its_workers_streams_have)
{
    alone_begin(NULL, 0);
    alone_wait(0, 0);
    alone.also.is_set = alone.also.ended = true;
    alone.also.stream = 1;
    alone.also.elements = 3;
    alone.also.home = "a:1";
    alone_join(2, "job", MR__WIRE__MODE__PARALLEL_EPOCHS, 0, 80, true);
    mr_eq_i64(alone.finished, 0);
    alone_wait(1, 15);
    mr_eq_i64(alone.finished, 1);
    mr__dispatcher_free(alone.d);
    memset(&alone.also, 0, sizeof alone.also);
}

MR_TEST(streams_of_one_reader_are_taken_over_unless_they_went_on_without_it)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    Mr__Wire__Acknowledge a = MR__WIRE__ACKNOWLEDGE__INIT;
    Mr__Wire__Leave leave = MR__WIRE__LEAVE__INIT;
    alone_begin(NULL, 0);
    alone_serve(100, "a:1");
    alone_join(2, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    uint64_t job = alone.job;
    /* Who has it may still leave. */
    alone_join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 80, true);
    mr_eq_i64(alone.code, MR_FAILED_PRECONDITION);
    a.job_id = leave.job_id = job;
    a.client_id = leave.client_id = 2;
    a.n_places = 1;
    a.places = list;
    p.stream = 1;
    p.generation = 1;
    p.elements = 4;
    alone_say(2, MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE, &a);
    alone_say(2, MR__WIRE__MESSAGE__BODY_LEAVE, &leave);
    mr__dispatcher_closed(alone.d, 1, alone.now); /* it tries again */
    alone_join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 80, true);
    mr_eq_i64(alone.code, MR_DATA_LOSS);
    mr_has_str(alone.text, "lost its account");
    mr__dispatcher_free(alone.d);
}

/* Else a client that opens the stream may meet what the worker hosted before it hears of the new
 * place, and then hears nothing more. */
MR_TEST(a_generation_that_a_worker_still_hosts_is_not_given_again)
{
    Mr__Wire__Hosted hosted = MR__WIRE__HOSTED__INIT;
    alone_begin(NULL, 0);
    alone_join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 80, false);
    hosted.job_id = 80;
    hosted.generation = 7;
    alone_serve_with(2, "a:1", &hosted);
    mr_eq_u64(alone.hosted, 8);
    hosted.generation = 9; /* a stream that is elsewhere moves again */
    alone_serve_with(3, "b:1", &hosted);
    mr_eq_u64(alone.hosted, 10);
    hosted.generation = 3; /* what is older is fenced as it is */
    alone_serve_with(4, "c:1", &hosted);
    mr_eq_u64(alone.hosted, 10);
    mr__dispatcher_free(alone.d);
}

MR_TEST(what_nobody_knows_the_splits_of_is_warned_of)
{
    alone.splits = true;
    alone.split = 0; /* there is another one, which a client that has left may have read */
    alone_begin(NULL, 0);
    alone_wait(0, 0);
    alone_serve(100, "a:1");
    alone_join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_str(alone.warning, "");
    alone_wait(1, 15);
    mr_has_str(alone.warning, "lost its account");
    mr_has_str(alone.warning, "from them are repeated");
    mr__dispatcher_free(alone.d);
    alone.splits = false;
}

/* By what is on record alone, it would be whole: the client that has more is not back. */
MR_TEST(a_job_that_was_made_again_in_part_goes_on_so_after_a_second_death)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    mr_status st;
    alone.splits = true;
    alone.split = 0;
    alone_begin(NULL, 0);
    alone_wait(0, 0);
    alone_join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_check(alone.rebuilding);
    mr_eq_u64(alone.former, 80);
    alone_wait(1, 15);
    mr_check(!alone.rebuilding);
    uint64_t id = alone.job;
    mr__dispatcher_free(alone.d);
    for (int other = 0; other < 2; other++) {
        Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
        alone_begin(NULL, 0);
        job.mode = MR__WIRE__MODE__DYNAMIC;
        job.block_length = 1;
        job.splits = 2;
        job.has_lists = job.rebuilding = true;
        job.former = 80;
        mr__record r = {.kind = MR__RECORD_JOB, .job_id = id, .name = "job", .job = &job};
        mr_ok(mr__dispatcher_load(alone.d, &r, &st), &st);
        p.stream = 0;
        p.reader = 1;
        p.elements = 3;
        r = (mr__record){.kind = MR__RECORD_STREAM, .job_id = id, .place = &p};
        mr_ok(mr__dispatcher_load(alone.d, &r, &st), &st);
        r = (mr__record){.kind = MR__RECORD_SPLIT, .job_id = id, .stream = 0, .split = 0};
        mr_ok(mr__dispatcher_load(alone.d, &r, &st), &st);
        alone_wait(0, 0);
        alone_serve(100, "a:1");
        alone.split = 1;
        alone_join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, other ? 81 : 80, true);
        mr_eq_i64(alone.code, other ? MR_DATA_LOSS : 0);
        mr__dispatcher_free(alone.d);
    }
    alone.splits = false;
}
