/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher alone: what it says to one peer, and after which record. */
#include "transport/service/dispatcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "tests/harness.h"

/* What it said last, and what it recorded. */
static struct {
    mr__dispatcher *d;
    uint64_t records, after;
    uint64_t hosted;   /* generation in which stream 0 was given to a worker last */
    uint64_t second;   /* the same of stream 1 */
    uint64_t host;     /* that was given a stream last */
    uint64_t job;      /* that somebody joined last */
    uint64_t elements; /* of the first place that this client heard of then */
    size_t joined;     /* streams that it heard of */
    int finished;      /* how often clients heard so */
    char warning[512];
    int64_t now;
    int kind, code;
    char text[512];
    mr__record_kind last;
} s;

static void out_send(void *ctx, uint64_t to, const mr__message *m, uint64_t after)
{
    (void)ctx;
    s.kind = (int)m->body_case;
    s.after = after;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_HOST && m->host->place->stream == 0)
        s.hosted = m->host->place->generation;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_HOST && m->host->place->stream == 1)
        s.second = m->host->place->generation;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_HOST)
        s.host = to;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_JOINED) {
        s.job = m->joined->job_id;
        s.elements = m->joined->n_places ? m->joined->places[0]->elements : 0;
        s.joined = m->joined->n_places;
    }
    s.finished += m->body_case == MR__WIRE__MESSAGE__BODY_FINISHED;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_WARNING)
        snprintf(s.warning, sizeof s.warning, "%s", m->warning->text);
    const Mr__Wire__Status *why =
        m->body_case == MR__WIRE__MESSAGE__BODY_FAILED ? m->failed->status : NULL;
    s.code = why ? why->code : 0;
    strncpy(s.text, why ? why->message : "", sizeof s.text - 1);
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
    s.last = r->kind;
    return ++s.records;
}
static void out_note(void *ctx, mr_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}
static mr_code two(void *ctx, const Mr__Wire__Job *job, uint32_t *n, mr_status *st)
{
    (void)ctx;
    (void)job;
    (void)st;
    *n = 2;
    return MR_OK;
}

static void begin(const char *const *workers, size_t n_workers)
{
    static const mr__dispatcher_out out = {out_send, out_close, out_record, out_note};
    const mr__dispatcher_opts o = {
        .seed = 1, .streams = two, .state = "memory", .workers = workers, .n_workers = n_workers};
    mr_status st;
    memset(&s, 0, sizeof s);
    mr_ok(mr__dispatcher_new(&s.d, &o, &out, NULL, &st), &st);
}
static void say(uint64_t from, Mr__Wire__Message__BodyCase kind, void *body)
{
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = kind;
    m.hello = body; /* a union of pointers */
    mr__dispatcher_message(s.d, from, &m, s.now);
}
/* place: it says where a stream of its own stands; with a split, where splits is true. */
static bool splits;
static uint64_t split = 5;
/* With is_set, what else it says of that stream. */
static struct {
    bool is_set, ended;
    uint32_t stream;
    uint64_t generation, elements, seed;
    const char *home;
} also;
static void join(uint64_t connection, const char *name, Mr__Wire__Mode mode, uint32_t consumers,
                 uint64_t job_id, bool place)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Join j = MR__WIRE__JOIN__INIT;
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    job.mode = mode;
    job.block_length = 1;
    job.has_lists = true;
    job.consumers = consumers;
    j.name = (char *)(uintptr_t)name;
    j.job = &job;
    j.job_id = job_id;
    j.client_id = connection;
    j.n_places = place;
    p.elements = 3;
    p.n_splits = splits;
    p.splits = &split;
    p.stream = (uint32_t)connection;
    if (also.is_set) {
        p.stream = also.stream;
        p.generation = also.generation;
        p.elements = also.elements;
        p.end = also.ended;
        job.seed = also.seed;
        p.home = (char *)(uintptr_t)(also.home ? also.home : "");
    }
    j.places = list;
    mr__dispatcher_opened(s.d, connection, MR__WIRE__ROLE__CLIENT, "here", 1, s.now);
    say(connection, MR__WIRE__MESSAGE__BODY_JOIN, &j);
}
/* hosted: what it says it hosts; NULL: nothing. */
static void serve_with(uint64_t connection, const char *address, Mr__Wire__Hosted *hosted)
{
    Mr__Wire__Register r = MR__WIRE__REGISTER__INIT;
    r.address = (char *)(uintptr_t)address;
    r.n_hosted = hosted ? 1 : 0;
    r.hosted = &hosted;
    mr__dispatcher_opened(s.d, connection, MR__WIRE__ROLE__WORKER, "there", 1, s.now);
    say(connection, MR__WIRE__MESSAGE__BODY_REGISTER_WORKER, &r);
}
static void serve(uint64_t connection, const char *address)
{
    serve_with(connection, address, NULL);
}

