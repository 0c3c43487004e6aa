/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/transfer.h"

#define CURL_DISABLE_TYPECHECK /* its macros do not work with a table of functions */
#include <curl/curl.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pipeline/remote/cache_fetch.h"
#include "pipeline/remote/host_counters.h"
#include "pipeline/remote/s3.h"
#include "pipeline/remote/secret_file.h"
#include "pipeline/remote/url_roots_internal.h"
#include "pipeline/splitmix.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/late_library.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/system/system.h"
#include "pipeline/wait/wait.h"
#include "pipeline/warn_once.h"

#define CURL(X)                                                                                    \
    X(curl_global_init)                                                                            \
    X(curl_multi_init)                                                                             \
    X(curl_multi_setopt)                                                                           \
    X(curl_multi_add_handle)                                                                       \
    X(curl_multi_remove_handle)                                                                    \
    X(curl_multi_perform)                                                                          \
    X(curl_multi_poll)                                                                             \
    X(curl_multi_wakeup)                                                                           \
    X(curl_multi_info_read)                                                                        \
    X(curl_multi_strerror)                                                                         \
    X(curl_multi_cleanup)                                                                          \
    X(curl_easy_init)                                                                              \
    X(curl_easy_setopt)                                                                            \
    X(curl_easy_getinfo)                                                                           \
    X(curl_easy_cleanup)                                                                           \
    X(curl_easy_pause)                                                                             \
    X(curl_easy_strerror)                                                                          \
    X(curl_slist_append)                                                                           \
    X(curl_slist_free_all)
static struct {
    CURL(MR__LATE_MEMBER)
} curl;
static mr__late_library libcurl =
    MR__LATE_LIBRARY("URLs are read", "libcurl.so.4", "libcurl4", CURL, curl);

enum {
    RING = 32,          /* slots of a transfer that have not been taken; a range of 8 MiB has 16 */
    CHUNK = 128 << 10,  /* that libcurl passes at once; less than a slot */
    MOST_ANSWER = 8192, /* of the document of an error */
    MOST_MOVES = 3,     /* to another region */
    MOST_REDIRECTS = 10,
    CONNECTIONS = 64 /* to a host */
};
#define SECOND        INT64_C(1000000000)
#define CONNECT_MS    10000L /* time for a connection */
#define STALL_SECONDS 30L    /* without a byte */
#define GIVE_UP       (300 * SECOND)
#define FIRST_DELAY   (SECOND / 10)
#define MOST_DELAY    (20 * SECOND)
#define LINGER        (3 * SECOND) /* without transfers, before the thread ends */

/* What is wrong with an answer although HTTP is satisfied. */
typedef enum verdict { GOOD, CHANGED, OTHER_RANGE, TOO_LONG, NO_MEMORY } verdict;

struct mr__transfer {
    atomic_uint refs; /* the reader's and the thread's */
    atomic_uint word; /* changes with what the reader waits for; see mr__wait_while */
    mr__object *object;
    int64_t from, to; /* to -1: the end */
    size_t headroom, room;
    /* slots [taken, filled) modulo RING can be taken */
    mr_buffer *slots[RING];
    size_t sizes[RING];
    atomic_uint filled, taken;
    atomic_bool dropped, paused, done;
    mr_status why; /* once done; code MR_OK: all has arrived */

    /* the thread's */
    mr__transfer *next, *prev; /* of the list of all, or of the arriving ones */
    CURL *easy;                /* NULL: not running */
    mr__host *host;            /* of the target */
    struct curl_slist *headers;
    mr_buffer *slot; /* being filled */
    size_t used;
    int64_t received; /* bytes that arrived, in all tries */
    int64_t last_byte_at, begin_at;
    int tries, moves; /* tries since the last new byte */
    bool renewed;     /* other credentials were asked for since then */
    bool waits;       /* for them */

    /* of the answer */
    bool judged, is_range;
    verdict verdict;
    int64_t skip;               /* bytes of a whole body before the first wanted one */
    int64_t first, last, total; /* Content-Range, or -1 */
    int64_t length;             /* Content-Length, or -1 */
    mr__object_info info;
    char region[64], id[128];
    char code[48], said[160];   /* the hub's error */
    char document[MOST_ANSWER]; /* of an error */
    size_t n_document;

    mr__request request; /* method NULL: bytes are read */
    char mark[MR__MARK_SIZE];
    size_t sent;   /* of its body */
    bool shut_out; /* the server's address is not one that a worker connects to */
    mr__answer answer;
};

static bool is_head(const mr__transfer *t)
{
    return t->request.method && strcmp(t->request.method, "HEAD") == 0;
}

static bool is_good(const mr__transfer *t, long status)
{
    return status == 200 || status == 206 || (t->request.method && status == 204);
}

/* The thread and what it shares. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static struct {
    bool initialised, running, stops;
    pthread_t thread;
    CURLM *multi;
    mr__transfer *arriving;
    int retries;
    long connections; /* to a host */
    bool connections_changed;
} shared = {.connections = CONNECTIONS};

static atomic_int_fast64_t worked; /* nanoseconds, by the thread */

static void forget_thread(void)
{
    shared.running = shared.stops = false;
    shared.multi = NULL;
    shared.arriving = NULL;
}
MR__AROUND_FORK(lock, forget_thread)

static void notify(mr__transfer *t)
{
    atomic_fetch_add(&t->word, 2);
    mr__wait_wake(&t->word);
}

