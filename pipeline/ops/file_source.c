/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/ops/file_source.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/engine/philox.h"
#include "pipeline/files/glob.h"
#include "pipeline/files/read_ahead.h"
#include "pipeline/ops/source.h"

enum { BLOCK_BYTES = 256 << 10, MOST_FILES = 1 << 28 };

const char *const mr__compression_names[] = {"", "GZIP", "ZLIB", "ZSTD", NULL};

/* ---- lists of files ---- */

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

static mr__file_list *list_ref(mr__file_list *l)
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

static bool is_pattern(const mr_strs *names, size_t i, bool all)
{
    return all || (!(names->is_path && names->is_path[i]) && mr_glob_is_pattern(names->v[i].data));
}

static bool has_pattern(const mr_strs *names)
{
    for (size_t i = 0; i < names->n; i++)
        if (is_pattern(names, i, false))
            return true;
    return false;
}

/* Adds what patterns first..end match, sorted together. */
static mr_code add_matches(mr__file_list *l, size_t *capacity, const mr_strs *names, size_t first,
                           size_t end, mr_status *st)
{
    size_t n = end - first, n_paths = 0;
    char **paths = NULL;
    const char **patterns = mr_malloc(n * sizeof *patterns);
    if (!patterns)
        return mr_fail_memory(st, n * sizeof *patterns, "file patterns");
    for (size_t i = 0; i < n; i++)
        patterns[i] = names->v[first + i].data;
    mr_code rc = mr_glob(patterns, n, &paths, &n_paths, st);
    for (size_t i = 0; i < n_paths && rc == MR_OK; i++)
        rc = list_add(l, capacity, paths[i], strlen(paths[i]), st);
    mr_glob_free(paths, n_paths);
    mr_free((void *)patterns);
    return rc;
}

