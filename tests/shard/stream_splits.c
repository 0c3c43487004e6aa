/* SPDX-License-Identifier: Apache-2.0 */
/* Which splits a graph has, and what of it each of them is. */
#include "shard/streams/stream_splits.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "shard/passes/auto_shard.h"
#include "tests/harness.h"

MR_ONE_THREAD;

/* Replaces the source by split number *ctx of the graph; the other sources are empty. */
static mr_dataset *one(void *ctx, const mr_split_source *s)
{
    int64_t k = *(const int64_t *)ctx;
    return k >= s->first && k < s->first + s->n ? mr_split_dataset(s, k - s->first)
                                                : mr_skip(mr_dataset_ref(s->ds), -1);
}

static mr_dataset *with_split(mr_dataset *ds, int64_t k, mr_explanation *e)
{
    mr_status st;
    mr_dataset *out = NULL;
    mr_ok(mr_feed_splits(ds, one, &k, &out, e, &st), &st);
    return out;
}

MR_TEST(sources_are_split_by_file_by_range_or_not_at_all)
{
    static const struct {
        const char *text;
        int64_t n, k;
        const char *split, *why;
    } cases[] = {
        {"tfrecord(\"a\", \"b\", \"c\").batch(2)", 3, 1, "tfrecord(\"b\").batch(2)",
         "tfrecord is handed out on demand, in 3 splits, each a file"},
        {"from_tensor_slices([\"a\", \"b\"]).flat_map(f => tfrecord(f)).shuffle(9, seed=1)", 2, 1,
         "from_tensor_slices([\"a\", \"b\"]).skip(1).take(1).flat_map(f => tfrecord(f)).shuffle(9, "
         "seed=1)",
         "from_tensor_slices"},
        /* a shuffle of names would take all of them */
        {"from_tensor_slices([\"a\", \"b\"]).shuffle(2).filter(f => f != \"c\").interleave(f => "
         "text_line(f), cycle_length=2)",
         2, 0,
         "from_tensor_slices([\"a\", \"b\"]).skip(0).take(1).filter(f => f != \"c\").interleave(f "
         "=> text_line(f), cycle_length=2)",
         "2 splits"},
        {"range(5).map(x => x)", 5, 4, "range(4, 5).map(x => x)", "5 splits"},
        {"range(5).cache(\"\")", 5, 4, "range(4, 5).cache(\"\")", "5 splits"}, /* in memory */
        {"range(5).cache(\"f\")", 1, 0, "range(5).cache(\"f\")", "cache is handed out"},
        {"range(10, 0, -3)", 4, 3, "range(1, 0, -3)", "range of the numbers"},
        {"range(1000)", 250, 2, "range(8, 12)", "250 splits"},
        {"range(1001)", 251, 250, "range(1000, 1001)", "251 splits"},
        {"from_tensor_slices([1, 2, 3]).repeat(2)", 3, 2,
         "from_tensor_slices([1, 2, 3]).skip(2).take(1).repeat(2)", "range of the slices"},
        {"range(9).take(7).batch(2)", 1, 0, "range(9).take(7).batch(2)", "all of it"},
        {"counter().batch(2)", 1, 0, "counter().batch(2)", "all of it"},
        {"range(0)", 0, 0, "range(0).skip(-1)", "0 splits"},
        {"range(2).concatenate(range(3))", 5, 3, "range(2).skip(-1).concatenate(range(1, 2))",
         "range is handed out"},
        /* in what order their repetitions would be wanted, the dispatcher cannot know */
        {"range(2).repeat(2).concatenate(range(3))", 1, 0,
         "range(2).repeat(2).concatenate(range(3))", "concatenate is handed out"},
        {"zip(range(9), range(9))", 1, 0, "zip(range(9), range(9))", "zip"},
        {"zip(tfrecord(\"a\", \"b\"), tfrecord(\"a\", \"b\")).map((x, y) => x)"
         ".concatenate(tfrecord(\"c\"))",
         1, 0,
         "zip(tfrecord(\"a\", \"b\"), tfrecord(\"a\", \"b\")).map((x, y) => x)"
         ".concatenate(tfrecord(\"c\"))",
         "concatenate is handed out"},
        {"zip(tfrecord(\"a\", \"b\").map(x => x), tfrecord(\"a\", \"b\"))", 2, 1,
         "zip(tfrecord(\"b\").map(x => x), tfrecord(\"b\"))", "2 splits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_status st;
        mr_explanation e = {0};
        int64_t n;
        char *text;
        mr_dataset *ds = mr_test_graph(cases[i].text);
        mr_test_context("%s", cases[i].text);
        mr_ok(mr_count_splits(ds, &n, &st), &st);
        mr_eq_i64(n, cases[i].n);
        mr_dataset *seeded = NULL; /* as the graph of a job is */
        mr_ok(mr_seed_random_ops(ds, 7, &seeded, NULL, &st), &st);
        mr_ok(mr_count_splits(seeded, &n, &st), &st);
        mr_eq_i64(n, cases[i].n);
        mr_dataset_unref(seeded);
        mr_dataset *made = with_split(ds, cases[i].k, &e);
        mr_ok(mr_dataset_to_text(made, &text, &st), &st);
        mr_eq_str(text, cases[i].split);
        bool said = false;
        for (size_t k = 0; k < e.n; k++)
            said |= strcmp(e.v[k].what, "splits") == 0 && strstr(e.v[k].detail, cases[i].why);
        mr_check(said);
        mr_free(text);
        mr_explanation_reset(&e);
        mr_dataset_unref(made);
        mr_dataset_unref(ds);
    }
}

/* Also where the stop of the last range would be no number. */
MR_TEST(ranges_have_every_number_once)
{
    static const struct {
        int64_t start, stop, step;
    } cases[] = {{0, 1000, 1},
                 {0, 1000, 7},
                 {5, -1000, -3},
                 {INT64_MAX - 300, INT64_MAX, 1},
                 {INT64_MIN, INT64_MAX, INT64_MAX / 300},
                 {INT64_MIN + 300, INT64_MIN, -1},
                 {3, 4, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        mr_status st;
        int64_t n;
        uint64_t at = (uint64_t)cases[i].start;
        mr_block b = MR_BLOCK_EMPTY;
        snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)cases[i].start,
                 (long long)cases[i].stop, (long long)cases[i].step);
        mr_test_context("%s", text);
        mr_dataset *ds = mr_range(cases[i].start, cases[i].stop, cases[i].step);
        mr_ok(mr_count_splits(ds, &n, &st), &st);
        int64_t left = mr_dataset_cardinality(ds);
        for (int64_t k = 0; k < n; k++) {
            mr_dataset *split = with_split(ds, k, NULL);
            mr_iterator *it = NULL;
            mr_ok(mr_iterator_open(&it, split, NULL, &st), &st);
            while (mr_iterator_next(it, 100, &b, &st) == MR_OK)
                for (size_t r = 0; r < b.rows; r++, left--, at += (uint64_t)cases[i].step)
                    mr_eq_i64(((const int64_t *)b.columns[0].data)[r], (int64_t)at);
            mr_iterator_close(it);
            mr_dataset_unref(split);
        }
        mr_eq_i64(left, 0);
        mr_block_reset(&b);
        mr_dataset_unref(ds);
    }
}

