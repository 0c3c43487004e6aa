/* SPDX-License-Identifier: Apache-2.0 */
/* What a parameter server and a worker do with calls that no coordinator makes: they answer with an
 * error, or close that connection, and continue. */
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "tests/harness.h"
#include "trainer/servers/parameter_server.h"
#include "trainer/servers/server_connections.h"

static mr_status st;

typedef struct served {
    mr_cluster cluster;
    mr_server_opts opts;
    char address[256];
    pthread_mutex_t lock;
    pthread_cond_t moved;
    pthread_t thread;
    mr_code rc;
    mr_status why;
    mr__server_connections lines;
} served;

static void ready(void *ctx, const char *address)
{
    served *s = ctx;
    pthread_mutex_lock(&s->lock);
    snprintf(s->address, sizeof s->address, "%s", address);
    pthread_cond_signal(&s->moved);
    pthread_mutex_unlock(&s->lock);
}

static void *run(void *ctx)
{
    served *s = ctx;
    s->rc = mr_server_run(&s->opts, &s->why);
    return NULL;
}

static void connect_again(served *s)
{
    mr_ok(mr__server_connections_gather(&s->lines, 0, 1, false, 600, &st), &st);
}

/* Connects to s as one who coordinates or not. */
static void connect_as(mr__server_connections *l, const served *s, Mr__Wire__Role role)
{
    *l = (mr__server_connections){.role = role, .job = 7};
    mr_ok(mr__server_connections_open(l, 1, &st), &st);
    mr_ok(mr__server_connection_name(&l->v[0], "server", 0, s->address, &st), &st);
    mr_ok(mr__server_connections_gather(l, 0, 1, false, 600, &st), &st);
}

