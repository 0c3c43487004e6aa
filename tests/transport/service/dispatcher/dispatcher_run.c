/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher as it runs, over loopback: who connects, what is held back, how it ends. */
#include "transport/service/dispatcher/dispatcher_run.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "tests/harness.h"
#include "tests/transport/service/dispatcher/failing_vfs.h"
#include "transport/service/request.h"
#include "transport/service/status/daemon.h"
#include "transport/wire/connection.h"

typedef struct server {
    mr__dispatcher_run *r;
    mr_cancel *cancel;
    pthread_t thread;
    mr_code rc;
    mr_status st;
    char address[128];
} server;

static mr_code three_streams(void *ctx, const Mr__Wire__Job *job, uint32_t *n, mr_status *st)
{
    (void)ctx;
    (void)job;
    (void)st;
    *n = 3;
    return MR_OK;
}
static void *serve(void *arg)
{
    server *s = arg;
    s->rc = mr__dispatcher_run_serve(s->r, &s->st);
    return NULL;
}
static void start(server *s, mr__loop_kind loop, const char *state, mr__token token)
{
    mr_status st;
    *s = (server){0};
    mr_ok(mr_cancel_new(NULL, &s->cancel, &st), &st);
    mr__dispatcher_run_opts o = {.listen = "127.0.0.1:0",
                                 .state = state,
                                 .token = token,
                                 .loop = loop,
                                 .cancel = s->cancel,
                                 .streams = three_streams};
    mr_ok(mr__dispatcher_run_open(&s->r, &o, &st), &st);
    strcpy(s->address, mr__dispatcher_run_address(s->r));
    mr_check(pthread_create(&s->thread, NULL, serve, s) == 0);
}
static void stop(server *s)
{
    mr_cancel_trigger(s->cancel);
    pthread_join(s->thread, NULL);
    mr_ok(s->rc, &s->st);
    mr__dispatcher_run_close(s->r);
    mr_cancel_unref(s->cancel);
}

static mr_code ask_at(const char *address, mr__token token, const char *what, const char *name,
                      char **json, mr_status *st)
{
    mr__request_opts o = {.dispatcher = address, .token = token, .timeout_ns = 600000000000};
    Mr__Wire__Ask ask = MR__WIRE__ASK__INIT;
    ask.request = 7;
    ask.what = (char *)(uintptr_t)what;
    ask.name = (char *)(uintptr_t)name;
    if (strcmp(what, "register") == 0)
        ask.graph = (ProtobufCBinaryData){5, (uint8_t *)(uintptr_t) "graph"};
    mr__message *m;
    MR_TRY(mr__request(&o, &ask, &m, st));
    *json = strdup(m->report->json);
    mr__message_free(m);
    return MR_OK;
}
/* What `ask` says; valid until the next call. */
static const char *ask_for(const server *s, const char *what, const char *name)
{
    static char *json;
    mr_status st;
    free(json);
    json = NULL;
    mr_ok(ask_at(s->address, (mr__token){0}, what, name, &json, &st), &st);
    return json;
}

/* ---- a client or worker that a test writes by hand ---- */

typedef struct peer {
    mr__connection c;
    mr__loop *l;
    bool ready, closed;
    mr_status why;
    mr__message *last;
    int n;
} peer;

static void peer_ready(mr__connection *c)
{
    ((peer *)c)->ready = true;
}
static void peer_message(mr__connection *c, const mr__message *m)
{
    peer *p = (peer *)c;
    void *frame;
    size_t n;
    mr_status st;
    mr__message_free(p->last);
    mr_ok(mr__message_pack(m, &frame, &n, &st), &st);
    mr_ok(mr__message_unpack((char *)frame + MR__FRAME_BYTES, n - MR__FRAME_BYTES, &p->last, &st),
          &st);
    mr_free(frame);
    p->n++;
}
static void peer_closed(mr__connection *c, const mr_status *why)
{
    ((peer *)c)->closed = true;
    ((peer *)c)->why = *why;
}
static const mr__connection_class peers = {
    .ready = peer_ready, .message = peer_message, .closed = peer_closed};

