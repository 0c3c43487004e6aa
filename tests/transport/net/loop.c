/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop on the kernel's engines: every test runs on io_uring and on epoll. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pipeline/system/system.h"
#include "tests/harness.h"
#include "transport/net/loop.h"

static const mr__loop_kind kinds[] = {MR__LOOP_EPOLL, MR__LOOP_URING};

/* Runs the body on each engine that the kernel allows; epoll is always there. */
static mr__loop *open_loop(mr__loop_kind kind)
{
    mr__loop *l = NULL;
    mr_status st;
    if (mr__loop_open(kind, &l, &st) != MR_OK) {
        mr_check(kind == MR__LOOP_URING);
        return NULL;
    }
    mr_test_context("%s", mr__loop_name(l));
    return l;
}
#define each_loop(l)                                                                               \
    for (size_t k_ = 0; k_ < 2; k_++)                                                              \
        for (mr__loop *l = open_loop(kinds[k_]); l; mr__loop_close(l), l = NULL)

static void turn(mr__loop *l)
{
    mr_status st;
    mr_ok(mr__loop_turn(l, INT64_MAX, &st), &st);
}

/* ---- a party: one end of a connection ---- */

typedef struct party {
    mr__socket socket;
    mr__send send;
    struct iovec v[2];
    uint8_t *out, *in;
    size_t out_bytes, in_bytes, got, most; /* most: bytes asked for at a time */
    int opened, closed, sent, dropped;
    bool paused, finish;
    mr_status why;
} party;

static void opened(mr__socket *s)
{
    party *p = (party *)s;
    p->opened++;
    if (p->out_bytes) {
        p->v[0] = (struct iovec){p->out, p->out_bytes / 3};
        p->v[1] = (struct iovec){p->out + p->out_bytes / 3, p->out_bytes - p->out_bytes / 3};
        mr__socket_send(s, &p->send);
    }
    if (p->finish)
        mr__socket_finish(s);
}
static void *room(mr__socket *s, size_t *n)
{
    party *p = (party *)s;
    if (p->paused || p->got == p->in_bytes)
        return NULL;
    *n = p->in_bytes - p->got < p->most ? p->in_bytes - p->got : p->most;
    return p->in + p->got;
}
static void received(mr__socket *s, size_t n)
{
    party *p = (party *)s;
    p->got += n;
}
static void closed(mr__socket *s, const mr_status *why)
{
    party *p = (party *)s;
    p->closed++;
    p->why = *why;
}
static void done(mr__send *s, bool sent)
{
    party *p = (party *)((char *)s - offsetof(party, send));
    sent ? p->sent++ : p->dropped++;
}
static const mr__socket_class party_class = {opened, room, received, closed};

static void make_party(party *p, size_t out_bytes, size_t in_bytes)
{
    memset(p, 0, sizeof *p);
    p->socket.class_ = &party_class;
    p->send = (mr__send){.v = p->v, .n = 2, .done = done};
    p->out_bytes = out_bytes;
    p->in_bytes = in_bytes;
    p->most = 1 << 20;
    p->out = malloc(out_bytes + 1);
    p->in = malloc(in_bytes + 1);
    for (size_t i = 0; i < out_bytes; i++)
        p->out[i] = (uint8_t)(i * 31 + i / 251);
}
static void free_party(party *p)
{
    free(p->out);
    free(p->in);
}

/* ---- a listener that passes accepted connections to a party ---- */

typedef struct door {
    mr__listener listener;
    party *guest; /* NULL: closes at once */
    int accepted, closed;
} door;