MR_TEST(a_zip_whose_inputs_would_come_apart_is_refused)
{
    static const char *const texts[] = {
        "zip(tfrecord(\"a\", \"b\"), tfrecord(\"a\", \"c\"))",
        "zip(tfrecord(\"a\", \"b\"), range(9))",
        "zip(tfrecord(\"a\").filter(x => x != \"\"), tfrecord(\"a\"))",
        "zip(tfrecord(\"a\"), tfrecord(\"a\").shuffle(9))",
        "zip(tfrecord(\"a\").batch(2), tfrecord(\"a\"))",
        "zip(tfrecord(\"a\").repeat(2), tfrecord(\"a\").repeat(2)).batch(2)",
        "zip(tfrecord(\"a\", compression=\"GZIP\"), tfrecord(\"a\"))",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mr_status st;
        int64_t n;
        mr_dataset *ds = mr_test_graph(texts[i]), *out = NULL;
        mr_test_context("%s", texts[i]);
        mr_code_is(mr_count_splits(ds, &n, &st), MR_FAILED_PRECONDITION, &st);
        mr_eq_str(st.op, "zip");
        mr_has_str(st.message, "no longer match");
        mr_code_is(mr_feed_splits(ds, one, &n, &out, NULL, &st), MR_FAILED_PRECONDITION, &st);
        mr_dataset_unref(ds);
    }
}
