/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/export.h"

#include <string.h>

#include "tests/harness.h"
#include "tests/pipeline/memory/columns.h"
#include "tests/pipeline/memory/fail_nth.h"

MR_ONE_THREAD;

_Static_assert(sizeof(mr_dl_tensor) == 48, "as DLTensor on 64-bit machines");
_Static_assert(sizeof(mr_dl_managed_tensor) == 64, "as DLManagedTensor");
_Static_assert(sizeof(mr_dl_versioned_tensor) == 80, "as DLManagedTensorVersioned");
_Static_assert(sizeof(struct ArrowArray) == 80, "as the Arrow specification has it");
_Static_assert(sizeof(struct ArrowSchema) == 72, "as the Arrow specification has it");

MR_TEST(a_dense_column_is_a_dlpack_tensor_over_its_own_memory)
{
    mr_status st;
    mr_array a, s;
    mr_dl_managed_tensor *t = NULL;
    mr_ok(mr_array_alloc(&a, MR_FLOAT32, 2, (int64_t[]){3, 5}, 4, &st), &st);
    ((float *)a.data)[15] = 2.5F;
    mr_array_slice(&s, &a, 1, 3);
    mr_array_reset(&a);
    mr_ok(mr_export_dlpack(&t, &s, &st), &st);
    mr_check(!mr_buffer_writable(s.owner));
    mr_buffer *owner = mr_buffer_ref(s.owner);
    mr_array_reset(&s);
    const mr_dl_tensor *d = &t->tensor;
    mr_eq_i64(d->ndim, 3);
    const int64_t shape[] = {3, 3, 5}, strides[] = {15, 5, 1};
    for (int i = 0; i < 3; i++) {
        mr_eq_i64(d->shape[i], shape[i]);
        mr_eq_i64(d->strides[i], strides[i]);
    }
    mr_check(((float *)d->data)[0] == 2.5F);
    mr_eq_i64(d->device_type, 1);
    mr_eq_i64(d->code, 2);
    mr_eq_i64(d->bits, 32);
    mr_eq_i64(d->lanes, 1);
    mr_eq_u64(d->byte_offset, 0);
    t->deleter(t);
    mr_check(mr_buffer_writable(owner)); /* the tensor's reference is gone */
    mr_buffer_unref(owner);
}

MR_TEST(a_versioned_tensor_is_read_only_unless_nothing_else_has_its_memory)
{
    mr_status st;
    mr_array a;
    mr_dl_versioned_tensor *first = NULL, *second = NULL;
    mr_ok(mr_array_alloc(&a, MR_INT16, 1, (int64_t[]){3}, 2, &st), &st);
    mr_ok(mr_export_dlpack_versioned(&first, &a, &st), &st);
    mr_ok(mr_export_dlpack_versioned(&second, &a, &st), &st);
    mr_eq_u64(first->major, 1);
    mr_eq_u64(first->minor, 0);
    mr_eq_u64(first->flags, 0);
    mr_eq_u64(second->flags, MR_DL_READ_ONLY);
    mr_eq_i64(first->tensor.ndim, 2);
    mr_eq_i64(first->tensor.bits, 16);
    mr_check(first->tensor.data == a.data);
    first->deleter(first);
    mr_check(!mr_array_writable(&a, 0));
    second->deleter(second);
    mr_check(mr_array_writable(&a, 0));
    mr_array_reset(&a);
    const char *const strings[] = {"a"};
    mr_ok(make_strings(&a, strings, 1, &st), &st);
    mr_code_is(mr_export_dlpack_versioned(&first, &a, &st), MR_INVALID_ARGUMENT, &st);
    mr_array_reset(&a);
}

