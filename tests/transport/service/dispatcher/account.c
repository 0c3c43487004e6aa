/* SPDX-License-Identifier: Apache-2.0 */
/* The account on a real disk: what was acknowledged is there again, whatever happened. */
#include "transport/service/dispatcher/account.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "tests/fault_calls.h"
#include "tests/harness.h"
#include "tests/transport/service/dispatcher/failing_vfs.h"

enum { STREAMS = 3 };

typedef struct book {
    mr__loop *l;
    mr__account *a;
    uint64_t durable;
    int bad, good, lost;
    mr_status why;
} book;

static void durable(void *ctx, uint64_t number)
{
    book *b = ctx;
    mr_check(number > b->durable);
    b->durable = number;
}
static void disk(void *ctx, const mr_status *why, bool lost)
{
    book *b = ctx;
    b->lost += lost;
    if (why) {
        b->bad++;
        b->why = *why;
    } else {
        b->good++;
    }
}

static mr_code try_open(book *b, const char *directory, const char *vfs, mr_status *st)
{
    *b = (book){0};
    mr_ok(mr__loop_open(MR__LOOP_EPOLL, &b->l, st), st);
    mr__account_opts opts = {.directory = directory,
                             .loop = b->l,
                             .durable = durable,
                             .disk = disk,
                             .ctx = b,
                             .vfs = vfs};
    mr_code rc = mr__account_open(&b->a, &opts, st);
    if (rc != MR_OK)
        mr__loop_close(b->l);
    return rc;
}
static void begin(book *b, const char *directory)
{
    mr_status st;
    mr_ok(try_open(b, directory, NULL, &st), &st);
    mr_ok(mr__account_start(b->a, &st), &st);
}
static void turn_until(book *b, uint64_t number)
{
    mr_status st;
    while (b->durable < number)
        mr_ok(mr__loop_turn(b->l, INT64_MAX, &st), &st);
}
static void let_go(book *b)
{
    mr__account_free(b->a);
    mr__loop_close(b->l);
}
static void end(book *b)
{
    mr_status st;
    mr_ok(mr__account_finish(b->a, NULL, &st), &st);
    let_go(b);
}

static uint64_t put_job(book *b, uint64_t id, const char *name, uint32_t streams)
{
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    job.graph = (ProtobufCBinaryData){5, (uint8_t *)(uintptr_t) "graph"};
    job.streams = streams;
    job.seed = UINT64_MAX;
    job.directory = job.match = (char *)(uintptr_t) "";
    return mr__account_record(
        b->a, &(mr__record){.kind = MR__RECORD_JOB, .job_id = id, .name = name, .job = &job});
}
static uint64_t put_stream(book *b, uint64_t job, uint32_t stream, uint64_t elements)
{
    char position[32];
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
    p.stream = stream;
    p.generation = elements + 7;
    p.worker = (char *)(uintptr_t) "127.0.0.1:1";
    p.elements = elements;
    p.position.len =
        (size_t)snprintf(position, sizeof position, "at %llu", (unsigned long long)elements);
    p.position.data = (uint8_t *)position;
    p.skip = elements / 2;
    p.end = elements % 5 == 0;
    p.reader = UINT64_MAX - elements;
    p.home = (char *)(uintptr_t)(elements % 2 ? "127.0.0.1:2" : "");
    return mr__account_record(b->a,
                              &(mr__record){.kind = MR__RECORD_STREAM, .job_id = job, .place = &p});
}

static uint64_t put_split(book *b, uint64_t job, uint32_t stream, uint64_t split)
{
    return mr__account_record(
        b->a,
        &(mr__record){.kind = MR__RECORD_SPLIT, .job_id = job, .stream = stream, .split = split});
}

static uint64_t put_drain(book *b, const char *worker, uint64_t instance)
{
    return mr__account_record(
        b->a, &(mr__record){.kind = MR__RECORD_DRAIN, .name = worker, .instance = instance});
}

/* ---- what is read back: job 9, and its streams' numbers ---- */

