/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/atomic_file.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/files/atomic_file_impl.h"
#include "pipeline/files/remote.h"
#include "pipeline/remote/url.h"
#include "pipeline/system/retry.h"

/* Files written in pieces of this size are faster to read while still cached: the write size sets
 * the size of the page cache's folios. */
enum { ROOM = 1 << 20, MOST_NAMES = 10000 };

char *mr__hidden_name(const char *path, const char *ending)
{
    static atomic_uint counter;
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) + 1 : 0;
    return mr_strf("%.*s.%s.%ld-%u%s", n, path, path + n, (long)getpid(),
                   atomic_fetch_add(&counter, 1), ending);
}

static mr_code fail(const char *path, const char *what, mr_status *st)
{
    mr_code rc = mr_fail_errno(st, errno, "%s", what);
    mr_status_at(st, path, -1, -1);
    return rc;
}

void mr_atomic_file_abort(mr_atomic_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        mr__sys->close(f->fd);
    if (f->created)
        mr__unlink_again(f->partial);
    mr__upload_close(f->upload);
    mr_buffer_unref(f->buffer);
    mr_free(f->path);
    mr_free(f->partial);
    mr_free(f);
}

static mr_code fail_open(const char *path, mr_status *st)
{
    return fail(path,
                errno == ENOENT ? "cannot create the file: its directory does not exist"
                                : "cannot create the file",
                st);
}

/* A name that exists is one that a killed process left: in a container the next one has the same
 * number. */
static mr_code open_new(mr_atomic_file *f, bool in_place, mr_status *st)
{
    if (in_place)
        f->fd = mr__open_again(f->path, O_WRONLY | O_CREAT | O_TRUNC);
    for (int i = 0; i < MOST_NAMES && f->fd < 0 && !in_place && (i == 0 || errno == EEXIST); i++) {
        mr_free(f->partial);
        if (!(f->partial = mr__hidden_name(f->path, ".partial")))
            return mr_fail_memory(st, strlen(f->path), "a file name");
        f->fd = mr__open_again(f->partial, O_WRONLY | O_CREAT | O_EXCL);
    }
    f->created = f->fd >= 0 && !in_place;
    return f->fd >= 0 ? MR_OK : fail_open(f->path, st);
}

static mr_code create(mr_atomic_file **out, const char *path, const mr_atomic_file_opts *o,
                      bool buffered, mr_status *st)
{
    MR_TRY(mr__url_check_writing(path, st));
    if (mr__is_url(path))
        return mr__atomic_file_open_upload(out, path, NULL, st);
    if (strstr(path, "://") && mr__remote_hint(path)[0] && strncmp(path, "file:", 5) != 0) {
        mr_fail(st, MR_UNIMPLEMENTED,
                "files are written to local paths and s3:// URLs, not to this scheme");
        mr_status_at(st, path, -1, -1);
        return MR_UNIMPLEMENTED;
    }
    mr_atomic_file *f = mr_calloc(1, sizeof *f);
    if (!f)
        return mr_fail_memory(st, sizeof *f, "a file");
    f->fd = -1;
    f->sync = o->sync;
    f->path = mr_strdup(path);
    mr_code rc = !f->path   ? mr_fail_memory(st, strlen(path), "a file name")
                 : buffered ? mr_buffer_alloc(&f->buffer, ROOM, st)
                            : MR_OK;
    if (rc == MR_OK)
        rc = open_new(f, o->in_place, st);
    if (rc == MR_OK)
        *out = f;
    else
        mr_atomic_file_abort(f);
    return rc;
}

mr_code mr__atomic_file_open_upload(mr_atomic_file **out, const char *url,
                                    const mr__upload_opts *opts, mr_status *st)
{
    mr_atomic_file *f = mr_calloc(1, sizeof *f);
    if (!f)
        return mr_fail_memory(st, sizeof *f, "a file");
    f->fd = -1;
    f->path = mr_strdup(url);
    mr_code rc = f->path ? mr_buffer_alloc(&f->buffer, ROOM, st)
                         : mr_fail_memory(st, strlen(url), "a file name");
    if (rc == MR_OK)
        rc = mr__upload_open(&f->upload, url, opts, st);
    if (rc == MR_OK)
        *out = f;
    else
        mr_atomic_file_abort(f);
    return rc;
}

mr_code mr_atomic_file_open(mr_atomic_file **out, const char *path, const mr_atomic_file_opts *opts,
                            mr_status *st)
{
    return create(out, path, opts ? opts : &(mr_atomic_file_opts){0}, true, st);
}

