/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "pipeline/ops/sources.h"
#include "tests/harness.h"

MR_TEST(one_element)
{
    mr_drive("from_tensors(1, [2, 3])", "(1,[2,3])");
    mr_drive("from_tensors(5)", "5");
    mr_drive("from_tensors([[1, 2], [3, 4]])", "[[1,2],[3,4]]");
    mr_drive("from_tensors(b=1, a=\"x\")", "(\"x\",1)");
    mr_drive("from_tensors(1.5, true, [])", "(1.5,true,[])");
    mr_drive("from_tensors((1, 2), 3)", "(1,2,3)");
    mr_drive_count("from_tensors(5)", 1);
}

MR_TEST(a_dataset_may_be_a_component)
{
    mr_drive("from_tensors(range(3))", "{0,1,2}");
    mr_drive("range(1, 3).flat_map(x => from_tensors(x, [x, x]))", "(1,[1,1]) (2,[2,2])");
}

MR_TEST(bad_arguments_are_refused)
{
    mr_drive_bad("from_tensors()", "component");
    mr_drive_bad("from_tensors(none)", "from_tensors");
    mr_drive_bad("from_tensors(1, a=2)", "from_tensors");
}

MR_TEST(rows_of_c_arrays)
{
    mr_array a[2];
    mr_status st;
    mr_ok(mr_array_alloc(&a[0], MR_INT64, 0, NULL, 1, &st), &st);
    mr_ok(mr_array_alloc(&a[1], MR_UINT8, 1, (const int64_t[]){2}, 1, &st), &st);
    *(int64_t *)a[0].data = 7;
    ((uint8_t *)a[1].data)[0] = 1;
    ((uint8_t *)a[1].data)[1] = 2;
    mr_drive_dataset(mr_from_tensors(a, NULL, 2), "(7,[1,2])");
    mr_drive_dataset(mr_from_tensors(a, (const char *const[]){"z", "a"}, 2), "([1,2],7)");
    mr_drive_dataset(mr_from_tensors(a, NULL, 1), "7");
    mr_array_reset(&a[0]);
    mr_array_reset(&a[1]);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("from_tensors(1, [2, 3], \"abc\")");
}