typedef struct found {
    size_t jobs, streams, datasets, splits, drains;
    uint64_t last_split;
    uint64_t number[STREAMS];
} found;

static mr_code each(void *ctx, const mr__record *r, mr_status *st)
{
    found *f = ctx;
    (void)st;
    if (r->kind == MR__RECORD_JOB) {
        f->jobs++;
        mr_eq_u64(r->job->seed, UINT64_MAX);
        mr_eq_mem(r->job->graph.data, "graph", 5);
    } else if (r->kind == MR__RECORD_DATASET) {
        f->datasets++;
        mr_eq_str(r->name, "an id");
        mr_eq_mem(r->graph, "\0gr", r->graph_bytes);
    } else if (r->kind == MR__RECORD_DRAIN) {
        f->drains++;
        mr_eq_str(r->name, "127.0.0.1:1");
        mr_eq_u64(r->instance, UINT64_MAX - 3);
    } else if (r->kind == MR__RECORD_SPLIT) {
        mr_eq_u64(r->job_id, UINT64_MAX - 9);
        mr_eq_u64(r->stream, r->split % STREAMS);
        mr_check(f->splits == 0 || r->split > f->last_split);
        f->last_split = r->split;
        f->splits++;
    } else {
        const Mr__Wire__Place *p = r->place;
        char position[32];
        f->streams++;
        mr_eq_u64(r->job_id, UINT64_MAX - 9);
        mr_check(p->stream < STREAMS);
        f->number[p->stream] = p->elements;
        mr_eq_u64(p->generation, p->elements + 7);
        mr_eq_u64(p->skip, p->elements / 2);
        mr_eq_i64(p->end, p->elements % 5 == 0);
        mr_eq_str(p->worker, "127.0.0.1:1");
        mr_eq_u64(p->reader, UINT64_MAX - p->elements);
        mr_eq_str(p->home, p->elements % 2 ? "127.0.0.1:2" : "");
        int n = snprintf(position, sizeof position, "at %llu", (unsigned long long)p->elements);
        mr_eq_u64(p->position.len, n);
        mr_eq_mem(p->position.data, position, (size_t)n);
    }
    return MR_OK;
}
static found look(const char *directory, const char *vfs)
{
    book b;
    found f = {0};
    mr_status st;
    mr_ok(try_open(&b, directory, vfs, &st), &st);
    mr_ok(mr__account_load(b.a, each, &f, &st), &st);
    let_go(&b);
    return f;
}

/* Record number 1 is the job, i > 1 the stream i mod STREAMS with i elements. What is found must be
 * the state after some record; its number (0: nothing). */
