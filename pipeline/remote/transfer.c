/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/transfer_internal.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "pipeline/remote/cache_fetch.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/wait/wait.h"

enum { CONNECTIONS = 64 /* to a host */ };
#define LINGER (3 * MR__SECOND) /* without transfers, before the thread ends */

mr__curl_functions mr__curl;
static mr__late_library libcurl =
    MR__LATE_LIBRARY("URLs are read", "libcurl.so.4", "libcurl4", MR__CURL, mr__curl);

/* The thread and what it shares. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static struct {
    bool initialised, running, stops;
    pthread_t thread;
    CURLM *multi;
    mr__transfer *arriving;
    long connections; /* to a host */
    bool connections_changed;
    long paused; /* the thread's: transfers that wait for their readers */
} shared = {.connections = CONNECTIONS};

static atomic_int_fast64_t worked; /* nanoseconds, by the thread */
atomic_int_fast64_t mr__transfer_held;

static void forget_thread(void)
{
    shared.running = shared.stops = false;
    shared.multi = NULL;
    shared.arriving = NULL;
    atomic_store(&mr__transfer_held, 0); /* what the parent holds is not released here */
}
MR__AROUND_FORK(lock, forget_thread)

static void release(mr__transfer *t)
{
    /* Acquire and release: the last one frees what the other wrote. */
    if (atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    unsigned filled = atomic_load_explicit(&t->filled, memory_order_relaxed);
    for (unsigned i = atomic_load_explicit(&t->taken, memory_order_relaxed); i != filled; i++) {
        mr_buffer_unref(t->slots[i % MR__RING]);
        atomic_fetch_sub_explicit(&mr__transfer_held, (int64_t)t->sizes[i % MR__RING],
                                  memory_order_relaxed);
    }
    mr_buffer_unref(t->slot);
    mr_buffer_unref(t->request.body);
    mr__object_unref(t->object);
    mr_free(t);
}

/* ---- the thread ---- */

static void add(mr__transfer **all, mr__transfer *t)
{
    t->multi = shared.multi;
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
    mr__try_stop(t);
    release(t);
}

/* Call with the lock held. A connection whose transfer waits for its reader is one more: the reader
 * may wait for another transfer, to which libcurl would give no connection. */
static void limit_connections(void)
{
    mr__curl.curl_multi_setopt(shared.multi, CURLMOPT_MAX_HOST_CONNECTIONS,
                               shared.connections + shared.paused);
    mr__curl.curl_multi_setopt(shared.multi, CURLMOPT_MAXCONNECTS,
                               2 * shared.connections + shared.paused);
    shared.connections_changed = false;
}

/* libcurl looks whether a transfer can have a connection when one is removed. */
static bool start_waiting(void)
{
    CURL *none = mr__curl.curl_easy_init();
    bool good = none && mr__curl.curl_multi_add_handle(shared.multi, none) == CURLM_OK;
    if (good)
        mr__curl.curl_multi_remove_handle(shared.multi, none);
    mr__curl.curl_easy_cleanup(none);
    return good;
}

static void count_paused(const mr__transfer *all)
{
    long n = 0;
    for (const mr__transfer *t = all; t; t = t->next)
        n += t->easy && atomic_load(&t->paused);
    if (n == shared.paused)
        return;
    long before = shared.paused;
    pthread_mutex_lock(&lock);
    shared.paused = n;
    limit_connections();
    pthread_mutex_unlock(&lock);
    for (; before < n; before++)
        if (!start_waiting()) {
            shared.paused = before; /* again at the next look */
            break;
        }
}

/* Starts, resumes and removes transfers. Returns when the next one is to start, or INT64_MAX. */
static int64_t look_at_all(mr__transfer **all)
{
    int64_t now = mr__clock_ns(CLOCK_MONOTONIC), first = INT64_MAX;
    for (mr__transfer *t = *all, *next; t; t = next) {
        next = t->next;
        if (t->waits && !atomic_load(&t->dropped) && !atomic_load(&t->done))
            mr__try_look_at_renewal(t);
        if (t->easy && atomic_load(&t->paused) && !atomic_load(&t->dropped) &&
            mr__try_has_room(t)) {
            atomic_store(&t->paused, false);
            t->last_byte_at = now;
            CURLcode rc = mr__curl.curl_easy_pause(t->easy, CURLPAUSE_CONT);
            if (rc != CURLE_OK) /* also if mr__try_on_body refused what had waited */
                mr__try_end(t, rc);
        }
        if (!t->easy && t->begin_at <= now && !atomic_load(&t->dropped) && !atomic_load(&t->done))
            mr__try_begin(t);
        if (atomic_load(&t->dropped) || atomic_load(&t->done)) {
            take_out(all, t);
            continue;
        }
        if (!t->easy)
            first = t->begin_at < first ? t->begin_at : first;
    }
    return first;
}

static mr__transfer *transfer_of(mr__transfer *all, CURL *easy)
{
    mr__transfer *t = NULL;
    if (mr__curl.curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&t) != CURLE_OK || !t)
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
            mr__try_retry(t);
        }
}

