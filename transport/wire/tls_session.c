/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/wire/libssl.h"

/* The first byte of a TLS record, and of a frame or a message of training processes. */
enum { TLS_ALERT = 21, TLS_HANDSHAKE = 22, FRAME = 'M' };

/* What keys exported from a session are for. */
static const char local_socket[] = "EXPORTER-millrace-local-socket";
static const char token[] = "EXPORTER-millrace-token";

/* ---- the memory that OpenSSL reads and writes ---- */

static int bio_read(BIO *b, char *to, size_t most, size_t *n)
{
    mr__tls_session *s = BIO_get_data(b);
    size_t have = s->in.n - s->in.from;
    BIO_clear_retry_flags(b);
    *n = most < have ? most : have;
    if (!*n) {
        BIO_set_retry_read(b);
        return 0;
    }
    memcpy(to, s->in.bytes + s->in.from, *n);
    s->in.from += *n;
    return 1;
}

/* false: out of memory. */
static bool widen(mr__tls_bytes *b, size_t to)
{
    uint8_t *more = b->size < to ? mr_realloc(b->bytes, to) : b->bytes;
    if (!more)
        return false;
    b->bytes = more;
    b->size = b->size < to ? to : b->size;
    return true;
}

/* The session fails without room: the peer makes it answer, and does not read. */
static int bio_write(BIO *b, const char *from, size_t size, size_t *n)
{
    mr__tls_session *s = BIO_get_data(b);
    mr__tls_bytes *o = &s->out;
    BIO_clear_retry_flags(b);
    if (size > MR__TLS_LARGE - o->n ||
        !widen(o, o->n + size > MR__TLS_SMALL ? MR__TLS_LARGE : MR__TLS_SMALL))
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

/* What the side that accepts is called. */
static const char *acceptor(const mr__tls_session *s)
{
    return s->peers ? "process" : "service";
}

static mr_code fail_for(const mr__tls_session *s, int code, mr_status *st)
{
    const char *alert = find(alerts, sizeof alerts / sizeof *alerts, code);
    if (s->refused[0])
        return mr_fail(st, MR_PERMISSION_DENIED, "%s", s->refused);
    if (alert && s->accepts)
        return mr_fail(st, MR_PERMISSION_DENIED, "the peer refuses this %s's certificate: %s",
                       acceptor(s), alert);
    if (alert)
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "the %s refuses this side's certificate: %s; the %s's log has the reason",
                       acceptor(s), alert, acceptor(s));
    if (code == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED)
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "the %s requires a certificate of its %s; give --tls-cert and --tls-key, or "
                       "MILLRACE_TLS_CERT and MILLRACE_TLS_KEY",
                       acceptor(s), s->peers ? "peers" : "clients");
    if (code == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        return mr_fail(st, MR_PERMISSION_DENIED, "it presented no %s",
                       s->peers ? "certificate, which every process of a job needs"
                                : "client certificate, which --tls-client-ca requires");
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
static mr_code fail(mr__tls_session *s, int result, mr_status *st)
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
    mr__tls_session *s = mr__ssl.SSL_get_ex_data(ssl, 0);
    if (good || s->refused[0])
        return good;
    int error = X509_STORE_CTX_get_error(x);
    const X509 *cert = X509_STORE_CTX_get0_cert(x);
    char subject[200], hosts[200];
    bool other_name =
        error == X509_V_ERR_HOSTNAME_MISMATCH || error == X509_V_ERR_IP_ADDRESS_MISMATCH;
    if (other_name && s->own && X509_cmp(cert, s->own) == 0) {
        X509_STORE_CTX_set_error(x, X509_V_OK);
        return 1;
    }
    mr__tls_subject(cert, subject, sizeof subject);
    mr__tls_hosts(cert, hosts, sizeof hosts);
    if (other_name)
        snprintf(s->refused, sizeof s->refused,
                 "the certificate of the %s is for %s, not for %s; --tls-name NAME expects another "
                 "name",
                 acceptor(s), hosts, s->host);
    else
        snprintf(s->refused, sizeof s->refused, "the certificate %s of the %s is refused: %s%s",
                 subject,
                 s->peers     ? "peer"
                 : s->accepts ? "client"
                              : "service",
                 X509_verify_cert_error_string(error),
                 s->accepts || error == X509_V_ERR_CERT_HAS_EXPIRED
                     ? ""
                     : "; --tls-ca FILE names the CA to trust");
    return 0;
}