static uint64_t put_number(book *b, uint64_t i)
{
    return i == 1 ? put_job(b, UINT64_MAX - 9, "a job", STREAMS)
                  : put_stream(b, UINT64_MAX - 9, (uint32_t)(i % STREAMS), i);
}
static uint64_t prefix(const found *f)
{
    uint64_t last = f->jobs;
    for (int s = 0; s < STREAMS; s++)
        last = f->number[s] > last ? f->number[s] : last;
    for (uint64_t i = last, n = 0; n < STREAMS && i > n + 1; n++)
        mr_eq_u64(f->number[(i - n) % STREAMS], i - n);
    mr_eq_u64(f->jobs, last > 0);
    return last;
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db;
    mr_check(sqlite3_open(path, &db) == SQLITE_OK);
    mr_check(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    mr_check(sqlite3_close(db) == SQLITE_OK);
}

MR_TEST(what_is_recorded_is_there_again)
{
    book b;
    begin(&b, mr_test_path("new"));
    put_job(&b, UINT64_MAX - 9, "a job", STREAMS);
    put_job(&b, 4, "another", 1);
    put_stream(&b, 4, 0, 1);
    put_stream(&b, UINT64_MAX - 9, 1, 30);
    put_stream(&b, UINT64_MAX - 9, 1, 31);
    put_split(&b, 4, 0, 0);
    put_split(&b, UINT64_MAX - 9, 2, STREAMS + 2);
    put_split(&b, UINT64_MAX - 9, 1, 1);
    mr__account_record(b.a, &(mr__record){.kind = MR__RECORD_FORGET, .job_id = 4});
    mr__record dataset = {
        .kind = MR__RECORD_DATASET, .name = "an id", .graph = "\0gr", .graph_bytes = 3};
    mr_eq_u64(mr__account_record(b.a, &dataset), 10);
    put_drain(&b, "127.0.0.1:1", 5);
    put_drain(&b, "127.0.0.1:1", UINT64_MAX - 3);
    put_drain(&b, "127.0.0.1:2", 5);
    put_drain(&b, "127.0.0.1:2", 0);
    mr_eq_u64(put_drain(&b, "127.0.0.1:3", 0), 15);
    turn_until(&b, 15);
    mr_eq_i64(b.bad, 0);
    end(&b);
    found f = look(mr_test_path("new"), NULL);
    mr_eq_u64(f.jobs, 1);
    mr_eq_u64(f.streams, 1);
    mr_eq_u64(f.datasets, 1);
    mr_eq_u64(f.number[1], 31);
    mr_eq_u64(f.splits, 2);
    mr_eq_u64(f.last_split, STREAMS + 2);
    mr_eq_u64(f.drains, 1);
    run_sql(mr_test_path("new/account.db"), "DROP TABLE drains"); /* as an older release left it */
    begin(&b, mr_test_path("new"));
    turn_until(&b, put_drain(&b, "127.0.0.1:1", UINT64_MAX - 3));
    end(&b);
    mr_eq_u64(look(mr_test_path("new"), NULL).drains, 1);
}

/* Graphs may have secrets, and the directory may be one that others can read. */
MR_TEST(its_files_are_the_users_alone)
{
    book b;
    struct stat s;
    mr_eq_i64(mkdir(mr_test_path("open"), 0755), 0);
    begin(&b, mr_test_path("open"));
    put_job(&b, 1, "a job", STREAMS);
    turn_until(&b, 1);
    mr_eq_i64(stat(mr_test_path("open/account.db"), &s), 0);
    mr_eq_u64(s.st_mode & 0777, 0600);
    mr_eq_i64(stat(mr_test_path("open/account.db-wal"), &s), 0);
    mr_eq_u64(s.st_mode & 0777, 0600);
    end(&b);
}

/* Whether this process holds SQLite's lock, as a process sees it that shares no memory with it. */
static bool is_locked(const char *path)
{
    pid_t child = fork();
    if (child == 0) {
        struct flock l = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0x40000000, .l_len = 512};
        int fd = open(path, O_RDWR);
        _exit(fd < 0 || fcntl(fd, F_GETLK, &l) != 0 ? 2 : l.l_type != F_UNLCK);
    }
    int status;
    mr_check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 1;
}

