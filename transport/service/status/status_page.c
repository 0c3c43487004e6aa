/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/status/status_page.h"

#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "pipeline/system/timed_wait.h"
#include "transport/net/stranger_log.h"
#include "transport/service/status/status_render.h"

#define SECOND     ((int64_t)1000000000)
#define FRESH_NS   (SECOND / 2)  /* maximum age of a report that is shown */
#define PATIENCE   (2 * SECOND)  /* time limit for a report */
#define VISIT_NS   (10 * SECOND) /* for a connection: its request, and reading the answer */
#define MS         ((int64_t)1000000)
#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3" /* of GnuTLS */
enum { MOST_VISITS = 64, MOST_HEADER = 16 << 10 };

/* A connection. */
typedef struct visit {
    struct visit *next, *prev; /* the oldest first */
    int fd;
    int64_t since;
    bool is_answered;
    bool is_cut;  /* its socket was shut down, */
    bool is_slow; /* because it took too long */
    char from[128];
} visit;

struct mr__status_page {
    mr__status_page_opts o;
    char *title;
    mr__address address;
    struct MHD_Daemon *daemon;
    pthread_t thread;
    bool has_thread;
    int event; /* an eventfd: the thread must end */
    /* The HTTP thread's: */
    char *cert, *key; /* that it serves with; NULL: HTTP */
    visit *oldest, *newest;
    size_t n_visits; /* not cut */
    mr__stranger_log strangers;
    char *text;     /* the report shown last, */
    json_t *report; /* the same, */
    int64_t shown;  /* and when it was requested; 0: none yet */
    mr__posted posted;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t arrived;
    bool is_wanted; /* requested, and not ready yet */
    bool is_closing;
    int64_t wanted_at;
    char *fresh;              /* the new report; owned */
    int64_t expiry;           /* of the certificate when the report was made */
    char *new_cert, *new_key; /* to serve with from now on; NULL: as before */
    /* The loop's: */
    unsigned certificate; /* mr__tls_number of the last one */
};

/* ---- the report ---- */

/* In the loop's thread. */
static void give_report(mr__posted *posted)
{
    mr__status_page *p = (mr__status_page *)((char *)posted - offsetof(mr__status_page, posted));
    char *text = p->o.report(p->o.ctx);
    pthread_mutex_lock(&p->lock);
    mr_free(p->fresh);
    p->fresh = text;
    p->expiry = mr__tls_expiry(p->o.tls);
    p->is_wanted = false;
    pthread_cond_broadcast(&p->arrived);
    pthread_mutex_unlock(&p->lock);
}

static void show(mr__status_page *p, char *text)
{
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    if (!report) { /* the previous report is kept */
        mr_free(text);
        return;
    }
    json_decref(p->report);
    mr_free(p->text);
    p->report = report;
    p->text = text;
    p->shown = p->wanted_at;
}

/* Updates p->report. Returns how long the daemon has not answered; 0: it has. */
static int64_t look(mr__status_page *p)
{
    int64_t now = mr__clock_ns(CLOCK_MONOTONIC);
    pthread_mutex_lock(&p->lock);
    if (!p->is_wanted && !p->fresh && (!p->shown || now - p->shown >= FRESH_NS) && !p->is_closing) {
        p->is_wanted = true;
        p->wanted_at = now;
        mr__loop_post(p->o.loop, &p->posted);
    }
    while (p->is_wanted && !p->is_closing &&
           mr__cond_wait_until(&p->arrived, &p->lock, p->wanted_at + PATIENCE))
        ;
    int64_t silent = p->is_wanted ? mr__clock_ns(CLOCK_MONOTONIC) - p->wanted_at : 0;
    char *text = p->fresh;
    p->fresh = NULL;
    if (text)
        show(p, text);
    pthread_mutex_unlock(&p->lock);
    return silent;
}

