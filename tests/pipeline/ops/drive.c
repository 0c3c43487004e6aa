/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory/object.h"
#include "tests/fault.h"
#include "tests/harness.h"

enum { MAX_ANSWERS = 4096 };

/* A run's answers so far, and where each began. The tests' own memory: malloc. */
struct answers {
    char *text;
    size_t size, capacity;
    size_t begin[MAX_ANSWERS + 1];
    size_t n;
};

static void add(struct answers *a, const char *fmt, ...) MR_PRINTF(2, 3);
static void add(struct answers *a, const char *fmt, ...)
{
    va_list ap;
    char piece[1400];
    va_start(ap, fmt);
    int n = vsnprintf(piece, sizeof piece, fmt, ap);
    va_end(ap);
    mr_check(n >= 0 && (size_t)n < sizeof piece);
    if (a->size + (size_t)n + 1 > a->capacity) {
        a->capacity = 2 * a->capacity + (size_t)n + 256;
        a->text = realloc(a->text, a->capacity);
        mr_check(a->text);
    }
    memcpy(a->text + a->size, piece, (size_t)n + 1);
    a->size += (size_t)n;
}

static void begin(struct answers *a)
{
    mr_check(a->n < MAX_ANSWERS);
    if (a->n)
        add(a, " ");
    else
        add(a, "%s", "");
    a->begin[a->n++] = a->size;
    a->begin[a->n] = a->size;
}

static void add_dataset(struct answers *a, mr_dataset *ds);

static void add_value(struct answers *a, mr_dtype t, const void *values, size_t i)
{
    switch (t) {
    case MR_INT64:
        add(a, "%" PRId64, ((const int64_t *)values)[i]);
        break;
    case MR_FLOAT32:
        add(a, "%g", (double)((const float *)values)[i]);
        break;
    case MR_FLOAT64:
        add(a, "%g", ((const double *)values)[i]);
        break;
    case MR_BOOL:
        add(a, "%s", ((const bool *)values)[i] ? "true" : "false");
        break;
    case MR_UINT8:
        add(a, "%d", ((const uint8_t *)values)[i]);
        break;
    case MR_STRING: {
        const mr_bytes *b = (const mr_bytes *)values + i;
        add(a, "\"%.*s\"", (int)b->size, b->size ? b->data : "");
        break;
    }
    case MR_DATASET:
        add_dataset(a, ((mr_dataset *const *)values)[i]);
        break;
    default:
        mr_fail_test("no text for %s", mr_dtype_name(t));
    }
}

/* Values from *at on, in nested brackets. splits: of axis 1, if it is ragged. */
static void add_tensor(struct answers *a, mr_dtype t, const void *values, int rank,
                       const int64_t *shape, const int64_t *splits, size_t *at)
{
    if (rank == 0) {
        add_value(a, t, values, (*at)++);
        return;
    }
    add(a, "[");
    for (int64_t i = 0; i < shape[0]; i++) {
        int64_t inner[MR_MAX_RANK];
        memcpy(inner, shape + 1, (size_t)(rank - 1) * sizeof *inner);
        if (splits)
            inner[0] = splits[i + 1] - splits[i];
        add(a, "%s", i ? "," : "");
        add_tensor(a, t, values, rank - 1, inner, NULL, at);
    }
    add(a, "]");
}

static void add_row(struct answers *a, const mr_block *b, size_t r)
{
    add(a, "%s", b->n_columns == 1 ? "" : "(");
    for (size_t c = 0; c < b->n_columns; c++) {
        const mr_array *col = &b->columns[c];
        size_t at = 0;
        mr_eq_u64(col->rows, b->rows);
        add(a, "%s", c ? "," : "");
        if (col->storage == MR_RAGGED) {
            const mr_row *row = (const mr_row *)col->data + r;
            add_tensor(a, col->dtype, row->data, col->rank, row->shape, row->splits, &at);
        } else
            add_tensor(a, col->dtype, mr_array_at(col, r), col->rank, col->shape, NULL, &at);
    }
    add(a, "%s", b->n_columns == 1 ? "" : ")");
}

static void add_error(struct answers *a, const mr_status *st)
{
    char line[1024];
    mr_status_format(st, line, sizeof line);
    for (char *p = line; *p; p++)
        if (*p == ' ')
            *p = '_';
    add(a, "!%s", line);
}

