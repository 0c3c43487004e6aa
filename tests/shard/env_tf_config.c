/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/alloc.h"
#include "shard/cluster/cluster.h"
#include "tests/fault.h"
#include "tests/harness.h"

#include <stdlib.h>
#include <string.h>

MR_ONE_THREAD;

static const char two_workers[] =
    "{\"cluster\": {\"chief\": [\"a:1\"], \"worker\": [\"b:1\", \"c:1\"], \"ps\": [\"d:1\"]},"
    " \"task\": {\"type\": \"worker\", \"index\": 1}, \"rpc_layer\": \"grpc\"}";

MR_TEST(cluster_and_task_are_read)
{
    mr_status st;
    mr_cluster c = {0};
    int64_t rank;
    mr_ok(mr_cluster_from_tf_config(&c, two_workers, strlen(two_workers), &st), &st);
    mr_eq_i64(mr_cluster_num_workers(&c), 3);
    mr_ok(mr_cluster_worker(&c, &rank, &st), &st);
    mr_eq_i64(rank, 2);
    mr_eq_str(c.tasks[MR_TASK_WORKER].addresses[1], "c:1");
    mr_eq_str(c.tasks[MR_TASK_PS].addresses[0], "d:1");
    mr_cluster_reset(&c);
}

MR_TEST(no_cluster_is_a_process_alone)
{
    static const char *const texts[] = {"", "{}", "{\"cluster\": {}}",
                                        "{\"task\": {\"type\": \"worker\", \"index\": 0}}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mr_status st;
        mr_cluster c = {0};
        mr_test_context("%s", texts[i]);
        mr_ok(mr_cluster_from_tf_config(&c, texts[i], strlen(texts[i]), &st), &st);
        mr_eq_i64(mr_cluster_num_workers(&c), 1);
        mr_cluster_reset(&c);
    }
}

MR_TEST(bad_descriptions_are_told_clearly)
{
    static const char *const cases[][2] = {
        {"{", "not JSON: line 1"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}", "not JSON"},
        {"{\"cluster\": {}, \"cluster\": {}}", "not JSON"},
        {"[]", "must be an object"},
        {"{\"cluster\": 3}", "cluster must be an object"},
        {"{\"cluster\": null}", "not null"},
        {"{\"cluster\": {\"worker\": \"a:1\"}}", "must be a list"},
        {"{\"cluster\": {\"worker\": [1]}}", "cluster.worker[0] must be a string"},
        {"{\"cluster\": {\"worker\": [\"a:1\", \"\"]}}", "cluster.worker[1] is empty"},
        {"{\"cluster\": {\"worker\": [\"a:1\", \"b:1\", \"a:1\"]}, \"task\": {\"type\": "
         "\"worker\", "
         "\"index\": 1}}",
         "cluster.worker[0] and cluster.worker[2] have the same address, a:1"},
        {"{\"cluster\": {\"ps\": [\"b:1\"], \"worker\": [\"b:1\"]}}",
         "cluster.worker[0] and cluster.ps[0] have the same address"},
        {"{\"cluster\": {\"boss\": [\"a:1\"]}}", "unknown task type 'boss'"},
        {"{\"cluster\": {\"master\": [\"a:1\"]}}", "master is now called chief"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}}", "no task"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": 1}", "task must be an object"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"index\": 0}}",
         "task.type is missing"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\"}}",
         "task.index is missing"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": 1, \"index\": 0}}",
         "task.type must be a string"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", \"index\": "
         "\"0\"}}",
         "task.index must be an integer, not a string"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 0.5}}",
         "a number with a fraction"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}",
         "index 1 is out of range"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", \"index\": -1}}",
         "out of range"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\","
         " \"index\": 9223372036854775807}}",
         "out of range"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"chief\", \"index\": 0}}",
         "the cluster has no chief"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"king\", \"index\": 0}}",
         "unknown task type 'king'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_status st;
        mr_cluster c = {0};
        mr_test_context("%s", cases[i][0]);
        mr_code_is(mr_cluster_from_tf_config(&c, cases[i][0], strlen(cases[i][0]), &st),
                   MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i][1]);
        mr_has_str(st.message, "TF_CONFIG");
        mr_eq_u64(c.tasks[MR_TASK_WORKER].n, 0);
    }
}

MR_TEST(deep_nesting_is_an_error)
{
    enum { DEPTH = 100000 };
    char *text = mr_malloc(DEPTH);
    mr_status st;
    mr_cluster c = {0};
    memset(text, '[', DEPTH);
    mr_code_is(mr_cluster_from_tf_config(&c, text, DEPTH, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "not JSON");
    mr_free(text);
}

MR_TEST(environment_is_read)
{
    mr_status st;
    mr_cluster c = {0};
    unsetenv("TF_CONFIG");
    mr_ok(mr_cluster_from_env(&c, &st), &st);
    mr_eq_i64(mr_cluster_num_workers(&c), 1);
    setenv("TF_CONFIG", two_workers, 1);
    mr_ok(mr_cluster_from_env(&c, &st), &st);
    mr_eq_i64(mr_cluster_num_workers(&c), 3);
    mr_cluster_reset(&c);
    unsetenv("TF_CONFIG");
}

MR_TEST(allocation_failures_are_reported)
{
    mr_fault_each_allocation(n)
    {
        mr_status st;
        mr_cluster c = {0};
        mr_fault_expect(mr_cluster_from_tf_config(&c, two_workers, strlen(two_workers), &st), &st);
        mr_cluster_reset(&c);
    }
}
