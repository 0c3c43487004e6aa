/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "tests/harness.h"
#include "transport/wire/handshake.h"

MR_ONE_THREAD;

static const uint8_t nonce_a[MR__NONCE_BYTES] = "one", nonce_b[MR__NONCE_BYTES] = "two";
static const mr__token none = {0};

/* Gives a frame's message to h; the answer replaces *frame. */
static mr_code give(mr__handshake *h, void **frame, size_t *bytes, mr_status *st)
{
    mr__frame f;
    mr__message *m;
    mr_ok(mr__frame_get(*frame, MR__FRAME_MOST_UNKNOWN, &f, st), st);
    const uint8_t *head = (uint8_t *)*frame + MR__FRAME_BYTES;
    mr_ok(mr__frame_check_head(&f, *frame, head, st), st);
    mr_ok(mr__message_unpack(head, f.head_bytes, &m, st), st);
    mr_free(*frame);
    mr_code rc = mr__handshake_take(h, m, frame, bytes, st);
    mr__message_free(m);
    return rc;
}

/* Both sides until one has nothing to say; what each found. */
static void meet(mr__handshake *a, mr__handshake *b, mr_code *of_a, mr_code *of_b, mr_status *st_a,
                 mr_status *st_b)
{
    void *frame = NULL;
    size_t bytes = 0;
    mr_status_init(st_a);
    mr_status_init(st_b);
    *of_a = *of_b = MR_OK;
    mr_ok(mr__handshake_hello(a, &frame, &bytes, st_a), st_a);
    for (int turn = 0; frame && turn < 10; turn++)
        if (turn % 2 == 0)
            *of_b = give(b, &frame, &bytes, st_b);
        else
            *of_a = give(a, &frame, &bytes, st_a);
    mr_check(!frame);
}

static mr__token token(const char *s)
{
    return (mr__token){.data = s, .bytes = s ? strlen(s) : 0};
}

MR_TEST(equal_tokens_and_none_at_all_are_welcome)
{
    static const char *const secrets[] = {NULL, "secret"};
    for (int i = 0; i < 2; i++) {
        mr__handshake a, b;
        mr_code of_a, of_b;
        mr_status st_a, st_b;
        mr__handshake_init(&a, false, MR__WIRE__ROLE__CLIENT, token(secrets[i]), nonce_a, "");
        mr__handshake_init(&b, true, MR__WIRE__ROLE__WORKER, token(secrets[i]), nonce_b, "name");
        meet(&a, &b, &of_a, &of_b, &st_a, &st_b);
        mr_ok(of_a, &st_a);
        mr_ok(of_b, &st_b);
        mr_check(a.done && b.done);
        mr_eq_i64(a.peer_role, MR__WIRE__ROLE__WORKER);
        mr_eq_i64(b.peer_role, MR__WIRE__ROLE__CLIENT);
        mr_eq_str(a.local, "name");
        mr_check(b.host[0] && b.process);
    }
}

MR_TEST(differing_tokens_are_refused_on_both_sides)
{
    static const char *const pairs[][2] = {
        {"secret", "other"}, {NULL, "secret"}, {"secret", NULL}, {"secret", "secret2"}};
    for (int i = 0; i < 4; i++) {
        mr__handshake a, b;
        mr_code of_a, of_b;
        mr_status st_a, st_b;
        mr__handshake_init(&a, false, MR__WIRE__ROLE__CLIENT, token(pairs[i][0]), nonce_a, "");
        mr__handshake_init(&b, true, MR__WIRE__ROLE__WORKER, token(pairs[i][1]), nonce_b, "");
        meet(&a, &b, &of_a, &of_b, &st_a, &st_b);
        mr_code_is(of_a, MR_PERMISSION_DENIED, &st_a);
        mr_has_str(st_a.message, "token");
        mr_check(!a.done && !b.done);
    }
}

