/* SPDX-License-Identifier: Apache-2.0 */
/* What each replica gets: the tables and examples of docs/sharding.md. */
#include "tests/shard/steps.h"

enum { ALL = -1 };

typedef struct steps_case {
    int64_t replicas, workers, worker; /* ALL: all of them in one iterator */
    mr_shard_policy policy;            /* MR_N_SHARD_POLICIES: the graph's */
    bool from_function;
    const char *expr, *want;
} steps_case;

#define OPTION MR_N_SHARD_POLICIES

static mr_distribute_opts opts_of(const steps_case *c)
{
    return (mr_distribute_opts){.num_workers = c->workers,
                                .worker = c->worker == ALL ? 0 : c->worker,
                                .num_local_workers = c->worker == ALL ? c->workers : 1,
                                .replicas = c->replicas,
                                .policy = c->policy == OPTION ? MR_SHARD_AUTO : c->policy,
                                .has_policy = c->policy != OPTION};
}

static void check_cases(const steps_case *cases, size_t n)
{
    static steps_text t;
    for (size_t i = 0; i < n; i++) {
        const steps_case *c = &cases[i];
        mr_status st;
        mr_distribute_opts o = opts_of(c);
        mr_test_context("%s, %" PRId64 " x %" PRId64 ", worker %" PRId64, c->expr, c->workers,
                        c->replicas, c->worker);
        mr_code rc = steps_of(c->expr, c->from_function, &o, -1, &t, &st);
        mr_code_is(rc, MR_END, &st);
        mr_eq_str(t.v, c->want);
    }
}
#define CHECK(cases) check_cases(cases, sizeof cases / sizeof *cases)

MR_TEST(each_batch_is_cut_into_equal_slices)
{
    static const steps_case cases[] = {
        {2, 1, ALL, OPTION, false, "range(6).batch(4)", "[0,1] [2,3]\n[4] [5]\n"},
        {5, 1, ALL, OPTION, false, "range(4).batch(4)", "[0] [1] [2] [3] []\n"},
        {4, 1, ALL, OPTION, false, "range(6).batch(6)", "[0,1] [2,3] [4,5] []\n"},
        {3, 1, ALL, OPTION, false, "range(4).batch(4)", "[0,1] [2,3] []\n"},
        {4, 1, ALL, OPTION, false, "range(2).batch(2)", "[0] [1] [] []\n"},
        {5, 1, ALL, OPTION, false, "range(12).batch(12)", "[0,1,2] [3,4,5] [6,7,8] [9,10,11] []\n"},
        {3, 1, ALL, OPTION, false, "range(10).batch(5)", "[0,1] [2,3] [4]\n[5,6] [7,8] [9]\n"},
        {4, 1, ALL, OPTION, false, "range(9).batch(4)",
         "[0] [1] [2] [3]\n[4] [5] [6] [7]\n[8] [] [] []\n"},
        {2, 1, ALL, OPTION, false, "range(6).batch(4, drop_remainder=true)", "[0,1] [2,3]\n"},
        {1, 1, ALL, OPTION, false, "range(3)", "0\n1\n2\n"},
        {1, 1, ALL, OPTION, false, "range(0)", ""},
        {2, 1, ALL, OPTION, false, "range(0).batch(4)", ""}};
    CHECK(cases);
}

MR_TEST(one_rule_for_every_policy)
{
    static const char want[] = "[0,1] [2,3] []\n[4,5] [6,7] []\n";
    for (int p = 0; p < MR_N_SHARD_POLICIES; p++) {
        const steps_case c = {3, 1, ALL, (mr_shard_policy)p, false, "range(8).batch(4)", want};
        check_cases(&c, 1);
    }
}

MR_TEST(components_are_cut_alike_and_keep_their_structure)
{
    static const steps_case cases[] = {
        {4, 1, ALL, OPTION, false, "range(6).enumerate().batch(6)",
         "[0,1]:[0,1] [2,3]:[2,3] [4,5]:[4,5] []:[]\n"},
        {2, 1, ALL, OPTION, false, "from_tensors([1.0], [2.0]).repeat(3).batch(4)",
         "[[1],[1]]:[[2],[2]] [[1]]:[[2]]\n"},
        {4, 1, ALL, OPTION, false, "from_tensor_slices([[1, 2, 3, 4], [5, 6, 7, 8]])",
         "[1] [2] [3] [4]\n[5] [6] [7] [8]\n"}};
    CHECK(cases);
}

