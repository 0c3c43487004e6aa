/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of Arrow streams, whose arrays are columns that were exported. */
#include "pipeline/memory/import.h"

#include <errno.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/ops/batch.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "tests/fault.h"
#include "tests/harness.h"

/* Arrays of 3, 0 and 2 rows of {"n": int64, "in": {"x": float32[2]}}; the numbers count on. */
typedef struct producer {
    int given, released, fail_at, null_at;
    bool twice, lone; /* two columns of one name; no struct */
} producer;
static const int64_t rows_of[] = {3, 0, 2};

static mr_code export_numbers(struct ArrowArray *a, struct ArrowSchema *s, int64_t first, int64_t n,
                              const char *name)
{
    mr_array c;
    mr_status st;
    MR_TRY(mr_array_alloc(&c, MR_INT64, 0, NULL, (size_t)n, &st));
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)c.data)[i] = first + i;
    mr_code rc = mr_export_arrow(a, s, &c, name, &st);
    mr_array_reset(&c);
    return rc;
}

static mr_code export_pairs(struct ArrowArray *a, struct ArrowSchema *s, int64_t first, int64_t n)
{
    mr_array c;
    mr_status st;
    MR_TRY(mr_array_alloc(&c, MR_FLOAT32, 1, (int64_t[]){2}, (size_t)n, &st));
    for (int64_t i = 0; i < 2 * n; i++)
        ((float *)c.data)[i] = (float)(2 * first + i) / 2;
    mr_code rc = mr_export_arrow(a, s, &c, "x", &st);
    mr_array_reset(&c);
    return rc;
}

/* A struct of n arrays with their types. */
typedef struct fields {
    struct ArrowArray arrays[2], *children[2];
    struct ArrowSchema schemas[2], *schema_children[2];
    const void *buffers[1];
    int n;
} fields;

static void release_fields(struct ArrowArray *a)
{
    fields *f = a->private_data;
    for (int i = 0; i < f->n; i++)
        if (f->arrays[i].release)
            f->arrays[i].release(&f->arrays[i]);
    mr_free(f);
    a->release = NULL;
}
static void release_schema_fields(struct ArrowSchema *s)
{
    fields *f = s->private_data;
    for (int i = 0; i < f->n; i++)
        if (f->schemas[i].release)
            f->schemas[i].release(&f->schemas[i]);
    mr_free(f);
    s->release = NULL;
}

/* *a or *s = the struct of f, which it owns. */
static void give_array(struct ArrowArray *a, fields *f, int64_t length)
{
    for (int i = 0; i < f->n; i++) {
        f->children[i] = &f->arrays[i];
        if (f->schemas[i].release)
            f->schemas[i].release(&f->schemas[i]);
    }
    *a = (struct ArrowArray){.length = length,
                             .n_buffers = 1,
                             .buffers = f->buffers,
                             .n_children = f->n,
                             .children = f->children,
                             .release = release_fields,
                             .private_data = f};
}
static void give_schema(struct ArrowSchema *s, fields *f, const char *name)
{
    for (int i = 0; i < f->n; i++) {
        f->schema_children[i] = &f->schemas[i];
        if (f->arrays[i].release)
            f->arrays[i].release(&f->arrays[i]);
    }
    *s = (struct ArrowSchema){.format = "+s",
                              .name = name,
                              .n_children = f->n,
                              .children = f->schema_children,
                              .release = release_schema_fields,
                              .private_data = f};
}

