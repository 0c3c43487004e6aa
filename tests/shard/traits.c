/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites go by the traits of ops, so those of a user are treated as the built-in ones are. */
#include <pthread.h>
#include <string.h>

#include "pipeline/graph/op.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/memory/alloc.h"
#include "shard/passes/auto_shard.h"
#include "shard/distribute/distribute.h"
#include "tests/harness.h"

MR_ONE_THREAD;

struct ahead {
    int64_t buffer_size;
};
struct deal {
    int64_t num_shards, index;
};
struct names {
    bool mixed;
    int64_t seed;
    bool has_seed;
};

static const mr_param none[] = {{0}};
static const mr_param seeds[] = {
    {.name = "seed", .doc = "S.", .type = MR_PT_I64, .at = 8, .has_at = 16}, {0}};
static const mr_param depths[] = {MR_ARG(struct ahead, buffer_size, .doc = "D."), {0}};
static const mr_param shards[] = {
    MR_ARG(struct deal, num_shards, .doc = "N."), MR_ARG(struct deal, index, .doc = "I."), {0}};
static const mr_param policies[] = {
    {.name = "auto_shard_policy", .doc = "P.", .type = MR_PT_STR, .flags = MR_P_POSITIONAL}, {0}};
static const mr_param mixes[] = {
    {.name = "mixed", .doc = "M.", .type = MR_PT_BOOL, .flags = MR_P_OPTIONAL | MR_P_SHUFFLES},
    {.name = "seed",
     .doc = "S.",
     .type = MR_PT_I64,
     .at = offsetof(struct names, seed),
     .has_at = offsetof(struct names, has_seed)},
    {0}};

static mr_code infer_names(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    (void)p;
    *out = mr_spec_scalar(MR_STRING);
    return *out ? MR_OK : mr_fail_memory(st, 100, "a spec");
}

#define USER(op, table, size)                                                                      \
    .abi = MR_ABI_VERSION, .name = op, .doc = "A user's op.", .example = "-", .params = table,     \
    .params_size = size
#define USER_PASS(op, table, size)                                                                 \
    USER(op, table, size), .min_inputs = 1, .max_inputs = 1, .role = MR_ROLE_PASS

static const mr_op ops[] = {
    {USER_PASS("user_pass", none, 0), .props = MR_OP_KEEPS_COUNT},
    {USER_PASS("user_mix", seeds, 24), .props = MR_OP_RANDOM | MR_OP_REORDERS},
    {USER_PASS("user_ahead", depths, sizeof(struct ahead)),
     .props = MR_OP_KEEPS_COUNT | MR_OP_SHARD_BELOW | MR_OP_READS_AHEAD},
    {USER_PASS("user_options", policies, 8), .props = MR_OP_SHARD_BELOW | MR_OP_HOLDS_OPTIONS},
    {USER_PASS("user_count", none, 0), .props = MR_OP_WHOLE_INPUT},
    {USER_PASS("user_deal", shards, sizeof(struct deal)), .props = MR_OP_SHARDS},
    {USER("user_names", mixes, sizeof(struct names)), .role = MR_ROLE_SOURCE, .infer = infer_names,
     .props = MR_OP_FILE_NAMES | MR_OP_RANDOM | MR_OP_REORDERS},
};

static void register_ops(void)
{
    mr_status st;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        mr_ok(mr_op_register(&ops[i], &st), &st);
}

static mr_dataset *parse(const char *text)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_ops);
    return mr_test_graph(text);
}

static void check_text(mr_dataset *ds, const char *want)
{
    mr_status st;
    char *text = NULL;
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text, want);
    mr_free(text);
}

/* The graph of worker 1 of 2 under `policy`. */
static void check_shard(mr_shard_policy policy, const char *before, const char *after)
{
    mr_status st;
    mr_dataset *ds = parse(before), *out = NULL;
    const mr_auto_shard_opts o = {2, 1, 2, policy};
    mr_test_context("%s", before);
    mr_ok(mr_auto_shard(ds, &o, &out, NULL, NULL, &st), &st);
    check_text(out, after);
    mr_dataset_unref(out);
    mr_dataset_unref(ds);
}

#define SHARD ".shard(2, 1, require_non_empty=true)"

