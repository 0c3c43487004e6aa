/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/glob.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/files/remote.h"
#include "pipeline/remote/object_list.h"
#include "pipeline/system/system.h"
#include "pipeline/warn_once.h"
#include "pipeline/memory/alloc.h"

#define MAX_PATHS ((size_t)1 << 26)

typedef struct paths {
    char **v;
    size_t n, capacity;
} paths;

bool mr_glob_is_pattern(const char *text)
{
    /* The query of a URL begins with "?", and web servers do not list files. */
    return mr__url_kind_of(text) != MR__URL_HTTP && strpbrk(text, "*?[") != NULL;
}

char *mr_glob_quote(const char *text)
{
    char *quoted = mr_malloc(3 * strlen(text) + 1), *to = quoted;
    if (!quoted)
        return NULL;
    for (; *text; text++)
        if (strchr("*?[", *text)) { /* as Python's glob.escape, which reads no backslash */
            *to++ = '[';
            *to++ = *text;
            *to++ = ']';
        } else {
            if (*text == '\\')
                *to++ = '\\';
            *to++ = *text;
        }
    *to = '\0';
    return quoted;
}

void mr_glob_free(char **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mr_free(list[i]);
    mr_free(list);
}

/* Appends path, which it takes over, also on failure. */
static mr_code paths_add(paths *p, char *path, mr_status *st)
{
    if (!path)
        return mr_fail_memory(st, 0, "a path");
    mr_code rc = MR_GROW(p->v, p->capacity, p->n + 1, MAX_PATHS, "the list of files", st);
    if (rc != MR_OK)
        mr_free(path);
    else
        p->v[p->n++] = path;
    return rc;
}

/* prefix + name, as new memory. */
static char *join(const char *prefix, const char *name, size_t n_name)
{
    size_t n_prefix = strlen(prefix);
    char *path = mr_malloc(n_prefix + n_name + 1);
    if (path) {
        memcpy(path, prefix, n_prefix);
        memcpy(path + n_prefix, name, n_name);
        path[n_prefix + n_name] = '\0';
    }
    return path;
}

/* Removes quoting backslashes from text, in place. */
static void unquote(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from == '\\' && from[1])
            from++;
        *to++ = *from;
    }
    *to = '\0';
}

static mr_code fail_access(const char *path, mr_status *st)
{
    mr_code rc = mr_fail_errno(st, errno, "cannot access %s", path);
    mr_status_at(st, path, -1, -1);
    return rc;
}

/* Sets *found if path exists, also as a link to nothing: opening it then reports that.
 * Failures for other reasons are errors. */
static mr_code exists(const char *path, bool *found, mr_status *st)
{
    struct stat s;
    *found = mr__sys->lstat(path, &s) == 0;
    return *found || errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? MR_OK
                                                                           : fail_access(path, st);
}

/* The entry matches a part of the pattern that must be a directory. A link to nothing is an error:
 * the directory that it stood for is missing. */
static mr_code check_link(const struct dirent *entry, const char *path, mr_status *st)
{
    struct stat s;
    if ((entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN) || mr__sys->stat(path, &s) == 0)
        return MR_OK;
    if (errno != ENOENT && errno != ELOOP)
        return fail_access(path, st);
    mr_code rc = mr_fail_errno(
        st, errno, "this link matches the pattern and leads nowhere; mend or remove it");
    mr_status_at(st, path, -1, -1);
    return rc;
}

