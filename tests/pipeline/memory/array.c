/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/array.h"

#include <string.h>

#include "pipeline/memory/object.h"
#include "tests/harness.h"
#include "tests/pipeline/memory/columns.h"
#include "tests/pipeline/memory/fail_nth.h"

MR_ONE_THREAD;

static const char *const words[] = {"alpha", "", "be", "gamma!", "d"};

MR_TEST(sizes_of_rows_count_values_and_bytes)
{
    mr_status st;
    mr_array a;
    mr_ok(mr_array_alloc(&a, MR_FLOAT32, 2, (int64_t[]){3, 5}, 4, &st), &st);
    mr_eq_u64(mr_array_row_values(&a), 15);
    mr_eq_u64(mr_array_row_bytes(&a), 60);
    mr_eq_u64(mr_array_payload_bytes(&a, 1, 2), 120);
    mr_check(mr_array_at(&a, 3) == (char *)a.data + 180);
    mr_eq_i64(mr_array_row_shape(&a, 2)[1], 5);
    mr_array_reset(&a);
    mr_check(a.owner == NULL && a.rows == 0);
    mr_ok(make_strings(&a, words, 5, &st), &st);
    mr_eq_u64(mr_array_payload_bytes(&a, 0, 5), 14);
    mr_eq_u64(mr_array_payload_bytes(&a, 1, 2), 2);
    mr_array_reset(&a);
    mr_ok(make_ragged(&a, 4, &st), &st);
    mr_eq_u64(mr_array_payload_bytes(&a, 1, 3), (2 + 4 + 6) * 8);
    mr_array_reset(&a);
    mr_ok(make_split_row(&a, &st), &st);
    mr_eq_u64(mr_array_payload_bytes(&a, 0, 1), 48);
    mr_array_reset(&a);
}

MR_TEST(only_what_nothing_else_sees_may_be_written)
{
    mr_status st;
    mr_array a, b;
    mr_buffer *wrapped;
    static int64_t foreign[4];
    mr_ok(mr_array_alloc(&a, MR_INT64, 1, (int64_t[]){2}, 4, &st), &st);
    mr_check(mr_array_writable(&a, 0));
    mr_array_slice(&b, &a, 1, 2);
    mr_check(!mr_array_writable(&a, 0) && !mr_array_writable(&b, 0));
    mr_array_reset(&a);
    mr_check(mr_array_writable(&b, 0));
    b.resident = true;
    mr_check(!mr_array_writable(&b, 0));
    mr_array_reset(&b);
    mr_ok(make_strings(&a, words, 5, &st), &st);
    mr_check(!mr_array_writable(&a, 0));
    mr_array_reset(&a);
    for (int read_only = 0; read_only < 2; read_only++) {
        mr_ok(mr_buffer_wrap(&wrapped, foreign, sizeof foreign, read_only, NULL, NULL, &st), &st);
        a = (mr_array){.dtype = MR_INT64, .rows = 4, .data = foreign, .owner = wrapped};
        mr_check(mr_array_writable(&a, 0) == !read_only);
        mr_array_reset(&a);
    }
    a = (mr_array){.dtype = MR_INT64, .rows = 4, .data = foreign};
    mr_check(!mr_array_writable(&a, 0)); /* who else has it is not known */
}

MR_TEST(a_ragged_row_may_be_written_if_its_values_are_not_shared)
{
    mr_status st;
    mr_array a, b;
    mr_buffer *values, *other;
    mr_ok(mr_array_alloc_ragged(&a, MR_INT64, 1, 3, &st), &st);
    mr_ok(mr_buffer_alloc(&values, 10 * sizeof(int64_t), &st), &st);
    mr_ok(mr_buffer_alloc(&other, 10 * sizeof(int64_t), &st), &st);
    mr_ok(mr_buffer_hold(a.owner, values, &st), &st);
    mr_ok(mr_buffer_hold(a.owner, other, &st), &st);
    int64_t *v = mr_buffer_data(values);
    const void *const data[] = {v, v + 3, mr_buffer_data(other)};
    for (size_t i = 0; i < 3; i++) {
        int64_t *shape = mr_array_shape_slot(&a, i);
        *shape = 4; /* of rows 0 and 1, which share one value */
        ((mr_row *)a.data)[i] = (mr_row){data[i], shape, NULL};
    }
    mr_check(!mr_array_writable(&a, 2)); /* there are references here */
    mr_buffer_unref(values);
    mr_check(!mr_array_writable(&a, 2));
    mr_buffer_unref(other);
    mr_check(mr_array_writable(&a, 2));
    mr_check(!mr_array_writable(&a, 0) && !mr_array_writable(&a, 1));
    *mr_array_shape_slot(&a, 0) = 3;
    mr_check(mr_array_writable(&a, 0) && mr_array_writable(&a, 1));
    mr_array_slice(&b, &a, 0, 1);
    mr_check(!mr_array_writable(&a, 0));
    mr_array_reset(&b);
    mr_array_reset(&a);
}