MR_TEST(one_dispatcher_a_directory)
{
    book a, b;
    mr_status st;
    begin(&a, mr_test_dir());
    mr_code_is(try_open(&b, mr_test_dir(), NULL, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "another dispatcher uses this state directory");
    pid_t child = fork();
    if (child == 0) { /* another process too; without the tests' own assertions */
        mr_code rc = try_open(&b, mr_test_dir(), NULL, &st);
        _exit(rc == MR_FAILED_PRECONDITION ? 0 : 1);
    }
    int status;
    mr_check(waitpid(child, &status, 0) == child && status == 0);
    mr_check(is_locked(mr_test_path("account.db")));
    end(&a);
    mr_check(!is_locked(mr_test_path("account.db")));
    begin(&b, mr_test_dir());
    end(&b);
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    mr_check(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

MR_TEST(what_is_no_account_is_refused_and_left_alone)
{
    book b;
    mr_status st;
    const char *path = mr_test_path("account.db");
    char garbage[5000], after[5000];
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (char)(i * 37);
    write_file(path, garbage, sizeof garbage);
    mr_code_is(try_open(&b, mr_test_dir(), NULL, &st), MR_DATA_LOSS, &st);
    mr_has_str(st.file, "account.db");
    FILE *f = fopen(path, "rb");
    mr_check(f && fread(after, 1, sizeof after, f) == sizeof after && fclose(f) == 0);
    mr_eq_mem(after, garbage, sizeof after);

    unlink(path);
    run_sql(path, "CREATE TABLE t(a)");
    mr_code_is(try_open(&b, mr_test_dir(), NULL, &st), MR_DATA_LOSS, &st);
    mr_has_str(st.message, "not a dispatcher's account");

    unlink(path);
    begin(&b, mr_test_dir());
    end(&b);
    run_sql(path, "PRAGMA user_version=3");
    mr_code_is(try_open(&b, mr_test_dir(), NULL, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "version 2");
    run_sql(path, "PRAGMA user_version=2");
    run_sql(path, "INSERT INTO jobs VALUES(1, 'x', x'ffff')");
    mr_ok(try_open(&b, mr_test_dir(), NULL, &st), &st);
    found got = {0};
    mr_code_is(mr__account_load(b.a, each, &got, &st), MR_DATA_LOSS, &st);
    let_go(&b);

    mr_code_is(try_open(&b, mr_test_path("no/such"), NULL, &st), MR_NOT_FOUND, &st);
    mr_code_is(try_open(&b, path, NULL, &st), MR_FAILED_PRECONDITION, &st);
}

/* ---- cut off ---- */

static size_t read_whole(const char *path, char **bytes)
{
    FILE *f = fopen(path, "rb");
    mr_check(f && fseek(f, 0, SEEK_END) == 0);
    long n = ftell(f);
    rewind(f);
    *bytes = malloc((size_t)n + 1);
    mr_check(fread(*bytes, 1, (size_t)n, f) == (size_t)n && fclose(f) == 0);
    return (size_t)n;
}
static size_t size_of(const char *path)
{
    FILE *f = popen(path, "r");
    unsigned long n = 0;
    mr_check(f && fscanf(f, "%lu", &n) == 1);
    pclose(f);
    return n;
}

/* Writes n numbers, each in a separate transaction; ends[i]: where the log ends after i of them.
 * Copies the account, and returns the size of the copy's log. Owned: free *db and *wal. */
static size_t copy_of_live(uint64_t n, size_t *ends, char **db, size_t *n_db, char **wal)
{
    book b;
    char command[1024], measure[512];
    mr_failing_vfs();
    snprintf(measure, sizeof measure, "stat -c %%s %s/live/account.db-wal", mr_test_dir());
    begin(&b, mr_test_path("live"));
    for (uint64_t i = 1; i <= n; i++) {
        turn_until(&b, put_number(&b, i));
        ends[i] = size_of(measure);
    }
    mr_check(mkdir(mr_test_path("copy"), 0700) == 0);
    snprintf(command, sizeof command, "cp %s/live/account.db* %s/copy/", mr_test_dir(),
             mr_test_dir());
    mr_check(system(command) == 0);
    end(&b);
    *n_db = read_whole(mr_test_path("copy/account.db"), db);
    size_t n_wal = read_whole(mr_test_path("copy/account.db-wal"), wal);
    mr_eq_u64(n_wal, ends[n]);
    return n_wal;
}

/* The log is cut at every byte of its last three transactions (of all with --long), as by a crash
 * whose writes did not all arrive. (Other processes copy and measure: a file that this one closes
 * would lose its locks.) */
MR_TEST_SLOW(a_log_cut_anywhere_gives_an_acknowledged_state)
{
    enum { N = 12 };
    size_t ends[N + 1] = {0};
    char *db, *wal;
    size_t n_db, n_wal = copy_of_live(N, ends, &db, &n_db, &wal);
    uint64_t before = N;
    size_t least = mr_test_long() ? 0 : ends[N - 3] - 1;
    for (size_t cut = n_wal + 1; cut-- > least;) {
        mr_test_context("cut at %zu of %zu", cut, n_wal);
        write_file(mr_test_path("copy/account.db"), db, n_db);
        write_file(mr_test_path("copy/account.db-wal"), wal, cut);
        found f = look(mr_test_path("copy"), "failing");
        uint64_t got = prefix(&f), whole = 0;
        while (whole < N && ends[whole + 1] <= cut)
            whole++;
        mr_check(got >= whole && got <= before);
        before = got;
        cut -= cut > least + 40 && cut % 4096 > 64 && cut % 4096 < 4000 && !mr_test_long() ? 18 : 0;
    }
    mr_check(before < N);
    free(db);
    free(wal);
}

/* The last transaction was not acknowledged: sectors of it may be missing, and bytes be others. */
MR_TEST(a_torn_last_transaction_is_as_if_it_had_not_been)
{
    enum { N = 4, SECTOR = 512 };
    size_t ends[N + 1] = {0};
    char *db, *wal;
    size_t n_db, n_wal = copy_of_live(N, ends, &db, &n_db, &wal);
    size_t step = mr_test_long() ? 1 : 61;
    for (int bytes = 0; bytes < 2; bytes++)
        for (size_t at = ends[N - 1]; at < n_wal; at += bytes ? step : SECTOR) {
            char was[SECTOR];
            size_t n = bytes ? 1 : n_wal - at < SECTOR ? n_wal - at : SECTOR;
            mr_test_context("%zu bytes at %zu of %zu", n, at, n_wal);
            memcpy(was, wal + at, n);
            if (bytes)
                wal[at] = (char)(wal[at] ^ 0x10);
            else
                memset(wal + at, 0, n);
            write_file(mr_test_path("copy/account.db"), db, n_db);
            write_file(mr_test_path("copy/account.db-wal"), wal, n_wal);
            found f = look(mr_test_path("copy"), "failing");
            uint64_t got = prefix(&f);
            /* A sector of zeros may be as it was. */
            bool same = !bytes && memcmp(was, wal + at, n) == 0;
            mr_eq_u64(got, same ? N : N - 1);
            memcpy(wal + at, was, n);
        }
    free(db);
    free(wal);
}

/* ---- writes that fail ---- */

static void fails_at(int64_t nth, int code, bool persistent, int64_t *calls)
{
    enum { N = 8 };
    book b;
    mr_status st;
    char name[64];
    snprintf(name, sizeof name, "f%lld-%d-%d", (long long)nth, code, persistent);
    mr_test_context("call %lld fails with %d%s", (long long)nth, code,
                    persistent ? ", and all after it" : "");
    mr_failing_vfs_at(nth, code, persistent);
    uint64_t acknowledged = 0;
    mr_code rc = try_open(&b, mr_test_path(name), "failing", &st);
    if (rc == MR_OK) {
        mr_ok(mr__account_start(b.a, &st), &st);
        for (uint64_t i = 1; i <= N && !b.bad; i++) {
            put_number(&b, i);
            while (b.durable < i && !b.bad)
                mr_ok(mr__loop_turn(b.l, INT64_MAX, &st), &st);
        }
        if (b.bad && !persistent) { /* it comes back by itself */
            while (b.durable < 1 || !b.good)
                mr_ok(mr__loop_turn(b.l, INT64_MAX, &st), &st);
        }
        rc = mr__account_finish(b.a, &acknowledged, &st);
        mr_check(acknowledged >= b.durable);
        if (!persistent)
            mr_ok(rc, &st);
        else if (b.bad)
            mr_check(rc != MR_OK && st.message[0]);
        let_go(&b);
    }
    *calls = mr_failing_vfs_calls();
    mr_failing_vfs_at(0, 0, false);
    if (rc != MR_OK)
        mr_check(st.code != MR_OK && st.message[0]);
    found f = look(mr_test_path(name), NULL);
    mr_check(prefix(&f) >= acknowledged);
}

static const int codes[] = {SQLITE_FULL, SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC, SQLITE_READONLY};

MR_TEST(any_write_that_fails_is_tried_again)
{
    mr_failing_vfs();
    int64_t calls;
    fails_at(0, 0, false, &calls);
    mr_check(calls > 20);
    uint64_t random = mr_test_seed();
    int64_t step = mr_test_long() ? 1 : 7;
    for (int64_t n = 1 + (int64_t)(mr_test_random(&random) % (uint64_t)step), total = calls;
         n <= total; n += step)
        fails_at(n, codes[n % 4], false, &calls);
}

/* Those of the directory itself. */
static struct {
    int64_t nth, calls;
} directory_calls;

static bool directory_call_fails(const char *call)
{
    (void)call;
    errno = EIO;
    return ++directory_calls.calls == directory_calls.nth;
}

MR_TEST(a_directory_that_cannot_be_made_to_last_is_not_there)
{
    mr__system table = *mr__system_real();
    char path[512];
    book b;
    mr_status st;
    snprintf(path, sizeof path, "%s", mr_test_path("made"));
    mr_fault_calls(&table, "stat mkdir open fsync", directory_call_fails);
    for (int64_t n = 1;; n++) {
        directory_calls.nth = n;
        directory_calls.calls = 0;
        mr__system_set(&table);
        mr_code rc = try_open(&b, path, NULL, &st);
        mr__system_set(NULL);
        if (rc == MR_OK) {
            mr_eq_i64(n, 5); /* stat, mkdir, open and fsync have failed */
            break;
        }
        mr_has_str(st.message, path);
        mr_check(access(path, F_OK) != 0 && errno == ENOENT);
    }
    mr_ok(mr__account_start(b.a, &st), &st);
    turn_until(&b, put_number(&b, 1));
    end(&b);
    found f = look(path, NULL);
    mr_eq_u64(prefix(&f), 1);
}

MR_TEST(a_disk_that_fails_for_good_loses_nothing_acknowledged)
{
    mr_failing_vfs();
    int64_t calls, total;
    fails_at(0, 0, true, &total);
    for (int64_t n = 1; n <= total; n++)
        fails_at(n, codes[n % 4], true, &calls);
}

/* ---- reads that fail ---- */

MR_TEST(an_account_that_cannot_be_read_says_so_and_keeps_all)
{
    enum { N = 40 };
    book b;
    mr_status st;
    uint64_t failures = 0;
    mr_failing_vfs();
    mr_failing_vfs_at(0, 0, false);
    mr_ok(try_open(&b, mr_test_path("whole"), "failing", &st), &st);
    mr_ok(mr__account_start(b.a, &st), &st);
    for (uint64_t i = 1; i <= N; i++)
        turn_until(&b, put_number(&b, i));
    char *db, *wal; /* as it is when a dispatcher is killed: most of it is in the log */
    size_t n_db = read_whole(mr_test_path("whole/account.db"), &db);
    size_t n_wal = read_whole(mr_test_path("whole/account.db-wal"), &wal);
    mr_check(n_wal > 0 && mkdir(mr_test_path("copy"), 0700) == 0);
    end(&b);
    for (int persistent = 0; persistent < 2; persistent++)
        for (int64_t n = 1, last = 0; !last; n++) {
            mr_test_context("read %lld fails%s", (long long)n,
                            persistent ? ", and all after it" : "");
            found f = {0};
            write_file(mr_test_path("copy/account.db"), db, n_db);
            write_file(mr_test_path("copy/account.db-wal"), wal, n_wal);
            mr_failing_vfs_reads(true);
            mr_failing_vfs_at(n, SQLITE_IOERR_READ, persistent);
            mr_code rc = try_open(&b, mr_test_path("copy"), "failing", &st);
            bool is_open = rc == MR_OK;
            if (is_open)
                rc = mr__account_load(b.a, each, &f, &st);
            bool failed = mr_failing_vfs_calls() >= n;
            mr_failing_vfs_at(0, 0, false);
            mr_failing_vfs_reads(false);
            if (rc != MR_OK) {
                failures++;
                mr_check(failed);
                mr_has_str(st.message, "account");
                mr_has_str(st.file, mr_test_path("copy/account.db"));
            } else { /* all of it, or nothing */
                mr_eq_u64(prefix(&f), N);
            }
            if (is_open)
                let_go(&b);
            f = look(mr_test_path("copy"), NULL);
            mr_eq_u64(prefix(&f), N);
            last = !failed;
        }
    mr_check(failures > 4);
    free(db);
    free(wal);
}

/* The pages that are written were not read yet. */
MR_TEST_SLOW(reads_that_fail_as_it_writes_are_tried_again)
{
    enum { N = 8 };
    mr_failing_vfs();
    for (int64_t nth = 1, more = true; more; nth++) {
        book b;
        mr_status st;
        char name[64];
        snprintf(name, sizeof name, "r%lld", (long long)nth);
        mr_test_context("read %lld fails", (long long)nth);
        begin(&b, mr_test_path(name));
        for (uint64_t i = 1; i <= N; i++)
            turn_until(&b, put_number(&b, i));
        end(&b);
        mr_ok(try_open(&b, mr_test_path(name), "failing", &st), &st);
        mr_failing_vfs_reads(true);
        mr_failing_vfs_at(nth, SQLITE_IOERR_READ, false);
        mr_ok(mr__account_start(b.a, &st), &st);
        for (uint64_t i = N + 1; i <= 2 * N; i++)
            turn_until(&b, put_number(&b, i));
        more = mr_failing_vfs_calls() >= nth;
        mr_eq_i64(b.lost, 0);
        mr_failing_vfs_at(0, 0, false);
        mr_failing_vfs_reads(false);
        end(&b);
        found f = look(mr_test_path(name), NULL);
        mr_eq_u64(prefix(&f), 2 * N);
    }
}

MR_TEST(a_full_disk_takes_no_more_memory_as_streams_go_on)
{
    book b;
    mr_status st;
    mr_failing_vfs();
    mr_ok(try_open(&b, mr_test_path("full"), "failing", &st), &st);
    mr_ok(mr__account_start(b.a, &st), &st);
    turn_until(&b, put_number(&b, 1));
    mr_failing_vfs_at(1, SQLITE_FULL, true);
    put_number(&b, 2);
    while (!b.bad)
        mr_ok(mr__loop_turn(b.l, INT64_MAX, &st), &st);
    mr_code_is(b.why.code, MR_RESOURCE_EXHAUSTED, &b.why);
    for (uint64_t i = 3; i <= 10; i++)
        put_number(&b, i);
    size_t before = mallinfo2().uordblks;
    for (uint64_t i = 11; i <= 50000; i++)
        put_number(&b, i);
    mr_check(mallinfo2().uordblks < before + 65536);
    mr_failing_vfs_at(0, 0, false);
    turn_until(&b, 50000);
    while (!b.good)
        mr_ok(mr__loop_turn(b.l, INT64_MAX, &st), &st);
    end(&b);
    found f = look(mr_test_path("full"), NULL);
    mr_eq_u64(prefix(&f), 50000);
}

MR_TEST(little_free_space_is_reported_before_a_write_fails)
{
    book b;
    mr_status st;
    *(&b) = (book){0};
    mr_ok(mr__loop_open(MR__LOOP_EPOLL, &b.l, &st), &st);
    mr__account_opts opts = {.directory = mr_test_dir(),
                             .loop = b.l,
                             .durable = durable,
                             .disk = disk,
                             .ctx = &b,
                             .least_free = UINT64_MAX};
    mr_ok(mr__account_open(&b.a, &opts, &st), &st);
    mr_ok(mr__account_start(b.a, &st), &st);
    while (!b.bad)
        mr_ok(mr__loop_turn(b.l, INT64_MAX, &st), &st);
    mr_code_is(b.why.code, MR_RESOURCE_EXHAUSTED, &b.why);
    turn_until(&b, put_number(&b, 1)); /* what finds room is kept all the same */
    end(&b);
}

/* ---- killed ---- */

MR_TEST(killed_at_any_time_it_opens_to_what_was_acknowledged)
{
    uint64_t random = mr_test_seed(), last = 0;
    const char *directory = mr_test_path("killed"); /* of this process, also for its children */
    for (int round = 0; round < (mr_test_long() ? 200 : 15); round++) {
        int to[2];
        mr_check(pipe(to) == 0);
        pid_t child = fork();
        if (child == 0) {
            book b;
            mr_status st;
            if (try_open(&b, directory, NULL, &st) != MR_OK || mr__account_start(b.a, &st) != MR_OK)
                _exit(1);
            uint64_t base = last;
            if (last == 0)
                put_number(&b, 1), base = 0;
            for (uint64_t i = base ? base + 1 : 2;; i++) {
                put_number(&b, i);
                if (mr__loop_turn(b.l, mr__loop_now(b.l) + (i % 7 ? 0 : 2000000), &st) != MR_OK)
                    _exit(1);
                uint64_t acknowledged = base + b.durable;
                if (write(to[1], &acknowledged, sizeof acknowledged) != sizeof acknowledged)
                    _exit(1);
            }
        }
        close(to[1]);
        struct timespec t = {0, (long)(mr_test_random(&random) % 40000000)};
        uint64_t acknowledged = 0, x;
        while (acknowledged < last + 2) { /* it runs */
            mr_check(read(to[0], &x, sizeof x) == sizeof x);
            acknowledged = x;
        }
        nanosleep(&t, NULL);
        kill(child, SIGKILL);
        while (read(to[0], &x, sizeof x) == sizeof x)
            acknowledged = x;
        close(to[0]);
        waitpid(child, NULL, 0);
        found f = look(directory, NULL);
        last = prefix(&f);
        mr_test_context("round %d", round);
        if (last < acknowledged)
            mr_fail_test("%llu is there, %llu was acknowledged", (unsigned long long)last,
                         (unsigned long long)acknowledged);
    }
    mr_check(last > 15);
}

/* ---- a large one ---- */

static mr_code load(void *ctx, const mr__record *r, mr_status *st)
{
    return mr__dispatcher_load(ctx, r, st);
}
static mr_code no_streams(void *ctx, const Mr__Wire__Job *job, uint32_t *n, mr_status *st)
{
    (void)ctx;
    (void)job;
    (void)st;
    *n = 1;
    return MR_OK;
}
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MANY = 100 }; /* 10,000 streams, which take ten times as long each */
#else
enum { MANY = 1000 };
#endif

MR_TEST_SLOW(all_streams_of_very_many_jobs_are_read)
{
    enum { JOBS = MANY, EACH = MANY };
    book b;
    mr_status st;
    char name[32];
    uint64_t last = 0;
    begin(&b, mr_test_dir());
    for (uint64_t j = 1; j <= JOBS; j++) {
        snprintf(name, sizeof name, "job %llu", (unsigned long long)j);
        put_job(&b, j * 0x9e3779b97f4a7c15u, name, EACH);
        for (uint32_t s = 0; s < EACH; s++)
            last = put_stream(&b, j * 0x9e3779b97f4a7c15u, s, j);
    }
    turn_until(&b, last);
    end(&b);

    double start = cpu_seconds();
    mr__dispatcher *d;
    mr__dispatcher_opts opts = {.streams = no_streams, .state = "here"};
    mr__dispatcher_out out = {0};
    mr_ok(try_open(&b, mr_test_dir(), NULL, &st), &st);
    mr_ok(mr__dispatcher_new(&d, &opts, &out, NULL, &st), &st);
    mr_ok(mr__account_load(b.a, load, d, &st), &st);
    double took = cpu_seconds() - start;
    char *json = mr__dispatcher_report(d, "status", "", 0);
    snprintf(name, sizeof name, "\"streams\": %d", JOBS * EACH);
    mr_has_str(json, name);
    fprintf(stderr, "%d streams were read in %.2f s\n", JOBS * EACH, took);
    mr_free(json);
    mr__dispatcher_free(d);
    let_go(&b);
}
