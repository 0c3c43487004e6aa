/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/dispatcher/account.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/splitmix.h"
#include "pipeline/system/system.h"
#include "pipeline/system/timed_wait.h"
#include "pipeline/memory/id_map.h"

#define APPLICATION "1297240897"          /* 0x4d525341, "MRSA" */
#define RETRY_NS    ((int64_t)200000000)  /* after a failed write */
#define LOOK_NS     ((int64_t)1000000000) /* interval between checks of the free space */

enum { VERSION = 2 };

static const char schema[] =
    "CREATE TABLE jobs(id INTEGER PRIMARY KEY, name TEXT NOT NULL, job BLOB NOT NULL) STRICT;"
    "CREATE TABLE streams(job INTEGER NOT NULL, stream INTEGER NOT NULL,"
    " generation INTEGER NOT NULL, worker TEXT NOT NULL, elements INTEGER NOT NULL,"
    " position BLOB NOT NULL, skip INTEGER NOT NULL, ended INTEGER NOT NULL, home TEXT NOT NULL,"
    " reader INTEGER NOT NULL,"
    " PRIMARY KEY(job, stream)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE splits(job INTEGER NOT NULL, split INTEGER NOT NULL, stream INTEGER NOT NULL,"
    " PRIMARY KEY(job, split)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE datasets(id TEXT PRIMARY KEY, graph BLOB NOT NULL) STRICT, WITHOUT ROWID;"
    "PRAGMA application_id=" APPLICATION ";"
    "PRAGMA user_version=2;";

enum {
    PUT_JOB,
    PUT_STREAM,
    FORGET_JOB,
    FORGET_STREAMS,
    FORGET_SPLITS,
    PUT_DATASET,
    PUT_SPLIT,
    PUT_DRAIN,
    FORGET_DRAIN,
    N_CHANGES
};

static const char *const changes[N_CHANGES] = {
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

/* A pending record. */
typedef struct waiting_record {
    struct waiting_record *next, *prev;
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
} waiting_record;

struct mr__account {
    mr__account_opts o;
    char *directory, *path;
    sqlite3 *db;                     /* the writer's, once it runs */
    sqlite3_stmt *change[N_CHANGES]; /* the same */
    pthread_t thread;
    bool running;
    uint64_t last;        /* number of the last record */
    mr__posted posted;    /* reports durable, why and lost to the loop */
    uint64_t reported;    /* the last values reported to the loop: of durable, */
    bool reported_bad;    /* of bad, */
    bool reported_lost;   /* of lost */
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t wake;  /* a record is pending, or stop */
    waiting_record *first, *tail;
    mr__id_map latest; /* from a stream's key to its pending record */
    bool stop, is_posted;
    uint64_t durable;
    bool bad, lost;
    mr_status why;
};

/* Fails with SQLite's error. */
static mr_code fail_with(const mr__account *a, const char *what, mr_status *st)
{
    int rc = a->db ? sqlite3_extended_errcode(a->db) : SQLITE_NOMEM;
    const char *text = a->db ? sqlite3_errmsg(a->db) : "out of memory";
    int sys = a->db ? sqlite3_system_errno(a->db) : 0;
    mr_code code;
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        code = mr_fail(st, MR_FAILED_PRECONDITION,
                       "another dispatcher uses this state directory; each needs a different one");
        break;
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
    case SQLITE_FORMAT:
    case SQLITE_MISMATCH:
        code = mr_fail(st, MR_DATA_LOSS, "not a dispatcher's account, or damaged: %s", text);
        break;
    case SQLITE_FULL:
    case SQLITE_NOMEM:
        code = mr_fail(st, MR_RESOURCE_EXHAUSTED, "%s: %s", what, text);
        break;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        code = mr_fail(st, MR_PERMISSION_DENIED, "%s: %s", what, text);
        break;
    default:
        code = sys ? mr_fail_errno(st, sys, "%s: %s", what, text)
                   : mr_fail(st, MR_UNAVAILABLE, "%s: %s", what, text);
    }
    mr_status_at(st, a->path, -1, -1);
    return code;
}

