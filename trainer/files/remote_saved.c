/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/files/remote_saved.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "pipeline/files/whole_file.h"
#include "pipeline/files/atomic_file.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/remote/store_internal.h"
#include "pipeline/system/system.h"

static const char pointer_name[] = "checkpoint", fresh_begin[] = "v-";

enum { FRESH = sizeof fresh_begin - 1 + 16, MOST_KEYS = 1 << 20, MOST_POINTER = 4096 };

static mr_code fail_name(mr_status *st, const char *path)
{
    return mr_fail_memory(st, strlen(path), "a URL");
}

/* Of the path without the slashes at its end. */
static size_t size_of(const char *path)
{
    size_t n = strlen(path);
    while (n && path[n - 1] == '/')
        n--;
    return n;
}

static char *join(const char *path, const char *name)
{
    return mr_strf("%.*s/%s", (int)size_of(path), path, name);
}

/* ---- listing ---- */

typedef struct keys {
    char **urls;
    size_t n, room;
    uint64_t bytes;
} keys;

static mr_code add_key(void *ctx, const char *url, int64_t size, mr_status *st)
{
    keys *k = ctx;
    k->bytes += (uint64_t)size;
    MR_TRY(MR_GROW(k->urls, k->room, k->n + 1, MOST_KEYS, "objects", st));
    k->urls[k->n] = mr_strdup(url);
    return k->urls[k->n++] ? MR_OK : fail_name(st, url);
}

static void drop_keys(keys *k)
{
    for (size_t i = 0; i < k->n; i++)
        mr_free(k->urls[i]);
    mr_free(k->urls);
    *k = (keys){0};
}

/* All objects below path/, sorted. */
static mr_code list_below(const char *path, keys *k, mr_status *st)
{
    char *prefix = join(path, "");
    if (!prefix)
        return fail_name(st, path);
    mr_code rc = mr__store_list(prefix, add_key, k, st);
    if (rc != MR_OK) {
        mr_status_at(st, path, -1, -1);
        drop_keys(k);
    }
    mr_free(prefix);
    return rc;
}

/* The part of a URL below path/. */
static const char *below(const char *path, const char *url)
{
    return url + size_of(path) + 1;
}

mr_code mr__remote_saved_names(const char *path,
                               mr_code (*fn)(void *ctx, const char *name, mr_status *st), void *ctx,
                               mr_status *st)
{
    keys k = {0};
    MR_TRY(list_below(path, &k, st));
    mr_code rc = MR_OK;
    char *before = NULL;
    for (size_t i = 0; i < k.n && rc == MR_OK; i++) {
        const char *rest = below(path, k.urls[i]);
        char *name = mr_strndup(rest, strcspn(rest, "/"));
        if (!name)
            rc = fail_name(st, rest);
        else if (!before || strcmp(before, name) != 0)
            rc = fn(ctx, name, st);
        mr_free(before);
        before = name;
    }
    mr_free(before);
    drop_keys(&k);
    return rc;
}

mr_code mr__remote_saved_bytes(const char *path, uint64_t *bytes, mr_status *st)
{
    keys k = {0};
    *bytes = 0;
    MR_TRY(list_below(path, &k, st));
    *bytes = k.bytes;
    drop_keys(&k);
    return MR_OK;
}

mr_code mr__remote_saved_look(const char *path, bool *there, mr_status *st)
{
    keys k = {0};
    MR_TRY(mr__store_has(path, there, st));
    if (*there)
        return MR_OK;
    MR_TRY(list_below(path, &k, st));
    *there = k.n > 0;
    drop_keys(&k);
    return MR_OK;
}

/* ---- removing ---- */

static mr_code remove_object(const char *path, const char *name, mr_status *st)
{
    char *url = join(path, name);
    if (!url)
        return fail_name(st, path);
    mr_code rc = mr__store_delete(url, st);
    mr_free(url);
    return rc;
}

