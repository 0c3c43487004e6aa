/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/read_ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/files/read_async.h"
#include "pipeline/files/remote.h"
#include "pipeline/system/cgroup.h"
#include "pipeline/system/retry.h"
#include "pipeline/log.h"
#include "pipeline/remote/object_stream.h"
#include "pipeline/wait/wait.h"

#define ALIGNMENT ((size_t)4096) /* of memory, offsets and lengths for O_DIRECT */
/* Remaining bytes from which a ring and more buffers pay off. */
#define WORTH_ASYNC ((int64_t)1 << 20)
/* A caller that wants no more than this copies the bytes: it detects a compression, or decodes. */
#define WORTH_SLOT ((size_t)128 << 10)

typedef struct slot {
    mr_buffer *buffer;
    mr__read_request request;
    bool in_flight;
} slot;

struct mr__read_ahead {
    int fd, direct_fd; /* direct_fd -1: buffered */
    char *path;
    int64_t origin; /* offset of byte 0 for callers: the initial offset of standard input, else 0 */
    int64_t size;   /* end of the file; -1 if unknown */
    bool seekable;  /* a regular file */
    int64_t offset; /* of the next byte to return */
    bool async_mode, sync_only, no_uring;
    bool nonblocking; /* of the descriptor */
    mr_cancel *cancel;
    void (*on_read)(void *ctx, size_t bytes);
    void *on_read_ctx;
    mr__read_async *async;
    slot slots[MR__READ_DEPTH]; /* a ring of requests in file order */
    unsigned head, n_slots;
    int64_t ahead;             /* offset of the next request */
    mr__object_stream *remote; /* of a URL; else NULL */
    bool no_slots;             /* the caller takes none */
    mr_buffer *held;           /* of a URL: received, the bytes from `offset` on not returned */
    uint8_t *held_at;
    size_t held_size;
};

static atomic_bool refusal_logged;

static mr_code fail_at(mr__read_ahead *r, int err, const char *what, mr_status *st)
{
    mr_code rc = err == ECANCELED ? mr_fail(st, MR_CANCELLED, "reading was cancelled")
                                  : mr_fail_errno(st, err, "%s", what);
    mr_status_at(st, r->path, r->offset, -1);
    return rc;
}

/* The inode + 1 of the pipe that was last opened as standard input. */
static atomic_uint_fast64_t pipe_read;

/* Opens standard input. A regular file may be opened any number of times. A pipe may be opened only
 * once: bytes taken by one reader are missing for the next, for which the pipe would look empty. */
static mr_code open_input(mr__read_ahead *r, mr_status *st)
{
    struct stat s;
    r->fd = STDIN_FILENO;
    if (mr__sys->fstat(r->fd, &s) != 0)
        return fail_at(r, errno, "cannot stat standard input", st);
    if (S_ISREG(s.st_mode)) {
        r->origin = (int64_t)mr__sys->lseek(r->fd, 0, SEEK_CUR);
        return r->origin < 0 ? fail_at(r, errno, "cannot get the offset of standard input", st)
                             : MR_OK;
    }
    if (!S_ISFIFO(s.st_mode) && !S_ISSOCK(s.st_mode))
        return MR_OK;
    if (atomic_exchange(&pipe_read, (uint64_t)s.st_ino + 1) != (uint64_t)s.st_ino + 1)
        return MR_OK;
    mr_code rc = mr_fail(st, MR_FAILED_PRECONDITION,
                         "standard input is a pipe, which can be read once; write it to a file to "
                         "read it again");
    mr_status_of_no_element(st);
    mr_status_at(st, r->path, -1, -1);
    return rc;
}

