/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/ledger/job_ledger_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>

#include "pipeline/files/atomic_file.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/retry.h"

static const mr_identity of_job = {.source = UINT64_MAX, .file = UINT64_MAX};

static void make_name(char job[MR__LEDGER_JOB])
{
    uint64_t v;
    struct timespec t;
    if (mr__sys->getrandom(&v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v) {
        mr__sys->clock_gettime(CLOCK_REALTIME, &t);
        v = (uint64_t)t.tv_sec * 1000000007u + (uint64_t)t.tv_nsec;
    }
    snprintf(job, MR__LEDGER_JOB, "%016" PRIx64, v);
}

static mr_code create(const char *path, const char *job, mr_ledger **out, mr_status *st)
{
    mr_ledger *l = NULL;
    mr_status ignored;
    MR_TRY(mr_ledger_create(path, true, &l, st));
    mr_code rc = mr_ledger_name(l, &of_job, job, st);
    if (rc == MR_OK)
        *out = l;
    else if (mr_ledger_close(l, &ignored) != MR_OK)
        return rc;
    return rc;
}

MR_API mr_code mr__ledger_create_job(const char *path, char job[MR__LEDGER_JOB], mr_ledger **out,
                                     mr_status *st)
{
    make_name(job);
    return create(path, job, out, st);
}

static mr_code too_short(const char *path, int64_t has, int64_t entries, mr_status *st)
{
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "%s: the ledger has the records of %" PRId64
                   " steps, but the job continues after step %" PRId64
                   ": name the ledger that it wrote, or continue without one",
                   path, has, entries);
}

/* Copies the names of the files of an entry, and the entry. */
static mr_code copy_entry(const mr_ledger_reader *r, const mr_ledger_entry *e, mr_ledger *to,
                          mr_status *st)
{
    for (size_t i = 0; i < e->n; i++) {
        const char *name = mr_ledger_name_of(r, &e->ids[i]);
        if (name && (i == 0 || e->ids[i].source != e->ids[i - 1].source ||
                     e->ids[i].file != e->ids[i - 1].file))
            MR_TRY(mr_ledger_name(to, &e->ids[i], name, st));
    }
    return mr_ledger_add(to, e->ids, e->n, st);
}

static mr_code copy(const char *path, mr_ledger_reader *r, const char *job, int64_t entries,
                    mr_ledger *to, mr_status *st)
{
    mr_ledger_entry e;
    mr_status why;
    for (int64_t i = 0; i < entries; i++) {
        mr_code rc = mr_ledger_next(r, &e, &why);
        const char *theirs = mr_ledger_name_of(r, &of_job);
        if (i == 0 && rc == MR_OK && (!theirs || strcmp(theirs, job) != 0))
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "%s: the ledger is of another job than the one that continues: name the "
                           "ledger that it wrote, or continue without one",
                           path);
        if (rc == MR_END || rc == MR_DATA_LOSS)
            return too_short(path, i, entries, st);
        if (rc != MR_OK) {
            if (st)
                *st = why;
            return rc;
        }
        MR_TRY(copy_entry(r, &e, to, st));
    }
    return mr__ledger_sync(to, st);
}

static mr_code check_unused(const char *path, mr_status *st)
{
    int fd = mr__open_again(path, O_RDONLY);
    if (fd < 0)
        return mr_fail_errno(st, errno, "%s: cannot open the ledger", path);
    mr_code rc = mr__ledger_lock(path, fd, LOCK_SH, st);
    mr__sys->close(fd);
    return rc;
}

/* The directory of path, with its last slash; room for strlen(path) + 3 bytes. */
static void directory_of(const char *path, char *out)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    memcpy(out, path, n);
    memcpy(out + n, n ? "" : "./", n ? 1 : 3);
}

static mr_code publish(const char *partial, const char *path, char *directory, mr_status *st)
{
    if (mr__rename_again(partial, path) != 0)
        return mr_fail_errno(st, errno, "%s: cannot replace the ledger", path);
    directory_of(path, directory);
    return mr_directory_sync(directory, st);
}

MR_API mr_code mr__ledger_continue_job(const char *path, const char *job, int64_t entries,
                                       mr_ledger **out, mr_status *st)
{
    mr_ledger_reader *r = NULL;
    mr_ledger *to = NULL;
    mr_status ignored;
    mr_code rc = mr_ledger_open(path, &r, st);
    if (rc == MR_NOT_FOUND)
        return too_short(path, 0, entries, st);
    MR_TRY(rc);
    char *partial = mr_strf("%s.partial", path), *directory = mr_malloc(strlen(path) + 3);
    rc = partial && directory ? create(partial, job, &to, st)
                              : mr_fail_memory(st, strlen(path), "a file name");
    if (rc == MR_OK) /* no other run continues it from now on */
        rc = check_unused(path, st);
    if (rc == MR_OK)
        rc = copy(path, r, job, entries, to, st);
    if (rc == MR_OK)
        rc = publish(partial, path, directory, st);
    mr_ledger_reader_close(r);
    if (rc == MR_OK)
        *out = to;
    else if (to) {
        mr_code closed = mr_ledger_close(to, &ignored);
        (void)closed; /* it is removed */
        mr__sys->unlink(partial);
    }
    mr_free(partial);
    mr_free(directory);
    return rc;
}