static void start_for(served *s, mr_task_type type, double gone_s)
{
    *s = (served){.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    mr_ok(mr_cluster_add(&s->cluster, type, "127.0.0.1:1", &st), &st);
    mr_ok(mr_cluster_set_task(&s->cluster, type, 0, &st), &st);
    s->opts = (mr_server_opts){.cluster = &s->cluster,
                               .listen = "127.0.0.1:0",
                               .gone_s = gone_s,
                               .ready = ready,
                               .ctx = s};
    mr_check(pthread_create(&s->thread, NULL, run, s) == 0);
    pthread_mutex_lock(&s->lock);
    while (!*s->address)
        pthread_cond_wait(&s->moved, &s->lock);
    pthread_mutex_unlock(&s->lock);
    connect_as(&s->lines, s, MR__WIRE__ROLE__TRAINER);
}

static void start(served *s, mr_task_type type)
{
    start_for(s, type, 0);
}

/* Asks it to end, which it does well. */
static void end(served *s)
{
    mr_ok(mr__server_connection_call(&s->lines, &s->lines.v[0], MR__CALL_END, NULL, NULL, 0, &st),
          &st);
    mr_ok(mr__server_connections_await(&s->lines, 1, &st), &st);
    mr__server_connections_close(&s->lines, true);
    pthread_join(s->thread, NULL);
    mr_ok(s->rc, &s->why);
    mr_cluster_reset(&s->cluster);
}

/* text: JSON in single quotes. Returns what the call ends with. */
static mr_code ask_by(mr__server_connections *l, mr__call_kind kind, const char *text,
                      const float *values, size_t n)
{
    char json[2048];
    snprintf(json, sizeof json, "%s", text);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *object = json_loads(json, 0, NULL);
    mr_check(json_is_object(object));
    mr_ok(mr__server_connection_call(l, &l->v[0], kind, object, values, n, &st), &st);
    json_decref(object);
    return mr__server_connections_await(l, 1, &st);
}

static mr_code ask(served *s, mr__call_kind kind, const char *text, const float *values, size_t n)
{
    return ask_by(&s->lines, kind, text, values, n);
}

#define VARIABLES                                                                                  \
    "[{'name': 'a', 'role': 0, 'shape': [4, 2]}, {'name': 'b', 'role': 1, 'shape': [2]}, "         \
    "{'name': 'c', 'role': 2, 'shape': []}]"
static const char good[] = "{'optimizer': 'sgd(1.0)', 'iterations': 0, 'variables': " VARIABLES "}";
static const float begin[11] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

static void values_are(served *s, const float *want)
{
    mr_ok(ask(s, MR__CALL_PULL, "{}", NULL, 0), &st);
    mr_eq_u64(s->lines.v[0].answer.n, 11);
    for (size_t i = 0; i < 11; i++)
        mr_eq_f64((double)s->lines.v[0].answer.values[i], (double)want[i], 0);
}

MR_TEST(a_parameter_server_refuses_what_it_cannot_keep)
{
    static const struct {
        const char *text;
        size_t n;
    } bad[] = {
        {"{}", 11},
        {"{'optimizer': 'sgd', 'iterations': 0}", 11},
        {"{'optimizer': 7, 'iterations': 0, 'variables': []}", 0},
        {"{'optimizer': 'sgd', 'iterations': '0', 'variables': []}", 0},
        {"{'optimizer': 'sgd', 'iterations': -1, 'variables': []}", 0},
        {"{'optimizer': 'sgd', 'iterations': 0, 'variables': {}}", 0},
        {"{'optimizer': 'sgd', 'iterations': 0, 'variables': [7]}", 0},
        {"{'optimizer': 'sgd', 'iterations': 0, 'variables': [{'name': 'a', 'role': 3, 'shape': "
         "[]}]}",
         1},
        {"{'optimizer': 'sgd', 'iterations': 0, 'variables': [{'name': 'a', 'role': -1, 'shape': "
         "[]}]}",
         1},
        {"{'optimizer': 'sgd', 'iterations': 0, 'variables': [{'name': 'a', 'role': 0.5, 'shape': "
         "[]}]}",
         1},
        {"{'optimizer': 'sgd', 'iterations': 0, 'variables': [{'name': 'a', 'role': 0, 'shape': "
         "[-4]}]}",
         4},
        {"{'optimizer': 'sgd', 'iterations': 0, 'variables': [{'name': 'a', 'role': 0, 'shape': "
         "['4']}]}",
         4},
        {"{'optimizer': 'sgd', 'iterations': 0, 'variables': [{'name': 'a', 'role': 0, 'shape': "
         "4}]}",
         4},
        {"{'optimizer': 'sgd', 'iterations': 0, 'variables': [{'name': 'a', 'role': 0, 'shape': "
         "[4611686018427387904, 4611686018427387904]}]}",
         4},
        {"{'optimizer': 'sgd', 'iterations': 0, 'variables': [{'name': 'a', 'role': 0, 'shape': "
         "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}]}",
         1},
        {"{'optimizer': 'none()', 'iterations': 0, 'variables': " VARIABLES "}", 11},
        {"{'optimizer': 'adam', 'iterations': 5, 'variables': " VARIABLES "}", 11}, /* no slots */
        {"{'optimizer': 'sgd', 'iterations': 0, 'variables': " VARIABLES "}", 10},
        {"{'optimizer': 'sgd', 'iterations': 0, 'learning_rate': 'x', 'variables': " VARIABLES "}",
         11}};
    served s;
    int watched = 0;
    socklen_t size = sizeof watched;
    start(&s, MR_TASK_PS);
    mr_check(getsockopt(s.lines.v[0].c.socket.fd, SOL_SOCKET, SO_KEEPALIVE, &watched, &size) == 0);
    mr_check(watched);
    mr_code_is(ask(&s, MR__CALL_PULL, "{}", NULL, 0), MR_FAILED_PRECONDITION, &st);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_test_context("%s", bad[i].text);
        mr_check(ask(&s, MR__CALL_PREPARE, bad[i].text, begin, bad[i].n) < 0);
        mr_check(s.lines.v[0].state == MR__SERVER_READY);
        mr_code_is(ask(&s, MR__CALL_READ, "{}", NULL, 0), MR_FAILED_PRECONDITION, &st);
    }
    mr_ok(ask(&s, MR__CALL_PREPARE, good, begin, 11), &st);
    values_are(&s, begin);
    mr_code_is(ask(&s, MR__CALL_STEP, "{}", NULL, 0), MR_INVALID_ARGUMENT, &st);
    s.lines.job = 8;
    mr_code_is(ask(&s, MR__CALL_PULL, "{}", NULL, 0), MR_FAILED_PRECONDITION, &st);
    end(&s);
}

