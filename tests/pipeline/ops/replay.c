/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/harness.h"

enum { MOST_EVENTS = 4000 };

typedef struct events {
    size_t n;
    char *v[MOST_EVENTS];
    mr_status error; /* the last */
} events;

static void add_event(events *e, const char *text)
{
    if (e->n == MOST_EVENTS)
        mr_fail_test("more than %d events", MOST_EVENTS);
    e->v[e->n++] = mr_strdup(text);
}

static void forget(events *e, size_t from)
{
    while (e->n > from)
        mr_free(e->v[--e->n]);
}

static size_t print_value(const mr_array *a, size_t i, char *buf, size_t size)
{
    const void *v = (const char *)a->data + i * mr_dtype_size(a->dtype);
    int n;
    if (a->dtype == MR_STRING)
        n = snprintf(buf, size, "%.*s", (int)((const mr_bytes *)v)->size,
                     ((const mr_bytes *)v)->data);
    else if (a->dtype == MR_INT64)
        n = snprintf(buf, size, "%" PRId64, *(const int64_t *)v);
    else if (a->dtype == MR_UINT8 || a->dtype == MR_BOOL)
        n = snprintf(buf, size, "%d", *(const uint8_t *)v);
    else if (a->dtype == MR_FLOAT32)
        n = snprintf(buf, size, "%g", (double)*(const float *)v);
    else
        n = snprintf(buf, size, "?");
    return (size_t)n;
}

static size_t print_cell(const mr_array *column, size_t row, char *buf, size_t size)
{
    if (column->rank == 0 && column->storage != MR_RAGGED)
        return print_value(column, row, buf, size);
    mr_array values;
    mr_status st;
    mr_ok(mr_array_ungroup(&values, column, row, &st), &st);
    size_t n = (size_t)snprintf(buf, size, "[");
    if (values.storage == MR_RAGGED || values.rank > 0) {
        for (size_t i = 0; i < values.rows; i++) {
            n += (size_t)snprintf(buf + n, size - n, "%s", i ? "," : "");
            n += print_cell(&values, i, buf + n, size - n);
        }
    } else {
        for (size_t i = 0; i < values.rows; i++) {
            n += (size_t)snprintf(buf + n, size - n, "%s", i ? "," : "");
            n += print_value(&values, i, buf + n, size - n);
        }
    }
    mr_array_reset(&values);
    return n + (size_t)snprintf(buf + n, size - n, "]");
}

static void add_rows(events *e, const mr_block *b)
{
    for (size_t row = 0; row < b->rows; row++) {
        char text[4096];
        size_t n = 0;
        for (size_t c = 0; c < b->n_columns; c++) {
            if (c)
                text[n++] = '/';
            n += print_cell(&b->columns[c], row, text + n, sizeof text - n - 1);
        }
        text[n] = '\0';
        add_event(e, text);
    }
}

/* Until there are `end` events, or the iterator's end. */
static void run_to(mr_iterator *it, events *e, size_t end, size_t want)
{
    mr_block b = MR_BLOCK_EMPTY;
    while (e->n < end) {
        size_t w = end - e->n < want ? end - e->n : want;
        mr_code rc = mr_iterator_next(it, w, &b, &e->error);
        if (rc == MR_END)
            break;
        if (rc == MR_OK) {
            mr_check(b.rows >= 1 && b.rows <= w);
            add_rows(e, &b);
        } else {
            mr_check(e->error.message[0]);
            add_event(e, "!");
        }
    }
    mr_block_reset(&b);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *join(const events *e, order how)
{
    static char *sorted[MOST_EVENTS];
    size_t bytes = 1, at = 0;
    memcpy(sorted, e->v, e->n * sizeof *sorted);
    if (how == ANY_ORDER)
        qsort(sorted, e->n, sizeof *sorted, by_text);
    for (size_t i = 0; i < e->n; i++)
        bytes += strlen(sorted[i]) + 1;
    char *text = mr_malloc(bytes);
    text[0] = '\0';
    for (size_t i = 0; i < e->n; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%s", i ? " " : "", sorted[i]);
    return text;
}

static void expect(const events *e, const char *expected, order how)
{
    events wanted = {0};
    char *copy = mr_strdup(expected), *save = NULL;
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save))
        add_event(&wanted, p);
    char *a = join(e, how), *b = join(&wanted, how);
    mr_eq_str(a, b);
    mr_free(a);
    mr_free(b);
    mr_free(copy);
    forget(&wanted, 0);
}

mr_dataset *parse_graph(const char *text)
{
    mr_dataset *ds = NULL;
    mr_status st;
    mr_ok(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    return ds;
}

void check_refused(const char *text, const char *part)
{
    mr_dataset *ds = NULL;
    mr_status st;
    mr_test_context("%s", text);
    mr_code_is(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, part);
}

char *run_graph(const char *text, const mr_iterator_opts *opts, mr_status *last)
{
    static events e;
    mr_status st;
    mr_iterator *it = NULL;
    mr_dataset *ds = parse_graph(text);
    mr_ok(mr_iterator_open(&it, ds, opts, &st), &st);
    e.n = 0;
    mr_status_init(&e.error);
    run_to(it, &e, MOST_EVENTS, 1024);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    if (last)
        *last = e.error;
    char *out = join(&e, IN_ORDER);
    forget(&e, 0);
    return out;
}

static mr_iterator *open_with(mr_dataset *ds, const mr_iterator_opts *o)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_ok(mr_iterator_open(&it, ds, o, &st), &st);
    return it;
}

