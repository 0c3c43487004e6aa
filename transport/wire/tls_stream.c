/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/tls_stream.h"

#include <stddef.h>
#include <string.h>

#include "pipeline/memory/alloc.h"

/* With at least this much queued, the larger buffers are used. */
enum { MUCH = 4 * MR__TLS_RECORD };

/* ---- sending ---- */

static void pump(mr__tls_stream *s);

static void out_done(mr__send *send, bool was_sent)
{
    mr__tls_stream *s = (mr__tls_stream *)((char *)send - offsetof(mr__tls_stream, send));
    s->is_sending = false;
    s->sending.n = 0;
    if (was_sent)
        pump(s);
}

/* Passes the ciphertext on, unless the socket has a buffer already. */
static void flush(mr__tls_stream *s)
{
    mr__tls_bytes full = s->session.out;
    if (full.from == full.n || s->is_sending)
        return;
    s->session.out = s->sending;
    s->session.out.from = s->session.out.n = 0;
    s->sending = full;
    s->one = (struct iovec){full.bytes + full.from, full.n - full.from};
    s->send = (mr__send){.v = &s->one, .n = 1, .done = out_done};
    s->is_sending = true;
    mr__socket_send(s->socket, &s->send);
}

static void give_up(mr__tls_stream *s, const char *what)
{
    s->session.has_failed = true;
    mr_fail(&s->why, MR_RESOURCE_EXHAUSTED, "%s", what);
    mr__socket_close(s->socket);
}

static void pop(mr__tls_stream *s)
{
    mr__send *send = s->first;
    s->first = send->next;
    if (!s->first)
        s->last = NULL;
    send->done(send, true);
}

/* n bytes of the queue were encrypted. */
static void take(mr__tls_stream *s, size_t n)
{
    s->queued_bytes -= n;
    while (s->first) {
        mr__send *send = s->first;
        for (; send->at < send->n; send->at++, send->offset = 0) {
            size_t left = send->v[send->at].iov_len - send->offset;
            if (n < left) {
                send->offset += n;
                return;
            }
            n -= left;
        }
        pop(s);
    }
}

/* Small pieces share a record.
 * returns  the number of bytes gathered in `to` */
static size_t gather(const mr__tls_stream *s, uint8_t *to)
{
    size_t n = 0;
    for (const mr__send *send = s->first; send && n < MR__TLS_RECORD; send = send->next) {
        size_t offset = send->offset;
        for (size_t i = send->at; i < send->n && n < MR__TLS_RECORD; i++, offset = 0) {
            size_t left = send->v[i].iov_len - offset;
            left = left < MR__TLS_RECORD - n ? left : MR__TLS_RECORD - n;
            if (left)
                memcpy(to + n, (const char *)send->v[i].iov_base + offset, left);
            n += left;
        }
    }
    return n;
}

/* Encrypts the next record of the queue. */
static bool encrypt(mr__tls_stream *s)
{
    uint8_t together[MR__TLS_RECORD];
    const mr__send *send = s->first;
    const void *p = together;
    size_t n = 0;
    if (send->at < send->n && send->v[send->at].iov_len - send->offset >= MR__TLS_RECORD) {
        p = (const char *)send->v[send->at].iov_base + send->offset;
        n = MR__TLS_RECORD;
    } else {
        n = gather(s, together);
    }
    if (n && mr__tls_session_write(&s->session, p, n, &s->why) != MR_OK) {
        mr__socket_close(s->socket);
        return false;
    }
    take(s, n);
    return true;
}

static bool has_room(const mr__tls_stream *s)
{
    return s->session.out.n + MR__TLS_WITH_FRAME <=
           (s->queued_bytes >= MUCH ? MR__TLS_LARGE : MR__TLS_SMALL);
}

static bool can_encrypt(const mr__tls_stream *s)
{
    return s->session.is_open && !s->session.has_failed && s->first && has_room(s);
}

