/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/files/saved_files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"

enum { MAX_RETRIES = 1000, MAX_FILE = 1 << 30 /* bytes per call */, MAX_DEPTH = 4 };

/* Repeats a call that a signal interrupted. */
#define AGAIN(rc, call)                                                                            \
    do {                                                                                           \
        int tries = 0;                                                                             \
        do                                                                                         \
            (rc) = (call);                                                                         \
        while ((rc) < 0 && errno == EINTR && tries++ < MAX_RETRIES);                               \
    } while (0)

static mr_code fail_at(mr_status *st, const char *what, const char *path)
{
    mr_code rc = mr_fail_errno(st, errno, "cannot %s", what);
    mr_status_at(st, path, -1, -1);
    return rc;
}

static mr_code fail_name(mr_status *st, const char *path)
{
    return mr_fail_memory(st, strlen(path), "a file name");
}

bool mr__is_there(const char *path)
{
    struct stat s;
    return mr__sys->stat(path, &s) == 0;
}

bool mr__is_directory(const char *path)
{
    struct stat s;
    return mr__sys->stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

char *mr__path_in(const char *directory, const char *name)
{
    size_t n = strlen(directory), size = n + strlen(name) + 2;
    char *path = mr_malloc(size);
    if (path)
        snprintf(path, size, "%s%s%s", directory, n && directory[n - 1] == '/' ? "" : "/", name);
    return path;
}

const char *mr__name_in_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "." NAME ending, in the directory of path, owned; NULL: out of memory. Ignores trailing
 * slashes. */
static char *hidden_beside(const char *path, const char *ending)
{
    size_t n = strlen(path), size = n + strlen(ending) + 2;
    char *out = mr_malloc(size);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t name = n;
    while (name > 0 && path[name - 1] != '/')
        name--;
    if (out)
        snprintf(out, size, "%.*s.%.*s%s", (int)name, path, (int)(n - name), path + name, ending);
    return out;
}

/* ---- files ---- */

static mr_code read_open(int fd, size_t most, void **bytes, size_t *size, mr_status *st)
{
    struct stat s;
    int rc;
    AGAIN(rc, mr__sys->fstat(fd, &s));
    if (rc != 0)
        return mr_fail_errno(st, errno, "cannot look at the file");
    if (S_ISDIR(s.st_mode))
        return mr_fail_errno(st, EISDIR, "cannot read it");
    if (!S_ISREG(s.st_mode))
        return mr_fail(st, MR_INVALID_ARGUMENT, "this is no file but a pipe or a device");
    size_t n = (size_t)s.st_size, at = 0;
    if (n > most)
        return mr_fail(st, MR_OUT_OF_RANGE,
                       "it has more than the %zu bytes that such a file may have; is it the right "
                       "one?",
                       most);
    char *p = mr_malloc(n + 1);
    if (!p)
        return mr_fail_memory(st, n, "the contents of a file");
    while (at < n) {
        ssize_t got;
        AGAIN(got, mr__sys->pread(fd, p + at, n - at < MAX_FILE ? n - at : MAX_FILE, (off_t)at));
        if (got <= 0) {
            mr_code bad = got < 0
                              ? mr_fail_errno(st, errno, "cannot read it")
                              : mr_fail(st, MR_DATA_LOSS, "it became shorter while it was read");
            mr_free(p);
            return bad;
        }
        at += (size_t)got;
    }
    p[n] = '\0';
    *bytes = p;
    *size = n;
    return MR_OK;
}

mr_code mr__read_file(const char *path, size_t most, void **bytes, size_t *size, mr_status *st)
{
    int fd;
    AGAIN(fd, mr__sys->open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0));
    if (fd < 0)
        return fail_at(st, "open it", path);
    mr_code rc = read_open(fd, most, bytes, size, st);
    mr__sys->close(fd);
    if (rc != MR_OK)
        mr_status_at(st, path, -1, -1);
    return rc;
}

