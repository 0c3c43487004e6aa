/* SPDX-License-Identifier: Apache-2.0 */
/* Runs under a memory limit, the process being as large as the library's own bytes and `base`. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/memory/buffer.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/system/system.h"
#include "tests/harness.h"
#include "tests/pipeline/streams/counted_memory.h"

#define MIB (1LL << 20)
enum { STATM = 1 << 20 }; /* descriptor of the process's size */

static mr__system table;
static long long base; /* resident besides what the library has */

static int open_statm(const char *path, int flags, mode_t mode)
{
    if (strcmp(path, "/proc/self/statm") == 0)
        return STATM;
    return mr__system_real()->open(path, flags, mode);
}

static int open_no_statm(const char *path, int flags, mode_t mode)
{
    if (strcmp(path, "/proc/self/statm") != 0)
        return mr__system_real()->open(path, flags, mode);
    errno = ENOENT;
    return -1;
}

static ssize_t read_statm(int fd, void *buf, size_t n)
{
    if (fd != STATM)
        return mr__system_real()->read(fd, buf, n);
    long long pages = (base + mr_live_memory()) / sysconf(_SC_PAGESIZE);
    return snprintf(buf, n, "%lld %lld 0 0 0 0 0\n", 2 * pages, pages);
}

static int close_statm(int fd)
{
    return fd == STATM ? 0 : mr__system_real()->close(fd);
}

static void start(void)
{
    table = *mr__system_real();
    table.open = open_statm;
    table.read = read_statm;
    table.close = close_statm;
    mr__system_set(&table);
    mr_count_memory();
    base = 4 * MIB;
}

static mr_dataset *graph(const char *text)
{
    mr_test_context("%s", text);
    return mr_test_graph(text);
}

static int64_t needed(const mr_dataset *ds, const mr_iterator_opts *o)
{
    mr_status st;
    int64_t bytes = 0;
    const char *unknown = NULL;
    mr_ok(mr_memory_needed(ds, o, &bytes, &unknown, &st), &st);
    return bytes;
}

static void peak_is_within(long long limit)
{
    if (base + mr_peak_memory() > limit)
        mr_fail_test("%lld bytes were in use, with a limit of %lld", base + mr_peak_memory(),
                     limit);
}

/* The rest of the run as one number for each row: a sum that depends on the order. */
static uint64_t rest(mr_iterator *it, size_t want, int64_t *rows)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    uint64_t hash = 1;
    mr_code rc;
    while ((rc = mr_iterator_next(it, want, &b, &st)) == MR_OK) {
        mr_block first = MR_BLOCK_EMPTY;
        for (size_t i = 0; i < b.rows; i++) {
            void *bytes = NULL;
            size_t size = 0;
            mr_ok(mr_block_slice(&first, &b, i, 1, &st), &st);
            mr_ok(mr_block_to_bytes(&first, &bytes, &size, &st), &st);
            for (size_t k = 0; k<size; k += size> 4096 ? 1024 : 1)
                hash = (hash ^ ((unsigned char *)bytes)[k]) * 0x100000001b3u;
            mr_free(bytes);
            mr_block_reset(&first);
        }
        *rows += (int64_t)b.rows;
    }
    mr_code_is(rc, MR_END, &st);
    mr_block_reset(&b);
    return hash;
}

