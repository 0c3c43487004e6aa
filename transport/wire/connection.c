/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/connection.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"

#define HELLO_NS ((int64_t)10000000000) /* for the handshake */

/* The maximum bytes of lent pages that one peer may hold: beyond it, a peer that confirms nothing
 * gets copies. And the bytes after which receipt is confirmed. */
enum { MOST_LENT = 64 << 20, CONFIRM_BYTES = 2 << 20 };
/* Bytes to read for a block's head if a large block is likely: mostly enough. */
enum { LIKELY_HEAD = 256 };

/* An entry of the queue: a message's bytes, or a block. */
typedef struct mr__queued {
    mr__send send;
    struct iovec one;
    void *bytes;
    mr__outgoing block;
    uint64_t number; /* of a block, from 1 */
    int pass;        /* a descriptor, owned; -1: none */
    mr__connection *connection;
    struct mr__queued *next; /* lent */
} queued;

static mr__connection *of_socket(mr__socket *s)
{
    return (mr__connection *)s;
}

/* ---- sending ---- */

static void drop(queued *q, bool was_sent)
{
    if (q->send.lends)
        q->connection->lent_bytes -= (size_t)q->block.bytes;
    mr_free(q->bytes);
    if (was_sent)
        mr__outgoing_sent(&q->block);
    mr__outgoing_reset(&q->block);
    if (q->pass >= 0)
        mr__sys->close(q->pass);
    mr_free(q);
}

/* Keeps its pages unchanged until the peer confirms receipt. */
static void keep_lent(mr__connection *c, queued *q)
{
    q->next = NULL;
    if (c->lent_last)
        c->lent_last->next = q;
    else
        c->lent_first = q;
    c->lent_last = q;
}

static void drop_lent(mr__connection *c)
{
    queued *q = c->lent_first;
    c->lent_first = q->next;
    if (!q->next)
        c->lent_last = NULL;
    drop(q, true);
}

static void sent(mr__send *s, bool was_sent)
{
    queued *q = (queued *)s;
    mr__connection *c = q->connection;
    bool lent = s->lends && q->number > c->confirmed;
    if (was_sent && lent) {
        keep_lent(c, q);
    } else {
        if (lent && (s->at || s->offset))
            mr__outgoing_forsake(&q->block);
        drop(q, was_sent);
    }
    if (was_sent && c->class_->sent && !c->closing)
        c->class_->sent(c);
}

static void enqueue(mr__connection *c, queued *q)
{
    if (c->is_secure)
        mr__tls_stream_send(&c->tls, &q->send);
    else
        mr__socket_send(&c->socket, &q->send);
}

/* fd -1: no descriptor is sent. */
static mr_code send_bytes(mr__connection *c, void *bytes, size_t n, int fd, mr_status *st)
{
    queued *q = mr_calloc(1, sizeof *q);
    if (!q) {
        mr_free(bytes);
        if (fd >= 0)
            mr__sys->close(fd);
        return mr_fail_memory(st, sizeof *q, "a message");
    }
    q->bytes = bytes;
    q->connection = c;
    q->pass = fd;
    q->one = (struct iovec){bytes, n};
    q->send = (mr__send){.v = &q->one, .n = 1, .pass = fd >= 0 ? &q->pass : NULL, .done = sent};
    enqueue(c, q);
    return MR_OK;
}

mr_code mr__connection_send_frame(mr__connection *c, void *bytes, size_t n, mr_status *st)
{
    return send_bytes(c, bytes, n, -1, st);
}

mr_code mr__connection_pass(mr__connection *c, const mr__message *m, int fd, mr_status *st)
{
    void *bytes;
    size_t n;
    mr_code rc = mr__message_pack(m, &bytes, &n, st);
    if (rc != MR_OK)
        mr__sys->close(fd);
    return rc == MR_OK ? send_bytes(c, bytes, n, fd, st) : rc;
}

static mr_code send_message(mr__connection *c, const mr__message *m, mr_status *st)
{
    void *bytes;
    size_t n;
    MR_TRY(mr__message_pack(m, &bytes, &n, st));
    return mr__connection_send_frame(c, bytes, n, st);
}