static mr_code write_out(mr_atomic_file *f, const void *data, size_t n, mr_status *st)
{
    if (f->upload)
        return mr__upload_put(f->upload, data, n, st);
    return mr__write_all(f->fd, data, n) == 0 ? MR_OK : fail(f->path, "cannot write the file", st);
}

static mr_code flush(mr_atomic_file *f, mr_status *st)
{
    if (f->used)
        MR_TRY(write_out(f, mr_buffer_data(f->buffer), f->used, st));
    f->used = 0;
    return MR_OK;
}

void *mr__atomic_file_room(const mr_atomic_file *f, size_t *n)
{
    *n = ROOM - f->used;
    return (char *)mr_buffer_data(f->buffer) + f->used;
}

mr_code mr__atomic_file_wrote(mr_atomic_file *f, size_t n, mr_status *st)
{
    f->used += n;
    return f->used == ROOM ? flush(f, st) : MR_OK;
}

mr_code mr_atomic_file_put(mr_atomic_file *f, const void *data, size_t n, mr_status *st)
{
    const char *from = data;
    while (n) {
        size_t room;
        if (!f->buffer || (!f->used && n >= ROOM))
            return write_out(f, from, n, st);
        void *to = mr__atomic_file_room(f, &room);
        size_t part = n < room ? n : room;
        memcpy(to, from, part);
        from += part;
        n -= part;
        MR_TRY(mr__atomic_file_wrote(f, part, st));
    }
    return MR_OK;
}

mr_code mr__atomic_file_rewind(mr_atomic_file *f, mr_status *st)
{
    MR_TRY(flush(f, st));
    if (f->upload) {
        mr__upload_rewind(f->upload);
        return MR_OK;
    }
    return mr__sys->lseek(f->fd, 0, SEEK_SET) == 0
               ? MR_OK
               : fail(f->path, "cannot seek to the start of the file", st);
}

mr_code mr__atomic_file_finish(mr_atomic_file *f, mr_status *st)
{
    MR_TRY(flush(f, st));
    if (f->upload)
        return mr__upload_finish(f->upload, st);
    if (f->sync != MR_SYNC_NONE && mr__fsync_again(f->fd) != 0)
        return fail(f->path, "cannot sync the file to disk", st);
    int fd = f->fd;
    f->fd = -1;
    return mr__sys->close(fd) != 0 && errno != EINTR ? fail(f->path, "cannot close the file", st)
                                                     : MR_OK;
}

mr_code mr_directory_sync(const char *path, mr_status *st)
{
    int fd = mr__open_again(path, O_RDONLY | O_DIRECTORY);
    int rc = fd < 0 ? -1 : mr__fsync_again(fd), err = errno;
    if (fd >= 0)
        mr__sys->close(fd);
    if (rc == 0 || err == EACCES || err == EINVAL || err == EROFS || err == EOPNOTSUPP)
        return MR_OK;
    errno = err;
    return fail(path, "cannot sync the directory to disk", st);
}

static mr_code sync_directory_of(const char *path, mr_status *st)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash ? mr_strndup(path, (size_t)(slash - path) + 1) : mr_strdup(".");
    if (!directory)
        return mr_fail_memory(st, strlen(path), "a file name");
    mr_code rc = mr_directory_sync(directory, st);
    mr_free(directory);
    return rc;
}

mr_code mr_atomic_file_close(mr_atomic_file *f, mr_code rc, mr_status *st)
{
    if (!f)
        return rc;
    if (rc == MR_OK && (f->fd >= 0 || f->upload))
        rc = mr__atomic_file_finish(f, st);
    if (rc == MR_OK && f->upload)
        rc = mr__upload_commit(f->upload, st);
    if (rc == MR_OK && f->partial) {
        if (mr__rename_again(f->partial, f->path) != 0)
            rc = fail(f->path, "cannot rename the file to its final name", st);
        f->created = rc != MR_OK;
        if (rc == MR_OK && f->sync == MR_SYNC_ALL)
            rc = sync_directory_of(f->path, st);
    }
    mr_atomic_file_abort(f);
    return rc;
}

mr_code mr_file_replace(const char *path, const void *data, size_t n, mr_status *st)
{
    struct stat s;
    mr_atomic_file *f;
    bool in_place = !mr__is_url(path) && mr__sys->stat(path, &s) == 0 && !S_ISREG(s.st_mode);
    mr_atomic_file_opts o = {in_place ? MR_SYNC_NONE : MR_SYNC_ALL, in_place};
    MR_TRY(create(&f, path, &o, false, st));
    return mr_atomic_file_close(f, mr_atomic_file_put(f, data, n, st), st);
}
