/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/wire/libssl.h"

/* A record has up to 16 KiB, and less than 256 bytes besides. Buffers are as large as one until
 * much passes through them. */
enum {
    RECORD = 16 << 10,
    WITH_FRAME = RECORD + 256,
    SMALL = WITH_FRAME + 4096,
    LARGE = 24 * WITH_FRAME,
    MUCH = 4 * RECORD
};
/* The first byte of a TLS record, and of a frame. */
enum { TLS_ALERT = 21, TLS_HANDSHAKE = 22, FRAME = 'M' };

static const char label[] = "EXPORTER-millrace-local-socket";

/* ---- the memory that OpenSSL reads and writes ---- */

static int bio_read(BIO *b, char *to, size_t most, size_t *n)
{
    mr__tls_stream *s = BIO_get_data(b);
    size_t have = s->to - s->from;
    BIO_clear_retry_flags(b);
    *n = most < have ? most : have;
    if (!*n) {
        BIO_set_retry_read(b);
        return 0;
    }
    memcpy(to, s->in + s->from, *n);
    s->from += *n;
    return 1;
}

/* false: out of memory. */
static bool widen(uint8_t **bytes, size_t *size, size_t to)
{
    uint8_t *more = *size < to ? mr_realloc(*bytes, to) : *bytes;
    if (!more)
        return false;
    *bytes = more;
    *size = *size < to ? to : *size;
    return true;
}

/* Without room, the peer asks for answers that it does not read. */
static int bio_write(BIO *b, const char *from, size_t size, size_t *n)
{
    mr__tls_stream *s = BIO_get_data(b);
    mr__tls_out *o = s->fill;
    BIO_clear_retry_flags(b);
    if (size > LARGE - o->n || !widen(&o->bytes, &o->size, o->n + size > SMALL ? LARGE : SMALL))
        return 0;
    memcpy(o->bytes + o->n, from, size);
    o->n += size;
    *n = size;
    return 1;
}

static long bio_control(BIO *b, int what, long number, void *p)
{
    (void)b;
    (void)number;
    (void)p;
    return what == BIO_CTRL_FLUSH;
}

/* ---- what went wrong ---- */

typedef struct reason {
    int code;
    const char *what;
} reason;

/* Alerts about a certificate: what the peer thinks of this side's. */
static const reason alerts[] = {
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, "it does not trust the CA that issued it"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, "it has expired"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, "it is for another name, or damaged"},
    {SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, "it is for another purpose"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, "it was revoked"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, "it cannot be used"},
    {SSL_R_TLSV1_ALERT_DECRYPT_ERROR, "its signature is wrong"},
    {SSL_R_TLSV1_ALERT_ACCESS_DENIED, "it has no access"},
};

static const char *find(const reason *table, size_t n, int code)
{
    for (size_t i = 0; i < n; i++)
        if (table[i].code == code)
            return table[i].what;
    return NULL;
}

static mr_code fail_for(const mr__tls_stream *s, int code, mr_status *st)
{
    const char *alert = find(alerts, sizeof alerts / sizeof *alerts, code);
    if (s->refused[0])
        return mr_fail(st, MR_PERMISSION_DENIED, "%s", s->refused);
    if (alert && s->accepts)
        return mr_fail(st, MR_PERMISSION_DENIED, "the peer refuses this service's certificate: %s",
                       alert);
    if (alert)
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "the service refuses this side's certificate: %s; the service's log has "
                       "the reason",
                       alert);
    if (code == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED)
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "the service requires a certificate of its clients; give --tls-cert and "
                       "--tls-key, or MILLRACE_TLS_CERT and MILLRACE_TLS_KEY");
    if (code == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "it presented no client certificate, which --tls-client-ca requires");
    if (code == SSL_R_UNSUPPORTED_PROTOCOL || code == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION ||
        code == SSL_R_VERSION_TOO_LOW)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the peer does not support TLS 1.3, and earlier versions are refused");
    if (!s->is_open)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the TLS handshake failed: %s",
                       code ? ERR_reason_error_string(ERR_peek_error()) : "the peer gave it up");
    return mr_fail(st, MR_DATA_LOSS, "the TLS connection failed: %s",
                   code ? ERR_reason_error_string(ERR_peek_error()) : "unknown");
}