static void check_positions(mr_dataset *ds, const mr_iterator_opts *o, const char *name, size_t n,
                            const char *expected, order how)
{
    static const int64_t others[] = {4, 0, 1};
    static events e;
    mr_status st;
    for (size_t k = 0; k <= n; k++) {
        void *position;
        size_t size;
        mr_test_context("%s, %d threads, blocks of %d, saved at %zu", name, (int)o->threads,
                        (int)o->block_rows, k);
        mr_iterator *it = open_with(ds, o);
        run_to(it, &e, k, 1 + k % 3);
        mr_ok(mr_iterator_save(it, &position, &size, &st), &st);
        run_to(it, &e, MOST_EVENTS, 1024); /* saving changes nothing */
        expect(&e, expected, how);
        if (how == IN_ORDER) { /* a used iterator goes back */
            forget(&e, k);
            mr_ok(mr_iterator_restore(it, position, size, &st), &st);
            run_to(it, &e, MOST_EVENTS, 2);
            expect(&e, expected, how);
        }
        mr_iterator_close(it);

        mr_iterator_opts other = *o;
        other.threads = others[k % 3];
        forget(&e, 0);
        it = open_with(ds, o);
        run_to(it, &e, k, 1024);
        mr_free(position);
        mr_ok(mr_iterator_save(it, &position, &size, &st), &st);
        mr_iterator_close(it);
        it = open_with(ds, &other);
        mr_ok(mr_iterator_restore(it, position, size, &st), &st);
        run_to(it, &e, MOST_EVENTS, 3);
        expect(&e, expected, how);
        mr_iterator_close(it);
        mr_free(position);
        forget(&e, 0);
    }
}

static void check_named(mr_dataset *ds, const char *name, const char *expected, order how)
{
    static const int64_t threads[] = {0, 1, 4}, rows[] = {1, 3, 1024};
    static events e;
    for (size_t t = 0; t < 3; t++) {
        for (size_t b = 0; b < 3; b++) {
            mr_iterator_opts o = {.threads = threads[t],
                                  .has_threads = true,
                                  .block_rows = rows[b],
                                  .identities = b == 1};
            mr_test_context("%s, %d threads, blocks of %d", name, (int)o.threads,
                            (int)o.block_rows);
            mr_iterator *it = open_with(ds, &o);
            run_to(it, &e, MOST_EVENTS, b == 0 ? 1 : 1024);
            expect(&e, expected, how);
            mr_block end = MR_BLOCK_EMPTY; /* sticky */
            mr_code_is(mr_iterator_next(it, 1, &end, NULL), MR_END, NULL);
            mr_block_reset(&end);
            mr_iterator_close(it);
            size_t n = e.n;
            forget(&e, 0);
            o.positions = true;
            check_positions(ds, &o, name, n, expected, how);
            for (size_t k = 0; k < n; k += 3) { /* early close, cancelled or not */
                it = open_with(ds, &o);
                run_to(it, &e, k, 1024);
                if (k % 2)
                    mr_iterator_cancel(it);
                mr_iterator_close(it);
                forget(&e, 0);
            }
        }
    }
    mr_test_context("%s", "");
}

void check_dataset(mr_dataset *ds, const char *expected, order how)
{
    mr_status st;
    mr_ok(mr_dataset_check(ds, &st), &st);
    check_named(ds, "C graph", expected, how);
    mr_dataset_unref(ds);
}

void check_graph(const char *text, const char *expected)
{
    mr_dataset *ds = parse_graph(text);
    check_named(ds, text, expected, IN_ORDER);
    /* what it prints is the same graph */
    char *printed;
    mr_status st;
    mr_ok(mr_dataset_to_text(ds, &printed, &st), &st);
    mr_dataset_unref(ds);
    char *out = run_graph(printed, NULL, NULL);
    mr_eq_str(out, expected);
    mr_free(out);
    mr_free(printed);
}

static void run_through(const char *text)
{
    mr_status st;
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_iterator_opts o = {.has_threads = true, .positions = true};
    mr_code rc = mr_fault_expect(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    if (rc == MR_OK)
        rc = mr_fault_expect(mr_iterator_open(&it, ds, &o, &st), &st);
    int errors = 0;
    while (rc == MR_OK && errors < 50) {
        rc = mr_iterator_next(it, 3, &b, &st);
        if (rc < 0 && rc != MR_END) { /* goes on behind an error, and ends */
            errors++;
            rc = MR_OK;
        }
    }
    void *position = NULL;
    size_t size;
    if (it && mr_iterator_save(it, &position, &size, &st) == MR_OK) {
        (void)mr_fault_expect(mr_iterator_restore(it, position, size, &st), &st);
        mr_free(position);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

void check_faults(const char *text)
{
    mr_test_context("%s", text);
    mr_fault_each_allocation(n) run_through(text);
    mr_test_context("%s", "");
}
