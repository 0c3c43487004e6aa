/* SPDX-License-Identifier: Apache-2.0 */
/* The depth that auto chooses, on a clock of the test's own; and what runs say of theirs. */
#include "pipeline/engine/auto_parallelism.h"

#include <string.h>

#include "pipeline/engine/run.h"
#include "pipeline/system/system.h"
#include "tests/harness.h"

static double clock_seconds;

static int stopped_clock(clockid_t id, struct timespec *out)
{
    (void)id;
    out->tv_sec = (time_t)clock_seconds;
    out->tv_nsec = (long)((clock_seconds - (double)out->tv_sec) * 1e9);
    return 0;
}

static struct mr_iter_private priv;
static mr_iter it = {.priv = &priv};

/* n blocks of `service` seconds, the consumer working `interval` seconds between two. */
static void take(mr__auto_parallelism *d, int n, double service, double interval, mr__supply supply)
{
    static mr__system table;
    table = *mr__system_real();
    table.clock_gettime = stopped_clock;
    mr__system_set(&table);
    for (int i = 0; i < n; i++) {
        clock_seconds += interval;
        double asked = clock_seconds;
        clock_seconds += supply == MR_SUPPLY_LATE ? service : 0;
        mr__auto_parallelism_took(d, asked, service, supply);
    }
    mr__system_set(NULL);
}

static void start(mr__auto_parallelism *d, size_t least, size_t now, size_t most)
{
    clock_seconds = 1000;
    mr__auto_parallelism_start(d, &it, "buffer_size", least, now, most);
}

MR_TEST(falls_to_what_the_consumers_rate_needs)
{
    mr__auto_parallelism d;
    start(&d, 1, 16, 16);
    take(&d, 1000, 0.010, 0.004, MR_SUPPLY_READY); /* 2.5 of them at once, rounded up, and one */
    mr_eq_u64(d.now, 4);
    take(&d, 1000, 0.001, 0.004, MR_SUPPLY_READY);
    mr_eq_u64(d.now, 2);
}

MR_TEST(rises_at_once_where_the_consumer_waits)
{
    mr__auto_parallelism d;
    start(&d, 1, 2, 16);
    take(&d, 1, 0.001, 0.004, MR_SUPPLY_LATE);
    size_t first = d.now;
    mr_check(first > 2);
    take(&d, 1, 0.080, 0.004, MR_SUPPLY_LATE);
    take(&d, 40, 0.080, 0.004, MR_SUPPLY_LATE);
    mr_eq_u64(d.now, 16);
    take(&d, 1000, 0.080, 0.004, MR_SUPPLY_LATE);
    mr_eq_u64(d.now, 16);
}

/* Waiting once says how much is missing, where the rates are known. */
MR_TEST(rises_to_what_is_needed_and_not_step_by_step)
{
    mr__auto_parallelism d;
    start(&d, 1, 2, 16);
    take(&d, 40, 0.042, 0.004, MR_SUPPLY_NEITHER);
    mr_eq_u64(d.now, 2);
    take(&d, 1, 0.042, 0.004, MR_SUPPLY_LATE); /* 10.5 at once, rounded up, and one */
    mr_eq_u64(d.now, 12);
}

MR_TEST(falls_after_sixteen_that_were_ready_since_it_waited_last)
{
    mr__auto_parallelism d;
    start(&d, 1, 8, 16);
    take(&d, 40, 0.001, 0.004, MR_SUPPLY_NEITHER);
    take(&d, 15, 0.001, 0.004, MR_SUPPLY_READY);
    mr_eq_u64(d.now, 8);
    take(&d, 1, 0.001, 0.004, MR_SUPPLY_READY);
    mr_eq_u64(d.now, 7);
    take(&d, 15, 0.001, 0.004, MR_SUPPLY_READY);
    take(&d, 1, 0.001, 0.004, MR_SUPPLY_LATE);
    size_t risen = d.now;
    mr_check(risen > 7);
    take(&d, 15, 0.001, 0.004, MR_SUPPLY_READY);
    mr_eq_u64(d.now, risen);
    take(&d, 1, 0.001, 0.004, MR_SUPPLY_READY);
    mr_eq_u64(d.now, risen - 1);
}