static void connect_peer(peer *p, const server *s, Mr__Wire__Role role)
{
    mr_status st;
    mr__address at;
    *p = (peer){0};
    mr_ok(mr__loop_open(MR__LOOP_EPOLL, &p->l, &st), &st);
    mr_ok(mr__address_resolve(s->address, &at, &st), &st);
    p->c.class_ = &peers;
    mr_ok(mr__connection_open(&p->c, p->l, &at, role, (mr__token){0}, &st), &st);
    while (!p->ready)
        mr_ok(mr__loop_turn(p->l, INT64_MAX, &st), &st);
}
static void say(peer *p, int kind, void *body)
{
    mr_status st;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = (Mr__Wire__Message__BodyCase)kind;
    m.join = body;
    mr_ok(mr__connection_send(&p->c, &m, &st), &st);
}
static void hear(peer *p, int kind)
{
    mr_status st;
    while (!p->closed && (!p->last || (int)p->last->body_case != kind))
        mr_ok(mr__loop_turn(p->l, INT64_MAX, &st), &st);
    if (p->closed)
        mr_fail_test("closed while it waited for %d: %s; the last message was %d", kind,
                     p->why.message, p->last ? (int)p->last->body_case : 0);
}
static void let_go(peer *p)
{
    mr_status st;
    mr__connection_close(&p->c, NULL);
    while (!p->closed)
        mr_ok(mr__loop_turn(p->l, INT64_MAX, &st), &st);
    mr__message_free(p->last);
    mr__loop_close(p->l);
}
static void join(peer *p, const char *name)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    Mr__Wire__Join j = MR__WIRE__JOIN__INIT;
    job.graph = (ProtobufCBinaryData){5, (uint8_t *)(uintptr_t) "graph"};
    job.block_length = 1;
    job.has_lists = true;
    job.match = (char *)(uintptr_t) "client";
    j.request = 1;
    j.client_id = 5;
    j.name = (char *)(uintptr_t)name;
    j.job = &job;
    say(p, MR__WIRE__MESSAGE__BODY_JOIN, &j);
}

static const mr__loop_kind kinds[] = {MR__LOOP_AUTO, MR__LOOP_EPOLL};

MR_TEST(jobs_and_datasets_outlive_it)
{
    for (size_t k = 0; k < 2; k++) {
        server s;
        peer worker, client;
        Mr__Wire__Register reg = MR__WIRE__REGISTER__INIT;
        const char *dir = mr_test_path(k ? "b" : "a");
        reg.address = (char *)(uintptr_t) "127.0.0.1:9";
        start(&s, kinds[k], dir, (mr__token){0});
        connect_peer(&worker, &s, MR__WIRE__ROLE__WORKER);
        say(&worker, MR__WIRE__MESSAGE__BODY_REGISTER_WORKER, &reg);
        hear(&worker, MR__WIRE__MESSAGE__BODY_REGISTERED);
        connect_peer(&client, &s, MR__WIRE__ROLE__CLIENT);
        join(&client, "a job");
        hear(&client, MR__WIRE__MESSAGE__BODY_PLACED);
        hear(&worker, MR__WIRE__MESSAGE__BODY_HOST);
        mr_has_str(ask_for(&s, "status", ""), "{\"jobs\": 1, \"workers\": 1, \"streams\": 3, ");
        mr_has_str(ask_for(&s, "status", ""), dir);
        mr_has_str(ask_for(&s, "workers", ""), "[{\"worker\": \"127.0.0.1:9\", \"streams\": 3, "
                                               "\"state\": \"serving\"}]");
        mr_has_str(ask_for(&s, "streams", "a job"),
                   "{\"stream\": 2, \"worker\": \"127.0.0.1:9\", \"generation\": 1, "
                   "\"acknowledged\": 0, \"end\": false}]");
        char id[64];
        strcpy(id, ask_for(&s, "register", ""));
        mr_eq_str(ask_for(&s, "register", ""), id); /* the same graph */
        stop(&s);
        mr_status st;
        while (!client.closed)
            mr_ok(mr__loop_turn(client.l, INT64_MAX, &st), &st);
        mr_code_is(client.why.code, MR_END, &client.why); /* closed in good order */
        let_go(&client);
        let_go(&worker);

        start(&s, kinds[k], dir, (mr__token){0});
        mr_has_str(ask_for(&s, "jobs", ""), "\"job\": \"a job\"");
        mr_has_str(ask_for(&s, "jobs", ""),
                   "\"mode\": \"exactly_once\", \"streams\": 3, \"elements\": 0, "
                   "\"finished\": false}]");
        mr_has_str(ask_for(&s, "streams", "a job"), "\"generation\": 1");
        mr_eq_str(ask_for(&s, "register", ""), id);
        ask_for(&s, "cancel", "a job");
        mr_eq_str(ask_for(&s, "jobs", ""), "[]");
        stop(&s);
        start(&s, kinds[k], dir, (mr__token){0});
        mr_eq_str(ask_for(&s, "jobs", ""), "[]");
        stop(&s);
    }
}

