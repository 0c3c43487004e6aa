/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/small_request.h"

#define CURL_DISABLE_TYPECHECK /* its macros do not work with a table of functions */
#include <curl/curl.h>
#include <string.h>
#include <strings.h>

#include "pipeline/system/late_library.h"
#include "pipeline/system/system.h"

#define CURL(X)                                                                                    \
    X(curl_global_init)                                                                            \
    X(curl_multi_init)                                                                             \
    X(curl_multi_add_handle)                                                                       \
    X(curl_multi_remove_handle)                                                                    \
    X(curl_multi_perform)                                                                          \
    X(curl_multi_poll)                                                                             \
    X(curl_multi_info_read)                                                                        \
    X(curl_multi_cleanup)                                                                          \
    X(curl_easy_init)                                                                              \
    X(curl_easy_setopt)                                                                            \
    X(curl_easy_getinfo)                                                                           \
    X(curl_easy_cleanup)                                                                           \
    X(curl_easy_strerror)                                                                          \
    X(curl_slist_append)                                                                           \
    X(curl_slist_free_all)
static struct {
    CURL(MR__LATE_MEMBER)
} curl;
static mr__late_library libcurl =
    MR__LATE_LIBRARY("URLs are read", "libcurl.so.4", "libcurl4", CURL, curl);

enum { MOST_ANSWER = 1 << 20, LOOK_MS = 50, FIRST_DELAY_MS = 200 };

typedef struct received {
    mr__small_answer *answer;
    size_t room;
    bool too_long, no_memory;
} received;

static size_t on_body(char *p, size_t size, size_t count, void *ctx)
{
    received *r = ctx;
    mr__small_answer *a = r->answer;
    size_t n = size * count;
    r->too_long = n > MOST_ANSWER - a->size;
    if (r->too_long)
        return 0;
    r->no_memory = MR_GROW(a->text, r->room, a->size + n + 1, MOST_ANSWER + 1, "", NULL) != MR_OK;
    if (r->no_memory)
        return 0;
    memcpy(a->text + a->size, p, n);
    a->size += n;
    a->text[a->size] = '\0';
    return n;
}

/* Copies the value of the header, if the line is that. */
static void take(const char *line, size_t n, const char *name, char *out, size_t room)
{
    size_t k = strlen(name);
    if (n <= k || line[k] != ':' || strncasecmp(line, name, k) != 0)
        return;
    for (k++; k < n && line[k] == ' ';)
        k++;
    while (n > k && strchr(" \r\n", line[n - 1]))
        n--;
    n = n - k < room ? n - k : room - 1;
    memcpy(out, line + k, n);
    out[n] = '\0';
}

static size_t on_header(char *line, size_t size, size_t count, void *ctx)
{
    mr__small_answer *a = ((received *)ctx)->answer;
    size_t n = size * count;
    char flavor[16] = "";
    take(line, n, "metadata-flavor", flavor, sizeof flavor);
    take(line, n, "x-error-code", a->code, sizeof a->code);
    take(line, n, "x-error-message", a->said, sizeof a->said);
    take(line, n, "x-request-id", a->id, sizeof a->id);
    a->of_google = a->of_google || strcasecmp(flavor, "google") == 0;
    return n;
}

#define SET(option, value) good = good && curl.curl_easy_setopt(easy, option, value) == CURLE_OK

static bool set_options(CURL *easy, const mr__small_request *r, received *to,
                        struct curl_slist **headers)
{
    bool good = true;
    for (int i = 0; i < MR__MOST_HEADERS && r->headers[i] && good; i++) {
        struct curl_slist *more = curl.curl_slist_append(*headers, r->headers[i]);
        good = more != NULL;
        *headers = more ? more : *headers;
    }
    SET(CURLOPT_URL, r->url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, (long)r->redirects);
    SET(CURLOPT_MAXREDIRS, 10L);
    SET(CURLOPT_REDIR_PROTOCOLS_STR, strncmp(r->url, "https", 5) == 0 ? "https" : "http,https");
    SET(CURLOPT_USERAGENT, "millrace/" MR_VERSION);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L);
    SET(CURLOPT_TIMEOUT_MS, (long)r->limit_ms);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(r->limit_ms < 10000 ? r->limit_ms : 10000));
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, to);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, to);
    if (r->direct)
        SET(CURLOPT_NOPROXY, "*");
    if (r->authorities)
        SET(CURLOPT_CAINFO, r->authorities);
    if (r->body)
        SET(CURLOPT_POSTFIELDS, r->body);
    if (r->method)
        SET(CURLOPT_CUSTOMREQUEST, r->method);
    if (r->signature) {
        SET(CURLOPT_AWS_SIGV4, r->signature);
        SET(CURLOPT_USERPWD, r->user);
    }
    if (*headers)
        SET(CURLOPT_HTTPHEADER, *headers);
    return good;
}