/* ---- answers ---- */

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type,
                              struct MHD_Response *r)
{
    static const char *const headers[][2] = {
        {MHD_HTTP_HEADER_CONNECTION, "close"},
        {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
         "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}};
    if (!r)
        return MHD_NO;
    bool good = MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        good = good && MHD_add_response_header(r, headers[i][0], headers[i][1]) == MHD_YES;
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        good = good && MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES;
    if (status == MHD_HTTP_UNAUTHORIZED)
        good = good &&
               MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer") == MHD_YES;
    enum MHD_Result done = good ? MHD_queue_response(c, status, r) : MHD_NO;
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result answer_constant(struct MHD_Connection *c, unsigned status, const char *type,
                                       const char *text)
{
    return answer(c, status, type,
                  MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                                  MHD_RESPMEM_PERSISTENT));
}

static const char plain[] = "text/plain; charset=utf-8";

/* t is taken over. */
static enum MHD_Result answer_text(struct MHD_Connection *c, unsigned status, const char *type,
                                   mr__text *t)
{
    if (t->failed) {
        mr_free(t->data);
        return answer_constant(c, MHD_HTTP_INTERNAL_SERVER_ERROR, plain, "out of memory\n");
    }
    struct MHD_Response *r =
        MHD_create_response_from_buffer_with_free_callback(t->n, t->data, mr_free);
    if (!r)
        mr_free(t->data);
    return answer(c, status, type, r);
}

static enum MHD_Result answer_html(mr__status_page *p, struct MHD_Connection *c)
{
    mr__text t = {0};
    struct timespec now;
    int64_t silent = look(p);
    mr__sys->clock_gettime(CLOCK_REALTIME, &now);
    mr__status_html(&t, p->title, p->o.tables, p->report, (double)silent / (double)SECOND,
                    now.tv_sec);
    return answer_text(c, silent ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK,
                       "text/html; charset=utf-8", &t);
}

static enum MHD_Result answer_metrics(mr__status_page *p, struct MHD_Connection *c)
{
    mr__text t = {0};
    mr__status_metrics(&t, p->o.tables, p->report);
    pthread_mutex_lock(&p->lock);
    int64_t expiry = p->expiry;
    pthread_mutex_unlock(&p->lock);
    if (expiry)
        mr__put_format(&t,
                       "# HELP millrace_tls_certificate_expiry_seconds When the certificate "
                       "expires, in Unix time.\n"
                       "# TYPE millrace_tls_certificate_expiry_seconds gauge\n"
                       "millrace_tls_certificate_expiry_seconds %" PRId64 "\n",
                       expiry);
    return answer_text(c, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", &t);
}

static enum MHD_Result answer_json(const mr__status_page *p, struct MHD_Connection *c)
{
    return answer(c, MHD_HTTP_OK, "application/json",
                  MHD_create_response_from_buffer(strlen(p->text), p->text, MHD_RESPMEM_MUST_COPY));
}

static enum MHD_Result answer_path(mr__status_page *p, struct MHD_Connection *c, const char *path)
{
    bool health = strcmp(path, "/healthz") == 0, metrics = strcmp(path, "/metrics") == 0;
    if (strcmp(path, "/") == 0)
        return answer_html(p, c);
    if (strcmp(path, "/page.css") == 0)
        return answer_constant(c, MHD_HTTP_OK, "text/css", mr__status_css);
    if (strcmp(path, "/page.js") == 0)
        return answer_constant(c, MHD_HTTP_OK, "text/javascript", mr__status_js);
    if (!health && !metrics && strcmp(path, "/status.json") != 0)
        return answer_constant(
            c, MHD_HTTP_NOT_FOUND, plain,
            "Not found. The pages are /, /healthz, /metrics and /status.json.\n");
    if (look(p) || !p->report)
        return answer_constant(c, MHD_HTTP_SERVICE_UNAVAILABLE, plain,
                               "The daemon does not answer: it hangs, or is shutting down.\n");
    return health    ? answer_constant(c, MHD_HTTP_OK, plain, "ok\n")
           : metrics ? answer_metrics(p, c)
                     : answer_json(p, c);
}

/* Whether the request has the token of the page. */
static bool is_allowed(const mr__status_page *p, struct MHD_Connection *c, const char *path)
{
    static const char scheme[] = "Bearer ";
    const char *given =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!p->o.token || strcmp(path, "/healthz") == 0)
        return true;
    if (!given || strncasecmp(given, scheme, sizeof scheme - 1) != 0)
        return false;
    given += sizeof scheme - 1;
    return strlen(given) == p->o.token->bytes &&
           CRYPTO_memcmp(given, p->o.token->data, p->o.token->bytes) == 0;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    visit *v = info ? info->socket_context : NULL;
    (void)version;
    (void)upload;
    (void)upload_size;
    (void)request;
    if (!v)
        return MHD_NO;
    v->is_answered = true;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_constant(c, MHD_HTTP_METHOD_NOT_ALLOWED, plain,
                               "Only GET and HEAD are supported.\n");
    if (!is_allowed(cls, c, url))
        return answer_constant(c, MHD_HTTP_UNAUTHORIZED, plain,
                               "This page requires a token: Authorization: Bearer TOKEN.\n");
    return answer_path(cls, c, url);
}

/* ---- connections ---- */

static void cut(mr__status_page *p, visit *v)
{
    v->is_cut = true;
    p->n_visits--;
    mr__sys->shutdown(v->fd, SHUT_RDWR);
}

/* Cuts the oldest connections if there are too many. */
static void make_room(mr__status_page *p)
{
    for (visit *v = p->oldest; v && p->n_visits >= MOST_VISITS; v = v->next)
        if (!v->is_cut)
            cut(p, v);
}

/* Cuts connections that take too long, no matter how much they sent or read recently. Returns when
 * the next one is due; INT64_MAX: no connection is left. */
static int64_t cut_slow(mr__status_page *p, int64_t now)
{
    for (visit *v = p->oldest; v; v = v->next) {
        if (v->is_cut)
            continue;
        if (now - v->since < VISIT_NS)
            return v->since + VISIT_NS;
        v->is_slow = true;
        cut(p, v);
    }
    return INT64_MAX;
}

static visit *new_visit(mr__status_page *p, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *fd = MHD_get_connection_info(c,
                                                                 MHD_CONNECTION_INFO_CONNECTION_FD),
                                   *from = MHD_get_connection_info(
                                       c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    visit *v = fd ? mr_calloc(1, sizeof *v) : NULL;
    mr__address a;
    if (!v)
        return NULL;
    strcpy(v->from, "an unknown peer");
    if (from && from->client_addr) {
        socklen_t size = from->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                                  : sizeof(struct sockaddr_in);
        mr__address_of(from->client_addr, size, &a);
        memcpy(v->from, a.text, sizeof v->from);
    }
    v->fd = fd->connect_fd;
    v->since = mr__clock_ns(CLOCK_MONOTONIC);
    v->prev = p->newest;
    if (p->newest)
        p->newest->next = v;
    else
        p->oldest = v;
    p->newest = v;
    p->n_visits++;
    return v;
}

static void end_visit(mr__status_page *p, visit *v)
{
    if (!v->is_answered)
        mr__stranger_log_add(&p->strangers, mr__clock_ns(CLOCK_MONOTONIC), MR_LOG_INFO,
                             "the status page: the connection from %s was closed: %s", v->from,
                             v->is_slow  ? "it took too long"
                             : v->is_cut ? "closed to make room for another connection"
                                         : "it made no HTTP request");
    if (v->prev)
        v->prev->next = v->next;
    else
        p->oldest = v->next;
    if (v->next)
        v->next->prev = v->prev;
    else
        p->newest = v->prev;
    p->n_visits -= !v->is_cut;
    mr_free(v);
}

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    mr__status_page *p = cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        make_room(p);
        *context = new_visit(p, c);
    } else if (*context) {
        end_visit(p, *context);
        *context = NULL;
    }
}

/* ---- beginning and end ---- */

static mr_code check_place(const mr__status_page_opts *o, const mr__address *at, mr_status *st)
{
    if (o->is_public || mr__address_is_loopback(at))
        return MR_OK;
    return mr_fail(
        st, MR_INVALID_ARGUMENT,
        "status %s could be read from other hosts, but the service itself cannot be reached from "
        "there; use 127.0.0.1:0 for the page (--status), or listen on all addresses (--listen)",
        o->listen);
}

/* Serves on the listener fd, which is taken over, except on failure; by HTTPS if there is a
 * certificate. */
static mr_code start_daemon(mr__status_page *p, int fd, mr_status *st)
{
    const struct MHD_OptionItem https[] = {{MHD_OPTION_HTTPS_MEM_KEY, 0, p->key},
                                           {MHD_OPTION_HTTPS_MEM_CERT, 0, p->cert},
                                           {MHD_OPTION_HTTPS_PRIORITIES, 0, PRIORITIES},
                                           {MHD_OPTION_END, 0, NULL}},
                                http[] = {{MHD_OPTION_END, 0, NULL}};
    if (p->cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the status page cannot use TLS: libmicrohttpd was built without it");
    p->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | (p->cert ? MHD_USE_TLS : 0), 0, NULL, NULL, on_request, p,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)(2 * MOST_VISITS),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MOST_HEADER, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, p, MHD_OPTION_ARRAY, p->cert ? https : http, MHD_OPTION_END);
    return p->daemon ? MR_OK
                     : mr_fail_errno(st, errno ? errno : ENOMEM, "the status page's HTTP server");
}