/* Pulls once; false at the end. */
static bool pull(mr_iterator *it, size_t want, struct answers *a)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_code rc = mr_iterator_next(it, want, &b, &st);
    if (rc == MR_OK) {
        mr_check(b.rows >= 1 && b.rows <= want);
        for (size_t r = 0; r < b.rows; r++) {
            begin(a);
            add_row(a, &b, r);
        }
    } else if (rc < 0) {
        mr_check(st.message[0]);
        begin(a);
        add_error(a, &st);
    }
    mr_block_reset(&b);
    return rc != MR_END;
}

static void add_dataset(struct answers *a, mr_dataset *ds)
{
    mr_iterator *it = NULL;
    mr_iterator_opts opts = {.has_threads = true};
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    struct answers *inner = calloc(1, sizeof *inner);
    while (pull(it, 2, inner))
        ;
    mr_iterator_close(it);
    for (char *p = inner->text; p && *p; p++)
        if (*p == ' ')
            *p = ',';
    add(a, "{%s}", inner->text ? inner->text : "");
    free(inner->text);
    free(inner);
}

/* One answer of `expected` (n bytes) against one that came. */
static bool same(const char *expected, size_t n, const char *got, size_t got_size)
{
    if (n == 0 || expected[0] != '!')
        return n == got_size && memcmp(expected, got, n) == 0;
    if (got_size == 0 || got[0] != '!')
        return false;
    for (size_t i = 1; i + (n - 1) <= got_size; i++)
        if (memcmp(got + i, expected + 1, n - 1) == 0)
            return true;
    return false;
}

/* Answers from `from` on are those of `expected` from there on, and no more. */
static void compare(const struct answers *a, size_t from, const char *expected)
{
    const char *e = expected, *whole = expected;
    for (size_t skip = 0; skip < from && *e; skip++) {
        e += strcspn(e, " ");
        e += *e == ' ';
    }
    for (size_t i = 0; i < a->n; i++) {
        size_t n = strcspn(e, " ");
        size_t size = (i + 1 < a->n ? a->begin[i + 1] - 1 : a->size) - a->begin[i];
        if (n == 0 || !same(e, n, a->text + a->begin[i], size))
            mr_fail_test("answer %zu: expected %.*s of\n  %s\ngot from answer %zu on\n  %s",
                         from + i, (int)n, e, whole, from, a->text);
        e += n + (e[n] == ' ');
    }
    if (*e)
        mr_fail_test("missing at the end: %s of\n  %s\ngot from answer %zu on\n  %s", e, whole,
                     from, a->text ? a->text : "");
}

/* ---- ways of running ---- */

static const int64_t block_rows[] = {1, 3, 1024};
static const int64_t threads[] = {0, 1, 4};
enum { N_WAYS = 9 };

static mr_iterator *open_way(mr_dataset *ds, int way, bool positions)
{
    mr_iterator_opts opts = {.block_rows = block_rows[way % 3],
                             .threads = threads[way / 3],
                             .has_threads = true,
                             .positions = positions,
                             .identities = way % 4 == 1,
                             .seed = 17,
                             .has_seed = true};
    mr_iterator *it = NULL;
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    return it;
}

static void run_way(mr_dataset *ds, int way, const char *expected)
{
    struct answers *a = calloc(1, sizeof *a);
    mr_iterator *it = open_way(ds, way, false);
    while (pull(it, (size_t)block_rows[way % 3], a))
        ;
    mr_check(!pull(it, 1, a)); /* the end stays */
    mr_iterator_close(it);
    compare(a, 0, expected);
    free(a->text);
    free(a);
}

struct saved {
    void *bytes;
    size_t size, answers;
};

static void restore_and_compare(mr_dataset *ds, int way, const struct saved *s, bool used,
                                const char *expected)
{
    struct answers *a = calloc(1, sizeof *a), *dropped = calloc(1, sizeof *dropped);
    mr_iterator *it = open_way(ds, way, true);
    mr_status st;
    if (used)
        pull(it, 2, dropped);
    mr_ok(mr_iterator_restore(it, s->bytes, s->size, &st), &st);
    while (pull(it, (size_t)block_rows[way % 3], a))
        ;
    mr_iterator_close(it);
    compare(a, s->answers, expected);
    free(a->text);
    free(a);
    free(dropped->text);
    free(dropped);
}

