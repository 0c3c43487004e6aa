/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/files/saved_files.h"
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/remote/store_internal.h"
#include "pipeline/system/retry.h"
#include "trainer/files/remote_saved.h"

enum { MAX_DEPTH = 4 };

const mr_atomic_file_opts mr__of_new_directory = {MR_SYNC_CONTENTS, true};
const mr_file_read_opts mr__of_saved = {.regular = true};

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

mr_code mr__look_there(const char *path, bool *there, mr_status *st)
{
    if (mr__store_is_url(path))
        return mr__remote_saved_look(path, there, st);
    *there = mr__is_there(path);
    return MR_OK;
}

mr_code mr__find_saved(const char *path, char **out, mr_status *st)
{
    *out = NULL;
    if (mr__store_is_url(path))
        return mr__remote_saved_find(path, out, st);
    if (!mr__is_there(path))
        return MR_OK;
    *out = mr_strdup(path);
    return *out ? MR_OK : fail_name(st, path);
}

bool mr__is_directory(const char *path)
{
    struct stat s;
    return mr__sys->stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

char *mr__path_in(const char *directory, const char *name)
{
    size_t n = strlen(directory);
    return mr_strf("%s%s%s", directory, n && directory[n - 1] == '/' ? "" : "/", name);
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
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t name = n;
    while (name > 0 && path[name - 1] != '/')
        name--;
    return mr_strf("%.*s.%.*s%s", (int)name, path, (int)(n - name), path + name, ending);
}

void mr__remove_empty(const char *directory)
{
    if (mr__store_is_url(directory))
        return;
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

static mr_code sync_parent(const char *path, mr_status *st)
{
    char *parent = parent_of(path);
    if (!parent)
        return fail_name(st, path);
    mr_code rc = mr_directory_sync(parent, st);
    mr_free(parent);
    return rc;
}

static mr_code rename_to(const char *from, const char *to, mr_status *st)
{
    return mr__rename_again(from, to) == 0 ? MR_OK : fail_at(st, "rename a file to this name", to);
}

mr_code mr__write_in_place(const char *path, const void *bytes, size_t n, mr_status *st)
{
    mr_atomic_file *f;
    MR_TRY(mr_atomic_file_open(&f, path, &mr__of_new_directory, st));
    return mr_atomic_file_close(f, mr_atomic_file_put(f, bytes, n, st), st);
}

/* ---- directories ---- */

mr_code mr__each_name(const char *directory,
                      mr_code (*fn)(void *ctx, const char *name, mr_status *st), void *ctx,
                      mr_status *st)
{
    mr_code rc = MR_OK;
    const struct dirent *e;
    if (mr__store_is_url(directory))
        return mr__remote_saved_names(directory, fn, ctx, st);
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
    return mr__store_is_url(path) ? mr__remote_saved_remove(path, st)
                                  : remove_at(path, MAX_DEPTH, st);
}

typedef struct partial {
    const char *name, *directory;
} partial;

/* ".NAME.123-1.partial" */
static mr_code remove_partial(void *ctx, const char *found, mr_status *st)
{
    const partial *p = ctx;
    size_t n = strlen(p->name);
    int end = 0;
    if (found[0] != '.' || strncmp(found + 1, p->name, n) != 0 || found[n + 1] != '.' ||
        sscanf(found + n + 2, "%*[0-9]-%*[0-9].partial%n", &end) != 0 || end == 0 ||
        found[n + 2 + (size_t)end])
        return MR_OK;
    char *path = mr__path_in(p->directory, found);
    if (!path)
        return fail_name(st, found);
    mr_code rc = mr__remove_saved(path, st);
    mr_free(path);
    return rc;
}

mr_code mr__remove_partial(char *path, mr_status *st)
{
    char *directory = path ? parent_of(path) : NULL;
    mr_code rc = directory ? MR_OK : mr_fail_memory(st, path ? strlen(path) : 1, "a file name");
    /* A store shows no object before it is complete. */
    if (rc == MR_OK && !mr__store_is_url(path) && mr__is_directory(directory))
        rc = mr__each_name(directory, remove_partial, &(partial){mr__name_in_path(path), directory},
                           st);
    mr_free(directory);
    mr_free(path);
    return rc;
}

mr_code mr__make_directories(const char *path, mr_status *st)
{
    mr_code rc = MR_OK;
    if (mr__store_is_url(path))
        return mr__store_check_writing(path, st);
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
            "it contains %s, which is not part of a saved model, so it is not replaced; choose "
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
    mr_fail(st, MR_ALREADY_EXISTS, "a file of this name exists; choose another name");
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
    bool remote = mr__store_is_url(path);
    *d = (mr__new_directory){mr_strndup(path, n), remote ? NULL : hidden_beside(path, ".partial")};
    mr_code rc = !d->path || (!remote && !d->partial) ? fail_name(st, path)
                 : remote ? mr__remote_saved_begin(d->path, &d->partial, st)
                          : open_directory(d, ours, st);
    if (rc != MR_OK) {
        mr_free(d->path);
        mr_free(d->partial);
    }
    return rc;
}

mr_code mr__drop_saved(const char *path, mr_status *st)
{
    if (mr__store_is_url(path))
        return mr__remote_saved_remove(path, st);
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
    if (mr__store_is_url(d->path))
        return mr__remote_saved_publish(d->path, d->partial, done, st);
    if (!mr__is_there(d->path)) {
        MR_TRY(rename_to(d->partial, d->path, st));
        *done = true;
        return sync_parent(d->path, st);
    }
    MR__RETRY(rc, mr__sys->rename_exchange(d->partial, d->path));
    if (rc != 0 && (errno == EINVAL || errno == ENOSYS))
        return replace_slowly(d, st);
    if (rc != 0)
        return fail_at(st, "rename a file to this name", d->path);
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
    if (rc == MR_OK && !mr__store_is_url(d->path))
        rc = mr_directory_sync(d->partial, st);
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
