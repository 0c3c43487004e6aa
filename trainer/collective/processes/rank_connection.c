/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective/processes/rank_connection.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/retry.h"
#include "pipeline/system/system.h"
#include "transport/net/shared_memory.h"
#include "transport/wire/tls_socket.h"

_Static_assert((int)MR__RANK_PROOF_BYTES == (int)MR__NONCE_BYTES &&
                   (int)MR__RANK_PROOF_BYTES == (int)MR__HMAC_BYTES,
               "a message holds a nonce or a proof");

#define NEEDS_TOKEN                                                                                \
    "this job requires a token; give all processes the same --cluster-token-file, or "             \
    "MILLRACE_CLUSTER_TOKEN_FILE"

/* ---- sending ---- */

/* The session to send by; NULL: in the clear. */
static mr__tls_session *session(const mr__rank_connection *t)
{
    return t->clear ? NULL : t->tls;
}

bool mr__rank_connection_owes(const mr__rank_connection *t)
{
    const mr__tls_session *s = session(t);
    return t->out.size || (s && mr__tls_socket_owes(s));
}

bool mr__rank_connection_wants(const mr__rank_connection *t)
{
    const mr__tls_session *s = session(t);
    if (t->connecting || !s)
        return t->connecting || t->out.size;
    return mr__tls_socket_owes(s) || (t->out.size && s->is_open && !s->has_failed);
}

/* Returns an error number; EAGAIN: the socket is full. */
static int send_secure(mr__rank_connection *t, mr__tls_session *s)
{
    int err = mr__tls_socket_flush(s, t->fd);
    while (!err && s->is_open && !s->has_failed && t->out.sent < t->out.size)
        t->out.sent += mr__tls_socket_send(s, t->fd, t->out.data + t->out.sent,
                                           t->out.size - t->out.sent, &err);
    return err;
}

bool mr__rank_connection_send(mr__rank_connection *t, mr_status *why)
{
    mr__tls_session *s = session(t);
    int err = s ? send_secure(t, s)
                : mr__plain_socket_send(t->fd, t->out.data, &t->out.sent, t->out.size);
    if (t->out.sent == t->out.size)
        t->out.sent = t->out.size = 0;
    if (!err || err == EAGAIN)
        return true;
    mr_fail_errno(why, err, "cannot send");
    return false;
}

/* ---- receiving bytes ---- */

/* A unix socket may pass a descriptor as well. */
static ssize_t receive_local(mr__rank_connection *t, void *to, size_t n)
{
    mr__passing room;
    struct iovec v = {to, n};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
    mr__expect_descriptor(&h, &room);
    ssize_t got = mr__sys->recvmsg(t->fd, &h, MSG_CMSG_CLOEXEC);
    int passed = got > 0 ? mr__passed_descriptor(&h) : -1;
    if (passed >= 0) {
        if (t->passed >= 0)
            mr__sys->close(t->passed);
        t->passed = passed;
    }
    return got;
}

/* *n = the number of bytes received; 0: none for now. false: no more will come. */
static bool receive_some(mr__rank_connection *t, void *to, size_t want, size_t *n, mr_status *why)
{
    *n = 0;
    if (t->tls) {
        mr_code rc = mr__tls_socket_receive(t->tls, t->fd, to, want, n, why);
        if (rc == MR_END)
            mr_fail(why, MR_UNAVAILABLE, "it closed the connection");
        return rc == MR_OK;
    }
    ssize_t got;
    do
        got = t->local ? receive_local(t, to, want) : mr__sys->recv(t->fd, to, want, 0);
    while (got < 0 && errno == EINTR);
    if (got > 0)
        *n = (size_t)got;
    if (got > 0 || (got < 0 && errno == EAGAIN))
        return true;
    mr_fail(why, MR_UNAVAILABLE, "%s", got == 0 ? "it closed the connection" : strerror(errno));
    return false;
}

/* ---- who the peer is ---- */

