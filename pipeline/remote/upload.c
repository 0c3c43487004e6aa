/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/upload.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "pipeline/remote/s3.h"
#include "pipeline/system/system.h"

enum {
    GROWS_AFTER = 1250, /* parts of one size */
    MOST_PARTS = 10000,
    MOST_SENT = 64, /* parts at once */
    MOST_DOCUMENT = 1 << 20,
    FIRST_ROOM = 64 << 10,
    ABORT_TRIES = 2,
    FIRST_PAUSE = 100, /* ms, before a commit is repeated */
    MOST_PAUSE = 20000
};

typedef char etag[136];

typedef struct sent {
    mr__upload *upload;
    unsigned number;
    size_t size;
    mr__transfer *transfer;
} sent;

struct mr__upload_group {
    size_t part, most, bytes; /* bytes: being sent */
    sent ring[MOST_SENT];
    unsigned head, n;
};

struct mr__upload {
    mr__upload_group *group, *own; /* own NULL: shared */
    char *url, id[1024];           /* id "": no multipart upload */
    char mark[MR__MARK_SIZE];
    mr_cancel *cancel;
    bool creates, rewinds, committed;
    uint8_t *part; /* the next one */
    size_t used, room;
    uint8_t *first; /* rewinds: part 1, kept until finish */
    size_t n_first;
    size_t overwritten; /* bytes of the beginning, after a rewind; SIZE_MAX: not rewound */
    int64_t size;
    etag *etags;
    size_t etags_room;
    unsigned n_parts;
};

mr__upload_group *mr__upload_group_new(size_t part, size_t most)
{
    mr__upload_group *g = mr_calloc(1, sizeof *g);
    if (g) {
        g->part = part;
        g->most = most;
    }
    return g;
}

void mr__upload_group_free(mr__upload_group *g)
{
    mr_free(g);
}

static mr_code at_url(const mr__upload *u, mr_code rc, mr_status *st)
{
    if (rc != MR_OK) {
        mr_status_at(st, u->url, -1, -1);
        mr_status_of_no_element(st);
    }
    return rc;
}