/* Confirms the received blocks to the peer, which lent their pages. */
static mr_code confirm(mr__connection *c, mr_status *st)
{
    if (!c->handshake.lends || c->handshake.accepts || c->said == c->came)
        return MR_OK;
    Mr__Wire__Received received = MR__WIRE__RECEIVED__INIT;
    received.blocks = c->came;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_RECEIVED;
    m.received = &received;
    MR_TRY(send_message(c, &m, st));
    c->said = c->came;
    c->unsaid_bytes = 0;
    return MR_OK;
}

mr_code mr__connection_send(mr__connection *c, const mr__message *m, mr_status *st)
{
    MR_TRY(confirm(c, st));
    return send_message(c, m, st);
}

mr_code mr__connection_send_block(mr__connection *c, mr__outgoing *frame, mr_status *st)
{
    queued *q = mr_calloc(1, sizeof *q);
    if (!q) {
        mr__outgoing_reset(frame);
        return mr_fail_memory(st, sizeof *q, "a block");
    }
    q->pass = -1;
    q->block = *frame;
    *frame = (mr__outgoing){0};
    q->connection = c;
    q->number = ++c->queued;
    q->send = (mr__send){.v = q->block.v, .n = q->block.n, .done = sent};
    if (q->block.lends && c->handshake.accepts && c->handshake.lends && c->handshake.confirms &&
        !c->socket.is_local && q->block.bytes <= MOST_LENT &&
        c->lent_bytes <= MOST_LENT - q->block.bytes) {
        q->send.lends = 1; /* the first is the head */
        c->lent_bytes += (size_t)q->block.bytes;
    }
    enqueue(c, q);
    return MR_OK;
}

/* The peer has received the first `blocks` blocks whole: releases them. */
static mr_code take_received(mr__connection *c, uint64_t blocks, mr_status *st)
{
    if (blocks < c->confirmed || blocks > c->queued)
        return mr_fail(st, MR_DATA_LOSS, "the peer says that it has blocks that were not sent");
    c->confirmed = blocks;
    while (c->lent_first && c->lent_first->number <= blocks)
        drop_lent(c);
    return MR_OK;
}

size_t mr__connection_queued(const mr__connection *c)
{
    return c->socket.queued_bytes + c->tls.queued_bytes;
}

/* ---- closing ---- */

void mr__connection_close(mr__connection *c, const mr_status *why)
{
    if (c->closing)
        return;
    c->closing = true;
    if (why)
        c->why = *why;
    mr__socket_close(&c->socket);
}

void mr__connection_finish(mr__connection *c)
{
    if (c->closing)
        return;
    c->closing = true;
    if (c->is_secure)
        mr__tls_stream_finish(&c->tls);
    else
        mr__socket_finish(&c->socket);
}

/* Closes because of why, after sending what is queued (a refusal). */
static void end_with(mr__connection *c, const mr_status *why)
{
    if (c->closing)
        return;
    c->why = *why;
    mr__connection_finish(c);
}

/* ---- TLS ---- */

static const mr__socket_class sockets, secure_sockets;

/* tls NULL: what follows is in the clear. */
static void secure(mr__connection *c, mr__tls *tls)
{
    mr__tls_stream_close(&c->tls);
    c->tls = (mr__tls_stream){0};
    mr_status_init(&c->tls.why);
    c->is_secure = tls != NULL;
    c->socket.class_ = tls ? &secure_sockets : &sockets;
}

/* host: as mr__tls_stream_open. */
static mr_code secure_with(mr__connection *c, mr__loop *l, bool accepts, const char *host,
                           mr_status *st)
{
    mr__tls *tls = c->handshake.token.tls;
    secure(c, tls);
    mr__tls_look(tls, mr__loop_now(l));
    return mr__tls_stream_open(&c->tls, tls, accepts, host, &c->socket, st);
}