MR_TEST(an_op_that_reorders_goes_above_the_shard_of_the_files)
{
    check_shard(MR_SHARD_FILE, "list_files(\"f*\").user_mix(seed=3).flat_map(text_line)",
                "list_files(\"f*\")" SHARD ".user_mix(seed=3).flat_map(text_line)");
    check_shard(MR_SHARD_FILE, "user_names(true, seed=4).flat_map(text_line)",
                "user_names()" SHARD ".shuffle(-2, seed=4).flat_map(text_line)");
    check_shard(MR_SHARD_FILE, "user_names(seed=4).flat_map(text_line)",
                "user_names(seed=4)" SHARD ".flat_map(text_line)");
}

MR_TEST(what_is_said_of_the_whole_is_dropped_from_a_part)
{
    check_shard(MR_SHARD_FILE, "text_line([\"a\"]).user_pass().user_count().batch(2)",
                "from_tensor_slices([\"a\"])" SHARD
                ".flat_map(f => text_line(f)).user_pass().batch(2)");
    check_shard(MR_SHARD_DATA, "range(4).user_count()", "range(4).user_count()" SHARD);
}

MR_TEST(the_shard_of_the_data_goes_below_what_trails)
{
    check_shard(MR_SHARD_DATA, "range(4).user_ahead(2).user_pass().user_ahead(3)",
                "range(4).user_ahead(2).user_pass()" SHARD ".user_ahead(3)");
}

MR_TEST(the_hint_of_any_op_that_shards_is_replaced)
{
    check_shard(MR_SHARD_HINT, "range(9).user_deal(-1, 0)", "range(9).user_deal(2, 1)");
    check_shard(MR_SHARD_HINT, "range(9).user_deal(3, 0)", "range(9).user_deal(3, 0)");
}

MR_TEST(options_are_read_from_any_op_that_holds_them)
{
    mr_status st;
    mr_shard_policy policy;
    mr_dataset *ds = parse("range(3).user_options(\"OFF\").user_pass()");
    mr_ok(mr_shard_policy_of(ds, &policy, &st), &st);
    mr_eq_str(mr_shard_policy_name(policy), "OFF");
    mr_dataset_unref(ds);
}

MR_TEST(names_that_nothing_reads_stop_the_walk)
{
    mr_status st;
    mr_dataset *ds = parse("user_names()"), *out = NULL;
    const mr_auto_shard_opts o = {2, 1, 2, MR_SHARD_FILE};
    mr_code_is(mr_auto_shard(ds, &o, &out, NULL, NULL, &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "whose names no op of the graph reads");
    mr_dataset_unref(ds);
}

MR_TEST(a_source_that_shuffles_only_where_it_is_asked_to_draws_only_there)
{
    static const char *const cases[][2] = {{"user_names()", "user_names()"},
                                           {"user_names(true, seed=1)", "user_names(true, seed=1)"},
                                           {"list_files(\"a\")", "list_files(\"a\")"}};
    mr_status st;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_dataset *ds = parse(cases[i][0]), *out = NULL;
        mr_ok(mr_seed_random_ops(ds, 7, &out, NULL, &st), &st);
        check_text(out, cases[i][1]);
        mr_dataset_unref(out);
        mr_dataset_unref(ds);
    }
}

/* Without a seed each worker would list the files in another order, and DATA lose elements. */
MR_TEST(shuffled_lists_of_files_get_the_seed_of_the_job)
{
    mr_status st;
    mr_explanation e = {0};
    mr_dataset *ds = parse("list_files(\"a\", shuffle=true)"), *out = NULL;
    mr_ok(mr_seed_random_ops(ds, 7, &out, &e, &st), &st);
    mr__origin origin = mr__dataset_origin(out);
    mr_check(origin.has_seed && origin.seed == 7);
    mr_eq_u64(e.n, 1);
    mr_has_str(e.v[0].detail, "list_files has no seed");
    mr_explanation_reset(&e);
    mr_dataset_unref(out);
    mr_dataset_unref(ds);
}

MR_TEST(depths_of_all_ops_that_read_ahead_add_up_for_a_consumer_with_slots)
{
    mr_status st;
    mr_dist_dataset *dd = NULL;
    mr_dataset *ds = parse("range(8).batch(4).prefetch(9).user_pass().user_ahead(5).prefetch(2)");
    const mr_distribute_opts o = {.replicas = 1, .owns_slots = true};
    mr_ok(mr_distribute_dataset(ds, &o, &dd, &st), &st);
    mr_eq_i64(mr_dist_dataset_absorbed_prefetch(dd), 7);
    check_text(mr_dist_dataset_graph(dd, 0), "range(8).batch(4).prefetch(9).user_pass()");
    mr_dist_dataset_free(dd);
    mr_dataset_unref(ds);
}