MR_TEST(bytes_of_strings_are_those_of_each)
{
    enum { N = 9 };
    static const char *const strings[N] = {"1",      "22",      "333",      "4444",     "55555",
                                           "666666", "7777777", "88888888", "999999999"};
    mr_status st;
    mr_array a;
    mr_ok(make_strings(&a, strings, N, &st), &st);
    for (size_t from = 0; from <= N; from++)
        for (size_t n = 0, bytes = 0; from + n <= N; bytes += from + ++n)
            mr_eq_u64(mr_array_payload_bytes(&a, from, n), bytes);
    mr_array_reset(&a);
}

MR_TEST(shapes_that_cannot_be_are_refused)
{
    mr_status st;
    mr_array a;
    const int64_t huge[3] = {INT64_MAX, INT64_MAX, 2}, negative[1] = {-1};
    mr_eq_i64(mr_array_alloc(&a, MR_INT8, 3, huge, 2, &st), MR_RESOURCE_EXHAUSTED);
    mr_eq_i64(mr_array_alloc(&a, MR_INT8, 1, negative, 2, &st), MR_RESOURCE_EXHAUSTED);
    mr_eq_i64(mr_array_alloc(&a, MR_INT64, 0, NULL, SIZE_MAX / 4, &st), MR_RESOURCE_EXHAUSTED);
    mr_eq_i64(mr_array_alloc_ragged(&a, MR_INT64, 8, SIZE_MAX / 16, &st), MR_RESOURCE_EXHAUSTED);
}

MR_TEST(slices_are_views_with_a_reference)
{
    mr_status st;
    mr_array a, s, t;
    mr_ok(make_numbers(&a, 10, 3, &st), &st);
    a.resident = true;
    mr_array_slice(&s, &a, 4, 5);
    mr_check(!mr_buffer_writable(a.owner));
    mr_check(s.data == mr_array_at(&a, 4) && s.resident);
    mr_eq_u64(s.rows, 5);
    mr_array_slice(&t, &s, 1, 2);
    mr_array_reset(&a);
    mr_array_reset(&s);
    mr_eq_i64(((int32_t *)t.data)[1], 501);
    mr_check(mr_buffer_writable(t.owner));
    mr_array_move(&s, &t);
    mr_check(t.owner == NULL && s.rows == 2);
    mr_array_reset(&s);
}

MR_TEST(placed_columns_slice_without_data)
{
    mr_array a = {.dtype = MR_INT32, .storage = MR_PLACED, .rank = 1, .rows = 8, .shape = {4}}, s;
    mr_array_slice(&s, &a, 3, 5);
    mr_check(s.data == NULL);
    mr_eq_u64(s.rows, 5);
    mr_eq_u64(mr_array_payload_bytes(&s, 0, 5), 80);
    mr_array_reset(&s);
}

MR_TEST(columns_fit_by_dtype_rank_and_shape_unless_ragged)
{
    const mr_array a = {.dtype = MR_INT32, .rank = 1, .shape = {3}};
    mr_array b = a;
    mr_check(mr_array_fits(&a, &b));
    b.shape[0] = 4;
    mr_check(!mr_array_fits(&a, &b));
    b.storage = MR_RAGGED;
    mr_check(mr_array_fits(&a, &b) && mr_array_fits(&b, &a));
    b.rank = 2;
    mr_check(!mr_array_fits(&a, &b));
    b.rank = 1;
    b.dtype = MR_INT64;
    mr_check(!mr_array_fits(&a, &b));
}

