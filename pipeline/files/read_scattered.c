/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/read_scattered.h"

#include <errno.h>
#include <fcntl.h>

#include "pipeline/files/read_async.h"
#include "pipeline/remote/object_ranges.h"
#include "pipeline/system/retry.h"
#include "pipeline/wait/wait.h"

enum {
    DEPTH = 64,     /* reads in flight */
    SAMPLE = 8,     /* while data is assumed to be cached, check every SAMPLE-th read */
    MOST_OPEN = 128 /* open files; at least DEPTH */
};

typedef struct open_file {
    size_t file;
    int fd;
    uint64_t turn; /* the turn that last read it */
} open_file;

struct mr__scattered {
    char *const *paths;
    const uint64_t *marks;
    mr__read_opts opts;
    uint32_t *slots; /* for each file: its index in `open` plus 1; 0 if it is not open */
    open_file open[MOST_OPEN];
    size_t n_open, oldest;
    uint64_t turn;
    mr__read_async *async;
    bool sync_only;
    bool all_cached; /* the last turn had many reads, and all data was cached */
    mr__read_request requests[DEPTH];
    mr__object **objects; /* of the URLs among the paths that were read; NULL: all are local */
    size_t n_objects;
};

mr_code mr__scattered_open(mr__scattered **out, char *const *paths, size_t n, const uint64_t *marks,
                           const mr__read_opts *opts, mr_status *st)
{
    mr__scattered *s = mr_calloc(1, sizeof *s);
    if (s)
        s->slots = mr_calloc(n + 1, sizeof *s->slots);
    if (!s || !s->slots) {
        mr_free(s);
        return mr_fail_memory(st, sizeof *s + n * sizeof *s->slots, "a reader of records");
    }
    s->paths = paths;
    s->marks = marks;
    for (size_t i = 0; i < n && !s->n_objects; i++)
        s->n_objects = mr__is_url(paths[i]) ? n : 0;
    if (s->n_objects && !(s->objects = mr_calloc(n, sizeof *s->objects))) {
        mr__scattered_close(s);
        return mr_fail_memory(st, n * sizeof *s->objects, "a reader of records");
    }
    if (opts)
        s->opts = *opts;
    *out = s;
    return MR_OK;
}

void mr__scattered_close(mr__scattered *s)
{
    if (!s)
        return;
    if (s->async)
        s->async->class_->close(s->async);
    for (size_t i = 0; i < s->n_open; i++)
        mr__sys->close(s->open[i].fd);
    for (size_t i = 0; i < s->n_objects && s->objects; i++)
        mr__object_unref(s->objects[i]);
    mr_free(s->objects);
    mr_free(s->slots);
    mr_free(s);
}

/* Returns an entry for another open file: a free one, or that of a file which the current turn does
 * not read. */
static open_file *take_place(mr__scattered *s)
{
    if (s->n_open < MOST_OPEN)
        return &s->open[s->n_open++];
    while (s->open[s->oldest].turn == s->turn)
        s->oldest = (s->oldest + 1) % MOST_OPEN;
    open_file *f = &s->open[s->oldest];
    s->oldest = (s->oldest + 1) % MOST_OPEN;
    mr__sys->close(f->fd);
    s->slots[f->file] = 0;
    return f;
}

