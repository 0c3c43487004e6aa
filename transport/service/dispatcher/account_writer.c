/* SPDX-License-Identifier: Apache-2.0 */
/* The account's records that wait, and the thread that writes them. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <sys/statvfs.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/splitmix.h"
#include "pipeline/system/system.h"
#include "pipeline/system/timed_wait.h"
#include "transport/service/dispatcher/account_state.h"

#define RETRY_NS ((int64_t)200000000)  /* after a write that failed */
#define LOOK_NS  ((int64_t)1000000000) /* how often the free space is looked at */

struct mr__a_record {
    mr__a_record *next, *prev;
    mr__record_kind kind;
    uint64_t number, job_id;
    uint32_t stream;
    uint64_t generation, elements, skip, split, reader, instance;
    bool end;
    const char *text;  /* name, id, worker */
    const char *home;  /* after it */
    const void *bytes; /* job, position, graph */
    size_t n_bytes;
    char data[]; /* all three */
};

static const char *const changes[MR__A_N] = {
    "INSERT OR REPLACE INTO jobs VALUES(?, ?, ?)",
    "INSERT OR REPLACE INTO streams VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "DELETE FROM jobs WHERE id = ?",
    "DELETE FROM streams WHERE job = ?",
    "DELETE FROM splits WHERE job = ?",
    "INSERT OR REPLACE INTO datasets VALUES(?, ?)",
    "INSERT OR REPLACE INTO splits VALUES(?, ?, ?)",
    "INSERT OR REPLACE INTO drains VALUES(?, ?)",
    "DELETE FROM drains WHERE worker = ?",
};

void mr__account_init_writer(mr__account *a)
{
    pthread_mutex_init(&a->lock, NULL);
    mr__timed_cond_init(&a->wake);
}

mr_code mr__account_prepare_writer(mr__account *a, mr_status *st)
{
    for (int i = 0; i < MR__A_N; i++)
        MR_TRY(mr__account_prepare(a, changes[i], &a->change[i], st));
    return MR_OK;
}

static void free_records(mr__a_record *r)
{
    while (r) {
        mr__a_record *next = r->next;
        mr_free(r);
        r = next;
    }
}

void mr__account_free_writer(mr__account *a)
{
    for (int i = 0; i < MR__A_N; i++)
        sqlite3_finalize(a->change[i]);
    free_records(a->first);
    mr__id_map_reset(&a->latest);
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
}

/* ---- reports to the loop ---- */

static void report(mr__posted *p)
{
    mr__account *a = (mr__account *)((char *)p - offsetof(mr__account, posted));
    pthread_mutex_lock(&a->lock);
    a->is_posted = false;
    uint64_t durable = a->durable;
    bool bad = a->bad, lost = a->lost;
    mr_status why = a->why;
    pthread_mutex_unlock(&a->lock);
    if (durable > a->reported) {
        a->reported = durable;
        a->o.durable(a->o.ctx, durable);
    }
    if (bad != a->reported_bad || lost != a->reported_lost) {
        a->reported_bad = bad;
        a->reported_lost = lost;
        a->o.disk(a->o.ctx, bad || lost ? &why : NULL, lost);
    }
}

/* Under the lock. */
static void post(mr__account *a)
{
    if (a->is_posted)
        return;
    a->is_posted = true;
    mr__loop_post(a->o.loop, &a->posted);
}

bool mr__account_reports(mr__account *a)
{
    pthread_mutex_lock(&a->lock);
    bool is = a->is_posted;
    pthread_mutex_unlock(&a->lock);
    return is;
}

static void set_bad(mr__account *a, const mr_status *why)
{
    pthread_mutex_lock(&a->lock);
    if (why && !a->lost)
        a->why = *why;
    if (a->bad != (why != NULL)) {
        a->bad = why != NULL;
        post(a);
    }
    pthread_mutex_unlock(&a->lock);
}

/* ---- writing ---- */

static int bind_u64(sqlite3_stmt *s, int i, uint64_t v)
{
    return sqlite3_bind_int64(s, i, (sqlite3_int64)v);
}

static int bind_bytes(sqlite3_stmt *s, int i, const mr__a_record *r)
{
    return r->n_bytes ? sqlite3_bind_blob64(s, i, r->bytes, r->n_bytes, SQLITE_STATIC)
                      : sqlite3_bind_zeroblob(s, i, 0);
}

static bool change(sqlite3_stmt *s, int bound)
{
    if (bound != SQLITE_OK)
        return false;
    int rc = sqlite3_step(s);
    sqlite3_reset(s);
    return rc == SQLITE_DONE;
}

