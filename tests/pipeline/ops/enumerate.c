/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(numbers_the_elements)
{
    mr_drive("range(5, 8).enumerate(start=1)", "(1,5) (2,6) (3,7)");
    mr_drive("zip(range(2), range(3)).enumerate()", "(0,0,0) (1,1,1)");
}

MR_TEST(an_error_uses_up_a_number)
{
    mr_drive("from_tensor_slices([1, 0, 2]).map(x => 2 // x).enumerate()", "(0,2) !zero (2,1)");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(10).enumerate()");
}
