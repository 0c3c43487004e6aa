/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/tls_certificates.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/system.h"
#include "transport/wire/libssl.h"

#define SECOND  ((int64_t)1000000000)
#define DAY     ((int64_t)86400)
#define WARNING (7 * DAY)
#define SUITES  "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
enum { MOST_TEXT = 256 << 10 }; /* of a file */
enum { CERT, KEY, CLIENT_CA, CA, FILES };

static const char *const option_names[FILES] = {"tls_cert", "tls_key", "tls_client_ca", "tls_ca"};

/* What shows that a file has changed. */
typedef struct mark {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
} mark;

/* What was read from the files. */
typedef struct loaded {
    SSL_CTX *accepting, *connecting; /* NULL: it does not */
    char subject[256];               /* of the certificate */
    int64_t expiry;
    char *cert, *key; /* if it accepts: the files' contents */
} loaded;

struct mr__tls {
    bool accepts, connects, peers;
    char *files[FILES]; /* NULL: none */
    char *name;
    loaded use;
    unsigned number; /* of times that the files were read */
    mark marks[FILES];
    int64_t looked_ns;
    unsigned hang_ups;
    int64_t warned_at; /* in Unix time, of the expiry; 0: not yet */
};

static atomic_uint hang_ups;

void mr__tls_hang_up(void)
{
    atomic_fetch_add_explicit(&hang_ups, 1, memory_order_relaxed);
}

/* ---- texts ---- */

void mr__tls_subject(const void *cert, char *text, size_t size)
{
    text[0] = '\0';
    if (cert)
        X509_NAME_oneline(X509_get_subject_name(cert), text, (int)size);
}

void mr__tls_common_name(const void *cert, char *text, size_t size)
{
    const X509_NAME *subject = cert ? X509_get_subject_name(cert) : NULL;
    int at = subject ? X509_NAME_get_index_by_NID(subject, NID_commonName, -1) : -1;
    unsigned char *name = NULL;
    text[0] = '\0';
    if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0)
        return;
    int n = ASN1_STRING_to_UTF8(&name, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    bool is_plain = n > 0 && (size_t)n < size;
    for (int i = 0; is_plain && i < n; i++)
        is_plain = name[i] >= ' ' && name[i] != 0x7f;
    if (is_plain)
        snprintf(text, size, "%.*s", n, (const char *)name);
    OPENSSL_free(name);
}

void mr__tls_hosts(const void *cert, char *text, size_t size)
{
    GENERAL_NAMES *names = cert ? X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL) : NULL;
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && n < size; i++) {
        const GENERAL_NAME *x = sk_GENERAL_NAME_value(names, i);
        char one[256] = "";
        if (x->type == GEN_DNS)
            snprintf(one, sizeof one, "%.*s", ASN1_STRING_length(x->d.dNSName),
                     (const char *)ASN1_STRING_get0_data(x->d.dNSName));
        else if (x->type == GEN_IPADD)
            inet_ntop(ASN1_STRING_length(x->d.iPAddress) == 4 ? AF_INET : AF_INET6,
                      ASN1_STRING_get0_data(x->d.iPAddress), one, sizeof one);
        if (one[0])
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", one);
    }
    sk_GENERAL_NAME_pop_free(names, GENERAL_NAME_free);
    if (!text[0])
        snprintf(text, size, "no host");
}

static int64_t unix_time(const ASN1_TIME *t)
{
    struct tm tm;
    return ASN1_TIME_to_tm(t, &tm) == 1 ? timegm(&tm) : 0;
}

static const char *date(int64_t t, char text[32])
{
    struct tm tm;
    time_t seconds = (time_t)t;
    strftime(text, 32, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&seconds, &tm));
    return text;
}

static int64_t today(void)
{
    struct timespec now = {0};
    mr__sys->clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec;
}

/* ---- reading the files ---- */

/* The certificate's files may lie outside the directories to which a worker is restricted, so they
 * are not opened through mr__sys. */