static bool put(mr__account *a, const mr__a_record *r)
{
    sqlite3_stmt *s;
    int rc = SQLITE_OK; /* bits of all bindings */
    switch (r->kind) {
    case MR__RECORD_JOB:
        s = a->change[MR__A_JOB];
        rc |= bind_u64(s, 1, r->job_id);
        rc |= sqlite3_bind_text(s, 2, r->text, -1, SQLITE_STATIC);
        rc |= bind_bytes(s, 3, r);
        return change(s, rc);
    case MR__RECORD_STREAM:
        s = a->change[MR__A_STREAM];
        rc |= bind_u64(s, 1, r->job_id);
        rc |= bind_u64(s, 2, r->stream);
        rc |= bind_u64(s, 3, r->generation);
        rc |= sqlite3_bind_text(s, 4, r->text, -1, SQLITE_STATIC);
        rc |= bind_u64(s, 5, r->elements);
        rc |= bind_bytes(s, 6, r);
        rc |= bind_u64(s, 7, r->skip);
        rc |= bind_u64(s, 8, r->end);
        rc |= sqlite3_bind_text(s, 9, r->home, -1, SQLITE_STATIC);
        rc |= bind_u64(s, 10, r->reader);
        return change(s, rc);
    case MR__RECORD_FORGET:
        return change(a->change[MR__A_FORGET_SPLITS],
                      bind_u64(a->change[MR__A_FORGET_SPLITS], 1, r->job_id)) &&
               change(a->change[MR__A_FORGET_STREAMS],
                      bind_u64(a->change[MR__A_FORGET_STREAMS], 1, r->job_id)) &&
               change(a->change[MR__A_FORGET_JOB],
                      bind_u64(a->change[MR__A_FORGET_JOB], 1, r->job_id));
    case MR__RECORD_SPLIT:
        s = a->change[MR__A_SPLIT];
        rc |= bind_u64(s, 1, r->job_id);
        rc |= bind_u64(s, 2, r->split);
        rc |= bind_u64(s, 3, r->stream);
        return change(s, rc);
    case MR__RECORD_DATASET:
        s = a->change[MR__A_DATASET];
        rc |= sqlite3_bind_text(s, 1, r->text, -1, SQLITE_STATIC);
        rc |= bind_bytes(s, 2, r);
        return change(s, rc);
    case MR__RECORD_DRAIN:
        s = a->change[r->instance ? MR__A_DRAIN : MR__A_FORGET_DRAIN];
        rc |= sqlite3_bind_text(s, 1, r->text, -1, SQLITE_STATIC);
        if (r->instance)
            rc |= bind_u64(s, 2, r->instance);
        return change(s, rc);
    }
    return false;
}

