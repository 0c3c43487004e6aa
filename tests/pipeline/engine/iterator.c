/* SPDX-License-Identifier: Apache-2.0 */
/* The iterator as a user holds it. */
#include "pipeline/engine/iterator.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "pipeline/bytes.h"
#include "pipeline/functions/compiler/function.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sources.h"
#include "pipeline/varint.h"
#include "tests/fault.h"
#include "tests/harness.h"

static mr_iterator *open_text(const char *text, const mr_iterator_opts *opts)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr_iterator_open(&it, ds, opts, &st), &st);
    mr_dataset_unref(ds);
    return it;
}

/* The next int64 scalar. */
static int64_t next_int(mr_iterator *it)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_eq_u64(b.rows, 1);
    int64_t v = *(const int64_t *)mr_array_at(&b.columns[0], 0);
    mr_block_reset(&b);
    return v;
}

static void expect_end(mr_iterator *it)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_END, &st);
    mr_block_reset(&b);
}

MR_TEST(an_error_stands_for_one_position_and_end_is_sticky)
{
    mr_iterator *it = open_text("from_tensor_slices([5, 2, 0, 1]).map(x => 10 // x)", NULL);
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_ok(mr_iterator_next(it, 100, &b, &st), &st);
    mr_eq_u64(b.rows, 2);
    mr_code_is(mr_iterator_next(it, 100, &b, &st), MR_INVALID_ARGUMENT, &st);
    mr_eq_str(st.op, "map");
    mr_eq_u64(b.rows, 0);
    mr_eq_i64(next_int(it), 10);
    expect_end(it);
    expect_end(it);
    mr_block_reset(&b);
    mr_iterator_close(it);
}

