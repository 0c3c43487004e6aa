/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/transfer_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pipeline/remote/s3.h"
#include "pipeline/remote/secret_file.h"
#include "pipeline/remote/url_roots_internal.h"

enum {
    CHUNK = 128 << 10,   /* that libcurl passes at once; less than a slot */
    ASKED_FOR = 1 << 20, /* smaller bodies are sent before the server has said that it wants them */
};
#define CONNECT_MS    10000L /* time for a connection */
#define STALL_SECONDS 30L    /* without a byte */

/* ---- sending ---- */

static size_t on_send(char *out, size_t size, size_t count, void *ctx)
{
    mr__transfer *t = ctx;
    size_t left = t->request.size - t->sent, n = size * count < left ? size * count : left;
    if (n)
        memcpy(out, (const char *)mr_buffer_data(t->request.body) + t->sent, n);
    t->sent += n;
    t->last_byte_at = mr__clock_ns(CLOCK_MONOTONIC);
    return n;
}

/* libcurl repeats a request on another connection if a kept one turns out to be closed. */
static int on_rewind(void *ctx, curl_off_t offset, int origin)
{
    mr__transfer *t = ctx;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > t->request.size)
        return CURL_SEEKFUNC_FAIL;
    t->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* ---- tries ---- */

void mr__try_stop(mr__transfer *t)
{
    if (!t->easy)
        return;
    mr__curl.curl_multi_remove_handle(t->multi, t->easy);
    mr__curl.curl_easy_cleanup(t->easy);
    mr__curl.curl_slist_free_all(t->headers);
    t->easy = NULL;
    t->headers = NULL;
    atomic_store(&t->paused, false);
}

static bool add_header(mr__transfer *t, const char *name, const char *value)
{
    char *line = mr_strf("%s: %s", name, value);
    struct curl_slist *more = line ? mr__curl.curl_slist_append(t->headers, line) : NULL;
    mr_free(line);
    if (more)
        t->headers = more;
    return more != NULL;
}

static bool is_strong(const char *etag)
{
    return *etag == '"';
}

static const char *certificates(const mr__object *o)
{
    const char *v = o->kind == MR__URL_S3 ? getenv("AWS_CA_BUNDLE") : NULL;
    v = v && *v ? v : getenv("SSL_CERT_FILE");
    return v && *v ? v : NULL;
}

/* The sockets of connections are counted for the host that they were made for. */
static int count_socket(void *host, curl_socket_t fd, curlsocktype purpose)
{
    (void)fd, (void)purpose;
    mr__host_add(&((mr__host *)host)->open_connections, 1);
    return CURL_SOCKOPT_OK;
}

static int close_socket(void *host, curl_socket_t fd)
{
    mr__host_add(&((mr__host *)host)->open_connections, -1);
    return close(fd); /* libcurl opened it without mr__sys */
}

void mr__try_count(const mr__transfer *t)
{
    long redirects = 0;
    curl_off_t sent = 0, answered = 0;
    mr__curl.curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_COUNT, &redirects);
    mr__curl.curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &sent);
    mr__curl.curl_easy_getinfo(t->easy, CURLINFO_STARTTRANSFER_TIME_T, &answered);
    mr__host_add(&t->host->requests, redirects);
    if (answered > 0)
        mr__host_answered(t->host, answered - sent);
}

#define SET(option, value)                                                                         \
    good = good && mr__curl.curl_easy_setopt(t->easy, option, value) == CURLE_OK

static bool set_request(mr__transfer *t)
{
    const mr__request *r = &t->request;
    bool good = true;
    t->sent = 0;
    SET(CURLOPT_CUSTOMREQUEST, r->method);
    if (mr__try_is_head(t))
        SET(CURLOPT_NOBODY, 1L);
    if (r->method[0] == 'P') {
        SET(CURLOPT_UPLOAD, 1L);
        SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->size);
        SET(CURLOPT_READFUNCTION, on_send);
        SET(CURLOPT_READDATA, t);
        SET(CURLOPT_SEEKFUNCTION, on_rewind);
        SET(CURLOPT_SEEKDATA, t);
        if (r->size < ASKED_FOR)
            SET(CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
    }
    if (r->creates)
        good = good && add_header(t, "If-None-Match", "*");
    if (t->mark[0])
        good = good && add_header(t, "x-amz-meta-millrace-write", t->mark);
    return good;
}

static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    mr__transfer *t = ctx;
    (void)purpose;
    t->shut_out = t->object->guarded && !mr__url_roots_allow_address(&a->addr);
    if (t->shut_out)
        return CURL_SOCKET_BAD;
    int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
    if (fd >= 0)
        t->had_socket = true;
    t->no_socket = fd < 0 && !t->had_socket ? errno : 0;
    return fd;
}