static void make_mark(char *out, size_t room)
{
    uint64_t v[2];
    if (mr__sys->getrandom(v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v) {
        v[0] = (uint64_t)mr__clock_ns(CLOCK_REALTIME) ^ (uint64_t)(uintptr_t)out;
        v[1] = (uint64_t)mr__clock_ns(CLOCK_MONOTONIC) ^ ((uint64_t)getpid() << 40);
    }
    snprintf(out, room, "%016" PRIx64 "%016" PRIx64, v[0], v[1]);
}

static void free_bytes(void *ctx, void *bytes)
{
    (void)ctx;
    mr_free(bytes);
}

mr_code mr__upload_open(mr__upload **out, const char *url, const mr__upload_opts *opts,
                        mr_status *st)
{
    MR_TRY(mr__url_check_writing(url, st));
    mr__object *o = NULL;
    MR_TRY(mr__object_open_request(&o, url, NULL, st)); /* credentials, the name */
    mr__object_unref(o);
    mr__upload *u = mr_calloc(1, sizeof *u);
    if (!u)
        return mr_fail_memory(st, sizeof *u, "an upload");
    u->url = mr_strdup(url);
    u->group = opts ? opts->group : NULL;
    if (!u->group)
        u->group = u->own = mr__upload_group_new(MR__UPLOAD_PART, 4 * MR__UPLOAD_PART);
    u->creates = opts && opts->creates;
    u->rewinds = opts && opts->rewinds;
    u->overwritten = SIZE_MAX;
    u->cancel = opts ? opts->cancel : NULL;
    make_mark(u->mark, sizeof u->mark);
    if (!u->url || !u->group) {
        mr__upload_close(u);
        return mr_fail_memory(st, strlen(url), "an upload");
    }
    *out = u;
    return MR_OK;
}

/* ---- requests ---- */

/* That of an answer. */
typedef struct document {
    char *text; /* owned */
    size_t n, room;
} document;

/* Waits for the end of a request. NULL: the document is not kept. */
static mr_code await(mr__transfer *t, document *d, mr_cancel *cancel, mr_status *st)
{
    for (;;) {
        mr_buffer *slot = NULL;
        uint8_t *data;
        size_t got;
        mr_code rc = mr__transfer_take(t, cancel, &slot, &data, &got, st);
        if (rc != MR_OK)
            return rc == MR_END ? MR_OK : rc;
        if (d)
            rc = MR_GROW(d->text, d->room, d->n + got + 1, MOST_DOCUMENT, "a document", st);
        if (d && rc == MR_OK) {
            memcpy(d->text + d->n, data, got);
            d->n += got;
            d->text[d->n] = '\0';
        }
        mr_buffer_unref(slot);
        if (rc != MR_OK)
            return rc;
    }
}

static mr_code begin_request(mr__transfer **out, const char *url, const char *query,
                             const mr__request *r, mr_status *st)
{
    mr__object *o = NULL;
    MR_TRY(mr__object_open_request(&o, url, query, st));
    mr_code rc = mr__transfer_request(out, o, r, st);
    mr__object_unref(o);
    return rc;
}

/* answer, text: may be NULL. */
static mr_code request(const char *url, const char *query, const mr__request *r, mr_cancel *cancel,
                       mr__answer *answer, char **text, mr_status *st)
{
    mr__transfer *t = NULL;
    document d = {0};
    if (answer)
        *answer = (mr__answer){0};
    /* Before the store does anything: the answer may be what names an upload. */
    if (text) {
        MR_TRY(MR_GROW(d.text, d.room, MR__REMOTE_ANSWER + 1, MOST_DOCUMENT, "a document", st));
        d.text[0] = '\0';
    }
    mr_code rc = begin_request(&t, url, query, r, st);
    if (rc == MR_OK)
        rc = await(t, text ? &d : NULL, cancel, st);
    if (answer && t && rc != MR_CANCELLED)
        *answer = mr__transfer_answer(t);
    mr__transfer_drop(t);
    if (rc == MR_OK && text)
        *text = d.text;
    else
        mr_free(d.text);
    return rc;
}

/* Stores answer "200" before they know: the document says whether it is true. */
static bool is_error(const char *text)
{
    return strstr(text, "<Error>") != NULL;
}

static mr_code fail_document(const char *text, mr_status *st)
{
    char code[80] = "", message[200] = "";
    const char *at = text, *end = text + strlen(text);
    mr__xml_text(&at, end, "Code", code, sizeof code);
    at = text;
    mr__xml_text(&at, end, "Message", message, sizeof message);
    mr_code rc = strcmp(code, "PreconditionFailed") == 0 ? MR_ALREADY_EXISTS : MR_UNAVAILABLE;
    return mr_fail(st, rc, "the server answered with an error: %s: %s", code, message);
}

mr_code mr__object_delete(const char *url, mr_status *st)
{
    mr_code rc = request(url, NULL, &(mr__request){.method = "DELETE"}, NULL, NULL, NULL, st);
    mr__object_forget(url);
    return rc == MR_NOT_FOUND ? MR_OK : rc;
}

static mr_code upload_query(char **out, const char *format, const char *id, unsigned number,
                            mr_status *st)
{
    char *coded = mr__url_encode(id, "");
    *out = !coded   ? NULL
           : number ? mr_strf("partNumber=%u&uploadId=%s", number, coded)
                    : mr_strf("%s%s", format, coded);
    mr_free(coded);
    return *out ? MR_OK : mr_fail_memory(st, strlen(id), "a query");
}

mr_code mr__upload_abort_id(const char *url, const char *id, int tries, mr_status *st)
{
    char *query = NULL;
    MR_TRY(upload_query(&query, "uploadId=", id, 0, st));
    mr_cancel *before = mr__cancel_of_thread();
    if (tries) /* although what it belongs to was cancelled */
        (void)mr_cancel_set_thread(NULL);
    mr_code rc = request(url, query, &(mr__request){.method = "DELETE", .tries = tries}, NULL, NULL,
                         NULL, st);
    (void)mr_cancel_set_thread(before);
    mr_free(query);
    return rc == MR_NOT_FOUND ? MR_OK : rc;
}

/* ---- parts ---- */

/* Waits for the part that was sent first. */
static mr_code take_sent(mr__upload_group *g, mr_cancel *cancel, mr_status *st)
{
    sent *s = &g->ring[g->head];
    mr_code rc = await(s->transfer, NULL, cancel, st);
    mr__answer a = {0};
    if (rc == MR_OK) {
        a = mr__transfer_answer(s->transfer);
        if (!a.etag[0])
            rc = mr_fail(st, MR_DATA_LOSS, "the server's answer to a part has no ETag");
    }
    if (rc == MR_OK)
        memcpy(s->upload->etags[s->number - 1], a.etag, sizeof a.etag);
    if (rc != MR_OK)
        return at_url(s->upload, rc, st);
    mr__transfer_drop(s->transfer);
    g->bytes -= s->size;
    g->head = (g->head + 1) % MOST_SENT;
    g->n--;
    return MR_OK;
}

static bool is_being_sent(const mr__upload *u)
{
    const mr__upload_group *g = u->group;
    for (unsigned i = 0; i < g->n; i++)
        if (g->ring[(g->head + i) % MOST_SENT].upload == u)
            return true;
    return false;
}

static void drop_sent(mr__upload *u)
{
    mr__upload_group *g = u->group;
    unsigned kept = 0;
    for (unsigned i = 0; g && i < g->n; i++) {
        sent s = g->ring[(g->head + i) % MOST_SENT];
        if (s.upload == u) {
            mr__transfer_drop(s.transfer);
            g->bytes -= s.size;
        } else
            g->ring[(g->head + kept++) % MOST_SENT] = s;
    }
    if (g)
        g->n = kept;
}

static mr_code need_id(mr__upload *u, mr_status *st)
{
    char *text = NULL;
    if (u->id[0])
        return MR_OK;
    MR_TRY(request(u->url, "uploads=", &(mr__request){.method = "POST", .mark = u->mark}, u->cancel,
                   NULL, &text, st));
    const char *at = text;
    bool found = mr__xml_text(&at, text + strlen(text), "UploadId", u->id, sizeof u->id);
    mr_free(text);
    if (found && u->id[0])
        return MR_OK;
    u->id[0] = '\0';
    return mr_fail(st, MR_DATA_LOSS,
                   "the server's answer does not begin a multipart upload "
                   "(InitiateMultipartUploadResult); is the endpoint that of a store?");
}

static size_t part_size(const mr__upload *u, unsigned number)
{
    return u->group->part << (number / GROWS_AFTER);
}

/* Takes the bytes, also after a failure. */
static mr_code send_part(mr__upload *u, unsigned number, uint8_t *bytes, size_t n, mr_status *st)
{
    mr__upload_group *g = u->group;
    mr__transfer *t = NULL;
    mr_buffer *body = NULL;
    char *query = NULL;
    mr_code rc = number > MOST_PARTS
                     ? mr_fail(st, MR_OUT_OF_RANGE, "an object has at most %d parts", MOST_PARTS)
                     : need_id(u, st);
    while (rc == MR_OK && (g->n == MOST_SENT || (g->n && g->bytes + n > g->most)))
        rc = take_sent(g, u->cancel, st);
    if (rc == MR_OK)
        rc = mr_buffer_wrap(&body, bytes, n, true, free_bytes, NULL, st);
    if (rc == MR_OK)
        bytes = NULL;
    mr_free(bytes);
    if (rc == MR_OK)
        rc = upload_query(&query, NULL, u->id, number, st);
    if (rc == MR_OK)
        rc = begin_request(&t, u->url, query,
                           &(mr__request){.method = "PUT", .body = body, .size = n}, st);
    mr_buffer_unref(body);
    mr_free(query);
    if (rc == MR_OK) {
        g->ring[(g->head + g->n++) % MOST_SENT] = (sent){u, number, n, t};
        g->bytes += n;
    }
    return at_url(u, rc, st);
}

/* The part is full, or the last one. */
static mr_code end_part(mr__upload *u, mr_status *st)
{
    unsigned number = u->n_parts + 1;
    MR_TRY(MR_GROW(u->etags, u->etags_room, number, MOST_PARTS, "parts", st));
    u->etags[number - 1][0] = '\0';
    u->n_parts = number;
    uint8_t *bytes = u->part;
    size_t n = u->used;
    u->part = NULL;
    u->used = u->room = 0;
    if (number == 1 && u->rewinds) {
        u->first = bytes;
        u->n_first = n;
        return MR_OK;
    }
    return send_part(u, number, bytes, n, st);
}

static mr_code overwrite(mr__upload *u, const void *data, size_t n, mr_status *st)
{
    uint8_t *to = u->first ? u->first : u->part;
    size_t most = u->first ? u->n_first : u->used;
    if (n > most - u->overwritten)
        return at_url(u,
                      mr_fail(st, MR_OUT_OF_RANGE,
                              "only the first %zu bytes of an object can be overwritten", most),
                      st);
    memcpy(to + u->overwritten, data, n);
    u->overwritten += n;
    return MR_OK;
}

mr_code mr__upload_put(mr__upload *u, const void *data, size_t n, mr_status *st)
{
    const char *from = data;
    if (u->overwritten != SIZE_MAX && n)
        return overwrite(u, data, n, st);
    while (n) {
        size_t most = part_size(u, u->n_parts), want = u->used + n;
        if (u->used == most) {
            MR_TRY(end_part(u, st));
            continue;
        }
        if (want > most)
            want = most;
        if (want > u->room) {
            size_t room = u->room ? u->room : FIRST_ROOM;
            while (room < want)
                room *= 2;
            room = room < most ? room : most;
            uint8_t *more = mr_realloc(u->part, room);
            if (!more)
                return at_url(u, mr_fail_memory(st, room, "a part of an object"), st);
            u->part = more;
            u->room = room;
        }
        size_t bytes = want - u->used;
        memcpy(u->part + u->used, from, bytes);
        u->used += bytes;
        u->size += (int64_t)bytes;
        from += bytes;
        n -= bytes;
    }
    return MR_OK;
}

void mr__upload_rewind(mr__upload *u)
{
    u->overwritten = 0;
}

mr_code mr__upload_finish(mr__upload *u, mr_status *st)
{
    if (u->n_parts && u->used)
        MR_TRY(end_part(u, st));
    if (u->first) {
        uint8_t *first = u->first;
        u->first = NULL;
        MR_TRY(send_part(u, 1, first, u->n_first, st));
    }
    while (is_being_sent(u))
        MR_TRY(take_sent(u->group, u->cancel, st));
    return MR_OK;
}

/* ---- the end ---- */

static mr_code parts_document(const mr__upload *u, mr_buffer **out, size_t *size, mr_status *st)
{
    static const char begin[] =
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    static const char end[] = "</CompleteMultipartUpload>";
    size_t room = sizeof begin + sizeof end + u->n_parts * (sizeof(etag) + 100), used = 0;
    MR_TRY(mr_buffer_alloc(out, room, st));
    char *text = mr_buffer_data(*out);
    used += (size_t)snprintf(text, room, "%s", begin);
    for (unsigned i = 0; i < u->n_parts; i++) {
        const char *tag = u->etags[i];
        size_t n = strlen(tag);
        bool quoted = n >= 2 && tag[0] == '"' && tag[n - 1] == '"';
        used += (size_t)snprintf(
            text + used, room - used,
            "<Part><PartNumber>%u</PartNumber><ETag>&quot;%.*s&quot;</ETag></Part>", i + 1,
            (int)(quoted ? n - 2 : n), quoted ? tag + 1 : tag);
    }
    used += (size_t)snprintf(text + used, room - used, "%s", end);
    *size = used;
    return MR_OK;
}

/* Whether the object at the URL is this one. */
static mr_code is_there(const mr__upload *u, bool *yes, mr_status *st)
{
    mr__answer a;
    mr_code rc = request(u->url, NULL, &(mr__request){.method = "HEAD"}, u->cancel, &a, NULL, st);
    *yes = rc == MR_OK && strcmp(a.mark, u->mark) == 0 && (a.length < 0 || a.length == u->size);
    return rc == MR_NOT_FOUND ? MR_OK : rc;
}

static mr_code pause_for(const mr__upload *u, int ms, mr_status *st)
{
    int fd = -1;
    mr_cancel *cancel = u->cancel ? u->cancel : mr__cancel_of_thread();
    if (cancel)
        MR_TRY(mr_cancel_fd(cancel, &fd, st));
    struct pollfd p = {fd, POLLIN, 0};
    poll(&p, fd >= 0, ms);
    return mr_cancel_is_cancelled(cancel) ? mr_fail(st, MR_CANCELLED, "writing was cancelled")
                                          : MR_OK;
}

static mr_code fail_taken(mr_status *st)
{
    return mr_fail(st, MR_ALREADY_EXISTS,
                   "another writer made an object of this name in the meantime; remove it, or "
                   "write to another name");
}

/* One try. *again: the answer is lost, or the store asks for another try. */
static mr_code try_commit(mr__upload *u, mr_buffer *body, size_t size, bool *again, mr_status *st)
{
    mr__request r = {.method = u->id[0] ? "POST" : "PUT",
                     .body = body,
                     .size = size,
                     .mark = u->id[0] ? NULL : u->mark,
                     .creates = u->creates,
                     .tries = 1};
    mr__answer answer;
    char *query = NULL, *text = NULL;
    if (u->id[0])
        MR_TRY(upload_query(&query, "uploadId=", u->id, 0, st));
    mr_code rc = request(u->url, query, &r, u->cancel, &answer, &text, st);
    mr_free(query);
    if (rc == MR_OK && is_error(text))
        rc = fail_document(text, st);
    mr_free(text);
    *again = rc == MR_UNAVAILABLE || rc == MR_DATA_LOSS;
    if (rc == MR_UNIMPLEMENTED && u->creates && answer.status == 501) {
        u->creates = false; /* a store without conditions */
        *again = true;
    }
    return rc;
}

mr_code mr__upload_commit(mr__upload *u, mr_status *st)
{
    mr_buffer *body = NULL;
    size_t size = u->used;
    mr_code rc = u->id[0]  ? parts_document(u, &body, &size, st)
                 : u->part ? mr_buffer_wrap(&body, u->part, size, true, free_bytes, NULL, st)
                           : mr_buffer_alloc(&body, 1, st);
    if (rc == MR_OK && !u->id[0]) /* a request that was cancelled may still read it */
        u->part = NULL;
    bool lost = false;
    int pause = FIRST_PAUSE;
    for (int tries = 1; rc == MR_OK && !u->committed; tries++) {
        bool again = false, there = false, could = u->creates;
        mr_status why;
        rc = try_commit(u, body, size, &again, &why);
        if (rc == MR_OK) {
            u->committed = true;
            break;
        }
        /* An answer that was lost may have been "done": then the next one says that the upload is
         * unknown, or that there is an object. */
        if (again || (lost && (rc == MR_NOT_FOUND || rc == MR_ALREADY_EXISTS))) {
            lost = true;
            mr_code asked = is_there(u, &there, st);
            if (asked != MR_OK) {
                rc = asked;
                break;
            }
        }
        if (there) {
            u->committed = true;
            rc = MR_OK;
        } else if (again && (tries < mr__remote_tries() || could != u->creates)) {
            rc = could != u->creates ? MR_OK : pause_for(u, pause, st);
            pause = pause * 2 < MOST_PAUSE ? pause * 2 : MOST_PAUSE;
        } else {
            if (st)
                *st = why;
            if (rc == MR_ALREADY_EXISTS)
                rc = fail_taken(st);
        }
    }
    mr_buffer_unref(body);
    mr__object_forget(u->url);
    return at_url(u, rc, st);
}

void mr__upload_close(mr__upload *u)
{
    if (!u)
        return;
    drop_sent(u);
    if (u->id[0] && !u->committed)
        (void)!mr__upload_abort_id(u->url, u->id, ABORT_TRIES, NULL);
    mr__upload_group_free(u->own);
    mr_free(u->part);
    mr_free(u->first);
    mr_free(u->etags);
    mr_free(u->url);
    mr_free(u);
}
