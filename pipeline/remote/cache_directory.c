/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/cache_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "pipeline/system/retry.h"
#include "pipeline/warn_once.h"

enum { MOST_FILES = 1 << 26, STATE = 256 };
#define MOST_PATH   (PATH_MAX - MR__CACHE_NAME - (int)sizeof "/objects/.part")
#define LOCK_WAIT   (INT64_C(10) * 1000000000) /* for processes that count; they are stopped else */
#define LOCK_PAUSE  INT64_C(2000000)
#define MOST_SLACK  ((int64_t)1 << 30)
#define STATE_FILE  "millrace-cache"
#define FIRST_WORDS "millrace cache "

/* What the state file says. */
typedef struct state {
    int fd; /* locked */
    int64_t limit, bytes;
} state;

static int64_t cost_of(int64_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

void mr__cache_path(const mr__cache *c, const char *name, bool part, char *out)
{
    snprintf(out, PATH_MAX, "%s/objects/%s%s", c->directory, name, part ? ".part" : "");
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

static int64_t nanoseconds(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool is_read_only(int err)
{
    return err == EACCES || err == EPERM || err == EROFS;
}

void mr__cache_give_up(mr__cache *c, int err)
{
    if (atomic_exchange(&c->closed, true))
        return;
    if (err == ENOSPC || err == EDQUOT)
        mr__warn_once("the disk of the cache %s is full: files are read without it", c->directory);
    else if (is_read_only(err))
        mr__warn_once(
            "the cache %s cannot be written to (%s): files that it lacks are read without it",
            c->directory, strerror(err));
    else
        mr__warn_once("the cache %s fails (%s): files are read without it", c->directory,
                      strerror(err));
}

/* ---- the state, under its lock ---- */

static bool take_lock(int fd)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE};
    int64_t until = mr__clock_ns(CLOCK_MONOTONIC) + LOCK_WAIT;
    for (int tries = 0; mr__sys->flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        bool waits = errno == EWOULDBLOCK || (errno == EINTR && tries < MR__MOST_RETRIES);
        if (!waits)
            return false;
        if (mr__clock_ns(CLOCK_MONOTONIC) > until) {
            errno = ETIMEDOUT;
            return false;
        }
        nanosleep(&pause, NULL);
    }
    return true;
}

static int64_t default_limit(const mr__cache *c)
{
    struct statvfs v;
    if (mr__sys->statvfs(c->directory, &v) != 0)
        return (int64_t)1 << 30;
    uint64_t fifth = (uint64_t)v.f_bavail * v.f_frsize / 5;
    return fifth < (uint64_t)1 << 20 ? (int64_t)1 << 20 : (int64_t)fifth;
}

static bool store(const state *s)
{
    char text[STATE];
    int n =
        snprintf(text, sizeof text, FIRST_WORDS "1\nlimit %020" PRId64 "\nbytes %020" PRId64 "\n",
                 s->limit, s->bytes);
    return mr__sys->lseek(s->fd, 0, SEEK_SET) == 0 && mr__write_all(s->fd, text, (size_t)n) == 0;
}

/* false: the text is not a state, or is a later version's. */
static bool parse(const char *text, state *s, int *version)
{
    return sscanf(text, FIRST_WORDS "%d limit %" SCNd64 " bytes %" SCNd64, version, &s->limit,
                  &s->bytes) == 3 &&
           *version == 1 && s->limit > 0 && s->bytes >= 0;
}

/* What a directory that cannot be written to says, without its lock. */
static void peek(mr__cache *c)
{
    char path[PATH_MAX], text[STATE + 1] = "";
    int fd, version = 0;
    state s;
    snprintf(path, sizeof path, "%s/" STATE_FILE, c->directory);
    MR__RETRY(fd, mr__sys->open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0));
    if (fd < 0)
        return;
    if (mr__read_all(fd, text, STATE, 0) > 0 && parse(text, &s, &version))
        atomic_store(&c->limit, s.limit);
    mr__sys->close(fd);
}