static mr_code match(const mr_strs *names, bool all, mr__file_list **out, mr_status *st)
{
    mr__file_list *l = NULL;
    size_t capacity = 0;
    MR_TRY(list_new(&l, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < names->n && rc == MR_OK;) {
        size_t end = i;
        while (end < names->n && is_pattern(names, end, all))
            end++;
        if (end > i)
            rc = add_matches(l, &capacity, names, i, end, st);
        else
            rc = list_add(l, &capacity, names->v[i].data, names->v[i].size, st);
        i = end > i ? end : i + 1;
    }
    if (rc != MR_OK) {
        mr__file_list_unref(l);
        return rc;
    }
    *out = l;
    return MR_OK;
}

/* What the iterators of one dataset share. */
struct shared {
    pthread_mutex_t lock; /* guards the rest */
    mr__file_list *list;
    bool has_pair; /* list_files(shuffle=true): its generator Philox(pair) and the words drawn */
    uint64_t pair[2], drawn;
};

static void init_shared(void *p)
{
    pthread_mutex_init(&((struct shared *)p)->lock, NULL);
}

static void destroy_shared(void *p)
{
    struct shared *s = p;
    mr__file_list_unref(s->list);
    pthread_mutex_destroy(&s->lock);
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
    pthread_mutex_lock(&s->lock);
    mr__file_list *l = s->list ? list_ref(s->list) : NULL;
    pthread_mutex_unlock(&s->lock);
    return l;
}

mr_code mr__file_list_match(mr_iter *it, const mr_strs *names, bool all, mr__file_list **out,
                            mr_status *st)
{
    struct shared *s;
    MR_TRY(shared_of(it->node, &s, st));
    mr__file_list *l = take_list(s);
    if (!l) {
        MR_TRY(match(names, all, &l, st));
        pthread_mutex_lock(&s->lock);
        if (!s->list) {
            s->list = list_ref(l);
        } else { /* another iterator was faster */
            mr__file_list_unref(l);
            l = list_ref(s->list);
        }
        pthread_mutex_unlock(&s->lock);
    }
    *out = l;
    return MR_OK;
}

mr_code mr__file_list_draw(mr_iter *it, const int64_t *seed, uint64_t words[2], mr_status *st)
{
    struct shared *s;
    mr_philox generator;
    MR_TRY(shared_of(it->node, &s, st));
    pthread_mutex_lock(&s->lock);
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
    pthread_mutex_unlock(&s->lock);
    return MR_OK;
}

/* ---- shared state: list 0, or 1, number of paths, paths; generator 0, or 1, pair, words drawn
 * ---- */

mr_code mr__file_list_save_shared(mr_dataset *node, mr_state_w *w, mr_status *st)
{
    struct shared *s;
    MR_TRY(shared_of(node, &s, st));
    mr__file_list *l = take_list(s);
    pthread_mutex_lock(&s->lock);
    uint64_t pair[2] = {s->pair[0], s->pair[1]}, drawn = s->drawn;
    bool has_pair = s->has_pair;
    pthread_mutex_unlock(&s->lock);
    mr_code rc = mr_state_put_u64(w, l != NULL, st);
    if (rc == MR_OK && l)
        rc = mr_state_put_u64(w, l->n, st);
    for (size_t i = 0; l && i < l->n && rc == MR_OK; i++)
        rc = mr_state_put_bytes(w, l->paths[i], strlen(l->paths[i]), st);
    mr__file_list_unref(l);
    if (rc == MR_OK)
        rc = mr_state_put_u64(w, has_pair, st);
    if (rc == MR_OK && has_pair)
        rc = mr_state_put_u64(w, pair[0], st);
    if (rc == MR_OK && has_pair)
        rc = mr_state_put_u64(w, pair[1], st);
    return rc == MR_OK && has_pair ? mr_state_put_u64(w, drawn, st) : rc;
}

static mr_code damaged(mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: a place in files that cannot be");
}

static mr_code get_list(mr_state_r *r, mr__file_list **out, mr_status *st)
{
    uint64_t n;
    size_t capacity = 0, size;
    const void *path;
    mr__file_list *l = NULL;
    MR_TRY(mr_state_get_u64(r, &n, st));
    MR_TRY(list_new(&l, st));
    mr_code rc = n ? MR_OK : damaged(st);
    for (uint64_t i = 0; i < n && rc == MR_OK; i++) {
        rc = mr_state_get_bytes(r, &path, &size, st);
        if (rc == MR_OK && (size == 0 || memchr(path, 0, size)))
            rc = damaged(st);
        if (rc == MR_OK)
            rc = list_add(l, &capacity, path, size, st);
    }
    if (rc != MR_OK) {
        mr__file_list_unref(l);
        return rc;
    }
    *out = l;
    return MR_OK;
}

mr_code mr__file_list_restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st)
{
    struct shared *s;
    uint64_t there, has_pair = 0, pair[2] = {0, 0}, drawn = 0;
    mr__file_list *l = NULL;
    MR_TRY(shared_of(node, &s, st));
    MR_TRY(mr_state_get_u64(r, &there, st));
    if (there > 1)
        return damaged(st);
    if (there)
        MR_TRY(get_list(r, &l, st));
    mr_code rc = mr_state_get_u64(r, &has_pair, st);
    if (rc == MR_OK && has_pair) {
        rc = mr_state_get_u64(r, &pair[0], st);
        if (rc == MR_OK)
            rc = mr_state_get_u64(r, &pair[1], st);
        if (rc == MR_OK)
            rc = mr_state_get_u64(r, &drawn, st);
    }
    if (rc == MR_OK && has_pair > 1)
        rc = damaged(st);
    if (rc != MR_OK) {
        mr__file_list_unref(l);
        return rc;
    }
    pthread_mutex_lock(&s->lock);
    mr__file_list *old = s->list;
    s->list = l;
    s->has_pair = has_pair;
    s->pair[0] = pair[0];
    s->pair[1] = pair[1];
    s->drawn = drawn;
    pthread_mutex_unlock(&s->lock);
    mr__file_list_unref(old);
    return MR_OK;
}

/* ---- reading ---- */

void mr__file_source_open(mr__file_source *s, mr_iter *it, const mr__reader_class *reader_class,
                          const mr_strs *names)
{
    s->it = it;
    s->reader_class = reader_class;
    s->names = names;
    s->patterns = has_pattern(names);
    if (mr_iter_no_uring(it))
        mr__read_use_uring(false);
    /* A failure is told by the first next: a position may bring a list of its own. */
    if (s->patterns && mr__file_list_match(it, names, false, &s->list, NULL) != MR_OK)
        s->list = NULL;
}