static bool expect_host(mr__tls_session *s)
{
    X509_VERIFY_PARAM *p = mr__ssl.SSL_get0_param(s->ssl);
    X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (X509_VERIFY_PARAM_set1_ip_asc(p, s->host) == 1)
        return true;
    ERR_clear_error();
    if (!s->accepts)
        mr__ssl.SSL_ctrl(s->ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, s->host);
    return mr__ssl.SSL_set1_host(s->ssl, s->host) == 1;
}

/* An error that others left on this thread would be taken for one of the next call. */
static void forget_errors(void)
{
    if (ERR_peek_error()) /* clearing costs much more, for each record */
        ERR_clear_error();
}

/* ---- receiving ---- */

void *mr__tls_session_room(mr__tls_session *s, size_t *n)
{
    mr__tls_bytes *in = &s->in;
    if (in->from > 0) {
        memmove(in->bytes, in->bytes + in->from, in->n - in->from);
        in->n -= in->from;
        in->from = 0;
    }
    *n = in->size - in->n;
    return *n ? in->bytes + in->n : NULL;
}

/* A buffer that one call has filled is made larger. */
void mr__tls_session_received(mr__tls_session *s, size_t n)
{
    s->in.n += n;
    if (s->in.n == s->in.size)
        widen(&s->in, MR__TLS_LARGE);
}

/* The first byte shows whether the peer speaks TLS at all. */
static mr_code check_first(mr__tls_session *s, mr_status *st)
{
    if (s->has_begun || s->in.from == s->in.n)
        return MR_OK;
    uint8_t first = s->in.bytes[0];
    s->has_begun = true;
    s->is_tls = first == TLS_HANDSHAKE || first == TLS_ALERT;
    if (s->is_tls)
        return MR_OK;
    s->has_failed = true;
    s->is_plain = first == FRAME;
    if (!s->is_plain)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the peer does not speak TLS");
    if (s->accepts)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "it connected without TLS, which this %s requires", acceptor(s));
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "the %s at %s does not use TLS; leave out --tls, --tls-ca and their "
                   "environment variables, or start it with --tls-cert and --tls-key",
                   acceptor(s), s->host);
}

static bool export_key(mr__tls_session *s, const char *label, void *to, size_t n)
{
    return mr__ssl.SSL_export_keying_material(s->ssl, to, n, label, strlen(label), NULL, 0, 0) == 1;
}

mr_code mr__tls_session_shake(mr__tls_session *s, mr_status *st)
{
    ERR_clear_error();
    int rc = mr__ssl.SSL_do_handshake(s->ssl);
    if (rc != 1)
        return fail(s, rc, st);
    X509 *cert = mr__ssl.SSL_get1_peer_certificate(s->ssl);
    mr__tls_subject(cert, s->peer, sizeof s->peer);
    mr__tls_common_name(cert, s->name, sizeof s->name);
    X509_free(cert);
    if (!export_key(s, local_socket, &s->secret, sizeof s->secret) ||
        !export_key(s, token, s->binding, sizeof s->binding))
        return mr_fail(st, MR_INTERNAL, "the TLS session has no keys to export");
    s->is_open = true;
    return MR_OK;
}

mr_code mr__tls_session_read(mr__tls_session *s, void *to, size_t most, size_t *n, mr_status *st)
{
    *n = 0;
    if (s->has_failed || !s->ssl)
        return MR_OK;
    MR_TRY(check_first(s, st));
    if (!s->is_open)
        MR_TRY(mr__tls_session_shake(s, st));
    if (!s->is_open)
        return MR_OK;
    forget_errors();
    if (mr__ssl.SSL_read_ex(s->ssl, to, most, n) == 1)
        return MR_OK;
    *n = 0;
    return fail(s, 0, st);
}

/* ---- sending ---- */