static int make_batch(struct ArrowArray *a, struct ArrowSchema *s, const producer *p, int64_t first,
                      int64_t n)
{
    if (p->lone) {
        struct ArrowArray unused_a;
        struct ArrowSchema unused_s;
        if (export_numbers(a ? a : &unused_a, s ? s : &unused_s, first, n, "n") != MR_OK)
            return ENOMEM;
        if (a)
            unused_s.release(&unused_s);
        else
            unused_a.release(&unused_a);
        return 0;
    }
    fields *top = mr_calloc(1, sizeof *top), *in = mr_calloc(1, sizeof *in);
    bool good = top && in;
    if (good)
        good = export_numbers(&top->arrays[0], &top->schemas[0], first, n, p->twice ? "in" : "n") ==
               MR_OK;
    if (good && export_pairs(&in->arrays[0], &in->schemas[0], first, n) != MR_OK) {
        top->arrays[0].release(&top->arrays[0]);
        top->schemas[0].release(&top->schemas[0]);
        good = false;
    }
    if (!good) {
        mr_free(top);
        mr_free(in);
        return ENOMEM;
    }
    top->n = 2;
    in->n = 1;
    if (a) {
        give_array(&top->arrays[1], in, n);
        give_array(a, top, n);
    } else {
        give_schema(&top->schemas[1], in, "in");
        give_schema(s, top, "");
    }
    return 0;
}

static int get_schema(struct ArrowArrayStream *self, struct ArrowSchema *out)
{
    producer *p = self->private_data;
    return p->fail_at == -1 ? EIO : make_batch(NULL, out, p, 0, 0);
}
static int get_next(struct ArrowArrayStream *self, struct ArrowArray *out)
{
    producer *p = self->private_data;
    static const uint8_t none[] = {0xfd};
    int64_t first = 0;
    if (p->fail_at == p->given + 1)
        return EIO;
    if (p->given == 3) {
        out->release = NULL;
        return 0;
    }
    for (int i = 0; i < p->given; i++)
        first += rows_of[i];
    int rc = make_batch(out, NULL, p, first, rows_of[p->given]);
    if (rc == 0 && p->null_at == p->given + 1) {
        struct ArrowArray *child = out->children[0];
        child->null_count = -1;
        child->buffers[0] = none;
    }
    p->given += rc == 0;
    return rc;
}
static const char *last_error(struct ArrowArrayStream *self)
{
    return ((producer *)self->private_data)->fail_at ? "the cable is cut" : NULL;
}
static void release_stream(struct ArrowArrayStream *self)
{
    ((producer *)self->private_data)->released++;
    self->release = NULL;
}

static mr_dataset *dataset_of(producer *p)
{
    struct ArrowArrayStream s = {.get_schema = get_schema,
                                 .get_next = get_next,
                                 .get_last_error = last_error,
                                 .release = release_stream,
                                 .private_data = p};
    mr_dataset *ds = mr_from_arrow(&s);
    mr_check(!s.release);
    return ds;
}

static void check_rows(const mr_block *b, int64_t first)
{
    const mr_array *n = mr_block_column(b, "n"), *x = mr_block_column(b, "in/x");
    for (size_t i = 0; i < b->rows; i++) {
        mr_eq_i64(*(int64_t *)mr_array_at(n, i), first + (int64_t)i);
        mr_check(((float *)mr_array_at(x, i))[1] == (float)(first + (int64_t)i) + 0.5f);
    }
}

