/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/transfer_internal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "pipeline/remote/s3.h"
#include "pipeline/remote/xml_text.h"
#include "pipeline/splitmix.h"

enum { MOST_MOVES = 3 /* to another region */ };
#define GIVE_UP     (300 * MR__SECOND)
#define FIRST_DELAY (MR__SECOND / 10)
#define MOST_DELAY  (20 * MR__SECOND)

/* Replaces a secret of six characters and more, which a server may repeat; at the end of a text,
 * also the beginning of one. */
static void hide(char *text, const char *secret, size_t n)
{
    for (char *at = text; n >= 6 && (at = memmem(at, strlen(at), secret, n)); at += 3) {
        memmove(at + 3, at + n, strlen(at + n) + 1);
        memcpy(at, "...", 3);
    }
    size_t size = strlen(text);
    for (size_t k = n < size ? n : size; k >= 6; k--)
        if (memcmp(text + size - k, secret, k) == 0) {
            memcpy(text + size - k, "...", 4);
            return;
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

/* "the server answered 503 (SlowDown: Reduce your request rate; request id 1)" */
static void describe(mr__transfer *t, long status, char *out, size_t room)
{
    char code[80] = "", message[200] = "", more[512] = "";
    const mr__object_target *target = &t->object->target;
    const char *at = t->document, *end = at + t->n_document;
    t->document[t->n_document] = '\0';
    if (mr__xml_text(&at, end, "Code", code, sizeof code)) {
        at = t->document;
        mr__xml_text(&at, end, "Message", message, sizeof message);
        at = t->document;
        if (!t->id[0])
            mr__xml_text(&at, end, "RequestId", t->id, sizeof t->id);
        hide_credentials(code, target);
        hide_credentials(message, target);
        snprintf(more, sizeof more, "%s%s%s", code, message[0] ? ": " : "", message);
    } else if (t->code[0] || t->said[0]) {
        hide_credentials(t->code, target);
        hide_credentials(t->said, target);
        snprintf(more, sizeof more, "%s%s%s", t->code, t->code[0] && t->said[0] ? ": " : "",
                 t->said);
    }
    hide_credentials(t->id, target);
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
    return mr_fail(&t->why, MR_FAILED_PRECONDITION, MR__REPLACED_WHILE_OPEN);
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
    if (mr__curl.curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &v) != CURLE_OK || v < 0)
        return 0;
    return v < 3600 ? v : 3600;
}

void mr__try_retry(mr__transfer *t)
{
    int64_t now = mr__clock_ns(CLOCK_MONOTONIC), most = FIRST_DELAY;
    for (int i = 1; i < t->tries && most < MOST_DELAY; i++)
        most *= 2;
    most = most < MOST_DELAY ? most : MOST_DELAY;
    static uint64_t state;
    uint64_t random = mr__splitmix(state += MR__GOLDEN ^ (uint64_t)now);
    int64_t delay = (int64_t)(random % (uint64_t)most), wait_s = retry_after(t);
    if (wait_s * MR__SECOND > delay)
        delay = wait_s * MR__SECOND;
    int tried = t->tries ? t->tries : 1;
    if (tried >= t->most_tries || now + delay - t->last_byte_at > GIVE_UP) {
        char tries[64];
        size_t used = strlen(t->why.message);
        snprintf(tries, sizeof tries, "; gave up after %d %s", tried, tried == 1 ? "try" : "tries");
        snprintf(t->why.message + used, sizeof t->why.message - used, "%s", tries);
        mr__try_finish(t, t->why.code);
        return;
    }
    mr__host_add(&t->host->retries, 1);
    mr__try_stop(t);
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

static bool was_connected(const mr__transfer *t)
{
    long port = 0;
    return mr__curl.curl_easy_getinfo(t->easy, CURLINFO_LOCAL_PORT, &port) == CURLE_OK && port > 0;
}

static mr_code fail_connect(mr__transfer *t, const char *text)
{
    long err = 0;
    if (t->no_socket)
        return mr_fail_errno(&t->why, t->no_socket, "cannot connect to the server");
    char room[128];
    return mr__curl.curl_easy_getinfo(t->easy, CURLINFO_OS_ERRNO, &err) == CURLE_OK && err
               ? mr_fail(&t->why, MR_UNAVAILABLE, "cannot connect to the server: %s",
                         strerror_r((int)err, room, sizeof room))
               : mr_fail(&t->why, MR_UNAVAILABLE, "%s", text);
}

/* Sets t->why for a try that libcurl gave up. */
static mr_code fail_curl(mr__transfer *t, CURLcode rc)
{
    const char *text = mr__curl.curl_easy_strerror(rc);
    long proxy = 0;
    mr__curl.curl_easy_getinfo(t->easy, CURLINFO_HTTP_CONNECTCODE, &proxy);
    if (proxy >= 300)
        return mr_fail(&t->why, MR_UNAVAILABLE, "the proxy answered %ld to CONNECT", proxy);
    switch (rc) {
    case CURLE_OUT_OF_MEMORY:
        return was_connected(t) ? mr_fail(&t->why, MR_RESOURCE_EXHAUSTED,
                                          "out of memory, or the head of the answer is too large")
                                : mr_fail_memory(&t->why, 0, "a transfer");
    case CURLE_COULDNT_CONNECT:
        return fail_connect(t, text);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return mr_fail(&t->why, MR_INVALID_ARGUMENT, "not a URL that can be read: %s", text);
    case CURLE_TOO_MANY_REDIRECTS:
        return mr_fail(&t->why, MR_FAILED_PRECONDITION, "more than %d redirections",
                       MR__MOST_REDIRECTS);
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
    if (mr__try_is_head(t))
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

/* All bytes are there, and something is wrong with what came after them. */
static bool is_complete(const mr__transfer *t)
{
    int64_t want = wanted(t);
    return !t->object->whole && want > 0 && t->received == want;
}

/* The head of the answer, or its body, is not that of the range. */
static void fail_verdict(mr__transfer *t)
{
    if (t->verdict == OTHER_LENGTH)
        mr_fail(&t->why, MR_DATA_LOSS,
                "the server announced %" PRId64 " bytes for bytes %" PRId64 "-%" PRId64, t->length,
                t->first, t->last);
    else if (t->verdict == NO_TOTAL)
        mr_fail(&t->why, MR_DATA_LOSS, "the server does not say how long the file is");
    else
        mr_fail(&t->why, MR_DATA_LOSS,
                "the server sent bytes %" PRId64 "-%" PRId64 " where those from byte %" PRId64
                " on were asked for",
                t->first, t->last, t->from + t->received);
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
        mr__try_judge_object(t);
        mr__try_finish(t, MR_OK);
    } else if (!known && t->total >= 0 && t->total <= at) {
        t->is_range = true;
        mr__try_judge_object(t);
        mr__try_finish(t, MR_OK);
    } else
        mr__try_finish(t, fail_changed(t));
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
    mr__try_stop(t);
    t->tries--;
    t->begin_at = INT64_MAX;
    mr__access_renew(target->access, target->generation);
    return true;
}

void mr__try_look_at_renewal(mr__transfer *t)
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
    mr__try_finish(t, t->why.code);
}

/* At once; it does not count as another try. */
static void begin_again(mr__transfer *t)
{
    mr__try_stop(t);
    t->tries--;
    mr__try_begin(t);
}

void mr__try_end(mr__transfer *t, CURLcode rc)
{
    long status = mr__try_status(t);
    bool good = mr__try_is_good(t, status);
    if (rc == CURLE_UNSUPPORTED_PROTOCOL && status / 100 != 3 && was_connected(t))
        rc = CURLE_WEIRD_SERVER_REPLY; /* of the answer: it is not HTTP */
    if (rc == CURLE_WRITE_ERROR && status && !good)
        rc = CURLE_OK; /* the rest of the document of an error is not read */
    t->answer.status = (int)status;
    t->answer.length = t->length;
    snprintf(t->answer.etag, sizeof t->answer.etag, "%s", t->info.etag);
    mr__try_count(t);
    if (rc == CURLE_OK && good && !t->judged && !mr__try_judge(t))
        rc = CURLE_WRITE_ERROR;
    if (rc != CURLE_OK && t->shut_out)
        mr__try_finish(t,
                       mr_fail(&t->why, MR_PERMISSION_DENIED,
                               "the name of the server leads to a loopback, link-local or private "
                               "address; the operator of this worker can allow it by a --root with "
                               "this address in place of the name"));
    else if (t->verdict == NO_MEMORY)
        mr__try_finish(t, mr_fail_memory(&t->why, t->room, "bytes of a remote object"));
    else if (t->verdict == CHANGED)
        mr__try_finish(t, fail_changed(t));
    else if (t->verdict == NO_TOTAL && !t->whole) { /* it is read as one without ranges */
        t->whole = true;
        begin_again(t);
    } else if (rc != CURLE_OK && is_complete(t))
        mr__try_finish(t, MR_OK);
    else if (t->verdict != GOOD) {
        fail_verdict(t);
        mr__try_retry(t);
    } else if (rc != CURLE_OK) {
        mr_code code = rc == CURLE_PARTIAL_FILE ? fail_short(t) : fail_curl(t, rc);
        if (is_transient(rc))
            mr__try_retry(t);
        else
            mr__try_finish(t, code);
    } else if (good) {
        int64_t want = wanted(t);
        if (want < 0 || t->received == want)
            mr__try_finish(t, MR_OK);
        else {
            (void)fail_short(t);
            mr__try_retry(t);
        }
    } else if (status == 416) {
        end_beyond(t);
    } else if (change_region(t, status)) {
        begin_again(t);
    } else {
        mr_code code = fail_status(t, status);
        if (may_pass(status)) {
            t->why.code = MR_UNAVAILABLE;
            mr__try_retry(t);
        } else if (!renew(t, status))
            mr__try_finish(t, code);
    }
}
