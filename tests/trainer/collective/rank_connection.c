/* SPDX-License-Identifier: Apache-2.0 */
/* A process of a job with a token does not accept a peer that leaves out a step of the handshake,
 * repeats one, sends back what was sent to it, or takes the other side's part. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pipeline/memory/alloc.h"
#include "tests/harness.h"
#include "trainer/collective/processes/rank_connection.h"

MR_ONE_THREAD;

enum { KINDS = MR__RANK_WELCOME, STEPS = 3 };

static const mr__token token = {.data = "secret", .bytes = 6};

/* A connection over fd, which requires t. */
static mr__rank_connection *begin(int fd, bool incoming, const mr__token *t)
{
    mr_status st;
    mr__rank_connection *c = mr_calloc(1, sizeof *c);
    c->fd = fd;
    c->passed = -1;
    c->incoming = incoming;
    c->role = incoming ? MR__ROLE_INCOMING : MR__ROLE_CONTROL;
    mr_ok(mr__rank_connection_begin(c, t, "", &st), &st);
    return c;
}

/* The next message of a peer that does not know the token; sent: the last proof that came to it. */
static void say(int fd, mr__rank_message kind, const uint8_t *sent)
{
    mr__outbox o = {0};
    mr_status st, why;
    const uint8_t nonce[MR__RANK_NONCE] = {1};
    const mr__hello hello = {.rank = 1, .world = 2, .node = "n", .machine_id = "m", .local = ""};
    mr_fail(&why, MR_INTERNAL, "something");
    mr_code rc = kind == MR__RANK_HELLO   ? mr__write_hello(&o, &hello, &st)
                 : kind == MR__RANK_DATA  ? mr__write_data(&o, 1, nonce, &st)
                 : kind == MR__RANK_ABORT ? mr__write_abort(&o, &why, &st)
                 : kind >= MR__RANK_ASK   ? mr__write_proof(&o, kind, sent, &st)
                                          : mr__write_empty(&o, kind, &st);
    mr_ok(rc, &st);
    (void)!send(fd, o.data, o.size, MSG_NOSIGNAL); /* it may be refused already */
    mr__outbox_reset(&o);
}

/* Reads what came to the peer: messages of the handshake alone, or a refusal. */
static void hear(int fd, bool incoming, uint8_t sent[MR__RANK_PROOF_BYTES])
{
    unsigned char head[MR__RANK_HEAD_BYTES], payload[4096];
    while (recv(fd, head, sizeof head, 0) == sizeof head) {
        uint32_t version;
        mr__rank_message kind;
        size_t bytes;
        mr_status st;
        mr_ok(mr__read_head(head, &version, &kind, &bytes, &st), &st);
        mr_check(bytes <= sizeof payload && recv(fd, payload, bytes, 0) == (ssize_t)bytes);
        mr_check(incoming ? kind == MR__RANK_CHALLENGE || kind == MR__RANK_ABORT
                          : kind == MR__RANK_ASK || kind == MR__RANK_PROOF);
        if (kind != MR__RANK_ABORT)
            mr_ok(mr__read_proof(payload, bytes, sent, &st), &st);
    }
}

/* Serves c once. false: it is over, or the peer has said why it refuses. */
static bool serve(mr__rank_connection *c)
{
    bool whole;
    mr_status why;
    if (!mr__rank_connection_receive(c, &whole, &why)) {
        mr_check(*why.message);
        if (c->incoming)
            mr__rank_connection_refuse(c, why.message);
        (void)!mr__rank_connection_send(c, NULL);
        return false;
    }
    return mr__rank_connection_send(c, &why) && !whole;
}

static void try_steps(bool incoming, bool echoes, unsigned steps)
{
    int pair[2];
    uint8_t sent[MR__RANK_PROOF_BYTES] = {0};
    const uint8_t zeros[MR__RANK_PROOF_BYTES] = {0};
    mr_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    mr__rank_connection *c = begin(pair[0], incoming, &token);
    bool goes_on = serve(c);
    for (unsigned i = 0; i < STEPS && goes_on; i++, steps /= KINDS) {
        hear(pair[1], incoming, sent);
        say(pair[1], (mr__rank_message)(1 + steps % KINDS), echoes ? sent : zeros);
        goes_on = serve(c);
        mr_check(!c->known);
        if (!goes_on && c->has_head && c->got == c->bytes && !c->refused)
            mr_check(!incoming && (c->kind == MR__RANK_ABORT || c->kind >= MR__RANK_ASK));
    }
    hear(pair[1], incoming, sent);
    mr__rank_connection_free(c);
    close(pair[1]);
}

MR_TEST(who_leaves_out_or_repeats_a_step_is_not_known)
{
    unsigned all = 1;
    for (int i = 0; i < STEPS; i++)
        all *= KINDS;
    for (unsigned steps = 0; steps < all; steps++)
        for (int k = 0; k < 4; k++) {
            mr_test_context("steps %u, case %d", steps, k);
            try_steps(k & 1, k & 2, steps);
        }
}

/* Both ends of a connection, with their tokens. */
static void meet(const mr__token *of_connecting, const mr__token *of_accepting, bool known)
{
    int pair[2];
    mr_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    mr__rank_connection *a = begin(pair[0], false, of_connecting),
                        *b = begin(pair[1], true, of_accepting);
    for (int i = 0; i < 4; i++)
        (void)!(serve(a) && serve(b));
    mr_check(a->known == known && b->known == known);
    mr__rank_connection_free(a);
    mr__rank_connection_free(b);
}

MR_TEST(both_are_known_if_both_know_the_token)
{
    meet(&token, &token, true);
    meet(&token, &(mr__token){.data = "secreT", .bytes = 6}, false);
    meet(&(mr__token){.data = "secre", .bytes = 5}, &token, false);
}
