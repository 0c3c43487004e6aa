/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/sources/file_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/engine/inputs_read.h"
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/engine/philox.h"
#include "pipeline/files/file_name.h"
#include "pipeline/files/glob.h"
#include "pipeline/fnv.h"
#include "pipeline/formats/shards/data_files.h"
#include "pipeline/formats/shards/missing_shards.h"
#include "pipeline/remote/remote_object.h"
#include "pipeline/system/fork.h"

enum { MOST_FILES = 1 << 28 };

void mr__file_list_unref(mr__file_list *l)
{
    /* Acquire and release: the last one frees what others read. */
    if (!l || atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < l->n; i++)
        mr_free(l->paths[i]);
    mr_free(l->paths);
    mr_free(l);
}

mr__file_list *mr__file_list_ref(mr__file_list *l)
{
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    return l;
}

static mr_code list_new(mr__file_list **out, mr_status *st)
{
    mr__file_list *l = mr_calloc(1, sizeof *l);
    if (!l)
        return mr_fail_memory(st, sizeof *l, "a list of files");
    atomic_init(&l->refs, 1);
    *out = l;
    return MR_OK;
}

static mr_code list_add(mr__file_list *l, size_t *capacity, const char *path, size_t size,
                        mr_status *st)
{
    MR_TRY(mr_grow((void **)&l->paths, capacity, l->n + 1, sizeof *l->paths, MOST_FILES,
                   "a list of files", st));
    l->paths[l->n] = mr_strndup(path, size);
    if (!l->paths[l->n])
        return mr_fail_memory(st, size, "a file name");
    l->n++;
    return MR_OK;
}

MR_API bool mr__file_is_pattern(const mr_strs *names, size_t i)
{
    return !(names->is_path && names->is_path[i]) && mr_glob_is_pattern(names->v[i].data);
}

/* it NULL: the graph is being built or analysed in this thread. */
static mr_code path_of(const mr_iter *it, const char *name, char **out, mr_status *st)
{
    return it ? mr_iter_file_path(it, name, out, st) : mr__file_name(name, out, st);
}

/* Adds the matches of patterns first..end, sorted together. */
static mr_code add_matches(mr_iter *it, mr__file_list *l, size_t *capacity, const mr_strs *names,
                           size_t first, size_t end, mr_status *st)
{
    size_t n = end - first, n_paths = 0;
    char **paths = NULL, **patterns = mr_calloc(n, sizeof *patterns);
    if (!patterns)
        return mr_fail_memory(st, n * sizeof *patterns, "file patterns");
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = path_of(it, names->v[first + i].data, &patterns[i], st);
    if (rc == MR_OK)
        rc = mr_data_files((const char *const *)patterns, n, &paths, &n_paths, st);
    if (rc == MR_OK && it) /* else a look before the run */
        mr__warn_of_missing_shards((const char *const *)patterns, n, paths, n_paths);
    /* The list contains the names as written, without the directory. */
    size_t before = rc == MR_OK ? strlen(patterns[0]) - names->v[first].size : 0;
    for (size_t i = 0; i < n_paths && rc == MR_OK; i++) {
        const char *path = paths[i];
        path += strncmp(path, patterns[0], before) == 0 ? before : 0;
        rc = list_add(l, capacity, path, strlen(path), st);
    }
    mr_glob_free(paths, n_paths);
    for (size_t i = 0; i < n; i++)
        mr_free(patterns[i]);
    mr_free(patterns);
    return rc;
}

/* The fingerprint of the first n names, including their terminating NUL bytes. Listed objects have
 * their sizes and ETags in it. */
static uint64_t fingerprint(const mr__file_list *l, size_t n)
{
    uint64_t hash = MR__FNV_BASIS;
    mr__object_info info;
    char url[8192];
    for (size_t i = 0; i < n; i++) {
        bool is_long = false;
        if (mr__is_url(l->paths[i])) {
            is_long = snprintf(url, sizeof url, "%s", l->paths[i]) >= (int)sizeof url;
            mr_text_drop_secrets(url);
        }
        const char *name = mr__is_url(l->paths[i]) && !is_long ? url : l->paths[i];
        hash = mr__fnv1a(hash, name, strlen(name) + 1);
        if (mr__is_url(l->paths[i]) && mr__object_recall(l->paths[i], &info)) {
            hash = mr__fnv1a(hash, &info.size, sizeof info.size);
            hash = mr__fnv1a(hash, info.etag, strlen(info.etag) + 1);
        }
    }
    return hash;
}