/* The acceptor answers with the token that the peer has. */
MR_TEST(a_token_says_the_name_of_its_peer)
{
    static const mr__token_name names[] = {
        {"worker", "one", 3}, {"alice", "two", 3}, {"alice", "another", 7}, {"bob", "three", 5}};
    static const struct {
        const char *token, *name;
    } cases[] = {{"one", "worker"}, {"two", "alice"}, {"another", "alice"},
                 {"three", "bob"},  {"four", ""},     {"tw", ""}};
    const mr__token all = {.data = "one", .bytes = 3, .names = names, .n_names = 4};
    for (int i = 0; i < 6; i++) {
        mr__handshake a, b;
        mr_code of_a, of_b;
        mr_status st_a, st_b;
        mr__handshake_init(&a, false, MR__WIRE__ROLE__CLIENT, token(cases[i].token), nonce_a, "");
        mr__handshake_init(&b, true, MR__WIRE__ROLE__WORKER, all, nonce_b, "");
        meet(&a, &b, &of_a, &of_b, &st_a, &st_b);
        mr_code_is(of_a, cases[i].name[0] ? MR_OK : MR_PERMISSION_DENIED, &st_a);
        mr_check(a.done == b.done && b.done == (cases[i].name[0] != 0));
        mr_eq_str(b.name, cases[i].name);
        mr_eq_str(a.name, "");
    }
}

/* A peer without the token that repeats what it has heard proves nothing. */
MR_TEST(recorded_and_reflected_proofs_are_refused)
{
    mr__handshake a, b, thief;
    mr_status st;
    void *frame, *proof;
    size_t bytes;
    mr__handshake_init(&a, false, MR__WIRE__ROLE__CLIENT, token("secret"), nonce_a, "");
    mr__handshake_init(&b, true, MR__WIRE__ROLE__WORKER, token("secret"), nonce_b, "");
    mr_ok(mr__handshake_hello(&a, &frame, &bytes, &st), &st);
    mr_ok(give(&b, &frame, &bytes, &st), &st);
    mr_ok(give(&a, &frame, &bytes, &st), &st);
    proof = mr_memdup(frame, bytes); /* overheard */
    mr_ok(give(&b, &frame, &bytes, &st), &st);
    mr_check(b.done);
    mr_free(frame);
    uint8_t fresh[MR__NONCE_BYTES] = "three";
    mr__handshake_init(&b, true, MR__WIRE__ROLE__WORKER, token("secret"), fresh, "");
    mr__handshake_init(&thief, false, MR__WIRE__ROLE__CLIENT, none, nonce_a, "");
    mr_ok(mr__handshake_hello(&thief, &frame, &bytes, &st), &st);
    mr_ok(give(&b, &frame, &bytes, &st), &st);
    mr_free(frame);
    mr_code_is(give(&b, &proof, &bytes, &st), MR_PERMISSION_DENIED, &st);
    mr_check(!b.done);
    mr_free(proof);
}