static void release(mr__transfer *t)
{
    /* Acquire and release: the last one frees what the other wrote. */
    if (atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    unsigned filled = atomic_load_explicit(&t->filled, memory_order_relaxed);
    for (unsigned i = atomic_load_explicit(&t->taken, memory_order_relaxed); i != filled; i++)
        mr_buffer_unref(t->slots[i % RING]);
    mr_buffer_unref(t->slot);
    mr_buffer_unref(t->request.body);
    mr__object_unref(t->object);
    mr_free(t);
}

/* ---- receiving, in the thread ---- */

static size_t free_slots(const mr__transfer *t)
{
    /* Acquire: pairs with the reader's release after it took the buffer. */
    return RING - (atomic_load_explicit(&t->filled, memory_order_relaxed) -
                   atomic_load_explicit(&t->taken, memory_order_acquire));
}

static void emit_slot(mr__transfer *t)
{
    unsigned i = atomic_load_explicit(&t->filled, memory_order_relaxed);
    t->slots[i % RING] = t->slot;
    t->sizes[i % RING] = t->used;
    t->slot = NULL;
    t->used = 0;
    /* Release: pairs with the reader's acquire. */
    atomic_store_explicit(&t->filled, i + 1, memory_order_release);
    notify(t);
}

static bool append(mr__transfer *t, const char *p, size_t n)
{
    size_t all = n;
    while (n) {
        if (!t->slot && free_slots(t) == 0) {
            t->verdict = TOO_LONG;
            return false;
        }
        if (!t->slot && mr_buffer_alloc(&t->slot, t->headroom + t->room, NULL) != MR_OK) {
            t->verdict = NO_MEMORY;
            return false;
        }
        size_t part = t->room - t->used < n ? t->room - t->used : n;
        memcpy((char *)mr_buffer_data(t->slot) + t->headroom + t->used, p, part);
        t->used += part;
        t->received += (int64_t)part;
        p += part;
        n -= part;
        if (t->used == t->room)
            emit_slot(t);
    }
    mr__host_add(&t->host->bytes, (int64_t)all);
    t->last_byte_at = mr__clock_ns(CLOCK_MONOTONIC);
    t->tries = 0;
    t->renewed = false;
    return true;
}

static long status_of(const mr__transfer *t)
{
    long v = 0;
    curl.curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &v);
    return v;
}

static bool is_generation(const char *etag)
{
    return strncmp(etag, MR__GENERATION, sizeof MR__GENERATION - 1) == 0;
}

/* An ETag and a generation say nothing of each other. */
static bool differs(const char *a, const char *b)
{
    return *a && *b && is_generation(a) == is_generation(b) && strcmp(a, b) != 0;
}

/* Compares the answer with what is known of the object, or makes that known. */
static bool judge_object(mr__transfer *t)
{
    mr__object *o = t->object;
    if (o->whole)
        return true;
    t->info.size = t->is_range ? t->total : t->length;
    t->info.ranges = t->is_range;
    /* Relaxed: this thread alone sets it. */
    if (!atomic_load_explicit(&o->known, memory_order_relaxed)) {
        o->info = t->info;
        if (!o->info.etag[0] && !o->info.modified[0])
            mr__warn_once("%s: the server sends neither ETag nor Last-Modified, so that a "
                          "replacement of the file while it is read cannot be noticed",
                          o->url);
        atomic_store_explicit(&o->known, true, memory_order_release);
        notify(t);
        return true;
    }
    if (differs(o->info.etag, t->info.etag) || differs(o->info.modified, t->info.modified) ||
        (o->info.size >= 0 && t->info.size >= 0 && o->info.size != t->info.size)) {
        t->verdict = CHANGED;
        return false;
    }
    return true;
}

/* Checks the head of a good answer, before its first byte or, without a body, at its end. */
static bool judge(mr__transfer *t)
{
    int64_t at = t->from + t->received;
    t->judged = true;
    t->is_range = status_of(t) == 206;
    if (t->is_range && (t->first != at || (t->to >= 0 && t->last >= t->to) || t->last < t->first)) {
        t->verdict = OTHER_RANGE;
        return false;
    }
    if (!t->is_range) { /* the server sends everything */
        const mr__object *o = t->object;
        if (!o->whole && atomic_load_explicit(&o->known, memory_order_relaxed) && o->info.ranges) {
            t->verdict = OTHER_RANGE;
            return false;
        }
        t->skip = at;
        t->to = -1;
        if (!t->slot)
            t->room = MR__REMOTE_SLOT;
    }
    return judge_object(t);
}

static size_t on_body(char *p, size_t size, size_t count, void *ctx)
{
    mr__transfer *t = ctx;
    size_t all = size * count, n = all;
    long status = status_of(t);
    if (status == 0) /* unknown: the bytes may be those of an error */
        return 0;
    if (!is_good(t, status)) {
        size_t left = sizeof t->document - 1 - t->n_document;
        memcpy(t->document + t->n_document, p, n < left ? n : left);
        t->n_document += n < left ? n : left;
        return all;
    }
    if (!t->judged && !judge(t))
        return 0;
    if (t->skip) {
        size_t part = (int64_t)n < t->skip ? n : (size_t)t->skip;
        t->skip -= (int64_t)part;
        p += part;
        n -= part;
        t->last_byte_at = mr__clock_ns(CLOCK_MONOTONIC);
    }
    /* A chunk needs at most two slots. */
    if (n && free_slots(t) < 2) {
        atomic_store(&t->paused, true);
        if (free_slots(t) < 2) {
            t->skip += (int64_t)(all - n); /* the same chunk comes again */
            return CURL_WRITEFUNC_PAUSE;
        }
        atomic_store(&t->paused, false);
    }
    if (t->to >= 0 && (int64_t)n > t->to - t->from - t->received) {
        t->verdict = TOO_LONG;
        return 0;
    }
    return append(t, p, n) ? all : 0;
}

static void copy_value(const char *v, size_t n, char *out, size_t room)
{
    n = n < room ? n : room - 1;
    memcpy(out, v, n);
    out[n] = '\0';
}

static bool is_header(const char *line, size_t n, const char *name, const char **value, size_t *n_v)
{
    size_t k = strlen(name);
    if (n <= k || line[k] != ':' || strncasecmp(line, name, k) != 0)
        return false;
    const char *v = line + k + 1, *end = line + n;
    while (v < end && (*v == ' ' || *v == '\t'))
        v++;
    while (end > v && isspace((unsigned char)end[-1]))
        end--;
    *value = v;
    *n_v = (size_t)(end - v);
    return true;
}