MR_TEST(data_deals_the_slices_of_each_batch_to_the_workers)
{
    static const steps_case cases[] = {
        {2, 2, 0, MR_SHARD_DATA, false, "range(16).batch(8)", "[0,1] [4,5]\n[8,9] [12,13]\n"},
        {2, 2, 1, MR_SHARD_DATA, false, "range(16).batch(8)", "[2,3] [6,7]\n[10,11] [14,15]\n"},
        {2, 2, ALL, MR_SHARD_DATA, false, "range(16).batch(8)",
         "[0,1] [4,5] [2,3] [6,7]\n[8,9] [12,13] [10,11] [14,15]\n"},
        {1, 2, 0, OPTION, false, "range(12).batch(4)", "[0,1]\n[4,5]\n[8,9]\n"},
        {1, 2, 1, OPTION, false, "range(12).batch(4)", "[2,3]\n[6,7]\n[10,11]\n"},
        {1, 3, 2, MR_SHARD_DATA, false, "range(7).batch(6)", "[4,5]\n[]\n"}};
    CHECK(cases);
}

MR_TEST(off_gives_everything_to_every_worker)
{
    static const steps_case cases[] = {
        {1, 2, 0, OPTION, false, "range(12).batch(8).with_options(auto_shard_policy=\"OFF\")",
         "[0,1,2,3]\n[4,5,6,7]\n[8,9]\n[10,11]\n"},
        {1, 2, 1, MR_SHARD_OFF, false, "range(12).batch(8)",
         "[0,1,2,3]\n[4,5,6,7]\n[8,9]\n[10,11]\n"}};
    CHECK(cases);
}

MR_TEST(files_are_dealt_to_the_workers)
{
    static const steps_case cases[] = {
        {1, 2, 0, MR_SHARD_FILE, false, "tfrecord([\"f0\", \"f1\"]).batch(4)",
         "[0,1]\n[2,3]\n[4]\n[5]\n"},
        {1, 2, 1, OPTION, false, "tfrecord([\"f0\", \"f1\"]).batch(4)",
         "[6,7]\n[8,9]\n[10]\n[11]\n"},
        {1, 2, 1, OPTION, false, "tfrecord(\"f*\").batch(4)", "[6,7]\n[8,9]\n[10]\n[11]\n"},
        {1, 2, 1, MR_SHARD_FILE, false, "list_files(\"f*\").flat_map(f => tfrecord(f)).batch(4)",
         "[6,7]\n[8,9]\n[10]\n[11]\n"},
        {1, 2, 0, MR_SHARD_FILE, false,
         "list_files(\"f*\").interleave(tfrecord, cycle_length=1).batch(4)",
         "[0,1]\n[2,3]\n[4]\n[5]\n"},
        {1, 2, 1, OPTION, false,
         "tfrecord([\"f0\", \"f1\"]).batch(4).with_options(auto_shard_policy=\"FILE\")",
         "[6,7]\n[8,9]\n[10]\n[11]\n"},
        {1, 2, ALL, MR_SHARD_FILE, false, "tfrecord([\"f0\", \"f1\"]).batch(4)",
         "[0,1] [6,7]\n[2,3] [8,9]\n[4] [10]\n[5] [11]\n"}};
    steps_files(2, (const int[]){6, 6});
    CHECK(cases);
}

