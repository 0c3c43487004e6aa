/* SPDX-License-Identifier: Apache-2.0 */
/* The whole service through its public functions, in one process: dispatcher, workers, clients and
 * the requests of tools. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/sources.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "transport/service/dispatcher/dispatcher_service.h"
#include "transport/service/dispatcher/service_requests.h"
#include "transport/service/service.h"
#include "transport/service/worker/worker_service.h"

enum { ELEMENTS = 300 };

static mr_service_dispatcher *open_dispatcher(const char *state)
{
    mr_status st;
    mr_service_dispatcher *d;
    const mr_service_dispatcher_opts o = {.listen = "127.0.0.1:0", .state = state};
    mr_ok(mr_service_dispatcher_open(&d, &o, &st), &st);
    return d;
}

static mr_service_worker *open_worker(const mr_service_dispatcher *d)
{
    mr_status st;
    mr_service_worker *w;
    const mr_service_worker_opts o = {.dispatcher = mr_service_dispatcher_address(d)};
    mr_ok(mr_service_worker_open(&w, &o, &st), &st);
    return w;
}

static bool reports(const char *service, const char *what, const char *name, const char *text)
{
    mr_status st;
    char *json;
    mr_ok(mr_service_report(service, what, name, &(mr_service_request_opts){.timeout = 600}, &json,
                            &st),
          &st);
    bool has = strstr(json, text) != NULL;
    mr_test_context("the report \"%s\", which should have %s, is %.150s", what, text, json);
    mr_free(json);
    return has;
}

/* Waits until the report has this text. */
static void report_has(const char *service, const char *what, const char *name, const char *text)
{
    mr_await(reports(service, what, name, text));
    mr_test_context("%s", "");
}