MR_TEST(the_error_of_a_dataset_surfaces_when_it_is_opened)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_dataset *ds = NULL;
    mr_code_is(mr_dataset_from_text("range(3).batch(0)", 17, NULL, &ds, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_check(ds == NULL);
    ds = mr_test_graph("range(3)");
    mr_iterator_opts bad = {.block_rows = -1};
    mr_code_is(mr_iterator_open(&it, ds, &bad, &st), MR_INVALID_ARGUMENT, &st);
    bad = (mr_iterator_opts){.has_threads = true, .threads = 5000};
    mr_code_is(mr_iterator_open(&it, ds, &bad, &st), MR_INVALID_ARGUMENT, &st);
    mr_check(it == NULL);
    mr_dataset_unref(ds);
}

MR_TEST(columns_are_found_by_name)
{
    mr_iterator *it = open_text("from_tensors(b=2, a=1)", NULL);
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_eq_i64(*(const int64_t *)mr_block_column(&b, "a")->data, 1);
    mr_eq_i64(*(const int64_t *)mr_block_column(&b, "b")->data, 2);
    mr_check(mr_block_column(&b, "c") == NULL);
    mr_block_reset(&b);
    mr_iterator_close(it);
}

/* The orders of epochs 1 and 2 of range(10).shuffle(10, seed=42), as tf.data has them. */
static const int64_t epochs[2][10] = {{5, 9, 6, 4, 7, 1, 2, 8, 3, 0},
                                      {3, 7, 6, 5, 8, 4, 0, 1, 9, 2}};

MR_TEST(rewinding_goes_on_with_the_generator_of_shuffle)
{
    mr_iterator *it = open_text("range(10).shuffle(10, seed=42)", NULL);
    mr_status st;
    for (int e = 0; e < 2; e++) {
        for (int i = 0; i < 10; i++)
            mr_eq_i64(next_int(it), epochs[e][i]);
        expect_end(it);
        mr_ok(mr_iterator_rewind(it, &st), &st);
    }
    mr_iterator_close(it);
    /* A new iterator starts from the beginning. */
    it = open_text("range(10).shuffle(10, seed=42)", NULL);
    mr_eq_i64(next_int(it), epochs[0][0]);
    mr_iterator_close(it);
}

MR_TEST(a_position_is_behind_any_row_of_the_last_block)
{
    const char *text = "range(20).map(x => x * x).prefetch(3)";
    mr_iterator_opts opts = {.positions = true};
    mr_iterator *it = open_text(text, &opts), *other = open_text(text, &opts);
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    int64_t seen = next_int(it) + 1;
    while (mr_iterator_next(it, 7, &b, &st) == MR_OK) {
        for (size_t row = 0; row <= b.rows; row++) {
            void *bytes = NULL;
            size_t size = 0;
            mr_ok(mr_iterator_save_at(it, &b, row, &bytes, &size, &st), &st);
            mr_ok(mr_iterator_restore(other, bytes, size, &st), &st);
            int64_t n = seen + (int64_t)row;
            if (n < 20)
                mr_eq_i64(next_int(other), n * n);
            else
                expect_end(other);
            mr_free(bytes);
        }
        mr_check(b.position != NULL);
        seen += (int64_t)b.rows;
    }
    mr_eq_i64(seen, 20);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_iterator_close(other);
}

MR_TEST(positions_that_do_not_belong_are_refused)
{
    mr_iterator_opts opts = {.positions = true};
    mr_iterator *it = open_text("range(9).batch(2)", &opts);
    mr_iterator *other = open_text("range(9).batch(3)", &opts);
    mr_iterator *none = open_text("range(9).batch(2)", NULL);
    void *bytes = NULL;
    size_t size = 0;
    mr_status st;
    mr_code_is(mr_iterator_save(none, &bytes, &size, &st), MR_FAILED_PRECONDITION, &st);
    mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
    mr_code_is(mr_iterator_restore(other, bytes, size, &st), MR_INVALID_ARGUMENT, &st);
    mr_check(strstr(st.message, "2)") && strstr(st.message, "3)"));
    mr_code_is(mr_iterator_restore(it, bytes, size - 1, &st), MR_INVALID_ARGUMENT, &st);
    ((char *)bytes)[size - 1] ^= 1;
    mr_code_is(mr_iterator_restore(it, bytes, size, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_iterator_restore(it, "MRP", 3, &st), MR_INVALID_ARGUMENT, &st);
    ((char *)bytes)[size - 1] ^= 1;
    mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
    mr_free(bytes);
    mr_iterator_close(it);
    mr_iterator_close(other);
    mr_iterator_close(none);
}

/* A graph with much text: its one constant has n ones, but for `value`, before the last `back`. */
static mr_dataset *long_graph(size_t n, size_t back, const char *value, const char *end)
{
    char *text = malloc(4 * n + 100), *at = text + sprintf(text, "from_tensor_slices([");
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%s%s", i ? ", " : "", i + 1 + back == n ? value : "1");
    sprintf(at, "]).batch(%s)", end);
    mr_dataset *ds = mr_test_graph(text);
    free(text);
    return ds;
}

/* The same position as 0.1 wrote it, with the whole text of the graph. */
static uint8_t *with_whole_text(const uint8_t *position, size_t *size, mr_dataset *ds)
{
    char *text;
    uint64_t n = 0;
    mr_status st;
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    const uint8_t *old = mr__varint(position + 8, position + *size, &n);
    size_t head = 8 + MR__VARINT_MOST, rest = *size - (size_t)(old + n - position);
    uint8_t *p = malloc(head + strlen(text) + rest), *at = p + 8;
    at = mr__varint_put(at, strlen(text));
    memcpy(at, text, strlen(text));
    at += strlen(text);
    memcpy(at, old + n, rest);
    at += rest;
    memcpy(p, position, 4);
    mr__store_le(p + 4, crc32_z(0, p + 8, (size_t)(at - p) - 8), 4);
    *size = (size_t)(at - p);
    mr_free(text);
    return p;
}

MR_TEST(a_position_of_a_graph_with_much_data_is_small)
{
    mr_iterator_opts opts = {.positions = true};
    mr_dataset *ds = long_graph(20000, 9000, "2", "2");
    /* Other values of equal length in the middle, at both ends and elsewhere; one value more. */
    mr_dataset *differ[] = {long_graph(20000, 9000, "3", "2"), long_graph(20000, 8999, "2", "2"),
                            long_graph(20001, 9001, "2", "2"), long_graph(20000, 19999, "2", "2"),
                            long_graph(20000, 0, "2", "2"),    long_graph(20000, 9000, "2", "3")};
    mr_iterator *it = NULL, *other = NULL;
    void *bytes = NULL;
    size_t size = 0;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_ok(mr_iterator_next(it, 3, &b, &st), &st);
    mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
    mr_check(size < 4096);
    for (size_t i = 0; i < sizeof differ / sizeof *differ; i++) {
        mr_ok(mr_iterator_open(&other, differ[i], &opts, &st), &st);
        mr_code_is(mr_iterator_restore(other, bytes, size, &st), MR_INVALID_ARGUMENT, &st);
        mr_check(strstr(st.message, "another graph"));
        mr_check(strstr(st.message, i < 3    ? "other values in the middle"
                                    : i == 3 ? "first difference is at byte 20: it has '[1, "
                                    : i == 4
                                        ? "last difference is at the end: it has '1]).batch(2)'"
                                        : "it has '2)', this one has '3)'"));
        mr_iterator_close(other);
        mr_dataset_unref(differ[i]);
    }
    size_t old_size = size;
    uint8_t *old = with_whole_text(bytes, &old_size, ds);
    mr_check(old_size > 60000);
    for (int k = 0; k < 2; k++) {
        mr_ok(mr_iterator_open(&other, ds, &opts, &st), &st);
        mr_ok(mr_iterator_restore(other, k ? old : bytes, k ? old_size : size, &st), &st);
        size_t rows = 3;
        while (mr_iterator_next(other, 4096, &b, &st) == MR_OK)
            rows += b.rows;
        mr_eq_u64(rows, 10000);
        mr_iterator_close(other);
    }
    old[8 + 3 + 1000] ^= 1; /* in the text, which is then another graph's */
    mr__store_le(old + 4, crc32_z(0, old + 8, old_size - 8), 4);
    mr_code_is(mr_iterator_restore(it, old, old_size, &st), MR_INVALID_ARGUMENT, &st);
    mr_check(strstr(st.message, "another graph"));
    mr_block_reset(&b);
    mr_free(bytes);
    free(old);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

/* At the length from which a text is shortened: whole and shortened ones are compared alike. */
MR_TEST(positions_of_graphs_with_long_text_are_of_one_graph)
{
    mr_iterator_opts opts = {.positions = true};
    for (size_t length = 4095; length < 4099; length++) {
        char text[4100];
        memset(text, 'x', sizeof text);
        memcpy(text, "from_tensors(\"", 14);
        memcpy(text + length - 12, "\").repeat(3)", 13);
        mr_eq_u64(strlen(text), length);
        mr_iterator *it = open_text(text, &opts), *same = open_text(text, &opts);
        text[length / 2] = 'y';
        mr_iterator *other = open_text(text, &opts);
        mr_block b = MR_BLOCK_EMPTY;
        mr_status st;
        void *bytes = NULL;
        size_t size = 0;
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
        mr_check(length > 4096 ? size < 3072 : size > length);
        mr_ok(mr_iterator_restore(same, bytes, size, &st), &st);
        size_t rows = 0;
        while (mr_iterator_next(same, 3, &b, &st) == MR_OK)
            rows += b.rows;
        mr_eq_u64(rows, 2);
        mr_code_is(mr_iterator_restore(other, bytes, size, &st), MR_INVALID_ARGUMENT, &st);
        mr_block_reset(&b);
        mr_free(bytes);
        mr_iterator_close(it);
        mr_iterator_close(same);
        mr_iterator_close(other);
    }
}

MR_TEST(an_ended_iterator_stays_ended_when_restored)
{
    mr_iterator_opts opts = {.positions = true};
    mr_iterator *it = open_text("range(2).repeat(2)", &opts);
    mr_iterator *other = open_text("range(2).repeat(2)", &opts);
    void *bytes = NULL;
    size_t size = 0;
    mr_status st;
    for (int i = 0; i < 4; i++)
        next_int(it);
    expect_end(it);
    mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
    mr_ok(mr_iterator_restore(other, bytes, size, &st), &st);
    expect_end(other);
    mr_free(bytes);
    mr_iterator_close(it);
    mr_iterator_close(other);
}

static void *cancel_it(void *it)
{
    mr_iterator_cancel(it);
    return NULL;
}

MR_TEST(cancelling_from_another_thread_ends_an_endless_stream)
{
    mr_iterator *it = open_text("counter().map(x => x, num_parallel_calls=2).prefetch(4)", NULL);
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    pthread_t t;
    next_int(it);
    mr_eq_i64(pthread_create(&t, NULL, cancel_it, it), 0);
    mr_code rc;
    while ((rc = mr_iterator_next(it, 64, &b, &st)) == MR_OK)
        ;
    mr_code_is(rc, MR_CANCELLED, &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_CANCELLED, &st);
    pthread_join(t, NULL);
    mr_block_reset(&b);
    mr_iterator_close(it);
}

MR_TEST(every_op_counts_its_elements)
{
    mr_iterator *it = open_text("range(10).map(x => x + 1).batch(4)", NULL);
    mr_block b = MR_BLOCK_EMPTY;
    mr_op_stats stats[8];
    mr_status st;
    while (mr_iterator_next(it, 100, &b, &st) == MR_OK)
        ;
    mr_eq_u64(mr_iterator_stats(it, stats, 8), 3);
    mr_eq_str(stats[0].path, "batch");
    mr_eq_i64(stats[0].elements, 3);
    mr_eq_str(stats[2].path, "batch/map/range");
    mr_eq_i64(stats[2].elements, 10);
    mr_eq_i64(stats[2].bytes, 80);
    mr_eq_u64(mr_iterator_stats(it, NULL, 0), 3);
    mr_block_reset(&b);
    mr_iterator_close(it);
}

/* Those of datasets that a function makes count together, while several threads read them and the
 * figures are read. */
MR_TEST(no_element_is_left_out_of_the_counts_of_many_iterators)
{
    static const char *const texts[] = {
        "range(500).interleave(x => range(300).map(y => x + y), cycle_length=6, "
        "num_parallel_calls=4).batch(16)",
        "range(500).map(x => x, num_parallel_calls=3).flat_map(x => range(300).map(y => x + "
        "y)).prefetch(2).batch(16)"};
    const mr_iterator_opts opts = {.has_threads = true, .threads = 3, .block_rows = 1};
    for (size_t i = 0; i < 2; i++) {
        mr_iterator *it = open_text(texts[i], &opts);
        mr_block b = MR_BLOCK_EMPTY;
        mr_op_stats stats[8];
        mr_status st;
        while (mr_iterator_next(it, 100, &b, &st) == MR_OK)
            mr_check(mr_iterator_stats(it, stats, 8) <= 8);
        size_t n = mr_iterator_stats(it, stats, 8), inner = 0;
        for (size_t k = 0; k < n; k++) {
            if (strstr(stats[k].path, "(f)")) {
                inner++;
                mr_eq_i64(stats[k].elements, 500 * 300);
                mr_eq_i64(stats[k].bytes, 8 * 500 * 300);
            }
            mr_check(!stats[k].queued_blocks && !stats[k].queued_elements &&
                     !stats[k].queued_bytes);
        }
        mr_eq_u64(inner, 2);
        mr_block_reset(&b);
        mr_iterator_close(it);
    }
}

enum { BUSY_TRIES = 20 }; /* on a machine that may be busy with something else */

/* Runs `text` in the calling thread; *seconds it took, opening included. */
static mr_iterator *run_here(const char *text, mr_op_stats *stats, size_t n, double *seconds)
{
    struct timespec began, ended;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    clock_gettime(CLOCK_MONOTONIC, &began);
    mr_iterator *it = open_text(text, &(mr_iterator_opts){.has_threads = true});
    while (mr_iterator_next(it, 4096, &b, &st) == MR_OK)
        ;
    clock_gettime(CLOCK_MONOTONIC, &ended);
    *seconds =
        (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) * 1e-9;
    mr_block_reset(&b);
    mr_eq_u64(mr_iterator_stats(it, stats, n), n);
    return it;
}

MR_TEST(times_of_all_ops_add_up_and_those_inside_functions_are_listed_under_theirs)
{
    static const char *const paths[] = {"batch", "batch/flat_map", "batch/flat_map/(f)/map",
                                        "batch/flat_map/(f)/map/range", "batch/flat_map/range"};
    mr_op_stats stats[5];
    double ratio = 0;
    /* Something else may have the processor just while no op is in work. */
    for (int i = 0; i < BUSY_TRIES && !(ratio >= 0.95 && ratio <= 1.05); i++) {
        double seconds, all = 0;
        mr_iterator *it = run_here(
            "range(20000).flat_map(x => range(20).map(y => x + y)).batch(100)", stats, 5, &seconds);
        for (int k = 0; k < 5; k++) {
            mr_eq_str(stats[k].path, paths[k]);
            mr_check(stats[k].busy_seconds >= 0 && stats[k].wait_seconds == 0);
            all += stats[k].busy_seconds;
        }
        mr_eq_i64(stats[3].elements, 400000);
        mr_iterator_close(it);
        ratio = all / seconds;
    }
    mr_eq_f64(ratio, 1, 0.05);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What the ops of `text` were busy, over the CPU time of its run in 3 threads. */
static double busy_over_cpu(const char *text)
{
    mr_op_stats stats[8];
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    double began = cpu_seconds(), busy = 0;
    mr_iterator *it = open_text(text, &(mr_iterator_opts){.has_threads = true, .threads = 3});
    while (cpu_seconds() - began < 0.4 && mr_iterator_next(it, 4096, &b, &st) == MR_OK)
        ;
    double cpu = cpu_seconds() - began;
    mr_check(cpu >= 0.3);
    size_t n = mr_iterator_stats(it, stats, 8);
    mr_check(n <= 8);
    for (size_t i = 0; i < n; i++)
        busy += stats[i].busy_seconds;
    mr_block_reset(&b);
    mr_iterator_close(it);
    return busy / cpu;
}

/* On a machine that is busy with something else, some of the time is accounted to neither. */
static void busy_is_cpu(const char *text)
{
    double ratio = 0;
    for (int i = 0; i < BUSY_TRIES && !(ratio >= 0.9 && ratio <= 1.1); i++)
        ratio = busy_over_cpu(text);
    if (ratio < 0.5 || ratio > 1.1)
        mr_fail_test("busy for %.2f of the CPU time", ratio);
}

/* All threads share one processor, so that much of the elapsed time is neither work nor sleep. */
MR_TEST(busy_times_of_all_ops_and_threads_add_up_to_the_cpu_time)
{
    cpu_set_t before, one;
    mr_check(sched_getaffinity(0, sizeof before, &before) == 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    mr_check(sched_setaffinity(0, sizeof one, &one) == 0);
    busy_is_cpu("range(1000000000).map(x => x * x + 1, num_parallel_calls=3).batch(100)"
                ".prefetch(2)");
    busy_is_cpu("range(1000000000).flat_map(x => range(20).map(y => x + y)).batch(100)"
                ".map(x => x + 1, num_parallel_calls=3).prefetch(2)");
    mr_check(sched_setaffinity(0, sizeof before, &before) == 0);
}

static double late; /* seconds, twice as many in each try: a busy machine may take some of them */

static void *write_late(void *path)
{
    int fd = open(path, O_WRONLY); /* waits for the reader */
    nanosleep(&(struct timespec){(time_t)late, (long)((late - floor(late)) * 1e9)}, NULL);
    ssize_t n = write(fd, "a\n", 2);
    close(fd);
    return (void *)(intptr_t)n;
}

MR_TEST(waiting_for_a_pipe_is_waiting)
{
    const char *path = mr_test_path("fifo");
    char text[300];
    mr_op_stats stats[2];
    double seconds;
    pthread_t t;
    bool waited = false;
    mr_check(mkfifo(path, 0600) == 0);
    for (late = 0.1; late < 30 && !waited; late *= 2) {
        mr_check(pthread_create(&t, NULL, write_late, (void *)(uintptr_t)path) == 0);
        snprintf(text, sizeof text, "text_line(\"%s\").batch(2)", path);
        mr_iterator *it = run_here(text, stats, 2, &seconds);
        pthread_join(t, NULL);
        mr_check(stats[0].wait_seconds == 0);
        waited = stats[1].wait_seconds >= 0.9 * late && stats[0].busy_seconds < 0.5 * late &&
                 stats[1].busy_seconds < 0.5 * late;
        mr_iterator_close(it);
    }
    mr_check(waited);
}

MR_TEST(identities_follow_rows_through_shuffle_map_and_batch)
{
    const char *text = "range(30).shuffle(7, seed=1).map(x => x, num_parallel_calls=3).batch(4)";
    for (int64_t threads = 0; threads <= 4; threads += 4) {
        mr_iterator_opts opts = {.has_threads = true, .threads = threads, .identities = true};
        mr_iterator *it = open_text(text, &opts);
        mr_block b = MR_BLOCK_EMPTY;
        mr_status st;
        uint64_t rows = 0;
        while (mr_iterator_next(it, 3, &b, &st) == MR_OK) {
            mr_check(b.ids.ids != NULL);
            for (size_t r = 0; r < b.rows; r++) {
                const int64_t *v = mr_array_at(&b.columns[0], r);
                mr_eq_u64(b.ids.offsets[r + 1] - b.ids.offsets[r], (uint64_t)b.columns[0].shape[0]);
                for (uint64_t k = b.ids.offsets[r]; k < b.ids.offsets[r + 1]; k++, rows++)
                    mr_eq_u64(b.ids.ids[k].ordinal, (uint64_t)v[k - b.ids.offsets[r]]);
            }
        }
        mr_eq_u64(rows, 30);
        mr_block_reset(&b);
        mr_iterator_close(it);
    }
}

MR_TEST(identities_join_in_zip_and_count_epochs)
{
    mr_iterator_opts opts = {.identities = true};
    mr_iterator *it = open_text("zip(range(3), range(5, 8)).repeat(2)", &opts);
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    for (uint64_t i = 0; i < 6; i++) {
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_eq_u64(b.ids.offsets[1] - b.ids.offsets[0], 2);
        const mr_identity *id = b.ids.ids + b.ids.offsets[0];
        mr_check(id[0].source != id[1].source);
        mr_eq_u64(id[0].ordinal, i % 3);
        mr_eq_u64(id[1].ordinal, i % 3);
        mr_eq_u64(id[0].epoch, i / 3);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
}

/* ---- rest ---- */

/* The sums of the first `passes` passes, weighted by place, so that an order shows too. With
 * `threads`, which are those of the process without the iterator's, it rests between them. */
static void sums_of(const char *text, const mr_iterator_opts *opts, int threads, int64_t *sums,
                    int passes)
{
    bool rests = threads > 0;
    mr_iterator *it = open_text(text, opts);
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    for (int i = 0; i < passes; i++) {
        mr_code rc;
        int64_t place = 0;
        sums[i] = 0;
        while ((rc = mr_iterator_next(it, 100, &b, &st)) == MR_OK)
            for (size_t k = 0; k < b.rows; k++)
                sums[i] += ++place * *(const int64_t *)mr_array_at(&b.columns[0], k);
        mr_code_is(rc, MR_END, &st);
        if (rests) {
            mr_ok(mr_iterator_rest(it, &st), &st);
            mr_ok(mr_iterator_rest(it, &st), &st);
            mr_await(mr_test_threads() == threads);
            mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_FAILED_PRECONDITION, &st);
            mr_check(mr_iterator_stats(it, NULL, 0) > 0);
            mr_eq_u64(mr_spec_n_leaves(mr_iterator_spec(it)), 1);
        }
        mr_ok(mr_iterator_rewind(it, &st), &st);
    }
    mr_block_reset(&b);
    if (rests)
        mr_ok(mr_iterator_rest(it, &st), &st);
    mr_iterator_close(it);
}

MR_TEST(a_rest_between_passes_changes_no_pass)
{
    static const char *const texts[] = {
        "range(50).shuffle(20, seed=3).map(x => x, num_parallel_calls=2).prefetch(2)",
        "range(50).shuffle(20, seed=3).cache().prefetch(2)",
        "random(seed=4, rerandomize_each_iteration=true).take(9).prefetch(1)"};
    const mr_iterator_opts opts = {
        .has_threads = true, .threads = 2, .watch = true, .positions = true};
    int threads = mr_test_threads_at_first();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t plain[4], rested[4];
        mr_test_context("%s", texts[i]);
        sums_of(texts[i], &opts, 0, plain, 4);
        sums_of(texts[i], &opts, threads, rested, 4);
        mr_eq_mem(plain, rested, sizeof plain);
    }
}

MR_TEST(a_position_can_be_saved_and_restored_at_rest)
{
    mr_iterator *it = open_text("range(10).shuffle(4, seed=1).prefetch(1)",
                                &(mr_iterator_opts){.positions = true});
    mr_iterator *other = open_text("range(10).shuffle(4, seed=1).prefetch(1)",
                                   &(mr_iterator_opts){.positions = true});
    mr_status st;
    void *bytes, *within;
    size_t n, n_within;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_ok(mr_iterator_rest(it, &st), &st);
    mr_ok(mr_iterator_save(it, &bytes, &n, &st), &st);
    mr_ok(mr_iterator_save_at(it, &b, 0, &within, &n_within, &st), &st);
    int64_t first = *(const int64_t *)mr_array_at(&b.columns[0], 0);
    mr_ok(mr_iterator_restore(other, within, n_within, &st), &st);
    mr_eq_i64(next_int(other), first);
    mr_ok(mr_iterator_rest(other, &st), &st);
    mr_ok(mr_iterator_restore(other, bytes, n, &st), &st);
    mr_ok(mr_iterator_restore(it, bytes, n, &st), &st);
    for (int i = 1; i < 10; i++)
        mr_eq_i64(next_int(other), next_int(it));
    expect_end(it);
    mr_block_reset(&b);
    mr_free(bytes);
    mr_free(within);
    mr_iterator_close(it);
    mr_iterator_close(other);
}

MR_TEST(an_iterator_that_waits_for_a_pipe_can_rest)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    char text[600];
    snprintf(text, sizeof text, "text_line(\"%s\").prefetch(4)", mr_test_path("pipe"));
    mr_check(mkfifo(mr_test_path("pipe"), 0600) == 0);
    int fd = open(mr_test_path("pipe"), O_RDWR | O_CLOEXEC);
    mr_check(fd >= 0 && write(fd, "a\n", 2) == 2);
    mr_iterator *it = open_text(text, &(mr_iterator_opts){.has_threads = true, .threads = 2});
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_ok(mr_iterator_rest(it, &st), &st);
    mr_ok(mr_iterator_rewind(it, &st), &st);
    mr_check(write(fd, "b\n", 2) == 2);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st); /* its waits are not cancelled */
    mr_eq_mem(((const mr_bytes *)b.columns[0].data)->data, "b", 1);
    mr_iterator_cancel(it);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_CANCELLED, &st);
    mr_ok(mr_iterator_rest(it, &st), &st);
    mr_ok(mr_iterator_rewind(it, &st), &st);
    mr_check(write(fd, "c\n", 2) == 2);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st); /* not for ever */
    mr_block_reset(&b);
    mr_iterator_close(it);
    close(fd);
}