static void close_file(mr__file_source *s)
{
    if (s->reader)
        s->reader_class->close(s->reader);
    s->reader = NULL;
}

void mr__file_source_close(mr__file_source *s)
{
    close_file(s);
    mr__file_list_unref(s->list);
    s->list = NULL;
}

static mr_code open_file(mr__file_source *s, mr_status *st)
{
    const char *path = s->list ? s->list->paths[s->file] : s->names->v[s->file].data;
    mr_code rc = s->reader_class->open(s->it->params, path, &s->reader, st);
    if (rc == MR_OK && s->has_resume)
        rc = s->reader_class->seek(s->reader, &s->resume, st);
    if (rc != MR_OK && rc != MR_END)
        mr_status_at(st, path, -1, -1);
    s->has_resume = false;
    return rc;
}

mr_code mr__file_source_next(mr__file_source *s, size_t want, mr_block *out, mr_status *st)
{
    if (s->failed)
        return MR_END;
    if (s->patterns && !s->list) {
        mr_code rc = mr__file_list_match(s->it, s->names, false, &s->list, st);
        s->failed = rc != MR_OK;
        if (rc != MR_OK)
            return rc;
    }
    size_t n = s->list ? s->list->n : s->names->n;
    mr_array records = {0};
    for (;;) {
        mr_code rc = MR_OK;
        mr_file_position at = {0};
        if (s->file >= n)
            return MR_END;
        if (!s->reader)
            rc = open_file(s, st);
        if (rc == MR_OK) {
            s->reader_class->position(s->reader, &at);
            rc = s->reader_class->read(s->reader, want, BLOCK_BYTES, &records, st);
        }
        if (rc == MR_OK)
            rc = mr_block_prepare(out, 1, st);
        if (rc == MR_OK) {
            out->rows = records.rows;
            mr_array_move(&out->columns[0], &records);
            return mr_iter_set_identities(s->it, out, s->file, (uint64_t)at.record, st);
        }
        mr_array_reset(&records);
        close_file(s);
        s->file++;
        if (rc != MR_END)
            return rc;
    }
}

/* ---- position: file, 0; or file, 1, offset, record, ended ---- */

mr_code mr__file_source_save(mr__file_source *s, mr_state_w *w, mr_status *st)
{
    mr_file_position at = s->resume;
    if (s->reader)
        s->reader_class->position(s->reader, &at);
    bool inside = s->reader || s->has_resume;
    MR_TRY(mr_state_put_u64(w, s->file, st));
    MR_TRY(mr_state_put_u64(w, inside | (uint64_t)s->failed << 1, st));
    if (!inside)
        return MR_OK;
    MR_TRY(mr_state_put_i64(w, at.offset, st));
    MR_TRY(mr_state_put_i64(w, at.record, st));
    return mr_state_put_u64(w, at.ended, st);
}

mr_code mr__file_source_restore(mr__file_source *s, mr_state_r *r, mr_status *st)
{
    uint64_t file, flags, ended;
    close_file(s);
    if (s->patterns) { /* the list that came with the position */
        mr__file_list_unref(s->list);
        s->list = NULL;
        mr_status why;
        mr_code rc = mr__file_list_match(s->it, s->names, false, &s->list, &why);
        if (rc == MR_RESOURCE_EXHAUSTED) { /* says nothing about the position */
            if (st)
                *st = why;
            return rc;
        }
    }
    size_t n = s->list ? s->list->n : s->patterns ? 0 : s->names->n;
    MR_TRY(mr_state_get_u64(r, &file, st));
    MR_TRY(mr_state_get_u64(r, &flags, st));
    if (file > n || flags > 3)
        return damaged(st);
    s->file = (size_t)file;
    s->failed = flags & 2;
    s->has_resume = flags & 1;
    if (!s->has_resume)
        return MR_OK;
    MR_TRY(mr_state_get_i64(r, &s->resume.offset, st));
    MR_TRY(mr_state_get_i64(r, &s->resume.record, st));
    MR_TRY(mr_state_get_u64(r, &ended, st));
    s->resume.ended = ended;
    if (s->resume.offset < 0 || s->resume.record < 0 || ended > 1 || file == n)
        return damaged(st);
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

mr_code mr__file_infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    (void)self;
    (void)params;
    *out = mr_spec_scalar(MR_STRING);
    return *out ? MR_OK : mr_fail_memory(st, sizeof(void *), "a spec");
}