static size_t read_all(mr_dataset *ds, mr_status *st)
{
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    size_t n = 0;
    bool seen[ELEMENTS] = {0};
    mr_ok(mr_iterator_open(&it, ds, NULL, st), st);
    mr_code rc;
    while ((rc = mr_iterator_next(it, 16, &b, st)) == MR_OK)
        for (size_t i = 0; i < b.rows; i++, n++) {
            int64_t v = ((const int64_t *)b.columns[0].data)[i];
            mr_check(v >= 0 && v < ELEMENTS && !seen[v]);
            seen[v] = true;
        }
    mr_code_is(rc, MR_END, st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return n;
}

MR_TEST(a_dispatcher_two_workers_and_a_client_in_one_process)
{
    mr_status st;
    mr_service_dispatcher *d = open_dispatcher(NULL);
    mr_service_worker *w[2] = {open_worker(d), open_worker(d)};
    const char *service = mr_service_dispatcher_address(d);
    char *text;
    mr_check(!strstr(service, ":0") || service[strlen(service) - 2] != ':');
    mr_check(!mr_service_dispatcher_status_address(d) && !mr_service_worker_status_address(w[0]));
    mr_ok(mr_service_dispatcher_start(d, &st), &st);
    for (int i = 0; i < 2; i++) {
        mr_ok(mr_service_worker_start(w[i], &st), &st);
        report_has(service, "workers", NULL, mr_service_worker_address(w[i]));
    }
    const mr_service_opts o = {.streams = 4, .job_name = "all"};
    mr_dataset *ds = mr_service_distribute(mr_range(0, ELEMENTS, 1), service, &o);
    mr_eq_u64(read_all(ds, &st), ELEMENTS);
    report_has(service, "jobs", NULL, "\"all\"");
    report_has(service, "streams", "all", "\"acknowledged\": 75");
    mr_ok(mr_service_status_text(service, 0, 0, NULL, &text, &st), &st);
    mr_has_str(text, "jobs 1, workers 2, streams 4");
    mr_has_str(text, mr_service_worker_address(w[0]));
    mr_free(text);
    mr_ok(mr_service_cancel(service, "all", NULL, &st), &st);
    mr_code_is(mr_service_cancel(service, "all", NULL, &st), MR_NOT_FOUND, &st);
    mr_code_is(mr_service_report(service, "streams", "all", NULL, &text, &st), MR_NOT_FOUND, &st);
    mr_code_is(mr_service_report(service, "drain", "all", NULL, &text, &st), MR_NOT_FOUND, &st);

    /* A drained worker ends by itself. */
    mr_ok(mr_service_drain(service, mr_service_worker_address(w[1]), NULL, &st), &st);
    mr_ok(mr_service_worker_wait(w[1], &st), &st);
    mr_service_worker_close(w[1]);
    mr_service_worker_stop(w[0]);
    mr_service_dispatcher_stop(d);
    mr_service_dispatcher_stop(d);
    mr_ok(mr_service_worker_wait(w[0], &st), &st);
    mr_ok(mr_service_dispatcher_wait(d, &st), &st);
    mr_service_worker_close(w[0]);
    mr_service_dispatcher_close(d);
}

/* ---- stopping ---- */

static mr_service_dispatcher *to_stop;

static void on_signal(int sig)
{
    (void)sig;
    mr_service_dispatcher_stop(to_stop);
}

typedef struct stopper {
    pthread_t runs;
    bool by_signal;
    mr_service_worker *worker; /* NULL: to_stop */
} stopper;

static void *stop_it(void *arg)
{
    const stopper *s = arg;
    usleep(20000);
    if (s->by_signal)
        pthread_kill(s->runs, SIGUSR1);
    else if (s->worker)
        mr_service_worker_stop(s->worker);
    else
        mr_service_dispatcher_stop(to_stop);
    return NULL;
}

static void count(void *ctx)
{
    ++*(int *)ctx;
}

MR_TEST(run_returns_when_a_thread_or_a_signal_handler_stops_it)
{
    mr_status st;
    signal(SIGUSR1, on_signal);
    for (int by_signal = 0; by_signal < 2; by_signal++) {
        pthread_t thread;
        int drains = 0;
        const mr_service_dispatcher_opts o = {
            .listen = "127.0.0.1:0", .no_uring = by_signal, .draining = count, .ctx = &drains};
        stopper s = {.runs = pthread_self(), .by_signal = by_signal};
        mr_ok(mr_service_dispatcher_open(&to_stop, &o, &st), &st);
        mr_check(pthread_create(&thread, NULL, stop_it, &s) == 0);
        mr_ok(mr_service_dispatcher_run(to_stop, &st), &st);
        pthread_join(thread, NULL);
        mr_eq_i64(drains, 1);
        mr_service_dispatcher_close(to_stop);
    }
    mr_service_dispatcher *d = open_dispatcher(NULL);
    mr_service_worker *w = open_worker(d);
    pthread_t thread;
    stopper s = {.worker = w};
    mr_check(pthread_create(&thread, NULL, stop_it, &s) == 0);
    mr_ok(mr_service_worker_run(w, &st), &st);
    pthread_join(thread, NULL);
    mr_service_worker_close(w);
    mr_service_dispatcher_close(d);
}

MR_TEST(a_cancel_object_stops_both)
{
    mr_status st;
    mr_cancel *cancel;
    mr_service_dispatcher *d;
    mr_service_worker *w;
    mr_ok(mr_cancel_new(NULL, &cancel, &st), &st);
    const mr_service_dispatcher_opts o = {.listen = "127.0.0.1:0", .cancel = cancel};
    mr_ok(mr_service_dispatcher_open(&d, &o, &st), &st);
    const mr_service_worker_opts wo = {.dispatcher = mr_service_dispatcher_address(d),
                                       .cancel = cancel};
    mr_ok(mr_service_worker_open(&w, &wo, &st), &st);
    mr_ok(mr_service_dispatcher_start(d, &st), &st);
    mr_ok(mr_service_worker_start(w, &st), &st);
    mr_cancel_trigger(cancel);
    mr_ok(mr_service_dispatcher_wait(d, &st), &st);
    mr_ok(mr_service_worker_wait(w, &st), &st);
    mr_service_worker_close(w);
    mr_service_dispatcher_close(d);
    mr_cancel_unref(cancel);
}

MR_TEST(each_runs_once)
{
    mr_status st;
    mr_service_dispatcher *d = open_dispatcher(NULL);
    mr_service_worker *w = open_worker(d);
    mr_code_is(mr_service_dispatcher_wait(d, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "dispatcher was not started");
    mr_code_is(mr_service_worker_wait(w, &st), MR_FAILED_PRECONDITION, &st);
    mr_service_dispatcher_stop(d); /* before it runs */
    mr_ok(mr_service_dispatcher_run(d, &st), &st);
    mr_code_is(mr_service_dispatcher_run(d, &st), MR_FAILED_PRECONDITION, &st);
    mr_code_is(mr_service_dispatcher_start(d, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "this dispatcher has run already");
    mr_ok(mr_service_worker_start(w, &st), &st);
    mr_code_is(mr_service_worker_run(w, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "this worker has run already");
    mr_service_worker_close(w); /* while it runs */
    mr_service_dispatcher_close(d);
    mr_service_worker_close(NULL);
    mr_service_dispatcher_close(NULL);
}

/* ---- options ---- */

MR_TEST(wrong_options_of_a_dispatcher_are_named)
{
    const char *addresses[] = {"127.0.0.1:1", "nonsense"}, *operators[] = {"worker", ""};
    const char *empty = mr_test_file("empty.token", "\n"), *file = mr_test_file("file", "");
    const struct {
        mr_service_dispatcher_opts o;
        mr_code code;
        const char *message;
    } cases[] = {
        {{.listen = "nonsense"}, MR_INVALID_ARGUMENT, "listen: an address is host:port"},
        {{.listen = "127.0.0.1:0", .status = "nonsense"}, MR_INVALID_ARGUMENT, "status: "},
        {{.listen = "127.0.0.1:0", .status = "0.0.0.0:0"}, MR_INVALID_ARGUMENT, "other hosts"},
        {{.listen = "127.0.0.1:0", .workers = addresses, .n_workers = 2},
         MR_INVALID_ARGUMENT,
         "workers: an address is host:port"},
        {{.listen = "127.0.0.1:0", .workers = addresses}, MR_INVALID_ARGUMENT, "n_workers"},
        {{.listen = "127.0.0.1:0", .n_workers = 65537}, MR_INVALID_ARGUMENT, "1 to 65536"},
        {{.listen = "127.0.0.1:0", .token_file = "none.token"},
         MR_INVALID_ARGUMENT,
         "token_file: none.token"},
        {{.listen = "127.0.0.1:0", .token_file = empty}, MR_INVALID_ARGUMENT, "1 to 4096 bytes"},
        {{.listen = "127.0.0.1:0", .operators = operators, .n_operators = 1},
         MR_INVALID_ARGUMENT,
         "with jobs_of_name_only"},
        {{.listen = "127.0.0.1:0", .jobs_of_name_only = true},
         MR_INVALID_ARGUMENT,
         "needs operators"},
        {{.listen = "127.0.0.1:0",
          .jobs_of_name_only = true,
          .operators = operators,
          .n_operators = 2},
         MR_INVALID_ARGUMENT,
         "name is empty"},
        {{.listen = "127.0.0.1:0",
          .jobs_of_name_only = true,
          .operators = operators,
          .n_operators = 1},
         MR_INVALID_ARGUMENT,
         "needs names"},
        {{.listen = "127.0.0.1:0", .state = file}, MR_FAILED_PRECONDITION, "not a directory"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_status st;
        mr_service_dispatcher *d;
        mr_test_context("case %zu", i);
        mr_code_is(mr_service_dispatcher_open(&d, &cases[i].o, &st), cases[i].code, &st);
        mr_has_str(st.message, cases[i].message);
    }
}

MR_TEST(wrong_options_of_a_worker_are_named)
{
    static const char at[] = "127.0.0.1:1";
    const struct {
        mr_service_worker_opts o;
        mr_code code;
        const char *message;
    } cases[] = {
        {{0}, MR_INVALID_ARGUMENT, "dispatcher"},
        {{.dispatcher = "127.0.0.1:0"}, MR_INVALID_ARGUMENT, "dispatcher: "},
        {{.dispatcher = at, .listen = "nonsense"}, MR_INVALID_ARGUMENT, "listen: "},
        {{.dispatcher = at, .status = "nonsense"}, MR_INVALID_ARGUMENT, "status: "},
        {{.dispatcher = at, .memory_limit = 1}, MR_INVALID_ARGUMENT, "at least 16777216"},
        {{.dispatcher = at, .memory_limit = -1}, MR_INVALID_ARGUMENT, "memory_limit"},
        {{.dispatcher = at, .token_file = "none.token"}, MR_INVALID_ARGUMENT, "none.token"},
        {{.dispatcher = at, .listen = "0.0.0.0:0"},
         MR_FAILED_PRECONDITION,
         "mr_service_restrict_files"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_status st;
        mr_service_worker *w;
        mr_test_context("case %zu", i);
        mr_code_is(mr_service_worker_open(&w, &cases[i].o, &st), cases[i].code, &st);
        mr_has_str(st.message, cases[i].message);
    }
    mr_status st;
    mr_service_worker *w;
    mr_code_is(mr_service_worker_open(&w, NULL, &st), MR_INVALID_ARGUMENT, &st);
}

MR_TEST(wrong_requests_are_named)
{
    mr_status st;
    char *text;
    const mr_service_request_opts token = {.token_file = "none.token"};
    mr_service_request_opts hasty = {.timeout = 0.05};
    mr_code rc;
    mr_code_is(mr_service_report("nonsense", "jobs", NULL, NULL, &text, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_has_str(st.message, "dispatcher: an address is host:port");
    mr_code_is(mr_service_report(NULL, "jobs", NULL, NULL, &text, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "dispatcher: the address is NULL");
    mr_code_is(mr_service_drain(NULL, "127.0.0.1:1", NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_service_report("127.0.0.1:1", NULL, NULL, NULL, &text, &st), MR_NOT_FOUND, &st);
    mr_code_is(mr_service_report("127.0.0.1:1", "jobs", NULL, &token, &text, &st),
               MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "none.token");
    while ((rc = mr_service_report("127.0.0.1:1", "jobs", NULL, &hasty, &text, &st)) ==
           MR_DEADLINE_EXCEEDED)
        hasty.timeout *= 2; /* a busy machine has not refused it yet */
    mr_code_is(rc, MR_UNAVAILABLE, &st);
    mr_has_str(st.message, "127.0.0.1:1");
    mr_dataset *ds = mr_range(0, 3, 0);
    mr_code_is(mr_service_register("127.0.0.1:1", ds, &hasty, &text, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_dataset_unref(ds);
    mr_ok(mr_service_check_address("127.0.0.1:0", true, &st), &st);
    mr_code_is(mr_service_check_address("127.0.0.1:0", false, &st), MR_INVALID_ARGUMENT, &st);
}

MR_TEST(tokens_are_read_from_their_file)
{
    mr_status st;
    mr_service_dispatcher *d;
    char *json;
    const char *right = mr_test_file("right", "secret\n"), *wrong = mr_test_file("wrong", "other");
    const mr_service_dispatcher_opts o = {.listen = "127.0.0.1:0", .token_file = right};
    const mr_service_request_opts with = {.token_file = right}, without = {.token_file = wrong};
    mr_log_set(NULL, NULL, MR_LOG_ERROR); /* a connection that is refused is a warning */
    mr_ok(mr_service_dispatcher_open(&d, &o, &st), &st);
    mr_ok(mr_service_dispatcher_start(d, &st), &st);
    const char *at = mr_service_dispatcher_address(d);
    mr_ok(mr_service_report(at, "jobs", NULL, &with, &json, &st), &st);
    mr_free(json);
    mr_code_is(mr_service_report(at, "jobs", NULL, &without, &json, &st), MR_PERMISSION_DENIED,
               &st);
    mr_service_dispatcher_close(d);
}

MR_TEST(status_pages_have_their_own_address)
{
    mr_status st;
    mr_service_dispatcher *d;
    mr_service_worker *w;
    const mr_service_dispatcher_opts o = {.listen = "127.0.0.1:0", .status = "127.0.0.1:0"};
    mr_ok(mr_service_dispatcher_open(&d, &o, &st), &st);
    const mr_service_worker_opts wo = {.dispatcher = mr_service_dispatcher_address(d),
                                       .status = "127.0.0.1:0"};
    mr_ok(mr_service_worker_open(&w, &wo, &st), &st);
    mr_has_str(mr_service_dispatcher_status_address(d), "127.0.0.1:");
    mr_has_str(mr_service_worker_status_address(w), "127.0.0.1:");
    mr_check(strcmp(mr_service_dispatcher_status_address(d), mr_service_dispatcher_address(d)) !=
             0);
    mr_service_worker_close(w);
    mr_service_dispatcher_close(d);
}

/* ---- state ---- */

MR_TEST(a_restart_goes_on_from_the_state_directory)
{
    mr_status st;
    char *id, *again, state[512];
    snprintf(state, sizeof state, "%s", mr_test_path("account"));
    for (int life = 0; life < 2; life++) {
        mr_service_dispatcher *d = open_dispatcher(state);
        mr_service_worker *w = open_worker(d);
        const char *service = mr_service_dispatcher_address(d);
        mr_dataset *ds = mr_range(0, ELEMENTS, 1);
        mr_ok(mr_service_dispatcher_start(d, &st), &st);
        mr_ok(mr_service_worker_start(w, &st), &st);
        mr_ok(mr_service_register(service, ds, NULL, life ? &again : &id, &st), &st);
        mr_dataset_unref(ds);
        if (life)
            mr_eq_str(again, id);
        else
            mr_eq_u64(
                read_all(mr_service_dataset(service, id, &(mr_service_opts){.job_name = "j"}), &st),
                ELEMENTS);
        report_has(service, "jobs", NULL, "\"finished\": true");
        mr_service_worker_close(w);
        mr_service_dispatcher_close(d);
    }
    mr_free(again);
    mr_free(id);
}

/* ---- files ---- */

static mr_code read_line(const char *service, const char *path, mr_status *st)
{
    mr_dataset *ds = mr_service_distribute(mr_text_line(&path, 1, NULL), service, NULL);
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = mr_iterator_open(&it, ds, NULL, st);
    if (rc == MR_OK)
        rc = mr_iterator_next(it, 1, &b, st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc;
}

MR_TEST(a_worker_open_to_others_reads_below_directories_only)
{
    mr_status st;
    char in[512], out[512], dir[512];
    snprintf(dir, sizeof dir, "%s", mr_test_path("in"));
    mr_check(mkdir(dir, 0777) == 0);
    snprintf(in, sizeof in, "%s", mr_test_file("in/a", "a\n"));
    snprintf(out, sizeof out, "%s", mr_test_file("b", "b\n"));
    const char *none = mr_test_path("none"), *both[] = {dir, out};
    mr_code_is(mr_service_restrict_files(&none, 1, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "none");
    mr_code_is(mr_service_restrict_files(both, 2, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_service_restrict_files(both, 257, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "at most 256");
    mr_code_is(mr_service_restrict_files((const char *[]){dir, NULL}, 2, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_has_str(st.message, "directory 1 is NULL");
    mr_code_is(mr_service_restrict_files(NULL, 1, &st), MR_INVALID_ARGUMENT, &st);
    mr_log_set(NULL, NULL, MR_LOG_ERROR); /* that it needs no token */
    mr_service_dispatcher *d = open_dispatcher(NULL);
    mr_service_worker *w;
    const char *service = mr_service_dispatcher_address(d);
    for (int twice = 0; twice < 2; twice++)
        mr_ok(mr_service_restrict_files(both, 1, &st), &st);
    mr_service_worker_opts o = {.dispatcher = service, .listen = "0.0.0.0:0"};
    mr_code_is(mr_service_worker_open(&w, &o, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "open to other hosts without TLS");
    o.insecure = true;
    mr_ok(mr_service_worker_open(&w, &o, &st), &st);
    mr_ok(mr_service_dispatcher_start(d, &st), &st);
    mr_ok(mr_service_worker_start(w, &st), &st);
    mr_ok(read_line(service, in, &st), &st);
    mr_code_is(read_line(service, out, &st), MR_PERMISSION_DENIED, &st);
    mr_has_str(st.message, "restricted");
    mr_service_worker_close(w);
    mr_service_dispatcher_close(d);
    mr_ok(mr_service_restrict_files(NULL, 0, &st), &st);
}

/* ---- faults ---- */

/* A worker looks its dispatcher's address up in a thread that nothing waits for: it frees what it
 * has when it is ready. */
static void wait_for_lookup(int64_t live)
{
    mr_await(mr_fault_live_allocations() <= live);
}

static void open_both(void)
{
    int64_t live = mr_fault_live_allocations();
    mr_status st;
    mr_service_dispatcher *d = NULL;
    mr_service_worker *w = NULL;
    const mr_service_dispatcher_opts o = {.listen = "127.0.0.1:0",
                                          .state = mr_test_path("state"),
                                          .token_file = mr_test_path("token"),
                                          .no_uring = true};
    const mr_service_worker_opts wo = {.dispatcher = "127.0.0.1:1",
                                       .token_file = o.token_file,
                                       .no_uring = true,
                                       .tags = (const char *[]){"a", "b"},
                                       .n_tags = 2};
    if (mr_fault_expect(mr_service_dispatcher_open(&d, &o, &st), &st) == MR_OK)
        mr_check(mr_service_dispatcher_address(d)[0]);
    mr_service_dispatcher_close(d);
    if (mr_fault_expect(mr_service_worker_open(&w, &wo, &st), &st) == MR_OK)
        mr_check(mr_service_worker_address(w)[0]);
    mr_service_worker_close(w);
    wait_for_lookup(live);
}

static bool refuses(mr_code rc, const mr_status *st)
{
    return rc == MR_FAILED_PRECONDITION && strstr(st->message, "this one was forked from");
}

MR_TEST(a_forked_child_cannot_use_them_and_does_not_wait)
{
    MR_TEST_THREADS_AFTER_FORK;
    mr_status st;
    mr_service_dispatcher *d = open_dispatcher(NULL), *idle = open_dispatcher(NULL);
    mr_service_worker *w = open_worker(d);
    const char *service = mr_service_dispatcher_address(d);
    mr_ok(mr_service_dispatcher_start(d, &st), &st);
    mr_ok(mr_service_worker_start(w, &st), &st);
    report_has(service, "workers", NULL, mr_service_worker_address(w));
    pid_t child = mr_test_fork();
    mr_check(child >= 0);
    if (child == 0) {
        alarm(60);
        bool ok = refuses(mr_service_dispatcher_wait(d, &st), &st) &&
                  refuses(mr_service_worker_wait(w, &st), &st) &&
                  refuses(mr_service_dispatcher_start(idle, &st), &st) &&
                  refuses(mr_service_dispatcher_run(idle, &st), &st);
        mr_service_worker_stop(w);
        mr_service_dispatcher_stop(d);
        mr_service_worker_close(w);
        mr_service_dispatcher_close(d);
        mr_service_dispatcher_close(idle);
        d = open_dispatcher(NULL); /* its own works */
        ok = ok && mr_service_dispatcher_start(d, &st) == MR_OK;
        mr_service_dispatcher_close(d);
        _exit(!ok);
    }
    int status;
    mr_check(waitpid(child, &status, 0) == child);
    mr_check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    mr_dataset *ds = mr_service_distribute(mr_range(0, ELEMENTS, 1), service, NULL);
    mr_eq_u64(read_all(ds, &st), ELEMENTS); /* the parent's still serve */
    mr_service_worker_close(w);
    mr_service_dispatcher_close(d);
    mr_service_dispatcher_close(idle);
}

MR_TEST(any_allocation_may_fail_when_they_are_opened)
{
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
    mr_test_file("token", "secret");
    mr_fault_each_allocation(n) open_both();
}

MR_TEST(any_system_call_may_fail_when_they_are_opened)
{
    static const int errors[] = {EIO, ENOMEM};
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
    mr_test_file("token", "secret");
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        mr_fault_each(n, MR_FAULT_SYSTEM_CALL, errors[i], false) open_both();
}