MR_TEST(stays_within_its_bounds_and_where_nothing_is_known)
{
    mr__auto_parallelism d;
    start(&d, 2, 1, 8);
    mr_eq_u64(d.now, 2);
    start(&d, 2, 100, 8);
    mr_eq_u64(d.now, 8);
    take(&d, 1000, 1e-6, 1.0, MR_SUPPLY_READY);
    mr_eq_u64(d.now, 2);
    take(&d, 1000, 1.0, 1e-6, MR_SUPPLY_NEITHER);
    mr_eq_u64(d.now, 2);
}

/* ---- of runs ---- */

static size_t tuned(const char *text, int64_t threads, mr_op_tuning *out, size_t capacity,
                    mr_iterator **run)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_test_graph(text);
    const mr_iterator_opts o = {.threads = threads, .has_threads = true, .block_rows = 3};
    mr_ok(mr_iterator_open(run, ds, &o, &st), &st);
    int64_t n = 0;
    mr_code rc;
    while ((rc = mr_iterator_next(*run, 7, &b, &st)) == MR_OK)
        n += (int64_t)b.rows;
    mr_eq_i64(rc, MR_END);
    mr_eq_i64(n, mr_dataset_cardinality(ds) >= 0 ? mr_dataset_cardinality(ds) : n);
    mr_check(n > 0);
    mr_block_reset(&b);
    mr_dataset_unref(ds);
    return mr_iterator_tuning(*run, out, capacity);
}

#define GRAPH                                                                                      \
    "range(2000).interleave(x => range(x, x + 2), num_parallel_calls=auto)"                        \
    ".map(x => x * 3, num_parallel_calls=auto).prefetch(auto)"

MR_TEST(a_run_tells_what_it_chose)
{
    mr_op_tuning t[4];
    mr_iterator *run = NULL;
    mr_eq_u64(tuned(GRAPH, 2, t, 4, &run), 3);
    mr_eq_str(t[0].path, "prefetch");
    mr_eq_str(t[0].parameter, "buffer_size");
    mr_eq_str(t[1].op, "map");
    mr_eq_str(t[1].parameter, "num_parallel_calls");
    mr_eq_str(t[2].path, "prefetch/map/interleave");
    for (int i = 0; i < 3; i++) {
        mr_check(t[i].chosen >= 1 && t[i].chosen <= 16);
        mr_check(t[i].service_seconds >= 0 && t[i].interval_seconds >= 0);
    }
    mr_check(t[1].service_seconds > 0);
    mr_eq_u64(mr_iterator_tuning(run, t, 1), 3); /* more than there is room for */
    mr_iterator_close(run);
}

MR_TEST(without_threads_nothing_is_tuned)
{
    mr_op_tuning t[4];
    mr_iterator *run = NULL;
    mr_eq_u64(tuned(GRAPH, 0, t, 4, &run), 0);
    mr_iterator_close(run);
}

MR_TEST(what_the_graph_says_is_not_tuned)
{
    mr_op_tuning t[4];
    mr_iterator *run = NULL;
    mr_eq_u64(tuned("range(2000).map(x => x * 3, num_parallel_calls=2).prefetch(3)", 2, t, 4, &run),
              0);
    mr_iterator_close(run);
}

MR_TEST(the_order_is_that_of_one_thread)
{
    static const int64_t threads[] = {1, 2, 5};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        mr_status st;
        mr_iterator *a = NULL, *b = NULL;
        mr_block x = MR_BLOCK_EMPTY, y = MR_BLOCK_EMPTY;
        mr_dataset *ds = mr_test_graph(GRAPH);
        mr_iterator_opts o = {.threads = 0, .has_threads = true};
        mr_ok(mr_iterator_open(&a, ds, &o, &st), &st);
        o.threads = threads[i];
        o.block_rows = 5;
        mr_ok(mr_iterator_open(&b, ds, &o, &st), &st);
        for (int n = 0; n < 4000; n++) {
            mr_ok(mr_iterator_next(a, 1, &x, &st), &st);
            mr_ok(mr_iterator_next(b, 1, &y, &st), &st);
            mr_eq_i64(*(int64_t *)x.columns[0].data, *(int64_t *)y.columns[0].data);
        }
        mr_eq_i64(mr_iterator_next(b, 1, &y, &st), MR_END);
        mr_block_reset(&x);
        mr_block_reset(&y);
        mr_iterator_close(a);
        mr_iterator_close(b);
        mr_dataset_unref(ds);
    }
}
