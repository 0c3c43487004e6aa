/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/shards/shard_set_swap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/files/file_lock.h"
#include "pipeline/files/whole_file.h"
#include "pipeline/files/atomic_file_impl.h"
#include "pipeline/formats/shard_names.h"
#include "pipeline/formats/tfrecord/zstd_records_impl.h"
#include "pipeline/formats/shards/shard_writer.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/retry.h"

enum { MOST_FILES = 1 << 20, MOST_BYTES = 1 << 28 };

static const char magic[] = "MRG1";

/* ---- system calls ---- */

static mr_code sync_directory(const mr__shard_set_swap *g, mr_status *st)
{
    return mr_directory_sync(g->directory[0] ? g->directory : ".", st);
}

static mr_code fail_rename(const char *from, const char *to, mr_status *st)
{
    mr_code rc = mr_fail_errno(st, errno, "cannot rename %s to %s", from, to);
    mr_status_at(st, to, -1, -1);
    return rc;
}

bool mr__shard_set_swap_has(const char *path)
{
    struct stat s;
    return mr__sys->stat(path, &s) == 0;
}

/* ---- names ---- */

static size_t directory_size(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

mr_code mr__shard_set_swap_init(mr__shard_set_swap *g, const char *prefix, mr_status *st)
{
    size_t n = directory_size(prefix);
    *g = (mr__shard_set_swap){.directory = mr_strndup(prefix, n), .base = mr_strdup(prefix + n)};
    if (g->directory && g->base)
        return MR_OK;
    mr__shard_set_swap_reset(g);
    return mr_fail_memory(st, strlen(prefix), "a file name");
}

static void drop_moves(mr__shard_set_swap *g)
{
    for (size_t i = 0; i < g->n; i++) {
        mr_free(g->from[i]);
        mr_free(g->to[i]);
    }
    mr_free(g->from);
    mr_free(g->to);
    g->from = g->to = NULL;
    g->n = g->n_old = g->capacity = 0;
}

mr_code mr__shard_set_swap_lock(mr__shard_set_swap *g, mr_status *st)
{
    static const int none[] = {ENOENT, ENOTDIR, EACCES, EROFS, EOPNOTSUPP, ENOLCK, ENOSYS};
    bool busy = false;
    mr_status why;
    char *path = mr_strf("%s.%s.lock", g->directory, g->base);
    if (!path)
        return mr_fail_memory(st, strlen(g->base), "a file name");
    mr_status_init(&why);
    mr_code rc = mr__file_lock(path, &g->lock, &busy, &why);
    if (rc == MR_OK && !busy) {
        g->lock_path = path;
        return MR_OK;
    }
    if (busy) {
        rc = mr_fail(st, MR_ALREADY_EXISTS,
                     "another write under this prefix is in progress; wait for it, or write to "
                     "another prefix");
        mr_status_at(st, path, -1, -1);
    }
    mr_free(path);
    if (busy)
        return rc;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (why.sys_errno == none[i])
            return MR_OK;
    if (st)
        *st = why;
    return rc;
}

void mr__shard_set_swap_reset(mr__shard_set_swap *g)
{
    if (g->lock_path)
        mr__file_unlock(g->lock_path, g->lock);
    mr_free(g->lock_path);
    g->lock_path = NULL;
    drop_moves(g);
    mr_free(g->directory);
    mr_free(g->base);
    g->directory = g->base = NULL;
}

/* Takes both names, also on failure. */
static mr_code add_move(mr__shard_set_swap *g, char *from, char *to, mr_status *st)
{
    size_t capacity = g->capacity;
    mr_code rc = from && to ? MR_OK : mr_fail_memory(st, 0, "a file name");
    if (rc == MR_OK)
        rc = MR_GROW(g->from, capacity, g->n + 1, MOST_FILES, "the list of shards", st);
    if (rc == MR_OK)
        rc = MR_GROW(g->to, g->capacity, g->n + 1, MOST_FILES, "the list of shards", st);
    if (rc != MR_OK) {
        mr_free(from);
        mr_free(to);
        return rc;
    }
    g->from[g->n] = from;
    g->to[g->n++] = to;
    return MR_OK;
}

mr_code mr__shard_set_swap_add(mr__shard_set_swap *g, const char *partial, const char *path,
                               mr_status *st)
{
    return add_move(g, mr_strdup(partial), mr_strdup(path), st);
}

/* The number of shards in the name of a file of this prefix or of its index; 0: not such a name. */
static int64_t shards_of(const mr__shard_set_swap *g, const char *name, bool *is_index)
{
    size_t n = strlen(g->base), stem = mr__index_stem(name);
    *is_index = stem > 0;
    if (mr__shard_prefix(name, stem ? stem : strlen(name)) != n || strncmp(name, g->base, n) != 0)
        return 0;
    return strtoll(name + n + strlen("-00000-of-"), NULL, 10);
}

static DIR *open_directory(const char *path)
{
    for (int tries = 0;; tries++) {
        DIR *dir = mr__sys->opendir(path);
        if (dir || errno != EINTR || tries == MR__MOST_RETRIES)
            return dir;
    }
}

/* NULL at the end: errno is 0 then. */
static struct dirent *next_entry(DIR *dir)
{
    for (int tries = 0;; tries++) {
        errno = 0;
        struct dirent *entry = mr__sys->readdir(dir);
        if (entry || errno != EINTR || tries == MR__MOST_RETRIES)
            return entry;
    }
}

/* The dictionary of an old set is replaced with it. Another file of that name is left alone. */
static mr_code find_dictionary(mr__shard_set_swap *g, bool overwrite, mr_status *st)
{
    char head[4], *path = mr_strf("%s%s.dict", g->directory, g->base);
    if (!path)
        return mr_fail_memory(st, 0, "a file name");
    int fd = g->n || overwrite ? mr__open_again(path, O_RDONLY | O_NONBLOCK) : -1;
    ssize_t n = fd < 0 ? 0 : mr__sys->read(fd, head, sizeof head);
    if (fd >= 0)
        mr__sys->close(fd);
    if (n == sizeof head && mr__is_zstd_dictionary(head, sizeof head))
        return add_move(g, path, mr__hidden_name(path, ".old"), st);
    mr_free(path);
    return MR_OK;
}

mr_code mr__shard_set_swap_find_old(mr__shard_set_swap *g, int64_t n_shards, const char *ending,
                                    bool overwrite, mr_status *st)
{
    mr_code rc = MR_OK;
    const char *where = g->directory[0] ? g->directory : ".";
    drop_moves(g);
    DIR *dir = open_directory(where);
    /* The directory does not exist or may not be listed: creating the files will report the
     * cause. */
    if (!dir && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
        return MR_OK;
    struct dirent *entry = NULL;
    while (dir && rc == MR_OK && (entry = next_entry(dir))) {
        bool is_index;
        int64_t n = shards_of(g, entry->d_name, &is_index);
        /* An index is replaced or kept together with its set. */
        if (n == 0 || (is_index && n != n_shards && !overwrite))
            continue;
        bool other =
            !is_index && (n != n_shards || strcmp(strrchr(entry->d_name, '.') + 1, ending) != 0);
        char *path = mr_strf("%s%s", g->directory, entry->d_name);
        if (other && !overwrite) {
            rc = mr_fail(st, MR_ALREADY_EXISTS,
                         "a set of %" PRId64 " shards exists under this prefix; remove it, or "
                         "overwrite it (--overwrite)",
                         n);
            mr_status_at(st, path ? path : where, -1, -1);
            mr_free(path);
            break;
        }
        rc = add_move(g, path, path ? mr__hidden_name(path, ".old") : NULL, st);
    }
    if (rc == MR_OK && (!dir || errno)) {
        rc = mr_fail_errno(st, errno, "cannot list the directory");
        mr_status_at(st, where, -1, -1);
    }
    if (dir)
        mr__sys->closedir(dir);
    if (rc == MR_OK)
        rc = find_dictionary(g, overwrite, st);
    g->n_old = g->n;
    return rc;
}

/* ---- the journal: magic, number of old files, number of moves, then both names of each move, each
 * terminated by a NUL byte; names are relative to the directory ---- */

static char *journal_path(const mr__shard_set_swap *g)
{
    return mr_strf("%s.%s.commit", g->directory, g->base);
}

static char *journal_text(const mr__shard_set_swap *g, size_t *size, mr_status *st)
{
    size_t skip = strlen(g->directory), n = 64;
    for (size_t i = 0; i < g->n; i++)
        n += strlen(g->from[i] + skip) + strlen(g->to[i] + skip) + 2;
    char *text = mr_malloc(n), *at = text;
    if (!text) {
        mr_fail_memory(st, n, "the journal of a set of files");
        return NULL;
    }
    at += snprintf(at, n, "%s%c%zu%c%zu", magic, 0, g->n_old, 0, g->n) + 1;
    for (size_t i = 0; i < g->n; i++) {
        at = stpcpy(at, g->from[i] + skip) + 1;
        at = stpcpy(at, g->to[i] + skip) + 1;
    }
    *size = (size_t)(at - text);
    return text;
}

static mr_code write_journal(const mr__shard_set_swap *g, const char *path, mr_status *st)
{
    size_t size = 0;
    char *text = journal_text(g, &size, st);
    if (!text)
        return MR_RESOURCE_EXHAUSTED;
    mr_code rc = mr_file_replace(path, text, size, st);
    mr_free(text);
    return rc;
}

/* ---- publishing ---- */

static mr_code move_all(const mr__shard_set_swap *g, size_t *done, mr_status *st)
{
    for (; *done < g->n; ++*done)
        if (mr__rename_again(g->from[*done], g->to[*done]) != 0)
            return fail_rename(g->from[*done], g->to[*done], st);
    return sync_directory(g, st);
}

mr_code mr__shard_set_swap_publish(const mr__shard_set_swap *g, bool *kept, mr_status *st)
{
    size_t done = 0;
    *kept = false;
    /* One file that replaces no file, or only itself. */
    if (g->n - g->n_old == 1 &&
        (g->n_old == 0 || (g->n_old == 1 && strcmp(g->from[0], g->to[1]) == 0))) {
        const char *from = g->from[g->n - 1], *to = g->to[g->n - 1];
        if (mr__rename_again(from, to) != 0)
            return fail_rename(from, to, st);
        /* The file is in place, and that cannot be undone. If syncing the directory fails, the old
         * file may be back after a power cut, as complete as this one. */
        (void)sync_directory(g, NULL);
        return MR_OK;
    }
    char *journal = journal_path(g);
    mr_code rc = journal ? write_journal(g, journal, st) : mr_fail_memory(st, 0, "a file name");
    if (rc == MR_OK)
        rc = move_all(g, &done, st);
    if (rc != MR_OK) {
        /* New files are moved back first, so that no old file is seen together with them. */
        bool undone = true;
        while (undone && done-- > 0)
            undone = mr__rename_again(g->to[done], g->from[done]) == 0;
        *kept = !undone || (journal && mr__unlink_again(journal) != 0 && errno != ENOENT);
    } else {
        /* The new set is in place: files that cannot be removed now are hidden and harmless. */
        if (mr__unlink_again(journal) == 0)
            for (size_t i = 0; i < g->n_old; i++)
                mr__unlink_again(g->to[i]);
    }
    mr_free(journal);
    return rc;
}

/* ---- reading ---- */

static mr_code check_set(const char *prefix, size_t size, mr_status *st)
{
    mr__shard_set_swap g = {0};
    char *text = mr_strndup(prefix, size), *journal = NULL;
    mr_code rc =
        text ? mr__shard_set_swap_init(&g, text, st) : mr_fail_memory(st, 0, "a file name");
    if (rc == MR_OK && !(journal = journal_path(&g)))
        rc = mr_fail_memory(st, 0, "a file name");
    if (rc == MR_OK && mr__shard_set_swap_has(journal)) {
        rc = mr_fail(st, MR_FAILED_PRECONDITION,
                     "a write of this set is renaming its files, or was killed while it did; if no "
                     "write is running, 'millrace write --recover --out %s' finishes it",
                     text);
        mr_status_at(st, journal, -1, -1);
    }
    mr_free(journal);
    mr_free(text);
    mr__shard_set_swap_reset(&g);
    return rc;
}

mr_code mr__shard_set_swap_check(char *const *paths, size_t n, mr_status *st)
{
    const char *before = "";
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = mr__shard_prefix(paths[i], strlen(paths[i]));
        if (k == 0 || (k == size && memcmp(paths[i], before, k) == 0))
            continue;
        MR_TRY(check_set(paths[i], k, st));
        before = paths[i];
        size = k;
    }
    return MR_OK;
}

/* ---- recovering ---- */

/* *text NULL: there is no journal. */
static mr_code read_journal(const char *path, char **text, size_t *size, mr_status *st)
{
    mr_status why;
    mr_file_read_opts opts = {.most = MOST_BYTES, .regular = true};
    *text = NULL;
    mr_code rc = mr_file_read(path, &opts, (void **)text, size, &why);
    if (rc == MR_OK || why.sys_errno == ENOENT || why.sys_errno == ENOTDIR)
        return MR_OK;
    mr_status_prefix(&why, "cannot read the journal of an interrupted write");
    if (rc == MR_INVALID_ARGUMENT)
        why.code = rc = MR_DATA_LOSS;
    if (st)
        *st = why;
    return rc;
}

/* The next string of the journal; NULL: the journal is damaged. */
static const char *next_text(const char **at, const char *end)
{
    const char *text = *at, *stop = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;
    if (stop)
        *at = stop + 1;
    return stop ? text : NULL;
}

/* Whether a name belongs to this prefix and has no directory. */
static bool is_ours(const mr__shard_set_swap *g, const char *name)
{
    if (!name || strchr(name, '/'))
        return false;
    name += name[0] == '.';
    return strncmp(name, g->base, strlen(g->base)) == 0;
}

static mr_code parse_journal(mr__shard_set_swap *g, const char *at, const char *end, mr_status *st)
{
    const char *head = next_text(&at, end), *old = next_text(&at, end), *all = next_text(&at, end);
    mr_code rc = MR_OK;
    bool good = head && strcmp(head, magic) == 0 && old && all;
    size_t n = good ? strtoull(all, NULL, 10) : 0, n_old = good ? strtoull(old, NULL, 10) : 0;
    for (size_t i = 0; good && rc == MR_OK && i < n; i++) {
        const char *from = next_text(&at, end), *to = next_text(&at, end);
        good = is_ours(g, from) && is_ours(g, to);
        if (good)
            rc = add_move(g, mr_strf("%s%s", g->directory, from), mr_strf("%s%s", g->directory, to),
                          st);
    }
    if (rc == MR_OK && (!good || at != end || n_old > n))
        return mr_fail(st, MR_DATA_LOSS,
                       "the journal of an interrupted write is damaged; check which of the files "
                       "next to it are complete, and remove it");
    g->n_old = n_old;
    return rc;
}

/* Continues after the journal was written: forward, or back if new files are missing, which only a
 * user can have removed. */
static mr_code finish(const mr__shard_set_swap *g, const char *journal, mr_status *st)
{
    bool complete = true, begun = false;
    for (size_t i = g->n_old; i < g->n; i++) {
        bool waits = mr__shard_set_swap_has(g->from[i]);
        complete = complete && (waits || mr__shard_set_swap_has(g->to[i]));
        begun = begun || !waits;
    }
    for (size_t i = 0; i < g->n; i++) {
        bool is_old = i < g->n_old;
        const char *from = g->from[i], *to = g->to[i];
        if (!complete) {
            if (!is_old)
                break;
            from = g->to[i];
            to = g->from[i];
            if (mr__shard_set_swap_has(to))
                continue;
        } else if (is_old && begun)
            continue; /* all old files were moved before the first new one */
        if (mr__shard_set_swap_has(from) && mr__rename_again(from, to) != 0)
            return fail_rename(from, to, st);
    }
    MR_TRY(sync_directory(g, st));
    if (mr__unlink_again(journal) != 0) {
        mr_code rc = mr_fail_errno(st, errno, "cannot remove the journal of an interrupted write");
        mr_status_at(st, journal, -1, -1);
        return rc;
    }
    for (size_t i = 0; i < g->n_old; i++)
        mr__unlink_again(g->to[i]);
    return MR_OK;
}

mr_code mr__shard_set_swap_recover(const mr__shard_set_swap *g, mr_status *st)
{
    mr__shard_set_swap then = {.directory = g->directory, .base = g->base};
    char *path = journal_path(g), *text = NULL;
    size_t size = 0;
    mr_code rc = path ? read_journal(path, &text, &size, st) : mr_fail_memory(st, 0, "a file name");
    if (rc == MR_OK && text) {
        rc = parse_journal(&then, text, text + size, st);
        if (rc == MR_OK)
            rc = finish(&then, path, st);
        mr_status_at(st, path, -1, -1);
    }
    drop_moves(&then);
    mr_free(text);
    mr_free(path);
    return rc;
}