/* Connects by TCP. */
static mr_code connect_to(mr__connection *c, mr__loop *l, mr_status *st)
{
    mr_code rc = MR_OK;
    if (mr__tls_connects(c->handshake.token.tls) && c->at.to.ss_family != AF_UNIX)
        rc = secure_with(c, l, false, c->at.host, st);
    if (rc == MR_OK)
        rc = mr__socket_connect(l, &c->socket, &c->at, st);
    if (rc != MR_OK)
        secure(c, NULL);
    return rc;
}

/* The peer speaks the other of TLS and our protocol: tells it so, in the clear. */
static mr_code refuse_kind(mr__connection *c, const char *message, mr_status *st)
{
    void *frame;
    size_t bytes;
    mr_code rc =
        mr__handshake_refuse(&c->handshake, &frame, &bytes, MR_FAILED_PRECONDITION, message, NULL);
    c->is_secure = false;
    if (frame && mr__connection_send_frame(c, frame, bytes, NULL) != MR_OK)
        mr__connection_close(c, st);
    else
        end_with(c, st);
    return rc;
}

/* The TLS session failed: sends its alert. */
static void end_secure(mr__connection *c, const mr_status *why)
{
    mr_status st = *why;
    if (c->tls.session.is_plain && c->handshake.accepts)
        refuse_kind(c,
                    "the service requires TLS; give --tls-ca with the file of its CA (or --tls for "
                    "those of the system), or MILLRACE_TLS_CA",
                    &st);
    else
        end_with(c, &st);
}

/* ---- changing to the local socket ---- */

static mr_code begin(mr__connection *c, bool accepts, Mr__Wire__Role role, mr__token token,
                     const char *local, mr_status *st)
{
    uint8_t nonce[MR__NONCE_BYTES];
    if (mr__sys->getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        return mr_fail(st, MR_INTERNAL, "cannot read random bytes for a handshake");
    mr__handshake_init(&c->handshake, accepts, role, token, nonce, local);
    c->handshake.no_memory = !accepts && c->class_->no_memory;
    return MR_OK;
}

/* The acceptor's challenge arrived by TCP, and says that only its local socket shows it whom to
 * trust: changes to that. */
static bool changes(mr__connection *c, const mr__message *m)
{
    if (c->handshake.accepts || m->body_case != MR__WIRE__MESSAGE__BODY_CHALLENGE ||
        c->socket.is_local || c->has_changed || c->handshake.token.data ||
        !m->challenge->own_user || m->challenge->local[0] != '@')
        return false;
    c->changes = c->has_changed = true;
    snprintf(c->handshake.local, sizeof c->handshake.local, "%s", m->challenge->local);
    mr__socket_close(&c->socket);
    return true;
}

/* The socket is closed. Connects to the local socket, or, if that cannot be reached, by TCP after
 * all. false: neither is due. */
static bool dials_again(mr__connection *c, const mr_status *why)
{
    mr__loop *l = c->socket.loop;
    mr__address local;
    /* EAGAIN: it is there, but too many connect at once. */
    bool now = c->changes, back = c->has_changed && !now && c->socket.is_local && !c->is_open &&
                                  why->sys_errno != EAGAIN;
    if (!now && !back)
        return false;
    bool found = now && mr__address_resolve(c->handshake.local, &local, NULL) == MR_OK;
    c->changes = c->is_open = false;
    c->from = c->to = 0;
    secure(c, NULL);
    mr_code rc = begin(c, false, c->handshake.role, c->handshake.token, "", &c->why);
    if (rc == MR_OK && found && mr__socket_connect(l, &c->socket, &local, NULL) == MR_OK)
        return true;
    if (rc == MR_OK)
        rc = connect_to(c, l, &c->why);
    return rc == MR_OK;
}

static void closed(mr__socket *s, const mr_status *why)
{
    mr__connection *c = of_socket(s);
    if (!c->closing && dials_again(c, why))
        return;
    mr__timer_clear(s->loop, &c->deadline);
    if (c->why.code == MR_OK && c->tls.why.code != MR_OK)
        c->why = c->tls.why;
    secure(c, NULL);
    mr_free(c->in);
    mr_free(c->head);
    mr__incoming_reset(&c->incoming);
    mr_buffer_unref(c->payload);
    c->in = c->head = NULL;
    c->payload = NULL;
    while (c->lent_first) { /* the peer may continue to read the pages it has */
        mr__outgoing_forsake(&c->lent_first->block);
        drop_lent(c);
    }
    mr_status st = c->why.code != MR_OK ? c->why : *why;
    /* A peer that changes to the local socket leaves when it knows its name. */
    bool changed = c->handshake.challenged && c->handshake.local[0] && c->handshake.refusal;
    if (!c->handshake.done && st.code == MR_END && !changed)
        mr_fail(&st, MR_UNAVAILABLE, "the peer closed in the middle of the handshake");
    c->class_->closed(c, &st);
}

/* ---- the handshake ---- */

static void late(mr__timer *t)
{
    mr__connection *c = (mr__connection *)((char *)t - offsetof(mr__connection, deadline));
    mr_status why;
    mr_fail(&why, MR_DEADLINE_EXCEEDED, "the peer did not finish its handshake within 10 s");
    mr__connection_close(c, &why);
}

/* Whether the acceptor, whose graphs this worker will run, is to be trusted. */
static mr_code check_acceptor(const mr__connection *c, mr_status *st)
{
    const mr__handshake *h = &c->handshake;
    int64_t user;
    if (h->accepts || h->role != MR__WIRE__ROLE__WORKER || h->token.data || h->token.any_user ||
        c->is_secure)
        return MR_OK;
    if (!c->socket.is_local)
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "no token shows that the dispatcher at %s is the right one, and it has no "
                       "local socket on this host that shows its user; give both a --token-file, "
                       "or both --any-user",
                       c->at.text);
    if (!mr__address_is_own_user(c->socket.fd, &user))
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "the dispatcher at %s belongs to user %" PRId64
                       ", not to this worker's; give both a --token-file, or both --any-user",
                       c->at.text, user);
    return MR_OK;
}

