/* SPDX-License-Identifier: Apache-2.0 */
/* A position that is saved at any element restores, for every op above and below every other, over
 * several repetitions, with streams of a service among the ops. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/graph/op.h"
#include "tests/events.h"
#include "tests/harness.h"
#include "transport/service/service.h"

MR_ONE_THREAD;

#define SERVED ".distribute(\"local\", streams=2)"

/* Ops of one scalar of int64 to another; % is what is below. Some end before their input does. */
static const char *const ops[] = {
    "%.map(x => x + 1)",
    "%.map(x => 12 // (x - 3))",
    "%.map(x => x + 1, num_parallel_calls=2)",
    "%.map(x => x + random_int(0, 100, seed=2))",
    "%.filter(x => x % 3 != 1)",
    "%.flat_map(x => range(x % 3))",
    "%.interleave(x => range(x, x + 2), cycle_length=2)",
    "%.interleave(x => range(x % 3).shuffle(3, seed=1), cycle_length=2, num_parallel_calls=2)",
    "%.batch(2).unbatch()",
    "%.batch(3).rebatch([2, 1]).unbatch()",
    "%.batch(3).replica_slices(2).unbatch()",
    "%.padded_batch(2).unbatch()",
    "%.map(x => ones([1], \"int64\") * x).ragged_batch(2).map(x => size(x))",
    "%.map(x => ones([abs(x) % 3])).bucket_by_sequence_length(x => length(x), [2], [2, 3])"
    ".map(x => size(x))",
    "%.group_by_window(x => x % 2, (k, w) => w, 2)",
    "%.window(2, shift=1).flat_map(w => w)",
    "%.shuffle(3, seed=1)",
    "%.shuffle(2, seed=1, reshuffle_each_iteration=false)",
    "%.shuffle(100)",
    "%.repeat(2)",
    "%.repeat(2).take(5)",
    "%.take(3)",
    "%.skip(1)",
    "%.take_while(x => x < 5)",
    "%.unique()",
    "%.scan(0, (s, x) => (s + x, s))",
    "%.shard(2, 1)",
    "%.enumerate().map((i, x) => i + x)",
    "%.cache()",
    "%.prefetch(2)",
    "%.ignore_errors()",
    "%.with_options(deterministic=true)",
    "%.rejection_resample(x => abs(x) % 2, [1, 2], seed=1).map((c, x) => x)",
    "%.concatenate(range(3))",
    "range(2).concatenate(%)",
    "zip(%, range(4)).map((x, y) => x * 10 + y)",
    "zip(range(3), %).map((x, y) => x * 10 + y)",
    "choose_from_datasets([%, range(4)], range(9).map(x => x % 2))",
    "choose_from_datasets([range(8), range(3)], %.map(x => abs(x) % 2))",
    "sample_from_datasets([%, range(4)], seed=3)",
    "sample_from_datasets([range(4), %], seed=5, stop_on_empty_dataset=true)",
    "mix({\"a\": %, \"b\": range(4)}, seed=3, stop=\"all\")",
    "mix({\"b\": range(4), \"a\": %}, weights={\"a\": 3, \"b\": 1}, seed=5, stop=\"repeat\")",
    "%" SERVED,
    "%.distribute(\"local\", streams=3, block_length=2)",
    "%.distribute(\"local\", streams=3, num_consumers=2, consumer_index=1)",
    "%.distribute(\"local\", processing_mode=\"dynamic\")",
};
enum { N_OPS = sizeof ops / sizeof *ops, MOST_TEXT = 1000, DRAWN = 60 };

/* Not in the list: they write files, need others, or only wrap what is in it. */
static const char *const others[] = {"save",           "snapshot", "assert_cardinality",
                                     "global_shuffle", "splits",   "split"};

static void put_below(char *to, const char *op, const char *below)
{
    const char *at = strchr(op, '%');
    /* A remainder has blanks around it. */
    int n = snprintf(to, MOST_TEXT, "%.*s%s%s", (int)(at - op), op, below, at + 1);
    mr_check(n > 0 && n < MOST_TEXT);
}

