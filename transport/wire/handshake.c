/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "transport/wire/tls_stream.h"

enum { WAITS_FOR_HELLO, WAITS_FOR_CHALLENGE, WAITS_FOR_PROOF, WAITS_FOR_WELCOME, OVER };

void mr__handshake_init(mr__handshake *h, bool accepts, Mr__Wire__Role role, mr__token token,
                        const uint8_t *nonce, const char *local)
{
    *h = (mr__handshake){.accepts = accepts, .role = role, .token = token};
    h->step = accepts ? WAITS_FOR_HELLO : WAITS_FOR_CHALLENGE;
    memcpy(h->own, nonce, sizeof h->own);
    snprintf(h->local, sizeof h->local, "%s", local);
}

bool mr__token_prove(mr__token t, const char *word, const uint8_t *of_connecting,
                     const uint8_t *of_accepting, const uint8_t *binding,
                     uint8_t out[MR__HMAC_BYTES])
{
    uint8_t text[16 + 2 * MR__NONCE_BYTES + MR__TLS_KEY_BYTES] = {0};
    size_t bytes = sizeof text - (binding ? 0 : MR__TLS_KEY_BYTES);
    memcpy(text, word, strlen(word));
    memcpy(text + 16, of_connecting, MR__NONCE_BYTES);
    memcpy(text + 16 + MR__NONCE_BYTES, of_accepting, MR__NONCE_BYTES);
    if (binding)
        memcpy(text + 16 + 2 * MR__NONCE_BYTES, binding, MR__TLS_KEY_BYTES);
    unsigned size = 0;
    return HMAC(EVP_sha256(), t.data, (int)t.bytes, text, bytes, out, &size) &&
           size == MR__HMAC_BYTES;
}

bool mr__token_is_proven(mr__token t, const char *word, const uint8_t *of_connecting,
                         const uint8_t *of_accepting, const uint8_t *binding,
                         const uint8_t proof[MR__HMAC_BYTES])
{
    uint8_t want[MR__HMAC_BYTES];
    return mr__token_prove(t, word, of_connecting, of_accepting, binding, want) &&
           CRYPTO_memcmp(want, proof, MR__HMAC_BYTES) == 0;
}

/* The proof of one side: `word` names the side. The nonces are in the order hello, challenge. */
static bool prove(const mr__handshake *h, const char *word, uint8_t out[MR__HMAC_BYTES])
{
    return mr__token_prove(h->token, word, h->accepts ? h->peer : h->own,
                           h->accepts ? h->own : h->peer, NULL, out);
}

static bool is_proof(const mr__handshake *h, const char *word, const ProtobufCBinaryData *hmac)
{
    if (!h->token.data)
        return true;
    return hmac->len == MR__HMAC_BYTES &&
           mr__token_is_proven(h->token, word, h->accepts ? h->peer : h->own,
                               h->accepts ? h->own : h->peer, NULL, hmac->data);
}

/* Whether the peer knows a token of the acceptor's; of several it is the one from now on. */
static bool takes_token(mr__handshake *h, const ProtobufCBinaryData *hmac)
{
    for (size_t i = 0; h->token.names && i < h->token.n_names; i++) {
        const mr__token_name *x = &h->token.names[i];
        h->token.data = x->data;
        h->token.bytes = x->bytes;
        if (is_proof(h, "connects", hmac)) {
            snprintf(h->name, sizeof h->name, "%s", x->name);
            return true;
        }
    }
    return !h->token.names && is_proof(h, "connects", hmac);
}

mr_code mr__handshake_hello(mr__handshake *h, void **frame, size_t *bytes, mr_status *st)
{
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    Mr__Wire__Hello hello = MR__WIRE__HELLO__INIT;
    hello.version = MR__WIRE_VERSION;
    hello.role = h->role;
    hello.nonce = (ProtobufCBinaryData){MR__NONCE_BYTES, h->own};
    hello.host = host;
    hello.process = (uint32_t)getpid();
    hello.confirms = h->confirms = true;
    hello.no_memory = h->no_memory;
    if (h->token.session)
        hello.session =
            (ProtobufCBinaryData){MR__TLS_ID_BYTES, (uint8_t *)(uintptr_t)h->token.session};
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_HELLO;
    m.hello = &hello;
    return mr__message_pack(&m, frame, bytes, st);
}

/* Makes the refusal for st, if memory suffices, and returns st's code. */
mr_code mr__handshake_refuse(mr__handshake *h, void **frame, size_t *bytes, mr_code code,
                             const char *message, mr_status *st)
{
    mr_status why;
    mr_fail(&why, code, "%s", message);
    Mr__Wire__Status status;
    mr__status_to_wire(&why, &status);
    Mr__Wire__Refusal refusal = MR__WIRE__REFUSAL__INIT;
    refusal.status = &status;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_REFUSAL;
    m.refusal = &refusal;
    h->step = OVER;
    if (mr__message_pack(&m, frame, bytes, NULL) != MR_OK)
        *frame = NULL;
    if (st)
        *st = why;
    return code;
}

static mr_code check_version(mr__handshake *h, uint32_t theirs, void **frame, size_t *bytes,
                             mr_status *st)
{
    char text[160];
    if (theirs == MR__WIRE_VERSION)
        return MR_OK;
    snprintf(text, sizeof text,
             "protocol version %u here, version %u there; run the same release on both sides",
             (unsigned)MR__WIRE_VERSION, (unsigned)theirs);
    return mr__handshake_refuse(h, frame, bytes, MR_FAILED_PRECONDITION, text, st);
}