MR_TEST(gradients_of_few_rows_are_whole_ones)
{
    static const char *const bad[] = {
        "{}",
        "{'rows': [-1, -1]}",
        "{'rows': [-1, -1], 'step': 0.5}",
        "{'step': 1, 'rows': 1}",
        "{'step': 1, 'rows': [-1]}",
        "{'step': 1, 'rows': [-1, -1, -1]}",
        "{'step': 1, 'rows': [-2, -1]}",
        "{'step': 1, 'rows': [5, -1]}",
        "{'step': 1, 'rows': [9223372036854775807, -1]}",
        "{'step': 1, 'rows': [1.5, -1]}",
        "{'step': 1, 'rows': [4, -1]}",
        "{'step': 1, 'rows': [3, -1]}"}; /* these are not row numbers */
    const float want[11] = {1, 2, 3 - 10, 4 - 20, 5, 6, 7 - 30, 8 - 40, 9 + 0.5F, 10 - 0.5F, 11};
    const uint32_t numbers[2] = {1, 3};
    float few[8] = {0, 0, 10, 20, 30, 40, 0.5F, -0.5F}, wrong[11];
    served s;
    memcpy(few, numbers, sizeof numbers);
    memset(wrong, 0x7f, sizeof wrong);
    start(&s, MR_TASK_PS);
    mr_ok(ask(&s, MR__CALL_PREPARE, good, begin, 11), &st);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_test_context("%s", bad[i]);
        mr_code_is(ask(&s, MR__CALL_PUSH, bad[i], wrong, 11), MR_DATA_LOSS, &st);
        values_are(&s, begin);
    }
    mr_ok(ask(&s, MR__CALL_PUSH, "{'step': 1, 'rows': [2, -1]}", few, 8), &st);
    values_are(&s, want);
    const uint32_t beyond = 4;
    float one[5] = {0, 1, 2, 0, 0};
    memcpy(one, &beyond, sizeof beyond);
    mr_code_is(ask(&s, MR__CALL_PUSH, "{'step': 2, 'rows': [1, -1]}", one, 5), MR_DATA_LOSS, &st);
    mr_has_str(st.message, "a has no row 4");
    values_are(&s, want);
    const float whole[10] = {0, 0, -10, -20, 0, 0, -30, -40, -0.5F, 0.5F};
    mr_ok(ask(&s, MR__CALL_PUSH, "{'step': 2, 'rows': [-1, -1]}", whole, 10), &st);
    values_are(&s, begin);
    end(&s);
}

/* Variables that are not trained are not pushed; the rate is the coordinator's. */
MR_TEST(updates_go_on_where_the_coordinator_had_them)
{
    static const char begun[] =
        "{'optimizer': 'sgd(1.0)', 'iterations': 5, 'learning_rate': 0.5, 'variables': "
        "[{'name': 'c', 'role': 2, 'shape': [2]}, {'name': 'm', 'role': 1, 'shape': [2]}, "
        "{'name': 'w', 'role': 0, 'shape': [2]}]}";
    const float pushed[4] = {10, 20, 2, 4}, more[4] = {0, 0, 4, 8};
    const float want[2][6] = {{1, 2, 13, 24, 4, 4}, {1, 2, 13, 24, 3, 2}};
    served s;
    start(&s, MR_TASK_PS);
    mr_ok(ask(&s, MR__CALL_PREPARE, begun, begin, 6), &st);
    for (int i = 0; i < 2; i++) {
        mr_ok(ask(&s, MR__CALL_PUSH,
                  i ? "{'step': 7, 'rows': [-1, -1]}" : "{'step': 6, 'rows': [-1, -1]}",
                  i ? more : pushed, 4),
              &st);
        mr_ok(ask(&s, MR__CALL_PULL, "{}", NULL, 0), &st);
        mr_eq_u64(s.lines.v[0].answer.n, 6);
        mr_eq_mem(s.lines.v[0].answer.values, want[i], sizeof want[i]);
        mr_ok(ask(&s, MR__CALL_RATE, "{'learning_rate': 0.25}", NULL, 0), &st);
    }
    mr_ok(ask(&s, MR__CALL_READ, "{}", NULL, 0), &st);
    int64_t made = 0;
    mr_ok(mr__call_integer(&s.lines.v[0].answer, "iterations", &made, &st), &st);
    mr_eq_i64(made, 7);
    end(&s);
}

