/* SPDX-License-Identifier: Apache-2.0 */
/* The cut into streams: where the shard goes, what it says of that, and its seeds. */
#include "shard/streams/stream_cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "shard/passes/auto_shard.h"
#include "tests/draws.h"
#include "tests/harness.h"

MR_ONE_THREAD;

/* The text of stream `stream` of `streams`; owned. e gets the decisions. */
static char *cut(const char *text, int64_t streams, int64_t stream, uint64_t *run_seed,
                 mr_explanation *e)
{
    const mr_stream_cut_opts o = {.streams = streams, .stream = stream, .seed = 7};
    mr_dataset *ds = mr_test_graph(text), *made = NULL;
    char *out = NULL;
    mr_status st;
    mr_ok(mr_cut_stream(ds, &o, &made, run_seed, e, &st), &st);
    mr_ok(mr_dataset_to_text(made, &out, &st), &st);
    mr_dataset_unref(made);
    mr_dataset_unref(ds);
    return out;
}

MR_TEST(shard_goes_as_near_to_the_sources_as_ops_allow)
{
    static const struct {
        const char *text, *stream1of2, *why, *at;
    } cases[] = {
        {"range(9).batch(2)", "range(9).shard(2, 1).batch(2)",
         "the shard goes after range, the source", "batch/range"},
        {"range(9).take(4).batch(2)", "range(9).take(4).shard(2, 1).batch(2)",
         "everything below it runs in every stream", "batch/take"},
        {"range(9).enumerate()", "range(9).enumerate().shard(2, 1)", "goes after enumerate",
         "enumerate"},
        {"zip(range(9), range(9)).prefetch(1)", "zip(range(9), range(9)).shard(2, 1).prefetch(1)",
         "goes after zip", "prefetch/zip"},
        {"range(9).shard(3, 0).repeat(2)", "range(9).shard(3, 0).shard(2, 1).repeat(2)",
         "goes after shard", "repeat/shard"},
        {"range(3).concatenate(range(4).skip(1))",
         "range(3).shard(2, 1).concatenate(range(4).skip(1).shard(2, 1))", "goes after skip",
         "concatenate[1]/skip"},
        {"tfrecord(\"a\", \"b\").batch(2)",
         "from_tensor_slices([\"a\", \"b\"]).shard(2, 1).flat_map(f => tfrecord(f)).batch(2)",
         "file i belongs to stream i mod 2", "batch/tfrecord"},
        {"tfrecord(\"a\").batch(2)", "tfrecord(\"a\").shard(2, 1).batch(2)",
         "fewer than the 2 streams", "batch/tfrecord"},
        {"from_tensor_slices([\"a\"]).flat_map(f => tfrecord(f)).batch(2)",
         "from_tensor_slices([\"a\"]).flat_map(f => tfrecord(f)).shard(2, 1).batch(2)",
         "flat_map reads 1 files", "batch/flat_map"},
        {"from_tensor_slices([\"a\", \"b\"]).flat_map(f => tfrecord(f))",
         "from_tensor_slices([\"a\", \"b\"]).shard(2, 1).flat_map(f => tfrecord(f))",
         "the shard goes after from_tensor_slices", "flat_map/from_tensor_slices"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_explanation e = {0};
        char *text = cut(cases[i].text, 2, 1, NULL, &e);
        bool said = false;
        mr_eq_str(text, cases[i].stream1of2);
        for (size_t k = 0; k < e.n; k++)
            said = said || (strstr(e.v[k].detail, cases[i].why) && e.v[k].op &&
                            strcmp(e.v[k].op, cases[i].at) == 0);
        if (!said && e.n)
            mr_eq_str(e.v[e.n - 1].detail, cases[i].why);
        mr_check(said);
        mr_free(text);
        mr_explanation_reset(&e);
    }
}

/* What the ops of a stream of two draw from. */
static void draws_of(const char *text, int64_t stream, char *buf, size_t size, uint64_t *run_seed)
{
    mr_status st;
    mr_dataset *ds = mr_test_graph(text), *made = NULL;
    const mr_stream_cut_opts o = {.streams = 2, .stream = stream, .seed = 7};
    mr_ok(mr_cut_stream(ds, &o, &made, run_seed, NULL, &st), &st);
    buf[0] = 0;
    mr_test_draws(made, buf, size);
    mr_dataset_unref(made);
    mr_dataset_unref(ds);
}

MR_TEST(what_is_below_the_cut_draws_the_same_in_all_streams)
{
    static const char text[] = "range(9).shuffle(3).take(4).shuffle(2)";
    char a[256], b[256], whole[256] = "";
    uint64_t seed[2];
    mr_status st;
    draws_of(text, 0, a, sizeof a, &seed[0]);
    draws_of(text, 1, b, sizeof b, &seed[1]);
    char *below_a = strrchr(a, 's'), *below_b = strrchr(b, 's');
    mr_eq_str(below_a, below_b);
    mr_check(strncmp(a, b, (size_t)(below_a - a)) != 0);
    mr_check(seed[0] != seed[1]); /* nothing below the cut has a function */
    /* The same as in the graph that is not cut. */
    mr_dataset *ds = mr_test_graph(text), *seeded = NULL;
    mr_ok(mr_seed_random_ops(ds, 7, &seeded, NULL, &st), &st);
    mr_test_draws(seeded, whole, sizeof whole);
    mr_eq_str(strrchr(whole, 's'), below_a);
    mr_dataset_unref(seeded);
    mr_dataset_unref(ds);
    draws_of("range(9).flat_map(x => range(x).shuffle(3)).take(4)", 0, a, sizeof a, &seed[0]);
    draws_of("range(9).flat_map(x => range(x).shuffle(3)).take(4)", 1, b, sizeof b, &seed[1]);
    mr_check(seed[0] == seed[1]);
    draws_of("range(9).shuffle(3, seed=5)", 1, a, sizeof a, NULL);
    mr_eq_str(a, "");
    /* each place draws differently */
    draws_of("range(9).shuffle(3).take(4).concatenate(range(9).shuffle(3).take(4))", 0, a, sizeof a,
             NULL);
    unsigned long long place[2], of[2];
    mr_eq_i64(
        sscanf(a, "shuffle:%llx:%llu shuffle:%llx:%llu", &place[0], &of[0], &place[1], &of[1]), 4);
    mr_check(place[0] != place[1]);
}

MR_TEST(streams_are_8_or_as_many_as_files)
{
    static const struct {
        const char *text;
        int64_t streams;
    } cases[] = {{"range(3)", 8},
                 {"tfrecord(\"a\", \"b\", \"c\").batch(2)", 3},
                 {"tfrecord(\"a\").batch(2)", 1},
                 {"tfrecord(\"a\").concatenate(tfrecord(\"b\"))", 2},
                 {"tfrecord(\"a\").take(3)", 8},
                 {"from_tensor_slices([\"a\", \"b\"]).repeat().flat_map(f => tfrecord(f))", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_dataset *ds = mr_test_graph(cases[i].text);
        int64_t n = 0;
        mr_status st;
        mr_ok(mr_count_streams(ds, NULL, &n, &st), &st);
        mr_eq_i64(n, cases[i].streams);
        mr_dataset_unref(ds);
    }
}

MR_TEST(streams_out_of_range_are_refused)
{
    mr_dataset *ds = mr_test_graph("range(3)"), *made = NULL;
    mr_status st;
    const mr_stream_cut_opts wrong[] = {
        {.streams = 0}, {.streams = 65537}, {.streams = 2, .stream = 2}};
    for (size_t i = 0; i < 3; i++)
        mr_eq_i64(mr_cut_stream(ds, &wrong[i], &made, NULL, NULL, &st), MR_INVALID_ARGUMENT);
    mr_dataset_unref(ds);
}

MR_TEST(a_node_that_is_reached_twice_is_cut_once)
{
    mr_dataset *ds = mr_test_graph("range(3).map(x => x)"), *made = NULL;
    mr_status st;
    for (int i = 0; i < 40; i++) { /* 2^40 paths */
        mr_dataset *both[] = {ds, mr_dataset_ref(ds)};
        ds = mr_dataset_new(mr_op_find("concatenate", 11), NULL, both, 2);
    }
    const mr_stream_cut_opts o = {.streams = 3};
    mr_ok(mr_cut_stream(ds, &o, &made, NULL, NULL, &st), &st);
    mr_eq_i64(mr_dataset_cardinality(made), (int64_t)1 << 40);
    mr_dataset_unref(made);
    mr_dataset_unref(ds);
}