/* Each line is written in two parts, with a cancelled wait between them. */
static void resume_within_lines(const char *graph, size_t threads)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    enum { LINES = 6 };
    char text[600], got[64] = "";
    const char *pipe = mr_test_path("pipe");
    snprintf(text, sizeof text, graph, pipe);
    mr_check(mkfifo(pipe, 0600) == 0);
    int fd = open(pipe, O_RDWR | O_CLOEXEC);
    mr_iterator *it = open_text(
        text,
        &(mr_iterator_opts){.has_threads = true, .threads = (int64_t)threads, .positions = true});
    for (int i = 0; i < LINES; i++) {
        const char line[2] = {(char)('a' + i), '\n'};
        mr_check(write(fd, line, 1) == 1);
        mr_iterator_cancel(it);
        mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_CANCELLED, &st);
        mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_CANCELLED, &st);
        mr_ok(mr_iterator_resume(it, &st), &st);
        mr_check(write(fd, line + 1, 1) == 1);
        if (i % 2 == 0)
            continue;
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st); /* a pair */
        const mr_bytes *rows = mr_array_at(&b.columns[b.n_columns - 1], 0);
        strncat(got, rows[0].data, rows[0].size);
        strncat(got, rows[1].data, rows[1].size);
    }
    mr_eq_str(got, "abcdef");
    mr_block_reset(&b);
    mr_iterator_close(it);
    close(fd);
    mr_check(unlink(pipe) == 0);
}