static void forget_answer(mr__transfer *t)
{
    t->judged = t->is_range = false;
    t->verdict = GOOD;
    t->skip = 0;
    t->first = t->last = t->total = t->length = -1;
    t->info = (mr__object_info){.size = -1};
    t->answer = (mr__answer){0};
    t->region[0] = t->id[0] = t->code[0] = t->said[0] = '\0';
    t->n_document = 0;
}

static void take_range(mr__transfer *t, const char *v)
{
    char size[24] = "";
    if (sscanf(v, "bytes %" SCNd64 "-%" SCNd64 "/%23s", &t->first, &t->last, size) != 3 &&
        sscanf(v, "bytes */%23s", size) != 1)
        t->first = t->last = -1;
    t->total = size[0] >= '0' && size[0] <= '9' ? strtoll(size, NULL, 10) : -1;
}

/* The headers of stores that S3 does not have. */
static void take_other(mr__transfer *t, const char *line, size_t n)
{
    mr__object *o = t->object;
    const char *v;
    size_t n_v;
    char text[64];
    if (is_header(line, n, "x-guploader-uploadid", &v, &n_v)) {
        copy_value(v, n_v, t->id, sizeof t->id);
    } else if (is_header(line, n, "x-error-code", &v, &n_v)) {
        copy_value(v, n_v, t->code, sizeof t->code);
    } else if (is_header(line, n, "x-error-message", &v, &n_v)) {
        copy_value(v, n_v, t->said, sizeof t->said);
    } else if (o->kind == MR__URL_GS && !t->info.etag[0] &&
               is_header(line, n, "x-goog-generation", &v, &n_v)) {
        copy_value(v, n_v, text, sizeof text);
        snprintf(t->info.etag, sizeof t->info.etag, MR__GENERATION "%s", text);
    } else if (o->whole && is_header(line, n, "link", &v, &n_v)) {
        mr_free(o->link);
        o->link = mr_strndup(v, n_v);
    }
}

/* The hub says what a file is where it redirects to the store that has it: in X-Linked-ETag, or in
 * the first ETag. That store's own names of the contents do not count. Without quotes it is not
 * strong: no store is asked for it. */
static bool take_of_hub(mr__transfer *t, const char *line, size_t n)
{
    const char *v;
    size_t n_v;
    if (t->object->kind != MR__URL_HF)
        return false;
    bool linked = is_header(line, n, "x-linked-etag", &v, &n_v);
    if (!linked && !is_header(line, n, "etag", &v, &n_v))
        return is_header(line, n, "last-modified", &v, &n_v);
    if (!linked && t->info.etag[0])
        return true;
    const char *from = memchr(v, '"', n_v), *end = v + n_v;
    const char *to = from ? memchr(from + 1, '"', (size_t)(end - from - 1)) : NULL;
    copy_value(to ? from + 1 : v, to ? (size_t)(to - from - 1) : n_v, t->info.etag,
               sizeof t->info.etag);
    return true;
}

/* Before the headers of an answer, which may be the last of several. */
static void begin_answer(mr__transfer *t)
{
    char etag[sizeof t->info.etag];
    memcpy(etag, t->info.etag, sizeof etag);
    forget_answer(t);
    if (t->object->kind == MR__URL_HF)
        memcpy(t->info.etag, etag, sizeof etag);
}

static size_t on_header(char *line, size_t size, size_t count, void *ctx)
{
    mr__transfer *t = ctx;
    size_t n = size * count, n_v;
    const char *v;
    char text[128];
    if (n >= 5 && memcmp(line, "HTTP/", 5) == 0)
        begin_answer(t);
    else if (take_of_hub(t, line, n))
        return n;
    else if (is_header(line, n, "etag", &v, &n_v))
        copy_value(v, n_v, t->info.etag, sizeof t->info.etag);
    else if (is_header(line, n, "last-modified", &v, &n_v))
        copy_value(v, n_v, t->info.modified, sizeof t->info.modified);
    else if (is_header(line, n, "x-amz-meta-millrace-write", &v, &n_v))
        copy_value(v, n_v, t->answer.mark, sizeof t->answer.mark);
    else if (is_header(line, n, "x-amz-bucket-region", &v, &n_v))
        copy_value(v, n_v, t->region, sizeof t->region);
    else if (is_header(line, n, "x-amz-request-id", &v, &n_v) ||
             is_header(line, n, "x-request-id", &v, &n_v))
        copy_value(v, n_v, t->id, sizeof t->id);
    else if (is_header(line, n, "content-range", &v, &n_v)) {
        copy_value(v, n_v, text, sizeof text);
        take_range(t, text);
    } else if (is_header(line, n, "content-length", &v, &n_v)) {
        copy_value(v, n_v, text, sizeof text);
        t->length = strtoll(text, NULL, 10);
    } else
        take_other(t, line, n);
    return n;
}

/* ---- sending, in the thread ---- */

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

static void stop_try(mr__transfer *t)
{
    if (!t->easy)
        return;
    curl.curl_multi_remove_handle(shared.multi, t->easy);
    curl.curl_easy_cleanup(t->easy);
    curl.curl_slist_free_all(t->headers);
    t->easy = NULL;
    t->headers = NULL;
    atomic_store(&t->paused, false);
}

static bool add_header(mr__transfer *t, const char *name, const char *value)
{
    char *line = mr_strf("%s: %s", name, value);
    struct curl_slist *more = line ? curl.curl_slist_append(t->headers, line) : NULL;
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

/* The try has ended. */
static void count_try(const mr__transfer *t)
{
    long redirects = 0;
    curl_off_t sent = 0, answered = 0;
    curl.curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_COUNT, &redirects);
    curl.curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &sent);
    curl.curl_easy_getinfo(t->easy, CURLINFO_STARTTRANSFER_TIME_T, &answered);
    mr__host_add(&t->host->requests, redirects);
    if (answered > 0)
        mr__host_answered(t->host, answered - sent);
}