static mr_code open_path(mr__read_ahead *r, mr_status *st)
{
    if (strcmp(r->path, "-") == 0)
        return open_input(r, st);
    /* A FIFO without a writer must not block here. For regular files the flag is not set: it makes
     * io_uring fail on some kernels. */
    struct stat s;
    r->nonblocking = mr__sys->stat(r->path, &s) == 0 && S_ISFIFO(s.st_mode);
    r->fd = mr__open_again(r->path, O_RDONLY | (r->nonblocking ? O_NONBLOCK : 0));
    if (r->fd >= 0)
        return MR_OK;
    int err = errno;
    char what[160];
    snprintf(what, sizeof what, "cannot open the file%s", mr__remote_hint(r->path));
    return fail_at(r, err, what, st);
}

/* True if the file really is empty: files of /proc and of some FUSE file systems are not, although
 * their size is 0. */
static bool is_empty(const mr__read_ahead *r)
{
    char byte;
    return mr__read_all(r->fd, &byte, 1, r->origin) == 0; /* the first read reports an error */
}

static int64_t half_of_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    int64_t all = pages > 0 && size > 0 ? (int64_t)pages * size : INT64_MAX;
    int64_t most = mr__cgroup_limits()->memory_max;
    return (all < most ? all : most) / 2;
}

static mr_code open_url(mr__read_ahead *r, int64_t start, const mr__read_opts *opts, mr_status *st)
{
    MR_TRY(mr__object_stream_open(&r->remote, r->path, start, !opts->no_ahead, opts->cancel, st));
    r->size = mr__object_stream_size(r->remote);
    if (opts->mark)
        *opts->mark = mr__object_stream_mark(r->remote);
    r->seekable = r->sync_only = true;
    r->no_slots = opts->no_ahead;
    r->offset = start;
    return MR_OK;
}

mr_code mr__read_ahead_open(mr__read_ahead **out, const char *path, int64_t start,
                            const mr__read_opts *opts, mr_status *st)
{
    static const mr__read_opts defaults;
    if (!opts)
        opts = &defaults;
    mr_code rc = MR_OK;
    struct stat s;
    mr__read_ahead *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "a file reader");
    r->fd = r->direct_fd = -1;
    r->no_uring = opts->no_uring;
    r->cancel = opts->cancel;
    r->on_read = opts->on_read;
    r->on_read_ctx = opts->on_read_ctx;
    r->path = mr_strdup(path);
    if (!r->path) {
        rc = mr_fail_memory(st, strlen(path) + 1, "a file name");
        goto out;
    }
    if (mr__is_url(path)) {
        rc = open_url(r, start, opts, st);
        if (rc != MR_OK)
            goto out;
        *out = r;
        return MR_OK;
    }
    rc = open_path(r, st);
    if (rc != MR_OK)
        goto out;
    if (mr__sys->fstat(r->fd, &s) != 0) {
        rc = fail_at(r, errno, "cannot stat the file", st);
        goto out;
    }
    if (S_ISDIR(s.st_mode)) {
        rc = fail_at(r, EISDIR, "cannot read the file", st);
        goto out;
    }
    r->seekable = S_ISREG(s.st_mode);
    r->size = r->seekable && (s.st_size > 0 || is_empty(r)) ? (int64_t)s.st_size : -1;
    r->sync_only = r->size < 0 || (opts && opts->no_ahead);
    if (r->size >= 0 && r->size < r->origin)
        r->size = r->origin;
    bool named = r->fd != STDIN_FILENO || strcmp(path, "-") != 0;
    if (named && r->size >= 0 && (opts->direct || r->size > half_of_memory()))
        r->direct_fd = mr__sys->open(path, O_RDONLY | O_CLOEXEC | O_DIRECT, 0);
    r->async_mode = r->direct_fd >= 0;
    r->offset = r->ahead = r->seekable ? r->origin + start : 0;
    *out = r;
    return MR_OK;
out:
    mr__read_ahead_close(r);
    return rc;
}

int64_t mr__read_ahead_size(const mr__read_ahead *r)
{
    return r->size < 0 ? -1 : r->size - r->origin;
}

bool mr__read_ahead_seekable(const mr__read_ahead *r)
{
    return r->seekable;
}