/* Adds prefix + entry for every entry of directory `prefix` that matches part. */
static mr_code match_part(paths *out, const char *prefix, const char *part, bool last,
                          mr_status *st)
{
    mr_code rc = MR_OK;
    const char *name = prefix[0] ? prefix : ".";
    DIR *dir = mr__sys->opendir(name);
    if (!dir) {
        /* A wildcard may match plain files, which have no entries. */
        if (errno == ENOTDIR || errno == ENOENT || errno == ELOOP)
            return MR_OK;
        rc = mr_fail_errno(st, errno, "cannot list the directory %s", name);
        mr_status_at(st, name, -1, -1);
        return rc;
    }
    for (;;) {
        errno = 0;
        struct dirent *entry = mr__sys->readdir(dir);
        if (!entry) {
            if (errno) {
                rc = mr_fail_errno(st, errno, "cannot list the directory %s", name);
                mr_status_at(st, name, -1, -1);
            }
            break;
        }
        const char *e = entry->d_name;
        if (!strcmp(e, ".") || !strcmp(e, "..") || fnmatch(part, e, FNM_PATHNAME) != 0)
            continue;
        char *path = join(prefix, e, strlen(e));
        if (path && !last && (rc = check_link(entry, path, st)) != MR_OK) {
            mr_free(path);
            break;
        }
        if (path && !last) {
            char *below = join(path, "/", 1);
            mr_free(path);
            path = below;
        }
        if ((rc = paths_add(out, path, st)) != MR_OK)
            break;
    }
    mr__sys->closedir(dir);
    return rc;
}

/* A part of the pattern and the slashes after it. */
typedef struct part {
    const char *text, *name; /* as written; without quoting backslashes */
    const char *slashes;
    size_t n_slashes;
    bool wild, quoted;
} part;

/* Warns that the entry `path` of the directory `prefix` exists, so that the other names that it
 * matches are not read. A directory that cannot be listed has none to tell of. */
static mr_code warn_of_name(const char *prefix, const part *p, const char *path, mr_status *st)
{
    paths all = {0};
    size_t others = 0;
    mr_status why;
    if (!strpbrk(p->text, "*?")) /* brackets are hardly ever meant otherwise */
        return MR_OK;
    mr_code rc = match_part(&all, prefix, p->text, true, &why);
    for (size_t i = 0; i < all.n && rc == MR_OK; i++)
        others += strcmp(all.v[i], path) != 0;
    mr_glob_free(all.v, all.n);
    if (others)
        mr__warn_once("%s exists, so it is read as a name, not as a pattern, without the %zu other "
                      "name%s that it matches; rename it, or write the pattern differently",
                      path, others, others == 1 ? "" : "s");
    if (rc != MR_RESOURCE_EXHAUSTED)
        return MR_OK;
    if (st)
        *st = why;
    return rc;
}

/* Adds what p matches in the directory `prefix`: the name as it is written, if it exists. */
static mr_code step_from(paths *next, const char *prefix, const part *p, mr_status *st)
{
    struct stat s;
    mr_code rc = MR_OK;
    char *path = join(prefix, p->text, strlen(p->text));
    if (path && (p->wild || p->quoted)) {
        if (mr__sys->stat(path, &s) == 0) {
            rc = warn_of_name(prefix, p, path, st);
        } else {
            mr_free(path);
            if (p->wild)
                return match_part(next, prefix, p->text, p->n_slashes == 0, st);
            path = join(prefix, p->name, strlen(p->name));
        }
    }
    if (path && p->n_slashes) {
        char *below = join(path, p->slashes, p->n_slashes);
        mr_free(path);
        path = below;
    }
    if (rc == MR_OK)
        return paths_add(next, path, st);
    mr_free(path);
    return rc;
}

/* Extends all prefixes found so far by one part of the pattern and the slashes after it. */
static mr_code step(paths *now, paths *next, const char *text, size_t n, const char *slashes,
                    size_t n_slashes, mr_status *st)
{
    char *written = mr_strndup(text, n), *name = mr_strndup(text, n);
    mr_code rc = written && name ? MR_OK : mr_fail_memory(st, n + 1, "a pattern");
    if (rc == MR_OK) {
        unquote(name);
        const part p = {.text = written,
                        .name = name,
                        .slashes = slashes,
                        .n_slashes = n_slashes,
                        .wild = mr_glob_is_pattern(written),
                        .quoted = strcmp(written, name) != 0};
        for (size_t i = 0; i < now->n && rc == MR_OK; i++)
            rc = step_from(next, now->v[i], &p, st);
    }
    mr_free(written);
    mr_free(name);
    return rc;
}