mr_strs mr__file_names_of(const char *const *files, size_t n, bool paths)
{
    mr_strs s = {.v = mr_malloc(n * (sizeof *s.v + sizeof *s.is_path)), .n = n};
    s.is_path = s.v ? (bool *)(s.v + n) : NULL;
    for (size_t i = 0; s.v && i < n; i++) {
        s.v[i] = (mr_bytes){files[i], strlen(files[i])};
        s.is_path[i] = paths;
    }
    return s;
}

mr_dataset *mr__file_list_dataset(char *const *paths, size_t n)
{
    mr_status st;
    const int64_t shape[1] = {(int64_t)n};
    const mr_op *op = mr_op_find("from_tensor_slices", strlen("from_tensor_slices"));
    mr_value names = {.kind = MR_V_TENSOR}, all = {.kind = MR_V_TUPLE, .n = 1, .items = &names};
    size_t n_params = 0, bytes = 0;
    while (op->params[n_params].name)
        n_params++;
    for (size_t i = 0; i < n; i++)
        bytes += strlen(paths[i]);
    mr_buffer *text = NULL;
    mr_dataset *ds = NULL;
    mr_value *values = mr_calloc(n_params, sizeof *values);
    mr_code rc = values ? mr_array_alloc(&names.tensor, MR_STRING, 1, shape, 1, &st)
                        : mr_fail_memory(&st, n_params * sizeof *values, "parameters");
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&text, bytes, &st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(names.tensor.owner, text, &st);
    if (rc == MR_OK) {
        char *at = mr_buffer_data(text);
        mr_bytes *v = names.tensor.data;
        for (size_t i = 0; i < n; i++) {
            v[i] = (mr_bytes){at, strlen(paths[i])};
            memcpy(at, paths[i], v[i].size);
            at += v[i].size;
        }
        values[0] = all;
        ds = mr_dataset_from_values(op, values, NULL, 0);
    } else {
        ds = mr_dataset_fail(&st);
    }
    mr_buffer_unref(text);
    mr_array_reset(&names.tensor);
    mr_free(values);
    return ds;
}

/* Names first..end, of one kind. */
static mr_dataset *group_dataset(const mr_strs *names, size_t first, size_t end, bool patterns)
{
    size_t n = end - first;
    mr_status st;
    char **paths = mr_malloc(n * sizeof *paths);
    if (!paths) {
        mr_fail_memory(&st, n * sizeof *paths, "file names");
        return mr_dataset_fail(&st);
    }
    for (size_t i = 0; i < n; i++) /* NUL-ended */
        paths[i] = (char *)(uintptr_t)names->v[first + i].data;
    mr_dataset *ds = patterns ? mr_list_files((const char *const *)paths, n, NULL)
                              : mr__file_list_dataset(paths, n);
    mr_free(paths);
    return ds;
}

static mr_dataset *concatenate(mr_dataset *a, mr_dataset *b)
{
    mr_dataset *const both[] = {a, b};
    return mr_dataset_new(mr_op_find("concatenate", strlen("concatenate")), NULL, both, 2);
}

mr_dataset *mr__file_names_dataset(const mr_strs *names)
{
    mr_dataset *all = NULL;
    for (size_t i = 0; i < names->n || !all;) {
        size_t end = i;
        bool patterns = i < names->n && is_pattern(names, i, false);
        while (end < names->n && is_pattern(names, end, false) == patterns)
            end++;
        mr_dataset *group = group_dataset(names, i, end, patterns);
        all = all ? concatenate(all, group) : group;
        i = end;
        if (names->n == 0)
            break;
    }
    return all;
}

mr_dataset *mr__file_paths_dataset(const mr_strs *names)
{
    return group_dataset(names, 0, names->n, false);
}