static mr_code match(mr_iter *it, const mr_strs *names, bool all, mr__file_list **out,
                     mr_status *st)
{
    mr__file_list *l = NULL;
    size_t capacity = 0;
    MR_TRY(list_new(&l, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < names->n && rc == MR_OK;) {
        size_t end = i;
        while (end < names->n && (all || mr__file_is_pattern(names, end)))
            end++;
        if (end > i)
            rc = add_matches(it, l, &capacity, names, i, end, st);
        else
            rc = list_add(l, &capacity, names->v[i].data, names->v[i].size, st);
        i = end > i ? end : i + 1;
    }
    if (rc != MR_OK) {
        mr__file_list_unref(l);
        return rc;
    }
    l->fingerprint = fingerprint(l, l->n);
    *out = l;
    return MR_OK;
}

mr_code mr__file_list_look(const mr_strs *names, mr__file_list **out, mr_status *st)
{
    mr__file_list *l = NULL;
    mr_code rc = match(NULL, names, false, &l, st);
    for (size_t i = 0; rc == MR_OK && i < l->n; i++) {
        char *name = l->paths[i];
        rc = mr__file_name(name, &l->paths[i], st);
        if (rc == MR_OK)
            mr_free(name);
        else
            l->paths[i] = name;
    }
    if (rc == MR_OK)
        *out = l;
    else
        mr__file_list_unref(l);
    return rc;
}

/* The state shared by the iterators of one dataset. */
struct shared {
    mr__lock lock; /* guards the rest */
    mr__file_list *list;
    mr__record_set *records; /* of the list, or of literal names; NULL: not opened yet */
    bool expects;            /* of the expected list: number of files and their fingerprint */
    uint64_t expected_n, expected_fingerprint;
    bool has_pair; /* list_files(shuffle=true): its generator Philox(pair) and the words drawn */
    uint64_t pair[2], drawn;
};

static void init_shared(void *p)
{
    mr__lock_init(&((struct shared *)p)->lock);
}

static void destroy_shared(void *p)
{
    struct shared *s = p;
    mr__file_list_unref(s->list);
    mr__record_set_unref(s->records);
    mr__lock_destroy(&s->lock);
}

static mr_code shared_of(mr_dataset *node, struct shared **out, mr_status *st)
{
    void *p;
    MR_TRY(mr_node_shared(node, sizeof(struct shared), init_shared, destroy_shared, &p, st));
    *out = p;
    return MR_OK;
}

static mr__file_list *take_list(struct shared *s)
{
    mr__lock_take(&s->lock);
    mr__file_list *l = s->list ? mr__file_list_ref(s->list) : NULL;
    mr__lock_release(&s->lock);
    return l;
}

/* Truncates the list to the files of the position. Called with s->lock held. */
static mr_code fit(const struct shared *s, const mr_strs *names, mr__file_list *l, mr_status *st)
{
    size_t n = (size_t)s->expected_n;
    if (!s->expects)
        return MR_OK;
    if (n > l->n || fingerprint(l, n) != s->expected_fingerprint)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the position was saved with %zu files that matched '%.200s'%s, but the %zu "
                       "that match now are not the same; restore those files, or start over",
                       n, names->v[0].data, names->n > 1 ? " and more" : "", l->n);
    while (l->n > n)
        mr_free(l->paths[--l->n]);
    l->fingerprint = s->expected_fingerprint;
    return MR_OK;
}

/* Notes the patterns, and the files that match them, for files of elements. */
static mr_code note(const mr_iter *it, const mr_strs *names, bool all, const mr__file_list *l,
                    mr_status *st)
{
    char *path;
    bool any = false;
    for (size_t i = 0; i < names->n; i++) {
        bool added;
        if (!all && !mr__file_is_pattern(names, i))
            continue;
        MR_TRY(mr_iter_file_path(it, names->v[i].data, &path, st));
        mr_code rc = mr__iter_note_pattern(it, path, &added, st);
        mr_free(path);
        MR_TRY(rc);
        any = any || added;
    }
    for (size_t i = 0; i < l->n && any; i++) {
        MR_TRY(mr_iter_file_path(it, l->paths[i], &path, st)); /* notes it */
        mr_free(path);
    }
    return MR_OK;
}