MR_TEST(every_number_has_its_dlpack_type)
{
    static const uint8_t codes[] = {6, 0, 0, 0, 0, 1, 1, 1, 1, 2, 4, 2, 2};
    for (int t = MR_BOOL; t <= MR_FLOAT64; t++) {
        mr_status st;
        mr_array a;
        mr_dl_managed_tensor *d = NULL;
        mr_ok(make_scalars(&a, (mr_dtype)t, 3, &st), &st);
        mr_ok(mr_export_dlpack(&d, &a, &st), &st);
        mr_eq_i64(d->tensor.code, codes[t]);
        mr_eq_u64(d->tensor.bits, 8 * mr_dtype_size((mr_dtype)t));
        d->deleter(d);
        mr_array_reset(&a);
    }
}

MR_TEST(dlpack_refuses_what_is_not_dense)
{
    mr_status st;
    mr_array a;
    mr_dl_managed_tensor *t = NULL;
    mr_ok(make_ragged(&a, 2, &st), &st);
    mr_eq_i64(mr_export_dlpack(&t, &a, &st), MR_INVALID_ARGUMENT);
    mr_check(strstr(st.message, "ragged int64"));
    mr_check(t == NULL);
    mr_array_reset(&a);
}

typedef struct exported {
    struct ArrowArray array;
    struct ArrowSchema schema;
} exported;

/* Exports a and lets it go. */
static exported take(mr_array *a)
{
    mr_status st;
    exported x;
    memset(&x, 0, sizeof x);
    mr_ok(mr_export_arrow(&x.array, &x.schema, a, "col", &st), &st);
    mr_array_reset(a);
    mr_eq_str(x.schema.name, "col");
    return x;
}

static void release(exported *x)
{
    x->array.release(&x->array);
    x->schema.release(&x->schema);
    mr_check(!x->array.release && !x->schema.release);
}

static void check_offsets(const struct ArrowArray *a, const int64_t *expected, int64_t length)
{
    mr_eq_i64(a->length, length);
    for (int64_t i = 0; i <= length; i++)
        mr_eq_i64(((const int64_t *)a->buffers[1])[i], expected[i]);
}

MR_TEST(numbers_are_arrow_arrays_without_a_copy)
{
    mr_status st;
    mr_array a;
    mr_ok(make_scalars(&a, MR_INT64, 5, &st), &st);
    const void *data = a.data;
    exported x = take(&a);
    mr_eq_str(x.schema.format, "l");
    mr_eq_i64(x.array.length, 5);
    mr_eq_i64(x.array.n_buffers, 2);
    mr_eq_i64(x.array.null_count, 0);
    mr_check(x.array.buffers[0] == NULL && x.array.buffers[1] == data);
    mr_eq_i64(((const int64_t *)x.array.buffers[1])[4], 4);
    release(&x);
}

MR_TEST(the_axes_of_dense_rows_are_fixed_size_lists)
{
    mr_status st;
    mr_array a;
    mr_ok(mr_array_alloc(&a, MR_UINT8, 2, (int64_t[]){3, 5}, 4, &st), &st);
    memset(a.data, 9, 60);
    exported x = take(&a);
    mr_eq_str(x.schema.format, "+w:3");
    mr_eq_str(x.schema.children[0]->format, "+w:5");
    mr_eq_str(x.schema.children[0]->children[0]->format, "C");
    mr_eq_i64(x.array.length, 4);
    mr_eq_i64(x.array.n_buffers, 1);
    mr_eq_i64(x.array.children[0]->length, 12);
    mr_eq_i64(x.array.children[0]->children[0]->length, 60);
    release(&x);
}

MR_TEST(bools_become_bits)
{
    mr_status st;
    mr_array a;
    mr_ok(mr_array_alloc(&a, MR_BOOL, 0, NULL, 19, &st), &st);
    for (size_t i = 0; i < 19; i++)
        ((uint8_t *)a.data)[i] = i % 3 == 0;
    exported x = take(&a);
    const uint8_t *bits = x.array.buffers[1];
    for (size_t i = 0; i < 19; i++)
        mr_eq_i64(bits[i / 8] >> i % 8 & 1, i % 3 == 0);
    release(&x);
}

static const char *const words[] = {"alpha", "", "be", "gamma!"};

