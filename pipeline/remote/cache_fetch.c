/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/cache_fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"
#include "pipeline/memory_bound.h"
#include "pipeline/remote/cache_list.h"
#include "pipeline/remote/host_counters.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/system/retry.h"
#include "pipeline/system/timed_wait.h"
#include "pipeline/wait/wait.h"
#include "pipeline/warn_once.h"

enum { MOST_THREADS = 16, MOST_CACHES = 64, MOST_TRIES = 3 };
#define SECOND      INT64_C(1000000000)
#define LOOK_AGAIN  (SECOND / 50) /* at a piece that another process fetches */
#define STALLED     (30 * SECOND)
#define LINGER      (3 * SECOND)
#define SMALL_RANGE ((int64_t)1 << 20)

typedef enum result {
    PENDING,
    WHOLE,    /* the piece is in the cache */
    NO_CACHE, /* it cannot be: read it by a transfer */
    FAILED    /* why */
} result;

/* A piece that is to come, for all readers of this process. */
typedef struct fill {
    struct fill *next;
    unsigned refs; /* readers, and the thread */
    bool running;
    atomic_uint word; /* changes at the end */
    _Atomic result result;
    mr_status why;
    mr__cache *cache;
    mr__object *object;
    mr__cache_key key;
    char name[MR__CACHE_NAME];
    int64_t number;
    uint32_t bytes;
    mr_cancel *cancel; /* triggered when the last reader leaves */
} fill;

struct mr__fetch {
    mr__transfer *direct; /* NULL: through the cache */
    mr__cache *cache;
    mr__object *object;
    mr__cache_key key;
    mr__host *host; /* whose counters get hits and misses */
    bool bare;
    int64_t at, to, end;
    int tries; /* to open the piece at `at` */
    mr__piece piece;
    fill *now, *next; /* of the piece at `at`, and the one after it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static struct {
    bool initialised, stops;
    pthread_cond_t changed;
    mr__cache *caches[MOST_CACHES];
    int64_t limits[MOST_CACHES];
    size_t n_caches;
    fill *fills; /* the first to come first */
    unsigned threads, idle;
    pthread_cond_t ended;
} shared;

static void forget_threads(void)
{
    shared.threads = shared.idle = 0;
    shared.fills = NULL;
    shared.initialised = false;
}
MR__AROUND_FORK(lock, forget_threads)

/* ---- settings ---- */