/* A lost worker may have sent the gradients of the step that another makes again. */
MR_TEST(the_gradients_of_a_step_are_applied_once)
{
    static const char begun[] = "{'optimizer': 'sgd(1.0)', 'iterations': 5, 'after': 5, "
                                "'variables': [{'name': 'w', 'role': 0, 'shape': [1]}]}";
    const float first = 100, pushed = 1;
    char call[64];
    served s;
    start(&s, MR_TASK_PS);
    mr_ok(ask(&s, MR__CALL_PREPARE, begun, &first, 1), &st);
    /* Those up to `after` came before. */
    const struct {
        int step;
        float want;
    } pushes[] = {{5, 100}, {1, 100}, {7, 99}, {7, 99}, {6, 98}, {7, 98}, {6, 98}, {8, 97}};
    for (size_t i = 0; i < sizeof pushes / sizeof *pushes; i++) {
        mr_test_context("push %zu, of step %d", i, pushes[i].step);
        snprintf(call, sizeof call, "{'rows': [-1], 'step': %d}", pushes[i].step);
        mr_ok(ask(&s, MR__CALL_PUSH, call, &pushed, 1), &st);
        mr_ok(ask(&s, MR__CALL_PULL, "{}", NULL, 0), &st);
        mr_eq_mem(s.lines.v[0].answer.values, &pushes[i].want, sizeof(float));
    }
    end(&s);
}

/* ---- who is there ---- */

static mr__system table;
static atomic_llong ahead_ns; /* of the clock */

static int clock_ahead(clockid_t id, struct timespec *out)
{
    int rc = mr__system_real()->clock_gettime(id, out);
    out->tv_sec += (time_t)(atomic_load(&ahead_ns) / 1000000000);
    return rc;
}

static void let_an_hour_pass(void)
{
    atomic_fetch_add(&ahead_ns, 3600LL * 1000000000);
}

static void is_served(mr__server_connections *lines)
{
    for (int i = 0; i < 20; i++)
        mr_ok(ask_by(lines, MR__CALL_PULL, "{}", NULL, 0), &st);
}

/* An hour is longer than it waits. It does not stay for workers. */
MR_TEST(a_server_ends_when_no_coordinator_is_left)
{
    served s;
    mr__server_connections first, next, last, *worker = &s.lines;
    table = *mr__system_real();
    table.clock_gettime = clock_ahead;
    atomic_store(&ahead_ns, 0);
    mr__system_set(&table);
    start(&s, MR_TASK_PS);
    let_an_hour_pass(); /* it waits for the first one as long as that takes */
    connect_as(&first, &s, MR__WIRE__ROLE__COORDINATOR);
    mr_ok(ask_by(&first, MR__CALL_PREPARE, good, begin, 11), &st);
    is_served(worker);
    mr__server_connections_close(&first, true);
    connect_as(&next, &s, MR__WIRE__ROLE__COORDINATOR);
    mr_ok(ask_by(&next, MR__CALL_PREPARE, good, begin, 11), &st);
    let_an_hour_pass();
    is_served(worker);
    connect_as(&last, &s, MR__WIRE__ROLE__COORDINATOR);
    mr_ok(ask_by(&last, MR__CALL_PREPARE, good, begin, 11), &st);
    mr__server_connections_close(&next, true);
    is_served(worker);
    let_an_hour_pass();
    is_served(worker);
    mr__server_connections_close(&last, true);
    while (worker->v[0].state == MR__SERVER_READY) {
        let_an_hour_pass();
        mr_ok(mr__server_connections_turn(worker, &st), &st);
    }
    mr__server_connections_close(worker, false);
    pthread_join(s.thread, NULL);
    mr_code_is(s.rc, MR_UNAVAILABLE, &s.why);
    mr_has_str(s.why.message, "no coordinator has been connected");
    mr_cluster_reset(&s.cluster);
    mr__system_set(NULL);
}

/* More than may be there at a time. */
MR_TEST(callers_that_left_make_room)
{
    served s;
    mr__address at;
    start(&s, MR_TASK_PS);
    mr_ok(mr__address_resolve(s.address, &at, &st), &st);
    for (int i = 0; i < 4200; i++) {
        char c;
        int fd = socket(at.to.ss_family, SOCK_STREAM, 0);
        mr_check(fd >= 0 && connect(fd, (struct sockaddr *)&at.to, at.size) == 0);
        shutdown(fd, SHUT_WR);
        while (read(fd, &c, 1) > 0) /* until it has noticed */
            ;
        close(fd);
    }
    mr__server_connections other;
    connect_as(&other, &s, MR__WIRE__ROLE__TRAINER);
    mr__server_connections_close(&other, true);
    end(&s);
}

