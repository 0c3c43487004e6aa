/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"

MR_TEST(the_order_of_tensorflow)
{
    mr_drive("sample_from_datasets([range(5), range(10, 15)], weights=[0.5, 0.5], seed=42)",
             "10 11 12 13 0 14 1 2 3 4");
    mr_drive("sample_from_datasets([range(5), range(10, 15)], seed=42)",
             "10 11 12 13 0 14 1 2 3 4");
    mr_drive("sample_from_datasets([range(5), range(10, 15)], seed=42, stop_on_empty_dataset=true)",
             "10 11 12 13 0 14 1 2 3");
    /* The same order in each epoch, or another if asked for. */
    mr_drive("sample_from_datasets([range(2), range(10, 12)], seed=42).repeat(2)",
             "10 11 0 1 10 11 0 1");
    mr_drive_alike("sample_from_datasets([range(9), range(10, 19)], seed=42, "
                   "rerandomize_each_iteration=true).repeat(3)");
}

MR_TEST(inputs_without_weight_are_never_opened)
{
    mr_drive("sample_from_datasets([range(3), range(3).map(x => 1 // 0)], weights=[1, 0])",
             "0 1 2");
    mr_drive("sample_from_datasets([range(3), range(10, 12), text_line(\"/missing\").map(x => 1)], "
             "weights=[0.5, 0.5, 0], seed=42)",
             "10 11 0 1 2");
    mr_drive("sample_from_datasets([range(3)])", "0 1 2");
    mr_drive("sample_from_datasets([range(3), range(4)], weights=[0.0, 0.0])", "");
}

MR_TEST(weights_are_checked)
{
    mr_drive_bad("sample_from_datasets([range(3), range(4)], weights=[1])", "weights");
    mr_drive_bad("sample_from_datasets([range(3), range(4)], weights=[1, -1])", "weights");
    mr_drive_bad("sample_from_datasets([range(3), range(4)], weights=[1, 1e999])", "weights");
    mr_drive_bad("sample_from_datasets([range(3), range(4).enumerate()])", "types");
    mr_drive("from_tensors([1.0]).flat_map(w => sample_from_datasets([range(3)], weights=w))",
             "0 1 2");
    mr_drive("from_tensors([1.0, 2.0]).flat_map(w => sample_from_datasets([range(3)], weights=w))",
             "!weights");
}

MR_TEST(an_error_of_an_input_takes_the_place_of_an_element)
{
    mr_drive("sample_from_datasets([range(-1, 2).map(x => 6 // x), range(10, 13)], seed=42)",
             "10 11 12 -6 ! 6");
}

MR_TEST(a_cache_below_is_pulled_no_further_than_elements_are_used)
{
    mr_drive_alike("sample_from_datasets([range(6).shuffle(6, seed=1).cache(), range(2)], seed=1, "
                   "stop_on_empty_dataset=true).repeat(4)");
    mr_drive_alike("sample_from_datasets([range(6).shuffle(6, seed=1).cache(), range(2)], seed=1)"
                   ".take(7).repeat(4)");
}

MR_TEST(without_a_seed_the_order_is_drawn_once)
{
    mr_drive_alike("sample_from_datasets([range(9), range(10, 19)]).repeat(2)");
    char *all =
        mr_drive_show("sample_from_datasets([range(9), range(10, 19)]).batch(18).repeat(2)");
    char *second = strchr(all, ' ');
    mr_check(second != NULL);
    *second = '\0';
    mr_eq_str(all, second + 1);
    free(all);
}

MR_TEST(number_of_elements)
{
    mr_drive_count("sample_from_datasets([range(3), range(4)])", MR_UNKNOWN_COUNT);
    mr_drive_count("sample_from_datasets([range(3), counter()])", MR_INFINITE);
    mr_drive_count("sample_from_datasets([range(3), counter()], weights=[1, 0])", 3);
    mr_drive_count("sample_from_datasets([range(3), counter()], weights=[0, 0])", 0);
    mr_drive_count("sample_from_datasets([range(3)])", 3);
}

MR_TEST(made_in_c)
{
    mr_dataset *inputs[] = {mr_range(0, 3, 1), mr_range(10, 11, 1)};
    mr_drive_dataset(mr_sample_from_datasets(inputs, 2, (const double[]){1, 0}, NULL), "0 1 2");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("sample_from_datasets([range(5), range(3), range(2)], weights=[1, 2, 0], "
                    "seed=4)");
}