static mr_code run_sql(mr__account *a, const char *sql, const char *what, mr_status *st)
{
    return sqlite3_exec(a->db, sql, NULL, NULL, NULL) == SQLITE_OK ? MR_OK : fail_with(a, what, st);
}

static mr_code prepare(mr__account *a, const char *sql, sqlite3_stmt **out, mr_status *st)
{
    return sqlite3_prepare_v2(a->db, sql, -1, out, NULL) == SQLITE_OK
               ? MR_OK
               : fail_with(a, "reading the account", st);
}

/* ---- opening ---- */

static mr_code make_directory(const char *directory, mr_status *st)
{
    struct stat s;
    if (mr__sys->stat(directory, &s) == 0)
        return S_ISDIR(s.st_mode)
                   ? MR_OK
                   : mr_fail(st, MR_FAILED_PRECONDITION, "state %s: not a directory", directory);
    if (errno != ENOENT || (mr__sys->mkdir(directory, 0700) != 0 && errno != EEXIST))
        return mr_fail_errno(st, errno, "state %s", directory);
    /* The directory's entry must be as durable as its contents. */
    char parent[4096];
    if (snprintf(parent, sizeof parent, "%s/..", directory) >= (int)sizeof parent)
        return MR_OK;
    int fd = mr__sys->open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    int rc = fd < 0 ? -1 : mr__sys->fsync(fd), err = errno;
    if (fd >= 0)
        mr__sys->close(fd);
    if (rc == 0)
        return MR_OK;
    mr__sys->rmdir(directory); /* else the next try would assume that its entry is durable */
    return mr_fail_errno(st, err, "state %s", directory);
}

static mr_code number_of(mr__account *a, const char *sql, int64_t *out, mr_status *st)
{
    sqlite3_stmt *s;
    MR_TRY(prepare(a, sql, &s, st));
    mr_code rc = MR_OK;
    if (sqlite3_step(s) == SQLITE_ROW)
        *out = sqlite3_column_int64(s, 0);
    else
        rc = fail_with(a, "opening the account", st);
    sqlite3_finalize(s);
    return rc;
}

/* Checks that the database is an account before changing anything. */
static mr_code check_format(mr__account *a, bool *is_new, mr_status *st)
{
    int64_t application, version, tables;
    MR_TRY(number_of(a, "PRAGMA application_id", &application, st));
    MR_TRY(number_of(a, "PRAGMA user_version", &version, st));
    MR_TRY(number_of(a, "SELECT count(*) FROM sqlite_schema", &tables, st));
    *is_new = application == 0 && version == 0 && tables == 0;
    mr_code rc = MR_OK;
    if (*is_new)
        return MR_OK;
    if (application != strtoll(APPLICATION, NULL, 10))
        rc = mr_fail(st, MR_DATA_LOSS, "a database, but not a dispatcher's account");
    else if (version != VERSION)
        rc = mr_fail(st, MR_FAILED_PRECONDITION,
                     "the account's format is version %lld, this dispatcher writes version %d",
                     (long long)version, VERSION);
    mr_status_at(st, a->path, -1, -1);
    return rc;
}

/* Graphs may have secrets, and SQLite makes files that everyone may read; its other files get the
 * mode of this one. A file that exists is not opened, since closing it would end the locks that
 * another account of this process has on it. What fails here fails again in SQLite, which says
 * why. */
static void make_file(const char *path)
{
    int fd = mr__sys->open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        mr__sys->close(fd);
}

