/* SPDX-License-Identifier: Apache-2.0 */
/* The rewrites: two expressions give one plan. */
#include "shard/passes/auto_shard.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "tests/draws.h"
#include "tests/fault.h"
#include "tests/harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

MR_ONE_THREAD;

/* ds is what `want` says, however either is written. */
static void check_text(mr_dataset *ds, const char *want)
{
    mr_status st;
    char *text = NULL, *canonical = NULL;
    mr_dataset *wanted = mr_test_graph(want);
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_ok(mr_dataset_to_text(wanted, &canonical, &st), &st);
    mr_eq_str(text, canonical);
    mr_free(text);
    mr_free(canonical);
    mr_dataset_unref(wanted);
}

/* Decisions as lines "what: detail". */
static const char *decisions(const mr_explanation *e)
{
    static char text[8192];
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i < e->n && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s: %s (%s)\n", e->v[i].what,
                              e->v[i].detail, e->v[i].op ? e->v[i].op : "");
    return text;
}

typedef struct plan {
    int64_t workers, index;
    mr_shard_policy policy, chosen;
    const char *before, *after;
    const char *why; /* part of the decisions; NULL: any */
} plan;

static void check_plans(const plan *plans, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const plan *p = &plans[i];
        const mr_auto_shard_opts o = {p->workers, p->index, 0, p->policy};
        mr_dataset *ds = mr_test_graph(p->before), *out = NULL;
        mr_explanation e = {0};
        mr_shard_policy chosen;
        mr_status st;
        mr_test_context("%s", p->before);
        mr_ok(mr_auto_shard(ds, &o, &out, &chosen, &e, &st), &st);
        check_text(out, p->after);
        mr_eq_str(mr_shard_policy_name(chosen), mr_shard_policy_name(p->chosen));
        if (p->why)
            mr_has_str(decisions(&e), p->why);
        check_text(ds, p->before);
        mr_explanation_reset(&e);
        mr_dataset_unref(out);
        mr_dataset_unref(ds);
    }
}
#define CHECK(plans) check_plans(plans, sizeof plans / sizeof *plans)

#define FILE_PLAN 2, 1, MR_SHARD_FILE, MR_SHARD_FILE
#define AUTO_FILE 2, 1, MR_SHARD_AUTO, MR_SHARD_FILE
#define AUTO_DATA 2, 1, MR_SHARD_AUTO, MR_SHARD_DATA
#define SHARD     ".shard(2, 1, require_non_empty=true)"

MR_TEST(file_shards_lists_of_readers)
{
    static const plan plans[] = {
        {FILE_PLAN, "text_line([\"a\", \"b\"]).batch(2)",
         "from_tensor_slices([\"a\", \"b\"])" SHARD ".flat_map(f => text_line(f)).batch(2)",
         "the list of files of text_line"},
        {FILE_PLAN, "text_line(\"*.txt\")",
         "list_files(\"*.txt\")" SHARD ".flat_map(f => text_line(f))", NULL},
        /* patterns are sorted, names stay in their order */
        {FILE_PLAN, "text_line([\"b\", \"a-*\", \"c\"])",
         "from_tensor_slices([\"b\"]).concatenate(list_files(\"a-*\"))"
         ".concatenate(from_tensor_slices([\"c\"]))" SHARD ".flat_map(f => text_line(f))",
         NULL},
        {FILE_PLAN, "tfrecord([\"a\", \"b\"], num_parallel_reads=2)",
         "from_tensor_slices([\"a\", \"b\"])" SHARD
         ".interleave(f => tfrecord(f), cycle_length=2, num_parallel_calls=2)",
         NULL},
        {AUTO_FILE, "tfrecord(\"a\").map(x => x).filter(x => true).repeat(2).take(3).skip(1)",
         "from_tensor_slices([\"a\"])" SHARD
         ".flat_map(f => tfrecord(f)).map(x => x).filter(x => true).repeat(2).take(3).skip(1)",
         "AUTO chose FILE"}};
    CHECK(plans);
}