/* A local socket of a service that uses TLS: its peers show that they are those of a TLS session,
 * whose key takes the place of the token. */
static void take_session(mr__connection *c, const Mr__Wire__Hello *hello)
{
    mr__handshake *h = &c->handshake;
    if (hello->session.len) {
        if (!c->class_->session_key ||
            !c->class_->session_key(c, hello->session.data, c->session_key)) {
            memcpy(c->session_key, h->own, sizeof c->session_key);
            h->refusal = "its TLS connection to the service has ended; connect again";
        } else {
            h->refusal = NULL;
        }
        h->token.data = c->session_key;
        h->token.bytes = sizeof c->session_key;
        h->token.names = NULL; /* the TLS connection has shown it */
    } else if (mr__tls_is_mutual(h->token.tls)) {
        h->refusal = "the service requires a certificate of its clients, and this local socket "
                     "serves only those that have a TLS connection to it";
    }
}

static void shake(mr__connection *c, const mr__message *m)
{
    if (changes(c, m))
        return;
    if (c->handshake.accepts && c->socket.is_local && mr__tls_accepts(c->handshake.token.tls) &&
        m->body_case == MR__WIRE__MESSAGE__BODY_HELLO && !c->handshake.challenged)
        take_session(c, m->hello);
    void *frame;
    size_t bytes;
    mr_status st;
    mr_code rc = mr__handshake_take(&c->handshake, m, &frame, &bytes, &st), sending = MR_OK;
    mr_status other;
    if (rc == MR_OK && c->handshake.done)
        rc = check_acceptor(c, &st);
    if (frame)
        sending = mr__connection_send_frame(c, frame, bytes, &other);
    if (rc != MR_OK) {
        end_with(c, &st);
    } else if (sending != MR_OK) {
        mr__connection_close(c, &other);
    } else if (c->handshake.done) {
        mr__timer_clear(c->socket.loop, &c->deadline);
        if (c->is_secure && !c->handshake.name[0] && mr__tls_is_mutual(c->handshake.token.tls))
            memcpy(c->handshake.name, c->tls.session.name, sizeof c->handshake.name);
        c->class_->ready(c);
    }
}