/* What `result` of a call to OpenSSL means. MR_OK: more must be received. */
static mr_code fail(mr__tls_stream *s, int result, mr_status *st)
{
    int error = mr__ssl.SSL_get_error(s->ssl, result);
    if (error == SSL_ERROR_WANT_READ)
        return MR_OK;
    s->has_failed = true;
    mr_code rc;
    if (error == SSL_ERROR_ZERO_RETURN) {
        rc = MR_END;
        if (st) {
            mr_status_init(st);
            st->code = MR_END;
        }
    } else {
        unsigned long e = ERR_peek_error();
        rc = fail_for(s, e ? ERR_GET_REASON(e) : 0, st);
    }
    ERR_clear_error();
    return rc;
}

/* ---- verification ---- */

/* Keeps the reason for which a certificate is refused. */
static int verified(int good, X509_STORE_CTX *x)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(x, mr__ssl.SSL_get_ex_data_X509_STORE_CTX_idx());
    mr__tls_stream *s = mr__ssl.SSL_get_ex_data(ssl, 0);
    if (good || s->refused[0])
        return good;
    int error = X509_STORE_CTX_get_error(x);
    const X509 *cert = X509_STORE_CTX_get0_cert(x);
    char subject[200], hosts[200];
    mr__tls_subject(cert, subject, sizeof subject);
    mr__tls_hosts(cert, hosts, sizeof hosts);
    if (error == X509_V_ERR_HOSTNAME_MISMATCH || error == X509_V_ERR_IP_ADDRESS_MISMATCH)
        snprintf(s->refused, sizeof s->refused,
                 "the certificate of the service is for %s, not for %s; --tls-name NAME expects "
                 "another name",
                 hosts, s->host);
    else
        snprintf(s->refused, sizeof s->refused, "the certificate %s of the %s is refused: %s%s",
                 subject, s->accepts ? "client" : "service", X509_verify_cert_error_string(error),
                 s->accepts || error == X509_V_ERR_CERT_HAS_EXPIRED
                     ? ""
                     : "; --tls-ca FILE names the CA to trust");
    return 0;
}

static bool expect_host(mr__tls_stream *s)
{
    X509_VERIFY_PARAM *p = mr__ssl.SSL_get0_param(s->ssl);
    X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (X509_VERIFY_PARAM_set1_ip_asc(p, s->host) == 1)
        return true;
    ERR_clear_error();
    mr__ssl.SSL_ctrl(s->ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, s->host);
    return mr__ssl.SSL_set1_host(s->ssl, s->host) == 1;
}

/* ---- sending ---- */

static void pump(mr__tls_stream *s);

static void out_done(mr__send *send, bool was_sent)
{
    mr__tls_out *o = (mr__tls_out *)((char *)send - offsetof(mr__tls_out, send));
    o->is_sent = false;
    o->n = 0;
    if (was_sent)
        pump(o->stream);
}

/* Passes the ciphertext on, unless the socket has a buffer already. */
static void flush(mr__tls_stream *s)
{
    mr__tls_out *o = s->fill, *other = o == &s->out[0] ? &s->out[1] : &s->out[0];
    if (!o->n || other->is_sent)
        return;
    o->one = (struct iovec){o->bytes, o->n};
    o->send = (mr__send){.v = &o->one, .n = 1, .done = out_done};
    o->is_sent = true;
    s->fill = other;
    mr__socket_send(s->socket, &o->send);
}

