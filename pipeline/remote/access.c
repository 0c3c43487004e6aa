/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/access.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipeline/log.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/timed_wait.h"
#include "pipeline/wait/cancel_internal.h"
#include "pipeline/wait/wait.h"

#define SECOND    INT64_C(1000000000)
#define EARLY     (300 * SECOND) /* before the end */
#define MOST_WAIT (30 * SECOND)  /* the wall clock may be set */
#define AGAIN     (10 * SECOND)  /* after a renewal that failed */
#define NONE_FOR  (60 * SECOND)  /* a source that is not there is not asked for so long, */
#define BAD_FOR   (2 * SECOND)   /* and one that failed for so long */

struct mr__access {
    mr__access *next;
    unsigned users;
    mr__access_fetch fetch;
    char *arguments[MR__ACCESS_ARGUMENTS];
    atomic_uint word; /* changes with the rest; see mr__wait_while */
    mr__credentials now;
    unsigned generation; /* of `now`; 0: none yet */
    bool wanted, fetching;
    int64_t due_at;    /* on the wall clock; 0: never */
    mr_status why;     /* of the last fetch */
    int64_t failed_at; /* on the monotonic clock; 0: it did not fail */
    bool running;      /* its thread; when it has ended, it is still to be joined */
    bool started;
    pthread_t thread;
    pthread_cond_t changed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static mr__access *all;
static bool watched;
static atomic_bool stopping;
static void (*_Atomic on_change)(void);

static void forget_threads(void)
{
    for (mr__access *a = all; a; a = a->next) {
        a->running = a->started = false;
        a->wanted = a->wanted || a->fetching;
        a->fetching = false;
    }
}
MR__AROUND_FORK(lock, forget_threads)

bool mr__access_stops(void *ctx)
{
    (void)ctx;
    return atomic_load(&stopping);
}

void mr__access_watch(void (*changed)(void))
{
    atomic_store(&on_change, changed);
}

/* ---- credentials ---- */

static void wipe(char **text)
{
    if (*text)
        explicit_bzero(*text, strlen(*text));
    mr_free(*text);
    *text = NULL;
}

void mr__credentials_reset(mr__credentials *c)
{
    wipe(&c->id);
    wipe(&c->secret);
    wipe(&c->token);
    *c = (mr__credentials){0};
}

mr_code mr__credentials_copy(mr__credentials *out, const mr__credentials *from, mr_status *st)
{
    *out = (mr__credentials){.ends_at = from->ends_at, .origin = from->origin};
    out->id = from->id ? mr_strdup(from->id) : NULL;
    out->secret = from->secret ? mr_strdup(from->secret) : NULL;
    out->token = from->token ? mr_strdup(from->token) : NULL;
    if ((!from->id || out->id) && (!from->secret || out->secret) && (!from->token || out->token))
        return MR_OK;
    mr__credentials_reset(out);
    return mr_fail_memory(st, 0, "credentials");
}

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_same(const mr__credentials *a, const mr__credentials *b)
{
    return is_same_text(a->id, b->id) && is_same_text(a->secret, b->secret) &&
           is_same_text(a->token, b->token);
}

bool mr__time_of_text(const char *text, int64_t *out)
{
    struct tm t = {0};
    const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &t);
    int hours = 0, minutes = 0;
    if (!at)
        return false;
    if (*at == '.')
        at += 1 + strspn(at + 1, "0123456789");
    if (*at == '+' || *at == '-') {
        if (sscanf(at + 1, "%2d:%2d", &hours, &minutes) < 1)
            return false;
        hours = *at == '-' ? -hours : hours;
        minutes = *at == '-' ? -minutes : minutes;
    } else if (*at != 'Z' && *at != '\0')
        return false;
    *out = ((int64_t)timegm(&t) - hours * 3600 - minutes * 60) * SECOND;
    return true;
}

/* ---- the threads ---- */

static void notify(mr__access *a)
{
    atomic_fetch_add(&a->word, 2);
    mr__wait_wake(&a->word);
}

static int64_t wall(void)
{
    return mr__clock_ns(CLOCK_REALTIME);
}

/* Five minutes before they end; those that end sooner than that, after half of their time. */
static int64_t due_of(const mr__credentials *c)
{
    int64_t now = wall(), left = c->ends_at - now;
    if (!c->ends_at)
        return 0;
    if (left > EARLY)
        return c->ends_at - EARLY;
    return now + (left / 2 > SECOND ? left / 2 : SECOND);
}

static void give(mr__access *a, mr__credentials *c)
{
    mr__credentials_reset(&a->now);
    a->now = *c;
    a->generation++;
    a->due_at = due_of(&a->now);
    a->failed_at = 0;
}

