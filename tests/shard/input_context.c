/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/distribute/input_context.h"
#include "tests/harness.h"

MR_ONE_THREAD;

MR_TEST(per_replica_batch_size_divides)
{
    mr_status st;
    int64_t size = -1;
    const mr_input_context c = {2, 1, 4};
    mr_ok(mr_input_context_get_per_replica_batch_size(&c, 16, &size, &st), &st);
    mr_eq_i64(size, 4);
}

MR_TEST(indivisible_batch_names_both_numbers)
{
    mr_status st;
    int64_t size = -1;
    const mr_input_context c = {1, 0, 3};
    mr_code_is(mr_input_context_get_per_replica_batch_size(&c, 16, &size, &st),
               MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "16");
    mr_has_str(st.message, "3 replicas");
    mr_eq_i64(size, -1);
}

MR_TEST(fields_are_checked)
{
    mr_status st;
    const mr_input_context good = MR_INPUT_CONTEXT_ALONE;
    const mr_input_context bad[] = {{0, 0, 1}, {2, 2, 2}, {2, -1, 2}, {1, 0, 0}};
    mr_ok(mr_input_context_check(&good, &st), &st);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        mr_code_is(mr_input_context_check(&bad[i], &st), MR_INVALID_ARGUMENT, &st);
}

MR_TEST(names_and_function_for_text)
{
    mr_status st;
    mr_input_env e;
    const mr_input_context c = {3, 2, 6};
    mr_input_env_init(&e, &c);
    mr_eq_u64(e.env.n, 3);
    mr_eq_str(e.env.names[0], "num_input_pipelines");
    mr_eq_i64(e.env.values[0].i, 3);
    mr_eq_str(e.env.names[1], "input_pipeline_id");
    mr_eq_i64(e.env.values[1].i, 2);
    mr_eq_str(e.env.names[2], "num_replicas_in_sync");
    mr_eq_i64(e.env.values[2].i, 6);

    mr_value size = {0}, args[2] = {{.kind = MR_V_INT, .i = 12}, {.kind = MR_V_FLOAT, .f = 1}};
    mr_ok(e.env.call(e.env.ctx, "per_replica_batch_size", args, 1, &size, &st), &st);
    mr_eq_i64(size.i, 2);
    mr_code_is(e.env.call(e.env.ctx, "per_replica_batch_size", args, 2, &size, &st),
               MR_INVALID_ARGUMENT, &st);
    mr_code_is(e.env.call(e.env.ctx, "per_replica_batch_size", args + 1, 1, &size, &st),
               MR_INVALID_ARGUMENT, &st);
    args[0].i = 13;
    mr_code_is(e.env.call(e.env.ctx, "per_replica_batch_size", args, 1, &size, &st),
               MR_FAILED_PRECONDITION, &st);
    mr_code_is(e.env.call(e.env.ctx, "other", args, 1, &size, &st), MR_NOT_FOUND, NULL);
}
