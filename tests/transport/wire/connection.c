/* SPDX-License-Identifier: Apache-2.0 */
/* Connections over loopback, on both engines of the loop. */
#include <fcntl.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "tests/harness.h"
#include "transport/wire/connection.h"

MR_ONE_THREAD;

typedef struct end {
    mr__connection c;
    int ready, closed, messages, blocks;
    uint64_t rows;
    const mr_spec *spec;
    size_t longest;
    mr_status why;
} end;

static void ready(mr__connection *c)
{
    ((end *)c)->ready++;
}
static void message(mr__connection *c, const mr__message *m)
{
    end *e = (end *)c;
    mr_eq_i64(m->body_case, MR__WIRE__MESSAGE__BODY_REPORT);
    size_t n = strlen(m->report->json);
    mr_eq_u64(m->report->request, (uint64_t)e->messages);
    e->longest = n > e->longest ? n : e->longest;
    e->messages++;
}
static void block(mr__connection *c, const mr__incoming *in, mr_buffer *payload)
{
    end *e = (end *)c;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_eq_u64(in->place.first, e->rows);
    mr_ok(mr__incoming_block(in, payload, e->spec, &b, &st), &st);
    e->rows += b.rows;
    e->blocks++;
    mr_block_reset(&b);
}
static void closed(mr__connection *c, const mr_status *why)
{
    end *e = (end *)c;
    e->closed++;
    e->why = *why;
}
static const mr__connection_class ends = {
    .ready = ready, .message = message, .block = block, .closed = closed};

typedef struct pair {
    mr__loop *l;
    mr__listener door;
    end a, b;
    mr__token token;
    bool door_closed;
} pair;

static void accepted(mr__listener *x, int fd)
{
    pair *p = (pair *)((char *)x - offsetof(pair, door));
    mr_status st;
    p->b.c.class_ = &ends;
    mr_ok(mr__connection_accept(&p->b.c, p->l, fd, MR__WIRE__ROLE__WORKER, p->token, "", &st), &st);
}
static void door_closed(mr__listener *x)
{
    ((pair *)((char *)x - offsetof(pair, door)))->door_closed = true;
}
static void turn(pair *p)
{
    mr_status st;
    mr_ok(mr__loop_turn(p->l, INT64_MAX, &st), &st);
}
static bool begin(pair *p, mr__loop_kind kind, mr__token token)
{
    mr_status st;
    mr__address at;
    memset(p, 0, sizeof *p);
    if (mr__loop_open(kind, &p->l, &st) != MR_OK)
        return false;
    p->door = (mr__listener){.accepted = accepted, .closed = door_closed};
    p->token = token;
    mr_ok(mr__address_resolve("127.0.0.1:0", &at, &st), &st);
    mr_ok(mr__listen(p->l, &p->door, &at, &st), &st);
    return true;
}
static void finish(pair *p)
{
    mr__listener_close(&p->door);
    while (!p->door_closed)
        turn(p);
    mr__loop_close(p->l);
}
static void meet(pair *p, mr__token token)
{
    mr_status st;
    p->a.c.class_ = &ends;
    mr_ok(mr__connection_open(&p->a.c, p->l, &p->door.address, MR__WIRE__ROLE__CLIENT, token, &st),
          &st);
}
static void part(pair *p)
{
    mr__connection_close(&p->a.c, NULL);
    while (!p->a.closed || !p->b.closed)
        turn(p);
    mr_eq_i64(p->a.why.code, MR_OK);
    mr_eq_i64(p->b.why.code, MR_END);
}
static const mr__loop_kind kinds[] = {MR__LOOP_EPOLL, MR__LOOP_URING};

static void report(mr__connection *c, int number, size_t n)
{
    mr_status st;
    char *text = malloc(n + 1);
    memset(text, 'x', n);
    text[n] = 0;
    Mr__Wire__Report r = MR__WIRE__REPORT__INIT;
    r.request = (uint64_t)number;
    r.json = text;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_REPORT;
    m.report = &r;
    mr_ok(mr__connection_send(c, &m, &st), &st);
    free(text);
}