MR_TEST(dense_rows_append_in_order_for_every_row_size)
{
    static const mr_dtype dtypes[] = {MR_UINT8, MR_INT16, MR_FLOAT32, MR_INT64};
    for (size_t t = 0; t < 4; t++) {
        for (int64_t n = 0; n < 70; n = n * 2 + (n < 3)) {
            mr_status st;
            mr_array src, dst;
            uint32_t index[60];
            mr_ok(mr_array_alloc(&src, dtypes[t], 1, &n, 200, &st), &st);
            size_t bytes = mr_array_row_bytes(&src);
            for (size_t i = 0; i < 200 * bytes; i++)
                ((uint8_t *)src.data)[i] = (uint8_t)(i * 7 % 251);
            for (uint32_t i = 0; i < 60; i++)
                index[i] = i * 97 % 200;
            src.resident = true;
            mr_ok(mr_array_start(&dst, &src, 100, &st), &st);
            mr_eq_u64(dst.rows, 0);
            mr_check(!dst.resident);
            mr_ok(mr_array_append(&dst, &src, 150, 40, &st), &st);
            mr_ok(mr_array_append_rows(&dst, &src, index, 60, &st), &st);
            mr_eq_u64(dst.rows, 100);
            for (size_t i = 0; i < 100; i++) {
                size_t from = i < 40 ? 150 + i : index[i - 40];
                mr_check(memcmp((char *)dst.data + i * bytes, (char *)src.data + from * bytes,
                                bytes) == 0);
            }
            mr_check(mr_buffer_writable(src.owner)); /* a copy holds nothing */
            mr_array_reset(&src);
            mr_array_reset(&dst);
        }
    }
}

MR_TEST(appended_strings_outlive_their_source)
{
    mr_status st;
    mr_array a, b, dst;
    mr_ok(make_strings(&a, words, 5, &st), &st);
    mr_ok(make_strings(&b, words, 5, &st), &st);
    mr_ok(mr_array_start(&dst, &a, 6, &st), &st);
    mr_ok(mr_array_append(&dst, &a, 3, 2, &st), &st);
    mr_ok(mr_array_append_rows(&dst, &b, (uint32_t[]){2, 0, 1, 4}, 4, &st), &st);
    mr_check(mr_buffer_writable(a.owner)); /* the views were copied, only their targets are held */
    mr_array_reset(&a);
    mr_array_reset(&b);
    const char *const expected[] = {"gamma!", "d", "be", "alpha", "", "d"};
    for (size_t i = 0; i < 6; i++)
        check_string(&dst, i, expected[i]);
    mr_array_reset(&dst);
}

static void check_ragged_row(const mr_array *a, size_t at, int64_t i)
{
    const mr_row *r = ragged_row(a, at);
    mr_eq_i64(r->shape[0], i);
    mr_eq_i64(r->shape[1], 2);
    for (int64_t k = 0; k < 2 * i; k++)
        mr_eq_i64(((const int64_t *)r->data)[k], 10 * i + k);
}

MR_TEST(ragged_rows_append_with_their_shapes)
{
    mr_status st;
    mr_array a, dst, s;
    mr_ok(make_ragged(&a, 6, &st), &st);
    mr_ok(mr_array_start(&dst, &a, 7, &st), &st);
    mr_array_slice(&s, &a, 2, 4);
    mr_ok(mr_array_append(&dst, &s, 1, 3, &st), &st);
    mr_array_reset(&s);
    mr_ok(mr_array_append_rows(&dst, &a, (uint32_t[]){0, 5, 1, 1}, 4, &st), &st);
    mr_check(mr_buffer_writable(a.owner));
    mr_array_reset(&a);
    const int64_t rows[] = {3, 4, 5, 0, 5, 1, 1};
    for (size_t i = 0; i < 7; i++)
        check_ragged_row(&dst, i, rows[i]);
    mr_array_reset(&dst);
}