MR_TEST(some_of_many_are_enough_but_none_is_not)
{
    served s;
    mr__server_connections two = {.role = MR__WIRE__ROLE__TRAINER, .job = 7};
    start(&s, MR_TASK_PS);
    mr_ok(mr__server_connections_open(&two, 2, &st), &st);
    mr_ok(mr__server_connection_name(&two.v[0], "worker", 0, "127.0.0.1:1", &st), &st);
    mr_ok(mr__server_connection_name(&two.v[1], "worker", 1, s.address, &st), &st);
    mr_code_is(mr__server_connections_gather(&two, 0, 1, true, 0.01, &st), MR_DEADLINE_EXCEEDED,
               &st);
    mr_has_str(st.message, "still waiting for worker 0 (127.0.0.1:1)");
    mr_ok(mr__server_connections_gather(&two, 0, 2, true, 600, &st), &st);
    mr__server_connections_close(&two, true);
    end(&s);
}

/* ---- a server that answers without a call ---- */

static struct {
    mr__listener listener;
    mr__connection c;
    mr__server_connections lines;
    bool is_listening, is_open;
} liar;

static void lies(mr__connection *c, const mr__incoming *head, mr_buffer *payload)
{
    mr__call call;
    mr_ok(mr__call_read(head, payload, &call, &st), &st);
    mr_ok(mr__call_send(c, MR__CALL_ANSWER, call.job, call.number + 1, NULL, NULL, 0, &st), &st);
    mr__call_reset(&call);
}

static void nothing(mr__connection *c)
{
    (void)c;
}

static void left(mr__connection *c, const mr_status *why)
{
    (void)c;
    (void)why;
    liar.is_open = false;
}

static void taken(mr__listener *l, int fd)
{
    static const mr__connection_class class_ = {.ready = nothing, .block = lies, .closed = left};
    (void)l;
    liar.c.class_ = &class_;
    mr_ok(mr__connection_accept(&liar.c, liar.lines.loop, fd, MR__WIRE__ROLE__SERVER,
                                (mr__token){.any_user = true}, "", &st),
          &st);
    liar.is_open = true;
}

static void silent(mr__listener *l)
{
    (void)l;
    liar.is_listening = false;
}

MR_TEST(an_answer_to_another_call_is_none)
{
    mr__address at;
    memset(&liar, 0, sizeof liar);
    liar.lines.job = 7;
    mr_ok(mr__server_connections_open(&liar.lines, 1, &st), &st);
    mr_ok(mr__address_resolve("127.0.0.1:0", &at, &st), &st);
    liar.listener.accepted = taken;
    liar.listener.closed = silent;
    mr_ok(mr__listen(liar.lines.loop, &liar.listener, &at, &st), &st);
    liar.is_listening = true;
    mr_ok(
        mr__server_connection_name(&liar.lines.v[0], "server", 0, liar.listener.address.text, &st),
        &st);
    mr_ok(mr__server_connections_gather(&liar.lines, 0, 1, false, 600, &st), &st);
    mr_code_is(ask_by(&liar.lines, MR__CALL_PULL, "{}", NULL, 0), MR_UNAVAILABLE, &st);
    mr_has_str(st.message, "without a call");
    mr__listener_close(&liar.listener);
    while (liar.is_open || liar.is_listening)
        mr_ok(mr__server_connections_turn(&liar.lines, &st), &st);
    mr__server_connections_close(&liar.lines, true);
}

