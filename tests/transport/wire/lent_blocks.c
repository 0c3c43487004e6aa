/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that are sent without a copy, over loopback on both engines of the loop: what arrives is
 * what was sent, though the memory is written to as soon as the sender lets it go. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/system/system.h"
#include "tests/harness.h"
#include "transport/wire/connection.h"

MR_ONE_THREAD;

enum { LONG = 1 << 20, OTHER = 300001, OFFSET = 100, AT_ONCE = 8 };

/* ---- the system, as the tests want it ---- */

static struct {
    int64_t spliced;             /* bytes that went into pipes */
    int vmsplice, splice, pipe2; /* what they fail with; 0: they do not */
    int64_t after;               /* number of calls that succeed before */
    bool is_partial, has_small_pipes;
    uint64_t random;
} sys;

static bool fails(int err)
{
    errno = err;
    return err && sys.after-- <= 0;
}

static ssize_t a_vmsplice(int pipe, const struct iovec *v, size_t n, unsigned flags)
{
    ssize_t rc = fails(sys.vmsplice) ? -1 : mr__system_real()->vmsplice(pipe, v, n, flags);
    sys.spliced += rc > 0 ? rc : 0;
    return rc;
}

static ssize_t a_splice(int from, int to, size_t n, unsigned flags)
{
    size_t some = sys.is_partial ? 1 + mr_test_random(&sys.random) % 50000 : n;
    return fails(sys.splice) ? -1 : mr__system_real()->splice(from, to, some < n ? some : n, flags);
}

static int a_pipe2(int ends[2], int flags)
{
    return fails(sys.pipe2) ? -1 : mr__system_real()->pipe2(ends, flags);
}

static int a_fcntl(int fd, int command, int v)
{
    errno = EPERM;
    return sys.has_small_pipes && command == F_SETPIPE_SZ
               ? -1
               : mr__system_real()->fcntl(fd, command, v);
}

static void set_system(void)
{
    static mr__system t;
    memset(&sys, 0, sizeof sys);
    sys.random = mr_test_seed();
    t = *mr__system_real();
    t.vmsplice = a_vmsplice;
    t.splice = a_splice;
    t.pipe2 = a_pipe2;
    t.fcntl = a_fcntl;
    mr__system_set(&t);
}

/* ---- a sender that lends, and a receiver ---- */

typedef struct end {
    mr__connection c; /* first */
    int ready, closed;
    uint64_t blocks;
    const mr_spec *spec;
    mr_status why;
} end;

typedef struct pair {
    mr__loop *l;
    mr__listener door;
    end sender, receiver;
    mr_dataset *ds;
    const void *position; /* of the blocks */
    size_t position_bytes;
    uint64_t made;
    bool door_closed;
} pair;

static void fill(uint8_t *p, size_t n, uint64_t number)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(number * 7 + i + i / 4093);
}

static void ready(mr__connection *c)
{
    ((end *)c)->ready++;
}
static void message(mr__connection *c, const mr__message *m)
{
    (void)c;
    mr_eq_i64(m->body_case, MR__WIRE__MESSAGE__BODY_PULSE);
}
static void block(mr__connection *c, const mr__incoming *in, mr_buffer *payload)
{
    static uint8_t want[LONG];
    end *e = (end *)c;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_ok(mr__incoming_block(in, payload, e->spec, &b, &st), &st);
    mr_eq_u64(in->place.first, e->blocks);
    fill(want, LONG, e->blocks);
    mr_check(memcmp(b.columns[0].data, want, LONG) == 0);
    fill(want, OTHER, e->blocks + 1);
    mr_check(memcmp(b.columns[1].data, want, OTHER) == 0);
    e->blocks++;
    mr_block_reset(&b);
}
static void closed(mr__connection *c, const mr_status *why)
{
    ((end *)c)->closed++;
    ((end *)c)->why = *why;
}
static const mr__connection_class ends = {
    .ready = ready, .message = message, .block = block, .closed = closed, .lends = true};