/* A dense array of shape [3, 2] with row i as in make_ragged's row 3, plus 1000 * i. */
static void make_threes(mr_array *a, size_t rows)
{
    mr_status st;
    mr_ok(mr_array_alloc(a, MR_INT64, 2, (int64_t[]){3, 2}, rows, &st), &st);
    for (size_t i = 0; i < rows * 6; i++)
        ((int64_t *)a->data)[i] = (int64_t)(30 + i % 6 + i / 6 * 1000);
}

MR_TEST(dense_rows_become_ragged_among_ragged_ones)
{
    mr_status st;
    mr_array ragged, dense, dst;
    mr_ok(make_ragged(&ragged, 4, &st), &st);
    make_threes(&dense, 3);
    mr_ok(mr_array_start(&dst, &ragged, 5, &st), &st);
    mr_ok(mr_array_append(&dst, &ragged, 2, 1, &st), &st);
    mr_ok(mr_array_append_rows(&dst, &dense, (uint32_t[]){2, 0}, 2, &st), &st);
    mr_ok(mr_array_append(&dst, &ragged, 1, 2, &st), &st);
    mr_check(!mr_buffer_writable(dense.owner)); /* values stay where they are */
    mr_array_reset(&dense);
    mr_array_reset(&ragged);
    check_ragged_row(&dst, 0, 2);
    mr_eq_i64(((const int64_t *)ragged_row(&dst, 1)->data)[5], 2035);
    check_ragged_row(&dst, 2, 3);
    check_ragged_row(&dst, 3, 1);
    check_ragged_row(&dst, 4, 2);
    mr_array_reset(&dst);
}

MR_TEST(a_dense_array_that_meets_ragged_rows_becomes_ragged)
{
    mr_status st;
    mr_array ragged, dense, dst;
    mr_ok(make_ragged(&ragged, 4, &st), &st);
    make_threes(&dense, 1);
    mr_ok(mr_array_start(&dst, &dense, 4, &st), &st);
    mr_ok(mr_array_append(&dst, &dense, 0, 1, &st), &st);
    mr_ok(mr_array_append(&dst, &ragged, 1, 3, &st), &st);
    mr_array_reset(&dense);
    mr_array_reset(&ragged);
    mr_eq_i64(dst.storage, MR_RAGGED);
    mr_eq_u64(dst.rows, 4);
    check_ragged_row(&dst, 0, 3);
    for (int64_t i = 1; i < 4; i++)
        check_ragged_row(&dst, (size_t)i, i);
    mr_array_reset(&dst);
}

MR_TEST(dense_becomes_ragged_and_dense_again)
{
    mr_status st;
    mr_array dense, ragged, back;
    make_threes(&dense, 4);
    mr_ok(mr_array_to_ragged(&ragged, &dense, &st), &st);
    mr_eq_i64(ragged.storage, MR_RAGGED);
    mr_check(ragged_row(&ragged, 3)->data == mr_array_at(&dense, 3)); /* views */
    mr_ok(mr_array_to_dense(&back, &ragged, NULL, &st), &st);
    mr_array_reset(&ragged);
    mr_eq_i64(back.storage, MR_DENSE);
    mr_eq_u64(back.rows, 4);
    mr_check(memcmp(back.data, dense.data, 4 * 48) == 0);
    mr_array_reset(&back);
    mr_ok(mr_array_to_dense(&back, &dense, NULL, &st), &st);
    mr_check(back.data == dense.data); /* as it is */
    mr_array_reset(&back);
    mr_array_reset(&dense);
}

MR_TEST(strings_keep_their_bytes_through_ragged_and_back)
{
    mr_status st;
    mr_array a, grouped, ragged, dst, back;
    mr_ok(make_strings(&a, words, 4, &st), &st);
    mr_array_group(&grouped, &a, 2);
    mr_array_reset(&a);
    mr_ok(mr_array_to_ragged(&ragged, &grouped, &st), &st);
    mr_array_reset(&grouped);
    mr_eq_u64(mr_array_payload_bytes(&ragged, 1, 1), 8);
    mr_ok(mr_array_start(&dst, &ragged, 2, &st), &st);
    mr_ok(mr_array_append_rows(&dst, &ragged, (uint32_t[]){1, 0}, 2, &st), &st);
    mr_array_reset(&ragged);
    mr_ok(mr_array_to_dense(&back, &dst, NULL, &st), &st);
    mr_array_reset(&dst);
    mr_eq_i64(back.storage, MR_BYTES);
    check_string(&back, 0, "be");
    check_string(&back, 1, "gamma!");
    check_string(&back, 2, "alpha");
    check_string(&back, 3, "");
    mr_array_reset(&back);
}