static void end(mr__tls_stream *s)
{
    mr__tls_session_end(&s->session);
    flush(s);
    mr__socket_finish(s->socket);
}

/* Encrypts what is queued, as far as there is room. */
static void pump(mr__tls_stream *s)
{
    do {
        while (can_encrypt(s) && encrypt(s))
            ;
        flush(s);
    } while (can_encrypt(s) && !s->session.out.n);
    if (s->finishes && (!s->first || !s->session.is_open) && !s->session.has_failed)
        end(s);
}

static void soon(mr__timer *t)
{
    pump((mr__tls_stream *)((char *)t - offsetof(mr__tls_stream, soon)));
}

void mr__tls_stream_send(mr__tls_stream *s, mr__send *send)
{
    mr__loop *l = s->socket->loop;
    send->next = NULL;
    send->at = send->offset = 0;
    for (size_t i = 0; i < send->n; i++)
        s->queued_bytes += send->v[i].iov_len;
    if (s->last)
        s->last->next = send;
    else
        s->first = send;
    s->last = send;
    if (s->session.is_open && !s->soon.place && !s->session.has_failed &&
        mr__timer_set(l, &s->soon, mr__loop_now(l), NULL) != MR_OK)
        give_up(s, "out of memory for a timer");
}

void mr__tls_stream_finish(mr__tls_stream *s)
{
    s->finishes = true;
    if (s->session.has_failed) {
        flush(s);
        mr__socket_finish(s->socket);
    } else {
        pump(s);
    }
}

/* ---- receiving ---- */

void *mr__tls_stream_room(mr__tls_stream *s, size_t *n)
{
    return mr__tls_session_room(&s->session, n);
}

void mr__tls_stream_received(mr__tls_stream *s, size_t n)
{
    mr__tls_session_received(&s->session, n);
}

/* The session may have begun, and have bytes to send: of the handshake, an answer to a request for
 * new keys, or an alert. */
static void moved(mr__tls_stream *s, bool was_open)
{
    if (s->session.is_open && !was_open)
        pump(s);
    else
        flush(s);
}

mr_code mr__tls_stream_begin(mr__tls_stream *s, mr_status *st)
{
    if (s->session.accepts)
        return MR_OK;
    mr_code rc = mr__tls_session_shake(&s->session, st);
    moved(s, false);
    return rc;
}

mr_code mr__tls_stream_read(mr__tls_stream *s, void *to, size_t most, size_t *n, mr_status *st)
{
    bool was_open = s->session.is_open, was_over = s->session.has_failed || !s->session.ssl;
    mr_code rc = mr__tls_session_read(&s->session, to, most, n, st);
    if (!was_over && (!*n || !was_open))
        moved(s, was_open);
    return rc;
}

/* ---- beginning and end ---- */

static void init(mr__tls_stream *s, mr__socket *socket)
{
    *s = (mr__tls_stream){.socket = socket, .soon.fire = soon};
    mr_status_init(&s->why);
}

mr_code mr__tls_stream_open(mr__tls_stream *s, mr__tls *tls, bool accepts, const char *host,
                            mr__socket *socket, mr_status *st)
{
    init(s, socket);
    return mr__tls_session_open(&s->session, tls, accepts, host, st);
}

void mr__tls_stream_adopt(mr__tls_stream *s, mr__tls_session *session, mr__socket *socket)
{
    init(s, socket);
    mr__tls_session_move(&s->session, session);
}

void mr__tls_stream_close(mr__tls_stream *s)
{
    if (s->soon.place)
        mr__timer_clear(s->socket->loop, &s->soon);
    s->session.has_failed = true;
    while (s->first) {
        mr__send *send = s->first;
        s->first = send->next;
        send->done(send, false);
    }
    s->last = NULL;
    s->queued_bytes = 0;
    mr__tls_session_close(&s->session);
    mr_free(s->sending.bytes);
    s->sending = (mr__tls_bytes){0};
}