MR_TEST(file_shards_the_input_of_functions_that_read)
{
    static const plan plans[] = {
        {FILE_PLAN, "list_files(\"f*\").flat_map(f => text_line(f)).batch(2)",
         "list_files(\"f*\")" SHARD ".flat_map(f => text_line(f)).batch(2)",
         "the input of flat_map"},
        {FILE_PLAN, "list_files(\"f*\").interleave(text_line)",
         "list_files(\"f*\")" SHARD ".interleave(text_line)", NULL},
        {FILE_PLAN, "list_files(\"f*\").map(f => text_line(f)).interleave(x => x)",
         "list_files(\"f*\")" SHARD ".map(f => text_line(f)).interleave(x => x)", "interleave/map"},
        /* nested in functions of the function */
        {FILE_PLAN,
         "range(3).flat_map(i => from_tensors(\"f\").flat_map(f => text_line(f).take(1)))",
         "range(3)" SHARD ".flat_map(i => from_tensors(\"f\").flat_map(f => text_line(f).take(1)))",
         NULL},
        {FILE_PLAN, "range(3).flat_map(i => from_tensors(\"f\").interleave(text_line))",
         "range(3)" SHARD ".flat_map(i => from_tensors(\"f\").interleave(text_line))", NULL},
        /* a parameter with the name of an op is not that op */
        {FILE_PLAN, "text_line([\"a\"]).flat_map(text_line => from_tensors(text_line)).batch(2)",
         "from_tensor_slices([\"a\"])" SHARD
         ".flat_map(f => text_line(f)).flat_map(text_line => from_tensors(text_line)).batch(2)",
         NULL}};
    CHECK(plans);
}

/* The elements are the files. */
MR_TEST(file_shards_images_where_they_are_read)
{
    static const plan plans[] = {
        {FILE_PLAN, "image_folder(\"d\").map(x => x[\"label\"]).batch(2)",
         "image_folder(\"d\")" SHARD ".map(x => x[\"label\"]).batch(2)",
         "what image_folder yields"},
        {AUTO_FILE, "zip(image_folder(\"d\").shuffle(9), text_line([\"a\"])).batch(2)",
         "zip(image_folder(\"d\")" SHARD ".shuffle(9), from_tensor_slices([\"a\"])" SHARD
         ".flat_map(f => text_line(f))).batch(2)",
         "AUTO chose FILE"}};
    CHECK(plans);
}

MR_TEST(file_walks_every_branch)
{
    static const plan plans[] = {
        {FILE_PLAN, "zip(text_line([\"a\"]), text_line([\"b\"])).batch(2)",
         "zip(from_tensor_slices([\"a\"])" SHARD ".flat_map(f => text_line(f)), "
         "from_tensor_slices([\"b\"])" SHARD ".flat_map(f => text_line(f))).batch(2)",
         "zip[1]/text_line"},
        {FILE_PLAN, "text_line([\"a\"]).concatenate(text_line([\"b\"]))",
         "from_tensor_slices([\"a\"])" SHARD ".flat_map(f => text_line(f)).concatenate("
         "from_tensor_slices([\"b\"])" SHARD ".flat_map(f => text_line(f)))",
         NULL}};
    CHECK(plans);
}

MR_TEST(auto_leaves_no_half_of_a_rewrite)
{
    static const plan plans[] = {
        {AUTO_DATA, "zip(text_line([\"a\"]), range(3))", "zip(text_line([\"a\"]), range(3))" SHARD,
         "stopped at 'range'"},
        {AUTO_DATA, "range(4).concatenate(text_line([\"a\"]).map(x => 1))",
         "range(4).concatenate(text_line([\"a\"]).map(x => 1))" SHARD, "concatenate[0]/range"},
        {AUTO_DATA, "text_line([\"a\"]).enumerate().batch(2)",
         "text_line([\"a\"]).enumerate().batch(2)" SHARD, "stopped at 'enumerate'"},
        {AUTO_DATA, "text_line([\"a\"]).ignore_errors()",
         "text_line([\"a\"]).ignore_errors()" SHARD, "stopped at 'ignore_errors'"},
        {AUTO_DATA, "list_files(\"f*\").map(x => x)", "list_files(\"f*\").map(x => x)" SHARD,
         "stopped at 'list_files'"}};
    CHECK(plans);
}