MR_TEST(in_memory_it_forgets)
{
    server s;
    start(&s, MR__LOOP_EPOLL, NULL, (mr__token){0});
    mr_has_str(ask_for(&s, "status", ""), "\"state\": \"memory\"}");
    char *json;
    mr_status st;
    mr_code_is(ask_at(s.address, (mr__token){0}, "streams", "none", &json, &st), MR_NOT_FOUND, &st);
    mr_code_is(ask_at(s.address, (mr__token){0}, "cancel", "none", &json, &st), MR_NOT_FOUND, &st);
    mr_code_is(ask_at(s.address, (mr__token){0}, "drain", "1.2.3.4:5", &json, &st), MR_NOT_FOUND,
               &st);
    stop(&s);
}

static mr__request_opts late = {.dispatcher = "127.0.0.1:1"};
static int connects; /* at the second the time is over */

static int connect_late(int fd, const struct sockaddr *to, socklen_t size)
{
    if (++connects == 2)
        nanosleep(&(struct timespec){late.timeout_ns / 1000000000, late.timeout_ns % 1000000000},
                  NULL);
    return mr__system_real()->connect(fd, to, size);
}

/* Also where its last attempt is too late. */
MR_TEST(a_request_that_is_refused_says_so)
{
    Mr__Wire__Ask ask = MR__WIRE__ASK__INIT;
    mr__message *m;
    mr_status st;
    mr_code rc;
    mr__system table = *mr__system_real();
    table.connect = connect_late;
    mr__system_set(&table);
    do { /* a busy machine needs more time for a second attempt */
        connects = 0;
        late.timeout_ns += 300000000;
        rc = mr__request(&late, &ask, &m, &st);
    } while (connects < 2);
    mr__system_set(NULL);
    mr_code_is(rc, MR_UNAVAILABLE, &st);
    mr_has_str(st.message, "no dispatcher at 127.0.0.1:1: ");
    mr_has_str(st.message, "refused");
}

MR_TEST(another_token_is_refused)
{
    server s;
    char *json;
    mr_status st;
    start(&s, MR__LOOP_EPOLL, NULL, (mr__token){.data = "secret", .bytes = 6});
    mr_code_is(
        ask_at(s.address, (mr__token){.data = "secreu", .bytes = 6}, "status", "", &json, &st),
        MR_PERMISSION_DENIED, &st);
    mr_code_is(ask_at(s.address, (mr__token){0}, "status", "", &json, &st), MR_PERMISSION_DENIED,
               &st);
    mr_ok(ask_at(s.address, (mr__token){.data = "secret", .bytes = 6}, "status", "", &json, &st),
          &st);
    free(json);
    stop(&s);
}

/* ---- the log ---- */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static int n_garbage, n_way, n_refused, n_left_out;

static void take_line(void *ctx, mr_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    pthread_mutex_lock(&log_lock);
    n_garbage += strstr(line, "not a Millrace") != NULL || strstr(line, "frame") != NULL;
    n_way += strstr(line, "make room") != NULL;
    n_refused += strstr(line, "connections are refused") != NULL;
    if (strstr(line, "were left out"))
        n_left_out += atoi(line);
    pthread_mutex_unlock(&log_lock);
}

static int connect_raw(const server *s)
{
    mr__address at;
    mr_status st;
    mr_ok(mr__address_resolve(s->address, &at, &st), &st);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mr_check(fd >= 0 && connect(fd, (struct sockaddr *)&at.to, at.size) == 0);
    return fd;
}
/* Whether the peer ends it. */
static bool is_ended(int fd)
{
    char c;
    return read(fd, &c, 1) <= 0;
}

