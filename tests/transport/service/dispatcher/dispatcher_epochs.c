/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher alone, in parallel_epochs: every worker that was there has a part. */
#include "tests/transport/service/dispatcher/dispatcher_alone.h"

#include <string.h>

#include "tests/harness.h"

MR_ONE_THREAD;

static const Mr__Wire__Mode all_of_them = MR__WIRE__MODE__PARALLEL_EPOCHS;

/* Client 1 read its stream of that number, whose worker is home, to the end. */
static void read_to_the_end(uint32_t stream, uint64_t generation, const char *home)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    Mr__Wire__Acknowledge a = MR__WIRE__ACKNOWLEDGE__INIT;
    a.job_id = alone.job;
    a.client_id = 1;
    a.n_places = 1;
    a.places = list;
    p.stream = stream;
    p.generation = generation;
    p.home = (char *)(uintptr_t)home;
    p.elements = 4;
    p.end = true;
    alone_say(1, MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE, &a);
}
/* An account with a job of that name, which had a stream of each of these workers. */
static void load(const char *name, const char *const *homes, size_t n)
{
    mr_status st;
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    job.mode = all_of_them;
    job.block_length = 1;
    job.has_lists = true;
    mr__record r = {.kind = MR__RECORD_JOB, .job_id = 7, .name = name, .job = &job};
    mr_ok(mr__dispatcher_load(alone.d, &r, &st), &st);
    for (size_t i = 0; i < n; i++) {
        Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
        p.stream = (uint32_t)i;
        p.generation = 1;
        p.home = (char *)(uintptr_t)homes[i];
        p.end = true;
        r = (mr__record){.kind = MR__RECORD_STREAM, .job_id = 7, .place = &p};
        mr_ok(mr__dispatcher_load(alone.d, &r, &st), &st);
    }
    (void)mr__dispatcher_tick(alone.d, alone.now);
}

MR_TEST(a_client_hears_of_all_streams_of_its_workers_at_once)
{
    alone_begin(NULL, 0);
    alone_serve(100, "a:1");
    alone_serve(101, "b:1");
    alone_join(1, "job", all_of_them, 0, 0, false);
    mr_eq_u64(alone.joined, 2);
    mr__dispatcher_free(alone.d);
}

MR_TEST(a_job_does_not_end_before_workers_of_the_account_are_back)
{
    static const char *const homes[] = {"a:1", "b:1"};
    for (int comes = 0; comes < 2; comes++) {
        alone_begin(NULL, 0);
        load("before", homes, 2);
        alone_serve(100, "a:1");
        alone_join(1, "job", all_of_them, 0, 0, false);
        mr_eq_u64(alone.joined, 1);
        read_to_the_end(0, 1, "a:1");
        alone_wait(1, 5);
        mr_eq_i64(alone.finished, 0);
        if (comes) {
            alone_serve(2, "b:1");
            mr_eq_u64(alone.host, 2);
            alone_wait(6, 10);
            mr_eq_i64(alone.finished, 0);
            read_to_the_end(1, 1, "b:1");
            mr_eq_str(alone.warning, "");
        } else {
            alone_wait(6, 6);
            mr_has_str(alone.warning, "job \"job\" continues without worker b:1");
        }
        mr_eq_i64(alone.finished, 1);
        mr__dispatcher_free(alone.d);
    }
}

/* A client begins a repetition; in the one before, it read streams of two workers. */
static void join_after(uint64_t client, const char *one, const char *two)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Join j = MR__WIRE__JOIN__INIT;
    Mr__Wire__Place p[2] = {MR__WIRE__PLACE__INIT, MR__WIRE__PLACE__INIT}, *list[2] = {p, p + 1};
    job.mode = all_of_them;
    job.block_length = 1;
    job.has_lists = true;
    job.repetition = 1;
    j.name = (char *)(uintptr_t) "job";
    j.job = &job;
    j.client_id = client;
    j.begins = true;
    j.n_places = 2;
    j.places = list;
    p[1].stream = 1;
    p[0].home = (char *)(uintptr_t)one;
    p[1].home = (char *)(uintptr_t)two;
    mr__dispatcher_opened(alone.d, client, MR__WIRE__ROLE__CLIENT, "here", 1, alone.now);
    alone_say(client, MR__WIRE__MESSAGE__BODY_JOIN, &j);
}