static mr_code check_file(const mr__tls *t, int which, mr_status *st)
{
    int fd = open(t->files[which], O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: cannot read %s: %s", option_names[which],
                       t->files[which], strerror(errno));
    close(fd);
    return MR_OK;
}

static mr_code bad_file(const mr__tls *t, int which, const char *what, mr_status *st)
{
    const char *why = ERR_reason_error_string(ERR_peek_last_error());
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s %s (%s)", option_names[which], t->files[which],
                   what, why ? why : "unknown");
}

/* Keys with a password are refused: a daemon has no terminal to ask for it. */
static int no_password(char *text, int size, int writes, void *ctx)
{
    (void)text;
    (void)size;
    (void)writes;
    (void)ctx;
    return 0;
}

static mr_code check_dates(const mr__tls *t, const X509 *cert, mr_status *st)
{
    char when[32];
    int64_t now = today(), from = unix_time(X509_get0_notBefore(cert)),
            to = unix_time(X509_get0_notAfter(cert));
    if (now > to)
        return mr_fail(st, MR_INVALID_ARGUMENT, "tls_cert: the certificate in %s expired on %s",
                       t->files[CERT], date(to, when));
    if (now < from)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tls_cert: the certificate in %s is not valid before %s", t->files[CERT],
                       date(from, when));
    return MR_OK;
}

/* Its own certificate. */
static mr_code use_certificate(const mr__tls *t, SSL_CTX *c, loaded *to, mr_status *st)
{
    if (!t->files[CERT])
        return MR_OK;
    if (mr__ssl.SSL_CTX_use_certificate_chain_file(c, t->files[CERT]) != 1)
        return bad_file(t, CERT, "has no certificate in PEM form", st);
    if (mr__ssl.SSL_CTX_use_PrivateKey_file(c, t->files[KEY], SSL_FILETYPE_PEM) != 1) {
        bool other = ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH;
        return bad_file(t, KEY,
                        other ? "has a key that is not that of the certificate"
                              : "has no key in PEM form without a password",
                        st);
    }
    const X509 *cert = mr__ssl.SSL_CTX_get0_certificate(c);
    MR_TRY(check_dates(t, cert, st));
    mr__tls_subject(cert, to->subject, sizeof to->subject);
    to->expiry = unix_time(X509_get0_notAfter(cert));
    return MR_OK;
}

static mr_code trust(const mr__tls *t, SSL_CTX *c, int which, mr_status *st)
{
    if (!t->files[which])
        return mr__ssl.SSL_CTX_set_default_verify_paths(c) == 1
                   ? MR_OK
                   : mr_fail(st, MR_INTERNAL, "tls: OpenSSL has no list of the system's CAs");
    if (mr__ssl.SSL_CTX_load_verify_file(c, t->files[which]) != 1)
        return bad_file(t, which, "has no certificate in PEM form", st);
    return MR_OK;
}

static mr_code new_context(SSL_CTX **out, mr_status *st)
{
    SSL_CTX *c = mr__ssl.SSL_CTX_new(mr__ssl.TLS_method());
    if (!c)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for a TLS context");
    *out = c;
    /* The macros of these names call the functions that are not linked. */
    mr__ssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL);
    mr__ssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    mr__ssl.SSL_CTX_ctrl(c, SSL_CTRL_MODE, SSL_MODE_NO_AUTO_CHAIN, NULL);
    mr__ssl.SSL_CTX_set_default_passwd_cb(c, no_password);
    if (mr__ssl.SSL_CTX_set_ciphersuites(c, SUITES) != 1)
        return mr_fail(st, MR_INTERNAL, "tls: OpenSSL lacks the cipher suites of TLS 1.3");
    return MR_OK;
}

static void drop(loaded *x)
{
    if (x->accepting)
        mr__ssl.SSL_CTX_free(x->accepting);
    if (x->connecting)
        mr__ssl.SSL_CTX_free(x->connecting);
    if (x->key)
        OPENSSL_cleanse(x->key, strlen(x->key));
    mr_free(x->cert);
    mr_free(x->key);
    *x = (loaded){0};
}

