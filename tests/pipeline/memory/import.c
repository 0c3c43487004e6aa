/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/import.h"

#include <stdlib.h>

#include "tests/fault.h"
#include "tests/pipeline/memory/columns.h"

MR_ONE_THREAD;

/* ---- DLPack ---- */

/* A tensor over `data` that counts how often it is deleted. */
typedef struct tensor {
    mr_dl_managed_tensor managed;
    int64_t shape[12], strides[12];
    int deleted;
} tensor;

static void delete_tensor(mr_dl_managed_tensor *self)
{
    ((tensor *)self->manager_ctx)->deleted++;
}

static void make_tensor(tensor *t, void *data, int ndim, const int64_t *shape,
                        const int64_t *strides)
{
    *t = (tensor){
        .managed = {
            .tensor =
                {.data = data, .device_type = 1, .ndim = ndim, .code = 0, .bits = 32, .lanes = 1},
            .deleter = delete_tensor}};
    memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    t->managed.tensor.shape = t->shape;
    if (strides) {
        memcpy(t->strides, strides, (size_t)ndim * sizeof *strides);
        t->managed.tensor.strides = t->strides;
    }
    t->managed.manager_ctx = t;
}

static int versioned_deleted;

static void delete_versioned(mr_dl_versioned_tensor *self)
{
    (void)self;
    versioned_deleted++;
}

MR_TEST(a_versioned_tensor_is_a_column_over_its_memory)
{
    static int32_t data[6] = {1, 2, 3, 4, 5, 6};
    mr_status st;
    mr_array a;
    tensor t;
    make_tensor(&t, data, 2, (int64_t[]){3, 2}, NULL);
    mr_dl_versioned_tensor v = {
        .major = 2, .deleter = delete_versioned, .tensor = t.managed.tensor};
    mr_code_is(mr_import_dlpack_versioned(&a, &v, &st), MR_UNIMPLEMENTED, &st);
    mr_has_str(st.message, "version 2.0");
    mr_eq_i64(versioned_deleted, 0);
    v.major = 1;
    v.minor = 3;
    mr_ok(mr_import_dlpack_versioned(&a, &v, &st), &st);
    mr_check(a.data == data && a.rows == 3 && !mr_array_writable(&a, 0));
    mr_array_reset(&a);
    mr_eq_i64(versioned_deleted, 1);
}

MR_TEST(a_tensor_is_a_column_over_its_memory)
{
    static int32_t data[6] = {1, 2, 3, 4, 5, 6};
    mr_status st;
    mr_array a, b;
    tensor t;
    make_tensor(&t, data, 2, (int64_t[]){3, 2}, NULL);
    mr_ok(mr_import_dlpack(&a, &t.managed, &st), &st);
    mr_eq_i64(a.dtype, MR_INT32);
    mr_eq_u64(a.rows, 3);
    mr_eq_i64(a.rank, 1);
    mr_eq_i64(a.shape[0], 2);
    mr_check(a.data == data && !mr_buffer_writable(a.owner));
    mr_array_slice(&b, &a, 2, 1);
    mr_array_reset(&a);
    mr_eq_i64(t.deleted, 0);
    mr_eq_i64(*(int32_t *)b.data, 5);
    mr_array_reset(&b);
    mr_eq_i64(t.deleted, 1);
}

MR_TEST(a_tensor_with_strides_is_copied)
{
    static int32_t data[7] = {0, 1, 2, 3, 4, 5, 6};
    static const int32_t transposed[6] = {1, 4, 2, 5, 3, 6}, backwards[2] = {6, 3};
    mr_status st;
    mr_array a;
    tensor t;
    make_tensor(&t, data, 2, (int64_t[]){3, 2}, (int64_t[]){1, 3});
    t.managed.tensor.byte_offset = sizeof(int32_t);
    mr_ok(mr_import_dlpack(&a, &t.managed, &st), &st);
    mr_eq_i64(t.deleted, 1); /* at once */
    mr_eq_mem(a.data, transposed, sizeof transposed);
    mr_array_reset(&a);
    make_tensor(&t, data + 6, 1, (int64_t[]){2}, (int64_t[]){-3});
    mr_ok(mr_import_dlpack(&a, &t.managed, &st), &st);
    mr_eq_mem(a.data, backwards, sizeof backwards);
    mr_array_reset(&a);
    /* An axis of one entry may have any stride. */
    make_tensor(&t, data, 3, (int64_t[]){3, 1, 2}, (int64_t[]){2, 99, 1});
    mr_ok(mr_import_dlpack(&a, &t.managed, &st), &st);
    mr_check(a.data == data);
    mr_array_reset(&a);
    make_tensor(&t, NULL, 2, (int64_t[]){0, 2}, (int64_t[]){7, 7});
    mr_ok(mr_import_dlpack(&a, &t.managed, &st), &st);
    mr_eq_u64(a.rows, 0);
    mr_array_reset(&a);
    mr_eq_i64(t.deleted, 1);
}