MR_TEST(an_iterator_that_waited_for_a_pipe_resumes_without_loss)
{
    static const char *const graphs[] = {
        "text_line(\"%s\").batch(2)",
        "text_line(\"%s\").enumerate().batch(2)",
        "zip(range(100), text_line(\"%s\")).batch(2)",
        "text_line(\"%s\").padded_batch(2)",
        "text_line(\"%s\").map(x => x).batch(2).prefetch(1)",
        "text_line(\"%s\").prefetch(1).batch(2)",
        "text_line(\"%s\").batch(2).prefetch(2).prefetch(1)",
        "from_tensors(0).flat_map(i => text_line(\"%s\")).batch(2).prefetch(1)",
        "text_line(\"%s\").shuffle(1).batch(2).prefetch(1)",
        "from_tensors(0).interleave(i => text_line(\"%s\"), cycle_length=1).batch(2)"};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
        for (size_t threads = 0; threads < 3; threads += 2)
            resume_within_lines(graphs[i], threads);
}

MR_TEST(an_iterator_of_files_resumes_after_the_last_element)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_iterator *it = open_text("range(100).map(x => x, num_parallel_calls=2).prefetch(2)",
                                &(mr_iterator_opts){.positions = true});
    for (int64_t i = 0; i < 100; i++) {
        mr_iterator_cancel(it);
        mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_CANCELLED, &st);
        mr_ok(mr_iterator_resume(it, &st), &st);
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_eq_i64(*(const int64_t *)mr_array_at(&b.columns[0], 0), i);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
}