static const char *variable(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

bool mr__cache_is_offline(void)
{
    const char *v = variable("MILLRACE_OFFLINE");
    return v && strcmp(v, "0") != 0;
}

static mr_code limit_of_environment(int64_t *out, mr_status *st)
{
    const char *v = variable("MILLRACE_CACHE_LIMIT");
    static const char units[] = "KMGT";
    char *end;
    *out = 0;
    if (!v)
        return MR_OK;
    errno = 0;
    long long n = strtoll(v, &end, 10);
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (errno || end == v || n < 1 || (*end && (!unit || end[1])) || n > (INT64_MAX >> shift)) {
        mr_fail(st, MR_INVALID_ARGUMENT,
                "MILLRACE_CACHE_LIMIT is '%s', which is not a size in bytes such as 512M or 2G", v);
        mr_status_of_no_element(st);
        return MR_INVALID_ARGUMENT;
    }
    *out = n << shift;
    return MR_OK;
}

/* Call with the lock held. */
static mr__cache *find_cache(const char *directory, int64_t limit)
{
    for (size_t i = 0; i < shared.n_caches; i++)
        if (strcmp(shared.caches[i]->directory, directory) == 0 && shared.limits[i] == limit)
            return shared.caches[i];
    return NULL;
}

/* Opening may wait for other processes, so it is done without the lock. */
static mr_code open_cache(const char *directory, int64_t limit, mr__cache **out, mr_status *st)
{
    mr__cache *c = NULL;
    mr__name_scope names = mr__name_scope_enter_own(); /* no graph of a client names it */
    mr_code rc = mr__cache_open(&c, directory, limit, true, st);
    (void)mr__name_scope_set(names);
    if (rc != MR_OK)
        return rc;
    pthread_mutex_lock(&lock);
    *out = find_cache(directory, limit); /* by another thread meanwhile */
    if (!*out && shared.n_caches == MOST_CACHES)
        rc = mr_fail(st, MR_RESOURCE_EXHAUSTED, "more than %d caches in one process", MOST_CACHES);
    else if (!*out) {
        shared.limits[shared.n_caches] = limit;
        shared.caches[shared.n_caches++] = *out = c;
        c = NULL;
    }
    pthread_mutex_unlock(&lock);
    mr__cache_close(c);
    return rc;
}

mr_code mr__cache_current(mr__cache **out, mr_status *st)
{
    mr__name_scope s = mr__name_scope_get();
    const char *directory = s.cache && !s.of_service ? s.cache : variable("MILLRACE_CACHE_DIR");
    int64_t limit;
    *out = NULL;
    if (!directory)
        return MR_OK;
    MR_TRY(limit_of_environment(&limit, st));
    size_t n = strlen(directory);
    while (n > 1 && directory[n - 1] == '/')
        n--;
    char *name = mr_strndup(directory, n);
    if (!name)
        return mr_fail_memory(st, n, "a cache");
    pthread_mutex_lock(&lock);
    *out = find_cache(name, limit);
    pthread_mutex_unlock(&lock);
    mr_code rc = *out ? MR_OK : open_cache(name, limit, out, st);
    mr_free(name);
    return rc;
}

static mr_code fail_offline(mr_status *st, const char *url, const char *why)
{
    mr_fail(st, MR_FAILED_PRECONDITION, "%s", why);
    mr_status_at(st, url, -1, -1);
    mr_status_of_no_element(st);
    return MR_FAILED_PRECONDITION;
}

static mr_code set_known(void *ctx, const char *url, const mr__object_info *info, mr_status *st)
{
    mr__object *o = ctx;
    (void)url, (void)st;
    o->info = *info;
    mr__object_set_known(o);
    return MR_OK;
}

mr_code mr__cache_check_online(const char *url, mr_status *st)
{
    return mr__cache_is_offline()
               ? fail_offline(st, url, "no request is made, since MILLRACE_OFFLINE is set")
               : MR_OK;
}

mr_code mr__cache_need(const mr__cache *c, const char *url, mr_status *st)
{
    if (c || !mr__cache_is_offline())
        return MR_OK;
    return fail_offline(st, url,
                        "offline (MILLRACE_OFFLINE), and there is no cache to read it from "
                        "(MILLRACE_CACHE_DIR)");
}

mr_code mr__cache_recall_object(mr__object *o, mr_status *st)
{
    mr__cache *c;
    if (!mr__cache_is_offline())
        return MR_OK;
    MR_TRY(mr__cache_current(&c, st));
    MR_TRY(mr__cache_need(c, o->url, st));
    mr_code rc = mr__list_recall(c, o->url, set_known, o, st);
    if (rc == MR_OK && !atomic_load_explicit(&o->known, memory_order_relaxed)) {
        mr_fail(st, MR_NOT_FOUND,
                "it was not there when it was opened with the cache, and offline");
        mr_status_at(st, o->url, -1, -1);
        return MR_NOT_FOUND;
    }
    if (rc != MR_OK) {
        mr_status_at(st, o->url, -1, -1);
        mr_status_of_no_element(st);
    }
    return rc;
}

void mr__cache_note_object(const mr__object *o)
{
    mr__cache *c;
    mr__list_note note = {0};
    if (mr__cache_current(&c, NULL) != MR_OK || !c || mr__cache_is_offline())
        return;
    mr__cache_key k;
    if (mr__cache_key_make(&k, o->url, "", -1, NULL) != MR_OK)
        return;
    if (atomic_load_explicit(&o->known, memory_order_acquire))
        mr__list_note_add(&note, k.url, &o->info); /* without secrets */
    mr__list_note_end(&note, c, o->url);
    mr_free(k.text);
}

/* ---- fetching pieces, in threads ---- */

/* Call with the lock held. */
static void unref(fill *f)
{
    if (--f->refs)
        return;
    for (fill **at = &shared.fills; *at; at = &(*at)->next)
        if (*at == f) {
            *at = f->next;
            break;
        }
    mr_cancel_unref(f->cancel);
    mr__object_unref(f->object);
    mr_free(f->key.text);
    mr_free(f);
}

static void leave(fill *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&lock);
    if (f->refs == 2 && f->running) {
        mr_cancel_trigger(f->cancel);
        pthread_cond_broadcast(&shared.changed);
    }
    unref(f);
    pthread_mutex_unlock(&lock);
}