/* The first ones have a line each, and then their number is logged. */
MR_TEST(garbage_ends_one_connection_and_does_not_fill_the_log)
{
    enum { N = 50 };
    server s;
    char junk[200];
    mr_log_set(take_line, NULL, MR_LOG_WARNING);
    memset(junk, 'x', sizeof junk);
    start(&s, MR__LOOP_AUTO, NULL, (mr__token){0});
    for (int i = 0; i < N; i++) {
        int fd = connect_raw(&s);
        mr_check(write(fd, junk, sizeof junk) == sizeof junk);
        mr_check(is_ended(fd));
        close(fd);
    }
    mr_has_str(ask_for(&s, "status", ""), "\"jobs\": 0");
    stop(&s);
    mr_log_set(NULL, NULL, MR_LOG_WARNING);
    mr_eq_i64(n_garbage, 10);
    mr_eq_i64(n_left_out, N - 10);
}

MR_TEST(silent_connections_make_way_for_others)
{
    enum { N = 1100 };
    static int fds[N];
    server s;
    struct rlimit files = {4096, 4096};
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        mr_skip_test("no more than a few files may be open here");
    mr_log_set(take_line, NULL, MR_LOG_WARNING);
    start(&s, MR__LOOP_AUTO, NULL, (mr__token){0});
    for (int i = 0; i < N; i++)
        fds[i] = connect_raw(&s);
    mr_has_str(ask_for(&s, "status", ""), "\"jobs\": 0");
    mr_check(is_ended(fds[0]));
    pthread_mutex_lock(&log_lock);
    mr_check(n_way >= 1 && n_way <= 10);
    pthread_mutex_unlock(&log_lock);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    stop(&s);
    mr_log_set(NULL, NULL, MR_LOG_WARNING);
}

static void leaves(mr__guest *g, bool tell)
{
    mr_check(!g->is_ready && !tell);
}

/* Those that were closed to make room remain until the loop turns. */
MR_TEST(connections_that_come_at_once_are_bounded)
{
    enum { MOST = 1024 };
    mr__daemon d = {
        .guest_bytes = sizeof(mr__guest), .role = MR__WIRE__ROLE__DISPATCHER, .closed = leaves};
    mr_status st;
    int ends[2];
    struct rlimit files = {4096, 4096};
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        mr_skip_test("no more than a few files may be open here");
    mr_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    mr_ok(mr__daemon_open(&d, MR__LOOP_EPOLL, &st), &st);
    mr_ok(mr__daemon_listen(&d, "127.0.0.1:0", &st), &st);
    for (int i = 0; i < 2 * MOST + 10; i++)
        d.listener.accepted(&d.listener, dup(ends[0]));
    mr_eq_u64(d.n_guests, 2 * MOST);
    uint64_t closing = 0;
    for (const mr__guest *g = d.newest; g; g = g->next)
        closing += g->c.closing;
    mr_eq_u64(closing, MOST);
    mr_check(mr__daemon_stop(&d));
    mr_eq_u64(d.n_guests, 0);
    mr__daemon_end(&d, true);
    close(ends[0]);
    close(ends[1]);
}

static int64_t clock_s;

static int set_clock(clockid_t clock, struct timespec *out)
{
    (void)clock;
    *out = (struct timespec){.tv_sec = clock_s};
    return 0;
}

static uint64_t n_closing(const mr__daemon *d)
{
    uint64_t n = 0;
    for (const mr__guest *g = d->newest; g; g = g->next)
        n += g->c.closing;
    return n;
}

/* The seconds pass, and then the loop turns. */
static void pass(mr__daemon *d, int64_t seconds)
{
    mr_status st;
    clock_s += seconds;
    mr_ok(mr__loop_turn(d->loop, INT64_MIN, &st), &st);
}

static void goes(mr__guest *g, bool tell)
{
    (void)g;
    (void)tell;
}