/* *out = the file's contents, for others that make TLS connections. */
static mr_code read_text(const mr__tls *t, int which, char **out, mr_status *st)
{
    FILE *f = fopen(t->files[which], "re");
    char *text = f ? mr_calloc(1, MOST_TEXT + 1) : NULL;
    size_t n = text ? fread(text, 1, MOST_TEXT + 1, f) : 0;
    bool good = text && !ferror(f) && n <= MOST_TEXT;
    if (f)
        fclose(f);
    if (good) {
        *out = text;
        return MR_OK;
    }
    mr_free(text);
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s: cannot read %s", option_names[which],
                   t->files[which]);
}

static mr_code load_all(const mr__tls *t, loaded *to, mr_status *st)
{
    for (int i = 0; i < FILES; i++)
        if (t->files[i])
            MR_TRY(check_file(t, i, st));
    if (t->accepts) {
        MR_TRY(new_context(&to->accepting, st));
        MR_TRY(use_certificate(t, to->accepting, to, st));
        MR_TRY(read_text(t, CERT, &to->cert, st));
        MR_TRY(read_text(t, KEY, &to->key, st));
        if (t->files[CLIENT_CA])
            MR_TRY(trust(t, to->accepting, CLIENT_CA, st));
    }
    if (t->connects) {
        MR_TRY(new_context(&to->connecting, st));
        MR_TRY(use_certificate(t, to->connecting, to, st));
        MR_TRY(trust(t, to->connecting, CA, st));
    }
    return MR_OK;
}

static mr_code load(const mr__tls *t, loaded *out, mr_status *st)
{
    loaded to = {0};
    ERR_clear_error();
    mr_code rc = load_all(t, &to, st);
    ERR_clear_error();
    if (rc == MR_OK)
        *out = to;
    else
        drop(&to);
    return rc;
}

/* ---- changes ---- */

/* true: it differs from the last one. */
static bool take_mark(const char *file, mark *last)
{
    struct stat s;
    mark now = {0};
    if (!file)
        return false;
    if (stat(file, &s) == 0)
        now = (mark){s.st_dev, s.st_ino, s.st_size, s.st_mtim};
    bool differs = now.device != last->device || now.inode != last->inode ||
                   now.size != last->size || now.changed.tv_sec != last->changed.tv_sec ||
                   now.changed.tv_nsec != last->changed.tv_nsec;
    *last = now;
    return differs;
}

static bool have_changed(mr__tls *t)
{
    bool changed = false;
    for (int i = 0; i < FILES; i++)
        changed = take_mark(t->files[i], &t->marks[i]) || changed;
    return changed;
}

static void warn_of_expiry(mr__tls *t)
{
    char when[32];
    int64_t now = today();
    if (!t->use.expiry || now < t->use.expiry - WARNING || now - t->warned_at < DAY)
        return;
    t->warned_at = now;
    if (now > t->use.expiry)
        mr_log(MR_LOG_ERROR,
               "the certificate %s in %s expired on %s; peers refuse it until the file is replaced",
               t->use.subject, t->files[CERT], date(t->use.expiry, when));
    else
        mr_log(MR_LOG_WARNING, "the certificate %s in %s expires on %s; replace the file",
               t->use.subject, t->files[CERT], date(t->use.expiry, when));
}

static void load_again(mr__tls *t)
{
    char when[32];
    mr_status st;
    loaded fresh = {0};
    if (load(t, &fresh, &st) != MR_OK) {
        mr_log(MR_LOG_ERROR, "the certificates stay as they were: %s", st.message);
        return;
    }
    drop(&t->use);
    t->use = fresh;
    t->number++;
    t->warned_at = 0;
    if (t->use.expiry)
        mr_log(MR_LOG_INFO, "the certificates were read again: %s, valid until %s", t->use.subject,
               date(t->use.expiry, when));
    else
        mr_log(MR_LOG_INFO, "the certificates were read again");
}

