/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the account and reading it back; account_writer.c writes. */
#include "transport/service/dispatcher/account.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "transport/service/dispatcher/account_state.h"

#define APPLICATION "1297240897" /* 0x4d525341, "MRSA" */
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

mr_code mr__account_fail(const mr__account *a, const char *what, mr_status *st)
{
    int rc = a->db ? sqlite3_extended_errcode(a->db) : SQLITE_NOMEM;
    const char *text = a->db ? sqlite3_errmsg(a->db) : "out of memory";
    int sys = a->db ? sqlite3_system_errno(a->db) : 0;
    mr_code code;
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        code = mr_fail(st, MR_FAILED_PRECONDITION,
                       "another dispatcher uses this --state; give each a directory of its own");
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

mr_code mr__account_run(mr__account *a, const char *sql, const char *what, mr_status *st)
{
    return sqlite3_exec(a->db, sql, NULL, NULL, NULL) == SQLITE_OK ? MR_OK
                                                                   : mr__account_fail(a, what, st);
}

mr_code mr__account_prepare(mr__account *a, const char *sql, sqlite3_stmt **out, mr_status *st)
{
    return sqlite3_prepare_v2(a->db, sql, -1, out, NULL) == SQLITE_OK
               ? MR_OK
               : mr__account_fail(a, "reading the account", st);
}

/* ---- opening ---- */

static mr_code make_directory(const char *directory, mr_status *st)
{
    struct stat s;
    if (mr__sys->stat(directory, &s) == 0)
        return S_ISDIR(s.st_mode) ? MR_OK
                                  : mr_fail(st, MR_FAILED_PRECONDITION,
                                            "--state %s is not a directory", directory);
    if (errno != ENOENT || (mr__sys->mkdir(directory, 0700) != 0 && errno != EEXIST))
        return mr_fail_errno(st, errno, "--state %s", directory);
    /* Its name must last as long as what is in it. */
    char parent[4096];
    if (snprintf(parent, sizeof parent, "%s/..", directory) >= (int)sizeof parent)
        return MR_OK;
    int fd = mr__sys->open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    int rc = fd < 0 ? -1 : mr__sys->fsync(fd), err = errno;
    if (fd >= 0)
        mr__sys->close(fd);
    if (rc == 0)
        return MR_OK;
    mr__sys->rmdir(directory); /* or the next try would take its name for lasting */
    return mr_fail_errno(st, err, "--state %s", directory);
}

static mr_code number_of(mr__account *a, const char *sql, int64_t *out, mr_status *st)
{
    sqlite3_stmt *s;
    MR_TRY(mr__account_prepare(a, sql, &s, st));
    mr_code rc = MR_OK;
    if (sqlite3_step(s) == SQLITE_ROW)
        *out = sqlite3_column_int64(s, 0);
    else
        rc = mr__account_fail(a, "opening the account", st);
    sqlite3_finalize(s);
    return rc;
}

/* Looks whose database this is before anything of it is changed. */
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

static mr_code open_database(mr__account *a, mr_status *st)
{
    static const char opening[] = "opening the account";
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    bool is_new = false;
    if (sqlite3_open_v2(a->path, &a->db, flags, a->o.vfs) != SQLITE_OK)
        return mr__account_fail(a, opening, st);
    sqlite3_extended_result_codes(a->db, 1);
    /* The lock is taken by the first access, and kept: no other dispatcher, and no memory shared
     * with one. */
    MR_TRY(mr__account_run(a, "PRAGMA locking_mode=EXCLUSIVE", opening, st));
    MR_TRY(check_format(a, &is_new, st));
    MR_TRY(mr__account_run(a,
                           "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                           "PRAGMA journal_size_limit=67108864; PRAGMA cache_size=-65536;"
                           "BEGIN EXCLUSIVE",
                           opening, st));
    if (is_new)
        MR_TRY(mr__account_run(a, schema, "making the account", st));
    /* An account of a release before drains were on record gets the table; such a release does not
     * look at it. */
    MR_TRY(mr__account_run(a,
                           "CREATE TABLE IF NOT EXISTS drains(worker TEXT PRIMARY KEY,"
                           " instance INTEGER NOT NULL) STRICT, WITHOUT ROWID",
                           opening, st));
    return mr__account_run(a, "COMMIT", opening, st);
}

mr_code mr__account_open(mr__account **out, const mr__account_opts *opts, mr_status *st)
{
    mr_status own;
    mr_status *to = st ? st : &own;
    mr_status_init(to);
    MR_TRY(make_directory(opts->directory, to));
    mr__account *a = mr_calloc(1, sizeof *a);
    size_t room = strlen(opts->directory) + sizeof "/account.db";
    if (!a || !(a->path = mr_malloc(room)) || !(a->directory = mr_strdup(opts->directory))) {
        if (a)
            mr_free(a->path);
        mr_free(a);
        return mr_fail_memory(to, room, "the account");
    }
    a->o = *opts;
    a->o.directory = a->directory;
    if (!a->o.least_free)
        a->o.least_free = (uint64_t)1 << 20;
    snprintf(a->path, room, "%s/account.db", opts->directory);
    mr_status_init(&a->why);
    mr__account_init_writer(a);
    mr_code rc = open_database(a, to);
    if (rc == MR_OK)
        rc = mr__account_prepare_writer(a, to);
    if (rc != MR_OK) {
        mr__account_free(a);
        return rc;
    }
    *out = a;
    return MR_OK;
}

void mr__account_free(mr__account *a)
{
    if (!a)
        return;
    mr_status st;
    while (mr__account_reports(a))
        if (mr__loop_turn(a->o.loop, mr__loop_now(a->o.loop), &st) != MR_OK)
            break;
    mr__account_free_writer(a);
    sqlite3_close(a->db);
    mr_free(a->directory);
    mr_free(a->path);
    mr_free(a);
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
    MR_TRY(mr__account_prepare(a, sql, &s, st));
    mr_code rc = MR_OK;
    int step;
    while ((step = sqlite3_step(s)) == SQLITE_ROW && rc == MR_OK)
        rc = row(s, each, ctx, st);
    if (rc != MR_OK)
        mr_status_at(st, a->path, -1, -1);
    else if (step != SQLITE_DONE)
        rc = mr__account_fail(a, "reading the account", st);
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
