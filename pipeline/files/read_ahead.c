/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/read_ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/files/read_async.h"
#include "pipeline/files/system.h"
#include "pipeline/log.h"

#define ALIGNMENT ((size_t)4096) /* of O_DIRECT's memory, offsets and lengths */
/* What is left of a file must be worth a ring and a second buffer. */
#define WORTH_ASYNC ((int64_t)1 << 20)
#define MAX_RETRIES 1000 /* of a call that is interrupted without getting anything */

typedef struct slot {
    mr_buffer *buffer;
    mr__read_request request;
    bool in_flight;
} slot;

struct mr__read_ahead {
    int fd, direct_fd; /* direct_fd -1: buffered */
    char *path;
    int64_t size;   /* -1: not a regular file */
    int64_t offset; /* of the next byte handed out */
    bool async_mode, sync_only;
    mr__read_async *async;
    slot slots[MR__READ_DEPTH]; /* a ring of requests in file order */
    unsigned head, n_slots;
    int64_t ahead; /* offset of the next request */
};

static atomic_bool uring_allowed = true;
static atomic_bool refusal_logged;

void mr__read_use_uring(bool allowed)
{
    atomic_store(&uring_allowed, allowed);
}

static mr_code fail_at(mr__read_ahead *r, int err, const char *what, mr_status *st)
{
    mr_code rc = mr_fail_errno(st, err, "%s", what);
    mr_status_at(st, r->path, r->offset, -1);
    return rc;
}

static int64_t half_of_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (int64_t)pages * size / 2 : INT64_MAX;
}

mr_code mr__read_ahead_open(mr__read_ahead **out, const char *path, int64_t start, bool direct,
                            mr_status *st)
{
    mr_code rc = MR_OK;
    struct stat s;
    mr__read_ahead *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "a file reader");
    r->fd = r->direct_fd = -1;
    r->path = mr_strdup(path);
    if (!r->path) {
        rc = mr_fail_memory(st, strlen(path) + 1, "a file name");
        goto out;
    }
    do
        r->fd = mr__sys->open(path, O_RDONLY | O_CLOEXEC, 0);
    while (r->fd < 0 && errno == EINTR);
    if (r->fd < 0) {
        rc = fail_at(r, errno, "cannot open the file", st);
        goto out;
    }
    if (mr__sys->fstat(r->fd, &s) != 0) {
        rc = fail_at(r, errno, "cannot look at the file", st);
        goto out;
    }
    if (S_ISDIR(s.st_mode)) {
        rc = fail_at(r, EISDIR, "cannot read the file", st);
        goto out;
    }
    r->size = S_ISREG(s.st_mode) ? (int64_t)s.st_size : -1;
    r->sync_only = r->size < 0;
    if (r->size >= 0 && (direct || r->size > half_of_memory()))
        r->direct_fd = mr__sys->open(path, O_RDONLY | O_CLOEXEC | O_DIRECT, 0);
    r->async_mode = r->direct_fd >= 0;
    r->offset = r->ahead = r->size < 0 ? 0 : start;
    *out = r;
    return MR_OK;
out:
    mr__read_ahead_close(r);
    return rc;
}

int64_t mr__read_ahead_size(const mr__read_ahead *r)
{
    return r->size;
}