MR_TEST(a_repetition_waits_for_the_workers_of_the_one_before)
{
    alone_begin(NULL, 0); /* it kept no account */
    alone_serve(100, "a:1");
    join_after(1, "a:1", "b:1");
    mr_eq_u64(alone.joined, 1);
    mr_check(alone.awaits);
    read_to_the_end(0, 1, "a:1");
    alone_wait(0, 5);
    mr_eq_i64(alone.finished, 0);
    alone_serve(2, "b:1");
    mr_eq_u64(alone.host, 2);
    mr__dispatcher_free(alone.d);
}

/* It lost its account, and the client has read all that it knows of meanwhile. */
MR_TEST(a_worker_that_no_client_named_begins_when_all_were_awaited)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Join j = MR__WIRE__JOIN__INIT;
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    alone_begin(NULL, 0);
    alone_wait(0, 0);
    job.mode = all_of_them;
    job.block_length = 1;
    job.has_lists = true;
    j.name = (char *)(uintptr_t) "job";
    j.job = &job;
    j.client_id = j.n_places = 1;
    j.places = list;
    j.job_id = 80;
    p.stream = 1; /* stream 0 was a client's that has left */
    p.home = (char *)(uintptr_t) "a:1";
    p.end = true;
    p.elements = 4;
    mr__dispatcher_opened(alone.d, 1, MR__WIRE__ROLE__CLIENT, "here", 1, alone.now);
    alone_say(1, MR__WIRE__MESSAGE__BODY_JOIN, &j);
    alone_serve(2, "b:1");
    alone_wait(1, 15);
    mr_eq_i64(alone.finished, 0);
    mr_eq_u64(alone.host, 2);
    mr_has_str(alone.warning, "lost its account: 1 streams");
    read_to_the_end(2, 1, "b:1");
    mr_eq_i64(alone.finished, 1);
    mr__dispatcher_free(alone.d);
}

/* Its position is of a job that was lost, or does not count: it hears so. */
MR_TEST(a_position_that_cannot_count_is_never_taken_in_silence)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Join j = MR__WIRE__JOIN__INIT;
    uint64_t one = 0;
    alone_begin(NULL, 0);
    alone_serve(100, "a:1");
    alone_join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
    alone_join(4, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
    job.mode = MR__WIRE__MODE__DYNAMIC;
    job.block_length = 1;
    job.has_lists = true;
    j.name = (char *)(uintptr_t) "job";
    j.job = &job;
    j.client_id = 2;
    j.restores = true;
    j.n_places = 1;
    j.places = list;
    mr__dispatcher_opened(alone.d, 2, MR__WIRE__ROLE__CLIENT, "here", 1, alone.now);
    alone_say(2, MR__WIRE__MESSAGE__BODY_JOIN, &j); /* nothing was given out when it was saved */
    mr_eq_i64(alone.code, 0);
    mr_has_str(alone.warning, "restores a position resumes after the acknowledged elements");
    p.n_splits = 1;
    p.splits = &one;
    j.client_id = 3;
    mr__dispatcher_opened(alone.d, 3, MR__WIRE__ROLE__CLIENT, "here", 1, alone.now);
    alone_say(3, MR__WIRE__MESSAGE__BODY_JOIN, &j); /* of a split that is still to be given out */
    mr_eq_i64(alone.code, MR_DATA_LOSS);
    mr_has_str(alone.text, "lost its account");
    mr__dispatcher_free(alone.d);
}

/* A stream whose worker is unknown would be assigned to any worker, although that has its own. */
MR_TEST(streams_without_a_home_are_given_to_nobody_after_a_second_death)
{
    mr_status st;
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
    alone_begin(NULL, 0);
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    job.mode = all_of_them;
    job.block_length = 1;
    job.has_lists = true;
    mr__record r = {.kind = MR__RECORD_JOB, .job_id = 7, .name = "job", .job = &job};
    mr_ok(mr__dispatcher_load(alone.d, &r, &st), &st);
    r = (mr__record){.kind = MR__RECORD_STREAM, .job_id = 7, .place = &p};
    mr_ok(mr__dispatcher_load(alone.d, &r, &st), &st);
    (void)mr__dispatcher_tick(alone.d, alone.now);
    alone_serve(2, "a:1");
    alone_join(1, "job", all_of_them, 0, 0, false);
    alone_wait(1, 35);
    mr_eq_u64(alone.host, 2);
    mr_eq_u64(alone.hosted, 0);
    mr__dispatcher_free(alone.d);
}

