/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/cache_list.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/system/retry.h"

static const char magic[] = "MRLIST01";
enum { HEAD = 12, MOST = 1 << 28 };

static void add(mr__list_note *l, const char *text)
{
    size_t n = strlen(text) + 1;
    if (l->failed || MR_GROW(l->v, l->room, l->n + n, MOST, "a list", NULL) != MR_OK) {
        l->failed = true;
        return;
    }
    memcpy(l->v + l->n, text, n);
    l->n += n;
}

void mr__list_note_add(mr__list_note *l, const char *url, const mr__object_info *info)
{
    char numbers[32];
    snprintf(numbers, sizeof numbers, "%" PRId64 " %d", info->size, info->ranges);
    add(l, url);
    add(l, info->etag);
    add(l, info->modified);
    add(l, numbers);
}

/* The contents after the head, with a NUL. Owned in *out; NULL: not there, or damaged.
 * errors   MR_RESOURCE_EXHAUSTED */
static mr_code read_list(mr__cache *c, const char *name, char **out, size_t *size, mr_status *st)
{
    char path[PATH_MAX];
    struct stat is;
    int fd;
    uint8_t head[HEAD];
    char *text = NULL;
    mr_code rc = MR_OK;
    *out = NULL;
    mr__cache_path(c, name, false, path);
    MR__RETRY(fd, mr__sys->open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0));
    if (fd < 0)
        return MR_OK;
    if (mr__sys->fstat(fd, &is) == 0 && is.st_size > HEAD && is.st_size < MOST &&
        mr__read_all(fd, head, HEAD, 0) == HEAD && memcmp(head, magic, 8) == 0) {
        *size = (size_t)is.st_size - HEAD;
        text = mr_malloc(*size + 1);
        rc = text ? MR_OK : mr_fail_memory(st, *size, "a list of objects");
    }
    bool good = text && mr__read_all(fd, text, *size, HEAD) == (ssize_t)*size &&
                mr_crc32c(text, *size) == mr__load_le(head + 8, 4) && text[*size - 1] == '\0';
    if (good)
        mr__cache_touch(fd);
    mr__sys->close(fd);
    if (good) {
        text[*size] = '\0';
        *out = text;
    } else
        mr_free(text);
    return rc;
}

static void write_list(mr__cache *c, const char *name, const char *text, size_t n)
{
    uint8_t head[HEAD];
    mr__claim claim;
    memcpy(head, magic, 8);
    mr__store_le(head + 8, mr_crc32c(text, n), 4);
    if (mr__claim_take(c, name, (int64_t)(n + HEAD), true, &claim) != MR__CLAIM_MINE)
        return;
    if (mr__write_all(claim.fd, head, HEAD) == 0 && mr__write_all(claim.fd, text, n) == 0)
        (void)mr__claim_commit(c, &claim);
    else
        mr__claim_drop(c, &claim);
}

void mr__list_note_end(mr__list_note *l, mr__cache *c, const char *pattern)
{
    mr__cache_key k = {0};
    char name[MR__CACHE_NAME];
    mr__name_scope names = mr__name_scope_enter_own(); /* files of the cache, not of a graph */
    if (!l->failed && mr__cache_key_make(&k, pattern, "", -1, NULL) == MR_OK) {
        mr__list_note all = {0};
        size_t size;
        mr__cache_name(&k, 0, "list", name);
        add(&all, k.text);
        add(&all, k.url);
        if (!all.failed && MR_GROW(all.v, all.room, all.n + l->n, MOST, "a list", NULL) == MR_OK) {
            if (l->n)
                memcpy(all.v + all.n, l->v, l->n);
            all.n += l->n;
            char *old = NULL;
            if (read_list(c, name, &old, &size, NULL) != MR_OK || !old || size != all.n ||
                memcmp(old, all.v, size) != 0)
                write_list(c, name, all.v, all.n);
            mr_free(old);
        }
        mr_free(all.v);
    }
    (void)mr__name_scope_set(names);
    mr_free(k.text);
    mr_free(l->v);
    *l = (mr__list_note){0};
}

static mr_code recall(const char *text, size_t size, const mr__cache_key *k, mr__list_fn fn,
                      void *ctx, bool *found, mr_status *st)
{
    const char *end = text + size, *at = text + strlen(text) + 1;
    *found = at < end && strcmp(text, k->text) == 0 && strcmp(at, k->url) == 0;
    if (!*found)
        return MR_OK;
    for (at += strlen(at) + 1; at < end;) {
        mr__object_info info = {.size = -1};
        const char *v[4] = {"", "", "", ""};
        int ranges = 0;
        for (size_t i = 0; i < 4 && at < end; i++, at += strlen(at) + 1)
            v[i] = at;
        snprintf(info.etag, sizeof info.etag, "%s", v[1]);
        snprintf(info.modified, sizeof info.modified, "%s", v[2]);
        if (sscanf(v[3], "%" SCNd64 " %d", &info.size, &ranges) != 2)
            break;
        info.ranges = ranges != 0;
        MR_TRY(fn(ctx, v[0], &info, st));
    }
    return MR_OK;
}

mr_code mr__list_recall(mr__cache *c, const char *pattern, mr__list_fn fn, void *ctx, mr_status *st)
{
    mr__cache_key k;
    char name[MR__CACHE_NAME];
    size_t size = 0;
    bool found = false;
    MR_TRY(mr__cache_key_make(&k, pattern, "", -1, st));
    mr__cache_name(&k, 0, "list", name);
    char *text = NULL;
    mr__name_scope names = mr__name_scope_enter_own();
    mr_code rc = read_list(c, name, &text, &size, st);
    (void)mr__name_scope_set(names);
    if (rc == MR_OK)
        rc = text ? recall(text, size, &k, fn, ctx, &found, st) : MR_OK;
    mr_free(text);
    mr_free(k.text);
    if (rc != MR_OK || found)
        return rc;
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "it was never listed or opened with the cache %s, so it cannot be read offline; "
                   "read it once with the network",
                   c->directory);
}