/* Incoming peers get the reason; dialed ones do not. */
static bool doubt(mr__rank_connection *t, const char *reason, mr_status *why, const char *what)
{
    t->doubted = true;
    mr_fail(why, MR_PERMISSION_DENIED, "%s", what);
    if (t->incoming)
        mr__rank_connection_refuse(t, reason);
    return false;
}

/* A proof is valid in its TLS session only: no holder of a certificate can pass on another's. */
static const uint8_t *binding(const mr__rank_connection *t)
{
    return t->tls ? t->tls->binding : NULL;
}

/* The answer to ASK, and to CHALLENGE. */
static mr_code answer(mr__rank_connection *t, mr_status *why)
{
    uint8_t proof[MR__HMAC_BYTES];
    if (t->kind == MR__RANK_ASK)
        return mr__write_proof(&t->out, MR__RANK_CHALLENGE, t->own, why);
    if (!mr__token_prove(*t->token, "rank connects", t->own, t->peer, binding(t), proof))
        return mr_fail(why, MR_INTERNAL, "HMAC-SHA256 is not available");
    return mr__write_proof(&t->out, MR__RANK_PROOF, proof, why);
}

static bool take_proof(mr__rank_connection *t, const uint8_t *theirs, mr_status *why)
{
    uint8_t proof[MR__HMAC_BYTES];
    const char *word = t->incoming ? "rank connects" : "rank accepts";
    const uint8_t *a = t->incoming ? t->peer : t->own, *b = t->incoming ? t->own : t->peer;
    if (!mr__token_is_proven(*t->token, word, a, b, binding(t), theirs))
        return doubt(t,
                     "the tokens differ; all processes of a job need the same "
                     "--cluster-token-file",
                     why, t->incoming ? "it has another token" : "it does not know the token");
    t->known = true;
    if (!t->incoming)
        return true;
    if (mr__token_prove(*t->token, "rank accepts", a, b, binding(t), proof))
        return mr__write_proof(&t->out, MR__RANK_WELCOME, proof, why) == MR_OK;
    mr_fail(why, MR_INTERNAL, "HMAC-SHA256 is not available");
    return false;
}

static bool is_about_token(mr__rank_message kind)
{
    return kind >= MR__RANK_ASK && kind <= MR__RANK_WELCOME;
}

/* A whole message about the token. */
static bool identify(mr__rank_connection *t, mr_status *why)
{
    uint8_t theirs[MR__RANK_PROOF_BYTES];
    bool has_token = t->token && t->token->data;
    if (mr__read_proof(t->payload, t->bytes, theirs, why) != MR_OK)
        return false;
    if (t->incoming && !has_token)
        return doubt(t,
                     "a token was given, but this job has none; give all processes the same "
                     "--cluster-token-file",
                     why, "it has a token, but this process has none");
    mr__rank_message due = t->incoming ? (t->asked ? MR__RANK_PROOF : MR__RANK_ASK)
                                       : (t->asked ? MR__RANK_WELCOME : MR__RANK_CHALLENGE);
    if (!has_token || t->known || t->kind != due) {
        mr_fail(why, MR_DATA_LOSS, "it sent message %d in the middle of the handshake",
                (int)t->kind);
        return false;
    }
    if (t->asked) {
        t->asked = false;
        return take_proof(t, theirs, why);
    }
    t->asked = true;
    memcpy(t->peer, theirs, sizeof t->peer);
    return answer(t, why) == MR_OK;
}

/* ---- receiving messages ---- */

static bool head_came(mr__rank_connection *t, mr_status *why)
{
    if (t->incoming && !t->tls && t->head[0] == 22 && t->head[1] == 3)
        return doubt(t, "this job does not use TLS", why,
                     "it began a TLS handshake, but this process has no certificate; give all "
                     "processes --tls-cert, --tls-key and --tls-ca");
    if (mr__read_head(t->head, &t->version, &t->kind, &t->bytes, why) != MR_OK)
        return false;
    /* Until the peer is known, only small messages are read; also a refusal by the other side. */
    if (!t->known && !is_about_token(t->kind) && (t->incoming || t->kind != MR__RANK_ABORT))
        return doubt(t, NEEDS_TOKEN, why, "it has no token");
    t->has_head = true;
    t->got = 0;
    t->payload = t->bytes ? mr_malloc(t->bytes) : NULL;
    if (t->bytes && !t->payload) {
        mr_fail_memory(why, t->bytes, "a message of a peer");
        return false;
    }
    return true;
}