MR_TEST(a_rest_does_not_end_the_cancellation_of_the_caller)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_cancel *cancel;
    mr_ok(mr_cancel_new(NULL, &cancel, &st), &st);
    mr_iterator *it =
        open_text("range(9).map(x => x).prefetch(1)", &(mr_iterator_opts){.cancel = cancel});
    mr_cancel_trigger(cancel);
    mr_ok(mr_iterator_rest(it, &st), &st);
    mr_ok(mr_iterator_rewind(it, &st), &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_CANCELLED, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_cancel_unref(cancel);
}

/* ---- an interrupted wait ---- */

typedef struct slow {
    int64_t at;
    atomic_bool *blocks; /* at element 5 */
    atomic_bool stop;
} slow;

static mr_code slow_open(void *ctx, void **pass, mr_status *st)
{
    slow *s = calloc(1, sizeof *s);
    (void)st;
    s->blocks = ctx;
    *pass = s;
    return MR_OK;
}

static mr_code slow_next(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    slow *s = pass;
    (void)ctx, (void)want;
    if (s->at == 12)
        return MR_END;
    while (s->at == 5 && atomic_load(s->blocks) && !atomic_load(&s->stop))
        usleep(500);
    if (atomic_load(&s->stop))
        return mr_fail(st, MR_CANCELLED, "stopped");
    MR_TRY(mr_block_prepare(out, 1, st));
    out->rows = 1;
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, 1, st));
    *(int64_t *)out->columns[0].data = s->at++;
    return MR_OK;
}