static mr_code open_database(mr__account *a, mr_status *st)
{
    static const char opening[] = "opening the account";
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    bool is_new = false;
    make_file(a->path);
    if (sqlite3_open_v2(a->path, &a->db, flags, a->o.vfs) != SQLITE_OK)
        return fail_with(a, opening, st);
    sqlite3_extended_result_codes(a->db, 1);
    /* The first access takes the lock and keeps it: this excludes other dispatchers, and SQLite
     * needs no shared memory. */
    MR_TRY(run_sql(a, "PRAGMA locking_mode=EXCLUSIVE", opening, st));
    MR_TRY(check_format(a, &is_new, st));
    MR_TRY(run_sql(a,
                   "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                   "PRAGMA journal_size_limit=67108864; PRAGMA cache_size=-65536;"
                   "BEGIN EXCLUSIVE",
                   opening, st));
    if (is_new)
        MR_TRY(run_sql(a, schema, "creating the account", st));
    /* Adds the table to accounts of releases that did not record drains; those releases ignore
     * it. */
    MR_TRY(run_sql(a,
                   "CREATE TABLE IF NOT EXISTS drains(worker TEXT PRIMARY KEY,"
                   " instance INTEGER NOT NULL) STRICT, WITHOUT ROWID",
                   opening, st));
    return run_sql(a, "COMMIT", opening, st);
}

static void init_writer(mr__account *a)
{
    pthread_mutex_init(&a->lock, NULL);
    mr__timed_cond_init(&a->wake);
}

static mr_code prepare_changes(mr__account *a, mr_status *st)
{
    for (int i = 0; i < N_CHANGES; i++)
        MR_TRY(prepare(a, changes[i], &a->change[i], st));
    return MR_OK;
}

static void free_records(waiting_record *r)
{
    while (r) {
        waiting_record *next = r->next;
        mr_free(r);
        r = next;
    }
}

static void free_writer(mr__account *a)
{
    for (int i = 0; i < N_CHANGES; i++)
        sqlite3_finalize(a->change[i]);
    free_records(a->first);
    mr__id_map_reset(&a->latest);
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
}

mr_code mr__account_open(mr__account **out, const mr__account_opts *opts, mr_status *st)
{
    mr_status own;
    mr_status *to = st ? st : &own;
    mr_status_init(to);
    MR_TRY(make_directory(opts->directory, to));
    mr__account *a = mr_calloc(1, sizeof *a);
    if (!a || !(a->path = mr_strf("%s/account.db", opts->directory)) ||
        !(a->directory = mr_strdup(opts->directory))) {
        if (a)
            mr_free(a->path);
        mr_free(a);
        return mr_fail_memory(to, strlen(opts->directory), "the account");
    }
    a->o = *opts;
    a->o.directory = a->directory;
    if (!a->o.least_free)
        a->o.least_free = (uint64_t)1 << 20;
    mr_status_init(&a->why);
    init_writer(a);
    mr_code rc = open_database(a, to);
    if (rc == MR_OK)
        rc = prepare_changes(a, to);
    if (rc != MR_OK) {
        mr__account_free(a);
        return rc;
    }
    *out = a;
    return MR_OK;
}

/* ---- reading ---- */

typedef mr_code (*each_fn)(void *ctx, const mr__record *r, mr_status *st);

static mr_code load_job(sqlite3_stmt *s, each_fn each, void *ctx, mr_status *st)
{
    Mr__Wire__Job *job;
    const void *bytes = sqlite3_column_blob(s, 2);
    MR_TRY(mr__wire_unpack(&mr__wire__job__descriptor, bytes, (size_t)sqlite3_column_bytes(s, 2),
                           &job, st));
    mr__record r = {.kind = MR__RECORD_JOB,
                    .job_id = (uint64_t)sqlite3_column_int64(s, 0),
                    .name = (const char *)sqlite3_column_text(s, 1),
                    .job = job};
    mr_code rc = each(ctx, &r, st);
    mr__wire_free(job);
    return rc;
}

static mr_code load_stream(sqlite3_stmt *s, each_fn each, void *ctx, mr_status *st)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
    p.stream = (uint32_t)sqlite3_column_int64(s, 1);
    p.generation = (uint64_t)sqlite3_column_int64(s, 2);
    p.worker = (char *)(uintptr_t)sqlite3_column_text(s, 3);
    p.elements = (uint64_t)sqlite3_column_int64(s, 4);
    p.position.data = (uint8_t *)(uintptr_t)sqlite3_column_blob(s, 5);
    p.position.len = (size_t)sqlite3_column_bytes(s, 5);
    p.skip = (uint64_t)sqlite3_column_int64(s, 6);
    p.end = sqlite3_column_int64(s, 7) != 0;
    p.home = (char *)(uintptr_t)sqlite3_column_text(s, 8);
    p.reader = (uint64_t)sqlite3_column_int64(s, 9);
    mr__record r = {
        .kind = MR__RECORD_STREAM, .job_id = (uint64_t)sqlite3_column_int64(s, 0), .place = &p};
    return each(ctx, &r, st);
}