#define SET(option, value) good = good && curl.curl_easy_setopt(t->easy, option, value) == CURLE_OK

static bool set_request(mr__transfer *t)
{
    const mr__request *r = &t->request;
    bool good = true;
    t->sent = 0;
    SET(CURLOPT_CUSTOMREQUEST, r->method);
    if (is_head(t))
        SET(CURLOPT_NOBODY, 1L);
    if (r->method[0] == 'P') {
        SET(CURLOPT_UPLOAD, 1L);
        SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->size);
        SET(CURLOPT_READFUNCTION, on_send);
        SET(CURLOPT_READDATA, t);
        SET(CURLOPT_SEEKFUNCTION, on_rewind);
        SET(CURLOPT_SEEKDATA, t);
    }
    if (r->creates)
        good = good && add_header(t, "If-None-Match", "*");
    if (t->mark[0])
        good = good && add_header(t, "x-amz-meta-millrace-write", t->mark);
    return good;
}

/* For a graph of a service's client. */
static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    mr__transfer *t = ctx;
    (void)purpose;
    t->shut_out = !mr__url_roots_allow_address(&a->addr);
    return t->shut_out ? CURL_SOCKET_BAD
                       : socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
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
    SET(CURLOPT_MAXREDIRS, (long)MOST_REDIRECTS);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* a connection for each range */
    SET(CURLOPT_USERAGENT, "millrace/" MR_VERSION);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* a name that is being resolved does not delay the end */
    SET(CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, STALL_SECONDS);
    SET(CURLOPT_BUFFERSIZE, (long)CHUNK);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_PRIVATE, t);
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
        SET(CURLOPT_RANGE, text);
        if (atomic_load_explicit(&o->known, memory_order_relaxed) && is_strong(o->info.etag))
            good = good && add_header(t, "If-Match", o->info.etag);
        if (atomic_load_explicit(&o->known, memory_order_relaxed) && is_generation(o->info.etag))
            good = good && add_header(t, "x-goog-if-generation-match",
                                      o->info.etag + sizeof MR__GENERATION - 1);
    }
    if (t->request.method)
        good = good && set_request(t);
    if (o->guarded) {
        SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
        SET(CURLOPT_OPENSOCKETDATA, t);
    }
    if (t->headers)
        SET(CURLOPT_HTTPHEADER, t->headers);
    return good;
}

static void finish(mr__transfer *t, mr_code rc)
{
    stop_try(t);
    if (t->slot && t->used && free_slots(t) > 0)
        emit_slot(t);
    if (rc == MR_OK)
        t->why.code = MR_OK;
    atomic_store_explicit(&t->done, true, memory_order_release);
    notify(t);
}

static void begin(mr__transfer *t)
{
    forget_answer(t);
    t->begin_at = 0;
    t->tries++;
    t->host = mr__host_of(t->object->target.url);
    mr__host_add(&t->host->requests, 1);
    t->easy = curl.curl_easy_init();
    bool good =
        t->easy && set_options(t) && curl.curl_multi_add_handle(shared.multi, t->easy) == CURLM_OK;
    if (good)
        return;
    if (t->easy) {
        curl.curl_easy_cleanup(t->easy);
        curl.curl_slist_free_all(t->headers);
        t->easy = NULL;
        t->headers = NULL;
    }
    finish(t, mr_fail_memory(&t->why, 0, "a request"));
}

/* ---- the end of a try ---- */

/* "the server answered 503 (SlowDown: Reduce your request rate; request id 1)" */
static void describe(mr__transfer *t, long status, char *out, size_t room)
{
    char code[80] = "", message[200] = "", more[512] = "";
    const char *at = t->document, *end = at + t->n_document;
    t->document[t->n_document] = '\0';
    if (mr__xml_text(&at, end, "Code", code, sizeof code)) {
        at = t->document;
        mr__xml_text(&at, end, "Message", message, sizeof message);
        at = t->document;
        if (!t->id[0])
            mr__xml_text(&at, end, "RequestId", t->id, sizeof t->id);
        snprintf(more, sizeof more, "%s%s%s", code, message[0] ? ": " : "", message);
    } else if (t->code[0] || t->said[0])
        snprintf(more, sizeof more, "%s%s%s", t->code, t->code[0] && t->said[0] ? ": " : "",
                 t->said);
    if (t->id[0])
        snprintf(more + strlen(more), sizeof more - strlen(more), "%srequest id %s",
                 more[0] ? "; " : "", t->id);
    snprintf(out, room, "the server answered %ld%s%s%s", status, more[0] ? " (" : "", more,
             more[0] ? ")" : "");
}

static bool has_code(const mr__transfer *t, const char *code)
{
    char found[80];
    const char *at = t->document;
    return mr__xml_text(&at, at + t->n_document, "Code", found, sizeof found) &&
           strcmp(found, code) == 0;
}

static mr_code fail_changed(mr__transfer *t)
{
    return mr_fail(&t->why, MR_FAILED_PRECONDITION,
                   "the object has been replaced since it was listed or opened; start over to read "
                   "the new one");
}

/* Replaces a secret of six characters and more, which a server may repeat. */
static void hide(char *text, const char *secret, size_t n)
{
    for (char *at = text; n >= 6 && (at = memmem(at, strlen(at), secret, n)); at += 3) {
        memmove(at + 3, at + n, strlen(at + n) + 1);
        memcpy(at, "...", 3);
    }
}

static void hide_credentials(char *text, const mr__object_target *target)
{
    size_t n = target->user ? strcspn(target->user, ":") : 0;
    if (n) {
        hide(text, target->user + n + 1, strlen(target->user + n + 1));
        hide(text, target->user, n);
    }
    if (target->token)
        hide(text, target->token, strlen(target->token));
}

