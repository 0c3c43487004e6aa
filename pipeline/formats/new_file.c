/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"

/* Files written in pieces of this size are faster to read while still cached: the write size sets
 * the size of the page cache's folios. */
enum { ROOM = 1 << 20, MAX_RETRIES = 1000 };

/* ---- system calls ---- */

#define AGAIN(call)                                                                                \
    for (int tries = 0;; tries++) {                                                                \
        int rc = call;                                                                             \
        if (rc >= 0 || errno != EINTR || tries == MAX_RETRIES)                                     \
            return rc;                                                                             \
    }

int mr__open_again(const char *path, int flags)
{
    AGAIN(mr__sys->open(path, flags | O_CLOEXEC, 0666))
}

int mr__fsync_again(int fd)
{
    AGAIN(mr__sys->fsync(fd))
}

int mr__rename_again(const char *from, const char *to)
{
    AGAIN(mr__sys->rename(from, to))
}

int mr__unlink_again(const char *path)
{
    AGAIN(mr__sys->unlink(path))
}

char *mr__hidden_name(const char *path, const char *ending)
{
    static atomic_uint counter;
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0, size = strlen(path) + strlen(ending) + 64;
    char *name = mr_malloc(size);
    if (name)
        snprintf(name, size, "%.*s.%s.%ld-%u%s", (int)n, path, path + n, (long)getpid(),
                 atomic_fetch_add(&counter, 1), ending);
    return name;
}

/* ---- files ---- */

void mr__new_file_abort(mr__new_file *f)
{
    if (!f->path)
        return;
    if (f->fd >= 0)
        mr__sys->close(f->fd);
    if (f->created)
        mr__unlink_again(f->partial);
    mr_buffer_unref(f->buffer);
    mr_free(f->path);
    mr_free(f->partial);
    memset(f, 0, sizeof *f);
}

static mr_code fail(const mr__new_file *f, int err, const char *what, mr_status *st)
{
    mr_code rc = mr_fail_errno(st, err, "%s", what);
    mr_status_at(st, f->path, -1, -1);
    return rc;
}

mr_code mr__new_file_open(mr__new_file *f, const char *path, mr_status *st)
{
    *f = (mr__new_file){.fd = -1, .path = mr_strdup(path)};
    if (!f->path)
        return mr_fail_memory(st, strlen(path), "a file name");
    f->partial = mr__hidden_name(path, ".partial");
    mr_code rc = f->partial ? mr_buffer_alloc(&f->buffer, ROOM, st)
                            : mr_fail_memory(st, strlen(path), "a file name");
    if (rc == MR_OK) {
        f->fd = mr__open_again(f->partial, O_WRONLY | O_CREAT | O_EXCL);
        f->created = f->fd >= 0;
        if (f->fd < 0)
            rc = fail(f, errno,
                      errno == ENOENT ? "cannot create the file: its directory does not exist"
                                      : "cannot create the file",
                      st);
    }
    if (rc != MR_OK)
        mr__new_file_abort(f);
    return rc;
}

static mr_code flush(mr__new_file *f, mr_status *st)
{
    const char *data = mr_buffer_data(f->buffer);
    for (size_t done = 0; done < f->used;) {
        ssize_t n = mr__sys->write(f->fd, data + done, f->used - done);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0) {
            mr_code rc = fail(f, n < 0 ? errno : ENOSPC, "cannot write; the file is removed", st);
            mr__unlink_again(f->partial);
            f->created = false;
            return rc;
        }
        done += (size_t)n;
    }
    f->used = 0;
    return MR_OK;
}

void *mr__new_file_room(const mr__new_file *f, size_t *n)
{
    *n = ROOM - f->used;
    return (char *)mr_buffer_data(f->buffer) + f->used;
}

mr_code mr__new_file_wrote(mr__new_file *f, size_t n, mr_status *st)
{
    f->used += n;
    return f->used == ROOM ? flush(f, st) : MR_OK;
}

mr_code mr__new_file_put(mr__new_file *f, const void *data, size_t n, mr_status *st)
{
    const char *from = data;
    while (n) {
        size_t room;
        void *to = mr__new_file_room(f, &room);
        size_t part = n < room ? n : room;
        memcpy(to, from, part);
        from += part;
        n -= part;
        MR_TRY(mr__new_file_wrote(f, part, st));
    }
    return MR_OK;
}

mr_code mr__new_file_rewind(mr__new_file *f, mr_status *st)
{
    MR_TRY(flush(f, st));
    return mr__sys->lseek(f->fd, 0, SEEK_SET) == 0
               ? MR_OK
               : fail(f, errno, "cannot go to the head of the file", st);
}

mr_code mr__new_file_finish(mr__new_file *f, bool sync, mr_status *st)
{
    MR_TRY(flush(f, st));
    if (sync && mr__fsync_again(f->fd) != 0)
        return fail(f, errno, "cannot write to the disk", st);
    int fd = f->fd;
    f->fd = -1;
    return mr__sys->close(fd) != 0 && errno != EINTR ? fail(f, errno, "cannot close the file", st)
                                                     : MR_OK;
}

mr_code mr__new_file_close(mr__new_file *f, bool sync, mr_status *st)
{
    mr_code rc = f->fd >= 0 ? mr__new_file_finish(f, sync, st) : MR_OK;
    if (rc == MR_OK && mr__rename_again(f->partial, f->path) != 0)
        rc = fail(f, errno, "cannot give the file its name", st);
    if (rc == MR_OK)
        f->created = false;
    mr__new_file_abort(f);
    return rc;
}