mr_code mr__file_list_match(mr_iter *it, const mr_strs *names, bool all, mr__file_list **out,
                            mr_status *st)
{
    struct shared *s;
    MR_TRY(shared_of(it->node, &s, st));
    mr__file_list *l = take_list(s);
    mr_code rc = MR_OK;
    if (!l) {
        MR_TRY(match(it, names, all, &l, st));
        mr__lock_take(&s->lock);
        rc = fit(s, names, l, st);
        if (rc == MR_OK && !s->list) {
            s->list = mr__file_list_ref(l);
        } else if (rc == MR_OK) { /* another iterator was faster */
            mr__file_list_unref(l);
            l = mr__file_list_ref(s->list);
        }
        mr__lock_release(&s->lock);
    }
    if (rc == MR_OK)
        rc = note(it, names, all, l, st);
    if (rc == MR_OK)
        *out = l;
    else
        mr__file_list_unref(l);
    return rc;
}

mr_code mr__file_list_rematch(mr_iter *it, const mr_strs *names, bool all, mr__file_list **out,
                              mr_status *st)
{
    struct shared *s;
    mr_status why;
    *out = NULL;
    MR_TRY(shared_of(it->node, &s, st));
    mr__lock_take(&s->lock);
    bool expects = s->expects;
    mr__lock_release(&s->lock);
    mr_code rc = mr__file_list_match(it, names, all, out, &why);
    /* Lack of memory says nothing about the files. */
    if (rc == MR_OK || (!expects && rc != MR_RESOURCE_EXHAUSTED))
        return MR_OK;
    if (st)
        *st = why;
    return rc;
}

mr_code mr__file_list_records(mr_iter *it, const char *const *paths, size_t n, mr__record_set **out,
                              mr_status *st)
{
    struct shared *s;
    MR_TRY(shared_of(it->node, &s, st));
    mr__lock_take(&s->lock);
    mr__record_set *set = s->records ? mr__record_set_ref(s->records) : NULL;
    mr__lock_release(&s->lock);
    if (!set) {
        MR_TRY(mr__record_set_open(it, paths, n, &set, st));
        mr__lock_take(&s->lock);
        if (!s->records)
            s->records = mr__record_set_ref(set);
        mr__lock_release(&s->lock);
    }
    *out = set;
    return MR_OK;
}

/* After a pass that could not be opened: the next one draws the same words. */
static void draw_back(mr_iter *it)
{
    struct shared *s;
    if (shared_of(it->node, &s, NULL) != MR_OK) /* it is there */
        return;
    mr__lock_take(&s->lock);
    s->drawn -= s->drawn >= 2 ? 2 : 0;
    mr__lock_release(&s->lock);
}

mr_code mr__file_list_draw(mr_iter *it, const int64_t *seed, uint64_t words[2], mr_status *st)
{
    struct shared *s;
    mr__philox generator;
    MR_TRY(shared_of(it->node, &s, st));
    mr__lock_take(&s->lock);
    if (!s->has_pair) {
        s->pair[0] = s->pair[1] = 0;
        if (seed)
            mr__seed_pair(*seed, s->pair);
        else
            s->pair[0] = mr_iter_fresh_seed(it);
        s->has_pair = true;
    }
    mr__philox_init(&generator, s->pair[0], s->pair[1]);
    mr__philox_skip(&generator, s->drawn);
    words[0] = mr__philox_next(&generator);
    words[1] = mr__philox_next(&generator);
    s->drawn += 2;
    mr__lock_release(&s->lock);
    mr__iter_set_undo(it, draw_back);
    return MR_OK;
}

/* ---- shared state: list 0, or 1, number of paths, fingerprint; generator 0, or 1, pair, words
 * drawn ---- */

mr_code mr__file_list_save_shared(mr_dataset *node, mr_state_w *w, mr_status *st)
{
    struct shared *s;
    MR_TRY(shared_of(node, &s, st));
    mr__lock_take(&s->lock);
    struct shared now = *s;
    if (now.list) {
        now.expects = true;
        now.expected_n = now.list->n;
        now.expected_fingerprint = now.list->fingerprint;
    }
    mr__lock_release(&s->lock);
    MR_TRY(mr_state_put_u64(w, now.expects, st));
    if (now.expects) {
        MR_TRY(mr_state_put_u64(w, now.expected_n, st));
        MR_TRY(mr_state_put_u64(w, now.expected_fingerprint, st));
    }
    MR_TRY(mr_state_put_u64(w, now.has_pair, st));
    if (!now.has_pair)
        return MR_OK;
    MR_TRY(mr_state_put_u64(w, now.pair[0], st));
    MR_TRY(mr_state_put_u64(w, now.pair[1], st));
    return mr_state_put_u64(w, now.drawn, st);
}