static void opened(mr__socket *s)
{
    mr__connection *c = of_socket(s);
    mr_status st;
    void *frame;
    size_t bytes;
    c->is_open = true;
    if (c->handshake.accepts)
        return;
    if (mr__handshake_hello(&c->handshake, &frame, &bytes, &st) != MR_OK ||
        mr__connection_send_frame(c, frame, bytes, &st) != MR_OK)
        mr__connection_close(c, &st);
}

/* ---- receiving ---- */

/* After a large block another one is likely. Its payload should not be received into `in`, from
 * which it would have to be copied. */
static size_t room_in(const mr__connection *c)
{
    size_t have = c->to - c->from, all = MR__CONNECTION_IN - c->to;
    size_t need = c->has_frame ? c->frame.head_bytes : MR__FRAME_BYTES;
    size_t likely = (need > have ? need - have : 0) + LIKELY_HEAD;
    return c->after_large && likely < all ? likely : all;
}

static void *room(mr__socket *s, size_t *n)
{
    mr__connection *c = of_socket(s);
    if (c->paused || c->closing || c->changes)
        return NULL;
    if (c->has_head) { /* the rest of a payload */
        *n = mr_buffer_size(c->payload) - c->payload_got;
        if (!c->is_secure)
            mr__socket_expect(s, *n);
        return (char *)mr_buffer_data(c->payload) + c->payload_got;
    }
    if (!c->is_secure)
        mr__socket_expect(s, 1);
    if (c->head) {
        *n = c->frame.head_bytes - c->head_got;
        return c->head + c->head_got;
    }
    if (c->from > 0) {
        memmove(c->in, c->in + c->from, c->to - c->from);
        c->to -= c->from;
        c->from = 0;
    }
    *n = room_in(c);
    return c->in + c->to;
}

/* Ends the current frame. */
static void next_frame(mr__connection *c)
{
    c->has_frame = c->has_head = false;
    mr_free(c->head);
    c->head = NULL;
    c->head_got = 0;
    mr__incoming_reset(&c->incoming);
}

static void give_block(mr__connection *c)
{
    mr_buffer *payload = c->payload;
    mr__incoming in = c->incoming;
    c->payload = NULL;
    c->incoming = (mr__incoming){0};
    next_frame(c);
    c->came++;
    c->after_large = mr_buffer_size(payload) >= MR__CONNECTION_IN;
    c->unsaid_bytes += mr_buffer_size(payload);
    mr_status st;
    if (c->unsaid_bytes >= CONFIRM_BYTES && confirm(c, &st) != MR_OK)
        mr__connection_close(c, &st);
    c->class_->block(c, &in, payload);
    mr__incoming_reset(&in);
}

/* A block's head was received: makes room for the payload, whose first bytes may be in `in`. */
static mr_code start_block(mr__connection *c, const void *head, mr_status *st)
{
    if (!c->class_->block || !c->handshake.done)
        return mr_fail(st, MR_DATA_LOSS, "the peer sent a block that was not requested");
    MR_TRY(mr__incoming_head(&c->incoming, head, c->frame.head_bytes, c->frame.payload_bytes, st));
    MR_TRY(mr_buffer_alloc(&c->payload, (size_t)c->frame.payload_bytes, st));
    c->payload_got = 0;
    c->has_head = true;
    return MR_OK;
}

/* n more bytes of the payload were received into their place. */
static void payload_came(mr__connection *c, size_t n)
{
    if (n)
        mr__incoming_came(&c->incoming, (char *)mr_buffer_data(c->payload) + c->payload_got, n);
    c->payload_got += n;
    if (c->payload_got == mr_buffer_size(c->payload))
        give_block(c);
}

static void take_payload(mr__connection *c)
{
    size_t left = mr_buffer_size(c->payload) - c->payload_got, n = c->to - c->from;
    n = n < left ? n : left;
    if (n)
        memcpy((char *)mr_buffer_data(c->payload) + c->payload_got, c->in + c->from, n);
    c->from += n;
    payload_came(c, n);
}

