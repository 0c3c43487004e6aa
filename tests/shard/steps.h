/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_SHARD_STEPS_H
#define MR_TESTS_SHARD_STEPS_H
/* Running a distributed expression and writing what each replica got as a line a step:
 *
 *     [0,1] [2,3]
 *     [4] _[]              "_": a replica without data
 *
 * Several components are joined by ':'. An error ends the text with "error". */
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/memory/alloc.h"
#include "shard/distribute/distribute.h"
#include "tests/harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct steps_text {
    char v[16384];
    size_t n;
} steps_text;

static inline void steps_put(steps_text *t, const char *s, size_t n)
{
    if (t->n + n >= sizeof t->v)
        mr_fail_test("the text of the steps is too long");
    memcpy(t->v + t->n, s, n);
    t->n += n;
    t->v[t->n] = 0;
}

static inline void steps_put_value(steps_text *t, const mr_array *a, const void *p)
{
    char number[32];
    if (a->dtype == MR_STRING) {
        const mr_bytes *b = p;
        steps_put(t, b->data, b->size);
    } else if (a->dtype == MR_INT64) {
        steps_put(t, number,
                  (size_t)snprintf(number, sizeof number, "%" PRId64, *(const int64_t *)p));
    } else if (a->dtype == MR_FLOAT32) {
        steps_put(t, number,
                  (size_t)snprintf(number, sizeof number, "%g", (double)*(const float *)p));
    } else
        mr_fail_test("no text for this dtype");
}

static inline const char *steps_put_axis(steps_text *t, const mr_array *a, const int64_t *shape,
                                         int axis, const char *p)
{
    if (axis == a->rank) {
        steps_put_value(t, a, p);
        return p + mr_dtype_size(a->dtype);
    }
    steps_put(t, "[", 1);
    for (int64_t i = 0; i < shape[axis]; i++) {
        if (i)
            steps_put(t, ",", 1);
        p = steps_put_axis(t, a, shape, axis + 1, p);
    }
    steps_put(t, "]", 1);
    return p;
}

static inline void steps_put_step(steps_text *t, const mr_step *s)
{
    for (size_t r = 0; r < s->n_replicas; r++) {
        const mr_block *b = &s->replicas[r];
        if (r)
            steps_put(t, " ", 1);
        if (!s->has_data[r])
            steps_put(t, "_", 1);
        mr_eq_u64(b->rows, 1);
        for (size_t c = 0; c < b->n_columns; c++) {
            if (c)
                steps_put(t, ":", 1);
            const mr_array *a = &b->columns[c];
            if (a->storage == MR_RAGGED) {
                const mr_row *row = a->data;
                steps_put_axis(t, a, row->shape, 0, row->data);
            } else
                steps_put_axis(t, a, a->shape, 0, a->data);
        }
    }
    steps_put(t, "\n", 1);
}

/* The steps of an open iterator, at most `limit` (negative: all). */
static inline mr_code steps_run(mr_dist_iterator *it, int64_t limit, steps_text *t, mr_status *st)
{
    mr_step s;
    mr_code rc = MR_OK;
    while (limit-- != 0 && (rc = mr_dist_iterator_next(it, NULL, &s, st)) == MR_OK)
        steps_put_step(t, &s);
    if (rc < 0)
        steps_put(t, "error", 5);
    return rc;
}

/* The text of one run; rc of what ended it. from_function: expr is an input function. */
static inline mr_code steps_of(const char *expr, bool from_function, const mr_distribute_opts *o,
                               int64_t limit, steps_text *t, mr_status *st)
{
    const mr_dist_iterator_opts run = {.run = {.has_threads = true, .threads = 0}};
    mr_dist_dataset *dd = NULL;
    mr_dist_iterator *it = NULL;
    mr_code rc;
    t->n = 0;
    t->v[0] = 0;
    if (from_function)
        rc = mr_distribute_from_text(expr, strlen(expr), o, &dd, st);
    else {
        mr_dataset *ds = mr_test_graph(expr);
        rc = mr_distribute_dataset(ds, o, &dd, st);
        mr_dataset_unref(ds);
    }
    if (rc == MR_OK)
        rc = mr_dist_iterator_open(&it, dd, &run, st);
    if (rc == MR_OK)
        rc = steps_run(it, limit, t, st);
    mr_dist_iterator_close(it);
    mr_dist_dataset_free(dd);
    return rc;
}

/* Goes to an empty directory and writes f0, f1, ...: TFRecord files with counts[i] records each,
 * which are numbered through. Every test runs in a separate process. */
static inline void steps_files(size_t n, const int *counts)
{
    int next = 0;
    mr_check(chdir(mr_test_dir()) == 0);
    for (size_t i = 0; i < n; i++) {
        char name[32], record[32];
        mr_status st;
        mr_tfrecord_writer *w = NULL;
        snprintf(name, sizeof name, "f%zu", i);
        mr_ok(mr_tfrecord_writer_open(&w, name, NULL, &st), &st);
        for (int k = 0; k < counts[i]; k++) {
            int size = snprintf(record, sizeof record, "%d", next++);
            mr_ok(mr_tfrecord_writer_append(w, record, (size_t)size, &st), &st);
        }
        mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    }
}
#endif