/* All of the list, or nothing. */
static mr_code commit(mr__account *a, const mr__a_record *r, mr_status *st)
{
    static const char writing[] = "writing the account";
    MR_TRY(mr__account_run(a, "BEGIN", writing, st));
    mr_code rc = MR_OK;
    for (; r && rc == MR_OK; r = r->next)
        if (!put(a, r))
            rc = mr__account_fail(a, writing, st);
    if (rc == MR_OK)
        rc = mr__account_run(a, "COMMIT", writing, st);
    if (rc != MR_OK && !sqlite3_get_autocommit(a->db))
        sqlite3_exec(a->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* Whether the next record may find room: new work is refused before one is lost in the attempt. */
static void look_at_disk(mr__account *a)
{
    struct statvfs v;
    mr_status st;
    mr_status_init(&st);
    if (mr__sys->statvfs(a->directory, &v) != 0)
        mr_fail_errno(&st, errno, "looking at the free space");
    else if (v.f_flag & ST_RDONLY)
        mr_fail(&st, MR_PERMISSION_DENIED, "the file system is read-only");
    else if ((uint64_t)v.f_bavail * v.f_frsize < a->o.least_free)
        mr_fail(&st, MR_RESOURCE_EXHAUSTED,
                "%" PRIu64 " bytes are free, %" PRIu64 " at least are wanted",
                (uint64_t)v.f_bavail * v.f_frsize, a->o.least_free);
    mr_status_at(&st, a->directory, -1, -1);
    set_bad(a, st.code != MR_OK ? &st : NULL);
}

/* Writes the list, trying until it succeeds or the account is to stop. */
static bool write_list(mr__account *a, const mr__a_record *list)
{
    mr_status st;
    for (;;) {
        pthread_mutex_lock(&a->lock);
        bool stop = a->stop;
        pthread_mutex_unlock(&a->lock);
        mr_status_init(&st);
        if (commit(a, list, &st) == MR_OK)
            return true;
        set_bad(a, &st);
        if (stop)
            return false;
        pthread_mutex_lock(&a->lock);
        if (!a->stop)
            mr__cond_wait_for(&a->wake, &a->lock, RETRY_NS);
        pthread_mutex_unlock(&a->lock);
    }
}

static void *write_all(void *arg)
{
    mr__account *a = arg;
    int64_t looked = 0;
    for (;;) {
        if (mr__clock_ns(CLOCK_MONOTONIC) - looked >= LOOK_NS) {
            look_at_disk(a);
            looked = mr__clock_ns(CLOCK_MONOTONIC);
        }
        pthread_mutex_lock(&a->lock);
        if (!a->first && !a->stop)
            mr__cond_wait_for(&a->wake, &a->lock, LOOK_NS);
        mr__a_record *list = a->first;
        uint64_t number = a->tail ? a->tail->number : 0;
        bool stop = a->stop;
        a->first = a->tail = NULL;
        mr__id_map_reset(&a->latest);
        pthread_mutex_unlock(&a->lock);
        if (!list && stop)
            return NULL;
        if (!list)
            continue;
        bool written = write_list(a, list);
        free_records(list);
        if (!written)
            return NULL;
        pthread_mutex_lock(&a->lock);
        a->durable = number;
        post(a);
        bool bad = a->bad;
        pthread_mutex_unlock(&a->lock);
        if (bad)
            looked = 0; /* whether all is well again */
    }
}

/* ---- records that wait ---- */

static mr__a_record *new_record(const mr__record *r)
{
    const char *text = r->kind == MR__RECORD_STREAM ? r->place->worker : r->name;
    const char *home = r->kind == MR__RECORD_STREAM ? r->place->home : "";
    size_t n_text = text ? strlen(text) : 0, n_home = strlen(home), n = 0;
    if (r->kind == MR__RECORD_JOB)
        n = mr__wire__job__get_packed_size(r->job);
    else if (r->kind == MR__RECORD_STREAM)
        n = r->place->position.len;
    else if (r->kind == MR__RECORD_DATASET)
        n = r->graph_bytes;
    mr__a_record *x = mr_malloc(sizeof *x + n_text + 1 + n_home + 1 + n);
    if (!x)
        return NULL;
    *x = (mr__a_record){.kind = r->kind,
                        .job_id = r->job_id,
                        .stream = r->stream,
                        .split = r->split,
                        .instance = r->instance,
                        .n_bytes = n};
    memcpy(x->data, text ? text : "", n_text + 1);
    x->text = x->data;
    x->home = memcpy(x->data + n_text + 1, home, n_home + 1);
    char *bytes = x->data + n_text + 1 + n_home + 1;
    x->bytes = bytes;
    if (r->kind == MR__RECORD_JOB) {
        mr__wire__job__pack(r->job, (uint8_t *)bytes);
    } else if (r->kind == MR__RECORD_STREAM) {
        x->stream = r->place->stream;
        x->generation = r->place->generation;
        x->elements = r->place->elements;
        x->skip = r->place->skip;
        x->end = r->place->end;
        x->reader = r->place->reader;
    }
    const void *from = r->kind == MR__RECORD_STREAM ? r->place->position.data : r->graph;
    if (n && r->kind != MR__RECORD_JOB)
        memcpy(bytes, from, n);
    return x;
}

/* Takes a record of x's stream out that still waits: x says more. Without memory for the map both
 * stay. */
static void supersede(mr__account *a, mr__a_record *x)
{
    uint64_t key = (x->job_id ^ (x->stream + 1) * MR__GOLDEN) | 1;
    mr__a_record *old = mr__id_map_get(&a->latest, key);
    if (old && old->job_id == x->job_id && old->stream == x->stream) {
        if (old->prev)
            old->prev->next = old->next;
        else
            a->first = old->next;
        if (old->next)
            old->next->prev = old->prev;
        else
            a->tail = old->prev;
        mr_free(old);
    }
    if (mr__id_map_set(&a->latest, key, x, NULL) != MR_OK)
        mr__id_map_remove(&a->latest, key);
}

uint64_t mr__account_record(mr__account *a, const mr__record *r)
{
    uint64_t number = ++a->last;
    mr__a_record *x = new_record(r);
    pthread_mutex_lock(&a->lock);
    if (!x || a->lost) {
        if (!a->lost) {
            a->lost = true;
            mr_fail(&a->why, MR_RESOURCE_EXHAUSTED, "no memory for a record of the account");
            post(a);
        }
        mr_free(x);
    } else {
        x->number = number;
        if (x->kind == MR__RECORD_STREAM)
            supersede(a, x);
        x->prev = a->tail;
        if (a->tail)
            a->tail->next = x;
        else
            a->first = x;
        a->tail = x;
        pthread_cond_signal(&a->wake);
    }
    pthread_mutex_unlock(&a->lock);
    return number;
}

/* ---- beginning and end ---- */

mr_code mr__account_start(mr__account *a, mr_status *st)
{
    a->posted.run = report;
    int err = pthread_create(&a->thread, NULL, write_all, a);
    if (err)
        return mr_fail_errno(st, err, "the account's thread");
    a->running = true;
    return MR_OK;
}

mr_code mr__account_finish(mr__account *a, uint64_t *durable, mr_status *st)
{
    if (a->running) {
        pthread_mutex_lock(&a->lock);
        a->stop = true;
        pthread_cond_signal(&a->wake);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
        a->running = false;
    }
    if (durable)
        *durable = a->durable;
    if (a->durable == a->last)
        return MR_OK;
    if (st)
        *st = a->why;
    return a->why.code;
}
