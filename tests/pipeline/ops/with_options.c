/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"

MR_TEST(hands_everything_on)
{
    mr_drive("range(3).with_options(auto_shard_policy=\"DATA\", deterministic=true)", "0 1 2");
    mr_drive_count("range(3).with_options()", 3);
    mr_dataset_opts opts = {.auto_shard_policy = (char[]){"OFF"}, .deterministic = MR_YES};
    mr_drive_dataset(mr_with_options(mr_range(0, 2, 1), &opts), "0 1");
}

MR_TEST(bad_arguments_are_refused)
{
    mr_drive_bad("range(3).with_options(auto_shard_policy=\"SOME\")", "AUTO");
    mr_drive_bad("range(3).with_options(deterministic=1)", "deterministic");
}
