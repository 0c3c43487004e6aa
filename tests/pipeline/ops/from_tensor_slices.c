/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(slices_along_axis_0)
{
    mr_drive("from_tensor_slices([[1, 2], [3, 4]])", "[1,2] [3,4]");
    mr_drive("from_tensor_slices([1, 2], [\"a\", \"b\"])", "(1,\"a\") (2,\"b\")");
    mr_drive("from_tensor_slices(b=[1, 2], a=[3, 4])", "(3,1) (4,2)");
    mr_drive("from_tensor_slices([])", "");
    mr_drive("from_tensor_slices([range(2), range(3)]).flat_map(d => d)", "0 1 0 1 2");
    mr_drive("range(1, 4).flat_map(x => from_tensor_slices([x, x * 2]))", "1 2 2 4 3 6");
    mr_drive_count("from_tensor_slices([1, 2, 3])", 3);
}

MR_TEST(bad_arguments_are_refused)
{
    mr_drive_bad("from_tensor_slices(1)", "axis 0");
    mr_drive_bad("from_tensor_slices([1, 2], [1, 2, 3])", "slices");
    mr_drive_bad("from_tensor_slices([[1, 2], [3]])", "");
    mr_drive_bad("from_tensor_slices()", "component");
}

MR_TEST(slices_are_resident)
{
    mr_dataset *ds = mr_drive_build("from_tensor_slices([1, 2, 3])");
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_ok(mr_iterator_next(it, 2, &b, &st), &st);
    mr_check(b.columns[0].resident);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("from_tensor_slices([1, 2, 3], [\"a\", \"b\", \"c\"])");
}