/* The message that announces it is written before the next record. */
static bool change_key(mr__tls_session *s)
{
    s->records = 0;
    return mr__ssl.SSL_key_update(s->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1;
}

mr_code mr__tls_session_write(mr__tls_session *s, const void *p, size_t n, mr_status *st)
{
    size_t done = 0;
    forget_errors();
    if (s->records == s->most_records && !change_key(s)) {
        ERR_clear_error();
        s->has_failed = true;
        return mr_fail(st, MR_INTERNAL, "the TLS session gets no new key");
    }
    s->records++;
    if (mr__ssl.SSL_write_ex(s->ssl, p, n, &done) == 1 && done == n)
        return MR_OK;
    ERR_clear_error();
    s->has_failed = true;
    return mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for the encryption of a message");
}

void mr__tls_session_end(mr__tls_session *s)
{
    if (s->is_open && !s->has_failed)
        mr__ssl.SSL_shutdown(s->ssl);
    ERR_clear_error();
    s->has_failed = true;
}

/* ---- beginning and end ---- */

static mr_code make_ssl(mr__tls_session *s, mr__tls *tls, mr_status *st)
{
    s->ssl = mr__ssl.SSL_new(mr__tls_context(tls, s->accepts));
    s->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "memory of a connection");
    if (s->method && BIO_meth_set_read_ex(s->method, bio_read) == 1 &&
        BIO_meth_set_write_ex(s->method, bio_write) == 1 &&
        BIO_meth_set_ctrl(s->method, bio_control) == 1)
        s->bio = BIO_new(s->method);
    if (!s->ssl || !s->bio || mr__ssl.SSL_set_ex_data(s->ssl, 0, s) != 1) {
        BIO_free(s->bio);
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for a TLS connection");
    }
    BIO_set_data(s->bio, s);
    BIO_set_init(s->bio, 1);
    mr__ssl.SSL_set_bio(s->ssl, s->bio, s->bio);
    mr__ssl.SSL_ctrl(s->ssl, SSL_CTRL_MODE, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, NULL);
    if (s->accepts) {
        mr__ssl.SSL_set_accept_state(s->ssl);
        mr__ssl.SSL_set_verify(s->ssl,
                               mr__tls_is_mutual(tls)
                                   ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
                                   : SSL_VERIFY_NONE,
                               verified);
    } else {
        mr__ssl.SSL_set_connect_state(s->ssl);
        mr__ssl.SSL_set_verify(s->ssl, SSL_VERIFY_PEER, verified);
    }
    if (s->host[0] && !expect_host(s))
        return mr_fail(st, MR_INVALID_ARGUMENT, "\"%s\" cannot be the name of a certificate",
                       s->host);
    return MR_OK;
}

mr_code mr__tls_session_open(mr__tls_session *s, mr__tls *tls, bool accepts, const char *host,
                             mr_status *st)
{
    const char *name = mr__tls_name(tls);
    *s = (mr__tls_session){
        .accepts = accepts, .peers = mr__tls_is_of_peers(tls), .most_records = MR__TLS_RECORDS};
    /* Peers that share a name verify each other by it; other names that connect are not known. */
    snprintf(s->host, sizeof s->host, "%s",
             name && (s->peers || !accepts) ? name
             : accepts                      ? ""
                                            : host);
    if (s->peers)
        s->own = mr__ssl.SSL_CTX_get0_certificate(mr__tls_context(tls, accepts));
    ERR_clear_error();
    mr_code rc = widen(&s->in, MR__TLS_SMALL) ? make_ssl(s, tls, st)
                                              : mr_fail_memory(st, MR__TLS_SMALL, "a TLS session");
    ERR_clear_error();
    if (rc != MR_OK)
        mr__tls_session_close(s);
    return rc;
}

void mr__tls_session_close(mr__tls_session *s)
{
    if (s->ssl)
        mr__ssl.SSL_free(s->ssl);
    BIO_meth_free(s->method);
    mr_free(s->in.bytes);
    mr_free(s->out.bytes);
    s->ssl = NULL;
    s->bio = NULL;
    s->method = NULL;
    s->in = s->out = (mr__tls_bytes){0};
}

void mr__tls_session_move(mr__tls_session *to, mr__tls_session *from)
{
    *to = *from;
    *from = (mr__tls_session){0};
    BIO_set_data(to->bio, to);
    mr__ssl.SSL_set_ex_data(to->ssl, 0, to);
}