/* Locks the directory. bytes -1: not known. false: errno */
static bool begin(mr__cache *c, state *s)
{
    char path[PATH_MAX], text[STATE + 1] = "";
    snprintf(path, sizeof path, "%s/" STATE_FILE, c->directory);
    MR__RETRY(s->fd, mr__sys->open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (s->fd < 0)
        return false;
    if (!take_lock(s->fd) || mr__read_all(s->fd, text, STATE, 0) < 0) {
        int err = errno;
        mr__sys->close(s->fd);
        errno = err;
        return false;
    }
    int version = 0;
    if (!parse(text, s, &version)) {
        if (version > 1) {
            mr__sys->close(s->fd);
            errno = EPROTO;
            return false;
        }
        s->limit = default_limit(c);
        s->bytes = -1;
    }
    atomic_store(&c->limit, s->limit);
    return true;
}

/* A child of fork may have the descriptor too, so it is unlocked, not only closed. */
static void end(const state *s)
{
    mr__sys->flock(s->fd, LOCK_UN);
    mr__sys->close(s->fd);
}

/* ---- files ---- */

typedef struct file {
    char name[MR__CACHE_NAME];
    int64_t used, cost;
    struct stat is;
} file;

typedef struct files {
    file *v;
    size_t n, room;
    int64_t bytes;
} files;

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), k = strlen(ending);
    return n > k && strcmp(name + n - k, ending) == 0;
}

/* A file whose writer is gone. */
static bool is_left_over(const char *path)
{
    int fd;
    MR__RETRY(fd, mr__sys->open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0));
    if (fd < 0)
        return false;
    bool is_free = mr__sys->flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (is_free)
        mr__sys->flock(fd, LOCK_UN);
    mr__sys->close(fd);
    return is_free;
}

static mr_code add_file(mr__cache *c, files *all, const char *name, mr_status *st)
{
    char path[PATH_MAX];
    struct stat is;
    bool part = ends_in(name, ".part");
    if (name[0] == '.' || strlen(name) >= MR__CACHE_NAME + sizeof ".part")
        return MR_OK;
    mr__cache_path(c, name, false, path);
    if (mr__sys->lstat(path, &is) != 0 || !S_ISREG(is.st_mode))
        return MR_OK;
    if (part) {
        if (is_left_over(path))
            mr__unlink_again(path);
        else
            all->bytes += cost_of(is.st_size);
        return MR_OK;
    }
    if (!ends_in(name, ".piece") && !ends_in(name, ".list"))
        return MR_OK;
    MR_TRY(MR_GROW(all->v, all->room, all->n + 1, MOST_FILES, "the files of a cache", st));
    file *f = &all->v[all->n++];
    *f = (file){.used = nanoseconds(is.st_atim), .cost = cost_of(is.st_size), .is = is};
    snprintf(f->name, sizeof f->name, "%s", name);
    all->bytes += f->cost;
    return MR_OK;
}

static mr_code read_files(mr__cache *c, files *all, mr_status *st)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/objects", c->directory);
    DIR *d = mr__sys->opendir(path);
    if (!d && errno == ENOENT)
        return MR_OK;
    if (!d)
        return mr_fail_errno(st, errno, "the cache %s cannot be read", c->directory);
    mr_code rc = MR_OK;
    errno = 0;
    for (struct dirent *e; rc == MR_OK && (e = mr__sys->readdir(d)); errno = 0)
        rc = add_file(c, all, e->d_name, st);
    if (rc == MR_OK && errno)
        rc = mr_fail_errno(st, errno, "the cache %s cannot be read", c->directory);
    mr__sys->closedir(d);
    return rc;
}

static int by_use(const void *a, const void *b)
{
    const file *x = a, *y = b;
    return x->used != y->used ? (x->used > y->used) - (x->used < y->used)
                              : strcmp(x->name, y->name);
}

/* Counts all files. If they have more than `most` bytes, removes those used least recently until
 * they have at most `target`. */
static mr_code shrink(mr__cache *c, int64_t most, int64_t target, int64_t *bytes, mr_status *st)
{
    files all = {0};
    mr_code rc = read_files(c, &all, st);
    if (all.bytes <= most)
        target = INT64_MAX;
    if (rc == MR_OK && all.bytes > target && all.n)
        qsort(all.v, all.n, sizeof *all.v, by_use);
    for (size_t i = 0; rc == MR_OK && i < all.n && all.bytes > target; i++) {
        char path[PATH_MAX];
        mr__cache_path(c, all.v[i].name, false, path);
        if (mr__unlink_again(path) == 0 || errno == ENOENT)
            all.bytes -= all.v[i].cost;
    }
    *bytes = all.bytes;
    mr_free(all.v);
    return rc;
}