/* Checksums of blocks as bytes arrive. */
typedef struct sums {
    uint8_t v[MR__PIECE / MR__PIECE_BLOCK * 4];
    uint32_t crc, used, blocks;
} sums;

static void sum_up(sums *s, const uint8_t *data, size_t n)
{
    while (n) {
        size_t part = MR__PIECE_BLOCK - s->used < n ? MR__PIECE_BLOCK - s->used : n;
        s->crc = mr_crc32c_extend(s->crc, data, part);
        mr__store_le(s->v + 4 * (size_t)s->blocks, s->crc, 4);
        s->used += (uint32_t)part;
        data += part;
        n -= part;
        if (s->used == MR__PIECE_BLOCK) {
            s->blocks++;
            s->used = s->crc = 0;
        }
    }
}

static bool write_at(int fd, int64_t offset, const void *data, size_t n)
{
    return mr__sys->lseek(fd, (off_t)offset, SEEK_SET) == offset && mr__write_all(fd, data, n) == 0;
}

/* Receives the piece into the file. */
static result receive(fill *f, mr__transfer *t, int fd, sums *s, uint32_t head)
{
    int64_t done = 0;
    for (;;) {
        mr_buffer *slot = NULL;
        uint8_t *data;
        size_t got;
        mr_code rc = mr__transfer_take(t, f->cancel, &slot, &data, &got, &f->why);
        if (rc == MR_END && done == f->bytes)
            return WHOLE;
        if (rc != MR_OK)
            return rc == MR_END ? NO_CACHE : FAILED;
        bool fits = (int64_t)got <= (int64_t)f->bytes - done;
        if (fits)
            sum_up(s, data, got);
        bool good = fits && write_at(fd, head + done, data, got);
        int err = errno;
        done += (int64_t)got;
        mr_buffer_unref(slot);
        if (fits && !good)
            mr__cache_give_up(f->cache, err);
        if (!good)
            return NO_CACHE;
    }
}

static result fetch(fill *f, mr__claim *claim)
{
    uint32_t head = mr__piece_head(&f->key, f->bytes);
    int64_t from = f->number * MR__PIECE;
    sums *s = mr_calloc(1, sizeof *s);
    uint8_t *text = mr_malloc(head);
    mr__transfer *t = NULL;
    result r = NO_CACHE;
    if (s && text) {
        r = FAILED;
        if (mr__transfer_start(&t, f->object, from, from + f->bytes, true, &f->why) == MR_OK)
            r = receive(f, t, claim->fd, s, head);
        mr__transfer_drop(t);
    }
    if (r == WHOLE) {
        mr__piece_make_head(&f->key, f->number, f->bytes, s->v, text);
        if (!write_at(claim->fd, 0, text, head)) {
            mr__cache_give_up(f->cache, errno);
            r = NO_CACHE;
        }
    }
    /* A piece that was taken over is there, or comes. */
    if (r == WHOLE)
        (void)mr__claim_commit(f->cache, claim);
    else
        mr__claim_drop(f->cache, claim);
    mr_free(s);
    mr_free(text);
    return r;
}

/* Waits while another process fetches it. */
static void look_later(fill *f)
{
    pthread_mutex_lock(&lock);
    if (!shared.stops && !mr_cancel_is_cancelled(f->cancel))
        mr__cond_wait_for(&shared.changed, &lock, LOOK_AGAIN);
    pthread_mutex_unlock(&lock);
}

static result run_fill(fill *f)
{
    mr__claim claim = {.fd = -1}, before = {.fd = -1};
    int64_t size = (int64_t)mr__piece_head(&f->key, f->bytes) + f->bytes, since = 0;
    for (;;) {
        if (mr_cancel_is_cancelled(f->cancel))
            return NO_CACHE;
        switch (mr__claim_take(f->cache, f->name, size, false, &claim)) {
        case MR__CLAIM_MINE:
            return fetch(f, &claim);
        case MR__CLAIM_DONE:
            return WHOLE;
        case MR__CLAIM_NONE:
            return NO_CACHE;
        case MR__CLAIM_BUSY:
            break;
        }
        int64_t now = mr__clock_ns(CLOCK_MONOTONIC);
        if (!since || claim.file != before.file || claim.changed != before.changed)
            since = now;
        before = claim;
        if (now - since >= STALLED) {
            mr__claim_break(f->cache, &claim);
            since = 0;
        } else
            look_later(f);
    }
}