static mr_code take_head(mr__connection *c, const void *head, mr_status *st)
{
    MR_TRY(mr__frame_check_head(&c->frame, c->fixed, head, st));
    if (c->frame.kind == MR__FRAME_BLOCK)
        return start_block(c, head, st);
    mr__message *m;
    MR_TRY(mr__message_unpack(head, c->frame.head_bytes, &m, st));
    next_frame(c);
    mr_code rc = MR_OK;
    if (!c->handshake.done)
        shake(c, m);
    else if (m->body_case == MR__WIRE__MESSAGE__BODY_RECEIVED)
        rc = take_received(c, m->received->blocks, st);
    else
        c->class_->message(c, m);
    mr__message_free(m);
    return rc;
}

/* The fixed part of a frame is in `in`. */
static mr_code start_frame(mr__connection *c, mr_status *st)
{
    uint64_t most = c->handshake.done ? MR__FRAME_MOST_HEAD : MR__FRAME_MOST_UNKNOWN;
    memcpy(c->fixed, c->in + c->from, MR__FRAME_BYTES);
    if (c->handshake.accepts && !c->handshake.challenged && c->fixed[0] == 22 && c->fixed[1] == 3) {
        mr_fail(st, MR_FAILED_PRECONDITION,
                "it began a TLS handshake, but this service has no certificate; start it with "
                "--tls-cert and --tls-key");
        return refuse_kind(c, "the service does not use TLS", st);
    }
    MR_TRY(mr__frame_get(c->fixed, most, &c->frame, st));
    c->from += MR__FRAME_BYTES;
    c->has_frame = true;
    if (c->frame.head_bytes <= MR__CONNECTION_IN / 2)
        return MR_OK;
    c->head = mr_malloc(c->frame.head_bytes);
    if (!c->head)
        return mr_fail_memory(st, c->frame.head_bytes, "a message");
    c->head_got = c->to - c->from < c->frame.head_bytes ? c->to - c->from : c->frame.head_bytes;
    memcpy(c->head, c->in + c->from, c->head_got);
    c->from += c->head_got;
    return MR_OK;
}

/* Handles the next part of the received bytes; *more: another step may be possible. */
static mr_code step(mr__connection *c, bool *more, mr_status *st)
{
    size_t have = c->to - c->from;
    *more = true;
    if (c->has_head) {
        take_payload(c);
        *more = !c->has_head;
        return MR_OK;
    }
    if (!c->has_frame) {
        *more = have >= MR__FRAME_BYTES;
        return *more ? start_frame(c, st) : MR_OK;
    }
    if (c->head) {
        *more = c->head_got == c->frame.head_bytes;
        uint8_t *head = c->head;
        if (!*more)
            return MR_OK;
        c->head = NULL;
        mr_code rc = take_head(c, head, st);
        mr_free(head);
        return rc;
    }
    *more = have >= c->frame.head_bytes;
    if (!*more)
        return MR_OK;
    const uint8_t *head = c->in + c->from;
    c->from += c->frame.head_bytes; /* stays where it is until the next receive */
    return take_head(c, head, st);
}

/* Handles the received bytes until the owner pauses. */
static void take_all(mr__connection *c)
{
    mr_status st;
    bool more = !c->is_taking;
    mr_code rc = MR_OK;
    c->is_taking = true;
    while (rc == MR_OK && more && !c->closing && !c->paused && !c->changes)
        rc = step(c, &more, &st);
    c->is_taking = false;
    if (rc != MR_OK)
        mr__connection_close(c, &st);
}

static void received(mr__socket *s, size_t n)
{
    mr__connection *c = of_socket(s);
    if (c->has_head) {
        payload_came(c, n);
        if (c->has_head)
            return;
    } else if (c->head)
        c->head_got += n;
    else
        c->to += n;
    take_all(c);
}

static const mr__socket_class sockets = {opened, room, received, closed};

/* ---- receiving by TLS ---- */

/* Decrypts what was received, into the same places. */
static void take_secure(mr__connection *c)
{
    mr_status st;
    void *to;
    size_t most, n = 1;
    if (c->is_reading)
        return;
    c->is_reading = true;
    while (n && c->is_secure && (to = room(&c->socket, &most))) {
        mr_code rc = mr__tls_stream_read(&c->tls, to, most, &n, &st);
        if (rc != MR_OK)
            end_secure(c, &st);
        else if (n)
            received(&c->socket, n);
    }
    c->is_reading = false;
}