static void open_way(mr_iterator **it, mr_dataset *ds, size_t way)
{
    static const int64_t rows[] = {1, 3, 1024};
    mr_status st;
    const mr_iterator_opts o = {.has_threads = true,
                                .block_rows = rows[way % 3],
                                .positions = true,
                                .identities = way % 2,
                                .seed = 7,
                                .has_seed = true};
    mr_ok(mr_iterator_open(it, ds, &o, &st), &st);
}

/* The rest after a position that was saved after event `at`. */
static void restore_and_compare(mr_dataset *ds, const mr_events *all, size_t at, size_t way,
                                const void *bytes, size_t size)
{
    mr_iterator *it = NULL;
    mr_events e = {0};
    mr_status st;
    open_way(&it, ds, way);
    if (at % 3 == 1) { /* it may be used already */
        mr_events_run(&e, it, 2, at / 2);
        mr_events_reset(&e, 0);
    }
    mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
    mr_events_copy(&e, all, at);
    mr_events_run(&e, it, way % 2 ? 5 : 1, SIZE_MAX);
    char *got = mr_events_join(&e), *wanted = mr_events_join(all);
    mr_eq_str(got, wanted);
    free(got);
    free(wanted);
    mr_events_reset(&e, 0);
    mr_iterator_close(it);
}

/* Saves after each event of text, and after each row of a block; restores them all. */
static void check(const char *text)
{
    mr_dataset *ds = mr_test_graph(text);
    mr_iterator *it = NULL;
    mr_events all = {0}, e = {0};
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_test_context("%s", text);
    open_way(&it, ds, 2);
    mr_events_run(&all, it, 1024, SIZE_MAX);
    mr_iterator_close(it);
    open_way(&it, ds, 1);
    mr_code rc = MR_OK;
    for (size_t i = 0; rc != MR_END; i++) {
        void *bytes;
        size_t size, before = e.n;
        mr_test_context("%s after %zu", text, before);
        mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
        restore_and_compare(ds, &all, before, i, bytes, size);
        mr_free(bytes);
        rc = mr_events_pull(&e, it, i % 3 ? 4 : 1, &b);
        for (size_t r = 1; rc == MR_OK && r < b.rows; r++) {
            mr_test_context("%s after %zu, row %zu of %zu", text, before, r, b.rows);
            mr_ok(mr_iterator_save_at(it, &b, r, &bytes, &size, &st), &st);
            restore_and_compare(ds, &all, before + r, i + r, bytes, size);
            mr_free(bytes);
        }
    }
    mr_eq_u64(e.n, all.n);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_events_reset(&all, 0);
    mr_events_reset(&e, 0);
    mr_dataset_unref(ds);
}

static void check_pair(const char *below, const char *above, bool served)
{
    char a[MOST_TEXT], b[MOST_TEXT], c[MOST_TEXT];
    put_below(a, below, "range(6)");
    if (served) {
        put_below(b, "%" SERVED, a);
        put_below(a, "%", b);
    }
    put_below(b, above, a);
    put_below(c, "%.repeat(3)", b);
    check(c);
}

MR_TEST(every_op_is_in_the_list_or_named)
{
    mr_status st;
    mr_ok(mr_service_register_ops(&st), &st);
    for (size_t i = 0; mr_op_at(i); i++) {
        const mr_op *op = mr_op_at(i);
        bool found = op->max_inputs == 0;
        for (size_t k = 0; k < N_OPS && !found; k++) {
            const char *at = strstr(ops[k], op->name);
            found = at && at[strlen(op->name)] == '(';
        }
        for (size_t k = 0; k < sizeof others / sizeof *others && !found; k++)
            found = strcmp(others[k], op->name) == 0;
        if (!found)
            mr_fail_test("%s is not in the list of this file", op->name);
    }
}