/* The client that read the lost one's stream is not the first that begins the repetition. */
MR_TEST(a_repetition_waits_for_what_any_client_names)
{
    alone_begin(NULL, 0);
    alone_serve(100, "a:1");
    join_after(1, "a:1", "a:1");
    mr_check(!alone.awaits);
    join_after(2, "b:1", "b:1");
    mr_check(alone.awaits);
    read_to_the_end(0, 1, "a:1");
    mr_eq_i64(alone.finished, 0);
    mr__dispatcher_free(alone.d);
}

MR_TEST(a_worker_that_was_taken_out_is_not_awaited)
{
    Mr__Wire__Ask ask = MR__WIRE__ASK__INIT;
    alone_begin(NULL, 0);
    alone_serve(100, "a:1");
    alone_serve(101, "b:1");
    ask.what = (char *)"drain";
    ask.name = (char *)"b:1";
    mr__dispatcher_opened(alone.d, 3, MR__WIRE__ROLE__TOOL, "here", 2, 0);
    alone_say(3, MR__WIRE__MESSAGE__BODY_ASK, &ask);
    mr__dispatcher_closed(alone.d, 101, alone.now);
    join_after(1, "a:1", "b:1");
    mr_check(!alone.awaits);
    read_to_the_end(0, 1, "a:1");
    mr_eq_i64(alone.finished, 1);
    mr_eq_str(alone.warning, "");
    mr__dispatcher_free(alone.d);
}

MR_TEST(a_worker_that_was_awaited_in_vain_is_not_named_again)
{
    static const char *const homes[] = {"a:1", "b:1"};
    alone_begin(NULL, 0);
    load("before", homes, 2);
    alone_serve(100, "a:1");
    alone_wait(1, 15);
    join_after(1, "a:1", "c:1");
    read_to_the_end(0, 1, "a:1");
    alone_wait(17, 12);
    mr_has_str(alone.warning, "continues without worker c:1");
    mr_eq_i64(alone.finished, 1);
    mr_check(!alone.awaits);
    mr__dispatcher_free(alone.d);
}

/* It died while it waited, and what is there had ended. */
MR_TEST(workers_that_were_awaited_are_awaited_after_a_death)
{
    static const char *const homes[] = {"a:1", "b:1"};
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
    mr_status st;
    alone_begin(NULL, 0);
    job.mode = all_of_them;
    job.block_length = 1;
    job.has_lists = job.awaits = true;
    job.repetition = 1;
    mr__record r = {.kind = MR__RECORD_JOB, .job_id = 8, .name = "job", .job = &job};
    mr_ok(mr__dispatcher_load(alone.d, &r, &st), &st);
    p.home = (char *)(uintptr_t) "a:1";
    p.end = true;
    r = (mr__record){.kind = MR__RECORD_STREAM, .job_id = 8, .place = &p};
    mr_ok(mr__dispatcher_load(alone.d, &r, &st), &st);
    load("before", homes, 2);
    alone_serve(100, "a:1");
    join_after(1, "a:1", "b:1");
    mr_eq_i64(alone.finished, 0);
    alone_serve(2, "b:1");
    mr_eq_u64(alone.host, 2);
    mr__dispatcher_free(alone.d);
}

/* A position names all streams that the job had: workers that came since add nothing. */
MR_TEST(a_position_at_the_end_is_the_end)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Join j = MR__WIRE__JOIN__INIT;
    for (int ended = 0; ended < 2; ended++) {
        alone_begin(NULL, 0);
        alone_serve(2, "b:1");
        job.mode = all_of_them;
        job.block_length = 1;
        job.has_lists = true;
        j.name = (char *)(uintptr_t) "job";
        j.job = &job;
        j.client_id = j.n_places = 1;
        j.places = list;
        j.restores = true;
        p.home = (char *)(uintptr_t) "a:1";
        p.end = ended;
        mr__dispatcher_opened(alone.d, 1, MR__WIRE__ROLE__CLIENT, "here", 1, alone.now);
        alone_say(1, MR__WIRE__MESSAGE__BODY_JOIN, &j);
        mr_eq_i64(alone.finished, ended);
        mr_eq_u64(alone.host, ended ? 0 : 2);
        mr__dispatcher_free(alone.d);
    }
}