/* Rows of all passes up to the end or an error; *rows of them. */
static mr_code read_all(mr_dataset *ds, size_t want, int threads, int64_t *rows, mr_status *st)
{
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_iterator_opts opts = {.has_threads = true, .threads = threads};
    mr_code rc = mr_iterator_open(&it, ds, &opts, st);
    *rows = 0;
    while (rc == MR_OK && (rc = mr_iterator_next(it, want, &b, st)) == MR_OK) {
        check_rows(&b, *rows % 5);
        *rows += (int64_t)b.rows;
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    return rc;
}

MR_TEST(rows_of_a_stream_are_records)
{
    for (int c = 0; c < 4; c++) {
        producer p = {.given = 0};
        mr_status st;
        int64_t rows;
        char spec[200];
        mr_dataset *ds = dataset_of(&p);
        mr_ok(mr_dataset_check(ds, &st), &st);
        mr_spec_format(mr_dataset_spec(ds), spec, sizeof spec);
        mr_eq_str(spec, "{in: {x: float32[2]}, n: int64[]}");
        mr_code_is(read_all(ds, c & 1 ? 2 : 1024, c & 2 ? 2 : 0, &rows, &st), MR_END, &st);
        mr_eq_i64(rows, 5);
        mr_eq_i64(p.released, 0);
        mr_dataset_unref(ds);
        mr_eq_i64(p.released, 1);
    }
}

MR_TEST(a_stream_without_a_struct_gives_values)
{
    producer p = {.lone = true};
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_batch(dataset_of(&p), 5, NULL);
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    static const int64_t want[] = {0, 1, 2, 3, 4};
    mr_eq_mem(b.columns[0].data, want, sizeof want);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(a_stream_is_read_once_but_a_cache_keeps_it)
{
    producer p = {.given = 0};
    mr_status st;
    int64_t rows;
    mr_dataset *ds = mr_repeat(dataset_of(&p), 2);
    mr_code_is(read_all(ds, 3, 0, &rows, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "cache()");
    mr_eq_i64(rows, 5);
    mr_dataset_unref(ds);
    p = (producer){.given = 0};
    ds = mr_repeat(mr_cache(dataset_of(&p)), 3);
    mr_code_is(read_all(ds, 3, 0, &rows, &st), MR_END, &st);
    mr_eq_i64(rows, 15);
    mr_dataset_unref(ds);
}

MR_TEST(what_the_producer_says_is_passed_on)
{
    producer p = {.fail_at = 3};
    mr_status st;
    int64_t rows;
    mr_dataset *ds = dataset_of(&p);
    mr_code_is(read_all(ds, 8, 0, &rows, &st), MR_UNKNOWN, &st);
    mr_has_str(st.message, "the cable is cut");
    mr_eq_i64(st.sys_errno, EIO);
    mr_eq_i64(rows, 3);
    mr_dataset_unref(ds);
    p = (producer){.fail_at = -1};
    ds = dataset_of(&p);
    mr_code_is(mr_dataset_check(ds, &st), MR_UNKNOWN, &st);
    mr_eq_i64(p.released, 1);
    mr_dataset_unref(ds);
    p = (producer){.null_at = 3};
    ds = dataset_of(&p);
    mr_code_is(read_all(ds, 8, 0, &rows, &st), MR_INVALID_ARGUMENT, &st);
    mr_eq_i64(rows, 4); /* that before it in its array too */
    mr_has_str(st.message, "column 'n': the row has a null");
    mr_eq_i64(st.record, 4);
    mr_dataset_unref(ds);
    p = (producer){.null_at = 1};
    ds = mr_ignore_errors(dataset_of(&p), NULL);
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    static const int64_t left[] = {0, 2, 3, 4};
    for (size_t i = 0; i < 4; i++) {
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_eq_i64(*(int64_t *)mr_array_at(mr_block_column(&b, "n"), 0), left[i]);
    }
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_END, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    p = (producer){.twice = true};
    ds = dataset_of(&p);
    mr_code_is(mr_dataset_check(ds, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "two fields called 'in'");
    mr_dataset_unref(ds);
    struct ArrowArrayStream gone = {.release = NULL};
    ds = mr_from_arrow(&gone);
    mr_code_is(mr_dataset_check(ds, &st), MR_INVALID_ARGUMENT, &st);
    mr_dataset_unref(ds);
}

MR_TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    mr_fault_each_allocation(n)
    {
        producer p = {.given = 0};
        mr_status st;
        int64_t rows;
        mr_dataset *ds = dataset_of(&p);
        mr_code rc = read_all(ds, 2, 0, &rows, &st);
        mr_check(rc == MR_END || mr_fault_seen());
        mr_check(rc != MR_END || rows == 5);
        mr_dataset_unref(ds);
        mr_eq_i64(p.released, 1);
    }
}
