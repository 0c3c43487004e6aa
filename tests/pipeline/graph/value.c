/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/value.h"

#include <string.h>

#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/graph/sample_ops.h"

MR_ONE_THREAD;

static mr_value sample(void)
{
    mr_value items[] = {{.kind = MR_V_INT, .i = 7},
                        sample_string("text"),
                        sample_tensor(MR_INT32, 1, (int64_t[]){2}, (int32_t[]){1, 2}),
                        {.kind = MR_V_FLOAT, .f = 0.1}};
    mr_value v = sample_tuple(items, 4);
    v.kind = MR_V_RECORD;
    v.names = mr_calloc(4, sizeof *v.names);
    for (int i = 0; i < 4; i++)
        v.names[i] = mr_strdup((const char *[]){"a", "b", "c", "d"}[i]);
    return v;
}

MR_TEST(copies_are_equal_until_something_differs)
{
    mr_value a = sample(), b;
    mr_status st;
    mr_ok(mr_value_copy(&b, &a, &st), &st);
    mr_check(mr_value_equal(&a, &b));
    b.items[3].f = 0.2;
    mr_check(!mr_value_equal(&a, &b));
    b.items[3].f = 0.1;
    b.names[0][0] = 'z';
    mr_check(!mr_value_equal(&a, &b));
    mr_value_reset(&b);
    mr_value_reset(&a);
    mr_eq_i64(a.kind, MR_V_UNSET);
}

MR_TEST(tensors_compare_by_type_shape_and_bytes)
{
    int64_t flat[] = {4}, square[] = {2, 2};
    mr_value a = sample_tensor(MR_INT32, 1, flat, (int32_t[]){1, 2, 3, 4});
    mr_value b = sample_tensor(MR_INT32, 2, square, (int32_t[]){1, 2, 3, 4});
    mr_value c = sample_tensor(MR_UINT32, 1, flat, (int32_t[]){1, 2, 3, 4});
    mr_value d = sample_tensor(MR_INT32, 1, flat, (int32_t[]){1, 2, 3, 5});
    mr_check(!mr_value_equal(&a, &b));
    mr_check(!mr_value_equal(&a, &c));
    mr_check(!mr_value_equal(&a, &d));
    mr_value_reset(&a);
    mr_value_reset(&b);
    mr_value_reset(&c);
    mr_value_reset(&d);
}

MR_TEST(scalars_go_to_arrays_and_back)
{
    mr_value in[] = {{.kind = MR_V_INT, .i = INT64_MIN},
                     {.kind = MR_V_FLOAT, .f = 0.5},
                     {.kind = MR_V_BOOL, .i = 1},
                     sample_string("abc"),
                     sample_string(""),
                     sample_tensor(MR_UINT8, 0, NULL, (uint8_t[]){200})};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        mr_array a;
        mr_value out;
        mr_status st;
        mr_ok(mr_value_to_array(&in[i], &a, &st), &st);
        mr_eq_u64(a.rows, 1);
        mr_ok(mr_value_from_array(&out, &a, 0, &st), &st);
        mr_check(mr_value_equal(&in[i], &out));
        mr_array_reset(&a);
        mr_value_reset(&out);
        mr_value_reset(&in[i]);
    }
}

MR_TEST(a_dataset_goes_to_a_value)
{
    mr_array a;
    mr_status st;
    mr_value v;
    mr_ok(mr_array_alloc_datasets(&a, 2, &st), &st);
    ((mr_dataset **)a.data)[1] = sample_source(3, NULL);
    mr_ok(mr_value_from_array(&v, &a, 1, &st), &st);
    mr_array_reset(&a);
    mr_eq_i64(v.kind, MR_V_DATASET);
    mr_eq_i64(mr_dataset_cardinality(v.dataset), 3);
    mr_value_reset(&v);
}

MR_TEST(a_list_is_no_array)
{
    mr_value v = {.kind = MR_V_LIST};
    mr_array a;
    mr_status st;
    mr_code_is(mr_value_to_array(&v, &a, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "expected");
}

MR_TEST(every_failed_allocation_leaves_the_copy_untouched)
{
    mr_value a = sample();
    mr_fault_each_allocation(n)
    {
        mr_value b = {0};
        mr_status st;
        if (mr_fault_expect(mr_value_copy(&b, &a, &st), &st) == MR_OK)
            mr_value_reset(&b);
        mr_eq_i64(b.kind, MR_V_UNSET);
        mr_array array = {0};
        if (mr_fault_expect(mr_value_to_array(&a.items[1], &array, &st), &st) == MR_OK)
            mr_array_reset(&array);
    }
    mr_value_reset(&a);
}