mr_code mr__remote_saved_remove(const char *path, mr_status *st)
{
    keys k = {0};
    mr_code rc = list_below(path, &k, st);
    if (rc == MR_OK && k.n)
        rc = remove_object(path, pointer_name, st);
    for (size_t i = 0; i < k.n && rc == MR_OK; i++)
        rc = mr__store_delete(k.urls[i], st);
    if (rc == MR_OK && !k.n)
        rc = mr__store_delete(path, st);
    drop_keys(&k);
    if (rc != MR_OK)
        mr_status_at(st, path, -1, -1);
    return rc;
}

/* ---- the pointer ---- */

static bool is_fresh_name(const char *name, size_t n)
{
    return n == FRESH && strncmp(name, fresh_begin, sizeof fresh_begin - 1) == 0 &&
           strspn(name + sizeof fresh_begin - 1, "0123456789abcdef") >= 16;
}

static mr_code check_name(void *ctx, const char *name, mr_status *st)
{
    const char *path = ctx;
    if (strcmp(name, pointer_name) == 0 || is_fresh_name(name, strlen(name)))
        return MR_OK;
    mr_fail(st, MR_ALREADY_EXISTS,
            "it contains %s, which is not part of a saved model, so it is not replaced; choose "
            "another name",
            name);
    mr_status_at(st, path, -1, -1);
    return MR_ALREADY_EXISTS;
}

mr_code mr__remote_saved_begin(const char *path, char **fresh, mr_status *st)
{
    uint64_t v;
    char name[FRESH + 1];
    MR_TRY(mr__store_check_writing(path, st));
    MR_TRY(mr__remote_saved_names(path, check_name, (void *)(uintptr_t)path, st));
    if (mr__sys->getrandom(&v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v)
        v = (uint64_t)mr__clock_ns(CLOCK_REALTIME);
    snprintf(name, sizeof name, "%s%016" PRIx64, fresh_begin, v);
    *fresh = join(path, name);
    return *fresh ? MR_OK : fail_name(st, path);
}

mr_code mr__remote_saved_publish(const char *path, const char *fresh, bool *done, mr_status *st)
{
    keys k = {0};
    const char *name = below(path, fresh);
    char *pointer = join(path, pointer_name), *line = mr_strf("%s\n", name);
    mr_code rc =
        pointer && line ? mr_file_replace(pointer, line, strlen(line), st) : fail_name(st, path);
    *done = rc == MR_OK;
    mr_free(line);
    mr_free(pointer);
    if (rc == MR_OK)
        rc = list_below(path, &k, st);
    for (size_t i = 0; i < k.n && rc == MR_OK; i++) {
        const char *rest = below(path, k.urls[i]);
        if (is_fresh_name(rest, strcspn(rest, "/")) && strncmp(rest, name, FRESH) != 0)
            rc = mr__store_delete(k.urls[i], st);
    }
    drop_keys(&k);
    return rc;
}

mr_code mr__remote_saved_find(const char *path, char **out, mr_status *st)
{
    void *bytes = NULL;
    size_t n;
    mr_status why;
    char *pointer = join(path, pointer_name);
    *out = NULL;
    if (!pointer)
        return fail_name(st, path);
    mr__store_forget(pointer); /* it may be another one since it was listed */
    mr_code rc =
        mr_file_read(pointer, &(mr_file_read_opts){.most = MOST_POINTER}, &bytes, &n, &why);
    mr_free(pointer);
    if (rc == MR_NOT_FOUND)
        return MR_OK;
    if (rc != MR_OK) {
        if (st)
            *st = why;
        return rc;
    }
    char *name = bytes;
    name[strcspn(name, "\n")] = '\0';
    if (!*name || strlen(name) >= n || strchr(name, '/'))
        rc = mr_fail(st, MR_DATA_LOSS, "%s/%s does not name a checkpoint", path, pointer_name);
    else if (!(*out = join(path, name)))
        rc = fail_name(st, path);
    mr_free(bytes);
    return rc;
}