/* Waits for all reads in flight and releases their buffers. */
static void drop_slots(mr__read_ahead *r)
{
    for (unsigned i = 0; i < MR__READ_DEPTH; i++) {
        slot *s = &r->slots[i];
        if (s->in_flight && r->async->class_->wait(r->async, &s->request, NULL) != 0) {
            /* The kernel may still write to that memory, so it is leaked. */
            s->buffer = NULL;
        }
        s->in_flight = false;
        mr_buffer_unref(s->buffer);
        s->buffer = NULL;
    }
    r->head = r->n_slots = 0;
}

void mr__read_ahead_close(mr__read_ahead *r)
{
    if (!r)
        return;
    mr__object_stream_close(r->remote);
    mr_buffer_unref(r->held);
    drop_slots(r);
    if (r->async)
        r->async->class_->close(r->async);
    if (r->fd > STDIN_FILENO || (r->fd == STDIN_FILENO && strcmp(r->path, "-") != 0))
        mr__sys->close(r->fd);
    if (r->direct_fd >= 0)
        mr__sys->close(r->direct_fd);
    mr_free(r->path);
    mr_free(r);
}

static void seek_remote(mr__read_ahead *r, int64_t offset)
{
    int64_t skip = offset - r->offset;
    if (r->held && skip >= 0 && skip < (int64_t)r->held_size) {
        r->held_at += skip;
        r->held_size -= (size_t)skip;
        return;
    }
    mr_buffer_unref(r->held);
    r->held = NULL;
    mr__object_stream_seek(r->remote, offset);
}

mr_code mr__read_ahead_seek(mr__read_ahead *r, int64_t offset, mr_status *st)
{
    offset += r->origin;
    if (offset == r->offset)
        return MR_OK;
    if (!r->seekable)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s is a pipe, which cannot be read from byte %lld", r->path,
                       (long long)offset);
    if (r->remote)
        seek_remote(r, offset);
    drop_slots(r);
    r->offset = r->ahead = offset;
    return MR_OK;
}

/* Like pread, but retries after an interruption and returns -errno on failure. */
static ssize_t read_at(const mr__read_ahead *r, void *dst, size_t n, int64_t offset)
{
    int64_t began = mr__ticks();
    for (int tries = 0;; tries++) {
        ssize_t got = mr__sys->pread(r->fd, dst, n, (off_t)offset);
        int err = errno;
        if (got < 0 && (err == EINTR || err == EAGAIN) && tries < MR__MOST_RETRIES)
            continue;
        mr__waited_since(began); /* the data was not cached */
        return got < 0 ? -err : got;
    }
}

/* Waits for data in a pipe or similar, and reads it. Before the first writer opens a FIFO, read
 * would return 0, so wait for readiness first. After its writers are gone, it need not become ready
 * again, so try read first. */
static ssize_t read_stream(mr__read_ahead *r, void *dst, size_t n)
{
    bool ask = !r->nonblocking || !r->offset;
    for (int tries = 0;; tries++) {
        int err = ask ? mr__wait_readable(r->fd, r->cancel) : 0;
        if (err != 0)
            return err;
        ssize_t got = mr__sys->read(r->fd, dst, n);
        if (got >= 0)
            return got;
        if ((errno != EINTR && errno != EAGAIN) || tries == MR__MOST_RETRIES)
            return -errno;
        ask = true;
    }
}

static void log_refusal(int err)
{
    if (!atomic_exchange(&refusal_logged, true))
        mr_log(MR_LOG_INFO, "io_uring is not available (%s); reading files with a pool of threads",
               err ? strerror(err) : "switched off");
}

/* Returns false if neither a ring nor a pool is available. */
static bool async_open(mr__read_ahead *r)
{
    if (r->async)
        return true;
    int err = 0;
    if (!r->no_uring)
        r->async = mr__read_uring_open(2 * MR__READ_DEPTH, &err);
    if (!r->async) {
        log_refusal(err);
        r->async = mr__read_pool_open();
    }
    return r->async != NULL;
}