static void accepted(mr__listener *x, int fd)
{
    pair *p = (pair *)((char *)x - offsetof(pair, door));
    mr_status st;
    p->sender.c.class_ = &ends;
    mr_ok(mr__connection_accept(&p->sender.c, p->l, fd, MR__WIRE__ROLE__WORKER,
                                (mr__token){.any_user = true}, "", &st),
          &st);
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
/* Some turns, also where nothing happens any more. */
static void turns(pair *p, int n)
{
    mr_status st;
    for (int i = 0; i < n; i++)
        mr_ok(mr__loop_turn(p->l, mr__loop_now(p->l) + 1000000, &st), &st);
}
static void settle(pair *p)
{
    turns(p, 50);
}

static bool begin(pair *p, mr__loop_kind kind)
{
    mr_status st;
    mr__address at;
    memset(p, 0, sizeof *p);
    if (mr__loop_open(kind, &p->l, &st) != MR_OK)
        return false;
    mr_test_context("%s", mr__loop_name(p->l));
    p->ds = mr_test_graph(
        "range(1).map(x => (zeros([1048576], \"uint8\"), zeros([300001], \"uint8\")))");
    p->receiver.spec = mr_dataset_spec(p->ds);
    p->door = (mr__listener){.accepted = accepted, .closed = door_closed};
    mr_ok(mr__address_resolve("127.0.0.1:0", &at, &st), &st);
    mr_ok(mr__listen(p->l, &p->door, &at, &st), &st);
    p->receiver.c.class_ = &ends;
    mr_ok(mr__connection_open(&p->receiver.c, p->l, &p->door.address, MR__WIRE__ROLE__CLIENT,
                              (mr__token){.any_user = true}, &st),
          &st);
    while (!p->sender.ready || !p->receiver.ready)
        turn(p);
    return true;
}

static void finish(pair *p)
{
    mr__connection_close(&p->receiver.c, NULL);
    while (!p->sender.closed || !p->receiver.closed)
        turn(p);
    mr_eq_u64(p->sender.c.lent_bytes, 0);
    mr__listener_close(&p->door);
    while (!p->door_closed)
        turn(p);
    mr__loop_close(p->l);
    mr_dataset_unref(p->ds);
}

static void column(mr_array *a, size_t n, size_t offset, uint64_t number)
{
    mr_status st;
    mr_buffer *b;
    mr_ok(mr_buffer_alloc(&b, n + offset, &st), &st);
    uint8_t *p = (uint8_t *)mr_buffer_data(b) + offset;
    fill(p, n, number);
    *a = (mr_array){.dtype = MR_UINT8,
                    .storage = MR_DENSE,
                    .rank = 1,
                    .shape = {(int64_t)n},
                    .rows = 1,
                    .data = p,
                    .owner = b};
}

static void send_one(pair *p)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr__outgoing o = {0};
    mr_status st;
    const mr__block_place place = {
        .first = p->made, .position = p->position, .position_bytes = p->position_bytes};
    mr_ok(mr_block_prepare(&b, 2, &st), &st);
    b.rows = 1;
    column(&b.columns[0], LONG, 0, p->made);
    column(&b.columns[1], OTHER, OFFSET, p->made + 1);
    p->made++;
    mr_ok(mr__outgoing_block(&o, &place, &b, 0, &st), &st);
    mr_ok(mr__connection_send_block(&p->sender.c, &o, &st), &st);
}

/* Whatever is free is used for something else. */
static void use_free_memory(void)
{
    enum { BUFFERS = 40 };
    mr_buffer *b[BUFFERS];
    mr_status st;
    for (size_t i = 0; i < BUFFERS; i++) {
        mr_ok(mr_buffer_alloc(&b[i], i % 2 ? LONG : OTHER + OFFSET, &st), &st);
        memset(mr_buffer_data(b[i]), 0xee, mr_buffer_size(b[i]));
    }
    for (size_t i = 0; i < BUFFERS; i++)
        mr_buffer_unref(b[i]);
}