/* The request is about to be sent. Until it had a connection it could not get a byte. */
static int on_connection(void *ctx, char *to, char *from, int to_port, int from_port)
{
    mr__transfer *t = ctx;
    (void)to, (void)from, (void)to_port, (void)from_port;
    if (t->begun_at) /* redirects follow */
        t->last_byte_at += mr__clock_ns(CLOCK_MONOTONIC) - t->begun_at;
    t->begun_at = 0;
    return CURL_PREREQFUNC_OK;
}

static bool set_options(mr__transfer *t)
{
    const mr__object *o = t->object;
    const mr__object_target *target = &o->target;
    const char *bundle = certificates(o);
    bool good = mr__object_target_renew(&t->object->target, NULL) == MR_OK,
         https = strncmp(target->url, "https", 5) == 0;
    char text[128];
    SET(CURLOPT_URL, target->url);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_REDIR_PROTOCOLS_STR, https ? "https" : "http,https");
    SET(CURLOPT_FOLLOWLOCATION, (long)target->redirects);
    SET(CURLOPT_MAXREDIRS, (long)MR__MOST_REDIRECTS);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* a connection for each range */
    SET(CURLOPT_USERAGENT, "millrace/" MR_VERSION);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* a name that is being resolved does not delay the end */
    SET(CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, STALL_SECONDS);
    SET(CURLOPT_BUFFERSIZE, (long)CHUNK);
    SET(CURLOPT_WRITEFUNCTION, mr__try_on_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_HEADERFUNCTION, mr__try_on_header);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_PRIVATE, t);
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_OPENSOCKETDATA, t);
    SET(CURLOPT_PREREQFUNCTION, on_connection);
    SET(CURLOPT_PREREQDATA, t);
    SET(CURLOPT_SOCKOPTFUNCTION, count_socket);
    SET(CURLOPT_SOCKOPTDATA, t->host);
    SET(CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    SET(CURLOPT_CLOSESOCKETDATA, t->host);
    if (bundle)
        SET(CURLOPT_CAINFO, bundle);
    if (target->signs) {
        snprintf(text, sizeof text, "aws:amz:%.80s:s3", target->region);
        SET(CURLOPT_AWS_SIGV4, text);
        SET(CURLOPT_USERPWD, target->user);
        good = good && add_header(t, "x-amz-content-sha256", "UNSIGNED-PAYLOAD");
        if (target->token)
            good = good && add_header(t, "x-amz-security-token", target->token);
    }
    if (!target->signs && target->token) {
        char *bearer = mr_strf("Bearer %s", target->token);
        good = good && bearer && add_header(t, "Authorization", bearer);
        mr__secret_free(bearer);
    }
    if (o->kind == MR__URL_GS) /* bytes as they are stored, so that ranges hold */
        good = good && add_header(t, "Accept-Encoding", "gzip");
    if (!o->whole) {
        int64_t at = t->from + t->received;
        if (t->to >= 0)
            snprintf(text, sizeof text, "%" PRId64 "-%" PRId64, at, t->to - 1);
        else
            snprintf(text, sizeof text, "%" PRId64 "-", at);
        if (!t->whole)
            SET(CURLOPT_RANGE, text);
        if (atomic_load_explicit(&o->known, memory_order_relaxed) && is_strong(o->info.etag))
            good = good && add_header(t, "If-Match", o->info.etag);
        if (atomic_load_explicit(&o->known, memory_order_relaxed) &&
            mr__is_generation(o->info.etag))
            good = good && add_header(t, "x-goog-if-generation-match",
                                      o->info.etag + sizeof MR__GENERATION - 1);
    }
    if (t->request.method)
        good = good && set_request(t);
    if (t->headers)
        SET(CURLOPT_HTTPHEADER, t->headers);
    return good;
}

void mr__try_finish(mr__transfer *t, mr_code rc)
{
    mr__try_stop(t);
    if (t->slot && t->used && mr__try_free_slots(t) > 0)
        mr__try_emit(t);
    if (rc == MR_OK)
        t->why.code = MR_OK;
    atomic_store_explicit(&t->done, true, memory_order_release);
    mr__try_notify(t);
}

void mr__try_begin(mr__transfer *t)
{
    mr__try_forget_answer(t);
    t->begin_at = 0;
    t->begun_at = mr__clock_ns(CLOCK_MONOTONIC);
    t->no_socket = 0;
    t->had_socket = false;
    t->tries++;
    t->host = mr__host_of(t->object->target.url);
    mr__host_add(&t->host->requests, 1);
    t->easy = mr__curl.curl_easy_init();
    bool good =
        t->easy && set_options(t) && mr__curl.curl_multi_add_handle(t->multi, t->easy) == CURLM_OK;
    if (good)
        return;
    if (t->easy) {
        mr__curl.curl_easy_cleanup(t->easy);
        mr__curl.curl_slist_free_all(t->headers);
        t->easy = NULL;
        t->headers = NULL;
    }
    mr__try_finish(t, mr_fail_memory(&t->why, 0, "a request"));
}