MR_TEST(assert_cardinality_is_dropped_by_file)
{
    static const plan plans[] = {{FILE_PLAN, "text_line([\"a\"]).assert_cardinality(3).batch(2)",
                                  "from_tensor_slices([\"a\"])" SHARD
                                  ".flat_map(f => text_line(f)).batch(2)",
                                  "warning: assert_cardinality is dropped"}};
    CHECK(plans);
}

MR_TEST(data_goes_before_trailing_prefetch_and_options)
{
    static const plan plans[] = {
        {2, 1, MR_SHARD_DATA, MR_SHARD_DATA, "range(9).batch(2).prefetch(3)",
         "range(9).batch(2)" SHARD ".prefetch(3)", "goes after batch"},
        {2, 1, MR_SHARD_DATA, MR_SHARD_DATA,
         "range(9).prefetch(1).batch(2).with_options(deterministic=true).prefetch(3)",
         "range(9).prefetch(1).batch(2)" SHARD ".with_options(deterministic=true).prefetch(3)",
         NULL},
        {1, 0, MR_SHARD_DATA, MR_SHARD_DATA, "range(9).batch(2)", "range(9).batch(2)", NULL}};
    CHECK(plans);
}

MR_TEST(data_warns_of_what_workers_may_see_differently)
{
    static const plan plans[] = {
        {2, 1, MR_SHARD_DATA, MR_SHARD_DATA,
         "range(9).map(x => x, num_parallel_calls=2, deterministic=false).batch(2)",
         "range(9).map(x => x, num_parallel_calls=2, deterministic=false).batch(2)" SHARD,
         "warning: map with deterministic=false"}};
    CHECK(plans);
}

MR_TEST(hint_replaces_hints_only)
{
    static const plan plans[] = {
        {2, 1, MR_SHARD_HINT, MR_SHARD_HINT, "range(9).shard(-1, 5).shard(3, 0).batch(2)",
         "range(9)" SHARD ".shard(3, 0).batch(2)", "the hint becomes shard(2, 1)"},
        {2, 1, MR_SHARD_HINT, MR_SHARD_HINT, "range(9).shard(1, 0)", "range(9).shard(1, 0)",
         "there is no shard(-1, i)"},
        {2, 1, MR_SHARD_OFF, MR_SHARD_OFF, "range(9).shard(-1, 5)", "range(9).shard(-1, 5)", NULL}};
    CHECK(plans);
}

MR_TEST(one_worker_reads_everything)
{
    static const plan plans[] = {
        {1, 0, MR_SHARD_FILE, MR_SHARD_FILE, "range(3)", "range(3)", NULL},
        {1, 0, MR_SHARD_AUTO, MR_SHARD_FILE, "text_line([\"a\"])", "text_line([\"a\"])", NULL},
        {1, 0, MR_SHARD_AUTO, MR_SHARD_DATA, "range(3)", "range(3)", "AUTO chose DATA"},
        {1, 0, MR_SHARD_AUTO, MR_SHARD_FILE,
         "list_files(\"f*\", shuffle=true, seed=5).flat_map(text_line)",
         "list_files(\"f*\", shuffle=true, seed=5).flat_map(text_line)", NULL},
        {1, 0, MR_SHARD_FILE, MR_SHARD_FILE,
         "list_files(\"f*\").shuffle(3, seed=1).repeat(2).flat_map(text_line)",
         "list_files(\"f*\").shuffle(3, seed=1).repeat(2).flat_map(text_line)", NULL}};
    CHECK(plans);
}

