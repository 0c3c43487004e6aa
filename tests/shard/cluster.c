/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness.h"
#include "shard/cluster/cluster.h"

#include <stdio.h>

MR_ONE_THREAD;

static void add(mr_cluster *c, mr_task_type type, int n)
{
    mr_status st;
    char address[32];
    for (int i = 0; i < n; i++) {
        snprintf(address, sizeof address, "%s%d:1", mr_task_type_name(type), i);
        mr_ok(mr_cluster_add(c, type, address, &st), &st);
    }
}

static int64_t rank_of(mr_cluster *c, mr_task_type type, int64_t index)
{
    mr_status st;
    int64_t rank = -1;
    mr_ok(mr_cluster_set_task(c, type, index, &st), &st);
    mr_ok(mr_cluster_worker(c, &rank, &st), &st);
    return rank;
}

MR_TEST(chief_comes_first_then_workers)
{
    mr_cluster c = {0};
    add(&c, MR_TASK_CHIEF, 1);
    add(&c, MR_TASK_WORKER, 3);
    add(&c, MR_TASK_PS, 2);
    mr_eq_i64(rank_of(&c, MR_TASK_CHIEF, 0), 0);
    mr_check(mr_cluster_is_chief(&c));
    mr_eq_i64(rank_of(&c, MR_TASK_WORKER, 0), 1);
    mr_check(!mr_cluster_is_chief(&c));
    mr_eq_i64(rank_of(&c, MR_TASK_WORKER, 2), 3);
    mr_eq_i64(mr_cluster_num_workers(&c), 4);
    mr_cluster_reset(&c);
}

MR_TEST(worker_0_is_chief_where_none_is_named)
{
    mr_cluster c = {0};
    add(&c, MR_TASK_WORKER, 2);
    mr_eq_i64(rank_of(&c, MR_TASK_WORKER, 0), 0);
    mr_check(mr_cluster_is_chief(&c));
    mr_eq_i64(rank_of(&c, MR_TASK_WORKER, 1), 1);
    mr_check(!mr_cluster_is_chief(&c));
    mr_cluster_reset(&c);
}

MR_TEST(evaluator_is_a_job_of_its_own)
{
    mr_cluster c = {0};
    add(&c, MR_TASK_WORKER, 2);
    mr_eq_i64(rank_of(&c, MR_TASK_EVALUATOR, 0), 0);
    mr_eq_i64(mr_cluster_num_workers(&c), 1);
    mr_check(mr_cluster_is_chief(&c));
    mr_cluster_reset(&c);
}

MR_TEST(parameter_server_makes_no_input)
{
    mr_status st;
    int64_t rank = 7;
    mr_cluster c = {0};
    add(&c, MR_TASK_WORKER, 2);
    add(&c, MR_TASK_PS, 1);
    mr_ok(mr_cluster_set_task(&c, MR_TASK_PS, 0, &st), &st);
    mr_code_is(mr_cluster_worker(&c, &rank, &st), MR_FAILED_PRECONDITION, &st);
    mr_eq_i64(rank, 7);
    mr_has_str(st.message, "ps 0");
    mr_cluster_reset(&c);
}

MR_TEST(nobody_described_is_a_process_alone)
{
    mr_status st;
    int64_t rank = -1;
    mr_cluster c = {0};
    mr_eq_i64(mr_cluster_num_workers(&c), 1);
    mr_ok(mr_cluster_worker(&c, &rank, &st), &st);
    mr_eq_i64(rank, 0);
    mr_check(mr_cluster_is_chief(&c));
}

MR_TEST(task_must_be_in_the_cluster)
{
    mr_status st;
    mr_cluster c = {0};
    add(&c, MR_TASK_WORKER, 2);
    mr_code_is(mr_cluster_set_task(&c, MR_TASK_WORKER, 2, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "index 2");
    mr_has_str(st.message, "2 worker");
    mr_code_is(mr_cluster_set_task(&c, MR_TASK_WORKER, -1, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_cluster_set_task(&c, MR_TASK_CHIEF, 0, &st), MR_INVALID_ARGUMENT, &st);
    add(&c, MR_TASK_CHIEF, 2);
    mr_code_is(mr_cluster_set_task(&c, MR_TASK_CHIEF, 0, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "at most one chief");
    mr_cluster_reset(&c);
}

MR_TEST(hash_is_the_same_on_every_worker_and_differs_between_clusters)
{
    mr_cluster a = {0}, b = {0};
    add(&a, MR_TASK_WORKER, 2);
    add(&b, MR_TASK_WORKER, 3);
    (void)rank_of(&a, MR_TASK_WORKER, 0);
    uint64_t h = mr_cluster_hash(&a);
    (void)rank_of(&a, MR_TASK_WORKER, 1);
    mr_eq_u64(mr_cluster_hash(&a), h);
    mr_check(mr_cluster_hash(&b) != h);
    mr_cluster_reset(&a);
    mr_cluster_reset(&b);
}

MR_TEST(a_task_needs_a_type_and_an_address)
{
    mr_cluster c = {0};
    mr_status st;
    mr_code_is(mr_cluster_add(&c, (mr_task_type)77, "a:1", &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_cluster_add(&c, MR_TASK_WORKER, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "a type of mr_task_type and an address");
    mr_cluster_reset(&c);
}