/* Servers say in several ways that credentials have ended. */
static bool may_have_ended(const mr__transfer *t, long status)
{
    return status == 401 || (status == 403 && !has_code(t, "RequestTimeTooSkewed")) ||
           (status == 400 && (has_code(t, "ExpiredToken") || has_code(t, "TokenRefreshRequired")));
}

static mr_code fail_status(mr__transfer *t, long status)
{
    char text[640];
    const mr__object_target *target = &t->object->target;
    describe(t, status, text, sizeof text);
    hide_credentials(text, target);
    if (has_code(t, "RequestTimeTooSkewed"))
        return mr_fail(&t->why, MR_PERMISSION_DENIED,
                       "%s: the clock of this machine is wrong; set it", text);
    if (may_have_ended(t, status))
        return mr_fail(&t->why, MR_PERMISSION_DENIED, "%s%s%s", text,
                       target->origin  ? "; the credentials are those of "
                       : target->tried ? "; no credentials were sent, since none were found in "
                                       : "; no credentials were sent",
                       target->origin  ? target->origin
                       : target->tried ? target->tried
                                       : "");
    switch (status) {
    case 404:
    case 410:
        mr_fail(&t->why, MR_NOT_FOUND, "%s", text);
        t->why.sys_errno = ENOENT;
        return MR_NOT_FOUND;
    case 409:
        if (t->request.creates)
            return mr_fail(&t->why, MR_ALREADY_EXISTS, "%s", text);
        return mr_fail(&t->why, MR_UNAVAILABLE, "%s", text);
    case 412:
        if (t->request.creates)
            return mr_fail(&t->why, MR_ALREADY_EXISTS, "%s", text);
        return fail_changed(t);
    case 301:
    case 302:
    case 303:
    case 307:
    case 308:
        return mr_fail(&t->why, MR_FAILED_PRECONDITION, "%s, a redirection that is not followed",
                       text);
    case 400:
        return mr_fail(&t->why, MR_INVALID_ARGUMENT, "%s", text);
    case 501:
    case 505:
        return mr_fail(&t->why, MR_UNIMPLEMENTED, "%s", text);
    default:
        return mr_fail(&t->why, MR_UNAVAILABLE, "%s", text);
    }
}

static bool may_pass(long status)
{
    return status == 408 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

/* The seconds that the server asks for, as a number or as a date; at most an hour. 0: none. */
static int64_t retry_after(const mr__transfer *t)
{
    curl_off_t v = 0;
    if (curl.curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &v) != CURLE_OK || v < 0)
        return 0;
    return v < 3600 ? v : 3600;
}

/* Another try follows later, or t->why, which is set, becomes the transfer's error. */
static void retry(mr__transfer *t)
{
    int64_t now = mr__clock_ns(CLOCK_MONOTONIC), most = FIRST_DELAY;
    for (int i = 1; i < t->tries && most < MOST_DELAY; i++)
        most *= 2;
    most = most < MOST_DELAY ? most : MOST_DELAY;
    static uint64_t state;
    uint64_t random = mr__splitmix(state += MR__GOLDEN ^ (uint64_t)now);
    int64_t delay = (int64_t)(random % (uint64_t)most), wait_s = retry_after(t);
    if (wait_s * SECOND > delay)
        delay = wait_s * SECOND;
    int tried = t->tries ? t->tries : 1, most_tries = shared.retries;
    if (t->request.tries)
        most_tries = t->request.tries;
    if (tried >= most_tries || now + delay - t->last_byte_at > GIVE_UP) {
        char tries[64];
        size_t used = strlen(t->why.message);
        snprintf(tries, sizeof tries, "; gave up after %d %s", tried, tried == 1 ? "try" : "tries");
        snprintf(t->why.message + used, sizeof t->why.message - used, "%s", tries);
        finish(t, t->why.code);
        return;
    }
    mr__host_add(&t->host->retries, 1);
    stop_try(t);
    t->begin_at = now + delay;
}

static bool is_transient(CURLcode rc)
{
    switch (rc) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SEND_ERROR:
    case CURLE_SEND_FAIL_REWIND:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return true;
    default:
        return false;
    }
}

/* Sets t->why for a try that libcurl gave up. */
static mr_code fail_curl(mr__transfer *t, CURLcode rc)
{
    const char *text = curl.curl_easy_strerror(rc);
    long proxy = 0;
    curl.curl_easy_getinfo(t->easy, CURLINFO_HTTP_CONNECTCODE, &proxy);
    if (proxy >= 300)
        return mr_fail(&t->why, MR_UNAVAILABLE, "the proxy answered %ld to CONNECT", proxy);
    switch (rc) {
    case CURLE_OUT_OF_MEMORY:
        return mr_fail_memory(&t->why, 0, "a transfer");
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return mr_fail(&t->why, MR_INVALID_ARGUMENT, "not a URL that can be read: %s", text);
    case CURLE_TOO_MANY_REDIRECTS:
        return mr_fail(&t->why, MR_FAILED_PRECONDITION, "more than %d redirections",
                       MOST_REDIRECTS);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return mr_fail(&t->why, MR_UNAVAILABLE, "the name of the %s cannot be resolved",
                       rc == CURLE_COULDNT_RESOLVE_PROXY ? "proxy" : "server");
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
        return mr_fail(&t->why, MR_FAILED_PRECONDITION,
                       "the certificate of the server is not valid for it (%s); SSL_CERT_FILE "
                       "names a file of further authorities",
                       text);
    case CURLE_SSL_CACERT_BADFILE:
        return mr_fail(&t->why, MR_FAILED_PRECONDITION,
                       "the file of authorities (SSL_CERT_FILE, AWS_CA_BUNDLE) cannot be used");
    default:
        return mr_fail(&t->why, MR_UNAVAILABLE, "%s", text);
    }
}

/* The bytes that the answer should have had. -1: unknown. */
static int64_t wanted(const mr__transfer *t)
{
    const mr__object *o = t->object;
    if (is_head(t))
        return 0;
    int64_t size = o->whole ? t->length : o->info.size, to = t->to;
    if (size >= 0 && (to < 0 || to > size))
        to = size;
    return to < 0 ? -1 : to > t->from ? to - t->from : 0;
}