void mr__tls_look(mr__tls *t, int64_t now_ns)
{
    unsigned hung_up = atomic_load_explicit(&hang_ups, memory_order_relaxed);
    if (!t || (now_ns - t->looked_ns < SECOND && hung_up == t->hang_ups))
        return;
    t->looked_ns = now_ns;
    if (have_changed(t) || hung_up != t->hang_ups)
        load_again(t);
    t->hang_ups = hung_up;
    warn_of_expiry(t);
}

/* ---- opening ---- */

static const char *setting(const char *given, const char *variable)
{
    const char *v = given ? given : getenv(variable);
    return v && v[0] ? v : NULL;
}

static bool is_enabled(const mr_tls_opts *o)
{
    const char *v = getenv("MILLRACE_TLS");
    return o->enabled || (v && strcmp(v, "1") == 0);
}

/* What the options say together, before a file is read. */
static mr_code check_opts(const char *const files[FILES], const char *name, bool enabled, int sides,
                          mr_status *st)
{
    if (!files[CERT] != !files[KEY])
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: a certificate and its key go together; give "
                       "tls_cert (--tls-cert) and tls_key (--tls-key)",
                       files[CERT] ? "tls_cert" : "tls_key");
    if ((sides & MR__TLS_ACCEPTS) && files[CLIENT_CA] && !files[CERT])
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tls_client_ca: only a daemon with TLS can ask for certificates; give "
                       "tls_cert (--tls-cert) and tls_key (--tls-key)");
    if ((sides & MR__TLS_CONNECTS) && files[CERT] && !enabled && !files[CA])
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tls_cert: a certificate is set, but no CA by which to verify the side "
                       "connected to; give tls_ca (--tls-ca), or tls (--tls) for the system's");
    if (sides == MR__TLS_PEERS && files[CERT] && !files[CLIENT_CA])
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tls: the processes of a job accept each other by certificate, and those of "
                       "the system's CAs could be anyone's; give tls_ca (--tls-ca) or "
                       "tls_client_ca (--tls-client-ca)");
    if ((sides & MR__TLS_CONNECTS) && name && !enabled && !files[CA])
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tls_name: names are verified with TLS only; give tls_ca (--tls-ca), or tls "
                       "(--tls) for the system's CAs");
    return MR_OK;
}

static mr_code copy_opts(mr__tls *t, const char *const files[FILES], const char *name,
                         mr_status *st)
{
    bool good = !name || (t->name = mr_strdup(name));
    for (int i = 0; i < FILES && good; i++)
        if (files[i] && (i != CLIENT_CA || t->accepts) && (i != CA || t->connects))
            good = (t->files[i] = mr_strdup(files[i])) != NULL;
    return good ? MR_OK : mr_fail_memory(st, sizeof *t, "certificates");
}

mr_code mr__tls_open(mr__tls **out, const mr_tls_opts *opts, int sides, mr_status *st)
{
    static const mr_tls_opts none;
    const mr_tls_opts *o = opts ? opts : &none;
    const char *files[FILES] = {[CERT] = setting(o->cert, "MILLRACE_TLS_CERT"),
                                [KEY] = setting(o->key, "MILLRACE_TLS_KEY"),
                                [CLIENT_CA] = setting(o->client_ca, "MILLRACE_TLS_CLIENT_CA"),
                                [CA] = setting(o->ca, "MILLRACE_TLS_CA")};
    const char *name = setting(o->name, "MILLRACE_TLS_NAME");
    bool enabled = is_enabled(o), peers = sides == MR__TLS_PEERS;
    *out = NULL;
    if (peers && !files[CERT] && !files[KEY] && !o->client_ca) /* the CA is for other connections */
        return MR_OK;
    if (peers && !files[CLIENT_CA])
        files[CLIENT_CA] = files[CA];
    MR_TRY(check_opts(files, name, enabled, sides, st));
    bool accepts = (sides & MR__TLS_ACCEPTS) && files[CERT];
    bool connects = (sides & MR__TLS_CONNECTS) && (enabled || files[CA]);
    if (!accepts && !connects)
        return MR_OK;
    MR_TRY(mr__libssl_need(st));
    mr__tls *t = mr_calloc(1, sizeof *t);
    if (!t)
        return mr_fail_memory(st, sizeof *t, "certificates");
    t->accepts = accepts;
    t->connects = connects;
    t->peers = peers;
    t->hang_ups = atomic_load_explicit(&hang_ups, memory_order_relaxed);
    mr_code rc = copy_opts(t, files, name, st);
    if (rc == MR_OK) {
        have_changed(t);
        rc = load(t, &t->use, st);
    }
    if (rc != MR_OK) {
        mr__tls_free(t);
        return rc;
    }
    warn_of_expiry(t);
    *out = t;
    return MR_OK;
}