MR_TEST(a_cancel_is_answered_when_it_is_on_record)
{
    begin(NULL, 0);
    join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    mr_eq_i64(s.kind, MR__WIRE__MESSAGE__BODY_JOINED);
    Mr__Wire__Ask ask = MR__WIRE__ASK__INIT;
    ask.what = (char *)"cancel";
    ask.name = (char *)"job";
    mr__dispatcher_opened(s.d, 2, MR__WIRE__ROLE__TOOL, "here", 2, 0);
    say(2, MR__WIRE__MESSAGE__BODY_ASK, &ask);
    mr_eq_i64(s.kind, MR__WIRE__MESSAGE__BODY_REPORT);
    mr_eq_i64(s.last, MR__RECORD_FORGET);
    mr_eq_u64(s.after, s.records);
    mr__dispatcher_free(s.d);
}

MR_TEST(static_modes_need_a_list_which_is_kept)
{
    static const char *const list[] = {"a:1", "b:1"};
    begin(NULL, 0);
    join(1, "job", MR__WIRE__MODE__FILE, 0, 0, false);
    mr_eq_i64(s.code, MR_FAILED_PRECONDITION);
    mr_has_str(s.text, "--workers");
    mr__dispatcher_free(s.d);
    begin(list, 2);
    serve(1, "b:1");
    mr_eq_i64(s.kind, MR__WIRE__MESSAGE__BODY_REGISTERED);
    serve(2, "c:1");
    mr_eq_i64(s.code, MR_FAILED_PRECONDITION);
    mr_has_str(s.text, "a:1, b:1");
    mr__dispatcher_free(s.d);
    begin(NULL, 1);
    serve(1, "x:1");
    serve(2, "y:1");
    mr_eq_i64(s.code, MR_FAILED_PRECONDITION);
    mr_has_str(s.text, "x:1");
    mr__dispatcher_free(s.d);
}