MR_TEST(rows_that_are_asked_for_are_given)
{
    static const char *const bad[] = {"{'rows': 1}",
                                      "{'rows': [-1, -1]}",
                                      "{'rows': [-1, -1, -1, -1]}",
                                      "{'rows': [-2, -1, -1]}",
                                      "{'rows': [1.5, -1, -1]}",
                                      "{'rows': [5, -1, -1]}",
                                      "{'rows': [9223372036854775807, -1, -1]}",
                                      "{'rows': [4, -1, -1]}",  /* fewer numbers came */
                                      "{'rows': [3, -1, -1]}"}; /* one is invalid */
    const float want[7] = {7, 8, 3, 4, 9, 10, 11};
    const uint32_t numbers[3] = {3, 1, 4};
    float few[3];
    served s;
    memcpy(few, numbers, sizeof numbers);
    start(&s, MR_TASK_PS);
    mr_ok(ask(&s, MR__CALL_PREPARE, good, begin, 11), &st);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_test_context("%s", bad[i]);
        mr_code_is(ask(&s, MR__CALL_PULL, bad[i], few, 3), MR_DATA_LOSS, &st);
        values_are(&s, begin);
    }
    mr_ok(ask(&s, MR__CALL_PULL, "{'rows': [2, -1, -1]}", few, 2), &st);
    mr_eq_u64(s.lines.v[0].answer.n, 7);
    for (size_t i = 0; i < 7; i++)
        mr_eq_f64((double)s.lines.v[0].answer.values[i], (double)want[i], 0);
    mr_ok(ask(&s, MR__CALL_PULL, "{'rows': [0, -1, 0]}", few, 0), &st);
    mr_eq_u64(s.lines.v[0].answer.n, 2);
    end(&s);
}

MR_TEST(a_worker_refuses_jobs_that_make_no_sense)
{
#define PARTS "'data': 'range(4)', 'model': 'dense(1)', 'loss': 'mse', 'optimizer': 'sgd'"
    static const char *const bad[] = {
        "{}",
        "{'data': 'range(', 'model': 'dense(1)', 'loss': 'mse', 'optimizer': 'sgd'}",
        "{" PARTS "}",
        "{" PARTS ", 'seed': 1, 'shape': 'x'}",
        "{" PARTS ", 'seed': 1, 'shape': [-1]}",
        "{" PARTS ", 'seed': 1, 'shape': [4.5]}",
        "{" PARTS ", 'seed': '1', 'shape': [4]}",
        "{" PARTS ", 'seed': 1, 'shape': [4], 'servers': 4}",
        "{" PARTS ", 'seed': 1, 'shape': [4], 'servers': []}",
        "{" PARTS ", 'seed': 1, 'shape': [4], 'servers': [7]}",
        "{" PARTS ", 'seed': 1, 'shape': [4], 'servers': ['nowhere']}"};
    served s;
    start(&s, MR_TASK_WORKER);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_test_context("%s", bad[i]);
        mr_check(ask(&s, MR__CALL_SETUP, bad[i], NULL, 0) < 0);
        mr_check(s.lines.v[0].state == MR__SERVER_READY);
        mr_code_is(ask(&s, MR__CALL_STEP, "{'step': 1, 'epoch': 1}", NULL, 0),
                   MR_FAILED_PRECONDITION, &st);
    }
    mr_code_is(ask(&s, MR__CALL_PULL, "{}", NULL, 0), MR_INVALID_ARGUMENT, &st);
    end(&s);
}

/* Frames that are not calls end their connection. A block without rows is one of them. */
MR_TEST(frames_that_are_no_calls_end_the_connection)
{
    served s;
    start(&s, MR_TASK_PS);
    for (int i = 0; i < 5; i++) {
        mr_test_context("frame %d", i);
        Mr__Wire__BlockHead head = MR__WIRE__BLOCK_HEAD__INIT;
        head.job_id = 7;
        head.stream = i == 1 ? 99 : MR__CALL_PULL;
        head.rows = i == 0 ? 0 : 1;
        head.position.data = (uint8_t *)(uintptr_t)(i == 2 ? "[1]" : "{}");
        head.position.len = i == 2 ? 3 : 2;
        Mr__Wire__Column column = MR__WIRE__COLUMN__INIT, *columns[] = {&column};
        if (i == 4) { /* values in shared memory that there is not */
            column.dtype = MR_FLOAT32;
            column.form = MR__WIRE__FORM__DENSE;
            column.bytes = sizeof(float) * 16;
            head.rows = 16;
            head.memory = column.bytes;
            head.columns = columns;
            head.n_columns = 1;
        }
        size_t n = mr__wire__block_head__get_packed_size(&head);
        uint8_t *frame = mr_malloc(MR__FRAME_BYTES + n);
        mr_check(frame != NULL);
        mr__wire__block_head__pack(&head, frame + MR__FRAME_BYTES);
        mr__frame_put(i == 3 ? MR__FRAME_MESSAGE : MR__FRAME_BLOCK, frame + MR__FRAME_BYTES, n, 0,
                      frame);
        mr_ok(mr__connection_send_frame(&s.lines.v[0].c, frame, MR__FRAME_BYTES + n, &st), &st);
        while (s.lines.v[0].state == MR__SERVER_READY)
            mr_ok(mr__server_connections_turn(&s.lines, &st), &st);
        connect_again(&s);
    }
    mr_ok(ask(&s, MR__CALL_PREPARE, good, begin, 11), &st);
    /* Whatever a byte of the object becomes, there is an answer. */
    for (size_t i = 0; i + 1 < sizeof good; i++) {
        static const char others[] = "{}[],:0-9'ex";
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        text[i] = others[i % (sizeof others - 1)];
        for (char *c = text; *c; c++)
            *c = *c == '\'' ? '"' : *c;
        json_t *object = json_loads(text, 0, NULL);
        if (json_is_object(object)) {
            mr_ok(mr__server_connection_call(&s.lines, &s.lines.v[0], MR__CALL_PREPARE, object,
                                             begin, 11, &st),
                  &st);
            (void)!mr__server_connections_await(&s.lines, 1, &st);
            mr_check(s.lines.v[0].state == MR__SERVER_READY);
        }
        json_decref(object);
    }
    mr_ok(ask(&s, MR__CALL_PREPARE, good, begin, 11), &st);
    values_are(&s, begin);
    end(&s);
}