static mr_code fail_short(mr__transfer *t)
{
    int64_t want = wanted(t);
    return mr_fail(&t->why, MR_DATA_LOSS,
                   "the server sent %" PRId64 " bytes of the %" PRId64 " from byte %" PRId64
                   " on that it promised",
                   t->received, want, t->from);
}

/* A range beyond the end: of an empty object, or of one that has become shorter. */
static void end_beyond(mr__transfer *t)
{
    mr__object *o = t->object;
    int64_t at = t->from + t->received;
    bool known = atomic_load_explicit(&o->known, memory_order_relaxed);
    if (!known && at == 0 && t->total <= 0) {
        t->is_range = true;
        t->total = 0;
        judge_object(t);
        finish(t, MR_OK);
    } else if (!known && t->total >= 0 && t->total <= at) {
        t->is_range = true;
        judge_object(t);
        finish(t, MR_OK);
    } else
        finish(t, fail_changed(t));
}

static bool change_region(mr__transfer *t, long status)
{
    const char *at = t->document;
    t->document[t->n_document] = '\0';
    if (t->object->kind != MR__URL_S3 || t->moves == MOST_MOVES ||
        (status != 301 && status != 307 && status != 400))
        return false;
    if (!t->region[0] &&
        !mr__xml_text(&at, at + t->n_document, "Region", t->region, sizeof t->region))
        return false;
    for (const char *c = t->region; *c; c++) /* it becomes part of a host's name */
        if (!isalnum((unsigned char)*c) && *c != '-')
            return false;
    if (strcmp(t->region, t->object->target.region) == 0)
        return false;
    t->moves++;
    if (t->object->of_key)
        return mr__s3_change_region(t->object->url, NULL, t->region, &t->object->target, NULL) ==
                   MR_OK &&
               mr__object_add_query(t->object, NULL) == MR_OK;
    const char *query = t->object->whole ? strchr(t->object->target.url, '?') : NULL;
    char *kept = query ? mr_strdup(query + 1) : NULL;
    bool good = (!query || kept) && mr__s3_change_region(t->object->url, kept, t->region,
                                                         &t->object->target, NULL) == MR_OK;
    mr_free(kept);
    return good;
}

/* Asks for other credentials, once; t->why says why. */
static bool renew(mr__transfer *t, long status)
{
    const mr__object_target *target = &t->object->target;
    if (!target->access || t->renewed || !may_have_ended(t, status))
        return false;
    t->renewed = t->waits = true;
    stop_try(t);
    t->tries--;
    t->begin_at = INT64_MAX;
    mr__access_renew(target->access, target->generation);
    return true;
}

/* Begins again once the credentials have been renewed. */
static void look_at_renewal(mr__transfer *t)
{
    const mr__object_target *target = &t->object->target;
    mr_status why;
    mr_code rc = mr__access_renewal(target->access, target->generation, &why);
    if (rc == MR_END)
        return;
    t->waits = false;
    if (rc == MR_OK) {
        t->begin_at = 0;
        return;
    }
    size_t used = strlen(t->why.message);
    if (rc != MR_NOT_FOUND)
        snprintf(t->why.message + used, sizeof t->why.message - used,
                 ", and renewing them failed: %s", why.message);
    finish(t, t->why.code);
}

static void end_try(mr__transfer *t, CURLcode rc)
{
    long status = status_of(t);
    bool good = is_good(t, status);
    t->answer.status = (int)status;
    snprintf(t->answer.etag, sizeof t->answer.etag, "%s", t->info.etag);
    count_try(t);
    if (rc == CURLE_OK && good && !t->judged && !judge(t))
        rc = CURLE_WRITE_ERROR;
    if (rc != CURLE_OK && t->shut_out)
        finish(t, mr_fail(&t->why, MR_PERMISSION_DENIED,
                          "the name of the server leads to a loopback, link-local or private "
                          "address; the operator of this worker can allow it by a --root with "
                          "this address in place of the name"));
    else if (t->verdict == NO_MEMORY)
        finish(t, mr_fail_memory(&t->why, t->room, "bytes of a remote object"));
    else if (t->verdict == CHANGED)
        finish(t, fail_changed(t));
    else if (t->verdict != GOOD) {
        mr_fail(&t->why, MR_DATA_LOSS,
                "the server sent bytes %" PRId64 "-%" PRId64 " where those from byte %" PRId64
                " on were asked for",
                t->first, t->last, t->from + t->received);
        retry(t);
    } else if (rc != CURLE_OK) {
        mr_code code = rc == CURLE_PARTIAL_FILE ? fail_short(t) : fail_curl(t, rc);
        if (is_transient(rc))
            retry(t);
        else
            finish(t, code);
    } else if (good) {
        int64_t want = wanted(t);
        if (want < 0 || t->received == want)
            finish(t, MR_OK);
        else {
            (void)fail_short(t);
            retry(t);
        }
    } else if (status == 416) {
        end_beyond(t);
    } else if (change_region(t, status)) {
        stop_try(t);
        t->tries--;
        begin(t);
    } else {
        mr_code code = fail_status(t, status);
        if (may_pass(status)) {
            t->why.code = MR_UNAVAILABLE;
            retry(t);
        } else if (!renew(t, status))
            finish(t, code);
    }
}

/* ---- the thread ---- */

static void add(mr__transfer **all, mr__transfer *t)
{
    t->prev = NULL;
    t->next = *all;
    if (*all)
        (*all)->prev = t;
    *all = t;
}

static void take_out(mr__transfer **all, mr__transfer *t)
{
    if (t->prev)
        t->prev->next = t->next;
    else
        *all = t->next;
    if (t->next)
        t->next->prev = t->prev;
    stop_try(t);
    release(t);
}