static void drop_key(char *key)
{
    if (key)
        OPENSSL_cleanse(key, strlen(key));
    mr_free(key);
}

/* Serves with a new certificate, or with the old one if that fails: connections end. */
static bool start_again(mr__status_page *p)
{
    mr_status st;
    int fd = MHD_quiesce_daemon(p->daemon);
    MHD_stop_daemon(p->daemon);
    pthread_mutex_lock(&p->lock);
    char *cert = p->cert, *key = p->key;
    p->cert = p->new_cert;
    p->key = p->new_key;
    p->new_cert = p->new_key = NULL;
    pthread_mutex_unlock(&p->lock);
    mr_code rc = start_daemon(p, fd, &st);
    if (rc == MR_OK) {
        mr_free(cert);
        drop_key(key);
        return true;
    }
    mr_log(MR_LOG_ERROR, "the status page continues with the old certificate: %s", st.message);
    mr_free(p->cert);
    drop_key(p->key);
    p->cert = cert;
    p->key = key;
    rc = start_daemon(p, fd, &st);
    if (rc != MR_OK) {
        mr_log(MR_LOG_ERROR, "the status page has ended: %s", st.message);
        mr__sys->close(fd);
    }
    return rc == MR_OK;
}

/* The event was raised: false: the thread must end. */
static bool take_event(mr__status_page *p, struct pollfd *mhd)
{
    uint64_t n;
    bool is_read = mr__sys->read(p->event, &n, sizeof n) >= 0;
    pthread_mutex_lock(&p->lock);
    bool ends = p->is_closing, again = p->new_cert != NULL;
    pthread_mutex_unlock(&p->lock);
    if (ends || (is_read && again && !start_again(p)))
        return false;
    mhd->fd = MHD_get_daemon_info(p->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    return true;
}

/* The time limit of libmicrohttpd starts again with each byte, so connections are timed here. */
static void *serve(void *arg)
{
    mr__status_page *p = arg;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(p->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd fds[2] = {{.fd = info->epoll_fd, .events = POLLIN},
                            {.fd = p->event, .events = POLLIN}};
    while (!fds[1].revents || take_event(p, &fds[0])) {
        MHD_UNSIGNED_LONG_LONG ms;
        int64_t now = mr__clock_ns(CLOCK_MONOTONIC), due = cut_slow(p, now);
        int64_t wait = due == INT64_MAX ? -1 : (due - now) / MS + 1;
        if (MHD_get_timeout(p->daemon, &ms) == MHD_YES && (wait < 0 || (int64_t)ms < wait))
            wait = (int64_t)ms;
        mr__sys->poll(fds, 2, (int)wait);
        MHD_run(p->daemon);
    }
    return NULL;
}

/* The thread takes no signals: they are for the program's own. */
static mr_code start_thread(mr__status_page *p, mr_status *st)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&p->thread, NULL, serve, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    p->has_thread = err == 0;
    return err ? mr_fail_errno(st, err, "the status page's thread") : MR_OK;
}

static mr_code open_page(mr__status_page *p, mr_status *st)
{
    mr__address at;
    int fd;
    MR_TRY(mr__address_resolve(p->o.listen, &at, st));
    MR_TRY(check_place(&p->o, &at, st));
    MR_TRY(mr__address_listen(&at, &fd, &p->address, st));
    p->event = mr__sys->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    mr_code rc = p->event < 0 ? mr_fail_errno(st, errno, "an event descriptor") : MR_OK;
    if (rc == MR_OK && mr__tls_accepts(p->o.tls))
        rc = mr__tls_texts(p->o.tls, &p->cert, &p->key, &p->certificate, st);
    if (rc == MR_OK)
        rc = start_daemon(p, fd, st);
    if (rc != MR_OK) {
        mr__sys->close(fd);
        return rc;
    }
    MR_TRY(start_thread(p, st));
    if (!mr__address_is_loopback(&at) && !p->o.token)
        mr_log(MR_LOG_WARNING,
               "the status page at %s is open to other hosts and needs no token; it shows names of "
               "jobs and addresses of workers, and accepts no commands",
               p->address.text);
    return MR_OK;
}

mr_code mr__status_page_open(mr__status_page **out, const mr__status_page_opts *opts, mr_status *st)
{
    mr__status_page *p = mr_calloc(1, sizeof *p);
    if (!p || !(p->title = mr_strdup(opts->title))) {
        mr_free(p);
        return mr_fail_memory(st, sizeof *p, "a status page");
    }
    p->o = *opts;
    p->event = -1;
    p->posted.run = give_report;
    pthread_mutex_init(&p->lock, NULL);
    mr__timed_cond_init(&p->arrived);
    mr_code rc = open_page(p, st);
    if (rc != MR_OK) {
        mr__status_page_close(p);
        return rc;
    }
    *out = p;
    return MR_OK;
}

const char *mr__status_page_address(const mr__status_page *p)
{
    return p->address.text;
}

void mr__status_page_look(mr__status_page *p)
{
    char *cert, *key;
    unsigned number;
    if (!p || !mr__tls_accepts(p->o.tls) || p->certificate == mr__tls_number(p->o.tls) ||
        mr__tls_texts(p->o.tls, &cert, &key, &number, NULL) != MR_OK)
        return;
    p->certificate = number;
    pthread_mutex_lock(&p->lock);
    mr_free(p->new_cert);
    drop_key(p->new_key);
    p->new_cert = cert;
    p->new_key = key;
    pthread_mutex_unlock(&p->lock);
    mr__event_raise(p->event);
}

/* A request posted by the HTTP thread must return before its memory is freed. */
static void take_back(mr__status_page *p)
{
    mr_status st;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        bool is_wanted = p->is_wanted;
        pthread_mutex_unlock(&p->lock);
        if (!is_wanted || mr__loop_turn(p->o.loop, mr__loop_now(p->o.loop), &st) != MR_OK)
            return;
    }
}

void mr__status_page_close(mr__status_page *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->is_closing = true;
    pthread_cond_broadcast(&p->arrived);
    pthread_mutex_unlock(&p->lock);
    if (p->has_thread) {
        mr__event_raise(p->event);
        pthread_join(p->thread, NULL);
    }
    if (p->daemon)
        MHD_stop_daemon(p->daemon);
    if (p->event >= 0)
        mr__sys->close(p->event);
    mr__stranger_log_end(&p->strangers);
    take_back(p);
    pthread_cond_destroy(&p->arrived);
    pthread_mutex_destroy(&p->lock);
    json_decref(p->report);
    mr_free(p->fresh);
    mr_free(p->cert);
    mr_free(p->new_cert);
    drop_key(p->key);
    drop_key(p->new_key);
    mr_free(p->text);
    mr_free(p->title);
    mr_free(p);
}