/* Counts `cost` more bytes, for which others are removed if need be. */
static bool make_room(mr__cache *c, state *s, int64_t cost)
{
    if (cost > s->limit)
        return false;
    if (s->bytes < 0 || s->bytes + cost > s->limit) {
        /* A little more than needed is removed, since looking through all files takes time. */
        int64_t slack = s->limit / 16 < MOST_SLACK ? s->limit / 16 : MOST_SLACK;
        int64_t most = s->limit - cost;
        if (shrink(c, most, most > slack ? most - slack : most, &s->bytes, NULL) != MR_OK)
            return false;
        if (s->bytes > most)
            return store(s) && false;
    }
    s->bytes += cost;
    return store(s);
}

/* ---- claims ---- */

static mr__claim_state failed(mr__cache *c, mr__claim *claim)
{
    int err = errno;
    if (claim->fd >= 0)
        mr__sys->close(claim->fd);
    claim->fd = -1;
    if (err == ENOSPC || err == EDQUOT || is_read_only(err))
        mr__cache_give_up(c, err);
    return MR__CLAIM_NONE;
}

/* Opens and locks the .part file. *again: it was removed meanwhile. */
static mr__claim_state lock_part(mr__cache *c, const char *path, mr__claim *claim, bool *again)
{
    struct stat mine, named;
    *again = false;
    MR__RETRY(claim->fd, mr__sys->open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (claim->fd < 0)
        return failed(c, claim);
    int locked;
    MR__RETRY(locked, mr__sys->flock(claim->fd, LOCK_EX | LOCK_NB));
    bool busy = locked != 0 && errno == EWOULDBLOCK;
    if ((locked != 0 && !busy) || mr__sys->fstat(claim->fd, &mine) != 0)
        return failed(c, claim);
    claim->file = mine.st_ino;
    claim->changed = nanoseconds(mine.st_mtim);
    *again = !busy && (mr__sys->stat(path, &named) != 0 || !is_same(&mine, &named));
    if (busy || *again) {
        mr__sys->close(claim->fd);
        claim->fd = -1;
    }
    return busy ? MR__CLAIM_BUSY : MR__CLAIM_MINE;
}

static bool has_name(int fd, const char *path)
{
    struct stat mine, named;
    return mr__sys->fstat(fd, &mine) == 0 && mr__sys->stat(path, &named) == 0 &&
           is_same(&mine, &named);
}

static void remove_part(const char *path, mr__claim *claim)
{
    if (has_name(claim->fd, path))
        mr__unlink_again(path);
    mr__sys->close(claim->fd);
    claim->fd = -1;
}

mr__claim_state mr__claim_take(mr__cache *c, const char *name, int64_t bytes, bool replace,
                               mr__claim *out)
{
    char part[PATH_MAX], whole[PATH_MAX];
    struct stat is;
    state s;
    bool again = true;
    mr__claim_state found = MR__CLAIM_NONE;
    *out = (mr__claim){.name = name, .fd = -1, .cost = cost_of(bytes)};
    mr__cache_path(c, name, true, part);
    mr__cache_path(c, name, false, whole);
    if (!replace && mr__sys->stat(whole, &is) == 0)
        return MR__CLAIM_DONE;
    if (atomic_load(&c->closed))
        return MR__CLAIM_NONE;
    for (int tries = 0; again && tries < MR__MOST_RETRIES; tries++)
        found = lock_part(c, part, out, &again);
    if (again || found != MR__CLAIM_MINE)
        return again ? MR__CLAIM_NONE : found;
    if (!replace && mr__sys->stat(whole, &is) == 0) { /* since the look above */
        remove_part(part, out);
        return MR__CLAIM_DONE;
    }
    if (!begin(c, &s)) {
        int err = errno;
        remove_part(part, out);
        errno = err;
        return failed(c, out);
    }
    errno = 0;
    bool good = make_room(c, &s, out->cost) && mr__sys->ftruncate(out->fd, 0) == 0 &&
                mr__sys->ftruncate(out->fd, bytes) == 0;
    int err = errno;
    if (!good)
        remove_part(part, out);
    end(&s);
    errno = err;
    return good ? MR__CLAIM_MINE : failed(c, out);
}

bool mr__claim_commit(mr__cache *c, mr__claim *claim)
{
    char part[PATH_MAX], whole[PATH_MAX];
    struct stat old;
    state s;
    mr__cache_path(c, claim->name, true, part);
    mr__cache_path(c, claim->name, false, whole);
    bool good = begin(c, &s);
    if (good) {
        bool replaces = mr__sys->stat(whole, &old) == 0;
        good = has_name(claim->fd, part) && mr__rename_again(part, whole) == 0;
        if (good && replaces && s.bytes >= 0) {
            s.bytes -= cost_of(old.st_size);
            store(&s);
        }
        end(&s);
    }
    if (good) {
        mr__sys->close(claim->fd);
        claim->fd = -1;
    } else
        mr__claim_drop(c, claim);
    return good;
}

void mr__claim_drop(mr__cache *c, mr__claim *claim)
{
    char part[PATH_MAX];
    state s;
    if (claim->fd < 0)
        return;
    mr__cache_path(c, claim->name, true, part);
    bool locked = begin(c, &s), mine = has_name(claim->fd, part);
    remove_part(part, claim);
    if (!locked)
        return;
    if (mine && s.bytes >= claim->cost) {
        s.bytes -= claim->cost;
        store(&s);
    }
    end(&s);
}

void mr__claim_break(mr__cache *c, const mr__claim *seen)
{
    char part[PATH_MAX];
    struct stat is;
    state s;
    mr__cache_path(c, seen->name, true, part);
    if (!begin(c, &s))
        return;
    if (mr__sys->stat(part, &is) == 0 && is.st_ino == seen->file &&
        nanoseconds(is.st_mtim) == seen->changed && mr__unlink_again(part) == 0)
        mr__warn_once("the cache %s: a process that fetches a piece has made no progress for a "
                      "while; this one fetches it",
                      c->directory);
    end(&s);
}

/* ---- other files ---- */

void mr__cache_remove(mr__cache *c, const char *name, const struct stat *seen)
{
    char path[PATH_MAX];
    struct stat is;
    state s;
    mr__cache_path(c, name, false, path);
    if (!begin(c, &s))
        return;
    if (mr__sys->stat(path, &is) == 0 && is_same(&is, seen) && mr__unlink_again(path) == 0 &&
        s.bytes >= cost_of(is.st_size)) {
        s.bytes -= cost_of(is.st_size);
        store(&s);
    }
    end(&s);
}

void mr__cache_touch(int fd)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    /* A failure only makes the file go earlier. */
    mr__sys->futimens(fd, times);
}