static void end_tries(mr__transfer *all)
{
    int left;
    for (const CURLMsg *m; (m = mr__curl.curl_multi_info_read(shared.multi, &left));) {
        mr__transfer *t = m->msg == CURLMSG_DONE ? transfer_of(all, m->easy_handle) : NULL;
        CURLcode rc = m->data.result;
        if (t)
            mr__try_end(t, rc);
    }
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
        mr__curl.curl_multi_cleanup(shared.multi);
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
        CURLMcode rc = mr__curl.curl_multi_perform(shared.multi, &running);
        end_tries(all);
        if (rc != CURLM_OK)
            end_all_tries(all, mr__curl.curl_multi_strerror(rc));
        int64_t first = look_at_all(&all);
        count_paused(all);
        int64_t now = mr__clock_ns(CLOCK_MONOTONIC);
        if (all)
            idle_since = now;
        int64_t ms = all ? 1000 : (idle_since + LINGER - now) / 1000000 + 1;
        if (first != INT64_MAX)
            ms = first <= now                       ? 0
                 : (first - now) / 1000000 + 1 < ms ? (first - now) / 1000000 + 1
                                                    : ms;
        atomic_fetch_add_explicit(&worked, now - woke, memory_order_relaxed); /* orders nothing */
        rc = mr__curl.curl_multi_poll(shared.multi, NULL, 0, (int)ms, NULL);
        woke = mr__clock_ns(CLOCK_MONOTONIC);
        if (rc != CURLM_OK)
            end_all_tries(all, mr__curl.curl_multi_strerror(rc));
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
        mr__curl.curl_multi_wakeup(shared.multi);
    pthread_mutex_unlock(&lock);
    if (was)
        pthread_join(thread, NULL);
}

static void wake_thread(void)
{
    pthread_mutex_lock(&lock);
    if (shared.running)
        mr__curl.curl_multi_wakeup(shared.multi);
    pthread_mutex_unlock(&lock);
}

/* Call with the lock held. */
static mr_code start_thread(mr_status *st)
{
    sigset_t none, before;
    if (!shared.initialised) {
        if (mr__curl.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
            return mr_fail(st, MR_UNKNOWN, "libcurl cannot be initialised");
        shared.initialised = true;
        atexit(stop_thread);
        mr__access_watch(wake_thread); /* for transfers that wait for credentials */
    }
    if (shared.running)
        return MR_OK;
    if (shared.stops)
        return mr_fail(st, MR_CANCELLED, "the process ends");
    shared.paused = 0;
    shared.multi = mr__curl.curl_multi_init();
    if (!shared.multi)
        return mr_fail_memory(st, 0, "transfers");
    limit_connections();
    sigfillset(&none);
    pthread_sigmask(SIG_SETMASK, &none, &before);
    int err = pthread_create(&shared.thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err) {
        mr__curl.curl_multi_cleanup(shared.multi);
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
    if (request && strcmp(request->method, "POST") == 0) {
        t->room = MR__REMOTE_ANSWER;
        mr_code rc = mr_buffer_alloc(&t->slot, t->headroom + t->room, st);
        if (rc != MR_OK) {
            atomic_init(&t->refs, 1);
            release(t);
            return rc;
        }
    }
    t->limited = mr__remote_is_limited();
    t->most_tries = t->request.tries ? t->request.tries : mr__remote_tries();
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
        mr__curl.curl_multi_wakeup(shared.multi);
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
    cancel = cancel ? cancel : mr__cancel_of_thread();
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
            *slot = t->slots[i % MR__RING];
            *data = (uint8_t *)mr_buffer_data(*slot) + t->headroom;
            *got = t->sizes[i % MR__RING];
            atomic_fetch_sub_explicit(&mr__transfer_held, (int64_t)*got, memory_order_relaxed);
            atomic_store(&t->taken, i + 1); /* the slot is free; see mr__try_free_slots */
            if (atomic_load(&t->paused))
                wake_thread();
            return MR_OK;
        }
        if (done)
            return give_why(t, st);
        MR_TRY(wait_for(t, seen, cancel, st));
    }
}