MR_TEST(strings_one_behind_the_other_are_not_copied)
{
    mr_status st;
    mr_array a, s;
    mr_ok(make_strings(&a, words, 4, &st), &st);
    const char *bytes = ((mr_bytes *)a.data)[2].data;
    mr_array_slice(&s, &a, 1, 3);
    mr_array_reset(&a);
    exported x = take(&s);
    mr_eq_str(x.schema.format, "Z");
    mr_eq_i64(x.array.n_buffers, 3);
    check_offsets(&x.array, (int64_t[]){0, 0, 2, 8}, 3);
    mr_check(x.array.buffers[2] == bytes);
    mr_check(memcmp(bytes, "begamma!", 8) == 0); /* still there, though the column is gone */
    release(&x);
}

MR_TEST(scattered_strings_are_gathered)
{
    mr_status st;
    mr_array a, b;
    mr_ok(make_strings(&a, words, 4, &st), &st);
    mr_ok(mr_array_start(&b, &a, 4, &st), &st);
    mr_ok(mr_array_append_rows(&b, &a, (uint32_t[]){3, 1, 0, 3}, 4, &st), &st);
    mr_array_reset(&a);
    exported x = take(&b);
    check_offsets(&x.array, (int64_t[]){0, 6, 6, 11, 17}, 4);
    mr_check(memcmp(x.array.buffers[2], "gamma!alphagamma!", 17) == 0);
    release(&x);
}

MR_TEST(ragged_rows_are_lists_of_lists)
{
    mr_status st;
    mr_array a;
    mr_ok(make_ragged(&a, 4, &st), &st);
    const void *data = ragged_row(&a, 0)->data;
    exported x = take(&a);
    mr_eq_str(x.schema.format, "+L");
    mr_eq_str(x.schema.children[0]->format, "+L");
    mr_eq_str(x.schema.children[0]->children[0]->format, "l");
    check_offsets(&x.array, (int64_t[]){0, 0, 1, 3, 6}, 4);
    check_offsets(x.array.children[0], (int64_t[]){0, 2, 4, 6, 8, 10, 12}, 6);
    const struct ArrowArray *values = x.array.children[0]->children[0];
    mr_eq_i64(values->length, 12);
    mr_check(values->buffers[1] == data);
    release(&x);
}

MR_TEST(shuffled_ragged_rows_are_gathered)
{
    mr_status st;
    mr_array a, b;
    mr_ok(make_ragged(&a, 4, &st), &st);
    mr_ok(mr_array_start(&b, &a, 3, &st), &st);
    mr_ok(mr_array_append_rows(&b, &a, (uint32_t[]){2, 0, 1}, 3, &st), &st);
    mr_array_reset(&a);
    exported x = take(&b);
    check_offsets(&x.array, (int64_t[]){0, 2, 2, 3}, 3);
    const int64_t *values = x.array.children[0]->children[0]->buffers[1];
    const int64_t expected[] = {20, 21, 22, 23, 10, 11};
    for (int i = 0; i < 6; i++)
        mr_eq_i64(values[i], expected[i]);
    release(&x);
}

MR_TEST(rows_with_splits_keep_their_ragged_axis)
{
    mr_status st;
    mr_array a, two;
    mr_ok(make_split_row(&a, &st), &st);
    mr_ok(mr_array_start(&two, &a, 2, &st), &st);
    mr_ok(mr_array_append_rows(&two, &a, (uint32_t[]){0, 0}, 2, &st), &st);
    mr_array_reset(&a);
    exported x = take(&two);
    check_offsets(&x.array, (int64_t[]){0, 3, 6}, 2);
    check_offsets(x.array.children[0], (int64_t[]){0, 1, 1, 3, 4, 4, 6}, 6);
    check_offsets(x.array.children[0]->children[0], (int64_t[]){0, 2, 4, 6, 8, 10, 12}, 6);
    const int64_t *values = x.array.children[0]->children[0]->children[0]->buffers[1];
    mr_eq_i64(values[6], 0);
    mr_eq_i64(values[11], 5);
    release(&x);
}