/* The name requested by the caller. */
static const char *name_of(const mr__saved_file *f)
{
    return f->becomes ? f->becomes : f->path;
}

static mr_code open_file(mr__saved_file *f, mr_status *st)
{
    AGAIN(f->fd, mr__sys->open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (f->fd >= 0)
        return MR_OK;
    mr_code rc = fail_at(st, "make the file", name_of(f));
    mr_free(f->path);
    mr_free(f->becomes);
    return rc;
}

mr_code mr__saved_file_open(mr__saved_file *f, const char *path, mr_status *st)
{
    *f = (mr__saved_file){.fd = -1, .path = mr_strdup(path)};
    if (!f->path)
        return fail_name(st, path);
    return open_file(f, st);
}

mr_code mr__saved_file_open_beside(mr__saved_file *f, const char *path, mr_status *st)
{
    *f = (mr__saved_file){
        .fd = -1, .path = hidden_beside(path, ".partial"), .becomes = mr_strdup(path)};
    if (f->path && f->becomes)
        return open_file(f, st);
    mr_free(f->path);
    mr_free(f->becomes);
    return fail_name(st, path);
}

mr_code mr__saved_file_write(mr__saved_file *f, const void *bytes, size_t n, mr_status *st)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t put;
        AGAIN(put, mr__sys->write(f->fd, p, n < MAX_FILE ? n : MAX_FILE));
        if (put < 0)
            return fail_at(st, "write it", name_of(f));
        p += put;
        n -= (size_t)put;
    }
    return MR_OK;
}

void mr__remove_empty(const char *directory)
{
    if (mr__sys->rmdir(directory) != 0)
        errno = 0; /* it is not empty */
}

/* The parent directory of a path, owned. */
static char *parent_of(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n ? mr_strndup(path, n) : mr_strdup(".");
}