MR_TEST(rows_of_different_shape_are_not_dense_and_the_first_is_named)
{
    mr_status st;
    mr_array a, b;
    size_t bad = 99;
    mr_ok(make_ragged(&a, 4, &st), &st);
    mr_eq_i64(mr_array_to_dense(&b, &a, &bad, &st), MR_INVALID_ARGUMENT);
    mr_eq_u64(bad, 1);
    mr_array one;
    mr_array_slice(&one, &a, 3, 1);
    mr_ok(mr_array_to_dense(&b, &one, &bad, &st), &st);
    mr_eq_i64(b.shape[0], 3);
    mr_array_reset(&b);
    mr_array_reset(&one);
    mr_array_slice(&one, &a, 0, 0);
    mr_ok(mr_array_to_dense(&b, &one, &bad, &st), &st);
    mr_eq_u64(b.rows, 0);
    mr_array_reset(&b);
    mr_array_reset(&one);
    mr_array_reset(&a);
    mr_ok(make_split_row(&a, &st), &st);
    mr_eq_i64(mr_array_to_dense(&b, &a, &bad, &st), MR_INVALID_ARGUMENT);
    mr_eq_u64(bad, 0);
    mr_array_reset(&a);
}

MR_TEST(group_and_ungroup_are_opposites_without_a_copy)
{
    mr_status st;
    mr_array a, g, u;
    mr_ok(make_numbers(&a, 12, 3, &st), &st);
    mr_array_group(&g, &a, 4);
    mr_eq_u64(g.rows, 3);
    mr_eq_i64(g.rank, 2);
    mr_eq_i64(g.shape[0], 4);
    mr_eq_i64(g.shape[1], 3);
    mr_check(g.data == a.data);
    mr_ok(mr_array_ungroup(&u, &g, 2, &st), &st);
    mr_eq_u64(u.rows, 4);
    mr_eq_i64(u.rank, 1);
    mr_eq_i64(u.shape[0], 3);
    mr_check(u.data == mr_array_at(&a, 8));
    mr_array_reset(&a);
    mr_array_reset(&g);
    mr_eq_i64(((int32_t *)u.data)[0], 800);
    mr_array_reset(&u);
}

MR_TEST(a_ragged_row_ungroups_into_a_read_only_dense_view)
{
    mr_status st;
    mr_array a, u;
    mr_ok(make_ragged(&a, 4, &st), &st);
    mr_ok(mr_array_ungroup(&u, &a, 3, &st), &st);
    mr_array_reset(&a);
    mr_eq_i64(u.storage, MR_DENSE);
    mr_eq_u64(u.rows, 3);
    mr_eq_i64(u.shape[0], 2);
    mr_eq_i64(((int64_t *)u.data)[5], 35);
    mr_check(!mr_buffer_writable(u.owner)); /* others may have views of the same values */
    mr_array_reset(&u);
}

MR_TEST(a_row_with_splits_ungroups_into_ragged_rows)
{
    mr_status st;
    mr_array a, copy, u;
    mr_ok(make_split_row(&a, &st), &st);
    mr_ok(mr_array_start(&copy, &a, 2, &st), &st);
    mr_ok(mr_array_append(&copy, &a, 0, 1, &st), &st);
    mr_array_reset(&a);
    mr_eq_i64(mr_array_row_shape(&copy, 0)[1], -1);
    mr_ok(mr_array_ungroup(&u, &copy, 0, &st), &st);
    mr_array_reset(&copy);
    mr_eq_i64(u.storage, MR_RAGGED);
    mr_eq_i64(u.rank, 2);
    mr_eq_u64(u.rows, 3);
    const int64_t lengths[] = {1, 0, 2}, first[] = {0, 0, 2};
    for (size_t i = 0; i < 3; i++) {
        const mr_row *r = ragged_row(&u, i);
        mr_check(r->splits == NULL);
        mr_eq_i64(r->shape[0], lengths[i]);
        mr_eq_i64(r->shape[1], 2);
        if (lengths[i])
            mr_eq_i64(*(const int64_t *)r->data, first[i]);
    }
    mr_array_reset(&u);
}