static void secure_opened(mr__socket *s)
{
    mr__connection *c = of_socket(s);
    mr_status st;
    opened(s);
    if (!c->closing && mr__tls_stream_begin(&c->tls, &st) != MR_OK)
        end_secure(c, &st);
}

static void *secure_room(mr__socket *s, size_t *n)
{
    mr__connection *c = of_socket(s);
    if (c->paused || c->closing || c->changes)
        return NULL;
    return mr__tls_stream_room(&c->tls, n);
}

static void secure_received(mr__socket *s, size_t n)
{
    mr__connection *c = of_socket(s);
    mr__tls_stream_received(&c->tls, n);
    take_secure(c);
}

static const mr__socket_class secure_sockets = {secure_opened, secure_room, secure_received,
                                                closed};

void mr__connection_pause(mr__connection *c)
{
    c->paused = true;
}

void mr__connection_resume(mr__connection *c)
{
    c->paused = false;
    if (c->is_taking) /* called from `message`, whose caller continues */
        return;
    take_all(c);
    if (c->is_secure)
        take_secure(c);
    mr__socket_receive(&c->socket);
}

/* ---- opening ---- */

static mr_code init(mr__connection *c, mr__loop *l, bool accepts, Mr__Wire__Role role,
                    mr__token token, const char *local, mr_status *st)
{
    const mr__connection_class *class_ = c->class_;
    *c = (mr__connection){.class_ = class_, .socket.class_ = &sockets, .deadline.fire = late};
    mr_status_init(&c->why);
    MR_TRY(begin(c, accepts, role, token, local, st));
    c->handshake.lends = accepts && class_->lends;
    c->in = mr_malloc(MR__CONNECTION_IN);
    if (!c->in)
        return mr_fail_memory(st, MR__CONNECTION_IN, "a connection");
    mr_code rc = mr__timer_set(l, &c->deadline, mr__loop_now(l) + HELLO_NS, st);
    if (rc != MR_OK)
        mr_free(c->in);
    return rc;
}

static mr_code begun(mr__connection *c, mr__loop *l, mr_code rc)
{
    if (rc == MR_OK)
        return rc;
    mr__timer_clear(l, &c->deadline);
    mr_free(c->in);
    return rc;
}

mr_code mr__connection_open(mr__connection *c, mr__loop *l, const mr__address *to,
                            Mr__Wire__Role role, mr__token token, mr_status *st)
{
    MR_TRY(init(c, l, false, role, token, "", st));
    c->at = *to;
    return begun(c, l, connect_to(c, l, st));
}

/* Without a token: why the peer is refused, or NULL. */
static const char *refusal_of(const mr__connection *c)
{
    int64_t user;
    if (!c->socket.is_local)
        return "there is no token, and without one only processes of the service's own user on its "
               "host are served, through its local socket; give both sides a --token-file, or "
               "start the service with --any-user";
    return mr__address_is_own_user(c->socket.fd, &user)
               ? NULL
               : "there is no token, and without one only the service's own user is served; give "
                 "both sides a --token-file, or start the service with --any-user";
}

mr_code mr__connection_accept(mr__connection *c, mr__loop *l, int fd, Mr__Wire__Role role,
                              mr__token token, const char *local, mr_status *st)
{
    mr_code rc = init(c, l, true, role, token, local, st);
    if (rc != MR_OK) {
        mr__sys->close(fd);
        return rc;
    }
    MR_TRY(begun(c, l, mr__socket_adopt(l, &c->socket, fd, st)));
    bool tls = mr__tls_accepts(token.tls) && !c->socket.is_local;
    if (!token.data && !token.any_user && !(tls && mr__tls_is_mutual(token.tls)))
        c->handshake.refusal = refusal_of(c);
    if (tls) {
        mr_status why;
        c->handshake.lends = false; /* pages are encrypted, not lent */
        if (secure_with(c, l, true, "", &why) != MR_OK)
            mr__connection_close(c, &why);
    }
    return MR_OK;
}