MR_TEST(other_version_is_named)
{
    mr__handshake b;
    mr_status st;
    void *frame;
    size_t bytes;
    Mr__Wire__Hello hello = MR__WIRE__HELLO__INIT;
    hello.version = 99;
    hello.nonce = (ProtobufCBinaryData){MR__NONCE_BYTES, (uint8_t *)(uintptr_t)nonce_a};
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_HELLO;
    m.hello = &hello;
    mr_ok(mr__message_pack(&m, &frame, &bytes, &st), &st);
    mr__handshake_init(&b, true, MR__WIRE__ROLE__WORKER, none, nonce_b, "");
    mr_code_is(give(&b, &frame, &bytes, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "99");
    mr__handshake a;
    mr__handshake_init(&a, false, MR__WIRE__ROLE__CLIENT, none, nonce_a, "");
    mr_code_is(give(&a, &frame, &bytes, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "99");
}

MR_TEST(messages_out_of_turn_end_the_handshake)
{
    mr__handshake b;
    mr_status st;
    void *frame;
    size_t bytes;
    Mr__Wire__Pulse pulse = MR__WIRE__PULSE__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
    m.pulse = &pulse;
    mr_ok(mr__message_pack(&m, &frame, &bytes, &st), &st);
    mr__handshake_init(&b, true, MR__WIRE__ROLE__WORKER, none, nonce_b, "");
    mr_code_is(give(&b, &frame, &bytes, &st), MR_DATA_LOSS, &st);
    mr_check(!frame && !b.done);
}

/* A message of who does not know the token, but took an HMAC of its length from somewhere. */
static mr_code say(mr__handshake *h, int what, mr_status *st)
{
    uint8_t hmac[MR__HMAC_BYTES] = {0};
    const ProtobufCBinaryData proofs[2] = {{0, hmac}, {MR__HMAC_BYTES, hmac}};
    const ProtobufCBinaryData nonce = {MR__NONCE_BYTES, (uint8_t *)(uintptr_t)nonce_a};
    Mr__Wire__Hello hello = MR__WIRE__HELLO__INIT;
    Mr__Wire__Challenge challenge = MR__WIRE__CHALLENGE__INIT;
    Mr__Wire__Proof proof = MR__WIRE__PROOF__INIT;
    Mr__Wire__Welcome welcome = MR__WIRE__WELCOME__INIT;
    Mr__Wire__Pulse pulse = MR__WIRE__PULSE__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    hello.version = challenge.version = MR__WIRE_VERSION;
    hello.nonce = challenge.nonce = nonce;
    challenge.token = what & 1;
    proof.hmac = welcome.hmac = proofs[what & 1];
    switch (what / 2) {
    case 0:
        m.body_case = MR__WIRE__MESSAGE__BODY_HELLO;
        m.hello = &hello;
        break;
    case 1:
        m.body_case = MR__WIRE__MESSAGE__BODY_CHALLENGE;
        m.challenge = &challenge;
        break;
    case 2:
        m.body_case = MR__WIRE__MESSAGE__BODY_PROOF;
        m.proof = &proof;
        break;
    case 3:
        m.body_case = MR__WIRE__MESSAGE__BODY_WELCOME;
        m.welcome = &welcome;
        break;
    default:
        m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
        m.pulse = &pulse;
    }
    void *frame;
    size_t bytes;
    mr_ok(mr__message_pack(&m, &frame, &bytes, st), st);
    mr_code rc = give(h, &frame, &bytes, st);
    mr_free(frame);
    return rc;
}

MR_TEST(who_leaves_out_or_repeats_a_step_is_never_through)
{
    enum { KINDS = 10, STEPS = 3 };
    for (int steps = 0; steps < KINDS * KINDS * KINDS; steps++)
        for (int accepts = 0; accepts < 2; accepts++) {
            mr__handshake h;
            mr_status st;
            mr_test_context("steps %d", steps);
            mr__handshake_init(&h, accepts, MR__WIRE__ROLE__WORKER, token("secret"), nonce_b, "");
            mr_code rc = MR_OK;
            for (int i = 0, left = steps; i < STEPS && rc == MR_OK; i++, left /= KINDS) {
                rc = say(&h, left % KINDS, &st);
                mr_check(!h.done);
                mr_check(rc == MR_OK || *st.message);
            }
            mr_check(rc != MR_OK); /* none of them continues for that long */
        }
}

MR_TEST(fields_out_of_range_are_refused)
{
    mr_status st;
    void *frame;
    size_t bytes;
    mr__message *got;
    Mr__Wire__Place where = MR__WIRE__PLACE__INIT, *list[1] = {&where};
    Mr__Wire__Placed placed = MR__WIRE__PLACED__INIT;
    placed.n_places = 1;
    placed.places = list;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PLACED;
    m.placed = &placed;
    for (int i = 0; i < 3; i++) {
        where.stream = i == 1 ? 1 << 16 : 3;
        where.skip = i == 2 ? 5 : 0;
        mr_ok(mr__message_pack(&m, &frame, &bytes, &st), &st);
        mr_code rc = mr__message_unpack((uint8_t *)frame + MR__FRAME_BYTES, bytes - MR__FRAME_BYTES,
                                        &got, &st);
        mr_code_is(rc, i ? MR_DATA_LOSS : MR_OK, &st);
        if (i == 0)
            mr__message_free(got);
        mr_free(frame);
    }
    mr_code_is(mr__message_unpack("", 0, &got, &st), MR_DATA_LOSS, &st);
}