static int n_destroyed;
static void count_destroyed(mr__object *o)
{
    (void)o;
    n_destroyed++;
}

MR_TEST(dataset_references_are_counted_in_every_copy)
{
    mr_status st;
    mr__object o[3];
    n_destroyed = 0;
    for (int i = 0; i < 3; i++)
        mr__object_init(&o[i], count_destroyed);
    mr_array a, dst;
    mr_ok(mr_array_alloc_datasets(&a, 3, &st), &st);
    for (int i = 0; i < 3; i++)
        ((mr__object **)a.data)[i] = &o[i];
    mr_ok(mr_array_start(&dst, &a, 4, &st), &st);
    mr_ok(mr_array_append(&dst, &a, 1, 2, &st), &st);
    mr_ok(mr_array_append_rows(&dst, &a, (uint32_t[]){2}, 1, &st), &st);
    mr_array_reset(&a);
    mr_eq_i64(n_destroyed, 1);
    mr_eq_i64(atomic_load(&o[1].refs), 1);
    mr_eq_i64(atomic_load(&o[2].refs), 2);
    dst.rows = 2; /* an append taken back, and done again */
    mr_array s;
    mr_array_slice(&s, &dst, 0, 1);
    mr_array_reset(&s);
    mr_array again;
    mr_ok(mr_array_start(&again, &dst, 1, &st), &st);
    mr_ok(mr_array_append(&again, &dst, 0, 1, &st), &st);
    mr_ok(mr_array_append(&dst, &again, 0, 1, &st), &st);
    mr_eq_i64(atomic_load(&o[2].refs), 1);
    mr_array_reset(&again);
    mr_array_reset(&dst);
    mr_eq_i64(n_destroyed, 3);
}

static mr_code build_everything(void)
{
    mr_array numbers = {0}, strings = {0}, ragged = {0}, split = {0}, dst = {0}, out[5];
    memset(out, 0, sizeof out);
    mr_code rc = make_ragged(&ragged, 4, NULL);
    if (rc == MR_OK)
        rc = make_split_row(&split, NULL);
    if (rc == MR_OK)
        rc = make_strings(&strings, words, 5, NULL);
    if (rc == MR_OK)
        rc = mr_array_alloc(&numbers, MR_INT64, 2, (int64_t[]){3, 2}, 2, NULL);
    if (rc == MR_OK)
        rc = mr_array_to_ragged(&out[0], &strings, NULL);
    if (rc == MR_OK)
        rc = mr_array_to_dense(&out[1], &out[0], NULL, NULL);
    if (rc == MR_OK)
        rc = mr_array_ungroup(&out[2], &split, 0, NULL);
    if (rc == MR_OK)
        rc = mr_array_ungroup(&out[3], &ragged, 3, NULL);
    if (rc == MR_OK)
        rc = mr_array_alloc_datasets(&out[4], 3, NULL);
    if (rc == MR_OK)
        rc = mr_array_start(&dst, &numbers, 5, NULL);
    if (rc == MR_OK) {
        dst.rows = 1;
        memset(dst.data, 0, 48);
        rc = mr_array_append(&dst, &ragged, 0, 4, NULL);
        mr_eq_u64(dst.rows, rc == MR_OK ? 5 : 1);
    }
    for (int i = 0; i < 5; i++)
        mr_array_reset(&out[i]);
    mr_array_reset(&numbers);
    mr_array_reset(&strings);
    mr_array_reset(&ragged);
    mr_array_reset(&split);
    mr_array_reset(&dst);
    return rc;
}

MR_TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    size_t nth = 0;
    for (; fail_nth_next(nth); nth++) {
        mr_code rc = build_everything();
        mr_eq_i64(rc, fail_nth_hit() ? MR_RESOURCE_EXHAUSTED : MR_OK);
        fail_nth_end();
    }
    mr_check(nth > 10);
}