MR_TEST(bools_of_a_tensor_are_true_and_false)
{
    static uint8_t data[4] = {2, 0, 1, 255};
    static const uint8_t want[4] = {1, 0, 1, 1};
    mr_status st;
    mr_array a;
    tensor t;
    make_tensor(&t, data, 1, (int64_t[]){4}, NULL);
    t.managed.tensor.code = 6;
    t.managed.tensor.bits = 8;
    mr_ok(mr_import_dlpack(&a, &t.managed, &st), &st);
    mr_eq_i64(a.dtype, MR_BOOL);
    mr_eq_mem(a.data, want, sizeof want);
    mr_eq_i64(data[0], 2); /* what is imported is never written to */
    mr_eq_i64(t.deleted, 1);
    mr_array_reset(&a);
}

MR_TEST(every_type_goes_out_and_comes_in)
{
    for (mr_dtype d = MR_BOOL; d <= MR_FLOAT64; d++) {
        mr_status st;
        mr_array a, b;
        mr_dl_managed_tensor *t = NULL;
        mr_test_context("%s", mr_dtype_name(d));
        mr_ok(make_scalars(&a, d, 2, &st), &st);
        mr_ok(mr_export_dlpack(&t, &a, &st), &st);
        mr_ok(mr_import_dlpack(&b, t, &st), &st);
        mr_eq_i64(b.dtype, d);
        mr_eq_mem(b.data, a.data, 2 * mr_dtype_size(d));
        mr_array_reset(&a);
        mr_array_reset(&b);
        if (d == MR_BFLOAT16)
            continue;
        struct ArrowArray array;
        struct ArrowSchema schema;
        mr_ok(make_scalars(&a, d, 2, &st), &st);
        mr_ok(mr_export_arrow(&array, &schema, &a, "x", &st), &st);
        mr_ok(mr_import_arrow(&b, &array, &schema, &st), &st);
        mr_check(!array.release);
        schema.release(&schema);
        mr_eq_i64(b.dtype, d);
        mr_eq_mem(b.data, a.data, 2 * mr_dtype_size(d));
        mr_check((b.data == a.data) == (d != MR_BOOL));
        mr_array_reset(&a);
        mr_array_reset(&b);
    }
}