MR_TEST(shard_interacts_with_repeat_take_and_interleave)
{
    static const steps_case cases[] = {
        /* the repeated list alternates between the workers */
        {1, 2, 0, MR_SHARD_FILE, false, "list_files(\"f*\").repeat(2).flat_map(tfrecord).batch(3)",
         "[0,1]\n[2]\n[6,7]\n[8]\n[3,4]\n[5]\n"},
        {1, 2, 1, MR_SHARD_FILE, false, "list_files(\"f*\").repeat(2).flat_map(tfrecord).batch(3)",
         "[3,4]\n[5]\n[0,1]\n[2]\n[6,7]\n[8]\n"},
        /* repeat after the reader repeats the worker's own files */
        {1, 2, 1, MR_SHARD_FILE, false, "list_files(\"f*\").flat_map(tfrecord).repeat(2).batch(3)",
         "[3,4]\n[5]\n[3,4]\n[5]\n_[]\n_[]\n_[]\n_[]\n"},
        /* take counts the worker's records, under DATA those of all */
        {1, 2, 0, MR_SHARD_FILE, false, "list_files(\"f*\").flat_map(tfrecord).take(2).batch(2)",
         "[0]\n[1]\n"},
        {1, 2, 0, MR_SHARD_DATA, false, "list_files(\"f*\").flat_map(tfrecord).take(2).batch(2)",
         "[0]\n"},
        {1, 2, 0, MR_SHARD_FILE, false,
         "list_files(\"f*\").interleave(tfrecord, cycle_length=3).batch(2)",
         "[0]\n[6]\n[1]\n[7]\n[2]\n[8]\n"},
        /* a shard of the user's multiplies */
        {1, 2, ALL, MR_SHARD_FILE, false,
         "list_files(\"f*\").shard(2, 0).flat_map(tfrecord).batch(3)", "[0,1] [6,7]\n[2] [8]\n"}};
    steps_files(3, (const int[]){3, 3, 3});
    CHECK(cases);
}

MR_TEST(every_worker_takes_as_many_steps_as_the_longest)
{
    static const steps_case cases[] = {
        {1, 2, 1, MR_SHARD_FILE, false, "tfrecord([\"f0\", \"f1\"]).batch(2)",
         "[1]\n[2]\n[3]\n[4]\n[5]\n[]\n"},
        {1, 2, 0, MR_SHARD_FILE, false, "tfrecord([\"f0\", \"f1\"]).batch(2)",
         "[0]\n[]\n_[]\n_[]\n_[]\n_[]\n"},
        {1, 2, ALL, MR_SHARD_FILE, false, "tfrecord([\"f0\", \"f1\"]).batch(2)",
         "[0] [1]\n[] [2]\n_[] [3]\n_[] [4]\n_[] [5]\n_[] []\n"}};
    steps_files(2, (const int[]){1, 5});
    CHECK(cases);
}

MR_TEST(user_functions_behind_a_reader_do_not_stop_sharding_by_file)
{
    static const steps_case cases[] = {
        {1, 2, 1, MR_SHARD_FILE, false,
         "tfrecord([\"f0\", \"f1\"]).map(x => x).flat_map(x => from_tensors(x)).batch(4)",
         "[4,5]\n[6,7]\n"}};
    steps_files(2, (const int[]){4, 4});
    CHECK(cases);
}

MR_TEST(input_functions_batch_and_shard_by_their_context)
{
    static const steps_case cases[] = {
        {2, 1, ALL, OPTION, true, "range(10).batch(2, drop_remainder=true)",
         "[0,1] [2,3]\n[4,5] [6,7]\n[8,9] _[]\n"},
        {2, 1, ALL, OPTION, true, "range(3)", "0 1\n2 _0\n"},
        {4, 1, ALL, OPTION, true,
         "from_tensor_slices([\"a\", \"c\", \"e\"]).repeat(2).batch(per_replica_batch_size(4))"
         ".shard(num_input_pipelines, input_pipeline_id)",
         "[a] [c] [e] [a]\n[c] [e] _[] _[]\n"},
        {1, 2, 1, OPTION, true,
         "range(6).shard(num_input_pipelines, input_pipeline_id)"
         ".batch(per_replica_batch_size(4))",
         "[1,3]\n[5]\n"},
        /* the other worker has more */
        {1, 2, 0, OPTION, true, "range(2 + 3 * input_pipeline_id).batch(2)", "[0,1]\n_[]\n_[]\n"},
        {2, 2, ALL, OPTION, true, "range(num_replicas_in_sync * 2).batch(2)",
         "[0,1] [2,3] [0,1] [2,3]\n[4,5] [6,7] [4,5] [6,7]\n"}};
    CHECK(cases);
}