mr_code mr__sync_directory(const char *path, mr_status *st)
{
    int fd, rc = -1, err;
    AGAIN(fd, mr__sys->open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
    if (fd >= 0)
        AGAIN(rc, mr__sys->fsync(fd));
    err = errno;
    if (fd >= 0)
        mr__sys->close(fd);
    /* Ignored if the file system does not support it, or the directory cannot be opened. */
    if (rc == 0 || err == EACCES || err == EINVAL || err == EROFS || err == EOPNOTSUPP)
        return MR_OK;
    errno = err;
    return fail_at(st, "write the directory to the disk", path);
}

static mr_code sync_parent(const char *path, mr_status *st)
{
    char *parent = parent_of(path);
    if (!parent)
        return fail_name(st, path);
    mr_code rc = mr__sync_directory(parent, st);
    mr_free(parent);
    return rc;
}

static mr_code rename_to(const char *from, const char *to, mr_status *st)
{
    int rc;
    AGAIN(rc, mr__sys->rename(from, to));
    return rc == 0 ? MR_OK : fail_at(st, "give it this name", to);
}

mr_code mr__saved_file_close(mr__saved_file *f, mr_code rc, mr_status *st)
{
    int r = 0;
    if (rc == MR_OK)
        AGAIN(r, mr__sys->fsync(f->fd));
    if (r != 0)
        rc = fail_at(st, "write it to the disk", name_of(f));
    if (mr__sys->close(f->fd) != 0 && rc == MR_OK && errno != EINTR)
        rc = fail_at(st, "write it", name_of(f));
    bool renamed = false;
    if (rc == MR_OK && f->becomes) {
        rc = rename_to(f->path, f->becomes, st);
        renamed = rc == MR_OK;
        if (rc == MR_OK)
            rc = sync_parent(f->becomes, st);
    }
    if (rc != MR_OK && !renamed)
        mr__sys->unlink(f->path);
    mr_free(f->path);
    mr_free(f->becomes);
    return rc;
}

mr_code mr__write_file(const char *path, const void *bytes, size_t n, bool beside, mr_status *st)
{
    mr__saved_file f;
    MR_TRY(beside ? mr__saved_file_open_beside(&f, path, st) : mr__saved_file_open(&f, path, st));
    return mr__saved_file_close(&f, mr__saved_file_write(&f, bytes, n, st), st);
}

/* ---- directories ---- */

mr_code mr__each_name(const char *directory,
                      mr_code (*fn)(void *ctx, const char *name, mr_status *st), void *ctx,
                      mr_status *st)
{
    mr_code rc = MR_OK;
    const struct dirent *e;
    DIR *d = mr__sys->opendir(directory);
    if (!d)
        return fail_at(st, "list the directory", directory);
    while (rc == MR_OK && (errno = 0, e = mr__sys->readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = fn(ctx, e->d_name, st);
    if (rc == MR_OK && errno != 0)
        rc = fail_at(st, "list the directory", directory);
    mr__sys->closedir(d);
    return rc;
}

typedef struct place {
    const char *directory;
    int depth;
} place;

static mr_code remove_at(const char *path, int depth, mr_status *st);

static mr_code remove_name(void *ctx, const char *name, mr_status *st)
{
    const place *at = ctx;
    char *path = mr__path_in(at->directory, name);
    if (!path)
        return fail_name(st, name);
    mr_code rc = remove_at(path, at->depth, st);
    mr_free(path);
    return rc;
}

static mr_code remove_at(const char *path, int depth, mr_status *st)
{
    if (mr__sys->unlink(path) == 0 || errno == ENOENT)
        return MR_OK;
    if (depth == 0 || (errno != EISDIR && errno != EPERM) || !mr__is_directory(path))
        return fail_at(st, "remove it", path);
    MR_TRY(mr__each_name(path, remove_name, &(place){path, depth - 1}, st));
    return mr__sys->rmdir(path) == 0 || errno == ENOENT ? MR_OK : fail_at(st, "remove it", path);
}

mr_code mr__remove_saved(const char *path, mr_status *st)
{
    return remove_at(path, MAX_DEPTH, st);
}

mr_code mr__make_directories(const char *path, mr_status *st)
{
    mr_code rc = MR_OK;
    if (mr__is_directory(path))
        return MR_OK;
    char *parent = parent_of(path);
    if (!parent)
        return fail_name(st, path);
    if (strcmp(parent, path) != 0)
        rc = mr__make_directories(parent, st);
    mr_free(parent);
    if (rc == MR_OK && mr__sys->mkdir(path, 0777) != 0 && errno != EEXIST)
        rc = fail_at(st, "make the directory", path);
    return rc;
}

typedef struct owner {
    bool (*ours)(const char *name);
    const char *path;
} owner;

static mr_code check_name(void *ctx, const char *name, mr_status *st)
{
    const owner *o = ctx;
    if (o->ours(name))
        return MR_OK;
    mr_fail(st, MR_ALREADY_EXISTS,
            "it has %s in it, which is not part of a saved model: it is not replaced; choose "
            "another name",
            name);
    mr_status_at(st, o->path, -1, -1);
    return MR_ALREADY_EXISTS;
}

static mr_code check_place(const char *path, bool (*ours)(const char *name), mr_status *st)
{
    if (!mr__is_there(path))
        return MR_OK;
    if (mr__is_directory(path))
        return mr__each_name(path, check_name, &(owner){ours, path}, st);
    mr_fail(st, MR_ALREADY_EXISTS, "there is a file of this name; choose another");
    mr_status_at(st, path, -1, -1);
    return MR_ALREADY_EXISTS;
}

static mr_code open_directory(mr__new_directory *d, bool (*ours)(const char *name), mr_status *st)
{
    char *parent = parent_of(d->path);
    if (!parent)
        return fail_name(st, d->path);
    mr_code rc = mr__make_directories(parent, st);
    mr_free(parent);
    MR_TRY(rc);
    MR_TRY(check_place(d->path, ours, st));
    MR_TRY(mr__remove_saved(d->partial, st)); /* of a process that was killed */
    return mr__sys->mkdir(d->partial, 0777) == 0 ? MR_OK
                                                 : fail_at(st, "make the directory", d->path);
}

mr_code mr__new_directory_open(mr__new_directory *d, const char *path,
                               bool (*ours)(const char *name), mr_status *st)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the name of the directory is empty");
    *d = (mr__new_directory){mr_strndup(path, n), hidden_beside(path, ".partial")};
    mr_code rc = d->path && d->partial ? open_directory(d, ours, st) : fail_name(st, path);
    if (rc != MR_OK) {
        mr_free(d->path);
        mr_free(d->partial);
    }
    return rc;
}

mr_code mr__drop_saved(const char *path, mr_status *st)
{
    char *hidden = hidden_beside(path, ".partial");
    if (!hidden)
        return fail_name(st, path);
    mr_code rc = mr__remove_saved(hidden, st);
    if (rc == MR_OK)
        rc = rename_to(path, hidden, st);
    if (rc == MR_OK)
        rc = mr__remove_saved(hidden, st);
    mr_free(hidden);
    return rc;
}

/* If the file system cannot exchange names, the directory is missing for a moment. */
static mr_code replace_slowly(const mr__new_directory *d, mr_status *st)
{
    char *old = hidden_beside(d->path, ".old");
    if (!old)
        return fail_name(st, d->path);
    mr_code rc = mr__remove_saved(old, st);
    if (rc == MR_OK)
        rc = rename_to(d->path, old, st);
    if (rc == MR_OK && (rc = rename_to(d->partial, d->path, st)) != MR_OK)
        (void)!rename_to(old, d->path, NULL);
    if (rc == MR_OK)
        rc = sync_parent(d->path, st);
    if (rc == MR_OK)
        rc = mr__remove_saved(old, st);
    mr_free(old);
    return rc;
}

/* *done: the new one has its final name. */
static mr_code give_name(const mr__new_directory *d, bool *done, mr_status *st)
{
    int rc;
    if (!mr__is_there(d->path)) {
        MR_TRY(rename_to(d->partial, d->path, st));
        *done = true;
        return sync_parent(d->path, st);
    }
    AGAIN(rc, mr__sys->rename_exchange(d->partial, d->path));
    if (rc != 0 && (errno == EINVAL || errno == ENOSYS))
        return replace_slowly(d, st);
    if (rc != 0)
        return fail_at(st, "give it this name", d->path);
    *done = true;
    MR_TRY(sync_parent(d->path, st));
    return mr__remove_saved(d->partial, st); /* now the old one */
}

mr_code mr__new_directory_drop(mr__new_directory *d, mr_status *st)
{
    mr_code rc = mr__remove_saved(d->partial, st);
    mr_free(d->path);
    mr_free(d->partial);
    return rc;
}

/* Replaces the hidden directory by the requested one in the error. */
static void name_place(const mr__new_directory *d, mr_status *st)
{
    size_t n = strlen(d->partial);
    char inside[sizeof st->file];
    if (!st || strncmp(st->file, d->partial, n) != 0)
        return;
    snprintf(inside, sizeof inside, "%s", st->file + n);
    snprintf(st->file, sizeof st->file, "%s%s", d->path, inside);
}

mr_code mr__new_directory_close(mr__new_directory *d, mr_code rc, mr_status *st)
{
    bool done = false;
    if (rc == MR_OK)
        rc = mr__sync_directory(d->partial, st);
    if (rc != MR_OK)
        name_place(d, st);
    else
        rc = give_name(d, &done, st);
    if (rc != MR_OK && !done && mr__remove_saved(d->partial, NULL) != MR_OK)
        errno = 0; /* the next write removes it */
    mr_free(d->path);
    mr_free(d->partial);
    return rc;
}