static mr_code load_split(sqlite3_stmt *s, each_fn each, void *ctx, mr_status *st)
{
    mr__record r = {.kind = MR__RECORD_SPLIT,
                    .job_id = (uint64_t)sqlite3_column_int64(s, 0),
                    .split = (uint64_t)sqlite3_column_int64(s, 1),
                    .stream = (uint32_t)sqlite3_column_int64(s, 2)};
    return each(ctx, &r, st);
}

static mr_code load_dataset(sqlite3_stmt *s, each_fn each, void *ctx, mr_status *st)
{
    mr__record r = {.kind = MR__RECORD_DATASET,
                    .name = (const char *)sqlite3_column_text(s, 0),
                    .graph = sqlite3_column_blob(s, 1),
                    .graph_bytes = (size_t)sqlite3_column_bytes(s, 1)};
    return each(ctx, &r, st);
}

static mr_code load_drain(sqlite3_stmt *s, each_fn each, void *ctx, mr_status *st)
{
    mr__record r = {.kind = MR__RECORD_DRAIN,
                    .name = (const char *)sqlite3_column_text(s, 0),
                    .instance = (uint64_t)sqlite3_column_int64(s, 1)};
    return each(ctx, &r, st);
}

static mr_code load_table(mr__account *a, const char *sql,
                          mr_code (*row)(sqlite3_stmt *, each_fn, void *, mr_status *),
                          each_fn each, void *ctx, mr_status *st)
{
    sqlite3_stmt *s;
    MR_TRY(prepare(a, sql, &s, st));
    mr_code rc = MR_OK;
    int step;
    while ((step = sqlite3_step(s)) == SQLITE_ROW && rc == MR_OK)
        rc = row(s, each, ctx, st);
    if (rc != MR_OK)
        mr_status_at(st, a->path, -1, -1);
    else if (step != SQLITE_DONE)
        rc = fail_with(a, "reading the account", st);
    sqlite3_finalize(s);
    return rc;
}