static void give_up(mr__tls_stream *s, const char *what)
{
    s->has_failed = true;
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
    for (const mr__send *send = s->first; send && n < RECORD; send = send->next) {
        size_t offset = send->offset;
        for (size_t i = send->at; i < send->n && n < RECORD; i++, offset = 0) {
            size_t left = send->v[i].iov_len - offset;
            left = left < RECORD - n ? left : RECORD - n;
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
    uint8_t together[RECORD];
    const mr__send *send = s->first;
    const void *p = together;
    size_t n = 0, done = 0;
    if (send->at < send->n && send->v[send->at].iov_len - send->offset >= RECORD) {
        p = (const char *)send->v[send->at].iov_base + send->offset;
        n = RECORD;
    } else {
        n = gather(s, together);
    }
    ERR_clear_error();
    if (n && (mr__ssl.SSL_write_ex(s->ssl, p, n, &done) != 1 || done != n)) {
        ERR_clear_error();
        give_up(s, "out of memory for the encryption of a message");
        return false;
    }
    take(s, n);
    return true;
}

static bool has_room(const mr__tls_stream *s)
{
    return s->fill->n + WITH_FRAME <= (s->queued_bytes >= MUCH ? LARGE : SMALL);
}

static void end(mr__tls_stream *s)
{
    if (s->is_open && !s->has_failed)
        mr__ssl.SSL_shutdown(s->ssl);
    ERR_clear_error();
    s->has_failed = true;
    flush(s);
    mr__socket_finish(s->socket);
}

/* Encrypts what is queued, as far as there is room. */
static void pump(mr__tls_stream *s)
{
    do {
        while (s->is_open && !s->has_failed && s->first && has_room(s) && encrypt(s))
            ;
        flush(s);
    } while (s->is_open && !s->has_failed && s->first && has_room(s) && !s->fill->n);
    if (s->finishes && (!s->first || !s->is_open) && !s->has_failed)
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
    if (s->is_open && !s->soon.place && !s->has_failed &&
        mr__timer_set(l, &s->soon, mr__loop_now(l), NULL) != MR_OK)
        give_up(s, "out of memory for a timer");
}

void mr__tls_stream_finish(mr__tls_stream *s)
{
    s->finishes = true;
    if (s->has_failed) {
        flush(s);
        mr__socket_finish(s->socket);
    } else {
        pump(s);
    }
}

/* ---- receiving ---- */

void *mr__tls_stream_room(mr__tls_stream *s, size_t *n)
{
    if (s->from > 0) {
        memmove(s->in, s->in + s->from, s->to - s->from);
        s->to -= s->from;
        s->from = 0;
    }
    *n = s->in_size - s->to;
    return *n ? s->in + s->to : NULL;
}

/* A buffer that one call has filled is made larger. */
void mr__tls_stream_received(mr__tls_stream *s, size_t n)
{
    s->to += n;
    if (s->to == s->in_size)
        widen(&s->in, &s->in_size, LARGE);
}

/* The first byte shows whether the peer speaks TLS at all. */
static mr_code check_first(mr__tls_stream *s, mr_status *st)
{
    if (s->has_begun || s->from == s->to)
        return MR_OK;
    s->has_begun = true;
    if (s->in[0] == TLS_HANDSHAKE || s->in[0] == TLS_ALERT)
        return MR_OK;
    s->has_failed = true;
    s->is_plain = s->in[0] == FRAME;
    if (!s->is_plain)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the peer does not speak TLS");
    if (s->accepts)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "it connected without TLS, which this service requires");
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "the service at %s does not use TLS; leave out --tls, --tls-ca and their "
                   "environment variables, or start it with --tls-cert and --tls-key",
                   s->host);
}

static mr_code shake(mr__tls_stream *s, mr_status *st)
{
    ERR_clear_error();
    int rc = mr__ssl.SSL_do_handshake(s->ssl);
    mr_code code = rc == 1 ? MR_OK : fail(s, rc, st);
    if (rc == 1) {
        uint8_t both[sizeof s->secret];
        X509 *cert = mr__ssl.SSL_get1_peer_certificate(s->ssl);
        mr__tls_subject(cert, s->peer, sizeof s->peer);
        X509_free(cert);
        if (mr__ssl.SSL_export_keying_material(s->ssl, both, sizeof both, label, sizeof label - 1,
                                               NULL, 0, 0) != 1)
            return mr_fail(st, MR_INTERNAL, "the TLS session has no keys to export");
        memcpy(&s->secret, both, sizeof both);
        s->is_open = true;
        pump(s);
    } else {
        flush(s);
    }
    return code;
}