MR_TEST(own_infinite_stream_needs_no_peer)
{
    static steps_text t;
    mr_status st;
    const mr_distribute_opts o = {.num_workers = 2, .replicas = 1};
    mr_ok(steps_of("range(3).repeat(-1 if input_pipeline_id == 0 else 1).batch(2)", true, &o, 4, &t,
                   &st),
          &st);
    mr_eq_str(t.v, "[0,1]\n[2,0]\n[1,2]\n[0,1]\n");
}

/* ---- errors ---- */

static mr_code distribute(const char *expr, const mr_distribute_opts *o, mr_status *st)
{
    mr_dataset *ds = mr_test_graph(expr);
    mr_dist_dataset *dd = NULL;
    mr_code rc = mr_distribute_dataset(ds, o, &dd, st);
    mr_dataset_unref(ds);
    mr_dist_dataset_free(dd);
    return rc;
}

MR_TEST(too_few_files_is_an_error_on_every_worker)
{
    static steps_text t;
    steps_files(2, (const int[]){6, 6});
    for (int64_t worker = 0; worker < 3; worker++) {
        mr_status st;
        const mr_distribute_opts o = {.num_workers = 3, .worker = worker};
        mr_code_is(steps_of("tfrecord([\"f0\", \"f1\"]).batch(6)", false, &o, -1, &t, &st),
                   MR_INVALID_ARGUMENT, &st);
        mr_eq_str(t.v, "error");
        mr_has_str(st.message, "2");
        mr_has_str(st.message, "3");
        mr_has_str(st.message, "file");
        mr_has_str(st.message, "worker");
        mr_has_str(st.message, "DATA");
        mr_has_str(st.message, "OFF");
    }
}

MR_TEST(no_file_at_all_is_the_end)
{
    static steps_text t;
    mr_status st;
    const mr_distribute_opts o = {.num_workers = 2, .policy = MR_SHARD_FILE, .has_policy = true};
    steps_files(1, (const int[]){1});
    mr_code_is(
        steps_of("list_files(\"f0\").take(0).flat_map(tfrecord).batch(2)", false, &o, -1, &t, &st),
        MR_END, &st);
    mr_eq_str(t.v, "");
}