mr_code mr__account_load(mr__account *a, each_fn each, void *ctx, mr_status *st)
{
    MR_TRY(load_table(a, "SELECT id, name, job FROM jobs", load_job, each, ctx, st));
    MR_TRY(load_table(a,
                      "SELECT job, stream, generation, worker, elements, position, skip, ended,"
                      " home, reader FROM streams ORDER BY job, stream",
                      load_stream, each, ctx, st));
    MR_TRY(load_table(a, "SELECT job, split, stream FROM splits ORDER BY job, split", load_split,
                      each, ctx, st));
    MR_TRY(load_table(a, "SELECT id, graph FROM datasets", load_dataset, each, ctx, st));
    return load_table(a, "SELECT worker, instance FROM drains", load_drain, each, ctx, st);
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

/* A report to the loop is posted. */
static bool has_posted(mr__account *a)
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

void mr__account_free(mr__account *a)
{
    if (!a)
        return;
    mr_status st;
    while (has_posted(a))
        if (mr__loop_turn(a->o.loop, mr__loop_now(a->o.loop), &st) != MR_OK)
            break;
    free_writer(a);
    sqlite3_close(a->db);
    mr_free(a->directory);
    mr_free(a->path);
    mr_free(a);
}

/* ---- writing ---- */

static int bind_u64(sqlite3_stmt *s, int i, uint64_t v)
{
    return sqlite3_bind_int64(s, i, (sqlite3_int64)v);
}

static int bind_bytes(sqlite3_stmt *s, int i, const waiting_record *r)
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

static bool put(mr__account *a, const waiting_record *r)
{
    sqlite3_stmt *s;
    int rc = SQLITE_OK; /* bits of all bindings */
    switch (r->kind) {
    case MR__RECORD_JOB:
        s = a->change[PUT_JOB];
        rc |= bind_u64(s, 1, r->job_id);
        rc |= sqlite3_bind_text(s, 2, r->text, -1, SQLITE_STATIC);
        rc |= bind_bytes(s, 3, r);
        return change(s, rc);
    case MR__RECORD_STREAM:
        s = a->change[PUT_STREAM];
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
        return change(a->change[FORGET_SPLITS], bind_u64(a->change[FORGET_SPLITS], 1, r->job_id)) &&
               change(a->change[FORGET_STREAMS],
                      bind_u64(a->change[FORGET_STREAMS], 1, r->job_id)) &&
               change(a->change[FORGET_JOB], bind_u64(a->change[FORGET_JOB], 1, r->job_id));
    case MR__RECORD_SPLIT:
        s = a->change[PUT_SPLIT];
        rc |= bind_u64(s, 1, r->job_id);
        rc |= bind_u64(s, 2, r->split);
        rc |= bind_u64(s, 3, r->stream);
        return change(s, rc);
    case MR__RECORD_DATASET:
        s = a->change[PUT_DATASET];
        rc |= sqlite3_bind_text(s, 1, r->text, -1, SQLITE_STATIC);
        rc |= bind_bytes(s, 2, r);
        return change(s, rc);
    case MR__RECORD_DRAIN:
        s = a->change[r->instance ? PUT_DRAIN : FORGET_DRAIN];
        rc |= sqlite3_bind_text(s, 1, r->text, -1, SQLITE_STATIC);
        if (r->instance)
            rc |= bind_u64(s, 2, r->instance);
        return change(s, rc);
    }
    return false;
}

/* Writes the whole list, or nothing. */
static mr_code commit(mr__account *a, const waiting_record *r, mr_status *st)
{
    static const char writing[] = "writing the account";
    MR_TRY(run_sql(a, "BEGIN", writing, st));
    mr_code rc = MR_OK;
    for (; r && rc == MR_OK; r = r->next)
        if (!put(a, r))
            rc = fail_with(a, writing, st);
    if (rc == MR_OK)
        rc = run_sql(a, "COMMIT", writing, st);
    if (rc != MR_OK && !sqlite3_get_autocommit(a->db))
        sqlite3_exec(a->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* Whether there may be room for the next record: new work is refused before a record fails. */
static void look_at_disk(mr__account *a)
{
    struct statvfs v;
    mr_status st;
    mr_status_init(&st);
    if (mr__sys->statvfs(a->directory, &v) != 0)
        mr_fail_errno(&st, errno, "checking the free space");
    else if (v.f_flag & ST_RDONLY)
        mr_fail(&st, MR_PERMISSION_DENIED, "the file system is read-only");
    else if ((uint64_t)v.f_bavail * v.f_frsize < a->o.least_free)
        mr_fail(&st, MR_RESOURCE_EXHAUSTED,
                "%" PRIu64 " bytes are free, at least %" PRIu64 " are needed",
                (uint64_t)v.f_bavail * v.f_frsize, a->o.least_free);
    mr_status_at(&st, a->directory, -1, -1);
    set_bad(a, st.code != MR_OK ? &st : NULL);
}

/* Writes the list, and retries until it succeeds or the account must stop. */
static bool write_list(mr__account *a, const waiting_record *list)
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
        waiting_record *list = a->first;
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
            looked = 0; /* check again whether writing works */
    }
}

/* ---- pending records ---- */

static waiting_record *new_record(const mr__record *r)
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
    waiting_record *x = mr_malloc(sizeof *x + n_text + 1 + n_home + 1 + n);
    if (!x)
        return NULL;
    *x = (waiting_record){.kind = r->kind,
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

/* Removes a pending record of x's stream: x supersedes it. If there is no memory for the map, both
 * stay. */
static void supersede(mr__account *a, waiting_record *x)
{
    uint64_t key = (x->job_id ^ (x->stream + 1) * MR__GOLDEN) | 1;
    waiting_record *old = mr__id_map_get(&a->latest, key);
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
    waiting_record *x = new_record(r);
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
