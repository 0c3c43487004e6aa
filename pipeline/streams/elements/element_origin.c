/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/elements/element_origin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/engine/fingerprint_internal.h"
#include "pipeline/engine/position.h"
#include "pipeline/files/glob.h"
#include "pipeline/fnv.h"
#include "pipeline/formats/shards/data_files.h"
#include "pipeline/remote/url.h"
#include "pipeline/streams/elements/graph_urls.h"
#include "pipeline/system/system.h"

enum { MOST_TEXT = 4096 };
enum { PATTERN, FILE_READ };

mr_code mr__element_origin_of(const mr_dataset *graph, mr__element_origin *out, mr_status *st)
{
    *out = (mr__element_origin){.dataset = graph};
    MR_TRY(mr__graph_fingerprint(graph, &out->fingerprint, &out->graph, st));
    if (out->graph && strlen(out->graph) > MOST_TEXT)
        out->graph[MOST_TEXT] = '\0';
    return MR_OK;
}

void mr__element_origin_reset(mr__element_origin *o)
{
    for (size_t i = 0; i < o->n; i++)
        mr_free(o->inputs[i].name);
    mr_free(o->inputs);
    mr_free(o->graph);
    *o = (mr__element_origin){0};
}

/* ---- in the file ---- */

static mr_code put_text(mr_state_w *w, const char *text, mr_status *st)
{
    return mr_state_put_bytes(w, text, strlen(text), st);
}

mr_code mr__element_origin_put(const mr__element_origin *o, mr__inputs_read *read, mr_state_w *w,
                               mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, o->fingerprint, st));
    MR_TRY(put_text(w, o->graph ? o->graph : "", st));
    pthread_mutex_lock(&read->lock);
    mr_code rc = mr_state_put_u64(w, read->n, st);
    for (size_t i = 0; i < read->n && rc == MR_OK; i++) {
        const mr__noted_input *x = &read->v[i];
        rc = mr_state_put_u64(w, x->pattern ? PATTERN : FILE_READ, st);
        if (rc == MR_OK)
            rc = put_text(w, x->name, st);
        if (rc == MR_OK && !x->pattern)
            rc = mr_state_put_i64(w, x->size, st);
        if (rc == MR_OK && !x->pattern)
            rc = mr_state_put_i64(w, x->seconds, st);
        if (rc == MR_OK && !x->pattern)
            rc = mr_state_put_i64(w, x->nanoseconds, st);
    }
    pthread_mutex_unlock(&read->lock);
    return rc;
}

static mr_code get_text(mr_state_r *r, char **out, mr_status *st)
{
    const void *p;
    size_t n;
    MR_TRY(mr_state_get_bytes(r, &p, &n, st));
    if (memchr(p, 0, n))
        return mr_state_damaged(st, "a name has a NUL byte");
    *out = mr_strndup(p, n);
    return *out ? MR_OK : mr_fail_memory(st, n, "a name");
}

static mr_code get_input(mr_state_r *r, mr__noted_input *x, mr_status *st)
{
    uint64_t kind;
    MR_TRY(mr_state_get_u64(r, &kind, st));
    if (kind > FILE_READ)
        return mr_state_damaged(st, "an input of no kind");
    x->pattern = kind == PATTERN;
    MR_TRY(get_text(r, &x->name, st));
    if (x->pattern)
        return MR_OK;
    MR_TRY(mr_state_get_i64(r, &x->size, st));
    MR_TRY(mr_state_get_i64(r, &x->seconds, st));
    return mr_state_get_i64(r, &x->nanoseconds, st);
}

mr_code mr__element_origin_get(mr__element_origin *o, mr_state_r *r, mr_status *st)
{
    uint64_t n;
    size_t capacity = 0;
    MR_TRY(mr_state_get_u64(r, &o->fingerprint, st));
    MR_TRY(get_text(r, &o->graph, st));
    MR_TRY(mr_state_get_u64(r, &n, st));
    mr_code rc = MR_OK;
    /* Grown as they come: the number is untrusted. */
    while (o->n < n && rc == MR_OK) {
        MR_TRY(MR_GROW(o->inputs, capacity, o->n + 1, 1 << 28, "the inputs of a file", st));
        o->inputs[o->n] = (mr__noted_input){0};
        rc = get_input(r, &o->inputs[o->n++], st);
    }
    return rc;
}

/* ---- comparing ---- */

#define WHAT_TO_DO "remove it to have it written again, or give another name"