static uint8_t *slot_data(mr_buffer *b)
{
    uintptr_t start = (uintptr_t)mr_buffer_data(b) + MR__READ_HEADROOM;
    return (uint8_t *)((start + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

/* Starts reads until all slots are in flight or the file ends. */
static mr_code start_reads(mr__read_ahead *r, mr_status *st)
{
    while (r->n_slots < MR__READ_DEPTH && r->ahead < r->size) {
        slot *s = &r->slots[(r->head + r->n_slots) % MR__READ_DEPTH];
        mr_code rc = mr_buffer_alloc(&s->buffer, MR__READ_HEADROOM + MR__READ_SLOT + ALIGNMENT, st);
        if (rc != MR_OK) /* with reads in flight, fewer slots suffice */
            return r->n_slots ? MR_OK : rc;
        bool direct = r->direct_fd >= 0;
        int64_t skip = direct ? r->ahead % (int64_t)ALIGNMENT : 0;
        s->request = (mr__read_request){.fd = direct ? r->direct_fd : r->fd,
                                        .data = slot_data(s->buffer),
                                        .n = MR__READ_SLOT,
                                        .offset = (off_t)(r->ahead - skip)};
        int err = r->async->class_->start(r->async, &s->request);
        s->in_flight = err == 0;
        if (err != 0) { /* finish_request reads it later */
            s->request.result = err;
            s->request.done = true;
        }
        r->n_slots++;
        r->ahead += (int64_t)MR__READ_SLOT - skip;
    }
    return MR_OK;
}

/* Reads the part that the request in `s` did not get, without O_DIRECT. Returns the total number of
 * bytes, or -errno. */
static ssize_t finish_request(mr__read_ahead *r, slot *s)
{
    size_t have = s->request.result > 0 ? (size_t)s->request.result : 0;
    if (s->request.result == -EINVAL && r->direct_fd >= 0) {
        /* The file system accepted O_DIRECT in open but not in read. Requests in flight use that
         * descriptor, so it stays open until the file is closed. */
        s->request.fd = r->fd;
    }
    while (have < s->request.n && s->request.offset + (off_t)have < (off_t)r->size) {
        ssize_t got = read_at(r, s->request.data + have, s->request.n - have,
                              s->request.offset + (off_t)have);
        if (got < 0)
            return got;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

/* Limits the next n bytes to the size of the file when it was opened: another process may be
 * appending to it, and may have written part of a record. */
static size_t within(const mr__read_ahead *r, size_t n)
{
    int64_t left = r->size - r->offset;
    return r->size >= 0 && left < (int64_t)n ? (size_t)left : n;
}

static mr_code next_slot(mr__read_ahead *r, mr_buffer **out, uint8_t **data, size_t *got,
                         mr_status *st)
{
    mr_code rc = start_reads(r, st);
    if (rc != MR_OK)
        return rc;
    if (r->n_slots == 0)
        return MR_END;
    slot *s = &r->slots[r->head];
    if (s->in_flight) {
        int err = r->async->class_->wait(r->async, &s->request, r->cancel);
        if (err != 0)
            return fail_at(r, -err, "cannot wait for a read", st);
        s->in_flight = false;
    }
    ssize_t have = finish_request(r, s);
    if (have < 0) {
        rc = fail_at(r, (int)-have, "cannot read the file", st);
        drop_slots(r);
        r->ahead = r->offset;
        return rc;
    }
    size_t skip = (size_t)(r->offset - (int64_t)s->request.offset);
    mr_buffer *b = s->buffer;
    s->buffer = NULL;
    r->head = (r->head + 1) % MR__READ_DEPTH;
    r->n_slots--;
    if ((size_t)have <= skip) { /* the file was truncated */
        mr_buffer_unref(b);
        drop_slots(r);
        r->ahead = r->offset;
        r->size = r->offset;
        return MR_END;
    }
    *out = b;
    *data = s->request.data + skip;
    *got = within(r, (size_t)have - skip);
    r->offset += (int64_t)*got;
    if ((size_t)have < s->request.n)
        r->size = r->offset;
    /* Ignored: a failure to start the next read must not fail this one. */
    rc = start_reads(r, NULL);
    (void)rc;
    return MR_OK;
}

/* Reads cached data only; returns -EAGAIN if no data is cached. */
static ssize_t read_cached(mr__read_ahead *r, void *dst, size_t n)
{
    struct iovec v = {dst, n};
    for (int tries = 0;; tries++) {
        ssize_t got = mr__sys->preadv2(r->fd, &v, 1, (off_t)r->offset, RWF_NOWAIT);
        if (got >= 0)
            return got;
        if (errno == EINTR && tries < MR__MOST_RETRIES)
            continue;
        /* If the file system or kernel does not support it, the data counts as not cached. */
        return errno == EAGAIN || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL
                   ? -EAGAIN
                   : -errno;
    }
}

size_t mr__read_ahead_cached(mr__read_ahead *r, void *dst, size_t n)
{
    ssize_t got = 0;
    if (!r->sync_only && !r->async_mode && r->offset < r->size)
        got = read_cached(r, dst, within(r, n));
    if (got <= 0)
        return 0;
    r->offset += got;
    if (r->on_read)
        r->on_read(r->on_read_ctx, (size_t)got);
    return (size_t)got;
}

/* Returns the slot that was received, or copies a part of it if the caller wants little. */
static mr_code next_remote(mr__read_ahead *r, void *dst, size_t want, mr_buffer **out,
                           uint8_t **data, size_t *got, mr_status *st)
{
    *got = r->held ? 0 : mr__object_stream_read(r->remote, dst, want);
    if (*got) {
        r->offset += (int64_t)*got;
        return MR_OK;
    }
    if (!r->held)
        MR_TRY(mr__object_stream_next(r->remote, &r->held, &r->held_at, &r->held_size, st));
    if (!r->no_slots && want > WORTH_SLOT) {
        *out = r->held;
        *data = r->held_at;
        *got = r->held_size;
        r->held = NULL;
    } else {
        *got = want < r->held_size ? want : r->held_size;
        memcpy(dst, r->held_at, *got);
        r->held_at += *got;
        r->held_size -= *got;
        if (r->held_size == 0) {
            mr_buffer_unref(r->held);
            r->held = NULL;
        }
    }
    r->offset += (int64_t)*got;
    return MR_OK;
}

static mr_code next(mr__read_ahead *r, void *dst, size_t want, mr_buffer **out, uint8_t **data,
                    size_t *got, mr_status *st)
{
    *out = NULL;
    if (r->size >= 0 && r->offset >= r->size)
        return MR_END;
    if (r->remote)
        return next_remote(r, dst, want, out, data, got, st);
    want = within(r, want);
    ssize_t n = -EAGAIN;
    if (!r->sync_only && !r->async_mode) {
        n = read_cached(r, dst, want);
        if (n == -EAGAIN && r->size - r->offset >= WORTH_ASYNC) {
            r->async_mode = true;
            r->ahead = r->offset;
        }
    }
    if (r->async_mode && !r->sync_only) {
        if (async_open(r))
            return next_slot(r, out, data, got, st);
        r->sync_only = true;
    }
    if (n == -EAGAIN)
        n = r->seekable ? read_at(r, dst, want, r->offset) : read_stream(r, dst, want);
    if (n < 0)
        return fail_at(r, (int)-n, "cannot read the file", st);
    if (n == 0)
        return MR_END;
    r->offset += n;
    *got = (size_t)n;
    return MR_OK;
}

mr_code mr__read_ahead_next(mr__read_ahead *r, void *dst, size_t want, mr_buffer **out,
                            uint8_t **data, size_t *got, mr_status *st)
{
    mr_code rc = next(r, dst, want, out, data, got, st);
    if (rc == MR_OK && r->on_read)
        r->on_read(r->on_read_ctx, *got);
    return rc;
}