/* Certificates for both sides: one that is its own CA. */
static mr__tls *certificates(bool mutual)
{
    const char *cert = mr_test_path("cert.pem"), *key = mr_test_path("key.pem");
    char command[1024];
    mr__tls *tls;
    mr_status st;
    snprintf(
        command, sizeof command,
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 "
        "-subj /CN=test -addext subjectAltName=IP:127.0.0.1 -keyout '%s' -out '%s' 2>/dev/null",
        key, cert);
    mr_eq_i64(system(command), 0);
    const mr_tls_opts o = {.cert = cert, .key = key, .ca = cert, .client_ca = mutual ? cert : NULL};
    mr_ok(mr__tls_open(&tls, &o, MR__TLS_ACCEPTS | MR__TLS_CONNECTS, &st), &st);
    mr_check(mr__tls_accepts(tls) && mr__tls_connects(tls));
    mr_check(mr__tls_is_mutual(tls) == mutual);
    return tls;
}

MR_TEST_SLOW(messages_of_all_sizes_and_blocks_arrive_in_order)
{
    static const size_t sizes[] = {0, 1, 100, 30000, 33000, 65000, 66000, 200000, 5000000};
    for (size_t k = 0; k < 4; k++) {
        pair p;
        mr__token secret = {.data = "secret", .bytes = 6};
        mr_status st;
        mr_test_context("case %zu", k);
        secret.tls = k < 2 ? NULL : certificates(k == 2);
        if (!begin(&p, kinds[k % 2], secret)) {
            mr__tls_free(secret.tls);
            continue;
        }
        meet(&p, secret);
        while (!p.a.ready || !p.b.ready)
            turn(&p);
        static const char text[] = "range(10000000).map(x => (x, zeros([100])))";
        mr_iterator *it;
        mr_block b = MR_BLOCK_EMPTY;
        mr_dataset *ds = mr_test_graph(text);
        mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
        p.b.spec = mr_dataset_spec(ds);
        uint64_t rows = 0;
        int n = 0;
        for (; n < 200; n++) {
            report(&p.a.c, n, sizes[n % 9]);
            mr__outgoing o = {0};
            mr_ok(mr_iterator_next(it, n % 7 ? 100 : 5000, &b, &st), &st);
            mr__block_place place = {.first = rows};
            rows += b.rows;
            mr_ok(mr__outgoing_block(&o, &place, &b, 0, &st), &st);
            mr_ok(mr__connection_send_block(&p.a.c, &o, &st), &st);
            while (mr__connection_queued(&p.a.c) > 1 << 20)
                turn(&p);
        }
        while (p.b.messages < n || p.b.blocks < n)
            turn(&p);
        mr_eq_u64(p.b.rows, rows);
        mr_eq_u64(p.b.longest, 5000000);
        mr_check(p.a.c.is_secure == (k >= 2) && p.b.c.is_secure == (k >= 2));
        if (k >= 2) { /* what ties a local connection to this one */
            mr_check(memcmp(&p.a.c.tls.session.secret, &p.b.c.tls.session.secret,
                            sizeof(mr__tls_secret)) == 0);
            mr_eq_str(p.a.c.tls.session.peer, "/CN=test");
            mr_eq_str(p.b.c.tls.session.peer, k == 2 ? "/CN=test" : "");
        }
        part(&p);
        finish(&p);
        mr__tls_free(secret.tls);
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
}

/* Moves what `from` has encrypted to `to`.
 * returns  the number of records */
static int pass(mr__tls_session *from, mr__tls_session *to)
{
    int records = 0;
    mr__tls_bytes *o = &from->out;
    for (size_t at = o->from; at < o->n; records++)
        at += 5u + (size_t)(o->bytes[at + 3] << 8 | o->bytes[at + 4]);
    while (o->from < o->n) {
        size_t room, n = o->n - o->from;
        void *in = mr__tls_session_room(to, &room);
        mr_check(in);
        n = n < room ? n : room;
        memcpy(in, o->bytes + o->from, n);
        mr__tls_session_received(to, n);
        o->from += n;
    }
    o->from = o->n = 0;
    return records;
}

MR_TEST(each_side_changes_its_key_after_a_number_of_records)
{
    enum { LIMIT = 10, RECORDS = 1000 };
    mr__tls *tls = certificates(true);
    mr__tls_session s[2];
    mr_status st;
    char got[100], sent[100];
    size_t n;
    for (int i = 0; i < 2; i++)
        mr_ok(mr__tls_session_open(&s[i], tls, i == 0, "127.0.0.1", &st), &st);
    mr_eq_u64(s[0].most_records, MR__TLS_RECORDS);
    mr_ok(mr__tls_session_shake(&s[1], &st), &st);
    for (int i = 0; i < 6; i++) {
        pass(&s[!(i % 2)], &s[i % 2]);
        mr_ok(mr__tls_session_read(&s[i % 2], got, sizeof got, &n, &st), &st);
    }
    mr_check(s[0].is_open && s[1].is_open);
    s[0].most_records = s[1].most_records = LIMIT;
    int records[2] = {0};
    for (int i = 0; i < 2 * RECORDS; i++) {
        mr__tls_session *from = &s[i % 2], *to = &s[!(i % 2)];
        memset(sent, i, sizeof sent);
        mr_ok(mr__tls_session_write(from, sent, sizeof sent, &st), &st);
        records[i % 2] += pass(from, to);
        mr_ok(mr__tls_session_read(to, got, sizeof got, &n, &st), &st);
        mr_check(n == sizeof sent && memcmp(got, sent, n) == 0);
    }
    for (int i = 0; i < 2; i++) { /* each new key is announced by a record */
        mr_eq_i64(records[i], RECORDS + RECORDS / LIMIT - 1);
        mr__tls_session_close(&s[i]);
    }
    mr__tls_free(tls);
}

MR_TEST(errors_of_others_calls_to_openssl_are_not_the_sessions)
{
    mr__tls *tls = certificates(true);
    mr__tls_session s[2];
    mr_status st;
    char got[10];
    size_t n;
    for (int i = 0; i < 2; i++)
        mr_ok(mr__tls_session_open(&s[i], tls, i == 0, "127.0.0.1", &st), &st);
    mr_ok(mr__tls_session_shake(&s[1], &st), &st);
    for (int i = 0; i < 8; i++) { /* the last two have nothing to read */
        pass(&s[!(i % 2)], &s[i % 2]);
        ERR_raise(ERR_LIB_USER, 1);
        mr_ok(mr__tls_session_read(&s[i % 2], got, sizeof got, &n, &st), &st);
        mr_eq_u64(n, 0);
    }
    mr_check(s[0].is_open && s[1].is_open);
    for (int i = 0; i < 2; i++)
        mr__tls_session_close(&s[i]);
    mr__tls_free(tls);
}

MR_TEST(what_is_queued_by_tls_is_sent_before_the_end)
{
    mr__token secret = {.tls = certificates(true)};
    for (size_t k = 0; k < 2; k++) {
        pair p;
        if (!begin(&p, kinds[k], secret))
            continue;
        meet(&p, secret);
        while (!p.a.ready || !p.b.ready)
            turn(&p);
        for (int i = 0; i < 20; i++)
            report(&p.a.c, i, 100000);
        mr_check(mr__connection_queued(&p.a.c) > 20 * 100000);
        mr__connection_finish(&p.a.c);
        while (!p.a.closed || !p.b.closed)
            turn(&p);
        mr_eq_i64(p.b.messages, 20);
        mr_eq_i64(p.b.why.code, MR_END);
        finish(&p);
    }
    mr__tls_free(secret.tls);
}

MR_TEST(a_paused_connection_by_tls_passes_nothing_on)
{
    mr__token secret = {.tls = certificates(true)};
    for (size_t k = 0; k < 2; k++) {
        pair p;
        mr_status st;
        if (!begin(&p, kinds[k], secret))
            continue;
        meet(&p, secret);
        while (!p.a.ready || !p.b.ready)
            turn(&p);
        mr__connection_pause(&p.b.c);
        report(&p.a.c, 0, 10);
        report(&p.a.c, 1, 300000);
        for (int i = 0; i < 20; i++)
            mr_ok(mr__loop_turn(p.l, mr__loop_now(p.l) + 1000000, &st), &st);
        mr_eq_i64(p.b.messages, 0);
        mr__connection_resume(&p.b.c);
        while (p.b.messages < 2)
            turn(&p);
        part(&p);
        finish(&p);
    }
    mr__tls_free(secret.tls);
}

MR_TEST(another_token_closes_both_ends_with_the_reason)
{
    for (size_t k = 0; k < 2; k++) {
        pair p;
        if (!begin(&p, kinds[k], (mr__token){.data = "secret", .bytes = 6}))
            continue;
        meet(&p, (mr__token){.data = "secreT", .bytes = 6});
        while (!p.a.closed || !p.b.closed)
            turn(&p);
        mr_eq_i64(p.a.why.code, MR_PERMISSION_DENIED);
        mr_eq_i64(p.b.why.code, MR_PERMISSION_DENIED);
        mr_has_str(p.a.why.message, "tokens differ");
        mr_eq_i64(p.a.ready + p.b.ready, 0);
        finish(&p);
    }
}

/* A peer that sends these bytes and waits. */
static void stranger(const void *bytes, size_t n, mr_code want, const char *part_of)
{
    for (size_t k = 0; k < 2; k++) {
        pair p;
        if (!begin(&p, kinds[k], (mr__token){.any_user = true}))
            continue;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        mr_check(connect(fd, (struct sockaddr *)&p.door.address.to, p.door.address.size) == 0);
        mr_check(write(fd, bytes, n) == (ssize_t)n);
        if (want == MR_UNAVAILABLE)
            shutdown(fd, SHUT_WR);
        while (!p.b.closed)
            turn(&p);
        mr_eq_i64(p.b.why.code, want);
        mr_has_str(p.b.why.message, part_of);
        close(fd);
        finish(&p);
    }
}

MR_TEST(garbage_oversized_and_cut_input_ends_the_connection_with_a_reason)
{
    uint8_t fixed[MR__FRAME_BYTES];
    stranger("GET / HTTP/1.1\r\nHost: me\r\n\r\n", 28, MR_DATA_LOSS, "MRF1");
    mr__frame_put(MR__FRAME_MESSAGE, "", 0, 0, fixed);
    fixed[8] = fixed[9] = fixed[10] = 0xff; /* 16 MiB before the handshake */
    stranger(fixed, sizeof fixed, MR_RESOURCE_EXHAUSTED, "65536");
    mr__frame_put(MR__FRAME_BLOCK, "", 0, 1 << 20, fixed);
    stranger(fixed, sizeof fixed, MR_DATA_LOSS, "not requested");
    mr__frame_put(MR__FRAME_MESSAGE, "abc", 3, 0, fixed);
    stranger(fixed, sizeof fixed, MR_UNAVAILABLE, "handshake");
}

/* ---- local sockets, descriptors and shared memory ---- */

typedef struct local_end {
    mr__connection c; /* first */
    int ready, closed, passed, messages;
    mr__borrower *memory;
    uint64_t sum, rows;
    const mr_spec *spec;
} local_end;

static void local_ready(mr__connection *c)
{
    ((local_end *)c)->ready++;
}
static void local_message(mr__connection *c, const mr__message *m)
{
    local_end *e = (local_end *)c;
    mr_status st;
    int fd = mr__socket_take_passed(&c->socket);
    e->messages++;
    if (fd < 0)
        return;
    e->passed++;
    if (!e->memory)
        mr_ok(mr__borrower_new(&e->memory, fd, (size_t)m->memory->bytes, &st), &st);
    close(fd);
}
static void local_block(mr__connection *c, const mr__incoming *in, mr_buffer *payload)
{
    local_end *e = (local_end *)c;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    if (in->memory) {
        mr_buffer_unref(payload);
        mr_ok(mr__borrower_wrap(e->memory, in->memory_at, in->memory, in->raw, &payload, &st), &st);
    }
    mr_ok(mr__incoming_block(in, payload, e->spec, &b, &st), &st);
    for (size_t i = 0; i < b.rows; i++)
        e->sum += (uint64_t)((int64_t *)b.columns[0].data)[i];
    e->rows += b.rows;
    mr_block_reset(&b);
}
static void local_closed(mr__connection *c, const mr_status *why)
{
    (void)why;
    ((local_end *)c)->closed++;
}
static const mr__connection_class local_ends = {
    .ready = local_ready, .message = local_message, .block = local_block, .closed = local_closed};

typedef struct local_pair {
    mr__loop *l;
    mr__listener door;
    local_end a, b;
    bool door_closed;
} local_pair;

static void local_accepted(mr__listener *x, int fd)
{
    local_pair *p = (local_pair *)((char *)x - offsetof(local_pair, door));
    mr_status st;
    p->b.c.class_ = &local_ends;
    mr_ok(mr__connection_accept(&p->b.c, p->l, fd, MR__WIRE__ROLE__WORKER,
                                (mr__token){.any_user = true}, "", &st),
          &st);
}
static void local_door_closed(mr__listener *x)
{
    ((local_pair *)((char *)x - offsetof(local_pair, door)))->door_closed = true;
}

static void pass_memory(local_end *from, int fd, uint64_t bytes)
{
    mr_status st;
    Mr__Wire__Memory memory = MR__WIRE__MEMORY__INIT;
    memory.bytes = bytes;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_MEMORY;
    m.memory = &memory;
    mr_ok(mr__connection_pass(&from->c, &m, fd, &st), &st);
}

/* Blocks in shared memory, blocks that follow their head, and descriptors among them, arrive in
 * order; a descriptor that is not taken is closed with the socket. */
MR_TEST(memory_and_blocks_come_over_a_local_socket)
{
    enum { SHARED = 1 << 20, ROWS = 5000 };
    for (size_t k = 0; k < 2; k++) {
        local_pair p = {.door = {.accepted = local_accepted, .closed = local_door_closed}};
        mr__lender *lender;
        mr_status st;
        mr__address at;
        char name[64];
        int fd;
        if (mr__loop_open(kinds[k], &p.l, &st) != MR_OK)
            continue;
        snprintf(name, sizeof name, "@millrace-test-%d-%zu", (int)getpid(), k);
        mr_ok(mr__address_resolve(name, &at, &st), &st);
        mr_ok(mr__listen(p.l, &p.door, &at, &st), &st);
        p.a.c.class_ = &local_ends;
        mr_ok(mr__connection_open(&p.a.c, p.l, &at, MR__WIRE__ROLE__CLIENT,
                                  (mr__token){.any_user = true}, &st),
              &st);
        static const char text[] = "range(1500000)";
        mr_iterator *it;
        mr_dataset *ds = mr_test_graph(text);
        p.a.spec = mr_dataset_spec(ds);
        mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
        while (!p.a.ready || !p.b.ready)
            mr_ok(mr__loop_turn(p.l, INT64_MAX, &st), &st);
        mr_ok(mr__lender_new(&lender, SHARED, &fd, &st), &st);
        pass_memory(&p.b, fd, SHARED);
        size_t lent = 0, n = 0;
        uint64_t rows = 0, done[64];
        mr_block b = MR_BLOCK_EMPTY;
        while (mr_iterator_next(it, ROWS, &b, &st) == MR_OK) {
            mr__outgoing o = {0};
            const mr__block_place place = {.first = rows, .lender = n % 3 ? lender : NULL};
            rows += b.rows;
            mr_ok(mr__outgoing_block(&o, &place, &b, 0, &st), &st);
            lent += o.lender != NULL;
            mr_ok(mr__connection_send_block(&p.b.c, &o, &st), &st);
            if (n++ % 50 == 0)
                pass_memory(&p.b, open("/dev/null", O_RDONLY | O_CLOEXEC), 1);
            if (n % 7 == 0)
                mr_ok(mr__loop_turn(p.l, INT64_MAX, &st), &st);
            for (size_t i = p.a.memory ? mr__borrower_done(p.a.memory, 0, done, 64) : 0; i; i--)
                mr_check(mr__lender_give(lender, done[i - 1]));
        }
        while (p.a.rows < rows)
            mr_ok(mr__loop_turn(p.l, INT64_MAX, &st), &st);
        mr_eq_u64(rows, 1500000);
        mr_eq_u64(p.a.sum, rows * (rows - 1) / 2);
        mr_check(lent > 1 && lent < n);
        mr_eq_i64(p.a.passed, p.a.messages);
        mr_eq_i64(p.a.passed, (int)((n + 49) / 50) + 1);
        mr__connection_close(&p.a.c, NULL);
        while (!p.a.closed || !p.b.closed)
            mr_ok(mr__loop_turn(p.l, INT64_MAX, &st), &st);
        mr__listener_close(&p.door);
        while (!p.door_closed)
            mr_ok(mr__loop_turn(p.l, INT64_MAX, &st), &st);
        mr__loop_close(p.l);
        mr__borrower_unref(p.a.memory);
        mr__lender_unref(lender);
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
}