typedef int look_up(const char *, const char *, const struct addrinfo *, struct addrinfo **);
static _Atomic(pthread_t) watched; /* the thread whose look-ups are counted; 0: none */
static atomic_int here, elsewhere;

/* In place of the C library's. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **out)
{
    look_up *real;
    void *p = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&real, &p, sizeof real);
    if (watched && pthread_equal(watched, pthread_self()))
        here++;
    else if (watched)
        elsewhere++;
    return real(host, port, hints, out);
}

MR_TEST(a_slow_name_holds_up_no_loop)
{
    served s;
    start(&s, MR_TASK_PS);
    mr__connection_close(&s.lines.v[0].c, NULL);
    while (s.lines.v[0].state == MR__SERVER_READY)
        mr_ok(mr__server_connections_turn(&s.lines, &st), &st);
    char name[300]; /* that only the C library's look-up reads */
    snprintf(name, sizeof name, "127.1%s", strrchr(s.address, ':'));
    mr_ok(mr__server_connection_name(&s.lines.v[0], "server", 0, name, &st), &st);
    watched = pthread_self();
    connect_again(&s);
    mr_eq_i64(here, 0);
    mr_check(elsewhere > 0);
    watched = 0;
    /* Lines may be closed while a name is looked up. */
    mr__server_connections others = {.role = MR__WIRE__ROLE__TRAINER};
    mr_ok(mr__server_connections_open(&others, 1, &st), &st);
    mr_ok(mr__server_connection_name(&others.v[0], "server", 0, name, &st), &st);
    mr_ok(mr__server_connections_dial(&others, 0, 1, &st), &st);
    mr_eq_i64(others.v[0].state, MR__SERVER_DIALING);
    mr__server_connections_close(&others, true);
    end(&s);
}

/* A coordinator may wait for workers for as long as it likes before it calls. */
MR_TEST(a_server_stays_while_a_coordinator_is_connected)
{
    for (int other = 1; other >= 0; other--) {
        mr__server_connections first, second;
        served s;
        start_for(&s, MR_TASK_PS, 1e-9);
        connect_as(&first, &s, MR__WIRE__ROLE__COORDINATOR);
        connect_as(&second, &s, other ? MR__WIRE__ROLE__COORDINATOR : MR__WIRE__ROLE__TRAINER);
        mr_ok(ask_by(&first, MR__CALL_PREPARE, good, begin, 11), &st);
        mr__server_connections_close(&first, false);
        for (int i = 0; i < 20 && other; i++) /* it has noticed after the first of them */
            values_are(&s, begin);
        if (other) {
            end(&s);
        } else {
            pthread_join(s.thread, NULL);
            mr_code_is(s.rc, MR_UNAVAILABLE, &s.why);
            mr__server_connections_close(&s.lines, false);
            mr_cluster_reset(&s.cluster);
        }
        mr__server_connections_close(&second, false);
    }
}