/* Call with the lock held. */
static fill *next_fill(void)
{
    fill *f = shared.fills;
    while (f && f->running)
        f = f->next;
    return f;
}

static void *run(void *ctx)
{
    (void)ctx;
    bool expired = false;
    (void)mr__name_scope_enter_own(); /* for files of the cache */
    pthread_mutex_lock(&lock);
    while (!shared.stops) {
        fill *f = next_fill();
        if (!f) {
            if (expired)
                break;
            shared.idle++;
            expired = !mr__cond_wait_for(&shared.changed, &lock, LINGER);
            shared.idle--;
            continue;
        }
        expired = false;
        f->running = true;
        f->refs++;
        pthread_mutex_unlock(&lock);
        result r = run_fill(f);
        pthread_mutex_lock(&lock);
        for (fill **at = &shared.fills; *at; at = &(*at)->next)
            if (*at == f) {
                *at = f->next;
                break;
            }
        /* Release: pairs with the acquire of readers, which look at `why` then. */
        atomic_store_explicit(&f->result, r, memory_order_release);
        atomic_fetch_add(&f->word, 2);
        mr__wait_wake(&f->word);
        unref(f);
    }
    shared.threads--;
    pthread_cond_broadcast(&shared.ended);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* At the end of the process, before libraries release what the threads use. */
static void stop_threads(void)
{
    pthread_mutex_lock(&lock);
    shared.stops = true;
    for (fill *f = shared.fills; f; f = f->next)
        mr_cancel_trigger(f->cancel);
    if (shared.initialised)
        pthread_cond_broadcast(&shared.changed);
    while (shared.threads && shared.initialised)
        pthread_cond_wait(&shared.ended, &lock);
    pthread_mutex_unlock(&lock);
}

/* Threads that may fetch at once: each has up to a piece in memory. */
static unsigned most_threads(void)
{
    size_t bound = mr__memory_bound(); /* a few times the limit */
    size_t n = bound == SIZE_MAX ? MOST_THREADS : bound / 64 / (size_t)MR__PIECE;
    return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : (unsigned)n;
}

/* Call with the lock held. false: there is no thread. */
static bool start_thread(void)
{
    static bool registered;
    sigset_t none, before;
    pthread_t thread;
    if (!shared.initialised) {
        mr__timed_cond_init(&shared.changed);
        pthread_cond_init(&shared.ended, NULL);
        shared.initialised = true;
    }
    if (!registered)
        atexit(stop_threads);
    registered = true;
    unsigned waiting = 0;
    for (const fill *f = shared.fills; f; f = f->next)
        waiting += !f->running;
    if (shared.idle >= waiting || shared.threads >= most_threads() || shared.stops) {
        pthread_cond_broadcast(&shared.changed);
        return shared.threads > 0;
    }
    sigfillset(&none);
    pthread_sigmask(SIG_SETMASK, &none, &before);
    bool good = pthread_create(&thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (good) {
        pthread_detach(thread);
        shared.threads++;
    }
    return shared.threads > 0;
}

static fill *make_fill(const mr__fetch *r, const char *name, int64_t number)
{
    fill *f = mr_calloc(1, sizeof *f);
    if (!f)
        return NULL;
    int64_t left = r->object->info.size - number * MR__PIECE;
    f->refs = 1;
    f->cache = r->cache;
    f->object = mr__object_ref(r->object);
    f->number = number;
    f->bytes = (uint32_t)(left < MR__PIECE ? left : MR__PIECE);
    memcpy(f->name, name, sizeof f->name);
    mr_status_init(&f->why);
    if (mr_cancel_new(NULL, &f->cancel, NULL) == MR_OK &&
        mr__cache_key_make(&f->key, r->object->url, r->object->info.etag, r->object->info.size,
                           NULL) == MR_OK)
        return f;
    mr_cancel_unref(f->cancel);
    mr__object_unref(f->object);
    mr_free(f);
    return NULL;
}

/* The piece is to come. NULL: no memory, or no thread. */
static fill *request(const mr__fetch *r, int64_t number)
{
    char name[MR__CACHE_NAME];
    mr__cache_name(&r->key, number, "piece", name);
    pthread_mutex_lock(&lock);
    fill **at = &shared.fills, *f;
    /* Another URL of the same object may have another token or signature, which is refused. */
    while (*at && ((*at)->cache != r->cache || strcmp((*at)->name, name) != 0 ||
                   strcmp((*at)->object->url, r->object->url) != 0 ||
                   mr_cancel_is_cancelled((*at)->cancel)))
        at = &(*at)->next;
    f = *at;
    if (f)
        f->refs++;
    else if ((f = make_fill(r, name, number))) {
        *at = f;
        mr__host_add(&r->host->cache_misses, 1);
        if (!start_thread()) {
            unref(f);
            f = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    return f;
}

/* ---- the reader's side ---- */

static bool is_strong(const char *etag)
{
    return *etag == '"';
}

static bool is_cached(const mr__object *o, mr__cache *c, int64_t from, int64_t to)
{
    static atomic_bool said;
    if (!c || !atomic_load_explicit(&o->known, memory_order_acquire) || o->info.size < 0 ||
        (!o->info.ranges && o->info.size > MR__PIECE))
        return false;
    if (!is_strong(o->info.etag)) {
        if (!atomic_exchange(&said, true))
            mr__warn_once("%s: the server sends no strong ETag; such objects are read without the "
                          "cache",
                          o->url);
        return false;
    }
    return o->info.size <= atomic_load(&c->limit) || to < 0 || to - from >= SMALL_RANGE;
}

static bool is_there(const mr__fetch *f, int64_t number)
{
    char name[MR__CACHE_NAME], path[PATH_MAX];
    struct stat is;
    mr__cache_name(&f->key, number, "piece", name);
    mr__cache_path(f->cache, name, false, path);
    mr__name_scope names = mr__name_scope_enter_own();
    bool there = mr__sys->stat(path, &is) == 0;
    (void)mr__name_scope_set(names);
    return there;
}

static mr__piece_state open_piece(mr__fetch *f)
{
    mr__name_scope names = mr__name_scope_enter_own();
    mr__piece_state state = mr__piece_open(f->cache, &f->key, f->at / MR__PIECE, &f->piece);
    (void)mr__name_scope_set(names);
    return state;
}

/* Lets the piece after that of `at` come, if it is needed. */
static void look_ahead(mr__fetch *f)
{
    int64_t number = f->at / MR__PIECE + 1;
    if (!f->next && number * MR__PIECE < f->end && !is_there(f, number) && !mr__cache_is_offline())
        f->next = request(f, number);
}

static mr_code start_cached(mr__fetch *f, mr__object *o, int64_t from, int64_t to, mr_status *st)
{
    f->object = mr__object_ref(o);
    f->at = from;
    f->to = to;
    f->end = to < 0 || to > o->info.size ? o->info.size : to;
    f->piece.fd = -1;
    MR_TRY(mr__cache_key_make(&f->key, o->url, o->info.etag, o->info.size, st));
    /* Offline the target is not known: the address of the store, or the URL. */
    f->host = mr__host_of(o->target.url ? o->target.url : *f->key.text ? f->key.text : o->url);
    if (f->at < f->end && !mr__cache_is_offline()) {
        if (!is_there(f, f->at / MR__PIECE))
            f->now = request(f, f->at / MR__PIECE);
        look_ahead(f);
    }
    return MR_OK;
}

mr_code mr__fetch_start(mr__fetch **out, mr__object *o, int64_t from, int64_t to, bool bare,
                        mr_status *st)
{
    mr__cache *c;
    MR_TRY(mr__cache_current(&c, st));
    MR_TRY(mr__cache_need(c, o->url, st));
    bool cached = is_cached(o, c, from, to);
    if (!cached && mr__cache_is_offline())
        return fail_offline(st, o->url,
                            "not in the cache, and offline; an object without a strong ETag is not "
                            "cached");
    mr__fetch *f = mr_calloc(1, sizeof *f);
    if (!f)
        return mr_fail_memory(st, sizeof *f, "a transfer");
    f->cache = c;
    f->bare = bare;
    f->piece.fd = -1;
    mr_code rc = cached ? start_cached(f, o, from, to, st)
                        : mr__transfer_start(&f->direct, o, from, to, bare, st);
    if (rc != MR_OK) {
        mr__fetch_drop(f);
        return rc;
    }
    *out = f;
    return MR_OK;
}

void mr__fetch_drop(mr__fetch *f)
{
    if (!f)
        return;
    mr__transfer_drop(f->direct);
    mr__piece_close(&f->piece);
    leave(f->now);
    leave(f->next);
    mr__object_unref(f->object);
    mr_free(f->key.text);
    mr_free(f);
}

mr_code mr__fetch_wait_known(mr__fetch *f, mr_cancel *cancel, mr_status *st)
{
    return f->direct ? mr__transfer_wait_known(f->direct, cancel, st) : MR_OK;
}

static bool is_done(const fill *f)
{
    return atomic_load_explicit(&f->result, memory_order_acquire) != PENDING;
}

bool mr__fetch_has_next(mr__fetch *f)
{
    if (f->direct)
        return mr__transfer_has_next(f->direct);
    return f->piece.fd >= 0 || !f->now || is_done(f->now);
}

/* From here on without the cache. */
static mr_code go_direct(mr__fetch *f, mr_status *st)
{
    leave(f->now);
    leave(f->next);
    f->now = f->next = NULL;
    return mr__transfer_start(&f->direct, f->object, f->at, f->to, f->bare, st);
}

static mr_code wait_for(mr__fetch *f, mr_cancel *cancel, mr_status *st)
{
    cancel = cancel ? cancel : mr__cancel_of_thread();
    while (!is_done(f->now)) {
        unsigned seen = atomic_load(&f->now->word);
        if (is_done(f->now))
            break;
        mr__wait_while(&f->now->word, seen, cancel);
        if (mr_cancel_is_cancelled(cancel)) {
            mr_fail(st, MR_CANCELLED, "reading was cancelled");
            mr_status_at(st, f->object->url, -1, -1);
            return MR_CANCELLED;
        }
    }
    return MR_OK;
}

/* Removes a damaged piece; `f->piece.is` is its file. */
static mr_code discard(mr__fetch *f, int64_t number, mr_status *st)
{
    char name[MR__CACHE_NAME];
    if (mr__cache_is_offline()) {
        mr_fail(st, MR_DATA_LOSS,
                "piece %" PRId64 " of it in the cache is damaged; read it with the network",
                number);
        mr_status_at(st, f->object->url, number * MR__PIECE, -1);
        return MR_DATA_LOSS;
    }
    mr__warn_once("%s: piece %" PRId64 " of it in the cache is damaged, and is fetched again",
                  f->object->url, number);
    mr__cache_name(&f->key, number, "piece", name);
    mr__name_scope names = mr__name_scope_enter_own();
    mr__cache_remove(f->cache, name, &f->piece.is);
    (void)mr__name_scope_set(names);
    return MR_OK;
}

/* The piece at `at` is not open: opens it, or lets it come and waits. Returns MR_OK if something
 * has changed. */
static mr_code need_piece(mr__fetch *f, mr_cancel *cancel, mr_status *st)
{
    int64_t number = f->at / MR__PIECE;
    if (f->next && f->next->number == number) {
        leave(f->now);
        f->now = f->next;
        f->next = NULL;
    }
    bool came = f->now && f->now->number == number;
    if (came) {
        MR_TRY(wait_for(f, cancel, st));
        result r = atomic_load_explicit(&f->now->result, memory_order_acquire);
        if (r == FAILED && st)
            *st = f->now->why;
        mr_code code = f->now->why.code;
        leave(f->now);
        f->now = NULL;
        if (r == FAILED)
            return code;
        if (r == NO_CACHE)
            return go_direct(f, st);
    }
    switch (open_piece(f)) {
    case MR__PIECE_OPEN:
        mr__host_add(&f->host->cache_hits, !came);
        look_ahead(f);
        return MR_OK;
    case MR__PIECE_NO_MEMORY:
        return mr_fail_memory(st, 0, "the head of a piece");
    case MR__PIECE_DAMAGED:
        MR_TRY(discard(f, number, st));
        break;
    case MR__PIECE_ABSENT:
        if (mr__cache_is_offline())
            return fail_offline(st, f->object->url,
                                "a part of it is not in the cache, and offline; read it once with "
                                "the network");
        break;
    }
    if (++f->tries > MOST_TRIES) /* it is removed as soon as it is there: others need the room */
        return go_direct(f, st);
    f->now = request(f, number);
    return f->now ? MR_OK : go_direct(f, st);
}

/* Reads the next blocks of the open piece. *got 0: it is damaged. */
static mr_code read_blocks(mr__fetch *f, mr_buffer **slot, uint8_t **data, size_t *got,
                           mr_status *st)
{
    size_t head = f->bare ? MR__PIECE_BLOCK : MR__REMOTE_HEADROOM;
    int64_t start = f->piece.number * MR__PIECE;
    int64_t stop = start + f->piece.bytes < f->end ? start + f->piece.bytes : f->end;
    size_t want = (size_t)(stop - f->at), most = MR__REMOTE_SLOT;
    uint32_t in = (uint32_t)(f->at - start), from = in / MR__PIECE_BLOCK * MR__PIECE_BLOCK;
    if (want > most - (in - from))
        want = most - (in - from);
    uint32_t upto = (in + (uint32_t)want + MR__PIECE_BLOCK - 1) / MR__PIECE_BLOCK * MR__PIECE_BLOCK;
    upto = upto < f->piece.bytes ? upto : f->piece.bytes;
    *got = 0;
    MR_TRY(mr_buffer_alloc(slot, head + (upto - in), st));
    uint8_t *base = mr_buffer_data(*slot);
    if (!mr__piece_read(&f->piece, from, base + head - (in - from), upto - from)) {
        mr_buffer_unref(*slot);
        *slot = NULL;
        return MR_OK;
    }
    *data = base + head;
    *got = want;
    mr__host_add(&f->host->cached_bytes, (int64_t)want);
    f->at += (int64_t)want;
    f->tries = 0;
    if (f->at == start + f->piece.bytes)
        mr__piece_close(&f->piece);
    return MR_OK;
}

mr_code mr__fetch_take(mr__fetch *f, mr_cancel *cancel, mr_buffer **slot, uint8_t **data,
                       size_t *got, mr_status *st)
{
    while (!f->direct) {
        if (f->at >= f->end)
            return MR_END;
        if (f->piece.fd < 0) {
            MR_TRY(need_piece(f, cancel, st));
            continue;
        }
        MR_TRY(read_blocks(f, slot, data, got, st));
        if (*got)
            return MR_OK;
        MR_TRY(discard(f, f->piece.number, st));
        mr__piece_close(&f->piece);
    }
    return mr__transfer_take(f->direct, cancel, slot, data, got, st);
}

size_t mr__fetch_read(mr__fetch *f, void *data, size_t n)
{
    if (f->direct || f->at >= f->end)
        return 0;
    if (f->piece.fd < 0) {
        if (f->now || open_piece(f) != MR__PIECE_OPEN)
            return 0;
        mr__host_add(&f->host->cache_hits, 1);
    }
    int64_t start = f->piece.number * MR__PIECE, stop = start + f->piece.bytes;
    uint32_t from = (uint32_t)(f->at - start);
    int64_t most = (stop < f->end ? stop : f->end) - f->at;
    n = (int64_t)n < most ? n : (size_t)most;
    n = n < MR__REMOTE_SLOT ? n : MR__REMOTE_SLOT;
    if (!mr__piece_read_checked(&f->piece, from, data, (uint32_t)n)) {
        if (f->at + (int64_t)n < stop)
            n = n / MR__PIECE_BLOCK * MR__PIECE_BLOCK;
        /* What is damaged is found again by take. */
        if (n == 0 || from % MR__PIECE_BLOCK || !mr__piece_read(&f->piece, from, data, (uint32_t)n))
            return 0;
    }
    mr__host_add(&f->host->cached_bytes, (int64_t)n);
    f->at += (int64_t)n;
    f->tries = 0;
    if (f->at == stop)
        mr__piece_close(&f->piece);
    return n;
}