static void accepted(mr__listener *x, int fd)
{
    door *d = (door *)x;
    mr_status st;
    d->accepted++;
    if (d->guest && !d->guest->socket.class_)
        d->guest = NULL;
    if (d->guest && d->guest->socket.state == 0)
        mr_ok(mr__socket_adopt(x->loop, &d->guest->socket, fd, &st), &st);
    else
        close(fd);
}
static void door_closed(mr__listener *x)
{
    ((door *)x)->closed++;
}
static void open_door(mr__loop *l, door *d, party *guest)
{
    mr__address at;
    mr_status st;
    *d = (door){.listener = {.accepted = accepted, .closed = door_closed}, .guest = guest};
    mr_ok(mr__address_resolve("127.0.0.1:0", &at, &st), &st);
    mr_ok(mr__listen(l, &d->listener, &at, &st), &st);
}
static void close_door(mr__loop *l, door *d)
{
    mr__listener_close(&d->listener);
    while (!d->closed)
        turn(l);
    mr_eq_i64(d->closed, 1);
}
static void meet(mr__loop *l, door *d, party *host, party *guest)
{
    mr_status st;
    open_door(l, d, guest);
    mr_ok(mr__socket_connect(l, &host->socket, &d->listener.address, &st), &st);
}
static void part(mr__loop *l, party *p)
{
    mr__socket_close(&p->socket);
    while (!p->closed)
        turn(l);
    mr_eq_i64(p->closed, 1);
}

MR_TEST(both_ends_send_and_receive_megabytes_at_once)
{
    each_loop(l)
    {
        party a, b;
        door d;
        make_party(&a, 7000001, 5000003);
        make_party(&b, 5000003, 7000001);
        b.most = 4099;
        meet(l, &d, &a, &b);
        while (a.got < a.in_bytes || b.got < b.in_bytes || !a.sent || !b.sent)
            turn(l);
        mr_eq_mem(a.in, b.out, b.out_bytes);
        mr_eq_mem(b.in, a.out, a.out_bytes);
        mr_eq_i64(a.opened + b.opened, 2);
        mr_eq_u64(a.socket.queued_bytes, 0);
        part(l, &a);
        mr_eq_i64(a.why.code, MR_OK);
        part(l, &b);
        close_door(l, &d);
        free_party(&a);
        free_party(&b);
    }
}

MR_TEST(end_of_the_peer_is_seen_after_all_its_bytes)
{
    each_loop(l)
    {
        party a, b;
        door d;
        make_party(&a, 300000, 1);
        make_party(&b, 0, 400000);
        a.finish = true;
        meet(l, &d, &a, &b);
        while (!a.closed || !b.closed)
            turn(l);
        mr_eq_u64(b.got, 300000);
        mr_eq_mem(b.in, a.out, 300000);
        mr_eq_i64(b.why.code, MR_END);
        mr_eq_i64(a.sent, 1);
        close_door(l, &d);
        free_party(&a);
        free_party(&b);
    }
}

MR_TEST(paused_receiver_gets_nothing_until_it_asks)
{
    each_loop(l)
    {
        party a, b;
        door d;
        mr_status st;
        make_party(&a, 1 << 20, 1);
        make_party(&b, 0, 1 << 20);
        b.paused = true;
        meet(l, &d, &a, &b);
        while (!b.opened)
            turn(l);
        for (int i = 0; i < 20; i++)
            mr_ok(mr__loop_turn(l, mr__loop_now(l) + 1000000, &st), &st);
        mr_eq_u64(b.got, 0);
        b.paused = false;
        mr__socket_receive(&b.socket);
        while (b.got < b.in_bytes)
            turn(l);
        mr_eq_mem(b.in, a.out, a.out_bytes);
        part(l, &a);
        part(l, &b);
        close_door(l, &d);
        free_party(&a);
        free_party(&b);
    }
}

MR_TEST(closing_drops_what_is_queued_and_lets_memory_go)
{
    each_loop(l)
    {
        party a, b;
        door d;
        make_party(&a, 64 << 20, 1);
        make_party(&b, 0, 1);
        b.paused = true;
        meet(l, &d, &a, &b);
        while (!a.opened || !b.opened)
            turn(l);
        turn(l);
        part(l, &a);
        mr_eq_i64(a.sent, 0);
        mr_eq_i64(a.dropped, 1);
        free_party(&a); /* the kernel holds nothing of it */
        part(l, &b);
        close_door(l, &d);
        free_party(&b);
    }
}