MR_TEST(what_shared_jobs_cannot_have_is_refused)
{
    begin(NULL, 0);
    join(1, "job", MR__WIRE__MODE__DYNAMIC, 2, 0, false);
    mr_eq_i64(s.code, MR_INVALID_ARGUMENT);
    mr_has_str(s.text, "num_consumers");
    /* It lost its account, and the client does not say which splits it had. */
    join(2, "other", MR__WIRE__MODE__DYNAMIC, 0, 77, true);
    mr_eq_i64(s.code, MR_DATA_LOSS);
    mr_has_str(s.text, "which splits");
    splits = true;
    join(4, "third", MR__WIRE__MODE__DYNAMIC, 0, 78, true);
    mr_eq_i64(s.kind, MR__WIRE__MESSAGE__BODY_JOINED);
    join(5, "third", MR__WIRE__MODE__DYNAMIC, 0, 78, true);
    mr_eq_i64(s.code, MR_DATA_LOSS);
    mr_has_str(s.text, "the same splits");
    split = UINT64_MAX;
    join(6, "fourth", MR__WIRE__MODE__DYNAMIC, 0, 79, true);
    mr_eq_i64(s.code, MR_DATA_LOSS);
    mr_has_str(s.text, "too many");
    splits = false;
    /* Another mode under the same name. */
    join(3, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    mr_eq_i64(s.code, MR_INVALID_ARGUMENT);
    mr_has_str(s.text, "processing_mode dynamic");
    mr__dispatcher_free(s.d);
}

/* A worker that a former account gave a stream to. */
static void serve_former(uint64_t connection, const char *address, uint64_t job_id)
{
    Mr__Wire__Hosted hosted = MR__WIRE__HOSTED__INIT;
    hosted.job_id = job_id;
    hosted.generation = 1;
    serve_with(connection, address, &hosted);
}
/* All that are there say so every second. */
static void wait_s(int64_t from, int64_t seconds)
{
    Mr__Wire__Pulse pulse = MR__WIRE__PULSE__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
    m.pulse = &pulse;
    for (int64_t t = from; t <= from + seconds; t++) {
        s.now = t * 1000000000;
        static const uint64_t peers[] = {1, 2, 100};
        for (size_t i = 0; i < 3; i++)
            mr__dispatcher_message(s.d, peers[i], &m, s.now);
        (void)mr__dispatcher_tick(s.d, s.now);
    }
}

/* What it read would come again, and nobody would know. */
MR_TEST(a_client_of_a_lost_account_is_refused_once_its_job_was_made_anew)
{
    static const Mr__Wire__Mode modes[] = {MR__WIRE__MODE__DYNAMIC,
                                           MR__WIRE__MODE__PARALLEL_EPOCHS};
    splits = true;
    split = 0;
    for (size_t i = 0; i < 2; i++) {
        begin(NULL, 0);
        serve(100, "a:1");
        join(1, "job", modes[i], 0, 0, false); /* begins at once: no worker knows of another */
        mr_check(s.hosted != 0);
        join(2, "job", modes[i], 0, 80, true);
        mr_eq_i64(s.code, MR_DATA_LOSS);
        mr_has_str(s.text, "lost its account");
        mr_has_str(s.text, "\"job\"");
        join(3, "job", modes[i], 0, 80, false); /* it read nothing */
        mr_eq_i64(s.code, 0);
        mr__dispatcher_free(s.d);
    }
    splits = false;
}

MR_TEST(one_that_comes_when_the_others_do_not_wait_any_more_is_refused_too)
{
    splits = true;
    split = 1;
    begin(NULL, 0);
    wait_s(0, 0);
    join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_i64(s.kind, MR__WIRE__MESSAGE__BODY_JOINED);
    split = 3;
    join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_i64(s.kind, MR__WIRE__MESSAGE__BODY_JOINED);
    wait_s(1, 15);
    split = 7;
    join(3, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_i64(s.code, MR_DATA_LOSS);
    mr_has_str(s.text, "without this client");
    mr__dispatcher_closed(s.d, 2, s.now);
    join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true); /* as its answer was lost */
    mr_eq_i64(s.code, 0);
    mr__dispatcher_free(s.d);
    splits = false;
}

MR_TEST(a_new_client_waits_for_those_of_a_lost_account)
{
    splits = true;
    for (int late = 0; late < 2; late++) {
        begin(NULL, 0);
        wait_s(0, 0);
        if (!late)
            serve_former(100, "a:1", 80);
        join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
        if (late)
            serve_former(100, "a:1", 80);
        mr_eq_u64(s.hosted, 0);
        split = 0;
        uint64_t job = s.job;
        s.job = 0;
        join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
        mr_eq_u64(s.job, job);
        mr_eq_u64(s.hosted, 0);
        wait_s(1, 15);
        mr_check(s.hosted != 0);
        mr__dispatcher_free(s.d);
    }
    begin(NULL, 0); /* what is hosted is old, and no account was lost */
    for (int64_t t = 0; t < 70; t++)
        wait_s(t, 0);
    serve_former(100, "a:1", 80);
    join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
    mr_check(s.hosted != 0);
    mr__dispatcher_free(s.d);
    begin(NULL, 0); /* nobody comes */
    wait_s(0, 0);
    serve_former(100, "a:1", 80);
    join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
    mr_eq_u64(s.hosted, 0);
    wait_s(1, 15);
    mr_check(s.hosted != 0);
    mr__dispatcher_free(s.d);
    splits = false;
}

/* Numbers of its streams and splits are those of another job. */
MR_TEST(clients_of_two_former_jobs_do_not_make_one_again)
{
    splits = true;
    split = 0;
    begin(NULL, 0);
    wait_s(0, 0);
    join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_i64(s.kind, MR__WIRE__MESSAGE__BODY_JOINED);
    split = 1;
    join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 81, true);
    mr_eq_i64(s.code, MR_DATA_LOSS);
    mr_has_str(s.text, "lost its account");
    mr__dispatcher_free(s.d);
    splits = false;
}

