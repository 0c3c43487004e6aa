/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/shards/missing_shards.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"

enum { MOST_LOOKED_FOR = 100000 }; /* missing names of a set */

/* A file NAME-i-of-n; several writers put more after it. */
typedef struct member {
    const char *path;
    size_t prefix; /* length, up to the number */
    int digits;
    uint64_t i, n;
} member;

static int digits_at(const char *s)
{
    return (int)strspn(s, "0123456789");
}

/* The last such number in the name of the file. */
static bool member_of(const char *path, member *m)
{
    static const char of[] = "-of-";
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *at = NULL;
    for (const char *next = name; (next = strstr(next, of)); next++)
        at = next;
    if (!at)
        return false;
    const char *number = at, *total = at + sizeof of - 1;
    while (number > name && number[-1] >= '0' && number[-1] <= '9')
        number--;
    int digits = (int)(at - number);
    if (digits < 2 || digits > 12 || digits_at(total) != digits)
        return false;
    *m = (member){.path = path,
                  .prefix = (size_t)(number - path),
                  .digits = digits,
                  .i = strtoull(number, NULL, 10),
                  .n = strtoull(total, NULL, 10)};
    return m->n > 0 && m->i <= m->n;
}

static int compare_sets(const member *x, const member *y)
{
    size_t n = x->prefix < y->prefix ? x->prefix : y->prefix;
    int order = memcmp(x->path, y->path, n);
    if (order == 0)
        order = (x->prefix > y->prefix) - (x->prefix < y->prefix);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static int compare_members(const void *a, const void *b)
{
    const member *x = a, *y = b;
    int order = compare_sets(x, y);
    return order ? order : (x->i > y->i) - (x->i < y->i);
}

static bool some_match(const char *const *patterns, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (fnmatch(patterns[i], path, FNM_PATHNAME) == 0)
            return true;
    return false;
}

/* v: the files of one set, by number. */
static void warn_of_set(const char *const *patterns, size_t n_patterns, const member *v, size_t n)
{
    const member *m = &v[0];
    size_t size = strlen(m->path) + 1, missing = 0, at = 0;
    char *name = mr_strdup(m->path), *first = NULL;
    uint64_t begin = v[n - 1].i == m->n && v[0].i > 0; /* some count from 1 */
    for (uint64_t i = begin; name && i < begin + m->n && i - begin < MOST_LOOKED_FOR; i++) {
        while (at < n && v[at].i < i)
            at++;
        if (at < n && v[at].i == i)
            continue;
        char number[24];
        snprintf(number, sizeof number, "%0*" PRIu64, m->digits, i);
        memcpy(name + m->prefix, number, (size_t)m->digits);
        if (!some_match(patterns, n_patterns, name))
            continue;
        missing++;
        if (!first)
            first = mr_memdup(name, size);
    }
    if (first)
        mr_log(MR_LOG_WARNING,
               "%.*s*-of-%0*" PRIu64 " is incomplete: %zu of its %" PRIu64
               " files %s missing, first %s",
               (int)m->prefix, m->path, m->digits, m->n, missing, m->n, missing == 1 ? "is" : "are",
               first);
    mr_free(name);
    mr_free(first);
}

void mr__warn_of_missing_shards(const char *const *patterns, size_t n_patterns, char *const *paths,
                                size_t n_paths)
{
    member *v = mr_calloc(n_paths + 1, sizeof *v);
    size_t n = 0;
    for (size_t i = 0; v && i < n_paths; i++)
        n += member_of(paths[i], &v[n]);
    if (n)
        qsort(v, n, sizeof *v, compare_members);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && compare_sets(&v[from], &v[to]) == 0; to++)
            ;
        warn_of_set(patterns, n_patterns, v + from, to - from);
    }
    mr_free(v);
}
