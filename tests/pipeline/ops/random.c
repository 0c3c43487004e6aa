/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

MR_TEST(the_words_of_tensorflow)
{
    mr_drive("random(seed=87).take(5)", "362173191 1418547383 2908382604 852866724 1416711395");
    mr_drive("random(seed=42).take(6)",
             "2985944072 4132877644 929418493 249609589 146598941 4149265688");
    mr_drive("random(42).take(1)", "2985944072");
    mr_drive_count("random(seed=1)", MR_INFINITE);
}

MR_TEST(each_pass_has_the_same_numbers_unless_told_otherwise)
{
    mr_drive("random(seed=42).take(2).repeat(2)", "2985944072 4132877644 2985944072 4132877644");
    /* As the epochs of a shuffle: Philox(2985944072, 4132877644), then the next pair. */
    mr_drive("random(seed=42, rerandomize_each_iteration=true).take(2).repeat(2).take(2)",
             "1632911145 3351202991");
    mr_drive_alike("random(seed=42, rerandomize_each_iteration=true).take(5).repeat(3)");
    char *all = mr_drive_show("random(seed=42, rerandomize_each_iteration=true).take(1).repeat(2)");
    char *second = strchr(all, ' ');
    mr_check(second && strncmp(all, second + 1, strlen(second + 1)) != 0);
    free(all);
}

MR_TEST(without_a_seed_the_passes_of_one_dataset_agree)
{
    mr_drive_alike("random().take(3).repeat(2)");
    char *all = mr_drive_show("random().take(1).repeat(2)");
    char *second = strchr(all, ' ');
    mr_check(second != NULL);
    *second = '\0';
    mr_eq_str(all, second + 1);
    free(all);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("random(seed=1).take(7)");
}