mr_code mr__cache_each(mr__cache *c, mr_code (*fn)(void *ctx, const char *name, mr_status *st),
                       void *ctx, mr_status *st)
{
    files all = {0};
    mr_code rc = read_files(c, &all, st);
    for (size_t i = 0; rc == MR_OK && i < all.n; i++)
        rc = fn(ctx, all.v[i].name, st);
    mr_free(all.v);
    return rc;
}

mr_code mr__cache_shrink(mr__cache *c, int64_t most, int64_t *bytes, mr_status *st)
{
    state s;
    if (!begin(c, &s)) {
        if (most == INT64_MAX && is_read_only(errno))
            return shrink(c, most, most, bytes, st);
        return mr_fail_errno(st, errno, "the cache %s cannot be locked", c->directory);
    }
    mr_code rc = shrink(c, most, most, &s.bytes, st);
    *bytes = s.bytes;
    if (rc == MR_OK && !store(&s))
        rc = mr_fail_errno(st, errno, "the cache %s cannot be written to", c->directory);
    end(&s);
    return rc;
}

/* ---- opening ---- */

/* Magic numbers of statfs(2), of file systems whose data and locks are elsewhere. */
static const char *network_of(unsigned long type)
{
    static const struct {
        unsigned long type;
        const char *name;
    } all[] = {{0x6969, "NFS"},        {0x517B, "SMB"},        {0xFF534D42, "CIFS"},
               {0xFE534D42, "SMB2"},   {0x00C36400, "CephFS"}, {0x5346414F, "AFS"},
               {0x0BD00BD0, "Lustre"}, {0x47504653, "GPFS"},   {0x01021997, "9P"},
               {0x65735546, "FUSE"},   {0x19830326, "BeeGFS"}, {0x7461636F, "OCFS2"},
               {0x01161970, "GFS2"},   {0x73757245, "Coda"},   {0x20030528, "OrangeFS"},
               {0xAAD7AAEA, "PanFS"},  {0x6B414653, "kAFS"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].type == type)
            return all[i].name;
    return NULL;
}