static bool stops(const mr__small_request *r)
{
    return r->stops && r->stops(r->ctx);
}

/* Waits for the end of the request. false: it was stopped. */
static bool perform(CURLM *multi, const mr__small_request *r, CURLcode *rc)
{
    int running = 1, left;
    while (!stops(r)) {
        if (curl.curl_multi_perform(multi, &running) != CURLM_OK)
            running = 0;
        const CURLMsg *m = running ? NULL : curl.curl_multi_info_read(multi, &left);
        if (!running) {
            *rc = m && m->msg == CURLMSG_DONE ? m->data.result : CURLE_OUT_OF_MEMORY;
            return true;
        }
        curl.curl_multi_poll(multi, NULL, 0, LOOK_MS, NULL);
    }
    return false;
}

static mr_code explain(CURLcode rc, const received *to, mr_status *st)
{
    if (to->too_long)
        return mr_fail(st, MR_OUT_OF_RANGE, "the answer has more than %d bytes", MOST_ANSWER);
    if (to->no_memory || rc == CURLE_OUT_OF_MEMORY)
        return mr_fail_memory(st, 0, "a small request");
    if (rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_ISSUER_ERROR ||
        rc == CURLE_SSL_CACERT_BADFILE)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the certificate of the server is not valid for it (%s)",
                       curl.curl_easy_strerror(rc));
    return mr_fail(st, MR_UNAVAILABLE, "%s", curl.curl_easy_strerror(rc));
}

static mr_code try_once(const mr__small_request *r, mr__small_answer *out, mr_status *st)
{
    received to = {.answer = out};
    struct curl_slist *headers = NULL;
    CURLM *multi = curl.curl_multi_init();
    CURL *easy = curl.curl_easy_init();
    CURLcode result = CURLE_OK;
    mr_code rc = MR_OK;
    bool added = false;
    *out = (mr__small_answer){0};
    if (multi && easy && set_options(easy, r, &to, &headers))
        added = curl.curl_multi_add_handle(multi, easy) == CURLM_OK;
    if (!added)
        rc = mr_fail_memory(st, 0, "a small request");
    else if (!perform(multi, r, &result))
        rc = mr_fail(st, MR_CANCELLED, "the request was cancelled");
    else if (result != CURLE_OK)
        rc = explain(result, &to, st);
    else
        curl.curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &out->status);
    if (rc == MR_OK && !out->text) {
        out->text = mr_strdup("");
        rc = out->text ? MR_OK : mr_fail_memory(st, 1, "an answer");
    }
    if (added)
        curl.curl_multi_remove_handle(multi, easy);
    if (easy)
        curl.curl_easy_cleanup(easy);
    curl.curl_slist_free_all(headers);
    if (multi)
        curl.curl_multi_cleanup(multi);
    if (rc != MR_OK)
        mr__small_answer_reset(out);
    return rc;
}

mr_code mr__small_request_send(const mr__small_request *r, mr__small_answer *out, mr_status *st)
{
    MR_TRY(mr__late_library_need(&libcurl, st));
    if (curl.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return mr_fail(st, MR_UNKNOWN, "libcurl cannot be initialised");
    for (int i = 1, delay = FIRST_DELAY_MS;; i++, delay *= 2) {
        mr_code rc = try_once(r, out, st);
        bool passes = rc == MR_OK ? out->status == 429 || out->status >= 500 : rc == MR_UNAVAILABLE;
        if (!passes || i >= r->tries)
            return rc;
        for (int waited = 0; waited < delay && !stops(r); waited += LOOK_MS)
            mr__sys->poll(NULL, 0, LOOK_MS);
        mr__small_answer_reset(out);
    }
}

void mr__small_answer_reset(mr__small_answer *a)
{
    if (a->text)
        explicit_bzero(a->text, a->size);
    mr_free(a->text);
    *a = (mr__small_answer){0};
}