MR_TEST(shuffles_before_a_file_shard_move_behind_it)
{
    static const plan plans[] = {
        {FILE_PLAN, "list_files(\"f*\").shuffle(8, seed=3).flat_map(text_line)",
         "list_files(\"f*\")" SHARD ".shuffle(8, seed=3).flat_map(text_line)", "moves after it"},
        {FILE_PLAN,
         "list_files(\"f*\").shuffle(8, seed=3).repeat(2).shuffle(9).flat_map(text_line)",
         "list_files(\"f*\").repeat(2)" SHARD ".shuffle(8, seed=3).flat_map(text_line)",
         "become one"},
        {FILE_PLAN, "list_files(\"f*\", shuffle=true, seed=5).flat_map(text_line)",
         "list_files(\"f*\")" SHARD ".shuffle(-2, seed=5).flat_map(text_line)", NULL},
        {1, 0, MR_SHARD_AUTO, MR_SHARD_FILE,
         "list_files(\"f*\").shuffle(3, seed=1).repeat(2).flat_map(text_line)",
         "list_files(\"f*\").repeat(2).shuffle(3, seed=1).flat_map(text_line)", "moves after it"},
        {1, 0, MR_SHARD_AUTO, MR_SHARD_FILE,
         "list_files(\"f*\", shuffle=true, seed=5).take(2).flat_map(text_line)",
         "list_files(\"f*\").take(2).shuffle(-2, seed=5).flat_map(text_line)", NULL},
        {FILE_PLAN, "list_files(\"f*\").flat_map(text_line).shuffle(7)",
         "list_files(\"f*\")" SHARD ".flat_map(text_line).shuffle(7)", NULL},
        {2, 1, MR_SHARD_DATA, MR_SHARD_DATA, "range(5).shuffle(7).batch(2)",
         "range(5).shuffle(7).batch(2)" SHARD, NULL}};
    CHECK(plans);
}

MR_TEST(options_merge_along_the_chain)
{
    static const struct {
        const char *text;
        mr_shard_policy want;
    } cases[] = {{"range(3)", MR_SHARD_AUTO},
                 {"range(3).with_options(auto_shard_policy=\"DATA\").batch(2)", MR_SHARD_DATA},
                 {"range(3).with_options(auto_shard_policy=\"DATA\").batch(2)"
                  ".with_options(auto_shard_policy=\"OFF\")",
                  MR_SHARD_OFF},
                 {"range(3).with_options(auto_shard_policy=\"DATA\").batch(2)"
                  ".with_options(deterministic=false)",
                  MR_SHARD_DATA},
                 {"zip(range(3).with_options(auto_shard_policy=\"DATA\"),"
                  " range(3).with_options(auto_shard_policy=\"HINT\"))",
                  MR_SHARD_HINT},
                 {"range(3).flat_map(x => range(x).with_options(auto_shard_policy=\"OFF\"))",
                  MR_SHARD_AUTO}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_status st;
        mr_shard_policy got;
        mr_dataset *ds = mr_test_graph(cases[i].text);
        mr_test_context("%s", cases[i].text);
        mr_ok(mr_shard_policy_of(ds, &got, &st), &st);
        mr_eq_str(mr_shard_policy_name(got), mr_shard_policy_name(cases[i].want));
        mr_dataset_unref(ds);
    }
}

MR_TEST(random_ops_get_the_jobs_seed)
{
    mr_status st;
    mr_dataset *ds = mr_test_graph("range(9).shuffle(3).map(x => x).shuffle(4, seed=8).shuffle(5)");
    mr_dataset *a = NULL, *b = NULL, *c = NULL;
    char draws[3][256] = {"", "", ""}, *text;
    mr_explanation e = {0};
    mr_ok(mr_seed_random_ops(ds, 1, &a, &e, &st), &st);
    mr_ok(mr_seed_random_ops(a, 5, &b, NULL, &st), &st); /* has one already */
    mr_ok(mr_seed_random_ops(ds, 2, &c, NULL, &st), &st);
    mr_test_draws(a, draws[0], sizeof draws[0]);
    mr_test_draws(b, draws[1], sizeof draws[1]);
    mr_test_draws(c, draws[2], sizeof draws[2]);
    mr_eq_str(draws[0], draws[1]);
    mr_check(strcmp(draws[0], draws[2]) != 0);
    unsigned long long place[2], seed[2];
    mr_eq_i64(sscanf(draws[0], "shuffle:%llx:%llu shuffle:%llx:%llu", &place[0], &seed[0],
                     &place[1], &seed[1]),
              4);
    mr_check(seed[0] == 1 && seed[1] == 1 && place[0] != place[1]);
    mr_ok(mr_dataset_to_text(a, &text, &st), &st);
    mr_eq_str(text, "range(9).shuffle(3).map(x => x).shuffle(4, seed=8).shuffle(5)");
    mr_free(text);
    mr_eq_u64(e.n, 2);
    mr_has_str(decisions(&e), "the job's seed 1");
    mr_explanation_reset(&e);
    mr_dataset_unref(a);
    mr_dataset_unref(b);
    mr_dataset_unref(c);
    mr_dataset_unref(ds);
}