MR_TEST(a_client_of_a_job_of_another_seed_does_not_go_on)
{
    begin(NULL, 0);
    serve(100, "a:1");
    join(2, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    also.is_set = true;
    also.elements = 3;
    join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 80, true);
    mr_eq_i64(s.code, MR_FAILED_PRECONDITION); /* it may, once the other has left */
    mr__dispatcher_closed(s.d, 1, s.now);
    also.seed = 9;
    join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 80, true);
    mr_eq_i64(s.code, MR_DATA_LOSS);
    mr_has_str(s.text, "lost its account");
    mr__dispatcher_free(s.d);
    memset(&also, 0, sizeof also);
}

MR_TEST(nobody_is_waited_for_where_the_account_was_read)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    mr_status st;
    job.mode = MR__WIRE__MODE__EXACTLY_ONCE;
    job.streams = 2;
    job.has_lists = true;
    const mr__record old = {.kind = MR__RECORD_JOB, .job_id = 5, .name = "old", .job = &job};
    begin(NULL, 0);
    mr_ok(mr__dispatcher_load(s.d, &old, &st), &st);
    wait_s(0, 0);
    serve_former(100, "a:1", 80); /* of a job that was forgotten */
    join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
    mr_check(s.hosted != 0);
    mr__dispatcher_free(s.d);
}

/* A worker may have had the generation after the one that the client knows. */
MR_TEST(streams_that_are_made_again_are_of_a_generation_that_nobody_had)
{
    splits = true;
    split = 0;
    begin(NULL, 0);
    wait_s(0, 0);
    serve(100, "a:1");
    also.is_set = true;
    also.generation = 4;
    also.elements = 3;
    join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_u64(s.hosted, 6);
    mr__dispatcher_free(s.d);
    splits = false;
    memset(&also, 0, sizeof also);
}

MR_TEST(what_a_client_read_since_counts_while_others_are_waited_for)
{
    splits = true;
    split = 0;
    begin(NULL, 0);
    wait_s(0, 0);
    also.is_set = true;
    also.elements = 3;
    join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_u64(s.elements, 3);
    mr__dispatcher_closed(s.d, 2, s.now);
    also.elements = 7;
    join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    mr_eq_u64(s.elements, 7);
    mr__dispatcher_free(s.d);
    splits = false;
    memset(&also, 0, sizeof also);
}

/* All that is known of has ended, but not all splits were given out. */
MR_TEST(a_job_that_is_made_again_gives_out_the_splits_that_were_left)
{
    splits = true;
    split = 0;
    begin(NULL, 0);
    wait_s(0, 0);
    serve(100, "a:1");
    also.is_set = also.ended = true;
    also.elements = 3;
    join(2, "job", MR__WIRE__MODE__DYNAMIC, 0, 80, true);
    wait_s(1, 15);
    mr_eq_i64(s.finished, 0);
    mr_check(s.second != 0);
    mr__dispatcher_free(s.d);
    splits = false;
    memset(&also, 0, sizeof also);
}

/* Stream 0 was nobody's: there is nothing to come of it. */
MR_TEST(a_job_that_is_made_again_ends_where_its_workers_streams_have)
{
    begin(NULL, 0);
    wait_s(0, 0);
    also.is_set = also.ended = true;
    also.stream = 1;
    also.elements = 3;
    also.home = "a:1";
    join(2, "job", MR__WIRE__MODE__PARALLEL_EPOCHS, 0, 80, true);
    mr_eq_i64(s.finished, 0);
    wait_s(1, 15);
    mr_eq_i64(s.finished, 1);
    mr__dispatcher_free(s.d);
    memset(&also, 0, sizeof also);
}

MR_TEST(streams_of_one_reader_are_taken_over_unless_they_went_on_without_it)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    Mr__Wire__Acknowledge a = MR__WIRE__ACKNOWLEDGE__INIT;
    Mr__Wire__Leave leave = MR__WIRE__LEAVE__INIT;
    begin(NULL, 0);
    serve(100, "a:1");
    join(2, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 0, false);
    uint64_t job = s.job;
    join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 80, true); /* who has it may still leave */
    mr_eq_i64(s.code, MR_FAILED_PRECONDITION);
    a.job_id = leave.job_id = job;
    a.client_id = leave.client_id = 2;
    a.n_places = 1;
    a.places = list;
    p.stream = 1;
    p.generation = 1;
    p.elements = 4;
    say(2, MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE, &a);
    say(2, MR__WIRE__MESSAGE__BODY_LEAVE, &leave);
    mr__dispatcher_closed(s.d, 1, s.now); /* it tries again */
    join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 80, true);
    mr_eq_i64(s.code, MR_DATA_LOSS);
    mr_has_str(s.text, "lost its account");
    mr__dispatcher_free(s.d);
}