/* Takes what fetch has found, or why it failed. Files may have what they had before. */
static void settle(mr__access *a, mr_code rc, mr__credentials *c, mr_status *why)
{
    if (rc == MR_OK && a->generation && !c->ends_at && is_same(&a->now, c))
        rc = mr_fail(why, MR_NOT_FOUND, "they have not changed");
    else if (rc == MR_OK && c->ends_at && c->ends_at <= wall())
        rc =
            mr_fail(why, MR_PERMISSION_DENIED,
                    "the credentials of %s have ended already; is the clock of this machine right?",
                    c->origin);
    if (rc == MR_OK) {
        give(a, c);
        return;
    }
    mr__credentials_reset(c);
    a->why = *why;
    a->failed_at = mr__clock_ns(CLOCK_MONOTONIC);
    if (!a->due_at)
        return;
    a->due_at = wall() + AGAIN;
    mr_log(MR_LOG_WARNING, "the credentials of %s were not renewed: %s", a->now.origin,
           a->why.message);
}

/* How long to wait before the source is asked; INT64_MAX: it need not be. */
static int64_t wait_of(const mr__access *a)
{
    if (a->wanted)
        return 0;
    if (!a->users || !a->due_at)
        return INT64_MAX;
    int64_t left = a->due_at - wall();
    return left > 0 ? left : 0;
}

static void fetch_one(mr__access *a)
{
    mr__credentials c = {0};
    mr_status why;
    mr_status_init(&why);
    a->wanted = false;
    a->fetching = true;
    pthread_mutex_unlock(&lock);
    mr_code rc = a->fetch(a->arguments, &c, &why);
    pthread_mutex_lock(&lock);
    a->fetching = false;
    settle(a, rc, &c, &why);
    notify(a);
    pthread_mutex_unlock(&lock);
    void (*tell)(void) = atomic_load(&on_change);
    if (tell)
        tell();
    pthread_mutex_lock(&lock);
}

static void *run(void *ctx)
{
    mr__access *a = ctx;
    pthread_mutex_lock(&lock);
    for (int64_t wait; !atomic_load(&stopping) && (wait = wait_of(a)) != INT64_MAX;) {
        if (wait)
            mr__cond_wait_for(&a->changed, &lock, wait < MOST_WAIT ? wait + 1 : MOST_WAIT);
        else
            fetch_one(a);
    }
    a->running = false;
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* At the end of the process, before libraries release what the threads use. */
static void stop_threads(void)
{
    pthread_mutex_lock(&lock);
    atomic_store(&stopping, true);
    mr__access *first = all;
    for (mr__access *a = first; a; a = a->next)
        if (a->running)
            pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&lock);
    for (mr__access *a = first; a; a = a->next)
        if (a->started) /* nothing changes it now */
            pthread_join(a->thread, NULL);
}

/* Call with the lock held. */
static mr_code need_thread(mr__access *a, mr_status *st)
{
    sigset_t none, before;
    if (atomic_load(&stopping))
        return mr_fail(st, MR_CANCELLED, "the process ends");
    if (!watched)
        atexit(stop_threads);
    watched = true;
    if (a->running) {
        pthread_cond_signal(&a->changed);
        return MR_OK;
    }
    for (mr__access *ended = all; ended; ended = ended->next)
        if (ended->started && !ended->running) {
            pthread_join(ended->thread, NULL);
            ended->started = false;
        }
    mr__timed_cond_init(&a->changed);
    sigfillset(&none);
    pthread_sigmask(SIG_SETMASK, &none, &before);
    int err = pthread_create(&a->thread, NULL, run, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err)
        return mr_fail_errno(st, err, "cannot start a thread for credentials");
    a->running = a->started = true;
    return MR_OK;
}

/* ---- entries ---- */

static bool is_of(const mr__access *a, mr__access_fetch fetch, const char *const *arguments)
{
    if (a->fetch != fetch)
        return false;
    for (int i = 0; i < MR__ACCESS_ARGUMENTS; i++)
        if (!is_same_text(a->arguments[i], arguments[i]))
            return false;
    return true;
}