MR_TEST(ragged_strings_outlive_their_column)
{
    mr_status st;
    mr_array a, g, r, b;
    mr_ok(make_strings(&a, words, 4, &st), &st);
    mr_array_group(&g, &a, 2);
    mr_array_reset(&a);
    mr_ok(mr_array_to_ragged(&r, &g, &st), &st);
    mr_array_reset(&g);
    mr_ok(mr_array_start(&b, &r, 2, &st), &st);
    mr_ok(mr_array_append_rows(&b, &r, (uint32_t[]){1, 0}, 2, &st), &st);
    mr_array_reset(&r);
    exported x = take(&b);
    check_offsets(&x.array, (int64_t[]){0, 2, 4}, 2);
    check_offsets(x.array.children[0], (int64_t[]){0, 2, 8, 13, 13}, 4);
    mr_check(memcmp(x.array.children[0]->buffers[2], "begamma!alpha", 13) == 0);
    release(&x);
}

MR_TEST(a_child_moved_out_lives_without_its_parent)
{
    mr_status st;
    mr_array a;
    mr_ok(make_numbers(&a, 3, 2, &st), &st);
    exported x = take(&a);
    struct ArrowArray child = *x.array.children[0];
    x.array.children[0]->release = NULL;
    release(&x);
    mr_eq_i64(((const int32_t *)child.buffers[1])[5], 201);
    child.release(&child);
}

MR_TEST(empty_columns_export)
{
    mr_status st;
    mr_array a;
    mr_ok(make_strings(&a, words, 0, &st), &st);
    exported x = take(&a);
    check_offsets(&x.array, (int64_t[]){0}, 0);
    release(&x);
    mr_ok(make_ragged(&a, 0, &st), &st);
    x = take(&a);
    check_offsets(&x.array, (int64_t[]){0}, 0);
    mr_eq_i64(x.array.children[0]->children[0]->length, 0);
    release(&x);
}

MR_TEST(arrow_refuses_what_it_has_no_type_for)
{
    mr_status st;
    mr_array a;
    exported x;
    mr_ok(make_scalars(&a, MR_BFLOAT16, 3, &st), &st);
    mr_eq_i64(mr_export_arrow(&x.array, &x.schema, &a, NULL, &st), MR_INVALID_ARGUMENT);
    mr_array_reset(&a);
    mr_ok(mr_array_alloc_datasets(&a, 1, &st), &st);
    mr_eq_i64(mr_export_arrow(&x.array, &x.schema, &a, NULL, &st), MR_INVALID_ARGUMENT);
    mr_array_reset(&a);
    a = (mr_array){.dtype = MR_INT8, .storage = MR_PLACED, .rows = 2};
    mr_eq_i64(mr_export_arrow(&x.array, &x.schema, &a, NULL, &st), MR_INVALID_ARGUMENT);
}

MR_TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    size_t nth = 0;
    for (; fail_nth_next(nth); nth++) {
        mr_array a = {0}, b = {0}, c = {0};
        exported x;
        memset(&x, 0, sizeof x);
        mr_dl_managed_tensor *t = NULL;
        mr_code rc = make_ragged(&a, 4, NULL);
        if (rc == MR_OK)
            rc = mr_array_start(&b, &a, 2, NULL);
        if (rc == MR_OK)
            rc = mr_array_append_rows(&b, &a, (uint32_t[]){2, 1}, 2, NULL);
        if (rc == MR_OK)
            rc = make_numbers(&c, 2, 2, NULL);
        if (rc == MR_OK)
            rc = mr_export_dlpack(&t, &c, NULL);
        if (rc == MR_OK)
            rc = mr_export_arrow(&x.array, &x.schema, &b, "name", NULL);
        mr_eq_i64(rc, fail_nth_hit() ? MR_RESOURCE_EXHAUSTED : MR_OK);
        if (t)
            t->deleter(t);
        if (x.array.release)
            release(&x);
        mr_array_reset(&a);
        mr_array_reset(&b);
        mr_array_reset(&c);
        fail_nth_end();
    }
    mr_check(nth > 10);
}