/* Some at a time, read late. */
static void exchange(pair *p, uint64_t n)
{
    while (p->receiver.blocks < n) {
        mr__connection_pause(&p->receiver.c);
        while (p->made < n && p->made < p->receiver.blocks + AT_ONCE)
            send_one(p);
        settle(p);
        use_free_memory();
        mr__connection_resume(&p->receiver.c);
        uint64_t before = p->receiver.blocks;
        while (p->receiver.blocks == before)
            turn(p);
    }
}

static const mr__loop_kind kinds[] = {MR__LOOP_EPOLL, MR__LOOP_URING};
#define each_pair(p)                                                                               \
    for (size_t k_ = 0; k_ < 2; k_++)                                                              \
        for (pair p, *on_ = begin(&p, kinds[k_]) ? &p : NULL; on_; finish(&p), on_ = NULL)

/* Whether the kernel lets a process splice: a sandbox may not. */
static bool can_splice(void)
{
    int ends_[2];
    char c = 0;
    struct iovec v = {&c, 1};
    if (mr__system_real()->pipe2(ends_, O_CLOEXEC) != 0)
        return false;
    bool can = mr__system_real()->vmsplice(ends_[1], &v, 1, 0) == 1;
    mr__system_real()->close(ends_[0]);
    mr__system_real()->close(ends_[1]);
    return can;
}

MR_TEST_SLOW(what_is_lent_stays_until_a_slow_reader_has_it)
{
    set_system();
    each_pair(p)
    {
        sys.spliced = 0;
        exchange(&p, 60);
        mr_check(!can_splice() || sys.spliced > 50 * (int64_t)LONG);
    }
    mr__system_set(NULL);
}

MR_TEST_SLOW(partial_splices_and_small_pipes)
{
    set_system();
    sys.is_partial = true;
    for (int small = 0; small < 2; small++) {
        sys.has_small_pipes = small;
        each_pair(p) exchange(&p, 20);
    }
    mr__system_set(NULL);
}

/* Its memory is not the pool's, and free with the block. */
MR_TEST(a_long_head_is_copied)
{
    enum { ALL = 500000 };
    static const uint8_t position[ALL];
    set_system();
    each_pair(p)
    {
        p.position = position;
        p.position_bytes = ALL;
        sys.spliced = 0;
        exchange(&p, 1);
        mr_check(sys.spliced <= LONG + OTHER);
        mr_check(!can_splice() || sys.spliced >= LONG);
    }
    mr__system_set(NULL);
}

/* From the first call on, or in the middle: the rest is copied. */
MR_TEST_SLOW(where_pages_cannot_be_lent_they_are_copied)
{
    static const int errors[] = {EPERM, ENOSYS, EINVAL};
    for (int64_t after = 0; after < 12; after += 5)
        for (size_t e = 0; e < 3; e++)
            for (int call = 0; call < 3; call++) {
                set_system();
                sys.vmsplice = call == 0 ? errors[e] : 0;
                sys.splice = call == 1 ? errors[e] : 0;
                sys.pipe2 = call == 2 ? EMFILE : 0;
                each_pair(p)
                {
                    sys.after = after;
                    exchange(&p, 8);
                }
            }
    mr__system_set(NULL);
}

/* The sender is gone, and uses its memory for something else; what the peer still reads is as it
 * was. */
MR_TEST(what_was_lent_is_left_to_the_peer_when_the_connection_ends)
{
    each_pair(p)
    {
        mr__connection_pause(&p.receiver.c);
        for (int i = 0; i < 4; i++)
            send_one(&p);
        settle(&p);
        mr__connection_close(&p.sender.c, NULL);
        while (!p.sender.closed)
            turn(&p);
        mr_eq_u64(p.sender.c.lent_bytes, 0);
        for (int i = 0; i < 3; i++)
            use_free_memory();
        mr__connection_resume(&p.receiver.c);
        while (!p.receiver.closed)
            turn(&p);
        mr_check(p.receiver.blocks > 0);
    }
}