/* Call with the lock held. Counts a user. */
static mr_code find(mr__access **out, mr__access_fetch fetch, const char *const *arguments,
                    mr_status *st)
{
    mr__access *a = all;
    while (a && !is_of(a, fetch, arguments))
        a = a->next;
    if (!a) {
        bool good = (a = mr_calloc(1, sizeof *a)) != NULL;
        for (int i = 0; i < MR__ACCESS_ARGUMENTS && good; i++) {
            a->arguments[i] = arguments[i] ? mr_strdup(arguments[i]) : NULL;
            good = !arguments[i] || a->arguments[i];
        }
        if (!good) {
            for (int i = 0; i < MR__ACCESS_ARGUMENTS && a; i++)
                mr_free(a->arguments[i]);
            mr_free(a);
            return mr_fail_memory(st, sizeof *a, "credentials");
        }
        a->fetch = fetch;
        mr_status_init(&a->why);
        a->next = all;
        all = a;
    }
    a->users++;
    *out = a;
    return MR_OK;
}

/* One look at the entry: MR_END: wait for *seen to change. */
static mr_code look(mr__access *a, bool *asked, unsigned *seen, mr_status *st)
{
    pthread_mutex_lock(&lock);
    *seen = atomic_load(&a->word);
    int64_t now = mr__clock_ns(CLOCK_MONOTONIC);
    bool pending = a->wanted || a->fetching;
    mr_code rc = MR_END;
    bool failed =
        a->failed_at && now - a->failed_at < (a->why.code == MR_NOT_FOUND ? NONE_FOR : BAD_FOR);
    if (a->generation && (!a->now.ends_at || wall() < a->now.ends_at)) {
        rc = MR_OK;
    } else if (!pending && (failed || (a->failed_at && *asked))) {
        rc = a->why.code;
        if (st)
            *st = a->why;
    } else if (!pending) {
        *asked = a->wanted = true;
    }
    *asked = *asked || pending;
    if ((rc == MR_OK && a->due_at) || a->wanted) {
        mr_code started = need_thread(a, st);
        rc = started == MR_OK ? rc : started;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

mr_code mr__access_get(mr__access **out, mr__access_fetch fetch, const char *const *arguments,
                       mr_status *st)
{
    mr_cancel *cancel = mr__cancel_of_thread();
    mr__access *a = NULL;
    unsigned seen = 0;
    bool asked = false;
    pthread_mutex_lock(&lock);
    mr_code rc = find(&a, fetch, arguments, st);
    pthread_mutex_unlock(&lock);
    if (rc != MR_OK)
        return rc;
    while ((rc = look(a, &asked, &seen, st)) == MR_END) {
        mr__wait_while(&a->word, seen, cancel);
        if (mr_cancel_is_cancelled(cancel)) {
            rc = mr_fail(st, MR_CANCELLED, "waiting for credentials was cancelled");
            break;
        }
    }
    if (rc == MR_OK)
        *out = a;
    else
        mr__access_unref(a);
    return rc;
}

mr_code mr__access_put(mr__access **out, mr__access_fetch fetch, const char *const *arguments,
                       const mr__credentials *now, mr_status *st)
{
    mr__access *a = NULL;
    mr__credentials c = {0};
    MR_TRY(mr__credentials_copy(&c, now, st));
    pthread_mutex_lock(&lock);
    mr_code rc = find(&a, fetch, arguments, st);
    if (rc == MR_OK && (!a->generation || !is_same(&a->now, &c))) {
        give(a, &c);
        c = (mr__credentials){0};
    }
    pthread_mutex_unlock(&lock);
    mr__credentials_reset(&c);
    *out = a;
    return rc;
}

void mr__access_unref(mr__access *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&lock);
    a->users--;
    pthread_mutex_unlock(&lock);
}

mr_code mr__access_take(mr__access *a, unsigned *generation, mr__credentials *out, mr_status *st)
{
    pthread_mutex_lock(&lock);
    mr_code rc = *generation == a->generation ? MR_END : mr__credentials_copy(out, &a->now, st);
    if (rc == MR_OK)
        *generation = a->generation;
    pthread_mutex_unlock(&lock);
    return rc;
}

void mr__access_renew(mr__access *a, unsigned generation)
{
    pthread_mutex_lock(&lock);
    if (a->generation == generation && !a->fetching) {
        a->wanted = true;
        a->failed_at = 0;
        if (need_thread(a, &a->why) != MR_OK) {
            a->wanted = false;
            a->failed_at = 1;
        }
    }
    pthread_mutex_unlock(&lock);
}

mr_code mr__access_renewal(mr__access *a, unsigned generation, mr_status *st)
{
    pthread_mutex_lock(&lock);
    mr_code rc = a->generation != generation ? MR_OK
                 : a->wanted || a->fetching  ? MR_END
                                             : a->why.code;
    if (rc != MR_OK && rc != MR_END && st)
        *st = a->why;
    pthread_mutex_unlock(&lock);
    return rc == MR_OK && a->generation == generation ? MR_NOT_FOUND : rc;
}