MR_TEST(unbatched_is_a_distribution_error)
{
    mr_status st;
    const mr_distribute_opts two = {.replicas = 2}, one = {.replicas = 1};
    mr_code_is(distribute("range(3)", &two, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "batch the dataset first");
    mr_code_is(distribute("zip(range(3).batch(2), range(3))", &two, &st), MR_FAILED_PRECONDITION,
               &st);
    mr_has_str(st.message, "'1'");
    mr_ok(distribute("range(3)", &one, &st), &st);
}

MR_TEST(file_without_files_is_a_distribution_error)
{
    mr_status st;
    mr_distribute_opts o = {.num_workers = 2, .policy = MR_SHARD_FILE, .has_policy = true};
    mr_code_is(distribute("range(3).batch(2)", &o, &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "'range'");
    mr_eq_str(st.op, "prefetch/replica_slices/batch/range");
    o.num_workers = 1;
    mr_ok(distribute("range(3).batch(2)", &o, &st), &st);
}

MR_TEST(indivisible_per_replica_batch_is_a_distribution_error)
{
    mr_status st;
    mr_dist_dataset *dd = NULL;
    const mr_distribute_opts o = {.replicas = 3};
    static const char expr[] = "range(9).batch(per_replica_batch_size(16))";
    mr_code_is(mr_distribute_from_text(expr, strlen(expr), &o, &dd, &st), MR_FAILED_PRECONDITION,
               &st);
    mr_has_str(st.message, "16");
    mr_has_str(st.message, "3");
}

MR_TEST(numbers_out_of_range_are_usage_errors)
{
    static const mr_distribute_opts bad[] = {
        {.num_workers = -1},
        {.num_workers = 2, .worker = 2},
        {.num_workers = 2, .worker = -1},
        {.replicas = -2},
        {.replicas = INT64_MAX},
        {.num_workers = INT64_MAX},
        {.num_workers = 2, .num_local_workers = 3},
        {.num_workers = 2, .worker = 1, .num_local_workers = 2},
        {.num_local_workers = -1},
        {.has_policy = true, .policy = MR_N_SHARD_POLICIES}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_status st;
        mr_test_context("case %zu", i);
        mr_code_is(distribute("range(3).batch(2)", &bad[i], &st), MR_INVALID_ARGUMENT, &st);
    }
}

MR_TEST(input_function_must_return_a_dataset)
{
    mr_status st;
    mr_dist_dataset *dd = NULL;
    static const char bad[] = "range(";
    mr_code_is(mr_distribute_from_text(bad, strlen(bad), NULL, &dd, &st), MR_INVALID_ARGUMENT, &st);
}

/* ---- what it is ---- */

static void check_spec(const char *expr, int64_t replicas, bool from_function, const char *want)
{
    mr_status st;
    mr_dist_dataset *dd = NULL;
    char text[128];
    const mr_distribute_opts o = {.replicas = replicas};
    mr_test_context("%s", expr);
    if (from_function)
        mr_ok(mr_distribute_from_text(expr, strlen(expr), &o, &dd, &st), &st);
    else {
        mr_dataset *ds = mr_test_graph(expr);
        mr_ok(mr_distribute_dataset(ds, &o, &dd, &st), &st);
        mr_dataset_unref(ds);
    }
    mr_spec_format(mr_dist_dataset_spec(dd), text, sizeof text);
    mr_eq_str(text, want);
    mr_dist_dataset_free(dd);
}

MR_TEST(batch_dimension_is_unknown_unless_the_data_never_end)
{
    check_spec("from_tensors([1.0], [1.0]).repeat(100).batch(16, drop_remainder=true)", 2, false,
               "(float32[?, 1], float32[?, 1])");
    check_spec("from_tensors([1.0]).repeat().batch(16, drop_remainder=true)", 2, false,
               "float32[8, 1]");
    check_spec("range(10).batch(2, drop_remainder=true)", 2, true, "int64[?]");
    check_spec("range(10)", 2, true, "int64[]");
}

static int64_t cardinality_of(const char *expr, const mr_distribute_opts *o)
{
    mr_status st;
    mr_dist_dataset *dd = NULL;
    mr_dataset *ds = mr_test_graph(expr);
    mr_ok(mr_distribute_dataset(ds, o, &dd, &st), &st);
    int64_t n = mr_dist_dataset_cardinality(dd);
    mr_dataset_unref(ds);
    mr_dist_dataset_free(dd);
    return n;
}

MR_TEST(cardinality_counts_steps)
{
    mr_distribute_opts o = {.num_workers = 2, .replicas = 2, .has_policy = true};
    o.policy = MR_SHARD_DATA;
    mr_eq_i64(cardinality_of("range(20).batch(8)", &o), 3);
    o.policy = MR_SHARD_OFF;
    mr_eq_i64(cardinality_of("range(20).batch(8)", &o), 6);
    mr_eq_i64(cardinality_of("range(20).repeat().batch(8)", &o), MR_INFINITE);
}

/* Rows of R replicas of each of W workers, in the workers' order, and the numbers that they get. */
static void check_numbers(const char *expr, const mr_distribute_opts *o, const int64_t *rows,
                          const int64_t *want, size_t n)
{
    mr_status st;
    mr_dist_dataset *dd = NULL;
    mr_dataset *ds = mr_test_graph(expr);
    int64_t first[8], all = 0;
    mr_check(n <= 8);
    mr_ok(mr_distribute_dataset(ds, o, &dd, &st), &st);
    for (size_t i = 0; i < n; i++)
        all += rows[i];
    mr_eq_i64(mr_dist_dataset_number_rows(dd, rows, first), all);
    mr_eq_mem(first, want, n * sizeof *want);
    mr_dataset_unref(ds);
    mr_dist_dataset_free(dd);
}

MR_TEST(rows_are_numbered_as_in_the_global_batch)
{
    static const int64_t rows[] = {2, 2, 2, 1, 2, 0}, one[] = {2, 2, 1};
    static const int64_t dealt[] = {0, 3, 7, 2, 5, 9}, apart[] = {0, 2, 4, 6, 7, 9};
    mr_distribute_opts o = {
        .num_workers = 2, .replicas = 3, .has_policy = true, .policy = MR_SHARD_DATA};
    check_numbers("range(20).batch(10)", &o, rows, dealt, 6);
    o.policy = MR_SHARD_OFF;
    check_numbers("range(20).batch(10)", &o, rows, apart, 6);
    o = (mr_distribute_opts){.num_workers = 1, .replicas = 3};
    check_numbers("range(20).batch(5)", &o, one, (const int64_t[]){0, 2, 4}, 3);
}

/* The numbers are those of the rows themselves, in whichever process they are. */
MR_TEST(the_number_of_a_row_is_its_place_in_the_batch)
{
    static const int64_t shapes[][2] = {{1, 4}, {2, 2}, {4, 1}, {2, 3}, {3, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int64_t size = 1; size <= 9; size++) {
            mr_status st;
            mr_dist_dataset *dd = NULL;
            mr_dist_iterator *it = NULL;
            mr_step step;
            char text[64];
            int64_t rows[8] = {0}, first[8];
            snprintf(text, sizeof text, "range(20).batch(%d)", (int)size);
            mr_test_context("%s, %d x %d", text, (int)shapes[i][0], (int)shapes[i][1]);
            const mr_distribute_opts o = {.num_workers = shapes[i][0],
                                          .num_local_workers = shapes[i][0],
                                          .replicas = shapes[i][1],
                                          .has_policy = true,
                                          .policy = MR_SHARD_DATA};
            mr_dataset *ds = mr_test_graph(text);
            mr_ok(mr_distribute_dataset(ds, &o, &dd, &st), &st);
            mr_ok(mr_dist_iterator_open(&it, dd, NULL, &st), &st);
            for (int64_t begin = 0; begin < 20; begin += size) {
                mr_ok(mr_dist_iterator_next(it, NULL, &step, &st), &st);
                for (size_t r = 0; r < step.n_replicas; r++)
                    rows[r] = step.replicas[r].columns[0].shape[0];
                int64_t all = mr_dist_dataset_number_rows(dd, rows, first);
                mr_eq_i64(all, begin + size <= 20 ? size : 20 - begin);
                for (size_t r = 0; r < step.n_replicas; r++)
                    if (rows[r])
                        mr_eq_i64(*(const int64_t *)step.replicas[r].columns[0].data,
                                  begin + first[r]);
            }
            mr_dist_iterator_close(it);
            mr_dataset_unref(ds);
            mr_dist_dataset_free(dd);
        }
}

MR_TEST(cluster_gives_workers_and_rank)
{
    mr_status st;
    mr_cluster c = {0};
    mr_dist_dataset *dd = NULL;
    mr_ok(mr_cluster_add(&c, MR_TASK_WORKER, "a:1", &st), &st);
    mr_ok(mr_cluster_add(&c, MR_TASK_WORKER, "b:1", &st), &st);
    mr_ok(mr_cluster_set_task(&c, MR_TASK_WORKER, 1, &st), &st);
    const mr_distribute_opts o = {.cluster = &c, .replicas = 3};
    mr_dataset *ds = mr_test_graph("range(20).batch(12)");
    mr_ok(mr_distribute_dataset(ds, &o, &dd, &st), &st);
    mr_eq_i64(mr_dist_dataset_num_workers(dd), 2);
    mr_eq_i64(mr_dist_dataset_worker(dd), 1);
    mr_eq_i64(mr_dist_dataset_num_replicas_in_sync(dd), 6);
    mr_check(mr_dist_dataset_policy(dd) == MR_SHARD_DATA);
    mr_dataset_unref(ds);
    mr_dist_dataset_free(dd);
    mr_cluster_reset(&c);
}