MR_TEST(what_is_no_column_stays_the_callers)
{
    static int32_t data[6];
    static const char *const words[] = {"device", "axes", "axes", "type code", "lanes", "size -1"};
    for (int i = 0; i < 6; i++) {
        mr_status st;
        mr_array a;
        tensor t;
        make_tensor(&t, data, 1, (int64_t[]){6}, NULL);
        mr_dl_tensor *d = &t.managed.tensor;
        d->device_type = i == 0 ? 2 : 1;
        d->ndim = i == 1 ? 0 : i == 2 ? 10 : 1;
        d->code = i == 3 ? 5 : 0;
        d->lanes = i == 4 ? 4 : 1;
        t.shape[0] = i == 5 ? -1 : 6;
        mr_code_is(mr_import_dlpack(&a, &t.managed, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, words[i]);
        mr_eq_i64(t.deleted, 0);
    }
}

/* ---- Arrow: arrays made by hand, which count how often they are released ---- */

static int released;
static void count_release(struct ArrowArray *a)
{
    released++;
    a->release = NULL;
}

typedef struct made {
    struct ArrowArray array, *child;
    struct ArrowSchema schema, *child_schema;
    const void *buffers[3];
} made;

static void make(made *m, const char *format, int64_t length, int64_t offset, const void *values,
                 const void *bytes, made *child)
{
    *m = (made){.buffers = {NULL, values, bytes}};
    m->array = (struct ArrowArray){.length = length,
                                   .offset = offset,
                                   .n_buffers = bytes    ? 3
                                                : values ? 2
                                                         : 1,
                                   .buffers = m->buffers,
                                   .release = count_release};
    m->schema = (struct ArrowSchema){.format = format, .name = "field"};
    if (child) {
        m->child = &child->array;
        m->child_schema = &child->schema;
        m->array.n_children = m->schema.n_children = 1;
        m->array.children = &m->child;
        m->schema.children = &m->child_schema;
    }
    released = 0;
}

/* copied: the array is not needed any more then. */
static mr_array import_as(made *m, bool copied)
{
    mr_status st;
    mr_array a;
    mr_ok(mr_import_arrow(&a, &m->array, &m->schema, &st), &st);
    mr_check(!m->array.release);
    mr_eq_i64(released, copied);
    return a;
}
static mr_array import(made *m)
{
    return import_as(m, false);
}

static void let_go(mr_array *a)
{
    mr_array_reset(a);
    mr_eq_i64(released, 1);
}

static void is_string(const mr_bytes *s, const char *want)
{
    mr_eq_u64(s->size, strlen(want));
    mr_eq_mem(s->data, want, s->size);
}

MR_TEST(offsets_of_arrays_count)
{
    static const int16_t values[] = {1, 2, 3, 4};
    made m;
    make(&m, "s", 2, 1, values, NULL, NULL);
    mr_array a = import(&m);
    mr_check(a.data == values + 1);
    mr_eq_u64(a.rows, 2);
    let_go(&a);
    static const uint8_t bits[] = {0xb0, 0x01}; /* 4, 5, 7, 8 */
    make(&m, "b", 5, 4, bits, NULL, NULL);
    a = import_as(&m, true);
    static const bool want[] = {true, true, false, true, true};
    mr_eq_mem(a.data, want, sizeof want);
    mr_array_reset(&a);
    static const int32_t ends[] = {0, 1, 3, 3};
    make(&m, "u", 2, 1, ends, "abc", NULL);
    a = import(&m);
    mr_eq_i64(a.storage, MR_BYTES);
    is_string(a.data, "bc");
    is_string((mr_bytes *)a.data + 1, "");
    let_go(&a);
    static const int64_t large[] = {0, 1, 3};
    make(&m, "Z", 2, 0, large, "abc", NULL);
    a = import(&m);
    is_string((mr_bytes *)a.data + 1, "bc");
    let_go(&a);
    make(&m, "w:2", 2, 1, "abcdef", NULL, NULL);
    a = import(&m);
    is_string((mr_bytes *)a.data + 1, "ef");
    let_go(&a);
}

MR_TEST(values_that_are_not_aligned_are_copied)
{
    static const int64_t values[] = {0x0100, 0x0200, 0};
    made m;
    make(&m, "l", 1, 0, (const char *)values + 1, NULL, NULL);
    mr_array a = import_as(&m, true);
    mr_eq_i64(*(int64_t *)a.data, 1);
    mr_array_reset(&a);
}

MR_TEST(offsets_that_are_not_aligned_are_read)
{
    static const int64_t ends[] = {0, 1, 3};
    static const int32_t rows_end[] = {0, 2};
    char inner_ends[1 + sizeof ends] = "", top_ends[1 + sizeof rows_end] = "";
    made values, inner, top;
    memcpy(inner_ends + 1, ends, sizeof ends);
    memcpy(top_ends + 1, rows_end, sizeof rows_end);
    make(&values, "c", 3, 0, "\1\2\3", NULL, NULL);
    make(&inner, "+L", 2, 0, inner_ends + 1, NULL, &values);
    make(&top, "+l", 1, 0, top_ends + 1, NULL, &inner);
    mr_array a = import(&top);
    mr_eq_mem(((const mr_row *)a.data)->splits, ends, sizeof ends);
    let_go(&a);
}

MR_TEST(times_are_the_integers_they_are_stored_as)
{
    static const struct known {
        const char *format;
        mr_dtype dtype;
    } all[] = {{"tdD", MR_INT32}, {"tdm", MR_INT64},     {"tts", MR_INT32},
               {"ttn", MR_INT64}, {"tsu:UTC", MR_INT64}, {"tDn", MR_INT64}};
    static const int64_t values[] = {5, 6};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        made m;
        mr_test_context("%s", all[i].format);
        make(&m, all[i].format, 1, 0, values, NULL, NULL);
        mr_array a = import(&m);
        mr_eq_i64(a.dtype, all[i].dtype);
        mr_eq_i64(*(int32_t *)a.data, 5);
        let_go(&a);
    }
}