void mr__rank_connection_next(mr__rank_connection *t)
{
    mr_free(t->payload);
    t->payload = NULL;
    t->has_head = false;
    t->got = t->bytes = 0;
}

bool mr__rank_connection_receive(mr__rank_connection *t, bool *whole, mr_status *why)
{
    *whole = false;
    for (;;) {
        if (t->has_head && t->got == t->bytes) {
            *whole = !is_about_token(t->kind);
            if (*whole)
                return true;
            if (!identify(t, why))
                return false;
            mr__rank_connection_next(t);
        }
        unsigned char *to = t->has_head ? t->payload : t->head;
        size_t want = t->has_head ? t->bytes : MR__RANK_HEAD_BYTES, n;
        bool good = receive_some(t, to + t->got, want - t->got, &n, why);
        if (t->tls && t->tls->is_open && !t->token->data)
            t->known = true;
        if (!good)
            return false;
        if (n == 0)
            return true;
        t->got += n;
        if (t->got == want && !t->has_head && !head_came(t, why))
            return false;
    }
}

/* ---- refusing ---- */

void mr__rank_connection_refuse(mr__rank_connection *t, const char *why)
{
    mr_status st;
    if (t->refused)
        return;
    t->refused = true;
    t->out.size = t->out.sent = 0;
    t->clear = t->tls && !t->tls->is_tls; /* others get an alert, or see the session end */
    mr_fail(&st, MR_PERMISSION_DENIED, "%s", why);
    if (!t->tls || t->clear || t->tls->is_open)
        (void)!mr__write_abort(&t->out, &st, NULL);
}

void mr__rank_connection_linger(mr__rank_connection *t)
{
    char dropped[16384];
    ssize_t n = 1;
    if (!mr__rank_connection_send(t, NULL)) {
        mr__rank_connection_end(t);
        return;
    }
    if (!mr__rank_connection_wants(t) && !t->is_shut) {
        t->is_shut = true;
        mr__sys->shutdown(t->fd, SHUT_WR);
    }
    for (int i = 0; i < 16 && n > 0; i++) /* others are served too */
        MR__RETRY(n, mr__sys->recv(t->fd, dropped, sizeof dropped, 0));
    if (n == 0 || (n < 0 && errno != EAGAIN))
        mr__rank_connection_end(t);
}

/* ---- beginning and end ---- */

mr_code mr__rank_connection_begin(mr__rank_connection *t, const mr__token *token, const char *host,
                                  mr_status *st)
{
    t->known = t->local || !token || (!token->data && !token->tls);
    if (t->known)
        return MR_OK;
    t->token = token;
    if (token->data && mr__sys->getrandom(t->own, sizeof t->own, 0) != (ssize_t)sizeof t->own)
        return mr_fail_errno(st, errno, "cannot read random bytes");
    if (token->tls) {
        t->tls = mr_calloc(1, sizeof *t->tls);
        if (!t->tls)
            return mr_fail_memory(st, sizeof *t->tls, "a TLS session");
        MR_TRY(mr__tls_session_open(t->tls, token->tls, t->incoming, host, st));
        if (!t->incoming)
            MR_TRY(mr__tls_session_shake(t->tls, st));
    }
    return token->data && !t->incoming ? mr__write_proof(&t->out, MR__RANK_ASK, t->own, st) : MR_OK;
}

void mr__rank_connection_end(mr__rank_connection *t)
{
    if (t->fd >= 0)
        mr__sys->close(t->fd);
    t->fd = -1;
}

void mr__rank_connection_free(mr__rank_connection *t)
{
    mr__rank_connection_end(t);
    if (t->passed >= 0)
        mr__sys->close(t->passed);
    if (t->tls)
        mr__tls_session_close(t->tls);
    mr_free(t->tls);
    mr_free(t->payload);
    mr__outbox_reset(&t->out);
    mr_free(t);
}