/* What a first look finds: an op that notes its input's place when it is opened, over streams. */
MR_TEST(streams_restore_in_later_repetitions)
{
    mr_status st;
    mr_ok(mr_service_register_ops(&st), &st);
    check("range(3)" SERVED ".shuffle(6, seed=1).repeat(3)");
    check("range(8).distribute(\"local\", streams=1).shuffle(4, seed=1, "
          "reshuffle_each_iteration=false).repeat(3)");
    check("range(8)" SERVED ".shuffle(2, seed=1).batch(2).repeat(2)");
    check("range(8)" SERVED ".shuffle(2, seed=1).prefetch(2).repeat(2)");
    check("range(5).shuffle(5)" SERVED ".cache().shuffle(3).repeat(3)");
}

/* The streams wait for an iterator that is opened after the restore. */
MR_TEST(streams_that_are_closed_when_saved_are_in_the_position)
{
    mr_status st;
    mr_ok(mr_service_register_ops(&st), &st);
    check("range(6).shuffle(6)" SERVED ".concatenate(range(3)).repeat(3)");
    check("range(2).concatenate(range(6).shuffle(6)" SERVED ").repeat(3)");
    check("range(4).shuffle(4)" SERVED ".concatenate(range(4)" SERVED ").repeat(2)");
    check("choose_from_datasets([range(4).shuffle(4)" SERVED
          ", range(9)], range(12).map(x => x // 6)).repeat(3)");
    check("range(6).shuffle(6)" SERVED ".shuffle(3).cache().concatenate(range(2)).repeat(3)");
}

/* What an op above does not use has no effect on later repetitions. */
MR_TEST(streams_that_end_early_go_on_from_what_was_used)
{
    mr_status st;
    mr_ok(mr_service_register_ops(&st), &st);
    check("range(2).shuffle(2, seed=1).repeat(3)" SERVED ".take(1).repeat(6)");
    check("range(4).shuffle(4, seed=1).repeat(3)" SERVED ".batch(3).take(1).unbatch().repeat(5)");
    check("range(5).shuffle(5).cache()" SERVED ".take(3).repeat(4)");
    /* Rows of a stream that another's turn left over, and rows that its own ops hold. */
    check("range(6).shuffle(2, seed=1).repeat(4).batch(3).map(x => sum(x))"
          ".distribute(\"local\", streams=3).batch(4).take(1).unbatch().repeat(5)");
    check("range(4).shuffle(2, seed=1).repeat(3).batch(4).unbatch()" SERVED ".take(1).repeat(6)");
    /* A cache in a stream is complete once its elements were pulled, used or not. */
    check("range(6).shuffle(6).cache()" SERVED ".batch(3).replica_slices(3).take(4).repeat(4)");
    check("range(9).shuffle(3, seed=1).cache().map(x => x + 1).distribute(\"local\", streams=3)"
          ".batch(7).take(1).unbatch().repeat(5)");
    check("zip(range(3).shuffle(3).repeat(2)" SERVED ", range(4)).map((x, y) => x).repeat(3)");
}

static void check_drawn(bool served, size_t n)
{
    uint64_t random = mr_test_seed();
    mr_status st;
    mr_ok(mr_service_register_ops(&st), &st);
    for (size_t i = 0; i < n; i++)
        check_pair(ops[mr_test_random(&random) % N_OPS], ops[mr_test_random(&random) % N_OPS],
                   served);
}

MR_TEST(any_op_above_any_other)
{
    check_drawn(false, DRAWN);
}

MR_TEST(any_op_above_streams_of_any_other)
{
    check_drawn(true, DRAWN);
}

static void check_all(bool served)
{
    mr_status st;
    mr_ok(mr_service_register_ops(&st), &st);
    for (size_t i = 0; i < N_OPS; i++)
        for (size_t k = 0; k < N_OPS; k++)
            if (mr_test_takes(i * N_OPS + k, 10))
                check_pair(ops[i], ops[k], served);
}

MR_TEST_SLOW(every_op_above_every_other)
{
    check_all(false);
}

MR_TEST_SLOW(every_op_above_streams_of_every_other)
{
    check_all(true);
}