/* It is closed in the middle of a block, which the receiver then has not whole. */
MR_TEST(a_receiver_that_goes_in_the_middle_of_a_block)
{
    for (int blocks = 1; blocks < 12; blocks += 5)
        each_pair(p)
        {
            mr__connection_pause(&p.receiver.c);
            for (int i = 0; i < blocks; i++)
                send_one(&p);
            turns(&p, blocks);
            mr__connection_close(&p.receiver.c, NULL);
            while (!p.sender.closed || !p.receiver.closed)
                turn(&p);
            mr_eq_u64(p.sender.c.lent_bytes, 0);
        }
}

/* It has read all and closed in good order: the answer to the first pages of the next block is that
 * it is gone, in the middle of a call. */
MR_TEST(a_receiver_that_has_gone_ends_the_connection_and_not_the_process)
{
    signal(SIGPIPE, SIG_DFL);
    each_pair(p)
    {
        exchange(&p, 1);
        mr__connection_close(&p.receiver.c, NULL);
        while (!p.receiver.closed)
            turn(&p);
        if (!p.sender.closed) /* it has not heard of it */
            send_one(&p);
        while (!p.sender.closed)
            turn(&p);
        mr_eq_u64(p.sender.c.lent_bytes, 0);
    }
}

/* Of one that takes blocks and does not say so, memory is not kept without end. */
MR_TEST_SLOW(what_is_lent_to_one_peer_is_bounded)
{
    enum { MOST = 64 << 20 };
    each_pair(p)
    {
        p.receiver.c.handshake.lends = false; /* it does not know that it should */
        for (int i = 0; i < 100; i++) {
            send_one(&p);
            while (p.receiver.blocks < p.made)
                turn(&p);
            mr_check(p.sender.c.lent_bytes <= MOST);
        }
        mr_check(p.sender.c.lent_bytes > MOST / 2);
    }
    each_pair(q)
    {
        q.sender.c.handshake.confirms = false; /* as one of an earlier version */
        exchange(&q, 5);
        mr_check(!q.sender.c.lent_first);
    }
}

static void say_received(pair *p, uint64_t blocks)
{
    mr_status st;
    Mr__Wire__Received r = MR__WIRE__RECEIVED__INIT;
    r.blocks = blocks;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_RECEIVED;
    m.received = &r;
    mr_ok(mr__connection_send(&p->receiver.c, &m, &st), &st);
}

MR_TEST(blocks_that_were_not_sent_are_not_received)
{
    static const uint64_t wrong[] = {6, 0}; /* of 5 */
    for (size_t i = 0; i < 2; i++)
        each_pair(p)
        {
            exchange(&p, 5);
            say_received(&p, wrong[i]);
            while (!p.sender.closed)
                turn(&p);
            mr_eq_i64(p.sender.why.code, MR_DATA_LOSS);
            mr_has_str(p.sender.why.message, "not sent");
        }
}

/* What is too little for a separate message is reported with the next one. */
MR_TEST(a_pulse_lets_the_last_block_go)
{
    each_pair(p)
    {
        exchange(&p, 1);
        settle(&p);
        mr_eq_u64(p.sender.c.confirmed, 0);
        mr_check(p.sender.c.lent_first);
        mr_status st;
        Mr__Wire__Pulse pulse = MR__WIRE__PULSE__INIT;
        mr__message m = MR__WIRE__MESSAGE__INIT;
        m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
        m.pulse = &pulse;
        mr_ok(mr__connection_send(&p.receiver.c, &m, &st), &st);
        while (p.sender.c.lent_first)
            turn(&p);
        mr_eq_u64(p.sender.c.confirmed, 1);
        mr_eq_u64(p.sender.c.lent_bytes, 0);
    }
}
