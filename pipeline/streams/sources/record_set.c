/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/sources/record_set.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/formats/tfrecord/record_index_internal.h"

void mr__record_set_unref(mr__record_set *s)
{
    /* Acquire and release: the last one frees what others read. */
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < s->n_files; i++) {
        if (s->indexes)
            mr_record_index_close(s->indexes[i]);
        if (s->paths)
            mr_free(s->paths[i]);
    }
    mr_free(s->indexes);
    mr_free(s->paths);
    mr_free(s->first);
    mr_free(s->marks);
    mr_free(s);
}

mr__record_set *mr__record_set_ref(mr__record_set *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

static mr_code count_records(mr_iter *it, mr__record_set *s, size_t i, mr__record_count_fn *count,
                             int64_t *n, mr_status *st)
{
    if (count) {
        mr_code rc = count(it->params, s->paths[i], n, &s->marks[i], st);
        if (rc != MR_OK)
            mr_status_at(st, s->paths[i], -1, -1);
        return rc;
    }
    MR_TRY(mr_record_index_open(&s->indexes[i], s->paths[i], st));
    *n = mr_record_index_count(s->indexes[i]);
    s->marks[i] = mr__record_index_mark(s->indexes[i]);
    return MR_OK;
}

static mr_code open_files(mr_iter *it, mr__record_set *s, const char *const *paths,
                          mr__record_count_fn *count, mr_status *st)
{
    for (size_t i = 0; i < s->n_files; i++) {
        int64_t n;
        MR_TRY(mr_iter_file_path(it, paths[i], &s->paths[i], st));
        MR_TRY(count_records(it, s, i, count, &n, st));
        s->first[i + 1] = s->first[i] + (uint64_t)n;
    }
    return MR_OK;
}

mr_code mr__record_set_open(mr_iter *it, const char *const *paths, size_t n, mr__record_set **out,
                            mr_status *st)
{
    return mr__record_set_count(it, paths, n, NULL, out, st);
}

mr_code mr__record_set_count(mr_iter *it, const char *const *paths, size_t n,
                             mr__record_count_fn *count, mr__record_set **out, mr_status *st)
{
    mr__record_set *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "indexes");
    atomic_init(&s->refs, 1);
    s->n_files = n;
    s->paths = mr_calloc(n + 1, sizeof *s->paths);
    s->indexes = count ? NULL : mr_calloc(n + 1, sizeof(mr_record_index *));
    s->first = mr_calloc(n + 1, sizeof *s->first);
    s->marks = mr_calloc(n + 1, sizeof *s->marks);
    mr_code rc = s->paths && (count || s->indexes) && s->first && s->marks
                     ? open_files(it, s, paths, count, st)
                     : mr_fail_memory(st, n * sizeof *s->first, "indexes");
    if (rc != MR_OK) {
        mr__record_set_unref(s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

size_t mr__record_set_find(const mr__record_set *s, uint64_t number)
{
    size_t low = 0, high = s->n_files; /* first[low] <= number < first[high] */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s->first[middle] <= number)
            low = middle;
        else
            high = middle;
    }
    return low;
}