mr_code mr__tls_stream_begin(mr__tls_stream *s, mr_status *st)
{
    return s->accepts ? MR_OK : shake(s, st);
}

mr_code mr__tls_stream_read(mr__tls_stream *s, void *to, size_t most, size_t *n, mr_status *st)
{
    *n = 0;
    if (s->has_failed || !s->ssl)
        return MR_OK;
    MR_TRY(check_first(s, st));
    if (!s->is_open)
        MR_TRY(shake(s, st));
    if (!s->is_open)
        return MR_OK;
    ERR_clear_error();
    if (mr__ssl.SSL_read_ex(s->ssl, to, most, n) == 1)
        return MR_OK;
    *n = 0;
    mr_code rc = fail(s, 0, st);
    flush(s); /* an answer to a request for new keys, or an alert */
    return rc;
}

/* ---- beginning and end ---- */

static mr_code make_ssl(mr__tls_stream *s, mr__tls *tls, mr_status *st)
{
    BIO *b = NULL;
    s->ssl = mr__ssl.SSL_new(mr__tls_context(tls, s->accepts));
    s->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "memory of a connection");
    if (s->method && BIO_meth_set_read_ex(s->method, bio_read) == 1 &&
        BIO_meth_set_write_ex(s->method, bio_write) == 1 &&
        BIO_meth_set_ctrl(s->method, bio_control) == 1)
        b = BIO_new(s->method);
    if (!s->ssl || !b || mr__ssl.SSL_set_ex_data(s->ssl, 0, s) != 1) {
        BIO_free(b);
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for a TLS connection");
    }
    BIO_set_data(b, s);
    BIO_set_init(b, 1);
    mr__ssl.SSL_set_bio(s->ssl, b, b);
    mr__ssl.SSL_ctrl(s->ssl, SSL_CTRL_MODE, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, NULL);
    if (s->accepts) {
        mr__ssl.SSL_set_accept_state(s->ssl);
        mr__ssl.SSL_set_verify(s->ssl,
                               mr__tls_is_mutual(tls)
                                   ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
                                   : SSL_VERIFY_NONE,
                               verified);
        return MR_OK;
    }
    mr__ssl.SSL_set_connect_state(s->ssl);
    mr__ssl.SSL_set_verify(s->ssl, SSL_VERIFY_PEER, verified);
    if (!expect_host(s))
        return mr_fail(st, MR_INVALID_ARGUMENT, "\"%s\" cannot be the name of a certificate",
                       s->host);
    return MR_OK;
}

mr_code mr__tls_stream_open(mr__tls_stream *s, mr__tls *tls, bool accepts, const char *host,
                            mr__socket *socket, mr_status *st)
{
    const char *name = mr__tls_name(tls);
    *s = (mr__tls_stream){.socket = socket, .accepts = accepts, .soon.fire = soon};
    mr_status_init(&s->why);
    s->fill = &s->out[0];
    s->out[0].stream = s->out[1].stream = s;
    snprintf(s->host, sizeof s->host, "%s", accepts ? "" : name ? name : host);
    ERR_clear_error();
    mr_code rc = widen(&s->in, &s->in_size, SMALL) ? make_ssl(s, tls, st)
                                                   : mr_fail_memory(st, SMALL, "a TLS connection");
    ERR_clear_error();
    if (rc != MR_OK)
        mr__tls_stream_close(s);
    return rc;
}

void mr__tls_stream_close(mr__tls_stream *s)
{
    if (s->soon.place)
        mr__timer_clear(s->socket->loop, &s->soon);
    s->has_failed = true;
    while (s->first) {
        mr__send *send = s->first;
        s->first = send->next;
        send->done(send, false);
    }
    s->last = NULL;
    s->queued_bytes = 0;
    if (s->ssl)
        mr__ssl.SSL_free(s->ssl);
    BIO_meth_free(s->method);
    mr_free(s->in);
    mr_free(s->out[0].bytes);
    mr_free(s->out[1].bytes);
    s->ssl = NULL;
    s->method = NULL;
    s->in = NULL;
    s->in_size = s->from = s->to = 0;
    s->out[0] = s->out[1] = (mr__tls_out){.stream = s};
}