/* Two ends of a stream, by TCP or local; the first is for a loop. */
static void connect_pair(int domain, int ends[2])
{
    if (domain == AF_UNIX) {
        mr_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        mr_check(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
        return;
    }
    struct sockaddr_storage at = {.ss_family = (sa_family_t)domain};
    socklen_t size = sizeof at;
    int listener = socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends[1] = socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mr_check(listen(listener, 1) == 0);
    mr_check(getsockname(listener, (struct sockaddr *)&at, &size) == 0);
    mr_check(connect(ends[1], (struct sockaddr *)&at, size) == 0);
    ends[0] = accept(listener, NULL, NULL);
    mr_check(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    close(listener);
}

/* A peer that leaves with unread bytes resets the connection, so that sending to it fails. */
MR_TEST(last_words_of_a_peer_that_cannot_be_sent_to_are_received)
{
    enum { WORDS = 50000, SPEECH = 1000 };
    static const int domains[] = {AF_INET, AF_UNIX};
    uint8_t *words = malloc(WORDS);
    for (size_t i = 0; i < WORDS; i++)
        words[i] = (uint8_t)(i % 251);
    for (size_t k = 0; k < 2; k++)
        each_loop(l)
        {
            party a;
            mr_status st;
            int ends[2];
            struct iovec more = {words, WORDS};
            make_party(&a, SPEECH, WORDS + 1);
            a.most = 700;
            connect_pair(domains[k], ends);
            mr_ok(mr__socket_adopt(l, &a.socket, ends[0], &st), &st);
            while (!a.sent)
                turn(l);
            mr_eq_i64(write(ends[1], words, WORDS), WORDS);
            close(ends[1]);
            a.send = (mr__send){.v = &more, .n = 1, .done = done};
            mr__socket_send(&a.socket, &a.send);
            while (!a.closed)
                turn(l);
            mr_eq_u64(a.got, WORDS);
            mr_eq_mem(a.in, words, WORDS);
            mr_check(a.why.code == MR_UNAVAILABLE || a.why.code == MR_END);
            mr_eq_i64(a.sent + a.dropped, 2);
            free_party(&a);
        }
    free(words);
}

MR_TEST(a_local_peer_that_only_stops_reading_ends)
{
    each_loop(l)
    {
        party a;
        mr_status st;
        int ends[2];
        struct iovec more = {(uint8_t[]){1}, 1};
        make_party(&a, 1000, 2);
        connect_pair(AF_UNIX, ends);
        mr_ok(mr__socket_adopt(l, &a.socket, ends[0], &st), &st);
        while (!a.sent)
            turn(l);
        mr_eq_i64(write(ends[1], "x", 1), 1);
        mr_eq_i64(shutdown(ends[1], SHUT_RD), 0);
        a.send = (mr__send){.v = &more, .n = 1, .done = done};
        mr__socket_send(&a.socket, &a.send);
        while (!a.closed)
            turn(l);
        mr_eq_u64(a.got, 1);
        mr_eq_i64(a.why.code, MR_UNAVAILABLE);
        close(ends[1]);
        free_party(&a);
    }
}

/* A paused receiver may wait until it has sent something. */
MR_TEST(a_paused_socket_that_cannot_send_ends)
{
    each_loop(l)
    {
        party a;
        mr_status st;
        int ends[2];
        struct iovec more = {(uint8_t[]){1}, 1};
        make_party(&a, 1000, 1);
        a.paused = true;
        connect_pair(AF_INET, ends);
        mr_ok(mr__socket_adopt(l, &a.socket, ends[0], &st), &st);
        while (!a.sent)
            turn(l);
        mr_eq_i64(write(ends[1], "x", 1), 1);
        close(ends[1]);
        a.send = (mr__send){.v = &more, .n = 1, .done = done};
        mr__socket_send(&a.socket, &a.send);
        while (!a.closed)
            turn(l);
        mr_eq_u64(a.got, 0);
        mr_eq_i64(a.why.code, MR_UNAVAILABLE);
        free_party(&a);
    }
}

MR_TEST(connecting_to_nobody_is_unavailable)
{
    each_loop(l)
    {
        party a;
        mr__address to;
        mr_status st;
        door d;
        open_door(l, &d, NULL);
        to = d.listener.address; /* a port that was free a moment ago */
        close_door(l, &d);
        make_party(&a, 0, 1);
        mr_ok(mr__socket_connect(l, &a.socket, &to, &st), &st);
        while (!a.closed)
            turn(l);
        mr_eq_i64(a.why.code, MR_UNAVAILABLE);
        mr_has_str(a.why.message, "refused");
        mr_eq_i64(a.opened, 0);
        free_party(&a);
    }
}

static int connect_errno;

static int connect_fails(int fd, const struct sockaddr *to, socklen_t size)
{
    (void)fd, (void)to, (void)size;
    errno = connect_errno;
    return -1;
}

/* A route that leads nowhere gives EINVAL, a firewall EPERM: neither is the caller's fault. */
MR_TEST(whatever_the_network_says_the_peer_is_unavailable)
{
    static const int errors[] = {EINVAL, EPERM, EACCES, EHOSTUNREACH, ETIMEDOUT, ENOENT};
    mr__system t = *mr__system_real();
    t.connect = connect_fails;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        party a;
        mr_status st;
        door d;
        mr__loop *l = open_loop(MR__LOOP_EPOLL);
        open_door(l, &d, NULL);
        make_party(&a, 0, 1);
        connect_errno = errors[i];
        mr__system_set(&t);
        mr_ok(mr__socket_connect(l, &a.socket, &d.listener.address, &st), &st);
        while (!a.closed)
            turn(l);
        mr__system_set(NULL);
        mr_eq_i64(a.why.code, MR_UNAVAILABLE);
        mr_eq_i64(a.why.sys_errno, errors[i]);
        free_party(&a);
        close_door(l, &d);
        mr__loop_close(l);
    }
}

MR_TEST(connect_under_way_can_be_closed)
{
    each_loop(l)
    {
        party a;
        door d;
        mr_status st;
        open_door(l, &d, NULL);
        make_party(&a, 0, 1);
        mr_ok(mr__socket_connect(l, &a.socket, &d.listener.address, &st), &st);
        part(l, &a);
        close_door(l, &d);
        free_party(&a);
    }
}

MR_TEST(second_listener_on_a_port_is_refused)
{
    each_loop(l)
    {
        door d;
        mr__listener other = {.accepted = accepted, .closed = door_closed};
        mr_status st;
        open_door(l, &d, NULL);
        mr_code_is(mr__listen(l, &other, &d.listener.address, &st), MR_ALREADY_EXISTS, &st);
        mr_has_str(st.message, d.listener.address.text);
        close_door(l, &d);
    }
}

MR_TEST(accepting_goes_on_after_descriptors_were_short)
{
    each_loop(l)
    {
        enum { N = 8 };
        party a[N];
        door d;
        mr_status st;
        struct rlimit old, few;
        getrlimit(RLIMIT_NOFILE, &old);
        open_door(l, &d, NULL);
        for (int i = 0; i < N; i++) {
            make_party(&a[i], 0, 1);
            mr_ok(mr__socket_connect(l, &a[i].socket, &d.listener.address, &st), &st);
        }
        few = old;
        few.rlim_cur = (rlim_t)a[N - 1].socket.fd + 1; /* none is free */
        setrlimit(RLIMIT_NOFILE, &few);
        for (int i = 0; i < 3; i++)
            mr_ok(mr__loop_turn(l, mr__loop_now(l) + 5000000, &st), &st);
        setrlimit(RLIMIT_NOFILE, &old);
        while (d.accepted < N)
            turn(l);
        for (int i = 0; i < N; i++)
            part(l, &a[i]);
        close_door(l, &d);
        for (int i = 0; i < N; i++)
            free_party(&a[i]);
    }
}

/* ---- timers and posted work ---- */

typedef struct alarm_clock {
    mr__timer timer;
    int fired;
    int64_t *last, at;
} alarm_clock;

static void ring_alarm(mr__timer *t)
{
    alarm_clock *a = (alarm_clock *)t;
    a->fired++;
    mr_check(t->at_ns >= *a->last);
    *a->last = t->at_ns;
}

MR_TEST(timers_fire_in_order_once_and_not_when_cleared)
{
    each_loop(l)
    {
        enum { N = 500 };
        static alarm_clock a[N];
        int64_t last = 0, start = mr__loop_now(l);
        uint64_t random = mr_test_seed();
        mr_status st;
        memset(a, 0, sizeof a);
        for (int i = 0; i < N; i++) {
            a[i].timer.fire = ring_alarm;
            a[i].last = &last;
            int64_t at = start + (int64_t)(mr_test_random(&random) % 20000000);
            mr_ok(mr__timer_set(l, &a[i].timer, at, &st), &st);
        }
        for (int i = 0; i < N; i += 3)
            mr__timer_clear(l, &a[i].timer);
        for (int i = 1; i < N; i += 3)
            mr_ok(mr__timer_set(l, &a[i].timer, start + i * 1000, &st), &st);
        int left = N - (N + 2) / 3, fired = 0;
        while (fired < left) {
            turn(l);
            fired = 0;
            for (int i = 0; i < N; i++)
                fired += a[i].fired;
            last = 0;
        }
        for (int i = 0; i < N; i++)
            mr_eq_i64(a[i].fired, i % 3 != 0);
        mr_check(mr__loop_now(l) - start >= 10000000);
    }
}

typedef struct note {
    mr__posted posted;
    int *count, number;
} note;

static void take_note(mr__posted *p)
{
    note *n = (note *)p;
    mr_eq_i64(*n->count, n->number);
    ++*n->count;
}

struct poster {
    mr__loop *l;
    note *notes;
    int n;
};

static void *post_all(void *p)
{
    struct poster *x = p;
    for (int i = 0; i < x->n; i++) {
        mr__loop_post(x->l, &x->notes[i].posted);
        if (i % 1000 == 0)
            usleep(500); /* so that the loop sleeps now and then: a lost wake-up would hang */
    }
    return NULL;
}

MR_TEST(posted_work_wakes_the_loop_and_keeps_its_order)
{
    each_loop(l)
    {
        enum { N = 20000 };
        int count = 0;
        note *notes = calloc(N, sizeof *notes);
        pthread_t thread;
        struct poster x = {l, notes, N};
        for (int i = 0; i < N; i++)
            notes[i] = (note){{.run = take_note}, &count, i};
        pthread_create(&thread, NULL, post_all, &x);
        while (count < N)
            turn(l);
        pthread_join(thread, NULL);
        free(notes);
    }
}

MR_TEST(addresses_are_checked)
{
    static const char *const bad[] = {
        "",        "localhost", ":5050",      "localhost:",   "host:port", "host:65536",
        "host:-1", "::1:5050",  "host:50 50", "127.0.0.1:5x", "@"};
    mr__address a;
    mr_status st;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_test_context("\"%s\"", bad[i]);
        mr_code_is(mr__address_resolve(bad[i], &a, &st), MR_INVALID_ARGUMENT, &st);
        mr_code_is(mr__address_check(bad[i], &st), MR_INVALID_ARGUMENT, &st);
    }
    mr_code_is(mr__address_check("host:0", &st), MR_INVALID_ARGUMENT, &st); /* it may listen */
    mr_ok(mr__address_check_form("host:0", &st), &st);
    mr_ok(mr__address_check("no-such-host.invalid:65535", &st), &st); /* not looked up */
    mr_ok(mr__address_check("[::1]:7", &st), &st);
    mr_ok(mr__address_check("@some-name", &st), &st);
    mr_test_context("%s", "");
    mr_ok(mr__address_resolve("localhost:5050", &a, &st), &st);
    mr_check(mr__address_is_loopback(&a));
    mr_ok(mr__address_resolve("[::1]:7", &a, &st), &st);
    mr_eq_str(a.text, "[::1]:7");
    mr_check(mr__address_is_loopback(&a));
    mr_ok(mr__address_resolve("192.0.2.1:80", &a, &st), &st);
    mr_check(!mr__address_is_loopback(&a));
    mr_ok(mr__address_resolve("@some-name", &a, &st), &st);
    mr_check(mr__address_is_loopback(&a));
}