/* They may have sent messages meanwhile. Here none did, so the last to be heard has its 10 s. */
MR_TEST(guests_are_not_silent_while_the_process_is_suspended)
{
    enum { MOST = 1024 };
    mr__daemon d = {
        .guest_bytes = sizeof(mr__guest), .role = MR__WIRE__ROLE__DISPATCHER, .closed = goes};
    mr_status st;
    int ends[2];
    struct rlimit files = {4096, 4096};
    mr__system table = *mr__system_real();
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        mr_skip_test("no more than a few files may be open here");
    table.clock_gettime = set_clock;
    clock_s = 1000;
    mr__system_set(&table);
    mr_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    mr_ok(mr__daemon_open(&d, MR__LOOP_EPOLL, &st), &st);
    mr_ok(mr__daemon_listen(&d, "127.0.0.1:0", &st), &st);
    mr_ok(mr__daemon_heed(&d, NULL, &st), &st);
    for (int i = 0; i < MOST; i++)
        d.listener.accepted(&d.listener, dup(ends[0]));
    for (mr__guest *g = d.newest; g; g = g->next) {
        g->is_ready = true;
        g->heard = mr__loop_now(d.loop) - 9 * INT64_C(1000000000);
    }
    pass(&d, 5);
    d.listener.accepted(&d.listener, dup(ends[0]));
    mr_eq_u64(n_closing(&d), 0);
    mr_eq_u64(d.n_guests, MOST);
    pass(&d, 1);
    d.listener.accepted(&d.listener, dup(ends[0]));
    mr_eq_u64(n_closing(&d), 1);
    mr__system_set(NULL);
    mr_check(mr__daemon_stop(&d));
    mr__daemon_end(&d, true);
    close(ends[0]);
    close(ends[1]);
}

MR_TEST(an_address_in_use_and_a_state_in_use_are_named)
{
    server s;
    mr_status st;
    mr__dispatcher_run *r;
    start(&s, MR__LOOP_AUTO, mr_test_dir(), (mr__token){0});
    mr__dispatcher_run_opts o = {.listen = s.address, .streams = three_streams};
    mr_code_is(mr__dispatcher_run_open(&r, &o, &st), MR_ALREADY_EXISTS, &st);
    mr_has_str(st.message, s.address);
    o.listen = "127.0.0.1:0";
    o.state = mr_test_dir();
    mr_code_is(mr__dispatcher_run_open(&r, &o, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "another dispatcher");
    o.listen = "nonsense";
    o.state = NULL;
    mr_code_is(mr__dispatcher_run_open(&r, &o, &st), MR_INVALID_ARGUMENT, &st);
    stop(&s);
}

/* It drains with a connection that never says anything, and one that never reads. */
MR_TEST(it_ends_whoever_is_connected)
{
    server s;
    start(&s, MR__LOOP_AUTO, mr_test_dir(), (mr__token){0});
    int fd = connect_raw(&s);
    peer p;
    connect_peer(&p, &s, MR__WIRE__ROLE__CLIENT);
    join(&p, "x");
    hear(&p, MR__WIRE__MESSAGE__BODY_JOINED);
    stop(&s);
    close(fd);
    let_go(&p);
}

/* While the disk is full, no message depends on what is not on it, new work is refused, and the
 * rest continues; afterwards everything continues. */
MR_TEST(nothing_is_said_before_it_is_durable)
{
    server s;
    peer first, second;
    mr_status st;
    char *json;
    mr_failing_vfs();
    mr_check(sqlite3_vfs_register(sqlite3_vfs_find("failing"), 1) == SQLITE_OK);
    start(&s, MR__LOOP_AUTO, mr_test_dir(), (mr__token){0});
    connect_peer(&first, &s, MR__WIRE__ROLE__CLIENT);
    connect_peer(&second, &s, MR__WIRE__ROLE__CLIENT);
    mr_failing_vfs_at(1, SQLITE_FULL, true);
    join(&first, "a");
    mr_ok(mr__loop_turn(first.l, mr__loop_now(first.l) + 1000000, &st), &st);
    while (!strstr(ask_for(&s, "status", ""), "\"disk_full\": true"))
        mr_ok(mr__loop_turn(first.l, mr__loop_now(first.l) + 10000000, &st), &st);
    join(&second, "b");
    hear(&second, MR__WIRE__MESSAGE__BODY_FAILED);
    mr_eq_i64(second.last->failed->status->code, MR_RESOURCE_EXHAUSTED);
    mr_has_str(second.last->failed->status->message, "free space in its state directory");
    mr_code_is(ask_at(s.address, (mr__token){0}, "register", "", &json, &st), MR_RESOURCE_EXHAUSTED,
               &st);
    for (int i = 0; i < 5; i++)
        mr_ok(mr__loop_turn(first.l, mr__loop_now(first.l) + 10000000, &st), &st);
    mr_eq_i64(first.n, 0);
    mr_failing_vfs_at(0, 0, false);
    hear(&first, MR__WIRE__MESSAGE__BODY_JOINED);
    while (strstr(ask_for(&s, "status", ""), "disk_full"))
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    let_go(&first);
    let_go(&second);
    stop(&s);
}