static mr_code another_graph(const mr__element_origin *found, const mr__element_origin *now,
                             const char *path, mr_status *st)
{
    const char *theirs = found->graph, *ours = now->graph ? now->graph : "";
    size_t at = 0;
    while (ours[at] && ours[at] == theirs[at])
        at++;
    size_t op = at; /* the beginning of the op that differs */
    while (op > 0 && !(theirs[op - 1] == '.' && theirs[op] >= 'a' && theirs[op] <= 'z'))
        op--;
    if (!*theirs || !*ours || (!ours[at] && !theirs[at])) /* or they differ after what is kept */
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s was written by another graph, with another seed, or from another list "
                       "of files (its fingerprint is %016" PRIx64 ", this one's %016" PRIx64
                       "); " WHAT_TO_DO,
                       path, found->fingerprint, now->fingerprint);
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "%s was written by another graph: it had '%.100s' where this one has "
                   "'%.100s'; " WHAT_TO_DO,
                   path, theirs + op, ours + op);
}

static mr_code check_file(const mr__noted_input *x, const mr__graph_urls *urls, const char *path,
                          bool times, mr_status *st)
{
    mr__noted_input now = {0};
    struct stat is;
    if (!mr__look_at_input(mr__graph_urls_find(urls, x->name), &now))
        return mr_fail(st, MR_FAILED_PRECONDITION, "%s was made from %s, which %s; " WHAT_TO_DO,
                       path, x->name,
                       mr__sys->stat(x->name, &is) == 0 ? "is not a regular file any more"
                                                        : "cannot be found any more");
    if (now.size != x->size)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s was made from %s, which had %" PRId64 " bytes then and has %" PRId64
                       " now; " WHAT_TO_DO,
                       path, x->name, x->size, now.size);
    if (times && (now.seconds != x->seconds || now.nanoseconds != x->nanoseconds))
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s was made from %s, which has been written since; " WHAT_TO_DO, path,
                       x->name);
    return MR_OK;
}

static int by_name(const void *a, const void *b)
{
    const mr__noted_input *x = a, *y = b;
    return x->pattern != y->pattern ? x->pattern - y->pattern : strcmp(x->name, y->name);
}

/* A file that matches now must have been read: inputs are sorted. */
static mr_code check_pattern(const mr__element_origin *found, const char *pattern, const char *path,
                             mr_status *st)
{
    char **files = NULL;
    size_t n = 0;
    mr_status why;
    mr_code rc = mr_data_files(&pattern, 1, &files, &n, &why);
    if (rc == MR_RESOURCE_EXHAUSTED) {
        if (st)
            *st = why;
        return rc;
    }
    rc = MR_OK; /* files that are gone are named by check_file */
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        const mr__noted_input key = {.name = files[i]};
        mr__noted_input now;
        if (mr__look_at_input(files[i], &now) &&
            !bsearch(&key, found->inputs, found->n, sizeof key, by_name))
            rc = mr_fail(st, MR_FAILED_PRECONDITION,
                         "%s was made from the files that matched %s, and %s is new; " WHAT_TO_DO,
                         path, pattern, files[i]);
    }
    mr_glob_free(files, n);
    return rc;
}

static bool any_is_left(const mr__element_origin *found, const mr__graph_urls *urls)
{
    struct stat is;
    mr__noted_input now;
    for (size_t i = 0; i < found->n; i++) {
        const char *name = found->inputs[i].name;
        if (found->inputs[i].pattern)
            continue;
        if (mr__is_url(name) ? mr__look_at_input(mr__graph_urls_find(urls, name), &now)
                             : mr__sys->stat(name, &is) == 0 || errno != ENOENT)
            return true;
    }
    return false;
}

static bool reads_the_web(const mr__element_origin *found)
{
    for (size_t i = 0; i < found->n; i++)
        if (mr__url_kind_of(found->inputs[i].name) == MR__URL_HTTP)
            return true;
    return false;
}

mr_code mr__element_origin_check(const mr__element_origin *found, const mr__element_origin *now,
                                 const char *path, bool times, mr_status *st)
{
    mr__graph_urls urls = {0};
    if (found->fingerprint != now->fingerprint)
        return another_graph(found, now, path, st);
    mr_code rc = reads_the_web(found) ? mr__graph_urls_of(now->dataset, &urls, st) : MR_OK;
    if (found->n)
        qsort(found->inputs, found->n, sizeof *found->inputs, by_name);
    for (size_t i = 0; i < found->n && rc == MR_OK; i++)
        if (found->inputs[i].pattern)
            rc = check_pattern(found, found->inputs[i].name, path, st);
    bool left = rc == MR_OK && any_is_left(found, &urls);
    for (size_t i = 0; i < found->n && rc == MR_OK && left; i++)
        if (!found->inputs[i].pattern)
            rc = check_file(&found->inputs[i], &urls, path, times, st);
    mr__graph_urls_reset(&urls);
    return rc;
}