/* Appends the matches of one pattern to out. */
static mr_code match(paths *out, const char *pattern, mr_status *st)
{
    paths now = {0};
    const char *p = pattern + strspn(pattern, "/");
    mr_code rc = paths_add(&now, mr_strndup(pattern, (size_t)(p - pattern)), st);
    while (rc == MR_OK && *p) {
        size_t n = strcspn(p, "/"), n_slashes = strspn(p + n, "/");
        paths next = {0};
        rc = step(&now, &next, p, n, p + n, n_slashes, st);
        mr_glob_free(now.v, now.n);
        now = next;
        p += n + n_slashes;
    }
    for (size_t i = 0; i < now.n && rc == MR_OK; i++) {
        bool found = false;
        if (now.v[i][0])
            rc = exists(now.v[i], &found, st);
        if (rc == MR_OK && found) {
            char *path = now.v[i];
            now.v[i] = NULL;
            rc = paths_add(out, path, st);
        }
    }
    mr_glob_free(now.v, now.n);
    return rc;
}

static mr_code add_object(void *ctx, const char *url, mr_status *st)
{
    return paths_add(ctx, mr_strdup(url), st);
}

/* Appends the objects that a URL matches: that of this name alone, if there is one. */
static mr_code match_url(paths *out, const char *pattern, mr_status *st)
{
    size_t before = out->n, literal = SIZE_MAX;
    MR_TRY(mr__object_list(pattern, add_object, out, st));
    for (size_t i = before; i < out->n && mr_glob_is_pattern(pattern); i++)
        if (strcmp(out->v[i], pattern) == 0)
            literal = i;
    if (literal == SIZE_MAX || out->n == before + 1)
        return MR_OK;
    mr__warn_once(
        "%s exists, so it is read as a name, not as a pattern, without the %zu other name%s that "
        "it matches; rename it, or write the pattern differently",
        pattern, out->n - before - 1, out->n == before + 2 ? "" : "s");
    char *kept = out->v[literal];
    out->v[literal] = out->v[before];
    out->v[before] = kept;
    while (out->n > before + 1)
        mr_free(out->v[--out->n]);
    return MR_OK;
}

int64_t mr_glob_listed_bytes(const char *url)
{
    mr__object_info info;
    return mr__is_url(url) && mr__object_recall(url, &info) ? info.size : -1;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static mr_code no_match(const char *const *patterns, size_t n, mr_status *st)
{
    char text[512];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < n && used < sizeof text - 1; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", patterns[i]);
    const char *remote = "";
    for (size_t i = 0; i < n && !*remote; i++)
        remote = mr__is_url(patterns[i]) ? "; check the bucket and the prefix"
                                         : mr__remote_hint(patterns[i]);
    return mr_fail(st, MR_NOT_FOUND, "no file matches %s%s", text,
                   *remote ? remote : "; check the pattern and the directory");
}

mr_code mr_glob(const char *const *patterns, size_t n_patterns, char ***list, size_t *n_list,
                mr_status *st)
{
    paths found = {0};
    mr_code rc = MR_OK;
    const char *without = NULL; /* a pattern without a match */
    for (size_t i = 0; i < n_patterns && rc == MR_OK; i++) {
        size_t before = found.n;
        rc = mr__is_url(patterns[i]) ? match_url(&found, patterns[i], st)
                                     : match(&found, patterns[i], st);
        if (found.n == before)
            without = patterns[i];
    }
    if (rc == MR_OK && found.n == 0)
        rc = no_match(patterns, n_patterns, st);
    else if (rc == MR_OK && without)
        mr__warn_once("no file matches %s; files that match the other patterns are read", without);
    if (rc != MR_OK) {
        mr_glob_free(found.v, found.n);
        return rc;
    }
    qsort(found.v, found.n, sizeof *found.v, compare);
    *list = found.v;
    *n_list = found.n;
    return MR_OK;
}