/* Returns the descriptor of a file, or -errno. */
static int fd_of(mr__scattered *s, size_t file)
{
    if (s->slots[file]) {
        open_file *f = &s->open[s->slots[file] - 1];
        f->turn = s->turn;
        return f->fd;
    }
    int fd = mr__open_again(s->paths[file], O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    open_file *f = take_place(s);
    *f = (open_file){.file = file, .fd = fd, .turn = s->turn};
    s->slots[file] = (uint32_t)(f - s->open) + 1;
    return fd;
}

typedef enum manner {
    IF_CACHED, /* read cached data only */
    AS_CACHED, /* assume that the data is cached */
    WAITING    /* count the time as waiting */
} manner;

/* Continues at v->got. Returns false if data is left that is not cached. */
static bool read_on(mr__scattered_read *v, int fd, manner how)
{
    int64_t began = how == WAITING ? mr__ticks() : 0;
    int tries = 0;
    while (v->got < v->size) {
        struct iovec io = {v->data + v->got, v->size - v->got};
        off_t at = (off_t)(v->offset + (int64_t)v->got);
        ssize_t n = how == IF_CACHED ? mr__sys->preadv2(fd, &io, 1, at, RWF_NOWAIT)
                                     : mr__sys->pread(fd, io.iov_base, io.iov_len, at);
        if (n < 0 && errno == EINTR && tries++ < MR__MOST_RETRIES)
            continue;
        /* Not cached, or not supported: then it is unknown what is cached. */
        if (n < 0 && how == IF_CACHED &&
            (errno == EAGAIN || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
            return false;
        if (n < 0)
            v->err = errno;
        if (n <= 0)
            break;
        v->got += (size_t)n;
    }
    if (how == WAITING)
        mr__waited_since(began);
    return true;
}

static bool async_open(mr__scattered *s)
{
    int err;
    if (!s->async && !s->sync_only && !s->opts.no_uring)
        s->async = mr__read_uring_open(DEPTH, &err);
    if (!s->async && !s->sync_only)
        s->async = mr__read_pool_open();
    s->sync_only = s->async == NULL;
    return s->async;
}

/* Waits for all requests, also after a failure, since their memory will be freed. Sets *lost if
 * waiting for one failed. */
static int wait_all(mr__scattered *s, const bool *started, size_t n, bool *lost)
{
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        if (!started[i])
            continue;
        mr__read_request *r = &s->requests[i];
        int err = s->async->class_->wait(s->async, r, rc ? NULL : s->opts.cancel);
        if (err == 0)
            continue;
        rc = rc ? rc : err;
        *lost = s->async->class_->wait(s->async, r, NULL) != 0 || *lost;
    }
    return rc;
}

/* Performs the reads in `left`, which are not cached. */
static mr_code run_async(mr__scattered *s, mr__scattered_read *const *left, const int *fds,
                         size_t n, mr_buffer *memory, mr_status *st)
{
    bool started[DEPTH] = {false}, lost = false;
    for (size_t i = 0; i < n; i++) {
        mr__scattered_read *v = left[i];
        s->requests[i] = (mr__read_request){.fd = fds[i],
                                            .data = v->data + v->got,
                                            .n = v->size - v->got,
                                            .offset = (off_t)(v->offset + (int64_t)v->got)};
        started[i] = s->async->class_->start(s->async, &s->requests[i]) == 0;
    }
    int err = wait_all(s, started, n, &lost);
    if (lost) /* the kernel may still write to the memory, so it is leaked */
        mr_buffer_ref(memory);
    if (err == -ECANCELED)
        return mr_fail(st, MR_CANCELLED, "reading was cancelled");
    if (err != 0)
        return mr_fail_errno(st, -err, "cannot wait for reads");
    for (size_t i = 0; i < n; i++) {
        if (started[i] && s->requests[i].result > 0)
            left[i]->got += (size_t)s->requests[i].result;
        read_on(left[i], fds[i], WAITING); /* the rest; retries failed reads to get their errno */
    }
    return MR_OK;
}

/* Performs up to DEPTH reads. Checking whether data is cached takes a tenth of the time of a cached
 * read of 16 KiB (bench/tfrecord.c). So after a turn in which all data was cached, most reads are
 * not checked until a sample finds uncached data. As offsets are random, it does so soon. */
static mr_code run_some(mr__scattered *s, mr__scattered_read *v, size_t n, mr_buffer *memory,
                        mr_status *st)
{
    mr__scattered_read *left[DEPTH];
    int fds[DEPTH];
    size_t n_left = 0;
    bool trusted = s->all_cached;
    s->turn++;
    for (size_t i = 0; i < n; i++) {
        int fd = fd_of(s, v[i].file);
        v[i].got = 0;
        v[i].err = fd < 0 ? -fd : 0;
        if (fd < 0 || read_on(&v[i], fd, trusted && i % SAMPLE ? AS_CACHED : IF_CACHED))
            continue;
        trusted = false;
        fds[n_left] = fd;
        left[n_left++] = &v[i];
    }
    s->all_cached = n_left == 0 && n >= DEPTH / 2;
    if (n_left > 1 && async_open(s))
        return run_async(s, left, fds, n_left, memory, st);
    for (size_t i = 0; i < n_left; i++) {
        if (mr_cancel_is_cancelled(s->opts.cancel))
            return mr_fail(st, MR_CANCELLED, "reading was cancelled");
        read_on(left[i], fds[i], WAITING);
    }
    return MR_OK;
}

static mr_code keep_failure(mr__scattered_read *v, const mr_status *why, mr_status *st)
{
    v->why = mr_memdup(why, sizeof *why);
    v->err = EIO;
    return v->why ? MR_OK : mr_fail_memory(st, sizeof *why, "an error");
}

static bool is_replaced(const mr__scattered *s, size_t file)
{
    uint64_t mark = mr__object_mark(s->objects[file]);
    return s->marks && s->marks[file] && mark && mark != s->marks[file];
}

/* Performs the reads at URLs, all at once. */
static mr_code run_remote(mr__scattered *s, mr__scattered_read *v, size_t n, mr_status *st)
{
    mr_status why;
    mr_code rc = MR_OK;
    size_t n_parts = 0;
    mr__object_range *parts = mr_calloc(n, sizeof *parts);
    if (!parts)
        return mr_fail_memory(st, n * sizeof *parts, "ranges");
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        mr__object **o = &s->objects[v[i].file];
        v[i].got = 0;
        v[i].err = 0;
        v[i].why = NULL;
        if (!mr__is_url(s->paths[v[i].file]))
            continue;
        if (!*o && mr__object_open(o, s->paths[v[i].file], &why) != MR_OK) {
            rc = keep_failure(&v[i], &why, st);
            continue;
        }
        parts[n_parts++] = (mr__object_range){
            .object = *o, .offset = v[i].offset, .size = v[i].size, .data = v[i].data};
    }
    if (rc == MR_OK)
        rc = mr__object_ranges_read(parts, n_parts, s->opts.cancel, st);
    for (size_t i = 0; i < n_parts && rc == MR_OK; i++)
        for (size_t k = 0; k < n; k++)
            if (v[k].data == parts[i].data) {
                v[k].got = parts[i].got;
                v[k].why = parts[i].why;
                v[k].err = parts[i].why ? EIO : 0;
            }
    for (size_t k = 0; k < n && rc == MR_OK; k++)
        if (!v[k].why && mr__is_url(s->paths[v[k].file]) && is_replaced(s, v[k].file)) {
            mr_fail(&why, MR_FAILED_PRECONDITION, MR__REPLACED_WHILE_OPEN);
            mr_status_of_no_element(&why);
            rc = keep_failure(&v[k], &why, st);
        }
    for (size_t k = 0; k < n && rc != MR_OK; k++) {
        mr_free(v[k].why);
        v[k].why = NULL;
    }
    mr_free(parts);
    return rc;
}

static mr_code run_mixed(mr__scattered *s, mr__scattered_read *v, size_t n, mr_buffer *memory,
                         mr_status *st)
{
    MR_TRY(run_remote(s, v, n, st));
    for (size_t i = 0; i < n; i++) {
        if (!mr__is_url(s->paths[v[i].file]))
            MR_TRY(run_some(s, &v[i], 1, memory, st));
        if (s->opts.on_read && v[i].got)
            s->opts.on_read(s->opts.on_read_ctx, v[i].got);
    }
    return MR_OK;
}

mr_code mr__scattered_run(mr__scattered *s, mr__scattered_read *v, size_t n, mr_buffer *memory,
                          mr_status *st)
{
    if (s->objects)
        return run_mixed(s, v, n, memory, st);
    for (size_t i = 0; i < n; i += DEPTH) {
        size_t part = n - i < DEPTH ? n - i : DEPTH;
        MR_TRY(run_some(s, v + i, part, memory, st));
        for (size_t k = i; s->opts.on_read && k < i + part; k++)
            if (v[k].got)
                s->opts.on_read(s->opts.on_read_ctx, v[k].got);
    }
    return MR_OK;
}