MR_TEST(fixed_lists_are_axes)
{
    static const float values[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    made inner, outer, top;
    make(&inner, "f", 12, 1, values, NULL, NULL);
    make(&outer, "+w:2", 6, 0, NULL, NULL, &inner);
    make(&top, "+w:3", 1, 1, NULL, NULL, &outer);
    mr_array a = import(&top);
    mr_eq_i64(a.storage, MR_DENSE);
    mr_eq_u64(a.rows, 1);
    mr_eq_i64(a.rank, 2);
    mr_eq_i64(a.shape[0], 3);
    mr_eq_i64(a.shape[1], 2);
    mr_check(a.data == values + 7);
    let_go(&a);
}

MR_TEST(lists_are_ragged_rows)
{
    static const int32_t values[] = {0, 1, 2, 3, 4, 5, 6}, ends[] = {0, 0, 2, 5, 5};
    made inner, top;
    make(&inner, "i", 6, 1, values, NULL, NULL);
    make(&top, "+l", 3, 1, ends, NULL, &inner);
    mr_array a = import(&top);
    mr_eq_i64(a.storage, MR_RAGGED);
    const mr_row *rows = a.data;
    mr_eq_u64(a.rows, 3);
    mr_eq_i64(rows[0].shape[0], 2);
    mr_eq_i64(rows[1].shape[0], 3);
    mr_eq_i64(rows[2].shape[0], 0);
    mr_check(rows[1].data == values + 3 && !rows[1].splits);
    let_go(&a);
}

MR_TEST(lists_of_lists_have_a_ragged_axis)
{
    static const int64_t ends[] = {0, 1, 3, 3, 4};
    static const int32_t rows_end[] = {0, 1, 4};
    made values, inner, top;
    make(&values, "Z", 4, 0, (int64_t[]){0, 1, 2, 3, 4}, "abcd", NULL);
    make(&inner, "+L", 4, 0, ends, NULL, &values);
    make(&top, "+l", 1, 1, rows_end, NULL, &inner);
    mr_array a = import(&top);
    const mr_row *row = a.data;
    mr_eq_u64(a.rows, 1);
    mr_eq_i64(a.rank, 2);
    mr_eq_i64(row->shape[0], 3);
    mr_eq_i64(row->shape[1], -1);
    static const int64_t splits[] = {0, 2, 2, 3};
    mr_eq_mem(row->splits, splits, sizeof splits);
    is_string(row->data, "b");
    is_string((const mr_bytes *)row->data + 2, "d");
    let_go(&a);
}

MR_TEST(ragged_rows_come_back_as_they_went)
{
    mr_status st;
    mr_array a, b;
    struct ArrowArray array;
    struct ArrowSchema schema;
    mr_ok(make_ragged(&a, 4, &st), &st);
    mr_ok(mr_export_arrow(&array, &schema, &a, "x", &st), &st);
    mr_ok(mr_import_arrow(&b, &array, &schema, &st), &st);
    schema.release(&schema);
    mr_eq_i64(b.rank, 2);
    for (size_t i = 0; i < 4; i++) {
        const mr_row *from = (mr_row *)a.data + i, *to = (mr_row *)b.data + i;
        mr_eq_i64(to->shape[0], from->shape[0]);
        mr_eq_mem(to->data, from->data, (size_t)from->shape[0] * 2 * sizeof(int64_t));
        for (int64_t k = 0; k <= to->shape[0]; k++)
            mr_eq_i64(to->splits[k], 2 * k); /* Arrow does not say that all lists are as long */
    }
    mr_array_reset(&a);
    mr_array_reset(&b);
}

MR_TEST(dictionaries_are_decoded)
{
    static const int8_t indices[] = {9, 1, 0, 1};
    made d, m;
    make(&d, "u", 2, 0, (int32_t[]){0, 2, 5}, "yesno!", NULL);
    make(&m, "c", 3, 1, indices, NULL, NULL);
    m.array.dictionary = &d.array;
    m.schema.dictionary = &d.schema;
    mr_array a = import(&m);
    mr_eq_i64(a.dtype, MR_STRING);
    is_string(a.data, "sno");
    is_string((mr_bytes *)a.data + 1, "ye");
    let_go(&a);
    make(&m, "c", 4, 0, indices, NULL, NULL);
    m.array.dictionary = &d.array;
    m.schema.dictionary = &d.schema;
    mr_status st;
    mr_code_is(mr_import_arrow(&a, &m.array, &m.schema, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "the index at entry 0 exceeds the dictionary's 2 values");
    mr_check(m.array.release && released == 0);
}

MR_TEST(nulls_are_refused_where_there_are_any)
{
    static const int32_t values[] = {1, 2, 3};
    static const uint8_t all[] = {0xfe}, none[] = {0x05};
    mr_status st;
    mr_array a;
    made m;
    make(&m, "i", 2, 1, values, NULL, NULL);
    m.buffers[0] = all; /* the null is before the offset */
    m.array.null_count = -1;
    a = import(&m);
    let_go(&a);
    make(&m, "i", 3, 0, values, NULL, NULL);
    m.buffers[0] = none;
    m.array.null_count = -1;
    mr_code_is(mr_import_arrow(&a, &m.array, &m.schema, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "'field' has a null at entry 1");
    mr_check(m.array.release && released == 0);
    static const int32_t ends[] = {0, 1, 3};
    static const uint8_t last[] = {0x03};
    made list;
    make(&m, "i", 3, 0, values, NULL, NULL);
    m.buffers[0] = last;
    m.array.null_count = 1;
    make(&list, "+l", 2, 0, ends, NULL, &m);
    mr_code_is(mr_import_arrow(&a, &list.array, &list.schema, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "'field' has a null within the lists of entry 1");
    mr_check(list.array.release && released == 0);
}

/* A view of a string: in itself, or at `at` of buffer `buffer`. */
typedef struct view {
    int32_t size;
    union {
        char in[12];
        struct {
            char first[4];
            int32_t buffer, at;
        } out;
    } as;
} view;

MR_TEST(string_views_are_strings)
{
    static const char long_ones[] = "....a string of more than twelve bytes";
    static const int64_t sizes[] = {sizeof long_ones - 1};
    static const uint8_t valid[] = {0x1e}; /* of the offset of 1 on */
    view views[] = {{.size = -1},
                    {.size = 3, .as.in = "abc"},
                    {.size = 0},
                    {.size = 12, .as.in = "twelve bytes"},
                    {.size = 34, .as.out = {"a st", 0, 4}}};
    mr_status st;
    mr_array a;
    made m;
    make(&m, "vu", 4, 1, views, NULL, NULL);
    const void *buffers[] = {valid, views, long_ones, sizes};
    m.array.buffers = buffers;
    m.array.n_buffers = 4;
    m.array.null_count = -1;
    a = import(&m);
    const mr_bytes *s = a.data;
    static const char *const want[] = {"abc", "", "twelve bytes", long_ones + 4};
    for (size_t i = 0; i < 4; i++) {
        mr_eq_i64(s[i].size, strlen(want[i]));
        mr_eq_mem(s[i].size ? s[i].data : "", want[i], s[i].size);
    }
    let_go(&a);
    for (int c = 0; c < 4; c++) {
        int32_t *spoilt = c == 0   ? &views[4].size
                          : c == 1 ? &views[4].as.out.buffer
                          : c == 2 ? &views[4].as.out.at
                                   : &views[4].size;
        int32_t before = *spoilt;
        *spoilt = c == 0 ? 35 : c == 3 ? INT32_MIN : 1 << 30;
        make(&m, "vz", 4, 1, views, NULL, NULL);
        m.array.buffers = buffers;
        m.array.n_buffers = 4;
        mr_code_is(mr_import_arrow(&a, &m.array, &m.schema, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, "the view of entry 3 extends past its buffer");
        *spoilt = before;
    }
}

MR_TEST(types_without_a_column_are_named)
{
    static const char *const formats[] = {"n",    "d:19,10", "+s",  "+m", "vx",
                                          "+w:x", "w:",      "+us", "",   "l?"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        static const int64_t values[4];
        mr_status st;
        mr_array a;
        made m, child;
        make(&child, "l", 1, 0, values, NULL, NULL);
        make(&m, formats[i], 1, 0, values, NULL, &child);
        mr_test_context("%s", formats[i]);
        mr_code rc = mr_import_arrow(&a, &m.array, &m.schema, &st);
        mr_code_is(rc, MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, "'field'");
        mr_check(m.array.release);
    }
    static const int32_t backwards[] = {0, 2, 1};
    mr_status st;
    mr_array a;
    made m;
    make(&m, "u", 2, 0, backwards, "ab", NULL);
    mr_code_is(mr_import_arrow(&a, &m.array, &m.schema, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "offsets of entry 1 decrease");
}

MR_TEST(every_failed_allocation_leaves_the_array_to_the_caller)
{
    static const int64_t ends[] = {0, 1, 3}, inner_ends[] = {0, 1, 3, 3};
    mr_fault_each_allocation(n)
    {
        mr_status st;
        mr_array a;
        made values, inner, top;
        make(&values, "Z", 3, 0, inner_ends, "abc", NULL);
        make(&inner, "+L", 3, 0, inner_ends, NULL, &values);
        make(&top, "+L", 2, 0, ends, NULL, &inner);
        mr_code rc = mr_fault_expect(mr_import_arrow(&a, &top.array, &top.schema, &st), &st);
        mr_eq_i64(rc == MR_OK, top.array.release == NULL);
        if (rc == MR_OK)
            let_go(&a);
        mr_eq_i64(released, rc == MR_OK);
    }
}