static mr_code make_directories(const char *path, mr_status *st)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *at = part + 1;; at++) {
        char was = *at;
        if (was && was != '/')
            continue;
        *at = '\0';
        struct stat is;
        if (mr__mkdir_again(part, 0700) != 0 && errno != EEXIST) {
            int err = errno;
            if (mr__sys->stat(part, &is) != 0)
                return mr_fail_errno(st, err, "the directory %s cannot be made", part);
        }
        *at = was;
        if (!was)
            return MR_OK;
    }
}

static mr_code check(const char *path, mr_status *st)
{
    struct stat is;
    struct statfs f;
    if (mr__sys->stat(path, &is) != 0 || mr__sys->statfs(path, &f) != 0)
        return mr_fail_errno(st, errno, "the cache directory cannot be used");
    if (!S_ISDIR(is.st_mode))
        return mr_fail(st, MR_INVALID_ARGUMENT, "not a directory, as a cache must be");
    if (is.st_uid != geteuid())
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "the directory belongs to another user, who could change what is read from "
                       "it; use one of your own as cache");
    if (is.st_mode & 022)
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "other users may write to the directory, and change what is read from it; "
                       "chmod go-w, or use another one as cache");
    const char *network = network_of((unsigned long)f.f_type & 0xFFFFFFFF);
    if (network)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a cache must be on a local disk, and this directory is on a network file "
                       "system (%s)",
                       network);
    return MR_OK;
}

static mr_code prepare(mr__cache *c, int64_t limit, bool make, mr_status *st)
{
    char path[PATH_MAX];
    state s;
    if (make)
        MR_TRY(make_directories(c->directory, st));
    MR_TRY(check(c->directory, st));
    snprintf(path, sizeof path, "%s/" STATE_FILE, c->directory);
    struct stat is;
    if (!make && mr__sys->stat(path, &is) != 0)
        return mr_fail(st, MR_NOT_FOUND, "not a cache: it has no file " STATE_FILE);
    snprintf(path, sizeof path, "%s/objects", c->directory);
    if (make && mr__mkdir_again(path, 0700) != 0 && errno != EEXIST) {
        mr__cache_give_up(c, errno);
        peek(c);
        return MR_OK;
    }
    if (!begin(c, &s)) {
        if (errno == EPROTO)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "the cache was made by a later version of Millrace; use another "
                           "directory");
        mr__cache_give_up(c, errno);
        peek(c);
        return MR_OK;
    }
    mr_code rc = MR_OK;
    bool changed = s.bytes < 0 || (limit && limit != s.limit);
    if (limit)
        s.limit = limit;
    atomic_store(&c->limit, s.limit);
    if (changed && make) {
        rc = shrink(c, s.limit, s.limit, &s.bytes, st);
        if (rc == MR_OK && !store(&s))
            mr__cache_give_up(c, errno);
    }
    end(&s);
    return rc;
}

mr_code mr__cache_open(mr__cache **out, const char *directory, int64_t limit, bool make,
                       mr_status *st)
{
    size_t n = strlen(directory);
    while (n > 1 && directory[n - 1] == '/')
        n--;
    if (n >= MOST_PATH)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the path of the cache directory is too long");
    mr__cache *c = mr_calloc(1, sizeof *c);
    if (!c || !(c->directory = mr_strndup(directory, n))) {
        mr_free(c);
        return mr_fail_memory(st, n, "a cache");
    }
    mr_code rc = prepare(c, limit, make, st);
    if (rc != MR_OK) {
        mr_status_at(st, c->directory, -1, -1);
        mr_status_of_no_element(st);
        mr__cache_close(c);
        return rc;
    }
    *out = c;
    return MR_OK;
}

void mr__cache_close(mr__cache *c)
{
    if (!c)
        return;
    mr_free(c->directory);
    mr_free(c);
}