static void slow_cancel(void *ctx, void *pass)
{
    (void)ctx;
    atomic_store(&((slow *)pass)->stop, true);
}

static void slow_close(void *ctx, void *pass)
{
    (void)ctx;
    free(pass);
}

static mr_code slow_save(void *ctx, void *pass, void **bytes, size_t *size, mr_status *st)
{
    (void)ctx;
    *size = sizeof(int64_t);
    *bytes = mr_malloc(*size);
    if (!*bytes)
        return mr_fail_memory(st, *size, "a position");
    memcpy(*bytes, &((slow *)pass)->at, *size);
    return MR_OK;
}

static mr_code slow_restore(void *ctx, void *pass, const void *bytes, size_t size, mr_status *st)
{
    (void)ctx, (void)st;
    memcpy(&((slow *)pass)->at, bytes, size);
    return MR_OK;
}

MR_TEST(a_rest_does_not_wait_for_what_is_read_ahead)
{
    static atomic_bool blocks = true;
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds = mr_from_generator(&(mr_generator){.ctx = &blocks,
                                                       .open = slow_open,
                                                       .next = slow_next,
                                                       .cancel = slow_cancel,
                                                       .close = slow_close,
                                                       .may_block = true},
                                       spec);
    ds = mr_prefetch(ds, 3);
    mr_status st;
    mr_iterator *it = NULL;
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true, .threads = 2}, &st),
          &st);
    for (int64_t i = 0; i < 5; i++)
        mr_eq_i64(next_int(it), i);
    usleep(20000); /* it is likely to be in its call for element 5 now */
    mr_ok(mr_iterator_rest(it, &st), &st);
    atomic_store(&blocks, false);
    mr_ok(mr_iterator_rewind(it, &st), &st);
    for (int64_t i = 0; i < 12; i++)
        mr_eq_i64(next_int(it), i);
    expect_end(it);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_spec_unref(spec);
}