static mr_code take_hello(mr__handshake *h, const Mr__Wire__Hello *hello, void **frame,
                          size_t *bytes, mr_status *st)
{
    memcpy(h->peer, hello->nonce.data, sizeof h->peer);
    snprintf(h->host, sizeof h->host, "%s", hello->host);
    h->process = hello->process;
    h->peer_role = hello->role;
    h->confirms = hello->confirms;
    h->no_memory = hello->no_memory;
    MR_TRY(check_version(h, hello->version, frame, bytes, st));
    Mr__Wire__Challenge challenge = MR__WIRE__CHALLENGE__INIT;
    challenge.version = MR__WIRE_VERSION;
    challenge.role = h->role;
    challenge.nonce = (ProtobufCBinaryData){MR__NONCE_BYTES, h->own};
    challenge.token = h->token.data != NULL;
    challenge.local = h->local;
    challenge.lends = h->lends;
    challenge.own_user = h->refusal != NULL;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_CHALLENGE;
    m.challenge = &challenge;
    h->step = WAITS_FOR_PROOF;
    h->challenged = true;
    return mr__message_pack(&m, frame, bytes, st);
}

static mr_code take_challenge(mr__handshake *h, const Mr__Wire__Challenge *challenge, void **frame,
                              size_t *bytes, mr_status *st)
{
    memcpy(h->peer, challenge->nonce.data, sizeof h->peer);
    h->peer_role = challenge->role;
    h->lends = challenge->lends;
    snprintf(h->local, sizeof h->local, "%s", challenge->local);
    MR_TRY(check_version(h, challenge->version, frame, bytes, st));
    if (challenge->token && !h->token.data)
        return mr_fail(
            st, MR_PERMISSION_DENIED,
            "the service requires a token; name its file with --token-file or MILLRACE_TOKEN_FILE");
    if (!challenge->token && h->token.data)
        return mr_fail(
            st, MR_PERMISSION_DENIED,
            "a token was given, but the service has none; start it with the same --token-file");
    uint8_t hmac[MR__HMAC_BYTES];
    if (h->token.data && !prove(h, "connects", hmac))
        return mr_fail(st, MR_INTERNAL, "HMAC-SHA256 is not available");
    Mr__Wire__Proof proof = MR__WIRE__PROOF__INIT;
    proof.hmac = (ProtobufCBinaryData){h->token.data ? MR__HMAC_BYTES : 0, hmac};
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PROOF;
    m.proof = &proof;
    h->step = WAITS_FOR_WELCOME;
    return mr__message_pack(&m, frame, bytes, st);
}

static mr_code take_proof(mr__handshake *h, const Mr__Wire__Proof *proof, void **frame,
                          size_t *bytes, mr_status *st)
{
    if (h->refusal)
        return mr__handshake_refuse(h, frame, bytes, MR_PERMISSION_DENIED, h->refusal, st);
    if (!takes_token(h, &proof->hmac))
        return mr__handshake_refuse(h, frame, bytes, MR_PERMISSION_DENIED,
                                    "the tokens differ; both sides need the same --token-file", st);
    uint8_t hmac[MR__HMAC_BYTES];
    if (h->token.data && !prove(h, "accepts", hmac))
        return mr_fail(st, MR_INTERNAL, "HMAC-SHA256 is not available");
    Mr__Wire__Welcome welcome = MR__WIRE__WELCOME__INIT;
    welcome.hmac = (ProtobufCBinaryData){h->token.data ? MR__HMAC_BYTES : 0, hmac};
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_WELCOME;
    m.welcome = &welcome;
    h->step = OVER;
    MR_TRY(mr__message_pack(&m, frame, bytes, st));
    h->done = true;
    return MR_OK;
}

static mr_code take_welcome(mr__handshake *h, const Mr__Wire__Welcome *welcome, mr_status *st)
{
    h->step = OVER;
    if (!is_proof(h, "accepts", &welcome->hmac))
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "the service does not know the token; both sides need the same "
                       "--token-file");
    h->done = true;
    return MR_OK;
}

mr_code mr__handshake_take(mr__handshake *h, const mr__message *m, void **frame, size_t *bytes,
                           mr_status *st)
{
    *frame = NULL;
    *bytes = 0;
    if (!h->accepts && m->body_case == MR__WIRE__MESSAGE__BODY_REFUSAL && h->step != OVER) {
        mr_status why;
        h->step = OVER;
        mr__status_from_wire(m->refusal->status, &why);
        if (st)
            *st = why;
        return why.code;
    }
    if (h->step == WAITS_FOR_HELLO && m->body_case == MR__WIRE__MESSAGE__BODY_HELLO)
        return take_hello(h, m->hello, frame, bytes, st);
    if (h->step == WAITS_FOR_CHALLENGE && m->body_case == MR__WIRE__MESSAGE__BODY_CHALLENGE)
        return take_challenge(h, m->challenge, frame, bytes, st);
    if (h->step == WAITS_FOR_PROOF && m->body_case == MR__WIRE__MESSAGE__BODY_PROOF)
        return take_proof(h, m->proof, frame, bytes, st);
    if (h->step == WAITS_FOR_WELCOME && m->body_case == MR__WIRE__MESSAGE__BODY_WELCOME)
        return take_welcome(h, m->welcome, st);
    return mr_fail(st, MR_DATA_LOSS, "the peer sent message %d in the middle of the handshake",
                   (int)m->body_case);
}
