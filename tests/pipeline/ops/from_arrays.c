/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

#include <string.h>

#include "pipeline/ops/sources.h"

static mr_array numbers(int64_t n)
{
    mr_array a;
    mr_ok(mr_array_alloc(&a, MR_INT64, 0, NULL, (size_t)n, NULL), NULL);
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)a.data)[i] = i;
    return a;
}

MR_TEST(rows_are_elements_without_a_copy)
{
    mr_array a = numbers(3);
    mr_drive_dataset(mr_from_arrays(&a, NULL, 1), "0 1 2");
    mr_dataset *ds = mr_from_arrays(&a, NULL, 1);
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_ok(mr_iterator_next(it, 3, &b, &st), &st);
    mr_check(b.columns[0].data == a.data && b.columns[0].resident);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_eq_i64(mr_dataset_cardinality(ds), 3);
    mr_dataset_unref(ds);
    mr_array_reset(&a);
}

MR_TEST(continues_at_a_position_of_version_0_1)
{
    static const char saved[] = /* after two rows */
        "MRP4\x91\xca\x01\x83\x0c.from_arrays\0\x10\x0b"
        "from_arrays\0\0\2\2";
    mr_array a = numbers(4);
    mr_dataset *ds = mr_from_arrays(&a, NULL, 1);
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_ok(mr_iterator_restore(it, saved, sizeof saved - 1, &st), &st);
    mr_ok(mr_iterator_next(it, 4, &b, &st), &st);
    mr_eq_u64(b.rows, 2);
    mr_eq_i64(((const int64_t *)b.columns[0].data)[0], 2);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_array_reset(&a);
}

MR_TEST(a_graph_with_arrays_has_no_text)
{
    mr_array a = numbers(3);
    mr_dataset *ds = mr_from_arrays(&a, NULL, 1);
    char *text = NULL;
    mr_status st;
    mr_code_is(mr_dataset_to_text(ds, &text, &st), MR_FAILED_PRECONDITION, &st);
    mr_dataset_unref(ds);
    mr_array_reset(&a);
}

MR_TEST(columns_must_agree)
{
    mr_array a[2] = {numbers(3), numbers(4)};
    mr_dataset *ds = mr_from_arrays(a, NULL, 2);
    mr_status st;
    mr_code_is(mr_dataset_check(ds, &st), MR_INVALID_ARGUMENT, &st);
    mr_dataset_unref(ds);
    mr_array none = numbers(0);
    mr_drive_dataset(mr_from_arrays(&none, NULL, 1), "");
    mr_array_reset(&none);
    mr_array_reset(&a[0]);
    mr_array_reset(&a[1]);
}

MR_TEST(columns_that_cannot_be_in_memory_are_refused)
{
    static const struct {
        mr_array column;
        const char *why;
    } bad[] = {
        {{.dtype = (mr_dtype)99, .rows = 3}, "unknown dtype"},
        {{.dtype = MR_INT64, .rank = 1, .shape = {-1}, .rows = 3}, "negative size"},
        {{.dtype = MR_INT64, .rank = 99, .rows = 3}, "fewer than"},
        {{.dtype = MR_INT64, .rank = -1, .rows = 3}, "fewer than"},
        {{.dtype = MR_INT64, .rank = 2, .shape = {INT64_C(1) << 40, INT64_C(1) << 40}, .rows = 3},
         "exceeds"},
        {{.dtype = MR_INT64, .rows = SIZE_MAX / 2}, "exceeds"},
        {{.dtype = MR_INT64, .rows = 3}, "no data"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_status st;
        mr_dataset *ds = mr_from_arrays(&bad[i].column, NULL, 1);
        mr_test_context("column %zu", i);
        mr_code_is(mr_dataset_check(ds, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, bad[i].why);
        mr_dataset_unref(ds);
    }
}