/* Else a client that opens the stream may meet what the worker hosted before it hears of the new
 * place, and then hears nothing more. */
MR_TEST(a_generation_that_a_worker_still_hosts_is_not_given_again)
{
    Mr__Wire__Hosted hosted = MR__WIRE__HOSTED__INIT;
    begin(NULL, 0);
    join(1, "job", MR__WIRE__MODE__EXACTLY_ONCE, 0, 80, false);
    hosted.job_id = 80;
    hosted.generation = 7;
    serve_with(2, "a:1", &hosted);
    mr_eq_u64(s.hosted, 8);
    hosted.generation = 9; /* a stream that is elsewhere moves once more */
    serve_with(3, "b:1", &hosted);
    mr_eq_u64(s.hosted, 10);
    hosted.generation = 3; /* what is older is fenced as it is */
    serve_with(4, "c:1", &hosted);
    mr_eq_u64(s.hosted, 10);
    mr__dispatcher_free(s.d);
}

/* ---- parallel_epochs: every worker that was there has a part ---- */

static const Mr__Wire__Mode all_of_them = MR__WIRE__MODE__PARALLEL_EPOCHS;

/* Client 1 read its stream of that number, whose worker is home, to the end. */
static void read_to_the_end(uint32_t stream, uint64_t generation, const char *home)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    Mr__Wire__Acknowledge a = MR__WIRE__ACKNOWLEDGE__INIT;
    a.job_id = s.job;
    a.client_id = 1;
    a.n_places = 1;
    a.places = list;
    p.stream = stream;
    p.generation = generation;
    p.home = (char *)(uintptr_t)home;
    p.elements = 4;
    p.end = true;
    say(1, MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE, &a);
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
    mr_ok(mr__dispatcher_load(s.d, &r, &st), &st);
    for (size_t i = 0; i < n; i++) {
        Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
        p.stream = (uint32_t)i;
        p.generation = 1;
        p.home = (char *)(uintptr_t)homes[i];
        p.end = true;
        r = (mr__record){.kind = MR__RECORD_STREAM, .job_id = 7, .place = &p};
        mr_ok(mr__dispatcher_load(s.d, &r, &st), &st);
    }
    (void)mr__dispatcher_tick(s.d, s.now);
}

MR_TEST(a_client_hears_of_all_streams_of_its_workers_at_once)
{
    begin(NULL, 0);
    serve(100, "a:1");
    serve(101, "b:1");
    join(1, "job", all_of_them, 0, 0, false);
    mr_eq_u64(s.joined, 2);
    mr__dispatcher_free(s.d);
}

MR_TEST(a_job_does_not_end_before_workers_of_the_account_are_back)
{
    static const char *const homes[] = {"a:1", "b:1"};
    for (int comes = 0; comes < 2; comes++) {
        begin(NULL, 0);
        load("before", homes, 2);
        serve(100, "a:1");
        join(1, "job", all_of_them, 0, 0, false);
        mr_eq_u64(s.joined, 1);
        read_to_the_end(0, 1, "a:1");
        wait_s(1, 5);
        mr_eq_i64(s.finished, 0);
        if (comes) {
            serve(2, "b:1");
            mr_eq_u64(s.host, 2);
            wait_s(6, 10);
            mr_eq_i64(s.finished, 0);
            read_to_the_end(1, 1, "b:1");
            mr_eq_str(s.warning, "");
        } else {
            wait_s(6, 6);
            mr_has_str(s.warning, "job \"job\" goes on without worker b:1");
        }
        mr_eq_i64(s.finished, 1);
        mr__dispatcher_free(s.d);
    }
}