/* Starts, resumes and removes transfers. Returns when the next one is to start, or INT64_MAX. */
static int64_t look_at_all(mr__transfer **all)
{
    int64_t now = mr__clock_ns(CLOCK_MONOTONIC), first = INT64_MAX;
    for (mr__transfer *t = *all, *next; t; t = next) {
        next = t->next;
        if (t->waits && !atomic_load(&t->dropped) && !atomic_load(&t->done))
            look_at_renewal(t);
        if (!t->easy && t->begin_at <= now && !atomic_load(&t->dropped) && !atomic_load(&t->done))
            begin(t);
        if (atomic_load(&t->dropped) || atomic_load(&t->done)) {
            take_out(all, t);
            continue;
        }
        if (!t->easy)
            first = t->begin_at < first ? t->begin_at : first;
        if (t->easy && atomic_load(&t->paused) && free_slots(t) >= 2) {
            atomic_store(&t->paused, false);
            t->last_byte_at = now;
            CURLcode rc = curl.curl_easy_pause(t->easy, CURLPAUSE_CONT);
            if (rc != CURLE_OK) /* also if on_body refused what had waited */
                end_try(t, rc);
        }
    }
    return first;
}

static mr__transfer *transfer_of(mr__transfer *all, CURL *easy)
{
    mr__transfer *t = NULL;
    if (curl.curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&t) != CURLE_OK || !t)
        for (t = all; t && t->easy != easy;)
            t = t->next;
    return t;
}

/* libcurl failed as a whole: all tries that run end. */
static void end_all_tries(mr__transfer *all, const char *why)
{
    for (mr__transfer *t = all; t; t = t->next)
        if (t->easy) {
            mr_fail(&t->why, MR_UNAVAILABLE, "libcurl failed: %s", why);
            retry(t);
        }
}

static void end_tries(mr__transfer *all)
{
    int left;
    for (const CURLMsg *m; (m = curl.curl_multi_info_read(shared.multi, &left));) {
        mr__transfer *t = m->msg == CURLMSG_DONE ? transfer_of(all, m->easy_handle) : NULL;
        CURLcode rc = m->data.result;
        if (t)
            end_try(t, rc);
    }
}

/* Call with the lock held. */
static void limit_connections(void)
{
    curl.curl_multi_setopt(shared.multi, CURLMOPT_MAX_HOST_CONNECTIONS, shared.connections);
    curl.curl_multi_setopt(shared.multi, CURLMOPT_MAXCONNECTS, 2 * shared.connections);
    shared.connections_changed = false;
}

/* Takes the arriving transfers. Returns false if the thread is to end. */
static bool take_arriving(mr__transfer **all, int64_t idle_since)
{
    pthread_mutex_lock(&lock);
    mr__transfer *t = shared.arriving;
    shared.arriving = NULL;
    if (shared.connections_changed)
        limit_connections();
    for (mr__transfer *next; t; t = next) {
        next = t->next;
        add(all, t);
    }
    bool ends = shared.stops || (!*all && mr__clock_ns(CLOCK_MONOTONIC) - idle_since >= LINGER);
    if (ends) {
        shared.running = false;
        if (!shared.stops)
            pthread_detach(pthread_self());
        while (*all)
            take_out(all, *all);
        curl.curl_multi_cleanup(shared.multi);
        shared.multi = NULL;
    }
    pthread_mutex_unlock(&lock);
    return !ends;
}

static void *run(void *ctx)
{
    (void)ctx;
    mr__transfer *all = NULL;
    int64_t idle_since = mr__clock_ns(CLOCK_MONOTONIC), woke = idle_since;
    while (take_arriving(&all, idle_since)) {
        int running = 0;
        CURLMcode rc = curl.curl_multi_perform(shared.multi, &running);
        end_tries(all);
        if (rc != CURLM_OK)
            end_all_tries(all, curl.curl_multi_strerror(rc));
        int64_t first = look_at_all(&all), now = mr__clock_ns(CLOCK_MONOTONIC);
        if (all)
            idle_since = now;
        int64_t ms = all ? 1000 : (idle_since + LINGER - now) / 1000000 + 1;
        if (first != INT64_MAX)
            ms = first <= now                       ? 0
                 : (first - now) / 1000000 + 1 < ms ? (first - now) / 1000000 + 1
                                                    : ms;
        atomic_fetch_add_explicit(&worked, now - woke, memory_order_relaxed); /* orders nothing */
        rc = curl.curl_multi_poll(shared.multi, NULL, 0, (int)ms, NULL);
        woke = mr__clock_ns(CLOCK_MONOTONIC);
        if (rc != CURLM_OK)
            end_all_tries(all, curl.curl_multi_strerror(rc));
    }
    return NULL;
}

/* At the end of the process, before libraries release what the thread uses. */
static void stop_thread(void)
{
    pthread_mutex_lock(&lock);
    bool was = shared.running;
    shared.stops = true;
    pthread_t thread = shared.thread;
    if (was)
        curl.curl_multi_wakeup(shared.multi);
    pthread_mutex_unlock(&lock);
    if (was)
        pthread_join(thread, NULL);
}

static void wake_thread(void)
{
    pthread_mutex_lock(&lock);
    if (shared.running)
        curl.curl_multi_wakeup(shared.multi);
    pthread_mutex_unlock(&lock);
}

static int retries(void)
{
    const char *v = getenv("MILLRACE_REMOTE_RETRIES");
    long n = v && *v ? strtol(v, NULL, 10) : 8;
    return n < 1 ? 1 : n > 1000 ? 1000 : (int)n;
}