/* Ends all reads in flight and lets their buffers go. */
static void drop_slots(mr__read_ahead *r)
{
    for (unsigned i = 0; i < MR__READ_DEPTH; i++) {
        slot *s = &r->slots[i];
        if (s->in_flight && r->async->class_->wait(r->async, &s->request) != 0) {
            /* Nobody knows whether the kernel still writes there: that memory is given up. */
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
    drop_slots(r);
    if (r->async)
        r->async->class_->close(r->async);
    if (r->fd >= 0)
        mr__sys->close(r->fd);
    if (r->direct_fd >= 0)
        mr__sys->close(r->direct_fd);
    mr_free(r->path);
    mr_free(r);
}

mr_code mr__read_ahead_seek(mr__read_ahead *r, int64_t offset, mr_status *st)
{
    if (offset == r->offset)
        return MR_OK;
    if (r->size < 0)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s is a pipe, which cannot be read from byte %lld", r->path,
                       (long long)offset);
    drop_slots(r);
    r->offset = r->ahead = offset;
    return MR_OK;
}

/* As pread (from pipes: read), but goes on after an interruption. -errno on failure. */
static ssize_t read_some(const mr__read_ahead *r, void *dst, size_t n, int64_t offset)
{
    for (int tries = 0;; tries++) {
        ssize_t got = r->size < 0 ? mr__sys->read(r->fd, dst, n)
                                  : mr__sys->pread(r->fd, dst, n, (off_t)offset);
        if (got >= 0)
            return got;
        if ((errno != EINTR && errno != EAGAIN) || tries == MAX_RETRIES)
            return -errno;
    }
}

static void log_refusal(int err)
{
    if (!atomic_exchange(&refusal_logged, true))
        mr_log(MR_LOG_INFO,
               "io_uring is not available here (%s); files are read by a pool of threads",
               err ? strerror(err) : "switched off");
}

/* false: neither a ring nor a pool can be had. */
static bool async_open(mr__read_ahead *r)
{
    if (r->async)
        return true;
    int err = 0;
    if (atomic_load(&uring_allowed))
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
        if (rc != MR_OK) /* with reads in flight one can do with fewer */
            return r->n_slots ? MR_OK : rc;
        bool direct = r->direct_fd >= 0;
        int64_t skip = direct ? r->ahead % (int64_t)ALIGNMENT : 0;
        s->request = (mr__read_request){.fd = direct ? r->direct_fd : r->fd,
                                        .data = slot_data(s->buffer),
                                        .n = MR__READ_SLOT,
                                        .offset = (off_t)(r->ahead - skip)};
        int err = r->async->class_->start(r->async, &s->request);
        s->in_flight = err == 0;
        if (err != 0) { /* read it when its turn comes */
            s->request.result = err;
            s->request.done = true;
        }
        r->n_slots++;
        r->ahead += (int64_t)MR__READ_SLOT - skip;
    }
    return MR_OK;
}

/* Reads what a request in `s` did not get, from the buffered file. Returns the bytes in all. */
static ssize_t finish_request(mr__read_ahead *r, slot *s)
{
    size_t have = s->request.result > 0 ? (size_t)s->request.result : 0;
    if (s->request.result == -EINVAL && r->direct_fd >= 0) {
        /* The file system took O_DIRECT at open and refuses the read. Requests in flight keep the
         * descriptor: it stays open until the file is closed. */
        s->request.fd = r->fd;
    }
    while (have < s->request.n && s->request.offset + (off_t)have < (off_t)r->size) {
        ssize_t got = read_some(r, s->request.data + have, s->request.n - have,
                                s->request.offset + (off_t)have);
        if (got < 0)
            return got;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
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
        int err = r->async->class_->wait(r->async, &s->request);
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
    if ((size_t)have <= skip) { /* the file has become shorter */
        mr_buffer_unref(b);
        drop_slots(r);
        r->ahead = r->offset;
        r->size = r->offset;
        return MR_END;
    }
    *out = b;
    *data = s->request.data + skip;
    *got = (size_t)have - skip;
    r->offset += (int64_t)*got;
    if ((size_t)have < s->request.n)
        r->size = r->offset;
    /* No memory for another read is no reason to fail this one. */
    rc = start_reads(r, NULL);
    (void)rc;
    return MR_OK;
}

/* Reads only what is cached; -EAGAIN: nothing is. */
static ssize_t read_cached(mr__read_ahead *r, void *dst, size_t n)
{
    struct iovec v = {dst, n};
    for (int tries = 0;; tries++) {
        ssize_t got = mr__sys->preadv2(r->fd, &v, 1, (off_t)r->offset, RWF_NOWAIT);
        if (got >= 0)
            return got;
        if (errno == EINTR && tries < MAX_RETRIES)
            continue;
        /* Not supported by this file system or kernel: one cannot tell, as if not cached. */
        return errno == EAGAIN || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL
                   ? -EAGAIN
                   : -errno;
    }
}

mr_code mr__read_ahead_next(mr__read_ahead *r, void *dst, size_t want, mr_buffer **out,
                            uint8_t **data, size_t *got, mr_status *st)
{
    *out = NULL;
    if (r->size >= 0 && r->offset >= r->size)
        return MR_END;
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
        n = read_some(r, dst, want, r->offset);
    if (n < 0)
        return fail_at(r, (int)-n, "cannot read the file", st);
    if (n == 0)
        return MR_END;
    r->offset += n;
    *got = (size_t)n;
    return MR_OK;
}