static void save_everywhere(mr_dataset *ds, int way, size_t want, const char *expected)
{
    struct answers *a = calloc(1, sizeof *a);
    struct saved *saved = calloc(MAX_ANSWERS + 2, sizeof *saved);
    size_t n = 0;
    mr_iterator *it = open_way(ds, way, true);
    bool more;
    do {
        mr_status st;
        saved[n].answers = a->n;
        mr_ok(mr_iterator_save(it, &saved[n].bytes, &saved[n].size, &st), &st);
        n++;
        more = pull(it, want, a);
    } while (more);
    saved[n].answers = a->n; /* behind the end */
    mr_ok(mr_iterator_save(it, &saved[n].bytes, &saved[n].size, NULL), NULL);
    n++;
    mr_iterator_close(it);
    compare(a, 0, expected);
    for (size_t i = 0; i < n; i++) {
        mr_test_context("way %d, want %zu, restored behind answer %zu", way, want,
                        saved[i].answers);
        restore_and_compare(ds, (way + 4) % N_WAYS, &saved[i], i % 2, expected);
        mr_free(saved[i].bytes);
    }
    free(saved);
    free(a->text);
    free(a);
}

static void drive(mr_dataset *ds, const char *what, const char *expected)
{
    for (int way = 0; way < N_WAYS; way++) {
        mr_test_context("%s: blocks of %" PRId64 ", %" PRId64 " threads", what, block_rows[way % 3],
                        threads[way / 3]);
        run_way(ds, way, expected);
    }
    static const int ways[] = {0, 1, 2, 7};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        mr_test_context("%s: saving, way %d", what, ways[i]);
        save_everywhere(ds, ways[i], ways[i] == 0 ? 1 : 2, expected);
    }
    mr_test_context("%s", "");
}

mr_dataset *mr_drive_build(const char *text)
{
    mr_dataset *ds = NULL;
    mr_status st;
    mr_ok(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    return ds;
}

char *mr_drive_show(const char *text)
{
    struct answers *a = calloc(1, sizeof *a);
    mr_dataset *ds = mr_drive_build(text);
    mr_iterator *it = open_way(ds, 2, false);
    while (pull(it, 1024, a))
        ;
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    char *shown = a->text ? a->text : calloc(1, 1);
    free(a);
    return shown;
}

void mr_drive(const char *text, const char *expected)
{
    mr_dataset *ds = mr_drive_build(text);
    drive(ds, text, expected);
    mr_dataset_unref(ds);
}

void mr_drive_dataset(mr_dataset *ds, const char *expected)
{
    mr_status st;
    mr_ok(mr_dataset_check(ds, &st), &st);
    drive(ds, "a dataset", expected);
    mr_dataset_unref(ds);
}

void mr_drive_alike(const char *text)
{
    char *expected = mr_drive_show(text);
    mr_drive(text, expected);
    free(expected);
}

void mr_drive_bad(const char *text, const char *part)
{
    mr_dataset *ds = NULL;
    mr_status st;
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, &st);
    if (rc == MR_OK)
        rc = mr_dataset_check(ds, &st);
    mr_dataset_unref(ds);
    mr_test_context("%s", text);
    mr_code_is(rc, MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, part);
}

void mr_drive_count(const char *text, int64_t cardinality)
{
    mr_dataset *ds = mr_drive_build(text);
    mr_test_context("%s", text);
    mr_eq_i64(mr_dataset_cardinality(ds), cardinality);
    mr_dataset_unref(ds);
}

/* ---- faults ---- */

static void run_with_faults(mr_dataset *ds)
{
    mr_iterator_opts opts = {.has_threads = true, .block_rows = 3, .positions = true};
    mr_iterator *it = NULL;
    mr_status st;
    void *bytes = NULL;
    size_t size = 0;
    if (mr_fault_expect(mr_iterator_open(&it, ds, &opts, &st), &st) != MR_OK)
        return;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    for (int i = 0; i < 200 && rc != MR_END; i++) {
        rc = mr_iterator_next(it, 3, &b, &st);
        if (rc < 0)
            mr_check(st.message[0]);
        if (i == 2 && mr_fault_expect(mr_iterator_save(it, &bytes, &size, &st), &st) == MR_OK) {
            rc = mr_fault_expect(mr_iterator_restore(it, bytes, size, &st), &st);
            mr_free(bytes);
            if (rc < 0) /* it may only be closed then */
                break;
        }
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
}

void mr_drive_faults(const char *text)
{
    mr_fault_each_allocation(n)
    {
        mr_dataset *ds = NULL;
        mr_status st;
        mr_test_context("%s", text);
        mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, &st);
        if (rc == MR_OK && mr_dataset_check(ds, &st) == MR_OK)
            run_with_faults(ds);
        else
            mr_check(mr_fault_seen());
        mr_dataset_unref(ds);
    }
}