MR_TEST(a_limit_below_what_is_needed_is_refused_with_that_figure)
{
    start();
    mr_dataset *ds = graph("range(100).map(x => zeros([262144])).shuffle(50, seed=1).batch(2)");
    mr_iterator_opts o = {.threads = 1, .has_threads = true};
    int64_t bytes = needed(ds, &o);
    mr_check(bytes > 50 * MIB && bytes < 120 * MIB);
    mr_status st;
    mr_iterator *it = NULL;
    char figure[32];
    snprintf(figure, sizeof figure, "%lld bytes", (long long)bytes);
    o.memory_limit = bytes - 1;
    mr_code_is(mr_iterator_open(&it, ds, &o, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, figure);
    o.memory_limit = -1;
    mr_code_is(mr_iterator_open(&it, ds, &o, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "0 (none) or more bytes, not -1");
    mr_check(!it);
    o.memory_limit = bytes;
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_iterator_close(it);
    base = 500 * MIB; /* the same graph in a larger process */
    mr_check(needed(ds, &o) > bytes + 450 * MIB);
    mr_dataset_unref(ds);
}

MR_TEST(what_is_needed_counts_every_place_and_has_no_bound)
{
    start();
    mr_iterator_opts o = {.threads = 0, .has_threads = true};
    mr_dataset *none = graph("range(3)");
    mr_dataset *one = graph("range(100000000).shuffle(10000000, seed=1)");
    mr_dataset *const both[] = {mr_dataset_ref(one), mr_dataset_ref(one)};
    mr_dataset *two = mr_zip(both, 2);
    mr_check(needed(one, &o) - needed(none, &o) > 90 * MIB);
    mr_check(needed(two, &o) - needed(one, &o) > 90 * MIB);
    mr_dataset *most = graph("range(9000000000000000000).shuffle(1000000000000000000, seed=1)");
    mr_eq_i64(needed(most, &o), INT64_MAX);
    mr_status st;
    mr_iterator *it = NULL;
    o.memory_limit = INT64_MAX - 1;
    mr_code_is(mr_iterator_open(&it, most, &o, &st), MR_INVALID_ARGUMENT, &st);
    mr_dataset_unref(none);
    mr_dataset_unref(one);
    mr_dataset_unref(two);
    mr_dataset_unref(most);
}

/* What needs at least so much more than it would with one file at a time. */
MR_TEST(what_is_needed_counts_the_files_that_are_open_at_once)
{
    static const char *const graphs[][2] = {
        {"tfrecord(\"a\", \"b\")", "tfrecord(\"a\", \"b\", num_parallel_reads=16)"},
        {"tfrecord(\"a\", \"b\")", "tfrecord(\"a\", \"b\", num_parallel_reads=auto)"},
        {"from_tensor_slices([\"a\"]).flat_map(f => tfrecord(f))",
         "from_tensor_slices([\"a\"]).interleave(f => tfrecord(f), cycle_length=16)"},
        {"from_tensor_slices([\"a\"]).interleave(f => from_tensors(f), cycle_length=16)",
         "from_tensor_slices([\"a\"]).interleave(f => tfrecord(f), cycle_length=16)"},
    };
    start();
    mr_iterator_opts o = {.threads = 0, .has_threads = true};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        mr_dataset *one = graph(graphs[i][0]), *many = graph(graphs[i][1]);
        mr_check(needed(many, &o) - needed(one, &o) >= 16 * MIB);
        mr_dataset_unref(one);
        mr_dataset_unref(many);
    }
}

MR_TEST(the_option_nearest_the_sink_counts_and_the_callers_before_it)
{
    start();
    mr_status st;
    mr_iterator *it = NULL;
    mr_dataset *low = graph("range(3).with_options(memory_limit=9).with_options()");
    mr_dataset *high =
        graph("range(3).with_options(memory_limit=9).with_options(memory_limit=1000000000)");
    mr_dataset_opts opts = {.memory_limit = 9};
    mr_dataset *called = mr_with_options(mr_dataset_ref(high), &opts);
    mr_iterator_opts o = {.threads = 0, .has_threads = true};
    mr_code_is(mr_iterator_open(&it, low, &o, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_iterator_open(&it, called, &o, &st), MR_INVALID_ARGUMENT, &st);
    mr_ok(mr_iterator_open(&it, high, &o, &st), &st);
    mr_iterator_close(it);
    o.memory_limit = 100 * MIB;
    mr_ok(mr_iterator_open(&it, low, &o, &st), &st);
    mr_iterator_close(it);
    mr_dataset_unref(low);
    mr_dataset_unref(high);
    mr_dataset_unref(called);
}

/* Rows of 512 KiB. */
#define ROWS "range(24).map(x => zeros([131072]) + cast(x, \"float32\"))"
static const char *const graphs[] = {
    ROWS ".filter(x => x[0] > 3.0)",
    ROWS ".take(20).skip(3).shard(2, 1).enumerate()",
    ROWS ".repeat(2).concatenate(" ROWS ")",
    "zip(" ROWS ", " ROWS ").map((a, b) => a + b)",
    ROWS ".batch(4).unbatch()",
    ROWS ".padded_batch(4)",
    ROWS ".batch(4).rebatch(3).replica_slices(2)",
    ROWS ".window(3, 1).flat_map(w => w)",
    ROWS ".shuffle(8, seed=1)",
    ROWS ".take(6).cache().repeat(3)",
    ROWS ".prefetch(1000)",
    ROWS ".prefetch(auto).prefetch(100)",
    ROWS ".map(x => x + 1.0, num_parallel_calls=64)",
    ROWS ".map(x => x + 1.0, num_parallel_calls=auto).prefetch(auto)",
    ROWS ".filter(x => x[0] > 3.0, num_parallel_calls=16).prefetch(50)",
    "range(8).interleave(n => " ROWS ".take(5), cycle_length=4, num_parallel_calls=4)",
    "range(8).interleave(n => " ROWS ".take(5), cycle_length=4, num_parallel_calls=auto)"
    ".prefetch(20)",
    ROWS ".scan(0.0, (s, x) => (x[0], x)).take_while(x => x[0] < 20.0)",
    "sample_from_datasets([" ROWS ", " ROWS "], seed=1).prefetch(30)",
    "mix({\"a\": " ROWS ", \"b\": " ROWS "}, seed=1).prefetch(30)",
    "choose_from_datasets([" ROWS ", " ROWS "], range(20).map(x => x % 2)).prefetch(30)",
    ROWS ".group_by_window(x => 0, (k, w) => w.batch(3), 3).prefetch(30)",
    ROWS ".ignore_errors().assert_cardinality(24).prefetch(30)",
    ROWS ".batch(12).map(x => x + 1.0).prefetch(3)",
    ROWS ".batch(12, num_parallel_calls=4).prefetch(auto)",
    ROWS ".padded_batch(8).prefetch(4)",
    ROWS ".ragged_batch(4).map(x => length(x)).prefetch(4)",
    ROWS ".bucket_by_sequence_length(x => 7, [10], [4, 4]).prefetch(4)",
    ROWS ".rejection_resample(x => cast(x[0], \"int64\") % 2, [0.5, 0.5], seed=1).prefetch(20)",
    "range(8).flat_map(n => " ROWS ".take(5)).prefetch(20)",
    "random(seed=1).take(6).map(x => zeros([400000])).repeat(4).prefetch(20)",
};

MR_TEST_SLOW(every_op_gives_the_same_within_the_least_limit_and_those_above)
{
    start();
    for (size_t g = 0; g < sizeof graphs / sizeof *graphs; g++) {
        mr_dataset *ds = graph(graphs[g]);
        uint64_t want = 0;
        int64_t want_rows = 0;
        for (int way = 0; way < 7; way++) {
            if (way && !mr_test_takes(g + (size_t)way / 2, 3))
                continue; /* one of those with a thread and one of those with four */
            static const int64_t above[] = {0, 0, 0, 2 * MIB, 2 * MIB, 200 * MIB, 200 * MIB};
            mr_status st;
            mr_iterator *it = NULL;
            int64_t rows = 0;
            mr_iterator_opts o = {.threads = way == 0  ? 0
                                             : way % 2 ? 1
                                                       : 4,
                                  .has_threads = true,
                                  .block_rows = way == 1 ? 1 : 0};
            mr_buffer_pool_trim();
            if (way)
                o.memory_limit = needed(ds, &o) + above[way];
            mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
            mr_restart_peak();
            uint64_t got = rest(it, way == 2 || way == 5 ? 7 : 1, &rows);
            mr_iterator_close(it);
            if (way == 0) {
                want = got;
                want_rows = rows;
            }
            mr_eq_i64(rows, want_rows);
            mr_eq_u64(got, want);
            if (way)
                peak_is_within(o.memory_limit);
        }
        mr_dataset_unref(ds);
    }
}

/* A run that is left at any place, or continues at another, has uncounted what it had made ahead:
 * mr__memory_stop asserts it. */
MR_TEST_SLOW(what_is_left_or_goes_on_elsewhere_is_counted_back)
{
    static const char *const more[] = {
        "range(60).map(x => zeros([60000 + 5 // (x % 7)]), num_parallel_calls=8)",
        "range(60).map(x => zeros([60000 + 5 // (x % 7)]), num_parallel_calls=8, "
        "deterministic=false).prefetch(9)",
        "range(60).map(x => 5 // (x % 7)).prefetch(8).map(x => zeros([60000 + x]), "
        "num_parallel_calls=auto).batch(2).prefetch(3)",
        "range(60).filter(x => x % 3 > 0).map(x => zeros([60000 + x]), "
        "num_parallel_calls=4).shuffle(4, seed=1).prefetch(9)"};
    enum { OLD = sizeof graphs / sizeof *graphs, NEW = sizeof more / sizeof *more };
    uint64_t random = mr_test_seed();
    start();
    for (size_t i = 0; i < 2 * (OLD + NEW); i++) {
        mr_status st;
        mr_iterator *it = NULL;
        mr_block b = MR_BLOCK_EMPTY;
        void *position = NULL;
        size_t size;
        size_t g = i % (OLD + NEW);
        mr_dataset *ds = graph(g < OLD ? graphs[g] : more[g - OLD]);
        mr_iterator_opts o = {.threads = 4, .has_threads = true, .positions = i % 3 != 0};
        mr_buffer_pool_trim();
        o.memory_limit = needed(ds, &o) + 30 * MIB;
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        for (uint64_t part = 0; part < 4; part++) {
            for (uint64_t n = mr_test_random(&random) % 12; n-- > 0;)
                if (mr_iterator_next(it, 1 + mr_test_random(&random) % 3, &b, &st) == MR_END)
                    break;
            if (part == 1 && o.positions && mr_iterator_save(it, &position, &size, &st) != MR_OK)
                position = NULL;
            if (part == 2 && position)
                mr_ok(mr_iterator_restore(it, position, size, &st), &st);
        }
        mr_free(position);
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
}

/* Rows of 2 MiB, which the types do not say. */
MR_TEST_SLOW(parallel_calls_learn_from_the_first_what_they_take)
{
    static const char *const calls[] = {
        "range(40).map(x => zeros([524288 + x % 2]), num_parallel_calls=16)",
        "range(40).map(x => zeros([524288 + x % 2]), num_parallel_calls=16).prefetch(50)",
        "range(40).map(x => sum(zeros([524288 + x % 2])), num_parallel_calls=16).prefetch(50)"};
    start();
    for (size_t g = 0; g < sizeof calls / sizeof *calls; g++) {
        mr_status st;
        mr_iterator *it = NULL;
        int64_t rows = 0;
        mr_dataset *ds = graph(calls[g]);
        mr_iterator_opts o = {.threads = 8, .has_threads = true};
        mr_buffer_pool_trim();
        o.memory_limit = needed(ds, &o) + 10 * MIB;
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        mr_restart_peak();
        rest(it, 1, &rows);
        mr_eq_i64(rows, 40);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
        peak_is_within(o.memory_limit);
    }
}

/* A row of 4 MiB, then rows of 4 KiB, of which a call has many; a row that does not fit together
 * with others, then rows of 64 KiB. */
MR_TEST_SLOW(a_large_row_does_not_end_what_is_made_ahead)
{
#define FIRST(large, others) "[" others " + " large " * cast(x == 0, \"int64\")]"
    static const char *const skewed[] = {
        "range(4000).map(x => zeros(" FIRST("1048576", "1024") "), num_parallel_calls=8)",
        "range(4000).map(x => zeros(" FIRST("10485760", "16384") "), num_parallel_calls=8)",
        "range(4000).map(x => random_uniform(" FIRST("10485760",
                                                     "16384") ", seed=1)).prefetch(2000)"};
#undef FIRST
    start();
    for (size_t g = 0; g < sizeof skewed / sizeof *skewed; g++) {
        mr_status st;
        mr_iterator *it = NULL;
        mr_block b = MR_BLOCK_EMPTY;
        mr_op_stats stats[4];
        int64_t rows = 0;
        mr_dataset *ds = graph(skewed[g]);
        mr_iterator_opts o = {.threads = 4, .has_threads = true};
        mr_buffer_pool_trim();
        o.memory_limit = needed(ds, &o) + 128 * MIB;
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        mr_code rc;
        while ((rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK) {
            mr_check(mr_iterator_stats(it, stats, 4) > 0);
            if (++rows <= 3000)
                continue;
            /* Who takes rows as fast as they come finds none ahead: it rests until there are. */
            if (rows == 3001)
                mr_await(mr_iterator_stats(it, stats, 4) > 0 && stats[0].queued_blocks >= 3);
        }
        mr_code_is(rc, MR_END, &st);
        mr_eq_i64(rows, 4000);
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
}

/* What the process has grown by since takes room from what is read ahead. */
MR_TEST(a_run_that_follows_another_is_refused_for_its_own_needs_alone)
{
    start();
    mr_status st;
    mr_iterator *it = NULL;
    int64_t rows = 0;
    mr_iterator_opts o = {.threads = 1, .has_threads = true};
    mr_dataset *ds = graph(ROWS ".prefetch(100)"), *large = graph(ROWS ".shuffle(20, seed=1)");
    o.memory_limit = needed(ds, &o) + MIB;
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_iterator_close(it);
    base = 500 * MIB;
    mr_code_is(mr_iterator_open(&it, ds, &o, &st), MR_INVALID_ARGUMENT, &st);
    o.memory_follows = true;
    mr_code_is(mr_iterator_open(&it, large, &o, &st), MR_INVALID_ARGUMENT, &st);
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    rest(it, 1, &rows);
    mr_eq_i64(rows, 24);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_dataset_unref(large);
}

MR_TEST_SLOW(what_is_far_more_than_the_limit_gets_no_memory)
{
    start();
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_iterator_opts o = {.threads = 0, .has_threads = true, .memory_limit = 64 * MIB};
    mr_dataset *ds = graph("range(2).map(x => length(zeros([75000000 * (1 - x) + 1])))");
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_restart_peak();
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_has_str(st.message, "300000004 bytes");
    mr_has_str(st.message, "at most 268435456");
    mr_check(mr_peak_memory() < 8 * MIB);
    mr_iterator_close(it);
    o.memory_limit = 0;
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(what_the_consumer_keeps_is_needed_and_more_is_given_as_far_as_there_is_room)
{
    start();
    mr_status st;
    mr_iterator *it = NULL;
    mr_iterator_opts o = {.threads = 1, .has_threads = true};
    mr_dataset *ds = graph(ROWS ".batch(4).replica_slices(2).prefetch(2)"); /* batches of 2 MiB */
    mr_dataset *open_end = graph(ROWS ".filter(x => x[0] > 3.0).map(x => x[:cast(x[1], \"int64\")])"
                                      ".padded_batch(4)");
    int64_t least = needed(ds, &o), least_open = needed(open_end, &o);
    o.memory_slots = 3;
    mr_eq_i64(needed(ds, &o) - least, 6 * MIB);
    mr_eq_i64(needed(open_end, &o), least_open); /* their size is unknown */
    o.memory_limit = least;
    mr_code_is(mr_iterator_open(&it, ds, &o, &st), MR_INVALID_ARGUMENT, &st);
    o.memory_limit = least + 6 * MIB;
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_eq_i64(mr_iterator_take_slots(it, 5), 0);
    mr_iterator_close(it);
    o.memory_limit = least + 18 * MIB; /* half of the rest is for what is read ahead */
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_eq_i64(mr_iterator_take_slots(it, 5), 3);
    mr_eq_i64(mr_iterator_take_memory(it, 100 * MIB), 3 * MIB);
    mr_check(mr_iterator_has_memory(it, 1));
    base = 1000 * MIB;
    for (int i = 0; i < 16; i++) /* it is not looked at each time */
        (void)mr_iterator_has_memory(it, 1);
    mr_check(!mr_iterator_has_memory(it, 1));
    base = 4 * MIB;
    mr_iterator_close(it);
    o.memory_limit = 500 * MIB;
    mr_ok(mr_iterator_open(&it, open_end, &o, &st), &st);
    mr_eq_i64(mr_iterator_take_slots(it, 5), 0);
    mr_iterator_close(it);
    o.memory_limit = 0;
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_eq_i64(mr_iterator_take_slots(it, 5), 5);
    mr_eq_i64(mr_iterator_take_memory(it, 100 * MIB), 100 * MIB);
    mr_check(mr_iterator_has_memory(it, SIZE_MAX));
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_dataset_unref(open_end);
}

/* What comes after it is as large as it is itself, which is not known here. */
MR_TEST(a_batch_that_was_taken_apart_counts_no_more)
{
    start();
    static const char *const apart[] = {
        ROWS ".batch(16).unbatch().map(x => x[:cast(x[1], \"int64\")])",
        ROWS ".batch(16).flat_map(b => range(3).map(x => zeros([x])))",
        ROWS ".batch(16).interleave(b => range(3).map(x => zeros([x])), cycle_length=2)"};
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) {
        char more[300];
        mr_iterator_opts o = {.threads = 1, .has_threads = true};
        snprintf(more, sizeof more, "%s.filter(x => sum(x) > 1.0)", apart[i]);
        mr_dataset *ds = graph(apart[i]), *after = graph(more);
        mr_test_context("%s", more);
        mr_eq_i64(needed(after, &o) - needed(ds, &o), MIB); /* blocks of a quarter */
        o.memory_slots = 3;
        mr_eq_i64(needed(after, &o) - needed(ds, &o), MIB);
        mr_iterator_opts none = {.threads = 1, .has_threads = true};
        mr_eq_i64(needed(after, &o), needed(after, &none));
        mr_dataset_unref(after);
        mr_dataset_unref(ds);
    }
}

MR_TEST(runs_that_are_told_of_each_other_must_fit_together)
{
    start();
    mr_status st;
    mr_iterator *its[3] = {NULL};
    mr_iterator_opts o = {.threads = 0, .has_threads = true};
    mr_dataset *ds = graph(ROWS ".shuffle(20, seed=1)"), *none = graph("range(0)");
    int64_t one = needed(ds, &o), process = needed(none, &o) - MIB; /* less its own blocks */
    const mr__iterator_internal internal = {.shares_memory = true};
    o.internal = &internal;
    o.memory_limit = process + 2 * (one - process) + 4 * MIB; /* and what sends it on */
    mr_ok(mr_iterator_open(&its[0], ds, &o, &st), &st);
    base = 30 * MIB; /* what that one holds does not count again */
    mr_ok(mr_iterator_open(&its[1], ds, &o, &st), &st);
    mr_code_is(mr_iterator_open(&its[2], ds, &o, &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_has_str(st.message, "2 graphs");
    mr_check(!its[2]);
    mr_iterator_close(its[0]);
    mr_ok(mr_iterator_open(&its[2], ds, &o, &st), &st);
    mr_iterator_close(its[1]);
    mr_iterator_close(its[2]);
    mr_ok(mr_iterator_open(&its[0], ds, &o, &st), &st); /* nor what was not given back */
    int64_t rows = 0;
    rest(its[0], 1, &rows);
    mr_eq_i64(rows, 24);
    mr_iterator_close(its[0]);
    mr_dataset_unref(ds);
    mr_dataset_unref(none);
}

/* A run that has read ahead, and a graph for another one, which needs the memory. */
typedef struct filled {
    mr_dataset *ds, *holds;
    mr_iterator_opts o;
} filled;

static mr_iterator *lender;
static atomic_bool asked_back;

static void ask(void *ctx)
{
    (void)ctx;
    atomic_store(&asked_back, true);
}

typedef struct resting {
    void *bytes;
    size_t size;
    mr_code rc;
    mr_status why;
} resting;

/* As a worker's thread between two blocks. *ctx = where the iterator rests. */
static void *give_back(void *ctx)
{
    resting *at = ctx;
    at->rc = MR_UNAVAILABLE;
    mr_fail(&at->why, MR_UNAVAILABLE, "nothing was asked back");
    for (int ms = 0; !atomic_load(&asked_back) && ms < 60000; ms++)
        usleep(1000);
    if (!atomic_load(&asked_back))
        return NULL;
    at->rc = mr_iterator_save(lender, &at->bytes, &at->size, &at->why);
    if (at->rc == MR_OK)
        at->rc = mr_iterator_rest(lender, &at->why);
    mr__iterator_gave_back(lender);
    return NULL;
}

/* Opens the lender. */
static filled fill(const mr__iterator_internal *internal)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    filled f = {.ds = graph(ROWS ".repeat(6).prefetch(1000)"),
                .holds = graph(ROWS ".shuffle(20)"),
                .o = {.threads = 2, .has_threads = true, .positions = true}};
    mr_dataset *none = graph("range(0)");
    int64_t own = needed(f.holds, &f.o) - needed(none, &f.o);
    mr_dataset_unref(none);
    f.o.internal = internal;
    f.o.memory_limit = needed(f.ds, &f.o) + own + 8 * MIB;
    mr_ok(mr_iterator_open(&lender, f.ds, &f.o, &st), &st);
    mr_ok(mr_iterator_next(lender, 1, &b, &st), &st);
    mr_block_reset(&b);
    mr_await(mr_live_memory() >= own);
    return f;
}

static void drop(filled *f)
{
    mr_dataset_unref(f->holds);
    mr_dataset_unref(f->ds);
}

MR_TEST(what_a_run_has_read_ahead_is_taken_back_for_another)
{
    start();
    mr_status st;
    mr_iterator *second = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    pthread_t thread;
    resting at = {0};
    const mr__iterator_internal internal = {.shares_memory = true, .give_back = ask};
    filled f = fill(&internal);
    mr_check(pthread_create(&thread, NULL, give_back, &at) == 0);
    mr_restart_peak();
    mr_ok(mr_iterator_open(&second, f.holds, &f.o, &st), &st);
    mr_check(pthread_join(thread, NULL) == 0);
    mr_ok(at.rc, &at.why);
    mr_ok(mr_iterator_next(second, 1, &b, &st), &st); /* its shuffle is full */
    mr_block_reset(&b);
    mr_ok(mr_iterator_restore(lender, at.bytes, at.size, &st), &st);
    int64_t rows = 1, others = 1;
    rest(second, 1, &rows);
    rest(lender, 1, &others);
    mr_eq_i64(rows, 24);
    mr_eq_i64(others, 144);
    peak_is_within(f.o.memory_limit);
    mr_iterator_close(second);
    mr_iterator_close(lender);
    mr_free(at.bytes);
    drop(&f);
}

static void stop_waiting(void *cancel)
{
    mr_cancel_trigger(cancel);
}

MR_TEST(a_run_that_waits_for_memory_of_another_can_be_cancelled)
{
    start();
    mr_status st;
    mr_iterator *second = NULL;
    mr_cancel *cancel = NULL;
    mr_ok(mr_cancel_new(NULL, &cancel, &st), &st);
    const mr__iterator_internal internal = {
        .shares_memory = true, .give_back = stop_waiting, .give_back_ctx = cancel};
    filled f = fill(&internal);
    f.o.cancel = cancel;
    mr_code_is(mr_iterator_open(&second, f.holds, &f.o, &st), MR_CANCELLED, &st);
    mr_iterator_close(lender);
    f.o.cancel = NULL;
    mr_ok(mr_iterator_open(&second, f.holds, &f.o, &st), &st);
    mr_iterator_close(second);
    mr_cancel_unref(cancel);
    drop(&f);
}

static atomic_bool hurries;

/* Eleven seconds more at each call. */
static int hurry(clockid_t clock, struct timespec *out)
{
    static atomic_int calls;
    int rc = mr__system_real()->clock_gettime(clock, out);
    out->tv_sec += atomic_load(&hurries) ? 11 * atomic_fetch_add(&calls, 1) : 0;
    return rc;
}

static void never_answer(void *ctx)
{
    (void)ctx;
    atomic_store(&hurries, true);
}

static atomic_bool has_warned;

static void hear(void *ctx, mr_log_level level, const char *message)
{
    (void)ctx;
    if (level == MR_LOG_WARNING && strstr(message, "does not give back"))
        atomic_store(&has_warned, true);
}

MR_TEST(a_run_that_does_not_answer_is_not_waited_for_without_end)
{
    start();
    table.clock_gettime = hurry;
    mr_log_set(hear, NULL, MR_LOG_WARNING);
    mr_status st;
    mr_iterator *second = NULL;
    const mr__iterator_internal internal = {.shares_memory = true, .give_back = never_answer};
    filled f = fill(&internal);
    mr_ok(mr_iterator_open(&second, f.holds, &f.o, &st), &st);
    atomic_store(&hurries, false);
    mr_check(atomic_load(&has_warned));
    mr_iterator_close(lender);
    mr_iterator_close(second);
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
    drop(&f);
}

MR_TEST(runs_with_a_cache_or_a_pipe_keep_what_they_have_read_ahead)
{
    mr_status st;
    char pipe[600];
    snprintf(pipe, sizeof pipe, "text_line(\"%s\")", mr_test_path("pipe"));
    mr_check(mkfifo(mr_test_path("pipe"), 0600) == 0);
    int fd = open(mr_test_path("pipe"), O_RDWR);
    mr_check(fd >= 0 && write(fd, "a\nb\n", 4) == 4);
    mr_block b = MR_BLOCK_EMPTY;
    const char *const texts[] = {ROWS ".shuffle(20).repeat()", ROWS ".cache().repeat()", pipe};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mr_iterator *it = NULL;
        mr_dataset *ds = graph(texts[i]);
        const mr_iterator_opts o = {.has_threads = true, .memory_limit = 400 * MIB};
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_block_reset(&b);
        mr_check(mr__iterator_can_give_back(it) == (i == 0));
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
    close(fd);
}

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they keep what is freed */
enum { FREED = 1024, OF_FREED = 32 << 10 };

/* Frees 32 MiB below a block that stays, which it returns. */
static void *free_below(void)
{
    static void *blocks[FREED];
    for (size_t i = 0; i < FREED; i++) {
        blocks[i] = malloc(OF_FREED);
        mr_check(blocks[i] != NULL);
        memset(blocks[i], 1, OF_FREED);
    }
    void *stays = malloc(OF_FREED);
    for (size_t i = 0; i < FREED; i++)
        free(blocks[i]);
    return stays;
}

/* What ended streams had read ahead stayed in the process, and the blocks of the next ones came on
 * top of it. */
MR_TEST(runs_that_are_told_of_each_other_give_back_what_was_freed)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_dataset *ds = graph(ROWS);
    const mr__iterator_internal internal = {.shares_memory = true};
    const mr_iterator_opts o = {
        .has_threads = true, .internal = &internal, .memory_limit = 120 * MIB};
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st); /* sets what the C library keeps */
    mr_iterator_close(it);
    void *first = free_below();
    int64_t before = mr__memory_resident();
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_check(mr__memory_resident() < before - 24 * MIB);
    void *second = free_below();
    before = mr__memory_resident();
    mr_iterator_close(it);
    mr_check(mr__memory_resident() < before - 24 * MIB);
    free(first);
    free(second);
    mr_dataset_unref(ds);
}
#endif

/* What reads ahead fills what there is while the consumer sleeps, and no more. A machine too busy
 * to fill it in that time passes all the more. */
MR_TEST_SLOW(what_is_read_ahead_stops_at_the_limit)
{
    static const char *const ahead[] = {
        ROWS ".repeat(6).prefetch(1000)",
        ROWS ".repeat(6).prefetch(1000).map(x => x + 1.0).prefetch(1000)",
        ROWS ".repeat(6).map(x => x + 1.0, num_parallel_calls=100)",
    };
    start();
    for (size_t g = 0; g < sizeof ahead / sizeof *ahead; g++) {
        mr_status st;
        mr_iterator *it = NULL;
        mr_block b = MR_BLOCK_EMPTY;
        mr_dataset *ds = graph(ahead[g]);
        mr_iterator_opts o = {.threads = 2, .has_threads = true};
        mr_buffer_pool_trim();
        o.memory_limit = needed(ds, &o) + 12 * MIB;
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        mr_restart_peak();
        for (int i = 0; i < 20; i++) {
            mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
            usleep(20000);
        }
        int64_t rows = 20;
        mr_block_reset(&b);
        rest(it, 1, &rows);
        mr_eq_i64(rows, 144);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
        peak_is_within(o.memory_limit);
    }
}

MR_TEST_SLOW(a_run_beside_another_is_not_refused_for_what_that_holds)
{
    start();
    mr_status st;
    mr_iterator *first = NULL, *second = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = graph(ROWS ".repeat(6).prefetch(1000)");
    mr_iterator_opts o = {.threads = 2, .has_threads = true};
    mr_buffer_pool_trim();
    o.memory_limit = needed(ds, &o) + 12 * MIB;
    mr_ok(mr_iterator_open(&first, ds, &o, &st), &st);
    mr_ok(mr_iterator_next(first, 1, &b, &st), &st);
    base = o.memory_limit - 4 * MIB; /* it has taken all that it may */
    mr_check(needed(ds, &o) > o.memory_limit);
    mr_ok(mr_iterator_open(&second, ds, &o, &st), &st);
    int64_t rows = 0, others = 1;
    uint64_t hash = rest(second, 1, &rows);
    mr_iterator_close(second);
    mr_eq_i64(rows, 144);
    rest(first, 1, &others);
    mr_eq_i64(others, 144);
    mr_iterator_close(first);
    mr_block_reset(&b);
    /* Alone it is. */
    second = NULL;
    mr_code_is(mr_iterator_open(&second, ds, &o, &st), MR_INVALID_ARGUMENT, &st);
    base = 4 * MIB;
    mr_buffer_pool_trim();
    mr_ok(mr_iterator_open(&second, ds, &o, &st), &st);
    rows = 0;
    mr_eq_u64(rest(second, 1, &rows), hash);
    mr_iterator_close(second);
    mr_dataset_unref(ds);
}

MR_TEST(a_position_saved_under_a_limit_restores_with_another)
{
    start();
    mr_dataset *ds = graph(ROWS ".shuffle(5, seed=3).map(x => x * 2.0, num_parallel_calls=4)"
                                ".prefetch(30)");
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_iterator_opts o = {.threads = 2, .has_threads = true, .positions = true};
    o.memory_limit = needed(ds, &o);
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    for (int i = 0; i < 13; i++)
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    void *position = NULL;
    size_t size = 0;
    int64_t rows = 0, again = 0;
    mr_ok(mr_iterator_save(it, &position, &size, &st), &st);
    uint64_t want = rest(it, 1, &rows);
    mr_iterator_close(it);
    o.memory_limit = 0;
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_ok(mr_iterator_restore(it, position, size, &st), &st);
    mr_eq_u64(rest(it, 4, &again), want);
    mr_eq_i64(rows, 11);
    mr_eq_i64(again, 11);
    mr_iterator_close(it);
    mr_free(position);
    mr_block_reset(&b);
    mr_dataset_unref(ds);
}

MR_TEST(elements_of_unknown_size_are_held_up_to_the_limit_and_none_is_lost)
{
    start();
    mr_dataset *ds = graph("range(40).map(x => zeros([x * 0 + 262144])).shuffle(30, seed=1)"
                           ".map(x => length(x))");
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const char *unknown = NULL;
    int64_t bytes = 0;
    mr_iterator_opts o = {.threads = 0, .has_threads = true, .positions = true};
    mr_ok(mr_memory_needed(ds, &o, &bytes, &unknown, &st), &st);
    mr_eq_str(unknown, "shuffle");
    o.memory_limit = bytes + 10 * MIB;
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_has_str(st.message, "memory limit");
    mr_has_str(st.message, "shuffle");
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_RESOURCE_EXHAUSTED, &st);
    base = -1000 * MIB; /* another part of the program gave memory back */
    int64_t rows = 0;
    rest(it, 1, &rows);
    mr_eq_i64(rows, 40);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

/* Groups and sets, whose parameters do not say how much they hold, and what datasets that functions
 * make hold, which is not counted before. */
MR_TEST(what_no_parameter_bounds_is_held_up_to_the_limit)
{
    start();
    static const struct {
        const char *text, *op;
    } cases[] = {
        {"range(10000000).group_by_window(x => 0, (k, w) => w, 10000000)", "group_by_window"},
        {"range(10000000).bucket_by_sequence_length(x => 3, [10], [10000000, 10000000])",
         "bucket_by_sequence_length"},
        {"range(10000000).unique().filter(x => x < 0)", "unique"},
        {"range(1).flat_map(x => range(10000000).batch(10000000))", "batch"},
        {"range(1).flat_map(x => range(10000000).shuffle(10000000))", "shuffle"},
        {"range(1).flat_map(x => range(2).map(y => y).flat_map(y => "
         "range(10000000).window(10000000).flat_map(w => w)))",
         "window"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_dataset *ds = graph(cases[i].text);
        mr_status st;
        mr_iterator *it = NULL;
        mr_block b = MR_BLOCK_EMPTY;
        mr_iterator_opts o = {.threads = 0, .has_threads = true};
        o.memory_limit = needed(ds, &o) + 10 * MIB;
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_RESOURCE_EXHAUSTED, &st);
        mr_has_str(st.message, "memory limit");
        mr_has_str(st.message, cases[i].op);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
}

static char warned[2][400];
static int warnings;

static void keep_warning(void *ctx, mr_log_level level, const char *message)
{
    (void)ctx;
    if (level == MR_LOG_WARNING && warnings < 2)
        snprintf(warned[warnings++], sizeof warned[0], "%s", message);
}

MR_TEST_SLOW(an_element_that_breaks_the_limit_is_warned_of_once)
{
    start();
    mr_dataset *ds =
        graph("range(5).map(x => zeros([x * 4000000 + 1])).map(x => length(x)).prefetch(2)");
    mr_status st;
    mr_iterator_opts o = {.threads = 1, .has_threads = true};
    int64_t least = needed(ds, &o);
    mr_log_set(keep_warning, NULL, MR_LOG_WARNING);
    for (int large = 1; large >= 0; large--) {
        mr_iterator *it = NULL;
        int64_t rows = 0;
        o.memory_limit = least + (large ? 10 : 500) * MIB;
        warnings = 0;
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        rest(it, 1, &rows);
        mr_iterator_close(it);
        mr_eq_i64(rows, 5);
        mr_eq_i64(warnings, large);
    }
    mr_log_set(NULL, NULL, MR_LOG_WARNING);
    mr_has_str(warned[0], "bytes that 'map' made");
    mr_has_str(warned[0], "memory limit of");
    mr_dataset_unref(ds);
}

MR_TEST(a_system_that_does_not_say_its_size_limits_by_what_is_counted)
{
    start();
    table.open = open_no_statm;
    mr_dataset *ds = graph("range(30).map(x => zeros([262144])).prefetch(1000)");
    mr_status st;
    mr_iterator *it = NULL;
    mr_iterator_opts o = {.threads = 1, .has_threads = true};
    o.memory_limit = needed(ds, &o);
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    int64_t rows = 0;
    rest(it, 3, &rows);
    mr_eq_i64(rows, 30);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}