static void *interrupt_soon(void *it)
{
    usleep(20000);
    mr_iterator_cancel(it);
    return NULL;
}

MR_TEST(after_an_interruption_a_restored_position_loses_nothing)
{
    static atomic_bool blocks;
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    for (int form = 0; form < 4; form++) {
        mr_status st;
        mr_block b = MR_BLOCK_EMPTY;
        pthread_t thread;
        void *bytes;
        size_t n;
        mr_code rc;
        int64_t next = 0;
        mr_dataset *ds = mr_from_generator(&(mr_generator){.ctx = &blocks,
                                                           .open = slow_open,
                                                           .next = slow_next,
                                                           .cancel = slow_cancel,
                                                           .close = slow_close,
                                                           .save = slow_save,
                                                           .restore = slow_restore,
                                                           .may_block = true},
                                           spec);
        mr_test_context("form %d", form);
        if (form & 1)
            ds = mr_prefetch(ds, 3);
        if (form & 2)
            ds = mr_map(ds, mr_fn_text("x => x"), &(mr_map_opts){.num_parallel_calls = 2});
        mr_iterator *it = NULL;
        mr_ok(mr_iterator_open(
                  &it, ds,
                  &(mr_iterator_opts){.positions = true, .has_threads = true, .threads = 2}, &st),
              &st);
        atomic_store(&blocks, true);
        mr_check(pthread_create(&thread, NULL, interrupt_soon, it) == 0);
        while ((rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK)
            mr_eq_i64(*(const int64_t *)b.columns[0].data, next++);
        mr_code_is(rc, MR_CANCELLED, &st);
        pthread_join(thread, NULL);
        atomic_store(&blocks, false);
        mr_ok(mr_iterator_rest(it, &st), &st);
        mr_ok(mr_iterator_save(it, &bytes, &n, &st), &st);
        mr_ok(mr_iterator_restore(it, bytes, n, &st), &st);
        mr_free(bytes);
        while ((rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK)
            mr_eq_i64(*(const int64_t *)b.columns[0].data, next++);
        mr_code_is(rc, MR_END, &st);
        mr_eq_i64(next, 12);
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
    mr_spec_unref(spec);
}

/* ---- passes that cannot be opened ---- */

typedef struct elements {
    char v[512];
    size_t n;
} elements;

/* The rest of a pass. A lack of memory that belongs to no element ends nothing. */
static void read_rest(mr_iterator *it, elements *out)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc;
    out->n = 0;
    while ((rc = mr_iterator_next(it, 1, &b, &st)) != MR_END) {
        if (rc != MR_OK) {
            mr_code_is(rc, MR_RESOURCE_EXHAUSTED, &st);
            continue;
        }
        void *bytes = NULL;
        size_t size = 0;
        while (mr_block_to_bytes(&b, &bytes, &size, &st) != MR_OK)
            ; /* the fault may be there */
        mr_check(out->n + 4 < sizeof out->v);
        uint32_t hash = 2166136261u;
        for (size_t i = 0; i < size; i++)
            hash = (hash ^ ((unsigned char *)bytes)[i]) * 16777619u;
        memcpy(out->v + out->n, &hash, 4);
        out->n += 4;
        mr_free(bytes);
    }
    mr_block_reset(&b);
}

/* What a pass draws when it is opened is drawn again, for the next try is the same pass. */
MR_TEST(a_pass_that_could_not_be_opened_is_opened_again)
{
    mr_test_file("a.txt", "a\n");
    mr_test_file("b.txt", "b\n");
    mr_test_file("c.txt", "c\n");
    mr_test_file("d.txt", "d\n");
    char files[600];
    snprintf(files, sizeof files, "list_files(\"%s/?.txt\", shuffle=true, seed=1).skip(1)",
             mr_test_dir());
    const char *const texts[] = {
        "range(9).shuffle(9, seed=1).skip(1)",
        "range(9).shuffle(9, seed=1).skip(1).repeat(3)",
        "range(9).global_shuffle(seed=1).skip(1)",
        "random(seed=1, rerandomize_each_iteration=true).take(5).skip(1)",
        "sample_from_datasets([range(9), range(9)], seed=1, "
        "rerandomize_each_iteration=true).skip(1)",
        "range(9).map(x => random_uniform([], seed=1)).skip(1)",
        files,
    };
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        mr_status st;
        mr_test_context("%s", texts[t]);
        static elements first, want, got;
        mr_dataset *ds = mr_test_graph(texts[t]);
        const mr_iterator_opts opts = {.has_threads = true, .has_seed = true, .seed = 5};
        mr_iterator *it = NULL;
        mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
        read_rest(it, &first);
        mr_ok(mr_iterator_rewind(it, &st), &st);
        read_rest(it, &want);
        mr_iterator_close(it);
        mr_check(want.n > 0);
        mr_fault_each_allocation(n)
        {
            mr_status why;
            if (mr_fault_expect(mr_iterator_open(&it, ds, &opts, &why), &why) != MR_OK)
                continue;
            read_rest(it, &got);
            mr_eq_mem(got.v, first.v, first.n);
            if (mr_fault_expect(mr_iterator_rewind(it, &why), &why) != MR_OK)
                mr_ok(mr_iterator_rewind(it, &why), &why);
            read_rest(it, &got);
            mr_eq_mem(got.v, want.v, want.n);
            mr_iterator_close(it);
        }
        mr_dataset_unref(ds);
    }
}