/* Call with the lock held. */
static mr_code start_thread(mr_status *st)
{
    sigset_t none, before;
    if (!shared.initialised) {
        if (curl.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
            return mr_fail(st, MR_UNKNOWN, "libcurl cannot be initialised");
        shared.initialised = true;
        atexit(stop_thread);
        mr__access_watch(wake_thread); /* for transfers that wait for credentials */
    }
    shared.retries = retries();
    if (shared.running)
        return MR_OK;
    if (shared.stops)
        return mr_fail(st, MR_CANCELLED, "the process ends");
    shared.multi = curl.curl_multi_init();
    if (!shared.multi)
        return mr_fail_memory(st, 0, "transfers");
    limit_connections();
    sigfillset(&none);
    pthread_sigmask(SIG_SETMASK, &none, &before);
    int err = pthread_create(&shared.thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err) {
        curl.curl_multi_cleanup(shared.multi);
        return mr_fail_errno(st, err, "cannot start a thread for transfers");
    }
    shared.running = true;
    return MR_OK;
}

/* ---- the reader's side ---- */

static mr_code start(mr__transfer **out, mr__object *o, int64_t from, int64_t to, bool bare,
                     const mr__request *request, mr_status *st)
{
    MR_TRY(mr__late_library_need(&libcurl, st));
    MR_TRY(mr__cache_check_online(o->url, st));
    mr__transfer *t = mr_calloc(1, sizeof *t);
    if (!t)
        return mr_fail_memory(st, sizeof *t, "a transfer");
    atomic_init(&t->refs, 2);
    mr_status_init(&t->why);
    t->object = mr__object_ref(o);
    t->from = from;
    t->to = to;
    t->headroom = bare ? 0 : MR__REMOTE_HEADROOM;
    t->room =
        to >= 0 && (size_t)(to - from) < MR__REMOTE_SLOT ? (size_t)(to - from) : MR__REMOTE_SLOT;
    if (t->room == 0)
        t->room = 1;
    if (request) {
        t->request = *request;
        t->request.mark = NULL;
        if (t->request.body)
            mr_buffer_ref(t->request.body);
        snprintf(t->mark, sizeof t->mark, "%s", request->mark ? request->mark : "");
    }
    t->last_byte_at = mr__clock_ns(CLOCK_MONOTONIC);
    pthread_mutex_lock(&lock);
    long connections = (long)mr__name_scope_get().remote_connections;
    if (connections && connections != shared.connections) {
        shared.connections = connections;
        shared.connections_changed = true;
    }
    mr_code rc = start_thread(st);
    if (rc == MR_OK) {
        t->next = shared.arriving;
        shared.arriving = t;
        curl.curl_multi_wakeup(shared.multi);
    }
    pthread_mutex_unlock(&lock);
    if (rc != MR_OK) {
        atomic_init(&t->refs, 1);
        release(t);
        return rc;
    }
    *out = t;
    return MR_OK;
}

mr_code mr__transfer_start(mr__transfer **out, mr__object *o, int64_t from, int64_t to, bool bare,
                           mr_status *st)
{
    return start(out, o, from, to, bare, NULL, st);
}

mr_code mr__transfer_request(mr__transfer **out, mr__object *o, const mr__request *r, mr_status *st)
{
    return start(out, o, 0, -1, true, r, st);
}

int64_t mr__transfer_worked(void)
{
    return atomic_load_explicit(&worked, memory_order_relaxed);
}

mr__answer mr__transfer_answer(const mr__transfer *t)
{
    return t->answer;
}

void mr__transfer_drop(mr__transfer *t)
{
    if (!t)
        return;
    atomic_store(&t->dropped, true);
    if (!atomic_load(&t->done))
        wake_thread();
    release(t);
}

/* Bytes that are damaged belong to an element. A network or a store that fails does not: skipping
 * failed elements would skip what is left of the data. */
static mr_code give_why(mr__transfer *t, mr_status *st)
{
    if (t->why.code == MR_OK)
        return MR_END;
    if (st) {
        *st = t->why;
        mr_status_at(st, t->object->url, -1, -1);
        if (t->why.code != MR_DATA_LOSS && t->why.code != MR_NOT_FOUND)
            mr_status_of_no_element(st);
    }
    return t->why.code;
}

static bool has_slot(mr__transfer *t)
{
    /* Acquire: pairs with the release of emit_slot. */
    return atomic_load_explicit(&t->filled, memory_order_acquire) !=
           atomic_load_explicit(&t->taken, memory_order_relaxed);
}

bool mr__transfer_has_next(mr__transfer *t)
{
    return has_slot(t) || atomic_load_explicit(&t->done, memory_order_acquire);
}

static mr_code wait_for(mr__transfer *t, unsigned seen, mr_cancel *cancel, mr_status *st)
{
    mr__wait_while(&t->word, seen, cancel);
    if (!mr_cancel_is_cancelled(cancel))
        return MR_OK;
    mr_fail(st, MR_CANCELLED, "reading was cancelled");
    mr_status_at(st, t->object->url, -1, -1);
    return MR_CANCELLED;
}

mr_code mr__transfer_wait_known(mr__transfer *t, mr_cancel *cancel, mr_status *st)
{
    for (;;) {
        unsigned seen = atomic_load(&t->word);
        if (atomic_load_explicit(&t->object->known, memory_order_acquire))
            return MR_OK;
        if (atomic_load_explicit(&t->done, memory_order_acquire))
            return give_why(t, st) == MR_END ? MR_OK : t->why.code;
        MR_TRY(wait_for(t, seen, cancel, st));
    }
}

mr_code mr__transfer_take(mr__transfer *t, mr_cancel *cancel, mr_buffer **slot, uint8_t **data,
                          size_t *got, mr_status *st)
{
    for (;;) {
        unsigned seen = atomic_load(&t->word);
        bool done = atomic_load_explicit(&t->done, memory_order_acquire);
        if (has_slot(t)) {
            unsigned i = atomic_load_explicit(&t->taken, memory_order_relaxed);
            *slot = t->slots[i % RING];
            *data = (uint8_t *)mr_buffer_data(*slot) + t->headroom;
            *got = t->sizes[i % RING];
            /* Release: the slot is free. */
            atomic_store_explicit(&t->taken, i + 1, memory_order_release);
            if (atomic_load(&t->paused))
                wake_thread();
            return MR_OK;
        }
        if (done)
            return give_why(t, st);
        MR_TRY(wait_for(t, seen, cancel, st));
    }
}