MR_TEST(a_repetition_waits_for_the_workers_of_the_one_before)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Join j = MR__WIRE__JOIN__INIT;
    Mr__Wire__Place p[2] = {MR__WIRE__PLACE__INIT, MR__WIRE__PLACE__INIT}, *list[2] = {p, p + 1};
    begin(NULL, 0); /* it kept no account */
    serve(100, "a:1");
    job.mode = all_of_them;
    job.block_length = 1;
    job.has_lists = true;
    job.repetition = 1;
    j.name = (char *)(uintptr_t) "job";
    j.job = &job;
    j.client_id = 1;
    j.begins = true;
    j.n_places = 2;
    j.places = list;
    p[1].stream = 1;
    p[0].home = (char *)(uintptr_t) "a:1";
    p[1].home = (char *)(uintptr_t) "b:1";
    mr__dispatcher_opened(s.d, 1, MR__WIRE__ROLE__CLIENT, "here", 1, s.now);
    say(1, MR__WIRE__MESSAGE__BODY_JOIN, &j);
    mr_eq_u64(s.joined, 1);
    read_to_the_end(0, 1, "a:1");
    wait_s(0, 5);
    mr_eq_i64(s.finished, 0);
    serve(2, "b:1");
    mr_eq_u64(s.host, 2);
    mr__dispatcher_free(s.d);
}

/* It lost its account, and the client has read all that it knows of meanwhile. */
MR_TEST(a_worker_that_no_client_named_begins_when_all_were_awaited)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Join j = MR__WIRE__JOIN__INIT;
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    begin(NULL, 0);
    wait_s(0, 0);
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
    mr__dispatcher_opened(s.d, 1, MR__WIRE__ROLE__CLIENT, "here", 1, s.now);
    say(1, MR__WIRE__MESSAGE__BODY_JOIN, &j);
    serve(2, "b:1");
    wait_s(1, 15);
    mr_eq_i64(s.finished, 0);
    mr_eq_u64(s.host, 2);
    mr_has_str(s.warning, "lost its account: 1 streams");
    read_to_the_end(2, 1, "b:1");
    mr_eq_i64(s.finished, 1);
    mr__dispatcher_free(s.d);
}

/* Its position is of a job that was lost, or does not count: it hears so. */
MR_TEST(a_position_that_cannot_count_is_never_taken_in_silence)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT, *list[1] = {&p};
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Join j = MR__WIRE__JOIN__INIT;
    uint64_t one = 0;
    begin(NULL, 0);
    serve(100, "a:1");
    join(1, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
    join(4, "job", MR__WIRE__MODE__DYNAMIC, 0, 0, false);
    job.mode = MR__WIRE__MODE__DYNAMIC;
    job.block_length = 1;
    job.has_lists = true;
    j.name = (char *)(uintptr_t) "job";
    j.job = &job;
    j.client_id = 2;
    j.restores = true;
    j.n_places = 1;
    j.places = list;
    mr__dispatcher_opened(s.d, 2, MR__WIRE__ROLE__CLIENT, "here", 1, s.now);
    say(2, MR__WIRE__MESSAGE__BODY_JOIN, &j); /* nothing was given out when it was saved */
    mr_eq_i64(s.code, 0);
    mr_has_str(s.warning, "restores a position goes on after what was acknowledged");
    p.n_splits = 1;
    p.splits = &one;
    j.client_id = 3;
    mr__dispatcher_opened(s.d, 3, MR__WIRE__ROLE__CLIENT, "here", 1, s.now);
    say(3, MR__WIRE__MESSAGE__BODY_JOIN, &j); /* of a split that is still to be given out */
    mr_eq_i64(s.code, MR_DATA_LOSS);
    mr_has_str(s.text, "lost its account");
    mr__dispatcher_free(s.d);
}

/* One of which nobody has said whose it is would go to any worker, which has its own. */
MR_TEST(streams_without_a_home_are_given_to_nobody_after_a_second_death)
{
    mr_status st;
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
    begin(NULL, 0);
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    job.mode = all_of_them;
    job.block_length = 1;
    job.has_lists = true;
    mr__record r = {.kind = MR__RECORD_JOB, .job_id = 7, .name = "job", .job = &job};
    mr_ok(mr__dispatcher_load(s.d, &r, &st), &st);
    r = (mr__record){.kind = MR__RECORD_STREAM, .job_id = 7, .place = &p};
    mr_ok(mr__dispatcher_load(s.d, &r, &st), &st);
    (void)mr__dispatcher_tick(s.d, s.now);
    serve(2, "a:1");
    join(1, "job", all_of_them, 0, 0, false);
    wait_s(1, 35);
    mr_eq_u64(s.host, 2);
    mr_eq_u64(s.hosted, 0);
    mr__dispatcher_free(s.d);
}