void mr__tls_free(mr__tls *t)
{
    if (!t)
        return;
    drop(&t->use);
    for (int i = 0; i < FILES; i++)
        mr_free(t->files[i]);
    mr_free(t->name);
    mr_free(t);
}

/* ---- options of graphs ---- */

typedef struct kept {
    mr_tls_opts o; /* first */
    struct kept *next;
} kept;

static mr__lock kept_lock = MR__LOCK_FREE;
static kept *all_kept;

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool copy_text(const char *from, const char **to)
{
    *to = from ? mr_strdup(from) : NULL;
    return !from || *to;
}

static kept *new_kept(const mr_tls_opts *o)
{
    kept *k = mr_calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->o.enabled = o->enabled;
    if (copy_text(o->cert, &k->o.cert) && copy_text(o->key, &k->o.key) &&
        copy_text(o->client_ca, &k->o.client_ca) && copy_text(o->ca, &k->o.ca) &&
        copy_text(o->name, &k->o.name))
        return k;
    const char *const texts[] = {k->o.cert, k->o.key, k->o.client_ca, k->o.ca, k->o.name};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        mr_free((void *)(uintptr_t)texts[i]);
    mr_free(k);
    return NULL;
}

const mr_tls_opts *mr__tls_opts_keep(const mr_tls_opts *o)
{
    mr__lock_take(&kept_lock);
    kept *k = all_kept;
    while (k && !(k->o.enabled == o->enabled && same_text(k->o.cert, o->cert) &&
                  same_text(k->o.key, o->key) && same_text(k->o.client_ca, o->client_ca) &&
                  same_text(k->o.ca, o->ca) && same_text(k->o.name, o->name)))
        k = k->next;
    if (!k && (k = new_kept(o))) {
        k->next = all_kept;
        all_kept = k;
    }
    mr__lock_release(&kept_lock);
    return k ? &k->o : NULL;
}

/* ---- */

bool mr__tls_accepts(const mr__tls *t)
{
    return t && t->accepts;
}

bool mr__tls_connects(const mr__tls *t)
{
    return t && t->connects;
}

bool mr__tls_is_mutual(const mr__tls *t)
{
    return t && t->accepts && t->files[CLIENT_CA];
}

bool mr__tls_is_of_peers(const mr__tls *t)
{
    return t && t->peers;
}

int64_t mr__tls_expiry(const mr__tls *t)
{
    return t ? t->use.expiry : 0;
}

unsigned mr__tls_number(const mr__tls *t)
{
    return t->number;
}

mr_code mr__tls_texts(const mr__tls *t, char **cert, char **key, unsigned *number, mr_status *st)
{
    char *a = mr_strdup(t->use.cert), *b = mr_strdup(t->use.key);
    if (!a || !b) {
        mr_free(a);
        mr_free(b);
        return mr_fail_memory(st, strlen(t->use.cert) + strlen(t->use.key), "a certificate");
    }
    *cert = a;
    *key = b;
    *number = t->number;
    return MR_OK;
}

void *mr__tls_context(const mr__tls *t, bool accepts)
{
    return accepts ? t->use.accepting : t->use.connecting;
}

const char *mr__tls_name(const mr__tls *t)
{
    return t->name;
}
