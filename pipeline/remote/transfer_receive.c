/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/transfer_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "pipeline/wait/wait.h"
#include "pipeline/warn_once.h"

#define MOST_HELD ((int64_t)256 << 20) /* in slots of the process, before whole files wait */

void mr__try_notify(mr__transfer *t)
{
    atomic_fetch_add(&t->word, 2);
    mr__wait_wake(&t->word);
}

void mr__try_emit(mr__transfer *t)
{
    unsigned i = atomic_load_explicit(&t->filled, memory_order_relaxed);
    t->slots[i % MR__RING] = t->slot;
    t->sizes[i % MR__RING] = t->used;
    atomic_fetch_add_explicit(&mr__transfer_held, (int64_t)t->used, memory_order_relaxed);
    t->slot = NULL;
    t->used = 0;
    /* Release: pairs with the reader's acquire. */
    atomic_store_explicit(&t->filled, i + 1, memory_order_release);
    mr__try_notify(t);
}

/* A chunk needs at most two slots. The size of a range is its reader's choice; that of a whole file
 * is not. */
bool mr__try_has_room(const mr__transfer *t)
{
    size_t n = mr__try_free_slots(t);
    /* Relaxed: it orders nothing. */
    return n >= 2 && (t->to >= 0 || MR__RING - n < MR__FEW ||
                      (!t->limited &&
                       atomic_load_explicit(&mr__transfer_held, memory_order_relaxed) < MOST_HELD));
}

static bool append(mr__transfer *t, const char *p, size_t n)
{
    size_t all = n;
    while (n) {
        if (!t->slot && mr__try_free_slots(t) == 0) {
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
            mr__try_emit(t);
    }
    mr__host_add(&t->host->bytes, (int64_t)all);
    t->last_byte_at = mr__clock_ns(CLOCK_MONOTONIC);
    t->tries = 0;
    t->renewed = false;
    return true;
}

/* An ETag and a generation say nothing of each other. */
static bool differs(const char *a, const char *b)
{
    return *a && *b && mr__is_generation(a) == mr__is_generation(b) && strcmp(a, b) != 0;
}

bool mr__try_judge_object(mr__transfer *t)
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
        mr__object_set_known(o);
        mr__try_notify(t);
        return true;
    }
    if (differs(o->info.etag, t->info.etag) || differs(o->info.modified, t->info.modified) ||
        (o->info.size >= 0 && t->info.size >= 0 && o->info.size != t->info.size)) {
        t->verdict = CHANGED;
        return false;
    }
    return true;
}

bool mr__try_judge(mr__transfer *t)
{
    int64_t at = t->from + t->received;
    t->judged = true;
    t->is_range = mr__try_status(t) == 206;
    if (t->is_range && (t->first != at || (t->to >= 0 && t->last >= t->to) || t->last < t->first)) {
        t->verdict = OTHER_RANGE;
        return false;
    }
    if (t->is_range && t->length >= 0 && t->length != t->last - t->first + 1) {
        t->verdict = OTHER_LENGTH;
        return false;
    }
    if (t->is_range && t->total < 0 &&
        (!atomic_load_explicit(&t->object->known, memory_order_relaxed) ||
         t->object->info.size < 0)) {
        t->verdict = NO_TOTAL;
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
    return mr__try_judge_object(t);
}

size_t mr__try_on_body(char *p, size_t size, size_t count, void *ctx)
{
    mr__transfer *t = ctx;
    size_t all = size * count, n = all;
    long status = mr__try_status(t);
    if (status == 0) /* unknown: the bytes may be those of an error */
        return 0;
    if (!mr__try_is_good(t, status)) {
        size_t left = sizeof t->document - 1 - t->n_document;
        memcpy(t->document + t->n_document, p, n < left ? n : left);
        t->n_document += n < left ? n : left;
        return n <= left ? all : 0; /* enough of it, and it may have no end */
    }
    if (!t->judged && !mr__try_judge(t))
        return 0;
    if (t->skip) {
        size_t part = (int64_t)n < t->skip ? n : (size_t)t->skip;
        t->skip -= (int64_t)part;
        p += part;
        n -= part;
        t->last_byte_at = mr__clock_ns(CLOCK_MONOTONIC);
        if (n == 0) /* none is new */
            return all;
    }
    if (n && !mr__try_has_room(t)) {
        atomic_store(&t->paused, true);
        if (!mr__try_has_room(t)) {
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

void mr__try_forget_answer(mr__transfer *t)
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
    if (t->total <= t->last) /* it is not that of the file */
        t->total = -1;
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
    mr__try_forget_answer(t);
    if (t->object->kind == MR__URL_HF)
        memcpy(t->info.etag, etag, sizeof etag);
}

size_t mr__try_on_header(char *line, size_t size, size_t count, void *ctx)
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