static mr_code get_expected(mr_state_r *r, struct shared *s, mr_status *st)
{
    uint64_t expects, has_pair;
    MR_TRY(mr_state_get_u64(r, &expects, st));
    s->expects = expects;
    if (expects) {
        MR_TRY(mr_state_get_u64(r, &s->expected_n, st));
        MR_TRY(mr_state_get_u64(r, &s->expected_fingerprint, st));
    }
    MR_TRY(mr_state_get_u64(r, &has_pair, st));
    s->has_pair = has_pair;
    if (has_pair) {
        MR_TRY(mr_state_get_u64(r, &s->pair[0], st));
        MR_TRY(mr_state_get_u64(r, &s->pair[1], st));
        MR_TRY(mr_state_get_u64(r, &s->drawn, st));
    }
    if (expects > 1 || has_pair > 1 || (expects && s->expected_n > MOST_FILES))
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: invalid list of files");
    return MR_OK;
}

mr_code mr__file_list_restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st)
{
    struct shared *s, then = {.list = NULL};
    MR_TRY(shared_of(node, &s, st));
    MR_TRY(get_expected(r, &then, st));
    mr__lock_take(&s->lock);
    mr__file_list *old = s->list;
    mr__record_set *records = s->records;
    s->records = NULL;
    /* A list already matched in this process is reused if it is the expected one. */
    if (old && then.expects && old->n == then.expected_n &&
        old->fingerprint == then.expected_fingerprint)
        old = NULL;
    else
        s->list = NULL;
    s->expects = then.expects;
    s->expected_n = then.expected_n;
    s->expected_fingerprint = then.expected_fingerprint;
    s->has_pair = then.has_pair;
    s->pair[0] = then.pair[0];
    s->pair[1] = then.pair[1];
    s->drawn = then.drawn;
    mr__lock_release(&s->lock);
    mr__record_set_unref(records);
    mr__file_list_unref(old);
    return MR_OK;
}

/* ---- the graph ---- */

mr_code mr__file_names_check(const mr_strs *names, mr_status *st)
{
    for (size_t i = 0; i < names->n; i++) {
        if (names->v[i].size == 0)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "file name %zu is empty; give the path of a file", i);
        if (memchr(names->v[i].data, 0, names->v[i].size))
            return mr_fail(st, MR_INVALID_ARGUMENT, "file name %zu has a NUL byte in it", i);
    }
    return MR_OK;
}

mr_code mr__file_path_column(const char *path, mr_array *out, mr_status *st)
{
    mr_buffer *text;
    size_t size = strlen(path);
    mr_array column;
    *out = (mr_array){0};
    MR_TRY(mr_array_alloc(&column, MR_STRING, 0, NULL, 1, st));
    mr_code rc = mr_buffer_alloc(&text, size, st);
    if (rc == MR_OK) {
        memcpy(mr_buffer_data(text), path, size);
        *(mr_bytes *)column.data = (mr_bytes){mr_buffer_data(text), size};
        rc = mr_buffer_hold(column.owner, text, st);
        mr_buffer_unref(text);
    }
    if (rc == MR_OK)
        *out = column;
    else
        mr_array_reset(&column);
    return rc;
}

mr_code mr__file_infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    (void)self;
    (void)params;
    *out = mr_spec_scalar(MR_STRING);
    return *out ? MR_OK : mr_fail_memory(st, sizeof(void *), "a spec");
}

mr_dataset *mr__file_names_dataset(const mr_op *op, void *params, const char *const *files,
                                   size_t n, bool paths)
{
    mr_strs *names = params;
    *names = (mr_strs){.v = mr_malloc(n * (sizeof *names->v + sizeof *names->is_path)), .n = n};
    if (!names->v) {
        mr_status st;
        mr_fail_memory(&st, n * sizeof *names->v, "file names");
        return mr_dataset_fail(&st);
    }
    names->is_path = (bool *)(names->v + n);
    for (size_t i = 0; i < n; i++) {
        if (!files[i]) {
            mr_status st;
            mr_fail(&st, MR_INVALID_ARGUMENT, "%s: file name %zu is NULL", op->name, i);
            mr_free(names->v);
            return mr_dataset_fail(&st);
        }
        names->v[i] = (mr_bytes){files[i], strlen(files[i])};
        names->is_path[i] = paths;
    }
    mr_dataset *ds = mr_dataset_new(op, params, NULL, 0);
    mr_free(names->v);
    return ds;
}