MR_TEST(numbers_out_of_range_are_refused)
{
    static const mr_auto_shard_opts bad[] = {{0, 0, 0, MR_SHARD_OFF},
                                             {2, 2, 0, MR_SHARD_OFF},
                                             {2, -1, 0, MR_SHARD_OFF},
                                             {2, 0, -1, MR_SHARD_OFF},
                                             {2, 0, 0, MR_N_SHARD_POLICIES}};
    mr_dataset *ds = mr_test_graph("range(3)"), *out = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_status st;
        mr_code_is(mr_auto_shard(ds, &bad[i], &out, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
        mr_check(out == NULL);
    }
    mr_dataset_unref(ds);
}

MR_TEST(policy_names_are_read_in_either_case)
{
    mr_status st;
    mr_shard_policy p;
    mr_ok(mr_shard_policy_parse("data", &p, &st), &st);
    mr_check(p == MR_SHARD_DATA);
    mr_ok(mr_shard_policy_parse("HINT", &p, &st), &st);
    mr_check(p == MR_SHARD_HINT);
    mr_code_is(mr_shard_policy_parse("files", &p, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "'files'");
}

static int warnings;
static void count_warning(void *ctx, mr_log_level level, const char *message)
{
    (void)ctx;
    warnings += level >= MR_LOG_WARNING && strstr(message, "AUTO chose DATA") != NULL;
}

MR_TEST(auto_warns_once_when_it_chooses_data)
{
    mr_status st;
    mr_dataset *ds = mr_test_graph("range(3)"), *out = NULL;
    const mr_auto_shard_opts o = {2, 0, 2, MR_SHARD_AUTO};
    mr_explanation e = {0};
    mr_log_set(count_warning, NULL, MR_LOG_WARNING);
    mr_ok(mr_auto_shard(ds, &o, &out, NULL, &e, &st), &st);
    mr_dataset_unref(out);
    mr_ok(mr_auto_shard(ds, &o, &out, NULL, NULL, &st), &st);
    mr_dataset_unref(out);
    mr_ok(mr_auto_shard(ds, &o, &out, NULL, &e, &st), &st); /* as after each epoch */
    mr_dataset_unref(out);
    mr_eq_i64(warnings, 1);
    mr_dataset *other = mr_test_graph("from_tensors(1)");
    mr_ok(mr_auto_shard(other, &o, &out, NULL, &e, &st), &st);
    mr_dataset_unref(out);
    mr_dataset_unref(other);
    mr_eq_i64(warnings, 2);
    const mr_auto_shard_opts alone = {1, 0, 2, MR_SHARD_AUTO};
    mr_ok(mr_auto_shard(ds, &alone, &out, NULL, &e, &st), &st);
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
    mr_eq_i64(warnings, 2); /* nothing was sharded */
    mr_explanation_reset(&e);
    mr_dataset_unref(out);
    mr_dataset_unref(ds);
}

MR_TEST(allocation_failures_leave_the_graph_alone)
{
    static const char *const texts[] = {
        "zip(list_files(\"f*\").repeat(2).flat_map(text_line), text_line([\"a\"])).batch(2)",
        "zip(text_line([\"a\"]), range(3)).prefetch(2)"};
    for (size_t i = 0; i < 2; i++) {
        mr_dataset *ds = mr_test_graph(texts[i]);
        mr_fault_each_allocation(n)
        {
            mr_status st;
            mr_dataset *out = NULL;
            mr_explanation e = {0};
            const mr_auto_shard_opts o = {2, 1, 2, MR_SHARD_AUTO};
            mr_fault_expect(mr_auto_shard(ds, &o, &out, NULL, &e, &st), &st);
            mr_explanation_reset(&e);
            mr_dataset_unref(out);
        }
        check_text(ds, texts[i]);
        mr_dataset_unref(ds);
    }
}

static void check_ranges(const char *text, const char *want)
{
    mr_status st;
    mr_dataset *ds = mr_test_graph(text), *made = NULL;
    const mr_auto_shard_opts o = {3, 1, 3, MR_SHARD_RANGE};
    mr_shard_policy chosen;
    mr_ok(mr_auto_shard(ds, &o, &made, &chosen, NULL, &st), &st);
    mr_eq_i64(chosen, MR_SHARD_RANGE);
    check_text(made, want);
    mr_dataset_unref(made);
    mr_dataset_unref(ds);
}

static void check_no_ranges(const char *text, const char *part)
{
    mr_status st;
    mr_dataset *ds = mr_test_graph(text), *made = NULL;
    const mr_auto_shard_opts o = {3, 1, 3, MR_SHARD_RANGE};
    mr_test_context("%s", text);
    mr_code_is(mr_auto_shard(ds, &o, &made, NULL, NULL, &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, part);
    mr_dataset_unref(ds);
}

MR_TEST(range_divides_the_records_of_readers)
{
    check_ranges("tfrecord(\"a\").batch(2)", "tfrecord(\"a\", record_range=[1, 3]).batch(2)");
    check_ranges("tfrecord(\"a\", \"b\", num_parallel_reads=2).map(x => x).shuffle(3).repeat()",
                 "tfrecord(\"a\", \"b\", record_range=[1, 3]).map(x => x).shuffle(3).repeat()");
    check_ranges("tfrecord(\"a*\").global_shuffle(1).prefetch(1)",
                 "tfrecord(\"a*\", record_range=[1, 3]).global_shuffle(1).prefetch(1)");
    check_ranges("zip(tfrecord(\"a\"), tfrecord(\"b\").flat_map(x => range(2)))",
                 "zip(tfrecord(\"a\", record_range=[1, 3]), tfrecord(\"b\", record_range=[1, "
                 "3]).flat_map(x => range(2)))");
    check_ranges("tfrecord(\"a\").assert_cardinality(9)", "tfrecord(\"a\", record_range=[1, 3])");
    check_no_ranges("range(3)", "reads no list of files");
    check_no_ranges("text_line(\"a\")", "an arbitrary record");
    check_no_ranges("zip(tfrecord(\"a\"), range(3))", "range");
    check_no_ranges("list_files(\"a\").flat_map(tfrecord)", "one file per element");
    check_no_ranges("tfrecord(\"a\").enumerate()", "cannot be divided");
    check_no_ranges("tfrecord(\"a\", record_range=[0, 2])", "already");
}

MR_TEST(file_leaves_a_part_of_the_records_alone)
{
    mr_status st;
    mr_dataset *ds = mr_test_graph("tfrecord(\"a\", \"b\", record_range=[0, 2])"), *made = NULL;
    const mr_auto_shard_opts o = {2, 1, 2, MR_SHARD_FILE};
    mr_code_is(mr_auto_shard(ds, &o, &made, NULL, NULL, &st), MR_NOT_FOUND, &st);
    mr_dataset_unref(ds);
}

MR_TEST(file_divides_readers_whose_features_decide_the_type)
{
    mr_status st;
    mr_dataset *made = NULL, *ds = mr_test_graph("jsonl([\"a\", \"b\"], {\"n\": feature(int64, "
                                                 "default=1)}, compression=\"GZIP\").batch(2)");
    const mr_auto_shard_opts o = {2, 1, 2, MR_SHARD_FILE};
    mr_ok(mr_auto_shard(ds, &o, &made, NULL, NULL, &st), &st);
    char *text = NULL;
    mr_ok(mr_dataset_to_text(made, &text, &st), &st);
    mr_has_str(text, "jsonl(f, ");
    mr_dataset_unref(mr_test_graph(text)); /* it is a graph as any other */
    mr_free(text);
    mr_dataset_unref(made);
    mr_dataset_unref(ds);
}
